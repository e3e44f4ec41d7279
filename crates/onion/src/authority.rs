//! A directory authority as a state machine without I/O (dir-spec 3). It accepts descriptors and
//! the results of reachability tests, and produces signed documents.
//!
//! It is the only authority of its network, so it needs no votes. It generates the consensus and
//! the microdescriptors directly from the descriptors that relays [upload](Authority::upload). The
//! state machine has no clock and opens no connections. The process that runs it passes the time,
//! probes relays ([`Authority::probes`]) and serves the [documents](Authority::documents) to
//! clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use crate::directory::civil::from_utc;
use crate::wire::dirkeys::{AuthorityKeys, SignatureError};
use crate::wire::extend::Target;
use crate::wire::keys::sha256;
use crate::wire::netdoc::parse_microdescs;
use documents::{ConsensusEntry, Flavour, microdescriptor, unsigned};
use entry::ReachSettings;
use flags::Thresholds;
use reachability::Probe;
use routerlist::RouterList;
use shared::SharedRandom;
use sybil::Origin;

pub use documents::Times;
pub use entry::LONGEST_UPLOAD;
pub use flags::{Flags, Judgement};
pub use history::{Fields, History};
pub use probe_queue::Room;
pub use refusal::Refusal;
pub use routerlist::{StoredRelay, UploadOutcome};
pub use rules::Rules;

mod documents;
mod entry;
mod flags;
mod history;
pub mod measured;
mod parsed;
mod pins;
mod probe_queue;
pub mod reachability;
mod refusal;
mod routerlist;
mod rules;
mod shared;
mod summary;
mod sybil;
mod weights;

/// Facts about the authority, as the consensus contains them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The authority's name.
    pub nickname: String,
    /// The authority's identity (`v3ident`).
    pub identity: [u8; 20],
    /// The RSA identity of the relay that runs in the same process.
    pub relay: [u8; 20],
    /// The authority's IPv4 address.
    pub address: Ipv4Addr,
    /// The TCP port for unencrypted directory requests.
    pub dir_port: u16,
    /// The OR port.
    pub or_port: u16,
    /// The operator's contact information; one line.
    pub contact: String,
}

/// An authority's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Seconds between two consensuses.
    pub interval: u64,
    /// Number of intervals for which a consensus is valid (C tor: 3).
    pub valid_intervals: u64,
    /// Condition that must hold before the network's first consensus is made.
    pub first: First,
    /// Seconds for which a relay counts as running after an answer to a probe (C tor: 45 minutes).
    pub running_for: u64,
    /// Seconds between two probes of a running relay (C tor: 1280).
    pub probe_every: u64,
    /// True if this host can reach IPv6 addresses. The IPv6 addresses of relays are then probed
    /// and listed.
    pub ipv6: bool,
    /// Settings for assigning the consensus flags (`Guard`, `Fast`, `HSDir`, ...) to relays.
    pub judgement: Judgement,
    /// Rules for accepting relays.
    pub rules: Rules,
    /// The network's parameters (param-spec).
    pub params: BTreeMap<String, i32>,
    /// Bandwidth weights of relays in kilobytes per second, by RSA identity.
    /// [`Authority::measure`] replaces them.
    pub measured: BTreeMap<[u8; 20], u32>,
}

/// Condition for making the first consensus: enough relays are running, or the maximum wait has
/// passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct First {
    /// Number of relays that must be running, without the authority itself.
    pub relays: usize,
    /// Maximum time to wait until `relays` relays are running, in seconds. The consensus is then
    /// made with fewer relays.
    pub seconds: u64,
}

impl Default for Settings {
    /// Returns the settings of the public network.
    fn default() -> Settings {
        Settings {
            interval: 3600,
            valid_intervals: 3,
            first: First::default(),
            running_for: 45 * 60,
            probe_every: 1280,
            ipv6: false,
            judgement: Judgement::default(),
            rules: Rules::default(),
            params: BTreeMap::new(),
            measured: BTreeMap::new(),
        }
    }
}

