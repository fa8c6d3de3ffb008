// The C++ owners: the same verbs, exceptions instead of codes, nothing freed twice.
#include <keymill.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
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
    order();
    lives();
    outages();
    threads();
    return 0;
}
