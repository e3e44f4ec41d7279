//! The other shards of a relay, each on its own thread. The first shard passes connections and
//! updates to them, and receives their events.

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
use super::{Live, Numbers, Watch};
use crate::onion::answers::Answers;
use crate::onion::links::ring::Bell;
use crate::onion::station::TICK;

/// Order from the first shard to another one.
pub(super) enum WorkerOrder {
    /// A neighbour has opened this connection, which the shard should service.
    Link(Newcomer),
    Params(NetworkParams),
    Cache(Arc<dyn Answers>),
    /// New credentials: for incoming links, and for outgoing links.
    Roles(Role, Role),
    /// Context with the certificate of new TLS links.
    Tls(Context),
    OnionKeys(Vec<CurveKeys>),
    /// The shard should accept no new links, and report when it has no circuits left.
    Refuse,
    /// The relay's settings have changed.
    Live(Box<Live>, Behaviour),
}

/// Report of another shard to the first one.
enum WorkerReport {
    Event(Time, Event),
    Note(String),
    Numbers(usize, Box<Numbers>),
    /// The shard of this index accepts no new links, and has these counters now.
    Refusing(usize, Box<Numbers>),
    Failed(io::Error),
}

/// Handles of all shards but the first.
pub(super) struct Workers {
    workers: Vec<Hand>,
    told: Receiver<WorkerReport>,
    numbers: Vec<Numbers>,
    /// Whether each shard has confirmed that it accepts no new links.
    refusing: Vec<bool>,
    /// Index of the shard that receives the next connection; 0 is the first shard.
    turn: usize,
}

struct Hand {
    /// Sender of orders. It is dropped to end the thread.
    orders: Option<Sender<WorkerOrder>>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// Starts the threads of `shards`. Each shard is created on its own thread. If that fails,
    /// [`Workers::listen`] returns the error. `first` is the waker of the first shard.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn start(shards: Vec<Parts>, first: &Arc<Bell>) -> io::Result<Workers> {
        let (reports, told) = channel();
        let numbers = vec![Numbers::default(); shards.len()];
        let refusing = vec![false; shards.len()];
        let start = |(number, shard)| {
            let teller = ReportSender { reports: reports.clone(), first: Arc::clone(first) };
            Hand::start(number, shard, teller)
        };
        let workers = shards.into_iter().enumerate().map(start).collect::<io::Result<Vec<_>>>()?;
        Ok(Workers { workers, told, numbers, refusing, turn: 0 })
    }

    /// Passes `newcomer` to the next shard. Returns the connection if the first shard is next.
    pub(super) fn hand(&mut self, newcomer: Newcomer) -> Option<Newcomer> {
        let turn = self.turn;
        self.turn = (turn + 1) % (self.workers.len() + 1);
        match turn.checked_sub(1) {
            Some(hand) => {
                self.workers[hand].tell(WorkerOrder::Link(newcomer));
                None
            }
            None => Some(newcomer),
        }
    }

    /// Sends `order` to each of the other shards.
    pub(super) fn tell(&self, order: impl Fn() -> WorkerOrder) {
        self.workers.iter().for_each(|hand| hand.tell(order()));
    }

    /// Forwards the other shards' reports to `watch`.
    ///
    /// # Errors
    /// One of the other shards has failed.
    pub(super) fn listen(&mut self, watch: &mut dyn Watch) -> io::Result<()> {
        while let Ok(told) = self.told.try_recv() {
            match told {
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

    /// Returns the sum of the other shards' latest counters, which are at most a second old.
    pub(super) fn numbers(&self) -> Numbers {
        self.numbers.iter().fold(Numbers::default(), |sum, numbers| sum.with(numbers))
    }

    /// Returns whether all of the other shards have confirmed [`WorkerOrder::Refuse`] and have no
    /// circuits.
    pub(super) fn are_drained(&self) -> bool {
        self.refusing.iter().all(|&refusing| refusing) && self.numbers().stats.circuits == 0
    }
}

impl Hand {
    fn start(number: usize, parts: Parts, mut teller: ReportSender) -> io::Result<Hand> {
        let bell = Arc::clone(parts.siblings.bell());
        let (orders, ordered) = channel();
        let work = move || {
            let worked =
                Shard::new(parts).and_then(|shard| work(number, shard, &ordered, &mut teller));
            if let Err(error) = worked {
                teller.tell(WorkerReport::Failed(error));
            }
        };
        let thread = thread::Builder::new().name(format!("shard {}", number + 1)).spawn(work)?;
        Ok(Hand { orders: Some(orders), bell, thread: Some(thread) })
    }

    fn tell(&self, order: WorkerOrder) {
        // If the shard has failed, it has reported that itself.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
        self.bell.ring();
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed on standard error.
            let _ = thread.join();
        }
    }
}

/// Runs `shard` until the sender of `orders` is dropped.
///
/// # Errors
/// A system call fails.
fn work(
    number: usize,
    mut shard: Shard,
    orders: &Receiver<WorkerOrder>,
    teller: &mut ReportSender,
) -> io::Result<()> {
    use std::sync::mpsc::TryRecvError;
    let mut ticked = Time::ZERO;
    // Whether this shard has reported that it has no circuits left.
    let mut drained = false;
    loop {
        let (now, _) = shard.turn(teller)?;
        loop {
            match orders.try_recv() {
                Ok(order) => follow(now, &mut shard, order, teller),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        shard.execute(now, teller);
        if drained != shard.is_drained() {
            drained = !drained;
            teller.tell(WorkerReport::Refusing(number, Box::new(shard.numbers())));
            teller.first.ring();
        }
        if now.since(ticked) >= TICK {
            ticked = now;
            teller.tell(WorkerReport::Numbers(number, Box::new(shard.numbers())));
        }
    }
}

fn follow(now: Time, shard: &mut Shard, order: WorkerOrder, teller: &mut ReportSender) {
    let core = &mut shard.station.core;
    match order {
        WorkerOrder::Link(newcomer) => shard.accept(newcomer, teller),
        WorkerOrder::Params(params) => core.set_network_params(&params),
        WorkerOrder::Cache(cache) => shard.set_cache(now, cache),
        WorkerOrder::Roles(responder, initiator) => core.set_roles(responder, initiator),
        WorkerOrder::Tls(context) => {
            let shown = shard.station.set_context(&context);
            shown.unwrap_or_else(|error| {
                teller.note(&format!(
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

/// Sender of a shard's reports to the first shard's thread.
struct ReportSender {
    reports: Sender<WorkerReport>,
    /// Waker of the first shard.
    first: Arc<Bell>,
}

impl ReportSender {
    fn tell(&self, told: WorkerReport) {
        // If there is no receiver, the first shard is ending, and will end this shard, too.
        let _ = self.reports.send(told);
    }
}

/// Reports a panic of a shard's thread. The shard's links and circuits are stuck then, so the relay
/// ends.
impl Drop for ReportSender {
    fn drop(&mut self) {
        if thread::panicking() {
            let error = io::Error::other("a thread that forwards cells has panicked");
            self.tell(WorkerReport::Failed(error));
        }
    }
}

impl Watch for ReportSender {
    fn listening(&mut self, _: &[SocketAddr]) {}

    fn event(&mut self, now: Time, event: &Event) {
        self.tell(WorkerReport::Event(now, event.clone()));
    }

    fn numbers(&mut self, _: Time, _: &Numbers) {}

    fn note(&mut self, text: &str) {
        self.tell(WorkerReport::Note(text.to_owned()));
    }
}
