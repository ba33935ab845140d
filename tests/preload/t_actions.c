/* What an action of posix_spawn does, it does only if all before it, and the attributes, have
 * succeeded. Files of PLFS were opened by the parent before: a spawn that failed had cut one, or
 * made it, which a plain directory leaves alone; and where two actions fail the second could give
 * the error number. A list with such a file has a child of PLFS's own, which is like libc's: what
 * its program finds is compared, too. */
#include "t.h"

#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <stdbool.h>

extern char **environ;

static posix_spawn_file_actions_t actions;
static posix_spawnattr_t attributes;
static char self[4096];
static char *report[] = {"t_actions", "report", NULL};
static int handled, forked;

static void begin(void)
{
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
}

/* As `begin`, with what must be done only after what follows. */
static void end(void)
{
	posix_spawn_file_actions_addopen(&actions, 41, "kept", O_WRONLY | O_TRUNC, 0);
	posix_spawn_file_actions_addopen(&actions, 42, "made", O_WRONLY | O_CREAT, 0600);
}

/* Starts it, ends the actions, and says what became of it. */
static void start_by(const char *what, const char *path, bool along_path)
{
	pid_t pid = 12345;
	fflush(stdout);
	int rc = (along_path ? posix_spawnp : posix_spawn)(
		&pid, path, &actions, &attributes, report, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	if (rc)
		printf("%s: error %d, pid %s\n", what, rc, pid == 12345 ? "as it was" : "set");
	else
		printf("%s: ended %d\n", what, reap(pid));
	/* No child is left. */
	errno = 0;
	int left = waitpid(-1, NULL, WNOHANG);
	struct stat st;
	printf("  %d %d; kept %lld, made %d\n", left, errno,
		stat("kept", &st) ? -1LL : (long long)st.st_size, access("made", F_OK));
	unlink("made");
	int fd = open("kept", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	write(fd, "precious", 8);
	close(fd);
}

static void start(const char *what)
{
	start_by(what, "/bin/true", false);
}

static void fails(void)
{
	enum { CASES = 22 };
	for (int i = 0; i < CASES; i++) {
		char what[40];
		int null = open("/dev/null", O_RDONLY);
		snprintf(what, sizeof what, "failure %d", i);
		begin();
		switch (i) {
		case 0:
			posix_spawn_file_actions_addclosefrom_np(&actions, 3);
			posix_spawn_file_actions_adddup2(&actions, null, 20);
			break;
		case 1:
			posix_spawn_file_actions_addclose(&actions, null);
			posix_spawn_file_actions_adddup2(&actions, null, 20);
			break;
		case 2:
			posix_spawn_file_actions_adddup2(&actions, null, 40);
			posix_spawn_file_actions_addclose(&actions, 40);
			posix_spawn_file_actions_adddup2(&actions, 40, 43);
			break;
		case 3:
			posix_spawn_file_actions_adddup2(&actions, 99, 20);
			break;
		case 4:
			posix_spawn_file_actions_addfchdir_np(&actions, null);
			break;
		case 5:
			posix_spawn_file_actions_addchdir_np(&actions, "missing");
			break;
		case 6:
			posix_spawn_file_actions_addclose(&actions, null);
			posix_spawn_file_actions_addfchdir_np(&actions, null);
			break;
		case 7:
			posix_spawn_file_actions_addopen(&actions, 30, "/tmp", O_WRONLY, 0);
			break;
		case 8:
			posix_spawn_file_actions_addopen(
				&actions, 30, "/etc/passwd", O_WRONLY | O_CREAT | O_EXCL, 0);
			break;
		case 9:
			posix_spawn_file_actions_addopen(&actions, 30, "/dev/nope", O_RDONLY, 0);
			break;
		case 10:
			posix_spawn_file_actions_addopen(
				&actions, 30, "/proc/self/nope", O_RDONLY, 0);
			break;
		case 11:
			/* A link. */
			posix_spawn_file_actions_addopen(
				&actions, 30, "/proc/self/exe", O_RDONLY | O_NOFOLLOW, 0);
			break;
		case 12:
			posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
			posix_spawnattr_setpgroup(&attributes, 1);
			break;
		case 13:
			posix_spawn_file_actions_addtcsetpgrp_np(&actions, null);
			break;
		case 14:
			posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSCHEDULER);
			posix_spawnattr_setschedpolicy(&attributes, SCHED_FIFO);
			posix_spawnattr_setschedparam(
				&attributes, &(struct sched_param){.sched_priority = 999});
			break;
		case 15:
			posix_spawn_file_actions_addopen(
				&actions, 30, "kept", O_RDWR | O_CREAT | O_EXCL, 0);
			break;
		case 16:
			posix_spawn_file_actions_addopen(&actions, 30, "missing", O_RDONLY, 0);
			break;
		case 17:
			/* No such number can be. */
			posix_spawn_file_actions_addclosefrom_np(&actions, 3);
			posix_spawn_file_actions_addfchdir_np(&actions, 30);
			break;
		/* Two that fail: the first one's number. */
		case 18:
			posix_spawn_file_actions_addclosefrom_np(&actions, 3);
			posix_spawn_file_actions_adddup2(&actions, null, 20);
			posix_spawn_file_actions_addopen(&actions, 30, "missing", O_RDONLY, 0);
			break;
		case 19:
			posix_spawn_file_actions_addchdir_np(&actions, "missing");
			posix_spawn_file_actions_adddup2(&actions, 99, 20);
			break;
		case 20:
			posix_spawn_file_actions_addopen(&actions, 30, "missing", O_RDONLY, 0);
			posix_spawn_file_actions_adddup2(&actions, 99, 20);
			break;
		case 21:
			posix_spawn_file_actions_adddup2(&actions, 99, 20);
			posix_spawn_file_actions_addopen(&actions, 30, "missing", O_RDONLY, 0);
			break;
		}
		end();
		start(what);
		close(null);
	}
}

/* What comes before the failure has happened. */
static void did_before(void)
{
	begin();
	end();
	posix_spawn_file_actions_adddup2(&actions, 99, 20);
	start("then a failure");
	begin();
	end();
	start_by("no program", "/none/there", false);
	begin();
	end();
	start_by("no program along PATH", "no-such-program", true);
	begin();
	end();
	start_by("an empty name", "", true);
	begin();
	end();
	start_by("not to be run", "/etc/passwd", false);
	begin();
	end();
	start_by("a directory", "/tmp", true);
	begin();
	/* What is no program for the kernel is none for a shell. */
	R(system("echo exit 3 > words && chmod 755 words"));
	end();
	start_by("words", "./words", true);
	begin();
	R(system("printf '#!./none\\n' > words"));
	end();
	start_by("an interpreter that is not there", "./words", false);
	char name[300];
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = 0;
	begin();
	end();
	start_by("a long name", name, true);
	begin();
	end();
	start_by("along PATH", "true", true);
	begin();
	end();
	posix_spawn_file_actions_addopen(&actions, 43, "made", O_RDWR | O_EXCL | O_CREAT, 0600);
	start("made before");
	unlink("words");
}

static void on_signal(int sig)
{
	handled++;
}

static void before_fork(void)
{
	forked++;
}

/* The same without an open, in a program that has a file open here. */
static void without_open(void)
{
	int kept = open("kept", O_RDWR);
	begin();
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	posix_spawn_file_actions_adddup2(&actions, kept, 20);
	start("closed before");
	begin();
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSCHEDULER);
	posix_spawnattr_setschedpolicy(&attributes, SCHED_FIFO);
	posix_spawnattr_setschedparam(&attributes, &(struct sched_param){.sched_priority = 999});
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	start("no such priority");
	begin();
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	start_by("no such program", "no-such-program", true);
	begin();
	posix_spawn_file_actions_adddup2(&actions, kept, 52);
	posix_spawn_file_actions_addclosefrom_np(&actions, 53);
	posix_spawn_file_actions_addclose(&actions, kept);
	start_by("what is below stays", self, false);
	close(kept);
}

