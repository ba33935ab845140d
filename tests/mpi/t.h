/* What the test programs share. Each gets a managed directory as its argument, runs on any number
 * of ranks, and exits with 1 if a check failed on any. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks, failures;
static const char *dir;

/* A check that failed is told, and the program goes on. */
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			printf("%s:%d rank %d: not so: %s\n", __FILE__, __LINE__, rank, \
				#condition); \
			failures++; \
		} \
	} while (0)

static const char *name_of(int code)
{
	static char text[MPI_MAX_ERROR_STRING];
	int n, class = -1;
	if (code == MPI_SUCCESS)
		return "success";
	MPI_Error_class(code, &class);
	MPI_Error_string(class, text, &n);
	return text;
}

static int class_of(int code)
{
	int class = -1;
	MPI_Error_class(code, &class);
	return class;
}

/* The call gives this error class (MPI_SUCCESS for none). */
#define GIVES(class, call) \
	do { \
		int code_ = (call); \
		if (class_of(code_) != (class)) { \
			printf("%s:%d rank %d: %s gives %d (%s), not %s\n", __FILE__, __LINE__, \
				rank, #call, class_of(code_), name_of(code_), #class); \
			failures++; \
		} \
	} while (0)
#define OK(call) GIVES(MPI_SUCCESS, call)

/* dir/name; a few at a time stay valid. */
static char *path_of(const char *name)
{
	static char paths[8][4096];
	static int next;
	char *path = paths[next++ % 8];
	snprintf(path, sizeof paths[0], "%s/%s", dir, name);
	return path;
}

static int count_of(const MPI_Status *status, MPI_Datatype type)
{
	int n = -1;
	MPI_Get_count((MPI_Status *)status, type, &n);
	return n;
}

static MPI_File open_new(const char *name, int amode)
{
	MPI_File f = MPI_FILE_NULL;
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		MPI_File_delete(path_of(name), MPI_INFO_NULL);
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_open(
		MPI_COMM_WORLD, path_of(name), amode | MPI_MODE_CREATE, MPI_INFO_NULL, &f));
	return f;
}

static void start(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	dir = argv[1];
	/* A test that hangs says where. */
	alarm(60);
}

static int finish(void)
{
	int all = 0;
	MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Finalize();
	return all != 0;
}
