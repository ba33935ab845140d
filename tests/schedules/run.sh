#!/bin/bash
# tests/schedules/run.sh BUILD_DIR [TEST...]
#
# Proves: what SEMANTICS.md says of threads of a process holds in schedules that are explored: which thread goes on at each lock, atomic and call on the store
# Takes 170 s
# crates/plfs/tests/schedules.rs in a build of its own, in which crates/plfs/src/sync.rs has the
# locks of the crate shuttle. TEST: words of a test's name.
set -u
cd "$(dirname "$(realpath "$0")")/../.." || exit 2
shift
# shellcheck source=tests/lib.sh
. tests/lib.sh
cargo_tests "${unoptimised[@]}" --features plfs-tests/shuttle --test schedules -- "$@"
