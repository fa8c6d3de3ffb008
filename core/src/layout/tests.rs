//! Tests of layouts: how they are written, proposed and ended, and how ids are packed.

use proptest::prelude::*;

use super::*;

/// 2026-11-21T08:30:00.123Z.
const NOW: i64 = 1_795_249_800_123;

fn layout(text: &str) -> Layout {
    Layout::parse(text, "").unwrap()
}

fn refusal(text: &str) -> String {
    let error = Layout::parse(text, "").unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(!error.message.contains('\n'), "{}", error.message);
    error.message
}

#[test]
fn presets_have_the_bits_their_models_have() {
    for (name, text) in PRESETS {
        assert_eq!(layout(name), layout(text));
        assert_eq!(layout(name).describe(), text);
    }
    assert_eq!(layout("twitter").pack(1, 1, 1), 1 << 22 | 1 << 12 | 1);
    assert_eq!(layout("uid").pack(1, 1, 1), 1 << 35 | 1 << 13 | 1);
    assert_eq!(layout("sonyflake").pack(1, 1, 1), 1 << 24 | 1 << 16 | 1);
    assert_eq!(layout("js53").max_id(), (1 << 53) - 1);
}

#[test]
fn scattered_digits_end_a_layout_before_ids_exceed_2_to_63_and_keep_a_53_bit_layout_exact() {
    let years = |text: &str, form: &str| {
        let layout = layout(text).scattered(Scatter::parse(form).expect(form)).expect(text);
        let last = layout.write(layout.pack(layout.max_tick(), layout.max_worker(), layout.max_seq()));
        assert!(last <= layout.max_id().max(last.min(9 * 10_u64.pow(18))), "{text} {form}: {last}");
        assert!(layout.max_id() >= 1 << 53 || last < 1 << 53, "{text} {form}: {last}");
        (layout.ends_at_ms() - layout.epoch_ms()) as f64 / (365.2425 * 86_400_000.0)
    };
    assert_eq!(format!("{:.1}", years("twitter", "0")), "69.7");
    for form in ["1", "2", "3"] {
        assert_eq!(format!("{:.1}", years("twitter", form)), "68.0");
        assert_eq!(format!("{:.2}", years("js53", form)), "69.63", "69.73 without");
        assert_eq!(format!("{:.1}", years("time:40@1ms,worker:10,seq:12", form)), "34.8", "it ends before");
    }
    assert_eq!(format!("{:.1}", years("twitter", "high:12")), "69.7");
}

#[test]
fn windows_follow_each_other_and_hold_the_ids_of_their_time() {
    for text in ["twitter", "uid", "sonyflake", "js53", "time:20@1s,worker:1,seq:3"] {
        for form in [Scatter::Digits(1), Scatter::Digits(2), Scatter::Digits(3), Scatter::High(2)] {
            let layout = layout(text).scattered(form).expect(text);
            let mut at = layout.epoch_ms();
            let mut windows = 0;
            while let Some(window) = layout.window(at) {
                for (tick, seq) in
                    [(layout.tick_at(at), 0), (layout.tick_at(window.until_ms - 1), layout.max_seq())]
                {
                    let id = layout.write(layout.pack(tick as u64, 1, seq));
                    // The first tick of a window may begin with ids of the one before.
                    let below = window.lo >> layout.time_shift() == tick as u64;
                    assert!(id < window.hi && (below || id >= window.lo), "{text} {form}: {id} {window:?}");
                }
                assert!(window.from_ms <= at && at < window.until_ms, "{text} {form}: {window:?} at {at}");
                at = window.until_ms;
                windows += 1;
            }
            assert_eq!(at, layout.ends_at_ms(), "{text} {form}");
            assert!(
                windows < 200 && (windows == 1) == (form == Scatter::High(2)),
                "{text} {form}: {windows}"
            );
        }
        assert_eq!(layout(text).window(layout(text).epoch_ms()), None);
    }
}

