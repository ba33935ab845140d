/* Libraries that lie in the directory: dlopen and its kin, and what they say of them. They are made
 * elsewhere and copied here, one of them needs another one beside it. */
#include "t.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

static void build(const char *name, const char *text, const char *flags)
{
	char source[4096], command[16384];
	const char *bin = getenv("T_BIN");
	snprintf(source, sizeof source, "%s/%s.c", bin, name);
	FILE *f = fopen(source, "w");
	fputs(text, f);
	fclose(f);
	snprintf(command, sizeof command, "gcc -w -shared -fPIC -o %s/%s %s -L%s %s && cp %s/%s .",
		bin, name, source, bin, flags, bin, name);
	if (system(command) != 0)
		printf("cannot make %s\n", name);
}

static int call(void *handle, const char *name);

static _Atomic int failed, silent, another;

/* A thread that had found a library loaded failed when another one unloaded it meanwhile: it asked
 * the linker for a copy that was gone. */
static void *load_and_unload(void *path)
{
	for (int i = 0; i < 1000; i++) {
		void *handle = dlopen(path, RTLD_NOW);
		failed += !handle;
		another += handle && call(handle, ((char *)path)[5] == 's' ? "which" : "inner") < 0;
		if (handle)
			dlclose(handle);
	}
	return path;
}

/* dlerror had nothing to say to a thread when another one failed as well. */
static void *fail(void *path)
{
	for (int i = 0; i < 300; i++) {
		const char *said;
		failed += dlopen(path, RTLD_NOW) == NULL;
		silent += !(said = dlerror()) || !strstr(said, "libwrong");
	}
	return path;
}

/* Does the file that is mapped under this name take less than 1 MiB? Root may look. */
static int is_small(const char *what)
{
	char line[5000], range[100], path[200];
	struct stat st = {0};
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps))
		if (strstr(line, what) && sscanf(line, "%99s", range) == 1) {
			snprintf(path, sizeof path, "/proc/self/map_files/%s", range);
			stat(path, &st);
		}
	fclose(maps);
	return st.st_blocks < 2048;
}

static void in_threads(const char *what, void *(*f)(void *), char *one, char *other)
{
	pthread_t thread[4];
	failed = silent = another = 0;
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, f, i % 2 ? one : other);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	printf("%s: %d failed, %d silent, %d another\n", what, failed, silent, another);
}

/* The last part of what names the file. */
static const char *base(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	return slash ? slash + 1 : path ? path : "(none)";
}

static int call(void *handle, const char *name)
{
	int (*f)(void) = handle ? (int (*)(void))dlsym(handle, name) : NULL;
	return f ? f() : -1;
}

/* It once took 20 KiB of stack, and the least that pthread_attr_setstacksize takes is 16. */
static void *start(void *path)
{
	return dlopen(path, RTLD_NOW);
}

