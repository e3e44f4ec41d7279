//! The near end of a tunnel, on the clients' side. The far end is our program in front of the
//! server. Datagrams that the protocol core assigns to a path are encrypted for the far end.
//! Packets from the far end are decrypted, and their datagrams are passed to the core as if the
//! server had sent them.
//!
//! Each session of the protocol core is a flow of the tunnel. All sessions share one socket per
//! four-tuple, which belongs to [`TUNNEL`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use anabranch_comps::{DownReason, FarEndCounters, SessionId, Snapshot, TupleId};
use anabranch_multipath::schedule::Spec;
use anabranch_multipath::seed::stream;
use anabranch_multipath::{Decoys, PathId, PathView, Time};
use anabranch_os::cpu::has_aes;
use anabranch_os::entropy::generator;
use anabranch_os::udp::Received;
use anabranch_tunnel::{Datagram, NearEnd, State, pieces};
use rand_chacha::ChaCha20Rng;

use super::onward::Outgoing;
use super::{ActiveSettings, FarEndNews, Settings};
use crate::far_end::{FarEnd, decoy_flow};

/// Identifier of the session that the sockets to the far end belong to. The protocol core gives
/// this identifier to no session.
pub(super) const TUNNEL: SessionId = SessionId(u64::MAX);
/// Time without an answer after which the far end is reported as silent, and interval of further
/// reports.
const PATIENCE: Duration = Duration::from_secs(10);

/// The near end of a tunnel (on the clients' side), and the state that connects it with the
/// protocol core.
pub(super) struct Tunnel {
    near: NearEnd<ChaCha20Rng>,
    /// The session of the protocol core for each flow of the tunnel, by the flow's number.
    flows: HashMap<u16, SessionId>,
    /// Sessions whose datagrams wait for the far end.
    waiting: Vec<SessionId>,
    /// The four-tuple that each path used last.
    tuples: Vec<TupleId>,
    paths: Vec<Condition>,
    /// The state of each path for the scheduler (a reused buffer).
    views: Vec<PathView>,
    /// Whether the far end answered at the last call of [`Tunnel::news`].
    up: bool,
    /// Time at which the far end became silent, and time of the next report of its silence.
    silent: (Time, Time),
    /// Number of datagrams dropped because there were no session keys yet.
    unsealed: u64,
    /// Encrypted packets (a reused buffer).
    pub(super) sealed: Vec<u8>,
    /// Decrypted datagrams (a reused buffer).
    pub(super) arrived: Vec<u8>,
}

/// The state of a path, with the reasons why it is down.
#[derive(Clone, Copy, Default)]
struct Condition {
    /// Reason why the path is down, as found on this machine; `None` if this machine has found no
    /// reason.
    broken: Option<DownReason>,
    /// True if no packets of the far end arrive on the path.
    unheard: bool,
}

/// Packets for one four-tuple. `part` is their range in the buffer of encrypted packets.
pub(super) struct SealedPackets {
    tuple: TupleId,
    path: PathId,
    part: Range<usize>,
    stride: usize,
}

/// Datagrams of one flow that arrived on one path. `part` is their range in the buffer of arrived
/// datagrams.
pub(super) struct Arrival {
    pub(super) session: SessionId,
    pub(super) tuple: TupleId,
    path: PathId,
    part: Range<usize>,
    stride: usize,
}

impl Tunnel {
    /// Creates a tunnel to the far end in the settings, over the paths in the settings.
    ///
    /// # Errors
    /// The system gives no entropy.
    pub(super) fn new(
        far: &FarEnd,
        settings: &Settings,
        about: &ActiveSettings,
        now: Time,
    ) -> io::Result<Tunnel> {
        let ports = &settings.core.ports;
        // Padding never makes a packet longer than the paths allow.
        let room = about.udp_payload.map(|payload| payload as usize + far.overhead());
        let fits = |size: &usize| room.is_none_or(|room| *size <= room);
        let pad: Vec<usize> = far.pad.iter().copied().filter(fits).collect();
        let (own, theirs) = (far.own.clone(), (far.public, far.psk));
        let near =
            NearEnd::new(own, theirs, &far.server_name, ports.len() as u16, &pad, generator()?);
        let mut near = near.map_err(|error| io::Error::other(format!("{error:?}")))?;
        let windows = settings.core.schedule.family().needs_windows;
        near.session().keep_windows(windows);
        near.prefer_aes(has_aes());
        let dice = stream(settings.core.seed, 0, "decoys");
        near.session().send_decoys(far.decoys.map(|budget| Decoys::new(budget, dice)));
        for path in (0..ports.len()).map(PathId::at) {
            room.into_iter().for_each(|room| near.session().set_room(path, room));
        }
        Ok(Tunnel {
            near,
            views: Vec::new(),
            flows: HashMap::new(),
            waiting: Vec::new(),
            tuples: first_tuples(ports),
            paths: vec![Condition::default(); ports.len()],
            up: false,
            silent: (now, now + PATIENCE),
            unsealed: 0,
            sealed: Vec::new(),
            arrived: Vec::new(),
        })
    }

