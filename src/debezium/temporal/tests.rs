use super::TimeUnit::{Micros, Millis, Nanos};
use super::*;

#[test]
fn zoned_timestamps_of_any_fraction_length_meet_in_utc() {
    for (text, canonical) in [
        ("2031-03-09T04:05:06Z", "2031-03-09T04:05:06Z"),
        ("2031-03-09T04:05:06.5Z", "2031-03-09T04:05:06.5Z"),
        ("2031-03-09T04:05:06.000001Z", "2031-03-09T04:05:06.000001Z"),
        ("2031-03-09T04:05:06.123456789Z", "2031-03-09T04:05:06.123456789Z"),
        ("2031-03-09T06:05:06+02:00", "2031-03-09T04:05:06Z"),
        ("2031-03-09T04:05Z", "2031-03-09T04:05:00Z"),
        ("2026-11-29T22:25:52.699000Z", "2026-11-29T22:25:52.699Z"),
        ("2026-03-01T00:30:00+01:00", "2026-02-28T23:30:00Z"),
        ("2024-02-29T23:59:59.9-00:30", "2024-03-01T00:29:59.9Z"),
        ("+12026-01-01T00:00:00Z", "12026-01-01T00:00:00Z"),
        ("-0043-03-15T00:00:00Z", "-0043-03-15T00:00:00Z"),
        ("1883-11-18T12:03:58-04:56:02", "1883-11-18T17:00:00Z"),
        ("infinity", "infinity"),
        ("-infinity", "-infinity"),
    ] {
        assert_eq!(zoned_timestamp(text).as_deref(), Some(canonical), "{text}");
    }
}

#[test]
fn malformed_moments_are_refused_without_a_panic() {
    for text in [
        "",
        "T",
        "2031-03-09",
        "2031-03-09T04:05:06",
        "2031-07-00T00:00Z",
        "2031-13-01T00:00Z",
        "2031-02-29T00:00Z",
        "é031-03-09T04:05Z",
        "2031-03-09T24:00:01Z",
        "2031-03-09T04:60Z",
        "2031-03-09T04:05:06.Z",
        "2031-03-09T04:05:06.1234567890Z",
        "2031-03-09T04:05:06+é",
        "2031-03-09T04:05:06+2",
        "2031-03-09T04:05:06+25:00",
        "99999999999-01-01T00:00Z",
        "NaN",
        "2031-03-09TZ",
    ] {
        assert_eq!(zoned_timestamp(text), None, "{text}");
    }
    for text in ["2031-07-00", "0000-00-00", "2031-7-1", "x", "", "-", "2031-07-01-01", "12:00"] {
        assert_eq!(date_text(text), None, "{text}");
    }
}

#[test]
fn times_are_signed_and_pass_midnight() {
    for (count, text) in [
        (-1_000_000, "-00:00:01"),
        (3_020_399_000_000, "838:59:59"),
        (-3_020_399_000_000, "-838:59:59"),
        (86_400_000_000, "24:00:00"),
        (45_296_123_456, "12:34:56.123456"),
        (0, "00:00:00"),
        (-1, "-00:00:00.000001"),
        (500_000, "00:00:00.5"),
    ] {
        assert_eq!(time(count, Micros), text);
        assert_eq!(time_text(text).as_deref(), Some(text));
    }
    assert_eq!(time(45_296_123, Millis), "12:34:56.123");
    assert_eq!(time(1, Nanos), "00:00:00.000000001");
    assert!(time(i64::MIN, Nanos).starts_with('-'));
}

#[test]
fn durations_keep_hours_and_fractions() {
    for (count, text) in [
        (45_296_123_456, "PT12H34M56.123456S"),
        (-1, "-PT0.000001S"),
        (0, "PT0S"),
        (37_091_106_000_000, "PT10303H5M6S"),
        (3_600_000_000, "PT1H"),
        (60_000_000, "PT1M"),
        (3_600_500_000, "PT1H0.5S"),
    ] {
        assert_eq!(duration(count, Micros), text);
    }
}

