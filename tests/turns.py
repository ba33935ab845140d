"""As is_in_turn of lib.sh: which of many ways a run takes."""

import os


def in_turn(ways, seed=int(os.environ.get("PLFS_SEED", "1"))):
    """Every fifth of them, by the seed of the run; all if T_FULL=1."""
    if os.environ.get("T_FULL") == "1":
        return ways
    return ways[seed % 5 :: 5]
