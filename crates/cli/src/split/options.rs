//! Settings of a splitter as the user writes them. One list of settings applies to options and to
//! the settings file.

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
use super::values::{
    ANY, AUTO, AnySchedule, Mark, NamedParser, PathParser, Span, Traffic, address,
};
use crate::status::run_name;
use crate::tls::Fingerprint;

/// Settings of the command line and of the file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Options {
    /// Receive datagrams from client programs at this local address, such as 127.0.0.1:51820.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    #[arg(help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::address")]
    pub(crate) listen: Option<SocketAddr>,

    /// Send the clients' datagrams to this server. With --key, HOST:PORT is the address of a far
    /// end (a server that runs 'anabranch merge'). The splitter looks up a host name again for
    /// each new session (the traffic between one client and the server).
    #[arg(long, value_name = "HOST:PORT", help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) to: Option<Target>,

    /// On paths that are TCP connections, connect to the far end ('anabranch merge') at this
    /// address [default: the address of --to].
    ///
    /// If a path leads through a proxy or ssh, that proxy or ssh server looks up the host name,
    /// not this machine.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) to_tcp: Option<Target>,

    /// Create a network interface NAME (needs root). Packets that programs send through this
    /// interface are carried over the paths. Cannot be used with --listen.
    ///
    /// Without --to, the splitter splits UDP traffic to the ports of QUIC, WireGuard and Mosh. It
    /// sends each packet to its destination address. With --to and --key, all IP packets go to a
    /// far end ('anabranch merge --tun'), which forwards them.
    #[arg(long, value_name = "NAME", help_heading = "Interface", conflicts_with = "listen")]
    pub(crate) tun: Option<String>,

    /// Route programs' traffic into the interface of --tun. QUIC, WireGuard and Mosh sessions are
    /// split; each other connection stays on one path.
    ///
    /// This option changes routes and firewall rules of this machine. When the splitter stops, it
    /// undoes these changes. After SIGKILL, its next start or --restore undoes them. Needs the
    /// program nft.
    #[arg(long, help_heading = "Interface")]
    pub(crate) route: bool,

    /// Create a network namespace NAME (a separate network for selected programs), and put the
    /// interface of --tun into it.
    ///
    /// Only programs that you start with 'anabranch exec NAME PROGRAM' use this namespace.
    #[arg(long, value_name = "NAME", help_heading = "Interface")]
    pub(crate) netns: Option<String>,

    /// Also split UDP traffic to this destination port or range of ports (repeatable). Needs
    /// --tun, which always splits UDP traffic to the ports 443, 51820 and 60000-61000.
    #[arg(long, value_name = "PORT[-PORT]", help_heading = "Interface")]
    #[serde(deserialize_with = "forms::list")]
    pub(crate) udp: Vec<PortRange>,

    /// Let programs in the namespace of --netns use the name server at this address (repeatable)
    /// [default: this machine's name servers].
    #[arg(long, value_name = "ADDRESS", help_heading = "Interface")]
    #[serde(deserialize_with = "forms::list")]
    pub(crate) dns: Vec<IpAddr>,

    // The help is made of the protocols' table.
    #[arg(long, value_name = "PROTOCOL", help_heading = "Clients and servers")]
    #[arg(help = protocol(), long_help = protocols())]
    #[arg(value_parser = NamedParser::<Traffic>::of(Traffic::names()))]
    #[arg(hide_possible_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) protocol: Option<Traffic>,

    /// Close a session (the traffic between one client and the server) when its client has sent
    /// nothing for TIME [default: 180s].
    #[arg(long, value_name = "TIME", help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) idle: Option<Span>,

    /// Keep at most N sessions at the same time. A session is the traffic between one client and
    /// the server. At the limit, when a new session begins, the splitter closes the session that
    /// has been idle longest [default: 4096].
    #[arg(long, value_name = "N", help_heading = "Clients and servers")]
    pub(crate) max_sessions: Option<NonZeroUsize>,

    /// Add a path called NAME (repeatable). KIND is `if:DEVICE` (through a network interface),
    /// `wg:FILE` (through a running WireGuard tunnel), `addr:ADDRESS` (from a source address),
    /// `ports:N` (from N source ports) or `socks5:[USER@]HOST:PORT` (through a SOCKS5 proxy).
    /// Write auto instead of NAME=KIND to add a path for each interface with a route to other
    /// networks.
    ///
    /// A path may also be a TCP connection to a server that runs 'anabranch merge --listen-tcp'.
    /// KIND is then `tcp:HOST:PORT` (direct), `socks5-tcp:[USER@]HOST:PORT` or
    /// `http:[USER@]HOST:PORT` (through a proxy), `ssh:[USER@]HOST[:PORT]` (through OpenSSH), or
    /// `onion:N` (N paths, each a circuit of a Tor client). `tls:HOST:PORT` is a TLS connection to
    /// a server that runs 'anabranch merge --listen-tls'.
    ///
    /// Commas combine kinds. For example, lte=if:wwan0,ports:4 is a path called lte that uses the
    /// interface wwan0 and four source ports.
    #[arg(long = "path", value_name = "NAME=KIND", help_heading = "Paths", value_parser = PathParser)]
    #[serde(rename = "path", deserialize_with = "forms::paths")]
    pub(crate) paths: Vec<PathChoice>,

    /// Allow two paths that have the same interface and the same source address.
    ///
    /// An observer of that interface then sees the traffic of both paths. Without this option the
    /// splitter refuses to start with such paths.
    #[arg(long, help_heading = "Paths")]
    pub(crate) same_egress: bool,

    /// Set the SOCKS address of the Tor client for paths of the kind onion:N. Each of these paths
    /// is a circuit of that client [default: 127.0.0.1:9050].
    ///
    /// The splitter sends a different SOCKS user name for each path, so the Tor client uses a
    /// different circuit for each.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Paths")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) onion_socks: Option<Target>,

    /// On paths of the kind tls:HOST:PORT, accept only the TLS certificate whose SHA-256 hash is
    /// HEX. The server at the other end, 'anabranch merge --listen-tls', prints HEX when it
    /// starts.
    #[arg(long, value_name = "HEX", help_heading = "Paths", conflicts_with = "tls_ca")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) tls_fingerprint: Option<Fingerprint>,

    /// On paths of the kind tls:HOST:PORT, accept the server's TLS certificate if a CA in this PEM
    /// file has signed it for HOST.
    #[arg(long, value_name = "FILE", help_heading = "Paths")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// On paths that are TCP connections, drop a packet when it has waited longer than TIME for
    /// room in the connection's send buffer [default: 200ms].
    ///
    /// With a longer TIME, a full send buffer delays more packets, and fewer are lost. Paths that
    /// use UDP are not affected.
    #[arg(long, value_name = "TIME", help_heading = "Paths")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) stream_age: Option<Span>,

    /// Set this firewall mark (SO_MARK; decimal or 0x...) on the packets that the splitter sends.
    /// A routing rule for this mark can keep them out of a VPN that carries all other traffic.
    ///
    /// Needs CAP_NET_ADMIN. Cannot be used with --route, which sets its own mark.
    #[arg(long, value_name = "MARK", help_heading = "Paths")]
    #[serde(deserialize_with = "forms::mark")]
    pub(crate) fwmark: Option<Mark>,

    // The help is made of the families and of the core's default.
    #[arg(long, value_name = "SCHEDULE", help_heading = "Schedule", help = schedule(), long_help = schedules())]
    #[arg(value_parser = NamedParser::<AnySchedule>::of(FAMILIES.iter().map(|family| family.name)))]
    #[arg(hide_possible_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) schedule: Option<AnySchedule>,

    // The help is made of the core's default.
    #[arg(long, value_name = "LENGTH", help_heading = "Schedule", help = every(), long_help = prices())]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) every: Option<Every>,

    /// Draw again the random probabilities with which --schedule chooses the paths, after the
    /// client has sent nothing for SILENCE, such as 1s.
    ///
    /// Without this option a session keeps its probabilities until it ends. An observer who learns
    /// them during one page load then knows them for the next page load. SILENCE is also the pause
    /// after which --every grow:... and --schedule evened begin again. For these two, SILENCE is
    /// 1s by default.
    #[arg(long, value_name = "SILENCE", help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) redraw: Option<Silence>,

    /// Delay each datagram by a random time from RANGE, such as 0-20ms, before its path is chosen.
    /// The order of the datagrams stays the same.
    ///
    /// The delays add noise to what an observer of one path sees. Because the order stays the
    /// same, a datagram also waits for earlier ones. So each round trip becomes longer by almost
    /// the longest delay in RANGE. At most 4,096 datagrams and 4 MiB of a session wait at a time.
    /// Beyond these limits the oldest datagrams leave before their delay ends; the output of
    /// --json counts them as "hurried". Only datagrams to the server are delayed. To delay the
    /// answers, use 'anabranch merge --jitter' on the server's side.
    #[arg(long, value_name = "RANGE", help_heading = "Schedule", allow_hyphen_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) jitter: Option<Jitter>,

    /// Send the handshakes of QUIC and WireGuard, and DNS queries, over the path NAME.
    ///
    /// This path carries other traffic only if --scheduled lists it too.
    #[arg(long, value_name = "NAME", help_heading = "Schedule")]
    pub(crate) handshake: Option<String>,

    /// Split the traffic over these paths only; NAME is a path's name in --path [default: all
    /// paths except the one of --handshake].
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',', help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::some_commas")]
    pub(crate) scheduled: Option<Vec<String>>,

    /// Send each QUIC connection from at most N combinations of source address and source port
    /// [default: 4].
    ///
    /// Each source port of each path is one combination. QUIC servers forget or refuse a
    /// connection whose packets arrive from too many combinations.
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub(crate) quic_tuples: Option<NonZeroUsize>,

    /// When the server begins to send its datagrams over another path, restore their order. The
    /// splitter holds back the datagrams that arrive on the new path until no more datagrams
    /// arrive on the old path, for at most TIME [default: hold back nothing].
    ///
    /// Without this option, datagrams from the new path overtake those that are still queued on
    /// the old path. QUIC and TCP then slow down, as they do when datagrams are lost. 30ms suits
    /// most paths (docs/notes/quic-migration.md).
    #[arg(long, value_name = "TIME", help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) in_order: Option<Span>,

    /// Keep using a path on which no answer has ever arrived, even if answers arrive on another
    /// path.
    ///
    /// The splitter cannot know whether such a silent path loses all datagrams, or the server
    /// prefers another path for its answers. Without this option, the splitter also sends a copy
    /// of each datagram of the silent path over a path with answers. After 3 s it stops using the
    /// silent path. With WireGuard and Mosh it stops even with this option, because their servers
    /// answer on every path that works.
    #[arg(long, help_heading = "Schedule")]
    pub(crate) keep_silent_paths: bool,

    /// Start the random number generator with the number N. A later start with the same N repeats
    /// the same random choices [default: a random number, which is printed].
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub(crate) seed: Option<u64>,

    /// Encrypt all traffic, and send it to a far end (a server that runs 'anabranch merge') at the
    /// address of --to. FILE contains the keys; 'anabranch key' creates it.
    ///
    /// WireGuard, for example, sends packet numbers unencrypted. From gaps in these numbers, an
    /// observer of one path can infer how much the other paths carried. With this option the
    /// numbers are encrypted (docs/guide/far-end.md).
    #[arg(long, value_name = "FILE", help_heading = "Far end")]
    pub(crate) key: Option<PathBuf>,

    /// Send to the server with this name, if the far end ('anabranch merge') forwards to several
    /// servers. The far end sets the names with --to NAME=HOST:PORT. Needs --key.
    #[arg(long, value_name = "NAME", help_heading = "Far end")]
    pub(crate) behind: Option<String>,

    /// Pad each packet to the smallest of these lengths into which it fits. Lengths are bytes of
    /// UDP payload, such as 640,1280. Needs --key [default: no padding].
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', help_heading = "Far end")]
    #[serde(deserialize_with = "forms::commas")]
    pub(crate) pad: Vec<u16>,

    /// Send decoys (packets without data) on idle paths, so that observers see fewer pauses. All
    /// decoys together have at most PERCENT, such as 10%, of the bytes of the real packets that
    /// this splitter sends. Needs --key.
    ///
    /// Decoys copy the lengths and intervals of real packets, so that an observer cannot
    /// distinguish them. The far end ('anabranch merge') drops them. It can send decoys too, with
    /// a limit of its own ('anabranch merge --decoys'). Cannot be used with schedules that use
    /// congestion windows, such as pull.
    #[arg(long, value_name = "PERCENT", help_heading = "Far end", allow_hyphen_values = true)]
    #[serde(deserialize_with = "forms::text")]
    pub(crate) decoys: Option<DecoyBudget>,

    /// Split the WireGuard tunnel that this wg-quick file configures. The Endpoint in FILE is the
    /// server. The splitter prints the lines of FILE that you must change.
    ///
    /// Without --listen, the splitter listens on 127.0.0.1, at the port number of the Endpoint if
    /// that is free, otherwise at another port.
    #[arg(long, value_name = "FILE", conflicts_with = "tun", help_heading = "WireGuard")]
    pub(crate) wg: Option<PathBuf>,

    /// Write a copy of the --wg file, with the necessary changes, to FILE; - prints it. The copy
    /// contains the tunnel's private key, so only its owner can read it.
    #[arg(long, value_name = "FILE", help_heading = "WireGuard")]
    pub(crate) write: Option<PathBuf>,

    /// Let --write replace a file that already exists.
    #[arg(long, help_heading = "WireGuard")]
    pub(crate) overwrite: bool,

    /// If several peers in the --wg file have an Endpoint, choose one by its public key or by its
    /// position (1, 2, ...).
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

    /// Print the traffic counters every 5 s to the systemd journal too. Without this option they
    /// are printed only to terminals and files.
    #[arg(long, short, help_heading = "Output", conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// Serve traffic counters to Prometheus at http://ADDRESS:PORT/metrics (docs/formats.md).
    ///
    /// Anyone who can reach that address can read how much is sent and when, but no addresses of
    /// clients or servers. Use 127.0.0.1 if possible.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Output", value_parser = address)]
    #[serde(deserialize_with = "forms::address")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Record in FILE what an observer of each path sees, as a Parquet table with one row for each
    /// datagram (docs/formats.md). 'anabranch report FILE' makes an HTML page of the table.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace: Option<PathBuf>,

    /// Record the packets of each path in the file DIR/NAME.pcapng, where NAME is the path's name;
    /// Wireshark can open it. DIR is created if necessary.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) pcap: Option<PathBuf>,

    /// Begin a new --pcap file for a path when the current one reaches MB megabytes (10^6 bytes
    /// each). The files are numbered: NAME_00001.pcapng, ...
    #[arg(long, value_name = "MB", help_heading = "Output")]
    pub(crate) pcap_size: Option<NonZeroUsize>,

    /// Keep only the newest N --pcap files of each path, and delete older ones. Needs --pcap-size.
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) pcap_files: Option<NonZeroUsize>,

    /// Let --trace and --pcap replace files that already exist.
    #[arg(long, help_heading = "Output")]
    pub(crate) replace: bool,
}

