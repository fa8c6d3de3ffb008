//! What a source is, once its spec string has been read: the kind, and every option with its default filled in.

use std::sync::Arc;
use std::time::Duration;

use crate::base::reservation::Key;
use crate::segment::Rules;
use crate::serial::SerialPattern;
use crate::snowflake::{ClockBack, Layout};

/// `order=process|thread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ids rise over all threads of the process.
    Process,
    /// Each thread counts through a block of its own.
    Thread,
}

/// What a source hands out, and the options of its kind.
#[derive(Clone, Debug)]
pub enum Body {
    /// Numbers from a store's segments.
    Segment,
    /// Dated serial numbers.
    Serial {
        /// `skew=5s`: how far this clock may be behind the row's period.
        skew_ms: u64,
    },
    /// Snowflakes of one worker.
    Snowflake {
        /// The fields.
        layout: Layout,
        /// The worker id.
        worker: u64,
        /// What a clock that steps back means.
        clock_back: ClockBack,
        /// How far time may lead the wall clock.
        max_lead_ms: u64,
    },
}

/// A source's spec, checked and with every default filled in.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The spec string in one spelling, so that two spellings of one source are one source.
    pub text: String,
    /// `segment:orders`, without options: for messages and metrics.
    pub label: String,
    /// What its reservations are kept under.
    pub key: Arc<Key>,
    /// Who counts.
    pub order: Order,
    /// Numbers a thread or handle takes at a time.
    pub block: u64,
    /// How long a call may wait.
    pub deadline: Duration,
    /// The kind and its own options.
    pub body: Body,
    /// How to reserve.
    pub rules: Rules,
    /// First number of a new row and of a new period.
    pub start: u64,
    /// The largest number.
    pub last: u64,
    /// `backwards=heal`.
    pub heal: bool,
}

impl Spec {
    /// What makes two specs one source: every option as it was resolved, however it was spelled.
    #[must_use]
    pub fn identity(&self) -> String {
        let zone = self.pattern().map_or("", SerialPattern::zone_name);
        format!(
            "{:?} {} {} {zone} {:?} {} {:?} {:?} {:?} {} {} {}",
            self.key.scheme,
            self.key.place(),
            self.key.name,
            self.order,
            self.block,
            self.deadline,
            self.body,
            self.rules,
            self.start,
            self.last,
            self.heal
        )
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
            None => MOST_DIGITS,
        }
    }

    /// What the source is, as `name, value`, every default filled in.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("source", self.label.clone()),
            ("scheme", self.key.scheme.name().to_owned()),
            ("table", self.key.table.clone()),
            ("key", self.key.name.clone()),
        ];
        if let Some(pattern) = self.pattern() {
            settings.push(("date", pattern.date_pattern().to_owned()));
            settings.push(("number", pattern.number_pattern().to_owned()));
        }
        if let Body::Snowflake { layout, worker, .. } = &self.body {
            settings.push(("layout", layout.describe()));
            settings.push(("epoch", crate::snowflake::layout::rfc3339(layout.epoch_ms())));
            settings.push(("worker", worker.to_string()));
        } else {
            settings.push(("step", self.step_in_words(None)));
        }
        let stride = self.key.stride;
        if !stride.is_every() {
            settings.push(("delta", stride.delta().to_string()));
            settings.push(("remainder", stride.remainder().to_string()));
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
