//! Entries of clients over a year ("Analysis of Multi-path Onion Routing", section 6.2 and Figure
//! 5). The adversary holds a share of the entry weight, and the module computes the share of
//! clients that it compromises. A stream has `m` circuits (legs), each with its own guard. A
//! client uses its first `m` primary guards, or more if the consensus requires it
//! (`guard-n-primary-guards-to-use`, [`Guards::choose_legs`]).
//!
//! There are two models. In *any*, one hostile entry compromises a client, as in traffic
//! confirmation. In *all*, the `m` entries of a stream must all be hostile, as in website
//! fingerprinting on all of a stream's traffic. That happens if `m` of the guards in use are
//! hostile at the same time. Each model counts clients that were compromised at any time up to a
//! day (*ever*), and clients that are compromised on that day (*now*).
//!
//! The simulation of a client proceeds from event to event. At an event, a guard expires or leaves
//! the consensus. If the adversary adds no relays and its relays leave like others, the same
//! simulated clients serve for all random adversaries.
//!
//! Clients and random adversaries (draws) are identified by indices, and the result of each is
//! independent of the others. [`tally`] counts for some of the clients and adversaries, [`add`]
//! merges counts, and [`rows`] summarises them.

use std::ops::Range;

use anabranch_multipath::seed::{Stream, stream};
use anabranch_onion::guards::{GuardParams, Guards};
use serde::{Deserialize, Serialize};

use crate::figures::Band;
use crate::hostile::{Spread, take};
use crate::population::{DAY, Moment, Population};
use crate::{BadSetting, MOST_LEGS, Workers, count, enough_guards, share};

/// Simulated time at which the clients start, in seconds. It is above zero because clients shift
/// some times into the past, for example the time at which a guard was added to the sample.
const BEGIN: u64 = 1000 * DAY;
/// Value that marks an unused element in an [`EntryPeriod`].
const NOBODY: u32 = u32::MAX;
/// Number of simulated clients in one work item of a thread.
const PIECE: usize = 2000;
/// Shares of clients with one, two and three entries in the mixture of clients named COMB in the
/// paper's Figure 5.
pub const COMB: [f64; 3] = [0.6, 0.2, 0.2];
/// Maximum number of circuits per stream in the simulation of a year; each number from 1 is
/// simulated.
pub const MOST: usize = COMB.len();

/// Origin of the relays that the adversary runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adversary {
    /// Existing relays become hostile, chosen by this rule.
    Replaces(Spread),
    /// This number of new relays of equal weight is added to the network.
    Adds(usize),
}

/// Settings of the simulation of a year.
#[derive(Clone, Debug, PartialEq)]
pub struct YearSettings {
    /// Number of simulated clients for each random adversary.
    pub clients: usize,
    /// Number of random adversaries.
    pub draws: usize,
    /// Share of the total entry weight that the adversary holds. The total includes the
    /// adversary's own relays.
    pub share: f64,
    /// Origin of the relays that the adversary runs.
    pub adversary: Adversary,
    /// Mean time, in days, that a relay stays in the network; `None` if relays never leave.
    pub churn: Option<f64>,
    /// Whether hostile relays leave the network at the same rate as other relays.
    pub hostile_churn: bool,
    /// Days of the year on which clients are counted, in ascending order.
    pub days: Vec<u64>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Threads that the simulation may use.
    pub workers: Workers,
}

impl Default for YearSettings {
    fn default() -> YearSettings {
        YearSettings {
            clients: 500_000,
            draws: 50,
            share: 0.1,
            adversary: Adversary::Replaces(Spread::Random),
            churn: None,
            hostile_churn: false,
            days: vec![30, 90, 182, 365],
            seed: 1,
            workers: Workers::default(),
        }
    }
}

/// Shares of clients that are compromised on one day of the simulated year, and shares of clients
/// that were compromised at some time until that day.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CompromisedShares {
    /// Share of clients that had a hostile entry at some time until that day.
    pub any_ever: Band,
    /// Share of clients that had at least `m` hostile entries at the same time, at some time until
    /// that day, where `m` is the number of circuits per stream.
    pub all_ever: Band,
    /// Share of clients that have a hostile entry on that day.
    pub any_now: Band,
    /// Share of clients that have at least `m` hostile entries on that day, where `m` is the
    /// number of circuits per stream.
    pub all_now: Band,
}

