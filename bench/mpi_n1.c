/* mpi_n1: the ranks of an MPI program write one file (N-1) or a file each (N-N) through MPI-IO,
 * then read it back and check every byte.
 *
 *     mpiexec -n N mpi_n1 [options] DIR...          rank i works in DIR[i mod M]; the DIRs are
 * views of one directory (mounts), or M = 1
 *
 * It knows nothing of PLFS. Prints one line of JSON. A phase lasts from the first rank's
 * MPI_File_open to the last rank's MPI_File_close, sync included (--sync); the
 * *_us fields are those of the slowest rank. Rank r reads what rank r + 1 wrote, through a new
 * open.
 *
 *   --access at|at_all|view   (at) MPI_File_write_at, MPI_File_write_at_all, or a strided file view
 * and one MPI_File_write_all of everything
 *   --nn                      a file for each rank, on MPI_COMM_SELF
 *   --transfer BYTES          (47001) bytes of one piece
 *   --pieces N                (1000) pieces of a rank
 *   --hints K=V,...           an MPI_Info for the open
 *   --only write|read         one phase; write keeps the file, read expects it
 *   --opens N                 instead: N times open for reading, read one piece, close, and N times
 * open and close; prints medians, and by how much a rank grew at most
 */
#include <getopt.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { AT, AT_ALL, VIEW };
enum { OPEN, IO, SYNC, CLOSE, MARKS };

static struct {
	int access, nn, sync, write, read, opens;
	int64_t transfer, pieces;
	char **dir;
	int dirs;
	MPI_Info info;
} opt = {.write = 1, .read = 1, .transfer = 47001, .pieces = 1000};
static int rank, ranks;

