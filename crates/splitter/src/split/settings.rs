//! What a run of the splitter is told, and what it tells before it begins.

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

use super::ways::Ways;
use crate::far_end::FarEnd;
use crate::paths::{self, Egress, PathError, PathSpec};
use crate::steer::{Plan, Request, SteerError};
use crate::streams::TlsEnd;

/// Where clients come in, and where they want to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// A local port: all its clients want one server.
    Port {
        /// Where clients send their datagrams.
        listen: SocketAddr,
        /// The server; its name is resolved for each session anew.
        to: Target,
    },
    /// An interface: each packet names its server.
    Tun(Request),
    /// An interface whose packets all go to a far end.
    Packets {
        /// The interface; its `inner` addresses are there.
        request: Request,
        /// The far end.
        to: Target,
    },
}

impl Entrance {
    /// The server of all clients, if there is one.
    pub fn to(&self) -> Option<&Target> {
        match self {
            Entrance::Port { to, .. } | Entrance::Packets { to, .. } => Some(to),
            Entrance::Tun(_) => None,
        }
    }
}

/// The settings of one run: where clients come in, and the paths by which they leave.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients come in.
    pub entrance: Entrance,
    /// The paths, in the order of `core.ports`.
    pub specs: Vec<PathSpec>,
    /// The core's part.
    pub core: Config,
    /// The far end that `entrance` leads to; `None` for an unaltered server.
    pub far_end: Option<FarEnd>,
    /// The far end for paths that are streams, where that is another address than `entrance` has.
    pub to_tcp: Option<Target>,
    /// What paths in TLS need; without it they cannot be dialled.
    pub tls: Option<Arc<dyn TlsEnd>>,
    /// Time that packets wait for room in a stream, at most.
    pub stream_age: Duration,
    /// The mark that our own packets bear (SO_MARK), for routing rules to know them by.
    pub fwmark: Option<u32>,
    /// Whether two paths may leave by one interface with one address.
    pub same_egress: bool,
    /// The trace to write (Parquet).
    pub trace: Option<PathBuf>,
    /// The directory to write a pcapng file for each path into.
    pub pcap: Option<PathBuf>,
    /// How large its files become, and how many stay.
    pub pcap_limits: PcapLimits,
}

impl Settings {
    /// The same for another server; with an interface nothing changes, as its clients name theirs.
    #[must_use]
    pub fn towards(mut self, server: Target) -> Settings {
        if let Entrance::Port { to, .. } = &mut self.entrance {
            *to = server;
        }
        self
    }

    /// The budget of decoys, where there is a far end that drops them.
    pub(super) fn decoys(&self) -> Option<DecoyBudget> {
        self.far_end.as_ref()?.decoys
    }
}

/// A seed from the system's entropy, for a run that need not repeat another; below 2^53, so that
/// JSON and TOML hold it exactly.
pub fn fresh_seed() -> u64 {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    got.expect("getrandom gives up to 256 bytes without interruption (getrandom(2))");
    u64::from_ne_bytes(bytes) >> 11
}

/// Reads the settings again, given those in force; else says in one line what is wrong and where.
pub type Reread<'r> = Box<dyn FnMut(&Settings) -> Result<Settings, String> + 'r>;

/// Where a run shows what happens.
pub trait Screen {
    /// The splitter is ready for clients.
    fn listening(&mut self, about: &Listening);
    /// Something happened at `now`.
    fn event(&mut self, now: Time, event: &Event);
    /// The counters at `now`; comes every [`Screen::interval`].
    fn snapshot(&mut self, now: Time, snapshot: &Snapshot);
    /// The counters at the end, after the last event.
    fn finish(&mut self, now: Time, snapshot: &Snapshot);
    /// Other settings are in force from `now` on: paths may have come, gone, or changed places.
    fn reloaded(&mut self, now: Time, about: &Listening);
    /// Something was learnt of the far end, where there is one.
    fn far_end(&mut self, now: Time, news: &FarEndNews);
    /// Something is wrong that does not end the run.
    fn warn(&mut self, text: &str);
    /// How often the counters are wanted.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// What is learnt of a far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarEndNews {
    /// It has answered: both ends know each other.
    Up,
    /// It has not answered: its key or ours is not the right one, it is not there, or packets do
    /// not pass.
    Unanswered {
        /// For so long.
        waited: Duration,
    },
    /// It is not heard by any path any more.
    Lost,
    /// It has said farewell.
    Left,
}

/// What a run is about to do: all of it decided, nothing of it begun.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Where clients send their datagrams; the port is the kernel's choice if 0 was asked for and
    /// the socket is open. `None` with an interface.
    pub listen: Option<SocketAddr>,
    /// The server, as its name resolves now; `None` with an interface.
    pub server: Option<SocketAddr>,
    /// The interface, and what is set up around it.
    pub tun: Option<Plan>,
    /// The paths' ways out, one for each path.
    pub egresses: Vec<Egress>,
    /// With an interface: the ways out for IPv6 of paths that have one for IPv4 too.
    pub others: Vec<Egress>,
    /// The seed that repeats this run's choices.
    pub seed: u64,
    /// The schedule as the user would write it.
    pub schedule: String,
    /// The length of a run as the user would write it.
    pub every: String,
    /// The silence after which a session draws anew, as the user would write it, if there is one.
    pub redraw: Option<String>,
    /// How long clients' datagrams are delayed before the split, as the user would write it, if
    /// they are.
    pub jitter: Option<String>,
    /// The budget of decoys, as the user would write it, if any are sent.
    pub decoys: Option<String>,
    /// Whether the server is a far end of ours.
    pub far_end: bool,
    /// The largest UDP payload in bytes of a client that fits through all paths.
    pub udp_payload: Option<u32>,
    /// The MTU to give to a WireGuard interface.
    pub tunnel_mtu: Option<u32>,
}

