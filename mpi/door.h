/* What the files of an adapter share. The door translates MPI-IO to libplfs; the meaning of files
 * is in libplfs.
 *
 * One set of sources serves every MPI: what is compiled against decides the ABI. Everything of MPI
 * is called by its profiling name, and MPI_File_* through `real`, because those symbols are the
 * door's own. Internal functions give an MPI error class, MPI_SUCCESS for none; only the outermost
 * ones call error handlers. */
#ifndef PLFS_MPI_DOOR_H
#define PLFS_MPI_DOOR_H

#include <mpi.h>
#include <plfs_door.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "front.h"

/* The standard ABI leaves Fortran out; its integer is int wherever the door runs. */
#ifdef MPI_ABI_VERSION
typedef int MPI_Fint;
#endif

/* Internal functions are hidden: in the static library, they must not meet the program's. */
#pragma GCC visibility push(hidden)

/* --- The MPI's own functions --- */

struct real {
#define PLAIN(name, ret, params) ret(*name) params;
#define BLOCKING(name, direction, where) \
	int (*name)(MPI_File, void *, int, MPI_Datatype, MPI_Status *); \
	int (*name##_c)(MPI_File, void *, MPI_Count, MPI_Datatype, MPI_Status *);
#define BLOCKING_AT(name, direction) \
	int (*name)(MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Status *); \
	int (*name##_c)(MPI_File, MPI_Offset, void *, MPI_Count, MPI_Datatype, MPI_Status *);
#define NONBLOCKING(name, direction, where) \
	int (*name)(MPI_File, void *, int, MPI_Datatype, MPI_Request *); \
	int (*name##_c)(MPI_File, void *, MPI_Count, MPI_Datatype, MPI_Request *);
#define NONBLOCKING_AT(name, direction) \
	int (*name)(MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Request *); \
	int (*name##_c)(MPI_File, MPI_Offset, void *, MPI_Count, MPI_Datatype, MPI_Request *);
#define BEGIN(name, direction, where) \
	int (*name##_begin)(MPI_File, void *, int, MPI_Datatype); \
	int (*name##_begin_c)(MPI_File, void *, MPI_Count, MPI_Datatype);
#define BEGIN_AT(name, direction) \
	int (*name##_begin)(MPI_File, MPI_Offset, void *, int, MPI_Datatype); \
	int (*name##_begin_c)(MPI_File, MPI_Offset, void *, MPI_Count, MPI_Datatype);
#define END(name, direction) int (*name##_end)(MPI_File, void *, MPI_Status *);
#include "functions.def"
#undef PLAIN
#undef BLOCKING
#undef BLOCKING_AT
#undef NONBLOCKING
#undef NONBLOCKING_AT
#undef BEGIN
#undef BEGIN_AT
#undef END
};

extern const struct real *real;
_Static_assert(
	sizeof(struct real) == FUNCTIONS * sizeof(void *), "real has the order of functions.def");

/* The door's own, by name. */
#define PLAIN(name, ret, params) ret door_##name params;
#define BLOCKING(name, direction, where)
#define BLOCKING_AT(name, direction)
#define NONBLOCKING(name, direction, where)
#define NONBLOCKING_AT(name, direction)
#define BEGIN(name, direction, where)
#define BEGIN_AT(name, direction)
#define END(name, direction)
#include "functions.def"
#undef PLAIN
#undef BLOCKING
#undef BLOCKING_AT
#undef NONBLOCKING
#undef NONBLOCKING_AT
#undef BEGIN
#undef BEGIN_AT
#undef END

enum direction { READ, WRITE };

/* --- type.c: what bytes a datatype means --- */

/* `count` times a body of `body` data bytes, the bodies `stride` bytes apart. A body is a list of
 * parts in the order of its data; each is contiguous or a shape of its own. So a vector of a
 * million blocks is one shape, and nothing is ever kept for each byte or each repetition. */
struct shape {
	int64_t count, stride, body;
	int64_t parts;
	struct part {
		int64_t offset, before;	   /* where it is; data bytes of the body before it */
		const struct shape *inner; /* NULL: contiguous */
	} *part;
};

/* A datatype, taken apart. */
struct type {
	_Atomic int refs;
	const struct shape *shape; /* NULL: no data */
	int64_t size, extent;
	struct block *memory;
};

/* Takes `type` apart, or finds the result of an earlier call. The caller gets a reference. */
int type_get(MPI_Datatype type, struct type **out);
void type_put(struct type *type);
/* Is it one piece, so that `count` of them are, too? `*offset` is where the piece begins. */
bool type_is_dense(const struct type *type, int64_t count, int64_t *offset);
/* Makes `root`, whose part may be `part`, stand for `count` of `type`, which has data. */
void type_tile(const struct type *type, int64_t count, struct shape *root, struct part *part);
/* Calls `piece` for data bytes [from, from + n) of a shape, in order: `count` pieces of `length`
 * bytes, `stride` apart. Ends early if it gives something else than 0, and returns that. */
typedef int piece_fn(void *user, int64_t offset, int64_t length, int64_t stride, int64_t count);
int shape_walk(const struct shape *shape, int64_t base, int64_t from, int64_t n, piece_fn *piece,
	void *user);
/* Where data byte `at` is; INT64_MAX if that is past the last offset. */
int64_t shape_locate(const struct shape *shape, int64_t base, int64_t at);
/* A copy of a datatype that stays valid when the program frees its own; named types stand for
 * themselves. */
int type_keep(MPI_Datatype type, MPI_Datatype *out);
void type_forget(MPI_Datatype *type);

/* As type_get, for the type as it is in a file of the representation external32. Not remembered. */
int type_get_external(MPI_Datatype type, struct type **out);
/* Its extent there. */
int type_external_extent(MPI_Datatype type, int64_t *extent);
bool type_is_leaf(MPI_Datatype type);
int type_combiner(MPI_Datatype type);

/* What a derived type is made of, in the order of its data: count[0] of type[0], and so on. Of a
 * type that repeats one it is that alone. */
struct members {
	int64_t n;
	MPI_Datatype *type;
	int64_t *count;
	struct block *memory;
};
int type_members(MPI_Datatype type, struct members *members);
void type_members_free(struct members *members);

/* --- external.c: the data representation external32 --- */

/* The bytes that a named type has there; of a pair those of its value and its place, else
 * `*second` is 0. */
int external_named(MPI_Datatype type, int64_t *first, int64_t *second);
/* What a datatype is a sequence of; NULL for one without data. */
struct signature;
/* MPI_ERR_COUNT if the bytes of `count` of them do not fit. */
int signature_get(MPI_Datatype type, int64_t count, struct signature **out);
void signature_free(struct signature *signature);
/* Bytes of one: packed as memory has them, and in a file. */
int64_t signature_native(const struct signature *signature);
int64_t signature_external(const struct signature *signature);
/* Converts up to `left` bytes of a file from or to packed memory; not those of an element that is
 * there in part only. */
int external_convert(const struct signature *signature, int64_t count, enum direction direction,
	char *native, char *external, int64_t left);
/* How many bytes of memory `moved` bytes of a file are. */
int64_t external_native(const struct signature *signature, int64_t moved);

/* --- view.c: what part of the file a process sees --- */

struct view {
	MPI_Offset disp;
	MPI_Datatype etype, filetype;
	enum representation { NATIVE, INTERNAL, EXTERNAL32 } representation;
	int64_t etype_size; /* in the file */
	struct type *type;  /* of the file type, as it is in the file */
	struct shape root;  /* the file type, endlessly */
	struct part part;
};

/* The view that every file has first: bytes, from 0. */
int view_init(struct view *view);
void view_free(struct view *view);
/* The offset in the file of data byte `at` of the view. */
int64_t view_offset(const struct view *view, int64_t at);
/* How many data bytes of the view are before `offset`. */
int64_t view_bytes_before(const struct view *view, int64_t offset);

/* --- handle.c: the door's files --- */

enum where { POINTER, EXPLICIT, SHARED, ORDERED };

/* The values of hints, as in ROMIO: the door chooses, or the program does. */
enum { HINT_AUTOMATIC, HINT_ENABLE, HINT_DISABLE };

/* docs/TUNING.md says what they mean. */
struct hints {
	int flatten_on_close;
	int64_t flatten_threshold;
	int parallel_index_read;
	int coherent;
};

/* An open file of ours. The program's handle is a real one of its MPI, open on /dev/null for
 * reading: so conversions and error handlers are the MPI's own, and a call that is not wrapped
 * fails without harm. */
struct file {
	struct file *next;
	MPI_File fh;
	plfs_file *plfs;
	char *path;
	MPI_Comm comm; /* a duplicate, which separates our messages from the program's */
	int rank, ranks;
	int amode;
	bool atomic;
	bool wrote; /* anything, through this handle */
	struct view view;
	struct hints hints;

	pthread_mutex_t lock; /* protects what follows, which several threads may use */
	MPI_Offset position;  /* in etypes */
	const void *split;    /* what was begun: the address of its name; NULL if nothing */
	MPI_Count split_bytes;
	uint64_t shared_id; /* shared_pointer.c */
	int64_t shared_start;
};

struct file *file_of(MPI_File fh);
void file_add(struct file *file);
void file_remove(struct file *file);

/* --- error.c --- */

/* The class of a negative error number of libplfs. */
int error_class(int64_t rc);
/* Calls the file's error handler if `code` is not MPI_SUCCESS, and returns `code`. */
int fail(const struct file *file, int code);
/* As fail, for calls that have no file: the handler of MPI_FILE_NULL. */
int fail_without_file(int code);

/* --- collective.c: ranks that agree --- */

/* MPI_Allreduce in place, which leaves the processor to others while it waits. */
int reduce(MPI_Comm comm, void *values, int n, MPI_Datatype type, MPI_Op op);
/* The first one of an open, of at most FIRST_MOST values; finds out whether all ranks have the
 * door, and says so if they have not. Its name is for people. */
#define FIRST_MOST 8
int reduce_first(MPI_Comm comm, int64_t *values, int n, const char *name);
/* Seconds after which it says that ranks are late. */
#define LATE_S 15
/* MPI_Comm_dup, which waits so too. */
int duplicate(MPI_Comm comm, MPI_Comm *copy);
/* The worst code of all ranks, at all ranks. */
int agree(MPI_Comm comm, int code);
/* Rank 0's values, at all ranks. */
int hear(MPI_Comm comm, int64_t *values, int n);
/* MPI_SUCCESS at all ranks if the values are the same everywhere and all codes are MPI_SUCCESS;
 * else the worst code or `different`. */
int agree_same(MPI_Comm comm, int code, const int64_t *values, int n, int different);
/* Closes at all ranks, rank 0 last. */
int collective_close(struct file *file);

/* --- index.c: one index for all ranks. Collective; what does not work is left to each rank alone
 * --- */

/* At rank 0: how many bytes of index logs make it worth for the ranks to load them together;
 * negative if it is not to be done. */
int64_t index_pending(const struct file *file);
/* At open: loads the index once for all ranks of a node, if rank 0's `pending` says so. */
void index_load_together(struct file *file, int64_t pending);
/* Will the close store the index together? The same at all ranks. */
bool index_is_stored_together(const struct file *file);
/* At close, when all ranks have committed: puts one index of all in the container, if some wrote
 * and the sizes say so. */
void index_store_together(struct file *file);

/* --- info.c --- */

void hints_default(struct hints *hints);
/* Takes what it knows from `info`. MPI_ERR_INFO_VALUE for a value that is none. */
int hints_read(struct hints *hints, MPI_Info info);

/* --- shared_pointer.c --- */

/* Adds `bytes` to the shared pointer; `*before` gets its data byte in the view until now. */
int shared_advance(struct file *file, int64_t bytes, int64_t *before);
/* Collective: the pointer is at data byte `at` from now on. */
void shared_restart(struct file *file, int64_t at);

/* --- transfer.c --- */

/* Do other ranks see what a rank writes when its call returns? */
bool is_coherent(const struct file *file);
/* One data access of any kind. `*bytes` gets how many were moved. */
int transfer(struct file *file, enum direction direction, enum where where, MPI_Offset offset,
	void *buf, MPI_Count count, MPI_Datatype type, MPI_Count *bytes);

#pragma GCC visibility pop
#endif
