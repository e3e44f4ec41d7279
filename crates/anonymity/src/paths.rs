//! The probability that a stream over several circuits is compromised ("Analysis of Multi-path
//! Onion Routing", section 6.1). The adversary runs relays with a share of the entry weight (the
//! bandwidth weights of all entry relays) and a share of the exit weight. The adversary links a
//! client to a stream if it runs the stream's exit and one of its entries.
//!
//! The formulas treat relays as independent. A stream has `m` circuits, and the adversary holds
//! the share `f_g` of the entry weight and the share `f_x` of the exit weight. The exit and at
//! least one entry are hostile with probability `f_x (1 - (1 - f_g)^m)`. The exit and all entries
//! are hostile with probability `f_x f_g^m`.
//!
//! Simulated circuits follow the client's rules: guards from the guard sample, weights, families,
//! /16 networks, exit policies, and no relay in two circuits of a stream.

use std::collections::BTreeSet;
use std::ops::Range;

use anabranch_multipath::seed::{Stream, stream};
use anabranch_onion::directory::network::{Network, Position, RelayRestrictions, Target};
use anabranch_onion::guards::{GuardParams, Guards};
use serde::{Deserialize, Serialize};

use crate::figures::Share;
use crate::hostile::{Spread, held, take};
use crate::population::{Moment, Population, entries};
use crate::{BadSetting, MOST_LEGS, Workers, count, enough_guards, share};

/// Simulated time at which the clients start, in seconds since 1970. Its value does not affect the
/// results.
const NOW: u64 = 1_500_000_000;
/// Number of simulated streams in one work item of a thread. Each stream has a set of one or more
/// circuits.
const PIECE: u64 = 500;

/// Settings of the simulation of compromised circuits.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSettings {
    /// Share of the entry relays' total bandwidth weight that the adversary's relays have, from 0
    /// to 1.
    pub entry_share: f64,
    /// Share that the adversary's relays have of the total bandwidth weight of the exits that
    /// allow `port`, from 0 to 1.
    pub exit_share: f64,
    /// Rule for the adversary's choice of relays.
    pub spread: Spread,
    /// Maximum number of circuits per stream (legs). Each number from 1 to `legs` gives a row of
    /// results.
    pub legs: usize,
    /// Port of the streams' destination.
    pub port: u16,
    /// Number of streams to simulate, for each random adversary and each number of circuits per
    /// stream. Each stream has a set of circuits, and belongs to a new client.
    pub circuits: u64,
    /// Number of adversaries with randomly drawn relays; the results are averaged over them.
    pub draws: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Threads that the simulation may use.
    pub workers: Workers,
}

impl Default for PathSettings {
    fn default() -> PathSettings {
        PathSettings {
            entry_share: 0.1,
            exit_share: 0.1,
            spread: Spread::Random,
            legs: 3,
            port: 443,
            circuits: 5000,
            draws: 20,
            seed: 1,
            workers: Workers::default(),
        }
    }
}

/// Returns two probabilities for a stream over `legs` circuits. With the first probability, the
/// exit and at least one entry are hostile. With the second, the exit and all entries are hostile.
/// `entry` and `exit` are the adversary's shares of weight, and relays are assumed to be
/// independent. The formulas are `f_x (1 - (1 - f_g)^m)` and `f_x f_g^m`, with `f_g = entry`,
/// `f_x = exit` and `m = legs` ("Analysis of Multi-path Onion Routing", section 6.1).
#[must_use]
pub fn closed_form(entry: f64, exit: f64, legs: usize) -> (f64, f64) {
    let power = i32::try_from(legs).unwrap_or(i32::MAX);
    (exit * (1.0 - (1.0 - entry).powi(power)), exit * entry.powi(power))
}

