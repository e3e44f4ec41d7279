//! The settings as a user gives them, by flag or in a file: one list for both.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anabranch_comps::{EVERY, FAR_END_EVERY, FAR_END_SCHEDULE, SCHEDULE};
use anabranch_multipath::schedule::{FAMILIES, Family, without_windows};
use anabranch_multipath::{DecoyBudget, Every, Jitter, Silence};
use anabranch_splitter::split::Target;
use anabranch_splitter::steer::PortRange;
use anabranch_splitter::wg_quick::PeerChoice;
use serde::Deserialize;

use super::forms;
use super::uplinks::PathChoice;
use super::values::{AnySchedule, Mark, Named, PathParser, Span, Traffic, address};
use crate::status::run_name;

/// Settings of the command line and of the file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Options {
    /// Listen for clients at this address, such as 127.0.0.1:51820.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Ends", value_parser = address)]
    #[serde(deserialize_with = "forms::address")]
    pub(crate) listen: Option<SocketAddr>,

    /// Send to this server; a name is resolved again for each session.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Ends")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) to: Option<Target>,

    /// Make an interface of this name for the datagrams of any program, instead of --listen and
    /// --to (root).
    ///
    /// UDP to the ports of QUIC, WireGuard and Mosh is split, each session to the server that its
    /// program names. With --to and --key all packets go to a far end that has an interface too.
    #[arg(long, value_name = "NAME", help_heading = "Interface", conflicts_with = "listen")]
    pub(crate) tun: Option<String>,

    /// Route traffic into the interface: split what can be split, and pin each other flow to one
    /// path.
    ///
    /// Without this option no route changes. Everything is undone when the run ends; after a
    /// SIGKILL by the next start, or by --restore. Needs the program nft.
    #[arg(long, help_heading = "Interface")]
    pub(crate) route: bool,

    /// Make a network namespace of this name and put the interface into it. Only programs started
    /// there ('anabranch exec NAME PROGRAM') use it.
    #[arg(long, value_name = "NAME", help_heading = "Interface")]
    pub(crate) netns: Option<String>,

    /// Split UDP to these ports too; repeat for more [443, 51820 and 60000-61000 always].
    #[arg(long, value_name = "PORT[-PORT]", help_heading = "Interface")]
    #[serde(deserialize_with = "forms::list")]
    pub(crate) udp: Vec<PortRange>,

    /// Use this name server in the namespace; repeat for more [default: this machine's].
    #[arg(long, value_name = "ADDRESS", help_heading = "Interface")]
    #[serde(deserialize_with = "forms::list")]
    pub(crate) dns: Vec<IpAddr>,

    /// Set the protocol of the sessions: auto, wireguard, quic, mosh, or any [default: auto].
    ///
    /// "auto" looks at the first datagrams; "any" splits whatever they are. AmneziaWG is
    /// "wireguard".
    #[arg(long, value_name = "PROTOCOL", help_heading = "Ends", hide_possible_values = true)]
    #[arg(value_parser = Named::<Traffic>::of(Traffic::names()))]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) protocol: Option<Traffic>,

    /// Close a session after its client has been silent for TIME [default: 180s].
    #[arg(long, value_name = "TIME", help_heading = "Ends")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) idle: Option<Span>,

    /// Allow N sessions at once; one more closes the session idle for the longest time [default:
    /// 4096].
    #[arg(long, value_name = "N", help_heading = "Ends")]
    pub(crate) max_sessions: Option<NonZeroUsize>,

    /// Add a path: if:DEVICE, wg:FILE, addr:ADDRESS, ports:N or socks5:[USER@]HOST:PORT, combined
    /// by commas; repeat for each path. "auto" adds all of this machine's uplinks.
    #[arg(long = "path", value_name = "NAME=KIND", help_heading = "Paths", value_parser = PathParser)]
    #[serde(rename = "path", deserialize_with = "forms::paths")]
    pub(crate) paths: Vec<PathChoice>,

    /// Allow two paths with the same interface and the same source address.
    ///
    /// For an observer there they are one path, so this is refused otherwise.
    #[arg(long, help_heading = "Paths")]
    pub(crate) same_egress: bool,

    /// Mark our own packets (SO_MARK; decimal or 0x...), for routing rules that keep them out of a
    /// full tunnel.
    ///
    /// Needs CAP_NET_ADMIN. Not with --route, which marks them by itself.
    #[arg(long, value_name = "MARK", help_heading = "Paths")]
    #[serde(deserialize_with = "forms::mark")]
    pub(crate) fwmark: Option<Mark>,

    // The help is made of the families and of the core's default.
    #[arg(long, value_name = "SCHEDULE", help_heading = "Schedule", help = schedule(), long_help = schedules())]
    #[arg(value_parser = Named::<AnySchedule>::of(FAMILIES.iter().map(|family| family.name)))]
    #[arg(hide_possible_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) schedule: Option<AnySchedule>,

    // The help is made of the core's default.
    #[arg(long, value_name = "LENGTH", help_heading = "Schedule", help = every(), long_help = prices())]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) every: Option<Every>,

    /// Draw the schedule again after the session has been idle for SILENCE, such as 1s.
    ///
    /// Without it a session keeps its probabilities (weighted) for its whole life, and what an
    /// observer learns about them in one page load is true in the next. Idle means that the client
    /// sends nothing. Runs that grow, and the preference of evened, restart after it too [for
    /// these: 1s if not given].
    #[arg(long, value_name = "SILENCE", help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) redraw: Option<Silence>,

    /// Delay each datagram before the split by a random time from this range, such as 0-20ms; none
    /// overtakes another.
    ///
    /// This adds noise to what an observer of one path sees. It costs almost the longest delay in
    /// each round trip. At most 4,096 datagrams and 4 MiB of a session wait; beyond that they leave
    /// early and are counted (hurried). Answers are delayed only by a far end with this option.
    #[arg(long, value_name = "RANGE", help_heading = "Schedule", allow_hyphen_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) jitter: Option<Jitter>,

    /// Send handshakes of QUIC and WireGuard, and DNS queries, by this path.
    ///
    /// It carries nothing else, unless --scheduled lists it too.
    #[arg(long, value_name = "NAME", help_heading = "Schedule")]
    pub(crate) handshake: Option<String>,

    /// Use these paths for the schedule [default: all but the --handshake path].
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',', help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::some_commas")]
    pub(crate) scheduled: Option<Vec<String>>,

    /// Let one QUIC connection use N four-tuples (paths times ports) [default: 4].
    ///
    /// Servers forget or refuse a connection that arrives from too many addresses.
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub(crate) quic_tuples: Option<NonZeroUsize>,

    /// Hold datagrams of a new path until the previous path is silent, for at most TIME.
    ///
    /// Otherwise datagrams of the new path overtake those still queued on the old one, and QUIC and
    /// TCP slow down as if datagrams were lost. 30ms suits most paths
    /// (docs/notes/quic-migration.md).
    #[arg(long, value_name = "TIME", help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) in_order: Option<Span>,

    /// Keep a path by which no answer ever comes, although only one other path has any.
    ///
    /// Either that path loses everything, or the server answers one address alone. By default the
    /// splitter sends what goes by that path by the answering one as well, and drops the path after
    /// 3 s. With WireGuard and Mosh the path is dropped even with this option: their servers answer
    /// by each path.
    #[arg(long, help_heading = "Schedule")]
    pub(crate) keep_silent_paths: bool,

    /// Repeat the random choices of another run [default: a random seed, printed].
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub(crate) seed: Option<u64>,

    /// Use a far end ('anabranch merge') at --to, with the keys in FILE ('anabranch key' makes it).
    ///
    /// Then everything is encrypted again, and no path reveals what the others carried
    /// (docs/guide/far-end.md).
    #[arg(long, value_name = "FILE", help_heading = "Far end")]
    pub(crate) key: Option<PathBuf>,

    /// Choose the server behind the far end by its name there.
    #[arg(long, value_name = "NAME", help_heading = "Far end")]
    pub(crate) behind: Option<String>,

    /// Pad packets to the smallest of these lengths that fits, in bytes of UDP payload.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', help_heading = "Far end")]
    #[serde(deserialize_with = "forms::commas")]
    pub(crate) pad: Vec<u16>,

    /// Send decoy runs on idle paths, with at most PERCENT of the bytes carried, such as 10%.
    ///
    /// A decoy run copies the lengths and intervals of a real run, and the far end drops it, so an
    /// observer cannot distinguish it. Each end has its own budget. Not with schedules that use
    /// windows.
    #[arg(long, value_name = "PERCENT", help_heading = "Far end", allow_hyphen_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) decoys: Option<DecoyBudget>,

    /// Split the tunnel of this wg-quick file: its Endpoint is the server, and the lines to change
    /// are printed.
    ///
    /// Listens on 127.0.0.1, at the Endpoint's port or a free one, unless --listen is given.
    #[arg(long, value_name = "FILE", conflicts_with = "tun", help_heading = "WireGuard")]
    pub(crate) wg: Option<PathBuf>,

    /// Write the changed file, keys included, readable by its owner only; - prints it.
    #[arg(long, value_name = "FILE", help_heading = "WireGuard")]
    pub(crate) write: Option<PathBuf>,

    /// Let --write replace a file.
    #[arg(long, help_heading = "WireGuard")]
    pub(crate) overwrite: bool,

    /// Choose the peer by public key or position in the file, if several have an Endpoint.
    #[arg(long, value_name = "KEY|N", help_heading = "WireGuard")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) peer: Option<PeerChoice>,

    /// Name this run, for 'anabranch status NAME'.
    #[arg(long, value_name = "NAME", help_heading = "Output", value_parser = run_name)]
    #[serde(deserialize_with = "forms::name")]
    pub(crate) name: Option<String>,

    /// Print events as JSON, one object a line (docs/formats.md).
    #[arg(long, help_heading = "Output", conflicts_with = "quiet")]
    pub(crate) json: bool,

    /// Print only warnings.
    #[arg(long, help_heading = "Output")]
    pub(crate) quiet: bool,

    /// Print the counters every 5 s in the journal, too (by default they are not).
    #[arg(long, short, help_heading = "Output", conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// Serve counters to Prometheus at http://ADDRESS:PORT/metrics (docs/formats.md).
    ///
    /// Anyone who reaches that address can read how much is sent and when, but not by whom or to
    /// whom. Use 127.0.0.1 if possible.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Output", value_parser = address)]
    #[serde(deserialize_with = "forms::address")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Write what each observer sees, one row for each datagram (Parquet; docs/formats.md).
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace: Option<PathBuf>,

    /// Write the packets of each path to DIR/NAME.pcapng; DIR is created if necessary.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) pcap: Option<PathBuf>,

    /// Begin another file after MB megabytes (10^6 bytes): NAME_00001.pcapng, ...
    #[arg(long, value_name = "MB", help_heading = "Output")]
    pub(crate) pcap_size: Option<NonZeroUsize>,

    /// Keep only the newest N files of each path; needs --pcap-size.
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) pcap_files: Option<NonZeroUsize>,

    /// Let --trace and --pcap replace files.
    #[arg(long, help_heading = "Output")]
    pub(crate) replace: bool,
}

