#!/usr/bin/env python3
"""The main job as fio runs it: several processes write one shared file in strided pieces, then read
it and check it.

    fio_n1.py DIR [--out JSON] [--ranks 8] [--block 47001] [--mib-per-rank 64] [--nn] [--plfs BUILD]
              [--verify pattern|crc32c]

Process r of N writes its piece i at (i*N + r)*BLOCK. The fio options that make exactly this of one
file name:

  rw=write:(N-1)*BLOCK       after each block skip the blocks of the others
  offset_increment=BLOCK     process r starts at r*BLOCK
  io_size=PIECES*BLOCK       what a process moves; it ends by this
  size=((PIECES-1)*N+1)*BLOCK    the range from its first byte to its last: offset + size never
                             passes the file's end, so that a read job does not extend the file
                             first
  create_on_open=1, fallocate=none    no process lays the file out, allocates or truncates it; each
                             opens it O_RDWR|O_CREAT
  thread=0, ioengine=psync   processes, pwrite(2) and pread(2)
  end_fsync=1                fsync inside the time that fio counts; it does not count open and close
  verify=pattern, verify_pattern=%o   every block is filled with its own file offset, so direct and
                             PLFS files have equal bytes (crc32c blocks carry a time stamp and
                             differ from run to run)
  verify_state_save=0        no state files in the working directory

N-N is the same without stride: a file a process by filename_format. Three fio runs: write, read,
read with verify.
"""

import argparse, json, os, sys, tempfile
from common import machine, MIB, plfs_run, run_json, write_json


def jobs(directory, name, ranks, block, pieces, nn=False, verify="pattern"):
    """The fio command lines of the write, the read and the verify run."""
    check = [f"--verify={verify}"] + (["--verify_pattern=%o"] if verify == "pattern" else [])
    common = [
        "fio",
        "--name=n1",
        f"--directory={directory}",
        f"--bs={block}",
        f"--io_size={pieces * block}",
        f"--numjobs={ranks}",
        "--thread=0",
        "--ioengine=psync",
        "--fallocate=none",
        "--group_reporting",
        "--output-format=json",
        "--verify_state_save=0",
    ]
    if nn:
        common += [f"--filename_format={name}.$jobnum", f"--size={pieces * block}"]
    else:
        common += [
            f"--filename={name}",
            f"--offset_increment={block}",
            f"--size={((pieces - 1) * ranks + 1) * block}",
        ]
    stride = "" if nn else f":{(ranks - 1) * block}"
    return {
        "write": [
            *common,
            f"--rw=write{stride}",
            "--create_on_open=1",
            "--end_fsync=1",
            "--do_verify=0",
            *check,
        ],
        "read": [*common, f"--rw=read{stride}", "--allow_file_create=0"],
        "verify": [*common, f"--rw=read{stride}", "--allow_file_create=0", *check],
    }


def measure(directory, name, ranks, block, pieces, nn=False, verify="pattern", prefix=()):
    """{"write_mib_s", "read_mib_s", "verified"}; ends the program if fio finds an error or moved
    another amount."""
    result = {
        "pattern": "nn" if nn else "strided",
        "ranks": ranks,
        "transfer": block,
        "bytes_per_rank": block * pieces,
    }
    with tempfile.TemporaryDirectory() as cwd:
        for phase, command in jobs(directory, name, ranks, block, pieces, nn, verify).items():
            done = run_json([*prefix, *command], cwd=cwd)["jobs"][0]
            side = done["write" if phase == "write" else "read"]
            if done["error"] or side["io_bytes"] != ranks * block * pieces:
                sys.exit(
                    f"fio {phase}: error {done['error']}, {side['io_bytes']} bytes instead of {ranks * block * pieces}"
                )
            if phase == "verify":
                result["verified"] = verify
            else:
                result[f"{phase}_mib_s"], result[f"{phase}_ms"] = (
                    side["bw_bytes"] / MIB,
                    side["runtime"],
                )
    return result


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("dir")
    p.add_argument("--out", help="write the JSON here, not to stdout")
    p.add_argument("--ranks", type=int, default=8)
    p.add_argument("--block", type=int, default=47001)
    p.add_argument("--mib-per-rank", type=float, default=64)
    p.add_argument("--name", default="fio.n1")
    p.add_argument("--nn", action="store_true", help="a file per process")
    p.add_argument("--plfs", metavar="BUILD", help="through BUILD/bin/plfs run --mount DIR")
    p.add_argument("--verify", choices=("pattern", "crc32c"), default="pattern")
    a = p.parse_args()
    directory = os.path.abspath(a.dir)
    pieces = max(1, int(a.mib_per_rank * MIB) // a.block)
    prefix = plfs_run(os.path.abspath(a.plfs), [directory]) if a.plfs else ()
    result = {
        "machine": machine(directory),
        "door": "plfs" if a.plfs else "direct",
        **measure(directory, a.name, a.ranks, a.block, pieces, a.nn, a.verify, prefix),
    }
    if a.out:
        write_json(a.out, result)
    else:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
