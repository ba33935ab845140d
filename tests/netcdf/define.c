/* define DIR: what is defined, asked, renamed and refused: as in one file, but for what says so. */
#include "t.h"

#include <unistd.h>

static char path[512];

static void attributes(int parts)
{
	MPI_Info info = t_hints(parts, NULL);
	int ncid, dims[3], v, w, n, id;
	char name[NC_MAX_NAME + 1], text[64] = {0};
	double fill = -1;
	FINE(ncmpi_create(MPI_COMM_WORLD, path, 0, info, &ncid));
	FINE(ncmpi_def_dim(ncid, "time", NC_UNLIMITED, &dims[0]));
	FINE(ncmpi_def_dim(ncid, "y", 10, &dims[1]));
	FINE(ncmpi_def_dim(ncid, "x", 7, &dims[2]));
	FINE(ncmpi_def_var(ncid, "v", NC_DOUBLE, 2, dims + 1, &v));
	FINE(ncmpi_def_var_fill(ncid, v, 0, &fill));
	FINE(ncmpi_def_var(ncid, "w", NC_INT, 3, dims, &w));
	FINE(ncmpi_put_att_text(ncid, v, "units", 5, "metre"));
	FINE(ncmpi_put_att_text(ncid, NC_GLOBAL, "title", 1, "t"));
	FINE(ncmpi_enddef(ncid));
	/* The layout's own are not counted. */
	FINE(ncmpi_inq_varnatts(ncid, v, &n));
	SAME(n, 2);
	FINE(ncmpi_inq_natts(ncid, &n));
	SAME(n, 1);
	FINE(ncmpi_inq_attname(ncid, v, 1, name));
	CHECK(strcmp(name, "units") == 0);
	GIVES(NC_ENOTATT, ncmpi_inq_attname(ncid, v, 2, name));
	FINE(ncmpi_put_att_text(ncid, v, "units", 3, "cm "));
	FINE(ncmpi_rename_att(ncid, v, "units", "unit"));
	/* In data mode nothing may grow. */
	GIVES(NC_ENOTINDEFINE, ncmpi_put_att_text(ncid, v, "units", 9, "kilometre"));
	GIVES(NC_ENOTINDEFINE, ncmpi_rename_var(ncid, v, "a_longer_name"));
	FINE(ncmpi_rename_var(ncid, v, "q"));
	FINE(ncmpi_inq_varid(ncid, "q", &id));
	SAME(id, v);
	/* What nobody wrote has the fill value. */
	double all[70];
	FINE(ncmpi_get_var_double_all(ncid, v, all));
	for (int i = 0; i < 70; i++)
		CHECK(all[i] == -1);
	for (int i = 0; i < 70; i++)
		all[i] = i;
	FINE(ncmpi_put_var_double_all(ncid, v, all));

	/* Define mode again: a name that grows, a new variable, what was there stays. */
	FINE(ncmpi_redef(ncid));
	FINE(ncmpi_rename_var(ncid, v, "a_longer_name"));
	FINE(ncmpi_rename_dim(ncid, dims[1], "latitude"));
	FINE(ncmpi_put_att_text(ncid, v, "history", 400, (char[400]){"h"}));
	FINE(ncmpi_copy_att(ncid, NC_GLOBAL, "title", ncid, v));
	FINE(ncmpi_del_att(ncid, v, "unit"));
	FINE(ncmpi_def_var(ncid, "more", NC_SHORT, 2, dims + 1, &id));
	FINE(ncmpi_enddef(ncid));
	short small[70];
	for (int i = 0; i < 70; i++)
		small[i] = (short)i;
	FINE(ncmpi_put_var_short_all(ncid, id, small));
	memset(all, 0, sizeof all);
	FINE(ncmpi_get_var_double_all(ncid, v, all));
	for (int i = 0; i < 70; i++)
		CHECK(all[i] == i);

	/* Records. */
	int record[70];
	MPI_Offset length, start[3] = {2, 0, 0}, count[3] = {1, 10, 7};
	for (int i = 0; i < 70; i++)
		record[i] = 1000 + i;
	FINE(ncmpi_inq_dimlen(ncid, dims[0], &length));
	SAME(length, 0);
	GIVES(NC_EINVALCOORDS, ncmpi_get_vara_int_all(ncid, w, start, count, record));
	FINE(ncmpi_put_vara_int_all(ncid, w, start, count, record));
	FINE(ncmpi_inq_dimlen(ncid, dims[0], &length));
	SAME(length, 3);
	memset(record, 0, sizeof record);
	FINE(ncmpi_get_vara_int_all(ncid, w, start, count, record));
	SAME(record[69], 1069);
	start[0] = 3;
	GIVES(NC_EINVALCOORDS, ncmpi_get_vara_int_all(ncid, w, start, count, record));
	start[0] = 0, start[1] = 9, count[1] = 2;
	GIVES(NC_EEDGE, ncmpi_put_vara_int_all(ncid, w, start, count, record));

	/* Modes. */
	start[1] = 0, count[1] = 1;
	GIVES(NC_ENOTINDEP, ncmpi_get_vara_int(ncid, w, start, count, record));
	FINE(ncmpi_begin_indep_data(ncid));
	GIVES(NC_EINDEP, ncmpi_get_vara_int_all(ncid, w, start, count, record));
	start[0] = 3 + rank;
	FINE(ncmpi_put_vara_int(ncid, w, start, count, record));
	FINE(ncmpi_end_indep_data(ncid));
	FINE(ncmpi_inq_dimlen(ncid, dims[0], &length));
	SAME(length, 3 + ranks);
	/* Types and ranges. */
	GIVES(NC_ECHAR, ncmpi_put_var_text_all(ncid, v, "x"));
	double large[70] = {1e300};
	GIVES(NC_ERANGE, ncmpi_put_var_double_all(ncid, id, large));
	FINE(ncmpi_put_var_short_all(ncid, id, small));
	if (parts) {
		MPI_Offset offset = 0;
		FINE(ncmpi_inq_varoffset(ncid, v, &offset));
		CHECK(offset > 0);
		GIVES(NC_ENOTSUPPORT,
			ncmpi_put_vard_all(ncid, v, MPI_DATATYPE_NULL, all, 0, MPI_DOUBLE));
		FINE(ncmpi_redef(ncid));
		GIVES(NC_ENAMEINUSE, ncmpi_put_att_text(ncid, v, "ndims_org", 1, "x"));
		GIVES(NC_ENAMEINUSE, ncmpi_put_att_text(ncid, NC_GLOBAL, "partition_0", 1, "x"));
		GIVES(NC_ENOTATT, ncmpi_del_att(ncid, v, "num_partitions"));
		FINE(ncmpi_put_att_text(ncid, w, "ndims_or", 1, "x"));
		FINE(ncmpi_enddef(ncid));
	}
	/* Requests that are left behind. */
	int request;
	FINE(ncmpi_iput_var_double(ncid, v, all, &request));
	FINE(ncmpi_cancel(ncid, 1, &request, NULL));
	FINE(ncmpi_iput_var_double(ncid, v, all, &request));
	GIVES(NC_EPENDING, ncmpi_close(ncid));
	t_free(&info);

	FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &ncid));
	GIVES(NC_EPERM, ncmpi_put_var_double_all(ncid, v, all));
	FINE(ncmpi_get_att_text(ncid, v, "title", text));
	CHECK(strcmp(text, "t") == 0);
	GIVES(NC_ENOTATT, ncmpi_get_att_text(ncid, v, "unit", text));
	FINE(ncmpi_inq_dimlen(ncid, dims[0], &length));
	SAME(length, 3 + ranks);
	FINE(ncmpi_inq_var(ncid, v, name, NULL, &n, dims, NULL));
	CHECK(strcmp(name, "a_longer_name") == 0);
	SAME(n, 2);
	memset(small, 0, sizeof small);
	FINE(ncmpi_get_var_short_all(ncid, id, small));
	SAME(small[69], 69);
	if (parts) {
		MPI_Info used;
		char value[64];
		int found;
		FINE(ncmpi_inq_file_info(ncid, &used));
		MPI_Info_get(used, "nc_num_partitions", 63, value, &found);
		CHECK(found && atoi(value) == parts);
		MPI_Info_free(&used);
	}
	FINE(ncmpi_close(ncid));
}