impl Options {
    /// These settings where given, those of `file` elsewhere. A list of paths replaces the file's
    /// list.
    pub(crate) fn over(self, file: Options) -> Options {
        Options {
            listen: self.listen.or(file.listen),
            to: self.to.or(file.to),
            tun: self.tun.or(file.tun),
            route: self.route || file.route,
            netns: self.netns.or(file.netns),
            udp: if self.udp.is_empty() { file.udp } else { self.udp },
            dns: if self.dns.is_empty() { file.dns } else { self.dns },
            protocol: self.protocol.or(file.protocol),
            idle: self.idle.or(file.idle),
            max_sessions: self.max_sessions.or(file.max_sessions),
            paths: if self.paths.is_empty() { file.paths } else { self.paths },
            same_egress: self.same_egress || file.same_egress,
            fwmark: self.fwmark.or(file.fwmark),
            schedule: self.schedule.or(file.schedule),
            every: self.every.or(file.every),
            redraw: self.redraw.or(file.redraw),
            jitter: self.jitter.or(file.jitter),
            handshake: self.handshake.or(file.handshake),
            scheduled: self.scheduled.or(file.scheduled),
            quic_tuples: self.quic_tuples.or(file.quic_tuples),
            in_order: self.in_order.or(file.in_order),
            keep_silent_paths: self.keep_silent_paths || file.keep_silent_paths,
            seed: self.seed.or(file.seed),
            key: self.key.or(file.key),
            behind: self.behind.or(file.behind),
            pad: if self.pad.is_empty() { file.pad } else { self.pad },
            decoys: self.decoys.or(file.decoys),
            wg: self.wg.or(file.wg),
            write: self.write.or(file.write),
            overwrite: self.overwrite || file.overwrite,
            peer: self.peer.or(file.peer),
            name: self.name.or(file.name),
            json: self.json || (file.json && !self.quiet),
            quiet: self.quiet || (file.quiet && !self.json),
            verbose: self.verbose || file.verbose,
            metrics: self.metrics.or(file.metrics),
            trace: self.trace.or(file.trace),
            pcap: self.pcap.or(file.pcap),
            pcap_size: self.pcap_size.or(file.pcap_size),
            pcap_files: self.pcap_files.or(file.pcap_files),
            replace: self.replace || file.replace,
        }
    }
}

