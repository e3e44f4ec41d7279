//! `anabranch authority`: the directory authority of a private onion network.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;

use anabranch_onion::authority as core;
use anabranch_onion::authority::{First, Judgement, Rules};
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::text::hex;
use anabranch_os::entropy::generator;
use anabranch_router::onion::authority::{self, AuthorityError, AuthorityEvent, Running};
use anabranch_router::onion::dirclient::unix;
use anabranch_router::onion::keyring::KeyRing;
use anabranch_router::onion::relay::{self, Changes, LiveSettings, Settings};
use anabranch_router::onion::reload::{Names, Reload, ReloadedSettings};
use anabranch_router::onion::stop_signals;
use anabranch_router::onion::store::own_folder;
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::log::Log;
use super::reread::{Source, common, names, reread};
use super::watch::Screen;
use super::{Common, either, fingerprints, platform, read};
use crate::failure::Failure;
use crate::split::forms;

/// Default interval between two consensuses, in seconds, as in the public Tor network.
const INTERVAL: u64 = 3600;
/// Minimum value of `--interval`, in seconds.
const LEAST_INTERVAL: u64 = 10;
/// Default of `--valid-intervals`: lifetime of a consensus, in intervals.
const VALID_INTERVALS: u64 = 3;
/// Maximum time from the authority's start to its first consensus, in seconds, even if fewer
/// relays run than expected.
const FIRST: u64 = 120;
/// Default of `--certified-days`: lifetime of the certificate, in days.
const CERTIFIED_DAYS: u64 = 365;
/// Seconds of a day.
const DAY: u64 = 86_400;
/// Text at the end of `--help`.
const FILES: &str = "\
EXAMPLES
  The only authority of a network of your own; it prints its DirAuthority line:
    anabranch authority --nickname dam --address 192.0.2.9 --listen 0.0.0.0:9001 \\
        --listen-dir 0.0.0.0:9030 --contact you@example.net

ENVIRONMENT
  JOURNAL_STREAM   set by systemd. Lines then begin with their priority
  NOTIFY_SOCKET    set by systemd. The authority notifies it when ready and when stopping

FILES
  ~/.local/state/anabranch/authority                 keys, relays, consensuses (--data)
  /usr/share/doc/anabranch/examples/authority.toml   example of a file with all settings";
/// Keys that a settings file of `anabranch authority` may contain.
pub(super) const KEYS: &[&str] = &[
    "nickname",
    "address",
    "listen",
    "listen-dir",
    "contact",
    "interval",
    "valid-intervals",
    "expect",
    "param",
    "bandwidths",
    "ban",
    "certified-days",
    "young",
    "ipv6",
    "allow-private",
    "per-address",
];

