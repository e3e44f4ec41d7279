//! Order of each circuit's cells on a link whose TLS records may arrive out of order
//! (`docs/spec/unordered-links.md`).
//!
//! For each circuit ID, the cells of each direction have consecutive sequence numbers. This
//! includes circuit ID 0, which stands for the link itself. The receiver stores a cell until it
//! has handled all earlier cells of the circuit. The cells of one circuit therefore stay in order,
//! and no circuit waits for a lost cell of another. Sequence numbers have 32 bits and wrap around,
//! so only their distances are compared.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anabranch_multipath::Time;

use crate::wire::cell::{Body, Cell, Command};

/// Maximum number of cells that a link stores until earlier cells arrive. It is also the maximum
/// distance of a cell's sequence number from the next expected one. The range in which TLS records
/// can be decrypted out of order has room for this number of cells.
const HELD: usize = 2_048;
/// Time for which the ID of a closed circuit is not reused. It is longer than cells can be in
/// transit.
const ID_REUSE_DELAY: Duration = Duration::from_secs(300);

/// Error for a cell with a sequence number that no correct neighbour assigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongNumber;

/// Position of a received cell in the order of its circuit's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The cell is next in order. [`CellOrder::next`] then returns the stored cells that follow
    /// it.
    Now,
    /// An earlier cell is missing. This cell is stored until the missing cell has arrived.
    Later,
}

/// A stored cell, which arrived before an earlier cell of its circuit.
#[derive(Debug)]
pub struct HeldCell {
    circuit: u32,
    command: Command,
    body: Box<Body>,
}

impl HeldCell {
    fn of(cell: &Cell<'_>) -> Option<HeldCell> {
        let body = Box::new(Body::try_from(&*cell.body).ok()?);
        Some(HeldCell { circuit: cell.circuit, command: cell.command, body })
    }

    /// Returns the stored cell as a [`Cell`], without its sequence number.
    pub fn cell(&mut self) -> Cell<'_> {
        let HeldCell { circuit, command, body } = self;
        Cell { circuit: *circuit, command: *command, number: None, head: &[], body: &mut body[..] }
    }
}

/// Sequence numbers of the cells with one circuit ID, in both directions.
#[derive(Clone, Copy, Debug, Default)]
struct Sequence {
    /// Sequence number of the next cell that we send.
    sent: u32,
    /// Sequence number of the next cell that we expect from the neighbour.
    expected: u32,
    /// True if the circuit with this ID is closed, and the ID must not be reused yet.
    is_retired: bool,
}

/// Sequence numbers and stored cells of all circuit IDs on one link, in both directions.
#[derive(Debug, Default)]
pub struct CellOrder {
    circuits: BTreeMap<u32, Sequence>,
    /// Stored cells by circuit ID and sequence number.
    held: BTreeMap<(u32, u32), HeldCell>,
    /// The first cells of new circuits, by circuit ID, while this end still assigns the ID to an
    /// earlier circuit. They wait until the earlier circuit's last cell has arrived.
    reborn: BTreeMap<u32, HeldCell>,
    /// IDs of circuits that closed since the last call of [`CellOrder::tick`].
    newly_closed: Vec<u32>,
    /// IDs that must not be reused yet, with the times at which they become free.
    retired_until: VecDeque<(Time, u32)>,
    /// Number of cells that arrived before an earlier cell of their circuit.
    early: u64,
}

impl CellOrder {
    /// Assigns a sequence number to the next cell that we send with the circuit ID `circuit`, and
    /// returns this number.
    pub fn number(&mut self, circuit: u32) -> u32 {
        let sequence = self.circuits.entry(circuit).or_default();
        let number = sequence.sent;
        sequence.sent = number.wrapping_add(1);
        number
    }

    /// Handles the arrival of `cell` with the sequence number `number`.
    ///
    /// # Errors
    /// Returns [`WrongNumber`] if a cell with this sequence number was already handled or stored,
    /// if the number is too far ahead, or if too many cells are stored.
    pub fn take(&mut self, cell: &Cell<'_>, number: u32) -> Result<Turn, WrongNumber> {
        let circuit = cell.circuit;
        let sequence = self.circuits.entry(circuit).or_default();
        match number.wrapping_sub(sequence.expected) {
            0 => {
                sequence.expected = number.wrapping_add(1);
                return Ok(Turn::Now);
            }
            ahead if ahead as usize <= HELD => {
                let kept = HeldCell::of(cell).ok_or(WrongNumber)?;
                if self.held.insert((circuit, number), kept).is_some() {
                    return Err(WrongNumber);
                }
            }
            _ if number == 0 && matches!(cell.command, Command::CREATE2 | Command::CREATE_FAST) => {
                let kept = HeldCell::of(cell).ok_or(WrongNumber)?;
                if self.reborn.insert(circuit, kept).is_some() {
                    return Err(WrongNumber);
                }
            }
            _ => return Err(WrongNumber),
        }
        self.early += 1;
        if self.held.len() + self.reborn.len() > HELD { Err(WrongNumber) } else { Ok(Turn::Later) }
    }

