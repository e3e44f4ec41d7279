//! A transport that another program started (Tor's pt-spec): what it is told, and what it answers.

use std::fmt;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anabranch_multipath::schedule::Spec;
use anabranch_pt::{self as pt, Environment, Line, Protocol, Side};
use anabranch_stego::{Covers, Shapes, Site};

use super::bridge::{Bridge, PROFILE, TRANSPORT, pictures, server_key, shapes};
use super::client::{ClientSettings, ClientStation, Entrance};
use super::server::{Onward, ServerSettings, ServerStation};
use crate::crawl;
use crate::onion::store::replace;

/// The file with a bridge's key, in the folder that a transport may write to.
const KEY_FILE: &str = "anabranch-bridge.key";
/// The file with what its operator gives to clients.
const LINE_FILE: &str = "anabranch-bridgeline.txt";

/// A station that its parent wanted, and whether it ends with its standard input.
pub enum Managed {
    /// At a client.
    Client(Box<ClientStation>, bool),
    /// At a bridge.
    Server(Box<ServerStation>, bool),
}

/// Why there is none. Its parent has been told.
#[derive(Debug)]
pub struct ManagedFailure(String);

impl fmt::Display for ManagedFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for ManagedFailure {}

/// What a bridge's links may take if its parent says nothing of it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that links may promise together beyond 1 MiB each.
    pub memory: usize,
    /// Links at a time.
    pub links: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory: 256 << 20, links: 10_000 }
    }
}

/// Talks to the parent by `out`: reads what it wants from its environment (`get` has a variable),
/// and opens what it asks for. A client's connections have these shapes, a server's those of its
/// options.
///
/// # Errors
/// It wants nothing of ours, or what it wants cannot be had.
pub fn managed(
    get: impl Fn(&str) -> Option<String>,
    out: &mut dyn Write,
    (schedule, shapes): (&Spec, Shapes),
    limits: Limits,
) -> Result<Managed, ManagedFailure> {
    let environment = match Environment::read(get) {
        Ok(environment) => environment,
        Err(error) => return Err(refuse(out, &error.0)),
    };
    tell(out, &Line::Version("1".to_owned()))?;
    let ends = environment.ends_with_input;
    match environment.side {
        Side::Client(wanted) => {
            let station = client(&wanted, out, (schedule, shapes))?;
            Ok(Managed::Client(Box::new(station), ends))
        }
        Side::Server(wanted) => {
            let state = Path::new(&environment.state);
            let station = server(&wanted, state, out, (schedule, limits))?;
            Ok(Managed::Server(Box::new(station), ends))
        }
    }
}

/// Tells the parent what its user may want to know.
///
/// # Errors
/// It does not listen.
pub fn log_line(out: &mut dyn Write, words: &str) -> io::Result<()> {
    let line = Line::Log(pt::Severity::Warning, words.to_owned());
    writeln!(out, "{line}").and_then(|()| out.flush())
}

fn client(
    wanted: &pt::Client,
    out: &mut dyn Write,
    (schedule, shapes): (&Spec, Shapes),
) -> Result<ClientStation, ManagedFailure> {
    if wanted.proxy.is_some() {
        return Err(refuse(out, &Line::ProxyError("no proxy is spoken to here".to_owned())));
    }
    let mut station = None;
    for name in &wanted.transports {
        let line = match name.as_str() {
            TRANSPORT => match socks(schedule, shapes.clone()) {
                Ok((opened, at)) => {
                    station = Some(opened);
                    Line::ClientMethod(name.clone(), Protocol::Socks5, at)
                }
                Err(error) => Line::ClientMethodError(name.clone(), error.to_string()),
            },
            _ => Line::ClientMethodError(name.clone(), unknown()),
        };
        tell(out, &line)?;
    }
    tell(out, &Line::ClientMethodsDone)?;
    station.ok_or_else(|| ManagedFailure("nothing that was wanted could be had".to_owned()))
}

