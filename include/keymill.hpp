// keymill for C++17: the C interface of keymill.h with owners and exceptions, header only.
//
//     keymill::Mill mill("sqlite:keymill.db");
//     keymill::Source orders = mill.source("segment:orders");
//     std::uint64_t id = orders.next();
//
// The conventions page of keymill.h holds here too. Owners are move-only; a moved-from one may only be assigned to or
// destroyed. Calls on one Mill or Source may come from any number of threads at once; moving, assigning and destroying may
// not run beside them. Sources may outlive their mill and answer KM_CLOSED then. Only a business key may hold a NUL character;
// in every other string it throws KM_INVALID_ARGUMENT.
#ifndef KEYMILL_HPP
#define KEYMILL_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
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

/// The string for C, which reads up to the first NUL: one inside would make another string of it.
inline const char *c_str(const std::string &text, const char *name) {
    if (text.find('\0') != std::string::npos)
        throw Error(KM_INVALID_ARGUMENT, std::string("INVALID_ARGUMENT: `") + name + "` holds a NUL character",
                    std::chrono::milliseconds(0));
    return text.c_str();
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
    void operator()(km_router *router) const noexcept { km_router_free(router); }
    void operator()(km_numbers *numbers) const noexcept { km_numbers_free(numbers); }
};

} // namespace detail

/// The version of the library that runs.
inline std::string version() { return km_version(); }

/// The string that names a source: `keymill::spec("serial", {"cust_info", "custid"}, {{"number", "000000"}})`. What
/// separates its parts is percent-encoded inside them.
inline std::string spec(const std::string &kind, const std::vector<std::string> &name,
                        const std::vector<std::pair<std::string, std::string>> &options = {}) {
    std::vector<const char *> names, pairs;
    for (const std::string &part : name) names.push_back(detail::c_str(part, "name"));
    for (const auto &option : options) {
        pairs.push_back(detail::c_str(option.first, "options"));
        pairs.push_back(detail::c_str(option.second, "options"));
    }
    const char *first = detail::c_str(kind, "kind");
    return detail::text(256, [&](char *buf, std::size_t size, std::size_t *len) {
        return km_spec(first, names.data(), names.size(), pairs.data(), options.size(), buf, size, len);
    });
}

/// The string that opens a mill in the application's own database: of a JDBC URL, a URL as SQLAlchemy, Prisma and DATABASE_URL
/// write them, or "django:ENGINE", and of the parameters beside it. It holds the password. KM_INVALID_CONFIG names a parameter
/// that says where, as whom or how encrypted in a way that a mill cannot, or a database that cannot be a store.
inline std::string store_of(const std::string &url,
                            const std::vector<std::pair<std::string, std::string>> &properties = {}) {
    std::vector<const char *> pairs;
    for (const auto &property : properties) {
        pairs.push_back(detail::c_str(property.first, "properties"));
        pairs.push_back(detail::c_str(property.second, "properties"));
    }
    const char *first = detail::c_str(url, "url");
    return detail::text(256, [&](char *buf, std::size_t size, std::size_t *len) {
        return km_store_of(first, pairs.data(), properties.size(), buf, size, len);
    });
}

/// An id of 128 bits: a zero, the gene in 16 bits, the number in the 111 bits that are left.
struct Wide {
    std::uint64_t hi;
    std::uint64_t lo;

    /// The 16 bytes of a VARBINARY(16), big-endian.
    std::array<unsigned char, 16> bytes() const noexcept {
        std::array<unsigned char, 16> bytes{};
        for (unsigned i = 0; i < 8; i++) {
            bytes[i] = static_cast<unsigned char>(hi >> (56 - 8 * i));
            bytes[8 + i] = static_cast<unsigned char>(lo >> (56 - 8 * i));
        }
        return bytes;
    }
    /// For calls of keymill.h, and Router::route_wide.
    operator km_wide() const noexcept { return {hi, lo}; }
    friend bool operator==(Wide a, Wide b) noexcept { return a.hi == b.hi && a.lo == b.lo; }
    friend bool operator!=(Wide a, Wide b) noexcept { return !(a == b); }
    friend bool operator<(Wide a, Wide b) noexcept { return a.hi != b.hi ? a.hi < b.hi : a.lo < b.lo; }
};