/// Probability that a stream is compromised in one sense. It is determined twice: by a formula,
/// and as a share of the simulated streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// Probability according to the formula for independent relays, with the adversary's actual
    /// shares of weight, which may be slightly below the configured shares.
    pub closed: f64,
    /// Share of the simulated sets of circuits in which the event occurred. Its 95 % confidence
    /// interval includes the variation between the random adversaries ([`Share::over`]).
    pub drawn: Share,
}

/// Probabilities for streams over `legs` circuits.
#[derive(Clone, Debug, PartialEq)]
pub struct PathRow {
    /// Number of circuits per stream.
    pub legs: usize,
    /// Number of simulated sets of circuits. Each set has `legs` circuits, which carry one stream.
    /// Failed attempts (`unbuilt`) are not included.
    pub circuits: u64,
    /// Probability that at least one entry and the exit are hostile.
    pub any: Chance,
    /// Probability that all entries and the exit are hostile.
    pub all: Chance,
    /// Probability that at least one entry and the relay that merges the stream are hostile. For
    /// this value, the circuits of a stream meet at a middle relay instead of the exit.
    pub merge_point: Chance,
    /// Probability that all entries are hostile. All entries together see everything that the
    /// client sends.
    pub entries: Chance,
    /// Distribution of the number of hostile entry relays in a set of circuits. Element `n` is the
    /// share of the sets in which exactly `n` entry relays are hostile. If bytes are distributed
    /// evenly, hostile entry relays see `n / legs` of the bytes.
    pub hostile_entries: Vec<f64>,
    /// Share of a stream's bytes that pass through hostile entries, if the bytes are distributed
    /// evenly over the circuits. This is the mean over the simulated streams.
    pub bytes: f64,
    /// Number of failed attempts to build a set of circuits, because no suitable relay was left
    /// for a position. `circuits` does not include them.
    pub unbuilt: u64,
}

/// The adversary's shares of weight and its number of relays: means over the random adversaries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Holding {
    /// The adversary's share of the weight of entry relays.
    pub entry: f64,
    /// The hostile relays' share of the weight of exits that allow [`PathSettings::port`].
    pub exit: f64,
    /// The adversary's share of the weight of middle relays.
    pub middle: f64,
    /// Number of relays that the adversary runs.
    pub relays: f64,
}

/// Result for one random adversary. All shares are shares of weight, from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathDraw {
    /// The adversary's share of the weight of entry relays.
    pub entry: f64,
    /// The adversary's share of the weight of exits that allow [`PathSettings::port`].
    pub exit: f64,
    /// The adversary's share of the weight of middle relays.
    pub middle: f64,
    /// Number of relays that the adversary runs.
    pub relays: usize,
    /// Counts by the number of circuits per stream: element 0 is for one circuit, element 1 for
    /// two, and so on.
    pub circuits: Vec<PathCounts>,
}

/// Counts of simulated sets of circuits that all have the same number of circuits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCounts {
    /// Element `n` counts sets of circuits with `n` hostile entries. It has three counts: all such
    /// sets, the sets with a hostile exit, and the sets whose circuits meet at a hostile relay.
    pub by_entries: Vec<[u64; 3]>,
    /// Number of failed attempts to build a set of circuits, because no suitable relay was left
    /// for a position.
    pub unbuilt: u64,
}

/// Simulates streams over 1, 2, … and up to [`PathSettings::legs`] circuits, against each random
/// adversary.
///
/// # Errors
/// A setting is out of its range, or does not suit this network.
pub fn paths(
    network: &Network,
    settings: &PathSettings,
) -> Result<(Holding, Vec<PathRow>), BadSetting> {
    Ok(summary(&draw(network, settings, 0..settings.draws)?))
}

/// Simulates sets of circuits against the random adversaries whose indices are in `draws`.
pub fn draw(
    network: &Network,
    settings: &PathSettings,
    draws: Range<u64>,
) -> Result<Vec<PathDraw>, BadSetting> {
    settings.check()?;
    let clients = Clients::new(network, settings)?;
    Ok(draws.map(|draw| clients.against(draw)).collect())
}

