//! Bytes that a socket has not taken yet.

use std::io::{self, Write};
use std::net::TcpStream;

use crate::onion::is_passing;

/// Bytes that wait for a socket, first come first.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    start: usize,
    /// How many the socket has taken in all.
    taken: u64,
}

impl Backlog {
    /// Puts bytes behind those that wait.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start * 2 >= self.bytes.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// How many the socket has taken in all.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether none do.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes as many as the socket takes.
    ///
    /// # Errors
    /// The socket's.
    pub(super) fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            match socket.write(&self.bytes[self.start..]) {
                Ok(count) => {
                    self.start += count;
                    self.taken += count as u64;
                }
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.start = 0;
        Ok(())
    }
}
