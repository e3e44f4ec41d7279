//! Schedules one cell of each circuit in turn.

use std::collections::VecDeque;

use anabranch_multipath::Time;

use super::Policy;

/// Scheduler that takes one cell of each circuit in turn.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    turns: VecDeque<u32>,
}

impl Policy for RoundRobin {
    fn activate(&mut self, circuit: u32) {
        self.turns.push_back(circuit);
    }

    fn next(&mut self) -> Option<u32> {
        self.turns.front().copied()
    }

    fn sent(&mut self, _now: Time, circuit: u32, more: bool) {
        self.turns.pop_front();
        if more {
            self.turns.push_back(circuit);
        }
    }

    fn remove(&mut self, circuit: u32) {
        self.turns.retain(|&other| other != circuit);
    }
}
