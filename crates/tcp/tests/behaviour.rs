//! Requirements of RFCs. Each test plays the peer, segment by segment.

mod world;

use std::time::Duration;

use anabranch_multipath::{Core as _, Time, conformance};
use anabranch_tcp::constants::{
    DELAYED_ACK, INIT_CWND, RTO_MAX, RTO_MIN, TIME_WAIT, TIMEOUT_MIN, TLP_MAX_ACK_DELAY,
};
use anabranch_tcp::{
    Config, Congestion, Connection, Ending, Flags, Options, Ports, SackBlocks, Segment, Seq, State,
    Timestamps,
};
use world::MS;

/// Round-trip time of the peer.
const RTT: Duration = Duration::from_millis(50);
const MSS: usize = 1448;
/// The peer's initial sequence number. The next constant is ours. Both soon wrap to 0.
const PEER: Seq = Seq(u32::MAX - 1);
const OURS: Seq = Seq(u32::MAX - 2_000);

/// A connection and the peer's part of its state.
struct PeerScript {
    now: Time,
    tcp: Connection,
    window: u16,
    stamps: bool,
}

/// Options of the peer's SYN.
#[derive(Clone, Copy)]
struct Offer {
    sack: bool,
    scale: Option<u8>,
    stamps: bool,
}

const MODERN: Offer = Offer { sack: true, scale: Some(7), stamps: true };

impl PeerScript {
    /// Returns an open connection on which no data was sent yet.
    fn open(config: &Config, offer: Offer) -> PeerScript {
        let now = Time::from_secs(1);
        let ports = Ports { local: 1, remote: 2 };
        let mut script = PeerScript {
            now,
            tcp: Connection::connect(now, config, ports, OURS),
            window: 60_000,
            stamps: offer.stamps && config.timestamps,
        };
        let syn = script.poll().pop().expect("a SYN");
        assert_eq!((syn.flags, syn.seq), (Flags::SYN, OURS));
        script.now += RTT;
        let mut answer = script.segment(0, 1);
        answer.flags = Flags::SYN | Flags::ACK;
        answer.seq = PEER;
        answer.options.mss = Some(1460);
        answer.options.sack_permitted = offer.sack;
        answer.options.window_scale = offer.scale;
        script.tcp.handle(script.now, answer);
        assert_eq!(script.tcp.state(), State::Established);
        let third = script.poll().pop().expect("the acknowledgement of the SYN");
        assert_eq!((third.flags, third.ack), (Flags::ACK, PEER + 1));
        script
    }

    fn modern() -> PeerScript {
        PeerScript::open(&Config::default(), MODERN)
    }

    /// Returns a segment of the peer at offset `at`, which acknowledges our data up to `ack`.
    fn segment(&self, at: u64, ack: u64) -> Segment {
        let value = (self.now.nanos() / 1_000_000) as u32;
        let echo = value.wrapping_sub(RTT.as_millis() as u32);
        Segment {
            source: 2,
            destination: 1,
            seq: PEER.at(at),
            ack: OURS.at(ack),
            flags: Flags::ACK,
            window: self.window,
            options: Options {
                timestamps: self.stamps.then_some(Timestamps { value, echo }),
                ..Options::default()
            },
            more_blocks: Vec::new(),
            payload: Vec::new(),
        }
    }

    fn poll(&mut self) -> Vec<Segment> {
        conformance::drain(&mut self.tcp, self.now)
    }

    fn write(&mut self, segments: usize) -> Vec<Segment> {
        assert_eq!(self.tcp.write(&vec![7; segments * MSS]), segments * MSS);
        self.poll()
    }

    /// Processes the peer's acknowledgement of the first `segments` full segments. Returns the
    /// segments that the connection then sends.
    fn ack(&mut self, segments: u64) -> Vec<Segment> {
        self.sack(segments, &[])
    }

