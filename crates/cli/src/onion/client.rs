//! `anabranch client`: SOCKS and HTTP CONNECT proxy to the onion network.

use std::net::SocketAddr;
use std::path::PathBuf;

use anabranch_multipath::schedule::{Spec, SpecError};
use anabranch_multipath::seed;
use anabranch_onion::circuitmux;
use anabranch_onion::conflux::{Design, LegScheduler};
use anabranch_onion::directory::network::RelayRestrictions;
use anabranch_onion::padding::Amount;
use anabranch_onion::wire::ancestors::DEALING;
use anabranch_os::entropy::generator;
use anabranch_router::onion::client::{self, Changes, ClientEvent, ClientMetrics, Settings};
use anabranch_router::onion::dirclient::{self, DirClient};
use anabranch_router::onion::reload::{Names, Reload, ReloadedSettings};
use anabranch_router::onion::stop_signals;
use anabranch_router::onion::store::claim;
use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::bridges::Bridges;
use super::link::{self, LinkKind, LinkOptions, SegmentControl, tapped};
use super::reread::{Source, common, names, reread};
use super::screen::Screen;
use super::{Common, either, fingerprints, memory, read};
use crate::failure::Failure;
use crate::split::check_file;
use crate::split::forms;
use crate::split::no_metrics;

/// Default address at which programs connect to the proxy. It is C tor's default address with
/// another port, so that C tor can run at the same time.
const LISTEN: &str = "127.0.0.1:9250";
/// Maximum number of circuits in a set (circuits that carry the same streams together), if the
/// consensus sets no other limit.
const MOST_LEGS: usize = 8;
/// Default number of circuits for a stream with mudp-or.
const MUDP_OR_LEGS: usize = 2;
/// Default of `--memory`, in megabytes.
const MEMORY_MB: usize = 256;
/// Minimum of the memory limit in megabytes. One set (circuits that carry the same streams
/// together) may hold 1 MB of cells that arrived before earlier cells.
const LEAST_MEMORY_MB: usize = 4;
/// Text at the end of `--help`.
const FILES: &str = "\
EXAMPLES
  Join the network whose DirAuthority lines are in network.txt, and use it with curl:
    anabranch client --authorities network.txt
    curl --proxy socks5h://127.0.0.1:9250 http://example.net/

  With the settings in a file:
    anabranch client client.toml

NOT SUPPORTED YET
  A control port for programs such as nyx and stem: use the live view, --json or --metrics instead.
  Onion services (names that end in .onion).

ENVIRONMENT
  JOURNAL_STREAM   set by systemd. Lines then begin with their priority
  NOTIFY_SOCKET    set by systemd. The client notifies it when ready and when stopping

FILES
  ~/.local/state/anabranch/client                guards and the list of relays (--data)
  /usr/share/doc/anabranch/examples/client.toml   example of a file with all settings";
/// Keys that a settings file of `anabranch client` may contain.
pub(super) const KEYS: &[&str] = &[
    "listen",
    "entry",
    "middle",
    "exit",
    "exclude",
    "bridge",
    "pt",
    "share-subnets",
    "padding",
    "legs",
    "multipath",
    "design",
    "udp-or-congestion",
    "schedule",
    "every",
    "redraw",
    "extended-errors",
    "memory",
    "link",
    "metrics",
    "trace",
    "replace",
];

