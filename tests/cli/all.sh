#!/bin/bash
# All tests, one after the other: what `make test` runs. The last line of the output sums all suites up; the exit status is 1 if anything failed.
# One after the other also where nothing else needs it: beside fsx at nice 19 on fixed processors, Linux 6.18 let processes wait for 20 s that could run (/proc/PID/schedstat),
# such as the daemon that MPI_Init of Open MPI waits for.
# Environment: BUILD (a directory made by make build), CARGO. With CI=true a skipped test counts as a failure. SUITES: only these.
set -u
cd "$(dirname "$(realpath "$0")")/../.." || exit 2
build=${BUILD:-$PWD/build}
export PYTHONDONTWRITEBYTECODE=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0 summary=

# Runs a command and adds up every line that sums up tests: of cargo, of Python's unittest, of our own scripts.
suite() { # NAME COMMAND...
    local name=$1 status=0 counts p f s start=$SECONDS; shift
    [ -z "${SUITES:-}" ] || [[ " $SUITES " = *" $name "* ]] || return 0
    echo "== $name"
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    counts=$(awk '
        /^test result:/ { p += $4; f += $6 }
        /^test .* \.\.\. ignored/ && !/ignored, prints / { s++ } # a measurement is no test
        /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p += $1; f += $3; s += $5 }
        /^Ran [0-9]+ tests? in/ { ran = $2 }
        /^(OK|FAILED)( \(|$)/ && ran {
            line = $0; bad = 0; skip = 0
            while (match(line, /(failures|errors|skipped)=[0-9]+/)) {
                word = substr(line, RSTART, RLENGTH); split(word, part, "=")
                if (part[1] == "skipped") skip += part[2]; else bad += part[2]
                line = substr(line, RSTART + RLENGTH)
            }
            p += ran - bad - skip; f += bad; s += skip; ran = 0
        }
        END { print p + 0, f + 0, s + 0 }' "$log")
    read -r p f s <<< "$counts"
    # A suite that failed without a failed test did not run to its end; one without any test did not run.
    if [ "$f" = 0 ] && { [ "$status" != 0 ] || [ $((p + s)) = 0 ]; }; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    summary+=$(printf '%-10s %5d passed %3d failed %3d skipped %5d s' "$name" "$p" "$f" "$s" $((SECONDS - start)))$'\n'
}

# The main job, small: do all bytes agree?
demo() {
    local out status=0
    out=$(python3 bench/demo.py --build "$build" --mib-per-rank 1 --reps 1 2>&1) || status=$?
    echo "$out"
    echo "$out" | grep -q '^HDF5 skipped' && set -- 1 || set -- 0
    if [ $status = 0 ]; then echo "1 passed, 0 failed, $1 skipped"; else echo "0 passed, 1 failed, $1 skipped"; fi
}

suite cargo "${CARGO:-cargo}" test --locked --workspace
suite decoder python3 -m unittest discover -s tests/decoder
for script in tests/*/run.sh; do
    suite "$(basename "$(dirname "$script")")" bash "$script" "$build"
done
suite demo demo

printf '\n%s' "$summary"
if [ "${CI:-}" = true ] && [ $skipped != 0 ]; then
    echo "CI: $skipped skipped tests count as failed"
    failed=$((failed + skipped)) skipped=0
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
