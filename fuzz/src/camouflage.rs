//! Camouflage: data that strangers send to a server, a hostile network between client and server,
//! and texts of bridge lines. No stranger gets a byte. Data is read as it was written, in order,
//! even if connections are cut, changed, delayed and killed.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::seed::{Stream, stream};
use anabranch_multipath::{Core, Time};
use anabranch_stego::slot::FAMILIES;
use anabranch_stego::{
    BridgeKey, Client, ClientConfig, ClientOutput, ConnId, Covers, Input as Event, LinkId, Object,
    Pictures, Profile, Server, ServerConfig, ServerKey, ServerOutput, Shapes,
};

use crate::input::Input;

/// Profiles in the order that the committed inputs number them.
const NUMBERED: [&str; 10] = [
    "nosteg",
    "nosteg-short",
    "nosteg-rr",
    "http-opaque",
    "http-text",
    "http-text-short",
    "embed",
    "http-site",
    "http-opaque-short",
    "http-image",
];
/// Room of a socket in bytes.
const ROOM: usize = 32 << 10;
/// Maximum bytes sent beyond a socket's room: a handshake and its padding, or a token.
const UNASKED: usize = 56 + 512;
/// First number of connections of strangers.
const STRANGERS: u64 = 1 << 40;
/// Maximum bytes of one end that may be queued, at that end or at the other one.
const WINDOWS: usize = 2 * (16 << 20);

/// Checks an input; the first byte selects the check.
pub fn check(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    match kind % 5 {
        0 => names(rest),
        1 => strangers(rest),
        2 => foreign_server(rest),
        3 => network(rest),
        _ => pictures(rest),
    }
}

/// Returns a profile. Those without a number follow the others, so that the committed inputs keep
/// theirs.
fn profile(input: &mut Input<'_>) -> &'static str {
    let others = FAMILIES.iter().map(|family| family.name);
    let others = others.filter(|name| !NUMBERED.contains(name));
    input.pick(&NUMBERED.into_iter().chain(others).collect::<Vec<_>>())
}

/// Checks that keys of bridge lines, profiles and files of shapes are written as they were read.
fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = text.parse::<BridgeKey>() {
        assert_eq!(key.to_string(), text);
    }
    if let Ok(shapes) = Shapes::parse(text) {
        assert_eq!(Shapes::parse(&shapes.to_string()), Ok(shapes));
    }
    match text.parse::<Profile>() {
        Ok(profile) => assert_eq!(profile.to_string(), text),
        Err(error) => assert!(error.to_string().starts_with("there is no profile"), "{error}"),
    }
}

/// Checks that any picture file is either accepted or refused.
fn pictures(bytes: &[u8]) {
    let hides = Pictures::default().add(bytes);
    assert!(hides.is_err() || hides.is_ok_and(|count| count < bytes.len()));
}

/// Returns covers of a server: one picture and a site of one object.
fn covers() -> Covers {
    let body = format!("[{}1]", format!("\"{}\",", "aB3_".repeat(90)).repeat(9));
    let head = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    let mut covers = Covers::default();
    let picture = include_bytes!("../../crates/stego/testdata/colour.jpg");
    covers.pictures.add(picture).expect("the picture can hide bytes");
    covers.site.add(Object::new("/list", head, body.as_bytes()).into_iter().collect());
    covers
}

/// A client, a server, and the connections between them.
struct World {
    now: Time,
    client: Client<Stream>,
    server: Server<Stream>,
    link: Option<LinkId>,
    conns: BTreeMap<ConnId, Conn>,
    /// Unchanged bytes that arrived at the server on any connection, up to a limit.
    seen: Vec<u8>,
    /// Bytes written and read: by the client, by the server.
    written: [usize; 2],
    read: [usize; 2],
    next_stranger: u64,
    up: bool,
    over: bool,
    /// Maximum bytes per direction after which a connection ends.
    most: usize,
    streams: bool,
}

/// A connection, with the bytes in flight upwards and downwards.
#[derive(Default)]
struct Conn {
    waits: [Vec<u8>; 2],
    open: bool,
    closing: [bool; 2],
    room: [usize; 2],
    sent: [usize; 2],
}

