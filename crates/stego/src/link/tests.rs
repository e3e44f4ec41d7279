//! Tests of single links.

use anabranch_multipath::seed::stream;

use super::*;
use crate::budget::LEAST_WINDOW;
use crate::frame::Ack;
use crate::outbox::AHEAD;

const NOW: Time = Time::from_secs(1);

fn link(side: Side) -> Link {
    let secrets = LinkSecrets { up: [1; 32], down: [2; 32], tokens: [3; 32], aes: true };
    let schedule = Spec::over_windows("pull").unwrap();
    let mut rng = stream(1, 1, "link");
    Link::new(&secrets, side, 2, "embed".parse().unwrap(), &schedule, &mut rng)
}

#[test]
fn a_message_of_a_lost_connection_has_no_padding() {
    let mut link = link(Side::Client);
    link.open(NOW, 0, 1, Opening::Asks(Duration::ZERO), &[7; 16]);
    assert_eq!(link.take(NOW, 0, 300).len(), 300);
    link.lost(NOW, 0);
    assert_eq!(link.take(NOW, 0, 300), []);
}

#[test]
fn only_a_client_numbers_its_connections() {
    let (mut client, mut server) = (link(Side::Client), link(Side::Server));
    let mut slot = |from: Side, expected| {
        for link in [&mut client, &mut server] {
            link.open(NOW, 0, 1, Opening::Asks(Duration::ZERO), &[]);
        }
        let (near, far) = match from {
            Side::Client => (&mut client, &mut server),
            Side::Server => (&mut server, &mut client),
        };
        near.deal(NOW, std::iter::once((0, Room { bytes: 1_000, reserved: 0 })));
        let block = near.take(NOW, 0, 0);
        assert_eq!(far.receive(NOW, 0, &block), expected);
    };
    slot(Side::Client, Ok(1));
    slot(Side::Server, Err(LinkViolation::SlotFromServer));
}

/// Returns a server's link with a connection, and the sealer of its client.
fn served() -> (Link, Sealer) {
    let mut server = link(Side::Server);
    server.open(NOW, 0, 1, Opening::Waits, &[]);
    (server, Sealer::new(&[1; 32], true))
}

fn block(sealer: &mut Sealer, frame: &Frame<'_>) -> Vec<u8> {
    let mut block = Vec::new();
    sealer.seal(&mut block, |out| frame.write(out));
    block
}

#[test]
fn a_block_that_cannot_be_opened_is_refused_with_its_cause() {
    let (mut server, mut sealer) = served();
    let good = block(&mut sealer, &Frame::Ping);
    let (mut long, mut forged) = (good.clone(), good.clone());
    // The block's length follows its tag and the three bytes of its number.
    long[16 + 3] ^= 0x80;
    *forged.last_mut().unwrap() ^= 1;
    for (block, expected) in [
        (long, Err(LinkViolation::Block(BadBlock::TooLong))),
        (forged, Err(LinkViolation::Block(BadBlock::Forged))),
        (good.clone(), Ok(1)),
        (good, Err(LinkViolation::Block(BadBlock::Replayed))),
    ] {
        assert_eq!(server.receive(NOW, 0, &block), expected);
    }
}

#[test]
fn a_frame_that_is_not_permitted_is_refused_with_its_cause() {
    let (mut server, mut sealer) = served();
    let mut malformed = Vec::new();
    sealer.seal(&mut malformed, |out| out.push(255));
    assert_eq!(server.receive(NOW, 0, &malformed), Err(LinkViolation::Frame));
    let ack = Frame::Ack(Ack { next: 1, ..Ack::default() });
    let received = server.receive(NOW, 0, &block(&mut sealer, &ack));
    assert_eq!(received, Err(LinkViolation::AckOfUnsent), "nothing was sent");
    let ahead = Frame::Data { chunk: AHEAD as u64, bytes: b"x" };
    let received = server.receive(NOW, 0, &block(&mut sealer, &ahead));
    assert_eq!(received, Err(LinkViolation::Overrun(Overrun::Chunks)));
    let bytes = [0; 16 << 10];
    let mut receive = |chunk| {
        let block = block(&mut sealer, &Frame::Data { chunk, bytes: &bytes });
        server.receive(NOW, 0, &block)
    };
    let permitted = (LEAST_WINDOW / bytes.len()) as u64;
    assert!((0..permitted).all(|chunk| receive(chunk) == Ok(1)));
    assert_eq!(receive(permitted), Err(LinkViolation::Overrun(Overrun::Bytes)));
}

#[test]
fn a_new_connection_on_an_evicted_path_is_not_closed() {
    let mut server = link(Side::Server);
    server.open(NOW, 0, 1, Opening::Waits, &[]);
    server.open(NOW, 1, 2, Opening::Waits, &[]);
    assert_eq!(server.connections.set_slot(0, 5), None);
    assert_eq!(server.connections.set_slot(1, 5), Some(0));
    server.open(NOW, 0, 3, Opening::Waits, &[]);
    assert_eq!(server.evicted(), []);
}
