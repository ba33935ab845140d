"""The suites: where each comes from, how it is built, and which of its programs are run.

Nothing of them is in this tree. They come by the names of Debian's packages, in binary packages or
in source packages (`apt-get source`, with lists of our own, so that the machine's are left as they
are), for the version of the library or program that is installed.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ["CACHE"]) / "foreign"
# Neither is a test of files: they set the clock of the machine, or send signals to all processes.
UNSAFE = re.compile(
    r"settimeofday|clock_settime|adjtime|\bstime *\(|reboot *\(|kill *\( *-1|ptrace"
)


@dataclasses.dataclass
class Unit:
    name: str
    argv: list
    tree: pathlib.Path | None = None  # copied into the directory first
    cwd: str = "."
    env: dict = dataclasses.field(default_factory=dict)
    seconds: int = 60
    parse: typing.Callable | None = None  # of the output and a report: outcomes of checks by name

    def passed(self, check, outcome):
        """The status of a program counts only if it is all that it says."""
        return outcome == "0" if check == "" and not self.parse else outcome == "ok"


@dataclasses.dataclass
class Suite:
    name: str
    version: str = ""
    units: list = dataclasses.field(default_factory=list)
    doors: tuple = ("shared", "auto", "mount")
    by_turn: bool = False  # CI runs every fifth of its programs
    missing: str = ""  # why it cannot run


class Missing(Exception):
    pass


class NotNow(Exception):
    """Runs with T_FULL=1."""


def suite(function):
    """Gives what a maker of a suite raises as the reason why it cannot run; None: not now."""

    def make(full):
        made = Suite(function.__name__)
        try:
            function(made, CACHE / made.name, full)
        except NotNow:
            return None
        except (Missing, OSError, StopIteration, subprocess.CalledProcessError) as e:
            made.missing = f"{type(e).__name__} {e} {getattr(e, 'stderr', None) or ''}".strip()
        return made

    make.__name__ = function.__name__
    ALL.append(make)
    return make


ALL: list = []


def run(*argv, **kwargs):
    return subprocess.run(argv, check=True, capture_output=True, text=True, **kwargs).stdout


def installed(package):
    """The version of an installed package of Debian."""
    try:
        return run("dpkg-query", "-W", "-f=${source:Version}", package)
    except (OSError, subprocess.CalledProcessError):
        raise Missing(f"{package} is not installed, or this is no Debian") from None


def apt(*command, cwd):
    """apt-get with lists of its own, which name source packages as well."""
    lists = CACHE / "apt"
    if not (lists / "ready").exists():
        shutil.rmtree(lists, ignore_errors=True)
        for folder in ("parts", "lists/partial", "archives/partial"):
            (lists / folder).mkdir(parents=True)
        release = dict(
            line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines()
        )
        code = release.get("VERSION_CODENAME", "").strip('"')
        known = [
            *pathlib.Path("/etc/apt").glob("sources.list"),
            *pathlib.Path("/etc/apt").glob("sources.list.d/*"),
        ]
        uris = [
            uri
            for path in known
            for line in path.read_text().splitlines()
            if not line.startswith("#")
            for uri in re.findall(r"https?://\S+/debian/?(?=\s|$)", line)
        ]
        key = next(pathlib.Path("/usr/share/keyrings").glob("debian-archive-keyring.*"), None)
        if not uris or not code or not key:
            raise Missing("no mirror of Debian is known here")
        (lists / "parts/all.sources").write_text(
            f"Types: deb deb-src\nURIs: {uris[0]}\nSuites: {code}\nComponents: main\n"
            f"Signed-By: {key}\n"
        )
        apt_get(lists, "update", cwd=CACHE)
        (lists / "ready").touch()
    return apt_get(lists, *command, cwd=cwd)


def apt_get(lists, *command, cwd):
    settings = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": lists / "parts",
        "Dir::State::lists": lists / "lists",
        "Dir::Cache": lists,
        "APT::Sandbox::User": "root",
    }
    options = [x for k, v in settings.items() for x in ("-o", f"{k}={v}")]
    return run("apt-get", "-q", *options, *command, cwd=cwd)


def unpacked(cache, kind, package, archive, *members):
    """The folder of a package's files: of `archive` in it (a pattern), those that members name."""
    folder = cache / "unpacked"
    stamp = folder / "whole"
    wanted = " ".join([package, archive, *members])
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    shutil.rmtree(cache, ignore_errors=True)
    folder.mkdir(parents=True)
    if kind == "source":
        apt("source", "--download-only", package, cwd=cache)
    else:
        apt("download", package, cwd=cache)
        run("dpkg-deb", "-x", next(cache.glob("*.deb")), cache / "deb")
    found = sorted(cache.glob(archive))
    if not found:
        raise Missing(f"{package} has no {archive}")
    for one in found:
        # Not each archive has all of them; one that has none at all is found by who looks there.
        subprocess.run(
            ["tar", "xf", one, "-C", folder, "--wildcards", *members],
            capture_output=True,
            check=False,
        )
    stamp.write_text(wanted)
    for one in [*cache.glob("*.deb"), *cache.glob("*.orig.tar*")]:
        one.unlink()
    shutil.rmtree(cache / "deb", ignore_errors=True)
    return folder


