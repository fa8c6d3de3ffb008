//! A worker that changes its place: a fixed one is leased, a leased one is given, its source gets another pool. Ids never come twice,
//! and a place that is still in use is not taken away.

use std::collections::HashSet;
use std::sync::Arc;

use keymill::store::{
    BeginMark, Beside, FaultKind, Key, Left, OwnSlot, Places, RaisePool, Release, Renewal, Slots, Store,
    StoreIndex, Take, Taken,
};
use keymill::{Change, Mill};
use keymill_tests::lease::{self, LEASE_MS, MARK, PRESENT};
use keymill_tests::redis as redis_server;

use crate::bench::{Bench, Kind, Place, unique};

/// The places of one source, in tables of their own, on one store.
struct Moves {
    bench: Bench,
    places: Arc<Places>,
}

impl Moves {
    fn new(bench: Bench) -> Moves {
        Moves::of("tx 'orders' %", bench)
    }

    fn of(source: &str, bench: Bench) -> Moves {
        let layouts = ["time:41@1ms,worker:2,seq:2", "time:41@1ms,dc-worker:1+1,seq:2"].map(str::to_owned);
        let places = Arc::new(Places {
            source: source.to_owned(),
            fixed_table: bench.table.clone(),
            pool_table: unique("w"),
            layouts: layouts.to_vec(),
        });
        let moves = Moves { bench, places };
        let keys = [moves.pool(source), moves.fixed(0)];
        moves.open().init(&keys, false).expect("the tables");
        moves
    }

    fn open(&self) -> Box<dyn Store> {
        self.bench.open()
    }

    fn pool(&self, name: &str) -> Arc<Key> {
        Arc::new(Key::pool(&self.places.pool_table, name))
    }

    /// The row of a fixed worker.
    fn fixed(&self, worker: u64) -> Arc<Key> {
        Arc::new(self.places.fixed_row(worker))
    }

    fn begin(&self, worker: u64) -> BeginMark {
        BeginMark { key: self.fixed(worker), worker, places: self.places.clone(), store: StoreIndex::ONLY }
    }

    fn take(&self, pool: &str, last: u64, token: u64) -> Take {
        Take {
            layout: "time:41@1ms,worker:2,seq:2 epoch E".into(),
            slots: Slots { first: 0, last },
            beside: Beside { places: Some(self.places.clone()), passed_over: Vec::new() },
            ..lease::take(self.pool(pool), token)
        }
    }

    fn own(&self) -> &str {
        &self.places.source
    }

    /// What the row of worker 0 says of its processes: the owner, and the source that it notes.
    fn note(&self) -> (String, String) {
        let row = self.open().slots(&self.pool(self.own())).expect("rows").slots.remove(0);
        (row.owner, row.source)
    }

    /// Writes another word into the column `state` of worker 0, directly on the server; `false`: memory has no words.
    fn set_state(&self, word: &str) -> bool {
        let (table, pool) = (&self.places.pool_table, self.own());
        match &self.bench.place {
            Place::Memory(_) => return false,
            Place::Redis => {
                let (at, mut server) =
                    (format!("{table}:{pool}"), redis_server::connection_of(&redis_server::url()));
                let row: String = redis_server::say(&mut server, &["HGET", &at, "0"]);
                let changed = row.replacen(" leased ", &format!(" {word} "), 1);
                assert_ne!(row, changed);
                let _: u64 = redis_server::say(&mut server, &["HSET", &at, "0", &changed]);
            }
            _ => {
                let sql = format!("UPDATE {table} SET state = ? WHERE pool = ? AND slot = 0");
                assert_eq!(self.bench.tamper(&sql, &[word, pool]), 1);
            }
        }
        true
    }

