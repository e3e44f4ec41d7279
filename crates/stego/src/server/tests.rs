//! Tests of a server's memory use with misbehaving clients.

use anabranch_multipath::seed::{Stream, stream};

use super::*;
use crate::block::{Opener, Sealer};
use crate::budget::LEAST_WINDOW;
use crate::client::{Client, ClientConfig, ClientOutput};
use crate::frame::{Ack, Frame};
use crate::handshake::{ANSWER, ClientHandshake, HelloRefusal};
use crate::link::LinkViolation;
use crate::outbox::AHEAD;
use crate::slot::Hidden;

const WALL: u64 = 1_800_000_000;
/// Free bytes of a socket's send buffer.
const ROOM: usize = 32 << 10;
/// First connection number of the honest client.
const HONEST: u64 = 1_000;
/// Flow-control limit in bytes that is far above any window.
const GREEDY: u64 = 1 << 60;

/// A server, and the bytes that it has sent over each connection.
struct World {
    now: Time,
    server: Server<Stream>,
    sent: BTreeMap<ConnId, Vec<u8>>,
    opened: Vec<LinkId>,
    over: Vec<(LinkId, Ending)>,
}

impl World {
    fn new(memory: usize) -> World {
        World::of("nosteg", memory)
    }

    fn of(profile: &str, memory: usize) -> World {
        let config = ServerConfig {
            key: ServerKey::generate(&mut stream(1, 1, "key")),
            profile: profile.parse().unwrap(),
            schedule: Spec::over_windows("pull").unwrap(),
            wall: WALL,
            aes: true,
            memory,
            links: 100,
            covers: Covers::default(),
        };
        World {
            now: Time::from_secs(1),
            server: Server::new(config, stream(1, 2, "server")),
            sent: BTreeMap::new(),
            opened: Vec::new(),
            over: Vec::new(),
        }
    }

    fn hear(&mut self, id: ConnId, bytes: &[u8]) {
        self.server.handle(self.now, Input::Bytes(id, bytes));
        self.act();
    }

    /// Performs the server's actions. All sockets accept its bytes at once.
    fn act(&mut self) {
        while let Some(output) = self.server.poll(self.now) {
            match output {
                ServerOutput::Send(id, bytes) => {
                    self.sent.entry(id).or_default().extend(bytes);
                    self.server.handle(self.now, Input::Room(id, ROOM));
                }
                ServerOutput::Opened(link) => self.opened.push(link),
                ServerOutput::Stranger(id, _) => panic!("{id:?} is taken for a stranger's"),
                ServerOutput::Over(link, ending) => self.over.push((link, ending)),
                ServerOutput::Close(_) | ServerOutput::Ready(_) => {}
            }
        }
    }

    fn open(&mut self, id: ConnId) {
        self.server.handle(self.now, Input::Opened(id));
        self.server.handle(self.now, Input::Room(id, ROOM));
    }

    /// Writes to a link until it accepts no more.
    fn fill(&mut self, link: LinkId) {
        while self.server.write(link, &[7; 64 << 10]) > 0 {
            self.act();
        }
    }

    /// Returns the number of unacknowledged bytes of all links, and the bytes left in the budget.
    fn kept(&self) -> (usize, usize) {
        let waiting = self.server.links.values().map(|host| host.link.unacknowledged());
        (waiting.sum(), self.server.budget.left())
    }
}

/// A client that permits its server any number of bytes, and acknowledges only at the test's
/// request.
struct Greedy {
    id: ConnId,
    link: LinkId,
    sealer: Sealer,
    opener: Opener,
    /// Received bytes that are not a complete block yet.
    partial: Vec<u8>,
    /// Number of the chunk after the greatest one received.
    next: u64,
}

