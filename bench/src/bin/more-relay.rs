//! Measures the CPU time of a relay of MORE for a packet: of the Sphinx library alone, of the core,
//! which includes the library, and of the program on loopback. Also measures the CPU time of a
//! client for a packet and for a reply block.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_more::{
    Config, Datagram, KEY, MoreNode, Network, OVERHEAD, Output, Peer, SecretKey, tags,
};
use anabranch_multipath::{Core as _, Time};
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_os::entropy::generator;
use anabranch_router::more::{self, Settings};
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use sphinx_packet::header::delays::Delay;
use sphinx_packet::route::{Destination, DestinationAddressBytes, NodeAddressBytes};
use sphinx_packet::version::CURRENT_VERSION;
use sphinx_packet::{SURBMaterial, SphinxPacket, SphinxPacketBuilder};

/// Number of nodes: the relay, the sender, the next hop, the exit, and another relay.
const NODES: usize = 5;
/// Maximum number of packets in flight through the program.
const WINDOW: usize = 32;
/// Time after which a packet counts as lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// Print the CPU time that a relay of MORE takes for a packet, in microseconds.
#[derive(Parser)]
struct Arguments {
    /// Send PACKETS packets in each run.
    #[arg(long, default_value_t = 4_000)]
    packets: usize,
    /// Repeat each measurement RUNS times.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Put PAYLOAD bytes of content into each packet.
    #[arg(long, default_value_t = more::PAYLOAD)]
    payload: usize,
}

/// A network on loopback whose first node is measured.
struct Bench {
    config: Config,
    keys: Vec<SecretKey>,
    network: Arc<Network>,
    begins: u64,
    /// Sockets of the sender and of the next hop.
    sender: UdpSocket,
    next: UdpSocket,
}

fn main() -> io::Result<()> {
    let Arguments { packets, runs, payload } = Arguments::parse();
    let bench = Bench::new(Config { payload, ..Config::default() })?;
    let names = [
        "Sphinx alone, a relay unwraps",
        "the core, a relay passes on",
        "the program on loopback, a relay passes on",
        "Sphinx alone, a client builds a packet of 3 hops",
        "Sphinx alone, a client makes a reply block of 3 hops",
    ];
    let mut found = names.map(|_| Vec::new());
    for _ in 0..runs.max(1) {
        let made = (0..packets).map(|_| bench.packet()).collect::<io::Result<Vec<_>>>()?;
        let times = [
            bench.raw(&made)?,
            bench.core(&made)?,
            bench.program(made)?,
            timed(packets, || bench.packet().map(drop))?,
            timed(packets, || bench.block())?,
        ];
        found.iter_mut().zip(times).for_each(|(found, time)| found.push(time));
    }
    for (name, times) in names.iter().zip(&mut found) {
        times.sort_by(f64::total_cmp);
        let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
        println!("{name}: {median:.1} us ({least:.1}-{most:.1}), {:.0} a CPU second", 1e6 / median);
    }
    Ok(())
}

/// Returns the CPU time of this thread in microseconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Returns the mean CPU time of `times` calls in microseconds.
fn timed(times: usize, mut call: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let before = cpu();
    (0..times).try_for_each(|_| call())?;
    Ok((cpu() - before) / times as f64)
}

impl Bench {
    fn new(config: Config) -> io::Result<Bench> {
        let sockets =
            (0..NODES).map(|_| UdpSocket::bind("127.0.0.1:0")).collect::<io::Result<Vec<_>>>()?;
        let keys: Vec<_> =
            (1..=NODES as u8).map(|number| SecretKey::from_bytes([number; KEY])).collect();
        let peer = |(at, (key, socket)): (usize, (&SecretKey, &UdpSocket))| {
            let address = socket.local_addr()?;
            Ok(Peer { key: key.public(), address, weight: 1, is_exit: at == 3 })
        };
        let peers = keys.iter().zip(&sockets).enumerate().map(peer);
        let network = Network::new(peers.collect::<io::Result<_>>()?).map_err(io::Error::other)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        let mut sockets = sockets.into_iter().skip(1);
        let missing = || io::Error::other("there are five sockets");
        let (sender, next) =
            (sockets.next().ok_or_else(missing)?, sockets.next().ok_or_else(missing)?);
        next.set_read_timeout(Some(PATIENCE))?;
        let network = Arc::new(network);
        Ok(Bench { config, keys, network, begins: now.as_secs() - 100, sender, next })
    }

    /// Returns the time since the beginning of the network.
    fn now(&self) -> io::Result<Time> {
        let begins = UNIX_EPOCH + Duration::from_secs(self.begins);
        let since = SystemTime::now().duration_since(begins).map_err(io::Error::other)?;
        Ok(Time::ZERO + since)
    }

