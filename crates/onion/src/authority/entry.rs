//! A relay that an authority knows: its descriptor, once all that can be checked by itself is
//! checked, and how it answered.

use std::net::SocketAddr;

use super::flags::Merits;
use super::history::History;
use super::parsed::{self, ParsedDescriptor};
use super::probe_queue::Standing;
use super::refusal::Refusal;
use super::rules::Rules;
use crate::directory::civil::from_utc;
use crate::relay::is_public;
use crate::wire::netdoc::{Described, DocumentError, check_descriptor};
use crate::wire::text::signed_digest;

/// The longest upload: a descriptor and its extra-info document (C tor's figure for a descriptor is
/// 20,000).
pub const LONGEST_UPLOAD: usize = 96 << 10;
const LONGEST_DESCRIPTOR: usize = 20_000;
/// A descriptor is listed for so long after its publication (C tor's ROUTER_MAX_AGE_TO_PUBLISH),
/// seconds.
const MAX_AGE: u64 = 24 * 3600;
/// Clocks may differ by so much (ROUTER_ALLOW_SKEW), seconds.
const SKEW: u64 = 12 * 3600;
/// Later than this a descriptor is called stale, seconds.
const STALE: u64 = 18 * 3600;
/// A relay that is down is probed MORE_OFTEN times as often as one that runs. For one that never
/// answered, each of the first DOUBLED failures doubles the pause, up to a running relay's.
const MORE_OFTEN: u64 = 4;
const DOUBLED: u32 = 2;

/// One relay.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) text: String,
    pub(super) digest: [u8; 20],
    pub(super) described: Described,
    pub(super) said: ParsedDescriptor,
    /// The extra-info document and its digest.
    pub(super) extra: Option<(String, [u8; 20])>,
    pub(super) history: History,
    /// Its addresses, and when it last answered at each.
    pub(super) reach: Vec<(SocketAddr, Option<u64>)>,
    /// When it was probed last, and how often since it was new.
    pub(super) probed: Option<u64>,
    pub(super) probes: u32,
    /// Its turn among those that are new.
    pub(super) turn: u64,
    /// Kilobytes a second, and whether somebody measured them.
    pub(super) weight: (u32, bool),
    /// Since when its descriptor is not of these days, in seconds of a clock that nobody sets.
    pub(super) dated: Option<u64>,
}

/// How relays are probed, and what counts as an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Seconds for which an answer holds.
    pub(super) holds: u64,
    /// Seconds from one probe to the next.
    pub(super) every: u64,
    /// Whether addresses of IPv6 count.
    pub(super) ipv6: bool,
}

