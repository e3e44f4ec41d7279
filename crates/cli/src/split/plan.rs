//! Checks of the user's options, and their conversion to complete settings, before any socket is
//! opened.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use anabranch_capture::PcapLimits;
use anabranch_comps::{Config, FAR_END_EVERY, FAR_END_SCHEDULE, Guess, Protocol, check_jitter};
use anabranch_multipath::DecoyBudget;
use anabranch_multipath::schedule::Spec;
use anabranch_multipath::seed::stream;
use anabranch_splitter::far_end::{FarEnd, INTERFACE, Inner, KeyEnd, KeyFile};
use anabranch_splitter::paths::{Circuits, PathSpec, StreamKind, circuits, distinct};
use anabranch_splitter::split::{Entrance, Settings, fresh_seed};
use anabranch_splitter::steer::{Ports, Request, UPLINK};
use anabranch_splitter::streams::{self, TlsEnd};

use super::options::Options;
use super::uplinks;
use super::values::AnySchedule;
use crate::failure::Failure;
use crate::tls;

/// Checks `options`, and fills in defaults.
///
/// # Errors
/// An option is missing, or options contradict each other. Nothing was opened, looked up or
/// written.
pub(crate) fn settings(options: &Options) -> Result<Settings, Failure> {
    let paths = uplinks::expand(&options.paths)?;
    let paths = streams(options, paths)?;
    distinct(&paths).map_err(in_setting("path"))?;
    let tls = tls(options, &paths)?;
    let far_end = far_end(options, paths.len())?;
    let (entrance, far_end) = entrance(options, &paths, far_end)?;
    let roles = Roles::of(options, &paths)?;
    let paths = roles.order(&paths);
    let core = config(options, &paths, &roles)?;
    roles.check_tuples(core.quic_tuples)?;
    check_outputs(options, &paths)?;
    Ok(Settings {
        entrance,
        far_end,
        specs: paths,
        core,
        to_tcp: options.to_tcp.clone(),
        tls,
        stream_age: options.stream_age.map_or(streams::AGE, |span| span.0),
        fwmark: options.fwmark.map(|mark| mark.0),
        same_egress: options.same_egress,
        trace: options.trace.clone(),
        pcap: options.pcap.clone(),
        pcap_limits: pcap_limits(options),
    })
}

/// Default SOCKS address of C tor, for paths of the kind `onion:N`.
const ONION_SOCKS: &str = "127.0.0.1:9050";

/// Completes the paths that are TCP or TLS connections with default values. Replaces each path of
/// the kind `onion:N` by N paths with one circuit each.
fn streams(options: &Options, paths: Vec<PathSpec>) -> Result<Vec<PathSpec>, Failure> {
    if let Some(path) = paths.iter().find(|path| path.stream.is_some())
        && options.key.is_none()
    {
        return Err(in_setting("path")(format!(
            "path '{}' is a TCP connection, which needs a far end: start 'anabranch merge \
             --listen-tcp ADDRESS:PORT' in front of the server, and add --key FILE \
             (docs/guide/far-end.md)",
            path.name
        )));
    }
    let usual = || ONION_SOCKS.parse().expect("the default address is valid");
    let socks = options.onion_socks.clone().unwrap_or_else(usual);
    let run = std::process::id().to_string();
    let filled = paths.into_iter().flat_map(|path| match &path.stream {
        Some(StreamKind::Tcp(None)) => {
            let to = options.to_tcp.clone();
            vec![path.streaming(StreamKind::Tcp(to))]
        }
        Some(StreamKind::Onion(Circuits::Count(count))) => {
            let of = |(n, kind)| {
                let name = format!("{}-{n}", path.name);
                PathSpec { name, ..path.clone().streaming(kind) }
            };
            let run = format!("{run}-{}", path.name);
            (1..).zip(circuits(*count, &socks, &run)).map(of).collect()
        }
        _ => vec![path],
    });
    Ok(filled.collect())
}

