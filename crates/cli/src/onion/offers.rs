//! Pluggable transports that a bridge offers, as the bridge's operator configures them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anabranch_multipath::schedule::Spec;
use anabranch_router::onion::bridge_routes::Transports;
use anabranch_router::onion::relay::{BridgeSettings, ExtendedPort};
use anabranch_router::pt::{
    Limits, OfferLine, Onward, Plugin, PluginSettings, SCHEDULE, ServerPlugin, TRANSPORT,
    TransportThread, server_settings,
};

use crate::failure::Failure;

/// Pluggable transports of a bridge before they are started.
pub(super) struct Offers {
    lines: Vec<OfferLine>,
    /// First address at which the relay itself listens.
    relay: SocketAddr,
}

/// The running transports of a bridge. They end when this value is dropped.
pub(super) struct RunningTransports {
    _running: (Vec<Plugin>, Vec<TransportThread>),
}

impl Offers {
    /// Parses the lines of `--pt`, for a relay whose first listener is at `relay`.
    ///
    /// # Errors
    /// A line is invalid, names a transport that no program provides, or names a transport that
    /// another line names.
    pub(super) fn read(pts: &[String], relay: SocketAddr) -> Result<Offers, Failure> {
        let wrong = |line: &str, why: &dyn std::fmt::Display| {
            Failure::misuse(format!("--pt '{}': {why}", line.escape_debug()))
        };
        let mut lines = Vec::<OfferLine>::new();
        for line in pts {
            let parsed = OfferLine::parse(line).map_err(|why| wrong(line, &why))?;
            let name = &parsed.transport;
            if parsed.program.is_none() && name != TRANSPORT {
                let why = format!(
                    "no program is given for this transport: append 'exec PROGRAM'. Only the \
                     transport {TRANSPORT} is built in and needs no program"
                );
                return Err(wrong(line, &why));
            }
            if lines.iter().any(|other| other.transport == *name) {
                return Err(wrong(
                    line,
                    &"another --pt has the same transport: remove one of them",
                ));
            }
            lines.push(parsed);
        }
        Ok(Offers { lines, relay })
    }

    /// Starts the transports. Their files are in folders below `data`. `memory` is the relay's
    /// limit of queued cells, in bytes.
    ///
    /// # Errors
    /// A transport cannot be started.
    pub(super) fn start(
        self,
        data: &Path,
        memory: usize,
    ) -> Result<(BridgeSettings, RunningTransports), Failure> {
        let transports = Transports::new().map_err(Failure::trouble)?;
        let none = BridgeSettings { transports: transports.clone(), extended: None };
        if self.lines.is_empty() {
            return Ok((none, RunningTransports { _running: Default::default() }));
        }
        let extended = ExtendedPort::open(data).map_err(Failure::trouble)?;
        let place = extended.place();
        let (mut programs, mut ours) = (Vec::new(), Vec::new());
        for line in &self.lines {
            let wrong = |why: &dyn std::fmt::Display| Failure::misuse(format!("--pt: {why}"));
            let name = &line.transport;
            let Some(program) = &line.program else {
                let onward = Onward::Extended(place.0, place.1.clone());
                let usual = Spec::over_windows(SCHEDULE).expect("the default schedule exists");
                let own = (usual, limits(memory));
                let settings = server_settings((line.listen, onward), &line.options, data, own);
                let (settings, warning) = settings.map_err(|why| wrong(&why))?;
                let named = |words| format!("transport {name}: {words}");
                warning.into_iter().for_each(|words| transports.log(named(words)));
                let started = TransportThread::server(settings, transports.clone());
                let (inside, bridge) = started.map_err(|why| wrong(&why))?;
                transports.offer(name, bridge.address, bridge.args());
                ours.push(inside);
                continue;
            };
            let server = ServerPlugin {
                listen: vec![(name.clone(), line.listen)],
                options: vec![(name.clone(), line.options.clone())],
                extended: place.clone(),
                relay: near(self.relay),
            };
            let settings = PluginSettings {
                program: program.clone(),
                transports: vec![name.clone()],
                data: data.to_owned(),
                server: Some(server),
            };
            let started = Plugin::start(settings, transports.clone());
            programs.push(started.map_err(|why| wrong(&why))?);
        }
        let settings = BridgeSettings { transports, extended: Some(extended) };
        Ok((settings, RunningTransports { _running: (programs, ours) }))
    }
}

