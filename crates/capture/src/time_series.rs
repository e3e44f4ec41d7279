//! The traffic of a trace over time. It is computed in a second pass over the trace, with a time
//! step that depends on the result of the first pass ([`Summary`]).
//!
//! This module only computes; its callers draw the figures. Its memory is bounded by the number of
//! requested sessions, times the number of paths, times the number of steps ([`STEPS`]).

use std::collections::BTreeMap;

use super::{Histogram, PathSummary, Row, Session, Summary, Trace, TraceError};

/// Maximum number of time steps for which traffic over time is recorded.
pub const STEPS: usize = 600;

/// Maximum number of runs (consecutive packets on one path) that are recorded from the beginning
/// of a session, in each direction. The number is large because a change of path makes many short
/// runs, when packets of the old and of the new path arrive interleaved.
pub const RUNS: usize = 400;

/// A pair of values, one for each direction of traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerDirection<T> {
    /// Value for the direction from client to server.
    pub up: T,
    /// Value for the direction from server to client.
    pub down: T,
}

impl<T> PerDirection<T> {
    fn of(&mut self, row: &Row<'_>) -> &mut T {
        if row.size > 0 { &mut self.up } else { &mut self.down }
    }
}

/// Traffic over time, of one session or of all sessions.
#[derive(Clone, Debug)]
pub struct TimeSeries {
    /// Beginning of the first time step, in seconds since the trace began; 0 if
    /// [`TimeSeries::aligned`].
    pub begins: f64,
    /// Whether times count from the first row of each session instead of from the start of the
    /// trace.
    pub aligned: bool,
    /// Duration of the traffic that the time series covers, in seconds.
    pub lasts: f64,
    /// Length of a time step in seconds. The last step may be shorter.
    pub step: f64,
    /// The traffic of each path, in ascending order of the paths' indices.
    pub paths: Vec<PathSeries>,
    /// Sum of the sizes in each step over all paths, in the trace's unit. If the trace has rows of
    /// path -1 (the unsplit traffic), this is the sum of only those rows.
    pub whole: PerDirection<Vec<u64>>,
    /// The first [`RUNS`] runs (consecutive packets on one path) of a session. Empty if this series
    /// combines several sessions.
    pub runs: PerDirection<Vec<Run>>,
}

/// The traffic of one path in a [`TimeSeries`].
#[derive(Clone, Debug)]
pub struct PathSeries {
    /// Index of the path in the trace.
    pub path: i16,
    /// Traffic of the path in each direction.
    pub directions: PerDirection<DirectionTraffic>,
}

/// The traffic of one path in one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionTraffic {
    /// Sum of the sizes in each step, in the trace's unit.
    pub sizes: Vec<u64>,
    /// Histogram of the lengths of runs ([`Run`]) in packets. The weight of a run is its number of
    /// packets.
    pub by_packets: Histogram,
    /// Histogram of the durations of runs ([`Run`]) in milliseconds. The weight of a run is its
    /// number of packets.
    pub by_ms: Histogram,
}

/// A run: consecutive packets on one path in one direction, also called a burst (see
/// [`Flow`](super::Flow)). All times are in seconds since the trace began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// The path that carried the run.
    pub path: i16,
    /// Time of the run's first packet.
    pub first: f64,
    /// Time of the run's last packet.
    pub last: f64,
    /// Number of packets in the run.
    pub packets: u64,
}

/// The traffic over time: of all sessions together, and of each selected session.
#[derive(Clone, Debug)]
pub struct TraceTimeSeries {
    /// All sessions together.
    pub all: TimeSeries,
    /// The traffic over time of each selected session, in the order of selection.
    pub chosen: Vec<TimeSeries>,
}

impl TraceTimeSeries {
    /// Reads `trace`, whose `summary` was computed before, and returns its traffic over time.
    /// `chosen` are the indices of the selected sessions in `summary.sessions`. Only the `most`
    /// paths with the most bytes are recorded separately.
    ///
    /// The page loads of a data set have no common clock ([`Summary::is_data_set`]). In the
    /// [`TimeSeries`] of all sessions together, each load therefore begins at time 0.
    ///
    /// # Errors
    /// The errors of [`Trace::for_each`].
    pub fn of_trace(
        trace: &Trace,
        summary: &Summary,
        chosen: &[usize],
        most: usize,
    ) -> Result<TraceTimeSeries, TraceError> {
        let mut gathering = TimeSeriesBuilder::new(summary, chosen, most);
        trace.for_each(|row| gathering.push(row))?;
        Ok(gathering.finish())
    }
}

