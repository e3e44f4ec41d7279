//! Tests of our record layer of TLS 1.3, in both roles, with the TLS library's own record layer at
//! the other end.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

use std::io::{Read, Write};
use std::sync::Arc;

use anabranch_links::{Context, Fault, Link, State, StreamLink, Tls};
use anabranch_multipath::Time;
use anabranch_multipath::seed::stream;
use rand::{Rng, RngExt};
use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, ServerConfig,
    ServerConnection, SignatureScheme, SupportedCipherSuite,
};

const NOW: u64 = 1_800_000_000;
const SUITES: [SupportedCipherSuite; 3] = [
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
];

/// A verifier with which the library's client accepts any certificate.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256]
    }
}

/// Returns the library's end of a link, with one cipher suite. As a server, it sends `tickets`
/// session tickets.
fn library(server: bool, suite: SupportedCipherSuite, tickets: usize) -> Connection {
    let provider = Arc::new(rustls::crypto::CryptoProvider {
        cipher_suites: vec![suite],
        ..aws_lc_rs::default_provider()
    });
    let versions = [&rustls::version::TLS13];
    let mut connection: Connection = if server {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap();
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .unwrap()
            .with_no_client_auth();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.send_tls13_tickets = tickets;
        ServerConnection::new(Arc::new(config)).unwrap().into()
    } else {
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting))
            .with_no_client_auth();
        let name = ServerName::try_from("www.example.net").unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap().into()
    };
    connection.set_buffer_limit(None);
    connection
}

/// A link between our code and the library.
struct Mixed {
    ours: Tls,
    theirs: Connection,
    /// Bytes that the library's end has read.
    received: Vec<u8>,
}

impl Mixed {
    fn new(context: &Context, client: bool, suite: SupportedCipherSuite, tickets: usize) -> Mixed {
        let ours = if client { context.connect() } else { context.accept() }.unwrap();
        Mixed { ours, theirs: library(client, suite, tickets), received: Vec::new() }
    }

    fn open(context: &Context, client: bool, suite: SupportedCipherSuite) -> Mixed {
        let mut mixed = Mixed::new(context, client, suite, 4);
        mixed.settle(|| usize::MAX).unwrap();
        assert_eq!(mixed.ours.state(), State::Open);
        assert!(!mixed.theirs.is_handshaking());
        mixed
    }

