/* Datatypes taken apart, by their envelopes, into shapes: nested repetitions with contiguous pieces
 * at the bottom.
 *
 * Every constructor becomes at most a few nodes, so regular types stay patterns, which the engine
 * writes as one record each. */
#include "door.h"

#include <stdlib.h>
#include <string.h>

/* The large-count queries are needed for types that were made by large-count constructors (mpi4py
 * makes only those), and missing in MPIs before 4.0. */
#if MPI_VERSION < 4
int PMPI_Type_get_envelope_c(MPI_Datatype type, MPI_Count *ints, MPI_Count *addresses,
	MPI_Count *counts, MPI_Count *types, int *combiner);
int PMPI_Type_get_contents_c(MPI_Datatype type, MPI_Count max_ints, MPI_Count max_addresses,
	MPI_Count max_counts, MPI_Count max_types, int ints[], MPI_Aint addresses[],
	MPI_Count counts[], MPI_Datatype types[]);
#endif
/* In a static program the version in mpi.h decides: a weak symbol would not be linked from the
 * archive. */
#ifndef PLFS_MPI_STATIC
#pragma weak PMPI_Type_get_envelope_c
#pragma weak PMPI_Type_get_contents_c
#define HAVE_LARGE (&PMPI_Type_get_envelope_c != NULL && &PMPI_Type_get_contents_c != NULL)
#else
#define HAVE_LARGE (MPI_VERSION >= 4)
#endif

/* --- Memory: all shapes of a type are freed together --- */

struct block {
	struct block *next;
	max_align_t bytes[];
};

/* After the first failure building continues with incomplete shapes; the outermost caller checks
 * `error`. */
struct build {
	struct block *memory;
	int error;
	bool external; /* as the type is in a file of external32, not as in memory */
};

static void *take(struct build *b, size_t n, size_t size)
{
	size_t bytes;
	struct block *block = NULL;
	if (!__builtin_mul_overflow(n, size, &bytes) && bytes < SIZE_MAX / 2)
		block = calloc(1, sizeof *block + bytes);
	if (!block) {
		b->error = MPI_ERR_NO_MEM;
		return NULL;
	}
	block->next = b->memory;
	b->memory = block;
	return block->bytes;
}

static void free_blocks(struct block *block)
{
	while (block) {
		struct block *next = block->next;
		free(block);
		block = next;
	}
}

/* --- Shapes --- */

/* One part, and that contiguous: pieces of equal length at equal distances. */
static bool is_strided(const struct shape *s)
{
	return s->parts == 1 && !s->part[0].inner;
}

static bool is_contiguous(const struct shape *s)
{
	return is_strided(s) && s->count == 1;
}

static int64_t data_of(const struct shape *s)
{
	return s ? s->count * s->body : 0;
}

static struct shape *new_shape(
	struct build *b, int64_t count, int64_t stride, int64_t body, int64_t parts)
{
	struct shape *s = take(b, 1, sizeof *s);
	if (!s)
		return NULL;
	*s = (struct shape){count, stride, body, parts, take(b, (size_t)parts, sizeof *s->part)};
	return s->part ? s : NULL;
}

static const struct shape *contiguous(struct build *b, int64_t offset, int64_t length)
{
	if (length == 0)
		return NULL;
	struct shape *s = new_shape(b, 1, 0, length, 1);
	if (s)
		s->part[0].offset = offset;
	return s;
}

/* Makes `root` stand for `inner`, `count` times, `stride` apart; `part` is the place for its only
 * part if it needs one of its own. */
