//! Durations and sizes as people write them.

use std::time::Duration;

/// `10s`, `500ms`, `15m`, `1h`, `14d`. None for anything else, zero included.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    // A bound that no clock and no database interval minds: 1000 years.
    number.checked_mul(millis).filter(|n| (1..=31_536_000_000_000).contains(n)).map(Duration::from_millis)
}

/// `64MiB`, `512KiB`, `1GiB`, or plain bytes. None for anything else, zero included.
pub(super) fn size(text: &str) -> Option<usize> {
    let (number, unit) = split(text)?;
    let bytes: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(bytes).filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok())
}

/// A duration in the largest unit that keeps it whole, for messages.
pub(super) fn show(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (size, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown_alike() {
        for (text, millis) in
            [("500ms", 500), ("10s", 10_000), ("15m", 900_000), ("1h", 3_600_000), ("14d", 1_209_600_000)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
        for text in ["", "10", "s", "-1s", "1.5s", "1w", "0s", "10 seconds", "99999999999999999999s", "9999999999d"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_two_or_bytes() {
        assert_eq!(size("64MiB"), Some(64 << 20));
        assert_eq!(size("512 KiB"), Some(512 << 10));
        assert_eq!(size("4096"), Some(4096));
        for text in ["", "0", "64MB", "64M", "-1", "1.5GiB", "99999999999GiB"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
