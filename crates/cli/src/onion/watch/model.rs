//! Content of a relay's live view, which is computed separately from drawing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anabranch_multipath::Time;
use anabranch_router::onion::relay::Numbers;

use crate::screen::Recent;
use crate::screen::meter::Meter;

/// Rate limit of the links in bytes per second in each direction (`--rate`). SIGHUP may change it.
#[derive(Clone, Debug, Default)]
pub(in crate::onion) struct Limit(Arc<AtomicU64>);

impl Limit {
    /// Sets the limit to `rate`.
    pub(in crate::onion) fn set(&self, rate: u64) {
        self.0.store(rate, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// State of a relay, as its live view shows it.
#[derive(Clone, Debug)]
pub(in crate::onion) struct Model {
    pub(super) nickname: String,
    /// Name that the user has given to this running program (`--name`); `None` if there is none.
    pub(super) name: Option<String>,
    limit: Limit,
    pub(super) time: Time,
    pub(super) numbers: Numbers,
    /// Rows of the table: bytes received, bytes sent, cells forwarded, and circuits created.
    pub(super) rows: [Row; 4],
    pub(super) recent: Recent,
}

/// A row of the table: a counter that only grows, and its rate.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Unit of the rate, and unit of the counter.
    pub(super) units: [&'static str; 2],
    /// Factor that converts the counter's unit to the rate's unit.
    pub(super) scale: f64,
    pub(super) meter: Meter,
    pub(super) sum: u64,
    /// Share of `--rate` that is in use now, from 0 to 1; `None` if the row has no limit.
    pub(super) share: Option<f64>,
}

impl Row {
    const fn bytes(name: &'static str, meter: Meter) -> Row {
        Row { name, units: ["bit/s", "B"], scale: 8.0, meter, sum: 0, share: Some(0.0) }
    }

    const fn number(name: &'static str, meter: Meter) -> Row {
        Row { name, units: ["/s", ""], scale: 1.0, meter, sum: 0, share: None }
    }

    fn follow(&mut self, now: Time, sum: u64, limit: u64) {
        self.meter.follow(now, sum);
        self.sum = sum;
        self.share = self.share.map(|_| self.meter.rate() / limit.max(1) as f64);
    }
}

impl Model {
    /// Creates the state of a relay whose counters are not known yet.
    pub(in crate::onion) fn new(nickname: String, name: Option<String>, limit: Limit) -> Model {
        let meter = || Meter::from(Time::ZERO);
        Model {
            nickname,
            name,
            limit,
            time: Time::ZERO,
            numbers: Numbers::default(),
            rows: [
                Row::bytes("received", meter()),
                Row::bytes("sent", meter()),
                Row::number("cells", meter()),
                Row::number("circuits", meter()),
            ],
            recent: Recent::default(),
        }
    }

    /// Updates the state with the current counters.
    pub(super) fn renew(&mut self, now: Time, numbers: &Numbers) {
        let [received, sent] = numbers.transferred;
        let sums = [received, sent, numbers.stats.relayed, numbers.stats.circuits_made];
        let limit = self.limit.get();
        self.rows.iter_mut().zip(sums).for_each(|(row, sum)| row.follow(now, sum, limit));
        self.numbers.clone_from(numbers);
        self.time = now;
    }

    /// Describes the errors that the relay has counted; `None` if all error counters are 0.
    pub(super) fn complaints(&self) -> Option<String> {
        let stats = &self.numbers.stats;
        let counts = [
            (self.numbers.refused, "connections refused"),
            (stats.violations, "protocol violations"),
            (stats.out_of_memory, "circuits closed for lack of memory"),
        ];
        let texts = counts.into_iter().filter(|(count, _)| *count > 0);
        let texts: Vec<_> = texts.map(|(count, what)| format!("{count} {what}")).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use anabranch_onion::{LegNumbers, SetNumbers};
    use anabranch_router::onion::tap::TapKind;
    use anabranch_router::onion::{MptcpCounts, QuicCounts};

    use super::*;

    /// Returns the numbers of a relay that has run for `seconds` seconds and has two circuit sets.
    pub(in crate::onion::watch) fn numbers(seconds: u64) -> Numbers {
        let leg = |cells, window| LegNumbers {
            is_linked: true,
            cells: [4, cells],
            rtt: Some(Duration::from_millis(40)),
            least_rtt: Some(Duration::from_millis(38)),
            window,
            inflight: window / 4,
            ..LegNumbers::default()
        };
        let set = |streams, reordered, legs| SetNumbers {
            design: "conflux",
            schedule: "lowrtt --every 1p".to_owned(),
            streams,
            reordered,
            most_reordered: 90_000,
            budget: 1 << 20,
            legs,
            ..SetNumbers::default()
        };
        let transferred = [seconds * 2_500_000, seconds * seconds * 60_000];
        let sets =
            vec![set(1, 40_000, vec![leg(30, 124), leg(10, 200)]), set(3, 500, vec![leg(7, 60)])];
        let mut numbers =
            Numbers { links: 12, transferred, refused: 2, sets, ..Numbers::default() };
        numbers.stats.circuits = 34;
        numbers.stats.circuits_made = 3 * seconds;
        numbers.stats.circuits_cgo = seconds;
        numbers.stats.streams = 5;
        numbers.stats.relayed = seconds * 4900;
        numbers.stats.cells = 7;
        numbers.stats.padding = [5, 4];
        numbers
    }

    /// Returns [`numbers`] with links of every kind.
    pub(in crate::onion::watch) fn with_links(seconds: u64) -> Numbers {
        let mut numbers = numbers(seconds);
        numbers.tap = Some(TapKind::SocketFilter);
        numbers.early.opened = seconds * 500;
        numbers.quic = Some(QuicCounts { failed: 4, ..QuicCounts::default() });
        numbers.mptcp = Some(MptcpCounts { links: 3, subflows: 5, fell_back: 2 });
        numbers.stats.unordered_links = 6;
        numbers.stats.quic_links = 2;
        numbers.stats.quic_circuits = 17;
        numbers.stats.dedicated_links = 12;
        numbers
    }

    #[test]
    fn rates_are_told_with_the_part_of_the_limit_that_they_use() {
        let limit = Limit::default();
        let mut model = Model::new("river".to_owned(), None, limit.clone());
        limit.set(10_000_000);
        model.renew(Time::from_secs(1), &numbers(1));
        model.renew(Time::from_secs(2), &numbers(2));
        let [received, sent, cells, circuits] = &model.rows;
        assert_eq!((received.meter.rate(), received.share), (2_500_000.0, Some(0.25)));
        assert_eq!((sent.meter.rate(), sent.sum), (180_000.0, 240_000));
        assert_eq!((cells.meter.rate(), cells.share), (4900.0, None));
        assert_eq!(circuits.sum, 6);
        limit.set(5_000_000);
        model.renew(Time::from_secs(3), &numbers(3));
        assert_eq!(model.rows[0].share, Some(0.5), "as SIGHUP has it");
        assert_eq!(model.complaints().as_deref(), Some("2 connections refused"));
    }
}
