//! Settings of a far end as the user writes them. One list of settings applies to options and to
//! the settings file.

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_comps::{FAR_END_EVERY, FAR_END_SCHEDULE, Guess, check_jitter};
use anabranch_multipath::{DecoyBudget, Every, Jitter, Silence};
use anabranch_os::target::Target;
use anabranch_os::toml_keys::{self, Section};
use anabranch_splitter::far_end::{INTERFACE, KeyEnd, KeyFile};
use anabranch_splitter::merge::{Server, Settings};
use anabranch_splitter::split::fresh_seed;
use anabranch_splitter::streams::{self, TlsEnd};
use serde::Deserialize;

use crate::failure::Failure;
use crate::split::check_decoys;
use crate::split::forms;
use crate::split::values::{AnySchedule, Span, address};
use crate::status::run_name;
use crate::tls;

/// Default idle time after which a flow (the datagrams between one client program and one server)
/// is closed. The idle time of a splitter's sessions has the same default.
const IDLE: Duration = Duration::from_secs(180);
/// Default maximum number of open flows (each the datagrams between one client program and one
/// server).
const FLOWS: usize = 4096;

/// Keys of the settings file: the names of the options.
const KEYS: &[Section] = &[Section {
    path: "",
    keys: &[
        "listen",
        "listen-tcp",
        "listen-tls",
        "tls-cert",
        "tls-key",
        "behind",
        "stream-age",
        "to",
        "tun",
        "key",
        "schedule",
        "every",
        "redraw",
        "jitter",
        "seed",
        "pad",
        "decoys",
        "idle",
        "max-flows",
        "name",
        "json",
        "quiet",
        "verbose",
        "metrics",
    ],
}];