    /// Puts the pool as a build before 0.2.0 left it, with a slot at mark 900; `false`: memory lasts for no build.
    fn make_of_earlier_build(&self) -> bool {
        let (table, pool) = (&self.places.pool_table, self.own());
        let layout = format!("{} epoch E", self.places.layouts[0]);
        match &self.bench.place {
            Place::Memory(_) => return false,
            Place::Redis => {
                let (at, mut server) =
                    (format!("{table}:{pool}"), redis_server::connection_of(&redis_server::url()));
                let old = ["HSET", &at, "layout", &layout, "0", "5 900 0 host:7 for tx"];
                let _: u64 = redis_server::say(&mut server, &old);
            }
            _ => {
                self.bench.tamper(&format!("DROP TABLE {table}"), &[]);
                let columns = "pool VARCHAR(99) NOT NULL, slot BIGINT NOT NULL, token BIGINT NOT NULL, \
                    mark BIGINT NOT NULL, ends_at BIGINT NOT NULL, owner VARCHAR(99) NOT NULL, \
                    layout VARCHAR(99) NOT NULL, PRIMARY KEY (pool, slot)";
                self.bench.tamper(&format!("CREATE TABLE {table} ({columns})"), &[]);
                for row in ["0, 5, 900, 0, 'host:7', ''", "4611686018427387904, 0, 0, 0, '', ?"] {
                    let sql = format!("INSERT INTO {table} VALUES (?, {row})");
                    let values = [pool, &layout];
                    self.bench.tamper(&sql, &values[..sql.matches('?').count()]);
                }
            }
        }
        true
    }

    /// Gives a slot back as a clean close does.
    fn free(&self, store: &mut dyn Store, pool: &str, token: u64, taken: Taken, used: u64) {
        let own = self.slot(pool, token, taken);
        let freed = store.free_slots(&[Release { own, used }]).expect("an answer");
        assert_eq!(freed, [true]);
    }

    fn slot(&self, pool: &str, token: u64, taken: Taken) -> OwnSlot {
        OwnSlot {
            key: self.pool(pool),
            slot: taken.slot,
            left: vec![Left { token, mark: taken.mark }],
            source: self.own().into(),
        }
    }
}

fn a_fixed_worker_does_not_begin_while_another_process_leases_it_and_then_begins_at_its_mark(moves: &Moves) {
    let (mut one, mut two) = (moves.open(), moves.open());
    let taken = one.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    assert_eq!((taken.slot, taken.start, taken.mark), (0, 0, MARK));
    for _ in 0..2 {
        let fault = two.begin_mark(&moves.begin(0)).expect_err("a lease");
        assert_eq!(fault.kind, FaultKind::NoneFree, "{fault}");
        assert!(fault.to_string().contains("`host:11` leases it"), "{fault}");
    }
    assert_eq!(two.begin_mark(&moves.begin(1)).expect("another worker"), 1);
    moves.free(&mut *one, moves.own(), 11, taken, 1_002);
    assert_eq!(two.begin_mark(&moves.begin(0)).expect("a mark"), 1_002);
    // It is current: no question more, and the same answer.
    assert_eq!(two.begin_mark(&moves.begin(0)).expect("a mark"), 1_002);
    assert_eq!(two.raise(&moves.fixed(0), Some(1_002), 1_020).expect("raised"), 1_002);
    // The process that leased it is told, should it come back.
    let own = moves.slot(moves.own(), 11, Taken { mark: 1_002, ..taken });
    let renewed = one
        .renew_slots(&[Renewal { own, to: Left { token: 12, mark: 1_050 }, lease_ms: LEASE_MS }])
        .expect("an answer");
    assert_eq!(renewed.marks[0].as_ref().expect_err("told").kind, FaultKind::Taken);
}

fn a_lease_passes_over_a_fixed_worker_in_use_and_ends_one_that_is_not(moves: &Moves) {
    let (mut one, mut two) = (moves.open(), moves.open());
    assert_eq!(one.begin_mark(&moves.begin(0)).expect("a mark"), 1);
    one.raise(&moves.fixed(0), Some(1), PRESENT + 2).expect("raised");
    let other = two.take_slot(&moves.take(moves.own(), 3, 11)).expect("a slot");
    assert_ne!(other.slot, 0);
    let fault = two.take_slot(&moves.take(moves.own(), 0, 12)).expect_err("the only slot");
    assert_eq!(fault.kind, FaultKind::NoneFree, "{fault}");
    assert!(fault.to_string().contains("0 is passed over: the fixed worker of"), "{fault}");
    // A moment later.
    let later = Take { present: PRESENT + 2, latest_mark: PRESENT + 5, ..moves.take(moves.own(), 0, 13) };
    let taken = two.take_slot(&later).expect("a slot");
    assert_eq!((taken.slot, taken.start), (0, PRESENT + 3));
    let told = one.raise(&moves.fixed(0), Some(PRESENT + 2), PRESENT + 9).expect_err("told");
    assert_eq!(told.kind, FaultKind::Taken, "{told}");
    let told = one.raise(&moves.fixed(0), None, PRESENT + 9).expect_err("told");
    assert_eq!(told.kind, FaultKind::Taken, "{told}");
    assert_eq!(one.begin_mark(&moves.begin(0)).expect_err("a lease").kind, FaultKind::NoneFree);
}

