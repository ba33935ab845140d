/* What is cut and how, and what the partitions say of it (docs/FORMAT.md section 14). */
#include "door.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void variable_add(struct file *f, const struct variable *v)
{
	f->vars = must(realloc(f->vars, (size_t)(f->nvars + 1) * sizeof *f->vars));
	f->vars[f->nvars++] = *v;
}

static int size_of(nc_type type)
{
	static const int SIZES[] = {0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8};
	return type > 0 && type < (int)(sizeof SIZES / sizeof *SIZES) ? SIZES[type] : 0;
}

void part_of(const struct variable *v, int k, MPI_Offset *low, MPI_Offset *length)
{
	/* In two parts, as a dimension may be as long as numbers are. */
	MPI_Offset whole = v->length[v->dim], each = whole / v->parts, more = whole % v->parts;
	*low = each * k + more * k / v->parts;
	*length = each * (k + 1) + more * (k + 1) / v->parts - *low;
}

/* The dimensions of a variable, and their lengths. */
static int shape_read(struct file *f, struct variable *v, int ndims, const int *dimids)
{
	int unlimited = -1, rc = other.inq_unlimdim(f->ncid, &unlimited);
	v->ndims = ndims;
	v->dimids = must(calloc((size_t)ndims + 1, sizeof *v->dimids));
	v->length = must(calloc((size_t)ndims + 1, sizeof *v->length));
	for (int d = 0; rc == NC_NOERR && d < ndims; d++) {
		v->dimids[d] = dimids[d];
		if (d == 0 && dimids[d] == unlimited)
			v->is_record = true;
		else
			rc = real->inq_dim(f->ncid, dimids[d], NULL, &v->length[d]);
		if (rc == NC_NOERR && d > 0 && dimids[d] == unlimited)
			rc = NC_EUNLIMPOS;
	}
	if (v->is_record)
		f->record_dim = unlimited;
	return rc;
}

/* The number of a variable in each partition: those that are cut so far that they are there have
 * them, in the order of the master. */
static void ids_find(struct file *f, struct variable *v)
{
	v->ids = must(calloc((size_t)v->parts, sizeof *v->ids));
	for (const struct variable *w = f->vars; w < f->vars + f->nvars && w != v; w++)
		for (int k = 0; w->is_cut && k < v->parts && k < w->parts; k++)
			v->ids[k]++;
}

/* Is the variable to be cut, along what, into how many? NC_NOERR if it is to stay whole, too. */
static int choose(struct file *f, const char *name, struct variable *v)
{
	MPI_Offset bytes = v->size;
	for (int d = v->is_record; d < v->ndims; d++)
		bytes = v->length[d] && bytes > INT64_MAX / v->length[d] ? INT64_MAX
									 : bytes * v->length[d];
	if ((v->ndims < 2 && bytes < f->settings.min_bytes) || v->ndims > MOST_DIMS)
		return NC_NOERR;
	/* Where ranges are attributes of four bytes. */
	MPI_Offset most = f->format == NC_FORMAT_CDF5 ? INT64_MAX : INT_MAX;
	char *asked = settings_dim(&f->settings, name);
	v->dim = -1;
	for (int d = 0; asked && d < v->ndims; d++) {
		char dim[NC_MAX_NAME + 1];
		if (other.inq_dimname(f->ncid, v->dimids[d], dim) != NC_NOERR ||
			strcmp(dim, asked) != 0)
			continue;
		if (d == 0 && v->is_record) {
			if (f->rank == 0)
				say(f,
					"variable %s cannot be partitioned along %s, which is "
					"unlimited: every record that is appended would move the "
					"bounds of all parts. Name another dimension in the hint "
					"nc_partition_dim, or none",
					name, dim);
			free(asked);
			return NC_ENOTSUPPORT;
		}
		v->dim = d;
		break;
	}
	free(asked);
	for (int d = v->is_record; v->dim < 0 && d < v->ndims; d++)
		if (v->length[d] >= f->parts)
			v->dim = d;
	if (v->dim < 0 || v->length[v->dim] > most || v->length[v->dim] < 1)
		return NC_NOERR;
	v->parts = v->length[v->dim] < f->parts ? (int)v->length[v->dim] : f->parts;
	v->is_cut = true;
	return NC_NOERR;
}

