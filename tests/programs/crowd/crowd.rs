//! Changes fifty hot ids through `Shards` until a file says stop; `crowd.py` tells the arguments and the lines of the log, and does the same.
//!
//! ```text
//! cargo run -p keymill-tests --example crowd -- MILL KIND SHARDS LOG NAME WORKERS
//! ```

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, read_to_string};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use keymill::{Code, Error, Mill, Router, ShardConnection, Shards, WorkError};
use keymill_tests::{nanos, pooled};

const FIRST: u64 = 32_768 << 47;
const IDS: u64 = 50;
const ITEMS: std::ops::RangeInclusive<u64> = 1..=6;

struct Crowd {
    is_postgres: bool,
    file: String,
    name: String,
    log: File,
}

/// What a work leaves: the order's counter and token.
type Done = (u64, String);

fn drawn() -> u64 {
    FIRST + 2 * fastrand::u64(..IDS)
}

/// The rows of a statement, as texts.
fn ask<C: ShardConnection>(connection: &mut C, sql: &str) -> Result<Vec<Vec<String>>, WorkError> {
    let rows = connection.ask(sql)?;
    let text = |cell: Option<Vec<u8>>| String::from_utf8(cell.unwrap_or_default());
    Ok(rows
        .into_iter()
        .map(|row| row.into_iter().map(text).collect::<Result<_, _>>())
        .collect::<Result<_, _>>()?)
}

/// One run of one work.
struct Work<'c, C> {
    connection: &'c mut C,
    id: u64,
    token: String,
    items: BTreeMap<u64, u64>,
}

