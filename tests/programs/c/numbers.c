/* Order numbers in C: an id in, what it is called outside out, and back. Wrong use gives a code and writes nothing. */
#define _POSIX_C_SOURCE 200809L
#include <stddef.h>
#include <sys/stat.h>

#include "check.h"

#define WRONG(call) GIVES(KM_INVALID_ARGUMENT, call)

static const uint64_t ID = UINT64_C(7943646055239778305);
static const uint8_t SEALED[16] = {0xdc, 0x7b, 0x01, 0xf1, 0xc8, 0xd4, 0xfe, 0x95, 0x3d, 0x9e, 0xb3, 0x1e, 0xf9, 0x33, 0x9b, 0x6b};
static const uint64_t SEALED8 = UINT64_C(7943719833957099537);

/* Keys 1 and 2: 64 bytes that count. */
static uint8_t keys[64];
static const uint8_t versions[2] = {1, 2};

static const char *key_file(const char *text, mode_t mode) {
    static char path[4200];
    const char *folder = getenv("KEYMILL_C_SCRATCH");
    snprintf(path, sizeof path, "%s/keys.toml", folder ? folder : ".");
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    CHECK(chmod(path, mode) == 0);
    return path;
}

static void verbs(void) {
    km_numbers *numbers = NULL;
    uint8_t order_no[16], many[3 * 16], version = 0;
    uint64_t id = 0, short_no = 0, ids[3] = {ID, 1, 2}, back[3] = {0, 0, 0}, shorts[3];
    km_wide wide = {0, 0};
    char text[27];
    size_t len = 0;
    OK(km_numbers_open_keys(versions, keys, 1, 1, "acme", "orders", &numbers));
    OK(km_numbers_version(numbers, &version));
    CHECK(version == 1);
    OK(km_numbers_seal(numbers, ID, order_no));
    CHECK(memcmp(order_no, SEALED, 16) == 0);
    OK(km_numbers_unseal(numbers, order_no, 16, &id));
    CHECK(id == ID);
    OK(km_numbers_seal8(numbers, ID, &short_no));
    CHECK(short_no == SEALED8);
    OK(km_numbers_unseal8(numbers, short_no, &id));
    CHECK(id == ID);
    OK(km_numbers_seal_wide(numbers, (km_wide){UINT64_C(56443) << 47, 42}, order_no));
    OK(km_numbers_unseal_wide(numbers, order_no, 16, &wide));
    CHECK(wide.hi == UINT64_C(56443) << 47 && wide.lo == 42);
    GIVES(KM_FORGED, km_numbers_unseal(numbers, order_no, 16, &id));
    OK(km_numbers_seal_all(numbers, ids, 3, many));
    CHECK(memcmp(many, SEALED, 16) == 0);
    OK(km_numbers_unseal_all(numbers, many, 3, back));
    CHECK(memcmp(ids, back, sizeof ids) == 0);
    OK(km_numbers_seal8_all(numbers, ids, 3, shorts));
    CHECK(shorts[0] == SEALED8);
    OK(km_numbers_unseal8_all(numbers, shorts, 3, back));
    CHECK(memcmp(ids, back, sizeof ids) == 0);
    OK(km_numbers_seal_text(numbers, ID, text, sizeof text, &len));
    CHECK(len == 26 && strcmp(text, "6WFC0Z3J6MZTAKV7NK3VWK76VB") == 0);
    OK(km_numbers_unseal_text(numbers, text, &id));
    CHECK(id == ID);
    OK(km_numbers_seal8_text(numbers, ID, text, sizeof text, &len));
    CHECK(len == 14 && strcmp(text, "6WFE337S3ST0HS") == 0);
    OK(km_numbers_unseal8_text(numbers, text, &id));
    CHECK(id == ID);
    OK(km_numbers_seal_wide_text(numbers, wide, text, sizeof text, &len));
    CHECK(len == 26);
    wide.lo = 0;
    OK(km_numbers_unseal_wide_text(numbers, text, &wide));
    CHECK(wide.lo == 42);
    /* One array for both. */
    memcpy(back, ids, sizeof ids);
    OK(km_numbers_seal8_all(numbers, back, 3, back));
    CHECK(memcmp(shorts, back, sizeof shorts) == 0);
    /* A batch with one wrong number writes none. */
    many[16 + 9] ^= 1;
    back[0] = back[1] = back[2] = 7;
    GIVES(KM_FORGED, km_numbers_unseal_all(numbers, many, 3, back));
    CHECK(strstr(km_last_error(), "order number 2 of 3") != NULL && back[0] == 7 && back[2] == 7);
    OK(km_numbers_free(numbers));
}

