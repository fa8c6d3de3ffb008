// The C++ owners: the same verbs, exceptions instead of codes, nothing freed twice.
#include <keymill.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

extern "C" {
#include "check.h"
}

template <class Call>
static void throws(km_code code, Call call) {
    try {
        call();
    } catch (const keymill::Error &error) {
        CHECK(error.code() == code && error.what()[0] != '\0');
        CHECK(std::string(error.name()) == km_code_name(code));
        return;
    }
    CHECK(!"an exception");
}

static_assert(!std::is_copy_constructible<keymill::Mill>::value, "one owner");
static_assert(!std::is_copy_constructible<keymill::Source>::value, "one owner");
static_assert(std::is_nothrow_move_constructible<keymill::Mill>::value, "moves");
static_assert(std::is_nothrow_move_assignable<keymill::Source>::value, "moves");

static void verbs() {
    keymill::Mill mill(fresh_store("owners", ""));
    keymill::Source orders = mill.source("segment:orders?deadline=60s");
    CHECK(orders.next() == 1);
    CHECK((orders.take(3) == std::vector<std::uint64_t>{2, 3, 4}));
    std::array<std::uint64_t, 10> some{};
    orders.fill(some);
    CHECK(some[0] == 5 && some[9] == 14);
    std::uint64_t raw[2];
    orders.fill(raw, 2);
    CHECK(raw[1] == 16);
    CHECK(orders.take(0).empty());
    auto now = orders.try_next();
    CHECK(now && *now == 17);
    CHECK(orders.next_text() == "18");
    CHECK(orders.try_next_text().value_or("") == "19");
    CHECK((orders.take_text(2) == std::vector<std::string>{"20", "21"}));
    CHECK(orders.take_text(0).empty());
    auto leased = orders.lease(5);
    CHECK(leased.first == 22 && leased.second > 22 && leased.second <= 27);
    keymill::Cursor cursor = orders.cursor(8);
    keymill::Cursor moved = std::move(cursor);
    std::set<std::uint64_t> ids;
    for (int i = 0; i < 100; i++) {
        CHECK(ids.insert(moved.next()).second);
        CHECK(ids.insert(cursor.next()).second);
        CHECK(ids.insert(orders.next()).second);
    }
    CHECK(orders.parse(42).number == 42 && orders.parse("43").number == 43);
    CHECK(mill.metrics().find("segment:orders") != std::string::npos);
    CHECK(mill.events().size() < 100000);

    keymill::Source serials = mill.source("serial:cust_info/custid?date=yyyyMMdd&number=000000&deadline=60s");
    CHECK(serials.next_text().substr(8) == "000001" && serials.text_len() == 15);
    throws(KM_INVALID_ARGUMENT, [&] { serials.next(); });
    CHECK(keymill::version() == km_version());
}

static void business() {
    keymill::Mill mill(fresh_store("owners-business", ""));
    keymill::Source orders = mill.source("business:order?deadline=60s");
    const std::string buyer = "buyer-42";
    std::uint64_t id = orders.next_for(42);
    CHECK(orders.parse(id).gene == 61763 && orders.parse(id).number == 1);
    for (std::uint64_t other : {orders.next_for("buyer-42"), orders.next_for(buyer), orders.next_for(std::string_view(buyer))})
        CHECK(orders.parse(other).gene == 56443);
    CHECK(orders.next_for(-1) >> 47 == orders.next_for(UINT64_MAX) >> 47);
    CHECK(orders.next_for(std::string_view()) >> 47 == orders.next_for("") >> 47);
    std::vector<std::uint64_t> ids = orders.take_for(42, 3);
    CHECK(ids.size() == 3 && ids[2] == ids[0] + 2);
    CHECK(orders.take_for("buyer-42", 0).empty());
    std::optional<std::uint64_t> now;
    while (!(now = orders.try_next_for(42))) std::this_thread::yield();
    CHECK(*now > ids[2]);
    std::uint64_t raw[2];
    orders.fill_for("buyer-42", raw, 2);
    CHECK(raw[1] == raw[0] + 1);
    throws(KM_INVALID_ARGUMENT, [&] { orders.next(); });
    throws(KM_INVALID_ARGUMENT, [&] { orders.next_wide_for(42); });
    throws(KM_INVALID_ARGUMENT, [&] { orders.next_for(std::string(65537, 'x')); });
    throws(KM_INVALID_ARGUMENT, [&] { orders.next_for(static_cast<const char *>(nullptr)); });

    keymill::Source big = mill.source("business:big?wide=on&deadline=60s");
    keymill::Wide first = big.next_wide_for("buyer-42");
    CHECK(first.hi == std::uint64_t{56443} << 47 && first.lo == 1);
    CHECK(big.parse(first).gene == 56443 && big.parse(first).number == 1);
    CHECK(first.bytes()[0] == 56443 >> 9 && first.bytes()[15] == 1);
    std::vector<keymill::Wide> more = big.take_wide_for(42, 2);
    CHECK(more.size() == 2 && more[0] < more[1] && more[0] != more[1] && more[0].lo == 2);
    std::optional<keymill::Wide> soon;
    while (!(soon = big.try_next_wide_for(42))) std::this_thread::yield();
    CHECK(soon->lo == 4);
    throws(KM_INVALID_ARGUMENT, [&] { big.next_for(42); });
}