/// A process is killed after it has taken the slot and before it has looked at the other places.
fn a_take_that_was_cut_short_is_no_proof_that_the_other_places_were_looked_at(moves: &Moves) {
    let mut store = moves.open();
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a fixed worker"), 1);
    store.raise(&moves.fixed(0), Some(1), PRESENT + 50).expect("in use");
    // The same request as today's, carried out up to the write of the slot.
    let alone = |token| Take { beside: Beside::default(), ..moves.take(moves.own(), 0, token) };
    store.take_slot(&alone(11)).expect("a slot");
    let raise = |store: &mut dyn Store| {
        let layout = moves.take(moves.own(), 0, 0).layout;
        let raise = RaisePool {
            key: moves.pool(moves.own()),
            layout,
            store: StoreIndex::ONLY,
            to: MARK + 1,
            token: 90,
        };
        store.raise_pool(&raise).expect("raised, so the lease is over");
    };
    raise(&mut *store);
    let late = Take { latest_mark: MARK + 9, ..moves.take(moves.own(), 0, 12) };
    let fault = store.take_slot(&late).expect_err("the fixed worker is in use");
    assert!(
        fault.to_string().contains("the fixed worker of `snowflake:tx 'orders' %` was in use"),
        "{fault}"
    );
}

/// Neither a slot that was taken, nor one that was renewed, is noted before the other places were looked at.
fn a_slot_is_noted_by_its_first_renewal_or_its_end(moves: &Moves) {
    let mut store = moves.open();
    let noted = |owner: &str, source: &str| (owner.to_owned(), source.to_owned());
    let taken = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    assert_eq!(moves.note(), noted("host:11", ""));
    let own = moves.slot(moves.own(), 11, taken);
    let renewal = Renewal { own, to: Left { token: 12, mark: MARK + 1 }, lease_ms: LEASE_MS };
    store.renew_slots(&[renewal]).expect("an answer").marks.remove(0).expect("renewed");
    assert_eq!(moves.note(), noted("host:11", moves.own()));
    let own = moves.slot(moves.own(), 11, taken);
    let own = OwnSlot { left: vec![Left { token: 12, mark: MARK + 1 }], ..own };
    assert_eq!(store.free_slots(&[Release { own, used: 1_001 }]).expect("an answer"), [true]);
    assert_eq!(moves.note(), noted("host:11", moves.own()));
    // It stays so with the next process of the source.
    store.take_slot(&moves.take(moves.own(), 0, 13)).expect("a slot");
    assert_eq!(moves.note(), noted("host:13", moves.own()));
}

fn a_host_whose_name_reads_like_a_note_notes_nothing(moves: &Moves) {
    let mut store = moves.open();
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 1);
    store.raise(&moves.fixed(0), Some(1), 900).expect("raised");
    let owner = format!("host for {}", moves.own());
    // A process that was killed before it had looked at the fixed worker.
    let cut_short = Take {
        owner: owner.clone().into(),
        beside: Beside::default(),
        lease_ms: 1,
        ..moves.take(moves.own(), 0, 11)
    };
    let taken = store.take_slot(&cut_short).expect("a slot");
    let own = OwnSlot { source: "".into(), ..moves.slot(moves.own(), 11, taken) };
    store.free_slots(&[Release { own, used: 600 }]).expect("an answer");
    assert_eq!(moves.note(), (owner, String::new()));
    let taken = store.take_slot(&moves.take(moves.own(), 0, 12)).expect("a slot");
    assert_eq!((taken.slot, taken.start), (0, 901), "above the fixed worker's mark");
}

