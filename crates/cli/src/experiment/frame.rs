//! The frame of every experiment's run: the journal that it goes on with, who hears of it, and what
//! is made of it at the end.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use anabranch_experiment::{Event, Gone, Journal, Programs, Progress, Record, Unit, carry_out};
use serde_json::Value;

use super::allowed::need_networks;
use super::common::Results;
use super::telling::{Teller, told_to_stop};
use crate::failure::Failure;

/// What an experiment gives to the frame.
pub(super) trait Experiment {
    /// As its command is called.
    const NAME: &'static str;
    /// Its measurements.
    type Unit: Unit;
    /// What comes of one.
    type Record: Record;

    /// Where its results go.
    fn results(&self) -> &Results;

    /// What came of a measurement, in a few words.
    fn outcome(record: &Self::Record) -> String;

    /// Finds what it takes, begins a [`Run`], and carries it out.
    ///
    /// # Errors
    /// Misuse: something is not there, and nothing was made; or the journal is another run's.
    /// Trouble: not all could be measured.
    fn measure(&self) -> Result<(), Failure>;

    /// Makes tables, page and Markdown of what was measured, and says in short what came of it.
    ///
    /// # Errors
    /// Misuse: they cannot be written.
    fn tell(&self, header: &Value, records: &[Self::Record]) -> Result<(), Failure>;

    /// What the end of a run means for whoever started it.
    ///
    /// # Errors
    /// Trouble: somebody said stop before all was measured.
    fn verdict(whole: bool, units: &[Self::Unit], records: &[Self::Record]) -> Result<(), Failure> {
        if whole {
            return Ok(());
        }
        let there: BTreeSet<_> = records.iter().map(Record::unit).collect();
        let done = units.iter().filter(|unit| there.contains(&*unit.id())).count();
        Err(Failure::trouble(format!(
            "stopped with {done} of {} measurements done; run the same command again to continue",
            units.len()
        )))
    }
}

/// Runs an experiment, or makes the results of what there is (`--report`).
///
/// # Errors
/// Those of [`Experiment::measure`]; misuse: there is nothing to report.
pub(super) fn run<E: Experiment>(experiment: &E) -> Result<(), Failure> {
    let results = experiment.results();
    if !results.report {
        return experiment.measure();
    }
    let (header, records) = results.read()?;
    experiment.tell(&header, &records)
}

/// A run that has begun.
pub(super) struct Run<'a, E: Experiment> {
    experiment: &'a E,
    units: Vec<E::Unit>,
    journal: Journal<E::Record>,
}

/// Who hears what happens in a run.
pub(super) type Hear<'a, E> =
    dyn FnMut(&Progress, Event<'_, <E as Experiment>::Unit, <E as Experiment>::Record>) + Send + 'a;

impl<'a, E: Experiment> Run<'a, E> {
    /// Opens the journal of a plan with these settings, carried out by these peers.
    ///
    /// # Errors
    /// Misuse: the journal is another run's.
    pub(super) fn begin(
        experiment: &'a E,
        (settings, units): (Value, Vec<E::Unit>),
        peers: &Programs,
    ) -> Result<Run<'a, E>, Failure> {
        let journal = experiment.results().journal(settings, peers)?;
        Ok(Run { experiment, units, journal })
    }

    /// The same on networks of its own.
    ///
    /// # Errors
    /// Misuse: networks cannot be had, and nothing was made; or those of [`Run::begin`].
    pub(super) fn on_networks(
        experiment: &'a E,
        plan: (Value, Vec<E::Unit>),
        peers: &Programs,
    ) -> Result<Run<'a, E>, Failure> {
        need_networks()?;
        Run::begin(experiment, plan, peers)
    }

    /// Carries out the units that the journal lacks, one after another, until all are done or
    /// somebody says stop, and tells what came of it. `work` does one, and ends soon once its flag
    /// is set.
    ///
    /// # Errors
    /// Trouble: a unit cannot be carried out, its record not be stored, or it was stopped.
    pub(super) fn carry_out(
        self,
        work: impl Fn(&E::Unit, &AtomicBool) -> Result<E::Record, String>,
    ) -> Result<(), Failure> {
        self.carry_out_by(|units, journal, stop, hear| {
            carry_out(units, journal, stop, |unit| work(unit, stop), hear)
        })
    }

    /// The same, where `carry` says how.
    ///
    /// # Errors
    /// Those of [`Run::carry_out`].
    pub(super) fn carry_out_by(
        mut self,
        carry: impl FnOnce(
            &[E::Unit],
            &mut Journal<E::Record>,
            &AtomicBool,
            &mut Hear<'_, E>,
        ) -> Result<bool, Gone>,
    ) -> Result<(), Failure> {
        let stop = told_to_stop()?;
        let mut teller = Teller::new(E::NAME, self.experiment.results().json, E::outcome);
        let mut hear = |progress: &Progress, event: Event<'_, E::Unit, E::Record>| {
            teller.hear(progress, event);
        };
        let whole = carry(&self.units, &mut self.journal, &stop, &mut hear);
        teller.end();
        // What there is is told even where the rest cannot be measured.
        self.experiment.tell(self.journal.header(), self.journal.records())?;
        E::verdict(whole.map_err(Failure::trouble)?, &self.units, self.journal.records())
    }
}