static void rotation(void) {
    km_numbers *before = NULL, *after = NULL, *chosen = NULL;
    uint8_t order_no[16], version = 0;
    uint64_t id = 0;
    OK(km_numbers_open_keys(versions, keys, 1, 1, "acme", "orders", &before));
    OK(km_numbers_open_keys(versions, keys, 2, 2, "acme", "orders", &after));
    OK(km_numbers_unseal(after, SEALED, 16, &id));
    CHECK(id == ID);
    OK(km_numbers_seal(after, ID, order_no));
    CHECK(order_no[2] == 2);
    WRONG(km_numbers_unseal(before, order_no, 16, &id));
    WRONG(km_numbers_unseal8(after, SEALED8, &id));
    OK(km_numbers_with_version(after, 1, &chosen));
    OK(km_numbers_free(after));
    OK(km_numbers_version(chosen, &version));
    CHECK(version == 1);
    OK(km_numbers_unseal8(chosen, SEALED8, &id));
    CHECK(id == ID);
    WRONG(km_numbers_with_version(chosen, 9, &after));
    OK(km_numbers_free(chosen));
    OK(km_numbers_free(before));
}

static void files(void) {
    const char *text = "seal_with = 1\n[key]\n1 = \"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"\n";
    km_numbers *numbers = NULL;
    uint8_t order_no[16];
    OK(km_numbers_open(key_file(text, 0600), "acme", "orders", &numbers));
    OK(km_numbers_seal(numbers, ID, order_no));
    CHECK(memcmp(order_no, SEALED, 16) == 0);
    OK(km_numbers_free(numbers));
    GIVES(KM_INVALID_CONFIG, km_numbers_open(key_file(text, 0644), "acme", "orders", &numbers));
    CHECK(strstr(km_last_error(), "chmod 600") != NULL && strstr(km_last_error(), "00010203") == NULL);
    GIVES(KM_INVALID_CONFIG, km_numbers_open(key_file("seal_with = 1\n", 0600), "", "", &numbers));
    WRONG(km_numbers_open("/nowhere/at/all", "", "", &numbers));
    CHECK(setenv("KEYMILL_ORDER_KEYS", text, 1) == 0);
    OK(km_numbers_open_env("acme", "orders", &numbers));
    OK(km_numbers_seal(numbers, ID, order_no));
    CHECK(memcmp(order_no, SEALED, 16) == 0);
    OK(km_numbers_free(numbers));
    CHECK(unsetenv("KEYMILL_ORDER_KEYS") == 0);
    GIVES(KM_INVALID_CONFIG, km_numbers_open_env("acme", "orders", &numbers));
}

