//! Seeds of `onion_cells`, `lossy_cells` and `lossy_relay`.

use anabranch_onion::wire::cell::{self, Command, Width};

use super::Seeds;

/// Returns seeds of `onion_cells`: cells as a link delivers them, after a byte that selects the
/// width of circuit IDs.
pub(super) fn of_a_link() -> Seeds {
    let mut versions = vec![1];
    cell::put_variable(&mut versions, Width::Two, Command::VERSIONS, &[0, 4, 0, 5]);
    let mut handshake = vec![0];
    cell::put_variable(&mut handshake, Width::Four, Command::CERTS, &[0; 40]);
    cell::put_variable(&mut handshake, Width::Four, Command::AUTH_CHALLENGE, &[0; 36]);
    cell::put_fixed(&mut handshake, 0, Command::NETINFO, &[0; 12]);
    let mut circuit = vec![0];
    cell::put_fixed(&mut circuit, 0x8000_0001, Command::CREATE2, &[0, 2, 0, 84]);
    cell::put_fixed(&mut circuit, 0x8000_0001, Command::DESTROY, &[0]);
    let cut = circuit[..600].to_vec();
    vec![
        ("versions", versions),
        ("handshake", handshake),
        ("circuit", circuit),
        ("cut", cut),
        ("too-long", b"\0\0\0\0\0\x81\xff\xff".to_vec()),
    ]
}

/// Returns seeds of `lossy_cells`: scripts of a lossy circuit. The target defines the bytes.
pub(super) fn lossy() -> Seeds {
    // While no cell of its direction is in flight, a cell is sent without a further choice.
    let first = |back: u8| [back, 0];
    let send = |back: u8| [back, 1, 0];
    let pass = |back: u8, at: u8| [back, 0, at, 3];
    let double = |back: u8| [back, 0, 0, 1];
    let lose = |back: u8| [back, 0, 0, 0];
    let script = |parts: &[&[u8]]| parts.concat();
    let through = |back: u8| script(&[&pass(back, 0), &pass(back, 0), &pass(back, 0)]);
    let forged = |change: &[u8]| {
        let before = [&first(0)[..], &pass(0, 0), &[0, 0, 0, 2]].concat();
        [&before[..], change, &pass(0, 0), &pass(0, 0)].concat()
    };
    vec![
        ("out", [&first(0)[..], &through(0)].concat()),
        ("back", [&first(1)[..], &through(1)].concat()),
        ("late", script(&[&first(0), &send(0), &send(0), &pass(0, 2), &pass(0, 1), &through(0)])),
        ("doubled", script(&[&first(1), &double(1), &pass(1, 1), &through(1), &through(1)])),
        ("lost", script(&[&first(0), &send(0), &lose(0), &through(0)])),
        ("counter", forged(&[0, 0, 5])),
        ("leap", forged(&[1, 0xff, 0xff])),
        ("command", forged(&[2, 1])),
        ("bit", forged(&[3, 0, 20, 1])),
    ]
}

/// Returns seeds of `lossy_relay`: scripts of a hostile neighbour with lossy circuits. The target
/// defines the bytes.
pub(super) fn lossy_relay() -> Seeds {
    // A SYN with BEGIN, the destination's connection, and its data.
    let syn = [3, 0, 0, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 0xd7, 0, 0, 0, 0];
    let data = [10, 0, 1, 0xff, 0xff, 0, 0];
    let download = [&syn[..], &[9, 0, 1], &data, &[11, 9], &data, &[11, 12]].concat();
    // More segments out of order than the relay may buffer.
    let flood = [4, 0, 0, 2, 0, 9, 0, 0, 0, 0xff, 0xff, 0, 1, 7, 0xff, 0xff, 1, 63];
    // Requests to link both circuits to one set, with windows.
    let linked = [8, 0, 2, 0, 1, 8, 1, 2, 0, 1];
    let after = |step: &[u8]| [&download[..], step, &data].concat();
    vec![
        ("bit", after(&[7, 0, 1, 0x10, 0x01])),
        ("closed", after(&[8, 0, 0, 9, 7, 0, 3, 8, 0, 1])),
        ("download", download.clone()),
        ("flood", after(&flood.repeat(20))),
        ("linked", [&linked[..], &download].concat()),
        ("other", after(&[7, 0, 2, 1])),
        ("raw", after(&[0, 2, 3, 0, 1, 9, 4, 1, 2, 3, 4])),
        ("replayed", after(&[7, 0, 3, 7, 0, 3])),
        ("truncated", after(&[7, 0, 0, 1, 99])),
    ]
}
