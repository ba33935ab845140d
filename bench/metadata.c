/* metadata: what a small file costs one process.
 *
 *     metadata [--files N] [--bytes N] [--fsync] [--names PREFIX] [--only PASSES] DIR
 *
 * Four passes over N files in DIR: create, write and close; open, read, check and close; stat;
 * unlink; or those of them that PASSES has: letters of crsu. It knows nothing of PLFS: run it under
 * `plfs run` to go through PLFS. Prints one line of JSON: microseconds a file for each pass. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int files = 2000, sync_each;
static size_t bytes = 1024;
static char *given, *found;
static const char *prefix = "f", *only = "crsu";

static void die(const char *what, const char *name)
{
	fprintf(stderr, "metadata: %s %s: %s\n", what, name, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void create(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (fd < 0 || write(fd, given, bytes) != (ssize_t)bytes || (sync_each && fsync(fd)) ||
		close(fd))
		die("create", name);
}

static void check(const char *name)
{
	int fd = open(name, O_RDONLY);
	if (fd < 0 || read(fd, found, bytes + 1) != (ssize_t)bytes || close(fd))
		die("read", name);
	if (memcmp(given, found, bytes)) {
		errno = EIO;
		die("wrong bytes in", name);
	}
}

static void look(const char *name)
{
	struct stat st;
	if (stat(name, &st) || st.st_size != (off_t)bytes)
		die("stat", name);
}

static void removed(const char *name)
{
	if (unlink(name))
		die("unlink", name);
}

static double pass(char letter, void (*of_each)(const char *))
{
	if (!strchr(only, letter))
		return 0;
	char name[64];
	double start = now();
	for (int i = 0; i < files; i++) {
		snprintf(name, sizeof name, "%s%07d", prefix, i);
		of_each(name);
	}
	return (now() - start) / files * 1e6;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"files", 1, NULL, 'n'}, {"bytes", 1, NULL, 'b'},
		{"fsync", 0, NULL, 's'}, {"names", 1, NULL, 'p'}, {"only", 1, NULL, 'o'}, {0}};
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (c == 'n')
			files = atoi(optarg);
		else if (c == 'b')
			bytes = strtoul(optarg, NULL, 10);
		else if (c == 's')
			sync_each = 1;
		else if (c == 'p')
			prefix = optarg;
		else if (c == 'o')
			only = optarg;
		else
			return 2;
	}
	if (optind != argc - 1 || files < 1) {
		fprintf(stderr,
			"usage: metadata [--files N] [--bytes N] [--fsync] [--names PREFIX] "
			"[--only PASSES] DIR\n");
		return 2;
	}
	if (chdir(argv[optind]))
		die("enter", argv[optind]);
	given = malloc(bytes + 1);
	found = malloc(bytes + 1);
	if (!given || !found)
		die("memory for", "a file");
	for (size_t i = 0; i < bytes; i++)
		given[i] = (char)(i * 131 + (i >> 8));
	double write_us = pass('c', create), read_us = pass('r', check), stat_us = pass('s', look);
	double unlink_us = pass('u', removed);
	printf("{\"files\": %d, \"bytes\": %zu, \"create_us\": %.3f, \"read_us\": %.3f, "
	       "\"stat_us\": %.3f, \"unlink_us\": %.3f}\n",
		files, bytes, write_us, read_us, stat_us, unlink_us);
	return 0;
}
