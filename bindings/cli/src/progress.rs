//! How far it is, on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::print;

/// How often a line is written where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);
const WHOLE: u64 = 10_000;

/// A bar on a terminal, a line now and then elsewhere.
pub struct Progress {
    doing: String,
    bar: Option<ProgressBar>,
    began: Instant,
    said: Instant,
}

impl Progress {
    /// `doing` is a word for the rows: `copied`.
    pub fn new(doing: String) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(WHOLE), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{wide_bar} {percent} % {msg}, {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let now = Instant::now();
        Progress { doing, bar, began: now, said: now }
    }

    /// So much of the range is done, 0 to 1.
    pub fn at(&mut self, share: f64, rows: u64, is_easing: bool) {
        let rate = rows as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let eased = if is_easing { ", slower because replies take long" } else { "" };
        let said = format!("{}: {rows} rows, {rate:.0} a second{eased}", self.doing);
        if let Some(bar) = &self.bar {
            bar.set_message(said);
            bar.set_position((share * WHOLE as f64) as u64);
        } else if self.said.elapsed() >= EVERY {
            self.said = Instant::now();
            print::note(&format!("keymill: {said}, {:.1} % of the range", share * 100.0));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
