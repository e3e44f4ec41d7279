//! What streams hang on: a set of legs that lead to one other end, and the streams in turn over
//! them.
//!
//! Streams, their IDs and their turns belong to the set. Keys, window, SENDME tags and queue belong
//! to each leg, which is a circuit. Every set has one leg: the null case of a multi-path layer.

use std::sync::Arc;

use anabranch_multipath::Time;

use crate::congestion::{Outlet, Params};
use crate::event::CircuitFault;
use crate::handshake::extension::Agreed;
use crate::stream::{Broken, Side};
use crate::streams::Streams;
use crate::wire::message::{Message, RelayCommand};

/// Cells of a leg that wait for its link before streams are asked for more (C tor's `cellq_high`).
pub(crate) const QUEUE_HIGH: usize = 256;
/// Below so many, they are asked.
pub(crate) const QUEUE_LOW: usize = 128;

/// A set's number in its core; used again once the set is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetId(pub(crate) u32);

/// The streams, and the leg that they go by.
pub(crate) struct Set {
    pub(crate) streams: Streams,
    /// The circuit that is the leg, by its number in the core.
    pub(crate) leg: u32,
}

impl Set {
    /// Of one leg, on which this was agreed.
    pub(crate) fn new(side: Side, agreed: Agreed, params: &Arc<Params>, leg: u32) -> Set {
        Set { streams: Streams::new(side, agreed.sendme_inc.is_some(), params), leg }
    }

    /// What a leg's congestion control is to know when `queued` cells wait for the leg's link.
    pub(crate) fn outlet(&self, queued: usize) -> Outlet {
        let blocked = queued >= QUEUE_HIGH;
        Outlet { queued: queued as u64, blocked, wanting: self.streams.is_wanting() }
    }

    /// Takes a message of a stream.
    ///
    /// # Errors
    /// What the other end did that it may not do.
    pub(crate) fn take(&mut self, now: Time, message: Message<'_>) -> Result<(), CircuitFault> {
        self.streams.take(now, message).map_err(|broken| match broken {
            Broken::Flood => CircuitFault::Flood,
            _ if message.command == RelayCommand::SENDME => CircuitFault::Sendme,
            _ => CircuitFault::Message,
        })
    }
}