    /// Processes an acknowledgement as [`PeerScript::ack`] does, with SACK blocks that are given
    /// in full segments.
    fn sack(&mut self, segments: u64, blocks: &[(u64, u64)]) -> Vec<Segment> {
        let mut segment = self.segment(1, place(segments));
        let mut sack = SackBlocks::default();
        for &(from, until) in blocks {
            sack.push(OURS.at(place(from)), OURS.at(place(until)));
        }
        segment.options.sack = sack;
        self.take(segment)
    }

    fn take(&mut self, segment: Segment) -> Vec<Segment> {
        self.tcp.handle(self.now, segment);
        self.poll()
    }

    /// Processes `bytes` of the peer at offset `at`. Returns the segments that the connection then
    /// sends.
    fn receive(&mut self, at: u64, bytes: &[u8]) -> Vec<Segment> {
        let mut segment = self.segment(1 + at, 1);
        segment.payload = bytes.to_vec();
        self.take(segment)
    }

    /// Advances the time to the next timeout. Returns the duration, and the segments that are then
    /// sent.
    fn wait(&mut self) -> (Duration, Vec<Segment>) {
        let next = self.tcp.next_timeout().expect("a timeout");
        let span = next.since(self.now);
        self.now = next;
        (span, self.poll())
    }
}

/// Returns the stream offset of a full segment.
fn place(segment: u64) -> u64 {
    1 + segment * MSS as u64
}

/// Returns the numbers of the full segments that were sent.
fn numbers(sent: &[Segment]) -> Vec<u64> {
    let data = sent.iter().filter(|segment| !segment.payload.is_empty());
    data.map(|segment| u64::from(segment.seq.0.wrapping_sub(OURS.at(1).0)) / MSS as u64).collect()
}

fn range(from: u64, until: u64) -> Vec<u64> {
    (from..until).collect()
}

#[test]
fn the_first_window_is_that_of_rfc_6928_and_grows_by_what_is_acknowledged() {
    let mut script = PeerScript::modern();
    assert_eq!(numbers(&script.write(60)), range(0, u64::from(INIT_CWND)));
    script.now += RTT;
    assert_eq!(numbers(&script.ack(2)), range(10, 14));
    assert_eq!(numbers(&script.ack(4)), range(14, 18));
}

#[test]
fn three_segments_after_a_gap_repair_it_at_once() {
    let mut script = PeerScript::modern();
    script.write(60);
    script.now += RTT;
    assert_eq!(numbers(&script.sack(0, &[(1, 2)])), [10], "RFC 3042: a new one for each");
    assert_eq!(numbers(&script.sack(0, &[(1, 3)])), [11]);
    assert_eq!(numbers(&script.sack(0, &[(1, 4)]))[0], 0);
    let view = script.tcp.view(script.now);
    assert_eq!((script.tcp.stats().recoveries, view.unacked), (1, 12));
    assert_eq!(script.tcp.ssthresh(), Some(7), "CUBIC: 0.7 of 10");
}

#[test]
fn fewer_than_three_mark_a_loss_when_the_reordering_window_has_passed() {
    let mut script = PeerScript::modern();
    script.write(10);
    script.now += RTT;
    assert_eq!(numbers(&script.sack(0, &[(9, 10)])), []);
    let (span, sent) = script.wait();
    assert_eq!(span, RTT / 4 + TIMEOUT_MIN, "RFC 8985: a quarter of the least round-trip time");
    // All segments except the last are lost. The window allows the first retransmissions.
    assert_eq!(numbers(&sent)[0], 0);
}

#[test]
fn a_reordered_segment_is_no_loss_once_reordering_was_seen() {
    let mut script = PeerScript::modern();
    script.write(60);
    script.now += RTT;
    script.sack(0, &[(1, 3)]);
    // The first segment was only late.
    let sent = script.ack(3);
    assert_eq!((sent.is_empty(), script.tcp.stats().recoveries), (false, 0));
    script.now += RTT;
    assert!(!numbers(&script.sack(3, &[(4, 9)])).contains(&3), "there is time to wait");
    let stats = script.tcp.stats();
    assert_eq!((stats.recoveries, stats.retransmitted), (0, 0));
}

