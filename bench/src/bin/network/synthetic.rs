//! A consensus that resembles that of 2026 in all properties that cost time. It has the shares of
//! guards and exits, weights over four powers of ten, crowded subnets, families of up to 70, and
//! some 250 exit policies. Its authority is generated here; no data of real relays is used.

use std::fmt::Write as _;
use std::io;

use anabranch_multipath::seed::{Stream, stream};
use anabranch_onion::directory::civil::utc;
use anabranch_onion::wire::dirkeys::IdentityKey;
use anabranch_onion::wire::text::hex;
use base64ct::{Base64Unpadded, Encoding};
use rand::RngExt;
use rand_core::Rng;
use sha2::{Digest, Sha256};

/// Time at which the consensus is valid, in seconds since 1970.
pub(crate) const NOW: u64 = 1_800_000_000;
/// Port of mail, which few exit policies allow.
pub(crate) const RARE_PORT: u16 = 25;

/// Kinds of relays: their share, whether they are guards and exits, and the median and deviation
/// of the logarithm of their weights.
const KINDS: [(f64, bool, bool, f64, f64); 4] = [
    (0.446, true, false, 9.3, 1.2),
    (0.240, false, false, 6.7, 2.5),
    (0.184, true, true, 9.6, 0.8),
    (0.130, false, true, 9.0, 2.2),
];
const HEAVIEST: f64 = 250_000.0;
/// Number of `/16` networks, number of the crowded ones, and share of relays in those.
const NETS: u32 = 2300;
const CROWDED: u32 = 12;
const IN_CROWDED: f64 = 0.25;
const POLICIES: usize = 250;
/// Share of relays in a family, and size of the largest family.
const IN_FAMILY: f64 = 0.27;
const LARGEST_FAMILY: u32 = 70;
const HEAD: &str = "\
known-flags Authority BadExit Exit Fast Guard Running Stable V2Dir Valid
recommended-client-protocols Cons=2 Desc=2 FlowCtrl=1 Link=4-5 Microdesc=2 Relay=2
recommended-relay-protocols Cons=2 Desc=2 FlowCtrl=1 Link=4-5 Microdesc=2 Relay=2
required-client-protocols Cons=2 Desc=2 FlowCtrl=1 Link=4 Microdesc=2 Relay=2
required-relay-protocols Cons=2 Desc=2 FlowCtrl=1 Link=4 Microdesc=2 Relay=2
params guard-n-primary-dir-guards-to-use=2 guard-n-primary-guards-to-use=2
";
const FOOT: &str = "\
directory-footer
bandwidth-weights Wbd=1040 Wbe=0 Wbg=4112 Wbm=10000 Wdb=10000 Web=10000 Wed=7920 Wee=10000 \
Weg=7920 Wem=10000 \
Wgb=10000 Wgd=1040 Wgg=5888 Wgm=5888 Wmb=10000 Wmd=1040 Wme=0 Wmg=4112 Wmm=10000
";

/// The documents of a network.
pub(crate) struct Documents {
    /// Identity of the authority that signed them.
    pub(crate) authority: [u8; 20],
    pub(crate) certs: String,
    pub(crate) consensus: String,
    /// Microdescriptors with the digests in the consensus, in its order.
    pub(crate) microdescs: Vec<([u8; 32], String)>,
}

struct Relay {
    id: [u8; 20],
    net: u32,
    weight: u32,
    guard: bool,
    exit: bool,
    policy: Option<usize>,
}

/// Creates the documents of a network with `relays` relays.
///
/// # Errors
/// The library that signs them fails.
pub(crate) fn documents(relays: usize, seed: u64) -> io::Result<Documents> {
    let mut rng = stream(seed, 0, "synthetic consensus");
    let mut all: Vec<Relay> = (0..relays).map(|_| relay(&mut rng)).collect();
    all.sort_by_key(|relay| relay.id);
    let policies: Vec<String> = (0..POLICIES).map(|place| policy(place, &mut rng)).collect();
    let families = families(&all, &mut rng);
    let microdescs: Vec<([u8; 32], String)> = all
        .iter()
        .zip(&families)
        .map(|(relay, family)| {
            let text = microdesc(relay, family, &policies, &mut rng);
            (Sha256::digest(text.as_bytes()).into(), text)
        })
        .collect();
    let identity = IdentityKey::generate(&mut rng).map_err(io::Error::other)?;
    let keys = identity.certify(&mut rng, NOW - 9000, NOW + 90_000).map_err(io::Error::other)?;
    let mut consensus = unsigned(&identity.identity(), &all, &microdescs);
    consensus += &keys.signature(&consensus, false).map_err(io::Error::other)?;
    let certs = keys.certificate().to_owned();
    Ok(Documents { authority: identity.identity(), certs, consensus, microdescs })
}

