/* The server over plfs.h. */
#include "server.h"
#include <plfs.h>

static plfs_file *files[FILES];
static unsigned char buf[BYTES];

static plfs_file *file_of(char **words)
{
	return files[handle(words[0])];
}

static int64_t do_open(char **w)
{
	return plfs_open(w[1], flags_of(w[2]), w[3] ? (mode_t)strtol(w[3], NULL, 8) : 0666,
		&files[handle(w[0])]);
}

static int64_t do_close(char **w)
{
	return plfs_close(file_of(w));
}

static int64_t do_pwrite(char **w)
{
	return plfs_pwrite(file_of(w), buf, bytes_of(w[2], buf), number(w[1]));
}

static int64_t do_append(char **w)
{
	return plfs_write(file_of(w), buf, bytes_of(w[1], buf));
}

static int64_t do_pread(char **w)
{
	int64_t n = plfs_pread(file_of(w), buf, (size_t)number(w[2]), number(w[1]));
	say_bytes(buf, n);
	return n;
}

static int64_t do_sync(char **w)
{
	return plfs_sync(file_of(w));
}

static int64_t do_commit(char **w)
{
	return plfs_commit(file_of(w));
}

static int64_t do_commit_all(char **w)
{
	(void)w;
	return plfs_commit_all();
}

static int64_t do_refresh(char **w)
{
	return plfs_refresh(file_of(w));
}

static int64_t do_ftruncate(char **w)
{
	return plfs_ftruncate(file_of(w), number(w[1]));
}

static int64_t do_truncate(char **w)
{
	return plfs_truncate(w[0], number(w[1]));
}

static int64_t do_size(char **w)
{
	struct stat st;
	int rc = plfs_fstat(file_of(w), &st);
	return rc < 0 ? rc : st.st_size;
}

static int64_t do_fstat(char **w)
{
	struct stat st;
	int rc = plfs_fstat(file_of(w), &st);
	if (rc == 0)
		say_stat(&st);
	return rc;
}

static int64_t do_stat(char **w)
{
	struct stat st;
	int rc = plfs_stat(w[0], &st);
	if (rc == 0)
		say_stat(&st);
	return rc;
}

static int64_t do_rename(char **w)
{
	return plfs_rename(w[0], w[1]);
}

static int64_t do_link(char **w)
{
	return plfs_link(w[0], w[1]);
}

static int64_t do_unlink(char **w)
{
	return plfs_unlink(w[0]);
}

static int64_t do_mkdir(char **w)
{
	return plfs_mkdir(w[0], 0777);
}

static int64_t do_flat(char **w)
{
	return plfs_make_flat(w[0]);
}

static int64_t do_rmdir(char **w)
{
	return plfs_rmdir(w[0]);
}

static int64_t do_list(char **w)
{
	plfs_dir *dir;
	int rc = plfs_opendir(w[0], &dir);
	if (rc < 0)
		return rc;
	for (const char *name; (name = plfs_readdir(dir));)
		strcat(strcat(said, name), " ");
	return plfs_closedir(dir);
}

static int64_t do_chmod(char **w)
{
	return plfs_chmod(w[0], (mode_t)strtol(w[1], NULL, 8));
}

static int64_t do_chown(char **w)
{
	return plfs_chown(w[0], (uid_t)number(w[1]), (gid_t)number(w[2]));
}

static int64_t do_utimens(char **w)
{
	struct timespec times[2];
	times_of(w[1], times);
	return plfs_utimens(w[0], times);
}

static int64_t do_futimens(char **w)
{
	struct timespec times[2];
	times_of(w[1], times);
	return plfs_futimens(file_of(w), times);
}

/* The lock is the system's, and the library does not hear of it: to commit before an unlock and to
 * look after a lock is the program's part. */
static int64_t set_lock(char **w, int how, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
	int fd = plfs_lock_fd(file_of(w));
	int rc = fd < 0 ? fd : type == F_UNLCK ? plfs_commit(file_of(w)) : 0;
	if (rc == 0 && fcntl(fd, how, &lock) < 0)
		rc = -errno;
	return rc < 0 || type == F_UNLCK ? rc : plfs_refresh(file_of(w));
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

static int64_t do_exit(char **w)
{
	(void)w;
	exit(0);
}

static const struct command commands[] = {
	{"open", do_open},
	{"close", do_close},
	{"pwrite", do_pwrite},
	{"append", do_append},
	{"pread", do_pread},
	{"sync", do_sync},
	{"commit", do_commit},
	{"commit_all", do_commit_all},
	{"refresh", do_refresh},
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
	{"flat", do_flat},
	{"list", do_list},
	{"chmod", do_chmod},
	{"chown", do_chown},
	{"utimens", do_utimens},
	{"futimens", do_futimens},
	{"lock", do_lock},
	{"trylock", do_trylock},
	{"unlock", do_unlock},
	{"exit", do_exit},
	{NULL, NULL},
};

int main(void)
{
	return serve(commands, say_errno);
}
