//! Every language offers every verb: one list, compared with what each language declares.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The languages, in the order of the columns of [`VERBS`].
const LANGUAGES: [&str; 7] = ["Rust", "C", "C++", "Java", "Python", "Node", "command"];

/// The verbs, one a row, with their name in each language. `-` and a letter: the language does not offer the verb, and
/// [`EXCEPTIONS`] says why.
const VERBS: &str = "
Mill::open           km_mill_open           Mill.Mill           Mill.open          open                 open                 --mill
Mill::open_default   km_mill_open_default   Mill.open_default   Mill.open          open                 open                 --mill
Mill::source         km_mill_source         Mill.source         Mill.source        Mill.source          Mill.source          -b
Mill::close          km_mill_close          Mill.close          Mill.close         Mill.close           Mill.close           -b
Mill::is_closed      -c                     -c                  Mill.isClosed      Mill.closed          Mill.closed          -b
Mill::metrics        km_mill_metrics        Mill.metrics        Mill.metrics       Mill.metrics         Mill.metrics         Metrics
Mill::events         km_mill_events         Mill.events         Mill.events        Mill.events          Mill.events          -b
Mill::init           -d                     -d                  Mill.init          Mill.init            Mill.init            Init
Mill::set_clock      km_mill_clock_set      Mill.clock_set      Mill.setClock      Mill.set_clock       Mill.setClock        Steps
Mill::advance_clock  km_mill_clock_advance  Mill.clock_advance  Mill.advanceClock  Mill.advance_clock   Mill.advanceClock    Steps
Source::next         km_source_next         Source.next         Source.next        Source.next          Source.next          Next
Source::try_next     km_source_try_next     Source.try_next     Source.tryNext     Source.try_next      Source.tryNext       -e
Source::take         -f                     Source.take         Source.take        Source.take          Source.take          Take
Source::fill         km_source_fill         Source.fill         Source.fill        Source.fill          Source.fill          -b
Source::lease        km_source_lease        Source.lease        Source.lease       -g                   -g                   -b
Source::handle       km_cursor_refill       Source.cursor       Source.handle      Source.handle        Source.handle        -b
Source::next_text    km_source_next_text    Source.next_text    Source.nextText    Source.next_text     Source.nextText      Next
Source::take_text    km_source_take_text    Source.take_text    Source.takeText    Source.take_text     Source.takeText      Take
Source::text_of             km_source_text_of                Source.text_of            Source.textOf         Source.text_of     Source.textOf     -b
Source::next_text_for       -f                               Source.next_text_for      Business.nextText     Business.next_text  Business.nextText  Next
Source::take_text_for       -f                               Source.take_text_for      Business.takeText     Business.take_text  Business.takeText  Take
Source::next_for            km_source_next_for_u64           Source.next_for           Business.next         Business.next      Business.next     Next
Source::try_next_for        km_source_try_next_for_u64       Source.try_next_for       Business.tryNext      Business.try_next  Business.tryNext  -e
Source::take_for            -f                               Source.take_for           Business.take         Business.take      Business.take     Take
Source::fill_for            km_source_fill_for_u64           Source.fill_for           -j                    -j                 -j                -b
Source::next_wide_for       km_source_next_wide_for_u64      Source.next_wide_for      Business.nextWide     Business.next      Business.next     Next
Source::try_next_wide_for   km_source_try_next_wide_for_u64  Source.try_next_wide_for  Business.tryNextWide  Business.try_next  Business.tryNext  -e
Source::take_wide_for       -f                               Source.take_wide_for      Business.takeWide     Business.take      Business.take     Take
Source::fill_wide_for       km_source_fill_wide_for_u64      -j                        -j                    -j                 -j                -b
Source::parse_wide          km_source_parse_wide             Source.parse              Business.parse        Business.parse     Business.parse    Parse
Source::parse        km_source_parse        Source.parse        Source.parse       Source.parse         Source.parse         Parse
Source::parse_text   km_source_parse_text   Source.parse        Serial.parse       Source.parse         Source.parse         Parse
Source::stats        km_source_stats        Source.stats        Source.stats       Source.stats         Source.stats         Metrics
Source::settings     -h                     -h                  Source.settings    Source.settings      Source.settings      Status
Source::repair       -d                     -d                  -d                 -d                   -d                   Repair
Source::set_back     -d                     -d                  -d                 -d                   -d                   Repair
Source::import       -d                     -d                  -d                 -d                   -d                   Import
Mill::router         km_mill_router         Mill.router         Mill.router        Mill.router          Mill.router          Route
Mill::put_routes     -d                     -d                  -d                 -d                   -d                   Route
Mill::stored_routers -d                     -d                  -d                 -d                   -d                   Status
Mill::stored_rows    -d                     -d                  -d                 -d                   -d                   Status
Source::parse_bytes  -i                     -i                  Business.parse     Business.parse       Business.parse       Parse
Router::open         km_router_open_file    Router.open         Router.open        Router.open          Router.open          Route
Router::from_text    km_router_open_text    Router.from_text    Router.fromText    Router.from_text     Router.fromText      Steps
Router::load         km_router_load         Router.load         Router.load        Router.load          Router.load          Steps
Router::route        km_router_route        Router.route        Router.route       Router.route         Router.route         Route
Router::route_wide   km_router_route_wide   Router.route_wide   Router.routeWide   Router.route_wide    Router.routeWide     Route
Router::route_bytes  -i                     -i                  Router.route       Router.route         Router.route         Route
Router::is_current   km_router_is_current   Router.is_current     Router.isCurrent   Router.is_current    Router.isCurrent     Steps
Router::route_key    km_router_route_key_u64 Router.route_key   Router.routeKey    Router.route_key     Router.routeKey      Route
Router::version      km_router_version      Router.version      Router.version     Router.version       Router.version       Route
Router::age          km_router_age          Router.age          Router.age         Router.age           Router.age           -b
Router::route_order_no          km_router_route_order_no     Router.route_order_no          Router.routeOrderNo          Router.route_order_no          Router.routeOrderNo          Route
OrderNumbers::open              km_numbers_open              OrderNumbers.open              OrderNumbers.open            OrderNumbers.open              OrderNumbers.open            Seal
OrderNumbers::from_env          km_numbers_open_env          OrderNumbers.from_env          OrderNumbers.fromEnv         OrderNumbers.from_env          OrderNumbers.fromEnv         Seal
OrderNumbers::from_keys         km_numbers_open_keys         OrderNumbers.from_keys         OrderNumbers.fromKeys        OrderNumbers.from_keys         OrderNumbers.fromKeys        Steps
OrderNumbers::with_version      km_numbers_with_version      OrderNumbers.with_version      OrderNumbers.withVersion     OrderNumbers.with_version      OrderNumbers.withVersion     Seal
OrderNumbers::version           km_numbers_version           OrderNumbers.version           OrderNumbers.version         OrderNumbers.version           OrderNumbers.version         Seal
OrderNumbers::seal              km_numbers_seal              OrderNumbers.seal              OrderNumbers.seal            OrderNumbers.seal              OrderNumbers.seal            Seal
OrderNumbers::unseal            km_numbers_unseal            OrderNumbers.unseal            OrderNumbers.unseal          OrderNumbers.unseal            OrderNumbers.unseal          Unseal
OrderNumbers::seal_wide         km_numbers_seal_wide         OrderNumbers.seal_wide         OrderNumbers.sealWide        OrderNumbers.seal_wide         OrderNumbers.sealWide        Seal
OrderNumbers::unseal_wide       km_numbers_unseal_wide       OrderNumbers.unseal_wide       OrderNumbers.unsealWide      OrderNumbers.unseal_wide       OrderNumbers.unsealWide      Unseal
OrderNumbers::seal8             km_numbers_seal8             OrderNumbers.seal8             OrderNumbers.seal8           OrderNumbers.seal8             OrderNumbers.seal8           Seal
OrderNumbers::unseal8           km_numbers_unseal8           OrderNumbers.unseal8           OrderNumbers.unseal8         OrderNumbers.unseal8           OrderNumbers.unseal8         Unseal
OrderNumbers::seal_all          km_numbers_seal_all          OrderNumbers.seal_all          OrderNumbers.sealAll         OrderNumbers.seal_all          OrderNumbers.sealAll         Steps
OrderNumbers::unseal_all        km_numbers_unseal_all        OrderNumbers.unseal_all        OrderNumbers.unsealAll       OrderNumbers.unseal_all        OrderNumbers.unsealAll       Steps
OrderNumbers::seal8_all         km_numbers_seal8_all         OrderNumbers.seal8_all         OrderNumbers.seal8All        OrderNumbers.seal8_all         OrderNumbers.seal8All        Steps
OrderNumbers::unseal8_all       km_numbers_unseal8_all       OrderNumbers.unseal8_all       OrderNumbers.unseal8All      OrderNumbers.unseal8_all       OrderNumbers.unseal8All      Steps
OrderNumbers::seal_text         km_numbers_seal_text         OrderNumbers.seal_text         OrderNumbers.sealText        OrderNumbers.seal_text         OrderNumbers.sealText        Seal
OrderNumbers::unseal_text       km_numbers_unseal_text       OrderNumbers.unseal_text       OrderNumbers.unsealText      OrderNumbers.unseal_text       OrderNumbers.unsealText      Unseal
OrderNumbers::seal_wide_text    km_numbers_seal_wide_text    OrderNumbers.seal_wide_text    OrderNumbers.sealWideText    OrderNumbers.seal_wide_text    OrderNumbers.sealWideText    Seal
OrderNumbers::unseal_wide_text  km_numbers_unseal_wide_text  OrderNumbers.unseal_wide_text  OrderNumbers.unsealWideText  OrderNumbers.unseal_wide_text  OrderNumbers.unsealWideText  Unseal
OrderNumbers::seal8_text        km_numbers_seal8_text        OrderNumbers.seal8_text        OrderNumbers.seal8Text       OrderNumbers.seal8_text        OrderNumbers.seal8Text       Seal
OrderNumbers::unseal8_text      km_numbers_unseal8_text      OrderNumbers.unseal8_text      OrderNumbers.unseal8Text     OrderNumbers.unseal8_text      OrderNumbers.unseal8Text     Unseal
Gene::of             km_gene_u64            gene                Gene.of            gene                 gene                 Gene
";

