/* Files that go to other programs while the descriptor table is full, or while threads and handlers
 * do something else with them; and positions that others move. In workload auto the files have got
 * a container meanwhile, which the descriptor was not opened on. */
#include "t.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>

extern char **environ;

/* Another program has it open for writing, and writes. */
static void written_by_another(const char *path)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		for (int fd = 3; fd < 90; fd++)
			close(fd);
		execl("/proc/self/exe", "t_handed", "writes", path, NULL);
		_exit(99);
	}
	reap(pid);
}

/* Open for what `flags` say, with thirty bytes, ten of which another program wrote; at 20. */
static int handed(const char *path, int flags)
{
	unlink(path);
	int writer = make(path, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), fd = open(path, flags);
	written_by_another(path);
	char byte;
	pread(fd, &byte, 1, 0);
	lseek(fd, 20, SEEK_SET);
	close(writer);
	return fd;
}

/* A process that is there before the file is, with a socket to us. */
static pid_t receiver(int *socket, int (*run)(int))
{
	int pair[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		close(pair[0]);
		_exit(run(pair[1]));
	}
	close(pair[1]);
	*socket = pair[0];
	return pid;
}

/* --- A full table */

enum { LIMIT = 64 };
static int taken[LIMIT], taken_count;

static void fill(int but)
{
	int fd;
	while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		taken[taken_count++] = fd;
	while (but-- > 0)
		close(taken[--taken_count]);
}

static void make_room(void)
{
	while (taken_count > 0)
		close(taken[--taken_count]);
}

