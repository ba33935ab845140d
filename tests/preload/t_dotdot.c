/* `..` behind a link leads to where the kernel says, which may be outside of the managed directory:
 * a new file there was a container in workload shared. */
#include "t.h"

#include <sys/syscall.h>

/* The size that the file has for who comes without PLFS. */
static long size_for_kernel(const char *path)
{
	struct stat st;
	long result;
	__asm__ volatile("syscall"
		: "=a"(result)
		: "a"(SYS_stat), "D"(path), "S"(&st)
		: "rcx", "r11", "memory");
	return result < 0 ? result : st.st_size;
}

int main(void)
{
	static const char *const names[] = {"f/../new", "e/../f/../new", "./f/.././new"};
	char here[4096], beside[4096], path[8192], file[8192], text[8];
	getcwd(here, sizeof here);
	snprintf(beside, sizeof beside, "%s-beside", getenv("T_MANAGED"));
	snprintf(path, sizeof path, "%s/x", beside);
	mkdir(beside, 0755);
	mkdir(path, 0755);
	mkdir("e", 0755);
	symlink(path, "f");
	snprintf(file, sizeof file, "%s/new", beside);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(file, sizeof file, "%s/%s", beside,
			strcmp(names[i], "f/new") ? "new" : "x/new");
		for (int way = 0; way < 3; way++) {
			puts(names[i]);
			int dir = way == 2 ? open("e", O_RDONLY | O_DIRECTORY) : AT_FDCWD;
			snprintf(path, sizeof path,
				way == 1   ? "%2$s/%1$s"
				: way == 2 ? "../%s"
					   : "%s",
				names[i], here);
			int fd = openat(dir, path, O_CREAT | O_EXCL | O_RDWR, 0644);
			R(write(fd, "hello", 5));
			R(close(fd));
			R(size_for_kernel(file));
			fd = open(file, O_RDONLY);
			R(read(fd, text, sizeof text));
			close(fd);
			R(unlinkat(dir, path, 0));
			R(access(file, F_OK));
			if (way == 2)
				close(dir);
		}
	}
	unlink("f");
	return 0;
}
