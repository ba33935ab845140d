/* What tests/stress found, each as small as it can be. Its name says what was wrong. */
#include "t.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

extern char **environ;

static _Atomic int stop, failed;

/* A third of `all`, unless everything is asked for. */
static int rounds(int all)
{
	return getenv("T_FULL") ? all : all / 3;
}

static _Atomic long handled;
static int shared;

static long size_of(int fd)
{
	struct stat st;
	return fstat(fd, &st) < 0 ? -1 : st.st_size;
}

static int run(const char *command, posix_spawn_file_actions_t *actions)
{
	char *argv[] = {"sh", "-c", (char *)command, NULL};
	pid_t pid;
	int rc = posix_spawnp(&pid, "sh", actions, NULL, argv, environ);
	return rc ? -rc : reap(pid);
}

/* F_GETFL left out O_LARGEFILE, which the kernel adds. */
static void status_flags_had_no_large_file(void)
{
	int fd = open("flags", O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, 0644);
	R(fcntl(fd, F_GETFL));
	R(fcntl(fd, F_SETFL, O_NONBLOCK));
	R(fcntl(fd, F_GETFL));
	close(fd);
}

/* A lease was taken on a placeholder, where nobody would ever break it. */
static void a_lease_was_given_that_nobody_breaks(void)
{
	int fd = make("lease", "0123456789"), other = open("lease", O_RDWR);
	R(fcntl(fd, F_SETLEASE, F_RDLCK));
	R(fcntl(fd, F_SETLEASE, F_WRLCK));
	R(fcntl(fd, F_SETLEASE, 77));
	R(fcntl(fd, F_SETFL, O_ASYNC));
	R(fcntl(fd, F_GETFL) & O_ASYNC);
	R(fcntl(fd, F_GETLEASE));
	R(fcntl(fd, F_SETLEASE, F_UNLCK));
	close(other);
	close(fd);
}

/* Both wrote where O_APPEND is set. */
static void sendfile_appended(void)
{
	int in = make("in", "0123456789"), out = open("out", O_WRONLY | O_CREAT | O_APPEND, 0644);
	off_t at = 0, to = 0;
	R(sendfile(out, in, &at, 5));
	R(copy_file_range(in, &at, out, &to, 5, 0));
	R(sendfile(in, out, &at, 5));
	R(copy_file_range(out, &at, in, &to, 5, 0));
	int reader = open("in", O_RDONLY);
	R(sendfile(reader, in, &at, 5));
	R(copy_file_range(in, &at, reader, &to, 5, 0));
	close(reader);
	close(out);
	close(in);
	show("out");
}

/* From a descriptor to itself it copied what came behind the bytes, to where they ended. */
static void sendfile_to_itself(void)
{
	int fd = make("itself", "0123456789"), copy = dup(fd), other = open("itself", O_RDWR);
	off_t at = 1;
	R(lseek(fd, 2, SEEK_SET));
	R(sendfile(fd, fd, NULL, 3));
	R(lseek(fd, 0, SEEK_CUR));
	show("itself");
	R(sendfile(copy, fd, NULL, 9));
	R(lseek(fd, 0, SEEK_CUR));
	R(sendfile(copy, fd, NULL, 9));
	R(lseek(fd, 4, SEEK_SET));
	R(sendfile(fd, copy, &at, 3));
	R(at);
	R(lseek(fd, 0, SEEK_CUR));
	R(sendfile(other, fd, NULL, 2));
	R(lseek(fd, 0, SEEK_CUR));
	R(lseek(other, 0, SEEK_CUR));
	close(other);
	close(copy);
	close(fd);
	show("itself");
}

/* copy_file_range and sendfile waited for the bytes of a pipe, and copied a file over itself; a bad
 * position was a crash. */
static void copies_of_what_cannot_be_copied(void)
{
	int file = make("copied", "0123456789"), dir = open(".", O_RDONLY), pipes[2];
	off_t at = 0, to = 4, far = -1, *bad = (off_t *)1;
	R(pipe(pipes));
	R(copy_file_range(pipes[0], NULL, file, NULL, 5, 0));
	R(copy_file_range(file, NULL, pipes[1], NULL, 5, 0));
	R(copy_file_range(dir, NULL, file, NULL, 5, 0));
	R(copy_file_range(file, NULL, dir, NULL, 5, 0));
	R(copy_file_range(file, &at, file, &to, 5, 0));
	R(copy_file_range(file, &to, file, &at, 5, 0));
	R(copy_file_range(file, &far, file, &to, 5, 0));
	R(copy_file_range(file, bad, file, &to, 5, 0));
	R(copy_file_range(file, &at, file, bad, 5, 0));
	R(copy_file_range(file, &at, file, &to, 4, 0));
	R(sendfile(file, pipes[0], NULL, 5));
	R(sendfile(file, pipes[0], &at, 5));
	R(sendfile(pipes[1], file, bad, 5));
	R(lseek(file, 0, SEEK_CUR));
	close(pipes[0]);
	close(pipes[1]);
	close(dir);
	close(file);
	show("copied");
}

