#!/bin/bash
# tests/fuse/run.sh BUILD_DIR [TEST...]
#
# Proves: the mount: its behaviours, whose files are whose, the daemon's life, POSIX (pjdfstest), programs of others; needs root
# Takes 390 s
# What a mount (`BUILD_DIR/bin/plfs mount`) does: its own behaviours (door.py), whose files are
# whose (users.py), the life of the daemon (daemon.py), POSIX (pjdfstest), and programs of others
# inside the mount; fsx is in tests/fsx. tests/fuse_auto does the same with PLFS_WORKLOAD=auto.
# With T_FULL=1 more data, and stress-ng for long. Needs root
# and /dev/fuse.
# What has to be installed first (pjdfstest from crates.io) goes to PLFS_TEST_CACHE, by default
# ~/.cache/plfs-tests.
# Environment: T_DIR, where the directories are made (default /tmp).
set -u
build=$(realpath "$1") && shift || exit 2
wanted=" $* "
here=$(dirname "$(realpath "$0")")
plfs=$build/bin/plfs
[ -x "$plfs" ] || { echo "no $plfs"; exit 2; }
cache=${PLFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/plfs-tests}
# The backend lies where only root may go: nobody needs rights above it.
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-fuse.XXXXXX")
mount=$(mktemp -d "${T_DIR:-/tmp}/plfs-fuse-mount.XXXXXX")
mkdir -p "$work/backend" "$work/plain" "$cache"
chmod 755 "$mount" "$work/backend"
export LC_ALL=C TZ=UTC PYTHONDONTWRITEBYTECODE=1
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
MIB=8 STRESS_S=1 STRESS_ALL_S=5
[ "${T_FULL:-}" = 1 ] && MIB=256 STRESS_S=20 STRESS_ALL_S=120

limit() { timeout -k 5 "$@"; }
up() { limit 30 "$plfs" mount "$mount" --backend "$work/backend"; }
down() { limit 90 "$plfs" umount "$mount" 2> "$work/umount.log" || limit 20 "$plfs" umount --lazy "$mount"; }
finish() {
    cd /
    grep -q " $mount fuse.plfs " /proc/mounts && limit 20 "$plfs" umount --lazy "$mount"
    for left in $(awk -v work="$work/" '$3 == "fuse.plfs" && index($2, work) == 1 { print $2 }' /proc/mounts); do limit 20 "$plfs" umount --lazy "$left"; done
    rm -rf "$work"; rmdir "$mount" 2> /dev/null
}
trap finish EXIT

if [ "$(id -u)" != 0 ] || [ ! -e /dev/fuse ]; then
    result fuse skip "needs root and /dev/fuse"
    exit 0
fi

