#!/bin/bash
# tests/stress/run.sh BUILD_DIR [TEST...]
#
# Proves: threads, signals, forks, dup2 and streams at random give under the preload library what they give on plain files, and ThreadSanitizer sees no race in it
# Takes 100 s
# The program makes each call on twins: a file of a managed directory and one of a plain directory.
# The tests are the workloads shared and auto, each PLFS_STRESS_S seconds (25) in rounds of 5 or, if
# there is time for many, of 20: a new process with the next seed. Then the two directories have
# the same files for another process, and the containers are healthy. So that a minute costs the
# machine little, a round has PLFS_STRESS_PERCENT of one processor (25).
#
# tsan: the same with the door's own sources compiled with -fsanitize=thread. libtsan comes behind
# the door in the order in which names are looked up: so it sees the calls that the door makes, and
# the door sees those of the program as always. libplfs is not compiled with it, and what that calls
# in libc is left out (tsan.supp). So are races about the number of a descriptor: libtsan takes it
# for a race when a number is given out again whose close it has not seen, and the door closes its
# own by system call, libc those of streams by itself. Rounds without forks (odd seeds) only: after
# a fork of a process with threads ThreadSanitizer watches nothing.
set -u
build=$(realpath "$1") && shift || exit 2
here=$(dirname "$(realpath "$0")")
preload=$build/lib/plfs/libplfs_preload.so
[ -e "$preload" ] || { echo "no $preload"; exit 2; }
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-stress.XXXXXX")
trap 'rm -rf "$work"' EXIT
wanted=" $* "
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
export LC_ALL=C TZ=UTC
seed=${PLFS_SEED:-$RANDOM} seconds=${PLFS_STRESS_S:-25} percent=${PLFS_STRESS_PERCENT:-25}
round=5
[ "$seconds" -lt 120 ] || round=20

compile() { # OUTPUT OPTION...
    gcc -std=gnu11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-unused-result -Wno-stringop-overflow "${@:2}" -o "$1" "$here"/*.c -pthread
}

# One round; 0 if there was no difference. What it said is in $work/said.
run_round() { # DOOR SEED SECONDS LIBRARY PROGRAM PERCENT
    rm -rf "$work/mount" "$work/plain"
    mkdir -p "$work/mount/t" "$work/plain"
    local in_mount=(env PLFS_WORKLOAD="$1" PLFS_MOUNTS="$work/mount")
    (cd "$work/mount/t" && timeout -k 5 $(($3 + 150)) "${in_mount[@]}" PLFS_STRESS_PRELOAD="$preload" LD_PRELOAD="$4" \
        "$5" "$work/plain" "$2" "$3" "$6" < /dev/null > /dev/null 2> "$work/said") || return 1
    # By another process. Records that are written at once have an order of their own on each side.
    "${in_mount[@]}" LD_PRELOAD="$preload" diff -r -x log -x position -x 'flip-*' -x read \
        "$work/mount/t" "$work/plain/twin" >> "$work/said" 2>&1 || return 1
    "$build/bin/plfs" check "$work/mount" > "$work/check" 2>&1 || { cat "$work/check" >> "$work/said"; return 1; }
}

compile "$work/stress" || { result stress fail "does not compile"; exit 0; }
for door in shared auto; do
    is_wanted "$door" || continue
    failed_at='' steps=0
    for ((n = 0; n * round < seconds; n++)); do
        if ! run_round "$door" $((seed + n)) $round "$preload" "$work/stress" "$percent"; then
            failed_at=$((seed + n))
            break
        fi
        steps=$((steps + $(awk '/^explored/ { print $2 }' "$work/said")))
    done
    if [ -z "$failed_at" ]; then
        result "$door" ok
        explored $steps "steps on twins"
    else
        result "$door" fail "PLFS_SEED=$failed_at PLFS_STRESS_S=5 tests/run stress/$door"
        tail -n "${T_LINES:-40}" "$work/said" | show
    fi
done

is_wanted tsan || exit 0
mkdir -p "$work/tsan/plfs"
cp -a "$build"/lib/libplfs.so* "$work/tsan"
# These libtsan itself calls before it is ready.
echo '{ global: *; local: setrlimit; setrlimit64; mmap; mmap64; mkdir; };' > "$work/exported"
if ! make -s -C "$here/../../preload" OUT="$work/tsan/plfs" PLFS_INC="$here/../../crates/plfs-capi/include" PLFS_LIB="$build/lib" CC=gcc \
        CFLAGS='-O1 -g -fsanitize=thread -Wno-tsan' LDFLAGS="-Wl,--version-script=$work/exported" > "$work/said" 2>&1 ||
    ! compile "$work/stress.tsan" -fsanitize=thread >> "$work/said" 2>&1; then
    result tsan fail "does not compile"
    show < "$work/said"
    exit 0
fi
# The program has no descriptor 2 of its own, so reports go to a file.
export TSAN_OPTIONS="suppressions=$here/tsan.supp exitcode=0 report_signal_unsafe=0 die_after_fork=0 log_path=$work/report"
why=''
# Prints the reports that are not about the number of a descriptor.
races() {
    cat "$work"/report.* 2> /dev/null | awk '
        /^==================$/ { if (said ~ /WARNING/ && said !~ /Location is file descriptor/) printf "%s", said; said = ""; next }
        { said = said $0 "\n" }'
}
# One of the two a run, by the seed.
number=0
for door in shared auto; do
    is_in_turn $((number++)) 2 || continue
    run_round "$door" $((seed | 1)) 4 "$work/tsan/plfs/libplfs_preload.so" "$work/stress.tsan" 60 || why="$door, PLFS_SEED=$((seed | 1))"
    races > "$work/reports"
    [ ! -s "$work/reports" ] || why="$door, PLFS_SEED=$((seed | 1))"
    [ -z "$why" ] || break
done
# And it would say something: of a race on purpose.
rm -f "$work"/report.*
mkdir "$work/race" && (cd "$work/race" && PLFS_STRESS_RACE=1 "$work/stress.tsan" "$work/race" 1 1 > /dev/null 2>&1)
races | grep -q 'data race' || why+=" ThreadSanitizer is not on"
nm -D --undefined-only "$work/tsan/plfs/libplfs_preload.so" | grep -q __tsan_write8 || why+=" ThreadSanitizer is not on in the library"
result tsan "$([ -z "$why" ] && echo ok || echo fail)" "$why"
[ -z "$why" ] || { tail -n 5 "$work/said"; head -n 60 "$work/reports"; } | show
