//! Packets of MORE: the parsers of their content, and an exit that receives any content. An exit
//! never has more streams than its limit, counts each datagram once, and sends only packets of the
//! network's length.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anabranch_more::wire::{Flow, ForwardContent, ReplyContent, read_target};
use anabranch_more::{
    Config, Datagram, DropReason, Event, KEY, MoreNode, Network, OVERHEAD, Output, Peer, SecretKey,
};
use anabranch_multipath::conformance::check_at_rest;
use anabranch_multipath::{Core as _, Time};
use anabranch_tcp::{Flags, Segment, Seq};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use sphinx_packet::SphinxPacketBuilder;
use sphinx_packet::header::delays::Delay;
use sphinx_packet::route::{Destination, DestinationAddressBytes, NodeAddressBytes};

use crate::input::Input;

/// Maximum number of streams of the exit.
const STREAMS: usize = 2;
/// Maximum number of tags of the exit.
const TAGS: usize = 12;
/// Maximum number of steps in a script. Each step sends a packet.
const STEPS: usize = 16;
/// Number of the exit among the nodes.
const EXIT: usize = 4;

static KEYS: LazyLock<Vec<SecretKey>> =
    LazyLock::new(|| (1..=5).map(|number| SecretKey::from_bytes([number; KEY])).collect());

static NETWORK: LazyLock<Arc<Network>> = LazyLock::new(|| {
    let peer = |(at, key): (usize, &SecretKey)| Peer {
        key: key.public(),
        address: address(at),
        weight: 1,
        is_exit: at == EXIT,
    };
    let peers = KEYS.iter().enumerate().map(peer).collect();
    Arc::new(Network::new(peers).expect("the nodes differ"))
});

/// Checks the parsers with an input, and an exit with the same input as a script.
pub fn check(bytes: &[u8]) {
    if let Some(forward) = ForwardContent::parse(bytes) {
        let again =
            ForwardContent::parse(&forward.write()).expect("what was parsed can be written");
        let seen = |one: &ForwardContent| (one.flow, one.number, one.blocks.clone());
        assert_eq!(seen(&again), seen(&forward));
        assert_eq!(again.segment.is_some(), forward.segment.is_some());
    }
    if let Some(reply) = ReplyContent::parse(bytes) {
        let again = ReplyContent::parse(&reply.write()).expect("what was parsed can be written");
        let seen = |one: &ReplyContent| (one.serial, one.seen, one.wanted, one.segment.is_some());
        assert_eq!(seen(&again), seen(&reply));
    }
    if let Ok(Some((target, length))) = read_target(bytes) {
        assert!(target.port() > 0 && length <= bytes.len());
    }
    script(&mut Input::new(bytes));
}

fn address(at: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, at as u8], 9))
}

/// Sends an exit the packets that the input describes.
fn script(input: &mut Input<'_>) {
    let config = Config { streams: STREAMS, tags: TAGS, buffer: 4_096, ..Config::default() };
    let rng = Box::new(ChaCha20Rng::seed_from_u64(7));
    let key = KEYS[EXIT].clone();
    let mut exit = MoreNode::new(config.clone(), NETWORK.clone(), key, rng)
        .expect("the network lists the exit");
    let mut now = Time::from_secs(1_000);
    for number in 0..STEPS {
        if input.is_empty() {
            break;
        }
        now += Duration::from_millis(u64::from(input.byte()) * 300);
        let from = address(input.below(6));
        let datagram = match input.below(4) {
            0 => input.take(600).to_vec(),
            1 => {
                let mut raw = input.take(400).to_vec();
                raw.resize(OVERHEAD + config.payload, 7);
                raw
            }
            2 => packet(now, number, input.take(300)),
            _ => packet(now, number, &content(input).write()),
        };
        exit.handle(now, Datagram { from, bytes: &datagram });
        answer(&mut exit, now, input);
    }
    let counters = *exit.counters();
    let dropped: u64 = DropReason::ALL.iter().map(|&reason| counters.dropped(reason)).sum();
    assert_eq!(counters.received, counters.relayed + counters.delivered + dropped);
}

/// Returns a packet with `content` whose only hop is the exit.
fn packet(now: Time, number: usize, content: &[u8]) -> Vec<u8> {
    let peer = NETWORK.peers()[EXIT];
    let node =
        sphinx_packet::route::Node::new(NodeAddressBytes::from_bytes(peer.key), peer.key.into());
    let expiry = now.nanos() / 30_000_000_000 + 4;
    let mut last = [0; 32];
    last[..8].copy_from_slice(&expiry.to_be_bytes());
    let destination = Destination::new(DestinationAddressBytes::from_bytes(last), [0; 16]);
    let secret = [number as u8 + 1; KEY].into();
    let builder = SphinxPacketBuilder::new()
        .with_payload_size(Config::default().payload + 17)
        .with_initial_secret(&secret);
    let packet = builder.build_packet(content, &[node], &destination, &[Delay::new_from_nanos(0)]);
    packet.expect("a content of up to 795 bytes").to_bytes()
}

/// Returns the content of a forward packet, perhaps with a segment, as a peer might send it.
fn content(input: &mut Input<'_>) -> ForwardContent {
    let flow = Flow([input.below(4) as u8; 8]);
    let number = u32::from(input.byte());
    let count = input.below(2) as u8;
    let block: Vec<u8> = vec![input.byte(); anabranch_more::SURB_LENGTH * usize::from(count)];
    let head = [&[count][..], &flow.0, &number.to_be_bytes(), &block].concat();
    let mut forward = ForwardContent::parse(&head).expect("blocks may have any bytes");
    if input.coin() {
        forward.segment = Some(Segment {
            source: 1,
            destination: 1,
            seq: Seq(u32::from(input.word())),
            ack: Seq(u32::from(input.word())),
            flags: Flags(input.byte()),
            window: input.word(),
            payload: input.take(64).to_vec(),
            ..Segment::default()
        });
    }
    forward
}

/// Polls the exit, and serves its streams as the input requests.
fn answer(exit: &mut MoreNode, now: Time, input: &mut Input<'_>) {
    while let Some(output) = exit.poll(now) {
        match output {
            Output::Send { bytes, .. } => {
                assert_eq!(bytes.len(), OVERHEAD + Config::default().payload);
            }
            Output::Event(Event::Begun(id, target)) => {
                assert!(target.port() > 0);
                if input.coin() {
                    exit.connected(id);
                    exit.write(id, b"answer");
                }
            }
            Output::Event(Event::Readable(id)) => {
                let (front, back) = exit.peek(id);
                let length = front.len() + back.len();
                assert!(length > 0);
                exit.consume(id, length);
            }
            Output::Event(_) => {}
        }
    }
    assert!(exit.streams() <= STREAMS && exit.stored()[0] <= TAGS);
    check_at_rest(exit, now);
}
