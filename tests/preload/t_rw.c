/* Positions, vectors, holes, sizes, copies. */
#include "t.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>

/* Of a vector with a bad piece the kernel moves what is before that; it was EFAULT, and nothing. */
static void bad_pieces(void)
{
	char two[2], other[2];
	int fd = make("vector", "0123456789");
	struct iovec iov[] = {{two, 2}, {(void *)1, 3}, {other, 2}};
	R(readv(fd, iov, 3));
	R(lseek(fd, 0, SEEK_CUR));
	printf("%.2s\n", two);
	R(preadv(fd, iov, 3, 4));
	printf("%.2s\n", two);
	R(pwritev(fd, iov, 3, 0));
	R(writev(fd, iov, 3));
	R(lseek(fd, 0, SEEK_CUR));
	R(writev(fd, iov + 1, 2));
	iov[0].iov_len = 0;
	R(readv(fd, iov, 3));
	close(fd);
	show("vector");
}

/* Where there is nothing to read no buffer is looked at: a bad one was EFAULT there, too. */
static void bad_buffers(void)
{
	char two[2];
	int fd = make("vector", "0123456789");
	struct iovec iov[] = {{NULL, 3}, {two, 2}};
	R(pread(fd, NULL, 3, 9));
	R(pread(fd, NULL, 3, 10));
	R(pread(fd, NULL, 3000000, 10));
	R(preadv(fd, iov, 2, 10));
	R(lseek(fd, 10, SEEK_SET));
	R(read(fd, NULL, 3));
	R(readv(fd, iov, 2));
	R(lseek(fd, 4, SEEK_SET));
	R(readv(fd, iov, 2));
	R(lseek(fd, 0, SEEK_CUR));
	close(fd);
}

/* Which of several errors there are: that of the check that the kernel makes first. */
static void which_error(void)
{
	int fd = make("vector", "0123456789"), reads = open("vector", O_RDONLY),
	    writes = open("vector", O_WRONLY), path = open("vector", O_PATH),
	    dir = open(".", O_RDONLY);
	off_t before = -1, at = 0, *bad = (off_t *)1;
	char *kernels = (char *)-4096, two[2];
	struct iovec one = {kernels, 0}, iov[] = {{two, 2}, {kernels, 2}};
	/* The kernel's memory is looked for where there is nothing to be moved. */
	R(pread(fd, kernels, 0, 0));
	R(pread(fd, kernels, 5, 100));
	R(pread(fd, kernels, 5, -1));
	R(read(writes, kernels, 0));
	R(lseek(fd, 0, SEEK_END));
	R(read(fd, kernels, 5));
	R(write(fd, kernels, 0));
	R(pwrite(fd, kernels, 0, 3));
	R(write(reads, kernels, 0));
	R(readv(fd, &one, 1));
	R(writev(fd, &one, 1));
	R(pwritev(fd, iov, 2, 0));
	R(preadv(fd, iov, 2, 100));
	R(pread(fd, two, (size_t)-1, 0));
	R(pread(fd, two, INT64_MAX, 100));
	R(write(fd, two, INT64_MAX));
	int pipes[2];
	pipe(pipes);
	R(sendfile(fd, -1, bad, 5));
	R(sendfile(-1, fd, &before, 5));
	R(sendfile(reads, fd, &before, 5));
	R(sendfile(fd, writes, &before, 5));
	R(sendfile(fd, path, &before, 5));
	R(sendfile(path, fd, &before, 5));
	R(sendfile(reads, fd, &at, (size_t)-1));
	R(sendfile(fd, pipes[0], &before, 5));
	R(sendfile(reads, pipes[0], &at, 5));
	R(fcntl(fd, F_SETFL, O_APPEND));
	R(sendfile(fd, pipes[0], &at, 5));
	R(sendfile(fd, reads, &before, 5));
	R(sendfile(fd, reads, &at, 0));
	R(fcntl(fd, F_SETFL, 0));
	R(sendfile(fd, reads, &at, 0));
	R(copy_file_range(-1, bad, fd, NULL, 5, 1));
	R(copy_file_range(fd, bad, path, NULL, 5, 1));
	R(copy_file_range(path, NULL, dir, NULL, 5, 0));
	R(copy_file_range(fd, bad, dir, NULL, 5, 1));
	R(copy_file_range(dir, NULL, fd, NULL, 5, 1));
	R(copy_file_range(dir, NULL, reads, NULL, 5, 0));
	R(copy_file_range(writes, &before, fd, NULL, 5, 0));
	R(copy_file_range(fd, &before, fd, NULL, 0, 0));
	R(copy_file_range(fd, &before, reads, NULL, 5, 0));
	R(fallocate(reads, 0x4000, 0, 10));
	R(fallocate(reads, FALLOC_FL_PUNCH_HOLE, 0, 10));
	R(fallocate(reads, 0x4000, -1, 10));
	R(fallocate(reads, FALLOC_FL_COLLAPSE_RANGE, 0, 10));
	R(fallocate(fd, 0x4000, INT64_MAX, 10));
	R(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, INT64_MAX, 10));
	close(pipes[0]);
	close(pipes[1]);
	close(dir);
	close(path);
	close(writes);
	close(reads);
	close(fd);
	show("vector");
}

