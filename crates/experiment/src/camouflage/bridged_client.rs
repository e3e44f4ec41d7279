//! The client's connection to the Tor network: C tor as a bridge and as a client, with a pluggable
//! transport between them.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::time::Instant;

use super::super::Programs;
use super::super::onions::{Node, ONION, OnionNetwork, SOCKS};
use super::plan::Arm;
use super::test_network::{PORT, TestNetwork};
use super::webtunnel::{BEHIND, Front, Tunnel};

/// The program `obfs4proxy`, and the package that contains it.
pub(super) const OBFS4: (&str, &str) = ("obfs4proxy", "package obfs4proxy");
/// Address of the web site that our transport's server would show to visitors without the
/// transport's keys. Nothing listens at this address, because no such visitor connects during a
/// measurement.
const NO_SITE: &str = "127.0.0.1:9";
/// Lines of every client's torrc.
const CLIENT_RULES: &str =
    "ClientOnly 1\nUseBridges 1\nConfluxEnabled 0\nLearnCircuitBuildTimeout 0\n";

/// Programs and cover data that the bridge and its client may need.
#[derive(Clone, Copy)]
pub(super) struct TransportInputs<'a> {
    pub(super) programs: &'a Programs,
    pub(super) anabranch: &'a Path,
    /// Directory of the JPEG files for the profile [`Arm::Image`], if they are given.
    pub(super) pictures: Option<&'a Path>,
    /// Directory of the recorded site for the profile [`Arm::Site`], if it is given. `anabranch pt
    /// crawl` writes such directories.
    pub(super) covers: Option<&'a Path>,
}

/// A running bridge and its client. Both are stopped on drop, the client first.
pub(super) struct BridgedClient<'a> {
    client: Node<'a>,
    bridge: Node<'a>,
    /// The nginx that receives connections for webtunnel's server; `None` for other transports.
    _front: Option<Front<'a>>,
    /// Time from the Tor client's start to the end of its bootstrap, in seconds.
    pub(super) bootstrap: f64,
}

impl<'a> BridgedClient<'a> {
    /// Starts a bridge and a client on the access line with the round-trip time `rtt`. The names
    /// of the two programs contain `number`, which must be unique.
    ///
    /// # Errors
    /// A program ends, or takes too long to be ready.
    pub(super) fn open(
        network: &OnionNetwork<'a>,
        test_network: &'a TestNetwork,
        inputs: TransportInputs<'_>,
        (arm, rtt, number): (Arm, u32, u32),
    ) -> io::Result<BridgedClient<'a>> {
        let ip = test_network.far_end(rtt);
        let front = match arm {
            Arm::Webtunnel => Some(Front::start(test_network, inputs.programs, ip)?),
            _ => None,
        };
        let transport = Transport::of(arm, inputs, ip, front.as_ref().map(|front| &front.tunnel));
        let slot = test_network.far_slot(&format!("bridge{number}"), ip);
        let own = transport.as_ref().map(Transport::bridge_rules).unwrap_or_default();
        let mut bridge = network.stock_bridge(&slot, &own)?;
        network.wait_bootstrapped(&mut bridge)?;
        let line = bridge_line(network, &mut bridge, transport.as_ref(), ip)?;
        let mut rules = format!("SocksPort {}\n{CLIENT_RULES}{line}\n", proxy());
        if let Some(Transport { name, client, .. }) = &transport {
            writeln!(rules, "ClientTransportPlugin {name} exec {client}")
                .expect("writing to a string does not fail");
        }
        let [middle, exit] = [1, 2].map(|at| &network.fingerprints[at]);
        rules += &format!("MiddleNodes {middle}\nExitNodes {exit}\n");
        let began = Instant::now();
        let mut client =
            network.stock_client(&test_network.near_slot(&format!("client{number}")), &rules)?;
        network.wait_bootstrapped(&mut client)?;
        let bootstrap = began.elapsed().as_secs_f64();
        Ok(BridgedClient { client, bridge, _front: front, bootstrap })
    }

    /// Stops the client and the bridge, and deletes their state.
    ///
    /// # Errors
    /// The state cannot be deleted.
    pub(super) fn close(self, network: &OnionNetwork<'a>) -> io::Result<()> {
        let names = [self.client.name(), self.bridge.name()].map(str::to_owned);
        drop(self);
        names.iter().try_for_each(|name| network.forget(name))
    }
}

