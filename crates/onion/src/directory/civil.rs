//! Dates as directory documents write them: `2027-01-15 08:00:00`, always UTC.

/// The text of a time in seconds since 1970.
#[must_use]
pub fn utc(unix: u64) -> String {
    let (days, seconds) = (unix / 86_400, unix % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of a day since 1970. Years begin in March here, so that the leap day is a
/// year's last; 400 years have 146,097 days.
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
        known.iter().for_each(|&(unix, text)| assert_eq!(utc(unix), text));
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
