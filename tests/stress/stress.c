/* Threads, signals, forks, dup2 and streams at random, on twins: each call is made on a file of a
 * managed directory and on one of a plain directory, by the same thread, with the same arguments,
 * and what the two give must be the same: result, errno, position, flags, size, bytes.
 *
 *     stress PLAIN_DIRECTORY SEED SECONDS [PERCENT]     in an empty managed directory
 *
 * PERCENT is how much of one processor it may use, by default all there is. A thread has files of
 * its own, so that nothing else changes them between the two calls. What threads, children and
 * handlers share (`struct shared_file`) is compared as a set of records, since their order is
 * chance. The first difference is printed with what its thread did before, and ends all; the same
 * seed makes the same choices. Who makes no step for a minute is named, and that is a failure. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	THREADS = 4,
	/* Descriptors of a thread. The last ones are at numbers of its own, which close_range can
	 * close. */
	SLOTS = 8,
	FIXED = 3,
	STREAMS = 2,
	ROOM = 1 << 15,
	PIECE = 3000,
	RECORD = 32,
	EVENTS = 1024,
	STUCK_S = 60
};

/* The two sides of everything. */
enum { OURS, TWIN, SIDES };

struct event {
	int line;
	const char *text;
	long values[4];
};

struct work {
	uint64_t random;
	int number;
	/* Only what a handler may call; in a child; in a program that a child has become. */
	bool in_handler, in_child;
	int slots[SLOTS][SIDES];
	FILE *streams[STREAMS][SIDES];
	char buffers[STREAMS][SIDES][4096];
	char got[SIDES][PIECE];
	/* What was last done to a stream: 'r' or 'w'. */
	char last[STREAMS];
	/* The thread is neither in malloc nor in a stream: a handler may fork. */
	volatile sig_atomic_t may_fork, is_handling;
	_Atomic int is_jumping;
	sigjmp_buf back;
	struct event events[EVENTS];
	unsigned event_count;
	_Atomic long steps;
	long records;
	struct work *handler;
	pthread_t thread;
};

/* What threads, handlers and children write to at once. */
enum { LOG, POSITION, FLIP_A, FLIP_B, FLIP_PLAIN, READ, SHARED };
static const char *const shared_names[SHARED] = {
	"log", "position", "flip-a", "flip-b", "flip-plain", "read"};
static int shared[SHARED][SIDES], reader[SIDES], flip[SIDES] = {90, 91};

static struct work all[THREADS], handlers[THREADS];
static __thread struct work *self __attribute__((tls_model("initial-exec")));
static _Atomic int stop, paused, running;
/* What children count, too. */
static struct totals {
	_Atomic long steps, handled, forks, programs, jumps, failed, told;
	_Atomic long read_bytes[SIDES];
} *totals;
static unsigned long seed;
static int report = 2;
static bool has_locks = true, is_managed, is_born_plain, forks;
/* Directories: managed and plain, and two that are plain both. */
static char dirs[2][SIDES][PATH_MAX];
static char program[PATH_MAX];
/* Is there a race on purpose, that ThreadSanitizer must see? */
static bool racy;
static long races;
/* Who exits flushes all streams: so nobody may be in the middle of one. */
static pthread_rwlock_t streams_lock = PTHREAD_RWLOCK_INITIALIZER;
/* glibc's freopen takes the list of streams while it holds one, and fflush(NULL) the other way
 * round: in two threads at once they wait for each other for ever, without us, too. */
static pthread_mutex_t reopen_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t next(struct work *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random;
}

/* A number below n. */
static long pick(struct work *w, long n)
{
	return (long)(next(w) >> 11) % n;
}

static bool one_in(struct work *w, long n)
{
	return pick(w, n) == 0;
}