/// Carry programs' connections through an onion network, as a SOCKS and HTTP CONNECT proxy.
///
/// The client speaks the Tor protocol with the network of the given authorities. It carries the
/// connections of programs over circuits. A circuit is a path over three relays; its first relay
/// is called a guard. Programs may send host names by SOCKS5 and SOCKS4a (socks5h in curl), and
/// Tor's commands RESOLVE and RESOLVE_PTR. Connections with different SOCKS users or passwords
/// never share a circuit. The client keeps its guards and the list of relays in the folder of
/// --data.
///
/// On a terminal the client shows a live view of its guards and circuits. Otherwise it prints one
/// line for each event.
///
/// Every option can be a key of a TOML file. On SIGHUP the client reads that file and
/// --authorities again. It then prints which changed settings apply now, and which apply only
/// after a restart. If the file has an error, nothing changes. Open connections continue. SIGINT,
/// SIGTERM and the end of its terminal stop the client.
#[derive(Args, Clone, Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
#[command(after_long_help = FILES)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
    /// Accept connections from programs at this address, by SOCKS5, SOCKS4a and HTTP CONNECT
    /// (repeatable) [default: 127.0.0.1:9250].
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(deserialize_with = "forms::list")]
    listen: Vec<SocketAddr>,
    /// Use only this relay as the first relay (guard) of circuits. Repeat the option to allow more
    /// relays. FINGERPRINT is 40 hexadecimal digits. Cannot be used with --bridge.
    ///
    /// If you allow only a few relays, observers can recognise your traffic by your choice of
    /// relays.
    #[arg(long, value_name = "FINGERPRINT", value_delimiter = ',')]
    #[serde(deserialize_with = "forms::commas")]
    entry: Vec<String>,
    /// Use only this relay in the middle of circuits. Repeat the option to allow more relays.
    /// FINGERPRINT is 40 hexadecimal digits.
    #[arg(long, value_name = "FINGERPRINT", value_delimiter = ',')]
    #[serde(deserialize_with = "forms::commas")]
    middle: Vec<String>,
    /// Use only this relay as the last relay (exit) of circuits. Repeat the option to allow more
    /// relays. FINGERPRINT is 40 hexadecimal digits.
    #[arg(long, value_name = "FINGERPRINT", value_delimiter = ',')]
    #[serde(deserialize_with = "forms::commas")]
    exit: Vec<String>,
    /// Never use this relay (repeatable). FINGERPRINT is 40 hexadecimal digits.
    #[arg(long, value_name = "FINGERPRINT", value_delimiter = ',')]
    #[serde(deserialize_with = "forms::commas")]
    exclude: Vec<String>,
    /// Enter the network only through a bridge (repeatable). LINE is `[TRANSPORT] ADDRESS:PORT
    /// [FINGERPRINT] [ed25519:KEY] [KEY=VALUE ...]`, as after the word Bridge in torrc.
    ///
    /// A bridge is a first relay that no public list names. If you give several bridges, the
    /// client uses the first one that it can reach. A TRANSPORT camouflages the connection to the
    /// bridge. The transport 'anabranch' is built in; all others need --pt.
    #[arg(long, value_name = "LINE")]
    #[serde(deserialize_with = "forms::list")]
    bridge: Vec<String>,
    /// Set the program for a pluggable transport that a --bridge line names (repeatable). 'NAME
    /// exec PROGRAM ARGS' starts PROGRAM; 'NAME socks5 ADDRESS:PORT' uses a program that already
    /// runs. LINE has the form of the words after ClientTransportPlugin in torrc.
    #[arg(long, value_name = "LINE")]
    #[serde(deserialize_with = "forms::list")]
    pt: Vec<String>,
    /// Choose the amount of padding on idle connections to guards (the first relays of circuits)
    /// [default: full].
    ///
    /// Padding hides pauses in your traffic from the flow records (such as NetFlow) that routers
    /// keep.
    #[arg(long, value_enum, value_name = "AMOUNT")]
    padding: Option<Padding>,
    /// Allow circuits with two relays of the same /16 network. Use this only for test networks on
    /// one machine.
    #[arg(long)]
    share_subnets: bool,
    /// Split each stream (connection to a destination) over N circuits, 1 to 8 [default: as many
    /// as the network recommends, usually 2].
    ///
    /// Each circuit has its own first relay (guard) and middle relay. More circuits are faster,
    /// and each guard sees only a part of your traffic. But N guards know your address instead of
    /// one.
    #[arg(long, value_name = "N")]
    legs: Option<usize>,
    /// Choose the protocol that splits a stream over several circuits and joins it again: conflux,
    /// anabranch, merged, conflux-2013, conflux-2013-vegas, mtor or mtor-vegas [default: conflux].
    ///
    /// conflux is the protocol of today's Tor. The circuits join at the exit (the last relay). If
    /// a circuit breaks while it carries data, its streams end. With anabranch, streams continue
    /// when a circuit breaks; the exit must run Anabranch. With merged, streams also continue, but
    /// the circuits join at a middle relay, which must run Anabranch; the exit can be any relay.
    /// conflux-2013 and mtor are older protocols, for comparison; the exit must run Anabranch.
    /// Their congestion windows have a fixed size. The names that end in -vegas are the same
    /// protocols with today's congestion control.
    #[arg(long, value_name = "DESIGN")]
    multipath: Option<String>,
    /// Choose how streams are carried: tor, conflux, conflux-2013, mtor, merged, anabranch, udp-or
    /// or mudp-or (the last two are experimental) [default: as --legs and --multipath choose].
    ///
    /// With tor, a stream has one circuit. The next five names are protocols of --multipath. With
    /// udp-or, a stream is a TCP connection between this client and the exit (the last relay).
    /// Relays forward the segments of this connection in datagrams, which may be lost or overtake
    /// each other. So a stream never waits for the data of another stream. The first byte arrives
    /// after one round trip. The relays must run with --udp-or, and are connected by QUIC.
    ///
    /// mudp-or distributes the segments over several circuits with the same exit. --legs sets the
    /// number of circuits (2 by default). --schedule and --every set the distribution (round-robin
    /// by default). With the schedulers round-robin and uniform, TCP has one congestion window for
    /// all circuits, as in the paper that proposed mUDP-OR. With eta and other schedulers that use
    /// congestion windows, each circuit has its own window. This option cannot be used with
    /// --multipath or --bridge.
    #[arg(long, value_enum, value_name = "DESIGN", hide_possible_values = true)]
    design: Option<StreamDesign>,
    /// Set the congestion control for data that you send with --design udp-or or --design mudp-or,
    /// which run TCP between you and the exit (the last relay) [default: bbr]. For data that you
    /// receive, the setting of the exit applies.
    #[arg(long, value_parser = SegmentControl::parser(), value_name = "NAME")]
    udp_or_congestion: Option<SegmentControl>,
    /// Set the scheduler: the rule that chooses the circuit for each part of a stream that is
    /// split over several circuits. 'anabranch split --help' lists the schedulers. By default,
    /// with --multipath conflux or anabranch the exit (last relay) chooses the scheduler. The
    /// other values of --multipath have a scheduler of their own.
    ///
    /// This scheduler applies to the data that you send. It also applies to the data that you
    /// receive, except with --multipath conflux: then the exit chooses the scheduler of this data.
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,
    /// Choose a circuit again, by the rule of --schedule, after LENGTH: a number of cells (Tor's
    /// packets), such as 50p, or a time, such as 100ms. Needs --schedule [default: 1p].
    #[arg(long, value_name = "LENGTH")]
    every: Option<String>,
    /// Draw again the random probabilities with which --schedule chooses among the circuits of a
    /// stream, after these circuits have been idle for SILENCE, such as 1s. This applies only to
    /// data that you send. Needs --schedule.
    #[arg(long, value_name = "SILENCE")]
    redraw: Option<String>,
    /// Report problems with onion services to SOCKS5 programs by Tor's own error codes, such as
    /// F0. Browsers made for Tor understand these codes.
    #[arg(long)]
    extended_errors: bool,
    /// Limit the memory for queued cells (Tor's packets) to MB megabytes, 4 or more [default:
    /// 256].
    ///
    /// The limit includes cells that wait for earlier cells of the same stream from another
    /// circuit. Above half of the limit, the client pauses the streams that have such cells. At
    /// the limit it closes circuits, first those whose cells have waited longest or that hold most
    /// cells.
    #[arg(long, value_name = "MB")]
    memory: Option<usize>,
    /// Choose the kind of connection to a guard (the first relay of a circuit). With several
    /// kinds, the client uses the first one that the guard supports [default: tls].
    ///
    /// With utls and quic, a lost packet of one circuit does not delay the other circuits. But the
    /// guard can see that this client is a program of Anabranch.
    #[arg(
        long,
        value_parser = link::client_kinds(),
        value_name = "KIND,...",
        value_delimiter = ','
    )]
    #[serde(deserialize_with = "link::kinds")]
    link: Vec<LinkKind>,
    /// Serve traffic counters to Prometheus at http://ADDRESS:PORT/metrics (docs/formats.md).
    ///
    /// Anyone who can reach that address can read how much you send, when, and over how many
    /// circuits. Relays and destinations are not shown. Use 127.0.0.1 if possible.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Record in FILE what each guard (first relay of a circuit) sees. The file is a Parquet table
    /// with one row for each cell (Tor's packet) of each circuit (docs/formats.md). 'anabranch
    /// report FILE' makes an HTML page of the table.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Let --trace replace a file that already exists.
    #[arg(long)]
    replace: bool,
}

