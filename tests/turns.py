"""As is_in_turn of lib.sh: which of many ways a run takes."""

import os


def in_turn(ways, seed=None):
    """Every fifth of them, by this seed or that of the run; all if T_FULL=1."""
    if os.environ.get("T_FULL") == "1":
        return ways
    if seed is None:
        seed = int(os.environ.get("PLFS_SEED", "1"))
    return ways[seed % 5 :: 5]