/// Results for clients with the same number of circuits per stream.
#[derive(Clone, Debug, PartialEq)]
pub struct YearRow {
    /// Number of circuits per stream, each with its own entry; `None` for the mixture [`COMB`].
    pub legs: Option<usize>,
    /// Number of guards that a client uses at a time: the larger of `legs` and the consensus
    /// parameter `guard-n-primary-guards-to-use`. `None` for the mixture [`COMB`].
    pub in_use: Option<usize>,
    /// Number of different guards that a client used over the year: the mean over clients.
    pub guards: f64,
    /// Shares of compromised clients on each counted day.
    pub at: Vec<CompromisedShares>,
}

/// A part of the simulation: a range of the clients, and a range of the random adversaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Range of the clients' indices. The compromised clients in this range are counted, for each
    /// of the adversaries.
    pub clients: Range<usize>,
    /// Range of the indices of the randomly drawn adversaries.
    pub draws: Range<usize>,
}

/// Counts of the clients that one random adversary compromised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawTally {
    /// Index of the random adversary.
    pub draw: usize,
    /// Number of simulated clients, which is the same for each number of circuits per stream.
    pub clients: u64,
    /// Number of different guards that each client used, summed over the clients. Element 0 is for
    /// one circuit per stream, element 1 for two, and so on.
    pub guards: [u64; MOST],
    /// Counts of compromised clients, first by day and then by number of circuits per stream. Each
    /// element has four counts, in the order of the fields of [`CompromisedShares`].
    pub compromised: Vec<[[u64; 4]; MOST]>,
}

/// Simulates clients with one, two and three entries, and their mixture [`COMB`], over a year.
/// `weights` has the weight of each entry relay.
///
/// # Errors
/// A setting is out of its range.
pub fn year(
    weights: &[u64],
    params: &GuardParams,
    settings: &YearSettings,
) -> Result<Vec<YearRow>, BadSetting> {
    Ok(rows(params, &tally(weights, params, settings, &settings.whole())?))
}

/// Counts the compromised clients in a part of the simulation.
///
/// # Errors
/// A setting is out of its range.
pub fn tally(
    weights: &[u64],
    params: &GuardParams,
    settings: &YearSettings,
    part: &Part,
) -> Result<Vec<DrawTally>, BadSetting> {
    settings.check(weights, params)?;
    let worlds = worlds(weights, settings, &part.draws);
    let tallies = worlds.iter().flat_map(|world| simulate_clients(world, params, settings, part));
    Ok(tallies.collect())
}

/// Adds the counts in `more` to `sums`. No client may be counted in both for the same random
/// adversary.
pub fn add(sums: &mut Vec<DrawTally>, more: Vec<DrawTally>) {
    for tally in more {
        match sums.iter_mut().find(|sum| sum.draw == tally.draw) {
            Some(sum) => sum.add(&tally),
            None => sums.push(tally),
        }
    }
}

impl DrawTally {
    fn none(draw: usize, days: usize) -> DrawTally {
        DrawTally { draw, clients: 0, guards: [0; MOST], compromised: vec![[[0; 4]; MOST]; days] }
    }

    fn add(&mut self, other: &DrawTally) {
        self.clients += other.clients;
        self.guards.iter_mut().zip(other.guards).for_each(|(sum, more)| *sum += more);
        let more = other.compromised.iter().flatten().flatten();
        let counts = self.compromised.iter_mut().flatten().flatten().zip(more);
        counts.for_each(|(sum, more)| *sum += more);
    }

    /// Returns the share of compromised clients on the counted day with the index `day`. `kind` is
    /// the index of a field of [`CompromisedShares`], and thus defines "compromised". `leg_index`
    /// is 0 for one circuit per stream.
    fn share(&self, leg_index: usize, day: usize, kind: usize) -> f64 {
        self.compromised[day][leg_index][kind] as f64 / self.clients.max(1) as f64
    }
}

