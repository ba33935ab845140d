/* An auditor of the dynamic linker (rtld-audit(7)): writes to the file $T_CALLS which functions of
 * the preload library and of libc the program itself calls. Programs are linked lazily, so a
 * function is bound when it is called first, and those that are not called are not bound. A process
 * that has no descriptor left, or has become another user, notes nothing. */
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

unsigned la_version(unsigned version)
{
	return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie)
{
	(void)namespace;
	(void)cookie;
	if (strstr(map->l_name, "libplfs_preload") || strstr(map->l_name, "libc.so"))
		return LA_FLG_BINDTO;
	return map->l_name[0] ? 0 : LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to,
	unsigned *flags, const char *name)
{
	(void)index;
	(void)from;
	(void)to;
	(void)flags;
	char line[100];
	size_t n = strlen(name);
	if (n >= sizeof line)
		abort();
	memcpy(line, name, n);
	line[n] = '\n';
	int fd = open(getenv("T_CALLS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd >= 0) {
		if (write(fd, line, n + 1) != (ssize_t)n + 1)
			abort();
		close(fd);
	}
	return symbol->st_value;
}
