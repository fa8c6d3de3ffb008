//! The mark: the tick under which everything may have been issued, as the keeper reads, stores and raises it.

use std::time::Duration;

use super::refusal::until;
use super::word::{Core, END, spread_seed, ticks_after};
use super::{Time, rfc3339};
use crate::error::{Code, Error, Result};
use crate::process::sync::{Ordering, fence};

impl Core {
    /// A mark at or below this is due: a third of its reach is gone, the next tick is not covered, or counting ahead has
    /// come near the mark.
    pub(in crate::snowflake) fn renewal_level(&self, now: i64, tick: u64) -> u64 {
        let leading = tick.min(ticks_after(now, self.lead_ticks)) + self.margin_ticks / 2;
        let kept = (self.reach_ticks * 2 / 3).max(self.reach_ticks.min(1));
        ticks_after(now, kept).max(leading)
    }

    pub(in crate::snowflake) fn start(&self, previous_mark: u64, time: &impl Time) -> Result<()> {
        let (wall_ms, now) =
            self.check_start(self.worker(), previous_mark, time.wall_ms(), time.shown_ms())?;
        // Not the present tick: a predecessor may have issued ids of it that no mark covers, as they did not lead.
        // ordering: Relaxed — written by the keeper itself.
        let seed = self.slow.spread_seed.load(Ordering::Relaxed);
        let first = self.first_of(previous_mark.max(now + 1), seed);
        self.anchor(wall_ms, time);
        // ordering: Relaxed — written by the keeper itself.
        self.slow.marked_at.store(first, Ordering::Relaxed);
        // ordering: Relaxed — the limit that lets the fast path see it is published by `open`. A maximum never moves
        // the word back, and leaves an ended generator ended.
        let before = self.next.fetch_max(first, Ordering::Relaxed);
        if before < first {
            // ordering: Relaxed — read by the keeper itself, when it closes.
            self.slow.begun_at.store(first, Ordering::Relaxed);
            // ordering: Relaxed — a count.
            self.slow.skipped.fetch_add(first - before, Ordering::Relaxed);
        }
        self.call_keeper();
        Ok(())
    }

    /// Begins with a leased worker, whose ticks below `start` belong to earlier owners; the word has lapsed, or never began.
    /// A wall clock ahead of `latest_ms` is not followed.
    pub(in crate::snowflake) fn begin(
        &self,
        (worker, salt): (u64, u64),
        start: u64,
        latest_ms: i64,
        time: &impl Time,
    ) -> Result<()> {
        let (wall_ms, now) =
            self.check_start(worker, start, time.wall_ms().min(latest_ms), time.shown_ms())?;
        self.anchor(wall_ms, time);
        // The present tick too: no earlier owner has issued ids at or above the mark that it left.
        let seed = spread_seed(worker, salt);
        self.begin_worker(worker, seed, |least| self.first_of(start.max(now), seed).max(least));
        Ok(())
    }

    /// The first position of a tick, or the end of the layout.
    fn first_of(&self, tick: u64, seed: u64) -> u64 {
        if tick > self.layout.max_tick() {
            (self.layout.max_tick() + 1) << self.seq_bits
        } else {
            self.spread_start_of(tick, seed)
        }
    }

    /// The wall clock and its tick, if a worker may start at this mark now. This machine's clock shows `shown_ms`, and is followed up to
    /// `wall_ms`.
    fn check_start(
        &self,
        worker: u64,
        previous_mark: u64,
        wall_ms: i64,
        shown_ms: i64,
    ) -> Result<(i64, u64)> {
        let now = self.layout.tick_at(wall_ms);
        if now > self.layout.max_tick() as i64 {
            return Err(self.layout.ended());
        }
        // As far ahead as a predecessor stores its mark: a start right after a crash is not refused.
        let ahead = self.reach_ticks.max(self.lead_ticks + self.margin_ticks) + 1;
        if now < 0 || previous_mark > ticks_after(now, ahead) {
            let needed_ms = self.layout.wall_ms_of(previous_mark.saturating_sub(ahead));
            let (doubt, remedy) = if wall_ms < shown_ms {
                let doubt = format!(", and by the store's clock it counts only up to {},", rfc3339(wall_ms));
                (doubt, "set right the clock that is wrong")
            } else {
                (String::new(), "set the clock right")
            };
            return Err(Error::new(
                Code::ClockBehind,
                format!(
                    "worker {} cannot start: this machine's clock shows {}{doubt} but its stored mark is {} (layout {}, max_lead {} ms); {remedy}, or open it with the epoch it was begun with if `epoch` has changed, or wait until {} if `repair` has raised the mark, or take another worker id that no process uses",
                    worker,
                    rfc3339(shown_ms),
                    rfc3339(self.layout.wall_ms_of(previous_mark)),
                    self.layout,
                    self.max_lead_ms,
                    rfc3339(needed_ms),
                ),
            )
            .after(Duration::from_millis(until(wall_ms, needed_ms))));
        }
        Ok((wall_ms, now as u64))
    }