/// Summarises `tallies`: returns one row each for one, two and three circuits per stream, and one
/// for the mixture of clients [`COMB`].
#[must_use]
pub fn rows(params: &GuardParams, tallies: &[DrawTally]) -> Vec<YearRow> {
    let guards = |legs: usize| {
        let used: u64 = tallies.iter().map(|tally| tally.guards[legs]).sum();
        used as f64 / tallies.iter().map(|tally| tally.clients).sum::<u64>().max(1) as f64
    };
    let alone = (0..MOST).map(|legs| YearRow {
        legs: Some(legs + 1),
        in_use: Some(params.for_legs(legs + 1).primary_to_use),
        guards: guards(legs),
        at: bands(tallies, |tally, day, kind| tally.share(legs, day, kind)),
    });
    let comb = YearRow {
        legs: None,
        in_use: None,
        guards: (0..MOST).map(|legs| guards(legs) * COMB[legs]).sum(),
        at: bands(tallies, |tally, day, kind| {
            (0..MOST).map(|legs| tally.share(legs, day, kind) * COMB[legs]).sum()
        }),
    };
    alone.chain([comb]).collect()
}

impl YearSettings {
    /// Returns the part of the simulation with all clients and all random adversaries.
    #[must_use]
    pub fn whole(&self) -> Part {
        Part { clients: 0..self.clients, draws: 0..self.draws }
    }

    /// Returns whether the same simulated clients serve for all random adversaries. If so,
    /// counting for all of the adversaries costs little more than counting for one.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        let labels = matches!(self.adversary, Adversary::Replaces(_));
        labels && (self.churn.is_none() || self.hostile_churn)
    }

    fn check(&self, weights: &[u64], params: &GuardParams) -> Result<(), BadSetting> {
        count("the number of clients", self.clients, 1 << 30)?;
        count("the number of random draws", self.draws, 100_000)?;
        share("the adversary's share", self.share)?;
        count("the number of entry relays", weights.len(), 1 << 24)?;
        enough_guards(weights.len(), params, MOST)?;
        if let Adversary::Adds(relays) = self.adversary {
            count("the number of hostile relays", relays, 1 << 20)?;
        }
        if self.churn.is_some_and(|days| !(days >= 1.0 && days.is_finite())) {
            return Err(BadSetting(
                "the mean time until relays are replaced must be 1 day or more".to_owned(),
            ));
        }
        let ordered = self.days.is_sorted() && self.days.iter().all(|day| (1..=3650).contains(day));
        match ordered && !self.days.is_empty() {
            true => Ok(()),
            false => Err(BadSetting(
                "the days must be numbers from 1 to 3650 in ascending order".to_owned(),
            )),
        }
    }

    fn last_day(&self) -> u64 {
        self.days.last().copied().unwrap_or(0)
    }
}

fn bands(
    tallies: &[DrawTally],
    value: impl Fn(&DrawTally, usize, usize) -> f64,
) -> Vec<CompromisedShares> {
    let band = |day, kind| Band::of(tallies.iter().map(|tally| value(tally, day, kind)).collect());
    let days = tallies.iter().map(|tally| tally.compromised.len()).min().unwrap_or(0);
    (0..days)
        .map(|day| CompromisedShares {
            any_ever: band(day, 0),
            all_ever: band(day, 1),
            any_now: band(day, 2),
            all_now: band(day, 3),
        })
        .collect()
}

/// A population of relays and, for each random adversary, the places (positions in the population)
/// whose relays are hostile.
struct World {
    population: Population,
    /// Index of the first random adversary of this population, which is part of the seeds of the
    /// simulated clients.
    number: usize,
    draws: Vec<(usize, Vec<bool>)>,
}

fn worlds(weights: &[u64], settings: &YearSettings, draws: &Range<usize>) -> Vec<World> {
    match settings.adversary {
        Adversary::Replaces(spread) => {
            let labels = |draw: usize| {
                let mut rng = stream(settings.seed, draw as u64, "hostile entries");
                (draw, take(weights, settings.share, spread, &[], &mut rng))
            };
            let labels = draws.clone().map(labels);
            match settings.is_shared() {
                true => {
                    let population = world_population(weights, settings, &[], 0);
                    vec![World { population, number: 0, draws: labels.collect() }]
                }
                false => labels
                    .map(|(draw, hostile)| World {
                        population: world_population(weights, settings, &hostile, draw),
                        number: draw,
                        draws: vec![(draw, hostile)],
                    })
                    .collect(),
            }
        }
        Adversary::Adds(relays) => {
            let honest: u64 = weights.iter().sum();
            let theirs = honest as f64 * settings.share / (1.0 - settings.share);
            let each = ((theirs / relays as f64) as u64).max(1);
            let mut all = weights.to_vec();
            all.resize(weights.len() + relays, each);
            let hostile: Vec<bool> = (0..all.len()).map(|place| place >= weights.len()).collect();
            let periods = if settings.hostile_churn { &[][..] } else { &hostile };
            let world = |draw| World {
                population: world_population(&all, settings, periods, draw),
                number: draw,
                draws: vec![(draw, hostile.clone())],
            };
            draws.clone().map(world).collect()
        }
    }
}

