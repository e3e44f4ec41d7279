//! The relay: guard, middle and exit, as one core. It is one shard; a process may have several.
//!
//! [`Relay::handle`] takes an [`Input`], then [`Relay::poll`] gives [`Output`]s until there is none, and [`Relay::next_timeout`] says when to call
//! again. Cells to send are fetched by [`Relay::transmit`] when a link has room, so that the order among circuits is decided
//! as late as can be; bytes of exit streams go in by [`Relay::write`] and out by [`Relay::read`].

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use crate::channel::{Channel, Role, Start, Taken};
use crate::congestion::Params;
use crate::event::{Event, Violation};
use crate::hub::{Hub, LinkId, Popped, is};
use crate::schedule;
use crate::stream::StreamKey;
use crate::table::{Slab, Streams};
use crate::tail::QUEUE_LOW;
use crate::wire::cell::Cells;
use crate::wire::crypto::CurveKeys;
use crate::wire::extend::Target;
use crate::wire::link::Identity;
use crate::wire::message::{Answer, Begin, DestroyReason, EndReason};
use circuit::Circuit;

mod circuit;
mod exit;
mod extend;

/// How a relay behaves.
#[derive(Clone)]
pub struct Config {
    /// Who we are.
    pub identity: Identity,
    /// Our onion keys: the present one first, then those that are still honoured.
    pub onion_keys: Vec<CurveKeys>,
    /// The consensus' parameters.
    pub params: Arc<Params>,
    /// The order among the circuits of a link.
    pub policy: schedule::Kind,
    /// Whether streams are let out.
    pub exit: bool,
    /// Whether BEGIN_DIR is answered.
    pub directory: bool,
    /// Whether circuits are extended to private and loopback addresses: in private networks alone.
    pub allow_private: bool,
    /// Cells that may wait, of all circuits together.
    pub max_cells: usize,
    /// Cells of one circuit that may wait for one link.
    pub max_queue: usize,
    /// Links of one address whose handshake is not done.
    pub max_half_open: usize,
    /// Streams on one circuit.
    pub max_streams: usize,
}

/// What happened outside.
#[derive(Debug)]
pub enum Input<'a> {
    /// A link whose TLS handshake is done: the neighbour's, or one that [`Output::Dial`] asked for.
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
    /// The answer to [`Output::Export`].
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
    /// What [`Output::Dial`] asked for cannot be had.
    Unreachable {
        /// Whom we wanted.
        target: Target,
    },
    /// A stream's destination is reached, or its directory server ready.
    Connected {
        /// The stream.
        stream: StreamKey,
        /// The destination's address, and seconds for which its name holds; `None` for a directory.
        reached: Option<(IpAddr, u32)>,
    },
    /// A stream's destination has ended it, or cannot be reached. What was written before goes first.
    Ended {
        /// The stream.
        stream: StreamKey,
        /// Why.
        reason: EndReason,
    },
    /// The answer to [`Output::Resolve`].
    Resolved {
        /// The question.
        stream: StreamKey,
        /// Answers, each with the seconds for which it holds.
        answers: Vec<(Answer, u32)>,
    },
    /// The time that [`Relay::next_timeout`] named has come.
    Timeout,
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
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
    /// The link has something to send: call [`Relay::transmit`] when it has room.
    Transmit {
        /// The link.
        link: LinkId,
    },
    /// Close a link, once what [`Relay::transmit`] still gave has gone.
    Close {
        /// The link.
        link: LinkId,
    },
    /// Connect a stream to its destination.
    Connect {
        /// The stream.
        stream: StreamKey,
        /// The destination, as the client named it.
        begin: Begin,
    },
    /// A client wants the directory.
    Directory {
        /// The stream.
        stream: StreamKey,
    },
    /// A client asks for a name or, by in-addr.arpa, for an address.
    Resolve {
        /// The question.
        stream: StreamKey,
        /// The name.
        name: String,
    },
    /// [`Relay::read`] has bytes.
    Readable {
        /// The stream.
        stream: StreamKey,
    },
    /// [`Relay::write`] takes bytes again.
    Room {
        /// The stream.
        stream: StreamKey,
    },
    /// The client ended the stream, or its circuit is gone, and all of it was read. The key is not used again.
    Ended {
        /// The stream.
        stream: StreamKey,
        /// Why.
        reason: EndReason,
    },
    /// Tell the user.
    Event(Event),
}

