//! Steps that all experiments share: continuing the journal, reporting the progress, and writing
//! the results.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use anabranch_experiment::{
    Event, Incomplete, Journal, Programs, Progress, Record, Unit, carry_out,
};
use serde_json::Value;

use super::allowed::need_networks;
use super::common::Results;
use super::reporter::{Reporter, stop_flag};
use crate::failure::Failure;

/// An experiment: its name, its measurements and its results. The module runs all experiments in
/// the same way.
pub(super) trait Experiment {
    /// Name of the experiment's command.
    const NAME: &'static str;
    /// One measurement.
    type Unit: Unit;
    /// Result of one measurement.
    type Record: Record;

    /// Returns the folder and the formats of the experiment's results.
    fn results(&self) -> &Results;

    /// Describes the result of a measurement in a few words.
    fn outcome(record: &Self::Record) -> String;

    /// Finds the programs and files that the experiment needs, begins a [`Run`], and carries it
    /// out.
    ///
    /// # Errors
    /// Misuse (exit code 2): something is missing, and nothing was created; or the journal belongs
    /// to a run with other settings. Trouble (exit code 1): some measurements could not be made.
    fn measure(&self) -> Result<(), Failure>;

    /// Writes tables, page and Markdown about the measurements in `records`, and prints a short
    /// result.
    ///
    /// # Errors
    /// Misuse (exit code 2): a file cannot be written.
    fn write_results(&self, header: &Value, records: &[Self::Record]) -> Result<(), Failure>;

    /// Returns the exit status of the command after a run of the experiment. `whole` is false if
    /// the run was stopped.
    ///
    /// # Errors
    /// Trouble (exit code 1): the run was stopped before all units (measurements) were done.
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

/// Runs an experiment. With `--report`, only writes the results of the experiment's journal.
///
/// # Errors
/// The errors of [`Experiment::measure`]. Misuse (exit code 2): there is nothing to report.
pub(super) fn run<E: Experiment>(experiment: &E) -> Result<(), Failure> {
    let results = experiment.results();
    if !results.report {
        return experiment.measure();
    }
    let (header, records) = results.read()?;
    experiment.write_results(&header, &records)
}

/// An execution of an experiment, whose journal is open.
pub(super) struct Run<'a, E: Experiment> {
    experiment: &'a E,
    units: Vec<E::Unit>,
    journal: Journal<E::Record>,
}

/// Callback for the events of an execution of an experiment.
pub(super) type EventCallback<'a, E> =
    dyn FnMut(&Progress, Event<'_, <E as Experiment>::Unit, <E as Experiment>::Record>) + Send + 'a;

impl<'a, E: Experiment> Run<'a, E> {
    /// Opens the journal of a run with `settings`, which executes `units` (the measurements).
    /// `peers` are the third-party programs that were found.
    ///
    /// # Errors
    /// Misuse (exit code 2): the journal belongs to a run with other settings.
    pub(super) fn begin(
        experiment: &'a E,
        (settings, units): (Value, Vec<E::Unit>),
        peers: &Programs,
    ) -> Result<Run<'a, E>, Failure> {
        let journal = experiment.results().journal(settings, peers)?;
        Ok(Run { experiment, units, journal })
    }

    /// Begins a run as [`Run::begin`] does, for measurements that need network namespaces.
    ///
    /// # Errors
    /// Misuse (exit code 2): namespaces are not available, and nothing was created. Otherwise the
    /// errors of [`Run::begin`].
    pub(super) fn on_networks(
        experiment: &'a E,
        plan: (Value, Vec<E::Unit>),
        peers: &Programs,
    ) -> Result<Run<'a, E>, Failure> {
        need_networks()?;
        Run::begin(experiment, plan, peers)
    }

    /// Executes the units (measurements) that the journal lacks, one after another, until all are
    /// done or a signal stops the run. Then writes the results. `work` measures one unit. It
    /// receives a stop flag, and must return soon after the flag is set.
    ///
    /// # Errors
    /// Trouble (exit code 1): a unit fails, its record cannot be stored, or the run was stopped.
    pub(super) fn carry_out(
        self,
        work: impl Fn(&E::Unit, &AtomicBool) -> Result<E::Record, String>,
    ) -> Result<(), Failure> {
        self.carry_out_by(|units, journal, stop, on_event| {
            carry_out(units, journal, stop, |unit| work(unit, stop), on_event)
        })
    }

    /// Executes the units (measurements) as [`Run::carry_out`] does, but in the order that `carry`
    /// chooses.
    ///
    /// # Errors
    /// The errors of [`Run::carry_out`].
    pub(super) fn carry_out_by(
        mut self,
        carry: impl FnOnce(
            &[E::Unit],
            &mut Journal<E::Record>,
            &AtomicBool,
            &mut EventCallback<'_, E>,
        ) -> Result<bool, Incomplete>,
    ) -> Result<(), Failure> {
        let stop = stop_flag()?;
        let mut reporter = Reporter::new(E::NAME, self.experiment.results().json, E::outcome);
        let mut on_event = |progress: &Progress, event: Event<'_, E::Unit, E::Record>| {
            reporter.report(progress, event);
        };
        let whole = carry(&self.units, &mut self.journal, &stop, &mut on_event);
        reporter.end();
        // The results are written even if the run was stopped.
        self.experiment.write_results(self.journal.header(), self.journal.records())?;
        E::verdict(whole.map_err(Failure::trouble)?, &self.units, self.journal.records())
    }
}
