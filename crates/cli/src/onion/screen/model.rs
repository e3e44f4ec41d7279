//! What the live view shows, computed apart from drawing.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use anabranch_drive::onion::client::{CircuitStatus, ClientEvent, SetStatus, Status};
use anabranch_onion::circmgr::Stage;

use super::plain::news;
use crate::screen::Recent;

/// All that a person sees of a run at one moment.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) status: Status,
    /// Sets of several circuits, the busiest first.
    pub(super) sets: Vec<SetRow>,
    /// Circuits that are in none of them, the busiest first.
    pub(super) rows: Vec<Row>,
    /// Bits a second over all links: received, sent.
    pub(super) rates: [f64; 2],
    /// Circuits can be built.
    pub(super) ready: bool,
    pub(super) recent: Recent,
}

/// One set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SetRow {
    pub(super) set: SetStatus,
    /// Bits of streams a second since the status before: received, sent.
    pub(super) rates: [f64; 2],
}

/// One circuit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) seen: CircuitStatus,
    /// Bits of streams a second since the status before: received, sent.
    pub(super) rates: [f64; 2],
}

impl Model {
    pub(super) fn take(&mut self, event: &ClientEvent) {
        if let Some(words) = news(event) {
            self.recent.keep(self.status.now, words);
        }
        match event {
            ClientEvent::Ready(_) => self.ready = true,
            ClientEvent::Status(status) => self.renew(status),
            _ => {}
        }
    }

    fn renew(&mut self, status: &Status) {
        let seconds = status.now.since(self.status.now).as_secs_f64();
        let before = |number: u64| {
            let circuit = self.status.circuits.iter().find(|seen| seen.number == number);
            circuit.map_or([0; 2], |seen| seen.carried)
        };
        let row = |seen: &CircuitStatus| Row {
            rates: rates(before(seen.number), seen.carried, seconds),
            seen: seen.clone(),
        };
        let legs: BTreeSet<u64> = status.sets.iter().flat_map(circuits).collect();
        let alone = status.circuits.iter().filter(|seen| !legs.contains(&seen.number));
        self.rows = alone.map(row).collect();
        self.sets = status.sets.iter().map(|set| self.set_row(set, seconds)).collect();
        self.sets.sort_by_key(|row| Reverse((row.set.seen.streams, row.set.number)));
        self.rows.sort_by_key(|row| {
            let idle = (row.seen.streams == 0, order(row.seen.stage));
            (idle, Reverse(row.seen.number))
        });
        self.rates = rates(self.status.wire, status.wire, seconds);
        self.status.clone_from(status);
    }

    fn set_row(&self, set: &SetStatus, seconds: f64) -> SetRow {
        let before = self.status.sets.iter().find(|before| before.number == set.number);
        let before = before.map_or([0; 2], |before| before.seen.carried);
        SetRow { rates: rates(before, set.seen.carried, seconds), set: set.clone() }
    }

    /// How far the client is, in words.
    pub(super) fn progress(&self) -> String {
        let [listed, known] = self.status.relays;
        match (self.ready, listed) {
            (true, _) => format!("ready, {known} relays"),
            (false, 0) => "waiting for a consensus".to_owned(),
            (false, _) => format!("{known} of {listed} relays known"),
        }
    }
}

/// The circuits that are its legs.
fn circuits(set: &SetStatus) -> impl Iterator<Item = u64> {
    set.seen.legs.iter().filter_map(|leg| leg.circuit)
}

fn order(stage: Stage) -> u8 {
    match stage {
        Stage::Used => 0,
        Stage::Ending => 1,
        Stage::Building(_) => 2,
        Stage::Spare => 3,
    }
}

