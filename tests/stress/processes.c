/* Steps with children and programs. */
#include "stress.h"

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

void fork_step(struct work *w)
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
void spawn_step(struct work *w)
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
void pipe_step(struct work *w)
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
