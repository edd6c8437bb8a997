//! Spans of time and sizes, as people read them.

use std::time::Duration;

const UNITS: [(&str, u64); 4] = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)];

/// In the largest unit that leaves a short number: `14d`, `36h`, `1.5s`.
pub(super) fn show(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    for (name, unit) in UNITS {
        if millis >= unit && millis.is_multiple_of(unit) {
            return format!("{}{name}", millis / unit);
        }
    }
    match UNITS.iter().find(|(_, unit)| millis >= *unit) {
        Some((name, unit)) => format!("{:.1}{name}", millis as f64 / *unit as f64),
        None => format!("{millis}ms"),
    }
}

pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (millis, text) in [(1_209_600_000, "14d"), (129_600_000, "36h"), (1500, "1.5s"), (12, "12ms"), (0, "0ms")] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
        assert_eq!(bytes(64 << 20), "64 MiB");
    }
}
