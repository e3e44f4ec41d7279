use anabranch_multipath::seed::{Stream, stream};

use super::*;

const DAY: u64 = 86_400;
const NOW: u64 = 1_800_000_000;

/// Relays numbered from 0 to below `count`, with equal weights. Some are not listed (`gone`) or
/// not allowed.
#[derive(Clone)]
struct RelayNetwork {
    count: u32,
    gone: Vec<u32>,
    forbidden: Vec<u32>,
}

impl Listing<u32> for RelayNetwork {
    fn count(&self) -> usize {
        self.count as usize - self.gone.len()
    }

    fn lists(&self, id: u32) -> bool {
        id < self.count && !self.gone.contains(&id)
    }

    fn allows(&self, id: u32) -> bool {
        !self.forbidden.contains(&id)
    }

    fn draw(&self, taken: &dyn Fn(u32) -> bool, rng: &mut dyn Rng) -> Option<u32> {
        let free: Vec<u32> = (0..self.count).filter(|&id| self.lists(id) && !taken(id)).collect();
        let last = free.len().checked_sub(1)?;
        Some(free[below(last as u64 + 1, rng) as usize])
    }
}

/// A client and the relays that it knows.
struct World {
    town: RelayNetwork,
    guards: Guards<u32>,
    rng: Stream,
    now: u64,
    keys: u64,
}

fn world(count: u32) -> World {
    let town = RelayNetwork { count, gone: Vec::new(), forbidden: Vec::new() };
    let (guards, rng) = (Guards::restore(Vec::new()), stream(1, 0, "guards"));
    let mut world = World { town, guards, rng, now: NOW, keys: 0 };
    world.renew();
    world
}

impl World {
    fn renew(&mut self) -> bool {
        let dated = (self.now, true);
        let params = GuardParams::default();
        self.guards.renew(self.now, dated, &params, &self.town, &mut self.rng)
    }

    fn begin(&mut self) -> (u64, Choice<u32>) {
        self.begin_without(&[])
    }

    fn begin_without(&mut self, avoid: &[u32]) -> (u64, Choice<u32>) {
        self.keys += 1;
        let circuit = (self.keys, Purpose::Traffic);
        let avoided = |id| avoid.contains(&id);
        let (now, rng) = (self.now, &mut self.rng);
        let choice = self.guards.choose(now, circuit, &avoided, &self.town, rng).unwrap();
        (self.keys, choice)
    }

    fn succeed(&mut self, key: u64) -> bool {
        self.guards.succeeded(self.now, key, &mut self.rng)
    }

    /// Builds a circuit through each primary guard, which confirms the guard, and closes the
    /// circuit again.
    fn confirm_primary(&mut self) -> Vec<u32> {
        let primary = self.guards.primary().to_vec();
        for place in 0..primary.len() {
            let (key, choice) = self.begin_without(&primary[..place]);
            assert_eq!(choice.id, primary[place]);
            self.succeed(key);
            self.guards.closed(key);
        }
        primary
    }

    /// Makes circuits fail until a guard that is not primary is chosen. Returns the key and the
    /// guard of the last circuit.
    fn beyond_primary(&mut self) -> (u64, Choice<u32>) {
        loop {
            let (key, choice) = self.begin();
            if choice.readiness == Readiness::IfNoBetter {
                return (key, choice);
            }
            self.guards.failed(self.now, key);
        }
    }
}

#[test]
fn the_sample_has_as_many_as_are_asked_for_and_no_more() {
    assert_eq!(world(1000).guards.kept().count(), 20);
    assert_eq!(world(7).guards.kept().count(), 7, "all that there are");
    let mut world = world(1000);
    let few: Vec<u32> = world.guards.kept().map(|kept| kept.id).take(15).collect();
    world.town.forbidden = few;
    assert!(world.renew());
    assert_eq!(world.guards.kept().count(), 35, "until twenty of them can be used");
    world.town.forbidden = (0..1000).collect();
    world.renew();
    assert_eq!(world.guards.kept().count(), 60, "and never more than sixty");
}

#[test]
fn the_first_primary_guard_is_used_and_becomes_confirmed() {
    let mut world = world(1000);
    let first = world.guards.primary()[0];
    for _ in 0..20 {
        let (key, choice) = world.begin();
        assert_eq!(choice, Choice { id: first, readiness: Readiness::OnCompletion });
        assert!(world.succeed(key), "at once");
    }
    let confirmed: Vec<u32> =
        world.guards.kept().filter(|kept| kept.confirmed.is_some()).map(|kept| kept.id).collect();
    assert_eq!(confirmed, [first]);
    assert_eq!(world.guards.primary()[0], first);
}

