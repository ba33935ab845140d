"""What the behaviours of a mount share. A file of them is a program: each function t_NAME is a
behaviour; main() prints a line for each, as suites do."""

import errno
import os
import sys
import traceback


class Skipped(Exception):
    """Cannot be tested here, and why."""


def fails(numbers, call, *args, **kwargs):
    """`call` fails with this error number, or with one of these."""
    numbers = numbers if isinstance(numbers, tuple) else (numbers,)
    try:
        call(*args, **kwargs)
    except OSError as error:
        assert error.errno in numbers, (
            f"{error} instead of {' or '.join(errno.errorcode[number] for number in numbers)}"
        )
    else:
        raise AssertionError(
            f"{call} did not fail with {' or '.join(errno.errorcode[number] for number in numbers)}"
        )


def write(path, data, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o666):
    fd = os.open(path, flags, mode)
    try:
        assert os.write(fd, data) == len(data)
    finally:
        os.close(fd)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def in_child(work):
    """Runs `work` in another process, which must succeed."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, "the child failed"


def main(tests, wanted, mount=None, mode=0o755):
    """Runs the functions t_* of `tests`, or those that are `wanted`; below a mount each in a
    directory of its own, which has this mode."""
    failed = 0
    for name, test in list(tests.items()):
        if not name.startswith("t_") or (wanted and name not in wanted):
            continue
        if mount:
            where = os.path.join(mount, name)
            os.mkdir(where)
            os.chmod(where, mode)
            os.chdir(where)
        try:
            test()
            print("ok", name[2:].replace("_", " "), flush=True)
        except Skipped as why:
            print("skip", f"{name[2:].replace('_', ' ')}: {why}", flush=True)
        except Exception:
            failed += 1
            print("not ok", name[2:].replace("_", " "), flush=True)
            traceback.print_exc()
            sys.stderr.flush()
    sys.exit(1 if failed else 0)
