//! The client as a core (a state machine without sockets or clock). It builds circuits over relays
//! that its caller chose, and opens streams on them.
//!
//! [`Client`] is a [`Core`](anabranch_multipath::Core) that takes [`Input`]s and returns
//! [`Output`]s. The trait [`LinkCore`](crate::LinkCore) has the functions that clients and relays
//! share, for links, queued cells and bytes of streams.
//!
//! The caller chooses the relays, the circuit of each stream, and the time after which a circuit
//! is abandoned.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::CryptoRng;

use crate::channel::{Role, Start};
use crate::channels::{LinkCircuit, LinkId, Owner};
use crate::circuitmux;
use crate::conflux::{Design, LegScheduler};
use crate::congestion::Params;
use crate::ending::Ending;
use crate::event::{CircuitFault, Event, LinkFault, Violation};
use crate::handshake::extension::HopRequest;
use crate::io::{LinkOutput, StreamOutput};
use crate::leg::Leg;
use crate::node::{CloseCause, Node, NodeRole};
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
mod lossy;
mod merge;
mod pending;
mod streams;
mod watch;

/// A circuit's identifier, which the caller assigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircuitKey(pub u64);

/// Configuration of a client.
#[derive(Clone)]
pub struct Config {
    /// Consensus parameters.
    pub params: Arc<Params>,
    /// Scheduler that orders the circuits of a link.
    pub policy: circuitmux::Kind,
    /// Maximum number of queued cells of all circuits together.
    pub max_cells: usize,
    /// Amount of padding that the user wants.
    pub padding: Amount,
    /// Traffic-splitting design of the sets that combine several circuits.
    pub design: Design,
    /// Scheduler that distributes messages among the circuits of a set. Except in proposal 329,
    /// the client's LINK message requests the same scheduler from the last relay. If `None`, the
    /// design determines the scheduler. If the design has no scheduler, the last relay's request
    /// determines it.
    pub dealing: Option<LegScheduler>,
}

/// A relay on a circuit's path, and the handshake with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The relay's addresses and identities.
    pub target: Target,
    /// Key exchange with the relay.
    pub key: HopKey,
}

/// Key exchange with a relay: the handshake and the relay's onion key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopKey {
    /// CREATE_FAST, for a first hop with an unknown onion key.
    Fast,
    /// The ntor handshake with this onion key.
    Ntor([u8; 32]),
    /// The ntor-v3 handshake with this onion key. Relays that support it advertise `Relay=4`.
    NtorV3 {
        /// The onion key.
        onion_key: [u8; 32],
        /// Features to request from the relay. Congestion control (advertised as `FlowCtrl=2`),
        /// alone or with CGO (`Relay=6`), may be requested only from the last hop.
        wish: HopRequest,
    },
}

/// A command to the client.
#[derive(Debug)]
pub enum Input {
    /// Build a circuit.
    Build {
        /// The circuit's identifier, never used before.
        circuit: CircuitKey,
        /// The relays, nearest first.
        hops: Vec<Hop>,
    },
    /// Close a circuit.
    Destroy {
        /// The circuit to close.
        circuit: CircuitKey,
    },
    /// Send DROP cells to the last hop of a complete circuit. The hop ignores them (tor-spec,
    /// "Link padding" calls this long-range padding). DROP cells are queued with other cells, and
    /// flow-control windows do not count them.
    Drop {
        /// The circuit that carries the DROP cells.
        circuit: CircuitKey,
        /// Number of DROP cells to send.
        cells: u32,
    },
    /// The program that uses a stream has closed it. Data that the program wrote before is sent
    /// first.
    Ended {
        /// The stream that the program has closed.
        stream: StreamKey,
    },
}

