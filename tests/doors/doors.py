"""The doors, as behaviours.py uses them.

A door is a server program (one of posix.c, capi.c, mpi.c, door.rs) and where it finds its files.
Each process of a behaviour is one server, driven through pipes, so that a behaviour says in which
order several processes do what. A node is those processes that meet in one directory of shared
memory, or in one mount.
"""

import collections
import errno
import json
import os
import select
import shutil
import subprocess
import time

TIMEOUT_S = 30
FILES = 16


class Refused(Exception):
    """A call gave an error; its name is ENOENT or MPI_ERR_NO_SUCH_FILE."""

    @property
    def name(self):
        return self.args[0]


class Process:
    """One server. Every call is a line to it and a line from it; calls of behaviours that must not
    wait for each other use send and receive."""

    def __init__(self, door, node, user):
        self.door, self.node, self.user, self.directory = door, node, user, None
        who = {"user": user, "group": user, "extra_groups": []} if user else {}
        self.server = subprocess.Popen(
            door.command(),
            env=door.environment(node),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            umask=0o022,
            **who,
        )
        self.unread, self.free = b"", set(range(FILES))

    def path(self, name):
        return os.path.join(self.directory, name)

    def send(self, *words):
        self.server.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.server.stdin.flush()

    def receive(self):
        while b"\n" not in self.unread:
            if not select.select([self.server.stdout], [], [], TIMEOUT_S)[0]:
                raise TimeoutError("the call hangs")
            more = os.read(self.server.stdout.fileno(), 1 << 16)
            if not more:
                raise EOFError("the server has ended")
            self.unread += more
        line, self.unread = self.unread.split(b"\n", 1)
        word, _, value = line.decode().partition(" ")
        if word == "ok":
            return value.strip()
        raise Refused(errno.errorcode[int(value)] if value.isdigit() else value)

    def call(self, *words):
        self.send(*words)
        return self.receive()

    def open(self, name, flags, mode=0o666):
        handle = min(self.free)
        self.call("open", handle, self.path(name), flags, f"{mode:o}")
        self.free.discard(handle)
        return File(self, handle)

    def stat(self, name):
        return Stat.of(self.call("stat", self.path(name)))

    def names(self, name="."):
        return sorted(self.call("list", self.path(name)).split())

    def on_names(self, command, *names):
        """rename, link, unlink, mkdir, rmdir."""
        self.call(command, *map(self.path, names))

    def on_name(self, command, name, *values):
        """truncate, chmod (octal text), chown, utimens (ns)."""
        self.call(command, self.path(name), *values)

    def read(self, name, n=32768):
        """All of a file, through a new handle."""
        file = self.open(name, "r")
        try:
            return file.read(0, n)
        finally:
            file.close()

    def write(self, name, data, flags="rwc"):
        file = self.open(name, flags)
        assert not data or file.write(0, data) == len(data)
        file.close()

    def kill(self):
        """As kill -9 does."""
        self.server.kill()
        self.server.wait()

    def exit(self):
        """The program ends without closing anything."""
        self.send("exit")
        assert self.server.wait(TIMEOUT_S) == 0

    def is_alive(self):
        return self.server.poll() is None

    def end(self):
        self.server.stdin.close()
        try:
            self.server.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def close_all(self):
        for handle in set(range(FILES)) - self.free:
            try:
                self.call("close", handle)
            except Refused:
                pass
        self.free = set(range(FILES))


class Stat(collections.namedtuple("Stat", "size mode nlink uid gid mtime_ns blocks")):
    @classmethod
    def of(cls, said):
        words = said.split()
        return cls(*(int(word, 8 if i == 1 else 10) for i, word in enumerate(words)))


class File:
    """A handle of a process."""

    def __init__(self, process, handle):
        self.process, self.handle = process, handle

    def call(self, command, *words):
        return self.process.call(command, self.handle, *words)

    def write(self, at, data):
        return int(self.call("pwrite", at, data.hex()))

    def send_write(self, at, data):
        self.process.send("pwrite", self.handle, at, data.hex())

    def append(self, data):
        return int(self.call("append", data.hex()))

    def send_append(self, data):
        self.process.send("append", self.handle, data.hex())

    def read(self, at, n):
        return bytes.fromhex(self.call("pread", at, n).removeprefix("x"))

    def size(self):
        return int(self.call("size"))

    def stat(self):
        return Stat.of(self.call("fstat"))

    def truncate(self, size):
        self.call("ftruncate", size)

    def sync(self):
        self.call("sync")

    def close(self):
        self.process.free.add(self.handle)
        self.call("close")


