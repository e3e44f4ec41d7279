//! Sets of several circuits, called legs, that carry the same streams (proposal 329, and other
//! designs). This module links circuits to sets, and begins further legs.
//!
//! The first circuit of a set is its head, and streams are attached to it. It is linked as soon as
//! it is built, before it has a stream. Each further circuit joins the set once it is built, even
//! if the set is in use. A client that had no demand for an hour builds no further legs. Otherwise
//! an idle client would build and drop sets for ever, as in C tor's issue 40981.

use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::Rng;

use super::bridges::Bridges;
use super::{Circuit, CircuitManager, Order};
use crate::client::{Cause, CircuitKey, Hop};
use crate::conflux::Design;
use crate::directory::network::{Network, Path, Position, Relay, RelayRestrictions};
use crate::handshake::extension::HopRequest;
use crate::moment::Moment;
use crate::wire::netdoc::{Flags, RelayStatus, Subprotocols};

/// Time after a demand during which further circuits for sets are built in advance (C tor's
/// PredictedPortsRelevanceTime).
const RELEVANT: Duration = Duration::from_secs(3600);
/// Delay between the loss of a set's circuit (a leg) and the beginning of the circuit that
/// replaces it.
const AGAIN: Duration = Duration::from_secs(1);
/// Time after which a set without circuits is closed (`docs/spec/resilient-legs.md#death`).
const LEGLESS: Duration = Duration::from_secs(10);
/// Maximum number of circuits under construction for a set that has lost all its circuits. They
/// are begun one second apart.
const MOST_ATTEMPTS: usize = 3;
/// Number of circuits (legs) in a set if neither the user nor a consensus parameter of the design
/// gives a number.
const USUAL: usize = 2;
/// Number of relays that can join the circuits of a set, below which the user is warned. Each of
/// these relays sees which guards a client has.
const FEW_JOINING: usize = 8;
/// A fingerprint that no relay has. The restrictions permit only this exit or middle if no relay
/// can link sets of circuits.
const NOBODY: [u8; 20] = [0; 20];

/// Position in the path of the relay at which the circuits (legs) of a set meet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SetEnd {
    Exit,
    Middle,
}

impl SetEnd {
    /// Returns the restrictions' list of permitted relays for this position (exit or middle).
    fn wished(self, restrictions: &mut RelayRestrictions) -> &mut Vec<[u8; 20]> {
        match self {
            SetEnd::Exit => &mut restrictions.exit,
            SetEnd::Middle => &mut restrictions.middle,
        }
    }

    /// Returns true if a relay with these flags fits this position (exit or middle).
    fn fits(self, flags: Flags) -> bool {
        match self {
            SetEnd::Exit => flags.exit && !flags.bad_exit,
            SetEnd::Middle => flags.fast,
        }
    }
}

/// State of a circuit as a leg of a set of circuits.
#[derive(Clone, Debug, Default)]
pub(super) struct LegState {
    /// The head of the circuit's set: the circuit that represents the set. `None` if this circuit
    /// is the head, or is in no set.
    pub(super) head: Option<CircuitKey>,
    /// True if the order to link this circuit to a set was given.
    pub(super) linking: bool,
    /// True if the circuit's last relay has linked it to a set.
    pub(super) linked: bool,
    /// True if the circuit could not be linked to a set, and is used as a single circuit.
    alone: bool,
    /// Number of further circuits begun for the set, if this circuit is the set's head (the
    /// circuit that represents the set).
    begun: usize,
    /// Earliest time at which another circuit of the set may be begun, if this circuit is the
    /// set's head (the circuit that represents the set).
    again: Time,
    /// True if this circuit has stopped answering, and no other circuit of its set answers either.
    silent: bool,
    /// True if another circuit is to replace this one because of its age. This circuit is closed
    /// once the set has enough other circuits.
    aged: bool,
    /// Key of the first circuit of this circuit's set, if the set has lost that circuit. The
    /// client's protocol state machine still identifies the set by this key.
    name: Option<CircuitKey>,
    /// True if the circuit is the first leg of a set whose legs join at the circuit's last relay,
    /// a middle. The circuit is complete once the set continues beyond that relay.
    pub(super) merges: bool,
}