impl<C: ShardConnection> Work<'_, C> {
    fn ask(&mut self, sql: &str) -> Result<Vec<Vec<String>>, WorkError> {
        ask(self.connection, sql)
    }

    fn insert_order(&mut self) -> Result<(), WorkError> {
        let (id, token) = (self.id, &self.token);
        self.ask(&format!("INSERT INTO t_order (order_id, counter, token) VALUES ({id}, 0, '{token}')"))?;
        Ok(())
    }

    fn delete_order(&mut self) -> Result<(), WorkError> {
        self.ask(&format!("DELETE FROM t_order WHERE order_id = {}", self.id))?;
        Ok(())
    }

    fn insert(&mut self, n: u64) -> Result<(), WorkError> {
        let seats = ITEMS.map(|at| (self.id - FIRST) / 2 * 100 + at);
        let free: Vec<u64> = seats.filter(|seat| !self.items.values().any(|taken| taken == seat)).collect();
        let (id, seat) = (self.id, one(&free));
        self.ask(&format!(
            "INSERT INTO t_item (item_of, n, seat, name) VALUES ({id}, {n}, {seat}, '名{n}')"
        ))?;
        self.items.insert(n, seat);
        Ok(())
    }

    fn delete(&mut self, n: u64) -> Result<(), WorkError> {
        self.ask(&format!("DELETE FROM t_item WHERE item_of = {} AND n = {n}", self.id))?;
        self.items.remove(&n);
        Ok(())
    }

    /// Two rows exchange a value that only one row may have.
    fn exchange(&mut self, first: u64, second: u64) -> Result<(), WorkError> {
        let seat = |n: u64| self.items.get(&n).copied().unwrap_or_default();
        let (a, b) = (seat(first), seat(second));
        for (n, seat) in [(first, "NULL".to_owned()), (second, a.to_string()), (first, b.to_string())] {
            self.ask(&format!("UPDATE t_item SET seat = {seat} WHERE item_of = {} AND n = {n}", self.id))?;
        }
        self.items.extend([(first, b), (second, a)]);
        Ok(())
    }

    /// A line of what it has found and leaves.
    fn run(&mut self, worker: usize) -> Result<(String, Done), WorkError> {
        let (id, token) = (self.id, self.token.clone());
        let before =
            self.ask(&format!("SELECT counter, token FROM t_order WHERE order_id = {id} FOR UPDATE"))?;
        let before = before.first().map(|row| (row[0].clone(), row[1].clone()));
        let counter = if let Some((counter, _)) = &before {
            for row in self.ask(&format!("SELECT n, seat FROM t_item WHERE item_of = {id} FOR UPDATE"))? {
                self.items.insert(row[0].parse()?, row[1].parse()?);
            }
            counter.parse::<u64>()? + 1
        } else {
            self.insert_order()?;
            // The id is locked from now on.
            u64::try_from(nanos() / 1000)?
        };
        if fastrand::u8(..100) == 0 {
            std::thread::sleep(Duration::from_millis(fastrand::u64(20..200)));
        }
        let there: Vec<u64> = self.items.keys().copied().collect();
        let absent: Vec<u64> = ITEMS.filter(|n| !self.items.contains_key(n)).collect();
        let mut is_gone = false;
        match fastrand::u8(..10) {
            _ if before.is_none() => {
                for n in fastrand::choose_multiple(absent, fastrand::usize(..4)) {
                    self.insert(n)?;
                }
            }
            0 => {
                for n in there {
                    self.delete(n)?;
                }
                self.delete_order()?;
                is_gone = true;
            }
            // The whole order comes back at once, with other seats.
            1 => {
                for n in &there {
                    self.delete(*n)?;
                }
                self.delete_order()?;
                self.insert_order()?;
                for n in there.into_iter().rev() {
                    self.insert(n)?;
                }
            }
            2 | 3 if !absent.is_empty() => self.insert(one(&absent))?,
            4 if !there.is_empty() => self.delete(one(&there))?,
            5 | 6 if there.len() > 1 => {
                let two = fastrand::choose_multiple(there, 2);
                self.exchange(two[0], two[1])?;
            }
            // A key comes back.
            7 if !there.is_empty() => {
                let n = one(&there);
                self.delete(n)?;
                self.insert(n)?;
            }
            _ => {}
        }
        let items: Vec<String> = self.items.iter().map(|(n, seat)| format!("{n}:{seat}")).collect();
        let mut state = items.join(",");
        if is_gone {
            "gone".clone_into(&mut state);
        } else {
            self.ask(&format!(
                "UPDATE t_order SET counter = {counter}, token = '{token}', note = 'é''{state}', amount = {counter} + 0.25 WHERE order_id = {id}"
            ))?;
            if state.is_empty() {
                "none".clone_into(&mut state);
            }
        }
        let found = before.map_or_else(|| "- -".to_owned(), |(counter, token)| format!("{counter} {token}"));
        Ok((format!("try {worker} {id} {found} {counter} {token} {state}"), (counter, token)))
    }
}

fn one(list: &[u64]) -> u64 {
    list[fastrand::usize(..list.len())]
}

/// A step, or a shard that does not answer: the next write may succeed.
fn passes(error: &WorkError) -> bool {
    error
        .downcast_ref::<Error>()
        .is_none_or(|error| matches!(error.code, Code::StoreUnavailable | Code::NotReady | Code::LeaseLost))
}

impl Crowd {
    fn note(&self, line: &str) {
        (&self.log).write_all(format!("{line}\n").as_bytes()).expect("a log");
    }

