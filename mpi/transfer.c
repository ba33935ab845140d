/* Data access: all 64 calls come down to transfer().
 *
 * A collective write is an independent write: in a log, there is nothing to gain from ranks
 * exchanging data first. */
#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Bytes packed at a time, if memory is not one piece. As large as the engine's writes need to be,
 * small enough to have a few at once. */
#define PACK_BYTES (16 << 20)

/* Extents of one call of list I/O: a page of them. */
#define LIST 256

/* Pieces at equal distances that are worth a call of their own, which makes one record of them;
 * fewer go into the list. */
#define STRIDED 4

/* One access of a contiguous buffer. */
struct move {
	plfs_file *plfs;
	enum direction direction;
	char *buf;     /* where the next piece's bytes are */
	int64_t moved; /* bytes, until the end of the file or an error */
	int rc;	       /* negative error number */
	int n;
	int64_t listed; /* bytes in the list */
	plfs_extent list[LIST];
};

/* Adds the result of a call of the engine; 1 ends the walk. */
static int note(struct move *m, ssize_t done, int64_t wanted)
{
	if (done < 0) {
		m->rc = (int)done;
		return 1;
	}
	m->moved += done;
	m->buf += done;
	return done < wanted;
}

static int flush_list(struct move *m)
{
	if (m->n == 0)
		return 0;
	size_t n = (size_t)m->n;
	ssize_t done;
	if (m->direction == WRITE)
		done = n == 1 ? plfs_pwrite(m->plfs, m->buf, m->list[0].length, m->list[0].offset)
			      : plfs_write_list(m->plfs, m->list, n, m->buf);
	else
		done = n == 1 ? plfs_pread(m->plfs, m->buf, m->list[0].length, m->list[0].offset)
			      : plfs_read_list(m->plfs, m->list, n, m->buf);
	int64_t wanted = m->listed;
	m->n = 0;
	m->listed = 0;
	return note(m, done, wanted);
}

static int move_piece(void *user, int64_t offset, int64_t length, int64_t stride, int64_t count)
{
	struct move *m = user;
	bool write = m->direction == WRITE;
	/* What is in the list is before this in the buffer. */
	if (count >= STRIDED && (stride >= length || -stride >= length)) {
		if (flush_list(m))
			return 1;
		return note(m,
			write ? plfs_pwrite_strided(m->plfs, m->buf, (size_t)length, stride,
					(size_t)count, offset)
			      : plfs_pread_strided(m->plfs, m->buf, (size_t)length, stride,
					(size_t)count, offset),
			length * count);
	}
	for (int64_t i = 0; i < count; i++) {
		m->list[m->n++] = (plfs_extent){offset + i * stride, (size_t)length};
		m->listed += length;
		if (m->n == LIST && flush_list(m))
			return 1;
	}
	return 0;
}

/* Moves `n` bytes between `buf` and the view from its data byte `at` on. */
static int move(
	struct file *f, enum direction direction, int64_t at, char *buf, int64_t n, int64_t *moved)
{
	struct move m;
	/* Not the list, which is large. */
	memset(&m, 0, offsetof(struct move, list));
	m.plfs = f->plfs;
	m.direction = direction;
	m.buf = buf;
	while (m.moved < n) {
		if (shape_walk(&f->view.root, f->view.disp, at + m.moved, n - m.moved, move_piece,
			    &m) == 0)
			flush_list(&m);
		if (m.rc < 0 || m.moved >= n)
			break;
		/* A piece was not moved completely. Moving one more byte gives the reason: an
		 * error, the end of the file, a full disk, or success if it was temporary. */
		int64_t offset = view_offset(&f->view, at + m.moved);
		ssize_t one = direction == WRITE ? plfs_pwrite(f->plfs, m.buf, 1, offset)
						 : plfs_pread(f->plfs, m.buf, 1, offset);
		if (one <= 0) {
			m.rc = one < 0 ? (int)one : direction == WRITE ? -ENOSPC : 0;
			break;
		}
		m.moved++;
		m.buf++;
		m.n = 0;
		m.listed = 0;
	}
	*moved = m.moved;
	return error_class(m.rc);
}

struct copy {
	char *memory, *packed;
	bool pack;
};

static int copy_piece(void *user, int64_t offset, int64_t length, int64_t stride, int64_t count)
{
	struct copy *c = user;
	for (int64_t i = 0; i < count; i++) {
		char *at = c->memory + offset + i * stride;
		if (c->pack)
			memcpy(c->packed, at, (size_t)length);
		else
			memcpy(at, c->packed, (size_t)length);
		c->packed += length;
	}
	return 0;
}

