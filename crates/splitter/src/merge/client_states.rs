//! The far end's state for each client, in addition to the state in the protocol core: the
//! client's server, the schedule of the answers to the client, and the client's paths.

use std::net::SocketAddr;

use anabranch_comps::{FAR_END_SCHEDULE, Flow};
use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{
    Backlog, DELAYED_BYTES, Decoys, DelayQueue, PathId, PathView, Splitter, Time, seed,
};
use anabranch_os::udp::Received;
use anabranch_tunnel::{ClientId, Datagram, DecoyCount, FarSide};
use rand_chacha::ChaCha20Rng;

use super::settings::{ClientSnapshot, News, PathSnapshot, Settings};
use super::streams::Streams;
use crate::far_end::decoy_flow;
use crate::far_end::keys::PublicKey;

/// Maximum bytes of answers to a client that wait for room in a congestion window.
const BACKLOG: usize = 2 << 20;

/// Destination of a client's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// The datagrams go to this server.
    Server(SocketAddr),
    /// The datagrams are IP packets, which go to the interface.
    Interface,
}

/// The state of one client.
pub(super) struct ClientState {
    id: ClientId,
    name: String,
    pub(super) public: PublicKey,
    /// True if the client was removed from the key file. Its state remains, so that the indices of
    /// other clients do not change.
    gone: bool,
    /// The destination that the client requested; `None` if this far end does not offer that
    /// destination.
    pub(super) wanted: Option<Destination>,
    /// Number of the flow (the datagrams of one program) that the client's last datagram belongs
    /// to.
    pub(super) flow: u16,
    /// Scheduler that distributes answers of the server over the client's paths; `None` before the
    /// client's first session.
    splitter: Option<Splitter>,
    pub(super) views: Vec<PathView>,
    /// Queue of answers that are delayed before their paths are chosen, each with its flow number;
    /// `None` if answers are not delayed.
    delay: Option<DelayQueue<(u16, Box<[u8]>)>>,
    /// Queue of answers that wait for room in a congestion window, each with its flow number;
    /// `None` if the path scheduler ignores congestion windows.
    backlog: Option<Backlog<(u16, Box<[u8]>)>>,
    paths: Vec<PathSnapshot>,
    /// Counts of decoys (dummy packets) in the client's earlier sessions, and in the present
    /// session. Each pair counts decoys sent to the client and decoys received from it.
    decoys: [[DecoyCount; 2]; 2],
    /// Expiry time of the client's timer in the driver's table; `None` if no timer is set.
    pub(super) armed: Option<Time>,
}

