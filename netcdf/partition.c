/* The files of a partitioned dataset, as processes have them open.
 *
 * Each process opens a partition for itself: those that are delegates for it before anybody writes,
 * others that call independently when they first transfer something to it. So N processes open
 * about N files, not N times K, and a partition that one process serves is open nowhere else, which
 * lets a file system cache it. PnetCDF is told that it is alone (MPI_COMM_SELF), so every handle is
 * in collective mode, and any of its calls can be made at any time.
 *
 * What a handle cannot know is how many records others have appended. The dataset does, by
 * agreement; a handle that is behind is opened anew, and the number in the file is raised before if
 * it is behind, too. Handles write that number when they append; since each is up to date before
 * it does, the file never falls behind what had been agreed. */
#include "door.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

void group_of(const struct file *f, int k, int *first, int *count)
{
	int64_t ranks = f->ranks, from = k * ranks / f->parts, to = (k + 1) * ranks / f->parts;
	*first = (int)from;
	*count = to > from ? (int)(to - from) : 1;
}

/* Where the number of records is, as PnetCDF wrote it: behind the magic, big-endian. */
static int records_at(MPI_File fh, int format, MPI_Offset *records)
{
	unsigned char bytes[8] = {0};
	int n = format == NC_FORMAT_CDF5 ? 8 : 4;
	MPI_Status status;
	if (PMPI_File_read_at(fh, 4, bytes, n, MPI_BYTE, &status) != MPI_SUCCESS)
		return NC_EREAD;
	*records = 0;
	for (int i = 0; i < n; i++)
		*records = *records << 8 | bytes[i];
	return NC_NOERR;
}

static int write_records(MPI_File fh, int format, MPI_Offset records)
{
	unsigned char bytes[8];
	int n = format == NC_FORMAT_CDF5 ? 8 : 4;
	for (int i = n - 1; i >= 0; i--, records >>= 8)
		bytes[i] = (unsigned char)records;
	MPI_Status status;
	return PMPI_File_write_at(fh, 4, bytes, n, MPI_BYTE, &status) == MPI_SUCCESS ? NC_NOERR
										     : NC_EWRITE;
}

int settle(struct file *f, int k, MPI_Offset records, MPI_Offset size)
{
	MPI_File fh;
	if (PMPI_File_open(MPI_COMM_SELF, f->partition[k].path, MPI_MODE_RDWR, f->info, &fh) !=
		MPI_SUCCESS)
		return NC_EFILE;
	int rc = NC_NOERR;
	MPI_Offset now;
	if (records > 0) {
		rc = records_at(fh, f->format, &now);
		if (rc == NC_NOERR && now < records)
			rc = write_records(fh, f->format, records);
	}
	if (rc == NC_NOERR && size > 0) {
		if (PMPI_File_get_size(fh, &now) != MPI_SUCCESS)
			rc = NC_EREAD;
		else if (now < size && PMPI_File_set_size(fh, size) != MPI_SUCCESS)
			rc = NC_EWRITE;
	}
	PMPI_File_close(&fh);
	return rc;
}

int records_known(int ncid, MPI_Offset *records)
{
	int dim;
	*records = 0;
	int rc = other.inq_unlimdim(ncid, &dim);
	return rc != NC_NOERR || dim < 0 ? rc : real->inq_dim(ncid, dim, NULL, records);
}

int partition_open(struct file *f, int k, MPI_Comm comm, int *ncid)
{
	const struct partition *p = &f->partition[k];
	int rank = 0,
	    rc = real->open(comm, p->path, f->is_writable ? NC_WRITE : NC_NOWRITE, f->info, ncid);
	PMPI_Comm_rank(comm, &rank);
	if (rc != NC_NOERR && rank == 0)
		say(f, "partition %d, %s, cannot be opened: %s", k, p->path, other.strerror(rc));
	return rc;
}

int handle_of(struct file *f, int k, MPI_Offset records, int *ncid)
{
	struct partition *p = &f->partition[k];
	/* What is there has not been made by this dataset: it is somebody else's. */
	if (!p->is_made)
		return NC_ENOENT;
	for (int attempt = 0; attempt < 3; attempt++) {
		if (p->handle < 0) {
			int rc = partition_open(f, k, MPI_COMM_SELF, &p->handle);
			if (rc != NC_NOERR) {
				p->handle = -1;
				return rc;
			}
		}
		MPI_Offset known = records;
		int rc = records > 0 ? records_known(p->handle, &known) : NC_NOERR;
		if (rc != NC_NOERR || known >= records) {
			*ncid = p->handle;
			return rc;
		}
		rc = real->close(p->handle);
		p->handle = -1;
		if (rc == NC_NOERR && attempt > 0)
			rc = settle(f, k, records, 0);
		if (rc != NC_NOERR)
			return rc;
	}
	return NC_EFILE;
}

/* Are partitions on a file system in user space, whose clients see each other's files? */
static bool is_by_fuse(const struct file *f)
{
	struct statfs fs;
	for (int k = 0; k < f->parts; k++) {
		/* "ufs:/dir/file" is ROMIO's. */
		const char *path = f->partition[k].path, *colon = strchr(path, ':'),
			   *slash = strchr(path, '/');
		path = colon && (!slash || colon < slash) ? colon + 1 : path;
		if (statfs(path, &fs) == 0 && (unsigned)fs.f_type == FUSE_SUPER_MAGIC)
			return true;
	}
	return false;
}

