//! Two QUIC endpoints in memory, with an emulated line in each direction. They carry cells of
//! [`CELL`] bytes: a circuit, a command, and a number.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anabranch_links::quic::{
    Arrival, CellFormat, Congestion, ConnId, Endpoint, EndpointInput, EndpointOutput, Head,
    QuicLink, SocketIndex,
};
use anabranch_links::{Context, Link, State};
use anabranch_multipath::conformance::check_at_rest;
use anabranch_multipath::seed::stream;
use anabranch_multipath::{Core as _, Time};
use anabranch_netem::{self as netem, LinkSettings};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::every_link::{self, LinkEnds};
pub use crate::every_link::{CREATES, DATA};

/// Time at which the test certificates are made, in seconds since 1970.
pub const NOW: u64 = 1_800_000_000;
/// Size in bytes of the cells (units of data on a link) in these tests.
pub const CELL: usize = 514;
/// Command of the test cell that closes a circuit.
pub const ENDS: u8 = 4;

/// Parses the head of a test cell: a circuit ID, a command, and a length if the command is 128 or
/// more. Returns `None` if `bytes` is too short.
pub fn head(bytes: &[u8], _: bool) -> Option<Head> {
    let (circuit, rest) = bytes.split_first_chunk()?;
    let command = *rest.first()?;
    let length = match command {
        128.. => 7 + usize::from(u16::from_be_bytes(*rest.get(1..)?.first_chunk()?)),
        _ => CELL,
    };
    let circuit = u32::from_be_bytes(*circuit);
    Some(Head { circuit, length, creates: command == CREATES, ends: command == ENDS })
}

/// Format of the test cells. [`head`] parses the head of each cell.
pub const FORMAT: CellFormat =
    CellFormat { head, end, longest: 4_000, longest_of_circuit: CELL, lossy: 0 };
/// Length in bytes of a lossy cell, which travels in a QUIC datagram and may get lost.
pub const LOSSY: usize = 518;
/// Format of the cells in [`FORMAT`], and of lossy cells of [`LOSSY`] bytes.
pub const WITH_LOSSY: CellFormat = CellFormat { lossy: LOSSY, ..FORMAT };

fn end(circuit: u32) -> Vec<u8> {
    cell(circuit, ENDS, 0)
}

/// Returns a test cell with this circuit, command and number. Its other bytes are derived from
/// `number`.
pub fn cell(circuit: u32, command: u8, number: u32) -> Vec<u8> {
    every_link::cell(circuit, command, number, CELL)
}

/// Parses cells. Returns the circuit, command and number of each.
pub fn cells_of(received: &[u8]) -> Vec<(u32, u8, u32)> {
    assert_eq!(received.len() % CELL, 0, "cells come whole");
    let read = |cell: &[u8]| {
        let number = |at: usize| u32::from_be_bytes(*cell[at..].first_chunk().unwrap());
        let (circuit, command) = (number(0), cell[4]);
        let found = (circuit, command, number(5));
        assert!(cell == self::cell(found.0, found.1, found.2), "a cell that nobody sent");
        found
    };
    received.chunks(CELL).map(read).collect()
}

/// Returns the lossy cell with this `number`.
pub fn lossy_cell(number: u32) -> Vec<u8> {
    every_link::cell(0, DATA, number, LOSSY)
}

/// Parses lossy cells. Returns the number of each.
pub fn lossy_cells_of(received: &[u8]) -> Vec<u32> {
    assert_eq!(received.len() % LOSSY, 0, "cells come whole");
    let read = |cell: &[u8]| {
        let number = u32::from_be_bytes(*cell[5..].first_chunk().unwrap());
        assert!(cell == lossy_cell(number), "a cell that nobody sent");
        number
    };
    received.chunks(LOSSY).map(read).collect()
}

/// One direction of the emulated line: datagrams with their source addresses.
type Direction = netem::Link<(SocketAddr, Vec<u8>)>;

