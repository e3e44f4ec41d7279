//! The relays that an authority knows: their accepted descriptors, and their answers to probes.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Entry, ReachSettings};
use super::flags::Merits;
use super::history::History;
use super::pins::Pins;
use super::probe_queue::{ProbeQueue, ProbeState, Room};
use super::reachability::Probe;
use super::refusal::Refusal;
use super::rules::Rules;
use super::sybil::{Candidate, Full, Origin, SybilLimits, sybils};
use crate::wire::extend::Target;

/// Maximum number of relays. At this number, no unknown relay is accepted.
const MOST: usize = 50_000;
/// Seconds for which an outdated descriptor is kept, because our own clock may be wrong.
const GRACE: u64 = 24 * 3600;
/// Maximum weight in kB/s of an unmeasured relay once any relay is measured (C tor's
/// `maxunmeasuredbw`).
const UNMEASURED: u32 = 20;
/// Minimum weight in kB/s of an unmeasured relay. With a weight of 0, no client would ever use a
/// relay that has not carried traffic yet.
const LEAST: u32 = 1;

/// The result of an accepted upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadOutcome {
    /// The descriptor is new. Contains the relay's RSA identity.
    New([u8; 20]),
    /// The descriptor is equal to the relay's descriptor that is already known.
    Known,
}

/// State of a relay that is stored until the next start of the program, in addition to its
/// descriptor.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRelay {
    /// The Ed25519 identity that belongs to the relay's RSA identity. The pair of identities is
    /// permanent once the relay has answered a probe under both of them.
    pub edwards: [u8; 32],
    /// The record of the relay's uptime.
    pub history: History,
    /// The time at which the relay last answered probes at all its addresses, in seconds since
    /// 1970; `None` if it never did.
    pub answered: Option<u64>,
}

/// All known relays.
#[derive(Clone, Debug, Default)]
pub(super) struct RouterList {
    rules: Rules,
    reach: ReachSettings,
    entries: BTreeMap<[u8; 20], Entry>,
    pins: Pins,
    probe_queue: ProbeQueue,
    sybil: SybilLimits,
    /// Histories of relays without a descriptor, each with the time of the relay's last answer.
    gone: BTreeMap<[u8; 20], (History, Option<u64>)>,
    /// Measured bandwidths in kilobytes per second.
    measured: BTreeMap<[u8; 20], u32>,
    /// Relays whose descriptors were removed since the last call of [`RouterList::dropped`].
    dropped: BTreeSet<[u8; 20]>,
}

impl RouterList {
    /// Creates an empty list.
    pub(super) fn new(rules: Rules, reach: ReachSettings) -> RouterList {
        RouterList { rules, reach, ..RouterList::default() }
    }

    /// Replaces the rules, and removes the relays that they ban.
    pub(super) fn adopt(&mut self, now: u64, rules: Rules) {
        self.rules = rules;
        let banned = self.rules.banned.clone();
        banned.iter().for_each(|id| self.remove(now, id));
    }

    /// Accepts a descriptor, optionally followed by an extra-info document, from an uploader at
    /// `origin`.
    pub(super) fn upload(
        &mut self,
        now: u64,
        text: &str,
        origin: Origin,
    ) -> Result<UploadOutcome, Refusal> {
        let entry = Entry::published(now, text, &self.rules)?;
        self.admit(now, entry, Some(origin))
    }

    /// Accepts a descriptor that was stored when the program last stopped.
    pub(super) fn restore(&mut self, now: u64, text: &str) -> Result<UploadOutcome, Refusal> {
        let entry = Entry::kept(text, &self.rules)?;
        self.admit(now, entry, None)
    }

