//! Guard fingerprints ("Analysis of Multi-path Onion Routing", section 6.2). A client's set of `m`
//! guards identifies the client if few other clients have the same set.
//!
//! The paper's formula is the number of clients divided by `C(guards, m)`. It is the mean number
//! of clients per set if all sets are equally likely. In practice, guards are drawn by weight, and
//! the mean over clients describes what a client experiences. This module reports both means. A
//! third measure is the effective size ([`Sharing::effective`]): if all sets had this size, their
//! entropy would be that of the observed sets.

use anabranch_multipath::seed::stream;
use anabranch_onion::draw::below;
use anabranch_onion::guards::{GuardParams, Guards};
use serde::{Deserialize, Serialize};

use crate::figures::Band;
use crate::population::{Moment, Population};
use crate::{BadSetting, MOST_LEGS, Workers, count, enough_guards};

/// Simulated time at which the clients start, in seconds since 1970. Its value does not affect the
/// results.
const NOW: u64 = 1_500_000_000;
/// Number of simulated clients in one work item of a thread.
const PIECE: usize = 2000;

/// Settings of the simulation of guard fingerprints.
#[derive(Clone, Debug, PartialEq)]
pub struct FingerprintSettings {
    /// Number of clients that each repetition (draw) simulates. Their guard sets are compared with
    /// each other.
    pub clients: usize,
    /// Maximum number of circuits per stream (legs). Each number from 1 to `legs` gives a row of
    /// results. Each leg has its own guard.
    pub legs: usize,
    /// Number of random repetitions (draws) of the simulation. Each repetition simulates new
    /// clients.
    pub draws: usize,
    /// Seed of all random choices.
    pub seed: u64,
    /// Threads that the simulation may use.
    pub workers: Workers,
}

impl Default for FingerprintSettings {
    /// Returns settings with 83,000 clients, the number in the paper.
    fn default() -> FingerprintSettings {
        FingerprintSettings {
            clients: 83_000,
            legs: 3,
            draws: 10,
            seed: 1,
            workers: Workers::default(),
        }
    }
}

/// Measures of how many clients share the same set of guards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// Mean number of clients per set of guards: an average over the distinct sets that at least
    /// one client has.
    pub over_sets: Band,
    /// Mean, over the clients, of the number of clients with the same set of guards (including the
    /// client): Σn²/N, for sets with n of the N clients.
    pub over_clients: Band,
    /// Median, over the clients, of the number of clients with the same set of guards (including
    /// the client).
    pub median: Band,
    /// Share of clients whose set of guards no other client has.
    pub unique: Band,
    /// Number of clients that have the most common set of guards.
    pub largest: Band,
    /// Effective number of clients per set of guards: N / 2^H, where H is the entropy of the sets
    /// in bits. Sets of this equal size would have the same entropy.
    pub effective: Band,
}

/// Guard fingerprints of clients that split a stream over `legs` circuits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FingerprintRow {
    /// Number of circuits per stream; each has its own guard.
    pub legs: usize,
    /// Number of guards that a client uses: the larger of `legs` and the consensus parameter
    /// `guard-n-primary-guards-to-use`.
    pub in_use: usize,
    /// Mean number of clients per set of guards if all sets are equally likely. It is the number
    /// of clients divided by `C(guards, in_use)`, the paper's formula.
    pub formula: f64,
    /// How many clients have the same set of guards if each client draws its own list of primary
    /// guards and uses the first `in_use` of them.
    pub own: Sharing,
    /// How many clients have the same set of guards if the sets are predefined: all guards of the
    /// network are divided into sets of `in_use` guards, and each client draws one set with a
    /// probability proportional to the set's weight.
    pub fixed: Sharing,
}

/// Draws the guards of simulated clients, and measures how many clients share a set. `weights` has
/// the weight of each entry relay.
///
/// # Errors
/// A setting is out of its range.
pub fn fingerprints(
    weights: &[u64],
    params: &GuardParams,
    settings: &FingerprintSettings,
) -> Result<Vec<FingerprintRow>, BadSetting> {
    count("the number of clients", settings.clients, 1 << 28)?;
    count("the number of guards of a client", settings.legs, MOST_LEGS)?;
    count("the number of random draws", settings.draws, 100_000)?;
    enough_guards(weights.len(), params, settings.legs)?;
    let row = |legs| {
        let params = params.for_legs(legs);
        let in_use = params.primary_to_use;
        FingerprintRow {
            legs,
            in_use,
            formula: settings.clients as f64 / combinations(weights.len(), in_use),
            own: sharing(settings, |draw| own(weights, &params, settings, draw)),
            fixed: sharing(settings, |draw| fixed(weights, settings, in_use, draw)),
        }
    };
    Ok((1..=settings.legs).map(row).collect())
}

