// The vectors over the C interface: every case of every file given, each step one call of keymill.h or its owners.
//     vectors FILE.json...        KEYMILL_VECTORS_RAN names the list of cases that ran
#include <keymill.hpp>

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

namespace {

// ---- JSON as the vectors have it: objects, lists and texts; all scalars are texts ----

struct Value {
    enum Kind { None, Text, List, Object } kind = None;
    std::string text;
    std::vector<Value> list;
    std::map<std::string, Value> fields;

    const Value &operator[](const char *name) const {
        static const Value none;
        auto found = fields.find(name);
        return found == fields.end() ? none : found->second;
    }
    bool operator==(const Value &other) const {
        return kind == other.kind && text == other.text && list == other.list && fields == other.fields;
    }
};

[[noreturn]] void defect(const std::string &what) { throw std::runtime_error(what); }

class Reader {
public:
    explicit Reader(const std::string &json) : at_(json.begin()), end_(json.end()) {}

    Value document() {
        Value value = next();
        if (peek() != 0) defect("JSON goes on behind its end");
        return value;
    }

private:
    char peek() {
        while (at_ != end_ && std::isspace(static_cast<unsigned char>(*at_))) ++at_;
        return at_ == end_ ? '\0' : *at_;
    }
    bool skip(char c) {
        if (peek() != c) return false;
        ++at_;
        return true;
    }
    void want(char c) {
        if (!skip(c)) defect(std::string("JSON: `") + c + "` is missing before `" + peek() + "`");
    }
    Value next() {
        Value value;
        if (skip('{')) {
            value.kind = Value::Object;
            if (skip('}')) return value;
            do {
                peek();
                std::string name = quoted();
                want(':');
                value.fields[name] = next();
            } while (skip(','));
            want('}');
        } else if (skip('[')) {
            value.kind = Value::List;
            if (skip(']')) return value;
            do value.list.push_back(next());
            while (skip(','));
            want(']');
        } else {
            value.kind = Value::Text;
            value.text = quoted();
        }
        return value;
    }
    std::string quoted() {
        std::string text;
        for (want('"'); at_ != end_ && *at_ != '"'; ++at_) {
            if (*at_ != '\\') {
                text += *at_;
                continue;
            }
            if (++at_ == end_) break;
            switch (*at_) {
            case 'n': text += '\n'; break;
            case 't': text += '\t'; break;
            case 'r': text += '\r'; break;
            case 'u': text += character(); break;
            case '"': case '\\': case '/': text += *at_; break;
            default: defect("JSON: an escape that the vectors do not use");
            }
        }
        want('"');
        return text;
    }
    // \uXXXX below the surrogates, as UTF-8; leaves at_ on the last digit.
    std::string character() {
        if (end_ - at_ < 5) defect("JSON: a cut \\u");
        unsigned c = static_cast<unsigned>(std::stoul(std::string(at_ + 1, at_ + 5), nullptr, 16));
        at_ += 4;
        if (c < 0x80) return {static_cast<char>(c)};
        if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
        if (c >= 0xD800 && c < 0xE000) defect("JSON: a surrogate; write the character itself");
        return {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }

    std::string::const_iterator at_, end_;
};

Value text(const std::string &text) {
    Value value;
    value.kind = Value::Text;
    value.text = text;
    return value;
}

// ---- steps ----

const std::string &field(const Value &step, const char *name) {
    if (step[name].kind != Value::Text) defect(std::string("a step has no text `") + name + "`");
    return step[name].text;
}

std::int64_t number(const Value &step, const char *name) { return std::stoll(field(step, name)); }

keymill::Key key(const Value &step) {
    if (step["key_text"].kind == Value::Text) return keymill::Key(step["key_text"].text);
    const std::string &digits = field(step, "key");
    if (digits[0] == '-') return keymill::Key(std::stoll(digits));
    return keymill::Key(std::stoull(digits));
}

/// Long division: C++17 has no integers of 128 bits.
std::string decimal(keymill::Wide id) {
    std::string digits;
    do {
        std::uint64_t rest = 0;
        for (std::uint64_t *half : {&id.hi, &id.lo}) {
            std::uint64_t high = rest << 32 | *half >> 32, low = (high % 10) << 32 | (*half & 0xFFFFFFFF);
            *half = high / 10 << 32 | low / 10;
            rest = low % 10;
        }
        digits.insert(digits.begin(), static_cast<char>('0' + rest));
    } while (id.hi != 0 || id.lo != 0);
    return digits;
}

std::string rfc3339(std::int64_t ms) {
    std::int64_t rest = ((ms % 1000) + 1000) % 1000;
    std::time_t seconds = static_cast<std::time_t>((ms - rest) / 1000);
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char day[40], all[56];
    std::strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    std::snprintf(all, sizeof all, "%s.%03dZ", day, static_cast<int>(rest));
    return all;
}

Value shown(const km_parts &parts) {
    Value value;
    value.kind = Value::Object;
    if (parts.present & KM_PART_TIME) value.fields["time"] = text(rfc3339(parts.time_ms));
    if (parts.present & KM_PART_DATACENTER) value.fields["datacenter"] = text(std::to_string(parts.datacenter));
    if (parts.present & KM_PART_WORKER) value.fields["worker"] = text(std::to_string(parts.worker));
    if (parts.present & KM_PART_SEQUENCE) value.fields["sequence"] = text(std::to_string(parts.sequence));
    if (parts.present & KM_PART_DATE) value.fields["date"] = text(parts.date);
    if (parts.present & KM_PART_GENE) value.fields["gene"] = text(std::to_string(parts.gene));
    if (parts.present & KM_PART_NUMBER) value.fields["number"] = text(std::to_string(parts.number));
    return value;
}

Value shown(const keymill::Route &route) {
    Value value;
    value.kind = Value::Object;
    value.fields["gene"] = text(std::to_string(route.gene));
    value.fields["shard"] = text(std::string(route.shard));
    value.fields["read"] = text(std::string(route.read));
    if (route.write) value.fields["write"] = text(std::string(*route.write));
    if (route.paused) value.fields["paused"] = text("yes");
    if (route.mirror) value.fields["mirror"] = text(std::string(*route.mirror));
    if (route.also) value.fields["also"] = text(std::string(*route.also));
    value.fields["version"] = text(std::to_string(route.version));
    return value;
}

// A number of 64 bits, with or without a sign.
std::uint64_t whole(const Value &step, const char *name) {
    const std::string &digits = field(step, name);
    return digits[0] == '-' ? static_cast<std::uint64_t>(std::stoll(digits)) : std::stoull(digits);
}

// A number of 128 bits in decimal.
km_wide wide(const std::string &digits) {
    km_wide id{0, 0};
    for (char digit : digits) {
        std::uint64_t carry = static_cast<std::uint64_t>(digit - '0');
        std::uint64_t low = (id.lo & 0xFFFFFFFF) * 10 + carry, middle = (id.lo >> 32) * 10 + (low >> 32);
        id.lo = (middle << 32) | (low & 0xFFFFFFFF);
        id.hi = id.hi * 10 + (middle >> 32);
    }
    return id;
}

// The text of a business key, as often as `times` says.
std::string key_text(const Value &step) {
    std::string all;
    std::uint64_t times = step["times"].kind == Value::Text ? whole(step, "times") : 1;
    for (std::uint64_t i = 0; i < times; i++) all += field(step, "key_text");
    return all;
}

// The bytes that hexadecimal digits write.
std::vector<std::uint8_t> bytes(const std::string &digits) {
    std::vector<std::uint8_t> bytes;
    for (std::size_t at = 0; at < digits.size(); at += 2) bytes.push_back(static_cast<std::uint8_t>(std::stoul(digits.substr(at, 2), nullptr, 16)));
    bytes.reserve(bytes.size() + 1); // data() of nothing may be NULL
    return bytes;
}

Value hex(const keymill::OrderNo &order_no) {
    std::string digits;
    char pair[3];
    for (unsigned char byte : order_no) {
        std::snprintf(pair, sizeof pair, "%02x", byte);
        digits += pair;
    }
    return text(digits);
}

Value list(std::vector<Value> values) {
    Value value;
    value.kind = Value::List;
    value.list = std::move(values);
    return value;
}

keymill::OrderNumbers opened(const Value &step) {
    std::vector<std::pair<std::uint8_t, std::array<unsigned char, 32>>> keys;
    for (const Value &pair : step["keys"].list) {
        std::vector<std::uint8_t> given = bytes(pair.list.at(1).text);
        std::array<unsigned char, 32> key{};
        if (given.size() != key.size()) defect("a key has 32 bytes");
        std::copy(given.begin(), given.end(), key.begin());
        keys.emplace_back(static_cast<std::uint8_t>(std::stoul(pair.list.at(0).text)), key);
    }
    auto version = [&](const char *name) { return static_cast<std::uint8_t>(std::stoul(field(step, name))); };
    auto numbers = keymill::OrderNumbers::from_keys(keys, version("seal_with"), field(step, "tenant"), field(step, "table"));
    return step["version"].kind == Value::Text ? numbers.with_version(version("version")) : std::move(numbers);
}

// Calls `work` in a thread with a stack of 256 KiB, and throws what it throws.
void on_a_small_stack(const std::function<void()> &work) {
    struct Call {
        const std::function<void()> &work;
        std::exception_ptr thrown;
    } call{work, nullptr};
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 * 1024);
    auto run = [](void *given) -> void * {
        Call &call = *static_cast<Call *>(given);
        try {
            call.work();
        } catch (...) {
            call.thrown = std::current_exception();
        }
        return nullptr;
    };
    pthread_t thread;
    if (pthread_create(&thread, &small, run, &call) != 0) defect("no thread");
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&small);
    if (call.thrown) std::rethrow_exception(call.thrown);
}