impl LegState {
    /// Returns the state of a circuit that may become the first of a set. `merges` is true if the
    /// circuits of the set join at a middle relay.
    pub(super) fn of_head(merges: bool) -> LegState {
        LegState { merges, ..LegState::default() }
    }
}

/// A set that has had streams and has lost all its circuits. It continues once a new circuit is
/// built for it.
#[derive(Clone, Debug)]
pub(super) struct LeglessSet {
    /// Key of the circuit that began the set. The client's protocol state machine identifies the
    /// set by this key.
    name: CircuitKey,
    since: Time,
    /// Earliest time at which the next circuit may be begun for the set.
    again: Time,
    /// State of the set's last head (the circuit that represents the set).
    head: Circuit,
}

impl CircuitManager {
    /// Sets the number of circuits (legs) in a set that the user wants. `None` leaves the number
    /// to the consensus; 1 means single circuits.
    pub fn set_legs(&mut self, legs: Option<usize>) {
        self.wanted_legs = legs;
        self.entry.set_legs(self.legs());
        let allowed = self.allowed();
        if allowed != self.restrictions {
            self.restrictions = allowed;
            self.apply_restrictions();
        }
    }

    /// Sets the traffic-splitting design of the client's circuit sets. Call this before any other
    /// method.
    pub fn set_design(&mut self, design: Design) {
        self.design = design;
    }

    /// Sets the `age` at which a set with streams replaces each of its circuits (legs), so that
    /// long streams change their circuits. This applies to designs in which a set survives the
    /// loss of a circuit.
    pub fn set_leg_age(&mut self, age: Option<Duration>) {
        self.leg_age = age;
    }

    /// Sets whether circuits for streams are lossy (their cells travel in datagrams and may be
    /// lost). A set has one lossy circuit, unless the user wants several circuits in a set. Call
    /// this before any other method.
    pub fn set_lossy(&mut self, lossy: bool) {
        self.lossy = lossy;
    }

    /// Returns true if the client's design of circuit sets is not Tor's own, and circuits must end
    /// at exits that support it.
    #[must_use]
    pub fn needs_able_exits(&self) -> bool {
        self.design != Design::Conflux && !self.design.is_merged() && self.legs() >= 2
    }

    /// Returns true if the circuits (legs) of a set join at a middle relay.
    pub(super) fn is_merging(&self) -> bool {
        self.design.is_merged() && self.legs() >= 2
    }

