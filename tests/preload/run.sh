#!/bin/bash
# tests/preload/run.sh BUILD_DIR [TEST...]
#
# Proves: libc's file calls in a managed directory with the preload library answer as on a plain directory
# Takes 430 s
# BUILD_DIR holds lib/libplfs.so and lib/plfs/libplfs_preload.so. Each test (t_*.c, s_*.sh) runs in
# an empty directory, plain and in a managed directory with the preload library, there with the
# workloads shared and auto, some also while their files are promoted (promoter.c); output and the
# files left behind must be the same. only_*.c run there alone.
# Environment: T_DIR, where the directories are made (default /tmp); T_TIMEOUT_S, seconds for one
# test (default 120); T_WORKLOAD, of the managed directory (also small, flat, and promoted: auto,
# beside the promoter); PLFS_PROMOTED_ROUNDS, how often beside it (default 1).
set -u
build=$(realpath "$1") && shift || exit 2
here=$(dirname "$(realpath "$0")")
preload=$build/lib/plfs/libplfs_preload.so
[ -e "$preload" ] || { echo "no $preload"; exit 2; }
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-preload-test.XXXXXX")
memory=/dev/shm/$(basename "$work")
# Users come here, too.
chmod 755 "$work"
trap 'rm -rf "$work" "$memory"' EXIT
wanted=" $* "
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
export T_BIN=$work/bin LC_ALL=C TZ=UTC
# Who looks for a name reads the links on its way, which have that as their last access; and a file
# may lie on tmpfs.
[ "${T_WORKLOAD:-}" != flat ] || export T_LINKS_ARE_READ=1 T_ALSO_TMPFS=1
mkdir "$T_BIN"
limit="timeout -k 5 ${T_TIMEOUT_S:-120}"

workload=$PLFS_WORKLOAD
shimmed() { env LD_PRELOAD="$preload" PLFS_MOUNTS="$work/mount" PLFS_WORKLOAD="${workload/promoted/auto}" "$@"; }

# The environment in which what a program calls is noted, while it runs plain: `tested_calls`.
# t_signal's handlers leave the auditor by siglongjmp; beside it getopt does not see opterr of
# t_stream; t_numbers puts its files where the auditor has its own; scripts run programs of others.
mkdir "$work/called"
auditor() { # NAME
    case $1 in
        t_signal | t_stream | t_numbers | s_*) echo T_AUDIT= ;;
        *) echo LD_AUDIT="$work/audit.so" ;;
    esac
}
gcc -D_GNU_SOURCE -shared -fPIC -O1 -Wall -Wextra -Werror -o "$work/audit.so" "$here/audit.c" || exit 2

# Over two file systems.
make_flat() {
    rm -rf "$work/backend" "$memory"; mkdir -p "$work/backend" "$memory"
    workload=auto
    "$build/bin/plfs" run --mount "$work/mount" -- true
    for backend in "$work/backend" "$memory"; do
        "$build/bin/plfs" backend add "$work/mount" "$backend" > /dev/null
    done
    PLFS_MOUNTS=$work/mount python3 -c 'import ctypes, sys; sys.exit(-ctypes.CDLL(sys.argv[1]).plfs_make_flat(sys.argv[2].encode()))' \
        "$build/lib/libplfs.so" "$work/mount/t" || echo "plfs_make_flat: error $?" >&2
}

# Type, mode, links and size (not of directories) and checksum of all that is below the current
# directory.
dump='find . -mindepth 1 | sort | while read -r f; do
        stat -c "%n %F %a $([ -d "$f" ] || stat -c "%h %s" "$f")" "$f"; if [ -f "$f" ]; then cksum < "$f"; fi
      done'

# What takes two seconds of a processor and more.
long=" t_found t_numbers t_description t_forks t_search t_spawn t_last t_library t_ends t_stack t_signal t_actions t_leaves t_open
    t_environment s_mpi s_java s_programs s_cxx s_fio s_coreutils s_python s_archive s_git "
# What has files open over time: once more while they are promoted. 17 s together.
promoted=" t_aio t_ends t_exchanged t_fork_size t_forks t_handed t_killed t_last t_leaves t_linked t_lock t_lock_passed t_lock_shared t_mmap t_nameless t_noticed t_open
    t_process t_rw t_signal t_stdio t_stream t_threads t_together t_variants s_perl s_removed s_shell s_shell2 "