impl Greedy {
    fn join(world: &mut World, number: u64) -> Greedy {
        let (id, key) = (ConnId(number), world.server.config.key.public());
        let (minute, mut hello) = (u32::try_from(WALL / 60).unwrap(), Vec::new());
        let mut rng = stream(2, number, "greedy");
        let client_handshake =
            ClientHandshake::begin(&key, minute, (true, 0), &mut rng, &mut hello).unwrap();
        world.open(id);
        world.hear(id, &hello);
        let sent = world.sent.remove(&id).unwrap();
        let (answer, rest) = sent.split_first_chunk::<ANSWER>().unwrap();
        let (secrets, padding) = client_handshake.finish(answer).unwrap();
        let mut greedy = Greedy {
            id,
            link: *world.opened.last().unwrap(),
            sealer: Sealer::new(&secrets.up, secrets.aes),
            opener: Opener::new(&secrets.down, secrets.aes),
            partial: rest[padding.into()..].to_vec(),
            next: 0,
        };
        greedy.ack(world);
        greedy
    }

    /// Processes the received blocks. Returns whether the last frame was a RESET.
    fn listen(&mut self, world: &mut World) -> bool {
        self.partial.extend(world.sent.remove(&self.id).unwrap_or_default());
        let (mut start, mut frames, mut reset) = (0, Vec::new(), false);
        while let Some(length) = self.opener.open(&self.partial[start..], &mut frames).unwrap() {
            start += length;
            let mut rest = &frames[..];
            while let Some(frame) = Frame::read(&mut rest).unwrap() {
                if let Frame::Data { chunk, .. } = frame {
                    self.next = self.next.max(chunk + 1);
                }
                reset = frame == Frame::Reset;
            }
        }
        self.partial.drain(..start);
        reset
    }

    fn ack(&mut self, world: &mut World) {
        let ack = Ack { next: self.next, limit: GREEDY, ..Ack::default() };
        self.send_message(world, &Frame::Ack(ack));
    }

    fn send_message(&mut self, world: &mut World, frame: &Frame<'_>) {
        let mut block = Vec::new();
        self.sealer.seal(&mut block, |out| frame.write(out));
        world.hear(self.id, &block);
    }

    /// Sends a stream without its first chunk, in chunks of `length` bytes. Stops when the minimum
    /// window is full, or when the server has ended the link. Sends at most `AHEAD` - 1 chunks.
    fn send_ahead(&mut self, world: &mut World, length: usize) {
        let bytes = vec![9; length];
        for chunk in 1..=(LEAST_WINDOW / length).min(AHEAD - 1) as u64 {
            if world.over.iter().any(|(link, _)| *link == self.link) {
                return;
            }
            self.send_message(world, &Frame::Data { chunk, bytes: &bytes });
        }
    }
}

/// An honest client on a good network.
struct Honest(Client<Stream>);

impl Honest {
    fn new(world: &World) -> Honest {
        let config = ClientConfig {
            key: world.server.config.key.public(),
            profile: world.server.config.profile,
            host: "media.example.net".to_owned(),
            schedule: Spec::over_windows("pull").unwrap(),
            wall: WALL,
            aes: true,
            covers: Covers::default(),
        };
        Honest(Client::new(config, stream(1, 3, "client")))
    }

    /// Delivers what the client sends.
    fn send(&mut self, world: &mut World) {
        while let Some(output) = self.0.poll(world.now) {
            match output {
                ClientOutput::Dial(id) => {
                    world.open(ConnId(HONEST + id.0));
                    self.0.handle(world.now, Input::Opened(id));
                    self.0.handle(world.now, Input::Room(id, ROOM));
                }
                ClientOutput::Send(id, bytes) => {
                    world.hear(ConnId(HONEST + id.0), &bytes);
                    self.0.handle(world.now, Input::Room(id, ROOM));
                }
                _ => {}
            }
        }
    }

    /// Delivers what the server sends to the client.
    fn receive(&mut self, world: &mut World) {
        world.act();
        for (id, sent) in world.sent.extract_if(ConnId(HONEST).., |_, _| true) {
            self.0.handle(world.now, Input::Bytes(ConnId(id.0 - HONEST), &sent));
        }
    }
}