def compile_all(jobs):
    """Compiles each (program, arguments of gcc) that is not there yet; what fails is left out."""

    def one(job):
        program, arguments = job
        failed = program.with_name(program.name + ".failed")
        if not program.exists() and not failed.exists():
            done = subprocess.run(
                ["gcc", "-w", "-o", program, *arguments], capture_output=True, check=False
            )
            if done.returncode:
                failed.write_bytes(done.stderr)
        return program if program.exists() else None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [program for program in pool.map(one, jobs) if program]


def chosen(names, full, quick):
    """All of them, or without T_FULL those of the quick part."""
    return [n for n in names if full or n in quick]


# ------------------------------------------------------------------------------------------ libc

# Folders of glibc's source, and which tests of them: those of files, streams, processes, signals
# and cancellation.
GLIBC = {
    "stdio-common": r"tst|test|bug|tstdiomisc|tfformat",
    "libio": r"tst|test|bug",
    "io": r"tst|test|bug|ftwtest",
    "posix": r"tst(?!-(rx|pcre|boost|getaddrinfo))|test|bug-glob|bug-ga|globtest|wordexp-test",
    "signal": r"tst",
    "dirent": r"tst|opendir|list",
    "misc": r"tst|test|bug",
    "rt": r"tst-(aio|shm|mq|timer)",
    "setjmp": r"tst|bug",
    "debug": r"tst|test",
    "wcsmbs": r"tst-(fgetw|wprintf|wscanf|wchar)",
    # tst-system takes the x bits of /bin/sh for a moment, as root: whatever runs beside it fails.
    "stdlib": r"tst-(exit|quick|atexit|at_quick|on_exit|canon|realpath|mkstemp|tempnam|tmpnam|abort)"
    r"|test-(canon|at_quick|on_exit|atexit)",
    "nptl": r"tst-(cancel|exec|popen|fork|stack|signal|_exit|exit|raise|cleanup|spawn|vfork)",
    "sysdeps/pthread": r"tst-(aio|cancel|cleanup|exec|fork|atfork|signal|kill|raise|exit|eintr|flock"
    r"|locale|stdio|vfork|pt-|unwind|umask|memstream|getpid|setuid|_exit)",
    "sysdeps/unix/sysv/linux": r"tst-",
}
# Those that CI runs: which have found something, and some of each kind.
GLIBC_QUICK = """
    libio/tst-freopen libio/tst-ext2 io/tst-close_range posix/tst-execveat posix/tst-getopt-cancel
    misc/tst-mntent-autofs stdio-common/tst-fseek stdio-common/test-popen stdio-common/tst-ungetc
    stdio-common/test-fseek libio/tst-popen1 io/test-lfs io/tst-fcntl io/tst-copy_file_range
    io/tst-posix_fallocate io/tst-mkdirat io/tst-fts io/tst-renameat posix/tst-preadwrite
    posix/tst-exec posix/tst-spawn posix/tst-vfork1 rt/tst-aio misc/tst-preadvwritev
    sysdeps/pthread/tst-fork1 sysdeps/pthread/tst-signal1 signal/tst-sigaction
    sysdeps/unix/sysv/linux/tst-ofdlocks
""".split()