/// The computation of the time series, row by row.
struct TimeSeriesBuilder {
    time_series: TraceTimeSeries,
    sessions: BTreeMap<(i64, i32), OpenSession>,
}

/// The state of a session while its rows are read.
struct OpenSession {
    unsplit: bool,
    /// Index of the session in the list of selected sessions; `None` if it is not selected.
    place: Option<usize>,
    /// Time, in seconds since the trace began, that counts as 0 for this session in the
    /// [`TimeSeries`] of all sessions together.
    zero: f64,
    /// In each direction, the run in progress ([`Run`]).
    run: PerDirection<Option<Run>>,
}

impl TimeSeriesBuilder {
    fn new(summary: &Summary, chosen: &[usize], most: usize) -> TimeSeriesBuilder {
        let aligned = summary.is_data_set();
        let open_session = |(at, session): (usize, &Session)| {
            let place = chosen.iter().position(|&chosen| chosen == at);
            let zero = if aligned { session.begins } else { 0.0 };
            let fresh =
                OpenSession { unsplit: session.unsplit, place, zero, run: PerDirection::default() };
            ((session.load, session.run), fresh)
        };
        let series = |&at: &usize| {
            let Session { begins, ends, paths, .. } = &summary.sessions[at];
            TimeSeries::new(*begins, *ends, busiest(paths, most))
        };
        let ends = if aligned { summary.longest() } else { summary.seconds };
        let all =
            TimeSeries { aligned, ..TimeSeries::new(0.0, ends, busiest(&summary.paths, most)) };
        TimeSeriesBuilder {
            time_series: TraceTimeSeries { all, chosen: chosen.iter().map(series).collect() },
            sessions: summary.sessions.iter().enumerate().map(open_session).collect(),
        }
    }

    fn push(&mut self, row: &Row<'_>) {
        // A session that the first pass did not find was added to the file in the meantime. It is
        // ignored.
        let Some(session) = self.sessions.get_mut(&(row.load, row.run)) else { return };
        let TraceTimeSeries { all, chosen } = &mut self.time_series;
        let ended = session.step(row);
        all.push(&Row { time: row.time - session.zero, ..*row }, session.unsplit);
        let mut own = session.place.map(|place| &mut chosen[place]);
        if let Some(series) = &mut own {
            series.push(row, session.unsplit);
        }
        if let Some(run) = ended {
            count([Some(all), own], row.size > 0, run);
        }
    }

    fn finish(mut self) -> TraceTimeSeries {
        let TraceTimeSeries { all, chosen } = &mut self.time_series;
        for session in self.sessions.values_mut() {
            for (up, run) in [(true, session.run.up.take()), (false, session.run.down.take())] {
                let Some(run) = run else { continue };
                count([Some(&mut *all), session.place.map(|place| &mut chosen[place])], up, run);
            }
        }
        // The combined runs of several sessions have no order.
        all.runs = PerDirection::default();
        self.time_series
    }
}

/// Adds the completed `run` to the runs and histograms of each of `time_series`. `up` is whether
/// the run goes from client to server.
fn count(time_series: [Option<&mut TimeSeries>; 2], up: bool, run: Run) {
    for series in time_series.into_iter().flatten() {
        series.count(up, run);
    }
}

impl OpenSession {
    /// Adds a row to the run in progress (consecutive packets on one path), or begins the next run
    /// if the path has changed. Returns the completed run if a run ended; `None` otherwise.
    fn step(&mut self, row: &Row<'_>) -> Option<Run> {
        if row.path < 0 {
            return None;
        }
        let run = self.run.of(row);
        if let Some(run) = run.as_mut().filter(|run| run.path == row.path) {
            run.packets += 1;
            run.last = row.time;
            return None;
        }
        run.replace(Run { path: row.path, first: row.time, last: row.time, packets: 1 })
    }
}

impl TimeSeries {
    fn new(begins: f64, ends: f64, paths: Vec<i16>) -> TimeSeries {
        let lasts = ends - begins;
        let step = step_of(lasts);
        let steps = ((lasts / step) as usize + 1).min(STEPS + 1);
        let sizes = || vec![0; steps];
        let traffic = || DirectionTraffic { sizes: sizes(), ..DirectionTraffic::default() };
        let path_series =
            |path| PathSeries { path, directions: PerDirection { up: traffic(), down: traffic() } };
        let whole = PerDirection { up: sizes(), down: sizes() };
        let paths = paths.into_iter().map(path_series).collect();
        TimeSeries {
            begins,
            aligned: false,
            lasts,
            step,
            paths,
            whole,
            runs: PerDirection::default(),
        }
    }

