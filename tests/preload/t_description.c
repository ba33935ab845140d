/* What open file descriptions promise to threads and processes that share one: a position moves by
 * what was transferred and in one step, whether threads, dup or fork share it, so do status flags,
 * positions have room for the largest offset, and dup2 is one step for other threads, as is a
 * number that is used again. Once a reader at the end of a file moved the writer's position by what
 * it had asked for, a position of 2^45 became 0 in the child of a fork on ext4, and dup2 gave other
 * threads EBADF. */
#include "t.h"
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>

enum { LINES = 20000 };

static int fd, fd2;
static _Atomic int stop, failed;
static _Atomic long written;

static void *writer(void *argument)
{
	while (!stop)
		if (write(fd, "line....", 8) == 8)
			written++;
		else
			failed++;
	return NULL;
}

static void *dup_writer(void *argument)
{
	while (!stop)
		if (write(fd2, "line....", 8) != 8)
			failed++;
	return NULL;
}

static long size_of(int fd)
{
	struct stat st;
	return fstat(fd, &st) < 0 ? -1 : st.st_size;
}

static void readers_at_the_end(void)
{
	static char buf[1 << 16];
	pthread_t thread;
	fd = make("end", "");
	pthread_create(&thread, NULL, writer, NULL);
	for (int i = 0; i < LINES; i++)
		failed += read(fd, buf, sizeof buf) < 0;
	stop = 1;
	pthread_join(thread, NULL);
	printf("threads: %d %d %d\n", size_of(fd) == written * 8,
		lseek(fd, 0, SEEK_CUR) == written * 8, failed);
	close(fd);

	fd = make("end", "");
	pid_t pid = fork();
	if (pid == 0) {
		for (int i = 0; i < LINES; i++)
			read(fd, buf, sizeof buf);
		_exit(0);
	}
	long sum = 0;
	for (int i = 0; i < LINES; i++)
		sum += write(fd, "line....", 8);
	waitpid(pid, NULL, 0);
	printf("processes: %ld %d\n", sum, size_of(fd) == sum);
	close(fd);
	unlink("end");
}

/* Each line of several processes is there once, where nobody else writes. */
static void writers_share(void)
{
	fd = make("shared", "");
	for (int p = 0; p < 4; p++)
		if (fork() == 0) {
			char line[9];
			for (int i = 0; i < 500; i++) {
				sprintf(line, "%d %05d\n", p, i);
				if (write(fd, line, 8) != 8)
					_exit(1);
			}
			_exit(0);
		}
	int status, bad = 0;
	while (wait(&status) > 0)
		bad += status != 0;
	printf("%d, %ld bytes at %ld\n", bad, size_of(fd), (long)lseek(fd, 0, SEEK_CUR));
	int next[4] = {0};
	char line[9] = {0};
	for (int i = 0; i < 2000 && pread(fd, line, 8, i * 8) == 8; i++)
		bad += line[0] < '0' || line[0] > '3' || atoi(line + 2) != next[line[0] - '0']++;
	printf("%d out of order\n", bad);
	close(fd);
	unlink("shared");
}

static void flags_are_shared(void)
{
	fd = make("flags", "0123456789");
	int copy = dup(fd);
	pid_t pid = fork();
	if (pid == 0)
		_exit(fcntl(fd, F_SETFL, O_APPEND) < 0);
	waitpid(pid, NULL, 0);
	printf("append: %d %d\n", !!(fcntl(fd, F_GETFL) & O_APPEND),
		!!(fcntl(copy, F_GETFL) & O_APPEND));
	R(write(copy, "XX", 2));
	close(copy);
	close(fd);
	show("flags");
}

/* As far as the file system goes: past the end of ext4's files it is an error, not 0. */
static void far_away(void)
{
	fd = make("far", "0123456789");
	off_t at = 1L << 45;
	bool far = lseek(fd, at, SEEK_SET) == at;
	pid_t pid = fork();
	if (pid == 0) {
		off_t here = lseek(fd, 0, SEEK_CUR);
		_exit(here != (far ? at : 0));
	}
	int status;
	waitpid(pid, &status, 0);
	printf("far: %d\n", status);
	char command[80];
	lseek(fd, 4, SEEK_SET);
	sprintf(command, "printf AB >&%d; printf C >&%d", fd, fd);
	printf("shell: %d\n", system(command));
	R(lseek(fd, 0, SEEK_CUR));
	/* One that can only be read stays so. */
	int reader = open("far", O_RDONLY);
	sprintf(command, "printf AB >&%d 2> /dev/null; head -c 3 <&%d", reader, reader);
	fflush(stdout);
	printf("shell: %d\n", system(command));
	close(reader);
	ftruncate(fd, 10);
	close(fd);
	show("far");
}

