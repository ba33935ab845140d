"""What a mount does, one function a behaviour: door.py MOUNT BACKEND PLFS [TEST...]. Prints a line
for each, as suites do."""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

from common import Skipped, fails, in_child, main, read, write

MOUNT, BACKEND, PLFS = sys.argv[1:4]
WANTED = sys.argv[4:]
# New files are plain, until others write them as well.
AUTO = os.environ.get("PLFS_WORKLOAD") == "auto"
libc = ctypes.CDLL(None, use_errno=True)


def renameat2(old, new, flags):
    if libc.syscall(
        316 if os.uname().machine == "x86_64" else 276,
        -100,
        old.encode(),
        -100,
        new.encode(),
        flags,
    ):
        raise OSError(ctypes.get_errno(), "renameat2")


def is_container(name):
    with open(os.path.join(BACKEND, os.path.relpath(os.path.abspath(name), MOUNT)), "rb") as file:
        return b"\x89PLFS\r\n\x1a\n" in file.read(80) or os.path.getsize(file.name) == 4093


def t_new_files_are_what_the_workload_says():
    write("f", b"hello")
    assert read("f") == b"hello" and os.path.getsize("f") == 5
    assert is_container("f") == (not AUTO) and os.stat("f").st_nlink == 1
    os.mknod("g", 0o600 | stat.S_IFREG)
    assert is_container("g") == (not AUTO) and os.path.getsize("g") == 0


def t_writes_are_seen_by_others_at_once():
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
    reader = os.open("f", os.O_RDONLY)
    for i in range(50):
        os.pwrite(fd, b"%05d" % i, i * 3)
        in_child(lambda: None if read("f")[i * 3 :] == b"%05d" % i else 1 / 0)
        assert os.pread(reader, 5, i * 3) == b"%05d" % i
        assert os.fstat(reader).st_size == i * 3 + 5
    os.close(fd)


def t_a_cached_reader_sees_later_writers():
    write("f", b"a" * 10000)
    reader = os.open("f", os.O_RDONLY)
    assert os.pread(reader, 10000, 0) == b"a" * 10000
    for i in range(20):
        in_child(lambda: write("f", b"%c" % (98 + i) * 10000, os.O_WRONLY))
        assert os.pread(reader, 10000, 0) == b"%c" % (98 + i) * 10000, i


def cached_pages(path):
    """How many pages of a file the kernel has."""
    size = os.path.getsize(path)
    libc.mmap.restype = ctypes.c_void_p
    fd = os.open(path, os.O_RDONLY)
    at = libc.mmap(None, ctypes.c_size_t(size), 1, 1, fd, ctypes.c_long(0))
    pages = (ctypes.c_ubyte * ((size + 4095) // 4096))()
    assert libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), pages) == 0
    libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    os.close(fd)
    return sum(page & 1 for page in pages)


def t_what_was_read_of_a_closed_file_stays_cached():
    write("f", b"c" * 1_000_000)
    # What changed within a tick of the backend's clock is not believed.
    time.sleep(0.1)
    assert cached_pages("f") == 0 and read("f") == b"c" * 1_000_000
    # Over the close of the reader, and no longer than until somebody writes.
    assert cached_pages("f") >= 240
    in_child(lambda: write("f", b"d" * 10, os.O_WRONLY))
    assert cached_pages("f") == 0 and read("f")[:11] == b"d" * 10 + b"c"


def t_the_kernel_reads_plain_files_by_itself():
    # Longer than any that becomes a container (S34).
    with open(below("plain"), "wb") as file:
        file.write(b"p" * 1_100_000)
        file.truncate(70_000_000)
    the_kernel_reads("plain")
    write("f", b"p" * 1_100_000)
    os.truncate("f", 70_000_000)
    if not AUTO:
        subprocess.check_call([PLFS, "export", below("f"), below("exported")])
        os.rename("exported", "f")
    the_kernel_reads("f")


