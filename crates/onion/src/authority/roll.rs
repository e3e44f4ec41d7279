//! The relays that an authority knows: whose descriptors it took, and how they answered.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::flags::Merits;
use super::history::History;
use super::said::{self, Said};
use crate::directory::descriptor::hex;
use crate::relay::is_public;
use crate::wire::keys::sha1;
use crate::wire::netdoc::{Described, DocumentError, check_descriptor};

/// The longest upload: a descriptor and its extra-info document (C tor's figure for a descriptor is 20,000).
pub const LONGEST_UPLOAD: usize = 96 << 10;
const LONGEST_DESCRIPTOR: usize = 20_000;
/// A descriptor is listed for so long after its publication (C tor's ROUTER_MAX_AGE_TO_PUBLISH), seconds.
const MAX_AGE: u64 = 24 * 3600;
/// Clocks may differ by so much (ROUTER_ALLOW_SKEW), seconds.
const SKEW: u64 = 12 * 3600;
/// Later than this a descriptor is called stale, seconds.
const STALE: u64 = 18 * 3600;
/// Relays that are kept: beyond, none is taken that is not known.
const MOST: usize = 50_000;

/// What became of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is listed from now on.
    New,
    /// It was known.
    Known,
}

/// Why an upload is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no descriptor, or one whose signatures do not hold.
    Document(DocumentError),
    /// There is something else beside it than its extra-info document.
    Beside,
    /// It was published too long ago, or too far ahead.
    Time,
    /// A later one is known.
    Older,
    /// One of its two identities is known with another one.
    Identity,
    /// An address that is not of the public Internet.
    Private(IpAddr),
    /// The operator has banned the relay.
    Banned,
    /// There are too many relays.
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Document(error) => write!(out, "the descriptor is refused: {error}"),
            Refusal::Beside => out.write_str("there is more than a descriptor and its extra-info"),
            Refusal::Time => out.write_str("it is too old, or its clock is wrong"),
            Refusal::Older => out.write_str("a later descriptor is known"),
            Refusal::Identity => {
                out.write_str("its RSA identity or its Ed25519 identity is known with another one")
            }
            Refusal::Private(address) => write!(out, "{address} is a private address"),
            Refusal::Banned => out.write_str("the relay is banned here"),
            Refusal::Full => out.write_str("too many relays are known"),
        }
    }
}

/// One relay.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) text: String,
    pub(super) digest: [u8; 20],
    pub(super) described: Described,
    pub(super) said: Said,
    /// The extra-info document and its digest.
    pub(super) extra: Option<(String, [u8; 20])>,
    pub(super) history: History,
    /// When it last answered at all its addresses.
    pub(super) answered: Option<u64>,
}

/// What the operator decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether relays may have private addresses: in networks for tests.
    pub allow_private: bool,
    /// Relays that are not taken, by RSA identity.
    pub banned: Vec<[u8; 20]>,
}

/// All relays.
#[derive(Clone, Debug, Default)]
pub(super) struct Roll {
    entries: BTreeMap<[u8; 20], Entry>,
    /// Which RSA identity each Ed25519 identity came with, for good.
    pins: BTreeMap<[u8; 32], [u8; 20]>,
}

impl Roll {
    /// Takes a descriptor, and the extra-info document that may follow it.
    pub(super) fn upload(&mut self, now: u64, text: &str, rules: &Rules) -> Result<Taken, Refusal> {
        let (descriptor, extra) = divided(text)?;
        let described = check_descriptor(descriptor, now).map_err(Refusal::Document)?;
        if described.published + MAX_AGE < now || described.published > now + SKEW {
            return Err(Refusal::Time);
        }
        if rules.banned.contains(&described.rsa_identity) {
            return Err(Refusal::Banned);
        }
        let private = described.addresses.iter().map(SocketAddr::ip).find(|ip| !is_public(*ip));
        if let Some(address) = private.filter(|_| !rules.allow_private) {
            return Err(Refusal::Private(address));
        }
        self.pin(&described)?;
        let digest = sha1(signed_part(descriptor).as_bytes());
        let said = said::read(descriptor);
        let extra = extra.map(|text| (text.to_owned(), sha1(signed_part(text).as_bytes())));
        let fits = |extra: &Option<(String, [u8; 20])>| match extra {
            Some((_, digest)) => said.extra.as_deref() == Some(&hex(digest)[..]),
            None => true,
        };
        if !fits(&extra) {
            return Err(Refusal::Beside);
        }
        self.put(Entry {
            text: descriptor.to_owned(),
            digest,
            described,
            said,
            extra,
            history: History::default(),
            answered: None,
        })
    }

