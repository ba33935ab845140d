/* Datasets: create, open, the modes, close. */
#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

const struct real *real;
struct other other;

/* By ncid, which PnetCDF gives out from 0. */
static struct file *files[NC_MAX_NFILES];

struct file *file_of(int ncid)
{
	return ncid >= 0 && ncid < NC_MAX_NFILES ? files[ncid] : NULL;
}

struct file *cut_of(int ncid, int varid)
{
	struct file *f = file_of(ncid);
	return f && varid >= 0 && varid < f->nvars && f->vars[varid].is_cut ? f : NULL;
}

void *must(void *memory)
{
	if (!memory) {
		fputs("plfs netcdf: no memory\n", stderr);
		abort();
	}
	return memory;
}

void say(const struct file *f, const char *format, ...)
{
	char text[2048];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	fprintf(stderr, "plfs netcdf: %s: %s\n", f->path, text);
}

int agree(MPI_Comm comm, int rc)
{
	/* Errors are negative; those of the system, which are not, come first. */
	int mine = rc > 0 ? NC_EFILE : rc, all;
	return PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS ? all
										     : NC_EMPI;
}

MPI_Offset records_of(struct file *f)
{
	MPI_Offset of_master = 0;
	if (f->record_dim < 0)
		return 0;
	real->inq_dim(f->ncid, f->record_dim, NULL, &of_master);
	return of_master > f->records ? of_master : f->records;
}

int records_agree(struct file *f, MPI_Offset more)
{
	int64_t mine = more > f->records ? more : f->records, all;
	if (PMPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_MAX, f->comm) != MPI_SUCCESS)
		return NC_EMPI;
	f->records = all;
	return NC_NOERR;
}

int master_follow(struct file *f)
{
	static const char NOTHING[8];
	MPI_Offset known = 0, start[MOST_DIMS] = {0}, count[MOST_DIMS] = {0};
	/* The last in a record, so what nobody has written of that is zeros. */
	const struct variable *v = NULL;
	for (int i = 0; i < f->nvars; i++)
		if (!f->vars[i].is_cut && f->vars[i].is_record && f->vars[i].ndims <= MOST_DIMS)
			v = &f->vars[i];
	if (!v || !f->is_writable || f->mode == DEFINE)
		return NC_NOERR;
	bool all = f->mode == COLLECTIVE;
	int varid = (int)(v - f->vars), rc = all ? NC_NOERR : real->sync_numrecs(f->ncid);
	if (rc == NC_NOERR)
		rc = real->inq_dim(f->ncid, f->record_dim, NULL, &known);
	bool is_behind = rc == NC_NOERR && known < f->records;
	if (agree(f->comm, is_behind ? NC_EFILE : NC_NOERR) == NC_NOERR)
		return rc;
	/* The last element of the last record, which nobody has written. */
	for (int d = 0; d < v->ndims; d++) {
		start[d] = (d == 0 ? f->records : v->length[d]) - 1;
		count[d] = f->rank == 0 && is_behind;
	}
	if (all)
		return real->put_vara_all(
			f->ncid, varid, start, count, NOTHING, 0, MPI_DATATYPE_NULL);
	if (f->rank == 0)
		rc = real->put_vara(f->ncid, varid, start, count, NOTHING, 0, MPI_DATATYPE_NULL);
	int synced = real->sync_numrecs(f->ncid);
	return rc == NC_NOERR ? synced : rc;
}

/* The end of a time in which each process appended by itself; `rc` is what became of the master. */
static int records_join(struct file *f, int rc)
{
	int agreed = records_agree(f, 0), all = agree(f->comm, rc != NC_NOERR ? rc : agreed);
	return all == NC_NOERR ? master_follow(f) : agreed;
}

/* One that PnetCDF has not opened yet. Collective. */
static struct file *file_new(
	MPI_Comm comm, const char *path, MPI_Info info, const struct settings *settings)
{
	struct file *f = must(calloc(1, sizeof *f));
	f->ncid = -1;
	f->path = must(strdup(path));
	f->settings = *settings;
	f->info = info_of_partitions(info);
	f->last = &f->first;
	f->next_id = FIRST_ID;
	f->record_dim = -1;
	f->group = MPI_COMM_NULL;
	PMPI_Comm_dup(comm, &f->comm);
	PMPI_Comm_rank(f->comm, &f->rank);
	PMPI_Comm_size(f->comm, &f->ranks);
	return f;
}