/// Two QUIC endpoints in memory; the first one opens a link to the second.
pub struct QuicPair {
    /// Current simulated time of both endpoints.
    pub now: Time,
    /// The two QUIC endpoints; the first one opens links.
    pub ends: [Endpoint; 2],
    /// Emulated line from each endpoint to the other one.
    pub ways: [Direction; 2],
    /// Identifier of the link at each endpoint; `None` until the link exists.
    pub ids: [Option<ConnId>; 2],
    /// Bytes that each endpoint has received in streams.
    pub received: [Vec<u8>; 2],
    /// Bytes that each endpoint has received in QUIC datagrams.
    pub received_lossy: [Vec<u8>; 2],
    /// Whether the endpoints leave received QUIC datagrams unread.
    pub is_unread: bool,
    /// Number of UDP datagrams that each endpoint has sent.
    pub sent: [u64; 2],
    /// UDP datagrams to lose: the index of the sending endpoint, and the datagram's index in the
    /// order of sending.
    pub lose: Vec<(usize, u64)>,
    /// Number of bytes that each endpoint has sent.
    pub bytes: [u64; 2],
    /// Whether every UDP datagram arrives twice.
    pub duplicates: bool,
    /// Number of UDP datagrams per thousand in which one byte is changed.
    pub changed: u32,
    dice: ChaCha8Rng,
}

/// Returns the address of an endpoint.
pub fn address(end: usize) -> SocketAddr {
    (IpAddr::from(Ipv4Addr::new(192, 0, 2, 1 + end as u8)), 9001).into()
}

/// Returns the settings of an emulated line with a delay.
pub fn line(delay: Duration) -> LinkSettings {
    LinkSettings { delay, ..LinkSettings::default() }
}

impl QuicPair {
    /// Creates two QUIC endpoints, connected by lines with these settings.
    pub fn new(settings: &LinkSettings, seed: u64) -> QuicPair {
        QuicPair::with_formats([FORMAT, FORMAT], settings, seed)
    }

    /// Creates two QUIC endpoints with this congestion control.
    pub fn by(congestion: Congestion, settings: &LinkSettings, seed: u64) -> QuicPair {
        QuicPair::with([FORMAT, FORMAT], congestion, settings, seed)
    }

    /// Creates two QUIC endpoints. `formats` has the format of the cells of each endpoint.
    pub fn with_formats(formats: [CellFormat; 2], settings: &LinkSettings, seed: u64) -> QuicPair {
        QuicPair::with(formats, Congestion::default(), settings, seed)
    }

    fn with(
        formats: [CellFormat; 2],
        congestion: Congestion,
        settings: &LinkSettings,
        seed: u64,
    ) -> QuicPair {
        let context = Context::new(NOW).unwrap();
        let make = |end: usize| {
            let (seed, takes) =
                ([seed as u8 + end as u8; 32], (end == 1).then_some(SocketIndex::ONLY));
            Endpoint::new(&context, formats[end], seed, takes, congestion).unwrap()
        };
        let ways = [0, 1].map(|way| netem::Link::new(settings.clone(), seed, way));
        QuicPair {
            now: Time::from_secs(1),
            ends: [make(0), make(1)],
            ways,
            ids: [None, None],
            received: [Vec::new(), Vec::new()],
            received_lossy: [Vec::new(), Vec::new()],
            is_unread: false,
            sent: [0; 2],
            lose: Vec::new(),
            bytes: [0; 2],
            duplicates: false,
            changed: 0,
            dice: stream(seed, 0, "changes"),
        }
    }

    /// Creates two QUIC endpoints, and opens a link between them.
    pub fn open(settings: &LinkSettings, seed: u64) -> QuicPair {
        QuicPair::new(settings, seed).opened()
    }

    /// Opens the link between the two endpoints.
    pub fn opened(mut self) -> QuicPair {
        self.ids[0] = Some(self.ends[0].connect(self.now, address(1), None).unwrap());
        self.run(Duration::from_secs(5));
        for end in 0..2 {
            assert_eq!(self.state(end), Some(State::Open), "end {end}");
            self.link(end).admit_circuits();
        }
        self
    }

    /// Returns the link at an endpoint.
    pub fn link(&mut self, end: usize) -> &mut QuicLink {
        self.ends[end].link(self.ids[end].unwrap()).unwrap()
    }

    /// Returns the state of the link at an endpoint; `None` if there is no link.
    pub fn state(&mut self, end: usize) -> Option<State> {
        let id = self.ids[end]?;
        self.ends[end].link(id).map(|link| link.state())
    }