    /// Returns the relays to probe now except `own`, and marks them as probed. Each address is a
    /// separate target. Running relays come first. The result may exceed `room` by one target,
    /// because a relay with two addresses is probed at both.
    pub(super) fn probes(&mut self, now: u64, own: &[u8; 20], mut room: Room) -> Vec<Probe> {
        let mut probes = Vec::new();
        while room.running > 0 {
            let up = self.probe_queue.next_up(now);
            let other = || (room.others > 0).then(|| self.probe_queue.next_other(now)).flatten();
            let Some(id) = up.or_else(other) else { break };
            let Some(entry) = self.entries.get_mut(&id) else {
                self.probe_queue.remove(&id);
                continue;
            };
            let probe_state = entry.probe_state(now, self.reach);
            if up.is_some() && probe_state != ProbeState::Up {
                // The relay was running when it was queued. Now it waits among the others.
                self.probe_queue.put(id, probe_state, entry.due(now, self.reach));
                continue;
            }
            if probe_state == ProbeState::New {
                self.sybil.probe_started(entry.turn);
            }
            let asked = id != *own && entry.is_current(now);
            (entry.probed, entry.probes) = (Some(now), entry.probes.saturating_add(1));
            let targets = if asked { targets(id, entry, self.reach) } else { Vec::new() };
            self.note(now, &id);
            room.running = room.running.saturating_sub(targets.len());
            if up.is_none() {
                room.others = room.others.saturating_sub(targets.len());
            }
            let runs = up.is_some();
            probes.extend(targets.into_iter().map(|target| Probe { target, runs }));
        }
        probes
    }

    /// Records whether a relay answered a probe at one address under both its identities.
    pub(super) fn observe(&mut self, now: u64, target: &Target, answers: bool) {
        let Some(entry) = self.entries.get_mut(&target.rsa) else { return };
        let probed =
            entry.reach.iter_mut().filter(|(address, _)| target.addresses.contains(address));
        if answers {
            probed.for_each(|(_, answered)| *answered = Some(now));
        }
        // A single missing answer is not enough: a relay is down when no answer is recent enough.
        let up = entry.is_up(now, self.reach);
        if up || !answers {
            entry.history.observe(now, up);
        }
        self.note(now, &target.rsa);
    }

