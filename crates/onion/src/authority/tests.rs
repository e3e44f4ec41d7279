use std::sync::OnceLock;

use anabranch_multipath::seed::stream;

use super::*;
use crate::directory::bandwidth::BandwidthHistory;
use crate::directory::descriptor::{Description, RelayDocuments};
use crate::directory::policy::ExitPolicy;
use crate::test_keys::relay_keys;
use crate::wire::dirkeys::IdentityKey;
use crate::wire::keys::RelayKeys;
use crate::wire::netdoc::{Unproven, parse_certs, parse_microdescs};

const NOW: u64 = 1_800_000_000;

/// Returns an identity key. It is generated only once, because this is slow.
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

fn relay(number: u64) -> &'static RelayKeys {
    relay_keys(number, "relay")
}

fn description(number: u64) -> Description {
    Description {
        nickname: format!("relay{number}"),
        address: Ipv4Addr::new(192, 0, number as u8, 1),
        orport: 9001,
        dir_port: 0,
        v6: None,
        platform: "Anabranch 0.1.0 on Linux".to_owned(),
        protocols: "FlowCtrl=1-2 Link=4-5 LinkAuth=3 Relay=2-4".to_owned(),
        bandwidth: [1_000_000 * (number + 1); 3],
        history: BandwidthHistory::default(),
        uptime: 100,
        contact: None,
        family: Vec::new(),
        family_keys: Vec::new(),
        policy: ExitPolicy::parse(&["accept *:80", "accept *:443", "reject *:*"]).unwrap(),
        directory_cache: true,
        bridge: None,
    }
}

