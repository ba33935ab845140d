"""Whose files are whose: users.py MOUNT BACKEND PLFS, as root. Prints a line for each behaviour, as
suites do."""

import errno
import os
import stat
import struct
import sys

from common import fails, in_child, main, read, write

MOUNT, BACKEND, PLFS = sys.argv[1:4]
# New files are plain.
AUTO = os.environ.get("PLFS_WORKLOAD") == "auto"
# Two users and groups of every Debian; a third group that user 1 is also in.
ONE, TWO, EXTRA = 65534, 1, 50


def as_user(uid, work, groups=(), umask=0o022):
    """Runs `work` as a user, in another process, which must succeed."""

    def become_and_work():
        os.setgroups(list(groups))
        os.setgid(uid)
        os.setuid(uid)
        os.umask(umask)
        work()

    in_child(become_and_work)


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def container(path):
    """Where the data of a file is, which goes with the file."""
    if AUTO:
        return os.path.join(BACKEND, os.path.relpath(os.path.abspath(path), MOUNT))
    said = os.getxattr(path, "user.plfs.layout").decode()
    return os.path.join(BACKEND, said.split()[0].removeprefix("container="))


def owners(path):
    if AUTO:
        return {os.stat(container(path)).st_uid}
    return {
        os.lstat(os.path.join(dirpath, name)).st_uid
        for dirpath, dirs, files in os.walk(container(path))
        for name in dirs + files
    }


def t_files_and_their_logs_are_the_users():
    as_user(
        ONE, lambda: (write("f", b"one's"), os.mkdir("d"), os.symlink("f", "s"), os.mkfifo("p"))
    )
    for name in "fdsp":
        assert os.lstat(name).st_uid == ONE and os.lstat(name).st_gid == ONE, name
    assert owners("f") == {ONE} and os.stat(container("f")).st_uid == ONE


def t_who_writes_into_others_files_leaves_them_the_owners():
    as_user(ONE, lambda: (write("f", b"one"), os.chmod("f", 0o666)))
    as_user(TWO, lambda: write("f", b" two", os.O_WRONLY | os.O_APPEND))
    write("f", b" root", os.O_WRONLY | os.O_APPEND)
    assert read("f") == b"one two root" and owners("f") == {ONE}
    assert AUTO or "log_sets=1 " in os.getxattr("f", "user.plfs.patterns").decode()
    # Long enough for the background commit, too, which is another thread's.
    as_user(TWO, lambda: hold_open("f"))
    assert owners("f") == {ONE}


def hold_open(path):
    import time

    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, b"x" * 3_000_000, 1 << 20)
    time.sleep(1.5)
    os.close(fd)


def t_a_mode_keeps_others_out():
    as_user(
        ONE,
        lambda: (
            write("f", b"secret", mode=0o600),
            write("g", b"readable", mode=0o644),
            os.mkdir("d", 0o700),
            write("d/x", b""),
        ),
    )

    def other():
        fails(errno.EACCES, read, "f")
        fails(errno.EACCES, os.open, "g", os.O_WRONLY)
        fails(errno.EACCES, os.listdir, "d")
        fails(errno.EACCES, os.stat, "d/x")
        fails(errno.EPERM, os.chmod, "g", 0o666)
        fails(errno.EPERM, os.chown, "g", TWO, -1)
        fails(errno.EPERM, os.utime, "g", (1, 1))
        assert read("g") == b"readable" and os.stat("f").st_size == 6

    as_user(TWO, other)
    as_user(ONE, lambda: os.chmod("f", 0o604))
    as_user(TWO, lambda: None if read("f") == b"secret" else 1 / 0)


