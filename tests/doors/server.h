/* What the C servers of the doors share. A server does file calls for behaviours.py: each line is a
 * command and its words; the answer is one line, "ok VALUE" or "error NAME". Bytes are hexadecimal,
 * in answers behind an x. A handle is a number that the client chose. A server has a table of
 * commands, one function each; what its door cannot do is missing there, and doors.py says why. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 16, BYTES = 1 << 16 };

/* Takes the words behind the command's name. Gives a value, or a negative error number. */
struct command {
	const char *name;
	int64_t (*run)(char **words);
};

/* What a command answers besides its value. */
static char said[2 * BYTES + 2];

static int64_t number(const char *word)
{
	return strtoll(word, NULL, 0);
}

static int handle(const char *word)
{
	return atoi(word) % FILES;
}

static size_t bytes_of(const char *hex, unsigned char *bytes)
{
	size_t n = strlen(hex) / 2;
	for (size_t i = 0; i < 2 * n; i++) {
		int digit = hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10;
		bytes[i / 2] = (unsigned char)(i % 2 ? bytes[i / 2] | digit : digit << 4);
	}
	return n;
}

static void say_bytes(const unsigned char *bytes, int64_t n)
{
	char *at = said;
	*at++ = 'x';
	for (int64_t i = 0; i < 2 * n; i++)
		*at++ = "0123456789abcdef"[i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4];
	*at = '\0';
}

static inline void say_stat(const struct stat *st)
{
	sprintf(said, "%lld %o %ld %u %u %lld %lld", (long long)st->st_size, st->st_mode & 07777,
		(long)st->st_nlink, st->st_uid, st->st_gid,
		st->st_mtim.tv_sec * 1000000000LL + st->st_mtim.tv_nsec, (long long)st->st_blocks);
}

/* Both times, from nanoseconds. */
static inline void times_of(const char *word, struct timespec times[2])
{
	times[0] = times[1] = (struct timespec){
		number(word) / 1000000000, number(word) % 1000000000};
}

/* r, w; c to create, x if it must not exist, t to truncate, a to append. */
static inline int flags_of(const char *word)
{
	int flags = strchr(word, 'w') ? strchr(word, 'r') ? O_RDWR : O_WRONLY : O_RDONLY;
	return flags | (strchr(word, 'c') ? O_CREAT : 0) | (strchr(word, 'x') ? O_EXCL : 0) |
	       (strchr(word, 't') ? O_TRUNC : 0) | (strchr(word, 'a') ? O_APPEND : 0);
}

/* Until the client hangs up. */
static int serve(const struct command *commands, void (*say_error)(int64_t code))
{
	static char line[4 * BYTES];
	while (fgets(line, sizeof line, stdin)) {
		char *words[8] = {NULL}, *rest = NULL;
		for (int i = 0; i < 7 && (words[i] = strtok_r(i ? NULL : line, " \n", &rest)); i++)
			;
		const struct command *command = commands;
		while (command->name && strcmp(command->name, words[0] ? words[0] : "") != 0)
			command++;
		if (!command->name) {
			printf("error no command %s\n", words[0]);
		} else {
			said[0] = '\0';
			int64_t value = command->run(words + 1);
			if (value < 0)
				say_error(value);
			else if (said[0])
				printf("ok %s\n", said);
			else
				printf("ok %lld\n", (long long)value);
		}
		fflush(stdout);
	}
	return 0;
}

static inline void say_errno(int64_t code)
{
	printf("error %s\n", strerrorname_np((int)-code));
}
