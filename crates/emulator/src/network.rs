//! A running emulated network.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_os::poller::Poller;
use rustix::event::{EventfdFlags, eventfd};

use super::Namespace;
use super::edit::Edit;
use super::engine::Engine;
use super::setup::{self, SetupError};
use super::stats::LinkStats;
use super::topology::Topology;

/// Maximum time for which the thread that runs the links waits for a packet or a due event. A
/// request to stop is thus noticed within this time, even if it fails to wake the thread.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Niceness (scheduling priority) of the thread that runs the links.
const NICE: i32 = -10;

/// Poller token that identifies the waker. All tokens of interfaces differ from it.
const WAKER: u64 = u64::MAX;

/// An emulated network: its namespaces, its links, and the thread that carries packets between
/// them.
///
/// The network ends when this value is dropped, and when the process ends for any reason. A
/// process that still runs inside a host then keeps that host's namespace, but no link.
pub struct Network {
    hosts: Vec<(String, Namespace)>,
    congestion_control: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// An error: no link has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLink(pub String);

impl fmt::Display for UnknownLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the topology has no link `{}`; use a name of one of its [[link]] tables", self.0)
    }
}

impl std::error::Error for UnknownLink {}

struct Shared {
    engine: Mutex<Engine>,
    waker: OwnedFd,
    stop: AtomicBool,
}

impl Network {
    /// Builds the network and starts it.
    ///
    /// # Errors
    /// [`SetupError`] names the step that the machine refused. The effects of earlier steps are
    /// undone.
    pub fn start(topology: &Topology) -> Result<Network, SetupError> {
        setup::find_ipv6(topology)?;
        setup::find_translator(topology)?;
        let (namespaces, congestion_control) = setup::hosts(topology)?;
        let laid = |cable| Ok((cable, setup::cable(cable, &namespaces)?));
        let cables: Vec<_> = topology.links.iter().map(laid).collect::<Result<_, SetupError>>()?;
        setup::translation(topology, &namespaces)?;
        let mut engine = Engine::new();
        for (cable, tuns) in cables {
            setup::routes(cable, &tuns, &namespaces, topology.tcp)?;
            engine.add(cable, tuns, topology.seed);
        }
        for (at, host) in topology.hosts.iter().enumerate().filter(|(_, h)| !h.censor.is_empty()) {
            engine.censor(at, &host.censor);
        }
        engine.play(&topology.events);
        let (shared, thread) = launch(engine)
            .map_err(|cause| SetupError { step: "start the links' thread".to_owned(), cause })?;
        let names = topology.hosts.iter().map(|host| host.name.clone());
        let hosts = names.zip(namespaces).collect();
        Ok(Network { hosts, congestion_control, shared, thread: Some(thread) })
    }

    /// Returns the names and namespaces of the hosts, in the topology's order.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, &Namespace)> {
        self.hosts.iter().map(|(name, namespace)| (name.as_str(), namespace))
    }

    /// Returns the namespace of the host `name`; `None` if there is none.
    pub fn host(&self, name: &str) -> Option<&Namespace> {
        self.hosts().find(|(other, _)| *other == name).map(|(_, namespace)| namespace)
    }

    /// Returns the namespace of the host with the index `host`.
    pub(super) fn namespace(&self, host: usize) -> &Namespace {
        &self.hosts[host].1
    }

    /// Returns the hosts' default TCP congestion control. Routes over links override this default
    /// with the topology's congestion control ([`Topology::tcp`]).
    pub fn congestion_control(&self) -> &str {
        &self.congestion_control
    }

    /// Changes the properties of a link, such as rate or delay, from now on.
    pub fn change(&self, link: &str, edit: &Edit) -> Result<(), UnknownLink> {
        let known = self.shared.lock().change(link, edit);
        self.shared.wake();
        if known { Ok(()) } else { Err(UnknownLink(link.to_owned())) }
    }

    /// Returns the counters of all links, by the name of the link.
    pub fn stats(&self) -> BTreeMap<String, LinkStats> {
        self.shared.lock().stats()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // That thread has already reported its panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a poller for the waker and all interfaces.
    fn poller(&self) -> io::Result<Poller> {
        let poller = Poller::new(64)?;
        poller.add(&self.waker, WAKER)?;
        self.lock().watch(&poller)?;
        Ok(poller)
    }

    /// Wakes the thread that runs the links. Ignores an error: it means that the waker's counter
    /// is full, and then the thread is awake already.
    fn wake(&self) {
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    fn serve_one(&self, engine: &mut Engine, poller: &Poller, token: u64) {
        if token == WAKER {
            let _ = rustix::io::read(&self.waker, &mut [0; 8]);
        } else if engine.take_in(token).is_err() {
            // Another program has deleted the interface. If the interface stayed in the poller, it
            // would always be ready.
            let _ = engine.forget(token, poller);
        }
    }
}

fn launch(engine: Engine) -> io::Result<(Arc<Shared>, JoinHandle<()>)> {
    let waker = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
    let stop = AtomicBool::new(false);
    let shared = Arc::new(Shared { engine: Mutex::new(engine), waker, stop });
    let (other, (started, start)) = (Arc::clone(&shared), mpsc::sync_channel(1));
    let thread = thread::Builder::new().name("emulated links".to_owned()).spawn(move || {
        // A poller cannot move between threads, so this thread creates it, and reports errors to
        // the other thread.
        let poller = other.poller();
        let (poller, result) = poller.map_or_else(|e| (None, Err(e)), |p| (Some(p), Ok(())));
        let _ = started.send(result);
        poller.into_iter().for_each(|poller| serve(&other, poller));
    })?;
    start.recv().map_err(io::Error::other)??;
    Ok((shared, thread))
}

/// Runs the links until they are stopped. Each round waits for an event, reads packets from
/// interfaces and delivers packets.
fn serve(shared: &Shared, mut poller: Poller) {
    // Without this call, the kernel may wake the thread 50 µs late for every packet. If the call
    // fails, nothing else changes.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // The thread must not wait for the programs whose packets it carries. On Linux, this call sets
    // the niceness of this thread only. Without privilege, the niceness stays unchanged.
    let _ = rustix::process::setpriority_process(None, NICE);
    let mut timeout = Duration::ZERO;
    while !shared.stop.load(Ordering::Relaxed) {
        let ready: Vec<u64> = poller
            .wait(Some(timeout))
            .expect("waiting with a valid epoll instance and timeout cannot fail")
            .map(|ready| ready.token)
            .collect();
        let mut engine = shared.lock();
        ready.into_iter().for_each(|token| shared.serve_one(&mut engine, &poller, token));
        engine.follow_script();
        engine.hand_out();
        timeout = engine.until_due(LONGEST_WAIT);
    }
}
