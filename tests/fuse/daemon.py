"""The daemon's life: daemon.py DIRECTORY PLFS, as root. Prints a line for each behaviour, as suites
do."""

import base64
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from common import Skipped, fails, in_child, main, read, write

WORK, PLFS = sys.argv[1:3]


def plfs(*words, ok=True):
    done = subprocess.run([PLFS, *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) == ok, (
        f"plfs {' '.join(words)}: {done.returncode} {done.stdout}{done.stderr}"
    )
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


def t_paths_that_are_not_utf8():
    # umount took the mount for none, or did not wait for its daemon.
    with Mounted(os.fsdecode(b"odd\xff")) as mount:
        write(f"{mount.path}/f", b"x")
        listed = [one for one in json.loads(plfs("stat", "--mounts", "--json")) if one["status"]]
        paths = [
            {"base64": base64.b64encode(os.fsencode(path)).decode()}
            for path in (mount.path, mount.backend)
        ]
        assert [paths[0], paths[1:]] in [
            [one["mountpoint"], one["status"]["backends"]] for one in listed
        ], listed
        pid = mount.pid()
        plfs("umount", mount.path)
        wait_for_end(pid)


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
    assert (
        plfs("cat", f"{mount.backend}/g") == "written more"
        and plfs("check", mount.backend).strip() == "2 healthy"
    )


def t_in_the_foreground():
    backend, path = f"{WORK}/fg.b", f"{WORK}/fg.m"
    os.makedirs(backend), os.makedirs(path)
    # As systemd does, which waits to be told that the mount is up.
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.bind(f"{WORK}/notify")
    systemd.settimeout(30)
    env = {**os.environ, "NOTIFY_SOCKET": f"{WORK}/notify"}
    daemon = subprocess.Popen(
        [PLFS, "mount", "--foreground", "-o", "log=debug", path, "--backend", backend],
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert systemd.recv(100) == b"READY=1" and os.path.ismount(path)
    write(f"{path}/f", b"x")
    daemon.send_signal(signal.SIGINT)
    assert daemon.wait(30) == 0
    said = daemon.stderr.read()
    assert "mounted" in said and "unmounted" in said and "warn" not in said, said


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
    os.makedirs(f"{backend}/inside"), os.makedirs(f"{WORK}/no.m")
    assert "mkdir -p" in plfs("mount", f"{WORK}/nowhere", "--backend", backend, ok=False)
    assert "itself" in plfs("mount", f"{backend}/inside", "--backend", backend, ok=False)
    assert "twice" in plfs(
        "mount", f"{WORK}/no.m", "--backend", backend, "-o", f"backend={backend}", ok=False
    )
    assert "is its file system mounted" in plfs(
        "mount", f"{WORK}/no.m", "--backend", backend, "--backend", f"{WORK}/nowhere", ok=False
    )
    assert "below the mount" in plfs(
        "mount", f"{WORK}/no.m", "--backend", backend, "--backend", f"{WORK}/no.m", ok=False
    )
    assert "not known" in plfs(
        "mount", f"{WORK}/no.m", "--backend", backend, "-o", "fast", ok=False
    )
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


def t_bench():
    with Mounted("bench") as mount:
        bench = ["bench", "--procs=3", "--size=5K", "--count=20", "--verify"]
        for pattern in ("n1-strided", "nn", "1n"):
            out = plfs(*bench, "--json", "--door=fuse", f"--pattern={pattern}", "--dir", mount.path)
            assert json.loads(out)["dirs"][0]["file_system"] == "fuse.plfs", out
        assert [name for name in os.listdir(mount.path) if name != ".plfs"] == []
        for door in ("direct", "posix", "api"):
            out = plfs(*bench, f"--door={door}", "--pattern=nn", "--dir", mount.path, ok=False)
            assert "of PLFS: " in out and "--door fuse" in out, out


def t_mount_8_finds_the_helper():
    os.makedirs(f"{WORK}/sbin"), os.makedirs(f"{WORK}/h.m"), os.makedirs(f"{WORK}/h.b")
    helper = f"{WORK}/sbin/mount.fuse.plfs"
    os.symlink(PLFS, helper)
    subprocess.run(
        [helper, f"{WORK}/h.b", f"{WORK}/h.m", "-n", "-o", "rw,nodev"], check=True, timeout=30
    )
    assert os.path.ismount(f"{WORK}/h.m")
    subprocess.run(["umount", f"{WORK}/h.m"], check=True, timeout=30)


def options_of(path):
    with open("/proc/self/mounts", errors="surrogateescape") as file:
        return next(line.split()[3].split(",") for line in file if line.split()[1] == path)


def t_a_remount():
    with Mounted("remount", "-o", "ro,noexec,threads=3") as mount:
        # Mounted read-only, the backend is not touched; the first file of a remount makes it ready.
        assert os.listdir(mount.backend) == [] and "ro" in options_of(mount.path)
        plfs("mount", "-o", "remount,rw", mount.path)
        write(f"{mount.path}/f", b"x")
        assert {"rw", "noexec", "nosuid", "nodev"} <= set(options_of(mount.path)), options_of(
            mount.path
        )
        plfs("mount", "-o", "remount,exec,noatime,threads=3,log=debug", mount.path)
        assert {"noatime", "nodev"} <= set(options_of(mount.path)) and "noexec" not in options_of(
            mount.path
        )
        assert json.loads(os.getxattr(mount.path, "user.plfs.mount"))["level"] == "debug"
        for option, name in (
            ("threads=4", "threads"),
            ("timeout=9", "timeout"),
            ("noacl", "acl"),
            ("nopassthrough", "nopassthrough"),
            (f"backend={WORK}", "backend"),
        ):
            assert f"option {name} cannot change" in plfs(
                "mount", "-o", f"remount,{option}", mount.path, ok=False
            )
        assert "not known" in plfs("mount", "-o", "remount,fast", mount.path, ok=False)
        fd = os.open(f"{mount.path}/f", os.O_WRONLY)
        assert "open for writing" in plfs("mount", "-o", "remount,ro", mount.path, ok=False)
        os.unlink(f"{mount.path}/f")
        os.close(fd)
        plfs("mount", "-o", "remount,ro", mount.path)
        fails(errno.EROFS, write, f"{mount.path}/g", b"x")
        assert "not a PLFS mount" in plfs("mount", "-o", "remount,ro", mount.backend, ok=False)


def t_mount_8_mounts_and_remounts():
    # mount(8) looks for helpers in /sbin only: in a mount namespace of its own that has nothing but
    # ours.
    os.makedirs(f"{WORK}/m8.b"), os.makedirs(f"{WORK}/m8.m")
    script = """set -e
        mount -t tmpfs none "$(realpath /sbin)"; ln -s "$PLFS" /sbin/mount.fuse.plfs
        mount --fake -t fuse.plfs $B $M; ! mountpoint -q $M
        mount -t fuse.plfs $B $M -o noatime,threads=3; echo one > $M/f
        mount -o remount,ro $M; ! touch $M/g 2> /dev/null; [ $(cat $M/f) = one ]; grep -q " $M fuse.plfs ro,nosuid,nodev,noatime," /proc/mounts
        mount -o remount,rw $M; echo two > $M/f
        ! mount -o remount,threads=5 $M 2> $B/said; grep -q 'threads cannot change' $B/said
        umount $M"""
    env = {**os.environ, "PLFS": PLFS, "B": f"{WORK}/m8.b", "M": f"{WORK}/m8.m"}
    done = subprocess.run(
        ["unshare", "-m", "bash", "-xc", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert plfs("cat", f"{WORK}/m8.b/f") == "two\n"


def t_mount_8_mounts_without_our_helper():
    # Then mount(8) takes libfuse's, which runs `plfs SOURCE MOUNTPOINT -o OPTIONS`, and asks for
    # dev and suid though nobody said so.
    helper = shutil.which("mount.fuse3", path="/sbin:/usr/sbin")
    if not helper:
        raise Skipped("no mount.fuse3")
    os.makedirs(f"{WORK}/m3.b"), os.makedirs(f"{WORK}/m3.m")
    script = """set -e
        mkdir $B/sbin; cp $HELPER $B/sbin/mount.fuse3; ln -s mount.fuse3 $B/sbin/mount.fuse; mount --bind $B/sbin "$(realpath /sbin)"
        mount -t tmpfs none /usr/local/bin; ln -s "$PLFS" /usr/local/bin/plfs; export PATH=/usr/local/bin:/usr/bin:/bin
        mount -t fuse.plfs $B $M -o noatime,threads=3; echo one > $M/f
        grep -q " $M fuse.plfs rw,nosuid,nodev,noatime," /proc/mounts; [ "$(plfs stat --mounts | grep -c '3 threads')" = 1 ]
        mount -o remount,ro $M; ! touch $M/g 2> /dev/null; [ $(cat $M/f) = one ]; umount $M
        ! mount -t fuse.plfs $B $M -o fast 2> $B/said; grep -q 'plfs mount --help' $B/said"""
    env = {**os.environ, "PLFS": PLFS, "HELPER": helper, "B": f"{WORK}/m3.b", "M": f"{WORK}/m3.m"}
    done = subprocess.run(
        ["unshare", "-m", "bash", "-xc", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert plfs("cat", f"{WORK}/m3.b/f") == "one\n"


def t_the_systemd_unit():
    if not (shutil.which("systemd-analyze") and shutil.which("systemd-escape")):
        raise Skipped("no systemd-analyze")
    backend, path = f"{WORK}/unit b", f"{WORK}/unit.m"
    os.makedirs(backend), os.makedirs(path)
    with open(f"{os.path.dirname(PLFS)}/../lib/systemd/system/plfs@.service") as file:
        # As make install does.
        text = file.read().replace("=plfs ", f"={PLFS} ")
    write(f"{WORK}/plfs@.service", text.encode())
    name = subprocess.check_output(
        ["systemd-escape", "-p", "--template", "plfs@.service", path], text=True
    ).strip()
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", f"{WORK}/{name}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    os.path.exists(f"{WORK}/{name}") and os.unlink(f"{WORK}/{name}")
    said = [line for line in (done.stdout + done.stderr).splitlines() if "plfs" in line]
    assert done.returncode == 0 and not said, (done.returncode, said)
    # What systemd would do with its lines, for a text in /etc/plfs of these two.
    unit = [
        line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#")
    ]
    only = dict(unit)
    assert only["Type"] == "notify" and only["EnvironmentFile"] == "/etc/plfs/%i.conf"
    env = {
        **dict([only["Environment"].split("=", 1)]),
        "BACKEND": backend,
        "OPTIONS": "noatime,threads=3",
    }

    def command(line):
        words = [word.replace("%f", path) for word in line.split()]
        return [env[word[2:-1]] if word.startswith("${") else word for word in words]

    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.bind(f"{WORK}/notify.unit")
    systemd.settimeout(30)
    own = {"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": f"{WORK}/notify.unit", "JOURNAL_STREAM": "8:1"}
    daemon = subprocess.Popen(
        command(only["ExecStart"]), env=own, stderr=subprocess.PIPE, text=True
    )
    assert (
        systemd.recv(100) == b"READY=1" and os.path.ismount(path) and "noatime" in options_of(path)
    )
    assert json.loads(os.getxattr(path, "user.plfs.mount"))["pid"] == daemon.pid
    write(f"{path}/f", b"through the unit")
    subprocess.run(command(only["ExecStop"]), env=own, check=True, timeout=60)
    assert (
        daemon.wait(10) == 0
        and not os.path.ismount(path)
        and plfs("cat", f"{backend}/f") == "through the unit"
    )
    # The journal takes the level from the number in front.
    assert daemon.stderr.read().startswith("<6>mounted ")


def t_messages_go_to_syslog():
    # With a /dev of its own, in which the test listens where syslog does.
    os.makedirs(f"{WORK}/log.b"), os.makedirs(f"{WORK}/log.m"), os.makedirs(f"{WORK}/log.dev")
    prepare = """set -e; mount -t tmpfs none $D; mkdir $D/shm; mknod -m 666 $D/null c 1 3; mknod -m 666 $D/urandom c 1 9; mknod -m 666 $D/fuse c 10 229; mount --move $D /dev
        exec python3 "$0" "$@" """
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", prepare, sys.argv[0], WORK, PLFS, "syslog_in_a_namespace"],
        env={**os.environ, "D": f"{WORK}/log.dev"},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def syslog_in_a_namespace():
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind("/dev/log")
    listener.settimeout(10)
    backend, path = f"{WORK}/log.b", f"{WORK}/log.m"

    def wait_for(level, text):
        """The next message with this text, which must have this level and be the daemon's: facility
        3, a time, name and process."""
        while True:
            said = listener.recv(10_000).decode()
            if text in said:
                assert said.startswith(f"<{3 * 8 + level}>") and f" plfs[{pid}]: " in said, said
                return said

    plfs("mount", path, "--backend", backend)
    pid = json.loads(os.getxattr(path, "user.plfs.mount"))["pid"]
    wait_for(6, f"mounted {backend} on {path}")
    write(f"{path}/f", b"x" * 50_000)
    plfs("log", "--level", "trace", path)
    fails(errno.ENOENT, os.stat, f"{path}/nothing")
    wait_for(7, "lookup: ")
    plfs("log", "--level", "warn", path)
    time.sleep(0.1)
    for where, _, names in os.walk(f"{backend}/.plfs"):
        for name in names:
            if name.endswith(".data"):
                os.truncate(os.path.join(where, name), 100)
    fails(errno.EIO, read, f"{path}/f")
    wait_for(3, ".data has")
    fd = os.open(f"{path}/f", os.O_RDONLY)
    os.kill(pid, signal.SIGTERM)
    assert "signal to end" not in wait_for(4, "is in use")
    os.close(fd)
    wait_for_end(pid)


def t_a_name_that_others_replace_can_always_be_opened():
    """The kernel looks a name up and then opens the file; when another mount or door renamed over
    the name in between, or before the first read, it was ESTALE, once in 50 opens. And what the
    kernel knew of the size was of another file that had had the number: a read ended there."""
    replace = """import os, sys, time
end, i = time.time() + 4, 0
while time.time() < end:
    with open("new", "wb") as file: file.write(b"%08d" % i * (i % 19 + 1))
    os.rename("new", "f"); i += 1
print(i)"""
    with Mounted("replaced") as mount:
        other = f"{WORK}/replaced.other"
        os.makedirs(other)
        plfs("mount", other, "--backend", mount.backend)
        try:
            for where, command in (
                (mount.backend, [PLFS, "run", "--mount", mount.backend, "--"]),
                (other, []),
            ):
                write(f"{mount.path}/f", b"%08d" % 0)
                replacing = subprocess.Popen(
                    [*command, sys.executable, "-c", replace], cwd=where, stdout=subprocess.PIPE
                )
                opened, errors = 0, []
                while replacing.poll() is None:
                    try:
                        said = read(f"{mount.path}/f")
                        opened += 1
                        assert said == said[:8] * (int(said[:8]) % 19 + 1), said
                    except OSError as error:
                        errors.append(f"{error} after {opened}")
                assert replacing.wait() == 0 and not errors and opened > 20, (
                    len(errors),
                    errors[:3],
                    opened,
                )
                assert int(replacing.stdout.read()) > 20
        finally:
            plfs("umount", other)
        plfs("umount", mount.path)
        # Whatever was kept open for a moment is gone.
        said = plfs("check", mount.backend)
        is_plain = os.environ.get("PLFS_WORKLOAD") == "auto"
        assert said.strip() == ("there are no PLFS files" if is_plain else "1 healthy"), said


def as_ordinary_user(script):
    """Runs a text for bash as a user who may use /dev/fuse, as on most systems: through a copy of
    it, in a mount namespace of its own. The user's are $W/b and $W/m."""
    if subprocess.run(
        ["sh", "-c", "command -v fusermount3 setpriv"], capture_output=True
    ).returncode:
        raise Skipped("no fusermount3 or no setpriv")
    # Above WORK is only root's.
    where = tempfile.mkdtemp(prefix="plfs-fuse-user.", dir=os.path.dirname(WORK))
    try:
        prepare = """set -e; mkdir $W/dev $W/b $W/m $W/m2 $W/no; chown 65534:65534 $W/b $W/m $W/m2; chmod 755 $W; cp "$PLFS" $W/plfs
            mount -t tmpfs none $W/dev
            mknod -m 666 $W/dev/fuse c 10 229 && : < $W/dev/fuse || exit 77
            mount --bind $W/dev/fuse /dev/fuse
            exec setpriv --reuid 65534 --regid 65534 --clear-groups bash -exc "$SCRIPT" """
        env = {
            **os.environ,
            "PLFS": PLFS,
            "W": where,
            "P": f"{where}/plfs",
            "SCRIPT": "cd $W; " + script,
        }
        done = subprocess.run(
            ["unshare", "-m", "bash", "-c", prepare],
            env=env,
            capture_output=True,
            text=True,
            timeout=90,
        )
        if done.returncode == 77:
            raise Skipped(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        shutil.rmtree(where, ignore_errors=True)


def t_a_mount_by_an_ordinary_user():
    as_ordinary_user("""$P mount m --backend b
        echo one > m/f; mkdir m/d; mv m/f m/d/g; chmod 600 m/d/g; ln m/d/g m/h; rm m/d/g; truncate -s 2 m/h; [ "$(cat m/h)" = on ]; [ "$(stat -c '%U %a %h' m/h)" = 'nobody 600 1' ]
        echo plain > b/p; [ $(cat m/p) = plain ]
        $P mount -o remount,ro m 2>&1 | grep 'not permitted'
        $P mount m2 --backend no 2>&1 | grep 'Permission denied'
        if ! grep -qx user_allow_other /etc/fuse.conf; then
            $P mount m2 --backend b -o allow_other 2>&1 | grep user_allow_other
        fi
        exec 7< m/h; $P umount m 2>&1 | grep 'in use'; exec 7<&-
        $P umount m; [ "$(ls m)" = '' ]; [ "$($P cat b/h)" = on ]
        $P mount m --backend b; pid=$(getfattr --only-values -n user.plfs.mount m | grep -o '"pid":[0-9]*' | cut -d: -f2); kill -9 $pid
        while kill -0 $pid 2> /dev/null; do sleep 0.05; done; ! cat m/h; $P umount m; $P mount m --backend b; [ "$(cat m/h)" = on ]; $P umount m; $P check b""")


def t_a_mount_in_a_user_namespace():
    as_ordinary_user("""unshare -Urm true || { echo no user namespaces here >&2; exit 77; }
        unshare -Urm bash -exc '$P mount m --backend b; echo one > m/f; chown 0:0 m/f; chmod 4755 m/f; [ "$(stat -c "%u %a" m/f)" = "0 4755" ]; $P umount m'
        [ "$($P cat b/f)" = one ]; [ "$(stat -c '%U %a' b/f)" = 'nobody 4755' ]; $P check b""")


class Tmpfs:
    """File systems of their own, with room for so many MiB each."""

    def __init__(self, *sizes):
        self.paths = [f"{WORK}/tmpfs{i}" for i in range(len(sizes))]
        for path, size in zip(self.paths, sizes):
            os.makedirs(path, exist_ok=True)
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=755", "none", path], check=True
            )

    def __enter__(self):
        return self.paths

    def __exit__(self, *_):
        for path in self.paths:
            subprocess.run(["umount", "--lazy", path], capture_output=True)


def mount_of(name, backends, *options, ok=True):
    path = f"{WORK}/{name}.m"
    os.makedirs(path, exist_ok=True)
    said = plfs(
        "mount",
        path,
        *(word for backend in backends for word in ("--backend", backend)),
        *options,
        ok=ok,
    )
    return path if ok else said


def room(path):
    stat = os.statvfs(path)
    return stat.f_blocks * stat.f_frsize, stat.f_bfree * stat.f_frsize


def stored(backend):
    return sum(
        os.path.getsize(os.path.join(where, name))
        for where, _, names in os.walk(backend)
        for name in names
        if name.endswith(".data")
    )


def t_several_backends():
    with Tmpfs(40, 24) as (one, two):
        path = mount_of("several", (one, two))
        try:
            # A directory on the first one's file system counts once; of the two the sum.
            assert room(path)[0] == room(one)[0] + room(two)[0] == 64 << 20
            free = room(path)[1]
            for i in range(16):
                write(f"{path}/{i}", b"%02d" % i * 100_000)
            os.sync()
            used = [stored(backend) for backend in (one, two)]
            assert min(used) >= 200_000 and sum(used) >= 16 * 200_000, used
            assert all(read(f"{path}/{i}") == b"%02d" % i * 100_000 for i in range(16))
            assert (
                os.listdir(two) == [".plfs"] and os.stat(f"{two}/.plfs").st_mode & 0o7777 == 0o1777
            )
            status = json.loads(os.getxattr(path, "user.plfs.mount"))
            assert status["backends"] == [one, two] and f"keeps data in {two}" in plfs(
                "stat", "--mounts"
            )
            for i in range(16):
                os.truncate(f"{path}/{i}", 0) if i % 2 else os.unlink(f"{path}/{i}")
            # What a mount truncated it goes on to own until the close; afterwards all is free.
            for i in range(1, 16, 2):
                os.unlink(f"{path}/{i}")
            assert [stored(backend) for backend in (one, two)] == [0, 0]
            assert free - room(path)[1] < 1 << 20
        finally:
            plfs("umount", path)
        assert plfs("check", one, two)


def t_backends_on_one_file_system_count_once():
    for name in ("once.a", "once.b"):
        os.makedirs(f"{WORK}/{name}")
    path = mount_of("once", (f"{WORK}/once.a", f"{WORK}/once.b"))
    assert room(path)[0] == room(WORK)[0]
    plfs("umount", path)


def as_user(uid, work):
    def act():
        os.setgroups([])
        os.setgid(uid), os.setuid(uid)
        work()

    in_child(act)


def t_data_on_all_backends_is_the_owners():
    # Above WORK is only root's.
    path = tempfile.mkdtemp(prefix="plfs-fuse-user.", dir=os.path.dirname(WORK))
    with Tmpfs(24, 24) as (one, two):
        plfs("mount", path, "--backend", one, "--backend", two)
        try:
            os.chmod(path, 0o777)

            def makes():
                for i in range(12):
                    write(f"{path}/{i}", b"x" * 10_000)
                    os.chmod(f"{path}/{i}", 0o666 if i % 2 else 0o600)

            as_user(65534, makes)
            for i in range(12):
                write(f"{path}/{i}", b"root's", os.O_WRONLY | os.O_APPEND)
            os.chown(f"{path}/3", 1, 1)
            with open(f"{path}/5", "ab") as file:
                # A file that changes hands while it is open: what comes now is the new owner's, on
                # every backend.
                file.write(b"before"), file.flush()
                os.fchown(file.fileno(), 1, 1)
                file.write(b"after"), file.flush()
            assert read(f"{path}/5").endswith(b"root'sbeforeafter")
            new = {
                os.getxattr(f"{path}/{i}", "user.plfs.layout")
                .decode()
                .split()[0]
                .rsplit("/", 2)[1:][1]
                for i in (3, 5)
            }
            found = 0
            for backend in (one, two):
                for where, dirs, names in os.walk(f"{backend}/.plfs"):
                    depth = where[len(backend) :].count("/")
                    for entry in (
                        [where] + [os.path.join(where, name) for name in names]
                        if depth >= 3
                        else []
                    ):
                        found += 1
                        stat = os.lstat(entry)
                        assert stat.st_uid in (
                            (1, 65534) if any(name in entry for name in new) else (65534,)
                        ), (entry, stat.st_uid)
                        if depth == 3 and entry == where:
                            assert stat.st_mode & 0o7777 in (0o700, 0o777), (
                                entry,
                                oct(stat.st_mode),
                            )
            assert found > 40
            as_user(
                1,
                lambda: (
                    fails(errno.EACCES, read, f"{path}/0"),
                    None if len(read(f"{path}/1")) == 10_006 else 1 / 0,
                ),
            )
            for i in range(12):
                os.unlink(f"{path}/{i}")
            assert [stored(backend) for backend in (one, two)] == [0, 0]
        finally:
            plfs("umount", path)
            os.rmdir(path)


def t_a_backend_that_is_not_there():
    with Tmpfs(24, 24) as (one, two):
        path = mount_of("gone", (one, two))
        # An append fails only where its new log belongs on the missing backend: a quarter of them.
        files = range(80)
        for i in files:
            write(f"{path}/{i}", b"%d" % i * 1000)
        # The daemon holds its backends: nobody unmounts them under it.
        assert subprocess.run(["umount", two], capture_output=True).returncode != 0
        plfs("umount", path)
        away = f"{WORK}/away"
        os.makedirs(away)
        subprocess.run(["mount", "--move", two, away], check=True)
        # An empty directory where the backend should be.
        said = mount_of("gone", (one, two), ok=False)
        assert "has no .plfs" in said and two in said and "is its file system mounted" in said, said
        path = mount_of("gone", (one, two), "-o", "ro")
        lost = 0
        for i in files:
            try:
                assert read(f"{path}/{i}") == b"%d" % i * 1000
            except OSError as error:
                assert error.errno == errno.EIO
                lost += 1
        assert 0 < lost and two in plfs("log", path)
        plfs("umount", path)
        # Forgotten on the command line: nothing is written where it does not belong.
        path = mount_of("gone", (one,))
        refused = 0
        for i in files:
            try:
                write(f"{path}/{i}", b"+", os.O_WRONLY | os.O_APPEND)
            except OSError as error:
                assert error.errno == errno.EIO, error
                refused += 1
        said = plfs("log", path)
        assert (
            refused
            and os.listdir(two) == []
            and two in said
            and "is its file system mounted" in said
        ), said
        plfs("umount", path)
        subprocess.run(["mount", "--move", away, two], check=True)
        path = mount_of("gone", (one,), "-o", f"backend={two}")
        for i in files:
            assert read(f"{path}/{i}").startswith(b"%d" % i * 1000)
            write(f"{path}/{i}", b"!", os.O_WRONLY | os.O_APPEND)
            assert read(f"{path}/{i}").endswith(b"!")
        plfs("umount", path)
        assert "corrupt" not in plfs("check", one)


def t_a_backend_that_cannot_be_written():
    with Tmpfs(8, 8) as (one, two):
        subprocess.run(["mount", "-o", "remount,ro", two], check=True)
        said = mount_of("written", (one, two), ok=False)
        assert two in said and "Read-only" in said and "-o ro" in said, said
        path = mount_of("written", (one, two), "-o", "ro")
        # A remount cannot make it writable either.
        plfs("mount", "-o", "remount,rw", path)
        fails(errno.EROFS, write, f"{path}/f", b"x")
        assert two in plfs("log", path)
        subprocess.run(["mount", "-o", "remount,rw", two], check=True)
        write(f"{path}/f", b"x")
        plfs("umount", path)


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


def t_files_that_are_gone_leave_no_memory():
    # The daemon kept 2 KB for each file that was ever made in the mount, as an archive is unpacked
    # there: a million were 2 GB, a megabyte for each 500. Later it remembered what it had read of
    # files that somebody looked at a second after they were made: up to 60 MB of files that were
    # gone. What it frees it uses again, but not at once: at some time three rounds of 500 files
    # take less than a megabyte more.
    with Mounted("memory") as mount:

        def memory():
            with open(f"/proc/{mount.pid()}/status") as file:
                lines = dict(line.split(":", 1) for line in file)
            return int(lines["VmRSS"].split()[0])

        taken = [memory()]
        while len(taken) < 30:
            for i in range(500):
                write(f"{mount.path}/f{i}", b"x")
            time.sleep(1.2)
            for i in range(500):
                os.stat(f"{mount.path}/f{i}")
                os.unlink(f"{mount.path}/f{i}")
            time.sleep(0.5)
            taken.append(memory())
            if len(taken) > 6 and taken[-1] - taken[-4] < 1000:
                return
        raise AssertionError(f"it takes more and more KiB: {taken}")


if sys.argv[3:] == ["syslog_in_a_namespace"]:
    syslog_in_a_namespace()
else:
    main(globals(), sys.argv[3:])
