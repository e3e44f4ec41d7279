//! A directory authority as a core (dir-spec 3): takes descriptors and what is known of relays' reachability, and gives signed documents.
//!
//! It is the only authority of its network, so that its vote is the outcome: it makes consensus and microdescriptors directly from its
//! [roll](Authority::upload). The core keeps no clock and opens no connection: its owner says the time, probes relays
//! ([`Authority::probes`]) and hands on what clients ask for ([`Authority::documents`]).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use crate::wire::dirkeys::{AuthorityKeys, SignatureError};
use crate::wire::keys::sha256;
use documents::{Flavour, Listed, microdescriptor, unsigned};
use flags::Thresholds;
use roll::Roll;

pub use documents::Times;
pub use flags::{Flags, Judgement};
pub use history::{Fields, History};
pub use roll::{LONGEST_UPLOAD, Refusal, Rules, Taken};

mod documents;
mod flags;
mod history;
mod roll;
mod said;
mod summary;
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
    /// Seconds from one consensus to the next. A consensus holds for three times as long.
    pub interval: u64,
    /// For how many seconds a relay counts as running that answered (C tor: 45 minutes).
    pub running_for: u64,
    /// How flags are given.
    pub judgement: Judgement,
    /// Which relays are taken.
    pub rules: Rules,
    /// The network's parameters (param-spec).
    pub params: BTreeMap<String, i32>,
}

impl Default for Settings {
    /// As in the public network.
    fn default() -> Settings {
        Settings {
            interval: 3600,
            running_for: 45 * 60,
            judgement: Judgement::default(),
            rules: Rules::default(),
            params: BTreeMap::new(),
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

/// A relay to be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its RSA identity.
    pub rsa: [u8; 20],
    /// Its Ed25519 identity.
    pub ed25519: [u8; 32],
    /// All its addresses: it runs if it answers at each.
    pub addresses: Vec<SocketAddr>,
}

/// An authority.
#[derive(Debug)]
pub struct Authority {
    about: About,
    settings: Settings,
    keys: AuthorityKeys,
    roll: Roll,
    documents: Documents,
}

impl Authority {
    /// An authority that knows no relay yet.
    #[must_use]
    pub fn new(about: About, settings: Settings, keys: AuthorityKeys) -> Authority {
        let (roll, documents) = (Roll::default(), Documents::default());
        Authority { about, settings, keys, roll, documents }
    }

    /// Takes what a relay published: a descriptor, and its extra-info document behind it.
    ///
    /// # Errors
    /// [`Refusal`]: what is known stays as it was.
    pub fn upload(&mut self, unix_now: u64, text: &str) -> Result<Taken, Refusal> {
        self.roll.upload(unix_now, text, &self.settings.rules)
    }

    /// The relays that are to be probed: all but ourselves.
    #[must_use]
    pub fn probes(&self) -> Vec<Probe> {
        let others = self.roll.iter().filter(|(id, _)| **id != self.about.relay);
        let probe = |(id, entry): (&[u8; 20], &roll::Entry)| Probe {
            rsa: *id,
            ed25519: entry.described.ed_identity,
            addresses: entry.described.addresses.clone(),
        };
        others.map(probe).collect()
    }

    /// A relay answered at all its addresses under both its identities, or did not.
    pub fn probed(&mut self, unix_now: u64, rsa: &[u8; 20], answers: bool) {
        self.roll.observe(unix_now, rsa, answers);
    }

    /// When the next consensus is due: a multiple of the interval since 1970, at once if there is none, or if the clock has gone back
    /// before the present one.
    #[must_use]
    pub fn due(&self, unix_now: u64) -> u64 {
        match self.documents.times {
            Some(times) if unix_now >= times.valid_after => times.fresh_until,
            _ => unix_now,
        }
    }

    /// Makes a consensus.
    ///
    /// # Errors
    /// The key does not sign, or does not hold any more: what there was stays.
    pub fn publish(&mut self, unix_now: u64) -> Result<&Documents, SignatureError> {
        self.keys.holds(unix_now)?;
        self.roll.expire(unix_now);
        let times = self.times(unix_now);
        let relays = listed(&self.roll, unix_now, &self.settings, &self.about);
        let make = |flavour| {
            let text = unsigned(flavour, times, &self.settings, &self.about, &relays);
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
        Ok(&self.documents)
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
        self.roll.get(rsa).map(|entry| (&entry.text[..], entry.digest))
    }

    /// All descriptors with their relays' identities and their digests.
    pub fn descriptors(&self) -> impl Iterator<Item = (&[u8; 20], [u8; 20], &str)> {
        self.roll.iter().map(|(id, entry)| (id, entry.digest, &entry.text[..]))
    }

    /// All extra-info documents with their relays' identities and their digests.
    pub fn extras(&self) -> impl Iterator<Item = (&[u8; 20], [u8; 20], &str)> {
        self.roll.iter().filter_map(|(id, entry)| {
            entry.extra.as_ref().map(|(text, digest)| (id, *digest, &text[..]))
        })
    }

    /// What is to be kept of relays' pasts.
    pub fn histories(&self) -> impl Iterator<Item = (&[u8; 20], Fields)> {
        self.roll.iter().map(|(id, entry)| (id, entry.history.fields()))
    }

    /// Takes up what an earlier run kept of a relay whose descriptor is known; false if the numbers are none.
    pub fn remember(&mut self, rsa: &[u8; 20], fields: Fields) -> bool {
        let history = History::from_fields(fields);
        let is_one = history.is_some();
        history.into_iter().for_each(|history| self.roll.remember(rsa, history));
        is_one
    }

    /// Flags as they would be given now.
    #[must_use]
    pub fn flags(&self, unix_now: u64) -> Vec<([u8; 20], Flags)> {
        let relays = listed(&self.roll, unix_now, &self.settings, &self.about);
        relays.iter().map(|relay| (relay.id, relay.flags)).collect()
    }

    fn times(&self, now: u64) -> Times {
        let interval = self.settings.interval.max(1);
        // The first one begins at once, so that a network need not wait for its first hour.
        let first = self.documents.times.is_none_or(|times| now < times.valid_after);
        let valid_after = if first { now } else { now / interval * interval };
        let fresh_until = (now / interval + 1) * interval;
        Times { valid_after, fresh_until, valid_until: fresh_until + 2 * interval }
    }
}

fn listed<'a>(roll: &'a Roll, now: u64, settings: &Settings, about: &About) -> Vec<Listed<'a>> {
    let all: Vec<(&[u8; 20], &roll::Entry)> = roll.iter().collect();
    let merits: Vec<flags::Merits> = all
        .iter()
        .map(|(id, entry)| entry.merits(now, settings.running_for, **id == about.relay))
        .collect();
    let thresholds = Thresholds::of(&merits, &settings.judgement);
    let judged = all.into_iter().zip(&merits).map(|((id, entry), merits)| Listed {
        id: *id,
        entry,
        flags: thresholds.judge(merits, &settings.judgement),
        microdesc: microdescriptor(entry),
    });
    // Since method 4 a consensus lists running relays alone.
    judged.filter(|relay| relay.flags.running).collect()
}

#[cfg(test)]
mod tests;
