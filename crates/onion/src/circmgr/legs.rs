//! Sets of several circuits (proposal 329, and the designs before it): which circuits are linked,
//! and which are built to be further legs.
//!
//! The first circuit of a set is its head: streams are attached to it. It is linked as soon as it
//! is built, before it has a stream; what is built for it later joins the set, in use or not. A
//! client that nobody has used for an hour builds no further legs: C tor's built and dropped sets
//! for as long as they ran (its issue 40981).

use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::Rng;

use super::bridges::Bridges;
use super::{Circuit, CircuitManager, Order};
use crate::client::{Cause, CircuitKey, Hop};
use crate::conflux::Design;
use crate::directory::network::{Network, Path, Position, Relay, Wishes};
use crate::moment::Moment;
use crate::wire::netdoc::{Flags, Speaks};

/// After a demand, further legs are built ahead for so long (C tor's
/// PredictedPortsRelevanceTime).
const RELEVANT: Duration = Duration::from_secs(3600);
/// A leg that failed is not begun again before this time.
const AGAIN: Duration = Duration::from_secs(1);
/// A set without circuits ends after this time (`docs/spec/resilient-legs.md#death`).
const LEGLESS: Duration = Duration::from_secs(10);
/// Circuits that are begun for one, a second apart, while none of them is built.
const MOST_ATTEMPTS: usize = 3;
/// Legs of a set of a design that no consensus speaks of, if the user does not say.
const USUAL: usize = 2;
/// Relays where legs can join, below which the user is told how few there are: each sees of a
/// client which guards it has.
const FEW_JOINING: usize = 8;
/// No relay has this fingerprint: an exit where none will do.
const NOBODY: [u8; 20] = [0; 20];

/// Where the legs of a set meet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SetEnd {
    Exit,
    Middle,
}

impl SetEnd {
    /// Which relays are wished there.
    fn wished(self, wishes: &mut Wishes) -> &mut Vec<[u8; 20]> {
        match self {
            SetEnd::Exit => &mut wishes.exit,
            SetEnd::Middle => &mut wishes.middle,
        }
    }

    /// Whether a relay with these flags can stand there.
    fn fits(self, flags: Flags) -> bool {
        match self {
            SetEnd::Exit => flags.exit && !flags.bad_exit,
            SetEnd::Middle => flags.fast,
        }
    }
}

/// What is known of a circuit that may be a leg.
#[derive(Clone, Debug, Default)]
pub(super) struct LegState {
    /// The circuit that began its set, if it is not that one itself.
    pub(super) head: Option<CircuitKey>,
    /// It was ordered to be linked.
    pub(super) linking: bool,
    /// Its last relay has linked it.
    pub(super) linked: bool,
    /// It could not be linked: it goes alone.
    alone: bool,
    /// Further legs that were begun for it, and when the next may be.
    begun: usize,
    again: Time,
    /// It does not answer any more, nor does any other of its set.
    silent: bool,
    /// The circuit that the core knows its set by, if that is gone: the set has outlived it.
    name: Option<CircuitKey>,
    /// It is to be the first leg of a set that goes on from its last relay: complete once it does.
    pub(super) merges: bool,
}

impl LegState {
    /// Of a circuit that may begin a set, as one of legs that join at a middle or not.
    pub(super) fn of_head(merges: bool) -> LegState {
        LegState { merges, ..LegState::default() }
    }
}

/// A set that has outlived all its circuits: it has had streams, and goes on by a new one.
#[derive(Clone, Debug)]
pub(super) struct LeglessSet {
    /// The circuit that the core knows it by.
    name: CircuitKey,
    since: Time,
    /// When the next circuit may be begun for it.
    again: Time,
    /// The circuit to which its streams were attached, as it was.
    head: Circuit,
}

