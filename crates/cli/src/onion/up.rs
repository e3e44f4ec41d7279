//! `anabranch up`: a complete onion network in this process.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_router::onion::authority::AuthorityError;
use anabranch_router::onion::client::{self, RefusalReason, RefusedRequest};
use anabranch_router::onion::embedded::{self, EmbeddedError, EmbeddedEvent, Settings};
use anabranch_router::onion::reload::Reload;
use anabranch_router::onion::stop_signals;
use clap::Args;
use serde_json::{Value, json};

use super::client::StreamDesign;
use super::log::Stamp;
use super::screen::Screen;
use super::{platform, state_folder};
use crate::failure::Failure;
use crate::status::{PublishedStatus, run_name};

/// Default address of the client's proxy. Tor Browser expects tor at this address.
const LISTEN: &str = "127.0.0.1:9150";
/// Number of relays.
const RELAYS: u8 = 7;
/// Number of exits among the relays.
const EXITS: u8 = 2;
/// Interval between consensuses, in seconds.
const INTERVAL: u64 = 300;
/// Default exit policy, which allows only addresses of this machine.
const LOOPBACK: &str = "accept 127.0.0.0/8:*";

/// Run a whole onion network in this process: an authority, seven relays and a client.
///
/// The network needs no root and no configuration. Each node has its own loopback address: the
/// authority 127.1.0.1, the relays 127.2.0.1 to 127.8.0.1. The last two relays are exits. They
/// look up host names as this machine does, and connect to the destinations. Without --exit, they
/// connect only to destinations on this machine. The keys of the nodes are made at the first
/// start, and kept in the folder of --data.
///
/// SIGINT, SIGTERM and the end of its terminal stop the network. SIGHUP does nothing, because
/// there is no file of settings to read again.
///
/// The Tor project's 'tor' program and other anabranch clients and relays on this machine can join
/// the network: --print-torrc prints the lines that they need.
#[derive(Args)]
pub(crate) struct UpArgs {
    /// Accept connections from programs at this address, by SOCKS5, SOCKS4a and HTTP CONNECT
    /// (repeatable) [default: 127.0.0.1:9150].
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Let the exits (last relays of circuits) accept or reject destinations by this rule, such as
    /// 'accept *:443'. Of several rules, the first one that matches applies (repeatable) [default:
    /// accept 127.0.0.0/8:*].
    #[arg(long, value_name = "RULE")]
    exit: Vec<String>,
    /// Choose how connections are carried: tor (one circuit), conflux, conflux-2013, mtor, merged
    /// or anabranch (several circuits), udp-or or mudp-or (both experimental). 'anabranch client
    /// --help' explains them [default: conflux, over as many circuits as the network recommends].
    #[arg(long, value_enum, value_name = "DESIGN", hide_possible_values = true)]
    design: Option<StreamDesign>,
    /// Keep the keys and the state of the network in folder DIR [default:
    /// ~/.local/state/anabranch/up].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print lines for torrc, then exit. With these lines, the Tor project's 'tor' program joins
    /// the network that 'anabranch up' has created in the folder of --data.
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    print_torrc: bool,
    /// Show this process as NAME in 'anabranch status', in the live view and in each line that it
    /// prints.
    #[arg(long, value_name = "NAME", value_parser = run_name)]
    name: Option<String>,
    /// Print events as JSON, one object per line (docs/formats.md).
    #[arg(long)]
    json: bool,
    /// Print only errors and warnings.
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
}

