/* The server over MPI-IO. Each is a job of one rank, so that one can be killed without the others.
 */
#include "server.h"
#include <mpi.h>

static MPI_File files[FILES];
static unsigned char buf[BYTES];

/* An error class as a negative number, which MPI's are not. */
static int64_t class_of(int code)
{
	int class = 0;
	MPI_Error_class(code, &class);
	return code == MPI_SUCCESS ? 0 : -(int64_t)class;
}

static int64_t bytes_done(int code, MPI_Status *status)
{
	int n = 0;
	if (code == MPI_SUCCESS)
		MPI_Get_count(status, MPI_BYTE, &n);
	return code == MPI_SUCCESS ? n : class_of(code);
}

static MPI_File file_of(char **words)
{
	return files[handle(words[0])];
}

static int64_t do_open(char **w)
{
	int amode = strchr(w[2], 'w') ? strchr(w[2], 'r') ? MPI_MODE_RDWR : MPI_MODE_WRONLY
				      : MPI_MODE_RDONLY;
	amode |= (strchr(w[2], 'c') ? MPI_MODE_CREATE : 0) |
		 (strchr(w[2], 'x') ? MPI_MODE_EXCL : 0);
	return class_of(
		MPI_File_open(MPI_COMM_SELF, w[1], amode, MPI_INFO_NULL, &files[handle(w[0])]));
}

static int64_t do_close(char **w)
{
	return class_of(MPI_File_close(&files[handle(w[0])]));
}

static int64_t do_pwrite(char **w)
{
	MPI_Status status;
	return bytes_done(MPI_File_write_at(file_of(w), number(w[1]), buf, (int)bytes_of(w[2], buf),
				  MPI_BYTE, &status),
		&status);
}

static int64_t do_pread(char **w)
{
	MPI_Status status;
	int64_t n = bytes_done(MPI_File_read_at(file_of(w), number(w[1]), buf, (int)number(w[2]),
				       MPI_BYTE, &status),
		&status);
	say_bytes(buf, n);
	return n;
}

static int64_t do_sync(char **w)
{
	return class_of(MPI_File_sync(file_of(w)));
}

static int64_t do_ftruncate(char **w)
{
	return class_of(MPI_File_set_size(file_of(w), number(w[1])));
}

static int64_t do_preallocate(char **w)
{
	return class_of(MPI_File_preallocate(file_of(w), number(w[1])));
}

static int64_t do_atomicity(char **w)
{
	return class_of(MPI_File_set_atomicity(file_of(w), (int)number(w[1])));
}

static int64_t do_size(char **w)
{
	MPI_Offset size = 0;
	int code = MPI_File_get_size(file_of(w), &size);
	return code == MPI_SUCCESS ? size : class_of(code);
}

static int64_t do_unlink(char **w)
{
	return class_of(MPI_File_delete(w[0], MPI_INFO_NULL));
}

static const struct command commands[] = {
	{"open", do_open},
	{"close", do_close},
	{"pwrite", do_pwrite},
	{"pread", do_pread},
	{"sync", do_sync},
	{"ftruncate", do_ftruncate},
	{"preallocate", do_preallocate},
	{"atomicity", do_atomicity},
	{"size", do_size},
	{"unlink", do_unlink},
	{NULL, NULL},
};

static void say_class(int64_t code)
{
	static const struct {
		int class;
		const char *name;
	} names[] = {
		{MPI_ERR_NO_SUCH_FILE, "MPI_ERR_NO_SUCH_FILE"},
		{MPI_ERR_FILE_EXISTS, "MPI_ERR_FILE_EXISTS"},
		{MPI_ERR_ACCESS, "MPI_ERR_ACCESS"},
		{MPI_ERR_READ_ONLY, "MPI_ERR_READ_ONLY"},
		{MPI_ERR_NO_SPACE, "MPI_ERR_NO_SPACE"},
		{MPI_ERR_BAD_FILE, "MPI_ERR_BAD_FILE"},
		{MPI_ERR_ARG, "MPI_ERR_ARG"},
		{MPI_ERR_IO, "MPI_ERR_IO"},
		{MPI_ERR_OTHER, "MPI_ERR_OTHER"},
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].class == -code) {
			printf("error %s\n", names[i].name);
			return;
		}
	printf("error MPI class %lld\n", (long long)-code);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int status = serve(commands, say_class);
	MPI_Finalize();
	return status;
}