@suite
def glibc(made, cache, full):
    made.version = installed("libc6")
    source = next(
        unpacked(
            cache,
            "binary",
            "glibc-source",
            "deb/usr/src/glibc/glibc-*.tar.xz",
            *(
                f"*/{d}/*"
                for d in [
                    *GLIBC,
                    "support",
                    "include",
                    "malloc",
                    "sysdeps/x86_64",
                    "sysdeps/generic",
                ]
            ),
            "*/test-skeleton.c",
        ).glob("glibc-*")
    )
    # The headers of the library itself must not come before those that are installed.
    here = source / "ours"
    if not (here / "libsupport.a").exists():
        shutil.rmtree(here, ignore_errors=True)
        (here / "bin").mkdir(parents=True)
        shutil.copytree(source / "support", here / "inc/support")
        (here / "inc/malloc").mkdir()
        for name in (
            "array_length",
            "libc-diag",
            "intprops",
            "libc-pointer-arith",
            "scratch_buffer",
        ):
            shutil.copy(source / f"include/{name}.h", here / "inc")
        shutil.copy(source / "sysdeps/x86_64/stackinfo.h", here / "inc")
        for path in source.glob("malloc/dynarray*"):
            shutil.copy(path, here / "inc/malloc")
        (here / "inc/config.h").touch()
        shutil.copy(source / "test-skeleton.c", here / "inc")
        objects = compile_all(
            (
                here / f"{c.stem}.o",
                [*FLAGS, f"-I{here}/inc", f"-I{here}/inc/support", "-O0", "-c", c],
            )
            for c in sorted((here / "inc/support").glob("*.c"))
            if not re.match(
                r"tst-|test-|README|.*((blob|string)_main|-container|-time64)\.c|links-", c.name
            )
        )
        run("ar", "rc", here / "libsupport.a", *objects)
    # The locales that some need. The package `locales` is not everywhere.
    env = {"LOCPATH": str(here / "locale")}
    if full:
        data = unpacked(
            cache / "locales",
            "binary",
            "glibc-source",
            "deb/usr/src/glibc/glibc-*.tar.xz",
            "*/localedata/*",
        )
        env["I18NPATH"] = str(next(data.glob("*/localedata")))
    (here / "locale").mkdir(exist_ok=True)
    for locale in LOCALES if full else ():
        if not (here / "locale" / locale).exists():
            name, _, charmap = locale.partition(".")
            subprocess.run(
                [
                    "localedef",
                    "--no-archive",
                    "-c",
                    "-i",
                    name,
                    "-f",
                    charmap,
                    here / "locale" / locale,
                ],
                env=dict(os.environ, **env),
                capture_output=True,
                check=False,
            )
    tests = {}
    for folder, pattern in GLIBC.items():
        for c in sorted((source / folder).glob("*.c")):
            name = f"{folder}/{c.stem}"
            if (
                re.match(pattern, c.stem)
                and not UNSAFE.search(c.read_text(errors="replace"))
                and (full or name in GLIBC_QUICK)
            ):
                tests[here / "bin" / name.replace("/", "+")] = (name, c)
    programs = compile_all(
        (
            program,
            [
                *FLAGS,
                f"-I{here}/inc",
                "-iquote",
                c.parent,
                "-iquote",
                source / "io",
                *(
                    x
                    for d in (c.parent, source, source / "sysdeps/generic")
                    for x in ("-idirafter", d)
                ),
                '-DOBJPFX="./"',
                c,
                here / "libsupport.a",
                "-pthread",
                "-lrt",
                "-lm",
            ],
        )
        for program, (_, c) in tests.items()
    )
    itself = re.compile(r"^(\S+)-ARGS *= *(.*\$\(host-test-program-cmd\).*)$", re.M)
    arguments = {}
    for folder in GLIBC:
        makefile = source / folder / "Makefile"
        if makefile.exists():
            arguments |= {f"{folder}/{n}": a for n, a in itself.findall(makefile.read_text())}
    for program in programs:
        name = tests[program][0]
        extra = arguments.get(name, "").replace("$(host-test-program-cmd)", str(program))
        made.units.append(
            Unit(name, ["sh", "-c", f"exec {program} {extra}"] if extra else [program], env=env)
        )


