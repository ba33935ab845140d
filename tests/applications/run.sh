#!/bin/bash
# tests/applications/run.sh BUILD_DIR [TEST...]
#
# Proves: applications of science and their Python stacks give the same results through PLFS, restarts included
# Takes 120 s
# On demand: it installs what takes minutes (make test-applications)
# As tests/programs: each in a plain directory and under `plfs run`, with the workloads shared and
# auto; exit status, output and the bytes of all files left behind must be equal. What says when or
# where it ran (logs, profiles) is removed before. LAMMPS through MPI-IO is in tests/mpi_programs.
# The Python stacks come from PyPI into PLFS_TEST_CACHE, by default ~/.cache/plfs-tests; GROMACS,
# LAMMPS and h5py over MPI are Debian's packages. torch is tested where it is installed already.
# Environment: T_DIR, where the directories are made (default /tmp).
set -u
build=$(realpath "$1") && shift || exit 2
wanted=" $* "
here=$(dirname "$(realpath "$0")")
[ -x "$build/bin/plfs" ] || { echo "no $build/bin/plfs"; exit 2; }
cache=${PLFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/plfs-tests}
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-applications.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"
export LC_ALL=C TZ=UTC HERE=$here OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Ranks of a test share the processors of a machine that may have fewer.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
# shellcheck source=tests/same.sh
. "$here/../same.sh"

stacks=(numpy h5py zarr duckdb adios2)
venv=$cache/applications
export PYTHON=$venv/bin/python
for stack in "${stacks[@]}"; do
    is_wanted "$stack" || continue
    if said=$(python_with "$venv" "$stack" "${stacks[@]}"); then same "$stack" "\$PYTHON \$HERE/app_$stack.py"
    else result "$stack" skip "$said"; fi
done

# torch's wheels are gigabytes.
if is_wanted torch; then
    for python in "$venv/bin/python" python3; do
        "$python" -c 'import torch' 2> /dev/null && break
    done
    export PYTHON=$python
    if "$python" -c 'import torch' 2> /dev/null; then same torch "\$PYTHON \$HERE/app_torch.py"
    else result torch skip "torch is not installed"; fi
fi

# Written by one number of ranks and read by another. Debian's h5py takes the build for MPI under
# an MPI.
export DEBIAN_PYTHON=/usr/bin/python3
if is_wanted h5py_mpi; then
    if [ -e /usr/lib/python3/dist-packages/h5py/_debian_h5py_mpi ]; then
        for how in independent collective; do
            same "h5py_mpi $how" "for n in 1 3 4; do mpiexec.openmpi -n \$n \$DEBIAN_PYTHON -s \$HERE/app_h5py_mpi.py f\$n.h5 $how write &&
                mpiexec.openmpi -n 2 \$DEBIAN_PYTHON -s \$HERE/app_h5py_mpi.py f\$n.h5 $how read || exit; done"
        done
    else result h5py_mpi skip "needs python3-h5py-mpi"; fi
fi

# By POSIX calls, and a restart on another number of ranks.
if is_wanted lammps; then
    if command -v lmp > /dev/null; then
        same lammps 'for n in 1 4; do mpiexec.openmpi -n $n lmp -log none -in $HERE/lammps.in -var again 0 -var n $n > out &&
            mpiexec.openmpi -n 2 lmp -log none -in $HERE/lammps.in -var again 1 -var n $n >> out && grep "^ *50 \|^atoms" out || { tail out; exit 1; }; done; rm out'
    else result lammps skip "needs lammps"; fi
fi

# Water; stopped halfway, and continued from the checkpoint with -append, which locks and checks the
# files that it goes on with.
if is_wanted gromacs; then
    if command -v gmx > /dev/null; then
        same gromacs 'export GMX_MAXBACKUP=-1; md() { gmx -quiet mdrun -ntmpi 1 -ntomp 1 -reprod -s run.tpr -deffnm run "$@" > md.out 2>&1 || { tail md.out; exit 1; }; }
            { cp $HERE/gromacs.mdp $HERE/gromacs.top . && gmx -quiet solvate -cs spc216.gro -box 1.9 1.9 1.9 -o start.gro -p gromacs.top &&
                gmx -quiet grompp -f gromacs.mdp -c start.gro -p gromacs.top -o run.tpr -maxwarn 3; } > prepare.out 2>&1 || { tail prepare.out; exit 1; }
            md -nsteps 100 && md -nsteps 100 -cpi run.cpt -append && grep -q "Restarting from checkpoint, appending" run.log &&
            gmx -quiet energy -f run.edr -o energy.xvg <<< "Potential" 2> /dev/null | grep ^Potential; gmx -quiet dump -f run.trr 2> /dev/null | grep -v "^run" | md5sum
            tail -n 1 run.gro; rm -f run.log run*.cpt run.edr run.tpr mdout.mdp *.out energy.xvg'
    else result gromacs skip "needs gromacs"; fi
fi
