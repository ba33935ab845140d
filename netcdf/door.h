/* The door's own declarations. An adapter is compiled from all of netcdf/ but front.c, for one MPI;
 * it calls MPI by PMPI_ names, PnetCDF through `real` and `other`.
 *
 * A dataset is partitioned if arrays of it are cut along one dimension into K files, each a NetCDF
 * file of its own (docs/FORMAT.md section 14). The ncid that the program has is that of the master,
 * which has all dimensions, variables and attributes, but of a cut variable no more than a scalar.
 * So what is asked about anything else is asked of PnetCDF itself. */
#ifndef PLFS_NETCDF_DOOR_H
#define PLFS_NETCDF_DOOR_H

#include <limits.h>
#include <pnetcdf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "front.h"

/* PnetCDF's own functions, by name. */
struct real {
#define NAME(name) __typeof__(ncmpi_##name) *name;
#include "functions.h"
};
extern const struct real *real;
_Static_assert(
	sizeof(struct real) == FUNCTIONS * sizeof(void *), "real has the order of functions.def");

/* Those of which we have no name of our own, but which we call. */
#define OTHERS(OTHER) \
	OTHER(strerror) \
	OTHER(def_dim) \
	OTHER(def_var_fill) \
	OTHER(inq_format) \
	OTHER(inq_nvars) \
	OTHER(inq_unlimdim) \
	OTHER(inq_dimname) \
	OTHER(inq_varid) \
	OTHER(inq_varname) \
	OTHER(inq_vartype) \
	OTHER(inq_var_fill) \
	OTHER(inq_att) \
	OTHER(inq_buffer_size) \
	OTHER(inq_varoffset) \
	OTHER(get_att)
struct other {
#define OTHER(name) __typeof__(ncmpi_##name) *name;
	OTHERS(OTHER)
#undef OTHER
};
extern struct other other;

/* The door's own, with the types of pnetcdf.h. */
#define NAME(name) __typeof__(ncmpi_##name) door_##name;
#include "functions.h"

/* --- hints.c: what is asked for, by MPI_Info and by the environment --- */

struct settings {
	bool enabled;
	int parts;	   /* 0: as targets.c says */
	char *dirs;	   /* with colons between; NULL: beside the master */
	char *dim;	   /* NULL, or DIM, or VAR:DIM, with blanks or semicolons between */
	int64_t min_bytes; /* of a variable of one dimension */
	int64_t buffer;	   /* of a delegate, in bytes */
	bool exchange;	   /* collective calls go through delegates */
};

void settings_read(struct settings *settings, MPI_Info info);
void settings_free(struct settings *settings);
/* Collective: NC_EMULTIDEFINE, and a word on standard error, if ranks differ. */
int settings_agree(const struct settings *settings, MPI_Comm comm, const char *path);
/* What the settings name as the dimension along which a variable is cut, or NULL. To be freed. */
char *settings_dim(const struct settings *settings, const char *variable);
/* Puts the values in force into what a program gets to see. */
void settings_show(const struct settings *settings, int parts, MPI_Info info);
/* For the partitions: no data is read to be written back, as other processes write beside it. */
MPI_Info info_of_partitions(MPI_Info info);

/* --- file.c: datasets --- */

struct variable {
	bool is_cut, is_record;
	bool is_defined;	 /* in the partitions; of one that is whole, in the master */
	bool is_stale;		 /* its name or attributes in the partitions are old */
	const struct told *told; /* while partitions are defined, if they are to have it anew */
	nc_type type;
	int size; /* of an element, in the file */
	int ndims;
	int *dimids;
	MPI_Offset *length; /* 0: the record dimension, if that is the first */
	int dim, parts;	    /* along which it is cut, into how many */
	int *ids;	    /* of it, in each partition */
};

struct partition {
	char *name; /* as the master says it */
	char *path;
	bool is_made;
	int handle; /* on this process alone; -1: not open */
};

/* A variable of more is not partitioned. */
#define MOST_DIMS 64

enum mode { DEFINE, COLLECTIVE, INDEPENDENT };

struct request;

