/* Business ids in C: a key in, an id out that carries the key's gene. Wrong use gives a code and writes nothing. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stddef.h>
#include <time.h>

#include "check.h"

#define WRONG(call) GIVES(KM_INVALID_ARGUMENT, call)

enum { GENE_OF_42 = 61763, GENE_OF_BUYER_42 = 56443, LONGEST = 65536 };

static uint64_t narrow(uint64_t gene, uint64_t number) { return gene << 47 | number; }

static void verbs(void) {
    km_mill *mill = NULL;
    km_source *orders = NULL;
    uint64_t id = 0, ids[30];
    uint32_t retry = 0;
    km_parts parts = KM_PARTS_INIT;
    OK(km_mill_open(fresh_store("business", ""), &mill));
    OK(km_mill_source(mill, "business:order?step=10&deadline=60s", &orders));
    OK(km_source_next_for_u64(orders, 42, &id));
    CHECK(id == narrow(GENE_OF_42, 1));
    OK(km_source_next_for_text(orders, "buyer-42, without a NUL", 8, &id));
    CHECK(id == narrow(GENE_OF_BUYER_42, 2));
    OK(km_source_parse(orders, id, &parts));
    CHECK(parts.present == (KM_PART_GENE | KM_PART_NUMBER) && parts.gene == GENE_OF_BUYER_42 && parts.number == 2);
    OK(km_source_fill_for_u64(orders, 42, ids, 30));
    for (uint64_t i = 0; i < 30; i++) CHECK(ids[i] == narrow(GENE_OF_42, 3 + i));
    OK(km_source_fill_for_text(orders, "buyer-42", 8, ids, 2));
    CHECK(ids[0] == narrow(GENE_OF_BUYER_42, 33) && ids[1] == ids[0] + 1);
    OK(km_source_fill_for_u64(orders, 42, ids, 0));
    int32_t code;
    while ((code = km_source_try_next_for_u64(orders, 42, &id, &retry)) == KM_NOT_READY) CHECK(retry >= 1);
    OK(code);
    CHECK(id == narrow(GENE_OF_42, 35));
    while ((code = km_source_try_next_for_text(orders, "buyer-42", 8, &id, &retry)) == KM_NOT_READY) CHECK(retry >= 1);
    OK(code);
    CHECK(id == narrow(GENE_OF_BUYER_42, 36));
    /* A negative key is its two's complement. */
    OK(km_source_next_for_u64(orders, (uint64_t)INT64_C(-1), &id));
    CHECK(id == narrow(45076, 37));
    OK(km_source_next_for_text(orders, "", 0, &id));
    CHECK(id == narrow(59801, 38));
    OK(km_source_free(orders));
    OK(km_mill_free(mill));
}

static void wide(void) {
    km_mill *mill = NULL;
    km_source *orders = NULL;
    km_wide id = {0, 0}, ids[3];
    uint32_t retry = 0;
    km_parts parts = KM_PARTS_INIT;
    OK(km_mill_open("memory:", &mill));
    OK(km_mill_source(mill, "business:order?wide=on&deadline=60s", &orders));
    OK(km_source_next_wide_for_u64(orders, 42, &id));
    CHECK(id.hi == (uint64_t)GENE_OF_42 << 47 && id.lo == 1);
    OK(km_source_next_wide_for_text(orders, "buyer-42", 8, &id));
    CHECK(id.hi == (uint64_t)GENE_OF_BUYER_42 << 47 && id.lo == 2);
    OK(km_source_parse_wide(orders, id, &parts));
    CHECK(parts.present == (KM_PART_GENE | KM_PART_NUMBER) && parts.gene == GENE_OF_BUYER_42 && parts.number == 2);
    OK(km_source_fill_wide_for_u64(orders, 42, ids, 3));
    CHECK(ids[2].hi == (uint64_t)GENE_OF_42 << 47 && ids[2].lo == 5);
    OK(km_source_fill_wide_for_text(orders, "buyer-42", 8, ids, 2));
    CHECK(ids[1].lo == 7);
    OK(km_source_try_next_wide_for_u64(orders, 42, &id, &retry));
    OK(km_source_try_next_wide_for_text(orders, "buyer-42", 8, &id, &retry));
    CHECK(id.lo == 9);
    id.hi |= UINT64_C(1) << 63;
    WRONG(km_source_parse_wide(orders, id, &parts));
    /* The type says the form of an id, never its size. */
    id.hi = 0;
    id.lo = narrow(GENE_OF_42, 7);
    OK(km_source_parse_wide(orders, id, &parts));
    CHECK(parts.gene == 0 && parts.number == id.lo);
    OK(km_source_parse(orders, id.lo, &parts));
    CHECK(parts.gene == GENE_OF_42 && parts.number == 7);
    WRONG(km_source_parse_text(orders, "8692369493290123271", &parts));
    OK(km_source_parse_text(orders, "0x78a1800000000007", &parts));
    CHECK(parts.gene == GENE_OF_42 && parts.number == 7);
    OK(km_source_free(orders));
    OK(km_mill_free(mill));
}

