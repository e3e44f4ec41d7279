//! Settings of a splitter, and the interface that shows its events and counters.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch_capture::PcapLimits;
use anabranch_comps::{Config, Event, Snapshot};
use anabranch_multipath::{DecoyBudget, Time};
use anabranch_os::target::Target;

use super::egress_table::EgressTable;
use crate::far_end::FarEnd;
use crate::paths::{self, Egress, PathError, PathSpec};
use crate::steer::{Plan, Request, SteerError};
use crate::streams::TlsEnd;

/// The place at which clients' datagrams arrive, and the destination of these datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// A local port. All its clients have the same server.
    Port {
        /// Address at which clients' datagrams arrive.
        listen: SocketAddr,
        /// The server. Its name is resolved for each session.
        to: Target,
    },
    /// A TUN interface. Each packet's destination address is the address of its server.
    Tun(Request),
    /// A TUN interface whose packets all go to a far end (our program in front of the servers).
    Packets {
        /// The requested interface. Its addresses are in `request.inner`.
        request: Request,
        /// Address or name of the far end.
        to: Target,
    },
}

impl Entrance {
    /// Returns the server of all clients; `None` if each packet names its server.
    pub fn to(&self) -> Option<&Target> {
        match self {
            Entrance::Port { to, .. } | Entrance::Packets { to, .. } => Some(to),
            Entrance::Tun(_) => None,
        }
    }
}

/// The settings with which a splitter runs: the place at which clients' datagrams arrive, the
/// paths on which they leave, and others.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The place at which clients' datagrams arrive: a local port or an interface.
    pub entrance: Entrance,
    /// The paths, in the same order as the port counts in `core.ports`.
    pub specs: Vec<PathSpec>,
    /// Settings of the protocol core, such as the scheduler.
    pub core: Config,
    /// The keys and options for the far end (our program in front of the server) at the address in
    /// `entrance`; `None` if the server is not a far end.
    pub far_end: Option<FarEnd>,
    /// Address of the far end for paths that are streams; `None` for the address in `entrance`.
    pub to_tcp: Option<Target>,
    /// TLS settings for paths over TLS; `None` if such paths cannot be used.
    pub tls: Option<Arc<dyn TlsEnd>>,
    /// Maximum time for which a packet waits for room in a stream before it is dropped.
    pub stream_age: Duration,
    /// Mark of our own packets (`SO_MARK`), which routing rules can match; `None` if the user set
    /// none.
    pub fwmark: Option<u32>,
    /// Whether two paths may have the same interface and source address.
    pub same_egress: bool,
    /// The trace file to write (Parquet); `None` for no trace.
    pub trace: Option<PathBuf>,
    /// The directory in which a pcapng file for each path is written; `None` for no pcapng files.
    pub pcap: Option<PathBuf>,
    /// Limits of each path's pcapng files: maximum size of a file, and maximum number of files.
    pub pcap_limits: PcapLimits,
}

impl Settings {
    /// Returns the settings with `server` as the server of all clients. With an interface nothing
    /// changes, because its clients name their servers.
    #[must_use]
    pub fn towards(mut self, server: Target) -> Settings {
        if let Entrance::Port { to, .. } = &mut self.entrance {
            *to = server;
        }
        self
    }

    /// Returns the budget of decoys (dummy packets), which only a far end recognises and drops;
    /// `None` if no decoys are sent. Without a far end no decoys are sent.
    pub(super) fn decoys(&self) -> Option<DecoyBudget> {
        self.far_end.as_ref()?.decoys
    }
}

/// Returns a seed from the system's entropy, for a program that makes new random choices. It is
/// below 2^53, so that JSON and TOML represent it exactly.
pub fn fresh_seed() -> u64 {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    got.expect("getrandom gives up to 256 bytes without interruption (getrandom(2))");
    u64::from_ne_bytes(bytes) >> 11
}

/// Function that reads the settings again. Its argument is the settings in force. Its error is one
/// line that names the mistake and its place.
pub type Reread<'r> = Box<dyn FnMut(&Settings) -> Result<Settings, String> + 'r>;

