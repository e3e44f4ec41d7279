//! Loads of a trace.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use anabranch_capture::{Row, SizeUnit, Trace};
use clap::Args;

/// Selection of the loads to replay.
#[derive(Args)]
pub(crate) struct Choice {
    /// Replay the first N loads of each page in each repetition of the recording (column run)
    /// [default: all].
    #[arg(long, value_name = "N")]
    loads: Option<usize>,
    /// Replay the loads of the first N pages [default: all].
    #[arg(long, value_name = "N")]
    pages: Option<usize>,
}

/// A load as seen by one guard.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    /// Number of the load in the trace. `label`, `monitored` and `run` are also those of the
    /// trace.
    pub(crate) number: i64,
    pub(crate) label: String,
    pub(crate) monitored: bool,
    pub(crate) run: i32,
    /// Cells: time in seconds, and whether it is an uplink cell.
    pub(crate) cells: Vec<(f64, bool)>,
}

impl Choice {
    /// Returns the selected loads, by run and number.
    ///
    /// # Errors
    /// The trace breaks a rule of its schema, is split already, or does not count cells.
    pub(crate) fn read(&self, trace: &Trace) -> io::Result<Vec<Load>> {
        if trace.facts().unit == SizeUnit::IpPacket {
            return Err(io::Error::other("the trace counts IP packets, not cells"));
        }
        let mut chosen = ChosenLoads::default();
        trace.for_each(|row| chosen.take(self, row)).map_err(io::Error::other)?;
        if chosen.split {
            return Err(io::Error::other("the trace is split: whole loads can be played"));
        }
        Ok(chosen.loads.into_values().collect())
    }

    fn wants(&self, chosen: &ChosenLoads, row: &Row<'_>) -> bool {
        let is_page = chosen.pages.contains(row.label);
        let has_room = |count: usize, most: Option<usize>| most.is_none_or(|most| count < most);
        let count = chosen.counts.get(&(row.run, row.label.to_owned())).copied().unwrap_or(0);
        (is_page || has_room(chosen.pages.len(), self.pages)) && has_room(count, self.loads)
    }
}

/// Loads read so far.
#[derive(Default)]
struct ChosenLoads {
    loads: BTreeMap<(i32, i64), Load>,
    passed_over: BTreeSet<(i32, i64)>,
    pages: BTreeSet<String>,
    counts: BTreeMap<(i32, String), usize>,
    /// Whether a row has a path.
    split: bool,
}

impl ChosenLoads {
    fn take(&mut self, choice: &Choice, row: &Row<'_>) {
        self.split |= row.path >= 0;
        let key = (row.run, row.load);
        if !self.loads.contains_key(&key) && !self.passed_over.contains(&key) {
            self.meet(choice, row);
        }
        if let Some(load) = self.loads.get_mut(&key) {
            load.cells.push((row.time, row.size > 0));
        }
    }

    /// Handles the first row of a load.
    fn meet(&mut self, choice: &Choice, row: &Row<'_>) {
        if !choice.wants(self, row) {
            self.passed_over.insert((row.run, row.load));
            return;
        }
        let label = row.label.to_owned();
        self.pages.insert(label.clone());
        *self.counts.entry((row.run, label.clone())).or_default() += 1;
        let Row { load: number, monitored, run, .. } = *row;
        let load = Load { number, label, monitored, run, cells: Vec::new() };
        self.loads.insert((run, number), load);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(run: i32, load: i64, label: &str, time: f64) -> Row<'_> {
        Row { load, label, monitored: true, run, path: -1, time, size: -514 }
    }

    #[test]
    fn the_first_loads_of_the_first_pages_are_taken_whole() {
        let choice = Choice { loads: Some(1), pages: Some(1) };
        let mut chosen = ChosenLoads::default();
        let rows = [(1, 1, "a"), (1, 2, "a"), (1, 1, "a"), (1, 3, "b"), (2, 4, "a"), (1, 2, "a")];
        for (time, (run, load, label)) in rows.into_iter().enumerate() {
            chosen.take(&choice, &row(run, load, label, time as f64));
        }
        let found = chosen.loads.values().map(|load| (load.number, load.cells.len()));
        assert_eq!(found.collect::<Vec<_>>(), [(1, 2), (4, 1)]);
        assert!(!chosen.split);
    }
}
