//! Receives the datagrams of `udp-blast`, and reports loss, rate and one-way delay.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_bench::payload::{self, Stamp};
use anabranch_bench::{proc, report};
use anabranch_os::poller::Poller;
use anabranch_os::udp::{Datagrams, Received, RecvBatch, SendQueue, UdpOptions, UdpSocket};
use clap::Parser;

/// Maximum number of delays that are stored.
const SAMPLES: usize = 4 << 20;

/// Receive the datagrams of udp-blast; print "ready ADDRESS", then the result as JSON.
#[derive(Parser)]
struct Arguments {
    /// Listen at this address; port 0 is any free port.
    listen: SocketAddr,
    /// End after SECONDS.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// End when no datagram has arrived for IDLE milliseconds after the first one.
    #[arg(long, default_value_t = 300)]
    idle: u64,
    /// Receive each datagram separately, without receive offload.
    #[arg(long)]
    plain: bool,
    /// Send each datagram back.
    #[arg(long)]
    echo: bool,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let options = UdpOptions { offload: !arguments.plain, ..UdpOptions::default() };
    let socket = UdpSocket::bind(arguments.listen, &options)?;
    println!("ready {}", socket.local_addr()?);
    io::stdout().flush()?;
    let report = run(&socket, &arguments)?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn run(socket: &UdpSocket, arguments: &Arguments) -> io::Result<report::Sink> {
    let mut poller = Poller::new(1)?;
    poller.add(socket, 0)?;
    let (mut buffers, mut queue, mut count) = (RecvBatch::new(32), SendQueue::new(), Count::new());
    let end = payload::now() + (arguments.seconds * 1e9) as u64;
    let idle = Duration::from_millis(arguments.idle);
    while payload::now() < end {
        let left = Duration::from_nanos(end.saturating_sub(payload::now()));
        let wait = if count.report.runs == 0 { left } else { left.min(idle) };
        if poller.wait(Some(wait))?.count() == 0 && count.report.runs > 0 {
            break;
        }
        let runs = match buffers.recv(socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            runs => runs?,
        };
        let now = payload::now();
        runs.clone().for_each(|run| count.add(now, &run));
        if arguments.echo {
            let mut batch = queue.batch(socket);
            runs.for_each(|run| batch.push(back(run)));
            batch.send();
        }
    }
    Ok(count.finish())
}

fn back(run: Received<'_>) -> Datagrams<'_> {
    Datagrams { to: Some(run.from), source: run.to, ..run.onward() }
}

/// One session: the number of datagrams received, and the next number if none is lost.
#[derive(Clone, Copy, Default)]
struct Session {
    received: u64,
    next: u64,
}

struct Count {
    report: report::Sink,
    sessions: Vec<Session>,
    sources: Vec<(IpAddr, u64)>,
    delays: Vec<u64>,
    span: Option<(u64, u64)>,
}

impl Count {
    fn new() -> Count {
        let (report, sessions) = (report::Sink::default(), Vec::new());
        Count { report, sessions, sources: Vec::new(), delays: Vec::new(), span: None }
    }

    /// Counts a run that was received at `now`.
    fn add(&mut self, now: u64, run: &Received<'_>) {
        self.report.runs += 1;
        self.report.bytes += run.bytes.len() as u64;
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
        let first = run.datagrams().next().and_then(Stamp::read);
        if let Some(first) = first.filter(|_| self.delays.len() < SAMPLES) {
            self.delays.push(now.saturating_sub(first.sent));
        }
        run.datagrams().for_each(|datagram| self.one(datagram));
        let ip = run.from.ip();
        match self.sources.iter_mut().find(|(source, _)| *source == ip) {
            Some((_, count)) => *count += run.count() as u64,
            None => self.sources.push((ip, run.count() as u64)),
        }
    }

    fn one(&mut self, datagram: &[u8]) {
        // A datagram from another program must not cause an allocation for four billion sessions.
        let Some(stamp) = Stamp::read(datagram).filter(|stamp| stamp.session < 1 << 20) else {
            self.report.foreign += 1;
            return;
        };
        self.report.received += 1;
        let at = stamp.session as usize;
        if at >= self.sessions.len() {
            self.sessions.resize(at + 1, Session::default());
        }
        let session = &mut self.sessions[at];
        session.received += 1;
        self.report.reordered += u64::from(stamp.number < session.next);
        session.next = session.next.max(stamp.number.saturating_add(1));
    }

    fn finish(mut self) -> report::Sink {
        let missing = |session: &Session| session.next.saturating_sub(session.received);
        self.report.lost = self.sessions.iter().map(missing).sum();
        let seen = self.sessions.iter().filter(|session| session.received > 0);
        self.report.sessions = seen.count() as u64;
        self.report.seconds = self.span.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9);
        self.report.delay = report::Delay::of(&mut self.delays);
        self.report.sources = self.sources.into_iter().collect::<BTreeMap<_, _>>();
        self.report.cpu = proc::cpu(std::process::id()).unwrap_or(f64::NAN);
        self.report
    }
}
