/* Looking up the functions of libc behind ours. See real.h. */
#include "real.h"

#include "door.h"
#include "own_stack.h"

#include <dlfcn.h>

_Atomic(void *) real_table[REAL_COUNT];

static const char *const real_names[REAL_COUNT] = {
#define REAL_FN(name) #name,
#define REAL_EARLY(name) #name,
#include "real.def"
#undef REAL_EARLY
#undef REAL_FN
};

static long real_missing(void)
{
	errno = ENOSYS;
	return -1;
}

static intptr_t look_up(void *name)
{
	return (intptr_t)dlsym(RTLD_NEXT, name);
}

/* The dynamic linker takes 1.3 KiB of stack. */
void *real_resolve(enum real_id id)
{
	int saved = errno;
	signals_defer();
	void *p = (void *)own_stack_call(look_up, real_names[id]);
	signals_resume();
	if (!p)
		p = (void *)real_missing;
	atomic_store_explicit(&real_table[id], p, memory_order_relaxed);
	errno = saved;
	return p;
}

void real_resolve_all(void)
{
	for (int id = 0; id < REAL_COUNT; id++)
		real_get((enum real_id)id);
}

void real_resolve_early(void)
{
#define REAL_FN(name)
#define REAL_EARLY(name) real_get(REAL_##name);
#include "real.def"
#undef REAL_EARLY
#undef REAL_FN
}
