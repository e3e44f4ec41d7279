//! Measurements of many cells, several at a time, each with several seeds.

use std::io;
use std::sync::{Condvar, Mutex};
use std::thread;

use anabranch_tcp::{Config, Congestion};

use super::{Cell, Goodput, Stack, measure};

/// Maximum rate in Mbit/s of all concurrent runs together, so that the machine does not limit them.
const AT_ONCE: f64 = 260.0;
/// Maximum number of concurrent runs.
const RUNS: usize = 24;
/// Minimum rate in Mbit/s that is reserved for a run.
const LEAST: f64 = 6.0;

/// Direction of the data between `anabranch-tcp` and Linux. The baseline has Linux at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `anabranch-tcp` sends to Linux.
    Up,
    /// Linux sends to `anabranch-tcp`.
    Down,
}

/// Medians of a cell.
#[derive(Clone, Debug)]
pub struct Row {
    pub cell: Cell,
    pub congestion: Congestion,
    /// Rates in Mbit/s: Linux to Linux, `anabranch-tcp` to Linux, Linux to `anabranch-tcp`.
    pub rates: [f64; 3],
    /// Minimum and maximum of each rate.
    pub spreads: [(f64, f64); 3],
    pub dropped: [f64; 3],
}

impl Row {
    /// Returns the goodput of `anabranch-tcp` relative to Linux's.
    pub fn ratio(&self, direction: Direction) -> f64 {
        let ours = match direction {
            Direction::Up => self.rates[1],
            Direction::Down => self.rates[2],
        };
        ours / self.rates[0]
    }
}

const PAIRS: [[Stack; 2]; 3] =
    [[Stack::Linux, Stack::Linux], [Stack::Ours, Stack::Linux], [Stack::Linux, Stack::Ours]];

/// Capacity of the machine that is still free.
struct Room {
    free: Mutex<(f64, usize)>,
    changed: Condvar,
}

impl Room {
    fn take(&self, rate: f64) {
        let mut free = self.free.lock().unwrap();
        while free.1 == 0 || (free.0 < rate && free.1 < RUNS) {
            free = self.changed.wait(free).unwrap();
        }
        free.0 -= rate;
        free.1 -= 1;
    }

    fn give(&self, rate: f64) {
        let mut free = self.free.lock().unwrap();
        free.0 += rate;
        free.1 += 1;
        self.changed.notify_all();
    }
}

/// Measures all cells with seeds 1 to `seeds`. Calls `show` for each finished cell.
pub fn measure_all(
    cells: &[(Cell, Congestion)],
    seeds: u64,
    show: impl FnMut(&Row) + Send,
) -> io::Result<Vec<Row>> {
    let room = Room { free: Mutex::new((AT_ONCE, RUNS)), changed: Condvar::new() };
    let show = &Mutex::new(show);
    thread::scope(|scope| {
        let mut collectors = Vec::new();
        for &(cell, congestion) in cells {
            let mut runs = Vec::new();
            for seed in 1..=seeds {
                for stacks in PAIRS {
                    let rate = cell.expected().max(LEAST);
                    room.take(rate);
                    let room = &room;
                    runs.push(scope.spawn(move || {
                        let config = Config { congestion, ..Config::default() };
                        let result = measure(cell, seed, stacks, &config);
                        room.give(rate);
                        result
                    }));
                }
            }
            collectors.push(scope.spawn(move || {
                let done = runs.into_iter().map(|run| run.join().expect("no run panics"));
                let row = row(cell, congestion, &done.collect::<io::Result<Vec<_>>>()?);
                (show.lock().unwrap())(&row);
                Ok(row)
            }));
        }
        collectors.into_iter().map(|rows| rows.join().expect("no run panics")).collect()
    })
}

fn row(cell: Cell, congestion: Congestion, runs: &[Goodput]) -> Row {
    let of = |pair: usize, what: fn(&Goodput) -> f64| {
        let mut values: Vec<f64> = runs.iter().skip(pair).step_by(3).map(what).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let rates = [0, 1, 2].map(|pair| of(pair, |run| run.rate));
    Row {
        cell,
        congestion,
        spreads: rates.each_ref().map(|all| (all[0], all[all.len() - 1])),
        rates: rates.map(|all| all[all.len() / 2]),
        dropped: [0, 1, 2].map(|pair| of(pair, |run| run.dropped)).map(|all| all[all.len() / 2]),
    }
}
