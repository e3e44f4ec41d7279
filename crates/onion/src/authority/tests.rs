use std::sync::OnceLock;

use anabranch_multipath::seed::stream;

use super::*;
use crate::directory::descriptor::Description;
use crate::directory::policy::ExitPolicy;
use crate::wire::dirkeys::IdentityKey;
use crate::wire::keys::RelayKeys;
use crate::wire::netdoc::{Unproven, parse_certs, parse_microdescs};

const NOW: u64 = 1_800_000_000;

/// Made once: keys of this size take a while.
fn identity() -> &'static IdentityKey {
    static KEY: OnceLock<IdentityKey> = OnceLock::new();
    KEY.get_or_init(|| IdentityKey::generate(&mut stream(1, 0, "identity")).unwrap())
}

fn keys() -> AuthorityKeys {
    static FILES: OnceLock<(String, String)> = OnceLock::new();
    let (signing, certificate) = FILES.get_or_init(|| {
        let keys = identity().certify(&mut stream(1, 0, "signing"), NOW - 100, NOW + 90_000);
        let keys = keys.unwrap();
        (keys.to_pem().unwrap(), keys.certificate().to_owned())
    });
    AuthorityKeys::from_files(signing, certificate).unwrap()
}

fn relay(number: u64) -> RelayKeys {
    RelayKeys::generate(&mut stream(number, 0, "relay"), NOW).unwrap()
}

fn description(number: u64) -> Description {
    Description {
        nickname: format!("relay{number}"),
        address: Ipv4Addr::new(192, 0, number as u8, 1),
        orport: 9001,
        v6: None,
        platform: "Anabranch 0.1.0 on Linux".to_owned(),
        protocols: "FlowCtrl=1-2 Link=4-5 LinkAuth=3 Relay=2-4".to_owned(),
        bandwidth: [1_000_000 * (number + 1); 3],
        uptime: 100,
        contact: None,
        family: Vec::new(),
        policy: ExitPolicy::parse(&["accept *:80", "accept *:443", "reject *:*"]).unwrap(),
        directory_cache: true,
    }
}

fn descriptor(number: u64, now: u64) -> String {
    description(number).sign(&relay(number), now).unwrap()
}

fn settings() -> Settings {
    let judgement = Judgement { young: true, ..Judgement::default() };
    let params = BTreeMap::from([("circwindow".to_owned(), 900)]);
    Settings { interval: 60, running_for: 120, judgement, params, ..Settings::default() }
}

fn about() -> About {
    About {
        nickname: "auth".to_owned(),
        identity: identity().identity(),
        relay: relay(0).rsa_identity(),
        address: Ipv4Addr::new(192, 0, 2, 99),
        dir_port: 9030,
        or_port: 9001,
        contact: "somebody".to_owned(),
    }
}

/// An authority that took the descriptors of relays 0 (itself) to `count` - 1, all of which answer.
fn authority(count: u64) -> Authority {
    let mut authority = Authority::new(about(), settings(), keys());
    for number in 0..count {
        let taken = authority.upload(NOW, &descriptor(number, NOW - 10));
        assert_eq!(taken, Ok(Taken::New), "{number}");
        authority.probed(NOW, &relay(number).rsa_identity(), true);
    }
    authority
}

fn proven(text: &str, now: u64) -> crate::wire::netdoc::Consensus {
    let (certs, bad) = parse_certs(keys().certificate()).unwrap();
    assert_eq!((certs.len(), bad), (1, 0));
    Unproven::parse(text).unwrap().prove(&[identity().identity()], &certs, now).unwrap()
}

#[test]
fn what_is_uploaded_is_listed_signed_and_reads_back() {
    let mut authority = authority(4);
    let documents = authority.publish(NOW).unwrap().clone();
    let consensus = proven(&documents.microdesc, NOW + 1);
    assert_eq!(consensus.relays.len(), 4);
    assert_eq!(consensus.params["circwindow"], 900);
    assert_eq!(consensus.weights.len(), 19);
    assert_eq!((consensus.valid_after, consensus.fresh_until), (NOW, NOW + 60));
    let texts: String = documents.microdescs.values().map(|(text, _)| &text[..]).collect();
    let (microdescs, bad) = parse_microdescs(&texts).unwrap();
    assert_eq!((microdescs.len(), bad), (4, 0));
    for status in &consensus.relays {
        let (microdesc, _) =
            microdescs.iter().find(|(microdesc, _)| microdesc.digest == status.microdesc).unwrap();
        let number = (0..4).find(|&n| relay(n).rsa_identity() == status.rsa_identity).unwrap();
        assert_eq!(microdesc.ntor, relay(number).ntor().1);
        assert!(microdesc.exits_to(443, false) && !microdesc.exits_to(22, false));
        assert_eq!(status.flags.authority, number == 0);
        assert!(
            status.flags.exit && status.flags.fast && status.flags.stable && status.flags.v2dir
        );
        assert_eq!(status.flags.guard, number != 0, "an authority is no guard");
        assert_eq!(status.bandwidth, 1000 * (number as u32 + 1));
    }
}