fn rates(before: [u64; 2], now: [u64; 2], seconds: f64) -> [f64; 2] {
    [0, 1].map(|way| {
        let bits = now[way].saturating_sub(before[way]) as f64 * 8.0;
        if seconds > 0.0 { bits / seconds } else { 0.0 }
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use anabranch_drive::onion::client::{LegPlace, RelayName};
    use anabranch_multipath::Time;
    use anabranch_onion::conflux::Design;
    use anabranch_onion::guards::Reach;
    use anabranch_onion::{LegNumbers, SetNumbers};

    use super::*;

    /// At so many seconds: a spare circuit, one with three streams that carried this, one being
    /// built.
    pub(in crate::onion::screen) fn status(seconds: u64, carried: [u64; 2]) -> Status {
        let seen = |number: u64, stage, streams, carried| CircuitStatus {
            number,
            path: ["guard", "middle", "exit"].map(|name| format!("{name}{number}")).to_vec(),
            age: Duration::from_secs(seconds),
            stage,
            streams,
            carried,
        };
        Status {
            now: Time::from_secs(seconds),
            relays: [10, 9],
            guards: vec![("guard1".to_owned(), Reach::Yes), ("guard9".to_owned(), Reach::No)],
            circuits: vec![
                seen(1, Stage::Spare, 0, [0; 2]),
                seen(2, Stage::Used, 3, carried),
                seen(3, Stage::Building(1), 0, [0; 2]),
            ],
            design: Design::default(),
            programs: 4,
            streams: 3,
            links: 1,
            wire: carried,
            padding: [5, 4],
            ..Status::default()
        }
    }

    /// The same with a set, whose legs are the circuits 4 and 5; the second is being linked.
    pub(in crate::onion::screen) fn with_set(seconds: u64, carried: [u64; 2]) -> Status {
        let mut status = status(seconds, [0; 2]);
        let circuit = |number: u64| {
            let path =
                status.circuits[1].path.iter().map(|name| name.replace('2', &number.to_string()));
            CircuitStatus { number, path: path.collect(), ..status.circuits[1].clone() }
        };
        let circuits = [circuit(4), circuit(5)];
        let relay = |nickname: &String| RelayName {
            nickname: nickname.clone(),
            fingerprint: "AA".to_owned(),
        };
        let place = |(leg, circuit): (usize, &CircuitStatus)| LegPlace {
            leg,
            relays: circuit.path.iter().map(relay).collect(),
        };
        let places = circuits.iter().enumerate().map(place).collect();
        status.circuits.extend(circuits);
        let linked = LegNumbers {
            circuit: Some(4),
            is_linked: true,
            cells: [30, 4],
            rtt: Some(Duration::from_millis(40)),
            least_rtt: Some(Duration::from_millis(38)),
            window: 124,
            inflight: 31,
            queued: 0,
        };
        let linking =
            LegNumbers { circuit: Some(5), cells: [10, 4], window: 124, ..LegNumbers::default() };
        let seen = SetNumbers {
            design: "conflux",
            schedule: "lowrtt --every 1p".to_owned(),
            streams: 3,
            carried,
            reordered: 12_000,
            most_reordered: 40_000,
            kept: 0,
            budget: 1 << 20,
            resting: false,
            legs: vec![linked, linking],
        };
        status.sets = vec![SetStatus { number: 4, seen, places }];
        status
    }

    #[test]
    fn rates_are_of_the_last_interval_and_the_busiest_circuit_comes_first() {
        let mut model = Model::default();
        model.take(&ClientEvent::Status(Box::new(status(1, [1000, 500]))));
        model.take(&ClientEvent::Status(Box::new(status(3, [5000, 500]))));
        let numbers: Vec<u64> = model.rows.iter().map(|row| row.seen.number).collect();
        assert_eq!(numbers, [2, 3, 1]);
        assert_eq!((model.rows[0].rates, model.rates), ([16_000.0, 0.0], [16_000.0, 0.0]));
    }

    #[test]
    fn the_legs_of_a_set_are_no_circuits_beside_it() {
        let mut model = Model::default();
        model.take(&ClientEvent::Status(Box::new(with_set(1, [1000, 500]))));
        model.take(&ClientEvent::Status(Box::new(with_set(3, [5000, 500]))));
        let numbers: Vec<u64> = model.rows.iter().map(|row| row.seen.number).collect();
        assert_eq!(numbers, [2, 3, 1]);
        assert_eq!((model.sets.len(), model.sets[0].rates), (1, [16_000.0, 0.0]));
    }

    #[test]
    fn two_looks_at_one_moment_give_no_infinite_rate() {
        let mut model = Model::default();
        model.take(&ClientEvent::Status(Box::new(status(0, [1000, 500]))));
        assert_eq!(model.rates, [0.0; 2]);
    }

    #[test]
    fn progress_goes_from_nothing_to_ready() {
        let mut model = Model::default();
        assert_eq!(model.progress(), "waiting for a consensus");
        model.take(&ClientEvent::Status(Box::new(status(1, [0; 2]))));
        assert_eq!(model.progress(), "9 of 10 relays known");
        model.take(&ClientEvent::Ready(9));
        assert_eq!(model.progress(), "ready, 9 relays");
        assert_eq!(model.recent.last(), Some("ready: 9 relays are known"));
    }
}