static void shows(const char *what, FILE *f)
{
	printf("%s: at %ld, %d by exec\n", what, (long)lseek(fileno(f), 0, SEEK_CUR),
		fcntl(fileno(f), F_GETFD));
}

/* fdopen took the e of a mode, which libc leaves alone; freopen forgot that of fopen, which libc
 * keeps; and streams that only append did not begin at the end. */
static void modes_of_streams(void)
{
	close(make("modes", "0123456789"));
	FILE *f = fdopen(open("modes", O_RDWR), "r+e");
	shows("fdopen", f);
	f = freopen("modes", "re", f);
	shows("freopen re", f);
	f = freopen("modes", "a", f);
	shows("freopen a", f);
	fclose(f);
	f = fopen("modes", "r+e");
	f = freopen("modes", "r+", f);
	shows("freopen r+", f);
	fclose(f);
	f = fdopen(open("modes", O_WRONLY), "a");
	shows("fdopen a", f);
	fclose(f);
}

/* Programs share flags of descriptions, also of files that are plain: then the kernel has them. */
static void another_program_changed_flags(char *self)
{
	int fd = make("other", "0123456789");
	char *argv[] = {self, "append", NULL};
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd, 0);
	pid_t pid;
	R(posix_spawn(&pid, self, &actions, NULL, argv, environ));
	R(reap(pid));
	posix_spawn_file_actions_destroy(&actions);
	R((fcntl(fd, F_GETFL) & O_APPEND) != 0);
	R(write(fd, "ab", 2));
	R(pwrite(fd, "cd", 2, 1));
	close(fd);
	show("other");
}

static void on_timer(int sig)
{
	int saved = errno;
	if (write(shared, "handler.", 8) == 8)
		handled++;
	else
		failed++;
	errno = saved;
}

/* A handler that wrote to a file whose description the thread was about to share with a program
 * waited for itself for ever. */
static void a_handler_writes_while_programs_start(void)
{
	shared = make("handler", "");
	struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval timer = {{0, 100}, {0, 100}}, never = {0};
	setitimer(ITIMER_REAL, &timer, NULL);
	char *none[] = {"none", NULL};
	/* It fails after it has shared all. */
	for (time_t end = time(NULL) + 2; time(NULL) < end;)
		execv("./none", none);
	setitimer(ITIMER_REAL, &never, NULL);
	signal(SIGALRM, SIG_DFL);
	printf("handlers: %d failed, %d\n", failed, size_of(shared) == 8 * handled);
	R(ftruncate(shared, 0));
	close(shared);
}

/* Two processes that shared one description at the same moment waited for a lock that only wakes
 * threads. */
static void processes_share_at_once(void)
{
	int fd = make("at-once", ""), bad = 0, status;
	char *none[] = {"none", NULL};
	for (int p = 0; p < 4; p++)
		if (fork() == 0) {
			for (int i = 0; i < 5000; i++)
				execv("./none", none);
			_exit(write(fd, "done", 4) != 4);
		}
	while (wait(&status) > 0)
		bad += status != 0;
	printf("at once: %d bad, %ld bytes\n", bad, size_of(fd));
	close(fd);
}

static void *start_programs(void *argument)
{
	char *none[] = {"none", NULL};
	while (!stop)
		execv("./none", none);
	return NULL;
}

/* A thread that started a program gave the file that freopen had put at a container's number the
 * position of a container. */
static void freopen_beside_programs(void)
{
	char outside[300];
	snprintf(outside, sizeof outside, "%s/t_found.outside", getenv("T_BIN"));
	pthread_t thread;
	stop = 0;
	pthread_create(&thread, NULL, start_programs, NULL);
	int moved = 0;
	FILE *f = fopen("stream", "w");
	for (int i = 0; i < rounds(3000) && f; i++) {
		fprintf(f, "%d\n", i);
		f = freopen(outside, "w", f);
		moved += !f || lseek(fileno(f), 0, SEEK_CUR) != 0;
		f = f ? freopen("stream", "a", f) : NULL;
	}
	stop = 1;
	pthread_join(thread, NULL);
	printf("moved: %d, stream %d\n", moved, f != NULL);
	fclose(f);
	unlink(outside);
}

/* A thread that had started a program took from another one's program what it needs to find its
 * descriptions: that one's reads moved no position. */