fn socks(schedule: &Spec, shapes: Shapes) -> io::Result<(ClientStation, SocketAddr)> {
    let any = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Entrance::Socks);
    let station = ClientStation::new(ClientSettings {
        listen: vec![any],
        schedule: schedule.clone(),
        shapes,
    })?;
    let at = station.addresses()?[0];
    Ok((station, at))
}

fn server(
    wanted: &pt::Server,
    state: &Path,
    out: &mut dyn Write,
    own: (&Spec, Limits),
) -> Result<ServerStation, ManagedFailure> {
    let mut station = None;
    for method in &wanted.methods {
        let name = method.name.clone();
        let line = match name.as_str() {
            TRANSPORT => match bridge(wanted, method, state, own) {
                Ok(opened) => {
                    let bridge = opened.bridge();
                    let line = Line::ServerMethod(name, bridge.address, bridge.args());
                    station = Some(opened);
                    line
                }
                Err(why) => Line::ServerMethodError(name, why),
            },
            _ => Line::ServerMethodError(name, unknown()),
        };
        tell(out, &line)?;
    }
    tell(out, &Line::ServerMethodsDone)?;
    station.ok_or_else(|| ManagedFailure("nothing that was wanted could be had".to_owned()))
}

fn bridge(
    wanted: &pt::Server,
    method: &pt::ServerMethod,
    state: &Path,
    (schedule, limits): (&Spec, Limits),
) -> Result<ServerStation, String> {
    // A transport makes the folder itself, and it may be another's, too (pt-spec).
    let made = DirBuilder::new().recursive(true).mode(0o700).create(state);
    made.map_err(|error| format!("{}: {error}", state.display()))?;
    let onward = match (&wanted.extended, wanted.relay) {
        (Some((at, cookie)), _) => Onward::Extended(*at, PathBuf::from(cookie)),
        (None, Some(at)) => Onward::Plain(at),
        (None, None) => return Err("no port of a relay is told".to_owned()),
    };
    let listen = method.address.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into());
    let own = (schedule.clone(), limits);
    let settings = server_settings((listen, onward), &method.options, state, own)?;
    let station = ServerStation::new(settings).map_err(|error| error.to_string())?;
    let line = format!("{}\n", told_to_clients(station.bridge()));
    replace(&state.join(LINE_FILE), line.as_bytes()).map_err(|error| error.to_string())?;
    Ok(station)
}

/// A server of our transport as its operator's options have it (`profile`, `site`, `pictures`,
/// `covers`, `shapes`), whose key is in the folder `state`.
///
/// # Errors
/// An option makes no sense, or a file cannot be had: one line.
pub fn server_settings(
    (listen, onward): (SocketAddr, Onward),
    options: &pt::Args,
    state: &Path,
    (schedule, limits): (Spec, Limits),
) -> Result<ServerSettings, String> {
    let profile = options.get("profile").unwrap_or(PROFILE);
    let profile = profile.parse().map_err(|error: super::ProfileError| error.to_string())?;
    let key = server_key(&state.join(KEY_FILE)).map_err(|error| error.to_string())?;
    let site = options.get("site").map(str::parse).transpose();
    let site = site.map_err(|_| "site= is no ADDRESS:PORT".to_owned())?;
    let folder = options.get("pictures").map(Path::new);
    let found = folder.map(pictures).transpose().map_err(|error| error.to_string())?;
    let pictures = found.map(|(pictures, _)| pictures).unwrap_or_default();
    let set = options.get("shapes").map(Path::new).map(shapes).transpose();
    let shapes = set.map_err(|error| error.to_string())?.unwrap_or_default();
    let objects = match options.get("covers").map(Path::new) {
        Some(folder) => crawl::site(folder).map_err(|error| error.to_string())?,
        None => Site::default(),
    };
    let covers = Covers { pictures, site: objects, shapes };
    let Limits { memory, links } = limits;
    Ok(ServerSettings { listen, key, profile, onward, site, schedule, memory, links, covers })
}

/// What the operator gives to clients: he knows his address and fingerprint, we may not.
fn told_to_clients(bridge: &Bridge) -> String {
    let address = match bridge.address.ip().is_unspecified() {
        true => format!("ADDRESS:{}", bridge.address.port()),
        false => bridge.address.to_string(),
    };
    let args = bridge.args().0;
    let args: Vec<String> = args.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("Bridge {TRANSPORT} {address} FINGERPRINT {}", args.join(" "))
}

