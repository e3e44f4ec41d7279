//! Limits on the cells in flight on a circuit: the sender's window, and the receiver's
//! acknowledgements.
//!
//! [`Control`] is the interface of a window. Its implementations are [`Fixed`] windows (tor-spec,
//! "Circuit-level flow control"), and [`Vegas`] (proposal 324) if both ends agreed on it. Only
//! cells with DATA messages count.

use std::time::Duration;

use anabranch_multipath::PathView;

mod fixed;
mod params;
mod vegas;

pub use fixed::Fixed;
pub use params::Params;
pub use vegas::Vegas;

/// State of the sender's queue of cells for the link, at the time at which an acknowledgement
/// arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlet {
    /// Number of the circuit's cells that are queued for the link.
    pub queued: u64,
    /// True if the queue is full, so that no more bytes are read from streams.
    pub blocked: bool,
    /// True if a stream has data to send.
    pub wanting: bool,
}

/// A sender's window, which limits the cells in flight.
pub trait Control: Send {
    /// Returns the number of cells that may still be sent.
    fn room(&self) -> u64;
    /// Returns true if the peer will acknowledge the next cell sent.
    fn is_marked(&self) -> bool;
    /// Counts a sent cell in the window.
    fn sent(&mut self);
    /// Handles a SENDME, which acknowledges [`sendme_inc`](Control::sendme_inc) cells. The SENDME
    /// arrived `rtt` after the last of these cells was sent. Returns false if fewer cells were in
    /// flight.
    fn acknowledged(&mut self, rtt: Duration, outlet: Outlet) -> bool;
    /// Returns the number of cells that one SENDME acknowledges.
    fn sendme_inc(&self) -> u64;
    /// Returns the window's size in cells, for display.
    fn window(&self) -> u64;
    /// Returns the circuit's state for a scheduler. The caller must set the fields that describe
    /// the link (`queued`, `link`). A circuit set sends no data on this circuit before a
    /// round-trip time is measured.
    fn view(&self) -> PathView;
}

/// Returns the window of a new circuit: [`Vegas`] if the handshake agreed on a `sendme_inc`, else
/// [`Fixed`].
pub fn control(sendme_inc: Option<u8>, params: &Params) -> Box<dyn Control> {
    match sendme_inc {
        Some(sendme_inc) => Box::new(Vegas::new(sendme_inc, params)),
        None => Box::new(Fixed::circuit()),
    }
}