    pub(in crate::snowflake) fn wanted_mark(&self, time: &impl Time) -> Option<u64> {
        // Cleared before the word is read: a call for a position that this read does not see stays set.
        // ordering: Relaxed — ordered by the fence.
        self.gate.hungry.store(false, Ordering::Relaxed);
        // ordering: SeqCst fence — pairs with the one in `call_keeper`.
        fence(Ordering::SeqCst);
        let wanted = self.wanted_now(time);
        if wanted.is_some() {
            // Wanted until the store has taken the mark.
            // ordering: Relaxed — a hint.
            self.gate.hungry.store(true, Ordering::Relaxed);
        }
        wanted
    }

    fn wanted_now(&self, time: &impl Time) -> Option<u64> {
        // ordering: Relaxed — ordered by the fence: what the call was made for is seen.
        let current = self.next.load(Ordering::Relaxed);
        // ordering: Relaxed — written by the keeper itself.
        let mark = self.slow.mark.load(Ordering::Relaxed);
        let now = self.layout.tick_at(time.wall_ms());
        if current == 0 || current >= END || now > self.layout.max_tick() as i64 {
            return None;
        }
        let tick = current >> self.seq_bits;
        // ordering: Relaxed — written by the keeper itself.
        let used = self.slow.marked_at.load(Ordering::Relaxed) != current;
        let due = mark <= self.renewal_level(now, tick);
        // Ids that did not lead need no mark to be issued; afterwards they get one, in case the clock is set back later.
        let uncovered = tick >= mark;
        let starved = uncovered && tick < ticks_after(now, self.lead_ticks + 1);
        let lead_end = ticks_after(now, self.lead_ticks + 1);
        let reach_end = ticks_after(now, self.reach_ticks + 1);
        let leading = (tick + 1 + self.margin_ticks).min(lead_end + self.margin_ticks);
        // Never below what was issued, nor below a predecessor's mark, which is where the word began.
        let wanted = reach_end.max(leading).max(tick + u64::from(used)).min(self.layout.max_tick() + 1);
        if mark != 0 && (wanted <= mark || !(starved || used && (due || uncovered))) {
            return None;
        }
        // Not `marked_at` yet: storing the mark may fail, and then it must be asked for again.
        // ordering: Relaxed — read by the keeper itself.
        self.slow.asked_at.store(current, Ordering::Relaxed);
        Some(wanted)
    }

    pub(in crate::snowflake) fn raise_mark(&self, tick: u64, time: &impl Time) {
        // ordering: Relaxed — written by the keeper itself, here and in the next line.
        let asked_at = self.slow.asked_at.load(Ordering::Relaxed);
        // ordering: Relaxed — as above.
        self.slow.marked_at.store(asked_at, Ordering::Relaxed);
        // The floor moves only to a wall time that the store has confirmed.
        let wall_ms = time.wall_ms();
        let now = self.layout.tick_at(wall_ms);
        if now < 0 || (now as u64) < tick {
            self.anchor(wall_ms, time);
        }
        // ordering: Release — pairs with the Acquire in `moment`: a thread that sees the mark sees its offset.
        self.slow.mark.fetch_max(tick, Ordering::Release);
        // ordering: Relaxed — a hint; the keeper's check, which follows, sees calls of the meantime.
        self.gate.hungry.store(false, Ordering::Relaxed);
        // ordering: SeqCst fence — pairs with the one in `call_keeper`.
        fence(Ordering::SeqCst);
    }

    fn anchor(&self, wall_ms: i64, time: &impl Time) {
        let offset = wall_ms.saturating_sub(time.boot_ms() as i64);
        // ordering: Relaxed — published by the mark, or by the start that precedes the first mark.
        self.slow.offset.store(offset as u64, Ordering::Relaxed);
    }

    /// Wall time that has certainly passed, by the boot clock.
    pub(super) fn floor_ms(&self, time: &impl Time) -> i64 {
        // ordering: Relaxed — read after the mark's Acquire where it matters.
        (time.boot_ms() as i64).saturating_add(self.slow.offset.load(Ordering::Relaxed) as i64)
    }
}