struct file {
	int ncid;
	char *path;
	MPI_Comm comm;	/* ours */
	MPI_Comm group; /* of those that serve the same partition; MPI_COMM_NULL: alone */
	int rank, ranks;
	MPI_Info info; /* for the partitions */
	struct settings settings;
	char run[17]; /* in master and partitions: they belong together */
	enum mode mode;
	bool is_writable, is_written;
	bool is_named;	   /* the master names the partitions */
	bool is_undefined; /* the last end of define mode failed, on some rank */
	int format;
	int nvars;
	struct variable *vars;
	int parts;
	struct partition *partition;
	int record_dim;	    /* -1: none */
	MPI_Offset records; /* in the partitions, as far as this process knows */
	struct request *first, **last;
	int next_id;
	MPI_Offset attached, attached_used;
	MPI_Offset put_bytes, got_bytes;
	double exchange_s, io_s;
};

/* The dataset of an ncid if it is partitioned, and of that a cut variable; else NULL. */
struct file *file_of(int ncid);
struct file *cut_of(int ncid, int varid);
/* Records, with those of variables that are whole. */
MPI_Offset records_of(struct file *f);
/* Collective: all know how many there are. */
int records_agree(struct file *f, MPI_Offset more);
/* Collective, after that: the master has as many, if it has a variable with records; so who reads
 * that one is not told that there are fewer. */
