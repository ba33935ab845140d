"""The daemon's life: daemon.py DIRECTORY PLFS, as root. Prints ok or FAIL for each behaviour; run.sh counts."""
import errno
import json
import os
import signal
import subprocess
import sys
import time

from common import fails, main, read, write

WORK, PLFS = sys.argv[1:3]


def plfs(*words, ok=True):
    done = subprocess.run([PLFS, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) == ok, f"plfs {' '.join(words)}: {done.returncode} {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


class Mounted:
    def __init__(self, name, *options):
        self.backend, self.path = f"{WORK}/{name}.b", f"{WORK}/{name}.m"
        for path in (self.backend, self.path):
            os.makedirs(path, exist_ok=True)
        plfs("mount", self.path, "--backend", self.backend, *options)

    def __enter__(self):
        return self

    def pid(self):
        return json.loads(os.getxattr(self.path, "user.plfs.mount"))["pid"]

    def __exit__(self, *_):
        subprocess.run([PLFS, "umount", "--lazy", self.path], capture_output=True, timeout=30)


def wait_for_end(pid):
    for _ in range(300):
        try:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} does not end")


def t_a_killed_daemon_leaves_consistent_files():
    with Mounted("kill") as mount:
        write(f"{mount.path}/closed", b"c" * 100_000)
        fd = os.open(f"{mount.path}/open", os.O_RDWR | os.O_CREAT, 0o644)
        os.write(fd, b"synced")
        os.fsync(fd)
        os.write(fd, b" and lost, perhaps" * 1000)
        pid = mount.pid()
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)
        gone = (errno.ENOTCONN, errno.ECONNABORTED)
        fails(gone, os.write, fd, b"x")
        fails(gone, os.pread, fd, 10, 0)
        fails(gone, os.stat, f"{mount.path}/closed")
        try:
            os.close(fd)
        except OSError:
            pass
        said = plfs("mount", mount.path, "--backend", mount.backend, ok=False)
        assert "plfs umount" in said, said
        assert "dead" in plfs("stat", "--mounts")
        plfs("umount", mount.path)
        assert plfs("cat", f"{mount.backend}/closed") == "c" * 100_000
        assert plfs("cat", f"{mount.backend}/open").startswith("synced")
        plfs("check", mount.backend)
        plfs("mount", mount.path, "--backend", mount.backend)
        assert read(f"{mount.path}/open").startswith(b"synced")
        write(f"{mount.path}/open", b"+", os.O_WRONLY | os.O_APPEND)
        assert read(f"{mount.path}/open").endswith(b"+")
        plfs("umount", mount.path)
        assert "corrupt" not in plfs("check", mount.backend)


def t_an_unmount_commits_all():
    mount = Mounted("umount")
    for i in range(50):
        write(f"{mount.path}/{i}", b"%d" % i)
    pid = mount.pid()
    plfs("umount", mount.path)
    wait_for_end(pid)
    assert plfs("check", mount.backend).strip() == "50 healthy"
    assert os.listdir(mount.path) == []
    assert plfs("cat", f"{mount.backend}/7") == "7"


def t_a_busy_mount_is_not_unmounted():
    mount = Mounted("busy")
    fd = os.open(f"{mount.path}/f", os.O_RDWR | os.O_CREAT, 0o644)
    assert "in use" in plfs("umount", mount.path, ok=False)
    os.write(fd, b"still")
    pid = mount.pid()
    plfs("umount", "--lazy", mount.path)
    assert not os.path.exists(f"{mount.path}/f")
    os.write(fd, b" here")
    os.close(fd)
    wait_for_end(pid)
    assert plfs("cat", f"{mount.backend}/f") == "still here"


def t_a_signal_unmounts():
    for number in (signal.SIGTERM, signal.SIGINT):
        mount = Mounted("signal")
        write(f"{mount.path}/f", b"before")
        pid = mount.pid()
        os.kill(pid, number)
        wait_for_end(pid)
        assert not os.path.ismount(mount.path)
    mount = Mounted("signal")
    fd = os.open(f"{mount.path}/g", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b"written")
    pid = mount.pid()
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.5)
    assert not os.path.ismount(mount.path) and plfs("cat", f"{mount.backend}/g") == "written"
    os.write(fd, b" more")
    os.close(fd)
    wait_for_end(pid)
    assert plfs("cat", f"{mount.backend}/g") == "written more" and plfs("check", mount.backend).strip() == "2 healthy"


