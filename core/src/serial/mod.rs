//! Serial numbers: a date part and a zero-padded number, `20261120000001`. Pure functions and types. (floor 0)
//!
//! The patterns are those of KeyFactory, which are Java's `SimpleDateFormat` and `DecimalFormat`; the text is the
//! same, byte for byte. What is promised on top:
//!
//! * a text is read back without a doubt: every date of a pattern has the same number of characters;
//! * two periods never make one text: a pattern whose date part would come back (`MMdd`) is refused;
//! * a period never falls while the clock does not: not where clocks go back, not beyond the last year.

mod format;
mod pattern;
mod period;

use crate::error::Result;

pub use format::{MAX_PREFIX, MAX_TEXT, Prefix, push_serial, write_number, write_serial};

use format::POW10;
use pattern::DatePattern;
use period::Calendar;

/// A date pattern, a number pattern and the zone whose local time the date is.
///
/// A *period* is the stretch of time in which the date part stays the same. It is a number: local time as
/// `yyyyMMddHHmmssSSS` with zeros for what the pattern does not show, so `20261120000000000` is a day and
/// `20260000000000000` a year. A pattern without date letters has one period, 0, which never ends.
///
/// ```
/// use keymill::serial::SerialPattern;
/// let pattern = SerialPattern::new("'CUST'yyyyMMdd", "000000", "Asia/Shanghai")?;
/// let day = pattern.period_at(1_795_192_200_000); // 2026-11-20T16:30:00Z, the next day in Shanghai
/// assert_eq!(day, 20261121000000000);
/// assert_eq!(pattern.text(day, 1), "CUST20261121000001");
/// assert_eq!(pattern.split("CUST20261121000001"), Some((day, 1)));
/// assert_eq!(pattern.period_end_ms(day), Some(1_795_276_800_000)); // midnight there
/// # Ok::<(), keymill::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerialPattern {
    date_text: String,
    number_text: String,
    zone_text: String,
    date: DatePattern,
    width: u32,
    calendar: Calendar,
}

impl SerialPattern {
    /// Checks and takes apart the three texts.
    ///
    /// `date` takes Java's letters, each once: `yy` (20yy) or `yyyy`, `MM`, `dd`, `HH`, `mm`, `ss`, `SSS`, in any
    /// order but without a gap from the year down; text stands in quotes (`'CUST'`, `''` is one quote), and what is
    /// not a letter stands for itself. It may be empty. `number` is 1 to 18 zeros. `zone` is `local`, `UTC`, a name
    /// of the IANA database or an offset such as `+08:00`.
    ///
    /// # Errors
    /// `INVALID_CONFIG`, with what is wrong and what would be right.
    ///
    /// ```
    /// use keymill::serial::SerialPattern;
    /// assert!(SerialPattern::new("yyMMddHH", "0000", "local").is_ok());
    /// let refused = SerialPattern::new("MMdd", "0000", "local").unwrap_err();
    /// assert_eq!(refused.code, keymill::error::Code::InvalidConfig);
    /// assert!(refused.message.contains("add `yyyy`"));
    /// ```
    pub fn new(date: &str, number: &str, zone: &str) -> Result<SerialPattern> {
        let parsed = DatePattern::parse(date)?;
        let width = pattern::width(number)?;
        let calendar = Calendar::new(period::zone(zone)?, parsed.finest(), parsed.short_year());
        Ok(SerialPattern {
            date_text: date.to_owned(),
            number_text: number.to_owned(),
            zone_text: zone.to_owned(),
            date: parsed,
            width,
            calendar,
        })
    }

    /// The date pattern as it was given.
    pub fn date_pattern(&self) -> &str {
        &self.date_text
    }

    /// The number pattern as it was given.
    pub fn number_pattern(&self) -> &str {
        &self.number_text
    }

    /// The zone as it was given; `local` stays `local`.
    pub fn zone_name(&self) -> &str {
        &self.zone_text
    }

    /// The digits of the number pattern, 1 to 18.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// The largest number of that many digits.
    pub fn last(&self) -> u64 {
        POW10.get(self.width as usize).map_or(u64::MAX, |limit| limit - 1)
    }

    /// The period of a moment, in milliseconds since 1970; 0 if the pattern has no date letters.
    ///
    /// As `wall_ms` rises it never falls. Where clocks go back, an hour of local time comes twice; a pattern that
    /// shows minutes keeps the last period before that until local time has passed it. A time the pattern cannot show
    /// (before year 1, after 9999; with `yy` outside 2000 to 2099) is in the nearest period it can.
    pub fn period_at(&self, wall_ms: i64) -> u64 {
        self.calendar.period_at(wall_ms)
    }

    /// The first millisecond after the period. `None` where it never ends: without date letters, and in the last
    /// period a pattern can show. `None` as well for a number that is no period of this pattern.
    ///
    /// A period that local time jumped over ends where it starts.
    pub fn period_end_ms(&self, period: u64) -> Option<i64> {
        self.calendar.end_ms(period)
    }

    /// The first millisecond of the period; `None` without date letters, and for a number that is no period of this
    /// pattern.
    pub fn period_start_ms(&self, period: u64) -> Option<i64> {
        self.calendar.start_ms(period)
    }

    /// The date part of the texts of a period, quoted text included.
    pub fn prefix(&self, period: u64) -> Prefix {
        self.date.render(period)
    }

    /// The period and the number of a text; `None` where the text does not fit the pattern: other literal text, a date
    /// that does not exist, no digit after it, or a number above 2^63 - 1.
    ///
    /// The number may have fewer or more digits than the number pattern: widened ones are read as well.
    ///
    /// ```
    /// let pattern = keymill::serial::SerialPattern::new("yyyyMMdd", "000000", "UTC")?;
    /// assert_eq!(pattern.split("202611201000000"), Some((20261120000000000, 1_000_000)));
    /// assert_eq!(pattern.split("20261320000001"), None); // there is no thirteenth month
    /// assert_eq!(pattern.split("INIT"), None);
    /// # Ok::<(), keymill::error::Error>(())
    /// ```
    pub fn split(&self, text: &str) -> Option<(u64, u64)> {
        let (period, rest) = self.date.read(text)?;
        let number = pattern::number(rest)?;
        self.calendar.has(period).then_some((period, number))
    }

    /// The text of a number: date part and digits, more than [`SerialPattern::width`] where it needs more.
    pub fn text(&self, period: u64, number: u64) -> String {
        let prefix = self.prefix(period);
        let mut text = String::with_capacity(prefix.len() + 20);
        push_serial(&mut text, &prefix, number, self.width);
        text
    }
}
