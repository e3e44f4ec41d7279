//! Onion services: introduction points and rendezvous points (rend-spec-v3 3 and 4).
//!
//! An introduction or rendezvous point is a circuit that ends at this relay. A rendezvous point
//! joins the circuits of a client and a service: cells of one circuit that are not addressed to
//! this relay continue on the other. If the two circuits belong to different shards (parallel
//! cores of the relay), a circuit on the link between the shards joins them.

use std::collections::BTreeMap;

use anabranch_multipath::Time;

use super::Relay;
use super::circuit::{Next, ServicePoint};
use crate::bucket::Bucket;
use crate::channels::{LinkCircuit, Owner};
use crate::ending::Ending;
use crate::event::CircuitFault;
use crate::padding::Usage;
use crate::points::{Point, PointLocation};
use crate::wire::cell::{BODY, Body, Command};
use crate::wire::message::{DestroyReason, Message, RelayCommand};
use crate::wire::rend::{
    EstablishIntro, INTRO_ESTABLISHED, IntroLimit, IntroStatus, read_establish_rendezvous,
    read_introduce1, read_rendezvous1,
};

/// Consensus parameters of onion services (param-spec).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceParams {
    /// `HiddenServiceEnableIntroDoSDefense` with its rate and burst: the limit on introductions of
    /// a service that requests no limit itself.
    pub intro_limit: IntroLimit,
    /// `DoSRefuseSingleHopClientRendezvous`: true if the relay ignores ESTABLISH_RENDEZVOUS from
    /// clients that are directly connected to it.
    pub refuse_single_hop: bool,
}

impl ServiceParams {
    /// Reads the parameters of a consensus.
    #[must_use]
    pub fn new(values: &BTreeMap<String, i32>) -> ServiceParams {
        let read = |name: &str, default: i32| values.get(name).copied().unwrap_or(default).max(0);
        let number = |name, default| u64::from(read(name, default).unsigned_abs());
        let rate = number("HiddenServiceEnableIntroDoSRatePerSec", 25);
        let burst = number("HiddenServiceEnableIntroDoSBurstPerSec", 200);
        let is_limited = read("HiddenServiceEnableIntroDoSDefense", 0) == 1;
        ServiceParams {
            intro_limit: if is_limited { IntroLimit::new(rate, burst) } else { IntroLimit::None },
            refuse_single_hop: read("DoSRefuseSingleHopClientRendezvous", 0) == 1,
        }
    }
}

/// Maximum number of INTRODUCE2 messages queued for a service's link. Further introductions are
/// refused.
const MOST_INTRODUCTIONS: usize = 256;
/// Length in bytes of the length field before the data, in cells between parallel cores (shards).
const LENGTH: usize = 2;

impl Relay {
    /// Handles a message that a service or client sent to an introduction or rendezvous point.
    pub(super) fn take_service_message(&mut self, now: Time, index: u32, message: Message<'_>) {
        let data = message.data;
        let taken = match message.command {
            RelayCommand::ESTABLISH_INTRO => self.establish_intro(now, index, data),
            RelayCommand::ESTABLISH_RENDEZVOUS => self.establish_rendezvous(now, index, data),
            RelayCommand::INTRODUCE1 => self.introduce1(now, index, data),
            RelayCommand::RENDEZVOUS1 => self.rendezvous1(now, index, data),
            // Only introduction and rendezvous points send the other messages.
            _ => return,
        };
        if let Err(fault) = taken {
            self.break_off(index, fault);
        }
    }

    /// Makes the circuit `index` the introduction point of a service.
    ///
    /// # Errors
    /// The circuit already has another use, or the message is invalid: it is malformed, bound to
    /// another circuit, or not signed with the key in it.
    fn establish_intro(&mut self, now: Time, index: u32, data: &[u8]) -> Result<(), CircuitFault> {
        let nonce = self.nonce_of_last(index)?;
        let wish = EstablishIntro::check(data, &nonce).ok_or(CircuitFault::Message)?;
        let limit = match wish.limit {
            IntroLimit::Consensus => self.role.config.services.intro_limit,
            limit => limit,
        };
        let limit = match limit {
            IntroLimit::Rate { rate, burst } => {
                Some(Bucket::full(now, u64::from(rate), u64::from(burst)))
            }
            IntroLimit::None | IntroLimit::Consensus => None,
        };
        let (point, place) = (Point::Introduction(wish.auth_key), self.place(index));
        if let Some(before) = self.role.points.enter(point, place) {
            self.replace(before, &wish.auth_key);
        }
        self.set_next(index, Next::Point(Box::new(ServicePoint { point, limit })));
        self.originate(now, index, RelayCommand::INTRO_ESTABLISHED, &INTRO_ESTABLISHED);
        Ok(())
    }