LOCALES = (
    "de_DE.UTF-8 en_US.UTF-8 de_DE.ISO-8859-1 en_US.ISO-8859-1 ja_JP.EUC-JP ja_JP.UTF-8".split()
)
FLAGS = [
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-DMODULE_NAME=testsuite",
    "-Dattribute_hidden=",
    "-O1",
    "-DTIMEOUTFACTOR=1",
    *(
        f'-D{x}_PATH="/nowhere"'
        for x in "SRCDIR OBJDIR OBJDIR_ELF_LDSO INSTDIR LIBDIR BINDIR SBINDIR"
        " SLIBDIR ROOTSBINDIR COMPLOCALEDIR".split()
    ),
    "-D__set_errno(x)=(errno=(x))",
    "-D__fstatat64=fstatat64",
    "-Dlibc_hidden_proto(x)=",
    "-Dlibc_hidden_def(x)=",
    "-include",
    "limits.h",
]


# ----------------------------------------------------------------------------------------- POSIX

# Interfaces of the Open POSIX Test Suite that are about files, maps, processes and signals.
POSIX = (
    "aio_* lio_listio fork fsync kill killpg raise mmap munmap mlock* munlock* shm_* sig* nanosleep"
    " pthread_atfork pthread_kill pthread_sigmask pthread_cancel pthread_testcancel"
    " pthread_setcancel* clock_nanosleep"
).split()


# They say that they wait for the thread after it may have said that it is done, and then wait for
# ever: one run in ten, in a plain directory as well. The last two return from main while libc
# writes to their aiocb there, which is then the stack of what exit calls: they may crash.
RACY = {"sigpause/2-1", "sigpause/3-1", "aio_fsync/8-1", "aio_fsync/8-2"}


@suite
def posix(made, cache, full):
    if not full:
        raise NotNow
    made.version = "posixtestsuite 1.5.2"
    source = unpacked(cache, "source", "posixtestsuite", "*.orig.tar.*", "*") / "posixtestsuite"
    (cache / "bin").mkdir(exist_ok=True)
    tests = {}
    for interface in POSIX:
        for c in sorted((source / "conformance/interfaces").glob(f"{interface}/*.c")):
            numbers = re.fullmatch(r"(\d+)-(\d+)", c.stem)
            # Of those that do one thing with each of 26 signals or more, two.
            if not numbers or int(numbers[2]) > (2 if "/sigaction" in str(c) else 99):
                continue
            text = c.read_text(errors="replace")
            if UNSAFE.search(text) or f"{c.parent.name}/{c.stem}" in RACY:
                continue
            # They ask for the options of the POSIX of their day.
            if "!= 200112L" in text:
                c.write_text(text.replace("!= 200112L", "< 200112L"))
            tests[cache / "bin" / f"{c.parent.name}+{c.stem}"] = c
    programs = compile_all(
        (
            program,
            [
                "-std=gnu99",
                "-D_GNU_SOURCE",
                "-D_XOPEN_SOURCE=700",
                "-O1",
                f"-I{source}/include",
                f"-I{c.parent}",
                c,
                "-pthread",
                "-lrt",
                "-lm",
            ],
        )
        for program, c in tests.items()
    )
    made.units = [Unit(p.name.replace("+", "/"), [p], seconds=30) for p in programs]


