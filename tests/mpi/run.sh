#!/bin/bash
# tests/mpi/run.sh BUILD_DIR [TEST...]
#
# Proves: the MPI-IO door, call by call, under each MPI, on 1 to 4 ranks
# Takes 110 s
# The MPI-IO door. Each t_*.c runs in a managed directory under every MPI that is here, on 1, 2, 3
# and 4 ranks: Debian's MPICH and Open MPI, and the MPICH that make deps put into BUILD_DIR/deps (as
# libmpi.so.12 and as the standard ABI). Then what is not a program of its own: Fortran, static
# linking, death of a rank, exports.
# Environment: T_DIR, where the directories are made (default /tmp); T_TIMEOUT_S, seconds for one
# test (default 120).
set -u
build=$(realpath "$1") && shift || exit 2
here=$(dirname "$(realpath "$0")")
plfs=$build/bin/plfs lib=$build/lib/plfs deps=$build/deps/mpich
[ -x "$plfs" ] || { echo "no $plfs"; exit 2; }
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-mpi-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
wanted=" $* "
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
limit="timeout -k 5 ${T_TIMEOUT_S:-120}"
# shellcheck source=tests/mpi/environment.sh
. "$here/environment.sh"
export LC_ALL=C

check() { # NAME COMMAND...: the command succeeds
    local name=$1 out; shift
    is_wanted "$name" || return 0
    if out=$("$@" 2>&1); then result "$name" ok; else result "$name" fail "$(tail -n 12 <<< "$out")"; fi
}

# For each MPI: its name, compiler, mpiexec.
mpis="mpich openmpi mpich5 abi"
declare -A cc=([mpich]=mpicc.mpich [openmpi]=mpicc.openmpi [mpich5]=$deps/bin/mpicc [abi]=$deps/bin/mpicc_abi)
declare -A exec=([mpich]=mpiexec.mpich [openmpi]=mpiexec.openmpi [mpich5]=$deps/bin/mpiexec [abi]=$deps/bin/mpiexec)
declare -A adapter=([mpich]=mpich12 [openmpi]=ompi40 [mpich5]=mpi12 [abi]=abi)

fresh() { [ ! -d "$work/mount" ] || "$plfs" run --mount "$work/mount" -- rm -rf "$work/mount/d" || true; rm -rf "$work/mount" "$work/plain"; mkdir -p "$work/mount/d" "$work/plain"; }
ranks() { # MPI N COMMAND...: below the mount
    local mpi=$1 n=$2; shift 2
    T_PLAIN=$work/plain $limit "$plfs" run --mount "$work/mount" -- "${exec[$mpi]}" -n "$n" "$@"
}

