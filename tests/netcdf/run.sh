#!/bin/bash
# tests/netcdf/run.sh BUILD_DIR [TEST...]
#
# Proves: datasets that PnetCDF programs write partitioned have what they have in one file; plfs nc
# Takes 160 s
# The programs are built with the MPI that the system's PnetCDF is for. Two things are not as they
# could be, and are said here: Debian ships no examples and no tests of PnetCDF, so the programs are
# ours; and of its PnetCDF there is a build for Open MPI only. With that the I/O is ROMIO's, as
# OMPIO 4.1 writes past its memory when PnetCDF writes plain datasets in pieces.
# Environment: T_DIR, where the directories are made (default /tmp); T_TIMEOUT_S, seconds for one
# test (default 120); T_CASES, random datasets for each number of ranks (default 8); T_FULL=1, the
# programs' shapes with all ranks, parts and dimensions.
set -u
build=$(realpath "$1") && shift || exit 2
here=$(dirname "$(realpath "$0")")
plfs=$build/bin/plfs lib=$build/lib/plfs
[ -x "$plfs" ] || { echo "no $plfs"; exit 2; }
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-netcdf-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
wanted=" $* "
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
limit="timeout -k 5 ${T_TIMEOUT_S:-120}"
# shellcheck source=tests/mpi/environment.sh
. "$here/../mpi/environment.sh"
export LC_ALL=C OMPI_MCA_io=^ompio
unset PNETCDF_HINTS PLFS_NC_PARTITION
cd "$work" || exit 2

mpicc=$(pnetcdf-config --cc 2> /dev/null)
if [ -z "$mpicc" ] || ! command -v "$mpicc" > /dev/null; then
    result netcdf skip "no PnetCDF (make deps installs it: libpnetcdf-dev, pnetcdf-bin)"
    exit 0
fi
[ "$("$mpicc" -show | grep -c openmpi)" = 0 ] || mpicc=mpicc.openmpi
command -v "$mpicc" > /dev/null || mpicc=mpicc
mpiexec=${mpicc/mpicc/mpiexec}
if [ ! -e "$lib/libplfs_netcdf.so" ]; then
    result netcdf skip "no libplfs_netcdf.so: pnetcdf.h was not there at build"
    exit 0
fi

check() { # NAME COMMAND...: the command succeeds
    local name=$1 out; shift
    is_wanted "$name" || return 0
    if out=$("$@" 2>&1); then result "$name" ok; else result "$name" fail "$(tail -n "${T_LINES:-12}" <<< "$out")"; fi
}
program() { "$mpicc" -std=gnu11 -g -O1 -Wall -o "$work/$1" "$here/$1.c" -lpnetcdf; } # NAME
for name in random every define shapes no_memory whole; do program $name > "$name.log" 2>&1 & done
wait
for name in random every define shapes no_memory whole; do
    [ -x $name ] || result "$name" fail "does not compile: $(head -5 $name.log)"
done
# Ranks of a program: as it is, and with the library.
ranks() { local n=$1; shift; $limit "$mpiexec" -n "$n" "$@"; }
cut() { local n=$1; shift; $limit "$plfs" run -- "$mpiexec" -n "$n" "$@"; }

# --- the table ---

# All of pnetcdf.h is in functions.def, once; what is ours is what the library exports.
table() {
    local names=$work/names netcdf=$here/../../netcdf
    printf '#include <pnetcdf.h>\n' | "$mpicc" -E -P -x c - | grep -o '\bncmpi_[a-z0-9_]*' | sort -u > "$names.header"
    printf '#define NAME(name) ncmpi_##name\n#include "functions.h"\n' | cc -E -P -I"$netcdf" -x c - | tr -s ' ' '\n' | grep . | sort > "$names.ours"
    sed -n 's/^PASS(\([a-z0-9_]*\), ".*")$/ncmpi_\1/p' "$netcdf/functions.def" | sort > "$names.passed"
    [ "$(grep -c '^PASS' "$netcdf/functions.def")" = "$(wc -l < "$names.passed")" ] || { echo "a PASS has no reason"; return 1; }
    # Later ones have more.
    [[ $(pnetcdf-config --version) != *" 1.12."* ]] || sort "$names.ours" "$names.passed" | diff "$names.header" - || return 1
    nm -D --defined-only "$lib/libplfs_netcdf.so" | awk '$2 == "T" { print $3 }' | sort | diff "$names.ours" - || return 1
    # What goes into every process needs no MPI and no PnetCDF.
    ! nm -D --undefined-only "$lib/libplfs_netcdf.so" | grep -iE 'mpi_' || return 1
    LD_PRELOAD=$lib/libplfs_netcdf.so /bin/true
}
check table table