static void order_numbers() {
    std::array<unsigned char, 32> key{};
    for (unsigned i = 0; i < 32; i++) key[i] = static_cast<unsigned char>(i);
    const std::uint64_t id = 7943646055239778305;
    keymill::OrderNumbers numbers = keymill::OrderNumbers::from_keys({{std::uint8_t{1}, key}}, 1, "acme", "orders");
    keymill::OrderNo order_no = numbers.seal(id);
    CHECK(order_no[0] == 0xdc && order_no[2] == 1 && numbers.unseal(order_no) == id);
    CHECK(numbers.seal_text(id) == "6WFC0Z3J6MZTAKV7NK3VWK76VB" && numbers.unseal8_text(numbers.seal8_text(id)) == id);
    CHECK(numbers.unseal_all(numbers.seal_all({id, 1, 2})) == (std::vector<std::uint64_t>{id, 1, 2}) && numbers.seal_all({}).empty());
    CHECK(numbers.unseal8_all(numbers.seal8_all({id, 1})) == (std::vector<std::uint64_t>{id, 1}));
    keymill::Wide wide{std::uint64_t{56443} << 47, 42};
    CHECK(numbers.unseal_wide(numbers.seal_wide(wide)) == wide && numbers.unseal_wide_text(numbers.seal_wide_text(wide)) == wide);
    CHECK(numbers.with_version(1).version() == 1 && numbers.unseal8(numbers.seal8(id)) == id);
    keymill::Router router = keymill::Router::from_text(R"({"version": 7, "range": [{"upper": 65535, "shard": "s1"}]})");
    CHECK(router.route_order_no(order_no).gene == 56443 && router.route_order_no(numbers.seal8(id)).gene == 56443);
    CHECK(router.route_order_no(numbers.seal_text(id)).shard == "s1");
    order_no[9] ^= 1;
    throws(KM_FORGED, [&] { numbers.unseal(order_no); });
    throws(KM_INVALID_ARGUMENT, [&] { numbers.with_version(2); });
    throws(KM_INVALID_ARGUMENT, [] { keymill::OrderNumbers::open("/nowhere/at/all", "", ""); });
    throws(KM_INVALID_ARGUMENT, [&] { keymill::OrderNumbers::from_keys({{std::uint8_t{1}, key}}, 1, std::string("a\0b", 3), ""); });
    keymill::OrderNumbers moved = std::move(numbers);
    CHECK(moved.unseal_text("6WFC0Z3J6MZTAKV7NK3VWK76VB") == id);
    throws(KM_INVALID_ARGUMENT, [&] { numbers.seal(1); });
}