/* As move, for memory in pieces. */
static int move_packed(struct file *f, enum direction direction, int64_t at, char *memory,
	const struct type *type, int64_t count, int64_t n, int64_t *moved)
{
	struct shape root;
	struct part part;
	type_tile(type, count, &root, &part);
	char *packed = malloc(n < PACK_BYTES ? (size_t)n : PACK_BYTES);
	if (!packed)
		return MPI_ERR_NO_MEM;
	int rc = MPI_SUCCESS;
	*moved = 0;
	while (rc == MPI_SUCCESS && *moved < n) {
		int64_t want = n - *moved < PACK_BYTES ? n - *moved : PACK_BYTES, done = 0;
		struct copy c = {memory, packed, direction == WRITE};
		if (direction == WRITE)
			shape_walk(&root, 0, *moved, want, copy_piece, &c);
		rc = move(f, direction, at + *moved, packed, want, &done);
		if (direction == READ)
			shape_walk(&root, 0, *moved, done, copy_piece, &c);
		*moved += done;
		if (done < want)
			break;
	}
	free(packed);
	return rc;
}

/* What a call moves: `count` of a type in memory. */
struct memory {
	char *buf;
	const struct type *type;
	int64_t count;
	const struct signature *signature; /* NULL: the bytes are as in memory */
};

/* As move, converted. So many datatypes at a time as fill the buffer, at least one. */
static int move_converted(struct file *f, enum direction direction, int64_t at,
	const struct memory *m, int64_t *moved)
{
	int64_t external = signature_external(m->signature),
		native = signature_native(m->signature), step = PACK_BYTES / external, first;
	if (step < 1)
		step = 1;
	if (step > m->count)
		step = m->count;
	bool dense = type_is_dense(m->type, m->count, &first);
	char *converted = malloc((size_t)(step * external)),
	     *packed = dense ? NULL : malloc((size_t)(step * native));
	int rc = converted && (dense || packed) ? MPI_SUCCESS : MPI_ERR_NO_MEM;
	*moved = 0;
	for (int64_t i = 0; rc == MPI_SUCCESS && i < m->count; i += step) {
		int64_t now = step < m->count - i ? step : m->count - i, want = now * external,
			done = 0;
		char *memory = m->buf + i * m->type->extent,
		     *straight = dense ? memory + first : packed;
		struct shape root;
		struct part part;
		struct copy c = {memory, packed, true};
		type_tile(m->type, now, &root, &part);
		/* Before a read as well: what the file does not have stays as it is. */
		if (!dense)
			shape_walk(&root, 0, 0, now * native, copy_piece, &c);
		if (direction == WRITE)
			rc = external_convert(m->signature, now, WRITE, straight, converted, want);
		if (rc == MPI_SUCCESS)
			rc = move(f, direction, at + *moved, converted, want, &done);
		if (direction == READ) {
			int code = external_convert(
				m->signature, now, READ, straight, converted, done);
			rc = rc == MPI_SUCCESS ? code : rc;
			c = (struct copy){memory, packed, false};
			if (!dense)
				shape_walk(&root, 0, 0, now * native, copy_piece, &c);
		}
		*moved += done;
		if (done < want)
			break;
	}
	free(packed);
	free(converted);
	return rc;
}

/* In atomic mode: a lock over all that an access may touch, so that others see all of it or
 * nothing. */
static int lock_range(struct file *f, short kind, int64_t from, int64_t to)
{
	int fd = plfs_lock_fd(f->plfs);
	if (fd < 0)
		return fd;
	struct flock lock = {
		.l_type = kind, .l_whence = SEEK_SET, .l_start = from, .l_len = to - from};
	int rc;
	do
		rc = fcntl(fd, F_OFD_SETLKW, &lock);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : 0;
}

static int move_bytes(struct file *f, enum direction direction, int64_t at, const struct memory *m,
	int64_t n, int64_t *moved)
{
	int64_t first;
	if (m->signature)
		return move_converted(f, direction, at, m, moved);
	if (type_is_dense(m->type, m->count, &first))
		return move(f, direction, at, m->buf + first, n, moved);
	return move_packed(f, direction, at, m->buf, m->type, m->count, n, moved);
}

static int move_atomically(struct file *f, enum direction direction, int64_t at,
	const struct memory *m, int64_t n, int64_t *moved)
{
	int64_t from = view_offset(&f->view, at), to = view_offset(&f->view, at + n - 1) + 1;
	/* The lock is between descriptors; threads of a rank share one. */
	pthread_mutex_lock(&f->lock);
	int rc = lock_range(f, direction == WRITE ? F_WRLCK : F_RDLCK, from, to);
	if (rc == 0) {
		/* Before a write as well, so that it is ordered after what others wrote under the
		 * lock. */
		rc = plfs_refresh(f->plfs);
		int code = rc < 0 ? error_class(rc) : move_bytes(f, direction, at, m, n, moved);
		rc = direction == WRITE && code == MPI_SUCCESS ? plfs_commit(f->plfs) : 0;
		lock_range(f, F_UNLCK, from, to);
		pthread_mutex_unlock(&f->lock);
		return code != MPI_SUCCESS ? code : error_class(rc);
	}
	pthread_mutex_unlock(&f->lock);
	return error_class(rc);
}

bool is_coherent(const struct file *f)
{
	bool both = !(f->amode & (MPI_MODE_RDONLY | MPI_MODE_WRONLY));
	return f->ranks > 1 &&
	       (f->hints.coherent == HINT_ENABLE || (f->hints.coherent == HINT_AUTOMATIC && both));
}

