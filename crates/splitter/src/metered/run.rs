//! The metrics of a running splitter, computed from its latest counters.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_comps::{PathCounters, Snapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;

use anabranch_os::metrics::{count, counts, level, levels};

/// The latest counters of a running splitter, with the names of its paths.
#[derive(Debug, Default)]
pub(super) struct LatestCounters {
    names: Vec<String>,
    pub(super) snapshot: Snapshot,
    pub(super) opened: u64,
    pub(super) reloads: u64,
}

impl LatestCounters {
    /// Sets the names of the paths after paths were added, removed or reordered. Until new
    /// counters arrive, a path keeps the counters that were stored under its name.
    pub(super) fn name_paths(&mut self, names: Vec<String>) {
        let before = std::mem::take(&mut self.snapshot.paths);
        let place = |name: &String| self.names.iter().position(|known| known == name);
        let counters = |name| place(name).and_then(|place| before.get(place)).copied();
        self.snapshot.paths = names.iter().map(|name| counters(name).unwrap_or_default()).collect();
        self.names = names;
    }

    fn paths(&self) -> impl Iterator<Item = (&str, &PathCounters)> {
        self.names.iter().map(String::as_str).zip(&self.snapshot.paths)
    }
}

/// Collector of a splitter's metrics, which reads the shared counters.
#[derive(Debug)]
pub(super) struct Run(pub(super) Arc<Mutex<LatestCounters>>);

/// A metric with values for each path: name, help text, unit, and a function. The function returns
/// the metric's values for the counters of one path, each with its label.
type PathCounter =
    (&'static str, &'static str, Option<Unit>, fn(&PathCounters) -> Vec<(Labels, u64)>);
/// A label and its value, in addition to the label with the path's name; `None` if there is no
/// such label.
type Labels = Option<(&'static str, &'static str)>;

const PATH_COUNTERS: [PathCounter; 6] = [
    ("path_packets", "Datagrams carried by a path", None, |path| {
        both_ways(path.up.datagrams, path.down.datagrams)
    }),
    ("path", "Bytes of UDP payload carried by a path", Some(Unit::Bytes), |path| {
        both_ways(path.up.bytes, path.down.bytes)
    }),
    ("path_drops", "Datagrams to the server that a path could not send", None, |path| {
        let drops = path.drops;
        [("full", drops.full), ("too_big", drops.too_big), ("unreachable", drops.unreachable)]
            .map(|(reason, count)| (Some(("reason", reason)), count))
            .into()
    }),
    (
        "path_switches",
        "Changes to this path, or to another source port of this path, from the path or port that \
         a session used before",
        None,
        |path| vec![(None, path.switches)],
    ),
    ("path_copies", "Copies of datagrams sent to test a path", None, |path| {
        vec![(None, path.copies)]
    }),
    ("path_refused", "ICMP messages received because the server's port is closed", None, |path| {
        vec![(None, path.refused)]
    }),
];

fn both_ways(up: u64, down: u64) -> Vec<(Labels, u64)> {
    vec![(Some(("direction", "up")), up), (Some(("direction", "down")), down)]
}

impl Collector for Run {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for counter in &PATH_COUNTERS {
            path_counter(&mut encoder, &numbers, counter)?;
        }
        path_gauges(&mut encoder, &numbers)?;
        sessions(&mut encoder, &numbers)
    }
}

