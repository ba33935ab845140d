/* Positions and descriptors across fork, exec and spawn. */
#include "t.h"

#include <spawn.h>

extern char **environ;

static void child_of_exec(int argc, char **argv)
{
	char c[8] = "";
	int fd = atoi(argv[2]);
	printf("child: at %ld", (long)lseek(fd, 0, SEEK_CUR));
	ssize_t n = read(fd, c, 3);
	printf(" read %ld %s", (long)n, c);
	n = write(fd, "EXEC", 4);
	printf(" write %ld at %ld append %d\n", (long)n, (long)lseek(fd, 0, SEEK_CUR),
		fcntl(fd, F_GETFL) & O_APPEND);
	(void)argc;
	exit(7);
}

int main(int argc, char **argv)
{
	char c[16], number[16];
	pid_t pid;
	if (argc > 2 && !strcmp(argv[1], "child"))
		child_of_exec(argc, argv);

	int fd = make("f", "0123456789abcdefghij");
	R(lseek(fd, 2, SEEK_SET));
	fflush(stdout);
	if ((pid = fork()) == 0) {
		read(fd, c, 3);
		lseek(fd, 1, SEEK_CUR);
		_exit(0);
	}
	R(reap(pid));
	R(lseek(fd, 0, SEEK_CUR));
	fflush(stdout);
	if ((pid = fork()) == 0) {
		write(fd, "CHILD", 5);
		_exit(0);
	}
	R(reap(pid));
	R(write(fd, "P", 1));
	R(lseek(fd, 0, SEEK_CUR));
	show("f");

	/* exec: the description lives on. */
	sprintf(number, "%d", fd);
	R(lseek(fd, 4, SEEK_SET));
	fflush(stdout);
	if ((pid = fork()) == 0) {
		execl(argv[0], argv[0], "child", number, (char *)NULL);
		_exit(99);
	}
	R(reap(pid));
	R(lseek(fd, 0, SEEK_CUR));
	fflush(stdout);
	if ((pid = vfork()) == 0) {
		close(0);
		dup2(fd, 30);
		execlp(argv[0], argv[0], "child", "30", (char *)NULL);
		_exit(99);
	}
	R(reap(pid));
	R(lseek(fd, 0, SEEK_CUR));
	R(fcntl(30, F_GETFD));
	show("f");
	fcntl(fd, F_SETFL, O_APPEND);
	fflush(stdout);
	char *args[] = {argv[0], "child", number, NULL};
	/* Not printed before the child is gone: it prints too. */
	int rc = posix_spawn(&pid, argv[0], NULL, NULL, args, environ);
	R(reap(pid));
	R(rc);
	R(lseek(fd, 0, SEEK_CUR));
	show("f");

	/* posix_spawn that opens and moves descriptors. */
	posix_spawn_file_actions_t fa;
	posix_spawn_file_actions_init(&fa);
	R(posix_spawn_file_actions_addopen(&fa, 0, "f", O_RDONLY, 0));
	R(posix_spawn_file_actions_addopen(&fa, 1, "spawned", O_CREAT | O_TRUNC | O_WRONLY, 0640));
	R(posix_spawn_file_actions_adddup2(&fa, 1, 2));
	char *sh[] = {"sh", "-c", "head -c 5; echo; echo out; echo err >&2", NULL};
	fflush(stdout);
	R(posix_spawnp(&pid, "sh", &fa, NULL, sh, environ));
	R(reap(pid));
	posix_spawn_file_actions_destroy(&fa);
	show("spawned");
	posix_spawn_file_actions_init(&fa);
	R(posix_spawn_file_actions_addopen(&fa, 1, "nodir/x", O_CREAT | O_WRONLY, 0640));
	R(posix_spawnp(&pid, "true", &fa, NULL, sh, environ));
	posix_spawn_file_actions_destroy(&fa);

	fflush(stdout);
	R(system("echo from system > sys; cat sys; exit 3"));
	FILE *p = popen("cat sys; echo more >> sys", "r");
	R(fgets(c, sizeof c, p) != NULL);
	R(pclose(p));
	show("sys");

	/* Eight children append to one file; every line is whole. */
	int log = open("log", O_CREAT | O_WRONLY | O_APPEND, 0644);
	fflush(stdout);
	for (int i = 0; i < 8; i++)
		if (fork() == 0) {
			for (int k = 0; k < 50; k++) {
				char text[32];
				sprintf(text, "child %d line %02d\n", i, k);
				if (write(log, text, strlen(text)) != (ssize_t)strlen(text))
					_exit(1);
			}
			_exit(0);
		}
	for (int i = 0; i < 8; i++)
		R(wait(NULL) > 0);
	struct stat st;
	R(fstat(log, &st) ? -1 : (long)st.st_size);
	close(log);
	/* Eight children write through one position without O_APPEND. */
	log = open("shared", O_CREAT | O_WRONLY, 0644);
	fflush(stdout);
	for (int i = 0; i < 8; i++)
		if (fork() == 0) {
			for (int k = 0; k < 50; k++)
				if (write(log, "0123456\n", 8) != 8)
					_exit(1);
			_exit(0);
		}
	for (int i = 0; i < 8; i++)
		R(wait(NULL) > 0);
	R(fstat(log, &st) ? -1 : (long)st.st_size);
	R(lseek(log, 0, SEEK_CUR));
	R(system("sort -u shared; sort log | md5sum; rm log"));
	/* Close-on-exec. */
	fd = open("f", O_RDONLY | O_CLOEXEC);
	sprintf(number, "%d", fd);
	fflush(stdout);
	if ((pid = fork()) == 0) {
		execl(argv[0], argv[0], "child", number, (char *)NULL);
		_exit(99);
	}
	R(reap(pid));
	_exit(0);
}
