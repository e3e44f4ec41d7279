//! A socket, and TLS on it where the stream has that.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::ending::Ending;
use super::tls::TlsStream;

/// First byte of a TLS connection: a record of a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;
/// Content sealed at once: a full record (RFC 8446, 5.1).
const SEALED: usize = 16 << 10;

/// A byte stream that does not block.
pub(crate) struct Wire {
    socket: Socket,
    tls: Option<Box<dyn TlsStream>>,
    /// Whether bytes have arrived: the first ones show whether the peer speaks TLS.
    is_begun: bool,
    /// Sealed bytes for which the socket had no room yet.
    sealed: Vec<u8>,
    sent: usize,
}

impl Wire {
    /// A stream on `socket`, in TLS if that is given.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(socket: Socket, tls: Option<Box<dyn TlsStream>>) -> io::Result<Wire> {
        socket.set_nonblocking(true)?;
        let mut wire = Wire { socket, tls, is_begun: false, sealed: Vec::new(), sent: 0 };
        wire.collect();
        Ok(wire)
    }

    /// Whether content passes: at once, or after TLS's handshake.
    pub(crate) fn is_open(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_open())
    }

    /// Reads what has arrived, as far as `buffer` reaches, and appends its content. A peer that
    /// does not begin as TLS does is taken as it is.
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
        if !std::mem::replace(&mut self.is_begun, true) && buffer[0] != HANDSHAKE {
            self.leave_tls();
        }
        self.open(&buffer[..length], content)
    }

    /// Appends the content of bytes that were read from the socket.
    ///
    /// # Errors
    /// As [`Wire::read`].
    pub(crate) fn open(&mut self, bytes: &[u8], content: &mut Vec<u8>) -> Result<(), Ending> {
        let Some(tls) = &mut self.tls else {
            content.extend_from_slice(bytes);
            return Ok(());
        };
        let taken = tls.receive(bytes, content).map_err(Ending::Tls);
        self.collect();
        // What a handshake answers is short: it fits, or goes with what follows.
        let pushed = self.push();
        taken.and(pushed.map_err(Ending::Broken))
    }

    /// A near end's TLS has opened before, or the peer speaks none: nothing was said to it yet.
    fn leave_tls(&mut self) {
        if self.tls.as_ref().is_some_and(|tls| !tls.is_open()) && self.sealed.is_empty() {
            self.tls = None;
        }
    }

    /// Gives the socket content; how many bytes of it were taken.
    ///
    /// # Errors
    /// `WouldBlock` where there is no room, and the kernel's.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return (&self.socket).write_vectored(slices) };
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

    /// Tells the peer that all was said, as far as there is room: without that, programs take what
    /// TLS carried for cut off.
    pub(crate) fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close();
            self.collect();
            // The stream is closed in any case.
            let _ = self.push();
        }
    }

    /// Whether sealed bytes wait for room.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.sealed.len()
    }

    fn collect(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.transmit(&mut self.sealed);
        }
    }

    /// Gives the socket what is sealed, as far as there is room.
    ///
    /// # Errors
    /// The kernel's, but for want of room.
    pub(crate) fn push(&mut self) -> io::Result<()> {
        while self.sent < self.sealed.len() {
            match (&self.socket).write(&self.sealed[self.sent..]) {
                Ok(taken) => self.sent += taken,
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
