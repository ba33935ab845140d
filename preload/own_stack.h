/* A stack of its own for each thread that calls libplfs.
 *
 * libplfs needs up to 24 KiB of stack, and a call of libc 200 bytes: threads with small stacks and
 * handlers of signals on alternate ones count on that. So libplfs runs on a stack that the door
 * keeps for the thread, and a program needs for a call on a PLFS file little more than for another
 * one. Nothing of the program ever runs there: handlers of signals wait until the call ends
 * (signals.c), no thread is cancelled in it, and libplfs calls nobody back. A fault is the
 * exception: what its handler calls stays on the handler's stack.
 *
 * The kernel knows by the stack pointer whether a thread is on its alternate stack for signals. If
 * one that is there went to its own stack, the next signal would be put on the alternate one from
 * its beginning, over the frames of the handler that made the call. So the kernel is told that
 * there is no alternate stack as long as such a call lasts. */
#ifndef PLFS_PRELOAD_OWN_STACK_H
#define PLFS_PRELOAD_OWN_STACK_H

#include <stdint.h>

/* Where the stack of this thread begins; or OWN_STACK_ASK, if there is none yet, or the thread may
 * be on an alternate stack, in a handler: the next call finds out; or OWN_STACK_BUSY, in the
 * handler of a fault in a call. */
#define OWN_STACK_ASK ((uintptr_t)0)
#define OWN_STACK_BUSY ((uintptr_t)1)
extern __thread uintptr_t own_stack __attribute__((tls_model("initial-exec")));

/* Called by the constructor: without it all calls stay on the caller's stack. */
void own_stack_start(void);

/* Calls `function` there, if the thread is not there already. Handlers of signals wait meanwhile:
 * the caller sees to that. */
intptr_t own_stack_call(intptr_t (*function)(void *), const void *argument);

#endif
