/* Which directories the partitions of a new dataset go to. All that knows of targets is here. */
#include "door.h"

#include <stdlib.h>
#include <string.h>

/* Partitions if nobody says how many: more than a few do not pay where targets are not known. */
#define STANDARD_PARTS 4

char **targets_choose(const struct settings *settings, int *count)
{
	int named = 0;
	char **list = NULL, *copy = settings->dirs ? must(strdup(settings->dirs)) : NULL, *rest;
	for (char *dir = copy ? strtok_r(copy, ":", &rest) : NULL; dir;
		dir = strtok_r(NULL, ":", &rest)) {
		list = must(realloc(list, (size_t)(named + 1) * sizeof *list));
		list[named++] = must(strdup(dir));
	}
	free(copy);
	*count = settings->parts ? settings->parts : named ? named : STANDARD_PARTS;
	char **all = must(calloc((size_t)*count, sizeof *all));
	for (int i = 0; i < *count && named; i++)
		all[i] = must(strdup(list[i % named]));
	for (int i = 0; i < named; i++)
		free(list[i]);
	free(list);
	return all;
}
