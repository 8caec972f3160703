//! Spans of time as they are written in an attribute: `"200ms"`, `"1.5s"`, `"10m"`, `"2h"`, `"1d"`.

use std::time::Duration;

/// What follows the number, and how many nanoseconds it stands for.
const UNITS: [(&str, u128); 6] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Longer than this is a slip of the pen, and comes close to what an instant can hold.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The span of time that `text` stands for, or what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(unreadable(text));
    }
    let Some((_, unit_nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(unknown_unit(text, number, unit));
    };
    let nanos = nanos(number, *unit_nanos).ok_or_else(|| unreadable(text))?;
    match u64::try_from(nanos).map(Duration::from_nanos) {
        Ok(duration) if duration <= LONGEST => Ok(duration),
        _ => Err(format!("`{text}` is longer than a hundred years")),
    }
}

/// How a span of time is written in an attribute; for messages.
pub(crate) fn show(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let unit = UNITS.iter().rev().find(|(_, unit)| nanos >= *unit && nanos.is_multiple_of(*unit));
    match unit {
        Some((name, unit)) => format!("{}{name}", nanos / unit),
        None => format!("{duration:?}"),
    }
}

/// `number` of a unit; `None` when it is no number.
fn nanos(number: &str, unit_nanos: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // Twelve digits of days are more than anything allowed, and far from any overflow.
    if whole.is_empty() || fraction.is_empty() || whole.len() > 12 || fraction.len() > 9 {
        return (whole.len() > 12 && fraction.bytes().all(|b| b.is_ascii_digit())).then_some(u128::MAX);
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    Some(whole.parse::<u128>().ok()? * unit_nanos + fraction.parse::<u128>().ok()? * unit_nanos / scale)
}

fn unknown_unit(text: &str, number: &str, unit: &str) -> String {
    if unit.is_empty() {
        return format!(
            "`{text}` has no unit: write `{number}s`, `{number}ms`, `{number}m`, `{number}h` or `{number}d`"
        );
    }
    let meant = match unit.trim().to_ascii_lowercase().trim_end_matches('s') {
        "m" if unit.trim().len() > 1 => "ms",
        "milli" | "millisecond" | "msec" => "ms",
        "" | "sec" | "second" => "s",
        "m" | "min" | "minute" => "m",
        "h" | "hr" | "hour" => "h",
        "d" | "day" => "d",
        "w" | "week" => return format!("`{unit}` is not a unit: write weeks as days, such as `7d`"),
        _ => return unreadable(text),
    };
    format!("`{text}` is not a span of time: write `{number}{meant}`")
}

fn unreadable(text: &str) -> String {
    format!(
        "`{text}` is not a span of time: write a number and a unit (ms, s, m, h, d), such as `200ms`, `1.5s` or `10m`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_are_read_exactly() {
        for (text, nanos) in [
            ("200ms", 200_000_000),
            ("1.5s", 1_500_000_000),
            ("0.000000001s", 1),
            ("10m", 600_000_000_000),
            ("2h", 7_200_000_000_000),
            ("1d", 86_400_000_000_000),
            ("250us", 250_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_of_time_says_what_to_write() {
        for (text, words) in [
            ("10", "write `10s`"),
            ("10 s", "write `10s`"),
            ("5sec", "write `5s`"),
            ("5min", "write `5m`"),
            ("3MS", "write `3ms`"),
            ("2w", "`7d`"),
            ("", "a number and a unit"),
            ("s", "a number and a unit"),
            ("-1s", "a number and a unit"),
            ("1.2.3s", "a number and a unit"),
            (".5s", "a number and a unit"),
            ("1.s", "a number and a unit"),
            ("1e3s", "a number and a unit"),
            ("40000d", "a hundred years"),
            ("99999999999999999999999d", "a hundred years"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(words), "{text}: {message}");
        }
    }

    #[test]
    fn a_span_of_time_is_shown_as_it_is_written() {
        for text in ["200ms", "90s", "10m", "2h", "1d", "250us"] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
        assert_eq!(show(Duration::from_secs(60)), "1m");
    }
}
