/* How fast, as ratios to a bare shared atomic in the same run. A table to read; nothing is asserted. */
#define _GNU_SOURCE
#include "check.h"
#include <time.h>

enum { COUNT = 2000000, ROUNDS = 9, WAYS = 6 };

static uint64_t bare;
static km_source *orders, *buyers;
static km_cursor cursor;
static volatile uint64_t sink;

static void by_atomic(void) {
    uint64_t sum = 0;
    for (int i = 0; i < COUNT; i++) sum += __atomic_fetch_add(&bare, 1, __ATOMIC_RELAXED);
    sink = sum;
}

static void by_call(void) {
    /* A local: a global that lies as far into its page as the counter into its own is taken for it, and costs 3 ns. */
    km_source *source = orders;
    uint64_t sum = 0, id = 0;
    for (int i = 0; i < COUNT; i++) {
        OK(km_source_next(source, &id));
        sum += id;
    }
    sink = sum;
}

static void by_cursor(void) {
    uint64_t sum = 0, id = 0;
    for (int i = 0; i < COUNT; i++) {
        OK(km_cursor_next(&cursor, &id));
        sum += id;
    }
    sink = sum;
}

static void by_fill(void) {
    static uint64_t ids[1000];
    uint64_t sum = 0;
    for (int i = 0; i < COUNT / 1000; i++) {
        OK(km_source_fill(orders, ids, 1000));
        sum += ids[999];
    }
    sink = sum;
}

static void by_number_key(void) {
    km_source *source = buyers;
    uint64_t sum = 0, id = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        OK(km_source_next_for_u64(source, i % 1000, &id));
        sum += id;
    }
    sink = sum;
}

static void by_text_key(void) {
    km_source *source = buyers;
    uint64_t sum = 0, id = 0;
    for (int i = 0; i < COUNT; i++) {
        OK(km_source_next_for_text(source, "buyer-0123456789", 16, &id));
        sum += id;
    }
    sink = sum;
}

static double thread_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b) {
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

int main(void) {
    static const struct {
        const char *name;
        void (*run)(void);
        const char *goal;
    } ways[WAYS] = {
        {"bare shared atomic", by_atomic, ""},
        {"km_source_next", by_call, "<= 1.8"},
        {"km_cursor_next, inline", by_cursor, "<= 1.2"},
        {"km_source_fill by 1000", by_fill, ""},
        {"km_source_next_for_u64", by_number_key, ""},
        {"km_source_next_for_text, 16 bytes", by_text_key, ""},
    };
    static double times[WAYS][ROUNDS];
    km_mill *mill = NULL;
    OK(km_mill_open(fresh_store("speed", ""), &mill));
    OK(km_mill_source(mill, "segment:orders?step=50000000&block=100000", &orders));
    OK(km_mill_source(mill, "business:order?step=100000000", &buyers));
    km_cursor fresh = KM_CURSOR_INIT(orders);
    cursor = fresh;
    by_call();
    for (int round = 0; round < ROUNDS; round++) {
        for (int way = 0; way < WAYS; way++) {
            double before = thread_seconds();
            ways[way].run();
            times[way][round] = thread_seconds() - before;
        }
    }
    for (int way = 0; way < WAYS; way++) qsort(times[way], ROUNDS, sizeof(double), compare);
    for (int way = 0; way < WAYS; way++) {
        double ns = times[way][ROUNDS / 2] / COUNT * 1e9;
        printf("  %-34s %6.2f ns  x%-6.3f %s\n", ways[way].name, ns, times[way][ROUNDS / 2] / times[0][ROUNDS / 2],
               ways[way].goal);
    }
    OK(km_source_free(orders));
    OK(km_source_free(buyers));
    OK(km_mill_free(mill));
    return 0;
}
