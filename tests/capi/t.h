/* What the tests of the C API share. A test works in its current, empty directory and exits 1 at
 * the first thing that is not as it should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <plfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The value of a call that must be as stated; else a line that says what it was. */
#define IS(call, want) \
	do { \
		long long t_got = (long long)(call), t_want = (long long)(want); \
		if (t_got != t_want) { \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld (%s)\n", __FILE__, __LINE__, \
				#call, t_got, t_want, plfs_last_error()); \
			exit(1); \
		} \
	} while (0)
#define OK(call) IS(call, 0)
#define TRUE(condition) IS(!!(condition), 1)

static inline plfs_file *t_open(const char *path, int flags)
{
	plfs_file *file = NULL;
	OK(plfs_open(path, flags, 0644, &file));
	TRUE(file);
	return file;
}

/* The file has exactly these bytes. */
static inline void t_bytes(const char *path, const char *want, size_t n)
{
	char *buf = malloc(n + 1);
	plfs_file *file = t_open(path, O_RDONLY);
	IS(plfs_pread(file, buf, n + 1, 0), n);
	TRUE(memcmp(buf, want, n) == 0);
	OK(plfs_close(file));
	free(buf);
}
