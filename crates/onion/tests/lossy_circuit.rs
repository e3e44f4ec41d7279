//! Tests of TCP from end to end over a lossy circuit (whose cells may get lost). The connections
//! of client and exit exchange segments in lossy cells. Three relays forward these cells over
//! lines that lose, delay and reorder them.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the tests themselves")]

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU64;
use std::time::Duration;

use anabranch_multipath::seed::stream;
use anabranch_multipath::{Core as _, Time};
use anabranch_netem::{Link, LinkSettings, Loss};
use anabranch_onion::crypto::lossy::{
    KEY_BYTES, LossyClient, LossyKeys, LossyRelay, Outward, Refusal, ZEROS,
};
use anabranch_onion::wire::cell::{BODY, Body, Command};
use anabranch_tcp::{Config, Congestion, Connection, Ending, Ports, Segment, Seq};
use rand::Rng;

const COMMAND: Command = Command(76);
const HOPS: usize = 3;
/// Number of bytes of the field that holds a segment's length in a cell.
const LENGTH: usize = 2;
/// Number of bytes of a TCP header whose only option is timestamps.
const HEADER: usize = 32;
/// Number of bytes of a cell on a line, including circuit ID, command and counter.
const CELL: usize = BODY + 9;
/// Address in all segments. Segments inside a circuit need no real addresses.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

type Line = Link<(u32, Body)>;

/// A lossy circuit, and the TCP connection between its ends.
struct Circuit {
    now: Time,
    client: LossyClient,
    relays: Vec<LossyRelay>,
    /// Lines for cells from the client. Line `n` ends at relay `n`.
    out: Vec<Line>,
    back: Vec<Line>,
    ends: [Option<Connection>; 2],
    config: Config,
    /// Number of cells that were refused because their counter was a duplicate or too old.
    refused: u64,
}

impl Circuit {
    fn new(settings: &LinkSettings, congestion: Congestion, seed: u64) -> Circuit {
        let keys: Vec<LossyKeys> = (1..=HOPS as u8).map(|hop| (&[hop; KEY_BYTES]).into()).collect();
        let lines = |first: u64| {
            (first..).take(HOPS).map(|line| Link::new(settings.clone(), seed, line)).collect()
        };
        let mss = (BODY - ZEROS - LENGTH - HEADER + 12) as u16;
        let initial_window = if congestion == Congestion::BBR { 20 } else { 10 };
        let config = Config { mss, congestion, initial_window, paws: false, ..Config::default() };
        let now = Time::from_secs(1);
        let ports = Ports { local: 1, remote: 2 };
        Circuit {
            now,
            client: LossyClient::new(&keys),
            relays: keys.iter().map(LossyRelay::new).collect(),
            out: lines(0),
            back: lines(10),
            ends: [Some(Connection::connect(now, &config, ports, Seq(7))), None],
            config,
            refused: 0,
        }
    }

    /// Sends all segments that the connection at `end` has ready.
    fn send(&mut self, end: usize) {
        while let Some(segment) = self.ends[end].as_mut().and_then(|tcp| tcp.poll(self.now)) {
            let mut bytes = Vec::new();
            segment.write(NOWHERE, NOWHERE, &mut bytes);
            let mut body = [0; BODY];
            body[ZEROS..][..LENGTH].copy_from_slice(&(bytes.len() as u16).to_be_bytes());
            body[ZEROS + LENGTH..][..bytes.len()].copy_from_slice(&bytes);
            // A line may drop the cell, which is then lost.
            if end == 0 {
                let counter = self.client.originate(COMMAND, &mut body).unwrap();
                let _ = self.out[0].push(self.now, (counter, body), CELL);
            } else {
                let counter = self.relays[HOPS - 1].originate(COMMAND, &mut body).unwrap();
                let _ = self.back[HOPS - 1].push(self.now, (counter, body), CELL);
            }
        }
    }

    /// Passes the segment in the cell `body` to the connection at `end`. If there is no connection
    /// yet, the segment opens it.
    fn arrive(&mut self, end: usize, body: &Body) {
        let length = u16::from_be_bytes([body[ZEROS], body[ZEROS + 1]]);
        let segment = Segment::parse(&body[ZEROS + LENGTH..][..length.into()]).unwrap();
        match &mut self.ends[end] {
            Some(tcp) => tcp.handle(self.now, segment),
            none => *none = Connection::accept(self.now, &self.config, Seq(9), &segment),
        }
    }