# --- without a hint ---

# Nothing changes, byte for byte.
unchanged() {
    local shape
    mkdir -p plain
    for shape in coll_perf flash s3d; do
        ranks 2 ./shapes $shape write plain/$shape.nc && cut 2 ./shapes $shape write plain/$shape.same || return 1
        cmp plain/$shape.nc plain/$shape.same || return 1
        rm plain/$shape.same
    done
    [ "$(find plain -type f | wc -l)" = 3 ] || { ls plain; return 1; }
}
check unchanged unchanged

# --- every call, definitions, random datasets ---

for n in 1 2 3; do
    is_in_turn $n || continue
    mkdir -p every.$n
    check "every $n" cut $n ./every every.$n
done
for n in 1 2 4; do
    is_in_turn $n || continue
    mkdir -p define.$n
    check "define $n" cut $n ./define define.$n
done
for n in 1 2; do
    mkdir -p no_memory.$n
    check "no_memory $n" cut $n ./no_memory no_memory.$n
done
random() { # RANKS
    local cases=${T_CASES:-8} seed=${PLFS_SEED:-$RANDOM}
    seed=$((seed % 1000000000 * 10 + $1))
    mkdir -p "random.$1"
    echo "seed $seed"
    cut "$1" ./random "random.$1" $seed "$cases" 2> "random.$1.log" || { grep -v '^--\|^$' "random.$1.log" | tail -8; return 1; }
    explored "$cases" "random NetCDF datasets"
}
for n in 1 2 3 5 8; do check "random $n" random $n; done

# --- programs' shapes ---