#[test]
fn who_does_not_answer_is_not_listed() {
    let mut authority = authority(3);
    authority.probed(NOW + 60, &relay(2).rsa_identity(), true);
    let later = NOW + 150;
    let documents = authority.publish(later).unwrap().clone();
    let listed = proven(&documents.microdesc, later).relays;
    let ids: Vec<[u8; 20]> = listed.iter().map(|relay| relay.rsa_identity).collect();
    let mut expected = [relay(0).rsa_identity(), relay(2).rsa_identity()];
    expected.sort_unstable();
    assert_eq!(ids, expected, "the authority itself, and who answered in the last two minutes");
    assert_eq!(authority.probes().len(), 2, "all but itself are asked again");
}

#[test]
fn consensuses_follow_one_another_and_a_clock_that_jumps_begins_anew() {
    let mut authority = authority(1);
    assert_eq!(authority.due(NOW), NOW);
    let now = NOW + 7;
    let first = authority.publish(now).unwrap().times.unwrap();
    assert_eq!((first.valid_after, first.fresh_until), (now, NOW + 60));
    assert_eq!(authority.due(now + 1), NOW + 60);
    let second = authority.publish(NOW + 61).unwrap().times.unwrap();
    assert_eq!(
        (second.valid_after, second.fresh_until, second.valid_until),
        (NOW + 60, NOW + 120, NOW + 240)
    );
    assert_eq!(authority.due(NOW + 30), NOW + 30, "the clock has gone back");
    let again = authority.publish(NOW + 30).unwrap().times.unwrap();
    assert_eq!(again.valid_after, NOW + 30);
}

#[test]
fn bad_uploads_are_refused_and_leave_what_is_known() {
    let mut authority = authority(1);
    let mut other = authority.clone_without_keys();
    let good = descriptor(1, NOW - 10);
    assert_eq!(other.upload(NOW, &good), Ok(Taken::New));
    assert_eq!(other.upload(NOW, &good), Ok(Taken::Known));
    assert_eq!(other.upload(NOW, &descriptor(1, NOW - 1000)), Err(Refusal::Older));
    let old = authority.upload(NOW, &descriptor(2, NOW - 90_000));
    assert!(matches!(old, Err(Refusal::Time | Refusal::Document(_))), "{old:?}");
    let ahead = authority.upload(NOW, &descriptor(2, NOW + 50_000));
    assert!(matches!(ahead, Err(Refusal::Time | Refusal::Document(_))), "{ahead:?}");
    let bent = good.replace("Anabranch", "Anabrunch");
    assert!(matches!(authority.upload(NOW, &bent), Err(Refusal::Document(_))));
    assert_eq!(authority.upload(NOW, &(good.clone() + &good)), Err(Refusal::Beside));
    let extra = "extra-info relay1 AAAA\nrouter-signature\n";
    assert_eq!(authority.upload(NOW, &(good.clone() + extra)), Err(Refusal::Beside));
    let huge = "x".repeat(LONGEST_UPLOAD + 1);
    assert!(matches!(authority.upload(NOW, &huge), Err(Refusal::Document(_))));
    assert!(matches!(authority.upload(NOW, ""), Err(Refusal::Document(_) | Refusal::Beside)));
    let private = Description { address: Ipv4Addr::new(10, 0, 0, 1), ..description(3) };
    let private = private.sign(&relay(3), NOW).unwrap();
    assert!(matches!(authority.upload(NOW, &private), Err(Refusal::Private(_))));
    assert_eq!(authority.flags(NOW).len(), 1);
}

#[test]
fn a_banned_relay_is_refused() {
    let mut settings = settings();
    settings.rules.banned.push(relay(1).rsa_identity());
    let mut authority = Authority::new(about(), settings, keys());
    assert_eq!(authority.upload(NOW, &descriptor(1, NOW)), Err(Refusal::Banned));
}

#[test]
fn a_key_whose_time_is_over_signs_nothing_and_what_was_stays() {
    let mut authority = authority(1);
    let before = authority.publish(NOW).unwrap().microdesc.clone();
    assert_eq!(authority.publish(NOW + 100_000).err(), Some(SignatureError::Expired));
    assert_eq!(authority.publish(NOW - 1000).err(), Some(SignatureError::TooEarly));
    assert_eq!(authority.documents().microdesc, before);
}

#[test]
fn descriptors_that_grow_old_are_dropped_and_pasts_are_kept() {
    let mut authority = authority(2);
    let histories: Vec<([u8; 20], Fields)> =
        authority.histories().map(|(id, fields)| (*id, fields)).collect();
    let mut again = super::tests::authority(2);
    assert!(histories.iter().all(|(id, fields)| again.remember(id, *fields)));
    assert!(!again.remember(&histories[0].0, [f64::NAN; 7]));
    let later = NOW + 80_000;
    assert_eq!(authority.upload(later, &descriptor(0, later)), Ok(Taken::New));
    authority.publish(later + 9_000).unwrap();
    assert_eq!(authority.descriptors().count(), 1, "the other one is a day old");
}

impl Authority {
    /// Another one with the same keys, which knows nobody.
    fn clone_without_keys(&self) -> Authority {
        Authority::new(self.about.clone(), self.settings.clone(), keys())
    }
}
