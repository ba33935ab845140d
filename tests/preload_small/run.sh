#!/bin/bash
# tests/preload_small/run.sh BUILD_DIR [TEST...]
#
# Proves: directories of very many small files (workload small) under plfs run
# Takes 180 s
# What tests/preload proves of files, in a small directory; and what is special there: names of a
# pack beside ordinary ones, several processes, deaths, programs. Each function t_NAME below runs in
# an empty directory with the managed directory m and the small one m/s, and fails at its first
# failing command.
# Environment: T_DIR, where the directories are made (default /tmp); T_TIMEOUT_S, seconds for one
# test (default 120).
set -u
build=$(realpath "$1") && shift || exit 2
here=$(dirname "$(realpath "$0")")
wanted=" $* "
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"

# Not s_archive, s_python, t_names, t_passed: hard links. Not s_shell2, t_lock, t_lock_shared,
# t_lock_passed, t_variants: locks.
# Not t_open: O_PATH. Not t_exec: errors of a descriptor that is executed and is no program. Not
# t_rw: where holes are. Not t_syscall: openat2 with limits. Not s_java, s_mpi: nothing of files.
same="s_coreutils s_cxx s_fio s_fortran s_git s_perl s_removed s_shell t_aio t_description t_errno t_first t_fork_size t_forks
    t_found t_handlers t_leaves t_limits t_mmap t_mode0 t_process t_search t_signal t_spawn t_stack t_stdio t_stream t_threads
    t_wide"
# What a run leaves out here it has in tests/preload_flat.
asked=
for name in $same; do
    ! is_wanted "$name" || ! is_in_turn $(($(number_of "$name") + 1)) || asked+=" $name"
done
# shellcheck disable=SC2086 # names
[ -z "$asked" ] || T_WORKLOAD=small bash "$here/../preload/run.sh" "$build" $asked

