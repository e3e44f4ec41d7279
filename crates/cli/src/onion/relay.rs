//! `anabranch relay`: a relay of the onion network.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::relay::protocols;
use anabranch_onion::wire::family::FamilyKey;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::text::hex;
use anabranch_os::entropy::generator;
use anabranch_router::onion::dirclient::{self, DirClient, unix};
use anabranch_router::onion::families::families;
use anabranch_router::onion::keyring::KeyRing;
use anabranch_router::onion::metrics::Metered;
use anabranch_router::onion::relay::{self, Changes, LiveSettings, Settings};
use anabranch_router::onion::reload::{Names, Reload, ReloadedSettings};
use anabranch_router::onion::stop_signals;
use anabranch_router::onion::store::claim;
use clap::Args;
use serde::Deserialize;

use super::link::{self, LinkKind, LinkOptions, QuicCongestionArg, SegmentControl, tapped};
use super::log::Log;
use super::offers::Offers;
use super::reread::{Source, common, names, reread};
use super::watch::{Limit, Model, Screen};
use super::{CircuitPolicy, Common, either, fingerprints, memory, platform, read};
use crate::failure::Failure;
use crate::split::forms;
use crate::split::no_metrics;

/// Default of `--memory`, in megabytes.
pub(super) const MEMORY_MB: usize = 512;
/// Default of `--grace`, in seconds (C tor's `ShutdownWaitLength`).
const GRACE_S: u64 = 30;
/// Default limit of a relay's traffic in bytes per second (`--rate`). It is C tor's default, and
/// practically no limit.
const RATE: u64 = 1 << 30;
/// Minimum value of `--rate`, in bytes per second (C tor's value).
const LEAST_RATE: u64 = 75 << 10;
/// Text at the end of `--help`.
const FILES: &str = "\
EXAMPLES
  A relay that is also an exit, to port 443 of any destination:
    anabranch relay --nickname river1 --address 192.0.2.1 --listen 0.0.0.0:9001 \\
        --authorities network.txt --exit 'accept *:443'

  With the settings in a file, and as a systemd service:
    anabranch relay /etc/anabranch/river.toml
    systemctl enable --now anabranch-relay@river

ENVIRONMENT
  JOURNAL_STREAM   set by systemd. Lines then begin with their priority
  NOTIFY_SOCKET    set by systemd. The relay notifies it when ready and when stopping

FILES
  ~/.local/state/anabranch/relay                 keys, and the list of relays (--data)
  /usr/share/doc/anabranch/examples/relay.toml   example of a file with all settings";
/// Keys that a settings file of `anabranch relay` may contain.
pub(super) const KEYS: &[&str] = &[
    "nickname",
    "address",
    "address6",
    "listen",
    "contact",
    "family",
    "family-key",
    "exit",
    "rate",
    "burst",
    "metrics",
    "memory",
    "threads",
    "link",
    "quic-congestion",
    "udp-or",
    "udp-or-congestion",
    "mptcp",
    "circuit-policy",
    "grace",
    "allow-private",
    "no-directory",
    "bridge",
    "pt",
];