/// Design that carries streams: a composition of link, circuit and multi-path layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StreamDesign {
    /// One circuit, as in Tor.
    Tor,
    /// Several circuits, joined as in today's Tor (proposal 329).
    Conflux,
    /// Several circuits, joined as in Conflux of 2013.
    #[value(name = "conflux-2013")]
    #[serde(rename = "conflux-2013")]
    Conflux2013,
    /// Several circuits, joined as in mTor.
    Mtor,
    /// Several circuits that join at a middle relay.
    Merged,
    /// Several circuits, joined by our own design. Streams continue when a circuit breaks.
    Anabranch,
    /// UDP-OR: TCP between client and exit, over a lossy circuit.
    UdpOr,
    /// mUDP-OR: TCP between client and exit, over several lossy circuits.
    MudpOr,
    /// MORE, a path for each packet, which has no circuits.
    More,
}

impl StreamDesign {
    /// Returns the design's name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            StreamDesign::Tor => "tor",
            StreamDesign::Conflux => "conflux",
            StreamDesign::Conflux2013 => "conflux-2013",
            StreamDesign::Mtor => "mtor",
            StreamDesign::Merged => "merged",
            StreamDesign::Anabranch => "anabranch",
            StreamDesign::UdpOr => "udp-or",
            StreamDesign::MudpOr => "mudp-or",
            StreamDesign::More => "more",
        }
    }

    /// Returns the protocol that splits streams over several circuits and joins them again.
    /// Returns `None` for a design with a single circuit, with lossy circuits, or without
    /// circuits.
    pub(super) fn sets(self) -> Option<Design> {
        match self {
            StreamDesign::Conflux
            | StreamDesign::Conflux2013
            | StreamDesign::Mtor
            | StreamDesign::Merged
            | StreamDesign::Anabranch => self.name().parse().ok(),
            _ => None,
        }
    }

    /// Returns whether streams use lossy circuits, which may lose or reorder cells.
    ///
    /// # Errors
    /// The design has no circuits.
    pub(super) fn is_lossy(self) -> Result<bool, Failure> {
        match self {
            StreamDesign::UdpOr | StreamDesign::MudpOr => Ok(true),
            StreamDesign::More => Err(Failure::misuse(
                "--design more: MORE has no circuits, so this command cannot use it: run a node \
                 of MORE with 'anabranch more run'",
            )),
            _ => Ok(false),
        }
    }

    /// Returns the number of circuits for a stream; `None` for the network's recommendation.
    /// `legs` is the number that the user requests.
    pub(super) fn circuits(self, legs: Option<usize>) -> Option<usize> {
        match self {
            StreamDesign::Tor | StreamDesign::UdpOr => Some(1),
            StreamDesign::MudpOr => legs.or(Some(MUDP_OR_LEGS)),
            _ => legs,
        }
    }
}

