use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::OnceLock;

use anabranch_multipath::seed::stream;

use super::*;
use crate::directory::descriptor::Description;
use crate::wire::keys::RelayKeys;

const NOW: u64 = 1_800_000_000;
const EVERY: u64 = 1280;
const OWN: [u8; 20] = [0xff; 20];

fn roll(per_address: usize) -> Roll {
    let rules = Rules { per_address, ..Rules::default() };
    Roll::new(rules, Reach { holds: 2700, every: EVERY, ipv6: false })
}

/// A relay of this number, at this address: all are made of one descriptor, since keys take long to make.
fn entry(number: u32, at: Ipv4Addr) -> Entry {
    static ONE: OnceLock<Entry> = OnceLock::new();
    let mut entry = ONE.get_or_init(one).clone();
    let mut id = [0; 32];
    id[..4].copy_from_slice(&number.to_be_bytes());
    entry.described.ed_identity = id;
    entry.described.rsa_identity.copy_from_slice(&id[..20]);
    entry.digest.copy_from_slice(&id[..20]);
    entry.described.addresses = vec![(at, 9001).into()];
    entry.reach = vec![((at, 9001).into(), None)];
    entry
}

fn one() -> Entry {
    let keys = RelayKeys::generate(&mut stream(1, 0, "relay"), NOW).unwrap();
    let at = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9001);
    let description = Description::new("relay".to_owned(), at, "Anabranch".to_owned());
    let text = description.sign(&keys, NOW).unwrap();
    Entry::published(NOW, &text, &Rules::default()).unwrap()
}

fn id(number: u32) -> [u8; 20] {
    entry(number, Ipv4Addr::LOCALHOST).described.rsa_identity
}

/// An address of its own for each number, in one part of the Internet up to 65,535.
fn apart(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x5000_0000 + number)
}

fn from(address: Ipv4Addr) -> Option<Origin> {
    Some(Origin::of(Some(IpAddr::V4(address))))
}

fn answer(roll: &mut Roll, now: u64, number: u32, at: Ipv4Addr) {
    let target = Target { addresses: vec![(at, 9001).into()], rsa: id(number), ed25519: None };
    roll.observe(now, &target, true);
}

/// The first so many relays, each at an address of its own, all of which run.
fn of_running(count: u32) -> Roll {
    let mut roll = roll(2);
    for number in 0..count {
        roll.admit(NOW, entry(number, apart(number)), from(apart(number))).unwrap();
        answer(&mut roll, NOW, number, apart(number));
    }
    roll
}

/// A few links: those that are not there hold theirs for a minute, those that run for no time at all.
struct Links {
    most: usize,
    busy: Vec<(u64, Target)>,
    /// Who was probed when, last.
    asked: BTreeMap<[u8; 20], u64>,
}

impl Links {
    fn step(&mut self, roll: &mut Roll, now: u64, runs: impl Fn(&Target) -> bool) {
        for (_, target) in self.busy.extract_if(.., |(since, _)| now - *since >= 60) {
            roll.observe(now, &target, false);
        }
        let running = self.most - self.busy.len();
        let others = (self.most / 2).saturating_sub(self.busy.len());
        for Probe { target, .. } in roll.probes(now, &OWN, Room { running, others }) {
            self.asked.insert(target.rsa, now);
            match runs(&target) {
                true => roll.observe(now, &target, true),
                false => self.busy.push((now, target)),
            }
        }
    }
}

#[test]
fn thousands_that_are_not_there_delay_nobody_who_runs() {
    const LIVE: u32 = 50;
    let mut roll = of_running(LIVE);
    let mut links = Links { most: 10, busy: Vec::new(), asked: BTreeMap::new() };
    let is_live = |target: &Target| (0..LIVE).chain([900_000]).any(|n| id(n) == target.rsa);
    let mut strangers = 1000;
    for now in NOW..NOW + 4 * EVERY {
        // Ten a second, each from a visitor of its own, as from a great many machines.
        for _ in 0..10 {
            strangers += 1;
            let _ = roll.admit(now, entry(strangers, apart(strangers)), from(apart(strangers)));
        }
        if now == NOW + 2000 {
            roll.admit(now, entry(900_000, apart(900_000)), from(apart(900_000))).unwrap();
        }
        links.step(&mut roll, now, is_live);
        let late = (0..LIVE).filter(|n| now - links.asked.get(&id(*n)).unwrap_or(&NOW) > EVERY + 5);
        assert_eq!(late.count(), 0, "after {} s", now - NOW);
    }
    assert_eq!(roll.running(NOW + 4 * EVERY, &OWN), LIVE as usize + 1, "and one that was new");
    assert!(roll.entries.len() <= 2_000 + LIVE as usize + 1, "{}", roll.entries.len());
    assert_eq!(roll.pasts().count(), LIVE as usize + 1, "of the others nothing is kept");
    assert_eq!(roll.pins.iter().count(), roll.entries.len());
}

