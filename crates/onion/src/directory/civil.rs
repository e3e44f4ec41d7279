//! Dates in the format of directory documents, `2027-01-15 08:00:00`, and in the format of HTTP.
//! Both are always UTC.

use chrono::{DateTime, Datelike as _, NaiveDateTime, Utc};

/// Returns the time `unix`, in seconds since 1970, in the format of directory documents.
#[must_use]
pub fn utc(unix: u64) -> String {
    moment(unix).format("%Y-%m-%d %H:%M:%S").to_string()
}

/// Returns the time that `text` represents, in seconds since 1970. Returns `None` if `text` is not
/// a date of the years 1970 to 9999.
#[must_use]
pub fn from_utc(text: &str) -> Option<u64> {
    parsed(text, "%Y-%m-%d %H:%M:%S")
}

/// Returns the time `unix`, in seconds since 1970, in the format of HTTP (RFC 9110, section
/// 5.6.7): `Fri, 15 Jan 2027 08:00:00 GMT`.
#[must_use]
pub fn http_date(unix: u64) -> String {
    moment(unix).format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Returns the time of the HTTP date `text`, in seconds since 1970. Returns `None` if `text` is not
/// an HTTP date. The day of the week is not checked, as in C tor.
#[must_use]
pub fn from_http_date(text: &str) -> Option<u64> {
    let (_, date) = text.trim().split_once(", ")?;
    parsed(date.trim_end_matches(" GMT"), "%d %b %Y %H:%M:%S")
}

fn moment(unix: u64) -> DateTime<Utc> {
    let found = i64::try_from(unix).ok().and_then(|unix| DateTime::from_timestamp(unix, 0));
    found.unwrap_or(DateTime::<Utc>::MAX_UTC)
}

fn parsed(text: &str, form: &str) -> Option<u64> {
    let found = NaiveDateTime::parse_from_str(text, form).ok()?;
    let is_near = (1970..10_000).contains(&found.year());
    is_near.then(|| found.and_utc().timestamp().try_into().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_have_their_dates() {
        let known = [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_800_000_000, "2027-01-15 08:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ];
        for (unix, text) in known {
            assert_eq!((utc(unix), from_utc(text)), (text.to_owned(), Some(unix)));
            assert_eq!(from_http_date(&http_date(unix)), Some(unix));
        }
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "2027-01-15",
            "2027-02-30 08:00:00",
            "2027-13-01 08:00:00",
            "1969-12-31 23:59:59",
            "2027-01-15 24:00:00",
            "99999-01-01 00:00:00",
            "2027-01-00 00:00:00",
        ] {
            assert_eq!(from_utc(text), None, "{text}");
        }
        for text in
            ["", "Fri, 15 Jan 2027", "Fri, 15 Foo 2027 08:00:00 GMT", "15 Jan 2027 08:00:00"]
        {
            assert_eq!(from_http_date(text), None, "{text}");
        }
    }
}
