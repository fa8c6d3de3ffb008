/* What the C tests share: checks that say where they failed, scratch files, and the one question that matters. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <keymill.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #what, km_last_error());    \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* The call answers with this code, and says why if that is an error. */
#define GIVES(code, call)                                                                                    \
    do {                                                                                                     \
        int32_t gave_ = (call);                                                                              \
        if (gave_ != (code)) {                                                                               \
            fprintf(stderr, "%s:%d: %s gave %s, not %s\n  last error: %s\n", __FILE__, __LINE__, #call,      \
                    km_code_name(gave_), km_code_name(code), km_last_error());                               \
            exit(1);                                                                                         \
        }                                                                                                    \
        if (gave_ != KM_OK && km_last_error()[0] == '\0') {                                                  \
            fprintf(stderr, "%s:%d: %s failed and km_last_error() is empty\n", __FILE__, __LINE__, #call);   \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define OK(call) GIVES(KM_OK, call)

/* How much of the work to do, in percent: slow tools ask for less. */
static inline size_t scaled(size_t n) {
    const char *percent = getenv("KEYMILL_C_PERCENT");
    size_t all = percent ? n * strtoul(percent, NULL, 10) / 100 : n;
    return all ? all : 1;
}

/* "sqlite:FILE" of a store that does not exist yet, with options "?fork=error" or "". */
static inline const char *fresh_store(const char *name, const char *options) {
    static char config[4200];
    const char *store = getenv("KEYMILL_C_STORE");
    const char *folder = getenv("KEYMILL_C_SCRATCH");
    if (store) return store;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.db", folder ? folder : ".", name);
    remove(path);
    snprintf(config, sizeof config, "%s-wal", path);
    remove(config);
    snprintf(config, sizeof config, "%s-shm", path);
    remove(config);
    snprintf(config, sizeof config, "sqlite:%s%s", path, options);
    return config;
}

static inline int compare_ids(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

/* No id was handed out twice. */
static inline void check_unique(uint64_t *ids, size_t count, const char *what) {
    qsort(ids, count, sizeof *ids, compare_ids);
    for (size_t i = 1; i < count; i++) {
        if (ids[i - 1] == ids[i]) {
            fprintf(stderr, "%s: %" PRIu64 " was handed out twice\n", what, ids[i]);
            exit(1);
        }
    }
    printf("%s: %zu ids, each once\n", what, count);
}

#endif
