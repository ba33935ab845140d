"""readers.py DATASET...: netCDF4 and xarray read each partition as it is, and what they have of
each variable is what the plain dataset beside it (NAME.plain) has there."""

import re
import sys

import netCDF4
import numpy
import xarray


def check(name):
    plain = netCDF4.Dataset(name + ".plain")
    master = netCDF4.Dataset(name)
    k = 0
    while f"partition_{k}" in master.ncattrs():
        path = f"{name}.{k}"
        assert master.getncattr(f"partition_{k}") == path.rsplit("/", 1)[-1]
        partition = netCDF4.Dataset(path)
        with xarray.open_dataset(path, decode_cf=False) as other:
            for var in partition.variables.values():
                check_variable(var, other[var.name], plain.variables[var.name])
        assert partition.partition_index == k
        k += 1
    assert k > 0


def check_variable(var, other, plain):
    (key,) = [name for name in var.ncattrs() if name.startswith("range(")]
    low, high = var.getncattr(key)
    dim = re.fullmatch(r"range\((.*)\)", key).group(1)
    box = [slice(None)] * len(plain.dimensions)
    box[plain.dimensions.index(dim)] = slice(low, high + 1)
    expected = numpy.asarray(plain[tuple(box)])
    assert f"{dim}.{var.name}" in var.dimensions
    assert numpy.array_equal(numpy.asarray(var[...]), expected)
    assert numpy.array_equal(other.values, expected)


for one in sys.argv[1:]:
    check(one)
