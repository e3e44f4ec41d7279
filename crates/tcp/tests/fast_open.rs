//! Data in the SYN and in its answer (RFC 7413), also with losses and reordering.

use std::time::Duration;

use anabranch_multipath::{Core as _, Time, conformance};
use anabranch_tcp::constants::{COPY_DIVISOR, INITIAL_RTO};
use anabranch_tcp::{Config, Connection, Flags, Ports, Segment, Seq, State};

const RTT: Duration = Duration::from_millis(50);
/// The server's initial sequence number. The next constant is the client's. Both soon wrap to 0.
const PEER: Seq = Seq(u32::MAX - 1);
const OURS: Seq = Seq(u32::MAX - 2_000);

/// Returns a client that has written `request`, and the client's SYN.
fn opened(config: &Config, request: &[u8]) -> (Connection, Segment) {
    let ports = Ports { local: 1, remote: 2 };
    let mut client = Connection::connect(Time::from_secs(1), config, ports, OURS);
    assert_eq!(client.write(request), request.len());
    let syn = client.poll(Time::from_secs(1)).expect("a SYN");
    assert_eq!(client.poll(Time::from_secs(1)), None, "the rest waits for the answer");
    (client, syn)
}

#[test]
fn a_request_in_the_syn_is_answered_within_one_round_trip() {
    let config = Config { fast_open: true, ..Config::default() };
    let request = vec![5; 3_000];
    let (mut client, syn) = opened(&config, &request);
    assert_eq!(syn.wire_length(), usize::from(config.mss) + 20, "a full segment");
    let now = Time::from_secs(1) + RTT / 2;
    let mut server = Connection::accept(now, &config, PEER, &syn).expect("a SYN");
    assert_eq!(server.readable(), syn.payload.len());
    server.write(b"answer");
    let answers: Vec<Segment> = std::iter::from_fn(|| server.poll(now)).collect();
    assert_eq!(answers[0].flags, Flags::SYN | Flags::ACK);
    assert_eq!(answers[0].ack, OURS.at(1 + syn.payload.len() as u64));
    assert_eq!(answers[1].payload, b"answer");
    let now = now + RTT / 2;
    answers.into_iter().for_each(|segment| client.handle(now, segment));
    let mut received = Vec::new();
    client.read_all(&mut received);
    assert_eq!(received, b"answer");
    // The rest of the request follows, and the data of the SYN are not sent again.
    let rest: Vec<u8> =
        std::iter::from_fn(|| client.poll(now)).flat_map(|segment| segment.payload).collect();
    assert_eq!([&syn.payload[..], &rest].concat(), request);
    assert_eq!(client.stats().retransmitted, 0);
}

#[test]
fn a_peer_that_does_not_take_data_in_the_syn_gets_them_again() {
    let config = Config { fast_open: true, ..Config::default() };
    let (mut client, syn) = opened(&config, b"request");
    assert_eq!(syn.payload, b"request");
    let now = Time::from_secs(1) + RTT;
    let mut server = Connection::accept(now, &Config::default(), PEER, &syn).expect("a SYN");
    assert_eq!(server.readable(), 0);
    let answer = server.poll(now).expect("its answer");
    assert_eq!(answer.ack, OURS + 1);
    client.handle(now, answer);
    let again = client.poll(now).expect("the data");
    assert_eq!((again.seq, &again.payload[..]), (OURS + 1, &b"request"[..]));
}

#[test]
fn an_acknowledgement_beyond_the_data_of_the_syn_is_refused() {
    let config = Config { fast_open: true, ..Config::default() };
    let (mut client, syn) = opened(&config, b"request");
    let mut server = Connection::accept(Time::from_secs(1), &config, PEER, &syn).expect("a SYN");
    let mut answer = server.poll(Time::from_secs(1)).expect("its answer");
    answer.ack = answer.ack + 1;
    client.handle(Time::from_secs(1), answer);
    assert_eq!(client.state(), State::SynSent);
    assert!(client.poll(Time::from_secs(1)).is_some_and(|reset| reset.flags.has(Flags::RST)));
}

#[test]
fn without_the_setting_a_syn_has_no_data() {
    let (_, syn) = opened(&Config::default(), b"request");
    assert_eq!(syn.payload, b"");
}

