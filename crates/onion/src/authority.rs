//! A directory authority as a core (dir-spec 3): takes descriptors and what is known of relays'
//! reachability, and gives signed documents.
//!
//! It is the only authority of its network, so that its vote is the outcome: it makes consensus and
//! microdescriptors directly from its [router list](Authority::upload). The core keeps no clock and
//! opens no connection: its owner says the time, probes relays ([`Authority::probes`]) and hands on
//! what clients ask for ([`Authority::documents`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use crate::directory::civil::from_utc;
use crate::wire::dirkeys::{AuthorityKeys, SignatureError};
use crate::wire::extend::Target;
use crate::wire::keys::sha256;
use crate::wire::netdoc::parse_microdescs;
use documents::{Flavour, Listed, microdescriptor, unsigned};
use entry::Reach;
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
pub use routerlist::{Past, UploadOutcome};
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

/// What a consensus says of its authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub nickname: String,
    /// Its identity (v3ident).
    pub identity: [u8; 20],
    /// The RSA identity of the relay that it is as well.
    pub relay: [u8; 20],
    /// Where it is reached.
    pub address: Ipv4Addr,
    /// Its port for directory requests in the clear.
    pub dir_port: u16,
    /// Its port for links.
    pub or_port: u16,
    /// How to reach the operator; one line.
    pub contact: String,
}

/// How an authority works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Seconds from one consensus to the next.
    pub interval: u64,
    /// For how many intervals a consensus holds; C tor's figure is 3.
    pub valid_intervals: u64,
    /// When the first consensus is made.
    pub first: First,
    /// For how many seconds a relay counts as running that answered (C tor: 45 minutes).
    pub running_for: u64,
    /// Seconds from one probe of a relay that runs to the next (C tor: 1280).
    pub probe_every: u64,
    /// Whether we reach IPv6, so that relays' addresses there are probed and listed.
    pub ipv6: bool,
    /// How flags are given.
    pub judgement: Judgement,
    /// Which relays are taken.
    pub rules: Rules,
    /// The network's parameters (param-spec).
    pub params: BTreeMap<String, i32>,
    /// Kilobytes a second that relays count for, by RSA identity, until others are measured
    /// ([`Authority::measure`]).
    pub measured: BTreeMap<[u8; 20], u32>,
}

/// When the first consensus is made: as soon as so many relays run, or so much time has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct First {
    /// How many, the authority itself aside.
    pub relays: usize,
    /// Seconds.
    pub seconds: u64,
}

impl Default for Settings {
    /// As in the public network.
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

/// What clients ask an authority for.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    /// When they hold.
    pub times: Option<Times>,
    /// The consensus of the flavour `ns`.
    pub ns: String,
    /// The consensus of microdescriptors.
    pub microdesc: String,
    /// Microdescriptors by their SHA-256: those of this consensus and of the two before.
    pub microdescs: BTreeMap<[u8; 32], (String, u64)>,
}

/// An authority.
#[derive(Debug)]
pub struct Authority {
    about: About,
    settings: Settings,
    keys: AuthorityKeys,
    routerlist: RouterList,
    documents: Documents,
    shared: Option<SharedRandom>,
    /// What the next shared random value is made of.
    random: Option<[u8; 32]>,
    /// Since when the first consensus is waited for.
    since: Option<u64>,
    /// Whether the present consensus is of this run.
    has_published: bool,
}

impl Authority {
    /// An authority that knows no relay yet.
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

    /// Takes what a relay published: a descriptor, and its extra-info document behind it. Where it
    /// came from says how many more of those that have never answered may come from there: `None`
    /// if by a circuit.
    ///
    /// # Errors
    /// [`Refusal`]: what is known stays as it was.
    pub fn upload(
        &mut self,
        unix_now: u64,
        text: &str,
        from: Option<IpAddr>,
    ) -> Result<UploadOutcome, Refusal> {
        self.routerlist.upload(unix_now, text, Origin::of(from))
    }

