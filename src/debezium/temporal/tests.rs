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
