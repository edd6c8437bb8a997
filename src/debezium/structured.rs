//! `time.precision.mode=structured`: dates and times as structs of their parts, to the same texts as in every other
//! mode (`io.debezium.time.Structured*`, Debezium 3.6; read from its source, not captured).

use super::temporal;
use super::value::{Row, Value};

/// Which of the structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structured {
    Date,
    Time,
    Timestamp,
    ZonedTime,
    ZonedTimestamp,
    Duration,
    /// A duration of a `TIME` column (MySQL), known by the propagated column type.
    SignedTime,
}

impl Structured {
    /// By the schema's name. MySQL's `TIME` comes as a duration; only the propagated `column_type` tells it from an
    /// interval.
    pub fn of(name: &str, column_type: Option<&str>) -> Option<Self> {
        let is_time = || {
            let bare = column_type.unwrap_or_default().split('(').next().unwrap_or_default().trim();
            bare.eq_ignore_ascii_case("TIME")
        };
        Some(match name.strip_prefix("io.debezium.time.Structured")? {
            "Date" => Self::Date,
            "Time" => Self::Time,
            "Timestamp" => Self::Timestamp,
            "ZonedTime" => Self::ZonedTime,
            "ZonedTimestamp" => Self::ZonedTimestamp,
            "Duration" if is_time() => Self::SignedTime,
            "Duration" => Self::Duration,
            _ => return None,
        })
    }

    /// The typed value; `None` where the parts make none, as in MySQL's `2031-07-00`.
    pub fn read(self, row: &Row) -> Option<Value> {
        let infinity = match row.get("specialValue") {
            None | Some(Value::Null) => None,
            Some(Value::Text(text)) => Some(match &**text {
                "POSITIVE_INFINITY" => "infinity",
                "NEGATIVE_INFINITY" => "-infinity",
                _ => return None,
            }),
            Some(_) => return None,
        };
        let text = |finite: fn(&Row) -> Option<String>| match infinity {
            Some(infinity) => Some(infinity.to_owned()),
            None => finite(row),
        };
        Some(match self {
            Self::Date => Value::Date(text(|row| temporal::date_text(&date(row)?))?.into()),
            Self::Timestamp => {
                let local = |row: &Row| temporal::timestamp_text(&format!("{}T{}", date(row)?, clock(row)?));
                Value::Timestamp(text(local)?.into())
            }
            Self::ZonedTimestamp => {
                let instant =
                    |row: &Row| temporal::zoned_timestamp(&format!("{}T{}{}", date(row)?, clock(row)?, offset(row)?));
                Value::TimestampTz(text(instant)?.into())
            }
            Self::Time => Value::Time(temporal::time_text(&clock(row)?)?.into()),
            Self::ZonedTime => Value::TimeTz(temporal::zoned_time(&format!("{}{}", clock(row)?, offset(row)?))?.into()),
            Self::Duration => Value::Interval(duration(row)?.into()),
            Self::SignedTime => Value::Time(signed_time(row)?.into()),
        })
    }
}

/// A part within `least..=most`.
fn part(row: &Row, name: &str, least: i64, most: i64) -> Option<i64> {
    match row.get(name) {
        Some(Value::Int(int)) if (least..=most).contains(int) => Some(*int),
        _ => None,
    }
}

/// A part of a duration; one that is absent or null counts nothing.
fn count(row: &Row, name: &str) -> Option<i64> {
    match row.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(Value::Int(int)) => Some(*int),
        Some(_) => None,
    }
}

