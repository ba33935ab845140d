/* Sizes, consistency and the attributes of an open file. */
#include "door.h"

int door_get_amode(MPI_File fh, int *amode)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_amode(fh, amode);
	*amode = f->amode;
	return MPI_SUCCESS;
}

int door_get_group(MPI_File fh, MPI_Group *group)
{
	struct file *f = file_of(fh);
	return f ? fail(f, PMPI_Comm_group(f->comm, group)) : real->get_group(fh, group);
}

/* Not collective, by MPI's definition: one rank may call it alone. */
int door_get_size(MPI_File fh, MPI_Offset *size)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_size(fh, size);
	struct stat st = {0};
	int rc = error_class(plfs_fstat(f->plfs, &st));
	*size = st.st_size;
	return fail(f, rc);
}

/* All ranks commit, so that their earlier writes are ordered before the cut; rank 0 cuts; all
 * refresh. */
static int resize(struct file *f, MPI_Offset size, bool only_extend)
{
	int rc = f->split			  ? MPI_ERR_OTHER
		 : size < 0			  ? MPI_ERR_ARG
		 : f->amode & MPI_MODE_SEQUENTIAL ? MPI_ERR_UNSUPPORTED_OPERATION
						  : MPI_SUCCESS;
	if (rc == MPI_SUCCESS && (f->amode & MPI_MODE_RDONLY))
		rc = MPI_ERR_READ_ONLY;
	if (rc == MPI_SUCCESS)
		rc = error_class(plfs_commit(f->plfs));
	int64_t same = size;
	rc = agree_same(f->comm, rc, &same, 1, MPI_ERR_NOT_SAME);
	if (rc != MPI_SUCCESS)
		return rc;
	int64_t heard = MPI_SUCCESS;
	if (f->rank == 0) {
		int done = plfs_refresh(f->plfs);
		if (done >= 0)
			done = only_extend ? (size > 0 ? plfs_fallocate(f->plfs, 0, 0, size) : 0)
					   : plfs_ftruncate(f->plfs, size);
		heard = error_class(done);
	}
	rc = hear(f->comm, &heard, 1);
	if (rc == MPI_SUCCESS)
		rc = (int)heard;
	/* Also ends the patterns under way, so that what is written next is ordered after the cut.
	 */
	if (rc == MPI_SUCCESS && f->rank != 0)
		rc = error_class(plfs_refresh(f->plfs));
	return rc;
}

int door_set_size(MPI_File fh, MPI_Offset size)
{
	struct file *f = file_of(fh);
	return f ? fail(f, resize(f, size, false)) : real->set_size(fh, size);
}

/* A log reserves no room, so this extends the file, as far as it was shorter. */
int door_preallocate(MPI_File fh, MPI_Offset size)
{
	struct file *f = file_of(fh);
	return f ? fail(f, resize(f, size, true)) : real->preallocate(fh, size);
}

/* All make their writes durable, then all see what the others wrote. MPI asks for sync, barrier,
 * sync; one suffices here. */
int door_sync(MPI_File fh)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->sync(fh);
	int rc = f->split ? MPI_ERR_OTHER : error_class(plfs_sync(f->plfs));
	rc = agree(f->comm, rc);
	if (rc == MPI_SUCCESS)
		rc = error_class(plfs_refresh(f->plfs));
	return fail(f, rc);
}

int door_get_atomicity(MPI_File fh, int *flag)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_atomicity(fh, flag);
	*flag = f->atomic;
	return MPI_SUCCESS;
}

int door_set_atomicity(MPI_File fh, int flag)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->set_atomicity(fh, flag);
	/* What was written in the other mode is visible in this one. */
	int rc = error_class(plfs_commit(f->plfs));
	int64_t same = flag != 0;
	rc = agree_same(f->comm, rc, &same, 1, MPI_ERR_NOT_SAME);
	if (rc == MPI_SUCCESS) {
		rc = error_class(plfs_refresh(f->plfs));
		f->atomic = flag != 0;
	}
	return fail(f, rc);
}