    /// A relay answered at all its addresses, or did not.
    pub(super) fn observe(&mut self, now: u64, id: &[u8; 20], answers: bool) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        if answers {
            entry.answered = Some(now);
        }
        entry.history.observe(now, answers);
    }

    /// Forgets descriptors that are too old.
    pub(super) fn expire(&mut self, now: u64) {
        self.entries.retain(|_, entry| entry.described.published + MAX_AGE >= now);
    }

    /// Takes up what was kept of a relay's past.
    pub(super) fn remember(&mut self, id: &[u8; 20], history: History) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.history = history;
        }
    }

    /// All relays, in the order of their RSA identities.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8; 20], &Entry)> {
        self.entries.iter()
    }

    pub(super) fn get(&self, id: &[u8; 20]) -> Option<&Entry> {
        self.entries.get(id)
    }

    fn pin(&mut self, described: &Described) -> Result<(), Refusal> {
        let (rsa, edwards) = (described.rsa_identity, described.ed_identity);
        let other_rsa = self.pins.get(&edwards).is_some_and(|known| *known != rsa);
        let known = self.entries.get(&rsa).map(|entry| entry.described.ed_identity);
        if other_rsa || known.is_some_and(|known| known != edwards) {
            return Err(Refusal::Identity);
        }
        if self.entries.len() >= MOST && known.is_none() {
            return Err(Refusal::Full);
        }
        self.pins.insert(edwards, rsa);
        Ok(())
    }

    fn put(&mut self, mut entry: Entry) -> Result<Taken, Refusal> {
        let id = entry.described.rsa_identity;
        if let Some(known) = self.entries.get(&id) {
            if known.digest == entry.digest {
                return Ok(Taken::Known);
            }
            if known.described.published >= entry.described.published {
                return Err(Refusal::Older);
            }
            entry.history = known.history.clone();
            // At another address it has yet to answer.
            let same = known.described.addresses == entry.described.addresses;
            entry.answered = known.answered.filter(|_| same);
        }
        self.entries.insert(id, entry);
        Ok(Taken::New)
    }
}

impl Entry {
    /// What flags depend on. `running_for`: seconds for which an answer holds.
    pub(super) fn merits(&self, now: u64, running_for: u64, authority: bool) -> Merits {
        let (uptime, known) = self.history.uptime(now);
        let answered = self.answered.is_some_and(|at| at <= now && now - at <= running_for);
        Merits {
            running: authority || (answered && !self.said.hibernating),
            hibernating: self.said.hibernating,
            bandwidth: self.said.bandwidth,
            mtbf: self.history.mtbf(now),
            uptime,
            known,
            up_for: self.history.up_for(now),
            directory: self.said.directory || self.said.dir_port != 0,
            exits: self.said.exits,
            onion_services: self.said.protocols.as_ref().is_some_and(|all| all.contains("HSDir=")),
            stale: self.described.published + STALE < now,
            authority,
        }
    }
}

/// A descriptor, and what follows it.
fn divided(text: &str) -> Result<(&str, Option<&str>), Refusal> {
    let too_long = |length| Refusal::Document(DocumentError::TooLong(length));
    if text.len() > LONGEST_UPLOAD {
        return Err(too_long(text.len()));
    }
    let (descriptor, extra) = match text.find("\nextra-info ") {
        Some(place) => (&text[..=place], Some(&text[place + 1..])),
        None => (text, None),
    };
    if descriptor.len() > LONGEST_DESCRIPTOR {
        return Err(too_long(descriptor.len()));
    }
    let one = |text: &str, keyword: &str| {
        text.lines().filter(|line| line.starts_with(keyword)).count() == 1
    };
    let single = one(descriptor, "router ") && extra.is_none_or(|extra| one(extra, "extra-info "));
    if single { Ok((descriptor, extra)) } else { Err(Refusal::Beside) }
}

/// What a document's digest is over: all but the RSA signature itself (dir-spec, "router-signature").
fn signed_part(text: &str) -> &str {
    const MARK: &str = "\nrouter-signature\n";
    text.find(MARK).map_or(text, |place| &text[..place + MARK.len()])
}