    fn address(&self, at: usize) -> SocketAddr {
        self.network.peers()[at].address
    }

    fn route(&self, hops: &[usize]) -> io::Result<(Vec<sphinx_packet::route::Node>, u64)> {
        let node = |&at: &usize| {
            let key = self.network.peers()[at].key;
            sphinx_packet::route::Node::new(NodeAddressBytes::from_bytes(key), key.into())
        };
        let expiry = tags::tick(self.now()?) + tags::LIFETIME;
        Ok((hops.iter().map(node).collect(), expiry))
    }

    /// Creates a packet from the sender over the relay and the next hop to the exit.
    fn packet(&self) -> io::Result<Vec<u8>> {
        let (nodes, expiry) = self.route(&[0, 2, 3])?;
        let destination = Destination::new(DestinationAddressBytes::from_bytes([0; 32]), [0; 16]);
        let delays = vec![Delay::new_from_nanos(expiry); nodes.len()];
        let size = self.config.payload + OVERHEAD - sphinx_packet::header::HEADER_SIZE;
        let builder = SphinxPacketBuilder::new().with_payload_size(size);
        let content = vec![7; self.config.payload];
        let packet = builder.build_packet(content, &nodes, &destination, &delays);
        Ok(packet.map_err(io::Error::other)?.to_bytes())
    }

    /// Creates a reply block for a path over two relays to the client.
    fn block(&self) -> io::Result<()> {
        let (nodes, expiry) = self.route(&[0, 2, 1])?;
        let destination = Destination::new(DestinationAddressBytes::from_bytes([0; 32]), [1; 16]);
        let delays = vec![Delay::new_from_nanos(expiry); nodes.len()];
        let material = SURBMaterial::new(nodes, delays, destination, CURRENT_VERSION);
        let made = material.construct_recoverable_SURB().map_err(io::Error::other)?;
        std::hint::black_box(made);
        Ok(())
    }

    fn raw(&self, packets: &[Vec<u8>]) -> io::Result<f64> {
        let key = self.keys[0].to_bytes().into();
        let mut packets = packets.iter();
        timed(packets.len(), || {
            let bytes = packets.next().map_or(&[][..], |bytes| bytes);
            let packet = SphinxPacket::from_bytes(bytes).map_err(io::Error::other)?;
            std::hint::black_box(packet.process(&key).map_err(io::Error::other)?);
            Ok(())
        })
    }

    fn core(&self, packets: &[Vec<u8>]) -> io::Result<f64> {
        let rng = Box::new(generator()?);
        let key = self.keys[0].clone();
        let mut node = MoreNode::new(self.config.clone(), Arc::clone(&self.network), key, rng)
            .map_err(io::Error::other)?;
        let (now, from) = (self.now()?, self.address(1));
        let mut packets = packets.iter();
        timed(packets.len(), || {
            let bytes = packets.next().map_or(&[][..], |bytes| bytes);
            node.handle(now, Datagram { from, bytes });
            match node.poll(now) {
                Some(Output::Send { .. }) => Ok(()),
                other => Err(io::Error::other(format!("the relay passed on nothing: {other:?}"))),
            }
        })
    }

    fn program(&self, packets: Vec<Vec<u8>>) -> io::Result<f64> {
        let (stop, end) = UnixStream::pair()?;
        let settings = Settings {
            network: Arc::clone(&self.network),
            begins: self.begins,
            config: self.config.clone(),
            key: self.keys[0].clone(),
            listen: None,
            policy: ExitPolicy::reject_all(),
        };
        let (ready, is_ready) = std::sync::mpsc::channel();
        let relay = thread::spawn(move || -> io::Result<f64> {
            let before = cpu();
            more::run(settings, generator()?, &stop, &mut |_| {
                let _ = ready.send(());
            })?;
            Ok(cpu() - before)
        });
        is_ready.recv_timeout(PATIENCE).map_err(io::Error::other)?;
        let count = packets.len();
        let passed = self.pass(&packets);
        drop(end);
        let spent = relay.join().map_err(|_| io::Error::other("the relay's thread failed"))??;
        match passed? {
            all if all == count => Ok(spent / count as f64),
            some => Err(io::Error::other(format!("{some} of {count} packets arrived"))),
        }
    }

    /// Sends packets to the relay, and returns the number that the next hop receives.
    fn pass(&self, packets: &[Vec<u8>]) -> io::Result<usize> {
        let (relay, mut buffer) = (self.address(0), vec![0; 2_000]);
        let (mut sent, mut received) = (0, 0);
        while received < packets.len() {
            while sent < packets.len() && sent - received < WINDOW {
                self.sender.send_to(&packets[sent], relay)?;
                sent += 1;
            }
            if self.next.recv(&mut buffer).is_err() {
                break;
            }
            received += 1;
        }
        Ok(received)
    }
}