# --------------------------------------------------------------------------------------- CPython

CPYTHON = (
    "test_io test_os test_fileio test_file test_subprocess test_mmap test_signal test_posix"
    " test_shutil test_tempfile test_pathlib test_fcntl test_select test_largefile test_bufio"
    " test_zipfile test_tarfile test_gzip test_bz2 test_lzma test_shelve test_dbm_dumb test_mailbox"
    " test_fileinput test_genericpath test_posixpath test_glob test_filecmp test_univnewlines"
    " test_threadedtempfile test_eintr test_pty test_openpty test_popen test_cmd_line test_threadsignals"
    " test_sqlite3 test_linecache test_logging test_memoryio test_dbm_gnu test_stat test_netrc"
    " test_pickle test_plistlib test_configparser test_csv test_codecs test_ioctl test_resource test_wave"
).split()
# Those that CI runs, two of them by turns.
CPYTHON_QUICK = (
    "test_fileio test_file test_tempfile test_mmap test_bufio"
    " test_largefile test_shutil test_fcntl test_glob test_shelve"
).split()


def junit(_, report):
    if not report.exists():
        return {"(report)": "none"}
    outcomes = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = re.sub(r" at 0x[0-9a-f]+", "", case.get("name", "?"))
        what = {child.tag for child in case}
        outcome = next((w for w in ("error", "failure", "skipped") if w in what), "ok")
        if name.startswith("setUpClass") or outcomes.get(name, "ok") == "ok":
            outcomes[name] = outcome
    return outcomes


@suite
def cpython(made, cache, full):
    python = next(
        (
            p
            for p in (sys.executable, "/usr/bin/python3")
            if subprocess.run(
                [p, "-c", "import test.test_io"], capture_output=True, check=False
            ).returncode
            == 0
        ),
        None,
    )
    if not python:
        raise Missing("no Python here has its tests (make deps gets them)")
    made.version = run(python, "-c", "import platform; print(platform.python_version())").strip()
    made.by_turn = True
    made.units = [
        Unit(
            test,
            [
                "sh",
                "-c",
                f'exec {python} -m test --junit-xml "$FOREIGN_REPORT" --tempdir "$FOREIGN_HERE" {test}',
            ],
            env={"PYTHONDONTWRITEBYTECODE": "1"},
            seconds=600,
            parse=junit,
        )
        for test in chosen(CPYTHON, full, CPYTHON_QUICK)
    ]


# ------------------------------------------------------------------------------------------ Perl

# Where in Perl's source, and where a test is started.
PERL = {
    "t": [
        "io/*.t",
        "op/{stat,inccode,chdir,exec,fork,kill0,die_exit,magic,utf8cache,readline,getppid,filetest,lfs,glob,rand,sselect,alarm,sysio,write,chop}.t",
    ],
    "lib": ["File/*.t", "DirHandle.t", "FileHandle.t", "SelectSaver.t", "Symbol.t"],
    "dist/IO": ["t/*.t"],
    "dist/PathTools": ["t/*.t"],
    "ext/POSIX": ["t/*.t"],
    "ext/Fcntl": ["t/*.t"],
    "ext/File-Find": ["t/*.t"],
    "ext/File-Glob": ["t/*.t"],
    "ext/IPC-Open3": ["t/*.t"],
    "ext/PerlIO-scalar": ["t/*.t"],
    "ext/PerlIO-via": ["t/*.t"],
    "cpan/File-Temp": ["t/*.t"],
    "cpan/File-Path": ["t/*.t"],
    "cpan/DB_File": ["t/*.t"],
    "ext/SDBM_File": ["t/*.t"],
}


