// exec FILE: processes that share an open file try to execute a program, all at once, again and
// again. Each makes its descriptions known to the next program, and none waits for ever.
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_CREAT | O_RDWR, 0644) : -1, status;
	if (fd < 0 || write(fd, "x", 1) != 1)
		return 1;
	alarm(60);
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			char *none[] = {argv[0], NULL};
			alarm(60);
			for (int k = 0; k < 20000; k++)
				execve("/nonexistent/program", none, none + 1);
			_exit(0);
		}
	while (wait(&status) > 0)
		if (status != 0)
			return 1;
	return 0;
}
