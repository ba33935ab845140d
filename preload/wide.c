/* Wide characters on our streams.
 *
 * glibc's cookie streams have no wide half (their _wide_data is an invalid pointer, and getwc
 * follows it). So the calls that programs make are done here in bytes, with the conversions of the
 * locale. Every other stream goes to libc. fwscanf and its kin are not covered. */
#include "door.h"

#include <stdarg.h>
#include <string.h>
#include <wchar.h>

/* The conversion states of one of our streams, or NULL. Other streams cost one comparison of a
 * pointer. */
static struct wide_state *ours(FILE *fp)
{
	return __builtin_expect((intptr_t)fp->_wide_data != -1, 1) || door_thread.inside
		       ? NULL
		       : stdio_wide_state(fp);
}

/* _IO_ERR_SEEN of glibc's libio.h: what ferror() tests. */
#define STREAM_ERROR 0x20

static wint_t get_wide(FILE *fp, struct wide_state *w)
{
	for (;;) {
		int c = getc_unlocked(fp);
		if (c == EOF) {
			if (!mbsinit(&w->in) && !ferror_unlocked(fp)) {
				errno = EILSEQ;
				fp->_flags |= STREAM_ERROR;
			}
			return WEOF;
		}
		char byte = (char)c;
		wchar_t wc;
		size_t n = mbrtowc(&wc, &byte, 1, &w->in);
		if (n == (size_t)-1) {
			memset(&w->in, 0, sizeof w->in);
			fp->_flags |= STREAM_ERROR;
			return WEOF;
		}
		if (n != (size_t)-2)
			return (wint_t)wc;
	}
}

static wint_t put_wide(FILE *fp, struct wide_state *w, wchar_t wc)
{
	char bytes[MB_LEN_MAX];
	size_t n = wcrtomb(bytes, wc, &w->out);
	if (n == (size_t)-1) {
		fp->_flags |= STREAM_ERROR;
		return WEOF;
	}
	return fwrite_unlocked(bytes, 1, n, fp) == n ? (wint_t)wc : WEOF;
}

/* A call on fp: `plain` for other streams, else `call` with `w` and the stream locked. */
#define ON_STREAM(fp, type, plain, call) \
	do { \
		struct wide_state *w = ours(fp); \
		if (!w) \
			return plain; \
		flockfile(fp); \
		type result_ = call; \
		funlockfile(fp); \
		return result_; \
	} while (0)

EXPORT wint_t fgetwc(FILE *fp)
{
	ON_STREAM(fp, wint_t, REAL(fgetwc)(fp), get_wide(fp, w));
}
ALIAS(fgetwc, getwc);

EXPORT wint_t fgetwc_unlocked(FILE *fp)
{
	ON_STREAM(fp, wint_t, REAL(fgetwc_unlocked)(fp), get_wide(fp, w));
}
ALIAS(fgetwc_unlocked, getwc_unlocked);

EXPORT wint_t getwchar(void)
{
	return fgetwc(stdin);
}
ALIAS(getwchar, getwchar_unlocked);

EXPORT wint_t fputwc(wchar_t wc, FILE *fp)
{
	ON_STREAM(fp, wint_t, REAL(fputwc)(wc, fp), put_wide(fp, w, wc));
}
ALIAS(fputwc, putwc);

EXPORT wint_t fputwc_unlocked(wchar_t wc, FILE *fp)
{
	ON_STREAM(fp, wint_t, REAL(fputwc_unlocked)(wc, fp), put_wide(fp, w, wc));
}
ALIAS(fputwc_unlocked, putwc_unlocked);

EXPORT wint_t putwchar(wchar_t wc)
{
	return fputwc(wc, stdout);
}
ALIAS(putwchar, putwchar_unlocked);

static wint_t unget_wide(wint_t wc, FILE *fp)
{
	char bytes[MB_LEN_MAX];
	mbstate_t state = {0};
	size_t n = wc == WEOF ? 0 : wcrtomb(bytes, (wchar_t)wc, &state);
	if (n == 0 || n == (size_t)-1)
		return WEOF;
	while (n > 0)
		if (ungetc((unsigned char)bytes[--n], fp) == EOF)
			return WEOF;
	return wc;
}

EXPORT wint_t ungetwc(wint_t wc, FILE *fp)
{
	return ours(fp) ? unget_wide(wc, fp) : REAL(ungetwc)(wc, fp);
}

