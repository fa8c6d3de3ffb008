/* Each verb does what the header says, for each kind of source. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

static void versions_and_codes(void) {
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", KM_VERSION_MAJOR, KM_VERSION_MINOR, KM_VERSION_PATCH);
    CHECK(strcmp(version, km_version()) == 0);
    CHECK(KM_OK == 0 && KM_INTERNAL == 19);
    CHECK(strcmp(km_code_name(KM_OK), "OK") == 0);
    CHECK(strcmp(km_code_name(KM_STORE_WENT_BACKWARDS), "STORE_WENT_BACKWARDS") == 0);
    CHECK(strcmp(km_code_name(20), "UNKNOWN") == 0 && strcmp(km_code_name(INT32_MIN), "UNKNOWN") == 0);
    CHECK(sizeof(km_code) == sizeof(int32_t));
    CHECK(km_last_error()[0] == '\0' && km_last_retry_ms() == 0);
}

static void specs(void) {
    const char *name[] = { "cust/info", "custid" }, *options[] = { "number", "000000", "zone", "Asia/Shanghai" };
    char spec[64];
    size_t len = 0;
    OK(km_spec("segment", name + 1, 1, NULL, 0, spec, sizeof spec, &len));
    CHECK(strcmp(spec, "segment:custid") == 0 && len == strlen(spec));
    GIVES(KM_BUFFER_TOO_SMALL, km_spec("serial", name, 2, options, 2, spec, 10, &len));
    CHECK(len == sizeof "serial:cust%2Finfo/custid?number=000000&zone=Asia%2FShanghai");
    OK(km_spec("serial", name, 2, options, 2, spec, len, &len));
    CHECK(strcmp(spec, "serial:cust%2Finfo/custid?number=000000&zone=Asia%2FShanghai") == 0);
}

static void stats(void) {
    km_mill *mill = NULL;
    km_source *orders = NULL, *tx = NULL;
    uint64_t ids[10];
    km_stats stats = KM_STATS_INIT;
    OK(km_mill_open("memory:", &mill));
    OK(km_mill_source(mill, "segment:orders?deadline=60s", &orders));
    OK(km_source_stats(orders, &stats));
    CHECK(stats.issued == 0 && !(stats.present & (KM_STAT_REFUSAL | KM_STAT_LEAD | KM_STAT_END)));
    OK(km_source_fill(orders, ids, 10));
    OK(km_source_stats(orders, &stats));
    CHECK(stats.issued == 10 && stats.reserved >= 10 && stats.left == stats.reserved - 10 && stats.refills >= 1);
    CHECK((stats.present & KM_STAT_LAST_REFILL) && stats.last_refill_ms > 0 && stats.refusal[0] == '\0');
    OK(km_mill_source(mill, "snowflake:tx?worker=1", &tx));
    OK(km_source_fill(tx, ids, 10));
    OK(km_source_stats(tx, &stats));
    CHECK(stats.issued == 10 && (stats.present & KM_STAT_END) && stats.ends_at_ms > 0);
    CHECK(!(stats.present & KM_STAT_LEASE_AGE) && stats.lease_age_ms == 0);
    OK(km_source_free(tx));
    OK(km_source_free(orders));
    OK(km_mill_free(mill));
}

/* With order=thread the ids and texts of a thread rise, whatever verbs it mixes. */
static void order(void) {
    km_mill *mill = NULL;
    km_source *source = NULL;
    uint64_t id = 0, ids[2], next = 1;
    OK(km_mill_open(fresh_store("basics-order", ""), &mill));
    OK(km_mill_source(mill, "segment:orders?deadline=60s&order=thread&block=100", &source));
    for (int round = 0; round < 200; round++, next += 5) {
        int32_t code;
        uint32_t retry = 0;
        char text[32];
        size_t len = 0;
        OK(km_source_next(source, &id));
        CHECK(id == next);
        OK(km_source_fill(source, ids, 2));
        CHECK(ids[0] == next + 1 && ids[1] == next + 2);
        while ((code = km_source_try_next(source, &id, &retry)) == KM_NOT_READY) {}
        OK(code);
        CHECK(id == next + 3);
        while ((code = km_source_try_next_text(source, text, sizeof text, &len, &retry)) == KM_NOT_READY) {}
        OK(code);
        CHECK(strtoull(text, NULL, 10) == next + 4);
    }
    OK(km_source_free(source));

    OK(km_mill_source(mill, "serial:t/c?deadline=60s&order=thread&block=100", &source));
    char before[32] = "";
    for (int round = 0; round < 200; round++) {
        int32_t code;
        uint32_t retry = 0;
        char text[32];
        size_t len = 0;
        OK(km_source_next_text(source, text, sizeof text, &len));
        CHECK(strcmp(before, text) < 0);
        strcpy(before, text);
        while ((code = km_source_try_next_text(source, text, sizeof text, &len, &retry)) == KM_NOT_READY) {}
        OK(code);
        CHECK(strcmp(before, text) < 0);
        strcpy(before, text);
    }
    OK(km_source_free(source));
    OK(km_mill_free(mill));
}