def t_in_the_foreground():
    backend, path = f"{WORK}/fg.b", f"{WORK}/fg.m"
    os.makedirs(backend), os.makedirs(path)
    daemon = subprocess.Popen([PLFS, "mount", "--foreground", "-o", "log=debug", path, "--backend", backend], stderr=subprocess.PIPE, text=True)
    for _ in range(200):
        if os.path.ismount(path):
            break
        time.sleep(0.05)
    write(f"{path}/f", b"x")
    daemon.send_signal(signal.SIGINT)
    assert daemon.wait(30) == 0
    said = daemon.stderr.read()
    assert "mounted" in said and "unmounted" in said, said


def t_a_mount_over_its_own_backend():
    path = f"{WORK}/own"
    os.makedirs(path)
    write(f"{path}/plain", b"was here")
    plfs("mount", path)
    assert read(f"{path}/plain") == b"was here"
    write(f"{path}/new", b"container")
    assert read(f"{path}/new") == b"container"
    plfs("umount", path)
    assert os.path.getsize(f"{path}/new") == 4093 and plfs("cat", f"{path}/new") == "container"


def t_what_cannot_be_mounted_is_said():
    backend = f"{WORK}/no.b"
    os.makedirs(f"{backend}/inside")
    assert "mkdir -p" in plfs("mount", f"{WORK}/nowhere", "--backend", backend, ok=False)
    assert "itself" in plfs("mount", f"{backend}/inside", "--backend", backend, ok=False)
    assert "one backend" in plfs("mount", f"{WORK}/kill.m", "--backend", backend, "--backend", WORK, ok=False)
    assert "not known" in plfs("mount", f"{WORK}/kill.m", "--backend", backend, "-o", "fast", ok=False)
    assert "not a PLFS mount" in plfs("umount", backend, ok=False)
    with Mounted("twice") as mount:
        assert "already" in plfs("mount", mount.path, "--backend", backend, ok=False)


def t_read_only():
    mount = Mounted("ro")
    write(f"{mount.path}/f", b"kept")
    plfs("umount", mount.path)
    with Mounted("ro", "-o", "ro") as mount:
        assert read(f"{mount.path}/f") == b"kept"
        fails(errno.EROFS, write, f"{mount.path}/f", b"x")
        fails(errno.EROFS, os.unlink, f"{mount.path}/f")


def t_mount_8_finds_the_helper():
    os.makedirs(f"{WORK}/sbin"), os.makedirs(f"{WORK}/h.m"), os.makedirs(f"{WORK}/h.b")
    helper = f"{WORK}/sbin/mount.fuse.plfs"
    os.symlink(PLFS, helper)
    subprocess.run([helper, f"{WORK}/h.b", f"{WORK}/h.m", "-n", "-o", "rw,nodev"], check=True, timeout=30)
    assert os.path.ismount(f"{WORK}/h.m")
    subprocess.run(["umount", f"{WORK}/h.m"], check=True, timeout=30)


def t_a_damaged_file_is_an_error_with_its_name():
    mount = Mounted("bad")
    write(f"{mount.path}/f", b"x" * 50_000)
    plfs("umount", mount.path)
    for dirpath, _, names in os.walk(f"{mount.backend}/.plfs"):
        for name in names:
            if name.endswith(".data"):
                os.truncate(os.path.join(dirpath, name), 100)
    with Mounted("bad") as mount:
        fails(errno.EIO, read, f"{mount.path}/f")
        assert ".data has" in plfs("log", mount.path)
        # A name without a container can be listed and removed.
        write(f"{mount.path}/g", b"y")
        said = os.getxattr(f"{mount.path}/g", "user.plfs.layout").decode()
        where = os.path.join(mount.backend, said.split()[0].removeprefix("container="))
        time.sleep(0.2)
        os.rename(where, f"{mount.backend}/away")
        time.sleep(1.1)
        assert "g" in os.listdir(mount.path)
        fails((errno.ESTALE, errno.EIO), read, f"{mount.path}/g")
        os.unlink(f"{mount.path}/g")


main(globals(), sys.argv[3:])
