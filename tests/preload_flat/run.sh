#!/bin/bash
# tests/preload_flat/run.sh BUILD_DIR [TEST...]
#
# Proves: directories whose names are spread over backends (workload flat) under plfs run
# Takes 80 s
# What tests/preload proves of files, in a flat directory; and what is special there: names on two
# file systems, directories that lie elsewhere, several processes, deaths, programs. Each function
# t_NAME below runs in an empty directory with the managed directory m and the flat one m/s, and
# fails at its first failing command.
# Environment: T_DIR, where the directories are made (default /tmp); T_TIMEOUT_S, seconds for one
# test (default 120).
set -u
build=$(realpath "$1") && shift || exit 2
here=$(dirname "$(realpath "$0")")
wanted=" $* "
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"

# Not t_syscall: openat2 with limits. Not s_java, s_mpi: nothing of names.
same="s_archive s_coreutils s_cxx s_fio s_fortran s_git s_perl s_python s_removed s_shell s_shell2 t_aio
    t_description t_errno t_exec t_first t_fork_size t_forks t_found t_handlers t_leaves t_limits t_lock
    t_lock_passed t_lock_shared t_mmap t_mode0 t_names t_no_file t_noticed t_open t_passed t_process t_rw t_search t_signal t_spawn t_stack t_stdio t_stream t_threads t_variants t_wide"
# What a run leaves out here it has in tests/preload_small, if that has it.
asked=
for name in $same; do
    ! is_wanted "$name" || ! is_in_turn "$(number_of "$name")" || asked+=" $name"
done
# shellcheck disable=SC2086 # names
[ -z "$asked" ] || T_WORKLOAD=flat bash "$here/../preload/run.sh" "$build" $asked

work=$(mktemp -d "${T_DIR:-/tmp}/plfs-preload-flat.XXXXXX")
memory=/dev/shm/$(basename "$work")
trap 'rm -rf "$work" "$memory"' EXIT
export PATH=$build/bin:$PATH LC_ALL=C TZ=UTC PYTHONDONTWRITEBYTECODE=1 build here work memory
unset PLFS_MOUNTS PLFS_BACKENDS
for program in race listing; do
    ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -g -o "$work/$program" "$here/../preload_small/$program.c" ||
        result $program fail "does not compile"
done

fail() { echo "failed: $*" >&2; exit 1; }
in_m() { plfs run --mount m -- "$@"; }
make_flat() {
    PLFS_MOUNTS=$PWD/m python3 -c 'import ctypes, sys; sys.exit(-ctypes.CDLL(sys.argv[1]).plfs_make_flat(sys.argv[2].encode()))' \
        "$build/lib/libplfs.so" "$PWD/$1"
}
# Directories of shadows and slots on all backends that are left.
left() { find m/.plfs/spread backend/.plfs/spread "$memory/.plfs/spread" -mindepth 1; }

# Names lie on all backends, and each call that lists has each once, with its kind and number.
t_listing() {
    in_m bash -ec 'mkdir m/s/sub; ln -s f1 m/s/link; for i in {1..700}; do echo $i > m/s/f$i; done; echo x > m/s/sub/inner'
    for base in m backend "$memory"; do
        [ "$(find "$base/.plfs/spread" -type f -name 'f*' | wc -l)" -gt 100 ] || fail "nothing on $base"
    done
    in_m ls m/s | sort > listed
    { echo link; echo sub; for i in {1..700}; do echo "f$i"; done; } | sort | cmp - listed
    [ "$(in_m find m/s | wc -l)" = 704 ] && [ "$(in_m find m/s -type f | wc -l)" = 701 ]
    in_m python3 - <<'END'
import glob, os
os.chdir("m/s")
names = sorted(["link", "sub"] + [f"f{i}" for i in range(1, 701)])
assert sorted(os.listdir()) == sorted(glob.glob("*")) == names
for entry in os.scandir():
    assert entry.inode() == entry.stat(follow_symlinks=False).st_ino, entry
    assert entry.is_dir() == (entry.name == "sub") and entry.is_symlink() == (entry.name == "link")
assert sum(len(files) for _, _, files in os.walk(".")) == 702
END
    # A drain puts the next map before the one before it goes: then each name came twice.
    local map
    map=$(basename "$(ls -d m/s/.plfs-spread.*)")
    cp "m/s/$map" "m/s/${map%0}1"
    [ "$(ls -d m/s/.plfs-spread.* | wc -l)" = 2 ]
    in_m ls m/s | sort | cmp - listed
    in_m "$work/listing" m/s 702
    in_m rm -r m/s
    [ ! -e m/s ] && [ -z "$(left)" ]
}

