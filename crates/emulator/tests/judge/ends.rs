//! The two kinds of ends: Linux in a namespace, and `anabranch-tcp`.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, io, thread};

use anabranch_emulator::Namespace;
use anabranch_multipath::{Core as _, Time};
use anabranch_os::netlink::{
    Prefix,
    configure::{self, NewRoute},
};
use anabranch_os::tun::Tun;
use anabranch_tcp::{Config, Connection, Ports, Segment, Seq, checksum};
use etherparse::{Ipv4Header, Ipv4HeaderSlice, ip_number};

/// Implementation of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    Linux,
    Ours,
}

/// Addresses of the sender and of the receiver of data.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)];
const PORT: u16 = 7777;
/// Bytes of a buffer that does not limit the rate on these links.
const BUFFER: usize = 32 << 20;
/// Timeout for opening a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of packets that an interface queues while this process is not scheduled.
const QUEUE_LEN: u32 = 4096;

/// State that both ends share.
#[derive(Default)]
pub struct Shared {
    /// Whether the run is over.
    pub over: AtomicBool,
    /// Number of bytes that the reader received and verified.
    pub received: AtomicU64,
    /// Whether a received byte was wrong.
    pub wrong: AtomicBool,
}

/// Length in bytes of the block that the sent stream repeats. It is prime.
const BLOCK: usize = 65_521;

