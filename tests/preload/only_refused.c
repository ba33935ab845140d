/* A program that PLFS cannot serve is not started, by whatever call: a static one, and one that
 * gets rights from its file. Each is EPERM with a sentence, and touches nothing. */
#include "t.h"

#include <spawn.h>
#include <stdbool.h>
#include <sys/syscall.h>

extern char **environ;

/* The program in its directory, which is not managed. */
static char program[4096], dir[4096], said[4096];
static const char *name;

static void run(int how)
{
	char *args[] = {"program", "touched", NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid = -1;
	int fd = open(program, O_RDONLY | O_CLOEXEC), at = open(dir, O_RDONLY | O_DIRECTORY);
	char path[8192];
	snprintf(path, sizeof path, "PATH=%s:%s", dir, getenv("PATH"));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addchdir_np(&actions, dir);
	/* For what starts the program in a child. */
#define BECOMES(call) \
	do { \
		errno = 0; \
		call; \
		_exit(errno == EPERM ? 1 : 99); \
	} while (0)
#define SPAWNS(call) _exit((call) == EPERM ? 1 : 99)
	switch (how) {
	case 0:
		BECOMES(execl(program, "program", "touched", (char *)NULL));
	case 1:
		BECOMES(execle(program, "program", "touched", (char *)NULL, environ));
	case 2:
		putenv(path);
		BECOMES(execlp(name, "program", "touched", (char *)NULL));
	case 3:
		BECOMES(execv(program, args));
	case 4:
		BECOMES(execve(program, args, environ));
	case 5:
		putenv(path);
		BECOMES(execvp(name, args));
	case 6:
		putenv(path);
		BECOMES(execvpe(name, args, environ));
	case 7:
		BECOMES(execveat(at, name, args, environ, 0));
	case 8:
		BECOMES(execveat(fd, "", args, environ, AT_EMPTY_PATH));
	case 9:
		BECOMES(fexecve(fd, args, environ));
	case 10:
		BECOMES(syscall(SYS_execve, program, args, environ));
	case 11:
		BECOMES(syscall(SYS_execveat, at, name, args, environ, 0));
	case 12:
		SPAWNS(posix_spawn(&pid, program, NULL, NULL, args, environ));
	case 13:
		putenv(path);
		SPAWNS(posix_spawnp(&pid, name, NULL, NULL, args, environ));
	case 14:
		/* Where the child is, and this process is not. */
		SPAWNS(posix_spawn(&pid, name, &actions, NULL, args, environ));
	case 15:
		snprintf(path, sizeof path, "./%s", name);
		SPAWNS(posix_spawnp(&pid, path, &actions, NULL, args, environ));
	case 16:
		if (vfork() == 0)
			BECOMES(execv(program, args));
		_exit(1);
	case 17:
		/* A shell says 126. */
		snprintf(path, sizeof path, "%s touched", program);
		_exit(WEXITSTATUS(system(path)) == 126 ? 1 : 99);
	case 18:
		snprintf(path, sizeof path, "%s touched", program);
		_exit(WEXITSTATUS(pclose(popen(path, "r"))) == 126 ? 1 : 99);
	case 19:
		/* What starts it is a script. */
		BECOMES(execl("script", "script", (char *)NULL));
	case 20:
		/* And the last of as many as the kernel follows, none of which is PLFS's. */
		snprintf(path, sizeof path, "%s/4", dir);
		BECOMES(execl(path, "script", (char *)NULL));
	}
}

#define FORMS 21

static void refused(const char *why)
{
	FILE *script = fopen("script", "w");
	fprintf(script, "#!%s\n", program);
	fclose(script);
	chmod("script", 0755);
	for (int i = 0; i < 5; i++) {
		char path[8192];
		snprintf(path, sizeof path, "%s/%d", dir, i);
		script = fopen(path, "w");
		fprintf(script, i ? "#!%s/%d\n" : "#!%s/program\n", dir, i - 1);
		fclose(script);
		chmod(path, 0755);
	}
	for (int how = 0; how < FORMS; how++) {
		char words[4096] = "";
		int to = open(said, O_RDWR | O_CREAT | O_TRUNC, 0600);
		pid_t pid = fork();
		if (pid == 0) {
			dup2(to, 2);
			run(how);
			_exit(98);
		}
		int status = reap(pid);
		pread(to, words, sizeof words - 1, 0);
		close(to);
		if (status != 1 || !strstr(words, why) || !strstr(words, "PLFS_CHILDREN=any") ||
			access("touched", F_OK) == 0) {
			printf("form %d of what %s: status %d, said: %s\n", how, why, status,
				words);
			wrong = 1;
		}
	}
}

/* A program was started by who goes by another effective user or group, and found superblocks,
 * which it wrote over: the dynamic linker loads nothing else for who has other rights than his own.
 */
static void started_by_another(bool group)
{
	char *args[] = {"false", NULL};
	pid_t pid = fork();
	if (pid == 0) {
		wrong = 0;
		WANT((group ? setegid(1) : seteuid(1)) == 0);
		WANT(execv("/bin/false", args) < 0 && errno == EPERM);
		WANT(posix_spawn(&pid, "/bin/false", NULL, NULL, args, environ) == EPERM);
		WANT(posix_spawnp(&pid, "false", NULL, NULL, args, environ) == EPERM);
		WANT(system("true") == 127 << 8);
		WANT(popen("true", "r") == NULL && errno == EPERM);
		WANT((group ? setegid(0) : seteuid(0)) == 0);
		WANT(system("true") == 0);
		fflush(stdout);
		_exit(wrong);
	}
	WANT(reap(pid) == 0);
}

int main(void)
{
	char command[20000];
	snprintf(dir, sizeof dir, "%s/refused.%d", getenv("T_BIN"), getpid());
	mkdir(dir, 0755);
	snprintf(said, sizeof said, "%s/said", dir);
	name = "program";
	snprintf(program, sizeof program, "%s/%s", dir, name);
	snprintf(command, sizeof command,
		"printf '#include <fcntl.h>\\nint main(int n, char **v) { return creat(v[n - 1], "
		"0600) < 0; }\\n' > %s.c && gcc -static -o %s %s.c",
		program, program, program);
	if (system(command) == 0)
		refused("is a static program");
	else
		printf("no static libc\n");
	/* Root's own would be served, so it is somebody else's. */
	if (getuid() == 0) {
		snprintf(command, sizeof command,
			"rm %s && gcc -o %s %s.c && chown 1:1 %s && chmod 4755 %s", program,
			program, program, program, program);
		WANT(system(command) == 0);
		refused("gets rights from its file");
		snprintf(
			command, sizeof command, "chown 0:1 %s && chmod 2755 %s", program, program);
		WANT(system(command) == 0);
		refused("gets rights from its file");
		/* Who may run it need not be one who may read it. */
		snprintf(
			command, sizeof command, "chown 2:2 %s && chmod 4711 %s", program, program);
		WANT(system(command) == 0);
		pid_t pid = fork();
		if (pid == 0) {
			char *args[] = {"program", "/no/such/touched", NULL};
			_exit(setgid(1) || setuid(1) || execv(program, args) == 0 ||
				errno != EPERM);
		}
		WANT(reap(pid) == 0);
		/* What he may not run is not PLFS's to refuse: a search of PATH goes on. */
		WANT(chmod(program, 04744) == 0);
		pid = fork();
		if (pid == 0)
			_exit(setgid(1) || setuid(1) || execl(program, name, NULL) == 0 ||
				errno != EACCES);
		WANT(reap(pid) == 0);
		started_by_another(false);
		started_by_another(true);
		/* What the kernel gives no rights is served. */
		snprintf(command, sizeof command, "chown 0:0 %s && chmod 4755 %s && %s touched",
			program, program, program);
		WANT(system(command) == 0);
		WANT(access("touched", F_OK) == 0);
	}
	return wrong;
}