impl Entry {
    /// Of what a relay published now.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn published(now: u64, text: &str, rules: &Rules) -> Result<Entry, Refusal> {
        let entry = Entry::checked(now, text, rules)?;
        if entry.is_current(now) { Ok(entry) } else { Err(Refusal::Time) }
    }

    /// Of what a relay published some time ago: it need not be of these days.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn kept(text: &str, rules: &Rules) -> Result<Entry, Refusal> {
        let mut lines = text.lines();
        let then = lines.find_map(|line| from_utc(line.strip_prefix("published ")?));
        Entry::checked(then.ok_or(Refusal::Beside)?, text, rules)
    }

    fn checked(then: u64, text: &str, rules: &Rules) -> Result<Entry, Refusal> {
        let (descriptor, extra) = divided(text)?;
        let described = check_descriptor(descriptor, then).map_err(Refusal::Document)?;
        if rules.banned.contains(&described.rsa_identity) {
            return Err(Refusal::Banned);
        }
        let private = described.addresses.iter().map(SocketAddr::ip).find(|ip| !is_public(*ip));
        if let Some(address) = private.filter(|_| !rules.allow_private) {
            return Err(Refusal::Private(address));
        }
        let said = parsed::read(descriptor);
        let extra = extra.map(|text| (text.to_owned(), signed_digest(text)));
        let fits =
            |(text, _): &(String, [u8; 20])| said.extra.is_some_and(|digests| digests.fit(text));
        if !extra.as_ref().is_none_or(fits) {
            return Err(Refusal::Beside);
        }
        Ok(Entry {
            text: descriptor.to_owned(),
            digest: signed_digest(descriptor),
            reach: described.addresses.iter().map(|address| (*address, None)).collect(),
            weight: (said.bandwidth, false),
            described,
            said,
            extra,
            history: History::default(),
            probed: None,
            probes: 0,
            turn: 0,
            dated: None,
        })
    }

    /// Whether its descriptor is neither too old to be listed nor of the future.
    pub(super) fn is_current(&self, now: u64) -> bool {
        let published = self.described.published;
        published + MAX_AGE >= now && !self.is_of_the_future(now)
    }

    /// Whether its descriptor is of a time that clocks have not come to yet.
    pub(super) fn is_of_the_future(&self, now: u64) -> bool {
        self.described.published > now + SKEW
    }

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
            onion_services: self.said.hsdir && self.said.directory,
            stale: self.described.published + STALE < now,
            authority,
        }
    }

    /// Where it stands in the order of probes.
    pub(super) fn standing(&self, now: u64, reach: Reach) -> Standing {
        match (self.is_up(now, reach), self.is_known(), self.probed) {
            (true, ..) => Standing::Up,
            (_, true, _) => Standing::Away,
            (.., None) => Standing::New,
            (.., Some(_)) => Standing::Silent,
        }
    }

    /// When it is to be probed next: at once if its last probe was ahead of our clock; among new
    /// ones in its turn.
    pub(super) fn due(&self, now: u64, reach: Reach) -> u64 {
        let short = (reach.every / MORE_OFTEN).max(1);
        let pause = match self.standing(now, reach) {
            Standing::Up => reach.every.max(1),
            Standing::Away => short,
            Standing::New => return self.turn,
            Standing::Silent => short << self.probes.saturating_sub(1).min(DOUBLED),
        };
        self.probed.filter(|at| *at <= now).map_or(now, |at| at + pause)
    }

    /// Whether it has ever answered.
    pub(super) fn is_known(&self) -> bool {
        self.history.was_up()
    }

    /// The addresses that count.
    pub(super) fn counted(&self, reach: Reach) -> impl Iterator<Item = &(SocketAddr, Option<u64>)> {
        self.reach.iter().filter(move |(address, _)| reach.ipv6 || address.is_ipv4())
    }

    /// The same, by themselves.
    pub(super) fn addresses(&self, reach: Reach) -> Vec<SocketAddr> {
        self.counted(reach).map(|(address, _)| *address).collect()
    }

    /// When it last answered at all addresses that count.
    pub(super) fn answered(&self, reach: Reach) -> Option<u64> {
        // None is less than any time.
        self.counted(reach).map(|(_, answered)| *answered).min().flatten()
    }

    pub(super) fn is_up(&self, now: u64, reach: Reach) -> bool {
        self.answered(reach).is_some_and(|at| at <= now && now - at <= reach.holds)
    }

    /// Takes up what was known of the relay.
    pub(super) fn take_up(&mut self, history: History, answered: Option<u64>) {
        self.history = history;
        self.reach.iter_mut().for_each(|(_, at)| *at = answered);
    }

    /// Takes up what was known of it by its descriptor before.
    pub(super) fn follow(&mut self, before: &Entry) {
        (self.history, self.turn) = (before.history.clone(), before.turn);
        // At another address it has yet to answer.
        for (address, answered) in &mut self.reach {
            let known = before.reach.iter().find(|(known, _)| known == address);
            *answered = known.and_then(|(_, answered)| *answered);
        }
        if before.described.addresses == self.described.addresses {
            (self.probed, self.probes) = (before.probed, before.probes);
        }
    }

    /// What was `by` seconds ago still is.
    pub(super) fn shift(&mut self, by: i64) {
        self.history.shift(by);
        let answers = self.reach.iter_mut().flat_map(|(_, answered)| answered);
        answers.for_each(|time| *time = time.saturating_add_signed(by));
        self.probed = None;
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