/// Summarises the results for several random adversaries. Returns the adversaries' mean shares of
/// weight, and a row for each number of circuits per stream.
#[must_use]
pub fn summary(draws: &[PathDraw]) -> (Holding, Vec<PathRow>) {
    let mean =
        |of: fn(&PathDraw) -> f64| draws.iter().map(of).sum::<f64>() / draws.len().max(1) as f64;
    let holding = Holding {
        entry: mean(|one| one.entry),
        exit: mean(|one| one.exit),
        middle: mean(|one| one.middle),
        relays: mean(|one| one.relays as f64),
    };
    let most = draws.iter().map(|one| one.circuits.len()).min().unwrap_or(0);
    (holding, (1..=most).map(|legs| row(draws, legs)).collect())
}

impl PathSettings {
    fn check(&self) -> Result<(), BadSetting> {
        share("the adversary's share of entries", self.entry_share)?;
        share("the adversary's share of exits", self.exit_share)?;
        count("the number of legs (circuits per stream)", self.legs, MOST_LEGS)?;
        count("the number of circuits", self.circuits as usize, 1 << 40)?;
        count("the number of random draws", self.draws as usize, 100_000)?;
        count("the port", self.port.into(), 65_535).map(drop)
    }
}

/// The adversary's relays, and their shares of the total weight for each position in a circuit.
struct Adversary {
    relays: BTreeSet<[u8; 20]>,
    entry: f64,
    exit: f64,
    middle: f64,
}

/// Data that all simulated clients share: the lists and weights from which the clients choose
/// relays.
struct Clients<'a> {
    network: &'a Network,
    settings: &'a PathSettings,
    guards: Vec<([u8; 20], u64)>,
    population: Population,
    target: Target,
}

/// Result for the simulated circuits of one stream: the number of hostile entries, and whether the
/// exit and the relay where the circuits meet are hostile.
struct Circuit {
    entries: usize,
    exit: bool,
    merge: bool,
}