// Reads the text that the step's pieces make, each so many times.
void document(const Value &step) {
    std::string all;
    for (const Value &piece : step["text"].list)
        for (std::uint64_t left = std::stoull(piece.list.at(1).text); left != 0; left--) all += piece.list.at(0).text;
    std::string path = "/tmp/keymill-vectors-XXXXXX";
    int file = mkstemp(&path[0]); // of mode 600
    if (file < 0 || write(file, all.data(), all.size()) != static_cast<ssize_t>(all.size())) defect("no file " + path);
    close(file);
    const std::string &kind = field(step, "kind");
    struct Removed {
        const std::string &path;
        ~Removed() { unlink(path.c_str()); }
    } removed{path};
    on_a_small_stack([&] {
        if (kind == "routes") keymill::Router::from_text(all);
        else if (kind == "load") keymill::Router::from_text(field(step, "table")).load(all);
        else if (kind == "keys") keymill::OrderNumbers::open(path, "", "");
        else if (kind == "config") keymill::Mill("file:" + path);
        else defect("`" + kind + "` is no document");
    });
}

class Stage {
public:
    /// What the step answers; `None` where it answers nothing. Throws keymill::Error as the library does.
    Value step(const Value &step) {
        const std::string &verb = field(step, "do");
        Value none;
        if (verb == "open") {
            sources_.clear();
            mill_.reset();
            mill_.emplace(field(step, "config"));
        } else if (verb == "close") {
            mill().close();
        } else if (verb == "source") {
            keymill::Source source = mill().source(field(step, "spec"));
            const std::string &spec = field(step, "spec");
            sources_.erase(field(step, "as"));
            sources_.emplace(field(step, "as"), Held{std::move(source), spec.rfind("serial:", 0) == 0});
        } else if (verb == "next") {
            return text(source(step).source.next_text());
        } else if (verb == "try_next") {
            return text(try_next(source(step).source));
        } else if (verb == "take") {
            return take(source(step), static_cast<std::size_t>(number(step, "count")));
        } else if (verb == "next_for") {
            return text(std::to_string(source(step).source.next_for(key(step))));
        } else if (verb == "try_next_for") {
            return text(std::to_string(try_next_for(source(step).source, key(step))));
        } else if (verb == "take_for") {
            Value value;
            value.kind = Value::List;
            auto count = static_cast<std::size_t>(number(step, "count"));
            for (std::uint64_t id : source(step).source.take_for(key(step), count)) value.list.push_back(text(std::to_string(id)));
            return value;
        } else if (verb == "next_text") {
            return text(source(step).source.next_text());
        } else if (verb == "text_of") {
            return text(source(step).source.text_of(number(step, "id")));
        } else if (verb == "next_text_for") {
            return text(source(step).source.next_text_for(key(step)));
        } else if (verb == "take_text" || verb == "take_text_for") {
            Value value;
            value.kind = Value::List;
            auto count = static_cast<std::size_t>(number(step, "count"));
            auto &from = source(step).source;
            for (const std::string &each : verb == "take_text" ? from.take_text(count) : from.take_text_for(key(step), count))
                value.list.push_back(text(each));
            return value;
        } else if (verb == "next_wide_for") {
            return text(decimal(source(step).source.next_wide_for(key(step))));
        } else if (verb == "take_wide_for") {
            Value value;
            value.kind = Value::List;
            auto count = static_cast<std::size_t>(number(step, "count"));
            for (keymill::Wide id : source(step).source.take_wide_for(key(step), count)) value.list.push_back(text(decimal(id)));
            return value;
        } else if (verb == "parse_number") {
            return shown(source(step).source.parse(whole(step, "id")));
        } else if (verb == "parse") {
            return shown(source(step).source.parse(field(step, "id")));
        } else if (verb == "clock_set") {
            mill().clock_set(number(step, "ms"));
        } else if (verb == "clock_advance") {
            mill().clock_advance(std::chrono::milliseconds(number(step, "ms")));
        } else if (verb == "spec") {
            std::vector<std::string> name;
            for (const Value &part : step["name"].list) name.push_back(part.text);
            std::vector<std::pair<std::string, std::string>> options;
            for (const Value &pair : step["options"].list) options.emplace_back(pair.list.at(0).text, pair.list.at(1).text);
            return text(keymill::spec(field(step, "kind"), name, options));
        } else if (verb == "store_of") {
            std::vector<std::pair<std::string, std::string>> properties;
            for (const Value &pair : step["properties"].list) properties.emplace_back(pair.list.at(0).text, pair.list.at(1).text);
            return text(keymill::store_of(field(step, "url"), properties));
        } else if (verb == "document") {
            document(step);
        } else if (verb == "gene") {
            return text(std::to_string(step["key_text"].kind == Value::Text ? keymill::gene(key_text(step)) : keymill::gene(whole(step, "key"))));
        } else if (verb == "router") {
            routers_.erase(field(step, "as"));
            routers_.emplace(field(step, "as"), keymill::Router::from_text(field(step, "table")));
        } else if (verb == "load") {
            router(step).load(field(step, "table"));
        } else if (verb == "route") {
            return shown(router(step).route(whole(step, "id")));
        } else if (verb == "is_current") {
            const keymill::Route route = router(step).route(whole(step, "id"));
            router(step).load(field(step, "table"));
            return text(router(step).is_current(route) ? "yes" : "no");
        } else if (verb == "route_wide") {
            return shown(router(step).route_wide(wide(field(step, "id"))));
        } else if (verb == "route_key") {
            return shown(step["key_text"].kind == Value::Text ? router(step).route_key(key_text(step)) : router(step).route_key(whole(step, "key")));
        } else if (verb == "route_order_no") {
            return route_order_no(step);
        } else if (verb == "numbers") {
            keymill::OrderNumbers numbers = opened(step);
            numbers_.erase(field(step, "as"));
            numbers_.emplace(field(step, "as"), std::move(numbers));
        } else if (verb.rfind("seal", 0) == 0 || verb.rfind("unseal", 0) == 0 || verb == "numbers_version") {
            return sealing(verb, numbers(step), step);
        } else {
            defect("`" + verb + "` is no step");
        }
        return none;
    }

private:
    struct Held {
        keymill::Source source;
        bool serial;
    };