#[test]
fn a_lost_retransmission_is_sent_again_without_a_timeout() {
    let mut script = PeerScript::modern();
    script.write(60);
    script.now += RTT;
    let again = script.sack(0, &[(1, 8)]);
    assert_eq!(numbers(&again)[0], 0);
    script.now += RTT;
    // The segments sent after the retransmission arrive, but the retransmission does not.
    let fresh = *numbers(&again).last().unwrap();
    assert!(fresh >= 10, "PRR lets new segments out: {again:?}");
    let sent = script.sack(0, &[(10, fresh + 1), (1, 8)]);
    assert!(numbers(&sent).contains(&0), "{:?}", numbers(&sent));
    assert_eq!(script.tcp.stats().timeouts, 0);
}

#[test]
fn recovery_sends_in_proportion_to_what_arrives() {
    let mut script = PeerScript::modern();
    script.write(200);
    script.now += RTT;
    (1..=20).for_each(|acked| drop(script.ack(acked)));
    let cwnd = script.tcp.view(script.now).snd_cwnd;
    assert_eq!(cwnd, 30);
    script.now += RTT;
    let mut sent = 0;
    for arrived in 22..=50 {
        sent += numbers(&script.sack(20, &[(21, arrived)])).len();
    }
    // 29 of 30 segments arrive, and the window is multiplied by 0.7. RFC 9937 then sends about 0.7
    // segments for each arrived segment.
    assert!((19..=22).contains(&sent), "{sent}");
    script.now += RTT;
    script.ack(50);
    assert_eq!(script.tcp.view(script.now).snd_cwnd, 21);
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    let mut script = PeerScript::modern();
    script.write(3);
    let (span, sent) = script.wait();
    assert_eq!(span, 2 * RTT + TIMEOUT_MIN);
    assert_eq!(numbers(&sent), [2], "the last one again");
    assert_eq!(script.tcp.stats().probes, 1);
    // The acknowledgement of the probe shows that the other segments are lost.
    script.now += RTT;
    assert_eq!(numbers(&script.sack(0, &[(2, 3)])), [0], "PRR: one for the one that arrived");
    assert_eq!(script.tcp.stats().timeouts, 0);
}

#[test]
fn a_single_segment_is_probed_when_its_acknowledgement_cannot_be_delayed_any_more() {
    let mut script = PeerScript::modern();
    script.write(1);
    let (span, sent) = script.wait();
    // RFC 8985, section 7.2: the probe is sent not later than the retransmission timeout, which it
    // replaces.
    assert_eq!((numbers(&sent), span), (vec![0], RTT + RTO_MIN));
    assert!(span < 2 * RTT + TLP_MAX_ACK_DELAY);
    let stats = script.tcp.stats();
    assert_eq!((stats.probes, stats.timeouts, script.tcp.view(script.now).snd_cwnd), (1, 0, 10));
}

#[test]
fn a_probe_sends_new_data_where_there_is_some() {
    let mut script = PeerScript::modern();
    script.write(20);
    assert_eq!(numbers(&script.wait().1), [10]);
}

#[test]
fn a_probe_that_repaired_a_loss_reduces_the_window() {
    let mut script = PeerScript::modern();
    script.write(10);
    script.wait();
    script.now += RTT;
    script.ack(10);
    assert_eq!(script.tcp.view(script.now).snd_cwnd, 20);
    script.write(1);
    script.now += RTT;
    script.ack(11);
    assert_eq!(script.tcp.view(script.now).snd_cwnd, 14, "no duplicate was reported");
    // For comparison: the peer reports that the probe was a duplicate.
    let mut script = PeerScript::modern();
    script.write(10);
    script.wait();
    script.now += RTT;
    script.ack(10);
    script.sack(10, &[(9, 10)]);
    script.write(1);
    script.now += RTT;
    script.ack(11);
    assert!(script.tcp.view(script.now).snd_cwnd >= 20);
}

