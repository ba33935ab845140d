/* The ranks of `plfs bench --door mpi`: what rank.rs does, in calls of MPI-IO.
 *
 *     mpiexec -n N rank_mpi PATTERN SIZE COUNT BLOCK SEED SYNC VERIFY SAME DIR...
 *
 * `plfs bench` compiles it with the MPI of the site, of which it knows nothing. Steps come as bytes
 * on rank 0's standard input, with the numbers of rank.rs; for each of them rank 0 prints an answer
 * of every rank, in their order, a line of JSON each. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of rank.rs, in its order. */
enum step {
	CONTENTS,
	OPEN,
	WRITE,
	CLOSE,
	EXPECTED,
	READ_OPEN,
	READ,
	READ_CLOSE,
	CREATE,
	STAT,
	READ_FILES
};

/* Offsets of windows of contents, as in rank.rs. */
#define WINDOWS 65521

struct answer {
	double seconds;
	uint64_t bytes, files;
	long pid;
	char error[1000];
};

static struct {
	const char *pattern;
	uint64_t size, count, block, seed;
	int sync, verify, same;
	char **dirs;
	uint64_t dir_count;
} spec;
static uint64_t rank, procs;

static MPI_File file = MPI_FILE_NULL;
static char path[4096];
static char *buf;
/* NULL: there are none. */
static unsigned char *pool;
static uint64_t pool_seed;
/* Where a step that fails says why. */
static struct answer *now;

static int failed(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	vsnprintf(now->error, sizeof now->error, format, ap);
	va_end(ap);
	return -1;
}

static int check(int rc, const char *what)
{
	if (rc == MPI_SUCCESS)
		return 0;
	char text[MPI_MAX_ERROR_STRING] = "";
	int n;
	MPI_Error_string(rc, text, &n);
	return failed("cannot %s %s: %s", what, path, text);
}

static int is(const char *pattern)
{
	return strcmp(spec.pattern, pattern) == 0;
}

/* --- What is written where: rank.rs says why --- */

static uint64_t mix(uint64_t n)
{
	n += 0x9E3779B97F4A7C15;
	n = (n ^ (n >> 30)) * 0xBF58476D1CE4E5B9;
	n = (n ^ (n >> 27)) * 0x94D049BB133111EB;
	return n ^ (n >> 31);
}

static void put(unsigned char *at, uint64_t word, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)(word >> 8 * i);
}

static int make_contents(uint64_t of)
{
	pool_seed = mix((spec.seed << 32) ^ of);
	uint64_t words = (spec.size + WINDOWS + 7) / 8;
	pool = malloc(words * 8);
	if (!pool)
		return failed("no memory for %llu bytes", (unsigned long long)words * 8);
	for (uint64_t i = 0; i < words; i++)
		put(pool + 8 * i, mix(pool_seed + i), 8);
	return 0;
}

/* A piece, until end_piece. */
static unsigned char kept[8];
static unsigned char *begin_piece(uint64_t piece)
{
	unsigned char *window = pool + mix(piece) % WINDOWS;
	size_t head = spec.size < 8 ? spec.size : 8;
	memcpy(kept, window, head);
	put(window, mix(pool_seed ^ mix(piece)), head);
	return window;
}

static void end_piece(unsigned char *window)
{
	memcpy(window, kept, spec.size < 8 ? spec.size : 8);
}

static MPI_Offset offset(uint64_t of, uint64_t piece)
{
	uint64_t nth = piece;
	if (is("n1-strided")) {
		nth = piece * procs + of;
	} else if (is("n1-segmented")) {
		nth = of * spec.count + piece;
	} else if (is("n1-block")) {
		uint64_t first = piece - piece % spec.block, left = spec.count - first;
		nth = first * procs + of * (left < spec.block ? left : spec.block) +
		      piece % spec.block;
	} else if (is("1n")) {
		nth = 0;
	}
	return (MPI_Offset)(nth * spec.size);
}

static uint64_t partner(void)
{
	return (rank + procs / 2) % procs;
}

static void name_file(uint64_t owner, uint64_t piece, uint64_t made_by)
{
	const char *dir = spec.dirs[(spec.same ? rank : made_by) % spec.dir_count];
	unsigned long long who = owner, which = piece;
	if (is("nn"))
		snprintf(path, sizeof path, "%s/rank.%llu", dir, who);
	else if (is("1n"))
		snprintf(path, sizeof path, "%s/rank.%llu.%llu", dir, who, which);
	else
		snprintf(path, sizeof path, "%s/shared", dir);
}

/* --- Steps --- */

static int open_file(uint64_t owner, uint64_t piece, int write)
{
	name_file(owner, piece, owner);
	MPI_Comm comm = is("nn") || is("1n") ? MPI_COMM_SELF : MPI_COMM_WORLD;
	int mode = write ? MPI_MODE_WRONLY | MPI_MODE_CREATE : MPI_MODE_RDONLY;
	return check(
		MPI_File_open(comm, path, mode, MPI_INFO_NULL, &file), write ? "create" : "open");
}

static int close_file(int sync)
{
	if (sync && check(MPI_File_sync(file), "sync"))
		return -1;
	return check(MPI_File_close(&file), "close");
}

static int write_piece(uint64_t piece)
{
	unsigned char *bytes = begin_piece(piece);
	MPI_Status status;
	int n = 0;
	int rc = check(MPI_File_write_at(
			       file, offset(rank, piece), bytes, (int)spec.size, MPI_BYTE, &status),
		"write");
	end_piece(bytes);
	if (rc)
		return rc;
	MPI_Get_count(&status, MPI_BYTE, &n);
	return (uint64_t)n == spec.size ? 0 : failed("cannot write %s: no room", path);
}

