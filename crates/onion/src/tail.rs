//! Where a circuit ends: a leg for flow control, and the streams.

use std::sync::Arc;

use crate::congestion::{Outlet, Params};
use crate::end::End;
use crate::handshake::extension::Agreed;
use crate::leg::Leg;
use crate::stream::Side;

/// Cells of a circuit that wait for its link before its streams are asked for more (C tor's `cellq_high`).
pub(crate) const QUEUE_HIGH: usize = 256;
/// Below so many, they are asked.
pub(crate) const QUEUE_LOW: usize = 128;

/// The end of a circuit, with the one leg that leads to it.
pub(crate) struct Tail {
    pub(crate) leg: Leg,
    pub(crate) end: End,
}

impl Tail {
    /// Of a new circuit.
    pub(crate) fn new(side: Side, agreed: Agreed, params: &Arc<Params>) -> Tail {
        let end = End::new(side, agreed.sendme_inc.is_some(), params);
        Tail { leg: Leg::new(agreed, params), end }
    }

    /// What congestion control is to know when `queued` cells wait for the link.
    pub(crate) fn outlet(&self, queued: usize) -> Outlet {
        let blocked = queued >= QUEUE_HIGH;
        Outlet { queued: queued as u64, blocked, wanting: self.end.is_wanting() }
    }
}
