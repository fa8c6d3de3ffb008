/*
 * keymill: identifiers at memory speed. This file is generated from ffi/src and ffi/cbindgen.toml; do not edit it.
 *
 * Conventions. Each function's comment says what is its own; all of this holds for every one.
 *
 * Codes      Functions answer with a km_code, KM_OK is 0. The numbers never change; later versions may add some, so
 *            treat an unknown one as an error. km_last_error() says in one line what happened and what to do. The codes
 *            under a function are those it may answer with; KM_INTERNAL, a defect in keymill, any of them may.
 * Outputs    are written only on KM_OK, but for `uint32_t *retry_ms`, written on KM_NOT_READY, and `size_t *len` of a
 *            text, which on KM_BUFFER_TOO_SMALL is the size needed.
 * Pointers   NULL is never a valid argument, it gives KM_INVALID_ARGUMENT; only the free functions take it, for nothing.
 *            What a pointer leads to must be as large as the parameters say and is not kept after the call.
 * Strings in are NUL-terminated UTF-8; other bytes give KM_INVALID_ARGUMENT.
 * Buffers    `buf, size, len`: size counts the NUL that is always written. On KM_OK *len is the text's length without
 *            its NUL; on KM_BUFFER_TOO_SMALL the size the buffer needs, NUL included.
 * Ownership  The caller frees each km_mill, km_source, km_router and km_numbers once, in any order. A source stays a valid handle when its
 *            mill is closed or freed: it answers KM_CLOSED.
 * Threads    Every function but the free functions and the functions of km_cursor may be called on one handle by any number of
 *            threads at once, while others close the mill too. Freeing a handle that another thread is using is a fault
 *            of the caller's. A handle of the wrong kind gives KM_INVALID_ARGUMENT, and so does a freed handle, until 1024
 *            handles were freed after it: then it may be another one. A pointer that never was a handle is undefined.
 * Waiting    Only km_source_next, _next_for_..., _next_text, _fill, _fill_for_..., _lease, the _wide_ forms of these and a
 *            cursor's refill wait, at most for the source's deadline, and never on a socket. km_mill_close waits up to 10 s for the store's last answer.
 * Fork       A child may use the handles it inherited, whatever its parent's threads were doing. With fork=revive (the
 *            default) its first call starts anew, with numbers and connections of its own; with fork=error it answers
 *            KM_FORKED, and so do a mill on memory: and a snowflake
 *            with worker=N, which two processes cannot share. Parent and child never get the same id (but do not fork
 *            in a signal handler that interrupted a call of ours). Raw clone() counts as
 *            fork; in a child of vfork() nothing may be called.
 * Signals    The library's threads receive none of the program's signals, and no call of ours changes a mask or a handler.
 * Files      Do not close descriptors that are not yours while a mill is open, as closefrom() does: their numbers would be
 *            given to files of yours, and the library would write there. In a forked child that is fine before its
 *            first call. Keep the descriptors 0, 1 and 2 open, if only on /dev/null. A relative path is taken from the working
 *            folder of the opening.
 * Ids        are below 2^63, ids of 128 bits below 2^127.
 * Jumps      A call must return: do not leave one by longjmp(), siglongjmp(), pthread_exit() or a C++ exception in a signal
 *            handler, nor end its thread by pthread_cancel(). A lock would stay taken, and numbers would be lost.
 * Unloading  The library stays in memory after dlclose(); there is nothing to shut down at exit.
 * Versions   Within one soname functions and codes are only added.
 */
#ifndef KEYMILL_H
#define KEYMILL_H


#include <stddef.h>
#include <stdint.h>

/**
 * A buffer of this many bytes holds any one event, its newline and NUL included: see km_mill_events.
 */
#define KM_EVENT_SIZE 1024

/**
 * km_parts.present: when a snowflake was made.
 */
#define KM_PART_TIME 1

/**
 * km_parts.present: a snowflake's worker.
 */
#define KM_PART_WORKER 2

/**
 * km_parts.present: a snowflake's sequence.
 */
#define KM_PART_SEQUENCE 4

/**
 * km_parts.present: a segment's id, or the number of a serial or of a business id.
 */
#define KM_PART_NUMBER 8

/**
 * km_parts.present: a serial's date part.
 */
#define KM_PART_DATE 16

/**
 * km_parts.present: the data centre of a snowflake whose source was given its worker as DC+N.
 */
#define KM_PART_DATACENTER 32

/**
 * km_parts.present: the gene of a business id.
 */
#define KM_PART_GENE 64

/**
 * km_stats.present: last_refill_ms.
 */
#define KM_STAT_LAST_REFILL 1

/**
 * km_stats.present: runway_seconds.
 */
#define KM_STAT_RUNWAY 2

/**
 * km_stats.present: lead_ms.
 */
#define KM_STAT_LEAD 4

/**
 * km_stats.present: ends_at_ms.
 */
#define KM_STAT_END 8

/**
 * km_stats.present: refusal.
 */
#define KM_STAT_REFUSAL 16

/**
 * km_stats.present: lease_age_ms.
 */
#define KM_STAT_LEASE_AGE 32

/**
 * km_stats.present: zone.
 */
#define KM_STAT_ZONE 64

/**
 * The version of this header; km_version() is the version of the library that runs.
 */
#define KM_VERSION_MAJOR 0

/**
 * See KM_VERSION_MAJOR.
 */
#define KM_VERSION_MINOR 2

/**
 * See KM_VERSION_MAJOR.
 */
#define KM_VERSION_PATCH 0

/**
 * What went wrong, as a number that is the same in every language.
 */
