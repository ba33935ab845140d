/* Programs that take the place of this one, some of which lie in containers. */
#include "exec.h"

#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

/* exec is a commit: one that fails keeps the program, which has what would be lost. */
#define COMMIT_AND_EXEC(exec) \
	do { \
		int64_t rc_ = share_with_process(SHARED_BY_EXEC); \
		if (rc_ < 0) { \
			errno = (int)-rc_; \
			return -1; \
		} \
		int failed_ = signals_leave_endings() ? (exec) : -1; \
		signals_see_endings_again(); \
		shared_with_process(); \
		return failed_; \
	} while (0)

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* As load_script in Linux's fs/binfmt_script.c: of a line that is longer than what is looked at the
 * argument is cut, and the name must be whole. */
bool split_script(char head[SCRIPT_BYTES], const char **interpreter, const char **argument)
{
	if (head[0] != '#' || head[1] != '!')
		return false;
	char *last = head + SCRIPT_BYTES - 1;
	char *end = memchr(head, '\n', strnlen(head, SCRIPT_BYTES));
	bool may_go_on = !end && *last && !is_blank(*last);
	end = end ? end : last;
	*end = 0;
	char *name = head + 2 + strspn(head + 2, " \t"), *behind = name + strcspn(name, " \t");
	if (name == end || (may_go_on && behind == last))
		return false;
	while (is_blank(end[-1]))
		*--end = 0;
	*argument = *behind ? behind + 1 + strspn(behind + 1, " \t") : NULL;
	*behind = 0;
	/* By an empty name the kernel finds the working directory: EACCES. */
	*interpreter = *name ? name : ".";
	return true;
}

int copy_in_memory(int fd, const char *name)
{
	ROOM(buf);
	struct rlimit most;
	ssize_t n = buf ? 0 : -1;
	int image = buf ? memfd_create(name, MFD_CLOEXEC) : -1;
	if (image < 0)
		return -1;
	off_t end = 0;
	/* Past it a write would be SIGXFSZ. */
	RAW(SYS_prlimit64, 0L, (long)RLIMIT_FSIZE, NULL, &most);
	int failed = 0;
	while (!failed && (n = read(fd, buf, ROOM_BYTES)) != 0) {
		/* What is zeros takes no memory: a library may have gigabytes of them. */
		bool is_hole = n > 0 && !*buf && memcmp(buf, buf + 1, (size_t)n - 1) == 0;
		if (n < 0)
			failed = errno;
		else if ((uint64_t)(end + n) > most.rlim_cur)
			failed = EFBIG;
		else if (!is_hole && RAW(SYS_pwrite64, (long)image, buf, n, end) != n)
			failed = ENOMEM;
		end += n;
	}
	if (failed || RAW(SYS_ftruncate, (long)image, end) < 0) {
		failed = failed ? failed : errno;
		RAW(SYS_close, (long)image);
		errno = failed;
		return -1;
	}
	return image;
}

/* A descriptor, with the first *n bytes in p->head; or -1, and errno. */
static int open_program(int dirfd, const char *path, struct program *p, ssize_t *n)
{
	memset(p->head, 0, sizeof p->head);
	int fd = door_openat(dirfd, path, O_RDONLY | O_CLOEXEC, 0);
	*n = fd < 0 ? -1 : pread(fd, p->head, sizeof p->head, 0);
	return fd;
}

bool program_find(int dirfd, const char *path, struct program *p)
{
	p->image = -1;
	p->interpreter = NULL;
	ssize_t n;
	int fd = open_program(dirfd, path, p, &n);
	if (fd < 0)
		return false;
	bool is_image = n > 4 && memcmp(p->head, "\177ELF", 4) == 0;
	bool found = is_image ? (p->image = copy_in_memory(fd, "program")) >= 0
			      : n > 0 && split_script(p->head, &p->interpreter, &p->argument);
	int saved = found || n < 0 || is_image ? errno : ENOEXEC;
	door_close(fd);
	errno = saved;
	return found;
}