static void repeat_into(const struct shape *inner, int64_t count, int64_t stride,
	struct shape *root, struct part *part)
{
	*root = (struct shape){count, stride, data_of(inner), 1, part};
	*part = (struct part){0, 0, inner};
	if (count == 1 || (inner->count == 1 && inner->parts > 1)) {
		*root = *inner;
		if (count != 1) {
			root->count = count;
			root->stride = stride;
		}
	} else if (is_contiguous(inner)) {
		part->offset = inner->part[0].offset;
		part->inner = NULL;
		if (stride == inner->body) {
			/* The product is bounded by the type's size, or by the file's for an
			 * endless one. */
			int64_t all;
			root->body = __builtin_mul_overflow(inner->body, count, &all) ? INT64_MAX
										      : all;
			root->count = 1;
			/* What is past an endless one is past every offset. */
			root->stride = root->body;
		}
	} else if (is_strided(inner) && stride == inner->count * inner->stride) {
		part->offset = inner->part[0].offset;
		part->inner = NULL;
		root->stride = inner->stride;
		root->body = inner->body;
		root->count = __builtin_mul_overflow(inner->count, count, &root->count)
				      ? INT64_MAX
				      : root->count;
	}
}

static const struct shape *repeat(
	struct build *b, const struct shape *inner, int64_t count, int64_t stride)
{
	if (!inner || count <= 0)
		return NULL;
	if (count == 1)
		return inner;
	struct shape *s = new_shape(b, 1, 0, 0, 1);
	if (s)
		repeat_into(inner, count, stride, s, s->part);
	return s;
}

static const struct shape *shift(struct build *b, const struct shape *inner, int64_t offset)
{
	if (!inner || offset == 0)
		return inner;
	struct shape *s = new_shape(b, 1, 0, 0, 1);
	if (!s)
		return NULL;
	if (is_strided(inner)) {
		struct part *part = s->part;
		*s = *inner;
		s->part = part;
		part[0] = (struct part){inner->part[0].offset + offset, 0, NULL};
	} else {
		*s = (struct shape){1, 0, data_of(inner), 1, s->part};
		s->part[0] = (struct part){offset, 0, inner};
	}
	return s;
}

/* A list under construction: shapes one after the other. Neighbours become one piece. */
struct list {
	struct build *build;
	struct shape *shape;
};

static struct list list_new(struct build *b, int64_t room)
{
	return (struct list){b, new_shape(b, 1, 0, 0, room > 0 ? room : 1)};
}

static void list_add(struct list *list, const struct shape *inner, int64_t offset)
{
	struct shape *s = list->shape;
	if (!inner || !s)
		return;
	if (s->body == 0)
		s->parts = 0; /* until now the room */
	bool plain = is_contiguous(inner);
	if (plain)
		offset += inner->part[0].offset;
	if (plain && s->parts > 0) {
		struct part *last = &s->part[s->parts - 1];
		if (!last->inner && last->offset + (s->body - last->before) == offset) {
			s->body += inner->body;
			return;
		}
	}
	s->part[s->parts++] = (struct part){offset, s->body, plain ? NULL : inner};
	s->body += data_of(inner);
}

static const struct shape *list_done(struct list *list)
{
	struct shape *s = list->shape;
	if (!s || s->body == 0)
		return NULL;
	if (s->parts == 1 && s->part[0].inner)
		return shift(list->build, s->part[0].inner, s->part[0].offset);
	/* Equal pieces at equal distances become a pattern, whatever constructor lists them. */
	int64_t length = s->parts > 1 ? s->part[1].before : 0,
		stride = s->parts > 1 ? s->part[1].offset - s->part[0].offset : 0;
	bool regular = s->parts > 1;
	for (int64_t i = 0; regular && i < s->parts; i++)
		regular = !s->part[i].inner && s->part[i].before == i * length &&
			  s->part[i].offset == s->part[0].offset + i * stride;
	if (regular && s->body == s->parts * length)
		*s = (struct shape){s->parts, stride, length, 1, s->part};
	return s;
}