    fn push(&mut self, row: &Row<'_>, unsplit: bool) {
        let at = ((row.time - self.begins) / self.step) as usize;
        let size = u64::from(row.size.unsigned_abs());
        if let Some(series) = self.path(row.path) {
            add(&mut series.directions.of(row).sizes, at, size);
        }
        if unsplit == (row.path < 0) {
            add(self.whole.of(row), at, size);
        }
    }

    fn count(&mut self, up: bool, run: Run) {
        let runs = if up { &mut self.runs.up } else { &mut self.runs.down };
        if runs.len() < RUNS {
            runs.push(run);
        }
        let Some(series) = self.path(run.path) else { return };
        let traffic = if up { &mut series.directions.up } else { &mut series.directions.down };
        traffic.by_packets.add(run.packets as f64, run.packets);
        traffic.by_ms.add((run.last - run.first) * 1e3, run.packets);
    }

    fn path(&mut self, path: i16) -> Option<&mut PathSeries> {
        let at = self.paths.binary_search_by_key(&path, |series| series.path).ok()?;
        Some(&mut self.paths[at])
    }

    /// Returns the end of the period for which [`TimeSeries::runs`] is complete, in seconds since
    /// the trace began.
    pub fn runs_until(&self) -> f64 {
        let full = |runs: &Vec<Run>| (runs.len() >= RUNS).then(|| runs[RUNS - 1].last);
        let ends = [full(&self.runs.up), full(&self.runs.down)];
        ends.into_iter().flatten().fold(self.begins + self.lasts, f64::min)
    }
}

/// Adds `size` to the time step with the index `at`. An index beyond the last step, due to a
/// rounding error, counts as the last step.
fn add(sizes: &mut [u64], at: usize, size: u64) {
    let last = sizes.len() - 1;
    sizes[at.min(last)] += size;
}

/// Returns the indices of the `most` paths with the most bytes, in ascending order.
fn busiest(paths: &[PathSummary], most: usize) -> Vec<i16> {
    let mut ranked: Vec<&PathSummary> = paths.iter().collect();
    ranked.sort_by_key(|path| std::cmp::Reverse(path.up.bytes + path.down.bytes));
    let mut numbers: Vec<i16> = ranked.into_iter().take(most).map(|path| path.path).collect();
    numbers.sort_unstable();
    numbers
}

