//! By which way a client fetches: a bridge and a client of C tor's, with a transport between them.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::time::Instant;

use super::super::Programs;
use super::super::onions::{Node, OnionNetwork};
use super::place::{PORT, Place};
use super::plan::Arm;
use super::webtunnel::{self, Front};

/// obfs4proxy, and what gives it.
pub(super) const OBFS4: (&str, &str) = ("obfs4proxy", "package obfs4proxy");
/// The port of a bridge itself.
const ONION: u16 = 9_001;
const SOCKS: u16 = 9_100;
/// Nobody is there: nobody visits.
pub(super) const NO_SITE: &str = "127.0.0.1:9";
const CLIENT_RULES: &str =
    "ClientOnly 1\nUseBridges 1\nConfluxEnabled 0\nLearnCircuitBuildTimeout 0\n";

/// Which programs, and with what.
#[derive(Clone, Copy)]
pub(super) struct Kit<'a> {
    pub(super) programs: &'a Programs,
    pub(super) anabranch: &'a Path,
    pub(super) pictures: Option<&'a Path>,
}

/// A bridge and a client that are up. Dropped, they end, the client first.
pub(super) struct Way<'a> {
    client: Node<'a>,
    bridge: Node<'a>,
    /// Before webtunnel.
    _front: Option<Front<'a>>,
    /// Seconds from the client's start until it knew the network.
    pub(super) bootstrap: f64,
}

impl<'a> Way<'a> {
    /// Starts both, by the line of this round trip; nodes are called by a number that no other has.
    ///
    /// # Errors
    /// A program ends, or takes too long.
    pub(super) fn open(
        network: &OnionNetwork<'a>,
        place: &'a Place,
        kit: Kit<'_>,
        (arm, rtt, number): (Arm, u32, u32),
    ) -> io::Result<Way<'a>> {
        let ip = place.far_end(rtt);
        let front = match arm {
            Arm::Webtunnel => Some(Front::start(place, kit.programs, ip)?),
            _ => None,
        };
        let seat = place.far_seat(&format!("bridge{number}"), ip);
        let url = front.as_ref().map(|front| &*front.url);
        let mut bridge = network.stock_bridge(&seat, &bridge_rules(arm, kit, ip, url))?;
        network.wait_bootstrapped(&mut bridge)?;
        let line = bridge_line(network, &mut bridge, arm, (ip, url))?;
        let mut rules = format!("SocksPort {}\n{CLIENT_RULES}{line}\n", proxy());
        if let Some((name, program)) = at_client(arm, kit, front.as_ref()) {
            writeln!(rules, "ClientTransportPlugin {name} exec {program}")
                .expect("writing to a string does not fail");
        }
        let [middle, exit] = [1, 2].map(|at| &network.fingerprints[at]);
        rules += &format!("MiddleNodes {middle}\nExitNodes {exit}\n");
        let began = Instant::now();
        let mut client =
            network.stock_client(&place.near_seat(&format!("client{number}")), &rules)?;
        network.wait_bootstrapped(&mut client)?;
        let bootstrap = began.elapsed().as_secs_f64();
        Ok(Way { client, bridge, _front: front, bootstrap })
    }

    /// Ends both, and forgets what they have kept.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn close(self, network: &OnionNetwork<'a>) -> io::Result<()> {
        let names = [self.client.name(), self.bridge.name()].map(str::to_owned);
        drop(self);
        names.iter().try_for_each(|name| network.forget(name))
    }
}

/// Where a client's programs come in.
pub(super) fn proxy() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, SOCKS))
}

/// The name of an arm's transport, and what starts it at a client.
fn at_client(arm: Arm, kit: Kit<'_>, front: Option<&Front<'_>>) -> Option<(&'static str, String)> {
    let Kit { programs, anabranch, .. } = kit;
    match arm {
        Arm::Direct | Arm::Tor => None,
        Arm::Obfs4 => Some(("obfs4", programs.path(OBFS4.0).display().to_string())),
        Arm::Webtunnel => Some(("webtunnel", front?.client(programs))),
        _ => Some(("anabranch", format!("{} pt client", anabranch.display()))),
    }
}

