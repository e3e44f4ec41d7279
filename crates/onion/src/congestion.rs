//! How many cells may be under way on a circuit: the sender's window, and the receiver's promise to
//! acknowledge.
//!
//! A policy is one [`Control`]: [`Fixed`] windows (tor-spec, "Circuit-level flow control"), or
//! [`Vegas`] (proposal 324), where both ends agreed on it. Cells that count are those with DATA.

use std::time::Duration;

use anabranch_multipath::PathView;

mod fixed;
mod params;
mod vegas;

pub use fixed::Fixed;
pub use params::Params;
pub use vegas::Vegas;

/// What the sender knows of its own outlet when an acknowledgement comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlet {
    /// Cells of the circuit that wait for the link.
    pub queued: u64,
    /// Whether the queue is so long that streams are not read.
    pub blocked: bool,
    /// Whether a stream has something to send.
    pub wanting: bool,
}

/// A sender's window.
pub trait Control: Send {
    /// Cells that may still be sent.
    fn room(&self) -> u64;
    /// Whether the cell that is sent next is one that the peer will acknowledge.
    fn is_marked(&self) -> bool;
    /// A cell was sent.
    fn sent(&mut self);
    /// A SENDME came for [`sendme_inc`](Control::sendme_inc) cells, `rtt` after the marked cell was
    /// sent. False if so many were not under way.
    fn acknowledged(&mut self, rtt: Duration, outlet: Outlet) -> bool;
    /// Cells that one SENDME stands for.
    fn sendme_inc(&self) -> u64;
    /// The window's size, for people to look at.
    fn window(&self) -> u64;
    /// What a scheduler may know of the circuit, but for what its link knows (`queued`, `link`). It
    /// carries no data for a set before a round-trip time was measured.
    fn view(&self) -> PathView;
}

/// The window that both ends agreed on.
pub fn control(sendme_inc: Option<u8>, params: &Params) -> Box<dyn Control> {
    match sendme_inc {
        Some(sendme_inc) => Box::new(Vegas::new(sendme_inc, params)),
        None => Box::new(Fixed::circuit()),
    }
}
