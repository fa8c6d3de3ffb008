//! The keeper's side of a well: it looks, publishes, and posts why it could not.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::error::{Code, Error};
use crate::planner::{Action, Now, View};

use super::last_error::PostedError;
use super::{ROUND_TRIP, Spring, Well};

/// How long a snowflake rests whose stored mark is ahead of this machine's clock. The next caller after that asks the
/// store again: the clock may have been set right, or the mark repaired.
const START_REST: Duration = Duration::from_millis(200);

/// What a source that was closed had not handed out.
#[derive(Clone, Debug)]
pub(crate) enum Unused {
    /// Ranges, each with its period, in rising order.
    Ranges(Vec<(u64, u64, u64)>),
    /// A snowflake's ticks from here on: the lowest mark that covers all its ids.
    TicksFrom(u64),
}

impl Well {
    /// What the planner decides by.
    pub(crate) fn view(&self) -> View {
        self.waker.acknowledge();
        match &self.spring {
            Spring::Numbers(buffer) => {
                let mut snapshot = buffer.snapshot();
                // ordering: Relaxed — acquired by the acknowledgement.
                let asked = self.asked.load(Ordering::Relaxed);
                if asked > 0 && asked <= snapshot.left {
                    // It came by another's batch: kept, it would be reserved for once more when that is used up.
                    // ordering: Relaxed — as in `answered`; who asked in the meantime has changed the figure.
                    let _ = self.asked.compare_exchange(asked, 0, Ordering::Relaxed, Ordering::Relaxed);
                }
                // After `snapshot`: whoever took what that found missing wants nothing any more.
                // ordering: Relaxed — acquired by the acknowledgement.
                snapshot.wanted = self.wanted.load(Ordering::Relaxed).max(asked);
                View::Segments(snapshot)
            }
            Spring::Time { generator, .. } => {
                // ordering: Relaxed — written by the keeper itself.
                let started = self.started.load(Ordering::Relaxed);
                // ordering: Relaxed — as above.
                let rests = self.clock.boot_ms() < self.start_again_ms.load(Ordering::Relaxed);
                let wanted_mark = if started {
                    generator.wanted_mark()
                } else if rests {
                    // The store's answer was of no use yet: asked again at once, it would be asked without end.
                    None
                } else {
                    // Raising to 0 changes nothing and tells where the mark stands.
                    Some(0)
                };
                View::Snowflake { wanted_mark, waiting: generator.mark() == 0 }
            }
        }
    }

    /// Whether a caller lacks numbers, or a snowflake its first mark.
    pub(crate) fn is_waited_for(&self) -> bool {
        match &self.spring {
            // ordering: Relaxed on both — acquired with the wake that made the keeper look.
            Spring::Numbers(_) => {
                self.wanted.load(Ordering::Relaxed) > 0 || self.asked.load(Ordering::Relaxed) > 0
            }
            Spring::Time { generator, .. } => generator.mark() == 0,
        }
    }

    /// Carries out what the planner decided.
    pub(crate) fn act(&self, action: Action, now: Now) {
        match (action, &self.spring) {
            (Action::Publish(segment), Spring::Numbers(buffer)) => self.publish(buffer, segment, now),
            (Action::KeepAhead(segment), Spring::Numbers(_)) => self.keep_ahead(segment),
            (Action::DropOtherPeriods(keep), Spring::Numbers(buffer)) => {
                self.drop_other_periods(buffer, keep, now);
            }
            (Action::Ends { wall_ms, ttl_ms }, Spring::Numbers(_)) => self.set_ends(wall_ms, ttl_ms),
            (Action::DropOlder(born), Spring::Numbers(buffer)) => self.drop_older(buffer, born),
            (Action::WakeBelow(left), Spring::Numbers(buffer)) => buffer.wake_below(left),
            (Action::Start(before), Spring::Time { generator, .. }) => match generator.start(before) {
                // ordering: Relaxed — read by the keeper itself.
                Ok(()) => self.started.store(true, Ordering::Relaxed),
                Err(error) => {
                    let again_ms = now.boot_ms + START_REST.as_millis() as u64;
                    // ordering: Relaxed — read by the keeper itself.
                    self.start_again_ms.store(again_ms, Ordering::Relaxed);
                    self.post(error.after(START_REST), now);
                }
            },
            (Action::Mark(mark), Spring::Time { generator, .. }) => {
                generator.raise_mark(mark);
                self.supplied();
            }
            (Action::Fail(error), spring) => {
                if let (Code::LeaseLost, Spring::Time { generator, .. }) = (error.code, spring) {
                    generator.revoke();
                }
                self.post(error, now);
            }
            // The planner sends each kind of source its own actions.
            _ => debug_assert!(false, "an action for another kind of source at {now:?}"),
        }
    }

    /// Numbers are there: whoever waits may look.
    pub(super) fn supplied(&self) {
        self.answered();
        self.lock_last_error().posted = None;
        self.changed.notify_all();
    }

    /// The store has answered whoever did not wait; who still lacks numbers asks again.
    fn answered(&self) {
        // ordering: Relaxed — read by the keeper itself; a wish that comes at the same time is asked again.
        self.asked.store(0, Ordering::Relaxed);
    }

    fn post(&self, error: Error, now: Now) {
        self.answered();
        let mut last_error = self.lock_last_error();
        last_error.count += 1;
        let wait = error.retry_after.unwrap_or(ROUND_TRIP);
        let until_ms = now.boot_ms.saturating_add(wait.as_millis() as u64);
        let count = last_error.count;
        last_error.posted = Some(PostedError { error, wall_ms: now.wall_ms, until_ms, count });
        drop(last_error);
        self.changed.notify_all();
    }

    /// Wakes whoever waits, to look at a clock that was moved.
    pub(crate) fn nudge(&self) {
        drop(self.lock_last_error());
        self.changed.notify_all();
    }

    /// Closes for good; answers with what nobody was given.
    pub(crate) fn close(&self) -> Unused {
        let unused = match &self.spring {
            Spring::Numbers(buffer) => Unused::Ranges(self.close_buffer(buffer)),
            Spring::Time { generator, word } => {
                word.revoke();
                match generator.close() {
                    Some(above) if generator.mark() > 0 => Unused::TicksFrom(above),
                    _ => Unused::Ranges(Vec::new()),
                }
            }
        };
        self.nudge();
        unused
    }
}
