//! Seeds of `tcp_segments`.

use std::net::Ipv4Addr;

use anabranch_tcp::{Flags, Segment};

use super::Seeds;

/// Returns a segment in wire format, and scripts of events on a connection.
pub(super) fn segments() -> Seeds {
    let mut syn = Segment { source: 2, destination: 1, window: 512, ..Segment::default() };
    syn.flags = Flags::SYN;
    syn.options.mss = Some(1460);
    syn.options.sack_permitted = true;
    syn.options.window_scale = Some(7);
    let mut wire = vec![0];
    syn.write(Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into(), &mut wire);
    let write = [2, 0x3f, 0xff];
    let data = |length: u8| [&[5, 0, length][..], &vec![9; usize::from(length)], &[0, 0]].concat();
    // Acknowledgements of all data, and of a part with SACK blocks; and a FIN.
    let ack = [5, 0, 0, 0, 0];
    let sack = [5, 24, 200, 0, 2, 60, 20, 30, 5, 0];
    let fin = [5, 144, 0, 0, 0];
    let (later, due, read, close) = ([0, 100], [1], [3, 0x1f, 0xff], [4, 0]);
    let talk = [&write[..], &later, &ack, &data(100), &read, &close, &ack, &fin, &due].concat();
    let losses = [&write[..], &later, &sack, &sack, &due, &sack, &later, &due, &due, &ack].concat();
    let seed = |kind: u8, switches: u8, steps: &[u8]| [&[kind, switches], steps].concat();
    vec![
        ("segment", wire),
        ("talk", seed(3, 64, &talk)),
        ("losses", seed(3, 0, &losses)),
        ("losses-without-sack", seed(3, 8, &losses)),
        ("paced", seed(3, 4, &losses)),
        ("asked", seed(1, 0, &talk)),
        ("half-open", seed(2, 16, &talk)),
    ]
}