static void routes(void) {
    km_router *router = NULL;
    km_route route = KM_ROUTE_INIT;
    OK(km_router_open_text("version = 7\n[[range]]\nupper = 56442\nshard = \"s1\"\n[[range]]\nupper = 65535\nshard = \"s2\"\n", &router));
    OK(km_router_route_order_no(router, SEALED, 16, &route));
    CHECK(route.gene == 56443 && strcmp(route.read, "s2") == 0);
    OK(km_router_route_order_no8(router, SEALED8, &route));
    CHECK(route.gene == 56443);
    OK(km_router_route_order_no_text(router, "6WFE337S3ST0HS", &route));
    CHECK(route.gene == 56443);
    WRONG(km_router_route_order_no(router, SEALED, 15, &route));
    WRONG(km_router_route_order_no(router, NULL, 16, &route));
    WRONG(km_router_route_order_no(router, SEALED, 16, NULL));
    WRONG(km_router_route_order_no(NULL, SEALED, 16, &route));
    WRONG(km_router_route_order_no8(router, UINT64_MAX, &route));
    WRONG(km_router_route_order_no8(NULL, 1, &route));
    WRONG(km_router_route_order_no_text(router, NULL, &route));
    WRONG(km_router_route_order_no_text(NULL, "6WFE337S3ST0HS", &route));
    OK(km_router_free(router));
}

/* Each function with a handle that is none. */
static void with_numbers(km_numbers *numbers) {
    km_numbers *chosen = NULL;
    uint8_t order_no[16], version;
    uint64_t id = 0;
    km_wide wide = {0, 1};
    char text[27];
    size_t len;
    WRONG(km_numbers_with_version(numbers, 1, &chosen));
    WRONG(km_numbers_version(numbers, &version));
    WRONG(km_numbers_seal(numbers, 1, order_no));
    WRONG(km_numbers_unseal(numbers, SEALED, 16, &id));
    WRONG(km_numbers_seal_wide(numbers, wide, order_no));
    WRONG(km_numbers_unseal_wide(numbers, SEALED, 16, &wide));
    WRONG(km_numbers_seal8(numbers, 1, &id));
    WRONG(km_numbers_unseal8(numbers, 1, &id));
    WRONG(km_numbers_seal_all(numbers, &id, 1, order_no));
    WRONG(km_numbers_unseal_all(numbers, SEALED, 1, &id));
    WRONG(km_numbers_seal8_all(numbers, &id, 1, &id));
    WRONG(km_numbers_unseal8_all(numbers, &id, 1, &id));
    WRONG(km_numbers_seal_text(numbers, 1, text, sizeof text, &len));
    WRONG(km_numbers_unseal_text(numbers, "6WFC0Z3J6MZTAKV7NK3VWK76VB", &id));
    WRONG(km_numbers_seal_wide_text(numbers, wide, text, sizeof text, &len));
    WRONG(km_numbers_unseal_wide_text(numbers, "6WFC0Z3J6MZTAKV7NK3VWK76VB", &wide));
    WRONG(km_numbers_seal8_text(numbers, 1, text, sizeof text, &len));
    WRONG(km_numbers_unseal8_text(numbers, "6WFE337S3ST0HS", &id));
    if (numbers != NULL) WRONG(km_numbers_free(numbers));
}

