//! Statistics of a trace, by session, path and direction.
//!
//! This module only computes; its callers draw.

use std::collections::BTreeMap;

use serde::Serialize;

use super::lengths::Lengths;
use super::{Row, Trace, TraceError};

/// Statistics of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Number of rows.
    pub datagrams: u64,
    /// Time of the last row, in seconds since the trace began.
    pub seconds: f64,
    /// Statistics of each path over all sessions. Bursts of all sessions are counted together. The
    /// longest gap is between two datagrams of the same session.
    pub paths: Vec<PathSummary>,
    /// Statistics of all paths together over all sessions. Bursts and gaps are combined as in
    /// [`Summary::paths`].
    pub whole: PathSummary,
    /// Statistics of each session, in ascending order of `load`, then of `run`.
    pub sessions: Vec<Session>,
}

/// Statistics of one session: the rows with the same values of `load` and `run`.
#[derive(Clone, Debug, Serialize)]
pub struct Session {
    /// Identifier of the page load or session, unique within `run`.
    pub load: i64,
    /// Index of the repetition of the experiment, from 0.
    pub run: i32,
    /// The label of the session: the page or site that was loaded. Empty if unknown.
    pub label: String,
    /// Time of the session's first row, in seconds since the trace began.
    pub begins: f64,
    /// Time of the session's last row, in seconds since the trace began.
    pub ends: f64,
    /// Whether the trace has rows of path -1 (the whole, unsplit traffic) for the session.
    pub unsplit: bool,
    /// Statistics of each path with traffic, in ascending order of the paths' indices, without
    /// path -1 (the unsplit traffic).
    pub paths: Vec<PathSummary>,
    /// All traffic of the session: the rows of path -1 if the trace has them, otherwise the rows
    /// of all paths together.
    pub whole: PathSummary,
}

/// Statistics of one path of a session. Each direction has its own statistics, because a server
/// may answer on another path.
#[derive(Clone, Debug, Serialize)]
pub struct PathSummary {
    /// Index of the path; -1 stands for the whole traffic.
    pub path: i16,
    /// Traffic from client to server.
    pub up: Flow,
    /// Traffic from server to client.
    pub down: Flow,
}

/// The traffic of a path in one direction.
///
/// A *burst* is a maximal sequence of consecutive datagrams on one path: no datagram of the same
/// direction on another path is between them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Flow {
    /// Number of datagrams.
    pub packets: u64,
    /// Total of the datagrams' sizes, in the trace's unit.
    pub bytes: u64,
    /// Share of the session's packets in this direction that the path carried, from 0 to 1.
    pub share: f64,
    /// Number of bursts (sequences of consecutive datagrams on this path), which is how often the
    /// session switched to this path.
    pub bursts: u64,
    /// Distribution of the number of datagrams in a burst.
    pub burst_packets: Spread,
    /// Distribution of the time from the first to the last datagram of a burst, in milliseconds.
    pub burst_ms: Spread,
    /// Longest time between two consecutive datagrams of this path and direction, in milliseconds.
    pub longest_gap_ms: f64,
}

/// Median and maximum of a distribution. Both are zero if the distribution is empty.
///
/// The median is exact only to 0.2 %, because its memory must not grow with the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The median; for an even number of values, the mean of the middle two.
    pub median: f64,
    /// The maximum.
    pub longest: f64,
}

impl Summary {
    /// Computes the summary of `rows`. Within a session, the rows must be in the order of time.
    pub fn of<'a>(rows: impl IntoIterator<Item = Row<'a>>) -> Summary {
        let mut builder = SummaryBuilder::default();
        rows.into_iter().for_each(|row| builder.push(&row));
        builder.finish()
    }

    /// Computes the summary of a file.
    ///
    /// # Errors
    /// The errors of [`Trace::for_each`].
    pub fn of_trace(trace: &Trace) -> Result<Summary, TraceError> {
        let mut builder = SummaryBuilder::default();
        trace.for_each(|row| builder.push(row))?;
        Ok(builder.finish())
    }

    /// Returns whether the trace contains several labelled page loads. The times of each load may
    /// count from the beginning of that load, so times of different loads cannot be compared.
    #[must_use]
    pub fn is_data_set(&self) -> bool {
        self.sessions.len() > 1 && self.sessions.iter().any(|session| !session.label.is_empty())
    }

    /// Returns the time from the first to the last row of the longest session, in seconds; 0
    /// without any session.
    #[must_use]
    pub fn longest(&self) -> f64 {
        self.sessions.iter().map(|session| session.ends - session.begins).fold(0.0, f64::max)
    }
}

