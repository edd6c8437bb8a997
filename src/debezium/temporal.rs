//! Dates, times, timestamps and durations: from Debezium's integers and texts to one canonical text each.
//!
//! Integers are divided with their remainder kept, so that no unit is lost and nothing wraps at midnight.
//! Ranges are those of the wire (`i64`), not of a target: what a column cannot hold is its own business.

use std::fmt::Write;

use super::decimal::push_padded;

/// What an integer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Millis,
    Micros,
    Nanos,
}

impl TimeUnit {
    fn per_second(self) -> i64 {
        match self {
            Self::Millis => 1_000,
            Self::Micros => 1_000_000,
            Self::Nanos => 1_000_000_000,
        }
    }

    /// Whole seconds, rounded down, and the nanoseconds above them.
    fn split(self, count: i64) -> (i64, u32) {
        let nanos = count.rem_euclid(self.per_second()) * (1_000_000_000 / self.per_second());
        (count.div_euclid(self.per_second()), u32::try_from(nanos).expect("a remainder is below one second"))
    }

    /// Microseconds that stand for the infinities in PostgreSQL timestamps: Debezium passes on
    /// `PGStatement.DATE_POSITIVE_INFINITY` and its negative as microseconds
    /// (`PostgresValueConverter.POSITIVE_INFINITY_INSTANT`); nanoseconds cannot hold them.
    fn infinity(self, count: i64) -> Option<&'static str> {
        let (high, low) = match self {
            Self::Millis => (9_223_372_036_825_200, -9_223_372_036_832_400),
            Self::Micros => (9_223_372_036_825_200_000, -9_223_372_036_832_400_000),
            Self::Nanos => return sign_of(count, i64::MAX, i64::MIN),
        };
        // `PGStatement.DATE_*_INFINITY` as it is, in milliseconds: no year that any database has.
        let driver = (self == Self::Millis)
            .then(|| sign_of(count, 9_223_372_036_825_200_000, -9_223_372_036_832_400_000))
            .flatten();
        sign_of(count, high, low).or(driver)
    }
}

const SECONDS_PER_DAY: i64 = 86_400;

/// `2026-11-29` from days since 1970-01-01 (`io.debezium.time.Date`, Connect's `Date`).
///
/// Infinite dates of PostgreSQL arrive as days: -2147472692 and -2147472691 from the log (pgjdbc's -5877611-06-21
/// and -06-22). From a JDBC read comes the day of `PGStatement.DATE_*_INFINITY` cut to 32 bits: -622191234 or, east of
/// Greenwich, -622191233, and -625821272 or -625821271 (computed with the JDK's own calendar). No database has dates
/// there.
pub fn date(days: i64) -> String {
    let infinity = sign_of(days, -2_147_472_692, -2_147_472_691)
        .or_else(|| sign_of(days, -622_191_234, -625_821_272))
        .or_else(|| sign_of(days, -622_191_233, -625_821_271))
        .or_else(|| sign_of(days, i64::from(i32::MAX), i64::from(i32::MIN)));
    match infinity {
        Some(text) => text.to_owned(),
        None => {
            let mut out = String::with_capacity(10);
            push_date(&mut out, days);
            out
        }
    }
}

/// `12:34:56.123456`, signed and beyond 24 h: MySQL's `TIME` reaches from -838:59:59 to 838:59:59.
pub fn time(count: i64, unit: TimeUnit) -> String {
    let mut out = String::with_capacity(15);
    let (seconds, nanos) = magnitude(&mut out, count, unit);
    push_clock(&mut out, seconds, nanos);
    out
}

/// `2026-11-29T12:34:56.123456` from a count since 1970-01-01T00:00, without a zone.
pub fn timestamp(count: i64, unit: TimeUnit) -> String {
    if let Some(infinity) = unit.infinity(count) {
        return infinity.to_owned();
    }
    let (seconds, nanos) = unit.split(count);
    moment(seconds, nanos)
}

/// The same for an instant: in UTC, with `Z`.
pub fn instant(count: i64, unit: TimeUnit) -> String {
    let mut text = timestamp(count, unit);
    if text.ends_with(|last: char| last.is_ascii_digit()) {
        text.push('Z');
    }
    text
}

/// `PT12H34M56.123456S` from a count (`MicroDuration`); hours are not gathered into days, which vary in length.
pub fn duration(count: i64, unit: TimeUnit) -> String {
    let mut out = String::with_capacity(18);
    let (seconds, nanos) = magnitude(&mut out, count, unit);
    push_duration(&mut out, seconds, nanos);
    out
}