fn path_counter(
    encoder: &mut DescriptorEncoder<'_>,
    numbers: &LatestCounters,
    (name, help, unit, values): &PathCounter,
) -> fmt::Result {
    let kind = ConstCounter::new(0u64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
    for (path, counters) in numbers.paths() {
        for (label, value) in values(counters) {
            let labels: Vec<_> = [("path", path)].into_iter().chain(label).collect();
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn path_gauges(encoder: &mut DescriptorEncoder<'_>, numbers: &LatestCounters) -> fmt::Result {
    let of_paths = |value: fn(&PathCounters) -> Option<f64>| {
        let values = numbers.paths().map(move |(path, counters)| (path, value(counters)));
        values.filter_map(|(path, value)| Some((vec![("path", path)], value?))).collect::<Vec<_>>()
    };
    let up = of_paths(|path| Some(f64::from(u8::from(path.works))));
    levels(encoder, "path_up", "1 if this machine can send on a path, otherwise 0", None, &up)?;
    let silent = of_paths(|path| Some(path.silent_sessions as f64));
    levels(
        encoder,
        "path_silent_sessions",
        "Sessions that get no answer on a path",
        None,
        &silent,
    )?;
    let rtt = of_paths(|path| path.rtt.map(|rtt| rtt.as_secs_f64()));
    let help = "Lowest recent time from a datagram to an answer, an upper bound of the path's \
                round-trip time";
    levels(encoder, "path_rtt", help, Some(&Unit::Seconds), &rtt)
}

fn sessions(encoder: &mut DescriptorEncoder<'_>, numbers: &LatestCounters) -> fmt::Result {
    let snapshot = &numbers.snapshot;
    level(encoder, "sessions", "Open sessions", snapshot.sessions)?;
    let help = "Datagrams that wait for a path or for the end of their delay";
    level(encoder, "waiting_packets", help, snapshot.waiting)?;
    count(encoder, "sessions_opened", "Sessions opened", numbers.opened)?;
    let help = "Datagrams sent before their random delay (--jitter) ended";
    count(encoder, "hurried_packets", help, snapshot.hurried)?;
    let help = "Successful reloads of the configuration";
    count(encoder, "reloads", help, numbers.reloads)?;
    if let Some(far) = snapshot.far_end {
        level(
            encoder,
            "far_end_up",
            "1 if the far end (anabranch merge) answers, otherwise 0",
            usize::from(far.up),
        )?;
        let help = "Packets from the far end that never arrived";
        count(encoder, "far_end_lost_packets", help, far.lost)?;
        let [up, down] = far.decoys;
        let packets = [("up", up.datagrams), ("down", down.datagrams)];
        let help = "Decoys (dummy packets) sent on idle paths; the other end drops them";
        counts(encoder, "far_end_decoy_packets", help, "direction", &packets)?;
        let bytes = [("up", up.bytes), ("down", down.bytes)];
        counts(
            encoder,
            "far_end_decoy_bytes",
            "Bytes of decoys (dummy packets) sent; the other end drops them",
            "direction",
            &bytes,
        )?;
    }
    let drops = [
        ("no_path", snapshot.no_path),
        ("refused", snapshot.refused),
        ("missed", snapshot.missed),
        ("not_returned", snapshot.not_returned),
        ("looped", snapshot.looped),
        ("foreign", snapshot.foreign),
    ];
    let help = "Datagrams dropped inside the splitter, by reason";
    counts(encoder, "drops", help, "reason", &drops)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anabranch_comps::{FarEndCounters, Flow};

    use super::*;
    use anabranch_os::metrics::Page;

    fn text(numbers: LatestCounters) -> String {
        Page::new(Box::new(Run(Arc::new(Mutex::new(numbers)))), "1.2.3").text()
    }

    fn sample() -> LatestCounters {
        let mut numbers = LatestCounters::default();
        numbers.name_paths(vec!["wlan".to_owned(), "lte".to_owned()]);
        let up = Flow { datagrams: 3, bytes: 3000 };
        let rtt = Some(Duration::from_millis(20));
        numbers.snapshot.paths[1] = PathCounters { up, rtt, works: true, ..Default::default() };
        let decoys = [Flow { datagrams: 2, bytes: 1800 }, Flow { datagrams: 5, bytes: 700 }];
        let far = FarEndCounters { up: true, lost: 4, decoys, ..FarEndCounters::default() };
        numbers.snapshot.far_end = Some(far);
        LatestCounters { opened: 2, ..numbers }
    }

    #[test]
    fn each_path_has_its_numbers_and_nothing_is_told_twice() {
        let text = text(sample());
        for line in [
            "anabranch_build_info{version=\"1.2.3\"} 1",
            "# TYPE anabranch_path_bytes counter",
            "# UNIT anabranch_path_bytes bytes",
            "anabranch_path_bytes_total{path=\"lte\",direction=\"up\"} 3000",
            "anabranch_path_packets_total{path=\"wlan\",direction=\"down\"} 0",
            "anabranch_path_up{path=\"wlan\"} 0.0",
            "anabranch_path_up{path=\"lte\"} 1.0",
            "anabranch_path_rtt_seconds{path=\"lte\"} 0.02",
            "anabranch_far_end_up 1",
            "anabranch_far_end_lost_packets_total 4",
            "anabranch_far_end_decoy_packets_total{direction=\"up\"} 2",
            "anabranch_far_end_decoy_bytes_total{direction=\"down\"} 700",
            "anabranch_sessions_opened_total 2",
            "anabranch_drops_total{reason=\"no_path\"} 0",
        ] {
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line}\n{text}");
        }
        assert!(!text.contains("rtt_seconds{path=\"wlan\"}"), "not measured, not told");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn counters_move_with_the_names_of_their_paths() {
        let mut numbers = sample();
        numbers.name_paths(vec!["lte".to_owned(), "new".to_owned()]);
        let text = text(numbers);
        assert!(text.contains("bytes_total{path=\"lte\",direction=\"up\"} 3000"), "{text}");
        assert!(text.contains("bytes_total{path=\"new\",direction=\"up\"} 0"), "{text}");
    }
}