fn the_name_of_a_host_is_cut_and_that_of_the_source_never(bench: Bench) {
    let (source, host) = ("源".repeat(170), "h".repeat(300));
    let moves = Moves::of(&source, bench);
    let mut store = moves.open();
    let by = |token: u64| Take { owner: host.as_str().into(), ..moves.take(&source, 0, token) };
    let taken = store.take_slot(&by(11)).expect("a slot");
    assert!(taken.has_moved, "the other places were looked at");
    moves.free(&mut *store, &source, 11, taken, 1_001);
    assert_eq!(moves.note(), (format!("{}…", &host[..252]), source.clone()));
    let again = store.take_slot(&by(12)).expect("a slot");
    assert!(
        !again.has_moved && again.start == 1_001,
        "{again:?}: the note says that there is no other place"
    );
    // It fits no column, on any store.
    let longer = Places { source: "s".repeat(513), ..Places::clone(&moves.places) };
    let beside = Beside { places: Some(Arc::new(longer)), passed_over: Vec::new() };
    let refused = store.take_slot(&Take { beside, ..moves.take("shared", 0, 13) }).expect_err("too long");
    assert!(refused.kind == FaultKind::Refused && refused.to_string().contains("513 bytes"), "{refused}");
    assert_eq!(store.slots(&moves.pool("shared")).expect("rows").record, None, "nothing was changed");
}

fn a_table_of_an_earlier_build_is_refused_with_what_to_do_and_left_alone(moves: &Moves) {
    if !moves.make_of_earlier_build() {
        return;
    }
    let raise = RaisePool {
        key: moves.pool(moves.own()),
        layout: moves.take(moves.own(), 0, 0).layout,
        store: StoreIndex::ONLY,
        to: 3_000,
        token: 77,
    };
    let mut store = moves.open();
    let refused = [
        store.take_slot(&moves.take(moves.own(), 3, 12)).map(drop),
        store.begin_mark(&moves.begin(0)).map(drop),
        store.repair_mark(&moves.begin(0), 5_000, false).map(drop),
        store.raise_pool(&raise).map(drop),
        store.slots(&moves.pool(moves.own())).map(drop),
    ];
    for refused in refused {
        let fault = refused.expect_err("its rows may have the newest marks");
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        for part in ["was made by an earlier build", "nothing was changed", "Stop every program", "rename it"]
        {
            assert!(fault.to_string().contains(part), "{fault}");
        }
    }
    if matches!(moves.bench.place, Place::Redis) {
        let at = format!("{}:{}", moves.places.pool_table, moves.own());
        let mut server = redis_server::connection_of(&redis_server::url());
        let row: String = redis_server::say(&mut server, &["HGET", &at, "0"]);
        assert_eq!(row, "5 900 0 host:7 for tx");
    } else {
        let rows =
            format!("UPDATE {} SET mark = 901 WHERE mark = 900 AND token = 5", moves.places.pool_table);
        assert_eq!(moves.bench.tamper(&rows, &[]), 1, "it is as it was");
    }
}

/// What the builds before 0.2.0 say to their tables. Each of them would take numbers or workers that processes of this build have.
const EARLIER_SEGMENTS: [&str; 4] = [
    "SELECT period, next FROM {t} WHERE name = 'segment:a'",
    "UPDATE {t} SET next = next + 10 WHERE period = 0",
    "UPDATE {t} SET period = 0, next = 900",
    "INSERT INTO {t} (name, period, next) VALUES ('segment:a', 0, 1)",
];
const EARLIER_WORKERS: [&str; 3] = [
    "SELECT slot, token, mark, ends_at, owner, layout FROM {t} WHERE pool = 'a'",
    "UPDATE {t} SET token = 1, mark = 900, ends_at = 0, owner = 'host:7'",
    "INSERT INTO {t} (pool, slot, token, mark, ends_at, owner, layout) VALUES ('a', 0, 1, 900, 0, 'host:7', '')",
];

/// Their scripts, up to the change that they would make.
const EARLIER_RESERVE: &str = "local row = redis.call('HMGET', KEYS[1], 'period', 'next') \
    if row[1] ~= ARGV[1] or not row[2] then return false end \
    redis.call('HINCRBY', KEYS[1], 'next', ARGV[2]) return row[2]";
const EARLIER_REPLACE: &str = "local row = redis.call('HMGET', KEYS[1], 'period', 'next') \
    if ARGV[2] == '' then if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end \
    elseif row[1] ~= ARGV[1] or row[2] ~= ARGV[2] then return 0 end \
    redis.call('HSET', KEYS[1], 'period', ARGV[3], 'next', ARGV[4]) return 1";

