//! A source's spec, once its string has been read: every option with its default filled in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::fault::CommandLine;
use crate::layout::scatter::Scatter;
use crate::layout::{Layout, rfc3339};
use crate::request::bank_spec::BankSpec;
use crate::request::reservation::BELIEVED_MS;
use crate::request::reservation::{Key, Mark, Request, Scheme};
use crate::request::store_index::StoreIndex;
use crate::request::worker::{BeginMark, Places, Slots};
use crate::serial::SerialPattern;
use crate::text_form::TextForm;

/// What a source hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Numbers.
    Segment,
    /// Numbers made of time, worker and sequence.
    Snowflake,
    /// Texts made of a date part and a number.
    Serial,
    /// Ids made of the gene of a key and a number.
    Business,
}

/// `order=process|thread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ids rise over all threads of the process.
    Process,
    /// Each thread counts through a block of its own.
    Thread,
}

/// The options that say how much to reserve, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The fewest numbers of one reservation.
    pub min_step: u64,
    /// The most numbers of one reservation, unless a batch lacks more.
    pub max_step: u64,
    /// Reservations are whole multiples of this; `step=N` sets it, and `min_step` with it.
    pub unit: u64,
    /// How many milliseconds the numbers in memory must last at the present rate.
    pub buffer_ms: u64,
    /// Segments older than this are dropped.
    pub ttl_ms: Option<u64>,
    /// The numbers end soon, as with every serial: memory holds no more of them than were used lately. Other sources end at 2^47 or
    /// later.
    pub ends: bool,
}

/// Under `backwards=heal`, a row is raised by at most this many largest steps: a poisoned mark must not burn the space.
const MAX_JUMP_STEPS: u64 = 1_000;

/// The options of a snowflake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnowflakeSpec {
    /// The fields of an id.
    pub layout: Layout,
    /// The worker id, or how one is found.
    pub worker: Worker,
    /// Where a worker that is given was read.
    pub from: WorkerFrom,
    /// `mark=store`: the highest time in use of a worker that is given is kept in the store.
    pub is_marked: bool,
    /// The worker was given as `DC+N`, and parts of ids are shown so.
    pub by_data_centre: bool,
    /// What to do when the wall clock steps back.
    pub clock_back: ClockBack,
    /// How far the time of an id may lead the wall clock.
    pub max_lead_ms: u64,
}

/// Where a snowflake's worker id comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// It is given.
    Fixed(u64),
    /// It is leased from the store.
    Leased {
        /// How long a lease lasts without renewal.
        lease_ms: u64,
        /// The worker ids to choose from.
        slots: Slots,
    },
    /// It is the number of a row that the store makes for it, and is used once.
    Disposable,
}

impl Worker {
    /// How `worker=` names it, if the store decides about it.
    pub(crate) const fn kind(self) -> Option<&'static str> {
        match self {
            Worker::Fixed(_) => None,
            Worker::Leased { .. } => Some("lease"),
            Worker::Disposable => Some("disposable"),
        }
    }
}

/// Where a worker that is given was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerFrom {
    /// In the spec.
    Given,
    /// At the end of a host name.
    Ordinal,
    /// In the low bits of an address.
    Address,
}

/// What follows the worker where it is shown, before what was read.
impl fmt::Display for WorkerFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerFrom::Given => Ok(()),
            WorkerFrom::Ordinal => f.write_str(", the number of the host name "),
            WorkerFrom::Address => f.write_str(", the low bits of the address "),
        }
    }
}

/// What to do when the wall clock steps back.
///
/// Using up the sequence of a tick borrows from the next ticks in all three, up to `max_lead`: that is the same clock,
/// not a step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockBack {
    /// Count on from the last tick until the clock catches up; beyond `max_lead`, `CLOCK_BEHIND`. The default.
    Borrow,
    /// `NOT_READY` until the clock catches up: `next` waits up to its deadline.
    Wait,
    /// `CLOCK_BEHIND` until the clock catches up.
    Error,
}