    /// Records that the relay `id` is running, without a probe.
    pub(super) fn mark_running(&mut self, now: u64, id: &[u8; 20]) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.history.observe(now, true);
            entry.reach.iter_mut().for_each(|(_, answered)| *answered = Some(now));
            self.note(now, id);
        }
    }

    /// Records as down each relay whose last answer to a probe is too old to count.
    pub(super) fn settle(&mut self, now: u64) {
        for entry in self.entries.values_mut().filter(|entry| entry.history.is_up()) {
            let up = entry.is_up(now, self.reach);
            entry.history.observe(now, up);
        }
    }

    /// Removes descriptors that have been outdated for [`GRACE`] seconds. `steady` is the time of
    /// a monotonic clock, in seconds.
    pub(super) fn forget(&mut self, now: u64, steady: u64) {
        let mut over = Vec::new();
        for (id, entry) in &mut self.entries {
            match entry.is_current(now) {
                true => entry.dated = None,
                false => {
                    let since = *entry.dated.get_or_insert(steady);
                    over.extend((steady.saturating_sub(since) >= GRACE).then_some(*id));
                }
            }
        }
        over.iter().for_each(|id| self.remove(now, id));
    }

    /// Returns the relays whose descriptors were removed since the last call.
    pub(super) fn dropped(&mut self) -> BTreeSet<[u8; 20]> {
        std::mem::take(&mut self.dropped)
    }

    /// Returns the number of relays with a descriptor.
    pub(super) fn known(&self) -> usize {
        self.entries.len()
    }

    /// Shifts all times by `by` seconds, because the machine's clock was changed by this amount,
    /// and schedules new probes.
    pub(super) fn shift(&mut self, now: u64, by: i64) {
        self.entries.values_mut().for_each(|entry| entry.shift(by));
        for (history, answered) in self.gone.values_mut() {
            history.shift(by);
            answered.iter_mut().for_each(|time| *time = time.saturating_add_signed(by));
        }
        let ids: Vec<[u8; 20]> = self.entries.keys().copied().collect();
        ids.iter().for_each(|id| self.note(now, id));
    }

    /// Replaces the measured bandwidths, in kilobytes per second.
    pub(super) fn measure(&mut self, measured: BTreeMap<[u8; 20], u32>) {
        self.measured = measured;
        let ids: Vec<[u8; 20]> = self.entries.keys().copied().collect();
        for id in ids {
            let weight =
                self.entries.get(&id).map(|entry| self.weight(&id, entry.parsed.bandwidth));
            if let (Some(entry), Some(weight)) = (self.entries.get_mut(&id), weight) {
                entry.weight = weight;
            }
        }
    }

    /// Returns the number of running relays, without `own`.
    pub(super) fn running(&self, now: u64, own: &[u8; 20]) -> usize {
        let runs = |entry: &Entry| entry.is_current(now) && entry.is_up(now, self.reach);
        self.entries.iter().filter(|(id, entry)| *id != own && runs(entry)).count()
    }

    /// Returns the state to store of all relays that have ever answered a probe. Other relays are
    /// not stored, and count as new after a restart.
    pub(super) fn stored_relays(&self) -> impl Iterator<Item = ([u8; 20], StoredRelay)> {
        let past = |(id, edwards): (&[u8; 20], &[u8; 32])| {
            let (history, answered) = match self.entries.get(id) {
                Some(entry) => (entry.history.clone(), entry.answered(self.reach)),
                None => self.gone.get(id).cloned()?,
            };
            let edwards = *edwards;
            history.was_up().then_some((*id, StoredRelay { edwards, history, answered }))
        };
        self.pins.iter().filter_map(past)
    }

    /// Restores a relay's stored state. Returns false if it contradicts a known pair of
    /// identities.
    pub(super) fn remember(&mut self, now: u64, id: &[u8; 20], past: StoredRelay) -> bool {
        if !past.history.was_up() {
            return true;
        }
        if !self.pins.pin(*id, past.edwards) {
            return false;
        }
        match self.entries.get_mut(id) {
            Some(entry) => entry.take_up(past.history, past.answered),
            None => drop(self.gone.insert(*id, (past.history, past.answered))),
        }
        self.note(now, id);
        true
    }

    /// Returns the relays whose descriptors are current, in the order of their RSA identities.
    pub(super) fn current(&self, now: u64) -> impl Iterator<Item = (&[u8; 20], &Entry)> {
        self.entries.iter().filter(move |(_, entry)| entry.is_current(now))
    }

    /// Returns the current relays with the properties on which their flags depend. Relays above
    /// the maximum number of relays per address are left out.
    pub(super) fn judged(&self, now: u64, own: &[u8; 20]) -> Vec<(&[u8; 20], &Entry, Merits)> {
        let mut all: Vec<(&[u8; 20], &Entry, Merits)> = self
            .current(now)
            .map(|(id, entry)| (id, entry, entry.merits(now, self.reach, id == own)))
            .collect();
        let candidates = all.iter().map(|(id, entry, merits)| {
            let at = entry.counted(self.reach).map(|(at, _)| at.ip());
            Candidate { id: **id, merits, at: at.collect() }
        });
        let beyond = sybils(candidates.collect(), self.rules.per_address);
        all.retain(|(id, ..)| !beyond.contains(*id));
        all
    }

    pub(super) fn get(&self, id: &[u8; 20]) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// Accepts a relay if the rules permit it. `origin` is `None` for a descriptor from our own
    /// storage.
    fn admit(
        &mut self,
        now: u64,
        mut entry: Entry,
        origin: Option<Origin>,
    ) -> Result<UploadOutcome, Refusal> {
        let id = entry.described.rsa_identity;
        if !self.pins.agree(&id, &entry.described.ed_identity) {
            return Err(Refusal::Identity);
        }
        let known = self.entries.get(&id);
        if let Some(known) = known {
            if known.digest == entry.digest {
                return Ok(UploadOutcome::Known);
            }
            // A known descriptor from the future was accepted while the clock was wrong, and may
            // be replaced.
            let later = known.described.published >= entry.described.published;
            if later && !known.is_of_the_future(now) {
                return Err(Refusal::Older);
            }
        }
        entry.turn = origin.map_or(0, |origin| self.sybil.turn(origin));
        let makes_way = self.room_for(&id, &entry, origin)?;
        match self.entries.get(&id) {
            Some(before) => entry.follow(before),
            None => {
                if let Some((history, answered)) = self.gone.remove(&id) {
                    entry.take_up(history, answered);
                }
            }
        }
        makes_way.iter().for_each(|other| self.remove(now, other));
        entry.weight = self.weight(&id, entry.parsed.bandwidth);
        self.put(now, id, entry, origin);
        Ok(UploadOutcome::New(id))
    }

    /// Returns the relays to remove so that `entry` fits: one for each limit that is reached. None
    /// of these relays has ever answered a probe.
    fn room_for(
        &self,
        id: &[u8; 20],
        entry: &Entry,
        origin: Option<Origin>,
    ) -> Result<BTreeSet<[u8; 20]>, Refusal> {
        let known = self.entries.get(id);
        let is_known = self.gone.contains_key(id) || known.is_some_and(Entry::is_known);
        if !(self.pins.has_place(id) && (known.is_some() || self.entries.len() < MOST)) {
            return Err(Refusal::Full);
        }
        let Some(origin) = origin else { return Ok(BTreeSet::new()) };
        let addresses = entry.addresses(self.reach);
        let stranger = (!is_known).then_some(origin);
        let full = self.sybil.full(id, &addresses, stranger, self.rules.per_address);
        let goes = |full: Full| match full {
            Full::All => self.probe_queue.least(entry.turn),
            Full::These(these) => self.probe_queue.least_of(&these, entry.turn),
        };
        full.into_iter().map(|full| goes(full).ok_or(Refusal::Full)).collect()
    }

    fn put(&mut self, now: u64, id: [u8; 20], entry: Entry, origin: Option<Origin>) {
        self.pins.pin(id, entry.described.ed_identity);
        self.sybil.settle(id, &entry.addresses(self.reach));
        let is_new = !entry.is_known();
        if let Some(before) = self.entries.insert(id, entry) {
            let here = self.entries[&id].addresses(self.reach);
            let mut left = before.addresses(self.reach);
            left.retain(|old| !here.iter().any(|new| new.ip() == old.ip()));
            self.sybil.leave(&id, &left);
        } else if is_new {
            let origin = origin.unwrap_or(Origin::of(None));
            self.sybil.add_stranger(id, origin);
            self.sybil.take_turn(origin, self.entries[&id].turn);
        }
        self.dropped.remove(&id);
        self.note(now, &id);
    }

    /// Removes a relay's descriptor, and all its other state if the relay has never answered a
    /// probe.
    fn remove(&mut self, now: u64, id: &[u8; 20]) {
        let Some(mut entry) = self.entries.remove(id) else { return };
        self.probe_queue.remove(id);
        self.sybil.leave(id, &entry.addresses(self.reach));
        self.sybil.remove_stranger(id);
        self.dropped.insert(*id);
        if entry.is_known() {
            entry.history.observe(now, false);
            let answered = entry.answered(self.reach);
            self.gone.insert(*id, (entry.history, answered));
        } else {
            self.pins.unpin(id);
        }
    }

    /// Updates the time of a relay's next probe. Once the relay has answered a probe, it no longer
    /// counts against the limits for relays that have never answered.
    fn note(&mut self, now: u64, id: &[u8; 20]) {
        let Some(entry) = self.entries.get(id) else { return };
        self.probe_queue.put(*id, entry.probe_state(now, self.reach), entry.due(now, self.reach));
        if entry.is_known() {
            self.sybil.remove_stranger(id);
        }
    }

    /// Returns the consensus weight in kB/s of a relay that advertises `parsed` kB/s, and whether
    /// the weight was measured.
    fn weight(&self, id: &[u8; 20], parsed: u32) -> (u32, bool) {
        match self.measured.get(id) {
            Some(&measured) => (measured, true),
            None if self.measured.is_empty() => (parsed.max(LEAST), false),
            None => (parsed.clamp(LEAST, UNMEASURED), false),
        }
    }
}

/// Returns the targets at which a relay is probed, one for each address.
fn targets(id: [u8; 20], entry: &Entry, reach: ReachSettings) -> Vec<Target> {
    let ed25519 = Some(entry.described.ed_identity);
    let to = |address| Target { addresses: vec![address], rsa: id, ed25519 };
    entry.addresses(reach).into_iter().map(to).collect()
}

#[cfg(test)]
mod tests;
