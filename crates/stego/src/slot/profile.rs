//! Profiles: the kind of traffic, and the number of connections.

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
    /// As `NoSteg`, with one request and one answer per connection.
    NoStegRr,
    /// Recorded shapes of connections.
    Embed,
    /// Requests and answers of HTTP/1.1, with bodies of this tier.
    Http(Tier),
}

/// The kind of traffic, and the use of connections. Both ends have to have the same profile.
///
/// A bridge line names it: `nosteg`, `nosteg-short`, `nosteg-rr`, `http-opaque`,
/// `http-opaque-short`, `http-text`, `http-text-short`, `http-image`, `http-site`,
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

/// Every profile by its name.
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
/// Maximum bytes of a short connection in each direction.
const SHORT: usize = 12_000;
/// Room that an acknowledgement needs: more than the longest one has.
const ACK_ROOM: usize = 1_100;

impl Profile {
    /// Maximum number of connections at a time in any profile, at a client or at a server.
    pub const MOST_CONNECTIONS: usize = crate::server::PLACES;

    /// Number of connections at a time, while there is data to transfer.
    pub(crate) fn connections(self) -> usize {
        match (self.module, self.short) {
            (Module::NoSteg | Module::Http(_) | Module::Embed, false) => 6,
            (Module::NoSteg | Module::Http(_) | Module::Embed, true) => 24,
            (Module::NoStegRr, _) => 8,
        }
    }

    /// Number of connections at a time, while the link is idle.
    pub(crate) fn idle_connections(self) -> usize {
        match self.module {
            Module::NoSteg | Module::Http(_) => 2,
            Module::NoStegRr | Module::Embed => 1,
        }
    }

    /// Expected hidden bytes of an answer before the first one has arrived; `None` for modules that
    /// request without such an estimate.
    pub(crate) fn answer(self) -> Option<usize> {
        match (self.module, self.short) {
            (Module::Http(Tier::Opaque | Tier::Text), false) => Some(16 << 10),
            (Module::Http(Tier::Opaque | Tier::Text), true) => Some(8 << 10),
            // A client does not know the capacity of a picture or an object.
            (Module::Http(Tier::Image | Tier::Site), _) => Some(1 << 10),
            _ => None,
        }
    }

    /// Number of requests beyond those for the server's advertised backlog; a short connection
    /// carries little.
    pub(crate) fn ahead(self) -> usize {
        if self.short { 3 } else { 1 }
    }

    /// Whether messages are costly and thus should be few.
    pub(crate) fn gathers(self) -> bool {
        matches!(self.module, Module::Http(_))
    }

    /// Whether both ends may send at any time.
    pub(crate) fn streams(self) -> bool {
        self.module == Module::NoSteg
    }

    /// Bytes of a chunk: the unit of retransmission, which has to fit into a message.
    pub(crate) fn chunk(self) -> usize {
        match (self.module, self.short) {
            (Module::NoSteg | Module::Http(_) | Module::Embed, false) => 4_096,
            (Module::NoSteg, true) => 3_900,
            (Module::Http(_) | Module::Embed, true) => 2_600,
            (Module::NoStegRr, _) => 1_200,
        }
    }

    /// Bound of the number of random bytes after a handshake message, exclusive.
    pub(crate) fn padding(self) -> u16 {
        match self.module {
            Module::NoSteg => 512,
            // A HELLO with this padding is at most as long as a GET of a later exchange may be.
            Module::Http(_) => 48,
            Module::NoStegRr | Module::Embed => 1,
        }
    }

    /// Minimum room for an acknowledgement. With less than the longest one needs, it has fewer
    /// entries.
    pub(crate) fn ack_room(self) -> usize {
        let little = matches!(self.module, Module::Embed | Module::Http(Tier::Site));
        if little { 96 } else { ACK_ROOM }
    }

    /// Maximum time that an end is silent although the connection works, for covers with such
    /// pauses.
    pub(crate) fn pauses(self, covers: &Covers) -> Duration {
        match self.module {
            Module::Embed => covers.shapes.longest_pause(),
            _ => Duration::ZERO,
        }
    }

    /// Whether strangers take a server for a web server, so that a web server has to answer them.
    #[must_use]
    pub fn wants_site(self) -> bool {
        matches!(self.module, Module::Http(_))
    }

    /// Whether a server needs pictures.
    #[must_use]
    pub fn wants_pictures(self) -> bool {
        self.module == Module::Http(Tier::Image)
    }

    /// Whether a server needs a site whose objects hide bytes.
    #[must_use]
    pub fn wants_objects(self) -> bool {
        self.module == Module::Http(Tier::Site)
    }

    /// Creates a client's connection for the load `wish`; `draw` is random.
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
