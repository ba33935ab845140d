/* Hints: what a program asks for by MPI_Info, and a user by the environment. docs/TUNING.md lists
 * them. What PNETCDF_HINTS says is stronger than the program's word, as with PnetCDF itself;
 * PLFS_NC_PARTITION, which `plfs run --partition` sets, and PLFS_NC_PARTITION_DIRS are weaker. */
#include "door.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* PnetCDF has at most 1,024 datasets open (NC_MAX_NFILES); the master is one. */
#define MOST_PARTS 1000
/* Of a delegate. 16 MiB: that of ROMIO's aggregators (cb_buffer_size). */
#define BUFFER_BYTES (16 << 20)
/* In memory an element may have eight times the bytes that it has in the file, and messages have
 * lengths of 31 bits. */
#define MOST_BUFFER (128 << 20)
/* A variable of one dimension that is smaller is not worth a file for each part. */
#define MIN_BYTES (1 << 20)

static bool is_true(const char *text)
{
	return strcasecmp(text, "true") == 0 || strcasecmp(text, "enable") == 0 ||
	       strcasecmp(text, "yes") == 0 || strcmp(text, "1") == 0;
}

static void take_text(char **to, const char *text)
{
	free(*to);
	*to = *text ? must(strdup(text)) : NULL;
}

/* A number that is at least `least`; anything else leaves what was there. */
static void take_number(int64_t *to, const char *text, int64_t least, int64_t most)
{
	char *end;
	long long value = strtoll(text, &end, 10);
	if (end != text && !*end && value >= least && value <= most)
		*to = value;
}

static void take(struct settings *s, const char *key, const char *value)
{
	int64_t parts = s->parts;
	if (strcmp(key, "nc_partitioning_enabled") == 0)
		s->enabled = is_true(value);
	else if (strcmp(key, "nc_num_partitions") == 0)
		take_number(&parts, value, 1, MOST_PARTS), s->parts = (int)parts;
	else if (strcmp(key, "nc_partition_dirs") == 0)
		take_text(&s->dirs, value);
	else if (strcmp(key, "nc_partition_dim") == 0)
		take_text(&s->dim, value);
	else if (strcmp(key, "nc_partition_min_bytes") == 0)
		take_number(&s->min_bytes, value, 0, INT64_MAX);
	else if (strcmp(key, "nc_partition_buffer") == 0)
		take_number(&s->buffer, value, 4096, MOST_BUFFER);
	else if (strcmp(key, "nc_partition_exchange") == 0)
		s->exchange = is_true(value);
}

static const char *const KEYS[] = {"nc_partitioning_enabled", "nc_num_partitions",
	"nc_partition_dirs", "nc_partition_dim", "nc_partition_min_bytes", "nc_partition_buffer",
	"nc_partition_exchange"};

void settings_read(struct settings *s, MPI_Info info)
{
	*s = (struct settings){.min_bytes = MIN_BYTES, .buffer = BUFFER_BYTES, .exchange = true};
	const char *asked = getenv("PLFS_NC_PARTITION");
	if (asked && *asked && strcmp(asked, "0") != 0 && strcasecmp(asked, "no") != 0 &&
		strcasecmp(asked, "false") != 0) {
		s->enabled = true;
		take(s, "nc_num_partitions", asked);
	}
	/* A list of directories may be longer than an MPI takes a value of a hint for. */
	const char *dirs = getenv("PLFS_NC_PARTITION_DIRS");
	if (dirs && *dirs)
		take(s, "nc_partition_dirs", dirs);
	for (size_t i = 0; info != MPI_INFO_NULL && i < sizeof KEYS / sizeof *KEYS; i++) {
		char value[MPI_MAX_INFO_VAL + 1];
		int found = 0;
		if (PMPI_Info_get(info, (char *)KEYS[i], MPI_MAX_INFO_VAL, value, &found) ==
				MPI_SUCCESS &&
			found)
			take(s, KEYS[i], value);
	}
	const char *hints = getenv("PNETCDF_HINTS");
	char *copy = hints ? must(strdup(hints)) : NULL, *rest;
	for (char *hint = copy ? strtok_r(copy, ";", &rest) : NULL; hint;
		hint = strtok_r(NULL, ";", &rest)) {
		char *equals = strchr(hint, '=');
		if (!equals)
			continue;
		*equals = 0;
		while (isspace((unsigned char)*hint))
			hint++;
		take(s, hint, equals + 1);
	}
	free(copy);
}

