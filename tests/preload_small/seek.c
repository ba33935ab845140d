// seek DIR: positions in the listing of a directory, by telldir and d_off, lead back to where they
// were taken, also if names that were given before are removed meanwhile.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 2000

static void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "failed: %s\n", what);
		exit(1);
	}
}

static int is_at(DIR *dir, long position, const char *name)
{
	seekdir(dir, position);
	struct dirent *e = readdir(dir);
	return name ? e && !strcmp(e->d_name, name) : !e;
}

int main(int argc, char **argv)
{
	static char names[MOST][256];
	static long told[MOST + 1], offsets[MOST];
	int n = 0, removed = 0, left = 0;
	struct dirent *e;
	must(argc == 2 && chdir(argv[1]) == 0, "one directory");
	DIR *dir = opendir(".");
	for (told[0] = telldir(dir); n < MOST && (e = readdir(dir)); told[++n] = telldir(dir)) {
		strcpy(names[n], e->d_name);
		offsets[n] = e->d_off;
	}
	must(n > 100 && n < MOST, "some hundred names");
	for (int i = n - 1; i >= 0; i--)
		must(is_at(dir, told[i], names[i]), "telldir");
	for (int i = 0; i + 1 < n; i++)
		must(is_at(dir, offsets[i], names[i + 1]), "d_off");
	must(is_at(dir, told[n], NULL), "the end");
	for (int i = 0; i < n / 2; i++)
		removed += unlink(names[i]) == 0;
	seekdir(dir, told[n / 2]);
	while ((e = readdir(dir)))
		must(!strcmp(e->d_name, names[n / 2 + left++]), "the order");
	must(left == n - n / 2, "what comes behind removed names");
	rewinddir(dir);
	for (left = 0; (e = readdir(dir)); left++)
		;
	must(left == n - removed, "names after a rewind");
	return closedir(dir);
}
