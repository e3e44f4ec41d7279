//! A client's circuit manager. It decides which circuits to build, and which circuit carries each
//! stream (path-spec 2).
//!
//! The caller passes in requests for streams ([`CircuitManager::demand`]) and events of circuits.
//! It executes the orders that [`CircuitManager::poll`] returns: build, destroy, attach, refuse.
//! Streams share a circuit only if their isolation keys are equal. A few circuits are built in
//! advance, so that a new stream rarely waits for a circuit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::Rng;

use crate::client::{Cause, CircuitKey, Hop, HopKey};
use crate::conflux::{ConfluxParams, Design};
use crate::congestion;
use crate::directory::network::{
    Network, NoRelay, Path, Position, Relay, RelayRestrictions, Target,
};
use crate::directory::params::Params;
use crate::directory::timeouts::BuildTimes;
use crate::guards::{GuardReachability, SampledGuard};
use crate::handshake::extension::HopRequest;
use crate::moment::Moment;
use crate::wire::extend;
use crate::wire::message::{IPV6_OKAY, IPV6_PREFERRED};
use crate::wire::netdoc::Subprotocols;
use entry::Entry;
use legs::{LegState, LeglessSet};
use selection::Timing;
pub use selection::{Selection, UnknownSelection};
pub use testing::testing_path;
use unanswered::{PendingDemand, SuspectRelays, UnansweredDemands};

mod bridges;
mod caches;
mod entry;
mod legs;
mod selection;
mod testing;
mod unanswered;

/// Default time for which a circuit takes new streams after its first stream (C tor's
/// `MaxCircuitDirtiness`).
const DIRTY: Duration = Duration::from_secs(600);
/// Maximum age of a demand (a request for a circuit). A demand is refused at this age if it has no
/// circuit, or if no exit has answered (C tor's `SocksTimeout`).
const PATIENCE: Duration = Duration::from_secs(120);
/// Number of unused circuits to keep ready, whose exits allow connections to `USUAL_PORT`.
const AHEAD: usize = 2;
/// Port (HTTPS) that the exits of circuits built in advance must allow.
const USUAL_PORT: u16 = 443;
/// Maximum number of circuits that are being built at a time.
const MOST_BUILDING: usize = 16;
/// Time for which a demand (request for a circuit) waits for a circuit under construction before
/// another circuit is begun. This limit is needed because a circuit may fail without notice: C tor
/// sends only one of several DESTROY cells until the link has other cells to send. The build
/// timeout is too long for this purpose: it is one minute while no build times are known.
const SLUGGISH: Duration = Duration::from_secs(5);
/// Pause after a failure to build a circuit, before the next circuit is begun. Each further
/// failure doubles the pause, at most `MOST_DOUBLINGS` times.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of times that `FIRST_PAUSE` is doubled.
const MOST_DOUBLINGS: u32 = 7;

/// Interval between checks of built circuits that wait until it is known whether a better guard
/// works.
const LOOK: Duration = Duration::from_secs(1);

/// Guards that a client stores on disk: one sample for each guard selection of guard-spec. Each
/// sample is in the order of sampling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptGuards {
    /// Sample of the selection `default`, used if the user's restrictions allow many guards.
    pub default: Vec<SampledGuard<[u8; 20]>>,
    /// Sample of the selection `restricted`, used if the user's restrictions allow only few
    /// guards.
    pub restricted: Vec<SampledGuard<[u8; 20]>>,
    /// Sample of the selection `bridges`, used if the user enters the network through bridges.
    pub bridges: Vec<SampledGuard<[u8; 20]>>,
}

/// Isolation key: streams may share a circuit only if their keys are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isolation(pub Vec<u8>);

/// A request for a circuit that can carry a stream to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Identifier of the demand (request for a circuit), which the caller chose.
    pub number: u64,
    /// Target of the stream that the demand (request for a circuit) is for.
    pub target: Target,
    /// Isolation key of the stream that the demand (request for a circuit) is for.
    pub isolation: Isolation,
    /// Time of the first attempt to open this stream. Further attempts do not change it.
    pub since: Time,
    /// Exits that have refused the stream because of their exit policy.
    pub avoid: Vec<[u8; 20]>,
    /// Exits at which the stream failed for a reason other than their exit policy. These exits are
    /// used only if no other exit is available.
    pub failed_exits: Vec<[u8; 20]>,
}

/// Reason why a demand (request for a circuit) cannot be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No path to the target exists. The value is the position in the path for which no relay is
    /// suitable.
    NoPath(NoRelay),
    /// No circuit was built for the demand (request for a circuit) in time.
    TimedOut,
    /// The stream was attached to circuits, but no exit answered in time.
    Unanswered,
}