def t_write_only_and_read_only_files():
    as_user(ONE, lambda: (write("w", b"log"), os.chmod("w", 0o222)))
    as_user(
        TWO, lambda: (fails(errno.EACCES, read, "w"), write("w", b"+", os.O_WRONLY | os.O_APPEND))
    )
    assert read("w") == b"log+"

    def created_read_only():
        fd = os.open("r", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        os.write(fd, b"once")
        os.close(fd)
        assert read("r") == b"once" and mode_of("r") == 0o444
        fails(errno.EACCES, os.open, "r", os.O_WRONLY)

    as_user(ONE, created_read_only)
    as_user(TWO, lambda: None if read("r") == b"once" else 1 / 0)


def t_sticky_directories():
    os.mkdir("d")
    os.chmod("d", 0o1777)
    as_user(ONE, lambda: write("d/f", b"mine"))
    as_user(
        TWO,
        lambda: (fails(errno.EPERM, os.unlink, "d/f"), fails(errno.EPERM, os.rename, "d/f", "d/g")),
    )
    as_user(ONE, lambda: os.unlink("d/f"))
    # In a directory that is not sticky whoever may write it removes, and nothing is left of the
    # file.
    os.chmod("d", 0o777)
    as_user(ONE, lambda: write("d/f", b"mine"))
    was = container("d/f")
    as_user(TWO, lambda: os.unlink("d/f"))
    assert not os.path.exists(was)


def t_groups():
    os.mkdir("d")
    os.chown("d", 0, EXTRA)
    os.chmod("d", 0o2775)
    as_user(TWO, lambda: fails(errno.EACCES, write, "d/f", b""))
    as_user(TWO, lambda: (write("d/f", b"group"), os.mkdir("d/e")), groups=[EXTRA])
    assert (
        os.stat("d/f").st_gid == EXTRA
        and os.stat("d/e").st_gid == EXTRA
        and mode_of("d/e") & 0o2000
    )
    as_user(TWO, lambda: write("g", b""), groups=[EXTRA])
    as_user(TWO, lambda: os.chown("g", -1, EXTRA), groups=[EXTRA])
    assert os.stat("g").st_gid == EXTRA
    as_user(TWO, lambda: os.chmod("g", 0o2755), groups=[EXTRA])
    assert mode_of("g") == 0o2755
    as_user(TWO, lambda: fails(errno.EPERM, os.chown, "g", -1, ONE))


def t_set_user_id_goes_when_others_write():
    for how in ("write", "truncate", "chown"):
        write("f", b"program")
        os.chown("f", ONE, ONE)
        os.chmod("f", 0o6777)
        assert mode_of("f") == 0o6777
        if how == "write":
            as_user(TWO, lambda: write("f", b"x", os.O_WRONLY))
        elif how == "truncate":
            as_user(TWO, lambda: os.truncate("f", 3))
        else:
            os.chown("f", TWO, TWO)
        assert mode_of("f") == 0o777, (how, oct(mode_of("f")))
        os.unlink("f")
    write("f", b"program")
    os.chmod("f", 0o6777)
    write("f", b"root may", os.O_WRONLY)
    assert mode_of("f") == 0o6777


def t_a_file_changes_hands_while_it_is_open():
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b"root's")
    os.fchown(fd, ONE, ONE)
    os.write(fd, b", then one's")
    os.close(fd)
    assert read("f") == b"root's, then one's" and os.stat("f").st_uid == ONE
    as_user(ONE, lambda: write("f", b"!", os.O_WRONLY | os.O_APPEND))
    assert read("f") == b"root's, then one's!"
    was = container("f")
    as_user(ONE, lambda: None)
    os.unlink("f")
    assert not os.path.exists(was)


def t_the_umask_is_the_callers():
    as_user(ONE, lambda: (write("f", b""), os.mkdir("d")), umask=0o027)
    assert (mode_of("f"), mode_of("d")) == (0o640, 0o750)
    as_user(ONE, lambda: (write("g", b"g"), None), umask=0o077)
    assert mode_of("g") == 0o600 and read("g") == b"g"


def entry(tag, perm, who=0xFFFFFFFF):
    return struct.pack("<HHI", tag, perm, who)


def t_access_lists():
    acl = (
        struct.pack("<I", 2)
        + entry(1, 6)
        + entry(2, 4, TWO)
        + entry(4, 0)
        + entry(0x10, 4)
        + entry(0x20, 0)
    )
    as_user(ONE, lambda: write("f", b"listed", mode=0o600))
    try:
        as_user(ONE, lambda: os.setxattr("f", "system.posix_acl_access", acl))
    except AssertionError:
        os.setxattr(
            BACKEND,
            "system.posix_acl_access",
            struct.pack("<I", 2) + entry(1, 7) + entry(4, 7) + entry(0x20, 7),
        )
        raise
    assert os.getxattr("f", "system.posix_acl_access") == acl and mode_of("f") == 0o640
    as_user(TWO, lambda: (read("f"), fails(errno.EACCES, os.open, "f", os.O_WRONLY)))
    as_user(2, lambda: fails(errno.EACCES, read, "f"))
    os.mkdir("d")
    default = (
        struct.pack("<I", 2)
        + entry(1, 7)
        + entry(2, 7, TWO)
        + entry(4, 5)
        + entry(0x10, 7)
        + entry(0x20, 0)
    )
    os.setxattr("d", "system.posix_acl_default", default)
    os.chmod("d", 0o777)
    as_user(ONE, lambda: (write("d/f", b"inherited"), os.mkdir("d/e")))
    assert mode_of("d/f") == 0o660, oct(mode_of("d/f"))
    assert entry(2, 7, TWO) in os.getxattr("d/f", "system.posix_acl_access")
    as_user(TWO, lambda: write("d/f", b"!", os.O_WRONLY | os.O_APPEND))
    assert os.getxattr("d/e", "system.posix_acl_default") == default


def t_roots_only():
    as_user(ONE, lambda: fails(errno.EPERM, os.getxattr, MOUNT, "user.plfs.log"))
    as_user(
        ONE,
        lambda: fails((errno.EPERM, errno.EACCES), os.setxattr, MOUNT, "user.plfs.level", b"trace"),
    )
    as_user(ONE, lambda: write("f", b""))
    os.setxattr("f", "trusted.t", b"1")
    as_user(ONE, lambda: fails(errno.ENODATA, os.getxattr, "f", "trusted.t"))


def t_nobody_needs_rights_above_the_backend():
    # The backend lies in a directory that only root may enter.
    assert stat.S_IMODE(os.stat(os.path.dirname(BACKEND)).st_mode) == 0o700
    as_user(ONE, lambda: (write("f", b"x" * 10000), os.rename("f", "g"), os.truncate("g", 5)))
    assert read("g") == b"xxxxx"
    as_user(ONE, lambda: os.unlink("g"))


main(globals(), sys.argv[4:], MOUNT, 0o777)