/// A summary that is computed row by row. Its memory depends on the number of sessions and their
/// paths, not on the number of rows.
#[derive(Default)]
pub struct SummaryBuilder {
    datagrams: u64,
    seconds: f64,
    sessions: BTreeMap<(i64, i32), SessionTotals>,
}

impl SummaryBuilder {
    /// Adds a row.
    pub fn push(&mut self, row: &Row<'_>) {
        self.datagrams += 1;
        self.seconds = self.seconds.max(row.time);
        let fresh = || SessionTotals {
            label: row.label.to_owned(),
            begins: row.time,
            ..SessionTotals::default()
        };
        self.sessions.entry((row.load, row.run)).or_insert_with(fresh).push(row);
    }

    /// Returns the summary of all rows so far.
    pub fn finish(self) -> Summary {
        let mut total = Parts::default();
        let mut sessions = Vec::with_capacity(self.sessions.len());
        for ((load, run), gathered) in self.sessions {
            let SessionTotals { label, begins, ends, unsplit, paths, whole, .. } = gathered;
            let mut parts = Parts { paths, whole };
            parts.settle();
            total.absorb(&parts);
            let (paths, whole) = parts.finish();
            sessions.push(Session { load, run, label, begins, ends, unsplit, paths, whole });
        }
        let (paths, whole) = total.finish();
        let SummaryBuilder { datagrams, seconds, .. } = self;
        Summary { datagrams, seconds, paths, whole, sessions }
    }
}

/// A pair of values, one for each direction of traffic (up and down).
#[derive(Clone, Default)]
struct Both<T> {
    up: T,
    down: T,
}

impl<T> Both<T> {
    fn of(&mut self, row: &Row<'_>) -> &mut T {
        if row.size > 0 { &mut self.up } else { &mut self.down }
    }
}

/// Statistics in both directions for each path, by the path's index. They are boxed, because a
/// tree node has room for eleven values, and most sessions have only two or three paths.
type Paths = BTreeMap<i16, Box<Both<Tally>>>;

/// The statistics of a session so far.
#[derive(Default)]
struct SessionTotals {
    label: String,
    begins: f64,
    ends: f64,
    paths: Paths,
    whole: Both<Tally>,
    /// Whether the trace has rows of path -1 for the session. If so, only those rows count as its
    /// whole traffic.
    unsplit: bool,
    /// The path that carried the latest datagram, for each direction.
    current: Both<Option<i16>>,
}

impl SessionTotals {
    fn push(&mut self, row: &Row<'_>) {
        self.ends = row.time;
        if row.path < 0 {
            return self.push_whole(row);
        }
        let switched = self.current.of(row).replace(row.path) != Some(row.path);
        self.paths.entry(row.path).or_default().of(row).add(row, switched);
        if !self.unsplit {
            self.whole.of(row).add(row, switched);
        }
    }

    fn push_whole(&mut self, row: &Row<'_>) {
        if !self.unsplit {
            self.unsplit = true;
            self.whole = Both::default();
        }
        self.whole.of(row).add(row, false);
    }
}

/// Statistics of the paths and of the whole traffic, of one session or of all sessions.
#[derive(Default)]
struct Parts {
    paths: Paths,
    whole: Both<Tally>,
}

impl Parts {
    /// Adds the bursts that were still in progress at the end of the trace to the statistics.
    fn settle(&mut self) {
        for both in self.paths.values_mut().map(Box::as_mut).chain([&mut self.whole]) {
            both.up.settle();
            both.down.settle();
        }
    }