/* A dataset with one variable, of 9 by 7; it is in define mode. */
static int v_define(MPI_Info info, int dims[2], int *v)
{
	int ncid;
	FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER, info, &ncid));
	FINE(ncmpi_def_dim(ncid, "y", 9, &dims[0]));
	FINE(ncmpi_def_dim(ncid, "x", 7, &dims[1]));
	FINE(ncmpi_def_var(ncid, "v", NC_INT, 2, dims, v));
	return ncid;
}

/* Ends define mode, and writes 100 and on. */
static void v_write(int ncid, int v)
{
	int data[63];
	FINE(ncmpi_enddef(ncid));
	for (int i = 0; i < 63; i++)
		data[i] = 100 + i;
	FINE(ncmpi_put_var_int_all(ncid, v, data));
}

/* All of the dataset. */
static void removed(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		FINE(ncmpi_delete(path, MPI_INFO_NULL));
	MPI_Barrier(MPI_COMM_WORLD);
}

/* What replaces or removes a dataset takes its partitions along. */
static void removals(void)
{
	int ncid, dims[2], v;
	char partition[600];
	for (int parts = 5; parts > 0; parts -= 2) {
		MPI_Info info = t_hints(parts, NULL);
		ncid = v_define(info, dims, &v);
		FINE(ncmpi_close(ncid));
		t_free(&info);
		for (int k = 0; k < 5; k++) {
			snprintf(partition, sizeof partition, "%s.%d", path, k);
			SAME(access(partition, F_OK) == 0, k < parts);
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		FINE(ncmpi_delete(path, MPI_INFO_NULL));
		CHECK(access(path, F_OK) != 0);
		CHECK(access(partition, F_OK) != 0);
		snprintf(partition, sizeof partition, "%s.0", path);
		CHECK(access(partition, F_OK) != 0);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Is one of the files below DIR open in this process whose name ends so? */
static bool is_open(const char *end)
{
	char link[64], to[1024];
	bool found = false;
	for (int fd = 0; fd < 256; fd++) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(link, to, sizeof to - 1);
		to[n > 0 ? n : 0] = 0;
		found |= (size_t)n >= strlen(end) && strcmp(to + n - strlen(end), end) == 0;
	}
	return found;
}

/* Clients of ceph-fuse that opened a partition while others wrote to it kept zeros: 12 of 30 runs
 * read those, or no header. So each process has its own open before anybody can write. */
static void opened_before_written(void)
{
	if (ranks < 2)
		return;
	MPI_Info info = t_hints(2, NULL);
	int ncid, dims[2], v;
	const char *mine = rank < ranks / 2 ? ".0" : ".1";
	FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER, info, &ncid));
	FINE(ncmpi_def_dim(ncid, "y", 10, &dims[0]));
	FINE(ncmpi_def_dim(ncid, "x", 7, &dims[1]));
	FINE(ncmpi_def_var(ncid, "v", NC_INT, 2, dims, &v));
	FINE(ncmpi_enddef(ncid));
	CHECK(is_open(mine));
	FINE(ncmpi_redef(ncid));
	FINE(ncmpi_put_att_text(ncid, v, "units", 5, "metre"));
	FINE(ncmpi_enddef(ncid));
	CHECK(is_open(mine));
	FINE(ncmpi_close(ncid));
	FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_WRITE, MPI_INFO_NULL, &ncid));
	CHECK(is_open(mine));
	FINE(ncmpi_close(ncid));
	t_free(&info);
}

/* Two ranks append by themselves, and each wrote the number of records that it knew: a definition
 * after that moved as many as the last one had said, and the others were zeros; and who opened the
 * dataset after a sync saw as many. */
