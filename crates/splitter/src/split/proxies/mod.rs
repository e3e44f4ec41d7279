//! Associations (UDP relays) of the proxies of paths: one for each four-tuple, and a spare one.
//!
//! A proxy sends the datagrams of each association from a separate address, so that it can assign
//! the server's answers to associations. If two sessions shared an association, they would look
//! like one client to the server, and their answers could not be distinguished. So each four-tuple
//! of a session has its own association.
//!
//! The *spare* association is opened in advance, so that the first datagram of a session need not
//! wait. Its connection also shows at once that a proxy has failed, even while nothing is sent.
//! Dialogues with proxies block, so each runs on a separate thread.

mod proxy_state;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use anabranch_comps::{DownReason, Renumbering, SessionId, TupleId};
use anabranch_multipath::{PathId, Time};

use self::proxy_state::ProxyState;
use super::egress_table::{EgressTable, RouteLookup};
use super::onward::Outgoing;
use crate::paths::{Egress, Fault, PathError, PathSpec};
use crate::socks::{Association, ConnectSettings, Proxy, ProxyFault, associate};

/// Maximum bytes queued for a four-tuple that waits for an association (a UDP relay of its proxy).
const KEPT: usize = 256 << 10;

/// Number of low bits of `ProxyPath::era`, which count changes of a path's egress (interface,
/// source address and route). The higher bits are `Proxies::generation`.
const GENERATION_SHIFT: u32 = 32;

/// The result of an attempt to open an association (a UDP relay of a proxy).
#[derive(Debug)]
pub(super) enum Outcome {
    /// The proxy relays for us.
    Relay(Association),
    /// The proxy does not relay for us.
    Fault(ProxyFault),
    /// The proxy's name now resolves to these other addresses.
    Moved(Vec<SocketAddr>),
}

/// A four-tuple that waits for an association (a UDP relay of a proxy), with its queued datagrams.
#[derive(Debug)]
pub(super) struct WaitingTuple {
    pub(super) session: SessionId,
    pub(super) tuple: TupleId,
    pub(super) kept: Vec<Outgoing<'static>>,
}

impl WaitingTuple {
    fn renumber(&mut self, path: PathId, tuple: TupleId) {
        self.tuple = tuple;
        self.kept.iter_mut().for_each(|outgoing| (outgoing.path, outgoing.tuple) = (path, tuple));
    }

    /// Returns the size of the four-tuple's queue, in datagrams and in bytes.
    pub(super) fn load(&self) -> (usize, usize) {
        let count = self.kept.iter().map(Outgoing::count).sum();
        (count, self.kept.iter().map(|outgoing| outgoing.bytes.len()).sum())
    }
}

/// The state of one path with a proxy.
#[derive(Debug)]
struct ProxyPath {
    name: String,
    proxy: Proxy,
    proxy_state: ProxyState,
    /// The spare association (a UDP relay opened in advance), and the time at which it was opened;
    /// `None` if there is none now.
    spare: Option<(Association, Time)>,
    waiting: VecDeque<WaitingTuple>,
    /// Reason why the route to the proxy does not work; `None` if it works.
    down_reason: Option<DownReason>,
    /// Sequence number of the present era. A new era begins when the path's egress (interface,
    /// source address and route) or its index changes. Results of connection attempts to the proxy
    /// that began in an earlier era are ignored.
    era: u64,
    /// The warning about the proxy that was shown last; `None` if the proxy has worked since.
    reported: Option<String>,
}

impl ProxyPath {
    fn new(name: &str, proxy: &Proxy) -> ProxyPath {
        ProxyPath {
            name: name.into(),
            proxy: proxy.clone(),
            proxy_state: ProxyState::default(),
            spare: None,
            waiting: VecDeque::new(),
            down_reason: None,
            era: 0,
            reported: None,
        }
    }

    /// Returns the number of associations (UDP relays of proxies) that the path still needs.
    fn wanted(&self) -> usize {
        if self.down_reason.is_some() {
            return 0;
        }
        self.waiting.len() + usize::from(self.spare.is_none())
    }

    fn broken(&self) -> Option<DownReason> {
        self.down_reason.or_else(|| self.proxy_state.is_broken().then_some(DownReason::Proxy))
    }
}

/// All paths with proxies.
#[derive(Debug)]
pub(super) struct Proxies {
    places: BTreeMap<PathId, ProxyPath>,
    /// Number of times that the paths' indices have changed. This count is the upper half of
    /// `ProxyPath::era`.
    generation: u64,
    fwmark: Option<u32>,
    answers: Receiver<(PathId, u64, Outcome)>,
    sender: AnswerSender,
    wake_receiver: UnixStream,
}