/// Run a relay of an onion network: the first, middle or last relay (exit) of a circuit.
///
/// The relay speaks the Tor protocol. It makes its keys at the first start and keeps them in the
/// folder of --data, in the file formats of C tor (the Tor project's 'tor' program). It publishes
/// its descriptor (address, keys and exit policy) to the authorities. Without --exit it connects
/// to no destinations. SIGTERM or SIGINT lets circuits finish for --grace seconds; a second signal
/// stops the relay at once.
///
/// Every option can be a key of a TOML file. On SIGHUP the relay reads that file and --authorities
/// again. It then prints which changed settings apply now, and which apply only after a restart.
/// If the file has an error, nothing changes. Circuits continue, and SIGHUP never stops a relay.
#[derive(Args, Clone, Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
#[command(after_long_help = FILES)]
pub(crate) struct RelayArgs {
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
    /// Set the relay's name (required): 1 to 19 letters and digits.
    #[arg(long)]
    nickname: Option<String>,
    /// Publish this IPv4 address, at which clients and other relays reach this relay (required).
    #[arg(long)]
    address: Option<Ipv4Addr>,
    /// Publish this IPv6 address too. Needs a --listen with an IPv6 address.
    #[arg(long, value_name = "ADDRESS")]
    address6: Option<Ipv6Addr>,
    /// Accept connections from clients and other relays at this address (required, repeatable).
    /// The relay publishes the port of the first --listen and, with --address6, the port of the
    /// first IPv6 --listen.
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(deserialize_with = "forms::list")]
    listen: Vec<SocketAddr>,
    /// Publish this contact address, such as an e-mail address, in the relay's descriptor (its
    /// public description).
    #[arg(long)]
    contact: Option<String>,
    /// List your other relays by fingerprint (40 hexadecimal digits), separated by commas. If two
    /// relays list each other, clients never use both in one circuit.
    #[arg(long, value_name = "FINGERPRINT", value_delimiter = ',')]
    #[serde(deserialize_with = "forms::commas")]
    family: Vec<String>,
    /// Use the family key in FILE, which 'tor --keygen-family' makes (repeatable). Give the same
    /// key to all your relays.
    ///
    /// Clients never use two relays with the same key in one circuit, so --family is not needed.
    /// The relay also uses all files *.secret_family_key in the folder 'keys' of --data.
    #[arg(long, value_name = "FILE")]
    #[serde(deserialize_with = "forms::list")]
    family_key: Vec<PathBuf>,
    /// Be an exit (the last relay of circuits): accept or reject destinations by this rule, such
    /// as 'accept *:443'. Of several rules, the first one that matches applies (repeatable)
    /// [default: reject all].
    ///
    /// The relay connects to IPv6 destinations only with --address6, or if a rule for IPv6, such
    /// as 'accept *6:443', allows them. Without --allow-private it never connects to its own
    /// machine or to private networks.
    #[arg(long, value_name = "RULE")]
    #[serde(deserialize_with = "forms::list")]
    exit: Vec<String>,
    /// Limit the traffic of all connections to clients and relays together to BYTES per second in
    /// each direction, at least 76800 [default: 1073741824].
    #[arg(long, value_name = "BYTES")]
    rate: Option<u64>,
    /// After a pause, let all connections together carry up to BYTES bytes at full speed. Then the
    /// limit of --rate applies again. BYTES must not be less than --rate [default: the value of
    /// --rate].
    #[arg(long, value_name = "BYTES")]
    burst: Option<u64>,
    /// Serve traffic counters to Prometheus at http://ADDRESS:PORT/metrics (docs/formats.md).
    ///
    /// Anyone who can reach that address can read how much this relay carries, and when. Use
    /// 127.0.0.1 if possible.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Limit the memory for queued cells (Tor's packets) to MB megabytes [default: 512].
    ///
    /// The limit includes cells that wait for earlier cells of the same stream from another
    /// circuit. Above half of the limit, the relay pauses the streams that have such cells. At the
    /// limit it closes circuits, first those whose cells have waited longest or that hold most
    /// cells. With --bridge, the built-in transport 'anabranch' may use half of MB in addition. A
    /// new value of --memory that the relay reads on SIGHUP does not change this additional limit.
    #[arg(long, value_name = "MB")]
    memory: Option<usize>,
    /// Use N threads to forward cells (Tor's packets). Each thread serves a part of the
    /// connections and has a part of the memory [default: one for each CPU core].
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Choose the kind of connection to other relays and to clients. With several kinds, the relay
    /// uses the first one that the other side supports [default: tls].
    ///
    /// With utls and quic, a lost packet of one circuit does not delay the other circuits. utls
    /// needs the capability CAP_BPF. quic needs UDP at the ports of --listen. tls-per-circuit is
    /// for comparison: each circuit gets its own connection to the next relay, up to 64
    /// connections to one relay. It cannot be combined with other kinds (docs/guide/operate.md).
    #[arg(long, value_enum, value_name = "KIND,...", value_delimiter = ',')]
    #[serde(deserialize_with = "link::kinds")]
    link: Vec<LinkKind>,
    /// Set the congestion control of QUIC connections to other relays and clients: cubic or bbr.
    /// Needs --link quic [default: cubic].
    ///
    /// bbr loses less speed if packets are lost; the QUIC library calls bbr experimental. For TCP
    /// connections, the kernel's setting applies instead.
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true)]
    quic_congestion: Option<QuicCongestionArg>,
    /// Serve circuits of 'anabranch client --design udp-or' (experimental). Their cells (Tor's
    /// packets) travel in datagrams, and may be lost. The relay then connects by QUIC too, and
    /// announces the protocol Anabranch=4.
    #[arg(long)]
    udp_or: bool,
    /// Set the congestion control for data that this relay sends, as an exit (last relay), to
    /// clients with --design udp-or. Needs --udp-or [default: bbr].
    ///
    /// Algorithms other than bbr are for comparison: they behave like TCP in the kernel. If a
    /// client uses --design mudp-or with --schedule eta or another schedule with congestion
    /// windows, the relay always uses bbr.
    #[arg(long, value_parser = SegmentControl::parser(), value_name = "NAME")]
    udp_or_congestion: Option<SegmentControl>,
    /// Let connections with other relays, incoming and outgoing, use several network paths by
    /// Multipath TCP (MPTCP), if the other relay supports it. The kernel chooses the paths ('ip
    /// mptcp'). Cannot be used with --link utls.
    #[arg(long)]
    mptcp: bool,
    /// Choose the rule that decides which circuit of a connection sends next. round-robin takes
    /// one circuit after another. random takes a random circuit that has data. ewma takes the
    /// circuit that sent least in the recent past. kist is like ewma, but data waits in the relay
    /// until the kernel has room for it [default: ewma].
    #[arg(long, value_enum, value_name = "POLICY", hide_possible_values = true)]
    circuit_policy: Option<CircuitPolicy>,
    /// After the first SIGTERM or SIGINT, let circuits finish for SECONDS before the relay stops
    /// [default: 30].
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,
    /// Allow circuits to relays, and connections to destinations, with private IP addresses. Use
    /// this only for test networks on one machine.
    #[arg(long)]
    allow_private: bool,
    /// Do not serve the list of relays to clients. Cannot be used with --bridge.
    #[arg(long)]
    no_directory: bool,
    /// Run as a bridge: a first relay that no public list names and that the authorities do not
    /// know.
    ///
    /// At its start the relay prints the bridge lines that its clients need, and writes them to
    /// the file bridgelines.txt in the folder of --data.
    #[arg(long)]
    bridge: bool,
    /// Offer a pluggable transport, which camouflages the connections of clients (repeatable).
    /// Needs --bridge. LINE has the form NAME ADDRESS:PORT [KEY=VALUE ...] [exec PROGRAM ARGS].
    /// NAME is the transport, ADDRESS:PORT is where it accepts clients, and PROGRAM implements it.
    ///
    /// The transport 'anabranch' is built in and needs no program. Its keys are profile, site,
    /// pictures, covers and shapes; 'anabranch pt server --help' explains them.
    #[arg(long, value_name = "LINE")]
    #[serde(deserialize_with = "forms::list")]
    pt: Vec<String>,
}