    /// Returns the time at which [`Driver::tend_tunnel`] must be called, unless a packet arrives
    /// earlier.
    pub(super) fn next_timeout(&self) -> Time {
        let near = self.near.next_timeout();
        if self.up { near } else { near.min(self.silent.1) }
    }

    /// Opens a flow for `session`. Returns whether datagrams can be sent on it now.
    pub(super) fn open_flow(&mut self, session: SessionId) -> bool {
        self.flows.insert(flow_of(session), session);
        if !self.up {
            self.waiting.push(session);
        }
        self.up
    }

    pub(super) fn close_flow(&mut self, session: SessionId) {
        self.waiting.retain(|waiting| *waiting != session);
        if self.flows.get(&flow_of(session)) == Some(&session) {
            self.flows.remove(&flow_of(session));
        }
    }

    /// Returns the sessions that waited for the far end, and empties the list.
    pub(super) fn take_waiting(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.waiting)
    }

    /// Returns the number of paths to the far end.
    pub(super) fn paths(&self) -> usize {
        self.paths.len()
    }

    /// Records `broken`, the reason (if any) that this machine has found for `path` to be down.
    /// Returns the reason why the path is down, which may also be the far end's silence. While
    /// `broken` is `None`, handshakes and probes are sent on the path.
    pub(super) fn note_broken(
        &mut self,
        now: Time,
        path: PathId,
        broken: Option<DownReason>,
    ) -> Option<DownReason> {
        let Some(condition) = self.paths.get_mut(path.index()) else { return broken };
        condition.broken = broken;
        self.near.set_carries(now, path, broken.is_none());
        condition.reason()
    }

    /// Returns the packets that end the session with the far end, if the tunnel is up.
    pub(super) fn leave(&mut self, now: Time) -> Vec<Outgoing<'static>> {
        if !self.up {
            return Vec::new();
        }
        self.near.session().close();
        self.own_packets(now)
    }

    /// Applies a new count of source ports for each path, which changes the indices of
    /// four-tuples.
    pub(super) fn renumber(&mut self, ports: &[u16]) {
        self.tuples = first_tuples(ports);
    }

    /// Enables the congestion windows of the paths if the scheduler `schedule` needs them;
    /// otherwise disables them.
    pub(super) fn keep_windows(&mut self, schedule: &Spec) {
        self.near.session().keep_windows(schedule.family().needs_windows);
    }

    /// Returns the state of each path, with the room in its congestion window; `None` if the path
    /// scheduler does not use windows.
    pub(super) fn windows(&mut self, now: Time) -> Option<&[PathView]> {
        let (session, paths) = (self.near.session(), self.paths.len());
        self.views.clear();
        self.views.extend((0..paths).map(|path| session.view(now, PathId::at(path))));
        session.has_windows().then_some(&self.views)
    }

    /// Encrypts the datagrams of `outgoing` into tunnel packets. Appends the packets to `packets`,
    /// and their ranges to `sealed`.
    pub(super) fn seal(
        &mut self,
        now: Time,
        outgoing: &Outgoing<'_>,
        packets: &mut Vec<u8>,
        sealed: &mut Vec<SealedPackets>,
    ) {
        let Outgoing { session, tuple, path, .. } = *outgoing;
        let (flow, room) = (flow_of(session), self.near.session().room(path));
        for piece in outgoing.each().flat_map(|datagram| pieces(datagram, room)) {
            let start = packets.len();
            if !self.near.seal(now, path, (flow, piece), packets) {
                self.unsealed += 1;
                continue;
            }
            let part = start..packets.len();
            match sealed.last_mut().filter(|last| last.takes(tuple, &part)) {
                Some(last) => last.part.end = part.end,
                None => sealed.push(SealedPackets { tuple, path, stride: part.len(), part }),
            }
        }
        self.tuples[path.index()] = tuple;
    }

    /// Decrypts and processes packets that arrived on a socket of `path`.
    pub(super) fn open(&mut self, now: Time, path: PathId, run: &Received<'_>) {
        for packet in run.datagrams() {
            self.near.open(now, path, packet);
        }
    }

    /// Decrypts and processes a packet that arrived on the stream of `path`. Returns whether the
    /// packet came from the far end.
    pub(super) fn open_one(&mut self, now: Time, path: PathId, packet: &[u8]) -> bool {
        self.near.open(now, path, packet)
    }

    /// Records that `path` has a new connection to the far end.
    pub(super) fn on_path(&mut self, now: Time, path: PathId) {
        self.near.on_path(now, path);
    }

    /// Returns how much later datagrams arrive on `path` than on the fastest path; `None` if
    /// unknown.
    pub(super) fn lag(&mut self, path: PathId) -> Option<Duration> {
        self.near.session().lag(path)
    }

    /// Returns the datagrams that have arrived, and appends their content to `bytes`. Consecutive
    /// datagrams of one flow and path are joined.
    pub(super) fn arrived(&mut self, now: Time, bytes: &mut Vec<u8>) -> Vec<Arrival> {
        let mut arrived: Vec<Arrival> = Vec::new();
        while let Some(datagram) = self.near.session().poll(now) {
            if let Some(&session) = self.flows.get(&datagram.flow) {
                let start = bytes.len();
                bytes.extend_from_slice(datagram.bytes());
                match arrived.last_mut().filter(|last| last.takes(session, &datagram)) {
                    Some(last) => last.part.end = bytes.len(),
                    None => arrived.push(Arrival {
                        session,
                        tuple: self.tuples[datagram.path.index()],
                        path: datagram.path,
                        part: start..bytes.len(),
                        stride: datagram.bytes().len(),
                    }),
                }
            }
            self.near.session().recycle(datagram);
        }
        arrived
    }

    /// Returns the packets that our end must send now by itself, such as handshakes,
    /// acknowledgements and probes.
    pub(super) fn own_packets(&mut self, now: Time) -> Vec<Outgoing<'static>> {
        let unix = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64;
        let mut packets = Vec::new();
        loop {
            let mut bytes = Vec::new();
            let Some(path) = self.near.poll_transmit(now, unix, &mut bytes) else { return packets };
            let (tuple, stride) = (self.tuples[path.index()], bytes.len());
            let bytes = Cow::Owned(bytes);
            packets.push(Outgoing { session: TUNNEL, tuple, path, bytes, stride, ecn: 0 });
        }
    }

    /// Returns the next change of the far end's state, or `None`.
    pub(super) fn news(&mut self, now: Time) -> Option<FarEndNews> {
        let (up, left) = (self.near.state() == State::Up, self.near.session().is_closed());
        if std::mem::replace(&mut self.up, up) != up {
            self.silent = (now, now + PATIENCE);
            return Some(match (up, left) {
                (true, _) => FarEndNews::Up,
                (false, true) => FarEndNews::Left,
                (false, false) => FarEndNews::Lost,
            });
        }
        if up || now < self.silent.1 {
            return None;
        }
        self.silent.1 = now + PATIENCE;
        Some(FarEndNews::Unanswered { waited: now.since(self.silent.0) })
    }

    /// Returns the state of `path` if packets of the far end have begun, or ceased, to arrive on
    /// it; `None` if nothing changed. The state is the reason why the path is down, or an inner
    /// `None` if the path is up.
    pub(super) fn changed(&mut self, now: Time, path: PathId) -> Option<Option<DownReason>> {
        let unheard = !self.near.session().view(now, path).usable;
        let condition = self.paths.get_mut(path.index())?;
        let changed = std::mem::replace(&mut condition.unheard, unheard) != unheard;
        changed.then(|| condition.reason())
    }

    pub(super) fn complete(&mut self, now: Time, snapshot: &mut Snapshot) {
        snapshot.no_path += self.unsealed;
        for (place, path) in snapshot.paths.iter_mut().enumerate() {
            path.rtt = self.near.session().view(now, PathId::at(place)).rtt;
        }
        let session = self.near.session();
        let (lost, patience) = (session.lost(), session.patience());
        let decoys = session.decoys().map(decoy_flow);
        snapshot.far_end = Some(FarEndCounters { up: self.up, lost, patience, decoys });
    }
}

