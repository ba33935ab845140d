/* What is different in a managed directory, by design. Runs only there; prints nothing but what is
 * wrong. */
#include "t.h"

#include <dirent.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <linux/fs.h>

int main(void)
{
	int fd = make("f", "some text"), pipes[2], plain = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	WANT(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED &&
		errno == ENODEV);
	WANT(open(".", O_TMPFILE | O_RDWR, 0600) == -1 && errno == EOPNOTSUPP);
	WANT(ioctl(fd, FICLONE, plain) == -1 && errno == EOPNOTSUPP);
	WANT(ioctl(plain, FICLONE, fd) == -1 && errno == EOPNOTSUPP);
	WANT(ioctl(fd, 0x1234, 0) == -1 && errno == ENOTTY);
	WANT(pipe(pipes) == 0);
	WANT(splice(fd, NULL, pipes[1], NULL, 5, 0) == -1 && errno == EINVAL);
	WANT(write(pipes[1], "in it", 5) == 5);
	WANT(splice(pipes[0], NULL, fd, NULL, 5, 0) == -1 && errno == EINVAL);
	WANT(tee(pipes[0], fd, 5, 0) == -1 && errno == EINVAL);
	WANT(splice(pipes[0], NULL, plain, NULL, 5, 0) == 5);
	int watcher = inotify_init1(0);
	WANT(inotify_add_watch(watcher, "f", IN_MODIFY) == -1 && errno == ENOSPC);
	WANT(inotify_add_watch(watcher, ".", IN_CREATE) > 0);
	WANT(inotify_add_watch(watcher, "none", IN_MODIFY) == -1 && errno == ENOENT);
	WANT(preadv2(fd, NULL, 0, 0, RWF_NOWAIT) == -1 && errno == EOPNOTSUPP);

	/* Hidden where readdir is asked, and there all the same. */
	DIR *dir = opendir(getenv("T_MANAGED"));
	struct dirent *e;
	while (dir && (e = readdir(dir)))
		WANT(strcmp(e->d_name, ".plfs") != 0);
	closedir(dir);

	/* A name looks like a superblock to whoever does not go through the door. */
	char path[4200], text[64] = "";
	sprintf(path, "%s/f", getenv("T_HERE"));
	close(fd);
	WANT(truncate(path, 4) == 0);
	fd = open("f", O_RDWR);
	char link[64] = "/tmp/only_managed.XXXXXX";
	close(mkstemp(link));
	unlink(link);
	WANT(symlink(path, link) == 0);
	int through = open(link, O_RDONLY);
	WANT(read(through, text, 10) == 4 && memcmp(text, "some", 4) == 0);
	close(through);
	through = open(link, O_WRONLY | O_TRUNC);
	WANT(write(through, "linked", 6) == 6);
	close(through);
	FILE *f = fopen(link, "a");
	WANT(fputs("+stdio", f) >= 0 && fclose(f) == 0);
	WANT(pread(fd, text, 20, 0) == 12 && memcmp(text, "linked+stdio", 12) == 0);
	struct stat st;
	WANT(stat(link, &st) == 0 && st.st_size == 12 && st.st_nlink == 1);
	WANT(truncate(link, 2) == 0 && stat(link, &st) == 0 && st.st_size == 2);
	unlink(link);
	return wrong;
}
