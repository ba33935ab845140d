// Random MPI datatypes: every constructor, nested, with increasing displacements that do not
// overlap, so that each may be a file type.
#ifndef RANDOM_TYPES_H
#define RANDOM_TYPES_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if MPI_VERSION >= 4
#define LARGE 1
#else
#define LARGE 0
#endif
// Half of the types are made by the constructors with large counts, which the ROMIO of MPICH 4.0
// cannot read.
static int large_types;
// Types with which ROMIO (4.0) and OMPIO (4.1) fail or never end: empty blocks in types of types,
// pair types with their hole.
static int hard_types;

typedef struct {
	uint64_t state;
} Rng;

static uint64_t random_bits(Rng *g)
{
	uint64_t z = g->state += 0x9E3779B97F4A7C15u;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}
static long below(Rng *g, long n)
{
	return n > 0 ? (long)(random_bits(g) % (uint64_t)n) : 0;
}
static long between(Rng *g, long low, long high)
{
	return low + below(g, high - low + 1);
}
static int one_in(Rng *g, long n)
{
	return below(g, n) == 0;
}

static MPI_Aint lower_bound(MPI_Datatype t)
{
	MPI_Aint lb, extent;
	MPI_Type_get_extent(t, &lb, &extent);
	return lb;
}
static MPI_Aint extent_of(MPI_Datatype t)
{
	MPI_Aint lb, extent;
	MPI_Type_get_extent(t, &lb, &extent);
	return extent;
}
static MPI_Aint upper_bound(MPI_Datatype t)
{
	return lower_bound(t) + extent_of(t);
}
static MPI_Aint true_end(MPI_Datatype t)
{
	MPI_Aint lb, extent;
	MPI_Type_get_true_extent(t, &lb, &extent);
	return lb + extent;
}
static int size_of(MPI_Datatype t)
{
	int size;
	MPI_Type_size(t, &size);
	return size;
}

// What is reported when two files differ: the types in words.
static void say(char *text, const char *word)
{
	if (strlen(text) + strlen(word) < 900)
		strcat(text, word);
}

enum { MAX_BLOCKS = 5 };

static MPI_Datatype resized(MPI_Datatype t, MPI_Aint extent)
{
	MPI_Datatype r;
	MPI_Type_create_resized(t, 0, extent, &r);
	MPI_Type_free(&t);
	return r;
}