static void file_named(struct file *f, int ncid)
{
	f->ncid = ncid;
	other.inq_format(ncid, &f->format);
	files[ncid] = f;
}

static void partitions_new(struct file *f, int count)
{
	f->parts = count;
	f->partition = must(calloc((size_t)count, sizeof *f->partition));
	for (int k = 0; k < count; k++)
		f->partition[k].handle = -1;
	if (f->ranks >= count) {
		int color = 0, first, members;
		for (int k = 0; k < count; k++) {
			group_of(f, k, &first, &members);
			if (f->rank >= first && f->rank < first + members)
				color = k;
		}
		PMPI_Comm_split(f->comm, color, f->rank, &f->group);
	}
}

static void file_free(struct file *f)
{
	if (f->ncid >= 0)
		files[f->ncid] = NULL;
	requests_drop(f);
	for (int k = 0; k < f->parts; k++) {
		free(f->partition[k].name);
		free(f->partition[k].path);
	}
	free(f->partition);
	for (int v = 0; v < f->nvars; v++) {
		free(f->vars[v].dimids);
		free(f->vars[v].length);
		free(f->vars[v].ids);
	}
	free(f->vars);
	if (f->group != MPI_COMM_NULL)
		PMPI_Comm_free(&f->group);
	PMPI_Comm_free(&f->comm);
	PMPI_Info_free(&f->info);
	settings_free(&f->settings);
	free(f->path);
	free(f);
}

/* Collective. */
static void run_new(struct file *f)
{
	uint64_t number = 0;
	if (f->rank == 0 && getrandom(&number, sizeof number, 0) != sizeof number) {
		struct timespec now;
		clock_gettime(CLOCK_REALTIME, &now);
		number = (uint64_t)now.tv_sec * 1000000007 + (uint64_t)now.tv_nsec +
			 (uint64_t)getpid();
	}
	PMPI_Bcast(&number, 1, MPI_UINT64_T, 0, f->comm);
	snprintf(f->run, sizeof f->run, "%016llx", (unsigned long long)number);
}

int door_create(MPI_Comm comm, const char *path, int cmode, MPI_Info info, int *ncidp)
{
	struct settings settings;
	settings_read(&settings, info);
	int rc = settings_agree(&settings, comm, path);
	/* That of rank 0, as PnetCDF has it. */
	int mode = cmode;
	if (rc == NC_NOERR && settings.enabled)
		PMPI_Bcast(&mode, 1, MPI_INT, 0, comm);
	if (rc != NC_NOERR || !settings.enabled || mode & (NC_NETCDF4 | NC_BP) || !path) {
		settings_free(&settings);
		return rc != NC_NOERR ? rc : real->create(comm, path, cmode, info, ncidp);
	}
	struct file *f = file_new(comm, path, info, &settings);
	int count;
	char **dirs = targets_choose(f, &count);
	partitions_new(f, count);
	partition_paths(f, dirs);
	for (int k = 0; k < count; k++)
		free(dirs[k]);
	free(dirs);
	/* Of the dataset that this one replaces, before it is emptied. */
	struct stale stale = {0};
	if (f->rank == 0)
		stale_find(&stale, path);
	/* Copies of its partitions, where the new ones are to be. */
	for (int k = 0; *stale.run && k < count; k++)
		stale_add(&stale, f->partition[k].path);
	PMPI_Bcast(stale.run, sizeof stale.run, MPI_CHAR, 0, f->comm);
	int refused = places_check(f, stale.run);
	if (refused == NC_NOERR)
		rc = real->create(comm, path, cmode, info, ncidp);
	stale_remove(&stale, refused == NC_NOERR && rc == NC_NOERR);
	/* As in open. */
	if (refused != NC_NOERR || agree(f->comm, rc) != NC_NOERR) {
		file_free(f);
		return refused != NC_NOERR ? refused : rc;
	}
	file_named(f, *ncidp);
	if (f->format != NC_FORMAT_CLASSIC && f->format != NC_FORMAT_CDF2 &&
		f->format != NC_FORMAT_CDF5) {
		file_free(f);
		return NC_NOERR;
	}
	run_new(f);
	f->mode = DEFINE;
	f->is_writable = true;
	return NC_NOERR;
}