static void appended_by_two(void)
{
	if (ranks < 2)
		return;
	MPI_Info info = t_hints(2, NULL);
	int ncid, again, dims[2], v, w, row[8];
	MPI_Offset length, start[2] = {rank ? 3 : 9, 0}, count[2] = {1, 8};
	FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER, info, &ncid));
	FINE(ncmpi_def_dim(ncid, "t", NC_UNLIMITED, &dims[0]));
	FINE(ncmpi_def_dim(ncid, "x", 8, &dims[1]));
	FINE(ncmpi_def_var(ncid, "v", NC_INT, 2, dims, &v));
	FINE(ncmpi_enddef(ncid));
	FINE(ncmpi_begin_indep_data(ncid));
	for (int i = 0; i < 8; i++)
		row[i] = (int)start[0] * 100 + i;
	if (rank == 0)
		FINE(ncmpi_put_vara_int(ncid, v, start, count, row));
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 1)
		FINE(ncmpi_put_vara_int(ncid, v, start, count, row));
	FINE(ncmpi_end_indep_data(ncid));
	FINE(ncmpi_sync(ncid));
	FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &again));
	FINE(ncmpi_inq_dimlen(again, dims[0], &length));
	SAME(length, 10);
	FINE(ncmpi_close(again));
	FINE(ncmpi_redef(ncid));
	FINE(ncmpi_def_var(ncid, "w", NC_INT, 2, dims, &w));
	FINE(ncmpi_enddef(ncid));
	start[0] = 9;
	memset(row, 0, sizeof row);
	FINE(ncmpi_get_vara_int_all(ncid, v, start, count, row));
	SAME(row[0], 900);
	SAME(row[7], 907);
	FINE(ncmpi_close(ncid));
	t_free(&info);
}

/* An abort after data was written left partitions that were shorter than their headers say, and the
 * dataset could not be opened. Reads of what nobody had written were of memory that nobody had set,
 * where a conversion was needed. */
static void given_up(void)
{
	MPI_Info info = t_hints(3, NULL);
	int ncid, dims[3], v, w, row[8], nothing = 0;
	double all[72];
	MPI_Offset length, start[3] = {2, 0, 0}, count[3] = {1, 1, 8}, last[2] = {8, 0};
	for (int i = 0; i < 8; i++)
		row[i] = 70 + i;
	FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER, info, &ncid));
	FINE(ncmpi_def_dim(ncid, "t", NC_UNLIMITED, &dims[0]));
	FINE(ncmpi_def_dim(ncid, "y", 9, &dims[1]));
	FINE(ncmpi_def_dim(ncid, "x", 8, &dims[2]));
	FINE(ncmpi_def_var(ncid, "v", NC_INT, 2, dims + 1, &v));
	FINE(ncmpi_def_var(ncid, "w", NC_INT, 3, dims, &w));
	FINE(ncmpi_enddef(ncid));
	memset(all, 0x41, sizeof all);
	FINE(ncmpi_get_var_double_all(ncid, v, all));
	for (int i = 0; i < 72; i++)
		nothing += all[i] == 0;
	/* What is not filled was, and what had been written was lost. */
	GIVES(NC_ENOTFILL, ncmpi_fill_var_rec(ncid, w, 0));
	FINE(ncmpi_inq_dimlen(ncid, dims[0], &length));
	SAME(length, 0);
	FINE(ncmpi_begin_indep_data(ncid));
	FINE(ncmpi_get_var_double(ncid, v, all));
	for (int i = 0; i < 72; i++)
		nothing += all[i] == 0;
	SAME(nothing, 144);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == ranks - 1) {
		FINE(ncmpi_put_vara_int(ncid, v, last, count + 1, row));
		FINE(ncmpi_put_vara_int(ncid, w, start, count, row));
	}
	FINE(ncmpi_abort(ncid));
	FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &ncid));
	FINE(ncmpi_inq_dimlen(ncid, dims[0], &length));
	SAME(length, 3);
	FINE(ncmpi_get_var_double_all(ncid, v, all));
	SAME(all[63], 0);
	SAME(all[71], 77);
	memset(row, 0, sizeof row);
	FINE(ncmpi_get_vara_int_all(ncid, w, start, count, row));
	SAME(row[7], 77);
	start[1] = 8;
	FINE(ncmpi_get_vara_int_all(ncid, w, start, count, row));
	SAME(row[7], 0);
	FINE(ncmpi_close(ncid));
	t_free(&info);
}

/* The master has the records of whole variables, partitions those of cut ones. A variable that was
 * defined when only the others had records was not filled: zeros in a cut one, and in a whole one
 * NC_NOERR and the reader's memory as it was. */
static void records_of_the_others(void)
{
	for (int turn = 0; turn < 4; turn++) {
		bool whole_first = turn & 1, by_one = turn & 2;
		MPI_Info info = t_hints(3, NULL);
		int ncid, old, dims[2], v, w, two[32], one[5];
		MPI_Offset length, start[2] = {0, 0}, count[2] = {rank ? 0 : 3, rank ? 0 : 6};
		FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER, info, &ncid));
		FINE(ncmpi_set_fill(ncid, NC_FILL, &old));
		FINE(ncmpi_def_dim(ncid, "t", NC_UNLIMITED, &dims[0]));
		FINE(ncmpi_def_dim(ncid, "x", 6, &dims[1]));
		FINE(ncmpi_def_var(ncid, "v", NC_INT, whole_first ? 1 : 2, dims, &v));
		FINE(ncmpi_enddef(ncid));
		for (int i = 0; i < 32; i++)
			two[i] = 7;
		if (by_one) {
			FINE(ncmpi_begin_indep_data(ncid));
			if (rank == 0)
				FINE(ncmpi_put_vara_int(ncid, v, start, count, two));
			FINE(ncmpi_end_indep_data(ncid));
		} else {
			FINE(ncmpi_put_vara_int_all(ncid, v, start, count, two));
		}
		FINE(ncmpi_redef(ncid));
		FINE(ncmpi_set_fill(ncid, NC_FILL, &old));
		FINE(ncmpi_def_var(ncid, "w", NC_INT, whole_first ? 2 : 1, dims, &w));
		FINE(ncmpi_enddef(ncid));
		FINE(ncmpi_inq_dimlen(ncid, dims[0], &length));
		SAME(length, 3);
		/* And records that come later: the whole variable has as many as the cut one. */
		start[0] = 4;
		count[0] = rank == ranks - 1, count[1] = rank == ranks - 1 ? 6 : 0;
		FINE(ncmpi_put_vara_int_all(ncid, whole_first ? w : v, start, count, two));
		for (int again = 0; again < 2; again++) {
			memset(two, 0x55, sizeof two);
			memset(one, 0x55, sizeof one);
			FINE(ncmpi_get_var_int_all(ncid, whole_first ? w : v, two));
			FINE(ncmpi_get_var_int_all(ncid, whole_first ? v : w, one));
			SAME(two[0], whole_first ? NC_FILL_INT : 7);
			SAME(two[17], whole_first ? NC_FILL_INT : 7);
			SAME(two[24], 7);
			SAME(one[0], whole_first ? 7 : NC_FILL_INT);
			SAME(one[2], whole_first ? 7 : NC_FILL_INT);
			SAME(one[4], 0);
			FINE(ncmpi_close(ncid));
			if (!again)
				FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, info, &ncid));
		}
		t_free(&info);
	}
}