// A type made of `element`, which stays the caller's. Lower bounds may be positive, extents larger
// than what is used.
static MPI_Datatype random_type(Rng *g, MPI_Datatype element, int depth, char *text)
{
	static const char *const names[] = {"contiguous", "vector", "hvector", "indexed",
		"hindexed", "indexed_block", "hindexed_block", "struct", "subarray_c",
		"subarray_fortran", "resized", "dup", "darray"};
	int kind = (int)below(g, 13), large = LARGE && one_in(g, 2) && large_types,
	    nested = depth > 0 && one_in(g, 2);
	say(text, names[kind]);
	say(text, large ? "_c(" : "(");
	MPI_Datatype inner, t;
	if (nested)
		inner = random_type(g, element, depth - 1, text);
	else
		MPI_Type_dup(element, &inner);
	say(text, ")");

	MPI_Aint unit = extent_of(inner);
	int blocks = (int)between(g, 1, MAX_BLOCKS), length = (int)between(g, 1, 3),
	    stride = length + (int)below(g, 4), at = (int)below(g, 3);
	int lengths[MAX_BLOCKS], starts[MAX_BLOCKS], fixed_starts[MAX_BLOCKS];
	MPI_Aint byte_starts[MAX_BLOCKS], fixed_byte_starts[MAX_BLOCKS];
	MPI_Datatype types[MAX_BLOCKS];
	for (int i = 0, end = at, fixed_end = at; i < blocks; i++) {
		lengths[i] = i == 0 ? length : (int)between(g, !hard_types, 3);
		starts[i] = end + (int)below(g, 4);
		fixed_starts[i] = fixed_end + (int)below(g, 4);
		end = starts[i] + lengths[i];
		fixed_end = fixed_starts[i] + length;
		byte_starts[i] = starts[i] * unit;
		fixed_byte_starts[i] = fixed_starts[i] * unit;
		types[i] = inner;
	}
	int dims = (int)between(g, 1, 3), sizes[3], parts[3], from[3], distributions[3],
	    arguments[3], grid[3];
	for (int i = 0; i < 3; i++) {
		sizes[i] = (int)between(g, 2, 6);
		parts[i] = (int)between(g, 1, sizes[i]);
		from[i] = (int)below(g, sizes[i] - parts[i] + 1);
		distributions[i] = one_in(g, 2) ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_BLOCK;
		arguments[i] = distributions[i] == MPI_DISTRIBUTE_CYCLIC && one_in(g, 2)
				       ? 2
				       : MPI_DISTRIBUTE_DFLT_DARG;
		grid[i] = (int)between(g, 1, 2);
	}
#if LARGE
	MPI_Count many_lengths[MAX_BLOCKS], many_starts[MAX_BLOCKS], many_bytes[MAX_BLOCKS],
		fixed_bytes[MAX_BLOCKS], many_sizes[3], many_parts[3], many_from[3];
	for (int i = 0; i < blocks; i++) {
		many_lengths[i] = lengths[i];
		many_starts[i] = starts[i];
		many_bytes[i] = byte_starts[i];
		fixed_bytes[i] = fixed_byte_starts[i];
	}
	for (int i = 0; i < 3; i++) {
		many_sizes[i] = sizes[i];
		many_parts[i] = parts[i];
		many_from[i] = from[i];
	}
#define MAKE(call, ordinary, many) (large ? MPI_##call##_c many : MPI_##call ordinary)
#else
#define MAKE(call, ordinary, many) MPI_##call ordinary
#endif
	int order = kind == 8	   ? MPI_ORDER_C
		    : kind == 9	   ? MPI_ORDER_FORTRAN
		    : one_in(g, 2) ? MPI_ORDER_C
				   : MPI_ORDER_FORTRAN;
	switch (kind) {
	case 0:
		MAKE(Type_contiguous, (blocks, inner, &t), (blocks, inner, &t));
		break;
	case 1:
		MAKE(Type_vector, (blocks, length, stride, inner, &t),
			(blocks, length, stride, inner, &t));
		break;
	case 2:
		MAKE(Type_create_hvector, (blocks, length, stride * unit, inner, &t),
			(blocks, length, stride * unit, inner, &t));
		break;
	case 3:
		MAKE(Type_indexed, (blocks, lengths, starts, inner, &t),
			(blocks, many_lengths, many_starts, inner, &t));
		break;
	case 4:
		MAKE(Type_create_hindexed, (blocks, lengths, byte_starts, inner, &t),
			(blocks, many_lengths, many_bytes, inner, &t));
		break;
	case 5:
		MPI_Type_create_indexed_block(blocks, length, fixed_starts, inner, &t);
		break;
	case 6:
		MAKE(Type_create_hindexed_block, (blocks, length, fixed_byte_starts, inner, &t),
			(blocks, length, fixed_bytes, inner, &t));
		break;
	case 7:
		MAKE(Type_create_struct, (blocks, lengths, byte_starts, types, &t),
			(blocks, many_lengths, many_bytes, types, &t));
		t = resized(t, upper_bound(t) + below(g, 3) * unit);
		break;
	case 8:
	case 9:
		MAKE(Type_create_subarray, (dims, sizes, parts, from, order, inner, &t),
			(dims, many_sizes, many_parts, many_from, order, inner, &t));
		break;
	case 10:
		MPI_Type_contiguous(length, inner, &t);
		t = resized(t, upper_bound(t) + stride * unit);
		break;
	case 11:
		MPI_Type_dup(inner, &t);
		break;
	default:
		// The first of the grid's places has something of every array.
		MAKE(Type_create_darray,
			(grid[0] * (dims > 1 ? grid[1] : 1) * (dims > 2 ? grid[2] : 1), 0, dims,
				sizes, distributions, arguments, grid, order, inner, &t),
			(grid[0] * (dims > 1 ? grid[1] : 1) * (dims > 2 ? grid[2] : 1), 0, dims,
				many_sizes, distributions, arguments, grid, order, inner, &t));
	}
#undef MAKE
	MPI_Type_free(&inner);
	return t;
}