impl RelayArgs {
    /// Runs the relay until a signal ends it.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let flags = self.clone();
        let args = self.merged()?;
        // Capabilities are dropped before the first thread starts, because each thread would keep
        // them.
        let links = args.links()?;
        let mptcp = links.by_mptcp(args.mptcp)?;
        let taps = links.taps(args.threads().get());
        let run_status = args.common.run_status("relay", flags.common.file.as_deref());
        let posted = (run_status, args.common.name.as_deref());
        let log = Arc::new(Log::new(posted, args.common.json, args.common.quiet)?);
        let (nickname, limit) = (args.nickname.clone().unwrap_or_default(), Limit::default());
        let mut screen =
            Screen::live(log, Model::new(nickname, args.common.name.clone(), limit.clone()));
        let stop = stop_signals().map_err(Failure::trouble)?;
        let mut rng = generator().map_err(Failure::trouble)?;
        let data = args.common.data("relay")?;
        let live = args.live()?;
        limit.set(live.description.bandwidth[0]);
        let authorities = args.common.authorities()?;
        let offers = args.offers()?;
        let claim = claim(&data).map_err(Failure::misuse)?;
        claim.tightened.iter().for_each(|text| screen.warn(text));
        let ring = KeyRing::open(&data, &mut rng, unix()).map_err(Failure::misuse)?;
        let keys = Arc::clone(ring.keys());
        // The descriptor is checked now, so that its mistakes are reported at once and not in the
        // log of a thread.
        live.description.sign(&keys, unix()).map_err(Failure::misuse)?;
        tapped(&taps).iter().for_each(|text| screen.print("note", text));
        screen.print("fingerprint", &hex(&keys.rsa_identity()));
        for family in &live.description.family_keys {
            screen.print("note", &format!("this relay belongs to the family {}", family.id()));
        }
        let dirclient = dirclient::Settings {
            authorities: authorities.clone(),
            data: data.clone(),
            share_subnets: false,
            keys: Some(Arc::clone(&keys)),
            cache: !args.no_directory,
            dir_requests: false,
            bridges: Vec::new(),
            unpublished: args.bridge,
        };
        let dirclient = DirClient::start(dirclient, rng).map_err(Failure::misuse)?;
        let description = live.description.clone();
        let memory = live.memory;
        let offered = offers.map(|offers| offers.start(&data, memory)).transpose()?;
        let (bridge, _running) = offered.unzip();
        let settings = Settings {
            live,
            bridge,
            taps,
            links: links.over_tcp,
            quic: links.quic,
            dedicated_links: links.per_circuit,
            mptcp,
            threads: args.threads().get(),
            circuitmux: args.circuit_policy.unwrap_or_default().kind(),
            ..Settings::new(args.listen.clone(), ring, dirclient, description)
        };
        let (file, metrics) = (flags.common.file.clone(), args.metrics);
        let mut source = Source { flags, running: args, authorities };
        let reread = reread(file, move || {
            let renewed = source.read(&keys)?;
            limit.set(renewed.settings.live.description.bandwidth[0]);
            Ok(renewed)
        });
        let reload = Some(Reload::new(reread).map_err(Failure::trouble)?);
        let Some(address) = metrics else {
            let done = relay::run_rereading(settings, &stop, reload, &mut screen);
            return done.map_err(Failure::trouble);
        };
        let cannot = |error: &mut std::io::Error| no_metrics(address, error);
        let mut metered = Metered::new(&mut screen, address, env!("CARGO_PKG_VERSION"));
        let metered = metered.as_mut().map_err(cannot)?;
        relay::run_rereading(settings, &stop, reload, metered).map_err(Failure::trouble)
    }

    /// Returns the settings of links (connections to other relays and clients).
    ///
    /// # Errors
    /// `--link` is invalid, or lacks what another option needs.
    fn links(&self) -> Result<LinkOptions, Failure> {
        let options = LinkOptions::new(&self.link)?;
        let options = match self.udp_or {
            true => options.with_lossy("--udp-or", &self.link, self.udp_or_congestion)?,
            false if self.udp_or_congestion.is_some() => {
                let message = "--udp-or-congestion needs --udp-or: add --udp-or";
                return Err(Failure::misuse(message.to_owned()));
            }
            false => options,
        };
        options.with_congestion(self.quic_congestion)
    }

    /// Returns the bridge's transports; `None` if the relay is not a bridge.
    fn offers(&self) -> Result<Option<Offers>, Failure> {
        match (self.bridge, self.no_directory) {
            (true, true) => Err(Failure::misuse(
                "--no-directory cannot be used with --bridge, because the clients of a bridge get \
                 the list of relays from the bridge: remove --no-directory",
            )),
            (false, _) if !self.pt.is_empty() => Err(Failure::misuse(
                "--pt needs --bridge, because only bridges offer pluggable transports: add \
                 --bridge, or remove --pt",
            )),
            (true, false) => {
                let first = self.listen.first().copied();
                let first = first.ok_or_else(|| {
                    Failure::misuse("--listen ADDRESS:PORT is missing: a bridge needs this option")
                })?;
                Offers::read(&self.pt, first).map(Some)
            }
            (false, _) => Ok(None),
        }
    }

    /// Returns the settings that may change while the relay runs.
    pub(super) fn live(&self) -> Result<LiveSettings, Failure> {
        Ok(LiveSettings {
            allow_private: self.allow_private,
            memory: memory(self.memory.unwrap_or(MEMORY_MB), 1)?,
            grace: Duration::from_secs(self.grace.unwrap_or(GRACE_S)),
            ..LiveSettings::new(self.description()?)
        })
    }

    /// Returns the number of threads: the value of `--threads`, or by default the number of cores.
    fn threads(&self) -> NonZeroUsize {
        let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        self.threads.unwrap_or_else(cores)
    }

    /// Returns the IPv6 address that the relay publishes: the address in `--address6` with the
    /// port of the first IPv6 `--listen`. Returns `None` without `--address6`.
    fn v6(&self) -> Result<Option<SocketAddrV6>, Failure> {
        let Some(address) = self.address6 else { return Ok(None) };
        let Some(listen) = self.listen.iter().find(|at| at.is_ipv6()) else {
            let message = "--address6 needs a --listen with an IPv6 address, such as [::]:9001";
            return Err(Failure::misuse(message));
        };
        Ok(Some(SocketAddrV6::new(address, listen.port(), 0, 0)))
    }

    /// Returns the rate and the burst in bytes per second. The third number, the observed
    /// bandwidth, is 0, because the relay measures it later.
    fn bandwidth(&self) -> Result<[u64; 3], Failure> {
        let rate = self.rate.unwrap_or(RATE);
        let burst = self.burst.unwrap_or(rate);
        if rate < LEAST_RATE {
            let message = format!(
                "--rate {rate} is too low for a relay: write {LEAST_RATE} (bytes per second) or \
                 more"
            );
            return Err(Failure::misuse(message));
        }
        if burst < rate {
            let message = format!(
                "--burst {burst} is less than --rate {rate}: set --burst to {rate} or more"
            );
            return Err(Failure::misuse(message));
        }
        Ok([rate, burst, 0])
    }

    pub(super) fn description(&self) -> Result<Description, Failure> {
        let lacks =
            |what: &str| Failure::misuse(format!("{what} is missing: a relay needs this option"));
        let first = self.listen.first().ok_or_else(|| lacks("--listen ADDRESS:PORT"))?;
        let to_error = |at: &SocketAddr| {
            Failure::misuse(format!("--listen {at}: write a port from 1 to 65535"))
        };
        // All listeners are checked, although the relay advertises only the first one and the
        // first IPv6 one (`Self::v6`).
        self.listen.iter().find(|at| at.port() == 0).map_or(Ok(()), |at| Err(to_error(at)))?;
        let policy = match self.exit.is_empty() {
            true => ExitPolicy::reject_all(),
            false => ExitPolicy::parse(&self.exit).map_err(Failure::misuse)?,
        };
        let nickname = self.nickname.clone().ok_or_else(|| lacks("--nickname NAME"))?;
        let address = self.address.ok_or_else(|| lacks("--address IPV4"))?;
        let at = SocketAddrV4::new(address, first.port());
        Ok(Description {
            v6: self.v6()?,
            bandwidth: self.bandwidth()?,
            contact: self.contact.clone(),
            family: fingerprints("--family", &self.family)?.iter().map(|id| hex(id)).collect(),
            family_keys: self.families()?,
            policy,
            directory_cache: !self.no_directory,
            bridge: self.bridge.then(Vec::new),
            protocols: protocols(self.udp_or),
            ..Description::new(nickname, at, platform())
        })
    }

    /// Reads the keys of the relay's families.
    ///
    /// # Errors
    /// A key cannot be read.
    fn families(&self) -> Result<Vec<FamilyKey>, Failure> {
        let data = self.common.data("relay")?;
        families(&data, &self.family_key).map_err(Failure::misuse)
    }

    /// Returns the flags, with the settings of the file for flags that were not given.
    fn merged(mut self) -> Result<RelayArgs, Failure> {
        let Some(path) = self.common.file.take() else { return Ok(self) };
        let file: RelayArgs = read(&path, KEYS)?;
        Ok(RelayArgs {
            common: self.common.or(file.common),
            nickname: self.nickname.or(file.nickname),
            address: self.address.or(file.address),
            address6: self.address6.or(file.address6),
            listen: either(self.listen, file.listen),
            contact: self.contact.or(file.contact),
            family: either(self.family, file.family),
            family_key: either(self.family_key, file.family_key),
            exit: either(self.exit, file.exit),
            rate: self.rate.or(file.rate),
            burst: self.burst.or(file.burst),
            metrics: self.metrics.or(file.metrics),
            memory: self.memory.or(file.memory),
            threads: self.threads.or(file.threads),
            link: either(self.link, file.link),
            quic_congestion: self.quic_congestion.or(file.quic_congestion),
            udp_or: self.udp_or || file.udp_or,
            udp_or_congestion: self.udp_or_congestion.or(file.udp_or_congestion),
            mptcp: self.mptcp || file.mptcp,
            circuit_policy: self.circuit_policy.or(file.circuit_policy),
            grace: self.grace.or(file.grace),
            allow_private: self.allow_private || file.allow_private,
            no_directory: self.no_directory || file.no_directory,
            bridge: self.bridge || file.bridge,
            pt: either(self.pt, file.pt),
        })
    }
}

