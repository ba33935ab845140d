/* The FILE that a program has stays the FILE, whatever is behind its descriptor: copies of the
 * pointer taken before freopen and dup2 onto 0, 1 and 2. And what libc writes to a descriptor by
 * itself (dprintf, backtrace_symbols_fd, perror) gets there. Once such text was lost. And fflush of
 * all streams in one thread while another forks, which deadlocked within seconds. */
#include "t.h"
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio_ext.h>
#include <wchar.h>

static _Atomic int stop;
static _Atomic long flushed;

/* getopt is no cancellation point: what it prints on descriptor 2 had been one. */
static void *gets_options(void *none)
{
	char *argv[] = {"program", "-x", NULL};
	pthread_cancel(pthread_self());
	int option = getopt(2, argv, "a");
	printf("option %c\n", option);
	pthread_testcancel();
	return NULL;
}

static void *flusher(void *argument)
{
	while (!stop) {
		fprintf(argument, "hello\n");
		fflush(NULL);
		flushed++;
	}
	return NULL;
}

static void print(int fd, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	vdprintf(fd, format, ap);
	va_end(ap);
}

int main(void)
{
	int keep = dup(1), keep_error = dup(2), fd;
	setvbuf(stdout, NULL, _IONBF, 0);

	FILE *f = fopen("one", "w"), *g;
	fprintf(f, "one\n");
	g = freopen("two", "w", f);
	printf("same: %d\n", f == g);
	fprintf(f, "two\n");
	g = freopen("/dev/null", "w", f);
	fprintf(f, "nowhere\n");
	printf("same: %d\n", f == g);
	g = freopen("two", "a+", f);
	fprintf(f, "again\n");
	rewind(f);
	char line[100];
	printf("same: %d, reads %s", f == g, fgets(line, sizeof line, f));
	g = freopen(NULL, "r", f);
	printf("same: %d, reads %s", f == g, fgets(line, sizeof line, f));
	printf("no write: %d\n", fputs("x", f) == EOF || fflush(f) == EOF);
	/* One of glibc's own tests: the descriptor went by close(2), and the new file gets its
	 * number. It was closed again where freopen put /dev/null first. */
	close(fileno(f));
	g = freopen("two", "r", f);
	printf("same: %d, reads %s", f == g, g ? fgets(line, sizeof line, f) : "nothing\n");
	close(0);
	g = freopen("one", "r", stdin);
	printf("same: %d, number %d\n", g == stdin, g ? fileno(g) : -1);
	/* What a failed freopen leaves is a closed stream, that can be opened again or closed. It
	 * was freed, and freed again by fclose. */
	R(freopen("no/such", "r", f) == NULL);
	g = freopen("two", "r", f);
	printf("same: %d, reads %s", f == g, g ? fgets(line, sizeof line, f) : "nothing\n");
	R(freopen("no/such", "r", f) == NULL);
	R(fclose(f));
	show("one");
	show("two");

	/* glibc's tst-ext2, tst-fopenloc2 and tst-ftell-active-handler. A stream for both had been
	 * one that reads, bytes were not converted, and an fdopen that appends left the position.
	 */
	f = fopen("converted", "w+");
	printf("reading %d, writing %d\n", __freading(f) != 0, __fwriting(f) != 0);
	R(fputs("\303\244\303\266\n", f));
	R(fclose(f));
	f = fopen("converted", "r,ccs=UTF-8");
	wchar_t wide[10] = L"";
	fgetws(wide, 10, f);
	printf("%x %x\n", (unsigned)wide[0], (unsigned)wide[1]);
	R(ftell(f));
	R(fseek(f, 2, SEEK_SET));
	printf("%x\n", (unsigned)fgetwc(f));
	R(fclose(f));
	static const char *const converts[] = {
		"wx,ccs=ISO-8859-1", "a,ccs=UTF-16LE", "a+,ccs=UTF-16LE", "w+,ccs=UTF-16LE"};
	for (size_t i = 0; i < sizeof converts / sizeof *converts; i++) {
		f = fopen("other", converts[i]);
		R(f && fputws(L"\u00e4\u00f6\n", f) >= 0 && fclose(f) == 0);
		show("other");
	}
	fd = open("converted", O_WRONLY | O_CLOEXEC);
	f = fdopen(fd, "a");
	R(lseek(fd, 0, SEEK_CUR));
	R(fclose(f));
	fd = open("converted", O_WRONLY | O_APPEND);
	f = fdopen(fd, "ae");
	R(lseek(fd, 0, SEEK_CUR));
	R(fcntl(fd, F_GETFD));
	R(fclose(f));

	FILE *saved = stdout;
	printf("out: %d\n", freopen("out", "w", stdout) == stdout);
	R(fprintf(saved, "by the copy\n"));
	wprintf(L"wide %ls\n", L"chars");
	R(fflush(saved));
	dup2(keep, 1);
	clearerr(stdout);
	printf("back\n");
	show("out");

	fd = open("err", O_RDWR | O_CREAT | O_TRUNC, 0644);
	dup2(fd, 2);
	fprintf(stderr, "to stderr\n");
	errno = ENOENT;
	perror("perror");
	pthread_t thread;
	void *end = NULL;
	pthread_create(&thread, NULL, gets_options, NULL);
	pthread_join(thread, &end);
	fprintf(stderr, "%s\n", end == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
	psignal(SIGINT, "psignal");
	dup2(keep_error, 2);
	show("err");

	dup2(fd, 0);
	lseek(fd, 0, SEEK_SET);
	printf("in: %d %s", fgetc(stdin), fgets(line, sizeof line, stdin));
	ftruncate(fd, 0);
	lseek(fd, 0, SEEK_SET);
	R(dprintf(fd, "number %d\n", 5));
	print(fd, "%s\n", "by vdprintf");
	show("err");
	void *frames[2] = {main, NULL};
	ftruncate(fd, 0);
	lseek(fd, 0, SEEK_SET);
	backtrace_symbols_fd(frames, 1, fd);
	printf("frames: %d\n", lseek(fd, 0, SEEK_END) > 5);
	ftruncate(fd, 0);
	close(fd);

	f = fopen("wide", "w+");
	fwprintf(f, L"%d %ls\n", 42, L"text");
	rewind(f);
	int n = 0;
	wchar_t word[20] = L"";
	int got = fwscanf(f, L"%d %19ls", &n, word);
	printf("fwscanf: %d %d %ls\n", got, n, word);
	fclose(f);

	f = fopen("flushed", "w");

	pthread_create(&thread, NULL, flusher, f);
	int bad = 0;
	for (int i = 0; i < 150; i++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(0);
		int status = 1;
		bad += waitpid(pid, &status, 0) != pid || status != 0;
	}
	stop = 1;
	pthread_join(thread, NULL);
	printf("forks: %d bad, %d\n", bad, ftell(f) == flushed * 6);
	ftruncate(fileno(f), 0);
	return 0;
}
