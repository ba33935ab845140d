/* File views: which bytes of the file a process sees, and the arithmetic between positions in the
 * view and offsets in the file.
 *
 * Positions are kept in etypes, as MPI counts them; inside, everything is data bytes of the view.
 */
#include "door.h"

#include <limits.h>
#include <string.h>

static void make_root(struct view *view)
{
	if (view->type->shape)
		type_tile(view->type, INT64_MAX, &view->root, &view->part);
	else
		view->root = (struct shape){1, 0, 1, 0, NULL};
}

int view_init(struct view *view)
{
	*view = (struct view){
		.etype = MPI_BYTE, .filetype = MPI_BYTE, .etype_size = 1, .datarep = "native"};
	int rc = type_get(MPI_BYTE, &view->type);
	if (rc == MPI_SUCCESS)
		make_root(view);
	return rc;
}

void view_free(struct view *view)
{
	type_put(view->type);
	view->type = NULL;
	type_forget(&view->etype);
	type_forget(&view->filetype);
}

int64_t view_offset(const struct view *view, int64_t at)
{
	if (!view->root.part)
		return at == 0 ? view->disp : INT64_MAX;
	return shape_locate(&view->root, view->disp, at);
}

int64_t view_bytes_before(const struct view *view, int64_t offset)
{
	if (!view->root.part || offset <= view->disp)
		return 0;
	/* Offsets grow with data bytes, and each data byte has one of its own. */
	int64_t low = 0, high = offset - view->disp;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		if (view_offset(view, middle) < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Offsets of file types must not go back, nor below the displacement. Each entry of a list is
 * checked; in a pattern only a negative stride can be wrong. */
static bool grows(const struct shape *s, int64_t base)
{
	int64_t last = -1;
	for (int64_t p = 0; p < s->parts; p++) {
		const struct shape *inner = s->part[p].inner;
		int64_t at = base + s->part[p].offset;
		/* Where its data begins: a shape inside may have a gap first. */
		int64_t first = inner ? shape_locate(inner, at, 0) : at;
		if (first < 0 || first < last || (s->count > 1 && s->stride < 0))
			return false;
		if (inner && !grows(inner, at))
			return false;
		last = first;
	}
	return true;
}

/* The new view of this rank. `old` gives what MPI_DISPLACEMENT_CURRENT stands for. */
static int make_view(const struct file *f, struct view *view, MPI_Offset disp, MPI_Datatype etype,
	MPI_Datatype filetype, const char *datarep)
{
	if (!datarep || (strcmp(datarep, "native") != 0 && strcmp(datarep, "internal") != 0))
		return MPI_ERR_UNSUPPORTED_DATAREP;
	if (f->amode & MPI_MODE_SEQUENTIAL) {
		if (disp != MPI_DISPLACEMENT_CURRENT)
			return MPI_ERR_ARG;
	} else if (disp < 0) {
		return MPI_ERR_ARG;
	}
	if (etype == MPI_DATATYPE_NULL || filetype == MPI_DATATYPE_NULL)
		return MPI_ERR_TYPE;
	*view = (struct view){
		.disp = disp, .etype = MPI_DATATYPE_NULL, .filetype = MPI_DATATYPE_NULL};
	strcpy(view->datarep, datarep);
	MPI_Count size = 0;
	int rc = PMPI_Type_size_x(etype, &size);
	view->etype_size = size;
	if (rc == MPI_SUCCESS)
		rc = type_get(filetype, &view->type);
	if (rc == MPI_SUCCESS && (size <= 0 || view->type->size % size != 0 ||
					 (view->type->shape && !grows(view->type->shape, 0))))
		rc = MPI_ERR_TYPE;
	if (rc == MPI_SUCCESS)
		rc = type_keep(etype, &view->etype);
	if (rc == MPI_SUCCESS)
		rc = type_keep(filetype, &view->filetype);
	if (rc == MPI_SUCCESS)
		make_root(view);
	else
		view_free(view);
	return rc;
}

int door_set_view(MPI_File fh, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
	const char *datarep, MPI_Info info)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->set_view(fh, disp, etype, filetype, datarep, info);
	if (f->split)
		return fail(f, MPI_ERR_OTHER);
	struct view view;
	int rc = make_view(f, &view, disp, etype, filetype, datarep);
	bool made = rc == MPI_SUCCESS;
	if (made && disp == MPI_DISPLACEMENT_CURRENT) {
		int64_t at = 0;
		rc = shared_advance(f, 0, &at);
		view.disp = view_offset(&f->view, at);
	}
	struct hints hints = f->hints;
	if (rc == MPI_SUCCESS)
		rc = hints_read(&hints, info);
	/* The representation and the size of etypes are to be the same everywhere; file types and
	 * displacements are each rank's own. */
	int64_t same[] = {made ? view.etype_size : 0, made && strcmp(view.datarep, "native") == 0};
	rc = agree_same(f->comm, rc, same, 2, MPI_ERR_NOT_SAME);
	if (rc != MPI_SUCCESS) {
		if (made)
			view_free(&view);
		return fail(f, rc);
	}
	struct view old = f->view;
	f->view = view;
	/* The root may point into the struct itself, which was copied. */
	make_root(&f->view);
	view_free(&old);
	f->hints = hints;
	f->position = 0;
	shared_restart(f, 0);
	return MPI_SUCCESS;
}

int door_get_view(
	MPI_File fh, MPI_Offset *disp, MPI_Datatype *etype, MPI_Datatype *filetype, char *datarep)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_view(fh, disp, etype, filetype, datarep);
	if (!disp || !etype || !filetype || !datarep)
		return fail(f, MPI_ERR_ARG);
	*disp = f->view.disp;
	strcpy(datarep, f->view.datarep);
	int rc = type_keep(f->view.etype, etype);
	if (rc == MPI_SUCCESS)
		rc = type_keep(f->view.filetype, filetype);
	return fail(f, rc);
}

