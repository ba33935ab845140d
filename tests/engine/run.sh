#!/bin/bash
# tests/engine/run.sh BUILD_DIR [TEST...]
#
# Proves: the engine and its crates: unit tests, and crates/*/tests: model, power loss, kills, faults, hostile bytes, concurrency
# Takes 590 s
# cargo's tests, of all crates. TEST: a file of crates/plfs/tests or of its directory engine, or
# words of a test's name: engine/crash, engine/a_sync_survives_power_loss.
set -u
cd "$(dirname "$(realpath "$0")")/../.." || exit 2
shift
cargo=${CARGO:-cargo}
status=0
# Tests wait: for each other's processes, for times of files, for storage that hangs.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 2))}
# shellcheck source=tests/lib.sh
. tests/lib.sh
# Of the workspace as a whole: crates of one alone would have other features, and be compiled again.
workspace=("$cargo" test --release --locked --workspace --exclude plfs-model --exclude plfs-fuzz)
if [ $# = 0 ]; then
    # The models are tests/models, the fuzz targets tests/fuzz; examples have no tests.
    programs=()
    for source in crates/*/tests/*.rs crates/*/tests/*/main.rs; do
        case $source in
            crates/plfs-model/* | */schedules.rs) ;;
            */main.rs) programs+=(--test "$(basename "$(dirname "$source")")") ;;
            *) programs+=(--test "$(basename "$source" .rs)") ;;
        esac
    done
    "${workspace[@]}" --no-fail-fast "${programs[@]}" || status=1
    # Unit tests of the engine and of what it is made of without optimisation. Those of what is made
    # of the engine with the one of the build. Of plfs-cli and plfs-headers --lib builds nothing:
    # they give dependencies the features that they have elsewhere, or those are compiled again.
    below=(plfs plfs-format plfs-index plfs-placement plfs-rc)
    "$cargo" test --release --locked --no-fail-fast "${unoptimised[@]}" "${below[@]/#/-p}" -pplfs-cli -pplfs-headers --lib || status=1
    "${workspace[@]}" "${below[@]/#/--exclude=}" --exclude plfs-capi --no-fail-fast --lib --bin plfs || status=1
    "${workspace[@]}" --doc || status=1
fi
tests=crates/plfs/tests
for word; do
    if [ -e "$tests/engine/$word.rs" ]; then "$cargo" test --release --locked -p plfs-tests --test engine -- "$word::" || status=1
    elif [ -e "$tests/$word.rs" ] || [ -e "$tests/$word/main.rs" ]; then "$cargo" test --release --locked -p plfs-tests --test "$word" || status=1
    else "$cargo" test --release --locked --workspace -- "$word" || status=1; fi
done
exit $status