impl Source<RelayArgs> {
    /// Reads the settings from flags and file again, for a relay with `keys`.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    fn read(&mut self, keys: &RelayKeys) -> Result<ReloadedSettings<Changes>, Failure> {
        let new = self.flags.clone().merged()?;
        let authorities = new.common.authorities()?;
        let names = new.names(&self.running, authorities != self.authorities);
        let next = new.over_fixed(&self.running);
        let live = next.live()?;
        live.description.sign(keys, unix()).map_err(Failure::misuse)?;
        self.running = next;
        let trusted = (authorities != self.authorities).then(|| authorities.clone());
        self.authorities = authorities;
        Ok(ReloadedSettings { settings: Changes { live, authorities: trusted }, names })
    }
}

impl RelayArgs {
    /// Returns the names of the settings that differ from `old`, the settings in force. The result
    /// separates settings that apply at once from settings that need a restart.
    fn names(&self, old: &RelayArgs, authorities: bool) -> Names {
        let live = [
            ("authorities", authorities),
            ("nickname", self.nickname != old.nickname),
            ("address", self.address != old.address),
            ("address6", self.address6 != old.address6),
            ("contact", self.contact != old.contact),
            ("family", self.family != old.family),
            ("family-key", self.family_key != old.family_key),
            ("exit", self.exit != old.exit),
            ("rate", self.rate != old.rate),
            ("burst", self.burst != old.burst),
            ("memory", self.memory != old.memory),
            ("grace", self.grace != old.grace),
            ("allow-private", self.allow_private != old.allow_private),
        ];
        let fixed = [
            ("listen", self.listen != old.listen),
            ("metrics", self.metrics != old.metrics),
            ("threads", self.threads != old.threads),
            ("no-directory", self.no_directory != old.no_directory),
            ("link", self.link != old.link),
            ("quic-congestion", self.quic_congestion != old.quic_congestion),
            ("udp-or", self.udp_or != old.udp_or),
            ("udp-or-congestion", self.udp_or_congestion != old.udp_or_congestion),
            ("mptcp", self.mptcp != old.mptcp),
            ("bridge", self.bridge != old.bridge),
            ("pt", self.pt != old.pt),
            ("circuit-policy", self.circuit_policy != old.circuit_policy),
        ];
        names(&live, &[&fixed[..], &common(&old.common, &self.common)].concat())
    }

