//! A naive forwarder: `forward LISTEN TO MILLISECONDS [SOURCE]...`
//!
//! Forwards datagrams of clients from `LISTEN` to `TO`, and the answers back. It sends from each
//! source address for `MILLISECONDS` in turn. The example shows how to combine the parts of
//! `anabranch_os::udp`. `make bench` also compares the splitter (the program that spreads sessions
//! over several paths) with this baseline, which has no random choice of paths, no classification,
//! no health checks and no limits.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_os::clock::Clock;
use anabranch_os::poller::Poller;
use anabranch_os::udp::{Datagrams, RecvBatch, SendQueue, UdpOptions, UdpSocket};

/// A client's address, the local address that the client's first datagram was sent to, and a
/// socket to the server for each source address.
struct Session {
    client: SocketAddr,
    spoken_to: Option<IpAddr>,
    paths: Vec<UdpSocket>,
}

struct Forwarder {
    listener: UdpSocket,
    to: SocketAddr,
    sources: Vec<Option<SocketAddr>>,
    every: Duration,
    poller: Poller,
    sessions: Vec<Session>,
    clients: HashMap<SocketAddr, usize>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: forward LISTEN TO MILLISECONDS [SOURCE]...");
    let (listen, to, every) = (next()?.parse()?, next()?.parse()?, next()?.parse()?);
    let sources = arguments.map(|ip| Ok(Some((ip.parse::<IpAddr>()?, 0).into())));
    let mut sources = sources.collect::<Result<Vec<_>, std::net::AddrParseError>>()?;
    if sources.is_empty() {
        sources.push(None);
    }
    let poller = Poller::new(256)?;
    let listener = UdpSocket::bind(listen, &UdpOptions::default())?;
    poller.add(&listener, u64::MAX)?;
    let every = Duration::from_millis(every);
    let (sessions, clients) = (Vec::new(), HashMap::new());
    Forwarder { listener, to, sources, every, poller, sessions, clients }.run()?;
    Ok(())
}

impl Forwarder {
    fn run(&mut self) -> io::Result<()> {
        let clock = Clock::start();
        let (mut buffers, mut queue) = (RecvBatch::new(32), SendQueue::new());
        let mut ready = Vec::new();
        loop {
            ready.extend(self.poller.wait(None)?.map(|event| event.token));
            for token in ready.drain(..) {
                let done = match token {
                    u64::MAX => self.up(clock.now(), &mut buffers, &mut queue),
                    token => self.down(token as usize, &mut buffers, &mut queue),
                };
                done.or_else(|error| match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::ConnectionRefused => Ok(()),
                    _ => Err(error),
                })?;
            }
        }
    }

    /// Forwards from clients to the server. Consecutive datagrams of one client are sent in one
    /// batch.
    fn up(&mut self, now: Time, buffers: &mut RecvBatch, queue: &mut SendQueue) -> io::Result<()> {
        let runs = buffers.recv(&self.listener)?;
        for run in runs.clone() {
            if !self.clients.contains_key(&run.from) {
                self.open(run.from, run.to)?;
            }
        }
        let turn = now.nanos() / (self.every.as_nanos() as u64).max(1);
        let path = turn as usize % self.sources.len();
        let mut runs = runs.peekable();
        while let Some(run) = runs.next() {
            let session = &self.sessions[self.clients[&run.from]];
            let mut batch = queue.batch(&session.paths[path]);
            batch.push(run.onward());
            while let Some(next) = runs.next_if(|next| next.from == run.from) {
                batch.push(next.onward());
            }
            batch.send();
        }
        Ok(())
    }

    /// Forwards from the server to a client. `token` identifies the client and the socket that
    /// received the server's datagrams.
    fn down(&self, token: usize, buffers: &mut RecvBatch, queue: &mut SendQueue) -> io::Result<()> {
        let (at, path) = (token / self.sources.len(), token % self.sources.len());
        let session = &self.sessions[at];
        while session.paths[path].take_error()?.is_some() {}
        let mut batch = queue.batch(&self.listener);
        for run in buffers.recv(&session.paths[path])? {
            let (to, source) = (Some(session.client), session.spoken_to);
            batch.push(Datagrams { to, source, ..run.onward() });
        }
        batch.send();
        Ok(())
    }

    fn open(&mut self, client: SocketAddr, spoken_to: Option<IpAddr>) -> io::Result<()> {
        let connect = |source| UdpSocket::connect(source, self.to, &UdpOptions::default());
        let paths = self.sources.iter().copied().map(connect).collect::<Result<Vec<_>, _>>()?;
        let at = self.sessions.len();
        for (i, path) in paths.iter().enumerate() {
            self.poller.add(path, (at * self.sources.len() + i) as u64)?;
        }
        self.clients.insert(client, at);
        self.sessions.push(Session { client, spoken_to, paths });
        Ok(())
    }
}