/// Returns the address of the Tor client's SOCKS proxy.
pub(super) fn proxy() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, SOCKS))
}

/// Returns the command-line options, with values, of our transport's server for the profile `arm`.
pub(super) fn options(arm: Arm, inputs: TransportInputs<'_>) -> Vec<(&'static str, String)> {
    let mut options = vec![("profile", arm.to_string())];
    if arm.is_http() {
        options.push(("site", NO_SITE.to_owned()));
    }
    let folder = match arm {
        Arm::Image => inputs.pictures.map(|folder| ("pictures", folder)),
        Arm::Site => inputs.covers.map(|folder| ("covers", folder)),
        _ => None,
    };
    options.extend(folder.map(|(name, folder)| (name, folder.display().to_string())));
    options
}

/// A pluggable transport, as the bridge's and the client's `torrc` files configure it.
struct Transport {
    /// Name of the transport in `torrc`.
    name: &'static str,
    /// Command that starts the transport's client.
    client: String,
    /// Command that starts the transport's server at the bridge.
    server: String,
    /// Address at which the transport's server listens.
    listen: SocketAddrV4,
    /// Options that the bridge passes to the transport's server.
    options: String,
    line: Line,
}

/// Source of the bridge line, the text that gives a client the bridge's address and keys.
enum Line {
    /// The transport's server writes the bridge line to this file.
    File(&'static str),
    /// The bridge line is known in advance. This is its text after the bridge's fingerprint.
    Known(String),
}

impl Transport {
    /// Returns the pluggable transport that `arm` uses; `None` for C tor alone. `tunnel` has the
    /// parameters of webtunnel, if `arm` is webtunnel.
    fn of(
        arm: Arm,
        inputs: TransportInputs<'_>,
        ip: Ipv4Addr,
        tunnel: Option<&Tunnel>,
    ) -> Option<Transport> {
        let TransportInputs { programs, anabranch, .. } = inputs;
        let listen = SocketAddrV4::new(ip, PORT);
        match arm {
            Arm::Direct | Arm::Tor => None,
            Arm::Obfs4 => {
                let program = programs.path(OBFS4.0).display().to_string();
                Some(Transport {
                    name: "obfs4",
                    client: program.clone(),
                    server: program,
                    listen,
                    options: String::new(),
                    line: Line::File("obfs4_bridgeline.txt"),
                })
            }
            Arm::Webtunnel => tunnel.map(|tunnel| Transport {
                name: "webtunnel",
                client: tunnel.client(programs),
                server: tunnel.server(programs),
                listen: BEHIND,
                options: tunnel.option(),
                line: Line::Known(tunnel.option()),
            }),
            _ => {
                let options = options(arm, inputs).into_iter();
                let words: Vec<_> =
                    options.map(|(name, value)| format!("{name}={value}")).collect();
                Some(Transport {
                    name: "anabranch",
                    client: format!("{} pt client", anabranch.display()),
                    server: format!("{} pt server", anabranch.display()),
                    listen,
                    options: words.join(" "),
                    line: Line::File("anabranch-bridgeline.txt"),
                })
            }
        }
    }

