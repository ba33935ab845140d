#!/bin/bash
# tests/foreign/run.sh BUILD_DIR [SUITE|SUITE/PROGRAM...]
#
# Proves: the test-suites of others (libc, POSIX, CPython, Perl, busybox, Go, Java) say through PLFS what they say on a plain directory
# Takes 160 s
# Each program of a suite runs in a plain directory, under `plfs run` with the workloads shared and
# auto, and in a mount if root runs this (foreign.py); what differs by design is in `differences`.
# The suites come by package name (suites.py) and are built in PLFS_TEST_CACHE, by default
# ~/.cache/plfs-tests. Without T_FULL=1 a part that is quick: see suites.py.
# Environment: T_DIR, where the directories are made (default /tmp); T_JOBS, programs at once
# (default 1); T_VERBOSE=1: what they said.
set -u
build=$(realpath "$1") && shift || exit 2
here=$(dirname "$(realpath "$0")")
[ -x "$build/bin/plfs" ] || { echo "no $build/bin/plfs"; exit 2; }
export CACHE=${PLFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/plfs-tests}
export LC_ALL=C TZ=UTC PYTHONDONTWRITEBYTECODE=1
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
exec python3 "$here/foreign.py" "$build" "$@"
