//! Tests that apply the same checks to our own authority's documents and to the public network's.
//! A parser from another project reads the documents. The tests verify the signatures of the
//! consensus, and look up its digests among the microdescriptors.
//!
//! The public network's documents are not part of this repository. `ANABRANCH_TOR_DOCUMENTS` names
//! a folder with the caches of a client: `consensus-microdesc-DATE.xz`, `cached-certs-DATE.xz` and
//! `cached-microdescs-DATE.xz`. A consensus is checked with the other two files of its day.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anabranch_multipath::seed::stream;
use anabranch_onion::authority::{About, Authority, First, Judgement, Room, Settings};
use anabranch_onion::directory::bandwidth::BandwidthHistory;
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::wire::dirkeys::IdentityKey;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::netdoc::{Unproven, parse_certs, parse_microdescs};

const NOW: u64 = 1_800_000_000;

/// Directory documents that a client has of a network.
struct Documents {
    consensus: String,
    certs: String,
    microdescs: String,
}

/// Checks `documents`. Returns the number of relays in the consensus, and the number of these
/// whose microdescriptor is there. Each microdescriptor without an Ed25519 identity counts, too.
fn judge(name: &str, documents: &Documents) -> (usize, usize) {
    let (certs, bad) = parse_certs(&documents.certs).unwrap();
    assert!(!certs.is_empty() && bad == 0, "{name}: certificates");
    let authorities: BTreeSet<[u8; 20]> = certs.iter().map(|cert| cert.keys().0).collect();
    let authorities: Vec<[u8; 20]> = authorities.into_iter().collect();
    let after = documents.consensus.lines().find_map(|line| line.strip_prefix("valid-after "));
    let now = anabranch_onion::directory::civil::from_utc(after.unwrap()).unwrap() + 1;
    let proven = Unproven::parse(&documents.consensus).unwrap().prove(&authorities, &certs, now);
    let consensus = proven.unwrap_or_else(|error| panic!("{name}: {error}"));
    let bent = documents.consensus.replacen("\nw Bandwidth=", "\nw Bandwidth=9", 1);
    assert!(Unproven::parse(&bent).unwrap().prove(&authorities, &certs, now).is_err(), "{name}");
    let (microdescs, bad) = parse_microdescs(&documents.microdescs).unwrap();
    // The parser skips the microdescriptors of relays without an Ed25519 identity. Such relays
    // existed before 2018.
    let items = documents.microdescs.split("onion-key\n-----").skip(1);
    let nameless = items.filter(|item| !item.contains("\nid ed25519 ")).count();
    assert_eq!(bad, nameless, "{name}: microdescriptors");
    let known: BTreeSet<[u8; 32]> = microdescs.iter().map(|(one, _)| one.digest).collect();
    let there = consensus.relays.iter().filter(|relay| known.contains(&relay.microdesc)).count();
    (consensus.relays.len(), there + nameless)
}

#[test]
fn our_own_documents_pass() {
    let own = own_documents(12);
    assert_eq!(judge("our own", &own), (12, 12));
}

#[test]
fn the_public_networks_documents_pass() {
    let Some(folder) = std::env::var_os("ANABRANCH_TOR_DOCUMENTS") else {
        println!("skipped: ANABRANCH_TOR_DOCUMENTS names no folder");
        return;
    };
    let folder = Path::new(&folder);
    let mut judged = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(date) = name.strip_prefix("consensus-microdesc-") else { continue };
        let consensus = unpacked(&path);
        // A consensus from before 2016 lists no protocols of relays, and is refused.
        let has_protocols = consensus.contains("\npr ");
        assert_eq!(Unproven::parse(&consensus).is_ok(), has_protocols, "{name}");
        let day = &date[..10];
        let file_of = |kind: &str| folder.join(format!("{kind}-{day}.xz"));
        if !file_of("cached-certs").exists() || !file_of("cached-microdescs").exists() {
            continue;
        }
        let certs = unpacked(&file_of("cached-certs"));
        let microdescs = without_notes(&unpacked(&file_of("cached-microdescs")));
        // The cache of a client may lack some microdescriptors.
        let (listed, there) = judge(name, &Documents { consensus, certs, microdescs });
        assert!(listed > 1_000 && there * 4 > listed * 3, "{name}: {there} of {listed}");
        judged += 1;
    }
    assert!(judged > 0, "the folder has no consensus beside its certificates");
}

fn unpacked(path: &Path) -> String {
    let done = Command::new("xz").arg("-dc").arg(path).output().unwrap();
    assert!(done.status.success(), "{}", path.display());
    String::from_utf8(done.stdout).unwrap()
}

/// Returns `text` without the client's own notes, which are the lines that begin with `@`.
fn without_notes(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('@')).flat_map(|line| [line, "\n"]).collect()
}

/// Returns the documents that an authority of ours publishes about `count` relays, which include
/// the authority's own relay.
fn own_documents(count: u64) -> Documents {
    let mut rng = stream(1, 0, "authority");
    let identity = IdentityKey::generate(&mut rng).unwrap();
    let keys = identity.certify(&mut rng, NOW - 100, NOW + 90_000).unwrap();
    let certs = keys.certificate().to_owned();
    let relays: Vec<RelayKeys> =
        (0..count).map(|_| RelayKeys::generate(&mut rng, NOW).unwrap()).collect();
    let about = About {
        nickname: "auth".to_owned(),
        identity: identity.identity(),
        relay: relays[0].rsa_identity(),
        address: Ipv4Addr::new(192, 0, 2, 1),
        dir_port: 9030,
        or_port: 9001,
        contact: "somebody".to_owned(),
    };
    let settings = Settings {
        judgement: Judgement { young: true, ..Judgement::default() },
        first: First::default(),
        params: BTreeMap::from([("circwindow".to_owned(), 900)]),
        ..Settings::default()
    };
    let mut authority = Authority::new(about, settings, keys);
    for (number, keys) in (0..).zip(&relays) {
        let text = description(number).sign(keys, NOW).unwrap();
        authority.upload(NOW, &text, None).unwrap();
    }
    let room = Room { running: 100, others: 100 };
    for probe in authority.probes(NOW, room) {
        authority.probed(NOW, &probe.target, true);
    }
    let documents = authority.publish(NOW).unwrap();
    let microdescs = documents.microdescs.values().map(|(text, _)| &text[..]).collect();
    Documents { consensus: documents.microdesc.clone(), certs, microdescs }
}

fn description(number: u8) -> Description {
    let rules: &[&str] = if number.is_multiple_of(2) { &["accept *:443"] } else { &["reject *:*"] };
    Description {
        nickname: format!("relay{number}"),
        address: Ipv4Addr::new(192, 0, number, 1),
        orport: 9001,
        dir_port: 0,
        v6: None,
        platform: "Anabranch 0.1.0 on Linux".to_owned(),
        protocols: "FlowCtrl=1-2 Link=4-5 LinkAuth=3 Relay=2-4".to_owned(),
        bandwidth: [1_000_000; 3],
        history: BandwidthHistory::default(),
        uptime: 100,
        contact: None,
        family: Vec::new(),
        family_keys: Vec::new(),
        policy: ExitPolicy::parse(rules).unwrap(),
        directory_cache: true,
        bridge: None,
    }
}
