//! The network between a splitter and its far end: a path for each source address, with delay,
//! loss and cuts. An observer records the packets of each path.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anabranch_multipath::seed::{Stream, stream};
use rand::RngExt;
use rustix::net::sockopt;

/// Properties of the paths. The first path is the path of 127.0.0.2.
#[derive(Clone, Default)]
pub struct Conditions {
    /// One-way delays of the paths.
    pub delays: Vec<Duration>,
    /// Probability that a packet is lost, in each direction.
    pub loss: f64,
    /// Paths on which no packet passes.
    pub cut: Vec<usize>,
    /// Number of times that the client's addresses have changed.
    pub moves: u32,
}

/// Packets that the observer of a path has recorded: those to the far end, and those from it.
#[derive(Clone, Default)]
pub struct ObservedPackets {
    pub up: Vec<Vec<u8>>,
    pub down: Vec<Vec<u8>>,
}

/// A running network between splitter and far end.
pub struct Between {
    /// Address that the splitter uses as the far end's address.
    pub at: SocketAddr,
    conditions: Arc<Mutex<Conditions>>,
    seen: Arc<Mutex<BTreeMap<usize, ObservedPackets>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Returns a socket with a large receive buffer, for a busy machine that delays its reader.
pub fn roomy() -> UdpSocket {
    const ROOM: usize = 4 << 20;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Only root may exceed the system's limit.
    if sockopt::set_socket_recv_buffer_size_force(&socket, ROOM).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, ROOM).unwrap();
    }
    socket
}

impl Between {
    /// Starts the network in front of the far end at `far`.
    pub fn start(far: SocketAddr, conditions: Conditions) -> Between {
        let front = roomy();
        let at = front.local_addr().unwrap();
        let (conditions, seen) = (Arc::new(Mutex::new(conditions)), Arc::default());
        let stop = Arc::new(AtomicBool::new(false));
        let wires = Wires {
            far,
            front,
            conditions: conditions.clone(),
            seen: Arc::clone(&seen),
            server_sockets: BTreeMap::new(),
            clients: BTreeMap::new(),
            moves: 0,
            waiting: BinaryHeap::new(),
            count: 0,
            rng: stream(1, 0, "loss"),
        };
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || wires.run(&stop)
        });
        Between { at, conditions, seen, stop, thread: Some(thread) }
    }

    pub fn change(&self, change: impl FnOnce(&mut Conditions)) {
        change(&mut self.conditions.lock().unwrap());
    }

    /// Returns the packets recorded so far, by path.
    pub fn seen(&self) -> BTreeMap<usize, ObservedPackets> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

type Due = Reverse<(Instant, u64, usize, bool, Vec<u8>)>;

struct Wires {
    far: SocketAddr,
    front: UdpSocket,
    conditions: Arc<Mutex<Conditions>>,
    seen: Arc<Mutex<BTreeMap<usize, ObservedPackets>>>,
    /// Socket of each path towards the far end. `clients` has the splitter's address on each path.
    server_sockets: BTreeMap<usize, UdpSocket>,
    clients: BTreeMap<usize, SocketAddr>,
    moves: u32,
    waiting: BinaryHeap<Due>,
    count: u64,
    rng: Stream,
}

impl Wires {
    fn run(mut self, stop: &AtomicBool) {
        self.front.set_nonblocking(true).unwrap();
        let mut buffer = [0; 65_536];
        while !stop.load(Ordering::Relaxed) {
            let conditions = self.conditions.lock().unwrap().clone();
            if std::mem::replace(&mut self.moves, conditions.moves) != conditions.moves {
                self.server_sockets.clear();
            }
            let received = self.take(&conditions, &mut buffer);
            let went = self.deliver();
            if !received && !went {
                thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn take(&mut self, conditions: &Conditions, buffer: &mut [u8]) -> bool {
        let mut received = false;
        while let Ok((length, from)) = self.front.recv_from(buffer) {
            let IpAddr::V4(ip) = from.ip() else { continue };
            let path = usize::from(ip.octets()[3]).saturating_sub(2);
            self.clients.insert(path, from);
            self.server_sockets.entry(path).or_insert_with(|| {
                let socket = roomy();
                socket.set_nonblocking(true).unwrap();
                socket
            });
            self.carry(conditions, path, true, &buffer[..length]);
            received = true;
        }
        let sockets: Vec<(usize, UdpSocket)> = self
            .server_sockets
            .iter()
            .map(|(path, one)| (*path, one.try_clone().unwrap()))
            .collect();
        for (path, socket) in sockets {
            while let Ok(length) = socket.recv(buffer) {
                self.carry(conditions, path, false, &buffer[..length]);
                received = true;
            }
        }
        received
    }

    fn carry(&mut self, conditions: &Conditions, path: usize, up: bool, packet: &[u8]) {
        let mut seen = self.seen.lock().unwrap();
        let seen = seen.entry(path).or_default();
        if up { &mut seen.up } else { &mut seen.down }.push(packet.to_vec());
        if conditions.cut.contains(&path) || self.rng.random_bool(conditions.loss) {
            return;
        }
        let delay = conditions.delays.get(path).copied().unwrap_or_default();
        self.count += 1;
        self.waiting.push(Reverse((Instant::now() + delay, self.count, path, up, packet.to_vec())));
    }

    fn deliver(&mut self) -> bool {
        let mut went = false;
        while self.waiting.peek().is_some_and(|Reverse(first)| first.0 <= Instant::now()) {
            let Some(Reverse((_, _, path, up, packet))) = self.waiting.pop() else { break };
            // An error means that the receiver has ended.
            let _ = match (up, self.server_sockets.get(&path), self.clients.get(&path)) {
                (true, Some(socket), _) => socket.send_to(&packet, self.far),
                (false, _, Some(client)) => self.front.send_to(&packet, client),
                _ => Ok(0),
            };
            went = true;
        }
        went
    }
}
