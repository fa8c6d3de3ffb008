//! What is not a segment on servers in trouble: banks, fixed and leased workers, routers, and what an operator types, on a server that
//! never answers, whose connection is cut at any answer, or that turns read-only. The same scenarios on every server store.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use keymill::store::Scheme;
use keymill::{Change, Code, Error, Mill, MoveOptions, OldRow, Source};
use keymill_tests::ci::patient;
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::takers::{persistently, until};
use keymill_tests::victim::Victim;
use keymill_tests::{mariadb, postgres, redis};

const PATIENCE: Duration = Duration::from_secs(180);

/// By how much a busy machine may delay a thread.
const LATE: Duration = Duration::from_secs(8);

/// An operator's call waits so long for the keeper.
const OPERATOR: Duration = Duration::from_secs(30);

const DEADLINE: Duration = Duration::from_millis(400);

/// A shared server, reached directly and through a proxy.
struct Wire {
    url: String,
    proxy: Proxy,
}

impl Wire {
    fn to(url: String, host: (String, u16)) -> Wire {
        Wire { url, proxy: Proxy::start(host) }
    }

    fn mariadb() -> Wire {
        Wire::to(mariadb::url(), mariadb::options().hosts[0].clone())
    }

    fn postgres() -> Wire {
        Wire::to(postgres::url(), postgres::options().hosts[0].clone())
    }

    fn redis() -> Wire {
        Wire::to(redis::url(), redis::options().server.hosts[0].clone())
    }

    fn has_tables_of_others(&self) -> bool {
        !self.url.starts_with("redis")
    }

    /// Without the proxy, with long time limits.
    fn direct(&self) -> Mill {
        Mill::open(&patient(&self.url)).expect("a mill")
    }

    /// Through the proxy, with these time limits.
    fn through(&self, limit: &str) -> Mill {
        let (host, port) = self.proxy.address();
        let (login, rest) = self.url.rsplit_once('@').expect("a login");
        let database = rest.split_once('/').expect("a database").1;
        let url = format!("{login}@{host}:{port}/{database}?timeout={limit}&connect_timeout={limit}");
        Mill::open(&url).expect("a mill")
    }
}

fn unique(prefix: &str) -> String {
    format!("{prefix}{}", fastrand::u64(..))
}

/// Makes the tables, and opens the source.
fn source(mill: &Mill, spec: &str) -> Source {
    persistently(|| mill.init(&[spec], Change::Apply)).expect("the tables");
    mill.source(spec).expect("a source")
}

fn is_outage(error: &Error) -> bool {
    matches!(error.code, Code::StoreUnavailable | Code::Deadline)
}

