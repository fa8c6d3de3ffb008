//! Leased workers: when a slot is taken, renewed and given up.
//!
//! All leases of a mill are renewed together, each third of the shortest one, whether their sources are used or not. A lease that was
//! not renewed ends by the boot clock before it ends by the store's; a renewal that still finds token and mark as this process left
//! them goes on with the same slot, since no other process has taken it.

use std::sync::Arc;
use std::time::Duration;

use crate::base::fault::{Fault, FaultKind};
use crate::base::reservation::MAX_NUMBER;
use crate::base::spec::{SnowflakeSpec, Worker};
use crate::base::worker::{Release, Renewal, Renewed, Take, Taken};

use super::completion::BACKOFF_MS;
use super::{Action, Ask, Batch, Now, Planner, Slot, Want};

/// A lease is renewed each time this part of it has passed.
const RENEWED_EACH: u64 = 3;

/// A lease is used for all but this part of it: clocks of the same speed may differ a little.
const UNUSED_PART: u64 = 16;

/// A jump of the wall clock against the boot clock that is believed without the store's clock.
const BELIEVED_JUMP_MS: u64 = 600_000;

/// How many lost answers of one lease are remembered.
const MOST_DOUBTS: usize = 16;

/// A slot that this process leases.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    worker: u64,
    token: u64,
    /// Where this process left the mark, and where requests with lost answers may have left it.
    marks: Vec<u64>,
    /// The boot time at which its use ends.
    until_ms: u64,
    /// How long it lasts without renewal.
    length_ms: u64,
    /// The renewal in flight: its mark, and when it was sent.
    asked: Option<(u64, u64)>,
}

/// What is known of the clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clocks {
    /// The last wall time that was believed.
    believed: Option<Now>,
    /// The store's clock, and the boot time at which it answered.
    store: Option<(u64, u64)>,
}

/// What a leased source needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerView {
    /// A caller found no worker.
    pub(crate) wanted: bool,
    /// The generator has no worker.
    pub(crate) idle: bool,
    /// The highest mark that it was given.
    pub(crate) mark: u64,
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
        let store = self.store.map(|(store_ms, boot_ms)| (store_ms as i64).saturating_add(passed(boot_ms)));
        let near = |other: i64| now.wall_ms.abs_diff(other) <= BELIEVED_JUMP_MS;
        if near(expected) || store.is_some_and(near) {
            self.believed = Some(now);
            return now.wall_ms;
        }
        expected
    }

    fn answered(&mut self, store_ms: u64, now: Now) {
        if store_ms > 0 {
            self.store = Some((store_ms, now.boot_ms));
        }
    }

    /// How far the wall clock is ahead of the store's.
    fn skew_ms(&self, now: Now) -> Option<i64> {
        let (store_ms, boot_ms) = self.store?;
        let store_ms = (store_ms as i64).saturating_add(now.boot_ms.saturating_sub(boot_ms) as i64);
        Some(now.wall_ms.saturating_sub(store_ms))
    }
}

/// How long a lease is used, from when it was asked for.
fn used_ms(lease_ms: u64) -> u64 {
    lease_ms - lease_ms / UNUSED_PART
}

/// The mark of a lease that begins at this wall time: it covers every id until the lease ends, and its lead.
fn mark_at(of: &SnowflakeSpec, wall_ms: i64, lease_ms: u64) -> u64 {
    let end_ms = wall_ms.saturating_add((lease_ms + of.max_lead_ms) as i64);
    // The present tick is covered however long a tick is.
    let tick = of.layout.tick_at(end_ms.saturating_sub(1)).saturating_add(1);
    u64::try_from(tick).unwrap_or(0).min(of.layout.max_tick() + 1)
}

impl Planner {
    /// The process, as the rows of its slots name it.
    pub(crate) fn set_owner(&mut self, owner: Arc<str>) {
        self.owner = Some(owner);
    }