/// A business key: an integer (a negative integer is its two's complement), or a text of at most 64 KiB, which lives as
/// long as the call.
class Key {
public:
    template <class Integer,
              std::enable_if_t<std::is_integral<Integer>::value && !std::is_same<Integer, bool>::value
                                   && !std::is_same<Integer, char>::value, int> = 0>
    Key(Integer number) noexcept : number_(static_cast<std::uint64_t>(number)) {}
    Key(std::string_view text) noexcept : text_(text.data() ? text.data() : ""), len_(text.size()), is_text_(true) {}
    Key(const std::string &text) noexcept : Key(std::string_view(text)) {}
    /// NULL gives KM_INVALID_ARGUMENT.
    Key(const char *text) noexcept
        : text_(text), len_(text ? std::char_traits<char>::length(text) : 0), is_text_(true) {}

    bool is_text() const noexcept { return is_text_; }
    const char *text() const noexcept { return text_; }
    std::size_t len() const noexcept { return len_; }
    std::uint64_t number() const noexcept { return number_; }

private:
    std::uint64_t number_ = 0;
    const char *text_ = nullptr;
    std::size_t len_ = 0;
    bool is_text_ = false;
};

/// The gene of an integer key, 0 to 65535. A negative one is its two's complement.
inline std::uint16_t gene(std::uint64_t key) {
    std::uint16_t gene;
    detail::check(km_gene_u64(key, &gene));
    return gene;
}

/// The gene of a text key, 0 to 65535.
inline std::uint16_t gene(std::string_view key) {
    std::uint16_t gene;
    detail::check(km_gene_text(key.data() ? key.data() : "", key.size(), &gene));
    return gene;
}

/// The 16 bytes of an order number, for a VARBINARY(16).
using OrderNo = std::array<unsigned char, 16>;

/// Where an id or a business key belongs. The names are readable as long as the Router is.
struct Route {
    std::uint16_t gene;
    std::uint64_t version;
    /// The shard of the gene's range. While the range moves, the shard that it leaves.
    std::string_view shard;
    std::string_view read;
    /// The shard that decides a write: `shard`, until a move is finished. None while the route is paused.
    std::optional<std::string_view> write;
    /// While the range moves, the second shard to write to: it follows `write`, and a write is acknowledged when both have it.
    std::optional<std::string_view> mirror;
    /// Writes of the range wait, because its move is about to be finished. Take another route then; reads go on.
    bool paused = false;
    /// A second shard that may serve ids of this key, for a key whose range moves by number.
    std::optional<std::string_view> also;

    /// From the answer of a call of keymill.h.
    explicit Route(const km_route &route)
        : gene(static_cast<std::uint16_t>(route.gene)), version(route.version), shard(route.shard), read(route.read),
          paused(route.paused != 0), route_(route) {
        if (route.write) write = route.write;
        if (route.mirror) mirror = route.mirror;
        if (route.also) also = route.also;
    }

private:
    friend class Router;
    km_route route_;
};

namespace detail {

template <class Ask>
Route routed(Ask ask) {
    km_route route = KM_ROUTE_INIT;
    check(ask(&route));
    return Route(route);
}

} // namespace detail

/// Which shard an id or a business key belongs to. Reading takes no lock.
class Router {
public:
    /// Takes over a handle.
    explicit Router(km_router *router) noexcept : router_(router) {}

    /// A router whose table is in a file, TOML or JSON.
    static Router open(const std::string &file) {
        km_router *router = nullptr;
        detail::check(km_router_open_file(detail::c_str(file, "file"), &router));
        return Router(router);
    }

    /// A router with this table: TOML, or JSON if the text begins with a brace.
    static Router from_text(const std::string &text) {
        km_router *router = nullptr;
        detail::check(km_router_open_text(detail::c_str(text, "text"), &router));
        return Router(router);
    }

    /// Replaces the table. A bad one, or one of a lower version, throws, and the old one stays.
    void load(const std::string &text) { detail::check(km_router_load(get(), detail::c_str(text, "text"))); }

