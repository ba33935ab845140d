#!/bin/bash
# tests/cli/run.sh BUILD_DIR [TEST...]
#
# Proves: the plfs command as it is installed, each subcommand, its messages and its exit status
# Takes 410 s
# End-to-end tests of the plfs command as it is installed: BUILD_DIR holds bin/plfs, lib/libplfs.so
# and lib/plfs/libplfs_preload.so. Each function t_NAME below runs in an empty directory of its own,
# and fails at its first failing command. A test that cannot run here calls `skip WHY`.
# Environment: T_DIR, where the directories are made (default /tmp); T_TIMEOUT_S, seconds for one
# test (default 120).
set -u
build=$(realpath "$1") && shift || exit 2
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-cli-test.XXXXXX")
trap 'chmod -R u+rwx "$work" 2> /dev/null; rm -rf "$work"' EXIT
top=$(realpath "$(dirname "$0")/../..")
export PATH=$build/bin:$PATH LC_ALL=C TZ=UTC build work top
unset PLFS_MOUNTS PLFS_BACKENDS PLFS_PRELOAD LD_PRELOAD
# Exported, as tests ask what is in turn.
export wanted=" $* "
# shellcheck source=tests/lib.sh
. "$(dirname "$(realpath "$0")")/../lib.sh"

skip() { echo "$*" > "$work/skip"; exit 77; }
# Fails unless the command fails with this status and one line on standard error that begins with
# "plfs: " and has this text.
refuses() { # STATUS TEXT COMMAND...
    local want=$1 text=$2 status=0; shift 2
    "$@" > "$work/out" 2> "$work/err" || status=$?
    [ $status = "$want" ] || fail "exit $status, not $want: $* ($(cat "$work/err"))"
    [ "$(wc -l < "$work/err")" = 1 ] || fail "not one line: $(cat "$work/err")"
    grep -q "^plfs: $3\|^plfs: ${2##*/}" "$work/err" || has '^plfs: ' "$work/err" || fail "$(cat "$work/err")"
    grep -qF -- "$text" "$work/err" || fail "no '$text' in: $(cat "$work/err")"
}
# grep -q ends at the first match, and what writes to it would fail.
has() { grep -- "$@" > /dev/null || fail "no $*"; }
json() { python3 -c "import json,sys; d = json.load(sys.stdin); $1"; }
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }
# The container of a file, and its largest file with this ending.
container() { plfs stat --json "$1" | json 'print(d["container"])'; }
log_of() { find "$(container "$1")" -name "*$2" -printf '%s %p\n' | sort -n | tail -1 | cut -d' ' -f2-; }
flip() { python3 -c "import sys; f = open(sys.argv[1], 'r+b'); f.seek(int(sys.argv[2])); b = f.read(1); f.seek(int(sys.argv[2])); f.write(bytes([b[0] ^ 1]))" "$1" "$2"; }
# A file of several blocks of records with holes.
make_file() { # FILE
    plfs run --mount "$(dirname "$1")" -- python3 -c '
import os, random, sys
random.seed(4)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for block in range(3):
    for i in range(50):
        os.pwrite(fd, random.randbytes(random.randrange(1, 5000)), random.randrange(300000))
    os.fsync(fd)
os.pwrite(fd, b"end", 1 << 20)
' "$1"
}

# A shell that inherited a file from a program without PLFS gave its commands nothing to read: the
# position, which the kernel has, was written over. It is shared with that program, too.
t_commands_read_what_their_shell_inherits() {
    mkdir m
    seq 1000 | plfs run --mount m -- sh -c 'cat > m/f'
    seq 1000 > plain
    plfs run --mount m -- sh -c 'cat; echo end' < m/f | cmp - <(cat plain; echo end)
    { plfs run --mount m -- sh -c 'head -c 5; echo; head -c 3'; plfs run --mount m -- sh -c 'cat'; } < m/f > got
    { sh -c 'head -c 5; echo; head -c 3'; cat; } < plain | cmp - got
}