int shape_walk(
	const struct shape *s, int64_t base, int64_t from, int64_t n, piece_fn *piece, void *user)
{
	while (n > 0) {
		int64_t i = from / s->body, in = from % s->body, at = base + i * s->stride,
			done = 0;
		if (is_strided(s)) {
			at += s->part[0].offset;
			int64_t whole = n / s->body < s->count - i ? n / s->body : s->count - i;
			int rc;
			if (in == 0 && whole > 0) {
				done = whole * s->body;
				rc = piece(user, at, s->body, s->stride, whole);
			} else {
				done = n < s->body - in ? n : s->body - in;
				rc = piece(user, at + in, done, 0, 1);
			}
			if (rc)
				return rc;
		} else {
			/* The last part that begins at or before `in`. */
			int64_t low = 0, high = s->parts - 1;
			while (low < high) {
				int64_t middle = (low + high + 1) / 2;
				if (s->part[middle].before <= in)
					low = middle;
				else
					high = middle - 1;
			}
			int64_t left = n < s->body - in ? n : s->body - in;
			for (int64_t p = low; left > 0; p++) {
				const struct part *part = &s->part[p];
				int64_t end = p + 1 < s->parts ? part[1].before : s->body;
				int64_t skip = in + done - part->before,
					length = end - part->before - skip;
				if (length > left)
					length = left;
				int rc = part->inner ? shape_walk(part->inner, at + part->offset,
							       skip, length, piece, user)
						     : piece(user, at + part->offset + skip, length,
							       0, 1);
				if (rc)
					return rc;
				done += length;
				left -= length;
			}
		}
		from += done;
		n -= done;
	}
	return 0;
}

int64_t shape_locate(const struct shape *s, int64_t base, int64_t at)
{
	for (;;) {
		int64_t i = at / s->body, in = at % s->body, far;
		if (__builtin_mul_overflow(i, s->stride, &far) ||
			__builtin_add_overflow(base, far, &base))
			return INT64_MAX;
		int64_t low = 0, high = s->parts - 1;
		while (low < high) {
			int64_t middle = (low + high + 1) / 2;
			if (s->part[middle].before <= in)
				low = middle;
			else
				high = middle - 1;
		}
		const struct part *part = &s->part[low];
		if (__builtin_add_overflow(base, part->offset, &base))
			return INT64_MAX;
		at = in - part->before;
		if (!part->inner)
			return __builtin_add_overflow(base, at, &base) ? INT64_MAX : base;
		s = part->inner;
	}
}

/* --- Datatypes --- */

/* What a constructor was called with. Both kinds of constructors, in one order: for most combiners,
 * the integers followed by the addresses of a plain one are the counts of a large one. */
struct contents {
	int combiner;
	bool large;
	int64_t ints, values, types;
	int *integer; /* of a large one only: those that are not counts */
	int64_t *value;
	MPI_Datatype *type;
};

static bool is_leaf(int combiner)
{
	return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
	       combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
	       || combiner == MPI_COMBINER_VALUE_INDEX
#endif
		;
}

int type_combiner(MPI_Datatype type)
{
	int combiner = MPI_COMBINER_NAMED;
	if (HAVE_LARGE) {
		MPI_Count ints, addresses, counts, types;
		PMPI_Type_get_envelope_c(type, &ints, &addresses, &counts, &types, &combiner);
	} else {
		int ints, addresses, types;
		PMPI_Type_get_envelope(type, &ints, &addresses, &types, &combiner);
	}
	return combiner;
}

bool type_is_leaf(MPI_Datatype type)
{
	return is_leaf(type_combiner(type));
}

