//! Client and server of the camouflage transport with their connections in memory, over an
//! emulated line in each direction. TCP is modelled as an ordered byte stream with a window and a
//! socket buffer.
#![allow(missing_docs, reason = "helpers of tests, named by what they do")]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_multipath::seed::{Stream, stream};
use anabranch_multipath::{Core, Time};
use anabranch_netem::{Link, LinkSettings};
use anabranch_stego::{
    Client, ClientConfig, ClientOutput, ConnId, Covers, Ending, Input, LinkId, Object, Server,
    ServerConfig, ServerKey, ServerOutput,
};

/// Maximum size of a TCP segment's content, in bytes.
const SEGMENT: usize = 1_400;
/// Maximum bytes in flight on a connection.
const WINDOW: usize = 128 << 10;
/// Maximum bytes in a socket's buffer.
const BUFFER: usize = 32 << 10;
/// Time after which the modelled kernel gives up a connection attempt without an answer, as in
/// Linux.
const UNANSWERED: Duration = Duration::from_secs(127);
/// Number of header bytes that each segment adds on the line.
const HEADERS: usize = 52;

/// Behaviour of a simulated TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The connection works and delivers everything.
    Fine,
    /// The connection is closed at both ends after this time. Data in flight is lost.
    Killed(Duration),
    /// The connection loses everything in both directions without notice, once this number of
    /// bytes has arrived at the client.
    Frozen(usize),
    /// The connection opens, but delivers no data.
    Hole,
    /// The connection attempt is not answered; the kernel gives up after 127 s.
    Unanswered,
}

/// One direction of a simulated TCP connection.
#[derive(Default)]
struct Pipe {
    waits: VecDeque<u8>,
    under_way: usize,
    closing: bool,
    /// Free bytes in the socket's send buffer, as last reported to the camouflage core.
    reported: usize,
}

struct Conn {
    fate: Fate,
    born: Time,
    down: usize,
    alive: bool,
    /// The two directions of the connection: uplink and downlink.
    pipes: [Pipe; 2],
}

enum Segment {
    Syn(ConnId),
    SynAck(ConnId),
    Bytes(ConnId, Vec<u8>),
    Fin(ConnId),
}

/// Function that chooses the behaviour of a new connection.
pub type Fates = Box<dyn FnMut(u64, Time, &mut Stream) -> Fate>;

pub struct World {
    pub now: Time,
    pub client: Client<Stream>,
    pub server: Server<Stream>,
    lines: [Link<Segment>; 2],
    conns: BTreeMap<ConnId, Conn>,
    fates: Fates,
    dice: Stream,
    pub link: Option<LinkId>,
    pub ends: [Option<Ending>; 2],
    /// Time at which the client's link (camouflaged stream) ended.
    pub over: Time,
    pub strangers: usize,
    /// Bytes that crossed the line on uplink and downlink, including headers.
    pub crossed: [u64; 2],
    pub dialled: usize,
    /// Messages sent on each connection: direction (0 for the uplink, 1 for the downlink) and
    /// number of bytes.
    pub sent: BTreeMap<ConnId, Vec<(usize, usize)>>,
    /// Number and bytes of the HTTP requests that the client has sent so far.
    pub asked: Requests,
    pub most_conns: usize,
    /// Number of time steps of the simulation that were executed.
    pub steps: u64,
    /// Hash over all sent data and their times. Equal hashes mean equal runs.
    pub trace: u64,
}

/// Counts of the HTTP requests that a client has sent, by method, and their total bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub gets: usize,
    pub posts: usize,
    pub bytes: usize,
}

impl Requests {
    fn count(&mut self, message: &[u8]) {
        self.gets += usize::from(message.starts_with(b"GET "));
        self.posts += usize::from(message.starts_with(b"POST "));
        self.bytes += message.len();
    }

    /// Returns the difference between these counts and the earlier counts `before`.
    #[must_use]
    pub fn since(self, before: Requests) -> Requests {
        let [gets, posts, bytes] =
            [self.gets - before.gets, self.posts - before.posts, self.bytes - before.bytes];
        Requests { gets, posts, bytes }
    }
}

