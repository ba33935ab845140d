/* Wide characters on streams. */
#include "t.h"

#include <locale.h>
#include <wchar.h>

int main(void)
{
	wchar_t line[40];
	setlocale(LC_ALL, "C.UTF-8");
	FILE *f = fopen("w", "w+");
	R(fwide(f, 1));
	R(fputwc(0xe9, f));
	R(fputws(L"l\u00e8ve \u20ac\n", f) >= 0);
	R(fwprintf(f, L"%d %ls %s\n", 42, L"wide\u00df", "narrow"));
	R(fputwc(L'x', f));
	rewind(f);
	R(fgetwc(f));
	R(ungetwc(0x20ac, f));
	R(getwc(f));
	R(fgetws(line, 40, f) == line);
	R(wcslen(line));
	R(fgetws(line, 5, f) == line);
	R(wcslen(line));
	while (fgetwc(f) != WEOF)
		;
	R(feof(f) != 0);
	R(ferror(f) != 0);
	R(fgetws(line, 5, f) == NULL);
	fclose(f);
	show("w");
	close(make("bad", "a\xff z"));
	f = fopen("bad", "r");
	R(fgetwc(f));
	R(fgetwc(f) == WEOF);
	R(errno == EILSEQ);
	R(ferror(f) != 0);
	fclose(f);
	return 0;
}