#[test]
fn a_proposed_layout_holds_what_was_asked_for() {
    for (years, workers, rate) in
        [(1, 1, 1), (50, 1000, 100_000), (69, 1024, 4_096_000), (8, 4_000_000, 8000), (30, 32, 10)]
    {
        for layout in Layout::propose(years, workers, rate).expect("a layout") {
            let life_ms = (u128::from(layout.max_tick()) + 1) * u128::from(layout.unit_ms().unsigned_abs());
            assert!(life_ms >= MEAN_YEAR_MS * u128::from(years), "{layout}");
            assert!(layout.max_worker() + 1 >= workers, "{layout}");
            assert!(layout.ids_per_second() >= rate, "{layout}");
            assert!(layout.ends_in_seq(), "{layout}");
        }
    }
    let exact = |(years, workers, rate)| {
        let layouts = Layout::propose(years, workers, rate).expect("a layout");
        layouts.iter().filter(|layout| layout.max_id() < 1 << 53).map(Layout::describe).collect::<Vec<_>>()
    };
    assert_eq!(exact((30, 32, 10)), ["time:40@1ms,worker:5,seq:8"]);
    assert_eq!(exact((50, 1000, 100_000)), [""; 0], "53 bits are too few");
    for (years, workers, rate) in
        [(0, 1, 1), (1, 0, 1), (1, 1, 0), (u32::MAX, u64::MAX, u64::MAX), (100, 1 << 30, 1 << 20)]
    {
        assert_eq!(Layout::propose(years, workers, rate).expect_err("too much").code, Code::InvalidArgument);
    }
}

#[test]
fn an_id_of_another_form_or_beyond_the_end_is_refused() {
    let scattered = layout("twitter").scattered(Scatter::Digits(1)).expect("room");
    for id in [0, 9 * 10_u64.pow(18), u64::MAX >> 1, u64::MAX] {
        let error = scattered.read(id).expect_err("no id of this form");
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.ends_with("seq:12 with scatter=1"), "{}", error.message);
    }
    let high = layout("twitter").scattered(Scatter::High(3)).expect("room");
    assert!(high.read(u64::MAX >> 1).is_ok());
    assert!(high.read(1 << 63).is_err());
    let error = layout("twitter").scattered(Scatter::High(13)).expect_err("12 bits");
    assert!(error.message.contains("has 12 bits"), "{}", error.message);
    let error = layout("time:1@1ms,worker:50,seq:12").scattered(Scatter::Digits(1)).map(|l| l.max_tick());
    assert_eq!(error.ok(), Some(0), "the second tick exceeds 9e18");
}

#[test]
fn a_worker_may_be_split_into_data_centre_and_worker() {
    for text in ["time:41@1ms,dc-worker:5+5,seq:12", "time:41@1ms,worker:5+5,seq:12"] {
        let split = layout(text);
        assert_eq!(split.describe(), "time:41@1ms,dc-worker:5+5,seq:12");
        assert_eq!(split.join_worker(3, 7).unwrap(), 3 << 5 | 7);
        assert_eq!(split.split_worker(3 << 5 | 7), Some((3, 7)));
        assert_eq!(split.join_worker(32, 0).unwrap_err().code, Code::InvalidConfig);
    }
    assert_eq!(layout("twitter").split_worker(5), None);
}

#[test]
fn a_wrong_layout_is_refused_and_the_message_says_what_is_valid() {
    assert!(refusal("twiter").contains("twitter, uid, sonyflake, js53"));
    assert!(refusal("").contains("valid are"));
    assert!(refusal("worker:10,time:41@1ms,seq:12").contains("time must stand first"));
    assert!(refusal("worker:10,seq:12").contains("must stand first"));
    assert!(refusal("time:41@1ms,time:41@1ms,seq:12").contains("time must stand first"));
    assert!(refusal("time:41@1ms,seq:12").contains("worker is missing"));
    assert!(refusal("time:41@1ms,worker:10").contains("seq is missing"));
    assert!(refusal("time:41@1ms,worker:10,worker:1,seq:2").contains("worker is given twice"));
    assert!(refusal("time:41@1ms,worker:10,seq:12,seq:1").contains("seq is given twice"));
    assert!(refusal("time:41@1ms,worker:11,seq:12").contains("64 bits, at most 63"));
    assert!(refusal("time:41,worker:10,seq:12").contains("41@1ms"));
    assert!(refusal("time:41@0ms,worker:10,seq:12").contains("not a unit"));
    assert!(refusal("time:41@500us,worker:10,seq:12").contains("not a unit"));
    assert!(refusal("time:41@1h,worker:10,seq:12").contains("not a unit"));
    assert!(refusal("time:41@99999999999999999999s,worker:10,seq:12").contains("not a unit"));
    assert!(refusal("time:0@1ms,worker:10,seq:12").contains("1 to 63"));
    assert!(refusal("time:41@1ms,worker:10,seq:0").contains("1 to 63"));
    assert!(refusal("time:41@1ms,worker:+1,seq:1").contains("not a width"));
    assert!(refusal("time:41@1ms,dc-worker:10,seq:12").contains("5+5"));
    assert!(refusal("time:41@1ms,colour:10,seq:12").contains("\"colour\" is not known"));
    assert!(refusal("time:41@1ms,worker:4000000000,seq:4000000000").contains("not a width"));
}

