//! Any segments of a peer, at any time, while this side writes, reads and closes.
//!
//! Whatever arrives: nothing panics, and memory stays within the buffers. After due work, the next
//! timeout lies in the future. Each byte is read once and reported early once, and each sent
//! segment parses to itself.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anabranch_multipath::conformance::{check_at_rest, run_out};
use anabranch_multipath::{Core as _, Time};
use anabranch_tcp::{
    Config, Congestion, Connection, Flags, Ports, Segment, Seq, State, Timestamps, checksum,
};

use crate::input::Input;

const BUFFER: usize = 20_000;
/// Our initial sequence number, and that of the peer.
const OURS: Seq = Seq(u32::MAX - 3_000);
const PEER: Seq = Seq(u32::MAX - 90);
/// Maximum segments that may be sent at one moment: the window, and some acknowledgements.
const MOST: usize = 2_000;

/// Checks an input; the first byte selects the check.
pub fn check(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    if kind % 4 == 0 {
        return parse(rest);
    }
    let mut input = Input::new(rest);
    let mut play = Play::new(kind, &mut input);
    while !input.is_empty() {
        play.step(&mut input);
    }
    play.run_dry();
}

/// Checks bytes from the wire.
fn parse(bytes: &[u8]) {
    let Ok(segment) = Segment::parse(bytes) else { return };
    let mut written = Vec::new();
    let ends = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
    segment.write(ends[0], ends[1], &mut written);
    assert_eq!(checksum(ends[0], ends[1], &written), 0);
    let again = Segment::parse(&written).expect("what is written is a segment");
    assert_eq!(again.payload, segment.payload);
    assert_eq!((again.seq, again.ack, again.flags), (segment.seq, segment.ack, segment.flags));
    if let Some(reset) = segment.reset() {
        assert!(reset.reset().is_none(), "a reset is never answered");
    }
}

struct Play {
    now: Time,
    tcp: Connection,
    /// Next offset in our stream, and next offset in the peer's stream.
    sent: u32,
    peer: u32,
    early: u64,
}

impl Play {
    fn new(kind: u8, input: &mut Input<'_>) -> Play {
        let switches = input.byte();
        let all: Vec<Congestion> = Congestion::all().collect();
        let config = Config {
            mss: [536, 1460][usize::from(switches & 1)],
            congestion: all[usize::from(switches >> 1 & 3) % all.len()],
            pacing: switches & 4 != 0,
            receive_buffer: BUFFER,
            send_buffer: BUFFER,
            sack: switches & 8 == 0,
            timestamps: switches & 16 == 0,
            window_scaling: switches & 32 == 0,
            timestamp_offset: u32::MAX - 100,
            out_of_order: switches & 64 != 0,
            fast_open: switches & 128 != 0,
            doubled: if switches & 128 == 0 { 0 } else { 600 },
            sparse_acks: switches & 128 != 0,
            ..Config::default()
        };
        let now = Time::from_secs(1);
        let mut syn = Segment { source: 2, destination: 1, seq: PEER, ..Segment::default() };
        syn.flags = Flags::SYN;
        syn.window = 60_000;
        syn.options.mss = Some(1460);
        syn.options.sack_permitted = true;
        syn.options.window_scale = Some(3);
        syn.options.timestamps = Some(Timestamps { value: 7, echo: 0 });
        let tcp = if kind % 4 == 1 {
            Connection::connect(now, &config, Ports { local: 1, remote: 2 }, OURS)
        } else {
            Connection::accept(now, &config, OURS, &syn).expect("it is a SYN")
        };
        let mut play = Play { now, tcp, sent: 1, peer: 1, early: 0 };
        play.poll();
        if kind % 4 == 3 {
            let mut third = play.segment(1, 1);
            third.flags = Flags::ACK;
            third.window = 60_000;
            play.tcp.handle(now, third);
            assert_eq!(play.tcp.state(), State::Established);
        }
        play
    }

