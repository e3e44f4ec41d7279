//! The settings as a user gives them, by flag or in a file: one list for both.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anabranch_comps::{EVERY, FAR_END_EVERY, FAR_END_SCHEDULE, SCHEDULE};
use anabranch_drive::split::Target;
use anabranch_drive::steer::PortRange;
use anabranch_drive::wg_quick::PeerChoice;
use anabranch_multipath::schedule::{FAMILIES, Family, without_windows};
use anabranch_multipath::{DecoyBudget, Every, Jitter, Silence};
use serde::Deserialize;

use super::forms;
use super::uplinks::PathChoice;
use super::values::{AnySchedule, Mark, Named, PathParser, Span, Traffic, address};
use crate::status::run_name;

/// Everything that both the command line and a file may set.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Options {
    /// Where clients send their datagrams, such as 127.0.0.1:51820
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Ends", value_parser = address)]
    #[serde(deserialize_with = "forms::address")]
    pub(crate) listen: Option<SocketAddr>,

    /// The server; a name is resolved anew for each session
    #[arg(long, value_name = "HOST:PORT", help_heading = "Ends")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) to: Option<Target>,

    /// Instead of --listen and --to: an interface of this name takes the datagrams of any program
    /// (root)
    ///
    /// UDP to the ports of QUIC, WireGuard and Mosh is split, each session to the server that its
    /// program names. With --to and --key all packets go to a far end with an interface of its own.
    #[arg(long, value_name = "NAME", help_heading = "Interface", conflicts_with = "listen")]
    pub(crate) tun: Option<String>,

    /// Lead traffic into the interface: what can be split is, each other flow is pinned to one path
    ///
    /// Without it no route changes. All is undone at the end; after a SIGKILL by the next start, or
    /// by --restore. Needs the program nft.
    #[arg(long, help_heading = "Interface")]
    pub(crate) route: bool,

    /// Make the interface in a network namespace of this name, which is made too: programs started
    /// there ('anabranch exec NAME PROGRAM') use it, and no others
    #[arg(long, value_name = "NAME", help_heading = "Interface")]
    pub(crate) netns: Option<String>,

    /// Split UDP to these ports too; repeat for more [443, 51820 and 60000-61000 always]
    #[arg(long, value_name = "PORT[-PORT]", help_heading = "Interface")]
    #[serde(deserialize_with = "forms::list")]
    pub(crate) udp: Vec<PortRange>,

    /// A name server for the namespace; repeat for more [default: this machine's]
    #[arg(long, value_name = "ADDRESS", help_heading = "Interface")]
    #[serde(deserialize_with = "forms::list")]
    pub(crate) dns: Vec<IpAddr>,

    /// What the sessions carry: auto, wireguard, quic, mosh, or any [default: auto]
    ///
    /// "auto" looks at the first datagrams; "any" splits without looking.
    #[arg(long, value_name = "PROTOCOL", help_heading = "Ends", hide_possible_values = true)]
    #[arg(value_parser = Named::<Traffic>::of(Traffic::NAMES))]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) protocol: Option<Traffic>,

    /// A session whose client is silent for so long is closed [default: 180s]
    #[arg(long, value_name = "TIME", help_heading = "Ends")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) idle: Option<Span>,

    /// Sessions at once; one more closes the one that was idle longest [default: 4096]
    #[arg(long, value_name = "N", help_heading = "Ends")]
    pub(crate) max_sessions: Option<NonZeroUsize>,

    /// A path: if:DEVICE, wg:FILE, addr:ADDRESS, ports:N or socks5:[USER@]HOST:PORT, combined by
    /// commas; repeat for each path. "auto": all of this machine's uplinks
    #[arg(long = "path", value_name = "NAME=KIND", help_heading = "Paths", value_parser = PathParser)]
    #[serde(rename = "path", deserialize_with = "forms::paths")]
    pub(crate) paths: Vec<PathChoice>,

    /// Allow two paths with the same interface and the same source address
    ///
    /// To an observer there they are one path, so this is refused otherwise.
    #[arg(long, help_heading = "Paths")]
    pub(crate) same_egress: bool,

    /// Mark our own packets (SO_MARK; decimal or 0x...), for routing rules that keep them out of a
    /// full tunnel
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

    /// Draw the schedule anew after each silence of a session that is so long, such as 1s
    ///
    /// Otherwise chances that a schedule draws (weighted) are kept for all of a session's life, and
    /// what is learnt of them in one page load holds in the next. A silence is one of the client;
    /// runs that grow and the pull of evened begin anew after it, too [there: 1s if not given].
    #[arg(long, value_name = "SILENCE", help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) redraw: Option<Silence>,

    /// Delay each datagram before the split by a time drawn from this range, such as 0-20ms; none
    /// overtakes another
    ///
    /// What an observer sees of a path gets noise that no share of it can give. It costs nearly its
    /// longest delay in each round trip. At most 4,096 datagrams and 4 MiB of a session wait; what
    /// is more leaves early and is counted (hurried). Answers are delayed only by a far end that
    /// has the option, too.
    #[arg(long, value_name = "RANGE", help_heading = "Schedule", allow_hyphen_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) jitter: Option<Jitter>,

    /// The path that the handshakes of QUIC and WireGuard and DNS queries take
    ///
    /// It carries nothing else, unless --scheduled lists it too.
    #[arg(long, value_name = "NAME", help_heading = "Schedule")]
    pub(crate) handshake: Option<String>,

    /// The paths of the schedule [default: all but the --handshake path]
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',', help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::some_commas")]
    pub(crate) scheduled: Option<Vec<String>>,

    /// Four-tuples (paths times ports) that one QUIC connection may use [default: 4]
    ///
    /// Servers forget or refuse a connection that comes from too many addresses.
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub(crate) quic_tuples: Option<NonZeroUsize>,

    /// Hold what comes by a path until the path before has fallen silent, at most so long
    ///
    /// Otherwise what still stands in the queues of the path that a server has left is overtaken by
    /// what comes by the next, and QUIC and TCP slow down as if it were lost. 30ms suits most paths
    /// (docs/notes/quic-migration.md).
    #[arg(long, value_name = "TIME", help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) in_order: Option<Span>,

    /// Repeat the choices of another run [default: drawn from the system, and shown]
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub(crate) seed: Option<u64>,

    /// The server of --to is a far end of ours ('anabranch merge'), and this file has our keys and
    /// its ('anabranch key' makes it)
    ///
    /// Then all is encrypted anew, and no path shows what went by another (docs/guide/far-end.md).
    #[arg(long, value_name = "FILE", help_heading = "Far end")]
    pub(crate) key: Option<PathBuf>,

    /// The server that is wanted behind the far end, by the name that it has there
    #[arg(long, value_name = "NAME", help_heading = "Far end")]
    pub(crate) behind: Option<String>,

    /// Make packets as long as the least of these lengths that they fit into, in bytes of UDP
    /// payload
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', help_heading = "Far end")]
    #[serde(deserialize_with = "forms::commas")]
    pub(crate) pad: Vec<u16>,

    /// Send decoy runs by paths that rest, with at most so many bytes for each byte carried, such
    /// as 10%
    ///
    /// A decoy run has the lengths and distances of a run that was really sent, and the far end
    /// drops it: an observer cannot tell it. Each end has a budget of its own. Not with schedules
    /// that look at windows.
    #[arg(long, value_name = "PERCENT", help_heading = "Far end", allow_hyphen_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) decoys: Option<DecoyBudget>,

    /// Split the tunnel of this wg-quick file: its Endpoint is the server, and what has to change
    /// in it is shown
    ///
    /// Listens on 127.0.0.1, at the Endpoint's port or a free one, unless --listen says otherwise.
    #[arg(long, value_name = "FILE", conflicts_with = "tun", help_heading = "WireGuard")]
    pub(crate) wg: Option<PathBuf>,

    /// Write the changed file, keys included, for its owner alone to read; - prints it
    #[arg(long, value_name = "FILE", help_heading = "WireGuard")]
    pub(crate) write: Option<PathBuf>,

    /// Let --write replace a file
    #[arg(long, help_heading = "WireGuard")]
    pub(crate) overwrite: bool,

    /// The peer to split towards, by public key or place in the file, where several have an
    /// Endpoint
    #[arg(long, value_name = "KEY|N", help_heading = "WireGuard")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) peer: Option<PeerChoice>,

    /// Name this run, for 'anabranch status NAME'
    #[arg(long, value_name = "NAME", help_heading = "Output", value_parser = run_name)]
    #[serde(deserialize_with = "forms::name")]
    pub(crate) name: Option<String>,

    /// Tell events as JSON, one object a line (docs/formats.md)
    #[arg(long, help_heading = "Output", conflicts_with = "quiet")]
    pub(crate) json: bool,

    /// Tell only warnings
    #[arg(long, help_heading = "Output")]
    pub(crate) quiet: bool,

    /// Tell the counters every 5 s in the journal too, where they are left out otherwise
    #[arg(long, short, help_heading = "Output", conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// Serve counters to Prometheus at http://ADDRESS:PORT/metrics (docs/formats.md)
    ///
    /// Whoever reaches that address reads how much is sent and when, though not by or to whom:
    /// 127.0.0.1 is a good choice.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Output", value_parser = address)]
    #[serde(deserialize_with = "forms::address")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Write what each observer sees, a row for each datagram (Parquet; docs/formats.md)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace: Option<PathBuf>,

    /// Write the packets of each path to DIR/NAME.pcapng; DIR is made where it is missing
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) pcap: Option<PathBuf>,

    /// Begin another file after this many megabytes (10^6 bytes): NAME_00001.pcapng, ...
    #[arg(long, value_name = "MB", help_heading = "Output")]
    pub(crate) pcap_size: Option<NonZeroUsize>,

    /// Keep only this many files of each path, the newest; needs --pcap-size
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) pcap_files: Option<NonZeroUsize>,

    /// Let --trace and --pcap replace files
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
        "Length of a run: packets (50p), time (100ms) or never; ~50p and ~100ms are random with that \
         mean, 50-70p and 80-120ms random in that range, grow:10-100ms short after a silence and \
         then growing [default: {EVERY}, with a far end \
         {FAR_END_EVERY}, or what the schedule's authors published]"
    )
}

