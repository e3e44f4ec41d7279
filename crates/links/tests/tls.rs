//! Tests of two TLS links joined in memory. They agree on keys and carry bytes, in pieces of any
//! length.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

use anabranch_links::{Context, Fault, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;
use anabranch_multipath::seed::stream;
use rand::{Rng, RngExt};

const NOW: u64 = 1_800_000_000;

/// The client and the server of one link.
struct Pair {
    client: Tls,
    server: Tls,
}

impl Pair {
    fn new(context: &Context) -> Pair {
        Pair { client: context.connect().unwrap(), server: context.accept().unwrap() }
    }

    /// Carries the bytes of both ends, in pieces of the lengths that `cut` returns, until neither
    /// sends more.
    fn settle(&mut self, mut cut: impl FnMut() -> usize) -> Result<(), Fault> {
        loop {
            let mut moved = false;
            for up in [true, false] {
                let (from, to) = match up {
                    true => (&mut self.client, &mut self.server),
                    false => (&mut self.server, &mut self.client),
                };
                let mut wire = Vec::new();
                moved |= from.transmit(Time::ZERO, &mut wire);
                let mut rest = &wire[..];
                while !rest.is_empty() {
                    let (piece, left) = rest.split_at(cut().clamp(1, rest.len()));
                    to.receive(Time::ZERO, piece)?;
                    rest = left;
                }
            }
            if !moved {
                return Ok(());
            }
        }
    }

    fn open(context: &Context) -> Pair {
        let mut pair = Pair::new(context);
        pair.settle(|| usize::MAX).unwrap();
        assert_eq!((pair.client.state(), pair.server.state()), (State::Open, State::Open));
        pair
    }
}

fn arrived(link: &mut Tls) -> Vec<u8> {
    let mut bytes = Vec::new();
    link.read(&mut bytes).unwrap();
    bytes
}

#[test]
fn any_cut_of_the_bytes_gives_the_same_plain_bytes() {
    let context = Context::new(NOW).unwrap();
    for seed in 0..40 {
        let mut dice = stream(seed, 0, "cuts");
        let mut pair = Pair::new(&context);
        let (mut up, mut down) = (vec![0; dice.random_range(0..60_000)], vec![0; 40_000]);
        dice.fill_bytes(&mut up);
        dice.fill_bytes(&mut down);
        // These bytes are written before the handshake is done, at once or cell by cell.
        pair.client.write(&up).unwrap();
        down.chunks(514).for_each(|cell| pair.server.write(cell).unwrap());
        let longest = [1, 7, 600, 20_000][seed as usize % 4];
        pair.settle(|| dice.random_range(1..=longest)).unwrap();
        assert!(arrived(&mut pair.server) == up, "seed {seed}: up");
        assert!(arrived(&mut pair.client) == down, "seed {seed}: down");
    }
}

#[test]
fn both_sides_export_the_same_keys_and_know_the_certificate() {
    let context = Context::new(NOW).unwrap();
    for context in [context.clone(), context.only_tls12().unwrap()] {
        let pair = Pair::open(&context);
        let label = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";
        let keys: [u8; 32] = pair.client.export(label, b"identity").unwrap();
        assert_eq!(keys, pair.server.export(label, b"identity").unwrap());
        assert_ne!(keys, pair.server.export(label, b"another").unwrap());
        assert_eq!(pair.client.peer_certificate(), Some(pair.server.own_certificate()));
        assert_eq!(pair.server.peer_certificate(), None);
    }
}

#[test]
fn nothing_is_exported_before_the_keys_are_agreed() {
    let pair = Pair::new(&Context::new(NOW).unwrap());
    assert!(matches!(pair.client.export(b"label", b""), Err(Fault::Misuse(_))));
    assert_eq!(pair.client.state(), State::Handshaking);
}

#[test]
fn every_context_has_a_certificate_of_its_own() {
    let (one, another) = (Context::new(NOW).unwrap(), Context::new(NOW).unwrap());
    assert_ne!(one.certificate(), another.certificate());
}

#[test]
fn a_batch_of_cells_shares_records() {
    let mut pair = Pair::open(&Context::new(NOW).unwrap());
    let batch = vec![7; 32 * 514];
    let mut wire = Vec::new();
    pair.client.write(&batch).unwrap();
    pair.client.transmit(Time::ZERO, &mut wire);
    let records = batch.len().div_ceil(pair.client.promises().record);
    assert!(wire.len() <= batch.len() + records * 40, "{} bytes", wire.len());
}

/// Returns the lengths of the records on the wire, without their headers.
fn records(mut wire: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some((&[_, _, _, high, low], rest)) = wire.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        lengths.push(length);
        wire = &rest[length..];
    }
    lengths
}