/// An action that the caller must perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Build a circuit.
    Build(CircuitKey, Vec<Hop>),
    /// Tear a circuit down.
    Destroy(CircuitKey),
    /// Make the first circuit a leg (one of several parallel circuits) of the set of the second
    /// circuit, or of a new set if there is no second circuit.
    Link(CircuitKey, Option<CircuitKey>),
    /// Make this circuit the first leg of a new set. The set's legs join at the last relay of this
    /// circuit, and one circuit continues from there through these hops.
    Merge(CircuitKey, Vec<Hop>),
    /// Open the stream of this demand (request for a circuit) on this circuit.
    Attach(u64, CircuitKey),
    /// Detach the stream of this demand (request for a circuit) from its circuit, because the
    /// circuit does not answer. The demand waits for another circuit.
    Detach(u64),
    /// Report to the caller that this demand (request for a circuit) cannot be met, with the
    /// reason.
    Refuse(u64, Refusal),
    /// Save the guards ([`CircuitManager::guards`]) and build times
    /// ([`CircuitManager::build_times`]), because some of them have changed.
    Keep,
    /// Warn the user that the restrictions leave only this number of guards. The use of so few
    /// guards can identify the user.
    FewGuards(usize),
    /// Inform the user that sets have fewer legs (parallel circuits) than wanted. The first number
    /// is the present number of legs, and the second is the wanted number. No suitable relay is
    /// left for a further leg, because the allowed relays conflict with relays in the set, for
    /// example by family or subnet.
    FewLegs(usize, usize),
    /// Inform the user that the restrictions exclude all relays that support this design of
    /// circuit sets. Depending on the design, the relay that links the circuits of a set (its
    /// legs) is their exit or their middle.
    NoAbleRelay(Design),
    /// Inform the user that circuits cannot be lossy (send cells in datagrams). For one position
    /// of the path, no allowed relay supports such cells.
    NoLossyRelay,
    /// Inform the user that only this number of relays can join legs (parallel circuits). Each of
    /// these relays sees a large part of the user's traffic.
    FewJoining(usize),
    /// Inform the user that circuit sets have only one leg for each bridge. The first number is
    /// the number of bridges, and the second is the wanted number of legs.
    FewBridges(usize, usize),
}

/// State of a circuit, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overview {
    /// The circuit's key.
    pub key: CircuitKey,
    /// The circuit's relays, first hop first.
    pub path: Path,
    /// Time at which the circuit was begun.
    pub begun: Time,
    /// The circuit's stage.
    pub stage: Stage,
    /// Number of streams on the circuit.
    pub streams: usize,
    /// Key of the head of the circuit's set (the circuit that represents the set). `None` if the
    /// circuit is not a linked leg.
    pub set: Option<CircuitKey>,
}

/// Stage of a circuit's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The circuit is under construction, and has this number of hops.
    Building(usize),
    /// The circuit is built and has had no streams yet.
    Spare,
    /// The circuit has had streams, and takes more streams with the same isolation key.
    Used,
    /// The circuit takes no more streams.
    Ending,
}

#[derive(Clone, Debug)]
struct Circuit {
    path: Path,
    begun: Time,
    built: bool,
    /// True if the circuit is built but may not take streams yet, because a better guard may still
    /// work (guard-spec's `waiting_for_better_guard`).
    waits: bool,
    /// Number of hops built so far.
    hops: usize,
    /// True if building the circuit took longer than the build timeout. Such a circuit gets no
    /// streams. If it is completed, only its build time is recorded.
    late: bool,
    isolation: Option<Isolation>,
    first_used: Option<Time>,
    /// True if the circuit takes no new streams.
    retired: bool,
    /// Time from the circuit's beginning to its closing if no stream has used it.
    spare: Duration,
    streams: usize,
    timing: Timing,
    leg: LegState,
}