static void segments(void) {
    km_mill *mill = NULL;
    km_source *orders = NULL, *again = NULL;
    uint64_t id = 0, lo = 0, hi = 0, ids[1000];
    OK(km_mill_open(fresh_store("basics", ""), &mill));
    OK(km_mill_source(mill, "segment:orders?deadline=60s", &orders));
    OK(km_source_next(orders, &id));
    CHECK(id == 1);
    OK(km_source_fill(orders, ids, 1000));
    for (size_t i = 0; i < 1000; i++) CHECK(ids[i] == 2 + i);
    OK(km_source_fill(orders, ids, 0));
    OK(km_source_lease(orders, 10, &lo, &hi));
    CHECK(lo == 1002 && hi > lo && hi <= lo + 10);

    /* A source of the same name is the same source. */
    OK(km_mill_source(mill, "segment:orders?deadline=60s", &again));
    OK(km_source_next(again, &id));
    CHECK(id == hi);
    OK(km_source_free(again));

    /* A cursor leaves the others their own numbers. */
    km_cursor mine = KM_CURSOR_INIT(orders);
    mine.count = 4;
    for (int i = 0; i < 10; i++) {
        uint64_t own = 0;
        OK(km_cursor_next(&mine, &own));
        OK(km_source_next(orders, &id));
        CHECK(own != id);
    }

    /* What is left in a cursor that is closed is handed out again, if nothing was taken after it. */
    km_cursor closed = KM_CURSOR_INIT(orders);
    uint64_t first = 0;
    OK(km_cursor_next(&closed, &first));
    OK(km_cursor_close(&closed));
    OK(km_cursor_close(&closed));
    OK(km_cursor_next(&closed, &id));
    CHECK(id == first + 1);
    OK(km_source_next(orders, &lo));
    CHECK(lo > id + 1);
    OK(km_cursor_close(&closed));
    OK(km_source_next(orders, &id));
    CHECK(id == lo + 1);

    km_parts parts = KM_PARTS_INIT;
    OK(km_source_parse(orders, 42, &parts));
    CHECK(parts.present == KM_PART_NUMBER && parts.number == 42 && parts.date[0] == '\0');
    OK(km_source_parse_text(orders, "43", &parts));
    CHECK(parts.number == 43);

    char text[32];
    size_t len = 0;
    OK(km_source_next_text(orders, text, sizeof text, &len));
    CHECK(len == strlen(text) && strtoull(text, NULL, 10) > id);

    /* The whole life of a handle, in either order. */
    OK(km_mill_free(mill));
    GIVES(KM_CLOSED, km_source_next(orders, &id));
    GIVES(KM_CLOSED, km_cursor_next(&mine, &id));
    OK(km_source_free(orders));
}

static void every_third_number(void) {
    km_mill *mill = NULL;
    km_source *orders = NULL;
    uint64_t id = 0, lo = 0, hi = 0, ids[1500], due = 2;
    uint32_t retry = 0;
    char text[32];
    size_t len = 0;
    OK(km_mill_open("memory:", &mill));
    OK(km_mill_source(mill, "segment:orders?scheme=tiny_id_info&delta=3&remainder=2&deadline=60s", &orders));
    for (int i = 0; i < 300; i++, due += 3) {
        OK(km_source_next(orders, &id));
        CHECK(id == due);
    }
    OK(km_source_fill(orders, ids, 1500));
    for (size_t i = 0; i < 1500; i++, due += 3) CHECK(ids[i] == due);
    km_cursor mine = KM_CURSOR_INIT(orders);
    for (int i = 0; i < 300; i++, due += 3) {
        OK(km_cursor_next(&mine, &id));
        CHECK(id == due);
    }
    OK(km_source_lease(orders, 100, &lo, &hi)); /* one id: the next does not follow it */
    CHECK(lo == due && hi == due + 1);
    OK(km_source_try_next(orders, &id, &retry));
    CHECK(id == due + 3);
    OK(km_source_next_text(orders, text, sizeof text, &len));
    CHECK(strtoull(text, NULL, 10) == due + 6);
    km_parts parts = KM_PARTS_INIT;
    OK(km_source_parse(orders, due, &parts));
    GIVES(KM_INVALID_ARGUMENT, km_source_parse(orders, due + 1, &parts));
    km_source_free(orders);
    km_mill_free(mill);
}