#[test]
fn timeouts_double_and_the_peer_is_given_up_in_the_end() {
    let mut script = PeerScript::modern();
    script.write(10);
    script.wait();
    let (mut spans, mut last) = (Vec::new(), script.now);
    loop {
        let (_, sent) = script.wait();
        if script.tcp.state() == State::Closed {
            break;
        }
        assert_eq!(numbers(&sent), [0], "one segment after a timeout");
        spans.push(script.now.since(last));
        last = script.now;
    }
    assert!(spans[0] >= RTT + RTO_MIN && spans[0] < RTT + RTO_MIN + 100 * MS, "{:?}", spans[0]);
    for pair in spans.windows(2) {
        assert_eq!(pair[1], (pair[0] * 2).min(RTO_MAX));
    }
    assert_eq!((spans.len(), script.tcp.ending()), (15, Some(Ending::TimedOut)));
    assert_eq!(script.tcp.next_timeout(), None);
}

#[test]
fn an_early_timeout_is_undone_when_the_originals_arrive() {
    let mut script = PeerScript::modern();
    script.write(60);
    script.wait();
    let before = script.tcp.view(script.now).snd_cwnd;
    let (_, sent) = script.wait();
    assert_eq!((numbers(&sent), script.tcp.view(script.now).snd_cwnd), (vec![0], 1));
    // The peer has acknowledged the first segment before the retransmission.
    let mut late = script.segment(1, place(1));
    late.options.timestamps =
        late.options.timestamps.map(|Timestamps { value, .. }| Timestamps { value, echo: 1_050 });
    script.take(late);
    assert!(script.tcp.view(script.now).snd_cwnd >= before);
    assert_eq!((script.tcp.stats().undone, script.tcp.ssthresh()), (1, None));
}

#[test]
fn a_recovery_that_was_not_needed_is_undone_by_the_report_of_duplicates() {
    let mut script = PeerScript::open(&Config { timestamps: false, ..Config::default() }, MODERN);
    let mss = 1460;
    assert_eq!(script.tcp.write(&vec![7; 60 * mss]), 60 * mss);
    script.poll();
    script.now += RTT;
    let at = |segment: u64| OURS.at(1 + segment * mss as u64);
    let mut blocks = SackBlocks::default();
    blocks.push(at(1), at(4));
    let mut ack = script.segment(1, 1);
    ack.options.sack = blocks;
    script.take(ack);
    assert_eq!(script.tcp.stats().recoveries, 1);
    // The first segment was late. Its retransmission then arrives as a duplicate.
    let ack = script.segment(1, 1 + 4 * mss as u64);
    script.take(ack);
    let mut blocks = SackBlocks::default();
    blocks.push(at(0), at(1));
    let mut ack = script.segment(1, 1 + 4 * mss as u64);
    ack.options.sack = blocks;
    script.take(ack);
    assert_eq!((script.tcp.stats().undone, script.tcp.ssthresh()), (1, None));
    assert!(script.tcp.view(script.now).snd_cwnd >= 10);
}

#[test]
fn a_retransmission_of_the_last_recovery_does_not_undo_the_next_one() {
    let mut script = PeerScript::modern();
    script.write(60);
    script.now += RTT;
    assert_eq!(numbers(&script.sack(0, &[(1, 10)])), [0, 10, 11, 12, 13, 14, 15]);
    script.now += RTT;
    // The retransmission is lost, and so is a segment that was sent in recovery.
    assert_eq!(numbers(&script.sack(0, &[(11, 14), (1, 10)]))[..2], [0, 10]);
    // Recovery ends while the lost segment sent in recovery is still being repaired. This repair
    // is a second recovery.
    script.now += 5 * MS;
    script.ack(10);
    assert_eq!(script.tcp.stats().recoveries, 2);
    let sent = script.sack(10, &[(15, 16), (11, 14)]);
    assert!(numbers(&sent).contains(&14), "{:?}", numbers(&sent));
    script.now += RTT - 5 * MS;
    script.ack(14);
    assert_eq!(script.tcp.stats().undone, 0);
}

