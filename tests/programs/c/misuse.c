/* Wrong use of every function gives a code, never a crash, and writes nothing. */
#include <stddef.h>

#include "check.h"

#define WRONG(call) GIVES(KM_INVALID_ARGUMENT, call)

/* Nothing of this may be written by a call that fails. */
static struct {
    uint64_t id, lo, hi, ids[4];
    uint32_t retry;
    size_t len;
    char buf[64];
    km_parts parts;
    km_stats stats;
    km_mill *mill;
    km_source *source;
} out;

static void untouched(void) {
    CHECK(out.id == 7 && out.lo == 7 && out.hi == 7 && out.ids[0] == 7 && out.ids[3] == 7);
    CHECK(out.retry == 7 && out.len == 7 && out.buf[0] == '7' && out.buf[63] == '7');
    CHECK(out.parts.present == 7 && out.stats.present == 7 && out.mill == NULL && out.source == NULL);
}

static void prepare(void) {
    out.id = out.lo = out.hi = out.ids[0] = out.ids[3] = 7;
    out.retry = 7;
    out.len = 7;
    memset(out.buf, '7', sizeof out.buf);
    out.parts.struct_size = sizeof out.parts;
    out.parts.present = 7;
    out.stats.struct_size = sizeof out.stats;
    out.stats.present = 7;
    out.mill = NULL;
    out.source = NULL;
}

/* Each function of a mill with a handle that is none. */
static void with_mill(km_mill *mill, int32_t code) {
    prepare();
    GIVES(code, km_mill_source(mill, "segment:orders", &out.source));
    GIVES(code, km_mill_close(mill));
    GIVES(code, km_mill_metrics(mill, out.buf, sizeof out.buf, &out.len));
    GIVES(code, km_mill_events(mill, out.buf, sizeof out.buf, &out.len));
    GIVES(code, km_mill_clock_advance(mill, 1));
    GIVES(code, km_mill_clock_set(mill, 1));
    if (mill != NULL) GIVES(code, km_mill_free(mill));
    untouched();
}

/* Each function of a source that hands out something. */
static void with_source(km_source *source, int32_t code) {
    prepare();
    km_cursor cursor = KM_CURSOR_INIT(source);
    GIVES(code, km_source_next(source, &out.id));
    GIVES(code, km_source_try_next(source, &out.id, &out.retry));
    GIVES(code, km_source_fill(source, out.ids, 4));
    GIVES(code, km_source_lease(source, 1, &out.lo, &out.hi));
    GIVES(code, km_source_next_text(source, out.buf, sizeof out.buf, &out.len));
    GIVES(code, km_source_try_next_text(source, out.buf, sizeof out.buf, &out.len, &out.retry));
    GIVES(code, km_source_take_text(source, out.buf, sizeof out.buf, 1));
    GIVES(code, km_cursor_next(&cursor, &out.id));
    GIVES(code, km_cursor_refill(&cursor, &out.id));
    untouched();
}

/* The functions that ask nothing of the mill. */
static void with_dead_source(km_source *source) {
    prepare();
    WRONG(km_source_text_len(source, &out.len));
    WRONG(km_source_parse(source, 1, &out.parts));
    WRONG(km_source_parse_text(source, "1", &out.parts));
    WRONG(km_source_stats(source, &out.stats));
    if (source != NULL) WRONG(km_source_free(source));
    untouched();
}

