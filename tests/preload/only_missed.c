/* What the rows `miss` of preload/calls.def say: the calls that are left to libc and are wrong or
 * incomplete on containers; a row whose sentence is no longer true fails here. And calls beside
 * them that turned out to be right. Prints nothing but what is wrong. */
#include "t.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fts.h>
#include <ftw.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <libintl.h>
#include <locale.h>
#include <netdb.h>
#include <nl_types.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/fanotify.h>
#include <sys/gmon.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <time.h>
#include <utmp.h>
#include <utmpx.h>
#include <wordexp.h>

/* Size of the superblock, which is what a name has for the kernel. */
#define SUPERBLOCK 4093
#define TEXT "some text"

/* Not in libc's headers. */
int __syslog_chk(int priority, int flag, const char *format, ...);
int __vsyslog_chk(int priority, int flag, const char *format, va_list ap);
void mcount(void), _mcount(void), __fentry__(void), __monstartup(unsigned long, unsigned long);

/* What a system call says that does not come to the preload library. */
static long kernel(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = 0, r9 __asm__("r9") = 0;
	long result;
	__asm__ volatile("syscall"
		: "=a"(result)
		: "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		: "rcx", "r11", "memory");
	return result;
}

/* What the kernel reads by a descriptor or a name: the superblock. */
static int is_superblock(const char *text)
{
	return memcmp(text, "PLFS", 4) == 0;
}

/* A read-only shared mapping that is made writable. */
static void maps(void)
{
	int fd = make("mapped", TEXT);
	char text[10] = "";
	char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	WANT(map != MAP_FAILED && mprotect(map, 4096, PROT_READ | PROT_WRITE) == 0);
	map[0] = 'S';
	WANT(msync(map, 4096, MS_SYNC) == 0 && munmap(map, 4096) == 0);
	WANT(pread(fd, text, 9, 0) == 9 && strcmp(text, TEXT) == 0);
	close(fd);
}

/* libc's own walks see sizes and directories as the kernel has them. */
static long size_seen, stores_seen;

static int seen(const char *path, const struct stat *st, int kind)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	if (strcmp(name, "walked") == 0)
		size_seen = st->st_size;
	stores_seen += strcmp(name, ".plfs") == 0;
	return 0;
}

static int seen64(const char *path, const struct stat64 *st, int kind)
{
	return seen(path, (const struct stat *)st, kind);
}

static int seen_by_nftw(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	return seen(path, st, kind);
}

