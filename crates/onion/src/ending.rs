//! A circuit as seen from one of its ends: the carrier of its cells, and the layers of encryption
//! on them.

use crate::channels::Lane;
use crate::crypto::lossy::{LossyClient, LossyRelay};
use crate::crypto::{ClientLayer, RelayLayer, Tag};
use crate::leg::Leg;
use crate::table::SetId;
use crate::wire::cell::{Body, Command};
use crate::wire::message::Format;

/// The carrier of a circuit's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A link carries the circuit's cells, with the circuit ID in this lane.
    Link(Lane),
    /// The legs of this set carry the circuit's cells. They join at a middle, where the circuit
    /// continues.
    Legs(SetId),
}

/// The layers of encryption that one end of a circuit adds to the cells that it sends.
pub trait Seal {
    /// Seals the cell for the other end of the circuit. Returns the cell's tag; `None` if there are
    /// no layers.
    fn seal(&mut self, command: Command, body: &mut Body) -> Option<Tag>;

    /// Wraps a cell that the other end only passes on: adds this end's layers, and no digest.
    fn wrap(&mut self, command: Command, body: &mut Body);

    /// Returns the format of messages in the sealed cells.
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

/// The layers of a client, which seal a cell for the last hop and encrypt it for all other hops.
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

/// The layers of encryption that one end of a circuit adds to the lossy cells that it sends.
pub trait SealLossy {
    /// Seals the cell for the other end of the circuit, and returns its counter. The content
    /// follows the zeros ([`ZEROS`](crate::crypto::lossy::ZEROS)). Returns `None` once all counters
    /// are used.
    fn originate(&mut self, command: Command, body: &mut Body) -> Option<u32>;
}

impl SealLossy for LossyRelay {
    fn originate(&mut self, command: Command, body: &mut Body) -> Option<u32> {
        LossyRelay::originate(self, command, body)
    }
}

impl SealLossy for LossyClient {
    fn originate(&mut self, command: Command, body: &mut Body) -> Option<u32> {
        LossyClient::originate(self, command, body)
    }
}

/// A circuit as seen from one of its ends. The circuit may be a leg of a set.
pub trait Ending {
    /// True if cells from this end travel away from the client.
    const OUTWARD: bool;

    /// Returns the carrier of this end's cells; `None` if there is none yet.
    fn carrier(&self) -> Option<Carrier>;

    /// Returns the circuit's lane on the link towards its other end; `None` if legs carry the
    /// circuit.
    fn lane(&self) -> Option<Lane> {
        match self.carrier()? {
            Carrier::Link(lane) => Some(lane),
            Carrier::Legs(_) => None,
        }
    }

    /// Returns the circuit's set; `None` before the circuit is a leg.
    fn set(&self) -> Option<SetId>;

    /// Returns the circuit's flow control; `None` before the circuit is a leg.
    fn leg(&self) -> Option<&Leg>;

    /// Returns the number that the circuit's owner assigned; `None` if it has no owner.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Returns the numbers of cells received and sent so far. A core that does not count all cells
    /// returns only those with DATA.
    fn cells(&self) -> [u64; 2] {
        self.leg().map(Leg::carried).unwrap_or_default()
    }

    /// Makes the circuit, whose path is complete, a leg of `set`.
    fn move_to(&mut self, set: SetId);

    /// Returns true if the circuit has lossy cells.
    fn is_lossy(&self) -> bool;

    /// Returns the layers for lossy cells; `None` if the circuit has no lossy cells, or is not
    /// complete.
    fn lossy(&mut self) -> Option<&mut dyn SealLossy>;

    /// Returns the carrier of this end's cells, their flow control, and the layers to add to them.
    /// Returns `None` if there is no carrier yet.
    fn parts(&mut self) -> Option<(Carrier, Option<&mut Leg>, &mut dyn Seal)>;
}