fn the_statements_of_an_earlier_build_fail_on_the_tables_of_this_one(moves: &Moves) {
    let mut store = moves.open();
    store.begin_mark(&moves.begin(0)).expect("a mark");
    store.take_slot(&moves.take("other", 3, 11)).expect("a slot");
    let (segments, workers) = (&moves.places.fixed_table, &moves.places.pool_table);
    let tables = [(segments, &EARLIER_SEGMENTS[..], "period"), (workers, &EARLIER_WORKERS[..], "owner")];
    match &moves.bench.place {
        Place::Memory(_) => {}
        Place::Redis => {
            let mut server = redis_server::connection_of(&redis_server::url());
            let (row, pool) = (format!("{segments}:{}", moves.fixed(0).name), format!("{workers}:other"));
            let next: String = redis_server::say(&mut server, &["HGET", &row, "next"]);
            let before: Vec<u8> = redis_server::say(&mut server, &["DUMP", &row]);
            for words in [
                &[EARLIER_RESERVE, "1", &row, "0", "10"][..],
                &[EARLIER_REPLACE, "1", &row, "0", &next, "0", "900"],
                &[EARLIER_REPLACE, "1", &row, "", "", "0", "1"],
            ] {
                let answer: Option<u64> = redis_server::say(&mut server, &[&["EVAL"], words].concat());
                assert_eq!(answer.unwrap_or(0), 0, "{words:?}");
            }
            assert_eq!(redis_server::say::<Vec<u8>>(&mut server, &["DUMP", &row]), before);
            // They refuse a pool with a field that is none of these.
            let is_known =
                |field: &String| matches!(field.as_str(), "layout" | "floor") || field.parse::<u64>().is_ok();
            let fields: Vec<String> = redis_server::say(&mut server, &["HKEYS", &pool]);
            assert!(!fields.iter().all(is_known), "{fields:?}");
        }
        _ => {
            for (table, statements, column) in tables {
                for statement in statements {
                    let said = moves.bench.refusal(&statement.replace("{t}", table));
                    assert!(said.as_ref().is_some_and(|said| said.contains(column)), "{statement}: {said:?}");
                }
            }
        }
    }
}

fn a_slot_in_an_unknown_state_keeps_every_process_from_its_worker(moves: &Moves) {
    let mut store = moves.open();
    let taken = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    if !moves.set_state("lent") {
        return;
    }
    let own = moves.slot(moves.own(), 11, taken);
    let raise = RaisePool {
        key: moves.pool(moves.own()),
        layout: moves.take(moves.own(), 0, 0).layout,
        store: StoreIndex::ONLY,
        to: 3_000,
        token: 77,
    };
    let refused = [
        store.take_slot(&moves.take(moves.own(), 3, 12)).map(drop),
        store.take_slot(&moves.take("shared", 3, 12)).map(drop),
        store.begin_mark(&moves.begin(1)).map(drop),
        store.repair_mark(&moves.begin(1), 5_000, false).map(drop),
        store.free_slots(&[Release { own, used: 1_001 }]).map(drop),
        store.raise_pool(&raise).map(drop),
        store.slots(&moves.pool(moves.own())).map(drop),
    ];
    for refused in refused {
        let fault = refused.expect_err("the row may have any mark");
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        assert!(fault.to_string().contains("`lent` in `state`, which is none of `leased`, "), "{fault}");
    }
    assert!(moves.open().look(&moves.fixed(1)).expect("an answer").is_none_or(|row| row.mark.next < 2));
}

/// Changes the own pool, or the row of the fixed worker 0, directly on the server; `false`: memory has neither.
fn spoil(moves: &Moves, redis: &[&str], sql: &str) -> bool {
    let (segments, workers) = (&moves.places.fixed_table, &moves.places.pool_table);
    match &moves.bench.place {
        Place::Memory(_) => return false,
        Place::Redis => {
            let (pool, row) =
                (format!("{workers}:{}", moves.own()), format!("{segments}:{}", moves.fixed(0).name));
            let words: Vec<_> =
                redis.iter().map(|word| word.replace("{w}", &pool).replace("{s}", &row)).collect();
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            let mut server = redis_server::connection_of(&redis_server::url());
            let _: ::redis::Value = redis_server::say(&mut server, &words);
        }
        _ => {
            moves.bench.tamper(&sql.replace("{w}", workers).replace("{s}", segments), &[]);
        }
    }
    true
}