impl CircuitManager {
    /// The user wishes circuits of so many legs; `None`: as many as the consensus says. 1 is for
    /// circuits that go alone.
    pub fn set_legs(&mut self, legs: Option<usize>) {
        self.wanted_legs = legs;
        self.entry.set_legs(self.legs());
        let allowed = self.allowed();
        if allowed != self.wishes {
            self.wishes = allowed;
            self.keep_to_wishes();
        }
    }

    /// Which design sets are of. Before anything else is said.
    pub fn set_design(&mut self, design: Design) {
        self.design = design;
    }

    /// Whether circuits end only at exits that link sets of another design than Tor's.
    #[must_use]
    pub fn needs_able_exits(&self) -> bool {
        self.design != Design::Conflux && !self.design.is_merged() && self.legs() >= 2
    }

    /// Whether legs join at middles.
    pub(super) fn is_merging(&self) -> bool {
        self.design.is_merged() && self.legs() >= 2
    }

    /// The hops of a circuit over these relays, as far as it is built alone: where legs join, what
    /// lies beyond is the set's.
    pub(super) fn hops(&self, relays: &[Relay<'_>]) -> Vec<Hop> {
        let relays = if self.is_merging() { &relays[..relays.len() - 1] } else { relays };
        let controlled = self.design.has_congestion_control();
        let last = relays.len() - 1;
        let hops = relays.iter().enumerate();
        hops.map(|(place, relay)| super::hop(relay, controlled && place == last)).collect()
    }

    /// Whether a circuit that has been built is to begin a set of merged legs now.
    pub(super) fn is_to_merge(&self, key: CircuitKey) -> bool {
        self.circuits.get(&key).is_some_and(|circuit| circuit.leg.merges && !circuit.leg.linking)
    }

    /// Orders a circuit to begin a set whose legs join at its last relay.
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

    /// Legs that a set is to have: each has a bridge of its own, where there are bridges.
    pub(super) fn legs(&self) -> usize {
        let most = self.entry.bridges().map_or(usize::MAX, Bridges::count);
        self.wished_legs().min(most.max(1))
    }

    /// Legs that are wished for.
    pub(super) fn wished_legs(&self) -> usize {
        let usual = match self.design {
            Design::Conflux if !self.conflux.enabled => return 1,
            Design::Conflux => self.conflux.legs,
            Design::Ancestor(..) | Design::Resilient | Design::Merged => USUAL,
        };
        self.wanted_legs.unwrap_or(usual).clamp(1, self.conflux.max_legs)
    }

    /// What the user wishes, with those exits alone that link sets of another design than Tor's, or
    /// those middles alone where legs can join: few do, and a circuit to another would go alone.
    /// Orders the user to be told if none does.
    pub(super) fn allowed(&mut self) -> Wishes {
        let mut wishes = self.wanted.clone();
        let Some(network) = self.network.as_deref() else { return wishes };
        let end = match self.is_merging() {
            true => SetEnd::Middle,
            false if self.needs_able_exits() => SetEnd::Exit,
            false => return wishes,
        };
        let wanted = end.wished(&mut wishes).clone();
        let allowed = |id: &[u8; 20]| {
            let wanted = wanted.is_empty() || wanted.contains(id);
            let found_unable = end == SetEnd::Middle && self.unlinkable.contains(id);
            wanted && !wishes.exclude.contains(id) && !found_unable
        };
        let relays = network.consensus().relays.iter();
        let able = relays.filter(|relay| links(self.design, relay.speaks) && end.fits(relay.flags));
        let able: Vec<[u8; 20]> = able.map(|relay| relay.rsa_identity).filter(allowed).collect();
        let count = able.len();
        let before = end.wished(&mut self.wishes);
        if able.is_empty() && *before != [NOBODY] {
            self.orders.push_back(Order::NoAbleRelay(self.design));
        } else if end == SetEnd::Middle
            && (1..FEW_JOINING).contains(&count)
            && before.len() != count
        {
            self.orders.push_back(Order::FewJoining(count));
        }
        *end.wished(&mut wishes) = if able.is_empty() { vec![NOBODY] } else { able };
        wishes
    }

    /// A circuit was linked by its last relay; where legs join at a middle, the first leads on to
    /// the exit now, and is complete.
    pub fn linked(&mut self, at: Moment, key: CircuitKey, rng: &mut impl Rng) {
        let Some(circuit) = self.circuits.get_mut(&key) else { return };
        circuit.leg.linked = true;
        let is_complete = circuit.leg.merges && !circuit.built;
        self.heard_all(at.now, key);
        if is_complete {
            self.built(at, key, rng);
        }
    }

    /// The circuit at the head of the set of which this one is, or is to be, a further leg.
    #[must_use]
    pub fn head(&self, key: CircuitKey) -> Option<CircuitKey> {
        self.circuits.get(&key)?.leg.head
    }

    /// A circuit cannot be linked. If it was to be a further leg, or to carry on a set that had
    /// none, it is of no use.
    pub fn not_linked(&mut self, key: CircuitKey) {
        let Some(circuit) = self.circuits.get_mut(&key) else { return };
        (circuit.leg.linking, circuit.leg.alone) = (false, true);
        if circuit.leg.head.is_some() || circuit.leg.name.is_some() || circuit.leg.merges {
            self.drop_circuit(key);
        }
    }

    /// Orders circuits to be linked that are built and were never used.
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
        // The core knows a set by the circuit that began it, also if that is gone.
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
        let speaks = network.relay(&exit).map(|exit| exit.status.speaks);
        let speaks = speaks.is_some_and(|speaks| links(self.design, speaks));
        speaks && !circuit.leg.alone && !circuit.retired && !self.unlinkable.contains(&exit)
    }

