//! The external socket of a stream. At an exit, it leads to the stream's destination. At a client,
//! it leads to a local program. "Destination" means either of them here.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anabranch_onion::StreamKey;
use anabranch_onion::wire::message::EndReason;
use anabranch_os::poller::{Interest, Poller, Ready};
use socket2::SockRef;

use super::conn::{connecting, is_passing};

/// Maximum number of bytes of one read from the socket. It is about half of a stream's buffer in
/// the core, which reports room again once half of the buffer is sent.
const PIECE: usize = 32 << 10;

/// The core's side of a stream, as its external socket uses it.
pub(crate) trait Inside {
    /// Returns the bytes that wait for the destination, in order and in two pieces.
    fn waiting(&self, stream: StreamKey) -> (&[u8], &[u8]);
    /// Reports that the destination has accepted `bytes` bytes.
    fn took(&mut self, stream: StreamKey, bytes: usize);
    /// Adds `bytes` from the destination to the stream. Returns how many of them there was room
    /// for.
    fn give(&mut self, stream: StreamKey, bytes: &[u8]) -> usize;
}

/// The external socket of a stream.
pub(crate) struct ExternalSocket {
    socket: TcpStream,
    stream: StreamKey,
    peer: SocketAddr,
    connected: bool,
    /// Bytes from the destination for which the core had no room.
    held: Vec<u8>,
    /// Whether the destination has closed its sending side.
    silent: bool,
    /// Whether the destination currently accepts no more bytes.
    blocked: bool,
    /// Events for which the poller watches the socket; `None` before the first
    /// [`ExternalSocket::watch`].
    watched: Option<Interest>,
}

/// Event for the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExternalEvent {
    /// No event.
    Nothing,
    /// The destination was reached at this address.
    Connected(IpAddr),
    /// The destination has ended the stream.
    Ended(EndReason),
}

/// Event after which bytes may be able to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoEvent {
    /// The socket is ready.
    Socket(Ready),
    /// The core has more bytes for the destination.
    Readable,
    /// The core has room for more bytes again.
    Room,
}

impl ExternalSocket {
    /// Opens a connection to the destination `peer`, without waiting until it is open.
    ///
    /// # Errors
    /// A system call fails.
    pub(crate) fn connect(stream: StreamKey, peer: SocketAddr) -> io::Result<ExternalSocket> {
        let socket = connecting(peer)?;
        socket.set_nodelay(true)?;
        Ok(ExternalSocket::new(stream, socket, peer, false))
    }

    /// Wraps a connection that a program has opened to us.
    ///
    /// # Errors
    /// A system call fails.
    pub(crate) fn of(stream: StreamKey, socket: TcpStream) -> io::Result<ExternalSocket> {
        let peer = socket.peer_addr()?;
        Ok(ExternalSocket::new(stream, socket, peer, true))
    }

    fn new(
        stream: StreamKey,
        socket: TcpStream,
        peer: SocketAddr,
        connected: bool,
    ) -> ExternalSocket {
        ExternalSocket {
            socket,
            stream,
            peer,
            connected,
            held: Vec::new(),
            silent: false,
            blocked: !connected,
            watched: None,
        }
    }

    /// Returns the socket, for the poller.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Resets the connection of a stream that was cut off. An orderly end would look as if all
    /// bytes had arrived.
    pub(crate) fn cut(self) {
        // If this fails, the connection ends in order.
        let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
    }

    /// Returns the events for which the poller should watch the socket.
    pub(crate) fn interest(&self) -> Interest {
        let read = self.connected && self.held.is_empty() && !self.silent;
        Interest { read, write: self.blocked }
    }

    /// Updates the events for which `poller` watches the socket, registered with `token`.
    pub(crate) fn watch(&mut self, poller: &Poller, token: u64) {
        let interest = self.interest();
        // The poller is only changed if the events differ, because a system call for each piece
        // would cost as much as moving the piece. If the change fails, the old events stay in use.
        if self.watched != Some(interest) && poller.change(&self.socket, token, interest).is_ok() {
            self.watched = Some(interest);
        }
    }

