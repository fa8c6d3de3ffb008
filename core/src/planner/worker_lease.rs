//! Leased workers: when a slot is taken, renewed and given up.
//!
//! All leases of a mill are renewed together, each third of the shortest one, whether their sources are used or not. A lease that was
//! not renewed ends by the boot clock before it ends by the store's; a renewal that still finds token and mark as this process left
//! them goes on with the same slot, since no other process has taken it. Where one of several stores fails, its leases are given up
//! when they are over, and callers get workers of the others.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::error::fault::{Fault, FaultKind};
use crate::request::reservation::BELIEVED_MS;
use crate::request::reservation::Key;
use crate::request::store_index::StoreIndex;
use crate::request::worker::{Beside, Left, OwnSlot, Release, Renewal, Renewed, Take, Taken};
use crate::snowflake::{SnowflakeAction, WorkerView};
use crate::spec::{SnowflakeSpec, Worker};

use super::completion::BACKOFF_MS;
use super::{Action, Ask, Batch, Now, Planner, SourceIndex, Taking, Want};

/// A lease is renewed each time this part of it has passed.
const RENEWED_EACH: u64 = 3;

/// A lease is used for all but this part of it: clocks of the same speed may differ a little.
const UNUSED_PART: u64 = 16;

/// How many lost answers of one lease are remembered.
const MOST_DOUBTS: usize = 16;

/// A slot that this process leases.
#[derive(Clone, Debug)]
pub(super) struct WorkerLease {
    worker: u64,
    /// What this process wrote into the row last, and what requests with lost answers may have written since.
    left: Vec<Left>,
    /// The source, as the row notes it once it was renewed.
    source: Arc<str>,
    /// The boot time at which its use ends.
    until_ms: u64,
    /// How long it lasts without renewal.
    length_ms: u64,
    /// The renewal in flight: what it writes, and when it was sent.
    asked: Option<(Left, u64)>,
    /// Its store did not answer the last renewal, and other stores go on.
    others_go_on: bool,
}

/// What the answer to a renewal means for one lease.
enum Outcome {
    /// It goes on, or it is over.
    Known(SnowflakeAction),
    /// It is not known; callers of a lease whose time is over get the error.
    Failed(Option<Error>),
}

/// What is known of the clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clocks {
    /// The last wall time that was believed.
    believed: Option<Now>,
    /// It is the store's, because this process began with a clock far ahead of it.
    is_of_store: bool,
    /// The store's last answer.
    store: Option<StoreClock>,
}

/// A store's clock, as it answered.
#[derive(Clone, Copy, Debug)]
struct StoreClock {
    /// Milliseconds since 1970.
    wall_ms: u64,
    /// When it answered, by this machine's boot clock.
    boot_ms: u64,
}

impl StoreClock {
    /// What it shows at this moment.
    fn at(self, boot_ms: u64) -> i64 {
        (self.wall_ms as i64).saturating_add(boot_ms.saturating_sub(self.boot_ms) as i64)
    }
}

impl WorkerLease {
    fn own(&self, key: &Arc<Key>) -> OwnSlot {
        OwnSlot { key: key.clone(), slot: self.worker, left: self.left.clone(), source: self.source.clone() }
    }

    /// The row may hold this too. Of many doubts the last and the first ones are kept: without the right one the worker is given up.
    fn doubt(&mut self, left: Left) {
        self.left.truncate(MOST_DOUBTS);
        self.left.push(left);
    }
}

impl Clocks {
    /// The wall time that marks are made of. A large jump is not stored before the store's clock agrees with it: after a clock that
    /// was wrong for a moment, the marks would be ahead of all callers for as long as the jump.
    fn believed(&mut self, now: Now) -> i64 {
        let passed = |since: u64| now.boot_ms.saturating_sub(since) as i64;
        let Some(last) = self.believed else {
            self.believed = Some(now);
            return now.wall_ms;
        };
        let expected = last.wall_ms.saturating_add(passed(last.boot_ms));
        let store = self.store.map(|store| store.at(now.boot_ms));
        let near = |one: i64, other: i64| one.abs_diff(other) <= BELIEVED_MS;
        if near(now.wall_ms, expected) || store.is_some_and(|store| near(now.wall_ms, store)) {
            self.believed = Some(now);
            self.is_of_store = false;
            return now.wall_ms;
        }
        // This clock may have been a little late before it jumped. If it was early, it goes on: ids are ahead of the store by as much.
        store.filter(|&store| near(store, expected)).map_or(expected, |store| store.max(expected))
    }

