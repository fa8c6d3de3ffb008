//! What processes leave of a day of serials: a burst burns no more of it than it used, and its last number is used too.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use keymill::{Change, Code, Error, Mill, Source};
use keymill_tests::ci::patient;
use keymill_tests::{mariadb, rivals};
use mysql::prelude::Queryable;

/// The variable that makes this test binary a worker: `SPEC|FOLDER|NUMBER|COUNT`.
const WORKER: &str = "KEYMILL_TEST_DAY";
/// A burst of a worker.
const BURST: usize = 5_000;
/// The step of every source here, unless its pattern makes it less.
const STEP: u64 = 500;

fn mill() -> Mill {
    Mill::open(&patient(&mariadb::url())).unwrap()
}

/// The next serial, or why the day has no more.
fn next(source: &Source) -> Result<String, Error> {
    loop {
        match source.next_text() {
            // A busy server.
            Err(error) if matches!(error.code, Code::Deadline | Code::StoreUnavailable) => {
                eprintln!("{error}");
            }
            answer => return answer,
        }
    }
}

fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_there() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Takes one serial, waits until all workers have one, and goes on in bursts, to `COUNT` or to the day's end. Then it writes what
/// it took and waits to be killed.
#[test]
fn a_worker_process_takes_its_serials() {
    let Ok(order) = std::env::var(WORKER) else { return };
    let parts: Vec<&str> = order.split('|').collect();
    let [spec, folder, number, count] = parts[..] else {
        panic!("{WORKER}={order} is not SPEC|FOLDER|NUMBER|COUNT")
    };
    let (folder, count) = (Path::new(folder), count.parse().unwrap());
    let mill = mill();
    let source = mill.source(&format!("{spec}&deadline=60s")).unwrap();
    let mut taken = vec![next(&source).unwrap()];
    fs::write(folder.join(format!("{number}.begun")), "").unwrap();
    wait_for("the start of all", || folder.join("go").exists());
    let mut refused = String::new();
    while taken.len() < count && refused.is_empty() {
        match next(&source) {
            Ok(text) => taken.push(text),
            Err(error) => refused = error.code.name().to_owned(),
        }
        if taken.len().is_multiple_of(BURST) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    if !refused.is_empty() {
        // And so is each later caller.
        assert_eq!(next(&source).unwrap_err().code.name(), refused);
    }
    taken.push(refused);
    fs::write(folder.join("writing"), "").unwrap();
    let file = folder.join(format!("{number}.serials"));
    fs::write(file.with_extension("part"), taken.join("\n")).unwrap();
    fs::rename(file.with_extension("part"), file).unwrap();
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Processes that are killed, and not closed, when they have done their work: nothing is given back.
struct Workers {
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Workers {
    fn start(processes: usize, spec: &str, count: usize) -> Workers {
        let folder = tempfile::tempdir().unwrap();
        let children = (0..processes).map(|number| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "days::a_worker_process_takes_its_serials"])
                .env(WORKER, format!("{spec}|{}|{number}|{count}", folder.path().display()))
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        });
        let workers = Workers { children: children.collect(), folder };
        for number in 0..processes {
            workers.wait_for(&format!("{number}.begun"));
        }
        fs::write(workers.folder.path().join("go"), "").unwrap();
        workers
    }

    fn wait_for(&self, name: &str) {
        wait_for(name, || self.folder.path().join(name).exists());
    }

    /// What each took, and the code with which it was refused, once all have ended.
    fn serials(mut self) -> Vec<(Vec<String>, String)> {
        let all = (0..self.children.len()).map(|number| {
            let name = format!("{number}.serials");
            self.wait_for(&name);
            let text = fs::read_to_string(self.folder.path().join(name)).unwrap();
            let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
            let refused = lines.pop().unwrap();
            (lines, refused)
        });
        let all = all.collect();
        self.end();
        all
    }

    fn end(&mut self) {
        for child in &mut self.children {
            child.kill().ok();
            child.wait().unwrap();
        }
        self.children.clear();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

/// A table of a test's own, gone with the value.
struct Table(String);

impl Table {
    fn new(test: &str) -> Table {
        let table = Table(format!("days_{test}_{}", std::process::id()));
        mill().init(&[&table.spec("00000000")], Change::Apply).unwrap();
        table
    }

    /// A year's serials of this pattern: no test runs over its end.
    fn spec(&self, number: &str) -> String {
        format!("serial:cust/id?date=yyyy&number={number}&zone=UTC&scheme=key_producer&table={}", self.0)
    }

    /// Year and number of the highest serial that was reserved.
    fn stands_at(&self) -> (String, u64) {
        let select = format!("SELECT MAXSERIALNO FROM {}", self.0);
        let text: String = mariadb::connection().query_first(select).unwrap().unwrap();
        let (year, number) = text.split_at(4);
        (year.to_owned(), number.parse().unwrap())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            mariadb::say(&format!("DROP TABLE {}", self.0));
        }
    }
}

#[test]
fn eight_processes_in_bursts_beside_old_nodes_raise_a_row_by_twice_what_they_use_and_two_steps_each() {
    const PROCESSES: usize = 8;
    const EACH: usize = 20_000;
    let table = Table::new("bursts");
    let workers = Workers::start(PROCESSES, &format!("{}&step={STEP}", table.spec("00000000")), EACH);
    let (year, _) = table.stands_at();
    let mut old: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let nodes: Vec<_> = (0..3)
            .map(|_| {
                let (workers, table, year) = (&workers, &table, &year);
                scope.spawn(move || {
                    let mut connection = mariadb::connection();
                    let mut ranges = Vec::new();
                    while ranges.len() < 20 || !workers.folder.path().join("writing").exists() {
                        let row = ("CUST", "ID");
                        ranges.extend(rivals::key_factory(&mut connection, &table.0, (year, 8), row));
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    ranges
                })
            })
            .collect();
        nodes.into_iter().flat_map(|node| node.join().unwrap()).collect()
    });
    let ours = workers.serials();
    let mut texts = BTreeSet::new();
    for (serials, refused) in &ours {
        assert_eq!((serials.len(), refused.as_str()), (EACH, ""));
        texts.extend(serials.iter().cloned());
    }
    assert_eq!(texts.len(), PROCESSES * EACH, "a serial came twice");
    old.sort_unstable();
    for (lo, hi) in &old {
        let both = texts.range(format!("{year}{lo:08}")..format!("{year}{hi:08}")).next();
        assert_eq!(both, None, "an old node has {lo} to {hi}");
    }
    let by_old: u64 = old.iter().map(|(lo, hi)| hi - lo).sum();
    let (used, (_, stands)) = ((PROCESSES * EACH) as u64, table.stands_at());
    println!("{used} used, {by_old} by old nodes, the row rose by {stands}");
    assert!(stands - by_old <= 2 * used + 2 * PROCESSES as u64 * STEP, "{used} used, {by_old}, {stands}");
}