/// Returns the rule for accepting the far end's TLS certificate: by its fingerprint, or by the CA
/// that has signed it. Returns `None` if no path uses TLS.
fn tls(options: &Options, paths: &[PathSpec]) -> Result<Option<Arc<dyn TlsEnd>>, Failure> {
    let is_tls = |path: &&PathSpec| matches!(path.stream, Some(StreamKind::Tls(_)));
    let Some(path) = paths.iter().find(is_tls) else { return Ok(None) };
    let end = match (options.tls_fingerprint, &options.tls_ca) {
        (Some(_), Some(_)) => {
            return Err(in_setting("tls-ca")(
                "--tls-fingerprint already determines the accepted certificate: remove one of the \
                 two options",
            ));
        }
        (Some(fingerprint), None) => tls::Near::pinned(fingerprint),
        (None, Some(file)) => tls::Near::by_ca(file).map_err(in_setting("tls-ca"))?,
        (None, None) => {
            return Err(in_setting("path")(format!(
                "path '{}' uses TLS, so the splitter must recognise the far end's certificate: add \
                 --tls-fingerprint HEX, which 'anabranch merge --listen-tls' prints, or --tls-ca \
                 FILE if a CA has signed its certificate",
                path.name
            )));
        }
    };
    Ok(Some(Arc::new(end)))
}

/// Returns the source of the client programs' datagrams: a local UDP port or a network interface.
/// Also checks for conflicts between options, because clap does not see the options of a file.
fn entrance(
    options: &Options,
    paths: &[PathSpec],
    far_end: Option<FarEnd>,
) -> Result<(Entrance, Option<FarEnd>), Failure> {
    let Some(tun) = &options.tun else {
        for (given, setting) in [
            (options.route, "route"),
            (options.netns.is_some(), "netns"),
            (!options.udp.is_empty(), "udp"),
            (!options.dns.is_empty(), "dns"),
        ] {
            if given {
                return Err(in_setting(setting)("this option needs an interface: add --tun NAME"));
            }
        }
        let what = "give the address where the splitter receives packets";
        let listen = options.listen.ok_or_else(|| missing("listen", what))?;
        let to = options.to.clone().ok_or_else(|| missing("to", "give the server's address"))?;
        return Ok((Entrance::Port { listen, to }, far_end));
    };
    if let Some(far_end) = far_end {
        return for_packets(options, tun, far_end);
    }
    if options.listen.is_some() || options.to.is_some() {
        return Err(in_setting("tun")("this option replaces --listen and --to: remove them"));
    }
    if !options.dns.is_empty() && options.netns.is_none() {
        return Err(in_setting("dns")(
            "name servers can be set only for a namespace: add --netns NAME",
        ));
    }
    if let Some(path) = paths.iter().find(|path| path.proxy.is_some()) {
        let name = &path.name;
        return Err(in_setting("tun")(format!(
            "path '{name}' goes through a proxy, which cannot be used with --tun: the proxy \
             carries only UDP, not programs' TCP connections. Remove the path, or use --listen and \
             --to instead of --tun"
        )));
    }
    check_interface(tun, options.netns.is_some()).map_err(in_setting("tun"))?;
    if options.route && options.fwmark.is_some() {
        return Err(in_setting("fwmark")(
            "remove this option, because --route sets its own mark on the splitter's packets, and \
             programs' packets with your mark would bypass the splitter",
        ));
    }
    options.netns.as_deref().map_or(Ok(()), check_namespace).map_err(in_setting("netns"))?;
    Ok((Entrance::Tun(request(options, tun, None)), far_end))
}

fn request(options: &Options, tun: &str, inner: Option<Inner>) -> Request {
    Request {
        tun: tun.to_owned(),
        netns: options.netns.clone(),
        route: options.route,
        ports: Ports::with(&options.udp),
        dns: options.dns.clone(),
        inner,
    }
}