/// An action that the caller must perform, or the outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// An action on a link.
    Link(LinkOutput),
    /// A notification for the program that uses a stream.
    Stream(StreamOutput),
    /// A circuit has been extended by one hop.
    Extended {
        /// The extended circuit.
        circuit: CircuitKey,
        /// Number of hops that the circuit has now.
        hops: usize,
    },
    /// A circuit is complete: all its hops are built.
    Built {
        /// True if the last hop and this client use Counter Galois Onion.
        cgo: bool,
        /// The complete circuit.
        circuit: CircuitKey,
    },
    /// A circuit is now a leg of its set, and may carry data.
    Linked {
        /// The circuit that became a leg.
        circuit: CircuitKey,
        /// Round-trip time to the circuit's last relay: from the link request to its answer.
        rtt: Duration,
    },
    /// All legs of the circuit set of `circuit` have stopped answering. The set needs a new leg.
    Silent {
        /// The circuit.
        circuit: CircuitKey,
    },
    /// A circuit is closed. For each of its streams, a separate output reports that the stream has
    /// ended.
    CircuitClosed {
        /// The closed circuit.
        circuit: CircuitKey,
        /// Number of hops that the circuit had.
        hops: usize,
        /// Cause of the closing.
        cause: Cause,
    },
    /// The stream is connected to its destination.
    Connected {
        /// The connected stream.
        stream: StreamKey,
    },
    /// Answer to a name lookup. The lookup's key, `stream`, is not used again.
    Resolved {
        /// The lookup that was answered.
        stream: StreamKey,
        /// Answers, each with its lifetime in seconds.
        answers: Vec<(Answer, u32)>,
    },
    /// An event to report to the user.
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

/// Cause of a circuit's closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The client's caller destroyed the circuit.
    Wanted,
    /// The link to the first relay could not be opened, or broke.
    Link,
    /// A relay closed the circuit for this reason.
    Destroyed(DestroyReason),
    /// A relay violated the protocol.
    Violation(Violation),
    /// The memory for queued cells was full.
    OutOfMemory,
    /// The circuit's set ended because another leg closed with unacknowledged data.
    SetEnded,
    /// The circuit's last relay did not accept it as a leg of a set in time.
    Unlinked,
    /// The other end stopped answering on the circuit, while other legs of its set continued.
    Silent,
    /// The next relay of the circuit refused lossy cells (sent in datagrams).
    NoLossyCells,
    /// No link to the first relay carries lossy cells (sent in datagrams).
    NoLossyLink,
    /// The circuit cannot send further lossy cells (sent in datagrams), because no unused counter
    /// is left for them.
    Exhausted,
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Wanted => out.write_str("the circuit is no longer needed"),
            Cause::Link => {
                out.write_str("the link to the circuit's first relay could not be opened, or broke")
            }
            Cause::Destroyed(reason) => write!(out, "a relay closed the circuit: {reason}"),
            Cause::Violation(violation) => write!(out, "a relay broke the protocol: {violation}"),
            Cause::SetEnded => out.write_str(
                "another circuit that carried parts of the same streams broke, so these streams \
                 are lost",
            ),
            Cause::Unlinked => out.write_str(
                "the last relay did not connect this circuit to the client's other circuits in time",
            ),
            Cause::Silent => out.write_str(
                "nothing arrived on the circuit any more, although other circuits for the same \
                 streams continued",
            ),
            Cause::OutOfMemory => {
                out.write_str("the cells queued for the circuit reached the memory limit")
            }
            Cause::NoLossyCells => out.write_str(
                "the circuit's next relay does not support lossy cells (cells in datagrams, which \
                 may be lost)",
            ),
            Cause::NoLossyLink => out.write_str(
                "no QUIC link with datagrams to the circuit's first relay could be opened",
            ),
            Cause::Exhausted => out.write_str("the circuit has used all its cell numbers"),
        }
    }
}

/// A client as a protocol state machine without I/O.
pub type Client = Node<ClientRole>;

/// State of a node in the role of a client.
pub struct ClientRole {
    params: Arc<Params>,
    design: Design,
    dealing: Option<LegScheduler>,
    keys: BTreeMap<CircuitKey, u32>,
    /// The set of each circuit that is or was a leg, for sets that may continue after all their
    /// legs have closed.
    names: BTreeMap<CircuitKey, SetId>,
    /// Cells recorded since the last call of `take_seen`; `None` if cells are not recorded.
    seen: Option<Vec<CellSeen>>,
}

impl Client {
    /// Returns a client without links; `rng` is its only source of randomness.
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

    /// Sets the maximum number of queued cells of all circuits together. If more are queued,
    /// copies of sent cells that are kept in case a QUIC link breaks are dropped first. Then
    /// circuits are closed, beginning with the one whose cells have waited longest. If the bytes
    /// in sets, or in streams over lossy cells (sent in datagrams), use more memory than the
    /// queued cells, the set with the most such bytes is closed instead.
    pub fn set_max_cells(&mut self, max_cells: usize) {
        self.memory.set_limit(max_cells);
        self.relieve();
    }

    /// Sets the consensus parameters for circuits created from now on.
    pub fn set_params(&mut self, params: Arc<Params>) {
        self.role.params = params;
    }