    fn absorb(&mut self, other: &Parts) {
        self.whole.absorb(&other.whole);
        for (path, both) in &other.paths {
            self.paths.entry(*path).or_default().absorb(both);
        }
    }

    fn finish(self) -> (Vec<PathSummary>, PathSummary) {
        // Shares refer to the sum over the paths, even if the whole traffic was recorded
        // separately.
        let sum = |of: fn(&Both<Tally>) -> u64| self.paths.values().map(|both| of(both)).sum();
        let totals = (sum(|both| both.up.packets), sum(|both| both.down.packets));
        let whole = (self.whole.up.packets, self.whole.down.packets);
        let paths = self.paths.into_iter().map(|(path, both)| both.finish(path, totals)).collect();
        (paths, self.whole.finish(-1, whole))
    }
}

impl Both<Tally> {
    fn absorb(&mut self, other: &Both<Tally>) {
        self.up.absorb(&other.up);
        self.down.absorb(&other.down);
    }

    fn finish(self, path: i16, totals: (u64, u64)) -> PathSummary {
        PathSummary { path, up: self.up.finish(totals.0), down: self.down.finish(totals.1) }
    }
}

/// The statistics so far of one path in one direction.
#[derive(Clone, Default)]
struct Tally {
    packets: u64,
    bytes: u64,
    /// The burst (sequence of consecutive datagrams on one path) in progress.
    burst: Option<Burst>,
    burst_packets: Lengths,
    burst_ms: Lengths,
    latest: Option<f64>,
    longest_gap: f64,
}

#[derive(Clone, Copy)]
struct Burst {
    packets: u64,
    first: f64,
    last: f64,
}

impl Tally {
    /// Adds a row. `switched` is true if the session's previous row was on another path. If so, a
    /// new burst begins.
    fn add(&mut self, row: &Row<'_>, switched: bool) {
        self.packets += 1;
        self.bytes += u64::from(row.size.unsigned_abs());
        let gap = self.latest.replace(row.time).map_or(0.0, |latest| row.time - latest);
        self.longest_gap = self.longest_gap.max(gap);
        if switched {
            self.settle();
        }
        let fresh = Burst { packets: 0, first: row.time, last: row.time };
        let burst = self.burst.get_or_insert(fresh);
        burst.packets += 1;
        burst.last = row.time;
    }

    /// Ends the burst (sequence of consecutive datagrams on one path) in progress, and adds it to
    /// the statistics.
    fn settle(&mut self) {
        if let Some(Burst { packets, first, last }) = self.burst.take() {
            self.burst_packets.add(packets as f64);
            self.burst_ms.add((last - first) * 1e3);
        }
    }

    fn absorb(&mut self, other: &Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.burst_packets.absorb(&other.burst_packets);
        self.burst_ms.absorb(&other.burst_ms);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }

    fn finish(self, total: u64) -> Flow {
        let share = if total == 0 { 0.0 } else { self.packets as f64 / total as f64 };
        Flow {
            packets: self.packets,
            bytes: self.bytes,
            share,
            bursts: self.burst_packets.count(),
            burst_packets: Spread::of(&self.burst_packets),
            burst_ms: Spread::of(&self.burst_ms),
            longest_gap_ms: self.longest_gap * 1e3,
        }
    }
}

impl Spread {
    fn of(lengths: &Lengths) -> Spread {
        Spread { median: lengths.median(), longest: lengths.longest() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(load: i64, path: i16, ms: f64, size: i32) -> Row<'static> {
        Row { load, label: "", monitored: false, run: 0, path, time: ms / 1e3, size }
    }

    /// Returns a session. Its uplink has two packets on path 0, one on path 1, and one on path 0.
    /// Its downlink has packets on path 1 only, between those of the uplink.
    fn switching() -> Vec<Row<'static>> {
        vec![
            row(7, 0, 0.0, 100),
            row(7, 1, 1.0, -50),
            row(7, 0, 10.0, 100),
            row(7, 1, 40.0, 200),
            row(7, 1, 41.0, -50),
            row(7, 0, 100.0, 300),
        ]
    }