/// The same for more nanoseconds than an `i64` holds; `None` beyond all reason.
pub fn duration_nanos(count: i128) -> Option<String> {
    let mut out = String::from(if count < 0 { "-" } else { "" });
    let seconds = u64::try_from(count.unsigned_abs() / 1_000_000_000).ok()?;
    push_duration(&mut out, seconds, u32::try_from(count.unsigned_abs() % 1_000_000_000).ok()?);
    Some(out)
}

fn push_duration(out: &mut String, seconds: u64, nanos: u32) {
    out.push_str("PT");
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        let _ = write!(out, "{hours}H");
    }
    if minutes > 0 {
        let _ = write!(out, "{minutes}M");
    }
    if seconds > 0 || nanos > 0 || (hours, minutes) == (0, 0) {
        let _ = write!(out, "{seconds}");
        push_fraction(out, nanos);
        out.push('S');
    }
}

/// `io.debezium.time.ZonedTimestamp`: ISO 8601 with an offset, to UTC with `Z`. Debezium leaves trailing zeros of
/// the fraction out, sometimes the seconds.
pub fn zoned_timestamp(text: &str) -> Option<String> {
    if let Some(infinity) = infinity_text(text) {
        return Some(infinity.to_owned());
    }
    let (date, rest) = split_date_time(text)?;
    let days = parse_date(date)?;
    let (seconds, nanos, zone) = parse_clock(rest)?;
    let offset = parse_offset(zone)?;
    Some(moment(days * SECONDS_PER_DAY + seconds - offset, nanos) + "Z")
}

/// `io.debezium.time.ZonedTime`: a time of day with an offset, to UTC with `Z`.
pub fn zoned_time(text: &str) -> Option<String> {
    let (seconds, nanos, zone) = parse_clock(text)?;
    let offset = parse_offset(zone)?;
    let mut out = String::with_capacity(16);
    let shifted = if offset == 0 { seconds } else { (seconds - offset).rem_euclid(SECONDS_PER_DAY) };
    push_clock(&mut out, shifted.unsigned_abs(), nanos);
    out.push('Z');
    Some(out)
}

/// A date as text, checked: `2031-07-00` is none. An offset behind it (`io.debezium.time.IsoDate`) is left out.
pub fn date_text(text: &str) -> Option<String> {
    if let Some(infinity) = infinity_text(text) {
        return Some(infinity.to_owned());
    }
    let bare = text.strip_suffix('Z').unwrap_or(text);
    parse_date(bare).map(date)
}

/// A timestamp without a zone as text. `Z` behind it (`io.debezium.time.IsoTimestamp`) says nothing and is left out.
pub fn timestamp_text(text: &str) -> Option<String> {
    if let Some(infinity) = infinity_text(text) {
        return Some(infinity.to_owned());
    }
    let bare = text.strip_suffix('Z').unwrap_or(text);
    let Some((date, rest)) = split_date_time(bare) else {
        return parse_date(bare).map(|d| moment(d * SECONDS_PER_DAY, 0));
    };
    let days = parse_date(date)?;
    let (seconds, nanos, zone) = parse_clock(rest)?;
    zone.is_empty().then(|| moment(days * SECONDS_PER_DAY + seconds, nanos))
}

/// A time as text, signed and beyond 24 h.
pub fn time_text(text: &str) -> Option<String> {
    let (sign, bare) = text.strip_prefix('-').map_or(("", text), |bare| ("-", bare));
    let bare = bare.strip_suffix('Z').unwrap_or(bare);
    let (hours, rest) = bare.split_once(':')?;
    let (minutes, rest) = rest.split_once(':').unwrap_or((rest, "00"));
    let (seconds, nanos) = parse_seconds(rest)?;
    let total = digits(hours, 1, 6)? * 3600 + below(digits(minutes, 2, 2)?, 60)? * 60 + seconds;
    let mut out = String::from(if total == 0 && nanos == 0 { "" } else { sign });
    push_clock(&mut out, total.unsigned_abs(), nanos);
    Some(out)
}

fn sign_of(count: i64, high: i64, low: i64) -> Option<&'static str> {
    if count == high {
        Some("infinity")
    } else if count == low {
        Some("-infinity")
    } else {
        None
    }
}