/// Returns `C(all, some)`, the number of ways to choose `some` of `all`.
#[must_use]
pub fn combinations(all: usize, some: usize) -> f64 {
    (0..some).map(|n| all.saturating_sub(n) as f64 / (n + 1) as f64).product()
}

/// A client's set of guards: the guards' indices in ascending order. With predefined sets of
/// guards, the first element is instead the index of the client's set. Unused elements are
/// `u32::MAX`.
type Set = [u32; MOST_LEGS];

fn own(
    weights: &[u64],
    params: &GuardParams,
    settings: &FingerprintSettings,
    draw: u64,
) -> Vec<Set> {
    let population = Population::still(weights);
    let moment = Moment { population: &population, now: NOW };
    let seed = settings.seed.wrapping_add(draw);
    let work = |piece: usize| {
        let clients = piece * PIECE..((piece + 1) * PIECE).min(settings.clients);
        let client = |client: usize| {
            let mut rng = stream(seed, client as u64, "fingerprints");
            let mut guards = Guards::restore(Vec::new());
            guards.renew(NOW, (NOW, true), params, &moment, &mut rng);
            set(guards.primary(), params.primary_to_use)
        };
        clients.map(client).collect::<Vec<Set>>()
    };
    settings.workers.each(settings.clients.div_ceil(PIECE), work).concat()
}

fn set(guards: &[u32], in_use: usize) -> Set {
    let mut set = [u32::MAX; MOST_LEGS];
    set.iter_mut().zip(guards.iter().take(in_use)).for_each(|(place, guard)| *place = *guard);
    set.sort_unstable();
    set
}

/// Divides the guards at random into sets of `of` guards each, and draws a set for each client
/// with a probability proportional to the set's weight. Returns the index of each client's set. If
/// fewer than `of` guards remain at the end, their weight is added to the last set. `draw` is the
/// index of the random repetition, which changes the random numbers.
fn fixed(weights: &[u64], settings: &FingerprintSettings, of: usize, draw: u64) -> Vec<Set> {
    let mut rng = stream(settings.seed.wrapping_add(draw), 0, "fixed guard sets");
    let mut guards: Vec<usize> = (0..weights.len()).collect();
    for last in (1..guards.len()).rev() {
        guards.swap(last, below(last as u64 + 1, &mut rng) as usize);
    }
    let sets = guards.chunks_exact(of);
    let left: u64 = sets.remainder().iter().map(|&guard| weights[guard]).sum();
    let mut sums: Vec<u64> = Vec::new();
    for set in sets {
        let weight: u64 = set.iter().map(|&guard| weights[guard]).sum();
        sums.push(sums.last().unwrap_or(&0) + weight);
    }
    if let Some(last) = sums.last_mut() {
        *last += left;
    }
    let total = sums.last().copied().unwrap_or(0).max(1);
    let client = |_| {
        let point = below(total, &mut rng);
        set(&[u32::try_from(sums.partition_point(|&sum| sum <= point)).unwrap_or(u32::MAX)], 1)
    };
    (0..settings.clients).map(client).collect()
}

fn sharing(settings: &FingerprintSettings, draw: impl Fn(u64) -> Vec<Set>) -> Sharing {
    let draws: Vec<[f64; 6]> = (0..settings.draws as u64).map(|n| measures(draw(n))).collect();
    let band = |kind: usize| Band::of(draws.iter().map(|one| one[kind]).collect());
    Sharing {
        over_sets: band(0),
        over_clients: band(1),
        median: band(2),
        unique: band(3),
        largest: band(4),
        effective: band(5),
    }
}

/// Computes the six measures of [`Sharing`], in the order of its fields, from the set of guards of
/// each client.
fn measures(mut sets: Vec<Set>) -> [f64; 6] {
    sets.sort_unstable();
    let mut sizes: Vec<f64> =
        sets.chunk_by(|one, other| one == other).map(|same| same.len() as f64).collect();
    sizes.sort_by(f64::total_cmp);
    let clients = sets.len() as f64;
    let squares: f64 = sizes.iter().map(|size| size * size).sum();
    let entropy: f64 = sizes.iter().map(|size| -size / clients * (size / clients).log2()).sum();
    let mut passed = 0.0;
    let median = sizes.iter().find(|size| {
        passed += **size;
        passed * 2.0 >= clients
    });
    let unique = sizes.iter().take_while(|size| **size == 1.0).count() as f64;
    [
        clients / sizes.len() as f64,
        squares / clients,
        median.copied().unwrap_or(0.0),
        unique / clients,
        sizes.last().copied().unwrap_or(0.0),
        clients / entropy.exp2(),
    ]
}