    fn segment(&self, seq: u32, ack: u32) -> Segment {
        let seq = PEER + seq;
        let mut segment = Segment { source: 2, destination: 1, seq, ..Segment::default() };
        segment.ack = OURS + ack;
        segment.options.timestamps = Some(Timestamps { value: 8, echo: 1 });
        segment
    }

    /// Executes one step.
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0 => self.now += Duration::from_millis(input.byte().into()),
            1 => {
                if let Some(next) = self.tcp.next_timeout() {
                    self.now = self.now.max(next);
                }
            }
            2 => {
                let length = usize::from(input.word() & 0x3fff);
                let room = self.tcp.room();
                assert!(self.tcp.write(&vec![1; length]) <= length.min(room));
            }
            3 => {
                let mut into = vec![0; usize::from(input.word() & 0x1fff)];
                let waits = self.tcp.readable();
                assert_eq!(self.tcp.read(&mut into), waits.min(into.len()));
            }
            4 => match input.byte() % 8 {
                0 => self.tcp.close(),
                1 => self.tcp.abort(),
                _ => {}
            },
            _ => self.arrive(input),
        }
        self.poll();
    }

    /// Delivers a segment near the expected numbers, or far from them.
    fn arrive(&mut self, input: &mut Input<'_>) {
        let near = |at: u32, step: u8, input: &mut Input<'_>| match step % 6 {
            0..=2 => at,
            3 => at.wrapping_add(input.byte().into()),
            4 => at.wrapping_sub(u32::from(input.byte()) * 8),
            _ => at.wrapping_add(u32::from(input.word()) << (input.byte() % 17)),
        };
        let shape = input.byte();
        let seq = near(self.peer, shape, input);
        let ack = near(self.sent, shape / 6, input);
        let mut segment = self.segment(seq, ack);
        segment.flags = match shape / 36 {
            0..=3 => Flags::ACK,
            4 => Flags::ACK | Flags::FIN,
            _ => Flags(input.byte()),
        };
        segment.window = if shape & 1 == 0 { 60_000 } else { input.word() };
        let length = input.below(200);
        segment.payload = input.take(length).to_vec();
        for _ in 0..input.below(4) {
            let start = self.sent.wrapping_sub(u32::from(input.byte()) * 64);
            segment.options.sack.push(OURS + start, OURS + start + u32::from(input.byte()) * 64);
        }
        if input.byte() == 7 {
            let value = u32::from(input.word()) << 16;
            segment.options.timestamps = Some(Timestamps { value, echo: input.byte().into() });
        }
        if shape % 6 < 3 {
            self.peer = self.peer.wrapping_add(segment.length() as u32);
        }
        self.tcp.handle(self.now, segment);
    }

    /// Takes the outgoing segments, and checks the visible state.
    fn poll(&mut self) {
        let mut count = 0;
        while let Some(segment) = self.tcp.poll(self.now) {
            count += 1;
            assert!(count < MOST, "endless output");
            assert!(segment.payload.len() + segment.options.length() <= 1460 + 12);
            let end = segment.seq.at(segment.length()).0.wrapping_sub(OURS.0);
            if (end.wrapping_sub(self.sent) as i32) > 0 {
                self.sent = end;
            }
        }
        assert!(self.tcp.readable() <= BUFFER, "the receive buffer has an end");
        while let Some((offset, bytes)) = self.tcp.read_out_of_order() {
            assert!(offset < 1 << 40 && !bytes.is_empty());
            self.early += bytes.len() as u64;
        }
        let view = self.tcp.view(self.now);
        assert!(view.snd_cwnd > 0, "{view:?}");
        check_at_rest(&mut self.tcp, self.now);
    }

    /// Checks that every connection without a peer ends or waits for it.
    fn run_dry(&mut self) {
        run_out(&mut self.tcp, self.now, 400);
    }
}
