//! The link between the ends, in real time.

use std::io;
use std::net::TcpListener;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anabranch_emulator::Namespace;
use anabranch_multipath::Time;
use anabranch_netem::{Link, LinkSettings, Loss};
use anabranch_os::clock::Clock;
use anabranch_os::poller::Poller;
use anabranch_tcp::Config;

use super::ends::{Core, Kernel, Shared, Stack, receive, send};
use super::{Cell, Goodput};

/// Maximum number of packets read from one interface before the other is read.
const BATCH: usize = 64;
/// Minimum size of a queue in bytes: two full packets.
const LEAST_QUEUE: f64 = 3_000.0;

enum End {
    Kernel(Kernel),
    Core(Box<Core>),
}

struct Line {
    clock: Clock,
    ends: [End; 2],
    ways: [Link<Vec<u8>>; 2],
    buffer: Vec<u8>,
}

/// Sends over the link of `cell` for its span and returns what the reader received.
pub fn measure(cell: Cell, seed: u64, stacks: [Stack; 2], config: &Config) -> io::Result<Goodput> {
    let control = config.congestion.name();
    let end = |side: usize| -> io::Result<End> {
        Ok(match stacks[side] {
            Stack::Linux => End::Kernel(Kernel::new(side, control)?),
            Stack::Ours => End::Core(Box::new(Core::new(side, config))),
        })
    };
    let mut line = Line {
        clock: Clock::start(),
        ends: [end(0)?, end(1)?],
        ways: links(cell, seed),
        buffer: vec![0; 65_535],
    };
    let sender = match &line.ends[0] {
        End::Kernel(kernel) => Some(kernel.namespace.try_clone()?),
        End::Core(_) => None,
    };
    let listener = match &line.ends[1] {
        End::Kernel(kernel) => Some(kernel.listen()?),
        End::Core(_) => None,
    };
    let shared = Shared::default();
    let received = run(&mut line, cell.span(), sender.as_ref(), listener.as_ref(), &shared)?;
    if shared.wrong.load(Relaxed) {
        return Err(io::Error::other(format!("{cell}: the reader received other bytes")));
    }
    let counters = line.ways[0].counters();
    let dropped = (counters.lost.units + counters.queue_full.units) as f64;
    Ok(Goodput {
        rate: received as f64 * 8.0 / 1e6 / cell.span().as_secs_f64(),
        dropped: dropped * 1e3 / counters.entered.units.max(1) as f64,
    })
}

fn run(
    line: &mut Line,
    span: Duration,
    sender: Option<&Namespace>,
    listener: Option<&TcpListener>,
    shared: &Shared,
) -> io::Result<u64> {
    thread::scope(|scope| {
        let app = sender.map(|namespace| scope.spawn(|| send(namespace, shared)));
        let reader = listener.map(|listener| scope.spawn(|| receive(listener, shared)));
        let result = line.carry(span, shared);
        let received = shared.received.load(Relaxed);
        shared.over.store(true, Relaxed);
        let ended = app.into_iter().chain(reader).map(|thread| thread.join());
        for thread in ended {
            thread.map_err(|_| io::Error::other("an end panicked"))??;
        }
        result.map(|()| received)
    })
}

fn links(cell: Cell, seed: u64) -> [Link<Vec<u8>>; 2] {
    let delay = Duration::from_micros(u64::from(cell.rtt) * 500);
    let way = LinkSettings {
        delay,
        queue: (cell.bdp() * cell.queue).max(LEAST_QUEUE) as usize,
        ..LinkSettings::with_rate(u64::from(cell.rate) * 1_000_000)
    };
    let loss = if cell.loss > 0.0 { Loss::Bernoulli(cell.loss / 100.0) } else { Loss::None };
    let jitter = if cell.reorders { delay / 10 } else { Duration::ZERO };
    let data = LinkSettings { loss, jitter, reorder: cell.reorders, ..way.clone() };
    [Link::new(data, seed, 0), Link::new(way, seed, 1)]
}

impl Line {
    /// Carries packets for `span`.
    fn carry(&mut self, span: Duration, shared: &Shared) -> io::Result<()> {
        let mut poller = Poller::new(4)?;
        for (end, token) in self.ends.iter().zip(0..) {
            if let End::Kernel(kernel) = end {
                poller.add(&kernel.tun, token)?;
            }
        }
        let start = self.clock.now();
        if let End::Core(core) = &mut self.ends[0] {
            core.connect(start);
        }
        let end = start + span;
        loop {
            self.emit();
            let now = self.clock.now();
            if now >= end {
                return Ok(());
            }
            let wait = self.due().unwrap_or(end).min(end).since(now);
            let ready: Vec<u64> = poller.wait(Some(wait))?.map(|ready| ready.token).collect();
            for token in ready {
                self.take_in(token as usize)?;
            }
            self.hand_out(shared)?;
        }
    }

    fn due(&self) -> Option<Time> {
        let links = self.ways.iter().filter_map(Link::next_timeout);
        let cores = self.ends.iter().filter_map(|end| match end {
            End::Core(core) => core.next_timeout(),
            End::Kernel(_) => None,
        });
        links.chain(cores).min()
    }

    /// Sends the packets of ends that are `anabranch-tcp`.
    fn emit(&mut self) {
        let now = self.clock.now();
        for (end, way) in self.ends.iter_mut().zip(&mut self.ways) {
            let End::Core(core) = end else { continue };
            while let Some(packet) = core.poll(now) {
                let length = packet.len();
                // The link counts the packets that it drops.
                let _ = way.push(now, packet, length);
            }
        }
    }

    fn take_in(&mut self, side: usize) -> io::Result<()> {
        let End::Kernel(kernel) = &self.ends[side] else { return Ok(()) };
        for _ in 0..BATCH {
            let Some(length) = kernel.tun.read(&mut self.buffer)? else { break };
            let packet = self.buffer[..length].to_vec();
            let _ = self.ways[side].push(self.clock.now(), packet, length);
        }
        Ok(())
    }

    /// Delivers the packets that have passed the link, in the order of arrival.
    fn hand_out(&mut self, shared: &Shared) -> io::Result<()> {
        let now = self.clock.now();
        loop {
            let way = (0..2).min_by_key(|&way| self.ways[way].next_timeout().unwrap_or(Time::MAX));
            let way = way.unwrap_or(0);
            if self.ways[way].next_timeout().is_none_or(|due| due > now) {
                return Ok(());
            }
            let Some(packet) = self.ways[way].pop(now) else { continue };
            match &mut self.ends[1 - way] {
                End::Kernel(kernel) => kernel.tun.write(&packet)?,
                End::Core(core) => {
                    core.handle(now, &packet, shared);
                    self.emit();
                }
            }
        }
    }
}