char *global_text(int ncid, const char *name)
{
	nc_type type;
	MPI_Offset length;
	if (other.inq_att(ncid, NC_GLOBAL, name, &type, &length) != NC_NOERR || type != NC_CHAR ||
		length < 1 || length > 4096)
		return NULL;
	char *text = must(calloc(1, (size_t)length + 1));
	if (other.get_att(ncid, NC_GLOBAL, name, text) == NC_NOERR)
		return text;
	free(text);
	return NULL;
}

/* Where a partition is that the master calls `name`. A prefix such as "ufs:" goes before both. */
static char *path_of(const char *master, const char *name)
{
	const char *slash = strrchr(master, '/'), *colon = strchr(master, ':');
	if (colon && slash && slash < colon)
		colon = NULL;
	size_t prefix = colon ? (size_t)(colon + 1 - master) : 0;
	size_t dir = slash ? (size_t)(slash + 1 - master) : prefix;
	size_t kept = *name == '/' ? prefix : dir;
	char *path = must(malloc(kept + strlen(name) + 1));
	memcpy(path, master, kept);
	strcpy(path + kept, name);
	return path;
}

static char *absolute(const char *path)
{
	char cwd[4096];
	char *all = must(malloc(sizeof cwd + strlen(path) + 2));
	if (*path == '/' || !getcwd(cwd, sizeof cwd))
		return strcpy(all, path);
	sprintf(all, "%s/%s", cwd, path);
	return all;
}

void partition_paths(struct file *f, char **dirs)
{
	const char *slash = strrchr(f->path, '/'), *colon = strchr(f->path, ':');
	const char *base = slash ? slash + 1 : colon ? colon + 1 : f->path;
	for (int k = 0; k < f->parts; k++) {
		char *dir = dirs[k] ? absolute(dirs[k]) : must(strdup(""));
		char *name = must(malloc(strlen(dir) + strlen(base) + 16));
		sprintf(name, "%s%s%s.%d", dir, *dir ? "/" : "", base, k);
		free(dir);
		f->partition[k].name = name;
		f->partition[k].path = path_of(f->path, name);
	}
}

/* The partitions that the master of `ncid` names: their names, to be freed. */
static char **names_of(int ncid, int *count)
{
	char **names = NULL, key[32];
	for (*count = 0;; ++*count) {
		snprintf(key, sizeof key, "partition_%d", *count);
		char *name = global_text(ncid, key);
		if (!name)
			return names;
		names = must(realloc(names, (size_t)(*count + 1) * sizeof *names));
		names[*count] = name;
	}
}

void stale_add(struct stale *stale, const char *path)
{
	size_t room = (size_t)stale->count + 1;
	stale->paths = must(realloc(stale->paths, room * sizeof *stale->paths));
	stale->paths[stale->count++] = must(strdup(path));
}

void stale_find(struct stale *stale, const char *path)
{
	int ncid;
	*stale = (struct stale){0};
	if (real->open(MPI_COMM_SELF, path, NC_NOWRITE, MPI_INFO_NULL, &ncid) != NC_NOERR)
		return;
	char *run = global_text(ncid, "partition_run");
	if (run && strlen(run) == 16) {
		int count;
		char **names = names_of(ncid, &count);
		strcpy(stale->run, run);
		for (int k = 0; k < count; k++) {
			char *partition = path_of(path, names[k]);
			stale_add(stale, partition);
			free(partition);
			free(names[k]);
		}
		free(names);
	}
	free(run);
	real->close(ncid);
}

void stale_remove(struct stale *stale, bool wanted)
{
	for (int k = 0; stale->paths && k < stale->count; k++) {
		int ncid;
		char *run = NULL;
		if (wanted && real->open(MPI_COMM_SELF, stale->paths[k], NC_NOWRITE, MPI_INFO_NULL,
				      &ncid) == NC_NOERR) {
			run = global_text(ncid, "partition_run");
			real->close(ncid);
		}
		if (run && strcmp(run, stale->run) == 0)
			real->delete(stale->paths[k], MPI_INFO_NULL);
		free(run);
		free(stale->paths[k]);
	}
	free(stale->paths);
	*stale = (struct stale){0};
}