    // The owner's try_next answers NOT_READY with nothing; the vectors want its message.
    static std::string try_next(keymill::Source &source) {
        std::string buf(source.text_len(), '\0');
        std::size_t len = 0;
        std::uint32_t retry_ms = 0;
        keymill::detail::check(km_source_try_next_text(source.get(), &buf[0], buf.size(), &len, &retry_ms));
        buf.resize(len);
        return buf;
    }

    static std::uint64_t try_next_for(keymill::Source &source, const keymill::Key &key) {
        std::uint64_t id = 0;
        std::uint32_t retry_ms = 0;
        keymill::detail::check(
            key.is_text() ? km_source_try_next_for_text(source.get(), key.text(), key.len(), &id, &retry_ms)
                          : km_source_try_next_for_u64(source.get(), key.number(), &id, &retry_ms));
        return id;
    }

    static Value take(Held &held, std::size_t count) {
        Value value;
        value.kind = Value::List;
        if (held.serial) {
            for (const std::string &serial : held.source.take_text(count)) value.list.push_back(text(serial));
        } else {
            for (std::uint64_t id : held.source.take(count)) value.list.push_back(text(std::to_string(id)));
        }
        return value;
    }

    Value route_order_no(const Value &step) {
        keymill::Router &routes = router(step);
        if (step["number"].kind == Value::Text) return shown(routes.route_order_no(whole(step, "number")));
        if (step["text"].kind == Value::Text) return shown(routes.route_order_no(step["text"].text));
        std::vector<std::uint8_t> given = bytes(field(step, "no"));
        if (given.size() == 16) {
            keymill::OrderNo order_no;
            std::copy(given.begin(), given.end(), order_no.begin());
            return shown(routes.route_order_no(order_no));
        }
        // Bytes of any length are C's.
        km_route route = KM_ROUTE_INIT;
        keymill::detail::check(km_router_route_order_no(routes.get(), given.data(), given.size(), &route));
        return shown(keymill::Route(route));
    }

