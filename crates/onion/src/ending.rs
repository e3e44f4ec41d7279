//! A circuit as seen from its end: where its cells go, and the layers on them.

use crate::channels::Lane;
use crate::crypto::{ClientLayer, RelayLayer, Tag};
use crate::leg::Leg;
use crate::table::SetId;
use crate::wire::cell::{Body, Command};
use crate::wire::message::Format;

/// By what a circuit's cells go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// By a link.
    Link(Lane),
    /// By the legs of this set, which join at a middle: it goes on from there.
    Legs(SetId),
}

/// Puts our layers on a cell that starts here.
pub trait Seal {
    /// Seals it, for the other end of the circuit; its tag, if there is a layer.
    fn seal(&mut self, command: Command, body: &mut Body) -> Option<Tag>;

    /// Seals a cell that only passes the other end: our layers as they are, and no digest.
    fn wrap(&mut self, command: Command, body: &mut Body);

    /// How a message lies in it.
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

/// For the last hop, by all others.
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
    /// Whether what the end sends leads away from the client.
    const OUTWARD: bool;

    /// What carries the end's cells, if something does yet.
    fn carrier(&self) -> Option<Carrier>;

    /// The circuit's place on the link that leads to its other end, or on towards it.
    fn lane(&self) -> Option<Lane> {
        match self.carrier()? {
            Carrier::Link(lane) => Some(lane),
            Carrier::Legs(_) => None,
        }
    }

    /// The set that it is a leg of, once it is one.
    fn set(&self) -> Option<SetId>;

    /// Its flow control, once it is a leg.
    fn leg(&self) -> Option<&Leg>;

    /// The number that its owner gave it, if it has an owner.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Cells so far: received, sent. Of all kinds where the core counts those, else with DATA.
    fn cells(&self) -> [u64; 2] {
        self.leg().map(Leg::carried).unwrap_or_default()
    }

    /// What carries the end's cells, their flow control, and the layers.
    fn parts(&mut self) -> Option<(Carrier, Option<&mut Leg>, &mut dyn Seal)>;
}
