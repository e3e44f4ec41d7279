//! Seeds of `tunnel` and `carrier`.

use super::Seeds;

/// Returns inputs of one end of a session: noise, frames of a client, packets out of order.
pub(super) fn sessions() -> Seeds {
    let frames = [&[1, 0, 0, 5, 3, 0, b'a', b'b'][..], &[1, 1, 9, 6, 0x11, 0, 0, 0, 1, 2]].concat();
    let padded = [1, 2, 3, 1, 8, 0x30, 0, 0, 0, 1, 0, 1, b'x'];
    let leap = [1, 0, 5, 0, 1, 0, 0, 2, 255, 3, 0, b'y', 0, 0, 0, 1, 3];
    let order: Vec<u8> = std::iter::once(2).chain((0..40).flat_map(|n| [n % 5, 39 - n])).collect();
    vec![
        ("noise", [&[0][..], &[7; 60]].concat()),
        ("frames", [&[1][..], &frames].concat()),
        ("padded", padded.to_vec()),
        ("leap", leap.to_vec()),
        ("backwards", order),
    ]
}

/// Returns streams of packets, and choices of a sender.
pub(super) fn carriers() -> Seeds {
    let stream = |parts: &[&[u8]]| [&[3, 0][..], &parts.concat()].concat();
    let packet = |length: u8| [&[0, length][..], &vec![length; length.into()]].concat();
    let choices: Vec<u8> = (0..60).flat_map(|n| [n % 40, n * 3, n, 255 - n * 4]).collect();
    vec![
        ("packets", stream(&[&packet(25), &packet(200), &packet(31)])),
        ("half", stream(&[&packet(40), &packet(90)[..50]])),
        ("zero", stream(&[&packet(40), &[0, 0], &packet(40)])),
        ("short", stream(&[&packet(24)])),
        ("longest", stream(&[&[0xff, 0xff], &[7; 300]])),
        ("banner", stream(&[b"SSH-2.0-OpenSSH_9.2p1\r\n"])),
        ("sender", [&[0, 1][..], &choices].concat()),
    ]
}
