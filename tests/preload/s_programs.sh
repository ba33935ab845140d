# Programs that lie in the directory itself: scripts of several interpreters, and a binary.
# The kernel reads the name of a container, which is a superblock; it gave ENOEXEC, and a shell then
# ran what it took for a script of its own, whatever the first line said.
cp "$(type -P true)" machine; chmod 755 machine; ./machine; echo "machine $?"
printf '#!/bin/sh\necho "script $0 $*"\n' > script
printf '#! /bin/cat   -n  \nby cat\n' > argument
printf 'echo no first line $1\n' > none
printf '#!/no/such\n' > nowhere
printf '#!/usr/bin/env perl\nprint "perl @ARGV\\n";\n' > perl
printf '#!/bin/cat' > unended
: > empty
cp script closed
chmod 755 script argument none nowhere perl unended empty
for p in ./script ./argument ./none ./nowhere ./perl ./unended ./empty ./closed ./missing; do
    "$p" one "two three" 2> /dev/null; echo "$p $?"
done
# Along PATH, too. A shell once got the superblock to run, as what the kernel takes for no program.
for p in machine script argument none closed missing; do
    PATH=.:$PATH env "$p" one "two three" 2> /dev/null; echo "$p $?"
    PATH=.:$PATH python3 -c 'import os, sys
try:
    print(os.waitpid(os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ), 0)[1], flush=True)
except OSError as e:
    print(e.errno, flush=True)' "$p" one
done
# What interprets a script may lie here, and be a script.
cp "$(type -P echo)" echoes; chmod 755 echoes
printf '#!./echoes interpreted\n' > by_program
printf '#!./by_program twice\n' > by_script
printf '#!./by_script\n' > by_scripts
printf '#!./loop\n' > loop
printf '#!./closed\n' > by_closed
cp by_program "$T_BIN/outside"
chmod 755 by_program by_script by_scripts loop by_closed "$T_BIN/outside"
for p in by_program by_script by_scripts loop by_closed "$T_BIN/outside"; do
    python3 -c 'import os, sys
for start in [lambda p, a: os.posix_spawn(p, a, os.environ), lambda p, a: os.posix_spawnp(p, a, os.environ),
        lambda p, a: os.fork() or os.execv(p, a), lambda p, a: os.fork() or os.execvp(p, a)]:
    path, pid = sys.argv[1], os.getpid()
    try:
        print(os.waitpid(start(path if path[0] == "/" else "./" + path, ["zero", "one"]), 0)[1], flush=True)
    except OSError as e:
        print(e.errno, flush=True)
    if os.getpid() != pid:
        os._exit(0)' "$p" | sed "s,$T_BIN,,"
done
cat > starts.c <<'END_OF_C'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
#define EXEC(call) \
	do { \
		int status = -1; \
		fflush(stdout); \
		if (fork() == 0) { \
			call; \
			printf("%s ", strerrorname_np(errno)); \
			fflush(stdout); \
			_exit(99); \
		} \
		wait(&status); \
		printf("%s: %x\n", #call, status); \
	} while (0)
int main(int argc, char **argv)
{
	char *words[] = {"zero", "one", NULL};
	for (int i = 1; i < argc; i++) {
		char *p = argv[i];
		int status = -1, fd = open(p, O_RDONLY), path = open(p, O_PATH), here = open(".", O_RDONLY);
		pid_t pid;
		printf("%s\n", p);
		fflush(stdout);
		int rc = posix_spawn(&pid, p, NULL, NULL, words, environ);
		if (rc == 0)
			waitpid(pid, &status, 0);
		printf("posix_spawn %s %x\n", strerrorname_np(rc), status);
		fflush(stdout);
		rc = posix_spawnp(&pid, p, NULL, NULL, words, environ);
		if (rc == 0)
			waitpid(pid, &status, 0);
		printf("posix_spawnp %s %x\n", strerrorname_np(rc), status);
		EXEC(execv(p, words));
		EXEC(execvp(p, words));
		EXEC(execlp(p, "zero", "one", NULL));
		EXEC(execvpe(p, words, environ));
		EXEC(execveat(AT_FDCWD, p, words, environ, 0));
		EXEC(execveat(here, p, words, environ, 0));
		if (strstr(p, "machine")) {
			EXEC(fexecve(fd, words, environ));
			EXEC(execveat(path, "", words, environ, AT_EMPTY_PATH));
		}
		close(fd), close(path), close(here);
	}
}
END_OF_C
gcc -w -o starts starts.c
./starts ./machine ./script ./argument ./none ./nowhere ./perl ./unended ./empty ./closed ./missing 2> /dev/null
# The kernel looks at 256 bytes of a script: what is longer was no program here, and a shell ran it.
# An argument is cut there, a name has to be whole; blanks and zeros count.
python3 -c 'import os
def script(name, first):
    with open(name, "wb") as f:
        f.write(first)
    os.chmod(name, 0o755)
script("long.argument", b"#!/bin/echo " + b"a" * 300 + b"\nrest\n")
script("long.blanks", b"#!/bin/echo" + b" " * 300 + b"b\nrest\n")
script("long.name", b"#!/bin/" + b"a" * 300 + b"\nrest\n")
script("long.all_blanks", b"#!" + b" " * 300)
for n in 254, 255, 256, 257:
    name = b"#!" + b"/" * (n - 10) + b"bin/echo"
    script("long.%d" % n, name + b"\nrest\n")
    script("long.%d.unended" % n, name)
    script("long.%d.blank" % n, name + b" \t\nrest\n")
    script("long.%d.blanks" % n, b"#!" + b" " * (n - 11) + b"/bin/echo x\n")
    script("long.%d.cut" % n, b"#!/bin/echo " + b"c" * (n - 13) + b" d\n")
script("long.no_name", b"#!")
script("long.no_name_blanks", b"#! \t ")
script("long.no_name_line", b"#! \t \n")
script("long.zero", b"#!/bin/echo\0x y\nrest\n")
script("long.zero_in_argument", b"#!/bin/echo x\0y\nrest\n")
script("long.no_argument", b"#!/bin/echo ")
script("long.no_kind", b"\x7fELF" + b"\0" * 100)'
./starts ./long.* 2> /dev/null
rm long.*
# The environment of a child that gets an empty one was lost when it was longer than 8 KiB: the
# child read a superblock.
echo data > data
long=$(head -c 9000 /dev/zero | tr '\0' x)
PLFS_T_LONG=$long bash -c 'env -i cat data; env -i bash -c "cat data"'
rm starts
