//! Sends numbered, time-stamped datagrams of many sessions.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_bench::payload::{self, STAMP, Stamp};
use anabranch_bench::{proc, report};
use anabranch_os::udp::{Datagrams, SendQueue, UdpOptions, UdpSocket};
use clap::Parser;

/// Send numbered, time-stamped datagrams of many sessions to one address.
#[derive(Parser)]
struct Arguments {
    /// Send to this address.
    to: SocketAddr,
    /// Send for SECONDS.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Send RATE datagrams per second over all sessions; 0 sends as fast as possible.
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// Send datagrams of SIZE bytes, at least 20.
    #[arg(long, default_value_t = 1350)]
    size: usize,
    /// Send from SESSIONS sockets in turn. Each socket is a session.
    #[arg(long, default_value_t = 1)]
    sessions: usize,
    /// Send BURST datagrams of a session at a time.
    #[arg(long, default_value_t = 1)]
    burst: usize,
    /// Send each datagram separately, without segmentation offload.
    #[arg(long)]
    plain: bool,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let mut sender = Sender::open(&arguments)?;
    let report = sender.run(arguments.rate, arguments.seconds);
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

struct Sender {
    sessions: Vec<(UdpSocket, u64)>,
    turn: usize,
    size: usize,
    burst: usize,
    bytes: Vec<u8>,
    queue: SendQueue,
    report: report::Blast,
}

impl Sender {
    fn open(arguments: &Arguments) -> io::Result<Sender> {
        let options = UdpOptions { offload: !arguments.plain, ..UdpOptions::default() };
        let open = |_| Ok((UdpSocket::connect(None, arguments.to, &options)?, 0));
        let sessions = (0..arguments.sessions.max(1)).map(open).collect::<io::Result<_>>()?;
        let (size, burst) = (arguments.size.max(STAMP), arguments.burst.max(1));
        let (bytes, queue) = (vec![0; size * burst], SendQueue::new());
        let report = report::Blast::default();
        Ok(Sender { sessions, turn: 0, size, burst, bytes, queue, report })
    }

    /// Sends for `seconds`. Datagrams that are late are sent as soon as possible, so the mean rate
    /// is kept.
    fn run(&mut self, rate: f64, seconds: f64) -> report::Blast {
        let (start, length) = (payload::now(), (seconds * 1e9) as u64);
        let cpu = proc::cpu(std::process::id()).unwrap_or(0.0);
        let mut offered = 0u64;
        loop {
            let passed = payload::now() - start;
            if passed >= length {
                break;
            }
            if rate > 0.0 && offered as f64 > passed as f64 * rate / 1e9 {
                let due = (offered as f64 / rate * 1e9) as u64;
                std::thread::sleep(Duration::from_nanos(due.saturating_sub(passed)));
                continue;
            }
            self.send();
            offered += self.burst as u64;
        }
        self.report.seconds = (payload::now() - start) as f64 / 1e9;
        self.report.cpu = proc::cpu(std::process::id()).unwrap_or(f64::NAN) - cpu;
        self.report.clone()
    }

    /// Sends one burst of the next session.
    fn send(&mut self) {
        let (socket, number) = &mut self.sessions[self.turn];
        let sent = payload::now();
        for datagram in self.bytes.chunks_exact_mut(self.size) {
            Stamp { session: self.turn as u32, number: *number, sent }.write(datagram);
            *number += 1;
        }
        let mut batch = self.queue.batch(socket);
        batch.push(Datagrams { stride: self.size, ..Datagrams::one(&self.bytes) });
        let outcome = batch.send();
        self.report.sent += outcome.sent as u64;
        self.report.refused += outcome.failed() as u64;
        self.turn = (self.turn + 1) % self.sessions.len();
    }
}