/// Amount of padding on idle links (connections to guards).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Padding {
    /// As much padding as the network asks for.
    Full,
    /// Less padding than the network asks for.
    Reduced,
    /// No padding.
    Off,
}

impl From<Padding> for Amount {
    fn from(padding: Padding) -> Amount {
        match padding {
            Padding::Full => Amount::Full,
            Padding::Reduced => Amount::Reduced,
            Padding::Off => Amount::Off,
        }
    }
}

impl ClientArgs {
    /// Runs the client until SIGINT or SIGTERM.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let flags = self.clone();
        let args = self.merged()?;
        // Capabilities are dropped before the first thread starts, because each thread would keep
        // them.
        let links = args.links()?;
        let taps = links.taps(1);
        let tap_line = tapped(&taps);
        let stop = stop_signals().map_err(Failure::trouble)?;
        let rng = generator().map_err(Failure::trouble)?;
        let data = args.common.data("client")?;
        let claim = claim(&data).map_err(Failure::misuse)?;
        let authorities = args.common.authorities()?;
        let bridges = args.bridges()?;
        let restrictions = args.restrictions()?;
        // Invalid options are reported before any external program is started.
        let (metrics, listen) = (args.metrics()?, args.listening());
        let entrance = bridges.map(|bridges| bridges.start(&data)).transpose()?;
        let routes = entrance.as_ref().map(|entrance| entrance.routes.clone());
        let dirclient = dirclient::Settings {
            authorities: authorities.clone(),
            data: data.clone(),
            share_subnets: args.share_subnets,
            keys: None,
            cache: false,
            dir_requests: true,
            bridges: routes.iter().flat_map(|routes| routes.bridges().to_vec()).collect(),
            unpublished: false,
        };
        let dirclient_rng = generator().map_err(Failure::trouble)?;
        let dirclient = DirClient::start(dirclient, dirclient_rng).map_err(Failure::misuse)?;
        let settings = Settings {
            listen,
            dirclient,
            data,
            restrictions,
            routes,
            padding: args.amount(),
            extended_errors: args.extended_errors,
            memory: args.memory()?,
            circuitmux: circuitmux::Kind::default(),
            legs: args.circuits()?,
            design: args.design_of_sets()?,
            dealing: args.dealing()?,
            tap: taps.into_iter().next(),
            links: links.over_tcp,
            quic: links.quic,
            udp_or: args.is_udp_or()?,
            trace: args.trace()?,
        };
        let posted = (
            args.common.run_status("client", flags.common.file.as_deref()),
            args.common.name.clone(),
        );
        let mut screen =
            Screen::of(posted, args.common.json, args.common.quiet).map_err(Failure::trouble)?;
        for text in tap_line.into_iter().chain(claim.tightened.iter().cloned()) {
            screen.report(ClientEvent::Trouble(text));
        }
        let mut notify = |event: ClientEvent| {
            let exposed = metrics.as_ref().and_then(|metrics| metrics.note(&event));
            screen.report(event);
            exposed.into_iter().for_each(|text| screen.report(ClientEvent::Trouble(text)));
        };
        let file = flags.common.file.clone();
        let mut source = Source { flags, running: args, authorities };
        let reload = Reload::new(reread(file, move || source.read())).map_err(Failure::trouble)?;
        let reload = Some(reload.ending_with_terminal());
        let done = client::run_rereading(settings, rng, &stop, reload, &mut notify);
        done.map_err(Failure::misuse)
    }

    /// Returns the settings of links (connections to guards).
    ///
    /// # Errors
    /// `--link` is invalid, or lacks what `--design` needs.
    fn links(&self) -> Result<LinkOptions, Failure> {
        let options = LinkOptions::of_client(&self.link)?;
        match self.is_udp_or()? {
            true => options.with_lossy("the chosen --design", &self.link, self.udp_or_congestion),
            false => Ok(options),
        }
    }

    /// Returns whether streams use lossy circuits, which may lose or reorder cells. Only
    /// `--design` udp-or and mudp-or use such circuits.
    ///
    /// # Errors
    /// An option is given that this design does not support.
    fn is_udp_or(&self) -> Result<bool, Failure> {
        let is_lossy = self.design.map_or(Ok(false), StreamDesign::is_lossy)?;
        if !is_lossy && self.udp_or_congestion.is_some() {
            let message =
                "--udp-or-congestion needs --design udp-or or --design mudp-or: add one of them";
            return Err(Failure::misuse(message.to_owned()));
        }
        let Some(design) = self.design else { return Ok(false) };
        let is_single = matches!(design, StreamDesign::Tor | StreamDesign::UdpOr);
        let joins = match is_lossy {
            true => "its circuits may lose data, which no protocol of --multipath retransmits",
            false => "the design already determines how circuits are joined",
        };
        let lacks = "with this design each stream uses one circuit";
        let unfit = [
            ("--multipath", joins, self.multipath.is_some()),
            (
                "--bridge",
                "connections to bridges carry no datagrams",
                is_lossy && !self.bridge.is_empty(),
            ),
            ("--legs", lacks, is_single && self.legs.is_some_and(|legs| legs != 1)),
            ("--schedule", lacks, is_single && self.schedule.is_some()),
        ];
        if let Some((option, why, _)) = unfit.into_iter().find(|(.., is_given)| *is_given) {
            return Err(Failure::misuse(format!(
                "--design {} cannot be used with {option}, because {why}: remove one of the two",
                design.name()
            )));
        }
        if !is_lossy {
            return Ok(false);
        }
        let windows = self.dealing()?.filter(|dealing| dealing.schedule.family().needs_windows);
        let SegmentControl(control) = self.udp_or_congestion.unwrap_or_default();
        if let Some(dealing) = windows.filter(|_| !control.supports_legs()) {
            return Err(Failure::misuse(format!(
                "--schedule {} needs a congestion window for each circuit, but {} has one window \
                 for all circuits: use --udp-or-congestion bbr, or --schedule round-robin",
                dealing.schedule,
                control.name()
            )));
        }
        Ok(true)
    }

    /// Returns the number of circuits for a stream; `None` for the network's recommendation.
    ///
    /// # Errors
    /// `--legs` is invalid.
    fn circuits(&self) -> Result<Option<usize>, Failure> {
        let legs = self.legs()?;
        Ok(self.design.map_or(legs, |design| design.circuits(legs)))
    }

    fn bridges(&self) -> Result<Option<Bridges>, Failure> {
        if !self.bridge.is_empty() && !self.entry.is_empty() {
            let message = "--entry cannot be used with --bridge, because bridges are then the \
                           first relays of circuits: remove one of the two";
            return Err(Failure::misuse(message));
        }
        Bridges::read(&self.bridge, &self.pt)
    }

    fn listening(&self) -> Vec<SocketAddr> {
        let usual = LISTEN.parse().expect("the default address is valid");
        if self.listen.is_empty() { vec![usual] } else { self.listen.clone() }
    }

    pub(super) fn restrictions(&self) -> Result<RelayRestrictions, Failure> {
        Ok(RelayRestrictions {
            entry: fingerprints("--entry", &self.entry)?,
            middle: fingerprints("--middle", &self.middle)?,
            exit: fingerprints("--exit", &self.exit)?,
            exclude: fingerprints("--exclude", &self.exclude)?,
        })
    }

    /// Returns the number of circuits that carry the same streams together (the legs of a set);
    /// `None` for the network's recommendation.
    ///
    /// # Errors
    /// The number is not from 1 to [`MOST_LEGS`].
    fn legs(&self) -> Result<Option<usize>, Failure> {
        match self.legs {
            Some(legs) if !(1..=MOST_LEGS).contains(&legs) => Err(Failure::misuse(format!(
                "--legs {legs}: write the number of circuits for each stream, 1 to {MOST_LEGS}"
            ))),
            legs => Ok(legs),
        }
    }

    fn memory(&self) -> Result<usize, Failure> {
        memory(self.memory.unwrap_or(MEMORY_MB), LEAST_MEMORY_MB)
    }

    /// Serves the client's counters, if `--metrics` is given.
    ///
    /// # Errors
    /// No socket can listen on the address.
    fn metrics(&self) -> Result<Option<ClientMetrics>, Failure> {
        let Some(address) = self.metrics else { return Ok(None) };
        let cannot = |error: std::io::Error| no_metrics(address, &error);
        ClientMetrics::new(address, env!("CARGO_PKG_VERSION")).map(Some).map_err(cannot)
    }

    /// Returns the file for the trace of cells; `None` without a trace.
    ///
    /// # Errors
    /// The file could not be written at the end of the program, or it exists and must not be
    /// replaced.
    fn trace(&self) -> Result<Option<PathBuf>, Failure> {
        self.trace.iter().try_for_each(|trace| check_file("trace", trace, self.replace))?;
        Ok(self.trace.clone())
    }

    /// Returns the protocol that splits and joins streams over several circuits, from
    /// `--multipath`.
    ///
    /// # Errors
    /// No design has the given name.
    fn design_of_sets(&self) -> Result<Design, Failure> {
        let design = self.multipath.as_deref().map(str::parse).transpose();
        let design = design.map_err(|error| Failure::misuse(format!("--multipath: {error}")))?;
        Ok(design.or(self.design.and_then(StreamDesign::sets)).unwrap_or_default())
    }

    /// Returns the scheduler, and the number of consecutive cells on one circuit, that the user
    /// requests; `None` without `--schedule`.
    ///
    /// # Errors
    /// No scheduler has the given name, or `--every` or `--redraw` is invalid.
    fn dealing(&self) -> Result<Option<LegScheduler>, Failure> {
        let every = self.every.as_deref().unwrap_or("1p");
        let every = every.parse().map_err(|error| Failure::misuse(format!("--every: {error}")))?;
        let redraw = self.redraw.as_deref().map(str::parse).transpose();
        let redraw = redraw.map_err(|error| Failure::misuse(format!("--redraw: {error}")))?;
        let Some(name) = &self.schedule else {
            return match (&self.every, &self.redraw) {
                (None, None) => Ok(None),
                (Some(_), _) => Err(Failure::misuse("--every needs --schedule: add --schedule")),
                (None, Some(_)) => {
                    Err(Failure::misuse("--redraw needs --schedule: add --schedule"))
                }
            };
        };
        let wrong = |error: SpecError| Failure::misuse(format!("--schedule: {error}"));
        let schedule = Spec::over_windows(name).map_err(wrong)?;
        schedule.build(MOST_LEGS, seed::stream(0, 0, "schedule")).map_err(wrong)?;
        let dealing = LegScheduler { schedule, every, redraw };
        if dealing.to_string().len() > DEALING {
            let most = format!(
                "--schedule and --every together are too long: the exit (last relay) accepts at \
                 most {DEALING} characters: shorten them"
            );
            return Err(Failure::misuse(most));
        }
        Ok(Some(dealing))
    }

    fn amount(&self) -> Amount {
        self.padding.map(Amount::from).unwrap_or_default()
    }

    /// Returns the names of the settings that differ from `old`, the settings in force. The result
    /// separates settings that apply at once from settings that need a restart.
    fn names(&self, old: &ClientArgs, authorities: bool) -> Names {
        let live = [
            ("authorities", authorities),
            ("entry", self.entry != old.entry),
            ("middle", self.middle != old.middle),
            ("exit", self.exit != old.exit),
            ("exclude", self.exclude != old.exclude),
            ("share-subnets", self.share_subnets != old.share_subnets),
            ("padding", self.padding != old.padding),
            ("legs", self.legs != old.legs),
            ("memory", self.memory != old.memory),
        ];
        let fixed = [
            ("listen", self.listen != old.listen),
            ("bridge", self.bridge != old.bridge),
            ("pt", self.pt != old.pt),
            ("multipath", self.multipath != old.multipath),
            ("design", self.design != old.design),
            ("udp-or-congestion", self.udp_or_congestion != old.udp_or_congestion),
            ("schedule", self.schedule != old.schedule),
            ("every", self.every != old.every),
            ("redraw", self.redraw != old.redraw),
            ("extended-errors", self.extended_errors != old.extended_errors),
            ("link", self.link != old.link),
            ("metrics", self.metrics != old.metrics),
            ("trace", self.trace != old.trace),
            ("replace", self.replace != old.replace),
        ];
        names(&live, &[&fixed[..], &common(&old.common, &self.common)].concat())
    }

    /// Returns these settings, but with the values of `old` for settings whose change needs a
    /// restart.
    fn over_fixed(self, common: Common, old: &ClientArgs) -> ClientArgs {
        ClientArgs {
            common,
            listen: old.listen.clone(),
            bridge: old.bridge.clone(),
            pt: old.pt.clone(),
            extended_errors: old.extended_errors,
            multipath: old.multipath.clone(),
            design: old.design,
            udp_or_congestion: old.udp_or_congestion,
            schedule: old.schedule.clone(),
            every: old.every.clone(),
            redraw: old.redraw.clone(),
            link: old.link.clone(),
            metrics: old.metrics,
            trace: old.trace.clone(),
            replace: old.replace,
            ..self
        }
    }

    /// Returns the flags, with the settings of the file for flags that were not given.
    fn merged(mut self) -> Result<ClientArgs, Failure> {
        let Some(path) = self.common.file.take() else { return Ok(self) };
        let file: ClientArgs = read(&path, KEYS)?;
        Ok(ClientArgs {
            common: self.common.or(file.common),
            listen: either(self.listen, file.listen),
            entry: either(self.entry, file.entry),
            middle: either(self.middle, file.middle),
            exit: either(self.exit, file.exit),
            exclude: either(self.exclude, file.exclude),
            bridge: either(self.bridge, file.bridge),
            pt: either(self.pt, file.pt),
            share_subnets: self.share_subnets || file.share_subnets,
            extended_errors: self.extended_errors || file.extended_errors,
            padding: self.padding.or(file.padding),
            legs: self.legs.or(file.legs),
            multipath: self.multipath.or(file.multipath),
            design: self.design.or(file.design),
            udp_or_congestion: self.udp_or_congestion.or(file.udp_or_congestion),
            schedule: self.schedule.or(file.schedule),
            every: self.every.or(file.every),
            redraw: self.redraw.or(file.redraw),
            memory: self.memory.or(file.memory),
            link: either(self.link, file.link),
            metrics: self.metrics.or(file.metrics),
            trace: self.trace.or(file.trace),
            replace: self.replace || file.replace,
        })
    }
}

