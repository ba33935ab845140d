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
#include "stress.h"

const char *const shared_names[SHARED] = {
	"log", "position", "flip-a", "flip-b", "flip-plain", "read"};
int shared[SHARED][SIDES], reader[SIDES], flip[SIDES] = {90, 91};
struct work all[THREADS], handlers[THREADS];
__thread struct work *self __attribute__((tls_model("initial-exec")));
_Atomic int stop, paused, running;
struct totals *totals;
unsigned long seed;
int report = 2;
bool has_locks = true, is_managed, is_born_plain, forks;
char dirs[2][SIDES][PATH_MAX];
char program[PATH_MAX];
bool racy;
long races;
pthread_rwlock_t streams_lock = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t reopen_lock = PTHREAD_MUTEX_INITIALIZER;

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

void step(struct work *w)
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

void on_signal(int sig)
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