    pub(super) fn check_worker(&mut self, slot: Slot, view: WorkerView, now: Now, actions: &mut Vec<Action>) {
        let Some(plan) = self.plan(slot) else { return };
        plan.worker_mark = view.mark;
        match &plan.lease {
            Some(lease) if now.boot_ms >= lease.until_ms => {
                if !view.idle {
                    actions.push(Action::Lapse);
                }
                plan.wanted = None;
            }
            Some(lease) => {
                let until_ms = lease.until_ms;
                if view.idle {
                    // It ended while the answer to its renewal was on the way.
                    let mark = lease.marks.first().copied().unwrap_or_default();
                    actions.push(Action::Begin { worker: lease.worker, start: 0, mark, until_ms });
                }
                plan.wanted = None;
                self.set_timer(slot, until_ms);
            }
            None => {
                plan.wanted = view.wanted.then_some(Want::Worker);
                if view.wanted {
                    self.enqueue(slot, true);
                }
            }
        }
    }

    /// The request for a slot.
    pub(super) fn ask_worker(&mut self, slot: Slot, now: Now) -> Option<Ask> {
        let token = self.rng.u64(1..=MAX_NUMBER);
        let owner = self.owner.clone().unwrap_or_else(|| "keymill".into());
        let wall_ms = self.clocks.believed(now);
        let plan = self.plan(slot)?;
        let of = plan.spec.snowflake?;
        let Worker::Leased { lease_ms, slots } = of.worker else { return None };
        let tick_at = |ms: i64| u64::try_from(of.layout.tick_at(ms)).unwrap_or(0);
        plan.taking = Some((token, now.boot_ms));
        Some(Ask::Take(Take {
            key: plan.spec.key.clone(),
            layout: plan.spec.pool_layout().into(),
            slots,
            member: (1, 0),
            latest_mark: tick_at(wall_ms.saturating_add(of.max_lead_ms as i64)) + 1,
            present: tick_at(wall_ms),
            mark: mark_at(&of, wall_ms, lease_ms).max(plan.worker_mark),
            lease_ms,
            token,
            owner,
        }))
    }

    /// The store leased a slot.
    pub(super) fn taken(&mut self, slot: Slot, taken: Taken, now: Now) -> Vec<Action> {
        self.clocks.answered(taken.now_ms, now);
        let Some(plan) = self.plan(slot) else { return Vec::new() };
        plan.wanted = None;
        let Some((token, sent_ms)) = plan.taking.take() else { return Vec::new() };
        let Some(SnowflakeSpec { worker: Worker::Leased { lease_ms, .. }, .. }) = plan.spec.snowflake else {
            return Vec::new();
        };
        let Taken { slot: worker, start, mark, .. } = taken;
        let until_ms = sent_ms.saturating_add(used_ms(lease_ms));
        plan.lease =
            Some(Lease { worker, token, marks: vec![mark], until_ms, length_ms: lease_ms, asked: None });
        if self.leases.is_empty() {
            self.renew_at_ms = u64::MAX;
        }
        self.leases.insert(slot);
        self.renew_at_ms = self.renew_at_ms.min(sent_ms.saturating_add(lease_ms / RENEWED_EACH));
        vec![Action::Begin { worker, start, mark, until_ms }]
    }

    /// When the leases are renewed, on the boot clock; `None`: there is none, or the renewal is in flight.
    pub(super) fn renewal_due_ms(&self) -> Option<u64> {
        (!self.leases.is_empty() && !self.renewing).then_some(self.renew_at_ms)
    }

    /// The renewal of every lease of this mill, if it is due.
    pub(super) fn next_renewal(&mut self, now: Now) -> Option<Batch> {
        if now.boot_ms < self.renewal_due_ms()? {
            return None;
        }
        let wall_ms = self.clocks.believed(now);
        let (mut slots, mut renewals) = (Vec::new(), Vec::new());
        for &slot in &self.leases {
            let Some(plan) = self.plans.get_mut(slot).and_then(Option::as_mut) else { continue };
            let (Some(lease), Some(of)) = (&mut plan.lease, &plan.spec.snowflake) else { continue };
            let least = lease.marks.iter().copied().max().unwrap_or_default().max(plan.worker_mark);
            let to = mark_at(of, wall_ms, lease.length_ms).max(least);
            lease.asked = Some((to, now.boot_ms));
            slots.push(slot);
            renewals.push(Renewal {
                key: plan.spec.key.clone(),
                slot: lease.worker,
                token: lease.token,
                expect: lease.marks.clone(),
                to,
                lease_ms: lease.length_ms,
            });
        }
        self.renewing = true;
        self.failed = false;
        Some(Batch::Renew(slots, renewals))
    }