# Directories in it: what is taken from one, the way back, and what other programs are told.
t_directories() {
    mkdir m/other
    in_m bash -ec 'mkdir -p m/s/a/b/c; echo 1 > m/s/a/b/f; ln -s ../b m/s/a/b/up; ln -s "$PWD/m/other" m/s/a/out'
    cat > try.py <<'END'
import os, subprocess, tempfile
top = os.path.abspath("m/s")
os.chdir("m/s/a/b")
assert os.getcwd() == f"{top}/a/b" == os.path.realpath("up/up")
# A child knows where it is, in whatever way it is told.
for given in {}, {"cwd": "c/.."}, {"cwd": f"{top}/a/b/up"}, {"env": {**os.environ, "PWD": "/"}}:
    said = subprocess.run(["sh", "-c", "cat f; /bin/pwd; ls -d ../b/f; cd c; cat ../f"], text=True, stdout=-1, **given)
    assert said.stdout == f"1\n{top}/a/b\n../b/f\n1\n", (given, said.stdout)
assert os.popen("cat f").read() == "1\n"
os.symlink("a", f"{top}/through")
os.chdir(f"{top}/through/b")
assert os.getcwd() == f"{top}/a/b"
os.unlink(f"{top}/through")
fd = os.open("c", os.O_RDONLY)
os.mkdir("d", dir_fd=fd)
with open(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=fd), "w") as file:
    file.write("text")
    assert os.readlink(f"/proc/self/fd/{file.fileno()}") == f"{top}/a/b/c/new"
assert sorted(os.listdir(fd)) == ["d", "new"] and os.stat("../f", dir_fd=fd).st_size == 2
# What has another name is found by it.
os.rename(f"{top}/a/b", f"{top}/a/B")
assert os.getcwd() == f"{top}/a/B" and open("c/new").read() == "text"
os.unlink("new", dir_fd=fd), os.rmdir("c/d")
os.chdir("c")
os.rmdir("../c")
for call in os.getcwd, lambda: open("x", "w"), lambda: os.mkdir("x"):
    try:
        raise SystemExit(f"{call} gave {call()}")
    except FileNotFoundError:
        pass
os.chdir("/")
# A link that leads out of it.
with open(f"{top}/a/out/made", "w") as file:
    file.write("out")
os.mkdir(f"{top}/a/out/dir")
assert os.path.realpath(f"{top}/a/out/made") == os.path.dirname(top) + "/other/made"
with tempfile.TemporaryDirectory(dir=top) as made:
    open(f"{made}/x", "w").close()
END
    in_m python3 try.py
    [ "$(cat m/other/made)" = out ] && [ -d m/other/dir ]
    in_m bash -ec 'cd m/s/a; mv B ..; cd ..; [ "$(/bin/pwd)" = '"$PWD"'/m/s ]; cat B/f; rm -r B a'
    [ -z "$(in_m ls -A m/s)" ]
    in_m rmdir m/s
    [ -z "$(left)" ]
}