int door_def_var(
	int ncid, const char *name, nc_type type, int ndims, const int *dimids, int *varidp)
{
	struct file *f = file_of(ncid);
	if (!f)
		return real->def_var(ncid, name, type, ndims, dimids, varidp);
	struct variable v = {.type = type, .size = size_of(type)};
	int rc = NC_NOERR, varid;
	/* What is wrong is for PnetCDF to say. */
	bool is_sound = f->mode == DEFINE && name && v.size && ndims > 0 && dimids;
	if (is_sound && shape_read(f, &v, ndims, dimids) == NC_NOERR)
		rc = choose(f, name, &v);
	if (rc == NC_NOERR)
		rc = real->def_var(
			ncid, name, type, v.is_cut ? 0 : ndims, v.is_cut ? NULL : dimids, &varid);
	if (rc != NC_NOERR) {
		free(v.dimids);
		free(v.length);
		return rc;
	}
	variable_add(f, &v);
	if (v.is_cut)
		ids_find(f, &f->vars[f->nvars - 1]);
	if (varidp)
		*varidp = varid;
	return NC_NOERR;
}

/* The attributes that the layout has. */
static const char *const OF_VARIABLES[] = {
	"num_partitions", "ndims_org", "dimids_org", "partition_dim"};

bool is_reserved(struct file *f, int varid, const char *name)
{
	if (!name)
		return false;
	if (varid == NC_GLOBAL) {
		if (strncmp(name, "partition_", 10) != 0)
			return false;
		const char *rest = name + 10;
		return strcmp(rest, "run") == 0 ||
		       (*rest && strspn(rest, "0123456789") == strlen(rest));
	}
	for (size_t i = 0; i < sizeof OF_VARIABLES / sizeof *OF_VARIABLES; i++)
		if (strcmp(name, OF_VARIABLES[i]) == 0)
			return varid >= 0 && varid < f->nvars && f->vars[varid].is_cut;
	return false;
}

/* A number of an attribute that has `count` of them; NC_EINVAL if it is another kind. */
static int numbers_read(struct file *f, int varid, const char *name, MPI_Offset count, int *out)
{
	nc_type type;
	MPI_Offset length;
	int rc = other.inq_att(f->ncid, varid, name, &type, &length);
	if (rc != NC_NOERR || type != NC_INT || length != count)
		return rc != NC_NOERR ? rc : NC_EINVAL;
	return other.get_att(f->ncid, varid, name, out);
}

int variable_read(struct file *f, int varid)
{
	struct variable v = {0};
	int *dimids = NULL, ndims = 0, dimensions = 0, unused;
	char name[NC_MAX_NAME + 1] = "";
	int rc = real->inq_var(f->ncid, varid, name, &v.type, &ndims, NULL, NULL);
	v.size = size_of(v.type);
	if (rc != NC_NOERR)
		return rc;
	if (ndims > 0 || other.inq_att(f->ncid, varid, OF_VARIABLES[0], NULL, NULL) != NC_NOERR) {
		dimids = must(calloc((size_t)ndims + 1, sizeof *dimids));
		rc = real->inq_vardimid(f->ncid, varid, dimids);
		if (rc == NC_NOERR)
			rc = shape_read(f, &v, ndims, dimids);
		free(dimids);
		v.is_defined = true;
		variable_add(f, &v);
		return rc;
	}
	rc = real->inq(f->ncid, &dimensions, &unused, &unused, &unused);
	if (rc == NC_NOERR)
		rc = numbers_read(f, varid, "num_partitions", 1, &v.parts);
	if (rc == NC_NOERR)
		rc = numbers_read(f, varid, "ndims_org", 1, &ndims);
	if (rc == NC_NOERR)
		rc = numbers_read(f, varid, "partition_dim", 1, &v.dim);
	if (rc == NC_NOERR && (v.parts < 1 || v.parts > f->parts || ndims < 1 || v.dim < 0 ||
				      v.dim >= ndims || v.size == 0 || ndims > MOST_DIMS))
		rc = NC_EINVAL;
	if (rc == NC_NOERR) {
		dimids = must(calloc((size_t)ndims, sizeof *dimids));
		rc = numbers_read(f, varid, "dimids_org", ndims, dimids);
	}
	for (int d = 0; rc == NC_NOERR && d < ndims; d++)
		if (dimids[d] < 0 || dimids[d] >= dimensions)
			rc = NC_EBADDIM;
	if (rc == NC_NOERR)
		rc = shape_read(f, &v, ndims, dimids);
	if (rc == NC_NOERR && v.length[v.dim] < v.parts)
		rc = NC_EINVAL;
	free(dimids);
	if (rc != NC_NOERR) {
		free(v.dimids);
		free(v.length);
		if (f->rank == 0)
			say(f,
				"what it says of the partitioned variable %s is damaged "
				"(attributes "
				"num_partitions, ndims_org, dimids_org, partition_dim)",
				name);
		return NC_EFILEMETA;
	}
	v.is_cut = v.is_defined = true;
	variable_add(f, &v);
	ids_find(f, &f->vars[varid]);
	return NC_NOERR;
}