static void dup2_is_one_step(void)
{
	pthread_t thread;
	fd = open("one", O_RDWR | O_CREAT | O_APPEND, 0644);
	int other = open("two", O_RDWR | O_CREAT | O_APPEND, 0644);
	int null = open("/dev/null", O_WRONLY);
	fd2 = dup(fd);
	stop = failed = 0;
	pthread_create(&thread, NULL, dup_writer, NULL);
	for (int i = 0; i < 20000; i++)
		if (dup2(i % 3 == 0 ? null : i % 3 == 1 ? fd : other, fd2) != fd2)
			failed++;
	stop = 1;
	pthread_join(thread, NULL);
	printf("dup2: %d failed, %d\n", failed, (size_of(fd) + size_of(other)) % 8 == 0);
	R(dup2(fd, 1 << 30));
	R(dup2(fd, -1));
	R(dup3(fd, fd2, O_APPEND));
	R(write(fd2, "", 0));
	ftruncate(fd, 0);
	ftruncate(other, 0);
	close(fd2);
	close(fd);
	close(other);
	close(null);
}

static void *number_reader(void *argument)
{
	int number = *(int *)argument;
	while (!stop) {
		char got[40] = "";
		ssize_t n = read(number, got, 24);
		failed += n > 0 && memcmp(got, "PLFS", 4) == 0;
		if (n > 0)
			written |= got[0] == 'f' ? 2 : 1;
	}
	return NULL;
}

/* A thread reads from a number that others close and open again. Who had taken a container for the
 * plain file before it got the beginning of its superblock. */
static void a_number_is_used_again(void)
{
	close(make("again", "file file file file file"));
	char plain[] = "/tmp/plfs-again-XXXXXX";
	int number = mkstemp(plain);
	write(number, "plain plain plain plain ", 24);
	pthread_t thread;
	stop = failed = 0;
	written = 0;
	pthread_create(&thread, NULL, number_reader, &number);
	struct timespec begin, now;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	/* On a busy machine it takes longer until it has read of both. */
	int enough_s = 3;
	for (int i = 0; i < 2000000 && (i % 100 || i == 0 || now.tv_sec - begin.tv_sec < enough_s);
		i++) {
		close(number);
		/* A thread of ours may have a lower number, or this one, for a moment. */
		int opened;
		while ((opened = open(i % 2 ? plain : "again", O_RDONLY)) != number && opened >= 0)
			close(opened);
		if (i % 100 == 99) {
			clock_gettime(CLOCK_MONOTONIC, &now);
			enough_s = written == 3 ? 3 : 30;
		}
	}
	stop = 1;
	pthread_join(thread, NULL);
	/* Who opens and closes all the time deceives some looks of a million. */
	printf("used again: %d failed, %ld\n", failed < 100 ? 0 : failed, written);
	close(number);
	unlink(plain);
}

/* Files and pipes that have names of containers in them, as an archive does that was made without
 * PLFS, are read as they are. */
static void bytes_are_as_a_placeholder_has_them(void)
{
	char block[512], plain[] = "/tmp/plfs-blocks-XXXXXX", got[512];
	int file = mkstemp(plain), ends[2], fine = 0;
	memset(block, ' ', sizeof block);
	memcpy(block, "PLFS container: read", 20);
	R(pipe(ends));
	for (int i = 0; i < 8; i++) {
		memcpy(block + 100, &i, sizeof i);
		write(file, block, sizeof block);
		write(ends[1], block, sizeof block);
	}
	lseek(file, 0, SEEK_SET);
	for (int i = 0; i < 8; i++) {
		close(make("beside", "x"));
		fine += read(file, got, sizeof got) == 512 && !memcmp(got + 100, &i, sizeof i);
		fine += read(ends[0], got, sizeof got) == 512 && !memcmp(got + 100, &i, sizeof i);
	}
	printf("as a placeholder: %d\n", fine);
	close(file);
	unlink(plain);
	close(ends[0]);
	close(ends[1]);
}

/* A child has a plain file open. Its parent goes on in a container, as another program writes the
 * file, and has a placeholder in place of the descriptor, as it starts one. The child knows nothing
 * of that, and its close put the position into the kernel's description, which the parent has no
 * more: the parent went on at 0. */
static void a_child_closes_what_became_a_container(void)
{
	fd = open("became", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	write(fd, "0123456789", 10);
	int wait[2];
	pipe(wait);
	pid_t pid = fork();
	if (pid == 0) {
		char byte;
		close(wait[1]);
		read(wait[0], &byte, 1);
		close(fd);
		_exit(0);
	}
	close(wait[0]);
	pid_t other = fork();
	if (other == 0) {
		execlp("sh", "sh", "-c", "printf x 1<>became", NULL);
		_exit(1);
	}
	waitpid(other, NULL, 0);
	write(fd, "abcd", 4);
	system("true");
	close(wait[1]);
	waitpid(pid, NULL, 0);
	printf("became a container: %ld", (long)lseek(fd, 0, SEEK_CUR));
	write(fd, "efgh", 4);
	char all[40] = "";
	printf(" %zd %s\n", pread(fd, all, sizeof all - 1, 0), all);
	close(fd);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	readers_at_the_end();
	writers_share();
	flags_are_shared();
	far_away();
	dup2_is_one_step();
	a_number_is_used_again();
	bytes_are_as_a_placeholder_has_them();
	a_child_closes_what_became_a_container();
	return 0;
}