    /// Carries the bytes of both ends, in pieces of the lengths that `cut` returns, until neither
    /// sends more.
    fn settle(&mut self, mut cut: impl FnMut() -> usize) -> Result<(), Fault> {
        loop {
            let mut wire = Vec::new();
            self.ours.transmit(Time::ZERO, &mut wire);
            let mut moved = !wire.is_empty();
            let mut rest = &wire[..];
            while !rest.is_empty() {
                let (mut piece, left) = rest.split_at(cut().clamp(1, rest.len()));
                rest = left;
                self.hand(&mut piece);
            }
            wire.clear();
            while self.theirs.wants_write() {
                self.theirs.write_tls(&mut wire).unwrap();
            }
            moved |= !wire.is_empty();
            let mut rest = &wire[..];
            while !rest.is_empty() {
                let (piece, left) = rest.split_at(cut().clamp(1, rest.len()));
                self.ours.receive(Time::ZERO, piece)?;
                rest = left;
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// Passes bytes to the library's end, and checks that it accepts them.
    fn hand(&mut self, piece: &mut &[u8]) {
        while !piece.is_empty() {
            self.theirs.read_tls(piece).unwrap();
            let io = self.theirs.process_new_packets().unwrap();
            let before = self.received.len();
            self.received.resize(before + io.plaintext_bytes_to_read(), 0);
            self.theirs.reader().read_exact(&mut self.received[before..]).unwrap();
        }
    }

    fn send_message(&mut self, bytes: &[u8]) {
        self.theirs.writer().write_all(bytes).unwrap();
    }

    fn arrived(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.ours.read(&mut bytes).unwrap();
        bytes
    }

    /// Sends `bytes` in both directions, and checks that both ends receive them.
    fn exchange(&mut self, bytes: &[u8], cut: impl FnMut() -> usize) {
        self.received.clear();
        self.ours.write(bytes).unwrap();
        self.send_message(bytes);
        self.settle(cut).unwrap();
        assert!(self.received == bytes, "{} bytes from us", bytes.len());
        assert!(self.arrived() == bytes, "{} bytes to us", bytes.len());
    }
}

/// Calls `check` after the handshake, for each of our roles and each cipher suite.
fn each(mut check: impl FnMut(Mixed)) {
    let context = Context::new(NOW).unwrap();
    for suite in SUITES {
        for client in [true, false] {
            check(Mixed::open(&context, client, suite));
        }
    }
}

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream(length as u64, 0, "noise").fill_bytes(&mut bytes);
    bytes
}

#[test]
fn bytes_of_all_lengths_pass_both_ways() {
    each(|mut mixed| {
        for length in [1, 2, 513, 514, 16_383, 16_384, 16_385, 100_000, 5 << 20] {
            mixed.exchange(&noise(length), || usize::MAX);
        }
    });
}

#[test]
fn the_wire_may_be_cut_anywhere_from_the_first_byte_on() {
    let context = Context::new(NOW).unwrap();
    for (seed, suite) in SUITES.into_iter().cycle().take(24).enumerate() {
        let mut dice = stream(seed as u64, 0, "cuts");
        let longest = [1, 3, 5, 6, 22, 600, 1_448, 20_000][seed % 8];
        let mut mixed = Mixed::new(&context, seed % 2 == 0, suite, seed % 5);
        let (up, down) = (noise(40_000 + seed), noise(30_000 + seed));
        // These bytes are written before the handshake is done.
        mixed.ours.write(&up).unwrap();
        mixed.send_message(&down);
        mixed.settle(|| dice.random_range(1..=longest)).unwrap();
        assert!(mixed.received == up && mixed.arrived() == down, "seed {seed}");
        mixed.exchange(&noise(3_000), || dice.random_range(1..=longest));
    }
}

#[test]
fn records_of_every_length_pass_both_ways() {
    each(|mut mixed| {
        // Each write begins a new record.
        let sizes = (1..600).chain([1_400, 4_096, 16_383, 16_384, 16_385, 40_000]);
        let all: Vec<u8> = sizes
            .flat_map(|size| {
                let bytes = noise(size);
                mixed.ours.write(&bytes).unwrap();
                mixed.send_message(&bytes);
                bytes
            })
            .collect();
        mixed.settle(|| 1_448).unwrap();
        assert!(mixed.received == all && mixed.arrived() == all);
    });
}

#[test]
fn keys_change_by_either_side_at_any_time() {
    each(|mut mixed| {
        for turn in 0..20 {
            if turn % 3 != 1 {
                mixed.ours.refresh_keys().unwrap();
            }
            if turn % 2 == 0 {
                mixed.theirs.refresh_traffic_keys().unwrap();
            }
            mixed.exchange(&noise(1_000 * turn + 1), || 700);
        }
    });
}

#[test]
fn a_request_for_new_keys_is_answered_before_the_next_data() {
    each(|mut mixed| {
        for _ in 0..3 {
            mixed.theirs.refresh_traffic_keys().unwrap();
        }
        let mut wire = Vec::new();
        while mixed.theirs.wants_write() {
            mixed.theirs.write_tls(&mut wire).unwrap();
        }
        mixed.ours.receive(Time::ZERO, &wire).unwrap();
        wire.clear();
        mixed.ours.transmit(Time::ZERO, &mut wire);
        // One KeyUpdate of 27 bytes answers all three.
        assert_eq!(wire.len(), 27);
        mixed.hand(&mut &wire[..]);
        mixed.exchange(b"under the new keys", || usize::MAX);
    });
}

#[test]
fn both_ends_export_the_same_keying_material() {
    each(|mixed| {
        for context in [&b""[..], b"identity", &[7; 300]] {
            let label = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";
            let theirs = mixed.theirs.export_keying_material([0; 32], label, Some(context));
            assert_eq!(mixed.ours.export(label, context).unwrap(), theirs.unwrap());
        }
    });
}

#[test]
fn our_goodbye_and_theirs_end_the_link_in_order() {
    each(|mut mixed| {
        mixed.ours.write(b"last").unwrap();
        mixed.ours.close();
        assert!(matches!(mixed.ours.write(b"more"), Err(Fault::Misuse(_))));
        mixed.settle(|| 3).unwrap();
        assert_eq!(mixed.received, b"last");
        let mut nothing = [0; 1];
        assert_eq!(mixed.theirs.reader().read(&mut nothing).unwrap(), 0, "closed in order");
        assert_eq!(mixed.ours.state(), State::Open, "they may go on");
        mixed.send_message(b"their last");
        mixed.theirs.send_close_notify();
        mixed.settle(|| 3).unwrap();
        assert_eq!(mixed.arrived(), b"their last");
        assert_eq!(mixed.ours.state(), State::Ended);
    });
}

#[test]
fn nothing_is_read_behind_their_goodbye() {
    each(|mut mixed| {
        mixed.send_message(b"before");
        mixed.theirs.send_close_notify();
        let mut wire = Vec::new();
        while mixed.theirs.wants_write() {
            mixed.theirs.write_tls(&mut wire).unwrap();
        }
        wire.extend_from_slice(b"anything at all");
        mixed.ours.receive(Time::ZERO, &wire).unwrap();
        mixed.ours.receive(Time::ZERO, b"more of it").unwrap();
        assert_eq!(mixed.arrived(), b"before");
        assert_eq!(mixed.ours.state(), State::Ended);
        assert!(!mixed.ours.transmit(Time::ZERO, &mut Vec::new()), "none was at fault");
    });
}

/// Returns the error that the library reports for our alert.
fn alert_of(mixed: &mut Mixed) -> Error {
    let mut wire = Vec::new();
    assert!(mixed.ours.transmit(Time::ZERO, &mut wire), "an alert tells the peer");
    mixed.theirs.read_tls(&mut &wire[..]).unwrap();
    mixed.theirs.process_new_packets().unwrap_err()
}

#[test]
fn a_changed_byte_of_a_record_gets_an_alert() {
    // The changes are in the type and the length in the header, and in the first, a middle and the
    // last byte of the body.
    for (place, change, alert) in [
        (0, 1, rustls::AlertDescription::UnexpectedMessage),
        (3, 0x80, rustls::AlertDescription::RecordOverflow),
        (5, 1, rustls::AlertDescription::BadRecordMac),
        (300, 0x10, rustls::AlertDescription::BadRecordMac),
        (535, 1, rustls::AlertDescription::BadRecordMac),
    ] {
        each(|mut mixed| {
            mixed.send_message(&noise(514));
            let mut wire = Vec::new();
            mixed.theirs.write_tls(&mut wire).unwrap();
            wire[place] ^= change;
            assert!(matches!(mixed.ours.receive(Time::ZERO, &wire), Err(Fault::Peer(_))));
            assert_eq!((mixed.ours.state(), mixed.arrived().len()), (State::Ended, 0));
            assert_eq!(alert_of(&mut mixed), Error::AlertReceived(alert));
            mixed.ours.write(b"nothing follows an alert").unwrap();
            assert!(!mixed.ours.transmit(Time::ZERO, &mut Vec::new()));
        });
    }
}

#[test]
fn a_record_left_out_or_doubled_ends_the_link() {
    for doubled in [true, false] {
        each(|mut mixed| {
            let mut records = Vec::new();
            for _ in 0..3 {
                mixed.send_message(&noise(514));
                let mut wire = Vec::new();
                mixed.theirs.write_tls(&mut wire).unwrap();
                records.push(wire);
            }
            mixed.ours.receive(Time::ZERO, &records[0]).unwrap();
            let wrong = if doubled { &records[0] } else { &records[2] };
            assert!(mixed.ours.receive(Time::ZERO, wrong).is_err());
            assert!(mixed.arrived() == noise(514), "what came before stays");
        });
    }
}

#[test]
fn a_truncated_record_is_waited_for_and_gives_nothing() {
    each(|mut mixed| {
        mixed.send_message(&noise(514));
        let mut wire = Vec::new();
        mixed.theirs.write_tls(&mut wire).unwrap();
        let (front, last) = wire.split_at(wire.len() - 1);
        mixed.ours.receive(Time::ZERO, front).unwrap();
        assert_eq!((mixed.ours.state(), mixed.arrived().len()), (State::Open, 0));
        mixed.ours.receive(Time::ZERO, last).unwrap();
        assert!(mixed.arrived() == noise(514));
    });
}

#[test]
fn a_handshake_record_behind_the_handshake_is_refused_in_clear() {
    each(|mut mixed| {
        let hello = b"\x16\x03\x03\0\x04\x01\0\0\0";
        assert!(matches!(mixed.ours.receive(Time::ZERO, hello), Err(Fault::Peer(_))));
        assert_eq!(mixed.ours.state(), State::Ended);
    });
}