/* Nothing of this may be written by a call that fails. */
static struct {
    uint64_t id, ids[4];
    km_wide wide, wides[4];
    uint32_t retry;
    km_parts parts;
} out;

static void prepare(void) {
    out.id = out.ids[0] = out.ids[3] = out.wide.hi = out.wide.lo = out.wides[0].hi = out.wides[3].lo = 7;
    out.retry = 7;
    out.parts.struct_size = sizeof out.parts;
    out.parts.present = 7;
}

static void untouched(void) {
    CHECK(out.id == 7 && out.ids[0] == 7 && out.ids[3] == 7 && out.retry == 7 && out.parts.present == 7);
    CHECK(out.wide.hi == 7 && out.wide.lo == 7 && out.wides[0].hi == 7 && out.wides[3].lo == 7);
}

static void narrow_verbs(km_source *source, const char *key, size_t len, int32_t code) {
    GIVES(code, km_source_next_for_text(source, key, len, &out.id));
    GIVES(code, km_source_try_next_for_text(source, key, len, &out.id, &out.retry));
    GIVES(code, km_source_fill_for_text(source, key, len, out.ids, 4));
}

static void wide_verbs(km_source *source, const char *key, size_t len, int32_t code) {
    GIVES(code, km_source_next_wide_for_text(source, key, len, &out.wide));
    GIVES(code, km_source_try_next_wide_for_text(source, key, len, &out.wide, &out.retry));
    GIVES(code, km_source_fill_wide_for_text(source, key, len, out.wides, 4));
}

static void number_verbs(km_source *source, int32_t narrow, int32_t wide) {
    GIVES(narrow, km_source_next_for_u64(source, 42, &out.id));
    GIVES(narrow, km_source_try_next_for_u64(source, 42, &out.id, &out.retry));
    GIVES(narrow, km_source_fill_for_u64(source, 42, out.ids, 4));
    GIVES(wide, km_source_next_wide_for_u64(source, 42, &out.wide));
    GIVES(wide, km_source_try_next_wide_for_u64(source, 42, &out.wide, &out.retry));
    GIVES(wide, km_source_fill_wide_for_u64(source, 42, out.wides, 4));
}

/* Each function with a source that cannot serve it. */
static void every_verb(km_source *source, int32_t code) {
    prepare();
    number_verbs(source, code, code);
    narrow_verbs(source, "buyer-42", 8, code);
    wide_verbs(source, "buyer-42", 8, code);
    untouched();
}

static int says(const char *word) { return strstr(km_last_error(), word) != NULL; }