    fn answered(&mut self, store_ms: u64, now: Now) {
        if store_ms == 0 {
            return;
        }
        let is_first = self.store.replace(StoreClock { wall_ms: store_ms, boot_ms: now.boot_ms }).is_none();
        // The process began with a clock that nothing had confirmed.
        let ahead = |last: Now| last.wall_ms.saturating_sub(store_ms as i64) > BELIEVED_MS as i64;
        if is_first && self.believed.is_some_and(ahead) {
            self.believed = Some(Now { boot_ms: now.boot_ms, wall_ms: store_ms as i64 });
            self.is_of_store = true;
        }
    }

    /// How far the wall clock is ahead of the store's.
    fn skew_ms(&self, now: Now) -> Option<i64> {
        Some(now.wall_ms.saturating_sub(self.store?.at(now.boot_ms)))
    }
}

/// The beginning with a worker that is used once: no earlier owner used any tick, and nothing has to be stored.
fn once(worker: u64) -> Action {
    Action::Snowflake(SnowflakeAction::Begin {
        worker,
        start: 0,
        mark: u64::MAX,
        until_ms: 0,
        wall_ms: i64::MAX,
    })
}

/// How long a lease is used, from when it was asked for.
fn used_ms(lease_ms: u64) -> u64 {
    lease_ms - lease_ms / UNUSED_PART
}

/// The mark of a lease that begins at this wall time: it covers every id until the lease ends, and its lead.
fn mark_at(snowflake: &SnowflakeSpec, wall_ms: i64, lease_ms: u64) -> u64 {
    let end_ms = wall_ms.saturating_add((lease_ms + snowflake.max_lead_ms) as i64);
    // The present tick is covered however long a tick is.
    let tick = snowflake.layout.tick_at(end_ms.saturating_sub(1)).saturating_add(1);
    u64::try_from(tick).unwrap_or(0).min(snowflake.layout.max_tick() + 1)
}

impl Planner {
    /// The process, as the rows of its slots name it.
    pub(crate) fn set_owner(&mut self, owner: &str) {
        self.owner = Some(owner.into());
    }

    fn owner(&self) -> Arc<str> {
        self.owner.clone().unwrap_or_else(|| "keymill".into())
    }

    pub(super) fn check_worker(
        &mut self,
        index: SourceIndex,
        view: WorkerView,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let wall_ms = if view.idle { self.clocks.believed(now) } else { now.wall_ms };
        let Some(plan) = self.plan(index) else { return };
        plan.worker_mark = view.mark;
        // Its store gives it to another process when it is over there, and the next caller leases a worker of another store.
        if plan.lease.take_if(|lease| lease.others_go_on && now.boot_ms >= lease.until_ms).is_some() {
            self.leases.remove(&index);
            if !view.idle {
                actions.push(Action::Snowflake(SnowflakeAction::Lapse));
            }
        }
        let Some(plan) = self.plan(index) else { return };
        match &plan.lease {
            Some(lease) if now.boot_ms >= lease.until_ms => {
                if !view.idle {
                    actions.push(Action::Snowflake(SnowflakeAction::Lapse));
                }
                plan.wanted = None;
            }
            Some(lease) => {
                let until_ms = lease.until_ms;
                if view.idle {
                    // It ended while the answer to its renewal was on the way.
                    let mark = lease.left.first().map_or(0, |left| left.mark);
                    actions.push(Action::Snowflake(SnowflakeAction::Begin {
                        worker: lease.worker,
                        start: 0,
                        mark,
                        until_ms,
                        wall_ms,
                    }));
                }
                plan.wanted = None;
                self.set_timer(index, until_ms);
            }
            None => match plan.node {
                Some(worker) if view.idle => {
                    actions.push(once(worker));
                    plan.wanted = None;
                }
                _ => {
                    plan.wanted = view.wanted.then_some(Want::Worker);
                    if view.wanted {
                        self.enqueue(index, true, now);
                    }
                }
            },
        }
    }