fn world_population(
    weights: &[u64],
    settings: &YearSettings,
    periods: &[bool],
    draw: usize,
) -> Population {
    match settings.churn {
        None => Population::still(weights),
        Some(mean) => {
            let days = BEGIN / DAY + settings.last_day();
            let mut rng = stream(settings.seed, draw as u64, "churn");
            Population::with_churn(weights, (mean, days), periods, &mut rng)
        }
    }
}

/// Simulates the clients of one relay population, `world`, with each number of circuits per
/// stream. Returns the counts of compromised clients for each random adversary.
fn simulate_clients(
    world: &World,
    params: &GuardParams,
    settings: &YearSettings,
    part: &Part,
) -> Vec<DrawTally> {
    let Range { start, end } = part.clients;
    let pieces = (end - start).div_ceil(PIECE);
    let work = |piece: usize| {
        let start = start + piece * PIECE;
        population(world, params, settings, start..(start + PIECE).min(end))
    };
    let mut sums = Vec::new();
    settings.workers.each(pieces, work).into_iter().for_each(|more| add(&mut sums, more));
    sums
}

fn population(
    world: &World,
    params: &GuardParams,
    settings: &YearSettings,
    clients: Range<usize>,
) -> Vec<DrawTally> {
    let none = |(draw, _): &(usize, Vec<bool>)| DrawTally::none(*draw, settings.days.len());
    let mut tallies: Vec<DrawTally> = world.draws.iter().map(none).collect();
    tallies.iter_mut().for_each(|tally| tally.clients = clients.len() as u64);
    let seed = settings.seed.wrapping_add(1 + world.number as u64);
    let mut periods = Vec::new();
    for legs in 1..=MOST {
        let params = params.for_legs(legs);
        for client in clients.clone() {
            let mut rng = stream(seed, client as u64, "a year");
            live(&world.population, &params, settings.last_day(), &mut rng, &mut periods);
            let used = used(&periods);
            for ((_, hostile), tally) in world.draws.iter().zip(&mut tallies) {
                tally.guards[legs - 1] += used;
                judge(
                    &periods,
                    legs,
                    settings,
                    |relay| hostile[world.population.place(relay)],
                    tally,
                );
            }
        }
    }
    tallies
}

/// The entries that a client uses from a certain time on. Unused elements have the value
/// [`NOBODY`].
struct EntryPeriod {
    since: u64,
    entries: [u32; MOST_LEGS],
}

/// Simulates the guards of a client up to day `days`, in steps from one event (a guard expires or
/// leaves the network) to the next. Clears `periods`, and then adds an element each time the
/// client's entry relays change.
fn live(
    population: &Population,
    params: &GuardParams,
    days: u64,
    rng: &mut Stream,
    periods: &mut Vec<EntryPeriod>,
) {
    periods.clear();
    let mut guards = Guards::restore(Vec::new());
    let (mut now, end) = (BEGIN, BEGIN + days * DAY);
    while now <= end {
        let moment = Moment { population, now };
        guards.renew(now, (now, true), params, &moment, rng);
        let mut entries = [NOBODY; MOST_LEGS];
        let current = guards.primary().iter().take(params.primary_to_use);
        entries.iter_mut().zip(current).for_each(|(entry, id)| *entry = *id);
        if periods.last().is_none_or(|period: &EntryPeriod| period.entries != entries) {
            enter(&mut guards, &moment, params.primary_to_use, rng);
            periods.push(EntryPeriod { since: now, entries });
        }
        let listed = guards.kept().filter(|kept| kept.listed);
        let gone = listed.map(|kept| population.gone(kept.id)).min();
        let over = guards.next_over();
        now = gone.into_iter().chain(over).min().unwrap_or(u64::MAX).max(now + 1);
    }
}

