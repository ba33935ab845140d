// differential DIR_A DIR_B FIRST_SEED SEEDS STEPS
//
// Makes the same random MPI-IO calls on a file in DIR_A, which answers as the MPI's own MPI-IO
// does, and on a file in DIR_B, and compares every answer and at the end every byte. A line says
// seed, step, call and types of what differed. The exit status is 1 if anything did.
//
// The ROMIO of MPICH 4.0 places the bytes of some nested types wrongly. So the file in DIR_A gets
// every view as a flat list of bytes and every buffer packed, both made by MPI's datatype engine,
// and the file in DIR_B the types as they are (if that ROMIO serves both, neither does).
//
// DIFFERENTIAL_DOOR=1: PLFS itself serves DIR_B, so that some is asked of it which the MPI's own
// MPI-IO does not survive. DIFFERENTIAL_WITHOUT: "shared" and "atomic" leave these calls out.
// DIFFERENTIAL_BUG=data|read|size|position makes the test itself go wrong on the second file, to
// show that it would see that. DIFFERENTIAL_TRACE=1 prints every step.
//
// MPI promises nothing about bytes that ranks write at the same time, nor about bytes of others
// before sync-barrier-sync. So in a view of parts each rank has its own bytes of the file, in the
// other views writers take turns or write different ranges, and before a rank can read what another
// wrote there is sync-barrier-sync, or a barrier in atomic mode.
#include "random_types.h"
#include <stdarg.h>
#include <signal.h>
#include <unistd.h>

enum { FILE_LIMIT = 200000, LONGEST = 300, SLACK = 64, REPORTS = 6 };

enum place { AT, POINTER, SHARED, ORDERED };
enum form { BLOCKING, IMMEDIATE, SPLIT };
enum view { PARTS, SAME, OWN }; // each rank its own bytes; one view for all; any view for each

static struct {
	MPI_File file[2];
	char path[2][4096];
	int amode, atomic;
	enum view view;
	int contiguous;		      // no rank's view has holes
	MPI_Offset disp, known_bytes; // the size when all ranks last agreed on it
	MPI_Datatype etype, filetype, flat;
	int etype_bytes;
	MPI_Aint etype_end;
	char text[2000];
} f;

static Rng all, mine; // `all` draws the same on every rank
static int which;     // the file of the call
static int rank, ranks, step, differences, reports, without_shared, without_atomic, trace, openmpi,
	door, flat_types;
static long seed;
static const char *bug, *call_name = "";
static char memory_text[1000];

static void differ(const char *format, ...)
{
	differences++;
	if (reports++ >= REPORTS)
		return;
	char what[600], view[2000];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	snprintf(view, sizeof view, "%s", f.text);
	printf("seed %ld step %d rank %d of %d: %s: %s [view %s, disp %lld; memory %s]\n", seed,
		step, rank, ranks, call_name, what, view, (long long)f.disp, memory_text);
	fflush(stdout);
}
// A call that does not end is a difference too; mpiexec ends the others.
static void stuck(int signal)
{
	(void)signal;
	differ("has not ended for file %c", 'a' + which);
	_exit(4);
}
static int class_of(int error)
{
	int class = MPI_SUCCESS;
	if (error)
		MPI_Error_class(error, &class);
	return class;
}
static const char *error_text(int error)
{
	static char text[2][MPI_MAX_ERROR_STRING];
	static int turn;
	int length;
	turn ^= 1;
	if (error == MPI_SUCCESS)
		return "no error";
	MPI_Error_string(error, text[turn], &length);
	return text[turn];
}
// Both calls must end alike.
static int same_class(int a, int b)
{
	if (class_of(a) != class_of(b))
		differ("error '%s', not '%s'", error_text(b), error_text(a));
	else if (trace && a)
		printf("seed %ld step %d rank %d: %s: %s\n", seed, step, rank, call_name,
			error_text(a));
	return a == MPI_SUCCESS && b == MPI_SUCCESS;
}
static void same_number(const char *what, MPI_Offset a, MPI_Offset b)
{
	if (a != b)
		differ("%s %lld, not %lld", what, (long long)b, (long long)a);
}
#define ON_BOTH(call) \
	do { \
		int i_ = 0, e_[2]; \
		for (; i_ < 2; i_++) { \
			MPI_File fh = f.file[which = i_]; \
			e_[i_] = (call); \
		} \
		same_class(e_[0], e_[1]); \
	} while (0)