/// The circuit manager of one client.
#[derive(Debug)]
pub struct CircuitManager {
    network: Option<Arc<Network>>,
    entry: Entry,
    times: BuildTimes,
    /// The restrictions on relays that the user set.
    wanted: RelayRestrictions,
    /// The restrictions in effect: the user's restrictions, and a restriction to relays that can
    /// link circuits to sets in the client's `design`.
    restrictions: RelayRestrictions,
    circuits: BTreeMap<CircuitKey, Circuit>,
    demands: Vec<PendingDemand>,
    unanswered: UnansweredDemands,
    suspects: SuspectRelays,
    /// Targets that no path of this network reaches. Each has the position in the path for which
    /// no relay is suitable.
    hopeless: Vec<(Target, NoRelay)>,
    orders: VecDeque<Order>,
    last_key: u64,
    failures: u32,
    paused_until: Time,
    /// Time of the last call of `work`.
    looked: Time,
    /// Consensus parameters for sets of several circuits.
    conflux: ConfluxParams,
    /// True if relays of this network accept congestion control (`cc_alg`).
    congestion_control: bool,
    /// Number of legs that the user wants for each circuit set; `None` if the consensus or the
    /// design determines it.
    wanted_legs: Option<usize>,
    /// Traffic-splitting design of the client's sets, which combine several circuits.
    design: Design,
    /// Criterion for choosing among circuits that fit a stream.
    selection: Selection,
    /// Time after a circuit's first stream during which the circuit takes new streams.
    dirtiness: Duration,
    /// Age at which a leg is replaced if its circuit set still has streams; `None` if legs are
    /// never replaced because of their age.
    leg_age: Option<Duration>,
    /// True if circuits for streams are lossy (their cells travel in datagrams and may be lost).
    lossy: bool,
    /// True if the share of exits that can link circuits to sets is at least
    /// `cfx_low_exit_threshold`.
    many_link: bool,
    /// Relays that did not answer when asked to link a circuit to a set.
    unlinkable: BTreeSet<[u8; 20]>,
    warned_few_legs: bool,
    warned_no_lossy: bool,
    warned_few_bridges: bool,
    /// Time of the last demand (request for a circuit); `None` before the first.
    last_demand: Option<Time>,
    /// Present head of a set, by the key of each closed circuit that was its head earlier. The
    /// head is the circuit that represents its set: it gets the set's new streams, and counts all
    /// streams of the set.
    successors: BTreeMap<CircuitKey, CircuitKey>,
    /// Sets that have lost all their circuits. They continue, because new circuits can join them.
    legless: Vec<LeglessSet>,
}

impl CircuitManager {
    /// Returns a client's circuit manager, with the guards and build times (in milliseconds) that
    /// the client saved before.
    #[must_use]
    pub fn new(
        guards: KeptGuards,
        build_times: &[u32],
        restrictions: RelayRestrictions,
    ) -> CircuitManager {
        CircuitManager {
            network: None,
            entry: Entry::restore(guards),
            times: BuildTimes::new(Params::default().timeouts, build_times),
            wanted: restrictions.clone(),
            restrictions,
            circuits: BTreeMap::new(),
            demands: Vec::new(),
            unanswered: UnansweredDemands::default(),
            suspects: SuspectRelays::default(),
            hopeless: Vec::new(),
            orders: VecDeque::new(),
            last_key: 0,
            failures: 0,
            paused_until: Time::ZERO,
            looked: Time::ZERO,
            conflux: ConfluxParams::default(),
            congestion_control: true,
            wanted_legs: Some(1),
            design: Design::default(),
            selection: Selection::default(),
            dirtiness: DIRTY,
            leg_age: None,
            lossy: false,
            many_link: false,
            unlinkable: BTreeSet::new(),
            warned_few_legs: false,
            warned_no_lossy: false,
            warned_few_bridges: false,
            last_demand: None,
            successors: BTreeMap::new(),
            legless: Vec::new(),
        }
    }

    /// Sets the known network. Existing circuits stay open.
    pub fn set_network(&mut self, network: Arc<Network>) {
        let params = &network.consensus().params;
        self.conflux = ConfluxParams::new(params);
        self.congestion_control = congestion::Params::of(params).enabled;
        self.many_link = legs::many_link(&network, self.conflux.low_exits);
        (self.warned_few_legs, self.unlinkable) = (false, BTreeSet::new());
        self.entry.set_legs(self.legs());
        self.report_few_bridges(self.requested_legs());
        self.network = Some(self.with_bridges(&network));
        self.hopeless.clear();
        self.restrictions = self.allowed();
        self.entry.network_changed();
    }

    /// Sets the user's restrictions. Existing streams stay on their circuits. A circuit that the
    /// restrictions exclude takes no new streams, and is closed if it has no streams.
    pub fn set_restrictions(&mut self, restrictions: RelayRestrictions) {
        self.wanted = restrictions;
        self.restrictions = self.allowed();
        self.apply_restrictions();
    }

    /// Applies the restrictions to existing circuits. A circuit that they exclude takes no new
    /// streams, and is closed if it has no streams.
    fn apply_restrictions(&mut self) {
        self.hopeless.clear();
        self.entry.network_changed();
        (self.failures, self.paused_until) = (0, Time::ZERO);
        let unwanted =
            self.circuits.iter().filter(|(_, circuit)| !allow(&self.restrictions, &circuit.path));
        let unwanted: Vec<CircuitKey> =
            unwanted.map(|(key, circuit)| circuit.leg.head.unwrap_or(*key)).collect();
        for key in unwanted {
            match self.circuits.get(&key).is_some_and(|circuit| circuit.streams > 0) {
                true => self.retire(key),
                false => self.drop_circuit(key),
            }
        }
    }