static int read_contents(struct build *b, MPI_Datatype type, struct contents *c)
{
	MPI_Count ints = 0, addresses = 0, counts = 0, types = 0;
	int rc;
	if (HAVE_LARGE) {
		rc = PMPI_Type_get_envelope_c(
			type, &ints, &addresses, &counts, &types, &c->combiner);
	} else {
		int few_ints, few_addresses, few_types;
		rc = PMPI_Type_get_envelope(
			type, &few_ints, &few_addresses, &few_types, &c->combiner);
		ints = few_ints, addresses = few_addresses, types = few_types;
	}
	if (rc != MPI_SUCCESS)
		return rc;
	c->large = counts > 0;
	c->ints = ints;
	c->types = types;
	c->values = c->large ? counts : ints + addresses;
	c->integer = take(b, (size_t)ints + 1, sizeof *c->integer);
	c->value = take(b, (size_t)c->values + 1, sizeof *c->value);
	c->type = take(b, (size_t)types + 1, sizeof *c->type);
	MPI_Aint *address = take(b, (size_t)addresses + 1, sizeof *address);
	MPI_Count *count = take(b, (size_t)counts + 1, sizeof *count);
	if (b->error)
		return b->error;
	if (HAVE_LARGE)
		rc = PMPI_Type_get_contents_c(
			type, ints, addresses, counts, types, c->integer, address, count, c->type);
	else
		rc = PMPI_Type_get_contents(
			type, (int)ints, (int)addresses, (int)types, c->integer, address, c->type);
	if (rc != MPI_SUCCESS)
		return rc;
	if (c->large) {
		for (MPI_Count i = 0; i < counts; i++)
			c->value[i] = count[i];
	} else {
		for (MPI_Count i = 0; i < ints; i++)
			c->value[i] = c->integer[i];
		for (MPI_Count i = 0; i < addresses; i++)
			c->value[ints + i] = address[i];
	}
	return MPI_SUCCESS;
}

/* Those that MPI_Type_get_contents gave. */
static void free_types(MPI_Datatype *type, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (!type_is_leaf(type[i]))
			PMPI_Type_free(&type[i]);
}

static void failed(struct build *b, int rc)
{
	if (rc != MPI_SUCCESS && !b->error)
		b->error = rc;
}

static int64_t native_extent(struct build *b, MPI_Datatype type, int64_t *lower)
{
	MPI_Aint lb = 0, extent = 0;
	failed(b, PMPI_Type_get_extent(type, &lb, &extent));
	*lower = lb;
	return extent;
}

/* --- Extents in a file of external32 ---
 *
 * Types mean there what they would where ints and reals have the sizes of the file: what counts in
 * extents becomes smaller with them, and what counts in bytes stays. Where no size differs, it is
 * as in memory. */

struct bounds {
	bool differs; /* from memory */
	int64_t lower, upper;
	bool any;
};

/* `n` of `inner`, the first one at `at`. */
static void cover(struct bounds *all, const struct bounds *inner, int64_t at, int64_t n)
{
	if (n <= 0)
		return;
	int64_t far = (n - 1) * (inner->upper - inner->lower), low = at + inner->lower,
		high = at + inner->upper;
	if (far < 0)
		low += far;
	else
		high += far;
	if (!all->any || low < all->lower)
		all->lower = low;
	if (!all->any || high > all->upper)
		all->upper = high;
	all->any = true;
}

static struct bounds bounds_of(struct build *b, MPI_Datatype type);

/* What a list of blocks covers; as for flatten_blocks. */
static void cover_blocks(struct bounds *all, const struct bounds *inner, int64_t n,
	const int64_t *lengths, bool same, const int64_t *displacements, int64_t unit)
{
	for (int64_t i = 0; i < n; i++)
		cover(all, inner, displacements[i] * unit, lengths[same ? 0 : i]);
}