    /// Moves as many bytes as possible between the socket and the core. Returns the event that
    /// results.
    pub(crate) fn service(&mut self, what: IoEvent, inside: &mut impl Inside) -> ExternalEvent {
        match what {
            IoEvent::Socket(ready) if !self.connected => {
                if ready.write {
                    self.connected()
                } else {
                    ExternalEvent::Nothing
                }
            }
            IoEvent::Socket(ready) => {
                if ready.write
                    && let Err(error) = self.drain(inside)
                {
                    return ExternalEvent::Ended(reason(&error));
                }
                if ready.read { self.fill(inside) } else { ExternalEvent::Nothing }
            }
            IoEvent::Readable => match self.drain(inside) {
                Ok(()) => ExternalEvent::Nothing,
                Err(error) => ExternalEvent::Ended(reason(&error)),
            },
            IoEvent::Room => self.has_room(inside),
        }
    }

    fn has_room(&mut self, inside: &mut impl Inside) -> ExternalEvent {
        let taken = inside.give(self.stream, &self.held);
        self.held.drain(..taken);
        if self.silent && self.held.is_empty() {
            ExternalEvent::Ended(EndReason::DONE)
        } else {
            ExternalEvent::Nothing
        }
    }

    /// Writes the bytes queued for the destination to the socket.
    ///
    /// # Errors
    /// The socket reports an error.
    fn drain(&mut self, inside: &mut impl Inside) -> io::Result<()> {
        self.blocked = !self.connected;
        while !self.blocked {
            let (first, rest) = inside.waiting(self.stream);
            if first.is_empty() {
                return Ok(());
            }
            match self.socket.write_vectored(&[IoSlice::new(first), IoSlice::new(rest)]) {
                Ok(count) => inside.took(self.stream, count),
                Err(error) if is_passing(&error) => self.blocked = true,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn connected(&mut self) -> ExternalEvent {
        match self.socket.take_error() {
            Ok(None) => {
                (self.connected, self.blocked) = (true, false);
                ExternalEvent::Connected(self.peer.ip())
            }
            Ok(Some(error)) | Err(error) => ExternalEvent::Ended(reason(&error)),
        }
    }

    fn fill(&mut self, inside: &mut impl Inside) -> ExternalEvent {
        let mut buffer = [0; PIECE];
        match self.socket.read(&mut buffer) {
            Ok(0) => {
                self.silent = true;
                if self.held.is_empty() {
                    ExternalEvent::Ended(EndReason::DONE)
                } else {
                    ExternalEvent::Nothing
                }
            }
            Ok(count) => {
                let taken = inside.give(self.stream, &buffer[..count]);
                self.held.extend_from_slice(&buffer[taken..count]);
                ExternalEvent::Nothing
            }
            Err(error) if is_passing(&error) => ExternalEvent::Nothing,
            Err(error) => ExternalEvent::Ended(reason(&error)),
        }
    }
}

/// Returns the reason that is reported to the client for `error` (tor-spec, "Closing streams").
pub(crate) fn reason(error: &io::Error) -> EndReason {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => EndReason::REFUSED,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => EndReason::RESET,
        ErrorKind::TimedOut => EndReason::TIMEOUT,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => EndReason::NO_ROUTE,
        ErrorKind::OutOfMemory => EndReason::RESOURCES,
        _ => EndReason::MISC,
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpListener;

    use super::*;

    /// What the other end of a connection reads behind `word`, once `end` was done to it.
    fn read_behind_a_word(end: impl FnOnce(ExternalSocket)) -> io::Result<usize> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"word").unwrap();
        end(ExternalSocket::of(StreamKey(1), socket).unwrap());
        other.read_exact(&mut [0; 4]).unwrap();
        other.read(&mut [0])
    }

    #[test]
    fn a_stream_that_was_cut_does_not_end_like_one_that_is_complete() {
        assert_eq!(read_behind_a_word(drop).unwrap(), 0);
        let error = read_behind_a_word(ExternalSocket::cut).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}