static void misuse(void) {
    static char key[LONGEST + 1];
    km_mill *mill = NULL;
    km_source *orders = NULL, *big = NULL, *segment = NULL;
    uint64_t lo, hi;
    memset(key, 'x', sizeof key);
    OK(km_mill_open("memory:", &mill));
    OK(km_mill_source(mill, "business:order?deadline=60s", &orders));
    OK(km_mill_source(mill, "business:big?wide=on&deadline=60s", &big));
    OK(km_mill_source(mill, "segment:order?deadline=60s", &segment));
    OK(km_source_next_for_text(orders, key, LONGEST, &lo));

    /* Keys: NULL, too long, longer than memory. */
    prepare();
    narrow_verbs(orders, NULL, 0, KM_INVALID_ARGUMENT);
    CHECK(says("NULL"));
    wide_verbs(big, NULL, 8, KM_INVALID_ARGUMENT);
    narrow_verbs(orders, key, LONGEST + 1, KM_INVALID_ARGUMENT);
    CHECK(says("65536"));
    wide_verbs(big, key, LONGEST + 1, KM_INVALID_ARGUMENT);
    narrow_verbs(orders, key, SIZE_MAX, KM_INVALID_ARGUMENT);
    wide_verbs(big, key, SIZE_MAX, KM_INVALID_ARGUMENT);
    untouched();

    /* The other width, another kind, and no key. */
    number_verbs(big, KM_INVALID_ARGUMENT, KM_OK);
    prepare();
    narrow_verbs(big, "a", 1, KM_INVALID_ARGUMENT);
    CHECK(says("wide ids"));
    wide_verbs(orders, "a", 1, KM_INVALID_ARGUMENT);
    CHECK(says("not wide"));
    untouched();
    every_verb(segment, KM_INVALID_ARGUMENT);
    CHECK(says("no keys"));
    prepare();
    WRONG(km_source_next(orders, &out.id));
    CHECK(says("key"));
    WRONG(km_source_try_next(orders, &out.id, &out.retry));
    WRONG(km_source_fill(orders, out.ids, 4));
    WRONG(km_source_lease(orders, 4, &lo, &hi));
    km_cursor cursor = KM_CURSOR_INIT(orders);
    WRONG(km_cursor_next(&cursor, &out.id));
    WRONG(km_source_next(big, &out.id));
    CHECK(says("key"));
    untouched();

    /* Outputs. */
    WRONG(km_source_next_for_u64(orders, 42, NULL));
    WRONG(km_source_next_for_text(orders, "a", 1, NULL));
    WRONG(km_source_try_next_for_u64(orders, 42, NULL, &out.retry));
    WRONG(km_source_try_next_for_u64(orders, 42, &out.id, NULL));
    WRONG(km_source_try_next_for_text(orders, "a", 1, NULL, &out.retry));
    WRONG(km_source_try_next_for_text(orders, "a", 1, &out.id, NULL));
    WRONG(km_source_fill_for_u64(orders, 42, NULL, 4));
    WRONG(km_source_fill_for_text(orders, "a", 1, NULL, 0));
    WRONG(km_source_fill_for_u64(orders, 42, out.ids, SIZE_MAX));
    WRONG(km_source_fill_for_u64(orders, 42, out.ids, SIZE_MAX / 16 + 1));
    WRONG(km_source_next_wide_for_u64(big, 42, NULL));
    WRONG(km_source_next_wide_for_text(big, "a", 1, NULL));
    WRONG(km_source_try_next_wide_for_u64(big, 42, NULL, &out.retry));
    WRONG(km_source_try_next_wide_for_text(big, "a", 1, &out.wide, NULL));
    WRONG(km_source_fill_wide_for_u64(big, 42, NULL, 4));
    WRONG(km_source_fill_wide_for_text(big, "a", 1, NULL, 4));
    WRONG(km_source_fill_wide_for_u64(big, 42, out.wides, SIZE_MAX / 32 + 1));
    WRONG(km_source_parse_wide(big, out.wide, NULL));
    WRONG(km_source_parse_wide(NULL, out.wide, &out.parts));
    WRONG(km_source_parse_wide(segment, out.wide, &out.parts));
    untouched();

    /* A program built with a header without the gene, behind whose struct is its own memory. */
    out.parts.struct_size = offsetof(km_parts, gene);
    out.parts.gene = UINT64_C(0x5a5a5a5a5a5a5a5a);
    OK(km_source_parse(orders, narrow(5, 1), &out.parts));
    CHECK(out.parts.number == 1 && out.parts.gene == UINT64_C(0x5a5a5a5a5a5a5a5a));

    every_verb(NULL, KM_INVALID_ARGUMENT);
    every_verb((km_source *)(void *)mill, KM_INVALID_ARGUMENT);
    OK(km_mill_close(mill));
    prepare();
    number_verbs(orders, KM_CLOSED, KM_CLOSED);
    narrow_verbs(orders, "a", 1, KM_CLOSED);
    wide_verbs(big, "a", 1, KM_CLOSED);
    untouched();
    OK(km_source_free(orders));
    OK(km_source_free(big));
    OK(km_source_free(segment));
    every_verb(orders, KM_INVALID_ARGUMENT);
    OK(km_mill_free(mill));
}

