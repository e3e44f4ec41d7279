//! Tests of the censor with handshakes that rustls generates.

use std::sync::Arc;

use etherparse::PacketBuilder;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256 as TLS13;
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, Keys, Version};
use rustls::{ClientConfig, RootCertStore, Side};

use super::*;

const CLIENT: [u8; 4] = [10, 0, 0, 2];
const SERVER: [u8; 4] = [10, 99, 0, 1];
const ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

fn censor() -> Censor {
    Censor::new(["blocked.example".to_owned()])
}

fn config() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    Arc::new(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Returns the first TLS records of a client over TCP: its ClientHello for `name`.
fn tls(name: &'static str) -> Vec<u8> {
    let server = ServerName::try_from(name).unwrap();
    let mut client = rustls::ClientConnection::new(config(), server).unwrap();
    let mut sent = Vec::new();
    client.write_tls(&mut sent).unwrap();
    sent
}

/// Returns the CRYPTO stream of a QUIC client's first flight: its ClientHello for `name`.
fn hello(name: &'static str) -> Vec<u8> {
    let server = ServerName::try_from(name).unwrap();
    let mut client = ClientConnection::new(config(), Version::V1, server, Vec::new()).unwrap();
    let mut sent = Vec::new();
    client.write_hs(&mut sent);
    sent
}

fn number(value: usize) -> [u8; 4] {
    (value as u32 | 0x8000_0000).to_be_bytes()
}

fn crypto(at: usize, bytes: &[u8]) -> Vec<u8> {
    [&[6][..], &number(at), &number(bytes.len()), bytes].concat()
}

/// Returns a client's Initial packet that contains `frames` and has the destination connection ID
/// `id`. Its keys are derived from the connection ID `origin`.
fn initial(
    version: Version,
    origin: &[u8],
    id: &[u8],
    packet_number: u32,
    frames: &[u8],
) -> Vec<u8> {
    let suite = TLS13.tls13().unwrap();
    let keys = Keys::initial(version, suite, suite.quic.unwrap(), origin, Side::Client).local;
    let (first, wire) = match version {
        Version::V2 => (0xd3, 0x6b33_43cf_u32),
        _ => (0xc3, 1),
    };
    let mut frames = frames.to_vec();
    frames.resize(frames.len().max(64), 0);
    let length = number(4 + frames.len() + keys.packet.tag_len());
    let id_length = [id.len() as u8];
    let mut packet = [&[first][..], &wire.to_be_bytes(), &id_length, id, &[0, 0], &length].concat();
    let number_at = packet.len();
    packet.extend(packet_number.to_be_bytes());
    let tag = keys.packet.encrypt_in_place(packet_number.into(), &packet, &mut frames).unwrap();
    packet.extend(frames);
    packet.extend(tag.as_ref());
    let sample = packet[number_at + 4..number_at + 20].to_vec();
    let (first, rest) = packet.split_first_mut().unwrap();
    let number = &mut rest[number_at - 1..number_at + 3];
    keys.header.encrypt_in_place(&sample, first, number).unwrap();
    packet
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(CLIENT, SERVER, 64).udp(40_000, 443);
    builder.write(&mut packet, payload).unwrap();
    packet
}

fn udp_back(payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4(SERVER, CLIENT, 64).udp(443, 40_000);
    builder.write(&mut packet, payload).unwrap();
    packet
}

fn tcp_back(sequence: u32, acknowledged: u32, syn: bool) -> Vec<u8> {
    let mut builder = PacketBuilder::ipv4(SERVER, CLIENT, 64).tcp(443, 40_000, sequence, 1000);
    if syn {
        builder = builder.syn();
    }
    let mut packet = Vec::new();
    builder.ack(acknowledged).write(&mut packet, &[]).unwrap();
    packet
}

fn tcp(sequence: u32, syn: bool, payload: &[u8]) -> Vec<u8> {
    let mut builder = PacketBuilder::ipv4(CLIENT, SERVER, 64).tcp(40_000, 443, sequence, 1000);
    if syn {
        builder = builder.syn();
    }
    let mut packet = Vec::new();
    builder.write(&mut packet, payload).unwrap();
    packet
}

#[test]
fn a_quic_connection_to_a_blocked_name_ends_with_its_clienthello() {
    for version in [Version::V1, Version::V2] {
        for (name, passes) in [
            ("blocked.example", false),
            ("www.Blocked.example", false),
            ("unblocked.example", true),
            ("blocked.example.org", true),
        ] {
            let mut censor = censor();
            let datagram = initial(version, &ID, &ID, 0, &crypto(0, &hello(name)));
            assert_eq!(censor.pass(&udp(&datagram)), passes, "{name}");
            // Later packets are blocked as well, in both directions.
            assert_eq!(censor.pass(&udp(&[0x40; 50])), passes, "{name}");
            assert_eq!(censor.pass(&udp_back(&[0xc0; 50])), passes, "{name}");
            assert_eq!(censor.dropped() == 0, passes);
        }
    }
}

#[test]
fn a_clienthello_may_be_spread_over_packets_in_any_order() {
    let hello = hello("a-rather-long-name.blocked.example");
    let third = hello.len() / 3;
    let piece = |n: usize| {
        let end = if n == 2 { hello.len() } else { (n + 1) * third };
        crypto(n * third, &hello[n * third..end])
    };
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut censor = censor();
        let mut passed = Vec::new();
        for (number, n) in order.into_iter().enumerate() {
            // A PING and padding precede the CRYPTO frame, as in Chromium's packets.
            let frames = [&[1, 0, 0][..], &piece(n)].concat();
            let datagram = initial(Version::V1, &ID, &ID, number as u32, &frames);
            passed.push(censor.pass(&udp(&datagram)));
        }
        assert!(!passed[2], "{order:?}: {passed:?}");
        assert!(!censor.pass(&udp_back(&[0x40; 50])), "{order:?}");
    }
    // Both packets are in one datagram.
    let both = [
        initial(Version::V1, &ID, &ID, 0, &[piece(2), piece(0)].concat()),
        initial(Version::V1, &ID, &ID, 1, &piece(1)),
    ];
    assert!(!censor().pass(&udp(&both.concat())));
}

