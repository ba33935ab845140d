"""Directories of very many small files in a mount (docs/decisions/0019): small.py DIRECTORY PLFS, as
root. Each behaviour has a mount whose root is a small directory. Prints a line for each, as suites
do. PLFS_SEED begins the random operations."""

import errno
import json
import mmap
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

from common import fails, in_child, main, read, write

WORK, PLFS = sys.argv[1:3]
USER, OTHER = 65534, 65533
MIB = 1 << 20
SEED = int(os.environ.get("PLFS_SEED") or random.SystemRandom().randrange(1 << 32))


def plfs(*words):
    return subprocess.check_output([PLFS, *words], text=True, timeout=60)


class Mounted:
    """A mount of a root with the small directory `d`, in which the behaviour is."""

    def __init__(self):
        self.below = tempfile.mkdtemp(prefix="small.", dir=WORK)
        self.point = tempfile.mkdtemp(prefix="plfs-small.")
        os.makedirs(f"{self.below}/.plfs")
        for path, mode in (self.below, 0o755), (f"{self.below}/.plfs", 0o1777), (self.point, 0o755):
            os.chmod(path, mode)
        os.mkdir(f"{self.below}/d")
        os.chmod(f"{self.below}/d", 0o1777)
        plfs("layout", "--workload", "small", f"{self.below}/d")
        self.up()

    def up(self):
        mount = [PLFS, "mount", self.point, "--backend", self.below]
        subprocess.run(mount, check=True, timeout=30)

    def down(self):
        plfs("umount", self.point)

    def pid(self):
        return json.loads(os.getxattr(self.point, "user.plfs.mount"))["pid"]

    def __enter__(self):
        os.chdir(f"{self.point}/d")
        return self

    def __exit__(self, *_):
        os.chdir("/")
        subprocess.run([PLFS, "umount", "--lazy", self.point], capture_output=True, timeout=60)
        shutil.rmtree(self.below, ignore_errors=True)
        os.rmdir(self.point)

    def ordinary(self):
        """The names that a program without PLFS finds in the small directory."""
        return sorted(
            name for name in os.listdir(f"{self.below}/d") if not name.startswith(".plfs")
        )


def as_user(user, work):
    def child():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        work()

    in_child(child)