/// The documents that clients request from an authority.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    /// The times of the consensus; `None` before the first one.
    pub times: Option<Times>,
    /// The consensus of the flavour `ns`.
    pub ns: String,
    /// The consensus of the flavour `microdesc`.
    pub microdesc: String,
    /// Microdescriptors by SHA-256 digest, each with the time until which it is kept: the time at
    /// which the last consensus that lists it expires.
    pub microdescs: BTreeMap<[u8; 32], (String, u64)>,
}

/// A directory authority.
#[derive(Debug)]
pub struct Authority {
    about: About,
    settings: Settings,
    keys: AuthorityKeys,
    routerlist: RouterList,
    documents: Documents,
    shared: Option<SharedRandom>,
    /// Random bytes for the next shared random value; `None` until the caller provides them.
    random: Option<[u8; 32]>,
    /// The start of the wait for the first consensus, in seconds since 1970; `None` before the
    /// wait begins.
    since: Option<u64>,
    /// True if this process has made the present consensus; false if an earlier process made it.
    has_published: bool,
}

impl Authority {
    /// Creates an authority that knows no relays.
    #[must_use]
    pub fn new(about: About, settings: Settings, keys: AuthorityKeys) -> Authority {
        let mut routerlist = RouterList::new(settings.rules.clone(), settings.reach());
        routerlist.measure(settings.measured.clone());
        let (documents, shared, random) = (Documents::default(), None, None);
        Authority {
            about,
            settings,
            keys,
            routerlist,
            documents,
            shared,
            random,
            since: None,
            has_published: false,
        }
    }

    /// Accepts an upload of a relay: a descriptor, optionally followed by its extra-info document.
    /// `from` is the uploader's address, or `None` over a circuit. For each uploader's address,
    /// the number of relays that have never answered a probe is limited.
    ///
    /// # Errors
    /// Returns a [`Refusal`]; nothing is changed.
    pub fn upload(
        &mut self,
        unix_now: u64,
        text: &str,
        from: Option<IpAddr>,
    ) -> Result<UploadOutcome, Refusal> {
        self.routerlist.upload(unix_now, text, Origin::of(from))
    }

    /// Accepts a descriptor of any age that an earlier process stored.
    ///
    /// # Errors
    /// Returns a [`Refusal`]; nothing is changed.
    pub fn take_up(&mut self, unix_now: u64, text: &str) -> Result<UploadOutcome, Refusal> {
        self.routerlist.restore(unix_now, text)
    }

    /// Returns the relays to probe now, except the authority itself. Each address of a relay is a
    /// separate target. `room` is the number of probes that may start. The result may exceed it by
    /// one target, because a relay with two addresses is probed at both.
    pub fn probes(&mut self, unix_now: u64, room: Room) -> Vec<Probe> {
        self.routerlist.probes(unix_now, &self.about.relay, room)
    }

    /// Records the result of a probe. `answers` is true if the relay answered at the address of
    /// `target` and proved both its identities there.
    pub fn probed(&mut self, unix_now: u64, target: &Target, answers: bool) {
        self.routerlist.observe(unix_now, target, answers);
    }

    /// Removes descriptors that have been too old, or dated in the future, for a whole day.
    /// `steady` measures this day: it is the time of a monotonic clock in seconds.
    pub fn forget(&mut self, unix_now: u64, steady: u64) {
        self.routerlist.forget(unix_now, steady);
    }

    /// Returns the relays whose descriptors were removed since the last call: outdated and banned
    /// relays, and relays that were removed in favour of new ones.
    pub fn dropped(&mut self) -> BTreeSet<[u8; 20]> {
        self.routerlist.dropped()
    }

    /// Returns the number of relays with a descriptor.
    #[must_use]
    pub fn known(&self) -> usize {
        self.routerlist.known()
    }