    /// Where an id of 64 bits belongs.
    Route route(std::uint64_t id) const {
        return detail::routed([&](km_route *route) { return km_router_route(get(), id, route); });
    }

    /// Where an id of 128 bits belongs.
    Route route_wide(km_wide id) const {
        return detail::routed([&](km_route *route) { return km_router_route_wide(get(), id, route); });
    }

    /// Where the ids of an integer key belong. A negative one is its two's complement.
    Route route_key(std::uint64_t key) const {
        return detail::routed([&](km_route *route) { return km_router_route_key_u64(get(), key, route); });
    }

    /// Where the ids of a text key belong.
    Route route_key(std::string_view key) const {
        return detail::routed([&](km_route *route) {
            return km_router_route_key_text(get(), key.data() ? key.data() : "", key.size(), route);
        });
    }

    /// Where the order belongs that has this order number, which needs no key. Where a range moves by number, the id decides, which is
    /// encrypted: `also` names the second shard then.
    Route route_order_no(const OrderNo &order_no) const {
        return detail::routed([&](km_route *route) { return km_router_route_order_no(get(), order_no.data(), order_no.size(), route); });
    }

    /// The same for an order number of 8 bytes.
    Route route_order_no(std::uint64_t order_no) const {
        return detail::routed([&](km_route *route) { return km_router_route_order_no8(get(), order_no, route); });
    }

    /// The same for the text of an order number.
    Route route_order_no(const std::string &text) const {
        return detail::routed(
            [&](km_route *route) { return km_router_route_order_no_text(get(), detail::c_str(text, "text"), route); });
    }

    /// Whether a write by this route may still be committed. Asks no store. If not, roll it back on both shards, and take a new route.
    bool is_current(const Route &route) const {
        int current;
        detail::check(km_router_is_current(get(), &route.route_, &current));
        return current != 0;
    }

    /// The version of the present table.
    std::uint64_t version() const {
        std::uint64_t version;
        detail::check(km_router_version(get(), &version));
        return version;
    }

    /// How long ago the store said that the table is the present one; nothing where the table is not from a store.
    std::optional<std::chrono::milliseconds> age() const {
        std::int64_t age_ms;
        detail::check(km_router_age(get(), &age_ms));
        if (age_ms < 0) return std::nullopt;
        return std::chrono::milliseconds(age_ms);
    }

    /// The handle, for calls of keymill.h; it stays this object's.
    km_router *get() const noexcept { return router_.get(); }

private:
    std::unique_ptr<km_router, detail::Free> router_;
};

/// Turns business ids into order numbers, which may be shown to anyone, and back. What was not sealed with these keys for this tenant and this
/// table throws KM_FORGED.
class OrderNumbers {
public:
    /// Takes over a handle.
    explicit OrderNumbers(km_numbers *numbers) noexcept : numbers_(numbers) {}

    /// With the keys of a file that other users cannot read, for one tenant and one table; either may be empty.
    static OrderNumbers open(const std::string &file, const std::string &tenant, const std::string &table) {
        km_numbers *numbers = nullptr;
        detail::check(km_numbers_open(detail::c_str(file, "file"), detail::c_str(tenant, "tenant"), detail::c_str(table, "table"), &numbers));
        return OrderNumbers(numbers);
    }

    /// With the keys in the environment variable KEYMILL_ORDER_KEYS, which has the text of a key file.
    static OrderNumbers from_env(const std::string &tenant, const std::string &table) {
        km_numbers *numbers = nullptr;
        detail::check(km_numbers_open_env(detail::c_str(tenant, "tenant"), detail::c_str(table, "table"), &numbers));
        return OrderNumbers(numbers);
    }

    /// With keys of the caller's by their versions, 1 to 255; version `seal_with` seals.
    static OrderNumbers from_keys(const std::vector<std::pair<std::uint8_t, std::array<unsigned char, 32>>> &keys, std::uint8_t seal_with,
                                  const std::string &tenant, const std::string &table) {
        std::vector<std::uint8_t> versions, bytes;
        versions.reserve(keys.size() + 1);
        bytes.reserve(32 * keys.size() + 1);
        for (const auto &key : keys) {
            versions.push_back(key.first);
            bytes.insert(bytes.end(), key.second.begin(), key.second.end());
        }
        km_numbers *numbers = nullptr;
        km_code code = km_numbers_open_keys(versions.data(), bytes.data(), keys.size(), seal_with, detail::c_str(tenant, "tenant"),
                                            detail::c_str(table, "table"), &numbers);
        for (std::size_t i = 0; i < bytes.size(); i++) *const_cast<volatile std::uint8_t *>(&bytes[i]) = 0;
        detail::check(code);
        return OrderNumbers(numbers);
    }

