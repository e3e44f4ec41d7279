//! A relay's event loops (shards) after the first, each on its own thread. The first event loop
//! passes connections and updates to them, and receives their events.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use anabranch_links::tls::Context;
use anabranch_multipath::Time;
use anabranch_onion::Event;
use anabranch_onion::channel::Role;
use anabranch_onion::relay::{Behaviour, NetworkParams};
use anabranch_onion::wire::crypto::CurveKeys;

use super::shard::{Newcomer, Parts, Shard};
use super::{LiveSettings, Numbers, Watch};
use crate::onion::answers::Answers;
use crate::onion::links::ring::Waker;
use crate::onion::station::TICK;

/// Message from a relay's first event loop to another.
pub(super) enum WorkerOrder {
    /// Request to serve this incoming connection.
    Link(Newcomer),
    Params(NetworkParams),
    Cache(Arc<dyn Answers>),
    /// Request to use these new credentials in link handshakes: the first for incoming links, the
    /// second for outgoing links.
    Roles(Role, Role),
    /// Request to use this TLS certificate for new links.
    Tls(Context),
    OnionKeys(Vec<CurveKeys>),
    /// Request to accept no new links, and to report when no circuits are left.
    Refuse,
    /// Request to apply these new settings of the relay: its own, and those of the protocol core.
    Live(Box<LiveSettings>, Behaviour),
}

/// Message from one of a relay's event loops to the first.
enum WorkerReport {
    Event(Time, Event),
    Note(String),
    Numbers(usize, Box<Numbers>),
    /// Confirmation that the event loop with this index accepts no new links any more, with its
    /// present counters.
    Refusing(usize, Box<Numbers>),
    Failed(io::Error),
}

/// Handles of all of a relay's event loops except the first.
pub(super) struct Workers {
    workers: Vec<WorkerHandle>,
    inbox: Receiver<WorkerReport>,
    numbers: Vec<Numbers>,
    /// For each event loop, whether it has confirmed that it accepts no new links.
    refusing: Vec<bool>,
    /// Index of the event loop that gets the next connection. The event loops take turns; 0 is the
    /// first.
    turn: usize,
}