/* Requests for later whose buffer has no elements were not checked. */
static void empty_requests(int parts)
{
	MPI_Info info = t_hints(parts, NULL);
	int ncid, dims[2], v, id = 7, data[4] = {0};
	MPI_Offset start[2] = {99, 0}, count[2] = {1, 1};
	ncid = v_define(info, dims, &v);
	FINE(ncmpi_enddef(ncid));
	GIVES(NC_EINVALCOORDS, ncmpi_iput_vara(ncid, v, start, count, data, 0, MPI_INT, &id));
	SAME(id, NC_REQ_NULL);
	GIVES(NC_EINVALCOORDS, ncmpi_iget_vara(ncid, v, start, count, data, 0, MPI_INT, &id));
	start[0] = 0, count[0] = 10;
	GIVES(NC_EEDGE, ncmpi_iput_vara(ncid, v, start, count, data, 0, MPI_INT, &id));
	count[0] = -1;
	GIVES(NC_ENEGATIVECNT, ncmpi_iput_vara(ncid, v, start, count, data, 0, MPI_INT, &id));
	count[0] = 2;
	FINE(ncmpi_iput_vara(ncid, v, start, count, data, 0, MPI_INT, &id));
	FINE(ncmpi_iput_varn(ncid, v, -1, NULL, NULL, data, 0, MPI_INT, &id));
	FINE(ncmpi_wait_all(ncid, NC_REQ_ALL, NULL, NULL));
	FINE(ncmpi_close(ncid));
	t_free(&info);
}

/* A dataset with two variables that are cut, one that is whole, and records of all but the first.
 */
struct three {
	int ncid, y, fixed, record, whole;
};

static struct three three_new(int parts)
{
	MPI_Info info = t_hints(parts, NULL);
	struct three t;
	int dims[3], data[12] = {0};
	MPI_Offset start[3] = {0, 0, 0}, count[3] = {1, 4, 3};
	FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER, info, &t.ncid));
	FINE(ncmpi_def_dim(t.ncid, "t", NC_UNLIMITED, &dims[0]));
	FINE(ncmpi_def_dim(t.ncid, "y", 4, &dims[1]));
	FINE(ncmpi_def_dim(t.ncid, "x", 3, &dims[2]));
	FINE(ncmpi_def_var(t.ncid, "fixed", NC_INT, 2, dims + 1, &t.fixed));
	FINE(ncmpi_def_var(t.ncid, "record", NC_INT, 3, dims, &t.record));
	FINE(ncmpi_def_var(t.ncid, "whole", NC_INT, 1, dims, &t.whole));
	FINE(ncmpi_def_var_fill(t.ncid, t.record, 0, NULL));
	FINE(ncmpi_put_att_text(t.ncid, t.fixed, "units", 5, "metre"));
	FINE(ncmpi_put_att_text(t.ncid, t.fixed, "other", 5, "thing"));
	FINE(ncmpi_enddef(t.ncid));
	FINE(ncmpi_put_var_int_all(t.ncid, t.fixed, data));
	FINE(ncmpi_put_vara_int_all(t.ncid, t.record, start, count, data));
	FINE(ncmpi_put_vara_int_all(t.ncid, t.whole, start, count, data));
	t.y = dims[1];
	t_free(&info);
	return t;
}

/* The call gives `code` on the rank that errs, on others NC_NOERR. */
#define ONE_GIVES(erring, code, call) GIVES(rank == (erring) ? (code) : NC_NOERR, call)

/* One rank erred in a change of a name or an attribute, and all hung: only those that PnetCDF had
 * told NC_NOERR went on to the partitions. Of a change in define mode each group of ranks wrote
 * what it knew, and partitions differed. Now they have what the master has, which rank 0 writes. */
static void changed_by_some(int erring)
{
	for (int what = 0; what < 9 && ranks > 1; what++) {
		struct three t = three_new(3);
		bool errs = rank == erring;
		int ncid = t.ncid, v = t.fixed, one = 1, part, id;
		char text[16] = {0}, name[NC_MAX_NAME + 1], there[600];
		switch (what) {
		case 0:
			ONE_GIVES(erring, NC_ECHAR,
				ncmpi_put_att_int(
					ncid, v, "units", errs ? NC_CHAR : NC_INT, 1, &one));
			break;
		case 1:
			ONE_GIVES(erring, NC_ENOTVAR,
				ncmpi_put_att_text(ncid, errs ? 99 : v, "units", 3, "abc"));
			break;
		case 2:
			ONE_GIVES(erring, NC_ENOTINDEFINE,
				ncmpi_put_att_text(ncid, v, "units", errs ? 9 : 3, "abcdefghi"));
			break;
		case 3:
			ONE_GIVES(erring, NC_ENAMEINUSE,
				ncmpi_rename_var(ncid, v, errs ? "whole" : "q"));
			break;
		case 4:
			ONE_GIVES(erring, NC_ENAMEINUSE,
				ncmpi_rename_dim(ncid, t.y, errs ? "x" : "q"));
			break;
		case 5:
			ONE_GIVES(erring, NC_ENOTATT,
				ncmpi_rename_att(ncid, v, errs ? "no" : "other", "more"));
			break;
		case 6:
			ONE_GIVES(erring, NC_ENOTATT,
				ncmpi_copy_att(ncid, v, errs ? "no" : "other", ncid, v));
			break;
		case 7:
			ONE_GIVES(erring, NC_ENAMEINUSE,
				ncmpi_put_att_text(
					ncid, v, errs ? "ndims_org" : "units", 3, "abc"));
			break;
		default:
			FINE(ncmpi_redef(ncid));
			ONE_GIVES(
				erring, NC_ENOTATT, ncmpi_del_att(ncid, v, errs ? "no" : "other"));
			FINE(ncmpi_enddef(ncid));
		}
		FINE(ncmpi_sync(ncid));
		FINE(ncmpi_close(ncid));
		FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &ncid));
		bool is_done = erring != 0;
		FINE(ncmpi_inq_varname(ncid, v, name));
		CHECK(strcmp(name, what == 3 && is_done ? "q" : "fixed") == 0);
		for (int k = 0; k < 3; k++) {
			snprintf(there, sizeof there, "%s.%d", path, k);
			FINE(ncmpi_open(MPI_COMM_WORLD, there, NC_NOWRITE, MPI_INFO_NULL, &part));
			FINE(ncmpi_inq_varid(part, name, &id));
			if (what != 0 || !is_done) {
				FINE(ncmpi_get_att_text(part, id, "units", text));
				bool is_new = is_done && (what == 1 || what == 2 || what == 7);
				CHECK(strncmp(text, is_new ? "abc" : "metre", is_new ? 3 : 5) == 0);
			}
			bool has_other = !(is_done && (what == 5 || what == 8));
			SAME(ncmpi_inq_att(part, id, "other", NULL, NULL) == NC_NOERR, has_other);
			FINE(ncmpi_close(part));
		}
		FINE(ncmpi_close(ncid));
	}
}