#[test]
fn directory_requests_are_shared_by_three() {
    let mut world = world(1000);
    let mut used: Vec<u32> = (0..100)
        .map(|key| {
            let circuit = (key, Purpose::Directory);
            let (now, rng) = (world.now, &mut world.rng);
            world.guards.choose(now, circuit, &|_| false, &world.town, rng).unwrap().id
        })
        .collect();
    used.sort_unstable();
    used.dedup();
    let mut primary = world.guards.primary().to_vec();
    primary.sort_unstable();
    assert_eq!(used, primary);
}

#[test]
fn a_guard_that_does_not_go_with_the_exit_is_passed_over_for_that_circuit() {
    let mut world = world(1000);
    let primary = world.guards.primary().to_vec();
    assert_eq!(world.begin_without(&primary[..1]).1.id, primary[1]);
    assert_eq!(world.begin().1.id, primary[0]);
}

#[test]
fn the_legs_of_a_circuit_enter_by_the_first_primary_guards() {
    let mut world = world(1000);
    let legs = |world: &mut World, keys: &[u64], avoid: &[u32]| {
        let (now, town) = (world.now, world.town.clone());
        let avoid = |id| avoid.contains(&id);
        let chosen = world.guards.choose_legs(now, keys, &avoid, &town, &mut world.rng);
        chosen.into_iter().map(|leg| leg.id).collect::<Vec<u32>>()
    };
    let primary = world.guards.primary().to_vec();
    assert_eq!(legs(&mut world, &[1, 2], &[]), primary[..2]);
    assert_eq!(legs(&mut world, &[3, 4, 5], &[]), primary);
    assert_eq!(legs(&mut world, &[6, 7], &primary[..1]), primary[1..]);
    world.guards.failed(world.now, 1);
    assert_eq!(legs(&mut world, &[8, 9], &[]), primary[1..], "the first cannot be reached");
    let four = legs(&mut world, &[10, 11, 12, 13], &[]);
    assert_eq!(four[..2], primary[1..], "then others of the sample, each once");
    assert!(four[2] != four[3] && !primary.contains(&four[2]) && !primary.contains(&four[3]));
    let everybody: Vec<u32> = (0..1000).collect();
    assert_eq!(legs(&mut world, &[14], &everybody), []);
}

#[test]
fn as_many_guards_are_in_use_as_the_consensus_says_or_the_circuit_has_legs() {
    let mut world = world(1000);
    let params = GuardParams { primary_to_use: 2, ..GuardParams::default() };
    let (now, town) = (world.now, world.town.clone());
    world.guards.renew(now, (now, true), &params, &town, &mut world.rng);
    let primary = world.guards.primary().to_vec();
    for (legs, in_use) in [(1, 2), (2, 2), (3, 3)] {
        let keys: Vec<u64> = (100 * legs..101 * legs).collect();
        let mut circuit =
            || world.guards.choose_legs(now, &keys, &|_| false, &town, &mut world.rng);
        let entries: Vec<u32> = (0..50).flat_map(|_| circuit()).map(|leg| leg.id).collect();
        let used = |guard: &&u32| entries.contains(guard);
        assert_eq!(primary.iter().filter(used).count(), in_use, "{legs} legs");
        assert!(entries.iter().all(|guard| primary[..in_use].contains(guard)), "{legs} legs");
    }
    let one: Vec<u32> = (0..50).map(|_| world.begin().1.id).collect();
    assert!(primary[..2].iter().all(|guard| one.contains(guard)), "streams' circuits: {one:?}");
}

#[test]
fn until_a_guard_is_over_nothing_changes() {
    let mut world = world(1000);
    world.confirm_primary();
    world.town.gone = vec![world.guards.primary()[1]];
    world.renew();
    for _ in 0..40 {
        let (sample, over) = (world.guards.kept().count(), world.guards.next_over().unwrap());
        assert!(over > world.now);
        let ids = |world: &World| world.guards.kept().map(|kept| kept.id).collect::<Vec<u32>>();
        let before = ids(&world);
        world.now = over - 1;
        world.renew();
        assert_eq!(ids(&world), before, "{sample} guards, a second before");
        world.now = over;
        world.renew();
        assert_ne!(ids(&world), before);
    }
}