    /// Closes the previous introduction point of a service, which may be in any parallel core
    /// (shard) of this relay (rend-spec-v3 3.1.1).
    fn replace(&mut self, before: PointLocation, auth_key: &[u8; 32]) {
        if before.shard == self.role.shard {
            return self.tear_down(before.circuit, DestroyReason::FINISHED);
        }
        let Some(link) = self.channels.sibling(before.shard) else { return };
        let body = [&before.circuit.to_be_bytes()[..], auth_key].concat();
        self.channels.send_control_cell(LinkCircuit { link, id: 0 }, Command::REPLACED, &body);
    }

    /// Handles a report by another parallel core (shard) of this relay that a service has a new
    /// introduction point. Closes the old point. Its circuit may be closed already, and the
    /// circuit's index may belong to another circuit by now.
    pub(super) fn replaced_by_sibling(&mut self, body: &Body) {
        let Some((circuit, rest)) = body.split_first_chunk() else { return };
        let Some(auth_key) = rest.first_chunk() else { return };
        let (index, point) = (u32::from_be_bytes(*circuit), Point::Introduction(*auth_key));
        let next = self.circuits.get(index).map(|circuit| &circuit.next);
        let is_it = matches!(next, Some(Next::Point(meeting)) if meeting.point == point);
        if is_it && self.role.points.find(&point) != Some(self.place(index)) {
            self.tear_down(index, DestroyReason::FINISHED);
        }
    }

    /// Makes the circuit `index` a rendezvous point, where a client waits for a service.
    ///
    /// # Errors
    /// The circuit already has another use, the message is malformed, or the cookie is in use.
    fn establish_rendezvous(
        &mut self,
        now: Time,
        index: u32,
        data: &[u8],
    ) -> Result<(), CircuitFault> {
        self.nonce_of_last(index)?;
        if self.role.config.services.refuse_single_hop && !self.is_from_relay(index) {
            return Ok(());
        }
        let cookie = read_establish_rendezvous(data).ok_or(CircuitFault::Message)?;
        let (point, place) = (Point::Rendezvous(cookie), self.place(index));
        if self.role.points.enter(point, place).is_some() {
            return Err(CircuitFault::Message);
        }
        self.set_next(index, Next::Point(Box::new(ServicePoint { point, limit: None })));
        self.originate(now, index, RelayCommand::RENDEZVOUS_ESTABLISHED, &[]);
        Ok(())
    }

    /// Forwards a client's introduction to a service. A circuit serves only one introduction and
    /// must have several hops, so that each introduction costs the client a circuit.
    ///
    /// # Errors
    /// The client is not allowed to ask for an introduction on this circuit.
    fn introduce1(&mut self, now: Time, index: u32, data: &[u8]) -> Result<(), CircuitFault> {
        self.nonce_of_last(index)?;
        let circuit = self.circuits.get_mut(index).ok_or(CircuitFault::Message)?;
        let is_first = !std::mem::replace(&mut circuit.introduced, true);
        if !is_first || !self.is_from_relay(index) {
            return Err(CircuitFault::Message);
        }
        let Some(auth_key) = read_introduce1(data) else {
            self.acknowledge(now, index, IntroStatus::Malformed);
            return Ok(());
        };
        match self.role.points.find(&Point::Introduction(auth_key)) {
            None => self.acknowledge(now, index, IntroStatus::Unknown),
            Some(place) if place.shard == self.role.shard => {
                let status = self.introduce2(now, place.circuit, auth_key, data);
                self.acknowledge(now, index, status);
            }
            Some(place) => match self.cross(now, index, place.shard, Command::INTRODUCE, data) {
                Some(link_circuit) => self.set_next(index, Next::Introducing(link_circuit)),
                None => self.acknowledge(now, index, IntroStatus::CannotRelay),
            },
        }
        Ok(())
    }