/// Simulates a successful circuit through each guard in use. The guards thereby become confirmed:
/// the client prefers them from then on.
fn enter(guards: &mut Guards<u32>, moment: &Moment<'_>, in_use: usize, rng: &mut Stream) {
    let keys: Vec<u64> = (0..in_use as u64).collect();
    for (choice, key) in
        guards.choose_legs(moment.now, &keys, &|_| false, moment, rng).iter().zip(&keys)
    {
        debug_assert!(
            guards.primary().contains(&choice.id),
            "guards stay primary, because no guard is ever unreachable"
        );
        guards.succeeded(moment.now, *key, rng);
    }
    keys.into_iter().for_each(|key| guards.closed(key));
}

/// Returns the number of different entry relays in a client's `periods`.
fn used(periods: &[EntryPeriod]) -> u64 {
    let all = periods.iter().flat_map(|period| period.entries);
    let mut all: Vec<u32> = all.filter(|id| *id != NOBODY).collect();
    all.sort_unstable();
    all.dedup();
    all.len() as u64
}

/// Adds one simulated client to the counts of compromised clients for each day. `periods` has the
/// client's entry relays over the year.
fn judge(
    periods: &[EntryPeriod],
    legs: usize,
    settings: &YearSettings,
    is_hostile: impl Fn(u32) -> bool,
    tally: &mut DrawTally,
) {
    let (mut any_ever, mut all_ever, mut theirs) = (false, false, 0);
    let mut next = periods.iter().peekable();
    for (day, counts) in settings.days.iter().zip(&mut tally.compromised) {
        while let Some(period) = next.next_if(|period| period.since <= BEGIN + day * DAY) {
            let entries = period.entries.iter().take_while(|&&id| id != NOBODY);
            theirs = entries.filter(|&&id| is_hostile(id)).count();
            any_ever |= theirs > 0;
            all_ever |= theirs >= legs;
        }
        let is = [any_ever, all_ever, theirs > 0, theirs >= legs];
        counts[legs - 1].iter_mut().zip(is).for_each(|(count, is)| *count += u64::from(is));
    }
}

#[cfg(test)]
mod tests {
    use anabranch_os::threads::share_out;

    use super::*;

    const TWO: Workers = Workers { threads: 2, run: share_out };

    fn small(adversary: Adversary) -> YearSettings {
        YearSettings { clients: 700, draws: 4, adversary, workers: TWO, ..YearSettings::default() }
    }

    fn run(settings: &YearSettings) -> Vec<YearRow> {
        year(&[100; 900], &GuardParams::default(), settings).unwrap()
    }

    /// The expected values are from an implementation of the same model with steps of a day. A
    /// client used 5.9, 11.7 and 17.4 guards in the year. The shares .468, .713 and .850 of
    /// clients met a hostile guard. The shares .093 and .013 had two and three hostile guards at
    /// the same time. The formula 1 - .9^(guards used) fits the shares with any hostile guard.
    #[test]
    fn a_year_comes_to_the_figures_of_daily_steps() {
        let rows = run(&small(Adversary::Adds(100)));
        let expected = [(1, 5.9, 0.468, 0.468), (2, 11.7, 0.713, 0.093), (3, 17.4, 0.850, 0.013)];
        for (row, (legs, guards, any, all)) in rows.iter().zip(expected) {
            let last = row.at.last().unwrap();
            assert_eq!(row.legs, Some(legs));
            // The reference has steps of a day, so it sees each change half a day late. A guard is
            // used for 61 days on average.
            let near = 0.15 * legs as f64;
            assert!((row.guards - guards).abs() < near, "{legs}: {} guards", row.guards);
            assert!((last.any_ever.mean - any).abs() < 0.03, "{legs}: {last:?}");
            assert!((last.all_ever.mean - all).abs() < 0.03, "{legs}: {last:?}");
            let fit = 1.0 - 0.9f64.powf(row.guards);
            assert!((last.any_ever.mean - fit).abs() < 0.03, "{legs}: {last:?} against {fit}");
            let now = 1.0 - 0.9f64.powi(i32::try_from(legs).unwrap());
            assert!((last.any_now.mean - now).abs() < 0.02, "{legs}: {last:?} against {now}");
        }
        let comb = rows.last().unwrap();
        let part = |row: usize| COMB[row] * rows[row].at[3].any_ever.mean;
        let sum = part(0) + part(1) + part(2);
        assert!(comb.legs.is_none() && (comb.at[3].any_ever.mean - sum).abs() < 1e-9);
    }

