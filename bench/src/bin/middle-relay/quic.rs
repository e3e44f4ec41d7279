//! QUIC links of the middle relay.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use anabranch_links::quic::{
    Arrival, CellFormat, Congestion, ConnId, Endpoint, EndpointInput, EndpointOutput, Head,
    QuicLink, SocketIndex,
};
use anabranch_links::{Context, Link as _, State};
use anabranch_multipath::{Core, Time};
use anabranch_onion::relay::{Output, Relay};
use anabranch_onion::wire::cell::{
    self, BODY, CELL, Command, NUMBERED_CELL, VAR_HEADER, Width, put_fixed,
};
use anabranch_onion::wire::link::put_counts;
use anabranch_onion::{LinkCore, LinkId, LinkInput, LinkOutput};
use anabranch_os::poller::Poller;
use anabranch_testkit::onion_world::UNIX;

use super::Links;
use super::datagrams::Line;

/// Bytes of cells that a node writes to a link before it sends datagrams, as in `router`.
const SEND: usize = 40 << 10;
/// Number of received cells after which a neighbour acknowledges them, as in `onion`.
const ACKNOWLEDGED: usize = 48;
/// Indices of the ends of a link.
const NEIGHBOUR: usize = 0;
const RELAY: usize = 1;

/// Division of a stream into cells, as in `router`.
const FORMAT: CellFormat = CellFormat {
    head,
    end: destroy,
    longest: VAR_HEADER + 8192,
    longest_of_circuit: CELL,
    lossy: 0,
};

fn head(bytes: &[u8], _first: bool) -> Option<Head> {
    let (circuit, command, length) = cell::head(bytes, Width::Four)?;
    let creates = matches!(command, Command::CREATE | Command::CREATE2 | Command::CREATE_FAST);
    Some(Head { circuit, length, creates, ends: command == Command::DESTROY })
}

fn destroy(circuit: u32) -> Vec<u8> {
    let mut cell = Vec::new();
    put_fixed(&mut cell, circuit, Command::DESTROY, &[]);
    cell
}

/// The relay's QUIC links. Index 0 is the side of the client.
pub(super) struct QuicLinks {
    sides: [Side; 2],
    poller: Option<Poller>,
    /// Length of a cell in bytes.
    cell: usize,
    /// Bytes of cells that a neighbour sends at once.
    piece: usize,
    plain: Vec<u8>,
    packets: Vec<u8>,
    lossy: Vec<u8>,
}

/// A link of the relay.
struct Side {
    id: LinkId,
    /// The neighbour's end and the relay's end.
    ends: [Endpoint; 2],
    conns: [ConnId; 2],
    line: Line,
    /// Whether circuits' cells are lossy cells (sent in datagrams).
    lossy: bool,
    /// Whether the core has data to send.
    has_output: bool,
    /// Bytes of cells that the neighbour has received, and the numbers of cells by circuit.
    received: Vec<u8>,
    counts: BTreeMap<u32, u32>,
    unacknowledged: usize,
    /// Number of lossy cells that the neighbour has written.
    written: u64,
}

impl QuicLinks {
    pub(super) fn new(
        now: Time,
        ids: [LinkId; 2],
        circuits: &[[u32; 2]],
        (piece, sockets, lossy): (usize, bool, bool),
    ) -> io::Result<QuicLinks> {
        // The neighbour on the client's side has dialled the relay, which has dialled the other.
        let side = |side: usize| {
            let circuits: Vec<u32> = circuits.iter().map(|ids| ids[side]).collect();
            let dialler = if side == 0 { NEIGHBOUR } else { RELAY };
            Side::new(now, ids[side], dialler, &circuits, (sockets, lossy))
        };
        let sides = [side(0)?, side(1)?];
        let poller = sockets.then(|| Poller::new(16)).transpose()?;
        if let Some(poller) = &poller {
            let ours = sides.iter().filter_map(|side| side.line.socket(RELAY));
            ours.zip(0..).try_for_each(|(socket, token)| poller.add(socket, token))?;
        }
        let (plain, packets, lossy_cells) = Default::default();
        let cell = if lossy { NUMBERED_CELL } else { CELL };
        let piece = piece.max(cell);
        Ok(QuicLinks { sides, poller, cell, piece, plain, packets, lossy: lossy_cells })
    }

    /// Returns whether datagrams wait on each of the relay's links.
    fn ready(&mut self) -> io::Result<[bool; 2]> {
        let Some(poller) = &mut self.poller else {
            return Ok([0, 1].map(|side: usize| self.sides[side].line.holds(RELAY)));
        };
        let mut ready = [false; 2];
        poller.wait(Some(Duration::ZERO))?.for_each(|file| ready[file.token as usize] = true);
        Ok(ready)
    }