/// Sends `bytes` bytes to an honest client. Returns how many arrive within a minute.
fn carried(world: &mut World, bytes: usize) -> usize {
    let mut client = Honest::new(world);
    let (links, until) = (world.opened.len(), world.now + Duration::from_secs(60));
    let (mut written, mut received) = (0, 0);
    while received < bytes && world.now < until {
        client.send(world);
        if let Some(&link) = world.opened.get(links) {
            written += world.server.write(link, &vec![1; bytes - written]);
        }
        client.receive(world);
        let read = std::iter::from_fn(|| client.0.read(world.now));
        received += read.map(|piece| piece.len()).sum::<usize>();
        world.now += Duration::from_millis(20);
    }
    received
}

#[test]
fn who_allows_much_and_acknowledges_nothing_is_kept_a_mebibyte() {
    let memory = 64 << 20;
    let mut world = World::new(memory);
    for number in 0..8 {
        let greedy = Greedy::join(&mut world, number);
        world.fill(greedy.link);
    }
    assert_eq!(world.kept(), (8 * LEAST_WINDOW, memory / 2), "the budget is others'");
}

#[test]
fn clients_that_acknowledge_no_more_have_the_budget_at_most_and_others_go_on() {
    let memory = 6 << 20;
    let mut world = World::new(memory);
    let mut all: Vec<Greedy> = (0..5).map(|number| Greedy::join(&mut world, number)).collect();
    for greedy in &mut all {
        // Each client acknowledges two minimum windows. The server would then accept five of them
        // for it, if its memory had no limit.
        for _ in 0..2 {
            world.fill(greedy.link);
            greedy.listen(&mut world);
            greedy.ack(&mut world);
        }
    }
    all.iter().for_each(|greedy| world.fill(greedy.link));
    let share = memory / 4 / all.len();
    assert_eq!(world.kept(), (5 * share + memory / 2, 0));
    assert_eq!(carried(&mut world, 3_000_000), 3_000_000);
    assert_eq!((world.kept().1, &world.over[..]), (0, &[][..]), "and nobody loses a link");
    // The clients fall silent, and their links end after `SURVIVES`.
    world.now += SURVIVES;
    world.act();
    assert_eq!((world.server.links(), world.kept(), world.server.memory), (0, (0, memory / 2), 0));
}

#[test]
fn many_that_are_kept_much_for_are_crowded_out_before_one_who_sends() {
    let memory = 8 << 20;
    let mut world = World::new(memory);
    let mut sender = Greedy::join(&mut world, 99);
    for number in 0..60 {
        let greedy = Greedy::join(&mut world, number);
        world.fill(greedy.link);
        assert!(world.server.memory <= memory, "{} of {memory}", world.server.memory);
        // The server's program does not read these bytes meanwhile.
        sender.send_message(&mut world, &Frame::Data { chunk: number, bytes: &[5; 200] });
    }
    assert!(!world.over.is_empty(), "the shares of those who came first were greater");
    assert!(world.over.iter().all(|(_, ending)| *ending == Ending::Crowded));
    assert!(world.server.links.contains_key(&sender.link), "{:?}", world.over);
    assert_eq!(carried(&mut world, 1_000_000), 1_000_000);
}

#[test]
fn who_makes_the_server_keep_most_loses_its_link_and_no_more_is_kept_than_memory() {
    // Long chunks, and chunks whose bytes are the smallest part of the memory that they need.
    for length in [4_000, 1] {
        let memory = 2 << 20;
        let mut world = World::new(memory);
        let honest = Greedy::join(&mut world, 99);
        let mut all: Vec<Greedy> = (0..6).map(|number| Greedy::join(&mut world, number)).collect();
        for greedy in &mut all {
            greedy.send_ahead(&mut world, length);
            assert!(world.server.memory <= memory, "{} of {memory}", world.server.memory);
            let each = world.server.links.values().map(|host| host.link.memory());
            let each: usize = each.map(|(received, unsent)| received + unsent).sum();
            assert_eq!(each, world.server.memory);
        }
        let crowded: Vec<LinkId> = world.over.iter().map(|(link, _)| *link).collect();
        assert!(world.over.iter().all(|(_, ending)| *ending == Ending::Crowded));
        assert!((1..6).contains(&crowded.len()) && !crowded.contains(&honest.link), "{length}");
        // A client that lost its link received a RESET.
        let lost = all.iter_mut().find(|greedy| crowded.contains(&greedy.link)).unwrap();
        assert!(lost.listen(&mut world));
        assert_eq!(carried(&mut world, 3_000_000), 3_000_000);
    }
}

