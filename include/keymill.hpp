// keymill for C++17: the C interface of keymill.h with owners and exceptions, header only.
//
//     keymill::Mill mill("sqlite:keymill.db");
//     keymill::Source orders = mill.source("segment:orders");
//     std::uint64_t id = orders.next();
//
// The conventions page of keymill.h holds here too. Owners are move-only; a moved-from one may only be assigned to or
// destroyed. Calls on one Mill or Source may come from any number of threads at once; moving, assigning and destroying may
// not run beside them. Sources may outlive their mill and answer KM_CLOSED then.
#ifndef KEYMILL_HPP
#define KEYMILL_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "keymill.h"

namespace keymill {

/// What every call throws: code() says what, what() tells a person, retry_after() is 0 where it is not known.
class Error : public std::runtime_error {
public:
    Error(km_code code, const std::string &message, std::chrono::milliseconds retry_after)
        : std::runtime_error(message), code_(code), retry_after_(retry_after) {}

    km_code code() const noexcept { return code_; }
    /// "STORE_UNAVAILABLE"
    const char *name() const noexcept { return km_code_name(code_); }
    std::chrono::milliseconds retry_after() const noexcept { return retry_after_; }

private:
    km_code code_;
    std::chrono::milliseconds retry_after_;
};

namespace detail {

[[noreturn]] inline void fail(km_code code) {
    throw Error(code, km_last_error(), std::chrono::milliseconds(km_last_retry_ms()));
}

inline void check(km_code code) {
    if (code != KM_OK) fail(code);
}

/// Calls `write(buf, size, len)`, again with a larger buffer while it is too small.
template <class Write>
std::string text(std::size_t size, Write write) {
    std::string buf(size, '\0');
    for (;;) {
        std::size_t len = 0;
        km_code code = write(buf.data(), buf.size(), &len);
        if (code == KM_OK) {
            buf.resize(len);
            return buf;
        }
        if (code != KM_BUFFER_TOO_SMALL) fail(code);
        // Metrics may have grown again by the next call.
        buf.resize(len + len / 4);
    }
}

struct Free {
    void operator()(km_mill *mill) const noexcept { km_mill_free(mill); }
    void operator()(km_source *source) const noexcept { km_source_free(source); }
};

} // namespace detail

/// The version of the library that runs.
inline std::string version() { return km_version(); }

/// The string that names a source: `keymill::spec("serial", {"cust_info", "custid"}, {{"number", "000000"}})`. What
/// separates its parts is percent-encoded inside them.
inline std::string spec(const std::string &kind, const std::vector<std::string> &name,
                        const std::vector<std::pair<std::string, std::string>> &options = {}) {
    std::vector<const char *> names, pairs;
    for (const std::string &part : name) names.push_back(part.c_str());
    for (const auto &option : options) {
        pairs.push_back(option.first.c_str());
        pairs.push_back(option.second.c_str());
    }
    return detail::text(256, [&](char *buf, std::size_t size, std::size_t *len) {
        return km_spec(kind.c_str(), names.data(), names.size(), pairs.data(), options.size(), buf, size, len);
    });
}

/// A block of numbers counted through inline: the fastest ids one by one, for one thread at a time. Lives no longer than
/// its Source's handle.
class Cursor {
public:
    explicit Cursor(km_source *source, std::uint64_t count = 0) : cursor_ KM_CURSOR_INIT(source) {
        cursor_.count = count;
    }
    Cursor(const Cursor &) = delete;
    Cursor &operator=(const Cursor &) = delete;
    /// The moved-from cursor leases a block of its own if it is used again.
    Cursor(Cursor &&other) noexcept : cursor_(other.cursor_) { other.cursor_.end = 0; }
    Cursor &operator=(Cursor &&other) noexcept {
        if (this != &other) {
            cursor_ = other.cursor_;
            other.cursor_.end = 0;
        }
        return *this;
    }

    std::uint64_t next() {
        std::uint64_t id;
        detail::check(km_cursor_next(&cursor_, &id));
        return id;
    }

private:
    km_cursor cursor_;
};

/// A source of ids inside a mill.
class Source {
public:
    /// Takes over a handle.
    explicit Source(km_source *source) noexcept : source_(source) {}

    /// The next id; waits at most the source's deadline.
    std::uint64_t next() {
        std::uint64_t id;
        detail::check(km_source_next(get(), &id));
        return id;
    }

    /// The next id if one is in memory; never blocks. `retry_ms`, where given, says when to ask again.
    std::optional<std::uint64_t> try_next(std::uint32_t *retry_ms = nullptr) {
        std::uint64_t id;
        std::uint32_t retry;
        km_code code = km_source_try_next(get(), &id, retry_ms ? retry_ms : &retry);
        if (code == KM_NOT_READY) return std::nullopt;
        detail::check(code);
        return id;
    }

    /// Fills an array: all of it, or none and an Error.
    void fill(std::uint64_t *ids, std::size_t count) { detail::check(km_source_fill(get(), ids, count)); }

    /// Fills anything with data() and size() of std::uint64_t.
    template <class Ids>
    void fill(Ids &ids) {
        if (ids.size() != 0) fill(ids.data(), ids.size());
    }

