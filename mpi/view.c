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
	*view = (struct view){.etype = MPI_BYTE, .filetype = MPI_BYTE, .etype_size = 1};
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

/* Where the pieces of a shape are: the beginnings of the first and the last one, and where the last
 * one ends. */
struct order {
	int64_t first, last, end;
	bool back, overlap;
};

/* Each entry of a list is looked at, and one repetition of a pattern. */
static struct order order_of(const struct shape *s, int64_t base)
{
	struct order all = {0};
	for (int64_t p = 0; p < s->parts; p++) {
		const struct part *part = &s->part[p];
		int64_t at = base + part->offset,
			length = (p + 1 < s->parts ? part[1].before : s->body) - part->before;
		struct order one = {at, at, at + length, false, false};
		if (part->inner)
			one = order_of(part->inner, at);
		if (p > 0) {
			one.back |= all.back || one.first < all.last;
			one.overlap |= all.overlap || one.first < all.end;
			one.first = all.first;
		}
		all = one;
	}
	if (s->count > 1) {
		all.back |= all.first + s->stride < all.last;
		all.overlap |= all.first + s->stride < all.end;
		int64_t far = (s->count - 1) * s->stride;
		if (far < 0)
			all.first += far;
		else
			all.last += far, all.end += far;
	}
	return all;
}

/* What the standard forbids of etypes and file types: offsets that are negative or go back, and, if
 * the file may be written, bytes that they have twice. The class is MPICH's, whose tests ask for
 * it. */
static int check_order(const struct type *type, int amode)
{
	if (!type->shape)
		return MPI_SUCCESS;
	struct order all = order_of(type->shape, 0);
	bool wrong = all.first < 0 || all.back || (all.overlap && !(amode & MPI_MODE_RDONLY));
	return wrong ? MPI_ERR_IO : MPI_SUCCESS;
}

/* ROMIO knows them in capitals as well. */
static const char *const REPRESENTATIONS[][2] = {
	[NATIVE] = {"native", "NATIVE"},
	[INTERNAL] = {"internal", "INTERNAL"},
	[EXTERNAL32] = {"external32", "EXTERNAL32"},
};

/* Those that a program registers (MPI_Register_datarep) are not served, as in ROMIO and OMPIO. */
static int representation_of(const char *name, enum representation *out)
{
	for (int i = NATIVE; name && i <= EXTERNAL32; i++)
		if (strcmp(name, REPRESENTATIONS[i][0]) == 0 ||
			strcmp(name, REPRESENTATIONS[i][1]) == 0) {
			*out = (enum representation)i;
			return MPI_SUCCESS;
		}
	return MPI_ERR_UNSUPPORTED_DATAREP;
}

/* `type` as it is in a file of this representation. */
static int type_in_file(enum representation representation, MPI_Datatype type, struct type **out)
{
	return representation == EXTERNAL32 ? type_get_external(type, out) : type_get(type, out);
}

/* The new view of this rank. `old` gives what MPI_DISPLACEMENT_CURRENT stands for. */
static int make_view(const struct file *f, struct view *view, MPI_Offset disp, MPI_Datatype etype,
	MPI_Datatype filetype, const char *datarep)
{
	enum representation representation = NATIVE;
	int rc = representation_of(datarep, &representation);
	if (rc != MPI_SUCCESS)
		return rc;
	if (f->amode & MPI_MODE_SEQUENTIAL) {
		if (disp != MPI_DISPLACEMENT_CURRENT)
			return MPI_ERR_ARG;
	} else if (disp < 0) {
		return MPI_ERR_ARG;
	}
	if (etype == MPI_DATATYPE_NULL || filetype == MPI_DATATYPE_NULL)
		return MPI_ERR_TYPE;
	*view = (struct view){.disp = disp,
		.representation = representation,
		.etype = MPI_DATATYPE_NULL,
		.filetype = MPI_DATATYPE_NULL};
	struct type *element = NULL;
	rc = type_in_file(representation, etype, &element);
	if (rc == MPI_SUCCESS)
		rc = check_order(element, f->amode);
	view->etype_size = element ? element->size : 0;
	type_put(element);
	if (rc == MPI_SUCCESS)
		rc = type_in_file(representation, filetype, &view->type);
	/* Both MPIs call this an argument. */
	if (rc == MPI_SUCCESS &&
		(view->etype_size <= 0 || view->type->size % view->etype_size != 0))
		rc = MPI_ERR_ARG;
	if (rc == MPI_SUCCESS)
		rc = check_order(view->type, f->amode);
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
	int64_t same[] = {made ? view.etype_size : 0, made ? view.representation : NATIVE};
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
	strcpy(datarep, REPRESENTATIONS[f->view.representation][0]);
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

static int extent_in_file(const struct file *f, MPI_Datatype type, MPI_Count *extent)
{
	MPI_Count lb;
	int64_t external = 0;
	if (type == MPI_DATATYPE_NULL)
		return MPI_ERR_TYPE;
	if (f->view.representation != EXTERNAL32)
		return PMPI_Type_get_extent_x(type, &lb, extent);
	int rc = type_external_extent(type, &external);
	*extent = external;
	return rc;
}

int door_get_type_extent(MPI_File fh, MPI_Datatype type, MPI_Aint *extent)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_type_extent(fh, type, extent);
	MPI_Count wide = 0;
	int rc = extent_in_file(f, type, &wide);
	*extent = (MPI_Aint)wide;
	return fail(f, rc);
}

int door_get_type_extent_c(MPI_File fh, MPI_Datatype type, MPI_Count *extent)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_type_extent_c(fh, type, extent);
	return fail(f, extent_in_file(f, type, extent));
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