/* dprintf takes the lock of libc's list of streams, for which a stuck thread may wait. */
static void say(const char *format, ...)
{
	char text[400];
	va_list ap;
	va_start(ap, format);
	int n = vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	if (n > 0)
		write(report, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

static void note(struct work *w, int line, const char *text, long a, long b, long c, long d)
{
	w->events[w->event_count++ % EVENTS] = (struct event){line, text, {a, b, c, d}};
}

#define NOTE(text, a, b, c) note(w, __LINE__, text, a, b, c, 0)

static void tell(struct work *w)
{
	unsigned first = w->event_count > EVENTS ? w->event_count - EVENTS : 0;
	for (unsigned i = first; i < w->event_count; i++) {
		struct event *e = &w->events[i % EVENTS];
		say("  %d: %s: %ld %ld %ld %ld\n", e->line, e->text, e->values[0], e->values[1],
			e->values[2], e->values[3]);
	}
}

/* libplfs's, if it is there: what its last error in this thread was. */
extern const char *plfs_last_error(void) __attribute__((weak));

static _Noreturn void fail(struct work *w, int line, const char *what, const long *r, const int *e)
{
	if (atomic_fetch_add(&totals->failed, 1) == 0) {
		tell(w);
		say("seed %lu, thread %d%s%s, line %d: %s: %ld %s, and plain: %ld %s\n", seed,
			w->number, w->in_handler ? ", a handler" : "",
			w->in_child ? ", a child" : "", line, what, r[OURS],
			e[OURS] ? strerrorname_np(e[OURS]) : "", r[TWIN],
			e[TWIN] ? strerrorname_np(e[TWIN]) : "");
		const char *why = plfs_last_error ? plfs_last_error() : NULL;
		if (why)
			say("libplfs said last: %s\n", why);
		if (getenv("PLFS_STRESS_WAIT"))
			pause();
		totals->told = 1;
	}
	while (!totals->told)
		usleep(1000);
	_exit(1);
}

/* Makes the call on both sides: `i` is the side. The result of both. */
#define BOTH_AS(expression, compared) \
	({ \
		long r_[SIDES], c_[SIDES]; \
		int e_[SIDES]; \
		for (int i = 0; i < SIDES; i++) { \
			errno = 0; \
			r_[i] = (long)(expression); \
			e_[i] = r_[i] < 0 ? errno : 0; \
			c_[i] = compared(r_[i]); \
		} \
		note(w, __LINE__, #expression, r_[OURS], r_[TWIN], e_[OURS], e_[TWIN]); \
		if (c_[OURS] != c_[TWIN] || e_[OURS] != e_[TWIN]) \
			fail(w, __LINE__, #expression, r_, e_); \
		r_[OURS]; \
	})
#define AS_IT_IS(r) (r)
#define IS_ERROR(r) ((r) < 0)
#define BOTH(expression) BOTH_AS(expression, AS_IT_IS)

/* Must be so on either side. */
#define WANT(expression) \
	do { \
		errno = 0; \
		if (!(expression)) \
			fail(w, __LINE__, "not " #expression, (long[]){0, 0}, \
				(int[]){errno, errno}); \
	} while (0)

static void same_bytes(struct work *w, int line, char (*got)[PIECE], long n)
{
	if (n > 0 && memcmp(got[OURS], got[TWIN], (size_t)n) != 0) {
		long at = 0;
		while (got[OURS][at] == got[TWIN][at])
			at++;
		NOTE("other bytes from here, of", at, n, 0);
		fail(w, line, "bytes", (long[]){got[OURS][at], got[TWIN][at]}, (int[]){0, 0});
	}
}

static void fill(struct work *w, char *piece, long n)
{
	uint64_t random = next(w);
	for (long i = 0; i < n; i++)
		piece[i] = (char)('a' + (random >> (i % 48)) % 26);
}

/* --- What is shared --- */

static void make_record(struct work *w, char *record)
{
	sprintf(record, "%c%d %9d %9ld %8lx\n", w->in_handler ? 'h' : 't', w->number, (int)getpid(),
		w->records++ % 1000000000, (long)(w->random & 0xffffff));
}

static void record_step(struct work *w)
{
	char record[80];
	make_record(w, record);
	int to = (int)pick(w, 4);
	struct iovec parts[2] = {{record, 7}, {record + 7, RECORD - 7}};
	int where[SIDES];
	for (int i = 0; i < SIDES; i++)
		where[i] = to == 3 ? flip[i] : shared[to == 2 ? READ : to][i];
	/* What a child writes the parent sees only after a commit and a look (S2). */
	if (to == 2 && w->in_child)
		return;
	long at = pick(w, ROOM), how = pick(w, 3);
	/* Readers beside a writev see its parts. */
	if (how == 1 && to != 2)
		BOTH(writev(where[i], parts, 2));
	else if (how == 2 && to == LOG)
		BOTH(pwrite(where[i], record, RECORD, at));
	else
		BOTH(write(where[i], record, RECORD));
}

static bool is_record(const char *record, ssize_t n)
{
	return n == RECORD && (record[0] == 't' || record[0] == 'h') && record[RECORD - 1] == '\n';
}

/* Readers that share a position get each record once; and where dup2 puts other files meanwhile,
 * those of one of them. */
static void reader_step(struct work *w)
{
	long at = pick(w, 200) * RECORD;
	for (int i = 0; i < SIDES; i++) {
		char record[RECORD];
		ssize_t n = read(reader[i], record, RECORD);
		NOTE("shared read", i, n, 0);
		WANT(n == 0 || is_record(record, n));
		totals->read_bytes[i] += n;
		/* What a child has not committed yet is zeros (S2). */
		n = pread(flip[i], record, RECORD, at);
		NOTE("read where dup2 is", i, n, at);
		WANT(n == 0 || (n == RECORD && record[0] == 0) || is_record(record, n));
	}
}

static void flip_step(struct work *w)
{
	int to = FLIP_A + (int)pick(w, 3);
	BOTH_AS(dup2(shared[to][i], flip[i]), IS_ERROR);
}

/* --- Descriptors --- */

static void path_of(char *path, bool outside, int side, char kind, int number, long which)
{
	snprintf(path, PATH_MAX + 40, "%s/%c%d.%ld", dirs[outside][side], kind, number, which);
}

static int fixed_number(struct work *w, int slot, int side)
{
	return 240 + (w->number + (w->in_handler ? THREADS : 0)) * 16 + side * 8 + slot;
}

static void open_step(struct work *w, int slot)
{
	char path[PATH_MAX + 40];
	bool outside = one_in(w, 4);
	long name = pick(w, 3), kind = pick(w, 8), extra = pick(w, 64);
	int flags = kind == 0 ? O_RDONLY : kind == 1 ? O_WRONLY : O_RDWR;
	if (!one_in(w, 8))
		flags |= O_CREAT;
	if (extra < 12)
		flags |= O_APPEND;
	/* POSIX leaves open what it is for a file that is only read; packs leave that as it is. */
	if ((extra == 20 || extra == 21) && (has_locks || kind != 0))
		flags |= O_TRUNC;
	if (extra == 30 || extra == 31)
		flags |= O_EXCL;
	if (extra >= 48)
		flags |= O_CLOEXEC;
	NOTE("open: slot, name, flags", slot, outside * 10 + name, flags);
	int *fds = w->slots[slot];
	BOTH_AS((path_of(path, outside, i, w->in_handler ? 'h' : 'f', w->number, name),
			fds[i] = open(path, flags, 0640)),
		IS_ERROR);
	if (fds[OURS] < 0 || slot < SLOTS - FIXED)
		return;
	int first[SIDES] = {fds[OURS], fds[TWIN]};
	for (int i = 0; i < SIDES; i++)
		fds[i] = fixed_number(w, slot, i);
	BOTH_AS(dup3(first[i], fds[i], flags & O_CLOEXEC), IS_ERROR);
	BOTH(close(first[i]));
}

/* Position, flags and status of a slot. Its size. */
static long look(struct work *w, const int *fds)
{
	struct stat st[SIDES];
	BOTH(fstat(fds[i], &st[i]));
	BOTH(st[i].st_size);
	BOTH(st[i].st_mode);
	/* A file of a pack has one name as long as it is open. */
	if (has_locks)
		BOTH(st[i].st_nlink);
	BOTH(lseek(fds[i], 0, SEEK_CUR));
	BOTH(fcntl(fds[i], F_GETFL));
	BOTH(fcntl(fds[i], F_GETFD));
	return st[OURS].st_size;
}

/* All bytes of a slot, if it can be read. */
static void look_at_all(struct work *w, const int *fds)
{
	char (*got)[PIECE] = w->got;
	long n = 1;
	for (long at = 0; n > 0; at += n) {
		n = BOTH(pread(fds[i], got[i], PIECE, at));
		same_bytes(w, __LINE__, got, n);
	}
}

/* Another process has written files: a lock that is granted shows it (S2), and an open. */
static void acquire(struct work *w)
{
	char path[40];
	for (int slot = 0; slot < SLOTS + STREAMS; slot++) {
		FILE *fp = slot < SLOTS ? NULL : w->streams[slot - SLOTS][OURS];
		int fd = slot < SLOTS ? w->slots[slot][OURS] : fp ? fileno(fp) : -1;
		if (fd < 0)
			continue;
		if (has_locks) {
			WANT(flock(fd, LOCK_SH) == 0 && flock(fd, LOCK_UN) == 0);
		} else {
			snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
			int again = open(path, O_RDONLY);
			WANT(again >= 0 && close(again) == 0);
		}
	}
}

static void look_at_slots(struct work *w)
{
	for (int slot = 0; slot < SLOTS; slot++)
		if (w->slots[slot][OURS] >= 0)
			look(w, w->slots[slot]);
}

static void write_step(struct work *w, const int *fds, long size)
{
	char piece[PIECE];
	long n = 1 + pick(w, one_in(w, 4) ? PIECE - 1 : 64), at = pick(w, ROOM - PIECE);
	long cut = pick(w, n + 1), flags = one_in(w, 8) ? RWF_APPEND : 0;
	fill(w, piece, n);
	struct iovec parts[3] = {{piece, (size_t)cut}, {NULL, 0}, {piece + cut, (size_t)(n - cut)}};
	if (size > ROOM) {
		BOTH(ftruncate(fds[i], at));
		return;
	}
	if (BOTH(lseek(fds[i], 0, SEEK_CUR)) > ROOM)
		BOTH(lseek(fds[i], at, SEEK_SET));
	switch (pick(w, 8)) {
	case 0 ... 2:
		BOTH(write(fds[i], piece, n));
		break;
	case 3 ... 4:
		BOTH(pwrite(fds[i], piece, n, at));
		break;
	case 5:
		BOTH(writev(fds[i], parts, 3));
		break;
	case 6:
		BOTH(pwritev(fds[i], parts, 3, at));
		break;
	case 7:
		BOTH(pwritev2(fds[i], parts, 3, flags ? -1 : at, flags));
		break;
	}
}

static void read_step(struct work *w, const int *fds)
{
	char (*got)[PIECE] = w->got;
	long n = 1 + pick(w, one_in(w, 4) ? PIECE - 1 : 64), at = pick(w, ROOM),
	     cut = pick(w, n + 1);
	struct iovec parts[SIDES][2] = {
		{{got[OURS], (size_t)cut}, {got[OURS] + cut, (size_t)(n - cut)}},
		{{got[TWIN], (size_t)cut}, {got[TWIN] + cut, (size_t)(n - cut)}}};
	long done = 0;
	switch (pick(w, 6)) {
	case 0 ... 2:
		done = BOTH(read(fds[i], got[i], n));
		break;
	case 3:
		done = BOTH(pread(fds[i], got[i], n, at));
		break;
	case 4:
		done = BOTH(readv(fds[i], parts[i], 2));
		break;
	case 5:
		done = BOTH(preadv2(fds[i], parts[i], 2, at % 2 ? -1 : at, 0));
		break;
	}
	same_bytes(w, __LINE__, got, done);
}

static void seek_step(struct work *w, const int *fds)
{
	long at = pick(w, ROOM);
	switch (pick(w, 6)) {
	case 0 ... 2:
		BOTH(lseek(fds[i], at, SEEK_SET));
		break;
	case 3:
		BOTH(lseek(fds[i], at / 8 - 1000, SEEK_CUR));
		break;
	case 4:
		BOTH(lseek(fds[i], -(at / 8), SEEK_END));
		break;
	case 5:
		BOTH(lseek(fds[i], at, 77));
		break;
	}
}

/* What cannot be done. */
static void refused_step(struct work *w, const int *fds)
{
	char byte;
	switch (pick(w, 6)) {
	case 0:
		BOTH(pread(fds[i], &byte, 1, -1));
		break;
	case 1:
		BOTH(pwrite(fds[i], &byte, 1, -1));
		break;
	case 2:
		BOTH(ftruncate(fds[i], -1));
		break;
	case 3:
		BOTH(readv(fds[i], NULL, -1));
		break;
	case 4:
		BOTH(dup2(fds[i], -1));
		break;
	case 5:
		BOTH(dup3(fds[i], fds[i], O_CLOEXEC));
		break;
	}
}

static void flags_step(struct work *w, const int *fds)
{
	long flags = (one_in(w, 2) ? O_APPEND : 0) | (one_in(w, 4) ? O_NONBLOCK : 0);
	if (one_in(w, 4))
		BOTH(fcntl(fds[i], F_SETFD, flags & O_APPEND ? FD_CLOEXEC : 0));
	else
		BOTH(fcntl(fds[i], F_SETFL, flags));
}

static void close_step(struct work *w, int slot)
{
	int *fds = w->slots[slot];
	if (one_in(w, 8)) {
		BOTH(close_range(
			fixed_number(w, SLOTS - FIXED, i), fixed_number(w, SLOTS - 1, i), 0));
		for (int k = SLOTS - FIXED; k < SLOTS; k++)
			w->slots[k][OURS] = w->slots[k][TWIN] = -1;
		return;
	}
	BOTH(close(fds[i]));
	fds[OURS] = fds[TWIN] = -1;
}

/* Makes `to` another number of what is in `from`. */
static void dup_step(struct work *w, int from, int to)
{
	int *fds = w->slots[from], *others = w->slots[to];
	bool is_fixed = to >= SLOTS - FIXED;
	long how = pick(w, 4), close_on_exec = from == to || one_in(w, 2) ? O_CLOEXEC : 0;
	NOTE("dup: from, to, how", from, to, how);
	for (int i = 0; i < SIDES && is_fixed; i++)
		others[i] = fixed_number(w, to, i);
	if (others[OURS] >= 0 && how != 3)
		BOTH_AS(dup2(fds[i], others[i]), IS_ERROR);
	else if (others[OURS] >= 0)
		BOTH_AS(dup3(fds[i], others[i], close_on_exec), IS_ERROR);
	else if (how < 2)
		BOTH_AS(others[i] = dup(fds[i]), IS_ERROR);
	else
		BOTH_AS(others[i] = fcntl(fds[i], how == 2 ? F_DUPFD : F_DUPFD_CLOEXEC, 20),
			IS_ERROR);
}

/* Bytes from one file to another, in the kernel or as if. */
static void copy_step(struct work *w, const int *from, const int *to)
{
	long n = 1 + pick(w, 200), at = pick(w, ROOM);
	off_t in[SIDES] = {at, at};
	struct stat st[2];
	WANT(fstat(from[TWIN], &st[0]) == 0 && fstat(to[TWIN], &st[1]) == 0);
	/* In the kernel bytes that overlap are copied while they change. */
	if (st[0].st_ino == st[1].st_ino || look(w, to) > ROOM)
		return;
	if (BOTH(lseek(to[i], 0, SEEK_CUR)) > ROOM)
		BOTH(lseek(to[i], at, SEEK_SET));
	w->may_fork = 0;
	BOTH(sendfile(to[i], from[i], &in[i], n));
	w->may_fork = 1;
	BOTH(in[i]);
}

static void name_step(struct work *w)
{
	char path[PATH_MAX + 40], other[PATH_MAX + 40], kind = w->in_handler ? 'h' : 'f';
	bool outside = one_in(w, 4);
	long from = pick(w, 3), to = pick(w, 3);
	if (w->in_child)
		return;
	if (one_in(w, 2))
		BOTH((path_of(path, outside, i, kind, w->number, from), unlink(path)));
	else
		BOTH((path_of(path, outside, i, kind, w->number, from),
			path_of(other, outside, i, kind, w->number, to), rename(path, other)));
}

static void jump_step(struct work *w)
{
	char piece[PIECE], got[PIECE];
	char path[SIDES][PATH_MAX + 40];
	int fds[SIDES];
	long n = 1 + pick(w, 500);
	fill(w, piece, n);
	BOTH_AS((path_of(path[i], false, i, 'j', w->number, 0),
			fds[i] = open(path[i], O_RDWR | O_CREAT | O_TRUNC, 0640)),
		IS_ERROR);
	volatile long writes = 0;
	if (sigsetjmp(w->back, 1) == 0) {
		w->is_jumping = 1;
		for (;;) {
			if (writes++ < 2000)
				WANT(write(fds[OURS], piece, n) == n);
			WANT(pread(fds[OURS], got, n, 0) == n);
		}
	}
	w->is_jumping = 0;
	totals->jumps++;
	/* Each write was made or not: the position says. */
	long at = lseek(fds[OURS], 0, SEEK_CUR);
	NOTE("jumped: position, n", at, n, 0);
	WANT(at % n == 0);
	for (long done = 0; done < at; done += n)
		WANT(write(fds[TWIN], piece, n) == n);
	look(w, fds);
	look_at_all(w, fds);
	BOTH(close(fds[i]));
}

/* --- Streams --- */

/* The same for both: with another size glibc calls at other moments, and goes astray elsewhere (a
 * second fflush after what fscanf put back). */
static void choose_buffer(struct work *w, int k)
{
	static const int kinds[] = {_IONBF, _IOLBF, _IOFBF};
	static const long sizes[] = {64, 200, 1024, 4096};
	int kind = kinds[pick(w, 3)];
	long bytes = sizes[pick(w, 4)];
	BOTH(setvbuf(w->streams[k][i], kind == _IONBF ? NULL : w->buffers[k][i], kind, bytes));
}

static void open_stream(struct work *w, int k)
{
	static const char *const modes[] = {"r", "r+", "w", "w+", "a", "a+", "re", "w+e"};
	char path[PATH_MAX + 40];
	const char *mode = modes[pick(w, 8)];
	FILE **f = w->streams[k];
	int fds[SIDES] = {-1, -1};
	long how = pick(w, 4), outside = one_in(w, 4),
	     flags = pick(w, 3) | (one_in(w, 2) ? O_CREAT : 0);
	NOTE("stream: which, how, mode", k, how, mode[0] * 256 + mode[1]);
	for (int i = 0; i < SIDES; i++)
		path_of(path, outside, i, 's', w->number, k);
	if (how != 0) {
		BOTH((path_of(path, outside, i, 's', w->number, k), f[i] = fopen(path, mode),
			f[i] ? 0 : -1));
	} else {
		BOTH_AS((path_of(path, outside, i, 's', w->number, k),
				fds[i] = open(path, flags, 0640)),
			IS_ERROR);
		if (fds[OURS] < 0)
			return;
		BOTH((f[i] = fdopen(fds[i], mode), f[i] ? 0 : -1));
		if (!f[OURS])
			BOTH(close(fds[i]));
	}
	w->last[k] = 0;
	if (f[OURS])
		choose_buffer(w, k);
}

static void look_at_stream(struct work *w, FILE **f)
{
	int fds[SIDES] = {fileno(f[OURS]), fileno(f[TWIN])};
	BOTH(fflush(f[i]));
	look(w, fds);
}

static void reopen_stream(struct work *w, int k)
{
	static const char *const modes[] = {"r", "r+", "w", "w+", "a", "a+"};
	char path[PATH_MAX + 40];
	bool outside = one_in(w, 4);
	const char *mode = modes[pick(w, 6)];
	FILE **f = w->streams[k];
	/* What a stream has read ahead glibc's freopen does not give back, and buffers differ. */
	if (w->in_child)
		BOTH(fflush(f[i]));
	NOTE("freopen: outside, mode", outside, mode[0] * 256 + mode[1], 0);
	if (!w->in_child)
		pthread_mutex_lock(&reopen_lock);
	BOTH((path_of(path, outside, i, 's', w->number, k), f[i] = freopen(path, mode, f[i]),
		f[i] ? 0 : -1));
	if (!w->in_child)
		pthread_mutex_unlock(&reopen_lock);
	w->last[k] = 0;
	if (f[OURS])
		choose_buffer(w, k);
}

/* What a stream gave. errno says something of errors only, not of the end. */
static long given(FILE *f, long result)
{
	if (result < 0 && !ferror(f))
		errno = 0;
	return result;
}

static void stream_call(struct work *w, int k)
{
	char piece[PIECE];
	char (*got)[PIECE] = w->got;
	FILE **f = w->streams[k];
	long n = 1 + pick(w, one_in(w, 4) ? PIECE - 2 : 64), at = pick(w, ROOM), done;
	fill(w, piece, n);
	piece[n - 1] = '\n';
	piece[n] = 0;
	long what = pick(w, 22);
	NOTE("stream, call", k, what, 0);
	char kind = what <= 5 ? 'w' : what <= 12 ? 'r' : 0;
	/* Between reading and writing C wants one of these; a fflush after reading is none. */
	if (kind && w->last[k] && kind != w->last[k])
		BOTH(fseek(f[i], 0, SEEK_CUR));
	if (kind)
		w->last[k] = kind;
	switch (what) {
	case 0 ... 2:
		BOTH(fprintf(f[i], "%ld %.*s\n", at, (int)(n % 100), piece));
		break;
	case 3:
		BOTH(fputs(piece, f[i]) < 0 ? -1 : 0);
		break;
	case 4:
		BOTH(fwrite(piece, 1, n, f[i]));
		break;
	case 5:
		BOTH(putc('x', f[i]));
		break;
	case 6 ... 7:
		done = BOTH(fread(got[i], 1, n, f[i]));
		same_bytes(w, __LINE__, got, done);
		break;
	case 8 ... 9:
		done = BOTH(given(f[i], fgets(got[i], (int)n, f[i]) ? (long)strlen(got[i]) : -1));
		same_bytes(w, __LINE__, got, done);
		break;
	case 10:
		/* Another one would be kept beside the buffer, and then glibc's fflush goes astray.
		 */
		if ((done = BOTH(given(f[i], getc(f[i])))) >= 0)
			BOTH(ungetc((int)done, f[i]));
		break;
	case 11: {
		char *line[SIDES] = {NULL, NULL};
		size_t room[SIDES] = {0, 0};
		done = BOTH(given(f[i], getdelim(&line[i], &room[i], '\n', f[i])));
		if (done > 0)
			WANT(memcmp(line[OURS], line[TWIN], (size_t)done) == 0);
		free(line[OURS]);
		free(line[TWIN]);
		break;
	}
	case 12: {
		long number[SIDES] = {0, 0};
		BOTH(given(f[i], fscanf(f[i], "%ld", &number[i])));
		BOTH(number[i]);
		break;
	}
	case 13 ... 14:
		BOTH(fseek(f[i], at, SEEK_SET));
		break;
	case 15:
		BOTH(fseek(f[i], -(at / 16), at % 2 ? SEEK_END : SEEK_CUR));
		break;
	case 16:
		BOTH(ftell(f[i]));
		BOTH(feof(f[i]));
		BOTH(ferror(f[i]));
		clearerr(f[OURS]);
		clearerr(f[TWIN]);
		break;
	case 17:
		BOTH((rewind(f[i]), 0));
		break;
	case 18:
		/* What others have pending goes into their files, but not twice. */
		if (one_in(w, 2) && !w->in_child) {
			pthread_mutex_lock(&reopen_lock);
			fflush(NULL);
			pthread_mutex_unlock(&reopen_lock);
		} else {
			look_at_stream(w, f);
		}
		break;
	case 19:
		look_at_stream(w, f);
		BOTH(ftruncate(fileno(f[i]), at));
		break;
	case 20:
		reopen_stream(w, k);
		break;
	case 21:
		BOTH(fclose(f[i]));
		f[OURS] = f[TWIN] = NULL;
		break;
	}
}

static void stream_step(struct work *w)
{
	int k = (int)pick(w, STREAMS);
	w->may_fork = 0;
	if (!w->in_child)
		pthread_rwlock_rdlock(&streams_lock);
	if (!w->streams[k][OURS])
		open_stream(w, k);
	else
		for (long n = 1 + pick(w, 6); n-- > 0 && w->streams[k][OURS];)
			stream_call(w, k);
	FILE **f = w->streams[k];
	if (f[OURS]) {
		struct stat st;
		look_at_stream(w, f);
		WANT(fstat(fileno(f[OURS]), &st) == 0);
		if (st.st_size > 4 * ROOM)
			BOTH(ftruncate(fileno(f[i]), 0));
	}
	if (!w->in_child)
		pthread_rwlock_unlock(&streams_lock);
	w->may_fork = 1;
}

/* A container as standard input, output and error. One thread only, or a child. */
static void standard_step(struct work *w)
{
	char (*got)[PIECE] = w->got;
	int from = (int)pick(w, SLOTS), null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int *fds = w->slots[from];
	long at = pick(w, ROOM / 2), n = 1 + pick(w, 500);
	if (fds[OURS] < 0 || null < 0) {
		WANT(null >= 0 && close(null) == 0);
		return;
	}
	w->may_fork = 0;
	if (!w->in_child)
		pthread_rwlock_rdlock(&streams_lock);
	BOTH(lseek(fds[i], at, SEEK_SET));
	long how = pick(w, 3);
	NOTE("standard: slot, how", from, how, 0);
	if (how == 0) {
		long done[SIDES], after[SIDES];
		for (int i = 0; i < SIDES; i++) {
			WANT(dup2(fds[i], 0) == 0);
			done[i] = (long)fread(got[i], 1, n, stdin);
			after[i] = getc(stdin) + (ferror(stdin) ? 1000 : 0);
			/* The next bytes are another file's. */
			__fpurge(stdin);
			clearerr(stdin);
			WANT(dup2(null, 0) == 0);
		}
		BOTH(done[i]);
		BOTH(after[i]);
		same_bytes(w, __LINE__, got, done[OURS]);
		look(w, fds);
	} else {
		/* The result of fflush and what it leaves. */
		FILE *out = how == 1 ? stdout : stderr;
		long rest[SIDES], error[SIDES];
		for (int i = 0; i < SIDES; i++) {
			clearerr(out);
			WANT(dup2(fds[i], how) == how);
			fprintf(out, "number %ld\n", n);
			rest[i] = fflush(out);
			error[i] = rest[i] < 0 ? errno : 0;
			errno = ENOENT;
			if (rest[i] == 0 && how == 2)
				perror("said");
			__fpurge(out);
			WANT(dup2(null, how) == how);
		}
		BOTH(rest[i]);
		BOTH(error[i]);
		look(w, fds);
	}
	if (!w->in_child)
		pthread_rwlock_unlock(&streams_lock);
	w->may_fork = 1;
	WANT(close(null) == 0);
}

/* --- Processes --- */

static void step(struct work *w);

static int reap(pid_t pid)
{
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Goes on as another program, with the descriptors that exec leaves open. */
static _Noreturn void become_program(struct work *w)
{
	char text[SLOTS + 5][40];
	char *arguments[SLOTS + 11] = {
		"stress", "--go", dirs[false][TWIN], dirs[true][OURS], dirs[true][TWIN]};
	int n = 5;
	long values[] = {(long)seed, w->number, (long)(next(w) >> 2), has_locks, report};
	for (int i = 0; i < 5; i++) {
		sprintf(text[i], "%ld", values[i]);
		arguments[n++] = text[i];
	}
	for (int slot = 0; slot < SLOTS; slot++) {
		int *fds = w->slots[slot];
		bool stays = fds[OURS] >= 0 && BOTH(fcntl(fds[i], F_GETFD)) == 0;
		/* Of a file that became a container after a program had inherited it the next one
		 * does not know how it was opened. */
		stays = stays &&
			(!is_born_plain || (fcntl(fds[TWIN], F_GETFL) & O_ACCMODE) == O_RDWR);
		sprintf(text[5 + slot], "%d:%d", stays ? fds[OURS] : -1, stays ? fds[TWIN] : -1);
		arguments[n++] = text[5 + slot];
	}
	arguments[n] = NULL;
	fcntl(report, F_SETFD, 0);
	execv(program, arguments);
	fail(w, __LINE__, "exec", (long[]){-1, 0}, (int[]){errno, 0});
}

static void on_signal(int sig);

static _Noreturn void be_a_child(struct work *w, long how)
{
	w->in_child = true;
	/* What another thread was about to print is its own. */
	__fpurge(stdin);
	__fpurge(stdout);
	if (!w->in_handler && one_in(w, 4)) {
		struct itimerval timer = {{0, 700}, {0, 700}};
		setitimer(ITIMER_REAL, &timer, NULL);
	}
	for (long n = 1 + pick(w, w->in_handler ? 3 : 8); n-- > 0;)
		step(w);
	if (w->in_handler)
		_exit(0);
	struct itimerval never = {0};
	setitimer(ITIMER_REAL, &never, NULL);
	switch (how) {
	case 0:
		become_program(w);
	case 1:
		abort();
	case 2:
		/* What this one has pending exit writes; what others had is not ours to write. */
		for (int t = 0; t < THREADS; t++)
			for (int k = 0; k < STREAMS; k++)
				for (int i = 0; i < SIDES && &all[t] != w; i++)
					if (all[t].streams[k][i])
						__fpurge(all[t].streams[k][i]);
		for (int k = 0; k < STREAMS; k++)
			if (w->streams[k][OURS])
				BOTH(fprintf(w->streams[k][i], "pending %d\n", k));
		exit(0);
	}
	_exit(0);
}

static void fork_step(struct work *w)
{
	long how = pick(w, 16);
	bool exits = how == 2 && !w->in_handler && !w->in_child;
	for (int k = 0; k < STREAMS && !w->in_handler; k++)
		if (w->streams[k][OURS])
			BOTH(fflush(w->streams[k][i]));
	if (!exits && how == 2)
		how = 3;
	if (exits) {
		w->may_fork = 0;
		pthread_rwlock_wrlock(&streams_lock);
	}
	if (!w->in_child)
		totals->forks++;
	NOTE("fork: how", how, 0, 0);
	/* libc's own fork may not be interrupted by one. */
	w->may_fork = w->may_fork && is_managed;
	/* A child's choices are its own. */
	uint64_t choices = next(w);
	pid_t pid = w->in_handler && one_in(w, 2) ? _Fork() : fork();
	if (pid == 0) {
		w->random = choices | 1;
		be_a_child(w, how);
	}
	if (exits)
		pthread_rwlock_unlock(&streams_lock);
	w->may_fork = 1;
	WANT(pid > 0);
	int status = reap(pid);
	NOTE("child: status", status, 0, 0);
	WANT(status == (how == 1 && !w->in_handler ? -SIGABRT : 0));
	acquire(w);
	look_at_slots(w);
}

/* A program with file actions, which reads and writes what it gets. */
static void spawn_step(struct work *w)
{
	char in[SIDES][PATH_MAX + 40], out[SIDES][PATH_MAX + 40];
	int from = (int)pick(w, SLOTS), to = (int)pick(w, SLOTS);
	int *source = w->slots[from], *target = w->slots[to];
	long in_kind = pick(w, 2), out_kind = pick(w, 2), name = pick(w, 3);
	static char *const copy[] = {"cat", NULL};
	static char *const some[] = {"sh", "-c", "head -c 5; printf more", NULL};
	char *const *command = one_in(w, 2) ? copy : some;
	if (source[OURS] < 0 || target[OURS] < 0)
		return;
	if (look(w, source) > ROOM || look(w, target) > ROOM)
		return;
	/* cat refuses to write to what it reads. */
	BOTH(lseek(source[i], 0, SEEK_END) > 300 ? lseek(source[i], -300, SEEK_END) : 0);
	NOTE("spawn: from, to, kinds", from, to, in_kind * 10 + out_kind);
	w->may_fork = 0;
	posix_spawn_file_actions_t actions[SIDES];
	pid_t pid[SIDES] = {0, 0};
	for (int i = 0; i < SIDES; i++) {
		path_of(in[i], false, i, 'f', w->number, name);
		path_of(out[i], false, i, 'p', w->number, 0);
		posix_spawn_file_actions_init(&actions[i]);
		if (in_kind)
			posix_spawn_file_actions_addopen(&actions[i], 0, in[i], O_RDONLY, 0);
		else
			posix_spawn_file_actions_adddup2(&actions[i], source[i], 0);
		if (out_kind)
			posix_spawn_file_actions_addopen(
				&actions[i], 1, out[i], O_WRONLY | O_CREAT | O_TRUNC, 0640);
		else
			posix_spawn_file_actions_adddup2(&actions[i], target[i], 1);
		posix_spawn_file_actions_addopen(&actions[i], 2, "/dev/null", O_WRONLY, 0);
		if (name == 0)
			posix_spawn_file_actions_addclosefrom_np(&actions[i], 3);
	}
	if (command == some || in_kind != out_kind) {
		if (BOTH(-posix_spawnp(&pid[i], command[0], &actions[i], NULL, command, environ)) ==
			0)
			BOTH(reap(pid[i]));
		totals->programs++;
	}
	for (int i = 0; i < SIDES; i++)
		posix_spawn_file_actions_destroy(&actions[i]);
	w->may_fork = 1;
	acquire(w);
	look_at_slots(w);
	look_at_all(w, target);
}

/* A program at the other end of a pipe. */
static void pipe_step(struct work *w)
{
	char (*got)[PIECE] = w->got;
	char path[PATH_MAX + 40], command[PATH_MAX + 80];
	bool reads = one_in(w, 2);
	long name = pick(w, 3), n = pick(w, 1000);
	FILE *pipe[SIDES];
	w->may_fork = 0;
	totals->programs++;
	if (!w->in_child)
		pthread_rwlock_rdlock(&streams_lock);
	if (reads) {
		BOTH((path_of(path, false, i, 'f', w->number, name),
			snprintf(command, sizeof command, "head -c 2000 %s 2> /dev/null", path),
			pipe[i] = popen(command, "r"), pipe[i] ? 0 : -1));
		long done = BOTH(fread(got[i], 1, 2000, pipe[i]));
		same_bytes(w, __LINE__, got, done);
	} else {
		BOTH((path_of(path, false, i, 'p', w->number, 1),
			snprintf(command, sizeof command, "cat > %s", path),
			pipe[i] = popen(command, "we"), pipe[i] ? 0 : -1));
		BOTH(fprintf(pipe[i], "%*d\n", (int)n, 5));
	}
	BOTH(pclose(pipe[i]));
	if (!w->in_child)
		pthread_rwlock_unlock(&streams_lock);
	if (!reads) {
		int fds[SIDES];
		BOTH_AS((path_of(path, false, i, 'p', w->number, 1), fds[i] = open(path, O_RDONLY)),
			IS_ERROR);
		look(w, fds);
		look_at_all(w, fds);
		BOTH(close(fds[i]));
	}
	w->may_fork = 1;
}

/* --- Steps --- */

static void slot_step(struct work *w)
{
	int slot = (int)pick(w, SLOTS), other = (int)pick(w, SLOTS);
	int *fds = w->slots[slot];
	if (fds[OURS] < 0) {
		open_step(w, slot);
		return;
	}
	long size = look(w, fds);
	NOTE("slot, size", slot, size, 0);
	switch (pick(w, 32)) {
	case 0 ... 9:
		write_step(w, fds, size);
		break;
	case 10 ... 16:
		read_step(w, fds);
		break;
	case 17 ... 18:
		seek_step(w, fds);
		break;
	case 19:
		BOTH(ftruncate(fds[i], size / 2 + 20));
		break;
	case 20:
		refused_step(w, fds);
		break;
	case 21 ... 22:
		flags_step(w, fds);
		break;
	case 23 ... 24:
		close_step(w, slot);
		break;
	case 25 ... 27:
		dup_step(w, slot, other);
		break;
	case 28:
		look_at_all(w, fds);
		break;
	case 29:
		if (one_in(w, 16))
			BOTH(fsync(fds[i]));
		break;
	case 30:
		if (one_in(w, 4))
			name_step(w);
		break;
	case 31:
		if (w->slots[other][OURS] >= 0 && other != slot && !w->in_handler)
			copy_step(w, fds, w->slots[other]);
		break;
	}
	if (fds[OURS] >= 0)
		look(w, fds);
}

static void step(struct work *w)
{
	long kind = pick(w, 64);
	totals->steps++;
	w->steps++;
	if (w->in_handler) {
		/* A fork waits for libc's malloc with all that is ours locked. So what a handler
		 * calls that interrupted malloc in another thread waits for the fork, which waits
		 * for it. Half of the seeds have forks, the other half handlers that interrupt
		 * malloc. */
		if (forks && !all[w->number].may_fork)
			return;
		totals->handled++;
		if (kind == 0 && forks)
			fork_step(w);
		else if (kind < 12)
			record_step(w);
		else
			slot_step(w);
		return;
	}
	switch (kind) {
	case 0 ... 7:
		record_step(w);
		break;
	case 8 ... 9:
		if (!w->in_child)
			reader_step(w);
		break;
	case 10:
		if (w->number == 1 && !w->in_child)
			flip_step(w);
		break;
	case 11 ... 20:
		stream_step(w);
		break;
	case 21:
		if (w->number == 0 || w->in_child)
			standard_step(w);
		break;
	case 22:
		if (forks && one_in(w, 2))
			fork_step(w);
		break;
	case 23:
		if (!w->in_child && one_in(w, 2))
			jump_step(w);
		break;
	case 24:
		if (one_in(w, 8))
			spawn_step(w);
		break;
	case 25:
		/* glibc's popen takes a lock that fork leaves as it is. */
		if (!w->in_child && one_in(w, 8))
			pipe_step(w);
		break;
	default:
		slot_step(w);
	}
}

static void on_signal(int sig)
{
	int saved = errno;
	struct work *w = self;
	if (!w) {
		errno = saved;
		return;
	}
	if (sig == SIGUSR2) {
		if (w->is_jumping)
			siglongjmp(w->back, 1);
	} else if (w->in_child) {
		/* The first write of a process starts a thread, which calls malloc. */
		if (w->handler && w->may_fork) {
			w->handler->in_child = true;
			record_step(w->handler);
		}
	} else if (!w->is_handling) {
		/* ThreadSanitizer lets a second signal in that the first one's mask keeps out. */
		w->is_handling = 1;
		step(w->handler);
		w->is_handling = 0;
	}
	errno = saved;
}

static void start(struct work *w, int number, bool in_handler)
{
	w->random = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)number * 0xd1b54a32d192ed03u +
		    in_handler;
	w->random |= 1;
	w->number = number;
	w->in_handler = in_handler;
	w->may_fork = 1;
	for (int slot = 0; slot < SLOTS; slot++)
		w->slots[slot][OURS] = w->slots[slot][TWIN] = -1;
	for (int i = 0; i < 20; i++)
		next(w);
}

static void *work(void *argument)
{
	struct work *w = argument;
	self = w;
	while (!stop) {
		step(w);
		if (racy)
			races++;
		while (paused && !stop)
			usleep(1000);
	}
	sigset_t mask;
	sigfillset(&mask);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	return NULL;
}

static void handle(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	sigaddset(&action.sa_mask, SIGUSR1);
	sigaddset(&action.sa_mask, SIGUSR2);
	sigaddset(&action.sa_mask, SIGALRM);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
}

static void prepare(void)
{
	static char in[512], out[512];
	setvbuf(stdin, in, _IOFBF, sizeof in);
	setvbuf(stdout, out, _IOFBF, sizeof out);
	signal(SIGPIPE, SIG_IGN);
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	/* What programs that it starts preload, if that is not what it has itself. */
	const char *preload = getenv("PLFS_STRESS_PRELOAD");
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	racy = getenv("PLFS_STRESS_RACE") != NULL;
	is_managed = getenv("PLFS_MOUNTS") != NULL;
	const char *workload = getenv("PLFS_WORKLOAD");
	is_born_plain = workload && strcmp(workload, "auto") == 0;
	report = fcntl(2, F_DUPFD_CLOEXEC, 95);
	ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
	program[n > 0 ? n : 0] = 0;
}

/* A program that a child has become: some steps with the descriptors that it got. */
static int go_on(char **arguments)
{
	strcpy(dirs[false][OURS], ".");
	strcpy(dirs[false][TWIN], arguments[0]);
	strcpy(dirs[true][OURS], arguments[1]);
	strcpy(dirs[true][TWIN], arguments[2]);
	seed = strtoul(arguments[3], NULL, 10);
	int number = atoi(arguments[4]);
	struct work *w = &all[0];
	totals = calloc(1, sizeof *totals);
	start(w, number, false);
	w->in_child = true;
	w->random = strtoul(arguments[5], NULL, 10) | 1;
	has_locks = atoi(arguments[6]);
	report = atoi(arguments[7]);
	for (int slot = 0; slot < SLOTS; slot++)
		sscanf(arguments[8 + slot], "%d:%d", &w->slots[slot][OURS], &w->slots[slot][TWIN]);
	self = w;
	look_at_slots(w);
	for (long n = 1 + pick(w, 5); n-- > 0;) {
		/* It has not what threads share. */
		if (one_in(w, 3))
			stream_step(w);
		else
			slot_step(w);
	}
	return 0;
}

static int compare_records(const void *a, const void *b)
{
	return memcmp(a, b, RECORD);
}

/* All records of some shared files of a side, sorted. */
static char *records_of(struct work *w, int side, int first, int last, long *bytes)
{
	char *text = NULL;
	*bytes = 0;
	for (int k = first; k <= last; k++) {
		struct stat st;
		WANT(fstat(shared[k][side], &st) == 0);
		WANT(text = realloc(text, (size_t)(*bytes + st.st_size + 1)));
		for (long at = 0; at < st.st_size;) {
			ssize_t n = pread(
				shared[k][side], text + *bytes, (size_t)(st.st_size - at), at);
			WANT(n > 0);
			at += n;
			*bytes += n;
		}
	}
	qsort(text, (size_t)*bytes / RECORD, RECORD, compare_records);
	return text;
}

static void compare_shared(struct work *w, const char *what, int first, int last)
{
	long bytes[SIDES];
	char *text[SIDES];
	for (int i = 0; i < SIDES; i++)
		text[i] = records_of(w, i, first, last, &bytes[i]);
	NOTE(what, bytes[OURS], bytes[TWIN], 0);
	WANT(bytes[OURS] == bytes[TWIN]);
	for (long at = 0; at < bytes[OURS]; at += RECORD)
		if (memcmp(text[OURS] + at, text[TWIN] + at, RECORD) != 0) {
			say("%s: %.32s and plain %.32s\n", what, text[OURS] + at, text[TWIN] + at);
			WANT(!"the same records");
		}
	free(text[OURS]);
	free(text[TWIN]);
}

static void compare_all(struct work *w)
{
	for (int k = 0; k < SHARED; k++)
		if (has_locks) {
			WANT(flock(shared[k][OURS], LOCK_SH) == 0);
		} else if (k != FLIP_PLAIN) {
			int again = open(shared_names[k], O_RDONLY);
			WANT(again >= 0 && close(again) == 0);
		}
	compare_shared(w, "log", LOG, LOG);
	compare_shared(w, "position", POSITION, POSITION);
	compare_shared(w, "flip", FLIP_A, FLIP_PLAIN);
	compare_shared(w, "read", READ, READ);
	for (int i = 0; i < SIDES; i++) {
		struct stat st;
		WANT(fstat(shared[READ][i], &st) == 0);
		WANT(lseek(reader[i], 0, SEEK_CUR) == totals->read_bytes[i]);
		WANT(totals->read_bytes[i] <= st.st_size);
		WANT(lseek(shared[READ][i], 0, SEEK_CUR) == st.st_size);
	}
	BOTH(lseek(shared[POSITION][i], 0, SEEK_CUR));
	for (int t = 0; t < 2 * THREADS; t++) {
		struct work *of = t < THREADS ? &all[t] : &handlers[t - THREADS];
		for (int slot = 0; slot < SLOTS; slot++)
			if (of->slots[slot][OURS] >= 0) {
				look(of, of->slots[slot]);
				look_at_all(of, of->slots[slot]);
			}
		for (int k = 0; k < STREAMS; k++)
			if (of->streams[k][OURS])
				look_at_stream(of, of->streams[k]);
	}
}

static double seconds_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double seconds_used(void)
{
	double sum = 0;
	for (int k = 0; k < 2; k++) {
		struct rusage used;
		getrusage(k ? RUSAGE_CHILDREN : RUSAGE_SELF, &used);
		sum += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
		       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
	}
	return sum;
}

static void *work_and_leave(void *argument)
{
	work(argument);
	running--;
	return NULL;
}

/* Sends signals until the time is over and all have ended. */
static void send_signals(struct work *w, double seconds, double percent)
{
	double begin = seconds_now(), moved = begin;
	long steps[THREADS] = {0};
	while (running) {
		double now = seconds_now();
		if (now > begin + seconds)
			stop = 1;
		paused = !stop && seconds_used() > (now - begin) * percent / 100;
		bool moves = paused;
		for (int t = 0; t < THREADS; t++) {
			if (all[t].is_jumping)
				pthread_kill(all[t].thread, SIGUSR2);
			else if (!stop && !paused && one_in(w, 3))
				pthread_kill(all[t].thread, SIGUSR1);
			moves = moves || all[t].steps != steps[t];
			steps[t] = all[t].steps;
		}
		if (moves)
			moved = now;
		for (int t = 0; t < THREADS && now > moved + STUCK_S; t++)
			tell(&all[t]);
		WANT(now <= moved + STUCK_S);
		usleep(paused ? 5000 : (useconds_t)(100 + pick(w, 900)));
	}
}

int main(int argc, char **argv)
{
	prepare();
	if (argc > 8 && strcmp(argv[1], "--go") == 0)
		return go_on(argv + 2);
	if (argc < 4) {
		say("stress PLAIN_DIRECTORY SEED SECONDS [PERCENT]\n");
		return 2;
	}
	seed = strtoul(argv[2], NULL, 10);
	forks = seed % 2 == 0;
	totals = mmap(
		NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	static struct work whole;
	struct work *w = &whole;
	start(w, 99, false);
	strcpy(dirs[false][OURS], ".");
	snprintf(dirs[false][TWIN], PATH_MAX, "%s/twin", argv[1]);
	snprintf(dirs[true][OURS], PATH_MAX, "%s/outside", argv[1]);
	snprintf(dirs[true][TWIN], PATH_MAX, "%s/outside-twin", argv[1]);
	WANT(mkdir(dirs[false][TWIN], 0700) == 0 && mkdir(dirs[true][OURS], 0700) == 0);
	WANT(mkdir(dirs[true][TWIN], 0700) == 0);
	for (int k = 0; k < SHARED; k++)
		for (int i = 0; i < SIDES; i++) {
			char path[PATH_MAX + 40];
			snprintf(path, sizeof path, "%s/%s", dirs[k == FLIP_PLAIN][i],
				shared_names[k]);
			shared[k][i] = open(
				path, O_RDWR | O_CREAT | (k == LOG ? O_APPEND : 0), 0644);
			WANT(shared[k][i] >= 0);
			if (k == READ)
				WANT((reader[i] = open(path, O_RDONLY)) >= 0);
			if (k == FLIP_A)
				WANT(dup2(shared[k][i], flip[i]) == flip[i]);
		}
	has_locks = flock(shared[LOG][OURS], LOCK_SH) == 0;
	for (int i = 0; i < 3; i++)
		WANT(dup2(open("/dev/null", O_RDWR | O_CLOEXEC), i) == i);
	handle();
	for (int t = 0; t < THREADS; t++) {
		start(&all[t], t, false);
		start(&handlers[t], t, true);
		all[t].handler = &handlers[t];
	}
	/* The first write of a process starts a thread, which calls malloc: not in a handler. */
	char first[RECORD + 1];
	sprintf(first, "%-*s\n", RECORD - 1, "first");
	BOTH(write(shared[POSITION][i], first, RECORD));
	running = THREADS;
	for (int t = 0; t < THREADS; t++)
		WANT(pthread_create(&all[t].thread, NULL, work_and_leave, &all[t]) == 0);
	send_signals(w, atof(argv[3]), argc > 4 ? atof(argv[4]) : 1e6);
	for (int t = 0; t < THREADS; t++)
		WANT(pthread_join(all[t].thread, NULL) == 0);
	compare_all(w);
	say("explored %ld steps, %ld of handlers, %ld jumps out of handlers, %ld forks, %ld "
	    "programs\n",
		(long)totals->steps, (long)totals->handled, (long)totals->jumps,
		(long)totals->forks, (long)totals->programs);
	return totals->failed != 0;
}
