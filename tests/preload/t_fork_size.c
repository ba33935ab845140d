/* A thread writes while another one forks. The child has all that was written before the fork, as
 * its memory says, and follows what others cut afterwards. What was written between the commit of
 * the fork and the fork itself was not there for the child until its parent committed it, and
 * counted for the child's size for ever, whatever was cut. */
#include "t.h"
#include <pthread.h>
#include <stdatomic.h>

#define FORKS 100
#define PIECE 64
#define PIECES 10000

static int fd;
static _Atomic int wanted, idle, done;
static _Atomic long written;

static void *write_pieces(void *piece)
{
	while (!atomic_load(&done)) {
		long i = atomic_load(&written);
		if (!atomic_load(&wanted) || i == PIECES) {
			atomic_store(&idle, 1);
			usleep(20);
			continue;
		}
		pwrite(fd, piece, PIECE, i * PIECE);
		atomic_store(&written, i + 1);
	}
	return NULL;
}

/* 1: not all is there that was written before; 2: the size is not what the parent cut it to. */
static int look(int parent, int to_parent)
{
	struct stat st;
	char c = 0;
	long before = atomic_load(&written) * PIECE;
	fstat(fd, &st);
	int few = st.st_size < before ||
		  (before && (pread(fd, &c, 1, before - 1) != 1 || c != 'x'));
	write(to_parent, "", 1);
	read(parent, &c, 1);
	fstat(fd, &st);
	return few | (st.st_size != 10) << 1;
}

int main(void)
{
	pthread_t thread;
	int few = 0, long_ = 0, to_child[2], to_parent[2];
	char piece[PIECE];
	memset(piece, 'x', sizeof piece);
	fd = make("f", "");
	R(pipe(to_child));
	R(pipe(to_parent));
	pthread_create(&thread, NULL, write_pieces, piece);
	for (int i = 0; i < FORKS; i++) {
		ftruncate(fd, 0);
		atomic_store(&written, 0);
		atomic_store(&wanted, 1);
		usleep(20 * (i % 10));
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0)
			_exit(look(to_child[0], to_parent[1]));
		atomic_store(&wanted, 0);
		atomic_store(&idle, 0);
		while (!atomic_load(&idle))
			usleep(20);
		char looked;
		read(to_parent[0], &looked, 1);
		ftruncate(fd, 10);
		write(to_child[1], "", 1);
		int found = reap(pid);
		few += found & 1;
		long_ += found >> 1;
	}
	atomic_store(&done, 1);
	pthread_join(thread, NULL);
	/* In the last round it may have written nothing. */
	pwrite(fd, piece, 10, 0);
	R(few);
	R(long_);
	return 0;
}