/// Settings of the command line and of the file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Options {
    /// Receive packets from splitters ('anabranch split') at this UDP address, such as
    /// `[::]:4500`.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    #[arg(help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::address")]
    listen: Option<SocketAddr>,

    /// Also accept TCP connections from splitters ('anabranch split') at this address, such as
    /// `[::]:443`. Splitters connect to it on tcp:, socks5-tcp:, http:, ssh: and onion: paths.
    ///
    /// Senders without an accepted key get no answer, and their connections are closed after 20 s.
    /// With --behind, the far end forwards their connections to a web server instead. A connection
    /// that sends nothing is forwarded after 5 s.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    #[arg(help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::address")]
    listen_tcp: Option<SocketAddr>,

    /// Also accept TLS 1.3 connections from splitters ('anabranch split') at this address, such as
    /// `[::]:443`. Splitters connect to it on tls: paths.
    ///
    /// The far end prints the SHA-256 hash of its certificate. Splitters need this hash for
    /// --tls-fingerprint if no CA has signed the certificate.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    #[arg(help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::address")]
    listen_tls: Option<SocketAddr>,

    /// Read the certificate for --listen-tls, and the certificates of the CAs that signed it, from
    /// this PEM file. The default is the file of --key with .tls.pem added to its name. That file
    /// is created at the first start.
    #[arg(long, value_name = "FILE", help_heading = "Clients and servers")]
    tls_cert: Option<PathBuf>,

    /// Read the private key of the certificate (--tls-cert) from this PEM file [default: the file
    /// of --tls-cert].
    #[arg(long, value_name = "FILE", help_heading = "Clients and servers")]
    tls_key: Option<PathBuf>,

    /// Forward TCP and TLS connections that do not come from a splitter ('anabranch split') to the
    /// web server at this address.
    ///
    /// The web server receives such a connection from its first byte on, including the bytes that
    /// the far end read to recognise the sender. It receives the content of TLS connections
    /// decrypted. So anyone who tests the port finds a web site.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::text")]
    behind: Option<Target>,

    /// On paths that are TCP connections, drop a packet when it has waited longer than TIME for
    /// room in the connection's send buffer [default: 200ms].
    ///
    /// With a longer TIME, a full send buffer delays more packets, and fewer are lost. Paths that
    /// use UDP are not affected.
    #[arg(long, value_name = "TIME", help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::text")]
    stream_age: Option<Span>,

    /// Forward the clients' datagrams to this server. For several servers, repeat the option and
    /// give each server a name. A splitter chooses one with 'anabranch split --behind NAME'.
    #[arg(long, value_name = "[NAME=]HOST:PORT", help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::list")]
    to: Vec<ServerOption>,

    /// Create a network interface NAME for IP packets that arrive from 'anabranch split --tun'
    /// (needs CAP_NET_ADMIN).
    ///
    /// This machine's routes and firewall decide where the packets go.
    #[arg(long, value_name = "NAME", help_heading = "Clients and servers")]
    tun: Option<String>,

    /// Read this end's private key, and the public keys of all splitters that may connect, from
    /// FILE. 'anabranch key' creates FILE.
    #[arg(long, value_name = "FILE", help_heading = "Clients and servers")]
    key: Option<PathBuf>,

    /// Set the rule that chooses the path of each run of the servers' answers. A run is a group of
    /// consecutive packets. 'anabranch split --help' lists the rules [default: uniform].
    #[arg(long, value_name = "SCHEDULE", help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::text")]
    schedule: Option<AnySchedule>,

    #[arg(long, value_name = "LENGTH", help_heading = "Schedule", help = every())]
    #[serde(deserialize_with = "forms::text")]
    every: Option<Every>,

    /// Draw again the random probabilities with which --schedule chooses the paths to a client,
    /// after the server has sent nothing to this client for SILENCE, such as 1s.
    ///
    /// Without this option a client keeps the probabilities that were drawn when it connected.
    #[arg(long, value_name = "SILENCE", help_heading = "Schedule")]
    #[serde(deserialize_with = "forms::text")]
    redraw: Option<Silence>,

    /// Delay each answer of a server by a random time from RANGE, such as 0-20ms, before its path
    /// is chosen. The order of the answers stays the same.
    ///
    /// At most 4,096 datagrams and 4 MiB for one client wait at a time. Beyond these limits the
    /// oldest datagrams leave before their delay ends; the output of --json counts them as
    /// "hurried".
    #[arg(long, value_name = "RANGE", help_heading = "Schedule", allow_hyphen_values = true)]
    #[serde(deserialize_with = "forms::text")]
    jitter: Option<Jitter>,

    /// Start the random number generator with the number N. A later start with the same N repeats
    /// the same random choices [default: a random number, which is printed].
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    seed: Option<u64>,

    /// Pad each packet to the smallest of these lengths into which it fits. Lengths are bytes of
    /// UDP payload, such as 640,1280 [default: no padding].
    #[arg(
        long,
        value_name = "BYTES,...",
        value_delimiter = ',',
        help_heading = "Clients and servers"
    )]
    #[serde(deserialize_with = "forms::commas")]
    pad: Vec<u16>,

    /// Send decoys (packets without data) on idle paths, so that observers see fewer pauses. All
    /// decoys together have at most PERCENT, such as 10%, of the bytes of the real packets that
    /// this far end sends.
    ///
    /// Decoys copy the lengths and intervals of real packets, so that an observer cannot
    /// distinguish them. The splitter drops them. It can send decoys too, with a limit of its own
    /// ('anabranch split --decoys'). Cannot be used with schedules that use congestion windows,
    /// such as pull.
    #[arg(long, value_name = "PERCENT", help_heading = "Schedule", allow_hyphen_values = true)]
    #[serde(deserialize_with = "forms::text")]
    decoys: Option<DecoyBudget>,

    /// Close a flow (the datagrams between one client program and one server) when it has carried
    /// nothing for TIME [default: 180s].
    #[arg(long, value_name = "TIME", help_heading = "Clients and servers")]
    #[serde(deserialize_with = "forms::text")]
    idle: Option<Span>,

    /// Keep at most N flows in total for all clients. A flow is the datagrams between one client
    /// program and one server. At the limit, when a client opens a new flow, the far end closes
    /// the flow of this client that has been idle longest [default: 4096].
    #[arg(long, value_name = "N", help_heading = "Clients and servers")]
    max_flows: Option<NonZeroUsize>,

    /// Show this far end as NAME in 'anabranch status', in the live view and in each line that it
    /// prints.
    #[arg(long, value_name = "NAME", help_heading = "Output", value_parser = run_name)]
    #[serde(deserialize_with = "forms::name")]
    pub(super) name: Option<String>,

    /// Print events as JSON, one object per line (docs/formats.md).
    #[arg(long, help_heading = "Output", conflicts_with = "quiet")]
    pub(super) json: bool,

    /// Print only warnings.
    #[arg(long, help_heading = "Output")]
    pub(super) quiet: bool,

    /// Print the traffic counters every 5 s to the systemd journal too. Without this option they
    /// are printed only to terminals and files.
    #[arg(long, short, help_heading = "Output", conflicts_with = "quiet")]
    pub(super) verbose: bool,

    /// Serve traffic counters to Prometheus at http://ADDRESS:PORT/metrics (docs/formats.md).
    ///
    /// Anyone who can reach that address can read how much each client sends and when. Use
    /// 127.0.0.1 if possible.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Output", value_parser = address)]
    #[serde(deserialize_with = "forms::address")]
    pub(super) metrics: Option<SocketAddr>,
}

