//! A node of MORE on real sockets, for experiments. MORE ([`anabranch_more`]) is an anonymity
//! network in which each packet takes its own path. A node has one thread, a UDP socket, a SOCKS
//! port for local programs, and connections to destinations if it is an exit.
//!
//! * [`files`]: the JSON description of a network, and the files of private keys.

pub mod files;
mod programs;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use anabranch_more::{CELL_PAYLOAD, Config, DropReason, NodeCounters, PAYLOAD, SecretKey};
use anabranch_more::{Datagram, MoreNode, Network, Output};
use anabranch_multipath::{Core as _, Time};
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_os::clock::Clock;
use anabranch_os::poller::Poller;
use anabranch_os::udp::{Datagrams, RecvBatch, SendQueue, UdpOptions, UdpSocket};
use rand_chacha::ChaCha20Rng;

use programs::Programs;

/// Poller token of the file whose readability ends the node.
const STOP: u64 = 0;
/// Poller token of the UDP socket.
const UDP: u64 = 1;
/// Poller token of the socket at which local programs connect.
const LISTENER: u64 = 2;
/// Maximum number of datagrams to receive before the relayed datagrams, which result from them,
/// are sent.
const RECEIVED: usize = 8;
/// Maximum number of datagrams that one system call sends.
const SENT: usize = 16;
/// Time after which the node stops making datagrams, sends those already made, and reads the
/// sockets again. A relay takes less time, because its datagrams are ready to send. A client takes
/// more time for a single datagram, so it makes and sends one datagram at a time.
const MAKING: Duration = Duration::from_micros(200);

/// Settings of a MORE node.
pub struct Settings {
    /// The MORE network: its nodes and parameters.
    pub network: Arc<Network>,
    /// Time at which the network began, in seconds since 1970. All nodes must use the same value.
    pub begins: u64,
    /// Settings of the protocol core.
    pub config: Config,
    /// Private key of this node. The network must list the matching public key.
    pub key: SecretKey,
    /// Address at which local programs connect by SOCKS or HTTP CONNECT; `None` to accept no
    /// programs.
    pub listen: Option<SocketAddr>,
    /// Exit policy: the destinations that clients may reach through this node.
    pub policy: ExitPolicy,
}

/// Event of a MORE node, for log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoreEvent {
    /// The node runs. The fields are the address of its UDP socket, and the address at which
    /// programs connect, if any.
    Listening(SocketAddr, Option<SocketAddr>),
    /// The node has ended. The field has its counters.
    Ended(NodeCounters),
}

/// Runs a MORE node until `stop` is readable.
///
/// # Errors
/// The settings do not fit the network, an address cannot be used, or a system call
/// fails.
pub fn run(
    settings: Settings,
    rng: ChaCha20Rng,
    stop: &UnixStream,
    watch: &mut dyn FnMut(MoreEvent),
) -> io::Result<()> {
    let mut node = NodeLoop::new(settings, rng, stop)?;
    watch(MoreEvent::Listening(node.socket.local_addr()?, node.programs.address()));
    while node.turn()? {}
    watch(MoreEvent::Ended(*node.core.counters()));
    Ok(())
}

/// State of a running MORE node: the protocol core (a state machine without I/O) and its sockets.
struct NodeLoop {
    core: MoreNode,
    clock: Clock,
    /// Age of the MORE network when this node's `clock` was started.
    offset: Duration,
    poller: Poller,
    socket: UdpSocket,
    batch: RecvBatch,
    queue: SendQueue,
    programs: Programs,
    /// True if the protocol core has more outputs than one turn of the event loop may send.
    is_busy: bool,
}

impl NodeLoop {
    fn new(settings: Settings, rng: ChaCha20Rng, stop: &UnixStream) -> io::Result<NodeLoop> {
        let Settings { network, begins, config, key, listen, policy } = settings;
        let clock = Clock::start();
        let offset = since(begins, clock.wall_start())?;
        let me = network.find(&key.public());
        let address = me.map(|at| network.peers()[at].address);
        let core = MoreNode::new(config, network, key, Box::new(rng)).map_err(io::Error::other)?;
        let address = address.expect("the node was found in the network");
        let options = UdpOptions { offload: false, error_queue: false, ..UdpOptions::default() };
        let named = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!(
                    "cannot receive packets at this node's address in the network file, \
                         {address}: {error}"
                ),
            )
        };
        let socket = UdpSocket::bind(address, &options).map_err(named)?;
        let poller = Poller::new(64)?;
        poller.add(stop, STOP)?;
        poller.add(&socket, UDP)?;
        let listener = listen.map(TcpListener::bind).transpose()?;
        if let Some(listener) = &listener {
            listener.set_nonblocking(true)?;
            poller.add(listener, LISTENER)?;
        }
        Ok(NodeLoop {
            core,
            clock,
            offset,
            poller,
            socket,
            batch: RecvBatch::new(RECEIVED),
            queue: SendQueue::new(),
            programs: Programs::new(listener, policy),
            is_busy: false,
        })
    }

    /// Returns the time since the beginning of the MORE network.
    fn now(&self) -> Time {
        self.clock.now() + self.offset
    }

    /// Waits for socket events and services the protocol core. Returns false when the node must
    /// end.
    fn turn(&mut self) -> io::Result<bool> {
        let now = self.now();
        let timeout = match self.is_busy {
            true => Some(Duration::ZERO),
            false => self.core.next_timeout().map(|time| time.since(now)),
        };
        let ready: Vec<_> = self.poller.wait(timeout)?.collect();
        let mut goes_on = true;
        for event in ready {
            let now = self.now();
            match event.token {
                STOP => goes_on = false,
                UDP => self.receive(now),
                LISTENER => self.programs.accept(&self.poller),
                _ => self.programs.take(now, &mut self.core, &self.poller, event),
            }
        }
        self.flush();
        Ok(goes_on)
    }

    fn receive(&mut self, now: Time) {
        // The error belongs to a datagram that was sent earlier. This call has cleared it.
        let Ok(batch) = self.batch.recv(&self.socket) else { return };
        for received in batch {
            for bytes in received.datagrams() {
                self.core.handle(now, Datagram { from: received.from, bytes });
            }
        }
    }

    /// Executes the protocol core's outputs for at most [`MAKING`], and records in `is_busy`
    /// whether more outputs may be pending.
    fn flush(&mut self) {
        let until = self.now() + MAKING;
        let mut packets = Vec::new();
        self.is_busy = loop {
            let now = self.now();
            if packets.len() == SENT || now >= until {
                break true;
            }
            match self.core.poll(now) {
                None => break false,
                Some(Output::Event(event)) => {
                    self.programs.event(&mut self.core, &self.poller, event);
                }
                Some(Output::Send { to, bytes }) => packets.push((to, bytes)),
            }
        };
        // A datagram for which the socket has no room is lost, as on a congested link.
        let mut batch = self.queue.batch(&self.socket);
        for (to, bytes) in &packets {
            batch.push(Datagrams { to: Some(*to), ..Datagrams::one(bytes) });
        }
        batch.send();
    }
}

/// Returns the duration from `begins`, in seconds since 1970, to `now`.
///
/// # Errors
/// `begins` is in the future: the network has not begun.
fn since(begins: u64, now: SystemTime) -> io::Result<Duration> {
    let begins = UNIX_EPOCH + Duration::from_secs(begins);
    now.duration_since(begins).map_err(|_| {
        io::Error::other(
            "the start time in the network file is in the future: check this \
                          machine's clock",
        )
    })
}