static void two_start_programs(void)
{
	char text[1001];
	memset(text, '.', 1000);
	text[1000] = 0;
	int fd = make("two", text);
	pthread_t threads[3];
	stop = 0;
	for (int t = 0; t < 3; t++)
		pthread_create(&threads[t], NULL, start_programs, NULL);
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	int bad = 0;
	for (int i = 0; i < rounds(100); i++)
		bad += run("exec head -c 5", &actions) != 0;
	posix_spawn_file_actions_destroy(&actions);
	stop = 1;
	for (int t = 0; t < 3; t++)
		pthread_join(threads[t], NULL);
	printf("two: %d bad, at %ld\n", bad, (long)lseek(fd, 0, SEEK_CUR));
	close(fd);
}

static void *start_shells(void *argument)
{
	while (!stop)
		failed += run("exec true", NULL) != 0;
	return NULL;
}

/* What a thread opened while another one was about to start a program was shared with that one, and
 * its description was used again after the close all the same: the program waited for a lock that
 * was not its own. */
static void opens_beside_programs(void)
{
	/* Those that are open take their time to be shared. */
	int open_before[200];
	for (int i = 0; i < 200; i++)
		open_before[i] = make("opens", "0123456789");
	pthread_t threads[2];
	stop = failed = 0;
	for (int t = 0; t < 2; t++)
		pthread_create(&threads[t], NULL, start_shells, NULL);
	char c;
	for (time_t end = time(NULL) + rounds(3); time(NULL) < end;) {
		int fds[8], bad = 0;
		for (int i = 0; i < 8; i++)
			bad += (fds[i] = open("opens", O_RDWR)) < 0;
		for (int i = 0; i < 8; i++)
			bad += read(fds[i], &c, 1) != 1 || c != '0' || close(fds[i]) < 0;
		failed += bad;
	}
	stop = 1;
	for (int t = 0; t < 2; t++)
		pthread_join(threads[t], NULL);
	printf("opens: %d failed\n", failed);
	for (int i = 0; i < 200; i++)
		close(open_before[i]);
}

static void *write_records(void *argument)
{
	while (!stop)
		if (write(shared, "record..", 8) == 8)
			handled++;
		else
			failed++;
	return NULL;
}

/* A write to a number, at which dup2 put another file meanwhile, failed with EBADF if the file's
 * position was the kernel's. */
static void dup2_beside_writes(void)
{
	int files[2] = {make("dup.0", ""), make("dup.1", "")};
	shared = dup(files[0]);
	/* Another program has them now: their positions are the kernel's if they are plain. */
	run("true", NULL);
	stop = failed = handled = 0;
	pthread_t thread;
	pthread_create(&thread, NULL, write_records, NULL);
	int bad = 0;
	for (int i = 0; i < 50000; i++)
		bad += dup2(files[i % 2], shared) != shared;
	stop = 1;
	pthread_join(thread, NULL);
	printf("dup2: %d bad, %d failed, %d\n", bad, failed,
		size_of(files[0]) + size_of(files[1]) == 8 * handled);
	for (int i = 0; i < 2; i++) {
		R(ftruncate(files[i], 0));
		close(files[i]);
	}
	close(shared);
}

static int number;

static void *read_number(void *argument)
{
	char got[64];
	while (!stop) {
		ssize_t n = argument ? pread(number, got, sizeof got, 0)
				     : read(number, got, sizeof got);
		for (ssize_t i = 0; i < n; i++)
			failed += got[i] != 'x';
	}
	return NULL;
}

/* A read of a number at which dup2 put a container in the place of a plain file meanwhile gave the
 * text of the superblock. */
static void dup2_beside_reads(void)
{
	char outside[300], text[4097];
	snprintf(outside, sizeof outside, "%s/t_found.read", getenv("T_BIN"));
	memset(text, 'x', 4096);
	text[4096] = 0;
	int files[2] = {make("read", text), make(outside, text)};
	number = dup(files[0]);
	stop = failed = 0;
	pthread_t threads[2];
	pthread_create(&threads[0], NULL, read_number, NULL);
	pthread_create(&threads[1], NULL, read_number, &number);
	for (int i = 0; i < 75000; i++)
		dup2(files[i % 2], number);
	stop = 1;
	for (int t = 0; t < 2; t++)
		pthread_join(threads[t], NULL);
	printf("dup2: %d bytes of others\n", failed);
	for (int i = 0; i < 2; i++)
		close(files[i]);
	close(number);
	unlink(outside);
}

/* Workload auto. The shell has found the file by its second link, and by no tag. When the name was
 * gone it put a tag for its children where the position is that we share with it: we read nothing.
 */
