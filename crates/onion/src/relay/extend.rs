//! Extension of circuits: EXTEND2, the link to the next relay, CREATED2.

use std::net::{IpAddr, SocketAddr};

use anabranch_multipath::Time;

use super::Relay;
use super::circuit::{Circuit, Next};
use crate::channels::{LinkCircuit, LinkId, Owner};
use crate::ending::Ending;
use crate::event::CircuitFault;
use crate::node::NextLink;
use crate::padding::Usage;
use crate::wire::cell::{BODY, Body, Command};
use crate::wire::extend::{self, Extend, Target};
use crate::wire::message::{self, DestroyReason, RelayCommand};

impl Relay {
    /// Handles the client's request to extend the circuit `index`.
    pub(super) fn extend(&mut self, now: Time, index: u32, command: Command, data: &[u8]) {
        let wish = Extend::read(data).filter(|_| command == Command::RELAY_EARLY);
        let Some(wish) = wish.filter(|wish| self.may_extend(index, &wish.target)) else {
            return self.break_off(index, CircuitFault::Extend);
        };
        if !self.is_allowed(&wish.target) {
            return self.tear_down(index, DestroyReason::CONNECT_FAILED);
        }
        self.head_for(now, index, wish);
    }

    /// Continues the circuit `index` once there is a link to its next relay.
    pub(super) fn head_for(&mut self, now: Time, index: u32, wish: Extend) {
        if self.circuits.get(index).is_some_and(Ending::is_lossy) {
            return self.head_for_lossy(now, index, wish);
        }
        if let Some(most) = self.role.dedicated {
            return self.head_alone(now, index, wish, most);
        }
        if let Some(link) = self.channels.to(&wish.target) {
            return self.create_next(now, index, link, &wish);
        }
        let target = wish.target.clone();
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        circuit.next = Next::Dialling(Box::new(wish));
        self.dial(target, index);
    }

    /// Continues the circuit `index`, whose cells travel in datagrams, once a link to its next
    /// relay is open that carries these cells.
    fn head_for_lossy(&mut self, now: Time, index: u32, wish: Extend) {
        if let Some(link) = self.channels.to_lossy(&wish.target) {
            return self.create_next(now, index, link, &wish);
        }
        let target = wish.target.clone();
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        circuit.next = Next::Dialling(Box::new(wish));
        self.reach_lossy(now, target, index);
    }

    /// Continues the circuit `index` on a link that serves only this circuit. If there are already
    /// `most` links to the next relay, the circuit shares one of these links instead.
    fn head_alone(&mut self, now: Time, index: u32, wish: Extend, most: usize) {
        if self.circuits.get(index).is_none() {
            return;
        }
        match self.dial_dedicated(&wish.target, index, most) {
            NextLink::Shared(link) => {
                self.role.stats.shared_circuits += 1;
                self.create_next(now, index, link, &wish);
            }
            NextLink::Dialled => {
                if let Some(circuit) = self.circuits.get_mut(index) {
                    circuit.next = Next::Dialling(Box::new(wish));
                }
            }
        }
    }

    /// Returns true if the circuit `index` may be extended to `target`. The circuit must end here,
    /// and the target must be neither this relay nor the circuit's previous one.
    pub(super) fn may_extend(&mut self, index: u32, target: &Target) -> bool {
        let Some(circuit) = self.circuits.get(index) else { return false };
        let previous =
            self.channels.link(circuit.previous.link).and_then(|link| link.channel.identity());
        let is_last = matches!(circuit.next, Next::Nothing);
        let sound = target.addresses.iter().all(|address| address.port() != 0);
        let ours = &self.role.config.identity;
        let same = |a: &crate::wire::link::Identity| {
            a.rsa == target.rsa || target.ed25519.is_some_and(|key| key == a.ed25519)
        };
        is_last && sound && !same(ours) && !previous.is_some_and(|other| same(&other))
    }

    /// Returns true if circuits may be extended to the addresses of the relay `target`. Extensions
    /// to a private address are refused, but do not count as violations: the client's consensus
    /// may contain such an address.
    pub(super) fn is_allowed(&self, target: &Target) -> bool {
        let is_public = |address: &SocketAddr| is_public(address.ip());
        self.role.config.allow_private || target.addresses.iter().all(is_public)
    }

