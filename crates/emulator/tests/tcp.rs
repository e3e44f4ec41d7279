//! Comparison of `anabranch-tcp` with this machine's Linux, through a TUN interface. `make bench
//! AREA=tcp` measures the whole grid.

mod judge;

use std::time::Instant;

use anabranch_tcp::Congestion;
use judge::grid::{Direction, Row, measure_all};
use judge::{Cell, can_run};

/// Maximum relative distance from Linux's goodput.
const WITHIN: f64 = 0.15;
/// Minimum share of the cells (link settings) within that distance.
const SHARE: f64 = 0.9;

fn cell(rate: u32, rtt: u32, loss: f64, queue: f64) -> Cell {
    Cell { rate, rtt, loss, queue, reorders: false }
}

fn show(row: &Row) {
    let [linux, up, down] = row.rates;
    let [low, high] = [row.spreads[0].0, row.spreads[0].1];
    let mark = |direction| if within(row.ratio(direction)) { ' ' } else { '!' };
    println!(
        "{:<44} {:?}: Linux {linux:7.2} ({low:.2}-{high:.2}), up {up:7.2} ({:.2}-{:.2}) {:.2}{} \
         down {down:7.2} ({:.2}-{:.2}) {:.2}{} dropped {:.1} {:.1} {:.1} ‰",
        row.cell.to_string(),
        row.congestion,
        row.spreads[1].0,
        row.spreads[1].1,
        row.ratio(Direction::Up),
        mark(Direction::Up),
        row.spreads[2].0,
        row.spreads[2].1,
        row.ratio(Direction::Down),
        mark(Direction::Down),
        row.dropped[0],
        row.dropped[1],
        row.dropped[2],
    );
}

fn within(ratio: f64) -> bool {
    (ratio - 1.0).abs() <= WITHIN
}

/// Measures all cells (link settings), and prints the results. Returns the share of the results
/// within [`WITHIN`].
fn judge(cells: &[(Cell, Congestion)], seeds: u64) -> f64 {
    let start = Instant::now();
    let rows = measure_all(cells, seeds, show).expect("the machine can run it");
    let mut fine = 0;
    for direction in [Direction::Up, Direction::Down] {
        let good = rows.iter().filter(|row| within(row.ratio(direction))).count();
        println!("{direction:?}: {good} of {} cells within {WITHIN}", rows.len());
        fine += good;
    }
    println!("{} seeds, {:.0} s", seeds, start.elapsed().as_secs_f64());
    fine as f64 / (2 * rows.len()) as f64
}

#[test]
fn goodput_is_that_of_linux_on_a_short_grid() {
    if let Err(why) = can_run() {
        eprintln!("skipped: {why}");
        return;
    }
    let cells = [
        cell(10, 40, 0.0, 1.0),
        cell(20, 20, 0.0, 0.5),
        cell(10, 40, 1.0, 1.0),
        cell(50, 20, 3.0, 1.0),
    ];
    let share = judge(&cells.map(|cell| (cell, Congestion::CUBIC)), 7);
    assert!(share >= 0.75, "{share} of the cells are within {WITHIN}");
}

/// Returns rates, round-trip times, losses and queues, each combined with some of the others.
fn long_grid() -> Vec<(Cell, Congestion)> {
    let mut cells = Vec::new();
    for (rate, rtt) in [
        (2, 50),
        (2, 200),
        (10, 20),
        (10, 100),
        (50, 10),
        (50, 50),
        (50, 200),
        (200, 10),
        (200, 50),
    ] {
        for (loss, queue) in
            [(0.0, 0.25), (0.0, 1.0), (0.0, 4.0), (0.1, 1.0), (1.0, 1.0), (5.0, 1.0)]
        {
            cells.push((cell(rate, rtt, loss, queue), Congestion::CUBIC));
        }
    }
    for (rate, rtt, loss) in [(10, 50, 0.0), (10, 50, 1.0), (50, 100, 0.0)] {
        cells.push((Cell { reorders: true, ..cell(rate, rtt, loss, 1.0) }, Congestion::CUBIC));
        cells.push((cell(rate, rtt, loss, 1.0), Congestion::RENO));
    }
    cells
}

#[test]
#[ignore = "measures for long: make bench AREA=tcp"]
fn goodput_is_that_of_linux_on_the_long_grid() {
    if let Err(why) = can_run() {
        eprintln!("skipped: {why}");
        return;
    }
    // The variable `TCP_CELLS` selects the cells whose line contains this text.
    let only = std::env::var("TCP_CELLS").unwrap_or_default();
    let seeds = std::env::var("TCP_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(5);
    let mut cells = long_grid();
    cells.retain(|(cell, congestion)| format!("{cell} {congestion:?}").contains(&only));
    let share = judge(&cells, seeds);
    assert!(share >= SHARE, "{share} of the cells are within {WITHIN}");
}