    /// Returns the number of running relays, without the authority itself.
    #[must_use]
    pub fn running(&self, unix_now: u64) -> usize {
        self.routerlist.running(unix_now, &self.about.relay)
    }

    /// Returns the time at which the next consensus is due: a multiple of the interval since 1970.
    /// If the clock was set back to before the present consensus, the next one is due now.
    /// [`First`] is the condition for the first consensus.
    pub fn due(&mut self, unix_now: u64) -> u64 {
        match self.documents.times {
            Some(times) if unix_now < times.valid_after => unix_now,
            Some(times) if self.has_published => times.fresh_until,
            // The present consensus is from an earlier run. Relays must be probed again before it
            // is replaced.
            Some(times) => times.fresh_until.max(self.first_due(unix_now)),
            None => self.first_due(unix_now),
        }
    }

    /// Returns the time at which this process's first consensus is due ([`First`]).
    fn first_due(&mut self, unix_now: u64) -> u64 {
        let First { relays, seconds } = self.settings.first;
        let since = self.since.filter(|since| *since <= unix_now).unwrap_or(unix_now);
        self.since = Some(since);
        if self.running(unix_now) >= relays { unix_now } else { since + seconds }
    }

    /// Shifts all stored times by `by` seconds, after the machine's clock was set by this amount.
    /// Otherwise relays would count as not running during the skipped time.
    pub fn shift(&mut self, unix_now: u64, by: i64) {
        self.routerlist.shift(unix_now, by);
    }

    /// Replaces the measured bandwidths, in kilobytes per second.
    pub fn measure(&mut self, measured: BTreeMap<[u8; 20], u32>) {
        self.routerlist.measure(measured);
    }

    /// Sets the random bytes for the next shared random value. Until the first call, no new value
    /// is generated.
    pub fn set_entropy(&mut self, random: [u8; 32]) {
        self.random = Some(random);
    }

    /// Adopts new settings and new contact information from the next consensus on. Banned relays
    /// are removed at once. The interval, the times of probes, and the settings for IPv6 and
    /// private addresses keep their old values, because the stored records of relays depend on
    /// them.
    pub fn adopt(&mut self, unix_now: u64, settings: Settings, contact: String) {
        let allow_private = self.settings.rules.allow_private;
        let Settings { interval, running_for, probe_every, ipv6, .. } = self.settings;
        let rules = Rules { allow_private, ..settings.rules };
        self.routerlist.adopt(unix_now, rules.clone());
        self.settings = Settings { interval, running_for, probe_every, ipv6, rules, ..settings };
        self.about.contact = contact;
    }

    /// Replaces the signing keys.
    pub fn set_keys(&mut self, keys: AuthorityKeys) {
        self.keys = keys;
    }

    /// Makes and signs a consensus.
    ///
    /// # Errors
    /// Returns a [`SignatureError`] if the key cannot sign or has expired; the documents stay as
    /// they were.
    pub fn publish(&mut self, unix_now: u64) -> Result<&Documents, SignatureError> {
        self.keys.holds(unix_now)?;
        self.routerlist.mark_running(unix_now, &self.about.relay);
        self.routerlist.settle(unix_now);
        let times = self.times(unix_now);
        let relays = listed(&self.routerlist, unix_now, &self.settings, &self.about);
        let round = [times.valid_after, self.settings.interval];
        let shared =
            SharedRandom::of(self.shared.as_ref(), round, &self.about.identity, self.random.take());
        let make = |flavour| {
            let text =
                unsigned(flavour, times, &self.settings, &self.about, shared.as_ref(), &relays);
            let signature = self.keys.signature(&text, flavour == Flavour::Ns)?;
            Ok(text + &signature)
        };
        let (ns, microdesc) = (make(Flavour::Ns)?, make(Flavour::Microdesc)?);
        let own = relays.into_iter().map(|relay| relay.microdesc);
        let own: Vec<([u8; 32], String)> =
            own.map(|text| (sha256(text.as_bytes()), text)).collect();
        let until = times.valid_until;
        let microdescs = &mut self.documents.microdescs;
        microdescs.retain(|_, (_, needed)| *needed >= unix_now);
        microdescs.extend(own.into_iter().map(|(digest, text)| (digest, (text, until))));
        (self.documents.times, self.documents.ns, self.documents.microdesc) =
            (Some(times), ns, microdesc);
        self.has_published = true;
        self.shared = shared;
        Ok(&self.documents)
    }

