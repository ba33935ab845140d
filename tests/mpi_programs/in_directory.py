# in_directory.py DIR PROGRAM [ARGUMENT...]: runs a Python program whose temporary files go to DIR.
# Not by TMPDIR, where Open MPI puts its mapped files too. What it says goes to DIR/said.RANK: on
# one terminal the ranks' lines run into each other ("OKOK"), and a test that looks for them fails
# now and then.
import os
import runpy
import sys
import tempfile

tempfile.tempdir = sys.argv[1]
rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
sys.stdout = sys.stderr = open(os.path.join(sys.argv[1], f"said.{rank}"), "w", buffering=1)  # noqa: SIM115 open to the end
sys.argv[:] = sys.argv[2:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