static wchar_t *get_line(wchar_t *s, int n, FILE *fp, struct wide_state *w)
{
	int len = 0;
	wint_t wc = 0;
	while (len < n - 1 && wc != L'\n' && (wc = get_wide(fp, w)) != WEOF)
		s[len++] = (wchar_t)wc;
	if (n < 1 || (len == 0 && n > 1) || (wc == WEOF && ferror_unlocked(fp)))
		return NULL;
	s[len] = 0;
	return s;
}

EXPORT wchar_t *fgetws(wchar_t *restrict s, int n, FILE *restrict fp)
{
	ON_STREAM(fp, wchar_t *, REAL(fgetws)(s, n, fp), get_line(s, n, fp, w));
}

EXPORT wchar_t *fgetws_unlocked(wchar_t *restrict s, int n, FILE *restrict fp)
{
	ON_STREAM(fp, wchar_t *, REAL(fgetws_unlocked)(s, n, fp), get_line(s, n, fp, w));
}

static int put_string(const wchar_t *s, FILE *fp, struct wide_state *w)
{
	for (; *s; s++)
		if (put_wide(fp, w, *s) == WEOF)
			return -1;
	return 1;
}

EXPORT int fputws(const wchar_t *restrict s, FILE *restrict fp)
{
	ON_STREAM(fp, int, REAL(fputws)(s, fp), put_string(s, fp, w));
}

EXPORT int fputws_unlocked(const wchar_t *restrict s, FILE *restrict fp)
{
	ON_STREAM(fp, int, REAL(fputws_unlocked)(s, fp), put_string(s, fp, w));
}

EXPORT int fwide(FILE *fp, int mode)
{
	struct wide_state *w = ours(fp);
	if (!w)
		return REAL(fwide)(fp, mode);
	if (w->orientation == 0 && mode != 0)
		w->orientation = mode > 0 ? 1 : -1;
	return w->orientation;
}

/* Room for formatted text at most: 2^26 wide characters, 256 MiB. vswprintf does not say how much
 * it needs. */
#define FORMAT_MAX ((size_t)1 << 26)

static int print_wide(FILE *fp, struct wide_state *w, const wchar_t *format, va_list ap)
{
	for (size_t room = 256; room <= FORMAT_MAX; room *= 4) {
		wchar_t *text = malloc(room * sizeof *text);
		if (!text)
			return -1;
		va_list again;
		va_copy(again, ap);
		int n = vswprintf(text, room, format, again);
		va_end(again);
		if (n >= 0)
			n = put_string(text, fp, w) < 0 ? -1 : n;
		free(text);
		if (n >= 0 || ferror_unlocked(fp))
			return n;
	}
	return -1;
}

EXPORT int vfwprintf(FILE *restrict fp, const wchar_t *restrict format, va_list ap)
{
	ON_STREAM(fp, int, REAL(vfwprintf)(fp, format, ap), print_wide(fp, w, format, ap));
}

EXPORT int vwprintf(const wchar_t *restrict format, va_list ap)
{
	return vfwprintf(stdout, format, ap);
}

EXPORT int fwprintf(FILE *restrict fp, const wchar_t *restrict format, ...)
{
	va_list ap;
	va_start(ap, format);
	int n = vfwprintf(fp, format, ap);
	va_end(ap);
	return n;
}

EXPORT int wprintf(const wchar_t *restrict format, ...)
{
	va_list ap;
	va_start(ap, format);
	int n = vfwprintf(stdout, format, ap);
	va_end(ap);
	return n;
}

/* The fortified forms; `flag` forbids %n in writable memory, which libc's own form checks. */
EXPORT int __vfwprintf_chk(FILE *fp, int flag, const wchar_t *format, va_list ap)
{
	ON_STREAM(fp, int, REAL(__vfwprintf_chk)(fp, flag, format, ap),
		print_wide(fp, w, format, ap));
}

EXPORT int __vwprintf_chk(int flag, const wchar_t *format, va_list ap)
{
	return __vfwprintf_chk(stdout, flag, format, ap);
}

EXPORT int __fwprintf_chk(FILE *fp, int flag, const wchar_t *format, ...)
{
	va_list ap;
	va_start(ap, format);
	int n = __vfwprintf_chk(fp, flag, format, ap);
	va_end(ap);
	return n;
}

EXPORT int __wprintf_chk(int flag, const wchar_t *format, ...)
{
	va_list ap;
	va_start(ap, format);
	int n = __vfwprintf_chk(stdout, flag, format, ap);
	va_end(ap);
	return n;
}