/// Why a language does not offer a verb.
const EXCEPTIONS: [(char, &str); 9] = [
    ('b', "the command opens one mill, runs one verb and closes the mill"),
    (
        'c',
        "a program that owns the handle knows whether it closed the mill; every other call answers KM_CLOSED",
    ),
    ('d', "an operator's verb: `keymill init`, `repair`, `import`, or Rust"),
    ('e', "the command waits at most the source's `deadline`"),
    ('f', "C fills the caller's array: km_source_fill"),
    ('g', "`take` and `fill` return the numbers themselves"),
    ('h', "`keymill status` shows them"),
    ('i', "a C program reads the bytes of an id into a number: km_router_route, km_router_route_wide"),
    ('j', "`take` gives the ids for a key in an array or a list of their own"),
];

/// Public methods that are no verbs: conversions, iteration, other forms of a verb of the list, memory, and in Rust what the command
/// and the languages are made of.
const OTHER: [(&str, &[&str]); 6] = [
    (
        "Rust",
        &[
            "Gene::of_id",
            "Gene::of_wide",
            "Handle::next",
            "Handle::next_text",
            "Mill::declared",
            "Mill::ignored",
            "Mill::facts",
            "Mill::latency",
            "Mill::moves",
            "Mill::next_event",
            "Mill::route_table",
            "Mill::stats",
            "Mill::store",
            "Mill::tables",
            "Router::route_gene",
            "Source::block",
            "Source::by_thread",
            "Source::change_counters",
            "Source::counters",
            "Source::deadline",
            "Source::heat",
            "Source::is_wide",
            "Source::iter",
            "Source::kind",
            "Source::label",
            "Source::layout",
            "Source::mill",
            "Source::push_text",
            "Source::row",
            "Source::status",
            "Source::id_of_text",
            "Source::text_len",
            "Source::write_text_of",
            "Source::try_next_text",
            "Source::try_write_text",
            "Source::write_text",
        ],
    ),
    (
        "C",
        &[
            "km_mill_free",
            "km_source_free",
            "km_source_try_next_text",
            "km_source_next_for_text",
            "km_source_try_next_for_text",
            "km_source_fill_for_text",
            "km_source_next_wide_for_text",
            "km_source_try_next_wide_for_text",
            "km_source_fill_wide_for_text",
            "km_source_text_len",
            "km_cursor_next",
            "km_cursor_close",
            "km_spec",
            "km_store_of",
            "km_gene_text",
            "km_router_route_key_text",
            "km_router_free",
            "km_router_route_order_no8",
            "km_router_route_order_no_text",
            "km_numbers_free",
            "km_last_error",
            "km_last_retry_ms",
            "km_code_name",
            "km_version",
        ],
    ),
    (
        "C++",
        &[
            "Mill.get",
            "Source.Source",
            "Source.get",
            "Source.try_next_text",
            "Source.text_len",
            "Router.Router",
            "Router.get",
            "OrderNumbers.OrderNumbers",
            "OrderNumbers.get",
        ],
    ),
    (
        "Java",
        &[
            "Mill.segment",
            "Mill.snowflake",
            "Mill.serial",
            "Mill.business",
            "Mill.share",
            "Mill.shareLater",
            "Mill.refuseDefault",
            "Mill.stats",
            "Mill.shared",
            "Mill.lazy",
            "Mill.store",
            "Mill.storeOf",
            "Mill.toString",
            "Source.getAsLong",
            "Source.nextAsync",
            "Source.nextTextAsync",
            "Source.stream",
            "LazySource.refusalOfKeys",
            "Serial.next",
            "Serial.nextAsync",
            "Serial.take",
            "Business.nextAsync",
            "Business.textOf",
            "Source.toString",
            "Serial.get",
            "Serial.tryNext",
            "Serial.stream",
            "Serial.stats",
            "Serial.toString",
            "Router.toString",
            "OrderNumbers.toString",
            "Business.nextWideInteger",
            "Business.stats",
            "Business.settings",
            "Business.toString",
        ],
    ),
    (
        "Python",
        &[
            "store_of",
            "use",
            "shared",
            "lazy",
            "Mill.segment",
            "Mill.snowflake",
            "Mill.serial",
            "Mill.business",
            "Mill.store",
            "Mill.stats",
            "Source.anext",
            "Source.take_async",
            "Source.label",
            "Business.anext",
            "Business.take_async",
            "Business.text_of",
            "Business.stats",
            "Business.settings",
            "Business.label",
        ],
    ),
    (
        "Node",
        &[
            "Business.nextTextAsync",
            "Business.textOf",
            "Serial.next",
            "Serial.take",
            "Source.nextTextAsync",
            "Source.takeTextAsync",
            "openAsync",
            "Mill.segment",
            "Mill.snowflake",
            "Mill.serial",
            "Mill.business",
            "Mill.closeAsync",
            "Source.label",
            "Source.toString",
            "Source.nextAsync",
            "Source.takeAsync",
            "Business.label",
            "Business.toString",
            "Business.nextAsync",
            "Business.takeAsync",
            "Business.stats",
            "Business.settings",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The identifier at the end of a text.
fn last_name(text: &str) -> &str {
    let begin = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    &text[begin..]
}

/// The name before the first parenthesis of a declaration, without generic parameters.
fn declared(line: &str) -> Option<&str> {
    let head = line.split_once('(')?.0;
    let head = head.split_once('<').map_or(head, |(name, rest)| {
        // A generic type before the name, as in `List<String> events(`, or generic parameters after it.
        rest.rsplit_once("> ").map_or(name, |(_, name)| name)
    });
    Some(last_name(head)).filter(|name| !name.is_empty())
}

/// `Class.method` of each line that `method` finds, by the class that the line before the methods begins.
fn methods<'t>(
    text: &'t str,
    class: impl Fn(&'t str) -> Option<&'t str>,
    method: impl Fn(&'t str) -> Option<&'t str>,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut class_name = "";
    for line in text.lines() {
        if let Some(name) = class(line) {
            class_name = name;
        } else if line.starts_with('}') {
            class_name = "";
        } else if let Some(name) = method(line) {
            found.insert(format!("{class_name}.{name}"));
        }
    }
    found
}

fn rust() -> BTreeSet<String> {
    let folder = root().join("core/src/api");
    let mut found = BTreeSet::new();
    let files = fs::read_dir(folder).expect("the verbs of Rust").flatten().map(|entry| entry.path());
    for path in files.chain([root().join("core/src/gene/mod.rs")]) {
        let text = fs::read_to_string(path).expect("a source");
        let class = |line: &'static str| line.strip_prefix("impl ").map(|rest| rest.trim_end_matches(" {"));
        let method = |line: &'static str| declared(line.strip_prefix("    pub fn ")?);
        found.extend(methods(text.leak(), class, method).iter().map(|name| name.replace('.', "::")));
    }
    found
}

fn c() -> BTreeSet<String> {
    let header = read("include/keymill.h");
    let calls = header.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()));
    calls.filter_map(declared).filter(|name| name.starts_with("km_")).map(str::to_owned).collect()
}

fn cpp() -> BTreeSet<String> {
    let header = read("include/keymill.hpp");
    let class =
        |line: &'static str| line.strip_prefix("class ").map(|rest| rest.split([' ', ':']).next().unwrap());
    // Four spaces: a member, not a statement inside one.
    let method = |line: &'static str| {
        let member =
            line.strip_prefix("    ").filter(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()))?;
        declared(member.trim_start_matches("explicit ")).filter(|name| !name.starts_with("operator"))
    };
    let header: &'static str = header.leak();
    // Functions of the namespace that are verbs.
    let functions = header.lines().filter_map(|line| line.strip_prefix("inline std::uint16_t "));
    let mut found: BTreeSet<_> = functions.filter_map(declared).map(str::to_owned).collect();
    found.extend(methods(header, class, method));
    found
}

