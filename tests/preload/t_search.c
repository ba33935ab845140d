/* What execvp and its kin, and posix_spawnp, find along PATH: which errors end the search of libc,
 * which do not, and what is told in the end. An empty element, scripts whose interpreter cannot be
 * started and files that may not be executed gave other errors, or other programs, in managed
 * directories. The same programs lie in one outside, too: those of both may come in one PATH. */
#include "t.h"

#include <spawn.h>
#include <stdbool.h>

extern char **environ;

static char outside[3000], here[3000], long_name[301], longer[8000];

/* `with`: the first lines of a script, which tells what it is after them. */
static void tool(const char *dir, const char *name, mode_t mode, const char *with)
{
	char path[4096], text[4096];
	mkdir(dir, 0755);
	snprintf(path, sizeof path, "%s/%s", dir, name);
	snprintf(text, sizeof text, "%secho ran %s, $# $1\n", with, dir);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	write(fd, text, strlen(text));
	close(fd);
	chmod(path, mode);
}

static void leads(const char *to, const char *dir)
{
	char path[4096];
	mkdir(dir, 0755);
	snprintf(path, sizeof path, "%s/tool", dir);
	symlink(to, path);
}

/* In each of these directories `tool` is one that libc goes past, or ends at, or starts. */
static const char *const kinds[] = {"none", "no.directory", "good/tool", "directory", "closed",
	"bare", "empty", "by_missing", "by_directory", "by_closed", "by_loop", "by_file", "by_none",
	"by_itself", "by_bare", "by_five", "by_six", "dangling", "loop", "link", "program",
	"no_program", "by_other", "unreadable"};

static void make_all(void)
{
	char first[4096];
	tool("good", "tool", 0755, "#!/bin/sh\n");
	mkdir("none", 0755);
	mkdir("directory", 0755);
	mkdir("directory/tool", 0755);
	tool("closed", "tool", 0644, "#!/bin/sh\n");
	tool("bare", "tool", 0755, "");
	tool("empty", "tool", 0755, "");
	truncate("empty/tool", 0);
	tool("by_missing", "tool", 0755, "#!/no/such/interpreter\n");
	tool("by_directory", "tool", 0755, "#!./good\n");
	tool("by_closed", "tool", 0755, "#!closed/tool\n");
	tool("by_loop", "tool", 0755, "#!loop/tool\n");
	tool("by_file", "tool", 0755, "#!good/tool/sh\n");
	tool("by_none", "tool", 0755, "#!\n");
	tool("by_itself", "tool", 0755, "#!by_itself/tool\n");
	tool("by_bare", "tool", 0755, "#!bare/tool\n");
	tool("scripts", "0", 0755, "#!/bin/sh\n");
	for (int i = 1; i < 6; i++) {
		char name[2] = {(char)('0' + i), 0};
		snprintf(first, sizeof first, "#!scripts/%d\n", i - 1);
		tool("scripts", name, 0755, first);
	}
	tool("by_five", "tool", 0755, "#!scripts/3\n");
	tool("by_six", "tool", 0755, "#!scripts/4\n");
	leads("nowhere", "dangling");
	leads("tool", "loop");
	leads("../good/tool", "link");
	mkdir("program", 0755);
	system("cp /bin/echo program/tool; chmod 755 program/tool");
	tool("no_program", "tool", 0755, "\177ELF nothing\n");
	/* The interpreter lies in the other of the two. */
	getcwd(first, sizeof first);
	char line[4096];
	snprintf(line, sizeof line, "#!%s/program/tool\n", strcmp(first, here) ? here : outside);
	tool("by_other", "tool", 0755, line);
	tool("unreadable", "tool", 0111, "#!/bin/sh\n");
	tool(".", "here", 0755, "#!/bin/sh\n");
}

enum { EXECVP, SPAWNP, EXECLP, EXECVPE, VFORK, MOVED, MADE, HOWS };
static const char *const hows[] = {
	"execvp", "posix_spawnp", "execlp", "execvpe", "vfork", "moved", "made"};

/* Starts it in one of the ways, which prints something, and says what became of it. */
static void start(int how, const char *name)
{
	char *words[] = {(char *)name, "given", NULL};
	pid_t pid = -1;
	int rc = 0;
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	if (how == MOVED) {
		posix_spawn_file_actions_addchdir_np(&actions, "none");
		posix_spawn_file_actions_addchdir_np(&actions, "..");
	}
	if (how == MADE)
		posix_spawn_file_actions_addopen(&actions, 40, "made", O_WRONLY | O_CREAT, 0600);
	if (how == SPAWNP || how == MOVED || how == MADE) {
		rc = posix_spawnp(&pid, name, &actions, NULL, words, environ);
	} else if ((pid = how == VFORK ? vfork() : fork()) == 0) {
		errno = 0;
		if (how == EXECLP)
			execlp(name, name, "given", NULL);
		else if (how == EXECVPE)
			execvpe(name, words, environ);
		else
			execvp(name, words);
		_exit(errno ? errno : 99);
	}
	int status = rc == 0 ? reap(pid) : rc;
	printf("  %s: %s%d %s\n", hows[how], rc ? "error " : "", status,
		status ? strerrorname_np(status) : "");
	if (how == MADE)
		R(unlink("made"));
	posix_spawn_file_actions_destroy(&actions);
}