    /// Sends the core's cells on the link of a side, as far as there is room.
    fn flush(&mut self, now: Time, side: usize, relay: &mut Relay) {
        let QuicLinks { sides, plain, packets, lossy, .. } = self;
        let side = &mut sides[side];
        lossy.clear();
        relay.transmit_lossy(side.id, lossy);
        if !lossy.is_empty()
            && let Some(quic) = side.ends[RELAY].link(side.conns[RELAY])
        {
            let _ = quic.write_lossy(now, lossy);
        }
        side.transmit(now, RELAY, packets);
        loop {
            let mut written = 0;
            while side.has_output && written < SEND {
                let Some(quic) = side.ends[RELAY].link(side.conns[RELAY]) else { return };
                let room = quic.room();
                if room < CELL {
                    break;
                }
                plain.clear();
                side.has_output = relay.transmit(now, side.id, plain, room);
                let _ = quic.write(plain);
                written += plain.len();
            }
            if written == 0 {
                return;
            }
            side.transmit(now, RELAY, packets);
        }
    }
}

impl Links for QuicLinks {
    fn send(&mut self, now: Time, from: usize, plain: &[u8]) -> io::Result<usize> {
        let side = &mut self.sides[from];
        let (lossy, unsent) = (side.lossy, side.unsent(NEIGHBOUR)?);
        let link = side.link(NEIGHBOUR)?;
        let room = match lossy {
            // The neighbour waits until its queue is empty, so that it drops no cell.
            true if unsent > 0 => 0,
            true => usize::MAX,
            false => link.room(),
        };
        let count = plain.len().min(self.piece).min(room) / self.cell * self.cell;
        let written = match lossy {
            true if count > 0 => link.write_lossy(now, &plain[..count]),
            true => Ok(()),
            false => link.write(&plain[..count]),
        };
        written.map_err(io::Error::other)?;
        side.written += if lossy { (count / self.cell) as u64 } else { 0 };
        side.transmit(now, NEIGHBOUR, &mut self.packets);
        Ok(count)
    }

    fn turn(&mut self, now: Time, relay: &mut Relay) -> io::Result<()> {
        for (side, _) in self.ready()?.into_iter().enumerate().filter(|(_, ready)| *ready) {
            self.sides[side].receive(now, RELAY);
        }
        for side in 0..2 {
            while let Some(output) = self.sides[side].ends[RELAY].poll(now) {
                if !matches!(output, EndpointOutput::Touched(_)) {
                    continue;
                }
                let link = self.sides[side].id;
                self.plain.clear();
                self.sides[side].link(RELAY)?.read(&mut self.plain).map_err(io::Error::other)?;
                if !self.plain.is_empty() {
                    let bytes = &self.plain[..];
                    relay.handle_link(now, LinkInput::Bytes { link, bytes });
                }
                self.lossy.clear();
                let quic = self.sides[side].link(RELAY)?;
                quic.read_lossy(&mut self.lossy).map_err(io::Error::other)?;
                if !self.lossy.is_empty() {
                    let cells = &self.lossy[..];
                    relay.handle_link(now, LinkInput::Lossy { link, cells });
                }
                self.flush(now, side, relay);
            }
        }
        while let Some(output) = relay.poll(now) {
            let Output::Link(LinkOutput::Transmit { link }) = output else { continue };
            if let Some(side) = self.sides.iter().position(|side| side.id == link) {
                self.sides[side].has_output = true;
                self.flush(now, side, relay);
            }
        }
        Ok(())
    }

    fn settle(&mut self, now: Time) -> io::Result<usize> {
        let mut passed = 0;
        for side in &mut self.sides {
            side.receive(now, NEIGHBOUR);
            side.serve(now, NEIGHBOUR, &mut self.packets)?;
            passed += side.count(now, &mut self.packets)?;
        }
        Ok(passed)
    }
}

impl Side {
    /// Opens a link that `dialler` dials, with a QUIC stream for each of `circuits`.
    fn new(
        now: Time,
        id: LinkId,
        dialler: usize,
        circuits: &[u32],
        (sockets, lossy): (bool, bool),
    ) -> io::Result<Side> {
        let context = Context::new(UNIX).map_err(io::Error::other)?;
        let endpoint = |end: usize| {
            let takes = (end != dialler).then_some(SocketIndex::ONLY);
            let seed = [1 + end as u8; 32];
            let format = CellFormat { lossy: if lossy { NUMBERED_CELL } else { 0 }, ..FORMAT };
            let made = Endpoint::new(&context, format, seed, takes, Congestion::default());
            made.map_err(io::Error::other)
        };
        let mut ends = [endpoint(NEIGHBOUR)?, endpoint(RELAY)?];
        let line = if sockets { Line::through_sockets()? } else { Line::in_memory() };
        let to = line.address(1 - dialler)?;
        let mut conns = [ConnId(0); 2];
        conns[dialler] = ends[dialler].connect(now, to, None).map_err(io::Error::other)?;
        let (received, counts) = Default::default();
        let (has_output, unacknowledged, written) = (false, 0, 0);
        let mut side = Side {
            id,
            ends,
            conns,
            line,
            lossy,
            has_output,
            received,
            counts,
            unacknowledged,
            written,
        };
        side.open(now, dialler, circuits)?;
        Ok(side)
    }

