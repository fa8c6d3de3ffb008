//! A mill with a server that is frozen, cut off, read-only, full or restored: the same scenarios on every server store,
//! each with a server of its own (`keymill_tests::victim::Victim` makes the faults).

use std::time::{Duration, Instant};

use keymill::{Change, Code, Mill, Source};
use keymill_tests::ci::patient;
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::takers::{Takers, persistently, until};
use keymill_tests::victim::Victim;

const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(2);

/// A source with next to nothing in memory, so that a fault of the store shows at once.
const LEAN: &str = "segment:lean?deadline=400ms&buffer=200ms&min_step=10";
const LEAN_DEADLINE: Duration = Duration::from_millis(400);

/// By how much a busy machine may delay a thread.
const LATE: Duration = Duration::from_secs(8);

/// For how long a server is frozen: a caller that waited for its answer would be later than that.
const FROZEN: Duration = Duration::from_secs(10);

/// Defines each scenario as a test on each server.
macro_rules! on_every_server {
    ($($scenario:ident)*) => {
        mod mariadb {
            $(#[test] fn $scenario() { super::$scenario(&keymill_tests::mariadb::Private::start("")) })*
        }
        mod postgres {
            $(#[test] fn $scenario() { super::$scenario(&keymill_tests::postgres::Private::start("")) })*
        }
        mod redis {
            $(#[test] fn $scenario() { super::$scenario(&keymill_tests::redis::Private::start("")) })*
        }
    };
}

on_every_server! {
    a_killed_server_is_not_felt_while_the_runway_lasts_and_no_id_comes_twice
    an_outage_beyond_the_runway_is_an_error_within_the_deadline_and_heals_by_itself
    a_frozen_server_is_not_felt_while_the_runway_lasts_and_delays_no_caller_past_the_deadline
    a_connection_cut_in_the_middle_of_a_reservation_burns_the_range
    a_server_that_turns_read_only_is_an_outage_with_that_reason
    a_wrong_password_is_refused_and_a_right_one_serves_again
    a_password_that_changes_in_its_file_is_read_again_at_the_next_connect
    a_lost_table_is_reported_and_a_new_one_never_begins_at_one
    a_server_without_a_free_connection_keeps_those_it_has_and_is_used_when_there_is_one
    a_restored_backup_is_refused_until_it_is_repaired_or_healed
}

/// A mill with existing tables, made by a mill that waits for a busy disk.
fn open(url: &str) -> Mill {
    let mill = Mill::open(&patient(url)).expect("a mill");
    mill.init(&[], Change::Apply).expect("init");
    mill.close();
    Mill::open(url).expect("a mill")
}

/// The same, with a long time limit for answers: a connection breaks only where a test breaks it.
fn open_patient(url: &str) -> Mill {
    open(url).close();
    Mill::open(&patient(url)).expect("a mill")
}

/// The same, with a short time limit for answers.
fn open_hasty(url: &str) -> Mill {
    open(url).close();
    Mill::open(&format!("{url}?timeout=500ms&connect_timeout=500ms")).expect("a mill")
}

/// The name of the store.
fn on(server: &dyn Victim) -> String {
    server.url().split(':').next().unwrap_or_default().to_owned()
}

fn source(mill: &Mill, spec: &str) -> Source {
    mill.source(spec).expect("a source")
}

/// Every error of these callers was an outage, and came in time. A thread may wake up late on a busy machine, but no caller
/// waits as long as these outages last.
fn assert_outage_in_time(takers: &Takers, deadline: Duration) {
    for (waited, error) in takers.errors() {
        assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
        assert!(waited < deadline + LATE, "a caller waited {waited:?}: {error}");
    }
}

fn flow_again(takers: &Takers) {
    let before = takers.count();
    until("ids flow again", PATIENCE, || takers.count() > before + 1000);
}

/// Whether the rate is known (the runway is an estimate before) and twenty seconds of numbers are in memory: a killed
/// server takes time to start again.
fn has_runway(source: &Source, since: Instant) -> bool {
    let long = || source.stats().is_ok_and(|s| s.runway_seconds.is_some_and(|runway| runway > 20.0));
    since.elapsed() > Duration::from_secs(4) && long()
}

fn a_killed_server_is_not_felt_while_the_runway_lasts_and_no_id_comes_twice(server: &dyn Victim) {
    let mill = open(&server.url());
    // Four takers at full pace use 80 000 a second: these last, whatever rate a busy machine had before.
    let orders = source(&mill, "segment:orders?buffer=30s&min_step=10000000");
    let takers = Takers::default();
    let count = takers.beside(&[&orders; 4], 100, Duration::from_millis(5), || {
        for round in 0..3 {
            let began = Instant::now();
            until("twenty seconds of supply lie in memory", PATIENCE, || has_runway(&orders, began));
            let met = takers.errors().len();
            server.kill();
            let (before, down) = (takers.count(), Instant::now());
            until("ids flow on for two seconds without a server", PATIENCE, || {
                takers.count() > before + 1000 && down.elapsed() > Duration::from_secs(2)
            });
            assert_eq!(takers.errors().len(), met, "round {round}: {:?}", takers.errors());
            // If that takes longer than the runway, callers see it.
            server.start_again();
        }
    });
    let late = takers.errors().len();
    println!(
        "faults  {}: 3 server kills, {count} ids, 0 duplicates, {late} errors while it started again",
        on(server)
    );
}

fn an_outage_beyond_the_runway_is_an_error_within_the_deadline_and_heals_by_itself(server: &dyn Victim) {
    let mill = open(&server.url());
    let lean = source(&mill, LEAN);
    persistently(|| lean.next()).expect("the first id");
    server.kill();
    let takers = Takers::default();
    takers.beside(&[&lean], 5, PAUSE, || {
        until("the runway ends", PATIENCE, || takers.errors().len() > 3);
        server.start_again();
        flow_again(&takers);
    });
    assert_outage_in_time(&takers, LEAN_DEADLINE);
}

fn a_frozen_server_is_not_felt_while_the_runway_lasts_and_delays_no_caller_past_the_deadline(
    server: &dyn Victim,
) {
    let mill = open_hasty(&server.url());
    // A taker at full pace uses 5 000 a second: these last, whatever rate a busy machine had before.
    let (rich, lean) = (source(&mill, "segment:rich?buffer=30s&min_step=1000000"), source(&mill, LEAN));
    let (at_rich, at_lean) = (Takers::default(), Takers::default());
    let count = at_rich.beside(&[&rich], 10, PAUSE, || {
        at_lean.beside(&[&lean, &lean], 5, PAUSE, || {
            let began = Instant::now();
            until("twenty seconds of supply lie in memory", PATIENCE, || has_runway(&rich, began));
            let met = at_rich.errors().len();
            server.freeze();
            let (frozen, before) = (Instant::now(), at_rich.count());
            until("ids flow from the runway while the lean source is dry", PATIENCE, || {
                at_lean.errors().len() > 5 && frozen.elapsed() > FROZEN && at_rich.count() > before + 1000
            });
            assert_eq!(at_rich.errors().len(), met, "{:?}", at_rich.errors());
            server.thaw();
            flow_again(&at_lean);
        });
    });
    assert_outage_in_time(&at_lean, LEAN_DEADLINE);
    let longest = at_lean.errors().iter().map(|(waited, _)| *waited).max().unwrap_or_default();
    println!(
        "faults  {}: frozen for {FROZEN:?}: {count} ids from the runway without an error; the lean source {} ids, {} errors, the latest \
         after {longest:.0?} of {LEAN_DEADLINE:.0?}",
        on(server),
        at_lean.distinct(),
        at_lean.errors().len()
    );
}

fn a_connection_cut_in_the_middle_of_a_reservation_burns_the_range(server: &dyn Victim) {
    let proxy = Proxy::start(server.address());
    let (host, port) = server.address();
    let (there, here) = (format!("{host}:{port}"), format!("127.0.0.1:{}", proxy.address().1));
    let mill = open_patient(&server.url().replace(&there, &here));
    let cut = source(&mill, "segment:cut?step=10&buffer=1ms&deadline=60s");
    let takers = Takers::default();
    let ids = takers.beside(&[&cut, &cut], 25, PAUSE, || {
        for round in 0..60 {
            proxy.set(Answers::CutAfter(round % 5));
            let before = takers.count();
            until("ids flow in spite of cut answers", PATIENCE, || {
                takers.count() > before && proxy.now() == Answers::Pass
            });
        }
    });
    assert!(takers.errors().is_empty(), "{:?}", takers.errors());
    let burnt = takers.highest() as usize - ids;
    println!(
        "faults  {}: 60 cut answers: {ids} ids, none twice, no error, {burnt} numbers burnt",
        on(server)
    );
    assert!(burnt >= 60, "no range was burnt, so nothing was tested");
}

fn a_server_that_turns_read_only_is_an_outage_with_that_reason(server: &dyn Victim) {
    let mill = open(&server.url());
    let lean = source(&mill, LEAN);
    let takers = Takers::default();
    takers.beside(&[&lean], 5, PAUSE, || {
        flow_again(&takers);
        let says = server.read_only(true);
        until("the reason is told", PATIENCE, || takers.met(Code::StoreUnavailable, says));
        server.read_only(false);
        flow_again(&takers);
    });
    assert_outage_in_time(&takers, LEAN_DEADLINE);
}

fn a_wrong_password_is_refused_and_a_right_one_serves_again(server: &dyn Victim) {
    let url = server.url();
    let mill = open(&url);
    let lean = source(&mill, LEAN);
    let takers = Takers::default();
    takers.beside(&[&lean], 5, PAUSE, || {
        flow_again(&takers);
        let says = server.password("another-horse");
        until("the password is refused", PATIENCE, || takers.met(Code::StoreRefused, says));
        let other = Mill::open(&url.replace("secret", "wrong-horse")).expect("a mill opens lazily");
        let error = source(&other, "segment:lean?deadline=60s").next().expect_err("a wrong password");
        assert_eq!(error.code, Code::StoreRefused, "{error}");
        assert!(error.message.contains(says), "{error}");
        assert!(!format!("{error:?} {:?} {:?}", other, other.events()).contains("horse"), "{error:?}");
        server.password("secret");
        flow_again(&takers);
    });
    for (_, error) in takers.errors() {
        assert!(!error.message.contains("secret"), "{error}");
    }
}

fn a_password_that_changes_in_its_file_is_read_again_at_the_next_connect(server: &dyn Victim) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    let write = |password: &str| {
        std::fs::write(&file, format!("{password}\n")).expect("a password file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    };
    write("secret");
    open(&server.url()).close();
    let url = server.url().replacen(":secret@", "@", 1);
    let mill = Mill::open(&format!("{url}?password_file={}", file.display())).expect("a mill");
    let lean = source(&mill, LEAN);
    let takers = Takers::default();
    takers.beside(&[&lean], 5, PAUSE, || {
        flow_again(&takers);
        let says = server.password("another-horse");
        until("the old password is refused", PATIENCE, || takers.met(Code::StoreRefused, says));
        write("");
        until("an empty file is refused", PATIENCE, || takers.met(Code::StoreRefused, "is empty"));
        write("another-horse");
        flow_again(&takers);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("a mode");
        server.password("third-horse");
        until("a public file is refused", PATIENCE, || takers.met(Code::StoreRefused, "chmod 600"));
        write("third-horse");
        flow_again(&takers);
    });
    for (_, error) in takers.errors() {
        assert!(!error.message.contains("horse") && !error.message.contains("secret"), "{error}");
    }
}

fn a_lost_table_is_reported_and_a_new_one_never_begins_at_one(server: &dyn Victim) {
    let mill = open(&server.url());
    let lean = source(&mill, LEAN);
    let takers = Takers::default();
    takers.beside(&[&lean], 5, PAUSE, || {
        flow_again(&takers);
        if let Some(says) = server.lose_table() {
            until("the loss is told", PATIENCE, || takers.met(Code::StoreRefused, says));
            persistently(|| mill.init(&[], Change::Apply)).expect("a new table");
        }
        until("the lost row is told", PATIENCE, || {
            takers.met(Code::StoreWentBackwards, "repair 'segment:lean")
        });
        assert!(persistently(|| lean.row()).expect("a look").is_none(), "the row was not made anew");
        let to = takers.highest() + 100_000;
        persistently(|| lean.repair(to, Change::Apply)).expect("repair");
        flow_again(&takers);
    });
    assert!(takers.highest() > 100_000);
}

fn a_server_without_a_free_connection_keeps_those_it_has_and_is_used_when_there_is_one(server: &dyn Victim) {
    let url = server.url();
    let mill = open_patient(&url);
    let lean = source(&mill, LEAN);
    let (takers, late) = (Takers::default(), Takers::default());
    takers.beside(&[&lean], 5, PAUSE, || {
        flow_again(&takers);
        let (says, crowd) = server.crowd();
        let other = Mill::open(&url).expect("a mill opens lazily");
        let other = source(&other, LEAN);
        late.beside(&[&other], 5, PAUSE, || {
            until("the reason is told", PATIENCE, || late.met(Code::StoreUnavailable, says));
            flow_again(&takers);
            // Its connection stays. A server that is slow is a deadline at most.
            let lost: Vec<_> =
                takers.errors().into_iter().filter(|(_, error)| error.code != Code::Deadline).collect();
            assert!(lost.is_empty(), "{lost:?}");
            drop(crowd);
            flow_again(&late);
        });
    });
    assert_outage_in_time(&late, LEAN_DEADLINE);
}

fn a_restored_backup_is_refused_until_it_is_repaired_or_healed(server: &dyn Victim) {
    let mill = open(&server.url());
    let (lean, healed) =
        (source(&mill, LEAN), source(&mill, "segment:healed?step=10&buffer=200ms&backwards=heal"));
    let (takers, at_healed) = (Takers::default(), Takers::default());
    takers.beside(&[&lean], 5, PAUSE, || {
        flow_again(&takers);
        at_healed.beside(&[&healed], 5, PAUSE, || flow_again(&at_healed));
        server.backup();
        flow_again(&takers);
        let before = persistently(|| lean.row()).expect("a look").expect("a row").mark.next;
        at_healed.beside(&[&healed], 5, PAUSE, || {
            let before = at_healed.count();
            until("some ids more", PATIENCE, || at_healed.count() > before + 300);
        });
        server.restore();
        until("it is refused", PATIENCE, || takers.met(Code::StoreWentBackwards, "repair 'segment:lean"));
        let row = persistently(|| lean.row()).expect("a look").expect("a row").mark.next;
        assert!(row < before, "the row is left where the backup had it: {row}, before it was {before}");
        at_healed.beside(&[&healed], 5, PAUSE, || flow_again(&at_healed));
        let to = takers.highest() + 100_000;
        persistently(|| lean.repair(to, Change::Apply)).expect("repair");
        flow_again(&takers);
    });
    assert!(!at_healed.met(Code::StoreWentBackwards, ""), "{:?}", at_healed.errors());
    println!(
        "faults  {}: a restored backup: {} ids repaired, {} healed, none twice",
        on(server),
        takers.distinct(),
        at_healed.distinct()
    );
}
