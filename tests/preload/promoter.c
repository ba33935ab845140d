/* promoter COMMAND...: runs it, and opens each file below the current directory for writing, again
 * and again, until it ends: so a plain file that the command has open gets its container at any
 * moment. Hidden names are left alone, and so is what can be executed: exec would be ETXTBSY. The
 * exit status is the command's. */
#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Pause between two rounds. The machine has the command to run, too. */
enum { PAUSE_US = 300 };

static void open_all(int dir)
{
	DIR *entries = fdopendir(dir);
	struct stat st;
	for (struct dirent *e; entries && (e = readdir(entries));) {
		int is_dir = e->d_type == DT_DIR, fd;
		if (e->d_name[0] == '.' || (!is_dir && e->d_type != DT_REG))
			continue;
		if (!is_dir && (fstatat(dir, e->d_name, &st, 0) || st.st_mode & 0111))
			continue;
		fd = openat(dir, e->d_name,
			O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC |
				(is_dir ? O_RDONLY | O_DIRECTORY : O_RDWR));
		if (fd >= 0 && is_dir)
			open_all(fd);
		else if (fd >= 0)
			close(fd);
	}
	if (entries)
		closedir(entries);
}

int main(int argc, char **argv)
{
	pid_t command;
	int status;
	if (argc < 2 || posix_spawnp(&command, argv[1], NULL, NULL, argv + 1, environ))
		return 127;
	while (waitpid(command, &status, WNOHANG) == 0) {
		open_all(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		usleep(PAUSE_US);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