fn infinity_text(text: &str) -> Option<&'static str> {
    match text {
        "infinity" => Some("infinity"),
        "-infinity" => Some("-infinity"),
        _ => None,
    }
}

/// Writes the sign; the rest is seconds and nanoseconds away from zero.
fn magnitude(out: &mut String, count: i64, unit: TimeUnit) -> (u64, u32) {
    if count < 0 {
        out.push('-');
    }
    let per_second = unit.per_second().unsigned_abs();
    let count = count.unsigned_abs();
    let nanos = count % per_second * (1_000_000_000 / per_second);
    (count / per_second, u32::try_from(nanos).expect("a remainder is below one second"))
}

fn moment(seconds: i64, nanos: u32) -> String {
    let mut out = String::with_capacity(30);
    push_date(&mut out, seconds.div_euclid(SECONDS_PER_DAY));
    out.push('T');
    push_clock(&mut out, seconds.rem_euclid(SECONDS_PER_DAY).unsigned_abs(), nanos);
    out
}

/// Proleptic Gregorian date from days since 1970-01-01 (Hinnant's `civil_from_days`).
fn push_date(out: &mut String, days: i64) {
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    if year < 0 {
        out.push('-');
    }
    push_padded(out, year.unsigned_abs(), 4);
    for part in [month, day] {
        out.push('-');
        push_padded(out, part.unsigned_abs(), 2);
    }
}

fn push_clock(out: &mut String, seconds: u64, nanos: u32) {
    push_padded(out, seconds / 3600, 2);
    for part in [seconds / 60 % 60, seconds % 60] {
        out.push(':');
        push_padded(out, part, 2);
    }
    push_fraction(out, nanos);
}

fn push_fraction(out: &mut String, nanos: u32) {
    if nanos > 0 {
        out.push('.');
        push_padded(out, u64::from(nanos), 9);
        out.truncate(out.trim_end_matches('0').len());
    }
}

/// `T`, or the space that PostgreSQL and MySQL write.
fn split_date_time(text: &str) -> Option<(&str, &str)> {
    text.split_once(['T', 't', ' '])
}

/// Days since 1970-01-01 of `[+-]YYYY…-MM-DD`.
fn parse_date(text: &str) -> Option<i64> {
    let (negative, bare) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let mut parts = bare.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let year = digits(year, 4, 9)? * if negative { -1 } else { 1 };
    let (month, day) = (digits(month, 2, 2)?, digits(day, 2, 2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    let shifted_year = year - i64::from(month <= 2);
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

/// Seconds, nanoseconds and what stands behind: `HH:MM[:SS[.fraction]]` up to 24:00.
fn parse_clock(text: &str) -> Option<(i64, u32, &str)> {
    let end = text.find(|c: char| !matches!(c, '0'..='9' | ':' | '.')).unwrap_or(text.len());
    let (clock, zone) = text.split_at(end);
    let (hours, rest) = clock.split_once(':')?;
    let (minutes, rest) = rest.split_once(':').unwrap_or((rest, "00"));
    let (seconds, nanos) = parse_seconds(rest)?;
    let total = digits(hours, 2, 2)? * 3600 + below(digits(minutes, 2, 2)?, 60)? * 60 + seconds;
    let within = total < SECONDS_PER_DAY || (total == SECONDS_PER_DAY && nanos == 0);
    within.then_some((total, nanos, zone))
}

fn parse_seconds(text: &str) -> Option<(i64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let value = u32::try_from(digits(fraction, 1, 9)?).ok()?;
    let width = u32::try_from(fraction.len()).ok()?;
    Some((below(digits(whole, 2, 2)?, 60)?, value * 10u32.pow(9 - width)))
}

/// Seconds east of UTC: `Z`, `+02`, `+0200`, `+02:00`, `+02:00:00`.
fn parse_offset(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let bare: String = zone[1..].chars().filter(|c| *c != ':').collect();
    let part = |from: usize| bare.get(from..from + 2).map_or(Some(0), |text| digits(text, 2, 2));
    if !matches!(bare.len(), 2 | 4 | 6) {
        return None;
    }
    Some(sign * (below(part(0)?, 24)? * 3600 + below(part(2)?, 60)? * 60 + below(part(4)?, 60)?))
}

fn digits(text: &str, least: usize, most: usize) -> Option<i64> {
    let fits = (least..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

fn below(value: i64, limit: i64) -> Option<i64> {
    (value < limit).then_some(value)
}

#[cfg(test)]
mod tests;