/// Display of the events and counters of a running splitter.
pub trait Screen {
    /// Reports that the splitter is ready for clients.
    fn listening(&mut self, about: &ActiveSettings);
    /// Reports `event`, which happened at `now`.
    fn event(&mut self, now: Time, event: &Event);
    /// Reports the counters at `now`. Called at every [`Screen::interval`].
    fn snapshot(&mut self, now: Time, snapshot: &Snapshot);
    /// Reports the counters at the end, after the last event.
    fn finish(&mut self, now: Time, snapshot: &Snapshot);
    /// Reports that the settings in `about` are in force from `now` on. Paths may be new, missing,
    /// or in another order.
    fn reloaded(&mut self, now: Time, about: &ActiveSettings);
    /// Reports a change of the far end's state. Called only if there is a far end.
    fn far_end(&mut self, now: Time, news: &FarEndNews);
    /// Reports a fault that does not end the program.
    fn warn(&mut self, text: &str);
    /// Returns the interval at which the counters are reported.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// A change of the state of a far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarEndNews {
    /// The far end has answered the handshake.
    Up,
    /// The far end has not answered: its key or ours is wrong, it does not run, or packets do not
    /// reach it.
    Unanswered {
        /// Time since the program started, or since the far end was lost.
        waited: Duration,
    },
    /// Packets of the far end no longer arrive on any path.
    Lost,
    /// The far end has ended the session.
    Left,
}

/// The settings for display, with resolved names and paths. They are the settings in force or,
/// before the splitter starts, the settings with which it will start.
#[derive(Clone, Debug)]
pub struct ActiveSettings {
    /// Address at which clients' datagrams arrive; `None` with an interface. If the settings name
    /// port 0, the kernel chooses the port when the socket is opened.
    pub listen: Option<SocketAddr>,
    /// Present address of the server; `None` if each packet names its server.
    pub server: Option<SocketAddr>,
    /// The interface, with its routes and rules; `None` without an interface.
    pub tun: Option<Plan>,
    /// The egress (interface, source address and route) of each path.
    pub egresses: Vec<Egress>,
    /// The IPv6 egresses of the paths whose entry in `egresses` is for IPv4. Empty unless each
    /// packet names its server.
    pub others: Vec<Egress>,
    /// Seed of the random choices. Another run of the program with this seed makes the same
    /// choices.
    pub seed: u64,
    /// Scheduler that chooses the paths, in the user's notation.
    pub schedule: String,
    /// Time or number of packets after which the scheduler chooses a path again, in the user's
    /// notation.
    pub every: String,
    /// Minimum pause in a session's traffic after which its scheduler draws new random path
    /// probabilities, in the user's notation; `None` for never.
    pub redraw: Option<String>,
    /// Delay of clients' datagrams before their paths are chosen, in the user's notation; `None`
    /// for no delay.
    pub jitter: Option<String>,
    /// Budget of decoys (dummy packets), in the user's notation; `None` for no decoys.
    pub decoys: Option<String>,
    /// Whether the server is a far end (our program in front of the real server).
    pub far_end: bool,
    /// Maximum UDP payload in bytes of a client's datagram that fits on all paths; `None` if
    /// unknown.
    pub udp_payload: Option<u32>,
    /// MTU for a WireGuard interface whose packets are split; `None` if unknown.
    pub tunnel_mtu: Option<u32>,
}

impl ActiveSettings {
    /// Describes in one line for users how and how often paths are chosen, and the delays and
    /// decoys (dummy packets).
    pub fn dealing(&self) -> String {
        let more = [&self.redraw, &self.jitter, &self.decoys].map(Option::as_deref);
        dealing(&self.schedule, &self.every, more)
    }

    /// Resolves the server's name, and finds the egress of every path. Opens no UDP socket, and
    /// sends nothing on a path.
    ///
    /// # Errors
    /// The name cannot be resolved, or a path does not lead to the server.
    pub fn look(settings: &Settings) -> Result<ActiveSettings, Failure> {
        match &settings.entrance {
            Entrance::Port { listen, to } => {
                let (server, egresses) = towards(settings, to)?;
                let ends = (Some(*listen), server);
                Ok(ActiveSettings::about(settings, ends, None, (egresses, Vec::new())))
            }
            Entrance::Packets { request, to } => {
                let (server, egresses) = towards(settings, to)?;
                let egress_table = (egresses, Vec::new());
                let about = ActiveSettings::about(settings, (None, server), None, egress_table);
                // A packet is the payload of a datagram. IPv6 requires 1,280 bytes (RFC 8200,
                // section 5).
                let mtu = about.udp_payload.unwrap_or(1280).clamp(1280, 65_535);
                let plan = Plan::look(request.clone(), Vec::new(), mtu, settings.fwmark)?;
                Ok(ActiveSettings { tun: Some(plan), ..about })
            }
            Entrance::Tun(request) => ActiveSettings::look_around(settings, request),
        }
    }

    /// Returns the settings for display, like [`ActiveSettings::look`], for the mode in which
    /// clients' packets arrive at an interface. Each packet has its own destination. So a path's
    /// interface and route are looked up without a destination.
    fn look_around(settings: &Settings, request: &Request) -> Result<ActiveSettings, Failure> {
        let egress_table = EgressTable::anywhere(settings)?;
        let all = egress_table.all();
        let mtu = all.iter().filter_map(|egress| egress.mtu).min().unwrap_or(1280).min(65_535);
        let plan = Plan::look(request.clone(), egress_table.exits(), mtu, settings.fwmark)?;
        let (egresses, others) = egress_table.primary_and_others();
        Ok(ActiveSettings::about(settings, (None, None), Some(plan), (egresses, others)))
    }

