"""Runs what is a program of its own in a child that has it loaded: to start Python and to import
takes longer than to decode a container."""

import os, subprocess, sys, tempfile, traceback


def run(main, *words):
    """What `main` says and exits with if `words` are its command line, as subprocess.run has it."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            status = 1
            try:
                sys.argv = list(words)
                status = int(main() or 0)
            except SystemExit as end:
                status = end.code
                if isinstance(status, str):
                    print(status, file=sys.stderr)
                    status = 1
                status = int(status or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, status, out.read(), err.read())