/// Help on `--every` in a line.
fn every() -> String {
    format!(
        "Set the length of a run: packets (50p), time (100ms) or never; ~50p and ~100ms are random \
         with that mean, 50-70p and 80-120ms random in that range, grow:10-100ms short after a \
         silence, then growing [default: {EVERY}, with a far end {FAR_END_EVERY}, or what the \
         schedule's authors published]"
    )
}

/// Help on `--every`: what it costs.
fn prices() -> String {
    format!(
        "{}\n\n100ms costs WireGuard and Mosh nothing over paths of similar delay. QUIC servers \
         keep \
         13 to 76 % of their speed at 100ms and 81 to 96 % at 1s (docs/guide/quic.md). At 100ms \
         with an unmodified server, k-FP recognises 18 % of page loads on a random path and 35 % \
         on the fullest; MiniRocket recognises 51 % there (docs/results/schedules.md). With a \
         server that switches at the same moment, k-FP recognises 12 and 22 % at 100ms, 38 and \
         70 % at 1s (docs/results/fingerprinting.md).",
        every()
    )
}

/// Help on `--schedule` in a line.
fn schedule() -> String {
    format!(
        "How to choose the path for each run (a group of consecutive packets), such as round-robin (--help lists them) \
         [default: {SCHEDULE}, with a far end {FAR_END_SCHEDULE}]"
    )
}

/// Help on `--schedule`: every family.
fn schedules() -> String {
    let line = |family: &Family| format!("{}: {}", family.syntax, family.about);
    let lines: Vec<_> = without_windows().map(line).collect();
    let others = FAMILIES.iter().filter(|family| family.needs_windows).map(line);
    format!(
        "How to choose the path for each run (a group of consecutive packets) [default: {SCHEDULE}, with a far end \
         {FAR_END_SCHEDULE}].\n\n{}\n\nWith a far end (--key) there are more, which use each \
         path's \
         window (a leg is a path). They combine the paths' bandwidth, and reveal on each path how \
         busy the others are (docs/guide/far-end.md):\n\n{}",
        lines.join("\n"),
        others.collect::<Vec<_>>().join("\n")
    )
}
