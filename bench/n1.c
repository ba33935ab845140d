/* n1: N processes write one file (N-1) or a file each (N-N), then read it back and check every
 * byte.
 *
 *     n1 [options] DIR...          rank i works in DIR[i mod M]; the DIRs are views of one
 * directory (mounts), or M = 1
 *
 * It knows nothing of PLFS: plain open, pwrite, fsync, pread and close. Run it under `plfs run` to
 * go through PLFS. Prints one line of JSON. A phase lasts from the first rank's open to the last
 * rank's close, so its rate includes open, fsync (--fsync) and close; the *_us fields are those of
 * the slowest rank. Files are removed unless --keep.
 *
 * --settle: storage may go on for seconds with what it was given (CephFS: deferred writes,
 * compaction), and more so after a fast writer than after a slow one. Reading begins when that is
 * over.
 *
 * Reading is done by rank + shift, so that with several DIRs another mount reads than the one that
 * wrote, and by new processes unless --same. Bytes are checked in a pass of its own that is not
 * timed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STRIDED, SEGMENTED, NN };
enum { OPEN, IO, SYNC, CLOSE, MARKS };

struct rank_times {
	double start, at[MARKS]; /* end of each step, seconds */
};

static struct {
	int pattern, ranks, dirs, shift, fsync, same, keep, verify, write, read, settle;
	uint64_t transfer, pieces;
	char **dir;
	const char *name;
} opt = {STRIDED, 8, 0, 1, 0, 0, 0, 1, 1, 1, 0, 47001, 0, NULL, "n1.out"};

static struct shared {
	pthread_barrier_t barrier;
	struct rank_times write[1024], read[1024];
} *shm;