/// The channel on which the threads that talk to proxies send their results.
#[derive(Clone, Debug)]
struct AnswerSender {
    answered: Sender<(PathId, u64, Outcome)>,
    wake_sender: Arc<UnixStream>,
}

impl Proxies {
    /// Asks every proxy for a spare association (a UDP relay), and waits until all of them have
    /// granted one.
    ///
    /// # Errors
    /// A proxy does not serve us (inner error), or no socket or thread is available (outer error).
    pub(super) fn start(
        specs: &[PathSpec],
        egresses: &[Egress],
        fwmark: Option<u32>,
    ) -> io::Result<Result<Proxies, PathError>> {
        let (answered, answers) = mpsc::channel();
        let (wake_receiver, wake_sender) = UnixStream::pair()?;
        wake_receiver.set_nonblocking(true)?;
        wake_sender.set_nonblocking(true)?;
        let sender = AnswerSender { answered, wake_sender: Arc::new(wake_sender) };
        let mut proxies = Proxies {
            places: BTreeMap::new(),
            generation: 0,
            fwmark,
            answers,
            sender,
            wake_receiver,
        };
        for (index, (spec, egress)) in specs.iter().zip(egresses).enumerate() {
            if let Some(proxy) = &spec.proxy {
                proxies.add(PathId::at(index), &spec.name, proxy, egress);
            }
        }
        let outcome = (0..proxies.places.len()).try_for_each(|_| proxies.first_answer());
        Ok(outcome.map(|()| proxies))
    }

    /// Applies the new indices of paths and four-tuples after a change of settings. The next
    /// [`Proxies::ask`] asks the proxies of new paths for associations (UDP relays). Datagrams for
    /// such a path wait until its proxy answers.
    pub(super) fn renumber(&mut self, numbers: &Renumbering, specs: &[PathSpec]) {
        self.generation += 1;
        let era = self.generation << GENERATION_SHIFT;
        for (path, mut place) in std::mem::take(&mut self.places) {
            let Some(path) = numbers.path(path) else { continue };
            // Results of pending attempts carry the old path number and are ignored, so these
            // attempts are repeated.
            place.era = era;
            place.proxy_state.on_renumbering();
            place.waiting.retain_mut(|waiting| match numbers.tuple(waiting.tuple) {
                Some((path, tuple)) => {
                    waiting.renumber(path, tuple);
                    true
                }
                None => false,
            });
            self.places.insert(path, place);
        }
        for (index, spec) in specs.iter().enumerate() {
            if let Some(proxy) = &spec.proxy {
                let place = || ProxyPath { era, ..ProxyPath::new(&spec.name, proxy) };
                self.places.entry(PathId::at(index)).or_insert_with(place);
            }
        }
    }

    fn add(&mut self, path: PathId, name: &str, proxy: &Proxy, egress: &Egress) {
        let mut place = ProxyPath::new(name, proxy);
        place.proxy_state.begin(Time::ZERO, 1);
        self.sender.ask(path, &place, egress, self.fwmark, false);
        self.places.insert(path, place);
    }

    fn first_answer(&mut self) -> Result<(), PathError> {
        let (path, _, outcome) = self
            .answers
            .recv()
            .expect("each attempt sends an answer, and this object keeps a sender open");
        let place = self.places.get_mut(&path).expect("the path was added above");
        let blame = |fault| PathError {
            path: place.name.clone(),
            fault: Fault::Proxy(place.proxy.at.clone(), fault),
        };
        match outcome {
            Outcome::Relay(association) => {
                place.proxy_state.on_success();
                place.spare = Some((association, Time::ZERO));
                Ok(())
            }
            Outcome::Fault(fault) => Err(blame(fault)),
            Outcome::Moved(_) => {
                unreachable!("a first attempt uses the address that was just looked up")
            }
        }
    }

    /// Returns the number of paths with proxies.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the paths with proxies.
    pub(super) fn paths(&self) -> Vec<PathId> {
        self.places.keys().copied().collect()
    }

    /// Returns whether `path` has a proxy.
    pub(super) fn has(&self, path: PathId) -> bool {
        self.places.contains_key(&path)
    }

    /// Returns why `path` is down because of its proxy, or of the route to the proxy; `None` if
    /// neither has a fault.
    pub(super) fn broken(&self, path: PathId) -> Option<DownReason> {
        self.places.get(&path)?.broken()
    }

    /// Returns the spare association (a UDP relay of a proxy) of a path, so that the caller can
    /// watch its connection; `None` if the path has none now.
    pub(super) fn spare(&self, path: PathId) -> Option<&Association> {
        Some(&self.places.get(&path)?.spare.as_ref()?.0)
    }

