# shellcheck shell=bash
# Sourced by the suites that run programs of others on a plain directory and under `plfs run`, and
# compare what they say and leave. After tests/lib.sh; $build and $work are set.
# shellcheck disable=SC2154

door() { "$build/bin/plfs" run --mount "$work/mount" -- "$@"; }
limit() { timeout -k 5 ${T_TIMEOUT_S:-900} "$@"; }
dump='find . -type f | sort | xargs -d "\n" -r md5sum; find . | sort | xargs -d "\n" -r stat -c "%n %F %a %h"; find . -type f | sort | xargs -d "\n" -r stat -c "%n %s"'

# NAME COMMAND: a text for bash, run in an empty directory: plain, and with each workload, or one by
# the seed if $one_workload is set.
same() {
    local name=$1 plain=0 ours PLFS_WORKLOAD workloads="shared auto"
    turn=$((${turn:-0} + 1))
    [ -z "${one_workload:-}" ] || workloads=$(one_workload $turn)
    is_wanted "${name%% *}" || return 0
    rm -rf "$work/plain"
    mkdir -p "$work/plain/d"
    (cd "$work/plain/d" && limit bash -c "$2" > "$work/plain.out" 2>&1 < /dev/null; s=$?; bash -c "$dump" >> "$work/plain.out" 2>&1; exit $s) || plain=$?
    [ $plain = 0 ] || { result "$name" fail "status $plain without PLFS: $(tail -2 "$work/plain.out")"; return; }
    for PLFS_WORKLOAD in $workloads; do
        export PLFS_WORKLOAD
        ours=0
        [ -d "$work/mount" ] && door rm -rf "$work/mount/d"
        rm -rf "$work/mount"
        mkdir -p "$work/mount/d"
        (cd "$work/mount/d" && door timeout -k 5 ${T_TIMEOUT_S:-900} bash -c "$2" > "$work/ours.out" 2>&1 < /dev/null; s=$?; door bash -c "$dump" >> "$work/ours.out" 2>&1; exit $s) || ours=$?
        sed -i "s|$work/mount|$work/plain|g" "$work/ours.out"
        if [ $ours != 0 ] || ! cmp -s "$work/plain.out" "$work/ours.out"; then
            result "$name" fail "status $plain plain, $ours through PLFS ($PLFS_WORKLOAD)"
            diff "$work/plain.out" "$work/ours.out" | head -n "${T_LINES:-15}" | show
            return
        fi
        # The comparison means nothing if the files went past PLFS.
        if [[ $PLFS_WORKLOAD = shared && $name != fio\ verify* ]] && [ -z "$(find "$work/mount/.plfs" -name '*.data' 2>/dev/null | head -1)" ]; then
            result "$name" fail "left no data in a container"
            return
        fi
    done
    result "$name" ok
}
needs() { # NAME PROGRAM...: false, and a skip, if one is missing
    local name=$1 p; shift
    is_wanted "$name" || return 1
    for p; do command -v "$p" > /dev/null || { result "$name" skip "no $p"; return 1; }; done
}
