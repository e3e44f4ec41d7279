//! The relays that an authority knows: whose descriptors it took, and how they answered.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::flags::Merits;
use super::history::History;
use super::pins::Pins;
use super::said::{self, Said};
use crate::directory::descriptor::hex;
use crate::relay::is_public;
use crate::wire::extend::Target;
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
/// A relay that does not run is probed so many times as often.
const MORE_OFTEN: u64 = 4;
/// Kilobytes a second that a relay counts for at most that nobody measured, where others were (C tor's maxunmeasuredbw).
const UNMEASURED: u32 = 20;

/// What became of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is listed from now on: the RSA identity of the relay.
    New([u8; 20]),
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

impl Refusal {
    /// Whether the relay need not mind: what it published is not newer than what is known.
    #[must_use]
    pub fn is_no_news(&self) -> bool {
        matches!(self, Refusal::Older)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Document(error) => write!(out, "the descriptor is refused: {error}"),
            Refusal::Beside => out.write_str("there is more than a descriptor and its extra-info"),
            Refusal::Time => out.write_str("the descriptor is more than a day old or of the future: is the relay's clock right?"),
            Refusal::Older => out.write_str("a later descriptor is known"),
            Refusal::Identity => {
                out.write_str("its RSA identity or its Ed25519 identity is known with another one: keep both keys of a relay together")
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
    /// Its addresses, and when it last answered at each.
    pub(super) reach: Vec<(SocketAddr, Option<u64>)>,
    /// When it was probed last.
    probed: Option<u64>,
    /// Kilobytes a second, and whether somebody measured them.
    pub(super) weight: (u32, bool),
}

/// How relays are probed, and what counts as an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// Seconds for which an answer holds.
    pub(super) holds: u64,
    /// Seconds from one probe to the next.
    pub(super) every: u64,
    /// Whether addresses of IPv6 count.
    pub(super) ipv6: bool,
}

/// What is known of a relay besides its descriptor, and kept from one run to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// The Ed25519 identity that belongs to its RSA identity, for good.
    pub edwards: [u8; 32],
    /// How reliable it was.
    pub history: History,
    /// When it last answered at all its addresses, seconds since 1970.
    pub answered: Option<u64>,
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
    pins: Pins,
    /// Histories of relays without a descriptor, and when each last answered.
    gone: BTreeMap<[u8; 20], (History, Option<u64>)>,
    /// Kilobytes a second that somebody measured.
    measured: BTreeMap<[u8; 20], u32>,
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
        self.admit(&described)?;
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
        self.pins.pin(described.rsa_identity, described.ed_identity);
        self.put(Entry {
            text: descriptor.to_owned(),
            digest,
            reach: described.addresses.iter().map(|address| (*address, None)).collect(),
            weight: self.weight(&described.rsa_identity, said.bandwidth),
            described,
            said,
            extra,
            history: History::default(),
            probed: None,
        })
    }

    /// The relays that are to be probed now, but for `own`: one target for each address. They count as probed.
    pub(super) fn probes(&mut self, now: u64, own: &[u8; 20], reach: Reach) -> Vec<Target> {
        let mut targets = Vec::new();
        for (id, entry) in self.entries.iter_mut().filter(|(id, _)| *id != own) {
            let pause = match entry.is_up(now, reach) {
                true => reach.every,
                false => (reach.every / MORE_OFTEN).max(1),
            };
            if entry.probed.is_some_and(|at| at <= now && now - at < pause) {
                continue;
            }
            entry.probed = Some(now);
            let ed25519 = Some(entry.described.ed_identity);
            let counted = entry.counted(reach).map(|(address, _)| *address);
            targets.extend(counted.map(|address| Target {
                addresses: vec![address],
                rsa: *id,
                ed25519,
            }));
        }
        targets
    }

    /// A relay answered at one address under both its identities, or did not.
    pub(super) fn observe(&mut self, now: u64, target: &Target, answers: bool, reach: Reach) {
        let Some(entry) = self.entries.get_mut(&target.rsa) else { return };
        let probed =
            entry.reach.iter_mut().filter(|(address, _)| target.addresses.contains(address));
        if answers {
            probed.for_each(|(_, answered)| *answered = Some(now));
        }
        // One answer that is missing says little: a relay is down when none holds any more.
        let up = entry.is_up(now, reach);
        if up || !answers {
            entry.history.observe(now, up);
        }
    }

    /// This relay runs, as we know without asking.
    pub(super) fn is_here(&mut self, now: u64, id: &[u8; 20]) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.history.observe(now, true);
            entry.reach.iter_mut().for_each(|(_, answered)| *answered = Some(now));
        }
    }

    /// Forgets descriptors that are too old, and notes who is down.
    pub(super) fn expire(&mut self, now: u64, reach: Reach) {
        let old = |entry: &Entry| entry.described.published + MAX_AGE < now;
        for (id, mut entry) in self.entries.extract_if(.., |_, entry| old(entry)) {
            entry.history.observe(now, false);
            let answered = entry.answered(reach);
            self.gone.insert(id, (entry.history, answered));
        }
        for entry in self.entries.values_mut().filter(|entry| entry.history.is_up()) {
            let up = entry.is_up(now, reach);
            entry.history.observe(now, up);
        }
    }

    /// The machine's clock was set to another time: what was `by` seconds ago still is.
    pub(super) fn shift(&mut self, by: i64) {
        let moved = |time: &mut u64| *time = time.saturating_add_signed(by);
        for entry in self.entries.values_mut() {
            entry.history.shift(by);
            entry.reach.iter_mut().flat_map(|(_, answered)| answered).for_each(moved);
            entry.probed = None;
        }
        for (history, answered) in self.gone.values_mut() {
            history.shift(by);
            answered.iter_mut().for_each(moved);
        }
    }

    /// Takes what somebody measured, in kilobytes a second.
    pub(super) fn measure(&mut self, measured: BTreeMap<[u8; 20], u32>) {
        self.measured = measured;
        let ids: Vec<[u8; 20]> = self.entries.keys().copied().collect();
        for id in ids {
            let weight = self.entries.get(&id).map(|entry| self.weight(&id, entry.said.bandwidth));
            if let (Some(entry), Some(weight)) = (self.entries.get_mut(&id), weight) {
                entry.weight = weight;
            }
        }
    }

    /// How many relays run, `own` aside.
    pub(super) fn running(&self, now: u64, own: &[u8; 20], reach: Reach) -> usize {
        self.entries.iter().filter(|(id, entry)| *id != own && entry.is_up(now, reach)).count()
    }

    /// What is to be kept of all relays.
    pub(super) fn pasts(&self, reach: Reach) -> impl Iterator<Item = ([u8; 20], Past)> {
        self.pins.iter().map(move |(id, edwards)| {
            let gone = || self.gone.get(id).cloned().unwrap_or_default();
            let (history, answered) = match self.entries.get(id) {
                Some(entry) => (entry.history.clone(), entry.answered(reach)),
                None => gone(),
            };
            (*id, Past { edwards: *edwards, history, answered })
        })
    }

    /// Takes up what was kept of a relay; false if it contradicts what is known.
    pub(super) fn remember(&mut self, id: &[u8; 20], past: Past) -> bool {
        if !self.pins.pin(*id, past.edwards) {
            return false;
        }
        match self.entries.get_mut(id) {
            Some(entry) => entry.take_up(past.history, past.answered),
            None => drop(self.gone.insert(*id, (past.history, past.answered))),
        }
        true
    }

    /// All relays, in the order of their RSA identities.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8; 20], &Entry)> {
        self.entries.iter()
    }

    pub(super) fn get(&self, id: &[u8; 20]) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// Whether a relay of these identities may be taken.
    fn admit(&self, described: &Described) -> Result<(), Refusal> {
        let (rsa, edwards) = (described.rsa_identity, described.ed_identity);
        if !self.pins.agree(&rsa, &edwards) {
            return Err(Refusal::Identity);
        }
        let has_place = self.entries.len() < MOST || self.entries.contains_key(&rsa);
        if has_place && self.pins.has_place(&rsa) { Ok(()) } else { Err(Refusal::Full) }
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
            for (address, answered) in &mut entry.reach {
                let before = known.reach.iter().find(|(known, _)| known == address);
                *answered = before.and_then(|(_, answered)| *answered);
            }
            let same = known.described.addresses == entry.described.addresses;
            entry.probed = known.probed.filter(|_| same);
        } else if let Some((history, answered)) = self.gone.remove(&id) {
            entry.take_up(history, answered);
        }
        self.entries.insert(id, entry);
        Ok(Taken::New(id))
    }

    /// What a relay counts for that says to have so many kilobytes a second.
    fn weight(&self, id: &[u8; 20], said: u32) -> (u32, bool) {
        match self.measured.get(id) {
            Some(&measured) => (measured, true),
            None if self.measured.is_empty() => (said, false),
            None => (said.min(UNMEASURED), false),
        }
    }
}

impl Entry {
    /// What flags depend on.
    pub(super) fn merits(&self, now: u64, reach: Reach, authority: bool) -> Merits {
        let (uptime, known) = self.history.uptime(now);
        Merits {
            running: authority || (self.is_up(now, reach) && !self.said.hibernating),
            hibernating: self.said.hibernating,
            bandwidth: self.weight.0,
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

    /// The addresses that count.
    pub(super) fn counted(&self, reach: Reach) -> impl Iterator<Item = &(SocketAddr, Option<u64>)> {
        self.reach.iter().filter(move |(address, _)| reach.ipv6 || address.is_ipv4())
    }

    /// When it last answered at all addresses that count.
    fn answered(&self, reach: Reach) -> Option<u64> {
        // None is less than any time.
        self.counted(reach).map(|(_, answered)| *answered).min().flatten()
    }

    fn is_up(&self, now: u64, reach: Reach) -> bool {
        self.answered(reach).is_some_and(|at| at <= now && now - at <= reach.holds)
    }

    fn take_up(&mut self, history: History, answered: Option<u64>) {
        self.history = history;
        self.reach.iter_mut().for_each(|(_, at)| *at = answered);
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
