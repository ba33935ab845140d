/* Main has left by pthread_exit and a thread goes on, as programs do whose main only starts others.
 * /proc/self is main's, and leads nowhere from then on: a new file was ENOENT, and left its name
 * behind, one that was named from a directory was EBADF, and a library in a PLFS file or a
 * posix_spawn that opens one failed. */
#include "t.h"
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>

extern char **environ;

static void runs(const char *path, const posix_spawn_file_actions_t *actions, const char *word)
{
	pid_t pid = -1;
	char *argv[] = {(char *)path, (char *)word, NULL};
	fflush(stdout);
	R(posix_spawn(&pid, path, actions, NULL, argv, environ));
	printf("%s: %d\n", path, pid > 0 ? reap(pid) : -1);
}

static void files(void)
{
	struct stat st = {0};
	char path[64];
	umask(027);
	int dir = open(".", O_RDONLY | O_DIRECTORY), fd;
	R((fd = open("new", O_RDWR | O_CREAT | O_EXCL, 0666)) >= 0);
	R(write(fd, "text", 4));
	R(fstat(fd, &st));
	printf("%o %lld\n", st.st_mode, (long long)st.st_size);
	R(openat(dir, "old", O_RDONLY) >= 0);
	R(openat(dir, "beside", O_RDWR | O_CREAT, 0666) >= 0);
	R(fstatat(dir, "new", &st, 0));
	R(renameat(dir, "beside", dir, "renamed"));
	R(unlinkat(dir, "renamed", 0));
	R(chmod("old", 0));
	R(chmod("old", 0640));
	int only_path = open("new", O_PATH);
	sprintf(path, "/proc/thread-self/fd/%d", only_path);
	R(open(path, O_RDONLY) >= 0);
	strcpy(path, "madeXXXXXX");
	R(mkstemp(path) >= 0);
	unlink(path);
	FILE *stream = fopen("stream", "w");
	R(stream != NULL);
	R(stream && fputs("of stdio", stream) >= 0 && fclose(stream) == 0);
	int entries = 0;
	DIR *list = opendir(".");
	while (readdir(list))
		entries++;
	closedir(list);
	printf("%d names\n", entries);
	R(close_range(fd, fd, 0));
	R(fcntl(fd, F_GETFD));
	show("new");
	show("stream");
}

static void programs(void)
{
	void *library = dlopen("./lib.so", RTLD_NOW);
	int (*answer)(void) = library ? (int (*)(void))dlsym(library, "answer") : NULL;
	printf("library: %d\n", answer ? answer() : -1);
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "out", O_WRONLY | O_CREAT | O_APPEND, 0644);
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	runs("/bin/echo", &actions, "by echo");
	runs("./script", &actions, "by script");
	runs("./program", &actions, "by program");
	show("out");
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		R(open("of child", O_RDWR | O_CREAT, 0644) >= 0);
		R(openat(open(".", O_RDONLY), "old", O_RDONLY) >= 0);
		fflush(stdout);
		execl("./program", "./program", "executed", NULL);
		_exit(9);
	}
	printf("child: %d\n", reap(pid));
	fflush(stdout);
	execl("./script", "./script", "executed", NULL);
	perror("./script");
	_exit(8);
}

static void *goes_on(void *unused)
{
	/* Main has gone by then. */
	usleep(200000);
	files();
	programs();
	return unused;
}

static void prepare(void)
{
	close(make("old", "12345678"));
	int fd = make("script", "#!/bin/sh\necho $0 $1\n");
	fchmod(fd, 0755);
	close(fd);
	FILE *source = popen("gcc -shared -fPIC -o \"$T_BIN\"/t_gone.so -x c -", "w");
	fputs("int answer(void) { return 42; }", source);
	pclose(source);
	system("cp /bin/echo program; chmod 755 program; cp \"$T_BIN\"/t_gone.so lib.so");
}

int main(void)
{
	pthread_t thread;
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	prepare();
	pthread_create(&thread, NULL, goes_on, NULL);
	pthread_exit(NULL);
}