int program_foresee(int dirfd, const char *path, bool *is_hidden)
{
	ROOM(room);
	*is_hidden = false;
	for (int scripts = 0; room; scripts++) {
		/* The path lies in the one before. */
		struct program *p = (struct program *)room + scripts % 2;
		struct stat st;
		ssize_t n;
		if (fstatat(dirfd, path, &st, 0) < 0) {
			/* Below a file of a pack the kernel says ENOENT. */
			*is_hidden = *is_hidden || errno == ENOTDIR || flat_is_known();
			return errno;
		}
		*is_hidden = *is_hidden || path_is_container(dirfd, path) ||
			     path_is_flat(dirfd, path) > 0;
		if (!S_ISREG(st.st_mode))
			return EACCES;
		if (faccessat(dirfd, path, X_OK, AT_EACCESS) < 0)
			return errno;
		if (scripts > INTERPRETERS_MOST)
			return ELOOP;
		int fd = open_program(dirfd, path, p, &n);
		if (fd < 0)
			break;
		door_close(fd);
		if (!split_script(p->head, &p->interpreter, &p->argument))
			break;
		path = p->interpreter;
	}
	return room ? 0 : ENOMEM;
}

size_t count_of(char *const argv[])
{
	size_t n = 0;
	while (argv && argv[n])
		n++;
	return n;
}

void program_arguments(const struct program *p, const char *path, char *const argv[], char *out[])
{
	*out++ = (char *)p->interpreter;
	if (p->argument)
		*out++ = (char *)p->argument;
	*out++ = (char *)path;
	for (size_t i = 1; argv && argv[0] && argv[i]; i++)
		*out++ = argv[i];
	*out = NULL;
}