/* One rank named no variable, and all hung: it left the collective call to PnetCDF, while others
 * were in the exchange; so they did if it named one that is whole. */
static void named_by_some(int erring)
{
	if (ranks < 2)
		return;
	struct three t = three_new(3);
	bool errs = rank == erring;
	static const int WRONG[] = {99, -2, NC_GLOBAL};
	int data[12], got[12];
	MPI_Offset start[3] = {0, 0, 0}, count[3] = {4, 3, 3}, records;
	for (int i = 0; i < 3; i++) {
		int code = WRONG[i] == NC_GLOBAL ? NC_EGLOBAL : NC_ENOTVAR;
		int named = errs ? WRONG[i] : t.fixed;
		for (int j = 0; j < 12; j++)
			data[j] = 100 * i + j, got[j] = -1;
		ONE_GIVES(erring, code, ncmpi_put_vara_int_all(t.ncid, named, start, count, data));
		ONE_GIVES(erring, code, ncmpi_get_vara_int_all(t.ncid, named, start, count, got));
		for (int j = 0; j < 12; j++)
			SAME(got[j], errs ? -1 : data[j]);
		/* And of one with records, which the master follows. */
		MPI_Offset at[3] = {i + 1, 0, 0}, one[3] = {1, 4, 3};
		ONE_GIVES(erring, code,
			ncmpi_put_vara_int_all(t.ncid, errs ? WRONG[i] : t.record, at, one, data));
		FINE(ncmpi_inq_dimlen(t.ncid, 0, &records));
		SAME(records, i + 2);
		GIVES(errs ? code : NC_ENOTSUPPORT,
			ncmpi_put_vard_all(t.ncid, named, MPI_DATATYPE_NULL, data, 0, MPI_INT));
	}
	/* Two that are cut may be named in one call. */
	int either = errs ? t.record : t.fixed;
	MPI_Offset at[3] = {errs ? 6 : 0, 0, 0}, one[3] = {errs ? 1 : 4, errs ? 4 : 3, 3};
	FINE(ncmpi_put_vara_int_all(t.ncid, either, at, one, data));
	FINE(ncmpi_inq_dimlen(t.ncid, 0, &records));
	SAME(records, 7);
	/* One that is cut and one that is whole may not, and nothing is done. */
	either = errs ? t.whole : t.fixed;
	count[0] = errs ? 1 : 4;
	got[0] = -1, data[0] = 5;
	GIVES(NC_EMULTIDEFINE_FNC_ARGS, ncmpi_put_vara_int_all(t.ncid, either, start, count, data));
	GIVES(NC_EMULTIDEFINE_FNC_ARGS, ncmpi_get_vara_int_all(t.ncid, either, start, count, got));
	SAME(got[0], -1);
	FINE(ncmpi_get_var_int_all(t.ncid, t.fixed, got));
	SAME(got[0], 200);
	FINE(ncmpi_close(t.ncid));
}

/* Ranks that gave different records to fill, or one that gave a wrong variable, hung: each took its
 * own record for the number of them. */
static void filled_by_some(int erring)
{
	if (ranks < 2)
		return;
	struct three t = three_new(3);
	bool errs = rank == erring;
	int got[12];
	MPI_Offset start[3] = {0, 0, 0}, count[3] = {1, 4, 3}, records;
	FINE(ncmpi_fill_var_rec(t.ncid, t.record, errs ? -1 : 1));
	ONE_GIVES(erring, NC_ENOTVAR, ncmpi_fill_var_rec(t.ncid, errs ? 99 : t.record, 2));
	ONE_GIVES(erring, NC_ENOTRECVAR, ncmpi_fill_var_rec(t.ncid, errs ? t.fixed : t.record, 3));
	GIVES(NC_ENOTRECVAR, ncmpi_fill_var_rec(t.ncid, t.fixed, 4));
	GIVES(NC_EINVALCOORDS, ncmpi_fill_var_rec(t.ncid, t.record, -1));
	FINE(ncmpi_inq_dimlen(t.ncid, 0, &records));
	SAME(records, 4);
	for (start[0] = 0; start[0] < 4; start[0]++) {
		FINE(ncmpi_get_vara_int_all(t.ncid, t.record, start, count, got));
		for (int j = 0; j < 12; j++)
			SAME(got[j], start[0] ? NC_FILL_INT : 0);
	}
	FINE(ncmpi_close(t.ncid));
}

/* Numbers of elements that are not those of the memory gave errors of another kind than PnetCDF's:
 * fewer than -1, too many for an int; of varn with no boxes, or fewer than none. */