/// Help on `--every`: what it costs.
fn prices() -> String {
    format!(
        "{}\n\n100ms costs WireGuard and Mosh nothing over paths of like delay. QUIC servers keep \
         13 to 76 % of their speed at 100ms and 81 to 96 % at 1s (docs/guide/quic.md). At 100ms, \
         by an unaltered server, k-FP recognises 18 % of page loads from one path at random, 35 % \
         from the fullest, rocket 51 % (docs/results/schedules.md); by a server that changes paths \
         at once k-FP finds 12 and 22 % at 100ms, 38 and 70 % at 1s \
         (docs/results/fingerprinting.md).",
        every()
    )
}

/// Help on `--schedule` in a line.
fn schedule() -> String {
    format!(
        "Who names the path of the next run, such as round-robin (--help lists them) [default: \
         {SCHEDULE}, with a far end {FAR_END_SCHEDULE}]"
    )
}

/// Help on `--schedule`: every family.
fn schedules() -> String {
    let line = |family: &Family| format!("{}: {}", family.syntax, family.about);
    let lines: Vec<_> = without_windows().map(line).collect();
    let others = FAMILIES.iter().filter(|family| family.needs_windows).map(line);
    format!(
        "Who names the path of the next run [default: {SCHEDULE}, with a far end \
         {FAR_END_SCHEDULE}]\n\n{}\n\nWith a far end (--key) also, by each path's window (a leg is a path); they add paths up, and tell the observer of \
         one how full the others are (docs/guide/far-end.md):\n\n{}",
        lines.join("\n"),
        others.collect::<Vec<_>>().join("\n")
    )
}