impl<'a> Clients<'a> {
    fn new(network: &'a Network, settings: &'a PathSettings) -> Result<Clients<'a>, BadSetting> {
        let guards = entries(network);
        enough_guards(guards.len(), &network.params().guards, settings.legs)?;
        let target = Target { port: settings.port, v6: false };
        if network.weights(Position::Exit(target)).iter().all(|(_, weight)| *weight == 0) {
            return Err(BadSetting(format!(
                "no exit of the consensus allows port {}: choose another port",
                settings.port
            )));
        }
        let weights: Vec<u64> = guards.iter().map(|(_, weight)| *weight).collect();
        Ok(Clients { network, settings, guards, population: Population::still(&weights), target })
    }

    fn adversary(&self, draw: u64) -> Adversary {
        let mut rng = stream(self.settings.seed, draw, "hostile relays");
        let spread = self.settings.spread;
        let mut relays = BTreeSet::new();
        let shares = [self.settings.entry_share, self.settings.exit_share];
        let exits = self.network.weights(Position::Exit(self.target));
        for (all, share) in [&self.guards, &exits].into_iter().zip(shares) {
            let weights: Vec<u64> = all.iter().map(|(_, weight)| *weight).collect();
            let taken: Vec<bool> = all.iter().map(|(id, _)| relays.contains(id)).collect();
            let hostile = take(&weights, share, spread, &taken, &mut rng);
            let theirs = all.iter().zip(&hostile).filter(|(_, is)| **is).map(|((id, _), _)| *id);
            relays.extend(theirs);
        }
        let holds = |position| {
            let all = self.network.weights(position);
            let weights: Vec<u64> = all.iter().map(|(_, weight)| *weight).collect();
            let hostile: Vec<bool> = all.iter().map(|(id, _)| relays.contains(id)).collect();
            held(&weights, &hostile)
        };
        let (entry, exit) = (holds(Position::Guard), holds(Position::Exit(self.target)));
        let middle = holds(Position::Middle);
        Adversary { relays, entry, exit, middle }
    }

    /// Selects the hostile relays of the random adversary with the index `draw`. Then simulates
    /// the circuits of clients, for each number of circuits per stream.
    fn against(&self, draw: u64) -> PathDraw {
        let adversary = self.adversary(draw);
        let legs = 1..=self.settings.legs;
        let circuits = legs.map(|legs| self.circuits(&adversary, draw, legs)).collect();
        let Adversary { entry, exit, middle, relays } = adversary;
        PathDraw { entry, exit, middle, relays: relays.len(), circuits }
    }

    fn circuits(&self, adversary: &Adversary, draw: u64, legs: usize) -> PathCounts {
        let params = self.network.params().guards.for_legs(legs);
        let pieces = self.settings.circuits.div_ceil(PIECE);
        let work = |piece: usize| {
            let piece = piece as u64;
            let circuits = PIECE.min(self.settings.circuits - piece * PIECE);
            // The clients are the same for each number of circuits, and differ between random
            // adversaries.
            let mut rng = stream(self.settings.seed, draw * pieces + piece, "circuits");
            let mut counts = PathCounts::none(legs);
            for _ in 0..circuits {
                counts.take(self.circuit(adversary, &params, legs, &mut rng));
            }
            counts
        };
        let counts = self.settings.workers.each(pieces as usize, work);
        counts.into_iter().fold(PathCounts::none(legs), PathCounts::plus)
    }

    /// Chooses the circuits of a new client by the client's own rules: first the exit, then the
    /// first primary guards that are compatible with the exit, then the middles. Returns `None` if
    /// no relay is left for a position.
    fn circuit(
        &self,
        adversary: &Adversary,
        params: &GuardParams,
        legs: usize,
        rng: &mut Stream,
    ) -> Option<Circuit> {
        let everybody = RelayRestrictions::default();
        let exit = self.network.choose(Position::Exit(self.target), &[], &everybody, rng).ok()?;
        let exit = exit.status.rsa_identity;
        let mut hops = self.entries(params, legs, &exit, rng)?;
        let is_theirs = |id: &[u8; 20]| adversary.relays.contains(id);
        let entries = hops.iter().filter(|id| is_theirs(id)).count();
        for leg in 0..legs {
            let taken = RelayRestrictions { exclude: hops.clone(), ..RelayRestrictions::default() };
            let middle = self.network.choose(Position::Middle, &[hops[leg], exit], &taken, rng);
            hops.push(middle.ok()?.status.rsa_identity);
        }
        let taken = RelayRestrictions { exclude: hops.clone(), ..RelayRestrictions::default() };
        let chosen: Vec<[u8; 20]> = hops[..legs].iter().copied().chain([exit]).collect();
        let merge = self.network.choose(Position::Middle, &chosen, &taken, rng).ok()?;
        let merge = is_theirs(&merge.status.rsa_identity);
        Some(Circuit { entries, exit: is_theirs(&exit), merge })
    }

    fn entries(
        &self,
        params: &GuardParams,
        legs: usize,
        exit: &[u8; 20],
        rng: &mut Stream,
    ) -> Option<Vec<[u8; 20]>> {
        let mut guards = Guards::restore(Vec::new());
        let moment = Moment { population: &self.population, now: NOW };
        guards.renew(NOW, (NOW, true), params, &moment, rng);
        let name = |guard: u32| self.guards[guard as usize].0;
        let avoid = |guard: u32| !self.network.agree(&name(guard), exit);
        let keys: Vec<u64> = (0..legs as u64).collect();
        let chosen = guards.choose_legs(NOW, &keys, &avoid, &moment, rng);
        let chosen: Vec<[u8; 20]> = chosen.iter().map(|choice| name(choice.id)).collect();
        (chosen.len() == legs).then_some(chosen)
    }
}

