/* Opens believe what they know of the working directory, which can be wrong: a file goes where the
 * kernel takes it, and is a container only in a managed directory. Prints nothing but what is
 * wrong. */
#include "t.h"

#include <dlfcn.h>
#include <sys/syscall.h>

/* What the kernel says that the file's length is: of a container, its superblock's. */
static long length(const char *dir, const char *name)
{
	char command[9000], text[32] = "-1";
	sprintf(command, "env -u LD_PRELOAD stat -c %%s %s/%s", dir, name);
	FILE *said = popen(command, "r");
	fgets(text, sizeof text, said);
	pclose(said);
	return atol(text);
}

static int is_container(const char *dir, const char *name)
{
	return length(dir, name) == 4093;
}
static int is_plain(const char *dir, const char *name)
{
	return length(dir, name) == 4;
}
static void new(const char *name)
{
	close(make(name, "text"));
}

int main(void)
{
	const char *managed = getenv("T_HERE");
	char other[4200], moved[4300], inner[4300];
	/* What libc calls by itself, in a walk of a tree for one. */
	void *libc = dlopen("libc.so.6", RTLD_NOW);
	int (*unseen)(const char *) = (int (*)(const char *))dlsym(libc, "chdir");
	setenv("PLFS_WORKLOAD", "shared", 1);
	sprintf(other, "%s/../outside", getenv("T_MANAGED"));
	WANT(mkdir(other, 0755) == 0);
	int managed_fd = open(".", O_RDONLY | O_DIRECTORY), other_fd = open(other, O_RDONLY);

	new("a");
	WANT(is_container(managed, "a"));
	WANT(chdir(other) == 0);
	new("b");
	WANT(is_plain(other, "b"));
	WANT(fchdir(managed_fd) == 0);
	new("c");
	WANT(is_container(managed, "c"));
	WANT(fchdir(other_fd) == 0);
	new("d");
	WANT(is_plain(other, "d"));
	WANT(syscall(SYS_chdir, managed) == 0);
	new("e");
	WANT(is_container(managed, "e"));

	/* Behind our back, out of the directory and into it. */
	WANT(unseen(other) == 0);
	new("f");
	WANT(is_plain(other, "f"));
	int fd = open("f", O_RDWR | O_APPEND);
	WANT(write(fd, "more", 4) == 4 && close(fd) == 0);
	WANT(length(other, "f") == 8);
	WANT(unlink("c") == -1 && errno == ENOENT);
	WANT(unseen(managed) == 0);
	char text[8] = "";
	fd = open("c", O_RDONLY);
	WANT(read(fd, text, 8) == 4 && memcmp(text, "text", 4) == 0 && close(fd) == 0);
	new("g");
	WANT(is_container(managed, "g"));

	/* A directory that is moved with who is in it, and another takes its place. */
	sprintf(inner, "%s/inner", managed);
	sprintf(moved, "%s/moved", other);
	WANT(mkdir(inner, 0755) == 0 && chdir(inner) == 0);
	new("h");
	WANT(is_container(inner, "h") && unlink("h") == 0);
	WANT(rename(inner, moved) == 0 && mkdir(inner, 0755) == 0);
	new("i");
	WANT(is_plain(moved, "i") && length(inner, "i") == -1);
	return wrong;
}
