#!/bin/bash
# tests/habits/run.sh BUILD_DIR [TEST...]
#
# Proves: what people do by habit does not hurt: they watch logs, kill programs, move, copy, write without PLFS
# Takes 70 s
# BUILD_DIR holds bin/plfs and its libraries. Each function t_NAME below runs in an empty directory
# of its own, and fails at its first failing command.
# Environment: T_DIR, where the directories are made (default /tmp); T_TIMEOUT_S, seconds for one
# test (default 120).
set -u
build=$(realpath "$1") && shift || exit 2
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-habits.XXXXXX")
trap 'rm -rf "$work"' EXIT
export PATH=$build/bin:$PATH LC_ALL=C TZ=UTC build work
unset PLFS_MOUNTS PLFS_BACKENDS PLFS_PRELOAD LD_PRELOAD
wanted=" $* "
# shellcheck source=tests/lib.sh
. "$(dirname "$(realpath "$0")")/../lib.sh"

# Writes a line with the time to m/log every 0.1 s for so many seconds, in a file that several
# processes write.
writer() { # SECONDS
    plfs run --mount m -- python3 -c '
import sys, time
with open("m/log", "w", buffering=1) as f:
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        f.write(f"{time.monotonic()}\n")
        time.sleep(0.1)
' "$1"
}

# Who follows a log has each line soon after it was written, however long the log is written. Once a
# line came up to 30 s late after a minute: each commit in the background waited twice as long as
# the one before.
t_followed() {
    mkdir m
    writer 14 &
    until [ -s m/log ]; do sleep 0.1; done
    plfs run --mount m -- tail -n +1 -f --pid=$! m/log | python3 -c '
import sys, time
late = [time.monotonic() - float(line) for line in sys.stdin]
print(f"{len(late)} lines, {max(late):.2f} s late at most")
# A look each second, half a second to the commit, and a machine that does something else.
sys.exit(len(late) < 100 or max(late) > 3)'
    wait
}

# plfs cat, too.
t_looked_at() {
    mkdir m
    writer 10 &
    sleep 9
    plfs cat m/log | tail -1 > last
    python3 -c '
import time
late = time.monotonic() - float(open("last").read())
print(f"{late:.2f} s late")
exit(late > 3)'
    wait
}

# A program that is killed outright loses nothing that write returned for. Once it lost up to 30 s.
# It says in a plain file how far it has come.
t_killed() {
    for piece in 10 1000 100000; do
        rm -rf m said
        mkdir m
        plfs run --mount m -- python3 -c '
import os, sys
piece = int(sys.argv[1])
note = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
f = os.open("m/killed", os.O_WRONLY | os.O_CREAT)
for i in range(10**9):
    assert os.write(f, bytes([i % 251]) * piece) == piece
    os.pwrite(note, b"%d" % (i + 1), 0)
' $piece &
        # Where much else runs it begins late.
        until [ "$(tr -d '\0' 2> /dev/null < said || true)" -gt 10 ] 2> /dev/null; do sleep 0.1; done
        sleep 0.5
        pkill -9 -f "m/killed.*O_CREAT" || fail "nobody to kill"
        wait
        plfs run --mount m -- python3 -c '
import sys
piece, said = int(sys.argv[1]), int(open("said").read())
data = open("m/killed", "rb").read()
print(f"{said} pieces of {piece}, {len(data)} bytes")
assert said > 10 and said * piece <= len(data) <= (said + 1) * piece
assert all(data[i * piece:(i + 1) * piece] == bytes([i % 251]) * piece for i in range(said))
' $piece
        plfs check m
    done
}

# What a killed writer left is committed by who checks the files, and by the next program that
# writes some other file; nothing of it stays in shared memory. Both looked at nothing of it once.
t_left_behind() {
    # Of its own: `plfs run` looks at some of the pages of others only, and what they leave goes by
    # and by.
    PLFS_SHARED_MEMORY=$(mktemp -d /dev/shm/habits.XXXXXX)
    export PLFS_SHARED_MEMORY
    trap 'rm -rf "$PLFS_SHARED_MEMORY"' EXIT
    for how in check write; do
        rm -rf m
        mkdir m
        fails plfs run --mount m -- python3 -c '
import os, signal
f = os.open("m/left", os.O_WRONLY | os.O_CREAT)
for _ in range(20):
    os.write(f, b"x" * 100)
os.kill(os.getpid(), signal.SIGKILL)'
        case $how in
            check) plfs check m | grep healthy ;;
            write) plfs run --mount m -- sh -c 'echo > m/other' ;;
        esac
        for container in m/.plfs/??/*; do
            uuid=$(tr -d / <<< "${container#m/.plfs/}")
            fails ls "$PLFS_SHARED_MEMORY"/plfs-*-"$uuid"*
        done
        [ "$(plfs cat m/left | wc -c)" = 2000 ]
    done
}

# However many files a program writes: past the 2,700th none was kept once.
t_killed_with_many_files() {
    mkdir m
    ulimit -n 16000
    fails plfs run --mount m -- python3 -c '
import os, signal
files = [os.open(f"m/{i}", os.O_WRONLY | os.O_CREAT) for i in range(3000)]
for f in files:
    os.write(f, b"x" * 100)
os.kill(os.getpid(), signal.SIGKILL)'
    plfs run --mount m -- find m -type f -not -path '*/.plfs*' -size -100c > lost
    [ ! -s lost ] || fail "lost: $(wc -l < lost)"
}

