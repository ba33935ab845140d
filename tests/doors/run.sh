#!/bin/bash
# tests/doors/run.sh BUILD_DIR [NAME...]
#
# Proves: SEMANTICS.md: each sentence through every door, and on a plain file system; needs root
# Takes 200 s
# One list of behaviours (behaviours.py), each through every door: Rust, C, preload, FUSE, MPI-IO
# under two MPIs; and on a plain file system, which shows what POSIX does. The table at the end says
# where each holds, where it cannot be expressed, and where it differs as SEMANTICS.md says. NAME:
# only these doors and behaviours.
# Some need root, as other users, small file systems and mounts do.
# Environment: T_DIR, where the directories are made (default /tmp); CARGO.
set -u
build=$(realpath "$1") && shift || exit 2
here=$(dirname "$(realpath "$0")")
[ -x "$build/bin/plfs" ] || { echo "no $build/bin/plfs"; exit 2; }
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-doors.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/servers"
# Some tests are other users: a build below a home that is closed to them, as root's is, is copied.
if [ "$(id -u)" = 0 ] && ! setpriv --reuid 65534 --clear-groups test -x "$build/bin/plfs"; then
    mkdir "$work/build" && (cd "$build" && tar cf - bin lib include share) | tar xf - -C "$work/build" && build=$work/build
fi
export LC_ALL=C TZ=UTC PYTHONDONTWRITEBYTECODE=1 PKG_CONFIG_PATH=$build/lib/pkgconfig
unset PLFS_MOUNTS PLFS_BACKENDS PLFS_SHARED_MEMORY

flags="-std=gnu11 -Wall -Wextra -Werror -O1 -g"
compile() { # SERVER COMMAND...
    local out
    out=$("${@:2}" -o "$work/servers/$1" 2>&1) || result "$1" fail "does not compile: $(head -3 <<< "$out")"
}
compile posix ${CC:-cc} $flags "$here/posix.c"
# shellcheck disable=SC2046 # flags are several words
compile capi ${CC:-cc} $flags "$here/capi.c" $(pkg-config --cflags plfs) -L"$build/lib" -lplfs -Wl,-rpath,"$build/lib"
for mpi in mpich openmpi; do
    ! command -v mpicc.$mpi > /dev/null || compile $mpi mpicc.$mpi $flags "$here/mpi.c"
done
cd "$here/../.." || exit 2
# With the settings of cargo test, which has built most of it.
if ${CARGO:-cargo} build --quiet --release --locked --workspace --example door; then cp "${CARGO_TARGET_DIR:-target}/release/examples/door" "$work/servers/"; else result rust fail "does not compile"; fi

python3 "$here/run.py" "$work" "$build/bin/plfs" "$work/servers" "$@" 2> "$work/err" | tee "$work/out"
[ "${PIPESTATUS[0]}" = 0 ] || result run.py fail "it did not run to its end"
[ -z "$failed" ] && ! grep -q '^not ok ' "$work/out" || tail -n "${T_LINES:-60}" "$work/err" | show