/// Returns a server that has received `syn`, and its SYN-ACK and data `answer`.
fn answering(config: &Config, syn: &Segment, answer: &[u8]) -> (Connection, Vec<Segment>) {
    let now = Time::from_secs(1) + RTT / 2;
    let mut server = Connection::accept(now, config, PEER, syn).expect("a SYN");
    server.write(answer);
    let sent = conformance::drain(&mut server, now);
    assert!(sent[0].flags.has(Flags::SYN) && sent.len() > 1);
    (server, sent)
}

#[test]
fn data_that_overtake_the_answer_to_the_syn_are_read_when_it_arrives() {
    let config = Config { fast_open: true, ..Config::default() };
    let (mut client, syn) = opened(&config, b"request");
    let answer = vec![3; 4_000];
    let (mut server, mut sent) = answering(&config, &syn, &answer);
    server.close();
    sent.extend(conformance::drain(&mut server, Time::from_secs(1) + RTT / 2));
    sent.rotate_left(1);
    let now = Time::from_secs(1) + RTT;
    for segment in sent {
        assert_eq!(client.readable(), 0);
        client.handle(now, segment);
    }
    let mut received = Vec::new();
    client.read_all(&mut received);
    assert!(received == answer, "{} of {} bytes", received.len(), answer.len());
    assert_eq!((client.held(), client.is_finished()), (0, true));
}

#[test]
fn no_more_than_an_initial_window_waits_for_the_answer_to_the_syn() {
    let config = Config { fast_open: true, ..Config::default() };
    let (mut client, syn) = opened(&config, b"request");
    let (_, sent) = answering(&config, &syn, &[3; 500]);
    let before = client.held();
    (0..1_000).for_each(|_| client.handle(Time::from_secs(1) + RTT, sent[1].clone()));
    assert_eq!(client.held() - before, 32 * 500);
    let (mut plain, _) = opened(&Config::default(), b"request");
    plain.handle(Time::from_secs(1) + RTT, sent[1].clone());
    assert_eq!(plain.held(), b"request".len(), "without the setting nothing waits");
}

#[test]
fn data_lost_during_the_handshake_are_sent_again_after_the_measured_time() {
    let config = Config { fast_open: true, ..Config::default() };
    let (mut client, syn) = opened(&config, b"request");
    let (mut server, mut sent) = answering(&config, &syn, b"answer");
    sent.truncate(1);
    let now = Time::from_secs(1) + RTT;
    sent.into_iter().for_each(|segment| client.handle(now, segment));
    let now = now + RTT / 2;
    conformance::drain(&mut client, now).into_iter().for_each(|one| server.handle(now, one));
    assert_eq!(server.state(), State::Established);
    let next = server.next_timeout().expect("a timer of the lost data");
    let again = conformance::drain(&mut server, next);
    assert_eq!(again[0].payload, b"answer");
    // RFC 6298, section 2.2, with a minimum `K * RTTVAR` of 200 ms.
    assert_eq!(next.since(now), RTT + Duration::from_millis(200));
}

#[test]
fn a_lost_syn_is_repeated_early_if_a_round_trip_time_is_expected() {
    let config = Config { fast_open: true, syn_copy: true, ..Config::default() };
    let ports = Ports { local: 1, remote: 2 };
    let began = Time::from_secs(1);
    let mut client = Connection::connect(began, &config, ports, OURS);
    client.expect_rtt(0, RTT);
    client.write(b"request");
    let first = conformance::drain(&mut client, began);
    let copied = client.next_timeout().expect("the time of the copy");
    assert_eq!(copied.since(began), RTT / COPY_DIVISOR);
    let copy = conformance::drain(&mut client, copied);
    let seen = |syn: &Segment| (syn.flags, syn.seq, syn.payload.clone());
    assert_eq!((first.len(), copy.len(), seen(&copy[0])), (1, 1, seen(&first[0])));
    let third = client.next_timeout().expect("the retransmission");
    // RFC 6298, section 2.2, with a minimum `K * RTTVAR` of 200 ms.
    assert_eq!(third.since(began), RTT + Duration::from_millis(200));

    // Both SYNs arrive. The server repeats its answer, but does not open a second connection.
    let (mut server, sent) = answering(&config, &first[0], b"answer");
    let now = copied + RTT / 2;
    server.handle(now, copy[0].clone());
    let again = conformance::drain(&mut server, now);
    assert!(again[0].flags.has(Flags::SYN | Flags::ACK), "{again:?}");
    let now = began + RTT;
    sent.into_iter().chain(again).for_each(|segment| client.handle(now, segment));
    let mut received = Vec::new();
    client.read_all(&mut received);
    assert_eq!((&received[..], client.state()), (&b"answer"[..], State::Established));
    let now = now + RTT / 2;
    conformance::drain(&mut client, now).into_iter().for_each(|one| server.handle(now, one));
    // Timestamps show which of the answers the client has acknowledged.
    let rto = server.rto();
    assert!(server.state() == State::Established && rto < INITIAL_RTO, "{rto:?}");
}

