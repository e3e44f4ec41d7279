//! The runs (measurements and simulations) of the comparison, and their order.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::circuits::Design;
use super::super::circuits::simulated::Combination;
use super::super::runner;
use super::scenario::{Counts, SCALE, WideNetwork};

/// Approximate time to start a network and its clients, for the estimate of the remaining time:
/// first with our programs, then with C tor.
const STARTING: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(60)];
/// Approximate real time that the simulation of one second takes.
const SIMULATED_SECOND: Duration = Duration::from_millis(250);
/// Maximum number of clients, because each client has an index in one byte of its IP address.
const MOST_CLIENTS: usize = 250;

/// Settings of the comparison between measured and simulated downloads.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Designs (protocols and schedulers) to compare.
    pub designs: Vec<Design>,
    /// Numbers of relays, servers and clients in the network.
    pub counts: Counts,
    /// Number of measured rounds. A round measures each design once.
    pub rounds: u32,
    /// Number of simulations of each design.
    pub seeds: u32,
    /// Time at the start of a run whose downloads do not count, in seconds.
    pub warm_up: u32,
    /// Time for which downloads count, in seconds.
    pub seconds: u32,
    /// Mean pause of a web client between two pages, in seconds.
    pub pause: f64,
    /// Seed of the network, of the pauses and of the simulations.
    pub seed: u64,
}

/// Origin of a run's times: the emulator or the simulator. The field identifies the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunSource {
    /// Programs on emulated lines, in the round with this index, from 0.
    Emulated(u32),
    /// The simulator, with this seed.
    Simulated(u64),
}

/// One run: a design that is measured in the emulator, or simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Design (protocol and scheduler) of all clients, with the number of circuits per stream.
    pub arm: Combination,
    /// The emulator or the simulator, with the identifier of the run.
    pub source: RunSource,
    lasts: Duration,
}

/// Reason why [`Settings`] are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// This design cannot be compared, because the simulator lacks it.
    Design(Design),
    /// The network has too few relays: this design needs two guards and two middles, for two
    /// circuits per stream.
    TooFewRelays(Design),
    /// The settings have no clients.
    NoClients,
    /// The settings have more clients than addresses.
    TooManyClients,
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Design(design) => {
                write!(out, "`{design}` is not simulated: choose one of {}", names())
            }
            Refused::TooFewRelays(design) => {
                write!(
                    out,
                    "`{design}` needs two guards and two middle relays: give --relays 5 or more"
                )
            }
            Refused::NoClients => out.write_str("there are no clients: raise --clients or --bulk"),
            Refused::TooManyClients => {
                write!(out, "--clients and --bulk together may be at most {MOST_CLIENTS}")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// Returns the design whose simulation is compared with measurements of `design`; `None` if there
/// is none. The simulator runs only our program, so C tor is compared with our program.
fn simulated_as(design: Design) -> Option<Design> {
    let ours = match design {
        Design::Stock => Design::Tor,
        Design::StockConflux => Design::Conflux,
        other => other,
    };
    Combination::all().iter().any(|one| one.design == ours).then_some(ours)
}

fn names() -> String {
    let found = Design::ALL.into_iter().filter(|design| simulated_as(*design).is_some());
    found.map(Design::name).collect::<Vec<_>>().join(", ")
}

/// Returns `design` with the number of circuits per stream with which it is compared: one or two.
fn arm(design: Design) -> Combination {
    let is_single = matches!(design, Design::Tor | Design::Stock);
    Combination { design, legs: if is_single { 1 } else { 2 } }
}

/// Returns the simulated design with which the measurements of `arm` are compared.
pub(super) fn simulated(arm: Combination) -> Combination {
    Combination { design: simulated_as(arm.design).unwrap_or(arm.design), ..arm }
}

impl Settings {
    /// Checks that the settings are possible.
    ///
    /// # Errors
    /// [`Refused`]: the first setting that is impossible.
    pub fn check(&self) -> Result<(), Refused> {
        let clients = self.counts.web + self.counts.bulk;
        if clients == 0 {
            return Err(Refused::NoClients);
        }
        if clients > MOST_CLIENTS {
            return Err(Refused::TooManyClients);
        }
        let least = self.counts.guards.min(self.counts.middles);
        self.designs.iter().try_for_each(|&design| match simulated_as(design) {
            None => Err(Refused::Design(design)),
            Some(_) if arm(design).legs as usize > least => Err(Refused::TooFewRelays(design)),
            Some(_) => Ok(()),
        })
    }

    /// Returns the settings that must not change when the comparison is resumed. Other settings
    /// may be extended: the designs, and the numbers of rounds and seeds.
    #[must_use]
    pub fn header(&self) -> Value {
        let Counts { servers, web, bulk, .. } = self.counts;
        json!({
            "experiment": "validation",
            "version": 1,
            "seed": self.seed,
            "relays": [self.counts.guards, self.counts.middles, self.counts.exits],
            "servers": servers,
            "clients": [web, bulk],
            "scale": SCALE,
            "warm_up": self.warm_up,
            "seconds": self.seconds,
            "pause": self.pause,
        })
    }

    /// Draws the random network that all runs share.
    #[must_use]
    pub fn network(&self) -> WideNetwork {
        WideNetwork::new(self.counts, self.seed)
    }

    fn unit(&self, arm: Combination, source: RunSource) -> Unit {
        let time = self.warm_up + self.seconds;
        let lasts = match source {
            RunSource::Emulated(_) => {
                STARTING[usize::from(arm.design.is_stock())] + Duration::from_secs(time.into())
            }
            RunSource::Simulated(_) => SIMULATED_SECOND * time,
        };
        Unit { arm, source, lasts }
    }
}

/// Returns all runs. The measured rounds precede the simulations.
#[must_use]
pub fn plan(settings: &Settings) -> Vec<Unit> {
    let arms: Vec<Combination> = settings.designs.iter().map(|design| arm(*design)).collect();
    let mut units = Vec::new();
    for round in 0..settings.rounds {
        units.extend(arms.iter().map(|arm| settings.unit(*arm, RunSource::Emulated(round))));
    }
    let mut modelled: Vec<Combination> = arms.into_iter().map(simulated).collect();
    modelled.sort();
    modelled.dedup();
    for seed in (settings.seed..).take(settings.seeds as usize) {
        units.extend(modelled.iter().map(|arm| settings.unit(*arm, RunSource::Simulated(seed))));
    }
    units
}

impl fmt::Display for RunSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunSource::Emulated(round) => write!(out, "emulated, round {round}"),
            RunSource::Simulated(seed) => write!(out, "simulated, seed {seed}"),
        }
    }
}