static MPI_Datatype random_etype(Rng *g, char *text)
{
	static const char *const names[] = {"BYTE", "INT", "DOUBLE", "SHORT", "CHAR", "FLOAT",
		"LONG_LONG", "contiguous(3 BYTE)", "vector(2,1,2 INT)", "DOUBLE_INT"};
	MPI_Datatype basic[] = {MPI_BYTE, MPI_INT, MPI_DOUBLE, MPI_SHORT, MPI_CHAR, MPI_FLOAT,
		MPI_LONG_LONG, MPI_BYTE, MPI_INT, MPI_DOUBLE_INT},
		     t;
	int kind = (int)below(g, hard_types ? 10 : 9);
	say(text, names[kind]);
	if (kind == 7)
		MPI_Type_contiguous(3, MPI_BYTE, &t);
	else if (kind == 8)
		MPI_Type_vector(2, 1, 2, MPI_INT, &t);
	else
		MPI_Type_dup(basic[kind], &t);
	MPI_Type_commit(&t);
	return t;
}

// The bytes of a file type as one flat list, found by MPI's own unpacking, and moved to lower bound
// 0, as ROMIO (4.0) adds another one twice.
static MPI_Datatype flattened(MPI_Datatype t)
{
	MPI_Aint end = true_end(t);
	int bytes = size_of(t), at = 0, runs = 0,
	    *lengths = malloc(((size_t)bytes + 1) * sizeof *lengths);
	MPI_Aint *starts = malloc(((size_t)bytes + 1) * sizeof *starts);
	char *ones = malloc((size_t)bytes + 1), *image = calloc(1, (size_t)end + 1);
	memset(ones, 1, (size_t)bytes);
	MPI_Unpack(ones, bytes, &at, image, 1, t, MPI_COMM_SELF);
	for (MPI_Aint i = 0; i < end; i++) {
		if (!image[i])
			continue;
		if (i == 0 || !image[i - 1]) {
			starts[runs] = i - lower_bound(t);
			lengths[runs++] = 0;
		}
		lengths[runs - 1]++;
	}
	MPI_Datatype list, flat;
	MPI_Type_create_hindexed(runs, lengths, starts, MPI_BYTE, &list);
	MPI_Type_create_resized(list, 0, extent_of(t), &flat);
	MPI_Type_commit(&flat);
	MPI_Type_free(&list);
	free(lengths);
	free(starts);
	free(ones);
	free(image);
	return flat;
}

// One array over all ranks, and the part of `rank`: block, cyclic or cyclic(k) in each dimension.
// NULL if a rank would have nothing.
static MPI_Datatype random_darray(Rng *g, MPI_Datatype element, int ranks, int rank, char *text)
{
	int dims = (int)between(g, 1, 3), grid[3] = {0, 0, 0}, sizes[3], distributions[3],
	    arguments[3];
	int order = one_in(g, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, nobody = 0;
	MPI_Dims_create(ranks, dims, grid);
	for (int i = 0; i < dims; i++) {
		sizes[i] = (int)between(g, grid[i], 3 * grid[i] + 4);
		distributions[i] = one_in(g, 2) ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_BLOCK;
		arguments[i] = distributions[i] == MPI_DISTRIBUTE_CYCLIC && one_in(g, 2)
				       ? (int)between(g, 1, 3)
				       : MPI_DISTRIBUTE_DFLT_DARG;
		if (grid[i] == 1 && one_in(g, 3)) {
			distributions[i] = MPI_DISTRIBUTE_NONE;
			arguments[i] = MPI_DISTRIBUTE_DFLT_DARG;
		}
	}
	MPI_Datatype mine = MPI_DATATYPE_NULL;
	for (int r = 0; r < ranks; r++) {
		MPI_Datatype t;
		MPI_Type_create_darray(
			ranks, r, dims, sizes, distributions, arguments, grid, order, element, &t);
		nobody |= size_of(t) == 0;
		if (r == rank)
			mine = t;
		else
			MPI_Type_free(&t);
	}
	if (nobody) {
		MPI_Type_free(&mine);
		return MPI_DATATYPE_NULL;
	}
	char word[80];
	snprintf(word, sizeof word, "darray(%d dims, %d %d, order %s)", dims, (int)sizes[0],
		dims > 1 ? sizes[1] : 0, order == MPI_ORDER_C ? "C" : "Fortran");
	say(text, word);
	return mine;
}

#endif
