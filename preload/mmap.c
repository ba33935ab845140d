/* mmap of containers: a copy in anonymous memory.
 *
 * A plain file is mapped as ever. A container has no pages of its own. A private or read-only
 * mapping gets a copy of the bytes as they are now; later writes do not show in it, and it costs
 * memory for its whole length. A shared writable mapping cannot be given: ENODEV, and programs fall
 * back to write. */
#include "door.h"

static void *map_copy(struct ofd *o, void *where, size_t len, int prot, int flags, off_t offset)
{
	int access = ofd_flags(o) & O_ACCMODE;
	int kind = flags & MAP_TYPE;
	bool writes = kind != MAP_PRIVATE && (prot & PROT_WRITE);
	long rc = 0;
	/* In the order in which the kernel looks. */
	if (offset < 0 || (offset & (sysconf(_SC_PAGESIZE) - 1)) || len == 0)
		rc = -EINVAL;
	else if (kind != MAP_PRIVATE && kind != MAP_SHARED && kind != MAP_SHARED_VALIDATE)
		rc = -EINVAL;
	else if (access == O_WRONLY || (writes && access == O_RDONLY))
		rc = -EACCES;
	else if (writes)
		rc = -ENODEV;
	if (rc < 0) {
		to_errno(rc);
		return MAP_FAILED;
	}
	int keep = flags &
		   (MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_LOCKED | MAP_NORESERVE | MAP_32BIT);
	long at = RAW(SYS_mmap, where, len, (long)(PROT_READ | PROT_WRITE),
		(long)(MAP_PRIVATE | MAP_ANONYMOUS | keep), -1L, 0L);
	if (at == -1)
		return MAP_FAILED;
	for (size_t done = 0; done < len;) {
		ssize_t n = PLFS(
			plfs_pread(o->file, (char *)at + done, len - done, offset + (off_t)done));
		if (n < 0) {
			RAW(SYS_munmap, at, len);
			to_errno(n);
			return MAP_FAILED;
		}
		if (n == 0)
			break;
		done += (size_t)n;
	}
	if (prot != (PROT_READ | PROT_WRITE))
		RAW(SYS_mprotect, at, len, (long)prot);
	return (void *)at;
}

/* Is the file plain still, now that it is mapped? A plain file has pages. */
static bool has_pages(struct ofd *o, int flags)
{
	/* A map through which it may be written, now or after an mprotect, is seen by nobody: so it
	 * stays plain. */
	if ((flags & MAP_TYPE) != MAP_PRIVATE && (ofd_flags(o) & O_ACCMODE) != O_RDONLY)
		return PLFS(plfs_door_pin(o->file, "mapped for writing")) == 1;
	struct stat st;
	return OFD_IS_PLAIN(o) && PLFS(plfs_fstat(o->file, &st)) == 0 && OFD_IS_PLAIN(o);
}

void *door_mmap(void *where, size_t len, int prot, int flags, int fd, off_t offset)
{
	bool is_kernels = door_thread.inside || (fd_is_reader(fd) && door_is_plain(fd));
	struct ofd *o = is_kernels ? NULL : ofd_get(fd);
	if (o && has_pages(o, flags)) {
		ofd_put(o);
		o = NULL;
	}
	if (!o)
		return (void *)RAW(SYS_mmap, where, len, (long)prot, (long)flags, (long)fd, offset);
	void *at = map_copy(o, where, len, prot, flags, offset);
	ofd_put(o);
	return at;
}

EXPORT void *mmap(void *where, size_t len, int prot, int flags, int fd, off_t offset)
{
	if ((flags & MAP_ANONYMOUS) || !fd_is_container(fd))
		return REAL(mmap)(where, len, prot, flags, fd, offset);
	return door_mmap(where, len, prot, flags, fd, offset);
}
ALIAS(mmap, mmap64);
