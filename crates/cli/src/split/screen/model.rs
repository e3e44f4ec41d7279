//! Values that the live view and the printed lines show, computed separately from drawing.

use anabranch_comps::{Event, PathCounters, Snapshot};
use anabranch_multipath::Time;
use anabranch_pages::figures::scaled;
use anabranch_splitter::paths::Egress;
use anabranch_splitter::split::{ActiveSettings, FarEndNews};

use super::advice;
use super::session_table::{SessionTable, is_warning};
use crate::screen::Recent;
use crate::screen::meter::{Meter, Peaks};

/// The state of a splitter, as the live view and the printed lines show it.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// Name that the user has given to this running program (`--name`); `None` if there is none.
    pub(super) name: Option<String>,
    pub(super) session_table: SessionTable,
    pub(super) time: Time,
    pub(super) rows: Vec<Row>,
    pub(super) snapshot: Snapshot,
    pub(super) recent: Recent,
}

/// A row of the table of paths: one path with its traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) counters: PathCounters,
    pub(super) up: Direction,
    pub(super) down: Direction,
    /// Meters of the path's bytes: uplink, downlink, and both together.
    meters: [Meter; 3],
    /// Highest rates of the busiest path in bytes per second, for the common scale of all graphs.
    pub(super) most: Peaks,
}

/// Traffic of a path in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Direction {
    /// Bits of UDP payload per second. The period is the last second, or the time since the
    /// previous snapshot if that is longer ago.
    pub(super) rate: f64,
    /// This path's share of the bytes of all paths in this direction since the program started,
    /// from 0 to 1.
    pub(super) share: f64,
}

impl Model {
    pub(super) fn begin(&mut self, about: &ActiveSettings) {
        self.session_table.begin(about);
    }

    /// Replaces the rows by rows for the paths in `about`. Paths may be new, missing, or in
    /// another order; a path with a known name keeps its counters.
    pub(super) fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        let before = std::mem::take(&mut self.snapshot.paths);
        let known = |name: &str| self.rows.iter().position(|row| row.name == name);
        let place = |egress: &Egress| known(&egress.name).and_then(|place| before.get(place));
        let paths = about.egresses.iter().map(|egress| place(egress).copied().unwrap_or_default());
        self.snapshot.paths = paths.collect();
        self.session_table.begin(about);
        self.recent.keep(now, settings(about));
    }

    /// Handles `event`. Returns its description, if it should be shown.
    pub(super) fn event(&mut self, now: Time, event: &Event) -> Option<String> {
        let is_shown = self.session_table.open(event);
        let words = is_shown.then(|| self.session_table.words(event));
        match &words {
            Some(words) if is_warning(event) => self.recent.warn(now, words.clone()),
            Some(words) => self.recent.keep(now, words.clone()),
            None => {}
        }
        self.session_table.close(event);
        words
    }

    /// Handles a change of the far end's state. Returns its description.
    pub(super) fn far_end(&mut self, now: Time, news: &FarEndNews) -> String {
        let words = advice::far_end(self.session_table.server(None), news);
        match news {
            FarEndNews::Up => self.recent.keep(now, words.clone()),
            _ => self.recent.warn(now, words.clone()),
        }
        words
    }

    /// Describes the traffic of flows that stay on one path instead of being split; `None` if
    /// there is none.
    pub(super) fn pinned(&self) -> Option<String> {
        let names: Vec<_> = self.rows.iter().map(|row| row.name.clone()).collect();
        advice::pinned(&names, &self.snapshot)
    }

    /// Returns a row with the total traffic of all paths that SIGHUP has removed; `None` if there
    /// are none.
    pub(super) fn removed(&self) -> Option<Row> {
        let counters = self.snapshot.removed;
        let totals = totals(&self.snapshot);
        (counters != PathCounters::default()).then(|| Row {
            name: "(removed)".to_owned(),
            counters,
            up: Direction { rate: 0.0, share: share(counters.up.bytes, totals.0) },
            down: Direction { rate: 0.0, share: share(counters.down.bytes, totals.1) },
            ..Row::default()
        })
    }

    pub(super) fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        let totals = totals(snapshot);
        let paths = snapshot.paths.iter().enumerate();
        let mut rows: Vec<_> =
            paths.map(|(index, counters)| self.row(now, index, counters, totals)).collect();
        let most = Peaks::of(rows.iter().map(Row::past));
        rows.iter_mut().for_each(|row| row.most = most.clone());
        self.rows = rows;
        self.snapshot.clone_from(snapshot);
        self.time = now;
    }

    /// Returns the row of the path with index `index`. The path's name identifies its row of the
    /// previous snapshot.
    fn row(&self, now: Time, index: usize, counters: &PathCounters, totals: (u64, u64)) -> Row {
        let name = self.session_table.path(anabranch_multipath::PathId::at(index));
        let known = self.rows.iter().find(|row| row.name == name);
        let new = || [(); 3].map(|()| Meter::from(self.time));
        let mut meters = known.map_or_else(new, |row| row.meters.clone());
        let (up, down) = (counters.up.bytes, counters.down.bytes);
        for (meter, bytes) in meters.iter_mut().zip([up, down, up + down]) {
            meter.follow(now, bytes);
        }
        let [up, down] =
            [(up, totals.0), (down, totals.1)].map(|(bytes, total)| share(bytes, total));
        Row {
            name,
            counters: *counters,
            up: Direction { rate: meters[0].rate() * 8.0, share: up },
            down: Direction { rate: meters[1].rate() * 8.0, share: down },
            meters,
            most: Peaks::default(),
        }
    }

    /// Returns the bits per second over all paths: uplink and downlink.
    pub(super) fn rates(&self) -> [f64; 2] {
        self.rows.iter().fold([0.0; 2], |[up, down], row| [up + row.up.rate, down + row.down.rate])
    }
}