fn relay(rng: &mut Stream) -> Relay {
    let mut share = rng.random::<f64>();
    let kind = KINDS.iter().find(|kind| {
        share -= kind.0;
        share < 0.0
    });
    let (_, guard, exit, median, deviation) = *kind.unwrap_or(&KINDS[0]);
    // The sum of twelve uniform draws is close enough to a normal distribution.
    let normal = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
    let weight = (median + deviation * normal).exp().clamp(1.0, HEAVIEST) as u32;
    let crowded = rng.random::<f64>() < IN_CROWDED;
    let net = rng.random_range(if crowded { 0..CROWDED } else { CROWDED..NETS });
    // The first policies are the most common.
    let policy = exit.then(|| (rng.random::<f64>().powi(3) * POLICIES as f64) as usize);
    let mut id = [0; 20];
    rng.fill_bytes(&mut id);
    Relay { id, net, weight, guard, exit, policy }
}

/// Returns ports of the web and some others; every fiftieth policy allows mail.
fn policy(place: usize, rng: &mut Stream) -> String {
    if place % 50 == 20 {
        return format!("p accept {RARE_PORT},80,443\n");
    }
    if place.is_multiple_of(3) {
        return format!("p reject {RARE_PORT},119,135-139,445,{}-6999\n", 6000 + place);
    }
    let mut ports: Vec<u32> = (0..20).map(|_| rng.random_range(500..30_000)).collect();
    ports.sort_unstable();
    ports.dedup();
    let ports: Vec<String> = ports.iter().map(u32::to_string).collect();
    format!("p accept 80,443,{}\n", ports.join(","))
}

/// Returns the `family` line of each relay, which all members of a family have.
fn families(relays: &[Relay], rng: &mut Stream) -> Vec<String> {
    let mut lines = vec![String::new(); relays.len()];
    let mut free: Vec<usize> =
        (0..relays.len()).filter(|_| rng.random::<f64>() < IN_FAMILY).collect();
    for place in (1..free.len()).rev() {
        free.swap(place, rng.random_range(0..=place));
    }
    while !free.is_empty() {
        let size = 2 + (rng.random::<f64>().powi(4) * f64::from(LARGEST_FAMILY - 2)) as usize;
        let members = free.split_off(free.len().saturating_sub(size));
        let ids: Vec<String> =
            members.iter().map(|&place| format!("${}", hex(&relays[place].id))).collect();
        let line = format!("family {}\n", ids.join(" "));
        members.into_iter().for_each(|place| lines[place].clone_from(&line));
    }
    lines
}

fn microdesc(relay: &Relay, family: &str, policies: &[String], rng: &mut Stream) -> String {
    let mut key = || {
        let mut key = [0; 32];
        rng.fill_bytes(&mut key);
        Base64Unpadded::encode_string(&key)
    };
    let policy = relay.policy.map_or("", |place| &policies[place]);
    format!("onion-key\nntor-onion-key {}\n{family}{policy}id ed25519 {}\n", key(), key())
}

fn unsigned(authority: &[u8; 20], relays: &[Relay], microdescs: &[([u8; 32], String)]) -> String {
    let id = hex(authority);
    let [after, fresh, until] = [NOW - 60, NOW + 3540, NOW + 10_740].map(utc);
    let mut text = format!(
        "network-status-version 3 microdesc\nvote-status consensus\nconsensus-method 33\n\
         valid-after {after}\nfresh-until {fresh}\nvalid-until {until}\nvoting-delay 300 300\n\
         client-versions\nserver-versions\n{HEAD}dir-source auth {id} 127.0.0.1 127.0.0.1 1 1\n\
         contact nobody\nvote-digest {id}\n"
    );
    for (place, (relay, (digest, _))) in relays.iter().zip(microdescs).enumerate() {
        let (id, digest) =
            (Base64Unpadded::encode_string(&relay.id), Base64Unpadded::encode_string(digest));
        let exit = if relay.exit { "Exit " } else { "" };
        let guard = if relay.guard { "Guard " } else { "" };
        let (a, b) = (1 + relay.net / 250, relay.net % 250);
        let (c, d) = (place / 250 % 250, 1 + place % 250);
        writeln!(
            text,
            "r r{place} {id} 2038-01-01 00:00:00 {a}.{b}.{c}.{d} 9001 0\nm {digest}\n\
             s {exit}Fast {guard}Running Stable V2Dir Valid\nv Tor 0.4.9.6\n\
             pr Conflux=1 Cons=1-2 Desc=1-4 DirCache=2 FlowCtrl=1-2 HSDir=2 Link=3-5 LinkAuth=3 \
             Microdesc=1-3 Padding=2 Relay=2-6\nw Bandwidth={}",
            relay.weight
        )
        .expect("text can be written");
    }
    text + FOOT
}
