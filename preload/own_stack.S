/* Calls of libplfs on a stack of the thread's own; own_stack.h says why.
 *
 * The linker sends each call of a function of own_stack.def to __wrap_X (`--wrap`). No argument is
 * looked at: every function has at most six, all of them integers or pointers, so all of them are
 * in registers. */
	.text
	.hidden own_stack
	.hidden own_stack_choose
	.hidden own_stack_leave_alternate
	.hidden own_stack_enter_alternate

#if defined(__x86_64__)
	/* The call, if there is a stack for it in %rax. */
	.macro CALL_THERE function
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq %rsp, %rbp
	.cfi_def_cfa_register %rbp
	movq %rax, %rsp
	call *\function
	leave
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
	ret
	.endm

	.macro WRAP name
	.globl __wrap_\name
	.hidden __wrap_\name
	.type __wrap_\name, %function
	.p2align 4
__wrap_\name:
	.cfi_startproc
	movq own_stack@gottpoff(%rip), %rax
	movq %fs:(%rax), %rax
	cmpq $1, %rax
	jbe 1f
	CALL_THERE __real_\name@GOTPCREL(%rip)
1:	movq __real_\name@GOTPCREL(%rip), %r11
	jmp find_stack
	.cfi_endproc
	.size __wrap_\name, . - __wrap_\name
	.endm
#elif defined(__aarch64__)
	.macro CALL_THERE
	stp x29, x30, [sp, #-16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov x29, sp
	.cfi_def_cfa_register x29
	mov sp, x9
	blr x16
	mov sp, x29
	ldp x29, x30, [sp], #16
	.cfi_def_cfa sp, 0
	.cfi_restore x29
	.cfi_restore x30
	ret
	.endm

	.macro LOAD_STACK
	adrp x9, :gottprel:own_stack
	ldr x9, [x9, :gottprel_lo12:own_stack]
	mrs x10, tpidr_el0
	ldr x9, [x9, x10]
	cmp x9, #1
	.endm

	.macro WRAP name
	.globl __wrap_\name
	.hidden __wrap_\name
	.type __wrap_\name, %function
	.p2align 4
__wrap_\name:
	.cfi_startproc
	adrp x16, :got:__real_\name
	ldr x16, [x16, :got_lo12:__real_\name]
	LOAD_STACK
	b.ls find_stack
	CALL_THERE
	.cfi_endproc
	.size __wrap_\name, . - __wrap_\name
	.endm
#else
#error "the preload library knows x86-64 and aarch64"
#endif

#define OWN_STACK(name) WRAP name;
#define CALLERS_STACK(name)
#include "own_stack.def"

	/* Where `own_stack` says OWN_STACK_ASK, or OWN_STACK_BUSY: the flags are those of its
	 * comparison with that. The function is in %r11 or x16. */
	.globl own_stack_call_there
	.hidden own_stack_call_there
	.type own_stack_call_there, %function
	.type find_stack, %function
	.p2align 4
#if defined(__x86_64__)
own_stack_call_there:
	.cfi_startproc
	movq %rdi, %r11
	movq %rsi, %rdi
again:	movq own_stack@gottpoff(%rip), %rax
	movq %fs:(%rax), %rax
	cmpq $1, %rax
	jbe find_stack
	CALL_THERE %r11
	.cfi_endproc
	.size own_stack_call_there, . - own_stack_call_there

find_stack:
	.cfi_startproc
	jne 1f
	jmpq *%r11

1:	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq %rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq %rdi
	pushq %rsi
	pushq %rdx
	pushq %rcx
	pushq %r8
	pushq %r9
	pushq %r11
	subq $8, %rsp
	call own_stack_choose
	cmpq $1, %rax
	jbe 2f
	movq %rax, %rsp
	call own_stack_leave_alternate
	movq -8(%rbp), %rdi
	movq -16(%rbp), %rsi
	movq -24(%rbp), %rdx
	movq -32(%rbp), %rcx
	movq -40(%rbp), %r8
	movq -48(%rbp), %r9
	call *-56(%rbp)
	leaq -64(%rbp), %rsp
	movq %rax, -8(%rbp)
	call own_stack_enter_alternate
	movq -8(%rbp), %rax
	leave
	.cfi_remember_state
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
	ret
	.cfi_restore_state

2:	movq -8(%rbp), %rdi
	movq -16(%rbp), %rsi
	movq -24(%rbp), %rdx
	movq -32(%rbp), %rcx
	movq -40(%rbp), %r8
	movq -48(%rbp), %r9
	movq -56(%rbp), %r11
	leave
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
	testq %rax, %rax
	jne again
	jmpq *%r11
	.cfi_endproc
#else
own_stack_call_there:
	.cfi_startproc
	mov x16, x0
	mov x0, x1
again:	LOAD_STACK
	b.ls find_stack
	CALL_THERE
	.cfi_endproc
	.size own_stack_call_there, . - own_stack_call_there

find_stack:
	.cfi_startproc
	b.ne 1f
	br x16

1:	stp x29, x30, [sp, #-96]!
	.cfi_def_cfa_offset 96
	.cfi_offset x29, -96
	.cfi_offset x30, -88
	mov x29, sp
	.cfi_def_cfa_register x29
	stp x0, x1, [x29, #16]
	stp x2, x3, [x29, #32]
	stp x4, x5, [x29, #48]
	str x16, [x29, #64]
	bl own_stack_choose
	cmp x0, #1
	b.ls 2f
	mov sp, x0
	bl own_stack_leave_alternate
	ldp x0, x1, [x29, #16]
	ldp x2, x3, [x29, #32]
	ldp x4, x5, [x29, #48]
	ldr x16, [x29, #64]
	blr x16
	mov sp, x29
	str x0, [x29, #16]
	bl own_stack_enter_alternate
	ldr x0, [x29, #16]
	ldp x29, x30, [sp], #96
	.cfi_remember_state
	.cfi_def_cfa sp, 0
	.cfi_restore x29
	.cfi_restore x30
	ret
	.cfi_restore_state

2:	mov x9, x0
	ldp x0, x1, [x29, #16]
	ldp x2, x3, [x29, #32]
	ldp x4, x5, [x29, #48]
	ldr x16, [x29, #64]
	ldp x29, x30, [sp], #96
	.cfi_def_cfa sp, 0
	.cfi_restore x29
	.cfi_restore x30
	cbnz x9, again
	br x16
	.cfi_endproc
#endif
	.size find_stack, . - find_stack

	.section .note.GNU-stack, "", %progbits
