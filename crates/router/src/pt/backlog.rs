//! Bytes that a socket has not taken yet.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use anabranch_multipath::Time;

use crate::onion::is_passing;

/// A connection whose other end takes nothing of what waits for it for so long is stuck: servers of
/// the web have the same patience.
const STUCK: Duration = Duration::from_secs(60);

/// Bytes that wait for a socket, first come first.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    start: usize,
    /// How many the socket has taken in all.
    taken: u64,
    /// How many it had taken, and since when it has taken no more of those that wait.
    still: Option<(u64, Time)>,
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

    /// Whether the socket has taken nothing of what waits for a minute. This counts from the first
    /// call on, so it has to be called every few seconds.
    pub(super) fn is_stuck(&mut self, now: Time) -> bool {
        let waits = !self.is_empty();
        let known = self.still.filter(|(then, _)| waits && *then == self.taken);
        let (_, since) = *self.still.insert(known.unwrap_or((self.taken, now)));
        now.since(since) >= STUCK
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
