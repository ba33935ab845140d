/* stdio streams, also the three that exist from the start. fopen(…, "w") of a new plain file in a
 * managed directory (workload auto) once failed with EINVAL. */
#include "t.h"

#include <mntent.h>

#include <stdio_ext.h>

FILE *__setmntent(const char *path, const char *mode);

int main(void)
{
	char line[200], *lp = NULL;
	size_t room = 0;
	struct stat st;
	FILE *f = fopen("a", "w");
	R(f != NULL);
	R(fileno(f));
	R(fprintf(f, "line %d\n", 1));
	R(fputs("line 2\n", f) >= 0);
	R(ftell(f));
	R(fflush(f));
	R(stat("a", &st) ? -1 : (long)st.st_size);
	R(fseek(f, 5, SEEK_SET));
	R(fputc('X', f));
	R(fclose(f));
	show("a");
	f = fopen("a", "r");
	R(fgets(line, sizeof line, f) != NULL);
	printf("%s", line);
	R(ftell(f));
	R(fputc('x', f));
	clearerr(f);
	R(getline(&lp, &room, f));
	R(getc(f));
	R(feof(f) != 0);
	rewind(f);
	R(getdelim(&lp, &room, ' ', f));
	rewind(f);
	R(getc(f));
	R(ungetc('U', f));
	R(getc(f));
	R(fseek(f, -3, SEEK_END));
	R(fread(line, 1, sizeof line, f));
	R(fclose(f));
	f = fopen("a", "a+");
	R(fputs("appended\n", f) >= 0);
	rewind(f);
	R(fgets(line, sizeof line, f) != NULL);
	printf("%s", line);
	R(fseek(f, 0, SEEK_CUR));
	R(fputs("again\n", f) >= 0);
	R(fclose(f));
	show("a");
	f = fopen("a", "r+");
	R(fgetc(f));
	R(fseek(f, 0, SEEK_CUR));
	R(fputc('I', f));
	R(fclose(f));
	show("a");
	R(fopen("a", "wx") == NULL);
	R(fopen("missing", "r") == NULL);
	R(errno == ENOENT);
	R(fopen("a", "q") == NULL);
	f = fopen("wx", "wxe");
	R(fcntl(fileno(f), F_GETFD));
	R(setvbuf(f, NULL, _IONBF, 0));
	R(fputs("unbuffered", f) >= 0);
	R(stat("wx", &st) ? -1 : (long)st.st_size);
	R(fclose(f));
	f = fopen("lbf", "w");
	R(setvbuf(f, line, _IOLBF, sizeof line));
	R(fputs("a\nb", f) >= 0);
	R(stat("lbf", &st) ? -1 : (long)st.st_size);
	R(fclose(f));
	/* Much data, in pieces that cross buffers. */
	f = fopen("big", "w+");
	for (int i = 0; i < 60000; i++)
		fprintf(f, "%d,", i);
	R(ftell(f));
	R(fseeko(f, 200000, SEEK_SET));
	int v = 0;
	R(fscanf(f, "%d,", &v));
	R(v);
	R(fseeko(f, 3, SEEK_CUR));
	R(ftello(f));
	R(fclose(f));
	R(stat("big", &st) ? -1 : (long)st.st_size);

	int fd = R(open("a", O_RDWR));
	R(lseek(fd, 5, SEEK_SET));
	f = fdopen(fd, "r+");
	R(fgetc(f));
	R(fileno(f) == fd);
	R(fclose(f));
	R(fcntl(fd, F_GETFD));
	fd = R(open("a", O_RDONLY));
	R(fdopen(fd, "w") == NULL);
	f = fdopen(fd, "r");
	f = freopen("lbf", "r", f);
	R(fgetc(f));
	R(fclose(f));
	f = tmpfile();
	R(fputs("tmp", f) >= 0);
	R(fclose(f));

	/* stdout onto a file and back: what waits in the buffer goes along. */
	fflush(stdout);
	int keep = dup(1);
	fd = open("out", O_CREAT | O_TRUNC | O_WRONLY, 0644);
	dup2(fd, 1);
	close(fd);
	printf("printf to out\n");
	puts("puts to out");
	fprintf(stdout, "stdout to out %d\n", fileno(stdout));
	fwrite("fw\n", 1, 3, stdout);
	fflush(stdout);
	write(1, "write to out\n", 13);
	printf("last");
	fflush(stdout);
	dup2(keep, 1);
	close(keep);
	printf("back\n");
	show("out");
	/* The table of mounts of glibc's tst-mntent-autofs: libc opened it by itself. */
	close(make("mtab", "/dev/one /mnt/one ext4 rw 0 1\n"));
	struct mntent *entry;
	R((f = setmntent("mtab", "r")) != NULL);
	R((entry = getmntent(f)) != NULL);
	printf("%s on %s\n", entry ? entry->mnt_fsname : "-", entry ? entry->mnt_dir : "-");
	R(endmntent(f));
	struct mntent more = {"/dev/two", "/mnt/two", "ext4", "ro", 0, 2};
	R((f = __setmntent("mtab", "a")) != NULL);
	R(addmntent(f, &more));
	R(endmntent(f));
	show("mtab");

	/* freopen of the standard streams. */
	fflush(stdout);
	keep = dup(1);
	R(freopen("re", "w", stdout) == stdout);
	printf("in re\n");
	fflush(stdout);
	dup2(keep, 1);
	close(keep);
	show("re");
	R(freopen("re", "r", stdin) != NULL);
	R(scanf("%3s", line));
	printf("%.3s\n", line);
	R(getchar() >= 0);
	fflush(stdout);
	keep = dup(2);
	fd = open("err", O_CREAT | O_TRUNC | O_WRONLY, 0644);
	dup2(fd, 2);
	close(fd);
	fprintf(stderr, "to err\n");
	errno = EIO;
	perror("perror");
	dup2(keep, 2);
	close(keep);
	show("err");
	/* Left to exit(): the stream is open and its buffer full of data. */
	f = fopen("atexit", "w");
	fprintf(f, "flushed by exit\n");
	return 0;
}