/// Whether the day exists is judged where the text is read.
fn date(row: &Row) -> Option<String> {
    let year = part(row, "year", -999_999_999, 999_999_999)?;
    let (month, day) = (part(row, "month", 0, 99)?, part(row, "day", 0, 99)?);
    let sign = if year < 0 { "-" } else { "" };
    Some(format!("{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs()))
}

fn clock(row: &Row) -> Option<String> {
    let (hour, minute, second) = (part(row, "hour", 0, 99)?, part(row, "minute", 0, 99)?, part(row, "second", 0, 99)?);
    let nanos = if row.get("nanos").is_none_or(|nanos| *nanos == Value::Null) {
        0
    } else {
        part(row, "nanos", 0, 999_999_999)?
    };
    Some(format!("{hour:02}:{minute:02}:{second:02}.{nanos:09}"))
}

/// The offset decides; the zone's name says no more than where it came from. Without an offset only UTC is certain.
fn offset(row: &Row) -> Option<String> {
    match (row.get("offsetSeconds"), row.get("zoneId")) {
        (Some(Value::Int(seconds)), _) if seconds.unsigned_abs() < 86_400 => {
            let sign = if *seconds < 0 { '-' } else { '+' };
            let seconds = seconds.unsigned_abs();
            Some(format!("{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60))
        }
        (None | Some(Value::Null), None | Some(Value::Null)) => Some("Z".to_owned()),
        (None | Some(Value::Null), Some(Value::Text(zone))) if matches!(&**zone, "Z" | "UTC" | "GMT" | "Etc/UTC") => {
            Some("Z".to_owned())
        }
        _ => None,
    }
}

/// Nanoseconds of the parts below a day.
fn clock_nanos(row: &Row) -> Option<i128> {
    let minutes = i128::from(count(row, "hours")?) * 60 + i128::from(count(row, "minutes")?);
    let seconds = minutes * 60 + i128::from(count(row, "seconds")?);
    Some(seconds * 1_000_000_000 + i128::from(count(row, "nanos")?))
}

/// Without years, months and days the text of `MicroDuration`, else each part that is not zero, with its sign.
fn duration(row: &Row) -> Option<String> {
    let calendar = [("years", 'Y'), ("months", 'M'), ("days", 'D')];
    let nanos = clock_nanos(row)?;
    let mut out = String::from("P");
    for (name, letter) in calendar {
        match count(row, name)? {
            0 => {}
            parts => {
                out.push_str(&parts.to_string());
                out.push(letter);
            }
        }
    }
    if out.len() == 1 {
        return temporal::duration_nanos(nanos);
    }
    if nanos == 0 {
        return Some(out);
    }
    out.push('T');
    let (total, sign) = (nanos.unsigned_abs(), if nanos < 0 { "-" } else { "" });
    let (seconds, below) = (total / 1_000_000_000, total % 1_000_000_000);
    for (parts, letter) in [(seconds / 3600, 'H'), (seconds / 60 % 60, 'M')] {
        if parts > 0 {
            out.push_str(&format!("{sign}{parts}{letter}"));
        }
    }
    if !seconds.is_multiple_of(60) || below > 0 {
        let text = format!("{sign}{}.{below:09}", seconds % 60);
        out.push_str(text.trim_end_matches('0').trim_end_matches('.'));
        out.push('S');
    }
    Some(out)
}

fn signed_time(row: &Row) -> Option<String> {
    if ["years", "months", "days"].iter().any(|name| count(row, name) != Some(0)) {
        return None;
    }
    i64::try_from(clock_nanos(row)?).ok().map(|nanos| temporal::time(nanos, temporal::TimeUnit::Nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::{json, render};

    fn read(structured: Structured, text: &str) -> Option<String> {
        match json::parse_text(text).unwrap() {
            Value::Struct(row) => structured.read(&row).map(|value| render::json(&value)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parts_make_the_texts_of_every_other_mode() {
        use Structured::{Date, Duration, SignedTime, Time, Timestamp, ZonedTime, ZonedTimestamp};
        let day = r#""year":2026,"month":11,"day":29"#;
        let clock = r#""hour":12,"minute":34,"second":56,"nanos":123456000,"precision":6"#;
        for (structured, parts, text) in [
            (Date, day.to_owned(), "2026-11-29"),
            (Date, r#""year":-43,"month":3,"day":15,"specialValue":null"#.to_owned(), "-0043-03-15"),
            (Date, r#""year":null,"month":null,"day":null,"specialValue":"POSITIVE_INFINITY""#.to_owned(), "infinity"),
            (Timestamp, r#""specialValue":"NEGATIVE_INFINITY","precision":6"#.to_owned(), "-infinity"),
            (ZonedTimestamp, r#""specialValue":"POSITIVE_INFINITY""#.to_owned(), "infinity"),
            (Time, clock.to_owned(), "12:34:56.123456"),
            (Time, r#""hour":24,"minute":0,"second":0,"nanos":null"#.to_owned(), "24:00:00"),
            (Timestamp, format!("{day},{clock}"), "2026-11-29T12:34:56.123456"),
            (
                ZonedTimestamp,
                format!("{day},{clock},\"offsetSeconds\":7200,\"zoneId\":\"Europe/Berlin\""),
                "2026-11-29T10:34:56.123456Z",
            ),
            (
                ZonedTimestamp,
                format!("{day},{clock},\"offsetSeconds\":null,\"zoneId\":\"Z\""),
                "2026-11-29T12:34:56.123456Z",
            ),
            (ZonedTimestamp, format!("{day},{clock},\"offsetSeconds\":-17762"), "2026-11-29T17:30:58.123456Z"),
            (ZonedTime, format!("{clock},\"offsetSeconds\":7200"), "10:34:56.123456Z"),
            (
                Duration,
                r#""years":1,"months":2,"days":3,"hours":4,"minutes":5,"seconds":6,"nanos":500000000"#.to_owned(),
                "P1Y2M3DT4H5M6.5S",
            ),
            (
                Duration,
                r#""years":0,"months":0,"days":0,"hours":12,"minutes":34,"seconds":56,"nanos":123456000"#.to_owned(),
                "PT12H34M56.123456S",
            ),
            (Duration, r#""seconds":0,"nanos":-1000"#.to_owned(), "-PT0.000001S"),
            (Duration, r#""months":-14,"days":3,"hours":-1"#.to_owned(), "P-14M3DT-1H"),
            (Duration, r#""days":1,"seconds":60"#.to_owned(), "P1DT1M"),
            (Duration, "".to_owned(), "PT0S"),
            (SignedTime, r#""hours":-838,"minutes":-59,"seconds":-59,"nanos":-1000"#.to_owned(), "-838:59:59.000001"),
        ] {
            assert_eq!(
                read(structured, &format!("{{{parts}}}")),
                Some(format!("\"{text}\"")),
                "{structured:?} {parts}"
            );
        }
    }

    #[test]
    fn parts_that_make_no_moment_are_none() {
        use Structured::{Date, Duration, SignedTime, Time, Timestamp, ZonedTimestamp};
        let clock = r#""hour":1,"minute":2,"second":3,"nanos":4"#;
        for (structured, parts) in [
            (Date, r#""year":2031,"month":7,"day":0"#.to_owned()),
            (Date, r#""year":0,"month":0,"day":0"#.to_owned()),
            (Date, r#""year":2031,"month":2,"day":29"#.to_owned()),
            (Date, r#""year":"2031","month":2,"day":2"#.to_owned()),
            (Date, r#""specialValue":"SOON""#.to_owned()),
            (Date, "".to_owned()),
            (Time, r#""hour":1,"minute":60,"second":0"#.to_owned()),
            (Time, r#""hour":1,"minute":0,"second":0,"nanos":1000000000"#.to_owned()),
            (Timestamp, clock.to_owned()),
            (ZonedTimestamp, format!(r#""year":2031,"month":7,"day":1,{clock},"zoneId":"Europe/Berlin""#)),
            (Duration, r#""hours":"1""#.to_owned()),
            (SignedTime, r#""days":1"#.to_owned()),
        ] {
            assert_eq!(read(structured, &format!("{{{parts}}}")), None, "{structured:?} {parts}");
        }
    }

    #[test]
    fn a_column_of_type_time_is_no_interval() {
        for column in ["TIME", "time(6)", "TIME (3)"] {
            assert_eq!(
                Structured::of("io.debezium.time.StructuredDuration", Some(column)),
                Some(Structured::SignedTime)
            );
        }
        for column in [None, Some("INTERVAL"), Some("TIMESTAMP")] {
            assert_eq!(Structured::of("io.debezium.time.StructuredDuration", column), Some(Structured::Duration));
        }
        assert_eq!(Structured::of("io.debezium.time.StructuredYear", None), None);
        assert_eq!(Structured::of("x.StructuredDate", None), None);
    }
}
