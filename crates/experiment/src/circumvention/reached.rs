//! Result of one fetch in the circumvention experiment, and its storage format.

use serde::{Deserialize, Serialize};

use super::super::table::{Column, Rows};
use super::super::{Disturbance, Record};
use super::{Access, Server};

/// Result of one fetch in the circumvention experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchResult {
    /// Name of the measurement in the plan.
    pub unit: String,
    /// Server that was fetched from.
    pub server: Server,
    /// Route from the client to the server.
    pub access: Access,
    /// Index of the repetition, from 0.
    pub repetition: u32,
    /// Start time, in seconds since 1970.
    pub started: f64,
    /// True if all requested bytes arrived.
    pub through: bool,
    /// Time from the client's first packet to the first byte of the content, in seconds; 0 if no
    /// byte arrived.
    pub first_byte: f64,
    /// Time from the client's first packet to the end of the content, in seconds.
    pub seconds: f64,
    /// Bytes of content that arrived.
    pub bytes: u64,
    /// Bytes of IP packets on the direct path between censor and server: sent to the server, and
    /// received from the server.
    pub direct: [u64; 2],
    /// Bytes of the VPN's packets, with the VPN's own headers: sent to the VPN's exit, and
    /// received from it.
    pub vpn: [u64; 2],
    /// Number of packets that the censor dropped.
    pub censored: u64,
    /// Error that the client reported; empty if there was none.
    pub error: String,
    /// Load of the machine by other work during the fetch.
    pub machine: Disturbance,
}

impl Record for FetchResult {
    fn unit(&self) -> &str {
        &self.unit
    }
}

impl FetchResult {
    /// Returns the direct path's share of all bytes, both directions together.
    pub fn direct_share(&self) -> f64 {
        let sum = |both: [u64; 2]| both.iter().sum::<u64>() as f64;
        sum(self.direct) / (sum(self.direct) + sum(self.vpn)).max(1.0)
    }

    /// Returns the goodput of the content in Mbit/s, counted from the client's first packet.
    pub fn goodput(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8e-6 / self.seconds } else { 0.0 }
    }
}

/// Returns the columns of the table of all fetches (`docs/formats.md`).
pub fn columns(records: &[FetchResult]) -> Vec<Column> {
    let rows = Rows(records);
    let mut columns = vec![
        rows.text("server", |r| r.server.to_string()),
        rows.text("access", |r| r.access.name().to_owned()),
        rows.int("repetition", |r| r.repetition),
        rows.double("started", |r| r.started),
        rows.bool("through", |r| r.through),
        rows.double("first_byte", |r| r.first_byte),
        rows.double("seconds", |r| r.seconds),
        rows.long("bytes", |r| r.bytes),
        rows.double("goodput", FetchResult::goodput),
        rows.long("direct_up", |r| r.direct[0]),
        rows.long("direct_down", |r| r.direct[1]),
        rows.long("vpn_up", |r| r.vpn[0]),
        rows.long("vpn_down", |r| r.vpn[1]),
        rows.double("direct_share", FetchResult::direct_share),
        rows.long("censored", |r| r.censored),
        rows.text("error", |r| r.error.clone()),
    ];
    columns.extend(rows.machine("load", |r| r.machine));
    columns
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::table::Values;
    use super::*;

    pub(in super::super) fn reached(
        access: Access,
        repetition: u32,
        first_byte: f64,
    ) -> FetchResult {
        let through = first_byte > 0.0;
        FetchResult {
            unit: format!("quic-go/{}/{repetition}", access.name()),
            server: Server::QuicGo,
            access,
            repetition,
            started: 1.7e9,
            through,
            first_byte,
            seconds: 1.0,
            bytes: if through { 10_000_000 } else { 0 },
            direct: if through { [90_000, 9_810_000] } else { [0, 0] },
            vpn: [20_000, 80_000],
            censored: u64::from(!through),
            error: if through { String::new() } else { "timeout".to_owned() },
            machine: Disturbance::default(),
        }
    }

    #[test]
    fn shares_count_both_directions() {
        let fetch = reached(Access::Handshake, 0, 0.2);
        assert!((fetch.direct_share() - 0.99).abs() < 1e-9);
        assert!((fetch.goodput() - 80.0).abs() < 1e-9);
        assert_eq!(FetchResult { direct: [0, 0], vpn: [0, 0], ..fetch }.direct_share(), 0.0);
    }

    #[test]
    fn all_columns_are_of_one_length_and_can_be_written() {
        let columns = columns(&[reached(Access::Open, 0, 0.1), reached(Access::Direct, 0, 0.0)]);
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("circumvention.parquet");
        super::super::super::table::write(&target, &columns, &[]).unwrap();
        assert!(columns.contains(&("censored".to_owned(), Values::Long(vec![0, 1]))));
    }
}
