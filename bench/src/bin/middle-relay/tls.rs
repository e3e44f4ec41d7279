//! TLS links of the middle relay.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anabranch_links::{Context, Link, State, StreamLink, Tls};
use anabranch_multipath::{Core, Time};
use anabranch_onion::relay::{Output, Relay};
use anabranch_onion::wire::cell::CELL;
use anabranch_onion::{LinkCore, LinkId, LinkInput, LinkOutput};
use anabranch_os::poller::Poller;
use anabranch_testkit::onion_world::UNIX;

use super::Links;

/// Bytes of cells that a node seals at once.
const BATCH: usize = 32 << 10;
/// Bytes that a node reads from a socket at once.
const READ: usize = 64 << 10;

/// The relay's TLS links. Index 0 is the side of the client.
pub(super) struct TlsLinks {
    sides: [Side; 2],
    poller: Option<Poller>,
    /// Bytes that arrive at once, in memory.
    piece: usize,
    buffer: Vec<u8>,
    plain: Vec<u8>,
    /// Bytes of cells that the core has returned and [`Links::settle`] has not counted.
    passed: usize,
}

/// A link of the relay.
struct Side {
    id: LinkId,
    /// The neighbour's end and the relay's end.
    tls: [Tls; 2],
    /// The TCP connection of both ends; `None` in memory.
    sockets: Option<[TcpStream; 2]>,
    /// Sealed bytes that are not sent yet: the neighbour's and the relay's.
    sealed: [Vec<u8>; 2],
}

impl TlsLinks {
    pub(super) fn new(ids: [LinkId; 2], piece: usize, sockets: bool) -> io::Result<TlsLinks> {
        let side = |id| -> io::Result<Side> {
            let sockets = sockets.then(connection).transpose()?;
            Ok(Side { id, tls: pair()?, sockets, sealed: Default::default() })
        };
        let sides = [side(ids[0])?, side(ids[1])?];
        let poller = sockets.then(|| Poller::new(16)).transpose()?;
        if let Some(poller) = &poller {
            for (token, [_, socket]) in (0..).zip(sides.iter().filter_map(|s| s.sockets.as_ref())) {
                poller.add(socket, token)?;
            }
        }
        let (buffer, plain) = (vec![0; READ], Vec::new());
        Ok(TlsLinks { sides, poller, piece: piece.max(1), buffer, plain, passed: 0 })
    }

    /// Returns whether each of the relay's links has bytes to read.
    fn ready(&mut self) -> io::Result<[bool; 2]> {
        let Some(poller) = &mut self.poller else {
            return Ok([0, 1].map(|side: usize| !self.sides[side].sealed[0].is_empty()));
        };
        let mut ready = [false; 2];
        poller.wait(Some(Duration::ZERO))?.for_each(|file| ready[file.token as usize] = true);
        Ok(ready)
    }

    /// Passes the bytes that have arrived on a link to the core.
    fn read(&mut self, now: Time, side: usize, relay: &mut Relay) -> io::Result<()> {
        let TlsLinks { sides, buffer, plain, piece, .. } = self;
        let Side { id, tls, sockets, sealed } = &mut sides[side];
        plain.clear();
        match sockets {
            Some([_, socket]) => {
                let count = socket.read(buffer)?;
                tls[1].receive(now, &buffer[..count]).map_err(io::Error::other)?;
            }
            None => {
                let count = sealed[0].len().min(*piece);
                tls[1].receive(now, &sealed[0][..count]).map_err(io::Error::other)?;
                sealed[0].drain(..count);
            }
        }
        tls[1].read(plain).map_err(io::Error::other)?;
        relay.handle_link(now, LinkInput::Bytes { link: *id, bytes: plain });
        Ok(())
    }

