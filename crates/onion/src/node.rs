//! What client and relay do alike: links come and go, cells come by them, streams have programs.
//!
//! [`Core`] is what the outside may do with either; [`Node`] is what a role adds to make that work.

use std::net::IpAddr;

use anabranch_multipath::Time;

use crate::base::{Base, Ending, Timer};
use crate::channel::{Channel, Role, Start, Taken};
use crate::channels::{LinkId, Owner, is};
use crate::event::{CircuitFault, Event, LinkFault};
use crate::padding::Amount;
use crate::stream::StreamKey;
use crate::wire::cell::{Cell, Cells, Command};
use crate::wire::extend::Target;
use crate::wire::link::Padding;
use crate::wire::message::EndReason;

/// What happened to a link.
#[derive(Debug)]
pub enum LinkInput<'a> {
    /// A link whose TLS handshake is done: the neighbour's, or one that [`LinkOutput::Dial`] asked
    /// for.
    Opened {
        /// Its number, never used before.
        link: LinkId,
        /// Whom it was to lead to, if we opened it.
        target: Option<Target>,
        /// What is known of it.
        start: Start,
    },
    /// Plain bytes came.
    Bytes {
        /// The link.
        link: LinkId,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The answer to [`LinkOutput::Export`].
    Exported {
        /// The link.
        link: LinkId,
        /// The secret.
        secret: [u8; 32],
    },
    /// A link is gone.
    Closed {
        /// The link.
        link: LinkId,
    },
    /// A link to another shard of this relay is there, and stays.
    Sibling {
        /// Its number, never used before.
        link: LinkId,
        /// True at one end of it, false at the other.
        first: bool,
    },
    /// What [`LinkOutput::Dial`] asked for is another shard's to do, or is done there.
    Elsewhere {
        /// Whom we wanted.
        target: Target,
        /// The link to that shard.
        link: LinkId,
    },
    /// What [`LinkOutput::Dial`] asked for cannot be had.
    Unreachable {
        /// Whom we wanted.
        target: Target,
    },
}

/// What is to be done with links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkOutput {
    /// Open a link to a relay.
    Dial {
        /// To whom.
        target: Target,
    },
    /// Export the TLS session's secret under [`crate::wire::link::EXPORT_LABEL`], 32 bytes.
    Export {
        /// The link.
        link: LinkId,
        /// The context.
        context: [u8; 32],
    },
    /// The link has something to send: call [`Core::transmit`] when it has room.
    Transmit {
        /// The link.
        link: LinkId,
    },
    /// Close a link, once what [`Core::transmit`] still gave has gone.
    Close {
        /// The link.
        link: LinkId,
    },
}

/// What a stream's program is to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOutput {
    /// [`Core::read`] has bytes.
    Readable {
        /// The stream.
        stream: StreamKey,
    },
    /// [`Core::write`] takes bytes again.
    Room {
        /// The stream.
        stream: StreamKey,
    },
    /// The other end ended the stream, or its circuit is gone, and all of it was read. The key is
    /// not used again.
    Ended {
        /// The stream.
        stream: StreamKey,
        /// Why.
        reason: EndReason,
        /// The address that the exit's policy refuses, if it told.
        refused: Option<IpAddr>,
    },
}