class Door:
    """What behaviours ask of a door. `lacks`: what it has no calls for, and why. `commits`,
    `acquires`: its operations of that kind, as World knows them."""

    server = "posix"
    lacks = {}
    commits = ["sync", "datasync", "close", "exit", "exec", "unlock"]
    acquires = ["open", "sync", "lock"]
    is_plfs = True
    # Directories that have bytes of files, beside the storage.
    backends = ()
    # A new file is one of the file system below, with its limits.
    is_born_plain = False
    # Seconds until a node has seen what another did to names.
    settle_s = 0

    @classmethod
    def missing(cls, name, servers):
        """Why this door cannot be used here; None if it can."""
        return (
            None
            if os.path.exists(f"{servers}/{cls.server}")
            else f"no {cls.server} server: its compiler is not here"
        )

    def __init__(self, name, work, plfs, servers):
        self.name, self.plfs, self.servers = name, plfs, servers
        self.work, self.shared = f"{work}/{name}", f"/dev/shm/{os.path.basename(work)}.{name}"
        self.idle = collections.defaultdict(list)
        for directory in (
            self.storage(),
            self.storage(small=True),
            f"{self.shared}.0",
            f"{self.shared}.1",
        ):
            os.makedirs(directory)
            os.chmod(directory, 0o1777)
        mount = [
            "mount",
            "-i",
            "-t",
            "tmpfs",
            "-o",
            "size=2m,mode=1777",
            "plfs-test",
            self.storage(small=True),
        ]
        self.has_small = os.getuid() == 0 and subprocess.run(mount).returncode == 0
        self.start()

    def start(self):
        """`plfs run` makes the directories roots, also for doors that need no mount."""
        subprocess.check_call(self.run("/bin/true"))

    def lay_out_small(self):
        for small in False, True:
            layout = [self.plfs, "layout", "--workload", "small", self.storage(small)]
            subprocess.check_call(layout, stdout=subprocess.DEVNULL)

    def make_directory(self, directory):
        """An empty directory for a behaviour."""
        os.makedirs(directory)
        os.chmod(directory, 0o777)

    def stop(self):
        for process in sum(self.idle.values(), []):
            process.end()
        self.unmount()
        # Lazily: a daemon that ends may still have it.
        subprocess.run(["umount", "--lazy", self.storage(small=True)], capture_output=True)
        for directory in self.work, f"{self.shared}.0", f"{self.shared}.1":
            shutil.rmtree(directory, ignore_errors=True)

    def unmount(self):
        pass

    def storage(self, small=False):
        """Where the backend is."""
        return f"{self.work}/{'small' if small else 'storage'}"

    def place(self, node, small=False):
        """Where programs find it."""
        return self.storage(small)

    def run(self, *command):
        return [
            self.plfs,
            "run",
            "--mount",
            self.storage(),
            "--mount",
            self.storage(small=True),
            "--",
            *command,
        ]

    def command(self):
        return [f"{self.servers}/{self.server}"]

    def environment(self, node):
        return dict(os.environ, PLFS_SHARED_MEMORY=f"{self.shared}.{node}")

    def errors(self, name):
        """What the door has for an error number, by name."""
        return {name}


NO_DESCRIPTORS = {"exec": "a handle is no descriptor", "store": "has no maps"}


class Rust(Door):
    server = "door"
    lacks = dict(NO_DESCRIPTORS, lock="has no locks", signed="offsets are unsigned")
    commits = ["sync", "commit", "commit_all", "close", "exit"]
    acquires = ["open", "sync", "refresh"]


class C(Door):
    server = "capi"
    lacks = NO_DESCRIPTORS
    commits = ["sync", "commit", "commit_all", "close", "exit"]
    acquires = ["open", "sync", "refresh"]


class Preload(Door):
    def command(self):
        return self.run(f"{self.servers}/posix")


class PreloadSmall(Preload):
    """Small directories: new files go to packs. One node and one user: what others see a second
    later (P2) is a matter of the engine's tests."""

    lacks = {
        "container": "a new file is in a pack",
        "links": "a file of a pack has one name",
        "lock": "a file of a pack cannot be locked",
        "users": "processes of another user see it a second later",
        "small": "what a full file system does not take may be told by the sync only",
    }
    commits = ["sync", "datasync", "close", "exit", "exec"]
    acquires = ["open", "sync"]

    def environment(self, node):
        return super().environment(0)

    def start(self):
        super().start()
        self.lay_out_small()


