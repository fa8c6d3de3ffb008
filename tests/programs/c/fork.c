/* A fork at any moment: parent and child never hand out the same id; with fork=error the child gets an error. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 6, EACH = 20000 };

static km_mill *mill;
static km_source *source;

/* Takes by every way there is, the inherited cursor first; how many, and how it ended. */
static size_t take(km_cursor *cursor, uint64_t *ids, size_t want, int32_t *code) {
    size_t n = 0;
    uint64_t lo, hi;
    while (n < want / 4 && (*code = km_cursor_next(cursor, &ids[n])) == KM_OK) n++;
    if (*code != KM_OK) return n;
    while (n < want / 2 && (*code = km_source_next(source, &ids[n])) == KM_OK) n++;
    if (*code != KM_OK || (*code = km_source_fill(source, ids + n, want / 4)) != KM_OK) return n;
    n += want / 4;
    while (n < want && (*code = km_source_lease(source, want - n, &lo, &hi)) == KM_OK)
        while (lo < hi) ids[n++] = lo++;
    return n;
}

static void write_all(int to, const void *data, size_t size) {
    for (const char *at = data; size != 0;) {
        ssize_t n = write(to, at, size);
        CHECK(n > 0);
        at += n;
        size -= (size_t)n;
    }
}

static void read_all(int from, void *data, size_t size) {
    for (char *at = data; size != 0;) {
        ssize_t n = read(from, at, size);
        CHECK(n > 0);
        at += n;
        size -= (size_t)n;
    }
}

static pid_t by_fork(void) { return fork(); }

/* Without any hook: only the page that the kernel wipes shows it. If it falls into the middle of one of SQLite's operations the
 * child's copy of SQLite is unusable, and the child gets an error. */
static pid_t by_clone(void) { return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L); }

static volatile int stop;

typedef struct {
    uint64_t *ids;
    size_t count;
} background;

static void *keep_taking(void *argument) {
    background *mine = argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && mine->count < (size_t)ROUNDS * EACH * 20)
        OK(km_source_next(source, &mine->ids[mine->count++]));
    return NULL;
}

/* Ends a child. By exec, because leak checkers would count at exit what a forked child leaves alone on purpose: all that
 * its parent's threads may have been holding. */
static void done(void) {
    execl("/bin/true", "true", (char *)NULL);
    _exit(1);
}

static void ends_well(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* `parents` threads take beside the main thread, which forks again and again. */
static void revive(const char *spec, pid_t (*split)(void), int busy, const char *what) {
    size_t each = scaled(EACH), count = 0, unusable = 0;
    int32_t code = KM_OK;
    background other = {NULL, 0};
    pthread_t thread;
    uint64_t *ids = malloc((ROUNDS * (2 * each + 1) + (size_t)ROUNDS * EACH * 20) * sizeof *ids);
    CHECK(ids != NULL);
    OK(km_mill_open(fresh_store("fork", ""), &mill));
    OK(km_mill_source(mill, spec, &source));
    km_cursor cursor = KM_CURSOR_INIT(source);
    cursor.count = 300;
    if (busy) {
        __atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
        CHECK((other.ids = malloc((size_t)ROUNDS * EACH * 20 * sizeof *ids)) != NULL);
        CHECK(pthread_create(&thread, NULL, keep_taking, &other) == 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t id;
        int ends[2];
        OK(km_cursor_next(&cursor, &id)); /* the fork falls into the middle of a block */
        ids[count++] = id;
        CHECK(pipe(ends) == 0);
        fflush(NULL);
        pid_t child = split();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(180); /* a child that hangs fails */
            size_t n = take(&cursor, ids, each, &code);
            if (code != KM_OK) GIVES(split == by_clone ? KM_STORE_REFUSED : KM_OK, code);
            write_all(ends[1], &n, sizeof n);
            write_all(ends[1], ids, n * sizeof *ids);
            /* What was inherited can be closed and freed. */
            if (round % 2) OK(km_mill_close(mill));
            OK(km_source_free(source));
            OK(km_mill_free(mill));
            done();
        }
        close(ends[1]);
        count += take(&cursor, ids + count, each, &code);
        OK(code);
        size_t theirs = 0;
        read_all(ends[0], &theirs, sizeof theirs);
        CHECK(theirs <= each);
        read_all(ends[0], ids + count, theirs * sizeof *ids);
        count += theirs;
        unusable += theirs < each;
        close(ends[0]);
        ends_well(child);
    }
    if (busy) {
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        CHECK(pthread_join(thread, NULL) == 0);
        memcpy(ids + count, other.ids, other.count * sizeof *ids);
        count += other.count;
        free(other.ids);
    }
    check_unique(ids, count, what);
    if (unusable) printf("  %zu of %d children were cloned in the middle of an operation and told so\n", unusable, ROUNDS);
    free(ids);
    OK(km_source_free(source));
    OK(km_mill_free(mill));
}

/* In the child every verb says so, in the parent nothing changed. */
static void refused(const char *config) {
    uint64_t id = 0, next = 0, lo, hi, ids[4];
    uint32_t retry;
    char buf[64];
    size_t len;
    km_source *more = NULL;
    OK(km_mill_open(config, &mill));
    OK(km_mill_source(mill, "segment:orders?deadline=60s", &source));
    km_cursor cursor = KM_CURSOR_INIT(source);
    OK(km_cursor_next(&cursor, &id));
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(180);
        GIVES(KM_FORKED, km_cursor_next(&cursor, &id));
        GIVES(KM_FORKED, km_source_next(source, &id));
        GIVES(KM_FORKED, km_source_try_next(source, &id, &retry));
        GIVES(KM_FORKED, km_source_fill(source, ids, 4));
        GIVES(KM_FORKED, km_source_lease(source, 4, &lo, &hi));
        GIVES(KM_FORKED, km_source_next_text(source, buf, sizeof buf, &len));
        GIVES(KM_FORKED, km_source_try_next_text(source, buf, sizeof buf, &len, &retry));
        GIVES(KM_FORKED, km_mill_source(mill, "segment:others", &more));
        /* A mill of the child's own is welcome. */
        km_mill *own = NULL;
        OK(km_mill_open("memory:", &own));
        OK(km_mill_source(own, "segment:orders?deadline=60s", &more));
        OK(km_source_next(more, &id));
        OK(km_source_free(more));
        OK(km_mill_free(own));
        OK(km_source_free(source));
        OK(km_mill_free(mill));
        done();
    }
    ends_well(child);
    OK(km_cursor_next(&cursor, &next));
    CHECK(next == id + 1);
    OK(km_source_free(source));
    OK(km_mill_free(mill));
    printf("refused: %s\n", config);
}

int main(void) {
    /* A patient deadline: a disk that others keep busy is slow, a child that hangs is not. */
    revive("segment:orders?deadline=60s", by_fork, 0, "fork");
    revive("segment:orders?deadline=60s", by_fork, 1, "fork while another thread takes");
    revive("segment:orders?order=thread&block=500&deadline=60s", by_fork, 1, "fork while another thread takes, order=thread");
    revive("segment:orders?step=1000&deadline=60s", by_fork, 1, "fork while segments are short");
    /* qemu's user mode accepts MADV_WIPEONFORK and wipes nothing. */
    if (getenv("KEYMILL_C_EMULATED")) printf("not run: raw clone\n");
    else revive("segment:orders?deadline=60s", by_clone, 0, "raw clone");
    refused(fresh_store("refused", "?fork=error"));
    refused("memory:");
    return 0;
}