/// Returns the byte at a position of a stream.
fn byte_at(way: usize, place: usize) -> u8 {
    (place ^ place >> 8).wrapping_mul(31) as u8 ^ [0, 0x5a][way]
}

impl World {
    fn new(profile: &str, aes: u8) -> World {
        let key = ServerKey::generate(&mut stream(1, 1, "key"));
        let kind: Profile = profile.parse().expect("the profile exists");
        let schedule = Spec::over_windows("pull").expect("the schedule exists");
        let client = ClientConfig {
            key: key.public(),
            profile: kind,
            host: "media.example.net".to_owned(),
            schedule: schedule.clone(),
            wall: 1_800_000_000,
            aes: aes & 1 == 0,
            covers: Covers::default(),
        };
        let server = ServerConfig {
            key,
            profile: kind,
            schedule,
            wall: 1_800_000_900,
            aes: aes & 2 == 0,
            memory: 4 << 20,
            links: 4,
            covers: covers(),
        };
        World {
            now: Time::from_secs(1),
            client: Client::new(client, stream(1, 2, "client")),
            server: Server::new(server, stream(1, 3, "server")),
            link: None,
            conns: BTreeMap::new(),
            seen: Vec::new(),
            written: [0; 2],
            read: [0; 2],
            next_stranger: STRANGERS,
            up: false,
            over: false,
            most: if profile.ends_with("-short") { 12_000 } else { usize::MAX },
            streams: profile.starts_with("nosteg") && profile != "nosteg-rr",
        }
    }

    /// Creates a world whose link is up.
    fn joined(profile: &str, aes: u8) -> World {
        let mut world = World::new(profile, aes);
        for _ in 0..20 {
            world.pass();
        }
        assert!(world.up && world.link.is_some(), "a good network joins both ends");
        world
    }

    /// Simulates a good network: delivers everything in flight, and advances the time.
    fn pass(&mut self) {
        self.act();
        let ids: Vec<ConnId> = self.conns.keys().copied().collect();
        for id in ids {
            self.open(id);
            (0..2).for_each(|way| self.deliver(id, way, usize::MAX, 0));
        }
        self.act();
        self.now += Duration::from_millis(40);
    }

    fn act(&mut self) {
        for turn in 0.. {
            assert!(turn < 10_000, "the client has something to do without end");
            let Some(output) = self.client.poll(self.now) else { break };
            match output {
                ClientOutput::Dial(id) => drop(self.conns.insert(id, Conn::default())),
                ClientOutput::Send(id, bytes) => self.send(id, 0, &bytes),
                ClientOutput::Close(id) => self.close(id, 0),
                ClientOutput::Up => self.up = true,
                ClientOutput::Over(_) => self.over = true,
            }
        }
        for turn in 0.. {
            assert!(turn < 10_000, "the server has something to do without end");
            let Some(output) = self.server.poll(self.now) else { break };
            match output {
                ServerOutput::Send(id, bytes) => self.send(id, 1, &bytes),
                ServerOutput::Close(id) => self.close(id, 1),
                ServerOutput::Stranger(id, _) => self.close(id, 1),
                ServerOutput::Opened(link) => {
                    assert!(self.link.replace(link).is_none(), "a stranger opened a link");
                }
                ServerOutput::Over(link, _) => assert_eq!(self.link, Some(link)),
                ServerOutput::Ready(_) => {}
            }
        }
        let living = self.conns.len();
        assert!(living <= 24 + 64, "{living} connections");
    }

    /// Sends bytes from one end on a connection.
    fn send(&mut self, id: ConnId, way: usize, bytes: &[u8]) {
        assert!(id.0 < STRANGERS, "a stranger got {} bytes", bytes.len());
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let excess = bytes.len().saturating_sub(conn.room[way]);
        assert!(!self.streams || excess <= UNASKED, "{excess} bytes more than the socket takes");
        conn.room[way] = conn.room[way].saturating_sub(bytes.len());
        conn.sent[way] += bytes.len();
        assert!(conn.sent[way] <= self.most, "{} bytes by a short connection", conn.sent[way]);
        conn.waits[way].extend_from_slice(bytes);
    }