/* Are the partitions to have a variable anew? */
static bool is_due(const struct variable *v)
{
	return v->is_cut && (!v->is_defined || v->is_stale);
}

/* Collective: is there one? It is for rank 0 to say, which has written the master. */
static bool partitions_are_stale(const struct file *f)
{
	int is_any = 0;
	for (int v = 0; v < f->nvars; v++)
		is_any |= is_due(&f->vars[v]);
	PMPI_Bcast(&is_any, 1, MPI_INT, 0, f->comm);
	return is_any;
}

int master_define(struct file *f)
{
	int rc = NC_NOERR;
	for (int i = 0; rc == NC_NOERR && i < f->nvars; i++) {
		const struct variable *v = &f->vars[i];
		if (!v->is_cut || v->is_defined)
			continue;
		rc = real->put_att(f->ncid, i, "num_partitions", NC_INT, 1, &v->parts);
		if (rc == NC_NOERR)
			rc = real->put_att(f->ncid, i, "ndims_org", NC_INT, 1, &v->ndims);
		if (rc == NC_NOERR)
			rc = real->put_att(f->ncid, i, "dimids_org", NC_INT, v->ndims, v->dimids);
		if (rc == NC_NOERR)
			rc = real->put_att(f->ncid, i, "partition_dim", NC_INT, 1, &v->dim);
		for (int k = 0; rc == NC_NOERR && !f->is_named && k < f->parts; k++) {
			char key[32];
			snprintf(key, sizeof key, "partition_%d", k);
			rc = real->put_att_text(f->ncid, NC_GLOBAL, key,
				(MPI_Offset)strlen(f->partition[k].name), f->partition[k].name);
		}
		if (rc == NC_NOERR && !f->is_named)
			rc = real->put_att_text(f->ncid, NC_GLOBAL, "partition_run", 16, f->run);
		f->is_named |= rc == NC_NOERR;
	}
	return rc;
}

/* --- what the partitions are to say --- */

/* In the file of the master is what rank 0 knows, as PnetCDF has that rank write it: others may
 * have given other arguments, or got an error. So rank 0 tells all what there is to be in
 * partitions. */
#define NAME_BYTES (2 * NC_MAX_NAME + 8)

struct told {
	int64_t no_fill;
	char name[NC_MAX_NAME + 8], range[NC_MAX_NAME + 16];
	/* Of each dimension its name; then attributes, the last of which has no name. */
	char dims[][NAME_BYTES];
};

/* Behind it are the values, with zeros up to a multiple of 8. */
struct attribute {
	char name[NC_MAX_NAME + 8];
	int64_t type, length, bytes;
};

static const struct attribute *attribute_next(const struct attribute *a)
{
	return (const void *)((const char *)(a + 1) + a->bytes);
}

/* The name of dimension d of a variable there; of the record dimension, of which a file has one,
 * its own. */
static void dim_name(struct file *f, int varid, int d, char *out, size_t size)
{
	const struct variable *v = &f->vars[varid];
	char dim[NC_MAX_NAME + 1] = "", var[NC_MAX_NAME + 1] = "";
	other.inq_dimname(f->ncid, v->dimids[d], dim);
	other.inq_varname(f->ncid, varid, var);
	if (d == 0 && v->is_record)
		snprintf(out, size, "%s", dim);
	else if (strlen(dim) + strlen(var) + 1 <= NC_MAX_NAME)
		snprintf(out, size, "%s.%s", dim, var);
	else
		snprintf(out, size, "dim%d.var%d", v->dimids[d], varid);
}