/// Numbers for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Circuits made since the beginning.
    pub circuits_made: u64,
    /// Circuits that live.
    pub circuits: usize,
    /// Streams that live.
    pub streams: usize,
    /// Cells that wait.
    pub cells: usize,
    /// The widest congestion window of circuits that live, in cells.
    pub window: u64,
    /// RELAY cells that came, and were passed on.
    pub relayed: u64,
    /// What neighbours did that no honest one does.
    pub violations: u64,
    /// Circuits closed for want of memory.
    pub out_of_memory: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The link's handshake must be done.
    Handshake(LinkId),
    /// A stream of the circuit that keeps to a rate may send again.
    Streams(u32),
}

/// A relay's core.
pub struct Relay {
    config: Config,
    role: Role,
    dialled: Role,
    rng: Box<dyn CryptoRng + Send>,
    hub: Hub,
    circuits: Slab<Circuit>,
    streams: Streams,
    /// Relays that we are reaching, and who waits for them.
    dialling: Vec<(Target, Vec<u32>)>,
    timers: BTreeSet<(Time, Timer)>,
    outputs: VecDeque<Output>,
    stats: Stats,
}

impl Relay {
    /// A relay without links. `responder` and `initiator` say how it proves itself on links that came and that it opened; `rng` is all
    /// the chance that it takes.
    pub fn new(
        config: Config,
        responder: Role,
        initiator: Role,
        rng: Box<dyn CryptoRng + Send>,
    ) -> Relay {
        Relay {
            hub: Hub::new(config.policy),
            config,
            role: responder,
            dialled: initiator,
            rng,
            circuits: Slab::default(),
            streams: Streams::default(),
            dialling: Vec::new(),
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Takes what happened.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Opened { link, target, start } => self.open(now, link, target, start),
            Input::Bytes { link, bytes } => self.receive(now, link, bytes),
            Input::Exported { link, secret } => self.exported(now, link, secret),
            Input::Closed { link } => self.closed(now, link),
            Input::Unreachable { target } => {
                self.undialled(&target, DestroyReason::CONNECT_FAILED);
            }
            Input::Connected { stream, reached } => self.connected(now, stream, reached),
            Input::Ended { stream, reason } => self.end(now, stream, reason),
            Input::Resolved { stream, answers } => self.resolved(now, stream, &answers),
            Input::Timeout => self.timeout(now),
        }
        self.relieve();
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        let link = || self.hub.next_ready().map(|link| Output::Transmit { link });
        self.outputs.pop_front().or_else(link)
    }

    /// When to call [`Relay::handle`] with [`Input::Timeout`].
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// Appends cells for a link until `out` has `limit` bytes or nothing is left; false if nothing is left. Then
    /// [`Output::Transmit`] will tell when there is something again.
    pub fn transmit(&mut self, now: Time, link: LinkId, out: &mut Vec<u8>, limit: usize) -> bool {
        while out.len() < limit {
            match self.hub.pop(now, link, out) {
                Popped::Nothing => return false,
                Popped::Own => {}
                Popped::Cell { owner, left } if left < QUEUE_LOW && !owner.outward => {
                    self.pump(now, owner.circuit);
                }
                Popped::Cell { .. } => {}
            }
        }
        true
    }

    /// The keys that circuits are made with, from now on.
    pub fn set_onion_keys(&mut self, onion_keys: Vec<CurveKeys>) {
        self.config.onion_keys = onion_keys;
    }

    /// The consensus' parameters, for circuits made from now on.
    pub fn set_params(&mut self, params: Arc<Params>) {
        self.config.params = params;
    }

    /// How we prove ourselves on links from now on: the TLS certificate or the signing key has changed.
    pub fn set_roles(&mut self, responder: Role, initiator: Role) {
        (self.role, self.dialled) = (responder, initiator);
    }

    /// Numbers for people.
    pub fn stats(&self) -> Stats {
        Stats {
            circuits: self.circuits.len(),
            streams: self.streams.len(),
            cells: self.hub.used(),
            window: self.circuits.iter().map(|c| c.tail.leg.window()).max().unwrap_or_default(),
            ..self.stats
        }
    }

    fn open(&mut self, now: Time, id: LinkId, target: Option<Target>, start: Start) {
        let role = if target.is_some() { &self.dialled } else { &self.role };
        let crowded = self.hub.half_open(start.peer) >= self.config.max_half_open;
        if target.is_none() && crowded {
            self.violated(id, Violation::TooManyHalfOpen);
            self.outputs.push_back(Output::Close { link: id });
            return;
        }
        let channel = Channel::new(role.clone(), start);
        self.timers.extend(channel.deadline().map(|time| (time.max(now), Timer::Handshake(id))));
        self.hub.open(id, channel, target);
    }