declare -A dims=([coll_perf]="z y x" [flash]="dim_tot_blocks dim_nzb dim_nxb" [s3d]="z y x species three")
# Written on n ranks in K parts along a dimension, it is read on other ranks, and as one file it is
# the plain one.
shape() { # SHAPE RANKS K DIM
    local dir=shape.$1.$2.$3 hints=${4:+nc_partition_dim=$4}
    mkdir -p "$dir"
    PNETCDF_HINTS=$hints $limit "$plfs" run --partition="$3" -- "$mpiexec" -n "$2" ./shapes "$1" write "$dir/a.nc" || return 1
    cut $((9 - $2)) ./shapes "$1" read "$dir/a.nc" || return 1
    "$plfs" nc check "$dir/a.nc" && "$plfs" nc merge "$dir/a.nc" "$dir/merged.nc" || return 1
    ncvalidator -q "$dir/merged.nc" && cdfdiff -q "plain/$1.nc" "$dir/merged.nc" || return 1
    "$plfs" nc ls --json "$dir/a.nc" | python3 -c '
import json, sys
listed, dim, parts = json.load(sys.stdin), sys.argv[1], int(sys.argv[2])
assert len(listed["partitions"]) == parts
cuts = [v for v in listed["variables"] if v["partitions"]]
assert len(cuts) > 0
for v in cuts:
    assert not dim or dim not in v["dimensions"] or v["partitioned_along"] == dim, v' "$4" "$3" || return 1
    rm -r "$dir"
}
[ -d plain ] || unchanged > /dev/null 2>&1
number=0
for name in coll_perf flash s3d; do
    read -r -a list <<< "${dims[$name]} -"
    for parts in 1 2 3 4 5 6 7 8; do
        # 896 of them, in an hour.
        if [ -n "${T_FULL:-}" ]; then
            for n in 1 2 3 4 5 6 7 8; do
                for dim in "${list[@]}"; do check "shape $name $n $parts $dim" shape $name $n $parts "${dim#-}"; done
            done
            continue
        fi
        number=$((number + 1))
        # Not too many with more ranks than processors.
        is_in_turn $((number + number / 8)) || continue
        n=$(((parts * 5 + number / 8) % 8 + 1)) dim=${list[$((parts % ${#list[@]}))]}
        check "shape $name $n $parts $dim" shape $name $n $parts "${dim#-}"
    done
done

# --- where partitions are ---

directories() {
    mkdir -p places/one places/two places/here
    PNETCDF_HINTS="nc_partitioning_enabled=true;nc_num_partitions=2;nc_partition_dirs=$work/places/one:places/two" cut 3 ./shapes coll_perf write places/here/a.nc || return 1
    [ "$(ls places/here) $(ls places/one) $(ls places/two)" = "a.nc a.nc.0 a.nc.1" ] || { ls -R places; return 1; }
    cut 2 ./shapes coll_perf read places/here/a.nc && "$plfs" nc check places/here/a.nc || return 1
    # A dataset of the same name elsewhere does not take them: it is another.
    mkdir -p places/there
    printf 'mine' > places/two/b.nc.1
    ! PNETCDF_HINTS="nc_partitioning_enabled=true;nc_num_partitions=2;nc_partition_dirs=$work/places/one:$work/places/two" cut 2 ./shapes coll_perf write places/there/b.nc > out 2>&1 || return 1
    grep -q 'there is a file of that name' out && [ "$(cat places/two/b.nc.1)" = mine ] || { cat out; return 1; }
}
check directories directories
# What the node knows of the directories, in MB/s; 0: nothing. As docs/decisions/0026 has the page.
rates_say() { # MEMORY [DIR RATE]...
    python3 - "$@" << 'END'
import os, struct, sys, time
words = [0] * 1024
for path, rate in zip(sys.argv[2::2], map(float, sys.argv[3::2])):
    key = 0xcbf29ce484222325
    for byte in os.fsencode(path):
        key = (key ^ byte) * 0x100000001b3 % 2**64
    at = key % 64
    while words[4 * at] not in (0, key):
        at = (at + 1) % 64
    bits = struct.unpack("<Q", struct.pack("<d", rate * 1e6))[0]
    words[4 * at : 4 * at + 4] = key, bits, time.clock_gettime_ns(time.CLOCK_BOOTTIME), 16 << 20
path = f"{sys.argv[1]}/plfs-targets-{os.geteuid()}"
with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as f:
    f.write(struct.pack("<1024Q", *words))
END
}
# How many partitions there are, and in which directories, is what was measured; unless the user
# says it, or there is no libplfs. All ranks do the same.
targets() {
    local memory dirs status
    memory=$(mktemp -d /dev/shm/plfs-netcdf-test.XXXXXX) || return 1
    PLFS_SHARED_MEMORY=$memory targets_in "$memory" && status=0 || status=1
    rm -r "$memory"
    return $status
}
targets_in() { # MEMORY
    local at=$work/aims where
    mkdir -p "$at"/{a,b,c,d,here}
    local dirs=nc_partition_dirs=$at/a:$at/b:$at/c:$at/d
    are_in() { where=$(cd "$at" && echo [abcd]/*); [ "$where" = "$*" ] || { echo "in $where"; cat out; return 1; }; }
    write() { # HINTS
        rm -f "$at"/?/* "$at"/here/*
        PNETCDF_HINTS="nc_partitioning_enabled=true;$1" cut 3 ./shapes coll_perf write "$at/here/x.nc" > out 2>&1 &&
            cut 2 ./shapes coll_perf read "$at/here/x.nc"
    }
    rates_say "$1" "$at/a" 4 "$at/b" 40 "$at/c" 5 "$at/d" 38
    write "$dirs" && are_in b/x.nc.0 d/x.nc.1 || return 1
    # A list that is too long for a hint.
    PLFS_NC_PARTITION_DIRS=$at/b:$at/b/$(printf './%.0s' {1..200}):$at/a write "" && are_in b/x.nc.0 b/x.nc.1 || return 1
    write "$dirs;nc_num_partitions=3" && are_in b/x.nc.0 c/x.nc.1 d/x.nc.2 || return 1
    write "$dirs;nc_num_partitions=4" && are_in a/x.nc.0 b/x.nc.1 c/x.nc.2 d/x.nc.3 || return 1
    # One that cannot be measured is left out, which is said.
    rm -r "$at/c" && rates_say "$1" "$at/a" 35 "$at/b" 40 "$at/d" 38 || return 1
    write "$dirs" && are_in a/x.nc.0 b/x.nc.1 d/x.nc.2 && [ "$(grep -c "target $at/c " out)" = 1 ] || return 1
    mkdir "$at/c" && rates_say "$1" "$at/a" 4 "$at/b" 40 "$at/c" 5 "$at/d" 38 || return 1
    # Without libplfs: all, in their order.
    mkdir -p alone && cp "$lib"/libplfs_netcdf* alone/ && rm -f "$at"/?/* "$at"/here/* || return 1
    LD_PRELOAD=$work/alone/libplfs_netcdf.so PNETCDF_HINTS="nc_partitioning_enabled=true;$dirs" ranks 3 ./shapes coll_perf write "$at/here/x.nc" > out 2>&1 || return 1
    are_in a/x.nc.0 b/x.nc.1 c/x.nc.2 d/x.nc.3 && [ "$(grep -c "libplfs.so is not there" out)" = 1 ]
}
check targets targets
# Nobody has measured them: it is done now.
probed() {
    local memory status
    memory=$(mktemp -d /dev/shm/plfs-netcdf-test.XXXXXX) || return 1
    mkdir -p probed/{a,b}
    PLFS_DEBUG=1 PLFS_SHARED_MEMORY=$memory PNETCDF_HINTS="nc_partitioning_enabled=true;nc_partition_dirs=$work/probed/a:$work/probed/b" \
        cut 2 ./shapes coll_perf write probed/x.nc > out 2>&1 && [ "$(grep -c 'target .*: [0-9.]* MB/s' out)" = 2 ] && ! grep -q ': 0.0 MB/s' out && cut 1 ./shapes coll_perf read probed/x.nc
    status=$?
    rm -r "$memory"
    [ $status = 0 ] || cat out
    return $status
}
check probed probed
# Beside each other they can be moved together.
moved() {
    mkdir -p from && $limit "$plfs" run --partition=2 -- "$mpiexec" -n 2 ./shapes s3d write from/a.nc && mv from to &&
        cut 1 ./shapes s3d read to/a.nc && "$plfs" nc merge to/a.nc merged.nc && cdfdiff -q plain/s3d.nc merged.nc
}
check moved moved
# A plain dataset over a partitioned one leaves its partitions. The next partitioned one took their
# places, whosever they were; with fewer parts it left some.
in_the_way() {
    mkdir -p way && $limit "$plfs" run --partition=3 -- "$mpiexec" -n 2 ./shapes s3d write way/a.nc && cut 2 ./shapes s3d write way/a.nc && [ -e way/a.nc.2 ] || return 1
    $limit "$plfs" run --partition=2 -- "$mpiexec" -n 2 ./shapes s3d write way/a.nc > out 2>&1 && { echo "was created"; return 1; }
    [ "$(grep -c "plfs netcdf: .* nothing is created: partition 0 would be way/a.nc.0, .* was created as a.nc .* remove it" out)" = 1 ] && cmp plain/s3d.nc way/a.nc && [ -e way/a.nc.2 ] || { cat out; return 1; }
    rm way/a.nc.[0-9]* && mkdir way/from way/to && PLFS_NC_PARTITION_DIRS=$work/way/from $limit "$plfs" run --partition=2 -- "$mpiexec" -n 2 ./shapes s3d write way/a.nc || return 1
    # A copy of what is replaced is not in the way.
    cp way/from/* way/to/ && PLFS_NC_PARTITION_DIRS=$work/way/to $limit "$plfs" run --partition=2 -- "$mpiexec" -n 2 ./shapes s3d write way/a.nc && "$plfs" nc check way/a.nc && [ "$(ls way/from way/to)" = "way/from:

way/to:
a.nc.0
a.nc.1" ]
}
check in_the_way in_the_way

# --- what is wrong is told ---

# Reading fails with a message, said once, and plfs nc check says the same.
told() { # MESSAGE
    cut 3 ./shapes coll_perf read wrong/a.nc > out 2>&1 && { echo "was read"; return 1; }
    [ "$(grep -c "plfs netcdf: .*$1" out)" = 1 ] || { echo "not told once: $1"; cat out; return 1; }
    "$plfs" nc check wrong/a.nc > out 2>&1 && { echo "plfs nc check finds nothing"; return 1; }
    grep -q "${2:-$1}" out || { cat out; return 1; }
    "$plfs" nc merge wrong/a.nc wrong/merged.nc > out 2>&1 && { echo "was merged"; return 1; }
    [ ! -e wrong/merged.nc ]
}
faults() {
    mkdir -p right wrong other
    $limit "$plfs" run --partition=3 -- "$mpiexec" -n 2 ./shapes coll_perf write right/a.nc || return 1
    $limit "$plfs" run --partition=3 -- "$mpiexec" -n 1 ./shapes coll_perf write other/a.nc || return 1
    local fresh="cp right/* wrong/"
    $fresh && rm wrong/a.nc.1 && told "a.nc.1, is missing" "a.nc.1: it is missing" || return 1
    $fresh && cp wrong/a.nc.2 wrong/a.nc.0 && told "is partition 2" || return 1
    $fresh && cp plain/coll_perf.nc wrong/a.nc.1 && told "is a NetCDF file, but no partition" || return 1
    $fresh && echo hello > wrong/a.nc.1 && told "a.nc.1, cannot be opened" "it is no NetCDF file" || return 1
    $fresh && truncate -s -8 wrong/a.nc.2 && told "is truncated" || return 1
    $fresh && cp other/a.nc.1 wrong/a.nc.1 && told "is of another run" || return 1
    $fresh && cut 2 ./shapes coll_perf read wrong/a.nc || return 1
    "$plfs" nc ls plain/coll_perf.nc > out 2>&1 && return 1
    grep -q "not partitioned" out
}
check faults faults
# What is no regular file is told, and nobody waits for who might write to it.
fifos() {
    local of command
    cp right/* wrong/ && rm -f wrong/a.nc.1 wrong/merged.nc && mkfifo wrong/a.nc.1 wrong/master || return 1
    for of in a.nc master; do
        for command in "check wrong/$of" "merge wrong/$of wrong/merged.nc"; do
            # shellcheck disable=SC2086
            timeout 10 "$plfs" nc $command > out 2>&1; [ $? = 1 ] || { echo "$command"; cat out; return 1; }
            grep -q "${of/a.nc/a.nc.1}: it is no regular file" out || { cat out; return 1; }
        done
    done
    timeout 10 "$plfs" nc ls wrong/a.nc > out || { echo "ls: $?"; return 1; }
    rm wrong/a.nc.1 wrong/master
    grep -q 'a.nc.1 .*cannot be read' out && [ ! -e wrong/merged.nc ]
}
if is_wanted fifos && [ ! -d right ]; then faults > /dev/null 2>&1; fi
check fifos fifos
# The bytes of the master are what its header says; what PnetCDF itself leaves away is only noted.
lengths() {
    local at=$work/lengths what size
    mkdir -p "$at"/{all,cut,fill,fixed,none}
    for what in all cut fill fixed none; do
        $limit "$plfs" run --partition=2 -- "$mpiexec" -n 2 ./whole "$at/$what/a.nc" $what || return 1
        [ -e "$at/$what/a.nc.1" ] && merged $what || return 1
    done
    has_note() { [ "$(grep -c 'note: the master: it has [0-9]* of [0-9]* bytes' out)" = "$1" ] || { echo "$what: $1 notes"; cat out; return 1; }; }
    for what in all:0 fixed:0 fill:0 cut:0 none:1; do
        "$plfs" nc check "$at/${what%:*}/a.nc" > out 2>&1 && grep -q sound out && has_note "${what#*:}" || return 1
        merged "${what%:*}" && has_note "${what#*:}" || return 1
    done
    grep -q 'what is missing is of row, last' out || { cat out; return 1; }
    what=all
    # Less by a number is noted, by half of one is damage, as is less than a record.
    size=$(stat -c %s "$at/all/a.nc")
    cp "$at/all/a.nc" kept
    truncate -s $((size - 4)) "$at/all/a.nc" && merged all && has_note 1 && "$plfs" nc check --json "$at/all/a.nc" | python3 -c 'import json, sys; d = json.load(sys.stdin); assert not d["faults"] and len(d["notes"]) == 1, d' || return 1
    truncate -s $((size - 6)) "$at/all/a.nc" && damaged "it is truncated: it has $((size - 6)) of $size bytes, and ends inside of a number of the variable series" || return 1
    truncate -s $((size - 8)) "$at/all/a.nc" && damaged "its header says 2 records, and in its $((size - 8)) bytes there is 1" || return 1
    truncate -s $((size - 60)) "$at/all/a.nc" && damaged "its header says 2 records, and in its .* there are 0" || return 1
    # A count that nothing explains, in any of the files.
    number() { printf "$2" | dd of="$1" bs=1 seek=$((4 + $3)) conv=notrunc 2> /dev/null; }
    cp kept "$at/all/a.nc" && number "$at/all/a.nc" '\377' 3 && damaged "its header says .* records, and in its $size bytes there are 2" || return 1
    cp kept "$at/all/a.nc" && number "$at/all/a.nc" '\0' 7 && damaged "the master says 0 records, the partitions 2, but the master's $size bytes have 2" || return 1
    cp kept "$at/all/a.nc" && merged all || return 1
    cp "$at/all/a.nc.1" kept && number "$at/all/a.nc.1" '\1' 1 && damaged "a.nc.1: its header says .* records, and in its" || return 1
    cp kept "$at/all/a.nc.1" && merged all || return 1
    # The last record of a partition's is there in the master alone.
    what='cut' && cp "$at/cut/a.nc" kept && number "$at/cut/a.nc" '\11' 7 && damaged "its header says 9 records, and in its" || return 1
    cp kept "$at/cut/a.nc"
    # A dimension that only whole variables could have.
    python3 -c 'import sys; b = open(sys.argv[1], "rb").read(); i = b.index(b"x\0\0\0") + 4; open(sys.argv[1], "wb").write(b[:i] + b"\1" + b[i + 1:])' "$at/cut/a.nc" && damaged "its header is damaged: the variable row has .* bytes by its dimensions, and 40 by its size"
}
merged() { rm -f "$at/m" && (ulimit -f 65536 && timeout 20 "$plfs" nc merge "$at/$1/a.nc" "$at/m") > out 2>&1 || { echo "$1 is not merged"; cat out; return 1; }; }
damaged() { # MESSAGE
    "$plfs" nc check "$at/$what/a.nc" > out 2>&1 && { echo "$1: plfs nc check finds nothing"; cat out; return 1; }
    grep -q "$1" out || { echo "not told: $1"; cat out; return 1; }
    ! merged "$what" > /dev/null && grep -q "$1" out && [ ! -e "$at/m" ]
}
check lengths lengths

# --- doors ---

# A program that is linked to the library needs no plfs run.
linked() {
    local flags; flags=$(PKG_CONFIG_PATH=$build/lib/pkgconfig pkg-config --libs plfs-netcdf) || return 1
    mkdir -p linked
    # shellcheck disable=SC2086
    "$mpicc" -std=gnu11 -w -o linked/shapes "$here/shapes.c" $flags -lpnetcdf || return 1
    PLFS_NC_PARTITION=3 ranks 2 linked/shapes coll_perf write linked/a.nc && [ -e linked/a.nc.2 ] && ranks 3 linked/shapes coll_perf read linked/a.nc
}
check linked linked
fortran() {
    local modules; modules=$(dirname "$(find /usr/lib -name pnetcdf.mod 2> /dev/null | head -1)")
    "${mpicc/mpicc/mpifort}" -o fortran "$here/f_pnetcdf.f90" -I"$modules" -lpnetcdf 2>&1 || return 1
    mkdir -p f && cut 2 ./fortran f > out 2>&1 && [ "$(grep -c fine out)" = 2 ] && [ -e f/f.nc.2 ] || { cat out; return 1; }
}
if command -v gfortran > /dev/null; then check fortran fortran; else result fortran skip "no gfortran"; fi

# --- other tools read partitions ---

tools() {
    local k
    mkdir -p tools
    $limit "$plfs" run --partition=3 -- "$mpiexec" -n 2 ./shapes s3d write tools/a.nc || return 1
    for k in 0 1 2; do
        ncvalidator -q tools/a.nc.$k || return 1
        ncdump tools/a.nc.$k > a && ranks 1 ncmpidump tools/a.nc.$k > b || return 1
        grep -q 'double temp(t, z.temp, y.temp, x.temp)' a && grep -q "range.*z.*= $((k * 4))LL, $((k * 4 + 3))LL" a && grep -q ":partition_index = $k" a || { head -40 a; return 1; }
        grep -q 'double temp(t, z.temp, y.temp, x.temp)' b || { head -40 b; return 1; }
    done
    ncdump -h tools/a.nc | grep -q 'double u ;'
}
if command -v ncdump > /dev/null; then check tools tools; else result tools skip "no ncdump (make deps installs it: netcdf-bin)"; fi
readers() {
    local shape
    mkdir -p py
    for shape in coll_perf s3d; do
        $limit "$plfs" run --partition=3 -- "$mpiexec" -n 2 ./shapes $shape write py/$shape.nc && cp plain/$shape.nc py/$shape.nc.plain || return 1
    done
    "$venv/bin/python" "$here/readers.py" py/coll_perf.nc py/s3d.nc
}
if is_wanted readers; then
    cache=${PLFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/plfs-tests} && mkdir -p "$cache"
    venv=$cache/netcdf
    if said=$(python_with "$venv" netCDF4,xarray netCDF4 xarray); then check readers readers; else result readers skip "$said"; fi
fi