static void wrong_counts(int parts)
{
	struct three t = three_new(parts);
	int data[12] = {0}, id, v = t.fixed;
	MPI_Offset start[2] = {0, 0}, count[2] = {1, 1}, *starts[1] = {start};
	for (int full = 0; full < 2; full++, count[0] = 0) {
		GIVES(NC_EIOMISMATCH,
			ncmpi_put_vara_all(t.ncid, v, start, count, data, -3, MPI_INT));
		GIVES(NC_EIOMISMATCH,
			ncmpi_get_vara_all(t.ncid, v, start, count, data, -3, MPI_INT));
		GIVES(NC_EIOMISMATCH,
			ncmpi_iput_vara(t.ncid, v, start, count, data, -3, MPI_INT, &id));
		GIVES(NC_EIOMISMATCH,
			ncmpi_put_vara_all(t.ncid, v, start, count, data, 1LL << 33, MPI_INT));
	}
	GIVES(NC_ENULLSTART, ncmpi_put_varn_all(t.ncid, v, -1, NULL, NULL, data, 1, MPI_INT));
	GIVES(NC_EIOMISMATCH, ncmpi_put_varn_all(t.ncid, v, -1, starts, NULL, data, 1, MPI_INT));
	GIVES(NC_EIOMISMATCH, ncmpi_get_varn_all(t.ncid, v, -1, starts, NULL, data, 1, MPI_INT));
	GIVES(NC_EIOMISMATCH, ncmpi_iput_varn(t.ncid, v, -1, starts, NULL, data, 1, MPI_INT, &id));
	FINE(ncmpi_get_varn_int_all(t.ncid, v, -1, starts, NULL, data));
	FINE(ncmpi_put_varn_all(t.ncid, v, 0, NULL, NULL, data, 1, MPI_INT));
	FINE(ncmpi_iput_varn_int(t.ncid, v, 0, NULL, NULL, data, &id));
	SAME(id, NC_REQ_NULL);
	FINE(ncmpi_close(t.ncid));
}

/* A partition that is away at the end of define mode: the master said already what the partitions
 * did not have, nothing said why, and once it was back the dataset could not be opened. */
static void defined_without_a_partition(void)
{
	for (int turn = 0; turn < 3; turn++) {
		MPI_Info info = t_hints(3, NULL);
		int ncid, dims[2], v, w, data[63], nvars;
		char there[600], away[600];
		snprintf(there, sizeof there, "%s.1", path);
		snprintf(away, sizeof away, "%s.away", path);
		ncid = v_define(info, dims, &v);
		v_write(ncid, v);
		MPI_Barrier(MPI_COMM_WORLD);
		CHECK(rank || rename(there, away) == 0);
		MPI_Barrier(MPI_COMM_WORLD);
		FINE(ncmpi_redef(ncid));
		FINE(ncmpi_def_var(ncid, "w", NC_INT, 2, dims, &w));
		GIVES(NC_ENOENT, ncmpi_enddef(ncid));
		MPI_Barrier(MPI_COMM_WORLD);
		CHECK(rank || turn == 2 || rename(away, there) == 0);
		MPI_Barrier(MPI_COMM_WORLD);
		if (turn == 0)
			FINE(ncmpi_enddef(ncid));
		if (turn < 2)
			FINE(ncmpi_close(ncid));
		else
			GIVES(NC_ENOENT, ncmpi_close(ncid));
		MPI_Barrier(MPI_COMM_WORLD);
		CHECK(rank || turn < 2 || rename(away, there) == 0);
		MPI_Barrier(MPI_COMM_WORLD);
		FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, info, &ncid));
		FINE(ncmpi_inq_nvars(ncid, &nvars));
		SAME(nvars, turn < 2 ? 2 : 1);
		memset(data, 0, sizeof data);
		FINE(ncmpi_get_var_int_all(ncid, v, data));
		SAME(data[0], 100);
		SAME(data[62], 162);
		FINE(ncmpi_close(ncid));
		t_free(&info);
	}
}

/* A master that was renamed went on naming partitions of the old name, and the next dataset of that
 * name took their place: all data of the renamed one was lost. The same files are in the way if a
 * dataset that is not partitioned has taken the master's place, which were taken silently, too. */
static void in_the_way(void)
{
	for (int turn = 0; turn < 4; turn++) {
		MPI_Info info = t_hints(3, NULL);
		int ncid, dims[2], v, data[63];
		char old[600], partition[600];
		snprintf(old, sizeof old, "%s.old", path);
		ncid = v_define(info, dims, &v);
		v_write(ncid, v);
		FINE(ncmpi_close(ncid));
		MPI_Barrier(MPI_COMM_WORLD);
		CHECK(rank || rename(path, old) == 0);
		MPI_Barrier(MPI_COMM_WORLD);
		if (turn & 1) {
			FINE(ncmpi_create(MPI_COMM_WORLD, path, 0, MPI_INFO_NULL, &ncid));
			FINE(ncmpi_close(ncid));
		}
		GIVES(NC_EEXIST, ncmpi_create(MPI_COMM_WORLD, path,
					 turn & 2 ? NC_NOCLOBBER : NC_CLOBBER, info, &ncid));
		MPI_Barrier(MPI_COMM_WORLD);
		SAME(access(path, F_OK) == 0, turn & 1);
		FINE(ncmpi_open(MPI_COMM_WORLD, old, NC_NOWRITE, info, &ncid));
		memset(data, 0, sizeof data);
		FINE(ncmpi_get_var_int_all(ncid, v, data));
		SAME(data[0], 100);
		SAME(data[62], 162);
		FINE(ncmpi_close(ncid));
		/* By its new name it is removed as a whole, and the place is free. */
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0) {
			FINE(ncmpi_delete(old, MPI_INFO_NULL));
			snprintf(partition, sizeof partition, "%s.2", path);
			CHECK(access(partition, F_OK) != 0);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		ncid = v_define(info, dims, &v);
		FINE(ncmpi_close(ncid));
		t_free(&info);
	}
}

/* Ranks that define the same shapes in another order were told nothing, and those whose dimensions
 * differ only after the master had the new variable: nobody could open the dataset any more. A rank
 * that fills alone waited for the others. */