impl Row {
    /// Returns the state of the path: `down` if this machine cannot send on it, `silent` with the
    /// number of unanswered sessions, or `up`.
    pub(super) fn state(&self) -> String {
        match (self.counters.works, self.counters.silent_sessions) {
            (false, _) => "down".to_owned(),
            (true, 0) => "up".to_owned(),
            (true, sessions) => format!("silent {sessions}"),
        }
    }

    /// Returns the bytes per second in each of the last seconds, in both directions together. The
    /// newest is the last.
    pub(super) fn past(&self) -> impl DoubleEndedIterator<Item = f64> + ExactSizeIterator {
        self.meters[2].past()
    }

    /// Returns the number of datagrams that were not sent, for any reason.
    pub(super) fn dropped(&self) -> u64 {
        let drops = self.counters.drops;
        let aged = self.counters.stream.map_or(0, |stream| stream.aged);
        drops.full + drops.too_big + drops.unreachable + aged
    }

    /// Returns the path's name. If the path is a TCP or TLS connection, adds the kind of
    /// connection.
    pub(super) fn label(&self) -> String {
        match self.counters.stream {
            Some(stream) => format!("{} {}", self.name, stream.kind),
            None => self.name.clone(),
        }
    }
}

/// Describes the settings that are in force after they were read again.
pub(super) fn settings(about: &ActiveSettings) -> String {
    let names: Vec<_> = about.egresses.iter().map(|egress| egress.name.as_str()).collect();
    format!("settings read again: {}, paths {}", about.dealing(), names.join(", "))
}

/// Describes, by reason, the dropped datagrams that no path's counters include; `None` if there
/// are none.
pub(super) fn losses(snapshot: &Snapshot) -> Option<String> {
    let counts = [
        (snapshot.no_path, "because no path was usable"),
        (snapshot.refused, "from too many new clients"),
        (snapshot.missed, "because the receive buffer was full"),
        (snapshot.not_returned, "that could not be sent to clients"),
        (snapshot.foreign, "that proxies relayed from hosts other than the server"),
    ];
    let lost = counts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<_> = lost.map(|(count, what)| format!("{count} {what}")).collect();
    (!parts.is_empty()).then(|| format!("datagrams dropped by the splitter: {}", parts.join(", ")))
}

/// Describes the packets that wait for room in paths' TCP connections, and the packets that were
/// dropped because they waited too long. Names each path. Returns `None` if there are no such
/// packets.
pub(super) fn backlogs(rows: &[Row]) -> Option<String> {
    let backlogs = rows.iter().filter_map(|row| {
        let stream = row.counters.stream.filter(|stream| stream.queued + stream.aged > 0)?;
        let queue = scaled(stream.queued as f64, "B");
        let aged = stream.aged;
        Some(format!("{} {queue} queued, {aged} packets dropped after waiting too long", row.name))
    });
    let backlogs: Vec<_> = backlogs.collect();
    (!backlogs.is_empty()).then(|| format!("TCP connections: {}", backlogs.join(" · ")))
}

fn totals(snapshot: &Snapshot) -> (u64, u64) {
    let add = |(up, down), path: &PathCounters| (up + path.up.bytes, down + path.down.bytes);
    snapshot.paths.iter().chain([&snapshot.removed]).fold((0, 0), add)
}

fn share(bytes: u64, total: u64) -> f64 {
    if total > 0 { bytes as f64 / total as f64 } else { 0.0 }
}

#[cfg(test)]
pub(super) mod tests {
    use anabranch_comps::{Flow, StreamCounters};

    use super::*;

    /// Returns counters with the bytes `bytes` up and down for each path, and a tenth as many
    /// datagrams.
    pub(in crate::split::screen) fn snapshot(bytes: &[(u64, u64)]) -> Snapshot {
        let flow = |bytes| Flow { datagrams: bytes / 10, bytes };
        let path = |&(up, down): &(u64, u64)| PathCounters {
            up: flow(up),
            down: flow(down),
            works: true,
            ..PathCounters::default()
        };
        Snapshot { paths: bytes.iter().map(path).collect(), sessions: 1, ..Snapshot::default() }
    }

