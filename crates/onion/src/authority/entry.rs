//! A relay that an authority knows: its verified descriptor, and its answers to probes.

use std::net::SocketAddr;

use super::flags::Merits;
use super::history::History;
use super::parsed::{self, ParsedDescriptor};
use super::probe_queue::ProbeState;
use super::refusal::Refusal;
use super::rules::Rules;
use crate::directory::civil::from_utc;
use crate::relay::is_public;
use crate::wire::netdoc::{Described, DocumentError, check_descriptor};
use crate::wire::text::signed_digest;

/// Maximum length in bytes of an upload: a descriptor and its extra-info document.
pub const LONGEST_UPLOAD: usize = 96 << 10;
/// Maximum length in bytes of a descriptor (C tor's limit).
const LONGEST_DESCRIPTOR: usize = 20_000;
/// Maximum age in seconds of a descriptor that the consensus lists (C tor's
/// `ROUTER_MAX_AGE_TO_PUBLISH`).
const MAX_AGE: u64 = 24 * 3600;
/// Clock skew allowed between a relay and the authority, in seconds (C tor's `ROUTER_ALLOW_SKEW`).
const SKEW: u64 = 12 * 3600;
/// Age in seconds after which a descriptor gets the flag `StaleDesc`.
const STALE: u64 = 18 * 3600;
/// Ratio of the probe rate of a relay that does not answer to the probe rate of a running relay.
const MORE_OFTEN: u64 = 4;
/// Number of times that the pause between probes doubles for a relay that has never answered. The
/// last pause is as long as the pause of a running relay.
const DOUBLED: u32 = 2;

/// A relay that the authority knows.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) text: String,
    pub(super) digest: [u8; 20],
    pub(super) described: Described,
    pub(super) parsed: ParsedDescriptor,
    /// The relay's extra-info document and its digest; `None` if there is none.
    pub(super) extra: Option<(String, [u8; 20])>,
    pub(super) history: History,
    /// The relay's addresses, with the time of the last answer at each address (`None` if there
    /// was none).
    pub(super) reach: Vec<(SocketAddr, Option<u64>)>,
    /// The time of the last probe; `None` if the relay was not probed yet.
    pub(super) probed: Option<u64>,
    /// The number of probes at the relay's present addresses.
    pub(super) probes: u32,
    /// The relay's place in the order in which new relays are probed (`SybilLimits::turn`).
    pub(super) turn: u64,
    /// The relay's bandwidth in kilobytes per second, and whether it was measured.
    pub(super) weight: (u32, bool),
    /// Time since which the descriptor has been outdated, in seconds of a monotonic clock. `None`
    /// if the descriptor is not outdated.
    pub(super) dated: Option<u64>,
}

/// Settings that decide when relays are probed, and how long a relay counts as running after an
/// answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReachSettings {
    /// Seconds after an answer during which the relay counts as running.
    pub(super) holds: u64,
    /// Seconds between two probes of a running relay.
    pub(super) every: u64,
    /// True if IPv6 addresses are probed.
    pub(super) ipv6: bool,
}

impl Entry {
    /// Checks a relay's upload `text` at the time `now`, in seconds since 1970.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the descriptor is invalid, outdated or not allowed by `rules`.
    pub(super) fn published(now: u64, text: &str, rules: &Rules) -> Result<Entry, Refusal> {
        let entry = Entry::checked(now, text, rules)?;
        if entry.is_current(now) { Ok(entry) } else { Err(Refusal::Time) }
    }

    /// Checks the stored upload `text`, which may be of any age.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the descriptor is invalid or not allowed by `rules`.
    pub(super) fn kept(text: &str, rules: &Rules) -> Result<Entry, Refusal> {
        let mut lines = text.lines();
        let then = lines.find_map(|line| from_utc(line.strip_prefix("published ")?));
        Entry::checked(then.ok_or(Refusal::ExtraText)?, text, rules)
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
        let parsed = parsed::read(descriptor);
        let extra = extra.map(|text| (text.to_owned(), signed_digest(text)));
        let fits =
            |(text, _): &(String, [u8; 20])| parsed.extra.is_some_and(|digests| digests.fit(text));
        if !extra.as_ref().is_none_or(fits) {
            return Err(Refusal::ExtraText);
        }
        Ok(Entry {
            text: descriptor.to_owned(),
            digest: signed_digest(descriptor),
            reach: described.addresses.iter().map(|address| (*address, None)).collect(),
            weight: (parsed.bandwidth, false),
            described,
            parsed,
            extra,
            history: History::default(),
            probed: None,
            probes: 0,
            turn: 0,
            dated: None,
        })
    }

    /// Returns true if the descriptor may be listed: it is not too old, and not from the future.
    pub(super) fn is_current(&self, now: u64) -> bool {
        let published = self.described.published;
        published + MAX_AGE >= now && !self.is_of_the_future(now)
    }