/// No process begins with worker 0 at another place.
fn is_kept_from_worker_0(moves: &Moves, kind: FaultKind, says: &str) {
    let mut store = moves.open();
    let pool = Take { slots: Slots { first: 0, last: 0 }, ..moves.take("shared", 0, 12) };
    for refused in [store.begin_mark(&moves.begin(0)).map(drop), store.take_slot(&pool).map(drop)] {
        let fault = refused.expect_err(says);
        assert_eq!(fault.kind, kind, "{fault}");
        assert!(fault.to_string().contains(says), "`{says}` is not in: {fault}");
    }
}

fn a_pool_that_cannot_be_read_keeps_every_process_from_its_worker(moves: &Moves) {
    let mut store = moves.open();
    let taken = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    moves.free(&mut *store, moves.own(), 11, taken, 1_002);
    let upper = "1 1 TIME:41@1MS,WORKER:2,SEQ:2 EPOCH E";
    let set = "UPDATE {w} SET layout = 'TIME:41@1MS,WORKER:2,SEQ:2 EPOCH E' WHERE slot = 4611686018427387904";
    if !spoil(moves, &["HSET", "{w}", "record", upper], set) {
        return;
    }
    is_kept_from_worker_0(moves, FaultKind::Refused, "which is no layout");
    spoil(moves, &["HDEL", "{w}", "record"], "DELETE FROM {w} WHERE slot = 4611686018427387904");
    is_kept_from_worker_0(moves, FaultKind::Refused, "no record of its layout");
    let layout = moves.take(moves.own(), 0, 0).layout;
    let key = moves.pool(moves.own());
    store
        .raise_pool(&RaisePool { key, layout, store: StoreIndex::ONLY, to: 3_000, token: 77 })
        .expect("mended");
    match moves.bench.place {
        Place::Redis => {
            spoil(moves, &["EXPIRE", "{w}", "1000"], "");
            is_kept_from_worker_0(moves, FaultKind::Unsafe, "expires");
            spoil(moves, &["PERSIST", "{w}"], "");
        }
        Place::MariaDb => {
            spoil(moves, &[], "ALTER TABLE {w} DROP PRIMARY KEY");
            is_kept_from_worker_0(moves, FaultKind::Refused, "no primary key");
            spoil(moves, &[], "ALTER TABLE {w} ADD PRIMARY KEY (pool, slot), ENGINE=MyISAM");
            is_kept_from_worker_0(moves, FaultKind::Unsafe, "MyISAM");
            spoil(moves, &[], "ALTER TABLE {w} ENGINE=InnoDB");
        }
        _ => {}
    }
    assert_eq!(moves.open().begin_mark(&moves.begin(0)).expect("a mark"), 3_000);
}

fn a_mark_with_a_date_is_refused(moves: &Moves) {
    let mut store = moves.open();
    store.begin_mark(&moves.begin(0)).expect("a mark");
    if !spoil(moves, &["HSET", "{s}", "date", "7"], "UPDATE {s} SET date = 7") {
        return;
    }
    let own = store.take_slot(&moves.take(moves.own(), 0, 11)).map(drop);
    let repaired = store.repair_mark(&moves.begin(0), 5_000, false).map(drop);
    for refused in [store.begin_mark(&moves.begin(0)).map(drop), own, repaired] {
        let fault = refused.expect_err("it has a date");
        assert!(fault.kind == FaultKind::Refused && fault.to_string().contains("has the date 7"), "{fault}");
    }
}

/// An id holds its tick and not the epoch, so a tick that was used stays used when the epoch changes.
fn a_pool_of_another_epoch_counts(moves: &Moves) {
    let mut store = moves.open();
    let taken = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    moves.free(&mut *store, moves.own(), 11, taken, 1_002);
    let later = Take { layout: "time:41@1ms,worker:2,seq:2 epoch LATER".into(), ..moves.take("p2", 0, 12) };
    assert_eq!(store.take_slot(&later).expect("a slot").start, 1_002);
}