    /// Returns the guards to save.
    #[must_use]
    pub fn guards(&self) -> KeptGuards {
        self.entry.kept()
    }

    /// Returns the build times to save: milliseconds, oldest first.
    pub fn build_times(&self) -> impl Iterator<Item = u32> {
        self.times.times()
    }

    /// Returns the state of each circuit for display, oldest first.
    pub fn overview(&self) -> impl Iterator<Item = Overview> {
        self.circuits.iter().map(|(&key, circuit)| Overview {
            key,
            path: circuit.path,
            begun: circuit.begun,
            stage: circuit.stage(),
            streams: circuit.streams,
            set: circuit.leg.linked.then(|| circuit.leg.head.unwrap_or(key)),
        })
    }

    /// Returns the primary guards, best first, with the known reachability of each.
    #[must_use]
    pub fn entries(&self) -> Vec<([u8; 20], GuardReachability)> {
        let guards = self.entry.current();
        guards.primary().iter().map(|&id| (id, guards.reach(id))).collect()
    }

    /// Returns the address flags of a BEGIN message for `port` (tor-spec, "Opening streams"). IPv6
    /// is accepted and preferred if the exit's policy allows IPv6 to that port, as by default in C
    /// tor's clients.
    #[must_use]
    pub fn begin_flags(&self, circuit: CircuitKey, port: u16) -> u32 {
        let exit = self.path(circuit).map(|path| path[2]);
        let exit = exit.and_then(|exit| self.network.as_ref()?.relay(&exit));
        let takes_v6 = exit.is_some_and(|exit| exit.microdesc.exits_to(port, true));
        if takes_v6 { IPV6_OKAY | IPV6_PREFERRED } else { 0 }
    }

    /// Returns the relays of `circuit`, first hop first; `None` if there is no such circuit.
    #[must_use]
    pub fn path(&self, circuit: CircuitKey) -> Option<Path> {
        self.circuits.get(&self.head_of(circuit)).map(|circuit| circuit.path)
    }

    /// Adds `demand`, a request for a circuit. [`CircuitManager::poll`] later returns
    /// [`Order::Attach`] or [`Order::Refuse`] for it.
    pub fn demand(&mut self, now: Time, demand: Demand) {
        self.last_demand = Some(now);
        self.unanswered.remove(demand.number);
        self.demands.push(PendingDemand { demand, silences: 0 });
    }

    /// Removes the demand (request for a circuit) with the identifier `number`. The caller does
    /// this when the stream is no longer wanted.
    pub fn withdraw(&mut self, number: u64) {
        self.unanswered.remove(number);
        self.demands.retain(|pending| pending.demand.number != number);
    }

    /// Sets the criterion for choosing among circuits that fit a stream.
    pub fn set_selection(&mut self, selection: Selection) {
        self.selection = selection;
    }

    /// Sets the time for which a circuit takes new streams after its first stream (C tor's
    /// `MaxCircuitDirtiness`; the default is ten minutes).
    pub fn set_dirtiness(&mut self, dirtiness: Duration) {
        self.dirtiness = dirtiness;
    }

    /// Sets the number of hops that the circuit `key` has now.
    pub fn extended(&mut self, now: Time, key: CircuitKey, hops: usize) {
        if let Some(circuit) = self.circuits.get_mut(&key) {
            circuit.hops = hops;
            if hops < circuit.path.len() {
                circuit.timing.extended(now);
            }
        }
    }

    /// Records that the circuit `key` is complete.
    pub fn built(&mut self, at: Moment, key: CircuitKey, rng: &mut impl Rng) {
        if self.is_to_merge(key) {
            return self.merge(key);
        }
        let Moment { now, unix: unix_now } = at;
        let Some(circuit) = self.circuits.get_mut(&key) else { return };
        circuit.built = true;
        circuit.timing.built(now, circuit.begun);
        circuit.waits = !self.entry.guards().succeeded(unix_now, key.0, rng);
        let (late, taken) = (circuit.late, now.since(circuit.begun));
        self.times.built(u64::try_from(taken.as_millis()).unwrap_or(u64::MAX));
        self.note_all_answered(now, key);
        (self.failures, self.paused_until) = (0, now);
        self.orders.push_back(Order::Keep);
        if late {
            self.drop_circuit(key);
        }
    }

    /// Records that the circuit `key` is closed.
    pub fn closed(&mut self, at: Moment, key: CircuitKey, cause: Cause) {
        let Moment { now, unix: unix_now } = at;
        let Some(circuit) = self.circuits.remove(&key) else { return };
        self.left_set(now, key, &circuit, cause);
        if circuit.built || cause == Cause::Wanted {
            return self.entry.guards().closed(key.0);
        }
        self.unbuilt(unix_now, key, circuit.hops);
        if circuit.leg.head.is_none() {
            self.pause(now);
        }
    }