    static Value sealing(const std::string &verb, const keymill::OrderNumbers &numbers, const Value &step) {
        auto decimals = [](const std::vector<std::uint64_t> &all) {
            std::vector<Value> values;
            for (std::uint64_t one : all) values.push_back(text(std::to_string(one)));
            return list(std::move(values));
        };
        auto all = [&](const char *name) {
            std::vector<std::uint64_t> all;
            for (const Value &one : step[name].list) all.push_back(std::stoull(one.text));
            return all;
        };
        std::uint64_t id = 0;
        km_wide wide_id{0, 0};
        if (verb == "seal") return hex(numbers.seal(whole(step, "id")));
        if (verb == "seal_wide") return hex(numbers.seal_wide(wide(field(step, "id"))));
        if (verb == "seal8") return text(std::to_string(numbers.seal8(whole(step, "id"))));
        if (verb == "seal_text") return text(numbers.seal_text(whole(step, "id")));
        if (verb == "seal_wide_text") return text(numbers.seal_wide_text(wide(field(step, "id"))));
        if (verb == "seal8_text") return text(numbers.seal8_text(whole(step, "id")));
        if (verb == "unseal8") return text(std::to_string(numbers.unseal8(whole(step, "no"))));
        if (verb == "unseal_text") return text(std::to_string(numbers.unseal_text(field(step, "no"))));
        if (verb == "unseal_wide_text") return text(decimal(numbers.unseal_wide_text(field(step, "no"))));
        if (verb == "unseal8_text") return text(std::to_string(numbers.unseal8_text(field(step, "no"))));
        if (verb == "numbers_version") return text(std::to_string(numbers.version()));
        if (verb == "seal8_all") return decimals(numbers.seal8_all(all("ids")));
        if (verb == "unseal8_all") return decimals(numbers.unseal8_all(all("nos")));
        if (verb == "seal_all") {
            std::vector<Value> values;
            for (const keymill::OrderNo &order_no : numbers.seal_all(all("ids"))) values.push_back(hex(order_no));
            return list(std::move(values));
        }
        if (verb == "unseal_all") {
            std::vector<keymill::OrderNo> order_nos;
            for (const Value &one : step["nos"].list) {
                std::vector<std::uint8_t> given = bytes(one.text);
                if (given.size() != 16) defect("an order number of a batch has 16 bytes");
                order_nos.emplace_back();
                std::copy(given.begin(), given.end(), order_nos.back().begin());
            }
            return decimals(numbers.unseal_all(order_nos));
        }
        // Bytes of any length are C's; those of 16 the owner's.
        std::vector<std::uint8_t> given = bytes(field(step, "no"));
        keymill::OrderNo order_no{};
        if (given.size() == 16) std::copy(given.begin(), given.end(), order_no.begin());
        if (verb == "unseal") {
            if (given.size() == 16) return text(std::to_string(numbers.unseal(order_no)));
            keymill::detail::check(km_numbers_unseal(numbers.get(), given.data(), given.size(), &id));
            return text(std::to_string(id));
        }
        if (verb == "unseal_wide") {
            if (given.size() == 16) return text(decimal(numbers.unseal_wide(order_no)));
            keymill::detail::check(km_numbers_unseal_wide(numbers.get(), given.data(), given.size(), &wide_id));
            return text(decimal({wide_id.hi, wide_id.lo}));
        }
        defect("`" + verb + "` is no step");
    }

