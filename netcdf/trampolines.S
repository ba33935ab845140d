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

	.type find_and_jump, %function
find_and_jump:
#if defined(__x86_64__)
	pushq %rdi
	pushq %rsi
	pushq %rdx
	pushq %rcx
	pushq %r8
	pushq %r9
	subq $8, %rsp
	movl %eax, %edi
	call plfs_netcdf_find
	addq $8, %rsp
	popq %r9
	popq %r8
	popq %rcx
	popq %rdx
	popq %rsi
	popq %rdi
	jmpq *%rax
#else
	stp x29, x30, [sp, #-80]!
	mov x29, sp
	stp x0, x1, [sp, #16]
	stp x2, x3, [sp, #32]
	stp x4, x5, [sp, #48]
	stp x6, x7, [sp, #64]
	mov x0, x17
	bl plfs_netcdf_find
	mov x16, x0
	ldp x0, x1, [sp, #16]
	ldp x2, x3, [sp, #32]
	ldp x4, x5, [sp, #48]
	ldp x6, x7, [sp, #64]
	ldp x29, x30, [sp], #80
	br x16
#endif
	.size find_and_jump, . - find_and_jump

#define NAME(name) TRAMPOLINE name;
#include "functions.h"

	.section .note.GNU-stack, "", %progbits