/// Defines each scenario as a test on each server.
macro_rules! on_every_server {
    ($($scenario:ident)*) => {
        mod on_mariadb {
            $(#[test] fn $scenario() { super::$scenario(&super::Wire::mariadb()) })*
        }
        mod on_postgres {
            $(#[test] fn $scenario() { super::$scenario(&super::Wire::postgres()) })*
        }
        mod on_redis {
            $(#[test] fn $scenario() { super::$scenario(&super::Wire::redis()) })*
        }
    };
}

on_every_server! {
    callers_of_a_bank_wait_no_longer_than_their_deadline_for_a_silent_server
    a_fixed_worker_goes_on_beside_a_silent_server_and_its_successor_repeats_nothing
    a_router_goes_on_beside_a_silent_server_and_another_one_is_told_in_time
    what_an_operator_types_at_a_silent_server_ends_in_time_and_is_typed_again
    a_lease_that_is_cut_at_any_answer_has_one_owner
    a_repair_that_is_cut_at_any_answer_is_typed_again
    a_route_table_that_is_cut_at_any_answer_is_stored_again
    a_bank_that_is_cut_at_any_answer_gives_no_id_twice
    a_reader_that_is_cut_at_any_answer_is_known_once_it_has_a_router
    a_step_of_a_move_that_is_cut_at_any_answer_is_made_once_or_not_at_all
}

// ---- silent ----

fn callers_of_a_bank_wait_no_longer_than_their_deadline_for_a_silent_server(wire: &Wire) {
    let spec = format!("business:{}?counters=8&min_step=16&max_step=16&buffer=1ms", unique("silent"));
    source(&wire.direct(), &spec);
    let mill = wire.through("500ms");
    let bank = mill.source(&format!("{spec}&deadline={}ms", DEADLINE.as_millis())).expect("a source");
    let mut ids = HashSet::new();
    ids.insert(persistently(|| bank.next_for("warm")).expect("an id"));
    wire.proxy.set(Answers::Hold);
    let mut refused = 0;
    // The first key has numbers in memory, the others have none.
    for turn in 0..12u64 {
        let asked = Instant::now();
        match if turn % 2 == 0 { bank.take_for("warm", 7) } else { bank.take_for(turn, 1) } {
            Ok(more) => ids.extend(more),
            Err(error) => {
                assert!(is_outage(&error), "{error}");
                refused += 1;
            }
        }
        assert!(asked.elapsed() < DEADLINE + LATE, "a caller waited {:?}", asked.elapsed());
    }
    assert!(refused >= 6, "callers of counters without a number were served by a silent server");
    wire.proxy.set(Answers::Pass);
    for key in 0..30u64 {
        let more = persistently(|| bank.take_for(key, 20)).expect("it heals by itself");
        assert!(more.iter().all(|id| ids.insert(*id)), "an id was handed out twice");
    }
}

fn a_fixed_worker_goes_on_beside_a_silent_server_and_its_successor_repeats_nothing(wire: &Wire) {
    let spec = format!("snowflake:{}?worker=5", unique("silent"));
    source(&wire.direct(), &spec);
    let mill = wire.through("500ms");
    let flake = mill.source(&format!("{spec}&deadline=60s")).expect("a source");
    let mut ids = persistently(|| flake.take(1000)).expect("ids");
    wire.proxy.set(Answers::Hold);
    let began = Instant::now();
    // Longer than marks are stored ahead.
    until("ids flow on for five seconds", PATIENCE, || {
        ids.extend(flake.take(100).expect("ids without a store"));
        began.elapsed() > Duration::from_secs(5)
    });
    let other = wire.through("500ms").source(&format!("{spec}&deadline=400ms")).expect("a source");
    let asked = Instant::now();
    let error = other.next().expect_err("a worker without its mark");
    assert!(is_outage(&error), "{error}");
    assert!(asked.elapsed() < DEADLINE + LATE, "a caller waited {:?}", asked.elapsed());
    drop(other);
    wire.proxy.set(Answers::Pass);
    until("ids flow on", PATIENCE, || flake.take(100).map(|more| ids.extend(more)).is_ok());
    mill.close();
    let next = wire.direct();
    let successor = next.source(&format!("{spec}&deadline=60s")).expect("a source");
    ids.extend(persistently(|| successor.take(10_000)).expect("ids"));
    let distinct: HashSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "an id was handed out twice");
}

fn table(version: u64) -> String {
    format!("version = {version}\n[[range]]\nupper = 65535\nshard = \"s{version}\"\n")
}

fn a_router_goes_on_beside_a_silent_server_and_another_one_is_told_in_time(wire: &Wire) {
    let (known, other) = (unique("known"), unique("other"));
    let direct = wire.direct();
    for name in [&known, &other] {
        persistently(|| direct.put_routes(name, &table(1), Change::Apply)).expect("stored");
    }
    let mill = wire.through("500ms");
    let router = persistently(|| mill.router(&known)).expect("a router");
    wire.proxy.set(Answers::Hold);
    let asked = Instant::now();
    let error = mill.router(&other).map(drop).expect_err("a table that cannot be read");
    assert!(is_outage(&error), "{error}");
    assert!(asked.elapsed() < OPERATOR + LATE, "a caller waited {:?}", asked.elapsed());
    for key in 0..1000u64 {
        assert_eq!(router.route_key(key).expect("a route").shard, "s1");
    }
    wire.proxy.set(Answers::Pass);
    assert_eq!(persistently(|| mill.router(&other)).expect("a router").version(), 1);
}

/// Each verb of an operator, with its name; those that change something are carried out.
type Verbs<'a> = Vec<(&'static str, Box<dyn Fn() -> keymill::Result<()> + 'a>)>;

fn verbs<'a>(mill: &'a Mill, name: &'a str, has_tables_of_others: bool) -> Verbs<'a> {
    let spec = format!("segment:{name}");
    let orders = mill.source(&spec).expect("a source");
    let bank = mill.source(&format!("business:{name}?counters=4")).expect("a source");
    let pool = mill.source(&format!("snowflake:{name}")).expect("a source");
    let fixed = mill.source(&format!("snowflake:{name}?worker=7")).expect("a source");
    let imported = mill.source(&format!("segment:imported{name}")).expect("a source");
    // A tick of today.
    let id = 50_000_000_000_u64 << 22;
    let (of_row, of_status) = (orders.clone(), orders.clone());
    let all: Verbs<'a> = vec![
        ("init", Box::new(move || mill.init(&[&spec], Change::Apply).map(drop))),
        ("facts", Box::new(|| mill.facts().map(drop))),
        ("row", Box::new(move || of_row.row().map(drop))),
        ("status", Box::new(move || of_status.status().map(drop))),
        ("repair, dry", {
            let orders = orders.clone();
            Box::new(move || orders.repair(5000, Change::DryRun).map(drop))
        }),
        ("repair", Box::new(move || orders.repair(5000, Change::Apply).map(drop))),
        ("repair of a bank", {
            let bank = bank.clone();
            Box::new(move || bank.repair(5000, Change::Apply).map(drop))
        }),
        ("change of counters", Box::new(move || bank.change_counters(4, Change::Apply).map(drop))),
        ("repair of a pool", Box::new(move || pool.repair(id, Change::Apply).map(drop))),
        ("repair of a fixed worker", Box::new(move || fixed.repair(id, Change::Apply).map(drop))),
        ("route put", Box::new(move || mill.put_routes(name, &table(3), Change::Apply).map(drop))),
        ("routers", Box::new(|| mill.stored_routers().map(drop))),
        ("import", {
            Box::new(move || {
                imported.import(&OldRow::of(Scheme::LeafAlloc).row(name), Change::Apply).map(drop)
            })
        }),
    ];
    all.into_iter().filter(|(verb, _)| *verb != "import" || has_tables_of_others).collect()
}

fn what_an_operator_types_at_a_silent_server_ends_in_time_and_is_typed_again(wire: &Wire) {
    let name = unique("typed");
    let direct = wire.direct();
    let specs = [
        format!("segment:{name}"),
        format!("business:{name}?counters=4"),
        format!("snowflake:{name}"),
        format!("snowflake:{name}?worker=7"),
        format!("segment:{name}?scheme=leaf_alloc"),
    ];
    let specs: Vec<&str> =
        specs.iter().map(String::as_str).take(if wire.has_tables_of_others() { 5 } else { 4 }).collect();
    persistently(|| direct.init(&specs, Change::Apply)).expect("the tables");
    persistently(|| direct.put_routes(&name, &table(1), Change::Apply)).expect("the table of routes");
    for spec in specs.iter().filter(|spec| !spec.starts_with("snowflake")) {
        let source =
            direct.source(&format!("{spec}{}deadline=60s", if spec.contains('?') { '&' } else { '?' }));
        let source = source.expect("a source");
        if spec.starts_with("business") { source.next_for(1) } else { source.next() }.expect("an id");
    }
    let mill = wire.through("500ms");
    wire.proxy.set(Answers::Hold);
    for (verb, call) in verbs(&mill, &name, wire.has_tables_of_others()) {
        let asked = Instant::now();
        let error = call().expect_err("a silent server answered");
        assert!(is_outage(&error), "{verb}: {error}");
        assert!(asked.elapsed() < OPERATOR + LATE, "{verb} took {:?}", asked.elapsed());
    }
    let printed = mill.init(&[specs[0]], Change::DryRun).expect("all that would be made");
    assert_eq!(printed.is_empty(), !wire.has_tables_of_others(), "{printed:?}");
    wire.proxy.set(Answers::Pass);
    let again = wire.through("25s");
    // Twice: whatever the silent server did of the first, each leaves the same.
    for _ in 0..2 {
        for (verb, call) in verbs(&again, &name, wire.has_tables_of_others()) {
            persistently(&call).unwrap_or_else(|error| panic!("{verb}: {error}"));
        }
    }
    let standing = persistently(|| direct.source(specs[0])?.status()).expect("where it stands");
    assert_eq!(standing.reserved_to.as_deref(), Some("4999"));
}

// ---- cut ----

/// Carries out `work` on a mill of its own whose connection is cut at the first answer, at the second, … until it gets all of them.
fn cut_at_every_answer(wire: &Wire, mut work: impl FnMut(&Mill) -> keymill::Result<()>) -> u32 {
    for at in 0..200 {
        let mill = wire.through("25s");
        wire.proxy.set(Answers::CutAfter(at));
        let outcome = work(&mill);
        let was_cut = wire.proxy.now() == Answers::Pass;
        wire.proxy.set(Answers::Pass);
        // Ends what the mill keeps for the next connection.
        mill.close();
        match outcome {
            Ok(()) if !was_cut => return at,
            Ok(()) => {}
            Err(error) => assert!(was_cut && is_outage(&error), "cut {at}: {error}"),
        }
    }
    panic!("it never got all answers");
}

fn a_lease_that_is_cut_at_any_answer_has_one_owner(wire: &Wire) {
    let spec = format!("snowflake:{}?lease=1h&deadline=60s", unique("cut"));
    let direct = wire.direct();
    let ours = source(&direct, &spec);
    let mut ids: HashSet<u64> = persistently(|| ours.take(100)).expect("ids").into_iter().collect();
    let own = ours.parse(*ids.iter().next().expect("an id")).expect("parts").worker;
    let cuts = cut_at_every_answer(wire, |mill| {
        let theirs = mill.source(&spec)?;
        let taken = theirs.take(1000)?;
        assert!(
            taken.iter().all(|id| theirs.parse(*id).expect("parts").worker != own),
            "{own:?} is the other mill's"
        );
        for id in taken.into_iter().chain(ours.take(1000)?) {
            assert!(ids.insert(id), "{id} was handed out twice");
        }
        Ok(())
    });
    assert!(cuts > 2, "only {cuts} answers");
}

fn a_repair_that_is_cut_at_any_answer_is_typed_again(wire: &Wire) {
    let name = unique("cut");
    let direct = wire.direct();
    let specs = [
        "segment:NAME?deadline=60s",
        "business:NAME?counters=4&deadline=60s",
        "snowflake:NAME?worker=7&deadline=60s",
    ]
    .map(|spec| spec.replace("NAME", &name));
    for (at, spec) in specs.iter().enumerate() {
        let mine = source(&direct, spec);
        persistently(|| if at == 1 { mine.next_for(1) } else { mine.next() }).expect("an id");
        // Ticks that are still to come, as near as `repair` raises a mark.
        let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
        let mut to = (since - 1_735_689_600_000 + 600_000) << 22;
        let number = |to: u64| if at == 2 { to } else { to >> 22 };
        let cuts = cut_at_every_answer(wire, |mill| {
            // Higher each time, so that each is a change.
            to += 1 << 30;
            let repaired = mill.source(spec)?.repair(number(to), Change::Apply).map(drop);
            let again = persistently(|| direct.source(spec)?.repair(number(to), Change::Apply));
            again.unwrap_or_else(|error| panic!("{spec}, typed again: {error}"));
            let stands =
                persistently(|| direct.source(spec)?.row()).expect("a look").expect("a row").mark.next;
            if at == 0 {
                assert_eq!(stands, number(to));
            }
            repaired
        });
        assert!(cuts > 1, "{spec}: only {cuts} answers");
    }
}

fn a_route_table_that_is_cut_at_any_answer_is_stored_again(wire: &Wire) {
    let (name, direct) = (unique("cut"), wire.direct());
    persistently(|| direct.put_routes(&name, &table(1), Change::Apply)).expect("stored");
    let mut version = 1;
    let cuts = cut_at_every_answer(wire, |mill| {
        version += 1;
        let put = mill.put_routes(&name, &table(version), Change::Apply).map(drop);
        let stored = || direct.stored_routers().map(|all| all.into_iter().find(|one| one.name == name));
        let found = persistently(stored).expect("a list").expect("the table");
        assert!([version - 1, version].contains(&found.version), "{} of {version}", found.version);
        assert_eq!(found.shards.expect("a whole table"), [format!("s{}", found.version)]);
        persistently(|| direct.put_routes(&name, &table(version), Change::Apply)).expect("typed again");
        put
    });
    assert!(cuts > 2, "only {cuts} answers");
}

fn a_reader_that_is_cut_at_any_answer_is_known_once_it_has_a_router(wire: &Wire) {
    let (name, direct) = (unique("cut"), wire.direct());
    persistently(|| direct.put_routes(&name, &table(1), Change::Apply)).expect("stored");
    let moves = direct.moves(&name).expect("a name");
    let mut version = 1;
    let cuts = cut_at_every_answer(wire, |mill| {
        let router = mill.router(&name)?;
        let readers = persistently(|| moves.status()).expect("a status").readers;
        assert_eq!(router.version(), version);
        let knows = readers.iter().any(|reader| reader.is_living() && reader.version == version);
        assert!(knows, "version {version} in {readers:?}");
        version += 1;
        persistently(|| direct.put_routes(&name, &table(version), Change::Apply)).expect("stored");
        Ok(())
    });
    assert!(cuts > 2, "only {cuts} answers");
}

fn a_step_of_a_move_that_is_cut_at_any_answer_is_made_once_or_not_at_all(wire: &Wire) {
    let (name, direct) = (unique("cut"), wire.direct());
    persistently(|| direct.put_routes(&name, &table(1), Change::Apply)).expect("stored");
    let moves = direct.moves(&name).expect("a name");
    let plan = persistently(|| moves.plan(&[("s1", 1), ("other", 1)], None)).expect("a plan");
    let options = MoveOptions::default();
    let status = || persistently(|| moves.status()).expect("a status");
    let cuts = cut_at_every_answer(wire, |mill| {
        let (before, theirs) = (status(), mill.moves(&name)?);
        let step = match before.moving {
            None => theirs.start(&plan, 1, &options, Change::Apply),
            Some(_) => theirs.back(Change::Apply),
        };
        let after = status();
        let is_made = after.version == before.version + 1;
        assert!(is_made || after.version == before.version, "{} after {}", after.version, before.version);
        assert_eq!(after.moving.is_some() == before.moving.is_some(), !is_made);
        assert!(is_made || step.is_err(), "what is answered is made");
        step.map(drop)
    });
    assert!(cuts > 2, "only {cuts} answers");
}

fn an_init_that_is_cut_at_any_answer_is_typed_again(wire: &Wire) {
    let direct = wire.direct();
    let mut made = Vec::new();
    let cuts = cut_at_every_answer(wire, |mill| {
        // One name each, so that each cut finds no table.
        let tables = [unique("a"), unique("b"), unique("c")];
        let specs = [
            format!("segment:x?deadline=60s&table={}", tables[0]),
            format!("segment:x?deadline=60s&scheme=leaf_alloc&table={}", tables[1]),
            format!("segment:x?deadline=60s&scheme=cosid&table={}", tables[2]),
        ];
        made.extend(tables);
        let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
        let outcome = mill.init(&specs, Change::Apply).map(drop);
        persistently(|| direct.init(&specs, Change::Apply)).expect("typed again");
        for spec in specs {
            assert_eq!(direct.source(spec)?.next(), Ok(1), "{spec}");
        }
        outcome
    });
    assert!(cuts > 3, "only {cuts} answers");
    for table in made {
        let sql = format!("DROP TABLE {table}");
        if wire.url.starts_with("mysql") {
            mariadb::say(&sql);
        } else {
            postgres::Sql::shared().say(&sql);
        }
    }
}

#[test]
fn an_init_on_mariadb_that_is_cut_at_any_answer_is_typed_again() {
    an_init_that_is_cut_at_any_answer_is_typed_again(&Wire::mariadb());
}

#[test]
fn an_init_on_postgresql_that_is_cut_at_any_answer_is_typed_again() {
    an_init_that_is_cut_at_any_answer_is_typed_again(&Wire::postgres());
}

fn a_bank_that_is_cut_at_any_answer_gives_no_id_twice(wire: &Wire) {
    let spec =
        format!("business:{}?counters=8&min_step=16&max_step=16&buffer=1ms&deadline=60s", unique("cut"));
    let direct = wire.direct();
    let ours = source(&direct, &spec);
    let mut ids: HashSet<u64> = HashSet::new();
    let cuts = cut_at_every_answer(wire, |mill| {
        let theirs = mill.source(&spec)?;
        for key in 0..8u64 {
            let taken = theirs.take_for(key, 20)?.into_iter().chain(ours.take_for(key, 20)?);
            taken.for_each(|id| assert!(ids.insert(id), "{id} was handed out twice"));
        }
        Ok(())
    });
    assert!(cuts > 2, "only {cuts} answers");
}

// ---- read-only ----

fn a_bank_on_a_server_that_turns_read_only_says_so_and_goes_on(server: &dyn Victim) {
    let mill = Mill::open(&server.url()).expect("a mill");
    let bank = source(&mill, "business:lean?counters=8&min_step=16&max_step=16&buffer=1ms&deadline=400ms");
    let mut ids = HashSet::new();
    let mut take = || {
        let taken = bank.take_for(fastrand::u64(0..100), 5);
        if let Ok(more) = &taken {
            for id in more {
                assert!(ids.insert(*id), "{id} was handed out twice");
            }
        }
        taken
    };
    persistently(&mut take).expect("ids");
    let says = server.read_only(true);
    until("the reason is told", PATIENCE, || match take() {
        Err(error) => {
            assert!(is_outage(&error), "{error}");
            error.message.contains(says)
        }
        Ok(_) => false,
    });
    server.read_only(false);
    until("ids flow again", PATIENCE, || take().is_ok());
}

#[test]
fn a_bank_on_a_mariadb_that_turns_read_only_says_so_and_goes_on() {
    a_bank_on_a_server_that_turns_read_only_says_so_and_goes_on(&mariadb::Private::start(""));
}

#[test]
fn a_bank_on_a_postgresql_that_turns_read_only_says_so_and_goes_on() {
    a_bank_on_a_server_that_turns_read_only_says_so_and_goes_on(&postgres::Private::start(""));
}

#[test]
fn a_bank_on_a_redis_that_turns_replica_says_so_and_goes_on() {
    a_bank_on_a_server_that_turns_read_only_says_so_and_goes_on(&redis::Private::start(""));
}