static void null_outputs(km_mill *mill, km_source *source) {
    prepare();
    km_cursor cursor = KM_CURSOR_INIT(source);
    WRONG(km_mill_open(NULL, &out.mill));
    WRONG(km_mill_open("memory:", NULL));
    WRONG(km_mill_open_default(NULL));
    const char *parts[] = { "a", NULL };
    WRONG(km_spec(NULL, parts, 1, NULL, 0, out.buf, sizeof out.buf, &out.len));
    WRONG(km_spec("segment", NULL, 1, NULL, 0, out.buf, sizeof out.buf, &out.len));
    WRONG(km_spec("segment", parts, 2, NULL, 0, out.buf, sizeof out.buf, &out.len));
    WRONG(km_spec("segment", parts, 1, NULL, 1, out.buf, sizeof out.buf, &out.len));
    WRONG(km_spec("segment", parts, 1, parts, 1, out.buf, sizeof out.buf, &out.len));
    WRONG(km_spec("segment", parts, 1, NULL, 0, NULL, 64, &out.len));
    WRONG(km_spec("segment", parts, 1, NULL, 0, out.buf, sizeof out.buf, NULL));
    WRONG(km_mill_source(mill, NULL, &out.source));
    WRONG(km_mill_source(mill, "segment:orders", NULL));
    WRONG(km_mill_metrics(mill, NULL, 100, &out.len));
    WRONG(km_mill_metrics(mill, out.buf, sizeof out.buf, NULL));
    WRONG(km_mill_events(mill, NULL, 0, &out.len));
    WRONG(km_mill_events(mill, out.buf, sizeof out.buf, NULL));
    WRONG(km_source_next(source, NULL));
    WRONG(km_source_try_next(source, NULL, &out.retry));
    WRONG(km_source_try_next(source, &out.id, NULL));
    WRONG(km_source_fill(source, NULL, 4));
    WRONG(km_source_fill(source, NULL, 0));
    WRONG(km_source_lease(source, 1, NULL, &out.hi));
    WRONG(km_source_lease(source, 1, &out.lo, NULL));
    WRONG(km_source_next_text(source, NULL, 64, &out.len));
    WRONG(km_source_next_text(source, NULL, 0, &out.len));
    WRONG(km_source_next_text(source, out.buf, sizeof out.buf, NULL));
    WRONG(km_source_try_next_text(source, NULL, 64, &out.len, &out.retry));
    WRONG(km_source_try_next_text(source, out.buf, sizeof out.buf, NULL, &out.retry));
    WRONG(km_source_try_next_text(source, out.buf, sizeof out.buf, &out.len, NULL));
    WRONG(km_source_take_text(source, NULL, 64, 1));
    WRONG(km_source_take_text(source, NULL, 64, 0));
    WRONG(km_source_text_len(source, NULL));
    WRONG(km_source_parse(source, 1, NULL));
    WRONG(km_source_parse_text(source, NULL, &out.parts));
    WRONG(km_source_parse_text(source, "1", NULL));
    WRONG(km_source_stats(source, NULL));
    WRONG(km_cursor_next(NULL, &out.id));
    WRONG(km_cursor_next(&cursor, NULL));
    WRONG(km_cursor_refill(NULL, &out.id));
    WRONG(km_cursor_refill(&cursor, NULL));
    WRONG(km_cursor_close(NULL));
    OK(km_mill_free(NULL));
    OK(km_source_free(NULL));
    untouched();
}

static void sizes_and_counts(km_mill *mill, km_source *source) {
    prepare();
    WRONG(km_source_fill(source, out.ids, SIZE_MAX));
    WRONG(km_source_fill(source, out.ids, SIZE_MAX / 8));
    WRONG(km_source_fill(source, out.ids, SIZE_MAX / 16 + 1));
    WRONG(km_source_lease(source, 0, &out.lo, &out.hi));
    WRONG(km_source_take_text(source, out.buf, SIZE_MAX, 2));
    WRONG(km_source_take_text(source, out.buf, 64, SIZE_MAX / 64));
    GIVES(KM_BUFFER_TOO_SMALL, km_source_take_text(source, out.buf, 0, SIZE_MAX));
    out.parts.struct_size = 0;
    WRONG(km_source_parse(source, 1, &out.parts));
    out.parts.struct_size = 8;
    WRONG(km_source_parse(source, 1, &out.parts));
    untouched();
    /* A program built with a header whose struct ends with the date, behind which is its own memory. */
    out.parts.struct_size = offsetof(km_parts, datacenter);
    out.parts.datacenter = 0x5a5a5a5a5a5a5a5a;
    OK(km_source_parse(source, 1, &out.parts));
    CHECK(out.parts.present == KM_PART_NUMBER && out.parts.datacenter == 0x5a5a5a5a5a5a5a5a);
    /* A struct of a later version: what this library knows is written, no more. */
    out.parts.struct_size = sizeof out.parts + 64;
    OK(km_source_parse(source, 1, &out.parts));
    CHECK(out.parts.present == KM_PART_NUMBER && out.parts.struct_size == sizeof out.parts + 64);

    for (size_t size = 0; size < 20; size++) {
        prepare();
        GIVES(KM_BUFFER_TOO_SMALL, km_source_next_text(source, out.buf, size, &out.len));
        CHECK(out.len == 20);
        out.len = 7;
        GIVES(KM_BUFFER_TOO_SMALL, km_source_try_next_text(source, out.buf, size, &out.len, &out.retry));
        CHECK(out.len == 20);
        out.len = 7;
        GIVES(KM_BUFFER_TOO_SMALL, km_mill_metrics(mill, out.buf, size, &out.len));
        CHECK(out.len > 20);
        out.len = 7;
        GIVES(KM_BUFFER_TOO_SMALL, km_mill_events(mill, out.buf, size, &out.len));
        CHECK(out.len == KM_EVENT_SIZE);
        out.len = 7;
        untouched();
    }
    /* A buffer said to be endless is only written as far as the text goes. */
    OK(km_source_next_text(source, out.buf, SIZE_MAX, &out.len));
    CHECK(strcmp(out.buf, "1") == 0 && out.len == 1 && out.buf[20] == '7');
    /* So many numbers no segment has: some, not a failure. */
    OK(km_source_lease(source, UINT64_MAX, &out.lo, &out.hi));
    CHECK(out.lo == 2 && out.hi > out.lo);
}

