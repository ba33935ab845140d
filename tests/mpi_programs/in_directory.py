# in_directory.py DIR PROGRAM [ARGUMENT...]: runs a Python program whose temporary files go to DIR. Not by TMPDIR, where Open MPI puts its mapped files too.
import os
import runpy
import sys
import tempfile

tempfile.tempdir = sys.argv[1]
sys.argv[:] = sys.argv[2:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
