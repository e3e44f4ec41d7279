//! A reliable pipe between two cores, with a delay and a rate. The pipe delivers data in chunks of
//! any length.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::seed::{self, Stream};
use anabranch_multipath::{LinkView, Time};
use anabranch_netem::{Link, LinkSettings, Loss};
use anabranch_onion::wire::cell::{CELL, NUMBERED_CELL};
use anabranch_onion::wire::extend::Target;
use rand::RngExt;

use super::Setting;

/// Both directions of a simulated link between two cores. Side 0 opened the link. Data that one
/// side sends arrives at the other side.
pub struct Pipe {
    pub nodes: [usize; 2],
    /// Bytes sent in both directions.
    pub bytes_sent: u64,
    /// Number of bytes that side 1 receives (positive) or sends (negative) at each time. `None` if
    /// the test does not record them.
    pub seen: Option<Vec<(Time, i64)>>,
    /// Circuit ID of the last cell from side 0; `None` before the first cell.
    pub last_circuit: Option<u32>,
    wires: [Link<Vec<u8>>; 2],
    /// Lossy cells (cells that may get lost) in flight in both directions. Each cell is a separate
    /// datagram.
    datagrams: [Link<Vec<u8>>; 2],
    /// Whether the next arriving lossy cell (a cell in a datagram) is changed on its way.
    pub corrupts_next: bool,
    /// Whether each lossy cell (a cell in a datagram) is sent twice.
    pub duplicates: bool,
    /// Rate of the pipe in bits per second.
    rate: u64,
    /// For each side, whether its core has something to send.
    ready: [bool; 2],
    opens: Option<(Time, Target)>,
    /// For each side, whether the pipe loses all data to that side without notice, both data in
    /// flight and data sent later.
    blackholed: [bool; 2],
    /// Random lengths of the chunks in which data arrives; `None` if data arrives whole.
    chunks: Option<Stream>,
    /// Data that has arrived but was not delivered yet, by the receiving side.
    rest: [Vec<u8>; 2],
    /// For each side, the size in bytes of the records into which its data is split. Such records
    /// may overtake each other. `None` for data that stays in order.
    records: [Option<usize>; 2],
    /// Number of records per thousand that are lost. A lost record is sent again one round trip
    /// later.
    late_per_mille: u32,
    dice: Stream,
    /// Lost records, each with the time at which it is sent again.
    again: [VecDeque<(Time, Vec<u8>)>; 2],
    round_trip: Duration,
}

impl Pipe {
    pub fn new(setting: &Setting, id: u64, nodes: [usize; 2], now: Time, target: Target) -> Pipe {
        let settings =
            || LinkSettings { delay: setting.delay, ..LinkSettings::with_rate(setting.rate) };
        let wire = |side| Link::new(settings(), setting.seed, 2 * id + side);
        let lossy = || LinkSettings {
            jitter: setting.jitter,
            reorder: true,
            loss: match setting.dropped_per_mille {
                0 => Loss::None,
                dropped => Loss::Bernoulli(f64::from(dropped) / 1_000.0),
            },
            queue: 200_000,
            ..settings()
        };
        let datagrams = |side| Link::new(lossy(), setting.seed, 1_000_000 + 2 * id + side);
        Pipe {
            nodes,
            bytes_sent: 0,
            seen: None,
            last_circuit: None,
            wires: [wire(0), wire(1)],
            datagrams: [datagrams(0), datagrams(1)],
            corrupts_next: false,
            duplicates: false,
            rate: setting.rate,
            ready: [false; 2],
            blackholed: [false; 2],
            // This is the duration of the handshakes of TCP and TLS 1.3.
            opens: Some((now + 2 * setting.delay, target)),
            chunks: setting.pieces.then(|| seed::stream(setting.seed, id, "chunks")),
            rest: [Vec::new(), Vec::new()],
            records: [None; 2],
            late_per_mille: setting.late_per_mille,
            dice: seed::stream(setting.seed, id, "losses"),
            again: Default::default(),
            round_trip: 2 * setting.delay,
        }
    }

    /// Creates a pipe between two cores of one relay. The pipe is open at once, and as fast as
    /// memory.
    pub fn sibling(setting: &Setting, id: u64, nodes: [usize; 2]) -> Pipe {
        let quick =
            Setting { rate: 10_000_000_000, delay: Duration::from_micros(10), ..setting.clone() };
        let pipe = Pipe::new(&quick, id, nodes, Time::ZERO, Target::default());
        Pipe { opens: None, ..pipe }
    }

    /// Returns the time of the next arrival of data or of the opening of the link, whichever is
    /// first; `None` if neither will happen.
    pub fn next_timeout(&self) -> Option<Time> {
        let wires = self.wires.iter().chain(&self.datagrams).filter_map(Link::next_timeout);
        let again = self.again.iter().filter_map(|lost| Some(lost.front()?.0));
        wires.chain(again).chain(self.opens.as_ref().map(|(time, _)| *time)).min()
    }

    /// Returns the target of the link in the first call after the link has opened. Returns `None`
    /// in all other calls.
    pub fn opening(&mut self, now: Time) -> Option<Target> {
        self.opens.take_if(|(time, _)| *time <= now).map(|(_, target)| target)
    }

    /// Cancels the opening of the link. Returns its target; `None` if the link has opened already.
    pub fn unopened(&mut self) -> Option<Target> {
        self.opens.take().map(|(_, target)| target)
    }

