//! Which kind of traffic, and how many connections.

use std::fmt;
use std::str::FromStr;

use super::Slot;
use super::nosteg::NoSteg;
use super::rr::{Answering, Asking};

/// A kind of cover traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// Hidden bytes as they are.
    NoSteg,
    /// The same, one request and one answer a connection.
    NoStegRr,
}

/// A kind of traffic, and how connections are used: what both ends have to agree on.
///
/// A bridge line names it: `nosteg`, `nosteg-short`, `nosteg-rr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The kind of traffic.
    pub module: Module,
    /// Whether connections are many and short: at most 12,000 bytes each either way, below what
    /// some networks let pass before they freeze a connection. Otherwise they are few and kept.
    pub short: bool,
}

/// A text names no profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError(String);

/// Every profile by its name.
const PROFILES: &[(&str, Profile)] = &[
    ("nosteg", Profile { module: Module::NoSteg, short: false }),
    ("nosteg-short", Profile { module: Module::NoSteg, short: true }),
    ("nosteg-rr", Profile { module: Module::NoStegRr, short: false }),
];
/// Bytes either way by a short connection.
const SHORT: usize = 12_000;

impl Profile {
    /// Connections at a time, while there is something to carry.
    pub(crate) fn connections(self) -> usize {
        match (self.module, self.short) {
            (Module::NoSteg, false) => 6,
            (Module::NoSteg, true) => 24,
            (Module::NoStegRr, _) => 8,
        }
    }

    /// The same, while there is nothing.
    pub(crate) fn idle_connections(self) -> usize {
        match self.module {
            Module::NoSteg => 2,
            Module::NoStegRr => 1,
        }
    }

    /// Whether both ends may speak at any time.
    pub(crate) fn streams(self) -> bool {
        self.module == Module::NoSteg
    }

    /// Bytes of a chunk: what is sent again if a connection is lost, and what has to fit.
    pub(crate) fn chunk(self) -> usize {
        match (self.module, self.short) {
            (Module::NoSteg, false) => 4_096,
            (Module::NoSteg, true) => 3_900,
            (Module::NoStegRr, _) => 1_200,
        }
    }

    /// Random bytes behind a handshake message: fewer than this.
    pub(crate) fn padding(self) -> u16 {
        match self.module {
            Module::NoSteg => 512,
            Module::NoStegRr => 1,
        }
    }

    pub(crate) fn client_slot(self) -> Box<dyn Slot> {
        match self.module {
            Module::NoSteg => Box::new(NoSteg::new(self.short.then_some(SHORT))),
            Module::NoStegRr => Box::new(Asking::default()),
        }
    }

    pub(crate) fn server_slot(self) -> Box<dyn Slot> {
        match self.module {
            Module::NoSteg => Box::new(NoSteg::new(self.short.then_some(SHORT))),
            Module::NoStegRr => Box::new(Answering::default()),
        }
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Profile, ProfileError> {
        let found = PROFILES.iter().find(|(name, _)| *name == text);
        found.map(|(_, profile)| *profile).ok_or_else(|| ProfileError(text.to_owned()))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = PROFILES.iter().find(|(_, profile)| profile == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
        write!(f, "no profile is called '{}'; there are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for ProfileError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_refused_in_a_line() {
        for (name, profile) in PROFILES {
            assert_eq!(name.parse(), Ok(*profile));
            assert_eq!(profile.to_string(), *name);
        }
        let error = "nostag".parse::<Profile>().unwrap_err().to_string();
        assert!(error.contains("nostag") && error.contains("nosteg-rr"), "{error}");
    }
}