int main(void)
{
	char c[64];
	struct stat st;
	int fd = make("f", "");
	R(write(fd, "0123456789", 10));
	R(lseek(fd, 0, SEEK_CUR));
	R(lseek(fd, -3, SEEK_END));
	R(read(fd, c, 10));
	R(read(fd, c, 10));
	R(lseek(fd, 0, SEEK_CUR));
	R(lseek(fd, -1, SEEK_SET));
	R(lseek(fd, -100, SEEK_CUR));
	R(lseek(fd, 0, 99));
	R(lseek(fd, 20, SEEK_SET));
	R(read(fd, c, 1));
	R(write(fd, "tail", 4));
	R(fstat(fd, &st) ? -1 : (long)st.st_size);
	memset(c, 'z', sizeof c);
	R(pread(fd, c, sizeof c, 8));
	R(c[0] == '8' && c[1] == '9' && c[2] == 0 && c[11] == 0 && c[12] == 't' && c[16] == 'z');
	R(pread(fd, c, 4, -1));
	R(pwrite(fd, c, 4, -1));
	R(pread(fd, c, 0, 5));
	R(pwrite(fd, c, 0, 500));
	R(write(fd, c, 0));
	R(lseek(fd, 0, SEEK_CUR));
	struct iovec v[3] = {{"ab", 2}, {"", 0}, {"cdef", 4}}, w[2] = {{c, 3}, {c + 10, 5}};
	R(pwritev(fd, v, 3, 30));
	R(preadv(fd, w, 2, 29));
	R(c[0] == 0 && c[1] == 'a' && memcmp(c + 10, "cdef", 4) == 0);
	R(lseek(fd, 0, SEEK_SET));
	R(writev(fd, v, 3));
	R(readv(fd, w, 2));
	R(lseek(fd, 0, SEEK_CUR));
	R(readv(fd, w, -1));
	R(preadv2(fd, w, 2, -1, 0));
	R(lseek(fd, 0, SEEK_CUR));
	R(pwritev2(fd, v, 3, 0, RWF_DSYNC));
	R(pwritev2(fd, v, 1, 0, RWF_APPEND));
	R(pwritev2(fd, v, 1, -1, 0));
	R(lseek(fd, 0, SEEK_CUR));
	R(pwritev2(fd, v, 1, 0, 1 << 20));
	R(fsync(fd));
	R(fdatasync(fd));
	show("f");
	R(ftruncate(fd, 5));
	R(ftruncate(fd, 9));
	show("f");
	R(ftruncate(fd, -1));
	R(truncate("f", 3));
	R(truncate("missing", 3));
	R(lseek(fd, 0, SEEK_END));
	R(posix_fallocate(fd, 0, 100));
	R(fstat(fd, &st) ? -1 : (long)st.st_size);
	R(posix_fallocate(fd, 0, 0));
	R(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
	R(ftruncate(fd, 10));
	int left = -1;
	R(lseek(fd, 4, SEEK_SET));
	R(ioctl(fd, FIONREAD, &left));
	R(left);
	R(isatty(fd));

	/* dup'ed descriptors share the position and the flags. */
	int two = dup(fd);
	R(lseek(two, 2, SEEK_SET));
	R(lseek(fd, 0, SEEK_CUR));
	R(fcntl(two, F_SETFL, O_APPEND));
	R(fcntl(fd, F_GETFL) & O_APPEND);
	R(write(fd, "app", 3));
	R(lseek(two, 0, SEEK_CUR));
	close(two);
	show("f");

	struct pollfd p = {fd, POLLIN | POLLOUT, 0};
	R(poll(&p, 1, 0));
	R(p.revents);
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	R(select(fd + 1, &set, NULL, NULL, NULL));
	close(fd);

	/* Copies between two files and a pipe. */
	char *big = malloc(1 << 20);
	for (int i = 0; i < 1 << 20; i++)
		big[i] = (char)(i * 7 + i / 1000);
	int in = make("in", ""), out = make("out", "");
	R(write(in, big, 1 << 20));
	off_t at = 100, to = 50;
	R(copy_file_range(in, &at, out, &to, 5000, 0));
	R(at);
	R(to);
	R(lseek(in, 1000, SEEK_SET));
	R(sendfile(out, in, NULL, 3000));
	R(lseek(in, 0, SEEK_CUR));
	R(lseek(out, 0, SEEK_CUR));
	R(fallocate(in, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 131072));
	R(lseek(in, 0, SEEK_HOLE));
	R(lseek(in, 65536, SEEK_DATA));
	R(pread(in, c, 4, 65534));
	R(c[0] == big[65534] && c[1] == big[65535] && c[2] == 0 && c[3] == 0);
	R(fallocate(in, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1 << 20, 4096));
	R(fstat(in, &st) ? -1 : (long)st.st_size);
	int pipes[2];
	R(pipe(pipes));
	at = 0;
	R(sendfile(pipes[1], in, &at, 4000));
	R(at);
	R(read(pipes[0], c, 10));
	R(memcmp(c, big, 10));
	close(pipes[0]);
	close(pipes[1]);
	char beside[4200];
	sprintf(beside, "%s/../t_rw.plain", getenv("T_MANAGED"));
	int plain = open(beside, O_CREAT | O_TRUNC | O_RDWR, 0600);
	at = 0;
	R(copy_file_range(in, &at, plain, NULL, 10000, 0));
	R(pread(plain, big, 10000, 0));
	R(big[9999] == (char)(9999 * 7 + 9));
	R(ftruncate(out, 0));
	R(lseek(out, 0, SEEK_SET));
	at = 5;
	R(sendfile(out, plain, &at, 20));
	R(fstat(out, &st) ? -1 : (long)st.st_size);
	close(plain);
	unlink(beside);

	/* A position far out. */
	R(lseek(out, (off_t)1 << 40, SEEK_SET));
	R(write(out, "far", 3));
	R(fstat(out, &st) ? -1 : (long)(st.st_size >> 20));
	R(ftruncate(out, 10));

	/* Closed by range. */
	R(close_range((unsigned)in, (unsigned)out, 0));
	R(read(in, c, 1));
	R(write(out, c, 1));
	bad_pieces();
	bad_buffers();
	which_error();
	/* EISDIR is read's answer. */
	int dir = open(".", O_RDONLY);
	out = open("out", O_RDWR);
	R(sendfile(out, dir, NULL, 3));
	at = 0;
	R(sendfile(out, dir, &at, 3));
	return 0;
}