    keymill::OrderNumbers &numbers(const Value &step) {
        auto found = numbers_.find(field(step, "of"));
        if (found == numbers_.end()) defect("no order numbers are called `" + field(step, "of") + "`");
        return found->second;
    }

    keymill::Router &router(const Value &step) {
        auto found = routers_.find(field(step, "of"));
        if (found == routers_.end()) defect("no router is called `" + field(step, "of") + "`");
        return found->second;
    }

    keymill::Mill &mill() {
        if (!mill_) defect("no mill is open");
        return *mill_;
    }
    Held &source(const Value &step) {
        auto found = sources_.find(field(step, "of"));
        if (found == sources_.end()) defect("no source is called `" + field(step, "of") + "`");
        return found->second;
    }

    std::optional<keymill::Mill> mill_;
    std::map<std::string, Held> sources_;
    std::map<std::string, keymill::Router> routers_;
    std::map<std::string, keymill::OrderNumbers> numbers_;
};

/// Empty where the step went as it says, else what happened.
std::string walked(Stage &stage, const Value &step) {
    const std::string &code = step["error"].text, &says = step["says"].text;
    try {
        Value answer = stage.step(step);
        if (!code.empty()) return "gave no error, expected " + code;
        if (step["is"].kind != Value::None && !(answer == step["is"])) {
            std::string got = answer.text;
            for (const Value &each : answer.list) got += " " + each.text;
            for (const auto &each : answer.fields) got += " " + each.first + "=" + each.second.text;
            return "answered " + got;
        }
    } catch (const keymill::Error &error) {
        std::string got = std::string(error.name()) + ": " + error.what();
        if (code != error.name()) return "gave " + got;
        if (std::any_of(got.begin(), got.end(), [](unsigned char c) { return c < 0x20; })) return "gave more than one line: " + got;
        if (got.find(says) == std::string::npos) return "does not say `" + says + "` but " + got;
    }
    return {};
}

