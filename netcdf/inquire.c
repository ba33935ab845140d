/* What programs ask about a partitioned dataset, and how they change names and attributes: the
 * answers are those of the same dataset in one file. */
#include "door.h"

#include <stdlib.h>
#include <string.h>

/* Names or attributes may have changed in the master; `rc` is what this process was told of it. The
 * partitions follow: in define mode at its end, else now, for which all ranks are needed, those as
 * well that have got an error. */
static int follow(struct file *f, int rc)
{
	if (!f || f->mode == DEFINE || f->is_undefined || !f->is_writable)
		return rc;
	int followed = partitions_define(f, NULL);
	return rc != NC_NOERR ? rc : followed;
}

/* The same of a variable. */
static int changed(struct file *f, int varid, int rc)
{
	if (rc == NC_NOERR && f && cut_of(f->ncid, varid))
		f->vars[varid].is_stale = true;
	return follow(f, rc);
}

int door_rename_dim(int ncid, int dimid, const char *name)
{
	struct file *f = file_of(ncid);
	int rc = real->rename_dim(ncid, dimid, name);
	for (int i = 0; f && rc == NC_NOERR && i < f->nvars; i++)
		for (int d = 0; f->vars[i].is_cut && d < f->vars[i].ndims; d++)
			f->vars[i].is_stale |= f->vars[i].dimids[d] == dimid;
	return follow(f, rc);
}

int door_rename_var(int ncid, int varid, const char *name)
{
	return changed(file_of(ncid), varid, real->rename_var(ncid, varid, name));
}

int door_fill_var_rec(int ncid, int varid, MPI_Offset record)
{
	struct file *f = file_of(ncid);
	int wrong = f ? wrong_variable(f, varid) : NC_ENOTVAR;
	if (wrong == NC_NOERR && !f->vars[varid].is_record)
		wrong = NC_ENOTRECVAR;
	/* Who serves a partition fills there what the others name. */
	int named = wrong == NC_ENOTRECVAR ? -1 : varid;
	int rc = f ? whose(f, PUT | ALL, &named, &record) : NOT_CUT;
	if (rc == NOT_CUT)
		return real->fill_var_rec(ncid, varid, record);
	if (rc != NC_NOERR)
		return rc;
	const struct variable *v = &f->vars[named];
	/* What is opened anew does not know that it is not filled; the master does. */
	int no_fill = 1;
	rc = record < 0 ? NC_EINVALCOORDS : other.inq_var_fill(f->ncid, named, &no_fill, NULL);
	if (rc == NC_NOERR && no_fill)
		rc = NC_ENOTFILL;
	for (int k = 0; k < v->parts && rc == NC_NOERR; k++) {
		int first, count, handle;
		group_of(f, k, &first, &count);
		if (f->rank != first)
			continue;
		rc = handle_of(f, k, f->records, &handle);
		if (rc == NC_NOERR)
			rc = real->fill_var_rec(handle, v->ids[k], record);
	}
	f->is_written |= rc == NC_NOERR;
	rc = agree(f->comm, rc);
	if (rc == NC_NOERR && record + 1 > f->records)
		f->records = record + 1;
	rc = rc == NC_NOERR ? master_follow(f) : rc;
	return wrong != NC_NOERR ? wrong : rc;
}

/* --- inquiries --- */

/* Attributes of the layout that a variable or the dataset has. */
static int reserved(struct file *f, int varid)
{
	if (varid == NC_GLOBAL)
		return f->is_named ? f->parts + 1 : 0;
	bool has = varid >= 0 && varid < f->nvars && f->vars[varid].is_cut &&
		   other.inq_att(f->ncid, varid, "num_partitions", NULL, NULL) == NC_NOERR;
	return has ? 4 : 0;
}

int door_inq(int ncid, int *ndims, int *nvars, int *natts, int *unlimited)
{
	struct file *f = file_of(ncid);
	int rc = real->inq(ncid, ndims, nvars, natts, unlimited);
	if (f && rc == NC_NOERR && natts)
		*natts -= reserved(f, NC_GLOBAL);
	return rc;
}

/* Not by inq_natts and inq_varnatts of PnetCDF, as these call ncmpi_inq, which is ours. */
int door_inq_natts(int ncid, int *natts)
{
	return file_of(ncid) ? door_inq(ncid, NULL, NULL, natts, NULL)
			     : real->inq_natts(ncid, natts);
}