/// A client's or a relay's core, as its links and the programs of its streams see it. A stream's
/// program is what it leads to: at a client the user's, at an exit the destination.
pub trait Core {
    /// Takes what happened to a link.
    fn handle_link(&mut self, now: Time, input: LinkInput<'_>);

    /// When the core wants to be told that this time has come.
    fn next_timeout(&self) -> Option<Time>;

    /// Appends cells for a link until `out` has `limit` bytes or nothing is left; false if nothing
    /// is left. Then [`LinkOutput::Transmit`] will tell when there is something again.
    fn transmit(&mut self, now: Time, link: LinkId, out: &mut Vec<u8>, limit: usize) -> bool;

    /// Little has come by a link of late: gives back the room that bursts took. How many bytes that
    /// was; none, for a core that takes none.
    fn rest(&mut self, _link: LinkId) -> usize {
        0
    }

    /// Takes bytes of a stream's program; returns how many. If not all, [`StreamOutput::Room`]
    /// follows.
    fn write(&mut self, now: Time, stream: StreamKey, bytes: &[u8]) -> usize;

    /// The bytes that wait for a stream's program: two pieces, in order.
    fn read(&self, stream: StreamKey) -> (&[u8], &[u8]);

    /// The program took the first `bytes` of [`Core::read`].
    fn consume(&mut self, now: Time, stream: StreamKey, bytes: usize);
}

impl<N: Node> Core for N {
    fn handle_link(&mut self, now: Time, input: LinkInput<'_>) {
        match input {
            LinkInput::Opened { link, target, start } => self.open(now, link, target, start),
            LinkInput::Bytes { link, bytes } => self.receive(now, link, bytes),
            LinkInput::Exported { link, secret } => self.exported(now, link, secret),
            LinkInput::Closed { link } => self.closed(now, link),
            LinkInput::Sibling { link, first } => {
                self.base_mut().channels.open(link, Channel::sibling(first), None);
            }
            LinkInput::Elsewhere { target, link } => self.found(now, &target, link),
            LinkInput::Unreachable { target } => self.unreachable(&target, Why::Unreached),
        }
        while let Some(id) = self.base_mut().channels.take_deaf() {
            self.fail(now, id, LinkFault::Deaf);
        }
        self.relieve();
    }

    fn next_timeout(&self) -> Option<Time> {
        self.base().timers.first().map(|(time, _)| *time)
    }

    fn transmit(&mut self, now: Time, link: LinkId, out: &mut Vec<u8>, limit: usize) -> bool {
        self.base_mut().transmit(now, link, out, limit)
    }

    fn rest(&mut self, link: LinkId) -> usize {
        self.base_mut().channels.link(link).map_or(0, |link| link.rest())
    }

    fn write(&mut self, now: Time, stream: StreamKey, bytes: &[u8]) -> usize {
        self.base_mut().write(now, stream, bytes)
    }

    fn read(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        self.base().read(stream)
    }

    fn consume(&mut self, now: Time, stream: StreamKey, bytes: usize) {
        self.base_mut().consume(now, stream, bytes);
    }
}

/// Why a circuit is torn down that did not ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A link that it needs cannot be had.
    Unreached,
    /// The link that it needs leads to somebody else.
    WrongIdentity,
    /// Somebody broke the rules on it.
    Fault(CircuitFault),
    /// The memory for cells is full, and its cells waited longest.
    Memory,
}

/// A role: what it adds to what both do.
pub(crate) trait Node {
    /// Its circuits.
    type Circuit: Ending;
    /// What is to be done outside.
    type Output: From<LinkOutput> + From<StreamOutput> + From<Event>;

    /// What it has in common with the other role.
    fn base(&self) -> &Base<Self::Circuit, Self::Output>;

    /// What it has in common with the other role.
    fn base_mut(&mut self) -> &mut Base<Self::Circuit, Self::Output>;

    /// How it speaks on a link that it opened, or that came; `None` if that one may not come.
    fn role(&self, dialled: bool, start: &Start) -> Option<Role>;

