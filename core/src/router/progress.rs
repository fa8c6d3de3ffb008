//! How far a move is: what its steps store in the table beside the routes.

use serde_json::{Map, Value};

use crate::time::duration;

use super::table_reader::{LARGEST_NUMBER, LONGEST_TIME_MS, TableReader, said, whole};

/// What the steps of a move need to know beside the routes. A table that was written by hand says none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The version in which the range began to move.
    pub(crate) since: Option<u64>,
    /// The percentages of the cut-over, rising, the last one 100.
    pub(crate) steps: Vec<u8>,
    /// How long each step is watched before the next one.
    pub(crate) watch_ms: u64,
    /// When this percentage was stored, by the store's clock, milliseconds since 1970.
    pub(crate) stored_at: Option<u64>,
    /// From when on a comparison of both shards counts for the next step, by the same clock: `settle` after every reader followed the step
    /// before.
    pub(crate) verify_from: Option<u64>,
    /// When the comparison of both shards began that found no difference, by the same clock.
    pub(crate) verified_at: Option<u64>,
    /// From when on the move may be finished, by the same clock: `settle` after that comparison was recorded.
    pub(crate) finish_from: Option<u64>,
}

impl Progress {
    pub(crate) const STEPS: [u8; 4] = [5, 25, 50, 100];
    pub(crate) const WATCH_MS: u64 = 60_000;

    /// What comes now depends on a new comparison.
    pub(crate) fn forget_comparison(&mut self) {
        (self.verify_from, self.verified_at, self.finish_from) = (None, None, None);
    }
}

impl Default for Progress {
    fn default() -> Progress {
        let steps = Progress::STEPS.to_vec();
        Progress {
            since: None,
            steps,
            watch_ms: Progress::WATCH_MS,
            stored_at: None,
            verify_from: None,
            verified_at: None,
            finish_from: None,
        }
    }
}

/// Percentages of a cut-over: from 1 on, rising, the last one 100.
pub(crate) fn check_steps(steps: &[u8]) -> std::result::Result<(), String> {
    let rise = steps.windows(2).all(|pair| pair[0] < pair[1]);
    if rise && steps.first().is_some_and(|first| *first > 0) && steps.last() == Some(&100) {
        return Ok(());
    }
    Err(format!("the steps {steps:?} are no percentages that rise from 1 at least to 100"))
}

impl TableReader {
    pub(super) fn progress(&mut self, subject: &str, fields: &Map<String, Value>) -> Progress {
        let mut number = |field: &str| {
            let value = fields.get(field)?;
            let number = whole(value, LARGEST_NUMBER);
            if number.is_none() {
                self.fault(format!(
                    "{subject}: `{field}` is {}, not a whole number up to 2^53-1",
                    said(value)
                ));
            }
            number
        };
        let (since, stored_at) = (number("since"), number("stored_at"));
        let (verify_from, verified_at) = (number("verify_from"), number("verified_at"));
        let finish_from = number("finish_from");
        let steps =
            fields.get("steps").map_or_else(|| Progress::STEPS.to_vec(), |value| self.steps(subject, value));
        let watch_ms = fields
            .get("watch")
            .map_or(Progress::WATCH_MS, |value| self.time(&format!("{subject}: `watch`"), value));
        Progress { since, steps, watch_ms, stored_at, verify_from, verified_at, finish_from }
    }

    pub(super) fn time(&mut self, subject: &str, value: &Value) -> u64 {
        let time = value.as_str().and_then(duration).filter(|ms| *ms <= LONGEST_TIME_MS);
        time.unwrap_or_else(|| {
            self.fault(format!("{subject} is {}, not a time up to 7d, such as \"10s\"", said(value)));
            0
        })
    }

    fn steps(&mut self, subject: &str, value: &Value) -> Vec<u8> {
        let list: Option<Vec<u8>> =
            value.as_array().and_then(|list| list.iter().map(|step| Some(whole(step, 100)? as u8)).collect());
        // More than 100 percentages do not rise, and the message lists them.
        let list = list.filter(|list| list.len() <= 100);
        match list.map(|steps| check_steps(&steps).map(|()| steps)) {
            Some(Ok(steps)) => steps,
            Some(Err(why)) => {
                self.fault(format!("{subject}: {why}"));
                Vec::new()
            }
            None => {
                self.fault(format!("{subject}: `steps` is {}, not a list of percentages", said(value)));
                Vec::new()
            }
        }
    }
}