static struct bounds bounds_derived(struct build *b, MPI_Datatype type)
{
	struct contents c = {0};
	struct bounds all = {0};
	failed(b, read_contents(b, type, &c));
	if (b->error)
		return all;
	const int64_t *v = c.value;
	struct bounds inner = {0};
	if (c.combiner == MPI_COMBINER_STRUCT) {
		for (int64_t i = 0; i < v[0]; i++) {
			inner = bounds_of(b, c.type[i]);
			all.differs |= inner.differs;
			cover(&all, &inner, v[1 + v[0] + i], v[1 + i]);
		}
	} else if (c.types >= 1) {
		inner = bounds_of(b, c.type[0]);
		int64_t extent = inner.upper - inner.lower, dims, whole = 1;
		switch (c.combiner) {
		case MPI_COMBINER_DUP:
			cover(&all, &inner, 0, 1);
			break;
		case MPI_COMBINER_RESIZED:
			all.lower = v[0];
			all.upper = v[0] + v[1];
			break;
		case MPI_COMBINER_CONTIGUOUS:
			cover(&all, &inner, 0, v[0]);
			break;
		case MPI_COMBINER_VECTOR:
		case MPI_COMBINER_HVECTOR:
			if (v[0] > 0) {
				int64_t unit = c.combiner == MPI_COMBINER_VECTOR ? extent : 1;
				cover(&all, &inner, 0, v[1]);
				cover(&all, &inner, (v[0] - 1) * v[2] * unit, v[1]);
			}
			break;
		case MPI_COMBINER_INDEXED:
			cover_blocks(&all, &inner, v[0], v + 1, false, v + 1 + v[0], extent);
			break;
		case MPI_COMBINER_HINDEXED:
			cover_blocks(&all, &inner, v[0], v + 1, false, v + 1 + v[0], 1);
			break;
		case MPI_COMBINER_INDEXED_BLOCK:
			cover_blocks(&all, &inner, v[0], v + 1, true, v + 2, extent);
			break;
		case MPI_COMBINER_HINDEXED_BLOCK:
			cover_blocks(&all, &inner, v[0], v + 1, true, v + 2, 1);
			break;
		case MPI_COMBINER_SUBARRAY:
			dims = c.large ? c.integer[0] : v[0];
			for (int64_t d = 0; d < dims; d++)
				whole *= v[(c.large ? 0 : 1) + d];
			all.upper = whole * extent;
			break;
		case MPI_COMBINER_DARRAY:
			dims = c.integer[2];
			for (int64_t d = 0; d < dims; d++)
				whole *= c.large ? v[d] : c.integer[3 + d];
			all.upper = whole * extent;
			break;
		default:
			failed(b, MPI_ERR_TYPE);
		}
		all.differs = inner.differs;
	}
	free_types(c.type, c.types);
	return all;
}

/* Pairs keep the place of their int, and so their extent. */
static struct bounds bounds_of(struct build *b, MPI_Datatype type)
{
	struct bounds all = {0};
	int64_t lower = 0, extent = native_extent(b, type, &lower);
	if (type_is_leaf(type)) {
		int64_t first = 0, second = 0;
		failed(b, external_named(type, &first, &second));
		MPI_Count size = 0;
		failed(b, PMPI_Type_size_x(type, &size));
		all.differs = first + second != size;
		if (second == 0 && all.differs)
			extent = first;
	} else {
		all = bounds_derived(b, type);
	}
	if (type_is_leaf(type) || !all.differs) {
		all.lower = lower;
		all.upper = lower + extent;
	}
	return all;
}

static int64_t extent_of(struct build *b, MPI_Datatype type)
{
	int64_t lower;
	if (!b->external)
		return native_extent(b, type, &lower);
	struct bounds all = bounds_of(b, type);
	return all.upper - all.lower;
}

int type_external_extent(MPI_Datatype type, int64_t *extent)
{
	struct build b = {NULL, MPI_SUCCESS, true};
	*extent = extent_of(&b, type);
	free_blocks(b.memory);
	return b.error;
}

