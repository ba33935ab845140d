/* The server over the calls of POSIX: alone it is the reference, under `plfs run` the preload door,
 * in a mount the FUSE door. */
#include "server.h"
#include <dirent.h>
#include <sys/mman.h>

static char *program;
static int fds[FILES];
static unsigned char buf[BYTES];

static int64_t or_errno(int64_t value)
{
	return value < 0 ? -errno : value;
}

static int fd_of(char **words)
{
	return fds[handle(words[0])];
}

static int64_t do_open(char **w)
{
	return or_errno(fds[handle(w[0])] = open(w[1], flags_of(w[2]),
				w[3] ? (mode_t)strtol(w[3], NULL, 8) : 0666)) < 0
		       ? -errno
		       : 0;
}

static int64_t do_close(char **w)
{
	return or_errno(close(fd_of(w)));
}

static int64_t do_pwrite(char **w)
{
	return or_errno(pwrite(fd_of(w), buf, bytes_of(w[2], buf), number(w[1])));
}

static int64_t do_append(char **w)
{
	return or_errno(write(fd_of(w), buf, bytes_of(w[1], buf)));
}

static int64_t do_pread(char **w)
{
	int64_t n = or_errno(pread(fd_of(w), buf, (size_t)number(w[2]), number(w[1])));
	say_bytes(buf, n);
	return n;
}

static int64_t do_sync(char **w)
{
	return or_errno(fsync(fd_of(w)));
}

static int64_t do_datasync(char **w)
{
	return or_errno(fdatasync(fd_of(w)));
}

static int64_t do_ftruncate(char **w)
{
	return or_errno(ftruncate(fd_of(w), number(w[1])));
}

static int64_t do_truncate(char **w)
{
	return or_errno(truncate(w[0], number(w[1])));
}

static int64_t do_size(char **w)
{
	struct stat st;
	return fstat(fd_of(w), &st) < 0 ? -errno : st.st_size;
}

static int64_t do_fstat(char **w)
{
	struct stat st;
	if (fstat(fd_of(w), &st) < 0)
		return -errno;
	say_stat(&st);
	return 0;
}

static int64_t do_stat(char **w)
{
	struct stat st;
	if (stat(w[0], &st) < 0)
		return -errno;
	say_stat(&st);
	return 0;
}

static int64_t do_rename(char **w)
{
	return or_errno(rename(w[0], w[1]));
}

static int64_t do_link(char **w)
{
	return or_errno(link(w[0], w[1]));
}

static int64_t do_unlink(char **w)
{
	return or_errno(unlink(w[0]));
}

static int64_t do_mkdir(char **w)
{
	return or_errno(mkdir(w[0], 0777));
}

static int64_t do_rmdir(char **w)
{
	return or_errno(rmdir(w[0]));
}

static int64_t do_list(char **w)
{
	DIR *dir = opendir(w[0]);
	if (!dir)
		return -errno;
	for (struct dirent *entry; (entry = readdir(dir));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			strcat(strcat(said, entry->d_name), " ");
	return or_errno(closedir(dir));
}

static int64_t do_chmod(char **w)
{
	return or_errno(chmod(w[0], (mode_t)strtol(w[1], NULL, 8)));
}

static int64_t do_chown(char **w)
{
	return or_errno(chown(w[0], (uid_t)number(w[1]), (gid_t)number(w[2])));
}

static int64_t do_utimens(char **w)
{
	struct timespec times[2];
	times_of(w[1], times);
	return or_errno(utimensat(AT_FDCWD, w[0], times, 0));
}

static int64_t do_futimens(char **w)
{
	struct timespec times[2];
	times_of(w[1], times);
	return or_errno(futimens(fd_of(w), times));
}

static int64_t set_lock(char **w, int how, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
	return or_errno(fcntl(fd_of(w), how, &lock));
}

static int64_t do_lock(char **w)
{
	return set_lock(w, F_SETLKW, F_WRLCK);
}

static int64_t do_trylock(char **w)
{
	return set_lock(w, F_SETLK, F_WRLCK);
}

static int64_t do_unlock(char **w)
{
	return set_lock(w, F_SETLK, F_UNLCK);
}

/* Stores bytes through a shared map. */
static int64_t do_store(char **w)
{
	size_t n = bytes_of(w[2], buf), at = (size_t)number(w[1]);
	char *map = mmap(NULL, at + n, PROT_READ | PROT_WRITE, MAP_SHARED, fd_of(w), 0);
	if (map == MAP_FAILED)
		return -errno;
	memcpy(map + at, buf, n);
	int64_t done = or_errno(msync(map, at + n, MS_SYNC));
	munmap(map, at + n);
	return done;
}

static int64_t do_exit(char **w)
{
	(void)w;
	exit(0);
}

/* Becomes another program; the descriptors stay open. `take` names one again. */
static int64_t do_exec(char **w)
{
	(void)w;
	execl(program, program, "again", NULL);
	return -errno;
}

static int64_t do_descriptor(char **w)
{
	return fd_of(w);
}

static int64_t do_take(char **w)
{
	fds[handle(w[0])] = (int)number(w[1]);
	return 0;
}

static const struct command commands[] = {
	{"open", do_open},
	{"close", do_close},
	{"pwrite", do_pwrite},
	{"append", do_append},
	{"pread", do_pread},
	{"sync", do_sync},
	{"datasync", do_datasync},
	{"ftruncate", do_ftruncate},
	{"truncate", do_truncate},
	{"size", do_size},
	{"fstat", do_fstat},
	{"stat", do_stat},
	{"rename", do_rename},
	{"link", do_link},
	{"unlink", do_unlink},
	{"mkdir", do_mkdir},
	{"rmdir", do_rmdir},
	{"list", do_list},
	{"chmod", do_chmod},
	{"chown", do_chown},
	{"utimens", do_utimens},
	{"futimens", do_futimens},
	{"lock", do_lock},
	{"trylock", do_trylock},
	{"unlock", do_unlock},
	{"store", do_store},
	{"exit", do_exit},
	{"exec", do_exec},
	{"descriptor", do_descriptor},
	{"take", do_take},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	program = argv[0];
	memset(fds, -1, sizeof fds);
	if (argc > 1) {
		/* The answer to `exec`. */
		puts("ok 0");
		fflush(stdout);
	}
	return serve(commands, say_errno);
}