enum { THREADS = 4, MOST = 40000 };
static km_source *shared;
static uint64_t taken[THREADS][MOST];

static void *take(void *mine) {
    uint64_t *ids = mine;
    for (size_t i = 0; i < scaled(MOST); i++) OK(km_source_next_for_u64(shared, i % 100, &ids[i]));
    return NULL;
}

static void threads(void) {
    static uint64_t all[THREADS * MOST];
    pthread_t thread[THREADS];
    km_mill *mill = NULL;
    size_t each = scaled(MOST);
    OK(km_mill_open(fresh_store("business-threads", ""), &mill));
    OK(km_mill_source(mill, "business:order?counters=16&deadline=60s", &shared));
    for (int t = 0; t < THREADS; t++) CHECK(pthread_create(&thread[t], NULL, take, taken[t]) == 0);
    for (int t = 0; t < THREADS; t++) {
        CHECK(pthread_join(thread[t], NULL) == 0);
        memcpy(all + (size_t)t * each, taken[t], each * sizeof *all);
    }
    check_unique(all, THREADS * each, "business ids, four threads");
    OK(km_source_free(shared));
    OK(km_mill_free(mill));
}

/* The table is stored as an operator does; ci/steps/c has the command in the path. */
static void put_routes(const char *store, int version) {
    char file[4096], line[13000];
    const char *folder = getenv("KEYMILL_C_SCRATCH");
    FILE *table;
    snprintf(file, sizeof file, "%s/routes.toml", folder ? folder : ".");
    table = fopen(file, "w");
    CHECK(table);
    fprintf(table, "version = %d\n[[range]]\nupper = 65535\nshard = \"s%d\"\n", version, version);
    CHECK(fclose(table) == 0);
    snprintf(line, sizeof line, "env -u LD_PRELOAD keymill --mill '%s' route put orders '%s' --yes >&2", store, file);
    CHECK(system(line) == 0);
}

static void followed(void) {
    char store[4200];
    km_mill *mill = NULL;
    km_router *router = NULL, *again = NULL;
    km_route route = KM_ROUTE_INIT;
    int64_t age = -1;
    uint64_t version = 0;
    snprintf(store, sizeof store, "%s", fresh_store("routes", "?durability=warn"));
    put_routes(store, 1);
    OK(km_mill_open(store, &mill));
    OK(km_mill_router(mill, "orders", &router));
    OK(km_router_route_key_u64(router, 42, &route));
    CHECK(route.gene == GENE_OF_42 && route.version == 1 && strcmp(route.shard, "s1") == 0);
    OK(km_router_age(router, &age));
    CHECK(age >= 0);
    put_routes(store, 2);
    for (int tries = 0; version < 2 && tries < 1200; tries++) {
        struct timespec pause = {0, 50 * 1000 * 1000};
        nanosleep(&pause, NULL);
        OK(km_router_version(router, &version));
    }
    OK(km_mill_router(mill, "orders", &again));
    OK(km_mill_free(mill));
    OK(km_router_route(router, 1, &route));
    CHECK(route.version == 2 && strcmp(route.read, "s2") == 0);
    OK(km_router_free(router));
    OK(km_router_free(again));
}

int main(void) {
    verbs();
    followed();
    wide();
    misuse();
    threads();
    return 0;
}
