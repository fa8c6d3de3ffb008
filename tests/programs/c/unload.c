/* dlclose with a mill at work: the library stays, its thread runs on, threads that used it end well. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

static km_code (*next)(km_source *, uint64_t *);

static void *fail_once(void *nothing) {
    /* Leaves a thread-local with a destructor of the library's. */
    CHECK(next(NULL, NULL) == KM_INVALID_ARGUMENT);
    return nothing;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        km_mill *mill = NULL;
        km_source *source = NULL;
        uint64_t id;
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        km_code (*open_mill)(const char *, km_mill **);
        km_code (*open_source)(km_mill *, const char *, km_source **);
        /* ISO C has no cast from an object pointer to a function pointer; POSIX has this. */
        *(void **)&open_mill = dlsym(library, "km_mill_open");
        *(void **)&open_source = dlsym(library, "km_mill_source");
        *(void **)&next = dlsym(library, "km_source_next");
        CHECK(open_mill != NULL && open_source != NULL && next != NULL);
        CHECK(open_mill("memory:", &mill) == KM_OK);
        CHECK(open_source(mill, "segment:orders?deadline=60s", &source) == KM_OK);
        CHECK(pthread_create(&thread, NULL, fail_once, NULL) == 0);
        CHECK(dlclose(library) == 0);
        CHECK(next(source, &id) == KM_OK && id == 1);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    return 0;
}