    /// The request for a slot.
    pub(super) fn ask_worker(&mut self, index: SourceIndex, now: Now, token: u64) -> Option<Ask> {
        let owner = self.owner();
        let wall_ms = self.clocks.believed(now);
        let plan = self.plan(index)?;
        let snowflake = plan.spec.snowflake?;
        let Worker::Leased { lease_ms, slots } = snowflake.worker else {
            return Some(Ask::Node { key: plan.spec.key.clone(), owner });
        };
        let tick_at = |ms: i64| u64::try_from(snowflake.layout.tick_at(ms)).unwrap_or(0);
        plan.taking = Some(Taking { token, sent_ms: now.boot_ms });
        Some(Ask::Take(Take {
            key: plan.spec.key.clone(),
            layout: plan.spec.pool_layout().into(),
            slots,
            store: StoreIndex::ONLY,
            latest_mark: tick_at(wall_ms.saturating_add(snowflake.max_lead_ms as i64)) + 1,
            present: tick_at(wall_ms),
            mark: mark_at(&snowflake, wall_ms, lease_ms).max(plan.worker_mark),
            wall_ms,
            unit_ms: snowflake.layout.unit_ms().unsigned_abs(),
            least_mark: plan.worker_mark,
            lease_ms,
            token,
            owner,
            beside: Beside { places: plan.spec.places().map(Arc::new), passed_over: Vec::new() },
        }))
    }

    /// The store leased a slot.
    pub(super) fn taken(&mut self, index: SourceIndex, taken: Taken, now: Now) -> Vec<Action> {
        self.clocks.answered(taken.now_ms, now);
        let wall_ms = self.clocks.believed(now);
        let Some(plan) = self.plan(index) else { return Vec::new() };
        plan.wanted = None;
        let Some(Taking { token, sent_ms }) = plan.taking.take() else { return Vec::new() };
        let Some(SnowflakeSpec { worker: Worker::Leased { lease_ms, .. }, .. }) = plan.spec.snowflake else {
            return Vec::new();
        };
        let Taken { slot: worker, start, mark, .. } = taken;
        let until_ms = sent_ms.saturating_add(used_ms(lease_ms));
        let left = vec![Left { token, mark }];
        let source = plan.spec.places().map_or_else(|| "".into(), |places| places.source.into());
        plan.lease = Some(WorkerLease {
            worker,
            left,
            source,
            until_ms,
            length_ms: lease_ms,
            asked: None,
            others_go_on: false,
        });
        if self.leases.is_empty() {
            self.renew_at_ms = u64::MAX;
        }
        self.leases.insert(index);
        let wait = self.any_part(lease_ms / RENEWED_EACH);
        self.renew_at_ms = self.renew_at_ms.min(sent_ms.saturating_add(wait));
        vec![Action::Snowflake(SnowflakeAction::Begin { worker, start, mark, until_ms, wall_ms })]
    }

    /// The store made a row whose number is a worker.
    pub(super) fn node_made(&mut self, index: SourceIndex, number: u64, now: Now) -> Vec<Action> {
        let Some(plan) = self.plan(index) else { return Vec::new() };
        plan.wanted = None;
        let Some(SnowflakeSpec { layout, .. }) = plan.spec.snowflake else { return Vec::new() };
        if number <= layout.max_worker() {
            plan.node = Some(number);
            return vec![once(number)];
        }
        let fault = Fault::new(
            FaultKind::Exhausted,
            format!(
                "table `{}` gave this process number {number}, and layout {layout} has workers 0 to {}. Each start uses up a number, and TiDB servers count in jumps of 30000 unless the table has `AUTO_ID_CACHE 1`. `worker=lease` or more worker bits need a new source and a new column: its ids may equal ids of this source. To keep this source with another `worker=`, stop every process of it and every node of uid-generator with its layout, then run `keymill repair` for it with the new `worker=` and `--to now --yes`",
                plan.spec.key.table,
                layout.max_worker()
            ),
        );
        vec![self.failed_with(index, &fault, now)]
    }