/// Returns the network interface from which the splitter reads IP packets. All packets go to a far
/// end (`anabranch merge`).
fn for_packets(
    options: &Options,
    tun: &str,
    far_end: FarEnd,
) -> Result<(Entrance, Option<FarEnd>), Failure> {
    let to = options.to.clone().ok_or_else(|| missing("to", "give the far end's address"))?;
    let refused = [
        (
            options.listen.is_some(),
            "listen",
            "remove this option, because the interface of --tun replaces it",
        ),
        (
            !options.udp.is_empty(),
            "udp",
            "remove this option, because all packets of the interface go to the far end",
        ),
        (
            options.behind.is_some(),
            "behind",
            "remove this option, because with --tun packets go to the far end's interface, not to \
             one of its servers",
        ),
        (
            options.route && options.netns.is_none(),
            "route",
            "with a far end (--key) this option works only in a namespace: add --netns NAME, or \
             remove --route and set your own routes",
        ),
        (
            !options.dns.is_empty() && options.netns.is_none(),
            "dns",
            "name servers can be set only for a namespace: add --netns NAME",
        ),
    ];
    if let Some((_, setting, why)) = refused.into_iter().find(|(given, ..)| *given) {
        return Err(in_setting(setting)(why));
    }
    check_interface(tun, options.netns.is_some()).map_err(in_setting("tun"))?;
    options.netns.as_deref().map_or(Ok(()), check_namespace).map_err(in_setting("netns"))?;
    let request = request(options, tun, Some(far_end.inner()));
    Ok((Entrance::Packets { request, to }, Some(far_end.for_packets())))
}

/// Maximum number of paths of a splitter that sends to a far end (`anabranch merge`).
const MOST_PATHS: usize = 64;
/// Maximum length in bytes of a server's name. With such a name the splitter selects one of a far
/// end's servers.
const LONGEST_NAME: usize = 32;

/// Returns the settings for sending to a far end; `None` without `--key`.
fn far_end(options: &Options, paths: usize) -> Result<Option<FarEnd>, Failure> {
    let refuse = |setting, why: &str| Err(in_setting(setting)(why));
    let Some(file) = &options.key else {
        let given = [
            ("behind", options.behind.is_some()),
            ("pad", !options.pad.is_empty()),
            ("decoys", options.decoys.is_some()),
            ("to-tcp", options.to_tcp.is_some()),
        ];
        return match given.into_iter().find(|(_, given)| *given) {
            Some(("decoys", _)) => refuse(
                "decoys",
                "decoys (dummy packets) need a far end, because an unmodified server would take \
                 them for data: add --key FILE",
            ),
            Some((setting, _)) => {
                refuse(setting, "this option needs a far end ('anabranch merge'): add --key FILE")
            }
            None => Ok(None),
        };
    };
    check_unused_with_key(options)?;
    let server_name = options.behind.clone().unwrap_or_default();
    if server_name.len() > LONGEST_NAME || server_name == INTERFACE {
        return refuse(
            "behind",
            "the name of a server has at most 32 bytes, and cannot be '*': choose another name",
        );
    }
    if paths > MOST_PATHS {
        return refuse("key", "a far end accepts at most 64 paths: remove some");
    }
    let KeyFile { own, peers, .. } =
        KeyFile::read_for(KeyEnd::Splitter, file).map_err(in_setting("key"))?;
    let [peer] = &peers[..] else {
        let file = file.display();
        let cure = match peers.len() {
            0 => format!(
                "add the far end's public key with 'anabranch key {file} --peer NAME=PUBLIC'"
            ),
            count => format!("it has {count} entries; keep only that of the far end"),
        };
        return Err(in_setting("key")(format!(
            "the key file '{file}' needs exactly one [[peer]] entry, for the far end: {cure}"
        )));
    };
    let pad = options.pad.iter().copied().map(usize::from).collect();
    let (public, psk, decoys) = (peer.public, peer.psk, options.decoys);
    let schedule = options.schedule.as_ref().map(|AnySchedule(schedule)| schedule);
    check_decoys(decoys, schedule).map_err(in_setting("decoys"))?;
    Ok(Some(FarEnd { own, public, psk, server_name, pad, decoys }))
}

/// Returns an error if decoys (dummy packets) are combined with a schedule that uses congestion
/// windows. Such a schedule shows which paths are idle anyway, and decoys would use up the
/// windows.
///
/// # Errors
/// A one-line message, if both are given.
pub(crate) fn check_decoys(
    decoys: Option<DecoyBudget>,
    schedule: Option<&Spec>,
) -> Result<(), String> {
    match schedule.filter(|schedule| decoys.is_some() && schedule.family().needs_windows) {
        Some(schedule) => Err(format!(
            "decoys (dummy packets) would use up the congestion windows that schedule '{schedule}' \
             needs for data: choose another schedule, such as weighted:4"
        )),
        None => Ok(()),
    }
}