static void start(int how, int fd)
{
	char *args[] = {"true", NULL};
	pid_t pid = -1;
	switch (how) {
	case 0:
		posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ);
		break;
	case 1:
		execv("/not/there", args);
		break;
	case 2:
		(void)!system("true");
		break;
	case 3:
		pid = fork();
		if (pid == 0) {
			execv("/bin/true", args);
			_exit(1);
		}
		break;
	case 4:
		dup2(fd, taken[0]);
		break;
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/* Where a program could not be told the position, it was told a number that became the position:
 * what was written was at 1 TB. */
static void programs_in_a_full_table(void)
{
	for (int how = 0; how < 5; how++)
		for (int room = 0; room < 4; room++) {
			int fd = handed("f", O_RDWR);
			fill(room);
			start(how, fd);
			make_room();
			printf("start %d, %d numbers\n", how, room);
			R(lseek(fd, 0, SEEK_CUR));
			R(write(fd, "XY", 2));
			close(fd);
			show("f");
		}
}

static int writes_later(int socket)
{
	char byte;
	int fd = pass(socket, -1);
	write(socket, "", 1);
	read(socket, &byte, 1);
	return fd < 0 || lseek(fd, 0, SEEK_CUR) != 20 || write(fd, "WW", 2) != 2;
}

/* And so was the position of who had got it in a message before. */
static void programs_after_a_message(void)
{
	for (int how = 0; how < 5; how++) {
		int socket;
		char byte;
		pid_t pid = receiver(&socket, writes_later);
		int fd = handed("f", O_RDWR);
		pass(socket, fd);
		read(socket, &byte, 1);
		fill(how % 2);
		start(how, fd);
		make_room();
		write(socket, "", 1);
		R(reap(pid));
		close(fd);
		close(socket);
		show("f");
	}
}

static int receives_in_a_full_table(int socket)
{
	char bytes[40], byte;
	read(socket, &byte, 1);
	fill(byte);
	int fd = pass(socket, -1);
	int n = fd < 0 ? 0 : pread(fd, bytes, sizeof bytes, 0);
	make_room();
	if (fd < 0)
		return 0;
	/* None may be had; else it is the file, now or later. */
	if (n < 0)
		n = pread(fd, bytes, sizeof bytes, 0);
	return n != 30 || memcmp(bytes, "aaaaabbbbbbbbbbaaa", 18) != 0;
}

static void messages_to_a_full_table(void)
{
	for (int room = 1; room < 5; room++) {
		int socket;
		char byte = (char)room;
		pid_t pid = receiver(&socket, receives_in_a_full_table);
		int fd = handed("f", O_RDWR);
		write(socket, &byte, 1);
		pass(socket, fd);
		R(reap(pid));
		close(fd);
		close(socket);
	}
}

/* --- Others at the same time */

static _Atomic int stops, bad, handed_fd;

static void *copies(void *unused)
{
	while (!stops)
		dup2(handed_fd, 80);
	close(80);
	return NULL;
}

static void *sets_close_on_exec(void *unused)
{
	for (int i = 0; !stops; i++) {
		fcntl(handed_fd, F_SETFD, i % 2 ? FD_CLOEXEC : 0);
		bad += fcntl(handed_fd, F_GETFD) != i % 2;
	}
	return NULL;
}

static int writes_each(int socket)
{
	int fd, count = 0;
	while ((fd = pass(socket, -1)) >= 0) {
		count += lseek(fd, 0, SEEK_CUR) != 20 || write(fd, "W", 1) != 1;
		close(fd);
		write(socket, "", 1);
	}
	return count > 100 ? 100 : count;
}

/* What the kernel took was not what had been made ready. */
static void messages_beside(void *(*other)(void *), const char *what)
{
	int socket;
	char byte;
	pid_t pid = receiver(&socket, writes_each);
	pthread_t thread;
	handed_fd = handed("f", O_RDWR);
	stops = bad = 0;
	pthread_create(&thread, NULL, other, NULL);
	for (int i = 0; i < 300; i++) {
		lseek(handed_fd, 20, SEEK_SET);
		if (pass(socket, handed_fd) == 0)
			read(socket, &byte, 1);
	}
	stops = 1;
	pthread_join(thread, NULL);
	close(socket);
	int received_wrong = reap(pid);
	printf("%s: %d wrong here, %d there\n", what, bad, received_wrong);
	close(handed_fd);
}

static void copies_it(int unused)
{
	dup2(handed_fd, 80);
}

/* After all that was there before it. */
static int writes_last(int socket)
{
	int fd;
	usleep(100000);
	while ((fd = pass(socket, -1)) < 0)
		;
	return lseek(fd, 0, SEEK_CUR) != 20 || write(fd, "WW", 2) != 2;
}

/* --- Positions that others move by the same description */

enum { RECORD = 16, RECORDS = 12000, EACH = 3000 };

static int reads_records(int socket)
{
	char record[RECORD];
	int fd = pass(socket, -1), done = 0;
	write(socket, "", 1);
	while (done < EACH && read(fd, record, RECORD) == RECORD)
		done++;
	return done != EACH;
}

/* One reads, the other writes: a read put the position back, and bytes were written over. */
static void records(void)
{
	static char all[RECORD * RECORDS];
	char record[RECORD + 1], byte;
	int socket, there = 0, found = 0;
	pid_t pid = receiver(&socket, reads_records);
	unlink("records");
	int fd = open("records", O_RDWR | O_CREAT, 0644);
	memset(all, '.', sizeof all);
	write(fd, all, sizeof all);
	fsync(fd);
	written_by_another("records");
	lseek(fd, 0, SEEK_SET);
	pass(socket, fd);
	read(socket, &byte, 1);
	for (int i = 0; i < EACH; i++) {
		snprintf(record, sizeof record, "%015d\n", i);
		there += write(fd, record, RECORD) == RECORD;
	}
	R(reap(pid));
	fsync(fd);
	for (int i = 0; i < RECORDS; i++)
		found += pread(fd, record, RECORD, (off_t)i * RECORD) == RECORD &&
			 record[RECORD - 1] == '\n';
	printf("wrote %d, found %d\n", there, found);
	R(lseek(fd, 0, SEEK_CUR) == (off_t)2 * EACH * RECORD ||
		lseek(fd, 0, SEEK_CUR) == (off_t)EACH * RECORD);
	close(fd);
	close(socket);
	unlink("records");
}

static int reads_twice(int socket)
{
	char bytes[40], byte;
	int fd = pass(socket, -1), ok = pread(fd, bytes, sizeof bytes, 0) == 30;
	write(socket, "", 1);
	read(socket, &byte, 1);
	read(fd, bytes, 5);
	return !ok || read(fd, bytes, 5) < 0;
}

/* Who has read a file that another one cuts read behind its end for ever. */
static void cut_beside(void)
{
	int socket;
	char byte;
	pid_t pid = receiver(&socket, reads_twice);
	int fd = handed("f", O_RDWR);
	pass(socket, fd);
	read(socket, &byte, 1);
	R(ftruncate(fd, 10));
	R(fsync(fd));
	write(socket, "", 1);
	R(reap(pid));
	close(fd);
	close(socket);
}

/* Programs that read by one description: each record goes to one of them. */
static void read_by_programs(int flags)
{
	char record[RECORD + 1], number[12];
	unlink("records");
	int writer = open("records", O_RDWR | O_CREAT, 0644), fd = open("records", flags), pipes[2];
	static char all[RECORD * EACH];
	for (int i = 0; i < EACH; i++) {
		snprintf(record, sizeof record, "%015d\n", i);
		memcpy(all + i * RECORD, record, RECORD);
	}
	write(writer, all, sizeof all);
	written_by_another("records");
	pwrite(writer, all, sizeof all, 0);
	fsync(writer);
	pipe(pipes);
	snprintf(number, sizeof number, "%d", fd);
	fflush(stdout);
	for (int i = 0; i < 3; i++)
		if (fork() == 0) {
			dup2(pipes[1], 1);
			close(pipes[0]), close(pipes[1]), close(writer);
			execl("/proc/self/exe", "t_handed", "reads", number, NULL);
			_exit(99);
		}
	close(pipes[1]);
	static unsigned char seen[EACH];
	memset(seen, 0, sizeof seen);
	int twice = 0, missing = 0;
	for (ssize_t n; (n = read(pipes[0], record, RECORD)) > 0;)
		if (n == RECORD && (unsigned)atoi(record) < EACH)
			twice += seen[atoi(record)]++ > 0;
	for (int i = 0; i < EACH; i++)
		missing += seen[i] == 0;
	while (wait(NULL) > 0)
		;
	printf("read by programs: %d twice, %d missing\n", twice, missing);
	close(writer), close(fd), close(pipes[0]);
	unlink("records");
}

/* --- What may be done with it */

/* A file as long as a superblock could be written by who had got it for reading. */
static void access_stays(int size)
{
	static char bytes[4096];
	char number[12];
	unlink("long");
	int writer = open("long", O_RDWR | O_CREAT, 0644), fd = open("long", O_RDONLY);
	memset(bytes, 'l', sizeof bytes);
	write(writer, bytes, (size_t)size);
	written_by_another("long");
	snprintf(number, sizeof number, "%d", fd);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "t_handed", "may", number, NULL);
		_exit(99);
	}
	R(reap(pid));
	close(writer), close(fd);
}

