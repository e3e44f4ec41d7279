//! Execution of the simulations of the DBSec 2019 paper's larger network.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anabranch_sim::onion::Keyring;

use super::super::Turns;
use super::super::simulated::simulate;
use super::{Measured, Unit};

/// Executor of the simulations, with the relays' keys, which all simulations share.
pub struct Bench {
    keys: Keyring,
}

impl Bench {
    /// Generates the relay keys that the simulations `units` need. This takes seconds.
    #[must_use]
    pub fn new(units: &[Unit]) -> Bench {
        let relays = units.iter().map(|unit| unit.plan.relays + unit.plan.exits).max();
        Bench { keys: Keyring::new(relays.unwrap_or_default()) }
    }

    /// Runs simulations until none is left or `stop` is set. Each thread calls this once.
    pub fn work(&self, turns: &Turns<'_, Unit, Measured>, stop: &AtomicBool) {
        while let Some((unit, _)) = turns.next() {
            let begun = Instant::now();
            let Some(run) = simulate(&unit.plan, unit.seed, &self.keys, stop) else { return };
            let elapsed = begun.elapsed();
            turns.done(unit, Measured::new(unit, &run, elapsed), elapsed);
        }
    }
}