def the_kernel_reads(name):
    fd = os.open(name, os.O_RDONLY)
    daemon = json.loads(os.getxattr(MOUNT, "user.plfs.mount"))["pid"]
    said = subprocess.check_output([PLFS, "log", MOUNT], text=True)
    if "does not use plain files" in said or "no FUSE_PASSTHROUGH" in said:
        raise Skipped("this kernel does not hand files to the backend (FUSE_PASSTHROUGH)")
    # Another process does it, and says so before it ends: closing is a request, which the daemon
    # does not answer while it is stopped.
    told, tell = os.pipe()
    os.kill(daemon, signal.SIGSTOP)
    try:
        pid = os.fork()
        if pid == 0:
            os.write(tell, os.pread(fd, 3, 0))
            os._exit(0)
        answered = select.select([told], [], [], 10)[0]
    finally:
        os.kill(daemon, signal.SIGCONT)
    os.waitpid(pid, 0)
    said = os.read(told, 3) if answered else None
    assert said == b"ppp", said
    # Whoever writes it meanwhile does not part them. The kernel alone knows what is written, so the
    # file stays plain.
    writer = os.open(name, os.O_RDWR)
    os.pwrite(writer, b"written", 5)
    assert os.pread(fd, 12, 0) == b"pppppwritten" == os.pread(writer, 12, 0)
    assert os.getxattr(below(name), "user.plfs").startswith(b"plfs 1 p ")
    os.close(writer)
    os.close(fd)
    assert read(name)[:12] == b"pppppwritten"


def calls_of_the_daemon(work):
    """Reading system calls that the daemon makes for `work`: one for each request, and those on the
    logs."""
    daemon = json.loads(os.getxattr(MOUNT, "user.plfs.mount"))["pid"]

    def reads():
        with open(f"/proc/{daemon}/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("syscr:"))

    before = reads()
    work()
    return reads() - before


def t_a_megabyte_is_one_request():
    with open(
        "/proc/sys/fs/fuse/max_pages_limit"
        if os.path.exists("/proc/sys/fs/fuse/max_pages_limit")
        else "/dev/null"
    ) as file:
        if int(file.read() or 256) < 256:
            raise Skipped("this machine allows less (fs.fuse.max_pages_limit)")
    # A request holds 256 pages, so memory has to begin at one.
    memory = mmap.mmap(-1, 1 << 20)
    memory.write(b"m" * (1 << 20))
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(fd, b"joined", 0)
    made = calls_of_the_daemon(lambda: [os.pwrite(fd, memory, i << 20) for i in range(32)])
    assert 32 <= made < 48, made
    os.preadv(fd, [memory], 0)
    # Each is a request and a read of the log.
    made = calls_of_the_daemon(lambda: [os.preadv(fd, [memory], i << 20) for i in range(32)])
    assert os.fstat(fd).st_size == 32 << 20
    assert 64 <= made < 96, made
    # What the kernel caches it reads ahead as much at once, which root can set. (It was 128 KiB,
    # whatever we asked for at the mount.)
    os.close(fd)
    device = os.stat(MOUNT).st_dev
    if not os.access(
        f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb", os.W_OK
    ):
        raise Skipped("the read-ahead cannot be set here")
    # A plain file that is too long to become a container the kernel reads by itself.
    if AUTO:
        os.truncate("f", 65 << 20)
    made = calls_of_the_daemon(lambda: read("f"))
    assert made < 64 if AUTO else 64 <= made < 128, made


def t_appends_never_overlap():
    write("f", b"")

    def work(who):
        fd = os.open("f", os.O_WRONLY | os.O_APPEND)
        for i in range(200):
            line = b"%d-%03d-" % (who, i) + b"x" * random.randrange(200) + b"\n"
            assert os.write(fd, line) == len(line)
        os._exit(0)

    children = []
    for who in range(4):
        pid = os.fork()
        if pid == 0:
            work(who)
        children.append(pid)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
    lines = read("f").splitlines()
    assert len(lines) == 800
    for who in range(4):
        assert [int(line[2:5]) for line in lines if line[:1] == b"%d" % who] == list(range(200))


def t_threads_write_one_file():
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)

    def work(who):
        for i in range(100):
            assert os.pwrite(fd, bytes([who]) * 4701, (i * 4 + who) * 4701) == 4701

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.fsync(fd)
    os.close(fd)
    data = read("f")
    assert data == b"".join(bytes([who]) * 4701 for _ in range(100) for who in range(4))


