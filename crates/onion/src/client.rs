//! The client: circuits over relays that its owner chose, and streams on them, as one core.
//!
//! [`Client::handle`] takes an [`Input`], then [`Client::poll`] gives [`Output`]s until there is none, and [`Client::next_timeout`] says when to
//! call again. Cells to send are fetched by [`Client::transmit`]; bytes of streams go in by [`Client::write`] and out by [`Client::read`].
//!
//! Which relays, when a circuit has taken too long, and which stream goes where is for the owner to say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
use crate::wire::extend::Target;
use crate::wire::message::{Answer, DestroyReason, EndReason};
use circuit::Circuit;
pub use streams::NoStream;

mod build;
mod circuit;
mod streams;

/// A circuit's number, which the owner gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircuitKey(pub u64);

/// How a client behaves.
#[derive(Clone)]
pub struct Config {
    /// The consensus' parameters.
    pub params: Arc<Params>,
    /// The order among the circuits of a link.
    pub policy: schedule::Kind,
    /// Cells that may wait, of all circuits together.
    pub max_cells: usize,
}

/// One relay of a circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Where and who it is.
    pub target: Target,
    /// How keys are agreed on.
    pub key: HopKey,
}

/// How keys are agreed on with a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopKey {
    /// CREATE_FAST: for a first hop whose onion key is not known.
    Fast,
    /// ntor with this onion key.
    Ntor([u8; 32]),
    /// ntor-v3 with this onion key (the relay says `Relay=4`).
    NtorV3 {
        /// The onion key.
        onion_key: [u8; 32],
        /// Whether to ask for congestion control (the relay says `FlowCtrl=2`): with the last hop.
        congestion_control: bool,
    },
}

/// What happened outside, or is wanted.
#[derive(Debug)]
pub enum Input<'a> {
    /// A link that [`Output::Dial`] asked for: its TLS handshake is done.
    Opened {
        /// Its number, never used before.
        link: LinkId,
        /// Whom it leads to.
        target: Target,
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
    /// Build a circuit.
    Build {
        /// Its number, never used before.
        circuit: CircuitKey,
        /// The relays, nearest first.
        hops: Vec<Hop>,
    },
    /// Tear a circuit down.
    Destroy {
        /// The circuit.
        circuit: CircuitKey,
    },
    /// A stream's program has ended it; what was written before goes first.
    Ended {
        /// The stream.
        stream: StreamKey,
    },
    /// The time that [`Client::next_timeout`] named has come.
    Timeout,
}

/// What is to be done outside, and what became of what was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Open a link to a relay.
    Dial {
        /// To whom.
        target: Target,
    },
    /// The link has something to send: call [`Client::transmit`] when it has room.
    Transmit {
        /// The link.
        link: LinkId,
    },
    /// Close a link, once what [`Client::transmit`] still gave has gone.
    Close {
        /// The link.
        link: LinkId,
    },
    /// A circuit has so many hops now.
    Extended {
        /// The circuit.
        circuit: CircuitKey,
        /// How many.
        hops: usize,
    },
    /// A circuit is complete.
    Built {
        /// The circuit.
        circuit: CircuitKey,
    },
    /// A circuit is gone. Its streams end by outputs of their own.
    CircuitClosed {
        /// The circuit.
        circuit: CircuitKey,
        /// Hops that it had.
        hops: usize,
        /// Why.
        cause: Cause,
    },
    /// The stream's destination is reached.
    Connected {
        /// The stream.
        stream: StreamKey,
    },
    /// The answer to a question. The key is not used again.
    Resolved {
        /// The question.
        stream: StreamKey,
        /// Answers, each with the seconds for which it holds.
        answers: Vec<(Answer, u32)>,
    },
    /// [`Client::read`] has bytes.
    Readable {
        /// The stream.
        stream: StreamKey,
    },
    /// [`Client::write`] takes bytes again.
    Room {
        /// The stream.
        stream: StreamKey,
    },
    /// The exit ended the stream, or its circuit is gone, and all of it was read. The key is not used again.
    Ended {
        /// The stream.
        stream: StreamKey,
        /// Why.
        reason: EndReason,
    },
    /// Tell the user.
    Event(Event),
}

/// Why a circuit is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The owner wanted it.
    Wanted,
    /// No link to the first relay could be had, or it broke.
    Link,
    /// A relay tore it down.
    Destroyed(DestroyReason),
    /// A relay broke the rules.
    Violation(Violation),
    /// The memory for cells was full.
    OutOfMemory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Handshake(LinkId),
    Streams(u32),
}

/// A client's core.
pub struct Client {
    config: Config,
    rng: Box<dyn CryptoRng + Send>,
    hub: Hub,
    circuits: Slab<Circuit>,
    keys: BTreeMap<CircuitKey, u32>,
    streams: Streams,
    dialling: Vec<(Target, Vec<u32>)>,
    timers: BTreeSet<(Time, Timer)>,
    outputs: VecDeque<Output>,
}