    /// Removes and returns the spare association (a UDP relay of a proxy) of `path`, for a
    /// four-tuple, with the time at which it was opened. Returns `None` if the path has no spare
    /// association.
    pub(super) fn take(&mut self, path: PathId) -> Option<(Association, Time)> {
        let place = self.places.get_mut(&path)?;
        // An association that has just ended would lose the datagrams.
        place.spare.take().filter(|(spare, _)| !spare.is_over())
    }

    /// Queues the datagrams of a four-tuple until an association (a UDP relay of a proxy) is
    /// available. Returns the number of datagrams and of bytes that did not fit into the queue;
    /// `None` if no association can be expected.
    pub(super) fn keep(
        &mut self,
        now: Time,
        (session, tuple, path): (SessionId, TupleId, PathId),
        outgoing: &[Outgoing<'_>],
    ) -> Option<(usize, usize)> {
        let place = self.places.get_mut(&path)?;
        if place.down_reason.is_some() || !place.proxy_state.is_hopeful(now) {
            return None;
        }
        let known = place.waiting.iter().position(|w| (w.session, w.tuple) == (session, tuple));
        let index = known.unwrap_or_else(|| {
            place.proxy_state.on_wait(now);
            place.waiting.push_back(WaitingTuple { session, tuple, kept: Vec::new() });
            place.waiting.len() - 1
        });
        let waiting = &mut place.waiting[index];
        let mut refused = (0, 0);
        for each in outgoing {
            if waiting.load().1 + each.bytes.len() <= KEPT {
                waiting.kept.push(each.kept());
            } else {
                refused = (refused.0 + each.count(), refused.1 + each.bytes.len());
            }
        }
        Some(refused)
    }

    /// Drops the four-tuples of a closed session that wait for an association (a UDP relay of a
    /// proxy).
    pub(super) fn forget(&mut self, session: SessionId) {
        for place in self.places.values_mut() {
            place.waiting.retain(|waiting| waiting.session != session);
        }
    }

    /// Begins the due attempts to open associations (UDP relays of proxies).
    pub(super) fn ask(&mut self, now: Time, egress_table: &EgressTable) {
        for (&path, place) in &mut self.places {
            let wanted = place.wanted();
            for _ in 0..place.proxy_state.begin(now, wanted) {
                // A proxy that failed may have another address now, so its name is resolved again.
                let afresh = place.proxy_state.is_broken();
                self.sender.ask(path, place, egress_table.of(path), self.fwmark, afresh);
            }
        }
    }

    /// Returns the next result of an attempt to open an association (a UDP relay of a proxy);
    /// `None` if there is none. Skips results from before a change of the path's egress or index.
    pub(super) fn answer(&mut self) -> Option<(PathId, Outcome)> {
        let mut wake_ups = [0; 64];
        let _ = self.wake_receiver.read(&mut wake_ups);
        loop {
            let (path, era, outcome) = self.answers.try_recv().ok()?;
            if self.places.get(&path).is_some_and(|place| place.era == era) {
                return Some((path, outcome));
            }
        }
    }

    /// Handles an association (a UDP relay of a proxy) that was opened. Returns the waiting
    /// four-tuple that gets it; `None` if it becomes the spare one.
    pub(super) fn on_relay(
        &mut self,
        now: Time,
        path: PathId,
        association: Association,
    ) -> Option<(WaitingTuple, Association)> {
        let place = self.places.get_mut(&path)?;
        place.proxy_state.on_success();
        place.reported = None;
        match place.waiting.pop_front() {
            Some(waiting) => Some((waiting, association)),
            None => {
                place.spare = Some((association, now));
                None
            }
        }
    }

    /// Handles a failed attempt to open an association. `alone` is true if no four-tuple of the
    /// path has an association (UDP relay of the proxy). Returns the warning to show; `None` if it
    /// equals the last warning.
    pub(super) fn on_fault(
        &mut self,
        now: Time,
        path: PathId,
        fault: ProxyFault,
        alone: bool,
    ) -> Option<String> {
        let place = self.places.get_mut(&path)?;
        let alone = alone && place.spare.is_none();
        place.proxy_state.on_failure(now, alone);
        let blame = PathError {
            path: place.name.clone(),
            fault: Fault::Proxy(place.proxy.at.clone(), fault),
        };
        let text = blame.to_string();
        let fresh = place.reported.as_ref() != Some(&text);
        place.reported = Some(text.clone());
        fresh.then_some(text)
    }

    /// Removes and returns the waiting four-tuples of a path if it cannot expect an association (a
    /// UDP relay of a proxy) soon. Otherwise returns an empty list.
    pub(super) fn hopeless(&mut self, now: Time, path: PathId) -> Vec<WaitingTuple> {
        let Some(place) = self.places.get_mut(&path) else { return Vec::new() };
        let hope = place.down_reason.is_none() && place.proxy_state.is_hopeful(now);
        if hope { Vec::new() } else { place.waiting.drain(..).collect() }
    }

    /// Handles data or an end on the connection of the spare association (a UDP relay of a proxy).
    /// Returns true if that association has ended; false if it continues or there is none.
    pub(super) fn on_spare(&mut self, now: Time, path: PathId) -> bool {
        let Some(place) = self.places.get_mut(&path) else { return false };
        match place.spare.take_if(|(spare, _)| spare.is_over()) {
            Some((_, made)) => {
                place.proxy_state.on_loss(now, now.since(made), true);
                true
            }
            None => false,
        }
    }

    /// Handles the end of a four-tuple's association (a UDP relay of a proxy), which was opened at
    /// `made`.
    pub(super) fn on_loss(&mut self, now: Time, path: PathId, made: Time) {
        let Some(place) = self.places.get_mut(&path) else { return };
        place.proxy_state.on_loss(now, now.since(made), place.spare.is_none());
    }

    /// Handles the result of a check of the machine's network. Returns the fault of the path's
    /// route, or else of its proxy; `None` if neither has a fault.
    pub(super) fn on_look(&mut self, now: Time, look: &RouteLookup) -> Option<DownReason> {
        let Some(place) = self.places.get_mut(&look.path) else { return look.broken };
        if look.moved.is_some() {
            place.spare = None;
            place.era += 1;
            place.proxy_state.on_move(now);
        }
        if place.down_reason.is_some() && look.broken.is_none() {
            place.proxy_state.on_way_back();
        }
        place.down_reason = look.broken;
        place.broken()
    }

    /// Returns the time at which the next timer of any path expires; `None` if no timer runs.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.places
            .values()
            .filter_map(|place| place.proxy_state.next_timeout(place.wanted()))
            .min()
    }

