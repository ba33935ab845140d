/* Which directories the partitions of a new dataset go to. All that knows of targets is here: what
 * is measured of them is libplfs's, and the choice as well. */
#include "door.h"
#include "../mpi/libraries.h"

#include <plfs_door.h>
#include <stdlib.h>

/* Partitions if nobody says how many: more than a few do not pay where targets are not known. */
#define STANDARD_PARTS 4

/* That of the process, or the one beside us. A program that is linked to this library may be
 * somewhere without it. */
static __typeof__(plfs_door_choose_dirs) *chooser(void)
{
	static const char NAME[] = "plfs_door_choose_dirs";
	void *choose = dlsym(RTLD_DEFAULT, NAME);
	void *library = choose ? NULL : load_beside((void *)targets_choose, "../libplfs.so.0");
	return choose ? choose : library ? dlsym(library, NAME) : NULL;
}

/* By rank 0. Puts the places of those that are chosen into `places`, and gives how many. */
static int choose_dirs(const struct file *f, char *const *dirs, int n, uint32_t *places)
{
	const char *debug = getenv("PLFS_DEBUG");
	double *bytes_s = must(calloc((size_t)n, sizeof *bytes_s));
	__typeof__(plfs_door_choose_dirs) *choose = chooser();
	int count = choose ? choose((const char *const *)dirs, (size_t)n, (size_t)f->settings.parts,
				     places, bytes_s)
			   : -1;
	if (count < 1 || count > n) {
		static bool was_told;
		if (!was_told)
			say(f,
				"targets are not chosen, as libplfs.so %s: partitions go to the "
				"directories of nc_partition_dirs in their order",
				choose ? "cannot measure them" : "is not there");
		was_told = true;
		count = f->settings.parts ? f->settings.parts : n;
		for (int i = 0; i < count; i++)
			places[i] = (uint32_t)i;
	} else {
		for (int i = 0; i < n; i++)
			if (!(bytes_s[i] > 0))
				say(f, "the target %s is slow to answer, or cannot be written to",
					dirs[i]);
		for (int i = 0; debug && *debug && *debug != '0' && i < n; i++)
			say(f, "target %s: %.1f MB/s", dirs[i], bytes_s[i] / 1e6);
	}
	free(bytes_s);
	return count;
}

char **targets_choose(const struct file *f, int *count)
{
	const struct settings *settings = &f->settings;
	int named = 0;
	char **list = NULL, *copy = settings->dirs ? must(strdup(settings->dirs)) : NULL, *rest;
	for (char *dir = copy ? strtok_r(copy, ":", &rest) : NULL; dir;
		dir = strtok_r(NULL, ":", &rest)) {
		list = must(realloc(list, (size_t)(named + 1) * sizeof *list));
		list[named++] = dir;
	}
	*count = settings->parts ? settings->parts : named ? named : STANDARD_PARTS;
	size_t most = (size_t)(*count > named ? *count : named);
	char **all = must(calloc(most, sizeof *all));
	uint32_t *places = must(calloc(most, sizeof *places));
	for (int i = 0; i < *count && named; i++)
		places[i] = (uint32_t)(i % named);
	/* Who names as many partitions as directories, or more, has chosen. */
	if (settings->parts < named && named > 1) {
		if (f->rank == 0)
			*count = choose_dirs(f, list, named, places);
		PMPI_Bcast(count, 1, MPI_INT, 0, f->comm);
		PMPI_Bcast(places, *count, MPI_UINT32_T, 0, f->comm);
	}
	for (int i = 0; i < *count && named; i++)
		all[i] = must(strdup(list[places[i]]));
	free(places);
	free(copy);
	free(list);
	return all;
}
