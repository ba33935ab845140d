/* The data representation external32: big-endian, and of the sizes that the standard says.
 *
 * The bytes are the MPI's own: each run of equal named types goes through its MPI_Pack_external.
 * Derived types are taken apart here, because both MPIs' have errors of which a file would keep the
 * traces: MPICH ends the program for pairs of a value and an int, and for wide characters, and Open
 * MPI counts other bytes (MPI_Pack_external_size) than it packs. So sizes are what is packed. */
#include "door.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define REPRESENTATION "external32"

/* One named type as the MPI is to pack it. */
struct named {
	MPI_Datatype type;
	int64_t native, external;
};

/* --- Named types --- */

/* Pairs, and the type of their value. Some are MPI_DATATYPE_NULL in an MPI without Fortran. */
static bool pair_of(MPI_Datatype type, MPI_Datatype *value, MPI_Datatype *place)
{
	const MPI_Datatype pairs[][3] = {
		{MPI_FLOAT_INT, MPI_FLOAT, MPI_INT},
		{MPI_DOUBLE_INT, MPI_DOUBLE, MPI_INT},
		{MPI_LONG_INT, MPI_LONG, MPI_INT},
		{MPI_2INT, MPI_INT, MPI_INT},
		{MPI_SHORT_INT, MPI_SHORT, MPI_INT},
		{MPI_LONG_DOUBLE_INT, MPI_LONG_DOUBLE, MPI_INT},
		{MPI_2REAL, MPI_REAL, MPI_REAL},
		{MPI_2DOUBLE_PRECISION, MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION},
		{MPI_2INTEGER, MPI_INTEGER, MPI_INTEGER},
	};
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		if (type == pairs[i][0]) {
			*value = pairs[i][1];
			*place = pairs[i][2];
			return true;
		}
	return false;
}

/* Does the MPI convert what is longer than a double? Open MPI 4.1 takes the long doubles of x86
 * apart as if they were quadruple, and all of them in the wrong order: 1.5 comes back
 * as 1.26e-4932. */
static bool converts(MPI_Datatype type, int64_t size)
{
	const long double longs[2] = {1.5L, -3.25L};
	const unsigned char quads[2][16] = {{[13] = 0x80, [14] = 0xff, [15] = 0x3f},
		{[13] = 0xa0, [15] = 0xc0}},
			    right[2][16] = {{0x3f, 0xff, 0x80}, {0xc0, 0x00, 0xa0}};
	const void *in = quads;
	if (type == MPI_LONG_DOUBLE || type == MPI_C_LONG_DOUBLE_COMPLEX
#ifdef MPI_CXX_LONG_DOUBLE_COMPLEX
		|| type == MPI_CXX_LONG_DOUBLE_COMPLEX
#endif
	)
		in = longs;
	else if (type != MPI_REAL16 && type != MPI_COMPLEX32)
		return true;
	unsigned char external[sizeof right], back[sizeof quads] = {0};
	MPI_Aint at = 0, bytes = 0;
	if (size > (int64_t)sizeof external ||
		PMPI_Pack_external(REPRESENTATION, in, 1, type, external, sizeof external,
			&bytes) != MPI_SUCCESS ||
		PMPI_Unpack_external(REPRESENTATION, external, bytes, &at, back, 1, type) !=
			MPI_SUCCESS ||
		memcmp(external, right, (size_t)bytes) != 0)
		return false;
	/* The rest of a long double is padding. */
	size_t each = in == quads || LDBL_MANT_DIG != 64 ? 16 : 10;
	return memcmp(back, in, each) == 0 &&
	       (size <= 16 || memcmp(back + 16, (const char *)in + 16, each) == 0);
}