    /// Returns the paths that have waited too long for an association (a UDP relay of a proxy).
    /// Such a path counts as failed if it has no association at all. `alone` returns whether no
    /// four-tuple of a path has an association.
    pub(super) fn on_time(&mut self, now: Time, alone: impl Fn(PathId) -> bool) -> Vec<PathId> {
        let given_up = self.places.iter_mut().filter_map(|(&path, place)| {
            let alone = place.spare.is_none() && alone(path);
            place.proxy_state.gives_up(now, alone).then_some(path)
        });
        given_up.collect()
    }

    /// Removes and returns all four-tuples that wait for an association (a UDP relay of a proxy)
    /// of `path`.
    pub(super) fn dismiss(&mut self, path: PathId) -> Vec<WaitingTuple> {
        let place = self.places.get_mut(&path);
        place.map(|place| place.waiting.drain(..).collect()).unwrap_or_default()
    }
}

impl AsFd for Proxies {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_receiver.as_fd()
    }
}

impl AnswerSender {
    /// Starts a thread that tries to open an association (a UDP relay of the proxy). If `afresh`
    /// is true, the thread first resolves the proxy's name again.
    fn ask(
        &self,
        path: PathId,
        place: &ProxyPath,
        egress: &Egress,
        fwmark: Option<u32>,
        afresh: bool,
    ) {
        let (sender, proxy, era) = (self.clone(), place.proxy.clone(), place.era);
        let at = egress.remote(egress.peer());
        let reach = ConnectSettings {
            proxy: at,
            local: egress.local(at),
            device: egress.device.clone(),
            mark: fwmark,
        };
        let work = move || sender.answer(path, era, attempt(&proxy, &reach, afresh));
        if let Err(error) = thread::Builder::new().name("proxy".into()).spawn(work) {
            self.answer(path, era, Outcome::Fault(ProxyFault::Io(error)));
        }
    }

    fn answer(&self, path: PathId, era: u64, outcome: Outcome) {
        // If the send fails, the splitter has stopped meanwhile. If the wake-up socket's buffer is
        // full, the loop is already notified.
        let _ = self.answered.send((path, era, outcome));
        let _ = (&*self.wake_sender).write(&[0]);
    }
}

fn attempt(proxy: &Proxy, reach: &ConnectSettings, afresh: bool) -> Outcome {
    if afresh
        && proxy.at.literal().is_none()
        && let Ok(found) = proxy.at.resolve()
        && !found.iter().any(|at| at.ip() == reach.proxy.ip())
    {
        return Outcome::Moved(found);
    }
    let credentials = proxy.credentials();
    match credentials.and_then(|credentials| associate(reach, credentials.as_ref())) {
        Ok(association) => Outcome::Relay(association),
        Err(fault) => Outcome::Fault(fault),
    }
}
