/* Programs that this one starts: those that cannot load libplfs are refused, and those that get an
 * empty environment get ours back.
 *
 * A program without libplfs takes a superblock for the file: it reads that, and writes over it. So
 * `plfs run` refuses such a program, and so does exec here. PLFS_CHILDREN=any starts it. */
#include "door.h"

#include <elf.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_NONE
#endif

/* What of the environment says that there is PLFS, as it was at the start, one word after the
 * other. A program may change its own, and write over where it was. */
static char *kept;
static size_t kept_bytes;
static bool refuses;

static bool is_ours(const char *word)
{
	return strncmp(word, "LD_PRELOAD=", 11) == 0 || strncmp(word, "PLFS_", 5) == 0;
}

static bool is_kept(const char *word)
{
	/* A directory of this program alone. */
	return is_ours(word) && strncmp(word, "PLFS_FLAT_CWD=", 14) != 0;
}

void served_start(char *const envp[])
{
	const char *mounts = getenv("PLFS_MOUNTS"), *children = getenv("PLFS_CHILDREN");
	/* Not by strcmp: see `start`. */
	refuses = mounts && *mounts && !(children && strncmp(children, "any", 4) == 0);
	size_t bytes = 0;
	bool is_loaded = false;
	for (size_t i = 0; envp && envp[i]; i++) {
		bytes += is_kept(envp[i]) ? strlen(envp[i]) + 1 : 0;
		is_loaded = is_loaded || strncmp(envp[i], "LD_PRELOAD=", 11) == 0;
	}
	if (!is_loaded)
		return;
	kept = (char *)RAW(SYS_mmap, NULL, bytes, (long)(PROT_READ | PROT_WRITE),
		(long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
	if (kept == MAP_FAILED) {
		static const char text[] = "plfs: run: there is no memory for the environment\n";
		RAW(SYS_write, 2L, text, sizeof text - 1);
		RAW(SYS_exit_group, 127L);
	}
	for (size_t i = 0; envp[i]; i++)
		if (is_kept(envp[i])) {
			size_t len = strlen(envp[i]) + 1;
			memcpy(kept + kept_bytes, envp[i], len);
			kept_bytes += len;
		}
}

size_t served_fill(char *words[], char *const envp[])
{
	for (size_t i = 0; envp && envp[i]; i++)
		if (is_ours(envp[i]))
			return 0;
	size_t n = 0;
	for (char *at = kept; at < kept + kept_bytes; at += strlen(at) + 1, n++)
		if (words)
			words[n] = at;
	return n;
}

/* What libc starts by itself has the program's own environment, which is another list meanwhile if
 * that has nothing of PLFS. Others may empty it, or change a word of it, at any time. A list that
 * others may look for a word in is never given back to the system, and used again only if it was
 * not the program's when the last start ended. */
static pthread_mutex_t lend_lock = PTHREAD_MUTEX_INITIALIZER;
static char **lent, **own;
/* Words that are ours, and room for all. */
static size_t lent_ours, lent_room;
static int borrowers;
static bool is_lent;

static bool has_room(size_t words)
{
	/* Who borrowed it before still does. */
	if (words <= lent_room && !is_lent)
		return true;
	size_t bytes = SMALL_PAGE;
	while (bytes < words * sizeof *lent)
		bytes *= 2;
	char **room = (char **)RAW(SYS_mmap, NULL, bytes, (long)(PROT_READ | PROT_WRITE),
		(long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
	if (room == MAP_FAILED)
		return false;
	lent = room;
	lent_room = bytes / sizeof *lent;
	return true;
}

void served_lend(void)
{
	pthread_mutex_lock(&lend_lock);
	borrowers++;
	size_t ours = served_fill(NULL, environ), words = count_of(environ);
	if (ours > 0 && has_room(ours + words + 1)) {
		lent_ours = served_fill(lent, environ);
		for (size_t i = 0; i < words; i++)
			lent[lent_ours + i] = environ[i];
		lent[lent_ours + words] = NULL;
		own = environ;
		environ = lent;
		is_lent = true;
	}
	pthread_mutex_unlock(&lend_lock);
}

static bool is_unchanged(void)
{
	size_t words = count_of(own);
	return environ == lent && count_of(lent) == lent_ours + words &&
	       (words == 0 || memcmp(lent + lent_ours, own, words * sizeof *own) == 0);
}

/* The program's environment again. One that it has changed meanwhile loses the words of ours. */
static void end_loan(void)
{
	is_lent = false;
	if (is_unchanged()) {
		environ = own;
		return;
	}
	if (environ == lent)
		lent_room = 0;
	char **to = environ;
	for (char **from = environ; from && *from; from++)
		if (*from < kept || *from >= kept + kept_bytes)
			*to++ = *from;
	if (to)
		*to = NULL;
}

void served_take_back(void)
{
	pthread_mutex_lock(&lend_lock);
	if (--borrowers == 0 && is_lent)
		end_loan();
	pthread_mutex_unlock(&lend_lock);
}

void served_after_fork_in_child(void)
{
	lend_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	borrowers = 0;
	if (is_lent)
		end_loan();
}

/* Bytes at `offset` of the file, all or none. */
static bool get(int fd, void *into, size_t n, uint64_t offset)
{
	return offset < INT64_MAX && RAW(SYS_pread64, (long)fd, into, n, (long)offset) == (long)n;
}

/* What is read of a program: in ROOM. */
struct look {
	unsigned char head[SCRIPT_BYTES];
	/* Of a script its interpreter, and which of them is looked at. */
	char next[SCRIPT_BYTES], at[SCRIPT_BYTES];
	char interpreter[256], name[256], needs[400];
};

/* By the names of its sections. */
static bool is_go(int fd, const Elf64_Ehdr *elf)
{
	static const char *const names[] = {".go.buildinfo", ".note.go.buildid"};
	Elf64_Shdr strings;
	ROOM(all);
	if (!all || elf->e_shentsize != sizeof strings ||
		!get(fd, &strings, sizeof strings,
			elf->e_shoff + elf->e_shstrndx * (uint64_t)sizeof strings))
		return false;
	size_t n = strings.sh_size < 2048 ? strings.sh_size : 2048;
	if (!get(fd, all, n, strings.sh_offset))
		return false;
	return memmem(all, n, names[0], strlen(names[0]) + 1) ||
	       memmem(all, n, names[1], strlen(names[1]) + 1);
}

/* ld.so itself is a library that runs, and loads what it is told to. ldconfig lists libraries, for
 * Python's ctypes for example. */
static bool is_exempt(int fd)
{
	char link[FD_PATH_ROOM];
	ROOM(at);
	if (!at)
		return false;
	long len = RAW(SYS_readlinkat, AT_FDCWD, fd_path(link, fd), at, (long)PATH_MAX - 1);
	at[len > 0 ? len : 0] = 0;
	const char *name = strrchr(at, '/');
	return name && (strncmp(name, "/ld-linux", 9) == 0 || strcmp(name, "/ldconfig") == 0);
}

/* Programs of the system that get rights from their files, read and write nothing that their caller
 * names, and are started by others: for terminals, passwords, mounts and containers. */
static const char *const HELPERS[] = {"utempter", "unix_chkpwd", "fusermount", "fusermount3",
	"newuidmap", "newgidmap", "ssh-keysign", "ping", "dbus-daemon-launch-helper",
	"polkit-agent-helper-1"};

static bool is_helper(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	for (size_t i = 0; i < sizeof HELPERS / sizeof *HELPERS; i++)
		if (strcmp(name, HELPERS[i]) == 0)
			return true;
	return false;
}

/* Into a program that has other rights than its user the dynamic linker loads nothing else: its
 * file gives them, if the kernel lets it, or who starts it has them. NULL: it has none. */
static const char *rights_of(int fd)
{
	struct stat st;
	struct statfs fs;
	if (RAW(SYS_fstat, (long)fd, &st) != 0)
		return NULL;
	uid_t user = getuid(), as_user = geteuid();
	gid_t group = getgid(), as_group = getegid();
	bool differs = as_user != user || as_group != group;
	bool counts = RAW(SYS_prctl, (long)PR_GET_NO_NEW_PRIVS, 0L, 0L, 0L, 0L) != 1 &&
		      (RAW(SYS_fstatfs, (long)fd, &fs) != 0 || !(fs.f_flags & ST_NOSUID));
	char capabilities[64];
	if (counts && (((st.st_mode & S_ISUID) && st.st_uid != user) ||
			      ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
				      st.st_gid != group) ||
			      (user != 0 && RAW(SYS_fgetxattr, (long)fd, "security.capability",
						    capabilities, sizeof capabilities) > 0)))
		return "gets rights from its file (set-user-ID, set-group-ID or capabilities), so "
		       "the system loads no other library into it";
	return differs ? "is started with an effective user or group that is not the real one, so "
			 "the system loads no other library into it"
		       : NULL;
}

/* Why a program cannot load libplfs, or that has its own system calls; NULL: it can. n < 0: it may
 * be run, and not read. */
static const char *lack_of(int fd, const char *path, struct look *look, long n)
{
	Elf64_Ehdr elf;
	const unsigned char *head = look->head;
	char *interpreter = look->interpreter;
	if (n >= 0 && (n < (long)EI_NIDENT || memcmp(head, ELFMAG, SELFMAG) != 0))
		return NULL;
	const char *rights = is_helper(path) ? NULL : rights_of(fd);
	if (rights || n < 0)
		return rights;
	if (head[EI_CLASS] == ELFCLASS32)
		return "is built for another kind of machine than PLFS";
	/* What is no program is exec's to say. */
	if (head[EI_CLASS] != ELFCLASS64 || n < (long)sizeof elf)
		return NULL;
	memcpy(&elf, head, sizeof elf);
	if (MACHINE != EM_NONE && elf.e_machine != MACHINE)
		return "is built for another kind of machine than PLFS";
	*interpreter = 0;
	for (unsigned i = 0; i < elf.e_phnum; i++) {
		Elf64_Phdr part;
		if (!get(fd, &part, sizeof part, elf.e_phoff + (uint64_t)i * elf.e_phentsize))
			return NULL;
		if (part.p_type != PT_INTERP)
			continue;
		size_t most = sizeof look->interpreter - 1,
		       len = part.p_filesz < most ? part.p_filesz : most;
		if (!get(fd, interpreter, len, part.p_offset))
			return NULL;
		interpreter[len] = 0;
	}
	if (!*interpreter)
		return is_exempt(fd) ? NULL : "is a static program, which loads no libraries";
	if (strstr(interpreter, "/ld-musl"))
		return "is built for the C library musl, which does not load PLFS's library";
	return is_go(fd, &elf) ? "is a Go program, which makes its system calls without libc"
			       : NULL;
}

static void tell(const char *path, const char *why)
{
	if (fd_is_container(2))
		return;
	ROOM(line);
	if (!line)
		return;
	int n = snprintf(line, ROOM_BYTES,
		"plfs: run: %s %s, so PLFS cannot serve it: it is not started. Show it the "
		"directory with `plfs mount`, or set PLFS_CHILDREN=any if it does not touch PLFS "
		"files\n",
		path, why);
	if (n > 0)
		RAW(SYS_write, 2L, line,
			(long)((size_t)n < ROOM_BYTES ? (size_t)n : ROOM_BYTES - 1));
}

/* fd is open on a program. False, and errno, if it is not to be started; else, if it is a script,
 * its interpreter is in look->next. */
static bool is_served_fd(int fd, const char *path, char *const envp[], struct look *look)
{
	unsigned char *head = look->head;
	const char *interpreter, *argument;
	memset(head, 0, sizeof look->head);
	long n = RAW(SYS_pread64, (long)fd, head, sizeof look->head, 0L);
	*look->next = 0;
	if (split_script((char *)head, &interpreter, &argument)) {
		memcpy(look->next, interpreter, strlen(interpreter) + 1);
		return true;
	}
	const char *why = lack_of(fd, path, look, n);
	if (!why && n > 0 && memcmp(head, ELFMAG, SELFMAG) == 0 &&
		library_is_out_of_reach(fd, path, envp, look->name)) {
		snprintf(look->needs, sizeof look->needs,
			"needs %s, which the dynamic linker cannot load from a PLFS file",
			look->name);
		why = look->needs;
	}
	if (why) {
		tell(path, why);
		errno = EPERM;
	}
	return !why;
}

bool served_fd(int fd, const char *path, char *const envp[])
{
	int saved = errno;
	if (!refuses || door_thread.inside)
		return true;
	ROOM(look);
	bool yes = look && is_served_fd(fd, path, envp, (struct look *)look);
	errno = yes ? saved : errno;
	return yes;
}

bool served_at(int dirfd, const char *path, int at_flags, char *const envp[])
{
	int saved = errno;
	if (!refuses || door_thread.inside || !path || !path_is_there(path)) {
		errno = saved;
		return true;
	}
	if ((at_flags & AT_EMPTY_PATH) && !*path) {
		/* It may be open for its path only. */
		char link[FD_PATH_ROOM];
		return served_at(AT_FDCWD, fd_path(link, dirfd), 0, envp);
	}
	ROOM(room);
	struct look *look = (struct look *)room;
	bool yes = look != NULL;
	for (int i = 0; yes && i <= INTERPRETERS_MOST; i++) {
		struct stat st;
		int fd = (int)RAW(SYS_openat, (long)dirfd, path,
			(long)(O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
		if (fd < 0 && errno == EACCES)
			fd = (int)RAW(SYS_openat, (long)dirfd, path, (long)(O_PATH | O_CLOEXEC));
		if (fd < 0)
			break;
		/* What is none, or not for this user, is exec's to say. */
		bool is_program = RAW(SYS_fstat, (long)fd, &st) == 0 && S_ISREG(st.st_mode) &&
				  (REAL(faccessat)(dirfd, path, X_OK, AT_EACCESS) == 0 ||
					  errno != EACCES);
		*look->next = 0;
		if (is_program)
			yes = is_served_fd(fd, path, envp, look);
		int failed = errno;
		RAW(SYS_close, (long)fd);
		errno = failed;
		if (!*look->next)
			break;
		memcpy(look->at, look->next, sizeof look->at);
		path = look->at;
	}
	errno = yes ? saved : errno;
	return yes;
}
