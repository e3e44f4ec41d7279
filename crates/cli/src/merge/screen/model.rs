//! Values that the live view and the printed lines show, computed separately from drawing.

use anabranch_comps::Flow;
use anabranch_multipath::Time;
use anabranch_pages::figures::scaled;
use anabranch_splitter::merge::{ClientSnapshot, PathSnapshot, Snapshot};

use crate::screen::Recent;
use crate::screen::meter::{Meter, Peaks};
use crate::split::advice;

/// The state of a far end, as the live view and the printed lines show it.
#[derive(Clone, Default)]
pub(super) struct Model {
    /// Name that the user has given to this running program (`--name`); `None` if there is none.
    pub(super) name: Option<String>,
    pub(super) rows: Vec<Row>,
    pub(super) snapshot: Snapshot,
    pub(super) recent: Recent,
    pub(super) time: Time,
}

/// A row of the table of paths: one path of a client with an open session.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) client: String,
    pub(super) path: usize,
    pub(super) counters: PathSnapshot,
    /// Rates of the payload of programs' datagrams on this path, in bits per second: to the server
    /// and from the server. The period is the last second, or the time since the previous snapshot
    /// if that is longer ago.
    pub(super) rates: [f64; 2],
    /// Shares of this path in the client's bytes, from 0 to 1: to the server and from the server.
    pub(super) shares: [f64; 2],
    /// Meters of the client's bytes on this path: to the server, from the server, and both
    /// together.
    meters: [Meter; 3],
    /// Highest rates of the busiest path in bytes per second, for the common scale of all graphs.
    pub(super) most: Peaks,
}

impl Row {
    /// Returns the bytes per second in each of the last seconds, in both directions together. The
    /// newest is the last.
    pub(super) fn past(&self) -> impl DoubleEndedIterator<Item = f64> + ExactSizeIterator {
        self.meters[2].past()
    }
}

impl Model {
    /// Updates the rows, rates and shares from the counters in `snapshot`.
    pub(super) fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        let clients = snapshot.clients.iter().filter(|client| client.up);
        let mut rows: Vec<_> = clients.flat_map(|client| self.rows_of(now, client)).collect();
        let most = Peaks::of(rows.iter().map(Row::past));
        rows.iter_mut().for_each(|row| row.most = most.clone());
        self.rows = rows;
        self.snapshot.clone_from(snapshot);
        self.time = now;
    }

    /// Returns the rows of a client's paths. A new path has no rate until the next snapshot.
    fn rows_of(&self, now: Time, client: &ClientSnapshot) -> Vec<Row> {
        let bytes = |path: &PathSnapshot| [path.inward.bytes, path.outward.bytes];
        let totals = client.paths.iter().map(bytes);
        let totals = totals.fold([0; 2], |sum, path| [0, 1].map(|way| sum[way] + path[way]));
        let row = |(path, counters): (usize, &PathSnapshot)| {
            let known = self.rows.iter().find(|row| row.client == client.name && row.path == path);
            let mut meters = known.map(|row| row.meters.clone()).unwrap_or_default();
            let [inward, outward] = bytes(counters);
            for (meter, bytes) in meters.iter_mut().zip([inward, outward, inward + outward]) {
                meter.follow(now, bytes);
            }
            Row {
                client: client.name.clone(),
                path,
                counters: counters.clone(),
                rates: [0, 1].map(|way| meters[way].rate() * 8.0),
                shares: [0, 1].map(|way| share(bytes(counters)[way], totals[way])),
                meters,
                most: Peaks::default(),
            }
        };
        client.paths.iter().enumerate().map(row).collect()
    }

    /// Returns the bits per second over all paths: to the servers and from the servers.
    pub(super) fn rates(&self) -> [f64; 2] {
        let each = self.rows.iter().map(|row| row.rates);
        each.fold([0.0; 2], |sum, rates| [0, 1].map(|way| sum[way] + rates[way]))
    }

    /// Describes the decoys sent to clients and received from them; `None` if there are none.
    pub(super) fn decoys(&self) -> Option<String> {
        let clients = self.snapshot.clients.iter().map(|client| client.decoys);
        let sum = clients.fold([Flow::default(); 2], |sum, one| {
            [0, 1].map(|way| Flow {
                datagrams: sum[way].datagrams + one[way].datagrams,
                bytes: sum[way].bytes + one[way].bytes,
            })
        });
        advice::decoys(sum)
    }

    /// Describes the packets that wait for room in clients' TCP connections, and the packets that
    /// were dropped because they waited too long. Returns `None` if there are none.
    pub(super) fn backlogs(&self) -> Option<String> {
        let backlogs = self.rows.iter().filter_map(|row| {
            let stream = row.counters.stream.filter(|stream| stream.queued + stream.aged > 0)?;
            let queue = scaled(stream.queued as f64, "B");
            let (client, path, aged) = (&row.client, row.path, stream.aged);
            Some(format!(
                "{client} {path} {queue} queued, {aged} packets dropped after waiting too long"
            ))
        });
        let backlogs: Vec<_> = backlogs.collect();
        (!backlogs.is_empty()).then(|| format!("TCP connections: {}", backlogs.join(" · ")))
    }

    /// Describes the packets and datagrams that the far end dropped, by reason; `None` if there
    /// are none.
    pub(super) fn losses(&self) -> Option<String> {
        let Snapshot { strangers, missed, unsent, refused, streams, .. } = self.snapshot;
        let aged = streams.map_or(0, |streams| streams.aged);
        let counts = [
            (strangers, "packets dropped because their sender was unknown or they were repeated"),
            (missed, "packets dropped because the receive buffer was full"),
            (unsent, "datagrams that could not be sent to clients"),
            (aged, "packets to clients dropped after waiting too long for their TCP connection"),
            (refused, "packets dropped because the --tun interface did not accept them"),
        ];
        let losses = counts.into_iter().filter(|(count, _)| *count > 0);
        let losses: Vec<_> = losses.map(|(count, what)| format!("{count} {what}")).collect();
        (!losses.is_empty()).then(|| losses.join("; "))
    }
}

