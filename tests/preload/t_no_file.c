/* A path that ends as one of a directory does makes no file, and opens none; nor does one that
 * goes on behind a file. In workload shared an open with O_CREAT made the file that the rest of it
 * names, or never returned; in small a link to such a path did. */
#include "t.h"

int main(void)
{
	static const char *const paths[] = {"e/new/.", "e/new/", "e/../e/new/.", "e/../e/new/./.",
		"e/./.", "e/..", "e/../e/", "e/../e/dangling/.", "e/dangling/", "e/old/",
		"e/../e/old/.", "e/circle/", ".", "e/to_new_dot", "e/to_new_slash", "e/to_old_dot",
		"e/to_old_slash", "e/to_old/.", "e/to_old/", "e/to_old/x", "e/old/x/y", "e/old/..",
		"e/old/./", "none/new/", "none/."};
	mkdir("e", 0755);
	symlink("nowhere", "e/dangling");
	symlink("circle", "e/circle");
	symlink("new/.", "e/to_new_dot");
	symlink("new/", "e/to_new_slash");
	symlink("old/.", "e/to_old_dot");
	symlink("old/", "e/to_old_slash");
	symlink("old", "e/to_old");
	close(open("e/old", O_CREAT | O_WRONLY, 0644));
	alarm(20);
	struct stat st;
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		puts(paths[i]);
		R(open(paths[i], O_CREAT | O_RDWR, 0644));
		R(open(paths[i], O_CREAT | O_EXCL | O_WRONLY, 0644));
		R(open(paths[i], O_CREAT | O_TRUNC | O_NOFOLLOW | O_RDWR, 0644));
		R(access("e/new", F_OK));
		R(access("e/nowhere", F_OK));
		R(open(paths[i], O_RDWR));
		R(stat(paths[i], &st));
		R(access(paths[i], F_OK));
		R(truncate(paths[i], 1));
	}
	static const char *const files[] = {"e/old/.", "e/old/", "e/old/x", "e/to_old/."};
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		puts(files[i]);
		R(unlink(files[i]));
		R(mkdir(files[i], 0755));
		R(rename(files[i], "e/moved"));
		R(rename("e/old", files[i]));
		R(link(files[i], "e/linked"));
	}
	return 0;
}