static void another_program_takes_the_position(void)
{
	int go[2];
	pipe2(go, O_CLOEXEC);
	pid_t other = fork();
	if (other == 0) {
		close(go[1]);
		read(go[0], (char[1]){0}, 1);
		execl("/bin/sh", "sh", "-c", "echo more 1<>nameless", NULL);
		_exit(1);
	}
	int writer = open("nameless", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	int fd = open("nameless", O_RDONLY);
	char got[8] = "";
	R(write(writer, "0123456789", 10));
	R(lseek(fd, 2, SEEK_SET));
	close(go[0]);
	close(go[1]);
	R(reap(other));
	dup2(fd, 9);
	R(run("echo wrong >&9", NULL));
	R(run("rm nameless; env true; env true", NULL));
	R(lseek(fd, 0, SEEK_CUR));
	R(read(fd, got, 7));
	puts(got);
	close(9);
	close(fd);
	close(writer);
}

static _Atomic int closing = -1;
static _Atomic long written;

static void *write_beside(void *unused)
{
	int fd;
	while ((fd = closing) == -1)
		;
	while (fd >= 0 && write(fd, "BBBB", 4) == 4)
		written += 4;
	return NULL;
}

/* Opens the file for writing whenever somebody says so. */
static pid_t other_writer(int *ask)
{
	int pair[2];
	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
	pid_t pid = fork();
	if (pid == 0) {
		char byte;
		close(pair[0]);
		while (read(pair[1], &byte, 1) == 1) {
			close(open("beside", O_RDWR));
			write(pair[1], &byte, 1);
		}
		_exit(0);
	}
	close(pair[1]);
	*ask = pair[0];
	return pid;
}

/* A write beside the close of its descriptor went to the beginning of the file; of one that had got
 * a container meanwhile it went there in what the file was before, and took other bytes with it. */
static void writes_beside_closes(bool is_read, bool is_shared)
{
	int bad = 0, ask = -1;
	pid_t other = is_shared ? other_writer(&ask) : -1;
	for (int round = 0; round < 400; round++) {
		char text[16], first[16];
		memset(text, 'A', sizeof text);
		closing = -1;
		written = 0;
		int fd = open("beside", O_RDWR | O_CREAT | O_TRUNC, 0644);
		if (is_read)
			pread(fd, first, 1, 0);
		pthread_t thread;
		pthread_create(&thread, NULL, write_beside, NULL);
		bad += write(fd, text, sizeof text) != sizeof text;
		if (is_shared)
			bad += write(ask, "", 1) != 1 || read(ask, first, 1) != 1;
		closing = fd;
		while (written == 0 && round % 2)
			;
		close(fd);
		pthread_join(thread, NULL);
		struct stat st;
		bad += stat("beside", &st) < 0 || st.st_size != (long)sizeof text + written;
		fd = open("beside", O_RDONLY);
		bad += read(fd, first, sizeof first) != sizeof first ||
		       memcmp(first, text, sizeof text) != 0;
		close(fd);
		unlink("beside");
	}
	if (is_shared) {
		close(ask);
		reap(other);
	}
	R(bad);
}

static int written_at_the_end = -1;

/* After the handlers of exit, libplfs's too. */
__attribute__((destructor)) static void write_at_the_end(void)
{
	enum { WRITES = 3000 };
	if (written_at_the_end < 0)
		return;
	clock_t begun = clock();
	for (int i = 0; i < WRITES; i++)
		if (pwrite(written_at_the_end, "0123456789", 10, i * 20) != 10)
			_exit(1);
	double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
	if (getenv("T_SHOW"))
		fprintf(stderr, "%d writes at the end: %.2f s\n", WRITES, seconds);
	_exit(seconds < 2 ? 0 : 2);
}

/* Each write gave up what the process has of its files, and the next one began anew. A handler of a
 * timer that writes took longer than the timer then, and the process never ended. */
static void writes_at_the_end_took_long(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		written_at_the_end = open("end", O_RDWR | O_CREAT, 0644);
		exit(0);
	}
	R(reap(pid));
	struct stat st;
	R(stat("end", &st));
	R(st.st_size);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	if (argc > 1)
		return fcntl(0, F_SETFL, O_APPEND) < 0;
	status_flags_had_no_large_file();
	a_lease_was_given_that_nobody_breaks();
	sendfile_appended();
	sendfile_to_itself();
	copies_of_what_cannot_be_copied();
	modes_of_streams();
	another_program_changed_flags(argv[0]);
	another_program_takes_the_position();
	a_handler_writes_while_programs_start();
	processes_share_at_once();
	freopen_beside_programs();
	writes_beside_closes(false, false);
	writes_beside_closes(false, true);
	writes_beside_closes(true, false);
	writes_beside_closes(true, true);
	two_start_programs();
	opens_beside_programs();
	dup2_beside_writes();
	dup2_beside_reads();
	writes_at_the_end_took_long();
	return 0;
}
