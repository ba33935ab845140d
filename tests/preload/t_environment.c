/* What is started with an environment that the program has emptied, or that is no memory. libc's
 * own starts (system, popen, wordexp) got one without LD_PRELOAD, read superblocks and wrote over
 * them. */
#include "t.h"

#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <wordexp.h>

extern char **environ;

static void tell(const char *what)
{
	char text[100];
	int fd = open("f", O_RDONLY);
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	printf("%s: %zd %s\n", what, n, text);
	fflush(stdout);
}

static void start_all(const char *what)
{
	char **before = environ, text[100] = "";
	size_t words = 0, now = 0;
	while (before && before[words])
		words++;
	int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
	printf("%zd\n", write(fd, "hello\n", 6));
	close(fd);
	printf("system %d\n", system("cat f; echo more >> f"));
	FILE *fp = popen("cat f; echo pipe >> f", "r");
	size_t n = fread(text, 1, sizeof text - 1, fp);
	printf("popen %zu %d %s", n, pclose(fp), text);
	wordexp_t found;
	printf("wordexp %d\n", wordexp("$(cat f) `echo word >> f`", &found, 0));
	for (size_t i = 0; i < found.we_wordc; i++)
		printf("word %s\n", found.we_wordv[i]);
	wordfree(&found);
	while (environ && environ[now])
		now++;
	printf("environ is as before: %d %d\n", environ == before, now == words);
	tell(what);
}

/* In another thread, while this one has its way with the environment. */
static void *slow(void *unused)
{
	(void)unused;
	system("echo > begun; while [ -e begun ]; do sleep 0.01; done");
	return NULL;
}

static pthread_t start_slow(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, slow, NULL);
	while (access("begun", F_OK) < 0)
		usleep(1000);
	return thread;
}

static void end_slow(pthread_t thread)
{
	unlink("begun");
	pthread_join(thread, NULL);
}

static void give(const char *a)
{
	clearenv();
	setenv("PATH", "/bin:/usr/bin", 1);
	setenv("A", a, 1);
	setenv("B", "1", 1);
}

static void tell_words(const char *what)
{
	printf("%s:", what);
	for (char **word = environ; word && *word; word++)
		printf(" %s", *word);
	printf("\n");
	fflush(stdout);
}

/* What the first of two threads had found of the environment counted for the second: a program that
 * was started after it had been emptied read a superblock, and wrote behind it. What was changed
 * while a program ran was as before when it had ended, or stayed with words of PLFS's. And after a
 * thread that was cancelled in `system` no program had PLFS. */
static void changed_meanwhile(bool emptied_first)
{
	if (emptied_first)
		give("0");
	pthread_t thread = start_slow();
	give("1");
	tell("emptied");
	printf("system %d\n", system("cat f; echo second >> f"));
	tell("second");
	end_slow(thread);
	tell_words("joined");
	thread = start_slow();
	setenv("A", "2", 1);
	unsetenv("B");
	end_slow(thread);
	tell_words("changed");
	thread = start_slow();
	setenv("C", "3", 1);
	end_slow(thread);
	tell_words("with one more");
	thread = start_slow();
	pid_t pid = fork();
	if (pid == 0) {
		tell_words("forked");
		_exit(0);
	}
	reap(pid);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	unlink("begun");
	tell_words("cancelled");
	give("4");
	printf("system %d\n", system("cat f; echo third >> f"));
	tell("third");
	tell_words("ended");
}

static void *many(void *of)
{
	for (int i = 0; i < 10; i++)
		if (system("cat f > /dev/null && test \"$(head -c 5 f)\" = hello") != 0)
			return "wrong";
	return NULL;
}

static void refused(const char *what, char **envp)
{
	char *argv[] = {"true", NULL};
	int fd = open("/bin/true", O_RDONLY), rc;
	pid_t pid;
	rc = execve("/bin/true", argv, envp);
	printf("%s: execve %d %d", what, rc, errno);
	rc = execve("./nowhere", argv, envp);
	printf(", %d %d", rc, errno);
	rc = execvpe("true", argv, envp);
	printf(", execvpe %d %d", rc, errno);
	rc = execveat(fd, "", argv, envp, AT_EMPTY_PATH);
	printf(", execveat %d %d", rc, errno);
	rc = (int)syscall(SYS_execve, "/bin/true", argv, envp);
	printf(", syscall %d %d", rc, errno);
	printf(", spawn %d\n", posix_spawn(&pid, "/bin/true", NULL, NULL, argv, envp));
	fflush(stdout);
	close(fd);
}

int main(void)
{
	char *none[] = {NULL}, *path[] = {"PATH=/bin:/usr/bin", NULL}, *argv[] = {"true", NULL};
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(pages + 4096, 4096);
	char **ends = (char **)(pages + 4096) - 2, *word[] = {"A=b", (char *)16, NULL};
	ends[0] = ends[1] = "C=d";
	refused("no pointer", (char **)8);
	refused("no end", ends);
	refused("no word", word);
	/* Which Linux takes for an empty one, and fexecve does not. */
	int fd = open("/bin/true", O_RDONLY), rc = fexecve(fd, argv, NULL);
	printf("fexecve %d %d\n", rc, errno);
	close(fd);
	start_all("as it is");
	/* In a child: the others have the environment as it was. */
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		changed_meanwhile(false);
		exit(0);
	}
	printf("changed: %d\n", reap(pid));
	environ = path;
	start_all("PATH alone");
	environ = none;
	start_all("empty");
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, many, NULL);
	for (int i = 0; i < 4; i++) {
		void *said;
		pthread_join(threads[i], &said);
		printf("thread: %s\n", said ? (char *)said : "right");
	}
	printf("environ is as before: %d\n", environ == none);
	environ = NULL;
	start_all("NULL");
	clearenv();
	start_all("cleared");
	changed_meanwhile(true);
	return 0;
}