int door_delete(const char *path, MPI_Info info)
{
	struct stale stale;
	stale_find(&stale, path);
	int rc = real->delete(path, info);
	stale_remove(&stale, rc == NC_NOERR);
	return rc;
}

int door_open(MPI_Comm comm, const char *path, int omode, MPI_Info info, int *ncidp)
{
	int rc = real->open(comm, path, omode, info, ncidp);
	/* Ranks may have asked for different modes, which only some are told. */
	if (agree(comm, rc) != NC_NOERR)
		return rc;
	char *run = global_text(*ncidp, "partition_run");
	int count = 0;
	char **names = run ? names_of(*ncidp, &count) : NULL;
	if (!count || strlen(run) != 16) {
		free(run);
		free(names);
		return NC_NOERR;
	}
	struct settings settings;
	settings_read(&settings, info);
	settings.enabled = true;
	rc = settings_agree(&settings, comm, path);
	struct file *f = file_new(comm, path, info, &settings);
	file_named(f, *ncidp);
	partitions_new(f, count);
	for (int k = 0; k < count; k++) {
		f->partition[k].name = names[k];
		f->partition[k].path = path_of(path, names[k]);
		f->partition[k].is_made = true;
	}
	free(names);
	strcpy(f->run, run);
	free(run);
	f->mode = COLLECTIVE;
	f->is_writable = omode & NC_WRITE;
	f->is_named = true;
	if (other.inq_unlimdim(f->ncid, &f->record_dim) != NC_NOERR)
		f->record_dim = -1;
	int nvars = 0;
	if (rc == NC_NOERR)
		rc = other.inq_nvars(f->ncid, &nvars);
	for (int v = 0; rc == NC_NOERR && v < nvars; v++)
		rc = variable_read(f, v);
	if (rc == NC_NOERR)
		rc = partitions_check(f);
	if (rc == NC_NOERR && f->is_writable)
		rc = records_mend(f);
	if (rc == NC_NOERR && f->is_writable)
		rc = handles_open(f, false);
	if (rc != NC_NOERR) {
		handles_close(f);
		file_free(f);
		real->close(*ncidp);
	}
	return rc;
}

/* With what a variable is filled. Other attributes are those of rank 0, as in PnetCDF. */
static void fill_mix(const struct file *f, int varid, uint64_t *sum)
{
	char fill[8] = "";
	nc_type type = 0;
	MPI_Offset length = 0;
	if (other.inq_att(f->ncid, varid, _FillValue, &type, &length) != NC_NOERR || length != 1)
		return;
	other.get_att(f->ncid, varid, _FillValue, fill);
	mix(sum, &type, sizeof type);
	mix(sum, fill, sizeof fill);
}

/* Collective: NC_EMULTIDEFINE, and a word, if ranks would not make the same partitions. PnetCDF
 * does not say so of what has the same shape, nor of what differs in variables that are cut. */
static int definitions_agree(struct file *f)
{
	uint64_t sum = MIX_START;
	for (int i = 0; i < f->nvars; i++) {
		const struct variable *v = &f->vars[i];
		char name[NC_MAX_NAME + 1] = "";
		int no_fill = 1;
		other.inq_varname(f->ncid, i, name);
		other.inq_var_fill(f->ncid, i, &no_fill, NULL);
		int numbers[] = {v->type, v->ndims, v->is_record, v->is_cut, v->dim, v->parts,
			v->is_defined, no_fill};
		mix(&sum, name, strlen(name) + 1);
		mix(&sum, numbers, sizeof numbers);
		for (int d = 0; v->is_cut && d < v->ndims; d++) {
			other.inq_dimname(f->ncid, v->dimids[d], name);
			mix(&sum, name, strlen(name) + 1);
			mix(&sum, &v->dimids[d], sizeof v->dimids[d]);
			mix(&sum, &v->length[d], sizeof v->length[d]);
		}
		if (v->is_cut)
			fill_mix(f, i, &sum);
	}
	uint64_t mine[2] = {sum, ~sum}, most[2];
	if (PMPI_Allreduce(mine, most, 2, MPI_UINT64_T, MPI_MAX, f->comm) != MPI_SUCCESS)
		return NC_EMPI;
	if (most[0] == ~most[1])
		return NC_NOERR;
	if (f->rank == 0)
		say(f, "nothing is defined: ranks have defined different variables, dimensions or "
		       "fill values, or in another order. Make them alike and repeat ncmpi_enddef; "
		       "ncmpi_close gives them up");
	return NC_EMULTIDEFINE;
}