int type_members(MPI_Datatype type, struct members *m)
{
	struct build b = {NULL, MPI_SUCCESS, false};
	struct contents c = {0};
	*m = (struct members){0};
	failed(&b, read_contents(&b, type, &c));
	if (!b.error && c.types == 0)
		b.error = MPI_ERR_TYPE;
	if (b.error) {
		free_blocks(b.memory);
		return b.error;
	}
	*m = (struct members){c.types, c.type, c.value + 1, NULL};
	if (c.combiner != MPI_COMBINER_STRUCT) {
		/* All of the others repeat one type. */
		MPI_Count all = 0, one = 0;
		failed(&b, PMPI_Type_size_x(type, &all));
		failed(&b, PMPI_Type_size_x(c.type[0], &one));
		c.value[0] = one > 0 ? all / one : 0;
		m->count = c.value;
	}
	m->memory = b.memory;
	return b.error;
}

void type_members_free(struct members *m)
{
	if (!m->memory)
		return;
	free_types(m->type, m->n);
	free_blocks(m->memory);
}

static const struct shape *flatten(struct build *b, MPI_Datatype type);

/* Named types are contiguous, but for pairs of a value and an int, which have the hole that a C
 * struct has. */
static const struct shape *flatten_named(struct build *b, MPI_Datatype type)
{
	MPI_Count size = 0;
	int rc = PMPI_Type_size_x(type, &size);
	int64_t first = 0, second = 0;
	if (rc == MPI_SUCCESS && b->external)
		rc = external_named(type, &first, &second);
	if (rc != MPI_SUCCESS) {
		b->error = rc;
		return NULL;
	}
	if (b->external && second == 0)
		return contiguous(b, 0, first);
	if (size <= 0 || size == extent_of(b, type) || size < 5)
		return contiguous(b, 0, size > 0 ? size : 0);
	int64_t value = size - 4;
	struct list list = list_new(b, 2);
	list_add(&list, contiguous(b, 0, b->external ? first : value), 0);
	list_add(&list, contiguous(b, 0, 4), (value + 3) / 4 * 4);
	return list_done(&list);
}

/* `n` blocks of `inner`, block i of lengths[i] (or lengths[0] for all) at displacements[i] * unit.
 */
static const struct shape *flatten_blocks(struct build *b, const struct shape *inner,
	int64_t extent, int64_t n, const int64_t *lengths, bool same, const int64_t *displacements,
	int64_t unit)
{
	struct list list = list_new(b, n);
	const struct shape *block = NULL;
	int64_t block_length = -1;
	for (int64_t i = 0; i < n && !b->error; i++) {
		int64_t length = lengths[same ? 0 : i];
		/* Blocks of one length share their shape. */
		if (length != block_length)
			block = repeat(b, inner, length, extent);
		block_length = length;
		list_add(&list, block, displacements[i] * unit);
	}
	return list_done(&list);
}

static const struct shape *flatten_subarray(
	struct build *b, const struct contents *c, const struct shape *inner, int64_t extent)
{
	/* Plain: dimensions, sizes, subsizes, starts, order, all integers. Large: dimensions and
	 * order are integers, the rest are counts. */
	int64_t dims = c->large ? c->integer[0] : c->value[0];
	const int64_t *sizes = c->large ? c->value : c->value + 1, *subsizes = sizes + dims,
		      *starts = subsizes + dims;
	int64_t order = c->large ? c->integer[1] : c->value[1 + 3 * dims];
	for (int64_t d = 0; d < dims; d++) {
		int64_t i = order == MPI_ORDER_FORTRAN ? d : dims - 1 - d;
		inner = shift(b, repeat(b, inner, subsizes[i], extent), starts[i] * extent);
		extent *= sizes[i];
	}
	return inner;
}

