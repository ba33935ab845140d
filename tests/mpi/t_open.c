/* Opening: modes, what is created and removed, what all ranks must agree on, and how errors reach
 * the program. */
#include "t.h"

static int handler_calls, handler_code;

static void on_error(MPI_File *f, int *code, ...)
{
	(void)f;
	handler_calls++;
	handler_code = *code;
}

static int open_with(const char *path, int amode, MPI_Info info, MPI_File *f)
{
	return MPI_File_open(MPI_COMM_WORLD, path, amode, info, f);
}

static void modes(void)
{
	MPI_File f;
	const char *path = path_of("modes");
	GIVES(MPI_ERR_NO_SUCH_FILE, open_with(path, MPI_MODE_RDONLY, MPI_INFO_NULL, &f));
	GIVES(MPI_ERR_NO_SUCH_FILE, open_with(path, MPI_MODE_RDWR, MPI_INFO_NULL, &f));
	OK(open_with(path, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &f));
	int amode = 0;
	OK(MPI_File_get_amode(f, &amode));
	CHECK(amode == (MPI_MODE_RDWR | MPI_MODE_CREATE));
	OK(MPI_File_close(&f));
	CHECK(f == MPI_FILE_NULL);
	MPI_Barrier(MPI_COMM_WORLD);
	GIVES(MPI_ERR_FILE_EXISTS, open_with(path, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL,
					   MPI_INFO_NULL, &f));
	GIVES(MPI_ERR_AMODE, open_with(path, MPI_MODE_RDWR | MPI_MODE_RDONLY, MPI_INFO_NULL, &f));
	GIVES(MPI_ERR_AMODE, open_with(path, 0, MPI_INFO_NULL, &f));
	GIVES(MPI_ERR_AMODE, open_with(path, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &f));
	GIVES(MPI_ERR_AMODE, open_with(path, MPI_MODE_RDONLY | MPI_MODE_EXCL, MPI_INFO_NULL, &f));
	GIVES(MPI_ERR_AMODE,
		open_with(path, MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &f));

	char c = 'x';
	MPI_Status status;
	OK(open_with(path, MPI_MODE_RDONLY, MPI_INFO_NULL, &f));
	GIVES(MPI_ERR_READ_ONLY, MPI_File_write_at(f, 0, &c, 1, MPI_BYTE, &status));
	GIVES(MPI_ERR_READ_ONLY, MPI_File_set_size(f, 10));
	OK(MPI_File_close(&f));
	OK(open_with(path, MPI_MODE_WRONLY, MPI_INFO_NULL, &f));
	GIVES(MPI_ERR_ACCESS, MPI_File_read_at(f, 0, &c, 1, MPI_BYTE, &status));
	OK(MPI_File_write_at(f, rank, &c, 1, MPI_BYTE, &status));
	OK(MPI_File_close(&f));

	/* Everything begins at the end. */
	OK(open_with(path, MPI_MODE_RDWR | MPI_MODE_APPEND, MPI_INFO_NULL, &f));
	MPI_Offset at = -1;
	OK(MPI_File_get_position(f, &at));
	CHECK(at == ranks);
	at = -1;
	OK(MPI_File_get_position_shared(f, &at));
	CHECK(at == ranks);
	OK(MPI_File_close(&f));

	/* One after the other, through the shared pointer only. */
	OK(open_with(path, MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &f));
	GIVES(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_write_at(f, 0, &c, 1, MPI_BYTE, &status));
	GIVES(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_write(f, &c, 1, MPI_BYTE, &status));
	GIVES(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_seek(f, 0, MPI_SEEK_SET));
	OK(MPI_File_write_shared(f, &c, 1, MPI_BYTE, &status));
	OK(MPI_File_close(&f));

	OK(open_with(path, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE | MPI_MODE_UNIQUE_OPEN,
		MPI_INFO_NULL, &f));
	OK(MPI_File_close(&f));
	GIVES(MPI_ERR_NO_SUCH_FILE, open_with(path, MPI_MODE_RDONLY, MPI_INFO_NULL, &f));
	CHECK(access("/dev/null", F_OK) == 0);
}

