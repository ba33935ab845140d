/* race DIR N NAME: makes DIR/file.I for each I below N, exclusively, with the text NAME, and
 * DIR/NAME.I; prints the names of those that it made first. NAME `create`, `stat` or `read`: makes,
 * asks for or reads the files create.I alone, for who counts calls. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int make(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (fd < 0)
		return -1;
	char line[64];
	int n = snprintf(line, sizeof line, "%s\n", text);
	if (write(fd, line, (size_t)n) != n || close(fd) < 0)
		die(path);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const char *dir = argv[1], *name = argv[3];
	int n = atoi(argv[2]);
	char path[4096], line[64];
	struct stat st;
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/create.%d", dir, i);
		if (!strcmp(name, "create")) {
			unlink(n < 1000 ? path : "");
			if (make(path, name) < 0 && n < 1000)
				die(path);
		} else if (!strcmp(name, "stat")) {
			if (stat(path, &st) < 0)
				die(path);
		} else if (!strcmp(name, "read")) {
			int fd = open(path, O_RDONLY);
			if (fd < 0 || read(fd, line, sizeof line) != 7 || close(fd) < 0)
				die(path);
		} else {
			snprintf(path, sizeof path, "%s/%s.%d", dir, name, i);
			if (make(path, name) < 0)
				die(path);
			snprintf(path, sizeof path, "%s/file.%d", dir, i);
			if (make(path, name) == 0) {
				printf("file.%d\n", i);
				fflush(stdout);
			}
		}
	}
	return 0;
}