static void strings(km_mill *mill, km_source *source) {
    prepare();
    static const char *const wrong[] = {"\xff", "memory:\xc3", "sqlite:\xed\xa0\x80.db", "\xc0\x80"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        WRONG(km_mill_open(wrong[i], &out.mill));
        WRONG(km_mill_source(mill, wrong[i], &out.source));
        WRONG(km_source_parse_text(source, wrong[i], &out.parts));
    }
    static const char *const bad[] = {"x", ":", "memory", "segment:", "segment:orders?step", "%", "segment:a\nb"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GIVES(KM_INVALID_CONFIG, km_mill_open(bad[i], &out.mill));
        GIVES(KM_INVALID_CONFIG, km_mill_source(mill, bad[i], &out.source));
        WRONG(km_source_parse_text(source, bad[i], &out.parts));
    }
    GIVES(KM_INVALID_CONFIG, km_mill_open("", &out.mill));
    GIVES(KM_INVALID_CONFIG, km_mill_source(mill, "", &out.source));
    size_t long_len = 10 * 1000 * 1000;
    char *text = malloc(long_len + 1);
    CHECK(text != NULL);
    memset(text, 'a', long_len);
    text[long_len] = '\0';
    GIVES(KM_INVALID_CONFIG, km_mill_open(text, &out.mill));
    GIVES(KM_INVALID_CONFIG, km_mill_source(mill, text, &out.source));
    WRONG(km_source_parse_text(source, text, &out.parts));
    CHECK(strlen(km_last_error()) < 1000);
    free(text);
    WRONG(km_source_parse(source, UINT64_MAX, &out.parts));
    WRONG(km_source_parse(source, 0, &out.parts));
    WRONG(km_mill_clock_advance(mill, 1)); /* not a manual clock */
    WRONG(km_mill_clock_set(mill, 1));
    untouched();
}

/* Each function of a router with a handle that is none. */
static void with_router(km_router *router) {
    km_route route = KM_ROUTE_INIT;
    uint64_t version = 7;
    int64_t age = 7;
    WRONG(km_router_load(router, "version = 1"));
    WRONG(km_router_route(router, 1, &route));
    WRONG(km_router_route_wide(router, (km_wide){0, 1}, &route));
    WRONG(km_router_route_key_u64(router, 42, &route));
    WRONG(km_router_route_key_text(router, "a", 1, &route));
    WRONG(km_router_version(router, &version));
    WRONG(km_router_age(router, &age));
    if (router != NULL) WRONG(km_router_free(router));
    CHECK(route.shard == NULL && version == 7 && age == 7);
}

static void routers(km_mill *mill) {
    static const char table[] = "version = 7\n[[range]]\nupper = 65535\nshard = \"s1\"\n";
    km_router *router = NULL, *none = NULL;
    km_route route = KM_ROUTE_INIT;
    uint64_t version;
    int64_t age;
    uint16_t gene = 7;
    WRONG(km_gene_u64(1, NULL));
    WRONG(km_gene_text(NULL, 0, &gene));
    WRONG(km_gene_text("a", 1, NULL));
    WRONG(km_gene_text("a", SIZE_MAX, &gene));
    WRONG(km_gene_text("a", (size_t)1 << 40, &gene));
    CHECK(gene == 7);
    WRONG(km_router_open_text(NULL, &none));
    WRONG(km_router_open_text(table, NULL));
    WRONG(km_router_open_text("\xff", &none));
    WRONG(km_router_open_file(NULL, &none));
    WRONG(km_router_open_file("/nowhere/at/all", &none));
    WRONG(km_router_open_file("/", &none));
    WRONG(km_mill_router(mill, NULL, &none));
    WRONG(km_mill_router(mill, "orders", NULL));
    WRONG(km_mill_router(NULL, "orders", &none));
    GIVES(KM_STORE_REFUSED, km_mill_router(mill, "orders", &none));
    GIVES(KM_INVALID_CONFIG, km_mill_router(mill, "", &none));
    GIVES(KM_INVALID_CONFIG, km_router_open_text("", &none));
    CHECK(none == NULL);

    OK(km_router_open_text(table, &router));
    WRONG(km_router_load(router, NULL));
    GIVES(KM_INVALID_CONFIG, km_router_load(router, "version = 8"));
    WRONG(km_router_route(router, 1, NULL));
    WRONG(km_router_route(router, UINT64_MAX, &route));
    WRONG(km_router_route_wide(router, (km_wide){(uint64_t)1 << 63, 0}, &route));
    WRONG(km_router_route_wide(router, (km_wide){1, 0}, &route));
    WRONG(km_router_route_key_text(router, NULL, 0, &route));
    WRONG(km_router_version(router, NULL));
    WRONG(km_router_age(router, NULL));
    route.struct_size = 8;
    WRONG(km_router_route(router, 1, &route));
    CHECK(route.shard == NULL);
    /* A struct of a later version: what this library knows is written, no more. */
    route.struct_size = sizeof route + 64;
    OK(km_router_route(router, 1, &route));
    CHECK(route.struct_size == sizeof route + 64 && strcmp(route.shard, "s1") == 0 && route.also == NULL);
    /* A name outlives its table. */
    OK(km_router_load(router, "version = 8\n[[range]]\nupper = 1\nshard = \"s2\"\n"));
    CHECK(strcmp(route.shard, "s1") == 0);
    OK(km_router_route_key_text(router, "buyer-42", 8, &route));
    OK(km_gene_text("buyer-42", 8, &gene));
    CHECK(strcmp(route.read, "s2") == 0 && route.gene == gene && gene == 56443 && route.version == 8);
    OK(km_router_version(router, &version));
    OK(km_router_age(router, &age));
    CHECK(version == 8 && age == -1);

    with_router(NULL);
    with_router((km_router *)(void *)mill);
    with_mill((km_mill *)(void *)router, KM_INVALID_ARGUMENT);
    OK(km_router_free(NULL));
    OK(km_router_free(router));
    with_router(router);
}

