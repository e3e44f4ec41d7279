//! Result of a run in the emulator or in the simulator, and its storage format.

use serde::{Deserialize, Serialize};

use super::super::circuits::Design;
use super::super::circuits::simulated::Combination;
use super::super::table::{Column, Rows};
use super::super::{Disturbance, Record};
use super::plan::RunSource;
use super::scenario::WideNetwork;

/// A completed download that ended after the warm-up, while downloads counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// Number of the client, from 0; web clients come first.
    pub client: u32,
    /// True if it is a download of 1 MiB; otherwise it is a page of 320 KiB.
    pub bulk: bool,
    /// Time of the request, in seconds since all clients started.
    pub asked: f64,
    /// Time to the first byte, in seconds.
    pub first: f64,
    /// Time to the last byte, in seconds.
    pub last: f64,
}

impl Transfer {
    /// Creates the record of a download. The first argument is the client's index, and whether the
    /// client makes bulk downloads. `times` are the times to the first and to the last byte.
    pub(super) fn new((client, bulk): (usize, bool), asked: f64, times: [f64; 2]) -> Transfer {
        // A precision of microseconds suffices, and keeps the journal short.
        let round = |seconds: f64| (seconds * 1e6).round() / 1e6;
        let [asked, first, last] = [asked, times[0], times[1]].map(round);
        Transfer { client: u32::try_from(client).unwrap_or(u32::MAX), bulk, asked, first, last }
    }
}

/// Use of a relay and its access line after the warm-up, while downloads counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayUse {
    /// Position in circuits: `guard`, `middle` or `exit`.
    pub position: String,
    /// Rate of the relay's access line in Mbit/s.
    pub rate: f64,
    /// Delay of the relay's access line in one direction, in ms.
    pub delay: f64,
    /// Measured rate in Mbit/s at which the relay sent packets.
    pub sent: f64,
    /// Used share of the rate of the relay's access line, in the busier direction.
    pub used: f64,
    /// CPU time of the relay's process, as a share of one core; 0 in a simulation.
    pub cpu: f64,
}

/// Returns the use of the relay with the index `relay`. `carried` has the bytes that the relay's
/// line has carried in each direction, and the seconds for which they were counted.
pub(super) fn relay_use(
    network: &WideNetwork,
    relay: usize,
    (carried, seconds): ([u64; 2], f64),
    cpu: f64,
) -> RelayUse {
    let line = network.relays[relay];
    let rate = line.rate.get() as f64 / 1e6;
    let [up, down] = carried.map(|bytes| bytes as f64 * 8e-6 / seconds.max(1e-9));
    RelayUse {
        position: network.position(relay).to_owned(),
        rate,
        delay: line.delay.as_secs_f64() * 1e3,
        sent: up,
        used: up.max(down) / rate,
        cpu,
    }
}

/// Result of a run (one design, measured in the emulator or simulated).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the run in the plan.
    pub unit: String,
    /// Design (protocol and scheduler) of all clients.
    pub design: Design,
    /// Number of circuits over which a stream is split.
    pub legs: u32,
    /// True if the run is a simulation.
    pub simulated: bool,
    /// Index of the measured round, from 0, or seed of the simulation.
    pub number: u64,
    /// Start time, in seconds since 1970.
    pub started: f64,
    /// Downloads that completed after the warm-up, while downloads counted.
    pub transfers: Vec<Transfer>,
    /// Number of downloads that failed after the warm-up, while downloads counted.
    pub failed: u32,
    /// Error of the last failed download; empty if none failed, or in a simulation.
    pub error: String,
    /// Use of each relay and its access line.
    pub relays: Vec<RelayUse>,
    /// CPU time of all clients together, as a number of busy cores; 0 in a simulation.
    pub clients_cpu: f64,
    /// CPU time of the experiment's process, as a number of busy cores. It includes the emulated
    /// lines, the web servers and the programs that download. 0 in a simulation.
    pub own_cpu: f64,
    /// Share of the machine's CPU time that any process used; 0 in a simulation.
    pub busy: f64,
    /// Load of the machine by other work during the run.
    pub machine: Disturbance,
}

impl Record for Measured {
    fn unit(&self) -> &str {
        &self.unit
    }
}

impl Measured {
    /// Returns the design and its number of circuits per stream.
    #[must_use]
    pub fn arm(&self) -> Combination {
        Combination { design: self.design, legs: self.legs }
    }

    /// Returns the rate in Mbit/s at which all relays together sent packets.
    #[must_use]
    pub fn relayed(&self) -> f64 {
        self.relays.iter().map(|relay| relay.sent).sum()
    }

    /// Returns the number that identifies a run and whether the run is a simulation, as a record
    /// stores them.
    pub(super) fn number_of(source: RunSource) -> (bool, u64) {
        match source {
            RunSource::Emulated(round) => (false, round.into()),
            RunSource::Simulated(seed) => (true, seed),
        }
    }