# Of a file without a name only the links of /proc lead anywhere: to the base of a promoted file,
# whose older bytes were read, written and cut with success, or to the placeholder of a file of a
# pack.
t_paths_of_descriptors_lead_to_the_file() {
    cat > paths.py << 'EOF'
import os, subprocess, sys
top, workload = sys.argv[1:]
name = top + "/f"
f = os.open(name, os.O_RDWR | os.O_CREAT)
os.write(f, b"a" * 20)
second = f"import os; f = os.open('{name}', os.O_RDWR); os.pwrite(f, b'b' * 10, 5); os.pwrite(f, b'c' * 10, 30)"
subprocess.run([sys.executable, "-c", second], check=True)
os.fstat(f)
if workload != "small":
    os.unlink(name)
for link in "stdin", "stdout":
    os.symlink("/dev/" + link, f"{top}/../{link}")
print(os.fstat(f).st_size, os.fstat(f).st_nlink)
paths = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/dev//fd/0", "//dev/fd/../fd/0", top + "/../stdin"]
look = f"""
import os
def told(path, **where):
    at = os.open(path, os.O_RDONLY, **where)
    print(os.pread(at, 100, 0), os.fstat(at).st_size, os.stat(path, **where).st_size)
    os.close(at)
for path in {paths}:
    told(path)
dir = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
told("0", dir_fd=dir)
os.chdir("/dev/fd")
told("0")
"""
def run(program, **how):
    os.lseek(f, 0, 0)
    print(subprocess.run(program, text=True, capture_output="stdout" not in how, **how).stdout)
    print(os.pread(f, 100, 0), os.fstat(f).st_size)
run([sys.executable, "-c", look], stdin=f)
for path in paths[:2] + ["/proc/self/fd/0"]:
    run(["stat", "-Lc%s %h", path], stdin=f)
os.dup2(f, 0)
exec(look.replace("import os", ""))
os.chdir("/")
write = "import os; f = os.open('{}', os.O_WRONLY); os.pwrite(f, b'xyz', 6); os.close(f)"
for path in "/dev/stdout", top + "/../stdout":
    run([sys.executable, "-c", write.format(path)], stdout=f)
    run(["sh", "-c", f"exec 5>> {path}; echo end >&5"], stdout=f)
    run([sys.executable, "-c", f"import os; os.truncate('{path}', 33)"], stdout=f)
    run(["dd", "if=/dev/null", f"of={path}", "bs=1", "count=0", "seek=12", "status=none"], stdout=f)
    run(["dd", "if=/dev/null", f"of={path}", "status=none"], stdout=f)
    os.pwrite(f, b"d" * 8, 0)
EOF
    for workload in auto shared small; do
        mkdir -p "m/$workload/d" "plain/$workload/d"
        plfs layout --workload $workload "m/$workload/d" > /dev/null
        python3 paths.py "$PWD/plain/$workload/d" $workload > want
        plfs run --mount m -- python3 paths.py "$PWD/m/$workload/d" $workload > got
        diff want got || fail "$workload"
    done
}
# The same for who has not looked since another process made the container, for the descriptors of
# another process, and where the open only reads and cuts. Each time what was acknowledged went to
# the base, below the logs.
t_paths_of_descriptors_lead_to_what_nobody_has_noticed() {
    cat > paths.py << 'EOF'
import os, subprocess, sys
top = sys.argv[1]
def second(program, *args):
    subprocess.run([sys.executable, "-c", "import os, sys; " + program, *args], check=True)
def of_two():
    f = os.open(top + "/f", os.O_RDWR | os.O_CREAT)
    os.write(f, b"a" * 20)
    second("f = os.open(sys.argv[1], os.O_RDWR); os.pwrite(f, b'b' * 10, 5); os.pwrite(f, b'c' * 10, 30)", top + "/f")
    os.unlink(top + "/f")
    return f
def write(at):
    done = os.pwrite(at, b"ACKNOWLEDGED", 8)
    os.fsync(at)
    return done
def cut(at):
    return os.fstat(at).st_size
calls = {
    "read": (os.O_RDONLY, lambda at: os.pread(at, 100, 0)), "write": (os.O_WRONLY, write), "both": (os.O_RDWR, write),
    "append": (os.O_WRONLY | os.O_APPEND, lambda at: os.write(at, b"END")), "cut": (os.O_WRONLY | os.O_TRUNC, cut),
    "cut and read": (os.O_RDONLY | os.O_TRUNC, cut), "create": (os.O_RDWR | os.O_CREAT, write),
}
dir = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
def link(path, f):
    if os.path.lexists(path):
        os.unlink(path)
    os.symlink(f"/proc/self/fd/{f}", path)
    return path, None
ways = [
    lambda f: link(top + "/link", f), lambda f: link(sys.argv[2], f), lambda f: (f"/proc/self/fd/{f}", None),
    lambda f: (f"/dev/fd/{f}", None), lambda f: (str(f), dir),
]
for number, way in enumerate(ways):
    for name, (flags, call) in calls.items():
        f = of_two()
        path, where = way(f)
        at = os.open(path, flags, dir_fd=where)
        print(number, name, call(at), os.pread(f, 100, 0), os.fstat(f).st_size)
        os.close(at)
        os.close(f)
    if where is None:
        f = of_two()
        print(number, os.truncate(way(f)[0], 5), os.pread(f, 100, 0), os.fstat(f).st_size)
        os.close(f)
f = of_two()
print(os.stat(f"/proc/self/fd/{f}").st_size)
for program in ("f = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC); os.pwrite(f, b'xyz', 3)", "os.truncate(sys.argv[1], 5)",
                "print(os.stat(sys.argv[1]).st_size)", "os.close(os.open(sys.argv[1], os.O_RDONLY | os.O_TRUNC))"):
    f = of_two()
    sys.stdout.flush()
    second(program, f"/proc/{os.getpid()}/fd/{f}")
    print(os.pread(f, 100, 0), os.fstat(f).st_size)
EOF
    for workload in auto shared; do
        mkdir -p "m/$workload/d" "plain/$workload/d"
        plfs layout --workload $workload "m/$workload/d" > /dev/null
        (cd "plain/$workload" && python3 "$OLDPWD/paths.py" "$PWD/d" "$OLDPWD/link") > want
        (cd "m/$workload" && plfs run --mount .. -- python3 "$OLDPWD/paths.py" "$PWD/d" "$OLDPWD/link") > got
        [ "$(wc -l < want)" = 45 ] || fail "$(wc -l < want) lines"
        diff want got || fail "$workload"
    done
}
# The same for streams, which libc opens by itself.
t_streams_by_paths_of_descriptors_have_the_file() {
    cat > streams.c << 'EOF'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
static int make(int looks, int is_removed)
{
    struct stat st;
    int fd = open("d/f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (write(fd, "first first first first", 23) != 23)
        exit(1);
    /* Not by system(3), for which the file would stay plain. */
    if (fork() == 0)
        execlp("sh", "sh", "-c", "printf second | dd of=d/f bs=6 seek=5 conv=notrunc status=none", NULL);
    wait(NULL);
    if (looks)
        fstat(fd, &st);
    if (is_removed)
        unlink("d/f");
    return fd;
}
int main(int argc, char **argv)
{
    static const char *const modes[] = {"r", "r+", "a", "a+", "w", "w+"};
    for (int i = 0; i < 2 * 3 * 6 * 2; i++) {
        const char *mode = modes[i / 2 % 6];
        int fd = make(i / 36, argc == 1), how = i / 12 % 3;
        char path[64], c[64] = "";
        sprintf(path, how == 1 ? "/dev/fd/%d" : "/proc/self/fd/%d", fd);
        unlink("link");
        if (how == 2 && symlink(path, "link") == 0)
            strcpy(path, "link");
        FILE *fp = i % 2 ? freopen(path, mode, fopen("/dev/null", "r")) : fopen(path, mode);
        if (!fp)
            return 2;
        int n = mode[0] == 'r' ? fread(c, 1, sizeof c, fp) : 0;
        printf("%d %d %s %d", i, how, mode, n);
        for (int at = 0; at < n; at++)
            printf(" %02x", c[at]);
        if (strcmp(mode, "r") && (fseek(fp, 2, SEEK_SET) || fputs("NEW", fp) < 0))
            return 3;
        fclose(fp);
        n = pread(fd, c, sizeof c, 0);
        printf(" then %d", n);
        for (int at = 0; at < n; at++)
            printf(" %02x", c[at]);
        puts("");
        close(fd);
    }
    return 0;
}
EOF
    gcc -O1 -w -o streams streams.c
    for workload in auto shared small; do
        mkdir -p "m/$workload/d" "plain/$workload/d"
        plfs layout --workload $workload "m/$workload/d" > /dev/null
        # A file of a pack keeps its name: what has none may be gone from the pack.
        stays=$([ $workload != small ] || echo stays)
        (cd "plain/$workload" && ../../streams $stays) > want
        (cd "m/$workload" && plfs run --mount .. -- ../../streams $stays) > got
        [ "$(wc -l < want)" = 72 ] || fail "$(wc -l < want) lines"
        diff want got || fail "$workload"
    done
}
# A stat and a truncate of a promoted file, by its name or by the path of a descriptor, drop none of
# the process's record locks: they opened and closed it.
t_stats_of_a_promoted_file_drop_no_locks() {
    cat > locks.py << 'EOF'
import fcntl, os, subprocess, sys
name = sys.argv[1] + "/f"
f = os.open(name, os.O_RDWR | os.O_CREAT)
os.write(f, b"a" * 20)
second = f"import os; f = os.open('{name}', os.O_RDWR); os.pwrite(f, b'b' * 10, 5)"
subprocess.run([sys.executable, "-c", second], check=True)
os.pread(f, 10, 0)
look = f"""
import fcntl, os
f = os.open('{name}', os.O_RDWR)
try:
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print('free')
except OSError:
    print('locked')
"""
path = f"/proc/self/fd/{f}"
for call in (
    lambda: os.stat(name).st_size, lambda: os.lstat(name).st_size, lambda: os.stat(path).st_size,
    lambda: os.truncate(name, 19), lambda: os.truncate(path, 18), lambda: os.access(name, os.R_OK), lambda: os.utime(name),
    lambda: os.access(path, os.R_OK),
):
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print(call(), subprocess.run([sys.executable, "-c", look], capture_output=True, text=True).stdout)
EOF
    mkdir -p m plain
    plfs layout --workload auto m > /dev/null
    python3 locks.py plain > want
    plfs run --mount m -- python3 locks.py m > got
    [ "$(grep -c locked want)" = 8 ] || fail "$(cat want)"
    diff want got || fail "other locks"
}
# So did those of other files with two names, which could be containers: two processes got the lock
# of SQLite's database.
t_stats_of_files_with_two_names_drop_no_locks() {
    cat > locks.py << 'EOF'
import fcntl, os, subprocess, sys
look = """
import fcntl, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print('free')
except OSError:
    print('locked')
"""
for name in sys.argv[1:]:
    f = os.open(name, os.O_RDWR | os.O_CREAT)
    os.write(f, b"a" * 50)
    os.link(name, name + ".2")
    for call in (
        lambda: os.stat(name).st_size, lambda: os.lstat(name).st_size, lambda: os.fstat(f).st_size, lambda: os.truncate(name, 30),
        lambda: os.chmod(name, 0o600), lambda: os.chown(name, -1, -1), lambda: os.utime(name), lambda: os.unlink(name + ".2"),
        lambda: os.truncate(f"/proc/self/fd/{f}", 20),
    ):
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print(call(), subprocess.run([sys.executable, "-c", look, name], capture_output=True, text=True).stdout)
EOF
    mkdir -p m plain
    plfs layout --workload auto m > /dev/null
    python3 locks.py plain/f plain/g > want
    plfs run --mount m -- python3 locks.py m/f outside > got
    [ "$(grep -c locked want)" = 18 ] || fail "$(cat want)"
    diff want got || fail "other locks"
}
# A file without a name that is as long as a placeholder in memory: O_TRUNC by its path cut nothing.
t_a_file_as_long_as_a_placeholder_is_cut() {
    mkdir -p m/auto m/small
    plfs layout --workload auto m/auto > /dev/null
    plfs layout --workload small m/small > /dev/null
    plfs run --mount m -- python3 - << 'EOF'
import os
for top in ("m/auto", "m/small", "."):
    f = os.open(top + "/f", os.O_RDWR | os.O_CREAT)
    g = os.open(top + "/g", os.O_RDWR | os.O_CREAT)
    os.write(f, b"a" * 196608)
    os.unlink(top + "/f")
    path = f"/proc/self/fd/{f}"
    assert os.stat(path).st_size == 196608, top
    at = os.open(path, os.O_RDWR | os.O_TRUNC)
    assert os.fstat(f).st_size == 0, top
    os.write(at, b"new")
    assert os.pread(f, 9, 0) == b"new", top
EOF
}
# The path of a descriptor is that of the number, not of another one on the same file, which may be
# moved meanwhile.
t_paths_of_descriptors_are_those_of_the_number() {
    cat > race.c << 'EOF'
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static int low, up, other;
static void *move(void *end)
{
    while (time(NULL) < *(time_t *)end) {
        dup2(other, low);
        dup2(up, low);
    }
    return NULL;
}
int main(void)
{
    char path[64];
    long wrong = 0;
    struct stat st;
    pthread_t mover;
    low = open("m/f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (write(low, path, 50) != 50)
        return 1;
    /* Not by system(3), for which the file would stay plain. */
    if (fork() == 0)
        execlp("dd", "dd", "if=/dev/zero", "of=m/f", "bs=10", "seek=2", "count=1", "conv=notrunc", "status=none", NULL);
    wait(NULL);
    fstat(low, &st);
    up = dup(low);
    unlink("m/f");
    other = open("m/other", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    ftruncate(other, 1000);
    sprintf(path, "/proc/self/fd/%d", up);
    time_t end = time(NULL) + 2;
    pthread_create(&mover, NULL, move, &end);
    while (time(NULL) < end) {
        wrong += stat(path, &st) != 0 || st.st_size > 100;
        wrong += truncate(path, 50) != 0;
        wrong += fstat(other, &st) != 0 || st.st_size != 1000;
    }
    pthread_join(mover, NULL);
    printf("%ld wrong\n", wrong);
    return wrong != 0;
}
EOF
    gcc -O1 -w -o race race.c -pthread
    for workload in auto shared; do
        mkdir m && plfs layout --workload $workload m > /dev/null
        plfs run --mount m -- ./race || fail "$workload"
        rm -r m
    done
}
# Mode, owner and times of a file of a pack, by the path of a descriptor of it, went to the
# placeholder; and by others than the plain text to that of another file, as all files of a
# directory have one placeholder.
t_what_is_changed_by_the_path_of_a_packed_descriptor_is_the_files() {
    cat > change.py << 'EOF'
import ctypes, os, sys
top = sys.argv[1]
files = [os.open(f"{top}/{i}", os.O_RDWR | os.O_CREAT, 0o640) for i in range(3)]
f = files[1]
os.symlink(f"/proc/self/fd/{f}", top + "/../link")
dir = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
paths = [f"/proc/self/fd/{f}", f"/proc/self/task/{os.getpid()}/fd/{f}", f"//proc/self/fd/{f}", top + "/../link", f"/dev/fd/{f}"]
for path, where in [(path, None) for path in paths] + [(str(f), dir)]:
    for i, fd in enumerate(files):
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d" % i * 9, 0)
        os.fchmod(fd, 0o640)
        os.utime(fd, (9, 9))
    def opened(flags):
        at = os.open(path, flags, dir_fd=where)
        os.pwrite(at, b"NEW", 1)
        os.close(at)
    print([os.access(path, how, dir_fd=where) for how in (os.R_OK, os.W_OK, os.X_OK)])
    for call in (
        lambda: os.chmod(path, 0o604, dir_fd=where), lambda: os.utime(path, (1, 2), dir_fd=where),
        lambda: os.chown(path, 5, 6, dir_fd=where), lambda: where or "link" in path or os.open(path, os.O_TMPFILE | os.O_RDWR),
        lambda: os.stat(path, dir_fd=where).st_size, lambda: opened(os.O_WRONLY), lambda: where or os.truncate(path, 5),
        lambda: opened(os.O_RDWR | os.O_TRUNC), lambda: os.close(os.open(path, os.O_RDONLY | os.O_TRUNC, dir_fd=where)),
    ):
        try:
            print(call())
        except OSError as error:
            print(error.errno)
        for i, fd in enumerate(files):
            for st in (os.fstat(fd), os.stat(f"{top}/{i}")):
                print(oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime if st.st_mtime < 9 else "later", st.st_size)
            print(os.pread(fd, 20, 0))
libc = ctypes.CDLL(None, use_errno=True)
print(libc.utimensat(-100, f"{top}/1".encode(), ctypes.c_void_p(8), 0), ctypes.get_errno())
EOF
    mkdir -p m/d plain/d
    plfs layout --workload small m/d > /dev/null
    python3 change.py plain/d > want
    plfs run --mount m -- python3 change.py m/d > got
    diff want got || fail "other files"
}
# What is read of a file whose index log is lost is what the others have: a copy was shorter, with
# success.
t_a_copy_of_a_file_whose_index_log_is_lost_is_an_error() {
    mkdir m keep
    plfs layout --workload shared m > /dev/null
    head -c 100000 /dev/urandom > plain
    plfs run --mount m -- cp plain m/f
    local index dir
    index=$(echo m/.plfs/*/*/*/index)
    dir=$(dirname "$(dirname "$index")")
    mv "$index" keep/
    # The flat index of the last close has it all, until the directory changes.
    plfs cat m/f | cmp - plain
    touch "$dir/now"
    rm "$dir/now"
    fails plfs cat m/f > part 2> said
    [ ! -s part ]
    grep -q "m/f: what its last close counted is not all there: index logs are lost" said
    for copy in cp export; do
        fails plfs $copy m/f copied 2> said
        grep -q 'nothing was copied; `plfs cat` gives what is left' said
        [ ! -e copied ]
    done
    fails plfs export -r m out 2> said
    mv keep/index "$index"
    plfs export m/f copied
    cmp copied plain
}

# The container of a promoted file goes with the last who has the file open: a descriptor of the
# program on what was the plain file kept it, as garbage, whatever the program did.
t_a_promoted_file_without_a_name_leaves_no_container() {
    mkdir m
    plfs layout --workload auto m > /dev/null
    cat > nameless.py << 'EOF'
import os, subprocess, sys, threading
how = sys.argv[1]
second = "import os; f = os.open('m/f', os.O_RDWR); os.pwrite(f, b'b' * 10, 5)"
f = os.open("m/f", os.O_RDWR | os.O_CREAT)
os.write(f, b"0123456789" * 5)
reader = os.open("m/f", os.O_RDONLY)
subprocess.run([sys.executable, "-c", second], check=True)
if how == "noticed":
    assert os.pread(f, 6, 0) == b"01234b"
if how == "opened":
    os.close(f)
    os.close(reader)
    f = os.open("m/f", os.O_RDWR)
if how == "read":
    os.close(f)
    f = reader
mode = os.O_RDONLY if how == "read" else os.O_RDWR
others = [os.open("m/f", mode) for i in range(4)]
if how == "copies":
    others += [os.dup(f), os.dup(others[0])]
pipe, go = os.pipe()
ready, is_ready = os.pipe()
pids = []
for i in range(4 if how == "processes" else 0):
    pids.append(os.fork())
    if pids[-1] == 0:
        if i % 2:
            os.close(f)
            f = os.open("m/f", os.O_RDWR)
        os.close(go)
        os.write(is_ready, b"r")
        os.read(pipe, 1)
        for fd in others + [f]:
            os.close(fd)
        os._exit(0)
for pid in pids:
    os.read(ready, 1)
os.unlink("m/f")
assert os.pread(f, 6, 0) == b"01234b"
os.close(go)
if how == "handled":
    os.kill(os.getpid(), 15)
if how == "exit":
    sys.exit()
if how == "_exit":
    os._exit(0)
closers = [threading.Thread(target=os.close, args=[fd]) for fd in others]
for closer in closers:
    closer.start()
if how != "over":
    os.close(f)
else:
    os.dup2(2, f)
for closer in closers:
    closer.join()
if how not in ("read", "opened"):
    os.close(reader)
for pid in pids:
    assert os.waitpid(pid, 0)[1] == 0
EOF
    for how in noticed plain opened read copies over exit _exit handled \
        processes processes processes processes; do
        plfs run --mount m -- python3 nameless.py $how || [ $how = handled ]
        [ "$(plfs check m)" = "there are no PLFS files" ]
    done
}

# Who gets a promoted file in a message has a description of his own, but who sent it to himself:
# its position became a number of the sender's when that started a program, and it was read-only.
t_who_gets_a_promoted_file_keeps_its_position() {
    mkdir m
    plfs layout --workload auto m > /dev/null
    cat > receive.py << 'EOF'
import fcntl, os, socket, subprocess, sys
from_parent = socket.socket(fileno=0)
got = socket.recv_fds(from_parent, 1, 1)[1][0]
mode = int(sys.argv[1])
assert fcntl.fcntl(got, fcntl.F_GETFL) & os.O_ACCMODE == mode
def may(call, allowed):
    try:
        call()
        assert allowed
    except OSError as e:
        assert not allowed and e.errno == 9, e
may(lambda: os.pread(got, 1, 0), mode != os.O_WRONLY)
may(lambda: os.pwrite(got, b"r", 3), mode != os.O_RDONLY)
from_parent.send(b"x")
from_parent.recv(1)
# All share that of a descriptor that only reads: it stays what it is.
if mode == os.O_RDONLY:
    sys.exit()
at = os.lseek(got, 0, 1)
assert at == 40 + mode, at
os.write(got, b"----")
again = f"""import os
assert os.lseek({got}, 0, 1) == {at + 4} and os.fstat({got}).st_size == 50
os.pwrite({got}, b"a", 4)"""
subprocess.run([sys.executable, "-c", again], check=True, close_fds=False)
EOF
    plfs run --mount m -- python3 - << 'EOF'
import os, socket, subprocess, sys
for mode in os.O_RDWR, os.O_WRONLY, os.O_RDONLY:
    f = os.open("m/f", os.O_RDWR | os.O_CREAT)
    os.write(f, b"0123456789" * 5)
    keeps = None
    if mode != os.O_RDWR:
        keeps, f = f, os.open("m/f", mode)
    os.set_inheritable(f, True)
    second = "import os; f = os.open('m/f', os.O_RDWR); os.pwrite(f, b'b' * 10, 5)"
    subprocess.run([sys.executable, "-c", second], check=True)
    # A child has what the parent had before the message, and starts programs, too.
    ours, childs = socket.socketpair()
    child = os.fork()
    if child == 0:
        childs.recv(1)
        subprocess.run(["true"], close_fds=False)
        childs.send(b"x")
        os._exit(0)
    os.lseek(f, 40 + mode, 0)
    here, there = socket.socketpair()
    receiver = subprocess.Popen([sys.executable, "receive.py", str(mode)], stdin=there)
    socket.send_fds(here, [b"f"], [f])
    assert here.recv(1) == b"x"
    os.lseek(f, 40, 0)
    socket.send_fds(here, [b"f"], [f])
    socket.send_fds(ours, [b"f"], [f])
    mine, other = socket.socketpair()
    socket.send_fds(mine, [b"f"], [f])
    got = socket.recv_fds(other, 1, 1)[1][0]
    os.dup2(f, 90)
    for _ in range(2):
        subprocess.run(["true"], close_fds=False)
        assert [os.lseek(fd, 0, 1) for fd in (got, f, 90)] == [40, 40, 40]
    os.lseek(got, 44, 0)
    assert [os.lseek(fd, 0, 1) for fd in (got, f, 90)] == [44, 44, 44]
    ours.send(b"x")
    assert ours.recv(1) == b"x" and os.waitpid(child, 0)[1] == 0
    here.send(b"x")
    assert receiver.wait() == 0
    now = bytearray(b"01234" + b"b" * 10 + b"56789" + b"0123456789" * 3)
    if mode != os.O_RDONLY:
        now[3:5], now[40 + mode:44 + mode] = b"ra", b"----"
    assert open("m/f", "rb").read() == now, open("m/f", "rb").read()
    for fd in {got, f, 90} | ({keeps} if keeps else set()):
        os.close(fd)
    os.unlink("m/f")
EOF
}
# Stdout of a shell outside, or a descriptor that a program without PLFS has sent: others wrote the
# file, and what was written by that descriptor afterwards was lost below the logs.
t_what_is_written_by_a_descriptor_from_outside_is_there() {
    mkdir m
    cat > receive.py << 'EOF'
import os, socket, subprocess, sys
f = 1
if len(sys.argv) > 1:
    s = socket.socket(fileno=int(sys.argv[1]))
    s.send(b"r")
    f = socket.recv_fds(s, 1, 1)[1][0]
else:
    os.write(1, b"0123456789" * 3)
wait = "import os, sys; f = os.open('m/out', os.O_RDWR); os.pwrite(f, b'x' * 10, 0); os.fsync(f); os.write(2, b'x'); sys.stdin.read()"
first = subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
assert first.stderr.read(1) == b"x"
write = "import os; f = os.open('m/out', os.O_RDWR); os.pwrite(f, b'z' * 10, 10)"
subprocess.run([sys.executable, "-c", write], stdout=subprocess.DEVNULL, check=True)
first.stdin.close()
assert first.wait() == 0
assert os.pwrite(f, b"NEW", 2) == 3 and os.pwrite(f, b"NEW", 12) == 3
os.fsync(f)
EOF
    plfs layout --workload auto m > /dev/null
    plfs run --mount m -- python3 receive.py > m/out
    [ "$(plfs cat m/out)" = xxNEWxxxxxzzNEWzzzzz0123456789 ] || fail "by the shell: $(plfs cat m/out)"
    rm m/out
    python3 - << 'EOF'
import os, socket, subprocess
ours, theirs = socket.socketpair()
f = os.open("m/out", os.O_RDWR | os.O_CREAT)
os.write(f, b"0123456789" * 3)
run = ["plfs", "run", "--mount", "m", "--", "python3", "receive.py", str(theirs.fileno())]
p = subprocess.Popen(run, pass_fds=[theirs.fileno()])
ours.recv(1)
socket.send_fds(ours, [b"x"], [f])
assert p.wait() == 0
EOF
    [ "$(plfs cat m/out)" = xxNEWxxxxxzzNEWzzzzz0123456789 ] || fail "by a message: $(plfs cat m/out)"
    # By paths that lead there through links outside.
    ln -s m link
    sed 's/^f = 1$/f = os.open(sys.argv.pop(1), os.O_RDWR | os.O_CREAT | os.O_TRUNC); os.dup2(f, 1)/' receive.py > open.py
    local path
    for path in link/out /proc/self/cwd/m/out /proc/self/root"$PWD"/m/out; do
        rm -f m/out
        plfs run --mount m -- python3 open.py "$path"
        [ "$(plfs cat m/out)" = xxNEWxxxxxzzNEWzzzzz0123456789 ] || fail "by $path: $(plfs cat m/out)"
    done
    # It comes in while it is open, here or by a shell.
    sed 's/^f = 1$/f = os.open("come", os.O_RDWR | os.O_CREAT | os.O_TRUNC); os.dup2(f, 1); os.link("come", "m\/out"); os.unlink("come")/' receive.py > link.py
    sed 's/os.link("come", "m\/out"); os.unlink("come")/os.rename("come", "m\/out")/' link.py > rename.py
    sed 's/^f = 1$/f = 1; os.rename("come", "m\/out")/' receive.py > shell.py
    local how
    for how in link rename shell; do
        rm -f m/out
        plfs run --mount m -- python3 $how.py > come
        [ "$(plfs cat m/out)" = xxNEWxxxxxzzNEWzzzzz0123456789 ] || fail "$how: $(plfs cat m/out)"
    done
}
# Of a promoted program or library the kernel has the base, which may be an older one: that was run
# and loaded, or was no program at all.
t_promoted_programs_and_libraries_are_what_they_are_now() {
    mkdir m
    plfs layout --workload auto m > /dev/null
    for n in 1 2; do
        printf 'int value(void) { return %d; }\nint main(void) { return value(); }\n' $n > $n.c
        gcc -o program$n $n.c
        gcc -shared -fPIC -o library$n $n.c
        printf '#!/bin/sh\nexit %d\n' $n > script$n
    done
    plfs run --mount m -- python3 - << 'EOF'
import ctypes, os, subprocess, sys
def promoted(name, before, now):
    f = os.open(name, os.O_RDWR | os.O_CREAT, 0o755)
    os.write(f, before)
    second = f"import os; f = os.open('{name}', os.O_RDWR); os.pwrite(f, b'!', 0)"
    subprocess.run([sys.executable, "-c", second], check=True)
    os.ftruncate(f, len(now))
    os.pwrite(f, now, 0)
    os.close(f)
def run(start):
    pid = start()
    if pid == 0:
        os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def forked(call):
    def start():
        pid = os.fork()
        if pid == 0:
            try:
                call()
            except OSError as e:
                print(e, file=sys.stderr)
            os._exit(98)
        return pid
    return start
for kind in "program", "script":
    one, two = (open(f"{kind}{n}", "rb").read() for n in (1, 2))
    for name, before in (f"m/{kind}", one), (f"m/empty_{kind}", b""):
        promoted(name, before, two)
        held = os.open(name, os.O_RDONLY)
        os.set_inheritable(held, True)
        ways = [
            lambda: os.posix_spawn(name, [name], os.environ),
            lambda: os.posix_spawnp(os.path.abspath(name), [name], os.environ),
            forked(lambda: os.execv(name, [name])),
            forked(lambda: os.execvp(os.path.abspath(name), [name])),
            forked(lambda: os.execve(held, [name], os.environ)),
            lambda: os.spawnl(os.P_NOWAIT, "/bin/sh", "sh", "-c", name),
        ]
        assert [run(way) for way in ways] == [2] * len(ways), (name, [run(way) for way in ways])
one, two = (open(f"library{n}", "rb").read() for n in (1, 2))
promoted("m/library.so", one, two)
assert ctypes.CDLL("m/library.so").value() == 2
EOF
}
# A program that is executed holds what the one before held: another process removed the data.
t_an_executed_program_holds_what_it_inherits() {
    mkdir m
    plfs run --mount m -- python3 - << 'EOF'
import os, subprocess, sys
f = os.open("m/f", os.O_RDWR | os.O_CREAT)
os.set_inheritable(f, True)
os.write(f, b"kept")
remover = subprocess.Popen(["sh", "-c", "read x; rm m/f; echo"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
keep = [remover.stdin.fileno(), remover.stdout.fileno()]
for fd in keep:
    os.set_inheritable(fd, True)
after = f"""
import os, sys
os.write({keep[0]}, b"\\n")
os.read({keep[1]}, 1)
assert os.fstat({f}).st_size == 4 and os.pread({f}, 9, 0) == b"kept"
os.pwrite({f}, b"more", 4)
os.fsync({f})
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, "-c", sys.stdin.read(), "again"])
"""
again = f"import os; assert os.pread({f}, 9, 0) == b'keptmore' and os.fstat({f}).st_size == 8"
read, write = os.pipe()
os.write(write, again.encode())
os.close(write)
os.dup2(read, 0)
os.execv(sys.executable, [sys.executable, "-c", after])
EOF
    [ ! -e m/f ] && [ -z "$(find m/.plfs -name '*.data')" ]
}
# A process had a file open that was plain when it opened it, and gave the descriptor away: to a
# program that it executed, in a message, to the kernel. What was written there after the file had
# got a container lay below the logs, and was lost without an error.
t_descriptors_of_promoted_files_that_others_get_cannot_write_below_the_logs() {
    mkdir m
    plfs layout --workload auto m > out
    plfs run --mount m -- python3 - << 'EOF'
import array, ctypes, os, socket, subprocess, sys

def promoted(name):
    f = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    os.write(f, b"a" * 10)
    other = f"import os; f = os.open('{name}', os.O_RDWR); os.pwrite(f, b'b' * 10, 5); os.close(f)"
    subprocess.run([sys.executable, "-c", other], check=True)
    return f

def without_plfs(f, program):
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    return subprocess.run([sys.executable, "-c", program, str(f)], env=env, pass_fds=[f]).returncode

write = """
import os, sys
try:
    os.pwrite(int(sys.argv[1]), b"lost", 0)
except OSError as error:
    sys.exit(error.errno)
"""
receive = """
import os, socket, sys
with socket.socket(fileno=int(sys.argv[1])) as s:
    f = socket.recv_fds(s, 1, 1)[1][0]
try:
    os.pwrite(f, b"lost", 0)
except OSError as error:
    sys.exit(error.errno)
"""
# Inherited.
f = promoted("m/inherited")
assert without_plfs(f, write) == 9
os.write(f, b"c")
assert os.pread(f, 100, 0) == b"aaaaabbbbbcbbbb", os.pread(f, 100, 0)
# Sent. One that is plain may be written, and stays plain.
for name, open_file, rc in (("m/sent", promoted, 9), ("m/plain", lambda n: os.open(n, os.O_RDWR | os.O_CREAT), 0)):
    f = open_file(name)
    here, there = socket.socketpair()
    socket.send_fds(here, [b"x"], [f])
    assert without_plfs(there.fileno(), receive) == rc, name
    assert os.pread(f, 4, 0) == (b"lost" if rc == 0 else b"aaaa")
# Without a name, by its number.
f = promoted("m/nameless")
os.unlink("m/nameless")
g = os.open(f"/proc/self/fd/{f}", os.O_RDWR)
assert os.read(g, 100) == b"aaaaabbbbbbbbbb"
os.pwrite(g, b"d", 14)
os.fsync(g)
assert os.pread(f, 100, 0) == b"aaaaabbbbbbbbbd"
show = "import os, sys; assert os.pread(int(sys.argv[1]), 100, 0) == b'aaaaabbbbbbbbbd'"
subprocess.run([sys.executable, "-c", show, str(g)], pass_fds=[g], check=True)
# To the kernel: those that are open, and those that are opened from then on.
f = os.open("m/aio", os.O_RDWR | os.O_CREAT)
io_setup, context = 206, ctypes.c_ulong()
assert ctypes.CDLL(None).syscall(io_setup, 1, ctypes.byref(context)) == 0
g = os.open("m/aio2", os.O_RDWR | os.O_CREAT)
EOF
    plfs stat m/plain | has 'for ever: .*sent to another program'
    plfs stat m/aio | has 'for ever: .*libaio'
    plfs stat m/aio2 | has 'for ever: .*libaio'
    plfs cat m/sent | cmp - <(printf aaaaabbbbbbbbbb)
}

# Of eight processes that began to write a new file on a machine that had other work, too, the first
# had written more than 1 MiB before the second could open it: one file of four stayed plain, and
# took eight times as long. A new file has no old bytes, so it may be longer.
t_a_new_file_of_many_bytes_becomes_a_container() {
    mkdir m
    plfs layout --workload auto m > out
    plfs run --mount m -- python3 - << 'EOF'
import os, subprocess, sys
other = "import os, sys; f = os.open(sys.argv[1], os.O_RDWR); os.pwrite(f, b'bb', 2); os.close(f)"
for name, length in (("new", 64 << 20), ("long", (64 << 20) + 1), ("small", 2 << 20)):
    f = os.open("m/" + name, os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(f, length)
    os.pwrite(f, b"aaaa", 0)
    subprocess.run([sys.executable, "-c", other, "m/" + name], check=True)
    os.close(f)
EOF
    [ "$(stat -c %W m/long)" -gt 0 ] # else nobody knows that it is new
    [ "$(plfs ls -l m | awk '{ print $1, $NF }' | xargs)" = "plain m/long promoted m/new promoted m/small" ]
    for name in new long small; do
        plfs cat "m/$name" > all
        cmp -n 5 all <(printf 'aabb\0')
    done
}

t_plain_files_are_named_and_their_containers_are_healthy() {
    mkdir m
    plfs layout --workload auto m > out
    plfs run --mount m -- python3 - << 'EOF'
import os, subprocess, sys
f = os.open("m/f", os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(f, b"a" * 1000, 0)
other = "import os; f = os.open('m/f', os.O_RDWR); os.pwrite(f, b'b' * 1000, 500); os.close(f)"
subprocess.run([sys.executable, "-c", other], check=True)
os.close(f)
os.close(os.open("m/plain", os.O_RDWR | os.O_CREAT, 0o644))
os.close(os.open("m/pinned", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
EOF
    [ "$(plfs ls -l m | awk '{ print $1, $NF }' | xargs)" = "promoted m/f pinned m/pinned plain m/plain" ]
    plfs ls --json m | json 'assert d[0]["base_bytes"] == 1000 and d[1]["pinned"] and d[1]["type"] == "file"'
    plfs stat m/f | has 'base  1,000 bytes in place'
    plfs stat m/plain | has 'until several processes write it'
    plfs stat m/pinned | has 'for ever: .*O_APPEND'
    [ "$(plfs check m)" = "1 healthy" ]
    plfs check m/f m/plain m/pinned > out
    plfs cat m/f | cmp - <(printf 'a%.0s' {1..500}; printf 'b%.0s' {1..1000})
    refuses 1 "plain file before" plfs compact --force m/f
    [ "$(plfs check --repair --min-age 0 m)" = "1 healthy" ]
    # Who appends to a copy, or to a file whose promoter was killed, opened it again for ever.
    cp -a m/f m/g
    echo half > m/half
    python3 -c 'import os; os.setxattr("m/half", "user.plfs", b"plfs 1 c %s %d %s" % (b"5a" * 16, os.stat("m/half").st_ino, os.path.abspath("m").encode()))'
    for name in g half; do
        timeout 60 plfs run --mount m -- sh -c "echo appended >> m/$name"
        plfs cat "m/$name" | tail -1 | has 'appended$'
    done
    plfs cat m/half | cmp - <(printf 'half\nappended\n')
    plfs rm m/g m/half
    # The kernel cuts the base, which is a part of the file only.
    plfs rm m/plain && cp -a m cut
    plfs run --mount cut -- python3 -c 'import os; os.open("cut/f", os.O_RDONLY | os.O_TRUNC)'
    [ "$(plfs cat cut/f | wc -c)" = 0 ]
    plfs rm -r cut
    cp -a m copy
    plfs cat copy/f | cmp - <(plfs cat m/f)
    rm m/f
    plfs check m | has '1 garbage'
    plfs check --repair --min-age 0 m | has 'moved'
    plfs check --undo m > out
    ln m/.plfs/??/*/base m/f
    plfs cat m/f | cmp - <(plfs cat copy/f)
    plfs rm m/f
    plfs rm -r copy
    [ ! -e copy ] && plfs check m | has 'there are no PLFS files'
}

t_run_default_mount() {
    plfs run -- bash -c 'echo hello > plfs.d/f; cat plfs.d/f' > out
    [ "$(cat out)" = hello ]
    [ "$(stat -c %a plfs.d/.plfs)" = 1777 ]
    [ "$(stat -c %s plfs.d/f)" = 4093 ] # the name, seen without PLFS
    [ "$(plfs cat plfs.d/f)" = hello ]
    plfs run -- bash -c '[ "$(ls -A plfs.d)" = f ] && [ "$(stat -c %s plfs.d/f)" = 6 ]'
}
t_run_outside_of_the_mount_is_untouched() {
    plfs run -- bash -c 'echo plain > f'
    [ "$(cat f)" = plain ]
    [ ! -e .plfs ]
}
t_run_named_mounts() {
    mkdir a b
    ln -s "$PWD/a" link
    plfs run --mount link --mount b -- bash -c 'echo 1 > a/f; echo 2 > link/g; echo 3 > b/f; echo 4 > h'
    plfs stat a/f > /dev/null
    plfs stat a/g > /dev/null
    plfs stat b/f > /dev/null
    [ "$(cat h)" = 4 ]
    [ ! -e plfs.d ]
}
t_run_missing_mount() {
    refuses 2 "mkdir -p $PWD/absent" plfs run --mount "$PWD/absent" -- true
    touch file
    refuses 2 "not a directory" plfs run --mount file -- true
}
# The directory was there although nothing had run that could have made a file.
t_run_of_no_program_makes_no_directory() {
    local status=0
    plfs run -- ./absent 2> err || status=$?
    [ $status = 127 ]
    PLFS_PRELOAD=/absent/x.so refuses 1 /absent/x.so plfs run -- true
    echo 'int main(void) { return 0; }' > s.c
    if cc -static -o s s.c 2> /dev/null; then refuses 2 "static program" plfs run -- ./s; fi
    [ ! -e plfs.d ]
    mkdir plfs.d
    fails plfs run -- ./absent 2> err
    [ -d plfs.d ]
}
# It was made at each start, wherever that was, and nothing could be started where it could not be.
t_run_makes_its_directory_when_something_is_made_in_it() {
    local what
    mkdir -p home other
    ln -s home link
    cd home || return
    for what in ls 'ls -la .. > /dev/null' 'cat plfs.d/f' 'test -e plfs.d/f' 'rm plfs.d/f' 'echo x > other' \
        'mkdir plfs.dir; echo x > plfs.dir/f' 'echo x > xplfs.d' 'echo x > ../absent/plfs.d/f' 'echo x > ../other/plfs.d/f' 'plfs run -- ls' 'find . > /dev/null'; do
        plfs run -- sh -c "$what" > out 2>&1 || true
        [ ! -e plfs.d ] && [ ! -e ../other/plfs.d ] || fail "made by $what"
    done
    touch file
    for what in 'echo x > plfs.d/f' 'mkdir plfs.d/sub' 'ln -s x plfs.d/l' 'ln file plfs.d/f' 'mkfifo plfs.d/p' \
        'mv file plfs.d/f; cp plfs.d/f file' 'mktemp -p plfs.d' 'mktemp -d -p plfs.d' 'cd plfs.d; echo x > f' \
        '[ -d plfs.d ] && echo x > plfs.d/f' 'cp file plfs.d' 'ls plfs.d' 'realpath -e plfs.d' 'stat -f plfs.d' \
        'cd ..; echo x > home/plfs.d/f' 'echo x > ./../home//plfs.d/./f' 'echo x > ../link/plfs.d/f' 'echo x > $PWD/plfs.d/f' \
        'python3 -c "open(\"plfs.d/f\", \"w\")"' 'python3 -c "import os; os.listdir(\"plfs.d\")"' \
        'plfs run -- sh -c "echo x > plfs.d/f"' 'cd /; echo x > $OLDPWD/plfs.d/f' \
        'env -C plfs.d touch f' 'for i in 1 2 3 4; do echo $i > plfs.d/$i & done; wait; ! test -e plfs.d/5'; do
        plfs run -- sh -c "$what" > out 2> err || fail "$what: $(cat err)"
        [ ! -s err ] && [ "$(stat -c %a plfs.d/.plfs)" = 1777 ] || fail "not made by $what: $(cat err)"
        plfs check plfs.d > /dev/null
        rm -r plfs.d
    done
    # What the program makes by itself is managed, too.
    plfs run -- sh -c 'mkdir plfs.d; echo x > plfs.d/f; mkdir -p plfs.d/a/b; echo x > plfs.d/a/b/f'
    plfs stat plfs.d/a/b/f > /dev/null
    plfs stat plfs.d/f > /dev/null
    # What was there and is removed is gone.
    fails plfs run -- sh -c 'rm -r plfs.d; echo x > plfs.d/f' 2> err
    [ ! -e plfs.d ]
    # Where none can be made nothing is in the way of programs that want none.
    cd /proc || return
    plfs run -- true
    fails plfs run -- sh -c 'echo x > plfs.d/f' 2> "$OLDPWD/err"
    has '^plfs: cannot create the directory /proc/plfs.d: .*--mount DIR' "$OLDPWD/err"
}
t_run_exit_status_and_signals() {
    local status=0
    plfs run -- sh -c 'exit 7' || status=$?
    [ $status = 7 ]
    status=0; plfs run -- bash -c 'kill -TERM $$' || status=$?
    [ $status = 143 ]
    status=0; plfs run -- ./absent 2> err || status=$?
    [ $status = 127 ]
    grep -q '^plfs: run: cannot run ./absent' err
    touch noexec
    status=0; plfs run -- ./noexec 2> err || status=$?
    [ $status = 126 ]
    status=0; plfs run 2> err || status=$?
    [ $status = 2 ]
    grep -q COMMAND err
}
t_run_flags_after_the_command_are_the_commands() {
    [ "$(plfs run -- echo --mount x -h)" = "--mount x -h" ]
    [ "$(plfs run echo --mount x)" = "--mount x" ]
}
# What plfs nc does with datasets is in tests/netcdf; this needs no PnetCDF.
t_nc_says_what_is_no_dataset() {
    echo hello > text
    for command in ls check; do
        fails plfs nc $command text missing 2> err
        grep -q "plfs: nc: cannot read text: it is no NetCDF file" err && grep -q "missing: it is missing" err
    done
    fails plfs nc merge text out 2> err
    [ ! -e out ]
    fails plfs run --partition=1001 -- true 2> err
    grep -q 1001 err
}
t_run_nested_and_with_other_preloads() {
    plfs run -- plfs run -- bash -c 'echo hi > plfs.d/f; echo "$LD_PRELOAD"' > out
    # That for NetCDF is there if PnetCDF was at build.
    local list=$build/lib/plfs/libplfs_preload.so:$build/lib/plfs/libplfs_mpi.so netcdf=$build/lib/plfs/libplfs_netcdf.so
    [ ! -e "$netcdf" ] || list=$list:$netcdf
    [ "$(tail -1 out)" = "$list" ]
    [ "$(plfs cat plfs.d/f)" = hi ]
}
t_run_backends() {
    mkdir m other
    plfs run --mount m --backend other -- dd if=/dev/zero of=m/f bs=1M count=20 status=none
    [ "$(plfs cat m/f | wc -c)" = $((20 << 20)) ]
    plfs run --mount m --backend other -- bash -c 'for i in {1..20}; do head -c 100000 /dev/urandom > m/$i & done; wait'
    [ -n "$(find other -name '*.data')" ] || fail "no data on the second backend"
    plfs check m > /dev/null
    plfs check other > /dev/null
    refuses 2 "no such directory" plfs run --backend absent -- true
    mkdir unmounted
    refuses 2 "is its file system mounted" plfs run --mount m --backend unmounted -- true
    [ -z "$(ls -A unmounted)" ] || fail "something was made below a mount point"
}
t_run_refuses_static_programs() {
    echo 'int main(void) { return 0; }' > s.c
    cc -static -o s s.c 2> /dev/null || skip "no static libc"
    refuses 2 "static program" plfs run -- ./s
    printf '#!%s/s\n' "$PWD" > script
    chmod +x script
    refuses 2 "static program" plfs run -- ./script
    PATH=$PWD:$PATH refuses 2 "plfs import" plfs run -- s
    cc -o d s.c
    plfs run -- ./d
    cc -static-pie -o sp s.c
    refuses 2 "static program" plfs run -- ./sp
    cp d go
    objcopy --add-section .go.buildinfo=s.c go
    refuses 2 "Go program" plfs run -- ./go
}
# Only the first program was refused, and what that started read superblocks, or wrote over them.
t_run_refuses_children_that_cannot_be_served() {
    mkdir m
    cat > s.c << 'EOF'
#include <stdio.h>
int main(int argc, char **argv)
{
	FILE *f = argc > 2 ? fopen(argv[1], argv[2]) : NULL;
	if (!f)
		return 1;
	return argc > 3 ? fputs(argv[3], f) < 0 || fclose(f) : puts("started") < 0;
}
EOF
    cc -static -o s s.c 2> /dev/null || skip "no static libc"
    cc -static-pie -o sp s.c
    cc -o d s.c
    cp d go
    objcopy --add-section .go.buildinfo=s.c go
    printf '#!%s/s\n' "$PWD" > script
    printf '#!/usr/bin/env %s/s\n' "$PWD" > script2
    chmod +x script script2
    plfs run --mount m -- sh -c 'echo kept > m/f; cp s m/s'
    for what in './s m/f a stray' './sp m/f a stray' './go m/f a stray' './script a stray' './script2 a stray' \
        'PATH=.:$PATH s m/f a stray' 'm/s m/f a stray' 'exec ./s m/f a stray' 'xargs ./s m/f a stray < /dev/null' \
        'python3 -c "import os; os.execv(\"s\", [\"s\", \"m/f\", \"a\", \"stray\"])"' \
        'python3 -c "import os; os.execvp(\"./s\", [\"s\", \"m/f\", \"a\", \"stray\"])"' \
        'python3 -c "import os; os.execve(os.open(\"s\", 0), [\"s\", \"m/f\", \"a\", \"stray\"], {})"' \
        'python3 -c "import os; os.posix_spawn(\"s\", [\"s\", \"m/f\", \"a\", \"stray\"], {})"' \
        'python3 -c "import os; os.posix_spawnp(\"./s\", [\"s\", \"m/f\", \"a\", \"stray\"], {})"'; do
        fails plfs run --mount m -- sh -c "$what" > out 2> err
        has '^plfs: run: .* is a .* program.*`plfs mount`.*PLFS_CHILDREN=any' err
        [ "$(plfs cat m/f)" = kept ] || fail "$what wrote"
    done
    # Who says that it does no harm may start it; and what can be served is.
    [ "$(PLFS_CHILDREN=any plfs run --mount m -- sh -c './s m/f r')" = started ]
    plfs run --mount m -- sh -c './d m/f a more; ldconfig -p > /dev/null 2>&1 || [ $? = 127 ]'
    [ "$(plfs cat m/f | xargs)" = "kept more" ]
    # A program with an empty environment gets PLFS's back, unless it has an LD_PRELOAD.
    plfs run --mount m -- sh -c 'env -i "$PWD/d" m/f a 2; env -i sh -c "./d m/f a 3; echo 4 >> m/f"
        python3 -c "import os; os.posix_spawn(\"d\", [\"d\", \"m/f\", \"a\", \"5\"], {}); os.wait()"'
    [ "$(plfs cat m/f | xargs)" = "kept more234 5" ]
    plfs run --mount m -- env -i LD_PRELOAD= cat m/f | head -1 | has PLFS
    plfs run --mount m -- env -u LD_PRELOAD cat m/f | head -1 | has PLFS
    plfs check m > /dev/null
}
t_run_refuses_setuid_programs() {
    [ "$(id -u)" = 0 ] || skip "needs root to make one"
    cp /bin/true su
    chown 1:1 su
    chmod 4755 su
    refuses 2 "set-user-id" plfs run -- ./su
}
# What the launchers of Open MPI start on other nodes has PLFS's variables, each a word for ssh.
t_run_is_carried_to_other_nodes() {
    mkdir m "with space"
    PLFS_STREAMS=3 plfs run --mount m -- env > out
    for daemon in OMPI_MCA_orte_launch_agent=.*orted PRTE_MCA_prte_launch_agent=.*prted; do
        has "^${daemon%%=*}=env LD_PRELOAD=[^ ]*libplfs_preload.so[^ ]* .*PLFS_MOUNTS=$PWD/m .*PLFS_STREAMS=3 .*TSAN_OPTIONS=ignore_noninstrumented_modules=1:die_after_fork=0 .*${daemon##*\*}\$" out
    done
    has '^I_MPI_HYDRA_ENV=all$' out
    # That of a plfs run around this one is replaced, somebody else's is not.
    plfs run --mount m -- plfs run --mount "with space" -- env > out
    agent=$(sed -n 's/^OMPI_MCA_orte_launch_agent=//p' out)
    [ "$(sh -c "${agent/%orted/sh -c \'echo \$PLFS_MOUNTS\'}")" = "$PWD/with space" ]
    OMPI_MCA_orte_launch_agent=other PRTE_MCA_prte_launch_agent="env A=b prted" I_MPI_HYDRA_ENV=none plfs run --mount m -- env > out
    for line in OMPI_MCA_orte_launch_agent=other 'PRTE_MCA_prte_launch_agent=env A=b prted' I_MPI_HYDRA_ENV=none; do has "^$line\$" out; done
}
t_run_bad_variables() {
    PLFS_STREAMS=many refuses 2 PLFS_STREAMS=many plfs run -- true
    PLFS_PRELOAD=/absent/x.so refuses 1 /absent/x.so plfs run -- true
}
t_odd_names() {
    local dir=$'a dir\nwith: \\ odd'
    mkdir "$dir"
    plfs run --mount "$dir" -- bash -c 'cd "$1" && printf "\0\1\2" > "$2"' - "$dir" $'f\n:x'
    plfs cat "$dir"/$'f\n:x' | cmp - <(printf '\0\1\2')
    plfs stat --json "$dir"/$'f\n:x' | json 'assert d["path"].endswith("f\n:x") and d["size"] == 3'
    [ "$(plfs ls "$dir" | wc -l)" = 1 ]
    plfs check "$dir" > /dev/null
    plfs export "$dir"/$'f\n:x' $'out\n'
    [ "$(stat -c %s $'out\n')" = 3 ]
    refuses 1 'absent\nx' plfs stat $'absent\nx'
    # A name that is not UTF-8 read like another one in JSON: both had U+FFFD in them.
    local name=$'not \xfe UTF-8'
    plfs run --mount "$dir" -- bash -c 'echo x > "$1"' - "$dir/$name"
    local is_it='import base64, os; assert os.path.basename(base64.b64decode(path["base64"])) == b"not \xfe UTF-8", path'
    plfs stat --json "$dir/$name" | json "path = d['path']; $is_it"
    plfs ls --json "$dir" | json "path = max((f['path'] for f in d), key=lambda path: type(path) is dict); $is_it"
    plfs check --json "$dir" | json "path = [n for f in d for n in f['names'] if type(n) is dict][0]; $is_it"
}
t_stat_json() {
    mkdir m
    make_file m/f
    plfs stat --json m/f | json '
fields = "path size uuid container stored_bytes log_sets data_logs index_logs index_bytes records index_bytes_per_gib open_marks backends mode uid gid mtime nlink flat flat_index summary streams layout"
assert list(d) == fields.split(), list(d)
assert d["size"] == (1 << 20) + 3 and d["flat"] == "none" and d["summary"] == "valid" and d["nlink"] == 1 and d["open_marks"] == [] and d["index_logs"] == 1'
    plfs stat --json m/f | json 'assert d["flat_index"] is None and d["index_bytes_per_gib"] is None and d["stored_bytes"] < 2**20'
    plfs run --mount m -- python3 -c 'import os; fd = os.open("m/f", os.O_RDWR); [os.pwrite(fd, b"x" * 100000, 2000000 - i * i * 1000) for i in range(30)]'
    plfs stat --json m/f | json 'assert d["index_bytes_per_gib"] == -(-d["index_bytes"] * 2**30 // d["stored_bytes"])'
    plfs stat m/f | has '^ index per GiB  [0-9,]* bytes in index logs'
    plfs flatten m/f > /dev/null
    plfs stat --json m/f > with-flat
    json '
import os
flat = d["flat_index"]
assert not flat["in_superblock"] and flat["bytes"] == os.path.getsize(d["container"] + "/flat") and flat["records"] == d["records"] > flat["entries"] + flat["extents"] > 0, flat
assert flat["bytes_per_gib"] == -(-flat["bytes"] * 2**30 // d["stored_bytes"])' < with-flat
    plfs stat m/f | has '^    flat index  used: .* entries and .* extents kept'
    plfs stat --json m/f m/f | json 'assert [x["flat"] for x in d] == ["used", "used"] and d[0]["summary"] == "valid"'
    plfs stat m/f | has '2,100,000 (2.00 MiB) bytes'
    plfs run --mount m -- dd if=/dev/zero of=m/regular bs=1000 count=10 2> /dev/null
    plfs stat --json m/regular | json 'assert d["flat"] == "used" and d["flat_index"]["in_superblock"] and 128 < d["flat_index"]["bytes"] <= 892'
    plfs stat m/regular | has '^    flat index  used: [0-9]* bytes in the superblock'
    echo x > plain
    refuses 1 "not a PLFS file" plfs stat plain
    fails plfs stat --json plain m/f absent > out 2> /dev/null
    json 'assert "error" in d[0] and d[1]["size"] and "error" in d[2]' < out
}
t_layout() {
    mkdir -p m/a/b m/c other
    plfs layout m/a | has '^       streams  8  (default)'
    [ ! -e m/.plfs ] || fail "showing made a root"
    plfs run --mount m -- bash -c 'echo old > m/a/b/old'
    plfs layout --streams 2 --workload shared m/a | has "^       streams  2  ($PWD/m/a/.plfs-layout)"
    [ "$(cat m/a/.plfs-layout)" = $'plfs-layout 1\nworkload shared\nstreams 2' ]
    [ "$(stat -c %a m/a/.plfs-layout)" = 644 ]
    PLFS_STREAMS=5 plfs run --mount m -- bash -c 'echo x > m/a/b/f; echo x > m/c/f; ls -A m/a; [ "$(ls -A m/a)" = b ]'
    plfs stat --json m/a/b/f | json 'assert d["streams"] == 2 and d["layout"]["streams"]["value"] == "2", d'
    plfs stat --json m/c/f | json 'assert d["streams"] == 5'
    plfs stat m/a/b/old | has '^       streams  8 of each log set'
    plfs stat m/a/b/old | has 'new files: .*streams 2 (.*/m/a/.plfs-layout)'
    plfs stat m/a/b | has "^       streams  2  ($PWD/m/a/.plfs-layout)"
    plfs stat --json m/a/b | json "assert d['layout']['streams'] == {'value': '2', 'from': '$PWD/m/a/.plfs-layout'} and d['layout']['workload']['value'] == 'shared'"
    PLFS_STREAMS=5 plfs stat m/c | has '^       streams  5  (PLFS_STREAMS)'
    # With the directory, wherever it goes; and nothing is left of it.
    mv m/a m/z
    plfs layout --json m/z/b | json "assert d['streams']['from'] == '$PWD/m/z/.plfs-layout'"
    plfs layout --inherit m/z | has '^       streams  8  (default)'
    [ -z "$(find m -name '.plfs-layout*')" ]
    # A second setting keeps the first.
    plfs layout --streams 3 m > /dev/null
    refuses 1 'is its file system mounted' plfs layout --backends other/ m
    mkdir -m 1777 other/.plfs
    plfs layout --backends other/,0000 m | has '^      backends  0001 0000  '
    [ "$(cat m/.plfs-layout)" = $'plfs-layout 1\nstreams 3\nbackends 0001 0000' ]
    plfs layout --backends 0001 m/z | has '^      backends  0001  '
    plfs run --mount m -- dd if=/dev/zero of=m/z/big bs=1M count=2 status=none
    [ -n "$(find other -name '*.data')" ] && [ -z "$(find "$(container m/z/big)" -name '*.data')" ]
    [ "$(plfs cat m/z/big | md5sum)" = "$(head -c 2M /dev/zero | md5sum)" ]
    plfs layout --backends all m/z | has '^      backends  all  '
    plfs run --mount m -- bash -c 'echo x > m/z/all'
    plfs stat --json m/z/all | json 'assert [b["id"] for b in d["backends"]] == ["0000", "0001"]'
    plfs check m > /dev/null
}
# A directory of small files, and its ordinary ones; files go in and out.
# Of two that each set one thing, one was forgotten.
t_layouts_are_set_one_after_the_other() {
    local i
    mkdir m
    for (( i = 1; i <= 40; i++ )); do
        plfs layout --streams $i m > /dev/null &
        plfs layout --workload shared m > /dev/null
        wait $!
        [ "$(cat m/.plfs-layout)" = $'plfs-layout 1\nworkload shared\nstreams '$i ]
        plfs layout --inherit m > /dev/null
    done
    # A program that has locked the directory is waited for.
    flock m sleep 0.5 &
    sleep 0.1
    plfs layout --streams 2 m | has '^       streams  2 '
    wait $!
}
# A path with `..` got the layout of the directories in its text, not of where it leads.
t_layouts_of_paths_with_dots() {
    local here=$PWD
    mkdir m m/auto m/auto/sub m/shared
    plfs run --mount m -- true
    plfs layout --workload auto m/auto > /dev/null
    ln -s auto/sub m/link
    plfs run --mount m -- bash -c "cd m/auto && echo x > ../shared/f && echo x > '$here/m/link/../g'"
    [ "$(stat -c %s m/shared/f m/auto/g | xargs)" = "4093 2" ]
    plfs run --mount m -- rm m/auto/sub/../../shared/f
    [ ! -e m/shared/f ] && [ -z "$(find m/.plfs -name super)" ]
}
t_small() {
    local long odd=$'\xff\n:x'
    long=$(printf 'n%.0s' {1..255})
    mkdir m m/new
    plfs run --mount m -- true
    plfs layout --workload small m/new | has '^      workload  small  '
    printf one > one
    touch -d '2001-02-03 04:05:06.789' one
    chmod 640 one
    plfs import one m/new/a
    plfs cp one "m/new/$long"
    plfs cp m/new/a "m/new/$odd"
    [ "$(find m/new -type f -not -name '.plfs*')" = "" ]
    plfs cat "m/new/$odd" | cmp - one
    [ "$(plfs ls -l m/new | awk '{ print $1, $2 }' | sort -u)" = "packed 0640" ]
    plfs ls --json m/new | json 'assert len(d) == 3 and all(f["packed"] and f["size"] == 3 and "hides" not in f for f in d)'
    plfs stat --json m/new/a | json 'assert not d["plain"] and d["pack"].endswith("/.plfs-pack") and d["size"] == 3'
    plfs stat m/new/a | has '^          pack  '
    plfs export "m/new/$long" out
    cmp out one
    [ "$(stat -c '%a %y' out)" = "$(stat -c '%a %y' one)" ]
    plfs run --mount m -- bash -c 'echo x > m/new/f; cat m/new/a - <<< " x" > m/new/g; rm m/new/f'
    [ ! -e m/new/f ] && [ ! -e m/new/g ]
    [ "$(plfs cat m/new/g)" = "one x" ]
    plfs rm m/new/g
    refuses 1 'exists' plfs cp one m/new/a
    printf two > two
    plfs cp -f two m/new/a
    plfs cat m/new/a | cmp - two
    plfs rm m/new/a "m/new/$odd"
    refuses 1 'No such file' plfs rm m/new/a
    [ "$(plfs ls m/new | wc -l)" = 1 ]
    # Somebody who does not know of packs.
    printf other > "m/new/$long"
    plfs ls -l m/new 2> err > /dev/null
    has 'ordinary file has the same name' err
    plfs rm "m/new/$long"
    [ ! -e "m/new/$long" ] && [ "$(plfs ls m/new | wc -l)" = 0 ]
    plfs import one m/new/a
    plfs compact --force --json m/new | json 'assert d[0]["compacted"] and d[0]["freed_bytes"] > 0 and d[0]["live_bytes"] == 3'
    plfs cat m/new/a | cmp - one
    plfs rm -r m/new
    [ ! -e m/new ] && [ "$(find m/.plfs -name super)" = "" ]

    mkdir m/old m/old/sub
    for n in {1..300}; do printf "%$((n * 7))s" "$n" > "m/old/f$n"; done
    printf odd > "m/old/$odd"
    printf long > "m/old/$long"
    head -c 2000000 /dev/urandom > m/old/large
    ln m/old/f1 m/old/second
    (cd m/old && find . -maxdepth 1 -type f -printf '%f %m %s %T@\0' | sort -z; find . -maxdepth 1 -type f -print0 | sort -z | xargs -0 md5sum) > before
    exec 3< m/old/f2
    # It was lost.
    python3 -c 'import os; os.setxattr("m/old/f3", "user.tag", b"x")'
    fails plfs pack m/old > out 2> err
    exec 3<&-
    has 'packed 299 files' out
    has 'm/old/large stays: it is larger than 1 MiB' err
    has 'm/old/second stays: it has several names' err
    has 'm/old/f2 stays: it is open' err
    has 'm/old/f3 stays: it has an access list or extended attributes' err
    fails plfs pack --progress --json m/old > out 2> /dev/null
    json 'assert d[0]["files"] == 1 and len(d[0]["stay"]) == 4' < out
    [ "$(find m/old -type f -not -name '.plfs*' | wc -l)" = 4 ]
    plfs cat m/old/f300 | cmp - <(printf '%2100s' 300)
    plfs check m > out
    plfs unpack m/old | has 'unpacked 300 files'
    (cd m/old && find . -maxdepth 1 -type f -not -name '.plfs*' -printf '%f %m %s %T@\0' | sort -z; find . -maxdepth 1 -type f -not -name '.plfs*' -print0 | sort -z | xargs -0 md5sum) > after
    same before after
    [ "$(find m/old -name '.plfs-pack*')" = "" ]
    plfs layout m/old | has '^      workload  auto  '
}
# plfs pack and unpack are killed at any moment.
t_small_is_killed() {
    mkdir m m/d
    for n in {1..200}; do head -c $((n * 20)) /dev/urandom > "m/d/f$n"; done
    (cd m/d && md5sum f*) > sums
    local killed=0 turn status what=pack
    # Both wait 2.2 s before they move the first file.
    for turn in {1..16}; do
        status=0
        timeout --foreground -s KILL "$((turn % 4 ? 2 : 20)).$((RANDOM % 9))" plfs $what m/d > out 2>&1 || status=$?
        # 124: it ended by itself when it was to be killed.
        [ $status = 0 ] || [ $status = 124 ] || [ $status = 137 ] || fail "$what: exit $status: $(cat out)"
        [ $status = 0 ] || killed=$((killed + 1))
        if [ $((turn % 4)) = 3 ]; then
            while read -r sum name; do
                [ "$(plfs cat "m/d/$name" | md5sum)" = "$sum  -" ] || fail "$name after $what, $killed killed"
            done < <(shuf -n 10 sums)
        fi
        [ $status != 0 ] || case $what in pack) what=unpack ;; *) what=pack ;; esac
    done
    [ $killed -gt 5 ]
    plfs unpack m/d > out || fail "$(cat out)"
    (cd m/d && md5sum -c --quiet) < sums
    [ "$(find m/d -name '.plfs-pack*')" = "" ]
}
t_layout_is_refused() {
    mkdir m
    refuses 1 "m would have all its names on one backend" plfs layout --workload flat m
    refuses 2 "no such workload" plfs layout --workload n-1 m
    fails plfs layout --streams 0 m 2> /dev/null
    fails plfs layout --streams 257 m 2> /dev/null
    refuses 2 "none of: all" plfs layout --backends 1 m
    refuses 1 "backend 0007" plfs layout --backends 0007 m
    refuses 1 "cannot use the backend ./absent" plfs layout --backends ./absent m
    refuses 1 "cannot use absent" plfs layout absent
    touch file
    refuses 2 "not a directory" plfs layout file
    [ ! -e m/.plfs-layout ]
    printf 'plfs-layout 1\nstreams four\n' > m/.plfs-layout
    fails plfs run --mount m -- bash -c 'echo x > m/f' 2> /dev/null
    [ ! -e m/f ]
    refuses 1 "$PWD/m/.plfs-layout is damaged: at byte 14: a value is none that its key can have" plfs stat m
    refuses 1 "damaged" plfs layout --streams 2 m
    printf 'plfs-layout 2\n' > m/.plfs-layout
    refuses 1 "needs a newer PLFS" plfs layout m
    plfs layout --inherit m > /dev/null
    plfs run --mount m -- bash -c 'echo x > m/f'
}
# A root m with the backends one and two, and the flat directory m/d with the files f0 to f29.
make_flat() {
    mkdir -p m/d m/.plfs one two
    for backend in one two; do plfs backend add m $backend > /dev/null; done
    plfs layout --workload flat m/d > /dev/null
    for i in {0..29}; do echo "$i" > in; plfs cp in "m/d/f$i"; done
}
# The place of a name, and all shadows and slots.
place() { find m/.plfs/spread one/.plfs/spread two/.plfs/spread -name "$1"; }
spread() { find m/.plfs/spread one/.plfs/spread two/.plfs/spread -mindepth 1 -maxdepth 1; }
t_flat_directory() {
    mkdir -p m/.plfs m/full m/d one two
    plfs backend add m one > /dev/null
    touch m/full/f
    refuses 1 "it has files, which would not be found any more" plfs layout --workload flat m/full
    refuses 1 "m/d would have all its names on one backend" plfs layout --workload flat --backends 0001 m/d
    [ ! -e m/d/.plfs-layout ]
    mv one away
    refuses 1 "backend 0001 is not at $PWD/one" plfs layout --workload flat m/d
    mv away one
    make_flat
    [ "$(ls m/d)" = "" ] && [ "$(spread | wc -l)" = 3 ]
    for dir in m one two; do [ "$(find $dir/.plfs/spread -type f | wc -l)" -gt 2 ]; done
    plfs layout m/d | has "workload  flat  ($PWD/m/d/.plfs-layout)"
    plfs stat m/d | has "names  0002  $PWD/two"
    plfs stat --json m/d | json 'assert [n["id"] for n in d["layout"]["names"]] == ["0000", "0001", "0002"]'
    plfs ls m/d > out
    [ "$(wc -l < out)" = 30 ]
    plfs ls -l m/d/f7 | has "^plain  *0644  *1 .*m/d/f7"
    [ "$(plfs cat m/d/f29)" = 29 ]
    plfs stat m/d/f3 | has "plain  until several processes write it"
    echo new > in
    refuses 1 "m/d/f3 exists" plfs cp in m/d/f3
    plfs cp -f in m/d/f3
    plfs import in m/d/f30
    plfs cp m/d/f3 m/copy
    plfs cp in m/d
    [ "$(plfs cat m/d/f3 m/d/f30 m/copy m/d/in)" = "$(printf 'new\nnew\nnew\nnew')" ]
    [ "$(plfs ls m/d | wc -l)" = 32 ] && [ "$(find m/d -mindepth 1 -not -name '.plfs-*')" = "" ]
    [ "$(find m one two -name e)" = "" ] || fail "a copy lies in a slot"
    refuses 1 "it is flat and has files" plfs layout --workload auto m/d
    refuses 1 "absent" plfs cat m/d/absent
    refuses 1 "absent" plfs rm m/d/absent
    plfs rm -f m/d/absent
    plfs rm m/d/f30 m/d/in
    fails plfs cat m/d/f30 2> /dev/null
    [ "$(plfs check m | tail -1)" = "1 healthy" ]
    plfs check m/d m/d/f3 > /dev/null
    refuses 1 "m/d is a directory" plfs rm m/d
    plfs rm -r m/d
    [ ! -e m/d ] && [ "$(spread)" = "" ]
    plfs check m one two > /dev/null
}
# A path says nothing of who has it: what a killed job had left was thrown away as soon as another
# root was where its directory had been, and a pack's was written into a copy of it.
t_killed_job_whose_directory_was_renamed_loses_nothing() {
    for workload in shared small; do
        for next in "mkdir out" "cp -a run1 out"; do
            rm -rf out run1
            mkdir out
            plfs layout --workload $workload out > /dev/null
            plfs run --mount out -- sh -c 'for i in 1 2 3; do echo $i > out/f$i; done; exec 3> out/g; echo g >&3; kill -9 $$' 2> /dev/null || true
            mv out run1
            $next
            plfs run --mount out -- sh -c 'echo hi > out/new'
            # A pack's file is kept from its close on.
            local has want="1 2 3 "
            [ $workload = small ] || want="1 2 3 g "
            has=$(plfs run --mount run1 -- sh -c 'cat run1/*' | tr '\n' ' ')
            [ "$has" = "$want" ] || fail "$workload, $next: has $has"
        done
    done
}
# A process began at another time for who is outside its time namespace: so its mark was that of a
# dead one, and a compaction took what it had written.
t_writer_in_a_time_namespace_is_alive() {
    mkdir m
    PLFS_SHARED_MEMORY='' PLFS_WORKLOAD=shared unshare -T --boottime 100000 "$(command -v plfs)" run --mount m -- \
        sh -c 'exec 3> m/f; echo a >&3; sync m/f; echo b >&3; touch begun; while [ ! -e go ]; do sleep 0.1; done; echo c >&3; sync m/f' &
    while [ ! -e begun ]; do sleep 0.1; done
    fails env PLFS_SHARED_MEMORY='' plfs compact --force m/f 2> err
    plfs check --repair m > out 2>&1 || true
    touch go
    wait $!
    [ "$(plfs cat m/f | tr '\n' ' ')" = "a b c " ]
    plfs check m > /dev/null
}
# The table of backends stayed, and so did the root: "Directory not empty".
t_root_with_backends_is_removed() {
    mkdir m one
    local in_m=(env PLFS_WORKLOAD=shared plfs run --mount m --backend "$PWD/one" --)
    "${in_m[@]}" sh -c 'echo a > m/f; echo b > m/g; kill -9 $$' 2> /dev/null || true
    [ -e m/.plfs/backends/0001 ]
    "${in_m[@]}" sh -c 'exec 3> m/open; echo a >&3; while [ ! -e go ]; do sleep 0.1; done; echo b >&3' &
    while [ ! -e m/open ]; do sleep 0.1; done
    fails plfs rm -r m 2> err
    grep -q "data of files that are open" err && grep -qx "state active" m/.plfs/backends/0001
    touch go
    wait $!
    plfs rm -r m
    [ ! -e m ] && [ "$(cd one && find . | sort | tr '\n' ' ')" = ". ./.plfs ./.plfs/identity " ]
    # And it is a backend again for whoever says so.
    mkdir m
    "${in_m[@]}" sh -c 'echo c > m/f'
    [ "$(plfs cat m/f)" = c ]
}
t_flat_directory_is_checked() {
    make_flat
    hex() { printf "$1%.0s" {1..32}; }
    [ "$(plfs check m)" = "there are no PLFS files" ]
    # What deaths leave: an empty slot, one with a file that was replaced, a link in hand.
    mkdir "one/.plfs/spread/$(hex a)" "two/.plfs/spread/$(hex b)"
    echo replaced > "two/.plfs/spread/$(hex b)/e"
    ln -s "/.plfs-spread/moved/0001.$(hex c).$(hex d)" "m/.plfs/spread/$(hex 9)"
    # A rename that has died before the name was changed, and one after.
    mkdir "one/.plfs/spread/$(hex 1)" "one/.plfs/spread/$(hex 2)" "one/.plfs/spread/$(hex 3)" "one/.plfs/spread/$(hex 4)"
    local before after names
    mapfile -t names < <(find one/.plfs/spread -type f -name 'f*')
    before=${names[0]} after=${names[1]}
    mv "$before" "one/.plfs/spread/$(hex 2)/e"
    ln -s "/.plfs-spread/moved/0001.$(hex 1).$(hex 2)" "$before"
    echo old > "one/.plfs/spread/$(hex 4)/e"
    mv "$after" "one/.plfs/spread/$(hex 3)/e"
    ln -s "/.plfs-spread/moved/0001.$(hex 3).$(hex 4)" "$after"
    plfs check m > out
    has "one/.plfs/spread/$(hex a): it is empty" < out
    has "two/.plfs/spread/$(hex b): .*it has a file, e" < out
    has "$(hex 9): a rename that has died left it" < out
    has "${before##*/}: a rename to this name has died; it is what it was" < out
    has "${after##*/}: a rename has died before it removed" < out
    ! grep -q "$(hex 1)\|$(hex 4)" out || fail "$(cat out)"
    plfs check --repair --min-age 60 m > out
    [ -d "one/.plfs/spread/$(hex a)" ]
    plfs check --repair --min-age 0 m > out
    has "removed .*/$(hex a), to which nothing led" < out
    plfs check m > out
    [ "$(grep -c garbage out)" = 1 ] && has "$(hex b): .*it has a file" < out
    for i in {0..29}; do [ "$(plfs cat "m/d/f$i")" = "$i" ] || fail "f$i"; done
    [ "$(cat "two/.plfs/spread/$(hex b)/e")" = replaced ]
    rm -r "two/.plfs/spread/$(hex b)"
    # A name where nobody looks.
    echo x > "$(spread | head -1)/strange"
    plfs check m > out || true
    rm -f "$(place strange)"
    mv one away
    fails plfs check m > out
    has "backend 0001 is not at $PWD/one" < out
    mv away one
    for i in {0..29}; do plfs rm "m/d/f$i"; done
    [ "$(spread | wc -l)" = 3 ] && [ "$(plfs check m)" = "there are no PLFS files" ]
}
t_flat_directory_and_backends() {
    make_flat
    local i
    plfs backend status m | has "names of flat directories are there, or may be (1 place)"
    refuses 1 "it takes new data: run" plfs backend rm m 0001
    # A file that is open is named and stays.
    local there
    there=$(find one -type f -path '*spread*' | head -1)
    exec 5< "$there"
    fails plfs backend drain m 0001 > out 2> err
    has "m/d/${there##*/}: .* bytes stay: .*it is open" < err
    refuses 1 "flat directories" plfs backend rm m 0001
    exec 5<&-
    plfs backend drain m 0001 | has "backend 0001 is empty"
    [ -z "$(ls one/.plfs/spread)" ]
    plfs backend rm m 0001 > /dev/null
    rm -r one
    for i in {0..29}; do [ "$(plfs cat "m/d/f$i")" = "$i" ] || fail "f$i"; done
    plfs check m > /dev/null
    # New directories have none there.
    mkdir m/e
    plfs layout --workload flat m/e > /dev/null
    for i in {0..9}; do plfs cp in "m/e/g$i"; done
    for i in {0..9}; do plfs cat "m/e/g$i" > /dev/null; done
}
# Programs make, read, rename and remove files there all the time.
t_flat_directory_is_drained_under_writers() {
    make_flat
    local w i
    for w in 1 2; do
        plfs run --mount m -- bash -c '
            i=0
            while [ ! -e stop ]; do
                echo "$1.$i" > "m/d/tmp$1" && mv "m/d/tmp$1" "m/d/w$1.$i" || exit 1
                [ "$(< "m/d/w$1.$i")" = "$1.$i" ] || exit 1
                [ $((i % 3)) != 0 ] || rm "m/d/w$1.$i" || exit 1
                [ "$(< "m/d/f$((i % 30))")" = $((i % 30)) ] || exit 1
                i=$((i + 1))
            done
            echo $i > "made$1"' x $w 2> "err$w" &
    done
    for i in {1..20}; do
        ! plfs backend drain m 0001 > out 2>&1 || ! plfs backend rm m 0001 > out 2>&1 || break
    done
    [ "$(of_backend 0001 state)" = gone ] || fail "$(cat out)"
    touch stop
    wait
    for w in 1 2; do
        [ -e "made$w" ] || fail "$(cat "err$w")"
        [ "$(cat "made$w")" -gt 10 ]
        plfs run --mount m -- bash -c '
            for ((i = 0; i < $(< "made$1"); i++)); do
                if [ $((i % 3)) = 0 ]; then [ ! -e "m/d/w$1.$i" ]
                else [ "$(< "m/d/w$1.$i")" = "$1.$i" ]; fi || { echo "w$1.$i" >&2; exit 1; }
            done' x $w
    done
    for i in {0..29}; do [ "$(plfs cat "m/d/f$i")" = "$i" ] || fail "f$i"; done
    [ -z "$(ls one/.plfs/spread)" ]
}
t_directories_with_a_layout_are_removed() {
    mkdir -p m/a m/b/c m/d
    for dir in m/a m/b m/b/c m/d; do plfs layout --streams 2 $dir > /dev/null; done
    refuses 1 "--inherit" plfs rm m/a/.plfs-layout
    plfs run --mount m -- bash -c 'echo x > m/d/f; rmdir m/a; fails() { ! "$@"; }; fails rmdir m/d 2> err; rm -r m/b'
    [ ! -e m/a ] && [ ! -e m/b ] && [ -e m/d/.plfs-layout ]
    plfs rm -r m/d
    [ ! -e m/d ]
}
# A plfsrc of this test.
plfsrc() { cat > rc; export PLFSRC=$PWD/rc; }
t_config_run_and_show() {
    mkdir -p out other/.plfs sub
    chmod 1777 other/.plfs
    ln -s out link
    plfsrc << END
settings:
  streams: 4
  buffer_bytes: 1M
  compact_bytes: 0
managed:
  - directory: $PWD/link
    workload: shared
    streams: 2
    backends: [$PWD/other]
  - directory: $PWD/sub
END
    plfs config check | has 'rc: 3 settings, 2 managed directories'
    plfs run -- bash -c 'for i in {1..8}; do head -c 100000 /dev/zero > out/$i; done; echo x > link/l; echo x > sub/f; echo x > plain'
    [ ! -e plfs.d ] && [ "$(cat plain)" = x ]
    plfs stat --json out/1 | json 'assert d["streams"] == 2 and [b["id"] for b in d["backends"]] == ["0000", "0001"]'
    plfs stat --json link/l | json 'assert d["streams"] == 2'
    plfs stat --json sub/f | json 'assert d["streams"] == 4 and len(d["backends"]) == 1'
    [ -n "$(find other -name '*.data')" ]
    [ "$(plfs cat out/8 | wc -c)" = 100000 ]
    plfs config show | has "^       streams  4  ($PWD/rc:2:12)"
    PLFS_STREAMS=5 plfs config show | has '^       streams  5  (PLFS_STREAMS)'
    plfs config show --json | json "
assert d['plfsrc'] == '$PWD/rc' and d['settings']['buffer_bytes'] == {'value': '1048576', 'from': '$PWD/rc:3:17'}, d
assert d['settings']['index_bytes']['from'] == 'default'
assert d['managed'][0]['from'] == '$PWD/rc:6:16' and d['managed'][0]['layout']['streams'] == {'value': '2', 'from': '$PWD/rc:8:14'}, d['managed']"
    # Variables go before it, and what a directory says before both.
    PLFS_STREAMS=5 PLFS_BACKENDS='' plfs run -- bash -c 'echo x > out/v'
    plfs stat --json out/v | json 'assert d["streams"] == 5 and len(d["backends"]) == 1'
    plfs layout --streams 7 out > /dev/null
    PLFS_STREAMS=5 plfs run -- bash -c 'echo x > out/w' 2> err
    plfs stat --json out/w | json 'assert d["streams"] == 7'
    plfs run -- true 2> err
    has "^plfs: warning: $PWD/rc:8:14: streams 2, but $PWD/.*/.plfs-layout says streams 7, which counts" < err
    plfs config check | has '^warning: .*streams 2, but '
    # Named directories instead, and none at all.
    PLFSRC='' plfs run -- bash -c 'echo x > plfs.d/f'
    plfs stat plfs.d/f > /dev/null
    rm -r sub
    refuses 2 "$PWD/rc:10:16 $PWD/sub: there is no such directory" plfs run -- true
    plfs config check | has "^warning: $PWD/rc:10:16: there is no directory $PWD/sub"
}
t_config_is_searched() {
    mkdir home m
    unset PLFSRC
    echo 'settings: {streams: 3}' > home/.plfsrc
    HOME=$PWD/home plfs config show | has "^        plfsrc  $PWD/home/.plfsrc"
    HOME=$PWD/home plfs run --mount m -- bash -c 'echo x > m/f'
    plfs stat --json m/f | json 'assert d["streams"] == 3'
    HOME=$PWD/home PLFSRC='' plfs config show | has '^        plfsrc  none'
    PLFSRC='' plfs config check | has 'none is needed'
    refuses 1 "there is no such file" env PLFSRC="$PWD/absent" plfs config show
    refuses 1 "not an absolute path" env PLFSRC=rc plfs config show
    mkfifo pipe
    refuses 1 "not a regular file" plfs config check pipe
    head -c 70000 /dev/zero > long
    refuses 1 "longer than 64 KiB" plfs config check long
}
# su, a daemon: HOME can still be that of the user before. All opens under plfs run failed then.
t_config_of_a_home_that_is_closed() {
    [ "$(id -u)" = 0 ] || { echo "needs root" > "$work/skip"; exit 77; }
    mkdir -m 700 home
    mkdir -m 1777 m
    echo 'settings: {streams: 3}' > home/.plfsrc
    unset PLFSRC
    export HOME=$PWD/home
    chmod 755 "$work" .
    plfs run --mount m -- setpriv --reuid 65534 --regid 65534 --clear-groups bash -c 'echo x > m/f && cat m/f' | has '^x$'
    chmod 755 home
    chmod 600 home/.plfsrc
    fails plfs run --mount m -- setpriv --reuid 65534 --regid 65534 --clear-groups cat m/f
}
t_config_errors_have_their_place() {
    mkdir m
    printf 'settings:\n  streams: 257\n' > a
    refuses 1 "$PWD/a:2:12: streams: 257 is not a number from 1 to 256" plfs config check a
    printf 'settings:\n  stream: 2\n' > b
    refuses 1 "$PWD/b:2:3: there is no key stream here; the keys are streams" plfs config check b
    printf 'managed:\n  - directory: /x\n    workload: small\n' > c
    refuses 1 "$PWD/c:3:15: the workload small cannot be set here" plfs config check c
    printf 'settings: [\n' > d
    refuses 1 "$PWD/d:" plfs config check d
    refuses 1 "there is no such file" plfs config check absent
    # No part of it is used.
    refuses 2 "$PWD/a:2:12: streams" env PLFSRC="$PWD/a" plfs run --mount m -- true
    PLFSRC=$PWD/a fails plfs ls m 2> /dev/null
    PLFSRC='' plfs run --mount m -- bash -c 'PLFSRC=$PWD/a; export PLFSRC; exec bash -c "echo x > m/f"' 2> /dev/null && fail "a program wrote with a wrong plfsrc"
    [ ! -e m/f ]
}
t_config_of_the_original() {
    mkdir ckpt store
    cat > old << END
- global_params:
    threadpool_size: 64
    num_hostdirs: 32
    nonsense: 1
- mount_point: $PWD/ckpt
  workload: n-1
  backends:
    - location: posix://$PWD/store
      type: canonical
END
    plfs config check old > out
    has "^warning: $PWD/old:3:5: num_hostdirs means nothing here: .*settings: streams" < out
    has "^warning: $PWD/old:4:5: nonsense is no key" < out
    has 'plfs config migrate' < out
    PLFSRC=$PWD/old plfs run -- bash -c 'for i in {1..24}; do head -c 100000 /dev/zero > ckpt/$i; done' 2> err
    has 'old: 4 lines have no effect' < err
    [ -n "$(find store -name '*.data')" ]
    plfs config migrate old > new
    has '^# line 3: num_hostdirs' < new
    plfs config check new > out
    fails grep -q warning out
    has 'new: 0 settings, 1 managed directories' < out
    printf -- '- mount_point: /m\n  workload: 1-n\n' > small
    refuses 1 "$PWD/small:2:13: the workload small cannot be set here" plfs config check small
    plfs config migrate small | has '# workload: small cannot be set here'
}
t_stat_open_file() {
    plfs run -- python3 -c '
import os, subprocess, json
f = open("plfs.d/f", "wb"); f.write(b"x" * 100); f.flush(); os.fsync(f.fileno())
s = json.loads(subprocess.run(["plfs", "stat", "--json", "plfs.d/f"], capture_output=True, check=True).stdout)
assert s["size"] == 100 and len(s["open_marks"]) == 1 and s["open_marks"][0]["pid"] == os.getpid(), s
assert subprocess.run(["plfs", "check", "plfs.d/f"], capture_output=True, check=True, text=True).stdout.splitlines()[0].endswith("plfs.d/f: busy")
'
}
t_ls() {
    mkdir m
    make_file m/f
    mkdir m/sub
    echo x > m/plain
    ln -s f m/link
    [ "$(plfs ls m | awk '{ print $2 }' | xargs)" = "m/f m/link m/plain m/sub/" ]
    plfs ls -l m | has '^plfs  *0[0-7]*  *1 .* 1048579 .*m/f$'
    plfs ls --json m | json 'assert [x["plfs"] for x in d] == [True, False, False, False] and d[0]["size"] == 1048579 and d[3]["type"] == "directory"'
    refuses 1 "absent" plfs ls absent
    (cd m && plfs ls) | has ' f$'
}
t_map() {
    plfs run -- python3 -c '
import os
fd = os.open("plfs.d/f", os.O_RDWR | os.O_CREAT)
for i in range(1000): os.pwrite(fd, bytes([i % 251]) * 10, i * 30)
os.close(fd)'
    plfs map --records plfs.d/f | has '1000 x 10 bytes at 0 + i\*30 '
    plfs map --json plfs.d/f | json '
import os
host = os.uname().nodename
assert d["size"] == 999 * 30 + 10 and len(d["extents"]) == 1000
for i, x in enumerate(d["extents"]):
    assert (x["logical"], x["length"], x["host"]) == (i * 30, 10, host), x
    with open(x["data_log"], "rb") as f:
        f.seek(x["physical"]); assert f.read(10) == bytes([i % 251]) * 10'
    plfs map --json --from 35 --to 70 plfs.d/f | json 'assert [(x["logical"], x["length"]) for x in d["extents"]] == [(35, 5), (60, 10)]'
    plfs map --json --records plfs.d/f | json 'assert [(x["kind"], x["count"]) for x in d["records"]] == [("run", 1000)]'
    [ "$(plfs map plfs.d/f | tail -1)" = "1,000 pieces" ]
    # The patterns come first.
    plfs map plfs.d/f | sed -n 2,3p | has ' 1,000 pieces of 10 B, every 30 B, from 0$'
    # Far holes cost nothing.
    plfs run -- truncate -s 4E plfs.d/f
    [ "$(timeout 10 plfs map plfs.d/f | tail -1)" = "1,000 pieces" ]
}
# Processes that take turns, each with rows of an array.
make_rows() { # FILE WRITERS
    plfs run --mount "$(dirname "$1")" -- python3 -c '
import os, sys
n = int(sys.argv[2])
for writer in range(n):
    if os.fork() == 0:
        fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
        for row in range(4):
            for i in range(10): os.pwrite(fd, b"x" * 100, row * 1000000 + i * 100 * n + writer * 100)
        os.close(fd)
        os._exit(0)
    os.wait()' "$1" "$2"
}
t_map_patterns() {
    mkdir m
    make_rows m/f 30
    plfs map --patterns m/f > out
    [ "$(wc -l < out)" = 27 ]
    sed -n 2p out | has '^30 writers wrote 1,200 pieces, 120,000 (117.19 KiB) bytes:$'
    sed -n 4p out | has '^  [^ ]*:[0-9]*  *10 pieces of 100 B, every 3,000 B, from 100; 4 such rows, every 1,000,000 B$'
    tail -1 out | has '^  \.\.\. 6 more writers, each like the last one, elsewhere$'
    [ "$(plfs map --patterns --limit 100 m/f | wc -l)" = 32 ]
    plfs map --patterns --json --limit 3 m/f | json '
import os
host = os.uname().nodename
assert "extents" not in d and "records" not in d and (len(d["writers"]), d["more_writers"]) == (3, 27)
for i, writer in enumerate(d["writers"]):
    assert (writer["host"], writer["pieces"], writer["bytes"], writer["more_patterns"]) == (host, 40, 4000, 0), writer
    assert writer["first_stamp"] <= writer["last_stamp"]
    (pattern,) = writer["patterns"]
    levels = [(level["count"], level["stride"]) for level in pattern["levels"]]
    assert (pattern["kind"], pattern["logical"], pattern["length"], levels) == ("regular", i * 100, 100, [(10, 3000), (4, 1000000)]), pattern
    assert pattern["text"].startswith("10 pieces of 100 B")'
    plfs map --json --to 100 m/f | json 'assert len(d["extents"]) == len(d["writers"]) == 1'
    make_file m/random
    plfs map --patterns m/random | has ' pieces of [0-9]* to 4,... B, at irregular offsets between [0-9,]* and 1,048,579$'
    plfs run --mount m -- sh -c ': > m/empty'
    plfs map --patterns m/empty | tail -1 | has '^0 writers wrote 0 pieces, 0 bytes:$'
    fails plfs map --patterns --records m/f 2> /dev/null
}
# What a command takes, MiB, that ends well.
peak() { # COMMAND...
    python3 -c '
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)' "$@"
}
# Each took some 250 bytes for each piece.
t_a_file_of_many_pieces_takes_little_memory() {
    mkdir m
    plfs run --mount m -- python3 -c '
import os
fd = os.open("m/f", os.O_RDWR | os.O_CREAT)
for i in range(250000): os.pwrite(fd, b"x", 2 * i)'
    [ "$(plfs map m/f | tail -1)" = "250,000 pieces" ]
    plfs map --json m/f | json '
assert [(x["logical"], x["length"], x["physical"]) for x in d["extents"]] == [(2 * i, 1, i) for i in range(250000)]'
    for command in "map m/f" "map --json m/f" "cp m/f copy" "cp m/f m/copy"; do
        # shellcheck disable=SC2086
        [ "$(peak plfs $command)" -lt 50 ] || fail "$command: $(peak plfs $command) MiB"
    done
    plfs cat m/f | cmp - copy
    plfs cat m/copy | cmp - copy
}
t_map_plot() {
    local name=$'odd & <b>"\'\n'
    mkdir m
    make_rows "m/$name" 30
    make_file m/random
    plfs run --mount m -- sh -c ': > m/empty; truncate -s 5000 m/random'
    plfs map --plot odd.svg "m/$name" | has '^odd.svg: 1,200 pieces of 30 writers; drawn: each piece$'
    plfs map --plot part.svg --from 100 --to 1K "m/$name" > out
    plfs map --plot random.svg m/random > out
    plfs map --plot empty.svg m/empty > out
    python3 - <<'END'
import xml.etree.ElementTree as tree
svg = "{http://www.w3.org/2000/svg}"
for name, pieces in (("odd", 120), ("part", 4), ("random", 100), ("empty", 0)):
    root = tree.parse(name + ".svg").getroot()
    assert root.tag == svg + "svg"
    elements = list(root.iter())
    assert len(elements) < 4500 and not {e.tag for e in elements} - {svg + tag for tag in ("svg", "title", "rect", "text", "path")}
    text = "\n".join(e.text or "" for e in elements)
    assert "time since the first write" in text and "offset in the file" in text
    assert sum(e.tag == svg + "path" and len(e) for e in elements) >= pieces, name
    if name == "odd": assert 'odd & <b>"' in text and "30 writers" in text and "12 of 30" in text
    if name == "random": assert "truncate to 5,000 bytes" in text
END
    # The picture was written over the superblock: the file was lost.
    plfs run --mount m -- sh -c 'echo kept > m/kept'
    ln -s kept m/link
    for file in m/kept m/link; do
        refuses 1 "cannot write $file: it is a PLFS file" plfs map --plot $file m/random
    done
    [ "$(plfs cat m/kept)" = kept ]
    refuses 1 "cannot write absent/x.svg" plfs map --plot absent/x.svg m/random
    fails plfs map --plot x.svg --json m/random 2> /dev/null
}
t_cat() {
    head -c 3000000 /dev/urandom > plain
    plfs run -- cp plain plfs.d/f
    plfs cat plfs.d/f | cmp - plain
    plfs cat plain plfs.d/f | cmp - <(cat plain plain)
    plfs cat --from 1000 --length 70001 plfs.d/f | cmp - <(tail -c +1001 plain | head -c 70001)
    [ "$(plfs cat --from 1G plfs.d/f | wc -c)" = 0 ]
    refuses 1 "absent" plfs cat absent
    plfs cat --from x plfs.d/f 2> err && fail "took x" || [ $? = 2 ]
}
t_broken_pipe() {
    plfs run -- dd if=/dev/zero of=plfs.d/f bs=1M count=8 status=none
    set +o pipefail
    plfs cat plfs.d/f 2> err | head -c 1 > /dev/null
    plfs help 2>> err | head -1 > /dev/null
    plfs completions bash 2>> err | head -1 > /dev/null
    plfs map --json plfs.d/f 2>> err | true
    plfs explain-calls --json plfs 2>> err | true
    [ ! -s err ] || fail "$(cat err)"
}
# The copy had zeros for what another program cut meanwhile, and there was no error.
t_a_source_that_is_cut_is_told() {
    head -c 200M /dev/urandom > plain
    cp plain whole
    mkdir m
    plfs layout --workload shared m > /dev/null
    plfs import plain m/f
    begun() { [ -n "$(find . m -maxdepth 1 -name '.plfs-copy*')" ]; }
    local number=0
    for work in "cp plain m/copy" "cp m/f copy" "cp m/f m/copy"; do
        is_in_turn $((number++)) 3 || continue
        for (( tries = 0; ; tries++ )); do
            # shellcheck disable=SC2086
            plfs $work 2> err &
            until begun || ! kill -0 $! 2> /dev/null; do :; done
            kill -STOP $! 2> /dev/null || true
            if begun; then break; fi
            kill -CONT $! 2> /dev/null || true
            wait $! || fail "$(cat err)"
            [ $tries -lt 20 ] || skip "copies end before they can be stopped"
            plfs rm -f copy m/copy 2> /dev/null || true
        done
        truncate -s 100 plain
        plfs run -- truncate -s 100 m/f
        kill -CONT $!
        fails wait $!
        has 'was cut while it was copied; nothing was copied' err
        [ ! -e copy ] && [ ! -e m/copy ]
        fails begun
        cp whole plain
        plfs import -f plain m/f
    done
}
t_export_gives_the_plain_file_back() {
    mkdir m
    make_file m/f
    plfs cat m/f > want
    chmod 640 m/f
    touch -d '2001-02-03 04:05:06.789' m/f
    plfs export m/f out
    same out want
    [ "$(stat -c '%a %y' out)" = "640 2001-02-03 04:05:06.789000000 +0000" ]
    [ "$(stat -c %b out)" -lt $((1 << 10)) ] || fail "holes were filled: $(stat -c %b out) blocks"
    refuses 1 "exists; replace it with -f" plfs export m/f out
    same out want
    echo old > out
    plfs export -f m/f out
    same out want
    mkdir dir
    plfs export m/f dir
    same dir/f want
    refuses 1 "cannot create" plfs export m/f absent/dir/f
    refuses 1 "is not a PLFS file" plfs export want out2
    [ -z "$(find . -name '.plfs-copy*')" ] || fail "left a temporary file"
}
t_export_large_pieces() {
    head -c 20000003 /dev/urandom > plain
    plfs import plain m
    plfs export m out
    same plain out
    mkdir d
    plfs run --mount d -- bash -c 'for i in 0 1 2 3; do dd if=plain of=d/f bs=1000003 skip=$((i * 5)) seek=$((i * 5)) count=5 conv=notrunc status=none & done; wait'
    plfs export d/f out2
    same plain out2
}
t_export_to_a_full_device_leaves_nothing() {
    mkdir small
    mount -t tmpfs -o size=1m none small 2> /dev/null || skip "needs the right to mount"
    trap 'umount -l small' EXIT
    head -c 3000000 /dev/urandom > plain
    plfs import plain m
    refuses 1 "No space left" plfs export m small/f
    [ -z "$(ls -A small)" ] || fail "left $(ls -A small)"
}
# A page without memory would be SIGBUS at its first use, in the middle of a program.
t_writers_with_full_shared_memory() {
    cat > writer.py <<'PY'
import os, sys
# Piece i of each writer, in turn; on a line of input the next one.
me, fd, i = int(sys.argv[2]), os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), 0
for line in sys.stdin:
    for offset in (i * 2 + me) * 30000, (i * 2 + me) * 30000 + 20000:
        assert os.pwrite(fd, bytes([65 + me]) * 20000, offset) == 20000
    os.fsync(fd)
    assert os.pread(fd, 1, (i * 2 + me) * 30000) == bytes([65 + me])
    i += 1
    print(len(os.listdir(os.environ["PLFS_SHARED_MEMORY"])), flush=True)
os.close(fd)
PY
    mkdir d shm
    export PLFS_SHARED_MEMORY=$PWD/shm
    for when in never full almost without_inodes later; do
        mount -t tmpfs -o size=16k none shm 2> /dev/null || skip "needs the right to mount"
        trap 'umount -l shm' EXIT
        case $when in
            full) fill ;;
            # Room for half a page of ours.
            almost) fill; truncate -s -4096 shm/fill ;;
            without_inodes) touch shm/fill; mount -o remount,nr_inodes=2 shm ;;
        esac
        writers=()
        for me in 0 1; do
            mkfifo "to$me" "from$me"
            plfs run --mount d -- python3 writer.py "d/$when" $me < "to$me" > "from$me" &
            writers+=($!)
        done
        exec 3> to0 4< from0 5> to1 6< from1
        for round in 1 2 3 4; do
            echo >&3; read -r there <&4
            # What has its memory goes on, and takes in who comes.
            [ $when$round != later1 ] || fill
            echo >&5; read -r there <&6
            echo "$when, round $round: $there files there"
        done
        # Writers that cannot meet have a log set of their own.
        sets=$(plfs stat --json "d/$when" | json 'print(len(d["open_marks"]))')
        case $when in
            never | later) [ "$sets" = 1 ] || fail "$when: $sets log sets" ;;
            *) [ "$sets" = 2 ] || fail "$when: $sets log sets" ;;
        esac
        # Another file, whose page there is no room for.
        plfs run --mount d -- sh -c "head -c 100000 /dev/zero > d/other.$when"
        [ "$(plfs cat "d/other.$when" | wc -c)" = 100000 ]
        exec 3>&- 5>&-
        for writer in "${writers[@]}"; do wait "$writer" || fail "$when: exit $?"; done
        exec 4<&- 6<&-
        # Whoever reads it has ended before the memory is taken away.
        plfs cat "d/$when" | python3 -c '