/* Also outside of managed directories, by prefix; and a file outside is the MPI's. */
static void whose(void)
{
	MPI_File f;
	char name[4200];
	snprintf(name, sizeof name, "plfs:%s", path_of("prefixed"));
	OK(open_with(name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &f));
	char c = 'p';
	OK(MPI_File_write_at_all(f, rank, &c, 1, MPI_BYTE, MPI_STATUS_IGNORE));
	OK(MPI_File_close(&f));
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		OK(MPI_File_delete(name, MPI_INFO_NULL));
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		GIVES(MPI_ERR_NO_SUCH_FILE, MPI_File_delete(name, MPI_INFO_NULL));

	const char *plain = getenv("T_PLAIN");
	if (!plain)
		return;
	snprintf(name, sizeof name, "%s/plain", plain);
	OK(open_with(name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &f));
	OK(MPI_File_write_at_all(f, rank, &c, 1, MPI_BYTE, MPI_STATUS_IGNORE));
	OK(MPI_File_sync(f));
	MPI_Offset size = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_get_size(f, &size));
	CHECK(size == ranks);
	OK(MPI_File_close(&f));
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		FILE *stream = fopen(name, "r");
		CHECK(stream && fgetc(stream) == 'p');
		if (stream)
			fclose(stream);
		OK(MPI_File_delete(name, MPI_INFO_NULL));
	}
}

/* What differs between ranks is an error on all of them. */
static void agreement(void)
{
	MPI_File f;
	MPI_Info info;
	if (ranks > 1) {
		const char *path = path_of("agree");
		GIVES(MPI_ERR_AMODE, open_with(path,
					     MPI_MODE_CREATE | (rank == ranks - 1 ? MPI_MODE_WRONLY
										  : MPI_MODE_RDWR),
					     MPI_INFO_NULL, &f));
		MPI_File g = open_new("other", MPI_MODE_RDWR);
		f = open_new("agree", MPI_MODE_RDWR);
		OK(MPI_File_close(&f));
		OK(MPI_File_close(&g));
		MPI_Barrier(MPI_COMM_WORLD);
		GIVES(MPI_ERR_NOT_SAME, open_with(path_of(rank == 0 ? "agree" : "other"),
						MPI_MODE_RDWR, MPI_INFO_NULL, &f));
		GIVES(MPI_ERR_NO_SUCH_FILE, open_with(path_of(rank == 0 ? "agree" : "missing"),
						    MPI_MODE_RDWR, MPI_INFO_NULL, &f));
		/* Two names of one file are the same file. */
		char name[4200];
		snprintf(name, sizeof name, "%s/./agree", dir);
		OK(open_with(rank == 0 ? path : name, MPI_MODE_RDWR, MPI_INFO_NULL, &f));
		OK(MPI_File_close(&f));
		MPI_Info_create(&info);
		MPI_Info_set(info, "plfs_flatten_on_close", rank == 0 ? "enable" : "disable");
		GIVES(MPI_ERR_NOT_SAME, open_with(path, MPI_MODE_RDWR, info, &f));
		MPI_Info_free(&info);
		OK(open_with(path, MPI_MODE_RDWR, MPI_INFO_NULL, &f));
		GIVES(MPI_ERR_NOT_SAME, MPI_File_set_size(f, rank + 1));
		GIVES(MPI_ERR_NOT_SAME, MPI_File_set_atomicity(f, rank == 0));
		GIVES(MPI_ERR_NOT_SAME, MPI_File_seek_shared(f, rank, MPI_SEEK_SET));
		GIVES(MPI_ERR_NOT_SAME,
			MPI_File_set_view(f, 0, rank == 0 ? MPI_INT : MPI_DOUBLE,
				rank == 0 ? MPI_INT : MPI_DOUBLE, "native", MPI_INFO_NULL));
		OK(MPI_File_close(&f));
	}
	MPI_Info_create(&info);
	MPI_Info_set(info, "plfs_flatten_threshold", "many");
	GIVES(MPI_ERR_INFO_VALUE,
		open_with(path_of("agree"), MPI_MODE_RDWR | MPI_MODE_CREATE, info, &f));
	MPI_Info_free(&info);
}