    fn close(&mut self, id: ConnId, way: usize) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.closing[way] = true;
        if conn.waits[way].is_empty() {
            self.kill(id, 1 << (1 - way));
        }
    }

    /// Closes a connection, and notifies the ends whose bit in `ends` is set.
    fn kill(&mut self, id: ConnId, ends: usize) {
        self.conns.remove(&id);
        (0..2).filter(|end| ends >> end & 1 == 1).for_each(|end| self.feed(end, Event::Closed(id)));
    }

    fn feed(&mut self, end: usize, event: Event<'_>) {
        match end {
            0 => self.client.handle(self.now, event),
            _ => self.server.handle(self.now, event),
        }
    }

    /// Opens a connection at both ends.
    fn open(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.open) else { return };
        (conn.open, conn.room) = (true, [ROOM; 2]);
        for end in 0..2 {
            self.feed(end, Event::Opened(id));
            self.feed(end, Event::Room(id, ROOM));
        }
    }

    /// Delivers up to `count` bytes of a connection; `change` is XORed into the last of them.
    fn deliver(&mut self, id: ConnId, way: usize, count: usize, change: u8) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.open) else { return };
        let count = count.min(conn.waits[way].len());
        let mut bytes: Vec<u8> = conn.waits[way].drain(..count).collect();
        let over = conn.closing[way] && conn.waits[way].is_empty();
        let room = ROOM.saturating_sub(conn.waits[way].len());
        conn.room[way] = room;
        if way == 0 && change == 0 && self.seen.len() < 4_096 {
            self.seen.extend_from_slice(&bytes);
        }
        bytes.last_mut().into_iter().for_each(|last| *last ^= change);
        if !bytes.is_empty() {
            self.feed(1 - way, Event::Bytes(id, &bytes));
        }
        self.feed(way, Event::Room(id, room));
        if over {
            self.kill(id, 1 << (1 - way));
        }
    }

    /// Lets a program write.
    fn write(&mut self, way: usize, count: usize) {
        let start = self.written[way];
        let bytes: Vec<u8> = (start..start + count).map(|place| byte_at(way, place)).collect();
        let taken = match (way, self.link) {
            (0, _) => self.client.write(&bytes),
            (_, Some(link)) => self.server.write(link, &bytes),
            _ => 0,
        };
        self.written[way] += taken;
        let waits = self.written[way] - self.read[way];
        assert!(waits <= WINDOWS, "{waits} bytes wait");
    }

    fn read(&mut self) {
        let link = self.link;
        while let Some(bytes) = self.client.read(self.now) {
            self.on_hidden_bytes(1, &bytes);
        }
        while let Some(bytes) = link.and_then(|link| self.server.read(self.now, link)) {
            self.on_hidden_bytes(0, &bytes);
        }
    }

    fn on_hidden_bytes(&mut self, way: usize, bytes: &[u8]) {
        let start = self.read[way];
        let good = bytes.iter().zip(start..).all(|(&byte, place)| byte == byte_at(way, place));
        self.read[way] += bytes.len();
        assert!(good && self.read[way] <= self.written[way], "what came was not written");
    }

    /// Opens a connection of a stranger, who sends these pieces. The pieces arrive separately, and
    /// the connection may stay open.
    fn stranger(&mut self, pieces: &[&[u8]]) {
        let id = ConnId(self.next_stranger);
        self.next_stranger += 1;
        self.feed(1, Event::Opened(id));
        self.feed(1, Event::Room(id, ROOM));
        for piece in pieces {
            self.feed(1, Event::Bytes(id, piece));
            self.act();
        }
        if pieces.iter().all(|piece| piece.len() % 2 == 0) {
            self.feed(1, Event::Closed(id));
        }
    }
}

