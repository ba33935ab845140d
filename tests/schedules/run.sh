#!/bin/bash
# tests/schedules/run.sh BUILD_DIR [TEST...]
#
# Proves: what SEMANTICS.md says of threads of a process holds in schedules that are explored: which thread goes on at each lock, atomic and call on the store
# Takes 60 s
# crates/plfs/tests/schedules.rs in a build of its own, in which crates/plfs/src/sync.rs has the
# locks of the crate shuttle. TEST: words of a test's name.
set -u
cd "$(dirname "$(realpath "$0")")/../.." || exit 2
shift
# shellcheck source=tests/lib.sh
. tests/lib.sh
# Without optimisation, which takes longer than it saves, and with debug_assert.
build=(--config profile.release.package.plfs.opt-level=0 --config profile.release.package.plfs-testkit.opt-level=0
    --config profile.release.package.plfs.debug-assertions=true --config profile.release.package.plfs-index.opt-level=0 --config profile.release.package.plfs-index.debug-assertions=true)
cargo_tests "${build[@]}" --features plfs-tests/shuttle --test schedules -- "$@"