static int variable_tell(struct file *f, int varid, FILE *to)
{
	const struct variable *v = &f->vars[varid];
	struct told told = {0};
	char dim[NC_MAX_NAME + 1] = "", name[NAME_BYTES] = "";
	int no_fill = 1, natts = 0;
	int rc = real->inq_var(f->ncid, varid, told.name, NULL, NULL, NULL, &natts);
	if (rc == NC_NOERR)
		rc = other.inq_var_fill(f->ncid, varid, &no_fill, NULL);
	told.no_fill = no_fill;
	other.inq_dimname(f->ncid, v->dimids[v->dim], dim);
	snprintf(told.range, sizeof told.range,
		strlen(dim) + 7 <= NC_MAX_NAME ? "range(%s)" : "range", dim);
	fwrite(&told, sizeof told, 1, to);
	for (int d = 0; d < v->ndims; d++) {
		dim_name(f, varid, d, name, sizeof name);
		fwrite(name, sizeof name, 1, to);
	}
	for (int a = 0; rc == NC_NOERR && a < natts; a++) {
		struct attribute att = {0};
		nc_type type = NC_NAT;
		MPI_Offset length = 0;
		rc = real->inq_attname(f->ncid, varid, a, att.name);
		/* A fill value can only be given to a new variable. */
		if (rc != NC_NOERR || is_reserved(f, varid, att.name) ||
			(v->is_defined && strcmp(att.name, _FillValue) == 0))
			continue;
		rc = other.inq_att(f->ncid, varid, att.name, &type, &length);
		att.type = type;
		att.length = length;
		att.bytes = (length * size_of(type) + 7) / 8 * 8;
		char *value = must(calloc(1, (size_t)att.bytes + 8));
		if (rc == NC_NOERR)
			rc = other.get_att(f->ncid, varid, att.name, value);
		fwrite(&att, sizeof att, 1, to);
		fwrite(value, (size_t)att.bytes, 1, to);
		free(value);
	}
	fwrite(&(struct attribute){0}, sizeof(struct attribute), 1, to);
	return rc;
}

/* Collective: each variable that is due has what rank 0 told of it. `*bytes` has that, and is to be
 * freed. */
static int variables_tell(struct file *f, char **bytes)
{
	/* An error, the size of all, and where each is. */
	int64_t *numbers = must(calloc((size_t)f->nvars + 2, sizeof *numbers)), *at = numbers + 2;
	int rc = NC_NOERR;
	if (f->rank == 0) {
		size_t size = 0;
		FILE *to = must(open_memstream(bytes, &size));
		for (int i = 0; i < f->nvars; i++) {
			at[i] = is_due(&f->vars[i]) ? ftell(to) : -1;
			if (at[i] >= 0 && rc == NC_NOERR)
				rc = variable_tell(f, i, to);
		}
		if (fclose(to) != 0)
			must(NULL);
		numbers[0] = size > INT_MAX ? NC_EINTOVERFLOW : rc;
		numbers[1] = (int64_t)size;
	}
	PMPI_Bcast(numbers, f->nvars + 2, MPI_INT64_T, 0, f->comm);
	rc = (int)numbers[0];
	if (f->rank > 0)
		*bytes = must(malloc((size_t)numbers[1] + 1));
	if (rc == NC_NOERR)
		PMPI_Bcast(*bytes, (int)numbers[1], MPI_BYTE, 0, f->comm);
	for (int i = 0; i < f->nvars; i++)
		f->vars[i].told = rc == NC_NOERR && at[i] >= 0 ? (const void *)(*bytes + at[i])
							       : NULL;
	free(numbers);
	return rc;
}

/* --- what is in one partition --- */

static int dims_define(struct file *f, int varid, int k, int ncid, int *ids)
{
	const struct variable *v = &f->vars[varid];
	int rc = NC_NOERR;
	for (int d = 0; rc == NC_NOERR && d < v->ndims; d++) {
		MPI_Offset low, length = v->length[d];
		if (d == v->dim)
			part_of(v, k, &low, &length);
		if (d == 0 && v->is_record) {
			rc = other.inq_unlimdim(ncid, &ids[d]);
			if (rc != NC_NOERR || ids[d] >= 0)
				continue;
			length = NC_UNLIMITED;
		}
		char another[NAME_BYTES + 16];
		const char *name = v->told->dims[d];
		rc = other.def_dim(ncid, name, length, &ids[d]);
		/* A dimension that the variable has twice, or x.y of z and x of y.z. */
		for (int n = 2; rc == NC_ENAMEINUSE && n < 1000; n++) {
			snprintf(another, sizeof another, "%.240s.%d", name, n);
			rc = other.def_dim(ncid, another, length, &ids[d]);
		}
	}
	return rc;
}

