//! Splits 1,000 packets over two links with different rates, delays and losses, and merges them.
//! Prints the number of packets on each path, and how many were delivered in order or lost.

use std::time::Duration;

use anabranch_multipath::seed::stream;
use anabranch_multipath::{Assignment, Merger, PathId, PathView, Splitter, Time};
use anabranch_netem::{Link, LinkSettings, Loss};

/// Size of each packet, in bytes.
const LENGTH: usize = 1_200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let line = |mbit: u64, millis, loss| LinkSettings {
        delay: Duration::from_millis(millis),
        loss: Loss::Bernoulli(loss),
        ..LinkSettings::with_rate(mbit * 1_000_000)
    };
    let settings = [line(50, 10, 0.0), line(10, 40, 0.01)];
    let links = settings.into_iter().zip(0..);
    let mut links: Vec<Link<u64>> = links.map(|(one, entity)| Link::new(one, 1, entity)).collect();

    let draw = |purpose: &str| stream(1, 9, purpose);
    let mut splitter = Splitter::drawn(&"weights:5,1".parse()?, 2, "10p".parse()?, None, draw)?;
    // A packet waits for at most 100 ms for an earlier packet.
    let mut merger = Merger::new(2, 0, 10_000, Some(Duration::from_millis(100)));

    let (mut now, mut sent, mut delivered) = (Time::ZERO, 0, 0);
    let mut by_path = [0; 2];
    loop {
        if sent < 1_000 {
            let assigned = splitter.assign(now, &[PathView::open(); 2], 1);
            if let Assignment::Send { path, .. } = assigned {
                by_path[path.index()] += 1;
                // A full queue drops the packet, as in a real router.
                let _ = links[path.index()].push(now, sent, LENGTH);
            }
            sent += 1;
        }
        for (index, link) in links.iter_mut().enumerate() {
            while let Some(number) = link.pop(now) {
                merger.handle(now, PathId::at(index), number, ());
            }
        }
        while merger.poll(now).is_some() {
            delivered += 1;
        }
        let timeouts = links.iter().filter_map(Link::next_timeout).chain(merger.next_timeout());
        let next_packet = (sent < 1_000).then(|| now + Duration::from_micros(800));
        let Some(next) = timeouts.chain(next_packet).min() else { break };
        now = next;
    }
    println!("{by_path:?} packets by each path, {delivered} of {sent} delivered in order");
    println!("lost and given up: {}; the last one arrived at {now:?}", merger.lost());
    Ok(())
}
