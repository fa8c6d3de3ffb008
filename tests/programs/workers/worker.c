/* A process that takes for ever: CONFIG SPEC LOG. One line an id, each written before the next is taken, so that
 * whoever kills it finds every id that was handed out. tests/languages/polyglot.rs starts one in each language. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <keymill.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, km_last_error());
    return 1;
}

int main(int argc, char **argv) {
    km_mill *mill = NULL;
    km_source *source = NULL;
    if (argc != 4) return failed("usage: worker CONFIG SPEC LOG");
    if (km_mill_open(argv[1], &mill) != KM_OK || km_mill_source(mill, argv[2], &source) != KM_OK) return failed(argv[2]);
    int log = open(argv[3], O_WRONLY | O_CREAT | O_APPEND, 0644);
    int serial = strncmp(argv[2], "serial:", 7) == 0, business = strncmp(argv[2], "business:", 9) == 0;
    for (unsigned turn = 0;; turn++) {
        char lines[32 * 20];
        size_t len = 0;
        if (serial) {
            if (km_source_next_text(source, lines, sizeof lines - 1, &len) != KM_OK) return failed("next_text");
            lines[len++] = '\n';
        } else {
            uint64_t ids[20];
            size_t count = turn % 3 == 0 ? 20 : 1;
            int32_t code;
            /* Nine keys: the first letters of this one, none at first. */
            if (business && count == 1) code = km_source_next_for_text(source, "buyer-42", turn % 9, ids);
            else if (business) code = km_source_fill_for_u64(source, turn % 30, ids, count);
            else code = count == 1 ? km_source_next(source, ids) : km_source_fill(source, ids, count);
            if (code != KM_OK) return failed("next");
            for (size_t i = 0; i < count; i++) len += (size_t)sprintf(lines + len, "%llu\n", (unsigned long long)ids[i]);
        }
        if (write(log, lines, len) != (ssize_t)len) return failed("write");
        nanosleep(&(struct timespec){0, 100000}, NULL); /* thousands of turns a second; more would only be counted */
    }
}