/* `external` is what the MPI makes of one element. */
static int named_of(MPI_Datatype type, struct named *out)
{
	MPI_Count size = 0;
	int combiner = type_combiner(type), rc = PMPI_Type_size_x(type, &size);
	*out = (struct named){type, size, 0};
	if (rc != MPI_SUCCESS || size <= 0)
		return rc;
	if (type == MPI_WCHAR && size == 4)
		out->type = MPI_INT32_T;
	else if (combiner == MPI_COMBINER_F90_REAL && size == 16)
		out->type = MPI_REAL16;
	else if (combiner == MPI_COMBINER_F90_COMPLEX && size == 32)
		out->type = MPI_COMPLEX32;
	else if (combiner == MPI_COMBINER_F90_REAL)
		rc = PMPI_Type_match_size(MPI_TYPECLASS_REAL, (int)size, &out->type);
	else if (combiner == MPI_COMBINER_F90_COMPLEX)
		rc = PMPI_Type_match_size(MPI_TYPECLASS_COMPLEX, (int)size, &out->type);
	else if (combiner == MPI_COMBINER_F90_INTEGER)
		rc = PMPI_Type_match_size(MPI_TYPECLASS_INTEGER, (int)size, &out->type);
	char native[64] = {0}, external[64];
	MPI_Aint at = 0;
	if (rc == MPI_SUCCESS &&
		(size > (MPI_Count)sizeof native || out->type == MPI_DATATYPE_NULL))
		rc = MPI_ERR_CONVERSION;
	if (rc == MPI_SUCCESS)
		rc = PMPI_Pack_external(
			REPRESENTATION, native, 1, out->type, external, sizeof external, &at);
	out->external = at;
	return rc == MPI_SUCCESS && at <= 0 ? MPI_ERR_CONVERSION : rc;
}

int external_named(MPI_Datatype type, int64_t *first, int64_t *second)
{
	MPI_Datatype value = type, place = MPI_DATATYPE_NULL;
	struct named n;
	*second = 0;
	if (pair_of(type, &value, &place)) {
		int rc = named_of(place, &n);
		if (rc != MPI_SUCCESS)
			return rc;
		*second = n.external;
	}
	int rc = named_of(value, &n);
	*first = n.external;
	return rc;
}

/* --- What a datatype is a sequence of --- */

/* `count` of a named type, if there are no parts, or `count` times the parts. The bytes are those
 * of all of it. */
struct signature {
	int64_t native, external;
	int64_t count, parts;
	struct signature **part;
	MPI_Datatype named;
};

void signature_free(struct signature *s)
{
	if (!s)
		return;
	for (int64_t i = 0; i < s->parts; i++)
		signature_free(s->part[i]);
	free(s->part);
	free(s);
}

static int leaf(MPI_Datatype type, struct signature **out)
{
	struct named n;
	int rc = named_of(type, &n);
	if (rc == MPI_SUCCESS && !converts(n.type, n.native))
		rc = MPI_ERR_CONVERSION;
	struct signature *s = rc == MPI_SUCCESS ? calloc(1, sizeof *s) : NULL;
	if (!s)
		return rc == MPI_SUCCESS ? MPI_ERR_NO_MEM : rc;
	*s = (struct signature){
		.native = n.native, .external = n.external, .count = 1, .named = n.type};
	*out = s;
	return MPI_SUCCESS;
}

/* With room for `parts`, which are added one by one. */
static struct signature *sequence(int64_t parts)
{
	struct signature *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->count = 1;
	s->part = calloc((size_t)parts + 1, sizeof(struct signature *));
	if (!s->part) {
		free(s);
		return NULL;
	}
	return s;
}

static void add(struct signature *s, struct signature *part)
{
	s->native += part->native;
	s->external += part->external;
	s->part[s->parts++] = part;
}

/* Nothing, for a type without data. Sizes of types fit, so products do. */
static struct signature *times(struct signature *s, int64_t n)
{
	if (!s || n <= 0) {
		signature_free(s);
		return NULL;
	}
	s->count *= n;
	s->native *= n;
	s->external *= n;
	return s;
}