want = b""
for i in range(8):
    want = want[:i * 30000] + bytes([65 + i % 2]) * 40000
import sys; sys.exit(sys.stdin.buffer.read() != want)' || fail "$when: other bytes"
        [ "$(plfs stat --json "d/$when" | json 'print(len(d["open_marks"]))')" = 0 ]
        rm to? from?
        umount shm
        trap - EXIT
    done
    plfs check d > /dev/null
}
fill() { # the file system of shared memory
    if cat /dev/zero > shm/fill 2> fill.err; then fail "nothing is full"; fi
    grep -q "No space left" fill.err
}
# A name there would be one that nobody lists, and that goes with what is taken for garbage.
t_nothing_is_copied_to_where_containers_are() {
    mkdir m
    plfs run --mount m -- bash -c 'echo text > m/f'
    for copy in import cp; do
        refuses 1 "m/.plfs/x is in .plfs, where containers are" plfs $copy m/f m/.plfs/x
    done
    [ ! -e m/.plfs/x ]
}

t_import_and_cp() {
    head -c 100000 /dev/urandom > plain
    truncate -s 50M plain
    chmod 600 plain
    mkdir m
    plfs import plain m/f
    plfs cat m/f | cmp - plain
    [ "$(plfs stat --json m/f | json 'print(d["mode"], d["stored_bytes"] < 1 << 20)')" = "0600 True" ]
    plfs check m/f > /dev/null
    plfs cp m/f m/g
    plfs cat m/g | cmp - plain
    plfs stat m/g > /dev/null
    plfs cp m/f back
    same back plain
    plfs cp plain m/h
    plfs stat m/h > /dev/null
    refuses 1 "exists" plfs cp plain m/h
    echo new > plain2
    plfs cp -f plain2 m/h
    [ "$(plfs cat m/h)" = new ]
    refuses 1 "not a regular file" plfs cp m m/x
    refuses 1 "absent" plfs import absent m/y
    refuses 1 "not a regular file" plfs import /dev/null m/empty
    # A file that has other bytes than its size says.
    plfs import /proc/version m/version
    plfs cat m/version | cmp - /proc/version
    if [ -r /sys/kernel/mm/transparent_hugepage/enabled ]; then
        plfs cp /sys/kernel/mm/transparent_hugepage/enabled outside
        same outside /sys/kernel/mm/transparent_hugepage/enabled
    fi
    plfs check m > /dev/null
}
t_flatten() {
    mkdir m
    make_file m/f
    plfs cat m/f > before
    plfs flatten m/f | has entries
    plfs cat m/f | cmp - before
    refuses 1 "not a PLFS file" plfs flatten before
}
# What they had copied stayed, under a name that nobody knows; and scripts went on, as the exit
# status told of no signal.
t_copies_that_are_interrupted_leave_nothing() {
    mkdir m
    head -c 400M /dev/zero | tr '\0' x > plain
    plfs import plain m/f
    echo old > old
    local number=0
    for signal in INT TERM HUP; do
        for what in "import plain m/g" "cp m/f m/g" "export m/f out" "cp -f plain old"; do
            is_in_turn $((number++)) 3 || continue
            # shellcheck disable=SC2086
            python3 - $signal $what << 'EOF'
import glob, signal, subprocess, sys, time
one = subprocess.Popen(["plfs", *sys.argv[2:]], stderr=subprocess.PIPE, text=True)
until = time.monotonic() + 20
while not glob.glob(".plfs-copy-*") + glob.glob("m/.plfs-copy-*") and time.monotonic() < until:
    time.sleep(0.001)
number = getattr(signal, "SIG" + sys.argv[1])
one.send_signal(number)
said = one.communicate()[1]
assert one.returncode == -number and "interrupted" in said, (sys.argv, one.returncode, said)
EOF
            [ "$(find . -name '.plfs-copy*')" = "" ] || fail "left a temporary file"
            [ "$(cat old)" = old ] && [ ! -e m/g ] && [ ! -e out ]
        done
    done
    [ "$(plfs check m)" = "1 healthy" ]
}
# A copy in a lost terminal ended although nohup had been asked to prevent it.
t_copies_go_on_where_hangups_are_ignored() {
    mkdir m
    head -c 200M /dev/zero > plain
    for signal in INT HUP; do
        (trap '' $signal; exec plfs import -f plain m/f) &
        until [ -n "$(find m -name '.plfs-copy*')" ] || ! kill -0 $! 2> /dev/null; do :; done
        kill -$signal $! || true
        wait $!
    done
    plfs cat m/f | cmp - plain
}
# Starts a copy and kills it when its unfinished file is there.
killed() { # COMMAND...
    local tries one
    for (( tries = 0; tries < 20; tries++ )); do
        "$@" &
        one=$!
        until [ -n "$(find . -name '.plfs-copy*')" ] || ! kill -0 $one 2> /dev/null; do :; done
        kill -KILL $one 2> /dev/null || true
        wait $one || true
        if [ -n "$(find . -name '.plfs-copy*')" ]; then return; fi
        plfs rm -f "${!#}"
    done
    skip "copies end before they can be killed"
}
# What a killed copy had copied stayed for ever under a name that nobody knew, and in a managed
# directory it was busy for ever.
t_copies_that_were_killed_are_removed() {
    local workload what number=0
    mkdir m out
    head -c 200M /dev/urandom > plain
    plfs import plain m/f
    for workload in shared auto; do
        plfs layout --workload $workload m > /dev/null
        for what in "import plain m/g" "cp m/f m/g" "export m/f out/g"; do
            is_in_turn $((number + number++ / 3)) 3 || continue
            # By the next run to the same name.
            # shellcheck disable=SC2086
            killed plfs $what
            # shellcheck disable=SC2086
            plfs $what
            [ -z "$(find . -name '.plfs-copy*')" ] || fail "left $(find . -name '.plfs-copy*')"
            plfs cat "${what##* }" | cmp - plain
            plfs rm "${what##* }"
            # By a repair, which moves nothing to lost+found of it.
            # shellcheck disable=SC2086
            killed plfs $what
            plfs check . > check
            has '/.plfs-copy-[0-9a-f]*: garbage' check
            has '^1 healthy, 1 garbage$' check
            plfs check --repair . > check
            has 'removed .*\.plfs-copy-.*killed' check
            [ "$(plfs check .)" = "1 healthy" ]
            [ -z "$(find . -name '.plfs-copy*')" ]
        done
    done
    # One that lives stays, whoever comes.
    plfs import plain m/g 2> err &
    until [ -n "$(find m -name '.plfs-copy*')" ] || ! kill -0 $! 2> /dev/null; do :; done
    kill -STOP $!
    plfs check --repair --min-age 0 m > check
    fails grep removed check
    echo small > small
    plfs import -f small m/g
    kill -CONT $!
    fails wait $!
    has "m/g exists" err
    [ "$(plfs cat m/g)" = small ] && [ -z "$(find m -name '.plfs-copy*')" ]
}
# Trees could only be copied file by file.
t_trees_are_copied() {
    mkdir -p in/a/deep in/empty m
    echo one > in/a/one
    echo .two > in/a/.two
    head -c 3000000 /dev/urandom > in/a/deep/three
    ln -s deep/three in/a/link
    ln -s absent in/dangling
    chmod 750 in/a; chmod 640 in/a/one; chmod 500 in/empty
    find in -exec touch -h -d '2001-02-03 04:05:06.789' {} +
    seen() { (cd "$1" && find . -not -path '*/.plfs*' -printf '%p %y %m %t %l\n' | sort) }
    # Into PLFS, within it, and out of it.
    plfs run --mount m -- true
    plfs import -r in m
    plfs stat m/in/a/deep/three > /dev/null
    [ "$(find m -name .plfs)" = m/.plfs ] || fail "several roots"
    plfs cp -r m/in m/copy
    plfs stat m/copy/a/one > /dev/null
    plfs export -r m/copy out
    diff -r --no-dereference in out
    diff <(seen in) <(seen out)
    # Where no root is the tree gets one.
    mkdir new
    plfs import -r in new/in
    [ "$(find new -name .plfs)" = new/in/.plfs ]
    # What is plain is exported as it is, and without -r a directory is none.
    echo plain > m/copy/plain
    refuses 1 "copy it with -r" plfs cp m m2
    plfs export -r m/copy out2
    [ "$(cat out2/plain)" = plain ]
    plfs export -r m/in/a/one single
    same single in/a/one
    # A directory without a name is what DST becomes.
    (cd m/in && plfs export -r . "$work/trees_are_copied/here")
    diff -r --no-dereference in here
    [ -z "$(find . -name '.plfs-copy*')" ]
    plfs check . > /dev/null
}
# What cannot be copied is named, the rest is copied.
t_trees_with_what_cannot_be_copied() {
    local status=0
    mkdir -p in/sub out/in
    echo new | tee in/1 in/2 in/sub/3 > /dev/null
    ln -s 1 in/link
    mkfifo in/fifo
    echo old | tee out/in/2 out/in/sub out/in/link > /dev/null
    plfs cp -r in out 2> err || status=$?
    [ $status = 1 ]
    has '^plfs: cp: .*/out/in/2 exists; replace it with -f$' err
    has '^plfs: cp: .*/out/in/link exists; replace it with -f$' err
    has '^plfs: cp: .*/in/fifo is no file, directory or link; left out$' err
    has '^plfs: cp: .*/out/in/sub exists and is no directory$' err
    [ "$(wc -l < err)" = 4 ]
    [ "$(cat out/in/1 out/in/2 | xargs)" = "new old" ]
    rm in/fifo out/in/sub
    plfs cp -rf in out
    [ "$(cat out/in/2 out/in/sub/3 | xargs)" = "new new" ] && [ "$(readlink out/in/link)" = 1 ]
    plfs import -r in m
    rm "$(log_of m/1 .data)"
    fails plfs export -r m out3 2> err
    has '^plfs: export: .*/m/1' err
    [ "$(cat out3/2)" = new ] && [ ! -e out3/1 ]
}
t_trees_are_not_copied_into_themselves() {
    mkdir -p in/sub
    echo x > in/f
    refuses 1 "into itself" plfs cp -r in in/sub
    refuses 1 "into itself" plfs cp -r in in
    ln -s in/sub link
    refuses 1 "into itself" plfs cp -r in link/new
    refuses 1 "into itself" plfs import -r . m
    [ "$(find in | wc -l)" = 3 ] && [ ! -e m ]
    # Where the same directory is by another path.
    if mkdir in/bound && mount --bind in/sub in/bound 2> /dev/null; then
        trap 'umount in/bound' EXIT
        mkdir in/sub/target
        fails plfs cp -r in/bound in/sub/target 2> err
        has 'is what is copied to; left out' err
    fi
}
# A tree whose copy is interrupted has whole files only, and the exit status is that of the signal.
t_trees_whose_copy_is_interrupted() {
    local i what signal number=0
    mkdir in m
    head -c 50M /dev/zero > in/f0
    for i in 1 2 3 4 5; do cp in/f0 in/f$i; done
    plfs import -r in m
    for what in "cp -r in out" "import -r in m/out" "cp -r m/in m/out" "export -r m/in out"; do
        # Each with another signal than the one before.
        for signal in INT TERM HUP; do
            is_in_turn $((number + number++ / 3)) 3 || continue
            # shellcheck disable=SC2086
            python3 - $signal $what << 'EOF'
import os, signal, subprocess, sys, time
number, what = getattr(signal, "SIG" + sys.argv[1]), sys.argv[2:]
one = subprocess.Popen(["plfs", *what], stderr=subprocess.PIPE, text=True)
while not os.path.exists(what[-1] + "/f0"):
    time.sleep(0.001)
one.send_signal(number)
said = one.communicate()[1]
assert one.returncode == -number and "interrupted; copied " in said, (sys.argv, one.returncode, said)
assert said.count("\n") == 1, said
EOF
            [ -z "$(find . -name '.plfs-copy*')" ] || fail "$what, $signal: left $(find . -name '.plfs-copy*')"
            plfs check m > /dev/null
            for i in "${what##* }"/*; do [ "$(plfs cat "$i" | wc -c)" = $((50 << 20)) ]; done
            plfs rm -r "${what##* }"
        done
    done
}
# A file of a pack has nothing that could be locked. An unfinished copy there that nobody has
# written for a minute is one that was killed; a younger one may be that of somebody who is at work.
t_copies_into_packs_that_were_killed_are_removed_after_a_minute() {
    local name age
    mkdir -p m/small big
    plfs layout --workload small m/small > /dev/null
    head -c 200M /dev/zero > large
    echo new > in
    # Its name is the same wherever the file of this name is copied to.
    killed plfs cp large big/g
    name=$(basename "$(find big -name '.plfs-copy*')")
    unfinished() {
        plfs run --mount m -- sh -c "echo half > m/small/$name; touch -d '$age seconds ago' m/small/$name"
        [ "$(plfs cat "m/small/$name")" = half ]
    }
    stays() {
        plfs ls -a m/small > seen
        case $age in
            50) has "$name" seen ;;
            70) fails grep -F "$name" seen ;;
        esac
    }
    for age in 50 70; do
        unfinished
        plfs import in m/small/g
        [ "$(plfs cat m/small/g)" = new ]
        stays
        plfs rm -f "m/small/$name" m/small/g
        unfinished
        plfs check --repair m > check || true
        stays
    done
}
# -h was --help here and nowhere else.
t_ls_options() {
    mkdir -p m/sub/.deep
    head -c 10138 /dev/zero > in
    plfs import in m/.hidden
    plfs import in m/sub/f
    plfs import in m/sub/.deep/g
    [ "$(plfs ls m | awk '{ print $NF }' | xargs)" = "m/sub/" ]
    [ "$(plfs ls -a m | awk '{ print $NF }' | xargs)" = "m/.hidden m/sub/" ]
    [ "$(plfs ls -R m | awk '{ print $NF }' | xargs)" = "m/sub/ m/sub/f" ]
    [ "$(cd m && plfs ls -aR | awk '{ print $NF }' | xargs)" = ".hidden sub/ sub/.deep/ sub/f sub/.deep/g" ]
    plfs ls -h m/sub | has '^10K m/sub/f$'
    plfs ls -lh m/.hidden | has ' 10K .* m/.hidden$'
    plfs ls -aR --json m | json 'assert len(d) == 5 and d[0]["size"] == 10138'
    plfs ls --help | has 'Usage: plfs ls'
}
# They were taken for files that are none of PLFS's.
t_paths_in_a_mount() {
    mkdir m mnt
    make_file m/f
    plfs cat m/f > want
    plfs stat --json m/f > stat
    plfs map m/f | tail -n +2 > map
    plfs mount mnt --backend m 2> /dev/null || skip "needs the right to mount"
    trap 'umount -l mnt' EXIT
    plfs stat --json mnt/f | diff <(sed 's|"mnt/f"|"m/f"|') stat
    plfs map mnt/f | tail -n +2 | diff - map
    plfs export mnt/f out
    same out want
    (cd mnt && plfs stat f > /dev/null && plfs check f | has '^f: healthy')
    [ "$(plfs check mnt)" = "1 healthy" ]
    plfs compact -n mnt/f | has '^mnt/f: '
    plfs flatten mnt/f | has '^mnt/f: '
    plfs export -r mnt outs
    same outs/f want
    # What was written a moment ago is there.
    { echo new; sleep 2; } > mnt/open &
    until [ -s mnt/open ]; do sleep 0.01; done
    plfs export mnt/open out2
    [ "$(cat out2)" = new ]
    wait
    plfs umount mnt
    trap - EXIT
    # Over its own directory nothing is behind it.
    plfs mount m
    trap 'umount -l m' EXIT
    refuses 1 "mount over its own directory" plfs stat m/f
    plfs export m/f out3
    same out3 want
    plfs umount m
    trap - EXIT
}
# Slips are told what was meant.
t_slips_get_hints() {
    mkdir m
    refuses 2 "no option --mnt: plfs run [--mount DIR]" plfs run --mnt m -- true
    refuses 2 "m is a directory: plfs run --mount m -- COMMAND" plfs run m -- true
    plfs run -m m -- sh -c 'echo x > m/f'
    plfs stat m/f > /dev/null
    plfs cp -R m m2
    [ "$(plfs cat m2/f)" = x ]
    for words in "mont x" "ls --recursivee m" "import --recurse m n"; do
        # shellcheck disable=SC2086
        fails plfs $words 2> err
        has 'similar' err
    done
}
# The message named every directory above.
t_what_is_not_here_is_told_in_two_lines() {
    mkdir -p far/below m
    make_file m/f
    cp m/f far/below/f
    rm -r m
    refuses 1 "far/below/f is not here" plfs cat far/below/f
    [ "$(sed "s|$PWD|/scratch/user/project|g" "$work/err" | wc -c)" -lt 240 ]
}
# "1 files, 1 bytes", and the number of an error in JSON.
t_words() {
    mkdir -p m/new
    plfs run --mount m -- true
    plfs layout --workload small m/new > /dev/null
    printf x > in
    plfs import in m/new/a
    plfs unpack m/new | has ': unpacked 1 file, 1 byte$'
    plfs stat m/new/a | has 'size  1 byte$'
    for what in stat ls compact; do
        plfs $what --json absent > out 2> err || true
        fails grep 'os error' out err
        [ "$(wc -l < err)" = 1 ]
    done
    for what in compact flatten; do refuses 1 "No such file or directory" plfs $what absent; done
    for shell in bash zsh fish; do
        plfs completions $shell > out
        fails grep -w 'plfs__man\|_plfs__man_commands\|a "man"\|fake' out
    done
}
t_compact() {
    mkdir m
    plfs run --mount m -- dd if=/dev/urandom of=m/f bs=64k count=64 status=none
    plfs compact m/f | has 'left alone: 0 of'
    plfs run --mount m -- dd if=/dev/urandom of=m/f bs=64k count=64 conv=notrunc status=none
    plfs run --mount m -- dd if=/dev/urandom of=m/f bs=1k count=3000 seek=1000 conv=notrunc status=none
    plfs cat m/f > before
    touch -r before m/f
    plfs compact -n m/f | has 'are dead (63 %)'
    cmp <(plfs cat m/f) before
    plfs compact --at-least 70 --json m/f | json 'assert not d[0]["compacted"] and d[0]["dead_bytes"] > 3000000'
    plfs compact m/f | has 'freed .*MiB'
    plfs cat m/f | cmp - before
    [ ! m/f -nt before ] && [ ! before -nt m/f ]
    plfs check m/f | has healthy
    plfs compact --json --force m/f | json 'assert d[0]["compacted"] and d[0]["freed_bytes"] < 8192 and d[0]["error"] is None'
    refuses 1 "not a PLFS file" plfs compact before
    # Somebody is writing.
    plfs run --mount m -- sh -c 'exec 3<>m/f; echo x >&3; touch opened; while [ ! -e done ]; do sleep 0.05; done' &
    while [ ! -e opened ]; do sleep 0.05; done
    refuses 1 "open for writing" plfs compact --force m/f
    touch "done"
    wait
    plfs compact --force m/f > /dev/null
    # An administrator compacts for the owner, who goes on.
    if [ "$(id -u)" = 0 ]; then
        chmod 755 .. .; chmod 777 m
        as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
        # The build may be where others may not look.
        install -m 755 "$build/bin/plfs" ./theirs
        as_nobody ./theirs cp m/f m/theirs
        plfs compact --force m/theirs > /dev/null
        as_nobody ./theirs cat m/theirs | cmp - <(plfs cat m/f)
        as_nobody ./theirs compact --force m/theirs > /dev/null
        [ -z "$(find m/.plfs -path '*.gone*')" ]
        as_nobody ./theirs rm m/theirs
        [ -z "$(find m/.plfs -user 65534 -type f)" ]
    fi
}
# It ended with success, and the files behind were as they had been.
t_a_compaction_that_is_interrupted_says_so() {
    mkdir m
    make_file m/f
    for json in "" --json; do
        # shellcheck disable=SC2086
        python3 - $json << 'EOF'
import signal, subprocess, sys, time
files = ["m/f"] * 20000
one = subprocess.Popen(["plfs", "compact", "-n", *sys.argv[1:], *files], text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
def waits_for_it():
    caught = next(line for line in open(f"/proc/{one.pid}/status") if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1
while not waits_for_it():
    time.sleep(0.001)
one.send_signal(signal.SIGINT)
out, err = one.communicate()
assert out.count("m/f") < len(files), "it was too fast"
assert one.returncode == -signal.SIGINT and "interrupted" in err, (one.returncode, err)
EOF
    done
}
# Files m/0 to m/N of some MB, on m and on two backends, with their sums in the file sums.
make_federated() { # N
    mkdir m one two
    mkdir -m 1777 one/.plfs two/.plfs
    plfs backend add m one 2> /dev/null && fail "m is no root yet"
    local make='for i in "$@"; do head -c $((1000000 + i * 100000)) /dev/urandom > m/$i; head -c 300000 /dev/urandom | dd of=m/$i bs=1k seek=100 conv=notrunc status=none; done'
    plfs run --mount m --backend one --backend two -- bash -c "$make" bash $(seq 0 "$1")
    # Where a file is is by chance: one at least has something there.
    until plfs map "m/$1" | grep -q "$PWD/one/"; do
        plfs rm "m/$1"
        plfs run --mount m --backend one --backend two -- bash -c "$make" bash "$1"
    done
    for i in $(seq 0 "$1"); do echo "$(plfs cat "m/$i" | md5sum)"; done > sums
}
same_sums() { for i in $(seq 0 $(($(wc -l < sums) - 1))); do echo "$(plfs cat "m/$i" | md5sum)"; done | cmp - sums || fail "a file is another"; }
# A field of a backend's row.
of_backend() { plfs backend status --json m | json "print([row['$2'] for row in d if row['id'] == '$1'][0])"; }
t_backend() {
    make_federated 19
    local id
    plfs backend status m | has '^0001  active    there .*/one$'
    [ "$(of_backend 0001 files)" -gt 0 ] && [ "$(of_backend 0001 bytes)" -gt 300000 ]
    refuses 1 "it takes new data: run \`plfs backend drain\` first" plfs backend rm m 0001
    refuses 1 "0000 is the root itself" plfs backend drain m 0000
    refuses 1 "it is the root itself" plfs backend add m m
    refuses 1 "0009 is missing" plfs backend drain m 0009
    refuses 1 "it has no .plfs" plfs backend status one/..
    refuses 1 "cannot use the backend absent" plfs backend add m absent
    [ "$(plfs backend add m two)" = 0002 ]
    mkdir three
    id=$(plfs backend add m three)
    [ "$id" = 0003 ] && [ "$(stat -c %a three/.plfs)" = 1777 ]
    # Open for reading: goes on. Open for writing: named, and moved later.
    plfs run -- sh -c 'exec 3< m/3; head -c 10 <&3 > /dev/null; touch reading; while [ ! -e done ]; do sleep 0.05; done; cat <&3 | tail -c 1000 | cmp - <(tail -c 1000 m/3)' 2> /dev/null &
    local on=none
    for i in {0..19}; do ! plfs map "m/$i" | grep -q "$PWD/one/" || on=$i; done
    [ $on != none ]
    plfs run --mount m -- bash -c 'exec 3<> m/'$on'; printf x >&3; touch writing; while [ ! -e done ]; do sleep 0.05; done; printf y >&3' &
    while [ ! -e writing ]; do sleep 0.05; done
    local status=0
    plfs backend drain --to 0003 m 0001 > out 2> err || status=$?
    [ $status = 1 ] || fail "$(cat out err)"
    grep -q "^plfs: backend: $PWD/m/$on: .* bytes stay: .*open for writing" err || fail "$(cat err)"
    grep -q "run the command again" err
    [ "$(of_backend 0001 state)" = draining ] && [ "$(of_backend 0001 files)" = 1 ]
    refuses 1 "files have data there" plfs backend rm m 0001
    touch "done"
    wait
    { head -$on sums; plfs cat m/$on | md5sum; tail -n +$((on + 2)) sums; } > sums.new
    [ "$(plfs cat m/$on | head -c 2)" = xy ]
    mv sums.new sums
    plfs backend drain --to 0003 m 0001 > out
    has 'backend 0001 is empty: moved 1 file,' out
    same_sums
    [ "$(of_backend 0001 segments)" = 0 ] && [ "$(of_backend 0003 files)" -gt 0 ]
    # Nothing new is put there.
    plfs run --mount m --backend one --backend two -- bash -c 'for i in {20..30}; do echo $i > m/$i; done'
    [ -z "$(find one -name '*.data')" ]
    plfs backend rm m 0001 | has 'backend 0001 is gone'
    plfs backend rm m 0001
    [ "$(of_backend 0001 state)" = gone ]
    rm -r one
    same_sums
    plfs check m > /dev/null
    # Moved: found under its new path only.
    mkdir other
    mv three else
    refuses 1 "backend 0003 is not at $PWD/other" plfs backend move m 0003 other
    refuses 1 "is another backend than 0003" plfs backend move m 0003 two
    [ "$(of_backend 0003 presence)" = missing ]
    plfs backend move m 0003 else | has "is at $PWD/else"
    same_sums
    plfs backend drain m 0003 > /dev/null
    plfs backend drain m 0002 > /dev/null
    same_sums
    [ -z "$(find two else -name '*.data')" ]
    plfs backend rm m 0002
    [ "$(plfs backend add m two)" = 0002 ] && [ "$(of_backend 0002 state)" = active ]
    plfs check m > /dev/null
}
t_backend_is_missing() {
    make_federated 9
    local on=none
    for i in {0..9}; do ! plfs map "m/$i" | grep -q "$PWD/one/" || on=$i; done
    [ $on != none ]
    # Of the ten, all may have something there, by chance; of this one nothing is.
    plfs layout --backends 0002 m > /dev/null
    plfs run --mount m -- cp m/0 m/10
    sed -i '1h;$G' sums
    plfs backend status m > /dev/null
    mv one away
    mkdir one
    refuses 1 "of the file are unreachable: backend 0001 is not at $PWD/one" plfs cat "m/$on"
    refuses 1 "backend 0001 is not at $PWD/one" plfs export "m/$on" plain
    [ ! -e plain ]
    plfs stat "m/$on" | has "unreachable  .* bytes of the file are there: [0-9]* to [0-9]*"
    plfs stat --json "m/$on" | json 'assert d["unreachable"][0]["backend"] == "0001" and d["unreachable"][0]["ranges"]'
    fails plfs check "m/$on" > out
    has "0001 is not at $PWD/one" out
    has "bytes of the file are there" out
    refuses 1 "backend 0001 is not at $PWD/one" plfs backend drain m 0001
    refuses 1 "backend 0001 is not at $PWD/one" plfs backend add m one
    # All else is read.
    plfs cat m/10 > /dev/null
    for i in {0..10}; do
        if plfs cat "m/$i" > out 2> err; then
            [ "$(md5sum < out)" = "$(sed -n $((i + 1))p sums)" ] || fail "m/$i is another"
        else
            grep -q unreachable err || fail "$(cat err)"
        fi
    done
    rmdir one
    mv away one
    same_sums
}
# The drain is killed at random moments, again and again, and each time all files are what they
# were; what it left does not keep the next one from going on.
t_backend_drain_is_killed() {
    make_federated 15
    local killed=0 turn status
    [ "$(of_backend 0001 files)" -gt 0 ]
    for turn in {1..40}; do
        status=0
        timeout --foreground -s KILL "0.0$((RANDOM % 90 + 10))" plfs backend drain m 0001 > out 2>&1 || status=$?
        [ $status = 0 ] || [ $status = 137 ] || fail "exit $status: $(cat out)"
        [ $status = 0 ] || killed=$((killed + 1))
        [ $((turn % 5)) != 0 ] || same_sums
    done
    [ $killed -gt 10 ]
    plfs backend drain m 0001 > out
    has 'is empty' out
    same_sums
    [ -z "$(find one -name '*.data')" ]
    plfs backend rm m 0001
    plfs check --repair --min-age 0 m > /dev/null
    plfs check m > /dev/null
    same_sums
    [ -z "$(find m/.plfs -name '*.open')" ]
}
# Two small file systems: what finds no room on one goes to the other, whole.
t_backend_is_full() {
    mkdir m small large
    mount -t tmpfs -o size=3m none small 2> /dev/null || skip "mount: needs root"
    trap 'umount -l small' EXIT
    plfs run --mount m -- sh -c 'echo first > m/first'
    plfs backend add m small > /dev/null
    plfs backend add m "$PWD/large" > /dev/null
    plfs layout --backends 0001,0002 m > /dev/null
    head -c 20000000 /dev/urandom > plain
    local turn
    for turn in {1..8}; do
        # In pieces of 3,000 bytes, which are held in memory, and of 2 MB, which are not.
        for bs in 3000 2000000; do
            plfs run --mount m -- dd if=plain of=m/f$turn.$bs bs=$bs status=none
            plfs cat m/f$turn.$bs | cmp - plain
        done
        [ -z "$(find small -name '*.data')" ] || break
    done
    [ -n "$(find small -name '*.data')" ] || fail "nothing was ever put on the small one"
    # It is full now; more goes on elsewhere.
    plfs run --mount m -- dd if=plain of=m/more bs=64k status=none
    plfs cat m/more | cmp - plain
    plfs check m > /dev/null
    plfs backend drain m 0001 > /dev/null
    for f in m/f[0-9]*; do plfs cat "$f" | cmp - plain; done
    plfs backend rm m 0001
}
t_check_healthy() {
    mkdir m
    make_file m/f
    make_file m/g
    [ "$(plfs check m/f)" = "m/f: healthy" ]
    [ "$(plfs check m)" = "2 healthy" ]
    plfs check --json m m/f | json 'assert [x["health"] for x in d] == ["healthy"] * 3 and all(x["findings"] == [] for x in d)'
    refuses 1 "absent" plfs check absent
}
t_check_torn() {
    plfs run -- bash -c 'echo one > plfs.d/f'
    local log; log=$(log_of plfs.d/f index)
    # A writer that dies in its second append: the header is right, and the payload is cut.
    python3 - "$log" plfs.d/f <<'P'
import struct, sys
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
log = open(sys.argv[1], "rb").read()
block = bytearray(log[:100])
struct.pack_into("<Q", block, 32, len(log))
struct.pack_into("<I", block, 4, crc32c(block[8:64]))
open(sys.argv[1], "ab").write(block)
f = open(sys.argv[2], "r+b"); f.seek(3072); f.write(bytes(128))
P
    plfs check plfs.d/f > out
    grep -q ': torn$' out
    grep -q 'at byte' out
    [ "$(plfs cat plfs.d/f)" = one ]
    plfs run -- bash -c 'echo two >> plfs.d/f'
    plfs check plfs.d/f | head -1 | has ': healthy$'
    [ "$(plfs cat plfs.d/f | xargs)" = "one two" ]
}
t_check_corrupt_index() {
    mkdir m
    make_file m/f
    flip "$(log_of m/f index)" 200
    fails plfs check m/f > out || fail "exit 0"
    grep -q ': corrupt$' out
    grep -q 'index.*: a block of' out
    fails plfs check --json m > out || fail "exit 0"
    json 'assert d[0]["health"] == "corrupt" and any(f["path"].endswith("index") for f in d[0]["findings"])' < out
}
# It said that writes were lost which could all be read, and called stale what readers read by.
t_check_says_what_a_damaged_index_leaves() {
    mkdir m
    make_file m/f
    make_file m/lost
    plfs flatten m/f > /dev/null
    plfs flatten m/lost > /dev/null
    for f in f lost; do plfs cat m/$f > $f; done
    flip "$(log_of m/f index)" 200
    rm "$(log_of m/lost index)"
    for f in f lost; do
        fails plfs check m/$f > out
        grep -q 'everything can be read until somebody writes' out
        fails grep 'readers do without it' out
        plfs cat m/$f | cmp - $f
        plfs export m/$f exported.$f
        cmp exported.$f $f
    done
    # Where there is no such index nothing of the kind is said.
    make_file m/g
    rm -f "$(container m/g)/flat"
    flip m/g 3080
    flip "$(log_of m/g index)" 200
    fails plfs check m/g > out
    fails grep 'can be read' out
}
t_check_missing_data() {
    mkdir m
    make_file m/f
    local log; log=$(log_of m/f .data)
    truncate -s 1000 "$log"
    fails plfs check m/f > out
    grep -q '.data at byte 1000: .* bytes are missing' out
    refuses 1 "data is missing" plfs cat m/f
    rm "$log"
    fails plfs check m/f > out
    grep -q '.data: .* bytes are missing' out
    refuses 1 "data is missing" plfs export m/f exported
    [ ! -e exported ]
    [ -z "$(find . -name '.plfs-copy*')" ]
    plfs rm m/f
    plfs check m > /dev/null
}
t_damaged_superblock() {
    mkdir m
    make_file m/f
    flip m/f 100
    refuses 1 "damaged" plfs cat m/f
    refuses 1 "damaged" plfs stat m/f
    fails plfs check m > out
    grep -q corrupt out
    fails plfs ls m > out 2> err
    grep -q m/f out
    fails plfs run --mount m -- cat m/f > out 2> err && [ ! -s out ] || fail "gave bytes of a damaged file"
    plfs rm m/f
    [ ! -e m/f ]
    plfs check --repair --min-age 0 m > /dev/null
    plfs check --discard --min-age 0 m > /dev/null
    [ -z "$(find m/.plfs -type f)" ] || fail "$(find m/.plfs -type f)"
}
t_unknown_version() {
    mkdir m
    make_file m/f
    python3 - m/f <<'P'
import struct, sys
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
f = open(sys.argv[1], "r+b"); b = bytearray(f.read())
struct.pack_into("<H", b, 76, 9); struct.pack_into("<I", b, 72, crc32c(b[76:3072]))
f.seek(0); f.write(b)
P
    refuses 1 "format version 9" plfs cat m/f
    fails plfs check m/f > out
    grep -q ': unknown$' out
    grep -q 'version 9' out
    plfs rm m/f
}
t_looks_like_a_container() {
    mkdir -p m/.plfs/ab/0123456789abcdef0123456789abcd m/.plfs/zz
    head -c 4093 /dev/urandom > m/plain
    cp m/plain want
    [ "$(plfs check --repair m | tail -1)" != "" ]
    plfs cat m/plain | cmp - want
    refuses 1 "not a PLFS file" plfs stat m/plain
    plfs run --mount m -- cmp m/plain want
    plfs rm m/plain
}
t_damaged_flat_index_is_not_used() {
    mkdir m
    make_file m/f
    plfs cat m/f > want
    plfs flatten m/f > /dev/null
    local flat
    flat=$(container m/f)/flat
    cp "$flat" whole
    # A block of extents is looked at when something in it is read.
    flip "$flat" $(($(stat -c %s "$flat") - 10))
    plfs cat m/f | cmp - want
    fails plfs check m/f | has 'checksum does not match; readers do without it'
    cp whole "$flat"
    plfs check m/f > /dev/null
    flip "$flat" 140
    plfs cat m/f | cmp - want
    plfs stat m/f | has 'flat index  ignored: .*checksum'
    fails plfs check m/f > /dev/null
    plfs check --repair m/f > out
    grep -q 'done  *removed .*flat' out
    plfs check m/f > /dev/null
}
t_copied_and_moved_names() {
    mkdir m
    make_file m/f
    plfs cat m/f > want
    cp m/f m/copy
    plfs cat m/copy | cmp - want
    plfs rm m/copy
    plfs cat m/f | cmp - want
    mkdir other
    cp m/f other/f
    plfs cat other/f | cmp - want # by the root that it records
    mv m moved
    refuses 1 "is not here" plfs cat other/f
    plfs cat moved/f | cmp - want
    fails plfs check other > out
    grep -q "is not here" out
    plfs rm other/f
}
t_crashed_writer() {
    # Any other process of the node that joins a file would end the mark first.
    export PLFS_SHARED_MEMORY=$PWD/shm
    mkdir shm
    plfs run -- python3 -c '
import os, signal
fd = os.open("plfs.d/f", os.O_RDWR | os.O_CREAT)
os.write(fd, b"safe"); os.fsync(fd)
os.write(fd, b"x" * 100000)
os.kill(os.getpid(), signal.SIGKILL)' || [ $? = 137 ]
    [ "$(plfs cat plfs.d/f | head -c 4)" = safe ]
    plfs check plfs.d/f | head -1 | has ': busy$'
    plfs check --clear-marks --repair plfs.d/f | has 'removed the open mark'
    plfs check plfs.d/f | head -1 | has ': healthy$'
    [ "$(plfs stat --json plfs.d/f | json 'print(d["summary"], len(d["open_marks"]))')" = "valid 0" ]
}
# A repair ended the tenancies of writers that died on this host, and neither its help nor what it
# printed said so.
t_a_repair_ends_what_the_dead_had_open() {
    # As above.
    export PLFS_SHARED_MEMORY=$PWD/shm
    mkdir shm
    plfs run -- python3 -c '
import os, signal
fd = os.open("plfs.d/f", os.O_RDWR | os.O_CREAT)
os.write(fd, b"safe"); os.fsync(fd)
os.kill(os.getpid(), signal.SIGKILL)' || [ $? = 137 ]
    plfs check plfs.d/f | head -1 | has ': busy$'
    plfs check --repair plfs.d/f | has '^  done  *the open mark .* is gone: its writer died'
    plfs check plfs.d/f | head -1 | has ': healthy$'
    [ "$(plfs cat plfs.d/f)" = safe ]
}
t_marks_of_the_living_stay() {
    plfs run -- python3 -c '
import os, subprocess
fd = os.open("plfs.d/f", os.O_RDWR | os.O_CREAT); os.write(fd, b"x"); os.fsync(fd)
done = subprocess.run(["plfs", "check", "--clear-marks", "plfs.d/f"], capture_output=True, text=True)
assert "lives" in done.stderr and "busy" in done.stdout, done
os.write(fd, b"y"); os.close(fd)'
    [ "$(plfs cat plfs.d/f)" = xy ]
    plfs check plfs.d/f | head -1 | has ': healthy$'
}
t_garbage_is_removed() {
    mkdir m
    make_file m/f
    make_file m/g
    rm m/g # by a program that does not know PLFS
    plfs check m | has '1 healthy, 1 garbage'
    plfs check --repair m > /dev/null # too young
    [ "$(find m/.plfs -name super | wc -l)" = 2 ]
    plfs check --repair --min-age 0 m | has '^  done  *moved .* to .*/lost+found/'
    plfs check m | has '1 healthy, 1 in lost+found'
    plfs check --undo m | has '^put back'
    plfs check m | has '1 healthy, 1 garbage'
    # What was done to an entry was said to people only.
    plfs check --repair --min-age 0 m > /dev/null
    lost() { find m/.plfs/lost+found -mindepth 1 -maxdepth 1; }
    plfs check --json --undo "$(lost)" | json 'assert [what[:8] for r in d for what in r["done"]] == ["put back"], d'
    plfs check --repair --min-age 0 m > /dev/null
    plfs check --json --discard --min-age 0 "$(lost)" | json 'assert [what[:9] for r in d for what in r["done"]] == ["discarded"], d'
    make_file m/g
    rm m/g
    plfs check --repair --min-age 0 m > /dev/null
    [ "$(plfs check --json m | json 'print(sum(len(r["lost_and_found"]) for r in d))')" = 1 ]
    plfs check --discard m | has '1 in lost+found' # too young
    plfs check --discard --min-age 0 "$(lost)" | has '^discarded'
    [ "$(find m/.plfs -name super | wc -l)" = 1 ]
    [ "$(plfs check m)" = "1 healthy" ]
}
# A repair that could not be done ended with success.
t_a_repair_that_fails_is_a_failure() {
    [ "$(id -u)" = 0 ] || skip "needs root, to be another user"
    mkdir -m 777 m
    chmod 755 .. .
    install -m 755 "$build/bin/plfs" ./theirs
    make_file m/f
    make_file m/g
    rm m/g # by a program that does not know PLFS
    for what in m "--clear-marks m"; do
        local status=0
        # shellcheck disable=SC2086
        setpriv --reuid 65534 --regid 65534 --clear-groups ./theirs check --repair --min-age 0 $what > out 2> err || status=$?
        [ $status = 1 ] || fail "exit $status: $(cat out err)"
        has 'ermission denied\|not permitted' err
    done
    plfs check m | has '1 healthy, 1 garbage'
}
# unlink, rename and close said EACCES of a file that another user had written, though it was gone.
t_what_another_user_wrote_is_no_error_of_a_removal() {
    [ "$(id -u)" = 0 ] || skip "needs root, to be another user"
    mkdir -m 777 m
    chmod 755 .. .
    umask 0
    as() { setpriv --reuid "$1" --regid "$1" --clear-groups bash -ec "$2"; }
    export -f as
    cat > steps.sh << 'EOF'
for how in 'rm m/f' 'mv m/g m/f' 'exec 3< m/f; rm m/f; cat <&3 > m/read; exec 3<&-'; do
    as 65534 'printf AAAA > m/f; printf gggg > m/g'
    as 5002 'printf BB | dd of=m/f bs=1 seek=4 conv=notrunc status=none'
    as 65534 "$how" || { echo "failed: $how"; exit 1; }
    if as 65534 'test -e m/f'; then as 65534 'cmp m/f <(printf gggg) && rm m/f'; fi
done
as 65534 'cmp m/read <(printf AAAABB)'
EOF
    # touch by a descriptor, which who may write the file may do.
    echo "as 65534 'echo x > m/f; chmod 666 m/f'; as 5002 'touch m/f'; as 65534 'rm m/f'" >> steps.sh
    plfs layout --workload shared m > /dev/null
    plfs run --mount m -- bash -e steps.sh
    # What is left of his is named, and root can free it.
    plfs check --repair --min-age 0 m > /dev/null
    plfs check m | has 'healthy$'
}
# A lost index log must never cost the data: after a repair, putting it back gives the file back.
t_a_lost_index_log_does_not_cost_the_data() {
    mkdir m
    head -c 100000 /dev/urandom > want
    plfs run --mount m -- cp want m/f
    local index
    index=$(find m/.plfs -name index)
    mv "$index" saved
    fails plfs check m | has 'f: corrupt'
    fails plfs check --repair --min-age 0 m | has 'f: corrupt'
    fails plfs check m | has 'f: corrupt'
    mv saved "$index"
    plfs cat m/f | cmp - want
    plfs check --repair m > /dev/null
    [ "$(plfs check m)" = "1 healthy" ]
}
t_a_root_copied_without_links_survives_repair() {
    mkdir m
    make_file m/f
    plfs cat m/f > want
    cp -r m n
    plfs check --repair --min-age 0 n > /dev/null
    mv m gone
    plfs cat n/f | cmp - want
    # A copy with links is whole.
    rsync -aH gone/ r/ 2> /dev/null || cp -a gone/. r
    plfs cat r/f | cmp - want
    [ "$(plfs check r)" = "1 healthy" ]
}
t_rm() {
    mkdir -p m/sub
    make_file m/f
    plfs run --mount m -- bash -c 'echo 1 > m/sub/g; ln m/f m/sub/second; echo 2 > m/h'
    refuses 1 "is a directory" plfs rm m/sub
    plfs rm m/f
    [ "$(plfs cat m/sub/second | wc -c)" = 1048579 ]
    plfs rm -r m/sub
    [ ! -e m/sub ]
    [ "$(find m/.plfs -name super | wc -l)" = 1 ]
    refuses 1 "holds the data" plfs rm -rf m/.plfs
    refuses 1 "absent" plfs rm absent
    plfs rm -f absent
    # As rm(1): the directory above is not what somebody means who empties this one.
    for dots in . .. m/.. m/sub/../.. ./ m/.; do refuses 1 "is not removed" plfs rm -rf "$dots"; done
    [ -e m ]
    plfs rm -r m
    [ ! -e m ]
}
# Whoever owns a tree may put a link in a directory's place while an administrator removes it: what
# the link led to was removed.
t_rm_follows_no_link_that_comes_meanwhile() {
    python3 - << 'EOF'
import ctypes, os, pathlib, shutil, subprocess
libc = ctypes.CDLL(None)
names = [f"f{i}" for i in range(30)]
for _ in range(20):
    for dir in "victim", "tree/sub", "aside":
        os.makedirs(dir, exist_ok=True)
        for name in names:
            pathlib.Path(dir, name).touch()
    os.symlink(os.path.abspath("victim"), "aside/link")
    rm = subprocess.Popen(["plfs", "rm", "-r", "tree"], stderr=subprocess.DEVNULL)
    while rm.poll() is None:
        libc.renameat2(-100, b"tree/sub", -100, b"aside/link", 2)
    assert sorted(os.listdir("victim")) == sorted(names), "what a link led to was removed"
    shutil.rmtree("tree", ignore_errors=True)
    shutil.rmtree("aside")
EOF
}
t_two_programs_create_one_name() {
    for _ in 1 2 3; do
        plfs run -- bash -c 'for i in 1 2 3 4 5 6 7 8; do python3 -c "import os
try:
    os.write(os.open(\"plfs.d/f\", os.O_WRONLY | os.O_CREAT | os.O_EXCL), b\"x\"); print(\"made\")
except FileExistsError:
    pass" & done; wait' > out
        [ "$(cat out)" = made ]
        plfs check plfs.d > /dev/null
        plfs rm plfs.d/f
        [ -z "$(find plfs.d/.plfs -type f)" ]
    done
}
t_read_only_storage() {
    mkdir m
    make_file m/f
    plfs cat m/f > want
    mkdir ro && mount --bind m ro 2> /dev/null && mount -o remount,bind,ro ro || skip "needs the right to mount"
    trap 'umount ro' EXIT
    plfs cat ro/f | cmp - want
    plfs check ro/f > /dev/null
    plfs map ro/f > /dev/null
    plfs export ro/f out
    same out want
    refuses 1 "Read-only" plfs import want ro/g
    refuses 1 "Read-only" plfs rm ro/f
    fails plfs run --mount ro -- bash -c 'echo x > ro/g' 2> err
    grep -q 'Read-only' err
    umount ro
    trap - EXIT
}
t_long_and_far() {
    mkdir m
    local long; long=$(printf 'x%.0s' {1..255})
    echo hi > plain
    plfs import plain "m/$long"
    [ "$(plfs cat "m/$long")" = hi ]
    refuses 1 "File name too long" plfs import plain "m/y$long"
    plfs export "m/$long" "$long"
    [ "$(cat "$long")" = hi ]
    plfs run --mount m -- python3 -c '
import os
fd = os.open("m/far", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"x", (1 << 63) - 2)
try: os.pwrite(fd, b"x", (1 << 63) - 1); raise SystemExit("wrote past the end")
except OSError as e: print(e)'
    [ "$(plfs stat --json m/far | json 'print(d["size"])')" = 9223372036854775807 ]
    [ "$(plfs cat --from 9223372036854775800 m/far | tr -d '\0')" = x ]
    timeout 10 plfs check m/far > /dev/null
}
# Shared memory that has nothing of other tests, and of which nothing stays.
memory_of_its_own() {
    memory=$(mktemp -d /dev/shm/plfs-cli-test.XXXXXX)
    export PLFS_SHARED_MEMORY=$memory
    trap 'rm -rf "$memory"' EXIT
}
t_probe_measures_each_target() {
    memory_of_its_own
    make_federated 1
    mkdir m/sub plain
    plfs explain --json m/1 | json '
assert len(d["targets"]) == 3 and d["decision"] is None and "plfs probe" in d["undecided"], d'
    plfs probe --json --size 2M m > out
    json '
assert [t["id"] for t in d["targets"]] == ["0000", "0001", "0002"], d
for t in d["targets"]:
    f = t["found"]
    assert f["bytes"] == 2 << 20 and f["bytes_s"] > 0 and 0 < f["median_s"] <= f["p99_s"], t
    assert f["by"]["pid"] > 0 and f["by"]["host"] and f["measured"][4] == "-" and not t["shared"], t
' < out
    plfs probe --size 64K m/sub plain > out
    has "^0002  $PWD/two .* by O_DIRECT\|^0002  $PWD/two .* no O_DIRECT" out
    has "^$PWD/plain  " out
    has '^4 targets in ' out
    # Nothing stays, and whoever writes next begins with it.
    [ -z "$(find . -name '.plfs-probe*')" ] && [ -z "$(ls -A plain)" ]
    plfs explain --json m/1 | json '
assert all(t["bytes_s"] > 0 and t["probe"]["bytes"] == 65536 for t in d["targets"]), d
assert d["decision"]["streams"] >= 1 and "undecided" not in d, d
assert abs(sum(t["decided_share"] for t in d["targets"]) - 1) < 1e-6, d
assert d["decision"]["predicted_s"] > 0 and d["decision"]["load"] == 1, d
assert d["written_bytes"] >= d["size"] == 1100000, d
assert sum(s["bytes"] for s in d["streams"]) == d["written_bytes"] == sum(t["written_bytes"] for t in d["targets"]), d
'
    plfs explain m/1 > out
    has '^decision: [0-9]* of 3 targets' out
    has '^predicted: ' out
    has '^written: .* to [0-9]* stream' out
    plfs check m > /dev/null
    fails plfs probe --size 0 m 2> err
    has "0 bytes measure nothing" err
    refuses 1 "is not a PLFS file" plfs explain sums
    refuses 1 "No such file" plfs explain m/absent
}
# Who makes a file of which it is said how long it gets measures its targets, if nobody has, with a
# 128th of that; and who does not say it, or has a target that is known, measures nothing.
t_probe_comes_with_a_new_file() {
    memory_of_its_own
    make_federated 0
    local made='
import os, sys
for name in sys.argv[1:]:
    os.close(os.open("m/" + name, os.O_CREAT | os.O_WRONLY))
print(os.getpid())'
    make_files() { PLFS_WORKLOAD=shared plfs run --mount m --backend one --backend two -- python3 -c "$made" "$@"; }
    # Who is slower than the fastest does not write all.
    local probes='
all = [t["probe"] for t in d["targets"] if t.get("probe")]
print(len(all), max([p["bytes"] for p in all], default=0), *{p["by"]["pid"] for p in all})
assert all == [] or min(p["bytes"] for p in all) >= 524288, all'
    # A 128th is less than a piece for each: no measurement.
    PLFS_EXPECTED_BYTES=100000000 make_files a > pid
    plfs explain --json m/a | json "$probes" > out
    [ "$(< out)" = "0 0" ] || fail "$(< out)"
    PLFS_EXPECTED_BYTES=300M fails make_files b 2> err
    has "PLFS_EXPECTED_BYTES=300M is not a number" err
    PLFS_EXPECTED_BYTES=314572800 make_files b c > pid
    plfs explain --json m/b | json "$probes" > out
    [ "$(< out)" = "3 819200 $(< pid)" ] || fail "$(< out), made by $(< pid)"
    [ -z "$(find . -name '.plfs-probe*')" ]
    # They are known now.
    PLFS_EXPECTED_BYTES=314572800 make_files d > pid2
    plfs explain --json m/d | json "$probes" > out2
    cmp out out2
    # One of a single target has nothing to choose.
    rm -rf "${memory:?}"/*
    plfs layout --backends 0000 m > /dev/null
    PLFS_EXPECTED_BYTES=314572800 make_files e > pid
    plfs explain --json m/e | json "$probes" > out
    [ "$(< out)" = "0 0" ] || fail "$(< out)"
}
# Of several that probe a target at the same time one does, and the others have what it found.
# The storage is memory, and each append to it takes 50 ms: a busy disk says nothing for a second.
t_probe_is_done_by_one() {
    command -v strace > /dev/null || skip "no strace"
    memory_of_its_own
    local i
    targets=$(mktemp -d /dev/shm/plfs-cli-test.XXXXXX)
    trap 'rm -rf "$memory" "$targets"' EXIT
    mkdir "$targets/a" "$targets/b"
    for i in 1 2 3; do
        strace -f -o "calls$i" -e trace=pwrite64 -e inject=pwrite64:delay_exit=50000 \
            "$build/bin/plfs" probe --size 100G --time 2 --json "$targets/a" "$targets/b" > "out$i" &
    done
    wait
    [ -z "$(find "$targets" -type f)" ]
    cat out1 out2 out3 | python3 -c '
import json, sys
text, at, answers = sys.stdin.read(), 0, []
while text[at:].strip():
    found, n = json.JSONDecoder().raw_decode(text[at:].lstrip())
    at = len(text) - len(text[at:].lstrip()) + n
    answers.append(found)
assert len(answers) == 3
for target in range(2):
    rows = [one["targets"][target] for one in answers]
    assert not any("error" in row for row in rows), rows
    assert sum(not row["shared"] for row in rows) == 1, rows
    assert len({row["found"]["bytes"] for row in rows}) == 1, rows
assert all(one["seconds"] < 10 for one in answers), answers
'
}
# Who is killed leaves no file, and is in nobody's way.
t_probe_is_killed() {
    memory_of_its_own
    mkdir a
    plfs probe --size 100G --time 30 a &
    sleep 0.5
    kill -9 $!
    wait $! || true
    [ -z "$(ls -A a)" ]
    echo left > a/.plfs-probe.4194300.12345678
    local begun=$SECONDS
    plfs probe --size 64K a > /dev/null
    [ $((SECONDS - begun)) -lt 10 ] && [ -z "$(ls -A a)" ]
}
t_probe_says_what_it_cannot_measure() {
    memory_of_its_own
    mkdir good full ro root closed
    mount -t tmpfs -o size=256k none full 2> /dev/null || skip "mount: needs root"
    mount --bind root ro && mount -o remount,bind,ro ro
    trap 'umount -l full ro; rm -rf "$memory"' EXIT
    chmod 700 closed
    local status=0
    plfs probe --json --size 1M good full ro absent > out 2> err || status=$?
    [ $status = 1 ]
    json '
errors = [t.get("error", "") for t in d["targets"]]
assert not errors[0] and d["targets"][0]["found"]["bytes"] == 1 << 20, d
for want, got in zip(["No space", "Read-only", "No such file"], errors[1:]):
    assert want in got, (want, got)
' < out
    status=0
    plfs probe --size 1M good full > out 2> err || status=$?
    [ $status = 1 ]
    has "^$PWD/full  not measured: .*No space" out
    has "^$PWD/good  .*by process" out
    has "^plfs: probe: .*No space" err
    # A user who may not write there.
    chmod 755 "$work" .
    status=0
    PLFS_SHARED_MEMORY='' setpriv --reuid 65534 --regid 65534 --clear-groups "$build/bin/plfs" probe closed > out 2> err || status=$?
    [ $status = 1 ]
    has 'Permission denied' err
    # A backend that is not there: the others are measured.
    mkdir m
    plfs run --mount m -- sh -c 'echo x > m/f'
    plfs backend add m good > /dev/null
    mv good elsewhere
    status=0
    plfs probe --json --size 1M m > out 2> err || status=$?
    [ $status = 1 ]
    json 'assert d["targets"][0]["found"] and "0001" in d["targets"][1]["error"], d' < out
}
# Nodes tell each other by a file, and nobody minds if that is torn, or somebody else's.
t_rates_of_the_site() {
    memory_of_its_own
    mkdir m one site
    plfs run --mount m -- sh -c 'echo x > m/f'
    plfs backend add m one > /dev/null
    plfs layout --backends all m > /dev/null
    export PLFS_RATES=$PWD/site/rates
    # A guess is told nobody.
    plfs probe --size 64K m > /dev/null
    [ "$(wc -l < site/rates)" = 2 ]
    plfs probe m > /dev/null
    has '^plfs-rates 1$' site/rates
    [ "$(wc -l < site/rates)" = 4 ] && [ "$(ls site)" = rates ]
    # A link stays one, and a strict umask shuts nobody out.
    ln -s rates site/link
    chmod 666 site/rates
    (umask 077 && PLFS_RATES=$PWD/site/link plfs probe m > /dev/null)
    [ -L site/link ] && [ "$(stat -c %a site/rates)" = 666 ]
    rm site/link
    # Another node, which has measured nothing.
    other=$(mktemp -d /dev/shm/plfs-cli-test.XXXXXX)
    trap 'rm -rf "$memory" "$other"' EXIT
    export PLFS_SHARED_MEMORY=$other
    plfs run --mount m -- sh -c 'dd if=/dev/zero of=m/g bs=1M count=20 status=none; sleep 2'
    plfs explain --json m/g | json 'assert all(t["bytes_s"] for t in d["targets"]) and len(d["site"]) == 2, d'
    # What is torn costs a line, and is mended by the next one who measures.
    head -c 50 site/rates > torn && cp torn site/rates
    plfs explain --json m/g 2> err | json 'assert "site" not in d'
    has "^plfs: explain: warning: the file of rates $PWD/site/rates is not used: it is damaged" err
    plfs run --mount m -- sh -c 'dd if=/dev/zero of=m/h bs=1M count=20 status=none' 2> err
    [ ! -s err ]
    plfs probe --size 64K m 2> err > out
    has 'is not used: it is damaged' err
    plfs probe --size 64K m 2> err > out
    [ ! -s err ]
    # What is none of ours stays as it is.
    echo 'root:x:0:0' > site/rates
    plfs probe --size 64K m 2> err > out
    has 'is not used: it is no file of rates' err
    [ "$(cat site/rates)" = root:x:0:0 ]
    PLFS_RATES=$PWD/absent/rates plfs probe --size 64K m 2> err > out
    has 'is not used: No such file' err
    refuses 2 "PLFS_RATES=rates is not an absolute path" env PLFS_RATES=rates plfs explain m/g
}
# The targets of a Lustre, by a library that has the functions of liblustreapi and records what is
# asked of it: each data log is made with one stripe on a target of its own, and probes ask each.
t_targets_of_lustre() {
    memory_of_its_own
    cat > fake.c << 'C'
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int llapi_search_fsname(const char *path, char *name) {
    if (strncmp(path, getenv("FAKE_ROOT"), strlen(getenv("FAKE_ROOT"))) != 0) return -22;
    strcpy(name, "fake");
    return 0;
}
int llapi_get_obd_count(char *path, int *count, int is_mdt) {
    *count = 6;
    return path == NULL || is_mdt;
}
int llapi_file_create(const char *path, unsigned long long stripe, int on, int count, int pattern) {
    char real[PATH_MAX];
    FILE *log = fopen(getenv("FAKE_LOG"), "a");
    if (log == NULL || realpath(path, real) == NULL) abort();
    fprintf(log, "%d %d %d %llu %s\n", on, count, pattern, stripe, real);
    return fclose(log);
}
C
    cc -shared -fPIC -o fake.so fake.c
    mkdir m
    export PLFS_LUSTRE_API=$PWD/fake.so FAKE_ROOT=$PWD/m FAKE_LOG=$PWD/log
    plfs bench --pattern n1-strided --door api --procs 4 --size 47001 --count 300 --dir m --verify --sync --keep --seed 1 > /dev/null
    python3 - log << 'PY'
import re, sys
calls = [line.rstrip("\n").split(" ", 4) for line in open(sys.argv[1])]
logs = [call for call in calls if re.search(r"/[0-9a-f]{2}\.[0-9a-f]+\.data$", call[4])]
assert len(logs) >= 2 and len({call[4] for call in logs}) == len(logs), calls
assert all(call[1:4] == ["1", "0", "1048576"] and 0 <= int(call[0]) < 6 for call in logs), calls
# Streams of one log set are on different targets.
assert len({call[0] for call in logs}) == min(6, len(logs)), calls
PY
    : > log
    plfs probe --size 64K --json m > out
    json '
assert [t["target"] for t in d["targets"]] == [f"lustre:/fake-OST{i:04x}" for i in range(6)], d
assert all(t["found"]["bytes"] == 65536 for t in d["targets"]), d' < out
    [ "$(cut -d' ' -f1 log | sort -u | wc -l)" = 6 ] && [ -z "$(find m -name '.plfs-probe*')" ]
    plfs explain --json m/plfs-bench.1/* | json 'assert len(d["targets"][0]["inside"]) == 6, d'
    # Under `plfs run` the library is not asked, whose calls would come back.
    : > log
    plfs run --mount m -- sh -c 'dd if=/dev/zero of=m/f bs=1M count=4 status=none'
    [ ! -s log ]
    # One that is none costs nothing.
    PLFS_LUSTRE_API=$PWD/absent.so plfs probe --size 64K m | has '^0000  '
    rm -r m/plfs-bench.1
}
# Equal shares are equal whatever the targets are worth, and a file keeps its placement.
t_placement() {
    memory_of_its_own
    mkdir m one two
    plfs run --mount m -- sh -c 'echo x > m/first'
    plfs backend add m one > /dev/null
    plfs backend add m two > /dev/null
    plfs layout --backends all --placement equal m | has "^     placement  equal  ($PWD/m/.plfs-layout)"
    fails plfs layout --placement fast m 2> err
    has "possible values: measured, equal, cliff" err
    plfs run --mount m -- dd if=/dev/zero of=m/f bs=1M count=200 status=none
    plfs layout --placement cliff m > /dev/null
    plfs explain --json m/f > out
    json '
assert (d["placement"], d["placement_from"]) == ("equal", "the file"), d
shares = [t["share"] for t in d["targets"]]
assert len(shares) == 3 and all(abs(share - 1 / 3) < 0.12 for share in shares), shares
' < out
    plfs run --mount m -- dd if=/dev/zero of=m/g bs=1M count=8 status=none
    plfs explain --json m/g | json 'assert d["placement"] == "cliff", d'
    plfs layout --inherit m > /dev/null
    PLFS_PLACEMENT=equal plfs layout m | has '^     placement  equal  (PLFS_PLACEMENT)'
    PLFS_PLACEMENT=cliff plfs explain --json m/first | json 'assert (d["placement"], d["placement_from"]) == ("cliff", "PLFS_PLACEMENT"), d'
    refuses 2 "PLFS_PLACEMENT=fast is none of measured, equal and cliff" env PLFS_PLACEMENT=fast plfs explain m/f
    plfs check m > /dev/null
}
t_explain_calls() {
    plfs explain-calls cat > out
    grep -q '^covered:' out
    grep -q '  read' out
    plfs explain-calls --json /bin/cp | json 'c = {x["call"]: x["verdict"] for x in d["calls"]}; assert c["copy_file_range"] == "covered" and d["refused"] is None'
    printf '#!/usr/bin/env python3\n' > s
    chmod +x s
    plfs explain-calls ./s | head -1 | has 'script'
    refuses 1 "neither a program" plfs explain-calls /etc/passwd
    refuses 1 "no program absent-program" plfs explain-calls absent-program
    echo 'int main(void) { return 0; }' > s.c
    if cc -static -o static s.c 2> /dev/null; then plfs explain-calls ./static | has 'static program'; fi
    plfs explain-calls "$build/lib/libplfs.so" | has 'a library'
}
t_version_help_and_pages() {
    plfs version | has '^plfs [0-9]'
    plfs --version | has '^plfs [0-9]'
    plfs version --json | json 'assert d["version"] and d["preload"].endswith("libplfs_preload.so") and "mpich12" in d["mpi"]'
    local command
    for command in run mount umount log ls stat map cat cp import export flatten compact check backend rm model probe explain version explain-calls completions; do
        plfs help $command > out && grep -q 'Usage: plfs' out || fail "no help for $command"
        grep -q "^.SH SYNOPSIS" "$build/share/man/man1/plfs-$command.1" || fail "no page for $command"
        case $command in
            version) ;;
            *) grep -q Example out && grep -q '^.SH EXAMPLES' "$build/share/man/man1/plfs-$command.1" || fail "no example for $command" ;;
        esac
    done
    bash -n "$build/share/bash-completion/completions/plfs"
    plfs completions zsh | has explain-calls
    local status=0; plfs nonsense 2> /dev/null || status=$?
    [ $status = 2 ]
}
t_installed_elsewhere() {
    mkdir prefix
    (cd "$build" && tar cf - bin lib include share) | tar xf - -C prefix
    env -i PATH=/usr/bin:/bin HOME="$PWD" prefix/bin/plfs run -- sh -c 'echo hi > plfs.d/f; cat plfs.d/f' > out
    [ "$(cat out)" = hi ]
    [ "$(env -i prefix/bin/plfs version --json | json 'print(d["preload"])')" = "$PWD/prefix/lib/plfs/libplfs_preload.so" ]
    cat > p.c <<'C'
#include <plfs.h>
#include <stdio.h>
int main(void) { puts(plfs_version()); return 0; }
C
    export PKG_CONFIG_PATH=$PWD/prefix/lib/pkgconfig
    # shellcheck disable=SC2046 # flags are several words
    cc -o p p.c $(pkg-config --cflags --libs plfs) -Wl,-rpath,"$(pkg-config --variable=libdir plfs)"
    [ "$(./p)" = "$(pkg-config --modversion plfs)" ]
    # The header is C++ as well. That of the doors is not installed.
    # shellcheck disable=SC2046 # as above
    c++ -fsyntax-only -x c++ p.c $(pkg-config --cflags plfs)
    [ "$(ls prefix/include)" = plfs.h ]
    ln -s "$PWD/prefix/bin/plfs" link
    ./link run -- true
    mv prefix 'pre fix'
    refuses 1 "space" 'pre fix/bin/plfs' run -- true
}

# Tables of the papers, to the digits that they print, and one object a line for scripts.
t_model_has_the_tables_of_the_papers() {
    plfs model contention --targets 480 --request 160 --jobs 10 > out
    [ "$(awk 'NR > 1 { print $2 }' out | xargs)" = "160.00 266.67 337.78 385.19 416.79 437.86 451.91 461.27 467.51 471.68" ]
    [ "$(awk 'NR > 1 { print $4 }' out | xargs)" = "1.00 1.20 1.42 1.66 1.92 2.19 2.48 2.77 3.08 3.39" ]
    plfs model contention --targets 480 --request 64 --jobs 10 --json > out
    [ "$(wc -l < out)" = 10 ]
    python3 - << 'EOF'
import json
rows = [json.loads(line) for line in open("out")]
assert all(list(row) == ["jobs", "inuse", "req", "load"] for row in rows), rows
assert [row["req"] for row in rows] == [64 * n for n in range(1, 11)]
used = [64, 119.47, 167.54, 209.20, 245.31, 276.60, 303.72, 327.22, 347.59, 365.25]
assert [round(row["inuse"], 2) for row in rows] == used, rows
assert round(rows[-1]["load"], 2) == 1.75
EOF
    plfs model contention --targets 480 --request 160,64,480 | tail -1 | has '^ *3 *480.00 *704 *1.47$'
    plfs model plfs --targets 480 --ranks 512,688,2048,4096 > out
    [ "$(awk 'NR > 1 { print $1, $4 }' out | xargs)" = "512 2.42 688 3.04 2048 8.53 4096 17.07" ]
    plfs model plfs --targets 480 --ranks 512 --json | json 'assert list(d) == ["ranks", "inuse", "req", "load"] and d["req"] == 1024'
}
# What was measured is reproduced, and ours is not slower than a tuned shared file anywhere; a
# million ranks on 10,000 targets take seconds.
t_model_simulates_what_was_published() {
    plfs model simulate --json > published
    plfs model simulate --json --targets 10000 --ranks 1,1048576 > large
    python3 - << 'EOF'
import json
read = lambda name: [json.loads(line) for line in open(name)]
rows = read("published")
known = [row for row in rows if row["published_mb_s"] is not None]
assert len(rows) == 45 and len(known) == 19
for row in known:
    assert abs(row["mb_s"] / row["published_mb_s"] - 1) < 0.25, row
by = {(row["strategy"], row["targets"], row["ranks"]): row["mb_s"] for row in rows + read("large")}
logs = {ranks: by["log-per-rank", 480, ranks] for ranks in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)}
assert max(logs, key=logs.get) == 512 and logs[4096] < logs[512] / 3, logs
for (strategy, targets, ranks), mb_s in by.items():
    if strategy == "shared-tuned":
        assert by["streams", targets, ranks] >= 0.9 * mb_s, ranks
EOF
    plfs model simulate > out
    has '^ *ranks  *shared, default  *shared, tuned  *N-N  *log per rank  *streams$' out
    has '^ *4,096 .* [0-9,]* (16,917) .* [0-9,]* (3,069) ' out
    # Another file system, with slow targets: nothing was published of it.
    plfs model simulate --targets 156 --stragglers 12 --strategy streams,shared-tuned --ranks 4096 --network 5000 > out
    fails grep '(' out
    has '^MB/s; 156 targets, 12 of them slow, 400.00 MiB a rank, a network of 5,000 MB/s$' out
    plfs model simulate --plot model.svg --ranks 1,512,1048576 | has '^model.svg: drawn$'
    python3 -c 'import xml.dom.minidom as m; d = m.parse("model.svg"); assert len(d.getElementsByTagName("circle")) > 15'
    mkdir m
    plfs run --mount m -- sh -c 'echo hi > m/f'
    refuses 1 "cannot write m/f: it is a PLFS file" plfs model simulate --plot m/f
}
t_model_says_what_makes_no_sense() {
    refuses 2 "a job cannot ask for 5 of 4 targets" plfs model contention --targets 4 --request 5
    refuses 2 "a job cannot ask for 0 of 4 targets" plfs model contention --targets 4 --request 0
    refuses 2 "2 requests and 3 jobs" plfs model contention --targets 4 --request 1,2 --jobs 3
    refuses 2 "a job cannot ask for 2 of 1 targets" plfs model plfs --targets 1 --ranks 4
    refuses 2 "481 of 480 targets cannot be slow" plfs model simulate --stragglers 481
    refuses 2 "nothing to write" plfs model simulate --bytes 0
    refuses 2 "more than 2^64 bytes" plfs model simulate --bytes 8388608T
    local mb_s
    for mb_s in 0 nan; do refuses 2 "the network cannot have a bandwidth of" plfs model simulate --network $mb_s; done
    fails plfs model contention --targets 0 --request 1 2> err
    fails plfs model simulate --strategy fast 2>> err
    fails plfs model plfs --targets 480 2>> err
}
t_doctor() {
    mkdir m b
    plfs doctor m > out
    fails grep -v '^ok \|^limited \|^ ' out
    has "^ok  *directory  *$PWD/m: " out
    has '^ok  *hard links  *work' out
    [ -z "$(ls -A m)" ]
    plfs doctor --json m | json 'assert {f["verdict"] for f in d["findings"]} <= {"ok", "limited"} and d["directory"].endswith("/m")'
    PLFS_SHARED_MEMORY='' plfs doctor m | has '^limited  *shared memory  *PLFS_SHARED_MEMORY says none'
    # What does not work is said, with no number of an error, and is the exit status.
    fails plfs doctor absent > out
    has "^BROKEN  *directory  *$PWD/absent: No such file or directory$" out
    fails env PLFS_STREAMS=many plfs doctor m > out
    has '^BROKEN  *settings  *PLFS_STREAMS=many' out
    plfs run --mount m -- true
    plfs backend add m b > /dev/null
    plfs doctor m | has "^ok  *backend  *0001 $PWD/b$"
    mv b away
    fails plfs doctor m > out
    has '^BROKEN  *backend .*0001 is not at' out
    [ "$(ls -A m)" = .plfs ]
}
# A directory by two names, as two mount points of a file system.
two_names() { mkdir a && ln -s a b; }
bench() { timeout 60 plfs bench --procs 3 --size 5K --count "${COUNT:-20}" "$@"; }
t_bench_measures_every_pattern_by_every_door() {
    two_names
    local door pattern dirs files
    for door in direct posix api; do
        for pattern in n1-strided n1-segmented n1-block nn 1n; do
            dirs=a,b files=1
            case $pattern in nn) files=3 ;; 1n) files=60 ;; *) [ $door != api ] || dirs=a ;; esac
            bench --door $door --pattern $pattern --block 8 --dir $dirs --verify --sync --json > out
            json "
assert (d['door'], d['pattern'], d['procs'], d['count']) == ('$door', '$pattern', 3, 20)
assert d['bytes_written'] == d['bytes_read'] == 3 * 20 * 5120 and d['files'] == $files
assert d['fsync'] and d['verified'] and d['same_files'] and d['write_mb_s'] > 0 and d['read_mb_s'] > 0
assert [r['bytes_read'] for r in d['ranks']] == [20 * 5120] * 3 and len({r['pid'] for r in d['ranks']}) == 3
assert d['workload'] == (None if '$door' == 'direct' else 'shared')
names = [p['phase'] for p in d['phases']]
assert names == (['create', 'stat', 'read'] if '$pattern' == '1n' else ['open', 'write', 'close', 'read_open', 'read', 'read_close'])
assert all(p['seconds'] >= p['slowest_rank_s'] > 0 for p in d['phases'])
assert all(('files_s' in p) == ('$pattern' == '1n') for p in d['phases'])
assert all(set(r['seconds']) == set(names) for r in d['ranks'])
" < out
            [ -z "$(ls -A a)" ] || fail "left by $door $pattern: $(ls -A a)"
        done
    done
    # For people; another directory is as good for a file a rank.
    mkdir c
    bench --pattern nn --door direct --dir a,c --seed 9 > out
    has '^nn by direct: 3 ranks, 20 pieces of 5,120 bytes each, 307,200 .* in all$' out
    has ', Linux .*, seed 9, without fsync, not verified, ' out
    has '^open, write, close  *[0-9.]*  *[0-9]' out
    [ -z "$(ls -A a)" ] && [ -z "$(ls -A c)" ]
    # Of backends that variables name nothing is left where names are, and no data there.
    mkdir other
    PLFS_BACKENDS=$PWD/other bench --pattern n1-strided --door posix --dir c > out
    [ -z "$(ls -A c)" ] && [ -z "$(find other -type f ! -name identity)" ]
    # In a directory that is managed already what is there stays.
    plfs run --mount a -- sh -c 'echo hi > a/f'
    bench --pattern n1-block --door posix --dir a > out
    ls -A a | cmp - <(printf '.plfs\nf\n')
    [ "$(plfs cat a/f)" = hi ]
}
t_bench_finds_a_byte_that_changed() {
    two_names
    local door
    for door in direct posix api; do
        bench --door $door --pattern n1-strided --dir a --seed 7 --keep > out
        refuses 2 "plfs rm -r $PWD/a/plfs-bench.7" bench --door $door --pattern n1-strided --dir a --seed 7
        bench --door $door --pattern n1-strided --dir a,b --seed 7 --read-only --verify > out
        local f=a/plfs-bench.7/shared
        plfs run -- python3 -c "
f = open('$f', 'r+b'); f.seek(20000); old = f.read(1)[0]
f.seek(20000); f.write(bytes([old ^ 1])); print('0x%02x, found 0x%02x' % (old, old ^ 1))" > wanted
        refuses 1 "$f: byte 20000 is wrong: wanted $(cat wanted) (byte 4640 of piece 1 of rank 0)" bench --door $door --pattern n1-strided --dir a --seed 7 --read-only --verify
        bench --door $door --pattern n1-strided --dir a --seed 7 --read-only > out
        COUNT=21 refuses 1 "$f: it ends at byte 3" bench --door $door --pattern n1-strided --dir a --seed 7 --read-only
        plfs rm -r a/plfs-bench.7
        [ -z "$(ls -A a)" ]
    done
}
# The others went on for ever, or files stayed.
t_bench_ends_when_a_rank_is_killed() {
    mkdir a shm
    export PLFS_SHARED_MEMORY=$PWD/shm
    local door pid status what
    for door in direct posix api; do
        for what in rank bench; do
            plfs bench --door $door --pattern n1-strided --procs 3 --count 1000000 --size 4K --dir a --seed 5 > out 2> err &
            pid=$!
            until [ -s a/plfs-bench.5/shared ]; do sleep 0.05; done
            case $what in
                rank) kill -9 "$(pgrep -P $pid | sed -n 2p)" ;;
                bench) kill -TERM $pid ;;
            esac
            for _ in {1..100}; do kill -0 $pid 2> /dev/null || break; sleep 0.1; done
            fails kill -0 $pid 2> /dev/null
            status=0
            wait $pid || status=$?
            case $what in
                rank) [ $status = 1 ] && has '^plfs: bench: rank [0-2] was killed by signal 9 in step write; the others were ended$' err ;;
                bench) [ $status = 143 ] && has '^plfs: bench: interrupted$' err ;;
            esac
            fails pgrep -P $pid
            [ -z "$(ls -A a)" ] || fail "left by $door, $what: $(ls -A a)"
            # Locks without contents stay.
            [ -z "$(find shm -type f -size +0)" ] || fail "left by $door, $what: $(find shm -type f)"
        done
    done
}
# MPI-IO with an MPI of the machine, of which PLFS was told nothing.
t_bench_by_mpi() {
    mkdir a b tmp
    export TMPDIR=$PWD/tmp OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1
    by() { # MPI ARGUMENTS...
        bench --block 8 --mpicc "mpicc.$1" --mpiexec "mpiexec.$1" "${@:2}"
    }
    local mpi pattern files number=0
    for mpi in "mpich n1-strided" "mpich n1-segmented" "mpich n1-block" "mpich nn" "mpich 1n" "openmpi n1-block" "openmpi nn"; do
        is_in_turn $((number++)) 3 || continue
        pattern=${mpi#* } mpi=${mpi% *} files=1
        case $pattern in nn) files=3 ;; 1n) files=60 ;; esac
        by "$mpi" --door mpi --pattern "$pattern" --dir a --verify --sync --json > out
        json "
assert (d['door'], d['pattern'], d['workload']) == ('mpi', '$pattern', 'shared')
assert d['bytes_written'] == d['bytes_read'] == 3 * 20 * 5120 and d['files'] == $files
assert [r['bytes_read'] for r in d['ranks']] == [20 * 5120] * 3 and len({r['pid'] for r in d['ranks']}) == 3
assert all(p['seconds'] > 0 and p['slowest_rank_s'] > 0 for p in d['phases'])
" < out
        [ -z "$(ls -A a)$(ls -A tmp)" ] || fail "left by $mpi $pattern: $(ls -A a tmp)"
    done
    # What it writes is a container, and what other doors write is the same.
    by mpich --door mpi --pattern n1-strided --dir a --seed 7 --keep > out
    plfs stat --json a/plfs-bench.7/shared | json 'assert d["container"] and d["data_logs"] == 3, d'
    bench --door posix --pattern n1-strided --dir a --seed 7 --read-only --verify > out
    bench --door direct --pattern n1-strided --dir b --seed 7 --keep > out
    by mpich --door mpi-direct --pattern n1-strided --dir b --seed 7 --read-only --verify > out
    has '^n1-strided by mpi-direct: ' out
    printf '\377\0' | dd of=b/plfs-bench.7/shared bs=1 seek=20000 conv=notrunc status=none
    refuses 1 "b/plfs-bench.7/shared: byte 2000" by mpich --door mpi-direct --pattern n1-strided --dir b --seed 7 --read-only --verify
    truncate -s 100000 b/plfs-bench.7/shared
    refuses 1 "b/plfs-bench.7/shared: it ends at byte 100000, and rank" by mpich --door mpi-direct --pattern n1-strided --dir b --seed 7 --read-only
    # Who stops it stops the ranks.
    plfs bench --mpicc mpicc.mpich --mpiexec mpiexec.mpich --door mpi --pattern nn --procs 2 --count 1000000 --size 4K --dir a --seed 5 > out 2> err &
    local pid=$!
    until [ -s a/plfs-bench.5/rank.1 ]; do sleep 0.05; done
    kill -TERM $pid
    for _ in {1..150}; do kill -0 $pid 2> /dev/null || break; sleep 0.1; done
    fails wait $pid
    has '^plfs: bench: interrupted$' err
    fails pgrep -f "$PWD/tmp"
    [ ! -e a/plfs-bench.5 ] && [ -z "$(ls -A tmp)" ]
}
t_bench_says_what_it_cannot_do() {
    mkdir a c
    touch file
    local wrong
    for wrong in "--pattern nn --"{"procs 0","count 0","size 0","size 2G","size 5X","door walls","read-only"} "--pattern odd"; do
        # shellcheck disable=SC2086 # words
        fails plfs bench --dir a $wrong > out 2> err
        has '^error: ' err
    done
    refuses 2 "mkdir -p absent" bench --pattern nn --dir absent
    refuses 2 "not a directory" bench --pattern nn --dir file
    refuses 1 "cannot make a directory in /proc" bench --pattern nn --door direct --dir /proc
    COUNT=99999999999999999 refuses 2 "2^63 bytes or more" bench --pattern nn --dir a
    refuses 2 "do not show the same files" bench --pattern n1-strided --door direct --dir a,c
    refuses 2 "--read-only reads what --keep has left" bench --pattern nn --dir a --read-only --seed 1
    refuses 1 "cannot run nothing, with which --door mpi compiles its ranks" bench --pattern nn --dir a --door mpi --mpicc nothing
    refuses 1 "false cannot compile the ranks" bench --pattern nn --dir a --door mpi --mpicc false
    refuses 1 "cannot run nothing, which starts the ranks" bench --pattern nn --dir a --door mpi --mpicc mpicc.mpich --mpiexec nothing
    refuses 1 "what starts the ranks ended with status 1 in step prepare" bench --pattern nn --dir a --door mpi --mpicc mpicc.mpich --mpiexec false
    refuses 2 "--mpicc and --mpiexec name a command" bench --pattern nn --dir a --door mpi --mpicc ""
    refuses 2 "is not in a mount of PLFS: \`plfs mount" bench --pattern nn --dir a --door fuse
    [ -z "$(ls -A a)" ] && [ -z "$(ls -A c)" ]
    plfs run --mount a -- true
    refuses 2 "--dir a is managed by PLFS" bench --pattern nn --dir a --door direct
    refuses 2 "--dir a is managed by PLFS" bench --pattern nn --dir c,a --door direct
}
# `make install` leaves what works without the symbols, and `make uninstall` nothing but what was
# there before, also after two installs.
t_installed_and_taken_away() {
    mkdir -p usr/bin usr/share
    echo mine > usr/bin/other
    find usr | sort > before
    from_top() { make -s -C "$top" -o build "$@" BUILD="$build" PREFIX="$PWD/usr"; }
    from_top install > out
    from_top install > out
    grep -q "installed in $PWD/usr" out
    grep -q "^ExecStart=$PWD/usr/bin/plfs" usr/lib/systemd/system/plfs@.service
    [ "$(stat -c %s usr/bin/plfs)" -lt "$(stat -c %s "$build/bin/plfs")" ]
    env -i PATH=/usr/bin:/bin HOME="$PWD" usr/bin/plfs run -- sh -c 'echo hi > plfs.d/f; cat plfs.d/f' > out
    [ "$(cat out)" = hi ]
    from_top uninstall
    find usr | sort | cmp - before
    fails from_top uninstall 2> err
    has "nothing is installed in $PWD/usr" err
}

run_functions
