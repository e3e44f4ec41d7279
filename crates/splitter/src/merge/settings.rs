//! Settings of a far end, and the interface that shows its events and counters.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_comps::Flow;
use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{DecoyBudget, Every, Jitter, PathId, Silence, Time};
use anabranch_os::target::Target;

use crate::far_end::{Inner, KeyFile};
use crate::split::dealing;
use crate::streams::TlsEnd;

/// The settings with which a far end runs.
#[derive(Clone)]
pub struct Settings {
    /// Address at which packets of all clients arrive.
    pub listen: SocketAddr,
    /// Address at which clients' TCP streams arrive; `None` if TCP streams are not accepted.
    pub listen_tcp: Option<SocketAddr>,
    /// Address at which clients' TLS streams arrive, and this end's certificate; `None` if TLS
    /// streams are not accepted.
    pub listen_tls: Option<(SocketAddr, Arc<dyn TlsEnd>)>,
    /// SHA-256 of the certificate in `listen_tls`, in hexadecimal digits, which clients pin;
    /// `None` without TLS.
    pub fingerprint: Option<String>,
    /// The web server that answers streams of unknown peers, if any. Its name is looked up at the
    /// start and at each reload.
    pub web_server: Option<Target>,
    /// Maximum time for which a packet waits for room in a stream before it is dropped.
    pub stream_age: Duration,
    /// Our keys, and the keys of the clients.
    pub keys: KeyFile,
    /// The servers: at least one if there is no interface. Their names are looked up at the start
    /// and at each reload.
    pub servers: Vec<Server>,
    /// Name of the TUN interface to create, which forwards clients' IP packets; `None` for no
    /// interface.
    pub tun: Option<String>,
    /// Scheduler that chooses the path of the answers to each client.
    pub schedule: Spec,
    /// Length of a run (consecutive answers on one path), as a time or a number of packets. After
    /// each run, the scheduler chooses a path again.
    pub every: Every,
    /// Minimum pause in the answers to a client after which the client's scheduler draws new
    /// random path probabilities; `None` for never.
    pub redraw: Option<Silence>,
    /// Delay of each answer of a server, before the answer's path is chosen; `None` for no delay.
    pub jitter: Option<Jitter>,
    /// Budget of the decoys (dummy packets) that each client receives on idle paths; `None` for no
    /// decoys.
    pub decoys: Option<DecoyBudget>,
    /// Seed of the schedules' random choices.
    pub seed: u64,
    /// Allowed lengths of tunnel packets, in bytes of UDP payload. Packets are padded to these
    /// lengths. If empty, any length is allowed.
    pub pad: Vec<usize>,
    /// Time without a datagram after which a flow (one program's datagrams) is closed.
    pub idle: Duration,
    /// Maximum number of open flows (each has the datagrams of one program). At the limit, a new
    /// flow replaces the flow of the same client that has been idle longest.
    pub flows: usize,
}

/// A server that clients reach through the far end (our program in front of the server).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Name that clients request; empty if the server is the only one.
    pub name: String,
    /// Address or name of the server.
    pub to: Target,
}

/// The settings in force, with host names resolved, for display to the user.
#[derive(Clone, Debug)]
pub struct ActiveSettings {
    /// Address at which packets arrive. If the settings name port 0, the kernel has chosen the
    /// port.
    pub listen: SocketAddr,
    /// Address at which TCP streams arrive; `None` if TCP streams are not accepted. If the
    /// settings name port 0, the kernel has chosen the port.
    pub listen_tcp: Option<SocketAddr>,
    /// Address at which TLS streams arrive, and the SHA-256 of our certificate; `None` if TLS
    /// streams are not accepted.
    pub listen_tls: Option<(SocketAddr, String)>,
    /// The web server that answers streams of unknown peers, if there is one.
    pub web_server: Option<Target>,
    /// Our public key.
    pub public: [u8; 32],
    /// The servers' names and addresses.
    pub servers: Vec<(String, SocketAddr)>,
    /// Name of the TUN interface, and our addresses on it; `None` for no interface.
    pub tun: Option<(String, Inner)>,
    /// The clients' names.
    pub clients: Vec<String>,
    /// Scheduler that chooses the paths of answers, in the user's notation.
    pub schedule: String,
    /// Time or number of packets after which the scheduler chooses a path again, in the user's
    /// notation.
    pub every: String,
    /// Minimum pause in the answers to a client after which its scheduler draws new random path
    /// probabilities, in the user's notation; `None` for never.
    pub redraw: Option<String>,
    /// Delay of answers before their paths are chosen, in the user's notation; `None` for no
    /// delay.
    pub jitter: Option<String>,
    /// Budget of decoys (dummy packets), in the user's notation; `None` for no decoys.
    pub decoys: Option<String>,
    /// Seed of the schedules' random choices. Another run of the program with this seed makes the
    /// same choices.
    pub seed: u64,
}

impl ActiveSettings {
    /// Describes in one line for users how and how often paths are chosen, and the delays and
    /// decoys (dummy packets).
    pub fn dealing(&self) -> String {
        let more = [&self.redraw, &self.jitter, &self.decoys].map(Option::as_deref);
        dealing(&self.schedule, &self.every, more)
    }
}