    fn source(&self) -> String {
        if self.simulated { "simulated" } else { "emulated" }.to_owned()
    }
}

/// Returns the columns of the table of all downloads (`docs/formats.md`).
#[must_use]
pub fn columns(records: &[Measured]) -> Vec<Column> {
    let each =
        records.iter().flat_map(|record| record.transfers.iter().map(move |it| (record, it)));
    let each: Vec<(&Measured, &Transfer)> = each.collect();
    let rows = Rows(&each);
    vec![
        rows.text("source", |(run, _)| run.source()),
        rows.text("design", |(run, _)| run.design.to_string()),
        rows.int("legs", |(run, _)| run.legs),
        rows.long("number", |(run, _)| run.number),
        rows.int("client", |(_, it)| it.client),
        rows.text("load", |(_, it)| if it.bulk { "bulk" } else { "web" }.to_owned()),
        rows.double("asked", |(_, it)| it.asked),
        rows.double("time_to_first_byte", |(_, it)| it.first),
        rows.double("time_to_last_byte", |(_, it)| it.last),
    ]
}

/// Returns the columns of the table of all relays (`docs/formats.md`).
#[must_use]
pub fn relay_columns(records: &[Measured]) -> Vec<Column> {
    let each =
        records.iter().flat_map(|record| (0..record.relays.len()).map(move |at| (record, at)));
    let each: Vec<(&Measured, usize)> = each.collect();
    let (rows, of) = (Rows(&each), |(run, at): &(&Measured, usize)| run.relays[*at].clone());
    let mut columns = vec![
        rows.text("source", |(run, _)| run.source()),
        rows.text("design", |(run, _)| run.design.to_string()),
        rows.int("legs", |(run, _)| run.legs),
        rows.long("number", |(run, _)| run.number),
        rows.double("started", |(run, _)| run.started),
        rows.int("failed", |(run, _)| run.failed),
        rows.int("relay", |(_, at)| u32::try_from(*at).unwrap_or(u32::MAX)),
        rows.text("position", |row| of(row).position),
        rows.double("rate_mbit", |row| of(row).rate),
        rows.double("delay_ms", |row| of(row).delay),
        rows.double("sent_mbit", |row| of(row).sent),
        rows.double("used", |row| of(row).used),
        rows.double("cpu", |row| of(row).cpu),
        rows.double("clients_cpu", |(run, _)| run.clients_cpu),
        rows.double("own_cpu", |(run, _)| run.own_cpu),
        rows.double("busy", |(run, _)| run.busy),
    ];
    columns.extend(rows.machine("load", |(run, _)| run.machine));
    columns
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::table;
    use super::super::scenario::tests::network;
    use super::*;

    /// Returns a run in which pages take `web` seconds, and 1 MiB takes three times as long.
    pub(in super::super) fn run(arm: (Design, u32), source: RunSource, web: f64) -> Measured {
        let (simulated, number) = Measured::number_of(source);
        let page = |part: f64| Transfer::new((3, false), 20.0, [web * part / 4.0, web * part]);
        let file = Transfer::new((60, true), 20.0, [web, web * 3.0]);
        Measured {
            unit: format!("{} {source}", arm.0),
            design: arm.0,
            legs: arm.1,
            simulated,
            number,
            started: 1.7e9,
            transfers: vec![page(0.5), page(1.0), page(2.0), file],
            failed: 0,
            error: String::new(),
            relays: vec![relay_use(&network(), 0, ([1_000_000, 2_000_000], 8.0), 0.25)],
            clients_cpu: 0.5,
            own_cpu: 0.25,
            busy: 0.5,
            machine: Disturbance::default(),
        }
    }

    #[test]
    fn a_line_is_used_in_its_busier_direction() {
        let one = run((Design::Tor, 1), RunSource::Emulated(0), 1.0);
        let relay = &one.relays[0];
        assert!((relay.sent - 1.0).abs() < 1e-9 && (relay.used * relay.rate - 2.0).abs() < 1e-9);
        assert!((one.relayed() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn tables_have_a_row_for_each_download_and_each_relay() {
        let runs = [
            run((Design::Stock, 1), RunSource::Emulated(0), 1.0),
            run((Design::Tor, 1), RunSource::Simulated(7), 1.1),
        ];
        let folder = tempfile::tempdir().unwrap();
        let tables = [("a.parquet", columns(&runs)), ("b.parquet", relay_columns(&runs))];
        for (name, columns) in &tables {
            table::write(&folder.path().join(name), columns, &[]).unwrap();
        }
        let numbers = table::Values::Long(vec![0, 0, 0, 0, 7, 7, 7, 7]);
        assert!(tables[0].1.contains(&("number".to_owned(), numbers)));
        assert!(tables[1].1.contains(&("number".to_owned(), table::Values::Long(vec![0, 7]))));
    }
}
