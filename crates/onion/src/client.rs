//! The client: circuits over relays that its owner chose, and streams on them, as one core.
//!
//! [`Client::handle`] takes an [`Input`], then [`Client::poll`] gives [`Output`]s until there is
//! none. What it has in common with a relay is its [`Core`](crate::Core): links, cells to send,
//! bytes of streams, time.
//!
//! Which relays, when a circuit has taken too long, and which stream goes where is for the owner to
//! say.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use crate::channel::{Role, Start};
use crate::channels::{LinkId, Owner};
use crate::circuitmux;
use crate::conflux::{Dealing, Design};
use crate::congestion::Params;
use crate::ending::Ending;
use crate::event::{CircuitFault, Event, LinkFault, Violation};
use crate::handshake::extension::Wish;
use crate::io::{LinkOutput, StreamOutput};
use crate::leg::Leg;
use crate::node::{Node, NodeRole, Why};
use crate::padding::{Amount, Rules};
use crate::stream::StreamKey;
use crate::table::SetId;
use crate::wire::cell::{Body, Cell, Command};
use crate::wire::conflux::SetNonce;
use crate::wire::extend::Target;
use crate::wire::link::Padding;
use crate::wire::message::{Answer, DestroyReason, EndReason, Message, RelayCommand};
use circuit::Circuit;
pub use conflux::NoSet;
pub use streams::NoStream;
pub use watch::CellSeen;

mod build;
mod circuit;
mod conflux;
mod merge;
mod pending;
mod streams;
mod watch;

/// A circuit's number, which the owner gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircuitKey(pub u64);

/// How a client behaves.
#[derive(Clone)]
pub struct Config {
    /// The consensus' parameters.
    pub params: Arc<Params>,
    /// The order among the circuits of a link.
    pub policy: circuitmux::Kind,
    /// Cells that may wait, of all circuits together.
    pub max_cells: usize,
    /// How much padding the user wants.
    pub padding: Amount,
    /// Which design sets of several circuits are of.
    pub design: Design,
    /// How messages are dealt among the circuits of a set; `None`: as the last relay wishes, or the
    /// design has it. Designs that are older than proposal 329 tell it to the last relay.
    pub dealing: Option<Dealing>,
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
        /// What to ask for: with the last hop, congestion control (the relay says `FlowCtrl=2`), or
        /// that with CGO (`Relay=6`).
        wish: Wish,
    },
}

/// What is wanted.
#[derive(Debug)]
pub enum Input {
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
    /// Send DROP cells to the last hop of a complete circuit, which forgets them (tor-spec, "Link
    /// padding" calls this long-range padding). They wait with what waits, and no window counts
    /// them.
    Drop {
        /// The circuit.
        circuit: CircuitKey,
        /// How many.
        cells: u32,
    },
    /// A stream's program has ended it; what was written before goes first.
    Ended {
        /// The stream.
        stream: StreamKey,
    },
    /// The time that [`Core::next_timeout`](crate::Core::next_timeout) named has come.
    Timeout,
}

/// What is to be done outside, and what became of what was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Something is to be done with a link.
    Link(LinkOutput),
    /// A stream's program is to know something.
    Stream(StreamOutput),
    /// A circuit has so many hops now.
    Extended {
        /// The circuit.
        circuit: CircuitKey,
        /// How many.
        hops: usize,
    },
    /// A circuit is complete.
    Built {
        /// Whether the last hop and we use Counter Galois Onion.
        cgo: bool,
        /// The circuit.
        circuit: CircuitKey,
    },
    /// A circuit is a leg of its set now, and may carry data.
    Linked {
        /// The circuit.
        circuit: CircuitKey,
        /// How long its last relay took to answer.
        rtt: Duration,
    },
    /// A leg does not answer any more, and no other of its set does: the set needs another.
    Silent {
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
    /// Tell the user.
    Event(Event),
}

impl From<LinkOutput> for Output {
    fn from(output: LinkOutput) -> Output {
        Output::Link(output)
    }
}

impl From<StreamOutput> for Output {
    fn from(output: StreamOutput) -> Output {
        Output::Stream(output)
    }
}

impl From<Event> for Output {
    fn from(event: Event) -> Output {
        Output::Event(event)
    }
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
    /// Another circuit of its set is gone, with data on it.
    SetEnded,
    /// Its last relay did not answer in time that it is to be a leg of a set.
    Unlinked,
    /// Nothing came back by it any more, at one of its ends, while other legs of its set went on.
    Silent,
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Wanted => out.write_str("it is no longer needed"),
            Cause::Link => {
                out.write_str("the link to its first relay could not be opened, or broke")
            }
            Cause::Destroyed(reason) => write!(out, "a relay closed it: {reason}"),
            Cause::Violation(violation) => write!(out, "a relay broke the protocol: {violation}"),
            Cause::SetEnded => {
                out.write_str("another circuit of the same set broke with data on it")
            }
            Cause::Unlinked => {
                out.write_str("its last relay did not add it to a set of circuits in time")
            }
            Cause::Silent => out.write_str("nothing arrived on it any more"),
            Cause::OutOfMemory => out.write_str("its queued cells reached the memory limit"),
        }
    }
}

/// A client's core.
pub type Client = Node<ClientRole>;

/// What makes a node a client.
pub struct ClientRole {
    params: Arc<Params>,
    design: Design,
    dealing: Option<Dealing>,
    keys: BTreeMap<CircuitKey, u32>,
    /// Sets that outlive their legs, by every circuit that was one.
    names: BTreeMap<CircuitKey, SetId>,
    /// Cells since they were last asked for, if anybody is to ask.
    seen: Option<Vec<CellSeen>>,
}