#[test]
fn without_an_expected_round_trip_time_a_syn_is_sent_once() {
    let config = Config { fast_open: true, syn_copy: true, ..Config::default() };
    let (client, _) = opened(&config, b"request");
    assert_eq!(client.next_timeout(), Some(Time::from_secs(1) + INITIAL_RTO));
}

/// Settings of a connection whose first segments are sent twice.
fn doubling() -> Config {
    Config { fast_open: true, doubled: 400, mss: 471, ..Config::default() }
}

/// Returns a server that knows the round-trip time and has answered `syn`. Also returns the
/// segments that it sends at once, and the copies that it sends later.
fn doubled_answer(syn: &Segment, answer: &[u8]) -> (Connection, Vec<Segment>, Vec<Segment>) {
    let now = Time::from_secs(1) + RTT / 2;
    let mut server = Connection::accept(now, &doubling(), PEER, syn).expect("a SYN");
    server.expect_rtt(0, RTT);
    server.write(answer);
    let first = conformance::drain(&mut server, now);
    let copied = server.next_timeout().expect("the time of the copy");
    assert_eq!(copied.since(now), RTT / COPY_DIVISOR);
    let copies = conformance::drain(&mut server, copied);
    (server, first, copies)
}

#[test]
fn the_first_segments_are_sent_twice_and_later_ones_once() {
    let (mut client, syn) = opened(&doubling(), b"request");
    let answer = vec![3; 2_000];
    let (mut server, first, copies) = doubled_answer(&syn, &answer);
    let seen = |segment: &Segment| (segment.flags, segment.seq, segment.payload.clone());
    assert_eq!(copies.iter().map(seen).collect::<Vec<_>>(), [seen(&first[1])]);
    let stats = server.stats();
    assert_eq!((stats.copies, stats.retransmitted, stats.sent), (1, 0, first.len() as u64 - 1));

    // The segments and their copies arrive. The bytes are read once, and the report of duplicates
    // changes nothing.
    let now = Time::from_secs(1) + RTT;
    first.into_iter().chain(copies).for_each(|segment| client.handle(now, segment));
    let mut received = Vec::new();
    client.read_all(&mut received);
    assert!(received == answer, "{} bytes", received.len());
    assert_eq!(client.stats().duplicates, 1);
    let now = now + RTT / 2;
    conformance::drain(&mut client, now).into_iter().for_each(|one| server.handle(now, one));
    server.write(b"more");
    assert_eq!(conformance::drain(&mut server, now).len(), 1);
    let stats = server.stats();
    assert_eq!((stats.copies, stats.undone, stats.recoveries), (1, 0, 0));
}

#[test]
fn the_loss_of_a_first_segment_costs_no_more_than_the_time_to_its_copy() {
    let (mut client, syn) = opened(&doubling(), b"request");
    let (server, first, copies) = doubled_answer(&syn, b"answer");
    let now = Time::from_secs(1) + RTT + RTT / COPY_DIVISOR;
    client.handle(now, first[0].clone());
    assert_eq!((first.len(), client.readable()), (2, 0));
    copies.into_iter().for_each(|copy| client.handle(now, copy));
    assert_eq!((client.readable(), server.stats().retransmitted), (6, 0));
}

#[test]
fn a_segment_that_is_acknowledged_in_time_is_not_copied() {
    let (mut client, syn) = opened(&doubling(), b"request");
    let now = Time::from_secs(1);
    let mut server = Connection::accept(now, &doubling(), PEER, &syn).expect("a SYN");
    server.expect_rtt(0, RTT);
    server.write(b"answer");
    conformance::drain(&mut server, now).into_iter().for_each(|one| client.handle(now, one));
    conformance::drain(&mut client, now).into_iter().for_each(|one| server.handle(now, one));
    let due = now + RTT / COPY_DIVISOR;
    assert_eq!(conformance::drain(&mut server, due), []);
    assert_eq!(server.stats().copies, 0);
}