    #[test]
    fn relays_that_are_taken_over_do_as_much_as_relays_that_are_added() {
        let added = run(&small(Adversary::Adds(100)));
        let taken = run(&small(Adversary::Replaces(Spread::Random)));
        for (added, taken) in added.iter().zip(&taken) {
            let [a, b] = [added, taken].map(|row| row.at[3].any_ever.mean);
            assert!((a - b).abs() < 0.05, "{a} and {b}");
        }
    }

    #[test]
    fn honest_relays_that_go_leave_clients_to_hostile_ones_that_stay() {
        let still = run(&small(Adversary::Adds(100)));
        let churning = YearSettings { churn: Some(300.0), ..small(Adversary::Adds(100)) };
        let periods = run(&churning);
        let both = run(&YearSettings { hostile_churn: true, ..churning });
        let any = |rows: &[YearRow]| rows[0].at[3].any_ever.mean;
        assert!(any(&periods) > any(&both) + 0.05 && any(&both) > any(&still));
        assert!((6.3..7.3).contains(&both[0].guards), "{}", both[0].guards);
    }

    #[test]
    fn the_number_of_threads_changes_nothing_and_the_seed_does() {
        let settings = YearSettings { clients: 2500, draws: 2, ..small(Adversary::Adds(3)) };
        let rows = run(&settings);
        assert_eq!(rows, run(&YearSettings { workers: Workers::default(), ..settings.clone() }));
        assert_ne!(rows, run(&YearSettings { seed: 2, ..settings }));
    }

    #[test]
    fn parts_come_to_what_the_whole_comes_to() {
        for adversary in [Adversary::Replaces(Spread::Random), Adversary::Adds(5)] {
            let settings = YearSettings { clients: 300, draws: 3, ..small(adversary) };
            let count =
                |part: &Part| tally(&[100; 900], &GuardParams::default(), &settings, part).unwrap();
            let mut sums = Vec::new();
            for (clients, draws) in [(0..100, 0..3), (100..300, 0..1), (100..300, 1..3)] {
                add(&mut sums, count(&Part { clients, draws }));
            }
            assert_eq!(sums, count(&settings.whole()), "{adversary:?}");
        }
    }

    /// Since 2022, Tor's consensuses let clients use two guards. With one leg, a circuit uses
    /// either guard. With two legs, both guards are in use.
    #[test]
    fn a_consensus_that_lets_two_guards_be_used_exposes_clients_of_one_leg_to_both() {
        let two = GuardParams { primary_to_use: 2, ..GuardParams::default() };
        let rows = year(&[100; 900], &two, &small(Adversary::Adds(100))).unwrap();
        assert_eq!(
            rows.iter().map(|row| row.in_use).collect::<Vec<_>>(),
            [Some(2), Some(2), Some(3), None]
        );
        let [one, pair] = [0, 1].map(|row| rows[row].at[3]);
        assert_eq!((one.any_ever, one.any_now), (pair.any_ever, pair.any_now));
        assert_eq!(one.all_ever, one.any_ever, "one leg through one hostile guard is enough");
        assert!(pair.all_ever.mean < 0.2 && one.any_ever.mean > 0.6);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let bad = [
            YearSettings { clients: 0, ..YearSettings::default() },
            YearSettings { draws: 0, ..YearSettings::default() },
            YearSettings { share: 1.5, ..YearSettings::default() },
            YearSettings { share: f64::NAN, ..YearSettings::default() },
            YearSettings { churn: Some(0.0), ..YearSettings::default() },
            YearSettings { days: vec![], ..YearSettings::default() },
            YearSettings { days: vec![90, 30], ..YearSettings::default() },
            YearSettings { adversary: Adversary::Adds(0), ..YearSettings::default() },
        ];
        for settings in bad {
            let refused = year(&[1; 50], &GuardParams::default(), &settings);
            assert!(refused.is_err(), "{settings:?}");
        }
        let few = year(&[1, 2], &GuardParams::default(), &YearSettings::default()).unwrap_err();
        assert_eq!(
            few.to_string(),
            "a client would use 3 guards (entry relays), but the consensus has only 2: lower the \
             number of legs (circuits per stream) or of guards in use"
        );
    }
}