/* The end of define mode. */
static int leave_define(struct file *f, const MPI_Offset *align)
{
	bool was_define = f->mode == DEFINE;
	/* Before the master says that they have what they have not. */
	int rc = was_define ? definitions_agree(f) : NC_NOERR;
	if (rc == NC_NOERR && was_define)
		rc = partitions_are_there(f);
	if (rc != NC_NOERR)
		return rc;
	if (was_define)
		rc = master_define(f);
	if (rc == NC_NOERR)
		rc = align ? real->_enddef(f->ncid, align[0], align[1], align[2], align[3])
			   : real->enddef(f->ncid);
	if (!was_define)
		return rc;
	/* There are no partitions that all could agree on, if some have failed. */
	int all = agree(f->comm, rc);
	f->is_undefined = all != NC_NOERR;
	if (rc == NC_NOERR)
		f->mode = COLLECTIVE;
	if (f->is_undefined)
		return rc != NC_NOERR ? rc : all;
	/* PnetCDF moves and fills as many records as a file says. */
	rc = records_agree(f, records_of(f));
	if (rc == NC_NOERR)
		rc = master_fill(f);
	rc = agree(f->comm, rc);
	return rc == NC_NOERR ? partitions_define(f, align) : rc;
}

int door_enddef(int ncid)
{
	struct file *f = file_of(ncid);
	return f ? leave_define(f, NULL) : real->enddef(ncid);
}

int door__enddef(int ncid, MPI_Offset h_minfree, MPI_Offset v_align, MPI_Offset v_minfree,
	MPI_Offset r_align)
{
	struct file *f = file_of(ncid);
	MPI_Offset align[] = {h_minfree, v_align, v_minfree, r_align};
	return f ? leave_define(f, align)
		 : real->_enddef(ncid, h_minfree, v_align, v_minfree, r_align);
}

int door_redef(int ncid)
{
	struct file *f = file_of(ncid);
	int rc = NC_NOERR;
	if (f && f->mode != DEFINE && f->is_writable)
		rc = agree(f->comm, records_join(f, NC_NOERR));
	if (rc == NC_NOERR)
		rc = real->redef(ncid);
	if (f && rc == NC_NOERR)
		f->mode = DEFINE;
	return rc;
}

int door_begin_indep_data(int ncid)
{
	struct file *f = file_of(ncid);
	int rc = real->begin_indep_data(ncid);
	if (f && rc == NC_NOERR)
		f->mode = INDEPENDENT;
	/* All ranks, whatever became of one. */
	int opened = f && f->is_writable ? handles_open(f, true) : NC_NOERR;
	return rc != NC_NOERR ? rc : opened;
}

int door_end_indep_data(int ncid)
{
	struct file *f = file_of(ncid);
	int rc = real->end_indep_data(ncid);
	if (f && rc == NC_NOERR)
		f->mode = COLLECTIVE;
	int joined = f ? records_join(f, rc) : NC_NOERR;
	return rc != NC_NOERR ? rc : joined;
}

int door_sync_numrecs(int ncid)
{
	struct file *f = file_of(ncid);
	int rc = real->sync_numrecs(ncid);
	int joined = f ? records_join(f, rc) : NC_NOERR;
	return rc != NC_NOERR ? rc : joined;
}

static int each_handle(struct file *f, int (*call)(int))
{
	int rc = NC_NOERR;
	for (int k = 0; k < f->parts; k++) {
		int result = f->partition[k].handle >= 0 ? call(f->partition[k].handle) : NC_NOERR;
		if (rc == NC_NOERR)
			rc = result;
	}
	return rc;
}

int door_sync(int ncid)
{
	struct file *f = file_of(ncid);
	int rc = real->sync(ncid);
	if (!f || f->mode == DEFINE)
		return rc;
	int result = each_handle(f, real->sync), joined = records_join(f, rc);
	int settled = records_settle(f);
	joined = joined == NC_NOERR ? settled : joined;
	return rc != NC_NOERR ? rc : result != NC_NOERR ? result : joined;
}