    /// Returns the lines of text in a bridge's `torrc` for this transport.
    fn bridge_rules(&self) -> String {
        let Transport { name, server, listen, options, .. } = self;
        let options = match &**options {
            "" => String::new(),
            options => format!("ServerTransportOptions {name} {options}\n"),
        };
        format!(
            "ServerTransportPlugin {name} exec {server}\n\
             ServerTransportListenAddr {name} {listen}\n{options}"
        )
    }
}

/// Returns the bridge line (the text with the bridge's address and keys) for the client's `torrc`.
/// If the transport's server writes the line to a file, waits for that file.
fn bridge_line<'a>(
    network: &OnionNetwork<'a>,
    bridge: &mut Node<'a>,
    transport: Option<&Transport>,
    ip: Ipv4Addr,
) -> io::Result<String> {
    let identity = network.stock_fingerprint(bridge)?;
    let Some(Transport { name, line, .. }) = transport else {
        return Ok(format!("Bridge {ip}:{ONION} {identity}"));
    };
    let file = match line {
        // The known text contains the real location of the bridge. The address in the bridge line
        // is a placeholder.
        Line::Known(found) => {
            return Ok(format!("Bridge {name} 192.0.2.1:{PORT} {identity} {found}"));
        }
        Line::File(file) => file,
    };
    let text = network.wait_file(bridge, &format!("state/pt_state/{file}"))?;
    line_of(&text, &format!("{ip}:{PORT}"), &identity)
        .ok_or_else(|| io::Error::other(format!("{file} has no line: {text}")))
}

/// Returns the first bridge line in `text`. Replaces its placeholders by the address `at` and the
/// fingerprint `identity`. Returns `None` if `text` has no bridge line.
fn line_of(text: &str, at: &str, identity: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("Bridge "))?;
    let line = line.replace("<IP ADDRESS>:<PORT>", at).replace("<FINGERPRINT>", identity);
    Some(line.replace("FINGERPRINT", identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_completed_as_either_transport_leaves_them() {
        let obfs4 = "# to be\n# distributed\n\nBridge obfs4 <IP ADDRESS>:<PORT> <FINGERPRINT> \
                     cert=C iat-mode=0\n";
        let found = line_of(obfs4, "10.0.0.1:443", "AB").unwrap();
        assert_eq!(found, "Bridge obfs4 10.0.0.1:443 AB cert=C iat-mode=0");
        let ours = "Bridge anabranch 10.0.0.1:443 FINGERPRINT key=K profile=http-text\n";
        let found = line_of(ours, "elsewhere", "AB").unwrap();
        assert_eq!(found, "Bridge anabranch 10.0.0.1:443 AB key=K profile=http-text");
        assert_eq!(line_of("", "", ""), None);
    }

    #[test]
    fn a_bridge_is_told_what_its_profile_wants() {
        let (programs, folder) = (Programs::new(None), Path::new("/photos"));
        let covers = Some(Path::new("/covers"));
        let anabranch = Path::new("/a");
        let inputs =
            TransportInputs { programs: &programs, anabranch, pictures: Some(folder), covers };
        let tunnel = Tunnel { url: "U".to_owned(), trust: "/t.pem".into() };
        let transport = |arm| Transport::of(arm, inputs, Ipv4Addr::new(10, 0, 0, 1), Some(&tunnel));
        let rules = |arm| transport(arm).unwrap().bridge_rules();
        assert!(transport(Arm::Tor).is_none());
        let image = "ServerTransportPlugin anabranch exec /a pt server\n\
                     ServerTransportListenAddr anabranch 10.0.0.1:443\n\
                     ServerTransportOptions anabranch profile=http-image site=127.0.0.1:9 \
                     pictures=/photos\n";
        assert_eq!(rules(Arm::Image), image);
        let site = rules(Arm::Site);
        assert!(site.ends_with("profile=http-site site=127.0.0.1:9 covers=/covers\n"), "{site}");
        assert!(rules(Arm::Embed).ends_with("profile=embed\n"));
        assert!(rules(Arm::NostegShort).ends_with("profile=nosteg-short\n"));
        assert!(!rules(Arm::Obfs4).contains("Options"));
        let webtunnel = rules(Arm::Webtunnel);
        assert!(webtunnel.contains("webtunnel 127.0.0.1:15000\n"), "{webtunnel}");
        assert!(webtunnel.ends_with("ServerTransportOptions webtunnel url=U\n"), "{webtunnel}");
    }
}
