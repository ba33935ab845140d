/* What the files of this stress share. */
#ifndef PLFS_STRESS_H
#define PLFS_STRESS_H

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
extern const char *const shared_names[SHARED];
extern int shared[SHARED][SIDES], reader[SIDES], flip[SIDES];
extern struct work all[THREADS], handlers[THREADS];
extern __thread struct work *self __attribute__((tls_model("initial-exec")));
extern _Atomic int stop, paused, running;
/* What children count, too. */
struct totals {
	_Atomic long steps, handled, forks, programs, jumps, failed, told;
	_Atomic long read_bytes[SIDES];
};
extern struct totals *totals;
extern unsigned long seed;
extern int report;
extern bool has_locks, is_managed, is_born_plain, forks;
/* Directories: managed and plain, and two that are plain both. */
extern char dirs[2][SIDES][PATH_MAX];
extern char program[PATH_MAX];
/* Is there a race on purpose, that ThreadSanitizer must see? */
extern bool racy;
extern long races;
/* Who exits flushes all streams: so nobody may be in the middle of one. */
extern pthread_rwlock_t streams_lock;
/* glibc's freopen takes the list of streams while it holds one, and fflush(NULL) the other way
 * round: in two threads at once they wait for each other for ever, without us, too. */
extern pthread_mutex_t reopen_lock;

/* twins.c */
uint64_t next(struct work *w);
long pick(struct work *w, long n);
bool one_in(struct work *w, long n);
void say(const char *format, ...);
void note(struct work *w, int line, const char *text, long a, long b, long c, long d);
void tell(struct work *w);
_Noreturn void fail(struct work *w, int line, const char *what, const long *r, const int *e);
void same_bytes(struct work *w, int line, char (*got)[PIECE], long n);
void fill(struct work *w, char *piece, long n);

/* shared.c */
void record_step(struct work *w);
void reader_step(struct work *w);
void flip_step(struct work *w);

/* descriptors.c */
void path_of(char *path, bool outside, int side, char kind, int number, long which);
void open_step(struct work *w, int slot);
long look(struct work *w, const int *fds);
void look_at_all(struct work *w, const int *fds);
void acquire(struct work *w);
void look_at_slots(struct work *w);
void write_step(struct work *w, const int *fds, long size);
void read_step(struct work *w, const int *fds);
void seek_step(struct work *w, const int *fds);
void refused_step(struct work *w, const int *fds);
void flags_step(struct work *w, const int *fds);
void close_step(struct work *w, int slot);
void dup_step(struct work *w, int from, int to);
void copy_step(struct work *w, const int *from, const int *to);
void name_step(struct work *w);
void jump_step(struct work *w);

/* streams.c */
void look_at_stream(struct work *w, FILE **f);
void stream_step(struct work *w);
void standard_step(struct work *w);

/* processes.c */
void fork_step(struct work *w);
void spawn_step(struct work *w);
void pipe_step(struct work *w);

/* stress.c */
void step(struct work *w);
void on_signal(int sig);

#define NOTE(text, a, b, c) note(w, __LINE__, text, a, b, c, 0)

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

#endif
