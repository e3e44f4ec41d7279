//! The chance that a circuit of several legs is compromised (section 6.1): the adversary holds a
//! share of the entry weight and a share of the exit weight, and sees which streams are whose if it
//! holds an entry and the exit of a circuit.
//!
//! In closed form relays are independent: `f_x (1 - (1 - f_g)^m)` for one entry of `m` and the
//! exit, `f_x f_g^m` for all of them. What is drawn keeps to the rules of the client: guards of the
//! sample, weights, families, /16s, exit policies, no relay in two legs.

use std::collections::BTreeSet;

use anabranch_multipath::seed::{Stream, stream};
use anabranch_onion::directory::network::{Network, Position, Target, Wishes};
use anabranch_onion::guards::{GuardParams, Guards};

use crate::figures::Share;
use crate::hostile::{Spread, held, take};
use crate::town::{Moment, Town, entries};
use crate::{BadSetting, MOST_LEGS, count, share, threads};

/// Seconds since 1970 at which clients begin: any time will do.
const NOW: u64 = 1_500_000_000;
/// Circuits of one piece of work.
const PIECE: u64 = 500;

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSettings {
    /// The adversary's share of the entry weight.
    pub entry_share: f64,
    /// Its share of the weight of exits to the port.
    pub exit_share: f64,
    /// Whose relays it runs.
    pub spread: Spread,
    /// Legs of a circuit: from 1 to so many.
    pub legs: usize,
    /// The port of the destination.
    pub port: u16,
    /// Circuits, each a new client's, for each number of legs and each draw of the adversary.
    pub circuits: u64,
    /// Draws of the adversary.
    pub draws: u64,
    /// The seed of all draws.
    pub seed: u64,
    /// Threads to use.
    pub threads: usize,
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
            threads: 1,
        }
    }
}

/// A chance in closed form and as it was drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    /// For independent relays, from the shares that the adversary really had.
    pub closed: f64,
    /// Of the circuits that were drawn.
    pub drawn: Share,
}

/// What came of circuits of so many legs.
#[derive(Clone, Debug, PartialEq)]
pub struct PathRow {
    /// Legs.
    pub legs: usize,
    /// One entry at least, and the exit, are hostile.
    pub any: Chance,
    /// All entries and the exit are.
    pub all: Chance,
    /// One entry at least, and the relay where the legs merge if that is a middle, are.
    pub merge: Chance,
    /// All entries are: what they see is all that the client sends.
    pub entries: Chance,
    /// Of the circuits, those with 0, 1, … hostile entries. Each sees its part of the bytes, 1 /
    /// legs where legs are dealt evenly.
    pub seen: Vec<f64>,
    /// Circuits for which no relay was left, of all that were tried.
    pub unbuilt: u64,
}

/// What the adversary holds, mean over its draws.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Holding {
    /// Of the entry weight.
    pub entry: f64,
    /// Of the weight of exits to the port.
    pub exit: f64,
    /// Of the weight of middles: by the same relays.
    pub middle: f64,
    /// Relays.
    pub relays: f64,
}

/// Draws circuits of one leg up to [`PathSettings::legs`] against each draw of the adversary.
///
/// # Errors
/// A setting makes no sense in this network.
pub fn paths(
    network: &Network,
    settings: &PathSettings,
) -> Result<(Holding, Vec<PathRow>), BadSetting> {
    settings.check()?;
    let clients = Clients::new(network, settings)?;
    let adversaries: Vec<Adversary> =
        (0..settings.draws).map(|draw| clients.adversary(draw)).collect();
    let rows = (1..=settings.legs).map(|legs| clients.row(&adversaries, legs)).collect();
    let mean = |of: fn(&Adversary) -> f64| {
        adversaries.iter().map(of).sum::<f64>() / adversaries.len() as f64
    };
    let holding = Holding {
        entry: mean(|one| one.entry),
        exit: mean(|one| one.exit),
        middle: mean(|one| one.middle),
        relays: mean(|one| one.relays.len() as f64),
    };
    Ok((holding, rows))
}

impl PathSettings {
    fn check(&self) -> Result<(), BadSetting> {
        share("the share of entries", self.entry_share)?;
        share("the share of exits", self.exit_share)?;
        count("the number of legs", self.legs, MOST_LEGS)?;
        count("the number of circuits", self.circuits as usize, 1 << 40)?;
        count("the number of draws", self.draws as usize, 100_000)?;
        count("the port", self.port.into(), 65_535).map(drop)
    }
}

/// One draw of the adversary.
struct Adversary {
    relays: BTreeSet<[u8; 20]>,
    entry: f64,
    exit: f64,
    middle: f64,
}

/// Clients of a network.
struct Clients<'a> {
    network: &'a Network,
    settings: &'a PathSettings,
    guards: Vec<([u8; 20], u64)>,
    town: Town,
    target: Target,
}

/// Circuits that were counted.
#[derive(Clone, Default)]
struct Counts {
    /// By the number of hostile entries: all, those with a hostile exit, those with a hostile
    /// merging middle.
    by_entries: [[u64; 3]; MOST_LEGS + 1],
    unbuilt: u64,
}

/// Whose relays a circuit has.
struct Circuit {
    entries: usize,
    exit: bool,
    merge: bool,
}