static void misuse(void) {
    km_numbers *numbers = NULL, *none = NULL;
    km_mill *mill = NULL;
    uint8_t order_no[16], twice[2] = {1, 1}, zero[1] = {0};
    uint64_t id = 7, wrong_id = UINT64_MAX;
    km_wide wide = {0, 0};
    char text[26];
    size_t len = 0;
    WRONG(km_numbers_open(NULL, "", "", &none));
    WRONG(km_numbers_open("keys.toml", NULL, "", &none));
    WRONG(km_numbers_open("keys.toml", "", NULL, &none));
    WRONG(km_numbers_open("keys.toml", "", "", NULL));
    WRONG(km_numbers_open_env(NULL, "", &none));
    WRONG(km_numbers_open_env("", NULL, &none));
    WRONG(km_numbers_open_env("", "", NULL));
    WRONG(km_numbers_open_keys(NULL, keys, 1, 1, "", "", &none));
    WRONG(km_numbers_open_keys(versions, NULL, 1, 1, "", "", &none));
    WRONG(km_numbers_open_keys(versions, keys, 0, 1, "", "", &none));
    WRONG(km_numbers_open_keys(versions, keys, SIZE_MAX, 1, "", "", &none));
    WRONG(km_numbers_open_keys(versions, keys, 1, 2, "", "", &none));
    WRONG(km_numbers_open_keys(twice, keys, 2, 1, "", "", &none));
    WRONG(km_numbers_open_keys(zero, keys, 1, 0, "", "", &none));
    WRONG(km_numbers_open_keys(versions, keys, 1, 1, "\x1f", "", &none));
    WRONG(km_numbers_open_keys(versions, keys, 1, 1, "\xff", "", &none));
    WRONG(km_numbers_open_keys(versions, keys, 1, 1, "", "", NULL));
    CHECK(none == NULL);
    OK(km_numbers_open_keys(versions, keys, 1, 1, "acme", "orders", &numbers));
    WRONG(km_numbers_with_version(numbers, 0, &none));
    WRONG(km_numbers_with_version(numbers, 1, NULL));
    WRONG(km_numbers_version(numbers, NULL));
    WRONG(km_numbers_seal(numbers, wrong_id, order_no));
    WRONG(km_numbers_seal(numbers, 1, NULL));
    WRONG(km_numbers_unseal(numbers, NULL, 16, &id));
    WRONG(km_numbers_unseal(numbers, SEALED, 15, &id));
    WRONG(km_numbers_unseal(numbers, SEALED, 0, &id));
    WRONG(km_numbers_unseal(numbers, SEALED, 16, NULL));
    WRONG(km_numbers_seal_wide(numbers, (km_wide){1, 0}, order_no));
    WRONG(km_numbers_seal_wide(numbers, wide, NULL));
    WRONG(km_numbers_unseal_wide(numbers, SEALED, 16, NULL));
    GIVES(KM_FORGED, km_numbers_unseal_wide(numbers, SEALED, 16, &wide));
    WRONG(km_numbers_seal8(numbers, wrong_id, &id));
    WRONG(km_numbers_unseal8(numbers, wrong_id, &id));
    WRONG(km_numbers_seal_all(numbers, NULL, 1, order_no));
    WRONG(km_numbers_seal_all(numbers, &id, 1, NULL));
    WRONG(km_numbers_seal_all(numbers, &id, SIZE_MAX / 8, order_no));
    WRONG(km_numbers_seal_all(numbers, &wrong_id, 1, order_no));
    WRONG(km_numbers_unseal_all(numbers, NULL, 1, &id));
    WRONG(km_numbers_unseal_all(numbers, SEALED, 1, NULL));
    WRONG(km_numbers_seal8_all(numbers, &wrong_id, 1, &id));
    WRONG(km_numbers_unseal8_all(numbers, &wrong_id, 1, &id));
    GIVES(KM_BUFFER_TOO_SMALL, km_numbers_seal_text(numbers, 1, text, sizeof text, &len));
    CHECK(len == 27);
    GIVES(KM_BUFFER_TOO_SMALL, km_numbers_seal8_text(numbers, 1, text, 14, &len));
    CHECK(len == 15);
    WRONG(km_numbers_seal_text(numbers, 1, NULL, 27, &len));
    WRONG(km_numbers_unseal_text(numbers, NULL, &id));
    WRONG(km_numbers_unseal_text(numbers, "", &id));
    WRONG(km_numbers_unseal8_text(numbers, "6WFE337S3ST0HT", &id));
    CHECK(id == 7);
    OK(km_mill_open("memory:", &mill));
    with_numbers(NULL);
    with_numbers((km_numbers *)(void *)mill);
    WRONG(km_mill_close((km_mill *)(void *)numbers));
    OK(km_mill_free(mill));
    OK(km_numbers_free(NULL));
    OK(km_numbers_free(numbers));
    with_numbers(numbers);
}

int main(void) {
    for (size_t i = 0; i < sizeof keys; i++) keys[i] = (uint8_t)i;
    verbs();
    rotation();
    files();
    routes();
    misuse();
    puts("order numbers: sealed, opened, refused");
    return 0;
}