/// A source's spec, checked and with every default filled in.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The spec string in one spelling; with the zone that `zone=local` was, where that has a name.
    pub text: String,
    /// How a shell names the mill; `None` where no other process reaches it.
    pub command: Option<Arc<str>>,
    /// `segment:orders`, without options: for messages and metrics.
    pub label: String,
    /// What its reservations are kept under.
    pub key: Arc<Key>,
    /// In which order the ids of several threads rise.
    pub order: Order,
    /// How many numbers a thread or a handle leases at a time.
    pub block: u64,
    /// How long a call may wait.
    pub deadline: Duration,
    /// How its ids are written as text. No effect on serials.
    pub(crate) form: TextForm,
    /// The options of a snowflake; `None` for the other kinds.
    pub snowflake: Option<SnowflakeSpec>,
    /// What a snowflake's worker was read from: a host name, or an address with its interface.
    pub worker_read: String,
    /// The options of business ids; `None` for the other kinds.
    pub bank: Option<BankSpec>,
    /// The spec writes each option that says how far ids of a snowflake may lead the clock.
    pub lead_is_written: bool,
    /// `zone=local` of a serial with dates.
    pub takes_program_zone: bool,
    /// `skew=5s` of a serial: how far this clock may be behind the row's period.
    pub skew_ms: u64,
    /// How much to reserve, and when.
    pub rules: Rules,
    /// First number of a new row and of a new period.
    pub start: u64,
    /// The largest number.
    pub last: u64,
    /// `backwards=heal`.
    pub heal: bool,
}

