# shellcheck shell=bash
# Sourced by the suites that start MPI programs (tests/mpi, tests/mpi_programs), with a directory
# $work. More ranks than processors: those that wait give way. As root only in containers, which is
# where tests run. OMPI_MCA_rmaps is for Open MPI 4, PRTE for 5.
# shellcheck disable=SC2154
export MPIR_CVAR_POLLS_BEFORE_YIELD=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Neither is enough for an MPICH.
${CC:-cc} -shared -fPIC -O1 -o "$work/wait.so" "${BASH_SOURCE[0]%/*}/wait.c" || exit 2
export LD_PRELOAD=$work/wait.so
