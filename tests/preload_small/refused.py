"""What the tests in Python of run.sh share."""

import os


def refused(with_errno, call, *args):
    """The call fails with this error number."""
    try:
        call(*args)
    except OSError as error:
        assert error.errno == with_errno, (call, args, error)
    else:
        raise AssertionError((call, args, "was done"))


def be_nobody_in(directory):
    """Goes there as root, and is another user from then on."""
    os.chdir(directory)
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
