//! A circuit as seen from one of its ends: the carrier of the circuit's cells (a link or other
//! circuits), and the layers of encryption on the cells.

use crate::channels::LinkCircuit;
use crate::crypto::lossy::{LossyClient, LossyRelay};
use crate::crypto::{ClientLayer, RelayLayer, Tag};
use crate::leg::Leg;
use crate::table::SetId;
use crate::wire::cell::{Body, Command};
use crate::wire::message::Format;

/// Carrier of a circuit's cells: a link, or the parallel circuits (legs) of a circuit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A link carries the cells. The value is the link and the circuit's ID on it.
    Link(LinkCircuit),
    /// The parallel circuits (legs) of this set carry the cells as far as the middle relay at
    /// which the legs join. From there, one circuit continues.
    Legs(SetId),
}

/// The layers of encryption that one end of a circuit adds to each cell that it sends.
pub trait Seal {
    /// Authenticates and encrypts a cell for the other end of the circuit. Returns the cell's
    /// authentication tag, or `None` if there are no layers of encryption.
    fn seal(&mut self, command: Command, body: &mut Body) -> Option<Tag>;

    /// Encrypts a cell that the other end only forwards. Adds this end's layers, but no digest.
    fn wrap(&mut self, command: Command, body: &mut Body);

    /// Returns the format of messages in the cells that this end sends.
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

/// The encryption layers of a client, one for each hop. They authenticate a cell for the last hop,
/// and encrypt it for all hops.
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

/// Layers of encryption that one end of a circuit adds to its lossy cells (sent in datagrams).
pub trait SealLossy {
    /// Encrypts a cell for the other end of the circuit, and returns the cell's counter. The
    /// caller writes the content to `body` from the index [`ZEROS`](crate::crypto::lossy::ZEROS)
    /// on. Returns `None` once all counters are used.
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

/// A circuit as seen from one of its ends. The circuit may be a leg of a set: one of several
/// circuits used in parallel.
pub trait Ending {
    /// True if cells from this end travel away from the client.
    const OUTWARD: bool;

    /// Returns the carrier of the cells that this end sends; `None` if there is none yet.
    fn carrier(&self) -> Option<Carrier>;

    /// Returns the link, and the circuit's ID on it, towards the other end. Returns `None` if
    /// parallel circuits (legs of a set) carry the circuit's cells, or if there is no link yet.
    fn link_circuit(&self) -> Option<LinkCircuit> {
        match self.carrier()? {
            Carrier::Link(link_circuit) => Some(link_circuit),
            Carrier::Legs(_) => None,
        }
    }

    /// Returns the set of parallel circuits that this circuit belongs to; `None` if it belongs to
    /// none yet.
    fn set(&self) -> Option<SetId>;

    /// Returns the circuit's flow control; `None` until the circuit is in a set of parallel
    /// circuits.
    fn leg(&self) -> Option<&Leg>;

    /// Returns the identifier that the caller assigned to the circuit; `None` if it assigned none.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Returns the count of received cells and the count of sent cells. A node that does not count
    /// all cells returns the counts of cells with DATA.
    fn cells(&self) -> [u64; 2] {
        self.leg().map(Leg::transferred).unwrap_or_default()
    }

    /// Makes the circuit one of the parallel circuits (legs) of `set`. The circuit must already
    /// have all its hops.
    fn move_to(&mut self, set: SetId);

    /// Returns true if the circuit can carry lossy cells (sent in datagrams).
    fn is_lossy(&self) -> bool;

    /// Returns the layers for lossy cells (sent in datagrams); `None` if the circuit carries no
    /// lossy cells, or is not complete.
    fn lossy(&mut self) -> Option<&mut dyn SealLossy>;

    /// Returns the parts needed to send cells from this end: the carrier of the cells, the
    /// circuit's flow control, and the encryption layers to add. Returns `None` if there is no
    /// carrier yet.
    fn parts(&mut self) -> Option<(Carrier, Option<&mut Leg>, &mut dyn Seal)>;
}