static void check(int rc, const char *what)
{
	if (rc == MPI_SUCCESS)
		return;
	char text[MPI_MAX_ERROR_STRING];
	int n;
	MPI_Error_string(rc, text, &n);
	fprintf(stderr, "mpi_n1: rank %d: %s: %s\n", rank, what, text);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void file_name(char *path, size_t size, int who)
{
	const char *dir = opt.dir[rank % opt.dirs];
	int n = opt.nn ? snprintf(path, size, "%s/mpi.out.%d", dir, who)
		       : snprintf(path, size, "%s/mpi.out", dir);
	if (n >= (int)size)
		MPI_Abort(MPI_COMM_WORLD, 2);
}

static int64_t offset_of(int who, int64_t piece)
{
	return opt.nn ? piece * opt.transfer : (piece * ranks + who) * opt.transfer;
}

static void fill(unsigned char *buf, int who, int64_t piece)
{
	uint64_t w = ((uint64_t)who << 40) + (uint64_t)piece;
	for (int64_t i = 0; i < opt.transfer; i += 8) {
		uint64_t x = (w + (uint64_t)i) * 0x9E3779B97F4A7C15u;
		x ^= x >> 29;
		memcpy(buf + i, &x, (size_t)(opt.transfer - i < 8 ? opt.transfer - i : 8));
	}
}

static MPI_File open_file(int who, int amode)
{
	char path[4096];
	MPI_File fh;
	file_name(path, sizeof path, who);
	check(MPI_File_open(opt.nn ? MPI_COMM_SELF : MPI_COMM_WORLD, path, amode, opt.info, &fh),
		path);
	return fh;
}

/* One phase: all pieces of `who`. `at` gets when each step ended, from the common start on. */
static void phase(int write, int who, unsigned char *all, double *at)
{
	MPI_Barrier(MPI_COMM_WORLD);
	double start = MPI_Wtime();
	MPI_File fh = open_file(who, write ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY);
	at[OPEN] = MPI_Wtime() - start;
	MPI_Status status;
	int n = (int)opt.transfer, count = 0;
	if (opt.access == VIEW) {
		MPI_Datatype piece, strided;
		MPI_Type_contiguous(n, MPI_BYTE, &piece);
		MPI_Type_create_resized(piece, 0, opt.nn ? n : (MPI_Aint)n * ranks, &strided);
		MPI_Type_commit(&piece);
		MPI_Type_commit(&strided);
		check(MPI_File_set_view(fh, opt.nn ? 0 : (MPI_Offset)who * n, MPI_BYTE, strided,
			      "native", MPI_INFO_NULL),
			"MPI_File_set_view");
		check(write ? MPI_File_write_all(fh, all, (int)opt.pieces, piece, &status)
			    : MPI_File_read_all(fh, all, (int)opt.pieces, piece, &status),
			write ? "MPI_File_write_all" : "MPI_File_read_all");
		MPI_Get_count(&status, piece, &count);
		if (count != opt.pieces)
			check(MPI_ERR_TRUNCATE, "short transfer");
		MPI_Type_free(&piece);
		MPI_Type_free(&strided);
	} else {
		for (int64_t i = 0; i < opt.pieces; i++) {
			MPI_Offset offset = offset_of(who, i);
			unsigned char *buf = all + i * opt.transfer;
			if (opt.access == AT)
				check(write ? MPI_File_write_at(
						      fh, offset, buf, n, MPI_BYTE, &status)
					    : MPI_File_read_at(
						      fh, offset, buf, n, MPI_BYTE, &status),
					"at");
			else
				check(write ? MPI_File_write_at_all(
						      fh, offset, buf, n, MPI_BYTE, &status)
					    : MPI_File_read_at_all(
						      fh, offset, buf, n, MPI_BYTE, &status),
					"at_all");
			MPI_Get_count(&status, MPI_BYTE, &count);
			if (count != n)
				check(MPI_ERR_TRUNCATE, "short transfer");
		}
	}
	at[IO] = MPI_Wtime() - start;
	if (write && opt.sync)
		check(MPI_File_sync(fh), "MPI_File_sync");
	at[SYNC] = MPI_Wtime() - start;
	check(MPI_File_close(&fh), "MPI_File_close");
	at[CLOSE] = MPI_Wtime() - start;
	for (int i = MARKS - 1; i > 0; i--)
		at[i] -= at[i - 1];
	double total = MPI_Wtime() - start;
	MPI_Allreduce(MPI_IN_PLACE, at, MARKS, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0) {
		const char *what = write ? "write" : "read";
		printf(", \"%s_mib_s\": %.3f, \"%s_s\": %.6f, \"%s_open_us\": %.1f, \"%s_io_us\": "
		       "%.1f, \"%s_sync_us\": %.1f, \"%s_close_us\": %.1f",
			what, (double)opt.transfer * (double)opt.pieces * ranks / (1 << 20) / total,
			what, total, what, at[OPEN] * 1e6, what, at[IO] * 1e6, what, at[SYNC] * 1e6,
			what, at[CLOSE] * 1e6);
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Opening what is there: with a first read, which needs the index, and without. */
static void opens(void)
{
	unsigned char *buf = malloc((size_t)opt.transfer);
	double *times = malloc((size_t)opt.opens * sizeof *times);
	struct rusage before, after;
	getrusage(RUSAGE_SELF, &before);
	for (int with_read = 0; with_read < 2; with_read++) {
		for (int i = 0; i < opt.opens; i++) {
			MPI_Barrier(MPI_COMM_WORLD);
			double start = MPI_Wtime();
			MPI_File fh = open_file(rank, MPI_MODE_RDONLY);
			if (with_read)
				check(MPI_File_read_at(fh, offset_of(rank, opt.pieces / 2), buf,
					      (int)opt.transfer, MPI_BYTE, MPI_STATUS_IGNORE),
					"read");
			check(MPI_File_close(&fh), "MPI_File_close");
			double time = MPI_Wtime() - start;
			MPI_Reduce(&time, &times[i], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		}
		if (rank == 0) {
			qsort(times, (size_t)opt.opens, sizeof *times, ascending);
			printf(", \"%s_us\": %.1f", with_read ? "open_read_close" : "open_close",
				times[opt.opens / 2] * 1e6);
		}
	}
	getrusage(RUSAGE_SELF, &after);
	long grown = after.ru_maxrss - before.ru_maxrss;
	MPI_Allreduce(MPI_IN_PLACE, &grown, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0)
		printf(", \"grown_kib\": %ld", grown);
	free(times);
	free(buf);
}

int main(int argc, char **argv)
{
	enum { ACCESS = 256, TRANSFER, PIECES, HINTS, ONLY, OPENS };
	const struct option options[] = {{"access", 1, 0, ACCESS}, {"nn", 0, &opt.nn, 1},
		{"sync", 0, &opt.sync, 1}, {"transfer", 1, 0, TRANSFER}, {"pieces", 1, 0, PIECES},
		{"hints", 1, 0, HINTS}, {"only", 1, 0, ONLY}, {"opens", 1, 0, OPENS}, {0}};
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	opt.info = MPI_INFO_NULL;
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (c) {
		case 0:
			break;
		case ACCESS:
			opt.access = !strcmp(optarg, "view")	 ? VIEW
				     : !strcmp(optarg, "at_all") ? AT_ALL
								 : AT;
			break;
		case TRANSFER:
			opt.transfer = atoll(optarg);
			break;
		case PIECES:
			opt.pieces = atoll(optarg);
			break;
		case ONLY:
			opt.write = !strcmp(optarg, "write"), opt.read = !opt.write;
			break;
		case OPENS:
			opt.opens = atoi(optarg);
			break;
		case HINTS:
			MPI_Info_create(&opt.info);
			for (char *save, *one = strtok_r(optarg, ",", &save); one;
				one = strtok_r(NULL, ",", &save)) {
				char *value = strchr(one, '=');
				if (value)
					*value++ = 0, MPI_Info_set(opt.info, one, value);
			}
			break;
		default:
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
	}
	opt.dir = argv + optind;
	opt.dirs = argc - optind;
	if (opt.dirs < 1 || opt.transfer < 1 || opt.pieces < 1)
		MPI_Abort(MPI_COMM_WORLD, 2);
	MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
	if (rank == 0)
		printf("{\"ranks\": %d, \"dirs\": %d, \"transfer\": %lld, \"pieces\": %lld", ranks,
			opt.dirs, (long long)opt.transfer, (long long)opt.pieces);
	if (opt.opens) {
		opens();
	} else {
		double at[MARKS];
		unsigned char *all = malloc((size_t)(opt.transfer * opt.pieces)),
			      *one = malloc((size_t)opt.transfer);
		int who = (rank + 1) % ranks;
		for (int64_t i = 0; i < opt.pieces; i++)
			fill(all + i * opt.transfer, rank, i);
		if (opt.write)
			phase(1, rank, all, at);
		if (opt.read) {
			memset(all, 0xee, (size_t)(opt.transfer * opt.pieces));
			phase(0, who, all, at);
			for (int64_t i = 0; i < opt.pieces; i++) {
				fill(one, who, i);
				if (memcmp(one, all + i * opt.transfer, (size_t)opt.transfer)) {
					fprintf(stderr,
						"mpi_n1: rank %d: piece %lld of rank %d has wrong "
						"bytes\n",
						rank, (long long)i, who);
					MPI_Abort(MPI_COMM_WORLD, 1);
				}
			}
		}
		free(all);
		free(one);
	}
	if (rank == 0)
		printf("}\n");
	MPI_Finalize();
	return 0;
}