# A name moves to where its hash says nothing of, and back; and out, which is a copy.
t_renames() {
    in_m bash -ec 'cd m/s
        for i in {1..40}; do echo $i > f$i; done
        for i in {1..40}; do mv f$i g$i; done
        for i in {1..40}; do echo new > f$i; mv f$i g$((41 - i)); done
        [ "$(cat g* | sort -u)" = new ] && [ "$(ls | wc -l)" = 40 ]
        mkdir d; mv g1 d; mv d e; [ "$(cat e/g1)" = new ]
        ! mv -n e/g1 g2 2> /dev/null || [ -e e/g1 ]
        ln g2 h2; echo more >> h2; [ "$(wc -l < g2)" = 2 ]
        mv g3 ..; [ ! -e g3 ] && [ "$(cat ../g3)" = new ]; mv ../g3 g3; [ "$(cat g3)" = new ]
        mv e ..; [ "$(cat ../e/g1)" = new ]; mv ../e .; [ "$(cat e/g1)" = new ]
        rm -r *'
    in_m rmdir m/s
    [ -z "$(left)" ]
}

# Links on the way, in what a program and others do: as in an ordinary directory.
# Those with several dots were followed to another directory, those that were replaced for half a
# second to the old one, and a directory that was moved into itself by one was lost.
t_links() {
    cat > try.py <<'END'
import os, subprocess, sys
os.chdir(sys.argv[1])
def told(call, *args):
    try:
        return call(*args)
    except OSError as error:
        return error.strerror
def make(path):
    with open(path, "x") as file:
        file.write(path)
for dir in "x/y/t", "t", "p/q/r", "u", "v1", "v2", "d":
    os.makedirs(dir)
    make(dir + "/f")
os.symlink("../../t", "x/y/l")
os.symlink("../../../u", "p/q/r/l")
for dir in "x/y/l", "p/q/r/l":
    make(dir + "/new")
    os.mkdir(dir + "/made")
    os.unlink(dir + "/f")
    os.rename(dir + "/new", dir + "/moved")
    print(dir, sorted(os.listdir(dir)), os.path.relpath(os.path.realpath(dir)))
os.symlink("v1", "current")
make("current/a")
for other in False, True:
    for new in "v2", "v1":
        if other:
            subprocess.check_call(["sh", "-c", f"ln -s {new} tmp; mv -T tmp current"])
        else:
            os.symlink(new, "tmp")
            os.rename("tmp", "current")
        make(f"current/{new}{other}")
        os.mkdir(f"current/dir{other}")
        os.rmdir(f"current/dir{other}")
os.unlink("current/f")
os.unlink("current")
print(told(make, "current/c"))
os.symlink("v1", "l2")
make("l2/d")
os.rename("l2", "l3")
print(told(make, "l2/e"))
os.mkdir("l2")
make("l2/f")
os.symlink("d", "l")
print(told(os.rename, "d", "l/x"), told(os.rename, "d", "l/../d/x"), told(os.rename, "d", "d/x"))
for dir in sorted(os.listdir()):
    print(dir, sorted(os.listdir(dir)))
END
    mkdir plain
    python3 try.py plain > wanted
    in_m python3 try.py m/s > said
    diff wanted said
}

# Of two processes that move a directory into that of the other one has done it; both got done, and
# all in them was lost. Who is killed meanwhile keeps nobody waiting.
t_moves() {
    cat > try.py <<'END'
import os, random, signal, sys, time
os.chdir(sys.argv[1])
for name in "ab":
    os.mkdir(name)
    open(f"{name}/f{name}", "w").close()
def moves(a, b, end):
    while time.time() < end:
        for names in (a, f"{b}/{a}"), (f"{b}/{a}", a):
            try:
                os.rename(*names)
            except OSError:
                pass
def child(a, b, end):
    pid = os.fork()
    if pid == 0:
        moves(a, b, end)
        os._exit(0)
    return pid
for pid in [child(*names, time.time() + 3) for names in ("ab", "ba")]:
    assert os.waitpid(pid, 0)[1] == 0
for _ in range(20):
    pid = child("a", "b", time.time() + 60)
    time.sleep(random.random() / 20)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    where = next(name for name in ("a", "b/a") if os.path.exists(name))
    begin = time.time()
    os.rename(where, "b/other")
    os.rename("b/other", "a")
    assert time.time() - begin < 5
assert sorted(name for _, _, names in os.walk(".") for name in names) == ["fa", "fb"]
END
    in_m python3 try.py m/s
    in_m rm -r m/s
    [ -z "$(left)" ]
}