#[cfg(test)]
mod tests {
    use anabranch_os::threads::share_out;

    use super::*;

    const TWO: Workers = Workers { threads: 2, run: share_out };

    #[test]
    fn sizes_are_told_over_sets_and_over_clients() {
        let one = |guard| set(&[guard], 1);
        let sets = vec![one(1), one(2), one(1), one(1), one(3), one(2)];
        let [over_sets, over_clients, median, unique, largest, effective] = measures(sets);
        assert_eq!((over_sets, median, largest), (2.0, 2.0, 3.0));
        assert!((over_clients - 14.0 / 6.0).abs() < 1e-9 && (unique - 1.0 / 6.0).abs() < 1e-9);
        assert!((effective - 6.0 / 1.459_147_9f64.exp2()).abs() < 1e-6, "{effective}");
    }

    #[test]
    fn the_order_of_guards_makes_no_other_set() {
        assert_eq!(set(&[7, 3, 9], 2), set(&[3, 7], 2));
        assert_ne!(set(&[7, 3, 9], 3), set(&[3, 7, 8], 3));
    }

    /// Tests 83,000 clients and 1,889 guards of equal weight. With one guard for each client,
    /// there are 43.9 clients per set of guards, and 44.9 in the mean over clients. With two
    /// guards for each client, 95.3 % of clients share their set with no other client, and about
    /// four clients share the most common set.
    #[test]
    fn even_draws_come_to_the_formula() {
        let settings = FingerprintSettings { draws: 1, legs: 2, ..FingerprintSettings::default() };
        let rows = fingerprints(&[5; 1889], &GuardParams::default(), &settings).unwrap();
        let own = rows[0].own;
        assert!((own.over_sets.mean - 43.9).abs() < 0.1 && (rows[0].formula - 43.9).abs() < 0.1);
        assert!((own.over_clients.mean - 44.9).abs() < 0.5, "{own:?}");
        assert!((rows[1].own.unique.mean - 0.953).abs() < 0.005, "{:?}", rows[1].own);
        assert!((2.0..=6.0).contains(&rows[1].own.largest.mean));
        let fixed = rows[1].fixed;
        assert!((fixed.over_sets.mean - 83_000.0 / 944.0).abs() < 1.0, "{fixed:?}");
        assert!(fixed.unique.mean == 0.0, "pairs that are given are shared by many");
    }

    #[test]
    fn threads_change_nothing_and_bad_settings_are_refused() {
        let settings =
            FingerprintSettings { clients: 5000, draws: 2, ..FingerprintSettings::default() };
        let weights: Vec<u64> = (1..300).collect();
        let of = |settings: &FingerprintSettings| {
            fingerprints(&weights, &GuardParams::default(), settings)
        };
        let two = FingerprintSettings { workers: TWO, ..settings.clone() };
        assert_eq!(of(&settings).unwrap(), of(&two).unwrap());
        for bad in [
            FingerprintSettings { clients: 0, ..settings.clone() },
            FingerprintSettings { legs: 9, ..settings.clone() },
            FingerprintSettings { draws: 0, ..settings.clone() },
        ] {
            assert!(of(&bad).is_err(), "{bad:?}");
        }
        let few = fingerprints(&[1, 2], &GuardParams::default(), &settings);
        assert_eq!(
            few.unwrap_err().0,
            "a client would use 3 guards (entry relays), but the consensus has only 2: lower the \
             number of legs (circuits per stream) or of guards in use"
        );
    }

    #[test]
    fn a_client_with_one_leg_shows_all_guards_that_the_consensus_lets_it_use() {
        let settings = FingerprintSettings {
            clients: 5000,
            legs: 2,
            draws: 1,
            ..FingerprintSettings::default()
        };
        let two = GuardParams { primary_to_use: 2, ..GuardParams::default() };
        let rows = fingerprints(&[5; 300], &two, &settings).unwrap();
        assert_eq!((rows[0].legs, rows[0].in_use), (1, 2));
        assert_eq!((rows[0].formula, rows[0].own), (rows[1].formula, rows[1].own));
    }
}