static void defined_differently(void)
{
	enum { ORDER, DIMS, DIM_NAME, FILL, KINDS };
	for (int turn = 0; turn < 3 * KINDS && ranks > 1; turn++) {
		int kind = turn % KINDS, odd = rank == ranks - 1;
		bool is_new = turn / KINDS == 0, is_repeated = turn / KINDS == 1;
		MPI_Info info = t_hints(3, NULL);
		int ncid, dims[2], v, w, more[2], data[63], nvars;
		ncid = v_define(info, dims, &v);
		if (!is_new) {
			v_write(ncid, v);
			FINE(ncmpi_redef(ncid));
		}
		const int swapped[2] = {dims[1], dims[0]};
		if (kind == ORDER) {
			FINE(ncmpi_def_var(ncid, odd ? "b" : "a", NC_INT, 2, dims, &w));
			FINE(ncmpi_def_var(ncid, odd ? "a" : "b", NC_INT, 2, dims, &w));
		} else if (kind == DIMS) {
			FINE(ncmpi_def_var(ncid, "a", NC_INT, 2, odd ? swapped : dims, &w));
		} else if (kind == DIM_NAME) {
			FINE(ncmpi_def_dim(ncid, odd ? "q" : "p", 9, &more[0]));
			FINE(ncmpi_def_dim(ncid, odd ? "p" : "q", 9, &more[1]));
			FINE(ncmpi_def_var(ncid, "a", NC_INT, 2, more, &w));
		} else {
			FINE(ncmpi_def_var(ncid, "a", NC_INT, 2, dims, &w));
			FINE(ncmpi_def_var_fill(ncid, w, !odd, NULL));
		}
		GIVES(NC_EMULTIDEFINE, ncmpi_enddef(ncid));
		bool is_mended = is_repeated && kind == FILL;
		if (is_mended) {
			FINE(ncmpi_def_var_fill(ncid, w, 1, NULL));
			FINE(ncmpi_enddef(ncid));
			FINE(ncmpi_close(ncid));
		} else {
			GIVES(NC_EMULTIDEFINE, ncmpi_close(ncid));
		}
		MPI_Barrier(MPI_COMM_WORLD);
		if (is_new) {
			CHECK(access(path, F_OK) != 0);
			t_free(&info);
			continue;
		}
		FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, info, &ncid));
		FINE(ncmpi_inq_nvars(ncid, &nvars));
		SAME(nvars, is_mended ? 2 : 1);
		memset(data, 0, sizeof data);
		FINE(ncmpi_get_var_int_all(ncid, v, data));
		SAME(data[0], 100);
		SAME(data[62], 162);
		FINE(ncmpi_close(ncid));
		t_free(&info);
	}
}

/* Sets the number of records in a file's header, as a writer leaves it that is killed. */
static void records_set(const char *name, int records)
{
	unsigned char bytes[4] = {0, 0, 0, (unsigned char)records};
	FILE *file = fopen(name, "r+");
	CHECK(file && fseek(file, 4, SEEK_SET) == 0 && fwrite(bytes, 4, 1, file) == 1);
	fclose(file);
}

/* A killed writer had appended to partitions what the master did not know of, or the other way: a
 * get of the whole variable gave NC_NOERR and left the memory of the last records as it was. So did
 * a close in independent mode, for who opened it next. */
static void records_of_a_killed_writer(void)
{
	enum { MASTER_BEHIND, PARTITIONS_BEHIND, NOT_ENDED, TURNS };
	for (int turn = 0; turn < TURNS; turn++) {
		MPI_Info info = t_hints(3, NULL);
		int ncid, dims[3], w, r, q, id, status, two[30], one[5], pairs[10];
		MPI_Offset length, start[2] = {0, 0}, count[2] = {2, 6}, pair[2] = {2, 2};
		FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER, info, &ncid));
		FINE(ncmpi_def_dim(ncid, "t", NC_UNLIMITED, &dims[0]));
		FINE(ncmpi_def_dim(ncid, "x", 6, &dims[1]));
		FINE(ncmpi_def_dim(ncid, "two", 2, &dims[2]));
		FINE(ncmpi_def_var(ncid, "w", NC_INT, 2, dims, &w));
		FINE(ncmpi_def_var(ncid, "r", NC_INT, 1, dims, &r));
		FINE(ncmpi_def_var(ncid, "q", NC_INT, 2, (int[]){dims[0], dims[2]}, &q));
		FINE(ncmpi_enddef(ncid));
		for (int i = 0; i < 30; i++)
			two[i] = 7;
		FINE(ncmpi_put_vara_int_all(ncid, r, start, count, two));
		FINE(ncmpi_put_vara_int_all(ncid, q, start, pair, two));
		FINE(ncmpi_begin_indep_data(ncid));
		count[0] = 5;
		if (rank == 0) {
			FINE(ncmpi_put_vara_int(ncid, w, start, count, two));
			/* Only the partitions have what it appended by itself. */
			GIVES(NC_EEDGE, ncmpi_get_var_int(ncid, r, one));
			GIVES(NC_EEDGE, ncmpi_iget_var_int(ncid, r, one, &id));
			GIVES(NC_EEDGE, ncmpi_get_var(ncid, r, one, 5, MPI_INT));
			int *where[1] = {one};
			GIVES(NC_EEDGE, ncmpi_mget_var_int(ncid, 1, &r, where));
		}
		FINE(ncmpi_close(ncid));
		MPI_Barrier(MPI_COMM_WORLD);
		for (int k = 0; k < 3 && rank == 0 && turn == PARTITIONS_BEHIND; k++) {
			char name[600];
			snprintf(name, sizeof name, "%s.%d", path, k);
			records_set(name, 2);
		}
		if (rank == 0 && turn == MASTER_BEHIND)
			records_set(path, 2);
		MPI_Barrier(MPI_COMM_WORLD);
		/* Reading alone gives an error where something is not there. */
		int of_w = turn == PARTITIONS_BEHIND ? NC_EEDGE : NC_NOERR;
		int of_r = turn == MASTER_BEHIND ? NC_EEDGE : NC_NOERR;
		FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, info, &ncid));
		FINE(ncmpi_inq_dimlen(ncid, dims[0], &length));
		SAME(length, 5);
		GIVES(of_w, ncmpi_get_var_int_all(ncid, w, two));
		GIVES(of_r, ncmpi_get_var_int_all(ncid, r, one));
		GIVES(of_r, ncmpi_get_var_all(ncid, r, one, 5, MPI_INT));
		GIVES(of_r, ncmpi_get_var_int_all(ncid, q, pairs));
		GIVES(of_w, ncmpi_get_vara_int_all(ncid, w, start, count, two));
		GIVES(of_r, ncmpi_get_vara_int_all(ncid, r, start, count, one));
		MPI_Offset *starts[1] = {start}, *counts[1] = {count};
		GIVES(of_w, ncmpi_get_varn_int_all(ncid, w, 1, starts, counts, two));
		/* PnetCDF has none of several records. */
		if (of_r != NC_NOERR)
			GIVES(of_r, ncmpi_get_varn_int_all(ncid, r, 1, starts, counts, one));
		GIVES(of_w, ncmpi_iget_var_int(ncid, w, two, &id));
		if (of_w == NC_NOERR)
			FINE(ncmpi_wait_all(ncid, 1, &id, &status));
		GIVES(of_r, ncmpi_iget_var_int(ncid, r, one, &id));
		if (of_r == NC_NOERR)
			FINE(ncmpi_wait_all(ncid, 1, &id, &status));
		FINE(ncmpi_close(ncid));
		/* Who may write mends it: what is not there is zeros. */
		FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_WRITE, info, &ncid));
		for (int again = 0; again < 2; again++) {
			memset(two, 0x55, sizeof two);
			memset(one, 0x55, sizeof one);
			memset(pairs, 0x55, sizeof pairs);
			FINE(ncmpi_get_var_int_all(ncid, w, two));
			FINE(ncmpi_get_var_int_all(ncid, r, one));
			FINE(ncmpi_get_var_int_all(ncid, q, pairs));
			SAME(two[0], 7);
			SAME(two[29], 7);
			SAME(one[1], 7);
			SAME(one[4], 0);
			SAME(pairs[3], 7);
			SAME(pairs[4], 0);
			SAME(pairs[9], 0);
			FINE(ncmpi_close(ncid));
			if (!again)
				FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, info, &ncid));
		}
		t_free(&info);
	}
}

