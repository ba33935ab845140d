/* An open that cuts cuts the file that it opened, also when its name is another file's meanwhile.
 * With O_RDONLY the cut went by the name: the other file was emptied. */
#include "t.h"

#include <signal.h>
#include <stdbool.h>

static off_t size_of(int fd)
{
	struct stat st = {0};
	fstat(fd, &st);
	return st.st_size;
}

int main(void)
{
	static const int flags[] = {
		O_RDONLY | O_TRUNC, O_WRONLY | O_TRUNC, O_RDWR | O_TRUNC | O_CREAT};
	int a = make("a", "AAAAA"), b = make("b", "BBBBB"), wrong[3] = {0}, failed = 0;
	struct stat of_a, of_opened;
	fstat(a, &of_a);
	pid_t pid = fork();
	if (pid == 0)
		for (;;)
			renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE);
	for (int i = 0; i < 600; i++) {
		int fd = open("a", flags[i % 3], 0644);
		failed += fd < 0 || fstat(fd, &of_opened) < 0;
		bool is_a = of_opened.st_ino == of_a.st_ino;
		close(fd);
		wrong[i % 3] += size_of(is_a ? a : b) != 0 || size_of(is_a ? b : a) != 5;
		failed += pwrite(a, "AAAAA", 5, 0) != 5 || pwrite(b, "BBBBB", 5, 0) != 5;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	printf("%d %d %d, %d failed\n", wrong[0], wrong[1], wrong[2], failed);
	/* Which is which at the end is chance. */
	unlink("a");
	unlink("b");
	return 0;
}
