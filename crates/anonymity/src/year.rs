//! A year of clients' entries (section 6.2 and Figure 5): the share of clients that an adversary
//! with a share of the entry weight has compromised, if each uses the first `m` of its primary
//! guards.
//!
//! Two models: one hostile entry is enough (*any*: it confirms or correlates), or all `m` must be
//! hostile at the same time (*all*: the site is recognised by its traffic). Each is counted up to a
//! day (*ever*) and on that day (*now*).
//!
//! A client goes from event to event: a guard's time is over, or it is listed no more. Where
//! hostile relays only bear another label, all draws of the adversary share the same clients.

use anabranch_multipath::seed::{Stream, stream};
use anabranch_onion::guards::{GuardParams, Guards};

use crate::figures::Band;
use crate::hostile::{Spread, take};
use crate::town::{DAY, Moment, Town};
use crate::{BadSetting, MOST_LEGS, count, share, threads};

/// When clients begin, in seconds: late enough for dates before it.
const BEGIN: u64 = 1000 * DAY;
/// Clients of one piece of work.
const PIECE: usize = 2000;
/// Shares of clients with one, two and three entries (paper, Figure 5).
pub const COMB: [f64; 3] = [0.6, 0.2, 0.2];

/// Where the adversary's weight comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adversary {
    /// It runs relays that are there.
    Replaces(Spread),
    /// It adds so many relays of equal weight.
    Adds(usize),
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct YearSettings {
    /// Clients of each draw.
    pub clients: usize,
    /// Draws of the adversary.
    pub draws: usize,
    /// The adversary's share of the entry weight, its own relays included.
    pub share: f64,
    /// Where it comes from.
    pub adversary: Adversary,
    /// The mean time for which a relay is listed, in days; `None`: for good.
    pub churn: Option<f64>,
    /// Whether hostile relays go like others.
    pub hostile_churn: bool,
    /// The days at which is counted, in order.
    pub days: Vec<u64>,
    /// The seed of all draws.
    pub seed: u64,
    /// Threads to use.
    pub threads: usize,
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
            threads: 1,
        }
    }
}

/// Shares of clients at one day.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compromised {
    /// Until then one entry at least was hostile.
    pub any_ever: Band,
    /// Until then all were at a time.
    pub all_ever: Band,
    /// On this day one at least is hostile.
    pub any_now: Band,
    /// On this day all are.
    pub all_now: Band,
}

/// What came of clients that use so many entries.
#[derive(Clone, Debug, PartialEq)]
pub struct YearRow {
    /// Entries of a client; `None` for [`COMB`].
    pub legs: Option<usize>,
    /// Different guards that a client used, in the mean.
    pub guards: f64,
    /// At each of the days.
    pub at: Vec<Compromised>,
}

/// How many clients of a draw, by day: any ever, all ever, any now, all now.
type Tally = Vec<[u64; 4]>;

/// What came of one number of entries: a tally for each draw, and the guards of all clients.
struct Outcome {
    tallies: Vec<Tally>,
    guards: f64,
}

/// Simulates clients with one, two and three entries and [`COMB`], where entry relays have these
/// weights.
///
/// # Errors
/// A setting makes no sense.
pub fn year(
    weights: &[u64],
    params: &GuardParams,
    settings: &YearSettings,
) -> Result<Vec<YearRow>, BadSetting> {
    settings.check(weights)?;
    let outcomes: Vec<Outcome> =
        (1..=COMB.len()).map(|legs| outcome(weights, params, settings, legs)).collect();
    let mut rows: Vec<YearRow> = outcomes
        .iter()
        .zip(1..)
        .map(|(outcome, legs)| YearRow {
            legs: Some(legs),
            guards: outcome.guards,
            at: bands(settings, |draw, day, kind| {
                outcome.tallies[draw][day][kind] as f64 / settings.clients as f64
            }),
        })
        .collect();
    rows.push(YearRow {
        legs: None,
        guards: outcomes.iter().zip(COMB).map(|(outcome, part)| outcome.guards * part).sum(),
        at: bands(settings, |draw, day, kind| {
            let parts = outcomes.iter().zip(COMB);
            let part = |(outcome, part): (&Outcome, f64)| {
                outcome.tallies[draw][day][kind] as f64 / settings.clients as f64 * part
            };
            parts.map(part).sum()
        }),
    });
    Ok(rows)
}

impl YearSettings {
    fn check(&self, weights: &[u64]) -> Result<(), BadSetting> {
        count("the number of clients", self.clients, 1 << 30)?;
        count("the number of draws", self.draws, 100_000)?;
        share("the adversary's share", self.share)?;
        count("the number of entry relays", weights.len(), 1 << 24)?;
        if let Adversary::Adds(relays) = self.adversary {
            count("the number of hostile relays", relays, 1 << 20)?;
        }
        if self.churn.is_some_and(|days| !(days >= 1.0 && days.is_finite())) {
            return Err(BadSetting("relays stay for a day at least".to_owned()));
        }
        let ordered = self.days.is_sorted() && self.days.iter().all(|day| (1..=3650).contains(day));
        match ordered && !self.days.is_empty() {
            true => Ok(()),
            false => Err(BadSetting("days are in order, from 1 to 3650".to_owned())),
        }
    }