    /// Begins further legs of sets that lack some; no more than `most`.
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
                // Guards that are in other legs' way now may not be then.
                self.circuits.entry(head).and_modify(|circuit| circuit.leg.again = at.now + AGAIN);
            } else if !begun {
                self.circuits.entry(head).and_modify(|circuit| circuit.leg.begun = usize::MAX);
                if !std::mem::replace(&mut self.told_few_legs, true) {
                    let found = 1 + self.further(head).count();
                    self.orders.push_back(Order::FewLegs(found, legs));
                }
            }
        }
    }

    fn lacks(&self, now: Time, legs: usize, key: CircuitKey, head: &Circuit) -> bool {
        let is_head = head.leg.head.is_none() && head.leg.linking && !head.retired;
        let asked = self.asked.is_some_and(|asked| now < asked + RELEVANT);
        let ahead = asked && (self.many_link || self.design != Design::Conflux);
        let wanted = head.streams > 0 || head.first_used.is_some() || ahead;
        let retries = legs - 1 + self.conflux.retries;
        is_head
            && wanted
            && head.leg.begun < retries
            && now >= head.leg.again
            && self.answering(key, head) < legs
    }

    /// Legs of a set that answer, or may come to.
    fn answering(&self, key: CircuitKey, head: &Circuit) -> usize {
        let further = self.further(key).filter(|(_, leg)| !leg.leg.silent).count();
        usize::from(!head.leg.silent) + further
    }

    /// The further legs of a set.
    pub(super) fn further(&self, head: CircuitKey) -> impl Iterator<Item = (CircuitKey, &Circuit)> {
        let of = move |circuit: &&Circuit| circuit.leg.head == Some(head);
        self.circuits.iter().map(|(key, circuit)| (*key, circuit)).filter(move |(_, one)| of(one))
    }

    /// Begins a leg that has the head's exit and else no relay, no family and no subnet in common
    /// with the set; where legs join at a middle, the head's middle, too. False if nobody was found
    /// for it: then the set has fewer legs. It takes no guard beyond those in use: more guards see
    /// the client in the long run.
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
        // Silent legs are in nobody's way: there may be no other guards.
        let paths = legs.filter(|leg| !leg.leg.silent).map(|leg| leg.path);
        let others: Vec<[u8; 20]> = paths.flat_map(|[guard, middle, _]| [guard, middle]).collect();
        let key = CircuitKey(self.last_key + 1);
        let merging = self.is_merging();
        let fixed = [Some(exit), merging.then_some(joins)].into_iter().flatten();
        let mut beside: Vec<[u8; 20]> = others.iter().copied().chain(fixed).collect();
        let guard = self.entry.choose_leg(at.unix, key.0, &beside, network, &self.wishes);
        let Some(guard) = guard else { return false };
        beside.push(guard);
        // What further legs need as guards is no middle, as long as there are others.
        let apart = [beside.as_slice(), &self.entry.in_use()].concat();
        let answering = [apart.as_slice(), &self.suspects.at(at.now)].concat();
        let mut middle = |beside| network.choose(Position::Middle, beside, &self.wishes, rng);
        let mut other_middle = || {
            let drawn = middle(&answering).or_else(|_| middle(&apart));
            let drawn = drawn.or_else(|_| middle(&beside));
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

    /// A circuit is gone: what that means for its set. If its set may go on without its head,
    /// another leg takes the head's place. A set that lost a leg takes no new streams: the exit may
    /// not have noticed yet, and send by that leg.
    pub(super) fn left_set(&mut self, now: Time, key: CircuitKey, gone: &Circuit, cause: Cause) {
        if cause == Cause::Unlinked {
            self.unlinkable.insert(gone.path[if self.is_merging() { 1 } else { 2 }]);
            self.wishes = self.allowed();
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
        let heir = self.further(key).find(|(_, leg)| leg.leg.linked).map(|(key, _)| key);
        let rest: Vec<CircuitKey> = self.further(key).map(|(key, _)| key).collect();
        let Some(heir) = heir else {
            return rest.into_iter().for_each(|leg| self.drop_circuit(leg));
        };
        for leg in rest.into_iter().filter(|leg| *leg != heir) {
            self.circuits.entry(leg).and_modify(|circuit| circuit.leg.head = Some(heir));
        }
        self.circuits.entry(heir).and_modify(|circuit| {
            circuit.isolation.clone_from(&gone.isolation);
            (circuit.first_used, circuit.streams) = (gone.first_used, gone.streams);
            circuit.retired = true;
            circuit.leg.head = None;
        });
        self.heirs.values_mut().filter(|of| **of == key).for_each(|of| *of = heir);
        self.heirs.insert(key, heir);
    }

    /// The same of a set that outlives its legs: another is begun in the place of each.
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
        let heir = self.further(key).filter(|(_, leg)| leg.leg.linked).map(|(key, _)| key).next();
        let rest: Vec<CircuitKey> = self.further(key).map(|(key, _)| key).collect();
        match heir {
            Some(heir) => self.inherit((key, name), heir, gone),
            // What programs wrote before they ended their streams may be under way still.
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

    /// A circuit takes the place of the head `key` of a set that the core knows by `name`.
    fn inherit(&mut self, (key, name): (CircuitKey, CircuitKey), heir: CircuitKey, gone: &Circuit) {
        let rest: Vec<CircuitKey> = self.further(key).map(|(key, _)| key).collect();
        for leg in rest.into_iter().filter(|leg| *leg != heir) {
            self.circuits.entry(leg).and_modify(|circuit| circuit.leg.head = Some(heir));
        }
        self.circuits.entry(heir).and_modify(|circuit| {
            circuit.isolation.clone_from(&gone.isolation);
            (circuit.first_used, circuit.streams) = (gone.first_used, gone.streams);
            (circuit.retired, circuit.leg.head) = (gone.retired, None);
            (circuit.leg.name, circuit.leg.again) = (Some(name), gone.leg.again);
            circuit.leg.begun = gone.leg.begun.saturating_sub(1);
        });
        self.known_as(key, heir);
        self.known_as(name, heir);
    }

    /// Who asks for one circuit's set means that of another from now on.
    fn known_as(&mut self, key: CircuitKey, heir: CircuitKey) {
        self.heirs.values_mut().filter(|of| **of == key).for_each(|of| *of = heir);
        if key != heir {
            self.heirs.insert(key, heir);
        }
        self.heirs.remove(&heir);
    }

    /// A leg does not answer any more, nor does any other of its set: one is begun beside it.
    pub fn silent(&mut self, key: CircuitKey) {
        let Some(circuit) = self.circuits.get_mut(&key) else { return };
        if !std::mem::replace(&mut circuit.leg.silent, true) {
            let head = circuit.leg.head.unwrap_or(key);
            let head = self.circuits.entry(head);
            head.and_modify(|head| head.leg.begun = head.leg.begun.saturating_sub(1));
        }
    }

    /// Looks after sets without circuits: the first that is built carries on.
    pub(super) fn rescue(&mut self, network: &Network, at: Moment, rng: &mut impl Rng) {
        for place in (0..self.legless.len()).rev() {
            let LeglessSet { name, again, .. } = self.legless[place];
            let ready = self.further(name).find(|(_, leg)| leg.is_ready()).map(|(key, _)| key);
            if let Some(heir) = ready {
                let LeglessSet { head, .. } = self.legless.remove(place);
                self.inherit((name, name), heir, &head);
            } else if at.now >= again && self.further(name).count() < MOST_ATTEMPTS {
                self.begin_leg(network, name, at, rng);
                self.legless[place].again = at.now + AGAIN;
            }
        }
    }

    /// Sets for which no circuit was built in time end; the core has ended their streams.
    pub(super) fn end_legless(&mut self, now: Time) {
        let over = |set: &mut LeglessSet| now >= set.since + LEGLESS;
        let over: Vec<CircuitKey> = self.legless.extract_if(.., over).map(|set| set.name).collect();
        over.into_iter().for_each(|name| self.drop_further(name));
    }

    /// A stream of a set without circuits has ended.
    pub(super) fn left_legless(&mut self, name: CircuitKey) {
        let set = self.legless.iter_mut().find(|set| set.name == name);
        set.into_iter().for_each(|set| set.head.streams = set.head.streams.saturating_sub(1));
    }

    /// When a set without circuits is to be looked after.
    pub(super) fn legless_due(&self) -> Option<Time> {
        let due = self.legless.iter().flat_map(|set| [set.again, set.since + LEGLESS]);
        due.filter(|due| *due > self.looked).min()
    }

    /// The circuit by which a set is known now.
    pub(super) fn head_of(&self, key: CircuitKey) -> CircuitKey {
        self.heirs.get(&key).copied().unwrap_or(key)
    }

    /// The circuits of a set go with its head.
    pub(super) fn drop_further(&mut self, head: CircuitKey) {
        let legs: Vec<CircuitKey> = self.further(head).map(|(key, _)| key).collect();
        legs.into_iter().for_each(|leg| self.drop_circuit(leg));
        self.heirs.retain(|_, heir| *heir != head);
    }

    /// When a leg may be begun again.
    pub(super) fn leg_due(&self) -> Option<Time> {
        let due = self.circuits.values().map(|circuit| circuit.leg.again);
        due.filter(|again| *again > self.looked).min()
    }
}

/// Whether an exit that speaks this links sets of a design.
const fn links(design: Design, speaks: Speaks) -> bool {
    let able = match design {
        Design::Conflux => speaks.conflux,
        Design::Ancestor(..) => speaks.ancestors,
        Design::Resilient => speaks.resilient,
        Design::Merged => speaks.merged,
    };
    able && (speaks.congestion_control || !design.has_congestion_control())
}

/// Whether so many exits link circuits that sets are kept ready (`cfx_low_exit_threshold`).
pub(super) fn many_link(network: &Network, threshold: u32) -> bool {
    let (mut exits, mut linking) = (0u64, 0u64);
    for relay in network.consensus().relays.iter().filter(|relay| relay.flags.exit) {
        exits += 1;
        linking += u64::from(relay.speaks.conflux);
    }
    linking > 0 && linking * 10_000 >= exits * u64::from(threshold)
}
