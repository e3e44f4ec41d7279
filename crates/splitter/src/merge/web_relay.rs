//! The relay between an unknown peer's stream and the web server of `--behind`. It copies bytes in
//! both directions without interpreting them.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use anabranch_os::poller::{Interest, Poller};
use socket2::{Domain, Protocol, Socket, Type};

use crate::streams::{Ending, Wire, is_passing};

/// Number of waiting bytes, per direction, at which the relay stops reading. The last read may
/// raise the number of waiting bytes above this limit.
const WAITING: usize = 16 << 10;

/// The connection to the web server that answers an unknown peer (a peer that no client's key
/// authenticates), and the bytes that wait to be copied between these two.
pub(super) struct Relay {
    web: Socket,
    /// Poller tokens of the unknown peer's stream and of the web server's connection.
    tokens: [u64; 2],
    to_web: Vec<u8>,
    to_stranger: Vec<u8>,
    /// Two flags. The first is true if the unknown peer has closed its sending side, the second if
    /// the web server has.
    ended: [bool; 2],
    /// True if we have shut down our sending side of the connection to the web server, because the
    /// unknown peer has closed its own sending side.
    is_shut_down: bool,
    /// True if the web server has sent bytes, or has closed its sending side.
    has_answered: bool,
    interests: [Interest; 2],
}

impl Relay {
    /// Begins to connect to the web server. `received` has the bytes received from the unknown peer
    /// so far, which the relay sends first.
    ///
    /// # Errors
    /// The kernel cannot open, connect or watch the socket.
    pub(super) fn new(
        server: SocketAddr,
        received: Vec<u8>,
        tokens: [u64; 2],
        poller: &Poller,
    ) -> io::Result<Relay> {
        let web = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
        web.set_nonblocking(true)?;
        web.set_tcp_nodelay(true)?;
        match web.connect(&server.into()) {
            Err(error) if !is_under_way(&error) => return Err(error),
            _ => {}
        }
        let both = Interest { read: true, write: true };
        poller.add_for(&web, tokens[1], both)?;
        let interests = [Interest::READ, both];
        let (to_stranger, ended) = (Vec::new(), [false; 2]);
        Ok(Relay {
            web,
            tokens,
            to_web: received,
            to_stranger,
            ended,
            is_shut_down: false,
            has_answered: false,
            interests,
        })
    }

    /// Adds `bytes`, which the caller has read from the unknown peer, to the bytes for the web
    /// server.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.to_web.extend_from_slice(bytes);
    }

    /// Returns whether the web server has sent bytes, or has closed its sending side.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Copies bytes in both directions between the web server and the unknown peer's `wire`. Reads
    /// from `wire` only if `reads` is true. Otherwise the caller reads from it, and passes the
    /// bytes to [`Relay::add`].
    ///
    /// # Errors
    /// The relay has ended: one side failed, or all of the web server's answer was sent to the
    /// unknown peer.
    pub(super) fn pump(
        &mut self,
        (wire, reads): (&mut Wire, bool),
        buffer: &mut [u8],
        poller: &Poller,
    ) -> Result<(), Ending> {
        if reads {
            self.read_stranger(wire, buffer)?;
        }
        self.read_web(buffer)?;
        self.drain(wire)?;
        if self.ended[1] && self.to_stranger.is_empty() && !wire.has_unsent() {
            return Err(Ending::Closed);
        }
        self.watch(wire, poller).map_err(Ending::Broken)
    }

    fn read_stranger(&mut self, wire: &mut Wire, buffer: &mut [u8]) -> Result<(), Ending> {
        if self.ended[0] || self.to_web.len() >= WAITING {
            return Ok(());
        }
        let room = buffer.len().min(WAITING);
        match wire.read(&mut buffer[..room], &mut self.to_web) {
            Err(Ending::Closed) => self.ended[0] = true,
            other => other?,
        }
        Ok(())
    }

    fn read_web(&mut self, buffer: &mut [u8]) -> Result<(), Ending> {
        if self.ended[1] || self.to_stranger.len() >= WAITING {
            return Ok(());
        }
        let room = buffer.len().min(WAITING);
        match (&self.web).read(&mut buffer[..room]) {
            Ok(0) => (self.ended[1], self.has_answered) = (true, true),
            Ok(length) => {
                self.has_answered = true;
                self.to_stranger.extend_from_slice(&buffer[..length]);
            }
            // The connection is not established yet.
            Err(error) if is_passing(&error) || error.kind() == ErrorKind::NotConnected => {}
            Err(error) => return Err(Ending::Broken(error)),
        }
        Ok(())
    }

    fn drain(&mut self, wire: &mut Wire) -> Result<(), Ending> {
        let to_web = &mut self.to_web;
        write_out(to_web, |bytes| (&self.web).write(bytes)).map_err(Ending::Broken)?;
        if self.ended[0] && self.to_web.is_empty() && !self.is_shut_down {
            self.is_shut_down = self.web.shutdown(Shutdown::Write).is_ok();
        }
        wire.push().map_err(Ending::Broken)?;
        let to_stranger = &mut self.to_stranger;
        write_out(to_stranger, |bytes| wire.write(&[IoSlice::new(bytes)])).map_err(Ending::Broken)
    }

    /// Sets the events for which the poller watches both sockets: readable if a buffer has room,
    /// writable if bytes wait.
    fn watch(&mut self, wire: &Wire, poller: &Poller) -> io::Result<()> {
        let wanted = [
            Interest {
                read: !self.ended[0] && self.to_web.len() < WAITING,
                write: !self.to_stranger.is_empty() || wire.has_unsent(),
            },
            Interest {
                read: !self.ended[1] && self.to_stranger.len() < WAITING,
                write: !self.to_web.is_empty(),
            },
        ];
        if wanted[0] != self.interests[0] {
            poller.change(wire, self.tokens[0], wanted[0])?;
        }
        if wanted[1] != self.interests[1] {
            poller.change(&self.web, self.tokens[1], wanted[1])?;
        }
        self.interests = wanted;
        Ok(())
    }
}

impl AsFd for Relay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.web.as_fd()
    }
}

/// Writes `bytes` until `write` would block, and removes the written bytes.
fn write_out(
    bytes: &mut Vec<u8>,
    mut write: impl FnMut(&[u8]) -> io::Result<usize>,
) -> io::Result<()> {
    let mut taken = 0;
    let outcome = loop {
        if taken == bytes.len() {
            break Ok(());
        }
        match write(&bytes[taken..]) {
            Ok(more) => taken += more,
            Err(error) if is_passing(&error) || error.kind() == ErrorKind::NotConnected => {
                break Ok(());
            }
            Err(error) => break Err(error),
        }
    };
    bytes.drain(..taken);
    outcome
}

/// Returns whether `error` means that a non-blocking connection is still being established.
fn is_under_way(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}