    /// A random part of a third of a lease. Processes that started at once, or after an outage, would renew at once for ever.
    fn any_part(&mut self, third: u64) -> u64 {
        self.rng.u64(third / 8..=third)
    }

    /// When the leases are renewed, on the boot clock; `None`: there is none, or the renewal is in flight.
    pub(super) fn renewal_due_ms(&self) -> Option<u64> {
        (!self.leases.is_empty() && !self.renewing).then_some(self.renew_at_ms)
    }

    /// The renewal of every lease of this mill, if it is due. All rows get one token: it tells this request from others, and not one
    /// row from another.
    pub(super) fn next_renewal(&mut self, now: Now, token: impl FnOnce() -> u64) -> Option<Batch<()>> {
        if now.boot_ms < self.renewal_due_ms()? {
            return None;
        }
        let wall_ms = self.clocks.believed(now);
        let token = token();
        let (mut indexes, mut renewals) = (Vec::new(), Vec::new());
        for &index in &self.leases {
            let Some(plan) = self.plans.get_mut(index).and_then(Option::as_mut) else { continue };
            let (Some(lease), Some(snowflake)) = (&mut plan.lease, &plan.spec.snowflake) else { continue };
            let least =
                lease.left.iter().map(|left| left.mark).max().unwrap_or_default().max(plan.worker_mark);
            let to = Left { token, mark: mark_at(snowflake, wall_ms, lease.length_ms).max(least) };
            lease.asked = Some((to, now.boot_ms));
            indexes.push(index);
            let own = lease.own(&plan.spec.key);
            renewals.push(Renewal { own, to, lease_ms: lease.length_ms });
        }
        self.renewing = true;
        self.failed = false;
        Some(Batch::Renew(indexes, renewals))
    }

    /// The store answered a renewal.
    pub(crate) fn renewed(
        &mut self,
        indexes: &[SourceIndex],
        answer: Result<Renewed, Fault>,
        now: Now,
    ) -> Vec<(SourceIndex, Action)> {
        self.renewing = false;
        let answer = match answer {
            Ok(renewed) => {
                self.clocks.answered(renewed.now_ms, now);
                (self.failures, self.outage) = (0, None);
                (self.store_retry_at_ms, self.store_urgent_at_ms) = (0, 0);
                Ok(renewed.marks)
            }
            Err(fault) => {
                if fault.is_outage() {
                    self.back_off(&fault, now);
                }
                Err(fault)
            }
        };
        let mut actions = Vec::new();
        let mut errors = Vec::new();
        let mut failed = answer.is_err();
        for (at, &index) in indexes.iter().enumerate() {
            let answer = match &answer {
                Ok(marks) => marks.get(at).cloned(),
                Err(fault) => Some(Err(fault.clone())),
            };
            match self.lease_renewed(index, answer, now) {
                Some(Outcome::Known(action)) => actions.push((index, Action::Snowflake(action))),
                Some(Outcome::Failed(error)) => {
                    failed = true;
                    errors.extend(error.map(|error| (index, error)));
                }
                None => {}
            }
        }
        // Callers of a source whose lease is over wait for this.
        let wait = Duration::from_millis(self.next_renewal_after(failed, now));
        actions.extend(errors.into_iter().map(|(index, error)| (index, Action::Fail(error.after(wait)))));
        actions
    }