void settings_free(struct settings *s)
{
	free(s->dirs);
	free(s->dim);
	s->dirs = s->dim = NULL;
}

void mix(uint64_t *sum, const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		*sum = (*sum ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
}

int settings_agree(const struct settings *s, MPI_Comm comm, const char *path)
{
	uint64_t sum = MIX_START;
	int64_t numbers[] = {s->parts, s->min_bytes, s->buffer, s->exchange};
	const char *texts[] = {s->dirs ? s->dirs : "", s->dim ? s->dim : ""};
	mix(&sum, numbers, sizeof numbers);
	for (int i = 0; i < 2; i++)
		mix(&sum, texts[i], strlen(texts[i]) + 1);
	if (!s->enabled)
		sum = 0;
	uint64_t mine[2] = {sum, ~sum}, most[2];
	if (PMPI_Allreduce(mine, most, 2, MPI_UINT64_T, MPI_MAX, comm) != MPI_SUCCESS)
		return NC_EMPI;
	if (most[0] == ~most[1])
		return NC_NOERR;
	int rank = 0;
	PMPI_Comm_rank(comm, &rank);
	if (rank == 0)
		fprintf(stderr,
			"plfs netcdf: %s: the hints nc_partition* (or PLFS_NC_PARTITION, "
			"PNETCDF_HINTS)"
			" are not the same on all ranks; give all ranks the same, or none\n",
			path);
	return NC_EMULTIDEFINE;
}

char *settings_dim(const struct settings *s, const char *variable)
{
	char *copy = s->dim ? must(strdup(s->dim)) : NULL, *rest, *result = NULL;
	for (char *word = copy ? strtok_r(copy, " ,;", &rest) : NULL; word;
		word = strtok_r(NULL, " ,;", &rest)) {
		char *colon = strrchr(word, ':');
		if (colon && (size_t)(colon - word) == strlen(variable) &&
			strncmp(word, variable, strlen(variable)) == 0) {
			free(result);
			result = must(strdup(colon + 1));
			break;
		}
		if (!colon && !result)
			result = must(strdup(word));
	}
	free(copy);
	return result;
}

void settings_show(const struct settings *s, int parts, MPI_Info info)
{
	char text[32];
	PMPI_Info_set(info, "nc_partitioning_enabled", "true");
	snprintf(text, sizeof text, "%d", parts);
	PMPI_Info_set(info, "nc_num_partitions", text);
	if (s->dirs && strlen(s->dirs) < MPI_MAX_INFO_VAL)
		PMPI_Info_set(info, "nc_partition_dirs", s->dirs);
	if (s->dim && strlen(s->dim) < MPI_MAX_INFO_VAL)
		PMPI_Info_set(info, "nc_partition_dim", s->dim);
	snprintf(text, sizeof text, "%lld", (long long)s->min_bytes);
	PMPI_Info_set(info, "nc_partition_min_bytes", text);
	snprintf(text, sizeof text, "%lld", (long long)s->buffer);
	PMPI_Info_set(info, "nc_partition_buffer", text);
	PMPI_Info_set(info, "nc_partition_exchange", s->exchange ? "true" : "false");
}

MPI_Info info_of_partitions(MPI_Info info)
{
	static const char *const NO[] = {"romio_ds_write", "romio_cb_write", "romio_cb_read"};
	MPI_Info copy;
	if (info != MPI_INFO_NULL)
		PMPI_Info_dup(info, &copy);
	else
		PMPI_Info_create(&copy);
	for (size_t i = 0; i < sizeof NO / sizeof *NO; i++) {
		char value[MPI_MAX_INFO_VAL + 1];
		int found = 0;
		PMPI_Info_get(copy, (char *)NO[i], MPI_MAX_INFO_VAL, value, &found);
		if (!found)
			PMPI_Info_set(copy, (char *)NO[i], "disable");
	}
	return copy;
}
