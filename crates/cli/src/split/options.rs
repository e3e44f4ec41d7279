//! The settings as a user gives them, by flag or in a file: one list for both.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anabranch_comps::{EVERY, FAR_END_EVERY, FAR_END_SCHEDULE, Protocol, SCHEDULE};
use anabranch_multipath::schedule::{FAMILIES, Family, without_windows};
use anabranch_multipath::{DecoyBudget, Every, Jitter, Silence};
use anabranch_splitter::split::Target;
use anabranch_splitter::steer::PortRange;
use anabranch_splitter::wg_quick::PeerChoice;
use serde::Deserialize;

use super::forms;
use super::uplinks::PathChoice;
use super::values::{ANY, AUTO, AnySchedule, Mark, Named, PathParser, Span, Traffic, address};
use crate::status::run_name;
use crate::tls::Fingerprint;

/// Settings of the command line and of the file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Options {
    /// Receive clients' datagrams at this local address, such as 127.0.0.1:51820.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Ends", value_parser = address)]
    #[serde(deserialize_with = "forms::address")]
    pub(crate) listen: Option<SocketAddr>,

    /// Send to this server. A host name is resolved again for each session.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Ends")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) to: Option<Target>,

    /// Set the address of the far end ('anabranch merge') for paths that are TCP connections
    /// [default: the address of --to].
    ///
    /// If such a path goes through a proxy or ssh, the host name is resolved at its other end, not
    /// here.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Ends")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) to_tcp: Option<Target>,

    /// Create a network interface NAME and carry the traffic that programs send into it (needs
    /// root). This replaces --listen.
    ///
    /// Without --to, UDP to the ports of QUIC, WireGuard and Mosh is split, and each session goes
    /// to the server that its program addresses. With --to and --key, all IP packets go to a far
    /// end ('anabranch merge --tun'), which sends them on.
    #[arg(long, value_name = "NAME", help_heading = "Interface", conflicts_with = "listen")]
    pub(crate) tun: Option<String>,

    /// Route programs' traffic into the interface of --tun. Traffic that can be split is split;
    /// each other connection stays on one path.
    ///
    /// Without this option the splitter changes no routes. All changes are undone when the splitter
    /// stops; after a SIGKILL the next start or --restore undoes them. Needs the program nft.
    #[arg(long, help_heading = "Interface")]
    pub(crate) route: bool,

    /// Create a network namespace NAME (a separate network for chosen programs) and put the
    /// interface of --tun into it.
    ///
    /// Only programs started with 'anabranch exec NAME PROGRAM' use it.
    #[arg(long, value_name = "NAME", help_heading = "Interface")]
    pub(crate) netns: Option<String>,

    /// Also split UDP to these destination ports; repeat for more. Needs --tun, which always splits
    /// 443, 51820 and 60000-61000.
    #[arg(long, value_name = "PORT[-PORT]", help_heading = "Interface")]
    #[serde(deserialize_with = "forms::list")]
    pub(crate) udp: Vec<PortRange>,

    /// Use this name server in the namespace of --netns; repeat for more [default: this machine's].
    #[arg(long, value_name = "ADDRESS", help_heading = "Interface")]
    #[serde(deserialize_with = "forms::list")]
    pub(crate) dns: Vec<IpAddr>,

    // The help is made of the protocols' table.
    #[arg(long, value_name = "PROTOCOL", help_heading = "Ends")]
    #[arg(help = protocol(), long_help = protocols())]
    #[arg(value_parser = Named::<Traffic>::of(Traffic::names()))]
    #[arg(hide_possible_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) protocol: Option<Traffic>,

    /// Close a session after its client has been silent for TIME [default: 180s].
    #[arg(long, value_name = "TIME", help_heading = "Ends")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) idle: Option<Span>,

    /// Allow at most N sessions at the same time. A further session replaces the one that has been
    /// idle longest [default: 4096].
    #[arg(long, value_name = "N", help_heading = "Ends")]
    pub(crate) max_sessions: Option<NonZeroUsize>,

    /// Add a path: if:DEVICE (an interface), wg:FILE (a WireGuard tunnel that is up), addr:ADDRESS
    /// (a source address), ports:N (N source ports) or socks5:[USER@]HOST:PORT (a proxy); repeat
    /// for each path. "auto" adds a path for each interface with a route to other networks.
    ///
    /// A path may be a TCP connection to a far end ('anabranch merge --listen-tcp'): tcp:HOST:PORT
    /// (direct), socks5-tcp:[USER@]HOST:PORT or http:[USER@]HOST:PORT (through a proxy),
    /// ssh:[USER@]HOST[:PORT] (through OpenSSH), onion:N (N circuits of a Tor client).
    /// tls:HOST:PORT is a TLS connection to a far end with --listen-tls.
    ///
    /// Commas combine kinds: lte=if:wwan0,ports:4 is a path named lte by the interface wwan0 from
    /// four source ports.
    #[arg(long = "path", value_name = "NAME=KIND", help_heading = "Paths", value_parser = PathParser)]
    #[serde(rename = "path", deserialize_with = "forms::paths")]
    pub(crate) paths: Vec<PathChoice>,

    /// Allow two paths with the same interface and the same source address.
    ///
    /// An observer of that interface sees the traffic of both paths, as if they were one. By
    /// default such paths are refused.
    #[arg(long, help_heading = "Paths")]
    pub(crate) same_egress: bool,

    /// Use the Tor client with this SOCKS address for paths of the kind onion: (circuits of a Tor
    /// client) [default: 127.0.0.1:9050].
    ///
    /// The splitter sends a different SOCKS user name for each path, so the Tor client uses a
    /// different circuit for each.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Paths")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) onion_socks: Option<Target>,

    /// Accept the far end's TLS certificate on tls: paths if its SHA-256 is HEX. The far end
    /// ('anabranch merge --listen-tls') prints HEX.
    #[arg(long, value_name = "HEX", help_heading = "Paths", conflicts_with = "tls_ca")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) tls_fingerprint: Option<Fingerprint>,

    /// Accept the far end's TLS certificate on a path tls:HOST:PORT if a CA in this PEM file has
    /// signed it for HOST.
    #[arg(long, value_name = "FILE", help_heading = "Paths")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Drop a packet that waits longer than TIME for room in the send buffer of its path's TCP
    /// connection [default: 200ms].
    ///
    /// With a longer TIME, a connection whose send buffer is full delays packets instead of losing
    /// them. Paths of UDP packets are not affected.
    #[arg(long, value_name = "TIME", help_heading = "Paths")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) stream_age: Option<Span>,

    /// Set this firewall mark (SO_MARK; decimal or 0x...) on the packets that the splitter sends.
    /// Routing rules can then keep them out of a VPN that carries all other traffic.
    ///
    /// Needs CAP_NET_ADMIN. Not with --route, which sets a mark by itself.
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

    /// Choose the paths' random probabilities again after the client has sent nothing for SILENCE,
    /// such as 1s.
    ///
    /// By default a session keeps its probabilities until it ends. An observer who learns them
    /// during one page load then knows them for the next one. After SILENCE, --every grow:... and
    /// the schedule "evened" also start again as for new traffic; for these two the default is 1s.
    #[arg(long, value_name = "SILENCE", help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) redraw: Option<Silence>,

    /// Delay each datagram by a random time from RANGE, such as 0-20ms, before its path is chosen.
    /// The order of datagrams is kept.
    ///
    /// The delays add noise to what an observer of one path sees. Because the order is kept, a
    /// datagram also waits for those before it: each round trip becomes longer by almost the
    /// longest delay. At most 4,096 datagrams and 4 MiB of a session wait; beyond that, datagrams
    /// leave before their delay ends (counted as "hurried" in the output of --json). Only datagrams
    /// to the server are delayed. To delay the answers, use 'anabranch merge --jitter' at a far
    /// end.
    #[arg(long, value_name = "RANGE", help_heading = "Schedule", allow_hyphen_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) jitter: Option<Jitter>,

    /// Send the handshakes of QUIC and WireGuard, and DNS queries, by the path NAME.
    ///
    /// That path carries nothing else, unless --scheduled lists it, too.
    #[arg(long, value_name = "NAME", help_heading = "Schedule")]
    pub(crate) handshake: Option<String>,

    /// Split over these paths only [default: all paths but that of --handshake].
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',', help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::some_commas")]
    pub(crate) scheduled: Option<Vec<String>>,

    /// Let one QUIC connection use at most N four-tuples (addresses and ports of client and server)
    /// [default: 4].
    ///
    /// Each source port of each path makes one. Servers forget or refuse a connection that arrives
    /// from too many addresses.
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub(crate) quic_tuples: Option<NonZeroUsize>,

    /// Put the server's datagrams in order when it changes the path: hold those of the new path
    /// until the old path brings no more, for at most TIME [default: no holding].
    ///
    /// Without this option, datagrams of the new path overtake those still queued on the old one.
    /// QUIC and TCP then slow down as if datagrams were lost. 30ms suits most paths
    /// (docs/notes/quic-migration.md).
    #[arg(long, value_name = "TIME", help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) in_order: Option<Span>,

    /// Keep a path on which no answer has ever arrived, although another path has brought answers.
    ///
    /// Such a path either loses everything, or the server sends all its answers by the other one.
    /// By default the splitter sends a copy of that path's datagrams by the answering path, and
    /// drops the silent path after 3 s. With WireGuard and Mosh the path is dropped even with this
    /// option: their servers answer on every path that works.
    #[arg(long, help_heading = "Schedule")]
    pub(crate) keep_silent_paths: bool,

    /// Set the seed of the random choices, so that they repeat those of an earlier start with the
    /// same seed [default: a random seed, which is printed].
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub(crate) seed: Option<u64>,

    /// Send all traffic encrypted to a far end ('anabranch merge') at the address of --to. FILE has
    /// the keys; 'anabranch key' makes it.
    ///
    /// The observer of one path then cannot infer from gaps in visible packet numbers how much the
    /// other paths carried (docs/guide/far-end.md).
    #[arg(long, value_name = "FILE", help_heading = "Far end")]
    pub(crate) key: Option<PathBuf>,

    /// Send to the server NAME behind the far end, if that has several: 'anabranch merge --to
    /// NAME=HOST:PORT'. Needs --key.
    #[arg(long, value_name = "NAME", help_heading = "Far end")]
    pub(crate) behind: Option<String>,

    /// Pad each packet to the smallest of these lengths that fits, in bytes of UDP payload, such as
    /// 640,1280. Needs --key [default: no padding].
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', help_heading = "Far end")]
    #[serde(deserialize_with = "forms::commas")]
    pub(crate) pad: Vec<u16>,

    /// Send decoy packets on paths that are idle. Their bytes are at most PERCENT (such as 10%) of
    /// the bytes that this splitter really sends. Needs --key.
    ///
    /// Decoys copy the lengths and intervals of real packets, so that an observer cannot
    /// distinguish them; the far end drops them. The far end's own decoys have their own limit
    /// ('anabranch merge --decoys'). Cannot be used with schedules that use congestion windows,
    /// such as pull.
    #[arg(long, value_name = "PERCENT", help_heading = "Far end", allow_hyphen_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) decoys: Option<DecoyBudget>,

    /// Split the WireGuard tunnel of this wg-quick file, whose Endpoint is the server. Prints the
    /// lines of FILE that you have to change.
    ///
    /// Listens on 127.0.0.1, at the Endpoint's port or a free one, unless --listen is given.
    #[arg(long, value_name = "FILE", conflicts_with = "tun", help_heading = "WireGuard")]
    pub(crate) wg: Option<PathBuf>,

    /// Write a copy of the --wg file with the changed lines to FILE; - prints it. The copy contains
    /// the tunnel's private key, so only its owner can read it.
    #[arg(long, value_name = "FILE", help_heading = "WireGuard")]
    pub(crate) write: Option<PathBuf>,

    /// Let --write replace an existing file.
    #[arg(long, help_heading = "WireGuard")]
    pub(crate) overwrite: bool,

    /// Choose the peer of the --wg file by public key or position (1, 2, ...), if several have an
    /// Endpoint.
    #[arg(long, value_name = "KEY|N", help_heading = "WireGuard")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) peer: Option<PeerChoice>,

    /// Show this splitter as NAME in 'anabranch status', in the live view and in each line that it
    /// prints.
    #[arg(long, value_name = "NAME", help_heading = "Output", value_parser = run_name)]
    #[serde(deserialize_with = "forms::name")]
    pub(crate) name: Option<String>,

    /// Print events as JSON, one object per line (docs/formats.md).
    #[arg(long, help_heading = "Output", conflicts_with = "quiet")]
    pub(crate) json: bool,

    /// Print only warnings.
    #[arg(long, help_heading = "Output")]
    pub(crate) quiet: bool,

    /// Print the counters every 5 s even if the output goes to the systemd journal. By default they
    /// are printed to terminals and files only.
    #[arg(long, short, help_heading = "Output", conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// Serve counters for Prometheus at http://ADDRESS:PORT/metrics (docs/formats.md).
    ///
    /// Anyone who can reach that address can read how much is sent and when, but no addresses of
    /// clients or servers. Use 127.0.0.1 if possible.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Output", value_parser = address)]
    #[serde(deserialize_with = "forms::address")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Write to FILE what the observer of each path sees, one row for each datagram (Parquet;
    /// docs/formats.md). 'anabranch report FILE' shows it.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace: Option<PathBuf>,

    /// Write the packets of each path to DIR/NAME.pcapng, for Wireshark; DIR is created if
    /// necessary.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) pcap: Option<PathBuf>,

    /// Start a new --pcap file after MB megabytes (10^6 bytes): NAME_00001.pcapng, ...
    #[arg(long, value_name = "MB", help_heading = "Output")]
    pub(crate) pcap_size: Option<NonZeroUsize>,

    /// Keep only the newest N --pcap files of each path; needs --pcap-size.
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) pcap_files: Option<NonZeroUsize>,

    /// Let --trace and --pcap replace existing files.
    #[arg(long, help_heading = "Output")]
    pub(crate) replace: bool,
}

