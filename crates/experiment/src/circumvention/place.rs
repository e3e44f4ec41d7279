//! The network of the circumvention experiment: a client, a censor on its direct path, and a VPN
//! that avoids the censor.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::super::Programs;
use super::super::stage::{SERVER, Stage};
use super::super::tunnel::{self, Route, Tunnel};
use super::Access;

/// Domain that the censor blocks, with all of its subdomains.
pub const BLOCKED: &str = "blocked.example";

/// Server name that clients put into the TLS handshake; the censor blocks it.
pub(super) const NAME: &str = "www.blocked.example";

/// Round-trip times from client to server in milliseconds: directly, and through the VPN.
pub const RTTS: [u32; 2] = [30, 100];

/// Rates in Mbit/s. The second rate is for the VPN's link beyond the censor, and the first rate
/// for all other links.
pub const RATES: [u32; 2] = [100, 20];

/// Address at which the VPN's exit listens.
const EXIT: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
/// Metrics of three routes to the server: the direct route, the VPN's route if it is preferred,
/// and the VPN's route if it is not. The system uses the route with the smallest metric.
const METRICS: [u32; 3] = [100, 50, 200];
/// Timeout for setting up the VPN's tunnel.
const PATIENCE: Duration = Duration::from_secs(10);

/// One-way delays in milliseconds of four links: client to censor (uplink), censor to server,
/// censor to exit, exit to server.
const DELAYS: [u32; 4] = [5, 10, 25, 20];

/// Links whose bytes are counted: the direct path from the censor to the server, and the link that
/// carries the VPN's packets.
pub(super) const COUNTED: [&str; 2] = ["direct", "abroad"];
/// Name of the client's interface for the direct path, and of its link to the censor.
pub(super) const UPLINK: &str = "uplink";

/// Builds the network, with a censor unless `access` is [`Access::Open`].
///
/// # Errors
/// A step of the set-up fails, or `nft` is missing.
pub(super) fn build(access: Access) -> io::Result<Stage> {
    Stage::of(&topology(access != Access::Open), COUNTED.map(str::to_owned).to_vec())
}

/// Starts the VPN, and waits until it is up. `access` decides whether the VPN's route is preferred
/// to the direct route.
///
/// # Errors
/// A program does not start, or the tunnel is not up in time.
pub(super) fn vpn<'a>(
    stage: &'a Stage,
    programs: &'a Programs,
    access: Access,
) -> io::Result<Tunnel<'a>> {
    let metric = if access == Access::Vpn { METRICS[1] } else { METRICS[2] };
    let server: Ipv4Addr = SERVER.parse().expect("the server's address is valid");
    let endpoint = SocketAddr::from((EXIT, tunnel::PORT));
    let route = Route {
        to: stage.host("exit"),
        endpoint,
        beyond: Some((server, metric)),
        mtu: tunnel::MTU,
    };
    let tunnel = Tunnel::lay(stage, programs, &route)?;
    // Nothing listens at this port. If the connection is refused, packets pass in both directions.
    let far = SocketAddr::from((tunnel::SERVER, 9));
    let asked = stage.client().run(|| TcpStream::connect_timeout(&far, PATIENCE));
    match asked {
        Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => Err(io::Error::new(
            error.kind(),
            format!("the experiment's VPN does not work: connecting through it failed: {error}"),
        )),
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
            "host = 'client', address = ['10.77.0.2/24'], routes = ['{SERVER}', '{EXIT}'], metric \
             = {near}"
        ),
        "host = 'border', address = ['10.77.0.1/24']".to_owned(),
        format!("host = 'border', address = ['10.78.0.1/24'], routes = ['{SERVER}']"),
        format!(
            "host = 'server', address = ['10.78.0.2/24'], routes = ['10.77.0.0/24'], prefsrc = \
             ['{SERVER}']"
        ),
        format!("host = 'border', address = ['10.79.0.1/24'], routes = ['{EXIT}']"),
        format!(
            "host = 'exit', address = ['10.79.0.2/24'], routes = ['10.77.0.0/24'], prefsrc = \
             ['{EXIT}']"
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
