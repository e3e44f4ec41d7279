//! Carries out runs.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anabranch_sim::onion::Keyring;

use super::super::Turns;
use super::super::simulated::simulate;
use super::{Measured, Unit};

/// The keys of the relays, which all runs share.
pub struct Bench {
    keys: Keyring,
}

impl Bench {
    /// A bench for these runs. It takes seconds.
    #[must_use]
    pub fn new(units: &[Unit]) -> Bench {
        let relays = units.iter().map(|unit| unit.plan.relays + unit.plan.exits).max();
        Bench { keys: Keyring::new(relays.unwrap_or_default()) }
    }

    /// Carries out runs until there are no more: the work of one thread.
    pub fn work(&self, turns: &Turns<'_, Unit, Measured>, stop: &AtomicBool) {
        while let Some((unit, _)) = turns.next() {
            let begun = Instant::now();
            let Some(run) = simulate(&unit.plan, unit.seed, &self.keys, stop) else { return };
            let took = begun.elapsed();
            turns.done(unit, Measured::new(unit, &run, took), took);
        }
    }
}
