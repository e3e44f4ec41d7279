//! Which kind of traffic, and how many connections.

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
    /// Hidden bytes as they are.
    NoSteg,
    /// The same, one request and one answer a connection.
    NoStegRr,
    /// Recorded shapes of connections.
    Embed,
    /// Requests and answers of HTTP/1.1, with bodies of this tier.
    Http(Tier),
}

/// A kind of traffic, and how connections are used: what both ends have to agree on.
///
/// A bridge line names it: `nosteg`, `nosteg-short`, `nosteg-rr`, `http-opaque`,
/// `http-opaque-short`, `http-text`, `http-text-short`, `http-image`, `http-site`,
/// `embed`.
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
    ("embed", Profile { module: Module::Embed, short: false }),
    ("http-opaque", Profile { module: Module::Http(Tier::Opaque), short: false }),
    ("http-opaque-short", Profile { module: Module::Http(Tier::Opaque), short: true }),
    ("http-image", Profile { module: Module::Http(Tier::Image), short: false }),
    ("http-site", Profile { module: Module::Http(Tier::Site), short: false }),
    ("http-text", Profile { module: Module::Http(Tier::Text), short: false }),
    ("http-text-short", Profile { module: Module::Http(Tier::Text), short: true }),
];
/// Bytes either way by a short connection.
const SHORT: usize = 12_000;
/// Room that an acknowledgement needs: more than the longest has.
const ACK_ROOM: usize = 1_100;

impl Profile {
    /// Connections that any of them has at a time, at a client or at a server.
    pub const MOST_CONNECTIONS: usize = crate::server::PLACES;

    /// Connections at a time, while there is something to carry.
    pub(crate) fn connections(self) -> usize {
        match (self.module, self.short) {
            (Module::NoSteg | Module::Http(_) | Module::Embed, false) => 6,
            (Module::NoSteg | Module::Http(_) | Module::Embed, true) => 24,
            (Module::NoStegRr, _) => 8,
        }
    }

    /// The same, while there is nothing.
    pub(crate) fn idle_connections(self) -> usize {
        match self.module {
            Module::NoSteg | Module::Http(_) => 2,
            Module::NoStegRr | Module::Embed => 1,
        }
    }

    /// Bytes that an answer brings, as long as none has come; `None` where answers are not all that
    /// a message may be.
    pub(crate) fn answer(self) -> Option<usize> {
        match (self.module, self.short) {
            (Module::Http(Tier::Opaque | Tier::Text), false) => Some(16 << 10),
            (Module::Http(Tier::Opaque | Tier::Text), true) => Some(8 << 10),
            // What a picture or an object carries no client knows.
            (Module::Http(Tier::Image | Tier::Site), _) => Some(1 << 10),
            _ => None,
        }
    }

    /// Requests that go ahead of what a server has told: short connections bring little each.
    pub(crate) fn ahead(self) -> usize {
        if self.short { 3 } else { 1 }
    }

    /// Whether a message has its price, so that there are to be few.
    pub(crate) fn gathers(self) -> bool {
        matches!(self.module, Module::Http(_))
    }

    /// Whether both ends may speak at any time.
    pub(crate) fn streams(self) -> bool {
        self.module == Module::NoSteg
    }

    /// Bytes of a chunk: what is sent again if a connection is lost, and what has to fit.
    pub(crate) fn chunk(self) -> usize {
        match (self.module, self.short) {
            (Module::NoSteg | Module::Http(_) | Module::Embed, false) => 4_096,
            (Module::NoSteg, true) => 3_900,
            (Module::Http(_) | Module::Embed, true) => 2_600,
            (Module::NoStegRr, _) => 1_200,
        }
    }

    /// Random bytes behind a handshake message: fewer than this.
    pub(crate) fn padding(self) -> u16 {
        match self.module {
            Module::NoSteg => 512,
            // With a HELLO, as many as a GET of a later exchange may have.
            Module::Http(_) => 48,
            Module::NoStegRr | Module::Embed => 1,
        }
    }

    /// Room that an acknowledgement takes at least: with less than the longest has, it tells less.
    pub(crate) fn ack_room(self) -> usize {
        let little = matches!(self.module, Module::Embed | Module::Http(Tier::Site));
        if little { 96 } else { ACK_ROOM }
    }

    /// How long an end is silent at most though the connection goes on, where the covers say so.
    pub(crate) fn pauses(self, covers: &Covers) -> Duration {
        match self.module {
            Module::Embed => covers.shapes.longest_pause(),
            _ => Duration::ZERO,
        }
    }

    /// Whether somebody who is no client of ours takes a server for a server of the web, and has to
    /// be answered by one.
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

    /// A client's connection that is to carry this; `draw` is random.
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