#[test]
fn an_epoch_is_a_date_or_a_timestamp_and_2025_by_default() {
    let at = |epoch: &str| Layout::parse("twitter", epoch).map(|l| l.epoch_ms());
    assert_eq!(at("").unwrap(), 1_735_689_600_000);
    assert_eq!(at("2025-01-01"), at(""));
    assert_eq!(at("2025-01-01T01:00:00+01:00"), at(""));
    assert_eq!(at("2010-11-04T01:42:54.657Z").unwrap(), 1_288_834_974_657);
    for wrong in ["yesterday", "2025-13-01", "2025-1-1", "2025-01-01T00:00:00", "1735689600000"] {
        let error = at(wrong).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(error.message.contains("2025-01-01T00:00:00Z"), "{}", error.message);
    }
}

#[test]
fn a_layout_whose_time_is_over_is_refused_by_name_and_date() {
    let uid = Layout::parse("uid", "2016-05-20").unwrap();
    let error = uid.check_life(NOW).unwrap_err();
    assert_eq!(error.code, Code::LayoutEnded);
    assert!(error.message.contains("time:28@1s,worker:22,seq:13"), "{}", error.message);
    assert!(error.message.contains("2024-11-20"), "{}", error.message);
    assert_eq!(uid.check_life(uid.ends_at_ms()).unwrap_err().code, Code::LayoutEnded);
    assert!(uid.check_life(uid.ends_at_ms() - 1).unwrap().is_some());
}

#[test]
fn a_layout_that_ends_within_a_year_warns_with_the_date() {
    let uid = layout("uid");
    assert_eq!(uid.check_life(NOW).unwrap(), None);
    let warning = uid.check_life(uid.ends_at_ms() - YEAR_MS).unwrap().unwrap();
    assert!(warning.contains("2033-07-04"), "{warning}");
    assert_eq!(uid.check_life(uid.ends_at_ms() - YEAR_MS - 1).unwrap(), None);
}

#[test]
fn an_epoch_in_the_future_is_refused() {
    let error = Layout::parse("twitter", "2030-01-01").unwrap().check_life(NOW).unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(
        error.message.contains("2030-01-01") && error.message.contains("2026-11-21"),
        "{}",
        error.message
    );
}

#[test]
fn time_is_printed_with_milliseconds() {
    assert_eq!(rfc3339(NOW), "2026-11-21T08:30:00.123Z");
    assert_eq!(rfc3339(1_735_689_600_000), "2025-01-01T00:00:00.000Z");
    assert_eq!(rfc3339(i64::MAX), "9223372036854775807 ms since 1970");
    assert_eq!(layout("time:44@1s,worker:6,seq:13").end_date(), "after 9999-12-31");
}

#[test]
fn ids_of_another_layout_are_refused() {
    assert_eq!(layout("js53").read(1 << 53).unwrap_err().code, Code::InvalidArgument);
    assert_eq!(layout("js53").read(0).unwrap_err().code, Code::InvalidArgument);
    assert_eq!(
        layout("twitter").read(1 << 22 | 5 << 12 | 0x11).unwrap(),
        Fields { tick: 1, worker: 5, seq: 17 }
    );
}

