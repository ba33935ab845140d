/* What the libraries that are preloaded into every process, and depend on nothing, ask of the
 * dynamic linker: this one and netcdf's. */
#ifndef PLFS_MPI_LIBRARIES_H
#define PLFS_MPI_LIBRARIES_H

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The soname of a loaded object, or NULL. */
static inline const char *soname_of(const struct dl_phdr_info *object)
{
	for (int i = 0; i < object->dlpi_phnum; i++) {
		if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		const ElfW(Dyn) *entry = (const void *)(object->dlpi_addr +
							object->dlpi_phdr[i].p_vaddr);
		ElfW(Addr) strings = 0, name = 0;
		bool named = false;
		for (; entry->d_tag != DT_NULL; entry++) {
			if (entry->d_tag == DT_STRTAB)
				strings = entry->d_un.d_ptr;
			else if (entry->d_tag == DT_SONAME)
				name = entry->d_un.d_val, named = true;
		}
		/* The loader has relocated the address, except on machines where the section is
		 * read-only. */
		if (strings && strings < object->dlpi_addr)
			strings += object->dlpi_addr;
		return named && strings ? (const char *)(strings + name) : NULL;
	}
	return NULL;
}

/* dlopen of a library in the directory of the one that has `function`. */
static inline void *load_beside(void *function, const char *name)
{
	Dl_info self;
	if (!dladdr(function, &self) || !self.dli_fname)
		return NULL;
	const char *slash = strrchr(self.dli_fname, '/');
	char path[PATH_MAX];
	int n = snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - self.dli_fname) : 0,
		self.dli_fname, name);
	if (n < 0 || (size_t)n >= sizeof path)
		return NULL;
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

#endif
