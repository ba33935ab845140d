/* Looks at memory that may not be there (signals.c). A fault between probe_begin and probe_end goes
 * on at probe_failed, as one of the kernel's own would: so a look costs one instruction, and has no
 * state that a handler could leave behind. Each gives 1, and 0 after a fault. */
	.text
	.globl probe_begin, probe_end, probe_failed, probe_read, probe_write
	.hidden probe_begin, probe_end, probe_failed, probe_read, probe_write
	.type probe_read, %function
	.type probe_write, %function
	.p2align 4
#if defined(__x86_64__)
probe_begin:
probe_read:
	.cfi_startproc
	movb (%rdi), %al
	movl $1, %eax
	ret
	.cfi_endproc
	.size probe_read, . - probe_read

	/* What other threads write there meanwhile stays. */
	.p2align 4
probe_write:
	.cfi_startproc
	lock orb $0, (%rdi)
	movl $1, %eax
	ret
	.cfi_endproc
	.size probe_write, . - probe_write
probe_end:

probe_failed:
	xorl %eax, %eax
	ret
#elif defined(__aarch64__)
probe_begin:
probe_read:
	.cfi_startproc
	ldrb w9, [x0]
	mov w0, #1
	ret
	.cfi_endproc
	.size probe_read, . - probe_read

	/* What other threads write there meanwhile stays. */
	.p2align 4
probe_write:
	.cfi_startproc
1:	ldxrb w9, [x0]
	stxrb w10, w9, [x0]
	cbnz w10, 1b
	mov w0, #1
	ret
	.cfi_endproc
	.size probe_write, . - probe_write
probe_end:

probe_failed:
	mov w0, #0
	ret
#else
#error "the preload library knows x86-64 and aarch64"
#endif

	.section .note.GNU-stack, "", %progbits
