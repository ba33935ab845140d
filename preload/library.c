/* Libraries that lie in containers.
 *
 * The dynamic linker opens what it loads by system calls of its own, and finds a superblock there,
 * or nothing in a pack. So dlopen is given a copy in memory, under a name of /proc that no other
 * library ever had: the linker tells libraries apart by their names, and a second dlopen of
 * the file asks by the same one. When it is loaded its name is made that of the file, for dladdr,
 * debuggers and who else asks.
 *
 * What such a library needs, and finds beside itself ($ORIGIN), the linker would look for in
 * /proc; so that is loaded first, and the linker takes what has the right soname. */
#include "door.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

/* One that was loaded from a copy, and perhaps is no more. */
struct library {
	struct library *next;
	dev_t dev;
	ino_t ino;
	/* Where it lies, and what the linker calls it. */
	char *path, *seen;
	/* Calls that load it, and the copy, which is there as long as there are some. */
	int users, image;
	/* Who was the first, and whether the linker has been asked yet, or what it needs is loaded
	 * still. */
	pid_t first;
	bool linking;
	/* It was loaded, and is no more. */
	bool is_gone;
	/* How often the linker loaded it: a thread that came early does so again when others have
	 * unloaded it. */
	unsigned loads;
	/* As the linker has it: NULL until it is loaded. The name is the linker's, and may be
	 * freed: it is only compared. */
	struct link_map *map;
	const char *name;
	ElfW(Addr) at;
};

/* The lock is not held while the linker loads: that runs constructors, and has a lock of its own,
 * which a thread may hold that comes here from a constructor. Two threads that load one file give
 * the linker one name, and the second one finds it loaded. */
static struct library *libraries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* LD_LIBRARY_PATH when the program began, which is what the linker goes by. */
static char *library_path;

/* What dlerror is to say to this thread, instead of what the linker calls the file. */
static __thread struct {
	bool is;
	char text[512];
} complaint;