    #[test]
    fn each_path_and_direction_counts_by_itself() {
        let summary = Summary::of(switching());
        assert_eq!((summary.datagrams, summary.sessions.len()), (6, 1));
        let [first, second] = summary.sessions[0].paths.as_slice() else { panic!("not two paths") };
        assert_eq!((first.path, first.up.packets, first.up.bytes), (0, 3, 500));
        assert_eq!((first.down.packets, first.down.share, first.down.bursts), (0, 0.0, 0));
        assert_eq!((second.path, second.up.packets, second.up.bytes), (1, 1, 200));
        assert_eq!((second.down.packets, second.down.bytes, second.down.share), (2, 100, 1.0));
        assert_eq!((first.up.share, second.up.share), (0.75, 0.25));
    }

    #[test]
    fn a_burst_ends_where_another_path_takes_over_the_same_direction() {
        let session = &Summary::of(switching()).sessions[0];
        let up = &session.paths[0].up;
        assert_eq!(up.bursts, 2);
        assert_eq!(up.burst_packets, Spread { median: 1.5, longest: 2.0 });
        assert_eq!(up.burst_ms, Spread { median: 5.0, longest: 10.0 });
        assert!((up.longest_gap_ms - 90.0).abs() < 1e-9, "{}", up.longest_gap_ms);
        // Changes of the uplink's path do not end the downlink's burst.
        assert_eq!(session.paths[1].down.bursts, 1);
    }

    #[test]
    fn the_whole_is_the_union_of_the_paths() {
        let whole = &Summary::of(switching()).sessions[0].whole;
        assert_eq!((whole.path, whole.up.packets, whole.up.bytes), (-1, 4, 700));
        assert_eq!((whole.up.bursts, whole.down.bursts, whole.up.share), (3, 1, 1.0));
        assert!((whole.up.longest_gap_ms - 60.0).abs() < 1e-9, "{}", whole.up.longest_gap_ms);
    }

    #[test]
    fn rows_of_the_unsplit_whole_are_not_added_to_the_paths() {
        let mut rows = switching();
        rows.insert(0, row(7, -1, 0.0, 700));
        let session = &Summary::of(rows).sessions[0];
        assert_eq!((session.whole.up.packets, session.whole.up.bursts), (1, 1));
        assert_eq!(session.whole.down.packets, 0);
        assert_eq!(session.paths[0].up.share, 0.75);
    }

    #[test]
    fn interleaved_sessions_do_not_interrupt_each_other() {
        let rows = [row(2, 0, 0.0, 1), row(1, 1, 1.0, 1), row(2, 0, 2.0, 1), row(1, 1, 3.0, 1)];
        let summary = Summary::of(rows);
        let loads: Vec<i64> = summary.sessions.iter().map(|s| s.load).collect();
        assert_eq!(loads, [1, 2]);
        assert!(summary.sessions.iter().all(|s| s.whole.up.bursts == 1));
        let total = (summary.whole.up.packets, summary.whole.up.bursts, summary.paths.len());
        assert_eq!(total, (4, 2, 2));
        assert_eq!(summary.paths[1].up.share, 0.5);
        assert_eq!(summary.paths[1].up.longest_gap_ms, 2.0);
    }

    #[test]
    fn a_session_lasts_from_its_first_row_to_its_last() {
        let rows = [row(2, 0, 5.0, 1), row(1, 1, 7.0, 1), row(2, 0, 9.0, -1)];
        let summary = Summary::of(rows);
        let spans: Vec<_> = summary.sessions.iter().map(|s| (s.begins, s.ends)).collect();
        assert_eq!(spans, [(0.007, 0.007), (0.005, 0.009)]);
    }

    #[test]
    fn an_empty_trace_is_an_empty_summary() {
        let summary = Summary::of([]);
        assert_eq!((summary.datagrams, summary.seconds, summary.sessions.len()), (0, 0.0, 0));
    }
}