def tap(text, _):
    outcomes = {}
    for line in text.splitlines():
        found = re.match(r"(not )?ok (\d+)(.*)", line)
        if found:
            todo = re.search(r"# *(todo|skip)", found[3], re.I)
            outcomes[found[2]] = "todo" if todo else "not ok" if found[1] else "ok"
    return outcomes


@suite
def perl(made, cache, full):
    if not full:
        raise NotNow
    version = installed("perl").split("-")[0]
    made.version = version
    source = next(
        unpacked(
            cache,
            "source",
            "perl",
            f"perl_{version}.orig.tar.xz",
            *(f"perl-{version}/{d}/*" for d in PERL),
            f"perl-{version}/MANIFEST",
        ).glob("perl-*")
    )
    folders = run(
        "perl", "-MConfig", "-e", 'print join " ", @Config{qw(archlibexp privlibexp)}'
    ).split()
    # The tests look for modules in lib, where all are that are installed.
    modules, trees = cache / "modules", cache / "trees"
    if not (trees / "ready").exists():
        shutil.rmtree(modules, ignore_errors=True)
        shutil.rmtree(trees, ignore_errors=True)
        for folder in folders:
            for path in sorted(pathlib.Path(folder).rglob("*")):
                here = modules / path.relative_to(folder)
                if path.is_file() and not here.exists():
                    here.parent.mkdir(parents=True, exist_ok=True)
                    here.symlink_to(path)
        for folder in PERL:
            tree = trees / folder.replace("/", "-")
            (tree / "t").mkdir(parents=True)
            for path in [
                *(source / "t").glob("*.pl"),
                source / "t/TEST",
                source / "t/harness",
                source / "t/README",
            ]:
                shutil.copy(path, tree / "t")
            for path in (source / "t/lib").glob("*.pl"):
                (tree / "t/lib").mkdir(exist_ok=True)
                shutil.copy(path, tree / "t/lib")
            for libraries in {tree / "lib", tree / folder / "lib"} - {tree / "lib/lib"}:
                if not (source / libraries.relative_to(tree)).exists() or libraries == tree / "lib":
                    libraries.parent.mkdir(parents=True, exist_ok=True)
                    libraries.symlink_to(modules)
            for pattern in ["io", "op", "lib/*.t"] if folder == "t" else ["*"]:
                for path in (source / folder).glob(pattern):
                    inside = "libtests" if folder == "lib" else folder
                    target = tree / inside / path.relative_to(source / folder)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if path.is_dir() and not (folder == "lib" and path.name == "unicore"):
                        shutil.copytree(path, target, dirs_exist_ok=True)
                    elif path.is_file() and folder != "lib" or path.suffix == ".t":
                        shutil.copy(path, target)
        (trees / "ready").touch()
    for folder, patterns in PERL.items():
        tree = trees / folder.replace("/", "-")
        inside = tree / ("libtests" if folder == "lib" else folder)
        for test in sorted({t for p in patterns for x in expand(p) for t in inside.glob(x)}):
            name = str(test.relative_to(inside))
            cwd = "t" if folder == "lib" else folder
            taint = re.match(r"#!.* (-\w*T\w*)", test.read_text(errors="replace"))
            made.units.append(
                Unit(
                    f"{folder}/{name}",
                    [
                        "perl",
                        *(["-T", "-I../../lib"] if taint else []),
                        f"../libtests/{name}" if folder == "lib" else name,
                    ],
                    tree=tree,
                    cwd=cwd,
                    env={"PERL_CORE": "1"},
                    seconds=120,
                    parse=tap,
                )
            )


def expand(pattern):
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern)
    return [found[1] + x + found[3] for x in found[2].split(",")] if found else [pattern]


# --------------------------------------------------------------------------------------- busybox


def passes(text, _):
    outcomes, seen = {}, {}
    for line in text.splitlines():
        found = re.match(r"(PASS|FAIL|SKIPPED|UNTESTED): (.*)", line)
        if found:
            seen[found[2]] = seen.get(found[2], 0) + 1
            name = found[2] + (f" ({seen[found[2]]})" if seen[found[2]] > 1 else "")
            outcomes[name] = {"PASS": "ok"}.get(found[1], found[1])
    return outcomes