# What cannot be the same then.
why_not_promoted() { # NAME
    case $1 in
        t_names | t_passed | s_archive | s_coreutils | s_python) echo "prints link counts: one more while a file becomes a container" ;;
        t_actions | t_search | t_spawn | t_stack | s_programs) echo "runs what it has just written: ETXTBSY while the promoter has it open" ;;
        t_full_table) echo "fills its table: calls on containers can get EMFILE (D6)" ;;
    esac
}
workloads_of() { # NAME
    if [ "${T_WORKLOAD:-}" != promoted ]; then
        if [ -n "${T_WORKLOAD:-}" ]; then echo "$T_WORKLOAD"; return
        elif [[ $long = *" $1 "* ]]; then one_workload "$(wc -w <<< "${long%%" $1 "*}")"
        else echo shared auto; fi
        [[ $promoted = *" $1 "* ]] || return
    fi
    yes promoted | head -n "${PLFS_PROMOTED_ROUNDS:-1}"
}

# Runs it plain, and in a managed directory: once for files that are containers from the start, once
# for files that are plain until others write them, and some once more beside a program that opens
# all files for writing, so that each is promoted at any moment. What it calls is noted in the plain
# run.
run_compared() { # NAME COMMAND...
    local name=$1 plain=0 door workload=$workload beside why failed=; shift
    why=$(why_not_promoted "$name")
    if [ "${T_WORKLOAD:-}" = promoted ] && [ -n "$why" ]; then result "$name" skip "$why"; return; fi
    rm -rf "$work/plain"; mkdir -p "$work/plain/t"
    (cd "$work/plain/t" && T_HERE=$PWD T_MANAGED=$work/plain T_CALLS=$work/called/$name $limit env "$(auditor "$name")" "$@" < /dev/null > "$work/plain.out" 2> "$work/plain.err") || plain=$?
    if [ $plain = 77 ]; then result "$name" skip "$(tail -1 "$work/plain.err")"; return; fi
    # What dies on both sides is no comparison.
    if [ $plain -ge 124 ]; then result "$name" fail "exit $plain on a plain directory"; return; fi
    (cd "$work/plain/t" && bash -c "$dump") >> "$work/plain.out" 2>&1
    for workload in $(workloads_of "$name"); do
        # But for containers of programs that were killed.
        [ -d "$work/mount" ] && workload=auto shimmed rm -rf "$work/mount" 2> /dev/null
        rm -rf "$work/mount"; mkdir -p "$work/mount/t"
        if [ "$workload" = small ]; then
            # Which a directory is by its layout only.
            workload=auto
            shimmed true
            "$build/bin/plfs" layout --workload small "$work/mount/t" > /dev/null
        fi
        [ "$workload" != flat ] || make_flat
        beside=()
        [ "$workload" != promoted ] || beside=("$T_BIN/promoter")
        door=0
        (cd "$work/mount/t" && T_HERE=$PWD T_MANAGED=$work/mount shimmed "${beside[@]}" $limit "$@" < /dev/null > "$work/mount.out" 2> "$work/mount.err") || door=$?
        (cd "$work/mount/t" && shimmed bash -c "$dump") >> "$work/mount.out" 2>&1
        [ $plain = $door ] && cmp -s "$work/plain.out" "$work/mount.out" && continue
        failed+=" exit $plain plain, $door mounted ($workload)"
        diff "$work/plain.out" "$work/mount.out" | head -n "${T_LINES:-15}" | show
        head -5 "$work/mount.err" | show
    done
    result "$name" "$([ -z "$failed" ] && echo ok || echo fail)" "$failed"
}

# A function of another library is bound at its first call: `tested_calls` needs that.
compile() { # NAME [PROGRAM FLAG...]
    gcc -std=gnu11 -D_GNU_SOURCE -g -O1 -w -Wl,-z,lazy "${@:3}" -o "$T_BIN/${2:-$1}" "$here/$1.c" -pthread
}
compile promoter || exit 2

for source in "$here"/t_*.c "$here"/only_*.c; do
    name=$(basename "$source" .c)
    is_wanted "$name" || continue
    if ! compile "$name"; then
        result "$name" fail "does not compile"
        continue
    fi
    case $name in
        t_*) run_compared "$name" "$T_BIN/$name" ;;
        *)
            rm -rf "$work/mount"; mkdir -p "$work/mount/t"
            out=$(cd "$work/mount/t" && T_HERE=$PWD T_MANAGED=$work/mount shimmed $limit "$T_BIN/$name" 2>&1)
            result "$name" "$([ $? = 0 ] && echo ok || echo fail)" "$out" ;;
    esac