int door_inq_varnatts(int ncid, int varid, int *natts)
{
	struct file *f = file_of(ncid);
	int rc = f ? real->inq_var(ncid, varid, NULL, NULL, NULL, NULL, natts)
		   : real->inq_varnatts(ncid, varid, natts);
	if (f && rc == NC_NOERR && natts)
		*natts -= reserved(f, varid);
	return rc;
}

static int cut_records(const struct file *f)
{
	int n = 0;
	for (int i = 0; i < f->nvars; i++)
		n += f->vars[i].is_cut && f->vars[i].is_record;
	return n;
}

/* All record variables. PnetCDF 1.12 does not say so: what it counts from is not initialised. */
static int record_variables(struct file *f)
{
	int n = cut_records(f), nvars = 0, unlimited = -1;
	if (other.inq_nvars(f->ncid, &nvars) != NC_NOERR ||
		other.inq_unlimdim(f->ncid, &unlimited) != NC_NOERR || unlimited < 0)
		return n;
	for (int v = 0; v < nvars; v++) {
		int ndims = 0;
		real->inq_var(f->ncid, v, NULL, NULL, &ndims, NULL, NULL);
		int *dims = must(calloc((size_t)ndims + 1, sizeof *dims));
		real->inq_var(f->ncid, v, NULL, NULL, NULL, dims, NULL);
		n += ndims > 0 && dims[0] == unlimited;
		free(dims);
	}
	return n;
}

int door_inq_num_rec_vars(int ncid, int *nvars)
{
	struct file *f = file_of(ncid);
	int rc = real->inq_num_rec_vars(ncid, nvars);
	if (f && rc == NC_NOERR && nvars)
		*nvars = record_variables(f);
	return rc;
}

int door_inq_num_fix_vars(int ncid, int *nvars)
{
	struct file *f = file_of(ncid);
	int rc = real->inq_num_fix_vars(ncid, nvars);
	if (f && rc == NC_NOERR && nvars && other.inq_nvars(ncid, nvars) == NC_NOERR)
		*nvars -= record_variables(f);
	return rc;
}

int door_inq_recsize(int ncid, MPI_Offset *size)
{
	struct file *f = file_of(ncid);
	int rc = real->inq_recsize(ncid, size), cut = f ? cut_records(f) : 0;
	if (!cut || rc != NC_NOERR || !size)
		return rc;
	int whole = record_variables(f) - cut;
	/* One alone is not padded; the master's is, then, as there are more. */
	*size = (*size + 3) / 4 * 4;
	for (int i = 0; i < f->nvars; i++) {
		const struct variable *v = &f->vars[i];
		MPI_Offset bytes = v->size;
		if (!v->is_cut || !v->is_record)
			continue;
		for (int d = 1; d < v->ndims; d++)
			bytes *= v->length[d];
		*size += cut + whole == 1 ? bytes : (bytes + 3) / 4 * 4;
	}
	return rc;
}

int door_inq_dim(int ncid, int dimid, char *name, MPI_Offset *length)
{
	struct file *f = file_of(ncid);
	int rc = real->inq_dim(ncid, dimid, name, length);
	if (f && rc == NC_NOERR && length && dimid == f->record_dim && *length < f->records)
		*length = f->records;
	return rc;
}

int door_inq_dimlen(int ncid, int dimid, MPI_Offset *length)
{
	return file_of(ncid) ? door_inq_dim(ncid, dimid, NULL, length)
			     : real->inq_dimlen(ncid, dimid, length);
}

int door_inq_var(
	int ncid, int varid, char *name, nc_type *type, int *ndims, int *dimids, int *natts)
{
	struct file *f = file_of(ncid);
	int rc = real->inq_var(ncid, varid, name, type, ndims, dimids, natts);
	if (f && rc == NC_NOERR && natts)
		*natts -= reserved(f, varid);
	f = cut_of(ncid, varid);
	if (f && rc == NC_NOERR && ndims)
		*ndims = f->vars[varid].ndims;
	if (f && rc == NC_NOERR && dimids)
		memcpy(dimids, f->vars[varid].dimids,
			(size_t)f->vars[varid].ndims * sizeof *dimids);
	return rc;
}

int door_inq_varndims(int ncid, int varid, int *ndims)
{
	return cut_of(ncid, varid) ? door_inq_var(ncid, varid, NULL, NULL, ndims, NULL, NULL)
				   : real->inq_varndims(ncid, varid, ndims);
}

int door_inq_vardimid(int ncid, int varid, int *dimids)
{
	return cut_of(ncid, varid) ? door_inq_var(ncid, varid, NULL, NULL, NULL, dimids, NULL)
				   : real->inq_vardimid(ncid, varid, dimids);
}