/// Run the directory authority of an onion network of your own.
///
/// The authority accepts the descriptors (addresses and keys) of relays, and tests whether the
/// relays run. It publishes the consensus, a signed list of the running relays. Both anabranch and
/// C tor (the Tor project's 'tor' program) can read this list. The authority is the only one of
/// its network.
///
/// At its start the authority prints a DirAuthority line and writes it to the file 'authorities'
/// in the folder of --data. Relays and clients need this line to join. The authority makes its
/// keys at the first start, in C tor's file formats, and keeps them in the folder 'keys' of
/// --data. Keep a copy of authority_identity_key: without it the network is lost. The folder of
/// --data also holds the list of relays, their history and the last consensus. After a restart the
/// authority serves that consensus again.
///
/// Every option can be a key of a TOML file. On SIGHUP the authority reads that file again. The
/// authority then prints which changed settings apply from the next consensus on, and which apply
/// only after a restart. If the file has an error, nothing changes. SIGHUP never stops an
/// authority.
#[derive(Args, Clone, Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
#[command(after_long_help = FILES)]
pub(crate) struct AuthorityArgs {
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
    /// Set the authority's name (required): 1 to 19 letters and digits.
    #[arg(long)]
    nickname: Option<String>,
    /// Publish this IPv4 address, at which clients and relays reach the authority (required).
    #[arg(long)]
    address: Option<Ipv4Addr>,
    /// Accept connections from clients and relays at this address (required, repeatable). The
    /// authority publishes the port of the first --listen.
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(deserialize_with = "forms::list")]
    listen: Vec<SocketAddr>,
    /// Accept unencrypted requests for the list of relays at this address (required, repeatable).
    /// The authority publishes the port of the first --listen-dir.
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(deserialize_with = "forms::list")]
    listen_dir: Vec<SocketAddr>,
    /// Publish this contact address, such as an e-mail address, in the consensus.
    #[arg(long)]
    contact: Option<String>,
    /// Publish a new consensus (the signed list of relays) every SECONDS, from 10 to 86400
    /// [default: 3600].
    ///
    /// C tor (the Tor project's 'tor' program) accepts less than 600 s only with TestingTorNetwork
    /// in its torrc.
    #[arg(long, value_name = "SECONDS")]
    interval: Option<u64>,
    /// Let a consensus (the signed list of relays) be valid for COUNT intervals, 2 to 100. The
    /// length of an interval is that of --interval [default: 3].
    #[arg(long, value_name = "COUNT")]
    valid_intervals: Option<u64>,
    /// Publish the first consensus (the signed list of relays) as soon as this number of relays is
    /// running. Without this option, or if fewer relays run, it is published after two minutes, or
    /// after one --interval if that is shorter.
    #[arg(long, value_name = "RELAYS")]
    expect: Option<usize>,
    /// Set a parameter of the network, such as cc_alg=2 (repeatable). The value is a whole number.
    /// Relays and clients read the parameters in the consensus (the signed list of relays).
    #[arg(long, value_name = "NAME=VALUE")]
    #[serde(deserialize_with = "forms::list")]
    param: Vec<String>,
    /// Read the measured bandwidths of relays from FILE before each new consensus (signed list of
    /// relays). FILE has the format of C tor's V3BandwidthsFile.
    #[arg(long, value_name = "FILE")]
    bandwidths: Option<PathBuf>,
    /// Refuse the relay with this fingerprint, which is 40 hexadecimal digits. Repeat the option,
    /// or separate fingerprints by commas, for more relays.
    #[arg(long, value_name = "FINGERPRINT", value_delimiter = ',')]
    #[serde(deserialize_with = "forms::commas")]
    ban: Vec<String>,
    /// List at most this number of relays with the same IP address; 0 means no limit [default: 2,
    /// or 0 if --allow-private is given].
    #[arg(long, value_name = "RELAYS")]
    per_address: Option<usize>,
    /// Let the certificate of the authority's signing key be valid for DAYS. This key signs the
    /// list of relays [default: 365].
    ///
    /// The authority makes a new signing key one month before the certificate expires, or after
    /// two thirds of DAYS if DAYS is less than three months.
    #[arg(long, value_name = "DAYS")]
    certified_days: Option<u64>,
    /// Give every running relay the flags Fast and Stable immediately. Use this only for test
    /// networks that exist for minutes.
    #[arg(long)]
    young: bool,
    /// Test and list the relays' IPv6 addresses too. This machine must have an IPv6 connection.
    #[arg(long)]
    ipv6: bool,
    /// Accept relays with private IP addresses. Use this only for test networks on one machine.
    #[arg(long)]
    allow_private: bool,
}