static void info(void)
{
	MPI_File f;
	MPI_Info info, back;
	char text[MPI_MAX_INFO_VAL];
	int found;
	MPI_Info_create(&info);
	MPI_Info_set(info, "plfs_flatten_on_close", "enable");
	MPI_Info_set(info, "striping_factor", "4");
	OK(open_with(path_of("info"), MPI_MODE_RDWR | MPI_MODE_CREATE, info, &f));
	OK(MPI_File_get_info(f, &back));
	MPI_Info_get(back, "plfs_flatten_on_close", sizeof text - 1, text, &found);
	CHECK(found && strcmp(text, "enable") == 0);
	MPI_Info_get(back, "plfs_flatten_threshold", sizeof text - 1, text, &found);
	CHECK(found && atoll(text) > 0);
	MPI_Info_get(back, "plfs_parallel_index_read", sizeof text - 1, text, &found);
	CHECK(found && strcmp(text, "automatic") == 0);
	MPI_Info_free(&back);
	MPI_Info_set(info, "plfs_flatten_on_close", "disable");
	OK(MPI_File_set_info(f, info));
	OK(MPI_File_get_info(f, &back));
	MPI_Info_get(back, "plfs_flatten_on_close", sizeof text - 1, text, &found);
	CHECK(found && strcmp(text, "disable") == 0);
	MPI_Info_free(&back);
	MPI_Info_free(&info);

	MPI_Group group, world;
	int result = -1;
	OK(MPI_File_get_group(f, &group));
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_compare(group, world, &result);
	CHECK(result == MPI_IDENT);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
#ifdef MPI_ABI_VERSION
	CHECK(MPI_File_fromint(MPI_File_toint(f)) == f);
#else
	CHECK(MPI_File_f2c(MPI_File_c2f(f)) == f);
#endif
	OK(MPI_File_close(&f));
}

static void handlers(void)
{
	MPI_File f = open_new("handlers", MPI_MODE_RDWR);
	MPI_Errhandler handler, now;
	OK(MPI_File_create_errhandler(on_error, &handler));
	OK(MPI_File_get_errhandler(f, &now));
	CHECK(now == MPI_ERRORS_RETURN);
	OK(MPI_File_set_errhandler(f, handler));
	char c = 0;
	GIVES(MPI_ERR_ARG, MPI_File_write_at(f, -1, &c, 1, MPI_BYTE, MPI_STATUS_IGNORE));
	CHECK(handler_calls == 1 && class_of(handler_code) == MPI_ERR_ARG);
	GIVES(MPI_ERR_COUNT, MPI_File_write_at(f, 0, &c, -1, MPI_BYTE, MPI_STATUS_IGNORE));
	CHECK(handler_calls == 2 && class_of(handler_code) == MPI_ERR_COUNT);
	GIVES(MPI_ERR_UNSUPPORTED_DATAREP,
		MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "external64", MPI_INFO_NULL));
	CHECK(handler_calls == 3);
	OK(MPI_File_close(&f));

	/* Without a file: that of MPI_FILE_NULL. */
	handler_calls = 0;
	OK(MPI_File_set_errhandler(MPI_FILE_NULL, handler));
	char name[4200];
	snprintf(name, sizeof name, "plfs:%s", path_of("nowhere"));
	GIVES(MPI_ERR_NO_SUCH_FILE, open_with(name, MPI_MODE_RDONLY, MPI_INFO_NULL, &f));
	CHECK(handler_calls == 1 && class_of(handler_code) == MPI_ERR_NO_SUCH_FILE);
	OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
	MPI_Errhandler_free(&handler);
}

/* Files of parts of the ranks, at the same time. */
static void communicators(void)
{
	MPI_File all = open_new("all", MPI_MODE_RDWR), own, half;
	char name[40];
	snprintf(name, sizeof name, "own.%d", rank);
	OK(MPI_File_open(MPI_COMM_SELF, path_of(name), MPI_MODE_RDWR | MPI_MODE_CREATE,
		MPI_INFO_NULL, &own));
	MPI_Comm comm;
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &comm);
	OK(MPI_File_open(comm, path_of(rank % 2 ? "odd" : "even"), MPI_MODE_RDWR | MPI_MODE_CREATE,
		MPI_INFO_NULL, &half));
	int r = rank, back = -1;
	OK(MPI_File_write_at(all, rank * 4, &r, 1, MPI_INT, MPI_STATUS_IGNORE));
	OK(MPI_File_write_at(own, 0, &r, 1, MPI_INT, MPI_STATUS_IGNORE));
	OK(MPI_File_write_ordered(half, &r, 1, MPI_INT, MPI_STATUS_IGNORE));
	OK(MPI_File_close(&all));
	OK(MPI_File_read_at(own, 0, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
	CHECK(back == rank);
	OK(MPI_File_close(&own));
	OK(MPI_File_sync(half));
	/* Their order is that of the communicator. */
	int place;
	MPI_Comm_rank(comm, &place);
	MPI_Comm_free(&comm);
	OK(MPI_File_read_at(half, place * 4, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
	CHECK(back == rank);
	OK(MPI_File_close(&half));
}

int main(int argc, char **argv)
{
	start(argc, argv);
	modes();
	whose();
	agreement();
	info();
	handlers();
	communicators();
	return finish();
}
