#!/usr/bin/env python3
"""Makes the fixture v1.tar and v1.json with the current code: make.py BUILD_DIR. README says when.

Every file shows another part of docs/FORMAT.md. The bytes in v1.json come from plain files that the
same calls made, not from PLFS.
"""

import base64, ctypes, hashlib, json, os, random, shutil, struct, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))


# Programs: they run once below `plfs run`, once on a plain directory.
def write(path, *pieces):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for offset, data in pieces:
        os.ftruncate(fd, offset) if data is None else os.pwrite(fd, data, offset)
    os.close(fd)


def example(path, _):  # section 10 of docs/FORMAT.md
    write(path, (0, b"aaa"), (10, b"bbb"), (20, b"ccc"))


def empty(path, _):
    write(path)


def strided(path, rank):
    """Two processes on two nodes. Both have the file open before either closes it, or the second
    would go on in the first one's logs."""
    rng, fd = random.Random(rank), os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for i in range(30):
        os.pwrite(fd, rng.randbytes(100), (2 * i + rank) * 100)
    if "MEET" in os.environ:
        open(f"{os.environ['MEET']}.{rank}", "w").close()
        while not os.path.exists(f"{os.environ['MEET']}.{1 - rank}"):
            time.sleep(0.01)
    os.close(fd)


def overlaps(path, _):
    rng = random.Random(7)
    write(path, *((rng.randrange(3000), rng.randbytes(rng.randrange(1, 400))) for _ in range(60)))


def backwards(path, _):
    write(path, *((i * 50, bytes([97 + i]) * 20) for i in reversed(range(20))))


def cut(path, _):
    """Truncated down, up, and written behind that."""
    write(
        path,
        (0, b"0123456789" * 20),
        (33, None),
        (150, None),
        (140, b"end"),
        (160, b"x"),
        (155, None),
    )


def more(path, _):
    """Later than a flat index."""
    write(path, (100, b"later " * 9), (1900, None))


def holes(path, _):
    """A pattern with holes in it, one of them written over in part."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    fallocate = ctypes.CDLL(None).fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    for i in range(20):
        os.pwrite(fd, bytes([97 + i]) * 30, i * 50)
    assert [
        fallocate(fd, 3, at, length) for at, length in ((70, 200), (510, 5), (900, 10_000))
    ] == [0, 0, 0]
    os.pwrite(fd, b"over", 100)
    os.close(fd)


def sparse(path, _):
    write(path, (5, b"low"), ((1 << 40) - 3, b"end"))


def torn(path, rank):
    write(path, *(((2 * i + rank) * 10, b"%d" % rank * 10) for i in range(9)))


def main(build):
    build, base = os.path.abspath(build), tempfile.mkdtemp(prefix="plfs-fixture.")
    root, plain, plfs = (
        os.path.join(base, "v1"),
        os.path.join(base, "plain"),
        os.path.join(build, "bin", "plfs"),
    )
    for d in (root, plain, *(os.path.join(base, f"node{n}") for n in range(2))):
        os.mkdir(d)

    def program(name, file, rank=0, node=0, **env):
        words = [sys.executable, os.path.abspath(__file__), "--do", name, str(rank)]
        env = {**os.environ, **env, "PLFS_SHARED_MEMORY": os.path.join(base, f"node{node}")}
        subprocess.run([*words, os.path.join(plain, file)], check=True)
        return subprocess.Popen(
            [plfs, "run", "--mount", root, "--", *words, os.path.join(root, file)], env=env
        )

    def wait(*children):
        assert [c.wait() for c in children] == [0] * len(children)

    for name in ("example", "empty", "overlaps", "backwards", "cut", "holes", "sparse"):
        wait(program(name, name))
    subprocess.run(
        [plfs, "flatten", os.path.join(root, "holes")], check=True, stdout=subprocess.DEVNULL
    )
    for file in ("strided", "flat"):
        wait(
            *(
                program("strided", file, rank, node=rank, MEET=os.path.join(base, file))
                for rank in range(2)
            )
        )
    subprocess.run(
        [plfs, "flatten", os.path.join(root, "flat")], check=True, stdout=subprocess.DEVNULL
    )
    wait(program("more", "flat"))
    for rank in range(2):
        wait(program("torn", "torn", rank, PLFS_STREAMS="1"))
    # What a crash leaves: an append cut short, and the mark of a process that is gone.
    stat = json.loads(
        subprocess.run(
            [plfs, "stat", "--json", os.path.join(root, "torn")], check=True, capture_output=True
        ).stdout
    )
    log_set = next(n for n in os.listdir(stat["container"]) if len(n) == 8)
    with open(os.path.join(stat["container"], log_set, "index"), "ab") as f:
        f.write(bytes(-f.tell() % 64) + b"PLIX" + bytes(60))
    numbers = struct.pack(
        "<QIIIIIII", 0xFEEDF00D, 0x89ABCDEF, 0x76543210, 4026531836, 0x1B2, 4711, 123456, 0
    )
    os.symlink(
        "1" + base64.urlsafe_b64encode(numbers).decode() + "gone",
        os.path.join(stat["container"], log_set + ".open"),
    )
    files = {}
    for name in sorted(os.listdir(plain)):
        path, numbers = (
            os.path.join(plain, name),
            json.loads(
                subprocess.run(
                    [plfs, "stat", "--json", os.path.join(root, name)],
                    check=True,
                    capture_output=True,
                ).stdout
            ),
        )
        files[name] = {"size": os.stat(path).st_size} | {
            k: numbers[k] for k in ("stored_bytes", "data_logs", "index_logs", "records", "summary")
        }
        if files[name]["size"] < 1 << 20:
            with open(path, "rb") as f:
                files[name]["md5"] = hashlib.file_digest(f, "md5").hexdigest()
    with open(os.path.join(HERE, "v1.json"), "w") as f:
        json.dump(files, f, indent=1)
        f.write("\n")
    # Nanoseconds of times count: the token of a summary is one. gzip because logs start at
    # multiples of 4 KiB.
    subprocess.run(
        [
            "tar",
            "czf",
            os.path.join(HERE, "v1.tar.gz"),
            "--format=posix",
            "--numeric-owner",
            "--owner=0",
            "--group=0",
            "--pax-option=delete=atime,delete=ctime",
            "--sort=name",
            "--sparse",
            "-C",
            base,
            "v1",
        ],
        check=True,
    )
    shutil.rmtree(base)


if __name__ == "__main__":
    if sys.argv[1] == "--do":
        globals()[sys.argv[2]](sys.argv[4], int(sys.argv[3]))
    else:
        main(sys.argv[1])