def t_an_unlinked_file_lives_while_it_is_open():
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b"before")
    os.unlink("f")
    os.write(fd, b" after")
    assert os.pread(fd, 100, 0) == b"before after"
    assert os.fstat(fd).st_nlink == 0 and os.fstat(fd).st_size == 12
    os.fchmod(fd, 0o600)
    os.ftruncate(fd, 3)
    os.utime(fd, (1, 2))
    assert os.fstat(fd).st_mtime == 2 and stat.S_IMODE(os.fstat(fd).st_mode) == 0o600
    assert os.pread(fd, 100, 0) == b"bef"
    assert os.listdir(".") == []
    os.close(fd)
    time.sleep(0.2)
    left = [
        dirs for dirs in os.listdir(f"{BACKEND}/.plfs") if os.listdir(f"{BACKEND}/.plfs/{dirs}")
    ]
    write("f", b"new")
    assert read("f") == b"new" and left is not None


def t_a_replaced_file_lives_while_it_is_open():
    write("a", b"old")
    fd = os.open("a", os.O_RDONLY)
    write("b", b"new")
    os.rename("b", "a")
    assert os.pread(fd, 10, 0) == b"old" and read("a") == b"new" and os.fstat(fd).st_nlink == 0
    os.close(fd)


def t_renames():
    write("a", b"a")
    write("b", b"b")
    fails(errno.EEXIST, renameat2, "a", "b", 1)
    renameat2("a", "c", 1)
    assert read("c") == b"a" and not os.path.exists("a")
    renameat2("b", "c", 2)
    assert (read("b"), read("c")) == (b"a", b"b")
    os.makedirs("d/e")
    write("d/e/f", b"deep")
    fd = os.open("d/e/f", os.O_RDWR)
    os.rename("d", "x")
    os.write(fd, b"DE")
    assert read("x/e/f") == b"DEep"
    os.rename("x/e/f", "top")
    os.pwrite(fd, b"EP", 2)
    os.close(fd)
    assert read("top") == b"DEEP" and os.listdir("x/e") == []
    fails(errno.ENOTEMPTY, os.rename, "x", ".") if False else None
    os.link("top", "top2")
    os.rename("top", "top2")
    assert os.path.exists("top") and os.stat("top").st_nlink == 2


def t_hard_links():
    write("a", b"1")
    os.mkdir("d")
    os.link("a", "d/b")
    assert os.stat("a").st_nlink == 2 and os.path.samefile("a", "d/b")
    write("d/b", b"22", os.O_WRONLY | os.O_APPEND)
    assert read("a") == b"122"
    os.unlink("a")
    assert os.stat("d/b").st_nlink == 1 and read("d/b") == b"122"


def t_symbolic_links_and_special_files():
    os.symlink("no/where", "s")
    assert os.readlink("s") == "no/where" and stat.S_ISLNK(os.lstat("s").st_mode)
    os.utime("s", (5, 6), follow_symlinks=False)
    assert os.lstat("s").st_mtime == 6
    os.mkfifo("p")
    assert stat.S_ISFIFO(os.stat("p").st_mode)
    threading.Thread(target=lambda: write("p", b"through", os.O_WRONLY)).start()
    assert read("p") == b"through"
    server = socket.socket(socket.AF_UNIX)
    server.bind("sock")
    server.listen(1)
    client = socket.socket(socket.AF_UNIX)
    client.connect("sock")
    assert stat.S_ISSOCK(os.stat("sock").st_mode)


def t_times():
    write("f", b"x")
    for at in (0, 1, 1_000_000_000_123_456_789, -1, -1_500_000_000, 4_000_000_000_000_000_000):
        os.utime("f", ns=(at, at))
        assert os.stat("f").st_mtime_ns == at == os.stat("f").st_atime_ns, at
    os.utime("f", (1, 1))
    write("f", b"y", os.O_WRONLY)
    assert abs(os.stat("f").st_mtime - time.time()) < 5
    fd = os.open("f", os.O_WRONLY)
    os.write(fd, b"zz")
    os.utime(fd, (7, 8))
    os.close(fd)
    assert os.stat("f").st_mtime == 8
    before = os.stat(".").st_mtime_ns
    time.sleep(0.02)
    write("g", b"")
    assert os.stat(".").st_mtime_ns > before