int master_follow(struct file *f);
/* A text attribute of a master or a partition; to be freed; NULL if it has none. */
char *global_text(int ncid, const char *name);
/* What is wrong, for people: once, by the rank that sees it. */
void say(const struct file *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first of all ranks' errors. */
int agree(MPI_Comm comm, int rc);
/* FNV-1a, of what ranks have to have alike. */
#define MIX_START 0xcbf29ce484222325
void mix(uint64_t *sum, const void *bytes, size_t n);
/* Ends the process if there is none. For what is small: if the data of a call is to be held and
 * there is no memory for that, the call gives NC_ENOMEM. */
void *must(void *memory);

/* --- targets.c --- */

/* Collective. Where the partitions of a new dataset go: `*count` directories, one for each. NULL
 * stands for the directory of the master. To be freed, each and all. */
char **targets_choose(const struct file *f, int *count);

/* --- define.c: what is cut, and what is in the partitions --- */

/* Appends what define mode knows of a variable that PnetCDF has just defined. */
void variable_add(struct file *f, const struct variable *v);
/* From master's attributes; NC_NOERR for one that is whole. */
int variable_read(struct file *f, int varid);
/* The part [*low, *low + *length) of the cut dimension that is in partition k. */
void part_of(const struct variable *v, int k, MPI_Offset *low, MPI_Offset *length);
/* Is this a name that the layout needs? */
bool is_reserved(struct file *f, int varid, const char *name);
/* Collective, before anything is on disk: NC_EEXIST, and a word, if a file is where a partition is
 * to be that is not of `run`, that of the dataset that is replaced. */
int places_check(struct file *f, const char *run);
/* Collective, of definitions that all have alike: can the partitions be opened, if the end of
 * define mode will change them? */
int partitions_are_there(struct file *f);
/* Collective, in data mode: variables of the master that are new have their fill value in the
 * records that only the partitions had. */
int master_fill(struct file *f);
/* Puts what the layout needs into the master, which is in define mode. */
int master_define(struct file *f);
/* Collective, in data mode: makes and changes partitions so that they have what the master says, if
 * they have not. The arguments are those of _enddef, NULL for none. */
int partitions_define(struct file *f, const MPI_Offset *align);
/* Collective: are all there, whole, and of this dataset? */
int partitions_check(struct file *f);
/* Removes partitions of a dataset that is no more. */
struct stale {
	int count;
	char **paths;
	char run[17];
};
void stale_find(struct stale *stale, const char *path);
void stale_add(struct stale *stale, const char *path);
void stale_remove(struct stale *stale, bool wanted);
void partition_paths(struct file *f, char **dirs);

/* --- partition.c: the files --- */

/* Who serves partition k: `*count` ranks from `*first`. */
void group_of(const struct file *f, int k, int *first, int *count);
/* Collective over `comm`. The dataset's mode; what is wrong is said. */
int partition_open(struct file *f, int k, MPI_Comm comm, int *ncid);
/* The handle of this process, which knows of at least `records`. */
int handle_of(struct file *f, int k, MPI_Offset records, int *ncid);
/* Collective, before anybody writes: opens those that this process serves, or all of them, if they
 * are on a file system in user space. Who opens a file reads its header, and the system reads on
 * behind it; a client of ceph-fuse 16 that does so while other clients write there keeps the zeros
 * that it found. */
int handles_open(struct file *f, bool all);
int handles_close(struct file *f);
/* As many as a file says; 0 if it has no record dimension. */
int records_known(int ncid, MPI_Offset *records);
/* Bytes that the file has to have by what its header says, and that it has. */
int extent_of(struct file *f, int k, int ncid, MPI_Offset *needed, MPI_Offset *present);
/* Raises the number of records in a file, which has a record dimension, and the file's size. */
int settle(struct file *f, int k, MPI_Offset records, MPI_Offset size);
/* Collective: the number of records in each file is at least what has been agreed. Handles write
 * the one that they know, which of two ranks that append at the same time is one's own. */
int records_settle(struct file *f);
/* Collective, all handles closed: the number of records and the size of each file are right. */
int partitions_settle(struct file *f);
/* Collective, at an open for writing: master and partitions have the same number of records, which
 * a writer that was killed may not have left so. */
int records_mend(struct file *f);

/* --- request.c: what is to be transferred --- */

struct shape {
	enum { VAR, VAR1, VARA, VARS, VARM, VARN } kind;
	int num;
	const MPI_Offset *start, *count, *stride, *imap;
	MPI_Offset *const *starts, *const *counts;
};

/* A request, as sub-requests that are dense or mapped boxes of the variable. */
struct request {
	struct request *next;
	int id, varid, status;
	bool is_put;
	char *data; /* elements of `type`, `size` bytes each */
	char *own;  /* freed at the end: packed or buffered data */
	MPI_Datatype type;
	int size;
	MPI_Offset elements;
	/* Where a get goes that is not of one type: `own` is unpacked there. */
	MPI_Datatype user_type;
	MPI_Offset user_count;
	void *user_data;
	MPI_Offset buffered; /* bytes of the attached buffer */
	MPI_Offset record_end;
	int count;
	struct box {
		MPI_Offset at; /* element of `data` at which it begins */
		MPI_Offset *start, *count, *stride, *imap;
	} *boxes;
	MPI_Offset *numbers;
};

enum how { PUT = 1, ALL = 2, LATER = 4, BUFFERED = 8 };

/* Is told instead of a result if a call is for PnetCDF itself: no rank names a cut variable. */
#define NOT_CUT INT_MAX
/* NC_NOERR if a call of this kind may be made now. */
int mode_allows(const struct file *f, int how);
/* Whose is a call that names `*varid` and, if it puts, has records up to `*end`? A collective call
 * is one for all ranks, whatever each of them names; so this is collective, then, and gives a cut
 * variable that one of them names and the largest end. On NC_NOERR all ranks go on, those as well
 * whose own arguments are wrong. */
int whose(struct file *f, int how, int *varid, MPI_Offset *end);
/* What is wrong with a variable where a cut one is named. */
int wrong_variable(const struct file *f, int varid);
/* One call of put, get, iput, iget or bput; NOT_CUT if it is PnetCDF's. */
int transfer(struct file *f, int varid, int how, const struct shape *shape, const void *buffer,
	MPI_Offset count, MPI_Datatype type, int *id);
/* The number of the datatype for messages, and back. */
int type_number(MPI_Datatype type);
MPI_Datatype type_numbered(int number, int *size);
void requests_drop(struct file *f);
/* Removes a request from the list; NULL if it is none of ours. */
struct request *request_take(struct file *f, int id);
#define FIRST_ID (1 << 29)

/* What of a box is in one partition, in the partition's coordinates. */
struct piece {
	struct request *request;
	int k;
	MPI_Offset at;
	MPI_Offset *start, *count, *stride, *imap;
};

struct pieces {
	struct piece *piece;
	int count, room;
};

void pieces_cut(struct file *f, struct request *r, struct pieces *out);
void pieces_free(struct pieces *pieces);

/* --- direct.c, exchange.c: two ways to the partitions --- */

/* Non-blocking calls to one partition, not so many that PnetCDF looks for them long. */
#define BATCH 1024
struct batch {
	int count, *ids, *told, *id, **status;
	const MPI_Offset **box;
};
/* `box` is start, count and stride, and stays until batch_end, which waits. */
void batch_add(struct batch *b, int ncid, bool put, int id, int ndims, const MPI_Offset *box,
	const MPI_Offset *imap, void *data, MPI_Datatype type, int *status);
void batch_end(struct batch *b, int ncid);
void batch_free(struct batch *b);
/* By this process. Errors are left in the requests. */
void issue_directly(struct file *f, bool put, const struct pieces *pieces);
/* Collective: by the delegates of each partition. */
int issue_by_delegates(struct file *f, bool put, const struct pieces *pieces);

#endif