/// Formats the address from which a path's packets arrive. Without packets, the result is a dash.
pub(super) fn from(path: &PathSnapshot) -> String {
    match path.from {
        Some(from) if path.stream.is_some() => format!("tcp {from}"),
        Some(from) => from.to_string(),
        None => "-".to_owned(),
    }
}

fn share(bytes: u64, total: u64) -> f64 {
    if total > 0 { bytes as f64 / total as f64 } else { 0.0 }
}

#[cfg(test)]
pub(super) mod tests {
    use anabranch_splitter::merge::{StreamSnapshot, StreamsSnapshot};

    use super::*;

    /// Returns the counters of one client with two paths that have received `bytes`.
    pub(in crate::merge::screen) fn snapshot(bytes: [u64; 2]) -> Snapshot {
        let path = |bytes| PathSnapshot {
            from: "192.0.2.1:4000".parse().ok(),
            up: true,
            inward: Flow { datagrams: bytes / 10, bytes },
            ..PathSnapshot::default()
        };
        let paths = bytes.map(path).to_vec();
        let home = ClientSnapshot { name: "home".into(), up: true, paths, ..Default::default() };
        let away = ClientSnapshot { name: "away".into(), ..Default::default() };
        Snapshot { clients: vec![away, home], strangers: 2, ..Snapshot::default() }
    }

    #[test]
    fn a_stream_shows_its_queue_and_what_grew_too_old_for_it_is_a_loss() {
        let mut counters = snapshot([10, 10]);
        let path = &mut counters.clients[1].paths[0];
        path.stream = Some(StreamSnapshot { queued: 1_200, aged: 3 });
        assert_eq!(from(path), "tcp 192.0.2.1:4000");
        assert_eq!(from(&counters.clients[1].paths[1]), "192.0.2.1:4000");
        counters.streams = Some(StreamsSnapshot { bound: 1, strangers: 0, handed: 0, aged: 3 });
        let mut model = Model::default();
        model.snapshot(Time::from_secs(1), &counters);
        assert!(model.losses().unwrap().contains("3 packets to clients dropped"));
        let words = "TCP connections: home 0 1.2 kB queued, 3 packets dropped after waiting too \
                     long";
        assert_eq!(model.backlogs().as_deref(), Some(words));
        model.snapshot(Time::from_secs(2), &snapshot([20, 20]));
        assert_eq!(model.backlogs(), None);
    }

    #[test]
    fn rates_are_of_the_last_interval_and_clients_that_are_away_have_no_row() {
        let mut model = Model::default();
        model.snapshot(Time::from_secs(1), &snapshot([1000, 0]));
        assert_eq!(model.rows[0].rates, [0.0, 0.0], "nothing to compare with");
        model.snapshot(Time::from_secs(3), &snapshot([1000, 3000]));
        let rates: Vec<_> = model.rows.iter().map(|row| (&*row.client, row.rates[0])).collect();
        assert_eq!(rates, [("home", 0.0), ("home", 12_000.0)]);
        assert!(model.losses().unwrap().starts_with("2 packets dropped"));
    }

    #[test]
    fn decoys_of_all_clients_are_told_together() {
        let mut model = Model::default();
        let mut counters = snapshot([1000, 0]);
        model.snapshot(Time::from_secs(1), &counters);
        assert_eq!(model.decoys(), None);
        counters.clients[0].decoys[0] = Flow { datagrams: 1, bytes: 500 };
        counters.clients[1].decoys = [Flow { datagrams: 2, bytes: 1500 }, Flow::default()];
        model.snapshot(Time::from_secs(2), &counters);
        let words = "decoys (dummy packets): 2.0 kB sent, 0 B received and dropped";
        assert_eq!(model.decoys().as_deref(), Some(words));
    }
}