def t_extended_attributes():
    write("f", b"x" * 100)
    os.setxattr("f", "user.a", b"1")
    os.setxattr("f", "user.b", b"2" * 1000)
    assert os.getxattr("f", "user.a") == b"1" and os.getxattr("f", "user.b") == b"2" * 1000
    assert sorted(os.listxattr("f")) == ["user.a", "user.b"]
    fails(errno.EEXIST, os.setxattr, "f", "user.a", b"1", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, "f", "user.c", b"1", os.XATTR_REPLACE)
    os.removexattr("f", "user.a")
    fails(errno.ENODATA, os.getxattr, "f", "user.a")
    os.mkdir("d")
    os.setxattr("d", "user.d", b"3")
    assert os.listxattr("d") == ["user.d"]
    # That a file has none is remembered for a moment, and forgotten when somebody gives it one.
    access = b"\2\0\0\0" + b"".join(
        struct.pack("<HHI", *entry)
        for entry in [
            (1, 6, 2**32 - 1),
            (2, 4, 7),
            (4, 4, 2**32 - 1),
            (16, 6, 2**32 - 1),
            (32, 4, 2**32 - 1),
        ]
    )
    for i in range(50):
        for name, value in ("security.plfs", b"%d" % i), ("system.posix_acl_access", access):
            os.stat("f")
            fails(errno.ENODATA, os.getxattr, "f", name)
            fails(errno.ENODATA, os.getxattr, "f", name)
            os.setxattr("f", name, value)
            assert os.getxattr("f", name) == value
        os.removexattr("f", "security.plfs")
        os.removexattr("f", "system.posix_acl_access")
    # By another door: as soon as a name is not believed any more.
    os.listdir(".")
    fails(errno.ENODATA, os.getxattr, "f", "security.plfs")
    os.setxattr(f"{BACKEND}/{os.path.relpath(os.getcwd(), MOUNT)}/f", "security.plfs", b"late")
    time.sleep(1.1)
    assert os.getxattr("f", "security.plfs") == b"late"


def t_what_plfs_says_of_a_file():
    write("f", b"x" * 100)
    if AUTO:
        # There is nothing to say.
        fails(errno.ENODATA, os.getxattr, "f", "user.plfs.layout")
        return
    said = {
        name: os.getxattr("f", f"user.plfs.{name}").decode()
        for name in ("layout", "patterns", "streams", "version")
    }
    assert "container=.plfs/" in said["layout"] and said["streams"] == "8"
    assert "log_sets=1" in said["patterns"] and "format=1" in said["version"], said
    fails(errno.EPERM, os.setxattr, "f", "user.plfs.streams", b"9")
    fails(errno.ENODATA, os.getxattr, "f", "user.plfs.no")
    os.mkdir("d")
    fails(errno.ENODATA, os.getxattr, "d", "user.plfs.layout")


def t_status_of_the_mount():
    said = json.loads(os.getxattr(MOUNT, "user.plfs.mount"))
    assert said["mountpoint"] == MOUNT and said["backends"] == [BACKEND]
    listed = json.loads(subprocess.check_output([PLFS, "stat", "--mounts", "--json"]))
    assert [mount for mount in listed if mount["mountpoint"] == MOUNT and mount["alive"]]
    subprocess.check_call([PLFS, "log", "--level", "debug", MOUNT])
    fails(errno.ENOENT, os.stat, "missing")
    assert "mounted" in subprocess.check_output([PLFS, "log", MOUNT], text=True)
    subprocess.check_call([PLFS, "log", "--level", "info", MOUNT])


