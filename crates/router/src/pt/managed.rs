//! The transport as a child process of another program, such as tor (Tor's pt-spec). This module
//! reads the environment variables of the parent program, and replies to it.

use std::fmt;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anabranch_multipath::schedule::Spec;
use anabranch_pt::{self as pt, Environment, Line, Outbound, Protocol, Side};
use anabranch_stego::{Covers, Shapes, Site};

use super::bridge::{
    Bridge, PROFILE, TRANSPORT, check_keys, pictures, server_key, shapes, unusable_pictures,
};
use super::client::{ClientSettings, ListenerKind, PtClient};
use super::server::{Onward, PtServer, ServerSettings};
use crate::crawl;
use crate::onion::store::replace;

/// Name of the file with a bridge's key. The file is in the transport's state folder.
const KEY_FILE: &str = "anabranch-bridge.key";
/// Name of the file with the bridge line for clients.
const LINE_FILE: &str = "anabranch-bridgeline.txt";

/// Names of the options that a bridge's operator can set for our transport.
const OPTIONS: [&str; 5] = ["profile", "site", "pictures", "covers", "shapes"];

/// A client or server that the parent program has requested. The flag is true if the client or
/// server ends when its standard input ends.
pub enum Managed {
    /// A client of our transport.
    Client(Box<PtClient>, bool),
    /// A server of our transport, at a bridge.
    Server(Box<PtServer>, bool),
}

/// Reason why no client or server was started. It has already been reported to the parent program.
#[derive(Debug)]
pub struct ManagedFailure(String);

impl fmt::Display for ManagedFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for ManagedFailure {}

/// Limits of the links between a bridge and all of its clients. The default values apply if the
/// parent program sets none.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of bytes in the queues of all links together, in both directions.
    pub memory: usize,
    /// Maximum number of links that clients may have open at the same time.
    pub links: usize,
}

impl Limits {
    /// Smallest permitted value of `memory`, in bytes: four times the smallest receive window of a
    /// link.
    pub const LEAST: usize = 4 << 20;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory: 256 << 20, links: 10_000 }
    }
}

/// Creates the client or server that the parent program requests according to pt-spec. `get`
/// returns an environment variable. Replies to the parent are written to `out`. `at_client` is
/// true if this command is for a client. Only a client uses `shapes`, because a server's shapes
/// are among its options. Only a server uses `limits`.
///
/// # Errors
/// The environment is invalid, requests none of our transports, or is for the other side (client
/// or server). Or the client or server cannot be created.
pub fn managed(
    get: impl Fn(&str) -> Option<String>,
    (out, at_client): (&mut dyn Write, bool),
    (schedule, shapes): (&Spec, Shapes),
    limits: Limits,
) -> Result<Managed, ManagedFailure> {
    let environment = match Environment::read(get) {
        Ok(environment) => environment,
        Err(error) => return Err(refuse(out, &error.0)),
    };
    if matches!(environment.side, Side::Client(_)) != at_client {
        let (here, there) = ("client ('anabranch pt client')", "bridge ('anabranch pt server')");
        let [here, there] = if at_client { [here, there] } else { [there, here] };
        let why = format!(
            "this command is for a {here}, but tor started it as a {there}: write the other \
             command in torrc"
        );
        return Err(refuse(out, &Line::EnvError(why)));
    }
    let outbound = environment.outbound;
    check_outbound(outbound).map_err(|why| refuse(out, &Line::EnvError(why)))?;
    write_line(out, &Line::Version("1".to_owned()))?;
    let ends = environment.ends_with_input;
    match environment.side {
        Side::Client(wanted) => {
            let station = client(&wanted, out, (schedule, shapes))?.with_outbound(outbound);
            Ok(Managed::Client(Box::new(station), ends))
        }
        Side::Server(wanted) => {
            let state = Path::new(&environment.state);
            let station = server(&wanted, state, out, (schedule, limits))?.with_outbound(outbound);
            Ok(Managed::Server(Box::new(station), ends))
        }
    }
}

/// Reports source addresses that do not belong to this machine as errors. Otherwise each
/// connection would fail later, without a message.
fn check_outbound(outbound: Outbound) -> Result<(), String> {
    let named = [
        ("TOR_PT_OUTBOUND_BIND_ADDRESS_V4", outbound.v4.map(IpAddr::V4)),
        ("TOR_PT_OUTBOUND_BIND_ADDRESS_V6", outbound.v6.map(IpAddr::V6)),
    ];
    for (name, at) in named.into_iter().filter_map(|(name, at)| Some((name, at?))) {
        UdpSocket::bind((at, 0)).map_err(|error| format!("{name}: {at}: {error}"))?;
    }
    Ok(())
}