    fn carry(&mut self) {
        for hop in 0..HOPS {
            while let Some((counter, mut body)) = self.out[hop].pop(self.now) {
                let is_last = hop == HOPS - 1;
                match self.relays[hop].outward((COMMAND, counter), &mut body, is_last) {
                    Ok(Outward::Ours) => self.arrive(1, &body),
                    Ok(Outward::Onward) => {
                        let _ = self.out[hop + 1].push(self.now, (counter, body), CELL);
                    }
                    Err(Refusal::Replayed) => self.refused += 1,
                    Err(refusal) => panic!("relay {hop}: {refusal:?}"),
                }
            }
            while let Some((counter, mut body)) = self.back[hop].pop(self.now) {
                let result = match hop.checked_sub(1) {
                    None => self.client.inward((COMMAND, counter), &mut body),
                    Some(relay) => self.relays[relay].inward((COMMAND, counter), &mut body),
                };
                match (result, hop.checked_sub(1)) {
                    (Ok(()), None) => self.arrive(0, &body),
                    (Ok(()), Some(relay)) => {
                        let _ = self.back[relay].push(self.now, (counter, body), CELL);
                    }
                    (Err(Refusal::Replayed), _) => self.refused += 1,
                    (Err(refusal), _) => panic!("inward at {hop}: {refusal:?}"),
                }
            }
        }
    }

    /// Sends the segments of both ends, advances the time to the next event, and delivers cells.
    fn step(&mut self) {
        (0..2).for_each(|end| self.send(end));
        let lines = self.out.iter().chain(&self.back).map(Link::next_timeout);
        let ends = self.ends.iter().flatten().map(Connection::next_timeout);
        let next = lines.chain(ends).flatten().min().expect("a connection that is not over");
        self.now = self.now.max(next);
        self.carry();
    }
}

/// Downloads `length` bytes from the exit after a request of one byte. Returns the time that the
/// download took.
fn download(settings: &LinkSettings, congestion: Congestion, length: usize, seed: u64) -> Duration {
    let mut circuit = Circuit::new(settings, congestion, seed);
    let mut file = vec![0; length];
    stream(seed, 0, "file").fill_bytes(&mut file);
    assert_eq!(circuit.ends[0].as_mut().unwrap().write(&[1]), 1);
    let (mut written, mut received) = (0, Vec::new());
    let start = circuit.now;
    while received.len() < length {
        circuit.step();
        assert!(circuit.now < start + Duration::from_secs(600), "{} came", received.len());
        if let Some(exit) = circuit.ends[1].as_mut() {
            let mut request = Vec::new();
            exit.read_all(&mut request);
            if written > 0 || !request.is_empty() {
                written += exit.write(&file[written..]);
            }
        }
        circuit.ends[0].as_mut().unwrap().read_all(&mut received);
    }
    assert!(received == file, "what came is what was sent");
    assert_eq!(circuit.ends[0].as_ref().unwrap().ending(), None::<Ending>);
    assert_eq!(circuit.refused, 0, "lines double nothing");
    circuit.now.since(start)
}

#[test]
fn files_of_all_sizes_arrive_whole_with_and_without_losses() {
    let files = [(1, 1), (2, 498), (3, 20_000), (4, 320 << 10), (5, 2 << 20)];
    let of = |congestion| [0.0, 0.01, 0.05].map(|loss| (congestion, loss));
    for (congestion, loss) in [of(Congestion::BBR), of(Congestion::CUBIC)].concat() {
        for (seed, length) in files {
            let settings = LinkSettings {
                rate: NonZeroU64::new(50_000_000),
                delay: Duration::from_millis(15),
                jitter: Duration::from_millis(10),
                reorder: true,
                loss: if loss > 0.0 { Loss::Bernoulli(loss) } else { Loss::None },
                queue: 200_000,
                ..LinkSettings::default()
            };
            let elapsed = download(&settings, congestion, length, seed);
            println!("{congestion:?}, {length} bytes at {loss} of each line: {elapsed:?}");
        }
    }
}