    /// Restores the consensus of an earlier process with the same keys, in both flavours, and its
    /// microdescriptors.
    ///
    /// # Errors
    /// Returns [`Unrestored`]; nothing is restored, except the shared random values of a consensus
    /// that has expired.
    pub fn restore(
        &mut self,
        unix_now: u64,
        [ns, microdesc]: [&str; 2],
        microdescs: &str,
    ) -> Result<(), Unrestored> {
        let [ns_is_damaged, microdesc_is_damaged] =
            [(ns, true), (microdesc, false)].map(|(text, is_ns)| self.is_damaged(text, is_ns));
        if ns_is_damaged || microdesc_is_damaged {
            return Err(Unrestored::Damaged([ns_is_damaged, microdesc_is_damaged]));
        }
        let times = [ns, microdesc].map(times_of);
        let [Some(times), Some(others)] = times else { return Err(Unrestored::Useless) };
        if times != others || !self.is_ours(ns, true) || !self.is_ours(microdesc, false) {
            return Err(Unrestored::Useless);
        }
        self.shared = SharedRandom::read(ns, [times.valid_after, self.settings.interval]);
        if unix_now > times.valid_until {
            return Err(Unrestored::Useless);
        }
        let parsed = parse_microdescs(microdescs).map(|(parsed, _)| parsed).unwrap_or_default();
        let until = times.valid_until;
        let known = parsed.into_iter().map(|(one, text)| (one.digest, (text.to_owned(), until)));
        let (ns, microdesc) = (ns.to_owned(), microdesc.to_owned());
        self.documents =
            Documents { times: Some(times), ns, microdesc, microdescs: known.collect() };
        Ok(())
    }

    /// Returns true if `text` is damaged: it is not a consensus, or it names the present key as
    /// its signer but has no valid signature of that key.
    fn is_damaged(&self, text: &str, is_ns: bool) -> bool {
        let signed = text.find("directory-signature ").map(|place| text.split_at(place));
        let (Some((body, signature)), Some(_)) = (signed, times_of(text)) else { return true };
        let ours = self.keys.signature(body, is_ns).unwrap_or_default();
        // The first line contains the digests of the keys.
        ours.lines().next() == signature.lines().next() && ours != signature
    }

    /// Returns true if the present key signed `text`. RSA signatures are deterministic, so the
    /// signature in `text` is compared with a new one.
    fn is_ours(&self, text: &str, is_ns: bool) -> bool {
        let Some(place) = text.find("directory-signature ") else { return false };
        let signature = self.keys.signature(&text[..place], is_ns);
        signature.is_ok_and(|signature| text[place..] == signature)
    }

    /// Returns the present documents.
    #[must_use]
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Returns the authority's certificate.
    #[must_use]
    pub fn certificate(&self) -> &str {
        self.keys.certificate()
    }

    /// Returns a relay's descriptor and the descriptor's digest; `None` if no descriptor of this
    /// relay is known.
    #[must_use]
    pub fn descriptor(&self, rsa: &[u8; 20]) -> Option<(&str, [u8; 20])> {
        self.routerlist.get(rsa).map(|entry| (&entry.text[..], entry.digest))
    }

    /// Returns all current descriptors: the relay's RSA identity, the digest and the text of each.
    pub fn descriptors(&self, unix_now: u64) -> impl Iterator<Item = (&[u8; 20], [u8; 20], &str)> {
        self.routerlist.current(unix_now).map(|(id, entry)| (id, entry.digest, &entry.text[..]))
    }

