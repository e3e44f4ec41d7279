//! Selection of the UDP datagrams to split, by their destination port.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Default ports: QUIC, WireGuard, and the range from which `mosh-server` chooses its port.
const USUAL: [RangeInclusive<u16>; 3] = [443..=443, 51_820..=51_820, 60_000..=61_000];

/// A port or a range of ports in the user's notation, such as `5000` or `5000-5010`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange(RangeInclusive<u16>);

/// Error: a text is not a [`PortRange`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRangeError(String);

impl fmt::Display for PortRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a range of ports: write PORT or PORT-PORT, from 1 to 65535", self.0)
    }
}

impl std::error::Error for PortRangeError {}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<PortRange, PortRangeError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(PortRange(first..=last)),
            _ => Err(PortRangeError(text.into())),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// The server ports whose datagrams are split: the default ports and the ports that the user has
/// added. The ranges are sorted and disjoint, and none is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(Vec<PortRange>);

impl Ports {
    /// Returns the ports of QUIC (443), WireGuard (51820) and Mosh (60000-61000), and `others`.
    pub fn with(others: &[PortRange]) -> Ports {
        let usual = USUAL.into_iter().map(PortRange);
        let mut all: Vec<PortRange> = usual.chain(others.iter().cloned()).collect();
        all.sort_by_key(|range| *range.0.start());
        let mut apart: Vec<PortRange> = Vec::new();
        for PortRange(next) in all {
            match apart.last_mut() {
                Some(PortRange(last)) if u32::from(*next.start()) <= u32::from(*last.end()) + 1 => {
                    *last = *last.start()..=*last.end().max(next.end());
                }
                _ => apart.push(PortRange(next)),
            }
        }
        Ports(apart)
    }

    /// Returns whether datagrams to `port` are split.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.0.contains(&port))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<_> = self.0.iter().map(PortRange::to_string).collect();
        f.write_str(&ranges.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let ranges = ["444-500", "5000", "60500-62000", "443"].map(|text| text.parse().unwrap());
        let ports = Ports::with(&ranges);
        assert_eq!(ports.to_string(), "443-500, 5000, 51820, 60000-62000");
        assert!(ports.contains(62_000) && !ports.contains(62_001) && !ports.contains(53));
        assert_eq!(Ports::with(&["1-65535".parse().unwrap()]).to_string(), "1-65535");
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in ["", "0", "5-4", "65536", "a", "5-", "-5", "1-2-3"] {
            assert_eq!(text.parse::<PortRange>(), Err(PortRangeError(text.into())), "{text}");
        }
    }
}
