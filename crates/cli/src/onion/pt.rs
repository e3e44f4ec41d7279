//! `anabranch pt`: our pluggable transport, started by tor or stand-alone.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anabranch_multipath::schedule::Spec;
use anabranch_os::files::raise_limit;
use anabranch_router::crawl::site;
use anabranch_router::onion::stop_signals;
use anabranch_router::pt::{
    Bridge, ClientSettings, Covers, Ending, Limits, ListenerKind, Managed, Onward, PROFILE,
    PROFILES, Profile, PtClient, PtEvent, PtServer, SCHEDULE, ServerSettings, Shapes,
    StopConditions, log_line, managed, pictures, server_key, shapes, unusable_pictures,
};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::crawl::CrawlSide;
use super::log::Log;
use super::memory;
use crate::failure::Failure;
use crate::split::values::NamedParser;
use crate::status::{PublishedStatus, run_name};

/// Environment variable that is set if another program, such as tor, has started this program as a
/// managed transport.
const MANAGED: &str = "TOR_PT_MANAGED_TRANSPORT_VER";

const CLIENT_EXAMPLES: &str = "\
EXAMPLES
  With tor: lines for torrc. The last one comes from the operator of the bridge:
    UseBridges 1
    ClientTransportPlugin anabranch exec /usr/bin/anabranch pt client
    Bridge anabranch 192.0.2.1:443 FINGERPRINT key=KEY profile=nosteg

  Without tor: carry connections from port 2222 of this machine to the server's --to address:
    anabranch pt client --listen 127.0.0.1:2222 \\
        --bridge 'anabranch 192.0.2.1:443 key=KEY profile=nosteg'

