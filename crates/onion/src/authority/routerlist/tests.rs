use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::OnceLock;

use super::*;
use crate::directory::descriptor::Description;
use crate::test_keys::relay_keys;

const NOW: u64 = 1_800_000_000;
const EVERY: u64 = 1280;
const OWN: [u8; 20] = [0xff; 20];

fn routerlist(per_address: usize) -> RouterList {
    let rules = Rules { per_address, ..Rules::default() };
    RouterList::new(rules, ReachSettings { holds: 2700, every: EVERY, ipv6: false })
}

/// Returns an entry with the identity `number` at the address `at`. All entries are copies of one,
/// because generating keys is slow.
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
    let keys = relay_keys(1, "relay");
    let at = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9001);
    let description = Description::new("relay".to_owned(), at, "Anabranch".to_owned());
    let text = description.sign(keys, NOW).unwrap();
    Entry::published(NOW, &text, &Rules::default()).unwrap()
}

fn id(number: u32) -> [u8; 20] {
    entry(number, Ipv4Addr::LOCALHOST).described.rsa_identity
}

/// Returns a different address for each number. Numbers up to 65,535 have addresses in the same
/// /16 network.
fn apart(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x5000_0000 + number)
}

fn from(address: Ipv4Addr) -> Option<Origin> {
    Some(Origin::of(Some(IpAddr::V4(address))))
}

fn answer(routerlist: &mut RouterList, now: u64, number: u32, at: Ipv4Addr) {
    let target = Target { addresses: vec![(at, 9001).into()], rsa: id(number), ed25519: None };
    routerlist.observe(now, &target, true);
}

/// Returns a list of `count` running relays, each at a different address.
fn of_running(count: u32) -> RouterList {
    let mut routerlist = routerlist(2);
    for number in 0..count {
        routerlist.admit(NOW, entry(number, apart(number)), from(apart(number))).unwrap();
        answer(&mut routerlist, NOW, number, apart(number));
    }
    routerlist
}

/// Links for probes, at most `most` at the same time. A probe of an absent relay occupies a link
/// for a minute; a probe of a running relay takes no time.
struct Links {
    most: usize,
    busy: Vec<(u64, Target)>,
    /// Time of the last probe of each relay.
    asked: BTreeMap<[u8; 20], u64>,
}

impl Links {
    fn step(&mut self, routerlist: &mut RouterList, now: u64, runs: impl Fn(&Target) -> bool) {
        for (_, target) in self.busy.extract_if(.., |(since, _)| now - *since >= 60) {
            routerlist.observe(now, &target, false);
        }
        let running = self.most - self.busy.len();
        let others = (self.most / 2).saturating_sub(self.busy.len());
        for Probe { target, .. } in routerlist.probes(now, &OWN, Room { running, others }) {
            self.asked.insert(target.rsa, now);
            match runs(&target) {
                true => routerlist.observe(now, &target, true),
                false => self.busy.push((now, target)),
            }
        }
    }
}

#[test]
fn thousands_that_are_not_there_delay_nobody_who_runs() {
    const LIVE: u32 = 50;
    let mut routerlist = of_running(LIVE);
    let mut links = Links { most: 10, busy: Vec::new(), asked: BTreeMap::new() };
    let is_live = |target: &Target| (0..LIVE).chain([900_000]).any(|n| id(n) == target.rsa);
    let mut strangers = 1000;
    for now in NOW..NOW + 4 * EVERY {
        // Ten relays a second, each uploaded from a different address.
        for _ in 0..10 {
            strangers += 1;
            let _ =
                routerlist.admit(now, entry(strangers, apart(strangers)), from(apart(strangers)));
        }
        if now == NOW + 2000 {
            routerlist.admit(now, entry(900_000, apart(900_000)), from(apart(900_000))).unwrap();
        }
        links.step(&mut routerlist, now, is_live);
        let late = (0..LIVE).filter(|n| now - links.asked.get(&id(*n)).unwrap_or(&NOW) > EVERY + 5);
        assert_eq!(late.count(), 0, "after {} s", now - NOW);
    }
    assert_eq!(
        routerlist.running(NOW + 4 * EVERY, &OWN),
        LIVE as usize + 1,
        "and one that was new"
    );
    assert!(routerlist.entries.len() <= 2_000 + LIVE as usize + 1, "{}", routerlist.entries.len());
    assert_eq!(
        routerlist.stored_relays().count(),
        LIVE as usize + 1,
        "of the others nothing is kept"
    );
    assert_eq!(routerlist.pins.iter().count(), routerlist.entries.len());
}

#[test]
fn visitors_have_room_for_a_few_that_never_answered_and_the_asked_make_way() {
    let (mut routerlist, visitor) = (routerlist(2), from(apart(0)));
    for number in 0..32 {
        routerlist.admit(NOW, entry(number, apart(number)), visitor).unwrap();
    }
    let one_more =
        |routerlist: &mut RouterList, origin| routerlist.admit(NOW, entry(40, apart(40)), origin);
    assert_eq!(one_more(&mut routerlist, visitor), Err(Refusal::Full));
    let others = Room { running: 1, others: 1 };
    let asked =
        routerlist.probes(NOW, &OWN, others).pop().expect("the first are asked at once").target;
    routerlist.observe(NOW, &asked, false);
    assert!(one_more(&mut routerlist, visitor).is_ok());
    assert!(
        routerlist.get(&asked.rsa).is_none() && routerlist.dropped() == BTreeSet::from([asked.rsa])
    );
    let again = routerlist.admit(NOW, entry(41, apart(41)), visitor);
    assert_eq!(again, Err(Refusal::Full), "the others were not asked yet");
    assert!(routerlist.admit(NOW, entry(41, apart(41)), from(apart(1))).is_ok());
    answer(&mut routerlist, NOW, 5, apart(5));
    assert!(routerlist.admit(NOW, entry(42, apart(42)), visitor).is_ok(), "one has answered");
}