#[test]
fn timestamps_before_the_epoch_round_down() {
    assert_eq!(timestamp(-876_544, Micros), "1969-12-31T23:59:59.123456");
    assert_eq!(timestamp(1_795_955_696_789, Millis), "2026-11-29T12:34:56.789");
    assert_eq!(timestamp(1_795_955_696_123_456, Micros), "2026-11-29T12:34:56.123456");
    assert_eq!(timestamp(1_795_955_696_123_456_789, Nanos), "2026-11-29T12:34:56.123456789");
    assert_eq!(timestamp(0, Nanos), "1970-01-01T00:00:00");
}

#[test]
fn sentinels_are_infinities_in_every_unit() {
    assert_eq!(date(-2_147_472_692), "infinity");
    assert_eq!(date(-2_147_472_691), "-infinity");
    assert_eq!(timestamp(9_223_372_036_825_200_000, Micros), "infinity");
    assert_eq!(timestamp(-9_223_372_036_832_400_000, Micros), "-infinity");
    assert_eq!(timestamp(9_223_372_036_825_200, Millis), "infinity");
    assert_eq!(timestamp(-9_223_372_036_832_400, Millis), "-infinity");
    assert_eq!(timestamp(9_223_372_036_825_200_000, Millis), "infinity");
    assert_eq!(timestamp(-9_223_372_036_832_400_000, Millis), "-infinity");
    assert_eq!(timestamp(i64::MAX, Nanos), "infinity");
    assert_eq!(timestamp(i64::MIN, Nanos), "-infinity");
    for (days, text) in [
        (-622_191_234, "infinity"),
        (-622_191_233, "infinity"),
        (-625_821_272, "-infinity"),
        (-625_821_271, "-infinity"),
    ] {
        assert_eq!(date(days), text);
    }
    // The days beside them are days.
    for days in [-2_147_472_693, -2_147_472_690, -622_191_235, -622_191_232, -625_821_273, 622_191_232] {
        assert_eq!(parse_date(&date(days)), Some(days), "{days}");
    }
    assert_eq!(date_text("infinity").as_deref(), Some("infinity"));
}

#[test]
fn every_day_reads_back() {
    let mut day = -1_000_000;
    while day < 3_000_000 {
        assert_eq!(parse_date(&date(day)), Some(day));
        day += 997;
    }
    assert_eq!(date(0), "1970-01-01");
    assert_eq!(date(-1), "1969-12-31");
    assert_eq!(date(11_016), "2000-02-29");
    assert_eq!(date(-719_528), "0000-01-01");
}

#[test]
fn extreme_counts_do_not_panic() {
    for count in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX] {
        for unit in [Millis, Micros, Nanos] {
            let _ = (time(count, unit), timestamp(count, unit), duration(count, unit));
        }
        let _ = date(count);
    }
}

#[test]
fn zoned_times_turn_round_midnight() {
    assert_eq!(zoned_time("10:34:56.123456Z").as_deref(), Some("10:34:56.123456Z"));
    assert_eq!(zoned_time("01:00:00+02:00").as_deref(), Some("23:00:00Z"));
    assert_eq!(zoned_time("23:30-01:00").as_deref(), Some("00:30:00Z"));
    assert_eq!(zoned_time("25:00:00Z"), None);
    assert_eq!(zoned_time("10:00"), None);
}

#[test]
fn local_timestamps_take_no_offset() {
    assert_eq!(timestamp_text("2026-11-29 12:34:56.500").as_deref(), Some("2026-11-29T12:34:56.5"));
    assert_eq!(timestamp_text("2026-11-29T12:34Z").as_deref(), Some("2026-11-29T12:34:00"));
    assert_eq!(timestamp_text("2026-11-29").as_deref(), Some("2026-11-29T00:00:00"));
    assert_eq!(timestamp_text("2026-11-29T12:34:56+02:00"), None);
}