impl Condition {
    fn reason(&self) -> Option<DownReason> {
        self.broken.or(self.unheard.then_some(DownReason::Unheard))
    }
}

impl SealedPackets {
    /// Returns whether a packet for `tuple` can be appended to this group. All packets of a group
    /// except the last must have the same length.
    fn takes(&self, tuple: TupleId, packet: &Range<usize>) -> bool {
        self.tuple == tuple
            && self.part.len().is_multiple_of(self.stride)
            && packet.len() <= self.stride
    }

    pub(super) fn outgoing<'p>(&self, packets: &'p [u8]) -> Outgoing<'p> {
        let (bytes, stride) = (Cow::Borrowed(&packets[self.part.clone()]), self.stride);
        // Congestion marks of a path cannot be applied to the datagrams inside (RFC 6040, section
        // 4.1).
        Outgoing { session: TUNNEL, tuple: self.tuple, path: self.path, bytes, stride, ecn: 0 }
    }
}

impl Arrival {
    /// Returns whether a datagram of `session` can be appended to this group. All datagrams of a
    /// group except the last must have the same length.
    fn takes(&self, session: SessionId, datagram: &Datagram) -> bool {
        (self.session, self.path) == (session, datagram.path)
            && self.stride > 0
            && self.part.len().is_multiple_of(self.stride)
            && (1..=self.stride).contains(&datagram.bytes().len())
    }

    pub(super) fn run<'b>(&self, from: SocketAddr, bytes: &'b [u8]) -> Received<'b> {
        let bytes = &bytes[self.part.clone()];
        Received { from, to: None, ecn: 0, stride: self.stride, bytes }
    }
}

/// Returns the first four-tuple of each path. `ports` contains each path's number of source ports.
fn first_tuples(ports: &[u16]) -> Vec<TupleId> {
    (0..ports.len()).map(|path| TupleId(ports[..path].iter().sum())).collect()
}

/// Returns the flow number of a session: the lowest 16 bits of its identifier. Two sessions share
/// a flow only if their identifiers differ by a multiple of 65,536.
fn flow_of(session: SessionId) -> u16 {
    session.0 as u16
}
