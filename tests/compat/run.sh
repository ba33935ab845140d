#!/bin/bash
# tests/compat/run.sh BUILD_DIR
#
# Proves: containers that earlier versions wrote are read, and take new logs
# Takes 10 s
set -u
export PLFS_WORKLOAD=shared
exec python3 "$(dirname "$(realpath "$0")")/run.py" "$1"
