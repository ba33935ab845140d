/* Forked processes and programs that they start share one position: no record is written over
 * another, and none is read twice. A forked process knows the description, a program that was
 * started has a plain file's descriptor and nothing else, and calls the kernel. The first looked
 * where the position was, wrote there and moved it: what the second wrote in between was lost, a
 * tenth of a log that a shell and its children wrote. */
#include "t.h"

#define RECORD 16
#define RECORDS 400
#define PROCESSES 6

static int file, seen;

static void write_all(int who)
{
	char text[RECORD + 1];
	for (int i = 0; i < RECORDS; i++) {
		snprintf(text, sizeof text, "%03d %011d\n", who, i);
		if (write(file, text, RECORD) != RECORD)
			_exit(2);
	}
}

static void read_all(void)
{
	char text[RECORD];
	while (read(file, text, RECORD) == RECORD)
		if (write(seen, text, RECORD) != RECORD)
			_exit(2);
}

static void act(const char *what, int who)
{
	if (*what == 'w')
		write_all(who);
	else
		read_all();
}

/* Every other one starts a program. */
static void together(const char *program, const char *what)
{
	for (int who = 0; who < PROCESSES; who++) {
		if (fork() > 0)
			continue;
		char numbers[3][12];
		snprintf(numbers[0], sizeof numbers[0], "%d", file);
		snprintf(numbers[1], sizeof numbers[1], "%d", seen);
		snprintf(numbers[2], sizeof numbers[2], "%d", who);
		if (who % 2)
			execl(program, program, what, numbers[0], numbers[1], numbers[2],
				(char *)NULL);
		else
			act(what, who);
		_exit(who % 2);
	}
	int status, bad = 0;
	while (wait(&status) > 0)
		bad += status != 0;
	printf("%s: %d failed, position %ld\n", what, bad, (long)lseek(file, 0, SEEK_CUR));
}

static int by_text(const void *a, const void *b)
{
	return memcmp(a, b, RECORD);
}

static void count(const char *what, int fd)
{
	static char all[2 * PROCESSES * RECORDS * RECORD];
	ssize_t n = pread(fd, all, sizeof all, 0) / RECORD;
	qsort(all, (size_t)n, RECORD, by_text);
	long different = n > 0;
	for (ssize_t i = 1; i < n; i++)
		different += memcmp(all + i * RECORD, all + (i - 1) * RECORD, RECORD) != 0;
	printf("%s: %zd records, %ld different\n", what, n, different);
}

int main(int argc, char **argv)
{
	if (argc == 5) {
		file = atoi(argv[2]);
		seen = atoi(argv[3]);
		act(argv[1], atoi(argv[4]));
		return 0;
	}
	file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
	seen = open("seen", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
	fflush(stdout);
	together(argv[0], "writes");
	count("written", file);
	lseek(file, 0, SEEK_SET);
	fflush(stdout);
	together(argv[0], "reads");
	count("read", seen);
	/* Which record is where is chance. */
	return unlink("file") + unlink("seen");
}
