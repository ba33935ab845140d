/* Steps with streams of stdio. */
#include "stress.h"

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

void look_at_stream(struct work *w, FILE **f)
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

void stream_step(struct work *w)
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
void standard_step(struct work *w)
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
		long rest[SIDES];
		/* Of what may not be written a fflush(NULL) of another thread gets the error. */
		if (!w->in_child)
			pthread_mutex_lock(&reopen_lock);
		for (int i = 0; i < SIDES; i++) {
			clearerr(out);
			WANT(dup2(fds[i], how) == how);
			fprintf(out, "number %ld\n", n);
			rest[i] = fflush(out) < 0 ? -errno : 0;
			errno = ENOENT;
			if (rest[i] == 0 && how == 2)
				perror("said");
			__fpurge(out);
			WANT(dup2(null, how) == how);
		}
		if (!w->in_child)
			pthread_mutex_unlock(&reopen_lock);
		BOTH(rest[i]);
		look(w, fds);
	}
	if (!w->in_child)
		pthread_rwlock_unlock(&streams_lock);
	w->may_fork = 1;
	WANT(close(null) == 0);
}