    /// Forwards an introduction to a service on the circuit `index`, if this circuit is the
    /// introduction point with the key `auth_key`.
    fn introduce2(
        &mut self,
        now: Time,
        index: u32,
        auth_key: [u8; 32],
        data: &[u8],
    ) -> IntroStatus {
        let Some(circuit) = self.circuits.get_mut(index) else { return IntroStatus::Unknown };
        let Next::Point(meeting) = &mut circuit.next else { return IntroStatus::Unknown };
        if meeting.point != Point::Introduction(auth_key) {
            return IntroStatus::Unknown;
        }
        if let Some(bucket) = &mut meeting.limit {
            if bucket.left(now) == 0 {
                return IntroStatus::Unknown;
            }
            bucket.take(1);
        }
        let (link_circuit, command) = (circuit.previous, RelayCommand::INTRODUCE2);
        let most = circuit.parts().map_or(0, |(_, _, layer)| layer.format().most(command));
        if data.len() > most || self.channels.waiting(link_circuit) >= MOST_INTRODUCTIONS {
            return IntroStatus::CannotRelay;
        }
        self.originate(now, index, command, data);
        IntroStatus::Success
    }

    /// Reports the outcome of an introduction to the client that asked for it.
    fn acknowledge(&mut self, now: Time, index: u32, status: IntroStatus) {
        self.originate(now, index, RelayCommand::INTRODUCE_ACK, &status.put());
    }

    /// Joins the circuit of a service to the circuit of the client that waits for it.
    ///
    /// # Errors
    /// The circuit already has another use, or the message is malformed.
    fn rendezvous1(&mut self, now: Time, index: u32, data: &[u8]) -> Result<(), CircuitFault> {
        self.nonce_of_last(index)?;
        let (cookie, rest) = read_rendezvous1(data).ok_or(CircuitFault::Message)?;
        match self.role.points.find(&Point::Rendezvous(*cookie)) {
            Some(place) if place.shard == self.role.shard => {
                match self.meet(now, place.circuit, *cookie, rest, Next::Joined(index)) {
                    true => self.set_next(index, Next::Joined(place.circuit)),
                    false => self.tear_down(index, DestroyReason::PROTOCOL),
                }
            }
            Some(place) => match self.cross(now, index, place.shard, Command::MEET, data) {
                Some(link_circuit) => self.set_next(index, Next::Across(link_circuit)),
                None => self.tear_down(index, DestroyReason::RESOURCES),
            },
            // Not a violation: the client may have given up.
            None => self.tear_down(index, DestroyReason::PROTOCOL),
        }
        Ok(())
    }

    /// Joins the client's circuit `index` to the circuit of a service, which `service` names.
    /// Returns false if no client waits on this circuit with `cookie`.
    fn meet(
        &mut self,
        now: Time,
        index: u32,
        cookie: [u8; 20],
        rest: &[u8],
        service: Next,
    ) -> bool {
        let point = Point::Rendezvous(cookie);
        let next = self.circuits.get(index).map(|circuit| &circuit.next);
        if !matches!(next, Some(Next::Point(meeting)) if meeting.point == point) {
            return false;
        }
        self.role.points.leave(&point, self.place(index));
        self.set_next(index, service);
        self.originate(now, index, RelayCommand::RENDEZVOUS2, rest);
        true
    }

    /// Sends a request to another parallel core (shard) of this relay, on a new circuit ID of the
    /// link to that shard. Returns this circuit ID; `None` if there is no such link, or no circuit
    /// ID is free.
    fn cross(
        &mut self,
        now: Time,
        index: u32,
        shard: usize,
        command: Command,
        data: &[u8],
    ) -> Option<LinkCircuit> {
        let link = self.channels.sibling(shard)?;
        let owner = Owner { circuit: index, outward: true };
        let link_circuit = self.channels.make(link, owner, &mut *self.rng)?;
        let mut body = [0; BODY];
        body[..LENGTH].copy_from_slice(&(data.len() as u16).to_be_bytes());
        body[LENGTH..LENGTH + data.len()].copy_from_slice(data);
        self.channels.push(now, link_circuit, command, &body);
        Some(link_circuit)
    }