for mpi in $mpis; do
    if ! command -v "${cc[$mpi]}" > /dev/null || ! command -v "${exec[$mpi]}" > /dev/null; then
        result "$mpi" skip "no ${cc[$mpi]} (make deps installs it)"
        mpis=${mpis//$mpi/}
    elif [ ! -e "$lib/libplfs_mpi_${adapter[$mpi]}.so" ]; then
        result "$mpi" skip "no adapter ${adapter[$mpi]}: its headers were not there at build"
        mpis=${mpis//$mpi/}
    fi
done

number=0
for source in "$here"/t_*.c; do
    number=$((number + 1))
    name=$(basename "$source" .c)
    is_wanted "$name" || continue
    for mpi in $mpis; do
        program=$work/$name.$mpi
        if ! out=$("${cc[$mpi]}" -std=gnu11 -g -O1 -w -o "$program" "$source" -ldl 2>&1); then
            result "$name $mpi" fail "does not compile: $(head -3 <<< "$out")"
            continue
        fi
        for n in 1 2 3 4; do
            # The two of one wheel differ in ABI only.
            [[ $mpi = mpich5 && $n -gt 2 || $mpi = abi && $n -lt 3 ]] && continue
            # Each program under each MPI on one number of ranks, by the seed.
            at=$((number + n)); [[ $mpi != mpich5 && $mpi != abi ]] || at=$((at + 2))
            is_in_turn $at 4 || continue
            fresh
            if out=$(ranks $mpi $n "$program" "$work/mount/d" 2>&1); then
                # It means nothing if the files went past PLFS.
                if [ -n "$(find "$work/mount/.plfs" -mindepth 3 2> /dev/null | head -1)" ]; then result "$name $mpi $n" ok; else result "$name $mpi $n" fail "left no container"; fi
            else
                result "$name $mpi $n" fail "status $?"
                head -n "${T_LINES:-15}" <<< "$out" | show
            fi
        done
    done
done

# Ranks store the index of what they wrote and did not sync, as checkpoints are.
gathers() { # MPI N
    ranks "$1" "$2" "$work/t_index.$1" "$work/mount/d" each || return 1
    local flatten container
    for flatten in enable disable; do
        container=$("$plfs" stat --json "$work/mount/d/few.$flatten" | python3 -c 'import json, sys; print(json.load(sys.stdin)["container"])')
        if [ -e "$container/flat" ]; then echo "$flatten"; fi
    done > "$work/stored"
    [ "$(cat "$work/stored")" = enable ] || { echo "stored: $(cat "$work/stored")"; return 1; }
}

# Nodes of a rank each, and of two, on this machine.
for mpi in mpich openmpi; do
    [[ " $mpis " = *" $mpi "* && -x $work/t_index.$mpi ]] || continue
    for n in 3 4; do
        is_in_turn $n || continue
        for nodes in each pairs; do fresh; check "t_index $mpi $n $nodes" ranks $mpi $n "$work/t_index.$mpi" "$work/mount/d" $nodes; done
        fresh
        check "t_index $mpi $n gathers" gathers $mpi $n
    done
done

# All 184 names, and nothing that a program without MPI does not have.
exports() {
    local names; names=$(nm -D --defined-only "$lib/libplfs_mpi.so" | awk '$2 == "T" { print $3 }' | sort)
    [ "$(wc -l <<< "$names")" = 184 ] || { echo "exports $(wc -l <<< "$names") functions"; return 1; }
    ! grep -vE '^P?MPI_File_' <<< "$names" || return 1
    ! nm -D --undefined-only "$lib/libplfs_mpi.so" | grep -iE 'mpi_' || return 1
    LD_PRELOAD=$lib/libplfs_mpi.so /bin/true
}
check exports exports

# No function of an MPI that has some is left out of functions.def.
complete() {
    local real; real=$(nm -D --defined-only "$(ldconfig -p | awk '/libmpich.so.12 / { print $NF; exit }')" | awk '$3 ~ /^MPI_File_/ { print $3 }' | sort -u)
    [ -n "$real" ] || { echo "no libmpich.so.12"; return 1; }
    ! comm -23 <(echo "$real") <(nm -D --defined-only "$lib/libplfs_mpi.so" | awk '{ print $3 }' | sort) | grep .
}
[[ $mpis != *"mpich "* ]] || check complete complete

# Fortran: mpif.h, which calls MPI_ or PMPI_ names, and mpi_f08, which calls PMPI_ ones.
fortran() { # MPI FILE
    local mpi=$1 compiler=${cc[$1]/mpicc/mpifort}
    "$compiler" -w -o "$work/fortran.$mpi" "$here/$2" 2>&1 || return 1
    fresh
    ranks "$mpi" 3 "$work/fortran.$mpi" "$work/mount/d/f" > "$work/out" 2>&1 && [ "$(grep -c fine "$work/out")" = 3 ] || { cat "$work/out"; return 1; }
    [ "$("$plfs" stat --json "$work/mount/d/f" | python3 -c 'import json, sys; d = json.load(sys.stdin); d = d[0] if isinstance(d, list) else d; print(d["size"])')" = 1200 ]
}
for mpi in mpich openmpi; do
    [[ " $mpis " = *" $mpi "* ]] || continue
    for source in f_mpif.f f_f08.f90; do
        if command -v gfortran > /dev/null; then check "$source $mpi" fortran $mpi $source; else result "$source $mpi" skip "no gfortran"; fi
    done
done

# A rank that dies while the others close leaves a container that opens, with what was committed
# before.
killed() { # MPI
    local mpi=$1
    "${cc[$mpi]}" -std=gnu11 -w -o "$work/killed.$mpi" "$here/killed.c" || return 1
    fresh
    ranks "$mpi" 4 "$work/killed.$mpi" "$work/mount/d" write > "$work/out" 2>&1 && { echo "the job did not notice"; return 1; }
    "$plfs" check "$work/mount/d/killed" > "$work/out" 2>&1 || { cat "$work/out"; return 1; }
    ranks "$mpi" 2 "$work/killed.$mpi" "$work/mount/d" read 2>&1
}
for mpi in mpich openmpi; do
    [[ " $mpis " != *" $mpi "* ]] || check "killed $mpi" killed $mpi
done

# The ranks of a node share a log set even if each is done before the next begins: eight had up to
# eight, because who closed early ended the set.
late() { # MPI
    local mpi=$1
    "${cc[$mpi]}" -std=gnu11 -w -o "$work/late.$mpi" "$here/late.c" || return 1
    fresh
    ranks "$mpi" 4 "$work/late.$mpi" "$work/mount/d/late" 2>&1 || return 1
    [ "$(find "$work/mount/.plfs" -name index | wc -l)" = 1 ] || { find "$work/mount/.plfs"; return 1; }
}
for mpi in mpich openmpi; do
    [[ " $mpis " != *" $mpi "* ]] || check "late $mpi" late $mpi
done

# A program with a static MPI: nothing is preloaded for MPI-IO.
static() {
    local archives; archives=$(dirname "$(gcc -print-file-name=libmpich.a)")
    local flags; flags=$(PKG_CONFIG_PATH=$build/lib/pkgconfig pkg-config --libs plfs-mpiio-mpich) || return 1
    gcc -std=gnu11 -w -I"$(mpicc.mpich -show | grep -o -- '-I[^ ]*' | head -1 | cut -c3-)" -o "$work/static" "$here/t_open.c" $flags "$archives/libmpich.a" $STATIC_NEEDS -Wl,-rpath,"$build/lib" 2>&1 || return 1
    ! ldd "$work/static" | grep libmpi || return 1
    fresh
    PLFS_MOUNTS=$work/mount T_PLAIN=$work/plain $limit mpiexec.mpich -n 2 "$work/static" "$work/mount/d" 2>&1 || return 1
    [ -n "$(find "$work/mount/.plfs" -mindepth 3 | head -1)" ]
}
if [[ " $mpis " = *" mpich "* ]] && is_wanted static; then
    if [ -e "$(gcc -print-file-name=libmpich.a)" ]; then
        # What libmpich.a needs is what libmpich.so needs.
        STATIC_NEEDS=$(ldd "$(ldconfig -p | awk '/libmpich.so.12 / { print $NF; exit }')" | awk '/=> \// { print $3 }' | grep -vE 'libc.so|ld-linux' | tr '\n' ' ')
        check static static
    else
        result static skip "this system has no libmpich.a (Debian 13)"
    fi
fi

# The library for static programs of Open MPI, of which Debian has no static library: linked to its
# shared one.
linked() {
    local flags; flags=$(PKG_CONFIG_PATH=$build/lib/pkgconfig pkg-config --libs plfs-mpiio-ompi) || return 1
    mpicc.openmpi -std=gnu11 -w -o "$work/linked" "$here/t_open.c" $flags -Wl,-rpath,"$build/lib" 2>&1 || return 1
    fresh
    PLFS_MOUNTS=$work/mount T_PLAIN=$work/plain $limit mpiexec.openmpi -n 2 "$work/linked" "$work/mount/d" 2>&1 || return 1
    [ -n "$(find "$work/mount/.plfs" -mindepth 3 | head -1)" ]
}
[[ " $mpis " != *" openmpi "* ]] || check linked linked

# An MPI that has no adapter goes on as without us, and says so if asked.
unknown() {
    mpicc.mpich -std=gnu11 -w -o "$work/unknown" "$here/late.c" || return 1
    mkdir -p "$work/alone/lib/plfs" && cp "$lib/libplfs_mpi.so" "$work/alone/lib/plfs/" || return 1
    PLFS_DEBUG=1 LD_PRELOAD=$work/alone/lib/plfs/libplfs_mpi.so $limit mpiexec.mpich -n 2 "$work/unknown" "$work/plain/late" > "$work/out" 2>&1
    [ "$(grep -c 'plfs mpi: left alone' "$work/out")" = 2 ] || { cat "$work/out"; return 1; }
    [ "$(stat -c %s "$work/plain/late")" = 200 ]
}
[[ " $mpis " != *" mpich "* ]] || { fresh; check unknown unknown; }
