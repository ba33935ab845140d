/* A program that takes all descriptors, and gives them back. A sync in between, which found none,
 * failed, and so did each later call on the file, whose acknowledged bytes were lost: now the first
 * call that finds one goes on with all of them. And an open that found too few of them failed when
 * it had cut the file, or had made a new one: now it has changed nothing. */
#include "t.h"

#include <dirent.h>
#include <stdbool.h>
#include <sys/resource.h>

#define LIMIT 64
/* Of those who open files: libplfs has numbers of its own above the half. */
#define MORE 160
static int taken[MORE], n;

static void make_room(void)
{
	while (n > 0)
		close(taken[--n]);
}

static void content(const char *name, const char *wanted)
{
	char bytes[100] = "";
	int fd = open(name, O_RDONLY);
	WANT(read(fd, bytes, sizeof bytes - 1) == (ssize_t)strlen(wanted) &&
		!strcmp(bytes, wanted));
	close(fd);
}

static void take_all(int of)
{
	int copy;
	while (n < MORE && (copy = dup(of)) >= 0)
		taken[n++] = copy;
}

/* Gives back `free` numbers, the highest ones or the lowest. */
static void give_back(int free, bool highest)
{
	for (int i = 0; i < free && n > 0; i++) {
		close(taken[highest ? n - 1 : 0]);
		n--;
		if (!highest)
			memmove(taken, taken + 1, n * sizeof *taken);
	}
}

/* Ways to open a file so that nothing is in it, or to cut it; from MAKES on a new one, whose name
 * the call may change. */
enum way {
	TRUNC,
	AT,
	READS,
	CREAT,
	STREAM,
	AGAIN,
	CUT,
	MAKES,
	EXCL = MAKES,
	STREAM_EXCL,
	NODE,
	TEMP,
	LINKED
};
#define WAYS (LINKED + 1)

/* The error, or 0. `stream` is for freopen. */
static int open_empty(enum way way, char *name, FILE *stream)
{
	int fd = -1;
	FILE *fp = NULL;
	switch (way) {
	case AGAIN:
		fp = freopen(name, "w", stream);
		break;
	case TRUNC:
		fd = open(name, O_WRONLY | O_TRUNC);
		break;
	case AT:
		fd = openat(AT_FDCWD, name, O_RDWR | O_CREAT | O_TRUNC, 0644);
		break;
	case READS:
		fd = open(name, O_RDONLY | O_TRUNC);
		break;
	case CREAT:
	case LINKED:
		fd = creat(name, 0644);
		break;
	case CUT:
		return truncate(name, 0) ? errno : 0;
	case EXCL:
		fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
		break;
	case NODE:
		return mknod(name, S_IFREG | 0644, 0) ? errno : 0;
	case TEMP:
		fd = mkstemp(name);
		break;
	default:
		fp = fopen(name, way == STREAM ? "w" : "wx");
	}
	int error = fd < 0 && !fp ? errno : 0;
	if (fp)
		fclose(fp);
	if (fd >= 0)
		close(fd);
	return error;
}

static int entries(void)
{
	int count = 0;
	DIR *dir = opendir(".");
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* With so many free numbers it opens the file and there is nothing in it, or it fails and nothing
 * has changed. True: it opened it. */
static bool opens(enum way way, int free, bool highest, bool keep)
{
	char name[20];
	sprintf(name, "%s%d_%d_%d_XXXXXX", way < MAKES ? "old" : "new", way, free,
		2 * highest + keep);
	int fd = -1;
	if (way < MAKES) {
		fd = open(name, O_CREAT | O_RDWR, 0644);
		WANT(write(fd, "precious", 8) == 8);
		if (!keep) {
			close(fd);
			fd = -1;
		}
	}
	if (way == LINKED) {
		char target[30];
		sprintf(target, "to_%s", name);
		WANT(symlink(target, name) == 0);
	}
	int before = entries(), null = open("/dev/null", O_RDONLY);
	FILE *stream = way == AGAIN ? fopen("/dev/null", "r") : NULL;
	take_all(null);
	give_back(free, highest);
	int error = open_empty(way, name, stream);
	make_room();
	close(null);
	if (fd >= 0)
		close(fd);
	if (error != 0 && error != EMFILE) {
		printf("way %d, %d free: %s\n", way, free, strerrorname_np(error));
		wrong = 1;
	}
	struct stat st = {0};
	if (way < MAKES && (stat(name, &st) < 0 || st.st_size != (error ? 8 : 0))) {
		printf("way %d, %d free, error %d: %ld bytes are left\n", way, free, error,
			(long)st.st_size);
		wrong = 1;
	}
	if (way < MAKES)
		content(name, error ? "precious" : "");
	if (entries() - before != (way >= MAKES && !error)) {
		printf("way %d, %d free, error %d: there are %d files more\n", way, free, error,
			entries() - before);
		wrong = 1;
	}
	return !error;
}

/* The number from which on all of these open a file has to be `enough` at most. */
static void open_with_few(int enough)
{
	static const int numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 17, 18, 19, 20, 22, 25};
	for (enum way way = 0; way < WAYS; way++)
		for (int how = 0; how < 4; how++)
			for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
				int free = numbers[i];
				if (way >= MAKES && (how & 1))
					continue;
				bool done = opens(way, free, how & 2, how & 1);
				/* freopen puts a descriptor in the place of the old one first. */
				if (done || free < enough + (way == AGAIN))
					continue;
				printf("way %d with %d free%s fails\n", way, free,
					how & 1 ? " beside an open one" : "");
				wrong = 1;
			}
}