    fn work<C: ShardConnection>(&self, shards: &Shards<C>, worker: usize) {
        let (mut runs, mut held) = (0, String::new());
        let (stop, hold) = (format!("{}.stop", self.file), format!("{}.hold", self.file));
        while !Path::new(&stop).exists() {
            if Path::new(&hold).exists() {
                if let Some(number) = read_to_string(&hold).ok().filter(|number| *number != held) {
                    held = number;
                    self.note(&format!("hold {worker} {held}"));
                }
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            let (id, began) = (drawn(), nanos());
            let done = shards.write(id, |connection| {
                runs += 1;
                let token = format!("{}/{worker}/{runs}", self.name);
                let (line, done) = Work { connection, id, token, items: BTreeMap::new() }.run(worker)?;
                self.note(&line);
                Ok(done)
            });
            let ended = nanos();
            match done {
                Ok((counter, token)) => {
                    self.note(&format!("ack {worker} {id} {counter} {token} {began} {ended}"));
                }
                Err(error) => {
                    assert!(passes(&error), "{error}");
                    let words = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                    let sure = if words.contains("not acknowledged") { "maybe" } else { "sure" };
                    let code = error.downcast_ref::<Error>().map_or("driver", |error| error.code.name());
                    self.note(&format!("no {worker} {id} {began} {ended} {sure} {code} {words}"));
                }
            }
            if fastrand::bool() {
                self.read(shards, worker, drawn());
            }
        }
    }

    fn read<C: ShardConnection>(&self, shards: &Shards<C>, worker: usize, id: u64) {
        let items = if self.is_postgres {
            "string_agg(n || ':' || seat, ',' ORDER BY n)"
        } else {
            "GROUP_CONCAT(CONCAT(n, ':', seat) ORDER BY n)"
        };
        let sql = format!(
            "SELECT counter, token, note, (SELECT {items} FROM t_item WHERE item_of = order_id) FROM t_order WHERE order_id = {id}"
        );
        let began = nanos();
        let found = match shards.read(id, |connection| ask(connection, &sql)) {
            Ok(found) => found,
            Err(error) => {
                assert!(passes(&error), "{error}");
                return;
            }
        };
        let ended = nanos();
        let Some([counter, token, said, items]) = found.first().map(Vec::as_slice) else {
            return self.note(&format!("read {worker} {id} - - {began} {ended}"));
        };
        if *said != format!("é'{items}") {
            self.note(&format!("WRONG {id} {counter} {token} {said} {items}"));
        }
        self.note(&format!("read {worker} {id} {counter} {token} {began} {ended}"));
    }

    /// The workers over connections that `connect` opens to a place.
    fn run<C: ShardConnection + 'static, F>(
        &self,
        router: &Router,
        places: &str,
        workers: usize,
        connect: impl Fn(&str) -> F,
    ) where
        F: Fn() -> Result<C, WorkError> + Send + Sync + 'static,
    {
        let mut shards = Shards::new(router).table("t_order", "order_id").table("t_item", "item_of");
        for (shard, place) in places.split(',').filter_map(|word| word.split_once('=')) {
            shards = shards.shard(shard, connect(place));
        }
        std::thread::scope(|scope| {
            for worker in 0..workers {
                let shards = &shards;
                scope.spawn(move || self.work(shards, worker));
            }
        });
    }
}

/// Its first look at the store may be cut off.
fn router(mill: &Mill) -> Result<Router, Error> {
    loop {
        match mill.router("orders") {
            Err(error) if error.code == Code::StoreUnavailable => {}
            answer => return answer,
        }
    }
}

fn main() -> Result<(), WorkError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [config, kind, places, file, name, workers] = &args[..] else {
        return Err("MILL KIND SHARDS LOG NAME WORKERS".into());
    };
    let log = OpenOptions::new().create(true).append(true).open(file)?;
    let mill = Mill::open(config)?;
    let (router, workers) = (router(&mill)?, workers.parse()?);
    let crowd = Crowd { is_postgres: kind == "postgres", file: file.clone(), name: name.clone(), log };
    if crowd.is_postgres {
        crowd.run(&router, places, workers, |place| {
            let url = format!("postgres://shop:secret@{place}");
            pooled::pool(move || Ok(postgres::Client::connect(&url, postgres::NoTls)?))
        });
    } else {
        crowd.run(&router, places, workers, |place| {
            let url = format!("mysql://shop:secret@{place}?prefer_socket=false&pool_min=0&pool_max=10");
            let options = mysql::OptsBuilder::from_opts(mysql::Opts::from_url(&url).expect("a place"))
                // Otherwise writers of new ids wait for each other's gaps.
                .init(vec!["SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"]);
            let pool = mysql::Pool::new(options).expect("a pool");
            move || Ok(pool.get_conn()?)
        });
    }
    mill.close();
    Ok(())
}
