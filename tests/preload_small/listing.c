/* listing DIR N: every way to list DIR gives N names, each once: readdir, readdir_r, getdents64
 * with small buffers, scandir, seekdir to each name, rewinddir in the middle, and fork. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int is, const char *what)
{
	if (!is) {
		fprintf(stderr, "%s\n", what);
		exit(1);
	}
}

static int is_dot(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int rest_of(DIR *dir)
{
	int n = 0;
	for (struct dirent *e; (e = readdir(dir));)
		n += !is_dot(e->d_name);
	return n;
}

int main(int argc, char **argv)
{
	check(argc == 3, "listing DIR N");
	int want = atoi(argv[2]), n = 0;
	char **names = calloc((size_t)want, sizeof *names);
	long *places = calloc((size_t)want, sizeof *places);
	DIR *dir = opendir(argv[1]);
	check(dir != NULL, "opendir");
	for (;;) {
		long place = telldir(dir);
		struct dirent *e = readdir(dir);
		if (!e)
			break;
		if (is_dot(e->d_name))
			continue;
		check(n < want, "too many names");
		places[n] = place;
		names[n++] = strdup(e->d_name);
	}
	check(n == want, "too few names");
	for (int i = 0; i < n; i += 37) {
		seekdir(dir, places[i]);
		struct dirent *e = readdir(dir);
		check(e && !strcmp(e->d_name, names[i]), "seekdir");
	}
	seekdir(dir, places[n / 2]);
	check(readdir(dir) && readdir(dir), "the middle");
	pid_t child = fork();
	if (child == 0)
		_exit(rest_of(dir) > 0 ? 0 : 1);
	int status;
	check(waitpid(child, &status, 0) == child && status == 0, "a fork in the middle");
	rewinddir(dir);
	check(rest_of(dir) == want, "rewinddir");
	closedir(dir);
	qsort(names, (size_t)n, sizeof *names, by_text);
	for (int i = 1; i < n; i++)
		check(strcmp(names[i - 1], names[i]) != 0, "a name comes twice");

	struct dirent **all;
	check(scandir(argv[1], &all, NULL, alphasort) == want + 2, "scandir");

	/* Closed in the middle, the number is another directory's. */
	char buf[512];
	int fd = open(argv[1], O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < 5; i++)
		check(getdents64(fd, buf, sizeof buf) > 0, "getdents64");
	close(fd);
	fd = open(argv[1], O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < 5; i++)
		check(getdents64(fd, buf, sizeof buf) > 0, "getdents64");
	check(lseek(fd, 0, SEEK_SET) == 0, "lseek");
	n = 0;
	for (ssize_t got; (got = getdents64(fd, buf, sizeof buf)) > 0;)
		for (ssize_t at = 0; at < got;) {
			struct dirent64 *e = (struct dirent64 *)(buf + at);
			at += e->d_reclen;
			n += !is_dot(e->d_name);
		}
	check(n == want, "getdents64 gives other names");
	check(getdents64(fd, buf, sizeof buf) == 0, "getdents64 at the end");
	close(fd);
	return 0;
}