impl<'a> Clients<'a> {
    fn new(network: &'a Network, settings: &'a PathSettings) -> Result<Clients<'a>, BadSetting> {
        let guards = entries(network);
        if guards.len() < settings.legs {
            let (guards, legs) = (guards.len(), settings.legs);
            return Err(BadSetting(format!("{guards} entry relays are too few for {legs} legs")));
        }
        let target = Target { port: settings.port, v6: false };
        if network.weights(Position::Exit(target)).iter().all(|(_, weight)| *weight == 0) {
            return Err(BadSetting(format!("no exit leads to port {}", settings.port)));
        }
        let weights: Vec<u64> = guards.iter().map(|(_, weight)| *weight).collect();
        Ok(Clients { network, settings, guards, town: Town::still(&weights), target })
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

    fn row(&self, adversaries: &[Adversary], legs: usize) -> PathRow {
        let params = self.network.params().guards.for_legs(legs);
        let pieces = self.settings.circuits.div_ceil(PIECE);
        let work = |piece: usize| {
            let adversary = &adversaries[piece / pieces as usize];
            let begin = piece as u64 % pieces * PIECE;
            let circuits = PIECE.min(self.settings.circuits - begin);
            // The same clients for each number of legs, and others for each adversary.
            let mut rng = stream(self.settings.seed, piece as u64, "circuits");
            let mut counts = Counts::default();
            for _ in 0..circuits {
                counts.take(self.circuit(adversary, &params, legs, &mut rng));
            }
            counts
        };
        let all = adversaries.len() * pieces as usize;
        let counts = threads::each(all, self.settings.threads, work);
        row(adversaries, legs, &counts.into_iter().fold(Counts::default(), Counts::plus))
    }

    /// A new client's circuit, as the client chooses it: the exit, the first primary guards that go
    /// with it, middles. `None`: no relay is left for a place.
    fn circuit(
        &self,
        adversary: &Adversary,
        params: &GuardParams,
        legs: usize,
        rng: &mut Stream,
    ) -> Option<Circuit> {
        let everybody = Wishes::default();
        let exit = self.network.choose(Position::Exit(self.target), &[], &everybody, rng).ok()?;
        let exit = exit.status.rsa_identity;
        let mut hops = self.entries(params, legs, &exit, rng)?;
        let is_theirs = |id: &[u8; 20]| adversary.relays.contains(id);
        let entries = hops.iter().filter(|id| is_theirs(id)).count();
        for leg in 0..legs {
            let taken = Wishes { exclude: hops.clone(), ..Wishes::default() };
            let middle = self.network.choose(Position::Middle, &[hops[leg], exit], &taken, rng);
            hops.push(middle.ok()?.status.rsa_identity);
        }
        let taken = Wishes { exclude: hops.clone(), ..Wishes::default() };
        let beside: Vec<[u8; 20]> = hops[..legs].iter().copied().chain([exit]).collect();
        let merge = self.network.choose(Position::Middle, &beside, &taken, rng).ok()?;
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
        let moment = Moment { town: &self.town, now: NOW };
        guards.renew(NOW, (NOW, true), params, &moment, rng);
        let name = |guard: u32| self.guards[guard as usize].0;
        let avoid = |guard: u32| !self.network.agree(&name(guard), exit);
        let keys: Vec<u64> = (0..legs as u64).collect();
        let chosen = guards.choose_legs(NOW, &keys, &avoid, &moment, rng);
        let chosen: Vec<[u8; 20]> = chosen.iter().map(|choice| name(choice.id)).collect();
        (chosen.len() == legs).then_some(chosen)
    }
}

impl Counts {
    fn take(&mut self, circuit: Option<Circuit>) {
        let Some(circuit) = circuit else {
            self.unbuilt += 1;
            return;
        };
        let counts = &mut self.by_entries[circuit.entries];
        let is = [true, circuit.exit, circuit.merge];
        counts.iter_mut().zip(is).for_each(|(count, is)| *count += u64::from(is));
    }

    fn plus(mut self, other: Counts) -> Counts {
        let pairs = self.by_entries.iter_mut().flatten().zip(other.by_entries.iter().flatten());
        pairs.for_each(|(sum, more)| *sum += more);
        self.unbuilt += other.unbuilt;
        self
    }
}

fn row(adversaries: &[Adversary], legs: usize, counts: &Counts) -> PathRow {
    let circuits = counts.by_entries.iter().map(|of| of[0]).sum::<u64>().max(1);
    let power = i32::try_from(legs).expect("legs are few");
    let one = |adversary: &Adversary| 1.0 - (1.0 - adversary.entry).powi(power);
    let all = |adversary: &Adversary| adversary.entry.powi(power);
    let chance = |closed: &dyn Fn(&Adversary) -> f64, least: usize, kind: usize| Chance {
        closed: adversaries.iter().map(closed).sum::<f64>() / adversaries.len() as f64,
        drawn: Share::of(counts.by_entries[least..].iter().map(|of| of[kind]).sum(), circuits),
    };
    PathRow {
        legs,
        any: chance(&|adversary| adversary.exit * one(adversary), 1, 1),
        all: chance(&|adversary| adversary.exit * all(adversary), legs, 1),
        merge: chance(&|adversary| adversary.middle * one(adversary), 1, 2),
        entries: chance(&all, legs, 0),
        seen: counts.by_entries[..=legs].iter().map(|of| of[0] as f64 / circuits as f64).collect(),
        unbuilt: counts.unbuilt,
    }
}