/// Any layout that can be written.
fn any_layout() -> impl Strategy<Value = Layout> {
    (1u32..=62)
        .prop_flat_map(|time| (Just(time), 1u32..=63 - time))
        .prop_flat_map(|(time, seq)| (Just(time), Just(seq), 0u32..=63 - time - seq))
        .prop_flat_map(|(time, seq, worker)| {
            (Just((time, seq, worker)), any::<bool>(), 1i64..=86_400_000, any::<u8>())
        })
        .prop_map(|((time, seq, worker), last, unit, year)| {
            let (a, b) = (format!("worker:{worker}"), format!("seq:{seq}"));
            let tail = if last { format!("{a},{b}") } else { format!("{b},{a}") };
            let epoch = format!("{}-03-01", 1900 + u32::from(year));
            Layout::parse(&format!("time:{time}@{unit}ms,{tail}"), &epoch).unwrap()
        })
}

proptest! {
    #[test]
    fn packing_and_unpacking_are_inverse_in_every_layout(layout in any_layout(), a: u64, b: u64, c: u64) {
        let parts = Fields { tick: a & layout.max_tick(), worker: b & layout.max_worker(), seq: c & layout.max_seq() };
        let id = layout.pack(parts.tick, parts.worker, parts.seq);
        prop_assert!(id <= layout.max_id() && i64::try_from(id).is_ok());
        prop_assert_eq!(layout.unpack(id), parts);
        prop_assert_eq!(Layout::parse(&layout.describe(), &rfc3339(layout.epoch_ms())).unwrap(), layout);
    }

    #[test]
    fn a_scattered_id_is_read_as_it_was_packed(layout in any_layout(), form in 0..20_u32, a: u64, b: u64, c: u64) {
        let form = if form < 4 { Scatter::Digits(form.max(1)) } else { Scatter::High((form - 3).min(layout.seq_bits())) };
        let Ok(layout) = layout.scattered(form) else { return Ok(()) };
        let fields = Fields { tick: a % (layout.max_tick() + 1), worker: b & layout.max_worker(), seq: c & layout.max_seq() };
        let plain = layout.pack(fields.tick, fields.worker, fields.seq);
        prop_assume!(plain > 0);
        let id = layout.write(plain);
        prop_assert!(id < 1 << 63);
        prop_assert_eq!(layout.read(id).ok(), Some(fields));
    }

    #[test]
    fn ids_rise_with_time(layout in any_layout(), a: u64, b: u64, c: u64, d: u64) {
        let tick = a & layout.max_tick();
        prop_assume!(tick < layout.max_tick());
        prop_assert!(layout.pack(tick, b, c) < layout.pack(tick + 1, d, 0));
    }

    #[test]
    fn ticks_and_wall_time_agree(layout in any_layout(), wall: i64, tick: u64) {
        let at = layout.tick_at(wall);
        if (0..=layout.max_tick() as i64).contains(&at) {
            prop_assert!(layout.wall_ms_of(at as u64) <= wall);
            prop_assert!(wall - layout.wall_ms_of(at as u64) < layout.unit_ms());
        }
        let tick = tick & layout.max_tick();
        if layout.wall_ms_of(tick) < i64::MAX / 2 {
            prop_assert_eq!(layout.tick_at(layout.wall_ms_of(tick)), tick as i64);
        }
    }

    #[test]
    fn no_input_makes_the_parser_panic(layout in "\\PC{0,80}", epoch in "\\PC{0,40}") {
        let _ = Layout::parse(&layout, &epoch);
        let _ = Layout::parse("twitter", &epoch);
    }

    #[test]
    fn near_misses_never_panic_either(
        layout in "(time|seq|worker|dc-worker)?:?[0-9]{0,22}(@[0-9]{0,22}(us|ms|s|h)?)?(,(time|seq|worker|dc-worker):[0-9+]{0,12}){0,4}",
        epoch in "[-+]?[0-9]{1,6}-[0-9]{1,2}-[0-9]{1,2}(T[0-9:.]{0,12}Z?)?",
        wall: i64,
    ) {
        if let Ok(layout) = Layout::parse(&layout, &epoch) {
            let _ = (layout.check_life(wall), layout.end_date(), layout.ids_per_second(), layout.tick_at(wall));
        }
    }
}