#[test]
fn nobody_keeps_a_relay_from_its_own_address() {
    let (mut routerlist, here) = (routerlist(2), apart(7));
    for number in 0..8 {
        routerlist.admit(NOW, entry(number, here), from(apart(100 + number))).unwrap();
    }
    assert_eq!(routerlist.admit(NOW, entry(9, here), from(here)), Err(Refusal::Full));
    for Probe { target, .. } in routerlist.probes(NOW, &OWN, Room { running: 9, others: 9 }) {
        routerlist.observe(NOW + 1, &target, false);
    }
    routerlist.admit(NOW + 2, entry(9, here), from(here)).unwrap();
    answer(&mut routerlist, NOW + 3, 9, here);
    for number in 20..40 {
        let _ = routerlist.admit(NOW + 4, entry(number, here), from(apart(number)));
        for Probe { target, .. } in routerlist.probes(NOW + 4, &OWN, Room { running: 9, others: 9 })
        {
            routerlist.observe(NOW + 4, &target, false);
        }
    }
    assert!(routerlist.get(&id(9)).is_some_and(Entry::is_known), "who answers stays");
    assert_eq!(routerlist.entries.len(), 8);
    let mut free =
        super::RouterList::new(Rules { per_address: 0, ..Rules::default() }, routerlist.reach);
    assert!((0..99).all(|n| free.admit(NOW, entry(n, here), from(here)).is_ok()));
}

#[test]
fn two_of_one_address_count_the_authority_first_and_then_the_fastest() {
    let (mut routerlist, here) = (routerlist(2), apart(7));
    for (number, bandwidth) in [(1, 50), (2, 90), (3, 70), (4, 90), (5, 10)] {
        let mut entry = entry(number, here);
        entry.parsed.bandwidth = bandwidth;
        routerlist.admit(NOW, entry, from(here)).unwrap();
        if number != 2 {
            answer(&mut routerlist, NOW, number, here);
        }
    }
    routerlist.admit(NOW, entry(6, apart(6)), from(here)).unwrap();
    let ids = |routerlist: &RouterList, own: u32| -> Vec<[u8; 20]> {
        routerlist.judged(NOW, &id(own)).into_iter().map(|(id, ..)| *id).collect()
    };
    assert_eq!(
        ids(&routerlist, 9),
        [3, 4, 6].map(id),
        "one that does not run takes nobody's place"
    );
    assert_eq!(ids(&routerlist, 5), [4, 5, 6].map(id));
    answer(&mut routerlist, NOW, 2, here);
    assert_eq!(ids(&routerlist, 9), [2, 4, 6].map(id));
    routerlist.rules.per_address = 0;
    assert_eq!(ids(&routerlist, 9).len(), 6);
}

#[test]
fn a_clock_that_is_set_a_day_forward_and_back_costs_nothing() {
    const AHEAD: u64 = 30 * 3600;
    let mut routerlist = of_running(3);
    routerlist.shift(NOW + AHEAD, AHEAD as i64);
    routerlist.forget(NOW + AHEAD, 1_000);
    assert_eq!(
        (routerlist.current(NOW + AHEAD).count(), routerlist.running(NOW + AHEAD, &OWN)),
        (0, 0)
    );
    assert_eq!(routerlist.probes(NOW + AHEAD, &OWN, Room { running: 9, others: 9 }), []);
    routerlist.forget(NOW + AHEAD + 3600, 1_000 + 3600);
    routerlist.shift(NOW + 3600, -(AHEAD as i64));
    routerlist.forget(NOW + 3600, 1_000 + 3600);
    assert_eq!((routerlist.current(NOW + 3600).count(), routerlist.running(NOW, &OWN)), (3, 3));
    assert_eq!(routerlist.probes(NOW + 3600, &OWN, Room { running: 9, others: 9 }).len(), 3);
    assert_eq!(routerlist.dropped().len(), 0);
    let (late, mut steady) = (NOW + GRACE + 3600, 10_000);
    routerlist.forget(late, steady);
    assert_eq!(
        (routerlist.entries.len(), routerlist.current(late).count()),
        (3, 0),
        "now it is old"
    );
    steady += GRACE;
    routerlist.forget(late + GRACE, steady);
    assert_eq!(
        (routerlist.entries.len(), routerlist.dropped().len(), routerlist.stored_relays().count()),
        (0, 3, 3)
    );
}

#[test]
fn what_was_taken_by_a_clock_of_the_future_makes_way_for_what_is_of_now() {
    let mut routerlist = of_running(1);
    let mut early = entry(0, apart(0));
    (early.described.published, early.digest) = (NOW + 90_000, [9; 20]);
    routerlist.admit(NOW + 90_000, early, None).unwrap();
    assert_eq!(routerlist.current(NOW).count(), 0, "nobody is told of what is not yet");
    let mut now = entry(0, apart(0));
    (now.described.published, now.digest) = (NOW + 60, [8; 20]);
    assert!(routerlist.admit(NOW + 60, now, None).is_ok());
    assert_eq!((routerlist.current(NOW + 60).count(), routerlist.running(NOW + 60, &OWN)), (1, 1));
}