/// All numbers of a pattern, by processes that take until they are refused.
fn use_up(test: &str, processes: usize, number: &str, options: &str) {
    let table = Table::new(test);
    let last = 10u64.pow(number.len() as u32) - 1;
    let workers = Workers::start(processes, &format!("{}{options}", table.spec(number)), usize::MAX);
    let mut numbers = Vec::new();
    let mut fewest = usize::MAX;
    for (serials, refused) in workers.serials() {
        assert_eq!(refused, "NUMBER_OVERFLOW", "after {} serials", serials.len());
        fewest = fewest.min(serials.len());
        numbers.extend(serials.iter().map(|text| text[4..].parse::<u64>().unwrap()));
    }
    println!("{number}{options}: the process with the fewest got {fewest}");
    numbers.sort_unstable();
    assert!(
        numbers.iter().copied().eq(1..=last),
        "{} of {last}: one is missing or came twice",
        numbers.len()
    );
    assert_eq!(table.stands_at().1, last);
}

#[test]
fn twenty_processes_use_a_day_up_to_its_last_number_and_are_told() {
    use_up("used_up", 20, "00000", "");
}

#[test]
fn thirty_processes_that_begin_at_once_get_numbers_of_a_day_that_has_few_and_use_its_last_one() {
    use_up("few", 30, "0000", "");
}

#[test]
fn twenty_processes_whose_threads_count_through_blocks_use_a_day_up_to_its_last_number() {
    use_up("blocks", 20, "00000", "&order=thread");
}

#[test]
fn with_wider_numbers_allowed_a_day_goes_on_with_a_digit_more_and_none_comes_twice() {
    const EACH: usize = 4_000;
    let table = Table::new("wide");
    let workers = Workers::start(4, &format!("{}&overflow=widen", table.spec("0000")), EACH);
    let mut texts = BTreeSet::new();
    for (serials, refused) in workers.serials() {
        assert_eq!((serials.len(), refused.as_str()), (EACH, ""));
        assert!(serials.is_sorted_by_key(|text| (text.len(), text.clone())), "serials of one process rise");
        texts.extend(serials);
    }
    assert_eq!(texts.len(), 4 * EACH, "a serial came twice");
    assert!(texts.iter().any(|text| text.len() == 9) && texts.iter().all(|text| text.len() <= 9));
    let (_, stands) = table.stands_at();
    println!("{} used, the row rose by {stands}", 4 * EACH);
    assert!(stands <= 2 * 4 * EACH as u64 + 2 * 4 * STEP, "{stands}");
}

/// A segment is one block here, so nearly every block is the last one of its segment, and another thread replaces it at once.
#[test]
fn threads_with_blocks_of_their_own_lose_no_number_of_a_day_to_each_other() {
    let table = Table::new("threads");
    let spec = format!("{}&order=thread&deadline=60s", table.spec("0000"));
    let mills: Vec<(Mill, Source)> = (0..4)
        .map(|_| {
            let mill = mill();
            let source = mill.source(&spec).unwrap();
            (mill, source)
        })
        .collect();
    let taken: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = mills
            .iter()
            .flat_map(|(_, source)| std::iter::repeat_n(source, 4))
            .map(|source| scope.spawn(move || std::iter::from_fn(|| next(source).ok()).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let distinct: BTreeSet<_> = taken.iter().collect();
    assert_eq!((taken.len(), distinct.len()), (9_999, 9_999));
}