struct words *words_get(size_t count)
{
	size_t bytes = sizeof(struct words) + count * sizeof(char *);
	bytes = (bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
	struct words *words = (struct words *)RAW(SYS_mmap, NULL, bytes,
		(long)(PROT_READ | PROT_WRITE), (long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
	if (words == MAP_FAILED) {
		errno = ENOMEM;
		return NULL;
	}
	words->bytes = bytes;
	return words;
}

void words_leave(struct words **words)
{
	int saved = errno;
	if (*words)
		munmap(*words, (*words)->bytes);
	errno = saved;
}

static int exec_path(const char *path, char *const argv[], char *const envp[]);

static int exec_program(const char *path, char *const argv[], char *const envp[])
{
	ROOM(room);
	struct program *p = (struct program *)room;
	if (!p || !program_find(AT_FDCWD, path, p))
		return -1;
	if (p->interpreter) {
		WORDS(words, count_of(argv) + 4);
		if (!words)
			return -1;
		program_arguments(p, path, argv, words->at);
		return exec_path(p->interpreter, words->at, envp);
	}
	int rc = served_fd(p->image, path, envp)
			 ? REAL(execveat)(p->image, "", argv, envp, AT_EMPTY_PATH)
			 : -1;
	int saved = errno;
	RAW(SYS_close, (long)p->image);
	errno = saved;
	return rc;
}

/* Where the kernel would find the base, which may be an older program. */
static bool is_promoted(const char *path)
{
	return path && path_is_there(path) && path_may_be_name(AT_FDCWD, path, 0) &&
	       path_is_container(AT_FDCWD, path);
}

/* After an exec that failed: where the kernel finds no program there may be one, or another error.
 */
static int exec_again(const char *path, char *const argv[], char *const envp[])
{
	if (errno != ENOENT && errno != ENOEXEC)
		return -1;
	bool is_hidden;
	int failed = errno, foreseen = program_foresee(AT_FDCWD, path, &is_hidden);
	if (is_hidden && !foreseen)
		return exec_program(path, argv, envp);
	errno = foreseen ? foreseen : failed;
	return -1;
}

static int exec_path(const char *path, char *const argv[], char *const envp[])
{
	if (is_promoted(path)) {
		errno = ENOEXEC;
		return exec_again(path, argv, envp);
	}
	if (!served_at(AT_FDCWD, path, 0, envp))
		return -1;
	REAL(execve)(path, argv, envp);
	return exec_again(path, argv, envp);
}

int along_path(const char *file, char path[PATH_MAX], int (*start)(void *with, const char *path),
	void *with)
{
	size_t len = strlen(file);
	if (len == 0 || strchr(file, '/'))
		return len == 0 ? ENOENT : start(with, file);
	const char *dirs = getenv("PATH"), *dir = dirs ? dirs : "/bin:/usr/bin";
	int failed = ENOENT;
	bool is_forbidden = false;
	for (bool more = true; more; dir++) {
		size_t n = strcspn(dir, ":");
		/* libc goes past what is no path. */
		if (n < PATH_MAX) {
			if (n + (n > 0) + len >= PATH_MAX)
				return ENAMETOOLONG;
			memcpy(path, dir, n);
			path[n] = '/';
			memcpy(path + n + (n > 0), file, len + 1);
			failed = start(with, path);
			is_forbidden = is_forbidden || failed == EACCES;
			if (failed != EACCES && failed != ENOENT && failed != ESTALE &&
				failed != ENOTDIR && failed != ENODEV && failed != ETIMEDOUT)
				return failed;
		}
		dir += n;
		more = *dir == ':';
	}
	return is_forbidden ? EACCES : failed;
}

struct words_of_exec {
	char *const *argv, *const *envp;
};

/* What is no program for the kernel is one for the shell. */
static int exec_found(void *with, const char *path)
{
	const struct words_of_exec *given = with;
	exec_path(path, given->argv, given->envp);
	if (errno != ENOEXEC)
		return errno;
	WORDS(words, count_of(given->argv) + 4);
	if (words) {
		struct program shell = {.interpreter = "/bin/sh"};
		program_arguments(&shell, path, given->argv, words->at);
		exec_path(shell.interpreter, words->at, given->envp);
	}
	return errno;
}

static int exec_file(const char *file, char *const argv[], char *const envp[])
{
	if (!file || !path_is_there(file))
		return REAL(execvpe)(file, argv, envp);
	ROOM(found);
	if (found)
		errno = along_path(file, found, exec_found, &(struct words_of_exec){argv, envp});
	return -1;
}

static int exec_at(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
{
	ROOM(name);
	if (!name)
		return -1;
	bool is_there = path && path_is_there(path), is_named = is_there && *path;
	if (is_named && (*path == '/' || dirfd == AT_FDCWD))
		snprintf(name, PATH_MAX, "%s", path);
	else if (is_there)
		snprintf(name, PATH_MAX + 40, "/dev/fd/%d%s%s", dirfd, *path ? "/" : "", path);
	/* The process stays where it is, and an interpreter is looked for from there. */
	if ((is_named || (flags & AT_EMPTY_PATH)) && is_promoted(name)) {
		errno = ENOEXEC;
		return exec_again(name, argv, envp);
	}
	if (is_named ? !served_at(AT_FDCWD, name, 0, envp) : !served_at(dirfd, path, flags, envp))
		return -1;
	REAL(execveat)(dirfd, path, argv, envp, flags);
	/* The descriptor's own file is asked for by a flag. */
	return is_named || (flags & AT_EMPTY_PATH) ? exec_again(name, argv, envp) : -1;
}

EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	COMMIT_AND_EXEC(WITH_ENVIRONMENT(AT_FDCWD, envp, exec_path(path, argv, given), -1));
}

EXPORT int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

EXPORT int execvp(const char *file, char *const argv[])
{
	COMMIT_AND_EXEC(WITH_ENVIRONMENT(AT_FDCWD, environ, exec_file(file, argv, given), -1));
}

EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	COMMIT_AND_EXEC(WITH_ENVIRONMENT(AT_FDCWD, envp, exec_file(file, argv, given), -1));
}

EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	/* As libc has it. */
	if (fd < 0 || !argv || !envp) {
		errno = EINVAL;
		return -1;
	}
	COMMIT_AND_EXEC(
		WITH_ENVIRONMENT(AT_FDCWD, envp, exec_at(fd, "", argv, given, AT_EMPTY_PATH), -1));
}

EXPORT int execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
{
	COMMIT_AND_EXEC(
		WITH_ENVIRONMENT(AT_FDCWD, envp, exec_at(dirfd, path, argv, given, flags), -1));
}

/* Collects the arguments of execl and its kin into argv; `ap` stands at the first after `first`. */
#define COLLECT_ARGUMENTS(argv, first, ap) \
	int argc_ = 1; \
	va_list count_; \
	va_start(ap, first); \
	va_copy(count_, ap); \
	while (va_arg(count_, const char *)) \
		argc_++; \
	va_end(count_); \
	char *argv[argc_ + 1]; \
	argv[0] = (char *)first; \
	for (int i_ = 1; i_ <= argc_; i_++) \
	argv[i_] = va_arg(ap, char *)

EXPORT int execl(const char *path, const char *first, ...)
{
	va_list ap;
	COLLECT_ARGUMENTS(argv, first, ap);
	va_end(ap);
	return execve(path, argv, environ);
}

EXPORT int execlp(const char *file, const char *first, ...)
{
	va_list ap;
	COLLECT_ARGUMENTS(argv, first, ap);
	va_end(ap);
	return execvp(file, argv);
}

EXPORT int execle(const char *path, const char *first, ...)
{
	va_list ap;
	COLLECT_ARGUMENTS(argv, first, ap);
	char *const *envp = va_arg(ap, char *const *);
	va_end(ap);
	return execve(path, argv, envp);
}