/// Writes a line for the log that the user of the parent program reads.
///
/// # Errors
/// The parent does not read the output.
pub fn log_line(out: &mut dyn Write, words: &str) -> io::Result<()> {
    let line = Line::Log(pt::Severity::Warning, words.to_owned());
    writeln!(out, "{line}").and_then(|()| out.flush())
}

fn client(
    wanted: &pt::Client,
    out: &mut dyn Write,
    (schedule, shapes): (&Spec, Shapes),
) -> Result<PtClient, ManagedFailure> {
    if wanted.proxy.is_some() {
        return Err(refuse(out, &Line::ProxyError("proxies are not supported".to_owned())));
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
        write_line(out, &line)?;
    }
    write_line(out, &Line::ClientMethodsDone)?;
    station.ok_or_else(|| {
        ManagedFailure("none of the requested transports could be started".to_owned())
    })
}

fn socks(schedule: &Spec, shapes: Shapes) -> io::Result<(PtClient, SocketAddr)> {
    let any = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ListenerKind::Socks);
    let station =
        PtClient::new(ClientSettings { listen: vec![any], schedule: schedule.clone(), shapes })?;
    let at = station.addresses()?[0];
    Ok((station, at))
}

fn server(
    wanted: &pt::Server,
    state: &Path,
    out: &mut dyn Write,
    own: (&Spec, Limits),
) -> Result<PtServer, ManagedFailure> {
    let mut station = None;
    for method in &wanted.methods {
        let name = method.name.clone();
        let mut warnings = Vec::new();
        let line = match name.as_str() {
            TRANSPORT => match bridge((wanted, method), state, own, &mut warnings) {
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
        for words in warnings {
            write_line(out, &Line::Log(pt::Severity::Warning, words))?;
        }
        write_line(out, &line)?;
    }
    write_line(out, &Line::ServerMethodsDone)?;
    station.ok_or_else(|| {
        ManagedFailure("none of the requested transports could be started".to_owned())
    })
}

/// Creates the server that the parent program requests. Messages for the bridge's operator are
/// added to `warnings`.
fn bridge(
    (wanted, method): (&pt::Server, &pt::ServerMethod),
    state: &Path,
    (schedule, limits): (&Spec, Limits),
    warnings: &mut Vec<String>,
) -> Result<PtServer, String> {
    // The transport creates the folder, which other transports may share (pt-spec).
    let made = DirBuilder::new().recursive(true).mode(0o700).create(state);
    made.map_err(|error| format!("{}: {error}", state.display()))?;
    let onward = match (&wanted.extended, wanted.relay) {
        (Some((at, cookie)), _) => Onward::Extended(*at, PathBuf::from(cookie)),
        (None, Some(at)) => Onward::Plain(at),
        (None, None) => {
            return Err("tor has not set the relay's port (TOR_PT_ORPORT): write ORPort \
                                    in torrc"
                .to_owned());
        }
    };
    let listen = method.address.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into());
    let own = (schedule.clone(), limits);
    let (settings, warning) = server_settings((listen, onward), &method.options, state, own)?;
    warnings.extend(warning);
    let station = PtServer::new(settings).map_err(|error| error.to_string())?;
    let line = format!("{}\n", client_bridge_line(station.bridge()));
    replace(&state.join(LINE_FILE), line.as_bytes()).map_err(|error| error.to_string())?;
    Ok(station)
}

/// Creates the settings of a server from its operator's `options` (`profile`, `site`, `pictures`,
/// `covers`, `shapes`). The folder `state` contains the server's key. Also returns a warning for
/// the operator, if there is one.
///
/// # Errors
/// An option is invalid, unknown or given twice, or a file cannot be read. The error text is a
/// single line.
pub fn server_settings(
    (listen, onward): (SocketAddr, Onward),
    options: &pt::Args,
    state: &Path,
    (schedule, limits): (Spec, Limits),
) -> Result<(ServerSettings, Option<String>), String> {
    check_keys(options, &OPTIONS).map_err(|fault| fault.to_string())?;
    let profile = options.get("profile").unwrap_or(PROFILE);
    let profile = profile.parse().map_err(|error: super::ProfileError| error.to_string())?;
    let key = server_key(&state.join(KEY_FILE)).map_err(|error| error.to_string())?;
    let site = options.get("site").map(str::parse).transpose();
    let site = site.map_err(|_| "site= is not ADDRESS:PORT".to_owned())?;
    let folder = options.get("pictures").map(Path::new);
    let found = folder.map(pictures).transpose().map_err(|error| error.to_string())?;
    let (pictures, refused) = found.unwrap_or_default();
    let set = options.get("shapes").map(Path::new).map(shapes).transpose();
    let shapes = set.map_err(|error| error.to_string())?.unwrap_or_default();
    let objects = match options.get("covers").map(Path::new) {
        Some(folder) => crawl::site(folder).map_err(|error| error.to_string())?,
        None => Site::default(),
    };
    let covers = Covers { pictures, site: objects, shapes };
    let Limits { memory, links } = limits;
    let settings =
        ServerSettings { listen, key, profile, onward, site, schedule, memory, links, covers };
    Ok((settings, unusable_pictures(refused)))
}

/// Returns the bridge line of `bridge` for clients. The line has placeholders for the address and
/// the fingerprint, because only the operator knows them.
fn client_bridge_line(bridge: &Bridge) -> String {
    let address = match bridge.address.ip().is_unspecified() {
        true => format!("ADDRESS:{}", bridge.address.port()),
        false => bridge.address.to_string(),
    };
    let args = bridge.args().0;
    let args: Vec<String> = args.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("Bridge {TRANSPORT} {address} FINGERPRINT {}", args.join(" "))
}

fn unknown() -> String {
    format!("unknown transport: only '{TRANSPORT}' is supported")
}

fn write_line(out: &mut dyn Write, line: &Line) -> Result<(), ManagedFailure> {
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(|error| {
        ManagedFailure(format!("cannot write to the program that started this one: {error}"))
    })
}

/// Reports `line` to the parent program, and returns it as a failure.
fn refuse(out: &mut dyn Write, line: &Line) -> ManagedFailure {
    match write_line(out, line) {
        Ok(()) => ManagedFailure(line.to_string()),
        Err(failure) => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { memory: 16 << 20, links: 10 };

    fn answers(pairs: &[(&str, &str)]) -> (bool, Vec<String>) {
        let names = |side: &str| pairs.iter().any(|(name, _)| name.contains(side));
        answers_at(names("CLIENT"), pairs)
    }

    fn answers_at(at_client: bool, pairs: &[(&str, &str)]) -> (bool, Vec<String>) {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("pt_state").display().to_string();
        let usual = [("TOR_PT_MANAGED_TRANSPORT_VER", "1"), ("TOR_PT_STATE_LOCATION", &*folder)];
        let of = |name: &str| {
            let found = pairs.iter().chain(&usual).find(|(one, _)| *one == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let (mut out, schedule) = (Vec::new(), Spec::over_windows(super::super::SCHEDULE).unwrap());
        let station = managed(of, (&mut out, at_client), (&schedule, Shapes::default()), LIMITS);
        let text = String::from_utf8(out).unwrap();
        (station.is_ok(), text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn a_client_is_given_a_port_for_what_is_ours_and_no_other() {
        let (open, lines) = answers(&[("TOR_PT_CLIENT_TRANSPORTS", "obfs4,anabranch")]);
        assert!(open && lines[0] == "VERSION 1" && lines[3] == "CMETHODS DONE", "{lines:?}");
        assert!(lines[1].starts_with("CMETHOD-ERROR obfs4 "), "{lines:?}");
        assert!(lines[2].starts_with("CMETHOD anabranch socks5 127.0.0.1:"), "{lines:?}");
        // The same name twice must not create two clients, because the second would replace the
        // first.
        let twice = ("TOR_PT_CLIENT_TRANSPORTS", "anabranch,anabranch");
        let (open, lines) = answers(&[twice]);
        assert!(open && lines.len() == 3 && lines[2] == "CMETHODS DONE", "{lines:?}");
        let (open, lines) = answers(&[("TOR_PT_CLIENT_TRANSPORTS", "obfs4")]);
        assert!(!open && lines.len() == 3, "{lines:?}");
        let proxy = ("TOR_PT_PROXY", "socks5://127.0.0.1:9");
        let (open, lines) = answers(&[("TOR_PT_CLIENT_TRANSPORTS", "anabranch"), proxy]);
        assert!(!open && lines[1].starts_with("PROXY-ERROR "), "{lines:?}");
    }

    #[test]
    fn a_bridge_tells_what_clients_have_to_know() {
        let relay = ("TOR_PT_ORPORT", "127.0.0.1:9");
        let ours = ("TOR_PT_SERVER_TRANSPORTS", "anabranch");
        let at = ("TOR_PT_SERVER_BINDADDR", "anabranch-127.0.0.1:0");
        let short = ("TOR_PT_SERVER_TRANSPORT_OPTIONS", "anabranch:profile=nosteg-short");
        let (open, lines) = answers(&[ours, relay, at, short]);
        assert!(open && lines.len() == 3, "{lines:?}");
        let line = Line::read(&lines[1]);
        let Some(Line::ServerMethod(_, address, args)) = line else { panic!("{lines:?}") };
        let bridge = super::super::Bridge::of(address, &args).unwrap();
        assert_eq!(bridge.profile.to_string(), "nosteg-short");
        let cases = [
            ("anabranch:profile=x", "there is no profile"),
            ("anabranch:profil=http-opaque", "unknown key `profil`; did you mean `profile`?"),
            ("anabranch:profile=nosteg;anabranch:profile=embed", "profile= is given twice"),
        ];
        for (options, why) in cases {
            let wrong = ("TOR_PT_SERVER_TRANSPORT_OPTIONS", options);
            let (open, lines) = answers(&[ours, relay, at, wrong]);
            let message = format!("SMETHOD-ERROR anabranch {why}");
            assert!(!open && lines[1].starts_with(&message), "{lines:?}");
        }
        // Options of another transport are ignored.
        let others = ("TOR_PT_SERVER_TRANSPORT_OPTIONS", "obfs4:iat-mode=1");
        assert!(answers(&[ours, relay, at, others]).0);
    }

    #[test]
    fn pictures_that_hide_nothing_are_told_to_the_parent() {
        let folder = tempfile::tempdir().unwrap();
        let picture = include_bytes!("../../../stego/testdata/colour.jpg");
        std::fs::write(folder.path().join("good.jpg"), picture).unwrap();
        std::fs::write(folder.path().join("broken.jpg"), &picture[..picture.len() / 2]).unwrap();
        let options = format!(
            "anabranch:profile=http-image;anabranch:site=127.0.0.1\\:9;anabranch:pictures={}",
            folder.path().display()
        );
        let wanted = [
            ("TOR_PT_SERVER_TRANSPORTS", "anabranch"),
            ("TOR_PT_ORPORT", "127.0.0.1:9"),
            ("TOR_PT_SERVER_BINDADDR", "anabranch-127.0.0.1:0"),
            ("TOR_PT_SERVER_TRANSPORT_OPTIONS", &*options),
        ];
        let (open, lines) = answers(&wanted);
        let words = "1 file is left out: it is not a baseline JPEG that can hide bytes";
        assert_eq!(lines[1], format!("LOG SEVERITY=warning MESSAGE=\"{words}\""));
        assert!(open && lines[2].starts_with("SMETHOD anabranch "), "{lines:?}");
        // The warning about unusable pictures precedes the error that there are no pictures.
        std::fs::remove_file(folder.path().join("good.jpg")).unwrap();
        let (open, lines) = answers(&wanted);
        assert!(lines[1].contains(words) && !open, "{lines:?}");
        let wanted = "SMETHOD-ERROR anabranch the profile http-image needs a folder of JPEG";
        assert!(lines[2].starts_with(wanted), "{lines:?}");
    }

    #[test]
    fn a_command_that_is_told_to_be_at_the_other_side_opens_nothing() {
        let server = [("TOR_PT_SERVER_TRANSPORTS", "anabranch"), ("TOR_PT_ORPORT", "127.0.0.1:9")];
        let message = "ENV-ERROR this command is for a client ('anabranch pt client'), but tor \
                       started it as a bridge ('anabranch pt server'): write the other command in \
                       torrc";
        assert_eq!(answers_at(true, &server), (false, vec![message.to_owned()]));
        let client = [("TOR_PT_CLIENT_TRANSPORTS", "anabranch")];
        let message = "ENV-ERROR this command is for a bridge ('anabranch pt server'), but tor \
                       started it as a client ('anabranch pt client'): write the other command in \
                       torrc";
        assert_eq!(answers_at(false, &client), (false, vec![message.to_owned()]));
    }

    #[test]
    fn an_address_to_come_from_that_is_none_or_not_ours_is_refused() {
        let ours = ("TOR_PT_CLIENT_TRANSPORTS", "anabranch");
        let from = "TOR_PT_OUTBOUND_BIND_ADDRESS_V4";
        assert!(answers(&[ours, (from, "127.0.0.1")]).0);
        for (value, why) in
            [("here", "'here' is not an IPv4 address"), ("192.0.2.77", "192.0.2.77: ")]
        {
            let (open, lines) = answers(&[ours, (from, value)]);
            assert!(!open && lines.len() == 1, "{lines:?}");
            assert!(lines[0].starts_with(&format!("ENV-ERROR {from}: {why}")), "{lines:?}");
        }
    }

    #[test]
    fn an_environment_that_makes_no_sense_is_told_in_its_line() {
        let (open, lines) = answers(&[("TOR_PT_MANAGED_TRANSPORT_VER", "2")]);
        assert!(!open);
        assert_eq!(lines, ["VERSION-ERROR no-version"]);
    }
}