fn java() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for class in ["Mill", "Source", "LazySource", "Serial", "Business", "Router", "OrderNumbers", "Gene"] {
        let text = read(&format!("bindings/java/java/src/main/java/io/keymill/{class}.java"));
        let public = text.lines().filter_map(|line| line.strip_prefix("    public "));
        found.extend(public.filter_map(declared).map(|name| format!("{class}.{name}")));
    }
    found
}

fn python() -> BTreeSet<String> {
    let stub = read("bindings/python/python/keymill/__init__.pyi");
    let class =
        |line: &'static str| line.strip_prefix("class ").map(|rest| rest.split(['(', ':']).next().unwrap());
    let method =
        |line: &'static str| declared(line.strip_prefix("    def ")?).filter(|name| !name.starts_with('_'));
    let functions: Vec<_> = stub.lines().filter_map(|line| line.strip_prefix("def ")).collect();
    let mut found: BTreeSet<_> = functions.into_iter().filter_map(declared).map(str::to_owned).collect();
    found.extend(methods(stub.leak(), class, method));
    found
}

fn node() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in ["mill", "source", "business", "router", "order_numbers"] {
        // What is marked internal is not in the package's declarations.
        let text = read(&format!("bindings/node/ts/{file}.ts"));
        let mut internal = false;
        let mut shown = String::new();
        for line in text.lines() {
            if !internal {
                shown += line;
                shown.push('\n');
            }
            internal = line.trim_end().ends_with("@internal */");
        }
        let functions = shown.lines().filter_map(|line| {
            line.strip_prefix("export ")?.trim_start_matches("async ").strip_prefix("function ")
        });
        found.extend(
            functions
                .filter_map(declared)
                .map(str::to_owned)
                .filter(|name| name.starts_with("open") || name == "gene"),
        );
        let class = |line: &'static str| {
            let (_, rest) = line.split_once("class ").filter(|_| !line.starts_with([' ', '/']))?;
            let name = rest.split([' ', '<']).next().unwrap();
            Some(if name.contains("Source") || name == "Numbers" { "Source" } else { name })
        };
        let method = |line: &'static str| {
            let member =
                line.strip_prefix("  ").filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))?;
            let member = member.strip_prefix("static ").unwrap_or(member);
            let hidden =
                ["private ", "protected ", "constructor"].iter().any(|word| member.starts_with(word));
            let ends = member.ends_with('{') || member.starts_with("abstract ");
            declared(member).filter(|_| !hidden && ends)
        };
        found.extend(methods(shown.leak(), class, method));
    }
    found
}