/// Data to transfer in both directions, and the data that has arrived.
pub struct Task {
    pub up: Vec<u8>,
    pub down: Vec<u8>,
    written: [usize; 2],
    pub received: [Vec<u8>; 2],
    finished: [bool; 2],
}

impl Task {
    pub fn new(seed: u64, up: usize, down: usize) -> Task {
        use rand::Rng as _;
        let bytes = |entity, length| {
            let mut bytes = vec![0; length];
            stream(seed, entity, "task").fill_bytes(&mut bytes);
            bytes
        };
        let (up, down) = (bytes(1, up), bytes(2, down));
        Task { up, down, written: [0; 2], received: Default::default(), finished: [false; 2] }
    }

    /// Keeps the streams open after all data was transferred.
    pub fn hold_open(&mut self) {
        self.finished = [true; 2];
    }

    /// Adds `length` bytes to transfer on the uplink.
    pub fn add_up(&mut self, length: usize) {
        self.up.extend(vec![5; length]);
    }

    /// Adds `length` bytes to transfer on the downlink.
    pub fn add_down(&mut self, length: usize) {
        self.down.extend(vec![7; length]);
    }

    pub fn is_whole(&self) -> bool {
        self.received[0] == self.up && self.received[1] == self.down
    }
}

impl World {
    pub fn new(seed: u64, profile: &str, line: [LinkSettings; 2], fates: Fates) -> World {
        let key = ServerKey::generate(&mut stream(seed, 1, "key"));
        let profile = profile.parse().unwrap();
        let schedule = anabranch_multipath::schedule::Spec::over_windows("pull").unwrap();
        let (wall, mut covers) = (1_800_000_000, Covers::default());
        covers.pictures.add(include_bytes!("../../stego/testdata/colour.jpg")).unwrap();
        let text = format!("[{}0]", format!("\"{}\",", "aB3_".repeat(90)).repeat(60));
        let head = |kind: &str| vec![("Content-Type".to_owned(), kind.to_owned())];
        covers.site.add(
            vec![
                Object::new(
                    "/a.jpg",
                    head("image/jpeg"),
                    include_bytes!("../../stego/testdata/colour.jpg"),
                ),
                Object::new("/api/list", head("application/json"), text.as_bytes()),
            ]
            .into_iter()
            .flatten()
            .collect(),
        );
        let mut noise = vec![0; 90_000];
        rand::Rng::fill_bytes(&mut stream(1, 1, "noise"), &mut noise);
        covers.site.add(Object::new("/one.ts", head("video/mp2t"), &noise).into_iter().collect());
        let client = ClientConfig {
            key: key.public(),
            profile,
            host: "media.example.net".to_owned(),
            schedule: schedule.clone(),
            wall: wall + 900,
            aes: true,
            covers: Covers::default(),
        };
        let server = ServerConfig {
            key,
            profile,
            schedule,
            wall,
            aes: true,
            memory: 64 << 20,
            links: 1_000,
            covers,
        };
        let [up, down] = line;
        World {
            now: Time::from_millis(5),
            client: Client::new(client, stream(seed, 2, "client")),
            server: Server::new(server, stream(seed, 3, "server")),
            lines: [Link::new(up, seed, 1), Link::new(down, seed, 2)],
            conns: BTreeMap::new(),
            fates,
            dice: stream(seed, 4, "fates"),
            link: None,
            ends: [None, None],
            over: Time::MAX,
            strangers: 0,
            crossed: [0; 2],
            dialled: 0,
            sent: BTreeMap::new(),
            asked: Requests::default(),
            most_conns: 0,
            steps: 0,
            trace: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// Runs the simulation until the link has been closed regularly at both ends, but for at most
    /// `limit`. Returns the time of the end.
    pub fn carry(&mut self, task: &mut Task, limit: Duration) -> Time {
        let until = self.now + limit;
        while self.now < until && self.ends != [Some(Ending::Done); 2] {
            self.step(task, until);
        }
        self.now
    }

    /// Executes one time step of the simulation.
    pub fn step(&mut self, task: &mut Task, until: Time) {
        self.steps += 1;
        let (now, client, server) =
            (self.now, self.client.next_timeout(), self.server.next_timeout());
        assert!(self.steps < 1_000_000, "{now:?}: {client:?}, {server:?} come again and again");
        self.programs(task);
        self.act();
        self.programs(task);
        self.act();
        let lines = self.lines.iter().filter_map(Link::next_timeout).min();
        let kills = self.conns.values().filter_map(|conn| match conn.fate {
            Fate::Killed(after) if conn.alive => Some(conn.born + after),
            Fate::Unanswered if conn.alive => Some(conn.born + UNANSWERED),
            _ => None,
        });
        let client = self.client.next_timeout();
        let cores = client.into_iter().chain(self.server.next_timeout());
        let all = kills.chain(lines).chain(cores).chain([until]);
        let next = all.min().unwrap();
        self.now = next.max(self.now + Duration::from_micros(1));
        self.kill();
        self.arrive();
    }

    /// Lets the application programs at both ends read and write as much as possible.
    fn programs(&mut self, task: &mut Task) {
        let up = self.client.write(&task.up[task.written[0]..]);
        task.written[0] += up;
        if task.written[0] == task.up.len() && !std::mem::replace(&mut task.finished[0], true) {
            self.client.finish();
        }
        while let Some(bytes) = self.client.read(self.now) {
            task.received[1].extend(bytes);
        }
        let Some(link) = self.link else { return };
        let down = self.server.write(link, &task.down[task.written[1]..]);
        task.written[1] += down;
        if task.written[1] == task.down.len() && !std::mem::replace(&mut task.finished[1], true) {
            self.server.finish(link);
        }
        while let Some(bytes) = self.server.read(self.now, link) {
            task.received[0].extend(bytes);
        }
    }

    fn act(&mut self) {
        while let Some(output) = self.client.poll(self.now) {
            match output {
                ClientOutput::Dial(id) => self.dial(id),
                ClientOutput::Send(id, bytes) => self.send(0, id, &bytes),
                ClientOutput::Close(id) => self.close(0, id),
                ClientOutput::Up => self.note(0, &[1]),
                ClientOutput::Over(ending) => (self.ends[0], self.over) = (Some(ending), self.now),
            }
        }
        while let Some(output) = self.server.poll(self.now) {
            match output {
                ServerOutput::Send(id, bytes) => self.send(1, id, &bytes),
                ServerOutput::Close(id) => self.close(1, id),
                ServerOutput::Stranger(..) => self.strangers += 1,
                ServerOutput::Opened(link) => self.link = Some(link),
                ServerOutput::Over(_, ending) => self.ends[1] = Some(ending),
                ServerOutput::Ready(_) => {}
            }
        }
    }

    fn note(&mut self, way: u8, bytes: &[u8]) {
        let stamp = self.now.nanos().to_be_bytes();
        for byte in [way].iter().chain(&stamp).chain(bytes) {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn dial(&mut self, id: ConnId) {
        self.dialled += 1;
        let fate = (self.fates)(id.0, self.now, &mut self.dice);
        let pipes = Default::default();
        self.conns.insert(id, Conn { fate, born: self.now, down: 0, alive: true, pipes });
        let living = self.conns.values().filter(|conn| conn.alive).count();
        self.most_conns = self.most_conns.max(living);
        self.push(0, Segment::Syn(id), 0);
    }

    fn push(&mut self, way: usize, segment: Segment, bytes: usize) {
        self.crossed[way] += (bytes + HEADERS) as u64;
        self.lines[way].push(self.now, segment, bytes + HEADERS).unwrap();
    }

    fn send(&mut self, way: usize, id: ConnId, bytes: &[u8]) {
        self.note(way as u8, bytes);
        self.sent.entry(id).or_default().push((way, bytes.len()));
        if way == 0 {
            self.asked.count(bytes);
        }
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.alive) else { return };
        conn.pipes[way].waits.extend(bytes);
        conn.pipes[way].reported = conn.pipes[way].reported.saturating_sub(bytes.len());
        self.pump(way, id);
    }

    fn close(&mut self, way: usize, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.alive) else { return };
        conn.pipes[way].closing = true;
        self.pump(way, id);
    }

    /// Sends data from a socket's buffer, as far as the TCP window allows. Reports the free bytes
    /// of the buffer to the camouflage core.
    fn pump(&mut self, way: usize, id: ConnId) {
        loop {
            let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.alive) else { return };
            let pipe = &mut conn.pipes[way];
            let count = pipe.waits.len().min(SEGMENT).min(WINDOW - pipe.under_way);
            if count == 0 {
                break;
            }
            let bytes: Vec<u8> = pipe.waits.drain(..count).collect();
            pipe.under_way += count;
            self.push(way, Segment::Bytes(id, bytes), count);
        }
        let pipe = &mut self.conns.get_mut(&id).unwrap().pipes[way];
        if pipe.closing && pipe.waits.is_empty() {
            return self.push(way, Segment::Fin(id), 0);
        }
        let room = BUFFER.saturating_sub(pipe.waits.len());
        if room != pipe.reported {
            pipe.reported = room;
            self.feed(way, Input::Room(id, room));
        }
    }

    fn feed(&mut self, way: usize, input: Input<'_>) {
        match way {
            0 => self.client.handle(self.now, input),
            _ => self.server.handle(self.now, input),
        }
    }

    fn kill(&mut self) {
        let now = self.now;
        let dies = |conn: &Conn| match conn.fate {
            Fate::Killed(after) => conn.alive && now >= conn.born + after,
            Fate::Unanswered => conn.alive && now >= conn.born + UNANSWERED,
            _ => false,
        };
        let dead: Vec<ConnId> =
            self.conns.iter().filter(|(_, conn)| dies(conn)).map(|(id, _)| *id).collect();
        for id in dead {
            self.conns.get_mut(&id).unwrap().alive = false;
            self.feed(0, Input::Closed(id));
            self.feed(1, Input::Closed(id));
        }
    }

    fn arrive(&mut self) {
        for way in 0..2 {
            while let Some(segment) = self.lines[way].pop(self.now) {
                self.take(way, segment);
            }
        }
    }

    fn take(&mut self, way: usize, segment: Segment) {
        let (Segment::Syn(id) | Segment::SynAck(id) | Segment::Bytes(id, _) | Segment::Fin(id)) =
            segment;
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.alive) else { return };
        let passes = match conn.fate {
            Fate::Frozen(after) => conn.down < after,
            Fate::Hole => !matches!(segment, Segment::Bytes(..) | Segment::Fin(_)),
            Fate::Unanswered => false,
            Fate::Fine | Fate::Killed(_) => true,
        };
        if !passes {
            return;
        }
        match segment {
            Segment::Syn(_) => {
                self.server.handle(self.now, Input::Opened(id));
                self.pump(1, id);
                self.push(1, Segment::SynAck(id), 0);
            }
            Segment::SynAck(_) => {
                self.client.handle(self.now, Input::Opened(id));
                self.pump(0, id);
            }
            Segment::Bytes(_, bytes) => {
                conn.down += if way == 1 { bytes.len() } else { 0 };
                conn.pipes[way].under_way -= bytes.len();
                self.feed(1 - way, Input::Bytes(id, &bytes));
                self.pump(way, id);
            }
            Segment::Fin(_) => {
                conn.alive = false;
                self.feed(1 - way, Input::Closed(id));
            }
        }
    }
}

/// Returns settings of a line: rates in bits per second up and down, and a round-trip time of
/// `trip` ms.
pub fn line(up: u64, down: u64, trip: u64) -> [LinkSettings; 2] {
    let one = |rate| LinkSettings {
        delay: Duration::from_micros(trip * 500),
        ..LinkSettings::with_rate(rate)
    };
    [one(up), one(down)]
}

/// Returns the line of the StegoTorus paper: 0.7 Mbit/s up, 5.6 Mbit/s down, a round-trip time of
/// 85 ms.
pub fn dsl() -> [LinkSettings; 2] {
    line(700_000, 5_600_000, 85)
}

/// Makes all connections behave in the same way.
pub fn all(fate: Fate) -> Fates {
    Box::new(move |_, _, _| fate)
}
