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

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use crate::base::{Base, Ending};
use crate::channel::{Role, Start};
use crate::channels::{LinkId, Owner};
use crate::circuitmux;
use crate::congestion::Params;
use crate::event::{Event, LinkFault, Violation};
use crate::handshake::extension::Wish;
use crate::leg::Leg;
use crate::node::{LinkOutput, Node, StreamOutput, Why};
use crate::padding::{Amount, PaddingParams, Rules};
use crate::stream::StreamKey;
use crate::wire::cell::{Cell, Command};
use crate::wire::extend::Target;
use crate::wire::message::{Answer, DestroyReason, EndReason, RelayCommand};
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
    pub policy: circuitmux::Kind,
    /// Cells that may wait, of all circuits together.
    pub max_cells: usize,
    /// How much padding the user wants.
    pub padding: Amount,
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
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Wanted => out.write_str("it is needed no more"),
            Cause::Link => out.write_str("the link to its first relay could not be had, or broke"),
            Cause::Destroyed(reason) => write!(out, "a relay tore it down: {reason}"),
            Cause::Violation(violation) => write!(out, "a relay broke the protocol: {violation}"),
            Cause::OutOfMemory => out.write_str("its cells filled the memory that they may have"),
        }
    }
}

/// A client's core.
pub struct Client {
    params: Arc<Params>,
    keys: BTreeMap<CircuitKey, u32>,
    base: Base<Circuit, Output>,
}

impl Client {
    /// A client without links; `rng` is all the chance that it takes.
    pub fn new(config: Config, rng: Box<dyn CryptoRng + Send>) -> Client {
        let mut base = Base::new(config.policy, config.max_cells, rng);
        base.rules.amount = config.padding;
        Client { params: config.params, keys: BTreeMap::new(), base }
    }

    /// Takes what is wanted.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Build { circuit, hops } => self.build(now, circuit, hops),
            Input::Destroy { circuit } => {
                if let Some(&index) = self.keys.get(&circuit) {
                    self.tear_down(index, Cause::Wanted);
                }
            }
            Input::Drop { circuit, cells } => {
                let index = self.keys.get(&circuit).copied();
                for index in index.into_iter().cycle().take(cells as usize) {
                    self.base.say(now, index, Command::RELAY, RelayCommand::DROP, &[]);
                }
            }
            // What a client says of why is nothing (tor-spec, "Closing streams").
            Input::Ended { stream } => self.base.end(now, stream, EndReason::MISC),
            Input::Timeout => self.timeout(now),
        }
        self.relieve();
    }

    /// The next thing to do, or to know.
    pub fn poll(&mut self) -> Option<Output> {
        self.base.poll()
    }

    /// The consensus' parameters, for circuits made from now on.
    pub fn set_params(&mut self, params: Arc<Params>) {
        self.params = params;
    }

    /// What the consensus says of padding, from now on.
    pub fn set_padding(&mut self, params: PaddingParams) {
        self.base.set_rules(Rules { params, ..self.base.rules });
    }

    /// How much padding the user wants, from now on: neighbours are told on links that are open.
    pub fn set_amount(&mut self, amount: Amount) {
        self.base.set_amount(amount);
    }

    /// Cells of padding so far: received, sent.
    pub fn padding(&self) -> [u64; 2] {
        self.base.padding
    }

    /// The congestion window of a circuit's last hop, in cells.
    pub fn window(&self, circuit: CircuitKey) -> Option<u64> {
        let circuit = self.base.circuits.get(*self.keys.get(&circuit)?)?;
        circuit.leg().map(Leg::window)
    }

    /// Bytes of streams that a circuit has carried so far: received, sent.
    pub fn carried(&self, circuit: CircuitKey) -> [u64; 2] {
        let circuit = self.keys.get(&circuit).and_then(|&index| self.base.circuits.get(index));
        let set = circuit.and_then(Ending::set).and_then(|set| self.base.sets.get(set.0));
        set.map_or([0; 2], |set| set.streams.carried)
    }

    /// Links to relays, and how many circuits are on each.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, usize)> {
        self.base.channels.iter().map(|(id, link)| (id, link.circuits()))
    }
}

impl Node for Client {
    type Circuit = Circuit;
    type Output = Output;

    fn base(&self) -> &Base<Circuit, Output> {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base<Circuit, Output> {
        &mut self.base
    }

    /// Links that came are not a client's to take.
    fn role(&self, dialled: bool, _: &Start) -> Option<Role> {
        dialled.then_some(Role::Client)
    }

    fn take_cell(&mut self, now: Time, link: LinkId, cell: Cell<'_>) -> Result<(), LinkFault> {
        self.take_circuit_cell(now, link, cell)
    }

    fn reached(&mut self, now: Time, circuit: u32, link: LinkId) {
        self.create(now, circuit, link);
    }

    fn lost(&mut self, _: Time, owner: Owner) {
        self.drop_circuit(owner.circuit, Cause::Link);
    }

    fn give_up(&mut self, circuit: u32, why: Why) {
        let cause = match why {
            Why::Unreached => Cause::Link,
            Why::WrongIdentity => Cause::Violation(LinkFault::WrongIdentity.into()),
            Why::Fault(fault) => Cause::Violation(fault.into()),
            Why::Memory => Cause::OutOfMemory,
        };
        self.tear_down(circuit, cause);
    }
}