    /// Records that the circuit `key` could not be built. `hops` is the number of hops that were
    /// built. The circuit's guard counts as failed only if this number is 0.
    fn unbuilt(&mut self, unix_now: u64, key: CircuitKey, hops: usize) {
        match hops {
            0 => self.entry.guards().failed(unix_now, key.0),
            _ => self.entry.guards().closed(key.0),
        }
    }

    /// Records that a stream of the circuit `key` has ended.
    pub fn stream_ended(&mut self, key: CircuitKey) {
        let head = self.head_of(key);
        match self.circuits.get_mut(&head) {
            Some(circuit) => circuit.streams = circuit.streams.saturating_sub(1),
            None => self.left_legless(head),
        }
    }

    /// Stops the use of the circuit `key` for new streams. The caller does this if a stream could
    /// not be attached to the circuit, or if the circuit's exit refused a stream.
    pub fn retire(&mut self, key: CircuitKey) {
        let head = self.head_of(key);
        if let Some(circuit) = self.circuits.get_mut(&head) {
            circuit.retired = true;
        }
    }

    /// Decides how to meet demands (requests for circuits), and which circuits to build or close.
    /// The caller must call this after every change, and at [`CircuitManager::next_timeout`].
    pub fn work(&mut self, at: Moment, rng: &mut impl Rng) {
        let Moment { now, unix: unix_now } = at;
        self.looked = now;
        self.give_up_silent(now);
        self.expire(now, unix_now);
        self.end_legless(now);
        let network = self.network.clone().filter(|network| {
            network.is_enough() && network.consensus().is_reasonably_live(unix_now)
        });
        if let Some(network) = &network {
            self.renew(unix_now, Some(network), rng);
        }
        self.upgrade(unix_now);
        if let Some(network) = &network {
            self.rescue(network, at, rng);
            self.link(network);
            self.replace_aged(now);
        }
        self.attach(now);
        let Some(network) = network else { return };
        if now < self.paused_until {
            return;
        }
        let (unmet, ahead) = (self.unmet(&network, now), self.lacking(&network));
        let usual = (Target { port: USUAL_PORT, v6: false }, Vec::new());
        let [mut begun, mut failed] = [false; 2];
        for (target, avoid) in unmet.into_iter().chain(std::iter::repeat_n(usual, ahead)) {
            if self.building() >= MOST_BUILDING {
                return;
            }
            match self.begin(&network, (target, &avoid), now, unix_now, rng) {
                Ok(()) => begun = true,
                Err(Some(none)) => {
                    failed |= self.refuse_demands(&network, now, (target, &avoid), none)
                }
                Err(None) => failed = true,
            }
        }
        let most = MOST_BUILDING.saturating_sub(self.building());
        self.begin_legs(&network, at, most, rng);
        // Pause only if no circuit was begun, so that one demand's failure does not delay the
        // others.
        if failed && !begun {
            self.pause(now);
        }
    }

    fn building(&self) -> usize {
        self.circuits.values().filter(|circuit| !circuit.built).count()
    }

    /// Handles the demands (requests for a circuit) for `target` that avoid the exits `avoid`,
    /// after no path was found for them. Returns true if a demand can now use exits that it had to
    /// avoid.
    ///
    /// For a demand with exits in [`Demand::failed_exits`], clears that list, so that the demand
    /// may use these exits again. Refuses the other demands. If some relays of the consensus are
    /// not known yet, refuses each demand only once its age is `SLUGGISH`.
    fn refuse_demands(
        &mut self,
        network: &Network,
        now: Time,
        (target, avoid): (Target, &[[u8; 20]]),
        none: NoRelay,
    ) -> bool {
        let is_known = network.missing().next().is_none();
        let (mut refused, mut may_shun_less) = (Vec::new(), false);
        for pending in &mut self.demands {
            let wants = pending.demand.target == target && pending.avoided() == avoid;
            let demand = &mut pending.demand;
            if wants && !demand.failed_exits.is_empty() {
                demand.failed_exits.clear();
                may_shun_less = true;
            } else if wants && (is_known || now >= demand.since + SLUGGISH) {
                refused.push(demand.number);
            }
        }
        self.refuse(refused, Refusal::NoPath(none));
        may_shun_less
    }

    fn refuse(&mut self, numbers: Vec<u64>, why: Refusal) {
        for number in numbers {
            self.withdraw(number);
            self.orders.push_back(Order::Refuse(number, why));
        }
    }