static void try_next_never_waits(void) {
    km_mill *mill = NULL;
    km_source *orders = NULL;
    uint64_t id = 0;
    uint32_t retry = 0;
    char text[32];
    size_t len = 0;
    OK(km_mill_open(fresh_store("trying", ""), &mill));
    OK(km_mill_source(mill, "segment:orders?deadline=60s", &orders));
    int32_t code = km_source_try_next(orders, &id, &retry);
    for (long tries = 0; code == KM_NOT_READY && tries < 2000000000L; tries++) {
        CHECK(retry >= 1 && id == 0 && km_last_retry_ms() >= 1);
        code = km_source_try_next(orders, &id, &retry);
    }
    GIVES(KM_OK, code);
    CHECK(id == 1);
    OK(km_source_try_next_text(orders, text, sizeof text, &len, &retry));
    CHECK(strcmp(text, "2") == 0 && len == 1);
    OK(km_source_free(orders));
    OK(km_mill_free(mill));
}

static void serials_and_the_manual_clock(void) {
    km_mill *mill = NULL;
    km_source *serials = NULL;
    char text[64];
    size_t len = 0, size = 0;
    uint64_t id = 0;
    km_parts parts = KM_PARTS_INIT;
    OK(km_mill_open("memory:?clock=manual", &mill));
    OK(km_mill_clock_set(mill, INT64_C(1795249800000))); /* 2026-11-21T08:30:00Z */
    OK(km_mill_source(mill, "serial:cust_info/custid?date=yyyyMMdd&number=000000&deadline=60s&zone=UTC", &serials));
    OK(km_source_text_len(serials, &size));
    CHECK(size == 15);
    OK(km_source_next_text(serials, text, size, &len));
    CHECK(strcmp(text, "20261121000001") == 0 && len == 14);
    OK(km_source_parse_text(serials, text, &parts));
    CHECK(parts.present == (KM_PART_NUMBER | KM_PART_DATE) && parts.number == 1);
    CHECK(strcmp(parts.date, "20261121") == 0);
    GIVES(KM_INVALID_ARGUMENT, km_source_next(serials, &id));

    /* Many at once, each in its stride; what lies between them stays. */
    enum { STRIDE = 20 };
    char many[3 * STRIDE];
    memset(many, '7', sizeof many);
    GIVES(KM_BUFFER_TOO_SMALL, km_source_take_text(serials, many, size - 1, 3));
    OK(km_source_take_text(serials, many, STRIDE, 0));
    for (size_t i = 0; i < sizeof many; i++) CHECK(many[i] == '7');
    OK(km_source_take_text(serials, many, STRIDE, 3));
    for (int i = 0; i < 3; i++) {
        const char *one = many + i * STRIDE;
        sprintf(text, "2026112100000%d", i + 2);
        CHECK(strcmp(one, text) == 0);
        for (size_t at = size; at < STRIDE; at++) CHECK(one[at] == '7');
    }

    /* The day ends: the number starts again. The keeper notices a moment later. */
    OK(km_mill_clock_advance(mill, 24 * 3600 * 1000));
    long tries = 0;
    do {
        OK(km_source_next_text(serials, text, sizeof text, &len));
    } while (strncmp(text, "20261122", 8) != 0 && ++tries < 900000);
    CHECK(strcmp(text, "20261122000001") == 0);
    OK(km_source_free(serials));
    OK(km_mill_free(mill));
}

static void snowflakes(void) {
    km_mill *mill = NULL;
    km_source *tx = NULL;
    uint64_t ids[5000], lo, hi;
    km_parts parts = KM_PARTS_INIT;
    OK(km_mill_open(fresh_store("snowflakes", ""), &mill));
    OK(km_mill_source(mill, "snowflake:tx?worker=5&deadline=60s", &tx));
    OK(km_source_fill(tx, ids, 5000));
    for (size_t i = 1; i < 5000; i++) CHECK(ids[i] > ids[i - 1]);
    OK(km_source_parse(tx, ids[0], &parts));
    CHECK(parts.present == (KM_PART_TIME | KM_PART_WORKER | KM_PART_SEQUENCE) && parts.worker == 5);
    CHECK(parts.datacenter == 0);
    CHECK(parts.time_ms > INT64_C(1700000000000));
    GIVES(KM_INVALID_ARGUMENT, km_source_lease(tx, 10, &lo, &hi));
    /* A cursor works on every source of numbers. */
    km_cursor cursor = KM_CURSOR_INIT(tx);
    uint64_t before = ids[4999], id = 0;
    for (int i = 0; i < 100; i++, before = id) {
        OK(km_cursor_next(&cursor, &id));
        CHECK(id > before);
    }
    OK(km_source_free(tx));
    OK(km_mill_free(mill));
}