impl Spec {
    /// How a shell names the source.
    #[must_use]
    pub(crate) fn command_line(&self) -> CommandLine<'_> {
        match &self.command {
            Some(keymill) => CommandLine { keymill, source: Some(&self.text) },
            None => CommandLine::BARE,
        }
    }

    /// A request for so many numbers, in the source's count and without a period, of this process, which has seen the row at
    /// `high_water`.
    pub(crate) fn request(&self, key: Arc<Key>, len: u64, high_water: Mark) -> Request {
        Request {
            high_water,
            start: self.start,
            last: self.last,
            heal: self.heal,
            max_jump: self.rules.max_step.saturating_mul(MAX_JUMP_STEPS),
            ..Request::new(&key, len)
        }
    }

    /// What a pool of leased workers records of its ids: they are unique only if all processes agree on it.
    #[must_use]
    pub fn pool_layout(&self) -> String {
        let layout = self.snowflake.map(|snowflake| snowflake.layout);
        layout.map_or_else(String::new, |layout| {
            format!("{} epoch {}", layout.with_form(), rfc3339(layout.epoch_ms()))
        })
    }

    /// The places that may keep marks of the snowflake's workers, where the store keeps any.
    #[must_use]
    pub fn places(&self) -> Option<Places> {
        let SnowflakeSpec { layout, worker, .. } = self.snowflake?;
        let (fixed, leased) = (Scheme::Keymill.default_table(), Scheme::Worker.default_table());
        let own = self.key.table.as_str();
        let (fixed_table, pool_table) = match worker {
            Worker::Fixed(_) => (own, leased),
            Worker::Leased { .. } => (fixed, own),
            Worker::Disposable => return None,
        };
        let source = self.label.strip_prefix("snowflake:").unwrap_or(&self.label);
        Some(Places {
            source: source.to_owned(),
            fixed_table: fixed_table.to_owned(),
            pool_table: pool_table.to_owned(),
            layouts: layout.spellings(),
        })
    }

    /// Equal for two specs of one fixed worker, whatever their epochs: no process serves both.
    #[must_use]
    pub(crate) fn fixed_worker(&self) -> Option<String> {
        let SnowflakeSpec { layout, worker: Worker::Fixed(worker), .. } = self.snowflake? else {
            return None;
        };
        Some(format!("{}?layout={}&worker={worker}", self.label, layout.spellings().first()?))
    }

    /// How far after the store's clock ids of this snowflake may lie, milliseconds: a machine that is ahead is believed for ten minutes, a
    /// process that has lost its worker goes on for a lease, and ids lead the clock by `max_lead`. The one definition of what `repair` needs.
    #[must_use]
    pub fn furthest_lead_ms(&self) -> u64 {
        let Some(SnowflakeSpec { worker, max_lead_ms, .. }) = self.snowflake else { return 0 };
        let lease_ms = if let Worker::Leased { lease_ms, .. } = worker { lease_ms } else { 0 };
        BELIEVED_MS + lease_ms + max_lead_ms
    }

    /// The options of [`Spec::furthest_lead_ms`] as they are, where the spec does not write each of them.
    #[must_use]
    pub(crate) fn unwritten_lead(&self) -> Option<String> {
        let SnowflakeSpec { worker, max_lead_ms, .. } = self.snowflake.filter(|_| !self.lead_is_written)?;
        let max_lead = format!("max_lead={}", in_words(max_lead_ms));
        Some(match worker {
            Worker::Leased { lease_ms, .. } => format!("{max_lead}&lease={}", in_words(lease_ms)),
            _ => max_lead,
        })
    }

    /// What a process asks the store for that begins with a fixed worker.
    #[must_use]
    pub(crate) fn begin_mark(&self) -> Option<BeginMark> {
        let Worker::Fixed(worker) = self.snowflake?.worker else { return None };
        Some(BeginMark {
            key: self.key.clone(),
            worker,
            places: Arc::new(self.places()?),
            store: StoreIndex::ONLY,
        })
    }

    /// The snowflake's worker is leased.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        matches!(self.snowflake, Some(SnowflakeSpec { worker: Worker::Leased { .. }, .. }))
    }

    /// The store finds the snowflake's worker: the source begins without one.
    #[must_use]
    pub fn finds_worker(&self) -> bool {
        self.snowflake.is_some_and(|snowflake| snowflake.worker.kind().is_some())
    }

    /// What the source hands out.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match (&self.snowflake, &self.key.serial) {
            _ if self.bank.is_some() => Kind::Business,
            (Some(_), _) => Kind::Snowflake,
            (None, Some(_)) => Kind::Serial,
            (None, None) => Kind::Segment,
        }
    }

    /// Equal for two specs of one source: every option as it was resolved, however it was spelled.
    #[must_use]
    pub fn identity(&self) -> String {
        let zone = self.pattern().map_or("", SerialPattern::zone_name);
        format!(
            "{:?} {} {} {zone} {:?} {} {:?} {:?} {:?} {:?} {} {:?} {} {} {}",
            self.key.scheme,
            self.key.place(),
            self.key.name,
            self.order,
            self.block,
            self.deadline,
            self.form,
            self.snowflake,
            self.bank,
            self.skew_ms,
            self.rules,
            self.start,
            self.last,
            self.heal
        )
    }

    /// The zone of a serial's dates; `None` without dates.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.pattern().filter(|pattern| pattern.is_dated()).map(SerialPattern::zone_name)
    }

    /// The zone of another serial of the same row, where it is not this one's.
    pub(crate) fn other_zone<'o>(&self, other: &'o Spec) -> Option<&'o str> {
        let is_one_row = self.key.name == other.key.name && self.key.place() == other.key.place();
        let (own, others) = (self.pattern()?, other.pattern()?);
        other.zone().filter(|_| is_one_row && own.is_dated() && !own.is_in_zone_of(others))
    }

    /// The pattern of a serial source.
    #[must_use]
    pub fn pattern(&self) -> Option<&SerialPattern> {
        self.key.serial.as_ref().map(|s| &s.pattern)
    }

    /// Whether numbers in memory can end by themselves: with their period, or when they outlive `ttl`.
    #[must_use]
    pub fn has_ends(&self) -> bool {
        // The period of a pattern without a date is 0 at any time.
        self.rules.ttl_ms.is_some()
            || self.key.scheme.keeps_ttl()
            || self.pattern().is_some_and(|pattern| pattern.period_at(0) != 0)
    }

    /// The most bytes a text of the source can have.
    #[must_use]
    pub fn text_len(&self) -> usize {
        /// Digits of 2^63-1.
        const MOST_DIGITS: usize = 19;
        match self.pattern() {
            Some(pattern) => {
                let widest = if self.last > pattern.last() { 18 } else { pattern.width() as usize };
                pattern.prefix(pattern.period_at(0)).len() + widest
            }
            // A 128-bit id has 39 digits at most.
            None if self.bank.is_some_and(|bank| bank.wide) => 39,
            None => self.form.longest(MOST_DIGITS),
        }
    }

    /// What the source is, as `name, value`, every default filled in.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("source", self.label.clone()),
            ("scheme", self.key.scheme.name().to_owned()),
            ("table", self.key.table.clone()),
            ("key", self.key.name.to_string()),
        ];
        if let Some(pattern) = self.pattern() {
            settings.push(("date", pattern.date_pattern().to_owned()));
            settings.push(("number", pattern.number_pattern().to_owned()));
            settings.extend(self.zone().map(|zone| ("zone", zone.to_owned())));
        }
        if let Some(SnowflakeSpec { layout, worker, from, is_marked, by_data_centre, .. }) = &self.snowflake {
            settings.push(("layout", layout.describe()));
            settings.push(("epoch", rfc3339(layout.epoch_ms())));
            if layout.scatter() != Scatter::None {
                settings.push(("scatter", layout.scatter().to_string()));
            }
            settings.push((
                "worker",
                match worker {
                    Worker::Fixed(worker) => match layout.split_worker(*worker).filter(|_| *by_data_centre) {
                        Some((center, worker)) => format!("{center}+{worker}"),
                        None => format!("{worker}{from}{}", self.worker_read),
                    },
                    Worker::Disposable => format!("a row of {}, used once", self.key.table),
                    Worker::Leased { lease_ms, slots } => {
                        format!("leased for {} from {} to {}", in_words(*lease_ms), slots.first, slots.last)
                    }
                },
            ));
            if !is_marked {
                settings.push(("mark", "none".to_owned()));
            }
        } else {
            settings.push(("step", self.step_in_words(None)));
        }
        if !self.form.is_plain() {
            settings.push(("text", self.form.digits.name().to_owned()));
            settings.push(("prefix", self.form.prefix().to_owned()));
        }
        if let Some(bank) = self.bank {
            settings.push(("counters", bank.counters.to_string()));
            settings.push(("wide", if bank.wide { "on" } else { "off" }.to_owned()));
            return settings;
        }
        let stride = self.key.stride;
        if !stride.is_every() {
            settings.push(("delta", stride.delta().to_string()));
            settings.push(("remainder", stride.remainder().to_string()));
        }
        if self.key.scheme.keeps_allocation() {
            settings.push(("allocation", self.key.step.to_string()));
        }
        if self.key.scheme.is_shared_sequence() {
            settings.push(("optimizer", self.key.optimizer().to_owned()));
        }
        let order = match self.order {
            Order::Process => "process",
            Order::Thread => "thread",
        };
        settings.push(("order", order.to_owned()));
        settings
    }

    /// How many numbers one reservation takes, where the row has this step of its own.
    #[must_use]
    pub fn step_in_words(&self, of_row: Option<u64>) -> String {
        let Rules { min_step, max_step, unit, .. } = self.rules;
        match (of_row, unit) {
            (Some(step), _) => {
                // The row counts every number, the source only its own.
                let delta = self.key.stride.delta();
                let whole = |len: u64| len.saturating_mul(delta).div_ceil(step.max(1)).saturating_mul(step);
                let (least, most) = (whole(min_step), whole(max_step));
                let every = if delta == 1 { String::new() } else { format!(", an id in every {delta}") };
                format!("{least} to {most} in multiples of {step}, the row's step{every}")
            }
            (None, 2..) => format!("{min_step} to {max_step} in multiples of {unit}"),
            (None, _) => format!("{min_step} to {max_step}"),
        }
    }
}

/// A time as a spec writes it: `30s`.
#[must_use]
pub(crate) fn in_words(ms: u64) -> String {
    match ms {
        1.. if ms.is_multiple_of(86_400_000) => format!("{}d", ms / 86_400_000),
        1.. if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        1.. if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        1.. if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}
