//! What the live view shows, computed apart from drawing.

use anabranch_drive::onion::client::{CircuitStatus, ClientEvent, Status};
use anabranch_onion::circmgr::Stage;

use super::plain::news;
use crate::screen::Recent;

/// All that a person sees of a run at one moment.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) status: Status,
    /// Circuits, the busiest first.
    pub(super) rows: Vec<Row>,
    /// Bits a second over all links: received, sent.
    pub(super) rates: [f64; 2],
    /// Circuits can be built.
    pub(super) ready: bool,
    pub(super) recent: Recent,
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
        self.rows = status.circuits.iter().map(row).collect();
        self.rows.sort_by_key(|row| {
            let idle = (row.seen.streams == 0, order(row.seen.stage));
            (idle, std::cmp::Reverse(row.seen.number))
        });
        self.rates = rates(self.status.wire, status.wire, seconds);
        self.status.clone_from(status);
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

    use anabranch_multipath::Time;
    use anabranch_onion::guards::Reach;

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
            programs: 4,
            streams: 3,
            links: 1,
            wire: carried,
            padding: [5, 4],
        }
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
