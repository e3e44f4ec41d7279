//! What a run of the splitter is told, and what it tells before it begins.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anabranch_comps::{Config, Event, Snapshot};
use anabranch_multipath::Time;

use crate::paths::{self, Egress, PathError, PathSpec};

/// The settings of one run: a listener, a server, the paths between them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients send their datagrams.
    pub listen: SocketAddr,
    /// The server; its name is resolved for each session anew.
    pub to: Target,
    /// The paths, in the order of `core.ports`.
    pub specs: Vec<PathSpec>,
    /// The core's part.
    pub core: Config,
    /// The mark that our own packets bear (SO_MARK), for routing rules to know them by.
    pub fwmark: Option<u32>,
    /// Whether two paths may leave by one interface with one address.
    pub same_egress: bool,
    /// The trace to write (Parquet).
    pub trace: Option<PathBuf>,
    /// The directory to write a pcapng file for each path into.
    pub pcap: Option<PathBuf>,
}

/// A server as the user names it: `vpn.example.net:51820`, `192.0.2.1:443`, `[2001:db8::1]:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A name or an address, without brackets.
    pub host: String,
    /// The UDP port, above 0.
    pub port: u16,
}

/// A text that is no [`Target`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError(String);

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no server: write HOST:PORT, with an IPv6 address in brackets", self.0)
    }
}

impl std::error::Error for TargetError {}

impl Target {
    /// The server's address, if the host is one and no name; an IPv6 zone counts as a name.
    pub fn literal(&self) -> Option<SocketAddr> {
        let ip: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(ip, self.port))
    }

    /// All addresses of the server, at least one, in the resolver's order; asks name servers, so it
    /// may take seconds.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<_> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        if found.is_empty() { Err(io::Error::other("it has no address")) } else { Ok(found) }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let error = || TargetError(text.into());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let port: u16 = port.parse().map_err(|_| error())?;
        let host = bare.unwrap_or(host);
        let good = !host.is_empty() && port > 0 && bare.is_some() == host.contains(':');
        if good { Ok(Target { host: host.into(), port }) } else { Err(error()) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
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
    /// Something is wrong that does not end the run.
    fn warn(&mut self, text: &str);
    /// How often the counters are wanted.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// What a run is about to do: all of it decided, nothing of it begun.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Where clients send their datagrams; the port is the kernel's choice if 0 was asked for and
    /// the socket is open.
    pub listen: SocketAddr,
    /// The server, as its name resolves now.
    pub server: Option<SocketAddr>,
    /// The paths' ways out.
    pub egresses: Vec<Egress>,
    /// The seed that repeats this run's choices.
    pub seed: u64,
    /// The schedule as the user would write it.
    pub schedule: String,
    /// The length of a run as the user would write it.
    pub every: String,
    /// The largest UDP payload in bytes that fits through all paths.
    pub udp_payload: Option<u32>,
    /// The MTU to give to a WireGuard interface.
    pub tunnel_mtu: Option<u32>,
}

impl Listening {
    /// Resolves the server's name and every path; opens no UDP socket and sends nothing on a path.
    ///
    /// # Errors
    /// The name does not resolve, or a path does not lead to the server.
    pub fn look(settings: &Settings) -> Result<Listening, Failure> {
        let servers = settings.to.resolve();
        let servers = servers.map_err(|error| Failure::Resolve(settings.to.clone(), error))?;
        let (fwmark, same_egress) = (settings.fwmark, settings.same_egress);
        let egresses = paths::resolve(&settings.specs, &servers, fwmark, same_egress)?;
        let mtu = paths::recommended(&egresses);
        Ok(Listening {
            listen: settings.listen,
            server: egresses.first().map(|egress| egress.server),
            egresses,
            seed: settings.core.seed,
            schedule: settings.core.schedule.to_string(),
            every: settings.core.every.to_string(),
            udp_payload: mtu.map(|mtu| mtu.udp_payload),
            tunnel_mtu: mtu.map(|mtu| mtu.tunnel),
        })
    }
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
        !matches!(self, Failure::System(..) | Failure::Unfinished(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Resolve(to, error) => {
                write!(f, "the server's name '{}' does not resolve: {error}", to.host)
            }
            Failure::Path(error) => error.fmt(f),
            Failure::Forbidden(text) => f.write_str(text),
            Failure::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Failure::Capture(error) | Failure::Unfinished(error) => error.fmt(f),
            Failure::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Failure {
        Failure::Path(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in ["vpn.example.net:51820", "192.0.2.1:443", "[2001:db8::1]:443"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_address_needs_no_resolver() {
        let literal = |text: &str| text.parse::<Target>().unwrap().literal();
        assert_eq!(literal("192.0.2.1:443"), "192.0.2.1:443".parse().ok());
        assert_eq!(literal("[2001:db8::1]:443"), "[2001:db8::1]:443".parse().ok());
        assert_eq!(literal("vpn.example.net:443"), None);
        assert_eq!(literal("[fe80::1%eth0]:443"), None);
    }

    #[test]
    fn a_server_without_host_or_port_is_refused() {
        for text in ["", "vpn", ":1", "vpn:", "vpn:0", "vpn:65536", "2001:db8::1:443", "[vpn]:1"] {
            assert_eq!(text.parse::<Target>(), Err(TargetError(text.into())), "{text}");
        }
    }
}