/// Returns an error if an option has no use with a far end, which encrypts the traffic and
/// restores its order.
fn check_unused_with_key(options: &Options) -> Result<(), Failure> {
    let given = [
        (
            options.handshake.is_some(),
            "handshake",
            "remove this option, because packets to a far end (--key) all look alike, handshakes \
             too",
        ),
        (
            options.in_order.is_some(),
            "in-order",
            "remove this option, because with a far end (--key) both ends always restore the \
             order",
        ),
        (
            options.keep_silent_paths,
            "keep-silent-paths",
            "remove this option, because with a far end (--key) each path is tested separately",
        ),
        (
            options.protocol.is_some(),
            "protocol",
            "remove this option, because with a far end (--key) every protocol is split",
        ),
    ];
    match given.into_iter().find(|(given, ..)| *given) {
        Some((_, setting, why)) => Err(in_setting(setting)(why)),
        None => Ok(()),
    }
}

/// Checks the name of a network interface, which becomes part of commands and file names.
fn check_interface(name: &str, in_namespace: bool) -> Result<(), String> {
    let good = (1..16).contains(&name.len()) && is_plain(name);
    if ["all", "default", "lo"].contains(&name) || in_namespace && name == UPLINK {
        Err(format!("'{name}' is reserved: choose another name"))
    } else if good {
        Ok(())
    } else {
        Err(format!(
            "'{name}' cannot be the name of a network interface: use 1 to 15 letters, digits, '_', \
             '.' and '-'"
        ))
    }
}

fn check_namespace(name: &str) -> Result<(), String> {
    let good = (1..64).contains(&name.len()) && is_plain(name);
    if good {
        Ok(())
    } else {
        Err(format!(
            "'{name}' cannot be the name of a network namespace: use 1 to 63 letters, digits, '_', \
             '.' and '-'"
        ))
    }
}

fn is_plain(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.chars().all(allowed) && name.chars().any(|c| c != '.')
}

fn config(options: &Options, paths: &[PathSpec], roles: &Roles) -> Result<Config, Failure> {
    let mut config = Config::of(paths.len());
    config.ports = paths.iter().map(|spec| spec.ports).collect();
    config.handshake = roles.place(paths.len());
    config.handshake_scheduled = roles.handshake_scheduled;
    if options.key.is_some() {
        (config.far_end, config.protocol) = (true, Guess::Is(Protocol::Other));
        config.schedule = FAR_END_SCHEDULE.parse().expect("the default schedule exists");
        config.every = FAR_END_EVERY.parse().expect("the default run length is valid");
    }
    if let Some(AnySchedule(schedule)) = &options.schedule {
        if !config.far_end {
            schedule.check_without_windows().map_err(in_setting("schedule"))?;
        }
        config.schedule = schedule.clone();
    }
    let published = config.schedule.family().every;
    let published =
        published.map(|text| text.parse().expect("the run length of each schedule is valid"));
    config.every = options.every.or(published).unwrap_or(config.every);
    config.redraw = options.redraw;
    config.jitter = options.jitter;
    config.seed = options.seed.unwrap_or_else(fresh_seed);
    config.in_order = options.in_order.map(|longest| longest.0);
    config.keep_silent_paths = options.keep_silent_paths;
    config.quic_tuples = options.quic_tuples.map_or(config.quic_tuples, usize::from);
    config.idle = options.idle.map_or(config.idle, |span| span.0);
    config.sessions = options.max_sessions.map_or(config.sessions, usize::from);
    config.protocol = options.protocol.map_or(config.protocol, |traffic| traffic.0);
    if let Some(jitter) = config.jitter {
        check_jitter(jitter, config.protocol, config.far_end).map_err(in_setting("jitter"))?;
    }
    let trial = config.schedule.build(roles.scheduled, stream(0, 0, "trial"));
    trial.map_err(in_setting("schedule"))?;
    Ok(config)
}

/// The two roles of paths: one path may carry handshakes, and the others carry the traffic that
/// the schedule distributes.
#[derive(Debug, PartialEq, Eq)]
struct Roles {
    handshake: Option<usize>,
    handshake_scheduled: bool,
    /// Number of paths that the schedule uses.
    scheduled: usize,
}