/// A server as the user writes it: its address, optionally after `NAME=`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServerOption(Server);

impl FromStr for ServerOption {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerOption, String> {
        let (name, to) = text.split_once('=').unwrap_or(("", text));
        if name.len() > 32 {
            return Err(format!("'{name}' is too long for a server's name: use 32 bytes at most"));
        }
        let to = to.parse().map_err(|error| format!("{error}"))?;
        Ok(ServerOption(Server { name: name.to_owned(), to }))
    }
}

/// Reads the settings in the file at `path`.
///
/// # Errors
/// The file cannot be read, is not TOML, or has an unknown key or an invalid value. The message
/// has the file and the line.
pub(super) fn read(path: &Path) -> Result<Options, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::misuse(format!("cannot read '{name}': {error}")))?;
    toml_keys::read(&text, &name.to_string(), KEYS).map_err(|error| {
        if toml_keys::is_wg_quick(&text) {
            return Failure::misuse(format!(
                "'{name}' is a wg-quick file, but the far end reads settings in TOML: give the \
                 server with --to. Only the splitter reads wg-quick files: 'anabranch split --wg \
                 {name}'"
            ));
        }
        Failure::misuse(error)
    })
}

/// Returns the help text of `--every`.
fn every() -> String {
    format!(
        "Choose the path of the servers' answers again after LENGTH: a number of packets (50p) or \
         a time (100ms). ~10p and ~100ms are random lengths with this average. With grow:10-100ms \
         the length is 10 ms when traffic begins after a pause, and grows to 100 ms while traffic \
         continues [default: {FAR_END_EVERY}; but some schedules have their own default, such as \
         batched with 50-70p]"
    )
}

impl Options {
    /// Returns these settings. Settings that are missing here are taken from `file`.
    pub(super) fn over(self, file: Options) -> Options {
        Options {
            listen: self.listen.or(file.listen),
            listen_tcp: self.listen_tcp.or(file.listen_tcp),
            listen_tls: self.listen_tls.or(file.listen_tls),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            behind: self.behind.or(file.behind),
            stream_age: self.stream_age.or(file.stream_age),
            to: if self.to.is_empty() { file.to } else { self.to },
            tun: self.tun.or(file.tun),
            key: self.key.or(file.key),
            schedule: self.schedule.or(file.schedule),
            every: self.every.or(file.every),
            redraw: self.redraw.or(file.redraw),
            jitter: self.jitter.or(file.jitter),
            seed: self.seed.or(file.seed),
            pad: if self.pad.is_empty() { file.pad } else { self.pad },
            decoys: self.decoys.or(file.decoys),
            idle: self.idle.or(file.idle),
            max_flows: self.max_flows.or(file.max_flows),
            name: self.name.or(file.name),
            json: self.json || (file.json && !self.quiet),
            quiet: self.quiet || (file.quiet && !self.json),
            verbose: self.verbose || file.verbose,
            metrics: self.metrics.or(file.metrics),
        }
    }

