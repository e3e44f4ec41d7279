//! A node of MORE ([`anabranch_more`]) on real sockets, for experiments: one thread, a UDP socket,
//! a SOCKS port for local programs, and connections to destinations if the node is an exit.
//!
//! * [`files`]: the document of a network, and the files of keys.

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

const STOP: u64 = 0;
const UDP: u64 = 1;
const LISTENER: u64 = 2;
/// Number of datagrams that are received before what they cause is sent.
const RECEIVED: usize = 4;
/// Number of datagrams sent before the sockets are read again. A client takes 0.5 ms for each.
const SENT: usize = 4;

/// Settings of a node.
pub struct Settings {
    /// The network.
    pub network: Arc<Network>,
    /// Beginning of the network, in seconds since 1970. All nodes must have the same.
    pub begins: u64,
    /// Settings of the core.
    pub config: Config,
    /// Private key of this node, which the network lists.
    pub key: SecretKey,
    /// Address at which programs connect by SOCKS or HTTP CONNECT; `None` for none.
    pub listen: Option<SocketAddr>,
    /// Destinations that this node may connect for other nodes.
    pub policy: ExitPolicy,
}

/// Event of a node, for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoreEvent {
    /// The node runs: the address of its UDP socket, and the one at which programs connect.
    Listening(SocketAddr, Option<SocketAddr>),
    /// The node has ended, with these counters.
    Ended(NodeCounters),
}

/// Runs a node until `stop` is readable.
///
/// # Errors
/// The settings do not fit the network, an address cannot be used, or a system call fails.
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

/// State of a running node: the core and its sockets.
struct NodeLoop {
    core: MoreNode,
    clock: Clock,
    /// Time from the beginning of the network to the start of `clock`.
    offset: Duration,
    poller: Poller,
    socket: UdpSocket,
    batch: RecvBatch,
    queue: SendQueue,
    programs: Programs,
    /// True if the core has more to send than one turn allows.
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
        let address = address.expect("a node of the network was found in it");
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

    /// Returns the time since the beginning of the network.
    fn now(&self) -> Time {
        self.clock.now() + self.offset
    }

    /// Waits for events and services the core. Returns false when the run is to end.
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
        // An error belongs to a datagram sent earlier, and is cleared by the call.
        let Ok(batch) = self.batch.recv(&self.socket) else { return };
        for received in batch {
            for bytes in received.datagrams() {
                self.core.handle(now, Datagram { from: received.from, bytes });
            }
        }
    }

    /// Does what the core wants, and notes whether it wants more.
    fn flush(&mut self) {
        let mut sent = 0;
        while sent < SENT {
            let now = self.now();
            match self.core.poll(now) {
                None => break,
                Some(Output::Event(event)) => {
                    self.programs.event(&mut self.core, &self.poller, event);
                }
                Some(Output::Send { to, bytes }) => {
                    // A datagram for which the socket has no room is lost, as on a link.
                    let mut batch = self.queue.batch(&self.socket);
                    batch.push(Datagrams { to: Some(to), ..Datagrams::one(&bytes) });
                    batch.send();
                    sent += 1;
                }
            }
        }
        self.is_busy = sent == SENT;
    }
}

/// Returns the time from `begins`, in seconds since 1970, to `now`.
///
/// # Errors
/// The network has not begun.
fn since(begins: u64, now: SystemTime) -> io::Result<Duration> {
    let begins = UNIX_EPOCH + Duration::from_secs(begins);
    now.duration_since(begins).map_err(|_| {
        io::Error::other("the network begins in the future: check this machine's clock")
    })
}
