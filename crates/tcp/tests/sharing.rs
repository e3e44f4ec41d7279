//! Several connections that share a bottleneck, in virtual time.

use std::time::Duration;

use anabranch_multipath::{Core as _, Time};
use anabranch_netem::{Link, LinkSettings};
use anabranch_tcp::{Config, Congestion, Connection, Ports, Segment, Seq};

/// Bytes of an IPv4 header.
const IP: usize = 20;
const RATE: u64 = 20_000_000;
const SPAN: Duration = Duration::from_secs(60);

/// A connection with its reader.
struct Flow {
    sender: Connection,
    reader: Option<Connection>,
    received: u64,
}

/// Returns the number of bytes that each of `count` connections carries over one link of 20 Mbit/s
/// and 40 ms, with a queue of one bandwidth-delay product. The connections begin at intervals of a
/// quarter of a second.
fn share(count: u64, congestion: Congestion) -> Vec<u64> {
    let config = Config { congestion, ..Config::default() };
    let delay = Duration::from_millis(20);
    let way = LinkSettings { delay, queue: 100_000, ..LinkSettings::with_rate(RATE) };
    let mut ways: [Link<(usize, Segment)>; 2] =
        [0, 1].map(|entity| Link::new(way.clone(), 1, entity));
    let (mut flows, mut now): (Vec<Flow>, Time) = (Vec::new(), Time::from_millis(1));
    let end = now + SPAN;
    let start = |flow: u64| Time::from_millis(1 + flow * 250);
    while now < end {
        if (flows.len() as u64) < count && now >= start(flows.len() as u64) {
            let ports = Ports { local: flows.len() as u16, remote: 80 };
            let sender = Connection::connect(now, &config, ports, Seq(flows.len() as u32));
            flows.push(Flow { sender, reader: None, received: 0 });
        }
        while let Some((flow, segment)) = ways[0].pop(now) {
            match &mut flows[flow].reader {
                Some(reader) => reader.handle(now, segment),
                none => *none = Connection::accept(now, &config, Seq(9), &segment),
            }
        }
        while let Some((flow, segment)) = ways[1].pop(now) {
            flows[flow].sender.handle(now, segment);
        }
        for (number, flow) in flows.iter_mut().enumerate() {
            flow.work(now, number, &mut ways);
        }
        let timeouts = flows.iter().flat_map(|flow| {
            [flow.sender.next_timeout(), flow.reader.as_ref().and_then(Connection::next_timeout)]
        });
        let links = ways.iter().map(Link::next_timeout);
        let begins = (flows.len() as u64) < count;
        let begins = begins.then(|| start(flows.len() as u64));
        let next = timeouts.chain(links).flatten().chain(begins).min();
        now = now.max(next.expect("somebody sends"));
    }
    flows.iter().map(|flow| flow.received).collect()
}

impl Flow {
    fn work(&mut self, now: Time, number: usize, ways: &mut [Link<(usize, Segment)>; 2]) {
        while self.sender.view(now).notsent < 100_000 {
            self.sender.write(&[0; 16_384]);
        }
        let mut read = Vec::new();
        self.reader.iter_mut().for_each(|reader| reader.read_all(&mut read));
        self.received += read.len() as u64;
        for (tcp, way) in [Some(&mut self.sender), self.reader.as_mut()].into_iter().zip(ways) {
            let Some(tcp) = tcp else { continue };
            while let Some(segment) = tcp.poll(now) {
                let length = segment.wire_length() + IP;
                // A segment for which the queue has no room is lost.
                let _ = way.push(now, (number, segment), length);
            }
        }
    }
}

/// Returns Jain's fairness index, which is 1 if all shares are equal.
fn jain(shares: &[u64]) -> f64 {
    let sum = shares.iter().map(|&share| share as f64).sum::<f64>();
    let squares = shares.iter().map(|&share| (share as f64).powi(2)).sum::<f64>();
    sum * sum / squares / shares.len() as f64
}

#[test]
fn equal_connections_have_equal_shares_of_a_full_link() {
    for congestion in [Congestion::CUBIC, Congestion::RENO] {
        for count in [2, 4, 8] {
            let shares = share(count, congestion);
            let used = shares.iter().sum::<u64>() as f64 * 8.0 / SPAN.as_secs_f64() / RATE as f64;
            // Headers take 3.5 % of the link.
            assert!(used > 0.9, "{count} {congestion:?}: {used} of the link");
            assert!(jain(&shares) > 0.95, "{count} {congestion:?}: {shares:?}");
        }
    }
}