impl Client {
    /// A client without links; `rng` is all the chance that it takes.
    pub fn new(config: Config, rng: Box<dyn CryptoRng + Send>) -> Client {
        let Config { params, design, dealing, .. } = config;
        let role = ClientRole {
            params,
            design,
            dealing,
            keys: BTreeMap::new(),
            names: BTreeMap::new(),
            seen: None,
        };
        let mut client = Node::with_role(role, config.policy, config.max_cells, rng);
        client.rules.amount = config.padding;
        client
    }

    /// Takes what is wanted.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Build { circuit, hops } => self.build(now, circuit, hops),
            Input::Destroy { circuit } => {
                if let Some(&index) = self.role.keys.get(&circuit) {
                    self.tear_down(index, Cause::Wanted);
                }
            }
            Input::Drop { circuit, cells } => {
                let index = self.role.keys.get(&circuit).copied();
                for index in index.into_iter().cycle().take(cells as usize) {
                    self.say(now, index, Command::RELAY, RelayCommand::DROP, &[]);
                }
            }
            // What a client says of why is nothing (tor-spec, "Closing streams").
            Input::Ended { stream } => self.end(now, stream, EndReason::MISC),
            Input::Timeout => self.timeout(now),
        }
        self.relieve();
    }

    /// So many cells may wait from now on, of all circuits together. If more do, what waits
    /// longest, or most, goes.
    pub fn set_max_cells(&mut self, max_cells: usize) {
        self.max_cells = max_cells;
        self.relieve();
    }

    /// The consensus' parameters, for circuits made from now on.
    pub fn set_params(&mut self, params: Arc<Params>) {
        self.role.params = params;
    }

    /// A client's user wants another amount of padding. Neighbours that were told to send none, or
    /// are to be, are told.
    pub fn set_amount(&mut self, amount: Amount) {
        let before = self.rules.amount;
        self.set_rules(Rules { amount, ..self.rules });
        if (before == Amount::Full) == (amount == Amount::Full) {
            return;
        }
        let wanted = if amount == Amount::Full { Padding::Nothing } else { Padding::Stop };
        let open = self
            .channels
            .iter()
            .filter(|(_, link)| link.channel.is_open() && link.channel.has_padding());
        let open: Vec<LinkId> = open.map(|(id, _)| id).collect();
        for id in open {
            if let Some(link) = self.channels.link(id) {
                link.channel.ask_padding(wanted);
                self.channels.wake(id);
            }
        }
    }

    /// Cells of padding so far: received, sent.
    pub fn padding(&self) -> [u64; 2] {
        self.padding
    }

    /// Open QUIC links, and circuits on them.
    pub fn quic(&self) -> [usize; 2] {
        self.channels.quic()
    }

    /// Circuits that moved from a QUIC link to the one beside it, since the beginning.
    pub fn moved_circuits(&self) -> u64 {
        self.channels.moved_circuits()
    }

    /// The congestion window of a circuit's last hop, in cells.
    pub fn window(&self, circuit: CircuitKey) -> Option<u64> {
        let circuit = self.circuits.get(*self.role.keys.get(&circuit)?)?;
        circuit.leg().map(Leg::window)
    }

    /// Bytes of streams that a circuit has carried so far: received, sent.
    pub fn carried(&self, circuit: CircuitKey) -> [u64; 2] {
        let set = self.streams_of(circuit).and_then(|set| self.sets.get(set.0));
        set.map_or([0; 2], |set| set.streams.carried)
    }

    /// Links to relays, and how many circuits are on each.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, usize)> {
        self.channels.iter().map(|(id, link)| (id, link.circuits()))
    }
}

impl NodeRole for ClientRole {
    type Circuit = Circuit;
    type Output = Output;

    /// Links that came are not a client's to take.
    fn channel_role(_: &Client, dialled: bool, _: &Start) -> Option<Role> {
        dialled.then_some(Role::Client)
    }

    fn take_cell(
        node: &mut Client,
        now: Time,
        link: LinkId,
        cell: Cell<'_>,
    ) -> Result<(), LinkFault> {
        node.take_circuit_cell(now, link, cell)
    }

    fn sent_cell(node: &mut Client, now: Time, owner: Owner) {
        node.note_cell(now, owner.circuit, true);
    }

    fn reached(node: &mut Client, now: Time, circuit: u32, link: LinkId) {
        node.create(now, circuit, link);
    }

    fn lost(node: &mut Client, _: Time, owner: Owner) {
        node.drop_circuit(owner.circuit, Cause::Link);
    }

    fn give_up(node: &mut Client, circuit: u32, why: Why) {
        let cause = match why {
            Why::Unreached => Cause::Link,
            Why::WrongIdentity => Cause::Violation(LinkFault::WrongIdentity.into()),
            Why::Fault(fault) => Cause::Violation(fault.into()),
            Why::Memory => Cause::OutOfMemory,
            Why::Set => Cause::SetEnded,
            Why::Unlinked => Cause::Unlinked,
            Why::Silent => Cause::Silent,
        };
        node.tear_down(circuit, cause);
    }

    fn take_passing_cell(node: &mut Client, now: Time, trunk: u32, _: Command, body: &mut Body) {
        node.inbound(now, trunk, body);
    }

    fn take_set_message(
        node: &mut Client,
        now: Time,
        circuit: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        node.take_turn(now, circuit, message)
    }

    fn fell_silent(node: &mut Client, circuit: u32) {
        if let Some(circuit) = node.circuits.get(circuit).map(|circuit| circuit.key) {
            node.put(Output::Silent { circuit });
        }
    }

    fn set_ended(node: &mut Client, ended: SetId, _: &SetNonce) {
        node.role.names.retain(|_, set| *set != ended);
        node.leave_trunk(ended);
    }
}
