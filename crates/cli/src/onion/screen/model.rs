//! Content of a client's live view, which is computed separately from drawing.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use anabranch_multipath::Time;
use anabranch_onion::circmgr::Stage;
use anabranch_router::onion::client::{CircuitStatus, ClientEvent, SetStatus, Status};

use super::plain::{news, warning};
use crate::screen::Recent;
use crate::screen::meter::Meter;

/// State of a client, as its live view shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// Name that the user has given to this running program (`--name`); `None` if there is none.
    pub(super) name: Option<String>,
    pub(super) status: Status,
    /// Sets of circuits (circuits that carry the same streams together), the busiest first.
    pub(super) sets: Vec<SetRow>,
    /// Circuits that are in no set (that carry streams alone), the busiest first.
    pub(super) rows: Vec<Row>,
    /// Rates of the bytes over all links: received, sent.
    pub(super) wire: [Meter; 2],
    /// Whether the client is ready to build circuits.
    pub(super) ready: bool,
    pub(super) recent: Recent,
}

/// A set (circuits that carry the same streams together), and its rates.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SetRow {
    pub(super) set: SetStatus,
    /// Rates of the bytes of the set's streams: received, sent.
    pub(super) transferred: StreamMeters,
}

/// A circuit that is in no set, and its rates.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) seen: CircuitStatus,
    /// Rates of the bytes of the circuit's streams: received, sent.
    pub(super) transferred: StreamMeters,
}

/// Rates of the bytes that streams transfer: received, sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StreamMeters([Meter; 2]);

impl StreamMeters {
    /// Creates meters of two byte counters that are 0 at the time `begin`.
    fn from(begin: Time) -> StreamMeters {
        StreamMeters([(); 2].map(|()| Meter::from(begin)))
    }

    fn follow(mut self, now: Time, sums: [u64; 2]) -> StreamMeters {
        self.0.iter_mut().zip(sums).for_each(|(meter, sum)| meter.follow(now, sum));
        self
    }

    /// Returns the bits per second, received and sent. The period is the last second, or the time
    /// since the previous status if that is longer ago.
    pub(super) fn rates(&self) -> [f64; 2] {
        [0, 1].map(|way| self.0[way].rate() * 8.0)
    }

    /// Returns the bytes per second in each of the last seconds, in both directions together. The
    /// newest is the last.
    pub(super) fn past(&self) -> impl DoubleEndedIterator<Item = f64> + ExactSizeIterator {
        let [received, sent] = &self.0;
        received.past().zip(sent.past()).map(|(received, sent)| received + sent)
    }
}

impl Model {
    pub(super) fn take(&mut self, event: &ClientEvent) {
        match news(event) {
            Some(words) if warning(event).is_some() => self.recent.warn(self.status.now, words),
            Some(words) => self.recent.keep(self.status.now, words),
            None => {}
        }
        match event {
            ClientEvent::Ready(_) => self.ready = true,
            ClientEvent::Status(status) => self.renew(status),
            _ => {}
        }
    }

    fn renew(&mut self, status: &Status) {
        let legs: BTreeSet<u64> = status.sets.iter().flat_map(circuits).collect();
        let alone = status.circuits.iter().filter(|seen| !legs.contains(&seen.number));
        let rows = alone.map(|seen| self.row(status.now, seen)).collect();
        self.sets = status.sets.iter().map(|set| self.set_row(status.now, set)).collect();
        self.rows = rows;
        self.sets.sort_by_key(|row| Reverse((row.set.seen.streams, row.set.number)));
        self.rows.sort_by_key(|row| {
            let idle = (row.seen.streams == 0, order(row.seen.stage));
            (idle, Reverse(row.seen.number))
        });
        self.wire
            .iter_mut()
            .zip(status.wire)
            .for_each(|(meter, sum)| meter.follow(status.now, sum));
        self.status.clone_from(status);
    }

    fn row(&self, now: Time, seen: &CircuitStatus) -> Row {
        let known = self.rows.iter().find(|row| row.seen.number == seen.number);
        let transferred =
            self.transferred(known.map(|row| &row.transferred), now, seen.transferred);
        Row { transferred, seen: seen.clone() }
    }

    fn set_row(&self, now: Time, set: &SetStatus) -> SetRow {
        let known = self.sets.iter().find(|row| row.set.number == set.number);
        let transferred =
            self.transferred(known.map(|row| &row.transferred), now, set.seen.transferred);
        SetRow { transferred, set: set.clone() }
    }

    /// Returns the meters of a circuit or set, updated with its byte counters `sums`. `known` are
    /// the meters from the previous status; `None` creates new meters.
    fn transferred(&self, known: Option<&StreamMeters>, now: Time, sums: [u64; 2]) -> StreamMeters {
        let new = || StreamMeters::from(self.status.now);
        known.cloned().unwrap_or_else(new).follow(now, sums)
    }

