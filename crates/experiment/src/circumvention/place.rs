//! The network: a client behind a censor, and a VPN that leads around it.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::super::Programs;
use super::super::stage::{SERVER, Stage};
use super::super::tunnel::{self, Route, Tunnel};
use super::Access;

/// What the censor blocks, with all names below it.
pub const BLOCKED: &str = "blocked.example";

/// The name that clients ask for.
pub(super) const NAME: &str = "www.blocked.example";

/// Round-trip times from client to server in milliseconds: straight, and by the VPN.
pub const RTTS: [u32; 2] = [30, 100];

/// Rates in Mbit/s: of all links, and of the VPN's way abroad.
pub const RATES: [u32; 2] = [100, 20];

/// Where the VPN listens.
const EXIT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
/// Metrics of the routes to the server: the straight one, and the VPN's where it is preferred, and
/// where it is not.
const METRICS: [u32; 3] = [100, 50, 200];
/// Until the tunnel stands.
const PATIENCE: Duration = Duration::from_secs(10);

/// One way, in milliseconds: the uplink, from the censor to the server, from the censor to the
/// exit, and from there to the server.
const DELAYS: [u32; 4] = [5, 10, 25, 20];

/// The links whose bytes are counted: the direct path, and the VPN's packets as they travel.
pub(super) const COUNTED: [&str; 2] = ["direct", "abroad"];
/// The client's interface of the direct path, and the link at whose end the censor is.
pub(super) const UPLINK: &str = "uplink";

/// Builds it.
///
/// # Errors
/// What the machine refuses; `nft` may be missing.
pub(super) fn build(access: Access) -> io::Result<Stage> {
    Stage::of(&topology(access != Access::Open), COUNTED.map(str::to_owned).to_vec())
}

/// The VPN, which stands when this returns. Whether it is preferred to the direct path depends on
/// the access.
///
/// # Errors
/// A program does not start, or the tunnel is not up.
pub(super) fn vpn<'a>(
    stage: &'a Stage,
    programs: &'a Programs,
    access: Access,
) -> io::Result<Tunnel<'a>> {
    let metric = if access == Access::Vpn { METRICS[1] } else { METRICS[2] };
    let server: Ipv4Addr = SERVER.parse().expect("the server's address is one");
    let endpoint = SocketAddr::from((EXIT, tunnel::PORT));
    let route = Route {
        to: stage.host("exit"),
        endpoint,
        beyond: Some((server, metric)),
        mtu: tunnel::MTU,
    };
    let tunnel = Tunnel::lay(stage, programs, &route)?;
    // Nobody listens there; that it says so shows that packets go both ways.
    let far = SocketAddr::from((tunnel::SERVER, 9));
    let asked = stage.client().run(|| TcpStream::connect_timeout(&far, PATIENCE));
    match asked {
        Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
            Err(io::Error::new(error.kind(), format!("the VPN is not up: {error}")))
        }
        _ => Ok(tunnel),
    }
}

fn topology(censored: bool) -> String {
    let censor = if censored { format!("censor = ['{BLOCKED}']\n") } else { String::new() };
    let mut text = format!(
        "[[host]]\nname = 'client'\n\
         [[host]]\nname = 'border'\nforward = true\n{censor}\
         [[host]]\nname = 'exit'\naddress = ['{EXIT}/32']\nforward = true\n\
         [[host]]\nname = 'server'\naddress = ['{SERVER}/32']\n"
    );
    let [near, _, _] = METRICS;
    let ends = [
        format!(
            "host = 'client', address = ['10.77.0.2/24'], routes = ['{SERVER}', '{EXIT}'], metric = {near}"
        ),
        "host = 'border', address = ['10.77.0.1/24']".to_owned(),
        format!("host = 'border', address = ['10.78.0.1/24'], routes = ['{SERVER}']"),
        format!(
            "host = 'server', address = ['10.78.0.2/24'], routes = ['10.77.0.0/24'], prefsrc = ['{SERVER}']"
        ),
        format!("host = 'border', address = ['10.79.0.1/24'], routes = ['{EXIT}']"),
        format!(
            "host = 'exit', address = ['10.79.0.2/24'], routes = ['10.77.0.0/24'], prefsrc = ['{EXIT}']"
        ),
        format!("host = 'exit', address = ['10.80.0.1/24'], routes = ['{SERVER}'], nat = true"),
        "host = 'server', address = ['10.80.0.2/24']".to_owned(),
    ];
    let [rate, slow] = RATES;
    let links = [(UPLINK, rate), (COUNTED[0], rate), (COUNTED[1], slow), ("back", rate)];
    for (((name, rate), delay), ends) in links.iter().zip(DELAYS).zip(ends.chunks(2)) {
        write!(
            text,
            "[[link]]\nname = '{name}'\nends = [{{ {} }}, {{ {} }}]\nrate = '{rate}mbit'\n\
             delay = '{delay}ms'\nqueue = '250kB'\n",
            ends[0], ends[1]
        )
        .expect("writing to a string does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_emulator::Topology;

    #[test]
    fn the_network_is_one_and_has_the_times_that_it_should() {
        for censored in [true, false] {
            let found = Topology::parse(&topology(censored), "t").unwrap();
            let censors = found.hosts.iter().filter(|host| !host.censor.is_empty()).count();
            assert_eq!(censors, usize::from(censored));
        }
        let [uplink, direct, abroad, back] = DELAYS;
        assert_eq!(RTTS, [2 * (uplink + direct), 2 * (uplink + abroad + back)]);
    }
}
