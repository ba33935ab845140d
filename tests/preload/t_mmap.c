/* Mappings that can be had: private ones, and shared ones for reading. */
#include "t.h"

#include <sys/mman.h>

int main(void)
{
	char *big = malloc(10000);
	for (int i = 0; i < 10000; i++)
		big[i] = (char)(i % 251);
	int fd = make("f", "");
	R(write(fd, big, 10000));
	char *p = mmap(NULL, 10000, PROT_READ, MAP_SHARED, fd, 0);
	R(p != MAP_FAILED && memcmp(p, big, 10000) == 0);
	R(p[10001]);
	R(msync(p, 10000, MS_SYNC));
	R(munmap(p, 10000));
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
	R(p != MAP_FAILED && memcmp(p, big + 4096, 4096) == 0);
	p[0] = 'Z';
	R(pread(fd, big, 1, 4096));
	R(big[0] == (char)(4096 % 251));
	R(munmap(p, 4096));
	p = mmap(NULL, 20000, PROT_READ, MAP_PRIVATE, fd, 8192);
	R(p != MAP_FAILED && p[0] == (char)(8192 % 251) && p[10000 - 8192] == 0);
	munmap(p, 20000);
	R(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED);
	R(mmap(NULL, 10, PROT_READ, MAP_PRIVATE, fd, 5) == MAP_FAILED);
	R(errno);
	int wo = open("f", O_WRONLY);
	R(mmap(NULL, 10, PROT_READ, MAP_PRIVATE, wo, 0) == MAP_FAILED);
	R(errno);
	R(mmap(NULL, 10, PROT_READ, MAP_PRIVATE, 999, 0) == MAP_FAILED);
	R(errno);
	/* What is no map at all was one, and a shared one of who may not write was ENODEV. */
	int ro = open("f", O_RDONLY);
	R((long)mmap(NULL, 10, PROT_READ, 0, fd, 0));
	R((long)mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, ro, 0));
	R((long)mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, wo, 0));
	R((long)mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, ro, 5));
	R(readahead(wo, 0, 10));
	R(readahead(ro, 0, 10));
	p = mmap(NULL, 100, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	R(p[5]);
	return 0;
}