/* The partition's variable gets the attributes of the master's, and its range. */
static int attributes_define(struct file *f, int varid, int k, int ncid)
{
	const struct variable *v = &f->vars[varid];
	int id = v->ids[k], natts = 0, kept = 0;
	char name[NC_MAX_NAME + 1];
	int rc = real->inq_var(ncid, id, NULL, NULL, NULL, NULL, &natts);
	for (; rc == NC_NOERR && natts > 0; natts--) {
		rc = real->inq_attname(ncid, id, kept, name);
		if (rc == NC_NOERR && strcmp(name, _FillValue) == 0)
			kept = 1;
		else if (rc == NC_NOERR)
			rc = real->del_att(ncid, id, name);
	}
	const struct attribute *a = (const void *)v->told->dims[v->ndims];
	for (; rc == NC_NOERR && *a->name; a = attribute_next(a))
		rc = real->put_att(ncid, id, a->name, (nc_type)a->type, a->length, a + 1);
	if (rc != NC_NOERR)
		return rc;
	const char *key = v->told->range;
	MPI_Offset low, length;
	part_of(v, k, &low, &length);
	long long wide[] = {low, low + length - 1};
	int narrow[] = {(int)wide[0], (int)wide[1]};
	return f->format == NC_FORMAT_CDF5 ? real->put_att(ncid, id, key, NC_INT64, 2, wide)
					   : real->put_att(ncid, id, key, NC_INT, 2, narrow);
}

static int variable_define(struct file *f, int varid, int k, int ncid)
{
	const struct variable *v = &f->vars[varid];
	int id = -1, *dims = must(calloc((size_t)v->ndims, sizeof *dims));
	int rc = dims_define(f, varid, k, ncid, dims);
	if (rc == NC_NOERR)
		rc = real->def_var(ncid, v->told->name, v->type, v->ndims, dims, &id);
	free(dims);
	if (rc == NC_NOERR && id != v->ids[k])
		rc = NC_EMULTIDEFINE_VAR_NUM;
	if (rc == NC_NOERR)
		rc = attributes_define(f, varid, k, ncid);
	return rc == NC_NOERR ? other.def_var_fill(ncid, id, (int)v->told->no_fill, NULL) : rc;
}

/* Names that have changed, and attributes. */
static int variable_renew(struct file *f, int varid, int k, int ncid)
{
	const struct variable *v = &f->vars[varid];
	char old[NC_MAX_NAME + 1] = "";
	int *dims = must(calloc((size_t)v->ndims, sizeof *dims));
	int rc = real->inq_var(ncid, v->ids[k], old, NULL, NULL, dims, NULL);
	if (rc == NC_NOERR && strcmp(v->told->name, old) != 0)
		rc = real->rename_var(ncid, v->ids[k], v->told->name);
	for (int d = 0; rc == NC_NOERR && d < v->ndims; d++) {
		const char *wanted = v->told->dims[d];
		rc = other.inq_dimname(ncid, dims[d], old);
		/* x.y.2 is one that had to be told from another. */
		if (rc == NC_NOERR && strncmp(old, wanted, strlen(wanted)) != 0) {
			rc = real->rename_dim(ncid, dims[d], wanted);
			if (rc == NC_ENAMEINUSE)
				rc = NC_NOERR;
		}
	}
	free(dims);
	return rc == NC_NOERR ? attributes_define(f, varid, k, ncid) : rc;
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/'), *colon = strchr(path, ':');
	return slash ? slash + 1 : colon ? colon + 1 : path;
}

/* May a new partition take the place of what is there? Only if that goes with the master that is
 * replaced: of its run. */
static int place_check(struct file *f, int k, const char *run, char *why, size_t size)
{
	int ncid, rc = real->open(MPI_COMM_SELF, f->partition[k].path, NC_NOWRITE, f->info, &ncid);
	if (rc == NC_ENOENT)
		return NC_NOERR;
	char *there = NULL, *master = NULL;
	if (rc == NC_NOERR) {
		there = global_text(ncid, "partition_run");
		master = global_text(ncid, "partition_master");
		real->close(ncid);
	}
	bool is_free = there && strcmp(there, run) == 0;
	if (rc != NC_NOERR)
		snprintf(why, size, "which cannot be opened (%s). Remove it", other.strerror(rc));
	else if (!there || !master)
		snprintf(why, size, "which is no partition. Remove it");
	else
		snprintf(why, size,
			"a partition of a dataset that was created as %.512s and is not replaced "
			"(its master has partition_run = %s, whatever it is called now). Move it "
			"together with its master, or remove it if there is none",
			master, there);
	free(there);
	free(master);
	return is_free ? NC_NOERR : NC_EEXIST;
}