enum km_code
#if (defined(__cplusplus) && __cplusplus >= 201103L) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif /* (defined(__cplusplus) && __cplusplus >= 201103L) || __STDC_VERSION__ >= 202311L */
 {
    /**
     * No error.
     */
    KM_OK = 0,
    /**
     * An argument of the call itself is wrong: NULL, too long, not of the right kind.
     */
    KM_INVALID_ARGUMENT = 1,
    /**
     * A configuration string, a source's spec or a TOML file is wrong.
     */
    KM_INVALID_CONFIG = 2,
    /**
     * The mill was closed.
     */
    KM_CLOSED = 3,
    /**
     * The caller's deadline passed before the store answered.
     */
    KM_DEADLINE = 4,
    /**
     * Nothing is in memory right now; `retry_after` says when to ask again.
     */
    KM_NOT_READY = 5,
    /**
     * The numbers of this source are used up; nothing wraps.
     */
    KM_EXHAUSTED = 6,
    /**
     * The store cannot be reached or does not answer.
     */
    KM_STORE_UNAVAILABLE = 7,
    /**
     * The store answered with a refusal: a missing table, a missing right, a row that makes no sense.
     */
    KM_STORE_REFUSED = 8,
    /**
     * The store holds less than this process has already seen: a restored backup, a deleted row, a lost failover.
     */
    KM_STORE_WENT_BACKWARDS = 9,
    /**
     * The store's settings lose commits, so a reservation could be handed out twice.
     */
    KM_STORE_UNSAFE = 10,
    /**
     * The next number is wider than the number pattern.
     */
    KM_NUMBER_OVERFLOW = 11,
    /**
     * This machine's clock is behind what has already been issued or reserved.
     */
    KM_CLOCK_BEHIND = 12,
    /**
     * The worker id is no longer this process's own.
     */
    KM_LEASE_LOST = 13,
    /**
     * Every worker id is taken.
     */
    KM_NO_WORKER_FREE = 14,
    /**
     * The layout's time field is over.
     */
    KM_LAYOUT_ENDED = 15,
    /**
     * The process was forked and the mill is configured not to start anew in the child.
     */
    KM_FORKED = 16,
    /**
     * An order number that this key did not make.
     */
    KM_FORGED = 17,
    /**
     * The caller's buffer is too small; the length needed is given.
     */
    KM_BUFFER_TOO_SMALL = 18,
    /**
     * A defect in keymill itself, or the system starts no thread: the message says which.
     */
    KM_INTERNAL = 19
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum km_code km_code;
#else
typedef int32_t km_code;
#endif /* __STDC_VERSION__ >= 202311L */
#endif /* __cplusplus */

/**
 * A mill: one store, one background thread, any number of sources. Opaque.
 */
typedef struct km_mill km_mill;

/**
 * Keys that turn business ids into order numbers and back. Opaque.
 */
typedef struct km_numbers km_numbers;

/**
 * Which shard an id or a business key belongs to. Opaque.
 */
typedef struct km_router km_router;

/**
 * A source of ids inside a mill. Opaque.
 */
typedef struct km_source km_source;

/**
 * What an id is made of. The caller sets struct_size to sizeof(km_parts) before the call (KM_PARTS_INIT does); the
 * struct may grow at its end in later versions.
 */
typedef struct {
    /**
     * sizeof(km_parts), set by the caller.
     */
    uint32_t struct_size;
    /**
     * KM_PART_...: which of the fields below the id has. The others are 0 and empty.
     */
    uint32_t present;
    /**
     * Milliseconds since 1970.
     */
    int64_t time_ms;
    /**
     * The worker.
     */
    uint64_t worker;
    /**
     * The sequence.
     */
    uint64_t sequence;
    /**
     * The number.
     */
    uint64_t number;
    /**
     * The date part, NUL-terminated.
     */
    char date[64];
    /**
     * The data centre; worker is then the worker within it.
     */
    uint64_t datacenter;
    /**
     * The gene.
     */
    uint64_t gene;
} km_parts;

/**
 * An id of 128 bits: a zero, the gene in 16 bits, the number in the 111 bits that are left. As VARBINARY(16) it is hi and
 * then lo, each big-endian.
 */
typedef struct {
    /**
     * The upper 64 bits.
     */
    uint64_t hi;
    /**
     * The lower 64 bits.
     */
    uint64_t lo;
} km_wide;

/**
 * The figures of a source. The caller sets struct_size to sizeof(km_stats) before the call (KM_STATS_INIT does); the
 * struct may grow at its end in later versions.
 */
typedef struct {
    /**
     * sizeof(km_stats), set by the caller.
     */
    uint32_t struct_size;
    /**
     * KM_STAT_...: which of the fields below are known. The others are 0 and empty.
     */
    uint32_t present;
    /**
     * Ids handed out; the numbers of a block count when the block is leased.
     */
    uint64_t issued;
    /**
     * Numbers reserved from the store.
     */
    uint64_t reserved;
    /**
     * Numbers in memory.
     */
    uint64_t left;
    /**
     * Numbers that were reserved and are issued to no caller.
     */
    uint64_t lost;
    /**
     * Reservations that were answered.
     */
    uint64_t refills;
    /**
     * Calls that had to wait.
     */
    uint64_t waits;
    /**
     * How many numbers the last reservation was.
     */
    uint64_t step;
    /**
     * When the last reservation was answered, in milliseconds since 1970.
     */
    int64_t last_refill_ms;
    /**
     * Ids a second.
     */
    double rate;
    /**
     * How many seconds the numbers in memory last at that rate; 0 where none are left and callers get an error.
     */
    double runway_seconds;
    /**
     * How far a snowflake's time leads the wall clock, in milliseconds.
     */
    int64_t lead_ms;
    /**
     * When a snowflake's layout ends, in milliseconds since 1970.
     */
    int64_t ends_at_ms;
    /**
     * The error that callers get now, NUL-terminated; cut where it is longer.
     */
    char refusal[256];
    /**
     * How long ago the lease of a snowflake's worker was renewed, in milliseconds.
     */
    uint64_t lease_age_ms;
    /**
     * The time zone of a serial's dates, NUL-terminated; with zone=local it is the program's zone.
     */
    char zone[64];
} km_stats;

/**
 * Where an id or a business key belongs. The caller sets struct_size to sizeof(km_route) before the call (KM_ROUTE_INIT does); the
 * struct may grow at its end in later versions. The names are NUL-terminated, and readable until the router is freed,
 * whatever tables are loaded.
 */
typedef struct {
    /**
     * sizeof(km_route), set by the caller.
     */
    uint32_t struct_size;
    /**
     * The gene, 0 to 65535.
     */
    uint32_t gene;
    /**
     * The version of the table.
     */
    uint64_t version;
    /**
     * The shard of the gene's range. While the range moves, the shard that it leaves.
     */
    const char *shard;
    /**
     * The shard to read from.
     */
    const char *read;
    /**
     * The shard that decides a write: `shard`, until a move is finished. NULL while the route is paused.
     */
    const char *write;
    /**
     * A second shard that may serve ids of this key, for a key whose range moves by number; else NULL.
     */
    const char *also;
    /**
     * While the range moves, the second shard to write to; else NULL. It follows `write`, and a write is acknowledged when both have it:
     * see km_router_is_current.
     */
    const char *mirror;
    /**
     * 1: writes of the range wait, because its move is about to be finished, for a second at most where all processes live. Take another
     * route then; reads go on. Else 0.
     */
    uint32_t paused;
} km_route;

/**
 * A cursor over a source of numbers, owned by one thread at a time: the fastest way to ids one by one. Make it with
 * KM_CURSOR_INIT(source), take with km_cursor_next. Nothing is to be freed. What is left in it goes
 * back with km_cursor_close before the mill is closed, and is lost without it. The source is not
 * freed while cursors over it are used. Do not copy one: both copies would give the same numbers. The fields are the
 * library's own.
 */
typedef struct {
    /**
     * The next number.
     */
    uint64_t next;
    /**
     * One past the last.
     */
    uint64_t end;
    /**
     * The numbers may be issued while `*word == leased_at`; readable for ever.
     */
    const uint64_t *word;
    /**
     * See word.
     */
    uint64_t leased_at;
    /**
     * Where new blocks come from.
     */
    km_source *source;
    /**
     * How many numbers to lease at a time at most; 0: as many as the source's block= says. May be set by the caller.
     */
    uint64_t count;
    /**
     * How many numbers the block had, and when it was leased: blocks grow with use. Zeros before the first.
     */
    uint64_t last[2];
} km_cursor;

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/**
 * Opens a mill from one string: "sqlite:FILE", "memory:", "mysql://user:password@host:port/database", "postgres://…" and
 * "redis://…" alike, or "file:CONFIG.toml". An empty string gives KM_INVALID_CONFIG, because it is usually a missing setting:
 * see km_mill_open_default. Nothing is connected until a source needs it, so a store that is down does not keep a program from
 * starting. `*mill` is the caller's, who frees it with km_mill_free.
 *
 * KM_INVALID_ARGUMENT, KM_INVALID_CONFIG.
 */
km_code km_mill_open(const char *config, km_mill **mill);

/**
 * Opens the mill that the environment variable KEYMILL_CONFIG names, and without the variable "sqlite:keymill.db" in the
 * working folder. An empty variable gives KM_INVALID_CONFIG. `*mill` is the caller's, who frees it with km_mill_free.
 *
 * KM_INVALID_ARGUMENT, KM_INVALID_CONFIG.
 */
km_code km_mill_open_default(km_mill **mill);

/**
 * A source, named by one string: "segment:orders?step=1000", "snowflake:tx?worker=5",
 * "serial:cust_info/custid?date=yyyyMMdd&number=000000". Asking again gives another handle of the same source. `*source`
 * is the caller's, who frees it with km_source_free, before or after the mill.
 *
 * KM_INVALID_ARGUMENT, KM_INVALID_CONFIG, KM_LAYOUT_ENDED, KM_CLOSED, KM_FORKED.
 */
km_code km_mill_source(km_mill *mill, const char *spec, km_source **source);

/**
 * Closes a mill for good: every later call on it and its sources answers KM_CLOSED, callers that wait are woken, unused
 * numbers go back to the store where they can. May be called while other threads use the mill. Closing twice is
 * nothing.
 *
 * KM_INVALID_ARGUMENT.
 */
km_code km_mill_close(km_mill *mill);

/**
 * Closes the mill if it is open and frees it. Its sources stay valid handles, each to be freed by its owner, and answer
 * KM_CLOSED. NULL is nothing.
 *
 * KM_INVALID_ARGUMENT when it was freed before.
 */
km_code km_mill_free(km_mill *mill);

/**
 * Writes every figure of the mill as Prometheus text, with a NUL. Figures grow between two calls: after
 * KM_BUFFER_TOO_SMALL come with a little more than `*len`.
 *
 * KM_INVALID_ARGUMENT, KM_BUFFER_TOO_SMALL.
 */
km_code km_mill_metrics(const km_mill *mill, char *buf, size_t size, size_t *len);

/**
 * Takes what happened since the last call, one line per event, oldest first: "2026-11-21T08:30:00.123Z refill_failed:
 * ...". Call until `*len` is 0: a call writes as many events as surely fit, those it did not write stay. The mill keeps
 * the last 256. A line longer than KM_EVENT_SIZE is cut.
 *
 * KM_INVALID_ARGUMENT, KM_BUFFER_TOO_SMALL for a buffer below KM_EVENT_SIZE; no event is lost by that.
 */
km_code km_mill_events(km_mill *mill, char *buf, size_t size, size_t *len);

/**
 * Moves the clock of a mill opened with clock=manual forward by milliseconds. For tests.
 *
 * KM_INVALID_ARGUMENT on a mill that runs on the machine's clock; KM_CLOSED, KM_FORKED.
 */
km_code km_mill_clock_advance(km_mill *mill, uint64_t ms);

/**
 * Sets the clock of a mill opened with clock=manual to milliseconds since 1970, in either direction. For tests.
 *
 * KM_INVALID_ARGUMENT on a mill that runs on the machine's clock; KM_CLOSED, KM_FORKED.
 */
km_code km_mill_clock_set(km_mill *mill, int64_t wall_ms);

/**
 * The next id; waits at most the source's deadline when none is in memory.
 *
 * KM_INVALID_ARGUMENT (a serial's numbers are handed out as text: km_source_next_text; business ids need a key:
 * km_source_next_for_u64), KM_DEADLINE, KM_STORE_...,
 * KM_EXHAUSTED, KM_CLOCK_BEHIND, KM_LAYOUT_ENDED, KM_LEASE_LOST, KM_NO_WORKER_FREE, KM_CLOSED, KM_FORKED. Where the text
 * below says "as km_source_next", these are meant.
 */
km_code km_source_next(km_source *source, uint64_t *id);

/**
 * The next id if one is in memory; never blocks. On KM_NOT_READY `*retry_ms` says after how many milliseconds to ask
 * again, at least 1.
 *
 * KM_NOT_READY, and as km_source_next.
 */
km_code km_source_try_next(km_source *source, uint64_t *id, uint32_t *retry_ms);

/**
 * Fills an array with `count` ids: all of it, or none and an error. By far the fastest way to many ids. 0 ids are
 * nothing.
 *
 * As km_source_next; KM_INVALID_ARGUMENT for a count that no memory holds.
 */
km_code km_source_fill(km_source *source, uint64_t *ids, size_t count);

/**
 * Leases [`*lo`, `*hi`) to the caller alone: at least one number and at most `count`; one where ids do not follow each
 * other (`delta=`). What is not used is lost.
 *
 * As km_source_next; KM_INVALID_ARGUMENT for a count of 0 and for snowflakes, which have no ranges.
 */
km_code km_source_lease(km_source *source, uint64_t count, uint64_t *lo, uint64_t *hi);

/**
 * Writes the next serial number as text with a NUL; of other kinds of sources the next id, in the form that `text=` and
 * `prefix=` say, in decimal unless they are given. Waits as km_source_next. No number is spent on a buffer below km_source_text_len.
 *
 * KM_BUFFER_TOO_SMALL, KM_NUMBER_OVERFLOW, and as km_source_next.
 */
km_code km_source_next_text(km_source *source,
                            char *buf,
                            size_t size,
                            size_t *len);

/**
 * As km_source_next_text, but never blocks; on KM_NOT_READY `*retry_ms` says after how many milliseconds to ask again.
 *
 * KM_NOT_READY, and as km_source_next_text.
 */
km_code km_source_try_next_text(km_source *source, char *buf, size_t size, size_t *len, uint32_t *retry_ms);

/**
 * Writes `count` texts, each with a NUL, the first at `buf` and each next one `stride` bytes further: all of them, or
 * none and an error. `stride` is at least km_source_text_len, and `buf` has room for `count * stride` bytes. What lies
 * between a NUL and the next text stays as it was. The fast way to many serial numbers; 0 texts are nothing.
 *
 * KM_BUFFER_TOO_SMALL where the stride is, before a number is spent; KM_INVALID_ARGUMENT for more than memory holds; and
 * as km_source_next_text.
 */
km_code km_source_take_text(km_source *source, char *buf, size_t stride, size_t count);

/**
 * Writes an id of this source as its texts are written, with a NUL: what km_source_next_text would have given for it.
 *
 * KM_BUFFER_TOO_SMALL; KM_INVALID_ARGUMENT for a serial, whose text has a date.
 */
km_code km_source_text_of(const km_source *source, uint64_t id, char *buf, size_t size, size_t *len);

/**
 * The size of a buffer that holds any text of this source, its NUL included.
 *
 * KM_INVALID_ARGUMENT.
 */
km_code km_source_text_len(const km_source *source, size_t *len);

/**
 * Takes an id of 64 bits of this source apart.
 *
 * KM_INVALID_ARGUMENT for an id this source cannot have made, and for a serial (km_source_parse_text).
 */
km_code km_source_parse(const km_source *source, uint64_t id, km_parts *parts);

/**
 * Takes an id of 128 bits of this source apart.
 *
 * KM_INVALID_ARGUMENT for an id this source cannot have made, and for a source without wide=on.
 */
km_code km_source_parse_wide(const km_source *source, km_wide id, km_parts *parts);

/**
 * Takes a text of this source apart: a serial number, or an id in the source's form or in decimal.
 *
 * KM_INVALID_ARGUMENT for a text this source cannot have made.
 */
km_code km_source_parse_text(const km_source *source, const char *text, km_parts *parts);

/**
 * The figures of this source since its mill was opened. They are read one by one while other threads take ids, so they may
 * differ by what happened in between.
 *
 * KM_INVALID_ARGUMENT, KM_CLOSED, KM_FORKED.
 */
km_code km_source_stats(const km_source *source, km_stats *stats);

/**
 * Frees a source; ids it handed out stay good. NULL is nothing.
 *
 * KM_INVALID_ARGUMENT when it was freed before.
 */
km_code km_source_free(km_source *source);

/**
 * The next business id for an integer key; a negative key is given as its two's complement. Ids of one gene rise. Waits at
 * most the source's deadline when none is in memory.
 *
 * KM_INVALID_ARGUMENT for a source of another kind, and for one with wide=on (km_source_next_wide_for_u64); and as
 * km_source_next.
 */
km_code km_source_next_for_u64(km_source *source, uint64_t key, uint64_t *id);

/**
 * As km_source_next_for_u64 for a text key: `len` bytes of UTF-8, at most 65536, which need no NUL. An empty key is a key.
 *
 * KM_INVALID_ARGUMENT for a longer key, and as km_source_next_for_u64.
 */
km_code km_source_next_for_text(km_source *source, const char *key, size_t len, uint64_t *id);

/**
 * As km_source_next_for_u64, but never blocks; on KM_NOT_READY `*retry_ms` says after how many milliseconds to ask again.
 *
 * KM_NOT_READY, and as km_source_next_for_u64.
 */
km_code km_source_try_next_for_u64(km_source *source, uint64_t key, uint64_t *id, uint32_t *retry_ms);

/**
 * As km_source_next_for_text, but never blocks; on KM_NOT_READY `*retry_ms` says after how many milliseconds to ask again.
 *
 * KM_NOT_READY, and as km_source_next_for_text.
 */
km_code km_source_try_next_for_text(km_source *source, const char *key, size_t len, uint64_t *id, uint32_t *retry_ms);

/**
 * Fills an array with `count` business ids for an integer key: all of it, or none and an error. The fast way to many ids of
 * one key. 0 ids are nothing.
 *
 * As km_source_next_for_u64; KM_INVALID_ARGUMENT for a count that no memory holds.
 */
km_code km_source_fill_for_u64(km_source *source, uint64_t key, uint64_t *ids, size_t count);

/**
 * As km_source_fill_for_u64 for a text key, given as to km_source_next_for_text.
 *
 * As km_source_next_for_text; KM_INVALID_ARGUMENT for a count that no memory holds.
 */
km_code km_source_fill_for_text(km_source *source, const char *key, size_t len, uint64_t *ids, size_t count);

/**
 * The next id of 128 bits for an integer key, of a source with wide=on.
 *
 * KM_INVALID_ARGUMENT for a source without wide=on, and as km_source_next_for_u64.
 */
km_code km_source_next_wide_for_u64(km_source *source, uint64_t key, km_wide *id);

/**
 * The next id of 128 bits for a text key, given as to km_source_next_for_text, of a source with wide=on.
 *
 * KM_INVALID_ARGUMENT for a source without wide=on, and as km_source_next_for_text.
 */
km_code km_source_next_wide_for_text(km_source *source, const char *key, size_t len, km_wide *id);

/**
 * As km_source_next_wide_for_u64, but never blocks; on KM_NOT_READY `*retry_ms` says after how many milliseconds to ask
 * again.
 *
 * KM_NOT_READY, and as km_source_next_wide_for_u64.
 */
km_code km_source_try_next_wide_for_u64(km_source *source, uint64_t key, km_wide *id, uint32_t *retry_ms);

/**
 * As km_source_next_wide_for_text, but never blocks; on KM_NOT_READY `*retry_ms` says after how many milliseconds to ask
 * again.
 *
 * KM_NOT_READY, and as km_source_next_wide_for_text.
 */
km_code km_source_try_next_wide_for_text(km_source *source, const char *key, size_t len, km_wide *id, uint32_t *retry_ms);

/**
 * Fills an array with `count` ids of 128 bits for an integer key: all of it, or none and an error.
 *
 * As km_source_next_wide_for_u64; KM_INVALID_ARGUMENT for a count that no memory holds.
 */
km_code km_source_fill_wide_for_u64(km_source *source, uint64_t key, km_wide *ids, size_t count);

/**
 * As km_source_fill_wide_for_u64 for a text key, given as to km_source_next_for_text.
 *
 * As km_source_next_wide_for_text; KM_INVALID_ARGUMENT for a count that no memory holds.
 */
km_code km_source_fill_wide_for_text(km_source *source, const char *key, size_t len, km_wide *ids, size_t count);

/**
 * The gene of an integer key, 0 to 65535: (xxhash64(key, 0) ^ murmurhash64A(key, 0)) & 0xFFFF over its 8 bytes in little-endian order. A
 * negative key is its two's complement, (uint64_t)key.
 *
 * KM_INVALID_ARGUMENT.
 */
km_code km_gene_u64(uint64_t key,
                    uint16_t *gene);

/**
 * The gene of a text key, as km_gene_u64 over its `len` bytes.
 *
 * KM_INVALID_ARGUMENT for a key of more than 64 KiB.
 */
km_code km_gene_text(const char *key, size_t len, uint16_t *gene);

/**
 * A router whose table is in a file, TOML or JSON. The file is read once; km_router_load replaces the table. `*router` is the
 * caller's, who frees it with km_router_free.
 *
 * KM_INVALID_ARGUMENT where the file cannot be read, KM_INVALID_CONFIG with every fault of the table.
 */
km_code km_router_open_file(const char *file, km_router **router);

/**
 * A router with this table: TOML, or JSON if the text begins with a brace. `*router` is the caller's, who frees it with
 * km_router_free.
 *
 * KM_INVALID_ARGUMENT, KM_INVALID_CONFIG with every fault of the table.
 */
km_code km_router_open_text(const char *text, km_router **router);

/**
 * The router whose table the mill's store has under this name. The mill reads the table every 10 s, every second while a range
 * moves. A router goes on with its table when the store is lost and when its mill is closed. A mill that is open when the program
 * exits is closed then, within 2 s, so that no move waits for this program. `*router` is the caller's, who frees it with
 * km_router_free.
 *
 * KM_INVALID_ARGUMENT, KM_INVALID_CONFIG, KM_STORE_REFUSED where the store has no such table, KM_STORE_UNAVAILABLE,
 * KM_DEADLINE, KM_CLOSED, KM_FORKED.
 */
km_code km_mill_router(km_mill *mill, const char *name, km_router **router);

/**
 * Replaces the table while other threads read. The present table again is nothing.
 *
 * KM_INVALID_ARGUMENT, KM_INVALID_CONFIG with every fault of the table, or where its version is not higher than the present
 * one: the old table stays.
 */
km_code km_router_load(km_router *router, const char *text);

/**
 * Where an id of 64 bits belongs.
 *
 * KM_INVALID_ARGUMENT for an id of 2^63 or more. KM_LEASE_LOST where its range moves to another shard and this process could not
 * tell the store in time that it follows, so that it may have missed a step; KM_STORE_WENT_BACKWARDS where another process runs a
 * later table than the store has. Where the text below says "as km_router_route", the last two are meant.
 */
km_code km_router_route(const km_router *router, uint64_t id, km_route *route);

/**
 * Where an id of 128 bits belongs.
 *
 * KM_INVALID_ARGUMENT for an id of another form; as km_router_route.
 */
km_code km_router_route_wide(const km_router *router, km_wide id, km_route *route);

/**
 * Where the ids of an integer key belong.
 *
 * KM_INVALID_ARGUMENT; as km_router_route.
 */
km_code km_router_route_key_u64(const km_router *router, uint64_t key, km_route *route);

/**
 * Where the ids of a text key of `len` bytes belong.
 *
 * KM_INVALID_ARGUMENT for a key of more than 64 KiB; as km_router_route.
 */
km_code km_router_route_key_text(const km_router *router, const char *key, size_t len, km_route *route);

/**
 * Where the order belongs that has this order number, which needs no key: `len` is 16, or 8 for the bytes of a number in big-endian
 * order. Where a range moves by number, the id decides, which is encrypted: `also` names the second shard then. Use km_router_route with
 * the unsealed id to get one.
 *
 * KM_INVALID_ARGUMENT for another length, and for what is no order number; as km_router_route.
 */
km_code km_router_route_order_no(const km_router *router,
                                 const uint8_t *order_no,
                                 size_t len,
                                 km_route *route);

/**
 * As km_router_route_order_no for an order number of 8 bytes.
 *
 * KM_INVALID_ARGUMENT for a number of 2^63 or more; as km_router_route.
 */
km_code km_router_route_order_no8(const km_router *router, uint64_t order_no, km_route *route);

/**
 * As km_router_route_order_no for the text of an order number, of 26 or of 14 characters.
 *
 * KM_INVALID_ARGUMENT for another length or other characters; as km_router_route.
 */
km_code km_router_route_order_no_text(const km_router *router, const char *text, km_route *route);

/**
 * Whether a write by this route may still be committed: the present table says the same about where the ids of its gene are written, and
 * while the range moves, this process may answer for it. Steps that move only reads do not count. Asks no store and takes no lock.
 *
 * A write while the range moves holds a transaction open on both shards, and asks this before it commits `write`, then `mirror`. If the
 * answer is 0, roll both back, take a new route, and do the work again. A paused route is never current.
 *
 * KM_INVALID_ARGUMENT.
 */
km_code km_router_is_current(const km_router *router,
                             const km_route *route,
                             int32_t *is_current);

/**
 * The version of the present table.
 *
 * KM_INVALID_ARGUMENT.
 */
km_code km_router_version(const km_router *router, uint64_t *version);

/**
 * How many milliseconds ago the store said that the table is the present one; -1 where the table is not from a store.
 *
 * KM_INVALID_ARGUMENT.
 */
km_code km_router_age(const km_router *router, int64_t *age_ms);

/**
 * Frees a router. NULL is nothing.
 *
 * KM_INVALID_ARGUMENT when it was freed before.
 */
km_code km_router_free(km_router *router);

/**
 * Order numbers with the keys of a file, for one tenant and one table; either may be empty. The file is read once. It has
 * `seal_with = 2` and, below `[key]`, lines such as `2 = "64 hexadecimal digits"`, and other users must not be able to read it.
 * `*numbers` is the caller's, who frees it with km_numbers_free; the last free of one wipes the keys.
 *
 * KM_INVALID_ARGUMENT where the file cannot be read, KM_INVALID_CONFIG where others can read it, and with what is wrong in it.
 */
km_code km_numbers_open(const char *file, const char *tenant, const char *table, km_numbers **numbers);

/**
 * As km_numbers_open with the environment variable KEYMILL_ORDER_KEYS, which has the text of a key file.
 *
 * KM_INVALID_ARGUMENT, KM_INVALID_CONFIG where it is not set, and with what is wrong in it.
 */
km_code km_numbers_open_env(const char *tenant, const char *table, km_numbers **numbers);

/**
 * As km_numbers_open with `count` keys of the caller's: `versions` holds their versions, 1 to 255, and `keys` 32 bytes for each. The
 * caller wipes its own copy.
 *
 * KM_INVALID_ARGUMENT for a version that is 0 or there twice, and where `seal_with` has no key.
 */
km_code km_numbers_open_keys(const uint8_t *versions,
                             const uint8_t *keys,
                             size_t count,
                             uint8_t seal_with,
                             const char *tenant,
                             const char *table,
                             km_numbers **numbers);

/**
 * The same keys, with only this version in use: it seals, it opens order numbers of 8 bytes, and order numbers of 16 bytes have to be of
 * this version. `*chosen` is the caller's, who frees it with km_numbers_free; `numbers` may be freed before.
 *
 * KM_INVALID_ARGUMENT for a version that is 0 or not loaded.
 */
km_code km_numbers_with_version(const km_numbers *numbers,
                                uint8_t version,
                                km_numbers **chosen);

/**
 * The version that seals, which belongs into a column beside order numbers of 8 bytes.
 *
 * KM_INVALID_ARGUMENT.
 */
km_code km_numbers_version(const km_numbers *numbers, uint8_t *version);

/**
 * The order number of an id of 64 bits: writes 16 bytes to `order_no`.
 *
 * KM_INVALID_ARGUMENT for an id of 2^63 or more.
 */
km_code km_numbers_seal(const km_numbers *numbers, uint64_t id, uint8_t *order_no);

/**
 * The id in an order number of 16 bytes; `len` is 16.
 *
 * KM_FORGED for what was not sealed with these keys for this tenant and this table. KM_INVALID_ARGUMENT for another length, and for a
 * key version that is 0 or not loaded.
 */
km_code km_numbers_unseal(const km_numbers *numbers,
                          const uint8_t *order_no,
                          size_t len,
                          uint64_t *id);

/**
 * The order number of an id of 128 bits: writes 16 bytes to `order_no`.
 *
 * KM_INVALID_ARGUMENT for an id of another form.
 */
km_code km_numbers_seal_wide(const km_numbers *numbers, km_wide id, uint8_t *order_no);

/**
 * The id of 128 bits in an order number.
 *
 * As km_numbers_unseal; KM_FORGED for the order number of an id of 64 bits.
 */
km_code km_numbers_unseal_wide(const km_numbers *numbers, const uint8_t *order_no, size_t len, km_wide *id);

/**
 * The order number of 8 bytes: a number below 2^63. It hides the number in the id and has no room for a check: every number below 2^63
 * opens as some id.
 *
 * As km_numbers_seal.
 */
km_code km_numbers_seal8(const km_numbers *numbers,
                         uint64_t id,
                         uint64_t *order_no);

/**
 * The id in an order number of 8 bytes. Its key version is the one given to km_numbers_with_version, or the only loaded version.
 *
 * KM_INVALID_ARGUMENT where several versions are loaded and none was chosen, and for a number of 2^63 or more.
 */
km_code km_numbers_unseal8(const km_numbers *numbers, uint64_t order_no, uint64_t *id);

/**
 * The order numbers of `count` ids, several times as fast as one by one: writes `16 * count` bytes, all of them or none and an error.
 *
 * As km_numbers_seal.
 */
km_code km_numbers_seal_all(const km_numbers *numbers,
                            const uint64_t *ids,
                            size_t count,
                            uint8_t *order_nos);

/**
 * The ids in `count` order numbers of 16 bytes each: all of them, or none and an error that says which one is wrong.
 *
 * As km_numbers_unseal.
 */
km_code km_numbers_unseal_all(const km_numbers *numbers, const uint8_t *order_nos, size_t count, uint64_t *ids);

/**
 * The order numbers of 8 bytes of `count` ids: all of them, or none and an error. `order_nos` may be the array of the ids.
 *
 * As km_numbers_seal8.
 */
km_code km_numbers_seal8_all(const km_numbers *numbers, const uint64_t *ids, size_t count, uint64_t *order_nos);

/**
 * The ids in `count` order numbers of 8 bytes, which one version has sealed.
 *
 * As km_numbers_unseal8.
 */
km_code km_numbers_unseal8_all(const km_numbers *numbers, const uint64_t *order_nos, size_t count, uint64_t *ids);

/**
 * The order number of an id of 64 bits as text: 26 characters of Crockford's base 32, and a NUL.
 *
 * As km_numbers_seal; KM_BUFFER_TOO_SMALL.
 */
km_code km_numbers_seal_text(const km_numbers *numbers, uint64_t id, char *buf, size_t size, size_t *len);

/**
 * The id in the text of an order number of 16 bytes. Small letters are read too, and i, l and o as the digits that they look like.
 *
 * As km_numbers_unseal; KM_INVALID_ARGUMENT for a text of another length or with other characters.
 */
km_code km_numbers_unseal_text(const km_numbers *numbers,
                               const char *text,
                               uint64_t *id);

/**
 * The order number of an id of 128 bits as text of 26 characters, and a NUL.
 *
 * As km_numbers_seal_wide; KM_BUFFER_TOO_SMALL.
 */
km_code km_numbers_seal_wide_text(const km_numbers *numbers, km_wide id, char *buf, size_t size, size_t *len);

/**
 * The id of 128 bits in the text of an order number.
 *
 * As km_numbers_unseal_text; KM_FORGED for the order number of an id of 64 bits.
 */
km_code km_numbers_unseal_wide_text(const km_numbers *numbers, const char *text, km_wide *id);

/**
 * The order number of 8 bytes as text: 13 characters of Crockford's base 32, his check symbol, and a NUL.
 *
 * As km_numbers_seal8; KM_BUFFER_TOO_SMALL.
 */
km_code km_numbers_seal8_text(const km_numbers *numbers, uint64_t id, char *buf, size_t size, size_t *len);

/**
 * The id in the text of an order number of 8 bytes.
 *
 * As km_numbers_unseal8; KM_INVALID_ARGUMENT for a text of another length, with other characters, or with another check symbol.
 */
km_code km_numbers_unseal8_text(const km_numbers *numbers, const char *text, uint64_t *id);

/**
 * Frees order numbers. NULL is nothing.
 *
 * KM_INVALID_ARGUMENT when it was freed before.
 */
km_code km_numbers_free(km_numbers *numbers);

/**
 * Leases the cursor's next block and takes its first id. km_cursor_next calls it when the block is used up, the mill was
 * closed or the process forked; no program needs to.
 *
 * As km_source_next.
 */
km_code km_cursor_refill(km_cursor *cursor, uint64_t *id);

/**
 * Gives back what is left in the cursor, which is empty afterwards and may be used on. Before the mill is closed, and by the thread
 * that owns the cursor. In a forked child it empties the cursor.
 *
 * KM_INVALID_ARGUMENT for NULL and for a source that was freed.
 */
km_code km_cursor_close(km_cursor *cursor);

/**
 * Writes the string that names a source, with a NUL: "serial:cust%2Finfo/custid?number=000000". What separates its parts
 * is percent-encoded inside them. `name` holds `names` strings, one for each part of the name; `options` holds
 * `2 * pairs` strings, an option and its value each time. An array of no strings may be NULL. Nothing is checked but the
 * strings themselves: km_mill_source says what is wrong with a spec.
 *
 * KM_INVALID_ARGUMENT, KM_BUFFER_TOO_SMALL.
 */
km_code km_spec(const char *kind,
                const char *const *name,
                size_t names,
                const char *const *options,
                size_t pairs,
                char *buf,
                size_t size,
                size_t *len);

/**
 * Writes the string that opens a mill in the application's own database, with a NUL. `url` is a JDBC URL, a URL as SQLAlchemy,
 * Prisma and DATABASE_URL write them, or "django:ENGINE". `properties` holds `2 * pairs` strings, the name of a parameter
 * beside the URL and its value each time; it may be NULL where there are none. Nothing is opened or asked. The string holds
 * the password.
 *
 * KM_INVALID_CONFIG: a parameter that says where, as whom or how encrypted in a way that a mill cannot, by its name; or a
 * database that cannot be a store. No message holds a value. Other parameters are ignored and named by `ignored=`.
 * KM_INVALID_ARGUMENT, KM_BUFFER_TOO_SMALL.
 */
km_code km_store_of(const char *url, const char *const *properties, size_t pairs, char *buf, size_t size, size_t *len);

/**
 * What went wrong in this thread's last call that failed, as one line for a person: what was being done, what was seen,
 * what to do. Never NULL: an empty string when nothing has failed yet. Never holds a password. The string belongs to the
 * library and stays until the same thread's next call that fails, or the thread's end.
 */
const char *km_last_error(void);

/**
 * After how many milliseconds the call that failed last in this thread may succeed; 0 where that is not known.
 */
uint32_t km_last_retry_ms(void);

/**
 * The name of a code as every language prints it, "STORE_UNAVAILABLE"; "UNKNOWN" for a number that is no code.
 * A static string.
 */
const char *km_code_name(int32_t code);

/**
 * The version of the library that runs, "0.2.0". A static string.
 */
const char *km_version(void);

#ifdef __cplusplus
}  /* extern "C" */
#endif  /* __cplusplus */

