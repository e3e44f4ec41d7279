//! Both ends of a link with out-of-order delivery, in two network namespaces of one machine. It is
//! a measuring tool: the ends use the same clock, so each cell's one-way delay can be measured.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_links::EarlyCounts;
use anabranch_links::tls::Context;
use anabranch_multipath::Time;
use anabranch_onion::wire::cell::NUMBERED_CELL;
use anabranch_onion::wire::extend::Target;
use anabranch_os::namespace::Namespace;

use super::conn::{Conn, SocketRead};
use super::mptcp::TcpKind;
use super::newcomers::ConnectionLimits;
use super::tap::{Tap, TapKind, save_syns};

/// Creation time of the measured link's certificate, in seconds since 1970. No code checks this
/// time.
pub(super) const MADE: u64 = 1_800_000_000;
/// Size on the wire, in bytes, of a TLS record with one cell. The size includes the header, the
/// content type and the authentication tag (RFC 8446, section 5.2).
pub(super) const RECORD: u64 = NUMBERED_CELL as u64 + 22;
/// Number of cells that are passed to the link in one write when cells are sent at full speed.
#[cfg(test)]
const WRITTEN: u32 = 60;
/// Pause before the sockets are checked again for new data.
const NAP: Duration = Duration::from_micros(200);
/// Timeout of the link's handshake.
const OPENING: Duration = Duration::from_secs(30);
/// Time without traffic after the handshake until the measurement starts. Until then, TLS messages
/// such as session tickets may still arrive.
const SETTLING: Duration = Duration::from_millis(500);

/// Both ends of an open link, each with its packet tap, which delivers TCP segments out of order.
pub struct LinkPair {
    conns: [Conn; 2],
    taps: [Tap; 2],
    begun: Instant,
}

/// Delays of one cell, measured from the time at which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellDelays {
    /// Time until the link delivered the cell, perhaps before earlier cells.
    pub received: Duration,
    /// Time until the kernel had delivered all bytes up to the cell's end, in order.
    pub in_order: Duration,
}

impl LinkPair {
    /// Opens a link from the network namespace `one` to `address` in the network namespace `two`.
    /// Each namespace uses one of the packet `taps`.
    ///
    /// # Errors
    /// A system call or the TLS library fails, or the handshake times out.
    pub fn open(
        [one, two]: [&Namespace; 2],
        address: SocketAddr,
        mut taps: [Tap; 2],
    ) -> io::Result<LinkPair> {
        let context = Context::new(MADE).map_err(io::Error::other)?;
        let listener = two.run(|| TcpListener::bind(address))?;
        save_syns(&listener)?;
        let target = Target { addresses: vec![listener.local_addr()?], ..Target::default() };
        let [tap, other] = &mut taps;
        let link = Box::new(context.connect().map_err(io::Error::other)?);
        let dialled = one.run(|| Conn::dial(target, 0, link, (tap, None, TcpKind::Single)))?;
        let (socket, peer) = listener.accept()?;
        let place = ConnectionLimits::default().admit(Time::ZERO, peer.ip());
        let place = place.ok_or(ErrorKind::PermissionDenied)?;
        let link = Box::new(context.accept().map_err(io::Error::other)?);
        let accepted = Conn::accepted(socket, peer, link, place, other)?;
        LinkPair::of([dialled, accepted], taps)
    }

    /// Performs the link handshake between the two ends of a connection, each with its packet tap.
    pub(super) fn of(conns: [Conn; 2], taps: [Tap; 2]) -> io::Result<LinkPair> {
        let mut pair = LinkPair { conns, taps, begun: Instant::now() };
        pair.shake_hands()?;
        Ok(pair)
    }