# A name that a process has made and nobody else removes stays, though others try to make it, too.
t_own() {
    cat > try.py <<'END'
import os, random, sys, time
os.chdir(sys.argv[1])
def own(worker, end):
    chance = random.Random(worker)
    for n in range(10 ** 9):
        if time.time() > end:
            os._exit(0)
        name, private, text = f"n{chance.randrange(3)}", f"p{worker}.{chance.randrange(8)}", f"{worker}:{n}"
        def make(path):
            with open(path, "w") as file:
                file.write(text)
        try:
            if chance.randrange(2):
                with open(name, "x") as file:
                    file.write(text)
            else:
                make(private)
                try:
                    os.link(private, name)
                finally:
                    os.unlink(private)
        except FileExistsError:
            continue
        assert open(name).read() == text
        if chance.randrange(2):
            make(private)
            os.rename(private, name)
            assert open(name).read() == text
        if chance.randrange(2):
            os.rename(name, private)
            name = private
        assert open(name).read() == text
        os.unlink(name)
pids = []
for worker in range(3):
    pids.append(os.fork())
    if pids[-1] == 0:
        try:
            own(worker, time.time() + 4)
        finally:
            os._exit(1)
assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0]
assert os.listdir() == []
END
    in_m python3 try.py m/s
    in_m rmdir m/s
    [ -z "$(left)" ]
}

# Programs that copy, pack and look.
t_programs() {
    mkdir -p plain/x/y; seq 1000 > plain/x/numbers; ln -s numbers plain/x/link; printf '#!/bin/sh\necho "ran $0"\n' > plain/x/y/script
    cp /bin/true plain/x/y/true; chmod 755 plain/x/y/script; touch -d 2001-02-03 plain/x/numbers
    in_m cp -a plain m/s/
    in_m diff -r plain m/s/plain
    [ "$(in_m sh -c 'm/s/plain/x/y/script; m/s/plain/x/y/true')" = "ran m/s/plain/x/y/script" ]
    in_m bash -ec 'cd m/s/plain/x/y && ./true && ./script' | grep -q 'ran ./script'
    in_m python3 -c 'import subprocess; subprocess.check_call(["./true"], cwd="m/s/plain/x/y"); subprocess.check_call(["m/s/plain/x/y/script"], close_fds=False)'
    [ "$(in_m stat -c %y m/s/plain/x/numbers)" = "$(stat -c %y plain/x/numbers)" ]
    in_m tar cf m/s/t.tar -C m/s plain
    tar xf <(in_m cat m/s/t.tar) --one-top-level=back && diff -r plain back/plain
    in_m bash -ec 'cd m/s; mkdir again; tar xf t.tar -C again; diff -r plain again/plain; rm -r again; du -s . > /dev/null; ls -lR > /dev/null'
    in_m python3 -c 'import shutil; shutil.copytree("m/s/plain", "m/s/copy", symlinks=True); shutil.rmtree("m/s/plain"); shutil.move("m/s/copy", "m/s/plain")'
    in_m diff -r plain m/s/plain
    in_m find m/s -newer plain/x/numbers -name 'scr*' | grep -q script
    in_m rm -r m/s
    [ -z "$(left)" ]
}

# Two programs make the same names: each has one maker, and both programs see all.
t_two_at_once() {
    plfs run --mount m -- "$work/race" m/s 400 one > one & local first=$!
    in_m "$work/race" m/s 400 two > two
    wait $first
    [ "$(cat one two | sort | uniq -d | wc -l)" = 0 ] && [ "$(cat one two | wc -l)" = 400 ]
    [ "$(in_m ls m/s | wc -l)" = 1200 ]
    while read -r name; do [ "$(in_m cat "m/s/$name")" = one ]; done < <(head -20 one)
}