    /// Returns these settings. If they contain no seed of the random number generator, adds
    /// `seed`.
    pub(super) fn seeded(self, seed: u64) -> Options {
        Options { seed: self.seed.or(Some(seed)), ..self }
    }

    /// Returns the name of an output option whose value differs from `before`, if there is one.
    /// Output options cannot change while the far end runs.
    pub(super) fn changed(&self, before: &Options) -> Option<&'static str> {
        let changed = [
            ("json", self.json != before.json),
            ("quiet", self.quiet != before.quiet),
            ("verbose", self.verbose != before.verbose),
            ("metrics", self.metrics != before.metrics),
        ];
        changed.into_iter().find(|(_, changed)| *changed).map(|(name, _)| name)
    }

    /// Checks the options, and converts them to the complete settings of a far end.
    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        let missing = |setting: &str, what: &str| {
            Failure::misuse(format!(
                "--{setting} is missing: {what} (or '{setting} = ...' in the settings file)"
            ))
        };
        let what = "give the address where this far end receives packets";
        let listen = self.listen.ok_or_else(|| missing("listen", what))?;
        let what = "give the file that 'anabranch key' made for this far end";
        let file = self.key.as_ref().ok_or_else(|| missing("key", what))?;
        let keys = KeyFile::read_for(KeyEnd::Far, file)
            .map_err(|error| Failure::misuse(format!("--key: {error}")))?;
        if keys.peers.is_empty() {
            let file = file.display();
            return Err(Failure::misuse(format!(
                "--key: the key file '{file}' lists no splitter that may connect: add one with \
                 'anabranch key {file} --peer NAME=PUBLIC'"
            )));
        }
        if let Some(jitter) = self.jitter {
            check_jitter(jitter, Guess::Look, true)
                .map_err(|error| Failure::misuse(format!("--jitter: {error}")))?;
        }
        let asked = self.schedule.as_ref().map(|AnySchedule(schedule)| schedule);
        check_decoys(self.decoys, asked)
            .map_err(|error| Failure::misuse(format!("--decoys: {error}")))?;
        let usual = || FAR_END_SCHEDULE.parse().expect("the default schedule exists");
        let schedule = self.schedule.clone().map_or_else(usual, |schedule| schedule.0);
        let published = schedule.family().every.unwrap_or(FAR_END_EVERY);
        let every = published.parse().expect("the run length of each schedule is valid");
        let tls = self.tls(file)?;
        Ok(Settings {
            listen,
            listen_tcp: self.listen_tcp,
            fingerprint: tls.as_ref().map(|(_, far)| far.fingerprint().to_string()),
            listen_tls: tls.map(|(listen, far)| (listen, Arc::new(far) as Arc<dyn TlsEnd>)),
            web_server: self.behind.clone(),
            stream_age: self.stream_age.map_or(streams::AGE, |span| span.0),
            keys,
            servers: self.servers()?,
            tun: self.tun.clone(),
            schedule,
            every: self.every.unwrap_or(every),
            redraw: self.redraw,
            jitter: self.jitter,
            decoys: self.decoys,
            seed: self.seed.unwrap_or_else(fresh_seed),
            pad: self.pad.iter().copied().map(usize::from).collect(),
            idle: self.idle.map_or(IDLE, |span| span.0),
            flows: self.max_flows.map_or(FLOWS, usize::from),
        })
    }

    /// Returns the address for TLS connections, and the certificate; `None` without
    /// `--listen-tls`. `key` is the far end's key file; the default certificate is stored next to
    /// it.
    fn tls(&self, key: &Path) -> Result<Option<(SocketAddr, tls::Far)>, Failure> {
        let needs = |given: bool, setting: &str, what: &str| match given {
            true => Err(Failure::misuse(format!("--{setting} also needs {what}"))),
            false => Ok(()),
        };
        let Some(listen) = self.listen_tls else {
            needs(self.tls_cert.is_some(), "tls-cert", "--listen-tls ADDRESS:PORT")?;
            needs(self.tls_key.is_some(), "tls-key", "--listen-tls ADDRESS:PORT")?;
            let has_streams = self.listen_tcp.is_some();
            let streams = "--listen-tcp or --listen-tls, because it is for TCP and TLS connections";
            needs(self.behind.is_some() && !has_streams, "behind", streams)?;
            return Ok(None);
        };
        let far = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), key) => {
                tls::Far::read(certificate, key.as_ref().unwrap_or(certificate))
            }
            (None, Some(_)) => Err("--tls-key also needs --tls-cert FILE".to_owned()),
            (None, None) => {
                let mut name = key.as_os_str().to_owned();
                name.push(".tls.pem");
                tls::Far::read_or_make(Path::new(&name))
            }
        };
        let far = far.map_err(|error| Failure::misuse(format!("--listen-tls: {error}")))?;
        Ok(Some((listen, far)))
    }

    fn servers(&self) -> Result<Vec<Server>, Failure> {
        let servers: Vec<Server> =
            self.to.iter().map(|ServerOption(server)| server.clone()).collect();
        let refuse = |text: String| Err(Failure::misuse(format!("--to: {text}")));
        let twice = |(place, server): &(usize, &Server)| {
            servers[..*place].iter().any(|before| before.name == server.name)
        };
        match servers.iter().enumerate().find(twice) {
            Some((_, server)) if server.name.is_empty() => {
                refuse("each of several servers needs a name: write NAME=HOST:PORT".to_owned())
            }
            Some((_, server)) => {
                refuse(format!("two servers have the name '{}': rename one", server.name))
            }
            None if servers.iter().any(|server| server.name == INTERFACE) => refuse(
                "no server can have the name '*', which stands for the interface of --tun: choose \
                 another name"
                    .to_owned(),
            ),
            None if servers.is_empty() && self.tun.is_none() => refuse(
                "no server is given: give its address (or 'to = ...' in the settings file)"
                    .to_owned(),
            ),
            None => Ok(servers),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        toml_keys::read(text, "f.toml", KEYS).map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_of_the_options_is_a_key_and_no_other() {
        let command = Options::augment_args(Command::new("merge"));
        let flags = command.get_arguments().filter_map(clap::Arg::get_long);
        let mut flags: Vec<_> = flags.collect();
        let mut keys = KEYS[0].keys.to_vec();
        flags.sort_unstable();
        keys.sort_unstable();
        assert_eq!(flags, keys);
    }

    #[test]
    fn a_file_of_an_earlier_program_is_read() {
        let text = include_str!("../../../../tests/formats/0e0b824b/merge.toml");
        let options = parse(text).unwrap();
        assert_eq!(options.listen, Some("[::]:4500".parse().unwrap()));
        assert_eq!(options.key.as_deref(), Some(Path::new("/etc/anabranch/far.key")));
        assert_eq!(options.servers().unwrap().len(), 1);
    }

    #[test]
    fn a_file_names_one_server_or_several() {
        let one = parse("listen = '[::]:4500'\nto = '127.0.0.1:51820'\nevery = '20ms'\n").unwrap();
        assert_eq!(one.servers().unwrap()[0].name, "");
        let two = parse("to = ['a=127.0.0.1:1', 'b=127.0.0.1:2']\npad = [640, 1280]\n").unwrap();
        let names: Vec<_> = two.servers().unwrap().into_iter().map(|server| server.name).collect();
        assert_eq!((names.concat(), two.pad), ("ab".to_owned(), vec![640, 1280]));
        for (text, words) in [
            ("to = ['a=127.0.0.1:1', 'a=127.0.0.1:2']", "two servers have the name 'a'"),
            ("to = ['127.0.0.1:1', '127.0.0.1:2']", "each of several servers needs a name"),
            ("to = '*=127.0.0.1:1'", "no server can have the name '*'"),
            ("", "no server is given"),
        ] {
            let message = parse(text).unwrap().servers().unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
        assert!(parse("tun = 'far0'").unwrap().servers().unwrap().is_empty());
        assert!(parse("to = 'nowhere'").unwrap_err().starts_with("f.toml:1: "));
        assert!(parse("too = 'a:1'").unwrap_err().contains("did you mean `to`?"));
    }
}