/* Threads that cut files of their own and take descriptors: what one of them has counted another
 * may take. */
static void *cuts(void *number)
{
	char name[20], bytes[20], last[20] = "";
	int own[8], held = 0, null = open("/dev/null", O_RDONLY);
	unsigned random = (unsigned)(long)number * 7919 + 1;
	sprintf(name, "cut%ld", (long)number);
	for (int i = 0; i < 600; i++) {
		random = random * 1103515245 + 12345;
		int what = (random >> 16) % 10;
		if (what < 2 && held < 8 && (own[held] = dup(null)) >= 0)
			held++;
		else if (what < 4 && held > 0)
			close(own[--held]);
		else if (what < 5 && truncate(name, 0) == 0)
			last[0] = 0;
		int fd = what < 7 ? open(name, O_RDWR | O_CREAT | O_TRUNC, 0644)
				  : open(name, O_RDONLY);
		if (fd < 0)
			continue;
		bool is_taken = true;
		ssize_t length;
		if (what < 7) {
			length = sprintf(bytes, "%d", i);
			is_taken = write(fd, bytes, length) == length;
			strcpy(last, is_taken ? bytes : "");
		} else if ((length = read(fd, bytes, sizeof bytes)) < 0) {
			is_taken = false;
		} else if (length != (ssize_t)strlen(last) || memcmp(bytes, last, length)) {
			printf("%s has %.*s instead of %s\n", name, (int)length, bytes, last);
			wrong = 1;
		}
		int error = errno;
		WANT(is_taken || error == EMFILE);
		int closed = close(fd);
		error = errno;
		WANT(closed == 0 || error == EMFILE);
	}
	while (held > 0)
		close(own[--held]);
	close(null);
	return NULL;
}

static void cut_by_threads(void)
{
	struct rlimit before, few = {38, MORE};
	getrlimit(RLIMIT_NOFILE, &before);
	pthread_t threads[6];
	WANT(setrlimit(RLIMIT_NOFILE, &few) == 0);
	for (long i = 0; i < 6; i++)
		WANT(pthread_create(&threads[i], NULL, cuts, (void *)i) == 0);
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	WANT(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

int main(int argc, char **argv)
{
	struct rlimit limit = {argc > 1 ? MORE : LIMIT, MORE};
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 1;
	if (argc > 1) {
		/* A plain file needs a number for itself alone. */
		open_with_few(!strcmp(argv[1], "auto") ? 1 : 22);
		cut_by_threads();
		return wrong;
	}
	for (int i = 0; i < 2; i++) {
		char *workload = i ? "auto" : "shared";
		pid_t pid = fork();
		if (pid == 0) {
			WANT(mkdir(workload, 0755) == 0 && chdir(workload) == 0);
			setenv("PLFS_WORKLOAD", workload, 1);
			execl("/proc/self/exe", "only_full_table", workload, (char *)NULL);
			_exit(1);
		}
		WANT(reap(pid) == 0);
	}
	/* Each bit of `how` is something that the program does in a full table. */
	for (int how = 0; how < 16; how++) {
		char name[20], bytes[100] = "", wanted[100] = "first";
		sprintf(name, "f%d", how);
		int fd = open(name, O_RDWR | O_CREAT, 0644), null = open("/dev/null", O_RDONLY),
		    copy;
		WANT(write(fd, "first", 5) == 5);
		if (how & 1)
			WANT(fsync(fd) == 0);
		while ((copy = dup(how & 2 ? fd : null)) >= 0)
			taken[n++] = copy;
		bool is_taken = write(fd, "second", 6) == 6, is_full = errno == EMFILE;
		if (is_taken)
			strcat(wanted, "second");
		else
			WANT(is_full);
		/* It said 4093 bytes, which is what the name has. */
		struct stat st;
		struct statx x;
		WANT(stat(name, &st) == 0 ? st.st_size == (off_t)strlen(wanted) : errno == EMFILE);
		WANT(lstat(name, &st) == 0 ? st.st_size == (off_t)strlen(wanted) : errno == EMFILE);
		WANT(statx(AT_FDCWD, name, 0, STATX_SIZE, &x) == 0 ? x.stx_size == strlen(wanted)
								   : errno == EMFILE);
		if (how & 4)
			WANT(fsync(fd) == 0 || errno == EMFILE);
		if (how & 8)
			WANT(pread(fd, bytes, 50, 0) == (ssize_t)strlen(wanted) || errno == EMFILE);
		make_room();
		WANT(write(fd, "third", 5) == 5);
		strcat(wanted, "third");
		memset(bytes, 0, sizeof bytes);
		WANT(pread(fd, bytes, 50, 0) == (ssize_t)strlen(wanted) && !strcmp(bytes, wanted));
		WANT(fsync(fd) == 0);
		WANT(close(fd) == 0);
		close(null);
		content(name, wanted);
	}
	return wrong;
}