    /// Returns a relay's extra-info document and the document's digest; `None` if no such document
    /// of this relay is known.
    #[must_use]
    pub fn extra(&self, rsa: &[u8; 20]) -> Option<(&str, [u8; 20])> {
        let extra = self.routerlist.get(rsa)?.extra.as_ref();
        extra.map(|(text, digest)| (&text[..], *digest))
    }

    /// Returns the authority's identity (`v3ident`).
    #[must_use]
    pub fn identity(&self) -> [u8; 20] {
        self.about.identity
    }

    /// Returns the RSA identity of the relay that runs in the same process.
    #[must_use]
    pub fn relay(&self) -> [u8; 20] {
        self.about.relay
    }

    /// Returns the state of each relay that has ever answered a probe, by RSA identity. This state
    /// is stored in addition to the descriptors.
    pub fn stored_relays(&self) -> impl Iterator<Item = ([u8; 20], StoredRelay)> {
        self.routerlist.stored_relays()
    }

    /// Restores the state of a relay that an earlier process stored. Returns false if the relay's
    /// two identities contradict a known pair.
    pub fn remember(&mut self, unix_now: u64, rsa: &[u8; 20], past: StoredRelay) -> bool {
        self.routerlist.remember(unix_now, rsa, past)
    }

    /// Returns the flags that a consensus would assign to each relay now, by RSA identity.
    #[must_use]
    pub fn flags(&self, unix_now: u64) -> Vec<([u8; 20], Flags)> {
        let relays = listed(&self.routerlist, unix_now, &self.settings, &self.about);
        relays.iter().map(|relay| (relay.id, relay.flags)).collect()
    }

    fn times(&self, now: u64) -> Times {
        let interval = self.settings.interval.max(1);
        // The first consensus also covers a whole interval, although part of it has passed. Onion
        // services and their clients count time periods by the interval of the consensus.
        let valid_after = now / interval * interval;
        let fresh_until = valid_after + interval;
        let valid_until = fresh_until + self.settings.valid_intervals.saturating_sub(1) * interval;
        Times { valid_after, fresh_until, valid_until }
    }
}

impl Settings {
    fn reach(&self) -> ReachSettings {
        ReachSettings { holds: self.running_for, every: self.probe_every, ipv6: self.ipv6 }
    }
}

/// The reason why the consensus of an earlier process cannot be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrestored {
    /// At least one of the two stored consensus texts is damaged. The first value is true if the
    /// text of the flavour `ns` is damaged, the second likewise for `microdesc`.
    Damaged([bool; 2]),
    /// The consensus has expired, another key signed it, or its two flavours differ.
    Useless,
}

/// Returns the validity times in the header of a consensus. Returns `None` if one of them is
/// missing or malformed.
fn times_of(text: &str) -> Option<Times> {
    let find = |keyword: &str| {
        let mut lines = text.lines();
        from_utc(lines.find_map(|line| line.strip_prefix(keyword))?)
    };
    let (valid_after, fresh_until) = (find("valid-after ")?, find("fresh-until ")?);
    Some(Times { valid_after, fresh_until, valid_until: find("valid-until ")? })
}

fn listed<'a>(
    routerlist: &'a RouterList,
    now: u64,
    settings: &Settings,
    about: &About,
) -> Vec<ConsensusEntry<'a>> {
    let all = routerlist.judged(now, &about.relay);
    let merits: Vec<flags::Merits> = all.iter().map(|(.., merits)| merits.clone()).collect();
    let thresholds = Thresholds::of(&merits, &settings.judgement);
    let judged = all.into_iter().map(|(id, entry, merits)| ConsensusEntry {
        id: *id,
        entry,
        flags: thresholds.judge(&merits, &settings.judgement),
        microdesc: microdescriptor(entry),
    });
    // Since consensus method 4, only running relays are listed.
    judged.filter(|relay| relay.flags.running).collect()
}

#[cfg(test)]
mod tests;