class Fuse(Door):
    # One daemon for each node. Locks stay in the kernel, and exec does not close.
    commits = ["sync", "datasync", "close", "exit"]
    acquires = ["open", "sync"]
    settle_s = 1.1
    # Of which node, and of which storage.
    mounts = ((0, False), (1, False), (0, True))

    @classmethod
    def missing(cls, name, servers):
        return super().missing(name, servers) or (
            None if os.getuid() == 0 and os.path.exists("/dev/fuse") else "needs root and /dev/fuse"
        )

    def start(self):
        for node, small in self.mounts:
            os.makedirs(self.place(node, small))
            mount = [self.plfs, "mount", self.place(node, small), "--backend", self.storage(small)]
            subprocess.run(mount, env=self.environment(node), check=True, timeout=TIMEOUT_S)

    def unmount(self):
        for node, small in self.mounts:
            subprocess.run(
                [self.plfs, "umount", "--lazy", self.place(node, small)], timeout=TIMEOUT_S
            )

    def place(self, node, small=False):
        return f"{self.work}/mount.{'small' if small else node}"


def born_plain(of):
    """The door for files that are plain until others write them: the processes are of one node, and
    a file that two of them open for writing becomes a container."""

    class Auto(of):
        lacks = dict(of.lacks, container="a new file is plain")
        is_born_plain = True

        def environment(self, node):
            return dict(super().environment(0), PLFS_WORKLOAD="auto")

    return Auto


def flat(of):
    """Directories of the workload flat over four backends. A file that two processes of the node
    write becomes a container on its backend."""

    class Flat(born_plain(of)):
        lacks = dict(
            of.lacks,
            container="a new file is plain",
            small="names and bytes lie on several backends",
            layouts="a directory in a flat one has the layout of that",
        )

        def start(self):
            subprocess.check_call(self.run("/bin/true"))
            self.backends = [f"{self.work}/backend{i}" for i in range(3)]
            for backend in self.backends:
                os.makedirs(f"{backend}/.plfs")
                os.chmod(f"{backend}/.plfs", 0o1777)
                add = [self.plfs, "backend", "add", self.storage(), backend]
                subprocess.check_call(add, stdout=subprocess.DEVNULL)
            super().start()
            self.layer = Process(Layer(self), 0, 0)

        def make_directory(self, directory):
            """On the storage, where a mount has not looked at it yet."""
            flat = directory.replace(self.place(0) + "/", self.storage() + "/", 1)
            super().make_directory(flat)
            if flat.startswith(self.storage() + "/"):
                directory = flat
                self.layer.call("flat", directory)
                # The first name makes its shadows, which behaviours do not count.
                self.layer.directory = directory
                self.layer.write("first", b"")
                self.layer.on_names("unlink", "first")

        def stop(self):
            self.layer.end()
            super().stop()

    return Flat


class Layer(collections.namedtuple("Layer", "door")):
    """What makes directories flat for any door."""

    def command(self):
        return [f"{self.door.servers}/capi"]

    def environment(self, node):
        return self.door.environment(node)


class FuseSmall(Fuse):
    """A mount of small directories: new files go to packs. One for all nodes: what another one sees
    a second later (P2) is a matter of the engine's tests."""

    lacks = {"container": "a new file is in a pack", "links": "a file of a pack has one name"}
    mounts = ((0, False), (0, True))

    def start(self):
        subprocess.check_call(self.run("/bin/true"))
        self.lay_out_small()
        super().start()

    def place(self, node, small=False):
        return super().place(0, small)


class Mpi(Door):
    lacks = {
        "append": "MPI_MODE_APPEND only says where the file pointer begins",
        "names": "MPI-IO knows two calls on names, open and delete",
        "stat": "MPI-IO tells the size only",
        "lock": "MPI-IO has no locks but the atomic mode",
        "exec": "a handle is no descriptor",
        "store": "has no maps",
        "exit": "a program that ends without MPI_File_close is erroneous",
    }
    commits = ["sync", "ftruncate", "preallocate", "atomicity", "close"]
    acquires = ["open", "sync", "ftruncate", "preallocate", "atomicity"]

    @classmethod
    def missing(cls, name, servers):
        return None if os.path.exists(f"{servers}/{name}") else f"no mpicc.{name}"

    def command(self):
        return self.run(f"{self.servers}/{self.name}")

    def environment(self, node):
        return dict(
            super().environment(node),
            OMPI_ALLOW_RUN_AS_ROOT="1",
            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        )

    def errors(self, name):
        classes = {
            "ENOENT": "NO_SUCH_FILE",
            "EEXIST": "FILE_EXISTS",
            "EACCES": "ACCESS",
            "ENOSPC": "NO_SPACE",
            "EINVAL": "ARG",
            "EFBIG": "ARG",
        }
        classes |= {"ENOTDIR": "BAD_FILE", "ENAMETOOLONG": "BAD_FILE"}
        # A handle of the wrong mode has a class for each direction. A directory is not ours: what
        # the MPI says of it is its own (M10).
        classes |= {"EBADF": "ACCESS READ_ONLY", "EISDIR": "BAD_FILE IO OTHER"}
        return {f"MPI_ERR_{one}" for one in classes.get(name, "IO").split()}