/// Returns the shortest of 1, 2, 5, 10, 20, … microseconds that divides `seconds` into at most
/// [`STEPS`] steps.
fn step_of(seconds: f64) -> f64 {
    let least = seconds / STEPS as f64;
    let mut ten = 1e-6;
    loop {
        if let Some(step) =
            [1.0, 2.0, 5.0].map(|digit| digit * ten).into_iter().find(|&s| s >= least)
        {
            return step;
        }
        ten *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TraceFacts, TraceWriter};

    fn row(load: i64, path: i16, ms: f64, size: i32) -> Row<'static> {
        Row { load, label: "", monitored: false, run: 0, path, time: ms / 1e3, size }
    }

    fn time_series(rows: &[Row<'_>], chosen: &[usize], most: usize) -> TraceTimeSeries {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = TraceWriter::create(file.path(), &TraceFacts::default()).unwrap();
        rows.iter().for_each(|row| writer.push(row).unwrap());
        writer.finish().unwrap();
        let trace = Trace::open(file.path()).unwrap();
        let summary = Summary::of_trace(&trace).unwrap();
        TraceTimeSeries::of_trace(&trace, &summary, chosen, most).unwrap()
    }

    /// Returns the rows of session 1, from 0 to 600 ms on two paths, and of session 2, at 300 ms on
    /// one path.
    fn two() -> Vec<Row<'static>> {
        vec![
            row(1, 0, 0.0, 100),
            row(1, 0, 1.0, 100),
            row(1, 1, 2.0, -1000),
            row(2, 1, 300.0, 70),
            row(1, 1, 400.0, 200),
            row(1, 0, 600.0, 300),
        ]
    }

    fn sum(sizes: &[u64]) -> u64 {
        sizes.iter().sum()
    }

    #[test]
    fn each_step_holds_what_went_in_it() {
        let series = &time_series(&two(), &[0], 9).chosen[0];
        assert_eq!((series.begins, series.step, series.whole.up.len()), (0.0, 0.001, 601));
        let [first, second] = series.paths.as_slice() else { panic!("not two paths") };
        let up = &first.directions.up.sizes;
        assert_eq!((up[0], up[1], up[2], up[600], sum(up)), (100, 100, 0, 300, 500));
        assert_eq!((second.directions.up.sizes[400], sum(&second.directions.up.sizes)), (200, 200));
        assert_eq!((second.directions.down.sizes[2], sum(&first.directions.down.sizes)), (1000, 0));
        assert_eq!((sum(&series.whole.up), sum(&series.whole.down)), (700, 1000));
    }

    #[test]
    fn sessions_are_told_apart_and_pooled() {
        let time_series = time_series(&two(), &[1], 9);
        assert_eq!((sum(&time_series.all.whole.up), time_series.all.runs.up.len()), (770, 0));
        let [second] = time_series.chosen.as_slice() else { panic!("one was chosen") };
        assert_eq!((second.begins, second.lasts, sum(&second.whole.up)), (0.3, 0.0, 70));
        assert_eq!(second.runs.up, [Run { path: 1, first: 0.3, last: 0.3, packets: 1 }]);
    }

    #[test]
    fn loads_of_a_data_set_begin_together() {
        let loads: Vec<_> = two().iter().map(|row| Row { label: "a.example", ..*row }).collect();
        let all = time_series(&loads, &[], 9).all;
        assert!(all.aligned && !time_series(&two(), &[], 9).all.aligned);
        assert_eq!((all.begins, all.lasts), (0.0, 0.6), "as the longest load");
        // The second load begins 300 ms into the trace, with the first 70 bytes of it.
        assert_eq!((all.whole.up[0], all.whole.up[300], sum(&all.whole.up)), (170, 0, 770));
        assert_eq!(time_series(&two(), &[], 9).all.whole.up[300], 70);
    }

    #[test]
    fn runs_end_where_another_path_takes_over_the_same_direction() {
        let series = &time_series(&two(), &[0], 9).chosen[0];
        let run = |path, first, last, packets| Run { path, first, last, packets };
        let up = [run(0, 0.0, 0.001, 2), run(1, 0.4, 0.4, 1), run(0, 0.6, 0.6, 1)];
        assert_eq!(series.runs.up, up);
        assert_eq!(series.runs.down, [run(1, 0.002, 0.002, 1)]);
        let mut wanted = Histogram::default();
        [2, 1].into_iter().for_each(|packets| wanted.add(packets as f64, packets));
        assert_eq!(series.paths[0].directions.up.by_packets, wanted);
        assert_eq!(series.runs_until(), 0.6);
    }

    #[test]
    fn many_runs_are_told_one_by_one_only_at_first() {
        let rows: Vec<_> = (0..500).map(|n| row(1, n % 2, f64::from(n), 1)).collect();
        let series = &time_series(&rows, &[0], 9).chosen[0];
        assert_eq!((series.runs.up.len(), series.runs_until()), (RUNS, 0.399));
        let counted: u64 =
            series.paths.iter().flat_map(|l| l.directions.up.by_packets.weights()).sum();
        assert_eq!(counted, 500);
    }

    #[test]
    fn a_whole_that_was_recorded_by_itself_is_not_the_sum() {
        let mut rows = two();
        rows.push(row(1, -1, 600.0, 7));
        let time_series = time_series(&rows, &[0], 9);
        assert_eq!(sum(&time_series.chosen[0].whole.up), 7);
        assert_eq!(sum(&time_series.all.whole.up), 77);
        assert_eq!(time_series.chosen[0].paths.len(), 2);
    }

    #[test]
    fn only_the_busiest_paths_get_time_series() {
        let rows: Vec<_> = (0..5).map(|n| row(1, n, f64::from(n), 1 + i32::from(n))).collect();
        let time_series = time_series(&rows, &[], 2);
        let paths: Vec<i16> = time_series.all.paths.iter().map(|series| series.path).collect();
        assert_eq!((paths, sum(&time_series.all.whole.up)), (vec![3, 4], 15));
    }

    #[test]
    fn steps_are_round_and_few() {
        assert_eq!(step_of(0.0), 1e-6);
        for seconds in [1e-9, 0.012, 1.0, 59.9, 60.0, 86_400.0, 1e300, f64::MAX] {
            let step = step_of(seconds);
            assert!(step > 0.0 && seconds / step <= STEPS as f64, "{seconds}: {step}");
        }
        assert!((step_of(12.0) - 0.02).abs() < 1e-12);
    }
}
