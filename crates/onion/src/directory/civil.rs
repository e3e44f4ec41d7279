//! Dates in directory documents, `2027-01-15 08:00:00`, and in HTTP; always UTC.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Formats a time in seconds since 1970.
#[must_use]
pub fn utc(unix: u64) -> String {
    let (days, seconds) = (unix / 86_400, unix % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Parses such a text into seconds since 1970. Returns `None` if it is invalid or before 1970.
#[must_use]
pub fn from_utc(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(' ')?;
    let mut parts = date.splitn(3, '-').map(|part| part.parse().ok());
    let day = day_of(parts.next()??, parts.next()??, parts.next()??)?;
    Some(day * 86_400 + seconds(time)?)
}

/// Formats a time as in HTTP (RFC 9110, 5.6.7): `Fri, 15 Jan 2027 08:00:00 GMT`.
#[must_use]
pub fn http_date(unix: u64) -> String {
    let (year, month, day) = date(unix / 86_400);
    let weekday = DAYS[(unix / 86_400 % 7) as usize];
    let (month, time) = (MONTHS[month as usize - 1], &utc(unix)[11..]);
    format!("{weekday}, {day:02} {month} {year:04} {time} GMT")
}

/// Parses a time as in HTTP. Returns `None` if it is invalid. The day of the week is not checked.
#[must_use]
pub fn from_http_date(text: &str) -> Option<u64> {
    let mut parts = text.trim().split_once(", ")?.1.split(' ');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let day = day_of(year.parse().ok()?, month, day.parse().ok()?)?;
    Some(day * 86_400 + seconds(parts.next()?)?)
}

/// Parses `08:00:00` into seconds since midnight.
fn seconds(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    (hour < 24 && minute < 60 && second < 61).then_some(hour * 3600 + minute * 60 + second)
}

/// Returns the number of days from 1970 to a date. Returns `None` if the date does not exist.
fn day_of(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let found = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    (date(found).2 == day).then_some(found)
}

/// Returns the year, month and day of a day since 1970. The calculation begins years in March, so
/// that a leap day is the last of its year; 400 years have 146,097 days.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468; // since 0000-03-01
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day_of_month)
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

    #[test]
    fn days_follow_one_another() {
        let mut dates = (0..150_000).map(date);
        let mut before = dates.next().unwrap();
        for date in dates {
            let (year, month, day) = before;
            let next = [(year, month, day + 1), (year, month + 1, 1), (year + 1, 1, 1)];
            assert!(next.contains(&date), "{before:?} then {date:?}");
            before = date;
        }
    }
}