impl Listening {
    /// Schedule and runs in words.
    pub fn dealing(&self) -> String {
        let more = [&self.redraw, &self.jitter, &self.decoys].map(Option::as_deref);
        dealing(&self.schedule, &self.every, more)
    }

    /// Resolves the server's name and every path; opens no UDP socket and sends nothing on a path.
    ///
    /// # Errors
    /// The name does not resolve, or a path does not lead to the server.
    pub fn look(settings: &Settings) -> Result<Listening, Failure> {
        match &settings.entrance {
            Entrance::Port { listen, to } => {
                let (server, egresses) = towards(settings, to)?;
                let ends = (Some(*listen), server);
                Ok(Listening::about(settings, ends, None, (egresses, Vec::new())))
            }
            Entrance::Packets { request, to } => {
                let (server, egresses) = towards(settings, to)?;
                let ways = (egresses, Vec::new());
                let about = Listening::about(settings, (None, server), None, ways);
                // A packet is the payload of a datagram; IPv6 wants 1,280 bytes (RFC 8200, 5).
                let mtu = about.udp_payload.unwrap_or(1280).clamp(1280, 65_535);
                let plan = Plan::look(request.clone(), Vec::new(), mtu, settings.fwmark)?;
                Ok(Listening { tun: Some(plan), ..about })
            }
            Entrance::Tun(request) => Listening::look_around(settings, request),
        }
    }

    /// With an interface: wherever the paths lead.
    fn look_around(settings: &Settings, request: &Request) -> Result<Listening, Failure> {
        let ways = Ways::anywhere(settings)?;
        let all = ways.all();
        let mtu = all.iter().filter_map(|egress| egress.mtu).min().unwrap_or(1280).min(65_535);
        let plan = Plan::look(request.clone(), ways.exits(), mtu, settings.fwmark)?;
        let (egresses, others) = ways.primary_and_others();
        Ok(Listening::about(settings, (None, None), Some(plan), (egresses, others)))
    }

    /// What `settings` come to with these ends, this interface, and these ways out: one of each
    /// path, and those for IPv6 beside those for IPv4.
    pub(super) fn about(
        settings: &Settings,
        (listen, server): (Option<SocketAddr>, Option<SocketAddr>),
        tun: Option<Plan>,
        (egresses, others): (Vec<Egress>, Vec<Egress>),
    ) -> Listening {
        // Clients of an interface name servers of both families.
        let mtu = paths::recommended(&[&egresses[..], &others[..]].concat());
        let added = settings.far_end.as_ref().map_or(0, |far| far.overhead() as u32);
        Listening {
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

/// The server's address, and the paths' ways out to it.
fn towards(settings: &Settings, to: &Target) -> Result<(Option<SocketAddr>, Vec<Egress>), Failure> {
    let servers = to.resolve();
    let servers = servers.map_err(|error| Failure::Resolve(to.clone(), error))?;
    let (fwmark, same_egress) = (settings.fwmark, settings.same_egress);
    let egresses = paths::resolve(&settings.specs, &servers, fwmark, same_egress)?;
    Ok((egresses.first().map(|egress| egress.server), egresses))
}

/// How datagrams are dealt, in words.
pub(crate) fn dealing(schedule: &str, every: &str, more: [Option<&str>; 3]) -> String {
    let [redraw, jitter, decoys] = more;
    let redraw = redraw.map(|silence| format!(", redrawn after {silence}"));
    let jitter = jitter.map(|jitter| format!(", delayed by {jitter}"));
    let decoys = decoys.map(|budget| format!(", {budget} decoys"));
    let more: String = [redraw, jitter, decoys].into_iter().flatten().collect();
    format!("{schedule}, every {every}{more}")
}

/// Why a run did not begin, or ended before it was told to. One line each.
#[derive(Debug)]
pub enum Failure {
    /// The server's name does not resolve.
    Resolve(Target, io::Error),
    /// A path does not lead to the server.
    Path(PathError),
    /// The system does not permit what was asked for; says what is missing and what works instead.
    Forbidden(String),
    /// Traffic cannot be led into the interface.
    Steer(SteerError),
    /// The listener cannot be opened.
    Listen(SocketAddr, io::Error),
    /// A capture cannot be written; the error names its file.
    Capture(io::Error),
    /// A capture could not be completed at the end; the error names its file.
    Unfinished(io::Error),
    /// The system refused something else: (what was tried, its answer).
    System(&'static str, io::Error),
}

impl Failure {
    /// Whether what the user asked for is to blame, not the course of events.
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