ENVIRONMENT
  TOR_PT_*                    set by the program that starts a transport (Tor's pt-spec)

EXIT CODES
  0 stopped by SIGINT, SIGTERM or the end of its parent   1 failed while running
  2 bad usage or settings";
const SERVER_EXAMPLES: &str = "\
EXAMPLES
  With tor: lines for torrc. Clients need the line in pt_state/anabranch-bridgeline.txt:
    BridgeRelay 1
    ExtORPort auto
    ServerTransportPlugin anabranch exec /usr/bin/anabranch pt server
    ServerTransportListenAddr anabranch 0.0.0.0:443

  Without tor, in front of an SSH server. This prints the bridge line, which clients need:
    anabranch pt server --listen 0.0.0.0:443 --to 127.0.0.1:22 --key bridge.key

ENVIRONMENT
  TOR_PT_*                    set by the program that starts a transport (Tor's pt-spec)

EXIT CODES
  0 stopped by SIGINT, SIGTERM or the end of its parent   1 failed while running
  2 bad usage or settings";

/// Camouflage a program's connection as several other connections (a pluggable transport for tor,
/// or stand-alone).
///
/// The data of the program are cut into encrypted blocks, which are sent over several connections
/// at a time. If one of these connections freezes or breaks, its blocks are sent again over the
/// others. A profile determines how the connections look. nosteg shows random bytes; some censors
/// block such connections. http-opaque and http-text show HTTP requests and answers. http-image
/// answers with your pictures, http-site with files of your web site. embed has the sizes and
/// pauses of recorded connections. No profile can be mistaken for a browser: a classifier
/// recognises each profile from one connection (docs/results/covertness.md).
#[derive(Args)]
pub(crate) struct PtArgs {
    #[command(subcommand)]
    side: PtSide,
}

#[derive(Subcommand)]
enum PtSide {
    Client(Box<ClientSide>),
    Server(Box<ServerSide>),
    Crawl(CrawlSide),
}

/// Run the client's side: connect programs of this machine to bridges, as a child process of tor
/// or stand-alone.
///
/// A bridge is a server that runs the other side, 'anabranch pt server'. Without --socks and
/// --listen, this program must be started by tor, which configures it by environment variables.
#[derive(Args)]
#[command(after_long_help = CLIENT_EXAMPLES, after_help = "--help shows examples.")]
struct ClientSide {
    /// Accept SOCKS5 connections from programs at this address (repeatable).
    ///
    /// The program requests a connection to the bridge's address. As the user name it sends the
    /// KEY=VALUE pairs of the bridge line (the line that describes the bridge), joined by
    /// semicolons. If these pairs have more than 255 bytes, the rest goes into the password.
    #[arg(long, value_name = "ADDRESS:PORT")]
    socks: Vec<SocketAddr>,
    /// Accept connections from programs at this address, and carry each of them to the bridge of
    /// --bridge (repeatable).
    #[arg(long, value_name = "ADDRESS:PORT", requires = "bridge")]
    listen: Vec<SocketAddr>,
    /// Carry connections that arrive at --listen to the bridge (server) that LINE describes.
    /// 'anabranch pt server' prints LINE.
    #[arg(long, value_name = "LINE", requires = "listen", value_parser = bridge)]
    bridge: Option<Bridge>,
    /// Read sizes and pauses of packets, for the profile 'embed', from FILE, which 'anabranch
    /// pt crawl --shape' makes. The file applies to bridges whose bridge line has profile=embed.
    /// The server needs the same file [default: built-in sizes and pauses].
    #[arg(long, value_name = "FILE")]
    shapes: Option<PathBuf>,
    #[command(flatten)]
    common: PtCommon,
}

/// Run the bridge's side: accept clients, and forward their data to a relay or another server.
///
/// Without --listen, this program must be started by tor, which configures it by environment
/// variables and by ServerTransportOptions in torrc.
#[derive(Args)]
#[command(after_long_help = SERVER_EXAMPLES, after_help = "--help shows examples.")]
struct ServerSide {
    /// Accept connections from clients ('anabranch pt client') at this address. Needs --to and
    /// --key.
    #[arg(long, value_name = "ADDRESS:PORT", requires_all = ["to", "key"])]
    listen: Option<SocketAddr>,
    /// Forward the data of clients to the server at this address, such as an SSH server or the
    /// ORPort of a relay.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "listen")]
    to: Option<SocketAddr>,
    /// Keep the private key of this bridge in FILE, which is created if it is missing.
    #[arg(long, value_name = "FILE", requires = "listen")]
    key: Option<PathBuf>,
    // The help is made of the profiles' table.
    #[arg(long, value_name = "NAME", requires = "listen", help = profile(), long_help = profiles())]
    #[arg(value_parser = NamedParser::<Profile>::of(PROFILES.iter().map(|family| family.name)))]
    #[arg(hide_possible_values = true)]
    profile: Option<Profile>,
    /// Forward connections that do not come from our clients ('anabranch pt client') to the web
    /// server at this address. Profiles whose name begins with http need this option.
    ///
    /// If tor starts this program, write site=ADDRESS:PORT in ServerTransportOptions of torrc
    /// instead.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "listen")]
    site: Option<SocketAddr>,
    /// Hide the data for clients in copies of the JPEG files of folder DIR. The profile http-image
    /// needs this option.
    ///
    /// If tor starts this program, write pictures=DIR in ServerTransportOptions of torrc instead.
    #[arg(long, value_name = "DIR", requires = "listen")]
    pictures: Option<PathBuf>,
    /// Hide the data for clients in copies of the web files of folder DIR, which 'anabranch pt
    /// crawl' makes. The profile http-site needs this option.
    ///
    /// If tor starts this program, write covers=DIR in ServerTransportOptions of torrc instead.
    #[arg(long, value_name = "DIR", requires = "listen")]
    covers: Option<PathBuf>,
    /// Read sizes and pauses of packets, for the profile 'embed', from FILE, which 'anabranch
    /// pt crawl --shape' makes. Needs --profile embed. Clients need the same file [default:
    /// built-in sizes and pauses].
    ///
    /// If tor starts this program, write shapes=FILE in ServerTransportOptions of torrc instead.
    #[arg(long, value_name = "FILE", requires = "listen")]
    shapes: Option<PathBuf>,
    /// Serve at most N streams at a time. A stream is one connection of a program to a client
    /// ('anabranch pt client') [default: 10000].
    #[arg(long, value_name = "N")]
    links: Option<NonZeroUsize>,
    /// Use at most MB megabytes for data of all streams (connections of programs) that were sent
    /// but not acknowledged, or received but not read. At the limit, the server closes the stream
    /// that exceeds an equal share of this memory most [default: 256].
    #[arg(long, value_name = "MB")]
    memory: Option<usize>,
    #[command(flatten)]
    common: PtCommon,
}

#[derive(Args)]
struct PtCommon {
    /// Set the rule that chooses the connection for each part of the data. 'anabranch split
    /// --help' lists the rules under --schedule [default: pull].
    #[arg(long, value_name = "SCHEDULE", value_parser = schedule)]
    schedule: Option<Spec>,
    /// Show this process as NAME in 'anabranch status' and in each line that it prints.
    #[arg(long, value_name = "NAME", value_parser = run_name)]
    name: Option<String>,
    /// Print events as JSON, one object per line (docs/formats.md).
    #[arg(long)]
    json: bool,
    /// Print only errors and warnings.
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
}

fn bridge(line: &str) -> Result<Bridge, String> {
    Bridge::parse(line).map_err(|error| error.to_string())
}

/// Returns the help text of `--profile` in one line.
fn profile() -> String {
    format!(
        "Choose how connections look to an observer: NAME is a profile. --help lists the profiles \
         [default: {PROFILE}]."
    )
}

/// Returns the long help text of `--profile`, with all profiles.
fn profiles() -> String {
    let lines = PROFILES.iter().map(|family| format!("{}: {}", family.name, family.about));
    format!(
        "Choose how connections look to an observer: NAME is a profile [default: {PROFILE}]. The \
         profiles are:\n\n{}\n\ndocs/guide/camouflage.md compares the profiles. Clients read the \
         profile from the bridge line. If tor starts this program, write profile=NAME in \
         ServerTransportOptions of torrc instead.",
        lines.collect::<Vec<_>>().join("\n")
    )
}

fn schedule(text: &str) -> Result<Spec, String> {
    let spec = Spec::over_windows(text).map_err(|error| error.to_string())?;
    // A schedule that does not support the maximum number of connections is refused now, so that
    // it does not fail later for each link.
    let stream = anabranch_multipath::seed::stream(0, 0, "check");
    spec.build(Profile::MOST_CONNECTIONS, stream).map_err(|error| error.to_string())?;
    Ok(spec)
}

impl PtCommon {
    fn schedule(&self) -> Spec {
        let usual = || Spec::over_windows(SCHEDULE).expect("the default schedule exists");
        self.schedule.clone().unwrap_or_else(usual)
    }

    fn log(&self) -> Result<Log, Failure> {
        let name = self.name.as_deref();
        Log::new((PublishedStatus::named("pt", name, None), name), self.json, self.quiet)
    }
}

impl PtArgs {
    /// Runs the transport until a signal ends it, or makes covers with `crawl`.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let watch = || {
            raise_limit();
            stop_signals().map_err(Failure::trouble)
        };
        match self.side {
            PtSide::Client(side) => side.run(&watch()?),
            PtSide::Server(side) => side.run(&watch()?),
            PtSide::Crawl(side) => side.run(),
        }
    }
}