    /// Removes and returns the next cell of the circuit ID `circuit`, if it is stored.
    pub fn next(&mut self, circuit: u32) -> Option<HeldCell> {
        let Some(sequence) = self.circuits.get_mut(&circuit) else {
            let first = self.reborn.remove(&circuit)?;
            self.circuits.insert(circuit, Sequence { expected: 1, ..Sequence::default() });
            return Some(first);
        };
        let next = self.held.remove(&(circuit, sequence.expected))?;
        sequence.expected = sequence.expected.wrapping_add(1);
        Some(next)
    }

    /// Notes that the circuit with the ID `circuit` is closed. Cells of the circuit that are still
    /// in transit are also handled in order.
    pub fn close(&mut self, circuit: u32) {
        let sequence = self.circuits.entry(circuit).or_default();
        if !std::mem::replace(&mut sequence.is_retired, true) {
            self.newly_closed.push(circuit);
        }
    }

    /// Removes the state of a circuit ID that no circuit uses, after a cell with that ID was
    /// handled. Keeps the state while the ID must not be reused, or while stored cells wait for a
    /// missing one.
    pub fn settle(&mut self, circuit: u32) {
        let is_retired = self.circuits.get(&circuit).is_none_or(|sequence| sequence.is_retired);
        if !is_retired && circuit != 0 && self.held.range(all_of(circuit)).next().is_none() {
            self.circuits.remove(&circuit);
        }
    }

    /// Returns true if the circuit ID `circuit` is in use or must not be reused yet. A new circuit
    /// must then get another ID.
    pub fn knows(&self, circuit: u32) -> bool {
        self.circuits.contains_key(&circuit)
    }

    /// Returns the number of cells that arrived before an earlier cell of their circuit.
    pub fn early(&self) -> u64 {
        self.early
    }

    /// Frees the IDs of closed circuits whose waiting time has passed at `now`, and starts the
    /// waiting time of circuits that closed since the last call.
    pub fn tick(&mut self, now: Time) {
        self.retired_until
            .extend(self.newly_closed.drain(..).map(|circuit| (now + ID_REUSE_DELAY, circuit)));
        while let Some((_, circuit)) = self.retired_until.pop_front_if(|(until, _)| *until <= now) {
            if self.circuits.get(&circuit).is_some_and(|sequence| sequence.is_retired) {
                self.forget(circuit);
                self.reborn.remove(&circuit);
            }
        }
    }

    /// Frees the circuit ID `circuit` at once, after the circuit's last cell. This is only for IDs
    /// that the neighbour chose: the neighbour itself delays the reuse of the ID.
    pub fn forget(&mut self, circuit: u32) {
        self.circuits.remove(&circuit);
        let stale: Vec<_> = self.held.range(all_of(circuit)).map(|(key, _)| *key).collect();
        stale.iter().for_each(|key| drop(self.held.remove(key)));
    }
}