int places_check(struct file *f, const char *run)
{
	char why[1024] = "";
	int mine = INT_MAX, bad;
	for (int k = 0; k < f->parts && mine == INT_MAX; k++) {
		int first, count;
		group_of(f, k, &first, &count);
		if (f->rank == first && place_check(f, k, run, why, sizeof why) != NC_NOERR)
			mine = k;
	}
	if (PMPI_Allreduce(&mine, &bad, 1, MPI_INT, MPI_MIN, f->comm) != MPI_SUCCESS)
		return NC_EMPI;
	if (bad == INT_MAX)
		return NC_NOERR;
	if (bad == mine)
		say(f,
			"nothing is created: partition %d would be %s, but there is a file of that "
			"name, %s; or name other directories in the hint nc_partition_dirs",
			bad, f->partition[bad].path, why);
	return NC_EEXIST;
}

/* Its place is free: what was there went with the master that has been replaced. */
static int partition_create(struct file *f, int k, MPI_Comm comm, int *ncid)
{
	static const int MODES[] = {
		[NC_FORMAT_CDF2] = NC_64BIT_OFFSET, [NC_FORMAT_CDF5] = NC_64BIT_DATA};
	int rank = 0;
	PMPI_Comm_rank(comm, &rank);
	const char *name = f->partition[k].name, *master = base_of(f->path);
	int rc = real->create(
		comm, f->partition[k].path, NC_NOCLOBBER | MODES[f->format], f->info, ncid);
	if (rc != NC_NOERR) {
		if (rank == 0)
			say(f, "partition %d, %s, cannot be created: %s%s", k, f->partition[k].path,
				other.strerror(rc),
				rc == NC_EEXIST ? ". It has come since ncmpi_create, or that could "
						  "not remove it: do so, and create anew"
						: "");
		return rc;
	}
	rc = real->put_att(*ncid, NC_GLOBAL, "partition_index", NC_INT, 1, &k);
	if (rc == NC_NOERR)
		rc = real->put_att_text(*ncid, NC_GLOBAL, "partition_run", 16, f->run);
	/* Beside the master its name is enough, and stays right if all are moved. */
	char where[4096];
	const char *path = master;
	if (*name == '/' && *f->path != '/' && getcwd(where, sizeof where - strlen(f->path) - 2)) {
		strcat(strcat(where, "/"), f->path);
		path = where;
	} else if (*name == '/') {
		path = f->path;
	}
	if (rc == NC_NOERR)
		rc = real->put_att_text(
			*ncid, NC_GLOBAL, "partition_master", (MPI_Offset)strlen(path), path);
	if (rc != NC_NOERR)
		real->abort(*ncid);
	return rc;
}

/* Collective, in data mode: a variable that is new in a file has its fill value in the records
 * [from, to), which PnetCDF did not know of. */
static int records_fill(int ncid, int id, MPI_Offset from, MPI_Offset to)
{
	int rc = NC_NOERR;
	for (; from < to; from++) {
		int result = real->fill_var_rec(ncid, id, from);
		rc = rc == NC_NOERR ? result : rc;
	}
	return rc;
}

int master_fill(struct file *f)
{
	MPI_Offset known = 0;
	int rc = f->record_dim < 0 ? NC_NOERR : real->inq_dim(f->ncid, f->record_dim, NULL, &known);
	for (int i = 0; rc == NC_NOERR && i < f->nvars; i++) {
		struct variable *v = &f->vars[i];
		int no_fill = 1;
		if (v->is_cut || v->is_defined)
			continue;
		if (v->is_record && known < f->records) {
			other.inq_var_fill(f->ncid, i, &no_fill, NULL);
			/* All fill it, or nobody does. */
			if (agree(f->comm, no_fill ? NC_ENOTFILL : NC_NOERR) == NC_NOERR)
				rc = agree(f->comm, records_fill(f->ncid, i, known, f->records));
		}
		v->is_defined = rc == NC_NOERR;
	}
	return rc == NC_NOERR ? master_follow(f) : rc;
}

int partitions_are_there(struct file *f)
{
	int rc = NC_NOERR;
	if (!partitions_are_stale(f))
		return rc;
	for (int k = 0; rc == NC_NOERR && k < f->parts; k++) {
		int first, count, ncid;
		group_of(f, k, &first, &count);
		if (f->rank != first || !f->partition[k].is_made)
			continue;
		rc = partition_open(f, k, MPI_COMM_SELF, &ncid);
		if (rc == NC_NOERR)
			rc = real->close(ncid);
	}
	rc = agree(f->comm, rc);
	if (rc != NC_NOERR && f->rank == 0)
		say(f, "nothing is defined: put the partition back, and repeat ncmpi_enddef");
	return rc;
}