impl UpArgs {
    /// Runs the network until SIGINT or SIGTERM.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let data = self.data.clone().map_or_else(|| state_folder("up"), Ok)?;
        if self.print_torrc {
            let line = embedded::line(&data).map_err(|error| {
                Failure::misuse(format!(
                    "--print-torrc: there is no network in the folder of --data ({error}): start \
                     'anabranch up' once to create it"
                ))
            })?;
            println!("{}", torrc(&line));
            return Ok(());
        }
        let stop = stop_signals().map_err(Failure::trouble)?;
        let settings = self.settings(data)?;
        let socks = settings.listen[0];
        let name = self.name.clone();
        let posted = (PublishedStatus::named("up", name.as_deref(), None), name);
        let mut screen = Screen::of(posted, self.json, self.quiet).map_err(Failure::trouble)?;
        let json = self.json.then(|| Stamp::new(self.name.as_deref()));
        let mut watch = |event: EmbeddedEvent| match event {
            EmbeddedEvent::Client(event) => screen.report(with_cure(event)),
            other => report(&other, socks, json.as_ref(), &mut screen),
        };
        let nothing = "SIGHUP has no effect, because 'anabranch up' has no file of settings";
        let reload = Reload::new(Box::new(|| Err(nothing.to_owned()))).map_err(Failure::trouble)?;
        let reload = Some(reload.ending_with_terminal());
        embedded::run(settings, &stop, reload, &mut watch).map_err(failure)
    }

    fn settings(&self, data: PathBuf) -> Result<Settings, Failure> {
        let usual = LISTEN.parse().expect("the default address is valid");
        let listen = if self.listen.is_empty() { vec![usual] } else { self.listen.clone() };
        let rules =
            if self.exit.is_empty() { vec![LOOPBACK.to_owned()] } else { self.exit.clone() };
        Ok(Settings {
            data,
            listen,
            policy: ExitPolicy::parse(&rules).map_err(Failure::misuse)?,
            relays: RELAYS,
            exits: EXITS,
            interval: INTERVAL,
            platform: platform(),
            legs: self.design.and_then(|design| design.circuits(None)),
            design: self.design.and_then(StreamDesign::sets).unwrap_or_default(),
            udp_or: self.design.map_or(Ok(false), StreamDesign::is_lossy)?,
        })
    }
}

/// Adds advice to use `--exit` to `event`, if the event reports that an exit policy has refused a
/// request.
fn with_cure(event: client::ClientEvent) -> client::ClientEvent {
    match event {
        client::ClientEvent::Refused(refused) if refused.why == RefusalReason::Policy => {
            let cure = Some("start 'anabranch up' with --exit RULE to allow more");
            client::ClientEvent::Refused(RefusedRequest { cure, ..refused })
        }
        other => other,
    }
}

/// Returns the torrc lines with which C tor joins the network. `TestingTorNetwork` makes C tor
/// accept the network's short intervals and loopback addresses.
fn torrc(line: &str) -> String {
    format!("TestingTorNetwork 1\n{line}")
}

/// Prints an event of the network or of a node other than the client. With `json`, prints it as a
/// JSON object. Otherwise prints only the start of the network and warnings, on `screen`.
fn report(event: &EmbeddedEvent, socks: SocketAddr, json: Option<&Stamp>, screen: &mut Screen) {
    match (json.zip(value(event)), event) {
        (Some((stamp, value)), _) => {
            let mut out = std::io::stdout();
            // A failure means that standard output is closed, so nobody reads the line.
            let _ = writeln!(out, "{}", stamp.on(value)).and_then(|()| out.flush());
        }
        (None, EmbeddedEvent::Up(_)) => screen.print(&greeting(socks)),
        (None, EmbeddedEvent::Trouble(node, text)) => screen.warn(&format!("{node}: {text}")),
        _ => {}
    }
}

/// Returns an event as a JSON object; `None` for an event of the client.
fn value(event: &EmbeddedEvent) -> Option<Value> {
    Some(match event {
        EmbeddedEvent::Up(line) => json!({"event": "network", "authority": line}),
        EmbeddedEvent::Consensus(relays) => json!({"event": "consensus", "relays": relays}),
        EmbeddedEvent::Trouble(node, text) => {
            json!({"event": "trouble", "node": node, "what": text})
        }
        EmbeddedEvent::Client(_) => return None,
    })
}

fn greeting(socks: SocketAddr) -> String {
    format!(
        "an onion network is up: an authority and {RELAYS} relays. {EXITS} of them are exits, \
         which connect to destinations on this machine only; --exit allows other \
         destinations\ntry:  curl --socks5-hostname {socks} http://localhost:8000/\nwith  python3 \
         -m http.server 8000  in another terminal\nto join with the 'tor' program, give it the \
         torrc that this prints:  anabranch up --print-torrc"
    )
}

fn failure(error: EmbeddedError) -> Failure {
    match error {
        EmbeddedError::Node(..) | EmbeddedError::Authority(AuthorityError::System(_)) => {
            Failure::trouble(error)
        }
        EmbeddedError::Authority(_) | EmbeddedError::Store(_) => Failure::misuse(error),
    }
}
