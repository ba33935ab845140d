"""Flat directories in a mount (docs/decisions/0022): flat.py DIRECTORY PLFS, as root. Each behaviour
has a mount of a root with one more backend, and is in a directory whose names are spread over both.
Prints a line for each, as suites do. PLFS_SEED begins the random operations."""

import errno
import json
import mmap
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

from common import Skipped, fails, in_child, main, read, write

WORK, PLFS = sys.argv[1:3]
USER, OTHER = 65534, 65533
MIB = 1 << 20
SEED = int(os.environ.get("PLFS_SEED") or random.SystemRandom().randrange(1 << 32))
# Until a mount has seen what was done past it.
SETTLES_S = 1.2


def plfs(*words):
    return subprocess.check_output([PLFS, *words], text=True, timeout=60)


def says(*words):
    """What a command says that fails."""
    done = subprocess.run([PLFS, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0, done
    return done.stderr


class Mounted:
    """A mount of a root with the flat directory `d`, in which the behaviour is."""

    def __init__(self, *options):
        self.options = options
        # Nobody needs rights above a backend.
        self.top = tempfile.mkdtemp(prefix="flat.", dir=WORK)
        self.point = tempfile.mkdtemp(prefix="plfs-flat.")
        self.below, self.other = f"{self.top}/root", f"{self.top}/other"
        for path in self.below, self.other:
            os.makedirs(f"{path}/.plfs")
            os.chmod(f"{path}/.plfs", 0o1777)
            os.chmod(path, 0o755)
        os.chmod(self.point, 0o755)
        os.mkdir(f"{self.below}/d")
        os.chmod(f"{self.below}/d", 0o1777)
        plfs("backend", "add", self.below, self.other)
        plfs("layout", "--workload", "flat", f"{self.below}/d")
        self.up()

    def up(self):
        mount = [PLFS, "mount", self.point, "--backend", self.below, *self.options]
        subprocess.run(mount, check=True, timeout=30)

    def down(self):
        os.chdir("/")
        plfs("umount", self.point)

    def again(self):
        self.down()
        self.up()
        os.chdir(f"{self.point}/d")

    def __enter__(self):
        os.chdir(f"{self.point}/d")
        return self

    def __exit__(self, *_):
        os.chdir("/")
        subprocess.run([PLFS, "umount", "--lazy", self.point], capture_output=True, timeout=60)
        shutil.rmtree(self.top, ignore_errors=True)
        os.rmdir(self.point)

    def shadows(self):
        """What lies on each backend for flat directories, by path."""
        both = (f"{self.below}/.plfs/spread", f"{self.other}/.plfs/spread")
        return [
            {f"{one}/{name}": sorted(os.listdir(f"{one}/{name}")) for name in os.listdir(one)}
            for one in both
        ]

    def place(self, name):
        """Where the name lies on the storage, if it lies in a shadow."""
        found = [
            f"{shadow}/{name}"
            for side in self.shadows()
            for shadow, names in side.items()
            if name in names
        ]
        assert len(found) == 1, (name, found)
        return found[0]

    def is_elsewhere(self, name):
        return self.place(name).startswith(self.other)

    def on_both(self, count, begin="n"):
        """So many names of each backend."""
        names, sides, i = [], {False: 0, True: 0}, 0
        while min(sides.values()) < count:
            name = f"{begin}{i}"
            write(name, b"")
            sides[self.is_elsewhere(name)] += 1
            names.append(name)
            i += 1
        return names

    def is_clean(self):
        """Nothing is left of names that are gone."""
        said = plfs("check", self.below)
        assert "garbage" not in said and "corrupt" not in said and "spread" not in said, said


def as_user(user, work):
    def child():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        work()

    in_child(child)


def run(command, **more):
    done = subprocess.run(
        ["bash", "-ec", command], capture_output=True, text=True, timeout=240, **more
    )
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def t_names_lie_on_both_backends_and_are_one_directory():
    with Mounted() as m:
        for n in range(200):
            write(f"f{n:03}", b"%d" % n * 20)
        assert [n for n in os.listdir(f"{m.below}/d") if not n.startswith(".plfs")] == []
        counts = [sum(len(names) for names in side.values()) for side in m.shadows()]
        assert sum(counts) == 200 and min(counts) > 50, counts
        assert sorted(os.listdir()) == [f"f{n:03}" for n in range(200)]
        assert all(read(f"f{n:03}") == b"%d" % n * 20 for n in range(200))
        here = os.stat("f007")
        assert (here.st_size, stat.S_IMODE(here.st_mode), here.st_nlink) == (20, 0o644, 1)
        inodes = {entry.name: entry.inode() for entry in os.scandir()}
        assert inodes == {name: os.stat(name).st_ino for name in os.listdir()}
        assert len(set(inodes.values())) == 200
        assert plfs("cat", f"{m.below}/d/f123") == "123" * 20
        fails(errno.EEXIST, os.open, "f001", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        fails(errno.ENOENT, os.stat, "f200")
        fails(errno.ENAMETOOLONG, write, "n" * 256, b"")
        fails((errno.EPERM, errno.ENOENT), write, ".plfs-spread.00000000", b"")
        write(b"\xff\n" + b"n" * 253, b"odd")
        assert b"\xff\n" + b"n" * 253 in os.listdir(b".")
        for name in "f000", "f001", "f002":
            fd = os.open(name, os.O_RDWR)
            os.pwrite(fd, b"later", 130)
            assert os.pread(fd, 200, 125) == bytes(5) + b"later"
            os.ftruncate(fd, 2)
            appender = os.open(name, os.O_WRONLY | os.O_APPEND)
            os.write(appender, b"end")
            os.close(appender)
            os.unlink(name)
            assert os.pread(fd, 100, 0)[2:] == b"end" and os.fstat(fd).st_nlink == 0
            fails(errno.ENOENT, read, name)
            os.close(fd)
        m.again()
        assert len(os.listdir()) == 198 and read("f003") == b"3" * 20
        run("rm -r *")
        assert os.listdir() == []
        m.is_clean()


def t_renames_across_the_hash():
    with Mounted() as m:
        names = m.on_both(3)
        here = [name for name in names if not m.is_elsewhere(name)]
        there = [name for name in names if m.is_elsewhere(name)]
        write("keep", b"keep")
        for i, (one, two) in enumerate([(here[0], there[0]), (there[1], here[1])]):
            write(one, b"moved %d" % i)
            fd = os.open(one, os.O_RDONLY)
            old = os.open(two, os.O_RDONLY)
            before = os.stat(one)
            os.rename(one, two)
            assert read(two) == b"moved %d" % i == os.pread(fd, 100, 0)
            assert os.fstat(old).st_nlink == 0 and os.stat(two).st_ino == before.st_ino
            fails(errno.ENOENT, os.stat, one)
            # And back, and over each other.
            os.rename(two, one)
            assert read(one) == b"moved %d" % i and two not in os.listdir()
            os.rename(one, two)
            write(one, b"new")
            os.rename(one, two)
            assert read(two) == b"new"
            os.unlink(two)
            fails(errno.ENOENT, os.stat, two)
            os.close(fd)
            os.close(old)
        os.rename("keep", "keep")
        move = "import ctypes, os, sys; c = ctypes.CDLL(None, use_errno=True)\n"
        move += "sys.exit(c.renameat2(-100, b'keep', -100, sys.argv[1].encode(), int(sys.argv[2]))"
        move += " and ctypes.get_errno())"
        for name, flags in ("new", 1), (here[2], 2):
            done = subprocess.run([sys.executable, "-c", move, name, str(flags)])
            assert done.returncode == errno.EINVAL, done
        os.mkdir(f"{m.point}/elsewhere")
        write(f"{m.point}/elsewhere/f", b"x")
        fails(errno.EXDEV, os.rename, "keep", f"{m.point}/elsewhere/keep")
        fails(errno.EXDEV, os.rename, f"{m.point}/elsewhere/f", "f")
        fails(errno.EXDEV, os.link, "keep", f"{m.point}/elsewhere/keep")
        fails(errno.EXDEV, os.link, f"{m.point}/elsewhere/f", "f")
        shutil.move("keep", f"{m.point}/elsewhere/keep")
        shutil.move(f"{m.point}/elsewhere/keep", "keep")
        assert read("keep") == b"keep"
        for name in os.listdir():
            os.unlink(name)
        m.is_clean()
        assert sum(len(side) for side in m.shadows()) == 2


def t_directories():
    with Mounted() as m:
        for n in range(8):
            os.makedirs(f"a{n}/b/c")
            write(f"a{n}/b/c/f", b"%d" % n)
            write(f"a{n}/g", b"")
        assert sorted(os.listdir()) == [f"a{n}" for n in range(8)]
        assert os.stat("a0").st_nlink == os.stat("a0/b").st_nlink == 1
        fails(errno.ENOTEMPTY, os.rmdir, "a0")
        fails(errno.EISDIR, os.rename, "a0/g", "a1")
        fails(errno.ENOTDIR, os.rename, "a1", "a0/g")
        fails(errno.ENOTEMPTY, os.rename, "a0", "a1")
        fails(errno.EINVAL, os.rename, "a0", "a0/b/c/below")
        fails(errno.EISDIR, os.unlink, "a0")
        here = os.open("a0/b", os.O_RDONLY | os.O_DIRECTORY)
        for n in range(8):
            os.rename(f"a{n}", f"moved{n}")
            assert read(f"moved{n}/b/c/f") == b"%d" % n
        # Whoever is in it is in it still.
        fd = os.open("c/f", os.O_RDONLY, dir_fd=here)
        assert os.read(fd, 9) == b"0"
        os.close(fd)
        os.close(os.open("made", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        assert sorted(os.listdir("moved0/b")) == ["c", "made"] == sorted(os.listdir(here))
        os.close(here)
        os.mkdir("empty")
        os.rename("moved1", "empty")
        assert read("empty/b/c/f") == b"1"
        os.chdir("moved2/b")
        assert os.getcwd() == f"{m.point}/d/moved2/b"
        os.chdir("../..")
        found = run("find . -type f | sort").split()
        assert len(found) == 17, found
        fails(errno.ENOTEMPTY, os.rmdir, f"{m.point}/d")
        os.chdir("/")
        run(f"rm -r {m.point}/d/*; rmdir {m.point}/d")
        assert sum(len(side) for side in m.shadows()) == 0
        m.is_clean()


def t_links():
    with Mounted() as m:
        names = m.on_both(2)
        write("f", b"linked")
        for name in names:
            os.unlink(name)
            os.link("f", name)
            assert os.stat(name).st_ino == os.stat("f").st_ino
        assert os.stat("f").st_nlink == len(names) + 1
        fails(errno.EEXIST, os.link, "f", names[0])
        write(names[1], b"more", os.O_WRONLY | os.O_APPEND)
        assert read("f") == b"linkedmore"
        for n in range(8):
            os.symlink("f", f"s{n}")
            assert os.readlink(f"s{n}") == "f" and os.lstat(f"s{n}").st_size == 1
            assert read(f"s{n}") == b"linkedmore"
            os.symlink(f"/no/where/{n}", f"t{n}")
            assert os.readlink(f"t{n}") == f"/no/where/{n}"
            fails(errno.ENOENT, read, f"t{n}")
            os.rename(f"t{n}", f"u{n}")
            assert os.readlink(f"u{n}") == f"/no/where/{n}"
        m.again()
        assert os.readlink("s0") == "f" and os.lstat("u3").st_size == 11
        kinds = {entry.name: entry.is_symlink() for entry in os.scandir()}
        assert kinds["s0"] and not kinds["f"]
        os.mkfifo("pipe")
        assert stat.S_ISFIFO(os.stat("pipe").st_mode)
        for name in os.listdir():
            os.unlink(name)
        m.is_clean()


def t_whose():
    with Mounted() as m:
        names = m.on_both(2, "root")
        os.chmod(names[0], 0o600)

        def user():
            for n in range(8):
                write(f"user{n}", b"user's", mode=0o640)
                here = os.stat(f"user{n}")
                assert (here.st_uid, here.st_gid) == (USER, USER)
                os.mkdir(f"dir{n}", 0o750)
                write(f"dir{n}/f", b"mine")
            for n in range(4):
                os.rename(f"user{n}", f"renamed{n}")
                fails(errno.EPERM, os.rename, f"renamed{n}", names[0])
            fails(errno.EACCES, read, names[0])
            fails(errno.EPERM, os.unlink, names[0])
            fails(errno.EPERM, os.chmod, names[1], 0o666)

        as_user(USER, user)

        def other():
            for n in range(4):
                fails(errno.EACCES, read, f"renamed{n}")
                fails(errno.EPERM, os.unlink, f"renamed{n}")
                fails(errno.EACCES, write, f"dir{n}/new", b"")
                fails(errno.EACCES, os.listdir, f"dir{n}")

        as_user(OTHER, other)
        as_user(USER, lambda: [os.chmod(f"dir{n}", 0o777) for n in range(4)])
        as_user(OTHER, lambda: [write(f"dir{n}/new", b"") for n in range(4)])
        as_user(USER, lambda: [os.unlink(f"dir{n}/new") for n in range(4)])
        for n in range(4):
            os.chown(f"dir{n}", OTHER, OTHER)
            os.chmod(f"dir{n}", 0o2700)
        as_user(OTHER, lambda: [write(f"dir{n}/again", b"") for n in range(4)])
        as_user(OTHER, lambda: [os.rmdir(f"dir{n}") for n in range(4) if clear(f"dir{n}")])
        old = os.umask(0o077)
        write("masked", b"")
        os.umask(old)
        assert stat.S_IMODE(os.stat("masked").st_mode) == 0o600
        # Its shadows have none.
        entries = b"".join(struct.pack("<HHI", tag, 7, 2**32 - 1) for tag in (1, 4, 0x20))
        acl = struct.pack("<I", 2) + entries
        fails(errno.EOPNOTSUPP, os.setxattr, ".", "system.posix_acl_default", acl)
        m.is_clean()


def clear(directory):
    for name in os.listdir(directory):
        os.unlink(f"{directory}/{name}")
    return True


def t_attributes():
    with Mounted() as m:
        for name in m.on_both(2):
            os.utime(name, ns=(1_000, 2_000))
            assert (os.stat(name).st_atime_ns, os.stat(name).st_mtime_ns) == (1_000, 2_000)
            os.truncate(name, 5000)
            assert os.stat(name).st_size == 5000
            os.chmod(name, 0o4711)
            assert stat.S_IMODE(os.stat(name).st_mode) == 0o4711
            os.setxattr(name, "user.test", b"value")
            assert os.listxattr(name) == ["user.test"]
            assert os.getxattr(name, "user.test") == b"value"
            os.removexattr(name, "user.test")
            fails(errno.ENODATA, os.getxattr, name, "user.test")
        os.mkdir("sub")
        os.setxattr("sub", "user.test", b"value")
        os.utime("sub", ns=(1_000, 2_000))
        assert os.stat("sub").st_mtime_ns == 2_000 and os.listxattr("sub") == ["user.test"]
        space = os.statvfs(".")
        assert space.f_blocks > 0 and space.f_bavail <= space.f_blocks
        fd = os.open(".", os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def t_maps_and_long_files():
    with Mounted() as m:
        data = random.Random(SEED).randbytes(3 * MIB)
        for name in m.on_both(1):
            write(name, data)
            with open(name, "r+b") as file, mmap.mmap(file.fileno(), 0) as one:
                assert one[:] == data
                one[5:8] = b"map"
            assert read(name) == data[:5] + b"map" + data[8:]
            # The kernel reads it by itself.
            with open(name, "rb") as first, open(name, "rb") as second:
                assert first.read() == second.read() == data[:5] + b"map" + data[8:]


def t_a_file_that_two_write_is_shared():
    with Mounted() as m:
        for name in m.on_both(2):
            one, two = os.open(name, os.O_RDWR), os.open(name, os.O_RDWR)
            os.pwrite(one, b"one", 0)
            os.pwrite(two, b"two", 3)
            other = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "import os, sys; f = os.open(sys.argv[1], os.O_RDWR);"
                    "os.pwrite(f, b'three', 6); os.close(f)",
                    name,
                ]
            )
            assert other.wait() == 0
            assert os.pread(one, 100, 0) == b"onetwothree"
            os.close(one)
            os.close(two)
            assert plfs("cat", f"{m.below}/d/{name}") == "onetwothree"


def t_programs():
    """cp, tar, find, mv, rm, rsync on trees as programs keep them."""
    with Mounted() as m:
        tree = f"{m.top}/tree"
        run(f"""mkdir -p {tree}/deep/er && cd {tree}
            cp -r {os.path.dirname(os.path.realpath(__file__))} tests; cp /etc/passwd deep/er/
            ln deep/er/passwd hard; ln -s deep/er/passwd soft; ln -s /no/where dangling
            mkfifo pipe; truncate -s 3M sparse; printf end >> sparse; : > empty; mkdir none
            printf x > $'odd \\n name'; chmod 4755 hard; chmod 1777 deep; mkdir -m 700 closed
            chown nobody:nogroup empty; setfattr -n user.test -v value empty
            touch -h -d @86400.123456789 soft
            find . -exec touch -h -d @1000000000.987654321 {{}} +""")
        show = r"""find . -printf '%P %y %m %U %G %T@ %l ' \( -type d -o -printf '%n %s' \) \
            -printf '\n' | sort; find . -type f -print0 | sort -z | xargs -0 md5sum
            getfattr -Rhd -m user . 2> /dev/null"""
        whole = run(show, cwd=tree)
        copy = f"{m.point}/d/copy"
        for way in (
            "cp -a {tree} copy",
            "tar --xattrs --numeric-owner -C {top} -cf {top}/t.tar tree;"
            "tar --xattrs --numeric-owner -xpf {top}/t.tar; mv tree copy",
            "cp -a {tree} c; tar -cf - --xattrs c | (cd {top}; rm -rf c; tar --xattrs -xpf -);"
            "rm -r c; cp -a {top}/c c; mv c copy",
        ):
            run(way.format(tree=tree, top=m.top))
            assert run(show, cwd=copy) == whole, way
            assert run("find . | wc -l", cwd=copy) == run("find . | wc -l", cwd=tree)
            run("rm -r copy")
            assert os.listdir() == []
        run(f"cp -r {tree}/tests copy; diff -r {tree}/tests copy; mkdir to; mv copy/* to/")
        run(
            f"diff -r {tree}/tests to; rmdir copy; mv to {m.point}/out; diff -r {tree}/tests {m.point}/out"
        )
        run(f"mv {m.point}/out back; diff -r {tree}/tests back; rm -rf back")
        assert sum(len(side) for side in m.shadows()) == 2
        m.is_clean()


def t_git():
    if not shutil.which("git"):
        raise Skipped("no git")
    with Mounted() as m:
        name = "GIT_{}_NAME=t GIT_{}_EMAIL=t@t"
        who = " ".join(name.format(one, one) for one in ("AUTHOR", "COMMITTER"))
        run(f"""export {who} HOME={m.top}; git config --global init.defaultBranch main
            git init -q r; cd r; for i in 1 2 3; do mkdir d$i; for j in $(seq 20); do
            echo $i $j > d$i/f$j; done; git add .; git commit -qm $i; done
            git fsck --full; git checkout -q -b other HEAD~1; git mv d1 e1; git commit -qm moved
            git merge -q -m merged main; git gc -q; git fsck --full
            [ -z "$(git status --porcelain)" ]; git clone -q . ../c; cd ../c
            [ "$(git log --format=%s | wc -l)" = 5 ]; [ "$(cat e1/f7)" = "1 7" ]
            cd ..; rm -rf r c""")
        m.is_clean()


def t_an_ordinary_directory_does_the_same():
    """Random calls in a flat directory and in one of the file system below."""
    rng = random.Random(SEED)
    with Mounted() as m:
        plain = f"{m.top}/plain"
        os.mkdir(plain)
        flat = os.getcwd()
        names = [f"{d}{n}" for d in ("", "x/", "y/", "x/z/") for n in "abcdef"]
        names += ["x", "y", "x/z"]

        def both(call):
            results = []
            for where in flat, plain:
                os.chdir(where)
                try:
                    results.append(("ok", call()))
                except OSError as error:
                    results.append(("no", errno.errorcode[error.errno]))
            return results

        for step in range(1500):
            one, two = rng.choice(names), rng.choice(names)
            what = rng.randrange(10)
            calls = [
                lambda: write(one, b"%d" % step),
                lambda: write(one, b"new", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
                lambda: os.mkdir(one),
                lambda: os.rmdir(one),
                lambda: os.unlink(one),
                lambda: os.rename(one, two),
                lambda: os.rename(two, one),
                lambda: os.link(one, two, follow_symlinks=False),
                lambda: os.symlink(os.path.basename(two), one),
                lambda: read(one),
            ]
            flat_says, plain_says = both(calls[what])
            assert flat_says == plain_says, (SEED, step, what, one, two, flat_says, plain_says)
            if step % 50 == 0:
                seen = both(
                    lambda: sorted(
                        (where, sorted(dirs), sorted(files)) for where, dirs, files in os.walk(".")
                    )
                )
                assert seen[0] == seen[1], (SEED, step, seen)
        os.chdir(flat)
        run("rm -rf *")
        assert sum(len(side) for side in m.shadows()) == 2, m.shadows()
        m.is_clean()


def t_doors_meet():
    """What the mount makes the commands see, and the other way round."""
    with Mounted() as m:
        write("f", b"from the mount")
        assert plfs("cat", f"{m.below}/d/f") == "from the mount"
        write(f"{m.top}/in", b"from a command")
        for n in range(6):
            plfs("cp", f"{m.top}/in", f"{m.below}/d/g{n}")
            assert read(f"g{n}") == b"from a command"
        assert "g3" in os.listdir()
        plfs("rm", f"{m.below}/d/f")
        time.sleep(SETTLES_S)
        fails(errno.ENOENT, read, "f")
        os.mkdir("sub")
        write("sub/h", b"below")
        assert plfs("ls", f"{m.below}/d/sub").split() == ["5", f"{m.below}/d/sub/h"]
        said = json.loads(plfs("stat", "--json", f"{m.below}/d"))["layout"]
        assert said["workload"]["value"] == "flat" and len(said["names"]) == 2, said
        # One that becomes flat while a mount looks at it.
        os.mkdir(f"{m.point}/late")
        assert os.listdir(f"{m.point}/late") == []
        plfs("layout", "--workload", "flat", f"{m.below}/late")
        write(f"{m.point}/late/f", b"x")
        assert plfs("cat", f"{m.below}/late/f") == "x"
        plfs("rm", "-r", f"{m.below}/d/sub", f"{m.below}/late")
        m.is_clean()


def t_a_number_that_a_backend_gives_again_is_another_files():
    """What was written to a name went to another file: the kernel knew the name of a file that
    was replaced past the mount, and the next file on the backend has got the number of that."""
    with Mounted() as m:
        names = m.on_both(4)
        places = {name: m.place(name) for name in names if not m.is_elsewhere(name)}
        (p, place), (q, other), *_ = places.items()
        for _ in range(20):
            os.unlink(q)
            write(p, b"p")
            number = os.stat(place).st_ino
            write(f"{m.top}/new", b"p")
            os.stat(p)
            os.rename(f"{m.top}/new", place)
            write(other, b"q")
            if os.stat(other).st_ino == number:
                break
        else:
            raise Skipped("the file system gives no number again")
        os.stat(q)
        os.chmod(p, 0o600)
        write(p, b" and more", os.O_WRONLY | os.O_APPEND)
        assert (read(place), read(other)) == (b"p and more", b"q")
        assert (os.stat(place).st_mode & 0o777, os.stat(other).st_mode & 0o777) == (0o600, 0o644)


def t_a_backend_that_is_not_there_is_an_error():
    with Mounted() as m:
        names = m.on_both(3)
        there = [name for name in names if m.is_elsewhere(name)]
        os.rename(m.other, f"{m.other}.away")
        time.sleep(SETTLES_S)
        for name in names:
            if name in there:
                continue
            assert read(name) == b""
        os.rename(f"{m.other}.away", m.other)
        m.down()
        os.rename(m.other, f"{m.other}.away")
        m.up()
        os.chdir(f"{m.point}/d")
        for name in there:
            fails(errno.EIO, read, name)
            fails(errno.EIO, write, name, b"")
            fails(errno.EIO, os.unlink, name)
        fails(errno.EIO, os.listdir)
        says("check", m.below)
        os.rename(f"{m.other}.away", m.other)
        time.sleep(SETTLES_S)
        assert sorted(os.listdir()) == sorted(names)


def t_two_mounts_race_for_names():
    with Mounted() as m:
        second = tempfile.mkdtemp(prefix="plfs-flat.")
        try:
            subprocess.run([PLFS, "mount", second, "--backend", m.below], check=True, timeout=30)
            made, lock = [], threading.Lock()

            def race(where):
                for n in range(100):
                    try:
                        fd = os.open(f"{where}/d/race{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                    except FileExistsError:
                        continue
                    os.close(fd)
                    with lock:
                        made.append(n)

            threads = [threading.Thread(target=race, args=(where,)) for where in (m.point, second)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(made) == list(range(100)), len(made)
            # Directories too, and names in them.
            for n in range(20):
                os.mkdir(f"{m.point}/d/dir{n}")
                write(f"{second}/d/dir{n}/f", b"%d" % n)
                assert read(f"{m.point}/d/dir{n}/f") == b"%d" % n
                os.rename(f"{m.point}/d/dir{n}", f"{m.point}/d/moved{n}")
            for n in range(20):
                assert read(f"{second}/d/moved{n}/f") == b"%d" % n
            assert sorted(os.listdir(f"{second}/d")) == sorted(os.listdir(f"{m.point}/d"))
        finally:
            subprocess.run([PLFS, "umount", "--lazy", second], capture_output=True, timeout=60)
            os.rmdir(second)


def t_directories_are_moved_by_one_at_a_time():
    """Each of two directories got into the other one, by a mount and by plfs run."""
    moves = (
        "import os, sys, time\n"
        "a, b, end = sys.argv[1], sys.argv[2], time.time() + 4\n"
        "while time.time() < end:\n"
        "    for names in (a, f'{b}/{a}'), (f'{b}/{a}', a):\n"
        "        try:\n"
        "            os.rename(*names)\n"
        "        except OSError:\n"
        "            pass\n"
    )
    with Mounted() as m:
        for name in "ab":
            os.mkdir(name)
            write(f"{name}/f{name}", b"x")
        by_run = [PLFS, "run", "--mount", m.below, "--", sys.executable, "-c", moves, "a", "b"]
        other = subprocess.Popen(by_run, cwd=f"{m.below}/d")
        subprocess.check_call([sys.executable, "-c", moves, "b", "a"], cwd=f"{m.point}/d")
        assert other.wait(60) == 0
        time.sleep(SETTLES_S)
        found = sorted(name for _, _, names in os.walk(".") for name in names)
        assert found == ["fa", "fb"], found
        # What lies above the target is asked, and not what the mount has seen before.
        for name in "c/d/e", "x", "g", "h":
            os.makedirs(name)
        os.chdir("c/d/e")
        plfs("run", "--mount", m.below, "--", "mv", f"{m.below}/d/c/d", f"{m.below}/d/moved")
        os.rename(f"{m.point}/d/x", "x")
        os.chdir(f"{m.point}/d/g")
        plfs("run", "--mount", m.below, "--", "mv", f"{m.below}/d/g", f"{m.below}/d/h/g")
        fails(errno.EINVAL, os.rename, f"{m.point}/d/h", "h")
        write("f", b"x")
        time.sleep(SETTLES_S)
        assert os.listdir(f"{m.point}/d/moved/e") == ["x"]
        assert read(f"{m.point}/d/h/g/f") == b"x"
        os.chdir(f"{m.point}/d")
        run("rm -r *")
        m.is_clean()


if __name__ == "__main__":
    print(f"PLFS_SEED={SEED}", file=sys.stderr)
    main(globals(), sys.argv[3:])
