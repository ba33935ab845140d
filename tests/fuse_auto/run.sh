#!/bin/bash
# tests/fuse_auto/run.sh BUILD_DIR [TEST...]
#
# Proves: the mount with files that are plain until others write them: two mounts of one directory, and what tests/fuse proves of files; needs root
# Takes 90 s
# tests/fuse with the workload auto: plain files that become containers (shared.py), and the tests
# there of files and programs. Environment and what is installed: as there.
set -u
here=$(dirname "$(realpath "$0")")
build=$1 && shift || exit 2
[ $# -gt 0 ] || set -- shared door users pjdfstest fio git sqlite3 archives build check
PLFS_WORKLOAD=auto exec bash "$here/../fuse/run.sh" "$build" "$@"