#[test]
fn a_peer_that_drops_what_it_reported_gets_it_again() {
    let mut script = PeerScript::modern();
    script.write(10);
    script.now += RTT;
    script.sack(0, &[(1, 10)]);
    // The first segment is repaired, but the peer has dropped the other segments.
    script.now += RTT;
    script.ack(1);
    let mut again = numbers(&script.wait().1);
    while let Some(&last) = again.last().filter(|&&last| last < 9) {
        script.now += RTT;
        again.extend(numbers(&script.ack(last + 1)));
        assert!(again.last() > Some(&last), "{again:?}");
    }
    assert_eq!((again, script.tcp.stats().timeouts), (range(1, 10), 1));
}

#[test]
fn without_sack_three_duplicates_repair_a_gap_and_partial_acknowledgements_the_next() {
    let offer = Offer { sack: false, scale: None, stamps: true };
    let mut script = PeerScript::open(&Config::default(), offer);
    script.write(60);
    script.now += RTT;
    assert_eq!(numbers(&script.ack(0)), [10], "RFC 3042: a new one for each");
    assert_eq!(numbers(&script.ack(0)), [11]);
    assert_eq!(numbers(&script.ack(0))[0], 0, "RFC 5681");
    script.now += RTT;
    assert_eq!(numbers(&script.ack(4))[0], 4, "RFC 6582");
    assert_eq!(script.tcp.stats().recoveries, 1);
}

#[test]
fn reno_halves_where_cubic_keeps_seven_tenths() {
    let config = Config { congestion: Congestion::RENO, ..Config::default() };
    let mut script = PeerScript::open(&config, MODERN);
    script.write(60);
    script.now += RTT;
    script.sack(0, &[(1, 4)]);
    assert_eq!(script.tcp.ssthresh(), Some(5));
}

#[test]
fn a_closed_window_is_probed_ever_more_rarely_until_it_opens() {
    let mut script = PeerScript::modern();
    script.write(2);
    script.now += RTT;
    script.window = 0;
    script.ack(2);
    assert_eq!(numbers(&script.write(3)), [], "the window is closed");
    let mut last = Duration::ZERO;
    for _ in 0..8 {
        let (span, sent) = script.wait();
        assert_eq!((sent.len(), sent[0].payload.len()), (1, 0));
        assert_eq!(sent[0].seq, OURS.at(place(2) - 1), "before the window: it must be answered");
        assert!(span >= last * 2 || span == RTO_MAX, "{span:?} after {last:?}");
        last = span;
        assert_eq!(numbers(&script.ack(2)), []);
    }
    assert_ne!(script.tcp.state(), State::Closed, "a peer that answers is alive");
    script.window = 60_000;
    assert_eq!(numbers(&script.ack(2)), [2, 3, 4]);
}

#[test]
fn a_small_window_is_no_reason_for_small_segments() {
    let offer = Offer { scale: None, ..MODERN };
    let mut script = PeerScript::open(&Config::default(), offer);
    script.write(2);
    script.now += RTT;
    script.window = 1_000;
    script.ack(2);
    assert_eq!(numbers(&script.write(3)), [], "RFC 9293, section 3.8.6.2.1");
    let (_, sent) = script.wait();
    assert_eq!(sent[0].payload.len(), 1_000, "after a while, what little fits");
}

#[test]
fn windows_are_scaled_as_both_sides_agreed() {
    let mut script = PeerScript::modern();
    script.now += RTT;
    script.window = 40;
    script.ack(0);
    assert_eq!(numbers(&script.write(6)), [0, 1, 2], "40 << 7 is 5120 bytes");
    let mut script = PeerScript::open(&Config::default(), Offer { scale: None, ..MODERN });
    let sent = script.write(1);
    assert_eq!(sent[0].window, u16::MAX, "without the option nothing is shifted");
}