impl AuthorityArgs {
    /// Runs the authority until a signal ends it.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let flags = self.clone();
        let args = self.merged()?;
        args.common.is_of_nobody_else()?;
        let stop = stop_signals().map_err(Failure::trouble)?;
        let mut rng = generator().map_err(Failure::trouble)?;
        let data = args.common.data("authority")?;
        let (description, core) = (args.description()?, args.core()?);
        let run_status = args.common.run_status("authority", flags.common.file.as_deref());
        let posted = (run_status, args.common.name.as_deref());
        let log = Arc::new(Log::new(posted, args.common.json, args.common.quiet)?);
        let tightened = own_folder(&data).map_err(Failure::misuse)?;
        tightened.into_iter().for_each(|text| print_line(&log, &AuthorityEvent::Trouble(text)));
        let ring = KeyRing::open(&data, &mut rng, unix()).map_err(Failure::misuse)?;
        // The descriptor is checked now, so that its mistakes are reported at once and not in the
        // log of a thread.
        description.sign(ring.keys(), unix()).map_err(Failure::misuse)?;
        let (keys, listen) = (Arc::clone(ring.keys()), args.listen_dir.clone());
        let settings = authority::Settings {
            bandwidths: args.bandwidths.clone(),
            certified_for: args.certified_for(),
            ..authority::Settings::new(&description, keys, listen, data, core)
        };
        let event_log = Arc::clone(&log);
        let notify = Box::new(move |event: AuthorityEvent| print_line(&event_log, &event));
        let (dirclient, running) = authority::start(settings, notify).map_err(failure)?;
        let relay_keys = Arc::clone(ring.keys());
        let live = LiveSettings {
            allow_private: args.allow_private,
            ..LiveSettings::new(description.clone())
        };
        let usual = Settings::new(args.listen.clone(), ring, dirclient, description);
        let relay = Settings { live, ..usual };
        let file = flags.common.file.clone();
        let mut source = Source { flags, running: args, authorities: Vec::new() };
        let reread = reread(file, || source.read(&relay_keys, &running));
        let reload = Some(Reload::new(reread).map_err(Failure::trouble)?);
        let done = relay::run_rereading(relay, &stop, reload, &mut Screen::of(log));
        drop(source);
        running.join();
        done.map_err(Failure::trouble)
    }

    /// Returns the lifetime of the certificate of a signing key, in seconds.
    fn certified_for(&self) -> u64 {
        self.certified_days.unwrap_or(CERTIFIED_DAYS).max(1) * DAY
    }

    pub(super) fn description(&self) -> Result<Description, Failure> {
        let lacks = |what: &str| {
            Failure::misuse(format!("{what} is missing: an authority needs this option"))
        };
        let or = self.listen.first().ok_or_else(|| lacks("--listen ADDRESS:PORT"))?;
        let dir = self.listen_dir.first().ok_or_else(|| lacks("--listen-dir ADDRESS:PORT"))?;
        if or.port() == 0 || dir.port() == 0 {
            let message = "--listen and --listen-dir need ports from 1 to 65535, because the \
                           authority publishes these ports";
            return Err(Failure::misuse(message));
        }
        let nickname = self.nickname.clone().ok_or_else(|| lacks("--nickname NAME"))?;
        let address = self.address.ok_or_else(|| lacks("--address IPV4"))?;
        let at = SocketAddrV4::new(address, or.port());
        Ok(Description {
            dir_port: dir.port(),
            contact: self.contact.clone(),
            ..Description::new(nickname, at, platform())
        })
    }

    pub(super) fn core(&self) -> Result<core::Settings, Failure> {
        let interval = self.interval.unwrap_or(INTERVAL);
        if !(LEAST_INTERVAL..=DAY).contains(&interval) {
            let message = format!("--interval {interval}: write {LEAST_INTERVAL} to {DAY} seconds");
            return Err(Failure::misuse(message));
        }
        let valid_intervals = self.valid_intervals.unwrap_or(VALID_INTERVALS);
        if !(2..=100).contains(&valid_intervals) {
            let message =
                "write 2 to 100, because a consensus must be valid until the next one is published";
            return Err(Failure::misuse(format!("--valid-intervals {valid_intervals}: {message}")));
        }
        let relays = self.expect.unwrap_or(usize::MAX);
        let first = First { relays, seconds: interval.min(FIRST) };
        Ok(core::Settings {
            interval,
            valid_intervals,
            first,
            // The ratios are those of 45 and 21 minutes to an interval of one hour.
            running_for: (interval * 3 / 4).max(60),
            probe_every: (interval * 16 / 45).max(5),
            ipv6: self.ipv6,
            judgement: Judgement { young: self.young, ..Judgement::default() },
            rules: Rules {
                allow_private: self.allow_private,
                banned: fingerprints("--ban", &self.ban)?,
                per_address: self.per_address.unwrap_or(if self.allow_private { 0 } else { 2 }),
            },
            params: params(&self.param)?,
            ..core::Settings::default()
        })
    }

    /// Returns the flags, with the settings of the file for flags that were not given.
    fn merged(mut self) -> Result<AuthorityArgs, Failure> {
        let Some(path) = self.common.file.take() else { return Ok(self) };
        let file: AuthorityArgs = read(&path, KEYS)?;
        Ok(AuthorityArgs {
            common: self.common.or(file.common),
            nickname: self.nickname.or(file.nickname),
            address: self.address.or(file.address),
            listen: either(self.listen, file.listen),
            listen_dir: either(self.listen_dir, file.listen_dir),
            contact: self.contact.or(file.contact),
            interval: self.interval.or(file.interval),
            valid_intervals: self.valid_intervals.or(file.valid_intervals),
            expect: self.expect.or(file.expect),
            param: either(self.param, file.param),
            bandwidths: self.bandwidths.or(file.bandwidths),
            ban: either(self.ban, file.ban),
            per_address: self.per_address.or(file.per_address),
            certified_days: self.certified_days.or(file.certified_days),
            young: self.young || file.young,
            ipv6: self.ipv6 || file.ipv6,
            allow_private: self.allow_private || file.allow_private,
        })
    }
}