static void names(void *handle)
{
	Dl_info info;
	struct link_map *map = NULL, *extra = NULL;
	char origin[4096] = "", here[4096];
	void *f = dlsym(handle, "outer");
	const char *(*seen)(void) = dlsym(handle, "seen");
	R(dladdr(f, &info) != 0);
	printf("dladdr: %s\n", base(info.dli_fname));
	R(dladdr1(f, &info, (void **)&extra, RTLD_DL_LINKMAP) != 0);
	R(dlinfo(handle, RTLD_DI_LINKMAP, &map));
	printf("link map: %s, %d\n", base(map->l_name), map == extra);
	R(dlinfo(handle, RTLD_DI_ORIGIN, origin));
	realpath(origin, here);
	printf("origin: %d\n", strcmp(here, getenv("T_HERE")) == 0);
	printf("in its constructor: %s\n", base(seen()));
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		printf("first: %d\n", dlopen(argv[1], RTLD_NOW) != NULL);
		return 0;
	}
	build("libinner.so", "int inner(void) { return 42; }", "-Wl,-soname,libinner.so");
	build("libouter.so",
		"#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <string.h>\n"
		"int inner(void); static char name[4096];\n"
		"int outer(void) { return inner() + 1; }\n"
		"const char *seen(void) { return name; }\n"
		"__attribute__((constructor)) static void begin(void) { Dl_info i;"
		" if (dladdr((void *)outer, &i)) strncpy(name, i.dli_fname, 4000); }",
		"-linner '-Wl,-rpath,$ORIGIN'");
	build("libwrong.so", "int nowhere(void); int wrong(void) { return nowhere(); }", "");
	build("libswap.so", "int which(void) { return 1; }", "");
	build("libwaits.so",
		"#include <pthread.h>\n#include <stdio.h>\n"
		"static void *f(void *p) { FILE *f = fopen(\"written\", \"w\");"
		" fputs(\"by a thread\", f); fclose(f); f = popen(\"cat written\", \"r\");"
		" while (fgetc(f) > 0); pclose(f); return rename(\"written\", \"kept\") ? p : 0; "
		"}\n"
		"__attribute__((constructor)) static void begin(void) { pthread_t t;"
		" pthread_create(&t, 0, f, 0); pthread_join(t, 0); }",
		"-pthread");
	build("libfirst.so",
		"#include <fcntl.h>\n#include <pthread.h>\n#include <stdio.h>\n#include "
		"<unistd.h>\n"
		"static void *f(void *p) { int fd = open(\"first\", O_RDWR | O_CREAT, 0644);"
		" for (int i = 0; i < 1000; i++) write(fd, \"abc\", 3);"
		" char b[7] = {0}; fsync(fd); pread(fd, b, 6, 1500);"
		" printf(\"%s %ld\\n\", b, (long)lseek(fd, 0, SEEK_END)); return p; }"
		"__attribute__((constructor)) static void begin(void) { pthread_t t;"
		" pthread_create(&t, 0, f, 0); pthread_join(t, 0); }",
		"-pthread");
	make("libtext.so", "no library");
	/* Nor did it have to be libc's function: the first write and the first read of a process
	 * registered destructors of threads, for which libc waits for the linker. */
	fflush(stdout);
	pid_t first = fork();
	if (first == 0) {
		execl("/proc/self/exe", argv[0], "./libfirst.so", NULL);
		_exit(127);
	}
	R(reap(first));
	/* A thread that a constructor waited for waited itself for the linker, whose lock is held
	 * meanwhile: to look up a function of libc that nobody had called. */
	printf("waits: %d\n", dlopen("./libwaits.so", RTLD_NOW) != NULL);
	show("kept");

	printf("not loaded: %d\n", dlopen("./libouter.so", RTLD_NOW | RTLD_NOLOAD) == NULL);
	void *one = dlopen("./libouter.so", RTLD_NOW), *two;
	if (!one)
		printf("%s\n", dlerror());
	R(call(one, "outer"));
	names(one);
	printf("again: %d\n", (two = dlopen("./libouter.so", RTLD_LAZY)) == one);
	closefrom(3);
	char path[4096];
	snprintf(path, sizeof path, "%s/libouter.so", getenv("T_HERE"));
	printf("by another path: %d\n", dlopen(path, RTLD_LAZY) == one);
	printf("loaded: %d\n", dlopen("./libouter.so", RTLD_LAZY | RTLD_NOLOAD) == one);
	printf("not global: %d\n", dlsym(RTLD_DEFAULT, "outer") == NULL);
	dlopen("./libouter.so", RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
	printf("global: %d\n", dlsym(RTLD_DEFAULT, "outer") != NULL);
	pid_t pid = fork();
	if (pid == 0)
		_exit(dlopen("./libouter.so", RTLD_LAZY) != one || call(one, "outer") != 43);
	R(reap(pid));
	for (int i = 0; i < 5; i++)
		R(dlclose(one));
	printf("gone: %d\n", dlopen("./libouter.so", RTLD_NOW | RTLD_NOLOAD) == NULL);

	/* Several threads at once have one library. */
	pthread_t thread[8];
	void *got[8];
	pthread_attr_t small;
	pthread_attr_init(&small);
	R(pthread_attr_setstacksize(&small, 16384));
	for (int i = 0; i < 8; i++)
		pthread_create(&thread[i], &small, start, "./libouter.so");
	int same = 1;
	for (int i = 0; i < 8; i++) {
		pthread_join(thread[i], &got[i]);
		same = same && got[i] && got[i] == got[0];
	}
	printf("threads: %d\n", same);

	in_threads("loaded and unloaded", load_and_unload, "./libswap.so", "./libswap.so");
	in_threads("failed", fail, "./libwrong.so", "./libwrong.so");

	/* A copy of what has gigabytes of zeros took as much memory. */
	system("cp libinner.so liblarge.so && truncate -s 1G liblarge.so");
	void *large = dlopen("./liblarge.so", RTLD_NOW);
	R(call(large, "inner"));
	printf("takes little: %d\n", is_small("liblarge"));
	dlclose(large);
	unlink("liblarge.so");

	/* What is there when it is loaded counts. */
	void *swap = dlopen("./libswap.so", RTLD_NOW);
	R(call(swap, "which"));
	dlclose(swap);
	build("libswap.so", "int which(void) { return 2; }", "");
	swap = dlopen("./libswap.so", RTLD_NOW);
	R(call(swap, "which"));

	void *other = dlmopen(LM_ID_NEWLM, "./libouter.so", RTLD_NOW);
	if (!other)
		printf("%s\n", dlerror());
	R(call(other, "outer"));
	printf("of its own: %d\n", other && other != got[0]);

	/* What goes wrong is said of the file. */
	dlerror();
	printf("wrong: %d ", dlopen("./libwrong.so", RTLD_NOW) == NULL);
	const char *said = dlerror();
	printf("%s\n", said ? base(said) : "nothing");
	printf("nothing more: %d\n", dlerror() == NULL);
	printf("lazily: %d\n", dlopen("./libwrong.so", RTLD_LAZY) != NULL);
	printf("text: %d ", dlopen("./libtext.so", RTLD_NOW) == NULL);
	printf("%d\n", (said = dlerror()) != NULL);
	printf("none: %d ", dlopen("./libnone.so", RTLD_NOW) == NULL);
	printf("%d\n", (said = dlerror()) != NULL);
	printf("the program: %d\n", dlopen(NULL, RTLD_NOW) != NULL);
	/* Dumped behind this: bytes that differ from one compiler to the other do not matter. */
	unlink("libtext.so");
	return 0;
}
