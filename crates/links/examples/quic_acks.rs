//! Measures goodput, response times and the number of acknowledgements of a QUIC link over a lossy
//! network path, in virtual time.

use std::num::NonZeroU64;
use std::time::Duration;

use anabranch_links::quic::Congestion;
use anabranch_multipath::Time;
use anabranch_netem::{LinkSettings, Loss};
use anabranch_testkit::quic_pair::{CELL, CREATES, DATA, QuicPair, cell, line};

const SEEDS: u64 = 5;
const MS: Duration = Duration::from_millis(1);
/// Simulated time over which a bulk transfer is measured. The `WARM_UP` before it does not count.
const COUNTED: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(5);
/// Number of answers in a simulation run. Each answer has `ANSWER` cells, which are 50 kB.
const ANSWERS: u32 = 20;
const ANSWER: u32 = 97;
/// Maximum time to wait for an answer.
const LONGEST: Duration = Duration::from_secs(60);

/// Simulated network path under a QUIC link, and the link's congestion control.
#[derive(Clone, Copy)]
struct Line {
    congestion: Congestion,
    /// Rate in Mbit/s.
    megabits: u64,
    /// One-way delay.
    delay: Duration,
    /// Share of datagrams that are lost.
    loss: f64,
}

impl Line {
    fn open(&self, seed: u64) -> QuicPair {
        let bits = self.megabits * 1_000_000;
        let loss = if self.loss > 0.0 { Loss::Bernoulli(self.loss) } else { Loss::None };
        let rate = NonZeroU64::new(bits);
        // The queue holds what the line carries in 50 ms.
        let queue = bits as usize / 8 / 20;
        let settings = LinkSettings { rate, queue, loss, ..line(self.delay) };
        let mut pair = QuicPair::by(self.congestion, &settings, seed).opened();
        pair.write(0, &cell(1, CREATES, 0));
        pair.run(Duration::from_secs(1));
        pair
    }

    /// Returns the goodput of a bulk transfer in Mbit/s, and the number of datagrams from the
    /// receiver (mostly acknowledgements) for each datagram from the sender.
    fn bulk(&self, seed: u64) -> [f64; 2] {
        let mut pair = self.open(seed);
        transfer(&mut pair, WARM_UP);
        let before = pair.sent;
        let bytes = transfer(&mut pair, COUNTED);
        let [data, back] = [0, 1].map(|end| (pair.sent[end] - before[end]) as f64);
        [bytes as f64 * 8e-6 / COUNTED.as_secs_f64(), back / data]
    }

    /// Returns two medians over the answers of a run: the times, in ms, from a request to the
    /// first and to the last cell of the answer.
    fn answers(&self, seed: u64) -> [f64; 2] {
        let mut pair = self.open(seed);
        let cells: Vec<u8> = (0..ANSWER).flat_map(|number| cell(1, DATA, number)).collect();
        let mut times = [Vec::new(), Vec::new()];
        for number in 0..ANSWERS {
            let begun = pair.now;
            for (times, end) in times.iter_mut().zip(answer(&mut pair, number, &cells)) {
                times.push(end.since(begun).as_secs_f64() * 1e3);
            }
            pair.run(Duration::from_millis(500));
        }
        times.map(|times| spread(times)[0])
    }
}

/// Writes to the link, for the time `span`, as much data as the link accepts. Returns the number
/// of bytes that arrived.
fn transfer(pair: &mut QuicPair, span: Duration) -> usize {
    let batch: Vec<u8> = (0..20).flat_map(|number| cell(1, DATA, number)).collect();
    let (until, mut bytes) = (pair.now + span, 0);
    while pair.now < until {
        while pair.link(0).room() >= batch.len() {
            pair.write(0, &batch);
        }
        pair.run(MS);
        bytes += std::mem::take(&mut pair.received[1]).len();
    }
    bytes
}

/// Sends a request with the sequence number `number`, and then `cells` as the answer. Returns the
/// times at which the first and the last cell of the answer arrived.
fn answer(pair: &mut QuicPair, number: u32, cells: &[u8]) -> [Time; 2] {
    pair.received = Default::default();
    pair.write(1, &cell(1, DATA, number));
    let (begun, mut sent, mut first) = (pair.now, 0, None);
    while pair.received[1].len() < cells.len() && pair.now.since(begun) < LONGEST {
        let is_asked = !pair.received[0].is_empty();
        let count = (cells.len() - sent).min(pair.link(0).room()) / CELL * CELL;
        if is_asked && count > 0 {
            pair.write(0, &cells[sent..sent + count]);
            sent += count;
        }
        pair.run(MS);
        if !pair.received[1].is_empty() {
            first.get_or_insert(pair.now);
        }
    }
    [first.unwrap_or(pair.now), pair.now]
}

/// Returns the median, the minimum and the maximum of `values`.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

fn show(rows: &[[f64; 2]], place: usize, digits: usize) -> String {
    let [median, least, most] = spread(rows.iter().map(|row| row[place]).collect());
    format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
}

fn main() {
    println!("| line | goodput, Mbit/s | datagrams back | first cell, ms | 50 kB, ms |");
    println!("|---|---|---|---|---|");
    for congestion in [Congestion::Cubic, Congestion::Bbr] {
        for (megabits, delay) in [(5, 50 * MS), (50, 10 * MS), (50, 50 * MS)] {
            for loss in [0.0, 0.01, 0.03] {
                let line = Line { congestion, megabits, delay, loss };
                let bulk: Vec<[f64; 2]> = (1..=SEEDS).map(|seed| line.bulk(seed)).collect();
                let short: Vec<[f64; 2]> = (1..=SEEDS).map(|seed| line.answers(seed)).collect();
                let (trip, percent) = (2 * delay.as_millis(), loss * 100.0);
                println!(
                    "| {congestion:?}, {megabits} Mbit/s, {trip} ms, {percent} % | {} | {} | {} \
                     | {} |",
                    show(&bulk, 0, 2),
                    show(&bulk, 1, 3),
                    show(&short, 0, 0),
                    show(&short, 1, 0)
                );
            }
        }
    }
}
