//! What a far end is told, and what it tells.

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

/// The settings of one run.
#[derive(Clone)]
pub struct Settings {
    /// Where packets of all clients come to.
    pub listen: SocketAddr,
    /// Where clients' streams come to, if any may.
    pub listen_tcp: Option<SocketAddr>,
    /// Where clients' streams in TLS come to, if any may, and this end's certificate.
    pub listen_tls: Option<(SocketAddr, Arc<dyn TlsEnd>)>,
    /// The SHA-256 of that certificate, in hexadecimal digits: what clients pin.
    pub fingerprint: Option<String>,
    /// The web server that answers streams of strangers; its name is looked up once.
    pub behind: Option<Target>,
    /// Time that packets wait for room in a stream, at most.
    pub stream_age: Duration,
    /// Our keys, and those of the clients.
    pub keys: KeyFile,
    /// The servers, at least one where there is no interface; names are looked up once, at the
    /// beginning.
    pub servers: Vec<Server>,
    /// The interface to make, by which clients' IP packets go on.
    pub tun: Option<String>,
    /// Who names the path of the next run of answers.
    pub schedule: Spec,
    /// How long a run is.
    pub every: Every,
    /// The silence of a client's server after which its schedule is drawn anew, if it ever is.
    pub redraw: Option<Silence>,
    /// How long each answer of a server is delayed before the split, if it is.
    pub jitter: Option<Jitter>,
    /// What goes to each client by paths that rest, for show.
    pub decoys: Option<DecoyBudget>,
    /// Source of the schedules' chance.
    pub seed: u64,
    /// Lengths that packets may have, in bytes of UDP payload; empty for any.
    pub pad: Vec<usize>,
    /// A flow without a datagram for so long is closed.
    pub idle: Duration,
    /// Flows at once; one more closes the one of its client that was idle longest.
    pub flows: usize,
}

/// A server behind the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// What clients ask for; empty where they need not.
    pub name: String,
    /// Where it is.
    pub to: Target,
}

/// What a run is about to do.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Where packets come to; the port is the kernel's choice if 0 was asked for.
    pub listen: SocketAddr,
    /// Where streams come to, if any may; the port as for `listen`.
    pub listen_tcp: Option<SocketAddr>,
    /// Where streams in TLS come to, and the SHA-256 of our certificate.
    pub listen_tls: Option<(SocketAddr, String)>,
    /// The web server that answers strangers' streams, if there is one.
    pub behind: Option<Target>,
    /// Our public key.
    pub public: [u8; 32],
    /// The servers' names and addresses.
    pub servers: Vec<(String, SocketAddr)>,
    /// The interface, and our addresses there.
    pub tun: Option<(String, Inner)>,
    /// The clients' names.
    pub clients: Vec<String>,
    /// The schedule as the user would write it.
    pub schedule: String,
    /// The length of a run as the user would write it.
    pub every: String,
    /// The silence after which a client's schedule is drawn anew, as the user would write it, if
    /// there is one.
    pub redraw: Option<String>,
    /// How long answers are delayed before the split, as the user would write it, if they are.
    pub jitter: Option<String>,
    /// The budget of decoys, as the user would write it, if any are sent.
    pub decoys: Option<String>,
    /// The seed that repeats this run's choices.
    pub seed: u64,
}

impl Listening {
    /// Schedule and runs in words.
    pub fn dealing(&self) -> String {
        let more = [&self.redraw, &self.jitter, &self.decoys].map(Option::as_deref);
        dealing(&self.schedule, &self.every, more)
    }
}

/// Something that happened and that a person may want to see; clients by name. No payload, no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A client has begun a session.
    Began {
        /// Which.
        client: String,
        /// Where its handshake came from.
        from: SocketAddr,
        /// The server that it asked for, or the interface.
        server: String,
    },
    /// A client asked for a server that is not here.
    NoServer {
        /// Which.
        client: String,
        /// What it asked for.
        server: String,
    },
    /// A client has said farewell, or was silent for too long.
    Ended {
        /// Which.
        client: String,
    },
    /// A client is heard by a path.
    PathUp {
        /// Which.
        client: String,
        /// By which path.
        path: PathId,
        /// Where that comes from.
        from: SocketAddr,
    },
    /// A client is not heard by a path any more, while it is by others.
    PathDown {
        /// Which.
        client: String,
        /// By which path.
        path: PathId,
    },
    /// A server's port is closed. Told once in a while.
    ServerRefused {
        /// Where it should be.
        server: SocketAddr,
    },
}

