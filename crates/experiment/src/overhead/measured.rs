//! Result of one measurement of the splitting overhead, its validity, and its storage format.

use serde::{Deserialize, Serialize};

use super::super::table::{Column, Rows};
use super::super::{Disturbance, Record};
use super::{Net, System};

/// Maximum number of paths in a network. The table of results has columns for each path.
const PATHS: usize = 3;

/// Result of one measurement of the splitting overhead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the measurement in the plan.
    pub unit: String,
    /// Software (such as WireGuard or a QUIC server) that was measured.
    pub system: System,
    /// Emulated network on which the measurement was made.
    pub net: Net,
    /// Number of paths.
    pub paths: usize,
    /// Time between two random choices of the path, in milliseconds; 0 if the path never changes.
    pub every: u32,
    /// Index of the repetition, from 0.
    pub repetition: u32,
    /// Weights with which the paths are chosen. Without switching, the weight is 1 for the path
    /// that was used, and 0 for the other paths.
    pub weights: Vec<f64>,
    /// Start time of the transfer, in seconds since 1970.
    pub started: f64,
    /// Duration of the transfer, in seconds.
    pub seconds: f64,
    /// Bytes that arrived at the client. For Mosh, bytes that its client wrote to the terminal.
    pub bytes: u64,
    /// Longest interval between the arrival of two pieces of data, in seconds.
    pub longest_gap: f64,
    /// Bytes of IP packets that the client sent on each path, as the emulated links count them.
    pub up: Vec<u64>,
    /// Bytes of IP packets that the client received on each path.
    pub down: Vec<u64>,
    /// Reason why the transfer was interrupted; empty if it completed.
    pub error: String,
    /// Load of the machine by other work during the transfer.
    pub machine: Disturbance,
}

impl Record for Measured {
    fn unit(&self) -> &str {
        &self.unit
    }
}

impl Measured {
    /// Returns the goodput of the transfer in Mbit/s.
    pub fn goodput(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8e-6 / self.seconds } else { 0.0 }
    }

    /// Returns each path's share of the bytes to the client.
    pub fn shares(&self) -> Vec<f64> {
        let whole: u64 = self.down.iter().sum();
        self.down.iter().map(|&bytes| bytes as f64 / whole.max(1) as f64).collect()
    }

    /// Returns whether the traffic was really split over the paths. Otherwise the result does not
    /// show the cost of splitting. Of three paths, each must carry 20 to 50 % of the bytes to the
    /// client; of two paths, each must carry 30 to 70 %. Traffic is not split if a server does not
    /// follow the client to another path's address. Measurements without switching always count.
    pub fn counts(&self) -> bool {
        let (least, most) = if self.paths > 2 { (0.2, 0.5) } else { (0.3, 0.7) };
        self.every == 0 || self.shares().iter().all(|share| (least..=most).contains(share))
    }

    /// Returns whether other work on the machine makes the result doubtful. This is so if the
    /// hypervisor took more than a tenth of the CPU time. It is also so if one wake-up in a
    /// hundred was later than the paths' round-trip time.
    pub fn disturbed(&self) -> bool {
        self.machine.steal > 0.1 || self.machine.late > 20.0
    }
}

/// Returns the columns of the table of all measurements (`docs/formats.md`).
pub fn columns(records: &[Measured]) -> Vec<Column> {
    let rows = Rows(records);
    let mut columns = vec![
        rows.text("system", |r| r.system.to_string()),
        rows.text("network", |r| r.net.name().to_owned()),
        rows.int("paths", |r| r.paths as u32),
        rows.int("every_ms", |r| r.every),
        rows.int("repetition", |r| r.repetition),
        rows.double("started", |r| r.started),
        rows.double("seconds", |r| r.seconds),
        rows.long("bytes", |r| r.bytes),
        rows.double("goodput", Measured::goodput),
        rows.double("longest_gap", |r| r.longest_gap),
        rows.bool("counts", Measured::counts),
        rows.text("error", |r| r.error.clone()),
    ];
    columns.extend(rows.machine("load", |r| r.machine));
    columns.push(rows.bool("disturbed", Measured::disturbed));
    for path in 0..PATHS {
        let weight = |r: &Measured| r.weights.get(path).copied().unwrap_or(0.0);
        columns.push(rows.double(&format!("p{path}_weight"), weight));
        let of = |all: &[u64]| all.get(path).copied().unwrap_or(0);
        columns.push(rows.long(&format!("p{path}_up"), |r| of(&r.up)));
        columns.push(rows.long(&format!("p{path}_down"), |r| of(&r.down)));
    }
    columns
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::table::Values;
    use super::*;

    pub(in super::super) fn measured(system: System, every: u32, mbits: f64) -> Measured {
        Measured {
            unit: format!("{system} {every} {mbits}"),
            system,
            net: Net::Equal,
            paths: 3,
            every,
            repetition: 0,
            weights: vec![0.3, 0.3, 0.4],
            started: 1.7e9,
            seconds: 10.0,
            bytes: (mbits * 1e7 / 8.0) as u64,
            longest_gap: 0.1,
            up: vec![1, 1, 1],
            down: vec![30, 30, 40],
            error: String::new(),
            machine: Disturbance::default(),
        }
    }

    #[test]
    fn what_stays_on_one_path_does_not_count() {
        let split = measured(System::Quinn, 100, 80.0);
        assert!((split.goodput() - 80.0).abs() < 1e-6);
        assert!(split.counts());
        for down in [[100, 0, 0], [55, 25, 20], [45, 45, 10]] {
            assert!(!Measured { down: down.to_vec(), ..split.clone() }.counts(), "{down:?}");
        }
        let unsplit = Measured { down: vec![100, 0, 0], every: 0, ..split.clone() };
        assert!(unsplit.counts());
        let two = Measured { paths: 2, down: vec![65, 35], ..split.clone() };
        assert!(two.counts());
        assert!(!Measured { down: vec![75, 25], ..two }.counts());
        assert!(!Measured { down: vec![0, 0, 0], ..split }.counts(), "nothing arrived");
    }

    #[test]
    fn a_busy_machine_is_told() {
        let calm = measured(System::Mosh, 100, 1.0);
        assert!(!calm.disturbed());
        let stolen = Disturbance { steal: 0.2, ..calm.machine };
        assert!(Measured { machine: stolen, ..calm.clone() }.disturbed());
        let late = Disturbance { late: 30.0, ..calm.machine };
        assert!(Measured { machine: late, ..calm }.disturbed());
    }

    #[test]
    fn all_columns_are_of_one_length_and_can_be_written() {
        let two = Measured { paths: 2, down: vec![1, 2], ..measured(System::Mosh, 10, 1.0) };
        let columns = columns(&[measured(System::Quinn, 0, 80.0), two]);
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("overhead.parquet");
        super::super::super::table::write(&target, &columns, &[]).unwrap();
        assert!(columns.contains(&("p2_down".to_owned(), Values::Long(vec![40, 0]))));
    }
}
