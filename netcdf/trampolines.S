/* ncmpi_X for all of functions.def that is ours: each jumps to plfs_netcdf_calls[X], and has it
 * filled at the first call. No argument is looked at; what is in registers is kept for the first
 * call, what is on the stack stays there. */
	.text
	.hidden plfs_netcdf_calls
	.hidden plfs_netcdf_find
	.set index, 0

	.macro TRAMPOLINE name
	.globl ncmpi_\name
	.type ncmpi_\name, %function
	.p2align 4
ncmpi_\name:
#if defined(__x86_64__)
	endbr64
	movq plfs_netcdf_calls + 8 * index(%rip), %rax
	testq %rax, %rax
	je 1f
	jmpq *%rax
1:	movl $index, %eax
	jmp find_and_jump
#elif defined(__aarch64__)
	bti c
	adrp x16, plfs_netcdf_calls + 8 * index
	add x16, x16, :lo12:(plfs_netcdf_calls + 8 * index)
	ldar x16, [x16]
	cbz x16, 1f
	br x16
1:	mov x17, #index
	b find_and_jump
#else
#error "libplfs_netcdf.so knows x86-64 and aarch64"
#endif
	.size ncmpi_\name, . - ncmpi_\name
	.set index, index + 1
	.endm

#define FIND plfs_netcdf_find
#include "../mpi/find_and_jump.S"

#define NAME(name) TRAMPOLINE name;
#include "functions.h"

	.section .note.GNU-stack, "", %progbits
