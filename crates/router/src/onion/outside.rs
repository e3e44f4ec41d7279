//! A stream's connection outside: an exit's to a destination, or a program's to us.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anabranch_onion::StreamKey;
use anabranch_onion::wire::message::EndReason;
use anabranch_os::poller::{Interest, Poller, Ready};
use socket2::SockRef;

use super::conn::{connecting, is_passing};

/// Bytes read at once: about half of what a stream has room for in the core, which asks for more
/// when as much has gone.
const PIECE: usize = 32 << 10;

/// The side of a stream that the core holds: where bytes come from and go to.
pub(super) trait Inside {
    /// What waits for the destination: two pieces, in order.
    fn waiting(&self, stream: StreamKey) -> (&[u8], &[u8]);
    /// The destination took so many bytes.
    fn took(&mut self, stream: StreamKey, bytes: usize);
    /// Takes bytes of the destination, as many as there is room for.
    fn give(&mut self, stream: StreamKey, bytes: &[u8]) -> usize;
}

/// One connection.
pub(super) struct Outside {
    socket: TcpStream,
    stream: StreamKey,
    peer: SocketAddr,
    connected: bool,
    /// What the core had no room for.
    held: Vec<u8>,
    /// The destination has said its last word.
    silent: bool,
    /// The destination takes no more at the moment.
    blocked: bool,
    /// The events that the socket is watched for, if known.
    watched: Option<Interest>,
}

/// What the core is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutsideEvent {
    /// Nothing.
    Nothing,
    /// The destination is reached, at this address.
    Connected(IpAddr),
    /// The destination has ended the stream.
    Ended(EndReason),
}

/// Why bytes may move now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stir {
    /// The socket is ready.
    Socket(Ready),
    /// The core has bytes for it.
    Readable,
    /// The core has room again.
    Room,
}

impl Outside {
    /// A connection that is on its way.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn connect(stream: StreamKey, peer: SocketAddr) -> io::Result<Outside> {
        let socket = connecting(peer)?;
        socket.set_nodelay(true)?;
        Ok(Outside::new(stream, socket, peer, false))
    }

    /// A connection that a program opened to us.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn of(stream: StreamKey, socket: TcpStream) -> io::Result<Outside> {
        let peer = socket.peer_addr()?;
        Ok(Outside::new(stream, socket, peer, true))
    }

    fn new(stream: StreamKey, socket: TcpStream, peer: SocketAddr, connected: bool) -> Outside {
        Outside {
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

    /// The socket, for watching.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Ends the connection by a reset, for a stream that was cut: a plain end would pass for that
    /// of all its bytes.
    pub(super) fn cut(self) {
        // Where that is refused, the plain end is all there is.
        let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
    }

    /// What to watch it for.
    pub(super) fn interest(&self) -> Interest {
        let read = self.connected && self.held.is_empty() && !self.silent;
        Interest { read, write: self.blocked }
    }

    /// Watches its socket, which the poller has by this token, for what is of use now.
    pub(super) fn watch(&mut self, poller: &Poller, token: u64) {
        let interest = self.interest();
        // It changes seldom, and a call for each piece that moves costs as much as moving it. Where
        // it is refused, the socket is watched for what it was.
        if self.watched != Some(interest) && poller.change(&self.socket, token, interest).is_ok() {
            self.watched = Some(interest);
        }
    }

    /// Moves what can be moved.
    pub(super) fn stir(&mut self, what: Stir, inside: &mut impl Inside) -> OutsideEvent {
        match what {
            Stir::Socket(ready) if !self.connected => {
                if ready.write {
                    self.connected()
                } else {
                    OutsideEvent::Nothing
                }
            }
            Stir::Socket(ready) => {
                if ready.write
                    && let Err(error) = self.drain(inside)
                {
                    return OutsideEvent::Ended(reason(&error));
                }
                if ready.read { self.fill(inside) } else { OutsideEvent::Nothing }
            }
            Stir::Readable => match self.drain(inside) {
                Ok(()) => OutsideEvent::Nothing,
                Err(error) => OutsideEvent::Ended(reason(&error)),
            },
            Stir::Room => self.has_room(inside),
        }
    }

    fn has_room(&mut self, inside: &mut impl Inside) -> OutsideEvent {
        let taken = inside.give(self.stream, &self.held);
        self.held.drain(..taken);
        if self.silent && self.held.is_empty() {
            OutsideEvent::Ended(EndReason::DONE)
        } else {
            OutsideEvent::Nothing
        }
    }

    /// Writes what waits for the destination.
    ///
    /// # Errors
    /// The socket's.
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

    fn connected(&mut self) -> OutsideEvent {
        match self.socket.take_error() {
            Ok(None) => {
                (self.connected, self.blocked) = (true, false);
                OutsideEvent::Connected(self.peer.ip())
            }
            Ok(Some(error)) | Err(error) => OutsideEvent::Ended(reason(&error)),
        }
    }

    fn fill(&mut self, inside: &mut impl Inside) -> OutsideEvent {
        let mut buffer = [0; PIECE];
        match self.socket.read(&mut buffer) {
            Ok(0) => {
                self.silent = true;
                if self.held.is_empty() {
                    OutsideEvent::Ended(EndReason::DONE)
                } else {
                    OutsideEvent::Nothing
                }
            }
            Ok(count) => {
                let taken = inside.give(self.stream, &buffer[..count]);
                self.held.extend_from_slice(&buffer[taken..count]);
                OutsideEvent::Nothing
            }
            Err(error) if is_passing(&error) => OutsideEvent::Nothing,
            Err(error) => OutsideEvent::Ended(reason(&error)),
        }
    }
}

/// What the client is told of an error (tor-spec, "Closing streams").
pub(super) fn reason(error: &io::Error) -> EndReason {
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
    fn read_behind_a_word(end: impl FnOnce(Outside)) -> io::Result<usize> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"word").unwrap();
        end(Outside::of(StreamKey(1), socket).unwrap());
        other.read_exact(&mut [0; 4]).unwrap();
        other.read(&mut [0])
    }

    #[test]
    fn a_stream_that_was_cut_does_not_end_like_one_that_is_complete() {
        assert_eq!(read_behind_a_word(drop).unwrap(), 0);
        let error = read_behind_a_word(Outside::cut).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}