static int read_piece(uint64_t owner, uint64_t piece)
{
	MPI_Status status;
	MPI_Offset at = offset(owner, piece);
	int n = 0;
	if (check(MPI_File_read_at(file, at, buf, (int)spec.size, MPI_BYTE, &status), "read"))
		return -1;
	MPI_Get_count(&status, MPI_BYTE, &n);
	if ((uint64_t)n != spec.size)
		return failed(
			"cannot read %s: it ends at byte %lld, and rank %llu wrote up to %lld",
			path, (long long)at + n, (unsigned long long)owner,
			(long long)at + (long long)spec.size);
	if (!pool)
		return 0;
	unsigned char *want = begin_piece(piece);
	uint64_t i = 0;
	if (memcmp(want, buf, spec.size) == 0)
		i = spec.size;
	while (i < spec.size && want[i] == (unsigned char)buf[i])
		i++;
	int rc = 0;
	if (i < spec.size)
		rc = failed("%s: byte %lld is wrong: wanted 0x%02x, found 0x%02x (byte %llu of "
			    "piece %llu of rank %llu)",
			path, (long long)at + (long long)i, want[i], (unsigned char)buf[i],
			(unsigned long long)i, (unsigned long long)piece,
			(unsigned long long)owner);
	end_piece(want);
	return rc;
}

static int do_step(enum step step)
{
	uint64_t from = partner();
	int rc = 0;
	struct stat st;
	switch (step) {
	case CONTENTS:
		return make_contents(rank);
	case EXPECTED:
		free(pool);
		pool = NULL;
		buf = malloc(spec.size);
		if (!buf)
			return failed("no memory for %llu bytes", (unsigned long long)spec.size);
		return spec.verify ? make_contents(from) : 0;
	case OPEN:
		return open_file(rank, 0, 1);
	case READ_OPEN:
		return open_file(from, 0, 0);
	case CLOSE:
		return close_file(spec.sync);
	case READ_CLOSE:
		return close_file(0);
	case WRITE:
		for (uint64_t piece = 0; rc == 0 && piece < spec.count; piece++)
			rc = write_piece(piece);
		now->files = 1;
		break;
	case READ:
		for (uint64_t piece = 0; rc == 0 && piece < spec.count; piece++)
			rc = read_piece(from, piece);
		now->files = 1;
		break;
	case CREATE:
		for (uint64_t piece = 0; rc == 0 && piece < spec.count; piece++) {
			rc = open_file(rank, piece, 1);
			rc = rc ? rc : write_piece(piece);
			rc = rc ? rc : close_file(spec.sync);
		}
		now->files = spec.count;
		break;
	case READ_FILES:
		for (uint64_t piece = 0; rc == 0 && piece < spec.count; piece++) {
			rc = open_file(from, piece, 0);
			rc = rc ? rc : read_piece(from, piece);
			rc = rc ? rc : close_file(0);
		}
		now->files = spec.count;
		break;
	case STAT:
		for (uint64_t piece = 0; rc == 0 && piece < spec.count; piece++) {
			name_file(from, piece, from);
			if (stat(path, &st) < 0)
				rc = failed("cannot stat %s: %m", path);
			else if ((uint64_t)st.st_size != spec.size)
				rc = failed("%s has %lld bytes, not %llu", path,
					(long long)st.st_size, (unsigned long long)spec.size);
		}
		now->files = spec.count;
		return rc;
	default:
		return failed("there is no step %d", (int)step);
	}
	now->bytes = spec.count * spec.size;
	return rc;
}

static void print(const struct answer *answer)
{
	printf("{\"seconds\":%.9f,\"bytes\":%llu,\"files\":%llu,\"pid\":%ld", answer->seconds,
		(unsigned long long)answer->bytes, (unsigned long long)answer->files, answer->pid);
	if (*answer->error) {
		printf(",\"error\":\"");
		for (const char *c = answer->error; *c; c++) {
			if ((unsigned char)*c < ' ')
				putchar(' ');
			else if (*c == '"' || *c == '\\')
				printf("\\%c", *c);
			else
				putchar(*c);
		}
		putchar('"');
	}
	puts("}");
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int r, n;
	MPI_Comm_rank(MPI_COMM_WORLD, &r);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	if (argc < 10) {
		fprintf(stderr, "this is a part of `plfs bench`\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	rank = (uint64_t)r;
	procs = (uint64_t)n;
	spec.pattern = argv[1];
	spec.size = strtoull(argv[2], NULL, 10);
	spec.count = strtoull(argv[3], NULL, 10);
	spec.block = strtoull(argv[4], NULL, 10);
	spec.seed = strtoull(argv[5], NULL, 10);
	spec.sync = atoi(argv[6]);
	spec.verify = atoi(argv[7]);
	spec.same = atoi(argv[8]);
	spec.dirs = argv + 9;
	spec.dir_count = (uint64_t)argc - 9;

	static struct answer mine;
	struct answer *all = rank == 0 ? calloc(procs, sizeof *all) : NULL;
	if (rank == 0 && !all)
		MPI_Abort(MPI_COMM_WORLD, 3);
	now = &mine;
	for (;;) {
		int step = -1;
		unsigned char byte;
		if (rank == 0 && read(0, &byte, 1) == 1)
			step = byte;
		MPI_Bcast(&step, 1, MPI_INT, 0, MPI_COMM_WORLD);
		if (step < 0)
			break;
		memset(&mine, 0, sizeof mine);
		mine.pid = (long)getpid();
		double begun = MPI_Wtime();
		do_step((enum step)step);
		mine.seconds = MPI_Wtime() - begun;
		MPI_Gather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, 0,
			MPI_COMM_WORLD);
		for (uint64_t i = 0; rank == 0 && i < procs; i++)
			print(&all[i]);
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
