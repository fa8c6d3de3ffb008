/* Two copies of keymill in one program, as where a static library and a plug-in each bring one: both work, and the second to open
   an SQLite file is refused. */
#include "check.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    km_mill *mill = NULL, *other_mill = NULL;
    km_source *source = NULL, *other_source = NULL;
    uint64_t id;
    char database[512];
    void *library;
    const char *(*other_version)(void);
    const char *(*other_message)(void);
    km_code (*other_open)(const char *, km_mill **);
    km_code (*other_mill_source)(km_mill *, const char *, km_source **);
    km_code (*other_next)(km_source *, uint64_t *);

    CHECK(argc == 2);
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    /* ISO C has no cast from an object pointer to a function pointer; POSIX has this. */
    *(void **)&other_version = dlsym(library, "km_version");
    *(void **)&other_message = dlsym(library, "km_last_error");
    *(void **)&other_open = dlsym(library, "km_mill_open");
    *(void **)&other_mill_source = dlsym(library, "km_mill_source");
    *(void **)&other_next = dlsym(library, "km_source_next");
    CHECK(other_version != NULL && other_message != NULL && other_open != NULL && other_mill_source != NULL && other_next != NULL);
    CHECK(other_next != km_source_next && other_version() != km_version());

    snprintf(database, sizeof database, "sqlite:%s/copies.db", getenv("KEYMILL_C_SCRATCH"));
    CHECK(km_mill_open(database, &mill) == KM_OK);
    CHECK(km_mill_source(mill, "segment:orders?deadline=60s", &source) == KM_OK);
    CHECK(km_source_next(source, &id) == KM_OK && id == 1);

    CHECK(other_open("memory:", &other_mill) == KM_OK);
    CHECK(other_mill_source(other_mill, "segment:orders?deadline=60s", &other_source) == KM_OK);
    CHECK(other_next(other_source, &id) == KM_OK && id == 1);

    CHECK(other_open(database, &other_mill) == KM_OK);
    CHECK(other_mill_source(other_mill, "segment:orders", &other_source) == KM_OK);
    CHECK(other_next(other_source, &id) == KM_STORE_UNSAFE);
    CHECK(strstr(other_message(), "second copy") != NULL);
    CHECK(km_source_next(source, &id) == KM_OK && id == 2);
    return 0;
}