# Programs that print a line for each behaviour, as suites do.
behaviours() { # NAME COMMAND...; asked for as NAME or, one of its functions, as NAME.FUNCTION
    local name=$1 only; shift
    mapfile -t only < <(tr ' ' '\n' <<< "$wanted" | sed -n "s/^$name\./t_/p")
    [ ${#only[@]} != 0 ] || is_wanted "$name" || return 0
    limit 300 "$@" "${only[@]}" > "$work/out" 2> "$work/err"
    local status=$?
    sed -nE "s/^(ok|not ok|skip) /\1 $name: /p" "$work/out"
    if [ $status != 0 ]; then
        tail -n "${T_LINES:-40}" "$work/err" | show
        grep -q '^not ok ' "$work/out" || result "$name" fail "status $status after $(grep -c '^ok ' "$work/out") tests"
    fi
}
behaviours daemon python3 "$here/daemon.py" "$work" "$plfs"
# Its own mounts, of files that are plain at first.
[ "${PLFS_WORKLOAD:-}" != auto ] || behaviours shared python3 "$here/shared.py" "$work" "$plfs"
# Its own mounts, of directories of small files.
behaviours small python3 "$here/small.py" "$work" "$plfs"
# Its own mounts, of directories whose names are spread over two backends.
behaviours flat python3 "$here/flat.py" "$work" "$plfs"
up || { result mount fail; exit 1; }
behaviours door python3 "$here/door.py" "$mount" "$work/backend" "$plfs"
behaviours users python3 "$here/users.py" "$mount" "$work/backend" "$plfs"

installed() { # CRATE VERSION: false, and a skip, if it cannot be had
    # Not optimised: it waits for the mount, and takes half as long to make. Once for
    # tests/fuse_auto as well, which may come at the same time.
    exec 9> "$cache/$1.lock"
    flock 9
    [ -x "$cache/bin/$1" ] || CARGO_PROFILE_DEV_DEBUG=0 cargo install --debug --quiet --locked "$1" --version "$2" --root "$cache" > "$work/install.log" 2>&1
    exec 9>&-
    [ -x "$cache/bin/$1" ] || { result "$1" skip "cargo install $1: $(tail -1 "$work/install.log")"; return 1; }
}

# POSIX, case by case. A case that may fail is a line of pjdfstest.excludes with its reason.
if is_wanted pjdfstest && installed pjdfstest 0.2.2; then
    printf '%s\n' '[features]' 'posix_fallocate = {}' 'rename_ctime = {}' 'utime_now = {}' 'utimensat = {}' '[settings]' 'naptime = 0.01' 'allow_remount = true' \
        '[dummy_auth]' 'entries = [["nobody", "nogroup"], ["daemon", "daemon"]]' > "$work/pjdfstest.toml"
    second=/dev/shm/plfs-fuse.$$; mkdir -p $second
    # mount(8) gives a mount of type fuse to a helper, which may not be installed, or may be
    # another; -i does without.
    mkdir -p "$work/path"; printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" > "$work/path/mount"; chmod +x "$work/path/mount"
    pjdfstest() { (cd "$mount" && PATH=$work/path:$PATH limit 150 "$cache/bin/pjdfstest" -c "$work/pjdfstest.toml" -p "$mount" -s $second "$@"); }
    pjdfstest > "$work/pjdfstest.log" 2>&1
    sum=$(grep '^Summary' "$work/pjdfstest.log")
    bad='' excluded=0 again=0
    for name in $(awk '$2 == "FAILED" || $2 == "skipped" { print $1 }' "$work/pjdfstest.log"); do
        grep -q "^$name " "$here/pjdfstest.excludes" && { excluded=$((excluded + 1)); continue; }
        # The kernel remounts nothing while the last close of a removed file is under way, and sends
        # that behind the program's back.
        if [[ $name = *erofs* ]]; then
            for _ in 1 2 3 4 5; do sleep 0.3; pjdfstest "$name" 2>&1 | grep -qE "^$name +ok$" && { again=$((again + 1)); continue 2; }; done
        fi
        bad+=" $name"
    done
    rm -rf $second
    if [ -n "$sum" ] && [ -z "$bad" ]; then result "pjdfstest: ${sum##*, }, of which $excluded excluded and $again passed when tried again" ok; else result pjdfstest fail "${sum:-did not end}:$bad"; fi
fi

needs() { # NAME PROGRAM...: false, and a skip, if one is missing
    local name=$1 p; shift
    is_wanted "$name" || return 1
    for p; do command -v "$p" > /dev/null || { result "$name" skip "no $p"; return 1; }; done
}
# A text for bash, run in an empty directory of the mount: it must succeed.
inside() { # NAME SECONDS COMMAND
    rm -rf "$mount/t"; mkdir "$mount/t"
    if (cd "$mount/t" && limit "$2" bash -ec "$3" > "$work/log" 2>&1 < /dev/null); then result "$1" ok
    else result "$1" fail "status $?"; tail -n "${T_LINES:-20}" "$work/log" | show; fi
    rm -rf "$mount/t"
}
export IN=$work/in MIB PLAIN=$work/plain HERE=$here

if needs fio fio; then
    fio="fio --name=j --directory=. --size=${MIB}m --verify=crc32c --verify_fatal=1 --do_verify=1 --fallocate=none --output-format=terse --randrepeat=1"
    inside "fio psync, one file by four" 60 "$fio --ioengine=psync --filename=shared --rw=write --bs=47001 --numjobs=4 --offset_increment=${MIB}m"
    inside "fio psync, random and unaligned" 60 "$fio --ioengine=psync --rw=randwrite --bsrange=1k-64k --bs_unaligned --numjobs=2 --fsync=64"
    inside "fio libaio, direct" 60 "$fio --ioengine=libaio --direct=1 --iodepth=16 --rw=randrw --bs=16k"
    inside "fio io_uring" 60 "$fio --ioengine=io_uring --iodepth=16 --rw=randwrite --bs=8k"
    inside "fio mmap" 60 "$fio --ioengine=mmap --rw=randwrite --bs=4k"
fi
if needs git git; then
    inside "git clone, commit, gc, fsck" 120 'export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
        git clone -q --no-local --depth 5 "file://$(git -C "$HERE" rev-parse --show-toplevel)" c && cd c && git fsck && for i in 1 2 3; do echo $i > file$i; git add file$i; git commit -qm $i; done
        git gc -q && git fsck --full && [ -z "$(git status --porcelain)" ] && git clone -q . ../d && cd ../d && git log --format=%s | head -1 | grep -qx 3'
fi
if needs sqlite3 sqlite3; then
    for journal in delete truncate persist memory wal off; do
        inside "sqlite3, journal mode $journal" 60 "sqlite3 db 'pragma journal_mode = $journal; create table t (a integer primary key, b text); with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) insert into t select i, printf(\"%.*c\", i % 300, \"x\") from n;'
            sqlite3 db 'update t set b = b || \"y\" where a % 3 = 0; delete from t where a % 7 = 0; create index i on t (b);'
            (for i in 1 2 3 4; do sqlite3 db \"pragma busy_timeout = 20000; insert into t (b) values ('\$i')\" & done; wait) > /dev/null
            [ \"\$(sqlite3 db 'pragma integrity_check; select count(*) from t')\" = \"ok
2576\" ]"
    done
fi

# A tree with all that archives keep: modes, times, links, attributes, holes, odd names.
tree() {
    mkdir -p "$IN/tree/deep/er" && cd "$IN/tree" || return
    cp -r "$HERE" tests; cp /etc/passwd deep/er/; ln deep/er/passwd hard; ln -s deep/er/passwd soft; ln -s /no/where dangling; mkfifo pipe
    truncate -s 3M sparse; printf end >> sparse; : > empty; printf x > $'odd \n name'; chmod 4755 hard; chmod 1777 deep; mkdir -m 700 closed; chown nobody:nogroup empty
    setfattr -n user.test -v value empty; setfattr -n user.dir -v value deep
    touch -h -d @86400.123456789 soft; find . -exec touch -h -d @1000000000.987654321 {} +
}
if is_wanted archives; then
    (tree) || result tree fail
    show='find . -printf "%P %y %m %U %G %T@ %l " \( -type d -o -printf "%n %s" \) -printf "\n" | sort; find . -type f -print0 | sort -z | xargs -0 md5sum; getfattr -Rhd -m user . 2> /dev/null'
    same() { # NAME COMMAND: makes a copy of $IN/tree called copy
        inside "$1" 60 "$2"'; (cd "$IN/tree"; '"$show"') > $PLAIN/a; (cd copy; '"$show"') > $PLAIN/b; diff $PLAIN/a $PLAIN/b'
    }
    needs archives cp && same "cp -a" 'cp -a $IN/tree copy'
    needs archives cp && same "cp -a, out again" 'cp -a $IN/tree c; rm -rf $IN/back; cp -a c $IN/back; ln -s $IN/back copy'
    needs archives tar && same "tar" 'tar --xattrs --numeric-owner -C $IN -cf t.tar tree; tar --xattrs --numeric-owner -xpf t.tar; mv tree copy'
    needs archives rsync && same "rsync -aHX" 'rsync -aHX $IN/tree/ copy; rsync -aHX --delete $IN/tree/ copy; [ -z "$(rsync -aHXin $IN/tree/ copy)" ]'
fi

# A build as kernels and libraries are built: configure, compile in parallel, archive, link, run.
if needs build gcc make ar cargo; then
    src=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/libz-sys-*/src/zlib 2> /dev/null | head -1)
    if [ -z "$src" ]; then
        mkdir -p "$work/fetch/src" && printf '[package]\nname = "f"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nlibz-sys = "=1.1.20"\n' > "$work/fetch/Cargo.toml" && : > "$work/fetch/src/lib.rs"
        (cd "$work/fetch" && limit 120 cargo fetch) > "$work/fetch.log" 2>&1
        src=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/libz-sys-*/src/zlib 2> /dev/null | head -1)
    fi
    if [ -n "$src" ]; then
        inside "build of zlib" 150 "cp -r '$src' z && cd z && rm -f zconf.h.cmakein; if [ -f configure ]; then sh ./configure; fi
            for c in adler32 compress crc32 deflate gzclose gzlib gzread gzwrite infback inffast inflate inftrees trees uncompr zutil; do echo \"\$c.o: \$c.c\"; echo \"	gcc -O1 -D_GNU_SOURCE -DHAVE_UNISTD_H -DHAVE_STDARG_H -c \$c.c\"; o=\"\$o \$c.o\"; done > own.mk
            printf 'libown.a:%s\n\tar rcs libown.a%s\n' \"\$o\" \"\$o\" > top.mk; cat top.mk own.mk > all.mk; make -f all.mk -j2 libown.a
            printf '#include <assert.h>\n#include <string.h>\n#include \"zlib.h\"\nint main(){char a[99999],b[99999],c[99999];unsigned long n=sizeof b,m=sizeof c;memset(a,7,sizeof a);assert(!compress((void*)b,&n,(void*)a,sizeof a));assert(!uncompress((void*)c,&m,(void*)b,n));return memcmp(a,c,sizeof a);}' > t.c
            gcc -o t t.c libown.a && ./t"
    else result build skip "no sources of zlib: $(tail -1 "$work/fetch.log")"; fi
fi

# Everything that stresses file systems, each for a moment, a fifth of it in a run: nothing may hang
# or fail.
if needs stress stress-ng; then
    # Left out: what needs a file system of its own kind, or writes outside of it.
    left_out=$(sed 's/[[:space:]].*//' "$here/stress.excludes" | grep . | paste -sd,)
    list=$(stress-ng --class filesystem? 2>&1 | sed -n "s/^class 'filesystem' stressors: //p" | tr ' ' '\n' | grep -vxF "$(tr , '\n' <<< "$left_out")")
    hung='' without=0 number=0 tried=0
    for one in $list; do
        is_in_turn $((number++)) || continue
        tried=$((tried + 1))
        limit $((STRESS_S + 40)) stress-ng --$one 2 --timeout ${STRESS_S}s --temp-path "$mount" > "$work/stress.log" 2>&1
        case $? in
            0) ;;
            3 | 4) without=$((without + 1)) ;; # no resources, not implemented: the stressor itself cannot run here
            *) hung+=" $one"; tail -5 "$work/stress.log" | show ;;
        esac
    done
    if [ -n "$list" ] && [ -z "$hung" ]; then result "stress-ng: $((tried - without)) file system stressors one by one, $without cannot run here" ok
    else result stress-ng fail "${hung:-none ran}"; fi
    # Who waits for whom shows only with all of them in one directory.
    # When they are told to end they remove what they made.
    limit $((STRESS_ALL_S + 240)) stress-ng --class filesystem --all 1 --exclude "$left_out" --timeout ${STRESS_ALL_S}s --temp-path "$mount" > "$work/stress.log" 2>&1
    status=$?
    stuck=$(ps -eo stat=,args= | awk '/^D/ && /stress-ng/')
    if [ $status != 124 ] && [ $status != 137 ] && [ -z "$stuck" ] && limit 20 ls "$mount" > /dev/null; then result "stress-ng: class filesystem, all at once for $STRESS_ALL_S s" ok
    else result "stress-ng: class filesystem, all at once" fail "status $status ${stuck:+waiting: $stuck}"; tail -5 "$work/stress.log" | show; fi
fi

if is_wanted check; then
    down; up
    lost=$("$plfs" log "$mount" | grep -c 'a bug:')
    down
    if [ "$lost" = 0 ] && "$plfs" check "$work/backend" > "$work/check.log" 2>&1; then result "what is left is healthy" ok; else result "what is left is healthy" fail "$(tail -3 "$work/check.log")"; fi
fi