    /// Removes and returns the next order; `None` if there is none.
    pub fn poll(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Returns the time at which [`CircuitManager::work`] must be called if nothing changes
    /// earlier; `None` if no call is needed before a change.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let building = self.circuits.values().filter(|circuit| !circuit.built);
        let sluggish = building
            .clone()
            .map(|circuit| circuit.begun + SLUGGISH)
            .filter(|&time| time > self.looked && !self.demands.is_empty());
        let late = building.map(|circuit| {
            let patience =
                if circuit.late { self.times.close_timeout() } else { self.times.timeout() };
            circuit.begun + Duration::from_millis(patience)
        });
        let used = self.circuits.values().filter(|circuit| circuit.is_idle());
        let dirty = used.map(|circuit| circuit.ends_idle(self.dirtiness));
        let since = self.demands.iter().map(|pending| pending.demand.since);
        let demands = since.flat_map(|since| [since + SLUGGISH, since + PATIENCE]);
        let demands = demands.filter(|&time| time > self.looked);
        let paused = (self.paused_until > Time::ZERO).then_some(self.paused_until);
        let waits = self.circuits.values().any(|circuit| circuit.waits);
        late.chain(sluggish)
            .chain(waits.then_some(self.looked + LOOK))
            .chain(dirty)
            .chain(self.leg_due())
            .chain(self.age_due())
            .chain(self.legless_due())
            .chain(demands)
            .chain(self.unanswered.next_timeout())
            .chain(paused.filter(|_| self.network.is_some()))
            .min()
    }

    fn renew(&mut self, unix_now: u64, network: Option<&Network>, rng: &mut impl Rng) {
        let renewed = self.entry.renew(unix_now, network, &self.restrictions, rng);
        self.orders.extend(renewed.changed.then_some(Order::Keep));
        self.orders.extend(renewed.few.map(Order::FewGuards));
    }

    /// Allows the use of circuits that no longer have to wait for a better guard, and closes
    /// circuits that have waited too long.
    fn upgrade(&mut self, unix_now: u64) {
        for key in self.entry.guards().ready(unix_now) {
            if let Some(circuit) = self.circuits.get_mut(&CircuitKey(key)) {
                circuit.waits = false;
            }
        }
        for key in self.entry.guards().outdated(unix_now) {
            self.drop_circuit(CircuitKey(key));
        }
    }

    fn expire(&mut self, now: Time, unix_now: u64) {
        self.refuse_late(now);
        let (patience, end) = (self.times.timeout(), self.times.close_timeout());
        let after =
            |circuit: &Circuit, millis| now >= circuit.begun + Duration::from_millis(millis);
        let mut over = Vec::new();
        for (&key, circuit) in &mut self.circuits {
            let over_idle = circuit.is_idle() && now >= circuit.ends_idle(self.dirtiness);
            if over_idle || (!circuit.built && after(circuit, end)) {
                over.push(key);
            } else if !circuit.built && !circuit.late && after(circuit, patience) {
                circuit.late = true;
                if circuit.hops > 0 {
                    self.times.timed_out();
                }
            }
        }
        for key in over {
            if let Some(circuit) = self.circuits.get(&key).filter(|circuit| !circuit.built) {
                self.unbuilt(unix_now, key, circuit.hops);
            }
            self.drop_circuit(key);
        }
        if self.paused_until <= now {
            self.paused_until = Time::ZERO;
        }
    }

    /// Refuses demands (requests for a circuit) that have waited for `PATIENCE`.
    fn refuse_late(&mut self, now: Time) {
        let is_late = |pending: &&PendingDemand| now >= pending.demand.since + PATIENCE;
        let late: Vec<(u64, bool)> = self
            .demands
            .iter()
            .filter(is_late)
            .map(|pending| (pending.demand.number, pending.silences > 0))
            .collect();
        for (number, unanswered) in late {
            let why = if unanswered { Refusal::Unanswered } else { Refusal::TimedOut };
            self.refuse(vec![number], why);
        }
    }

    fn drop_circuit(&mut self, key: CircuitKey) {
        self.circuits.remove(&key);
        self.entry.guards().closed(key.0);
        self.orders.push_back(Order::Destroy(key));
        self.drop_further(key);
    }

    /// Attaches each demand (request for a circuit) to a built circuit that fits it, if there is
    /// one.
    fn attach(&mut self, now: Time) {
        let Some(network) = self.network.clone() else { return };
        let (selection, dirtiness, mut waiting) = (self.selection, self.dirtiness, Vec::new());
        for pending in std::mem::take(&mut self.demands) {
            let demand = &pending.demand;
            let fits = |circuit: &&mut Circuit| circuit.takes(&network, demand, (now, dirtiness));
            let fitting = self.circuits.iter_mut().map(|(key, circuit)| (*key, circuit));
            let best = fitting
                .filter(|(_, circuit)| fits(circuit))
                .min_by_key(|(key, circuit)| selection.rank(*key, circuit));
            let Some((key, circuit)) = best else {
                waiting.push(pending);
                continue;
            };
            circuit.isolation = Some(demand.isolation.clone());
            circuit.first_used.get_or_insert(now);
            circuit.streams += 1;
            self.orders.push_back(Order::Attach(demand.number, key));
            self.unanswered.add(now, pending, key);
        }
        self.demands = waiting;
    }

