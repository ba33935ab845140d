#!/bin/bash
# tests/models/run.sh BUILD_DIR [TEST...]
#
# Proves: the protocols that decide who owns a log set and when a plain file becomes shared (docs/decisions/0009, 0013) keep their properties in each state of small worlds
# Takes 130 s
# crates/plfs-model. TEST: words of a test's name.
set -u
cd "$(dirname "$(realpath "$0")")/../.." || exit 2
shift
# shellcheck source=tests/lib.sh
. tests/lib.sh
cargo_tests --test explore --test plain -- "$@"
