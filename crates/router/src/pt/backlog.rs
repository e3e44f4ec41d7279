//! Bytes that wait in this program until a socket accepts them.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Duration;

use anabranch_multipath::Time;

use crate::onion::is_passing;

/// Time without progress after which a connection with queued bytes counts as stuck. It is the
/// usual timeout of web servers.
const STUCK: Duration = Duration::from_secs(60);

/// Bytes queued for a socket, in order.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: Vec<u8>,
    start: usize,
    /// Total number of bytes that the socket has accepted.
    taken: u64,
    /// Value of `taken` at the last check, and the time of the first check with this value. The
    /// difference to the present time is the time without progress. `None` before the first check.
    still: Option<(u64, Time)>,
}

impl Backlog {
    /// Appends bytes to the queue.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start * 2 >= self.bytes.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the number of queued bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns whether the socket has accepted none of the queued bytes for [`STUCK`]. The time
    /// counts from the first call without progress, so the caller should call this function every
    /// few seconds.
    pub(super) fn is_stuck(&mut self, now: Time) -> bool {
        let waits = !self.is_empty();
        let known = self.still.filter(|(then, _)| waits && *then == self.taken);
        let (_, since) = *self.still.insert(known.unwrap_or((self.taken, now)));
        now.since(since) >= STUCK
    }

    /// Returns whether the queue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes queued bytes, as many as the socket accepts.
    ///
    /// # Errors
    /// The socket reports an error.
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