static int as_program(const char *what, const char *with)
{
	char record[RECORD];
	int fd = what[0] == 'w' ? open(with, O_RDWR) : atoi(with);
	if (what[0] == 'w')
		return pwrite(fd, "bbbbbbbbbb", 10, 5) != 10;
	if (what[0] == 'm') {
		R(fcntl(fd, F_GETFL) & O_ACCMODE);
		R(pwrite(fd, "X", 1, 0));
		R(ftruncate(fd, 10));
		return 0;
	}
	while (read(fd, record, RECORD) == RECORD)
		write(1, record, RECORD);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 2)
		return as_program(argv[1], argv[2]);
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	struct rlimit few = {LIMIT, limit.rlim_max};
	setrlimit(RLIMIT_NOFILE, &few);
	programs_in_a_full_table();
	programs_after_a_message();
	messages_to_a_full_table();
	setrlimit(RLIMIT_NOFILE, &limit);
	messages_beside(copies, "dup2");
	messages_beside(sets_close_on_exec, "FD_CLOEXEC");
	/* A call that waits is made again after the handler. */
	int socket;
	char byte = 0;
	pid_t pid = receiver(&socket, writes_last);
	handed_fd = handed("f", O_RDWR);
	while (send(socket, &byte, 1, MSG_DONTWAIT) == 1)
		;
	struct sigaction copy = {.sa_handler = copies_it, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &copy, NULL);
	ualarm(50000, 0);
	pass(socket, handed_fd);
	R(reap(pid));
	close(handed_fd);
	close(80);
	close(socket);
	records();
	cut_beside();
	read_by_programs(O_RDONLY);
	read_by_programs(O_RDWR);
	access_stays(4092);
	access_stays(4093);
	show("f");
	return 0;
}
