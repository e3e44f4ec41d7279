//! The emulated network of the camouflage experiment: a client, its access line, and all other
//! programs on one host at the other end of this line.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;

use super::super::onions::HostSlot;
use super::super::stage::Stage;

/// Uplink rate of the client's access line in kbit/s (the StegoTorus paper's section 6: 5.6 Mbit/s
/// down and .7 Mbit/s up).
pub const UP_KBIT: u32 = 700;
/// Downlink rate of the client's access line in kbit/s; for the source see [`UP_KBIT`].
pub const DOWN_KBIT: u32 = 5_600;
/// Queue length of the client's access line in each direction, in kB.
pub const QUEUE_KB: u32 = 100;
/// Address of the web server, as the Tor exit reaches it.
pub(super) const WEB: Ipv4Addr = Ipv4Addr::new(10, 40, 0, 1);
/// Port on which the server of a bridge's pluggable transport listens.
pub(super) const PORT: u16 = 443;
/// Address of the directory authority. The relays' addresses are in other /16 networks, because
/// two relays in the same /16 network may not be on one circuit.
pub(super) const AUTHORITY: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// Names and addresses of the relays, in the order of a circuit.
pub(super) const RELAYS: [(&str, Ipv4Addr); 3] = [
    ("guard", Ipv4Addr::new(10, 10, 0, 1)),
    ("middle", Ipv4Addr::new(10, 20, 0, 1)),
    ("exit", Ipv4Addr::new(10, 30, 0, 1)),
];

/// The two hosts of the camouflage experiment: the client's host, and another host with all other
/// programs. For each round-trip time, a separate emulated line connects the two hosts. The
/// destination address of a packet selects the line.
pub struct TestNetwork {
    pub(super) stage: Stage,
    rtts: Vec<u32>,
}

impl TestNetwork {
    /// Builds the network, with an emulated line for each round-trip time in `rtts`, in ms.
    ///
    /// # Errors
    /// A step of the set-up fails.
    pub(super) fn build(mut rtts: Vec<u32>) -> io::Result<TestNetwork> {
        rtts.sort_unstable();
        rtts.dedup();
        let links = rtts.iter().map(|rtt| format!("line{rtt}")).collect();
        Ok(TestNetwork { stage: Stage::of(&topology(&rtts), links)?, rtts })
    }

    /// Returns the address of the bridge and the web server, as reached over the emulated line
    /// with the round-trip time `rtt`.
    pub(super) fn far_end(&self, rtt: u32) -> Ipv4Addr {
        far_end(self.number(rtt))
    }

    /// Returns the bytes of IP packets that the client has so far sent and received over the
    /// emulated line with the round-trip time `rtt`.
    pub(super) fn traffic(&self, rtt: u32) -> [u64; 2] {
        let (all, number) = (self.stage.traffic(), self.number(rtt));
        [all.up[number], all.down[number]]
    }

    /// Returns the place for a program on the client's host: the program's name, address and host.
    pub(super) fn near_slot(&self, name: &str) -> HostSlot<'_> {
        HostSlot { name: name.to_owned(), ip: Ipv4Addr::LOCALHOST, host: self.stage.client() }
    }

    /// Returns the place for a program at the server's end of the lines: the program's name, the
    /// address `ip`, and the host.
    pub(super) fn far_slot(&self, name: &str, ip: Ipv4Addr) -> HostSlot<'_> {
        HostSlot { name: name.to_owned(), ip, host: self.stage.server() }
    }

    fn number(&self, rtt: u32) -> usize {
        self.rtts
            .binary_search(&rtt)
            .expect("the network has a line for each round-trip time of the plan")
    }
}

/// Returns the server-side address of the emulated line with the index `number`. The address is in
/// the range for benchmarks (RFC 2544), because webtunnel's client refuses private addresses.
fn far_end(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, number as u8, 1)
}

fn topology(rtts: &[u32]) -> String {
    let own = [AUTHORITY, WEB].into_iter().chain(RELAYS.map(|(_, ip)| ip));
    let ends = (0..rtts.len()).map(far_end);
    let all: String = own.chain(ends).map(|ip| format!("'{ip}/32', ")).collect();
    let mut text =
        format!("[[host]]\nname = 'client'\n[[host]]\nname = 'server'\naddress = [{all}]\n");
    for (number, &rtt) in rtts.iter().enumerate() {
        let (far, delay) = (far_end(number), f64::from(rtt) / 2.0);
        write!(
            text,
            "[[link]]\nname = 'line{rtt}'\nends = [\n\
             {{ host = 'client', address = ['10.77.{number}.2/24'], routes = ['{far}/32'] }},\n\
             {{ host = 'server', routes = ['10.77.{number}.0/24'], prefsrc = ['{far}'] }},\n]\n\
             rate = '{UP_KBIT}kbit'\nrate_back = '{DOWN_KBIT}kbit'\ndelay = '{delay}ms'\n\
             queue = '{QUEUE_KB}kB'\n"
        )
        .expect("writing to a string does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use anabranch_emulator::Topology;

    use super::*;

    #[test]
    fn each_round_trip_has_a_line_of_the_papers_rates() {
        let topology = Topology::parse(&topology(&[85, 100, 450]), "t").unwrap();
        let lines: Vec<_> = topology
            .links
            .iter()
            .map(|line| {
                let rates = [&line.forward, &line.back].map(|way| way.rate.unwrap().get());
                (line.forward.delay.as_secs_f64(), rates)
            })
            .collect();
        let rates = [700_000, 5_600_000];
        assert_eq!(lines, [(0.0425, rates), (0.05, rates), (0.225, rates)]);
    }
}