impl Options {
    /// Returns these settings, completed with the settings of `file`. A list of paths replaces the
    /// file's list.
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
        "Choose the path again after LENGTH: a number of packets (50p), a time (100ms) or never. \
         ~50p and ~100ms are random lengths with this average; 50-70p and 80-120ms are random \
         lengths in this range. With grow:10-100ms the length is 10 ms when traffic begins after \
         a pause, and grows to 100 ms while traffic continues [default: {EVERY}, or \
         {FAR_END_EVERY} if --key is given; but some schedules have their own default, such as \
         batched with 50-70p]"
    )
}

/// Returns the long help text of `--every`, with the cost of short runs (consecutive datagrams on
/// one path).
fn prices() -> String {
    format!(
        "{}\n\nSpeed: with a LENGTH of 100ms, WireGuard and Mosh lose no speed over paths of \
         similar delay. QUIC servers keep 13 to 76 % of their speed with 100ms, and 81 to 96 % \
         with 1s (docs/guide/quic.md).\n\nPrivacy: an observer of one path can use an attack (a \
         trained classifier) to recognise the web pages that you load. With an unmodified server \
         and a LENGTH of 100ms, the attack k-FP recognises 18 % of the page loads on a random \
         path, and 30 % on the path with most packets. With 1s it recognises 39 % and 72 %. The \
         attack MiniRocket, with twice as much training data, recognises 51 % on the path with \
         most packets with 100ms (docs/guide/quic.md).",
        every()
    )
}

