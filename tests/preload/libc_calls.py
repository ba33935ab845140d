#!/usr/bin/env python3
"""libc_calls.py CALLS_DEF [LIBC]: which functions of libc make file calls inside libc that
CALLS_DEF does not name.

A call that libc makes inside itself does not come to the preload library. So this reads libc's
disassembly: which functions contain the instruction for a system call on files, and which exported
ones reach them by direct calls and jumps. Calls by pointers are not followed: those of streams go
through the table that the preload library takes its places in (preload/stdio.c). Prints what is not
listed.
"""

import re
import subprocess
import sys

# What reads or writes bytes, changes a descriptor, or opens or changes a name.
NAMES = {
    0: "read", 1: "write", 2: "open", 8: "lseek", 17: "pread64", 18: "pwrite64", 19: "readv",
    20: "writev", 32: "dup", 33: "dup2", 40: "sendfile", 76: "truncate", 77: "ftruncate",
    82: "rename", 85: "creat", 87: "unlink", 257: "openat", 263: "unlinkat", 264: "renameat",
    275: "splice", 276: "tee", 278: "vmsplice", 285: "fallocate", 292: "dup3", 295: "preadv",
    296: "pwritev", 316: "renameat2", 326: "copy_file_range", 327: "preadv2", 328: "pwritev2",
    437: "openat2",
}  # fmt: skip

# What reads libc's own files (/etc, /proc, /sys, locales), asks for memory, or has a system call of
# one of the numbers beside another, by the disassembly's simple look at it.
OWN = """
__assert_fail __assert_perror_fail __libc_calloc __libc_free __libc_malloc __libc_memalign
__libc_pvalloc __libc_realloc __libc_start_main __libc_valloc __newlocale __res_context_send
__sysconf aligned_alloc arc4random arc4random_buf calloc cnd_broadcast free get_nprocs
get_nprocs_conf getaddrinfo getcwd getgrgid_r getgrnam_r getgrouplist gethostbyaddr_r
gethostbyname2_r gethostbyname_r gethostid getlogin getlogin_r getpwnam_r getpwuid_r
getservbyname_r getservbyport_r gsignal initgroups innetgr malloc memalign mtx_init newlocale
posix_memalign pthread_cond_broadcast pthread_cond_clockwait pthread_cond_timedwait
pthread_cond_wait pthread_getname_np pthread_kill pthread_mutex_init pthread_setname_np pvalloc
raise realloc setegid seteuid setgid setgroups sethostid setlocale setnetgrent setregid setresgid
setresuid setreuid setuid sysconf valloc __open_catalog
""".split()
# Between libc and its own libraries, and what the streams' table names.
PRIVATE = re.compile(r"__\w+_nocancel|_IO_w?file_(open|read|seek|write|seekoff)")


def exported(libc):
    """Address of each function that programs can call, to its names."""
    at = {}
    for line in subprocess.check_output(["nm", "-D", "--defined-only", libc], text=True).split(
        "\n"
    ):
        found = re.fullmatch(r"([0-9a-f]+) [TWi] ([\w.]+)(@@?)(GLIBC_[\d.]+)?.*", line)
        if found and found[3] == "@@":
            at.setdefault(int(found[1], 16), []).append(found[2])
    return at


def disassembly(libc):
    """Instructions as (address, text), in order."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "-j", ".text", libc], capture_output=True, text=True
    ).stdout
    for line in text.split("\n"):
        found = re.match(r" +([0-9a-f]+):\t(.*)", line)
        if found:
            yield int(found[1], 16), found[2]


sys.setrecursionlimit(10000)


def main():
    calls_def = sys.argv[1]
    libc = sys.argv[2] if len(sys.argv) > 2 else "/lib/x86_64-linux-gnu/libc.so.6"
    names = exported(libc)
    code = list(disassembly(libc))
    target = re.compile(r"(call|jmp|j\w+) +([0-9a-f]+)\b")
    # A function begins where it is exported or called.
    starts = set(names)
    for _, text in code:
        found = target.match(text)
        if found and found[1] == "call":
            starts.add(int(found[2], 16))
    makes, goes, inside, number = {}, {}, None, None
    for address, text in code:
        if address in starts:
            inside, number = address, None
        moved = re.match(r"mov +\$0x([0-9a-f]+),%eax", text)
        zeroed = re.match(r"xor +%eax,%eax", text)
        if moved or zeroed:
            number = int(moved[1], 16) if moved else 0
        elif text.startswith("syscall") and number in NAMES:
            makes.setdefault(inside, set()).add(NAMES[number])
        found = target.match(text)
        if found and int(found[2], 16) in starts:
            goes.setdefault(inside, set()).add(int(found[2], 16))
    # What ends the program says why before (malloc, assert): that is no call of the program's.
    ends = {address for address, of in names.items() if "abort" in of or "_exit" in of}
    made = {one: set(what) for one, what in makes.items()}

    def reached(one, seen):
        """What one makes by itself, by functions that are not exported, and by those of `made`."""
        calls = set(made.get(one, ()))
        seen.add(one)
        if goes.get(one, set()) & ends:
            return set()
        for callee in goes.get(one, ()):
            if callee in seen:
                continue
            if callee in names:
                calls |= made.get(callee, set())
            else:
                calls |= reached(callee, seen)
        return calls

    makes = {one: reached(one, set()) for one in names}
    if not makes or not any("write" in made for made in makes.values()):
        print("no system calls found: the disassembly is not what this reads")
        return 1
    listed = set()
    with open(calls_def) as lines:
        for line in lines:
            words = line.split()
            if words and words[0] in ("wrap", "pass", "miss"):
                listed.add(words[1])
    missing = {
        name: sorted(makes[address])
        for address, of in names.items()
        if makes.get(address)
        for name in of
        if name not in listed and name not in OWN and not PRIVATE.fullmatch(name)
        if not any(other in listed for other in of)
    }
    for name in sorted(missing):
        print(name, *missing[name])
    return 1 if missing else 0


sys.exit(main())
