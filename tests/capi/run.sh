#!/bin/bash
# tests/capi/run.sh BUILD_DIR [TEST...]
#
# Proves: what plfs.h promises, called from C; compiled with pkg-config as a user's program is
# Takes 10 s
# Compiles each program of this directory with pkg-config against BUILD_DIR, as a user's program
# would be, and runs it in an empty directory.
# Environment: CC, CFLAGS; T_DIR, where the directories are made (default /tmp); T_TIMEOUT_S,
# seconds for one test (default 120).
set -u
build=$(realpath "$1") && shift || exit 2
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-capi-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset PLFS_MOUNTS PLFS_BACKENDS
export PATH=$build/bin:$PATH
export PKG_CONFIG_PATH=$build/lib/pkgconfig LC_ALL=C
flags=$(pkg-config --cflags --libs plfs) || { echo "no pkg-config, or no plfs.pc in $build"; exit 2; }
wanted=" $* "
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
for source in "$here"/*.c; do
    name=$(basename "$source" .c)
    is_wanted "$name" || continue
    mkdir "$work/$name"
    if ! ${CC:-cc} -std=gnu11 -Wall -Wextra -Werror -O1 -g ${CFLAGS:-} -o "$work/$name.bin" "$source" $flags -pthread -Wl,-rpath,"$build/lib" 2> "$work/log"; then
        result "$name" fail "does not compile: $(head -5 "$work/log")"
    elif (cd "$work/$name" && timeout -k 5 "${T_TIMEOUT_S:-120}" "$work/$name.bin") > "$work/log" 2>&1 < /dev/null; then
        result "$name" ok
    else
        result "$name" fail "exit $?: $(tail -5 "$work/log")"
    fi
done
