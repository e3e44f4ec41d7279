//! The schedule for retrying unreachable guards, at growing intervals (guard-spec 4.5, A.1).

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// Intervals between attempts to use an unreachable guard, in seconds. Each row contains the time
/// since the first failure at which the row ends, the interval for a primary guard, and the
/// interval for other guards.
const SCHEDULE: [(u64, u64, u64); 4] = [
    (6 * HOUR, 10 * MINUTE, HOUR),
    (96 * HOUR, 90 * MINUTE, 4 * HOUR),
    (168 * HOUR, 4 * HOUR, 18 * HOUR),
    (u64::MAX, 9 * HOUR, 36 * HOUR),
];

/// Returns true if a guard may be tried again at `now`. `tried` is the time of the last attempt.
/// All attempts since `failing` have failed. If either is `None`, the result is true.
pub(super) fn is_due(now: u64, tried: Option<u64>, failing: Option<u64>, is_primary: bool) -> bool {
    let (Some(tried), Some(failing)) = (tried, failing) else { return true };
    let for_long = now.saturating_sub(failing);
    let row = SCHEDULE.iter().find(|(until, ..)| for_long < *until);
    let (_, primary, other) = row.copied().unwrap_or(SCHEDULE[SCHEDULE.len() - 1]);
    now >= tried.saturating_add(if is_primary { primary } else { other })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_primary_guards_have_shorter_ones() {
        let cases = [(0, 10, 60), (7 * 60, 90, 240), (100 * 60, 240, 1080), (200 * 60, 540, 2160)];
        for (minutes_of_failure, primary, other) in cases {
            let tried = minutes_of_failure * MINUTE;
            let due = |after: u64, is_primary| {
                is_due(tried + after * MINUTE, Some(tried), Some(0), is_primary)
            };
            assert!(!due(primary - 1, true) && due(primary, true), "{minutes_of_failure}");
            assert!(!due(other - 1, false) && due(other, false), "{minutes_of_failure}");
        }
    }
}