def t_locks():
    write("f", b"x")
    one, two = os.open("f", os.O_RDWR), os.open("f", os.O_RDWR)
    fcntl.flock(one, fcntl.LOCK_EX)
    fails(errno.EAGAIN, fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(one, fcntl.LOCK_UN)
    fcntl.lockf(one, fcntl.LOCK_EX, 10, 5)
    in_child(
        lambda: fails(
            errno.EAGAIN, fcntl.lockf, os.open("f", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 14
        )
    )
    in_child(lambda: fcntl.lockf(os.open("f", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 15))


def t_fallocate_and_holes():
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
    os.posix_fallocate(fd, 0, 10000)
    assert os.fstat(fd).st_size == 10000
    os.pwrite(fd, b"a" * 8192, 4096)
    assert os.fstat(fd).st_size == 12288
    assert os.lseek(fd, 0, os.SEEK_DATA) == 4096 and os.lseek(fd, 4096, os.SEEK_HOLE) == 12288
    fails(errno.ENXIO, os.lseek, fd, 12288, os.SEEK_DATA)
    fallocate = libc.fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    assert fallocate(fd, 3, 5000, 100) == 0
    assert os.pread(fd, 102, 4999) == b"a" + bytes(100) + b"a" and os.fstat(fd).st_size == 12288
    # In a plain file a hole is whole blocks of the backend.
    hole, data = (12288, 5000) if AUTO else (5000, 5100)
    assert os.lseek(fd, 4096, os.SEEK_HOLE) == hole and os.lseek(fd, 5000, os.SEEK_DATA) == data
    assert fallocate(fd, 0x10, 12000, 1000) == 0
    assert os.fstat(fd).st_size == 13000 and os.pread(fd, 2000, 11999) == b"a" + bytes(1000)
    AUTO or fails(errno.ENXIO, os.lseek, fd, 12000, os.SEEK_DATA)
    assert fallocate(fd, 8, 0, 4096) == -1 and ctypes.get_errno() == errno.EOPNOTSUPP
    os.close(fd)


def t_copy_file_range():
    data = random.randbytes(3_000_000)
    write("a", data)
    a, b = os.open("a", os.O_RDONLY), os.open("b", os.O_RDWR | os.O_CREAT, 0o644)
    done = 0
    while done < len(data):
        n = os.copy_file_range(a, b, len(data) - done)
        assert n > 0
        done += n
    assert read("b") == data
    assert os.copy_file_range(a, b, 10, 0, 3) == 10 and os.pread(b, 10, 3) == data[:10]


def t_maps():
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, 300_000)
    shared = mmap.mmap(fd, 300_000)
    shared[70_000:70_005] = b"store"
    assert os.pread(fd, 5, 70_000) == b"store"
    os.pwrite(fd, b"WRITE", 70_000)
    assert shared[70_000:70_005] == b"WRITE"
    in_child(lambda: mmap.mmap(os.open("f", os.O_RDWR), 300_000).__setitem__(slice(5, 8), b"kid"))
    assert shared[5:8] == b"kid"
    private = mmap.mmap(fd, 300_000, flags=mmap.MAP_PRIVATE)
    private[5:8] = b"own"
    shared[299_999:] = b"z"
    shared.flush()
    shared.close()
    os.close(fd)
    data = read("f")
    assert data[5:8] == b"kid" and data[-1:] == b"z" and len(data) == 300_000
    reader = mmap.mmap(os.open("f", os.O_RDONLY), 0, prot=mmap.PROT_READ)
    assert reader[70_000:70_005] == b"WRITE"


def t_a_program_runs_from_the_mount():
    with open("/bin/true", "rb") as file:
        write("true", file.read(), mode=0o755)
    subprocess.check_call(["./true"])
    write("script", b"#!/bin/sh\nexit 3\n", mode=0o755)
    assert subprocess.call(["./script"]) == 3
    fd = os.open("true", os.O_RDONLY)
    fails(errno.EACCES, subprocess.check_call, ["./nothing"]) if os.path.exists("nothing") else None
    os.close(fd)


def t_statfs():
    ours, below = os.statvfs("."), os.statvfs(BACKEND)
    assert (ours.f_blocks * ours.f_frsize, ours.f_namemax) == (
        below.f_blocks * below.f_frsize,
        below.f_namemax,
    )
    fails(errno.ENAMETOOLONG, os.stat, "x" * 256)


def t_the_insides_are_hidden():
    assert ".plfs" not in os.listdir(MOUNT)
    fails(errno.ENOENT, os.stat, f"{MOUNT}/.plfs")
    fails(errno.EPERM, os.mkdir, f"{MOUNT}/.plfs")
    fails(errno.EPERM, os.mkdir, ".plfs")
    write("f", b"")
    fails(errno.EPERM, os.rename, "f", ".plfs")
    fails(errno.EPERM, os.link, "f", ".plfs")
    fails(errno.EPERM, os.symlink, "f", ".plfs")


def below(name):
    return os.path.join(BACKEND, os.path.relpath(os.path.abspath(name), MOUNT))


def t_plain_files_stay_plain():
    with open(below("plain"), "wb") as file:
        file.write(b"p" * 5000)
    assert read("plain") == b"p" * 5000
    fd = os.open("plain", os.O_RDWR | os.O_APPEND)
    os.write(fd, b"more")
    assert os.fstat(fd).st_size == 5004
    shared = mmap.mmap(fd, 5000)
    shared[0:3] = b"map"
    assert os.pread(fd, 4, 0) == b"mapp"
    os.fsync(fd)
    os.ftruncate(fd, 10)
    os.close(fd)
    with open(below("plain"), "rb") as file:
        assert file.read() == b"mappppppp" + b"p"
    assert os.stat("plain").st_size == 10
    os.truncate("plain", 3)
    os.rename("plain", "p2")
    assert read("p2") == b"map"
    # Of a superblock's length, and not one.
    with open(below("odd"), "wb") as file:
        file.write(b"o" * 4093)
    assert read("odd") == b"o" * 4093
    write("odd", b"O", os.O_WRONLY)
    assert read("odd") == b"O" + b"o" * 4092


def t_other_doors_see_what_was_closed():
    write("f", b"from the mount")
    assert subprocess.check_output([PLFS, "cat", below("f")]) == b"from the mount"
    write("g", b"from below")
    subprocess.check_call([PLFS, "cp", below("f"), below("h")])
    time.sleep(1.1)
    assert read("h") == b"from the mount"
    subprocess.check_call([PLFS, "rm", below("h")])
    time.sleep(1.1)
    fails(errno.ENOENT, os.stat, "h")


def t_an_open_shows_the_size_at_once():
    """The kernel believed the size that it knew for a second: who opened the file read the new
    bytes up to the old end."""
    for old in (b"short", b"x" * 100):
        write("f", old)
        assert os.path.getsize("f") == len(old)
        new = "import sys; open(sys.argv[1], 'wb').write(b'neither of both')"
        program = [PLFS, "run", "--mount", BACKEND, "--", sys.executable, "-c", new, below("f")]
        subprocess.check_call(program)
        with open("f", "rb") as file:
            assert os.fstat(file.fileno()).st_size == 15
            assert file.read() == b"neither of both"


def t_a_large_directory():
    os.mkdir("d")
    for i in range(3000):
        os.close(os.open(f"d/{i:05}", os.O_WRONLY | os.O_CREAT))
    assert sorted(os.listdir("d")) == [f"{i:05}" for i in range(3000)]
    seen = 0
    with os.scandir("d") as entries:
        for entry in entries:
            assert entry.is_file() and entry.stat().st_size == 0
            seen += 1
    assert seen == 3000
    with os.scandir("d") as entries:
        for entry in entries:
            os.unlink(entry.path)
    os.rmdir("d")


def t_truncation():
    data = random.randbytes(100_000)
    write("f", data)
    os.truncate("f", 50_000)
    os.truncate("f", 80_000)
    assert read("f") == data[:50_000] + bytes(30_000)
    write("f", b"short")
    assert read("f") == b"short"
    with open("f", "r+b") as file:
        file.truncate(0)
        file.seek(10)
        file.write(b"x")
    assert read("f") == bytes(10) + b"x"
    fails(errno.EINVAL, os.truncate, "f", -1)
    fails(errno.EISDIR, os.truncate, ".", 0)


def t_the_farthest_byte():
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
    # A plain file reaches as far as the backend's do: ext4's to 16 TiB.
    far = 1 << (43 if AUTO else 62)
    os.pwrite(fd, b"far", far)
    assert os.fstat(fd).st_size == far + 3 and os.pread(fd, 5, far - 2) == b"\0\0far"
    os.close(fd)


def t_exclusive_creation():
    os.close(os.open("f", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    fails(errno.EEXIST, os.open, "f", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.symlink("nowhere", "s")
    fails(errno.EEXIST, os.open, "s", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    write("s", b"through")
    assert read("nowhere") == b"through"
    fails(errno.ENOTDIR, os.open, "f/x", os.O_CREAT | os.O_WRONLY)
    fails(errno.EISDIR, os.open, ".", os.O_WRONLY)


def t_an_interrupted_writer_loses_nothing():
    pid = os.fork()
    if pid == 0:
        fd = os.open("f", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(fd, b"killed")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert read("f") == b"killed"


def t_sparse_and_small_reads():
    with open("f", "wb") as file:
        file.seek(1 << 30)
        file.write(b"end")
    assert os.stat("f").st_size == (1 << 30) + 3 and os.stat("f").st_blocks < 100
    with open("f", "rb") as file:
        file.seek((1 << 30) - 5)
        assert file.read() == bytes(5) + b"end"
        assert file.read() == b""


main(globals(), WANTED, MOUNT)
