//! Stamp at the front of each datagram: session, number, and time of sending.

use rustix::time::{ClockId, clock_gettime};

/// Size of a stamp in bytes, and of the smallest datagram that can carry one.
pub const STAMP: usize = 20;

/// Stamp that the sender writes into each datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Socket of the sender, counted from 0.
    pub session: u32,
    /// Number of the datagram within its session, counted from 0.
    pub number: u64,
    /// Time of sending, from [`now`].
    pub sent: u64,
}

impl Stamp {
    /// Writes the stamp to the front of `datagram`, which holds at least [`STAMP`] bytes.
    pub fn write(&self, datagram: &mut [u8]) {
        datagram[..4].copy_from_slice(&self.session.to_le_bytes());
        datagram[4..12].copy_from_slice(&self.number.to_le_bytes());
        datagram[12..20].copy_from_slice(&self.sent.to_le_bytes());
    }

    /// Reads the stamp of `datagram`; returns `None` if it is too short.
    pub fn read(datagram: &[u8]) -> Option<Stamp> {
        let session = datagram.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        let word = |at: usize| datagram.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
        Some(Stamp { session, number: word(4)?, sent: word(12)? })
    }
}

/// Returns the nanoseconds of `CLOCK_MONOTONIC`, which all processes of one machine share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let stamp = Stamp { session: 7, number: u64::MAX - 1, sent: now() };
        let mut datagram = [0; STAMP + 3];
        stamp.write(&mut datagram);
        assert_eq!(Stamp::read(&datagram), Some(stamp));
        assert_eq!(Stamp::read(&datagram[..STAMP - 1]), None);
    }
}