/* The directories are put into the output without what differs from run to run. */
static void find(const char *name, const char *given, int most)
{
	if (given)
		setenv("PATH", given, 1);
	else
		unsetenv("PATH");
	const char *label = given ? given : "no PATH";
	for (const char *at = label; *at && at < label + 100; at++) {
		size_t n = strlen(outside), m = strlen(here);
		bool is_out = strncmp(at, outside, n) == 0, is_here = strncmp(at, here, m) == 0;
		printf(is_out ? "OUT" : is_here ? "HERE" : "%c", *at);
		at += is_out ? n - 1 : is_here ? m - 1 : 0;
	}
	printf(" %.30s\n", name);
	for (int how = 0; how < most; how++)
		start(how, name);
}

static void along(const char *format, const char *kind, int most)
{
	char dirs[8000];
	snprintf(dirs, sizeof dirs, format, kind, outside);
	find("tool", dirs, most);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	setenv("PATH", "/bin:/usr/bin", 1);
	getcwd(here, sizeof here);
	snprintf(outside, sizeof outside, "%s/t_search.d", getenv("T_BIN"));
	make_all();
	mkdir(outside, 0755);
	chdir(outside);
	make_all();
	chdir(here);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		along("%s", kinds[i], HOWS);
		along("%s:good", kinds[i], HOWS);
		along("%s:none", kinds[i], SPAWNP + 1);
		along("%1$s:%2$s/%1$s:%2$s/good", kinds[i], SPAWNP + 1);
		along("%2$s/%1$s:%1$s:good", kinds[i], SPAWNP + 1);
		along("closed:%1$s:dangling", kinds[i], SPAWNP + 1);
	}
	/* Empty elements, and others by which the directory is found. */
	static const char *const dirs[] = {
		"", ":none", "none:", "none::good", ".", "..:.", "good/..", "none", NULL};
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
		find("here", dirs[i], HOWS);
	/* By links from elsewhere no name of a pack is found, nor of a flat directory. */
	const char *workload = getenv("T_WORKLOAD");
	dup2(open(".", O_RDONLY), 50);
	for (int i = 0; i < 2 && (!workload || strstr("shared auto", workload)); i++)
		find("here", i ? "/dev/fd/50" : "/proc/self/cwd", HOWS);
	setenv("PATH", "/bin", 1);
	chdir("good");
	find("tool", "", HOWS);
	find("tool", ":/bin", HOWS);
	chdir("../closed");
	find("tool", ":../good", HOWS);
	chdir("..");
	snprintf(longer, sizeof longer, "%s/closed:%s/directory:%s/good", here, here, here);
	find("tool", longer, HOWS);
	/* Names. */
	find("true", NULL, HOWS);
	find("", "good", HOWS);
	static const char *const names[] = {"good/tool", "./here", "closed/tool", "bare/tool",
		"good/tool/", "none/", "none/tool", "good/tool/tool", "by_missing/tool",
		"by_directory/tool", "by_closed/tool", "by_loop/tool", "by_itself/tool",
		"by_five/tool", "by_six/tool", "by_bare/tool", "directory/tool", "loop/tool", "..",
		".", "/"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		find(names[i], "good:/bin", HOWS);
	memset(long_name, 'n', 300);
	find(long_name, "none:good", HOWS);
	find(long_name, "no.directory", HOWS);
	long_name[255] = 0;
	find(long_name, "none:good", HOWS);
	/* Elements that are too long end the search, but for those of PATH_MAX, which libc skips.
	 */
	static const int lengths[] = {300, 4090, 4091, 4095, 4096, 4102};
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		for (int at = 0; at < lengths[i]; at++)
			longer[at] = lengths[i] == 300 ? 'n' : "./"[at % 2];
		strcpy(longer + lengths[i], ":good");
		printf("%d: ", lengths[i]);
		find("tool", longer, SPAWNP + 1);
	}
	char command[4096];
	setenv("PATH", "/bin:/usr/bin", 1);
	snprintf(command, sizeof command, "rm -r %s", outside);
	R(system(command));
	return 0;
}