/// Opens links, and ends both streams of each without data.
fn finish_links(world: &mut World, numbers: std::ops::Range<u64>) {
    let mut short: Vec<Greedy> = numbers.map(|number| Greedy::join(world, number)).collect();
    for link in &mut short {
        link.send_message(world, &Frame::Fin { chunk: 0 });
        world.server.finish(link.link);
    }
    // The server acknowledges after a while.
    world.now += Duration::from_millis(25);
    world.act();
    for link in &mut short {
        link.listen(world);
        link.send_message(world, &Frame::Ack(Ack { next: 1, limit: GREEDY, ..Ack::default() }));
    }
}

#[test]
fn links_that_are_done_are_remembered_up_to_a_number_and_keep_nobody_out() {
    let mut world = World::new(64 << 20);
    let live = Greedy::join(&mut world, 1 << 40);
    let (batch, links) = (50, FINISHED as u64 + 100);
    (0..links / batch).for_each(|turn| finish_links(&mut world, turn * batch..(turn + 1) * batch));
    let done = world.over.iter().filter(|(_, ending)| *ending == Ending::Done).count();
    assert_eq!((done, world.over.len()), (100, 100), "the oldest");
    assert_eq!(world.server.links(), FINISHED + 1);
    let (tokens, each) = (world.server.awaited.len(), 2 * LATE_TOKENS as usize);
    assert!(tokens <= FINISHED * each + 2 * 256, "{tokens}");
    assert!(world.server.links.contains_key(&live.link), "it is not done");
    world.now += LINGERS;
    world.act();
    assert_eq!((world.server.links(), world.server.finished.len()), (1, 0));
}

#[test]
fn a_connection_that_joins_no_link_is_refused_with_its_cause() {
    let mut world = World::new(64 << 20);
    let (key, id) = (world.server.config.key.public(), ConnId(1));
    let minute = u32::try_from(WALL / 60).unwrap();
    let mut rng = stream(2, 1, "hello");
    let mut hello = |minute| {
        let mut hello = Vec::new();
        ClientHandshake::begin(&key, minute, (true, 0), &mut rng, &mut hello).unwrap();
        hello
    };
    let (late, good) = (hello(minute - 61), hello(minute));
    world.server.config.links = 0;
    let unknown = || ConnOwner::Unknown(Vec::new());
    let ended = ConnOwner::Joined { link: LinkId(7), path: 0, skip: 0 };
    for (mut owner, hidden, expected) in [
        (unknown(), Hidden::End, LinkViolation::Unidentified),
        (unknown(), Hidden::Bytes(&late), LinkViolation::Hello(HelloRefusal::Clock)),
        (unknown(), Hidden::Bytes(&good), LinkViolation::Full),
        (ended, Hidden::Bytes(b"x"), LinkViolation::NoLink),
    ] {
        let received = world.server.receive_hidden(world.now, id, &mut owner, hidden);
        assert_eq!(received, Err(expected));
    }
}

#[test]
fn a_request_that_cannot_be_answered_yet_does_not_occupy_the_server() {
    let mut world = World::of("http-opaque", 64 << 20);
    let mut client = Honest::new(&world);
    for _ in 0..50 {
        client.send(&mut world);
        client.receive(&mut world);
        world.now += Duration::from_millis(20);
    }
    assert_eq!(world.opened.len(), 1);
    // The sockets are full at the time at which the held request has to be answered.
    let conns: Vec<ConnId> = world.server.conns.keys().copied().collect();
    conns.iter().for_each(|&id| world.server.handle(world.now, Input::Room(id, 0)));
    world.now += Duration::from_secs(10);
    let actions = world.server.drain(world.now).take(1_000).count();
    assert!(actions < 10, "{actions}");
    assert!(world.server.next_timeout().is_some_and(|due| due > world.now));
    conns.iter().for_each(|&id| world.server.handle(world.now, Input::Room(id, ROOM)));
    world.act();
    assert_eq!(world.sent.len(), 1, "the answer");
}