#[test]
fn later_packets_have_the_keys_of_the_first_and_a_retry_makes_new_ones() {
    let hello = hello("blocked.example");
    let (early, late) = hello.split_at(40);
    let mut first = censor();
    assert!(first.pass(&udp(&initial(Version::V1, &ID, &ID, 0, &crypto(0, early)))));
    // The server's own connection ID as destination, with the keys of the first packet.
    let second = initial(Version::V1, &ID, b"server's", 1, &crypto(early.len(), late));
    assert!(!first.pass(&udp(&second)));

    let mut retried = censor();
    assert!(retried.pass(&udp(&initial(Version::V1, &ID, &ID, 0, &crypto(0, early)))));
    let again = initial(Version::V1, b"retry", b"retry", 1, &crypto(0, &hello));
    assert!(!retried.pass(&udp(&again)));
}

#[test]
fn a_tls_connection_to_a_blocked_name_ends_with_its_clienthello() {
    for (name, passes) in [("blocked.example", false), ("other.example", true)] {
        let sent = tls(name);
        // One segment; then segments of 50 bytes in reverse order, whose sequence numbers wrap
        // around.
        for (size, first) in [(10_000, 7), (50, u32::MAX - 60)] {
            let mut censor = censor();
            assert!(censor.pass(&tcp(first, true, &[])));
            let mut pieces: Vec<(usize, &[u8])> = sent.chunks(size).enumerate().collect();
            pieces.reverse();
            for (n, piece) in pieces {
                let at = first.wrapping_add(1).wrapping_add((n * size) as u32);
                let passed = censor.pass(&tcp(at, false, piece));
                assert!(passed || !passes && n == 0, "{name}, piece {n} of {size} bytes");
            }
            assert_eq!(censor.pass(&tcp(first.wrapping_add(2000), false, b"more")), passes);
        }
    }
}

