//! Where a circuit ends: a leg for flow control, and the streams.

use std::sync::Arc;

use anabranch_multipath::Time;

use crate::congestion::{Outlet, Params};
use crate::end::End;
use crate::event::Violation;
use crate::handshake::extension::Agreed;
use crate::leg::Leg;
use crate::stream::{Broken, Side};
use crate::wire::message::{Message, RelayCommand, read_sendme};

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
        let end = End::new(side, agreed, params);
        Tail { leg: Leg::new(agreed, params), end }
    }

    /// What congestion control is to know when `queued` cells wait for the link.
    fn outlet(&self, queued: usize) -> Outlet {
        let blocked = queued >= QUEUE_HIGH;
        Outlet { queued: queued as u64, blocked, wanting: self.end.is_wanting() }
    }

    /// Takes a message of a stream.
    ///
    /// # Errors
    /// What the other end did that it may not do.
    pub(crate) fn take(&mut self, now: Time, message: Message<'_>) -> Result<(), Violation> {
        self.end.take(now, message).map_err(|broken| match broken {
            Broken::Flood => Violation::Flood,
            _ if message.command == RelayCommand::SENDME => Violation::Sendme,
            _ => Violation::Message,
        })
    }

    /// Takes a SENDME of the circuit while `queued` cells wait for the link.
    ///
    /// # Errors
    /// It is not owed, or bears a wrong tag.
    pub(crate) fn acknowledged(
        &mut self,
        now: Time,
        data: &[u8],
        queued: usize,
    ) -> Result<(), Violation> {
        let outlet = self.outlet(queued);
        let tag = read_sendme(data).ok_or(Violation::Sendme)?;
        self.leg.acknowledged(now, tag, outlet).map_err(|_| Violation::Sendme)
    }
}