#[test]
fn acknowledgements_stand_for_two_segments_or_wait() {
    let mut script = PeerScript::modern();
    let mut at = 0;
    // At the beginning of a connection, each segment is acknowledged at once.
    while script.receive(at, &[1; MSS]).len() == 1 {
        at += MSS as u64;
    }
    assert!((10..=20).contains(&(at / MSS as u64)), "{at}");
    at += MSS as u64;
    assert_eq!(script.receive(at, &[1; MSS]).len(), 1, "each second one");
    at += MSS as u64;
    assert_eq!(script.receive(at, &[1; MSS]).len(), 0);
    let (span, sent) = script.wait();
    assert_eq!((span, sent.len()), (DELAYED_ACK, 1));
}

#[test]
fn gaps_and_duplicates_are_reported_at_once() {
    let mut script = PeerScript::modern();
    let blocks = |sent: &[Segment]| {
        let sack = sent[0].options.sack;
        let offset = |seq: Seq| u64::from(seq.0.wrapping_sub(PEER.at(1).0));
        sack.as_slice().iter().map(|&(a, b)| (offset(a), offset(b))).collect::<Vec<_>>()
    };
    assert_eq!(blocks(&script.receive(100, &[1; 100])), [(100, 200)]);
    assert_eq!(blocks(&script.receive(300, &[1; 100])), [(300, 400), (100, 200)]);
    assert_eq!(blocks(&script.receive(200, &[1; 50])), [(100, 250), (300, 400)]);
    assert_eq!(blocks(&script.receive(100, &[1; 100]))[..2], [(100, 200), (100, 250)], "RFC 2883");
    assert_eq!(blocks(&script.receive(0, &[1; 100])), [(300, 400)]);
    assert_eq!(blocks(&script.receive(0, &[1; 100]))[0], (0, 100), "RFC 2883");
    assert_eq!(script.tcp.readable(), 250);
}

#[test]
fn data_out_of_order_is_shown_early_and_read_in_order() {
    let config = Config { out_of_order: true, ..Config::default() };
    let mut script = PeerScript::open(&config, MODERN);
    script.receive(3, b"def");
    script.receive(4, b"efgh");
    assert_eq!(script.tcp.read_out_of_order(), Some((3, b"def".to_vec())));
    assert_eq!(script.tcp.read_out_of_order(), Some((6, b"gh".to_vec())), "each byte once");
    assert_eq!((script.tcp.read_out_of_order(), script.tcp.readable()), (None, 0));
    script.receive(0, b"abc");
    let mut read = Vec::new();
    script.tcp.read_all(&mut read);
    assert_eq!((read, script.tcp.read_out_of_order()), (b"abcdefgh".to_vec(), None));
}

#[test]
fn a_window_that_reading_opens_is_announced() {
    let config = Config { receive_buffer: 4 * MSS, ..Config::default() };
    let mut script = PeerScript::open(&config, MODERN);
    for at in 0..4 {
        script.receive(at * MSS as u64, &[1; MSS]);
    }
    let sent = script.receive(4 * MSS as u64, &[1; MSS]);
    assert_eq!((sent[0].window, script.tcp.readable()), (0, 4 * MSS), "no room");
    script.tcp.read(&mut [0; 100]);
    assert_eq!(script.poll().len(), 0, "a silly window is none (RFC 9293, section 3.8.6.2.2)");
    script.tcp.read(&mut [0; 2 * MSS]);
    assert_eq!(script.poll()[0].window as usize, 2 * MSS + 100);
}

#[test]
fn old_timestamps_are_dropped_and_acknowledged() {
    let mut script = PeerScript::modern();
    script.receive(0, b"new");
    let mut old = script.segment(4, 1);
    old.payload = b"old".to_vec();
    old.options.timestamps = Some(Timestamps { value: 1, echo: 0 });
    assert_eq!(script.take(old).len(), 1);
    assert_eq!(script.tcp.readable(), 3);
}

