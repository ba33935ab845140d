/* A program that empties its environment before its first file, as daemons do: the settings that it
 * was started with hold. They were read then, and a file under PLFS_WORKLOAD=shared became a plain
 * one, which only its first writer can write at once. Prints nothing but what is wrong. */
#include "t.h"

#include <sys/wait.h>

/* What the kernel says that the file's length is. */
static int is_container(const char *name)
{
	char command[100], text[32] = "-1";
	sprintf(command, "env -u LD_PRELOAD stat -c %%s %s", name);
	FILE *said = popen(command, "r");
	fgets(text, sizeof text, said);
	pclose(said);
	return atol(text) == 4093;
}

int main(int argc, char **argv)
{
	if (argc == 1) {
		int status;
		setenv("PLFS_WORKLOAD", "shared", 1);
		for (int way = 1; way <= 3; way++) {
			char name[] = {(char)('0' + way), 0};
			if (fork() == 0) {
				execl(argv[0], argv[0], name, NULL);
				_exit(127);
			}
			wait(&status);
			WANT(status == 0);
		}
		return wrong;
	}
	switch (*argv[1]) {
	case '1':
		clearenv();
		break;
	case '2':
		environ = NULL;
		break;
	/* Over where it was, as for a title in ps. */
	case '3':
		for (char **word = environ; *word; word++)
			memset(*word, 'x', strlen(*word));
		clearenv();
	}
	close(make(argv[1], "text"));
	setenv("PATH", "/usr/bin:/bin", 1);
	WANT(is_container(argv[1]));
	return wrong;
}