fn a_slot_of_another_pool_begins_above_the_marks_of_the_sources_own_pool_and_back(moves: &Moves) {
    let mut store = moves.open();
    let own = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    let fault = store.take_slot(&moves.take("shared", 0, 12)).expect_err("a lease of the own pool");
    assert_eq!(fault.kind, FaultKind::NoneFree, "{fault}");
    moves.free(&mut *store, moves.own(), 11, own, 1_001);
    let shared = store.take_slot(&moves.take("shared", 0, 13)).expect("a slot");
    assert_eq!((shared.slot, shared.start), (0, 1_001));
    let fault = store.take_slot(&moves.take(moves.own(), 0, 14)).expect_err("a lease of the other pool");
    assert_eq!(fault.kind, FaultKind::NoneFree, "{fault}");
    moves.free(&mut *store, "shared", 13, shared, 1_002);
    let back = store.take_slot(&moves.take(moves.own(), 0, 15)).expect("a slot");
    assert_eq!((back.slot, back.start), (0, 1_002));
    assert_eq!(store.begin_mark(&moves.begin(0)).expect_err("a lease").kind, FaultKind::NoneFree);
}

fn a_slot_that_notes_no_source_is_compared_with_the_fixed_worker(moves: &Moves) {
    let mut store = moves.open();
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 1);
    store.raise(&moves.fixed(0), Some(1), 900).expect("raised");
    // A process that knows no other places leases the worker, and leaves no note.
    let unaware = Take { beside: Beside::default(), ..moves.take(moves.own(), 0, 11) };
    let taken = store.take_slot(&unaware).expect("a slot");
    let own = OwnSlot { source: "".into(), ..moves.slot(moves.own(), 11, taken) };
    assert_eq!(store.free_slots(&[Release { own, used: 600 }]).expect("an answer"), [true]);
    let taken = store.take_slot(&moves.take(moves.own(), 0, 12)).expect("a slot");
    assert_eq!((taken.slot, taken.start), (0, 901));
}

fn a_worker_that_was_leased_is_raised_by_repair_and_stays_so(moves: &Moves) {
    let mut store = moves.open();
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 1);
    let taken = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    let (before, after) = store.repair_mark(&moves.begin(0), 5_000, true).expect("a dry run");
    assert_eq!((before.map(|row| row.mark.next), after.mark.next), (Some(2), 5_000));
    store.repair_mark(&moves.begin(0), 5_000, false).expect("repaired");
    // The process that leases it is told, and no kind of worker begins below.
    let own = moves.slot(moves.own(), 11, taken);
    let renewal = Renewal { own, to: Left { token: 12, mark: 1_050 }, lease_ms: LEASE_MS };
    let told = store.renew_slots(&[renewal]).expect("an answer").marks.remove(0).expect_err("told");
    assert_eq!(told.kind, FaultKind::Taken, "{told}");
    for pool in [moves.own(), "another"] {
        let early = store.take_slot(&moves.take(pool, 0, 13)).expect_err("it begins later");
        assert_eq!(early.kind, FaultKind::NoneFree, "{early}");
    }
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 5_000);
}

fn a_repaired_worker_begins_after_a_look_at_the_other_places(moves: &Moves) {
    let (mut one, mut two) = (moves.open(), moves.open());
    // Leased, and no process was ever given the number.
    let taken = one.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    let (before, after) = two.repair_mark(&moves.begin(0), 500, false).expect("repaired");
    assert_eq!((before, after.mark.next), (None, 500));
    assert_eq!(two.begin_mark(&moves.begin(0)).expect("a mark"), taken.mark, "above the ids of the lease");
    // Never lower, and its process is told.
    let lower = two.repair_mark(&moves.begin(0), 1_001, false).expect_err("it stands higher");
    assert_eq!(lower.kind, FaultKind::Refused, "{lower}");
    assert_eq!(two.raise(&moves.fixed(0), Some(taken.mark), 1_200).expect("raised"), taken.mark);
    for typed in ["once", "twice"] {
        two.repair_mark(&moves.begin(0), 1_500, false)
            .unwrap_or_else(|fault| panic!("typed {typed}: {fault}"));
    }
    let told = two.raise(&moves.fixed(0), Some(1_200), 1_210).expect_err("told");
    assert_eq!(told.kind, FaultKind::Taken, "{told}");
    assert_eq!(two.begin_mark(&moves.begin(0)).expect("a mark"), 1_500);
}