    /// A cell that the channel left to circuits.
    ///
    /// # Errors
    /// A violation that ends the link.
    fn take_cell(&mut self, now: Time, link: LinkId, cell: Cell<'_>) -> Result<(), LinkFault>;

    /// A link that a circuit waited for is open.
    fn reached(&mut self, now: Time, circuit: u32, link: LinkId);

    /// A circuit's lane is gone with its link.
    fn lost(&mut self, now: Time, owner: Owner);

    /// A circuit is to be torn down.
    fn give_up(&mut self, circuit: u32, why: Why);

    /// A new link.
    fn open(&mut self, now: Time, id: LinkId, target: Option<Target>, start: Start) {
        let Some(role) = self.role(target.is_some(), &start) else {
            self.base_mut().violated(id, LinkFault::TooManyHalfOpen);
            return self.base_mut().put(LinkOutput::Close { link: id });
        };
        let channel = Channel::new(role, start);
        let deadline = channel.deadline().map(|time| (time.max(now), Timer::Handshake(id)));
        let base = self.base_mut();
        base.timers.extend(deadline);
        base.channels.open(id, channel, target);
    }

    /// Bytes of a link.
    fn receive(&mut self, now: Time, id: LinkId, bytes: &[u8]) {
        let Some(link) = self.base_mut().channels.link(id) else { return };
        link.inbox.extend_from_slice(bytes);
        if !link.waits {
            self.work(now, id);
        }
    }

    /// The secret that a link waited for.
    fn exported(&mut self, now: Time, id: LinkId, secret: [u8; 32]) {
        let base = self.base_mut();
        let Some(link) = base.channels.link(id) else { return };
        link.waits = false;
        match link.channel.exported(&mut *base.rng, secret) {
            Ok(()) => self.work(now, id),
            Err(fault) => self.fail(now, id, LinkFault::Handshake(fault)),
        }
    }

    /// Takes all whole cells that came.
    fn work(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.base_mut().channels.link(id) else { return };
        let mut inbox = std::mem::take(&mut link.inbox);
        let mut cells = Cells::new(&mut inbox, link.channel.width(), link.channel.longest());
        let done = self.take_cells(now, id, &mut cells);
        let taken = cells.taken();
        if let Err(fault) = done {
            self.fail(now, id, fault);
        }
        let Some(link) = self.base_mut().channels.link(id) else { return };
        inbox.drain(..taken);
        link.inbox = inbox;
        self.base_mut().channels.wake(id);
    }

    /// Takes cells until none is whole, or the link must wait.
    ///
    /// # Errors
    /// A violation that ends the link.
    fn take_cells(
        &mut self,
        now: Time,
        id: LinkId,
        cells: &mut Cells<'_>,
    ) -> Result<(), LinkFault> {
        while let Some(cell) = cells.next_cell().map_err(|_| LinkFault::TooLong)? {
            let base = self.base_mut();
            let Some(link) = base.channels.link(id) else { return Ok(()) };
            let is_padding = matches!(cell.command, Command::PADDING | Command::VPADDING);
            base.padding[0] += u64::from(is_padding);
            link.quiet.note(now, is_padding);
            match link.channel.take(&mut *base.rng, &cell).map_err(LinkFault::Handshake)? {
                Taken::Own if cell.command == Command::PADDING_NEGOTIATE => base.watch(id),
                Taken::Own => {}
                Taken::Circuit => self.take_cell(now, id, cell)?,
                Taken::Opened => self.opened(now, id)?,
                Taken::Export(context) => {
                    link.waits = true;
                    base.put(LinkOutput::Export { link: id, context });
                    return Ok(());
                }
            }
            let Some(link) = self.base_mut().channels.link(id) else { return Ok(()) };
            cells.set_width(link.channel.width());
        }
        Ok(())
    }

    /// A link's handshake is done.
    ///
    /// # Errors
    /// It leads to somebody else.
    fn opened(&mut self, now: Time, id: LinkId) -> Result<(), LinkFault> {
        let base = self.base_mut();
        let Some(link) = base.channels.link(id) else { return Ok(()) };
        let (identity, wanted) = (link.channel.identity(), link.wanted.clone());
        let (skew, dialled) = (link.channel.skew, link.channel.is_initiator());
        let is_wanted = |target: &Target| identity.is_some_and(|identity| is(&identity, target));
        if !wanted.as_ref().is_none_or(is_wanted) {
            return Err(LinkFault::WrongIdentity);
        }
        base.channels.opened(id);
        self.settle(now, id);
        let base = self.base_mut();
        base.put(Event::LinkOpen { link: id, identity, skew, dialled });
        if let Some(target) = wanted {
            self.found(now, &target, id);
        }
        Ok(())
    }

    /// There is a link by which circuits come to a relay.
    fn found(&mut self, now: Time, target: &Target, id: LinkId) {
        let waiting = self.base_mut().dialling.take(target);
        waiting.into_iter().for_each(|circuit| self.reached(now, circuit, id));
    }

    /// What an open link has from the first: a time for which it stays without circuits, and what
    /// we wish of padding.
    fn settle(&mut self, now: Time, id: LinkId) {
        let base = self.base_mut();
        let Some(link) = base.channels.link(id) else { return };
        link.quiet.rest = base.rules.rest(link.channel.is_clients(), &mut *base.rng);
        if base.rules.amount != Amount::Full && link.channel.has_padding() {
            link.channel.ask_padding(Padding::Stop);
        }
        let until = now + link.quiet.rest;
        base.rest(id, until);
    }

    /// A link that broke the rules is closed, with what it still has to say.
    fn fail(&mut self, now: Time, id: LinkId, fault: LinkFault) {
        let base = self.base_mut();
        base.violated(id, fault);
        let wanted = base.channels.link(id).and_then(|link| link.wanted.clone());
        if let (Some(target), LinkFault::WrongIdentity) = (wanted, fault) {
            self.unreachable(&target, Why::WrongIdentity);
        }
        self.closed(now, id);
        self.base_mut().put(LinkOutput::Close { link: id });
    }

    /// A link is gone, and what was on it.
    fn closed(&mut self, now: Time, id: LinkId) {
        let base = self.base_mut();
        base.disarm(id);
        let Some(link) = base.channels.link(id) else { return };
        let wanted = link.wanted.take().filter(|_| !link.channel.is_open());
        base.channels.close(id).into_iter().for_each(|owner| self.lost(now, owner));
        if let Some(target) = wanted {
            self.unreachable(&target, Why::Unreached);
        }
    }

    /// A relay cannot be reached: whoever waits for it need not.
    fn unreachable(&mut self, target: &Target, why: Why) {
        let waiting = self.base_mut().dialling.take(target);
        waiting.into_iter().for_each(|circuit| self.give_up(circuit, why));
    }

    /// The time of a timer has come.
    fn timeout(&mut self, now: Time) {
        while let Some(&(time, timer)) = self.base().timers.first() {
            if time > now {
                break;
            }
            let base = self.base_mut();
            base.timers.pop_first();
            match timer {
                Timer::Streams(set) => base.pump(now, set),
                Timer::Padding(id) => base.look(now, id),
                Timer::Rest(id) => {
                    if base.is_spare(now, id) {
                        self.closed(now, id);
                        self.base_mut().put(LinkOutput::Close { link: id });
                    }
                }
                Timer::Handshake(id) => {
                    if base.channels.link(id).is_some_and(|link| !link.channel.is_open()) {
                        self.fail(now, id, LinkFault::HandshakeTimeout);
                    }
                }
            }
        }
    }

    /// Closes the circuits whose cells have waited longest while too many wait (as C tor does).
    fn relieve(&mut self) {
        while self.base().channels.used() > self.base().max_cells {
            let Some(owner) = self.base().channels.oldest() else { return };
            self.base_mut().put(Event::OutOfMemory);
            self.give_up(owner.circuit, Why::Memory);
        }
    }

    /// Closes a circuit on which somebody broke the rules.
    fn break_off(&mut self, index: u32, fault: CircuitFault) {
        let base = self.base_mut();
        let Some(circuit) = base.circuits.get_mut(index) else { return };
        if let Some(link) = circuit.lane().map(|lane| lane.link) {
            base.violated(link, fault);
        }
        self.give_up(index, Why::Fault(fault));
    }
}