void library_start(void)
{
	const char *path = getenv("LD_LIBRARY_PATH");
	if (!path || !*path)
		return;
	/* strdup may be a sanitizer's. */
	size_t bytes = strlen(path) + 1;
	char *copy = (char *)RAW(SYS_mmap, NULL, bytes, (long)(PROT_READ | PROT_WRITE),
		(long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
	library_path = copy == MAP_FAILED ? NULL : memcpy(copy, path, bytes);
}

void library_after_fork_in_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static pid_t this_thread(void)
{
	return (pid_t)RAW(SYS_gettid);
}

/* --- What the linker has --- */

static int look_for(struct dl_phdr_info *info, size_t size, void *library)
{
	(void)size;
	struct library *l = library;
	return info->dlpi_name == l->name && info->dlpi_addr == l->at &&
	       strcmp(info->dlpi_name, l->path) == 0;
}

static bool is_loaded(struct library *l)
{
	return l->map && dl_iterate_phdr(look_for, l) != 0;
}

static void drop(struct library *l)
{
	struct library **p = &libraries;
	while (*p != l)
		p = &(*p)->next;
	*p = l->next;
	free(l->path);
	free(l->seen);
	free(l);
}

/* The lock is held. Drops what was unloaded: the file may have other bytes by now. */
static struct library *find(const struct stat *st)
{
	for (struct library *l = libraries; l; l = l->next) {
		if (l->dev != st->st_dev || l->ino != st->st_ino)
			continue;
		if (l->map ? is_loaded(l) : l->users > 0)
			return l;
		/* Nobody finds it any more; who still asks the linker for it drops it. */
		l->ino = 0;
		l->is_gone = true;
		if (l->users == 0)
			drop(l);
		return NULL;
	}
	return NULL;
}

/* A name of descriptor `fd` that was not used before: slashes and dots are the digits of a number.
 */
static char *name_of_copy(int fd)
{
	static uint32_t number;
	char name[128];
	size_t n = strlen(fd_path(name, fd));
	n = (size_t)(strrchr(name, '/') + 1 - name);
	for (uint32_t left = ++number; left; left >>= 1)
		n += (size_t)sprintf(name + n, left & 1 ? "./" : "/");
	sprintf(name + n, "%d", fd);
	return strdup(name);
}

/* --- What a library needs --- */

static bool get(int fd, void *into, size_t n, uint64_t offset)
{
	return offset < INT64_MAX && RAW(SYS_pread64, (long)fd, into, n, (long)offset) == (long)n;
}

/* The text at `offset` of a library's strings, which begin at `strings` of the file. */
static bool get_text(int fd, uint64_t strings, uint64_t offset, char text[PATH_MAX])
{
	long n = RAW(SYS_pread64, (long)fd, text, (long)PATH_MAX - 1, (long)(strings + offset));
	if (n <= 0)
		return false;
	text[n] = 0;
	return strlen(text) < (size_t)n;
}

/* More entries than this no library has that people made. */
#define ENTRIES 1024
#define PARTS 64

/* The dynamic section of an ELF file, and room for what is done with it. */
struct dynamic {
	int fd;
	uint64_t strings; /* where they begin in the file */
	size_t count;
	ElfW(Dyn) entry[ENTRIES];
	ElfW(Phdr) part[PARTS];
	char at[PATH_MAX], origin[PATH_MAX], name[PATH_MAX], paths[PATH_MAX], found[PATH_MAX];
};

_Static_assert(sizeof(struct dynamic) <= ROOM_BYTES, "it has room");

static bool read_dynamic(struct dynamic *d)
{
	ElfW(Ehdr) elf;
	if (!get(d->fd, &elf, sizeof elf, 0) || memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 ||
		elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_phentsize != sizeof *d->part ||
		elf.e_phnum > PARTS ||
		!get(d->fd, d->part, elf.e_phnum * sizeof *d->part, elf.e_phoff))
		return false;
	for (const ElfW(Phdr) *p = d->part; p < d->part + elf.e_phnum; p++)
		if (p->p_type == PT_DYNAMIC && p->p_filesz / sizeof *d->entry <= ENTRIES) {
			d->count = p->p_filesz / sizeof *d->entry;
			if (!get(d->fd, d->entry, d->count * sizeof *d->entry, p->p_offset))
				d->count = 0;
		}
	uint64_t address = 0;
	for (size_t k = 0; k < d->count; k++)
		if (d->entry[k].d_tag == DT_STRTAB)
			address = d->entry[k].d_un.d_ptr;
	/* Where in the file an address is the parts to be loaded say. */
	for (const ElfW(Phdr) *p = d->part; address && p < d->part + elf.e_phnum; p++)
		if (p->p_type == PT_LOAD && address >= p->p_vaddr &&
			address - p->p_vaddr < p->p_filesz)
			d->strings = p->p_offset + (address - p->p_vaddr);
	return d->strings != 0;
}

/* NULL if the file at fd has none. */
static struct dynamic *get_dynamic(int fd)
{
	struct dynamic *d = room_get();
	if (!d)
		return NULL;
	d->fd = fd;
	if (read_dynamic(d))
		return d;
	room_free(d);
	return NULL;
}

/* The i-th text with this tag. */
static bool get_entry(const struct dynamic *d, int64_t tag, unsigned i, char text[PATH_MAX])
{
	for (size_t k = 0; k < d->count; k++)
		if (d->entry[k].d_tag == tag && i-- == 0)
			return get_text(d->fd, d->strings, d->entry[k].d_un.d_val, text);
	return false;
}

/* Looks for library `name` in the directories of `list`, with `origin` for $ORIGIN. True: there is
 * a file, whose path is in `found`. */
static bool search(const char *list, const char *origin, const char *name, char found[PATH_MAX])
{
	for (bool more = list && *list; more;) {
		size_t len = strcspn(list, ":;");
		const char *rest = list;
		size_t left = len;
		bool starts = false;
		for (int k = 0; k < 2 && !starts; k++) {
			const char *word = k ? "${ORIGIN}" : "$ORIGIN";
			starts = len >= strlen(word) && memcmp(list, word, strlen(word)) == 0;
			if (starts)
				rest += strlen(word), left -= strlen(word);
		}
		int n = snprintf(
			found, PATH_MAX, "%s%.*s/%s", starts ? origin : "", (int)left, rest, name);
		struct stat st;
		if (n > 0 && n < PATH_MAX && len > 0 && (!starts || origin) &&
			stat(found, &st) == 0 && S_ISREG(st.st_mode))
			return true;
		more = list[len] != 0;
		list += len + 1;
	}
	return false;
}

static bool is_in_container(const char *path)
{
	return path_is_container(AT_FDCWD, path) || path_is_flat(AT_FDCWD, path) == 1;
}

/* Where d->name is, for d->found. As the linker: DT_RPATH, LD_LIBRARY_PATH, which is `list`,
 * DT_RUNPATH. */
static bool search_needed(struct dynamic *d, const char *list)
{
	bool has_runpath = get_entry(d, DT_RUNPATH, 0, d->paths);
	if (!has_runpath && get_entry(d, DT_RPATH, 0, d->paths) &&
		search(d->paths, d->origin, d->name, d->found))
		return true;
	return search(list, d->origin, d->name, d->found) ||
	       (has_runpath && search(d->paths, d->origin, d->name, d->found));
}

/* The directory of an absolute path. */
static void directory_of(const char *path, char dir[PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	int len = slash && slash > path ? (int)(slash - path) : 1;
	snprintf(dir, PATH_MAX, "%.*s", len, path);
}

static void absolute(const char *path, char out[PATH_MAX])
{
	size_t n = 0;
	if (*path != '/' && getcwd(out, PATH_MAX)) {
		n = strlen(out);
		out[n++] = '/';
	}
	if (n + strlen(path) < PATH_MAX)
		strcpy(out + n, path);
	else
		*out = 0;
}

/* --- Loading --- */

struct held {
	void *handle;
	struct held *next;
};

static void *open_library(Lmid_t space, const char *path, int mode);

static void *link_library(Lmid_t space, const char *path, int mode)
{
	return space == LM_ID_BASE ? REAL(dlopen)(path, mode) : REAL(dlmopen)(space, path, mode);
}

/* Loads what the library that is open at fd needs and the linker would not find. It is held until
 * that library holds it. */
static struct held *open_needed(Lmid_t space, int fd, const char *path, bool copied)
{
	struct held *all = NULL;
	struct dynamic *d = get_dynamic(fd);
	if (!d)
		return NULL;
	directory_of(path, d->origin);
	for (unsigned i = 0; get_entry(d, DT_NEEDED, i, d->name); i++) {
		if (strchr(d->name, '/') || !search_needed(d, library_path))
			continue;
		/* What the linker finds itself is left to it. */
		if (!copied && !is_in_container(d->found))
			continue;
		void *handle = link_library(space, d->name, RTLD_LAZY | RTLD_NOLOAD);
		struct held *h = malloc(sizeof *h);
		handle = handle ? handle : open_library(space, d->found, RTLD_LAZY);
		if (handle && h) {
			*h = (struct held){handle, all};
			all = h;
		} else {
			free(h);
		}
	}
	room_free(d);
	return all;
}

static void let_go(struct held *h)
{
	while (h) {
		struct held *next = h->next;
		dlclose(h->handle);
		free(h);
		h = next;
	}
}

/* For dlerror: what the linker says, of the file that it calls `seen`. */
static void complain(const char *seen, const char *path)
{
	const char *said = REAL(dlerror)(), *at = said ? strstr(said, seen) : NULL;
	if (!said)
		return;
	int before = at ? (int)(at - said) : 0;
	snprintf(complaint.text, sizeof complaint.text, "%.*s%s%s", before, said, at ? path : "",
		at ? at + strlen(seen) : said);
	complaint.is = true;
}

/* An entry for the copy at `image`, which it takes. The lock is held. */
static struct library *new_library(Lmid_t space, int image, const char *path, const struct stat *st)
{
	struct library *l = calloc(1, sizeof *l);
	if (!l)
		return NULL;
	/* In another namespace than the first nobody asks for it by the file. */
	ino_t ino = space == LM_ID_BASE ? st->st_ino : 0;
	*l = (struct library){.dev = st->st_dev,
		.ino = ino,
		.path = strdup(path),
		.seen = name_of_copy(image),
		.image = image,
		.first = this_thread()};
	if (!l->path || !l->seen) {
		free(l->path);
		free(l->seen);
		free(l);
		return NULL;
	}
	l->next = libraries;
	libraries = l;
	return l;
}

/* Is it what the linker has? */
static bool is_map_of(struct library *l, const struct link_map *map)
{
	return map == l->map && map->l_name == l->name;
}

/* Loads it, or finds it loaded. The lock is held, and let go meanwhile. *late: another thread has
 * unloaded it since it was found, and the linker has looked for a copy that is gone. */
static void *load(struct library *l, Lmid_t space, int mode, bool *late)
{
	struct held *needed = NULL;
	struct link_map *map = NULL;
	*late = false;
	bool asks = !l->map, again = asks && l->users > 0 && l->first == this_thread();
	/* Two that need each other the linker would have to find itself. */
	if (again && !l->linking)
		return NULL;
	unsigned loads = l->loads;
	l->users++;
	pthread_mutex_unlock(&lock);
	if (asks && !again)
		needed = open_needed(space, l->image, l->path, true);
	pthread_mutex_lock(&lock);
	l->linking = true;
	pthread_mutex_unlock(&lock);
	/* What is loaded is only asked for: its copy is closed, and the number may be that of a
	 * copy that is still being made. */
	void *handle = link_library(space, l->seen, asks ? mode : mode | RTLD_NOLOAD);
	if (!handle)
		complain(l->seen, l->path);
	let_go(needed);
	char *name = strdup(l->path);
	if (handle)
		REAL(dlinfo)(handle, RTLD_DI_LINKMAP, &map);
	pthread_mutex_lock(&lock);
	/* Whoever loads the file anew has marked it: map and name may lie where ours lay. */
	if (!asks)
		*late = map ? !is_map_of(l, map) : l->is_gone || l->loads != loads || !is_loaded(l);
	/* The linker frees the new name. Somebody may have been told the old one. */
	if (asks && map && name && !is_map_of(l, map)) {
		map->l_name = name;
		l->map = map;
		l->name = name;
		l->at = map->l_addr;
		l->loads++;
		name = NULL;
	}
	free(name);
	if (--l->users == 0) {
		if (l->image >= 0)
			RAW(SYS_close, (long)l->image);
		l->image = -1;
		if (!l->map || l->is_gone)
			drop(l);
	}
	if (*late && handle) {
		/* Another library, whose copy has the number of ours. */
		pthread_mutex_unlock(&lock);
		dlclose(handle);
		pthread_mutex_lock(&lock);
		handle = NULL;
	}
	return handle;
}

/* A copy of the library at `path` in memory; -1 if it is none. */
static int copy_of(const char *path)
{
	char head[SELFMAG] = "", name[200];
	const char *slash = strrchr(path, '/');
	snprintf(name, sizeof name, "%.199s", slash ? slash + 1 : path);
	int fd = door_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), image = -1;
	if (fd < 0)
		return -1;
	if (pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head &&
		memcmp(head, ELFMAG, SELFMAG) == 0)
		image = copy_in_memory(fd, name);
	door_close(fd);
	return image;
}

/* Loads what a library in a plain file needs of containers. */
static struct held *open_needed_by_plain(Lmid_t space, const char *path)
{
	ROOM(at);
	if (!at)
		return NULL;
	absolute(path, at);
	int fd = (int)RAW(SYS_openat, AT_FDCWD, path, (long)(O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	struct held *needed = fd < 0 || !*at ? NULL : open_needed(space, fd, at, false);
	if (fd >= 0)
		RAW(SYS_close, (long)fd);
	return needed;
}

/* Links what is no container. */
static void *open_plain(Lmid_t space, const char *path, int mode, struct held *needed)
{
	void *handle = link_library(space, path, mode);
	if (!handle && needed)
		complain(path, path);
	let_go(needed);
	return handle;
}

/* Loads the library at `path`, wherever it lies. */
static void *open_library(Lmid_t space, const char *path, int mode)
{
	struct stat st;
	ROOM(at);
	if (at)
		absolute(path, at);
	if (!at || !*at || stat(path, &st) < 0)
		return link_library(space, path, mode);
	if (!is_in_container(path))
		return open_plain(space, path, mode, open_needed_by_plain(space, path));
	void *handle = NULL, *first = NULL;
	/* What the library needs is to be loaded before it, in one namespace. */
	if (space == LM_ID_NEWLM && (first = REAL(dlmopen)(space, "libc.so.6", RTLD_LAZY)))
		REAL(dlinfo)(first, RTLD_DI_LMID, &space);
	bool late;
again:
	pthread_mutex_lock(&lock);
	struct library *l = space == LM_ID_BASE ? find(&st) : NULL;
	if (!l && !(mode & RTLD_NOLOAD)) {
		/* Not under the lock: it reads the file. */
		pthread_mutex_unlock(&lock);
		int image = copy_of(at);
		pthread_mutex_lock(&lock);
		l = space == LM_ID_BASE ? find(&st) : NULL;
		l = l || image < 0 ? l : new_library(space, image, at, &st);
		if (image >= 0 && (!l || l->image != image))
			RAW(SYS_close, (long)image);
	}
	late = false;
	if (l)
		handle = load(l, space, mode, &late);
	pthread_mutex_unlock(&lock);
	if (late) {
		complaint.is = false;
		goto again;
	}
	/* The linker says what is wrong with it. */
	if (!l && !(mode & RTLD_NOLOAD))
		handle = link_library(space, path, mode);
	if (first) {
		if (!handle && !complaint.is)
			complain(path, path);
		dlclose(first);
	}
	return handle;
}

/* The path of the library if a dlopen of `file` is for us, or NULL. It may lie in *made. */
static const char *path_for_us(const char *file, int mode, char **made)
{
	if (door_thread.inside || !file || !*file || !path_is_there(file))
		return NULL;
	if (strchr(file, '/'))
		return is_in_container(file) || path_is_managed(AT_FDCWD, file) ? file : NULL;
	/* A name alone: LD_LIBRARY_PATH has it, and nothing of that name is loaded. */
	if (!library_path || !(*made = malloc(PATH_MAX)) ||
		!search(library_path, NULL, file, *made) || !is_in_container(*made))
		return NULL;
	void *loaded = REAL(dlopen)(file, (mode & ~RTLD_GLOBAL) | RTLD_LAZY | RTLD_NOLOAD);
	if (loaded)
		dlclose(loaded);
	return loaded ? NULL : *made;
}

/* What the entries in library.S ask. `real` is to be called instead, by a jump: the linker looks at
 * who calls it. */
struct answer {
	void *real, *handle;
};

struct answer library_open(const char *file, int mode) __attribute__((visibility("hidden")));
struct answer library_open_in(Lmid_t space, const char *file, int mode)
	__attribute__((visibility("hidden")));

static struct answer answer(void *real, Lmid_t space, const char *file, int mode)
{
	static _Atomic bool resolved;
	char *made = NULL;
	int saved = errno;
	complaint.is = false;
	/* The linker holds its lock while constructors run, which may wait for a thread that makes
	 * its first call of a function. */
	if (!atomic_load_explicit(&resolved, memory_order_relaxed)) {
		real_resolve_all();
		REAL(dlerror)();
		atomic_store_explicit(&resolved, true, memory_order_relaxed);
	}
	const char *path = path_for_us(file, mode, &made);
	struct answer answer = {real, NULL};
	errno = saved;
	if (path && is_in_container(path)) {
		answer = (struct answer){NULL, open_library(space, path, mode)};
	} else if (path) {
		struct held *needed = open_needed_by_plain(space, path);
		if (needed)
			answer = (struct answer){NULL, open_plain(space, path, mode, needed)};
	}
	free(made);
	return answer;
}

struct answer library_open(const char *file, int mode)
{
	return answer(REAL(dlopen), LM_ID_BASE, file, mode);
}

struct answer library_open_in(Lmid_t space, const char *file, int mode)
{
	return answer(REAL(dlmopen), space, file, mode);
}

/* --- Programs --- */

bool library_is_out_of_reach(int fd, const char *path, char *const envp[], char name[256])
{
	const char *list = NULL;
	bool is = false;
	bool is_there = environment_is_there(envp);
	for (size_t i = 0; is_there && envp && envp[i]; i++)
		if (strncmp(envp[i], "LD_LIBRARY_PATH=", 16) == 0)
			list = envp[i] + 16;
	struct dynamic *d = get_dynamic(fd);
	if (!d)
		return false;
	absolute(path, d->at);
	directory_of(d->at, d->origin);
	if (list || get_entry(d, DT_RUNPATH, 0, d->paths) || get_entry(d, DT_RPATH, 0, d->paths))
		for (unsigned i = 0; !is && get_entry(d, DT_NEEDED, i, d->name); i++)
			is = !strchr(d->name, '/') && search_needed(d, list) &&
			     is_in_container(d->found);
	/* The name of a file that is there. */
	size_t n = is ? strnlen(d->name, 255) : 0;
	memcpy(name, d->name, n);
	name[n] = 0;
	room_free(d);
	return is;
}

/* --- Who asks for names --- */

EXPORT char *dlerror(void)
{
	if (!complaint.is)
		return REAL(dlerror)();
	complaint.is = false;
	return complaint.text;
}

/* While it is loaded a library is known by the name of its copy. */
static const char *path_of_copy(const char *seen)
{
	const char *path = NULL;
	if (!seen || strncmp(seen, "/proc/", 6) != 0)
		return NULL;
	pthread_mutex_lock(&lock);
	for (struct library *l = libraries; l && !path; l = l->next)
		if (strcmp(l->seen, seen) == 0)
			path = l->path;
	pthread_mutex_unlock(&lock);
	return path;
}

EXPORT int dladdr(const void *address, Dl_info *info)
{
	int rc = REAL(dladdr)(address, info);
	const char *path = rc ? path_of_copy(info->dli_fname) : NULL;
	if (path)
		info->dli_fname = path;
	return rc;
}

EXPORT int dladdr1(const void *address, Dl_info *info, void **extra, int flags)
{
	int rc = REAL(dladdr1)(address, info, extra, flags);
	const char *path = rc ? path_of_copy(info->dli_fname) : NULL;
	if (path)
		info->dli_fname = path;
	return rc;
}

EXPORT int dlinfo(void *handle, int request, void *out)
{
	int rc = REAL(dlinfo)(handle, request, out);
	if (rc != 0 || request != RTLD_DI_ORIGIN || strncmp(out, "/proc/", 6) != 0)
		return rc;
	pthread_mutex_lock(&lock);
	for (struct library *l = libraries; l; l = l->next)
		if (l->map && l->map == handle && is_loaded(l))
			directory_of(l->path, out);
	pthread_mutex_unlock(&lock);
	return rc;
}