/* The start of a km_parts. */
#define KM_PARTS_INIT { sizeof(km_parts), 0, 0, 0, 0, 0, { 0 }, 0, 0 }

/* The start of a km_stats. */
#define KM_STATS_INIT { sizeof(km_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, { 0 } }

/* The start of a km_route. */
#define KM_ROUTE_INIT { sizeof(km_route), 0, 0, NULL, NULL, NULL, NULL, NULL, 0 }

/* The start of a cursor over a source. */
#define KM_CURSOR_INIT(source) { 0, 0, NULL, 0, (source), 0, { 0, 0 } }

#if defined(__GNUC__) || defined(__clang__)
#define KM_LOAD_WORD(word) __atomic_load_n((word), __ATOMIC_RELAXED)
#else
#define KM_LOAD_WORD(word) (*(const volatile uint64_t *)(word))
#endif

/* C90 has no `inline`. */
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define KM_INLINE static inline
#elif defined(__GNUC__)
#define KM_INLINE static __inline__
#else
#define KM_INLINE static
#endif

/*
 * The next id of a cursor, without a call: one plain load and one add while the block lasts. Ids rise within a cursor.
 *
 * As km_source_next.
 */
KM_INLINE km_code km_cursor_next(km_cursor *cursor, uint64_t *id) {
    if (cursor != NULL && id != NULL && cursor->next < cursor->end
        && KM_LOAD_WORD(cursor->word) == cursor->leased_at) {
        *id = cursor->next++;
        return KM_OK;
    }
    return km_cursor_refill(cursor, id);
}

#endif /* KEYMILL_H */