fn unknown() -> String {
    format!("no such transport here: there is {TRANSPORT}")
}

fn tell(out: &mut dyn Write, line: &Line) -> Result<(), ManagedFailure> {
    let told = writeln!(out, "{line}").and_then(|()| out.flush());
    told.map_err(|error| ManagedFailure(format!("its parent does not listen: {error}")))
}

/// Tells why it ends.
fn refuse(out: &mut dyn Write, line: &Line) -> ManagedFailure {
    match tell(out, line) {
        Ok(()) => ManagedFailure(line.to_string()),
        Err(failure) => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { memory: 16 << 20, links: 10 };

    fn said(pairs: &[(&str, &str)]) -> (bool, Vec<String>) {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("pt_state").display().to_string();
        let usual = [("TOR_PT_MANAGED_TRANSPORT_VER", "1"), ("TOR_PT_STATE_LOCATION", &*folder)];
        let of = |name: &str| {
            let found = pairs.iter().chain(&usual).find(|(one, _)| *one == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let (mut out, schedule) = (Vec::new(), Spec::over_windows(super::super::SCHEDULE).unwrap());
        let station = managed(of, &mut out, (&schedule, Shapes::default()), LIMITS);
        let text = String::from_utf8(out).unwrap();
        (station.is_ok(), text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn a_client_is_given_a_port_for_what_is_ours_and_no_other() {
        let (open, lines) = said(&[("TOR_PT_CLIENT_TRANSPORTS", "obfs4,anabranch")]);
        assert!(open && lines[0] == "VERSION 1" && lines[3] == "CMETHODS DONE", "{lines:?}");
        assert!(lines[1].starts_with("CMETHOD-ERROR obfs4 "), "{lines:?}");
        assert!(lines[2].starts_with("CMETHOD anabranch socks5 127.0.0.1:"), "{lines:?}");
        let (open, lines) = said(&[("TOR_PT_CLIENT_TRANSPORTS", "obfs4")]);
        assert!(!open && lines.len() == 3, "{lines:?}");
        let proxy = ("TOR_PT_PROXY", "socks5://127.0.0.1:9");
        let (open, lines) = said(&[("TOR_PT_CLIENT_TRANSPORTS", "anabranch"), proxy]);
        assert!(!open && lines[1].starts_with("PROXY-ERROR "), "{lines:?}");
    }

    #[test]
    fn a_bridge_tells_what_clients_have_to_know() {
        let relay = ("TOR_PT_ORPORT", "127.0.0.1:9");
        let ours = ("TOR_PT_SERVER_TRANSPORTS", "anabranch");
        let at = ("TOR_PT_SERVER_BINDADDR", "anabranch-127.0.0.1:0");
        let short = ("TOR_PT_SERVER_TRANSPORT_OPTIONS", "anabranch:profile=nosteg-short");
        let (open, lines) = said(&[ours, relay, at, short]);
        assert!(open && lines.len() == 3, "{lines:?}");
        let line = Line::read(&lines[1]);
        let Some(Line::ServerMethod(_, address, args)) = line else { panic!("{lines:?}") };
        let bridge = super::super::Bridge::of(address, &args).unwrap();
        assert_eq!(bridge.profile.to_string(), "nosteg-short");
        let wrong = ("TOR_PT_SERVER_TRANSPORT_OPTIONS", "anabranch:profile=x");
        let (open, lines) = said(&[ours, relay, at, wrong]);
        assert!(!open && lines[1].starts_with("SMETHOD-ERROR anabranch no profile"), "{lines:?}");
    }

    #[test]
    fn an_environment_that_makes_no_sense_is_told_in_its_line() {
        let (open, lines) = said(&[("TOR_PT_MANAGED_TRANSPORT_VER", "2")]);
        assert!(!open);
        assert_eq!(lines, ["VERSION-ERROR no-version"]);
    }
}
