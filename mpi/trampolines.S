/* MPI_File_X and PMPI_File_X for all of functions.def: each jumps to plfs_mpi_calls[X], and has it
 * filled at the first call. With PLFS_MPI_STATIC, where the MPI is known, they jump to the door's
 * functions; PMPI_File_X is the MPI's own there, and the linker sends those who call it to
 * __wrap_PMPI_File_X.
 *
 * The profiling names are here because Fortran bindings call them (all of Open MPI's, MPICH's
 * mpi_f08), and so do tools that sit above us. No argument is looked at: every function has at most
 * six, all of them integers or pointers, so all of them are in registers. */
	.text
#ifdef PLFS_MPI_STATIC
	.macro TRAMPOLINE name
	.globl __wrap_MPI_File_\name, __wrap_PMPI_File_\name
	.type __wrap_MPI_File_\name, %function
	.type __wrap_PMPI_File_\name, %function
	.hidden door_\name
__wrap_MPI_File_\name:
__wrap_PMPI_File_\name:
#if defined(__x86_64__)
	jmp door_\name
#elif defined(__aarch64__)
	b door_\name
#else
#error "libplfs_mpiio knows x86-64 and aarch64"
#endif
	.size __wrap_MPI_File_\name, . - __wrap_MPI_File_\name
	.size __wrap_PMPI_File_\name, . - __wrap_PMPI_File_\name
	.endm
#else
	.hidden plfs_mpi_calls
	.hidden plfs_mpi_find
	.set index, 0

	.macro TRAMPOLINE name
	.globl MPI_File_\name, PMPI_File_\name
	.type MPI_File_\name, %function
	.type PMPI_File_\name, %function
	.p2align 4
MPI_File_\name:
PMPI_File_\name:
#if defined(__x86_64__)
	endbr64
	movq plfs_mpi_calls + 8 * index(%rip), %rax
	testq %rax, %rax
	je 1f
	jmpq *%rax
1:	movl $index, %eax
	jmp find_and_jump
#elif defined(__aarch64__)
	bti c
	adrp x16, plfs_mpi_calls + 8 * index
	add x16, x16, :lo12:(plfs_mpi_calls + 8 * index)
	ldar x16, [x16]
	cbz x16, 1f
	br x16
1:	mov x17, #index
	b find_and_jump
#else
#error "libplfs_mpi.so knows x86-64 and aarch64"
#endif
	.size MPI_File_\name, . - MPI_File_\name
	.size PMPI_File_\name, . - PMPI_File_\name
	.set index, index + 1
	.endm

#define FIND plfs_mpi_find
#include "find_and_jump.S"
#endif

#define NAME(name) TRAMPOLINE name;
#include "functions.h"

	.section .note.GNU-stack, "", %progbits