fn a_fixed_worker_whose_row_was_put_back_begins_above_the_pool(moves: &Moves) {
    let mut store = moves.open();
    // It was current before the leases.
    let taken = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    moves.free(&mut *store, moves.own(), 11, taken, 1_002);
    store.raise(&moves.fixed(0), Some(0), 900).expect("a current row");
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 1_002);
    // A repair of the pool counts for the fixed worker too.
    let raise = RaisePool {
        key: moves.pool(moves.own()),
        layout: "time:41@1ms,worker:2,seq:2 epoch E".into(),
        store: StoreIndex::ONLY,
        to: 3_000,
        token: 77,
    };
    store.raise_pool(&raise).expect("raised");
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 3_000);
}

/// How many ids a step takes: more than its layout has in the time it takes.
const BURST: usize = 3_000;

fn no_id_comes_twice_while_a_source_moves_from_place_to_place(moves: &Moves) {
    let url = match &moves.bench.place {
        Place::Memory(_) => format!("memory:{}", unique("moves")),
        _ => crate::banks::url(&moves.bench).expect("a server"),
    };
    let keeper = Mill::open(&url).expect("a mill");
    keeper.init(&["snowflake:tx", "snowflake:tx?worker=0"], Change::Apply).expect("the tables");
    let (name, shared) = (unique("moving"), unique("shared"));
    let spec_with = |options: &str| format!("snowflake:{name}?deadline=5m&{options}");
    let (plain, split) = ("layout=time:41@1ms,worker:5,seq:2", "layout=time:41@1ms,dc-worker:2+3,seq:2");
    let pool = format!("{plain}&slots=0-0&pool={shared}");
    let leased = format!("{plain}&slots=0-0");
    let fixed = format!("{plain}&worker=0");
    let steps = [
        fixed.clone(),
        format!("{split}&worker=0+0"),
        leased.clone(),
        fixed.clone(),
        pool.clone(),
        leased.clone(),
        pool,
        fixed,
        leased,
    ];
    let mut ids = HashSet::new();
    for (at, step) in steps.iter().enumerate() {
        let mill = Mill::open(&url).expect("a mill");
        let source = mill.source(&spec_with(step)).expect("a source");
        for _ in 0..BURST {
            let id = source.next().expect("an id");
            assert!(ids.insert(id), "step {at}, {step}: {id} came twice");
        }
        mill.close();
    }
}

/// Defines each function as a test for each store.
macro_rules! moves {
    ($($name:ident)*) => {
        moves!(@ memory, Bench::memory(Kind::Segment), $($name)*);
        moves!(@ sqlite, Bench::sqlite(Kind::Segment), $($name)*);
        moves!(@ mariadb, Bench::mariadb(Kind::Segment), $($name)*);
        moves!(@ tidb, Bench::tidb(Kind::Segment), $($name)*);
        moves!(@ postgres, Bench::postgres(Kind::Segment), $($name)*);
        moves!(@ redis, Bench::redis(Kind::Segment), $($name)*);
    };
    (@ $module:ident, $bench:expr, $($name:ident)*) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $name() {
                    super::$name(&Moves::new($bench))
                }
            )*

            #[test]
            fn the_name_of_a_host_is_cut_and_that_of_the_source_never() {
                super::the_name_of_a_host_is_cut_and_that_of_the_source_never($bench)
            }
        }
    };
}

moves! {
    a_fixed_worker_does_not_begin_while_another_process_leases_it_and_then_begins_at_its_mark
    a_lease_passes_over_a_fixed_worker_in_use_and_ends_one_that_is_not
    a_take_that_was_cut_short_is_no_proof_that_the_other_places_were_looked_at
    a_slot_is_noted_by_its_first_renewal_or_its_end
    a_host_whose_name_reads_like_a_note_notes_nothing
    a_slot_in_an_unknown_state_keeps_every_process_from_its_worker
    a_table_of_an_earlier_build_is_refused_with_what_to_do_and_left_alone
    the_statements_of_an_earlier_build_fail_on_the_tables_of_this_one
    a_pool_that_cannot_be_read_keeps_every_process_from_its_worker
    a_mark_with_a_date_is_refused
    a_pool_of_another_epoch_counts
    a_slot_of_another_pool_begins_above_the_marks_of_the_sources_own_pool_and_back
    a_slot_that_notes_no_source_is_compared_with_the_fixed_worker
    a_worker_that_was_leased_is_raised_by_repair_and_stays_so
    a_repaired_worker_begins_after_a_look_at_the_other_places
    a_fixed_worker_whose_row_was_put_back_begins_above_the_pool
    no_id_comes_twice_while_a_source_moves_from_place_to_place
}