# A shell without PLFS, a forgotten `plfs run`, `env -i`: it wrote to a name. Readers got what it
# wrote, or the superblock, with status 0, and the data was out of reach.
t_stray_writer() {
    mkdir m
    seq 100000 > plain
    for how in over appended alone; do
        plfs run --mount m -- cp plain "m/$how"
    done
    echo stray > m/alone
    plfs check --repair m/alone
    plfs cat m/alone | cmp - plain
    echo stray > m/over
    echo stray >> m/appended
    for how in over appended; do
        fails plfs cat "m/$how" 2> err
        grep 'without PLFS' err
        fails plfs run --mount m -- cat "m/$how" 2> err
        grep 'Input/output error' err
        fails plfs run --mount m -- sh -c "echo more >> m/$how" 2> err
        fails plfs check m > out
        grep "m/$how: corrupt" out
    done
    plfs check --repair m > out
    for how in over appended; do
        plfs cat "m/$how" | cmp - plain
    done
    [ "$(cat m/.plfs/lost+found/*/kept | sort -u)" = stray ]
    plfs check m
}

# mv out of the directory takes the data along, whatever the file is; and cp without PLFS is told
# from a backup.
t_moved_out() {
    mkdir m out
    seq 100000 > plain
    plfs run --mount m -- sh -c 'cp plain m/f; cp plain m/g; mv m/f out/f'
    cmp plain out/f
    [ ! -e m/f ]
    cp -r m/g out/g
    fails plfs check out > said
    grep 'stub of .*no data is here' said
    plfs cat m/g | cmp - plain
}

# A "backup" that cp made without PLFS has no data of its own. It gave the new data of its original
# without a word, and what was written to it was written to that.
t_copied_without_plfs() {
    mkdir m backup
    seq 100000 > plain
    plfs run --mount m -- sh -c 'cp plain m/f; cp plain m/same; cp plain m/gone'
    cp -r m/f m/same m/gone backup
    for i in f same gone; do plfs cat backup/$i | cmp - plain; done
    plfs run --mount m -- sh -c 'echo more >> m/f; cat m/same > /dev/null'
    plfs flatten m/same > /dev/null
    fails plfs cat backup/f 2> err
    grep "backup/f was copied without PLFS and has no data .* has changed since" err
    [ "$(wc -l < err)" = 1 ]
    fails plfs run -- cat backup/f 2> err
    grep 'Stale file handle' err
    fails plfs check backup/f > said
    grep 'cannot be read, as what is there has changed since' said
    plfs cat backup/same | cmp - plain
    fails plfs run --mount m -- sh -c 'echo x > backup/same' 2> err
    grep 'Read-only' err
    plfs cat m/same | cmp - plain
    plfs run --mount m -- python3 -c 'for i in range(9): open("m/much", "wb").write(bytes(1 << 20))'
    cp m/much backup
    plfs cat backup/much | cmp - <(head -c 1M /dev/zero)
    plfs compact --force m/much
    fails plfs cat backup/much 2> err
    plfs rm m/gone
    fails plfs cat backup/gone 2> err
    grep 'backup/gone is not here' err
    # A copy beside its original, in the same root, is another name of that.
    cp m/f m/copy
    plfs run --mount m -- sh -c 'echo more >> m/f'
    plfs cat m/copy | cmp - <(plfs cat m/f)
}