    fn create_next(&mut self, now: Time, index: u32, link: LinkId, wish: &Extend) {
        let owner = Owner { circuit: index, outward: true };
        let across = self.is_sibling(link);
        let (command, body) = match across {
            true => (Command::ONWARD, wish.write()),
            false => (Command::CREATE2, extend::put_create2(wish.kind, &wish.handshake)),
        };
        // A circuit from another shard must not continue to a third shard. Shards with outdated
        // knowledge would otherwise send it in circles.
        let is_own = self.circuits.get(index).is_some_and(Circuit::is_ours);
        let fits = body.len() <= BODY && (is_own || !across);
        let link_circuit = match fits {
            true => self.channels.make(link, owner, &mut *self.rng),
            false => None,
        };
        let Some(link_circuit) = link_circuit else {
            return self.tear_down(index, DestroyReason::RESOURCES);
        };
        let mut cell = [0; BODY];
        cell[..body.len()].copy_from_slice(&body);
        self.channels.push(now, link_circuit, command, &cell);
        if let Some(circuit) = self.circuits.get_mut(index) {
            circuit.next = Next::Creating(link_circuit);
        }
    }

    /// Returns true if `link` leads to another shard (parallel core) of this relay.
    pub(super) fn is_sibling(&mut self, link: LinkId) -> bool {
        self.channels.link(link).is_some_and(|link| link.channel.is_sibling())
    }

    /// Continues the circuit `index` on `link`, because the link to its next relay is now open.
    pub(super) fn resume_on_link(&mut self, now: Time, index: u32, link: LinkId) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        if let Next::Dialling(wish) = std::mem::replace(&mut circuit.next, Next::Nothing) {
            self.create_next(now, index, link, &wish);
        }
    }

    /// Handles CREATED2 from the next relay.
    pub(super) fn created(&mut self, now: Time, link_circuit: LinkCircuit, body: &Body) {
        let owner = self.channels.owner(link_circuit).filter(|owner| owner.outward);
        let Some(owner) = owner else { return };
        let Some(circuit) = self.circuits.get_mut(owner.circuit) else { return };
        if !matches!(circuit.next, Next::Creating(_)) {
            return self.break_off(owner.circuit, CircuitFault::Message);
        }
        let reply = extend::read_created2(body).filter(|reply| reply.len() + 2 <= message::DATA);
        let Some(reply) = reply else {
            return self.break_off(owner.circuit, CircuitFault::Message);
        };
        circuit.next = Next::Open(link_circuit);
        let (back, is_ours, trunk_of) = (circuit.previous, circuit.is_ours(), circuit.trunk_of);
        self.mark_circuit(owner.circuit, Usage::Circuits);
        if !is_ours {
            self.channels.push(now, back, Command::CREATED2, body);
            return;
        }
        let data = extend::put_created2(reply);
        match trunk_of {
            Some(set) => self.send_trunk_answer(now, set, &data),
            None => self.originate(now, owner.circuit, RelayCommand::EXTENDED2, &data),
        }
    }

    /// Handles the client's request to close the part of the circuit `index` after this relay.
    pub(super) fn truncate(&mut self, now: Time, index: u32) {
        let Some(circuit) = self.circuits.get_mut(index) else { return };
        if circuit.next.is_of_services() {
            return self.break_off(index, CircuitFault::Message);
        }
        let next = std::mem::replace(&mut circuit.next, Next::Nothing);
        self.dialling.forget(index);
        if let Some(link_circuit) = next.link_circuit() {
            self.channels.destroy(link_circuit, DestroyReason::REQUESTED);
        }
        let reason = DestroyReason::REQUESTED.0;
        self.originate(now, index, RelayCommand::TRUNCATED, &[reason]);
    }
}

/// Returns true if `address` is on the public Internet, so that relays may extend circuits to it.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.octets()[0] == 0
                || shared)
        }
        IpAddr::V6(v6) => {
            let local = matches!(v6.segments()[0] & 0xfe00, 0xfc00 | 0xfe00);
            !(v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || local
                || v6.to_ipv4_mapped().is_some())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_told_from_public_ones() {
        let public = ["1.1.1.1", "203.0.113.9", "2001:db8::1", "2a00::1"];
        let private = [
            "10.0.0.1",
            "127.0.0.1",
            "192.168.1.1",
            "169.254.0.1",
            "100.64.0.1",
            "0.1.2.3",
            "224.0.0.1",
            "::1",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:10.0.0.1",
        ];
        assert!(public.iter().all(|a| is_public(a.parse().unwrap())));
        assert!(private.iter().all(|a| !is_public(a.parse().unwrap())));
    }
}