impl Source<AuthorityArgs> {
    /// Reads the settings from flags and file again. The running authority uses its new settings
    /// at once. Returns the settings of the relay that is part of the authority.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    fn read(
        &mut self,
        keys: &RelayKeys,
        running: &Running,
    ) -> Result<ReloadedSettings<Changes>, Failure> {
        let new = self.flags.clone().merged()?;
        new.common.is_of_nobody_else()?;
        let names = new.names(&self.running);
        let next = new.over_fixed(&self.running);
        let (description, core) = (next.description()?, next.core()?);
        description.sign(keys, unix()).map_err(Failure::misuse)?;
        let usual = authority::Changes::new(&description, core);
        let (bandwidths, certified_for) = (next.bandwidths.clone(), next.certified_for());
        running.adopt(authority::Changes { bandwidths, certified_for, ..usual });
        let live =
            LiveSettings { allow_private: next.allow_private, ..LiveSettings::new(description) };
        self.running = next;
        Ok(ReloadedSettings { settings: Changes { live, authorities: None }, names })
    }
}

impl AuthorityArgs {
    /// Returns the names of the settings that differ from `old`, the settings in force. The result
    /// separates settings that apply at once from settings that need a restart.
    fn names(&self, old: &AuthorityArgs) -> Names {
        let live = [
            ("contact", self.contact != old.contact),
            ("valid-intervals", self.valid_intervals != old.valid_intervals),
            ("expect", self.expect != old.expect),
            ("param", self.param != old.param),
            ("bandwidths", self.bandwidths != old.bandwidths),
            ("ban", self.ban != old.ban),
            ("per-address", self.per_address != old.per_address),
            ("certified-days", self.certified_days != old.certified_days),
            ("young", self.young != old.young),
        ];
        let fixed = [
            ("nickname", self.nickname != old.nickname),
            ("address", self.address != old.address),
            ("listen", self.listen != old.listen),
            ("listen-dir", self.listen_dir != old.listen_dir),
            ("interval", self.interval != old.interval),
            ("ipv6", self.ipv6 != old.ipv6),
            ("allow-private", self.allow_private != old.allow_private),
        ];
        names(&live, &[&fixed[..], &common(&old.common, &self.common)].concat())
    }

