//! The double buffer that Leaf describes (https://tech.meituan.com/2017/04/21/mt-leaf.html), as small as it can be, on the
//! same server: two segments a key; the next one is loaded by a thread when a tenth of the present one is used; a caller who
//! finds both used up is refused. The first load of a key is made by its first caller, under the key's lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, RwLock};
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;

/// What a caller saw.
#[derive(Debug, Default)]
pub struct Seen {
    pub first: Option<Duration>,
    pub ids: u64,
    pub failed: u64,
}

impl Seen {
    pub fn count(&mut self, answer: Result<(), String>, began: Instant) {
        match answer {
            Ok(()) => {
                self.first.get_or_insert_with(|| began.elapsed());
                self.ids += 1;
            }
            Err(_) => self.failed += 1,
        }
    }
}

struct Segment {
    next: AtomicU64,
    end: u64,
}

impl Segment {
    fn take(&self) -> Option<u64> {
        // ordering: Relaxed — numbers of one counter, nothing else hangs on them.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        (id < self.end).then_some(id)
    }
}

/// The connections of a pool, as Leaf's callers share one.
struct Pool {
    idle: Mutex<Vec<mysql::Conn>>,
    url: String,
}

impl Pool {
    fn load(&self, key: &str, step: u64) -> Option<Segment> {
        let taken = self.idle.lock().expect("a pool").pop();
        let mut connection = match taken {
            Some(connection) => connection,
            None => mysql::Conn::new(format!("{}?prefer_socket=false", self.url).as_str()).ok()?,
        };
        let mut step_in_one = || -> mysql::Result<u64> {
            connection.query_drop("START TRANSACTION")?;
            connection.exec_drop("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = ?", (key,))?;
            let end: Option<u64> =
                connection.exec_first("SELECT max_id FROM leaf_alloc WHERE biz_tag = ?", (key,))?;
            connection.query_drop("COMMIT")?;
            Ok(end.unwrap_or(0))
        };
        let end = step_in_one().ok()?;
        self.idle.lock().expect("a pool").push(connection);
        Some(Segment { next: AtomicU64::new(end - step), end })
    }
}

/// One key.
struct Buffer {
    key: String,
    step: u64,
    current: RwLock<Option<Segment>>,
    ahead: Mutex<Option<Segment>>,
    loading: AtomicBool,
    first: Mutex<()>,
}

impl Buffer {
    fn next(self: &Arc<Self>, pool: &Arc<Pool>) -> Result<u64, String> {
        if self.current.read().expect("a lock").is_none() {
            let _first = self.first.lock().expect("a lock");
            if self.current.read().expect("a lock").is_none() {
                let segment = pool.load(&self.key, self.step).ok_or("the store failed")?;
                *self.current.write().expect("a lock") = Some(segment);
            }
        }
        for _ in 0..2 {
            {
                let current = self.current.read().expect("a lock");
                let segment = current.as_ref().ok_or("not loaded")?;
                // ordering: Relaxed — a hint.
                let used = segment.next.load(Ordering::Relaxed) + self.step - segment.end;
                let none_ahead = used > self.step / 10 && self.ahead.lock().expect("a lock").is_none();
                // ordering: AcqRel — one loader at a time.
                if none_ahead && !self.loading.swap(true, Ordering::AcqRel) {
                    let (buffer, pool) = (Arc::clone(self), Arc::clone(pool));
                    std::thread::spawn(move || {
                        *buffer.ahead.lock().expect("a lock") = pool.load(&buffer.key, buffer.step);
                        // ordering: Release — what was loaded is seen with the flag.
                        buffer.loading.store(false, Ordering::Release);
                    });
                }
                if let Some(id) = segment.take() {
                    return Ok(id);
                }
            }
            // Leaf waits a little for a load that is under way, then refuses.
            // ordering: Acquire — pairs with the loader's Release.
            for _ in 0..100 {
                if !self.loading.load(Ordering::Acquire) {
                    break;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
            let mut current = self.current.write().expect("a lock");
            if let Some(segment) = current.as_ref()
                && let Some(id) = segment.take()
            {
                return Ok(id);
            }
            match self.ahead.lock().expect("a lock").take() {
                Some(segment) => *current = Some(segment),
                None => return Err("both segments are used up".to_owned()),
            }
        }
        Err("both segments are used up".to_owned())
    }
}

/// `count` keys at once, a thread each, for as long as `lasts`.
pub fn flood(url: &str, count: usize, lasts: Duration, step: u64) -> Vec<Seen> {
    let pool = Arc::new(Pool { idle: Mutex::default(), url: url.to_owned() });
    let mut connection =
        mysql::Conn::new(format!("{url}?prefer_socket=false").as_str()).expect("the server answers");
    let buffers: Vec<_> = (0..count)
        .map(|n| {
            let key = format!("leaf_{}_{n}", std::process::id());
            let insert = "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (?, 1, ?)";
            connection.exec_drop(insert, (&key, step)).expect("a row");
            Arc::new(Buffer {
                key,
                step,
                current: RwLock::default(),
                ahead: Mutex::default(),
                loading: AtomicBool::new(false),
                first: Mutex::default(),
            })
        })
        .collect();
    let start = Barrier::new(count);
    std::thread::scope(|scope| {
        let threads: Vec<_> = buffers
            .iter()
            .map(|buffer| {
                let (start, pool) = (&start, &pool);
                scope.spawn(move || {
                    start.wait();
                    let (began, mut seen) = (Instant::now(), Seen::default());
                    while began.elapsed() < lasts {
                        seen.count(buffer.next(pool).map(|_| ()), began);
                    }
                    seen
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    })
}