/// What is in a bridge's torrc for its transport; webtunnel is found at a URL.
fn bridge_rules(arm: Arm, kit: Kit<'_>, ip: Ipv4Addr, url: Option<&str>) -> String {
    let Kit { programs, anabranch, pictures } = kit;
    let usual = SocketAddrV4::new(ip, PORT);
    let (name, program, listen, options) = match arm {
        Arm::Direct | Arm::Tor => return String::new(),
        Arm::Obfs4 => ("obfs4", programs.path(OBFS4.0).display().to_string(), usual, None),
        Arm::Webtunnel => {
            let program = programs.path(webtunnel::PROGRAMS[1].0).display().to_string();
            let options = url.map(|url| format!("url={url}"));
            ("webtunnel", program, webtunnel::BEHIND, options)
        }
        _ => {
            let mut options = format!("profile={arm}");
            if arm.is_http() {
                options += &format!(" site={NO_SITE}");
            }
            if let (Some(folder), Arm::Image) = (pictures, arm) {
                options += &format!(" pictures={}", folder.display());
            }
            ("anabranch", format!("{} pt server", anabranch.display()), usual, Some(options))
        }
    };
    let options = options.map(|all| format!("ServerTransportOptions {name} {all}\n"));
    format!(
        "ServerTransportPlugin {name} exec {program}\nServerTransportListenAddr {name} {listen}\n{}",
        options.unwrap_or_default()
    )
}

/// The bridge's line for a client's torrc, as its transport has left it for its operator.
fn bridge_line<'a>(
    network: &OnionNetwork<'a>,
    bridge: &mut Node<'a>,
    arm: Arm,
    (ip, url): (Ipv4Addr, Option<&str>),
) -> io::Result<String> {
    let identity = network.stock_fingerprint(bridge)?;
    if let Some(url) = url {
        // By the URL it is found; the address is but a name.
        return Ok(format!("Bridge webtunnel 192.0.2.1:{PORT} {identity} url={url}"));
    }
    let file = match arm {
        Arm::Tor => return Ok(format!("Bridge {ip}:{ONION} {identity}")),
        Arm::Obfs4 => "obfs4_bridgeline.txt",
        _ => "anabranch-bridgeline.txt",
    };
    let text = network.wait_file(bridge, &format!("state/pt_state/{file}"))?;
    line_of(&text, &format!("{ip}:{PORT}"), &identity)
        .ok_or_else(|| io::Error::other(format!("{file} has no line: {text}")))
}

/// The Bridge line in a text, with the place and the identity that it leaves to the operator.
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
        let kit = Kit { programs: &programs, anabranch: Path::new("/a"), pictures: Some(folder) };
        let rules = |arm| bridge_rules(arm, kit, Ipv4Addr::new(10, 0, 0, 1), Some("U"));
        assert_eq!(rules(Arm::Tor), "");
        let image = "ServerTransportPlugin anabranch exec /a pt server\n\
                     ServerTransportListenAddr anabranch 10.0.0.1:443\n\
                     ServerTransportOptions anabranch profile=http-image site=127.0.0.1:9 \
                     pictures=/photos\n";
        assert_eq!(rules(Arm::Image), image);
        assert!(rules(Arm::NostegShort).ends_with("profile=nosteg-short\n"));
        assert!(!rules(Arm::Obfs4).contains("Options"));
        let webtunnel = rules(Arm::Webtunnel);
        assert!(webtunnel.contains("webtunnel 127.0.0.1:15000\n"), "{webtunnel}");
        assert!(webtunnel.ends_with("ServerTransportOptions webtunnel url=U\n"), "{webtunnel}");
    }
}
