//! TCP sockets for the ends of streams outside the onion network. At an exit, the socket is
//! connected to the stream's destination. At a client, it is connected to a local program. In this
//! file, "destination" means either of these peers.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anabranch_onion::StreamKey;
use anabranch_onion::wire::message::EndReason;
use anabranch_os::poller::{Interest, Poller, Ready};
use socket2::SockRef;

use super::conn::{connecting, is_passing};

/// Maximum number of bytes that one call reads from the socket. The value is about half of a
/// stream's buffer in the protocol core (a state machine without I/O), because the core reports
/// free space when half of the buffer is sent.
const PIECE: usize = 32 << 10;

/// Interface of the protocol core (a state machine without I/O) through which [`ExternalSocket`]
/// moves a stream's bytes. At a client, the "destination" of these bytes is the local program.
pub(crate) trait CoreStream {
    /// Returns the bytes of `stream` that wait for the destination: two pieces, to be sent in
    /// order.
    fn waiting(&self, stream: StreamKey) -> (&[u8], &[u8]);
    /// Reports to the protocol core that the socket has accepted `bytes` bytes for the
    /// destination.
    fn accepted(&mut self, stream: StreamKey, bytes: usize);
    /// Adds `bytes` from the destination to the stream. Returns the number of bytes for which the
    /// protocol core had room.
    fn give(&mut self, stream: StreamKey, bytes: &[u8]) -> usize;
}

/// The TCP socket of a stream: an exit's connection to the destination, or a client's connection
/// with a local program.
pub(crate) struct ExternalSocket {
    socket: TcpStream,
    stream: StreamKey,
    peer: SocketAddr,
    connected: bool,
    /// Bytes that were read from the socket. They wait until the protocol core has room for them.
    held: Vec<u8>,
    /// True if the destination or local program at the other end of the socket has closed its
    /// sending side.
    silent: bool,
    /// True if the socket is not connected yet, or its send buffer is full.
    blocked: bool,
    /// Events for which the poller watches the socket; `None` before the first
    /// [`ExternalSocket::watch`].
    watched: Option<Interest>,
}

/// Event of a stream's socket that the protocol core must process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExternalEvent {
    /// There is no event.
    Nothing,
    /// The connection to the destination, at this address, is open.
    Connected(IpAddr),
    /// The destination or local program at the other end of the socket has closed or reset the
    /// connection.
    Ended(EndReason),
}

/// Event after which bytes may be moved between a stream in the protocol core and its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoEvent {
    /// The socket is ready to read or write.
    Socket(Ready),
    /// The protocol core has more bytes for the destination.
    Readable,
    /// The protocol core has room for more bytes again.
    Room,
}

impl ExternalSocket {
    /// Opens a TCP connection to the destination `peer`, without waiting until it is established.
    ///
    /// # Errors
    /// A system call fails.
    pub(crate) fn connect(stream: StreamKey, peer: SocketAddr) -> io::Result<ExternalSocket> {
        let socket = connecting(peer)?;
        socket.set_nodelay(true)?;
        Ok(ExternalSocket::new(stream, socket, peer, false))
    }

    /// Wraps a TCP connection that a local program has opened to us.
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

    /// Resets the TCP connection of a stream that was cut off. After an orderly close, the program
    /// at the other end would assume that it had received all bytes.
    pub(crate) fn cut(self) {
        // If this call fails, the connection is closed in an orderly way.
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
        // The poller is changed only if the events differ, because a system call for each piece of
        // data would cost as much as moving the data. If the change fails, the old events stay in
        // use.
        if self.watched != Some(interest) && poller.change(&self.socket, token, interest).is_ok() {
            self.watched = Some(interest);
        }
    }

    /// Moves as many bytes as possible between the socket and the protocol core, after the event
    /// `what`. Returns the event that the core must process.
    pub(crate) fn service(&mut self, what: IoEvent, inside: &mut impl CoreStream) -> ExternalEvent {
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

    fn has_room(&mut self, inside: &mut impl CoreStream) -> ExternalEvent {
        let taken = inside.give(self.stream, &self.held);
        self.held.drain(..taken);
        if self.silent && self.held.is_empty() {
            ExternalEvent::Ended(EndReason::DONE)
        } else {
            ExternalEvent::Nothing
        }
    }

    /// Writes to the socket the bytes that wait for the destination.
    ///
    /// # Errors
    /// The socket reports an error.
    fn drain(&mut self, inside: &mut impl CoreStream) -> io::Result<()> {
        self.blocked = !self.connected;
        while !self.blocked {
            let (first, rest) = inside.waiting(self.stream);
            if first.is_empty() {
                return Ok(());
            }
            match self.socket.write_vectored(&[IoSlice::new(first), IoSlice::new(rest)]) {
                Ok(count) => inside.accepted(self.stream, count),
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

    fn fill(&mut self, inside: &mut impl CoreStream) -> ExternalEvent {
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

/// Converts a socket error into the reason that is reported to the client (tor-spec, "Closing
/// streams").
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

    /// Sends a word on a connection and passes the connection to `end`. Returns the result of the
    /// other end's next read after the word.
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