int door_get_byte_offset(MPI_File fh, MPI_Offset offset, MPI_Offset *disp)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_byte_offset(fh, offset, disp);
	if (f->amode & MPI_MODE_SEQUENTIAL)
		return fail(f, MPI_ERR_UNSUPPORTED_OPERATION);
	int64_t at;
	if (offset < 0 || !disp || __builtin_mul_overflow(offset, f->view.etype_size, &at))
		return fail(f, MPI_ERR_ARG);
	*disp = view_offset(&f->view, at);
	return fail(f, *disp == INT64_MAX ? MPI_ERR_ARG : MPI_SUCCESS);
}

/* In both data representations that there are, a type is in the file as it is in memory. */
int door_get_type_extent(MPI_File fh, MPI_Datatype type, MPI_Aint *extent)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_type_extent(fh, type, extent);
	MPI_Aint lb;
	return fail(f,
		type == MPI_DATATYPE_NULL ? MPI_ERR_TYPE : PMPI_Type_get_extent(type, &lb, extent));
}

int door_get_type_extent_c(MPI_File fh, MPI_Datatype type, MPI_Count *extent)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_type_extent_c(fh, type, extent);
	MPI_Count lb;
	return fail(f, type == MPI_DATATYPE_NULL ? MPI_ERR_TYPE
						 : PMPI_Type_get_extent_x(type, &lb, extent));
}

/* Where `whence` and `offset`, in etypes, lead from `now`. */
static int seek_target(
	struct file *f, MPI_Offset now, MPI_Offset offset, int whence, MPI_Offset *to)
{
	MPI_Offset from = 0;
	if (whence == MPI_SEEK_CUR) {
		from = now;
	} else if (whence == MPI_SEEK_END) {
		/* The first etype that is wholly behind the end. */
		struct stat st;
		int rc = plfs_fstat(f->plfs, &st);
		if (rc < 0)
			return error_class(rc);
		from = (view_bytes_before(&f->view, st.st_size) + f->view.etype_size - 1) /
		       f->view.etype_size;
	} else if (whence != MPI_SEEK_SET) {
		return MPI_ERR_ARG;
	}
	return __builtin_add_overflow(from, offset, to) || *to < 0 ? MPI_ERR_ARG : MPI_SUCCESS;
}

int door_seek(MPI_File fh, MPI_Offset offset, int whence)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->seek(fh, offset, whence);
	if (f->amode & MPI_MODE_SEQUENTIAL)
		return fail(f, MPI_ERR_UNSUPPORTED_OPERATION);
	pthread_mutex_lock(&f->lock);
	MPI_Offset to;
	int rc = seek_target(f, f->position, offset, whence, &to);
	if (rc == MPI_SUCCESS)
		f->position = to;
	pthread_mutex_unlock(&f->lock);
	return fail(f, rc);
}

int door_get_position(MPI_File fh, MPI_Offset *offset)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_position(fh, offset);
	if (f->amode & MPI_MODE_SEQUENTIAL)
		return fail(f, MPI_ERR_UNSUPPORTED_OPERATION);
	pthread_mutex_lock(&f->lock);
	*offset = f->position;
	pthread_mutex_unlock(&f->lock);
	return MPI_SUCCESS;
}

int door_seek_shared(MPI_File fh, MPI_Offset offset, int whence)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->seek_shared(fh, offset, whence);
	int rc = f->amode & MPI_MODE_SEQUENTIAL ? MPI_ERR_UNSUPPORTED_OPERATION : MPI_SUCCESS;
	int64_t same[] = {offset, whence};
	rc = agree_same(f->comm, rc, same, 2, MPI_ERR_NOT_SAME);
	if (rc != MPI_SUCCESS)
		return fail(f, rc);
	/* Rank 0 computes it for all, because ranks may see different ends of the file. */
	int64_t now = 0, heard[2] = {0, 0};
	MPI_Offset to = 0;
	if (f->rank == 0) {
		if (whence == MPI_SEEK_CUR)
			rc = shared_advance(f, 0, &now);
		if (rc == MPI_SUCCESS)
			rc = seek_target(f, now / f->view.etype_size, offset, whence, &to);
		if (rc == MPI_SUCCESS && __builtin_mul_overflow(to, f->view.etype_size, &heard[1]))
			rc = MPI_ERR_ARG;
		heard[0] = rc;
	}
	rc = hear(f->comm, heard, 2);
	if (rc == MPI_SUCCESS)
		rc = (int)heard[0];
	if (rc == MPI_SUCCESS)
		shared_restart(f, heard[1]);
	return fail(f, rc);
}

int door_get_position_shared(MPI_File fh, MPI_Offset *offset)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_position_shared(fh, offset);
	if (f->amode & MPI_MODE_SEQUENTIAL)
		return fail(f, MPI_ERR_UNSUPPORTED_OPERATION);
	int64_t at = 0;
	int rc = shared_advance(f, 0, &at);
	*offset = at / f->view.etype_size;
	return fail(f, rc);
}