/* What hints may not say. */
static void refusals(void)
{
	MPI_Info info = t_hints(2, "t");
	int ncid, dims[2], v;
	FINE(ncmpi_create(MPI_COMM_WORLD, path, 0, info, &ncid));
	FINE(ncmpi_def_dim(ncid, "t", NC_UNLIMITED, &dims[0]));
	FINE(ncmpi_def_dim(ncid, "x", 7, &dims[1]));
	GIVES(NC_ENOTSUPPORT, ncmpi_def_var(ncid, "v", NC_INT, 2, dims, &v));
	/* What has another dimension is not meant. */
	FINE(ncmpi_def_var(ncid, "w", NC_INT, 1, dims + 1, &v));
	FINE(ncmpi_close(ncid));
	t_free(&info);
	if (ranks > 1) {
		info = t_hints(2 + rank % 2, NULL);
		GIVES(NC_EMULTIDEFINE, ncmpi_create(MPI_COMM_WORLD, path, 0, info, &ncid));
		t_free(&info);
		info = t_hints(rank == 0 ? 2 : 0, NULL);
		GIVES(NC_EMULTIDEFINE, ncmpi_create(MPI_COMM_WORLD, path, 0, info, &ncid));
		t_free(&info);
	}
	/* Ranks that define different variables, anew as well: the end of define mode gives each an
	 * error. It hung for a moment of this library's life, as those that would change a
	 * partition asked the others whether all are there. */
	for (int again = 0; again < 2 && ranks > 1; again++) {
		info = t_hints(2, NULL);
		FINE(ncmpi_create(MPI_COMM_WORLD, path, 0, info, &ncid));
		FINE(ncmpi_def_dim(ncid, "y", 9, &dims[0]));
		FINE(ncmpi_def_dim(ncid, "x", 7, &dims[1]));
		if (again) {
			FINE(ncmpi_def_var(ncid, "v", NC_INT, 2, dims, &v));
			FINE(ncmpi_enddef(ncid));
			FINE(ncmpi_redef(ncid));
		}
		if (rank == 0)
			FINE(ncmpi_def_var(ncid, "w", NC_INT, 2, dims, &v));
		CHECK(ncmpi_enddef(ncid) != NC_NOERR);
		ncmpi_close(ncid);
		t_free(&info);
	}
	/* What is too large for a partition in its format is told at the end of define mode. */
	info = t_hints(2, NULL);
	FINE(ncmpi_create(MPI_COMM_WORLD, path, 0, info, &ncid));
	FINE(ncmpi_def_dim(ncid, "y", 4, &dims[0]));
	FINE(ncmpi_def_dim(ncid, "x", 1 << 30, &dims[1]));
	FINE(ncmpi_def_var(ncid, "v", NC_INT, 2, dims, &v));
	FINE(ncmpi_def_var(ncid, "w", NC_INT, 2, dims, &v));
	GIVES(NC_EVARSIZE, ncmpi_enddef(ncid));
	ncmpi_close(ncid);
	t_free(&info);
	/* An abort leaves nothing; what was created before it is gone, as PnetCDF's own is. */
	info = t_hints(2, NULL);
	FINE(ncmpi_create(MPI_COMM_WORLD, path, 0, info, &ncid));
	FINE(ncmpi_def_dim(ncid, "x", 7, dims));
	/* Ranks but one may say that it is not there. */
	ncmpi_abort(ncid);
	GIVES(NC_ENOENT, ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &ncid));
	t_free(&info);
}

int main(int argc, char **argv)
{
	t_start(&argc, &argv);
	CHECK(argc == 2);
	snprintf(path, sizeof path, "%s/define.nc", argv[1]);
	attributes(0);
	attributes(1);
	attributes(3);
	attributes(8);
	opened_before_written();
	appended_by_two();
	given_up();
	records_of_the_others();
	removed();
	empty_requests(0);
	empty_requests(3);
	removed();
	wrong_counts(0);
	wrong_counts(3);
	for (int erring = 0; erring < ranks; erring += ranks > 1 ? ranks - 1 : 1) {
		changed_by_some(erring);
		named_by_some(erring);
		filled_by_some(erring);
	}
	defined_without_a_partition();
	in_the_way();
	defined_differently();
	records_of_a_killed_writer();
	refusals();
	removals();
	MPI_Finalize();
	return 0;
}