/// Checks strangers that send noise, or recorded data followed by noise, while another link is up.
fn strangers(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let profile = profile(&mut input);
    let mut world = World::joined(profile, input.byte());
    while !input.is_empty() {
        let (kept, count) = (usize::from(input.word()) % (world.seen.len() + 1), input.below(256));
        let replayed = world.seen[..kept].to_vec();
        let noise = input.take(count);
        let (one, two) = noise.split_at(count.min(noise.len()) / 2);
        match input.byte() % 3 {
            0 => world.stranger(&[one, two]),
            1 => world.stranger(&[&replayed, noise]),
            _ => world.stranger(&[one, &replayed, two]),
        }
        world.now += Duration::from_millis(input.byte().into());
        world.act();
        assert_eq!(world.server.links(), 1, "the link that was there");
    }
    world.write(0, 3_000);
    (0..60).for_each(|_| world.pass());
    world.read();
    assert_eq!(world.read[0], world.written[0], "strangers hold a link up");
}

/// Checks a client whose server is replaced by a hostile one, before or after the link is up.
fn foreign_server(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let profile = profile(&mut input);
    let aes = input.byte();
    let joined = input.coin();
    let mut world = if joined { World::joined(profile, aes) } else { World::new(profile, aes) };
    world.write(0, 300);
    while !input.is_empty() {
        world.act();
        let ids: Vec<ConnId> = world.conns.keys().copied().collect();
        let id = ids.get(input.below(256) % ids.len().max(1)).copied().unwrap_or(ConnId(0));
        world.open(id);
        let count = input.below(256);
        world.feed(0, Event::Bytes(id, input.take(count)));
        world.now += Duration::from_millis(u64::from(input.byte()) * 8);
        assert!(world.client.read(world.now).is_none(), "nobody else can say anything");
    }
    world.act();
    assert_eq!(world.up, joined, "only the server answers a handshake");
}

/// Checks a hostile network that becomes a good one at the end: then everything written arrives.
fn network(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let profile = profile(&mut input);
    let mut world = World::joined(profile, input.byte());
    // A link that is reset, or from which nothing arrives for 5 minutes, loses the data in flight.
    let (mut reset, begun) = (false, world.now);
    while !input.is_empty() {
        reset |= step(&mut world, &mut input);
        world.act();
    }
    let lost = world.now.since(begun) > Duration::from_secs(240);
    let alive = !reset && !world.over && !lost && world.server.links() == 1;
    for _ in 0..4_000 {
        world.pass();
        world.read();
        if world.read == world.written {
            break;
        }
    }
    assert!(!alive || world.read == world.written, "{:?} of {:?}", world.read, world.written);
}

/// Executes one step; returns whether the link was reset.
fn step(world: &mut World, input: &mut Input<'_>) -> bool {
    let ids: Vec<ConnId> = world.conns.keys().copied().collect();
    let what = input.byte();
    let id = ids.get(input.below(256) % ids.len().max(1)).copied().unwrap_or(ConnId(0));
    let way = usize::from(what >> 7);
    match what % 14 {
        0 => world.open(id),
        1 | 2 => world.deliver(id, way, usize::from(input.word()), 0),
        3 => world.deliver(id, way, usize::MAX, 0),
        4 => world.deliver(id, way, usize::from(input.word()), input.byte()),
        5 => world.kill(id, input.byte().into()),
        6 | 7 => world.write(way, usize::from(input.word())),
        8 => world.read(),
        9 => world.now += Duration::from_millis(u64::from(input.word()) / 16),
        10 => (0..input.below(8)).for_each(|_| world.pass()),
        11 => {
            let room = usize::from(input.word()) % ROOM;
            let Some(conn) = world.conns.get_mut(&id) else { return false };
            conn.room[way] = room;
            world.feed(way, Event::Room(id, room));
        }
        12 => {
            let seen = world.seen.clone();
            let count = input.below(80);
            world.stranger(&[&seen[..count.min(seen.len())], input.take(count)]);
        }
        _ => {
            let resets = input.byte() == 0xff;
            if resets {
                world.client.reset();
            }
            return resets;
        }
    }
    false
}
