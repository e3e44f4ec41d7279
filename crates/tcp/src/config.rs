//! Settings of a connection.

use crate::congestion::{Controller, Cubic, Reno};

/// Settings of a [`Connection`](crate::Connection). The default is what Linux does on a path with
/// an MTU of 1,500 bytes, with CUBIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum segment size in bytes that is announced, and that segments keep to: the MTU less 40
    /// bytes over IPv4, 60 over IPv6.
    pub mss: u16,
    /// Congestion control.
    pub congestion: Congestion,
    /// Spreads segments over the round-trip time. Linux does so with the queueing discipline `fq`
    /// only.
    pub pacing: bool,
    /// Bytes that are buffered for the reader, both in order and out of order.
    pub receive_buffer: usize,
    /// Bytes that [`write`](crate::Connection::write) accepts until they are acknowledged.
    pub send_buffer: usize,
    /// Offers selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offers timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offers window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Added to the clock of timestamps, which counts milliseconds: an offset that differs from
    /// connection to connection hides the host's uptime (RFC 7323, section 5.4).
    pub timestamp_offset: u32,
    /// Reports data that arrives out of order ([`early`](crate::Connection::early)).
    pub early: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mss: 1460,
            congestion: Congestion::Cubic,
            pacing: false,
            receive_buffer: 6 << 20,
            send_buffer: 4 << 20,
            sack: true,
            timestamps: true,
            window_scaling: true,
            timestamp_offset: 0,
            early: false,
        }
    }
}

/// Congestion control of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Congestion {
    /// CUBIC (RFC 9438) with HyStart, as Linux has it.
    #[default]
    Cubic,
    /// Reno (RFC 5681).
    Reno,
}

impl Congestion {
    pub(crate) fn controller(self) -> Box<dyn Controller> {
        match self {
            Congestion::Cubic => Box::new(Cubic::default()),
            Congestion::Reno => Box::new(Reno::default()),
        }
    }
}