    /// Returns the hops to build for a circuit over `relays`. If the circuits of a set join at a
    /// middle relay, leaves out the hops after that relay, because the whole set shares them.
    pub(super) fn hops(&self, relays: &[Relay<'_>]) -> Vec<Hop> {
        if self.lossy {
            let hop = |relay| super::hop_with(relay, HopRequest::Lossy);
            return relays.iter().map(hop).collect();
        }
        let relays = if self.is_merging() { &relays[..relays.len() - 1] } else { relays };
        let controlled = self.congestion_control && self.design.has_congestion_control();
        let last = relays.len() - 1;
        let hops = relays.iter().enumerate();
        hops.map(|(place, relay)| super::hop(relay, controlled && place == last)).collect()
    }

    /// Returns true if the built circuit `key` must now begin a set whose circuits join at a
    /// middle relay.
    pub(super) fn is_to_merge(&self, key: CircuitKey) -> bool {
        self.circuits.get(&key).is_some_and(|circuit| circuit.leg.merges && !circuit.leg.linking)
    }

    /// Queues the order to begin a set with the circuit `key`. The circuits of this set join at
    /// the last relay of `key`.
    pub(super) fn merge(&mut self, key: CircuitKey) {
        let Some(circuit) = self.circuits.get_mut(&key) else { return };
        circuit.leg.linking = true;
        let exit = circuit.path[2];
        let exit = self
            .network
            .as_ref()
            .and_then(|network| network.relay(&exit).map(|exit| super::hop(&exit, true)));
        match exit {
            Some(exit) => self.orders.push_back(Order::Merge(key, vec![exit])),
            None => self.drop_circuit(key),
        }
    }

    /// Returns the number of circuits (legs) in a set. With bridges it is at most the number of
    /// bridges, because each leg uses a different bridge.
    pub(super) fn legs(&self) -> usize {
        let most = self.entry.bridges().map_or(usize::MAX, Bridges::count);
        self.requested_legs().min(most.max(1))
    }

    /// Returns the number of circuits (legs) in a set that the user wants. If the user gave no
    /// number, returns the value of the consensus, or else the default.
    pub(super) fn requested_legs(&self) -> usize {
        if self.lossy {
            return self.wanted_legs.unwrap_or(1).max(1);
        }
        let usual = match self.design {
            Design::Conflux if !self.conflux.enabled => return 1,
            design if design.has_congestion_control() && !self.congestion_control => return 1,
            Design::Conflux => self.conflux.legs,
            Design::Ancestor(..) | Design::Resilient | Design::Merged => USUAL,
        };
        self.wanted_legs.unwrap_or(usual).clamp(1, self.conflux.max_legs)
    }

    /// Returns the user's restrictions, further restricted to relays that can link sets of the
    /// client's design. This restricts exits in designs other than Tor's, or middles in designs
    /// whose circuits join at a middle. Circuits to other relays could not be linked. Queues a
    /// report to the user if no relay that can link sets is left, or if few such middles are left.
    pub(super) fn allowed(&mut self) -> RelayRestrictions {
        let mut restrictions = self.wanted.clone();
        if self.lossy {
            return self.allowed_lossy();
        }
        let Some(network) = self.network.as_deref() else { return restrictions };
        let end = match self.is_merging() {
            true => SetEnd::Middle,
            false if self.needs_able_exits() => SetEnd::Exit,
            false => return restrictions,
        };
        let wanted = end.wished(&mut restrictions).clone();
        let allowed = |id: &[u8; 20]| {
            let wanted = wanted.is_empty() || wanted.contains(id);
            let found_unable = end == SetEnd::Middle && self.unlinkable.contains(id);
            wanted && !restrictions.exclude.contains(id) && !found_unable
        };
        let relays = network.consensus().relays.iter();
        let able =
            relays.filter(|relay| links(self.design, relay.subprotocols) && end.fits(relay.flags));
        let able: Vec<[u8; 20]> = able.map(|relay| relay.rsa_identity).filter(allowed).collect();
        let count = able.len();
        let before = end.wished(&mut self.restrictions);
        if able.is_empty() && *before != [NOBODY] {
            self.orders.push_back(Order::NoAbleRelay(self.design));
        } else if end == SetEnd::Middle
            && (1..FEW_JOINING).contains(&count)
            && before.len() != count
        {
            self.orders.push_back(Order::FewJoining(count));
        }
        *end.wished(&mut restrictions) = if able.is_empty() { vec![NOBODY] } else { able };
        restrictions
    }

    /// Returns the user's restrictions, further restricted to relays that accept lossy circuits
    /// (whose cells travel in datagrams). Queues a report to the user if no such relay is left for
    /// a position of the path.
    fn allowed_lossy(&mut self) -> RelayRestrictions {
        let mut restrictions = self.wanted.clone();
        let Some(network) = self.network.as_deref() else { return restrictions };
        let grants = |relay: &&RelayStatus| relay.subprotocols.lossy && relay.subprotocols.ntor_v3;
        let able: Vec<&RelayStatus> = network.consensus().relays.iter().filter(grants).collect();
        type Fits = fn(Flags) -> bool;
        let positions: [(_, Fits); 3] = [
            (&mut restrictions.entry, |flags| flags.guard),
            (&mut restrictions.middle, |_| true),
            (&mut restrictions.exit, |flags| flags.exit && !flags.bad_exit),
        ];
        let mut lacks = false;
        for (named, fits) in positions {
            let fits = able.iter().filter(|relay| fits(relay.flags));
            let fits = fits.map(|relay| relay.rsa_identity);
            let mut fits: Vec<[u8; 20]> =
                fits.filter(|id| named.is_empty() || named.contains(id)).collect();
            if fits.is_empty() {
                lacks = true;
                fits.push(NOBODY);
            }
            *named = fits;
        }
        if lacks && !self.warned_no_lossy {
            self.orders.push_back(Order::NoLossyRelay);
        }
        self.warned_no_lossy = lacks;
        restrictions
    }

    /// Records that the last relay of the circuit `key` has linked it to a set. If circuits join
    /// at a middle relay, the set's first circuit now continues to the exit, and is complete.
    pub fn linked(&mut self, at: Moment, key: CircuitKey, rng: &mut impl Rng) {
        let Some(circuit) = self.circuits.get_mut(&key) else { return };
        circuit.leg.linked = true;
        let is_complete = circuit.leg.merges && !circuit.built;
        self.note_all_answered(at.now, key);
        if is_complete {
            self.built(at, key, rng);
        }
    }

    /// Returns the head (the circuit that represents the set) of the set in which the circuit
    /// `key` is or will be a further leg. Returns `None` if the circuit is itself the head, or is
    /// in no set.
    #[must_use]
    pub fn head(&self, key: CircuitKey) -> Option<CircuitKey> {
        self.circuits.get(&key)?.leg.head
    }

    /// Records that the circuit `key` cannot be linked to a set. The circuit is dropped if it was
    /// meant to join a set that has or had other circuits. It is also dropped if it was meant as
    /// the first leg of a set that joins at a middle relay.
    pub fn not_linked(&mut self, key: CircuitKey) {
        let Some(circuit) = self.circuits.get_mut(&key) else { return };
        (circuit.leg.linking, circuit.leg.alone) = (false, true);
        if circuit.leg.head.is_some() || circuit.leg.name.is_some() || circuit.leg.merges {
            self.drop_circuit(key);
        }
    }

    /// Queues orders to link circuits that are built and unused. Each of these circuits then
    /// begins a set or joins an existing one.
    pub(super) fn link(&mut self, network: &Network) {
        if self.legs() < 2 {
            return;
        }
        let ready = |circuit: &Circuit| circuit.is_ready() && !circuit.leg.linking;
        let joins = |head: CircuitKey| self.circuits.get(&head).is_some_and(|one| one.leg.linking);
        let fits = |circuit: &Circuit| match (circuit.leg.head, circuit.leg.name) {
            (Some(head), _) => joins(head),
            (None, Some(_)) => true,
            (None, None) => circuit.first_used.is_none() && self.may_link(network, circuit),
        };
        let fitting = self.circuits.iter().filter(|(_, circuit)| ready(circuit) && fits(circuit));
        // The core identifies a set by the circuit that began it, even after that circuit has
        // closed.
        let name = |head: CircuitKey| {
            self.circuits.get(&head).and_then(|head| head.leg.name).unwrap_or(head)
        };
        let with = |leg: &LegState| leg.name.or_else(|| leg.head.map(name));
        let fitting: Vec<(CircuitKey, Option<CircuitKey>)> =
            fitting.map(|(key, circuit)| (*key, with(&circuit.leg))).collect();
        for (key, with) in fitting {
            self.circuits.entry(key).and_modify(|circuit| circuit.leg.linking = true);
            self.orders.push_back(Order::Link(key, with));
        }
    }

    fn may_link(&self, network: &Network, circuit: &Circuit) -> bool {
        let exit = circuit.path[2];
        let subprotocols = network.relay(&exit).map(|exit| exit.status.subprotocols);
        let subprotocols = subprotocols.is_some_and(|subprotocols| match self.lossy {
            true => subprotocols.lossy,
            false => links(self.design, subprotocols),
        });
        subprotocols && !circuit.leg.alone && !circuit.retired && !self.unlinkable.contains(&exit)
    }

    /// Begins at most `most` further circuits for sets that have too few circuits.
    pub(super) fn begin_legs(
        &mut self,
        network: &Network,
        at: Moment,
        most: usize,
        rng: &mut impl Rng,
    ) {
        let legs = self.legs();
        let heads =
            self.circuits.iter().filter(|(key, head)| self.lacks(at.now, legs, **key, head));
        let heads: Vec<CircuitKey> = heads.map(|(key, _)| *key).take(most).collect();
        for head in heads {
            let begun = self.begin_leg(network, head, at, rng);
            if !begun && self.design.is_resilient() {
                // Guards that conflict with other legs now may be free later.
                self.circuits.entry(head).and_modify(|circuit| circuit.leg.again = at.now + AGAIN);
            } else if !begun {
                self.circuits.entry(head).and_modify(|circuit| circuit.leg.begun = usize::MAX);
                if !std::mem::replace(&mut self.warned_few_legs, true) {
                    let found = 1 + self.further(head).count();
                    self.orders.push_back(Order::FewLegs(found, legs));
                }
            }
        }
    }

    fn lacks(&self, now: Time, legs: usize, key: CircuitKey, head: &Circuit) -> bool {
        let is_head = head.leg.head.is_none() && head.leg.linking && !head.retired;
        let is_recent = self.last_demand.is_some_and(|demand| now < demand + RELEVANT);
        let ahead = is_recent && (self.many_link || self.lossy || self.design != Design::Conflux);
        let wanted = head.streams > 0 || head.first_used.is_some() || ahead;
        let retries = legs - 1 + self.conflux.retries;
        is_head
            && wanted
            && head.leg.begun < retries
            && now >= head.leg.again
            && self.answering(key, head) < legs
    }

    /// Returns the number of circuits in a set that still answer, including circuits under
    /// construction. `key` and `head` are the key and the state of the set's head (the circuit
    /// that represents the set).
    fn answering(&self, key: CircuitKey, head: &Circuit) -> usize {
        let further = self.further(key).filter(|(_, leg)| !leg.leg.silent).count();
        usize::from(!head.leg.silent) + further
    }

    /// Iterates over all circuits (legs) of a set except its head (the circuit that represents the
    /// set).
    pub(super) fn further(&self, head: CircuitKey) -> impl Iterator<Item = (CircuitKey, &Circuit)> {
        let of = move |circuit: &&Circuit| circuit.leg.head == Some(head);
        self.circuits.iter().map(|(key, circuit)| (*key, circuit)).filter(move |(_, one)| of(one))
    }

    /// Begins another circuit (leg) for a set. The circuit has the set's exit, and also the set's
    /// middle if circuits join at a middle. It has no other relay, family or subnet in common with
    /// the set. Only guards in use are chosen, because further guards would also see the client
    /// over time. Returns false if no suitable relay was found; the set then has fewer circuits.
    fn begin_leg(
        &mut self,
        network: &Network,
        head: CircuitKey,
        at: Moment,
        rng: &mut impl Rng,
    ) -> bool {
        let own = self.circuits.get(&head);
        let legless = self.legless.iter().find(|set| set.name == head).map(|set| &set.head);
        let Some([_, joins, exit]) = own.or(legless).map(|circuit| circuit.path) else {
            return true;
        };
        let legs = own.into_iter().chain(self.further(head).map(|(_, leg)| leg));
        // Ignore relays of silent legs, because there may be no other guards.
        let paths = legs.filter(|leg| !leg.leg.silent).map(|leg| leg.path);
        let others: Vec<[u8; 20]> = paths.flat_map(|[guard, middle, _]| [guard, middle]).collect();
        let key = CircuitKey(self.last_key + 1);
        let merging = self.is_merging();
        let fixed = [Some(exit), merging.then_some(joins)].into_iter().flatten();
        let mut chosen: Vec<[u8; 20]> = others.iter().copied().chain(fixed).collect();
        let guard = self.entry.choose_leg(at.unix, key.0, &chosen, network, &self.restrictions);
        let Some(guard) = guard else { return false };
        chosen.push(guard);
        // If possible, use no guards of further legs as middles.
        let apart = [chosen.as_slice(), &self.entry.in_use()].concat();
        let answering = [apart.as_slice(), &self.suspects.at(at.now)].concat();
        let mut middle = |chosen| network.choose(Position::Middle, chosen, &self.restrictions, rng);
        let mut other_middle = || {
            let drawn = middle(&answering).or_else(|_| middle(&apart));
            let drawn = drawn.or_else(|_| middle(&chosen));
            drawn.ok().map(|relay| relay.status.rsa_identity)
        };
        let Some(middle) = (if merging { Some(joins) } else { other_middle() }) else {
            self.entry.guards().closed(key.0);
            return false;
        };
        self.last_key = key.0;
        let path: Path = [guard, middle, exit];
        let relays: Vec<Relay<'_>> = path.iter().filter_map(|id| network.relay(id)).collect();
        let hops = self.hops(&relays);
        self.orders.push_back(Order::Build(key, hops));
        let spare = network.params().padding.spare(rng);
        let leg = LegState { head: Some(head), ..LegState::default() };
        self.circuits.insert(key, Circuit { leg, ..Circuit::begun(path, at.now, spare) });
        self.circuits.entry(head).and_modify(|circuit| circuit.leg.begun += 1);
        true
    }

    /// Removes the closed circuit `key`, whose state was `gone`, from its set. If the set
    /// continues without its head (the circuit that represents the set), another circuit becomes
    /// the head. A set that has lost a circuit takes no new streams. The exit may not have noticed
    /// the loss yet, and would send data of new streams on the lost circuit.
    pub(super) fn left_set(&mut self, now: Time, key: CircuitKey, gone: &Circuit, cause: Cause) {
        if cause == Cause::Unlinked {
            self.unlinkable.insert(gone.path[if self.is_merging() { 1 } else { 2 }]);
            self.restrictions = self.allowed();
        }
        if self.design.is_resilient() {
            return self.left_resilient_set(now, key, gone);
        }
        if let Some(head) = gone.leg.head {
            self.circuits.entry(head).and_modify(|circuit| {
                circuit.leg.again = now + AGAIN;
                circuit.retired |= gone.leg.linked;
            });
            return;
        }
        let successor = self.further(key).find(|(_, leg)| leg.leg.linked).map(|(key, _)| key);
        let rest: Vec<CircuitKey> = self.further(key).map(|(key, _)| key).collect();
        let Some(successor) = successor else {
            return rest.into_iter().for_each(|leg| self.drop_circuit(leg));
        };
        for leg in rest.into_iter().filter(|leg| *leg != successor) {
            self.circuits.entry(leg).and_modify(|circuit| circuit.leg.head = Some(successor));
        }
        self.circuits.entry(successor).and_modify(|circuit| {
            circuit.isolation.clone_from(&gone.isolation);
            (circuit.first_used, circuit.streams) = (gone.first_used, gone.streams);
            circuit.retired = true;
            circuit.leg.head = None;
        });
        self.successors.values_mut().filter(|of| **of == key).for_each(|of| *of = successor);
        self.successors.insert(key, successor);
    }

    /// Removes the closed circuit `key` from its set, in designs whose sets continue without loss
    /// of data. A new circuit replaces the lost one.
    fn left_resilient_set(&mut self, now: Time, key: CircuitKey, gone: &Circuit) {
        if let Some(head) = gone.leg.head {
            self.circuits.entry(head).and_modify(|circuit| match gone.leg.linked {
                true => circuit.leg.begun = circuit.leg.begun.saturating_sub(1),
                false => circuit.leg.again = now + AGAIN,
            });
            return;
        }
        let name = gone.leg.name.unwrap_or(key);
        let was_set = gone.leg.linked || gone.leg.name.is_some();
        let successor =
            self.further(key).filter(|(_, leg)| leg.leg.linked).map(|(key, _)| key).next();
        let rest: Vec<CircuitKey> = self.further(key).map(|(key, _)| key).collect();
        match successor {
            Some(successor) => self.inherit((key, name), successor, gone),
            // Programs may have ended their streams while data that they wrote is still in
            // transit.
            None if was_set && gone.first_used.is_some() => {
                for leg in rest {
                    self.circuits.entry(leg).and_modify(|circuit| circuit.leg.head = Some(name));
                }
                self.known_as(key, name);
                let head = gone.clone();
                self.legless.push(LeglessSet { name, since: now, again: now, head });
            }
            None => rest.into_iter().for_each(|leg| self.drop_circuit(leg)),
        }
    }

    /// Makes the circuit `successor` the head of the set that the client's protocol state machine
    /// identifies by `name`. The previous head was the circuit `key`, whose state was `gone`.
    fn inherit(
        &mut self,
        (key, name): (CircuitKey, CircuitKey),
        successor: CircuitKey,
        gone: &Circuit,
    ) {
        let rest: Vec<CircuitKey> = self.further(key).map(|(key, _)| key).collect();
        for leg in rest.into_iter().filter(|leg| *leg != successor) {
            self.circuits.entry(leg).and_modify(|circuit| circuit.leg.head = Some(successor));
        }
        self.circuits.entry(successor).and_modify(|circuit| {
            circuit.isolation.clone_from(&gone.isolation);
            (circuit.first_used, circuit.streams) = (gone.first_used, gone.streams);
            (circuit.retired, circuit.leg.head) = (gone.retired, None);
            (circuit.leg.name, circuit.leg.again) = (Some(name), gone.leg.again);
            circuit.leg.begun = gone.leg.begun.saturating_sub(1);
        });
        self.known_as(key, successor);
        self.known_as(name, successor);
    }

    /// Records that the circuit `successor` replaced `key` as the head of a set (the circuit that
    /// represents the set). Later requests with the key `key` then apply to `successor`.
    fn known_as(&mut self, key: CircuitKey, successor: CircuitKey) {
        self.successors.values_mut().filter(|of| **of == key).for_each(|of| *of = successor);
        if key != successor {
            self.successors.insert(key, successor);
        }
        self.successors.remove(&successor);
    }

    /// Records that the circuit `key` no longer answers, and neither does any other circuit of its
    /// set. Another circuit is begun later.
    pub fn silent(&mut self, key: CircuitKey) {
        let Some(circuit) = self.circuits.get_mut(&key) else { return };
        if !std::mem::replace(&mut circuit.leg.silent, true) {
            let head = circuit.leg.head.unwrap_or(key);
            let head = self.circuits.entry(head);
            head.and_modify(|head| head.leg.begun = head.leg.begun.saturating_sub(1));
        }
    }

    /// Returns the age at which circuits of a set are replaced. Returns `None` if the user sets
    /// none, or if the design does not permit replacement.
    fn leg_age(&self) -> Option<Duration> {
        self.leg_age.filter(|_| self.design.is_resilient() && self.legs() >= 2)
    }

    /// Replaces old circuits of sets with streams, one at a time for each set. The new circuit is
    /// begun before the old one is closed.
    pub(super) fn replace_aged(&mut self, now: Time) {
        let Some(age) = self.leg_age() else { return };
        let legs = self.legs();
        let is_used = |circuit: &Circuit| circuit.leg.head.is_none() && circuit.streams > 0;
        let heads = self.circuits.iter().filter(|(_, circuit)| is_used(circuit));
        let heads: Vec<CircuitKey> = heads.map(|(key, _)| *key).collect();
        for head in heads {
            let own = self.circuits.get(&head).map(|circuit| (head, circuit));
            let set = || own.into_iter().chain(self.further(head));
            let linked: Vec<(Time, CircuitKey)> = set()
                .filter(|(_, circuit)| circuit.leg.linked && !circuit.leg.silent)
                .map(|(key, circuit)| (circuit.begun, key))
                .collect();
            if linked.len() < legs {
                continue;
            }
            let aged: Vec<CircuitKey> =
                set().filter(|(_, circuit)| circuit.leg.aged).map(|(key, _)| key).collect();
            let oldest = linked.into_iter().min().filter(|(begun, _)| now >= *begun + age);
            match oldest.filter(|_| aged.is_empty()) {
                Some((_, key)) => {
                    self.silent(key);
                    self.circuits.entry(key).and_modify(|circuit| circuit.leg.aged = true);
                }
                None => aged.into_iter().for_each(|key| self.close_aged(key)),
            }
        }
    }

    fn close_aged(&mut self, key: CircuitKey) {
        self.circuits.entry(key).and_modify(|circuit| circuit.leg.aged = false);
        self.orders.push_back(Order::Destroy(key));
    }

    /// Returns the next time at which a circuit of a set reaches the age at which it is replaced;
    /// `None` if none will be replaced.
    pub(super) fn age_due(&self) -> Option<Time> {
        let age = self.leg_age()?;
        let linked = self.circuits.values().filter(|circuit| circuit.leg.linked);
        linked.map(|circuit| circuit.begun + age).filter(|due| *due > self.looked).min()
    }

    /// Begins circuits for each set that has lost all its circuits. The first of these circuits
    /// that is built becomes the set's head (the circuit that represents the set).
    pub(super) fn rescue(&mut self, network: &Network, at: Moment, rng: &mut impl Rng) {
        for place in (0..self.legless.len()).rev() {
            let LeglessSet { name, again, .. } = self.legless[place];
            let ready = self.further(name).find(|(_, leg)| leg.is_ready()).map(|(key, _)| key);
            if let Some(successor) = ready {
                let LeglessSet { head, .. } = self.legless.remove(place);
                self.inherit((name, name), successor, &head);
            } else if at.now >= again && self.further(name).count() < MOST_ATTEMPTS {
                self.begin_leg(network, name, at, rng);
                self.legless[place].again = at.now + AGAIN;
            }
        }
    }

    /// Removes sets that lost all their circuits and for which no circuit was built in time. The
    /// client's protocol state machine has already ended their streams.
    pub(super) fn end_legless(&mut self, now: Time) {
        let over = |set: &mut LeglessSet| now >= set.since + LEGLESS;
        let over: Vec<CircuitKey> = self.legless.extract_if(.., over).map(|set| set.name).collect();
        over.into_iter().for_each(|name| self.drop_further(name));
    }

    /// Records the end of a stream whose set has lost all its circuits. `name` is the key of the
    /// circuit that began the set.
    pub(super) fn left_legless(&mut self, name: CircuitKey) {
        let set = self.legless.iter_mut().find(|set| set.name == name);
        set.into_iter().for_each(|set| set.head.streams = set.head.streams.saturating_sub(1));
    }

    /// Returns the next time at which `work` must be called for a set that has lost all its
    /// circuits; `None` if no call is needed.
    pub(super) fn legless_due(&self) -> Option<Time> {
        let due = self.legless.iter().flat_map(|set| [set.again, set.since + LEGLESS]);
        due.filter(|due| *due > self.looked).min()
    }

    /// Returns the present head of a set (the circuit that represents the set). `key` is the set's
    /// present head, or a former one.
    pub(super) fn head_of(&self, key: CircuitKey) -> CircuitKey {
        self.successors.get(&key).copied().unwrap_or(key)
    }

    /// Drops all circuits of a set except its head `head`, which the caller drops or which is
    /// already closed.
    pub(super) fn drop_further(&mut self, head: CircuitKey) {
        let legs: Vec<CircuitKey> = self.further(head).map(|(key, _)| key).collect();
        legs.into_iter().for_each(|leg| self.drop_circuit(leg));
        self.successors.retain(|_, successor| *successor != head);
    }

    /// Returns the next time at which a set may begin a circuit that replaces a lost one. Times
    /// that the last call of `work` has handled do not count. `None` if no set waits for such a
    /// time.
    pub(super) fn leg_due(&self) -> Option<Time> {
        let due = self.circuits.values().map(|circuit| circuit.leg.again);
        due.filter(|again| *again > self.looked).min()
    }
}

/// Returns true if a relay with the protocol versions `subprotocols` can link sets of circuits of
/// the design `design`.
const fn links(design: Design, subprotocols: Subprotocols) -> bool {
    let able = match design {
        Design::Conflux => subprotocols.conflux,
        Design::Ancestor(..) => subprotocols.ancestors,
        Design::Resilient => subprotocols.resilient,
        Design::Merged => subprotocols.merged,
    };
    able && (subprotocols.congestion_control || !design.has_congestion_control())
}

/// Returns true if at least `threshold` of 10,000 exits can link circuits to sets
/// (`cfx_low_exit_threshold`). Otherwise clients keep no sets ready.
pub(super) fn many_link(network: &Network, threshold: u32) -> bool {
    let (mut exits, mut linking) = (0u64, 0u64);
    for relay in network.consensus().relays.iter().filter(|relay| relay.flags.exit) {
        exits += 1;
        linking += u64::from(relay.subprotocols.conflux);
    }
    linking > 0 && linking * 10_000 >= exits * u64::from(threshold)
}