static int partition_define(struct file *f, int k, MPI_Comm comm, const MPI_Offset *align)
{
	struct partition *p = &f->partition[k];
	bool is_stale = !p->is_made;
	int ncid, rc;
	for (int i = 0; i < f->nvars; i++)
		is_stale |= f->vars[i].told && k < f->vars[i].parts;
	if (!is_stale)
		return NC_NOERR;
	if (p->is_made) {
		rc = partition_open(f, k, comm, &ncid);
		if (rc == NC_NOERR)
			rc = real->redef(ncid);
	} else {
		rc = partition_create(f, k, comm, &ncid);
	}
	if (rc != NC_NOERR)
		return rc;
	for (int i = 0; rc == NC_NOERR && i < f->nvars; i++) {
		const struct variable *v = &f->vars[i];
		if (!v->told || k >= v->parts)
			continue;
		rc = v->is_defined ? variable_renew(f, i, k, ncid) : variable_define(f, i, k, ncid);
	}
	MPI_Offset known = 0;
	if (rc == NC_NOERR)
		rc = records_known(ncid, &known);
	if (rc == NC_NOERR)
		rc = align ? real->_enddef(ncid, align[0], align[1], align[2], align[3])
			   : real->enddef(ncid);
	for (int i = 0; rc == NC_NOERR && i < f->nvars; i++) {
		const struct variable *v = &f->vars[i];
		if (v->told && k < v->parts && v->is_record && !v->is_defined && !v->told->no_fill)
			rc = records_fill(ncid, v->ids[k], known, f->records);
	}
	int rank = 0;
	PMPI_Comm_rank(comm, &rank);
	if (rc != NC_NOERR && rank == 0)
		say(f, "partition %d, %s, cannot be defined: %s", k, p->path, other.strerror(rc));
	MPI_Offset needed = 0, present = 0;
	if (rc == NC_NOERR && rank == 0)
		rc = extent_of(f, k, ncid, &needed, &present);
	PMPI_Bcast(&rc, 1, MPI_INT, 0, comm);
	int closed = rc == NC_NOERR ? real->close(ncid) : real->abort(ncid);
	if (rc == NC_NOERR)
		rc = closed;
	/* Until all of it is written, reads get zeros, as in the middle of one file. */
	return rc == NC_NOERR && present < needed ? settle(f, k, 0, needed) : rc;
}

int partitions_define(struct file *f, const MPI_Offset *align)
{
	if (!partitions_are_stale(f))
		return NC_NOERR;
	char *bytes = NULL;
	int closed = handles_close(f), rc = variables_tell(f, &bytes);
	rc = agree(f->comm, rc == NC_NOERR ? closed : rc);
	if (rc == NC_NOERR)
		rc = records_agree(f, 0);
	if (rc == NC_NOERR)
		rc = records_settle(f);
	for (int k = 0; rc == NC_NOERR && k < f->parts; k++) {
		int first, count;
		group_of(f, k, &first, &count);
		if (f->rank >= first && f->rank < first + count)
			rc = partition_define(
				f, k, f->group == MPI_COMM_NULL ? MPI_COMM_SELF : f->group, align);
	}
	rc = agree(f->comm, rc);
	for (int k = 0; k < f->parts && rc == NC_NOERR; k++)
		f->partition[k].is_made = true;
	for (int i = 0; i < f->nvars; i++) {
		f->vars[i].told = NULL;
		if (f->vars[i].is_cut && rc == NC_NOERR)
			f->vars[i].is_defined = true, f->vars[i].is_stale = false;
	}
	free(bytes);
	f->is_written = true;
	return rc == NC_NOERR ? handles_open(f, false) : rc;
}

/* --- are they what the master says? --- */