#[test]
fn a_guard_that_fails_is_tried_again_by_the_schedule() {
    let mut world = world(1000);
    let primary = world.guards.primary().to_vec();
    let (key, _) = world.begin();
    world.guards.failed(world.now, key);
    assert_eq!(world.begin().1.id, primary[1]);
    world.now += 599;
    assert_eq!(world.begin().1.id, primary[1]);
    world.now += 1;
    assert_eq!(world.begin().1.id, primary[0], "after ten minutes");
}

#[test]
fn a_circuit_beyond_the_primary_guards_waits_for_a_better_one() {
    let mut world = world(1000);
    let primary = world.confirm_primary();
    let (first, best) = world.beyond_primary();
    let (other, worse) = world.begin();
    assert!(!primary.contains(&best.id) && worse.id != best.id, "each for one circuit at a time");
    assert!(!world.succeed(first), "not at once");
    assert_eq!(world.guards.ready(world.now), [first], "but none is better");
    world.guards.closed(first);
    let (again, choice) = world.begin();
    assert_eq!(choice, best, "it is confirmed now");
    assert!(!world.succeed(other));
    assert_eq!(world.guards.ready(world.now), [], "the best one is under way");
    world.now += 16;
    assert_eq!(world.guards.ready(world.now), [other], "and is not waited for longer");
    assert!(!world.succeed(again));
    assert_eq!(world.guards.ready(world.now), [again]);
}

#[test]
fn while_a_primary_guard_may_be_reached_others_wait() {
    let mut world = world(1000);
    world.confirm_primary();
    let (spare, _) = world.beyond_primary();
    world.now += 600;
    let (retried, choice) = world.begin();
    assert_eq!(choice.readiness, Readiness::OnCompletion, "their time has come again");
    world.succeed(spare);
    assert_eq!(world.guards.ready(world.now), []);
    assert!(world.guards.is_waiting());
    assert!(world.succeed(retried));
    assert_eq!(world.guards.outdated(world.now + 600), []);
    assert_eq!(world.guards.outdated(world.now + 601), [spare]);
}

#[test]
fn a_success_after_a_long_silence_blames_the_network_for_what_failed() {
    let mut world = world(1000);
    let primary = world.confirm_primary();
    let (spare, _) = world.beyond_primary();
    let (other, _) = world.begin();
    assert!(!world.succeed(spare));
    assert_eq!(world.begin().1.readiness, Readiness::IfNoBetter, "something worked just before");
    world.now += 601;
    (0..3).for_each(|_| {
        let (key, _) = world.begin();
        world.guards.failed(world.now, key);
    });
    assert!(!world.succeed(other), "nothing worked for ten minutes");
    assert_eq!(world.guards.ready(world.now), []);
    assert_eq!(world.begin().1.id, primary[0], "is tried before its time");
}

#[test]
fn a_guard_that_becomes_primary_by_its_first_circuit_is_used_at_once() {
    let mut world = world(1000);
    let (key, spare) = world.beyond_primary();
    assert!(world.succeed(key), "none of the primary guards was ever reached");
    assert_eq!(world.guards.primary()[0], spare.id);
}

#[test]
fn when_none_is_left_all_are_tried_again() {
    let mut world = world(5);
    let first = world.guards.primary()[0];
    let mut tried = Vec::new();
    for _ in 0..5 {
        let (key, choice) = world.begin();
        tried.push(choice.id);
        world.guards.failed(world.now, key);
    }
    tried.sort_unstable();
    assert_eq!(tried, [0, 1, 2, 3, 4]);
    assert_eq!(world.begin().1.id, first);
}

#[test]
fn guards_leave_when_their_time_is_over_or_they_are_long_gone() {
    let mut world = world(1000);
    let (key, choice) = world.begin();
    world.succeed(key);
    let kept: Vec<SampledGuard<u32>> = world.guards.kept().cloned().collect();
    assert!(kept.iter().all(|kept| kept.added <= NOW && kept.added + 12 * DAY >= NOW));
    world.town.gone = vec![kept[5].id];
    world.renew();
    let is_there = |world: &World, id| world.guards.kept().any(|kept| kept.id == id);
    assert!(is_there(&world, kept[5].id), "for a while");
    world.now += 21 * DAY;
    world.renew();
    assert!(!is_there(&world, kept[5].id));
    world.now = NOW + 121 * DAY;
    let (later, _) = world.begin();
    world.succeed(later);
    world.renew();
    let old = kept.iter().filter(|kept| is_there(&world, kept.id)).count();
    assert_eq!(old, 0, "all were drawn four months ago");
    assert_ne!(world.guards.primary()[0], choice.id);
}