impl ClientState {
    pub(super) fn new(id: ClientId, name: &str, public: PublicKey) -> ClientState {
        ClientState {
            id,
            name: name.to_owned(),
            public,
            gone: false,
            wanted: None,
            flow: 0,
            splitter: None,
            views: Vec::new(),
            delay: None,
            backlog: None,
            paths: Vec::new(),
            decoys: Default::default(),
            armed: None,
        }
    }

    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    /// Returns the client's identifier, which is its index in the driver's list of clients.
    pub(super) fn id(&self) -> ClientId {
        self.id
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(super) fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Ends the client's session, and marks the client as removed from the key file.
    pub(super) fn leave(&mut self) {
        self.end();
        self.gone = true;
    }

    /// Begins a session over `paths` paths. Returns false if the scheduler in the settings does
    /// not support this number of paths; the default scheduler is then used.
    pub(super) fn begin(&mut self, settings: &Settings, paths: usize) -> bool {
        let (seed, id) = (settings.seed, self.id.0.into());
        let splitter = |schedule: &Spec| {
            let dice = move |purpose: &str| seed::stream(seed, id, purpose);
            Splitter::drawn(schedule, paths, settings.every, settings.redraw, dice)
        };
        let delay = |jitter| DelayQueue::new(jitter, seed::stream(seed, id, "jitter"));
        self.delay = settings.jitter.map(delay);
        let usual: Spec = FAR_END_SCHEDULE.parse().expect("the default schedule exists");
        let asked = splitter(&settings.schedule);
        let fits = asked.is_ok();
        let looks = fits && settings.schedule.family().needs_windows;
        self.backlog = looks.then(Backlog::default);
        self.splitter = asked.or_else(|_| splitter(&usual)).ok();
        let mut known = std::mem::take(&mut self.paths);
        known.iter_mut().for_each(|path| (path.from, path.up) = (None, false));
        known.resize_with(paths, PathSnapshot::default);
        self.paths = known;
        self.decoys = [self.all_decoys(), Default::default()];
        fits
    }

    /// Returns the generator of decoys (dummy packets) for a new session; `None` if no decoys are
    /// sent.
    pub(super) fn decoys(&self, settings: &Settings) -> Option<Decoys> {
        let dice = seed::stream(settings.seed, self.id.0.into(), "decoys");
        // If the schedule uses congestion windows, decoys would occupy part of the windows.
        let budget = settings.decoys.filter(|_| !self.has_windows());
        budget.map(|budget| Decoys::new(budget, dice))
    }

    /// Returns the counts of decoys (dummy packets) in all of the client's sessions.
    fn all_decoys(&self) -> [DecoyCount; 2] {
        let [earlier, present] = self.decoys;
        [0, 1].map(|way| DecoyCount {
            packets: earlier[way].packets + present[way].packets,
            bytes: earlier[way].bytes + present[way].bytes,
        })
    }

    pub(super) fn end(&mut self) {
        (self.wanted, self.splitter) = (None, None);
        (self.delay, self.backlog) = (None, None);
        self.paths.iter_mut().for_each(|path| path.up = false);
    }

    /// Queues `datagrams` (answers of the server) if the settings demand a delay. Returns whether
    /// the datagrams were queued. [`ClientState::next_delayed`] returns each when its delay is
    /// over.
    pub(super) fn delays(&mut self, now: Time, flow: u16, datagrams: &Received<'_>) -> bool {
        let Some(delay) = &mut self.delay else { return false };
        for datagram in datagrams.datagrams() {
            delay.push(now, ((flow, datagram.into()), datagram.len()), DELAYED_BYTES);
        }
        true
    }

    /// Returns the oldest answer whose delay is over, with its flow number; `None` if there is
    /// none.
    pub(super) fn next_delayed(&mut self, now: Time) -> Option<(u16, Box<[u8]>)> {
        self.delay.as_mut()?.pop(now)
    }

    /// Returns the time at which the oldest delayed answer is to be sent; `None` if no answer is
    /// delayed.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.delay.as_ref()?.next_due()
    }

    /// Returns the number of answers (datagrams from the server) that were sent before their delay
    /// was over, since the last call of this function.
    pub(super) fn take_hurried(&mut self) -> u64 {
        self.delay.as_mut().map_or(0, DelayQueue::take_hurried)
    }

    /// Returns whether the scheduler for the client's paths uses congestion windows.
    pub(super) fn has_windows(&self) -> bool {
        self.backlog.is_some()
    }

    /// Queues answers until a congestion window has room. Returns the number of older answers
    /// dropped because the queue was full.
    pub(super) fn await_window(&mut self, now: Time, flow: u16, datagrams: &Received<'_>) -> u64 {
        let Some(backlog) = &mut self.backlog else { return 0 };
        for datagram in datagrams.datagrams() {
            backlog.push(now, ((flow, datagram.into()), datagram.len()), BACKLOG);
        }
        backlog.take_dropped()
    }

    /// Assigns a path to the next answers that wait for room in a congestion window. Returns the
    /// path and the number of answers; `None` if no window has room.
    pub(super) fn next_run(
        &mut self,
        now: Time,
        far: &FarSide<ChaCha20Rng>,
    ) -> Option<(PathId, u64)> {
        self.refresh(now, far);
        let backlog = self.backlog.as_mut()?;
        let run = backlog.assign(now, self.splitter.as_mut()?, &self.views);
        run.map(|(path, units, _)| (path, units))
    }