/// Everything counted so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// One entry a client, in the key file's order.
    pub clients: Vec<ClientSnapshot>,
    /// Open flows: sockets to servers.
    pub flows: usize,
    /// Handshakes answered.
    pub handshakes: u64,
    /// Packets that were no client's, or came twice; nothing was answered.
    pub strangers: u64,
    /// Datagrams dropped on arrival at our socket because its buffer was full.
    pub missed: u64,
    /// Datagrams to clients that could not be sent.
    pub unsent: u64,
    /// Datagrams to clients that left before their delay ended, because more waited than may.
    pub hurried: u64,
    /// Streams, where they are accepted.
    pub streams: Option<StreamsSnapshot>,
    /// Packets of clients that the interface refused: from an address that is not theirs, or
    /// no IP packets.
    pub refused: u64,
}

/// All streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamsSnapshot {
    /// Open ones of clients.
    pub bound: usize,
    /// Open ones whose sender is not known.
    pub strangers: usize,
    /// Streams of strangers that the web server was given.
    pub handed: u64,
    /// Packets to clients that were dropped because they waited too long for room.
    pub aged: u64,
}

/// The stream that a path is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSnapshot {
    /// Bytes that wait for room.
    pub queued: u64,
    /// Packets that were dropped because they waited too long.
    pub aged: u64,
}

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSnapshot {
    /// Its name.
    pub name: String,
    /// Whether it has a session.
    pub up: bool,
    /// Its paths, in its own order.
    pub paths: Vec<PathSnapshot>,
    /// Its packets that were waited for in vain.
    pub lost: u64,
    /// How long a datagram waits at most for those that were sent before it.
    pub patience: Duration,
    /// Decoys that were sent to it, and those that came from it and were dropped; they are in no
    /// path's counters.
    pub decoys: [Flow; 2],
}

/// One path of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSnapshot {
    /// Where it comes from.
    pub from: Option<SocketAddr>,
    /// Whether it is heard.
    pub up: bool,
    /// The stream that it comes by, if by one.
    pub stream: Option<StreamSnapshot>,
    /// Datagrams to the server that came by it.
    pub inward: Flow,
    /// Datagrams of the server that went by it.
    pub outward: Flow,
}

/// Reads the settings again, given those in force; else says in one line what is wrong and where.
pub type Reread<'r> = Box<dyn FnMut(&Settings) -> Result<Settings, String> + 'r>;

/// Where a run shows what happens.
pub trait Screen {
    /// Clients may come.
    fn listening(&mut self, about: &Listening);
    /// Other settings are in force from `now` on.
    fn reloaded(&mut self, now: Time, about: &Listening);
    /// Something happened at `now`.
    fn news(&mut self, now: Time, news: &News);
    /// The counters at `now`; comes every [`Screen::interval`].
    fn snapshot(&mut self, now: Time, snapshot: &Snapshot);
    /// The counters at the end.
    fn finish(&mut self, now: Time, snapshot: &Snapshot);
    /// Something is wrong that does not end the run.
    fn warn(&mut self, text: &str);
    /// How often the counters are wanted.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Why a run did not begin, or ended before it was told to. One line each.
#[derive(Debug)]
pub enum Failure {
    /// A server's name does not resolve.
    Resolve(Target, io::Error),
    /// Two clients would have one address behind the interface.
    Alike(String, String),
    /// The interface of this name cannot be made.
    Interface(String, io::Error),
    /// The socket for clients' packets, or for their streams, cannot be opened.
    Listen(SocketAddr, io::Error),
    /// The system refused something else: (what was tried, its answer).
    System(&'static str, io::Error),
}

impl Failure {
    /// Whether what the user asked for is to blame, not the course of events.
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
                "the keys of '{one}' and '{other}' give the same address on the interface of \
                 --tun, which happens once in millions: make a new key for one of them"
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