    /// Writes cells to the link at an endpoint, and sends them.
    pub fn write(&mut self, end: usize, cells: &[u8]) {
        self.link(end).write(cells).unwrap();
        self.send(end, self.ids[end].unwrap());
    }

    /// Writes the lossy cell `number`, a test cell that may get lost, at an endpoint, and sends it.
    pub fn write_lossy(&mut self, end: usize, number: u32) {
        let now = self.now;
        self.link(end).write_lossy(now, &lossy_cell(number)).unwrap();
        self.send(end, self.ids[end].unwrap());
    }

    /// Takes the UDP datagrams that the link `id` wants to send, and puts them on the line.
    pub fn send(&mut self, end: usize, id: ConnId) {
        let mut bytes = Vec::new();
        while let Some(packets) = self.ends[end].transmit(self.now, id, &mut bytes) {
            if packets.to != address(1 - end) {
                continue;
            }
            let stride = if packets.stride == 0 { bytes.len() } else { packets.stride };
            bytes.chunks(stride).for_each(|datagram| self.push(end, datagram));
        }
    }

    fn push(&mut self, end: usize, datagram: &[u8]) {
        let number = self.sent[end];
        self.sent[end] += 1;
        self.bytes[end] += datagram.len() as u64;
        if self.lose.contains(&(end, number)) {
            return;
        }
        for _ in 0..1 + usize::from(self.duplicates) {
            let mut bytes = datagram.to_vec();
            if self.dice.random_range(0..1_000) < self.changed {
                let place = self.dice.random_range(0..bytes.len());
                bytes[place] ^= self.dice.random_range(1..=255u8);
            }
            // The line may drop the datagram, which is then lost.
            let _ = self.ways[end].push(self.now, (address(end), bytes), datagram.len());
        }
    }

    /// Advances the simulated time by `span`.
    pub fn run(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            (0..2).for_each(|end| self.look(end));
            let lines = self.ways.iter().map(netem::Link::next_timeout);
            let ends = self.ends.iter().map(Endpoint::next_timeout);
            let next = lines.chain(ends).flatten().min().filter(|next| *next <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            for end in 0..2 {
                while let Some((from, bytes)) = self.ways[1 - end].pop(self.now) {
                    self.deliver(end, from, &bytes);
                }
            }
        }
        self.now = until;
    }

    /// Delivers a UDP datagram to an endpoint.
    pub fn deliver(&mut self, end: usize, from: SocketAddr, bytes: &[u8]) {
        let arrival = Arrival { from, to: None, ecn: 0, bytes };
        self.ends[end].handle(self.now, EndpointInput { arrival, admit: &mut |_, _| true });
    }

    /// Reads from the links of an endpoint and sends on them. Also sends the endpoint's answers to
    /// packets of unknown connections.
    pub fn look(&mut self, end: usize) {
        while let Some(output) = self.ends[end].poll(self.now) {
            match output {
                EndpointOutput::Answer(_, bytes) => self.push(end, &bytes),
                EndpointOutput::Touched(id) => self.service(end, id),
            }
        }
        check_at_rest(&mut self.ends[end], self.now);
    }

    fn service(&mut self, end: usize, id: ConnId) {
        self.ids[end].get_or_insert(id);
        let mut over = false;
        if let Some(link) = self.ends[end].link(id) {
            over = link.read(&mut self.received[end]).is_err();
            if !self.is_unread {
                over |= link.read_lossy(&mut self.received_lossy[end]).is_err();
            }
        }
        if over {
            self.ends[end].close(self.now, id);
        }
        self.send(end, id);
    }
}

impl LinkEnds for QuicPair {
    fn link(&mut self, end: usize) -> &mut dyn Link {
        QuicPair::link(self, end)
    }

    fn cell(&self) -> usize {
        CELL
    }

    fn shakes_hands(&self) -> bool {
        true
    }

    fn settle(&mut self, received: &mut [Vec<u8>; 2]) {
        for end in 0..2 {
            if let Some(id) = self.ids[end] {
                self.send(end, id);
            }
        }
        self.run(Duration::from_secs(60));
        for (received, new) in received.iter_mut().zip(&mut self.received) {
            received.append(new);
        }
    }
}
