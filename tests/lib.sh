# shellcheck shell=bash
# Sourced by the suites (tests/*/run.sh): how they tell what became of a test, in the lines that
# tests/run counts. The tests asked for are in $wanted, with blanks around (" $* ").
# shellcheck disable=SC2034 # read where this is sourced
failed=
# What somebody has in ~/.plfsrc or /etc/plfsrc is not what is tested.
export PLFSRC=
# What most suites test are containers; tests of files that are plain until others write them say
# so.
export PLFS_WORKLOAD=${PLFS_WORKLOAD-shared}

result() { # NAME ok|skip|fail [DETAIL]
    case $2 in
        ok) echo "ok $1" ;;
        skip) echo "skip $1: $3" ;;
        *) failed=yes; echo "not ok $1${3:+: ${3//$'\n'/$'\n'    }}" ;;
    esac
}
# A test in a shell of its own, so that its `set -e` holds everywhere. The first command that fails
# ends it and is told; what it prints is in $work/log.
in_own_shell() { # DIR SCRIPT
    timeout -k 5 "${T_TIMEOUT_S:-120}" bash -eEuc "set -o pipefail
        trap 'echo \"failed: \$BASH_COMMAND\" >&2' ERR
        cd '$1'; $2" > "${work:?}/log" 2>&1 < /dev/null
}
# Runs the functions t_NAME that are wanted, each in an empty directory of its own and a shell that
# has all functions. One that cannot run here writes why to $work/skip, and ends with 77.
run_functions() {
    local functions name status
    mapfile -t functions < <(declare -F | awk '{ print $3 }')
    export -f "${functions[@]}"
    for name in $(declare -F | awk '$3 ~ /^t_/ { print substr($3, 3) }'); do
        is_wanted "$name" || continue
        mkdir "$work/$name"
        status=0
        in_own_shell "$work/$name" "t_$name" || status=$?
        case $status in
            0) result "$name" ok ;;
            77) result "$name" skip "$(cat "$work/skip")" ;;
            *) result "$name" fail "exit $status: $(tail -5 "$work/log")" ;;
        esac
        rm -rf "${work:?}/$name"
    done
}
# For them: ends the test; fails unless the command does.
fail() { echo "failed: $*" >&2; exit 1; }
fails() { # COMMAND...
    local status=0
    "$@" || status=$?
    [ $status != 0 ] || fail "exit 0: $*"
}
# By the whole name or by its first word; all if nobody asked.
is_wanted() { [[ ${wanted:-  } = "  " || $wanted = *" ${1%% *} "* || $wanted = *" $1 "* ]]; }
# What a program said, for people: no line of it is taken for a result.
show() { sed 's/^/    /'; }
# What a random test covered; tests/run prints the sums.
explored() { # NUMBER WHAT
    [ -z "${PLFS_EXPLORED:-}" ] || echo "$1 $2" >> "$PLFS_EXPLORED"
}
# Of what is tried in many ways, a run takes every fifth one, or every EVERY-th, by its seed; all if
# T_FULL=1 or if it was asked for by name. The ways have numbers. tests/turns.py is the same for
# Python, in_turn of plfs-testkit for Rust.
is_in_turn() { # NUMBER [EVERY]
    [ "${T_FULL:-}" = 1 ] || [ -n "${wanted// /}" ] || [ $((($1 + ${PLFS_SEED:-0}) % ${2:-5})) = 0 ]
}

number_of() { cksum <<< "$1" | cut -d' ' -f1; } # WORD
# What is long runs with one of the two workloads, by the seed.
one_workload() { # NUMBER
    is_in_turn "$1" 2 && echo shared
    is_in_turn $(($1 + 1)) 2 && echo auto
}

# For cargo: crates without optimisation, which takes longer than it saves where little runs, and
# with debug_assert.
# shellcheck disable=SC2034 # for who reads this file
unoptimised=()
for crate in plfs plfs-format plfs-index plfs-pack plfs-placement plfs-rc plfs-fuse plfs-testkit; do
    unoptimised+=(--config "profile.release.package.$crate.opt-level=0" --config "profile.release.package.$crate.debug-assertions=true")
done
# Tests of cargo, by words of their names or all. Of the whole workspace, so that what several
# suites need is built once.
cargo_tests() { # OPTION... -- [WORD...]
    local options=() word status=0
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    [ $# -gt 0 ] || set -- ""
    for word; do "${CARGO:-cargo}" test --release --locked --workspace "${options[@]}" -- "$word" || status=1; done
    return $status
}

# A Python in DIR that can import MODULES (a,b), from PyPI; without those it says what pip said. pip
# is the one of make deps: to make another takes 5 s of a processor.
python_with() { # DIR MODULES PACKAGE...
    local dir=$1 modules=$2 pip=${build:?}/deps/mpich/bin/pip said; shift 2
    "$dir/bin/python" -c "import $modules" 2> /dev/null && return
    if [ -x "$pip" ]; then [ -e "$dir/bin/python" ] || python3 -m venv --without-pip "$dir"
    else pip=$dir/bin/pip; [ -x "$pip" ] || python3 -m venv "$dir"; fi
    said=$("$pip" --python "$dir/bin/python" install -q --no-compile --disable-pip-version-check "$@" 2>&1)
    "$dir/bin/python" -c "import $modules" 2> /dev/null || { tail -n 1 <<< "$said"; return 1; }
}
