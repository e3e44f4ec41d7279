//! The documents that an authority generates from its router list: microdescriptors, and a
//! consensus in both flavours (dir-spec 3.3, 3.8, 3.9).

use std::net::SocketAddr;

use base64ct::{Base64Unpadded, Encoding};

use super::entry::Entry;
use super::flags::{Flags, KNOWN_FLAGS};
use super::shared::SharedRandom;
use super::weights::{Totals, Weights};
use super::{About, Settings};
use crate::directory::civil::utc;
use crate::wire::keys::sha256;
use crate::wire::text::{hex, line};

/// Number of the consensus method of this authority (C tor's numbering).
/// From this method on, microdescriptors contain `family-ids`.
const METHOD: u32 = 35;
/// Placeholder for the publication time in a microdescriptor consensus (since consensus method
/// 33).
const NEVER: &str = "2038-01-01 00:00:00";
/// Subprotocol versions that the consensus requires and recommends for clients and relays (the
/// values that C tor 0.4.9's authorities vote for).
const PROTOCOLS: [(&str, &str); 4] = [
    (
        "recommended-client",
        "Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 HSIntro=4 HSRend=2 Link=4-5 Microdesc=2 Relay=2-4",
    ),
    (
        "recommended-relay",
        "Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 HSIntro=4-5 HSRend=2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-4",
    ),
    ("required-client", "Cons=2 Desc=2 FlowCtrl=1 Link=4 Microdesc=2 Relay=2"),
    (
        "required-relay",
        "Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 HSDir=2 HSIntro=4-5 HSRend=2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-4",
    ),
];

/// A relay that is listed in the consensus.
pub(super) struct ConsensusEntry<'a> {
    pub(super) id: [u8; 20],
    pub(super) entry: &'a Entry,
    pub(super) flags: Flags,
    pub(super) microdesc: String,
}

/// A flavour of the consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    /// `ns`: lists digests of descriptors, and exit policies.
    Ns,
    /// `microdesc`: lists digests of microdescriptors.
    Microdesc,
}

/// The times in a consensus's header, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The time from which the consensus is valid.
    pub valid_after: u64,
    /// The time from which a newer consensus is available.
    pub fresh_until: u64,
    /// The time at which the consensus expires.
    pub valid_until: u64,
}

/// Returns a relay's microdescriptor.
pub(super) fn microdescriptor(entry: &Entry) -> String {
    let (described, parsed) = (&entry.described, &entry.parsed);
    let mut text = "onion-key\n".to_owned();
    text.push_str(parsed.onion_key.as_deref().unwrap_or_default());
    line(&mut text, &format!("ntor-onion-key {}", Base64Unpadded::encode_string(&described.ntor)));
    if !parsed.family.is_empty() {
        line(&mut text, &format!("family {}", parsed.family.join(" ")));
    }
    if !described.family_ids.is_empty() {
        line(&mut text, &format!("family-ids {}", described.family_ids.join(" ")));
    }
    if parsed.policy != "reject 1-65535" {
        line(&mut text, &format!("p {}", parsed.policy));
    }
    if let Some(policy) = &parsed.policy_v6 {
        line(&mut text, &format!("p6 {policy}"));
    }
    let ed = Base64Unpadded::encode_string(&described.ed_identity);
    line(&mut text, &format!("id ed25519 {ed}"));
    text
}

/// Returns the text of a consensus that lists `relays`, without its signature.
pub(super) fn unsigned(
    flavour: Flavour,
    times: Times,
    settings: &Settings,
    about: &About,
    shared: Option<&SharedRandom>,
    relays: &[ConsensusEntry<'_>],
) -> String {
    let mut text = match flavour {
        Flavour::Ns => "network-status-version 3\n",
        Flavour::Microdesc => "network-status-version 3 microdesc\n",
    }
    .to_owned();
    preamble(&mut text, times, settings, about, shared);
    relays.iter().for_each(|relay| listed(&mut text, flavour, relay, settings.ipv6));
    line(&mut text, "directory-footer");
    line(&mut text, &Weights::of(totals(relays)).line());
    text
}

fn preamble(
    text: &mut String,
    times: Times,
    settings: &Settings,
    about: &About,
    shared: Option<&SharedRandom>,
) {
    line(text, "vote-status consensus");
    line(text, &format!("consensus-method {METHOD}"));
    line(text, &format!("valid-after {}", utc(times.valid_after)));
    line(text, &format!("fresh-until {}", utc(times.fresh_until)));
    line(text, &format!("valid-until {}", utc(times.valid_until)));
    line(text, "voting-delay 2 2");
    line(text, "client-versions\nserver-versions");
    line(text, &format!("known-flags {KNOWN_FLAGS}"));
    for (who, protocols) in PROTOCOLS {
        line(text, &format!("{who}-protocols {protocols}"));
    }
    let params: Vec<String> =
        settings.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    line(text, format!("params {}", params.join(" ")).trim_end());
    text.push_str(&shared.map(SharedRandom::lines).unwrap_or_default());
    let (id, address) = (hex(&about.identity), about.address);
    let (name, dir, or) = (&about.nickname, about.dir_port, about.or_port);
    line(text, &format!("dir-source {name} {id} {address} {address} {dir} {or}"));
    line(text, &format!("contact {}", about.contact));
    line(text, &format!("vote-digest {id}"));
}

fn listed(text: &mut String, flavour: Flavour, relay: &ConsensusEntry<'_>, ipv6: bool) {
    let Entry { described, parsed, digest, weight, .. } = relay.entry;
    let id = Base64Unpadded::encode_string(&relay.id);
    let v4 = described.addresses.iter().find(|at| at.is_ipv4());
    let (ip, port) = v4.map_or(("0.0.0.0".to_owned(), 0), |at| (at.ip().to_string(), at.port()));
    let (name, dir) = (&parsed.nickname, parsed.dir_port);
    match flavour {
        Flavour::Ns => {
            let digest = Base64Unpadded::encode_string(digest);
            let published = utc(described.published);
            line(text, &format!("r {name} {id} {digest} {published} {ip} {port} {dir}"));
        }
        Flavour::Microdesc => line(text, &format!("r {name} {id} {NEVER} {ip} {port} {dir}")),
    }
    // IPv6 addresses are left out if `ipv6` is false, because this authority cannot probe them.
    let v6 = described.addresses.iter().filter(|at| ipv6 && at.is_ipv6());
    v6.for_each(|at: &SocketAddr| line(text, &format!("a {at}")));
    if flavour == Flavour::Microdesc {
        let digest = Base64Unpadded::encode_string(&sha256(relay.microdesc.as_bytes()));
        line(text, &format!("m {digest}"));
    }
    line(text, &format!("s {}", relay.flags.words()));
    if let Some(version) = &parsed.version {
        line(text, &format!("v {version}"));
    }
    if let Some(protocols) = &parsed.protocols {
        line(text, &format!("pr {protocols}"));
    }
    let unmeasured = if weight.1 { "" } else { " Unmeasured=1" };
    line(text, &format!("w Bandwidth={}{unmeasured}", weight.0));
    if flavour == Flavour::Ns {
        line(text, &format!("p {}", parsed.policy));
    }
}

fn totals(relays: &[ConsensusEntry<'_>]) -> Totals {
    relays.iter().fold(Totals::default(), |mut totals, relay| {
        totals.add(relay.entry.weight.0, relay.flags.guard, relay.flags.exit);
        totals
    })
}
