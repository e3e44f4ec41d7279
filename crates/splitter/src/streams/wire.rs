//! A socket, with TLS on it if the stream uses TLS.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::ending::Ending;
use super::tls::TlsStream;

/// First byte of a TLS connection, the type of a handshake record (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
/// Maximum bytes of content encrypted at once: a full record (RFC 8446, section 5.1).
const SEALED: usize = 16 << 10;

/// Bytes sent and received by a stream's socket, for captures.
#[derive(Debug, Default)]
pub(crate) struct WireTraffic {
    /// Bytes that the socket has accepted for sending.
    pub(crate) outward: Vec<u8>,
    /// Bytes that were read from the socket.
    pub(crate) inward: Vec<u8>,
}

/// A non-blocking byte stream on a socket, with or without TLS.
pub(crate) struct Wire {
    socket: Socket,
    tls: Option<Box<dyn TlsStream>>,
    /// Whether any bytes have arrived. The first byte that arrives shows whether the peer uses
    /// TLS.
    is_begun: bool,
    /// Encrypted bytes that wait for room in the socket.
    sealed: Vec<u8>,
    sent: usize,
    /// Bytes sent and received since the last [`Wire::take_passed`]; `None` if they are not
    /// recorded.
    passed: Option<WireTraffic>,
}

impl Wire {
    /// Creates a stream on `socket`, with TLS if `tls` is given.
    ///
    /// # Errors
    /// A system call failed.
    pub(crate) fn new(socket: Socket, tls: Option<Box<dyn TlsStream>>) -> io::Result<Wire> {
        socket.set_nonblocking(true)?;
        let (sealed, passed) = (Vec::new(), None);
        let mut wire = Wire { socket, tls, is_begun: false, sealed, sent: 0, passed };
        wire.collect();
        Ok(wire)
    }

    /// Records the bytes sent and received by the socket from now on.
    pub(crate) fn record(&mut self) {
        self.passed = Some(WireTraffic::default());
    }

    /// Returns the bytes recorded since the last call; `None` if there are none.
    pub(crate) fn take_passed(&mut self) -> Option<WireTraffic> {
        let passed = self.passed.as_mut().map(std::mem::take)?;
        (!passed.outward.is_empty() || !passed.inward.is_empty()).then_some(passed)
    }

    /// Returns the addresses of both ends, (own, peer); `None` if the socket is not a TCP
    /// connection.
    pub(crate) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let own = self.socket.local_addr().ok()?.as_socket()?;
        Some((own, self.socket.peer_addr().ok()?.as_socket()?))
    }

    /// Returns the maximum payload of a segment, in bytes; `None` if the socket is not a TCP
    /// connection.
    pub(crate) fn segment(&self) -> Option<usize> {
        self.socket.tcp_mss().ok().map(|bytes| bytes as usize)
    }

    /// Returns whether content can be sent and received. With TLS, this is the case after the
    /// handshake; without TLS, always.
    pub(crate) fn is_open(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_open())
    }

    /// Reads what has arrived, up to the size of `buffer`, and appends its content to `content`.
    /// If the peer's first byte does not begin a TLS handshake, the stream is read without TLS.
    ///
    /// # Errors
    /// The stream has ended.
    pub(crate) fn read(&mut self, buffer: &mut [u8], content: &mut Vec<u8>) -> Result<(), Ending> {
        let length = match (&self.socket).read(buffer) {
            Ok(0) => return Err(Ending::Closed),
            Ok(length) => length,
            Err(error) if is_passing(&error) => return Ok(()),
            Err(error) => return Err(Ending::Broken(error)),
        };
        if let Some(passed) = &mut self.passed {
            passed.inward.extend_from_slice(&buffer[..length]);
        }
        if !std::mem::replace(&mut self.is_begun, true) && buffer[0] != HANDSHAKE {
            self.leave_tls();
        }
        self.open(&buffer[..length], content)
    }

    /// Appends the content of `bytes`, which were read from the socket, to `content`. If TLS is
    /// used, decrypts the bytes.
    ///
    /// # Errors
    /// The errors of [`Wire::read`].
    pub(crate) fn open(&mut self, bytes: &[u8], content: &mut Vec<u8>) -> Result<(), Ending> {
        let Some(tls) = &mut self.tls else {
            content.extend_from_slice(bytes);
            return Ok(());
        };
        let taken = tls.receive(bytes, content).map_err(Ending::Tls);
        self.collect();
        // Handshake messages of this side are short. If there is no room, they are sent with later
        // content.
        let pushed = self.push();
        taken.and(pushed.map_err(Ending::Broken))
    }

    /// Stops using TLS, unless the handshake is complete or bytes of the handshake wait to be
    /// sent. So only a far end ever stops: a near end completes the handshake before it creates
    /// the stream.
    fn leave_tls(&mut self) {
        if self.tls.as_ref().is_some_and(|tls| !tls.is_open()) && self.sealed.is_empty() {
            self.tls = None;
        }
    }

    /// Writes content to the socket. Returns the number of bytes of content that were accepted.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; another error if the socket or the TLS connection has
    /// failed.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.write_plain(slices) };
        if !tls.is_open() || self.sent < self.sealed.len() {
            self.push()?;
            if !self.is_open() || self.has_unsent() {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
        let mut content = Vec::with_capacity(SEALED);
        for slice in slices {
            let room = SEALED - content.len();
            content.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        if let Some(tls) = &mut self.tls {
            tls.seal(&content).map_err(io::Error::other)?;
        }
        self.collect();
        self.push()?;
        Ok(content.len())
    }

    fn write_plain(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let taken = (&self.socket).write_vectored(slices)?;
        if let Some(passed) = &mut self.passed {
            let mut rest = taken;
            for slice in slices {
                let length = slice.len().min(rest);
                passed.outward.extend_from_slice(&slice[..length]);
                rest -= length;
            }
        }
        Ok(taken)
    }

    /// Sends the close_notify alert, if TLS is used and there is room. Without the alert, the peer
    /// would regard the content as truncated.
    pub(crate) fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close();
            self.collect();
            // The stream is closed in any case.
            let _ = self.push();
        }
    }

    /// Returns whether encrypted bytes wait for room in the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.sealed.len()
    }

    fn collect(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.transmit(&mut self.sealed);
        }
    }

    /// Writes encrypted bytes to the socket until the socket is full.
    ///
    /// # Errors
    /// The socket has failed. A lack of room is not an error.
    pub(crate) fn push(&mut self) -> io::Result<()> {
        while self.sent < self.sealed.len() {
            match (&self.socket).write(&self.sealed[self.sent..]) {
                Ok(taken) => {
                    if let Some(passed) = &mut self.passed {
                        let end = self.sent + taken;
                        passed.outward.extend_from_slice(&self.sealed[self.sent..end]);
                    }
                    self.sent += taken;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.sealed.clear();
        self.sent = 0;
        Ok(())
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