    /// Returns these settings, but with the values of `old` for settings whose change needs a
    /// restart.
    fn over_fixed(self, old: &AuthorityArgs) -> AuthorityArgs {
        AuthorityArgs {
            common: self.common.over_fixed(&old.common),
            nickname: old.nickname.clone(),
            address: old.address,
            listen: old.listen.clone(),
            listen_dir: old.listen_dir.clone(),
            interval: old.interval,
            ipv6: old.ipv6,
            allow_private: old.allow_private,
            ..self
        }
    }
}

/// Converts `error` to a failure with an exit code. The code is 1 (trouble) if the system refuses
/// something, such as a port in use. It is 2 (misuse) if the authority's folder cannot be used.
fn failure(error: AuthorityError) -> Failure {
    match error {
        AuthorityError::System(_) => Failure::trouble(error),
        AuthorityError::Store(_) => Failure::misuse(error),
    }
}

fn params(texts: &[String]) -> Result<BTreeMap<String, i32>, Failure> {
    let read = |text: &String| {
        let to_error =
            || Failure::misuse(format!("--param {text}: write NAME=VALUE with a whole number"));
        let (name, value) = text.split_once('=').ok_or_else(to_error)?;
        let letters = name.bytes().all(|one| one.is_ascii_alphanumeric() || b"_-".contains(&one));
        if name.is_empty() || !letters {
            return Err(to_error());
        }
        Ok((name.to_owned(), value.parse().map_err(|_| to_error())?))
    };
    texts.iter().map(read).collect()
}

fn print_line(log: &Log, event: &AuthorityEvent) {
    let text = match event {
        AuthorityEvent::Trouble(text) => return log.warn(&value(event), text),
        AuthorityEvent::Line(line) => line.clone(),
        AuthorityEvent::Consensus(relays, _) => {
            format!("new consensus with {relays} running relays")
        }
        AuthorityEvent::Relay(id, known) => {
            format!("relay {} sent a new descriptor; this authority knows {known} relays", hex(id))
        }
        AuthorityEvent::Refused(text) => format!("refused a relay's upload: {text}"),
    };
    log.print(&value(event), &text);
}

fn value(event: &AuthorityEvent) -> Value {
    match event {
        AuthorityEvent::Line(line) => json!({"event": "authority", "what": line}),
        AuthorityEvent::Consensus(relays, times) => json!({
            "event": "consensus", "relays": relays, "valid_after": times.valid_after,
            "fresh_until": times.fresh_until, "valid_until": times.valid_until,
        }),
        AuthorityEvent::Relay(id, known) => {
            json!({"event": "relay", "relay": hex(id), "known": known})
        }
        AuthorityEvent::Refused(text) => json!({"event": "refused", "what": text}),
        AuthorityEvent::Trouble(text) => json!({"event": "trouble", "what": text}),
    }
}

#[cfg(test)]
mod tests {
    use anabranch_onion::authority::Times;

    use super::*;
    use crate::screen::earlier::assert_readable;

    #[test]
    fn programs_that_read_earlier_lines_can_read_todays() {
        let times = Times { valid_after: 1, fresh_until: 2, valid_until: 3 };
        let events = [
            AuthorityEvent::Line("DirAuthority".to_owned()),
            AuthorityEvent::Consensus(3, times),
            AuthorityEvent::Relay([7; 20], 3),
            AuthorityEvent::Refused("a descriptor".to_owned()),
            AuthorityEvent::Trouble("auth2 does not answer".to_owned()),
        ];
        let mut lines: Vec<Value> = events.iter().map(value).collect();
        lines.iter_mut().for_each(|line| line["time"] = json!(20.0));
        let earlier = include_str!("../../../../tests/formats/0e0b824b/events/authority.jsonl");
        assert_readable(earlier, &lines);
    }
}