static int partition_check(struct file *f, int k, MPI_Offset *records, char *why, size_t size)
{
	const struct partition *p = &f->partition[k];
	int ncid, index = -1;
	nc_type type;
	MPI_Offset length;
	char run[17] = "";
	int rc = real->open(
		MPI_COMM_SELF, p->path, f->is_writable ? NC_WRITE : NC_NOWRITE, f->info, &ncid);
	if (rc == NC_ENOENT) {
		snprintf(why, size,
			"is missing. Put it back where the master says (the attribute "
			"partition_%d), beside the other partitions",
			k);
		return rc;
	}
	if (rc != NC_NOERR) {
		snprintf(why, size, "cannot be opened: %s", other.strerror(rc));
		return rc;
	}
	f->partition[k].handle = ncid;
	if (other.inq_att(ncid, NC_GLOBAL, "partition_run", &type, &length) != NC_NOERR ||
		type != NC_CHAR || length != 16 ||
		other.get_att(ncid, NC_GLOBAL, "partition_run", run) != NC_NOERR ||
		other.inq_att(ncid, NC_GLOBAL, "partition_index", &type, &length) != NC_NOERR ||
		type != NC_INT || length != 1 ||
		other.get_att(ncid, NC_GLOBAL, "partition_index", &index) != NC_NOERR) {
		snprintf(why, size,
			"is a NetCDF file, but no partition. Put back the one that belongs "
			"there");
		return NC_ENOTNC;
	}
	if (strcmp(run, f->run) != 0) {
		snprintf(why, size,
			"is of another run (%s) than the master (%s). Put back the one of "
			"the same run; the attribute partition_run tells",
			run, f->run);
		return NC_EMULTIDEFINE;
	}
	if (index != k) {
		snprintf(why, size, "is partition %d. Put each back under its own name", index);
		return NC_EMULTIDEFINE;
	}
	for (int i = 0; i < f->nvars; i++) {
		const struct variable *v = &f->vars[i];
		char name[NC_MAX_NAME + 1] = "", there[NC_MAX_NAME + 1] = "";
		int ndims = 0, dims[MOST_DIMS];
		if (!v->is_cut || k >= v->parts)
			continue;
		other.inq_varname(f->ncid, i, name);
		rc = real->inq_var(ncid, v->ids[k], there, &type, &ndims, NULL, NULL);
		bool is_same = rc == NC_NOERR && strcmp(name, there) == 0 && type == v->type &&
			       ndims == v->ndims &&
			       real->inq_vardimid(ncid, v->ids[k], dims) == NC_NOERR;
		for (int d = 0; is_same && d < ndims; d++) {
			MPI_Offset expected = v->length[d], low, now;
			if (d == v->dim)
				part_of(v, k, &low, &expected);
			is_same = real->inq_dim(ncid, dims[d], NULL, &now) == NC_NOERR &&
				  ((d == 0 && v->is_record) || now == expected);
		}
		if (is_same && v->is_record &&
			(rc = real->inq_dim(ncid, dims[0], NULL, records)) != NC_NOERR)
			is_same = false;
		if (!is_same) {
			snprintf(why, size,
				"does not have the variable %s as the master says. A "
				"program without PLFS, or one that was killed while it "
				"defined, has changed one of them",
				name);
			return NC_EMULTIDEFINE_VAR_NUM;
		}
	}
	MPI_Offset needed, present;
	rc = extent_of(f, k, ncid, &needed, &present);
	if (rc == NC_NOERR && present < needed) {
		snprintf(why, size,
			"is truncated: %lld bytes of %lld. The program that wrote it was "
			"killed before ncmpi_close, or a copy was not complete",
			(long long)present, (long long)needed);
		return NC_ETRUNC;
	}
	if (rc != NC_NOERR)
		snprintf(why, size, "cannot be read: %s", other.strerror(rc));
	return rc;
}

int partitions_check(struct file *f)
{
	/* The first that is wrong; the fewest and the most records. By the least of each, with the
	 * most as its negative: not as MPI_OFFSET, of which Open MPI 4 takes all for positive. */
	int64_t mine[3] = {INT_MAX, INT64_MAX, 0}, all[3];
	int error = NC_NOERR;
	char why[1024] = "";
	for (int k = 0; k < f->parts && error == NC_NOERR; k++) {
		int first, count;
		MPI_Offset records = -1;
		group_of(f, k, &first, &count);
		if (f->rank != first)
			continue;
		error = partition_check(f, k, &records, why, sizeof why);
		if (error != NC_NOERR)
			mine[0] = k;
		if (records >= 0 && records < mine[1])
			mine[1] = records;
		if (-records < mine[2])
			mine[2] = -records;
	}
	if (PMPI_Allreduce(mine, all, 3, MPI_INT64_T, MPI_MIN, f->comm) != MPI_SUCCESS)
		return NC_EMPI;
	int bad = (int)all[0], first, count;
	if (bad == INT_MAX) {
		f->records = all[1] == INT64_MAX ? 0 : all[1];
		if (f->records != -all[2] && all[1] != INT64_MAX && f->rank == 0)
			say(f,
				"not all partitions have the same number of records (%lld to "
				"%lld): the "
				"program that wrote them was killed before ncmpi_close. The first "
				"%lld "
				"are taken",
				(long long)all[1], (long long)-all[2], (long long)all[1]);
		return NC_NOERR;
	}
	group_of(f, bad, &first, &count);
	if (f->rank == first)
		say(f, "partition %d, %s, %s", bad, f->partition[bad].path, why);
	PMPI_Bcast(&error, 1, MPI_INT, first, f->comm);
	return error;
}