int door_inq_put_size(int ncid, MPI_Offset *size)
{
	struct file *f = file_of(ncid);
	int rc = real->inq_put_size(ncid, size);
	if (f && rc == NC_NOERR && size)
		*size += f->put_bytes;
	return rc;
}

int door_inq_get_size(int ncid, MPI_Offset *size)
{
	struct file *f = file_of(ncid);
	int rc = real->inq_get_size(ncid, size);
	if (f && rc == NC_NOERR && size)
		*size += f->got_bytes;
	return rc;
}

/* --- attributes --- */

/* Those of the layout are neither counted nor listed. */
int door_inq_attname(int ncid, int varid, int number, char *name)
{
	struct file *f = file_of(ncid);
	char found[NC_MAX_NAME + 1];
	if (!f || number < 0 || !reserved(f, varid))
		return real->inq_attname(ncid, varid, number, name);
	for (int i = 0;; i++) {
		int rc = real->inq_attname(ncid, varid, i, found);
		if (rc != NC_NOERR)
			return rc;
		if (is_reserved(f, varid, found) || number-- > 0)
			continue;
		if (name)
			strcpy(name, found);
		return NC_NOERR;
	}
}

int door_inq_attid(int ncid, int varid, const char *name, int *id)
{
	struct file *f = file_of(ncid);
	int number, rc = real->inq_attid(ncid, varid, name, &number);
	if (rc != NC_NOERR)
		return rc;
	int before = 0;
	for (int i = 0; f && reserved(f, varid) && i < number; i++) {
		char found[NC_MAX_NAME + 1];
		if (real->inq_attname(ncid, varid, i, found) == NC_NOERR)
			before += is_reserved(f, varid, found);
	}
	if (f && reserved(f, varid) && is_reserved(f, varid, name))
		return NC_ENOTATT;
	if (id)
		*id = number - before;
	return NC_NOERR;
}

static int refuse(struct file *f, const char *name)
{
	if (f->rank == 0)
		say(f, "the attribute %s says how the dataset is partitioned; take another name",
			name);
	return NC_ENAMEINUSE;
}

int door_copy_att(int from, int from_var, const char *name, int to, int to_var)
{
	struct file *f = file_of(to);
	return changed(f, to_var,
		f && is_reserved(f, to_var, name)
			? refuse(f, name)
			: real->copy_att(from, from_var, name, to, to_var));
}

int door_rename_att(int ncid, int varid, const char *name, const char *now)
{
	struct file *f = file_of(ncid);
	int rc;
	if (f && is_reserved(f, varid, name))
		rc = NC_ENOTATT;
	else if (f && is_reserved(f, varid, now))
		rc = refuse(f, now);
	else
		rc = real->rename_att(ncid, varid, name, now);
	return changed(f, varid, rc);
}

int door_del_att(int ncid, int varid, const char *name)
{
	struct file *f = file_of(ncid);
	return changed(f, varid,
		f && is_reserved(f, varid, name) ? NC_ENOTATT : real->del_att(ncid, varid, name));
}

#define PUT(function, PARAMETERS, ARGUMENTS) \
	int door_##function PARAMETERS \
	{ \
		struct file *f = file_of(ncid); \
		return changed(f, varid, \
			f && is_reserved(f, varid, name) ? refuse(f, name) \
							 : real->function ARGUMENTS); \
	}
#define PUT_TYPED(suffix, ctype) \
	PUT(put_att_##suffix, \
		(int ncid, int varid, const char *name, nc_type type, MPI_Offset count, \
			const ctype *value), \
		(ncid, varid, name, type, count, value))

PUT(put_att,
	(int ncid, int varid, const char *name, nc_type type, MPI_Offset count, const void *value),
	(ncid, varid, name, type, count, value))
PUT(put_att_text, (int ncid, int varid, const char *name, MPI_Offset count, const char *value),
	(ncid, varid, name, count, value))
PUT_TYPED(schar, signed char)
PUT_TYPED(uchar, unsigned char)
PUT_TYPED(ubyte, unsigned char)
PUT_TYPED(short, short)
PUT_TYPED(int, int)
PUT_TYPED(long, long)
PUT_TYPED(float, float)
PUT_TYPED(double, double)
PUT_TYPED(ushort, unsigned short)
PUT_TYPED(uint, unsigned int)
PUT_TYPED(longlong, long long)
PUT_TYPED(ulonglong, unsigned long long)
