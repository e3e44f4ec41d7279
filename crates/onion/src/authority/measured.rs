//! Bandwidths of relays, as measured by bandwidth authorities and read from their files
//! (bandwidth-file-spec). Any version of the format is accepted.

use std::collections::BTreeMap;
use std::fmt;

use crate::wire::text::twenty;

/// Age in seconds after which a measurement no longer counts (C tor's value).
const OLD: u64 = 15 * 86_400;

/// The reason why a bandwidth file is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredError {
    /// The first line of the file is not a time.
    NoTime,
    /// The file is too old, or its time is in the future compared with our clock.
    Time,
}

impl fmt::Display for MeasuredError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasuredError::NoTime => {
                out.write_str("the first line of the file is not a time in seconds since 1970")
            }
            MeasuredError::Time => out.write_str(
                "the time in the first line of the file is more than 15 days ago or in the future",
            ),
        }
    }
}

impl std::error::Error for MeasuredError {}

/// Parses a bandwidth file. Returns kilobytes per second by RSA identity. Skips lines without a
/// relay or a bandwidth.
///
/// # Errors
/// Returns a [`MeasuredError`] if the first line is not a time, or the time is too long ago or in
/// the future.
pub fn read(text: &str, unix_now: u64) -> Result<BTreeMap<[u8; 20], u32>, MeasuredError> {
    let mut lines = text.lines();
    let time = lines.next().and_then(|line| line.trim().parse::<u64>().ok());
    let time = time.ok_or(MeasuredError::NoTime)?;
    if time > unix_now + 86_400 || time + OLD < unix_now {
        return Err(MeasuredError::Time);
    }
    Ok(lines.filter_map(relay).collect())
}

fn relay(line: &str) -> Option<([u8; 20], u32)> {
    let field = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
    // `vote=0` marks a relay with too few measurements, which must not count.
    if field("vote=") == Some("0") {
        return None;
    }
    let id = twenty(field("node_id=")?.trim_start_matches('$'))?;
    Some((id, field("bw=")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn lines_of_relays_are_read_and_others_passed_over() {
        let id = "AB".repeat(20);
        let text = format!(
            "{NOW}\nversion=1.4.0\n=====\nbw=77 node_id=${id} nick=x\nnode_id=${} bw=5 vote=0\n\
             node_id=$ABC bw=1\nnode_id=${} bw=x\n",
            "CD".repeat(20),
            "EF".repeat(20),
        );
        assert_eq!(read(&text, NOW), Ok(BTreeMap::from([([0xab; 20], 77)])));
    }

    #[test]
    fn what_is_old_or_no_such_file_is_refused() {
        assert_eq!(read("", NOW), Err(MeasuredError::NoTime));
        assert_eq!(read("version=1\n", NOW), Err(MeasuredError::NoTime));
        assert_eq!(read(&format!("{}\n", NOW - OLD - 1), NOW), Err(MeasuredError::Time));
        assert_eq!(read(&format!("{}\n", NOW + 90_000), NOW), Err(MeasuredError::Time));
    }
}