# What the tests of an applet need besides what has its name.
BUSYBOX_NEEDS = {"bunzip2": ["bz2_issue*", "bzcat*"], "bzcat": ["bz2_issue*", "bunzip2*"]}


@suite
def busybox(made, cache, full):
    if not full:
        raise NotNow
    folder = unpacked(cache, "source", "busybox", "*.tar.*", "*/testsuite/*", "*/config/pkg/deb")
    source = next(folder.glob("busybox-*"))
    made.version = source.name.partition("-")[2]
    programs = cache / "bin"
    if not (programs / ".config").exists():
        shutil.rmtree(programs, ignore_errors=True)
        apt("download", "busybox", cwd=cache)
        run("dpkg-deb", "-x", next(cache.glob("*.deb")), programs)
        shutil.copy(programs / "bin/busybox", programs / "busybox")
        run(programs / "busybox", "true")
        script = source / "testsuite/runtest"
        # All runs share one folder of links.
        script.write_text(re.sub(r'(?m)^rm -rf "\$LINKSDIR".*$', "", script.read_text()))
        links = programs / "runtest-tempdir-links"
        links.mkdir()
        for applet in run(programs / "busybox", "--list").split():
            (links / applet).symlink_to(programs / "busybox")
        shutil.copy(folder / "debian/config/pkg/deb", programs / ".config")
    applets = {p.stem for p in (source / "testsuite").glob("*.tests")}
    applets |= {p.name for p in (source / "testsuite").iterdir() if p.is_dir()}
    have = set(run(programs / "busybox", "--list").split()) | {"busybox"}
    trees = cache / "trees"
    for applet in sorted(applets & have):
        tree = trees / applet
        if not tree.exists():
            tree.mkdir(parents=True)
            for pattern in ("runtest", "testing.sh", f"{applet}*", *BUSYBOX_NEEDS.get(applet, [])):
                for path in (source / "testsuite").glob(pattern):
                    if path.is_dir():
                        shutil.copytree(path, tree / path.name, dirs_exist_ok=True)
                    else:
                        shutil.copy(path, tree)
    made.units = [
        Unit(
            applet,
            ["./runtest", applet],
            tree=trees / applet,
            env={
                "bindir": str(programs),
                "ECHO": "/bin/echo",
                "SKIP_KNOWN_BUGS": "y",
                "SKIP_INTERNET_TESTS": "y",
                "SHELL": "/bin/sh",
                "LC_ALL": "C.UTF-8",
            },
            seconds=300,
            parse=passes,
        )
        for applet in sorted(applets & have)
    ]


# -------------------------------------------------------------------------------------------- Go

GO = "os io io/fs io/ioutil bufio path/filepath os/exec os/signal syscall archive/tar archive/zip log internal/poll".split()


def go_outcomes(text, _):
    return {
        name: "ok" if what == "PASS" else what
        for what, name in re.findall(r"(?m)^ *--- (PASS|FAIL|SKIP): (\S+)", text)
    }