    std::vector<std::uint64_t> take(std::size_t count) {
        std::vector<std::uint64_t> ids(count);
        fill(ids);
        return ids;
    }

    /// The next serial number; of other kinds the next id in decimal.
    std::string next_text() {
        return detail::text(text_len(), [this](char *buf, std::size_t size, std::size_t *len) {
            return km_source_next_text(get(), buf, size, len);
        });
    }

    /// `count` texts: all of them, or an Error. The fast way to many.
    std::vector<std::string> take_text(std::size_t count) {
        const std::size_t stride = text_len();
        if (count > PTRDIFF_MAX / stride - 1) throw std::length_error("keymill::Source::take_text");
        std::vector<char> buf(count * stride + 1); // data() of nothing may be NULL
        detail::check(km_source_take_text(get(), buf.data(), stride, count));
        std::vector<std::string> texts;
        texts.reserve(count);
        for (std::size_t i = 0; i < count; i++) texts.emplace_back(buf.data() + i * stride);
        return texts;
    }

    /// The next text if a number is in memory; never blocks.
    std::optional<std::string> try_next_text(std::uint32_t *retry_ms = nullptr) {
        std::string buf(text_len(), '\0');
        std::size_t len;
        std::uint32_t retry;
        km_code code = km_source_try_next_text(get(), buf.data(), buf.size(), &len, retry_ms ? retry_ms : &retry);
        if (code == KM_NOT_READY) return std::nullopt;
        detail::check(code);
        buf.resize(len);
        return buf;
    }

    /// The size of a buffer that holds any text of this source, its NUL included.
    std::size_t text_len() const {
        std::size_t len;
        detail::check(km_source_text_len(get(), &len));
        return len;
    }

    /// [first, second) is the caller's alone: at least one number, at most `count`.
    std::pair<std::uint64_t, std::uint64_t> lease(std::uint64_t count) {
        std::uint64_t lo, hi;
        detail::check(km_source_lease(get(), count, &lo, &hi));
        return {lo, hi};
    }

    /// Blocks of `count` numbers (0: as many as the source's block= says) for one thread.
    Cursor cursor(std::uint64_t count = 0) { return Cursor(get(), count); }

    km_parts parse(std::uint64_t id) const {
        km_parts parts = KM_PARTS_INIT;
        detail::check(km_source_parse(get(), id, &parts));
        return parts;
    }

    km_parts parse(const std::string &text) const {
        km_parts parts = KM_PARTS_INIT;
        detail::check(km_source_parse_text(get(), text.c_str(), &parts));
        return parts;
    }

    /// The figures of this source since its mill was opened.
    km_stats stats() const {
        km_stats stats = KM_STATS_INIT;
        detail::check(km_source_stats(get(), &stats));
        return stats;
    }

    /// The handle, for calls of keymill.h; it stays this object's.
    km_source *get() const noexcept { return source_.get(); }

private:
    std::unique_ptr<km_source, detail::Free> source_;
};

/// A mill: one store, one background thread, any number of sources. Closed and freed with this object.
class Mill {
public:
    /// "sqlite:FILE", "memory:", "mysql://user:password@host:port/database", "postgres://…",
    /// "redis://…", "file:CONFIG.toml"
    explicit Mill(const std::string &config) {
        km_mill *mill = nullptr;
        detail::check(km_mill_open(config.c_str(), &mill));
        mill_.reset(mill);
    }

    /// "segment:orders?step=1000", "snowflake:tx?worker=5", "serial:cust_info/custid?number=000000"
    Source source(const std::string &spec) {
        km_source *source = nullptr;
        detail::check(km_mill_source(get(), spec.c_str(), &source));
        return Source(source);
    }

    /// Every later call answers KM_CLOSED. Closing twice is nothing.
    void close() { detail::check(km_mill_close(get())); }

    /// Every figure as Prometheus text.
    std::string metrics() const {
        return detail::text(4096, [this](char *buf, std::size_t size, std::size_t *len) {
            return km_mill_metrics(get(), buf, size, len);
        });
    }

    /// What happened since the last call, one line per event.
    std::string events() {
        std::string all;
        for (;;) {
            std::string some = detail::text(8 * KM_EVENT_SIZE, [this](char *buf, std::size_t size, std::size_t *len) {
                return km_mill_events(get(), buf, size, len);
            });
            if (some.empty()) return all;
            all += some;
        }
    }

    /// Moves the clock of a mill opened with clock=manual. For tests.
    void clock_advance(std::chrono::milliseconds by) {
        detail::check(km_mill_clock_advance(get(), static_cast<std::uint64_t>(by.count())));
    }
    /// Milliseconds since 1970.
    void clock_set(std::int64_t wall_ms) { detail::check(km_mill_clock_set(get(), wall_ms)); }

    /// The handle, for calls of keymill.h; it stays this object's.
    km_mill *get() const noexcept { return mill_.get(); }

private:
    std::unique_ptr<km_mill, detail::Free> mill_;
};

} // namespace keymill

#endif // KEYMILL_HPP