    /// Returns these settings, but with the values of `old` for settings whose change needs a
    /// restart.
    fn over_fixed(self, old: &RelayArgs) -> RelayArgs {
        RelayArgs {
            common: self.common.over_fixed(&old.common),
            listen: old.listen.clone(),
            metrics: old.metrics,
            threads: old.threads,
            no_directory: old.no_directory,
            link: old.link.clone(),
            quic_congestion: old.quic_congestion,
            udp_or: old.udp_or,
            udp_or_congestion: old.udp_or_congestion,
            mptcp: old.mptcp,
            bridge: old.bridge,
            pt: old.pt.clone(),
            circuit_policy: old.circuit_policy,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_may_repeat_is_one_value_or_a_list_of_them() {
        let text = "exit = 'accept *:443'\nlisten = '127.0.0.1:9001'\nfamily = 'a,b'\n";
        let relay: RelayArgs = super::super::parse(text, "relay.toml", KEYS).unwrap();
        let text = "exit = ['accept *:443']\nlisten = ['127.0.0.1:9001']\nfamily = ['a', 'b']\n";
        let listed: RelayArgs = super::super::parse(text, "relay.toml", KEYS).unwrap();
        assert_eq!((&relay.exit, &relay.listen), (&listed.exit, &listed.listen));
        assert_eq!((relay.exit.len(), relay.listen.len()), (1, 1));
        assert_eq!(
            (&relay.family[..], &listed.family[..]),
            (&["a".into(), "b".into()][..], &["a".into(), "b".into()][..])
        );
        let wrong =
            super::super::parse::<RelayArgs>("listen = 9001", "relay.toml", KEYS).err().unwrap();
        assert!(wrong.to_string().contains("`listen`: write ADDRESS:PORT"), "{wrong}");
    }
}
