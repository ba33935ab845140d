/* What exec.c and posix_spawn.c know of programs. */
#ifndef PLFS_EXEC_H
#define PLFS_EXEC_H
#include "door.h"

/* A program that lies in a container. The kernel reads a superblock there, or nothing in a pack
 * (ENOEXEC), so what runs is the interpreter that the first line names, or a copy in memory. It
 * lies in a ROOM. */
struct program {
	char head[SCRIPT_BYTES];
	/* Of a script; NULL: it is an image. */
	const char *interpreter, *argument;
	/* The image, closed by exec. */
	int image;
};

/* Whether there is such a program by this name. Else errno says what exec says. */
bool program_find(int dirfd, const char *path, struct program *p);
/* What an exec by this name says, as far as that can be known before: an errno, or 0. *is_hidden:
 * the kernel says something else, as it does not see the program, or an interpreter of it. */
int program_foresee(int dirfd, const char *path, bool *is_hidden);
/* What an interpreter is given, which is up to two words more. */
void program_arguments(const struct program *p, const char *path, char *const argv[], char *out[]);
/* Has `start`, which returns an errno, try each path at which libc's execvp looks for `file`, as
 * long as libc goes on after that errno. Returns what libc says in the end; 0 ends it, too. For a
 * child of posix_spawn as well: it only looks at memory. */
int along_path(const char *file, char path[PATH_MAX], int (*start)(void *with, const char *path),
	void *with);

/* Room for the words of an environment or of arguments, to the end of the block: there may be many,
 * and the stack small. NULL: there is none, and errno says so. Of parts of pages ThreadSanitizer
 * does not see that they are given back (room_get). */
struct words {
	size_t bytes;
	char *at[];
};

struct words *words_get(size_t count);
void words_leave(struct words **words);
#define WORDS(name, count) \
	__attribute__((cleanup(words_leave))) struct words *name = words_get(count)

/* Calls `exec` with an environment, `given`, that says where a program is whose working directory
 * lies in a flat one, and has what loads libplfs if `envp` has nothing of it. `failed`: there is no
 * memory for it. */
#define WITH_ENVIRONMENT(dirfd, envp, exec, failed) \
	({ \
		char *const *env_ = envp; \
		/* One that cannot be read is the kernel's to refuse. */ \
		bool is_there_ = !door_thread.inside && environment_is_there(env_); \
		size_t ours_ = is_there_ ? served_fill(NULL, env_) : 0; \
		bool is_flat_ = is_there_ && flat_is_known(); \
		size_t count_ = ours_ || is_flat_ ? count_of(env_) + ours_ : 0; \
		WORDS(words_, 2 * count_ + 3); \
		char **all_ = words_ ? words_->at : NULL, *text_ = NULL; \
		if (all_ && ours_) { \
			size_t n_ = served_fill(all_, env_); \
			for (size_t i_ = 0; n_ < count_; i_++) \
				all_[n_++] = env_[i_]; \
			all_[n_] = NULL; \
			env_ = all_; \
		} \
		char *const *given = words_ && is_flat_ \
					     ? flat_environment(dirfd, env_, all_ + count_ + 1, \
						       count_, &text_) \
					     : env_; \
		__typeof__(exec) rc_ = words_ ? exec : failed; \
		int saved_ = errno; \
		if (text_) \
			PLFS_ALWAYS(plfs_door_free_text(text_)); \
		errno = saved_; \
		rc_; \
	})

#endif