    /// The store answered a renewal.
    pub(crate) fn renewed(
        &mut self,
        slots: &[Slot],
        answer: Result<Renewed, Fault>,
        now: Now,
    ) -> Vec<(Slot, Action)> {
        self.renewing = false;
        let answer = match answer {
            Ok(renewed) => {
                self.clocks.answered(renewed.now_ms, now);
                (self.failures, self.failing_since_ms) = (0, None);
                (self.store_retry_at_ms, self.store_urgent_at_ms) = (0, 0);
                Ok(renewed.marks)
            }
            Err(fault) => {
                if fault.kind.is_outage() {
                    self.back_off(now);
                }
                Err(fault)
            }
        };
        let mut actions = Vec::new();
        let mut errors = Vec::new();
        let mut failed = answer.is_err();
        for (at, &slot) in slots.iter().enumerate() {
            let answer = match &answer {
                Ok(marks) => marks.get(at).cloned(),
                Err(fault) => Some(Err(fault.clone())),
            };
            let Some(plan) = self.plan(slot) else { continue };
            let Some(lease) = &mut plan.lease else { continue };
            let Some((to, sent_ms)) = lease.asked.take() else { continue };
            match answer {
                Some(Ok(mark)) => {
                    lease.marks = vec![mark];
                    lease.until_ms = sent_ms.saturating_add(used_ms(lease.length_ms));
                    let until_ms = lease.until_ms;
                    actions.push((slot, Action::Renewed { mark, until_ms }));
                    self.set_timer(slot, until_ms);
                }
                Some(Err(fault)) if fault.kind == FaultKind::Taken => {
                    plan.lease = None;
                    self.leases.remove(&slot);
                    actions.push((slot, Action::Lapse));
                }
                Some(Err(fault)) => {
                    failed = true;
                    if now.boot_ms >= lease.until_ms {
                        errors.push((slot, fault.error(plan.spec.command_line())));
                    }
                    if fault.kind == FaultKind::Unknown && !lease.marks.contains(&to) {
                        lease.marks.truncate(MOST_DOUBTS);
                        lease.marks.push(to);
                    }
                }
                None => failed = true,
            }
        }
        self.renew_failures = if failed { self.renew_failures.saturating_add(1) } else { 0 };
        let leases = self.leases.iter().filter_map(|&slot| self.plans.get(slot)?.as_ref()?.lease.as_ref());
        let third = leases.map(|lease| lease.length_ms).min().unwrap_or(0) / RENEWED_EACH;
        let wait = match self.renew_failures {
            0 => third,
            failures => self.backoff(failures, (third / 4).max(1).min(BACKOFF_MS.1)),
        };
        self.renew_at_ms = now.boot_ms.saturating_add(wait);
        // Callers of a source whose lease is over wait for this.
        let wait = Duration::from_millis(wait);
        actions.extend(errors.into_iter().map(|(slot, error)| (slot, Action::Fail(error.after(wait)))));
        actions
    }

    /// What frees the slot of a source, where `used` is the first tick that it has not used.
    pub(crate) fn release(&self, slot: Slot, used: u64) -> Option<Release> {
        let plan = self.plans.get(slot)?.as_ref()?;
        let Lease { worker, token, marks, .. } = plan.lease.as_ref()?;
        Some(Release {
            key: plan.spec.key.clone(),
            slot: *worker,
            token: *token,
            expect: marks.clone(),
            used,
        })
    }

    /// Takes over what an earlier planner knows of the leases; a renewal in flight may have been carried out.
    pub(super) fn inherit_leases(&mut self, old: &mut Planner) {
        self.owner = old.owner.take();
        self.clocks = old.clocks;
        for &slot in &old.leases {
            let lease = old.plans.get_mut(slot).and_then(Option::as_mut).and_then(|plan| plan.lease.take());
            let (Some(mut lease), Some(plan)) = (lease, self.plan(slot)) else { continue };
            if let Some((to, _)) = lease.asked.take() {
                lease.marks.push(to);
            }
            plan.lease = Some(lease);
            self.leases.insert(slot);
        }
    }

    /// How far the wall clock is ahead of the store's, where the store has shown its own.
    #[must_use]
    pub fn skew_ms(&self, now: Now) -> Option<i64> {
        self.clocks.skew_ms(now)
    }
}