#[test]
fn what_is_old_stays_while_it_was_confirmed_lately() {
    let mut world = world(1000);
    world.now += 100 * DAY;
    world.renew();
    let (key, choice) = world.begin();
    world.succeed(key);
    world.now += 30 * DAY;
    world.renew();
    assert_eq!(world.guards.primary()[0], choice.id);
    assert_eq!(world.guards.kept().filter(|kept| kept.added + 120 * DAY < world.now).count(), 1);
}

#[test]
fn a_consensus_that_is_not_live_removes_nobody() {
    let mut world = world(1000);
    world.now += 200 * DAY;
    let params = GuardParams::default();
    let rng = &mut world.rng;
    let changed = world.guards.renew(world.now, (NOW, false), &params, &world.town, rng);
    assert!(!changed);
    assert!(world.renew());
}

#[test]
fn what_is_kept_comes_back_in_its_order() {
    let mut world = world(1000);
    for _ in 0..3 {
        let (key, _) = world.begin();
        world.succeed(key);
        let (key, _) = world.begin();
        world.guards.failed(world.now, key);
    }
    let primary = world.guards.primary().to_vec();
    world.guards = Guards::restore(world.guards.kept().cloned().collect());
    world.renew();
    assert_eq!(world.guards.primary(), primary);
}

#[test]
fn samples_apart_change_only_well_beyond_the_bound() {
    let town = RelayNetwork { count: 1000, gone: Vec::new(), forbidden: Vec::new() };
    let params = GuardParams::default();
    let mut instances: Instances<u32> = Instances::restore(Vec::new(), Vec::new(), Vec::new());
    let mut at = |allowed| {
        let warn = instances.select(allowed, &town, &params);
        (instances.current(), warn)
    };
    assert_eq!(at(1000), (Instance::Default, false));
    assert_eq!(at(195), (Instance::Default, false), "just below");
    assert_eq!(at(189), (Instance::Restricted, false));
    assert_eq!(at(205), (Instance::Restricted, false), "just above");
    assert_eq!(at(211), (Instance::Default, false));
    assert_eq!(at(9), (Instance::Restricted, true));
    assert_eq!(at(8), (Instance::Restricted, false), "warned once");
}

/// Checks the bounds after each step of random sequences of built circuits, failures and new
/// consensuses.
#[test]
fn whatever_happens_the_bounds_hold() {
    for seed in 0..40 {
        let mut world = world(20 + 11 * seed as u32);
        world.rng = stream(seed, 0, "history");
        let mut open: Vec<u64> = Vec::new();
        for _ in 0..400 {
            let chance = below(100, &mut world.rng);
            world.now += below(6 * 3600, &mut world.rng);
            match chance {
                0..50 => {
                    let key = world.begin().0;
                    open.push(key);
                }
                50..70 => drop(open.pop().map(|key| world.succeed(key))),
                70..85 => drop(open.pop().map(|key| world.guards.failed(world.now, key))),
                85..90 => drop(open.pop().map(|key| world.guards.closed(key))),
                90..95 => {
                    world.town.gone = (0..below(9, &mut world.rng) as u32).collect();
                    world.renew();
                }
                _ => {
                    world.guards.ready(world.now);
                    world.guards.outdated(world.now);
                }
            }
            let sample: Vec<u32> = world.guards.kept().map(|kept| kept.id).collect();
            let mut once = sample.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), sample.len(), "nobody twice");
            let most = GuardParams::default().most_sampled(world.town.count as usize);
            assert!(sample.len() <= most, "{} of {most}", sample.len());
            assert!(world.guards.primary().len() <= 3);
            assert!(world.guards.primary().iter().all(|id| sample.contains(id)));
        }
    }
}

/// A guard is used for at most 120 days. It is used for at least 48 days: a confirmed guard has at
/// least 60 days, less a shift of its stored dates by 12 days. A guard's successors were drawn at
/// the same time as the guard.
#[test]
fn clients_of_a_simulation_meet_few_relays_in_a_year() {
    let mut met = Vec::new();
    for client in 0..300 {
        let mut world = world(500);
        world.rng = stream(client, 0, "simulation");
        world.guards = Guards::restore(Vec::new());
        let mut seen = Vec::new();
        for _ in 0..365 {
            world.now += DAY;
            world.renew();
            let (key, choice) = world.begin();
            world.succeed(key);
            world.guards.closed(key);
            seen.push(choice.id);
        }
        seen.sort_unstable();
        seen.dedup();
        met.push(seen.len());
    }
    met.sort_unstable();
    assert!(met[0] >= 365 / 120, "{met:?}");
    assert!(met[299] <= 365 / 48 + 1, "{met:?}");
}