/* A number's path is the child's: what its action put there, not what this process has. The
 * superblock was cut. */
static void by_number(void)
{
	char *echo[] = {"sh", "-c", "echo one >&6; echo two >&8; echo three >&9", NULL};
	int kept = open("kept", O_RDWR), other = open("/dev/null", O_RDWR);
	dup2(other, 5);
	begin();
	posix_spawn_file_actions_adddup2(&actions, kept, 5);
	posix_spawn_file_actions_addopen(&actions, 6, "/dev/fd/5", O_WRONLY | O_TRUNC, 0);
	posix_spawn_file_actions_addopen(&actions, 7, "numbered", O_RDONLY | O_CREAT, 0600);
	posix_spawn_file_actions_addopen(&actions, 8, "/proc/self/fd/7", O_WRONLY | O_APPEND, 0);
	posix_spawn_file_actions_adddup2(&actions, 7, 0);
	posix_spawn_file_actions_addopen(&actions, 9, "/dev/stdin", O_WRONLY | O_APPEND, 0);
	pid_t pid;
	fflush(stdout);
	R(posix_spawn(&pid, "/bin/sh", &actions, NULL, echo, environ));
	R(reap(pid));
	show("kept");
	show("numbered");
	begin();
	posix_spawn_file_actions_addclose(&actions, 5);
	posix_spawn_file_actions_addopen(&actions, 6, "/dev/fd/5", O_RDONLY, 0);
	end();
	start("a number that is closed");
	begin();
	posix_spawn_file_actions_adddup2(&actions, kept, 5);
	posix_spawn_file_actions_addopen(&actions, 5, "/dev/fd/5", O_RDONLY, 0);
	end();
	start("its own number");
	close(5);
	close(kept);
	close(other);
}