static void routers() {
    keymill::Router router = keymill::Router::from_text(R"({"version": 7, "range": [{"upper": 65535, "shard": "s1"}]})");
    keymill::Route key = router.route_key("buyer-42");
    CHECK(key.gene == keymill::gene("buyer-42") && key.gene == 56443 && key.shard == "s1" && !key.also && !key.mirror && key.version == 7);
    CHECK(router.route(std::uint64_t{key.gene} << 47 | 1).read == "s1");
    CHECK(router.route_wide(km_wide{std::uint64_t{key.gene} << 47, 1}).gene == key.gene);
    CHECK(router.route_key(42).gene == keymill::gene(42) && keymill::gene(std::string()) == keymill::gene(std::string_view()));
    keymill::Router moved = std::move(router);
    moved.load("version = 8\n[[range]]\nupper = 9\nshard = \"s2\"\nto = \"s3\"\npercent = 50\n");
    CHECK(moved.route_key(42).also == std::string_view("s3") && key.shard == "s1");
    CHECK(moved.route_key(42).mirror == std::string_view("s3") && moved.route(0).read == "s3" && moved.route(0).write == std::string_view("s2") && moved.route(0).mirror == std::string_view("s3"));
    CHECK(moved.version() == 8 && !moved.age());
    throws(KM_INVALID_CONFIG, [&] { moved.load("version = 7"); });
    throws(KM_INVALID_ARGUMENT, [&] { moved.route(UINT64_MAX); });
    throws(KM_INVALID_ARGUMENT, [&] { router.route(1); });
    throws(KM_INVALID_ARGUMENT, [] { keymill::Router::open("/nowhere/at/all"); });
    keymill::Mill mill("memory:");
    throws(KM_STORE_REFUSED, [&] { mill.router("orders"); });
    // As an operator stores a table; ci/steps/c has the command in the path.
    std::string store = fresh_store("owners-routes", "?durability=warn"), file = store.substr(7, store.find('?') - 7) + ".toml";
    std::ofstream(file) << "version = 7\n[[range]]\nupper = 65535\nshard = \"s1\"\n";
    CHECK(std::system(("env -u LD_PRELOAD keymill --mill '" + store + "' route put orders '" + file + "' --yes >&2").c_str()) == 0);
    keymill::Mill shared(store);
    keymill::Router followed = shared.router("orders");
    CHECK(followed.route(1).shard == "s1" && followed.version() == 7 && followed.age());
}

/* With order=thread the ids of a thread rise, whatever verbs it mixes. */
static void order() {
    keymill::Mill mill(fresh_store("owners-order", ""));
    keymill::Source orders = mill.source("segment:orders?deadline=60s&order=thread&block=100");
    std::uint64_t next = 1;
    for (int round = 0; round < 200; round++) {
        CHECK(orders.next() == next);
        CHECK((orders.take(2) == std::vector<std::uint64_t>{next + 1, next + 2}));
        std::optional<std::uint64_t> now;
        while (!(now = orders.try_next())) std::this_thread::yield();
        CHECK(*now == next + 3);
        std::optional<std::string> text;
        while (!(text = orders.try_next_text())) std::this_thread::yield();
        CHECK(*text == std::to_string(next + 4));
        next += 5;
    }
}

static void lives() {
    keymill::Source kept(nullptr);
    throws(KM_INVALID_ARGUMENT, [&] { kept.next(); });
    {
        keymill::Mill mill("memory:");
        kept = mill.source("segment:orders?deadline=60s");
        keymill::Mill moved = std::move(mill);
        throws(KM_INVALID_ARGUMENT, [&] { mill.source("segment:orders?deadline=60s"); });
        CHECK(kept.next() == 1);
        kept = moved.source("segment:others");
        CHECK(kept.next() == 1);
    }
    throws(KM_CLOSED, [&] { kept.next(); });
    throws(KM_CLOSED, [&] { kept.try_next(); });
    throws(KM_INVALID_CONFIG, [] { keymill::Mill("nothing"); });
    keymill::Mill mill("memory:?clock=manual");
    mill.clock_set(1795249800000);
    mill.clock_advance(std::chrono::hours(1));
    mill.close();
    mill.close();
    throws(KM_CLOSED, [&] { mill.source("segment:orders?deadline=60s"); });
}

