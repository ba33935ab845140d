/* How much stack calls take. The preload library once put 12 KiB of paths on the stack of each
 * open, and programs with small stacks ended with SIGSEGV outside managed directories, too; a read
 * or a close of a file of PLFS took up to 24 KiB. So each call is made on a stack that is painted,
 * which shows how far it went: less than 1 KiB for a file that is none of PLFS's business, less
 * than 2 KiB for one that is. What starts a program once took 14 KiB, so that posix_spawn ended a
 * thread that had 16 KiB: now less than 4 KiB.
 *
 * Then all of them in a handler on an alternate stack of MINSIGSTKSZ and 4 KiB, while another
 * signal comes on the same stack all the time; after handlers that left by siglongjmp; exit in such
 * a handler; and in threads that have 16 KiB, the least that pthread_attr_setstacksize(3) takes. */
#include "t.h"
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <ucontext.h>

#define NAME_MAX_HERE 300

static char name[NAME_MAX_HERE], other[NAME_MAX_HERE], directory[NAME_MAX_HERE];
static char *block;
enum { BLOCK = 1 << 20 };
static int fd, copy;
static DIR *listing;
static struct stat st;
static struct iovec parts[2];

static int lock(int type)
{
	struct flock whole = {.l_type = type, .l_whence = SEEK_SET};
	/* Files of packs have none. */
	return fcntl(fd, F_SETLK, &whole) < 0 && errno != ENOLCK ? -1 : 0;
}

static int forks(void)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(write(fd, block, 1) != 1);
	return pid < 0 || reap(pid) ? -1 : 0;
}

static int is_right(int right)
{
	return right ? 0 : -1;
}

/* What a program does with a file, from its creation to its removal. Each gives -1 if it failed. */
#define CALLS \
	CALL(fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644)) \
	CALL(write(fd, block, 64)) \
	CALL(write(fd, block, 64)) \
	CALL(write(fd, block, BLOCK)) \
	CALL(pwrite(fd, block, 64, 100)) \
	CALL(pwrite(fd, block, 4096, 5 << 20)) \
	CALL(writev(fd, parts, 2)) \
	CALL(lseek(fd, 0, SEEK_SET)) \
	CALL(is_right(read(fd, block, 64) == 64)) \
	CALL(is_right(pread(fd, block, BLOCK, 0) == BLOCK)) \
	CALL(readv(fd, parts, 2)) \
	CALL(lseek(fd, 0, SEEK_END)) \
	CALL(fstat(fd, &st)) \
	CALL(fsync(fd)) \
	CALL(write(fd, block, 100)) \
	CALL(fdatasync(fd)) \
	CALL(ftruncate(fd, 1000)) \
	CALL(fcntl(fd, F_SETFL, O_APPEND)) \
	CALL(write(fd, block, 64)) \
	CALL(fcntl(fd, F_SETFL, 0)) \
	CALL(fchmod(fd, 0600)) \
	CALL(copy = dup(fd)) \
	CALL(dup2(fd, copy)) \
	CALL(close(copy)) \
	CALL(forks()) \
	CALL(close(fd)) \
	CALL(stat(name, &st)) \
	CALL(lstat(name, &st)) \
	CALL(access(name, W_OK)) \
	CALL(chmod(name, 0640)) \
	CALL(utimensat(AT_FDCWD, name, NULL, 0)) \
	CALL(fd = open(name, O_RDONLY)) \
	CALL(is_right(read(fd, block, BLOCK) == 1065)) \
	CALL(is_right(read(fd, block, 10) == 0)) \
	CALL(close(fd)) \
	CALL(fd = open(name, O_WRONLY)) \
	CALL(write(fd, block, 4096)) \
	CALL(close(fd)) \
	CALL(rename(name, other)) \
	CALL(rename(other, name)) \
	CALL(truncate(name, 10)) \
	CALL(mkdir(directory, 0755)) \
	CALL(rmdir(directory)) \
	CALL(fd = open(name, O_RDWR)) \
	CALL(unlink(name)) \
	CALL(is_right(read(fd, block, BLOCK) == 10)) \
	CALL(write(fd, block, 64)) \
	CALL(close(fd)) \
	CALL(is_right(open(name, O_RDONLY) < 0))

/* And what POSIX does not allow in a handler. */
#define OTHER_CALLS \
	CALL(fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644)) \
	CALL(write(fd, block, 64)) \
	CALL(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10, 20)) \
	CALL(lock(F_WRLCK)) \
	CALL(lock(F_UNLCK)) \
	CALL(close(fd)) \
	CALL(is_right((listing = opendir(".")) != NULL)) \
	CALL(is_right(readdir(listing) != NULL)) \
	CALL(closedir(listing)) \
	CALL(unlink(name))

