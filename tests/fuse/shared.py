"""Plain files that become containers while mounts have them open (docs/decisions/0013): shared.py
DIRECTORY PLFS, as root. Two daemons of one directory, each with a mount of its own, that know of
each other by shared memory, as a node's processes do. Prints a line for each behaviour, as suites
do."""

import errno
import fcntl
import json
import mmap
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time

from common import fails, in_child, main, read, write

WORK, PLFS = sys.argv[1:3]
# The kernel believes names and attributes that long (-o timeout).
SETTLE_S = 1.1
POINTS = tempfile.mkdtemp(prefix="plfs-shared.")
ONE, TWO, BELOW = f"{POINTS}/one", f"{POINTS}/two", f"{WORK}/shared"
TABLE = f"/dev/shm/{os.path.basename(WORK)}.shared"
USER = 65534


def plfs(*words):
    return subprocess.check_output([PLFS, *words], text=True, timeout=60)


def is_container(name):
    return json.loads(plfs("stat", "--json", f"{BELOW}/{name}")).get("container") is not None


def attribute(name):
    try:
        return os.getxattr(f"{BELOW}/{name}", "user.plfs")
    except OSError as error:
        assert error.errno == errno.ENODATA
        return b""


def promoted(name, first=b"first", second=b"second"):
    """A file that one mount has written in place, and that the other made a container of; the open
    descriptors of both, each of which has written its piece. Its number stays in both. The second
    mount may have a number of its own for it: the backend can have given the inode of a file that
    is gone once more, and that mount still knows that file by its number."""
    one = os.open(f"{ONE}/{name}", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(one, first, 0)
    before = os.fstat(one)
    assert before.st_nlink == 1 and (os.getuid() or not attribute(name))
    seen = os.stat(f"{TWO}/{name}").st_ino
    two = os.open(f"{TWO}/{name}", os.O_RDWR)
    os.pwrite(two, second, 100)
    assert os.fstat(one).st_ino == before.st_ino and os.fstat(two).st_ino == seen
    # Users cannot reach the backend.
    assert os.getuid() or attribute(name).startswith(b"plfs 1 c ") and is_container(name)
    return one, two


def close(*descriptors):
    for descriptor in descriptors:
        os.close(descriptor)


def t_a_file_of_one_mount_is_plain():
    write(f"{ONE}/f", b"x" * 3_000_000, mode=0o640)
    assert not attribute("f") and os.stat(f"{BELOW}/f").st_nlink == 1
    assert read(f"{BELOW}/f") == read(f"{TWO}/f") == b"x" * 3_000_000
    # The kernel tells the daemon of a close after it has answered the program.
    time.sleep(0.2)
    assert stat.S_IMODE(os.stat(f"{BELOW}/f").st_mode) == 0o640
    write(f"{ONE}/f", b"y" * 10, os.O_WRONLY)
    time.sleep(0.2)
    write(f"{TWO}/f", b"z" * 10, os.O_WRONLY | os.O_TRUNC)
    time.sleep(0.2)
    assert read(f"{BELOW}/f") == b"z" * 10 and not attribute("f")
    # Two programs of one mount are one writer.
    fd = os.open(f"{ONE}/f", os.O_WRONLY)
    in_child(lambda: write(f"{ONE}/f", b"child", os.O_WRONLY))
    os.pwrite(fd, b"parent", 5)
    os.close(fd)
    assert read(f"{BELOW}/f") == b"childparent" and not attribute("f")


def t_two_mounts_write_disjoint_pieces():
    one, two = promoted("f", b"a" * 4096, b"")
    rng, pieces = random.Random(1), list(range(400))
    rng.shuffle(pieces)
    for piece in pieces:
        os.pwrite((one, two)[piece % 2], bytes([piece % 251]) * 4701, piece * 4701)
    close(one, two)
    time.sleep(SETTLE_S)
    data = b"".join(bytes([piece % 251]) * 4701 for piece in range(400))
    assert read(f"{ONE}/f") == read(f"{TWO}/f") == data
    assert (
        plfs("stat", "--json", f"{BELOW}/f")
        and subprocess.check_output([PLFS, "cat", f"{BELOW}/f"]) == data
    )
    for where in ONE, TWO:
        found = os.stat(f"{where}/f")
        assert (found.st_size, found.st_nlink) == (len(data), 1)


def t_what_was_written_before_the_other_came_stays():
    one = os.open(f"{ONE}/f", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(one, b"a" * 200_000, 0)
    # Not committed: the other overwrites a part later, and cuts nothing else.
    two = os.open(f"{TWO}/f", os.O_RDWR)
    assert os.pread(two, 300_000, 0) == b"a" * 200_000
    os.pwrite(two, b"b" * 1000, 50_000)
    os.fsync(two)
    os.pwrite(one, b"c" * 1000, 190_000)
    os.fsync(one)
    expected = b"a" * 50_000 + b"b" * 1000 + b"a" * 139_000 + b"c" * 1000 + b"a" * 9000
    assert os.pread(one, 300_000, 0) == expected
    os.fsync(two)
    assert os.pread(two, 300_000, 0) == expected
    close(one, two)
    time.sleep(SETTLE_S)
    assert read(f"{ONE}/f") == read(f"{TWO}/f") == expected


def t_truncates():
    one, two = promoted("f", b"a" * 10_000, b"b" * 10_000)
    os.fsync(two)
    # One has not heard of the container yet.
    os.ftruncate(one, 5000)
    os.fsync(one)
    os.fsync(two)
    time.sleep(SETTLE_S)
    expected = b"a" * 100 + b"b" * 4900
    assert os.fstat(one).st_size == os.fstat(two).st_size == 5000
    assert os.pread(two, 9000, 0) == os.pread(one, 9000, 0) == expected
    os.ftruncate(two, 0)
    os.pwrite(two, b"new", 0)
    os.fsync(two)
    os.fsync(one)
    time.sleep(SETTLE_S)
    assert os.pread(one, 100, 0) == b"new" and os.fstat(one).st_size == 3
    close(one, two)
    write(f"{ONE}/f", b"cut when opened")
    assert (
        read(f"{ONE}/f")
        == b"cut when opened"
        == subprocess.check_output([PLFS, "cat", f"{BELOW}/f"])
    )
    os.truncate(f"{ONE}/f", 3)
    time.sleep(SETTLE_S)
    assert read(f"{TWO}/f") == b"cut"


def t_appends():
    # A file with a container takes appends of both; a plain one that is appended to stays plain.
    one, two = promoted("f", b"", b"")
    os.fsync(one)
    close(one, two)
    for turn in range(20):
        where = (ONE, TWO)[turn % 2]
        write(f"{where}/f", b"%02d\n" % turn, os.O_WRONLY | os.O_APPEND)
    time.sleep(SETTLE_S)
    assert read(f"{ONE}/f") == b"".join(b"%02d\n" % turn for turn in range(20))
    one = os.open(f"{ONE}/plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(one, b"one\n")
    two = os.open(f"{TWO}/plain", os.O_WRONLY | os.O_APPEND)
    os.write(two, b"two\n")
    os.write(one, b"three\n")
    close(one, two)
    assert attribute("plain").startswith(b"plfs 1 p ")
    assert read(f"{BELOW}/plain") == b"one\ntwo\nthree\n"


def t_a_reader_goes_on():
    write(f"{ONE}/f", b"o" * 20_000)
    reader = os.open(f"{ONE}/f", os.O_RDONLY)
    mapped = mmap.mmap(reader, 20_000, prot=mmap.PROT_READ)
    assert os.pread(reader, 5, 0) == b"ooooo" == mapped[:5]
    inode = os.fstat(reader).st_ino
    a, b = os.open(f"{TWO}/f", os.O_RDWR), os.open(f"{ONE}/f", os.O_RDWR)
    assert attribute("f").startswith(b"plfs 1 c ")
    os.pwrite(a, b"NEW", 0)
    os.pwrite(a, b"longer", 30_000)
    os.fsync(a)
    close(a)
    time.sleep(SETTLE_S)
    assert os.fstat(reader).st_ino == inode and os.fstat(reader).st_size == 30_006
    assert os.pread(reader, 5, 0) == b"NEWoo" and os.pread(reader, 9, 30_000) == b"longer"
    assert mapped[:5] == b"NEWoo"
    close(b, reader)
    assert read(f"{ONE}/f") == b"NEW" + b"o" * 19_997 + bytes(10_000) + b"longer"


def t_a_cached_reader_hears_of_others():
    """Its own mount writes nothing."""
    write(f"{ONE}/f", b"o" * 5000)
    time.sleep(0.2)
    reader = os.open(f"{ONE}/f", os.O_RDONLY)
    assert os.pread(reader, 5, 0) == b"ooooo"
    two = os.open(f"{TWO}/f", os.O_RDWR)
    os.pwrite(two, b"in place", 0)
    time.sleep(SETTLE_S)
    assert os.pread(reader, 8, 0) == b"in place"
    # A third process of the node makes a container of it.
    environment = dict(os.environ, PLFS_SHARED_MEMORY=TABLE)
    command = ["dd", f"of={BELOW}/f", "conv=notrunc", "status=none"]
    third = [PLFS, "run", "--mount", BELOW, "--", *command]
    subprocess.run(third, input=b"third", env=environment, check=True, timeout=30)
    assert attribute("f").startswith(b"plfs 1 c ")
    time.sleep(SETTLE_S)
    assert os.pread(reader, 8, 0) == b"thirdace"
    os.pwrite(two, b"later", 100)
    os.close(two)
    time.sleep(SETTLE_S)
    assert os.pread(reader, 5, 100) == b"later"
    assert os.fstat(reader).st_size == 5000, os.fstat(reader)
    os.close(reader)


def t_names_of_promoted_files():
    for name in "a", "b", "c":
        close(*promoted(name, name.encode() * 10, b""))
    time.sleep(SETTLE_S)
    inode = os.stat(f"{ONE}/a").st_ino
    os.rename(f"{ONE}/a", f"{ONE}/moved")
    assert os.stat(f"{ONE}/moved").st_ino == inode and read(f"{ONE}/moved") == b"a" * 10
    # Over another one, which is gone with its container.
    containers = os.listdir(f"{BELOW}/.plfs")
    os.rename(f"{ONE}/moved", f"{ONE}/b")
    assert read(f"{ONE}/b") == b"a" * 10 and os.stat(f"{ONE}/b").st_ino == inode
    os.link(f"{ONE}/b", f"{ONE}/link")
    assert os.stat(f"{ONE}/b").st_nlink == 2 == os.stat(f"{ONE}/link").st_nlink
    write(f"{ONE}/link", b"L", os.O_WRONLY)
    os.unlink(f"{ONE}/b")
    assert read(f"{ONE}/link") == b"L" + b"a" * 9 and os.stat(f"{ONE}/link").st_nlink == 1
    # A plain file over it, and it over a plain file.
    write(f"{ONE}/plain", b"plain")
    os.rename(f"{ONE}/plain", f"{ONE}/link")
    assert read(f"{ONE}/link") == b"plain" and os.stat(f"{ONE}/link").st_nlink == 1
    write(f"{ONE}/plain", b"plain")
    os.rename(f"{ONE}/c", f"{ONE}/plain")
    assert read(f"{ONE}/plain") == b"c" * 10
    # It lives while it is open.
    fd = os.open(f"{ONE}/plain", os.O_RDWR)
    os.unlink(f"{ONE}/plain")
    os.pwrite(fd, b"still", 10)
    assert os.pread(fd, 100, 0) == b"c" * 10 + b"still" and os.fstat(fd).st_nlink == 0
    os.fchmod(fd, 0o600)
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600 and os.fstat(fd).st_size == 15
    os.close(fd)
    os.unlink(f"{ONE}/link")
    assert containers and os.listdir(ONE) == os.listdir(TWO) == []
    for _ in range(50):
        left = [dirs for dirs, _, files in os.walk(f"{BELOW}/.plfs") if "base" in files]
        if not left:
            break
        time.sleep(0.1)
    assert not left, left


def t_a_file_with_two_names_keeps_its_number():
    write(f"{ONE}/a", b"two names")
    os.link(f"{ONE}/a", f"{ONE}/b")
    inode = os.stat(f"{ONE}/b").st_ino
    write(f"{ONE}/c", b"c")
    os.rename(f"{ONE}/c", f"{ONE}/a")
    time.sleep(SETTLE_S)
    assert os.stat(f"{ONE}/b").st_ino == inode == os.stat(f"{BELOW}/b").st_ino


def t_attributes_of_promoted_files():
    close(*promoted("f"))
    write(f"{ONE}/plain", b"x")
    time.sleep(SETTLE_S)
    for name in "f", "plain":
        path = f"{ONE}/{name}"
        os.setxattr(path, "user.mine", b"1")
        assert os.listxattr(path) == ["user.mine"]
        fails(errno.ENODATA, os.getxattr, path, "user.plfs")
        fails(errno.EPERM, os.setxattr, path, "user.plfs", b"plfs 1 p x")
        fails(errno.EPERM, os.removexattr, path, "user.plfs")
        os.chmod(path, 0o604)
        os.chown(path, USER, USER)
        os.utime(path, (5, 6))
        found = os.stat(path)
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o604, USER, USER)
        assert (found.st_atime, found.st_mtime) == (5, 6)
        fd = os.open(path, os.O_RDWR)
        os.setxattr(fd, "user.mine", b"2")
        assert os.getxattr(fd, "user.mine") == b"2" and os.listxattr(fd) == ["user.mine"]
        os.fchmod(fd, 0o640)
        os.fchown(fd, 0, 0)
        os.utime(fd, (7, 8))
        found = os.fstat(fd)
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_mtime) == (0o640, 0, 8)
        os.close(fd)
    said = os.getxattr(f"{ONE}/f", "user.plfs.layout")
    assert b"container=.plfs/" in said
    fails(errno.ENODATA, os.getxattr, f"{ONE}/plain", "user.plfs.layout")


def t_owner_and_mode_change_beside_writers():
    """Through either mount, while two have the file open for writing and go on."""
    first, second = promoted("f", b"", b"")
    here, there = f"{ONE}/f", f"{TWO}/f"
    for n, path in enumerate((here, there, here, there)):
        os.chown(path, USER, USER if n % 2 else 0)
        os.chmod(path, 0o600 + n)
        for fd, mine in (first, b"first"), (second, b"other"):
            assert os.pwrite(fd, mine, 10 * n + 5 * (fd == second)) == 5
            os.fsync(fd)
        time.sleep(SETTLE_S)
        for seen in here, there, f"{BELOW}/f":
            found = os.stat(seen)
            assert (found.st_uid, found.st_gid) == (USER, USER if n % 2 else 0), (n, seen)
            assert stat.S_IMODE(found.st_mode) == 0o600 + n, (n, seen)
        assert read(here)[: 10 * n + 10] == read(there)[: 10 * n + 10] == b"firstother" * (n + 1)
    close(first, second)
    assert read(here)[:40] == b"firstother" * 4


def t_files_of_users():
    """Each mount acts for the owner, who alone may have a container made of a file."""
    os.mkdir(f"{ONE}/d")
    os.chmod(f"{ONE}/d", 0o777)

    def as_user():
        os.environ["HOME"] = "/"
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        close(*promoted("d/f", b"user's", b"too"))
        assert os.stat(f"{ONE}/d/f").st_uid == USER

    time.sleep(SETTLE_S)
    in_child(as_user)
    time.sleep(SETTLE_S)
    assert read(f"{ONE}/d/f") == b"user's" + bytes(94) + b"too"
    container = f"{BELOW}/" + re.search(
        r"container=(\S+)", os.getxattr(f"{ONE}/d/f", "user.plfs.layout").decode()
    ).group(1)
    assert os.stat(container).st_uid == USER == os.stat(f"{container}/base").st_uid
    # Another user may write it where its mode says so.
    os.chmod(f"{ONE}/d/f", 0o666)
    write(f"{TWO}/d/f", b"ROOT", os.O_WRONLY)
    time.sleep(SETTLE_S)
    assert read(f"{ONE}/d/f") == b"ROOT's" + bytes(94) + b"too"
    write(f"{ONE}/d/g", b"write only", mode=0o200)

    def writes_only():
        os.setgid(USER)
        os.setuid(USER)
        write(f"{ONE}/d/g", b"WRITE", os.O_WRONLY)
        fails(errno.EACCES, os.open, f"{ONE}/d/g", os.O_RDONLY)

    os.chmod(f"{ONE}/d/g", 0o622)
    in_child(writes_only)
    assert read(f"{ONE}/d/g") == b"WRITE only"


def t_a_shared_map_goes_on():
    """What a program stores is a request of the kernel's, so the file need not stay plain."""
    one = os.open(f"{ONE}/f", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(one, b"m" * 100_000, 0)
    mapped = mmap.mmap(one, 100_000)
    mapped[10:16] = b"before"
    mapped.flush()
    two = os.open(f"{TWO}/f", os.O_RDWR)
    assert attribute("f").startswith(b"plfs 1 c ")
    os.pwrite(two, b"two", 50_000)
    os.fsync(two)
    mapped[20:25] = b"after"
    mapped.flush()
    os.fsync(one)
    mapped.close()
    close(one, two)
    time.sleep(SETTLE_S)
    data = read(f"{TWO}/f")
    assert data[10:16] == b"before" and data[20:25] == b"after" and data[50_000:50_003] == b"two"
    assert data == read(f"{ONE}/f") and len(data) == 100_000


def t_programs_run():
    shutil.copy("/bin/true", f"{ONE}/true")
    assert not attribute("true")
    subprocess.check_call([f"{ONE}/true"])
    subprocess.check_call([f"{TWO}/true"])
    # One that anybody may run and nobody read.
    os.chmod(f"{ONE}/true", 0o711)
    time.sleep(SETTLE_S)

    def as_user():
        os.setgid(USER)
        os.setuid(USER)
        subprocess.check_call([f"{ONE}/true"])
        fails(errno.EACCES, os.open, f"{ONE}/true", os.O_RDONLY)

    in_child(as_user)


def t_locks_of_programs():
    one, two = (os.open(f"{ONE}/f", os.O_RDWR | os.O_CREAT, 0o644) for _ in range(2))
    fcntl.flock(one, fcntl.LOCK_EX)
    fails(errno.EAGAIN, fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(one, b"locked")
    fcntl.flock(one, fcntl.LOCK_UN)
    close(one, two)
    assert read(f"{ONE}/f") == b"locked"


def t_a_killed_daemon_leaves_what_was_written():
    point, below = f"{WORK}/killed.m", f"{WORK}/killed.b"
    os.mkdir(point)
    os.mkdir(below)
    plfs("layout", "--workload", "auto", below)
    plfs("mount", point, "--backend", below)
    try:
        fd = os.open(f"{point}/f", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(fd, b"in place")
        daemon = json.loads(os.getxattr(point, "user.plfs.mount"))["pid"]
        os.kill(daemon, 9)
        fails((errno.ENOTCONN, errno.ECONNABORTED), os.close, fd)
    finally:
        subprocess.run([PLFS, "umount", "--lazy", point], capture_output=True, timeout=30)
    assert read(f"{below}/f") == b"in place"


def run(tests, wanted):
    environment = dict(os.environ, PLFS_SHARED_MEMORY=TABLE)
    os.chmod(POINTS, 0o755)
    os.mkdir(TABLE)
    os.mkdir(BELOW)
    plfs("layout", "--workload", "auto", BELOW)
    for point in ONE, TWO:
        os.mkdir(point)
        mount = [PLFS, "mount", point, "--backend", BELOW]
        subprocess.run(mount, env=environment, check=True, timeout=30)

    def emptied(test):
        def one():
            try:
                test()
            finally:
                for name in os.listdir(ONE):
                    path = f"{ONE}/{name}"
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
                time.sleep(SETTLE_S)

        return one

    try:
        main({n: emptied(t) for n, t in tests.items() if n.startswith("t_")}, wanted)
    finally:
        for point in ONE, TWO:
            subprocess.run([PLFS, "umount", "--lazy", point], capture_output=True, timeout=60)
        shutil.rmtree(TABLE, ignore_errors=True)
        shutil.rmtree(POINTS, ignore_errors=True)


run(dict(globals()), sys.argv[3:])
