/* Steps with descriptors. */
#include "stress.h"

void path_of(char *path, bool outside, int side, char kind, int number, long which)
{
	snprintf(path, PATH_MAX + 40, "%s/%c%d.%ld", dirs[outside][side], kind, number, which);
}

static int fixed_number(struct work *w, int slot, int side)
{
	return 240 + (w->number + (w->in_handler ? THREADS : 0)) * 16 + side * 8 + slot;
}

void open_step(struct work *w, int slot)
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
long look(struct work *w, const int *fds)
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
void look_at_all(struct work *w, const int *fds)
{
	char (*got)[PIECE] = w->got;
	long n = 1;
	for (long at = 0; n > 0; at += n) {
		n = BOTH(pread(fds[i], got[i], PIECE, at));
		same_bytes(w, __LINE__, got, n);
	}
}

/* Another process has written files: a lock that is granted shows it (S2), and an open. */
void acquire(struct work *w)
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

void look_at_slots(struct work *w)
{
	for (int slot = 0; slot < SLOTS; slot++)
		if (w->slots[slot][OURS] >= 0)
			look(w, w->slots[slot]);
}

void write_step(struct work *w, const int *fds, long size)
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

void read_step(struct work *w, const int *fds)
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

void seek_step(struct work *w, const int *fds)
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
void refused_step(struct work *w, const int *fds)
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

void flags_step(struct work *w, const int *fds)
{
	long flags = (one_in(w, 2) ? O_APPEND : 0) | (one_in(w, 4) ? O_NONBLOCK : 0);
	if (one_in(w, 4))
		BOTH(fcntl(fds[i], F_SETFD, flags & O_APPEND ? FD_CLOEXEC : 0));
	else
		BOTH(fcntl(fds[i], F_SETFL, flags));
}

void close_step(struct work *w, int slot)
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
void dup_step(struct work *w, int from, int to)
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
void copy_step(struct work *w, const int *from, const int *to)
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

void name_step(struct work *w)
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

void jump_step(struct work *w)
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