    /// Returns the number of lossy cells that an end has neither sent nor dropped.
    fn unsent(&mut self, end: usize) -> io::Result<u64> {
        let counts = self.link(end)?.lossy_counts();
        Ok(self.written - counts.sent - counts.dropped)
    }

    fn open(&mut self, now: Time, dialler: usize, circuits: &[u32]) -> io::Result<()> {
        let mut packets = Vec::new();
        self.exchange(now, &mut packets)?;
        let mut first = Vec::new();
        put_fixed(&mut first, 0, Command::PADDING, &[]);
        for circuit in circuits {
            put_fixed(&mut first, *circuit, Command::CREATE2, &[]);
        }
        for end in [NEIGHBOUR, RELAY] {
            if self.link(end)?.state() != State::Open {
                return Err(io::Error::other("a QUIC link did not open"));
            }
            self.link(end)?.admit_circuits();
        }
        self.link(dialler)?.write(&first).map_err(io::Error::other)?;
        self.transmit(now, dialler, &mut packets);
        self.exchange(now, &mut packets)?;
        self.received.clear();
        Ok(())
    }

    /// Exchanges datagrams between the ends, during a few round trips.
    fn exchange(&mut self, now: Time, packets: &mut Vec<u8>) -> io::Result<()> {
        for _ in 0..20 {
            for end in [NEIGHBOUR, RELAY] {
                self.receive(now, end);
                self.serve(now, end, packets)?;
            }
        }
        Ok(())
    }

    fn link(&mut self, end: usize) -> io::Result<&mut QuicLink> {
        let link = self.ends[end].link(self.conns[end]);
        link.ok_or_else(|| io::Error::other("a QUIC link has ended"))
    }

    /// Passes the datagrams that wait at an end to its endpoint.
    fn receive(&mut self, now: Time, end: usize) {
        let Side { ends, line, .. } = self;
        line.receive(end, |arrival, stride| {
            for bytes in arrival.bytes.chunks(stride.max(1)) {
                let arrival = Arrival { bytes, ..arrival };
                ends[end].handle(now, EndpointInput { arrival, admit: &mut |_, _| true });
            }
        });
    }

    /// Reads the cells that have arrived at an end, and sends what the end has to send.
    fn serve(&mut self, now: Time, end: usize, packets: &mut Vec<u8>) -> io::Result<()> {
        while let Some(output) = self.ends[end].poll(now) {
            if let EndpointOutput::Touched(conn) = output {
                self.conns[end] = conn;
                let link = self.ends[end].link(conn);
                let link = link.ok_or_else(|| io::Error::other("a QUIC link has ended"))?;
                link.read(&mut self.received).map_err(io::Error::other)?;
                link.read_lossy(&mut self.received).map_err(io::Error::other)?;
                self.transmit(now, end, packets);
            }
        }
        Ok(())
    }

    /// Sends the datagrams that an end has to send.
    fn transmit(&mut self, now: Time, end: usize, packets: &mut Vec<u8>) {
        while let Some(sent) = self.ends[end].transmit(now, self.conns[end], packets) {
            self.line.send(end, sent, packets);
        }
    }

    /// Counts and acknowledges the cells that the neighbour has received. Returns their length in
    /// bytes.
    fn count(&mut self, now: Time, packets: &mut Vec<u8>) -> io::Result<usize> {
        let mut passed = 0;
        if self.lossy {
            passed = self.received.len();
            self.received.clear();
            return Ok(passed);
        }
        for cell in self.received.chunks_exact(CELL) {
            let circuit = cell.first_chunk().map_or(0, |id| u32::from_be_bytes(*id));
            if circuit != 0 {
                passed += CELL;
                *self.counts.entry(circuit).or_default() += 1;
            }
        }
        self.received.clear();
        self.unacknowledged += passed / CELL;
        if self.unacknowledged >= ACKNOWLEDGED {
            self.unacknowledged = 0;
            let mut counts = Vec::with_capacity(BODY);
            put_counts(&mut counts, self.counts.iter().map(|(circuit, count)| (*circuit, *count)));
            let mut cell = Vec::new();
            put_fixed(&mut cell, 0, Command::ARRIVED, &counts);
            self.link(NEIGHBOUR)?.write(&cell).map_err(io::Error::other)?;
            self.transmit(now, NEIGHBOUR, packets);
        }
        Ok(passed)
    }
}
