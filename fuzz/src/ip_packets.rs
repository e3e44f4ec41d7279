//! Packets from the interface of `--tun`: parsed, reassembled and answered with ICMP errors.

use std::net::{Ipv4Addr, Ipv6Addr};

use anabranch_multipath::Time;
use anabranch_os::packet::{Complaint, Content, Datagram, Fragments, complain, read, write};

/// Checks the packets of a script, each preceded by its length in two bytes, ten milliseconds
/// apart.
pub fn check(mut script: &[u8]) {
    let (mut fragments, mut now) = (Fragments::default(), Time::ZERO);
    while let Some((length, rest)) = script.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (packet, tail) = rest.split_at(length);
        (script, now) = (tail, now + std::time::Duration::from_millis(10));
        match read(packet) {
            Content::Datagram(datagram) => reads_back(&datagram, packet),
            Content::Fragment(fragment) => {
                assert!(fragment.bytes.len() <= packet.len());
                if let Some(whole) = fragments.take(now, &fragment) {
                    assert!(whole.payload().len() <= 65_527 && whole.ecn <= 3);
                    assert_eq!(
                        (whole.from.ip(), whole.to.ip()),
                        (fragment.id.from, fragment.id.to)
                    );
                }
            }
            Content::Other => {}
        }
        complaint(packet);
    }
}

/// Checks that the payload lies in the packet, and that a packet built around it parses to the
/// same.
fn reads_back(datagram: &Datagram<'_>, packet: &[u8]) {
    assert!(packet.len() >= datagram.payload.len() + 28, "{datagram:?}");
    let mut again = Vec::new();
    let Datagram { from, to, ecn, payload } = *datagram;
    write(&mut again, from, to, ecn, payload).expect("what came in a packet fits into one");
    assert_eq!(read(&again), Content::Datagram(*datagram));
}

/// Checks that an ICMP error is short, and that none answers another.
fn complaint(packet: &[u8]) {
    let here = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::LOCALHOST);
    for complaint in [Complaint::TooBig(1400), Complaint::Port, Complaint::Prohibited] {
        let mut out = Vec::new();
        let Ok(true) = complain(&mut out, here, complaint, packet) else { continue };
        assert!(out.len() <= 1280 && read(&out) == Content::Other, "{out:02x?}");
        let mut more = Vec::new();
        assert!(!complain(&mut more, here, complaint, &out).expect("it is a packet"));
    }
}