    #[test]
    fn rates_are_of_the_last_interval_and_shares_of_the_whole_run() {
        let mut model = Model::default();
        model.snapshot(Time::from_secs(1), &snapshot(&[(1000, 0), (0, 0)]));
        model.snapshot(Time::from_secs(3), &snapshot(&[(1000, 0), (3000, 500)]));
        assert_eq!(model.rows[0].up, Direction { rate: 0.0, share: 0.25 });
        assert_eq!(model.rows[1].up, Direction { rate: 12_000.0, share: 0.75 });
        assert_eq!(model.rows[1].down, Direction { rate: 2_000.0, share: 1.0 });
    }

    #[test]
    fn a_stream_shows_its_kind_and_what_grew_too_old_is_dropped() {
        let (mut model, mut counters) = (Model::default(), snapshot(&[(1000, 0), (0, 0)]));
        counters.paths[0].drops.full = 2;
        let stream = StreamCounters { kind: "ssh", queued: 9, aged: 5, ended: 1, replaced: 0 };
        counters.paths[0].stream = Some(stream);
        model.begin(&about(&["a", "b"]));
        model.snapshot(Time::from_secs(1), &counters);
        assert_eq!((model.rows[0].label().as_str(), model.rows[0].dropped()), ("a ssh", 7));
        assert_eq!(model.rows[1].label(), "b");
        let text = backlogs(&model.rows);
        assert_eq!(
            text.as_deref(),
            Some("TCP connections: a 9 B queued, 5 packets dropped after waiting too long")
        );
        assert_eq!(backlogs(&model.rows[1..]), None);
    }

    #[test]
    fn paths_keep_their_rates_when_they_change_places() {
        let mut model = Model::default();
        model.begin(&about(&["a", "b"]));
        model.snapshot(Time::from_secs(1), &snapshot(&[(1000, 0), (5000, 0)]));
        model.reloaded(Time::from_secs(1), &about(&["b", "c"]));
        model.snapshot(Time::from_secs(2), &snapshot(&[(6000, 0), (100, 0)]));
        let rates: Vec<_> = model.rows.iter().map(|row| (&*row.name, row.up.rate)).collect();
        assert_eq!(rates, [("b", 8_000.0), ("c", 800.0)]);
        let words = "settings read again: uniform, every 1s, paths b, c";
        assert_eq!(model.recent.last(), Some(words));
    }

    /// Returns the settings of a splitter with paths called `names` over loopback.
    pub(in crate::split::screen) fn about(names: &[&str]) -> ActiveSettings {
        let server: std::net::SocketAddr = "127.0.0.1:9".parse().unwrap();
        let spec = |name: &&str| format!("{name}=addr:127.0.0.2").parse().unwrap();
        let specs: Vec<_> = names.iter().map(spec).collect();
        ActiveSettings {
            listen: Some(server),
            tun: None,
            others: Vec::new(),
            server: Some(server),
            far_end: false,
            egresses: anabranch_splitter::paths::resolve(&specs, &[server], None, true).unwrap(),
            seed: 7,
            schedule: "uniform".to_owned(),
            every: "1s".to_owned(),
            redraw: None,
            jitter: None,
            decoys: None,
            udp_payload: None,
            tunnel_mtu: None,
        }
    }

    #[test]
    fn a_path_has_a_past_of_a_few_seconds_that_goes_with_its_name() {
        let mut model = Model::default();
        model.begin(&about(&["a", "b"]));
        for quarter in 1..=80_u64 {
            let now = Time::from_millis(quarter * 250);
            model.snapshot(now, &snapshot(&[(quarter * 100, 0), (0, quarter * 50)]));
        }
        let rates = |model: &Model, row: usize| model.rows[row].past().collect::<Vec<_>>();
        assert_eq!(rates(&model, 0), [400.0; 20]);
        assert_eq!(rates(&model, 1), [200.0; 20]);
        assert!(model.rows.iter().all(|row| row.most.over(60) == 400.0));
        model.reloaded(Time::from_secs(20), &about(&["b", "c"]));
        model.snapshot(Time::from_millis(20_100), &snapshot(&[(0, 4000), (7, 0)]));
        assert_eq!(rates(&model, 0), [200.0; 20]);
        assert_eq!(rates(&model, 1), [0.0; 0]);
    }

    #[test]
    fn two_snapshots_of_one_moment_give_no_infinite_rate() {
        let mut model = Model::default();
        model.snapshot(Time::ZERO, &snapshot(&[(1000, 0)]));
        assert_eq!(model.rows[0].up.rate, 0.0);
        assert_eq!(model.rows[0].down.share, 0.0);
    }

    #[test]
    fn what_was_lost_here_is_named_by_its_cause() {
        assert_eq!(losses(&Snapshot::default()), None);
        let lost = Snapshot { refused: 3, not_returned: 1, ..Snapshot::default() };
        let text = "datagrams dropped by the splitter: 3 from too many new clients, 1 that could \
                    not be sent to clients";
        assert_eq!(losses(&lost).as_deref(), Some(text));
    }
}
