//! A circuit as seen from its end: the destination of its cells, and the layers on them.

use crate::channels::Lane;
use crate::crypto::{ClientLayer, RelayLayer, Tag};
use crate::leg::Leg;
use crate::table::SetId;
use crate::wire::cell::{Body, Command};
use crate::wire::message::Format;

/// Carrier of a circuit's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A link.
    Link(Lane),
    /// The legs of this set, which join at a middle: the circuit continues from there.
    Legs(SetId),
}

/// The layers that we put on a cell that starts here.
pub trait Seal {
    /// Seals the cell for the other end of the circuit. Returns its tag, if there is a layer.
    fn seal(&mut self, command: Command, body: &mut Body) -> Option<Tag>;

    /// Wraps a cell that only passes the other end: adds our layers, and no digest.
    fn wrap(&mut self, command: Command, body: &mut Body);

    /// Returns the format of messages in the cell.
    fn format(&self) -> Format;
}

impl Seal for Box<dyn RelayLayer> {
    fn seal(&mut self, command: Command, body: &mut Body) -> Option<Tag> {
        Some(self.originate(command, body))
    }

    fn wrap(&mut self, command: Command, body: &mut Body) {
        self.inbound(command, body);
    }

    fn format(&self) -> Format {
        RelayLayer::format(&**self)
    }
}

/// Seals for the last hop, through all others.
impl Seal for Vec<Box<dyn ClientLayer>> {
    fn seal(&mut self, command: Command, body: &mut Body) -> Option<Tag> {
        let (last, before) = self.split_last_mut()?;
        let tag = last.originate(command, body);
        before.iter_mut().rev().for_each(|layer| layer.outbound(command, body));
        Some(tag)
    }

    fn wrap(&mut self, command: Command, body: &mut Body) {
        self.iter_mut().rev().for_each(|layer| layer.outbound(command, body));
    }

    fn format(&self) -> Format {
        self.last().map(|layer| layer.format()).unwrap_or_default()
    }
}

/// A circuit as seen from its end, where it may be a leg of a set.
pub trait Ending {
    /// True if cells from this end travel away from the client.
    const OUTWARD: bool;

    /// Returns the carrier of the end's cells, if there is one yet.
    fn carrier(&self) -> Option<Carrier>;

    /// Returns the circuit's lane on the link towards its other end.
    fn lane(&self) -> Option<Lane> {
        match self.carrier()? {
            Carrier::Link(lane) => Some(lane),
            Carrier::Legs(_) => None,
        }
    }

    /// Returns its set, once it is a leg.
    fn set(&self) -> Option<SetId>;

    /// Returns its flow control, once it is a leg.
    fn leg(&self) -> Option<&Leg>;

    /// Returns the number that its owner assigned, if it has an owner.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Returns the number of cells so far: received, sent. Counts all kinds if the core does,
    /// otherwise those with DATA.
    fn cells(&self) -> [u64; 2] {
        self.leg().map(Leg::carried).unwrap_or_default()
    }

    /// Returns the carrier of the end's cells, their flow control, and the layers.
    fn parts(&mut self) -> Option<(Carrier, Option<&mut Leg>, &mut dyn Seal)>;
}