/// Returns the first datagram of a client that has chosen the destination connection ID `id`.
fn first(id: &[u8], name: &'static str) -> Vec<u8> {
    udp(&initial(Version::V1, id, id, 0, &crypto(0, &hello(name))))
}

#[test]
fn each_quic_connection_of_two_ports_is_judged_by_its_own_clienthello() {
    let (short, short_back) = (udp(&[0x40; 50]), udp_back(&[0x40; 50]));
    let mut censor = censor();
    assert!(censor.pass(&first(b"good one", "good.example")));
    assert!(censor.pass(&short) && censor.pass(&short_back));
    // A second connection stays blocked, however often it tries, and the first continues.
    for _ in 0..2 {
        assert!(!censor.pass(&first(b"bad one.", "blocked.example")));
        assert!(censor.pass(&short) && censor.pass(&short_back));
    }
    // Retransmissions of the first connection, and its acknowledgements to the server's connection
    // ID, begin no new connection.
    assert!(censor.pass(&first(b"good one", "good.example")));
    let late = initial(Version::V1, b"good one", b"server's", 1, &[1]);
    assert!(censor.pass(&udp(&late)));

    let mut censor = self::censor();
    assert!(!censor.pass(&first(b"bad one.", "blocked.example")));
    assert!(!censor.pass(&short) && !censor.pass(&short_back));
    assert!(censor.pass(&first(b"good one", "good.example")));
    assert!(censor.pass(&short) && censor.pass(&short_back));
    // The blocked connection tries again: in one packet, and with a connection ID as a server would
    // choose it.
    assert!(!censor.pass(&first(b"bad one.", "blocked.example")));
    let late = initial(Version::V1, b"bad one.", b"server's", 1, &[1]);
    assert!(!censor.pass(&udp(&late)));
    assert!(censor.pass(&short));
}

#[test]
fn a_blocked_connection_of_two_packets_stays_so_while_another_begins() {
    let hello = hello("blocked.example");
    let (early, late) = hello.split_at(40);
    let mut censor = censor();
    assert!(censor.pass(&udp(&initial(Version::V1, &ID, &ID, 0, &crypto(0, early)))));
    let rest = udp(&initial(Version::V1, &ID, b"server's", 1, &crypto(early.len(), late)));
    assert!(!censor.pass(&rest));
    assert!(censor.pass(&first(b"good one", "good.example")));
    assert!(!censor.pass(&rest));
}

#[test]
fn an_initial_packet_behind_others_is_seen() {
    for (version, zero_rtt) in [(Version::V1, 0xd0), (Version::V2, 0xe0)] {
        let bad = initial(version, &ID, &ID, 0, &crypto(0, &hello("blocked.example")));
        // A 0-RTT packet has the same header as an Initial packet without a token.
        let early = [&[zero_rtt], &bad[1..14], &[0], &number(30), &[7; 30]].concat();
        assert!(censor().pass(&udp(&early)));
        assert!(!censor().pass(&udp(&[early, bad].concat())));
    }
}

#[test]
fn what_is_remembered_of_two_udp_ports_is_bounded() {
    let mut censor = censor();
    for number in 0..100u64 {
        assert!(censor.pass(&first(&number.to_be_bytes(), "good.example")));
    }
    let Some(State::Quic(quic)) = censor.flows.values().next() else { panic!("no flow") };
    assert_eq!((quic.len(), censor.flows.len(), censor.oldest.len()), (8, 1, 1));
    assert!(!censor.pass(&first(b"bad one.", "blocked.example")));
}