int handles_open(struct file *f, bool all)
{
	int rc = NC_NOERR, is_fuse = all && is_by_fuse(f);
	if (f->ranks == 1)
		return rc;
	if (all && (PMPI_Allreduce(MPI_IN_PLACE, &is_fuse, 1, MPI_INT, MPI_MAX, f->comm) !=
				   MPI_SUCCESS ||
			   !is_fuse))
		return rc;
	for (int k = 0; rc == NC_NOERR && k < f->parts; k++) {
		int first, count, ncid;
		group_of(f, k, &first, &count);
		if (f->partition[k].is_made &&
			(all || (f->rank >= first && f->rank < first + count)))
			rc = handle_of(f, k, 0, &ncid);
	}
	return agree(f->comm, rc);
}

int handles_close(struct file *f)
{
	int rc = NC_NOERR;
	for (int k = 0; k < f->parts; k++) {
		struct partition *p = &f->partition[k];
		if (p->handle < 0)
			continue;
		int result = real->close(p->handle);
		p->handle = -1;
		if (rc == NC_NOERR)
			rc = result;
	}
	return rc;
}

int extent_of(struct file *f, int k, int ncid, MPI_Offset *needed, MPI_Offset *present)
{
	int nvars = 0, unlimited = -1, rc = other.inq_nvars(ncid, &nvars);
	MPI_Offset records = 0, record = 0;
	if (rc == NC_NOERR)
		rc = other.inq_unlimdim(ncid, &unlimited);
	if (rc == NC_NOERR && unlimited >= 0)
		rc = real->inq_dim(ncid, unlimited, NULL, &records);
	if (rc == NC_NOERR)
		rc = real->inq_recsize(ncid, &record);
	*needed = 0;
	for (int id = 0; rc == NC_NOERR && id < nvars; id++) {
		/* All are cut variables. */
		for (int v = 0; v < f->nvars; v++) {
			const struct variable *var = &f->vars[v];
			if (!var->is_cut || k >= var->parts || var->ids[k] != id)
				continue;
			MPI_Offset at = 0, bytes = var->size, low, length;
			part_of(var, k, &low, &length);
			for (int d = var->is_record; d < var->ndims; d++)
				bytes *= d == var->dim ? length : var->length[d];
			rc = other.inq_varoffset(ncid, id, &at);
			if (var->is_record)
				at += (records - 1) * record;
			if (rc == NC_NOERR && (!var->is_record || records > 0) &&
				at + bytes > *needed)
				*needed = at + bytes;
		}
	}
	MPI_File fh;
	if (rc != NC_NOERR)
		return rc;
	if (PMPI_File_open(MPI_COMM_SELF, f->partition[k].path, MPI_MODE_RDONLY, f->info, &fh) !=
		MPI_SUCCESS)
		return NC_EFILE;
	if (PMPI_File_get_size(fh, present) != MPI_SUCCESS)
		rc = NC_EREAD;
	PMPI_File_close(&fh);
	return rc;
}

static bool has_records(const struct file *f, int k)
{
	bool has = false;
	for (int v = 0; v < f->nvars; v++)
		has |= f->vars[v].is_cut && f->vars[v].is_record && f->vars[v].is_defined &&
		       k < f->vars[v].parts;
	return has;
}

int records_settle(struct file *f)
{
	int rc = NC_NOERR;
	for (int k = 0; k < f->parts && rc == NC_NOERR; k++) {
		int first, count;
		group_of(f, k, &first, &count);
		if (f->rank == first && f->partition[k].is_made && f->records > 0 &&
			has_records(f, k))
			rc = settle(f, k, f->records, 0);
	}
	return agree(f->comm, rc);
}

int partitions_settle(struct file *f)
{
	int rc = NC_NOERR;
	for (int k = 0; k < f->parts; k++) {
		int first, count;
		group_of(f, k, &first, &count);
		if (f->rank != first || !f->partition[k].is_made)
			continue;
		int ncid, result = has_records(f, k) && f->records > 0 ? settle(f, k, f->records, 0)
								       : NC_NOERR;
		MPI_Offset needed = 0, present = 0;
		if (result == NC_NOERR)
			result = handle_of(f, k, 0, &ncid);
		if (result == NC_NOERR)
			result = extent_of(f, k, ncid, &needed, &present);
		int closed = handles_close(f);
		if (result == NC_NOERR)
			result = closed;
		if (result == NC_NOERR && present < needed)
			result = settle(f, k, 0, needed);
		if (rc == NC_NOERR)
			rc = result;
	}
	return rc;
}

int records_mend(struct file *f)
{
	MPI_Offset records = records_of(f);
	if (!has_records(f, 0) || f->records == records)
		return agree(f->comm, master_follow(f));
	f->records = records;
	int rc = agree(f->comm, handles_close(f));
	return rc == NC_NOERR ? agree(f->comm, partitions_settle(f)) : rc;
}