static const struct shape *flatten_darray(
	struct build *b, const struct contents *c, const struct shape *inner, int64_t extent)
{
	/* Plain: size, rank, dimensions, sizes, distributions, arguments, process counts, order.
	 * Large: the sizes are counts, the rest integers. */
	const int *in = c->integer;
	int64_t dims = in[2], processes = in[0], rank = in[1];
	const int *distribution = in + 3 + (c->large ? 0 : dims), *argument = distribution + dims,
		  *grid = argument + dims;
	int order = grid[dims];
	int64_t *coordinate = take(b, (size_t)dims + 1, sizeof *coordinate);
	if (!coordinate)
		return NULL;
	/* The grid of processes is in row-major order, whatever the order of the array. */
	for (int64_t d = 0; d < dims; d++) {
		processes /= grid[d];
		coordinate[d] = rank / processes;
		rank %= processes;
	}
	for (int64_t d = 0; d < dims; d++) {
		int64_t i = order == MPI_ORDER_FORTRAN ? d : dims - 1 - d;
		int64_t size = c->large ? c->value[i] : c->integer[3 + i], p = grid[i],
			k = coordinate[i], block = argument[i];
		if (distribution[i] == MPI_DISTRIBUTE_NONE ||
			(distribution[i] == MPI_DISTRIBUTE_BLOCK && p == 1)) {
			inner = repeat(b, inner, size, extent);
		} else {
			if (block == MPI_DISTRIBUTE_DFLT_DARG)
				block = distribution[i] == MPI_DISTRIBUTE_BLOCK ? (size + p - 1) / p
										: 1;
			/* Block distribution is a cyclic one with a single round. */
			int64_t start = k * block, round = block * p;
			int64_t whole = start + block <= size ? (size - start - block) / round + 1
							      : 0;
			int64_t rest_at = start + whole * round,
				rest = rest_at < size ? size - rest_at : 0;
			struct list list = list_new(b, 2);
			list_add(&list,
				repeat(b, repeat(b, inner, block, extent), whole, round * extent),
				start * extent);
			list_add(&list, repeat(b, inner, rest < block ? rest : block, extent),
				rest_at * extent);
			inner = list_done(&list);
		}
		extent *= size;
	}
	return inner;
}

static const struct shape *flatten_derived(struct build *b, MPI_Datatype type)
{
	struct contents c = {0};
	int rc = read_contents(b, type, &c);
	if (rc != MPI_SUCCESS) {
		b->error = rc;
		return NULL;
	}
	const struct shape *result = NULL;
	const int64_t *v = c.value;
	if (c.combiner == MPI_COMBINER_STRUCT) {
		int64_t n = v[0];
		struct list list = list_new(b, n);
		for (int64_t i = 0; i < n && !b->error; i++)
			list_add(&list,
				repeat(b, flatten(b, c.type[i]), v[1 + i], extent_of(b, c.type[i])),
				v[1 + n + i]);
		result = list_done(&list);
	} else if (c.types >= 1) {
		const struct shape *inner = flatten(b, c.type[0]);
		int64_t extent = extent_of(b, c.type[0]);
		switch (c.combiner) {
		case MPI_COMBINER_DUP:
		case MPI_COMBINER_RESIZED:
			result = inner;
			break;
		case MPI_COMBINER_CONTIGUOUS:
			result = repeat(b, inner, v[0], extent);
			break;
		case MPI_COMBINER_VECTOR:
			result = repeat(b, repeat(b, inner, v[1], extent), v[0], v[2] * extent);
			break;
		case MPI_COMBINER_HVECTOR:
			result = repeat(b, repeat(b, inner, v[1], extent), v[0], v[2]);
			break;
		case MPI_COMBINER_INDEXED:
			result = flatten_blocks(
				b, inner, extent, v[0], v + 1, false, v + 1 + v[0], extent);
			break;
		case MPI_COMBINER_HINDEXED:
			result = flatten_blocks(
				b, inner, extent, v[0], v + 1, false, v + 1 + v[0], 1);
			break;
		case MPI_COMBINER_INDEXED_BLOCK:
			result = flatten_blocks(b, inner, extent, v[0], v + 1, true, v + 2, extent);
			break;
		case MPI_COMBINER_HINDEXED_BLOCK:
			result = flatten_blocks(b, inner, extent, v[0], v + 1, true, v + 2, 1);
			break;
		case MPI_COMBINER_SUBARRAY:
			result = flatten_subarray(b, &c, inner, extent);
			break;
		case MPI_COMBINER_DARRAY:
			result = flatten_darray(b, &c, inner, extent);
			break;
		default:
			b->error = MPI_ERR_TYPE;
		}
	}
	free_types(c.type, c.types);
	return result;
}

