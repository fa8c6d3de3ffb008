/* Many threads on one source: no id twice; a close under load ends every one of them with KM_CLOSED. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>
#include <time.h>

enum { TAKERS = 8, CLOSED_ON = 16, MOST = 200000 };

typedef struct {
    pthread_t thread;
    km_source *source;
    int how;
    size_t count, want;
    uint64_t *ids;
    int32_t ended_with;
} taker;

static int32_t take_one(taker *me, km_cursor *cursor) {
    uint64_t lo, hi, id = 0;
    uint32_t retry;
    int32_t code;
    switch (me->how) {
    case 0:
        if ((code = km_source_next(me->source, &id)) == KM_OK) me->ids[me->count++] = id;
        return code;
    case 1:
        if ((code = km_cursor_next(cursor, &id)) == KM_OK) me->ids[me->count++] = id;
        return code;
    case 2: {
        size_t n = me->want - me->count < 100 ? me->want - me->count : 100;
        if ((code = km_source_fill(me->source, me->ids + me->count, n)) == KM_OK) me->count += n;
        return code;
    }
    case 3:
        if ((code = km_source_lease(me->source, me->want - me->count, &lo, &hi)) == KM_OK)
            while (lo < hi) me->ids[me->count++] = lo++;
        return code;
    default:
        code = km_source_try_next(me->source, &id, &retry);
        if (code == KM_OK) me->ids[me->count++] = id;
        if (code != KM_NOT_READY) return code;
        /* Under a checker that runs one thread at a time, a thread that spins here would keep the keeper from running. */
        nanosleep(&(struct timespec){.tv_nsec = retry % 1000 * 1000000L}, NULL);
        return KM_OK;
    }
}

static void *run(void *argument) {
    taker *me = argument;
    km_cursor cursor = KM_CURSOR_INIT(me->source);
    int32_t code = KM_OK;
    while (code == KM_OK && me->count < me->want) code = take_one(me, &cursor);
    me->ended_with = code;
    return NULL;
}

/* Takes with `n` threads; with `close`, until the mill is closed under them. */
static void take(const char *spec, int n, int close, const char *what) {
    static taker takers[CLOSED_ON];
    km_mill *mill = NULL;
    km_source *source = NULL;
    size_t want = scaled(MOST), all = 0;
    OK(km_mill_open(fresh_store("threads", ""), &mill));
    OK(km_mill_source(mill, spec, &source));
    for (int i = 0; i < n; i++) {
        taker *t = &takers[i];
        memset(t, 0, sizeof *t);
        t->source = source;
        /* Snowflakes have no ranges to lease. */
        t->how = i % 5 == 3 && strncmp(spec, "snowflake", 9) == 0 ? 0 : i % 5;
        t->want = close ? want * 100 : want;
        CHECK((t->ids = malloc(t->want * sizeof *t->ids)) != NULL);
        CHECK(pthread_create(&t->thread, NULL, run, t) == 0);
    }
    if (close) {
        uint64_t some[10];
        for (int i = 0; i < 100; i++) OK(km_source_fill(source, some, 10));
        OK(km_mill_close(mill));
    }
    for (int i = 0; i < n; i++) {
        CHECK(pthread_join(takers[i].thread, NULL) == 0);
        CHECK(takers[i].ended_with == (takers[i].count < takers[i].want ? KM_CLOSED : KM_OK));
        CHECK(close || takers[i].ended_with == KM_OK);
        all += takers[i].count;
    }
    uint64_t *ids = malloc((all + 1) * sizeof *ids), *end = ids;
    CHECK(ids != NULL);
    for (int i = 0; i < n; i++) {
        memcpy(end, takers[i].ids, takers[i].count * sizeof *ids);
        end += takers[i].count;
        free(takers[i].ids);
    }
    check_unique(ids, all, what);
    free(ids);
    OK(km_source_free(source));
    OK(km_mill_free(mill));
}

static void *close_it(void *mill) {
    OK(km_mill_close(mill));
    return NULL;
}

static void many_close_at_once(void) {
    km_mill *mill = NULL;
    pthread_t threads[TAKERS];
    OK(km_mill_open("memory:", &mill));
    for (int i = 0; i < TAKERS; i++) CHECK(pthread_create(&threads[i], NULL, close_it, mill) == 0);
    for (int i = 0; i < TAKERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(km_mill_free(mill));
}

static void *fails(void *nothing) {
    uint64_t id;
    CHECK(km_last_error()[0] == '\0');
    GIVES(KM_INVALID_ARGUMENT, km_source_next(NULL, &id));
    return nothing;
}

/* Each thread has its own last error. */
static void last_errors(void) {
    pthread_t thread;
    km_mill *mill = NULL;
    GIVES(KM_INVALID_CONFIG, km_mill_open("nothing", &mill));
    char before[512];
    snprintf(before, sizeof before, "%s", km_last_error());
    CHECK(pthread_create(&thread, NULL, fails, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(before, km_last_error()) == 0);
}

int main(void) {
    /* A patient deadline: a checker may run one thread at a time. */
    take("segment:orders?deadline=60s", TAKERS, 0, "a segment, eight threads");
    take("segment:orders?order=thread&deadline=60s", TAKERS, 0, "a segment by thread, eight threads");
    take("snowflake:tx?worker=5&deadline=60s", TAKERS, 0, "a snowflake, eight threads");
    take("segment:orders?deadline=60s", CLOSED_ON, 1, "closed under sixteen threads");
    many_close_at_once();
    last_errors();
    return 0;
}