    /// Returns the targets of demands (requests for a circuit) for which no circuit is under
    /// construction. Each target comes with the exits that its circuit must avoid. Demands that
    /// can share a circuit count once.
    fn unmet(&self, network: &Network, now: Time) -> Vec<(Target, Vec<[u8; 20]>)> {
        let is_coming = |circuit: &&Circuit| {
            let hopeful = !circuit.late && now < circuit.begun + SLUGGISH;
            !circuit.built && hopeful && circuit.leg.head.is_none()
        };
        let mut coming: Vec<&Circuit> = self.circuits.values().filter(is_coming).collect();
        let mut met: Vec<(&Isolation, Target, Vec<[u8; 20]>)> = Vec::new();
        let mut unmet = Vec::new();
        for pending in &self.demands {
            let (demand, avoided) = (&pending.demand, pending.avoided());
            let kind = (&demand.isolation, demand.target, avoided);
            if met.contains(&kind) {
                continue;
            }
            match coming.iter().position(|circuit| circuit.serves(network, demand)) {
                Some(place) => drop(coming.swap_remove(place)),
                None => unmet.push((demand.target, kind.2.clone())),
            }
            met.push(kind);
        }
        unmet
    }

    /// Returns the number of circuits to build so that `AHEAD` unused ones are ready.
    fn lacking(&self, network: &Network) -> usize {
        let usual = Target { port: USUAL_PORT, v6: false };
        let unused = self.circuits.values().filter(|circuit| {
            circuit.isolation.is_none()
                && circuit.first_used.is_none()
                && !circuit.retired
                && !circuit.late
                && !circuit.waits
                && circuit.leg.head.is_none()
                && circuit.leads_to(network, usual)
        });
        AHEAD.saturating_sub(unused.count())
    }

    /// Queues the order to build a circuit to `target` with an exit that is not in `avoid`.
    ///
    /// # Errors
    /// No path was found. The error is the position in the path for which no relay is suitable, or
    /// `None` if a path may be found later.
    fn begin(
        &mut self,
        network: &Network,
        (target, avoid): (Target, &[[u8; 20]]),
        now: Time,
        unix_now: u64,
        rng: &mut impl Rng,
    ) -> Result<(), Option<NoRelay>> {
        if let Some((_, none)) = self.hopeless.iter().find(|(hopeless, _)| *hopeless == target) {
            return Err(Some(*none));
        }
        let key = CircuitKey(self.last_key + 1);
        let more = (!avoid.is_empty()).then(|| self.restrictions.without(avoid));
        let (in_use, suspects) = (self.entry.in_use(), self.suspects.at(now));
        let restrictions = more.as_ref().unwrap_or(&self.restrictions);
        let entry = &mut self.entry;
        // The choice of guards depends on `restrictions` alone. Relays in `without` are avoided at
        // other positions.
        let mut draw = |without: &[[u8; 20]], rng: &mut _| {
            network.path(target, &restrictions.without(without), rng, |exit, rng| {
                entry.choose(unix_now, key.0, exit, network, restrictions, rng)
            })
        };
        // If possible, use no guard of other legs as a middle, and no relay that was silent
        // recently.
        let apart = [in_use.as_slice(), &suspects].concat();
        let mut path = draw(&apart, rng);
        for less in [&suspects, &in_use, &Vec::new()] {
            if path.is_err() && less.len() < apart.len() {
                path = draw(less, rng);
            }
        }
        let Ok(path) = path else {
            self.entry.guards().closed(key.0);
            let none = network.has_path(target, restrictions).err();
            // A bridge can be the first hop although the consensus does not list it as a guard.
            let bridged = self.entry.bridges().is_some();
            let none = none.filter(|none| !bridged || none.0 != Position::Guard);
            self.hopeless.extend(none.filter(|_| avoid.is_empty()).map(|none| (target, none)));
            return Err(none);
        };
        self.last_key = key.0;
        let relays: Vec<Relay<'_>> = path.iter().filter_map(|id| network.relay(id)).collect();
        let hops = self.hops(&relays);
        self.orders.push_back(Order::Build(key, hops));
        let spare = network.params().padding.spare(rng);
        let leg = LegState::of_head(self.is_merging());
        self.circuits.insert(key, Circuit { leg, ..Circuit::begun(path, now, spare) });
        Ok(())
    }

