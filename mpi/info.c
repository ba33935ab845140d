/* Hints: what a program may ask for by MPI_Info, and the values in force that it can read.
 * docs/TUNING.md lists them. */
#include "door.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const CHOICES[] = {
	[HINT_AUTOMATIC] = "automatic", [HINT_ENABLE] = "enable", [HINT_DISABLE] = "disable"};

static const struct hint {
	const char *key;
	enum { CHOICE, NUMBER } kind;
	size_t at;
	int64_t standard, min, max;
} HINTS[] = {
	{"plfs_flatten_on_close", CHOICE, offsetof(struct hints, flatten_on_close), HINT_AUTOMATIC,
		0, 0},
	/* Bytes of index that a close may gather. 8 MiB, as the engine's last closer: 150,000
	   irregular records, a few tenths of a second. */
	{"plfs_flatten_threshold", NUMBER, offsetof(struct hints, flatten_threshold), 8 << 20, 0,
		INT64_MAX},
	{"plfs_parallel_index_read", CHOICE, offsetof(struct hints, parallel_index_read),
		HINT_AUTOMATIC, 0, 0},
	{"plfs_coherent", CHOICE, offsetof(struct hints, coherent), HINT_AUTOMATIC, 0, 0},
};

#define COUNT (sizeof HINTS / sizeof *HINTS)

void hints_default(struct hints *hints)
{
	/* Clears the padding as well: ranks compare digests. */
	memset(hints, 0, sizeof *hints);
	for (size_t i = 0; i < COUNT; i++) {
		void *at = (char *)hints + HINTS[i].at;
		if (HINTS[i].kind == CHOICE)
			*(int *)at = (int)HINTS[i].standard;
		else
			*(int64_t *)at = HINTS[i].standard;
	}
}

static int read_one(const struct hint *hint, const char *text, void *at)
{
	if (hint->kind == CHOICE) {
		for (int i = 0; i < 3; i++)
			if (strcmp(text, CHOICES[i]) == 0) {
				*(int *)at = i;
				return MPI_SUCCESS;
			}
		return MPI_ERR_INFO_VALUE;
	}
	char *end;
	long long value = strtoll(text, &end, 10);
	if (end == text || *end || value < hint->min || value > hint->max)
		return MPI_ERR_INFO_VALUE;
	*(int64_t *)at = value;
	return MPI_SUCCESS;
}

int hints_read(struct hints *hints, MPI_Info info)
{
	if (info == MPI_INFO_NULL)
		return MPI_SUCCESS;
	for (size_t i = 0; i < COUNT; i++) {
		char text[32];
		int found = 0;
		int rc = PMPI_Info_get(info, HINTS[i].key, sizeof text - 1, text, &found);
		if (rc == MPI_SUCCESS && found)
			rc = read_one(&HINTS[i], text, (char *)hints + HINTS[i].at);
		if (rc != MPI_SUCCESS)
			return rc;
	}
	return MPI_SUCCESS;
}

int door_get_info(MPI_File fh, MPI_Info *info)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->get_info(fh, info);
	int rc = PMPI_Info_create(info);
	for (size_t i = 0; rc == MPI_SUCCESS && i < COUNT; i++) {
		char text[32];
		const void *at = (const char *)&f->hints + HINTS[i].at;
		if (HINTS[i].kind == CHOICE)
			strcpy(text, CHOICES[*(const int *)at]);
		else
			snprintf(text, sizeof text, "%lld", (long long)*(const int64_t *)at);
		rc = PMPI_Info_set(*info, HINTS[i].key, text);
	}
	return fail(f, rc);
}

int door_set_info(MPI_File fh, MPI_Info info)
{
	struct file *f = file_of(fh);
	if (!f)
		return real->set_info(fh, info);
	struct hints hints = f->hints;
	int rc = hints_read(&hints, info);
	int64_t same[] = {hints.flatten_on_close, hints.flatten_threshold,
		hints.parallel_index_read, hints.coherent};
	rc = agree_same(f->comm, rc, same, 4, MPI_ERR_NOT_SAME);
	if (rc == MPI_SUCCESS)
		f->hints = hints;
	return fail(f, rc);
}