#[test]
fn visitors_have_room_for_a_few_that_never_answered_and_the_asked_make_way() {
    let (mut roll, visitor) = (roll(2), from(apart(0)));
    for number in 0..32 {
        roll.admit(NOW, entry(number, apart(number)), visitor).unwrap();
    }
    let one_more = |roll: &mut Roll, origin| roll.admit(NOW, entry(40, apart(40)), origin);
    assert_eq!(one_more(&mut roll, visitor), Err(Refusal::Full));
    let others = Room { running: 1, others: 1 };
    let asked = roll.probes(NOW, &OWN, others).pop().expect("the first are asked at once").target;
    roll.observe(NOW, &asked, false);
    assert!(one_more(&mut roll, visitor).is_ok());
    assert!(roll.get(&asked.rsa).is_none() && roll.dropped() == BTreeSet::from([asked.rsa]));
    let again = roll.admit(NOW, entry(41, apart(41)), visitor);
    assert_eq!(again, Err(Refusal::Full), "the others were not asked yet");
    assert!(roll.admit(NOW, entry(41, apart(41)), from(apart(1))).is_ok());
    answer(&mut roll, NOW, 5, apart(5));
    assert!(roll.admit(NOW, entry(42, apart(42)), visitor).is_ok(), "one has answered");
}

#[test]
fn nobody_keeps_a_relay_from_its_own_address() {
    let (mut roll, here) = (roll(2), apart(7));
    for number in 0..8 {
        roll.admit(NOW, entry(number, here), from(apart(100 + number))).unwrap();
    }
    assert_eq!(roll.admit(NOW, entry(9, here), from(here)), Err(Refusal::Full));
    for Probe { target, .. } in roll.probes(NOW, &OWN, Room { running: 9, others: 9 }) {
        roll.observe(NOW + 1, &target, false);
    }
    roll.admit(NOW + 2, entry(9, here), from(here)).unwrap();
    answer(&mut roll, NOW + 3, 9, here);
    for number in 20..40 {
        let _ = roll.admit(NOW + 4, entry(number, here), from(apart(number)));
        for Probe { target, .. } in roll.probes(NOW + 4, &OWN, Room { running: 9, others: 9 }) {
            roll.observe(NOW + 4, &target, false);
        }
    }
    assert!(roll.get(&id(9)).is_some_and(Entry::is_known), "who answers stays");
    assert_eq!(roll.entries.len(), 8);
    let mut free = super::Roll::new(Rules { per_address: 0, ..Rules::default() }, roll.reach);
    assert!((0..99).all(|n| free.admit(NOW, entry(n, here), from(here)).is_ok()));
}

#[test]
fn two_of_one_address_count_the_authority_first_and_then_the_fastest() {
    let (mut roll, here) = (roll(2), apart(7));
    for (number, bandwidth) in [(1, 50), (2, 90), (3, 70), (4, 90), (5, 10)] {
        let mut entry = entry(number, here);
        entry.said.bandwidth = bandwidth;
        roll.admit(NOW, entry, from(here)).unwrap();
        if number != 2 {
            answer(&mut roll, NOW, number, here);
        }
    }
    roll.admit(NOW, entry(6, apart(6)), from(here)).unwrap();
    let ids = |roll: &Roll, own: u32| -> Vec<[u8; 20]> {
        roll.judged(NOW, &id(own)).into_iter().map(|(id, ..)| *id).collect()
    };
    assert_eq!(ids(&roll, 9), [3, 4, 6].map(id), "one that does not run takes nobody's place");
    assert_eq!(ids(&roll, 5), [4, 5, 6].map(id));
    answer(&mut roll, NOW, 2, here);
    assert_eq!(ids(&roll, 9), [2, 4, 6].map(id));
    roll.rules.per_address = 0;
    assert_eq!(ids(&roll, 9).len(), 6);
}

#[test]
fn a_clock_that_is_set_a_day_forward_and_back_costs_nothing() {
    const AHEAD: u64 = 30 * 3600;
    let mut roll = of_running(3);
    roll.shift(NOW + AHEAD, AHEAD as i64);
    roll.forget(NOW + AHEAD, 1_000);
    assert_eq!((roll.current(NOW + AHEAD).count(), roll.running(NOW + AHEAD, &OWN)), (0, 0));
    assert_eq!(roll.probes(NOW + AHEAD, &OWN, Room { running: 9, others: 9 }), []);
    roll.forget(NOW + AHEAD + 3600, 1_000 + 3600);
    roll.shift(NOW + 3600, -(AHEAD as i64));
    roll.forget(NOW + 3600, 1_000 + 3600);
    assert_eq!((roll.current(NOW + 3600).count(), roll.running(NOW, &OWN)), (3, 3));
    assert_eq!(roll.probes(NOW + 3600, &OWN, Room { running: 9, others: 9 }).len(), 3);
    assert_eq!(roll.dropped().len(), 0);
    let (late, mut steady) = (NOW + GRACE + 3600, 10_000);
    roll.forget(late, steady);
    assert_eq!((roll.entries.len(), roll.current(late).count()), (3, 0), "now it is old");
    steady += GRACE;
    roll.forget(late + GRACE, steady);
    assert_eq!((roll.entries.len(), roll.dropped().len(), roll.pasts().count()), (0, 3, 3));
}

#[test]
fn what_was_taken_by_a_clock_of_the_future_makes_way_for_what_is_of_now() {
    let mut roll = of_running(1);
    let mut early = entry(0, apart(0));
    (early.described.published, early.digest) = (NOW + 90_000, [9; 20]);
    roll.admit(NOW + 90_000, early, None).unwrap();
    assert_eq!(roll.current(NOW).count(), 0, "nobody is told of what is not yet");
    let mut now = entry(0, apart(0));
    (now.described.published, now.digest) = (NOW + 60, [8; 20]);
    assert!(roll.admit(NOW + 60, now, None).is_ok());
    assert_eq!((roll.current(NOW + 60).count(), roll.running(NOW + 60, &OWN)), (1, 1));
}