/// Returns the help text of `--protocol` in one line.
fn protocol() -> String {
    let names: Vec<&str> = Traffic::names().filter(|name| *name != ANY).collect();
    let names = names.join(", ");
    format!("Set the protocol of the traffic to split: {names}, or {ANY} [default: {AUTO}].")
}

/// Returns the long help text of `--protocol`.
fn protocols() -> String {
    format!(
        "{}\n\nWith \"{AUTO}\" the splitter recognises the protocol from the first datagrams of \
         each session. With \"{ANY}\" it splits all sessions, of every protocol. For AmneziaWG \
         write \"{}\".",
        protocol(),
        Protocol::WireGuard.name()
    )
}

/// Returns the help text of `--schedule` in one line.
fn schedule() -> String {
    format!(
        "Set the rule that chooses the path of each run (a group of consecutive packets), such as \
         round-robin. --help lists the rules [default: {SCHEDULE}, or {FAR_END_SCHEDULE} if --key \
         is given]"
    )
}

/// Returns the long help text of `--schedule`, which lists all kinds of schedules.
fn schedules() -> String {
    let line = |family: &Family| format!("{}: {}", family.syntax, family.about);
    let lines: Vec<_> = without_windows().map(line).collect();
    let others = FAMILIES.iter().filter(|family| family.needs_windows).map(line);
    format!(
        "Set the rule that chooses the path of each run (a group of consecutive packets) [default: \
         {SCHEDULE}, or {FAR_END_SCHEDULE} if --key is given].\n\n{}\n\nWith --key, \
         for a far end (a server that runs 'anabranch merge'), there are more schedules. They use \
         each path's congestion window, so the bandwidths of all paths add up. But an observer of \
         one path can see how busy the other paths are (docs/guide/far-end.md):\n\n{}",
        lines.join("\n"),
        others.collect::<Vec<_>>().join("\n")
    )
}