    /// Returns whether the descriptor's publication time is further in the future than `SKEW`
    /// allows.
    pub(super) fn is_of_the_future(&self, now: u64) -> bool {
        self.described.published > now + SKEW
    }

    /// Returns the properties on which the relay's flags depend.
    pub(super) fn merits(&self, now: u64, reach: ReachSettings, authority: bool) -> Merits {
        let (uptime, known) = self.history.uptime(now);
        Merits {
            running: authority || (self.is_up(now, reach) && !self.parsed.hibernating),
            hibernating: self.parsed.hibernating,
            bandwidth: self.weight.0,
            mtbf: self.history.mtbf(now),
            uptime,
            known,
            up_for: self.history.up_for(now),
            directory: self.parsed.directory || self.parsed.dir_port != 0,
            exits: self.parsed.exits,
            onion_services: self.parsed.hsdir && self.parsed.directory,
            stale: self.described.published + STALE < now,
            authority,
        }
    }

    /// Returns the state that determines the relay's place in the probe queue.
    pub(super) fn probe_state(&self, now: u64, reach: ReachSettings) -> ProbeState {
        match (self.is_up(now, reach), self.is_known(), self.probed) {
            (true, ..) => ProbeState::Up,
            (_, true, _) => ProbeState::Away,
            (.., None) => ProbeState::New,
            (.., Some(_)) => ProbeState::Silent,
        }
    }

    /// Returns the time of the next probe. If the last probe is in the future, because the clock
    /// was set back, the next one is due `now`. For a new relay, returns its `turn` instead of a
    /// time.
    pub(super) fn due(&self, now: u64, reach: ReachSettings) -> u64 {
        let short = (reach.every / MORE_OFTEN).max(1);
        let pause = match self.probe_state(now, reach) {
            ProbeState::Up => reach.every.max(1),
            ProbeState::Away => short,
            ProbeState::New => return self.turn,
            ProbeState::Silent => short << self.probes.saturating_sub(1).min(DOUBLED),
        };
        self.probed.filter(|at| *at <= now).map_or(now, |at| at + pause)
    }

    /// Returns whether the relay has ever answered a probe.
    pub(super) fn is_known(&self) -> bool {
        self.history.was_up()
    }

    /// Returns the addresses that are probed, each with the time of its last answer (`None` if
    /// there was none).
    pub(super) fn counted(
        &self,
        reach: ReachSettings,
    ) -> impl Iterator<Item = &(SocketAddr, Option<u64>)> {
        self.reach.iter().filter(move |(address, _)| reach.ipv6 || address.is_ipv4())
    }

    /// Returns the addresses that are probed.
    pub(super) fn addresses(&self, reach: ReachSettings) -> Vec<SocketAddr> {
        self.counted(reach).map(|(address, _)| *address).collect()
    }

    /// Returns the oldest of the times at which the relay last answered at each probed address.
    /// Returns `None` if there is an address at which it has never answered.
    pub(super) fn answered(&self, reach: ReachSettings) -> Option<u64> {
        // `None` counts as earlier than any time.
        self.counted(reach).map(|(_, answered)| *answered).min().flatten()
    }

    pub(super) fn is_up(&self, now: u64, reach: ReachSettings) -> bool {
        self.answered(reach).is_some_and(|at| at <= now && now - at <= reach.holds)
    }

    /// Restores the history and the time of the last answer, which were stored when the authority
    /// last stopped.
    pub(super) fn take_up(&mut self, history: History, answered: Option<u64>) {
        self.history = history;
        self.reach.iter_mut().for_each(|(_, at)| *at = answered);
    }

    /// Copies the relay's state from `before`, the entry with its previous descriptor.
    pub(super) fn follow(&mut self, before: &Entry) {
        (self.history, self.turn) = (before.history.clone(), before.turn);
        // At a new address, the relay must answer again.
        for (address, answered) in &mut self.reach {
            let known = before.reach.iter().find(|(known, _)| known == address);
            *answered = known.and_then(|(_, answered)| *answered);
        }
        if before.described.addresses == self.described.addresses {
            (self.probed, self.probes) = (before.probed, before.probes);
        }
    }

    /// Shifts all times by `by` seconds, because the machine's clock was changed by this amount,
    /// and makes a probe due.
    pub(super) fn shift(&mut self, by: i64) {
        self.history.shift(by);
        let answers = self.reach.iter_mut().flat_map(|(_, answered)| answered);
        answers.for_each(|time| *time = time.saturating_add_signed(by));
        self.probed = None;
    }
}

/// Splits an upload into the descriptor and the extra-info document that may follow it.
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
    if single { Ok((descriptor, extra)) } else { Err(Refusal::ExtraText) }
}
