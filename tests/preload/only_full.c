/* A program acknowledges bytes that then find no room (a limit stands for the full disk), and
 * becomes another, ends, or gives the number of its file away: nobody was told, and exec succeeded.
 * Now exec fails, and the others say it on stderr, once. */
#include "t.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static int failed;

/* Runs itself as `how` and reads what that says on stderr. */
static void look(const char *self, const char *how, int status_wanted)
{
	int pipes[2], status;
	char said[2048];
	size_t n = 0;
	ssize_t got;
	if (pipe(pipes))
		exit(2);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(pipes[1], 2);
		close(pipes[0]);
		close(pipes[1]);
		execl(self, self, how, (char *)NULL);
		_exit(99);
	}
	close(pipes[1]);
	while ((got = read(pipes[0], said + n, sizeof said - 1 - n)) > 0)
		n += (size_t)got;
	said[n] = 0;
	close(pipes[0]);
	waitpid(pid, &status, 0);
	const char *first = strstr(said, "File too large");
	/* Who exec has told ends all the same, and loses it. */
	if (first && !strcmp(how, "exec"))
		first = strstr(first + 1, "File too large");
	if (WEXITSTATUS(status) != status_wanted || !first || strstr(first + 1, "File too large")) {
		printf("%s: status %d, says: %s\n", how, WEXITSTATUS(status), said);
		failed = 1;
	}
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		look(argv[0], "exec", 5);
		look(argv[0], "_exit", 0);
		look(argv[0], "quick_exit", 0);
		look(argv[0], "return", 0);
		look(argv[0], "dup2", 0);
		look(argv[0], "close_range", 0);
		return failed;
	}
	const char *how = argv[1];
	char b[1000];
	memset(b, 'x', sizeof b);
	int fd = open(how, O_CREAT | O_RDWR, 0644);
	if (write(fd, b, 1) != 1 || fsync(fd))
		return 98;
	struct rlimit limit = {2000, 2000};
	signal(SIGXFSZ, SIG_IGN);
	/* By system call: the library would hold it against the file, not the logs. */
	syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &limit, NULL);
	for (int i = 0; i < 10; i++)
		if (write(fd, b, sizeof b) != sizeof b)
			return 97;
	if (!strcmp(how, "exec")) {
		execl("/bin/true", "true", (char *)NULL);
		int error = errno;
		perror("exec");
		_Exit(error == EFBIG ? 5 : 96);
	}
	if (!strcmp(how, "_exit"))
		_exit(0);
	if (!strcmp(how, "quick_exit"))
		quick_exit(0);
	if (!strcmp(how, "dup2"))
		return dup2(0, fd) != fd;
	if (!strcmp(how, "close_range"))
		return close_range((unsigned)fd, (unsigned)fd, 0) != 0;
	return 0;
}