impl ClientSide {
    fn run(self, stop: &UnixStream) -> Result<(), Failure> {
        let shapes = set_of(self.shapes.as_deref())?;
        if self.socks.is_empty() && self.listen.is_empty() {
            let own = (&self.common.schedule(), shapes);
            return run_managed(own, limits(None, None)?, stop, true);
        }
        let socks = self.socks.into_iter().map(|at| (at, ListenerKind::Socks));
        let bridge = self.bridge.map(Box::new);
        let plain = self.listen.into_iter().zip(std::iter::repeat(bridge));
        let plain = plain.filter_map(|(at, bridge)| Some((at, ListenerKind::Bridge(bridge?))));
        let settings = ClientSettings {
            listen: socks.chain(plain).collect(),
            schedule: self.common.schedule(),
            shapes,
        };
        let mut station = PtClient::new(settings).map_err(Failure::misuse)?;
        let log = self.common.log()?;
        let at = station.addresses().map_err(Failure::trouble)?;
        let at: Vec<String> = at.iter().map(SocketAddr::to_string).collect();
        let text = format!("listening for programs on {}", at.join(", "));
        log.print(&json!({"event": "listening", "listen": at}), &text);
        let conditions = StopConditions { stop, with_input: false };
        station.run(&conditions, &mut |event| report(&log, &event)).map_err(Failure::trouble)
    }
}