    fn last_day(&self) -> u64 {
        self.days.last().copied().unwrap_or(0)
    }
}

fn bands(settings: &YearSettings, value: impl Fn(usize, usize, usize) -> f64) -> Vec<Compromised> {
    let band =
        |day, kind| Band::of((0..settings.draws).map(|draw| value(draw, day, kind)).collect());
    (0..settings.days.len())
        .map(|day| Compromised {
            any_ever: band(day, 0),
            all_ever: band(day, 1),
            any_now: band(day, 2),
            all_now: band(day, 3),
        })
        .collect()
}

/// All draws of the adversary for clients with so many entries.
fn outcome(weights: &[u64], params: &GuardParams, settings: &YearSettings, legs: usize) -> Outcome {
    let params = params.for_legs(legs);
    let mut outcome = Outcome { tallies: Vec::new(), guards: 0.0 };
    let worlds = worlds(weights, settings);
    for (number, world) in worlds.iter().enumerate() {
        let work = |piece: usize| {
            let clients = piece * PIECE..((piece + 1) * PIECE).min(settings.clients);
            let seed = settings.seed.wrapping_add(1 + number as u64);
            population(world, &params, settings, legs, (clients, seed))
        };
        let pieces = threads::each(settings.clients.div_ceil(PIECE), settings.threads, work);
        let mut tallies = vec![vec![[0; 4]; settings.days.len()]; world.hostile.len()];
        for (piece, guards) in pieces {
            outcome.guards += guards as f64 / (settings.clients * worlds.len()) as f64;
            add(&mut tallies, &piece);
        }
        outcome.tallies.extend(tallies);
    }
    outcome
}

fn add(sums: &mut [Tally], more: &[Tally]) {
    let counts = sums.iter_mut().flatten().flatten().zip(more.iter().flatten().flatten());
    counts.for_each(|(sum, more)| *sum += more);
}

/// Relays that clients live among, and the draws of who is hostile among them, by place.
struct World {
    town: Town,
    hostile: Vec<Vec<bool>>,
}