/* The program that is started: what it is. */
static int say(void)
{
	sigset_t mask;
	struct sched_param parameters;
	sigprocmask(SIG_SETMASK, NULL, &mask);
	printf("  signals:");
	for (int sig = 1; sig <= 64; sig++) {
		struct sigaction action;
		if (sigismember(&mask, sig))
			printf(" %d blocked", sig);
		if (sig != 32 && sig != 33 && sigaction(sig, NULL, &action) == 0 &&
			action.sa_handler == SIG_IGN)
			printf(" %d ignored", sig);
	}
	sched_getparam(0, &parameters);
	printf("\n  leads session %d, group %d; policy %d\n  open:", getsid(0) == getpid(),
		getpgid(0) == getpid(), sched_getscheduler(0));
	for (int fd = 0; fd < 100; fd++) {
		int flags = fcntl(fd, F_GETFL), on_exec = fcntl(fd, F_GETFD);
		if (flags >= 0 && fd > 2)
			printf(" %d %d%s%s", fd, flags & O_ACCMODE, flags & O_APPEND ? "a" : "",
				on_exec ? "!" : "");
	}
	printf("\n");
	/* 50 and 51 are one, and 52 appends; 53 only reads. */
	if (write(50, "one ", 4) == 4 && write(51, "two\n", 4) == 4)
		printf("  at %lld\n", (long long)lseek(50, 0, SEEK_CUR));
	if (fcntl(52, F_GETFD) >= 0)
		R(write(52, "more\n", 5));
	if (fcntl(53, F_GETFD) >= 0)
		R(write(53, "none\n", 5));
	return 7;
}

static void as_libc(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigset_t some, old;
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGHUP, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	pthread_atfork(before_fork, NULL, before_fork);
	sigemptyset(&some);
	sigaddset(&some, SIGUSR2);
	sigaddset(&some, SIGRTMIN + 3);
	sigprocmask(SIG_BLOCK, &some, &old);
	for (int i = 0; i < 9; i++) {
		char what[40];
		snprintf(what, sizeof what, "attributes %d", i);
		begin();
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGQUIT);
		sigaddset(&set, SIGTERM);
		posix_spawnattr_setsigdefault(&attributes, &set);
		posix_spawnattr_setsigmask(&attributes, &set);
		struct sched_param parameters = {0};
		posix_spawnattr_setschedparam(&attributes, &parameters);
		posix_spawnattr_setschedpolicy(&attributes, SCHED_BATCH);
		static const short of[] = {0, POSIX_SPAWN_SETSIGDEF, POSIX_SPAWN_SETSIGMASK,
			POSIX_SPAWN_SETPGROUP, POSIX_SPAWN_SETSID, POSIX_SPAWN_SETSCHEDULER,
			POSIX_SPAWN_SETSCHEDPARAM, POSIX_SPAWN_RESETIDS,
			POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID |
				POSIX_SPAWN_SETSCHEDULER | POSIX_SPAWN_RESETIDS};
		posix_spawnattr_setflags(&attributes, of[i]);
		posix_spawn_file_actions_addclosefrom_np(&actions, 3);
		posix_spawn_file_actions_addopen(&actions, 60, "/dev/null", O_RDWR, 0);
		posix_spawn_file_actions_addopen(
			&actions, 50, "new", O_RDWR | O_CREAT | O_TRUNC, 0640);
		posix_spawn_file_actions_adddup2(&actions, 50, 51);
		posix_spawn_file_actions_addopen(&actions, 52, "kept", O_WRONLY | O_APPEND, 0);
		posix_spawn_file_actions_addopen(&actions, 53, "kept", O_RDONLY, 0);
		/* Closed by exec, as the lowest number; not, as another one. */
		posix_spawn_file_actions_addopen(&actions, 3, "kept", O_RDONLY | O_CLOEXEC, 0);
		posix_spawn_file_actions_addopen(&actions, 55, "kept", O_RDWR | O_CLOEXEC, 0);
		posix_spawn_file_actions_adddup2(&actions, 55, 55);
		start_by(what, self, false);
		show("new");
	}
	printf("handled %d, forked %d\n", handled, forked);
	sigprocmask(SIG_SETMASK, &old, NULL);
	signal(SIGHUP, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	unlink("new");
}

