/* Looking up the functions of libc behind ours. See real.h. */
#include "real.h"

#include "door.h"
#include "own_stack.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

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

bool real_openat_is_libcs;

/* Calls nothing that is not ready in the constructor (init.c). */
static bool is_in_libc(uintptr_t address)
{
	static const char LIBC[] = "/libc.so.6";
	const size_t length = sizeof LIBC - 1;
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		size_t n = map->l_name ? strlen(map->l_name) : 0;
		if (n < length || memcmp(map->l_name + n - length, LIBC, length) != 0)
			continue;
		const ElfW(Ehdr) *header = (const void *)map->l_addr;
		const ElfW(Phdr) *part = (const void *)(map->l_addr + header->e_phoff);
		for (int i = 0; i < header->e_phnum; i++)
			if (part[i].p_type == PT_LOAD &&
				address - map->l_addr - part[i].p_vaddr < part[i].p_memsz)
				return true;
	}
	return false;
}

void real_resolve_early(void)
{
#define REAL_FN(name)
#define REAL_EARLY(name) real_get(REAL_##name);
#include "real.def"
#undef REAL_EARLY
#undef REAL_FN
	real_openat_is_libcs = is_in_libc((uintptr_t)real_get(REAL_openat));
}