/// An event to show to a person. It contains names of clients, but no payload and no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A client has begun a session.
    Began {
        /// Name of the client.
        client: String,
        /// Source address of the client's handshake.
        from: SocketAddr,
        /// Name of the requested server, or the interface.
        server: String,
    },
    /// A client requested a server that this far end does not have.
    NoServer {
        /// Name of the client.
        client: String,
        /// Name of the server that the client requested.
        server: String,
    },
    /// A client sent a packet that ends its session, or was silent for too long.
    Ended {
        /// Name of the client.
        client: String,
    },
    /// Packets of a client have begun to arrive on a path.
    PathUp {
        /// Name of the client.
        client: String,
        /// The path.
        path: PathId,
        /// Source address of the client's packets on this path.
        from: SocketAddr,
    },
    /// A client's packets no longer arrive on a path. The client's session may continue on other
    /// paths.
    PathDown {
        /// Name of the client.
        client: String,
        /// The path.
        path: PathId,
    },
    /// A server's port is closed. Reported at most once in 10 s.
    ServerRefused {
        /// Address of the server.
        server: SocketAddr,
    },
}

/// All counters of a far end (our program in front of the server), counted since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counters of each client, in the key file's order.
    pub clients: Vec<ClientSnapshot>,
    /// Number of open flows (each has the datagrams of one program, and a socket to a server).
    pub flows: usize,
    /// Number of answered handshakes.
    pub handshakes: u64,
    /// Number of packets that belong to no client, or that arrived twice. The far end answers no
    /// such packet.
    pub strangers: u64,
    /// Number of datagrams that the kernel dropped on arrival because our socket's buffer was
    /// full.
    pub missed: u64,
    /// Number of datagrams to clients that could not be sent.
    pub unsent: u64,
    /// Number of datagrams to clients that were sent before their delay ended, because their queue
    /// was full.
    pub hurried: u64,
    /// Counters of streams; `None` if streams are not accepted.
    pub streams: Option<StreamsSnapshot>,
    /// Number of clients' packets that the interface refused: packets with a source address other
    /// than the client's, and packets that are not IP packets.
    pub refused: u64,
}

/// Counters of all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamsSnapshot {
    /// Number of open streams that belong to known clients.
    pub bound: usize,
    /// Number of open streams that belong to no known client.
    pub strangers: usize,
    /// Number of streams of unknown peers that were passed to the web server.
    pub handed: u64,
    /// Number of packets to clients that were dropped because they waited too long for room in a
    /// stream.
    pub aged: u64,
}

/// Counters of a path that is a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSnapshot {
    /// Number of bytes that wait for room in the stream.
    pub queued: u64,
    /// Number of packets that were dropped because they waited too long for room in the stream.
    pub aged: u64,
}

/// Counters of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSnapshot {
    /// Name of the client.
    pub name: String,
    /// True if the client has a session.
    pub up: bool,
    /// Counters of the client's paths, in the client's own order.
    pub paths: Vec<PathSnapshot>,
    /// Number of the client's packets that count as lost, because they had not arrived when later
    /// packets had waited for `patience`.
    pub lost: u64,
    /// Maximum time for which a datagram from the client waits for earlier datagrams.
    pub patience: Duration,
    /// Decoys (dummy packets) sent to the client, and decoys received from it and dropped. No
    /// path's counters include them.
    pub decoys: [Flow; 2],
}

/// Counters of a client's path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSnapshot {
    /// Source address of the client's packets on this path; `None` if none has arrived in this
    /// session.
    pub from: Option<SocketAddr>,
    /// True if the client's packets arrive on this path.
    pub up: bool,
    /// Counters of the path's stream; `None` if the path is not a stream.
    pub stream: Option<StreamSnapshot>,
    /// Datagrams to the server that arrived on this path.
    pub inward: Flow,
    /// Datagrams from the server that were sent on this path.
    pub outward: Flow,
}

/// Function that reads the settings again. Its argument is the settings in force. Its error is one
/// line that names the mistake and its place.
pub type Reread<'r> = Box<dyn FnMut(&Settings) -> Result<Settings, String> + 'r>;

/// Display of the events and counters of a running far end.
pub trait Screen {
    /// Reports that the far end is ready, so that clients can connect.
    fn listening(&mut self, about: &ActiveSettings);
    /// Reports that the settings in `about` are in force from `now` on.
    fn reloaded(&mut self, now: Time, about: &ActiveSettings);
    /// Reports an event at `now`.
    fn news(&mut self, now: Time, news: &News);
    /// Reports the counters at `now`. Called at every [`Screen::interval`].
    fn snapshot(&mut self, now: Time, snapshot: &Snapshot);
    /// Reports the counters at the end.
    fn finish(&mut self, now: Time, snapshot: &Snapshot);
    /// Reports a fault that does not end the program.
    fn warn(&mut self, text: &str);
    /// Returns the interval at which the counters are reported.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Reason why the far end did not start, or stopped early. Its message has one line.
#[derive(Debug)]
pub enum Failure {
    /// A server's name cannot be resolved.
    Resolve(Target, io::Error),
    /// The clients with these names would have the same address on the interface.
    Alike(String, String),
    /// The interface with this name cannot be created.
    Interface(String, io::Error),
    /// The socket for clients' packets, or for their streams, cannot be opened.
    Listen(SocketAddr, io::Error),
    /// Another system call failed. The fields are the purpose of the call, and the error.
    System(&'static str, io::Error),
}

impl Failure {
    /// Returns whether wrong settings are the cause, rather than an event while the far end runs.
    #[must_use]
    pub fn is_misuse(&self) -> bool {
        !matches!(self, Failure::System(..))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Resolve(to, error) => {
                write!(f, "the server's name '{}' does not resolve: {error}", to.host)
            }
            Failure::Alike(one, other) => write!(
                f,
                "clients '{one}' and '{other}' would have the same address on the interface of \
                 --tun, because addresses are computed from keys: make a new key for one of them \
                 ('anabranch key')"
            ),
            Failure::Interface(name, error) => write!(
                f,
                "cannot make the interface '{name}': {error} (this needs CAP_NET_ADMIN and the \
                 device file /dev/net/tun)"
            ),
            Failure::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Failure::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Failure {}