struct WorkerHandle {
    /// Sender of messages to the event loop. The thread of the event loop ends when the sender is
    /// dropped, which leaves `None`.
    orders: Option<Sender<WorkerOrder>>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// Starts a thread for each of `shards`. The event loop is created on that thread; if this
    /// fails, [`Workers::listen`] returns the error. `first` wakes the first event loop.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn start(shards: Vec<Parts>, first: &Arc<Waker>) -> io::Result<Workers> {
        let (reports, inbox) = channel();
        let numbers = vec![Numbers::default(); shards.len()];
        let refusing = vec![false; shards.len()];
        let start = |(number, shard)| {
            let reporter = ReportSender { reports: reports.clone(), first: Arc::clone(first) };
            WorkerHandle::start(number, shard, reporter)
        };
        let workers = shards.into_iter().enumerate().map(start).collect::<io::Result<Vec<_>>>()?;
        Ok(Workers { workers, inbox, numbers, refusing, turn: 0 })
    }

    /// Passes a connection to the event loop whose turn it is, and returns `None`. If it is the
    /// first event loop's turn, returns the connection.
    pub(super) fn hand(&mut self, newcomer: Newcomer) -> Option<Newcomer> {
        let turn = self.turn;
        self.turn = (turn + 1) % (self.workers.len() + 1);
        match turn.checked_sub(1) {
            Some(hand) => {
                self.workers[hand].send(WorkerOrder::Link(newcomer));
                None
            }
            None => Some(newcomer),
        }
    }

    /// Sends a message to each event loop except the first.
    pub(super) fn send(&self, order: impl Fn() -> WorkerOrder) {
        self.workers.iter().for_each(|hand| hand.send(order()));
    }

    /// Forwards the events and messages from the other event loops to `watch`.
    ///
    /// # Errors
    /// One of the other event loops has failed.
    pub(super) fn listen(&mut self, watch: &mut dyn Watch) -> io::Result<()> {
        while let Ok(report) = self.inbox.try_recv() {
            match report {
                WorkerReport::Event(now, event) => watch.event(now, &event),
                WorkerReport::Note(text) => watch.note(&text),
                WorkerReport::Numbers(number, numbers) => self.numbers[number] = *numbers,
                WorkerReport::Refusing(number, numbers) => {
                    self.numbers[number] = *numbers;
                    self.refusing[number] = true;
                }
                WorkerReport::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the sum of the other event loops' latest counters, which are at most a second old.
    pub(super) fn numbers(&self) -> Numbers {
        self.numbers.iter().fold(Numbers::default(), |sum, numbers| sum.with(numbers))
    }

    /// Returns whether all of the other event loops have confirmed that they accept no new links,
    /// and have no circuits left.
    pub(super) fn are_drained(&self) -> bool {
        self.refusing.iter().all(|&refusing| refusing) && self.numbers().stats.circuits == 0
    }
}

impl WorkerHandle {
    fn start(number: usize, parts: Parts, mut reporter: ReportSender) -> io::Result<WorkerHandle> {
        let waker = Arc::clone(parts.siblings.waker());
        let (orders, ordered) = channel();
        let work = move || {
            let worked =
                Shard::new(parts).and_then(|shard| work(number, shard, &ordered, &mut reporter));
            if let Err(error) = worked {
                reporter.send(WorkerReport::Failed(error));
            }
        };
        let thread = thread::Builder::new().name(format!("shard {}", number + 1)).spawn(work)?;
        Ok(WorkerHandle { orders: Some(orders), waker, thread: Some(thread) })
    }

    fn send(&self, order: WorkerOrder) {
        // If the event loop has failed, it has reported that already.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
        self.waker.wake();
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // If the thread has panicked, the panic message was printed already.
            let _ = thread.join();
        }
    }
}

/// Runs the event loop `shard` until the sender of `orders` is dropped.
///
/// # Errors
/// A system call fails.
fn work(
    number: usize,
    mut shard: Shard,
    orders: &Receiver<WorkerOrder>,
    reporter: &mut ReportSender,
) -> io::Result<()> {
    use std::sync::mpsc::TryRecvError;
    let mut ticked = Time::ZERO;
    // True if this event loop has reported that it has no circuits left.
    let mut drained = false;
    loop {
        let (now, _) = shard.turn(reporter)?;
        loop {
            match orders.try_recv() {
                Ok(order) => follow(now, &mut shard, order, reporter),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        shard.execute(now, reporter);
        if drained != shard.is_drained() {
            drained = !drained;
            reporter.send(WorkerReport::Refusing(number, Box::new(shard.numbers())));
            reporter.first.wake();
        }
        if now.since(ticked) >= TICK {
            ticked = now;
            reporter.send(WorkerReport::Numbers(number, Box::new(shard.numbers())));
        }
    }
}

fn follow(now: Time, shard: &mut Shard, order: WorkerOrder, reporter: &mut ReportSender) {
    let core = &mut shard.station.core;
    match order {
        WorkerOrder::Link(newcomer) => shard.accept(newcomer, reporter),
        WorkerOrder::Params(params) => core.set_network_params(&params),
        WorkerOrder::Cache(cache) => shard.set_cache(now, cache),
        WorkerOrder::Roles(responder, initiator) => core.set_roles(responder, initiator),
        WorkerOrder::Tls(context) => {
            let shown = shard.station.set_context(&context);
            shown.unwrap_or_else(|error| {
                reporter.note(&format!(
                    "cannot renew the TLS key of this relay's links, so the earlier key stays in \
                     use: {error}"
                ))
            });
        }
        WorkerOrder::Refuse => shard.refuse(),
        WorkerOrder::OnionKeys(keys) => core.set_onion_keys(keys),
        WorkerOrder::Live(live, behaviour) => shard.adopt(&live, behaviour),
    }
}

/// Sender of messages from one of a relay's event loops to the first.
struct ReportSender {
    reports: Sender<WorkerReport>,
    /// Waker of the relay's first event loop.
    first: Arc<Waker>,
}

impl ReportSender {
    fn send(&self, report: WorkerReport) {
        // If there is no receiver, the first event loop is ending, and will also end this event
        // loop.
        let _ = self.reports.send(report);
    }
}

/// Reports a panic of an event loop's thread. The relay then ends, because the links and circuits
/// of that event loop no longer work.
impl Drop for ReportSender {
    fn drop(&mut self) {
        if thread::panicking() {
            let error = io::Error::other("a thread that forwards cells has panicked");
            self.send(WorkerReport::Failed(error));
        }
    }
}

impl Watch for ReportSender {
    fn listening(&mut self, _: &[SocketAddr]) {}

    fn event(&mut self, now: Time, event: &Event) {
        self.send(WorkerReport::Event(now, event.clone()));
    }

    fn numbers(&mut self, _: Time, _: &Numbers) {}

    fn note(&mut self, text: &str) {
        self.send(WorkerReport::Note(text.to_owned()));
    }
}