int main(void) {
    km_mill *mill = NULL, *other = NULL;
    km_source *source = NULL, *orphan = NULL;
    OK(km_mill_open("memory:", &mill));
    OK(km_mill_source(mill, "segment:orders", &source));

    with_mill(NULL, KM_INVALID_ARGUMENT);
    with_source(NULL, KM_INVALID_ARGUMENT);
    with_dead_source(NULL);
    null_outputs(mill, source);
    sizes_and_counts(mill, source);
    strings(mill, source);
    routers(mill);

    /* The wrong kind of handle. */
    with_mill((km_mill *)(void *)source, KM_INVALID_ARGUMENT);
    with_source((km_source *)(void *)mill, KM_INVALID_ARGUMENT);
    with_dead_source((km_source *)(void *)mill);

    /* Extremes of a manual clock. */
    OK(km_mill_open("memory:?clock=manual", &other));
    OK(km_mill_source(other, "segment:orders", &orphan));
    OK(km_mill_clock_set(other, INT64_MAX));
    OK(km_mill_clock_advance(other, UINT64_MAX));
    OK(km_mill_clock_set(other, INT64_MIN));

    /* The mill is freed, its source is not: closed. */
    OK(km_mill_free(other));
    with_source(orphan, KM_CLOSED);
    with_mill(other, KM_INVALID_ARGUMENT);
    OK(km_source_text_len(orphan, &out.len));
    OK(km_source_free(orphan));
    with_source(orphan, KM_INVALID_ARGUMENT);
    with_dead_source(orphan);

    /* Closed, not freed. */
    OK(km_mill_close(mill));
    OK(km_mill_close(mill));
    with_source(source, KM_CLOSED);
    prepare();
    GIVES(KM_CLOSED, km_mill_source(mill, "segment:orders", &out.source));
    GIVES(KM_CLOSED, km_mill_source(mill, "segment:others", &out.source));
    untouched();

    /* Freed, whatever was passed. */
    OK(km_source_free(source));
    OK(km_mill_free(mill));
    with_source(source, KM_INVALID_ARGUMENT);
    with_dead_source(source);
    with_mill(mill, KM_INVALID_ARGUMENT);
    with_mill((km_mill *)(void *)source, KM_INVALID_ARGUMENT);

    /* Memory of freed handles is used again, later. */
    OK(km_mill_open("memory:", &mill));
    km_source *first = NULL;
    int again = 0;
    for (int i = 0; i < 3000; i++) {
        OK(km_mill_source(mill, "segment:orders", &source));
        if (source == first) again++;
        OK(km_source_free(source));
        if (first == NULL) first = source;
        if (i < 1000) WRONG(km_source_text_len(first, &out.len));
    }
    CHECK(again >= 1);
    OK(km_mill_free(mill));

    /* A cursor whose source was freed. */
    OK(km_mill_open("memory:", &mill));
    OK(km_mill_source(mill, "segment:orders", &source));
    km_cursor cursor = KM_CURSOR_INIT(source);
    OK(km_cursor_next(&cursor, &out.id));
    OK(km_mill_free(mill));
    OK(km_source_free(source));
    /* Its word may serve another mill by now: still not this cursor. */
    OK(km_mill_open("memory:", &mill));
    OK(km_mill_source(mill, "segment:orders", &source));
    WRONG(km_cursor_next(&cursor, &out.id));
    WRONG(km_cursor_close(&cursor));
    OK(km_source_free(source));
    OK(km_mill_free(mill));
    return 0;
}