static int signature_build(MPI_Datatype type, struct signature **out)
{
	MPI_Datatype value = type, place = type;
	MPI_Count size = 0;
	int rc = PMPI_Type_size_x(type, &size);
	*out = NULL;
	if (rc != MPI_SUCCESS || size <= 0)
		return rc;
	if (type_is_leaf(type) && !pair_of(type, &value, &place))
		return leaf(type, out);
	MPI_Datatype pair[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
	int64_t one_each[2] = {1, 1};
	struct members members = {2, pair, one_each, NULL};
	if (!type_is_leaf(type))
		rc = type_members(type, &members);
	else if (pair_of(type, &value, &place))
		pair[0] = value, pair[1] = place;
	struct signature *s = rc == MPI_SUCCESS ? sequence(members.n) : NULL;
	if (rc == MPI_SUCCESS && !s)
		rc = MPI_ERR_NO_MEM;
	for (int64_t i = 0; rc == MPI_SUCCESS && i < members.n; i++) {
		struct signature *part = NULL;
		rc = signature_build(members.type[i], &part);
		part = times(part, members.count[i]);
		if (rc == MPI_SUCCESS && part)
			add(s, part);
		else
			signature_free(part);
	}
	type_members_free(&members);
	/* A list of one is that one. */
	if (rc == MPI_SUCCESS && s->parts == 1) {
		*out = s->part[0];
		s->parts = 0;
	} else if (rc == MPI_SUCCESS) {
		*out = s;
		return rc;
	}
	signature_free(s);
	return rc;
}

int signature_get(MPI_Datatype type, int64_t count, struct signature **out)
{
	int rc = signature_build(type, out);
	if (rc == MPI_SUCCESS && *out && count > 1) {
		int64_t all;
		if (__builtin_mul_overflow((*out)->external, count, &all) ||
			__builtin_mul_overflow((*out)->native, count, &all))
			rc = MPI_ERR_COUNT;
	}
	if (rc != MPI_SUCCESS) {
		signature_free(*out);
		*out = NULL;
	}
	return rc;
}

int64_t signature_native(const struct signature *s)
{
	return s ? s->native : 0;
}

int64_t signature_external(const struct signature *s)
{
	return s ? s->external : 0;
}

/* --- Conversion --- */

struct conversion {
	enum direction direction;
	char *native, *external; /* NULL: only counted */
	int64_t left;		 /* external bytes */
	int64_t converted;	 /* native bytes */
	int rc;
};

/* No more elements than this in a call: their bytes fit into an int. */
#define RUN (1 << 24)

static void convert_run(struct conversion *c, const struct signature *s)
{
	int64_t native = s->native / s->count, external = s->external / s->count,
		n = c->left / external < s->count ? c->left / external : s->count;
	bool whole = n == s->count;
	while (n > 0 && c->rc == MPI_SUCCESS) {
		int now = n < RUN ? (int)n : RUN;
		MPI_Aint at = 0, bytes = now * external;
		if (c->native && c->direction == WRITE)
			c->rc = PMPI_Pack_external(
				REPRESENTATION, c->native, now, s->named, c->external, bytes, &at);
		else if (c->native)
			c->rc = PMPI_Unpack_external(
				REPRESENTATION, c->external, bytes, &at, c->native, now, s->named);
		if (c->native) {
			c->native += now * native;
			c->external += now * external;
		}
		c->left -= now * external;
		c->converted += now * native;
		n -= now;
	}
	/* The rest is part of an element. */
	if (!whole)
		c->left = 0;
}

static void convert(struct conversion *c, const struct signature *s)
{
	if (s->parts == 0) {
		convert_run(c, s);
		return;
	}
	for (int64_t i = 0; i < s->count; i++)
		for (int64_t p = 0; p < s->parts; p++) {
			if (c->left <= 0 || c->rc != MPI_SUCCESS)
				return;
			convert(c, s->part[p]);
		}
}

/* A run of a single named type is longer with `count`, anything else is done so many times. */
static void convert_times(struct conversion *c, const struct signature *s, int64_t count)
{
	struct signature all = *s;
	all.count *= count;
	all.native *= count;
	all.external *= count;
	convert(c, &all);
}

int external_convert(const struct signature *s, int64_t count, enum direction direction,
	char *native, char *external, int64_t left)
{
	struct conversion c = {direction, native, external, left, 0, MPI_SUCCESS};
	if (s)
		convert_times(&c, s, count);
	return c.rc;
}

int64_t external_native(const struct signature *s, int64_t moved)
{
	if (!s)
		return 0;
	struct conversion c = {READ, NULL, NULL, moved % s->external, 0, MPI_SUCCESS};
	convert(&c, s);
	return moved / s->external * s->native + c.converted;
}