    /// Handles the request of another parallel core (shard) to introduce a client to a service of
    /// this shard. Answers with DESTROY, whose reason is the outcome.
    pub(super) fn introduce_for_sibling(
        &mut self,
        now: Time,
        link_circuit: LinkCircuit,
        body: &Body,
    ) {
        let data = crossed(body);
        let place = read_introduce1(data).and_then(|auth_key| {
            let place = self.role.points.find(&Point::Introduction(auth_key))?;
            (place.shard == self.role.shard).then_some((place.circuit, auth_key))
        });
        let status = match place {
            Some((circuit, auth_key)) => self.introduce2(now, circuit, auth_key, data),
            None => IntroStatus::Unknown,
        };
        self.channels.send_control_cell(link_circuit, Command::DESTROY, &[status.code()]);
    }

    /// Handles the request of another parallel core (shard) to join a service's circuit to a
    /// client's circuit in this shard.
    pub(super) fn meet_for_sibling(&mut self, now: Time, link_circuit: LinkCircuit, body: &Body) {
        let refused = [DestroyReason::PROTOCOL.0];
        let place = read_rendezvous1(crossed(body)).and_then(|(cookie, rest)| {
            let place = self.role.points.find(&Point::Rendezvous(*cookie))?;
            (place.shard == self.role.shard).then_some((place.circuit, *cookie, rest))
        });
        let Some((circuit, cookie, rest)) = place else {
            return self.channels.send_control_cell(link_circuit, Command::DESTROY, &refused);
        };
        if !self.channels.accept(link_circuit, Owner { circuit, outward: true }) {
            return self.channels.send_control_cell(link_circuit, Command::DESTROY, &refused);
        }
        if !self.meet(now, circuit, cookie, rest, Next::Across(link_circuit)) {
            self.channels.destroy(link_circuit, DestroyReason::PROTOCOL);
        }
    }

    /// Handles the answer of another parallel core (shard) to an introduction. Returns false if no
    /// answer was expected.
    pub(super) fn introduced_by_sibling(
        &mut self,
        now: Time,
        index: u32,
        reason: DestroyReason,
    ) -> bool {
        let circuit = self.circuits.get_mut(index);
        let Some(circuit) = circuit.filter(|one| matches!(one.next, Next::Introducing(_))) else {
            return false;
        };
        circuit.next = Next::Nothing;
        self.acknowledge(now, index, IntroStatus::of(reason.0));
        true
    }

    /// Cleans up after the circuit `index` has closed. If the circuit was an introduction or
    /// rendezvous point, removes the point. If it was joined to another circuit, closes that
    /// circuit too.
    pub(super) fn unjoin(&mut self, index: u32, next: &Next, reason: DestroyReason) {
        match next {
            Next::Point(meeting) => self.role.points.leave(&meeting.point, self.place(index)),
            Next::Joined(other) => self.tear_down(*other, reason),
            _ => {}
        }
    }

    /// Returns the nonce of the circuit `index`, a value that binds messages to this circuit.
    ///
    /// # Errors
    /// The circuit does not end here, has another use, or belongs to a set of parallel circuits.
    fn nonce_of_last(&mut self, index: u32) -> Result<[u8; 20], CircuitFault> {
        if self.is_leg(index) {
            return Err(CircuitFault::Message);
        }
        let circuit = self.circuits.get(index);
        let last = circuit.filter(|one| matches!(one.next, Next::Nothing));
        last.and_then(|circuit| circuit.nonce()).ok_or(CircuitFault::Message)
    }

    fn place(&self, index: u32) -> PointLocation {
        PointLocation { shard: self.role.shard, circuit: index }
    }

    fn set_next(&mut self, index: u32, next: Next) {
        let joins = matches!(next, Next::Joined(_) | Next::Across(_));
        if let Some(circuit) = self.circuits.get_mut(index) {
            circuit.next = next;
        }
        if joins {
            self.mark_circuit(index, Usage::Streams);
        }
    }
}

/// Returns the data in the body of a cell from another parallel core (shard) of this relay.
fn crossed(body: &Body) -> &[u8] {
    let length = usize::from(u16::from_be_bytes([body[0], body[1]]));
    body.get(LENGTH..LENGTH + length).unwrap_or_default()
}
