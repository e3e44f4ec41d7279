//! Profiles, and the table of their names. A profile determines the kind of traffic that hides the
//! data, and the number of connections.
//!
//! To add a profile, write the file of its cover (the traffic that hides the data) with its
//! [`Family`]. Then declare the file in `slot/mod.rs`, and add the family to [`FAMILIES`]. The
//! profile then appears in the help of `anabranch pt server` and in error messages. Bridge lines
//! can name it, and the tests of all profiles include it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::family::Family;
use super::{ClientEnd, LoadHint, ServerEnd, SharedContext, embed, http, nosteg, rr};

/// A profile: the protocol that the traffic imitates, and the number and lifetime of the
/// connections. The client and the server must use the same profile. [`FAMILIES`] has all
/// profiles. A bridge line contains the name of one of them.
#[derive(Clone, Copy)]
pub struct Profile(&'static Family);

/// Error: a text does not name a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError(String);

/// All profiles, in the order in which lists show them to users.
pub const FAMILIES: &[Family] = &[
    nosteg::FAMILY,
    nosteg::SHORT,
    rr::FAMILY,
    embed::FAMILY,
    http::OPAQUE,
    http::OPAQUE_SHORT,
    http::IMAGE,
    http::SITE,
    http::TEXT,
    http::TEXT_SHORT,
];

impl Profile {
    /// Maximum number of simultaneous connections in any profile, for one link.
    pub const MOST_CONNECTIONS: usize = crate::server::PATHS;

    /// Returns all profiles.
    pub fn all() -> impl Iterator<Item = Profile> {
        FAMILIES.iter().map(Profile)
    }

    /// Returns the profile's entry in [`FAMILIES`].
    #[must_use]
    pub fn family(self) -> &'static Family {
        self.0
    }

    pub(crate) fn client_slot(
        self,
        context: &Arc<SharedContext>,
        hint: LoadHint,
        draw: u16,
    ) -> Box<dyn ClientEnd> {
        (self.0.client)(self.0, context, hint, draw)
    }

    pub(crate) fn server_slot(self, context: &Arc<SharedContext>) -> Box<dyn ServerEnd> {
        (self.0.server)(self.0, context)
    }
}

impl PartialEq for Profile {
    fn eq(&self, other: &Profile) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Profile {}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Profile({self})")
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Profile, ProfileError> {
        let found = Profile::all().find(|profile| profile.0.name == text);
        found.ok_or_else(|| ProfileError(text.to_owned()))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        write!(f, "there is no profile '{}'; choose one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for ProfileError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_refused_in_a_line() {
        for profile in Profile::all() {
            let name = profile.family().name;
            assert_eq!(name.parse(), Ok(profile));
            assert_eq!(profile.to_string(), name);
            assert_eq!(Profile::all().filter(|other| *other == profile).count(), 1, "{name}");
        }
        let error = "nostag".parse::<Profile>().unwrap_err().to_string();
        assert!(error.contains("nostag") && error.contains("nosteg-rr"), "{error}");
    }

    #[test]
    fn no_profile_has_more_connections_than_a_link_has_paths() {
        for family in FAMILIES {
            assert!(family.connections <= Profile::MOST_CONNECTIONS, "{}", family.name);
            assert!(family.idle_connections <= family.connections, "{}", family.name);
        }
    }

    #[test]
    fn the_guide_lists_each_profile_with_its_connections() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/camouflage.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let section = guide.split_once("\n## Profiles\n").unwrap().1;
        let section = section.split_once("\n## ").unwrap().0;
        let rows = section.lines().filter_map(|row| row.strip_prefix("| `")).skip(1);
        let mut written: Vec<(&str, String)> = rows
            .map(|row| (row.split_once('`').unwrap().0, row.trim_end_matches(" |")))
            .map(|(name, row)| (name, row.rsplit(" | ").next().unwrap().to_owned()))
            .collect();
        let connections = |family: &Family| match family.max_bytes {
            None => family.connections.to_string(),
            Some(_) => format!("up to {} short ones", family.connections),
        };
        let mut known: Vec<(&str, String)> =
            FAMILIES.iter().map(|family| (family.name, connections(family))).collect();
        written.sort();
        known.sort();
        assert_eq!(written, known);
    }
}