    /// The same keys, with only this version in use: it seals, and only its order numbers open.
    OrderNumbers with_version(std::uint8_t version) const {
        km_numbers *chosen = nullptr;
        detail::check(km_numbers_with_version(get(), version, &chosen));
        return OrderNumbers(chosen);
    }

    /// The version that seals, which belongs into a column beside order numbers of 8 bytes.
    std::uint8_t version() const {
        std::uint8_t version;
        detail::check(km_numbers_version(get(), &version));
        return version;
    }

    /// The order number of an id of 64 bits.
    OrderNo seal(std::uint64_t id) const {
        OrderNo order_no;
        detail::check(km_numbers_seal(get(), id, order_no.data()));
        return order_no;
    }

    /// The id in an order number.
    std::uint64_t unseal(const OrderNo &order_no) const {
        std::uint64_t id;
        detail::check(km_numbers_unseal(get(), order_no.data(), order_no.size(), &id));
        return id;
    }

    /// The order number of an id of 128 bits.
    OrderNo seal_wide(km_wide id) const {
        OrderNo order_no;
        detail::check(km_numbers_seal_wide(get(), id, order_no.data()));
        return order_no;
    }

    /// The id of 128 bits in an order number.
    Wide unseal_wide(const OrderNo &order_no) const {
        km_wide id;
        detail::check(km_numbers_unseal_wide(get(), order_no.data(), order_no.size(), &id));
        return {id.hi, id.lo};
    }

    /// The order number of 8 bytes, which has no room for a check: every number below 2^63 opens as some id.
    std::uint64_t seal8(std::uint64_t id) const {
        std::uint64_t order_no;
        detail::check(km_numbers_seal8(get(), id, &order_no));
        return order_no;
    }

    /// The id in an order number of 8 bytes, of the chosen version or the only loaded version.
    std::uint64_t unseal8(std::uint64_t order_no) const {
        std::uint64_t id;
        detail::check(km_numbers_unseal8(get(), order_no, &id));
        return id;
    }

    /// The order numbers of many ids, several times as fast as one by one.
    std::vector<OrderNo> seal_all(const std::vector<std::uint64_t> &ids) const {
        std::vector<OrderNo> order_nos(ids.size());
        if (!ids.empty()) detail::check(km_numbers_seal_all(get(), ids.data(), ids.size(), order_nos.data()->data()));
        return order_nos;
    }

    /// The ids in many order numbers.
    std::vector<std::uint64_t> unseal_all(const std::vector<OrderNo> &order_nos) const {
        std::vector<std::uint64_t> ids(order_nos.size());
        if (!ids.empty()) detail::check(km_numbers_unseal_all(get(), order_nos.data()->data(), ids.size(), ids.data()));
        return ids;
    }

    /// The order numbers of 8 bytes of many ids.
    std::vector<std::uint64_t> seal8_all(const std::vector<std::uint64_t> &ids) const {
        std::vector<std::uint64_t> order_nos(ids.size());
        if (!ids.empty()) detail::check(km_numbers_seal8_all(get(), ids.data(), ids.size(), order_nos.data()));
        return order_nos;
    }

    /// The ids in many order numbers of 8 bytes.
    std::vector<std::uint64_t> unseal8_all(const std::vector<std::uint64_t> &order_nos) const {
        std::vector<std::uint64_t> ids(order_nos.size());
        if (!ids.empty()) detail::check(km_numbers_unseal8_all(get(), order_nos.data(), ids.size(), ids.data()));
        return ids;
    }

    /// The order number of an id of 64 bits as text of 26 characters.
    std::string seal_text(std::uint64_t id) const {
        return detail::text(27, [&](char *buf, std::size_t size, std::size_t *len) { return km_numbers_seal_text(get(), id, buf, size, len); });
    }