impl Source<ClientArgs> {
    /// Reads the settings from flags and file again.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    fn read(&mut self) -> Result<ReloadedSettings<Changes>, Failure> {
        let new = self.flags.clone().merged()?;
        let authorities = new.common.authorities()?;
        let is_new = authorities != self.authorities;
        let names = new.names(&self.running, is_new);
        new.design_of_sets()?;
        new.is_udp_or()?;
        let (restrictions, padding, legs) = (new.restrictions()?, new.amount(), new.circuits()?);
        let memory = new.memory()?;
        let subnets = new.share_subnets;
        let trust = (is_new || subnets != self.running.share_subnets)
            .then(|| (authorities.clone(), subnets));
        let common = new.common.clone().over_fixed(&self.running.common);
        self.running = new.over_fixed(common, &self.running);
        self.authorities = authorities;
        Ok(ReloadedSettings {
            settings: Changes { restrictions, padding, legs, memory, trust },
            names,
        })
    }
}

#[cfg(test)]
mod tests {
    use anabranch_onion::LossyCongestion;

    use super::*;

    #[test]
    fn udp_or_opens_quic_links_and_is_refused_with_several_circuits_or_bridges() {
        let udp_or = || ClientArgs { design: Some(StreamDesign::UdpOr), ..ClientArgs::default() };
        let quic = udp_or().links().ok().and_then(|links| links.quic);
        assert_eq!(quic.and_then(|quic| quic.lossy), Some(LossyCongestion::BBR));
        assert_eq!(ClientArgs::default().links().ok().map(|links| links.quic), Some(None));
        for (args, option) in [
            (ClientArgs { multipath: Some("mtor".to_owned()), ..udp_or() }, "--multipath"),
            (ClientArgs { legs: Some(2), ..udp_or() }, "--legs"),
            (ClientArgs { bridge: vec!["192.0.2.1:443".to_owned()], ..udp_or() }, "--bridge"),
            (ClientArgs { link: vec![LinkKind::Utls], ..udp_or() }, "--link"),
        ] {
            let refused = args.links().unwrap_err().to_string();
            assert!(refused.contains(option), "{refused}");
        }
        let several = |schedule: &str| ClientArgs {
            design: Some(StreamDesign::MudpOr),
            schedule: Some(schedule.to_owned()),
            ..ClientArgs::default()
        };
        assert_eq!(several("uniform").is_udp_or().ok(), Some(true));
        assert_eq!(several("uniform").circuits().ok(), Some(Some(2)));
        assert_eq!(several("eta").is_udp_or().ok(), Some(true));
        let cubic = Some(SegmentControl(LossyCongestion::CUBIC));
        let unsound = ClientArgs { udp_or_congestion: cubic, ..several("eta") };
        let refused = unsound.is_udp_or().unwrap_err().to_string();
        assert!(
            refused.contains("--schedule eta needs a congestion window for each circuit"),
            "{refused}"
        );
        let published = ClientArgs { udp_or_congestion: cubic, ..several("round-robin") };
        let quic = published.links().ok().and_then(|links| links.quic);
        assert_eq!(quic.and_then(|quic| quic.lossy), Some(LossyCongestion::CUBIC));
        let alone = ClientArgs { udp_or_congestion: cubic, ..ClientArgs::default() };
        assert!(alone.links().unwrap_err().to_string().contains("--design udp-or"));
        let alone = ClientArgs { legs: Some(1), link: vec![LinkKind::Quic], ..udp_or() };
        assert!(alone.links().is_ok());
    }

