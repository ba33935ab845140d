/* A path that ends as one of a directory does makes no file. In workload shared an open with
 * O_CREAT made the file that the rest of it names, or never returned. */
#include "t.h"

int main(void)
{
	static const char *const paths[] = {"e/new/.", "e/new/", "e/../e/new/.", "e/../e/new/./.",
		"e/./.", "e/..", "e/../e/", "e/../e/dangling/.", "e/dangling/", "e/old/",
		"e/../e/old/.", "e/circle/", "."};
	mkdir("e", 0755);
	symlink("nowhere", "e/dangling");
	symlink("circle", "e/circle");
	close(open("e/old", O_CREAT | O_WRONLY, 0644));
	alarm(20);
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		puts(paths[i]);
		R(open(paths[i], O_CREAT | O_RDWR, 0644));
		R(open(paths[i], O_CREAT | O_EXCL | O_WRONLY, 0644));
		R(open(paths[i], O_CREAT | O_TRUNC | O_NOFOLLOW | O_RDWR, 0644));
		R(access("e/new", F_OK));
		R(access("e/nowhere", F_OK));
	}
	return 0;
}