    fn shake_hands(&mut self) -> io::Result<()> {
        let mut nothing = [Vec::new(), Vec::new()];
        while !self.conns.iter().all(Conn::is_open) {
            self.turn(&mut nothing)?;
            if self.begun.elapsed() > OPENING {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        // All messages that follow the handshake must arrive first, including retransmissions.
        let (mut before, mut since) = ([0; 2], Instant::now());
        while since.elapsed() < SETTLING {
            self.turn(&mut nothing)?;
            let read = [0, 1].map(|end: usize| self.conns[end].transferred[0]);
            if read != before || read != [1, 0].map(|end: usize| self.conns[end].transferred[1]) {
                (before, since) = (read, Instant::now());
            }
        }
        let now = self.now();
        for (conn, tap) in self.conns.iter_mut().zip(&mut self.taps) {
            conn.unorder(now, NUMBERED_CELL, tap).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Returns the kind of packet tap at each end.
    #[must_use]
    pub fn taps(&self) -> [TapKind; 2] {
        [0, 1].map(|end: usize| self.taps[end].kind())
    }

    /// Returns the number of records that the end `end` has decrypted before earlier records had
    /// arrived, and the number of records for which this failed.
    #[must_use]
    pub fn early_counts(&self, end: usize) -> EarlyCounts {
        self.conns[end].early_counts().unwrap_or_default()
    }

    fn now(&self) -> Time {
        Time::ZERO + self.begun.elapsed()
    }

    /// Reads and writes once at both ends. Appends the bytes that each end reads to its vector in
    /// `plain`.
    fn turn(&mut self, plain: &mut [Vec<u8>; 2]) -> io::Result<()> {
        let now = self.now();
        let ends = self.conns.iter_mut().zip(&mut self.taps).zip(plain);
        for ((conn, tap), plain) in ends {
            tap.drain(|segment| {
                if conn.cookie() == Some(segment.cookie) {
                    conn.show(now, segment);
                }
            });
            conn.take_early(plain, tap);
            if let SocketRead::End(why) = conn.read(now, &mut [0; 16_384], plain) {
                return Err(io::Error::other(why.unwrap_or_else(|| "the link ended".to_owned())));
            }
            conn.keep_up(tap);
            conn.flush(now)?;
        }
        thread::sleep(NAP);
        Ok(())
    }

    /// Sends `cells` cells from the end `from`, each in its own write, with the interval
    /// `between`. Then waits at most `patience` for the last cells to arrive. Returns the delays
    /// of the cells that arrived, by the cell's sequence number.
    ///
    /// # Errors
    /// The link breaks, delivers data that were not sent, or delivers a cell twice.
    /// Setting `stop` ends the run early, without an error.
    pub fn carry(
        &mut self,
        from: usize,
        (cells, between): (u32, Duration),
        patience: Duration,
        stop: &AtomicBool,
    ) -> io::Result<BTreeMap<u32, CellDelays>> {
        let (to, begun) = (1 - from, self.now());
        let before = self.conns[to].transferred[0];
        let (mut sent, mut received, mut given) = (Vec::new(), BTreeMap::new(), Vec::new());
        let mut plain = [Vec::new(), Vec::new()];
        let end = begun + between * cells + patience;
        while given.len() < cells as usize && !stop.load(Ordering::Relaxed) && self.now() < end {
            let (now, number) = (self.now(), sent.len() as u32);
            if number < cells && now >= begun + between * number {
                self.conns[from].seal(&timed_cell(number));
                sent.push(now);
            }
            self.turn(&mut plain)?;
            let now = self.now();
            for cell in std::mem::take(&mut plain[to]).chunks(NUMBERED_CELL) {
                let number = cell.first_chunk().map_or(u32::MAX, |four| u32::from_be_bytes(*four));
                let was_sent = (number as usize) < sent.len() && cell == timed_cell(number);
                if !was_sent || received.insert(number, now).is_some() {
                    return Err(io::Error::other(format!(
                        "cell {number} arrived twice, or was never sent"
                    )));
                }
            }
            let whole = (self.conns[to].transferred[0] - before) / RECORD;
            given.resize(whole as usize, now);
        }
        let delays = received.iter().filter_map(|(&number, received)| {
            let (sent, given) = (*sent.get(number as usize)?, given.get(number as usize)?);
            Some((
                number,
                CellDelays { received: received.since(sent), in_order: given.since(sent) },
            ))
        });
        Ok(delays.collect())
    }

    /// Sends `cells` cells from the end `from` at full speed, and waits at most `patience` until
    /// all have arrived. Returns the number of bytes that the receiving end has read since the
    /// connection began.
    #[cfg(test)]
    pub(super) fn pour(&mut self, from: usize, cells: u32, patience: Duration) -> io::Result<u64> {
        let (to, begun) = (1 - from, Instant::now());
        let mut plain = [Vec::new(), Vec::new()];
        // All cells with numbers below `next` have arrived. `ahead` has the numbers of later cells
        // that have arrived.
        let (mut sent, mut next, mut ahead) = (0, 0, std::collections::BTreeSet::new());
        while next < cells {
            if begun.elapsed() > patience {
                return Err(io::Error::other(format!("cell {next} of {cells} has not arrived")));
            }
            while sent < cells && self.conns[from].has_room() {
                let (some, now) = (sent..cells.min(sent + WRITTEN), self.now());
                sent = some.end;
                let cells: Vec<u8> = some.flat_map(timed_cell).collect();
                self.conns[from].seal(&cells);
                self.conns[from].flush(now)?;
            }
            self.turn(&mut plain)?;
            for cell in plain[to].chunks(NUMBERED_CELL) {
                let number = cell.first_chunk().map_or(u32::MAX, |four| u32::from_be_bytes(*four));
                let is_new = (next..sent).contains(&number) && ahead.insert(number);
                if !is_new || cell != timed_cell(number) {
                    return Err(io::Error::other(format!(
                        "cell {number} arrived twice, or was never sent"
                    )));
                }
            }
            plain[to].clear();
            while ahead.remove(&next) {
                next += 1;
            }
        }
        Ok(self.conns[to].transferred[0])
    }
}

/// Returns a cell that begins with its sequence number `number`, in 4 bytes.
fn timed_cell(number: u32) -> Vec<u8> {
    let mut cell = vec![number as u8; NUMBERED_CELL];
    cell[..4].copy_from_slice(&number.to_be_bytes());
    cell
}