    /// The store answered for one lease of a renewal; `None`: no renewal of it is in flight.
    fn lease_renewed(
        &mut self,
        index: SourceIndex,
        answer: Option<Result<u64, Fault>>,
        now: Now,
    ) -> Option<Outcome> {
        let plan = self.plan(index)?;
        let lease = plan.lease.as_mut()?;
        let (to, sent_ms) = lease.asked.take()?;
        Some(match answer {
            Some(Ok(mark)) => {
                lease.left = vec![Left { mark, ..to }];
                lease.others_go_on = false;
                let until_ms = sent_ms.saturating_add(used_ms(lease.length_ms));
                lease.until_ms = until_ms;
                self.set_timer(index, until_ms);
                Outcome::Known(SnowflakeAction::Renewed { mark, until_ms })
            }
            Some(Err(fault)) if fault.kind == FaultKind::Taken => {
                plan.lease = None;
                self.leases.remove(&index);
                Outcome::Known(SnowflakeAction::Lapse)
            }
            Some(Err(fault)) => {
                if fault.kind == FaultKind::Unknown {
                    lease.doubt(to);
                }
                lease.others_go_on = fault.kind.is_outage() && !fault.is_outage();
                let is_over = now.boot_ms >= lease.until_ms;
                Outcome::Failed(is_over.then(|| fault.after_ids().error(plan.spec.command_line())))
            }
            None => Outcome::Failed(None),
        })
    }

    /// Sets when the leases are renewed next, after a renewal that failed or succeeded; answers with how long that is.
    fn next_renewal_after(&mut self, failed: bool, now: Now) -> u64 {
        let had_failed = self.renew_failures > 0;
        self.renew_failures = if failed { self.renew_failures.saturating_add(1) } else { 0 };
        let leases = self.leases.iter().filter_map(|&index| self.plans.get(index)?.as_ref()?.lease.as_ref());
        let third = leases.map(|lease| lease.length_ms).min().unwrap_or(0) / RENEWED_EACH;
        let wait = match self.renew_failures {
            0 if had_failed => self.any_part(third),
            0 => third,
            failures => self.backoff(failures, (third / 4).max(1).min(BACKOFF_MS.1)),
        };
        self.renew_at_ms = now.boot_ms.saturating_add(wait);
        wait
    }

    /// What frees the slot of a source, where `used` is the first tick that it has not used.
    pub(crate) fn release(&self, index: SourceIndex, used: u64) -> Option<Release> {
        let plan = self.plans.get(index)?.as_ref()?;
        Some(Release { own: plan.lease.as_ref()?.own(&plan.spec.key), used })
    }

    /// Takes over what an earlier planner knows of the leases; a renewal in flight may have been carried out.
    pub(super) fn inherit_leases(&mut self, old: &mut Planner) {
        self.owner = old.owner.take();
        self.clocks = old.clocks;
        for &index in &old.leases {
            let lease = old.plans.get_mut(index).and_then(Option::as_mut).and_then(|plan| plan.lease.take());
            let (Some(mut lease), Some(plan)) = (lease, self.plan(index)) else { continue };
            if let Some((to, _)) = lease.asked.take() {
                lease.doubt(to);
            }
            plan.lease = Some(lease);
            self.leases.insert(index);
        }
    }

    /// The store showed its clock while it answered for the mark of a fixed worker.
    pub(super) fn store_showed(&mut self, store_ms: u64, now: Now) {
        self.clocks.answered(store_ms, now);
    }

    /// The latest wall time that marks of fixed workers are made of now; `None`: whatever this machine's clock shows.
    pub(crate) fn latest_ms(&mut self, now: Now) -> Option<i64> {
        let mut wall_ms = self.clocks.believed(now);
        // An earlier process with this worker may have had a clock so far ahead of the store's, and ids beyond its last mark.
        if self.clocks.is_of_store {
            wall_ms = wall_ms.saturating_add(BELIEVED_MS as i64);
        }
        (wall_ms < now.wall_ms).then_some(wall_ms)
    }

    /// How far the wall clock is ahead of the store's, where the store has shown its own.
    #[must_use]
    pub fn skew_ms(&self, now: Now) -> Option<i64> {
        self.clocks.skew_ms(now)
    }
}