done
for script in "$here"/s_*.sh; do
    name=$(basename "$script" .sh)
    is_wanted "$name" && run_compared "$name" bash "$script"
done

# Beside a library that replaces malloc or the clock, in front of the preload library and behind it;
# and in a program with AddressSanitizer or ThreadSanitizer, which ended before it began.
if is_wanted beside; then
    export ASAN_OPTIONS=detect_leaks=0
    for library in libjemalloc.so.2 libtcmalloc_minimal.so.4 libfaketime.so.1 asan tsan tsan_static; do
        found=$(find /usr/lib -name "$library" | head -1) flags=() failed=
        if [ $library = asan ]; then flags=(-fsanitize=address)
        elif [ $library = tsan ]; then flags=(-fsanitize=thread)
        elif [ $library = tsan_static ]; then flags=(-fsanitize=thread -static-libtsan)
        elif [ -z "$found" ]; then result "beside $library" skip "it is not installed"; continue; fi
        for name in t_stdio t_threads; do
            # libfaketime has a descriptor of its own, and t_stdio prints numbers of descriptors.
            [ "$library $name" != "libfaketime.so.1 t_stdio" ] || continue
            # ThreadSanitizer says something of each thread that is cancelled in a call, also plain.
            [[ "$library $name" != tsan*t_threads ]] || continue
            program=$T_BIN/$name.beside
            compile "$name" "$name.beside" "${flags[@]}" || { failed+=" $name does not compile"; continue; }
            rm -rf "$work/plain"; mkdir -p "$work/plain/t"
            (cd "$work/plain/t" && T_HERE=$PWD T_MANAGED=$work/plain LD_PRELOAD=$found $limit "$program" < /dev/null > "$work/plain.out" 2> "$work/plain.err") || failed+=" $name: exit $? plain"
            for order in "$found:\$LD_PRELOAD" "\$LD_PRELOAD:$found"; do
                rm -rf "$work/mount"; mkdir -p "$work/mount/t"
                (cd "$work/mount/t" && T_HERE=$PWD T_MANAGED=$work/mount PLFS_WORKLOAD=$workload "$build/bin/plfs" run --mount "$work/mount" -- \
                    $limit bash -c "LD_PRELOAD=$order exec $program" < /dev/null > "$work/mount.out" 2> "$work/mount.err") || failed+=" $name: exit $?, $order"
                cmp -s "$work/plain.out" "$work/mount.out" && continue
                failed+=" $name differs, $order"
                head -5 "$work/mount.err" | show
            done
        done
        case $library in tsan*)
            printf 'text\n' > "$work/said"
            compile beside beside.beside "${flags[@]}" || failed+=" beside does not compile"
            for way in "" "env -u TSAN_OPTIONS LD_LIBRARY_PATH=$work PLFS_DEBUG=1" "env -i"; do
                # What is linked to the program has what it is told from TSAN_OPTIONS alone.
                [ "$library $way" != "tsan_static env -i" ] || continue
                [ $library = tsan ] || way=${way/-u TSAN_OPTIONS/}
                rm -rf "$work/mount"; mkdir -p "$work/mount/t"
                said=$(cd "$work/mount/t" && PLFS_WORKLOAD=$workload "$build/bin/plfs" run --mount "$work/mount" -- \
                    sh -c "cp $work/said in; $limit $way $T_BIN/beside.beside < in > out; echo \$?; cat out" 2>&1 | xargs)
                [ "$said" = "0 0 text" ] || failed+=" $way beside: ${said:0:200}"
            done
        esac
        # AddressSanitizer takes the order also where the program says other things to it, or
        # nothing of an environment is left.
        if [ $library = asan ]; then
            rm -rf "$work/mount"; mkdir -p "$work/mount/t"
            printf '#include <stdio.h>\nint main(void) { return puts("runs") < 0; }\n' | gcc -fsanitize=address -x c -o "$work/runs" -
            said=$("$build/bin/plfs" run --mount "$work/mount" -- sh -c "env -u ASAN_OPTIONS $work/runs; ASAN_OPTIONS=color=never $work/runs; env -i $work/runs" 2>&1 | xargs)
            [ "$said" = "runs runs runs" ] || failed+=" environments: $said"
        fi
        result "beside $library" "$([ -z "$failed" ] && echo ok || echo fail)" "$failed"
    done
    unset ASAN_OPTIONS
fi

