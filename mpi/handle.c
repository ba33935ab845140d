/* Which MPI_Files are the door's: a small hash table from handle to state. Handles of plain files
 * are not in it and go to the MPI. */
#include "door.h"

#define BUCKETS 64

static struct file *table[BUCKETS];
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;

/* Handles are pointers in every ABI. */
_Static_assert(sizeof(MPI_File) == sizeof(uintptr_t), "MPI_File is a pointer");

static struct file **bucket(MPI_File fh)
{
	uint64_t h = (uint64_t)(uintptr_t)fh * 0x9E3779B97F4A7C15u;
	return &table[h >> 58];
}

struct file *file_of(MPI_File fh)
{
	pthread_rwlock_rdlock(&table_lock);
	struct file *f = *bucket(fh);
	while (f && f->fh != fh)
		f = f->next;
	pthread_rwlock_unlock(&table_lock);
	return f;
}

void file_add(struct file *file)
{
	pthread_rwlock_wrlock(&table_lock);
	struct file **b = bucket(file->fh);
	file->next = *b;
	*b = file;
	pthread_rwlock_unlock(&table_lock);
}

void file_remove(struct file *file)
{
	pthread_rwlock_wrlock(&table_lock);
	struct file **b = bucket(file->fh);
	while (*b && *b != file)
		b = &(*b)->next;
	if (*b)
		*b = file->next;
	pthread_rwlock_unlock(&table_lock);
}