/// Numbers without an order, the same at every run.
fn scattered(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed), |state| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .map(|state| state ^ state >> 29)
}

/// A calendar of someone else's, over the years that it knows.
#[test]
fn counts_are_the_moments_of_another_calendar() {
    use jiff::Timestamp;
    let text = |nanos: i128| {
        let moment = Timestamp::from_nanosecond(nanos).unwrap();
        moment.strftime("%Y-%m-%dT%H:%M:%S%.f").to_string()
    };
    for seed in scattered(11).take(3000) {
        let nanos = seed.cast_signed();
        assert_eq!(timestamp(nanos, Nanos), text(nanos.into()));
        // From the year 1 to 9999.
        let micros = (seed % 315_537_897_600_000_000).cast_signed() - 62_135_596_800_000_000;
        assert_eq!(timestamp(micros, Micros), text(i128::from(micros) * 1000));
        let millis = micros / 1000;
        assert_eq!(timestamp(millis, Millis), text(i128::from(millis) * 1_000_000));
        assert_eq!(
            format!("{}T00:00:00", date(millis.div_euclid(86_400_000))),
            text(i128::from(millis.div_euclid(86_400_000)) * 86_400_000_000_000)
        );
    }
}

#[test]
fn one_instant_has_one_text_whatever_its_offset_and_fraction() {
    for seed in scattered(5).take(3000) {
        let micros = (seed % 253_402_300_000_000_000).cast_signed() - 2_000_000_000_000;
        let utc = format!("{}Z", timestamp(micros, Micros));
        assert_eq!(zoned_timestamp(&utc).as_deref(), Some(&*utc));
        let minutes = (seed % 1681).cast_signed() - 840;
        let local = timestamp(micros + minutes * 60_000_000, Micros);
        let zeros = if local.contains('.') { "000"[..(seed % 4) as usize].to_owned() } else { String::new() };
        let sign = if minutes < 0 { '-' } else { '+' };
        let (hours, rest) = (minutes.abs() / 60, minutes.abs() % 60);
        let text = format!("{local}{zeros}{sign}{hours:02}:{rest:02}");
        assert_eq!(zoned_timestamp(&text).as_deref(), Some(&*utc), "{text}");
    }
}

#[test]
fn times_and_durations_add_up_to_their_counts() {
    for seed in scattered(23).take(3000) {
        let micros = (seed % 6_040_798_000_002).cast_signed() - 3_020_399_000_001;
        let text = time(micros, Micros);
        assert_eq!(time_text(&text).as_deref(), Some(&*text));
        let (sign, bare) = text.strip_prefix('-').map_or((1, &*text), |bare| (-1, bare));
        let mut parts = bare.split(':');
        let mut part = || parts.next().unwrap();
        let (hours, minutes, seconds) = (part().parse::<i64>().unwrap(), part().parse::<i64>().unwrap(), part());
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let below = format!("{fraction:0<6}").parse::<i64>().unwrap();
        let whole = hours * 3600 + minutes * 60 + whole.parse::<i64>().unwrap();
        assert_eq!(sign * (whole * 1_000_000 + below), micros, "{text}");
        assert_eq!(duration_nanos(i128::from(micros) * 1000), Some(duration(micros, Micros)));
    }
}

#[test]
fn no_text_makes_a_reader_panic() {
    let letters = b"0123456789-+:.TZ infyE\xc3\xa9";
    for seed in scattered(3).take(5000) {
        let bytes: Vec<u8> =
            scattered(seed).take((seed % 30) as usize).map(|n| letters[(n >> 7) as usize % letters.len()]).collect();
        let text = String::from_utf8_lossy(&bytes);
        let _ = (zoned_timestamp(&text), zoned_time(&text), date_text(&text), timestamp_text(&text), time_text(&text));
    }
}