    /// Returns the bits per second over all links: received, sent.
    pub(super) fn rates(&self) -> [f64; 2] {
        [0, 1].map(|way| self.wire[way].rate() * 8.0)
    }

    /// Describes the progress of the client until circuits can be built.
    pub(super) fn progress(&self) -> String {
        let [listed, known] = self.status.relays;
        match (self.ready, listed) {
            (true, _) => format!("ready, {known} relays"),
            (false, 0) => "waiting for the list of relays".to_owned(),
            (false, _) => format!("{known} of {listed} relays known"),
        }
    }
}

/// Returns the identifiers of the circuits that belong to `set`.
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

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use anabranch_onion::conflux::Design;
    use anabranch_onion::guards::GuardReachability;
    use anabranch_onion::{LegNumbers, SetNumbers};
    use anabranch_router::onion::client::{LegPath, RelayName};
    use anabranch_router::onion::tap::TapKind;

    use super::*;

    /// Returns the status after `seconds` seconds: a spare circuit, a circuit with three streams
    /// that has carried `transferred` bytes up and down, and a circuit that is being built.
    pub(in crate::onion::screen) fn status(seconds: u64, transferred: [u64; 2]) -> Status {
        let seen = |number: u64, stage, streams, transferred| CircuitStatus {
            number,
            path: ["guard", "middle", "exit"].map(|name| format!("{name}{number}")).to_vec(),
            age: Duration::from_secs(seconds),
            stage,
            streams,
            transferred,
        };
        Status {
            now: Time::from_secs(seconds),
            relays: [10, 9],
            guards: vec![
                ("guard1".to_owned(), GuardReachability::Yes),
                ("guard9".to_owned(), GuardReachability::No),
            ],
            circuits: vec![
                seen(1, Stage::Spare, 0, [0; 2]),
                seen(2, Stage::Used, 3, transferred),
                seen(3, Stage::Building(1), 0, [0; 2]),
            ],
            design: Design::default(),
            programs: 4,
            streams: 3,
            links: 1,
            wire: transferred,
            padding: [5, 4],
            ..Status::default()
        }
    }

    /// Returns [`status`] with a set of circuits in addition. The set's legs are the circuits 4
    /// and 5; circuit 5 is being linked.
    pub(in crate::onion::screen) fn with_set(seconds: u64, transferred: [u64; 2]) -> Status {
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
        let place = |(leg, circuit): (usize, &CircuitStatus)| LegPath {
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
            transferred,
            reordered: 12_000,
            most_reordered: 40_000,
            kept: 0,
            budget: 1 << 20,
            paused: false,
            legs: vec![linked, linking],
        };
        status.sets = vec![SetStatus { number: 4, seen, places }];
        status
    }

    /// Returns `status` for a client with unordered links and QUIC links.
    pub(in crate::onion::screen) fn with_links(mut status: Status) -> Status {
        status.tap = Some(TapKind::SocketFilter);
        status.early.opened = 1234;
        status.quic = Some([2, 5]);
        status
    }

    #[test]
    fn rates_are_of_the_last_interval_and_the_busiest_circuit_comes_first() {
        let mut model = Model::default();
        model.take(&ClientEvent::Status(Box::new(status(1, [1000, 500]))));
        model.take(&ClientEvent::Status(Box::new(status(3, [5000, 500]))));
        let numbers: Vec<u64> = model.rows.iter().map(|row| row.seen.number).collect();
        assert_eq!(numbers, [2, 3, 1]);
        assert_eq!(
            (model.rows[0].transferred.rates(), model.rates()),
            ([16_000.0, 0.0], [16_000.0, 0.0])
        );
    }

    #[test]
    fn the_legs_of_a_set_are_no_circuits_beside_it() {
        let mut model = Model::default();
        model.take(&ClientEvent::Status(Box::new(with_set(1, [1000, 500]))));
        model.take(&ClientEvent::Status(Box::new(with_set(3, [5000, 500]))));
        let numbers: Vec<u64> = model.rows.iter().map(|row| row.seen.number).collect();
        assert_eq!(numbers, [2, 3, 1]);
        assert_eq!((model.sets.len(), model.sets[0].transferred.rates()), (1, [16_000.0, 0.0]));
    }

    #[test]
    fn two_looks_at_one_moment_give_no_infinite_rate() {
        let mut model = Model::default();
        model.take(&ClientEvent::Status(Box::new(status(0, [1000, 500]))));
        assert_eq!(model.rates(), [0.0; 2]);
    }

    #[test]
    fn progress_goes_from_nothing_to_ready() {
        let mut model = Model::default();
        assert_eq!(model.progress(), "waiting for the list of relays");
        model.take(&ClientEvent::Status(Box::new(status(1, [0; 2]))));
        assert_eq!(model.progress(), "9 of 10 relays known");
        model.take(&ClientEvent::Ready(9));
        assert_eq!(model.progress(), "ready, 9 relays");
        assert_eq!(model.recent.last(), Some("ready: 9 relays known"));
    }
}