#[test]
fn no_record_holds_more_than_a_record_of_c_tor() {
    let context = Context::new(NOW).unwrap();
    for context in [context.clone(), context.only_tls12().unwrap()] {
        let mut pair = Pair::open(&context);
        for link in [&mut pair.client, &mut pair.server] {
            let mut wire = Vec::new();
            link.write(&[7; 100_000]).unwrap();
            link.transmit(Time::ZERO, &mut wire);
            let lengths = records(&wire);
            // A record has its content, the content type or a nonce, and a tag.
            assert!(lengths.iter().all(|length| *length <= 4_048 + 24), "{lengths:?}");
            assert_eq!(lengths.len(), 100_000_usize.div_ceil(4_048));
        }
    }
}

#[test]
fn a_goodbye_ends_the_peers_side_after_what_was_written() {
    let mut pair = Pair::open(&Context::new(NOW).unwrap());
    pair.client.write(b"last words").unwrap();
    pair.client.close();
    assert!(matches!(pair.client.write(b"more"), Err(Fault::Misuse(_))));
    pair.settle(|| 5).unwrap();
    assert_eq!(arrived(&mut pair.server), b"last words");
    assert_eq!(pair.server.state(), State::Ended);
}

#[test]
fn a_changed_byte_ends_the_link_with_an_alert() {
    let mut pair = Pair::open(&Context::new(NOW).unwrap());
    let mut wire = Vec::new();
    pair.client.write(b"a cell").unwrap();
    pair.client.transmit(Time::ZERO, &mut wire);
    *wire.last_mut().unwrap() ^= 1;
    assert!(matches!(pair.server.receive(Time::ZERO, &wire), Err(Fault::Peer(_))));
    assert_eq!(pair.server.state(), State::Ended);
    assert_eq!(arrived(&mut pair.server), b"");
    assert!(pair.server.transmit(Time::ZERO, &mut Vec::new()), "an alert tells the peer");
}

#[test]
fn what_is_not_tls_is_refused_by_both_roles() {
    let context = Context::new(NOW).unwrap();
    for mut link in [context.connect().unwrap(), context.accept().unwrap()] {
        let answer = link.receive(Time::ZERO, b"GET / HTTP/1.0\r\n\r\n");
        assert!(matches!(answer, Err(Fault::Peer(_))), "{answer:?}");
        assert_eq!(link.state(), State::Ended);
    }
}

#[test]
fn a_debug_form_shows_no_payload() {
    let mut pair = Pair::open(&Context::new(NOW).unwrap());
    pair.client.write(b"secret").unwrap();
    pair.settle(|| 3).unwrap();
    assert_eq!(format!("{:?}", pair.server), "Tls { state: Open, .. }");
}

#[test]
fn a_link_that_rests_gives_back_the_room_of_a_burst_and_goes_on() {
    let mut pair = Pair::open(&Context::new(NOW).unwrap());
    for _ in 0..2 {
        pair.client.write(&[7; 100_000]).unwrap();
        pair.settle(|| usize::MAX).unwrap();
        // A buffer that holds a byte already gets a copy, so the link keeps its own buffer.
        let mut plain = vec![0];
        pair.server.read(&mut plain).unwrap();
        assert_eq!(plain.len(), 100_001);
        assert!(pair.server.shrink_buffers() >= 90_000);
        assert_eq!(pair.server.shrink_buffers(), 0, "there is no more");
    }
    pair.client.write(&[7; 100_000]).unwrap();
    pair.settle(|| usize::MAX).unwrap();
    assert_eq!(arrived(&mut pair.server).len(), 100_000);
    assert!(pair.server.shrink_buffers() < 90_000, "an empty buffer takes the room with the data");
    pair.client.write(&[8; 100_000]).unwrap();
    pair.settle(|| usize::MAX).unwrap();
    pair.server.shrink_buffers();
    assert_eq!(arrived(&mut pair.server).len(), 100_000, "what waits is kept");
}