static void die(const char *form, ...)
{
	va_list args;
	va_start(args, form);
	fprintf(stderr, "n1: ");
	vfprintf(stderr, form, args);
	fprintf(stderr, "\n");
	va_end(args);
	_exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* The 8 bytes at file offset 8*i are a mix of i and the file's seed: no two places of a file look
 * alike, and the loop is a few additions, so that making and checking bytes costs less than moving
 * them. */
static const unsigned char *expected(uint64_t *buf, uint64_t offset, uint64_t len, uint64_t seed)
{
	const uint64_t step = 0x9E3779B97F4A7C15u;
	uint64_t first = offset / 8, words = (offset + len + 7) / 8 - first,
		 w = (first + (seed << 40)) * step;
	for (uint64_t i = 0; i < words; i++, w += step)
		buf[i] = w ^ (w >> 29);
	return (unsigned char *)buf + offset % 8;
}

static uint64_t piece_offset(int rank, uint64_t i)
{
	switch (opt.pattern) {
	case STRIDED:
		return (i * opt.ranks + rank) * opt.transfer;
	case SEGMENTED:
		return (rank * opt.pieces + i) * opt.transfer;
	default:
		return i * opt.transfer;
	}
}

/* `who` owns the bytes, `by` does the work and so chooses the directory. */
static void file_name(char *path, size_t size, int who, int by)
{
	int n = opt.pattern == NN
			? snprintf(path, size, "%s/%s.%d", opt.dir[by % opt.dirs], opt.name, who)
			: snprintf(path, size, "%s/%s", opt.dir[by % opt.dirs], opt.name);
	if (n >= (int)size)
		die("path too long");
}

static void write_phase(int rank)
{
	char path[4096];
	struct rank_times *t = &shm->write[rank];
	uint64_t *buf = malloc(opt.transfer + 16), seed = opt.pattern == NN ? rank : 0;
	file_name(path, sizeof path, rank, rank);
	pthread_barrier_wait(&shm->barrier);
	t->start = now();
	int fd = open(path, O_WRONLY | O_CREAT, 0644);
	if (fd < 0)
		die("rank %d: open %s: %s", rank, path, strerror(errno));
	t->at[OPEN] = now();
	for (uint64_t i = 0; i < opt.pieces; i++) {
		uint64_t offset = piece_offset(rank, i), done = 0;
		const unsigned char *bytes = expected(buf, offset, opt.transfer, seed);
		while (done < opt.transfer) {
			ssize_t n = pwrite(fd, bytes + done, opt.transfer - done, offset + done);
			if (n <= 0)
				die("rank %d: pwrite %s at %llu: %s", rank, path,
					(unsigned long long)(offset + done), strerror(errno));
			done += n;
		}
	}
	t->at[IO] = now();
	if (opt.fsync && fsync(fd))
		die("rank %d: fsync %s: %s", rank, path, strerror(errno));
	t->at[SYNC] = now();
	if (close(fd))
		die("rank %d: close %s: %s", rank, path, strerror(errno));
	t->at[CLOSE] = now();
	free(buf);
	pthread_barrier_wait(&shm->barrier);
}

static void read_pass(int rank, int verify)
{
	char path[4096];
	struct rank_times *t = &shm->read[rank];
	int who = (rank + opt.shift) % opt.ranks;
	unsigned char *buf = malloc(opt.transfer);
	uint64_t *want = malloc(opt.transfer + 16), seed = opt.pattern == NN ? who : 0;
	file_name(path, sizeof path, who, rank);
	pthread_barrier_wait(&shm->barrier);
	double start = now();
	if (!verify)
		t->start = start;
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		die("rank %d: open %s: %s", rank, path, strerror(errno));
	if (!verify)
		t->at[OPEN] = now();
	for (uint64_t i = 0; i < opt.pieces; i++) {
		uint64_t offset = piece_offset(who, i), done = 0;
		while (done < opt.transfer) {
			ssize_t n = pread(fd, buf + done, opt.transfer - done, offset + done);
			if (n <= 0)
				die("rank %d: pread %s at %llu: %s", rank, path,
					(unsigned long long)(offset + done),
					n ? strerror(errno) : "end of file");
			done += n;
		}
		if (verify) {
			const unsigned char *bytes = expected(want, offset, opt.transfer, seed);
			if (memcmp(buf, bytes, opt.transfer)) {
				uint64_t bad = 0;
				while (buf[bad] == bytes[bad])
					bad++;
				die("rank %d: %s: wrong byte at %llu: %02x, not %02x", rank, path,
					(unsigned long long)(offset + bad), buf[bad], bytes[bad]);
			}
		}
	}
	if (!verify)
		t->at[IO] = t->at[SYNC] = now();
	close(fd);
	if (!verify)
		t->at[CLOSE] = now();
	free(buf);
	free(want);
	pthread_barrier_wait(&shm->barrier);
}

static void read_phase(int rank)
{
	read_pass(rank, 0);
	if (opt.verify)
		read_pass(rank, 1);
}

static void both_phases(int rank)
{
	write_phase(rank);
	sleep(opt.settle);
	read_phase(rank);
}

/* Forks the ranks and waits for them; the first that fails ends the others, who may wait at a
 * barrier. */
static void run_ranks(void (*phase)(int))
{
	pid_t pid[1024];
	int failed = 0, status;
	fflush(stdout);
	for (int r = 0; r < opt.ranks; r++) {
		pid[r] = fork();
		if (pid[r] < 0)
			die("fork: %s", strerror(errno));
		if (pid[r] == 0) {
			phase(r);
			exit(0);
		}
	}
	for (int left = opt.ranks; left > 0; left--) {
		pid_t gone = wait(&status);
		for (int r = 0; r < opt.ranks; r++)
			if (pid[r] == gone)
				pid[r] = 0;
		if (status && !failed++) {
			fprintf(stderr, "n1: a rank ended with status 0x%x\n", status);
			for (int r = 0; r < opt.ranks; r++)
				if (pid[r])
					kill(pid[r], SIGKILL);
		}
	}
	if (failed)
		exit(1);
}

static void report(const char *what, const struct rank_times *t)
{
	double first = t[0].start, last = 0, step[MARKS] = {0};
	for (int r = 0; r < opt.ranks; r++) {
		double before = t[r].start;
		if (t[r].start < first)
			first = t[r].start;
		if (t[r].at[CLOSE] > last)
			last = t[r].at[CLOSE];
		for (int i = 0; i < MARKS; i++) {
			if (t[r].at[i] - before > step[i])
				step[i] = t[r].at[i] - before;
			before = t[r].at[i];
		}
	}
	double mib = (double)opt.transfer * opt.pieces * opt.ranks / (1 << 20);
	printf(", \"%s_mib_s\": %.3f, \"%s_s\": %.6f, \"%s_open_us\": %.1f, \"%s_io_us\": %.1f, "
	       "\"%s_fsync_us\": %.1f, \"%s_close_us\": %.1f",
		what, mib / (last - first), what, last - first, what, step[OPEN] * 1e6, what,
		step[IO] * 1e6, what, step[SYNC] * 1e6, what, step[CLOSE] * 1e6);
}

static void remove_files(void)
{
	char path[4096];
	for (int r = 0; r < (opt.pattern == NN ? opt.ranks : 1); r++) {
		file_name(path, sizeof path, r, r);
		if (unlink(path) && errno != ENOENT)
			die("unlink %s: %s", path, strerror(errno));
	}
}

static const char *usage =
	"usage: n1 [options] DIR...\n"
	"  --pattern strided|segmented|nn   (strided) nn is a file per process\n"
	"  --ranks N            (8) processes, at most 1,024\n"
	"  --transfer BYTES     (47001) bytes of one pwrite and pread\n"
	"  --bytes BYTES        (64 MiB) bytes a rank, rounded down to whole transfers\n"
	"  --name NAME          (n1.out) file name in DIR; nn adds .RANK\n"
	"  --settle SECONDS     (0) rest between writing and reading, not timed\n"
	"  --fsync              fsync before close, timed\n"
	"  --shift K            (1) rank r reads what rank r+K wrote\n"
	"  --same               read in the processes that wrote, not in new ones\n"
	"  --no-verify          leave out the untimed pass that checks every byte\n"
	"  --only write|read    one phase; write keeps the file, read expects it\n"
	"  --keep               do not remove the files at the end\n";

int main(int argc, char **argv)
{
	enum { PATTERN = 256, RANKS, TRANSFER, BYTES, NAME, SHIFT, ONLY, SETTLE };
	const struct option options[] = {{"pattern", 1, 0, PATTERN}, {"ranks", 1, 0, RANKS},
		{"transfer", 1, 0, TRANSFER}, {"bytes", 1, 0, BYTES}, {"name", 1, 0, NAME},
		{"shift", 1, 0, SHIFT}, {"only", 1, 0, ONLY}, {"settle", 1, 0, SETTLE},
		{"fsync", 0, &opt.fsync, 1}, {"same", 0, &opt.same, 1}, {"keep", 0, &opt.keep, 1},
		{"no-verify", 0, &opt.verify, 0}, {0}};
	static const char *patterns[] = {"strided", "segmented", "nn"};
	uint64_t bytes = 64 << 20;
	int c, known = 1;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 0:
			break;
		case PATTERN:
			for (opt.pattern = 0;
				opt.pattern < 3 && strcmp(optarg, patterns[opt.pattern]);
				opt.pattern++) {
			}
			known &= opt.pattern < 3;
			break;
		case RANKS:
			opt.ranks = atoi(optarg);
			break;
		case TRANSFER:
			opt.transfer = strtoull(optarg, NULL, 0);
			break;
		case BYTES:
			bytes = strtoull(optarg, NULL, 0);
			break;
		case NAME:
			opt.name = optarg;
			break;
		case SHIFT:
			opt.shift = atoi(optarg);
			break;
		case SETTLE:
			opt.settle = atoi(optarg);
			break;
		case ONLY:
			opt.write = !strcmp(optarg, "write");
			opt.read = !strcmp(optarg, "read");
			opt.keep |= opt.write;
			known &= opt.write || opt.read;
			break;
		default:
			known = 0;
		}
	}
	opt.dir = argv + optind;
	opt.dirs = argc - optind;
	if (!known || opt.dirs < 1 || opt.ranks < 1 || opt.ranks > 1024 || opt.transfer < 1 ||
		opt.shift < 0 || opt.settle < 0) {
		fputs(usage, stderr);
		return 2;
	}
	opt.pieces = bytes / opt.transfer ? bytes / opt.transfer : 1;
	shm = mmap(NULL, sizeof *shm, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shm == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	pthread_barrierattr_t attr;
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shm->barrier, &attr, opt.ranks);

	if (opt.write)
		remove_files();
	if (opt.write && opt.read && opt.same) {
		run_ranks(both_phases);
	} else {
		if (opt.write)
			run_ranks(write_phase);
		if (opt.write && opt.read)
			sleep(opt.settle);
		if (opt.read)
			run_ranks(read_phase);
	}
	printf("{\"pattern\": \"%s\", \"ranks\": %d, \"dirs\": %d, \"transfer\": %llu, "
	       "\"bytes_per_rank\": %llu, \"fsync\": %d, \"verified\": %s",
		patterns[opt.pattern], opt.ranks, opt.dirs, (unsigned long long)opt.transfer,
		(unsigned long long)(opt.transfer * opt.pieces), opt.fsync,
		opt.verify && opt.read ? "true" : "false");
	if (opt.write)
		report("write", shm->write);
	if (opt.read)
		report("read", shm->read);
	printf("}\n");
	if (!opt.keep)
		remove_files();
	return 0;
}