# What the first screen of README says of copying, moving, backing up and leaving.
t_copied_moved_backed_up_and_left() {
    local i
    seq 100000 > plain
    plfs run -- sh -c 'for i in f g moved run1/a run1/b; do mkdir -p plfs.d/run1; cp plain plfs.d/$i; done'
    plfs cp plfs.d/f plfs.d/copy
    plfs cp -r plfs.d/run1 plfs.d/run2
    plfs run -- cp plfs.d/f plfs.d/copy2
    plfs run -- rsync -a plfs.d/run1/ plfs.d/run3
    mv plfs.d/g plfs.d/h
    plfs run -- mv plfs.d/moved elsewhere
    cmp plain elsewhere
    [ "$(plfs ls -R plfs.d | awk '!/\/$/ { print $NF }' | xargs)" = "plfs.d/copy plfs.d/copy2 plfs.d/f plfs.d/h \
plfs.d/run1/a plfs.d/run1/b plfs.d/run2/a plfs.d/run2/b plfs.d/run3/a plfs.d/run3/b" ]
    cp -a plfs.d B1
    rsync -aHX plfs.d/ B2
    tar --xattrs -cf B3.tar plfs.d
    plfs export -r plfs.d B4
    mkdir B3
    tar --xattrs -xf B3.tar -C B3 --strip-components=1
    plfs export -r plfs.d out
    # The originals change, and go: the backups do not.
    plfs run -- sh -c 'for i in plfs.d/* plfs.d/*/*; do echo more >> "$i"; done' 2> /dev/null || true
    rm -r plfs.d
    for i in B1 B2 B3 B4 out; do
        for f in copy copy2 f h run1/a run1/b run2/a run2/b run3/a run3/b; do
            plfs cat "$i/$f" | cmp - plain
        done
    done
    for i in B1 B2 B3; do [ "$(plfs check $i)" = "10 healthy" ]; done
    for i in B4 out; do cmp plain $i/run3/b; done
    mv B1 plfs.d
    plfs cat plfs.d/f | cmp - plain
}

# A script and a program that lie in the directory run, and a library there can be loaded. One
# process writes them, so they are plain files as others are.
t_executables() {
    mkdir m
    export PLFS_WORKLOAD=auto
    plfs run --mount m -- sh -c '
        printf "#!/bin/sh\necho script \"\$@\"\n" > m/script
        cp /bin/echo m/echo
        cp "$(ldd /bin/ls | grep -o "/[^ ]*libc[.]so[^ ]*")" m/library.so
        chmod +x m/script m/echo
        m/script a b
        m/echo program
        python3 -c "import ctypes; ctypes.CDLL(\"m/library.so\"); print(\"library\")"' > out
    [ "$(cat out)" = "script a b
program
library" ]
}

# A library in a container is loaded as one in a plain file is, with what it needs beside it, and so
# is a module of Python's. It was "invalid ELF header".
t_libraries() {
    mkdir m out
    export PLFS_WORKLOAD=shared
    echo 'int inner(void) { return 42; }' > inner.c
    echo 'int inner(void); int outer(void) { return inner() + 1; }' > outer.c
    gcc -shared -fPIC -Wl,-soname,libinner.so -o libinner.so inner.c
    gcc -shared -fPIC -o libouter.so outer.c -L. -linner '-Wl,-rpath,$ORIGIN'
    # A module that Python has as a file of its own.
    cat > module.py << 'END'
import importlib, sys
for name in sys.argv[1:] or ["_queue", "_ctypes", "_bz2", "_json", "mmap"]:
    file = getattr(importlib.import_module(name), "__file__", None)
    if file and file.endswith(".so"):
        print(name, file)
        break
END
    read -r name file < <(/usr/bin/python3 module.py)
    plfs run --mount m -- cp libinner.so libouter.so "$file" m
    [ "$(stat -c %s m/libouter.so)" = 4093 ]
    plfs run --mount m -- python3 -c "
import ctypes
a = ctypes.CDLL('m/libouter.so')
assert a.outer() == 43
assert ctypes.CDLL('m/libouter.so')._handle == a._handle
try:
    ctypes.CDLL('m/none.so')
except OSError as e:
    print(e)" | grep 'm/none.so: cannot open'
    PYTHONPATH=m plfs run --mount m -- /usr/bin/python3 module.py "$name" | grep -F "m/${file##*/}"
    # By a name alone, as LD_LIBRARY_PATH has it; nobody sees what ld.so loads with a program.
    LD_LIBRARY_PATH=$PWD/m plfs run --mount m -- python3 -c 'import ctypes; print(ctypes.CDLL("libouter.so").outer())' | grep 43
    echo 'int outer(void); int main(void) { return outer() != 43; }' > main.c
    gcc -o main main.c -L. -louter "-Wl,-rpath,$PWD/m" -Wl,--allow-shlib-undefined
    fails plfs run --mount m -- sh -c ./main 2> err
    grep 'needs libouter.so, which the dynamic linker cannot load from a PLFS file' err
}

run_functions