fn command() -> BTreeSet<String> {
    let args = read("bindings/cli/src/args.rs");
    let verbs = args.split_once("pub enum Verb {").expect("the verbs of the command").1;
    let verbs = verbs.lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?.trim_end_matches(" {").trim_end_matches(',');
        let is_name = name.starts_with(|c: char| c.is_ascii_uppercase());
        (is_name && name.chars().all(|c| c.is_ascii_alphanumeric())).then(|| name.to_owned())
    });
    verbs.chain(["--mill".to_owned()]).collect()
}

fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    VERBS.lines().skip(1).map(|row| row.split_whitespace().collect())
}

/// The verbs, by their names in Rust.
pub(super) fn names() -> BTreeSet<String> {
    rows().map(|row| row[0].to_owned()).collect()
}

/// The verbs that a language declares.
fn offered() -> [BTreeSet<String>; 7] {
    [rust(), c(), cpp(), java(), python(), node(), command()]
}

#[test]
fn every_language_offers_every_verb() {
    let mut missing = Vec::new();
    let mut reasons = BTreeSet::new();
    let offered = offered();
    for row in rows() {
        assert_eq!(row.len(), LANGUAGES.len(), "{row:?}");
        for ((language, offered), name) in LANGUAGES.iter().zip(&offered).zip(&row) {
            match name.strip_prefix('-').filter(|letter| letter.len() == 1) {
                Some(letter) => reasons.extend(letter.chars()),
                None if offered.contains(*name) => {}
                None => missing.push(format!("{language} has no `{name}`, its name for `{}`", row[0])),
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let stated: BTreeSet<_> = EXCEPTIONS.iter().map(|(letter, _)| *letter).collect();
    assert_eq!(reasons, stated, "each exception has its reason, and each reason its exception");
}

#[test]
fn a_language_has_no_verb_of_its_own() {
    let offered = offered();
    for (language, other) in OTHER {
        let column = LANGUAGES.iter().position(|name| *name == language).expect("a language");
        let listed: BTreeSet<_> = rows().map(|row| row[column]).chain(other.iter().copied()).collect();
        let of_class = |name: &&String| {
            let rust = name.split_once("::").map(|(class, _)| class);
            let is_rusts = rust.is_some_and(|class| {
                ["Mill", "Source", "Handle", "Router", "OrderNumbers", "Gene"].contains(&class)
            });
            is_rusts
                || rust.is_none() && !name.contains('.')
                || ["Mill.", "Source.", "Serial.", "Business.", "Router.", "OrderNumbers."]
                    .iter()
                    .any(|class| name.starts_with(class))
        };
        let own: Vec<_> =
            offered[column].iter().filter(of_class).filter(|name| !listed.contains(name.as_str())).collect();
        assert!(
            own.is_empty(),
            "{language}: {own:?} are not in the list of verbs; give every language the verb, or say why not"
        );
        let gone: Vec<_> = other.iter().filter(|name| !offered[column].contains(**name)).collect();
        assert!(gone.is_empty(), "{language} no longer has {gone:?}");
    }
}

#[test]
fn a_source_that_is_declared_before_a_mill_has_the_verbs_of_a_source() {
    let (java, python, node) = (java(), python(), node());
    // The interfaces of `lazy` in Node.
    let lazy = read("bindings/node/ts/lazy.ts");
    let in_node = |name: &str| {
        lazy.contains(&format!("\n  {name}(")) || lazy.contains(&format!("\n  readonly {name}:"))
    };
    let verbs = |all: &BTreeSet<String>| -> Vec<String> {
        let names = all.iter().filter_map(|name| name.strip_prefix("Source."));
        // It is named by its spec.
        names.filter(|name| *name != "label").map(str::to_owned).collect()
    };
    let mut missing = Vec::new();
    missing.extend(verbs(&java).into_iter().filter(|name| !java.contains(&format!("LazySource.{name}"))));
    missing.extend(verbs(&python).into_iter().filter(|name| !python.contains(&format!("Lazy.{name}"))));
    missing.extend(
        verbs(&node).into_iter().filter(|name| !in_node(name) && !lazy.contains(&format!("\n  {name}<"))),
    );
    assert!(missing.is_empty(), "a lazy source has no {missing:?}");
    assert!(verbs(&java).len() > 10 && verbs(&python).len() > 8 && verbs(&node).len() > 8);
}