/* A coherent access refreshes before it reads and commits after it writes. MPI requires less, but
 * ROMIO does it on local and parallel file systems, and HDF5 and PnetCDF rely on it: they write,
 * pass a barrier, and read at another rank. */
static int move_coherently(struct file *f, enum direction direction, int64_t at,
	const struct memory *m, int64_t n, int64_t *moved)
{
	int rc = direction == READ ? error_class(plfs_refresh(f->plfs)) : MPI_SUCCESS;
	if (rc == MPI_SUCCESS)
		rc = move_bytes(f, direction, at, m, n, moved);
	if (rc == MPI_SUCCESS && direction == WRITE)
		rc = error_class(plfs_commit(f->plfs));
	return rc;
}

static int check(const struct file *f, enum direction direction, enum where where,
	MPI_Offset offset, MPI_Count count, MPI_Datatype type)
{
	if (count < 0)
		return MPI_ERR_COUNT;
	if (type == MPI_DATATYPE_NULL)
		return MPI_ERR_TYPE;
	if (where == EXPLICIT && offset < 0)
		return MPI_ERR_ARG;
	if (direction == READ && (f->amode & MPI_MODE_WRONLY))
		return MPI_ERR_ACCESS;
	if (direction == WRITE && (f->amode & MPI_MODE_RDONLY))
		return MPI_ERR_READ_ONLY;
	if ((f->amode & MPI_MODE_SEQUENTIAL) && (where == EXPLICIT || where == POINTER))
		return MPI_ERR_UNSUPPORTED_OPERATION;
	return MPI_SUCCESS;
}

/* Where an access of `n` bytes begins, in data bytes of the view; moves the pointer that it goes
 * by. */
static int locate(struct file *f, enum where where, MPI_Offset offset, int64_t n, int64_t *at)
{
	int64_t size = f->view.etype_size;
	if (where == SHARED)
		return shared_advance(f, n, at);
	if (where == POINTER) {
		pthread_mutex_lock(&f->lock);
		offset = f->position;
		f->position += n / size;
		pthread_mutex_unlock(&f->lock);
	}
	return __builtin_mul_overflow(offset, size, at) ? MPI_ERR_ARG : MPI_SUCCESS;
}

/* As locate, for all ranks at once, in order of rank: the last one moves the pointer for all. */
static int locate_ordered(struct file *f, int code, int64_t n, int64_t *at)
{
	int64_t before = 0, heard[2] = {code, 0};
	if (code != MPI_SUCCESS)
		n = 0;
	int rc = PMPI_Exscan(&n, &before, 1, MPI_INT64_T, MPI_SUM, f->comm);
	if (f->rank == 0)
		before = 0;
	if (rc == MPI_SUCCESS && f->rank == f->ranks - 1)
		heard[0] = shared_advance(f, before + n, &heard[1]);
	if (rc == MPI_SUCCESS)
		rc = PMPI_Bcast(heard, 2, MPI_INT64_T, f->ranks - 1, f->comm);
	*at = heard[1] + before;
	if (code != MPI_SUCCESS)
		return code;
	return rc != MPI_SUCCESS ? rc : (int)heard[0];
}

int transfer(struct file *f, enum direction direction, enum where where, MPI_Offset offset,
	void *buf, MPI_Count count, MPI_Datatype datatype, MPI_Count *bytes)
{
	struct type *type = NULL;
	struct signature *signature = NULL;
	bool external = f->view.representation == EXTERNAL32;
	/* In the file: `n` bytes from `at` on. */
	int64_t n = 0, at = 0, moved = 0;
	*bytes = 0;
	int rc = check(f, direction, where, offset, count, datatype);
	if (rc == MPI_SUCCESS)
		rc = type_get(datatype, &type);
	if (rc == MPI_SUCCESS && external)
		rc = signature_get(datatype, count, &signature);
	if (rc == MPI_SUCCESS && __builtin_mul_overflow(count,
					 external ? signature_external(signature) : type->size, &n))
		rc = MPI_ERR_COUNT;
	if (rc == MPI_SUCCESS && n % f->view.etype_size != 0)
		rc = MPI_ERR_IO;
	if (where == ORDERED)
		rc = locate_ordered(f, rc, n, &at);
	else if (rc == MPI_SUCCESS)
		rc = locate(f, where, offset, n, &at);
	if (rc == MPI_SUCCESS && n > 0) {
		int64_t last;
		const struct memory memory = {buf, type, count, signature};
		if (direction == WRITE)
			f->wrote = true;
		if (__builtin_add_overflow(at, n - 1, &last) ||
			view_offset(&f->view, last) == INT64_MAX)
			rc = MPI_ERR_ARG;
		else if (f->atomic)
			rc = move_atomically(f, direction, at, &memory, n, &moved);
		else if (is_coherent(f))
			rc = move_coherently(f, direction, at, &memory, n, &moved);
		else
			rc = move_bytes(f, direction, at, &memory, n, &moved);
	}
	/* A status counts the program's bytes. */
	*bytes = external ? external_native(signature, moved) : moved;
	signature_free(signature);
	type_put(type);
	return rc;
}
