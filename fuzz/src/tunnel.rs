//! Packets of strangers, other clients and hostile clients to an end of ours. Strangers change
//! nothing and get no answer; a client with keys may send anything, and memory and order stay
//! bounded.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::seed::{Stream, stream};
use anabranch_multipath::{PathId, Time};
use anabranch_tunnel::keys::KeyPair;
use anabranch_tunnel::{ClientId, FarSide, NearEnd, PacketKind};

use crate::input::Input;

const PATHS: u16 = 3;
/// Maximum packet numbers that a client skips at once. It is below 2^31, because a packet carries
/// 32 bits of its number.
const SKIPS: [u64; 6] = [0, 1, 7, 5_000, 20_000, 1 << 30];

/// Checks an input; the first byte selects the check.
pub fn check(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => stranger(rest),
        1 => client(rest),
        _ => shaken(rest),
    }
}

struct Ends {
    now: Time,
    near: NearEnd<Stream>,
    far: FarSide<Stream>,
    client: ClientId,
}

fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 40_000))
}

/// Creates two ends after their handshake.
fn ends() -> Ends {
    let pair = |entity| KeyPair::generate(&mut stream(1, entity, "keys"));
    let (own, theirs) = (pair(1), pair(2));
    let mut far = FarSide::new(theirs.clone(), &[(own.public, [9; 32])], &[], stream(1, 3, "far"));
    let near = NearEnd::new(own, (theirs.public, [9; 32]), "a", PATHS, &[], stream(1, 4, "near"));
    let (mut near, now, mut packet) = (near.expect("sound"), Time::from_secs(1), Vec::new());
    near.poll_transmit(now, 1, &mut packet).expect("a handshake");
    let PacketKind::Handshake(answer, Some(accepted)) = far.receive(now, address().into(), &packet)
    else {
        panic!("the client is known")
    };
    assert!(near.open(now, PathId(0), &answer), "the answer is the far end's");
    Ends { now, near, far, client: accepted.client }
}

/// Checks packets from a stranger without a key, which are cut and changed from an observed one.
fn stranger(bytes: &[u8]) {
    let mut ends = ends();
    let mut seen = Vec::new();
    ends.near.seal(ends.now, PathId(0), (1, b"seen"), &mut seen);
    let place = usize::from(bytes.first().copied().unwrap_or(0)) % seen.len();
    let mixed = [&seen[..place], bytes].concat();
    for packet in [bytes, &mixed] {
        let received = ends.far.receive(ends.now, address().into(), packet);
        assert!(packet == seen || received == PacketKind::Nothing, "a stranger is answered");
        assert!(!ends.near.open(ends.now, PathId(0), packet), "nothing of that is the far end's");
    }
}

/// Checks a client that sends any frames, skips numbers, and lets time pass.
fn client(bytes: &[u8]) {
    let (mut ends, mut input) = (ends(), Input::new(bytes));
    // Data that the client reports as received opens windows.
    ends.far.session(ends.client).expect("it has shaken hands").keep_windows(true);
    while !input.is_empty() {
        let (path, skip) = (PathId(input.byte().into()), input.pick(&SKIPS));
        ends.now += Duration::from_millis(input.byte().into());
        let length = input.below(256);
        let mut packet = Vec::new();
        if ends.near.seal_frame(path, skip, input.take(length), &mut packet) {
            let received = ends.far.receive(ends.now, address().into(), &packet);
            assert_eq!(received, PacketKind::Session(ends.client));
            let again = ends.far.receive(ends.now, address().into(), &packet);
            assert_eq!(again, PacketKind::Nothing, "each counts once");
        }
        let mut out = Vec::new();
        for path in (0..PATHS).map(PathId) {
            ends.far.seal(ends.now, ends.client, path, (1, b"answer"), &mut out);
            let view = ends.far.view(ends.now, ends.client, path);
            assert!(view.leg.size < 1 << 40, "{view:?}");
        }
        while ends.far.poll_transmit(ends.now, ends.client, &mut out).is_some() {}
        let Some(session) = ends.far.session(ends.client) else { return };
        while session.poll(ends.now).is_some() {}
        let waits = session.next_timeout().is_none_or(|due| due > ends.now);
        assert!(waits, "what is due was done");
        assert!(session.patience() <= Duration::from_millis(250));
    }
}

/// Checks packets that are delivered in any order, some twice, some never: no datagram comes out
/// twice.
fn shaken(bytes: &[u8]) {
    let (mut ends, mut input) = (ends(), Input::new(bytes));
    let mut packets = Vec::new();
    for number in 0..40u8 {
        let mut packet = Vec::new();
        ends.near.seal(ends.now, PathId(0), (1, &[number]), &mut packet);
        packets.push(packet);
    }
    let mut out = Vec::new();
    while !input.is_empty() {
        ends.now += Duration::from_millis((input.byte() % 8).into());
        let place = input.below(packets.len());
        ends.far.receive(ends.now, address().into(), &packets[place]);
        let Some(session) = ends.far.session(ends.client) else { return };
        out.extend(std::iter::from_fn(|| session.poll(ends.now)));
    }
    let mut numbers: Vec<u8> = out.iter().map(|datagram| datagram.bytes()[0]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), out.len(), "a datagram came out twice");
}