# calls.def names exactly what the library exports.
if is_wanted calls; then
    list=$(awk '$1 == "wrap" { print $2 }' "$here/../../preload/calls.def" | sort)
    if difference=$(diff <(echo "$list") <(nm -D --defined-only "$preload" | awk '$3 !~ /^__[at]san_/ { print $3 }' | sort)); then
        result calls ok
    else
        result calls fail "$difference"
    fi
fi

# own_stack.def says of each function of libplfs that the preload library calls on which stack.
if is_wanted stacks; then
    list=$(sed -n 's/^\(OWN\|CALLERS\)_STACK(\(.*\))$/\2/p' "$here/../../preload/own_stack.def" | sort)
    if difference=$(diff <(echo "$list") <(nm -D --undefined-only "$preload" | awk '$2 ~ /^plfs_/ { print $2 }' | sort)); then
        result stacks ok
    else
        result stacks fail "$difference"
    fi
fi

# Each of these names is called by a program of this directory, and so is each that is left to libc,
# rightly or not; but for what only root may do, or needs another host, atexit, which is no function
# of the shared libc, and system calls without a function of libc, which only_missed makes by their
# numbers. fscanf and its kin have other names there. Who was not asked for, or could not be watched
# before, runs in a managed directory for it: first whose text has a name that is missing, the
# others if that was not enough.
untested() {
    awk '$1 == "wrap" || $1 == "miss" || $1 == "pass" && !/for the administrator|for the kernel/ { print $2 }' "$here/../../preload/calls.def" |
        grep -vFx -e atexit -e lckpwdf -e rcmd_af -e rexec_af \
            -e io_uring_setup -e io_uring_enter -e io_uring_register -e io_submit -f <(cat "$work"/called/* 2> /dev/null | sed 's/^__isoc[0-9]*_//')
}
if is_wanted tested_calls; then
    for text in "" any; do
        for source in "$here"/t_*.c "$here"/only_*.c; do
            name=$(basename "$source" .c)
            { [ "$name" = t_signal ] || [ -e "$work/called/$name" ]; } && continue
            missing=$(untested)
            [ -n "$missing" ] || break
            [ -n "$text" ] || grep -qwFf <(echo "$missing") "$source" || continue
            [ -e "$T_BIN/$name" ] || compile "$name" || continue
            rm -rf "$work/audited"; mkdir -p "$work/audited/t"
            (cd "$work/audited/t" && T_HERE=$PWD T_MANAGED=$work/audited T_CALLS=$work/called/$name \
                shimmed env LD_AUDIT="$work/audit.so" PLFS_MOUNTS="$work/audited" $limit "$T_BIN/$name" < /dev/null > /dev/null 2>&1)
        done
    done
    missing=$(untested)
    result tested_calls "$([ -z "$missing" ] && echo ok || echo fail)" "no test calls $(xargs <<< "$missing")"
fi

# And each function of libc that makes file calls inside libc. Read on x86-64, where the list is as
# long as anywhere.
if is_wanted libc_calls; then
    libc=$(ldconfig -p | awk '$1 == "libc.so.6" && /x86-64/ { print $NF; exit }')
    if [ -z "$libc" ]; then
        result libc_calls skip "reads x86-64's instructions"
    elif difference=$(python3 "$here/libc_calls.py" "$here/../../preload/calls.def" "$libc"); then
        result libc_calls ok
    else
        result libc_calls fail "not in calls.def: $difference"
    fi
fi

# Where a thread can be cancelled (pthreads(7)) libplfs gets by our wrappers only, which know it. Of
# the rest std calls pause and poll at the ends of a program, write and writev when it panics.
if is_wanted cancellation_points; then
    points='accept aio_suspend creat epoll_wait fcntl fcntl64 fdatasync flock fsync lockf mq_receive
        mq_send msgrcv msgsnd msync nanosleep open openat openat64 ppoll pread pread64 preadv
        preadv64 pselect pthread_cond_timedwait pthread_cond_wait pthread_testcancel pwrite
        pwrite64 pwritev pwritev64 readv recv recvfrom recvmsg select sem_timedwait sem_wait send
        sendmsg sendto sigpause sigsuspend sigtimedwait sigwait sigwaitinfo sleep splice
        sync_file_range system tcdrain usleep wait wait3 wait4 waitid waitpid'
    imported=$(nm -D --undefined-only "$build/lib/libplfs.so" | sed 's/.* U //; s/@.*//' |
        grep -Fx -f <(tr -s ' \n' '\n' <<< "$points" | grep .))
    result cancellation_points "$([ -z "$imported" ] && echo ok || echo fail)" "$imported"
fi