    /// Returns the oldest answer that waits for a congestion window, with its flow number; `None`
    /// if none waits.
    pub(super) fn next_answer(&mut self) -> Option<(u16, Box<[u8]>)> {
        self.backlog.as_mut()?.pop()
    }

    /// Returns the number of answers dropped because they waited too long, since the last call of
    /// this function.
    pub(super) fn take_dropped(&mut self) -> u64 {
        self.backlog.as_mut().map_or(0, Backlog::take_dropped)
    }

    fn refresh(&mut self, now: Time, far: &FarSide<ChaCha20Rng>) {
        let view = |path| far.view(now, self.id, PathId::at(path));
        self.views.clear();
        self.views.extend((0..self.paths.len()).map(view));
    }

    /// Updates the source address and the state (up or down) of each of the client's paths.
    /// Returns the changes.
    pub(super) fn look(&mut self, now: Time, far: &FarSide<ChaCha20Rng>) -> Vec<News> {
        self.refresh(now, far);
        if self.splitter.is_some() {
            self.decoys[1] = far.decoys(self.id);
        }
        let mut news = Vec::new();
        for (place, (path, view)) in self.paths.iter_mut().zip(&self.views).enumerate() {
            let (id, client) = (PathId::at(place), || self.name.clone());
            let from = far.peer(self.id, id).map(|peer| peer.remote);
            let before = std::mem::replace(&mut path.from, from);
            let was_up = std::mem::replace(&mut path.up, view.usable);
            match (was_up, view.usable, from) {
                (_, true, Some(at)) if !was_up || before != from => {
                    news.push(News::PathUp { client: client(), path: id, from: at });
                }
                (true, false, _) => news.push(News::PathDown { client: client(), path: id }),
                _ => {}
            }
        }
        news
    }

    /// Counts a datagram received from the client.
    pub(super) fn count_in(&mut self, datagram: &Datagram) {
        self.flow = datagram.flow;
        if let Some(path) = self.paths.get_mut(datagram.path.index()) {
            add(&mut path.inward, 1, datagram.bytes().len());
        }
    }

    /// Counts a datagram of `bytes` bytes sent to the client on `path`.
    pub(super) fn count_out(&mut self, path: PathId, bytes: usize) {
        if let Some(path) = self.paths.get_mut(path.index()) {
            add(&mut path.outward, 1, bytes);
        }
    }

    /// Assigns a path to the next datagrams. Returns the path and the number of datagrams for it,
    /// at most `count`; `None` if no path can be assigned now.
    pub(super) fn assign(&mut self, now: Time, count: u64) -> Option<(PathId, u64)> {
        use anabranch_multipath::Assignment::{Hold, Nowhere, Send};
        match self.splitter.as_mut()?.assign(now, &self.views, count) {
            Send { path, units, .. } => Some((path, units)),
            Hold | Nowhere => None,
        }
    }

    pub(super) fn snapshot(
        &self,
        far: &mut FarSide<ChaCha20Rng>,
        streams: Option<&Streams>,
    ) -> ClientSnapshot {
        let mut paths = self.paths.clone();
        for (place, path) in paths.iter_mut().enumerate() {
            let stream = far.peer(self.id, PathId::at(place)).and_then(|peer| peer.stream);
            path.stream = stream.zip(streams).and_then(|(number, streams)| streams.look(number));
        }
        let session = far.session(self.id);
        let (lost, patience) =
            session.map_or_else(Default::default, |session| (session.lost(), session.patience()));
        ClientSnapshot {
            name: self.name(),
            up: self.splitter.is_some(),
            paths,
            lost,
            patience,
            decoys: self.all_decoys().map(decoy_flow),
        }
    }
}

fn add(flow: &mut Flow, datagrams: u64, bytes: usize) {
    flow.datagrams += datagrams;
    flow.bytes += bytes as u64;
}
