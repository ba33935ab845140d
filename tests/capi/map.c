/* Where the bytes are: map, flatten, compact. */
#include "t.h"

struct seen {
	int pieces, stop_after;
	uint64_t bytes, end;
};

static int visit(const plfs_mapping *piece, void *user)
{
	struct seen *seen = user;
	char buf[16];
	TRUE(piece->logical >= seen->end && piece->length > 0);
	FILE *log = fopen(piece->data_log, "r");
	TRUE(log && fseek(log, (long)piece->physical, SEEK_SET) == 0 && fread(buf, 1, 1, log) == 1);
	IS(buf[0], 'a' + (piece->logical / 100) % 26);
	fclose(log);
	seen->end = piece->logical + piece->length;
	seen->bytes += piece->length;
	return ++seen->pieces == seen->stop_after ? 42 : 0;
}

int main(void)
{
	plfs_file *f = t_open("f", O_RDWR | O_CREAT);
	for (int i = 0; i < 200; i++) {
		char buf[50];
		memset(buf, 'a' + i % 26, sizeof buf);
		IS(plfs_pwrite(f, buf, sizeof buf, i * 100), sizeof buf);
	}
	OK(plfs_sync(f));
	for (int flat = 0; flat < 2; flat++) {
		struct seen all = {0}, few = {.stop_after = 3}, part = {0};
		OK(plfs_map(f, 0, INT64_MAX, visit, &all));
		TRUE(all.bytes == 200 * 50 && all.end == 199 * 100 + 50);
		IS(plfs_map(f, 0, INT64_MAX, visit, &few), 42);
		IS(few.pieces, 3);
		OK(plfs_map(f, 110, 200, visit, &part));
		IS(part.bytes, 40 + 50 + 10);
		OK(plfs_close(f));
		OK(plfs_flatten("f"));
		f = t_open("f", O_RDONLY);
	}
	IS(plfs_map(f, 0, -1, visit, NULL), -EINVAL);
	OK(plfs_close(f));
	IS(plfs_flatten("absent") < 0, 1);

	/* Half of it is written again; the reader that was there goes on. */
	struct plfs_file *reader = t_open("f", O_RDONLY);
	char old[50], new[50];
	IS(plfs_pread(reader, old, 50, 100), 50);
	f = t_open("f", O_RDWR);
	for (int i = 0; i < 100; i++)
		IS(plfs_pwrite(f, "overwritten", 11, i * 100), 11);
	OK(plfs_compact("f"));
	IS(plfs_pwrite(f, "!", 1, 100), 1);
	OK(plfs_compact("f"));
	OK(plfs_close(f));
	IS(plfs_pread(reader, new, 50, 10100), 50);
	IS(plfs_pread(reader, new, 50, 100), 50);
	TRUE(memcmp(new, "!verwritten", 11) == 0 && memcmp(new + 11, old + 11, 39) == 0);
	OK(plfs_close(reader));
	IS(plfs_compact("absent") < 0, 1);
	return 0;
}