    /// The id in the text of an order number.
    std::uint64_t unseal_text(const std::string &text) const {
        std::uint64_t id;
        detail::check(km_numbers_unseal_text(get(), detail::c_str(text, "text"), &id));
        return id;
    }

    /// The order number of an id of 128 bits as text of 26 characters.
    std::string seal_wide_text(km_wide id) const {
        return detail::text(27, [&](char *buf, std::size_t size, std::size_t *len) { return km_numbers_seal_wide_text(get(), id, buf, size, len); });
    }

    /// The id of 128 bits in the text of an order number.
    Wide unseal_wide_text(const std::string &text) const {
        km_wide id;
        detail::check(km_numbers_unseal_wide_text(get(), detail::c_str(text, "text"), &id));
        return {id.hi, id.lo};
    }

    /// The order number of 8 bytes as text of 14 characters; the last character finds typing errors.
    std::string seal8_text(std::uint64_t id) const {
        return detail::text(15, [&](char *buf, std::size_t size, std::size_t *len) { return km_numbers_seal8_text(get(), id, buf, size, len); });
    }

    /// The id in the text of an order number of 8 bytes.
    std::uint64_t unseal8_text(const std::string &text) const {
        std::uint64_t id;
        detail::check(km_numbers_unseal8_text(get(), detail::c_str(text, "text"), &id));
        return id;
    }

    /// The handle, for calls of keymill.h; it stays this object's.
    km_numbers *get() const noexcept { return numbers_.get(); }

private:
    std::unique_ptr<km_numbers, detail::Free> numbers_;
};

/// A block of numbers counted through inline: the fastest ids one by one, for one thread at a time. Lives no longer than
/// its Source's handle; what is left goes back when it ends before the mill is closed.
class Cursor {
public:
    explicit Cursor(km_source *source, std::uint64_t count = 0) : cursor_ KM_CURSOR_INIT(source) {
        cursor_.count = count;
    }
    Cursor(const Cursor &) = delete;
    Cursor &operator=(const Cursor &) = delete;
    /// The moved-from cursor leases a block of its own if it is used again.
    Cursor(Cursor &&other) noexcept : cursor_(other.cursor_) { other.forget(); }
    Cursor &operator=(Cursor &&other) noexcept {
        if (this != &other) {
            km_cursor_close(&cursor_);
            cursor_ = other.cursor_;
            other.forget();
        }
        return *this;
    }
    ~Cursor() { km_cursor_close(&cursor_); }

    std::uint64_t next() {
        std::uint64_t id;
        detail::check(km_cursor_next(&cursor_, &id));
        return id;
    }

private:
    void forget() noexcept { cursor_.next = cursor_.end = cursor_.last[0] = cursor_.last[1] = 0; }

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

    /// The next business id for a key: an integer or a text. Ids of one gene rise. Waits at most the source's deadline.
    std::uint64_t next_for(Key key) {
        std::uint64_t id;
        detail::check(key.is_text() ? km_source_next_for_text(get(), key.text(), key.len(), &id)
                                 : km_source_next_for_u64(get(), key.number(), &id));
        return id;
    }

    /// The next business id for a key if one is in memory; never blocks.
    std::optional<std::uint64_t> try_next_for(Key key, std::uint32_t *retry_ms = nullptr) {
        std::uint64_t id;
        std::uint32_t retry;
        std::uint32_t *when = retry_ms ? retry_ms : &retry;
        km_code code = key.is_text() ? km_source_try_next_for_text(get(), key.text(), key.len(), &id, when)
                                  : km_source_try_next_for_u64(get(), key.number(), &id, when);
        if (code == KM_NOT_READY) return std::nullopt;
        detail::check(code);
        return id;
    }

    /// Fills an array with business ids for one key: all of it, or none and an Error.
    void fill_for(Key key, std::uint64_t *ids, std::size_t count) {
        detail::check(key.is_text() ? km_source_fill_for_text(get(), key.text(), key.len(), ids, count)
                                 : km_source_fill_for_u64(get(), key.number(), ids, count));
    }