impl Roles {
    fn of(options: &Options, paths: &[PathSpec]) -> Result<Roles, Failure> {
        let name = options.handshake.as_deref();
        let handshake = name.map(|name| find(paths, name, "handshake")).transpose()?;
        let handshake_scheduled = match &options.scheduled {
            Some(names) => Roles::check_list(paths, names, handshake)?,
            None => handshake.is_none(),
        };
        let scheduled = paths.len() - usize::from(!handshake_scheduled);
        if scheduled == 0 {
            return Err(Failure::misuse(
                "no path is left for the traffic after the handshake: list the --handshake path in \
                 --scheduled too, or add another path",
            ));
        }
        Ok(Roles { handshake, handshake_scheduled, scheduled })
    }

    /// Returns the paths in the order of the splitter's path numbers. A handshake path that the
    /// schedule does not use is the last.
    fn order(&self, paths: &[PathSpec]) -> Vec<PathSpec> {
        let mut ordered = paths.to_vec();
        if let Some(index) = self.handshake.filter(|_| !self.handshake_scheduled) {
            ordered[index..].rotate_left(1);
        }
        ordered
    }

    /// Returns the index of the handshake path in the result of [`Roles::order`]; `None` without
    /// one. `paths` is the number of all paths.
    fn place(&self, paths: usize) -> Option<usize> {
        self.handshake.map(|index| if self.handshake_scheduled { index } else { paths - 1 })
    }

    /// Checks `limit`, the maximum number of four-tuples (addresses and ports) per QUIC
    /// connection. If the schedule does not use the handshake path, a connection needs at least
    /// two: one on the handshake path, and one on another path.
    fn check_tuples(&self, limit: usize) -> Result<(), Failure> {
        if limit > 1 || self.handshake_scheduled {
            return Ok(());
        }
        Err(Failure::misuse(
            "--quic-tuples: write 2 or more, because a QUIC connection uses one source address and \
             port on the --handshake path, and at least one on the other paths",
        ))
    }

    /// Checks that `names`, the value of `--scheduled`, contains all paths except possibly the
    /// handshake path. Returns whether it contains the handshake path.
    fn check_list(
        paths: &[PathSpec],
        names: &[String],
        handshake: Option<usize>,
    ) -> Result<bool, Failure> {
        for name in names {
            find(paths, name, "scheduled")?;
        }
        let listed = |path: &PathSpec| names.contains(&path.name);
        let others = paths.iter().enumerate().filter(|(index, _)| Some(*index) != handshake);
        match others.map(|(_, path)| path).find(|path| !listed(path)) {
            Some(idle) => Err(Failure::misuse(format!(
                "path '{}' would carry nothing, because neither --scheduled nor --handshake names \
                 it: add this path to --scheduled, or remove the path",
                idle.name
            ))),
            None => Ok(handshake.is_none_or(|index| listed(&paths[index]))),
        }
    }
}

fn find(paths: &[PathSpec], name: &str, setting: &str) -> Result<usize, Failure> {
    let place = paths.iter().position(|path| path.name == name);
    place.ok_or_else(|| {
        let names: Vec<_> = paths.iter().map(|path| path.name.as_str()).collect();
        let known = names.join(", ");
        Failure::misuse(format!("--{setting}: there is no path '{name}'; choose one of {known}"))
    })
}

/// Checks, before the splitter starts, that its trace and captures can be written. Otherwise the
/// user would see the error only when the splitter ends.
fn check_outputs(options: &Options, paths: &[PathSpec]) -> Result<(), Failure> {
    let mut trace = options.trace.iter();
    trace.try_for_each(|trace| check_file("trace", trace, options.replace))?;
    let refuse = |setting, text: &str| Err(in_setting(setting)(text));
    let Some(pcap) = &options.pcap else {
        return match (options.pcap_size, options.pcap_files) {
            (None, None) => Ok(()),
            (Some(_), _) => refuse("pcap-size", "this option needs a capture: add --pcap DIR"),
            _ => refuse("pcap-files", "this option needs a capture: add --pcap DIR --pcap-size MB"),
        };
    };
    if options.pcap_files.is_some() && options.pcap_size.is_none() {
        return refuse("pcap-files", "this option needs the size of the files: add --pcap-size MB");
    }
    if pcap.exists() && !pcap.is_dir() {
        return Err(in_setting("pcap")(format!("'{}' is not a directory", pcap.display())));
    }
    let limits = pcap_limits(options);
    let is_ours = |name: &str| paths.iter().any(|path| limits.may_name(&path.name, name));
    let there = std::fs::read_dir(pcap).into_iter().flatten().flatten();
    let mut there = there.filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    there.try_for_each(|entry| refuse_existing("pcap", &entry.path(), options.replace))
}