impl Client {
    /// A client without links; `rng` is all the chance that it takes.
    pub fn new(config: Config, rng: Box<dyn CryptoRng + Send>) -> Client {
        Client {
            hub: Hub::new(config.policy),
            config,
            rng,
            circuits: Slab::default(),
            keys: BTreeMap::new(),
            streams: Streams::default(),
            dialling: Vec::new(),
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes what happened, or what is wanted.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Opened { link, target, start } => self.open(now, link, target, start),
            Input::Bytes { link, bytes } => self.receive(now, link, bytes),
            Input::Closed { link } => self.closed(link),
            Input::Unreachable { target } => self.undialled(&target, Cause::Link),
            Input::Build { circuit, hops } => self.build(now, circuit, hops),
            Input::Destroy { circuit } => {
                if let Some(&index) = self.keys.get(&circuit) {
                    self.tear_down(index, Cause::Wanted);
                }
            }
            Input::Ended { stream } => self.end(now, stream),
            Input::Timeout => self.timeout(now),
        }
        self.relieve();
    }

    /// The next thing to do, or to know.
    pub fn poll(&mut self) -> Option<Output> {
        let link = || self.hub.next_ready().map(|link| Output::Transmit { link });
        self.outputs.pop_front().or_else(link)
    }

    /// When to call [`Client::handle`] with [`Input::Timeout`].
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
                Popped::Cell { owner, left } if left < QUEUE_LOW => self.pump(now, owner.circuit),
                Popped::Cell { .. } => {}
            }
        }
        true
    }

    /// The consensus' parameters, for circuits made from now on.
    pub fn set_params(&mut self, params: Arc<Params>) {
        self.config.params = params;
    }

    /// The congestion window of a circuit's last hop, in cells.
    pub fn window(&self, circuit: CircuitKey) -> Option<u64> {
        let circuit = self.circuits.get(*self.keys.get(&circuit)?)?;
        circuit.tail.as_ref().map(|tail| tail.leg.window())
    }

    /// Links to relays by whom they lead to, for closing those that nobody uses.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, usize)> {
        self.hub.iter().map(|(id, link)| (id, link.circuits()))
    }

    fn open(&mut self, now: Time, id: LinkId, target: Target, start: Start) {
        let channel = Channel::new(Role::Client, start);
        self.timers.extend(channel.deadline().map(|time| (time.max(now), Timer::Handshake(id))));
        self.hub.open(id, channel, Some(target));
    }

    fn receive(&mut self, now: Time, id: LinkId, bytes: &[u8]) {
        let Some(link) = self.hub.link(id) else { return };
        link.inbox.extend_from_slice(bytes);
        let mut inbox = std::mem::take(&mut link.inbox);
        let mut cells = Cells::new(&mut inbox, link.channel.width(), link.channel.longest());
        let done = self.take_cells(now, id, &mut cells);
        let taken = cells.taken();
        if let Err(violation) = done {
            self.fail(id, violation);
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
                // A client never authenticates.
                Taken::Own | Taken::Export(_) => {}
                Taken::Circuit => self.take_cell(now, id, cell)?,
                Taken::Opened => self.opened(now, id)?,
            }
            let Some(link) = self.hub.link(id) else { return Ok(()) };
            cells.set_width(link.channel.width());
        }
        Ok(())
    }

    fn opened(&mut self, now: Time, id: LinkId) -> Result<(), Violation> {
        let Some(link) = self.hub.link(id) else { return Ok(()) };
        let (identity, wanted) = (link.channel.identity(), link.wanted.clone());
        let Some(target) = wanted else { return Ok(()) };
        if !identity.is_some_and(|identity| is(&identity, &target)) {
            return Err(Violation::WrongIdentity);
        }
        self.outputs.push_back(Output::Event(Event::LinkOpen { link: id, identity }));
        self.dialled(now, id, &target);
        Ok(())
    }

    fn fail(&mut self, id: LinkId, violation: Violation) {
        let wanted = self.hub.link(id).and_then(|link| link.wanted.clone());
        self.outputs.push_back(Output::Event(Event::Violation { link: id, violation }));
        if let (Some(target), Violation::WrongIdentity) = (wanted, violation) {
            self.undialled(&target, Cause::Violation(violation));
        }
        self.closed(id);
        self.outputs.push_back(Output::Close { link: id });
    }

    fn closed(&mut self, id: LinkId) {
        let Some(link) = self.hub.link(id) else { return };
        let wanted = link.wanted.take().filter(|_| !link.channel.is_open());
        for owner in self.hub.close(id) {
            self.drop_circuit(owner.circuit, Cause::Link);
        }
        if let Some(target) = wanted {
            self.undialled(&target, Cause::Link);
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
                        self.fail(id, Violation::HandshakeTimeout);
                    }
                }
            }
        }
    }

    fn relieve(&mut self) {
        while self.hub.used() > self.config.max_cells {
            let Some(owner) = self.hub.oldest() else { return };
            self.outputs.push_back(Output::Event(Event::OutOfMemory));
            self.tear_down(owner.circuit, Cause::OutOfMemory);
        }
    }
}