/* A fill that cannot be finished leaves the array as it was. */
static void all_or_none(void) {
    km_mill *mill = NULL;
    km_source *tx = NULL;
    static uint64_t ids[50000];
    for (size_t i = 0; i < 50000; i++) ids[i] = 7;
    OK(km_mill_open("memory:?clock=manual", &mill));
    OK(km_mill_clock_set(mill, INT64_C(1795249800000)));
    OK(km_mill_source(mill, "snowflake:tx?worker=5&max_lead=1ms&deadline=10s", &tx));
    OK(km_source_fill(tx, ids, 1)); /* so many the clock has */
    CHECK(ids[0] != 7);
    ids[0] = 7;
    CHECK(km_source_fill(tx, ids, 50000) != KM_OK); /* so many it has not */
    for (size_t i = 0; i < 50000; i++) CHECK(ids[i] == 7);
    OK(km_source_free(tx));
    OK(km_mill_free(mill));
}

static void figures_and_events(void) {
    km_mill *mill = NULL;
    km_source *orders = NULL;
    uint64_t id;
    char small[8], *buf;
    size_t len = 0;
    OK(km_mill_open("sqlite:/nowhere/at/all/keymill.db", &mill));
    OK(km_mill_source(mill, "segment:orders?deadline=10s", &orders));
    CHECK(km_source_next(orders, &id) != KM_OK);
    GIVES(KM_BUFFER_TOO_SMALL, km_mill_metrics(mill, small, sizeof small, &len));
    CHECK(len > sizeof small);
    size_t size = len + 1024;
    CHECK((buf = malloc(size)) != NULL);
    OK(km_mill_metrics(mill, buf, size, &len));
    CHECK(len == strlen(buf) && strstr(buf, "segment:orders") != NULL);
    OK(km_mill_close(mill)); /* figures are told after it, too */
    OK(km_mill_metrics(mill, buf, size, &len));
    CHECK(strstr(buf, "segment:orders") != NULL);
    free(buf);

    GIVES(KM_BUFFER_TOO_SMALL, km_mill_events(mill, small, sizeof small, &len));
    CHECK(len == KM_EVENT_SIZE);
    char events[KM_EVENT_SIZE];
    size_t lines = 0;
    for (;;) {
        OK(km_mill_events(mill, events, sizeof events, &len));
        if (len == 0) break;
        CHECK(events[len - 1] == '\n' && events[len] == '\0');
        lines++;
    }
    CHECK(lines >= 1);
    OK(km_source_free(orders));
    OK(km_mill_free(mill));
}

/* As in every language: an empty string is a setting that was never filled in. */
static void an_empty_string_opens_no_mill(void) {
    km_mill *mill = NULL;
    GIVES(KM_INVALID_CONFIG, km_mill_open("", &mill));
    CHECK(mill == NULL);
    CHECK(setenv("KEYMILL_CONFIG", "memory:", 1) == 0);
    GIVES(KM_INVALID_CONFIG, km_mill_open("", &mill));
    CHECK(unsetenv("KEYMILL_CONFIG") == 0);
    CHECK(mill == NULL);
}

/* The first name is of no store: a default that was opened instead would be KM_OK. */
static void the_default_mill_is_that_of_the_environment(void) {
    km_mill *mill = NULL;
    CHECK(setenv("KEYMILL_CONFIG", "nowhere:ids", 1) == 0);
    GIVES(KM_INVALID_CONFIG, km_mill_open_default(&mill));
#ifndef _WIN32 /* where an empty variable is none */
    CHECK(setenv("KEYMILL_CONFIG", "", 1) == 0);
    GIVES(KM_INVALID_CONFIG, km_mill_open_default(&mill));
    CHECK(strstr(km_last_error(), "KEYMILL_CONFIG is empty") != NULL);
#endif
    CHECK(setenv("KEYMILL_CONFIG", "memory:", 1) == 0);
    OK(km_mill_open_default(&mill));
    OK(km_mill_free(mill));
    CHECK(unsetenv("KEYMILL_CONFIG") == 0);
    /* sqlite:keymill.db, which is made with the first source. */
    OK(km_mill_open_default(&mill));
    OK(km_mill_free(mill));
}

int main(void) {
    versions_and_codes();
    an_empty_string_opens_no_mill();
    the_default_mill_is_that_of_the_environment();
    specs();
    stats();
    segments();
    order();
    every_third_number();
    try_next_never_waits();
    serials_and_the_manual_clock();
    snowflakes();
    all_or_none();
    figures_and_events();
    return 0;
}