// From here on every rank sees what the others wrote.
static void meet(void)
{
	const char *name = call_name;
	call_name = "MPI_File_sync";
	int only_barrier = f.atomic && one_in(&all, 2);
	int readable = f.amode &
		       (MPI_MODE_RDWR | MPI_MODE_WRONLY); // sync of a file opened for reading is an
							  // error in some MPIs
	if (!only_barrier && readable)
		ON_BOTH(MPI_File_sync(fh));
	MPI_Barrier(MPI_COMM_WORLD);
	if (!only_barrier && readable)
		ON_BOTH(MPI_File_sync(fh));
	MPI_Offset size[2];
	call_name = "MPI_File_get_size";
	for (int i = 0; i < 2; i++)
		MPI_File_get_size(f.file[i], &size[i]);
	same_number("size", size[0], size[1]);
	f.known_bytes = size[0];
	MPI_Barrier(MPI_COMM_WORLD); // nobody writes on while another asks for the size
	call_name = name;
}

static int is_flat(int file)
{
	return file == 0 || flat_types;
}
static MPI_Offset position(int i)
{
	MPI_Offset at = -1;
	MPI_File_get_position(f.file[i], &at);
	return at;
}
static MPI_Offset shared_position(int i)
{
	MPI_Offset at = -1;
	MPI_File_get_position_shared(f.file[i], &at);
	return at;
}
static MPI_Offset byte_offset(MPI_Offset at)
{
	MPI_Offset byte = -1;
	MPI_File_get_byte_offset(f.file[0], at, &byte);
	return byte;
}
static void compare_positions(void)
{
	same_number("position", position(0), position(1));
	if (f.view == SAME && !without_shared)
		same_number("shared position", shared_position(0), shared_position(1));
}
// How many etypes of the view lie wholly below `bytes`.
static MPI_Offset etypes_below(MPI_Offset bytes)
{
	MPI_Offset low = 0, high = bytes + 1; // low etypes do, high + 1 do not
	while (low < high) {
		MPI_Offset middle = low + (high - low) / 2;
		if (byte_offset(middle) + f.etype_end <= bytes)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

// Memory for `etypes` etypes: one block, strided, with gaps, backwards.
struct memory {
	MPI_Datatype type;
	int count, etypes;
	MPI_Aint start, bytes;
	char *buffer[2], *packed[2];
	int packed_bytes;
};

static struct memory random_memory(int etypes)
{
	struct memory m = {.count = 1, .etypes = etypes};
	MPI_Aint unit = extent_of(f.etype);
	int n = etypes, lengths[LONGEST];
	MPI_Aint starts[LONGEST];
	int kind = n == 0 ? 0 : (int)below(&mine, 6);
	memory_text[0] = 0;
	switch (kind) {
	case 0:
		MPI_Type_dup(f.etype, &m.type);
		m.count = n;
		break;
	case 1:
		MPI_Type_vector(n, 1, (int)between(&mine, 1, 3), f.etype, &m.type);
		break;
	case 2: // backwards
		MPI_Type_create_hvector(n, 1, -2 * unit, f.etype,
			&m.type); // -unit is what Open MPI (4.1) packs forwards
		m.start = (n - 1) * 2 * unit;
		break;
	case 3:
		for (int i = 0, at = 0; i < n; i++) {
			at += (int)below(&mine, 3);
			starts[i] = at++ * unit;
			lengths[i] = 1;
		}
		MPI_Type_create_hindexed(n, lengths, starts, f.etype, &m.type);
		break;
	case 4: // not aligned, and longer than what is used
		MPI_Type_dup(f.etype, &m.type);
		m.type = resized(m.type, unit + between(&mine, 0, 9));
		m.count = n;
		break;
	default: // The count follows from the type.
		m.type = random_type(&mine, f.etype, 1, memory_text);
		if (size_of(m.type) / f.etype_bytes >
			LONGEST) { // ranges of ranks are 4 * LONGEST apart
			MPI_Type_free(&m.type);
			MPI_Type_dup(f.etype, &m.type);
		}
		m.count = n / (size_of(m.type) / f.etype_bytes) + 1;
		m.etypes = m.count * (size_of(m.type) / f.etype_bytes);
	}
	snprintf(memory_text + strlen(memory_text), 80, " kind %d, %d of %d bytes", kind, m.count,
		size_of(m.type));
	MPI_Type_commit(&m.type);
	MPI_Aint extent = extent_of(m.type), end = true_end(m.type) > upper_bound(m.type)
							   ? true_end(m.type)
							   : upper_bound(m.type);
	m.start += SLACK;
	m.bytes = m.start + (m.count ? (m.count - 1) * extent : 0) + (end > 0 ? end : 0) + unit +
		  SLACK;
	m.packed_bytes = m.etypes * f.etype_bytes;
	for (int i = 0; i < 2; i++) {
		m.buffer[i] = malloc((size_t)m.bytes);
		m.packed[i] = calloc(1, (size_t)m.packed_bytes + 64);
		memset(m.buffer[i], 0xA5, (size_t)m.bytes);
	}
	return m;
}
static void pack(struct memory *m, int i)
{
	int at = 0;
	if (m->count)
		MPI_Pack(m->buffer[i] + m->start, m->count, m->type, m->packed[i], m->packed_bytes,
			&at, MPI_COMM_SELF);
}
static void unpack(struct memory *m, int i)
{
	int at = 0;
	if (m->count)
		MPI_Unpack(m->packed[i], m->packed_bytes, &at, m->buffer[i] + m->start, m->count,
			m->type, MPI_COMM_SELF);
}
static void free_memory(struct memory *m)
{
	MPI_Type_free(&m->type);
	for (int i = 0; i < 2; i++) {
		free(m->buffer[i]);
		free(m->packed[i]);
	}
}

struct call {
	int write, collective, large;
	enum place place;
	enum form form;
};

#if LARGE
#define ANY(call, ...) (c->large ? MPI_File_##call##_c(__VA_ARGS__) : MPI_File_##call(__VA_ARGS__))
#else
#define ANY(call, ...) MPI_File_##call(__VA_ARGS__)
#endif
#define EITHER(w, r, ...) (c->write ? ANY(w, __VA_ARGS__) : ANY(r, __VA_ARGS__))
#define SPLIT_CALL(w, r, ...) \
	do { \
		e = EITHER(w##_begin, r##_begin, __VA_ARGS__); \
		if (e == MPI_SUCCESS) \
			e = c->write ? MPI_File_##w##_end(fh, b, s) \
				     : MPI_File_##r##_end(fh, b, s); \
	} while (0)

static int transfer(MPI_File fh, const struct call *c, MPI_Offset at, void *b, int n,
	MPI_Datatype t, MPI_Status *s)
{
	MPI_Request request = MPI_REQUEST_NULL;
	int e = MPI_SUCCESS, done = 0;
	if (c->form == SPLIT) {
		if (c->place == ORDERED)
			SPLIT_CALL(write_ordered, read_ordered, fh, b, n, t);
		else if (c->place == AT)
			SPLIT_CALL(write_at_all, read_at_all, fh, at, b, n, t);
		else
			SPLIT_CALL(write_all, read_all, fh, b, n, t);
		return e;
	}
	if (c->form == BLOCKING) {
		switch (c->place) {
		case ORDERED:
			return EITHER(write_ordered, read_ordered, fh, b, n, t, s);
		case SHARED:
			return EITHER(write_shared, read_shared, fh, b, n, t, s);
		case AT:
			return c->collective ? EITHER(write_at_all, read_at_all, fh, at, b, n, t, s)
					     : EITHER(write_at, read_at, fh, at, b, n, t, s);
		default:
			return c->collective ? EITHER(write_all, read_all, fh, b, n, t, s)
					     : EITHER(write, read, fh, b, n, t, s);
		}
	}
	if (c->place == SHARED)
		e = EITHER(iwrite_shared, iread_shared, fh, b, n, t, &request);
	else if (c->place == AT && c->collective)
		e = EITHER(iwrite_at_all, iread_at_all, fh, at, b, n, t, &request);
	else if (c->place == AT)
		e = EITHER(iwrite_at, iread_at, fh, at, b, n, t, &request);
	else if (c->collective)
		e = EITHER(iwrite_all, iread_all, fh, b, n, t, &request);
	else
		e = EITHER(iwrite, iread, fh, b, n, t, &request);
	if (e != MPI_SUCCESS)
		return e;
	if (n % 2)
		return MPI_Wait(&request, s);
	while (!done && e == MPI_SUCCESS)
		e = MPI_Test(&request, &done, s);
	return e;
}

static int is_named(MPI_Datatype t)
{
	int combiner;
#if LARGE
	MPI_Count ints, adds, bigs, types;
	MPI_Type_get_envelope_c(t, &ints, &adds, &bigs, &types, &combiner);
#else
	int ints, adds, types;
	MPI_Type_get_envelope(t, &ints, &adds, &types, &combiner);
#endif
	return combiner == MPI_COMBINER_NAMED;
}

static const char *name_of(const struct call *c)
{
	static char name[80];
	snprintf(name, sizeof name, "MPI_File_%s%s%s%s%s%s", c->form == IMMEDIATE ? "i" : "",
		c->write ? "write" : "read",
		c->place == AT	      ? "_at"
		: c->place == SHARED  ? "_shared"
		: c->place == ORDERED ? "_ordered"
				      : "",
		c->collective && c->place != ORDERED ? "_all" : "",
		c->form == SPLIT ? "_begin/end" : "", c->large ? "_c" : "");
	return name;
}

// One call on both files, by one rank or, if it is collective, by all. `whole` etypes of those
// asked for lie below the end of the file.
static void both(const struct call *c, MPI_Offset at, struct memory *m, int whole)
{
	MPI_Count bytes[2] = {-1, -1};
	int error[2], truth = (c->write || whole > m->etypes ? m->etypes : whole) * f.etype_bytes;
	if (c->write)
		for (MPI_Aint i = 0; i < m->bytes; i++)
			m->buffer[0][i] = m->buffer[1][i] = (char)random_bits(&mine);
	if (c->write && bug && !strcmp(bug, "data") && m->count)
		m->buffer[1][m->start] ^= 1;
	for (int i = 0; i < 2; i++) {
		MPI_Status status;
		memset(&status, 0, sizeof status);
		which = i;
		if (is_flat(i)) {
			struct call plain = *c;
			if (openmpi && c->form == IMMEDIATE && !f.contiguous)
				plain.form = BLOCKING;
			// The plain file is not read past its end through a view with holes.
			int n = c->write || f.contiguous ? m->packed_bytes : truth;
			if (c->write)
				pack(m, i);
			else
				memset(m->packed[i], 0x5A, (size_t)m->packed_bytes);
			error[i] = transfer(
				f.file[i], &plain, at, m->packed[i], n, MPI_BYTE, &status);
			if (!c->write)
				unpack(m, i);
		} else
			error[i] = transfer(f.file[i], c, at,
				m->count ? m->buffer[i] + m->start : NULL, m->count, m->type,
				&status);
		if (error[i] == MPI_SUCCESS)
			MPI_Get_elements_x(&status, MPI_BYTE, &bytes[i]);
	}
	if (!c->write && bug && !strcmp(bug, "read") && m->count)
		m->buffer[1][m->start] ^= 1;
	if (!same_class(error[0], error[1]))
		return;
	// At the end of the file ROMIO says it read all that was asked for, OMPIO (4.1) nothing. So
	// the answer is right if it is that of the plain file or the truth; an etype cut by the end
	// of the file counts or not.
	if (bytes[0] != bytes[1] && (door || bytes[1] != m->packed_bytes) &&
		(bytes[1] < truth ||
			bytes[1] >=
				truth + (truth < m->etypes * f.etype_bytes ? f.etype_bytes : 1)))
		differ("%lld bytes, not %lld (of %d, truth %d)", (long long)bytes[1],
			(long long)bytes[0], m->packed_bytes, truth);
	if (c->write)
		return;
	if (truth == m->packed_bytes) {
		for (MPI_Aint i = 0; i < m->bytes; i++)
			if (m->buffer[0][i] != m->buffer[1][i]) {
				differ("byte %lld of the memory is %d, not %d (%d x type of %d "
				       "bytes)",
					(long long)(i - m->start), m->buffer[1][i], m->buffer[0][i],
					m->count, size_of(m->type));
				break;
			}
		return;
	}
	pack(m, 0);
	pack(m, 1);
	for (int i = 0; i < truth; i++)
		if (m->packed[0][i] != m->packed[1][i]) {
			differ("byte %d of %d read is %d, not %d", i, truth, m->packed[1][i],
				m->packed[0][i]);
			break;
		}
}

static void seek_both(MPI_Offset at, int whence);

// MPI moves the pointer by what was asked for. ROMIO (4.0) moves it by something else after some
// reads, mostly past the end: then it is put right.
static void repair_position(const struct call *c, MPI_Offset from, int etypes)
{
	if (c->place != POINTER || position(0) == from + etypes)
		return;
	MPI_Offset now = position(1);
	if (now != from + etypes && now != position(0))
		differ("position %lld after %d at %lld", (long long)now, etypes, (long long)from);
	seek_both(from + etypes, MPI_SEEK_SET);
}

static void seek_both(MPI_Offset at, int whence)
{
	const char *name = call_name;
	call_name = whence == MPI_SEEK_SET   ? "MPI_File_seek SET"
		    : whence == MPI_SEEK_CUR ? "MPI_File_seek CUR"
					     : "MPI_File_seek END";
	for (int i = 0, e[2]; i < 2; i++) {
		e[i] = MPI_File_seek(
			f.file[i], at + (i && bug && !strcmp(bug, "position")), whence);
		if (i)
			same_class(e[0], e[1]);
	}
	call_name = name;
}
static int clamp(MPI_Offset n, MPI_Offset most)
{
	return (int)(n < 0 ? 0 : n < most ? n : most);
}

// A write or read of some etypes. The rules at the head of this file decide who takes part and
// where.
static void data_step(void)
{
	struct call c = {.write = one_in(&all, 2),
		.collective = one_in(&all, 2),
		.large = LARGE && one_in(&all, 2)};
	int place = (int)below(&all, 10), form = (int)below(&all, 6), past_end = one_in(&all, 4);
	if ((f.amode & MPI_MODE_RDONLY) && c.write)
		c.write = 0;
	if ((f.amode & MPI_MODE_WRONLY) && !c.write)
		c.write = 1;
	c.place = place < 4					  ? AT
		  : place < 8 || f.view != SAME || without_shared ? POINTER
		  : place == 8					  ? SHARED
								  : ORDERED;
	c.form = form < 3					  ? BLOCKING
		 : form == 3 && c.collective && c.place != SHARED ? SPLIT
		 : form < 5 && c.place != ORDERED		  ? IMMEDIATE
								  : BLOCKING;
	if (c.place == SHARED)
		c.collective = 0;
	if (c.place == ORDERED)
		c.collective = 1;
	// ROMIO and OMPIO may not end when a read through a view with holes goes past the end of
	// the file. There the plain file is read only as far as it goes.
	if (!f.contiguous && (c.place != AT || !door))
		past_end = 0;
	if (openmpi && c.form != BLOCKING)
		past_end = 0;
	if (openmpi && !door && !f.contiguous && c.form == IMMEDIATE)
		c.form = BLOCKING; // OMPIO (4.1) may not end
	call_name = name_of(&c);
	if (trace && rank == 0) {
		printf("seed %ld step %d: %s %s\n", seed, step, call_name,
			past_end ? "maybe past the end" : "");
		fflush(stdout);
	}

	// Who: in turns, one rank of a collective call, or all at once.
	int only = (int)below(&all, ranks),
	    turns = c.place == SHARED || (c.write && f.view == OWN) ||
		    (c.write && c.place == POINTER && f.view == SAME);
	if (f.view != PARTS || past_end)
		meet();
	MPI_Offset most = etypes_below(FILE_LIMIT) + 1, have = etypes_below(f.known_bytes);
	int longest = (int)between(&all, 1, LONGEST),
	    wanted = one_in(&mine, 6) ? 0 : (int)between(&mine, 1, longest);
	if (c.place == SHARED || c.place == ORDERED) {
		// The place is the same for all: what there is, divided.
		MPI_Offset from = shared_position(0), there = c.write ? most - from : have - from;
		MPI_Barrier(MPI_COMM_WORLD); // before a rank moves it
		if (there < ranks * LONGEST * 2)
			wanted = clamp(there / (2 * ranks), LONGEST);
		if (c.write && wanted == 0)
			wanted = 1;
	}
	MPI_Offset from = c.place == AT ? below(&mine, (c.write || past_end ? most : have))
					: position(0);
	if (c.place == POINTER && (from >= (c.write ? most : have) || one_in(&mine, 5))) {
		from = below(&mine, c.write || past_end ? most : have);
		seek_both(from, MPI_SEEK_SET);
	}
	if (f.view == SAME && c.write && c.place == AT)
		from = below(&all, most) + (MPI_Offset)rank * LONGEST * 4; // ranges of their own
	else if (f.view == SAME && c.place == AT)
		below(&all, most);
	if (!c.write && !past_end && c.place != SHARED && c.place != ORDERED)
		wanted = clamp(have - from, wanted);

	if (c.place == ORDERED) {
		struct memory m = random_memory(wanted);
		if (!c.write && have - shared_position(0) < (MPI_Offset)ranks * LONGEST * 8) {
			free_memory(&m);
			m = random_memory(0);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		both(&c, 0, &m, m.etypes);
		free_memory(&m);
	} else if (c.collective) {
		struct memory m = random_memory(turns && rank != only ? 0 : wanted);
		if (!c.write && !past_end && m.etypes > have - from) {
			free_memory(&m);
			m = random_memory(0);
		}
		both(&c, from, &m, clamp(have - from, m.etypes));
		repair_position(&c, from, m.etypes);
		free_memory(&m);
	} else {
		for (int turn = 0; turn < (turns ? 2 : 1); turn++) {
			int who = turns ? (only + turn) % ranks : rank;
			if (turns && turn == 1 && who == only)
				break;
			if (who == rank && (!turns || !one_in(&mine, 8))) {
				struct memory m = random_memory(wanted);
				if (c.place == SHARED)
					from = shared_position(0);
				if (!c.write && !past_end && m.etypes > have - from) {
					free_memory(&m);
					m = random_memory(0);
				}
				both(&c, from, &m, clamp(have - from, m.etypes));
				repair_position(&c, from, m.etypes);
				free_memory(&m);
			}
			if (turns)
				meet();
		}
	}
	// Or a rank would write where another still looks for the end.
	if (past_end || c.place == SHARED || c.place == ORDERED)
		MPI_Barrier(MPI_COMM_WORLD);
	compare_positions();
	if (c.place == SHARED || c.place == ORDERED) {
		MPI_Barrier(MPI_COMM_WORLD);
		// From time to time back, or it would only go on.
		if (shared_position(0) > most / 2 || one_in(&all, 5)) {
			MPI_Barrier(MPI_COMM_WORLD);
			MPI_Offset to = below(&all, most / 2);
			call_name = "MPI_File_seek_shared";
			ON_BOTH(MPI_File_seek_shared(fh, to, MPI_SEEK_SET));
			compare_positions();
		}
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

static void free_view(void)
{
	MPI_Type_free(&f.etype);
	MPI_Type_free(&f.filetype);
	MPI_Type_free(&f.flat);
}
static void measure_view(void)
{
	f.flat = flattened(f.filetype);
	f.etype_bytes = size_of(f.etype);
	f.etype_end = true_end(f.etype);
	int here = size_of(f.filetype) == extent_of(f.filetype) &&
		   f.etype_bytes == extent_of(f.etype);
	MPI_Allreduce(&here, &f.contiguous, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
}
// What a file has after open.
static void byte_view(void)
{
	f.view = SAME;
	f.disp = 0;
	strcpy(f.text, "bytes");
	MPI_Type_dup(MPI_BYTE, &f.etype);
	MPI_Type_dup(MPI_BYTE, &f.filetype);
	measure_view();
}

static void view_step(void)
{
	call_name = "MPI_File_set_view";
	meet();
	free_view();
	f.text[0] = 0;
	f.view = (enum view)below(&all, 3);
	f.disp = between(&all, 0, one_in(&all, 2) ? 2000 : 0);
	f.etype = random_etype(&all, f.text);
	say(f.text, f.view == PARTS ? ", parts of " : f.view == SAME ? ", same " : ", own ");
	if (f.view == PARTS && one_in(&all, 2)) {
		f.filetype = random_darray(&all, f.etype, ranks, rank, f.text);
		if (f.filetype == MPI_DATATYPE_NULL)
			MPI_Type_dup(f.etype, &f.filetype), f.view = OWN;
	} else if (f.view == PARTS) {
		f.filetype = random_type(one_in(&all, 2) ? &all : &mine, f.etype, 2, f.text);
		// An array of elements with a gap in front has data past its upper bound.
		long long slot = true_end(f.filetype) > upper_bound(f.filetype)
					 ? true_end(f.filetype)
					 : upper_bound(f.filetype),
			  widest = slot;
		MPI_Allreduce(&slot, &widest, 1, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
		f.filetype = resized(f.filetype, widest * ranks);
		f.disp += rank * widest;
	} else if (f.view == SAME) {
		if (one_in(&all, 3))
			MPI_Type_dup(f.etype, &f.filetype);
		else
			f.filetype = random_type(&all, f.etype, 2, f.text);
	} else {
		if (one_in(&mine, 5))
			MPI_Type_dup(f.etype, &f.filetype);
		else
			f.filetype = random_type(&mine, f.etype, 2, f.text);
		f.disp += below(&mine, 1000);
	}
	MPI_Type_commit(&f.filetype);
	measure_view();
	const char *representation = one_in(&all, 4) && !openmpi
					     ? "internal"
					     : "native"; // OMPIO refuses the former
	if (trace && rank == 0)
		printf("seed %ld step %d: set_view %s disp %lld %s\n", seed, step, f.text,
			(long long)f.disp, representation);
	ON_BOTH(is_flat(i_) ? MPI_File_set_view(fh, f.disp + lower_bound(f.filetype), f.etype,
				      f.flat, representation, MPI_INFO_NULL)
			    : MPI_File_set_view(fh, f.disp, f.etype, f.filetype, representation,
				      MPI_INFO_NULL));
	compare_positions();
	call_name = "MPI_File_get_view";
	// OMPIO keeps other types than it was given, and both say "native" for "internal": so only
	// the two files are compared.
	MPI_Offset disp[2];
	char text[2][MPI_MAX_DATAREP_STRING];
	MPI_Count bytes[2][2];
	MPI_Aint extents[2][2];
	for (int i = 0; i < 2; i++) {
		MPI_Datatype got[2];
		MPI_File_get_view(f.file[i], &disp[i], &got[0], &got[1], text[i]);
		for (int k = 0; k < 2; k++) {
			bytes[i][k] = size_of(got[k]);
			extents[i][k] = extent_of(got[k]);
			if (!is_named(got[k]))
				MPI_Type_free(&got[k]); // what is not predefined is ours to free
		}
	}
	if (strcmp(text[0], text[1]) && strcmp(text[1], representation))
		differ("representation %s, not %s", text[1], text[0]);
	for (int k = 0; k < 2; k++) {
		MPI_Datatype given = k ? f.filetype : f.etype;
		if (is_flat(1))
			continue;
		if (bytes[1][k] != bytes[0][k] && bytes[1][k] != size_of(given))
			differ("%s of %lld bytes", k ? "filetype" : "etype",
				(long long)bytes[1][k]);
		if (extents[1][k] != extents[0][k] && extents[1][k] != extent_of(given))
			differ("%s with extent %lld", k ? "filetype" : "etype",
				(long long)extents[1][k]);
	}
	if (!is_flat(1))
		same_number("displacement", f.disp, disp[1]);
}

static void seek_step(void)
{
	meet();
	MPI_Offset have = etypes_below(f.known_bytes);
	int whence = (int)below(&mine, 3),
	    exact = f.contiguous && have > 0 && byte_offset(have) == f.known_bytes;
	MPI_Offset at = position(0);
	if (whence == 0)
		seek_both(below(&mine, have + 10), MPI_SEEK_SET);
	else if (whence == 1)
		seek_both(at > 0 && one_in(&mine, 2) ? -below(&mine, at) : below(&mine, 20),
			MPI_SEEK_CUR);
	else {
		// OMPIO counts from the end of the file as if the view were all its bytes.
		at = have > 0 && one_in(&mine, 2) ? -below(&mine, have) : below(&mine, 20);
		// In a view that begins past the end of the file, ROMIO counts from before the
		// view, and refuses what is negative; MPI counts from the view's first etype.
		int beyond = f.known_bytes < f.disp + lower_bound(f.filetype);
		if (!openmpi && !beyond)
			seek_both(at, MPI_SEEK_END);
		else if (exact || beyond) {
			call_name = "MPI_File_seek END";
			for (int i = 0; i < 2; i++)
				i == 0 || !door ? MPI_File_seek(f.file[i], have + at, MPI_SEEK_SET)
						: MPI_File_seek(f.file[i], at, MPI_SEEK_END);
		}
	}
	call_name = "MPI_File_seek";
	compare_positions();
	MPI_Barrier(MPI_COMM_WORLD); // nobody writes on while another looks for the end
	call_name = "MPI_File_get_byte_offset";
	MPI_Offset where = below(&mine, 5000), byte[2];
	ON_BOTH(MPI_File_get_byte_offset(fh, where, &byte[i_]));
	same_number("byte", byte[0], byte[1]);
	call_name = "MPI_File_get_type_extent";
	MPI_Aint extent[2];
	ON_BOTH(MPI_File_get_type_extent(fh, f.filetype, &extent[i_]));
	same_number("extent", extent[0], extent[1]);
}

static void size_step(void)
{
	if (f.amode & MPI_MODE_RDONLY)
		return;
	meet();
	MPI_Offset size = one_in(&all, 3) ? below(&all, FILE_LIMIT)
					  : f.known_bytes + between(&all, -2000, 3000);
	if (size < 0)
		size = 0;
	if (one_in(&all, 3)) {
		call_name = "MPI_File_preallocate";
		// After OMPIO's (4.1) preallocate the next collective call may fail on some ranks.
		// It does the same as set_size, which never makes the file shorter here.
		if (size < f.known_bytes)
			size = f.known_bytes;
		ON_BOTH(openmpi && (i_ == 0 || !door) ? MPI_File_set_size(fh, size)
						      : MPI_File_preallocate(fh, size));
	} else {
		call_name = "MPI_File_set_size";
		ON_BOTH(MPI_File_set_size(fh, size + (i_ && bug && !strcmp(bug, "size"))));
	}
	if (trace && rank == 0)
		printf("seed %ld step %d: %s %lld\n", seed, step, call_name, (long long)size);
	meet();
	compare_positions();
}

static void atomic_step(void)
{
	if (without_atomic)
		return;
	int flag[2];
	meet();
	call_name = "MPI_File_set_atomicity";
	f.atomic = one_in(&all, 2);
	ON_BOTH(MPI_File_set_atomicity(fh, f.atomic));
	ON_BOTH(MPI_File_get_atomicity(fh, &flag[i_]));
	same_number("atomicity", flag[0], flag[1]);
}

static int open_both(int amode)
{
	int error[2];
	MPI_Info info;
	MPI_Info_create(&info);
	// ROMIO with data sieving or collective buffering reads, changes and writes whole ranges:
	// what it finds in holes of a new file it writes there for good, and two plain files differ
	// from one another.
	const char *const off[] = {
		"romio_ds_write", "romio_cb_write", "romio_ds_read", "romio_cb_read"};
	for (int i = 0; i < 4; i++)
		MPI_Info_set(info, off[i], "disable");
	call_name = "MPI_File_open";
	f.amode = amode;
	f.atomic = 0;
	for (int i = 0; i < 2; i++)
		error[i] = MPI_File_open(MPI_COMM_WORLD, f.path[i], amode, info, &f.file[i]);
	MPI_Info_free(&info);
	if (!same_class(error[0], error[1]))
		return 0;
	byte_view();
	for (int i = 0; i < 2; i++) {
		int got;
		MPI_File_get_amode(f.file[i], &got);
		if (got != amode)
			differ("amode %d of file %d, not %d", got, i, amode);
	}
	meet();
	compare_positions();
	return 1;
}
static void close_both(void)
{
	call_name = "MPI_File_close";
	free_view();
	ON_BOTH(MPI_File_close(&fh));
	MPI_Barrier(MPI_COMM_WORLD);
}
static void reopen_step(void)
{
	static const int modes[] = {MPI_MODE_RDWR, MPI_MODE_RDONLY, MPI_MODE_RDWR | MPI_MODE_APPEND,
		MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_MODE_WRONLY,
		MPI_MODE_RDWR | MPI_MODE_UNIQUE_OPEN};
	close_both();
	int mode = (int)below(&all, 6);
	if (trace && rank == 0)
		printf("seed %ld step %d: reopen %d\n", seed, step, mode);
	if (!open_both(modes[mode]))
		MPI_Abort(MPI_COMM_WORLD, 3);
}

// Every byte, as one rank alone reads it.
static void compare_contents(void)
{
	call_name = "contents";
	if (rank != seed % ranks)
		return;
	MPI_File file[2];
	MPI_Offset size[2];
	for (int i = 0; i < 2; i++) {
		if (MPI_File_open(
			    MPI_COMM_SELF, f.path[i], MPI_MODE_RDONLY, MPI_INFO_NULL, &file[i])) {
			differ("cannot open file %c", 'a' + i);
			return;
		}
		MPI_File_get_size(file[i], &size[i]);
	}
	same_number("size", size[0], size[1]);
	int n = (int)(size[0] < size[1] ? size[0] : size[1]), different = 0, first = -1;
	char *bytes[2];
	for (int i = 0; i < 2; i++) {
		MPI_Status status;
		bytes[i] = malloc((size_t)n + 1);
		MPI_File_read_at(file[i], 0, bytes[i], n, MPI_BYTE, &status);
		MPI_File_close(&file[i]);
	}
	for (int i = 0; i < n; i++)
		if (bytes[0][i] != bytes[1][i]) {
			different++;
			if (first < 0)
				first = i;
		}
	if (different)
		differ("%d of %d bytes differ, the first at %d: %d, not %d", different, n, first,
			bytes[1][first], bytes[0][first]);
	free(bytes[0]);
	free(bytes[1]);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 6) {
		fprintf(stderr, "differential DIR_A DIR_B FIRST_SEED SEEDS STEPS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	const char *without = getenv("DIFFERENTIAL_WITHOUT") ? getenv("DIFFERENTIAL_WITHOUT") : "";
	int length, failed_seeds = 0;
	MPI_Get_library_version(version, &length);
	openmpi = strstr(version, "Open MPI") != NULL;
	without_shared = strstr(without, "shared") != NULL;
	without_atomic = strstr(without, "atomic") != NULL;
	bug = getenv("DIFFERENTIAL_BUG");
	door = getenv("DIFFERENTIAL_DOOR") != NULL;
	int old = !openmpi && strstr(version, "4.0.") != NULL;
	hard_types = door;
	flat_types = old && !door;
	large_types = LARGE && (door || !old);
	trace = getenv("DIFFERENTIAL_TRACE") != NULL;
	long first = atol(argv[3]), seeds = atol(argv[4]), steps = atol(argv[5]);
	signal(SIGALRM, stuck);
	for (seed = first; seed < first + seeds; seed++) {
		all.state = (uint64_t)seed * 1000003;
		mine.state = (uint64_t)seed * 1000003 + 7777 * (uint64_t)(rank + 1);
		differences = reports = step = 0;
		// Two names: Open MPI 4 finds the shared pointer of a file by the last part of its
		// name.
		for (int i = 0; i < 2; i++)
			snprintf(f.path[i], sizeof f.path[i], "%s/%c_%ld_%d", argv[1 + i], 'a' + i,
				seed, ranks);
		if (!open_both(MPI_MODE_RDWR | MPI_MODE_CREATE |
			       (one_in(&all, 2) ? MPI_MODE_EXCL : 0)))
			MPI_Abort(MPI_COMM_WORLD, 3);
		view_step();
		for (step = 1; step <= steps; step++) {
			alarm(10);
			long kind = below(&all, 40);
			if (kind < 4)
				view_step();
			else if (kind < 6)
				seek_step();
			else if (kind < 8)
				size_step();
			else if (kind < 9)
				atomic_step();
			else if (kind < 10)
				reopen_step();
			else
				data_step();
		}
		call_name = "end";
		meet();
		close_both();
		compare_contents();
		int sum;
		MPI_Allreduce(&differences, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		failed_seeds += sum != 0;
	}
	if (rank == 0)
		printf("%ld seeds, %d ranks, MPI %d: %d seeds with differences\n", seeds, ranks,
			MPI_VERSION, failed_seeds);
	MPI_Finalize();
	return failed_seeds != 0;
}