    /// `count` business ids for one key: the fast way to many.
    std::vector<std::uint64_t> take_for(Key key, std::size_t count) {
        std::vector<std::uint64_t> ids(count + (count == 0)); // data() of nothing may be NULL
        fill_for(key, ids.data(), count);
        ids.resize(count);
        return ids;
    }

    /// The next id of 128 bits for a key, of a source with wide=on.
    Wide next_wide_for(Key key) {
        km_wide id;
        detail::check(key.is_text() ? km_source_next_wide_for_text(get(), key.text(), key.len(), &id)
                                 : km_source_next_wide_for_u64(get(), key.number(), &id));
        return {id.hi, id.lo};
    }

    /// The next id of 128 bits for a key if one is in memory; never blocks.
    std::optional<Wide> try_next_wide_for(Key key, std::uint32_t *retry_ms = nullptr) {
        km_wide id;
        std::uint32_t retry;
        std::uint32_t *when = retry_ms ? retry_ms : &retry;
        km_code code = key.is_text() ? km_source_try_next_wide_for_text(get(), key.text(), key.len(), &id, when)
                                  : km_source_try_next_wide_for_u64(get(), key.number(), &id, when);
        if (code == KM_NOT_READY) return std::nullopt;
        detail::check(code);
        return Wide{id.hi, id.lo};
    }

    /// `count` ids of 128 bits for one key, of a source with wide=on.
    std::vector<Wide> take_wide_for(Key key, std::size_t count) {
        std::vector<km_wide> taken(count + (count == 0));
        detail::check(key.is_text() ? km_source_fill_wide_for_text(get(), key.text(), key.len(), taken.data(), count)
                                 : km_source_fill_wide_for_u64(get(), key.number(), taken.data(), count));
        std::vector<Wide> ids;
        ids.reserve(count);
        for (std::size_t i = 0; i < count; i++) ids.push_back({taken[i].hi, taken[i].lo});
        return ids;
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

    /// The next serial number; of other kinds the next id in the source's form.
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

    /// An id of this source as its texts are written.
    std::string text_of(std::uint64_t id) const {
        return detail::text(text_len(), [this, id](char *buf, std::size_t size, std::size_t *len) {
            return km_source_text_of(get(), id, buf, size, len);
        });
    }

    /// The next business id for a key as text.
    std::string next_text_for(Key key) { return text_of(next_for(key)); }

    /// `count` business ids for a key as texts.
    std::vector<std::string> take_text_for(Key key, std::size_t count) {
        std::vector<std::string> texts;
        for (std::uint64_t id : take_for(key, count)) texts.push_back(text_of(id));
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

    km_parts parse(Wide id) const {
        km_parts parts = KM_PARTS_INIT;
        detail::check(km_source_parse_wide(get(), id, &parts));
        return parts;
    }

    km_parts parse(const std::string &text) const {
        km_parts parts = KM_PARTS_INIT;
        detail::check(km_source_parse_text(get(), detail::c_str(text, "text"), &parts));
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
    /// "redis://…", "file:CONFIG.toml". An empty string throws: see open_default().
    explicit Mill(const std::string &config) {
        km_mill *mill = nullptr;
        detail::check(km_mill_open(detail::c_str(config, "config"), &mill));
        mill_.reset(mill);
    }
    /// Takes over a handle.
    explicit Mill(km_mill *mill) noexcept : mill_(mill) {}

    /// The mill that the environment variable KEYMILL_CONFIG names, and without the variable "sqlite:keymill.db".
    static Mill open_default() {
        km_mill *mill = nullptr;
        detail::check(km_mill_open_default(&mill));
        return Mill(mill);
    }

    /// "segment:orders?step=1000", "snowflake:tx?worker=5", "serial:cust_info/custid?number=000000"
    Source source(const std::string &spec) {
        km_source *source = nullptr;
        detail::check(km_mill_source(get(), detail::c_str(spec, "spec"), &source));
        return Source(source);
    }

    /// The router whose table the mill's store has under this name.
    Router router(const std::string &name) {
        km_router *router = nullptr;
        detail::check(km_mill_router(get(), detail::c_str(name, "name"), &router));
        return Router(router);
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