    fn receive(&mut self, now: Time, id: LinkId, bytes: &[u8]) {
        let Some(link) = self.hub.link(id) else { return };
        link.inbox.extend_from_slice(bytes);
        if !link.waits {
            self.work(now, id);
        }
    }

    fn exported(&mut self, now: Time, id: LinkId, secret: [u8; 32]) {
        let Some(link) = self.hub.link(id) else { return };
        link.waits = false;
        match link.channel.exported(&mut *self.rng, secret) {
            Ok(()) => self.work(now, id),
            Err(fault) => self.fail(now, id, Violation::Link(fault)),
        }
    }

    /// Takes all whole cells that came.
    fn work(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.hub.link(id) else { return };
        let mut inbox = std::mem::take(&mut link.inbox);
        let mut cells = Cells::new(&mut inbox, link.channel.width(), link.channel.longest());
        let done = self.take_cells(now, id, &mut cells);
        let taken = cells.taken();
        if let Err(violation) = done {
            self.fail(now, id, violation);
        }
        let Some(link) = self.hub.link(id) else { return };
        inbox.drain(..taken);
        link.inbox = inbox;
        self.hub.wake(id);
    }

    fn take_cells(
        &mut self,
        now: Time,
        id: LinkId,
        cells: &mut Cells<'_>,
    ) -> Result<(), Violation> {
        while let Some(cell) = cells.next_cell().map_err(|_| Violation::TooLong)? {
            let Some(link) = self.hub.link(id) else { return Ok(()) };
            match link.channel.take(&mut *self.rng, &cell).map_err(Violation::Link)? {
                Taken::Own => {}
                Taken::Circuit => self.take_cell(now, id, cell)?,
                Taken::Opened => self.opened(now, id)?,
                Taken::Export(context) => {
                    link.waits = true;
                    self.outputs.push_back(Output::Export { link: id, context });
                    return Ok(());
                }
            }
            let Some(link) = self.hub.link(id) else { return Ok(()) };
            cells.set_width(link.channel.width());
        }
        Ok(())
    }

    fn opened(&mut self, now: Time, id: LinkId) -> Result<(), Violation> {
        let Some(link) = self.hub.link(id) else { return Ok(()) };
        let identity = link.channel.identity();
        let wanted = link.wanted.clone();
        if let Some(target) = wanted {
            if !identity.is_some_and(|identity| is(&identity, &target)) {
                return Err(Violation::WrongIdentity);
            }
            self.dialled(now, id, &target);
        }
        self.outputs.push_back(Output::Event(Event::LinkOpen { link: id, identity }));
        Ok(())
    }

    /// A link that broke the rules is closed, with what it still has to say.
    fn fail(&mut self, now: Time, id: LinkId, violation: Violation) {
        self.violated(id, violation);
        let wanted = self.hub.link(id).and_then(|link| link.wanted.clone());
        if let (Some(target), Violation::WrongIdentity) = (wanted, violation) {
            self.undialled(&target, DestroyReason::WRONG_IDENTITY);
        }
        self.closed(now, id);
        self.outputs.push_back(Output::Close { link: id });
    }

    fn closed(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.hub.link(id) else { return };
        let wanted = link.wanted.take().filter(|_| !link.channel.is_open());
        for owner in self.hub.close(id) {
            self.lost(now, owner);
        }
        if let Some(target) = wanted {
            self.undialled(&target, DestroyReason::CONNECT_FAILED);
        }
    }

    fn timeout(&mut self, now: Time) {
        while let Some(&(time, timer)) = self.timers.first() {
            if time > now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Streams(circuit) => self.pump(now, circuit),
                Timer::Handshake(id) => {
                    let late = self.hub.link(id).is_some_and(|link| !link.channel.is_open());
                    if late {
                        self.fail(now, id, Violation::HandshakeTimeout);
                    }
                }
            }
        }
    }

    /// Closes the circuits whose cells have waited longest while too many wait (as C tor does).
    fn relieve(&mut self) {
        while self.hub.used() > self.config.max_cells {
            let Some(owner) = self.hub.oldest() else { return };
            self.stats.out_of_memory += 1;
            self.outputs.push_back(Output::Event(Event::OutOfMemory));
            self.tear_down(owner.circuit, DestroyReason::RESOURCES);
        }
    }

    fn violated(&mut self, link: LinkId, violation: Violation) {
        self.stats.violations += 1;
        self.outputs.push_back(Output::Event(Event::Violation { link, violation }));
    }
}