    /// Makes the pipe lose everything that would arrive from now on, at both sides.
    pub fn swallow(&mut self) {
        self.blackholed = [true; 2];
    }

    /// Makes the pipe lose everything that would arrive at `side` from now on.
    pub fn swallow_to(&mut self, side: usize) {
        self.blackholed[side] = true;
    }

    /// Splits the data that `node` sends from now on into records of `record` bytes. These records
    /// may overtake each other.
    pub fn fix(&mut self, node: usize, record: usize) {
        self.records[usize::from(self.nodes[0] != node)] = Some(record);
    }

    /// Returns whether records may overtake each other in both directions.
    pub fn is_unordered(&self) -> bool {
        self.records.iter().all(Option::is_some)
    }

    /// Returns the next chunk of the data that has arrived at `side`; `None` if there is none.
    pub fn arrival(&mut self, now: Time, side: usize) -> Option<Vec<u8>> {
        while let Some((_, record)) = self.again[1 - side].pop_front_if(|(time, _)| *time <= now) {
            let length = record.len();
            self.wires[1 - side].push(now, record, length).expect("a pipe loses nothing");
        }
        if self.blackholed[side] {
            while self.wires[1 - side].pop(now).is_some() {}
            return None;
        }
        if self.rest[side].is_empty() {
            self.rest[side] = self.wires[1 - side].pop(now)?;
        }
        let whole = self.rest[side].len();
        // Records arrive whole, because the link has already decrypted them.
        let chunks = self.chunks.as_mut().filter(|_| self.records[1 - side].is_none());
        let length = chunks.map_or(whole, |chunks| chunks.random_range(1..=whole));
        let later = self.rest[side].split_off(length);
        if side == 1 {
            self.note(now, length as i64);
        }
        Some(std::mem::replace(&mut self.rest[side], later))
    }

    /// Sends lossy cells, which may be lost, delayed or reordered.
    pub fn push_lossy(&mut self, now: Time, side: usize, cells: &[u8]) {
        for cell in cells.chunks(NUMBERED_CELL) {
            for _ in 0..=usize::from(self.duplicates) {
                // A full queue drops the cell.
                let _ = self.datagrams[side].push(now, cell.to_vec(), cell.len());
            }
        }
    }

    /// Returns the next lossy cell (a cell in a datagram) that has arrived at `side`; `None` if
    /// there is none.
    pub fn lossy_arrival(&mut self, now: Time, side: usize) -> Option<Vec<u8>> {
        let mut cell = self.datagrams[1 - side].pop(now)?;
        if self.blackholed[side] {
            return None;
        }
        if std::mem::take(&mut self.corrupts_next) {
            cell[100] ^= 1;
        }
        Some(cell)
    }

    fn note(&mut self, now: Time, bytes: i64) {
        if let Some(seen) = &mut self.seen {
            seen.push((now, bytes));
        }
    }

    /// Records that the core of `node` has data to send on this link.
    pub fn ready(&mut self, node: usize) {
        let side = usize::from(self.nodes[0] != node);
        self.ready[side] = true;
    }

    /// Returns whether to fetch bytes from a side's core. This is so if the core has bytes to
    /// send, and fewer than `batch` bytes wait in the pipe.
    pub fn wants(&self, side: usize, batch: usize) -> bool {
        self.ready[side] && self.wires[side].backlog() < batch
    }

    /// Sends `bytes` from `side`. `more` states whether the core has more bytes to send. Returns
    /// whether `bytes` was not empty.
    pub fn push(&mut self, now: Time, side: usize, bytes: Vec<u8>, more: bool) -> bool {
        self.ready[side] = more;
        let length = bytes.len();
        self.bytes_sent += length as u64;
        if length > 0 {
            let last = bytes.last_chunk::<CELL>().and_then(|cell| cell.first_chunk());
            let circuit = last.map(|id| u32::from_be_bytes(*id)).filter(|id| *id > 0);
            if side == 0 {
                self.last_circuit = circuit.or(self.last_circuit);
            }
            if side == 1 {
                self.note(now, -(length as i64));
            }
            self.carry(now, side, bytes);
        }
        length > 0
    }

    fn carry(&mut self, now: Time, side: usize, bytes: Vec<u8>) {
        let record = self.records[side].unwrap_or(bytes.len());
        assert_eq!(bytes.len() % record, 0, "records are whole");
        for record in bytes.chunks(record) {
            if self.records[side].is_some()
                && self.dice.random_range(0..1_000) < self.late_per_mille
            {
                self.again[side].push_back((now + self.round_trip, record.to_vec()));
                continue;
            }
            let length = record.len();
            self.wires[side].push(now, record.to_vec(), length).expect("a pipe loses nothing");
        }
    }

    /// Returns the state that a kernel would report for a TCP connection at the pipe's rate:
    /// unsent bytes, round-trip time and delivery rate.
    pub fn view(&self, side: usize) -> LinkView {
        let settings = self.wires[side].settings();
        LinkView {
            notsent: u32::try_from(self.wires[side].backlog()).unwrap_or(u32::MAX),
            rtt: 2 * settings.delay,
            delivery_rate: self.rate / 8,
            ..LinkView::default()
        }
    }

    /// Changes the delay of data that is sent from now on.
    pub fn set_delay(&mut self, now: Time, delay: Duration) {
        self.wires.iter_mut().for_each(|wire| wire.change(now, |settings| settings.delay = delay));
    }
}