    #[test]
    fn each_design_is_a_composition_and_an_unsound_mix_names_the_layer() {
        let of = |name: &str| ClientArgs {
            design: Some(StreamDesign::from_str(name, false).unwrap()),
            ..ClientArgs::default()
        };
        for (name, legs, sets, is_lossy) in [
            ("tor", Some(1), "conflux", false),
            ("conflux", None, "conflux", false),
            ("conflux-2013", None, "conflux-2013", false),
            ("mtor", None, "mtor", false),
            ("merged", None, "merged", false),
            ("anabranch", None, "anabranch", false),
            ("udp-or", Some(1), "conflux", true),
            ("mudp-or", Some(2), "conflux", true),
        ] {
            let args = of(name);
            assert_eq!(args.design.map(StreamDesign::name), Some(name));
            assert_eq!(args.circuits().ok(), Some(legs), "{name}");
            assert_eq!(args.design_of_sets().ok().map(Design::name), Some(sets));
            assert_eq!(args.is_udp_or().ok(), Some(is_lossy), "{name}");
        }
        let three = ClientArgs { legs: Some(3), ..of("merged") };
        assert_eq!((three.circuits().ok(), three.is_udp_or().ok()), (Some(Some(3)), Some(false)));
        let multipath = Some("mtor".to_owned());
        let schedule = Some("eta".to_owned());
        for (args, words) in [
            (of("more"), "MORE has no circuits"),
            (ClientArgs { legs: Some(2), ..of("tor") }, "each stream uses one circuit"),
            (ClientArgs { schedule, ..of("tor") }, "each stream uses one circuit"),
            (ClientArgs { multipath: multipath.clone(), ..of("mtor") }, "already determines how"),
            (ClientArgs { multipath, ..of("mudp-or") }, "its circuits may lose data"),
        ] {
            let refused = args.links().unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn a_design_is_known_by_its_name_and_what_an_exit_is_told_is_short() {
        let design = |name: &str| {
            ClientArgs { multipath: Some(name.to_owned()), ..ClientArgs::default() }
                .design_of_sets()
        };
        assert_eq!(ClientArgs::default().design_of_sets().ok(), Some(Design::Conflux));
        assert_eq!(design("mtor").ok().map(Design::name), Some("mtor"));
        let refused = design("tor").unwrap_err().to_string();
        assert!(
            refused.starts_with("--multipath: there is no multi-path design 'tor'"),
            "{refused}"
        );
        let weights = ["0.1234567890123456789012345"; 8].join(",");
        let schedule = Some(format!("weights:{weights}"));
        let long = ClientArgs { schedule, ..ClientArgs::default() }.dealing().unwrap_err();
        assert!(long.to_string().contains("200 characters"), "{long}");
    }
}
