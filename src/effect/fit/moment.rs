//! Dates, times and timestamps on their way into a column of a temporal type.

use super::Misfit;
use crate::debezium::temporal;
use crate::debezium::value::Value;

/// Texts are read as ISO 8601 and in no other way: `now` and `01/02/03` mean what a server makes of them.
pub(super) fn date(value: &Value) -> Result<String, Misfit> {
    let (date, time) = match value {
        Value::Date(date) => return Ok(date.to_string()),
        Value::Timestamp(text) | Value::TimestampTz(text) => split(text),
        Value::Text(text) => match temporal::date_text(text) {
            Some(date) => return Ok(date),
            None => {
                let timestamp = temporal::timestamp_text(text).ok_or_else(|| no("date", value))?;
                let (date, time) = split(&timestamp);
                return whole_day(date, time);
            }
        },
        _ => return Err(no("date", value)),
    };
    whole_day(date, time)
}

fn whole_day(date: &str, time: &str) -> Result<String, Misfit> {
    match time {
        "" | "00:00:00" => Ok(date.to_owned()),
        _ => Err(Misfit::range("a date has no place for the time of day")),
    }
}

/// Without `Z`. An instant is its time in UTC.
pub(super) fn timestamp(value: &Value, digits: u64) -> Result<String, Misfit> {
    let text = match value {
        Value::Timestamp(text) => text.to_string(),
        Value::TimestampTz(text) => text.trim_end_matches('Z').to_owned(),
        Value::Date(date) if infinite(date) => date.to_string(),
        Value::Date(date) => format!("{date}T00:00:00"),
        Value::Text(text) => temporal::timestamp_text(text)
            .or_else(|| temporal::zoned_timestamp(text).map(|zoned| zoned.trim_end_matches('Z').to_owned()))
            .ok_or_else(|| no("timestamp", value))?,
        _ => return Err(no("timestamp", value)),
    };
    within(text, digits)
}

/// Without a zone.
pub(super) fn time(value: &Value, digits: u64) -> Result<String, Misfit> {
    let text = match value {
        Value::Time(text) => text.to_string(),
        Value::TimeTz(text) => text.trim_end_matches('Z').to_owned(),
        Value::Text(text) => temporal::time_text(text).ok_or_else(|| no("time", value))?,
        _ => return Err(no("time", value)),
    };
    within(text, digits)
}

pub(super) fn time_of_day(value: &Value, digits: u64) -> Result<String, Misfit> {
    let text = time(value, digits)?;
    let hours = text.split(':').next().unwrap_or_default();
    let late = hours.len() > 2 || hours > "24" || hours == "24" && text != "24:00:00";
    if text.starts_with('-') || late {
        return Err(Misfit::range("a time of day is between 00:00 and 24:00"));
    }
    Ok(text)
}

/// Digits of a second beyond these must be zeros; ours have no zeros at their end.
pub(super) fn within(text: String, digits: u64) -> Result<String, Misfit> {
    let fraction = text.rsplit_once('.').map_or("", |(_, fraction)| fraction);
    let sent = fraction.bytes().take_while(u8::is_ascii_digit).count() as u64;
    match sent > digits {
        true => Err(Misfit::range(format!("it keeps {digits} digits of a second, the value has {sent}"))),
        false => Ok(text),
    }
}

pub(super) fn infinite(text: &str) -> bool {
    matches!(text, "infinity" | "-infinity")
}

/// Postgres counts years before Christ from one and says so behind the date: the year 0 is `0001 BC`.
pub(super) fn with_era(text: &str) -> String {
    if infinite(text) {
        return text.to_owned();
    }
    let (negative, bare) = text.strip_prefix('-').map_or((false, text), |bare| (true, bare));
    let Some((year, rest)) = bare.split_once('-') else { return text.to_owned() };
    match year.parse::<i64>() {
        Ok(0) => format!("0001-{rest} BC"),
        Ok(year) if negative => format!("{:04}-{rest} BC", year + 1),
        _ => text.to_owned(),
    }
}

/// MySQL's years have four digits and no sign.
pub(super) fn four_digit_year(text: String) -> Result<String, Misfit> {
    if infinite(&text) {
        return Err(Misfit::range("it cannot hold infinity"));
    }
    if text.as_bytes().get(4) != Some(&b'-') || text.starts_with('-') {
        return Err(Misfit::range("it holds years from 0000 to 9999"));
    }
    Ok(text.replacen('T', " ", 1))
}

fn split(timestamp: &str) -> (&str, &str) {
    timestamp.trim_end_matches('Z').split_once('T').unwrap_or((timestamp, ""))
}

fn no(what: &str, value: &Value) -> Misfit {
    match value {
        // Without a schema a date is a number of days, milliseconds or microseconds.
        Value::Int(_) | Value::Number(_) => {
            Misfit::kind(format!("a number is no {what}: give the field its type in `columns`"))
        }
        Value::Text(_) => Misfit::kind(format!("the text is no {what} in ISO 8601")),
        _ => Misfit::kind(format!("{} is no {what}", super::kind(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_before_christ_are_written_as_postgres_reads_them() {
        for (iso, era) in [
            ("-0043-03-15", "0044-03-15 BC"),
            ("0000-01-01T00:00:00", "0001-01-01T00:00:00 BC"),
            ("2026-11-29", "2026-11-29"),
            ("12026-01-01", "12026-01-01"),
            ("-infinity", "-infinity"),
        ] {
            assert_eq!(with_era(iso), era);
        }
    }

    #[test]
    fn a_time_of_day_does_not_wrap() {
        for good in ["00:00:00", "24:00:00", "23:59:59.999999"] {
            assert_eq!(time_of_day(&Value::Time(good.into()), 6).unwrap(), good);
        }
        for bad in ["838:59:59", "-00:00:01", "24:00:00.000001", "25:00:00"] {
            assert!(time_of_day(&Value::Time(bad.into()), 6).is_err(), "{bad}");
        }
    }
}
