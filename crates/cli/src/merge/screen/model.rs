//! The numbers of the live view and of the lines, computed apart from drawing.

use anabranch_drive::merge::{ClientSnapshot, PathSnapshot, Snapshot};
use anabranch_multipath::Time;

use crate::screen::Recent;

/// All that a person sees of a run at one moment.
#[derive(Default)]
pub(super) struct Model {
    pub(super) rows: Vec<Row>,
    pub(super) snapshot: Snapshot,
    pub(super) recent: Recent,
    pub(super) time: Time,
    /// Whether there were counters before these.
    begun: bool,
}

/// One path of a client that has a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) client: String,
    pub(super) path: usize,
    pub(super) counters: PathSnapshot,
    /// Bits of programs' datagrams per second, to the server and from it, since the snapshot
    /// before.
    pub(super) rates: [f64; 2],
}

impl Model {
    /// Takes the counters of now.
    pub(super) fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        let seconds = now.since(self.time).as_secs_f64();
        let before = std::mem::replace(&mut self.snapshot, snapshot.clone());
        let span = if self.begun { seconds } else { 0.0 };
        let clients = snapshot.clients.iter().enumerate().filter(|(_, client)| client.up);
        let of_client = |(place, client): (usize, &ClientSnapshot)| {
            rows(client, before.clients.get(place), span)
        };
        self.rows = clients.flat_map(of_client).collect();
        (self.time, self.begun) = (now, true);
    }

    /// What was not carried, in words, if there was any.
    pub(super) fn losses(&self) -> Option<String> {
        let Snapshot { strangers, missed, unsent, refused, .. } = self.snapshot;
        let counts = [
            (strangers, "packets of strangers or that came twice, not answered"),
            (missed, "packets missed on arrival"),
            (unsent, "datagrams to clients not sent"),
            (refused, "packets that --tun refused"),
        ];
        let told = counts.into_iter().filter(|(count, _)| *count > 0);
        let told: Vec<_> = told.map(|(count, what)| format!("{count} {what}")).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

fn rows(client: &ClientSnapshot, before: Option<&ClientSnapshot>, seconds: f64) -> Vec<Row> {
    let rate = |now: u64, then: u64| {
        let bits = now.saturating_sub(then) as f64 * 8.0;
        if seconds > 0.0 { bits / seconds } else { 0.0 }
    };
    let row = |(path, counters): (usize, &PathSnapshot)| {
        let earlier = before.and_then(|before| before.paths.get(path)).cloned();
        let earlier = earlier.unwrap_or_default();
        let rates = [
            rate(counters.inward.bytes, earlier.inward.bytes),
            rate(counters.outward.bytes, earlier.outward.bytes),
        ];
        Row { client: client.name.clone(), path, counters: counters.clone(), rates }
    };
    client.paths.iter().enumerate().map(row).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use anabranch_comps::Flow;

    use super::*;

    /// One client with two paths, which carried so many bytes in.
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
    fn rates_are_of_the_last_interval_and_clients_that_are_away_have_no_row() {
        let mut model = Model::default();
        model.snapshot(Time::from_secs(1), &snapshot([1000, 0]));
        assert_eq!(model.rows[0].rates, [0.0, 0.0], "nothing to compare with");
        model.snapshot(Time::from_secs(3), &snapshot([1000, 3000]));
        let rates: Vec<_> = model.rows.iter().map(|row| (&*row.client, row.rates[0])).collect();
        assert_eq!(rates, [("home", 0.0), ("home", 12_000.0)]);
        assert!(model.losses().unwrap().starts_with("2 packets of strangers"));
    }
}