fn worlds(weights: &[u64], settings: &YearSettings) -> Vec<World> {
    match settings.adversary {
        Adversary::Replaces(spread) => {
            let labels = |draw| {
                let mut rng = stream(settings.seed, draw as u64, "hostile entries");
                take(weights, settings.share, spread, &[], &mut rng)
            };
            let labels: Vec<Vec<bool>> = (0..settings.draws).map(labels).collect();
            let alike = settings.churn.is_none() || settings.hostile_churn;
            match alike {
                true => vec![World { town: town(weights, settings, &[], 0), hostile: labels }],
                false => labels
                    .into_iter()
                    .zip(0..)
                    .map(|(hostile, draw)| World {
                        town: town(weights, settings, &hostile, draw),
                        hostile: vec![hostile],
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
            let stays = if settings.hostile_churn { &[][..] } else { &hostile };
            let world = |draw| World {
                town: town(&all, settings, stays, draw),
                hostile: vec![hostile.clone()],
            };
            (0..settings.draws as u64).map(world).collect()
        }
    }
}

fn town(weights: &[u64], settings: &YearSettings, stays: &[bool], draw: u64) -> Town {
    match settings.churn {
        None => Town::still(weights),
        Some(mean) => {
            let days = BEGIN / DAY + settings.last_day();
            let mut rng = stream(settings.seed, draw, "churn");
            Town::churning(weights, (mean, days), stays, &mut rng)
        }
    }
}

/// Some clients: a tally for each draw, and how many guards they used in sum.
fn population(
    world: &World,
    params: &GuardParams,
    settings: &YearSettings,
    legs: usize,
    (clients, seed): (std::ops::Range<usize>, u64),
) -> (Vec<Tally>, u64) {
    let mut tallies = vec![vec![[0; 4]; settings.days.len()]; world.hostile.len()];
    let (mut guards, mut stays) = (0, Vec::new());
    for client in clients {
        let mut rng = stream(seed, client as u64, "a year");
        live(&world.town, params, (legs, settings.last_day()), &mut rng, &mut stays);
        guards += used(&stays, legs);
        for (hostile, tally) in world.hostile.iter().zip(&mut tallies) {
            judge(&stays, legs, &settings.days, |relay| hostile[world.town.place(relay)], tally);
        }
    }
    (tallies, guards)
}

/// From when on a client uses which entries.
struct Stay {
    since: u64,
    entries: [u32; MOST_LEGS],
}

/// A client's life from event to event.
fn live(
    town: &Town,
    params: &GuardParams,
    (legs, days): (usize, u64),
    rng: &mut Stream,
    stays: &mut Vec<Stay>,
) {
    stays.clear();
    let mut guards = Guards::restore(Vec::new());
    let (mut now, end) = (BEGIN, BEGIN + days * DAY);
    while now <= end {
        let moment = Moment { town, now };
        guards.renew(now, (now, true), params, &moment, rng);
        let current: Vec<u32> = guards.primary().iter().copied().take(legs).collect();
        if stays.last().is_none_or(|stay: &Stay| stay.entries[..legs] != current[..]) {
            enter(&mut guards, &moment, legs, rng);
            let mut entries = [u32::MAX; MOST_LEGS];
            entries.iter_mut().zip(&current).for_each(|(entry, id)| *entry = *id);
            stays.push(Stay { since: now, entries });
        }
        let listed = guards.kept().filter(|kept| kept.listed);
        let gone = listed.map(|kept| town.gone(kept.id)).min();
        let over = guards.next_over();
        now = gone.into_iter().chain(over).min().unwrap_or(u64::MAX).max(now + 1);
    }
}

/// Builds a circuit through each entry, so that it is confirmed.
fn enter(guards: &mut Guards<u32>, moment: &Moment<'_>, legs: usize, rng: &mut Stream) {
    let keys: Vec<u64> = (0..legs as u64).collect();
    for (choice, key) in
        guards.choose_legs(moment.now, &keys, &|_| false, moment, rng).iter().zip(&keys)
    {
        debug_assert!(guards.primary().contains(&choice.id), "nothing was ever unreachable");
        guards.succeeded(moment.now, *key, rng);
    }
    keys.into_iter().for_each(|key| guards.closed(key));
}

/// How many different relays a client used.
fn used(stays: &[Stay], legs: usize) -> u64 {
    let mut all: Vec<u32> = stays.iter().flat_map(|stay| &stay.entries[..legs]).copied().collect();
    all.sort_unstable();
    all.dedup();
    all.len() as u64
}

/// Counts a client where it belongs.
fn judge(
    stays: &[Stay],
    legs: usize,
    days: &[u64],
    is_hostile: impl Fn(u32) -> bool,
    tally: &mut Tally,
) {
    let (mut any_ever, mut all_ever, mut theirs) = (false, false, 0);
    let mut next = stays.iter().peekable();
    for (day, counts) in days.iter().zip(tally) {
        while let Some(stay) = next.next_if(|stay| stay.since <= BEGIN + day * DAY) {
            let hostile = |&&id: &&u32| id != u32::MAX && is_hostile(id);
            theirs = stay.entries[..legs].iter().filter(hostile).count();
            any_ever |= theirs > 0;
            all_ever |= theirs == legs;
        }
        let is = [any_ever, all_ever, theirs > 0, theirs == legs];
        counts.iter_mut().zip(is).for_each(|(count, is)| *count += u64::from(is));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(adversary: Adversary) -> YearSettings {
        YearSettings { clients: 700, draws: 4, adversary, threads: 2, ..YearSettings::default() }
    }

    fn run(settings: &YearSettings) -> Vec<YearRow> {
        year(&[100; 900], &GuardParams::default(), settings).unwrap()
    }

    /// 1 - .9^(guards used) fits what any of m comes to; facts of the same core with steps of a
    /// day: 5.9, 11.7 and 17.4 guards a year, .468, .713 and .850 of clients met a hostile one,
    /// .093 and .013 had two and three at a time.
    #[test]
    fn a_year_comes_to_the_figures_of_daily_steps() {
        let rows = run(&small(Adversary::Adds(100)));
        let expected = [(1, 5.9, 0.468, 0.468), (2, 11.7, 0.713, 0.093), (3, 17.4, 0.850, 0.013)];
        for (row, (legs, guards, any, all)) in rows.iter().zip(expected) {
            let last = row.at.last().unwrap();
            assert_eq!(row.legs, Some(legs));
            // Steps of a day see each change half a day late, of stays of 61 days.
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
        let stays = run(&churning);
        let both = run(&YearSettings { hostile_churn: true, ..churning });
        let any = |rows: &[YearRow]| rows[0].at[3].any_ever.mean;
        assert!(any(&stays) > any(&both) + 0.05 && any(&both) > any(&still));
        assert!((6.3..7.3).contains(&both[0].guards), "{}", both[0].guards);
    }

    #[test]
    fn the_number_of_threads_changes_nothing_and_the_seed_does() {
        let settings = YearSettings { clients: 2500, draws: 2, ..small(Adversary::Adds(3)) };
        let rows = run(&settings);
        assert_eq!(rows, run(&YearSettings { threads: 1, ..settings.clone() }));
        assert_ne!(rows, run(&YearSettings { seed: 2, ..settings }));
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
        assert!(year(&[], &GuardParams::default(), &YearSettings::default()).is_err());
    }
}
