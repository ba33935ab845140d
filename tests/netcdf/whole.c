/* whole FILE WHAT: a CDF-5 dataset of variables that are cut and others that stay whole, with two
 * records, of which all is written (all), only what is cut (cut), that with fill values (fill), all
 * but records (fixed), or only what is cut and has no records (none). */
#include "t.h"

int main(int argc, char **argv)
{
	int ncid, t, y, x, cube, cubes, row, last, series, series2, values[60];
	MPI_Offset start[3] = {0, 0, 0}, count[3] = {2, 6, 5};
	t_start(&argc, &argv);
	CHECK(argc == 3);
	bool all = strcmp(argv[2], "all") == 0, fixed = all || strcmp(argv[2], "fixed") == 0;
	for (int i = 0; i < 60; i++)
		values[i] = i + 1;
	FINE(ncmpi_create(
		MPI_COMM_WORLD, argv[1], NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &ncid));
	if (strcmp(argv[2], "fill") == 0)
		FINE(ncmpi_set_fill(ncid, NC_FILL, NULL));
	FINE(ncmpi_def_dim(ncid, "t", NC_UNLIMITED, &t));
	FINE(ncmpi_def_dim(ncid, "y", 6, &y));
	FINE(ncmpi_def_dim(ncid, "x", 5, &x));
	FINE(ncmpi_def_var(ncid, "cube", NC_INT, 2, (int[]){y, x}, &cube));
	FINE(ncmpi_def_var(ncid, "cubes", NC_SHORT, 3, (int[]){t, y, x}, &cubes));
	FINE(ncmpi_def_var(ncid, "row", NC_DOUBLE, 1, &x, &row));
	FINE(ncmpi_def_var(ncid, "last", NC_DOUBLE, 1, &x, &last));
	FINE(ncmpi_def_var(ncid, "series", NC_INT, 1, &t, &series));
	FINE(ncmpi_def_var(ncid, "series2", NC_INT, 1, &t, &series2));
	FINE(ncmpi_enddef(ncid));
	FINE(ncmpi_put_var_int_all(ncid, cube, values));
	if (fixed) {
		FINE(ncmpi_put_var_int_all(ncid, row, values));
		FINE(ncmpi_put_var_int_all(ncid, last, values));
	}
	if (all || strcmp(argv[2], "cut") == 0 || strcmp(argv[2], "fill") == 0)
		FINE(ncmpi_put_vara_int_all(ncid, cubes, start, count, values));
	if (all) {
		FINE(ncmpi_put_vara_int_all(ncid, series, start, count, values));
		FINE(ncmpi_put_vara_int_all(ncid, series2, start, count, values));
	}
	FINE(ncmpi_close(ncid));
	MPI_Finalize();
	return 0;
}