#[test]
fn a_further_tls_connection_of_two_ports_is_judged_anew() {
    for (order, verdicts) in [
        (["good.example", "blocked.example"], [true, false]),
        (["blocked.example", "good.example"], [false, true]),
    ] {
        let mut censor = censor();
        for ((name, passes), syn) in order.into_iter().zip(verdicts).zip([7, 900_000]) {
            let sent = tls(name);
            assert!(censor.pass(&tcp(syn, true, &[])) && censor.pass(&tcp_back(50, syn + 1, true)));
            assert_eq!(censor.pass(&tcp(syn + 1, false, &sent)), passes, "{order:?}: {name}");
            assert_eq!(censor.pass(&tcp_back(51, syn + 1, false)), passes, "{order:?}: {name}");
            // A repeated SYN, late or retransmitted, begins no new connection.
            assert_eq!(censor.pass(&tcp(syn, true, &[])), passes, "{order:?}: {name}");
            assert_eq!(censor.pass(&tcp(syn + 1, false, &sent)), passes, "{order:?}: {name}");
        }
        assert_eq!((censor.flows.len(), censor.oldest.len()), (1, 1));
    }
}

#[test]
fn a_syn_sent_again_forgets_nothing() {
    let sent = tls("blocked.example");
    let (early, late) = sent.split_at(60);
    let mut censor = censor();
    assert!(censor.pass(&tcp(7, true, &[])) && censor.pass(&tcp(8, false, early)));
    assert!(censor.pass(&tcp(7, true, &[])) && censor.pass(&tcp_back(50, 8, true)));
    assert!(!censor.pass(&tcp(68, false, late)));
}

#[test]
fn a_clienthello_may_come_with_its_syn() {
    let mut censor = censor();
    assert!(!censor.pass(&tcp(7, true, &tls("blocked.example"))));
    assert!(!censor.pass(&tcp(8, false, b"more")));
}

#[test]
fn a_dot_at_the_end_of_a_name_changes_nothing() {
    // rustls sends the name without the trailing dot, and other clients send the dot.
    let with_dot = |mut hello: Vec<u8>| {
        let at = hello.windows(15).position(|part| part == b"blocked.example").unwrap() + 15;
        hello[at] = b'.';
        hello
    };
    let sent = with_dot(tls("www.blocked.examplex"));
    let mut censor = censor();
    assert!(censor.pass(&tcp(7, true, &[])) && !censor.pass(&tcp(8, false, &sent)));
    let frames = crypto(0, &with_dot(hello("www.blocked.examplex")));
    assert!(!censor.pass(&udp(&initial(Version::V1, &ID, &ID, 0, &frames))));
    let mut dotted = Censor::new(["Blocked.example.".to_owned()]);
    assert!(!dotted.pass(&first(&ID, "blocked.example")));
}

#[test]
fn what_is_no_such_handshake_passes() {
    let mut censor = censor();
    let mut broken = initial(Version::V1, &ID, &ID, 0, &crypto(0, &hello("blocked.example")));
    *broken.last_mut().unwrap() ^= 1;
    assert!(censor.pass(&udp(&broken)), "it would be dropped by the server");
    for payload in [&b""[..], b"\xc0", b"\xc0\0\0\0\x01\x08", &[0xc0; 1200]] {
        assert!(censor.pass(&udp(payload)));
    }
    assert!(censor.pass(&tcp(1, true, &[])) && censor.pass(&tcp(2, false, b"GET / HTTP/1.1")));
    assert!(censor.pass(&[]) && censor.pass(&[0x45; 10]));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut censor = censor();
    for port in 0..FLOWS + 10 {
        let mut packet = Vec::new();
        let source = [10, 1, (port >> 8) as u8, port as u8];
        let builder =
            PacketBuilder::ipv4(source, SERVER, 64).tcp(1 + (port >> 16) as u16, 443, 7, 1);
        builder.syn().write(&mut packet, &[]).unwrap();
        assert!(censor.pass(&packet));
    }
    assert_eq!((censor.flows.len(), censor.oldest.len()), (FLOWS, FLOWS));
}