    /// Returns `settings` for display, with the addresses in use, the interface, and the egresses.
    /// `egresses` has an egress for each path. `others` has the IPv6 egresses of paths whose entry
    /// in `egresses` is for IPv4.
    pub(super) fn about(
        settings: &Settings,
        (listen, server): (Option<SocketAddr>, Option<SocketAddr>),
        tun: Option<Plan>,
        (egresses, others): (Vec<Egress>, Vec<Egress>),
    ) -> ActiveSettings {
        // Clients of an interface name servers of both address families.
        let mtu = paths::recommended(&[&egresses[..], &others[..]].concat());
        let added = settings.far_end.as_ref().map_or(0, |far| far.overhead() as u32);
        ActiveSettings {
            listen,
            server,
            tun,
            egresses,
            others,
            seed: settings.core.seed,
            schedule: settings.core.schedule.to_string(),
            every: settings.core.every.to_string(),
            redraw: settings.core.redraw.map(|silence| silence.to_string()),
            jitter: settings.core.jitter.map(|jitter| jitter.to_string()),
            decoys: settings.decoys().map(|budget| budget.to_string()),
            far_end: settings.far_end.is_some(),
            udp_payload: mtu.map(|mtu| mtu.udp_payload.saturating_sub(added)),
            tunnel_mtu: mtu.map(|mtu| mtu.tunnel.saturating_sub(added)),
        }
    }
}

/// Returns the server's address (`None` if there are no paths), and each path's egress (interface,
/// source address and route) to the server.
fn towards(settings: &Settings, to: &Target) -> Result<(Option<SocketAddr>, Vec<Egress>), Failure> {
    let servers = to.resolve();
    let servers = servers.map_err(|error| Failure::Resolve(to.clone(), error))?;
    let (fwmark, same_egress) = (settings.fwmark, settings.same_egress);
    let egresses = paths::resolve(&settings.specs, &servers, fwmark, same_egress)?;
    Ok((egresses.first().map(|egress| egress.server), egresses))
}

/// Describes in one line for users how and how often paths are chosen, and the delays and decoys
/// (dummy packets). `more` has the values of [`ActiveSettings`]' fields `redraw`, `jitter` and
/// `decoys`. All arguments are in the user's notation.
pub(crate) fn dealing(schedule: &str, every: &str, more: [Option<&str>; 3]) -> String {
    let [redraw, jitter, decoys] = more;
    let redraw =
        redraw.map(|silence| format!(", probabilities redrawn after a pause of {silence}"));
    let jitter = jitter.map(|jitter| format!(", delayed by {jitter}"));
    let decoys = decoys.map(|budget| format!(", {budget} decoys"));
    let more: String = [redraw, jitter, decoys].into_iter().flatten().collect();
    format!("{schedule}, every {every}{more}")
}

/// Reason why the splitter did not start, or stopped early. Its message has one line.
#[derive(Debug)]
pub enum Failure {
    /// The server's name cannot be resolved.
    Resolve(Target, io::Error),
    /// A path does not lead to the server.
    Path(PathError),
    /// The system does not permit an operation that the settings need. The text names the missing
    /// permission and an alternative.
    Forbidden(String),
    /// The routes and rules that lead traffic into the interface could not be set.
    Steer(SteerError),
    /// The socket for clients' datagrams cannot be opened.
    Listen(SocketAddr, io::Error),
    /// A capture cannot be written; the error names its file.
    Capture(io::Error),
    /// A capture could not be completed at the end; the error names its file.
    Unfinished(io::Error),
    /// Another system call failed. The fields are the purpose of the call, and the error.
    System(&'static str, io::Error),
}

impl Failure {
    /// Returns whether wrong settings are the cause, rather than an event while the splitter runs.
    pub fn is_misuse(&self) -> bool {
        match self {
            Failure::System(..) | Failure::Unfinished(_) => false,
            Failure::Steer(error) => error.is_misuse(),
            _ => true,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Resolve(to, error) => {
                write!(f, "the server's name '{}' does not resolve: {error}", to.host)
            }
            Failure::Path(error) => error.fmt(f),
            Failure::Steer(error) => error.fmt(f),
            Failure::Forbidden(text) => f.write_str(text),
            Failure::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Failure::Capture(error) | Failure::Unfinished(error) => error.fmt(f),
            Failure::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<SteerError> for Failure {
    fn from(error: SteerError) -> Failure {
        Failure::Steer(error)
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Failure {
        Failure::Path(error)
    }
}
