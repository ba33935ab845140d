#!/usr/bin/env python3
"""Old containers stay readable: run.py BUILD_DIR reads every fixture beside it with the decoder,
`plfs` and `plfs run`, then writes
to each file, so that old containers also take new logs."""

import hashlib, json, os, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DECODE, DECODE_FLAT, AGREE = [
    [sys.executable, os.path.join(HERE, "..", "decoder", program)]
    for program in ("plfs_decode.py", "flat_index.py", "agree.py")
]


def run(*command):
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        raise ValueError(
            f"{' '.join(command[:3])}: status {done.returncode}: {done.stderr.decode()[-500:]}"
        )
    return done.stdout


def check(plfs, root, name, want):
    file, door = os.path.join(root, name), [plfs, "run", "--mount", root, "--"]
    ours, theirs = (
        json.loads(run(*AGREE, "--stat", file)),
        json.loads(run(plfs, "stat", "--json", file)),
    )
    for who, found in (("decoder", ours), ("plfs stat", theirs)):
        for key in ("size", "stored_bytes", "data_logs", "index_logs", "records"):
            if found[key] != want[key]:
                raise ValueError(f"{who}: {key} is {found[key]}, not {want[key]}")
        if (found["summary"] == "valid") != (want["summary"] == "valid"):
            raise ValueError(f"{who}: the summary is {found['summary']}, not {want['summary']}")

    def read(program, *command):
        data = run(*command)
        if len(data) != want["size"] or hashlib.md5(data).hexdigest() != want["md5"]:
            raise ValueError(f"{program}: {len(data)} bytes, or other ones")

    if "md5" in want:
        read("decoder", *DECODE, "cat", file)
        read("flat decoder", *DECODE_FLAT, "cat", file)
        read("plfs cat", plfs, "cat", file)
        read("cat under plfs run", *door, "cat", file)
    else:  # too long to read whole
        for at, data in ((0, b"\0" * 5 + b"low\0"), (want["size"] - 4, b"\0end")):
            found = run(plfs, "cat", "--from", str(at), "--length", str(len(data)), file)
            if found != data:
                raise ValueError(f"plfs cat: {found} at {at}")
    run(plfs, "check", file)
    run(*door, "sh", "-c", 'printf new >> "$0"', file)
    if run(plfs, "cat", "--from", str(want["size"]), file) != b"new":
        raise ValueError("an append does not come back")
    if json.loads(run(*AGREE, "--stat", file))["size"] != want["size"] + 3:
        raise ValueError("decoder: an append does not show")


def main(build):
    plfs = os.path.join(os.path.abspath(build), "bin", "plfs")
    for version in sorted(
        d for d in os.listdir(HERE) if os.path.exists(os.path.join(HERE, d, f"{d}.json"))
    ):
        with tempfile.TemporaryDirectory(prefix="plfs-compat.") as base:
            run("tar", "xzf", os.path.join(HERE, version, f"{version}.tar.gz"), "-C", base)
            with open(os.path.join(HERE, version, f"{version}.json")) as f:
                files = json.load(f)
            for name, want in files.items():
                try:
                    check(plfs, os.path.join(base, version), name, want)
                    print(f"ok {version}/{name}")
                except (ValueError, KeyError, OSError) as e:
                    print(f"not ok {version}/{name}: {e}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