/// Returns the limits of packet captures in bytes. The options give them in megabytes.
fn pcap_limits(options: &Options) -> PcapLimits {
    let bytes = |size: NonZeroUsize| (size.get() as u64).saturating_mul(1_000_000);
    let size = options.pcap_size.map(bytes);
    PcapLimits { size, files: options.pcap_files.map(NonZeroUsize::get) }
}

/// Returns an error if `file` could not be written at the end of the program, or if it exists and
/// `replace` is false.
pub(crate) fn check_file(setting: &'static str, file: &Path, replace: bool) -> Result<(), Failure> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    check_directory(setting, parent.unwrap_or(Path::new(".")))?;
    if file.is_dir() {
        return Err(in_setting(setting)(format!("'{}' is a directory", file.display())));
    }
    refuse_existing(setting, file, replace)
}

fn refuse_existing(setting: &'static str, file: &Path, replace: bool) -> Result<(), Failure> {
    if replace || !file.exists() {
        return Ok(());
    }
    Err(in_setting(setting)(format!(
        "'{}' already exists: choose another name, or add --replace to replace it",
        file.display()
    )))
}

fn check_directory(setting: &'static str, path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    Err(in_setting(setting)(format!("there is no directory '{}': create it first", path.display())))
}

fn missing(setting: &str, what: &str) -> Failure {
    Failure::misuse(format!(
        "--{setting} is missing: {what} (or '{setting} = ...' in the settings file)"
    ))
}

