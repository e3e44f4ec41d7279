//! The timers of a connection, as a table.

use anabranch_multipath::Time;

/// Purpose of a timer of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Retransmission timeout (RFC 6298).
    Retransmit,
    /// Time at which a tail loss probe is sent (RFC 8985, section 7).
    Probe,
    /// End of the reordering window, after which overtaken segments count as lost (RFC 8985,
    /// section 6.2).
    Reorder,
    /// Time at which the peer's closed receive window is probed (RFC 9293, section 3.8.6.1).
    Persist,
    /// Retransmission of a SYN.
    Handshake,
    /// Copy of the first SYN.
    SynCopy,
    /// Time at which a segment at the beginning of the stream is sent a second time.
    Copy,
    /// Time at which a delayed acknowledgement is sent.
    Ack,
    /// End of the state TIME-WAIT.
    Close,
}

const COUNT: usize = Timer::Close as usize + 1;

/// Expiry time of each of a connection's timers; `None` for a timer that is not running.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers([Option<Time>; COUNT]);

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize] = Some(at);
    }

    /// Starts `timer` to expire at the time `at`. Does nothing if it is already running.
    pub(crate) fn start(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize].get_or_insert(at);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(crate) fn get(&self, timer: Timer) -> Option<Time> {
        self.0[timer as usize]
    }

    /// Returns whether `timer` has expired. If it has, stops it.
    pub(crate) fn expire(&mut self, now: Time, timer: Timer) -> bool {
        self.0[timer as usize].take_if(|at| *at <= now).is_some()
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.iter().flatten().min().copied()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = [None; COUNT];
    }
}