impl runner::Unit for Unit {
    fn id(&self) -> String {
        format!("{}, {}", self.arm, self.source)
    }

    fn lasts(&self) -> Duration {
        self.lasts
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use super::super::super::runner::Unit as _;
    use super::*;

    /// Returns settings of the size of the experiment.
    pub(in super::super) fn settings() -> Settings {
        Settings {
            designs: vec![Design::Tor, Design::Stock, Design::Ours],
            counts: Counts::of(24, [4, 60, 6]),
            rounds: 2,
            seeds: 3,
            warm_up: 20,
            seconds: 120,
            pause: 8.0,
            seed: 1,
        }
    }

    #[test]
    fn each_round_has_all_designs_and_simulations_follow() {
        let units = plan(&settings());
        // C tor is compared with the simulation of our program.
        assert_eq!(units.len(), 2 * 3 + 3 * 2);
        let emulated = |unit: &Unit| matches!(unit.source, RunSource::Emulated(_));
        assert!(units[..6].iter().all(emulated) && !units[6..].iter().any(emulated));
        let ids: BTreeSet<String> = units.iter().map(Unit::id).collect();
        assert_eq!(ids.len(), units.len());
        assert_eq!(units[1].id(), "stock × 1, emulated, round 0");
        let lasts: f64 = units.iter().map(|unit| unit.lasts().as_secs_f64()).sum();
        assert!((900.0..1500.0).contains(&lasts), "{lasts} s");
    }

    #[test]
    fn a_longer_experiment_keeps_the_header() {
        let more = Settings { rounds: 3, seeds: 4, designs: vec![Design::Tor], ..settings() };
        assert_eq!(more.header(), settings().header());
        assert_ne!(Settings { pause: 9.0, ..settings() }.header(), settings().header());
    }

    #[test]
    fn impossible_settings_are_refused() {
        let refused = |settings: Settings| settings.check().unwrap_err();
        assert!(settings().check().is_ok());
        let few = Counts::of(4, [1, 2, 0]);
        let found = refused(Settings { counts: few, ..settings() });
        assert_eq!(found, Refused::TooFewRelays(Design::Ours));
        let one = Settings { counts: few, designs: vec![Design::Tor], ..settings() };
        assert!(one.check().is_ok());
        let found = refused(Settings { designs: vec![Design::More], ..settings() });
        assert!(found.to_string().contains("choose one of tor, conflux,"), "{found}");
        for (clients, wanted) in [(0, Refused::NoClients), (251, Refused::TooManyClients)] {
            let counts = Counts { web: clients, bulk: 0, ..settings().counts };
            assert_eq!(refused(Settings { counts, ..settings() }), wanted);
        }
    }
}