impl PathCounts {
    fn none(legs: usize) -> PathCounts {
        PathCounts { by_entries: vec![[0; 3]; legs + 1], unbuilt: 0 }
    }

    fn take(&mut self, circuit: Option<Circuit>) {
        let Some(circuit) = circuit else {
            self.unbuilt += 1;
            return;
        };
        let counts = &mut self.by_entries[circuit.entries];
        let is = [true, circuit.exit, circuit.merge];
        counts.iter_mut().zip(is).for_each(|(count, is)| *count += u64::from(is));
    }

    fn plus(mut self, other: PathCounts) -> PathCounts {
        let pairs = self.by_entries.iter_mut().flatten().zip(other.by_entries.iter().flatten());
        pairs.for_each(|(sum, more)| *sum += more);
        self.unbuilt += other.unbuilt;
        self
    }

    /// Returns the number of sets of circuits that were built successfully.
    fn built(&self) -> u64 {
        self.by_entries.iter().map(|of| of[0]).sum()
    }

    /// Counts the sets of circuits with at least `entries` hostile entries. `kind` is the index of
    /// one of the three counts in [`PathCounts::by_entries`]. Returns this count, and the number
    /// of all sets of circuits that were built.
    fn least(&self, entries: usize, kind: usize) -> (u64, u64) {
        let of = self.by_entries.iter().skip(entries);
        (of.map(|of| of[kind]).sum(), self.built())
    }
}

/// Summarises the results for the random adversaries in `draws`, with `legs` circuits per stream.
fn row(draws: &[PathDraw], legs: usize) -> PathRow {
    let counts = || draws.iter().map(|one| &one.circuits[legs - 1]);
    let chance = |closed: &dyn Fn(&PathDraw) -> f64, least: usize, kind: usize| {
        let drawn: Vec<(u64, u64)> = counts().map(|one| one.least(least, kind)).collect();
        Chance {
            closed: draws.iter().map(closed).sum::<f64>() / draws.len().max(1) as f64,
            drawn: Share::over(&drawn),
        }
    };
    let whole = counts().cloned().fold(PathCounts::none(legs), PathCounts::plus);
    let circuits = whole.built().max(1) as f64;
    let hostile_entries: Vec<f64> =
        whole.by_entries.iter().map(|of| of[0] as f64 / circuits).collect();
    let bytes = hostile_entries.iter().zip(0..).map(|(share, entries)| share * f64::from(entries));
    PathRow {
        legs,
        circuits: whole.built(),
        any: chance(&|one| closed_form(one.entry, one.exit, legs).0, 1, 1),
        all: chance(&|one| closed_form(one.entry, one.exit, legs).1, legs, 1),
        merge_point: chance(&|one| closed_form(one.entry, one.middle, legs).0, 1, 2),
        entries: chance(&|one| closed_form(one.entry, 1.0, legs).1, legs, 0),
        bytes: bytes.sum::<f64>() / legs as f64,
        hostile_entries,
        unbuilt: whole.unbuilt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are from footnote 14 and section 6.1 of "Analysis of Multi-path Onion
    /// Routing".
    #[test]
    fn the_closed_form_has_the_values_of_the_paper() {
        let any = |share, legs| closed_form(share, share, legs).0;
        assert!((any(0.2, 1) - 0.04).abs() < 1e-9 && (any(0.2, 3) - 0.098).abs() < 5e-4);
        for (legs, expected) in (1..).zip([0.0100, 0.0190, 0.0271, 0.0344, 0.0410]) {
            assert!((any(0.1, legs) - expected).abs() < 5e-5, "{legs}");
            let all = 0.1f64.powi(1 + i32::try_from(legs).unwrap());
            assert!((closed_form(0.1, 0.1, legs).1 - all).abs() < 1e-9);
        }
    }
}