fn block() -> Vec<u8> {
    (0..BLOCK as u32 * 2)
        .map(|n| (n % BLOCK as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

impl Shared {
    /// Verifies and counts bytes that the reader received.
    fn receive(&self, stream: &[u8], bytes: &[u8]) {
        let mut at = self.received.load(Relaxed) as usize % BLOCK;
        for part in bytes.chunks(BLOCK) {
            if part != &stream[at..at + part.len()] {
                self.wrong.store(true, Relaxed);
            }
            at = (at + part.len()) % BLOCK;
        }
        self.received.fetch_add(bytes.len() as u64, Relaxed);
    }
}

/// Checks that this machine can run the comparison. The error is the reason why it cannot.
pub fn can_run() -> Result<(), String> {
    let made = Namespace::new().and_then(|namespace| namespace.run(|| Tun::create("judge")));
    made.map(drop).map_err(|error| format!("no TUN in a namespace of its own: {error}"))
}

/// Linux: a namespace with one interface.
pub struct Kernel {
    pub namespace: Namespace,
    pub tun: Tun,
}

impl Kernel {
    pub fn new(side: usize, control: &'static str) -> io::Result<Kernel> {
        let namespace = Namespace::new()?;
        let tun = namespace.run(|| {
            // IPv6 packets would use the link's random numbers and so change the losses of other
            // packets. An error means that the system has no IPv6.
            let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
            for (name, value) in [
                ("ipv4/tcp_rmem", "4096 131072 33554432"),
                ("ipv4/tcp_wmem", "4096 16384 33554432"),
                ("ipv4/tcp_no_metrics_save", "1"),
            ] {
                fs::write(format!("/proc/sys/net/{name}"), value)?;
            }
            let tun = Tun::create("judge")?;
            configure::set_queue_len(tun.index(), QUEUE_LEN)?;
            configure::set_mtu(tun.index(), 1500)?;
            let [own, peer] = [ADDRESSES[side], ADDRESSES[1 - side]];
            let [own, peer] = [own, peer].map(|ip| Prefix { ip: IpAddr::V4(ip), len: 32 });
            configure::add_address(tun.index(), own)?;
            configure::set_up(tun.index(), true)?;
            // The machine may restrict the congestion controls that a namespace may select. A route
            // is not restricted.
            configure::add_route(NewRoute {
                dst: peer,
                oif: tun.index(),
                gateway: None,
                prefsrc: Some(own.ip),
                metric: None,
                congestion_control: Some(control),
            })?;
            Ok(tun)
        })?;
        Ok(Kernel { namespace, tun })
    }

    pub fn listen(&self) -> io::Result<TcpListener> {
        self.namespace.run(|| TcpListener::bind((ADDRESSES[1], PORT)))
    }
}

/// Sends from `namespace` until the run is over.
pub fn send(namespace: &Namespace, shared: &Shared) -> io::Result<()> {
    let to = (ADDRESSES[1], PORT).into();
    let mut socket = namespace.run(|| TcpStream::connect_timeout(&to, PATIENCE))?;
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(Duration::from_millis(200)))?;
    let (stream, mut at) = (block(), 0);
    while !shared.over.load(Relaxed) {
        match socket.write(&stream[at..at + 16_384]) {
            Ok(length) => at = (at + length) % BLOCK,
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives until the run is over.
pub fn receive(listener: &TcpListener, shared: &Shared) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut socket = loop {
        match listener.accept() {
            Ok((socket, _)) => break socket,
            Err(error) if is_pause(&error) && !shared.over.load(Relaxed) => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    };
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (stream, mut buffer) = (block(), vec![0; 1 << 16]);
    while !shared.over.load(Relaxed) {
        match socket.read(&mut buffer) {
            Ok(length) => shared.receive(&stream, &buffer[..length]),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// A connection of `anabranch-tcp`, with the IP headers around its segments.
pub struct Core {
    side: usize,
    config: Config,
    tcp: Option<Connection>,
    stream: Vec<u8>,
    written: usize,
}

impl Core {
    pub fn new(side: usize, config: &Config) -> Core {
        let config = Config { send_buffer: BUFFER, receive_buffer: BUFFER / 2, ..config.clone() };
        Core { side, config, tcp: None, stream: block(), written: 0 }
    }

    pub fn connect(&mut self, now: Time) {
        let ports = Ports { local: 40_000, remote: PORT };
        self.tcp = Some(Connection::connect(now, &self.config, ports, Seq(0xffff_0000)));
    }

    /// Handles an IP packet.
    pub fn handle(&mut self, now: Time, packet: &[u8], shared: &Shared) {
        let Ok(header) = Ipv4HeaderSlice::from_slice(packet) else { return };
        let (from, to) = (header.source_addr().into(), header.destination_addr().into());
        let end = usize::from(header.total_len()).min(packet.len());
        let bytes = &packet[header.slice().len()..end];
        if header.protocol() != ip_number::TCP || checksum(from, to, bytes) != 0 {
            return;
        }
        let Ok(segment) = Segment::parse(bytes) else { return };
        match &mut self.tcp {
            Some(tcp) => tcp.handle(now, segment),
            None => self.tcp = Connection::accept(now, &self.config, Seq(7), &segment),
        }
        let mut read = Vec::new();
        self.tcp.iter_mut().for_each(|tcp| tcp.read_all(&mut read));
        shared.receive(&self.stream, &read);
    }

    /// Returns the next packet; `None` if there is none. A sender first writes data.
    pub fn poll(&mut self, now: Time) -> Option<Vec<u8>> {
        let tcp = self.tcp.as_mut()?;
        while self.side == 0 && tcp.view(now).notsent < 500_000 && tcp.room() > 0 {
            let length = tcp.write(&self.stream[self.written..self.written + 16_384]);
            self.written = (self.written + length) % BLOCK;
        }
        let segment = tcp.poll(now)?;
        let [from, to] = [ADDRESSES[self.side], ADDRESSES[1 - self.side]];
        let mut packet = Vec::with_capacity(1500);
        let length = u16::try_from(segment.wire_length()).ok()?;
        let header =
            Ipv4Header::new(length, 64, ip_number::TCP, from.octets(), to.octets()).ok()?;
        header.write(&mut packet).ok()?;
        segment.write(from.into(), to.into(), &mut packet);
        Some(packet)
    }

    pub fn next_timeout(&self) -> Option<Time> {
        self.tcp.as_ref()?.next_timeout()
    }
}
