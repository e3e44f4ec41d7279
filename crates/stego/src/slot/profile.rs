//! Profiles, which determine the kind of traffic and the number of connections.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::embed;
use super::http::{ClientSlot as HttpClientSlot, ServerSlot as HttpServerSlot, Tier};
use super::nosteg::NoSteg;
use super::rr::{ClientSlot, ServerSlot};
use super::{Covers, Scene, Slot, Wish};

/// A kind of cover traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// Hidden bytes without a cover.
    NoSteg,
    /// Hidden bytes without a cover, with one request and one answer per connection.
    NoStegRr,
    /// Traffic in recorded shapes of connections.
    Embed,
    /// Requests and answers of HTTP/1.1, with bodies of this tier.
    Http(Tier),
}

/// A profile: the kind of traffic, and the use of connections. Both ends must have the same
/// profile.
///
/// A bridge line contains the name of a profile: `nosteg`, `nosteg-short`, `nosteg-rr`,
/// `http-opaque`, `http-opaque-short`, `http-text`, `http-text-short`, `http-image`, `http-site`,
/// `embed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The kind of traffic.
    pub module: Module,
    /// Whether connections are many and short: at most 12,000 bytes in each direction, below the
    /// volume at which some networks freeze a connection. Otherwise they are few and persistent.
    pub short: bool,
}

/// Error: a text does not name a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError(String);

/// All profiles, with their names.
const PROFILES: &[(&str, Profile)] = &[
    ("nosteg", Profile { module: Module::NoSteg, short: false }),
    ("nosteg-short", Profile { module: Module::NoSteg, short: true }),
    ("nosteg-rr", Profile { module: Module::NoStegRr, short: false }),
    ("embed", Profile { module: Module::Embed, short: false }),
    ("http-opaque", Profile { module: Module::Http(Tier::Opaque), short: false }),
    ("http-opaque-short", Profile { module: Module::Http(Tier::Opaque), short: true }),
    ("http-image", Profile { module: Module::Http(Tier::Image), short: false }),
    ("http-site", Profile { module: Module::Http(Tier::Site), short: false }),
    ("http-text", Profile { module: Module::Http(Tier::Text), short: false }),
    ("http-text-short", Profile { module: Module::Http(Tier::Text), short: true }),
];
/// Maximum bytes that a short connection carries in each direction.
const SHORT: usize = 12_000;
/// Room that an acknowledgement needs, in bytes: more than the length of the longest one.
const ACK_ROOM: usize = 1_100;

impl Profile {
    /// Maximum number of simultaneous connections in any profile, for one link.
    pub const MOST_CONNECTIONS: usize = crate::server::PLACES;

    /// Returns the number of simultaneous connections while there are data to transfer.
    pub(crate) fn connections(self) -> usize {
        match (self.module, self.short) {
            (Module::NoSteg | Module::Http(_) | Module::Embed, false) => 6,
            (Module::NoSteg | Module::Http(_) | Module::Embed, true) => 24,
            (Module::NoStegRr, _) => 8,
        }
    }

    /// Returns the number of simultaneous connections while the link is idle.
    pub(crate) fn idle_connections(self) -> usize {
        match self.module {
            Module::NoSteg | Module::Http(_) => 2,
            Module::NoStegRr | Module::Embed => 1,
        }
    }

    /// Returns the expected number of hidden bytes in an answer, before the first answer has
    /// arrived. Returns `None` for modules that send requests without such an estimate.
    pub(crate) fn answer(self) -> Option<usize> {
        match (self.module, self.short) {
            (Module::Http(Tier::Opaque | Tier::Text), false) => Some(16 << 10),
            (Module::Http(Tier::Opaque | Tier::Text), true) => Some(8 << 10),
            // A client does not know the capacity of a picture or an object.
            (Module::Http(Tier::Image | Tier::Site), _) => Some(1 << 10),
            _ => None,
        }
    }

    /// Returns the number of requests to send in addition to those for the server's advertised
    /// backlog. It is larger for short connections, as each carries little.
    pub(crate) fn ahead(self) -> usize {
        if self.short { 3 } else { 1 }
    }

    /// Returns whether messages are costly and should therefore be few.
    pub(crate) fn gathers(self) -> bool {
        matches!(self.module, Module::Http(_))
    }

    /// Returns whether both ends may send at any time.
    pub(crate) fn streams(self) -> bool {
        self.module == Module::NoSteg
    }

    /// Returns the maximum bytes of a chunk, the unit of retransmission, which has to fit into a
    /// message.
    pub(crate) fn chunk(self) -> usize {
        match (self.module, self.short) {
            (Module::NoSteg | Module::Http(_) | Module::Embed, false) => 4_096,
            (Module::NoSteg, true) => 3_900,
            (Module::Http(_) | Module::Embed, true) => 2_600,
            (Module::NoStegRr, _) => 1_200,
        }
    }

    /// Returns the exclusive upper bound of the number of random bytes after a handshake message.
    pub(crate) fn padding(self) -> u16 {
        match self.module {
            Module::NoSteg => 512,
            // A HELLO with this padding is at most as long as a GET of a later exchange may be.
            Module::Http(_) => 48,
            Module::NoStegRr | Module::Embed => 1,
        }
    }

    /// Returns the minimum room for an acknowledgement. If this is less than the longest one
    /// needs, acknowledgements have fewer entries.
    pub(crate) fn ack_room(self) -> usize {
        let little = matches!(self.module, Module::Embed | Module::Http(Tier::Site));
        if little { 96 } else { ACK_ROOM }
    }

    /// Returns the maximum time for which an end is silent although the connection works: zero for
    /// covers without pauses.
    pub(crate) fn pauses(self, covers: &Covers) -> Duration {
        match self.module {
            Module::Embed => covers.shapes.longest_pause(),
            _ => Duration::ZERO,
        }
    }

    /// Returns whether a server poses as a web server, so that it needs one to answer strangers.
    #[must_use]
    pub fn wants_site(self) -> bool {
        matches!(self.module, Module::Http(_))
    }

    /// Returns whether a server needs pictures.
    #[must_use]
    pub fn wants_pictures(self) -> bool {
        self.module == Module::Http(Tier::Image)
    }

    /// Returns whether a server needs a site whose objects hide bytes.
    #[must_use]
    pub fn wants_objects(self) -> bool {
        self.module == Module::Http(Tier::Site)
    }

    /// Creates the client's end of a connection for the expected load `wish`. `draw` is a random
    /// number.
    pub(crate) fn client_slot(self, scene: &Arc<Scene>, wish: Wish, draw: u16) -> Box<dyn Slot> {
        let most = self.short.then_some(SHORT);
        match self.module {
            Module::NoSteg => Box::new(NoSteg::new(most)),
            Module::NoStegRr => Box::new(ClientSlot::default()),
            Module::Embed => Box::new(embed::ClientSlot::new(Arc::clone(scene), wish, draw)),
            Module::Http(tier) => Box::new(HttpClientSlot::new(Arc::clone(scene), tier, most)),
        }
    }

    pub(crate) fn server_slot(self, scene: &Arc<Scene>) -> Box<dyn Slot> {
        let most = self.short.then_some(SHORT);
        match self.module {
            Module::NoSteg => Box::new(NoSteg::new(most)),
            Module::NoStegRr => Box::new(ServerSlot::default()),
            Module::Embed => Box::new(embed::ServerSlot::new(Arc::clone(scene))),
            Module::Http(tier) => Box::new(HttpServerSlot::new(Arc::clone(scene), tier, most)),
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
        write!(f, "there is no profile '{}'; choose one of {}", self.0, names.join(", "))
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