/* A terminal, of which the child becomes the foreground. */
static void takes_terminal(void)
{
	int pty, terminal;
	if (openpty(&pty, &terminal, NULL, NULL, NULL) < 0)
		return;
	char *name = ttyname(terminal);
	begin();
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
	posix_spawn_file_actions_addopen(&actions, 30, name, O_RDWR, 0);
	posix_spawn_file_actions_addtcsetpgrp_np(&actions, 30);
	end();
	start("a terminal");
	begin();
	posix_spawn_file_actions_addopen(&actions, 30, name, O_RDWR | O_NOCTTY, 0);
	posix_spawn_file_actions_addtcsetpgrp_np(&actions, 30);
	end();
	start("a terminal of nobody's");
	close(pty);
	close(terminal);
}

/* Threads that start programs and fork at the same time wait for none of the others' children. */
static void *starts(void *failures)
{
	for (int i = 0; i < 20; i++) {
		posix_spawn_file_actions_t own;
		pid_t pid, fork_pid = fork();
		if (fork_pid == 0)
			_exit(0);
		posix_spawn_file_actions_init(&own);
		posix_spawn_file_actions_addopen(&own, 1, "many", O_WRONLY | O_APPEND, 0);
		char *words[] = {"echo", "line", NULL};
		*(int *)failures += posix_spawnp(&pid, "echo", &own, NULL, words, environ) != 0 ||
				    reap(pid) != 0;
		*(int *)failures += reap(fork_pid) != 0;
		posix_spawn_file_actions_destroy(&own);
	}
	return NULL;
}

static void threads(void)
{
	enum { THREADS = 4 };
	pthread_t thread[THREADS];
	int failures[THREADS] = {0};
	close(open("many", O_WRONLY | O_CREAT, 0644));
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, starts, &failures[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		R(failures[i]);
	}
	struct stat st;
	stat("many", &st);
	R(st.st_size);
}

/* From where the child is: the directory of an action, which an action may open. */
static void moves(void)
{
	mkdir("in", 0755);
	begin();
	posix_spawn_file_actions_addchdir_np(&actions, "in");
	posix_spawn_file_actions_addopen(&actions, 30, "inner", O_RDWR | O_CREAT, 0600);
	posix_spawn_file_actions_addchdir_np(&actions, "..");
	end();
	start("there and back");
	begin();
	posix_spawn_file_actions_addopen(&actions, 30, "in", O_RDONLY | O_DIRECTORY, 0);
	posix_spawn_file_actions_addfchdir_np(&actions, 30);
	posix_spawn_file_actions_addopen(&actions, 31, "second", O_RDWR | O_CREAT, 0600);
	posix_spawn_file_actions_addopen(&actions, 32, "../kept", O_RDWR | O_TRUNC, 0600);
	start("opened there");
	R(access("in/inner", F_OK));
	R(access("in/second", F_OK));
	/* They were the parent's. */
	begin();
	posix_spawn_file_actions_addchdir_np(&actions, "in");
	posix_spawn_file_actions_addopen(
		&actions, 30, "/proc/self/cwd/third", O_RDWR | O_CREAT | O_TRUNC, 0600);
	start("by what the child is");
	int fd = open("in", O_RDONLY | O_DIRECTORY);
	begin();
	posix_spawn_file_actions_adddup2(&actions, fd, 77);
	posix_spawn_file_actions_addopen(
		&actions, 30, "/dev/fd/77/fourth", O_RDWR | O_CREAT | O_TRUNC, 0600);
	start("by what the child has open");
	close(fd);
	R(access("in/third", F_OK));
	R(access("in/fourth", F_OK));
	R(access("third", F_OK));
}