#[test]
fn only_an_exact_reset_counts() {
    let mut script = PeerScript::modern();
    let reset = |at| Segment { flags: Flags::RST, ..script.segment(at, 0) };
    let (guess, blind, exact) = (reset(500), reset(10_000_000), reset(1));
    let answer = script.take(guess);
    assert_eq!((answer.len(), answer[0].flags), (1, Flags::ACK), "RFC 5961, section 3.2");
    assert_eq!(script.take(blind), []);
    assert_eq!(script.tcp.state(), State::Established);
    script.take(exact);
    assert_eq!((script.tcp.state(), script.tcp.ending()), (State::Closed, Some(Ending::Reset)));
}

#[test]
fn a_syn_or_a_foreign_acknowledgement_is_challenged() {
    let mut script = PeerScript::modern();
    let syn = Segment { flags: Flags::SYN, ..script.segment(1, 0) };
    assert_eq!(script.take(syn).len(), 1);
    script.now += Duration::from_secs(1);
    let mut foreign = script.segment(1, 5_000_000);
    foreign.payload = b"injected".to_vec();
    assert_eq!(script.take(foreign).len(), 1, "RFC 5961, section 5");
    assert_eq!((script.tcp.state(), script.tcp.readable()), (State::Established, 0));
}

#[test]
fn the_side_that_closes_first_waits_for_old_segments() {
    let mut script = PeerScript::modern();
    script.tcp.close();
    let fin = script.poll();
    assert!(fin[0].flags.has(Flags::FIN));
    let acked = script.segment(1, 2);
    script.take(acked);
    assert_eq!(script.tcp.state(), State::FinWait2);
    assert_eq!(script.receive(0, b"late").len(), 1, "the other way is open");
    let fin = Segment { flags: Flags::FIN | Flags::ACK, ..script.segment(5, 2) };
    assert_eq!(script.take(fin.clone()).len(), 1);
    assert_eq!(script.tcp.state(), State::TimeWait);
    script.now += TIME_WAIT / 2;
    assert_eq!(script.take(fin).len(), 1, "a FIN again is acknowledged again");
    let (span, _) = script.wait();
    assert_eq!((span, script.tcp.ending()), (TIME_WAIT, Some(Ending::Finished)));
}

#[test]
fn both_sides_may_close_at_once() {
    let mut script = PeerScript::modern();
    script.tcp.close();
    script.poll();
    let fin = Segment { flags: Flags::FIN | Flags::ACK, ..script.segment(1, 1) };
    script.take(fin);
    assert_eq!(script.tcp.state(), State::Closing);
    let acked = script.segment(2, 2);
    script.take(acked);
    assert_eq!(script.tcp.state(), State::TimeWait);
}

#[test]
fn a_repeated_fin_may_be_the_acknowledgement_of_ours() {
    let mut script = PeerScript::modern();
    script.tcp.close();
    script.poll();
    let fin = Segment { flags: Flags::FIN | Flags::ACK, ..script.segment(1, 1) };
    script.take(fin);
    let again = Segment { flags: Flags::FIN | Flags::ACK, ..script.segment(1, 2) };
    script.take(again);
    assert_eq!(script.tcp.state(), State::TimeWait);
    assert_eq!(script.wait().0, TIME_WAIT);
}

#[test]
fn the_side_that_closes_second_is_done_with_the_acknowledgement() {
    let mut script = PeerScript::modern();
    let fin = Segment { flags: Flags::FIN | Flags::ACK, ..script.segment(1, 1) };
    script.take(fin);
    assert_eq!((script.tcp.state(), script.tcp.is_finished()), (State::CloseWait, true));
    assert_eq!(numbers(&script.write(1)), [0]);
    script.tcp.close();
    assert!(script.poll()[0].flags.has(Flags::FIN));
    let acked = script.segment(2, place(1) + 1);
    script.take(acked);
    assert_eq!((script.tcp.state(), script.tcp.ending()), (State::Closed, Some(Ending::Finished)));
}