work=$(mktemp -d "${T_DIR:-/tmp}/plfs-preload-small.XXXXXX")
trap 'rm -rf "$work"' EXIT
export PATH=$build/bin:$PATH LC_ALL=C TZ=UTC PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here here work
unset PLFS_MOUNTS PLFS_BACKENDS
for source in "$here"/*.c; do
    name=$(basename "$source" .c)
    ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -g -o "$work/$name" "$source" ||
        result "$name" fail "does not compile"
done

fail() { echo "failed: $*" >&2; exit 1; }
in_m() { plfs run --mount m -- "$@"; }

# Ordinary names and those of the pack, by each call that lists.
t_listing() {
    mkdir m/s/sub
    ln -s f1 m/s/link
    in_m bash -c 'for i in {1..700}; do echo $i > m/s/f$i; done; echo x > m/s/sub/inner'
    in_m "$work/listing" m/s 702
    in_m ls m/s | sort > listed
    { echo link; echo sub; for i in {1..700}; do echo "f$i"; done; } | sort | cmp - listed
    [ "$(in_m find m/s | wc -l)" = 704 ] && [ "$(in_m find m/s -type f | wc -l)" = 701 ]
    in_m python3 - <<'END'
import glob, os
os.chdir("m/s")
names = sorted(["link", "sub"] + [f"f{i}" for i in range(1, 701)])
assert sorted(os.listdir()) == sorted(glob.glob("*")) == names
for entry in os.scandir():
    if entry.name.startswith("f"):
        assert entry.is_file() and entry.inode() == entry.stat().st_ino == os.stat(entry.name).st_ino
assert sum(len(files) for _, _, files in os.walk(".")) == 702
END
    # Somebody who does not know of the pack.
    echo other > m/s/f7
    [ "$(in_m ls m/s | grep -c '^f7$')" = 1 ] && [ "$(in_m cat m/s/f7)" = 7 ]
    in_m rm -r m/s
    [ ! -e m/s ] && [ -z "$(find m/.plfs -name super)" ]
}

# Positions in listings. Kernels' have 63 bits on ext4, and one of these stood for the names of a
# pack: in half of all directories elsewhere, too, seekdir went to the end. Among the names of a
# pack a position was their number, and led past others when some had been removed.
t_seek() {
    mkdir m/s/sub
    in_m bash -c 'for i in {1..300}; do echo $i > m/s/f$i; done'
    in_m "$work/seek" m/s
    mkdir elsewhere
    for i in {1..300}; do echo "$i" > "elsewhere/f$i"; done
    in_m "$work/seek" elsewhere
}

# Children that execute programs at once, and their parent, met at a lock that only threads of one
# process can wait for: the others slept for ever.
t_exec_at_once() { in_m "$work/exec" m/s/f; }

# What the kernel refuses who is not the owner, or may not write the directory, of names that it
# does not know: all of these were done for whoever could write the pack.
t_rights() {
    [ "$(id -u)" = 0 ] || { echo "not root" > "$work/skip"; exit 77; }
    chmod 755 "$work" . m && chmod 777 m/s m/.plfs
    in_m bash -c 'cd m/s; echo text > f; chmod 644 f; echo x > open; chmod 666 open'
    cat > try.py <<'END'
import errno, os
from refused import be_nobody_in, refused
be_nobody_in("m/s")
fd = os.open("f", os.O_RDONLY)
for file in "f", "open", fd:
    refused(errno.EPERM, os.chmod, file, 0o777)
    refused(errno.EPERM, os.chown, file, 65534, -1)
    refused(errno.EPERM, os.chown, file, -1, 65534)
    refused(errno.EPERM, os.utime, file, (1, 1))
refused(errno.EACCES, os.truncate, "f", 1)
refused(errno.EACCES, os.utime, "f")
os.utime("open")
os.truncate("open", 1)
with open("own", "w") as own:
    own.write("own")
os.chmod("own", 0o600), os.utime("own", (1, 1)), os.chown("own", -1, os.getegid()), os.chown("f", -1, -1)
refused(errno.EPERM, os.chown, "own", 0, -1)
refused(errno.EPERM, os.chown, "own", -1, 0)
END
    cat > names.py <<'END'
import errno, os, sys
from refused import be_nobody_in, refused
be_nobody_in("m/s")
wanted = int(sys.argv[1])
for call, args in (os.unlink, ("f",)), (os.rename, ("f", "g")), (os.rename, ("own", "f")):
    refused(wanted, call, *args)
if wanted == errno.EACCES:
    refused(wanted, os.open, "new", os.O_CREAT | os.O_WRONLY)
END
    in_m python3 try.py
    for mode in 755 711; do
        chmod "$mode" m/s
        in_m python3 names.py 13
    done
    chmod 1777 m/s
    in_m python3 names.py 1
    [ "$(in_m bash -c 'cd m/s; cat f; stat -c %a:%U:%s f')" = $'text\n644:root:5' ]
}

# A file of a pack is no directory, and its name is taken, however a path ends; the directory may be
# reached by several paths, and be empty for another one to replace.
t_paths() {
    in_m python3 - <<'END'
import errno, os, stat, subprocess
from refused import refused
os.chdir("m")
with open("s/f", "w") as file:
    file.write("text")
for call, args in (os.chmod, (0o600,)), (os.chown, (-1, -1)), (os.truncate, (1,)), (os.unlink, ()):
    refused(errno.ENOTDIR, call, "s/f/", *args)
for path in "s/f", "s/f/":
    refused(errno.EEXIST, os.mkdir, path)
    refused(errno.EEXIST, os.mkfifo, path)
    refused(errno.EEXIST, os.mknod, path, stat.S_IFIFO | 0o600)
    refused(errno.EEXIST, os.symlink, "x", path)
# Below a file there is nothing.
for call in os.stat, os.lstat, os.mkdir, os.unlink, os.statvfs, os.rmdir, os.readlink, os.listdir, os.chdir:
    refused(errno.ENOTDIR, call, "s/f/x")
for names in ("s/f/x", "s/y"), ("s/f", "s/f/x"), ("../try.py", "s/f/x"), ("s/f/x", "y"):
    refused(errno.ENOTDIR, os.rename, *names)
for flags in os.O_RDONLY, os.O_CREAT | os.O_WRONLY, os.O_CREAT | os.O_EXCL | os.O_WRONLY:
    refused(errno.ENOTDIR, os.open, "s/f/x", flags)
refused(errno.ENOTDIR, os.chdir, "s/f")
refused(errno.ENOTDIR, os.listdir, "s/f")
assert os.listdir("s") == ["f"] and open("s/f").read() == "text"
# A link to the directory.
os.symlink("s", "link")
os.rename("link/f", "s/g")
os.rename("s/g", "link/f")
refused(errno.EXDEV, os.rename, "s/f", "f")
# Where a link to a file leads, also by way of another, is found, and what file system that is on.
os.symlink("s/g", "to_file"), os.symlink("../to_file", "s/to_link"), os.symlink("s/none", "to_none")
os.rename("s/f", "s/g")
for path in "s/g", "to_file", "link/to_link":
    assert os.path.realpath(path, strict=True) == os.path.realpath("s") + "/g"
    assert os.statvfs(path).f_bsize == os.statvfs("s").f_bsize
    assert subprocess.run(["realpath", "-e", path], capture_output=True, check=True).stdout[-5:] == b"/s/g\n"
    assert subprocess.run(["stat", "-f", "-c", "%T", path], check=False, stdout=subprocess.DEVNULL).returncode == 0
refused(errno.ENOENT, os.statvfs, "to_none")
os.rename("s/g", "s/f"), os.unlink("to_file"), os.unlink("s/to_link"), os.unlink("to_none")
# A new empty file, and one that is empty again: both are new at this time.
for _ in range(2):
    open("s/stamp", "w").close()
    assert os.stat("s/stamp").st_mtime > 1e9
    os.utime("s/stamp", (1, 1))
os.close(os.open("s/f", os.O_RDONLY | os.O_TRUNC))
assert os.stat("s/f").st_size == 0
# A directory that had files.
for name in "s/old", "s/new":
    os.mkdir(name)
    open(name + "/file", "w").close()
refused(errno.ENOTEMPTY, os.rename, "s/new", "s/old")
os.unlink("s/old/file")
os.rename("s/new", "s/old")
assert os.listdir("s/old") == ["file"]
# One whose name ends as the kernel's text for what is gone.
os.mkdir("s (deleted)")
gone = os.open("s (deleted)", os.O_RDONLY | os.O_DIRECTORY)
with open(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=gone), "w") as file:
    file.write("other")
assert open("s (deleted)/f").read() == "other" and open("s/f").read() == ""
END
}

# The name of a pack could be removed, renamed or cut like a program's own file, and took all files
# of the directory with it. No program sees it; the directory can be removed as a whole.
t_pack_is_no_file() {
    in_m bash -c 'echo text > m/s/f'
    echo text > m/plain
    in_m python3 - <<'END'
import errno, os, stat
from refused import refused
for pack in "m/s/.plfs-pack", "m/s/.plfs-pack.in":
    for call, args in (
        (os.unlink, ()), (os.rmdir, ()), (os.rename, ("m/s/x",)), (os.link, ("m/s/x",)), (os.stat, ()),
        (os.lstat, ()), (os.chmod, (0,)), (os.chown, (-1, -1)), (os.lchown, (-1, -1)), (os.truncate, (0,)),
        (os.utime, ()), (os.open, (os.O_RDONLY,)), (os.open, (os.O_WRONLY | os.O_TRUNC,)),
    ):
        refused(errno.ENOENT, call, pack, *args)
    assert not os.access(pack, os.F_OK)
    for call, args in (
        (os.mkdir, ()), (os.mkfifo, ()), (os.mknod, (stat.S_IFIFO | 0o600,)), (os.mknod, (stat.S_IFREG | 0o600,)),
        (os.open, (os.O_CREAT | os.O_WRONLY,)),
    ):
        refused(errno.EPERM, call, pack, *args)
    for call, of in (os.symlink, "x"), (os.rename, "m/s/f"), (os.rename, "m/plain"), (os.link, "m/plain"):
        refused(errno.EPERM, call, of, pack)
assert os.listdir("m/s") == ["f"] and open("m/s/f").read() == "text\n"
END
    in_m bash -c '! rm m/s/.plfs-pack; ! mv m/s/.plfs-pack m/x; cat m/s/f; rm -r m/s'
    [ ! -e m/s ] && [ "$(ls -A m)" = $'.plfs\nplain' ]
}

# What a plain file says: one that is removed has no name any more, and flags that no call knows are
# refused.
t_removed() {
    in_m bash -c 'echo text > m/s/f'
    cat > flags.c <<'END'
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void)
{
	struct stat st;
	struct timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
	int bad = 0x40000000, failed = 0;
	failed |= fstatat(AT_FDCWD, "m/s/f", &st, bad) != -1 || errno != EINVAL;
	failed |= (fchownat(AT_FDCWD, "m/s/f", -1, -1, bad) != -1 || errno != EINVAL) << 1;
	failed |= (utimensat(AT_FDCWD, "m/s/f", now, bad) != -1 || errno != EINVAL) << 2;
	failed |= (faccessat(AT_FDCWD, "m/s/f", R_OK, bad) != -1 || errno != EINVAL) << 3;
	failed |= (unlinkat(AT_FDCWD, "m/s/f", bad) != -1 || errno != EINVAL) << 4;
	failed |= (fchmodat(AT_FDCWD, "m/s/f", 0600, bad) != -1 || errno != EINVAL) << 5;
	printf("%d\n", failed);
	return failed;
}
END
    ${CC:-cc} -D_GNU_SOURCE -o flags flags.c
    in_m ./flags
    in_m python3 - <<'END'
import os
fd = os.open("m/s/f", os.O_RDWR)
assert os.fstat(fd).st_nlink == 1
os.unlink("m/s/f")
assert os.fstat(fd).st_nlink == 0
os.pwrite(fd, b"TEXT", 0)
assert os.pread(fd, 9, 0) == b"TEXT\n" and os.fstat(fd).st_size == 5
END
}

# An open that fails because too few descriptors are left has made nothing, and cut nothing.
t_no_descriptors() {
    in_m python3 - <<'END'
import errno, os, resource
os.chdir("m/s")
with open("kept", "w") as file:
    file.write("text")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held, last = [], None
while True:
    last = f"f{len(held)}"
    try:
        held.append(os.open(last, os.O_CREAT | os.O_RDWR))
    except OSError as error:
        assert error.errno == errno.EMFILE
        break
assert len(held) > 30 and not os.path.exists(last)
try:
    os.open("kept", os.O_WRONLY | os.O_TRUNC)
except OSError as error:
    assert error.errno == errno.EMFILE
assert os.stat("kept").st_size == 4
END
}

# What is opened by the path of a descriptor is what any link leads to: O_TRUNC cut nothing of it
# without the right to write, and nobody was told that it is a link.
t_paths_of_descriptors() {
    in_m python3 - <<'END'
import errno, os
os.chdir("m/s")
def put():
    with open("f", "w") as file:
        file.write("text")
put()
fd = os.open("f", os.O_RDWR)
path = f"/proc/self/fd/{fd}"
for flags in os.O_RDONLY, os.O_WRONLY, os.O_RDWR:
    put()
    os.close(os.open(path, flags | os.O_TRUNC))
    assert os.stat("f").st_size == os.fstat(fd).st_size == 0, flags
put()
def fails(error, call, *args):
    try:
        call(*args)
    except OSError as failure:
        assert failure.errno == error, (failure, args)
    else:
        raise AssertionError(args)
fails(errno.ELOOP, os.open, path, os.O_RDONLY | os.O_NOFOLLOW)
fails(errno.ELOOP, os.open, path, os.O_RDWR | os.O_NOFOLLOW | os.O_TRUNC)
fails(errno.EEXIST, os.open, path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_TRUNC)
fails(errno.ENOTDIR, os.open, path, os.O_RDONLY | os.O_DIRECTORY)
fails(errno.ENOTDIR, os.chdir, "f")
fails(errno.ENOTDIR, os.chdir, os.path.abspath("f"))
os.chmod("f", 0o400)
if os.getuid() == 0 and os.fork() == 0:
    os.setuid(65534)
    fails(errno.EACCES, os.open, path, os.O_RDONLY | os.O_TRUNC)
    fails(errno.EACCES, os.open, path, os.O_WRONLY)
    os._exit(0)
elif os.getuid() == 0:
    assert os.wait()[1] == 0
assert os.stat("f").st_size == 4
END
}

# Files of a copied tree have the ids that they had, and were taken for the same files: cp refused
# to copy from one to the other, and diff did not read them.
t_copied_tree() {
    in_m bash -c 'echo text > m/s/f'
    cp -a m other
    plfs run --mount "$PWD/m" --mount "$PWD/other" -- bash -ec 'echo more >> other/s/f; ! diff -q m/s/f other/s/f; cp other/s/f m/s/f; cmp m/s/f other/s/f'
}

t_programs() {
    mkdir tree tree/a tree/a/b plain
    for i in {1..300}; do seq "$i" > "tree/a/f$i"; seq $((i * 3)) > "tree/a/b/g$i"; done
    chmod 600 tree/a/f1
    chmod 755 tree/a/f2
    touch -d '2001-02-03 04:05:06' tree/a/f3 tree/a/b
    tar cf tree.tar tree
    (cd plain && tar xf ../tree.tar)
    in_m tar xf tree.tar -C m/s
    in_m diff -r tree m/s/tree
    attributes='find . -type f -exec stat -c %n:%s:%a:%Y {} +'
    (cd plain/tree && $attributes | sort) > one
    in_m bash -c "cd m/s/tree && $attributes" | sort | cmp one -
    (cd plain/tree && ls -lR --time-style=+%s a | awk '{ print $1, $5, $6, $7 }' | grep -- '-rw') > one
    in_m bash -c 'cd m/s/tree && ls -lR --time-style=+%s a' | awk '{ print $1, $5, $6, $7 }' | grep -- '-rw' > other
    cmp one other
    in_m cp -r m/s/tree m/s/copy
    in_m cp -a m/s/tree back
    diff -r tree back
    in_m diff -r m/s/tree m/s/copy
    in_m bash -c 'cd m/s && mv copy/a/f9 copy/a/moved && mv copy/a/f10 .. && mv ../f10 copy/ && cat copy/f10' | cmp - tree/a/f10
    in_m rm -r m/s/tree m/s/copy
    [ -z "$(in_m ls -A m/s)" ]
}

t_git() {
    command -v git > /dev/null || { echo "no git" > "$work/skip"; exit 77; }
    export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
    in_m bash -ec 'cd m/s; git init -q -b main r; cd r; git config user.email a@b.c; git config user.name n
        for i in {1..60}; do seq $i > f$i; done
        git add .; git commit -qm one; rm f1; seq 9 > f2; mkdir d; mv f3 d; git add -A; git commit -qm two
        git fsck --no-progress --strict; git clone -q . ../c; cd ../c; git log --oneline | wc -l; git gc -q; git status --short; cd ..; diff -r -x .git r c'
}

# A script in a pack is run by the shell; what cannot be is refused.
t_scripts() {
    in_m bash -c "printf '#!/bin/sh\necho ran \$1\n' > m/s/script; chmod 755 m/s/script; m/s/script now" > out
    [ "$(cat out)" = "ran now" ]
    ! in_m bash -c 'chmod 644 m/s/script; m/s/script' 2> err
    grep -q 'Permission denied' err
}

# What a program opens and hands over is the same file for the next, whatever became of its name.
t_inherited() {
    in_m bash -ec 'cd m/s; echo first > f; exec 3<> f; read -r -u 3 line; echo "$line"; rm f; /bin/echo second >&3
        [ ! -e f ]; cat /proc/self/fd/3 < /dev/null; exec 4< /dev/fd/3; cat <&4; stat -L -c %s /dev/fd/3'  > out
    printf 'first\nfirst\nsecond\nfirst\nsecond\n13\n' | cmp - out
}

# Nor what became of the directory: it was looked for where it had been (EBADF).
t_inherited_by_other_name() {
    in_m bash -ec 'cd m; echo first > s/f; exec 3<> s/f 4>> s/g; read -r -u 3 line; mv s t; /bin/echo second >&3
        /bin/echo more >&4; mkdir s; cat t/f t/g; bash -c "mv t u; exec /bin/echo third" >&3; cat u/f' > out
    printf 'first\nsecond\nmore\nfirst\nsecond\nthird\n' | cmp - out
    in_m python3 - <<'END'
import os, subprocess
held = os.open("m/u/f", os.O_RDWR)
subprocess.run(["rm", "-r", "m/u"], check=True)
assert subprocess.run(["sh", "-c", f"cat <&{held}"], pass_fds=[held], stderr=subprocess.DEVNULL, check=False).returncode
END
}

# A descriptor that goes in a message is the same file for who gets it, with position, access mode
# and what was written: it was one on nothing (EBADF). From him it goes on by exec and messages.
t_passed() {
    cat > both.py <<'END'
import array, errno, os, socket, subprocess, sys
from refused import refused

def send(to, *fds):
    socket.send_fds(to, [b"x"], fds)

def get(of):
    return socket.recv_fds(of, 1, 5)[1]

def receiver(link):
    fd, reader, appends, = get(link)
    assert os.lseek(fd, 0, os.SEEK_CUR) == 4 and os.fstat(fd).st_size == 10
    assert os.read(fd, 3) == b"456"
    refused(errno.EBADF, os.write, reader, b"x")
    refused(errno.EBADF, os.read, appends, 1)
    assert os.read(reader, 99) == b"0123456789"
    os.write(appends, b"appended")
    os.write(fd, b"W")
    subprocess.run(["sh", "-c", f"echo exec >&{fd}"], pass_fds=[fd], check=True)
    os.rename("m/s", "m/t")
    send(link, fd)
    os.lseek(fd, 1, os.SEEK_SET)
    os.close(fd), os.close(reader), os.close(appends)
    link.send(b"done")
    # Of a directory that has another name by now.
    late, = get(link)
    assert os.read(late, 99) == b"of late"
    os.write(late, b"!")
    os.close(late)
    link.send(b"done")

def sender(link):
    fd = os.open("m/s/f", os.O_CREAT | os.O_RDWR)
    late = os.open("m/s/late", os.O_CREAT | os.O_RDWR)
    os.write(late, b"of late"), os.lseek(late, 0, os.SEEK_SET)
    again = os.dup(fd)
    os.write(fd, b"0123456789")
    os.lseek(again, 4, os.SEEK_SET)
    child = os.fork()
    if child == 0:
        assert os.read(0, 1) == b"g"
        os._exit(not (os.lseek(fd, 0, os.SEEK_CUR) == 1 and os.write(fd, b"C") == 1))
    send(link, fd, os.open("m/s/f", os.O_RDONLY), os.open("m/s/a", os.O_CREAT | os.O_WRONLY | os.O_APPEND))
    back, = get(link)
    assert link.recv(4) == b"done"
    assert [os.lseek(it, 0, os.SEEK_CUR) for it in (fd, again, back)] == [1, 1, 1]
    # A child of a fork before has the position, too.
    os.write(go, b"g")
    assert os.waitpid(child, 0)[1] == 0
    assert os.lseek(fd, 0, os.SEEK_CUR) == 2
    assert os.pread(back, 99, 0) == b"0C23456Wexec\n"
    assert open("m/t/a").read() == "appended"
    send(link, late)
    assert link.recv(4) == b"done"
    assert open("m/t/late").read() == "of late!" and os.lseek(late, 0, os.SEEK_CUR) == 8

link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
if sys.argv[1] == "get":
    link.bind("at"), link.listen()
    print("ready", flush=True)
    receiver(link.accept()[0])
else:
    ends = os.pipe()
    os.dup2(ends[0], 0)
    go = ends[1]
    link.connect("at")
    sender(link)
END
    in_m python3 both.py get > told & local pid=$!
    until [ -s told ]; do sleep 0.01; done
    in_m python3 both.py send
    wait $pid
    [ "$(in_m cat m/t/f | head -c 8)" = 0C23456W ]
}

# A program that has such a descriptor by exec and passes it on is told that it cannot.
t_passed_on() {
    in_m bash -ec 'cd m/s; echo first > f; exec 3<> f
        python3 -c "
import errno, socket, sys
sys.path.insert(0, \"$here\")
from refused import refused
ends = socket.socketpair()
refused(errno.EOPNOTSUPP, socket.send_fds, ends[0], [b\"x\"], [3])
ends[1].setblocking(False)
refused(errno.EAGAIN, ends[1].recv, 1)"'
}

# More of them than there is room for at first.
t_many_passed() {
    in_m python3 - <<'END'
import os, socket
ends = socket.socketpair()
for i in range(12000):
    fd = os.open(f"m/s/f{i % 10}", os.O_CREAT | os.O_RDWR)
    socket.send_fds(ends[0], [b"x"], [fd])
    os.close(fd)
    got = socket.recv_fds(ends[1], 1, 1)[1][0]
    os.pwrite(got, str(i).encode(), 0)
    os.close(got)
assert open("m/s/f9").read() == "11999"
END
}

# Two processes at once: each name has one creator, and none is lost.
t_two_at_once() {
    plfs run --mount m -- "$work/race" m/s 400 one > one & local first=$!
    in_m "$work/race" m/s 400 two > two
    wait $first
    [ "$(cat one two | sort | uniq -d | wc -l)" = 0 ] && [ "$(cat one two | wc -l)" = 400 ]
    [ "$(in_m ls m/s | wc -l)" = 1200 ]
    while read -r name; do [ "$(in_m cat "m/s/$name")" = one ]; done < <(head -20 one)
}

# A file of the pack and another kind of name that two processes make at once: one of them does.
# Both did, and the second one's was hidden.
t_one_winner() { in_m "$work/beside" m/s $((${T_FULL:-0} ? 4000 : 1500)); }

# kill -9 in the middle: what was closed is there, and the pack is sound.
t_killed() {
    local round pid
    for round in 1 2 3 4; do
        plfs run --mount m -- "$work/race" m/s 100000 "round$round" > told & pid=$!
        # It may take long to begin.
        until [ "$(wc -l < told)" -gt 1 ]; do sleep 0.05; done
        sleep "0.$round"
        kill -9 $pid
        wait $pid 2> /dev/null || true
        # The last line may be torn.
        sed '$d' told > made
        [ -s made ] || fail "nothing was made"
        in_m bash -c "while read -r name; do read -r text < m/s/\$name; [ \"\$text\" = round$round ] || exit 1; done < made"
        in_m bash -c 'cd m/s && find . -type f -delete'
    done
    plfs check m > out || { cat out >&2; exit 1; }
    [ -z "$(in_m ls m/s)" ]
}

# What is closed waits in the node's memory: another node sees it a moment later while the process
# sleeps, and when it was killed at once, as soon as somebody of its node has looked.
t_held() {
    mkdir one two
    on() { PLFS_SHARED_MEMORY=$PWD/$1 plfs run --mount m -- "${@:2}"; }
    PLFS_SHARED_MEMORY=$PWD/one plfs run --mount m -- python3 -c '
import time
with open("m/s/f", "w") as file:
    file.write("text")
print("closed", flush=True)
time.sleep(60)' > told & pid=$!
    until [ -s told ]; do sleep 0.01; done
    [ "$(on one cat m/s/f)" = text ]
    sleep 0.5
    [ "$(on two cat m/s/f)" = text ]
    kill -9 $pid
    wait $pid 2> /dev/null || true
    on one python3 -c '
import os, signal
with open("m/s/g", "w") as file:
    file.write("more")
os.kill(os.getpid(), signal.SIGKILL)' 2> /dev/null || true
    [ "$(on one cat m/s/g)" = more ] && [ "$(on two cat m/s/g)" = more ] && [ "$(on two ls m/s | wc -l)" = 2 ]
    plfs check m
}

# A rename is durable once its directory is synced, as atomic writers do: though the memory of the
# node goes.
t_directory_is_synced() {
    mkdir one
    PLFS_SHARED_MEMORY=$PWD/one plfs run --mount m -- python3 -c '
import os, signal
with open("m/s/new", "w") as file:
    file.write("text")
    file.flush()
    os.fsync(file.fileno())
os.rename("m/s/new", "m/s/f")
os.fsync(os.open("m/s", os.O_RDONLY))
os.kill(os.getpid(), signal.SIGKILL)' 2> /dev/null || true
    rm -r one
    [ "$(in_m ls m/s)" = f ] && [ "$(in_m cat m/s/f)" = text ]
}

# A daemon that gives root up: what it has closed before, and closes then, is there for all nodes.
t_changed_user() {
    [ "$(id -u)" = 0 ] || { echo "needs root" > "$work/skip"; exit 77; }
    chmod 755 "$work" . && chmod 777 m m/s && mkdir -m 777 one
    HOME=/ PLFS_SHARED_MEMORY=$PWD/one plfs run --mount m -- python3 -c '
import os
with open("m/s/before", "w") as file:
    file.write("text")
os.setgid(65534), os.setuid(65534)
with open("m/s/after", "w") as file:
    file.write("more")'
    rm -r one
    [ "$(in_m cat m/s/before m/s/after)" = textmore ]
}

# Parent and child write by turns through one descriptor, and each sees what the other wrote.
t_forked() { in_m "$work/forked" m/s/f; }

# Owner and mode are kept and asked, by the umask and the directory's group.
t_attributes() {
    in_m bash -ec 'umask 027; echo x > m/s/f; mkdir m/s/d; (umask 0; echo y > m/s/g); touch -d 2001-01-01 m/s/f; stat -c %a:%s m/s/f m/s/g; date -r m/s/f +%Y
        [ -r m/s/f ] && [ -w m/s/f ] && [ ! -x m/s/f ]; chmod u+x m/s/f; [ -x m/s/f ]; truncate -s 1000 m/s/f; stat -c %s m/s/f' > out
    printf '640:2\n666:2\n2001\n1000\n' | cmp - out
    [ "$(id -u)" = 0 ] || return 0
    chmod 755 . "$work"
    chmod 2777 m/s
    chmod 777 m/.plfs
    chgrp 1234 m/s
    in_m bash -c 'sleep 1.1; echo x > m/s/group; chown 5:6 m/s/f; stat -c %u:%g m/s/group m/s/f' > out
    printf '0:1234\n5:6\n' | cmp - out
    ! in_m setpriv --reuid 65534 --clear-groups cat m/s/f 2> err
    grep -q 'Permission denied' err
}

# `plfs pack` and `plfs unpack` take turns, come at once, and are killed, while processes of two
# nodes make, write, append to, replace and remove files: what a close or a rename has acknowledged
# is there. Each name was hidden, or lost, that was written by one who still believed that there is
# a pack, or none.
t_repacked() {
    export PLFS_SEED=${PLFS_SEED:-$RANDOM}
    cat > writer.py <<'END'
import errno, os, random, sys, time
who = sys.argv[1]
rng = random.Random(os.environ["PLFS_SEED"] + who)
known, told, acts = {}, 0, 0
def read(path):
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return None
def write(path, flags, text):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    try:
        assert os.write(fd, text.encode()) == len(text)
    finally:
        os.close(fd)
while not os.path.exists("stop"):
    acts += 1
    path = f"m/s/{who}.{rng.randrange(12)}"
    was, text, act = known.get(path), f"{acts} " * rng.randrange(1, 60), rng.randrange(8)
    try:
        if act < 3:
            write(path, os.O_CREAT | os.O_TRUNC, text)
            known[path] = text
        elif act < 5:
            write(path, os.O_CREAT | os.O_APPEND, text)
            known[path] = (was or "") + text
        elif act == 5:
            write(path + ".new", os.O_CREAT | os.O_TRUNC, text)
            os.rename(path + ".new", path)
            known[path] = text
        elif act == 6 and was is not None:
            os.unlink(path)
            known.pop(path)
        elif act == 7:
            try:
                write(path, os.O_CREAT | os.O_EXCL, text)
                assert was is None, f"{path} was there, and is made anew"
                known[path] = text
            except FileExistsError:
                assert was is not None, f"{path} was removed, and is there"
    except OSError as error:
        # Who is told has to look.
        assert error.errno in (errno.ESTALE, errno.EBUSY, errno.ENOENT), (act, error)
        assert error.errno != errno.ENOENT or was is None, (act, path, error)
        told += 1
        found = read(path)
        known.pop(path, None)
        if found is not None:
            known[path] = found
        continue
    found = read(path)
    assert found == known.get(path), f"act {act}: {path} has {found and found[:40]!r}, not {known.get(path, '')[:40]!r} after {was and was[:40]!r}"
    if acts % 40 == 0:
        for path in [p for p in known]:
            found = read(path)
            assert found == known[path], f"later: {path} has {found and found[:40]!r}, not {known[path][:40]!r}"
        time.sleep(rng.choice((2.5, 5) if os.path.exists("calm") else (0, 0.3, 1.2, 2.5)))
with open(f"{who}.known", "w") as file:
    file.write(repr(known))
print(who, acts, "acts", told, "told")
END
    # They act until the directory has been packed and unpacked with files in it; from some time on
    # they rest for longer, since `plfs unpack` gives up where somebody always writes.
    local pids=() what=pack turn node least=${T_SECONDS:-30} most=$((${T_SECONDS:-30} + 50))
    on() { PLFS_SHARED_MEMORY=$PWD/$1 timeout $((most + 60)) plfs run --mount m -- "${@:2}"; }
    mkdir one two
    plfs layout --workload auto m/s > /dev/null
    for node in one two; do
        for turn in a b; do on $node python3 writer.py $node.$turn > $node.$turn.out 2>&1 & pids+=($!); done
    done
    turn=0 SECONDS=0
    touch said
    is_seen() { grep -q ' packed [1-9]' said && grep -q ' unpacked [1-9]' said; }
    while [ $SECONDS -lt "$least" ] || { ! is_seen && [ $SECONDS -lt "$most" ]; }; do
        [ $SECONDS -lt "$least" ] || touch calm
        # One kill in three.
        if [ $((turn++ % 3)) = 2 ]; then
            PLFS_SHARED_MEMORY=$PWD/one timeout --foreground -s KILL "$((RANDOM % 5)).$((RANDOM % 9))" plfs $what m/s > out 2>&1 || true
        elif [ $((turn % 5)) = 4 ]; then
            # Two at once: the second one waits.
            PLFS_SHARED_MEMORY=$PWD/two plfs pack m/s >> said 2>&1 & pids+=($!)
            PLFS_SHARED_MEMORY=$PWD/one plfs unpack m/s >> said 2>&1 || true
            wait "${pids[-1]}" || true
            unset "pids[-1]"
        else
            PLFS_SHARED_MEMORY=$PWD/one plfs $what m/s >> said 2>&1 || true
        fi
        case $what in pack) what=unpack ;; *) what=pack ;; esac
    done
    touch stop
    # The end of what is said is shown.
    for node in "${pids[@]}"; do wait $node || { cat said ./*.out; exit 1; }; done
    is_seen || fail "$(cat said)"
    explored "$(awk '{ n += $2 } END { print n }' ./*.out)" "acts in a directory that is packed and unpacked"
    explored "$(grep -c ' unpacked [1-9]' said)" "times it was unpacked"
    for what in pack unpack; do
        # Of who was killed only his own node knows that he is dead.
        PLFS_SHARED_MEMORY=$PWD/one plfs $what m/s > out || fail "$what: $(cat out)"
        in_m python3 -c '
import ast, glob
for name in glob.glob("*.known"):
    for path, text in ast.literal_eval(open(name).read()).items():
        found = open(path).read()
        assert found == text, (path, found[:40], text[:40])'
    done
    [ "$(find m/s -name '.plfs-pack*')" = "" ]
}

# A name moved to where the kernel's listing had been, and was gone from the pack when that was
# asked: every tenth listing of a directory that was packed lacked some names, or had some twice. A
# backup that was made then lacked files, and said nothing.
t_listed_while_files_move() {
    cat > list.py << 'END'
import ctypes, os, struct, sys, time
names = {f"f{i}" for i in range(int(sys.argv[1]))}
libc, room = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(4096)
fd, rounds = os.open("m/s", os.O_RDONLY | os.O_DIRECTORY), 0

def by_getdents():
    os.lseek(fd, 0, os.SEEK_SET)
    while (n := libc.getdents64(fd, room, 4096)) > 0:
        at = 0
        while at < n:
            length = struct.unpack_from("H", room, at + 16)[0]
            yield ctypes.string_at(ctypes.addressof(room) + at + 19).decode()
            at += length
    assert n == 0, os.strerror(ctypes.get_errno())

# The first is made before the files move.
while rounds == 0 or not os.path.exists("stop"):
    for how in os.listdir("m/s"), [name for name in by_getdents() if name not in (".", "..")]:
        missed = names - set(how)
        assert not missed, f"round {rounds}: {len(missed)} missed: {sorted(missed)[:5]}"
        assert len(how) == len(names), f"round {rounds}: {len(how)} names"
    rounds += 1
    time.sleep(0.002)
print(rounds)
END
    local what pids=() who files=$((${T_FULL:-0} ? 2000 : 1000))
    plfs layout --workload auto m/s > /dev/null
    in_m bash -c 'for ((i = 0; i < $1; i++)); do echo $i > m/s/f$i; done' make $files
    for what in pack unpack; do
        rm -f stop
        pids=()
        for who in a b; do in_m python3 list.py $files > "$who" 2>&1 & pids+=($!); done
        plfs $what m/s > said || fail "$what: $(cat said)"
        touch stop
        for who in "${pids[@]}"; do wait "$who" || fail "$what: $(cat a b)"; done
        [ "$(cat a)" -gt 5 ]
    done
    plfs pack m/s > said
    in_m cp -a m/s copy 2> skipped & in_m tar cf archive -C m s & plfs unpack m/s > said && wait
    # A file that moved between the two looks of cp at it has another inode number: cp says so.
    ! grep -v "as it was replaced while being copied" skipped || fail "cp: $(cat skipped)"
    [ "$(find copy -type f | wc -l)" = $((files - $(wc -l < skipped))) ]
    [ "$(tar tf archive | grep -c '/f')" = $files ]
}

# System calls for a file that is made, written and closed; asked for; read. They are what the
# pack's log needs, and of the door's: a look at the pack's name and at the ordinary one, an open
# and a close of the placeholder, and who the user is.
t_calls() {
    command -v strace > /dev/null || { echo "no strace" > "$work/skip"; exit 77; }
    local what most calls
    for what in "create 20" "stat 2" "read 7"; do
        most=${what#* } what=${what% *}
        in_m strace -f -c -o calls "$work/race" "$PWD/m/s" 100 "$what" > /dev/null
        in_m strace -f -c -o more "$work/race" "$PWD/m/s" 1100 "$what" > /dev/null
        calls=$(($(awk '$NF == "total" { print $(NF - 2) }' more) - $(awk '$NF == "total" { print $(NF - 2) }' calls)))
        echo "$what: $calls system calls for 1,000 files"
        [ "$calls" -le $((most * 1000 + 300)) ] || fail "$what: $calls calls"
        [ "$what" != create ] || in_m find m/s -name 'create*' -type f > /dev/null
    done
}

for test in $(declare -F | sed -n 's/^declare -f t_//p'); do
    is_wanted "$test" || continue
    rm -rf "$work/dir" "$work/skip"
    mkdir -p "$work/dir/m/s"
    (cd "$work/dir" && plfs run --mount m -- true && plfs layout --workload small m/s > /dev/null)
    export -f fail in_m explored "t_$test"
    status=0
    in_own_shell "$work/dir" "t_$test" || status=$?
    case $status in
        0) result "$test" ok ;;
        77) result "$test" skip "$(cat "$work/skip")" ;;
        *) result "$test" fail "exit $status: $(tail -5 "$work/log")" ;;
    esac
done