static struct job {
	posix_spawn_file_actions_t actions;
} job_of(const char *path)
{
	struct job job;
	posix_spawn_file_actions_init(&job.actions);
	posix_spawn_file_actions_addopen(
		&job.actions, 44, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	return job;
}

/* A list was known by the place of the program's structure alone. Of one that was moved libc's own
 * child did the actions, on a superblock. */
static void moved(void)
{
	struct job *first = malloc(sizeof *first);
	*first = job_of("kept");
	posix_spawn_file_actions_t elsewhere = first->actions;
	free(first);
	/* Where the first one was, more or less. */
	first = malloc(sizeof *first);
	*first = job_of("made");
	begin();
	actions = elsewhere;
	posix_spawn_file_actions_adddup2(&actions, 44, 45);
	start("moved");
	begin();
	actions = first->actions;
	start("made where it was");
	free(first);
}

/* Scripts whose interpreter is not there: the next one of PATH is started. One without a first line
 * is the shell's, by execvp alone. */
static void along_path(void)
{
	static const char *const names[][2] = {{"one/tool", "#!/no/such/interpreter\n"},
		{"two/tool", "#!/bin/sh\necho second tool\n"}, {"one/plain", "echo no script $1\n"},
		{"one/only", "#!/no/such/interpreter\n"}};
	mkdir("one", 0755);
	mkdir("two", 0755);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		int fd = open(names[i][0], O_WRONLY | O_CREAT, 0755);
		write(fd, names[i][1], strlen(names[i][1]));
		close(fd);
	}
	setenv("PATH", "one:two:/bin:/usr/bin", 1);
	static const char *const tools[] = {"tool", "plain", "only", "nowhere"};
	for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
		begin();
		start_by(tools[i], tools[i], true);
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			execlp(tools[i], tools[i], "given", NULL);
			printf("execlp %s: %d\n", tools[i], errno);
			exit(3);
		}
		printf("execlp: ended %d\n", reap(pid));
	}
}

static void *spawns(void *stop)
{
	while (!*(volatile bool *)stop) {
		posix_spawn_file_actions_t own;
		pid_t pid;
		posix_spawn_file_actions_init(&own);
		posix_spawn_file_actions_addopen(&own, 0, "kept", O_RDONLY, 0);
		char *words[] = {"true", NULL};
		if (posix_spawn(&pid, "/bin/true", &own, NULL, words, environ) == 0)
			reap(pid);
		posix_spawn_file_actions_destroy(&own);
	}
	return NULL;
}

/* A child that another thread forked meanwhile kept the parent's end of the socket: when the parent
 * was killed the child of its spawn waited as long as that lived. */
static void killed(void)
{
	int alive[2], rounds = 0;
	fflush(stdout);
	for (; rounds < 5; rounds++) {
		pipe(alive);
		pid_t parent = fork(), pid;
		if (parent == 0) {
			pthread_t thread;
			bool stop = false;
			close(alive[0]);
			pthread_create(&thread, NULL, spawns, &stop);
			for (int i = 0; i < 20; i++)
				if ((pid = fork()) == 0) {
					close(alive[1]);
					sleep(1);
					_exit(0);
				}
			kill(getpid(), SIGKILL);
		}
		close(alive[1]);
		/* All that are left, but for those of the fork: children of spawn. */
		struct timespec begun, now;
		clock_gettime(CLOCK_MONOTONIC, &begun);
		char byte;
		R(read(alive[0], &byte, 1));
		clock_gettime(CLOCK_MONOTONIC, &now);
		long ms = (now.tv_sec - begun.tv_sec) * 1000 +
			  (now.tv_nsec - begun.tv_nsec) / 1000000;
		reap(parent);
		close(alive[0]);
		if (ms > 900)
			printf("a child of a spawn waited\n");
	}
	R(rounds);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return say();
	readlink("/proc/self/exe", self, sizeof self - 1);
	unlink("made");
	begin();
	posix_spawn_file_actions_addopen(&actions, 30, "kept", O_RDWR | O_CREAT, 0644);
	start("first");
	fails();
	did_before();
	moves();
	by_number();
	without_open();
	takes_terminal();
	as_libc();
	threads();
	moved();
	killed();
	along_path();
	return 0;
}
