/* What the twins of a call share: chance, what is noted of a thread, the first difference. */
#include "stress.h"

uint64_t next(struct work *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random;
}

/* A number below n. */
long pick(struct work *w, long n)
{
	return (long)(next(w) >> 11) % n;
}

bool one_in(struct work *w, long n)
{
	return pick(w, n) == 0;
}

/* dprintf takes the lock of libc's list of streams, for which a stuck thread may wait. */
void say(const char *format, ...)
{
	char text[400];
	va_list ap;
	va_start(ap, format);
	int n = vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	if (n > 0)
		write(report, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void note(struct work *w, int line, const char *text, long a, long b, long c, long d)
{
	w->events[w->event_count++ % EVENTS] = (struct event){line, text, {a, b, c, d}};
}

void tell(struct work *w)
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

_Noreturn void fail(struct work *w, int line, const char *what, const long *r, const int *e)
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

void same_bytes(struct work *w, int line, char (*got)[PIECE], long n)
{
	if (n > 0 && memcmp(got[OURS], got[TWIN], (size_t)n) != 0) {
		long at = 0;
		while (got[OURS][at] == got[TWIN][at])
			at++;
		NOTE("other bytes from here, of", at, n, 0);
		fail(w, line, "bytes", (long[]){got[OURS][at], got[TWIN][at]}, (int[]){0, 0});
	}
}

void fill(struct work *w, char *piece, long n)
{
	uint64_t random = next(w);
	for (long i = 0; i < n; i++)
		piece[i] = (char)('a' + (random >> (i % 48)) % 26);
}
