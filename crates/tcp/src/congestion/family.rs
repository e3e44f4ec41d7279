//! The names of the congestion control algorithms, and a user's choice among them.

use std::fmt;
use std::str::FromStr;

use super::{Control, FAMILIES, bbr, cubic, reno};

/// A congestion control algorithm, as command lines and documentation present it.
pub struct Family {
    /// Name that a user writes.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// Whether each leg (path to the peer) has a window of its own, so that a connection may have
    /// several legs.
    pub supports_legs: bool,
    /// Function that builds the algorithm for a connection; the argument is the initial window, in
    /// segments.
    pub(crate) build: fn(u32) -> Control,
}

/// Congestion control of a connection: one of [`FAMILIES`]. The default is CUBIC, as in Linux.
///
/// ```
/// use anabranch_tcp::Congestion;
///
/// assert_eq!("reno".parse(), Ok(Congestion::RENO));
/// assert_eq!(Congestion::default().name(), "cubic");
/// ```
#[derive(Clone, Copy)]
pub struct Congestion(&'static Family);

impl Congestion {
    /// CUBIC (RFC 9438) with HyStart, as in Linux.
    pub const CUBIC: Congestion = Congestion(&cubic::FAMILY);
    /// Reno (RFC 5681).
    pub const RENO: Congestion = Congestion(&reno::FAMILY);
    /// BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00). It paces segments, and
    /// random losses do not slow it down.
    pub const BBR: Congestion = Congestion(&bbr::FAMILY);

    /// Returns all algorithms, in the order of [`FAMILIES`].
    pub fn all() -> impl Iterator<Item = Congestion> {
        FAMILIES.iter().map(|family| Congestion(family))
    }

    /// Returns the name that a user writes.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns one line of help that describes the algorithm.
    pub fn about(self) -> &'static str {
        self.0.about
    }

    /// Returns whether a connection with this algorithm may have several legs (paths to the peer).
    pub fn supports_legs(self) -> bool {
        self.0.supports_legs
    }

    pub(crate) fn control(self, initial_window: u32) -> Control {
        (self.0.build)(initial_window)
    }
}

impl Default for Congestion {
    fn default() -> Congestion {
        Congestion::CUBIC
    }
}

impl PartialEq for Congestion {
    fn eq(&self, other: &Congestion) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Congestion {}

impl fmt::Debug for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Congestion {
    type Err = UnknownCongestion;

    fn from_str(name: &str) -> Result<Congestion, UnknownCongestion> {
        let named = Congestion::all().find(|congestion| congestion.name() == name);
        named.ok_or_else(|| UnknownCongestion(name.to_owned()))
    }
}

/// Error: no congestion control algorithm has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCongestion(String);

impl fmt::Display for UnknownCongestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Congestion::all().map(Congestion::name).collect();
        let UnknownCongestion(name) = self;
        write!(f, "no congestion control is called `{name}`; choose one of {}", names.join(", "))
    }
}

impl std::error::Error for UnknownCongestion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_parsed_and_an_unknown_one_lists_them_all() {
        for congestion in Congestion::all() {
            assert_eq!(congestion.name().parse(), Ok(congestion));
            assert!(!congestion.about().is_empty(), "{congestion:?}");
            let is_model = matches!(congestion.control(10), Control::Model(_));
            assert_eq!(congestion.supports_legs(), is_model, "{congestion:?}");
        }
        let error = "vegas".parse::<Congestion>().expect_err("no such algorithm").to_string();
        let all: Vec<_> = Congestion::all().map(Congestion::name).collect();
        assert!(error.contains("`vegas`") && error.contains(&all.join(", ")), "{error}");
    }
}
