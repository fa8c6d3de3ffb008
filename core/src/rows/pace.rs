//! How fast rows are moved: at most so many a second, and less while the old shard's replies are slow.

use std::time::{Duration, Instant};

/// A reply is slow that takes so many times as long a row as the fastest one so far.
const SLOW: f64 = 3.0;
/// Differences below this are noise.
const NOISE: Duration = Duration::from_millis(5);
/// The fastest reply is forgotten slowly: a table that has grown is no busy server.
const FORGET: f64 = 1.02;
/// At most so much time that passed without rows is made up for.
const CREDIT: Duration = Duration::from_secs(1);
/// The longest pause for the sake of the server.
const LONGEST: Duration = Duration::from_secs(5);

/// Says how long to pause.
#[derive(Debug)]
pub struct Pace {
    per_second: u64,
    began: Instant,
    rows: u64,
    /// Seconds a row of the fastest reply.
    best: f64,
    /// How many times as long as a slow reply took is paused after it.
    ease: u32,
}

impl Pace {
    pub fn new(per_second: u64, now: Instant) -> Pace {
        Pace { per_second: per_second.max(1), began: now, rows: 0, best: f64::INFINITY, ease: 0 }
    }

    /// The most rows of a chunk: a second's at the most, so that a low rate is even.
    pub fn most(&self, rows: u64) -> u64 {
        rows.min(self.per_second)
    }

    /// The pause after a chunk of so many rows, which the old shard took so long to give.
    pub fn pause(&mut self, rows: u64, reply: Duration, now: Instant) -> Duration {
        self.rows += rows;
        let mut due = self.began + Duration::from_secs_f64(self.rows as f64 / self.per_second as f64);
        // What was not sent while a lock was waited for is not made up for.
        let late = now.saturating_duration_since(due).saturating_sub(CREDIT);
        self.began += late;
        due += late;
        due.saturating_duration_since(now).max(self.eased(rows, reply))
    }

    fn eased(&mut self, rows: u64, reply: Duration) -> Duration {
        if rows == 0 {
            return Duration::ZERO;
        }
        let each = reply.as_secs_f64() / rows as f64;
        let expected = Duration::from_secs_f64((self.best * rows as f64).min(3600.0));
        self.best = each.min(self.best * FORGET);
        if reply <= expected.mul_f64(SLOW) + NOISE {
            self.ease = 0;
            return Duration::ZERO;
        }
        self.ease = (self.ease * 2).clamp(1, 8);
        (reply * self.ease).min(LONGEST)
    }

    /// Whether the old shard is slow at present.
    pub fn is_easing(&self) -> bool {
        self.ease > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn no_more_rows_a_second_than_asked_for() {
        let began = Instant::now();
        let mut pace = Pace::new(1000, began);
        assert_eq!(pace.most(2000), 1000);
        assert_eq!(pace.pause(500, MS, began + 100 * MS), 400 * MS);
        assert_eq!(pace.pause(500, MS, began + 500 * MS), 500 * MS);
        assert_eq!(pace.pause(500, MS, began + 5000 * MS), Duration::ZERO, "late already");
    }

    #[test]
    fn what_was_not_sent_in_a_minute_of_waiting_is_not_sent_in_a_burst() {
        let began = Instant::now();
        let mut pace = Pace::new(100, began);
        assert_eq!(pace.pause(100, MS, began + 60_000 * MS), Duration::ZERO);
        assert_eq!(pace.pause(100, MS, began + 60_000 * MS), Duration::ZERO, "a second's rows");
        assert_eq!(pace.pause(100, MS, began + 60_000 * MS), 1000 * MS);
    }

    #[test]
    fn a_slow_server_is_given_time_and_a_fast_one_none() {
        let began = Instant::now();
        let mut pace = Pace::new(u64::MAX, began);
        for _ in 0..10 {
            assert_eq!(pace.pause(1000, 10 * MS, began), Duration::ZERO);
        }
        assert_eq!(pace.pause(1000, 100 * MS, began), 100 * MS);
        assert!(pace.is_easing());
        assert_eq!(pace.pause(1000, 100 * MS, began), 200 * MS, "longer while it stays slow");
        for _ in 0..5 {
            pace.pause(1000, 900 * MS, began);
        }
        assert_eq!(pace.pause(1000, 900 * MS, began), 5000 * MS, "and not for ever");
        assert_eq!(pace.pause(1000, 12 * MS, began), Duration::ZERO);
        assert!(!pace.is_easing());
    }
}