    /// Sends the core's cells for `link`.
    fn flush(&mut self, now: Time, link: LinkId, relay: &mut Relay) -> io::Result<()> {
        let Some(side) = self.sides.iter_mut().find(|side| side.id == link) else { return Ok(()) };
        let mut more = true;
        while more {
            self.plain.clear();
            more = relay.transmit(now, link, &mut self.plain, BATCH);
            self.passed += self.plain.len();
            side.seal(now, 1, &self.plain)?;
            match side.sockets {
                Some(_) => side.write(1)?,
                None => side.sealed[1].clear(),
            }
        }
        Ok(())
    }
}

impl Links for TlsLinks {
    fn send(&mut self, now: Time, from: usize, plain: &[u8]) -> io::Result<usize> {
        let side = &mut self.sides[from];
        let mut count = 0;
        while count < plain.len() && count < self.piece && side.sealed[0].len() < self.piece {
            let most = if side.sockets.is_some() { self.piece } else { BATCH };
            let length = (plain.len() - count).min(most / CELL * CELL);
            side.seal(now, 0, &plain[count..count + length])?;
            count += length;
        }
        if side.sockets.is_some() {
            side.write(0)?;
        }
        Ok(count)
    }

    fn turn(&mut self, now: Time, relay: &mut Relay) -> io::Result<()> {
        for (side, ready) in self.ready()?.into_iter().enumerate() {
            if ready {
                self.read(now, side, relay)?;
            }
            if !self.sides[side].sealed[1].is_empty() {
                self.sides[side].write(1)?;
            }
        }
        while let Some(output) = relay.poll(now) {
            if let Output::Link(LinkOutput::Transmit { link }) = output {
                self.flush(now, link, relay)?;
            }
        }
        Ok(())
    }

    fn settle(&mut self, _now: Time) -> io::Result<usize> {
        for [socket, _] in self.sides.iter_mut().filter_map(|side| side.sockets.as_mut()) {
            while would_block(socket.read(&mut self.buffer))? > 0 {}
        }
        Ok(std::mem::take(&mut self.passed))
    }
}

impl Side {
    /// Seals `plain` at one end.
    fn seal(&mut self, now: Time, end: usize, plain: &[u8]) -> io::Result<()> {
        self.tls[end].write(plain).map_err(io::Error::other)?;
        self.tls[end].transmit(now, &mut self.sealed[end]);
        Ok(())
    }

    /// Writes sealed bytes of one end to its socket, as far as there is room.
    fn write(&mut self, end: usize) -> io::Result<()> {
        let (Some(sockets), sealed) = (&mut self.sockets, &mut self.sealed[end]) else {
            return Ok(());
        };
        let mut sent = 0;
        while sent < sealed.len() {
            match would_block(sockets[end].write(&sealed[sent..]))? {
                0 => break,
                count => sent += count,
            }
        }
        match sent == sealed.len() {
            true => sealed.clear(),
            false => drop(sealed.drain(..sent)),
        }
        Ok(())
    }
}

/// Returns 0 if the socket has no room or no data.
fn would_block(done: io::Result<usize>) -> io::Result<usize> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        done => done,
    }
}

/// Returns both ends of a TCP connection over loopback.
fn connection() -> io::Result<[TcpStream; 2]> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let ends = [TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0];
    for end in &ends {
        end.set_nonblocking(true)?;
        end.set_nodelay(true)?;
    }
    Ok(ends)
}

/// Returns both ends of an open TLS connection: the client's, and the server's.
fn pair() -> io::Result<[Tls; 2]> {
    let context = Context::new(UNIX).map_err(io::Error::other)?;
    let mut ends =
        [context.connect().map_err(io::Error::other)?, context.accept().map_err(io::Error::other)?];
    while ends.iter().any(|end| end.state() != State::Open) {
        for from in [0, 1] {
            let mut wire = Vec::new();
            ends[from].transmit(Time::ZERO, &mut wire);
            ends[1 - from].receive(Time::ZERO, &wire).map_err(io::Error::other)?;
        }
    }
    // Session tickets.
    let mut wire = Vec::new();
    ends[1].transmit(Time::ZERO, &mut wire);
    ends[0].receive(Time::ZERO, &wire).map_err(io::Error::other)?;
    Ok(ends)
}