static int seen_by_nftw64(const char *path, const struct stat64 *st, int kind, struct FTW *at)
{
	return seen(path, (const struct stat *)st, kind);
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* The same structures on machines of 64 bits. */
static FTS *open_by_fts64(char *const *roots)
{
	return (FTS *)fts64_open(
		roots, FTS_PHYSICAL, (int (*)(const FTSENT64 **, const FTSENT64 **))by_name);
}

static FTSENT *read_by_fts(FTS *tree)
{
	return fts_read(tree);
}

static FTSENT *read_by_fts64(FTS *tree)
{
	return (FTSENT *)fts64_read((FTS64 *)tree);
}

static void seen_by_fts(FTS *tree, FTSENT *(*next)(FTS *))
{
	for (FTSENT *e; tree && (e = next(tree));) {
		if (e->fts_info == FTS_F || e->fts_info == FTS_D)
			seen(e->fts_path, e->fts_statp, 0);
	}
	fts_close(tree);
}

static int has_store(FTSENT *children)
{
	for (; children; children = children->fts_link) {
		if (strcmp(children->fts_name, ".plfs") == 0)
			return 1;
	}
	return 0;
}

#define WALK(call) \
	do { \
		size_seen = stores_seen = 0; \
		call; \
		if (size_seen != SUPERBLOCK || stores_seen == 0) { \
			printf("%d: %s: size %ld, .plfs %ld\n", __LINE__, #call, size_seen, \
				stores_seen); \
			wrong = 1; \
		} \
	} while (0)

static void walks(void)
{
	char *managed = getenv("T_MANAGED"), *roots[] = {managed, NULL};
	close(make("walked", TEXT));
	WALK(ftw(managed, seen, 8));
	WALK(ftw64(managed, seen64, 8));
	WALK(nftw(managed, seen_by_nftw, 8, FTW_PHYS));
	WALK(nftw64(managed, seen_by_nftw64, 8, FTW_PHYS));
	WALK(seen_by_fts(fts_open(roots, FTS_PHYSICAL, by_name), read_by_fts));
	WALK(seen_by_fts(open_by_fts64(roots), read_by_fts64));
	FTS *tree = fts_open(roots, FTS_PHYSICAL, by_name);
	WANT(fts_read(tree) && has_store(fts_children(tree, 0)));
	fts_close(tree);
	tree = open_by_fts64(roots);
	WANT(read_by_fts64(tree) && has_store((FTSENT *)fts64_children((FTS64 *)tree, 0)));
	fts_close(tree);

	char buf[4096];
	off_t base = 0;
	int fd = open(managed, O_RDONLY | O_DIRECTORY);
	ssize_t n = getdirentries(fd, buf, sizeof buf, &base);
	WANT(n > 0 && memmem(buf, (size_t)n, ".plfs", 6));
	lseek(fd, 0, SEEK_SET);
	n = getdirentries64(fd, buf, sizeof buf, &base);
	WANT(n > 0 && memmem(buf, (size_t)n, ".plfs", 6));
	close(fd);
}

/* Descriptors that come by other ways than open, dup, fork, exec and messages. */

/* Reads the superblock where the text should be, and cannot write. */
#define WANT_UNKNOWN(fd) \
	do { \
		char text_[10] = ""; \
		int fd_ = (fd); \
		WANT(fd_ >= 0); \
		WANT(pread(fd_, text_, 9, 0) == -1 || is_superblock(text_)); \
		WANT(write(fd_, "x", 1) == -1 && errno == EBADF); \
		close(fd_); \
	} while (0)

static void descriptors(void)
{
	int fd = make("passed", TEXT);
	pid_t child = fork();
	if (child == 0) {
		/* The parent's, which this process closed. */
		close(fd);
		int process = pidfd_open(getppid(), 0);
		int theirs = pidfd_getfd(process, fd, 0);
		if (theirs >= 0)
			WANT_UNKNOWN(theirs);
		_exit(wrong);
	}
	WANT(reap(child) == 0);

	char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	struct file_handle *handle = (struct file_handle *)room;
	handle->handle_bytes = MAX_HANDLE_SZ;
	int mount, here = open(".", O_RDONLY);
	if (name_to_handle_at(AT_FDCWD, "passed", handle, &mount, 0) == 0) {
		int opened = open_by_handle_at(here, handle, O_RDONLY);
		if (opened >= 0 || errno != EPERM)
			WANT_UNKNOWN(opened);
	}
	close(here);

	struct stat st;
	/* Right, as it happens. */
	int tree = open_tree(AT_FDCWD, "passed", 0);
	WANT(fstat(tree, &st) == 0 && st.st_size == 9);
	close(tree);
	close(fd);
}

static void events(void)
{
	int fd = make("watched", TEXT);
	int watcher = fanotify_init(FAN_NONBLOCK, O_RDONLY);
	if (watcher >= 0) {
		WANT(fanotify_mark(watcher, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, "watched") == 0);
		WANT(write(fd, "x", 1) == 1 && fsync(fd) == 0);
		struct pollfd ready = {.fd = watcher, .events = POLLIN};
		WANT(poll(&ready, 1, 100) == 0);
		close(watcher);
	} else {
		WANT(fanotify_mark(-1, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, "watched") == -1);
	}
	close(fd);
}

static void terminals(void)
{
	int master, slave, fd = make("terminal", TEXT);
	WANT(openpty(&master, &slave, NULL, NULL, NULL) == 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(fd, 1);
		login_tty(slave);
		/* Goes to the file, and not to the terminal. */
		_exit(write(1, "TTY", 3) != 3);
	}
	WANT(reap(child) == 0);
	char text[10] = "";
	WANT(pread(fd, text, 9, 0) == 9 && memcmp(text, "TTY", 3) == 0);
	close(fd);
}

/* The kernel's own reads and writes. Not for every process: io_uring can be forbidden. */
static void rings(void)
{
	int fd = make("ring", TEXT);
	char text[10] = "";
	struct io_uring_params p = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 2, &p);
	if (ring >= 0) {
		char *queues = mmap(NULL,
			p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
			PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
		struct io_uring_sqe *entry = mmap(NULL, p.sq_entries * sizeof *entry,
			PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
		WANT(queues != MAP_FAILED && (void *)entry != MAP_FAILED);
		syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &fd, 1);
		*entry = (struct io_uring_sqe){
			.opcode = IORING_OP_READ, .fd = fd, .addr = (uintptr_t)text, .len = 9};
		*(unsigned *)(queues + p.sq_off.array) = 0;
		__atomic_store_n((unsigned *)(queues + p.sq_off.tail), 1, __ATOMIC_RELEASE);
		WANT(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
		int got = ((struct io_uring_cqe *)(queues + p.cq_off.cqes))->res;
		WANT(got < 0 || is_superblock(text));
		close(ring);
	}
	aio_context_t context = 0;
	if (syscall(SYS_io_setup, 1, &context) == 0) {
		memset(text, 0, sizeof text);
		struct iocb request = {.aio_lio_opcode = IOCB_CMD_PREAD,
				    .aio_fildes = (unsigned)fd,
				    .aio_buf = (uintptr_t)text,
				    .aio_nbytes = 9},
			    *requests = &request;
		struct io_event event = {0};
		if (syscall(SYS_io_submit, context, 1, &requests) == 1) {
			WANT(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1);
			WANT(event.res < 0 || is_superblock(text));
		}
	}
	close(fd);
}

/* What libc writes to descriptor 2 by itself. */
static long written_by(void (*call)(void))
{
	int keep = dup(2), fd = open("errors", O_RDWR | O_CREAT | O_TRUNC, 0644);
	dup2(fd, 2);
	call();
	dup2(keep, 2);
	struct stat st;
	long size = fstat(fd, &st) == 0 ? (long)st.st_size : -1;
	close(fd);
	close(keep);
	return size;
}

static void by_psiginfo(void)
{
	siginfo_t info = {.si_signo = SIGINT};
	psiginfo(&info, "psiginfo");
}

static void by_herror(void)
{
	h_errno = HOST_NOT_FOUND;
	herror("herror");
}

static void by_syslog(void)
{
	openlog("t", LOG_PERROR, LOG_USER);
	syslog(LOG_DEBUG, "text");
	closelog();
}

static void by_list(int priority, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	openlog("t", LOG_PERROR, LOG_USER);
	if (priority == LOG_DEBUG)
		vsyslog(priority, format, ap);
	else
		__vsyslog_chk(priority, 1, format, ap);
	closelog();
	va_end(ap);
}

static void by_vsyslog(void)
{
	by_list(LOG_DEBUG, "text");
}

static void by_vsyslog_chk(void)
{
	by_list(LOG_INFO, "text");
}

static void by_syslog_chk(void)
{
	openlog("t", LOG_PERROR, LOG_USER);
	__syslog_chk(LOG_DEBUG, 1, "text");
	closelog();
}

static void printed(void)
{
	WANT(written_by(by_psiginfo) == 0);
	WANT(written_by(by_herror) == 0);
	/* Right, as it happens. */
	WANT(written_by(by_syslog) > 4);
	WANT(written_by(by_vsyslog) > 4);
	WANT(written_by(by_syslog_chk) > 4);
	WANT(written_by(by_vsyslog_chk) > 4);
}

/* The file of logins: libc opens it by itself, and wrote its entries over the superblock. */
static void logins(void)
{
	close(make("logins", TEXT));
	struct utmp entry = {.ut_type = USER_PROCESS, .ut_id = "a", .ut_user = "somebody"}, got;
	struct utmp *found;
	strcpy(entry.ut_line, "pts/9");
	WANT(utmpname("/nowhere") == 0);
	WANT(utmpname("logins") == -1 && errno == EOPNOTSUPP);
	WANT(utmpxname("logins") == -1 && errno == EOPNOTSUPP);
	setutent();
	WANT(!pututline(&entry));
	WANT(getutent_r(&got, &found) != 0);
	WANT(getutid_r(&entry, &got, &found) != 0);
	WANT(getutline_r(&entry, &got, &found) != 0);
	endutent();
	struct stat st;
	WANT(stat("logins", &st) == 0 && st.st_size == 9);
}

/* What the kernel has by a name. */
static long kernel_reads(const char *path, char *text)
{
	long fd = kernel(SYS_openat, AT_FDCWD, (long)path, O_RDONLY, 0);
	long n = fd < 0 ? fd : kernel(SYS_pread64, fd, (long)text, 4, 0);
	if (fd >= 0)
		kernel(SYS_close, fd, 0, 0, 0);
	return n;
}

/* A program that is built with -pg calls these; the first look at the frame of who calls. */
__attribute__((optimize("no-omit-frame-pointer"))) static void profiles(void)
{
	char text[10] = "";
	mcount();
	_mcount();
	__fentry__();
	for (int twice = 0; twice < 2; twice++) {
		unsigned long low = (unsigned long)profiles & ~4095UL;
		if (twice)
			__monstartup(low, low + 4096);
		else
			monstartup(low, low + 4096);
		_mcleanup();
		long n = kernel_reads("gmon.out", text);
		WANT(n == 4 && memcmp(text, "gmon", 4) == 0);
		unlink("gmon.out");
	}
}

static void words(void)
{
	wordexp_t found;
	char text[10] = "";
	/* Right, as it happens: its commands are programs. */
	WANT(wordexp("$(echo text > words)", &found, 0) == 0);
	WANT(kernel_reads("words", text) == 4 && is_superblock(text));
	wordfree(&found);
}

static void copy(const char *from, const char *to)
{
	char command[300];
	snprintf(command, sizeof command, "cp %s %s", from, to);
	WANT(system(command) == 0);
}

/* Files that libc opens for itself, by names that the program gives. */
static void files_of_libc(void)
{
	static const char zone[] = "TZif\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
				   "\0\0\0\0\0\0\0\0\1\0\0\0\4\0\0\016\020\0\0ABC";
	int fd = make("zone", "");
	WANT(write(fd, zone, sizeof zone) == sizeof zone && close(fd) == 0);
	char path[4200];
	snprintf(path, sizeof path, ":%s/zone", getenv("T_HERE"));
	setenv("TZ", path, 1);
	tzset();
	WANT(timezone == 0);
	setenv("TZ", "UTC", 1);

	struct tm date;
	close(make("templates", "%Y-%m-%d\n"));
	setenv("DATEMSK", "templates", 1);
	WANT(getdate_r("2020-01-02", &date) != 0);
	WANT(!getdate("2020-01-02"));

	close(make("messages", "$set 1\n1 text\n"));
	WANT(system("gencat catalogue messages") == 0);
	WANT(catopen("./catalogue", 0) == (nl_catd)-1);

	if (access("/usr/lib/locale/C.utf8/LC_CTYPE", R_OK) == 0) {
		mkdir("locales", 0755);
		mkdir("locales/other.utf8", 0755);
		copy("/usr/lib/locale/C.utf8/LC_CTYPE", "locales/other.utf8");
		setenv("LOCPATH", "locales", 1);
		WANT(!setlocale(LC_CTYPE, "other.utf8"));
		WANT(!newlocale(LC_CTYPE_MASK, "other.utf8", NULL));
		unsetenv("LOCPATH");
	}

	struct {
		unsigned magic, revision, count, originals, translations, none[2];
		unsigned original[2], translation[2];
		char text[4];
	} catalogue = {0x950412de, 0, 1, 28, 36, {0, 0}, {1, 44}, {1, 46}, "a\0b"};
	mkdir("locales", 0755);
	mkdir("locales/xx", 0755);
	mkdir("locales/xx/LC_MESSAGES", 0755);
	fd = make("locales/xx/LC_MESSAGES/domain.mo", "");
	WANT(write(fd, &catalogue, sizeof catalogue) == sizeof catalogue && close(fd) == 0);
	setenv("LANGUAGE", "xx", 1);
	setlocale(LC_ALL, "C.UTF-8");
	snprintf(path, sizeof path, "%s/locales", getenv("T_HERE"));
	WANT(bindtextdomain("domain", path));
	WANT(strcmp(dgettext("domain", "a"), "a") == 0);
	setlocale(LC_ALL, "C");
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	maps();
	walks();
	descriptors();
	events();
	terminals();
	rings();
	printed();
	logins();
	profiles();
	words();
	files_of_libc();
	return wrong;
}