# Files that are there, on all backends, become containers when a second program writes them, and
# who had them open sees what the other one wrote. Those on other backends than the first were once
# opened as if they were none of PLFS's business.
t_shared() {
    in_m bash -ec 'for i in {0..15}; do printf ... > m/s/f$i; done'
    in_m python3 - <<'END'
import os, subprocess, sys
names = [f"m/s/f{i}" for i in range(16)]
first, reader = ([os.open(name, how) for name in names] for how in (os.O_RDWR, os.O_RDONLY))
[os.pwrite(fd, b"a", 0) for fd in first]
second = "import os, sys; [os.pwrite(os.open(name, os.O_RDWR), b'b', 1) for name in sys.argv[1:]]"
subprocess.check_call([sys.executable, "-c", second, *names])
[os.pwrite(fd, b"c", 2) for fd in first]
[os.fsync(fd) for fd in first]
for name in names:
    assert open(name).read() == "abc", name
END
    [ "$(find m/.plfs/spread backend/.plfs/spread "$memory/.plfs/spread" -type f -name 'f*' -links 2 | wc -l)" = 16 ]
    [ "$(in_m cat m/s/f{0..15} | tr -d abc | wc -c)" = 0 ]
}

# kill -9 in the middle: what was closed is there, and the rest can be removed.
t_killed() {
    local round pid
    for round in 1 2 3 4; do
        # Not that of the round before.
        : > told
        plfs run --mount m -- "$work/race" m/s 100000 "round$round" > told & pid=$!
        # It may take long to begin.
        until [ "$(wc -l < told)" -gt 1 ]; do sleep 0.05; done
        sleep "0.$round"
        kill -9 $pid
        wait $pid 2> /dev/null || true
        # The last line may be torn.
        sed '$d' told > made
        [ -s made ] || fail "nothing was made"
        in_m bash -c "while read -r name; do read -r text < m/s/\$name; [ \"\$text\" = round$round ] || { echo \"\$name has \$text\"; exit 1; }; done < made"
        in_m bash -c 'cd m/s && find . -type f -delete'
    done
    local found
    found=$(in_m ls -l m/s) && [[ $found = "total "+([0-9]) ]] || fail "still there: $found"
    in_m rm -r m/s
    found=$(left)
    [ -z "$found" ] || fail "left: $found"
}

# A directory that is synced is so on all backends: what was made in it is durable then.
t_synced() {
    command -v strace > /dev/null || { echo "no strace" > "$work/skip"; exit 77; }
    in_m bash -ec 'mkdir m/s/sub; for i in {1..20}; do echo x > m/s/sub/f$i; done'
    in_m strace -f -y -e trace=fsync -o calls python3 -c 'import os; os.fsync(os.open("m/s/sub", os.O_RDONLY))'
    for base in "$PWD/m" "$PWD/backend" "$memory"; do
        grep -qE "fsync\([0-9]+<$base/.plfs/spread/[0-9a-f]{32}>\) += 0" calls || fail "nothing synced on $base"
    done
}

# What cannot be is refused, and no name is made where nobody looks.
t_refused() {
    cat > try.py <<'END'
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(wanted, call, *args):
    try:
        raise SystemExit(f"{call} {args} gave {call(*args)}")
    except OSError as error:
        assert error.errno in wanted, error
def checked(rc):
    if rc < 0:
        raise OSError(ctypes.get_errno(), "")
os.mkdir("m/s/sub")
for top in "m/s", "m/s/sub":
    refused([errno.EOPNOTSUPP], os.open, top, os.O_TMPFILE | os.O_WRONLY)
    refused([errno.EOPNOTSUPP], socket.socket(socket.AF_UNIX).bind, f"{top}/socket")
    refused([errno.EPERM], open, f"{top}/.plfs-layout", "w")
    refused([errno.ENOENT], open, f"{top}/.plfs-spread.00000000")
    refused([errno.EPERM], os.mkdir, f"{top}/.plfs")
    refused([errno.EISDIR], open, f"{top}/new/", "w")
    refused([errno.EXDEV], os.link, "try.py", f"{top}/link")
    refused([errno.EXDEV], os.rename, "try.py", f"{top}/new")
    refused([errno.ENOENT], os.symlink, "x", f"{top}/new/")
    refused([errno.ENOENT], os.mkdir, f"{top}/none/new")
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o600, 8)
    refused([errno.EOPNOTSUPP], lambda: checked(libc.syscall(437, -100, f"{top}/new".encode(), how, 24)))
    os.mkfifo(f"{top}/fifo")
    os.unlink(f"{top}/fifo")