fn descriptor(number: u64, now: u64) -> String {
    description(number).sign(relay(number), now).unwrap()
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

fn is_new(taken: &Result<UploadOutcome, Refusal>) -> bool {
    matches!(taken, Ok(UploadOutcome::New(_)))
}

fn target(number: u64) -> Target {
    let Description { address, orport, .. } = description(number);
    let (rsa, ed) = (relay(number).rsa_identity(), relay(number).ed_identity());
    Target { addresses: vec![(address, orport).into()], rsa, ed25519: Some(ed) }
}

/// Returns an authority that knows the relays 0 (the authority itself) to `count` - 1. All of them
/// answer.
fn authority(count: u64) -> Authority {
    let mut authority = Authority::new(about(), settings(), keys());
    for number in 0..count {
        let taken = authority.receive(NOW, &descriptor(number, NOW - 10));
        assert!(is_new(&taken), "{number}");
        authority.probed(NOW, &target(number), true);
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
        assert_eq!(status.flags.guard, number != 0, "an authority is not a guard");
        assert_eq!(status.bandwidth, 1000 * (number as u32 + 1));
    }
}

#[test]
fn who_does_not_answer_is_not_listed() {
    let mut authority = authority(3);
    authority.probed(NOW + 60, &target(2), true);
    let later = NOW + 150;
    let documents = authority.publish(later).unwrap().clone();
    let listed = proven(&documents.microdesc, later).relays;
    let ids: Vec<[u8; 20]> = listed.iter().map(|relay| relay.rsa_identity).collect();
    let mut expected = [relay(0).rsa_identity(), relay(2).rsa_identity()];
    expected.sort_unstable();
    assert_eq!(ids, expected, "the authority itself, and who answered in the last two minutes");
    assert_eq!(authority.probe_queue(later).len(), 2, "all but itself are asked again");
}

#[test]
fn consensuses_follow_one_another_and_a_clock_that_jumps_begins_anew() {
    let mut authority = authority(1);
    assert_eq!(authority.due(NOW), NOW);
    let now = NOW + 7;
    let first = authority.publish(now).unwrap().times.unwrap();
    assert_eq!((first.valid_after, first.fresh_until), (NOW, NOW + 60), "a whole interval");
    assert_eq!(authority.due(now + 1), NOW + 60);
    let second = authority.publish(NOW + 61).unwrap().times.unwrap();
    assert_eq!(
        (second.valid_after, second.fresh_until, second.valid_until),
        (NOW + 60, NOW + 120, NOW + 240)
    );
    assert_eq!(authority.due(NOW + 30), NOW + 30, "the clock has gone back");
    let again = authority.publish(NOW + 30).unwrap().times.unwrap();
    assert_eq!(again.valid_after, NOW);
}

#[test]
fn the_first_consensus_waits_for_relays_but_not_for_ever() {
    let first = First { relays: 2, seconds: 30 };
    let mut authority = Authority::new(about(), Settings { first, ..settings() }, keys());
    assert_eq!(authority.due(NOW), NOW + 30);
    for number in 1..3 {
        authority.receive(NOW, &descriptor(number, NOW)).unwrap();
        authority.probed(NOW + 5, &target(number), number == 1);
    }
    assert_eq!((authority.due(NOW + 5), authority.running(NOW + 5)), (NOW + 30, 1));
    authority.probed(NOW + 6, &target(2), true);
    assert_eq!(authority.due(NOW + 6), NOW + 6);
}

/// Checks that an authority does not replace a stale consensus directly after its start. A new
/// consensus would list no relay, because none has answered yet.
#[test]
fn a_stale_consensus_of_an_earlier_run_is_replaced_once_relays_run_again() {
    let before = authority(2).publish(NOW).unwrap().clone();
    let first = First { relays: 2, seconds: 30 };
    let mut again = Authority::new(about(), Settings { first, ..settings() }, keys());
    again.restore(NOW + 100, [&before.ns, &before.microdesc], "").unwrap();
    assert_eq!(again.due(NOW + 100), NOW + 130);
    for number in 1..3 {
        again.receive(NOW + 101, &descriptor(number, NOW + 101)).unwrap();
        again.probed(NOW + 105, &target(number), true);
    }
    assert_eq!(again.due(NOW + 105), NOW + 105);
    again.publish(NOW + 105).unwrap();
    assert_eq!(again.due(NOW + 106), NOW + 120);
}

#[test]
fn relays_are_probed_in_turns_and_sooner_while_they_are_away() {
    let settings = Settings { probe_every: 40, ..settings() };
    let mut authority = Authority::new(about(), settings, keys());
    (0..3).for_each(|n| drop(authority.receive(NOW, &descriptor(n, NOW))));
    assert_eq!(authority.probe_queue(NOW).len(), 2, "all but itself");
    assert_eq!(authority.probe_queue(NOW + 9), [], "they have been asked");
    authority.probed(NOW, &target(1), true);
    authority.probed(NOW, &target(2), false);
    assert_eq!(authority.probe_queue(NOW + 10), [target(2)]);
    assert_eq!(authority.probe_queue(NOW + 40).len(), 2);
    assert!(is_new(&authority.receive(NOW, &descriptor(1, NOW + 41))));
    assert_eq!(authority.running(NOW + 41), 1, "at the same address it need not answer again");
}

#[test]
fn addresses_of_ipv6_count_where_they_can_be_reached() {
    let v6 = "[2001:db8::1]:9001".parse().unwrap();
    let text = Description { v6: Some(v6), ..description(1) }.sign(relay(1), NOW).unwrap();
    for ipv6 in [false, true] {
        let mut authority = Authority::new(about(), Settings { ipv6, ..settings() }, keys());
        authority.receive(NOW, &text).unwrap();
        let targets = authority.probe_queue(NOW);
        assert_eq!(targets.len(), 1 + usize::from(ipv6));
        authority.probed(NOW, &target(1), true);
        assert_eq!(authority.running(NOW), usize::from(!ipv6), "both must answer");
        targets.iter().for_each(|target| authority.probed(NOW, target, true));
        assert_eq!(authority.running(NOW), 1);
        let consensus = &authority.publish(NOW).unwrap().microdesc;
        assert_eq!(consensus.contains("\na [2001:db8::1]:9001\n"), ipv6);
    }
}

#[test]
fn a_clock_that_is_set_anew_takes_nobody_out() {
    let mut authority = authority(3);
    authority.publish(NOW).unwrap();
    let later = NOW + 3_000;
    assert_eq!(authority.running(later), 0, "for so long nobody has answered");
    authority.shift(later, 3_000);
    assert_eq!(authority.running(later), 2, "or so it seemed");
    assert_eq!(authority.probe_queue(later).len(), 2, "but all are asked again");
    let times = authority.publish(later).unwrap().times.unwrap();
    assert!(times.valid_after <= later && times.fresh_until > later);
    authority.shift(NOW, -3_000);
    assert_eq!((authority.running(NOW + 1), authority.due(NOW + 1)), (2, NOW + 1));
}

#[test]
fn a_consensus_of_the_run_before_is_served_again_and_a_changed_one_is_not() {
    let mut authority = authority(2);
    let before = authority.publish(NOW).unwrap().clone();
    let texts: String = before.microdescs.values().map(|(text, _)| &text[..]).collect();
    let mut again = authority.without_relays();
    let restore =
        |one: &mut Authority, now, ns: &str, md: &str| one.restore(now, [ns, md], &texts).is_ok();
    let half = &before.microdesc[..before.microdesc.len() / 2];
    let bent = before.ns.replace("Bandwidth=1000", "Bandwidth=1001");
    assert!(!restore(&mut again, NOW, &before.ns, half));
    assert!(!restore(&mut again, NOW, &bent, &before.microdesc));
    assert!(!restore(&mut again, NOW + 181, &before.ns, &before.microdesc), "it has expired");
    assert!(!restore(&mut again, NOW, &before.microdesc, &before.ns), "the wrong way round");
    let damaged = |one: &mut Authority, ns: &str, md: &str| one.restore(NOW, [ns, md], &texts);
    let of = |which| Err(Unrestored::Damaged(which));
    assert_eq!(damaged(&mut again, &bent, &before.microdesc), of([true, false]));
    assert_eq!(damaged(&mut again, &before.ns, half), of([false, true]));
    assert_eq!(damaged(&mut again, "", "nonsense"), of([true, true]));
    assert!(restore(&mut again, NOW + 1, &before.ns, &before.microdesc));
    assert_eq!(again.documents().microdescs, before.microdescs);
    assert_eq!(again.due(NOW + 1), NOW + 60);
}

#[test]
fn shared_random_values_are_in_both_flavours_and_outlive_their_consensus() {
    let mut authority = authority(2);
    assert!(!authority.publish(NOW).unwrap().ns.contains("shared-rand"), "of no chance no value");
    let lines = |authority: &mut Authority, now: u64, random: u8| {
        authority.set_entropy([random; 32]);
        let Documents { ns, microdesc, .. } = authority.publish(now).unwrap().clone();
        proven(&microdesc, now + 1);
        let values = |text: &str| -> Vec<String> {
            text.lines()
                .filter(|line| line.starts_with("shared-rand-"))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(values(&ns), values(&microdesc));
        values(&ns)
    };
    let first = lines(&mut authority, NOW, 1);
    assert_eq!((first.len(), lines(&mut authority, NOW + 60, 2)), (1, first.clone()));
    let run = 24 * 60;
    let second = lines(&mut authority, NOW + run, 3);
    assert_eq!(second[0].replace("previous", "current"), first[0]);
    let kept = authority.documents().clone();
    let mut again = authority.without_relays();
    (0..2).for_each(|n| drop(again.receive(NOW, &descriptor(n, NOW))));
    let long_after = NOW + run + 600;
    let late = again.restore(long_after, [&kept.ns, &kept.microdesc], "");
    assert_eq!(late, Err(Unrestored::Useless), "it has expired");
    assert_eq!(lines(&mut again, long_after, 4), second);
}

#[test]
fn what_was_measured_counts_and_claims_count_little_beside_it() {
    let mut authority = authority(3);
    authority.measure(BTreeMap::from([(relay(1).rsa_identity(), 777)]));
    let weight = |authority: &mut Authority, number: u64| {
        let consensus = proven(&authority.publish(NOW).unwrap().microdesc, NOW + 1);
        let id = relay(number).rsa_identity();
        consensus.relays.iter().find(|one| one.rsa_identity == id).unwrap().bandwidth
    };
    assert_eq!([1, 2].map(|number| weight(&mut authority, number)), [777, 20]);
    assert!(authority.documents().ns.contains("\nw Bandwidth=777\n"));
    authority.measure(BTreeMap::new());
    assert_eq!([1, 2].map(|number| weight(&mut authority, number)), [2_000, 3_000]);
    // A relay with an observed bandwidth of 0 gets the minimum weight.
    let unseen = Description { bandwidth: [1 << 30, 1 << 30, 0], ..description(2) };
    authority.receive(NOW, &unseen.sign(relay(2), NOW + 1).unwrap()).unwrap();
    assert_eq!(weight(&mut authority, 2), 1);
}

#[test]
fn two_relays_with_one_identity_are_one() {
    let mut authority = authority(2);
    let thief = Description { nickname: "thief".to_owned(), ..description(1) };
    let [one, two] = [relay(1), relay(2)].map(|keys| keys.files().unwrap());
    // The RSA keys of one relay with the Ed25519 keys of another.
    let mixed = RelayKeys::from_files(|name| {
        let from = if name == "secret_id_key" { &one } else { &two };
        from.iter().find(|file| file.name == name).map(|file| file.content.clone())
    });
    let text = thief.sign(&mixed.unwrap(), NOW).unwrap();
    assert_eq!(authority.receive(NOW, &text), Err(Refusal::Identity));
    let same = thief.sign(relay(1), NOW + 5).unwrap();
    assert!(is_new(&authority.receive(NOW + 5, &same)), "who has the keys is the relay");
    assert_eq!(authority.descriptors(NOW).count(), 2, "the later descriptor holds");
}

#[test]
fn an_extra_info_document_is_taken_if_its_descriptor_names_all_of_it() {
    let mut authority = authority(1);
    let RelayDocuments { server, extra } = description(1).publish(relay(1), NOW).unwrap();
    let cut = |text: &str| text.find("-----BEGIN SIGNATURE").unwrap();
    let other = description(2).publish(relay(2), NOW).unwrap().extra;
    let forged = [&extra[..cut(&extra)], &other[cut(&other)..]].concat();
    assert_eq!(authority.receive(NOW, &(server.clone() + &forged)), Err(Refusal::ExtraText));
    assert!(is_new(&authority.receive(NOW, &(server + &extra))));
    let id = relay(1).rsa_identity();
    assert_eq!(authority.extra(&id).map(|(text, _)| text), Some(&extra[..]));
}

#[test]
fn bad_uploads_are_refused_and_leave_what_is_known() {
    let mut authority = authority(1);
    let mut other = authority.without_relays();
    let good = descriptor(1, NOW - 10);
    assert!(is_new(&other.receive(NOW, &good)));
    assert_eq!(other.receive(NOW, &good), Ok(UploadOutcome::Known));
    assert_eq!(other.receive(NOW, &descriptor(1, NOW - 1000)), Err(Refusal::Older));
    let old = authority.receive(NOW, &descriptor(2, NOW - 90_000));
    assert!(matches!(old, Err(Refusal::Time | Refusal::Document(_))), "{old:?}");
    let ahead = authority.receive(NOW, &descriptor(2, NOW + 50_000));
    assert!(matches!(ahead, Err(Refusal::Time | Refusal::Document(_))), "{ahead:?}");
    let bent = good.replace("Anabranch", "Anabrunch");
    assert!(matches!(authority.receive(NOW, &bent), Err(Refusal::Document(_))));
    assert_eq!(authority.receive(NOW, &(good.clone() + &good)), Err(Refusal::ExtraText));
    let extra = "extra-info relay1 AAAA\nrouter-signature\n";
    assert_eq!(authority.receive(NOW, &(good.clone() + extra)), Err(Refusal::ExtraText));
    let known = authority.stored_relays().count();
    assert_eq!(authority.receive(NOW, &(descriptor(4, NOW - 10) + extra)), Err(Refusal::ExtraText));
    assert_eq!(authority.stored_relays().count(), known, "what is refused pins nobody");
    let huge = "x".repeat(LONGEST_UPLOAD + 1);
    assert!(matches!(authority.receive(NOW, &huge), Err(Refusal::Document(_))));
    assert!(matches!(authority.receive(NOW, ""), Err(Refusal::Document(_) | Refusal::ExtraText)));
    let private = Description { address: Ipv4Addr::new(10, 0, 0, 1), ..description(3) };
    let private = private.sign(relay(3), NOW).unwrap();
    assert!(matches!(authority.receive(NOW, &private), Err(Refusal::Private(_))));
    assert_eq!(authority.flags(NOW).len(), 1);
}

#[test]
fn a_banned_relay_is_refused() {
    let mut settings = settings();
    settings.rules.banned.push(relay(1).rsa_identity());
    let mut authority = Authority::new(about(), settings, keys());
    assert_eq!(authority.receive(NOW, &descriptor(1, NOW)), Err(Refusal::Banned));
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
    let stored_relays: Vec<([u8; 20], StoredRelay)> = authority.stored_relays().collect();
    assert_eq!(stored_relays.len(), 2);
    let mut again = authority.without_relays();
    assert!(stored_relays.iter().all(|(id, past)| again.remember(NOW, id, past.clone())));
    let stranger = StoredRelay { edwards: [9; 32], ..stored_relays[0].1.clone() };
    assert!(!again.remember(NOW, &stored_relays[0].0, stranger));
    assert!(is_new(&again.receive(NOW, &descriptor(1, NOW))));
    assert_eq!(again.running(NOW), 1, "it answered the run before");
    let later = NOW + 80_000;
    assert!(is_new(&authority.receive(later, &descriptor(0, later))));
    assert_eq!(authority.descriptors(later + 9_000).count(), 1, "the other one is a day old");
}

impl Authority {
    /// Uploads a descriptor over a circuit.
    fn receive(&mut self, now: u64, text: &str) -> Result<UploadOutcome, Refusal> {
        self.upload(now, text, None)
    }

    /// Returns the relays to probe, with room for all of them.
    fn probe_queue(&mut self, now: u64) -> Vec<Target> {
        let room = Room { running: 1_000, others: 1_000 };
        self.probes(now, room).into_iter().map(|probe| probe.target).collect()
    }

    /// Returns a new authority that has the same keys and settings, but knows no relays.
    fn without_relays(&self) -> Authority {
        Authority::new(self.about.clone(), self.settings.clone(), keys())
    }
}
