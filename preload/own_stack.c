/* The stacks of own_stack.S: made, given back, and left for the caller's. See own_stack.h. */
#include "own_stack.h"

#include "door.h"

#include <pthread.h>
#include <signal.h>

/* Ten times what libplfs was seen to need. What is not touched costs no memory. The lowest page is
 * not there: an overflow is SIGSEGV. */
#define STACK_BYTES ((size_t)256 << 10)
#define GUARD_BYTES ((size_t)64 << 10)

/* Where it begins in its last page. Loads wait for stores that have the same place in another page,
 * and libplfs's heap has what a write needs at places that are much the same in all programs. From
 * the end of the page on, a write of 64 bytes took 4 ns more; from 0x480 below, 14. */
#define UNUSED_BYTES 0x600

__thread uintptr_t own_stack __attribute__((tls_model("initial-exec")));

static __thread struct {
	char *memory;
	/* While libplfs is called from an alternate stack. */
	stack_t alternate;
	uint64_t mask;
} mine __attribute__((tls_model("initial-exec")));

static bool has_key;
static pthread_key_t key;

/* A thread ends. If a later destructor calls libplfs there is another stack, and this again. */
static void give_back(void *memory)
{
	own_stack = OWN_STACK_ASK;
	mine.memory = NULL;
	RAW(SYS_munmap, memory, STACK_BYTES);
	threads_one_ends();
}

void own_stack_start(void)
{
	has_key = pthread_key_create(&key, give_back) == 0 && key < KEYS_WITHOUT_MALLOC;
}

static bool make(void)
{
	if (!has_key)
		return false;
	char *memory = (char *)RAW(SYS_mmap, NULL, STACK_BYTES, (long)(PROT_READ | PROT_WRITE),
		(long)(MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK), -1L, 0L);
	if (memory == MAP_FAILED)
		return false;
	if (RAW(SYS_mprotect, memory, GUARD_BYTES, (long)PROT_NONE) < 0 ||
		pthread_setspecific(key, memory) != 0) {
		RAW(SYS_munmap, memory, STACK_BYTES);
		return false;
	}
	mine.memory = memory;
	return true;
}

/* Called by own_stack.S where `own_stack` says OWN_STACK_ASK. Gives OWN_STACK_ASK if the call is to
 * stay on the caller's stack; OWN_STACK_BUSY if `own_stack` says now where to go; or where to go
 * from an alternate stack: then all signals are blocked. */
uintptr_t own_stack_choose(void);
uintptr_t own_stack_choose(void)
{
	int saved = errno;
	uintptr_t there = OWN_STACK_ASK;
	if (mine.memory || make()) {
		uintptr_t top = (uintptr_t)mine.memory + STACK_BYTES - UNUSED_BYTES;
		if (RAW(SYS_sigaltstack, NULL, &mine.alternate) == 0 &&
			(mine.alternate.ss_flags & SS_ONSTACK)) {
			signals_block_all(&mine.mask);
			there = top;
		} else {
			own_stack = top;
			there = OWN_STACK_BUSY;
		}
	}
	errno = saved;
	return there;
}

/* On the thread's own stack: the alternate one is none for now. No signal may come between the way
 * from the one to the other and this. */
void own_stack_leave_alternate(void);
void own_stack_leave_alternate(void)
{
	stack_t none = {.ss_flags = SS_DISABLE};
	RAW(SYS_sigaltstack, &none, NULL);
	signals_restore(&mine.mask);
}

/* On the alternate stack again. `own_stack` is what it was: the next call asks, too. */
void own_stack_enter_alternate(void);
void own_stack_enter_alternate(void)
{
	stack_t again = mine.alternate;
	again.ss_flags &= ~SS_ONSTACK;
	RAW(SYS_sigaltstack, &again, NULL);
}

/* The part in own_stack.S. */
intptr_t own_stack_call_there(intptr_t (*function)(void *), void *argument);

intptr_t own_stack_call(intptr_t (*function)(void *), const void *argument)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	bool is_there = here - (uintptr_t)mine.memory < STACK_BYTES;
	return is_there ? function((void *)argument)
			: own_stack_call_there(function, (void *)argument);
}
