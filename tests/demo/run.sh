#!/bin/bash
# tests/demo/run.sh BUILD_DIR
#
# Proves: make demo, small: fio and parallel HDF5 leave the same bytes direct and through PLFS
# Takes 30 s
set -u
build=$(realpath "$1")
cd "$(dirname "$(realpath "$0")")/../.." || exit 2
# shellcheck source=tests/lib.sh
. tests/lib.sh
if out=$(python3 bench/demo.py --build "$build" --mib-per-rank 1 --reps 1 2>&1); then result "all bytes agree" ok; else result "all bytes agree" fail "status $?"; fi
show <<< "$out"
if without=$(grep '^HDF5 skipped' <<< "$out"); then result HDF5 skip "$without"; fi