/// Returns the range of the keys of all stored cells with the circuit ID `circuit`.
fn all_of(circuit: u32) -> std::ops::RangeInclusive<(u32, u32)> {
    (circuit, 0)..=(circuit, u32::MAX)
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;
    use rand::RngExt;
    use rand::seq::SliceRandom;

    use super::*;
    use crate::wire::cell::BODY;

    const RELAY: Command = Command::RELAY;

    fn take(
        order: &mut CellOrder,
        circuit: u32,
        command: Command,
        number: u32,
    ) -> Result<Turn, WrongNumber> {
        let mut body = [0; BODY];
        body[..4].copy_from_slice(&number.to_be_bytes());
        let cell = Cell { circuit, command, number: Some(number), head: &[], body: &mut body[..] };
        order.take(&cell, number)
    }

    /// Returns the numbers of the cells that can be handled after the cell `number` has arrived:
    /// this cell, and the stored cells that directly follow it.
    fn all_turns(order: &mut CellOrder, circuit: u32, number: u32) -> Vec<u32> {
        if take(order, circuit, RELAY, number) != Ok(Turn::Now) {
            return Vec::new();
        }
        let mut received = vec![number];
        while let Some(mut held) = order.next(circuit) {
            received.push(u32::from_be_bytes(*held.cell().body.first_chunk().unwrap()));
        }
        received
    }

    #[test]
    fn each_circuit_is_in_order_whatever_overtakes_what_and_over_the_wrap_of_numbers() {
        for seed in 0..20 {
            let (mut dice, mut order) = (stream(seed, 0, "cells"), CellOrder::default());
            let firsts: Vec<u32> = vec![0, 5, u32::MAX - 40, u32::MAX];
            let mut cells: Vec<(u32, u32)> = Vec::new();
            for (circuit, first) in (0..).zip(&firsts) {
                let sequence = Sequence { expected: *first, sent: *first, is_retired: false };
                order.circuits.insert(circuit, sequence);
                cells.extend((0..300).map(|_| (circuit, order.number(circuit))));
            }
            cells.chunks_mut(500).for_each(|chunk| chunk.shuffle(&mut dice));
            let mut received = vec![Vec::new(); firsts.len()];
            for (circuit, number) in cells {
                received[circuit as usize].extend(all_turns(&mut order, circuit, number));
            }
            for (received, first) in received.iter().zip(firsts) {
                let wanted: Vec<u32> = (0..300).map(|n| first.wrapping_add(n)).collect();
                assert_eq!(*received, wanted, "seed {seed}");
            }
            assert!(order.held.is_empty() && order.early() > 100);
            let _: u32 = dice.random();
        }
    }

    #[test]
    fn numbers_that_have_passed_are_too_far_ahead_or_came_twice_are_refused() {
        let mut order = CellOrder::default();
        assert_eq!(take(&mut order, 7, RELAY, 0), Ok(Turn::Now));
        assert_eq!(take(&mut order, 7, RELAY, 0), Err(WrongNumber));
        assert_eq!(take(&mut order, 7, RELAY, 5), Ok(Turn::Later));
        assert_eq!(take(&mut order, 7, RELAY, 5), Err(WrongNumber));
        assert_eq!(take(&mut order, 7, RELAY, 1 + HELD as u32), Ok(Turn::Later));
        assert_eq!(take(&mut order, 7, RELAY, 2 + HELD as u32), Err(WrongNumber));
        assert_eq!(take(&mut order, 7, RELAY, u32::MAX), Err(WrongNumber));
    }

    #[test]
    fn a_neighbour_that_skips_numbers_of_many_circuits_is_held_to_a_bound() {
        let mut order = CellOrder::default();
        let kept = (1..).take_while(|id| take(&mut order, *id, RELAY, 1) == Ok(Turn::Later));
        assert_eq!(kept.count(), HELD);
    }

    #[test]
    fn cells_of_a_circuit_whose_first_is_late_are_kept() {
        let mut order = CellOrder::default();
        for number in [3, 1, 2] {
            assert_eq!(take(&mut order, 9, RELAY, number), Ok(Turn::Later));
        }
        assert_eq!(all_turns(&mut order, 9, 0), [0, 1, 2, 3]);
    }

    #[test]
    fn a_new_circuit_waits_for_the_end_of_the_one_that_had_its_id() {
        let mut order = CellOrder::default();
        assert_eq!(all_turns(&mut order, 9, 0), [0]);
        assert_eq!(take(&mut order, 9, Command::DESTROY, 2), Ok(Turn::Later));
        assert_eq!(take(&mut order, 9, Command::CREATE2, 0), Ok(Turn::Later));
        assert_eq!(take(&mut order, 9, Command::CREATE2, 0), Err(WrongNumber));
        assert_eq!(take(&mut order, 9, RELAY, 1), Ok(Turn::Now));
        assert_eq!(order.next(9).unwrap().cell().command, Command::DESTROY);
        order.close(9);
        order.forget(9);
        assert_eq!(order.next(9).unwrap().cell().command, Command::CREATE2);
        assert_eq!(all_turns(&mut order, 9, 1), [1]);
        order.tick(Time::ZERO);
        order.tick(Time::ZERO + ID_REUSE_DELAY);
        assert!(order.knows(9), "the new one lives");
    }

    #[test]
    fn an_id_of_ours_rests_and_what_is_under_way_still_has_its_turn() {
        let mut order = CellOrder::default();
        assert_eq!([order.number(4), order.number(4)], [0, 1]);
        assert_eq!(all_turns(&mut order, 4, 0), [0]);
        order.close(4);
        assert_eq!(order.number(4), 2, "the DESTROY");
        order.tick(Time::from_secs(10));
        assert_eq!(all_turns(&mut order, 4, 1), [1]);
        order.tick(Time::from_secs(309));
        assert!(order.knows(4));
        order.tick(Time::from_secs(310));
        assert!(!order.knows(4));
        assert_eq!(order.number(4), 0);
    }

    #[test]
    fn an_id_whose_circuit_was_left_before_it_said_anything_rests_too() {
        let mut order = CellOrder::default();
        order.close(4);
        assert_eq!(order.number(4), 0, "the DESTROY");
        order.tick(Time::ZERO);
        order.tick(Time::ZERO + ID_REUSE_DELAY);
        assert!(!order.knows(4));
    }

    #[test]
    fn ids_that_name_no_circuit_leave_nothing() {
        let mut order = CellOrder::default();
        for circuit in 1..1_000 {
            assert_eq!(take(&mut order, circuit, RELAY, 0), Ok(Turn::Now));
            assert_eq!(order.number(circuit), 0, "a DESTROY that refuses it");
            order.settle(circuit);
        }
        assert_eq!(take(&mut order, 0, Command::PADDING, 0), Ok(Turn::Now));
        order.settle(0);
        assert_eq!(order.circuits.len(), 1, "the link's own");
    }
}