static const struct shape *flatten(struct build *b, MPI_Datatype type)
{
	if (b->error)
		return NULL;
	return type_is_leaf(type) ? flatten_named(b, type) : flatten_derived(b, type);
}

/* --- Types taken apart are remembered as attributes of the datatype --- */

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;

void type_put(struct type *type)
{
	if (!type || __atomic_sub_fetch(&type->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	free_blocks(type->memory);
	free(type);
}

static int drop_cached(MPI_Datatype datatype, int key, void *type, void *extra)
{
	(void)datatype, (void)key, (void)extra;
	type_put(type);
	return MPI_SUCCESS;
}

static int type_build(MPI_Datatype datatype, bool external, struct type **out)
{
	struct type *type = calloc(1, sizeof *type);
	if (!type)
		return MPI_ERR_NO_MEM;
	struct build b = {NULL, MPI_SUCCESS, external};
	type->extent = extent_of(&b, datatype);
	type->shape = flatten(&b, datatype);
	type->size = data_of(type->shape);
	type->memory = b.memory;
	type->refs = 1;
	if (b.error != MPI_SUCCESS) {
		type_put(type);
		return b.error;
	}
	*out = type;
	return MPI_SUCCESS;
}

int type_get(MPI_Datatype datatype, struct type **out)
{
	*out = NULL;
	if (datatype == MPI_DATATYPE_NULL)
		return MPI_ERR_TYPE;
	if (type_is_leaf(datatype))
		return type_build(datatype, false, out);
	/* Under the lock a cached type is never replaced, only freed with its datatype, which the
	 * program does not do while it uses it. */
	pthread_mutex_lock(&cache_lock);
	int rc = MPI_SUCCESS, found = 0;
	if (keyval == MPI_KEYVAL_INVALID)
		rc = PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, drop_cached, &keyval, NULL);
	struct type *type = NULL;
	if (rc == MPI_SUCCESS &&
		PMPI_Type_get_attr(datatype, keyval, &type, &found) == MPI_SUCCESS && found) {
		__atomic_add_fetch(&type->refs, 1, __ATOMIC_RELAXED);
	} else {
		type = NULL;
		rc = type_build(datatype, false, &type);
		if (rc == MPI_SUCCESS && keyval != MPI_KEYVAL_INVALID) {
			type->refs = 2;
			if (PMPI_Type_set_attr(datatype, keyval, type) != MPI_SUCCESS)
				type->refs = 1;
		}
	}
	pthread_mutex_unlock(&cache_lock);
	*out = type;
	return rc;
}

int type_get_external(MPI_Datatype datatype, struct type **out)
{
	*out = NULL;
	return datatype == MPI_DATATYPE_NULL ? MPI_ERR_TYPE : type_build(datatype, true, out);
}

bool type_is_dense(const struct type *type, int64_t count, int64_t *offset)
{
	*offset = 0;
	if (!type->shape || count == 0)
		return true;
	*offset = type->shape->part[0].offset;
	return is_contiguous(type->shape) && (count == 1 || type->size == type->extent);
}

void type_tile(const struct type *type, int64_t count, struct shape *root, struct part *part)
{
	repeat_into(type->shape, count, type->extent, root, part);
}

int type_keep(MPI_Datatype type, MPI_Datatype *out)
{
	if (type_is_leaf(type)) {
		*out = type;
		return MPI_SUCCESS;
	}
	return PMPI_Type_dup(type, out);
}

void type_forget(MPI_Datatype *type)
{
	if (*type != MPI_DATATYPE_NULL && !type_is_leaf(*type))
		PMPI_Type_free(type);
	*type = MPI_DATATYPE_NULL;
}
