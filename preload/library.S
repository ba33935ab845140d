/* dlopen and dlmopen (library.c). What is not ours goes on in libc by a jump, with the registers
 * and the stack that the caller left: the dynamic linker looks at the return address, for the
 * namespace, DT_RUNPATH and $ORIGIN of who calls it. */
	.text
	.globl dlopen, dlmopen
	.hidden library_open, library_open_in
	.type dlopen, %function
	.type dlmopen, %function
	.p2align 4
#if defined(__x86_64__)
	.macro ENTRY name, ask
\name:
	.cfi_startproc
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	pushq %rdx
	.cfi_adjust_cfa_offset 8
	call \ask
	movq %rax, %r11
	movq %rdx, %rax
	popq %rdx
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	testq %r11, %r11
	je 1f
	jmpq *%r11
1:	ret
	.cfi_endproc
	.size \name, . - \name
	.endm
#elif defined(__aarch64__)
	.macro ENTRY name, ask
\name:
	.cfi_startproc
	bti c
	stp x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset 29, -48
	.cfi_offset 30, -40
	mov x29, sp
	stp x0, x1, [sp, #16]
	str x2, [sp, #32]
	bl \ask
	mov x16, x0
	mov x17, x1
	ldp x0, x1, [sp, #16]
	ldr x2, [sp, #32]
	ldp x29, x30, [sp], #48
	.cfi_def_cfa_offset 0
	cbz x16, 1f
	br x16
1:	mov x0, x17
	ret
	.cfi_endproc
	.size \name, . - \name
	.endm
#else
#error "the preload library knows x86-64 and aarch64"
#endif
	ENTRY dlopen, library_open
	ENTRY dlmopen, library_open_in

	.section .note.GNU-stack, "", %progbits
