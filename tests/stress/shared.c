/* Files that threads, handlers and children write at once: compared as sets of records. */
#include "stress.h"

static void make_record(struct work *w, char *record)
{
	sprintf(record, "%c%d %9d %9ld %8lx\n", w->in_handler ? 'h' : 't', w->number, (int)getpid(),
		w->records++ % 1000000000, (long)(w->random & 0xffffff));
}

void record_step(struct work *w)
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
	if (how == 1)
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
void reader_step(struct work *w)
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

void flip_step(struct work *w)
{
	int to = FLIP_A + (int)pick(w, 3);
	BOTH_AS(dup2(shared[to][i], flip[i]), IS_ERROR);
}