int door_flush(int ncid)
{
	struct file *f = file_of(ncid);
	int rc = real->flush(ncid);
	int result = f && f->mode != DEFINE ? each_handle(f, real->flush) : NC_NOERR;
	return rc != NC_NOERR ? rc : result;
}

/* What the exchange cost; for those who measure. Most of the longest is waiting for others, the
 * shortest is of the rank that others waited for. */
static void tell_times(struct file *f)
{
	const char *asked = getenv("PLFS_NC_TIMES");
	double mine[3] = {f->exchange_s, f->io_s, -f->exchange_s}, most[3];
	if (!asked || !*asked || strcmp(asked, "0") == 0)
		return;
	PMPI_Reduce(mine, most, 3, MPI_DOUBLE, MPI_MAX, 0, f->comm);
	if (f->rank == 0)
		fprintf(stderr,
			"plfs netcdf: %s: %d partitions, %d ranks: exchange %.6f to %.6f s, input "
			"and output %.6f s\n",
			f->path, f->parts, f->ranks, -most[2], most[0], most[1]);
}

/* Closes the partitions, which have what was written. */
static int partitions_leave(struct file *f)
{
	int rc = records_agree(f, records_of(f));
	if (rc == NC_NOERR)
		rc = master_follow(f);
	int written = f->is_writable && f->is_written, any = 0;
	PMPI_Allreduce(&written, &any, 1, MPI_INT, MPI_MAX, f->comm);
	int result = handles_close(f);
	rc = rc == NC_NOERR ? result : rc;
	PMPI_Barrier(f->comm);
	if (any)
		result = partitions_settle(f);
	tell_times(f);
	result = agree(f->comm, result);
	return rc == NC_NOERR ? result : rc;
}

int door_close(int ncid)
{
	struct file *f = file_of(ncid);
	if (!f)
		return real->close(ncid);
	int rc = NC_NOERR;
	if (f->is_undefined) {
		handles_close(f);
		file_free(f);
		return real->close(ncid);
	}
	bool was_named = f->is_named;
	if (f->mode == DEFINE)
		rc = leave_define(f, NULL);
	/* What cannot be defined stays as it was, or is not there if it is new; PnetCDF's close
	 * would define the master. */
	bool is_given_up = f->mode == DEFINE && (was_named || !f->is_undefined);
	if (f->first) {
		requests_drop(f);
		rc = rc == NC_NOERR ? NC_EPENDING : rc;
	}
	int result = partitions_leave(f);
	rc = rc == NC_NOERR ? result : rc;
	file_free(f);
	result = is_given_up ? real->abort(ncid) : real->close(ncid);
	return rc == NC_NOERR ? result : rc;
}

/* What was being defined is given up. What was written before stays, as PnetCDF has it. */
int door_abort(int ncid)
{
	struct file *f = file_of(ncid);
	int rc = NC_NOERR;
	if (f) {
		requests_drop(f);
		if (!f->is_undefined)
			rc = partitions_leave(f);
		file_free(f);
	}
	int result = real->abort(ncid);
	return rc == NC_NOERR ? result : rc;
}

int door_inq_file_info(int ncid, MPI_Info *info)
{
	struct file *f = file_of(ncid);
	int rc = real->inq_file_info(ncid, info);
	if (f && rc == NC_NOERR && info)
		settings_show(&f->settings, f->parts, *info);
	return rc;
}

int door_get_file_info(int ncid, MPI_Info *info)
{
	return door_inq_file_info(ncid, info);
}

/* In the order of functions.def. */
static void *const calls[FUNCTIONS] = {
#define NAME(name) (void *)door_##name,
#include "functions.h"
};

__attribute__((visibility("default"))) void *const *plfs_netcdf_adapter(
	void *const functions[FUNCTIONS], find_fn *find);

void *const *plfs_netcdf_adapter(void *const functions[FUNCTIONS], find_fn *find)
{
	real = (const struct real *)functions;
#define OTHER(name) \
	*(void **)&other.name = find("ncmpi_" #name); \
	if (!other.name) \
		return functions;
	OTHERS(OTHER)
#undef OTHER
	return calls;
}