    /// Takes up what an earlier run took, of whatever time.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn take_up(&mut self, unix_now: u64, text: &str) -> Result<UploadOutcome, Refusal> {
        self.routerlist.restore(unix_now, text)
    }

    /// The relays that are to be probed now, each at one address: all but ourselves, in their
    /// turns, as many as there is room for.
    pub fn probes(&mut self, unix_now: u64, room: Room) -> Vec<Probe> {
        self.routerlist.probes(unix_now, &self.about.relay, room)
    }

    /// A relay answered at the target's address under both its identities, or did not.
    pub fn probed(&mut self, unix_now: u64, target: &Target, answers: bool) {
        self.routerlist.observe(unix_now, target, answers);
    }

    /// Forgets descriptors that are too old or of the future, once the clock has said so for a day
    /// by `steady`: seconds of a clock that goes on and that nobody sets.
    pub fn forget(&mut self, unix_now: u64, steady: u64) {
        self.routerlist.forget(unix_now, steady);
    }

    /// Whose descriptors were given up since the last call: those that were forgotten, and
    /// strangers that made way for others.
    pub fn dropped(&mut self) -> BTreeSet<[u8; 20]> {
        self.routerlist.dropped()
    }

    /// How many relays have a descriptor.
    #[must_use]
    pub fn known(&self) -> usize {
        self.routerlist.known()
    }

    /// How many relays run, the authority itself aside.
    #[must_use]
    pub fn running(&self, unix_now: u64) -> usize {
        self.routerlist.running(unix_now, &self.about.relay)
    }

    /// When the next consensus is due: a multiple of the interval since 1970, at once if the clock
    /// has gone back before the present one. For the first see [`First`].
    pub fn due(&mut self, unix_now: u64) -> u64 {
        match self.documents.times {
            Some(times) if unix_now < times.valid_after => unix_now,
            Some(times) if self.has_published => times.fresh_until,
            // One of an earlier run: the relays have to be found again before it is replaced.
            Some(times) => times.fresh_until.max(self.first_due(unix_now)),
            None => self.first_due(unix_now),
        }
    }

    /// When the first consensus of this run is due by [`First`].
    fn first_due(&mut self, unix_now: u64) -> u64 {
        let First { relays, seconds } = self.settings.first;
        let since = self.since.filter(|since| *since <= unix_now).unwrap_or(unix_now);
        self.since = Some(since);
        if self.running(unix_now) >= relays { unix_now } else { since + seconds }
    }

    /// The machine's clock was set forward by so many seconds, or back: nobody has been down for
    /// that.
    pub fn shift(&mut self, unix_now: u64, by: i64) {
        self.routerlist.shift(unix_now, by);
    }

    /// Takes the bandwidths that somebody measured, in kilobytes a second, in the place of earlier
    /// ones.
    pub fn measure(&mut self, measured: BTreeMap<[u8; 20], u32>) {
        self.routerlist.measure(measured);
    }

    /// Takes chance for the next shared random value: consensuses have none before.
    pub fn stir(&mut self, random: [u8; 32]) {
        self.random = Some(random);
    }

    /// Goes by other settings from now on, and names this contact: they count for the next
    /// consensus, and who is banned is given up at once. By what relays were counted so far they
    /// are counted on: interval, probes, IPv6, private addresses.
    pub fn adopt(&mut self, unix_now: u64, settings: Settings, contact: String) {
        let allow_private = self.settings.rules.allow_private;
        let Settings { interval, running_for, probe_every, ipv6, .. } = self.settings;
        let rules = Rules { allow_private, ..settings.rules };
        self.routerlist.adopt(unix_now, rules.clone());
        self.settings = Settings { interval, running_for, probe_every, ipv6, rules, ..settings };
        self.about.contact = contact;
    }

    /// Signs with these keys from now on.
    pub fn set_keys(&mut self, keys: AuthorityKeys) {
        self.keys = keys;
    }

    /// Makes a consensus.
    ///
    /// # Errors
    /// The key does not sign, or does not hold any more: what there was stays.
    pub fn publish(&mut self, unix_now: u64) -> Result<&Documents, SignatureError> {
        self.keys.holds(unix_now)?;
        self.routerlist.is_here(unix_now, &self.about.relay);
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

    /// Takes up the consensus of an earlier run with the same keys, in both flavours, and its
    /// microdescriptors.
    ///
    /// # Errors
    /// [`Unrestored`]: nothing is taken, but for the shared random values of a consensus that has
    /// expired.
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

    /// Whether this is no consensus, or one that names the present key as its signer and was
    /// changed since.
    fn is_damaged(&self, text: &str, is_ns: bool) -> bool {
        let signed = text.find("directory-signature ").map(|place| text.split_at(place));
        let (Some((body, signature)), Some(_)) = (signed, times_of(text)) else { return true };
        let ours = self.keys.signature(body, is_ns).unwrap_or_default();
        // The first line names the keys.
        ours.lines().next() == signature.lines().next() && ours != signature
    }

    /// Whether the present key signed this text: signatures of RSA are the same each time.
    fn is_ours(&self, text: &str, is_ns: bool) -> bool {
        let Some(place) = text.find("directory-signature ") else { return false };
        let signature = self.keys.signature(&text[..place], is_ns);
        signature.is_ok_and(|signature| text[place..] == signature)
    }

    /// What there is.
    #[must_use]
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// The authority's certificate.
    #[must_use]
    pub fn certificate(&self) -> &str {
        self.keys.certificate()
    }

    /// A relay's descriptor, and its digest.
    #[must_use]
    pub fn descriptor(&self, rsa: &[u8; 20]) -> Option<(&str, [u8; 20])> {
        self.routerlist.get(rsa).map(|entry| (&entry.text[..], entry.digest))
    }

    /// All descriptors of these days with their relays' identities and their digests.
    pub fn descriptors(&self, unix_now: u64) -> impl Iterator<Item = (&[u8; 20], [u8; 20], &str)> {
        self.routerlist.current(unix_now).map(|(id, entry)| (id, entry.digest, &entry.text[..]))
    }

    /// A relay's extra-info document, and its digest.
    #[must_use]
    pub fn extra(&self, rsa: &[u8; 20]) -> Option<(&str, [u8; 20])> {
        let extra = self.routerlist.get(rsa)?.extra.as_ref();
        extra.map(|(text, digest)| (&text[..], *digest))
    }

    /// Its identity (v3ident).
    #[must_use]
    pub fn identity(&self) -> [u8; 20] {
        self.about.identity
    }

    /// The RSA identity of the relay that it is as well.
    #[must_use]
    pub fn relay(&self) -> [u8; 20] {
        self.about.relay
    }

    /// What is to be kept of relays besides descriptors, by their RSA identities: of those that
    /// have ever answered.
    pub fn pasts(&self) -> impl Iterator<Item = ([u8; 20], Past)> {
        self.routerlist.pasts()
    }

    /// Takes up what an earlier run kept of a relay; false if it contradicts what is known.
    pub fn remember(&mut self, unix_now: u64, rsa: &[u8; 20], past: Past) -> bool {
        self.routerlist.remember(unix_now, rsa, past)
    }

    /// Flags as they would be given now.
    #[must_use]
    pub fn flags(&self, unix_now: u64) -> Vec<([u8; 20], Flags)> {
        let relays = listed(&self.routerlist, unix_now, &self.settings, &self.about);
        relays.iter().map(|relay| (relay.id, relay.flags)).collect()
    }

    fn times(&self, now: u64) -> Times {
        let interval = self.settings.interval.max(1);
        // The first one, too, is of a whole interval, which has begun already: onion services and
        // their clients count time periods by the interval of the consensus that they know.
        let valid_after = now / interval * interval;
        let fresh_until = valid_after + interval;
        let valid_until = fresh_until + self.settings.valid_intervals.saturating_sub(1) * interval;
        Times { valid_after, fresh_until, valid_until }
    }
}

impl Settings {
    fn reach(&self) -> Reach {
        Reach { holds: self.running_for, every: self.probe_every, ipv6: self.ipv6 }
    }
}

/// When a consensus says that it holds.
/// Why a consensus of an earlier run is not served again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrestored {
    /// The texts that are true here are damaged: flavour `ns`, flavour `microdesc`.
    Damaged([bool; 2]),
    /// It has expired, is signed by another key, or its flavours differ.
    Useless,
}

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
) -> Vec<Listed<'a>> {
    let all = routerlist.judged(now, &about.relay);
    let merits: Vec<flags::Merits> = all.iter().map(|(.., merits)| merits.clone()).collect();
    let thresholds = Thresholds::of(&merits, &settings.judgement);
    let judged = all.into_iter().map(|(id, entry, merits)| Listed {
        id: *id,
        entry,
        flags: thresholds.judge(&merits, &settings.judgement),
        microdesc: microdescriptor(entry),
    });
    // Since method 4 a consensus lists running relays alone.
    judged.filter(|relay| relay.flags.running).collect()
}

#[cfg(test)]
mod tests;
