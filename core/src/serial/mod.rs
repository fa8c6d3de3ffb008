//! Serial numbers: a date part and a zero-padded number, `20261120000001`. Pure functions and types.
//!
//! The patterns are KeyFactory's, that is Java's `SimpleDateFormat` and `DecimalFormat`; the text is the
//! same, byte for byte. Further guarantees:
//!
//! * a text can be parsed unambiguously: every date of a pattern has the same number of characters;
//! * two periods never make the same text: a pattern whose date part would recur (`MMdd`) is refused;
//! * a period never falls while the clock does not: not where clocks go back, not beyond the last year.

mod calendar;
mod format;
mod pattern;

use crate::error::Result;

pub use format::{MAX_PREFIX, MAX_TEXT, Prefix, push_serial, write_number, write_serial};

use calendar::Calendar;
use format::POW10;
use pattern::DatePattern;

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
/// # Ok::<(), keymill::Error>(())
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
    /// Parses and checks the three texts.
    ///
    /// `date` takes Java's letters, each once: `yy` (20yy) or `yyyy`, `MM`, `dd`, `HH`, `mm`, `ss`, `SSS`, in any
    /// order but without a gap from the year down; text stands in quotes (`'CUST'`, `''` is one quote), and what is
    /// not a letter stands for itself. It may be empty. `number` is 1 to 18 zeros. `zone` is `UTC`, a name of the IANA
    /// database, an offset such as `+08:00`, or `local`: the zone that the environment's `TZ` names at this moment, else the
    /// machine's.
    ///
    /// # Errors
    /// `INVALID_CONFIG`, with what is wrong and what would be right; for `local` also a `TZ` that is no time zone.
    ///
    /// ```
    /// use keymill::serial::SerialPattern;
    /// assert!(SerialPattern::new("yyMMddHH", "0000", "local").is_ok());
    /// let refused = SerialPattern::new("MMdd", "0000", "local").unwrap_err();
    /// assert_eq!(refused.code, keymill::Code::InvalidConfig);
    /// assert!(refused.message.contains("add `yyyy`"));
    /// ```
    pub fn new(date: &str, number: &str, zone: &str) -> Result<SerialPattern> {
        SerialPattern::of_program(date, number, zone, None)
    }

    /// As [`SerialPattern::new`], where `zone=local` is the zone of the program, in a language that has one of its own. Without a date
    /// no zone matters, and none is read.
    pub(crate) fn of_program(
        date: &str,
        number: &str,
        zone: &str,
        program_zone: Option<&str>,
    ) -> Result<SerialPattern> {
        let parsed = DatePattern::parse(date)?;
        let width = pattern::width(number)?;
        let zone = match (zone, parsed.finest()) {
            ("local", None) => "UTC",
            ("local", Some(_)) => program_zone.unwrap_or(zone),
            _ => zone,
        };
        let found = calendar::zone(zone)?;
        let zone_text =
            if zone == "local" { calendar::name_of(&found).unwrap_or(zone) } else { zone }.to_owned();
        let calendar = Calendar::new(found, parsed.finest(), parsed.short_year());
        Ok(SerialPattern {
            date_text: date.to_owned(),
            number_text: number.to_owned(),
            zone_text,
            date: parsed,
            width,
            calendar,
        })
    }

    /// The date pattern as it was given.
    #[must_use]
    pub fn date_pattern(&self) -> &str {
        &self.date_text
    }

    /// The number pattern as it was given.
    #[must_use]
    pub fn number_pattern(&self) -> &str {
        &self.number_text
    }

    /// The zone as it was given. For `local` the name of the zone that it was; `local` where that has no name, as a rule or a
    /// file in `TZ`.
    #[must_use]
    pub fn zone_name(&self) -> &str {
        &self.zone_text
    }

    /// Whether both have one zone, by whichever of its names: `PRC` is `Asia/Shanghai`.
    pub(crate) fn is_in_zone_of(&self, other: &SerialPattern) -> bool {
        self.zone_text == other.zone_text || self.calendar.has_hours_of(&other.calendar)
    }

    /// Whether its serials have dates, so that their zone matters.
    pub(crate) fn is_dated(&self) -> bool {
        self.date.finest().is_some()
    }

    /// Whether a period lasts a millisecond: it is over before a store has answered.
    pub(crate) fn is_by_millisecond(&self) -> bool {
        self.date.finest() == Some(calendar::DateField::Milli)
    }

    /// The digits of the number pattern, 1 to 18.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// The largest number of that many digits.
    #[must_use]
    pub fn last(&self) -> u64 {
        POW10.get(self.width as usize).map_or(u64::MAX, |limit| limit - 1)
    }

    /// The period of a moment, in milliseconds since 1970; 0 if the pattern has no date letters.
    ///
    /// As `wall_ms` rises it never falls. Where clocks go back, an hour of local time comes twice; a pattern that
    /// shows minutes keeps the last period before that until local time has passed it. A time the pattern cannot show
    /// (before year 1, after 9999; with `yy` outside 2000 to 2099) is in the nearest period it can.
    #[must_use]
    pub fn period_at(&self, wall_ms: i64) -> u64 {
        self.calendar.period_at(wall_ms)
    }

    /// The first millisecond after the period. `None` where it never ends: without date letters, and in the last
    /// period a pattern can show. `None` as well for a number that is no period of this pattern.
    ///
    /// A period that local time jumped over ends where it starts.
    #[must_use]
    pub fn period_end_ms(&self, period: u64) -> Option<i64> {
        self.calendar.end_ms(period)
    }

    /// The first millisecond of the period; `None` without date letters, and for a number that is no period of this
    /// pattern.
    #[must_use]
    pub fn period_start_ms(&self, period: u64) -> Option<i64> {
        self.calendar.start_ms(period)
    }

    /// The date part of the texts of a period, quoted text included.
    #[must_use]
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
    /// # Ok::<(), keymill::Error>(())
    /// ```
    #[must_use]
    pub fn split(&self, text: &str) -> Option<(u64, u64)> {
        let (period, rest) = self.date.read(text)?;
        let number = pattern::number(rest)?;
        self.calendar.has(period).then_some((period, number))
    }

    /// The text of a number: date part and digits, more than [`SerialPattern::width`] where it needs more.
    #[must_use]
    pub fn text(&self, period: u64, number: u64) -> String {
        let prefix = self.prefix(period);
        let mut text = String::with_capacity(prefix.len() + 20);
        push_serial(&mut text, &prefix, number, self.width);
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Code;

    const ZONES: [&str; 14] = [
        "UTC",
        "America/New_York",
        "Asia/Shanghai",
        "Europe/London",
        "Pacific/Apia",
        "Australia/Lord_Howe",
        "America/St_Johns",
        "America/Havana",
        "Asia/Beirut",
        "America/Sao_Paulo",
        "America/Juneau",
        "Africa/Casablanca",
        "+08:00",
        "-09:30",
    ];

    const DATES: [&str; 14] = [
        "yyyyMMdd",
        "yyyyMMddHH",
        "yyyyMMddHHmm",
        "yyyyMMddHHmmss",
        "yyyyMMddHHmmssSSS",
        "yyyyMM",
        "yyyy",
        "yy",
        "yyMMdd",
        "ddMMyyyy",
        "yyyyyMMdd",
        "'CUST'yyyyMMdd",
        "yyyy年MM月dd日HH''mm",
        "'9'yyMMdd'9'HH",
    ];

    fn pattern(date: &str, zone: &str) -> SerialPattern {
        SerialPattern::new(date, "000000", zone).expect("a valid pattern")
    }

    fn ms(text: &str) -> i64 {
        text.parse::<jiff::Timestamp>().expect("an instant").as_millisecond()
    }

    /// What every period of every pattern promises, looked at from a moment within it.
    fn check_period(pattern: &SerialPattern, at: i64) {
        let period = pattern.period_at(at);
        let what = format!("{pattern:?} at {at}: {period}");
        if let Some(end) = pattern.period_end_ms(period) {
            assert!(end > at, "{what} ends at {end}");
            assert!(pattern.period_at(end) > period, "{what} goes on at its end {end}");
            assert_eq!(pattern.period_at(end - 1), period, "{what} is over before its end {end}");
        }
        let start = pattern.period_start_ms(period).expect("every period starts");
        assert_eq!(pattern.period_at(start), period, "{what} has not begun at {start}");
        // Before its first millisecond it is an earlier one, but for the very first, which has no earlier one.
        if pattern.period_at(i64::MIN) != period {
            assert!(start <= at, "{what} starts at {start}");
            assert!(pattern.period_at(start - 1) < period, "{what} has begun before {start}");
        }
    }

    #[test]
    fn a_serial_of_key_factory_is_the_same_text() {
        let pattern = pattern("yyyyMMdd", "Asia/Shanghai");
        let day = pattern.period_at(ms("2026-11-20T15:59:59.999Z"));
        assert_eq!(day, 20_261_120_000_000_000);
        assert_eq!(pattern.text(day, 1), "20261120000001");
        assert_eq!(pattern.text(day, 999_999), "20261120999999");
        assert_eq!(pattern.text(day, 1_000_000), "202611201000000");
        assert_eq!(pattern.period_at(ms("2026-11-20T16:00:00Z")), 20_261_121_000_000_000);
        assert_eq!((pattern.width(), pattern.last()), (6, 999_999));
        assert_eq!(
            (pattern.date_pattern(), pattern.number_pattern(), pattern.zone_name()),
            ("yyyyMMdd", "000000", "Asia/Shanghai")
        );
    }

    #[test]
    fn a_zone_that_was_mounted_over_the_machines_own_has_no_name() {
        let zone = |name: &str, content: &str| {
            let bytes = std::fs::read(format!("/usr/share/zoneinfo/{content}")).expect("the machine's zones");
            jiff::tz::TimeZone::tzif(name, &bytes).expect("a zone")
        };
        for (name, content, is_known) in [
            ("Etc/UTC", "Etc/UTC", true),
            ("Asia/Shanghai", "Asia/Shanghai", true),
            ("Etc/UTC", "Asia/Shanghai", false),
            ("UTC", "America/Los_Angeles", false),
            ("GMT", "Europe/London", false),
            ("localtime", "Asia/Shanghai", false),
            ("Etc/localtime", "Asia/Shanghai", false),
        ] {
            assert_eq!(calendar::name_of(&zone(name, content)).is_some(), is_known, "{content} as {name}");
        }
        for name in ["localtime", "Etc/localtime"] {
            assert!(SerialPattern::new("yyyyMMdd", "000000", name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_period_holds_nothing_below_its_precision() {
        let at = ms("2026-11-20T16:30:05.123Z");
        for (date, period) in [
            ("yyyy", 20_260_000_000_000_000),
            ("yy", 20_260_000_000_000_000),
            ("yyyyMM", 20_261_100_000_000_000),
            ("yyyyMMdd", 20_261_120_000_000_000),
            ("yyyyMMddHH", 20_261_120_160_000_000),
            ("yyyyMMddHHmm", 20_261_120_163_000_000),
            ("yyyyMMddHHmmss", 20_261_120_163_005_000),
            ("yyyyMMddHHmmssSSS", 20_261_120_163_005_123),
        ] {
            assert_eq!(pattern(date, "UTC").period_at(at), period, "{date}");
        }
    }

    #[test]
    fn without_date_letters_there_is_one_period_without_an_end() {
        for date in ["", "'CUST'", "2026-"] {
            let pattern = pattern(date, "local");
            for at in [i64::MIN, 0, i64::MAX] {
                assert_eq!(pattern.period_at(at), 0);
            }
            assert_eq!((pattern.period_start_ms(0), pattern.period_end_ms(0)), (None, None));
            assert_eq!(pattern.split(&pattern.text(0, 42)), Some((0, 42)));
        }
    }

    #[test]
    fn a_text_that_does_not_fit_the_pattern_is_not_split() {
        let pattern = pattern("'CUST'yyyyMMdd", "UTC");
        assert_eq!(pattern.split("CUST20240229000001"), Some((20_240_229_000_000_000, 1)));
        for wrong in [
            "",
            "INIT",
            "CUST",
            "CUST20261120",
            "cust20261120000001",
            "CUST20261320000001",
            "CUST20260229000001",
            "CUST20261100000001",
            "CUST00001120000001",
            "CUST2026112000000x",
            "CUST20261120-00001",
            "CUST２０２６1120000001",
            "CUST2026112年00001",
            " CUST20261120000001",
            "CUST202611209223372036854775808",
        ] {
            assert_eq!(pattern.split(wrong), None, "{wrong}");
        }
        let hours = self::pattern("yyyyMMddHHmmss", "UTC");
        for wrong in ["202611202400000", "202611202360000", "202611202359600"] {
            assert_eq!(hours.split(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_hour_that_comes_twice_is_one_period() {
        let hours = pattern("yyyyMMddHH", "America/New_York");
        let one = hours.period_at(ms("2026-11-01T05:00:00Z"));
        assert_eq!(one, 20_261_101_010_000_000);
        assert_eq!(hours.period_at(ms("2026-11-01T06:59:59.999Z")), one);
        assert_eq!(hours.period_start_ms(one), Some(ms("2026-11-01T05:00:00Z")));
        assert_eq!(hours.period_end_ms(one), Some(ms("2026-11-01T07:00:00Z")));
    }

    #[test]
    fn minutes_that_come_twice_belong_to_the_last_minute_before() {
        let minutes = pattern("yyyyMMddHHmm", "America/New_York");
        let last = minutes.period_at(ms("2026-11-01T05:59:00Z"));
        assert_eq!(last, 20_261_101_015_900_000);
        // 01:30 for the second time: 0130 is over and would make the same texts again.
        assert_eq!(minutes.period_at(ms("2026-11-01T06:30:00Z")), last);
        assert_eq!(minutes.period_end_ms(last), Some(ms("2026-11-01T07:00:00Z")));
    }

    #[test]
    fn a_day_that_comes_twice_is_not_left_again() {
        // St. John's went back from 00:01 to 23:01 of the day before.
        let days = pattern("yyyyMMdd", "America/St_Johns");
        let day = days.period_at(ms("2010-11-07T02:30:30Z"));
        assert_eq!(day, 20_101_107_000_000_000);
        assert_eq!(days.period_at(ms("2010-11-07T03:00:00Z")), day);
        assert_eq!(days.period_start_ms(day), Some(ms("2010-11-07T02:30:00Z")));
    }

    #[test]
    fn time_that_was_jumped_over_starts_and_ends_at_the_jump() {
        // Samoa had no 30 December 2011.
        let days = pattern("yyyyMMdd", "Pacific/Apia");
        let jump = Some(ms("2011-12-30T10:00:00Z"));
        let before = days.period_at(ms("2011-12-30T09:59:59.999Z"));
        assert_eq!(before, 20_111_229_000_000_000);
        assert_eq!(days.period_end_ms(before), jump);
        assert_eq!(days.period_at(ms("2011-12-30T10:00:00Z")), 20_111_231_000_000_000);
        let missing = 20_111_230_000_000_000;
        assert_eq!((days.period_start_ms(missing), days.period_end_ms(missing)), (jump, jump));

        let minutes = pattern("yyyyMMddHHmm", "Europe/London");
        let last = minutes.period_at(ms("2026-03-29T00:59:00Z"));
        assert_eq!(minutes.period_end_ms(last), Some(ms("2026-03-29T01:00:00Z")));
        assert_eq!(minutes.period_start_ms(20_260_329_013_000_000), Some(ms("2026-03-29T01:00:00Z")));
    }

    #[test]
    fn around_every_change_of_the_clocks_periods_rise_and_end() {
        for zone in ZONES {
            for date in DATES {
                let pattern = pattern(date, zone);
                let tz = calendar::zone(zone).expect("a zone of the list");
                let from: jiff::Timestamp = "2005-01-01T00:00:00Z".parse().expect("an instant");
                for change in tz.following(from).take(20) {
                    let change = change.timestamp().as_millisecond();
                    let mut highest = 0;
                    for quarter in -120..=120 {
                        let at = change + quarter * 15 * 60_000;
                        let period = pattern.period_at(at);
                        assert!(period >= highest, "{zone} {date} fell at {at}");
                        highest = period;
                    }
                    for at in [change - 3_600_000, change - 1, change, change + 1, change + 1_800_000] {
                        check_period(&pattern, at);
                    }
                }
            }
        }
    }

    #[test]
    fn clocks_beyond_the_calendar_stand_in_its_first_and_last_period() {
        for zone in ZONES {
            for date in DATES {
                let pattern = pattern(date, zone);
                let first = pattern.period_at(i64::MIN);
                let last = pattern.period_at(i64::MAX);
                assert!(0 < first && first < last, "{zone} {date}");
                assert_eq!(pattern.period_end_ms(last), None, "{zone} {date}");
                assert_eq!(pattern.split(&pattern.text(first, 1)), Some((first, 1)));
                assert_eq!(pattern.split(&pattern.text(last, 1)), Some((last, 1)));
                check_period(&pattern, ms("-000001-06-01T00:00:00Z"));
                check_period(&pattern, ms("9999-12-29T12:00:00Z"));
                check_period(&pattern, ms("9999-12-30T21:59:59.999Z"));
            }
        }
        // Two digits cannot tell 2100 from 2000: the clock stands before it comes to that.
        let short = pattern("yyMMdd", "UTC");
        assert_eq!(short.period_at(ms("2150-06-01T00:00:00Z")), 20_991_231_000_000_000);
        assert_eq!(short.period_at(ms("1999-06-01T00:00:00Z")), 20_000_101_000_000_000);
    }

    #[test]
    fn a_number_that_is_no_period_of_the_pattern_has_no_start_and_no_end() {
        let days = pattern("yyyyMMdd", "UTC");
        for wrong in [0, 1, 20_261_320_000_000_000, 20_261_120_010_000_000, 20_260_000_000_000_000, u64::MAX]
        {
            assert_eq!((days.period_start_ms(wrong), days.period_end_ms(wrong)), (None, None), "{wrong}");
            let _ = days.text(wrong, u64::MAX);
        }
    }

    #[test]
    fn a_zone_is_local_utc_a_name_or_an_offset() {
        for zone in ["local", "UTC", "Asia/Shanghai", "Etc/GMT-8", "+08:00", "-03:30", "+00:00", "+18:00"] {
            assert!(SerialPattern::new("yyyyMMdd", "0000", zone).is_ok(), "{zone}");
        }
        let eight = pattern("yyyyMMddHH", "+08:00");
        assert_eq!(eight.period_at(0), 19_700_101_080_000_000);
        let behind = pattern("yyyyMMddHHmm", "-03:30");
        assert_eq!(behind.period_at(0), 19_691_231_203_000_000);
        for zone in [
            "",
            "Mars/Base",
            "+8",
            "+08",
            "+0800",
            "+08:60",
            "+18:01",
            "08:00",
            "+é8:0",
            "../UTC",
            "Etc/Unknown",
        ] {
            let error = SerialPattern::new("yyyyMMdd", "0000", zone).expect_err(zone);
            assert_eq!(error.code, Code::InvalidConfig);
            assert!(error.message.contains("Asia/Shanghai"), "{}", error.message);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_pattern_panic(date: String, number in "0{0,20}|.*", zone in "\\PC*|[+-]\\PC{5}", text: String) {
            for date in [date.as_str(), "yyyyMMdd", "'客'yy"] {
                for zone in [zone.as_str(), "UTC"] {
                    for number in [number.as_str(), "0000"] {
                        match SerialPattern::new(date, number, zone) {
                            Ok(pattern) => {
                                let _ = pattern.split(&text);
                                check_period_of_any(&pattern);
                            }
                            Err(error) => {
                                prop_assert_eq!(error.code, Code::InvalidConfig);
                                prop_assert!(!error.message.contains(char::is_control));
                            }
                        }
                    }
                }
            }
        }

        #[test]
        fn no_text_makes_split_panic(date in 0..DATES.len(), text in "\\PC*|[0-9CUST'年月日9]{0,40}|[0-9]{4,40}") {
            let pattern = pattern(DATES[date], "UTC");
            if let Some((period, number)) = pattern.split(&text) {
                // Zeros in front are the only freedom a text has.
                let again = pattern.text(period, number);
                prop_assert_eq!(pattern.split(&again), Some((period, number)));
                prop_assert!(text.starts_with(pattern.prefix(period).as_str()));
            }
        }

        #[test]
        fn a_text_is_split_into_what_it_was_made_of(
            date in 0..DATES.len(), zone in 0..ZONES.len(), width in 1..=18_usize,
            // Years 1 to 9999.
            at in -62_135_596_800_000_i64..253_402_300_000_000, number in 0..=i64::MAX as u64, shift in 0..64_u32,
        ) {
            let pattern = SerialPattern::new(DATES[date], &"0".repeat(width), ZONES[zone]).expect("valid");
            let (period, number) = (pattern.period_at(at), number >> shift);
            let text = pattern.text(period, number);
            prop_assert_eq!(pattern.split(&text), Some((period, number)));
            prop_assert_eq!(text.len(), pattern.prefix(period).len() + number.to_string().len().max(width));
        }

        #[test]
        fn a_period_ends_where_the_next_begins(
            date in 0..DATES.len(), zone in 0..ZONES.len(), at in -62_135_596_800_000_i64..253_402_300_000_000,
        ) {
            check_period(&pattern(DATES[date], ZONES[zone]), at);
        }

        #[test]
        fn a_later_moment_is_never_in_an_earlier_period(
            date in 0..DATES.len(), zone in 0..ZONES.len(), at: i64, later in 0..200_000_000_i64,
        ) {
            let pattern = pattern(DATES[date], ZONES[zone]);
            prop_assert!(pattern.period_at(at) <= pattern.period_at(at.saturating_add(later)));
            let modern = at.rem_euclid(4_102_444_800_000);
            prop_assert!(pattern.period_at(modern) <= pattern.period_at(modern + later));
        }

        #[test]
        fn any_number_is_taken_for_a_period_without_a_panic(date in 0..DATES.len(), period: u64, number: u64) {
            let pattern = pattern(DATES[date], "Pacific/Apia");
            let _ = (pattern.period_start_ms(period), pattern.period_end_ms(period), pattern.text(period, number));
        }
    }

    /// A pattern from nowhere: its periods behave as well.
    fn check_period_of_any(pattern: &SerialPattern) {
        let at = 1_795_192_205_123;
        if pattern.period_at(at) != 0 {
            check_period(pattern, at);
        }
    }
}
