//! Transfers 4 MiB over a link that loses one segment in a hundred, with CUBIC and with Reno.

use std::time::Duration;

use anabranch_multipath::{Core as _, Time};
use anabranch_netem::{Link, LinkSettings, Loss};
use anabranch_tcp::{Config, Congestion, Connection, Ports, Segment, Seq};

const BYTES: usize = 4 << 20;
const IP_HEADER: usize = 20;

fn main() {
    for congestion in [Congestion::CUBIC, Congestion::RENO] {
        let (time, client) = transfer(&Config { congestion, ..Config::default() });
        let rate = BYTES as f64 * 8.0 / time.secs_f64() / 1e6;
        let stats = client.stats();
        println!(
            "{congestion:?}: {rate:.2} Mbit/s, {} of {} segments sent again, {} timeouts",
            stats.retransmitted, stats.sent, stats.timeouts
        );
    }
}

/// Sends data from a client to a server. Returns the time at which all data had arrived, and the
/// client's connection.
fn transfer(config: &Config) -> (Time, Connection) {
    let way = LinkSettings {
        delay: Duration::from_millis(20),
        queue: 100_000,
        loss: Loss::Bernoulli(0.01),
        ..LinkSettings::with_rate(20_000_000)
    };
    let mut links: [Link<Segment>; 2] = [0, 1].map(|entity| Link::new(way.clone(), 7, entity));
    let ports = Ports { local: 40_000, remote: 80 };
    let mut now = Time::from_millis(1);
    let mut client = Connection::connect(now, config, ports, Seq(1));
    let mut server: Option<Connection> = None;
    let (mut written, mut received) = (0, Vec::new());
    while received.len() < BYTES {
        written += client.write(&vec![0; (BYTES - written).min(client.room())]);
        while let Some(segment) = links[0].pop(now) {
            match &mut server {
                Some(server) => server.handle(now, segment),
                None => server = Connection::accept(now, config, Seq(2), &segment),
            }
        }
        while let Some(segment) = links[1].pop(now) {
            client.handle(now, segment);
        }
        server.iter_mut().for_each(|server| server.read_all(&mut received));
        for (tcp, link) in [Some(&mut client), server.as_mut()].into_iter().zip(&mut links) {
            let Some(tcp) = tcp else { continue };
            while let Some(segment) = tcp.poll(now) {
                let length = segment.wire_length() + IP_HEADER;
                // TCP sends segments again that the link loses or drops.
                let _ = link.push(now, segment, length);
            }
        }
        let ends = [Some(&client), server.as_ref()].into_iter().flatten();
        let timeouts = ends.filter_map(Connection::next_timeout);
        let Some(next) = timeouts.chain(links.iter().filter_map(Link::next_timeout)).min() else {
            break;
        };
        now = now.max(next);
    }
    (now, client)
}