impl ServerSide {
    fn run(self, stop: &UnixStream) -> Result<(), Failure> {
        let limits = limits(self.links, self.memory)?;
        let (Some(listen), Some(to), Some(key)) = (self.listen, self.to, &self.key) else {
            return run_managed((&self.common.schedule(), Shapes::default()), limits, stop, false);
        };
        let usual = || PROFILE.parse().expect("the default profile exists");
        let found = self.pictures.as_deref().map(pictures).transpose().map_err(Failure::misuse)?;
        let objects = self.covers.as_deref().map(site).transpose().map_err(Failure::misuse)?;
        let shapes = set_of(self.shapes.as_deref())?;
        let (pictures, refused) = found.unwrap_or_default();
        let settings = ServerSettings {
            listen,
            key: server_key(key).map_err(Failure::misuse)?,
            profile: self.profile.unwrap_or_else(usual),
            onward: Onward::Plain(to),
            site: self.site,
            schedule: self.common.schedule(),
            memory: limits.memory,
            links: limits.links,
            covers: Covers { pictures, site: objects.unwrap_or_default(), shapes },
        };
        let mut station = PtServer::new(settings).map_err(Failure::misuse)?;
        let log = self.common.log()?;
        if let Some(text) = unusable_pictures(refused) {
            log.warn(&json!({"event": "pictures", "refused": refused}), &text);
        }
        let line = station.bridge().to_string();
        let at = station.bridge().address;
        let text = match at.ip().is_unspecified() {
            true => format!("bridge line for clients (replace {at} by your public address)"),
            false => "bridge line for clients".to_owned(),
        };
        let event = json!({"event": "listening", "listen": at.to_string(), "bridge": line});
        log.print(&event, &format!("{text}:\n{line}"));
        let conditions = StopConditions { stop, with_input: false };
        station.run(&conditions, &mut |event| report(&log, &event)).map_err(Failure::trouble)
    }
}

/// Reads the shapes (recorded sizes and pauses of connections) in `file`; without a file, returns
/// the built-in shapes.
fn set_of(file: Option<&Path>) -> Result<Shapes, Failure> {
    Ok(file.map(shapes).transpose().map_err(Failure::misuse)?.unwrap_or_default())
}

fn limits(links: Option<NonZeroUsize>, megabytes: Option<usize>) -> Result<Limits, Failure> {
    let usual = Limits::default();
    let memory = memory(megabytes.unwrap_or(usual.memory >> 20), Limits::LEAST >> 20)?;
    Ok(Limits { memory, links: links.map_or(usual.links, NonZeroUsize::get) })
}

/// Runs as a managed transport, which another program, such as tor, has started and configures.
fn run_managed(
    own: (&Spec, Shapes),
    limits: Limits,
    stop: &UnixStream,
    at_client: bool,
) -> Result<(), Failure> {
    if std::env::var_os(MANAGED).is_none() {
        let flags = match at_client {
            true => "--socks, or --listen and --bridge",
            false => "--listen, --to and --key",
        };
        return Err(Failure::misuse(format!(
            "this program was not started by tor ({MANAGED} is not set): to run it stand-alone, \
             add {flags}"
        )));
    }
    let out: (&mut dyn io::Write, bool) = (&mut io::stdout(), at_client);
    let station = managed(|name| std::env::var(name).ok(), out, own, limits);
    let mut watch = |event: PtEvent| {
        if let PtEvent::Trouble(why) = event {
            // If the parent no longer reads, it will end this process anyway.
            let _ = log_line(&mut io::stdout(), &why);
        }
    };
    let ended = match station.map_err(Failure::trouble)? {
        Managed::Client(mut station, with_input) => {
            station.run(&StopConditions { stop, with_input }, &mut watch)
        }
        Managed::Server(mut station, with_input) => {
            station.run(&StopConditions { stop, with_input }, &mut watch)
        }
    };
    ended.map_err(Failure::trouble)
}

/// Adds the bridge's address, if it is known, to `event`, an event of the client's side.
fn with_bridge(mut event: Value, bridge: Option<SocketAddr>) -> Value {
    if let Some(bridge) = bridge {
        event["bridge"] = json!(bridge.to_string());
    }
    event
}

/// Logs an event. The log never contains the address of a client.
fn report(log: &Log, event: &PtEvent) {
    let how = |ending: &Ending| match ending {
        Ending::Done => "done",
        Ending::Reset => "reset",
        Ending::Lost => "lost",
        Ending::Crowded => "crowded",
    };
    match event {
        PtEvent::Up(bridge) => log.log_json(&with_bridge(json!({"event": "link_up"}), *bridge)),
        PtEvent::Over(bridge, ending) => {
            let event = json!({"event": "link_over", "how": how(ending)});
            log.log_json(&with_bridge(event, *bridge));
        }
        PtEvent::Stranger => log.log_json(&json!({"event": "stranger"})),
        PtEvent::Trouble(why) => {
            let event: Value = json!({"event": "trouble", "what": why});
            log.warn(&event, why);
        }
    }
}
