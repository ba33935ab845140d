/* habits: what bench/habits.py measures; seconds and bytes, one line of JSON.
 *
 *     habits tiny FILE PROCESSES WRITES row|any     independent writes of 8 bytes into one file
 *     mpiexec -n PROCESSES habits mpi FILE WRITES row|any       the same by MPI-IO; with -DWITH_MPI
 *     habits look FILE                              opens it and reads one byte; reads all of it
 *     habits synced FILE WRITES BYTES               each write with an fsync
 *     habits map FILE TOUCHES                       one element of a map, then pages at random
 *
 * It knows nothing of PLFS: what differs between a direct run and one through PLFS is what PLFS
 * costs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

static void die(const char *what)
{
	fprintf(stderr, "habits: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int must_open(const char *path, int flags)
{
	int fd = open(path, flags, 0644);
	if (fd < 0)
		die(path);
	return fd;
}

/* The numbers below n, in an order without a pattern, the same each time. */
static uint32_t *shuffled(long n, unsigned seed)
{
	uint32_t *order = calloc((size_t)n, sizeof *order);
	if (!order)
		die("calloc");
	srandom(seed);
	for (long i = 0; i < n; i++) {
		long j = random() % (i + 1);
		order[i] = order[j];
		order[j] = (uint32_t)i;
	}
	return order;
}

/* Each process writes its share of the elements: in a row, as a column of an array, or in any
 * order. */
static void tiny(const char *path, long processes, long writes, int in_a_row)
{
	close(must_open(path, O_RDWR | O_CREAT | O_TRUNC));
	int gate[2];
	if (pipe(gate))
		die("pipe");
	long each = writes / processes;
	for (long p = 0; p < processes; p++) {
		if (fork())
			continue;
		close(gate[1]);
		uint32_t *order = in_a_row ? NULL : shuffled(each, (unsigned)p);
		int fd = must_open(path, O_RDWR);
		char go;
		/* All begin when the last one is there. */
		if (read(gate[0], &go, 1) < 0)
			die("read");
		for (long i = 0; i < each; i++) {
			uint64_t at = (uint64_t)((order ? order[i] : i) * processes + p);
			if (pwrite(fd, &at, 8, (off_t)(at * 8)) != 8)
				die("pwrite");
		}
		if (close(fd))
			die("close");
		_exit(0);
	}
	close(gate[0]);
	sleep(1);
	double begun = now();
	close(gate[1]);
	int status, failed = 0;
	while (wait(&status) > 0)
		failed |= status;
	if (failed)
		exit(1);
	printf("{\"write_s\": %f}\n", now() - begun);
}

#ifdef WITH_MPI
static void mpi(char *path, long writes, int in_a_row)
{
	int rank, processes;
	MPI_File f;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &processes);
	long each = writes / processes;
	uint32_t *order = in_a_row ? NULL : shuffled(each, (unsigned)rank);
	if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f))
		die(path);
	MPI_Barrier(MPI_COMM_WORLD);
	double begun = now();
	for (long i = 0; i < each; i++) {
		uint64_t at = (uint64_t)((order ? order[i] : i) * processes + rank);
		if (MPI_File_write_at(f, (MPI_Offset)(at * 8), &at, 8, MPI_BYTE, MPI_STATUS_IGNORE))
			die("MPI_File_write_at");
	}
	if (MPI_File_close(&f))
		die("MPI_File_close");
	if (rank == 0)
		printf("{\"write_s\": %f}\n", now() - begun);
	free(order);
	MPI_Finalize();
}
#endif

static void look(const char *path)
{
	double begun = now();
	uint64_t first;
	int fd = must_open(path, O_RDONLY);
	if (pread(fd, &first, 1, 0) != 1)
		die("pread");
	double opened = now();
	static uint64_t all[1 << 17];
	ssize_t n;
	uint64_t at = 0;
	while ((n = pread(fd, all, sizeof all, (off_t)(at * 8))) > 0)
		for (ssize_t i = 0; i < n / 8; i++, at++)
			if (all[i] != at) {
				fprintf(stderr, "habits: another byte at %llu\n",
					(unsigned long long)at * 8);
				exit(1);
			}
	printf("{\"open_s\": %f, \"read_s\": %f, \"size\": %llu}\n", opened - begun, now() - opened,
		(unsigned long long)at * 8);
}

static void synced(const char *path, long writes, long bytes)
{
	char *block = calloc(1, (size_t)bytes);
	int fd = must_open(path, O_WRONLY | O_CREAT | O_TRUNC);
	double begun = now();
	for (long i = 0; i < writes; i++) {
		block[0] = (char)i;
		if (pwrite(fd, block, (size_t)bytes, i * bytes) != bytes || fsync(fd))
			die("pwrite or fsync");
	}
	printf("{\"synced_s\": %f}\n", now() - begun);
	free(block);
	close(fd);
}

/* Bytes of memory that this process shares with nobody. */
static unsigned long long private_bytes(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	unsigned long long kib, sum = 0;
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "Private_Clean: %llu", &kib) == 1 ||
			sscanf(line, "Private_Dirty: %llu", &kib) == 1)
			sum += kib << 10;
	if (f)
		fclose(f);
	return sum;
}

static void map(const char *path, long touches)
{
	uint32_t *order = shuffled(touches, 1);
	unsigned long long before = private_bytes();
	double begun = now();
	int fd = must_open(path, O_RDONLY);
	struct stat st;
	if (fstat(fd, &st))
		die(path);
	volatile const unsigned char *at = mmap(
		NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		die("mmap");
	long pages = st.st_size / 4096;
	unsigned sum = at[(pages / 2) * 4096];
	double one = now();
	unsigned long long after = private_bytes();
	double touched = now();
	for (long i = 0; i < touches; i++)
		sum += at[order[i] * (uint64_t)pages / (uint64_t)touches * 4096];
	printf("{\"one_s\": %f, \"private_bytes\": %llu, \"touch_ns\": %f, \"sum\": %u}\n",
		one - begun, after > before ? after - before : 0,
		(now() - touched) * 1e9 / (double)touches, sum);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	if (!strcmp(what, "tiny") && argc == 6)
		tiny(argv[2], atol(argv[3]), atol(argv[4]), !strcmp(argv[5], "row"));
#ifdef WITH_MPI
	else if (!strcmp(what, "mpi") && argc == 5)
		mpi(argv[2], atol(argv[3]), !strcmp(argv[4], "row"));
#endif
	else if (!strcmp(what, "look") && argc == 3)
		look(argv[2]);
	else if (!strcmp(what, "synced") && argc == 5)
		synced(argv[2], atol(argv[3]), atol(argv[4]));
	else if (!strcmp(what, "map") && argc == 4)
		map(argv[2], atol(argv[3]));
	else
		return 2;
	return 0;
}
