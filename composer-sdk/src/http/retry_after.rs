//! `Retry-After`: how long a service asks us to wait.
//!
//! Seconds or an HTTP date; a date counts from the answer's own `Date`, so that no clock but the service's matters, and
//! from our clock when there is none.
//! Zero, the past and whatever cannot be read say nothing: the retry policy decides then.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// The longest wait that is granted.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// What the headers ask for.
pub(super) fn of(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let asked = text(RETRY_AFTER)?;
    let wait = match seconds(asked) {
        Some(seconds) => Duration::from_secs(seconds),
        None => {
            let now = text(DATE).and_then(date).or_else(|| seconds_of(SystemTime::now()))?;
            Duration::from_secs(date(asked)?.checked_sub(now)?)
        }
    };
    (!wait.is_zero()).then(|| wait.min(LONGEST))
}

/// A whole number of seconds, however long.
fn seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

fn seconds_of(at: SystemTime) -> Option<u64> {
    at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, the form that is sent since 1997) in seconds since 1970.
fn date(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once(", ")?;
    let [day, month, year, time, "GMT"] = rest.split(' ').collect::<Vec<_>>()[..] else { return None };
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>()[..] else { return None };
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|name| *name == month)? as u64 + 1;
    let within =
        |text: &str, range: std::ops::RangeInclusive<u64>| seconds(text).filter(|n| range.contains(n));
    let days = days(within(year, 1970..=9999)?, month, within(day, 1..=31)?);
    let (hour, minute, second) = (within(hour, 0..=23)?, within(minute, 0..=59)?, within(second, 0..=60)?);
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days from 1970 to a day of the Gregorian calendar, years counted from March.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(retry_after: &str, at: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        if let Some(at) = at {
            headers.insert(DATE, at.parse().unwrap());
        }
        of(&headers).map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_are_waited_up_to_an_hour() {
        assert_eq!(check("3", None), Some(3));
        assert_eq!(check(" 3 ", None), Some(3));
        assert_eq!(check("9223372037", None), Some(3600));
        assert_eq!(check("99999999999999999999999999", None), Some(3600));
    }

    #[test]
    fn nothing_is_made_of_garbage_zero_and_the_past() {
        for asked in
            ["", "0", "-3", "3.5", "soon", "+3", "Sun, 06 Nov 1994 08:49:37", "Sun, 99 Nov 1994 08:49:37 GMT"]
        {
            assert_eq!(check(asked, None), None, "{asked}");
        }
        assert_eq!(check("Sun, 06 Nov 1994 08:49:37 GMT", None), None, "the past, by our clock");
        let now = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(check("Sun, 06 Nov 1994 08:49:37 GMT", now), None);
        assert_eq!(check("Sun, 06 Nov 1994 08:49:36 GMT", now), None);
    }

    #[test]
    fn a_date_counts_from_the_date_of_the_answer() {
        let now = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(check("Sun, 06 Nov 1994 08:49:42 GMT", now), Some(5));
        assert_eq!(check("Mon, 06 Nov 2034 08:49:42 GMT", now), Some(3600));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(date("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        assert_eq!(date("Fri, 01 Mar 2024 00:00:00 GMT"), Some(1_709_251_200));
    }
}