def t_files_are_in_the_pack():
    with Mounted() as m:
        for n in range(200):
            write(f"f{n:03}", b"%d" % n * 20)
        assert m.ordinary() == [] and os.path.exists(f"{m.below}/d/.plfs-pack")
        assert sorted(os.listdir()) == [f"f{n:03}" for n in range(200)]
        assert all(read(f"f{n:03}") == b"%d" % n * 20 for n in range(200))
        here = os.stat("f007")
        assert (here.st_size, stat.S_IMODE(here.st_mode), here.st_nlink) == (20, 0o644, 1)
        assert {entry.name: entry.inode() for entry in os.scandir()}["f007"] == here.st_ino
        assert plfs("cat", f"{m.below}/d/f123") == "123" * 20
        fails(errno.EEXIST, os.open, "f001", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        fails(errno.ENOENT, os.stat, "f200")
        fails(errno.ENAMETOOLONG, write, "n" * 256, b"")
        write(b"\xff\n" + b"n" * 253, b"odd")
        assert b"\xff\n" + b"n" * 253 in os.listdir(b".")
        fd = os.open("f000", os.O_RDWR)
        os.pwrite(fd, b"later", 30)
        assert os.pread(fd, 100, 0) == b"0" * 20 + bytes(10) + b"later" == read("f000")
        os.ftruncate(fd, 2)
        os.truncate("f001", 30)
        os.utime("f001", ns=(1_000, 2_000))
        assert read("f000") == b"00" and read("f001") == b"1" * 20 + bytes(10)
        assert (os.stat("f001").st_atime_ns, os.stat("f001").st_mtime_ns) == (1_000, 2_000)
        appender = os.open("f000", os.O_WRONLY | os.O_APPEND)
        os.write(appender, b"end")
        os.close(appender)
        assert os.pread(fd, 100, 0) == b"00end"
        os.unlink("f000")
        assert os.pread(fd, 100, 0) == b"00end" and os.fstat(fd).st_size == 5
        fails(errno.ENOENT, read, "f000")
        os.close(fd)
        os.chdir("/")
        m.down()
        m.up()
        os.chdir(f"{m.point}/d")
        assert len(os.listdir()) == 200 and read("f002") == b"2" * 20


def t_names():
    with Mounted() as m:
        os.mkdir(f"{m.point}/elsewhere")
        for name in "abc":
            write(name, name.encode())
        os.rename("a", "b")
        assert sorted(os.listdir()) == ["b", "c"] and read("b") == b"a"
        os.rename("b", "b")
        fails(errno.EXDEV, os.rename, "b", f"{m.point}/elsewhere/b")
        shutil.move("b", f"{m.point}/elsewhere/b")
        assert os.listdir() == ["c"] and read(f"{m.point}/elsewhere/b") == b"a"
        # What comes in by a rename is an ordinary file.
        os.rename(f"{m.point}/elsewhere/b", "in")
        assert m.ordinary() == ["in"] and read("in") == b"a"
        os.rename("in", "c")
        assert os.listdir() == ["c"] and read("c") == b"a" and m.ordinary() == ["c"]
        write("packed", b"small")
        os.rename("packed", "c")
        assert os.listdir() == ["c"] and read("c") == b"small" and m.ordinary() == []
        fails(errno.EPERM, os.link, "c", "d")
        for make in os.mkdir, os.mkfifo, lambda name: os.symlink("x", name):
            fails(errno.EEXIST, make, "c")
        os.mkdir("sub")
        os.symlink("c", "link")
        os.mkfifo("pipe")
        assert sorted(os.listdir()) == ["c", "link", "pipe", "sub"] and read("link") == b"small"
        fails(errno.EISDIR, os.rename, "c", "sub")
        fails(errno.ENOTDIR, os.rename, "sub", "c")
        move = "import ctypes, os, sys; c = ctypes.CDLL(None, use_errno=True)\n"
        move += "sys.exit(c.renameat2(-100, b'c', -100, sys.argv[1].encode(), int(sys.argv[2]))"
        move += " and ctypes.get_errno())"
        for name, flags, number in ("pipe", 1, errno.EEXIST), ("pipe", 2, errno.EINVAL):
            done = subprocess.run([sys.executable, "-c", move, name, str(flags)])
            assert done.returncode == number, done
        assert subprocess.run([sys.executable, "-c", move, "new", "1"]).returncode == 0
        assert read("new") == b"small"


def t_a_directory_goes_with_its_empty_pack():
    with Mounted() as m:
        os.mkdir("sub")
        write("sub/f", b"below")
        assert os.path.exists(f"{m.below}/d/sub/.plfs-pack")
        fails(errno.ENOTEMPTY, os.rmdir, "sub")
        os.rename("sub", "moved")
        assert read("moved/f") == b"below"
        os.unlink("moved/f")
        os.rmdir("moved")
        assert os.listdir() == [] and m.ordinary() == []
        for n in range(50):
            write(f"f{n}", b"x")
        os.chdir("/")
        subprocess.run(["rm", "-r", f"{m.point}/d"], check=True)
        found = subprocess.check_output(["find", m.below, "-type", "f"], text=True)
        assert found == "", found


def t_each_file_has_its_owner_and_mode():
    with Mounted():
        write("root", b"root's", mode=0o600)
        as_user(USER, lambda: write("user", b"user's", mode=0o640))
        assert (os.stat("user").st_uid, os.stat("user").st_gid) == (USER, USER)

        def other():
            fails(errno.EACCES, read, "user")
            fails(errno.EACCES, read, "root")
            fails(errno.EPERM, os.chmod, "user", 0o666)
            fails(errno.EPERM, os.unlink, "user")
            fails(errno.EPERM, os.rename, "user", "mine")
            fails(errno.EPERM, os.chown, "user", OTHER, -1)

        as_user(OTHER, other)
        as_user(USER, lambda: os.chmod("user", 0o4755))
        assert stat.S_IMODE(os.stat("user").st_mode) == 0o4755
        as_user(OTHER, lambda: read("user"))
        os.chown("user", OTHER, OTHER)
        here = os.stat("user")
        assert (here.st_uid, here.st_gid, stat.S_IMODE(here.st_mode)) == (OTHER, OTHER, 0o755)
        as_user(OTHER, lambda: os.unlink("user"))
        old = os.umask(0o077)
        write("masked", b"")
        os.umask(old)
        assert stat.S_IMODE(os.stat("masked").st_mode) == 0o600


def t_maps():
    with Mounted():
        write("f", b"a" * 10_000)
        fd = os.open("f", os.O_RDWR)
        with mmap.mmap(fd, 10_000) as one:
            assert one[:3] == b"aaa"
            one[5_000:5_003] = b"map"
            one.flush()
            assert os.pread(fd, 5, 4_999) == b"amapa"
            os.pwrite(fd, b"call", 7)
            assert one[6:12] == b"acalla"
        os.close(fd)
        assert read("f")[4_999:5_004] == b"amapa"


def t_a_file_that_outgrows_the_pack_moves_out_unnoticed():
    with Mounted() as m:
        write("f", b"small")
        bytes_ = random.Random(1).randbytes(3 * MIB)
        reader, writer = os.open("f", os.O_RDONLY), os.open("f", os.O_RDWR)
        number = os.fstat(writer).st_ino
        for at in range(0, len(bytes_), 100_000):
            part = bytes_[at : at + 100_000]
            assert os.pwrite(writer, part, at) == len(part)
            assert os.pread(reader, len(part), at) == part
        assert m.ordinary() == ["f"] and os.listdir() == ["f"]
        assert os.stat("f").st_ino == os.fstat(reader).st_ino == number
        assert read("f") == bytes_
        time.sleep(1.2)
        third = os.open("f", os.O_RDWR)
        os.pwrite(third, b"third", 10)
        assert os.pread(reader, 5, 10) == os.pread(writer, 5, 10) == b"third"
        os.fchmod(writer, 0o640)
        os.rename("f", "g")
        assert stat.S_IMODE(os.stat("g").st_mode) == 0o640
        for fd in reader, writer, third:
            os.close(fd)
        assert read("g")[15:] == bytes_[15:] == read(f"{m.below}/d/g")[15:]
        os.unlink("g")
        assert os.listdir() == [] and m.ordinary() == []


def t_a_file_that_outgrows_the_pack_stays_in_its_directory():
    """It went to the directory that had the old path of its own."""
    with Mounted() as mounted:
        os.chdir("..")
        fd = os.open("d/f", os.O_RDWR | os.O_CREAT, 0o644)
        os.write(fd, b"small")
        os.rename("d", "moved")
        os.mkdir("d")
        os.pwrite(fd, b"x" * MIB, MIB)
        os.close(fd)
        assert os.listdir("d") == [], os.listdir("d")
        assert os.listdir("moved") == ["f"], os.listdir("moved")
        assert read("moved/f")[MIB:] == b"x" * MIB
        os.chdir("/")
        mounted.down()


def t_what_was_committed_outlives_the_daemon():
    with Mounted() as m:
        for n in range(100):
            write(f"f{n}", b"%d" % n)
        fd = os.open("synced", os.O_RDWR | os.O_CREAT, 0o644)
        os.write(fd, b"synced")
        os.fsync(fd)
        os.unlink("f0")
        pid = m.pid()
        os.kill(pid, signal.SIGKILL)
        fails((errno.ENOTCONN, errno.ECONNABORTED), os.close, fd)
        os.chdir("/")
        plfs("umount", m.point)
        assert plfs("cat", f"{m.below}/d/f7") == "7"
        m.up()
        os.chdir(f"{m.point}/d")
        assert sorted(os.listdir()) == sorted([f"f{n}" for n in range(1, 100)] + ["synced"])
        assert read("synced") == b"synced" and read("f99") == b"99"
        write("again", b"goes on")
        assert read("again") == b"goes on"


def t_a_mount_and_the_commands_see_each_other():
    with Mounted() as m:
        write("mine", b"mount")
        write(f"{m.below}/theirs", b"command")
        plfs("import", f"{m.below}/theirs", f"{m.below}/d/theirs")
        time.sleep(1.2)
        assert sorted(os.listdir()) == ["mine", "theirs"] and read("theirs") == b"command"
        plfs("rm", f"{m.below}/d/mine")
        time.sleep(1.2)
        fails(errno.ENOENT, os.stat, "mine")


def t_programs():
    with Mounted() as m:
        subprocess.run(["sh", "-ec", """
            mkdir t; for i in 1 2 3; do echo $i > t/$i; done; tar cf t.tar t; rm -r t; tar xf t.tar
            [ "$(cat t/1 t/2 t/3 | xargs)" = "1 2 3" ]; cp -a t u; diff -r t u
            [ "$(find . -type f | wc -l)" = 7 ]; ls -l > /dev/null; du -s . > /dev/null
            sed -i s/1/one/ t/1; [ "$(cat t/1)" = one ]; mv t/1 t.1; rm -r t u
        """], check=True, timeout=60)  # fmt: skip
        if shutil.which("git"):
            subprocess.run(["sh", "-ec", """
                export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git init -q r; cd r
                git config user.email t@t; git config user.name t
                for i in $(seq 40); do echo $i > f$i; done; git add .; git commit -qm one
                echo x > f1; git commit -qam two; git gc -q; git fsck --strict; git clone -q . ../c
                [ "$(cat ../c/f1 ../c/f40 | xargs)" = "x 40" ]; [ "$(git status --short)" = "" ]
            """], check=True, timeout=120)  # fmt: skip
        assert plfs("check", m.below)


class Model:
    """The same random operations on a small directory and on a plain one."""

    def __init__(self, small, plain):
        self.both, self.random = (small, plain), random.Random(SEED)
        self.names = [f"n{i}" for i in range(8)]

    def one(self, act):
        """What `act` gives in each; an error is its number."""
        said = []
        for directory in self.both:
            try:
                said.append(act(directory))
            except OSError as error:
                said.append(errno.errorcode[error.errno])
        assert said[0] == said[1], said
        return said[0]

    def step(self):
        pick = self.random.choice
        name, other, at = pick(self.names), pick(self.names), self.random.randrange(3000)
        data = self.random.randbytes(self.random.randrange(1, 3000))
        if self.random.randrange(200) == 0:
            data *= 1000

        def opened(flags, act):
            def one(directory):
                fd = os.open(f"{directory}/{name}", flags, 0o644)
                try:
                    return act(fd)
                finally:
                    os.close(fd)

            return one

        def looked(directory):
            found = os.stat(f"{directory}/{name}")
            kept = found.st_mode, found.st_uid, found.st_gid, found.st_nlink
            return found.st_size, *kept

        whole = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        steps = {
            "write": opened(os.O_WRONLY | os.O_CREAT, lambda fd: os.pwrite(fd, data, at)),
            "rewrite": opened(whole, lambda fd: os.write(fd, data)),
            "append": opened(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, data)),
            "exclusive": opened(os.O_WRONLY | os.O_CREAT | os.O_EXCL, lambda fd: None),
            "read": opened(os.O_RDONLY, lambda fd: os.pread(fd, 4 * MIB, at)),
            "truncate": lambda directory: os.truncate(f"{directory}/{name}", at),
            "unlink": lambda directory: os.unlink(f"{directory}/{name}"),
            "rename": lambda directory: os.rename(f"{directory}/{name}", f"{directory}/{other}"),
            "chmod": lambda directory: os.chmod(f"{directory}/{name}", 0o600 + at % 64),
            "mkdir": lambda directory: os.mkdir(f"{directory}/{name}"),
            "rmdir": lambda directory: os.rmdir(f"{directory}/{name}"),
            "stat": looked,
            "list": lambda directory: sorted(os.listdir(directory)),
        }
        what = pick([*steps, "write", "rewrite", "read", "unlink"])
        try:
            return self.one(steps[what])
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}: {what} {name} {other} {at}: {error}") from error


def t_random_operations_agree_with_a_plain_directory():
    print(f"PLFS_SEED={SEED}", file=sys.stderr)
    with Mounted() as m, tempfile.TemporaryDirectory() as plain:
        os.chmod(plain, 0o1777)
        model = Model(f"{m.point}/d", plain)
        steps = int(os.environ.get("OPS") or 6000)
        for n in range(steps):
            model.step()
            if n % 2000 == 1999:
                os.chdir("/")
                m.down()
                m.up()
        if os.environ.get("PLFS_EXPLORED"):
            with open(os.environ["PLFS_EXPLORED"], "a") as file:
                file.write(f"{steps} random operations in a small directory\n")


main(globals(), sys.argv[3:])