    /// Sets the amount of padding that the user wants. If this switches padding on or off, sends
    /// PADDING_NEGOTIATE on open channels.
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

    /// Returns the number of PADDING cells received and the number sent so far.
    pub fn padding(&self) -> [u64; 2] {
        self.padding
    }

    /// Returns the number of open QUIC links, and the number of circuits on them.
    pub fn quic(&self) -> [usize; 2] {
        self.channels.quic()
    }

    /// Returns the number of circuits that have moved from a QUIC link to the TLS link alongside
    /// it, since the start.
    pub fn moved_circuits(&self) -> u64 {
        self.channels.moved_circuits()
    }

    /// Returns true if streams of `circuit` use lossy cells (sent in datagrams).
    pub fn is_lossy(&self, circuit: CircuitKey) -> bool {
        let circuit = self.role.keys.get(&circuit).and_then(|&index| self.circuits.get(index));
        circuit.is_some_and(Ending::is_lossy)
    }

    /// Returns the congestion window of a circuit in cells, which limits the cells sent to the
    /// last hop. Returns `None` if the circuit is unknown or not complete.
    pub fn window(&self, circuit: CircuitKey) -> Option<u64> {
        let circuit = self.circuits.get(*self.role.keys.get(&circuit)?)?;
        circuit.leg().map(Leg::window)
    }

    /// Returns the number of stream bytes that `circuit` has received, and the number that it has
    /// sent.
    pub fn transferred(&self, circuit: CircuitKey) -> [u64; 2] {
        let set = self.streams_of(circuit).and_then(|set| self.sets.get(set));
        set.map_or([0; 2], |set| set.streams.transferred)
    }

    /// Returns the links to relays, with the number of circuits on each.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, usize)> {
        self.channels.iter().map(|(id, link)| (id, link.circuits()))
    }
}

impl NodeRole for ClientRole {
    type Circuit = Circuit;
    type Input = Input;
    type Output = Output;

    /// Executes a command.
    fn handle(node: &mut Client, now: Time, input: Input) {
        match input {
            Input::Build { circuit, hops } => node.build(now, circuit, hops),
            Input::Destroy { circuit } => {
                if let Some(&index) = node.role.keys.get(&circuit) {
                    node.tear_down(index, Cause::Wanted);
                }
            }
            Input::Drop { circuit, cells } => {
                let index = node.role.keys.get(&circuit).copied();
                for index in index.into_iter().cycle().take(cells as usize) {
                    node.send_relay_cell(now, index, Command::RELAY, RelayCommand::DROP, &[]);
                }
            }
            // A client gives no reason (tor-spec, "Closing streams").
            Input::Ended { stream } => node.end(now, stream, EndReason::MISC),
        }
    }

    /// Returns the client's role on a link that it opened. Returns `None` for a link that another
    /// node opened, because clients accept no links.
    fn channel_role(_: &Client, dialled: bool, _: &Start) -> Option<Role> {
        dialled.then_some(Role::Client)
    }

    fn take_relay_cell(node: &mut Client, now: Time, link_circuit: LinkCircuit, body: &mut Body) {
        node.take_relay_cell(now, link_circuit, body);
    }

    fn take_cell(
        node: &mut Client,
        now: Time,
        link: LinkId,
        cell: Cell<'_>,
    ) -> Result<(), LinkFault> {
        node.take_circuit_cell(now, link, cell)
    }

    fn take_lossy(node: &mut Client, now: Time, owner: Owner, cell: (u32, &mut Body)) {
        node.take_lossy_cell(now, owner, cell);
    }

    fn lossy_connected(node: &mut Client, stream: StreamKey) {
        node.put(Output::Connected { stream });
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

    fn close_circuit(node: &mut Client, circuit: u32, why: CloseCause) {
        let cause = match why {
            CloseCause::Unreached => Cause::Link,
            CloseCause::WrongIdentity => Cause::Violation(LinkFault::WrongIdentity.into()),
            CloseCause::Fault(fault) => Cause::Violation(fault.into()),
            CloseCause::Memory => Cause::OutOfMemory,
            CloseCause::Set => Cause::SetEnded,
            CloseCause::Unlinked => Cause::Unlinked,
            CloseCause::Silent => Cause::Silent,
            CloseCause::NoLossyLink => Cause::NoLossyLink,
            CloseCause::Exhausted => Cause::Exhausted,
        };
        node.tear_down(circuit, cause);
    }

    fn take_trunk_cell(node: &mut Client, now: Time, trunk: u32, _: Command, body: &mut Body) {
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