refused([errno.EINVAL], os.rename, "m/s/sub", "m/s/sub/sub")
refused([errno.ENOTEMPTY], os.rmdir, "m/s")
refused([errno.ENOTDIR], os.rmdir, "try.py")
os.mkdir("m/empty")
refused([errno.ENOTEMPTY], os.rename, "m/empty", "m/s")
os.chdir("m/s/sub")
refused([errno.EOPNOTSUPP], socket.socket(socket.AF_UNIX).bind, "socket")
END
    in_m python3 try.py
    find m backend "$memory" ! -path '*/.plfs/*' ! -name '.plfs*' | sort > found
    printf '%s\n' "$memory" backend m m/empty m/s | sort | cmp - found
    # A directory that is renamed keeps its names, and its old path has none.
    in_m bash -ec 'echo x > m/s/f; mv m/s m/t; ! cat m/s/f 2> /dev/null; mkdir m/s; echo y > m/s/f; cat m/t/f m/s/f' > out
    printf 'x\ny\n' | cmp - out
    [ -e m/s/f ]
    # A backend that is not there is an error, and no shorter listing.
    mv backend gone
    for what in "ls m/t" "cat m/t/f" "touch m/t/new" "mkdir m/t/new" "mv m/t/f m/t/g"; do
        # shellcheck disable=SC2086 # words
        ! in_m $what > out 2> err
        grep -q 'Input/output error' err || fail "$what: $(cat out err)"
    done
    mv gone backend
    [ "$(in_m cat m/t/f)" = x ]
    # chmod is of all shadows.
    [ "$(id -u)" = 0 ] || return 0
    chmod 755 . "$work"
    in_m chmod 755 m/t
    ! in_m setpriv --reuid 65534 --clear-groups touch m/t/new 2> err
    grep -q 'Permission denied' err
    in_m chmod 777 m/t
    in_m setpriv --reuid 65534 --clear-groups bash -ec 'for i in {1..20}; do echo x > m/t/of$i; done; rm m/t/of*'
}

# In a directory like /tmp a file is its owner's to rename and remove, also after root has renamed
# it: the links of names across backends were root's. So are those that a drain makes anew.
t_sticky() {
    [ "$(id -u)" = 0 ] || { echo "not root" > "$work/skip"; exit 77; }
    chmod 755 . "$work"
    in_m chmod 1777 m/s
    user() { in_m setpriv --reuid 65534 --regid 65534 --clear-groups bash -ec "$1"; }
    user 'for i in {1..20}; do echo $i > m/s/t$i; done'
    in_m bash -ec 'for i in {1..20}; do mv m/s/t$i m/s/f$i; done'
    user 'rm m/s/f{1..9}; for i in {10..20}; do echo new > m/s/n$i; mv m/s/n$i m/s/f$i; mv m/s/f$i m/s/g$i; done'
    [ "$(in_m bash -c 'cat m/s/*' | uniq -c)" = '     11 new' ]
    in_m rm -r m/s
    [ -z "$(left)" ]
}

for test in $(declare -F | sed -n 's/^declare -f t_//p'); do
    is_wanted "$test" || continue
    rm -rf "$work/dir" "$work/skip" "$memory"
    mkdir -p "$work/dir/m/s" "$work/dir/backend" "$memory"
    export -f fail in_m left make_flat "t_$test"
    status=0
    in_own_shell "$work/dir" "in_m true
        for backend in backend '$memory'; do plfs backend add m \$backend; done; make_flat m/s
        t_$test" || status=$?
    case $status in
        0) result "$test" ok ;;
        77) result "$test" skip "$(cat "$work/skip")" ;;
        *) result "$test" fail "exit $status: $(tail -5 "$work/log")" ;;
    esac
done
