/* The first call of a trampoline, of MPI-IO or of netcdf: FIND gives the function for the number
 * that the trampoline has put into eax or x17, and the call goes on there with the arguments that
 * it came with. Those in registers are kept, six at most; those on the stack stay. */
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
	call FIND
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
	bl FIND
	mov x16, x0
	ldp x0, x1, [sp, #16]
	ldp x2, x3, [sp, #32]
	ldp x4, x5, [sp, #48]
	ldp x6, x7, [sp, #64]
	ldp x29, x30, [sp], #80
	br x16
#endif
	.size find_and_jump, . - find_and_jump