    fn pause(&mut self, now: Time) {
        self.paused_until = now + FIRST_PAUSE * (1 << self.failures.min(MOST_DOUBLINGS));
        self.failures = self.failures.saturating_add(1);
    }
}

impl Circuit {
    fn begun(path: Path, begun: Time, spare: Duration) -> Circuit {
        Circuit {
            path,
            begun,
            built: false,
            waits: false,
            hops: 0,
            late: false,
            isolation: None,
            first_used: None,
            retired: false,
            spare,
            streams: 0,
            timing: Timing::default(),
            leg: LegState::default(),
        }
    }

    /// Returns true if the circuit can carry streams.
    fn is_ready(&self) -> bool {
        self.built && !self.waits && !self.late
    }

    /// Returns true if the circuit is built, has no streams, and is the head of its set or in no
    /// set. The head is the circuit that represents its set.
    fn is_idle(&self) -> bool {
        self.built && self.streams == 0 && self.leg.head.is_none()
    }

    fn takes(
        &self,
        network: &Network,
        demand: &Demand,
        (now, dirtiness): (Time, Duration),
    ) -> bool {
        let fresh = !self.retired && self.first_used.is_none_or(|used| now < used + dirtiness);
        let same = self.isolation.as_ref().is_none_or(|isolation| *isolation == demand.isolation);
        let is_head = self.leg.head.is_none();
        self.is_ready() && is_head && fresh && same && self.serves(network, demand)
    }

    /// Returns the time at which the circuit is closed if it still has no streams then. Returns
    /// zero (at once) for a circuit that takes no new streams.
    fn ends_idle(&self, dirtiness: Duration) -> Time {
        match self.first_used {
            _ if self.retired => Time::ZERO,
            None => self.begun + self.spare,
            Some(used) => used + dirtiness,
        }
    }

    fn stage(&self) -> Stage {
        match self.first_used {
            _ if !self.built => Stage::Building(self.hops),
            _ if self.retired => Stage::Ending,
            None => Stage::Spare,
            Some(_) => Stage::Used,
        }
    }

    fn serves(&self, network: &Network, demand: &Demand) -> bool {
        let fails = [&demand.avoid, &demand.failed_exits]
            .into_iter()
            .any(|ids| ids.contains(&self.path[2]));
        self.leads_to(network, demand.target) && !fails
    }

    fn leads_to(&self, network: &Network, target: Target) -> bool {
        let exit = network.relay(&self.path[2]);
        exit.is_some_and(|exit| exit.microdesc.exits_to(target.port, target.v6))
    }
}

/// Returns true if `restrictions` allow each relay of `path` at its position.
fn allow(restrictions: &RelayRestrictions, path: &Path) -> bool {
    let last = Position::Exit(target_of_names());
    let positions = [Position::Guard, Position::Middle, last];
    positions.into_iter().zip(path).all(|(position, id)| restrictions.allow(position, id))
}

/// Returns the hop for a relay, with the best handshake that the relay supports. The hop requests
/// congestion control if `controlled` is true and the relay supports it.
fn hop(relay: &Relay<'_>, controlled: bool) -> Hop {
    let wish = if controlled { wish(relay.status.subprotocols) } else { HopRequest::Plain };
    hop_with(relay, wish)
}

/// Returns the hop for a relay, with the best handshake that the relay supports. The hop contains
/// the request `wish` if this handshake can carry it.
fn hop_with(relay: &Relay<'_>, wish: HopRequest) -> Hop {
    let onion_key = relay.microdesc.ntor;
    let key = match relay.status.subprotocols.ntor_v3 {
        true => HopKey::NtorV3 { onion_key, wish },
        false => HopKey::Ntor(onion_key),
    };
    let target = extend::Target {
        addresses: relay.status.addresses.clone(),
        rsa: relay.status.rsa_identity,
        ed25519: Some(relay.microdesc.ed_identity),
    };
    Hop { target, key }
}

/// Returns the features to request from a relay with the protocol versions `subprotocols`:
/// congestion control if the relay supports it, and also CGO if it supports both.
fn wish(subprotocols: Subprotocols) -> HopRequest {
    match (subprotocols.congestion_control, subprotocols.cgo) {
        (true, true) => HopRequest::Cgo,
        (true, false) => HopRequest::CongestionControl,
        (false, _) => HopRequest::Plain,
    }
}

/// Returns the target for a name lookup: any exit that allows web ports.
#[must_use]
pub fn target_of_names() -> Target {
    Target { port: USUAL_PORT, v6: false }
}

#[cfg(test)]
mod tests;