impl Options {
    /// Returns these settings, completed by those of `file`. A list of paths replaces the file's
    /// list.
    pub(crate) fn over(self, file: Options) -> Options {
        Options {
            listen: self.listen.or(file.listen),
            to: self.to.or(file.to),
            to_tcp: self.to_tcp.or(file.to_tcp),
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
            onion_socks: self.onion_socks.or(file.onion_socks),
            tls_fingerprint: self.tls_fingerprint.or(file.tls_fingerprint),
            tls_ca: self.tls_ca.or(file.tls_ca),
            stream_age: self.stream_age.or(file.stream_age),
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

/// Returns the help text of `--every` in one line.
fn every() -> String {
    format!(
        "Choose a path again after LENGTH: a number of packets (50p), a time (100ms) or never. \
         ~50p and ~100ms are random lengths with this average; 50-70p and 80-120ms are random \
         lengths in this range. With grow:10-100ms the length is 10 ms when traffic begins after a \
         pause, and grows to 100 ms while traffic continues [default: {EVERY}, with a far end \
         {FAR_END_EVERY}; schedules that were published with a length, such as batched, use that \
         length]"
    )
}

/// Returns the long help text of `--every`, with the cost of short runs.
fn prices() -> String {
    format!(
        "{}\n\nSpeed: with runs of 100ms, WireGuard and Mosh lose no speed over paths of similar \
         delay. QUIC servers keep 13 to 76 % of their speed with 100ms, and 81 to 96 % with 1s \
         (docs/guide/quic.md).\n\nPrivacy: k-FP and MiniRocket are attacks that recognise web \
         pages by the traffic of one path. With runs of 100ms and an unmodified server, k-FP \
         recognises 18 % of page loads on a random path and 30 % on the path with most packets. \
         With runs of 1s these are 39 and 72 %. MiniRocket with more training recognises 51 % on \
         the path with most packets, with runs of 100ms (docs/guide/quic.md).",
        every()
    )
}

/// Returns the help text of `--protocol` in one line.
fn protocol() -> String {
    let names: Vec<&str> = Traffic::names().filter(|name| *name != ANY).collect();
    let names = names.join(", ");
    format!("Set the protocol of the clients' sessions: {names}, or {ANY} [default: {AUTO}].")
}

/// Returns the long help text of `--protocol`.
fn protocols() -> String {
    format!(
        "{}\n\n\"{AUTO}\" recognises the protocol from the first datagrams of a session. \
         \"{ANY}\" splits every session, whatever its protocol. For AmneziaWG write \"{}\".",
        protocol(),
        Protocol::WireGuard.name()
    )
}

/// Returns the help text of `--schedule` in one line.
fn schedule() -> String {
    format!(
        "Choose the path of each run (a group of consecutive packets) by SCHEDULE, such as \
         round-robin (--help lists them) [default: {SCHEDULE}, with a far end \
         {FAR_END_SCHEDULE}]"
    )
}

/// Returns the long help text of `--schedule`, with all families.
fn schedules() -> String {
    let line = |family: &Family| format!("{}: {}", family.syntax, family.about);
    let lines: Vec<_> = without_windows().map(line).collect();
    let others = FAMILIES.iter().filter(|family| family.needs_windows).map(line);
    format!(
        "Choose the path of each run (a group of consecutive packets) by SCHEDULE [default: \
         {SCHEDULE} without a far end, {FAR_END_SCHEDULE} with one].\n\n{}\n\nWith a far end \
         ('anabranch split --key') there are more schedules. They use each path's congestion \
         window, so the bandwidths of all paths add up. But an observer of one path can see how \
         busy the other paths are (docs/guide/far-end.md):\n\n{}",
        lines.join("\n"),
        others.collect::<Vec<_>>().join("\n")
    )
}