/// Returns the limits of our own transport inside a relay. The transport may buffer half of
/// `memory`, the relay's limit of queued cells, but at least `Limits::LEAST` bytes.
fn limits(memory: usize) -> Limits {
    Limits { memory: (memory / 2).max(Limits::LEAST), ..Limits::default() }
}

/// Returns the address at which a program on this machine reaches the relay's listener at `at`.
fn near(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELAY: &str = "0.0.0.0:9001";

    fn read(lines: &[&str]) -> Result<Offers, String> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        Offers::read(&lines, RELAY.parse().unwrap()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn every_mistake_is_one_line_that_names_the_option() {
        let folder = tempfile::tempdir().unwrap();
        let wrong = |lines: &[&str]| read(lines).map(drop).unwrap_err();
        let started = |line: &str| {
            read(&[line]).unwrap().start(folder.path(), 1 << 20).map(drop).unwrap_err().to_string()
        };
        let cases = [
            (wrong(&["a\nb"]), "--pt 'a\\nb': 'b' is not ADDRESS:PORT"),
            (wrong(&["obfs4 0.0.0.0:1"]), "--pt 'obfs4 0.0.0.0:1': no program is given for this"),
            (
                wrong(&["anabranch 0.0.0.0:1", "anabranch 0.0.0.0:2"]),
                "--pt 'anabranch 0.0.0.0:2': another --pt",
            ),
            (started("anabranch 127.0.0.1:0 profile=x"), "--pt: there is no profile"),
            (
                started("anabranch 127.0.0.1:0 profil=http-opaque"),
                "--pt: unknown key `profil`; did you mean `profile`?",
            ),
            (
                started("anabranch 127.0.0.1:0 profile=http-opaque"),
                "--pt: the profile http-opaque needs a web server",
            ),
            (started("x 0.0.0.0:1 exec /no/such/program"), "--pt: '/no/such/program' cannot be"),
        ];
        for (message, wanted) in cases {
            assert!(message.starts_with(wanted) && !message.contains('\n'), "{message}");
        }
        assert_eq!(near(RELAY.parse().unwrap()).to_string(), "127.0.0.1:9001");
    }

    #[test]
    fn pictures_that_hide_nothing_are_noted() {
        let folder = tempfile::tempdir().unwrap();
        let pictures = folder.path().join("pictures");
        std::fs::create_dir(&pictures).unwrap();
        let picture = include_bytes!("../../../stego/testdata/colour.jpg");
        std::fs::write(pictures.join("good.jpg"), picture).unwrap();
        std::fs::write(pictures.join("broken.jpg"), "no picture").unwrap();
        let line = format!(
            "anabranch 127.0.0.1:0 profile=http-image site=127.0.0.1:9 pictures={}",
            pictures.display()
        );
        let (bridge, _running) = read(&[&line]).unwrap().start(folder.path(), 1 << 20).unwrap();
        let wanted = "transport anabranch: 1 file is left out: it is not a baseline JPEG that can \
                      hide bytes";
        assert_eq!(bridge.transports.news().messages, [wanted]);
    }

    #[test]
    fn our_transport_has_half_of_what_the_relay_says_and_by_default_as_much_as_by_itself() {
        assert_eq!(limits(64 << 20).memory, 32 << 20);
        assert_eq!(limits(1 << 20).memory, Limits::LEAST);
        let usual = crate::onion::relay::MEMORY_MB << 20;
        assert_eq!(limits(usual).memory, Limits::default().memory);
    }

    #[test]
    fn ours_is_offered_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let offers = read(&["anabranch 127.0.0.1:0 profile=nosteg-short"]).unwrap();
        let (bridge, _running) = offers.start(folder.path(), 1 << 20).unwrap();
        let offered = bridge.transports.offers();
        assert_eq!((offered.len(), &*offered[0].0), (1, TRANSPORT));
        assert_eq!(offered[0].2.get("profile"), Some("nosteg-short"));
        assert!(bridge.extended.is_some() && offered[0].1.port() > 0);
    }
}
