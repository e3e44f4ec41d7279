//! Dates in the format of HTTP (RFC 9110, section 5.6.7).

use chrono::{DateTime, Utc};

/// Returns the date `unix` (seconds since 1970) in the form `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn http_date(unix: u64) -> String {
    let found = i64::try_from(unix).ok().and_then(|unix| DateTime::from_timestamp(unix, 0));
    let date = found.unwrap_or(DateTime::<Utc>::MAX_UTC);
    date.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(unix), text);
        }
    }
}