fn in_setting<E: Display>(setting: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::misuse(format!("--{setting}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(handshake: Option<&str>, scheduled: Option<&[&str]>) -> Options {
        let names = scheduled.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        Options {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            to: Some("127.0.0.1:9".parse().unwrap()),
            paths: ["a", "b", "c"].map(|name| format!("{name}=ports:2").parse().unwrap()).to_vec(),
            handshake: handshake.map(str::to_owned),
            scheduled: names,
            ..Options::default()
        }
    }

    fn roles(handshake: Option<&str>, scheduled: Option<&[&str]>) -> Option<(bool, usize)> {
        let options = options(handshake, scheduled);
        let config = Roles::of(&options, &uplinks::expand(&options.paths).ok()?).ok()?;
        Some((config.handshake_scheduled, config.scheduled))
    }

    #[test]
    fn the_handshake_path_is_in_the_schedule_only_if_listed() {
        assert_eq!(roles(None, None), Some((true, 3)));
        assert_eq!(roles(Some("b"), None), Some((false, 2)));
        assert_eq!(roles(Some("b"), Some(&["a", "c"])), Some((false, 2)));
        assert_eq!(roles(Some("b"), Some(&["a", "b", "c"])), Some((true, 3)));
    }

    #[test]
    fn the_default_is_another_with_a_far_end() {
        let usual = |key: Option<&str>, schedule: Option<&str>, every: Option<&str>| {
            let options = Options {
                key: key.map(Into::into),
                schedule: schedule.map(|text| text.parse().unwrap()),
                every: every.map(|text| text.parse().unwrap()),
                ..options(None, None)
            };
            let paths = uplinks::expand(&options.paths).unwrap();
            let roles = Roles::of(&options, &paths).unwrap();
            let config = config(&options, &paths, &roles).unwrap();
            format!("{} {}", config.schedule, config.every)
        };
        assert_eq!(usual(None, None, None), "weighted:4 100ms");
        assert_eq!(usual(Some("home.key"), None, None), "uniform ~10p");
        assert_eq!(usual(Some("home.key"), Some("weighted:4"), Some("100ms")), "weighted:4 100ms");
        assert_eq!(usual(Some("home.key"), Some("batched"), None), "batched 50-70p");
    }

    #[test]
    fn a_path_without_a_use_is_refused() {
        assert_eq!(roles(Some("b"), Some(&["a"])), None);
        assert_eq!(roles(None, Some(&["a", "b"])), None);
        assert_eq!(roles(Some("x"), None), None);
        assert_eq!(roles(None, Some(&["a", "b", "c", "x"])), None);
    }

    #[test]
    fn a_handshake_path_that_stands_apart_comes_last() {
        let order = |handshake, scheduled| {
            let settings = settings(&options(handshake, scheduled)).unwrap();
            let names: Vec<_> = settings.specs.iter().map(|spec| spec.name.clone()).collect();
            anabranch_comps::Core::new(settings.core.clone()).unwrap();
            (names.concat(), settings.core.handshake)
        };
        assert_eq!(order(Some("a"), None), ("bca".into(), Some(2)));
        assert_eq!(order(Some("a"), Some(&["a", "b", "c"])), ("abc".into(), Some(0)));
    }

    #[test]
    fn weights_count_the_paths_of_the_schedule() {
        let with = |weights: &str, handshake| {
            let schedule = Some(weights.parse().unwrap());
            settings(&Options { schedule, ..options(handshake, None) }).is_ok()
        };
        assert!(with("weights:1,2,3", None) && with("weights:1,2", Some("a")));
        assert!(!with("weights:1,2", None) && !with("weights:1,2,3", Some("a")));
    }

    #[test]
    fn an_interface_takes_the_place_of_a_port() {
        let free = Options { listen: None, to: None, ..options(None, None) };
        let with = |change: fn(&mut Options)| {
            let mut options =
                Options { listen: None, to: None, tun: Some("any0".into()), ..options(None, None) };
            change(&mut options);
            settings(&options).map(|settings| settings.entrance)
        };
        let Ok(Entrance::Tun(request)) = with(|_| {}) else { panic!("no interface") };
        assert!(!request.route && request.ports.contains(443) && !request.ports.contains(53));
        for change in [
            (|options| options.listen = Some("127.0.0.1:1".parse().unwrap())) as fn(&mut Options),
            |options| options.tun = Some("a b".into()),
            |options| options.tun = Some("much-too-long-a-name".into()),
            |options| options.tun = Some("all".into()),
            |options| options.tun = Some("default".into()),
            |options| (options.tun, options.netns) = (Some("uplink".into()), Some("b".into())),
            |options| (options.route, options.fwmark) = (true, Some("51820".parse().unwrap())),
            |options| options.netns = Some("../etc".into()),
            |options| options.dns = vec!["192.0.2.53".parse().unwrap()],
            |options| options.paths = vec!["prx=socks5:192.0.2.9:1080".parse().unwrap()],
        ] {
            assert!(with(change).is_err());
        }
        assert!(settings(&Options { route: true, ..options(None, None) }).is_err());
        assert!(settings(&free).is_err());
    }

    #[test]
    fn captures_replace_nothing_unless_they_are_told_to() {
        let folder = tempfile::TempDir::new().unwrap();
        let (trace, pcap) = (folder.path().join("run.parquet"), folder.path().join("caps"));
        let with = |replace| {
            let (trace, pcap) = (Some(trace.clone()), Some(pcap.clone()));
            let options = Options { trace, pcap, replace, ..options(None, None) };
            settings(&options).map(drop).map_err(|failure| failure.to_string())
        };
        assert_eq!(with(false), Ok(()));
        std::fs::create_dir(&pcap).unwrap();
        assert_eq!(with(false), Ok(()), "a folder is there to be used");
        std::fs::write(pcap.join("b.pcapng"), "").unwrap();
        let message = with(false).unwrap_err();
        assert!(message.starts_with("--pcap: ") && message.contains("--replace"), "{message}");
        std::fs::write(&trace, "").unwrap();
        assert!(with(false).unwrap_err().starts_with("--trace: "));
        assert_eq!(with(true), Ok(()));
    }

    #[test]
    fn a_seed_is_drawn_where_none_is_given() {
        let seed = |seed| settings(&Options { seed, ..options(None, None) }).unwrap().core.seed;
        assert_eq!(seed(Some(7)), 7);
        assert_ne!(seed(None), seed(None));
    }
}