static int starts(
	const char *path, int (*spawn)(pid_t *, const char *, const posix_spawn_file_actions_t *,
				  const posix_spawnattr_t *, char *const[], char *const[]))
{
	char *arguments[] = {"true", NULL};
	pid_t pid;
	return spawn(&pid, path, NULL, NULL, arguments, environ) || reap(pid) ? -1 : 0;
}

static int starts_with_actions(const char *path)
{
	char *arguments[] = {"true", NULL};
	pid_t pid;
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addchdir_np(&actions, ".");
	posix_spawn_file_actions_addopen(&actions, 0, path, O_RDONLY, 0);
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	int rc = posix_spawn(&pid, path, &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	return rc || reap(pid) ? -1 : 0;
}

static char *const none[] = {NULL};

/* What starts programs. */
#define STARTS \
	CALL(is_right(execve("no such program", none, environ) < 0)) \
	CALL(is_right(execvp("no such program", none) < 0)) \
	CALL(is_right(execveat(AT_FDCWD, "no such program", none, environ, 0) < 0)) \
	CALL(is_right(execl("no such program", "", NULL) < 0)) \
	CALL(starts("/bin/true", posix_spawn)) \
	CALL(starts("true", posix_spawnp)) \
	CALL(starts("./program", posix_spawn)) \
	CALL(starts("./script", posix_spawn)) \
	CALL(starts("script", posix_spawnp)) \
	CALL(starts_with_actions("./program")) \
	CALL(starts_with_actions("./script")) \
	CALL(is_right(system("exit 3") == 3 << 8))

#define CALL(call) \
	if (i++ == wanted) { \
		*text = #call; \
		return (long)(call); \
	}

/* Makes call number `wanted`. -2: there are not so many. */
static long make_call(int wanted, const char **text)
{
	int i = 0;
	CALLS
	return -2;
}

static long make_other_call(int wanted, const char **text)
{
	int i = 0;
	OTHER_CALLS
	return -2;
}

static long make_start(int wanted, const char **text)
{
	int i = 0;
	STARTS
	return -2;
}

/* Nothing of PLFS's business. */
static long make_call_elsewhere(int wanted, const char **text)
{
	int i = 0;
	CALL(open("/no/such/../file", O_RDONLY) < 0 ? 0 : -1)
	CALL(open("no such file", O_RDONLY) < 0 ? 0 : -1)
	CALL(open("no such file", O_RDONLY | O_DIRECTORY) < 0 ? 0 : -1)
	CALL(fd = open("/dev/null", O_RDWR))
	CALL(write(fd, block, 1))
	CALL(read(fd, block, 1))
	CALL(pwrite(fd, block, 1, 0))
	CALL(fstat(fd, &st))
	CALL(copy = dup(fd))
	CALL(dup2(fd, copy))
	CALL(close(copy))
	CALL(close(fd))
	CALL(stat("/tmp", &st))
	CALL(lstat("/", &st))
	CALL(access("/", R_OK))
	CALL(chdir("."))
	CALL(chmod("/dev/null/x", 0600) < 0 ? 0 : -1)
	CALL(unlink("/dev/null/x") < 0 ? 0 : -1)
	CALL(rename("/dev/null/x", "/dev/null/y") < 0 ? 0 : -1)
	CALL(truncate("/dev/null/x", 0) < 0 ? 0 : -1)
	return -2;
}

/* --- A painted stack --- */

enum { ROOM = 256 << 10, PAINT = 0xa5 };

static char *painted;
static ucontext_t here, there;
static long (*calls)(int, const char **);
static int wanted;
static long result;
static const char *text;

static void run(void)
{
	result = calls(wanted, &text);
}

/* What the call takes, and the function that makes it. */
static size_t depth(long (*list)(int, const char **), int number)
{
	calls = list;
	wanted = number;
	memset(painted, PAINT, ROOM);
	getcontext(&there);
	there.uc_stack = (stack_t){.ss_sp = painted, .ss_size = ROOM};
	there.uc_link = &here;
	makecontext(&there, run, 0);
	swapcontext(&here, &there);
	size_t i = 0;
	while (painted[i] == (char)PAINT)
		i++;
	return ROOM - i;
}

static void measure(const char *what, long (*list)(int, const char **), size_t most)
{
	depth(list, -1);
	size_t none = depth(list, -1);
	for (int i = 0;; i++) {
		size_t bytes = depth(list, i) - none;
		if (result == -2)
			break;
		if (getenv("T_SHOW"))
			fprintf(stderr, "%6zu %s\n", bytes, text);
		if (result < 0)
			printf("%s: %s\n", text, strerrorname_np(errno));
		if (bytes >= most)
			printf("%s takes %zu bytes of stack\n", text, bytes);
	}
	printf("%s: done\n", what);
}

/* --- Small stacks --- */

/* What lies below it is not there: an overflow is SIGSEGV. */
static char *stack(size_t room)
{
	char *at = mmap(
		NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(at, 4096, PROT_NONE);
	return at + 4096;
}

static void make_all(void)
{
	const char *call = "";
	for (int i = 0; make_call_elsewhere(i, &call) != -2; i++)
		;
	long rc;
	for (int i = 0; (rc = make_call(i, &call)) != -2; i++)
		if (rc < 0) {
			printf("%s: %s\n", call, strerrorname_np(errno));
			return;
		}
}

/* Does nobody write over the frame of who makes calls? */
static void make_all_and_look(void)
{
	volatile char frame[64];
	for (size_t i = 0; i < sizeof frame; i++)
		frame[i] = (char)i;
	make_all();
	for (size_t i = 0; i < sizeof frame; i++)
		if (frame[i] != (char)i) {
			puts("the frame is another");
			break;
		}
}

static void handler(int sig)
{
	for (int i = 0; i < 20; i++)
		make_all_and_look();
}

static volatile int ticks;

static void tick(int sig)
{
	ticks++;
}

static sigjmp_buf out;

static void leave(int sig)
{
	make_all_and_look();
	siglongjmp(out, 1);
}

static void end(int sig)
{
	exit(3);
}

/* exit once committed on the stack of its caller, and needed 24 KiB of it. */
static int ends_there(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		int last = open("last", O_RDWR | O_CREAT | O_TRUNC, 0644);
		for (int i = 0; i < 100; i++)
			pwrite(last, block, 100, i * 1000);
		raise(SIGTERM);
	}
	return reap(pid);
}

static void *thread(void *argument)
{
	snprintf(name, sizeof name, "thread");
	make_all();
	if (starts("true", posix_spawnp))
		puts("does not start");
	return argument;
}

static void on_alternate_stack(int sig, void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
	sigaction(sig, &action, NULL);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	/* The linker, which is entered at first calls otherwise, takes more stack than all else. */
	if (!getenv("LD_BIND_NOW")) {
		setenv("LD_BIND_NOW", "1", 1);
		execv("/proc/self/exe", argv);
	}
	block = calloc(1, BLOCK);
	parts[0] = (struct iovec){block, 10};
	parts[1] = (struct iovec){block + 10, 20};
	snprintf(name, sizeof name, "file");
	snprintf(other, sizeof other, "other");
	snprintf(directory, sizeof directory, "directory");

	painted = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	chdir("/");
	measure("elsewhere", make_call_elsewhere, 1024);
	chdir(getenv("T_HERE"));
	measure("here", make_call, 2048);
	measure("again", make_call, 2048);
	measure("others", make_other_call, 2048);
	system("cp /bin/true program; printf '#!/bin/sh\\n' > script; chmod +x script");
	setenv("PATH", ".:/bin:/usr/bin", 1);
	/* What is called for the first time is looked up. */
	starts("./program", posix_spawn);
	/* The environment was copied to the stack. */
	static char words[500][20];
	for (int i = 0; i < 500; i++) {
		snprintf(words[i], sizeof words[i], "T_STACK_%d", i);
		setenv(words[i], "", 1);
	}
	measure("starts", make_start, 4096);
	for (int i = 0; i < 500; i++)
		unsetenv(words[i]);
	unlink("program");
	unlink("script");

	/* Two signals at once have their frames there. */
	size_t frame = (size_t)sysconf(_SC_MINSIGSTKSZ), room = 2 * frame + 4096;
	stack_t alternate = {.ss_sp = stack(room), .ss_size = room};
	R(sigaltstack(&alternate, NULL));
	on_alternate_stack(SIGUSR1, handler);
	on_alternate_stack(SIGUSR2, leave);
	on_alternate_stack(SIGALRM, tick);
	on_alternate_stack(SIGTERM, end);
	struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &often, NULL);
	R(raise(SIGUSR1));
	for (volatile int i = 0; i < 20; i++) {
		if (!sigsetjmp(out, 1))
			raise(SIGUSR2);
		make_all_and_look();
	}
	setitimer(ITIMER_REAL, &never, NULL);
	printf("%d\n", ticks > 0);
	printf("%d\n", ends_there());
	stack_t after;
	R(sigaltstack(NULL, &after));
	printf("%d %d\n", after.ss_sp == alternate.ss_sp, after.ss_flags);

	pthread_attr_t attr;
	pthread_attr_init(&attr);
	R(pthread_attr_setstacksize(&attr, 16384));
	for (int i = 0; i < 50; i++) {
		pthread_t t;
		if (pthread_create(&t, &attr, thread, NULL) || pthread_join(t, NULL))
			puts("no thread");
	}
	return 0;
}
