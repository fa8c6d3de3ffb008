/* keymill takes none of its program's signals: a blocked signal stays blocked, although keymill has threads. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static km_mill *mill;
static km_source *source;

static void at_work(const char *name) {
    uint64_t id;
    OK(km_mill_open(fresh_store(name, ""), &mill));
    OK(km_mill_source(mill, "segment:orders?deadline=60s&step=10", &source));
    OK(km_source_next(source, &id));
}

static void at_rest(void) {
    OK(km_source_free(source));
    OK(km_mill_free(mill));
}

static sigset_t set_of(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

/* A service blocks SIGTERM and reads it from a descriptor. Delivered to a thread of ours, it would end the process. */
static void a_blocked_signal_waits_for_its_reader(void) {
    sigset_t set = set_of(SIGTERM);
    at_work("signalfd"); /* first: a thread inherits what its creator blocks */
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    int reader = signalfd(-1, &set, SFD_CLOEXEC);
    CHECK(reader >= 0);
    for (int round = 0; round < 50; round++) {
        uint64_t id;
        struct signalfd_siginfo info;
        struct pollfd wait = {reader, POLLIN, 0};
        CHECK(kill(getpid(), SIGTERM) == 0);
        OK(km_source_next(source, &id));
        CHECK(poll(&wait, 1, 20000) == 1);
        CHECK(read(reader, &info, sizeof info) == (ssize_t)sizeof info);
        CHECK(info.ssi_signo == SIGTERM);
    }
    close(reader);
    at_rest();
    printf("signalfd: read every time\n");
}

static volatile sig_atomic_t caught, elsewhere;
static pid_t main_thread;

static void count(int signal) {
    (void)signal;
    caught++;
    if ((pid_t)syscall(SYS_gettid) != main_thread) elsewhere++;
}

/* A handler never runs in a thread of ours, nor while the program has the signal blocked. */
static void a_handler_runs_in_the_hosts_threads_only(void) {
    struct sigaction action;
    sigset_t set = set_of(SIGUSR1);
    memset(&action, 0, sizeof action);
    action.sa_handler = count;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    main_thread = (pid_t)syscall(SYS_gettid);
    at_work("handler");
    for (int round = 0; round < 100; round++) {
        uint64_t ids[25];
        CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
        sig_atomic_t before = caught;
        CHECK(kill(getpid(), SIGUSR1) == 0);
        OK(km_source_fill(source, ids, 25)); /* the keeper is woken meanwhile */
        CHECK(caught == before);
        CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
        CHECK(caught == before + 1);
    }
    CHECK(elsewhere == 0);
    at_rest();
    printf("handler: %d times, each in the main thread\n", (int)caught);
}

static volatile int stop;

static void *storm(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        kill(getpid(), SIGUSR1);
        usleep(50);
    }
    return NULL;
}

/* Calls that wait are interrupted again and again, and give what they promise: a handler without SA_RESTART. */
static void a_storm_of_signals_changes_no_answer(void) {
    pthread_t thread;
    sigset_t set = set_of(SIGUSR1);
    size_t each = scaled(20000), n = 0;
    uint64_t *ids = malloc(each * sizeof *ids);
    CHECK(ids != NULL);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, storm, NULL) == 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    at_work("storm");
    while (n < each) OK(km_source_next(source, &ids[n++]));
    at_rest();
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(elsewhere == 0);
    check_unique(ids, n, "storm");
    free(ids);
}

static void *on_a_small_stack(void *unused) {
    (void)unused;
    uint64_t id;
    char buf[64];
    size_t len;
    at_work("small");
    km_source *serial;
    OK(km_mill_source(mill, "serial:cust/id?date=yyyyMMdd&number=000000&deadline=60s", &serial));
    OK(km_source_next_text(serial, buf, sizeof buf, &len));
    for (int i = 0; i < 200; i++) OK(km_source_next(source, &id));
    OK(km_source_free(serial));
    GIVES(KM_INVALID_CONFIG, km_mill_source(mill, "segment:orders?no=option", &serial));
    at_rest();
    return NULL;
}

/* A thread of 64 KiB, as musl's and those of embedded programs are about, or of the system's least: 128 KiB on ARM. */
static void a_small_stack_is_enough(void) {
    pthread_t thread;
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0);
    size_t least = (size_t)PTHREAD_STACK_MIN, size = least > 64 * 1024 ? least : 64 * 1024;
    CHECK(pthread_attr_setstacksize(&small, size) == 0);
    CHECK(pthread_create(&thread, &small, on_a_small_stack, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    pthread_attr_destroy(&small);
    printf("small stack: enough\n");
}

/* Runs `what` in a child: limits and closed descriptors are a process's. */
static void in_a_child(const char *name, void (*what)(void)) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(180);
        what();
        fflush(NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "%s: status %d\n", name, status);
        exit(1);
    }
    printf("%s: as it should be\n", name);
}

/* No further descriptor is to be had: an error that says so, and ids as soon as there are some again. */
static void without_descriptors(void) {
    struct rlimit few = {3, 0}, before;
    uint64_t id;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    OK(km_mill_open(fresh_store("descriptors", ""), &mill));
    OK(km_mill_source(mill, "segment:orders?deadline=300ms", &source));
    few.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int32_t code;
    while ((code = km_source_next(source, &id)) == KM_DEADLINE) {} /* the store has not answered yet; or the alarm */
    CHECK(code == KM_STORE_UNAVAILABLE || code == KM_STORE_REFUSED);
    CHECK(strstr(km_last_error(), "cannot be opened") != NULL);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    while ((code = km_source_next(source, &id)) != KM_OK) usleep(1000 * (km_last_retry_ms() + 1)); /* or the alarm */
    at_rest();
}

/* No further thread is to be had: an error, no panic, and nothing is left behind. Root is not limited, so an address space
 * that holds no further stack stands in for it. */
static void without_threads(void) {
    struct rlimit none = {0, 0}, before;
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    none.rlim_cur = 1;
    none.rlim_max = before.rlim_max;
    mill = NULL;
    const char *store = fresh_store("threads", "");
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
    int32_t code = km_mill_open(store, &mill);
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(code == KM_INTERNAL && mill == NULL);
    CHECK(strstr(km_last_error(), "ulimit") != NULL);
    at_work("threads-again");
    at_rest();
}

/* Programs that the process starts inherit no descriptor of keymill. */
static void execs_inherit_nothing(void) {
    at_work("exec");
    execl("/bin/sh", "sh", "-c",
          "for fd in /proc/self/fd/*; do case $(readlink $fd) in *.db*) exit 1;; esac; done; exit 0", (char *)NULL);
    _exit(2);
}

int main(void) {
    in_a_child("out of descriptors", without_descriptors);
    /* valgrind and sanitizers need more address space than that themselves, and qemu sets no limit. musl's allocator keeps no
     * reserve, so that no program of Rust's outlives this limit there. */
#ifdef __GLIBC__
    if (getenv("KEYMILL_C_PERCENT") == NULL && getenv("KEYMILL_C_EMULATED") == NULL) in_a_child("out of threads", without_threads);
#else
    (void)without_threads;
#endif
    in_a_child("exec", execs_inherit_nothing);
    a_blocked_signal_waits_for_its_reader();
    a_handler_runs_in_the_hosts_threads_only();
    a_storm_of_signals_changes_no_answer();
    a_small_stack_is_enough();
    return 0;
}