std::string stem(const std::string &path) {
    std::string name = path.substr(path.rfind('/') + 1);
    return name.substr(0, name.rfind('.'));
}

bool run(const std::string &file, std::ofstream &ran) {
    std::ifstream in(file);
    std::string json((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    bool well = true;
    Value document = Reader(json).document();
    if (document["cases"].list.empty()) defect(file + " has no cases");
    for (const Value &each : document["cases"].list) {
        std::string name = stem(file) + "/" + field(each, "name"), wrong;
        std::vector<Value> steps = each["steps"].list;
        if (each["mill"].kind == Value::Text) {
            Value open;
            open.kind = Value::Object;
            open.fields["do"] = text("open");
            open.fields["config"] = each["mill"];
            steps.insert(steps.begin(), open);
        }
        Stage stage;
        for (std::size_t i = 0; i < steps.size() && wrong.empty(); i++) {
            wrong = walked(stage, steps[i]);
            if (!wrong.empty()) wrong = "step " + std::to_string(i) + " (" + steps[i]["do"].text + ") " + wrong;
        }
        if (wrong.empty()) {
            ran << name << '\n';
        } else {
            std::fprintf(stderr, "%s: %s\n", name.c_str(), wrong.c_str());
            well = false;
        }
    }
    return well;
}

} // namespace

int main(int argc, char **argv) {
    const char *list = std::getenv("KEYMILL_VECTORS_RAN");
    std::ofstream ran(list ? list : "/dev/null", std::ios::app);
    bool well = argc > 1;
    try {
        for (int i = 1; i < argc; i++) well = run(argv[i], ran) && well;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return well ? 0 : 1;
}