class Plain(Door):
    """No door: what POSIX does on the file system below."""

    lacks = {"container": "a plain file has no container"}
    is_plfs = False
    is_born_plain = True

    def start(self):
        pass


DOORS = {
    "rust": Rust,
    "rust-auto": born_plain(Rust),
    "c": C,
    "c-auto": born_plain(C),
    "rust-flat": flat(Rust),
    "c-flat": flat(C),
    "preload-flat": flat(Preload),
    "preload": Preload,
    "preload-auto": born_plain(Preload),
    "preload-small": PreloadSmall,
    "fuse": Fuse,
    "fuse-auto": born_plain(Fuse),
    "fuse-flat": flat(Fuse),
    "fuse-small": FuseSmall,
    "mpich": Mpi,
    "openmpi": Mpi,
    "plain": Plain,
}


# Of commits and acquires that need some, for a file of 100 bytes.
ARGUMENTS = {"ftruncate": [100], "preallocate": [100], "atomicity": [1]}


class World:
    """What a behaviour has: processes, an empty directory, and questions about the storage
    below."""

    def __init__(self, door, name):
        self.door, self.name, self.used = door, name, []
        for directory in {self.door.place(0), self.door.place(0, small=True)}:
            door.make_directory(f"{directory}/{name}")
        self.small = f"{self.door.place(0, small=True)}/{name}"

    def wait_for_room(self):
        """A mount lets go of what the behaviour before it has removed a moment after its close."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            system = os.statvfs(self.door.storage(small=True))
            if system.f_bavail * 2 > system.f_blocks:
                break
            time.sleep(0.01)

    def process(self, node=0, user=0):
        idle = [process for process in self.door.idle[node, user] if process.is_alive()]
        process = idle.pop() if idle else Process(self.door, node, user)
        self.door.idle[node, user] = idle
        process.directory = f"{self.door.place(node)}/{self.name}"
        self.used.append(process)
        return process

    def below(self, name):
        """A file as it lies on the storage."""
        return f"{self.door.storage()}/{self.name}/{name}"

    def look(self, name):
        """What `plfs stat` says of a file or a directory."""
        stat = [self.door.plfs, "stat", "--json", self.below(name)]
        return json.loads(subprocess.check_output(stat))

    def container(self, name):
        return self.look(name)["container"]

    def lay_out(self, name, *options):
        """Sets the layout of a directory, where there are layouts."""
        if self.door.is_plfs:
            layout = [self.door.plfs, "layout", *options, self.below(name)]
            subprocess.check_call(layout, stdout=subprocess.DEVNULL)

    def remove(self, path):
        """Removes a file as it lies on the storage, unless it is in a pack and there is no room for
        the record that says so."""
        if os.path.exists(path):
            os.unlink(path)
        else:
            subprocess.run([self.door.plfs, "rm", path], capture_output=True)

    def used_kib(self):
        """What all files take on the storage."""
        du = ["du", "-skc", self.door.storage(), *self.door.backends]
        done = subprocess.run(du, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return int(done.stdout.split()[-2])

    def flatten(self, name):
        if self.door.is_plfs:
            flatten = [self.door.plfs, "flatten", self.below(name)]
            # On the node of the processes: others see a file of a pack a moment later (P2).
            node = self.door.environment(0)
            done = subprocess.run(flatten, env=node, capture_output=True, text=True)
            has_no_flat = "container" in self.door.lacks and (
                "not a PLFS file" in done.stderr or "it was a plain file" in done.stderr
            )
            assert not done.returncode or has_no_flat, done

    def refuses(self, name, call, *args):
        """The call gives this error, or what the door has for it."""
        try:
            value = call(*args)
        except Refused as refused:
            assert refused.name in self.door.errors(name), f"{refused.name} instead of {name}"
        else:
            raise AssertionError(f"{value} instead of {name}")

    def commit(self, how, file):
        """One of the door's ways to commit what was written through `file`."""
        if how == "close":
            file.close()
        elif how == "exit":
            file.process.exit()
        elif how in ("exec", "commit_all"):
            file.process.call(how)
        else:
            file.call(how, *ARGUMENTS.get(how, []))

    def acquire(self, how, file, name):
        """One of the door's ways to see what others committed; gives the handle to look through."""
        if how == "open":
            return file.process.open(name, "r")
        file.call(how, *ARGUMENTS.get(how, []))
        return file

    def end(self, keep):
        for process in self.used:
            if not process.is_alive():
                continue
            if keep:
                process.close_all()
                self.door.idle[process.node, process.user].append(process)
            else:
                process.kill()