@suite
def go(made, cache, full):
    if not full:
        raise NotNow
    if not shutil.which("go"):
        raise Missing("no go (golang-go, golang-src)")
    made.version = run("go", "env", "GOVERSION").strip()
    # It makes its own system calls, so that there is only the mount.
    made.doors = ("mount",)
    root = pathlib.Path(run("go", "env", "GOROOT").strip())
    (cache / "bin").mkdir(parents=True, exist_ok=True)
    env = {"GOCACHE": str(cache / "build"), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    for package in GO:
        program = cache / "bin" / f"{made.version}-{package.replace('/', '-')}.test"
        folder = root / "src" / package
        if not folder.exists():
            continue
        if not program.exists():
            subprocess.run(
                ["go", "test", "-c", "-o", program, package],
                check=True,
                capture_output=True,
                text=True,
                cwd=root / "src",
                env=dict(os.environ, GOCACHE=str(cache / "build")),
            )
        made.units.append(
            Unit(
                package,
                # Not the first of its session: os opens a terminal, which would become that of the
                # session, and end it with SIGHUP.
                ["sh", "-c", '"$0" -test.v -test.short; exit $?', program],
                tree=folder,
                env=env,
                seconds=600,
                parse=go_outcomes,
            )
        )


# ------------------------------------------------------------------------------------------ Java

JAVA = (
    "java/nio/channels/FileChannel java/nio/channels/FileLock java/nio/channels/AsynchronousFileChannel"
    " java/nio/MappedByteBuffer java/nio/file/Files java/nio/file/DirectoryStream java/nio/file/FileStore"
    " java/nio/file/FileSystem java/nio/file/Path java/nio/file/WatchService java/io/RandomAccessFile java/io/File"
    " java/io/FileInputStream java/io/FileOutputStream java/io/FileDescriptor java/io/FileReader"
    " java/io/FileWriter java/util/zip java/util/zip/ZipFile java/lang/ProcessBuilder"
).split()


@suite
def java(made, cache, full):
    version = run("javac", "-version").split()[1]
    if not full:
        # The program of tests/preload, which runs it under `plfs run`.
        made.version, made.doors = version, ("mount",)
        (cache / "bin").mkdir(parents=True, exist_ok=True)
        made.units = [
            Unit(
                "s_java",
                ["bash", HERE.parent / "preload/s_java.sh"],
                env={"T_BIN": str(cache / "bin")},
            )
        ]
        return
    major = version.split(".")[0]
    made.version = f"tests of OpenJDK {major}, run by {version}"
    source = next(
        unpacked(
            cache,
            "source",
            f"openjdk-{major}",
            "*.orig.tar.xz",
            *(f"*/test/jdk/{d}/*" for d in JAVA),
            "*/test/lib/jdk/test/lib/*",
        ).glob("openjdk-*")
    )
    classes = cache / "classes"
    jobs = []
    for folder in JAVA:
        for path in sorted((source / "test/jdk" / folder).glob("*.java")):
            text = path.read_text(errors="replace")
            runs = re.findall(r"(?m)^ *\*? *@run +(\S+) *(.*)$", text)
            # Plain programs only: no test framework, no class of another file, no options.
            if (
                "@test" not in text
                or any(how != "main" for how, _ in runs)
                or "void main(" not in text
                or re.search(r"@build|@modules|@key|@requires|org\.testng|\bLIMIT_MANUAL\b", text)
            ):
                continue
            first = runs[0][1].split() if runs else [path.stem]
            if first and not first[0].startswith("-"):
                jobs.append((path, first, folder))

    def build(job):
        path, _, folder = job
        out = classes / folder.replace("/", ".") / path.stem
        if not out.exists():
            out.mkdir(parents=True)
            done = subprocess.run(
                [
                    "javac",
                    "-nowarn",
                    "-d",
                    out,
                    "-sourcepath",
                    f"{path.parent}:{source}/test/lib",
                    path,
                ],
                capture_output=True,
                check=False,
            )
            if done.returncode:
                (out / "failed").write_bytes(done.stderr)
        return None if (out / "failed").exists() else out

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (path, first, folder), out in zip(jobs, pool.map(build, jobs), strict=True):
            if out:
                made.units.append(
                    Unit(
                        f"{folder}/{path.stem}",
                        [
                            "sh",
                            "-c",
                            f'exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Djava.io.tmpdir="$TMPDIR" -Dtest.src={path.parent} -Dtest.classes={out} -Dtest.jdk={java_home()} -cp {out}:{path.parent} {" ".join(first)}',
                        ],
                        seconds=120,
                    )
                )


def java_home():
    return str(pathlib.Path(shutil.which("java")).resolve().parent.parent)