/* C reads a string up to its first NUL: "tenant\0A" and "tenant\0B" would be one source. */
static void a_nul_inside_a_string_is_refused_everywhere() {
    const std::string nul(1, '\0'), table = R"({"version": 7, "range": [{"upper": 65535, "shard": "s1"}]})";
    throws(KM_INVALID_ARGUMENT, [&] { keymill::Mill("memory:" + nul); });
    throws(KM_INVALID_ARGUMENT, [&] { keymill::Mill("memory:" + nul + "?fork=error"); });
    keymill::Mill mill("memory:");
    throws(KM_INVALID_ARGUMENT, [&] { mill.source("segment:tenant" + nul + "A"); });
    throws(KM_INVALID_ARGUMENT, [&] { mill.source(nul); });
    throws(KM_INVALID_ARGUMENT, [&] { mill.router("orders" + nul); });
    throws(KM_INVALID_ARGUMENT, [&] { keymill::Router::open("/etc/hostname" + nul); });
    throws(KM_INVALID_ARGUMENT, [&] { keymill::Router::from_text(table + nul); });
    keymill::Router router = keymill::Router::from_text(table);
    throws(KM_INVALID_ARGUMENT, [&] { router.load(table + nul + "garbage"); });
    throws(KM_INVALID_ARGUMENT, [&] { keymill::spec("segment" + nul, {"a"}); });
    throws(KM_INVALID_ARGUMENT, [&] { keymill::spec("segment", {"tenant" + nul + "A"}); });
    throws(KM_INVALID_ARGUMENT, [&] { keymill::spec("segment", {"a"}, {{"step" + nul, "1"}}); });
    throws(KM_INVALID_ARGUMENT, [&] { keymill::spec("segment", {"a"}, {{"step", "1" + nul + "0"}}); });
    keymill::Source orders = mill.source("segment:orders?deadline=60s");
    throws(KM_INVALID_ARGUMENT, [&] { orders.parse("4" + nul + "2"); });
    // A key is bytes with a length, as in every language.
    const std::string key = "a" + nul + "b";
    CHECK(keymill::gene(key) == 9325 && router.route_key(key).gene == 9325);
    keymill::Source sales = mill.source("business:sale?deadline=60s");
    CHECK(sales.parse(sales.next_for(key)).gene == 9325 && sales.parse(sales.take_for(key, 1)[0]).gene == 9325);
    sales.next_for(key + "c");
}

static void an_empty_string_opens_no_mill_and_the_default_mill_has_a_verb() {
    throws(KM_INVALID_CONFIG, [] { keymill::Mill(""); });
    throws(KM_INVALID_CONFIG, [] { keymill::Mill(std::string()); });
    CHECK(setenv("KEYMILL_CONFIG", "memory:", 1) == 0);
    throws(KM_INVALID_CONFIG, [] { keymill::Mill(""); });
    keymill::Mill mill = keymill::Mill::open_default();
    CHECK(mill.source("segment:orders?deadline=60s").next() == 1);
    CHECK(setenv("KEYMILL_CONFIG", "nothing", 1) == 0);
    throws(KM_INVALID_CONFIG, [] { keymill::Mill::open_default(); });
    CHECK(unsetenv("KEYMILL_CONFIG") == 0);
}

static void outages() {
    keymill::Mill mill("sqlite:/nowhere/at/all/keymill.db");
    keymill::Source orders = mill.source("segment:orders?deadline=10s");
    try {
        orders.next();
        CHECK(!"an exception");
    } catch (const keymill::Error &error) {
        CHECK(error.code() != KM_OK && error.retry_after().count() > 0);
    }
    CHECK(!mill.events().empty());
}

static void threads() {
    keymill::Mill mill(fresh_store("owners-threads", ""));
    keymill::Source orders = mill.source("segment:orders?deadline=60s");
    std::vector<std::vector<std::uint64_t>> taken(4);
    std::vector<std::thread> takers;
    for (auto &mine : taken)
        takers.emplace_back([&] {
            keymill::Cursor cursor = orders.cursor();
            for (std::size_t i = 0, n = scaled(50000); i < n; i++) mine.push_back(i % 2 ? orders.next() : cursor.next());
        });
    for (auto &taker : takers) taker.join();
    std::vector<std::uint64_t> all;
    for (auto &mine : taken) all.insert(all.end(), mine.begin(), mine.end());
    check_unique(all.data(), all.size(), "C++, four threads");
}

int main() {
    verbs();
    business();
    routers();
    order_numbers();
    order();
    lives();
    a_nul_inside_a_string_is_refused_everywhere();
    an_empty_string_opens_no_mill_and_the_default_mill_has_a_verb();
    outages();
    threads();
    return 0;
}
