"""What the benchmark scripts share: the machine in words, programs built from C, runs under `plfs
run`, tables."""

import json, os, platform, shlex, shutil, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
MIB = 1 << 20


def machine(*dirs):
    """Without these a number means nothing: processors, kernel, file system, commit."""

    def out(*command):
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else "unknown"

    with open("/proc/cpuinfo") as lines:
        model = next(
            (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
            "unknown",
        )
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": model,
        "kernel": platform.release(),
        "ram_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB,
        "file_system": sorted({out("df", "--output=fstype", d).split()[-1] for d in dirs}),
        "commit": out("git", "-C", TOP, "describe", "--always", "--dirty", "--abbrev=12"),
    }


def build_c(source, build, compiler="cc", flags=()):
    """Compiles one C file below BUILD/bench, for each compiler, unless the program is newer than
    its source. Returns its path."""
    source = os.path.join(TOP, source)
    program = os.path.join(
        build, "bench", f"{os.path.basename(source)[:-2]}.{os.path.basename(compiler)}"
    )
    os.makedirs(os.path.dirname(program), exist_ok=True)
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
        subprocess.run(
            [compiler, "-O2", "-Wall", "-Wextra", "-o", program, source, *flags], check=True
        )
    return program


def cargo_example(package, name):
    """The path of an example program of a crate, compiled if need be."""
    run(
        [
            os.environ.get("CARGO", "cargo"),
            "build",
            "--profile",
            "dist",
            "--locked",
            "-q",
            "-p",
            package,
            "--example",
            name,
        ],
        cwd=TOP,
    )
    return os.path.join(TOP, os.environ.get("CARGO_TARGET_DIR", "target"), "dist", "examples", name)


def plfs_run(build, dirs):
    """The words in front of a command that send its files below `dirs` through PLFS."""
    return [
        os.path.join(build, "bin", "plfs"),
        "run",
        *(word for d in dirs for word in ("--mount", d)),
        "--",
    ]


def run(command, **kw):
    """stdout of a command; ends with its own words if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)
    if done.returncode:
        sys.exit(
            f"failed ({done.returncode}): {shlex.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return done.stdout


def run_json(command, **kw):
    return json.loads(run(command, **kw))


def median(values):
    return statistics.median(values)


def rate(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(head, rows):
    """Aligned text; the first column to the left, numbers to the right."""
    rows = [[str(c) for c in r] for r in [head, *rows]]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    lines = [
        "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))
        ).rstrip()
        for r in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def write_json(path, data):
    with open(path, "w") as f:
        json.dump(data, f, indent=1)
        f.write("\n")


def remove_tree(path):
    shutil.rmtree(path, ignore_errors=True)