#[test]
fn both_sides_may_open_at_once() {
    let now = Time::from_secs(1);
    let config = Config::default();
    let open =
        |local, remote, iss| Connection::connect(now, &config, Ports { local, remote }, Seq(iss));
    let (mut one, mut other) = (open(1, 2, 7), open(2, 1, 9));
    one.write(b"one");
    let (there, back) = (one.poll(now).unwrap(), other.poll(now).unwrap());
    one.handle(now, back);
    other.handle(now, there);
    for _ in 0..4 {
        while let Some(segment) = one.poll(now) {
            other.handle(now, segment);
        }
        while let Some(segment) = other.poll(now) {
            one.handle(now, segment);
        }
    }
    assert_eq!((one.state(), other.state()), (State::Established, State::Established));
    assert_eq!(other.readable(), 3);
}

#[test]
fn a_refused_connection_ends_and_an_unanswered_one_gives_up() {
    let now = Time::from_secs(1);
    let connect =
        || Connection::connect(now, &Config::default(), Ports { local: 1, remote: 2 }, Seq(7));
    let mut tcp = connect();
    let syn = tcp.poll(now).unwrap();
    tcp.handle(now, syn.reset().unwrap());
    assert_eq!(tcp.ending(), Some(Ending::Refused));

    let (mut tcp, mut times) = (connect(), Vec::new());
    tcp.poll(now);
    while let Some(next) = tcp.next_timeout() {
        tcp.poll(next);
        times.push(next.since(now).as_secs());
    }
    assert_eq!(times, [1, 3, 7, 15, 31, 63, 127], "RFC 6298: the timeout doubles");
    assert_eq!(tcp.ending(), Some(Ending::TimedOut));
}

#[test]
fn an_abort_resets_the_peer() {
    let mut script = PeerScript::modern();
    script.write(1);
    script.tcp.abort();
    let sent = script.poll();
    assert!(sent[0].flags.has(Flags::RST));
    assert_eq!((sent[0].seq, script.tcp.ending()), (OURS.at(place(1)), Some(Ending::Aborted)));
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut script = PeerScript::modern();
    for round in 0..100 {
        // Two segments per round trip are sent, with a window of ten segments.
        script.write(2);
        script.now += RTT;
        script.ack(2 * round + 2);
    }
    assert!(script.tcp.view(script.now).snd_cwnd <= 10);
}

#[test]
fn a_window_shrinks_while_nothing_is_sent() {
    let mut script = PeerScript::modern();
    script.write(70);
    for round in [1..=10, 11..=30, 31..=70] {
        script.now += RTT;
        round.for_each(|acked| drop(script.ack(acked)));
    }
    assert!(script.tcp.view(script.now).snd_cwnd > 40);
    script.now += Duration::from_secs(20);
    assert_eq!(numbers(&script.write(40)).len(), INIT_CWND as usize, "RFC 5681, section 4.1");
}

#[test]
fn paced_segments_are_spread_over_the_round_trip() {
    let config = Config { pacing: true, ..Config::default() };
    let mut script = PeerScript::open(&config, MODERN);
    let (start, mut sent) = (script.now, script.write(20).len());
    while sent < 10 {
        sent += script.wait().1.len();
    }
    let span = script.now.since(start);
    // Ten segments are paced at two windows per round trip, so there are nine gaps of 2.5 ms.
    assert!((22 * MS..24 * MS).contains(&span), "{span:?}");
}

#[test]
fn the_view_is_that_of_tcp_info() {
    let mut script = PeerScript::modern();
    script.write(60);
    let view = script.tcp.view(script.now);
    assert_eq!((view.snd_cwnd, view.unacked, view.mss), (10, 10, MSS as u32));
    assert_eq!((view.notsent as usize, view.rtt), (50 * MSS, RTT));
    for acked in 1..=10 {
        script.now += 10 * MS;
        script.ack(acked * 2);
    }
    // Two segments every 10 ms.
    let rate = script.tcp.view(script.now).delivery_rate;
    let wanted = 2 * MSS as u64 * 100;
    assert!((wanted * 9 / 10..=wanted * 11 / 10).contains(&rate), "{rate} of {wanted}");
    script.now += 30 * MS;
    assert_eq!(script.tcp.view(script.now).since_ack, 30 * MS);
}
