//! A client's counters for Prometheus, served on a separate port. Labels identify sets of circuits
//! and their members (legs) by numbers. No metric reveals a relay or a destination.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_onion::LegNumbers;
use anabranch_onion::wire::cell::CELL;
use anabranch_os::metrics::{Page, Server, count, counter_family, counts, level, levels};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;

use super::{ClientEvent, SetStatus, Status};

/// Exporter of a client's counters to Prometheus.
pub struct ClientMetrics {
    numbers: Arc<Mutex<ClientNumbers>>,
    server: Server,
}

#[derive(Debug, Default)]
struct ClientNumbers {
    status: Status,
    out_of_memory: u64,
}

impl ClientMetrics {
    /// Serves the counters at `address` until this value is dropped. `version` is the program's
    /// version.
    ///
    /// # Errors
    /// The process cannot listen on the address, or the thread cannot be started.
    pub fn new(address: SocketAddr, version: &'static str) -> io::Result<ClientMetrics> {
        let numbers = Arc::new(Mutex::new(ClientNumbers::default()));
        let page = Page::new(Box::new(ClientPage(Arc::clone(&numbers))), version);
        let server = Server::start(address, move || page.text())?;
        Ok(ClientMetrics { numbers, server })
    }

    /// Updates the counters with `event`. On [`ClientEvent::Listening`], returns a warning if
    /// other machines can read the counters. In all other cases, returns `None`.
    pub fn note(&self, event: &ClientEvent) -> Option<String> {
        // The numbers are never half updated, so poisoning is harmless.
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            ClientEvent::Listening(_) => return self.server.exposure("how much you send"),
            ClientEvent::Status(status) => numbers.status.clone_from(status),
            ClientEvent::OutOfMemory => numbers.out_of_memory += 1,
            _ => {}
        }
        None
    }
}

#[derive(Debug)]
struct ClientPage(Arc<Mutex<ClientNumbers>>);

impl Collector for ClientPage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, encoder) = (&numbers.status, &mut encoder);
        level(encoder, "client_links", "Open links to relays", status.links)?;
        level(encoder, "client_circuits", "Built circuits", status.circuits().0)?;
        level(encoder, "client_programs", "Connected programs", status.programs)?;
        level(encoder, "client_streams", "Streams of programs", status.streams)?;
        let directions = both(status.wire);
        counts(encoder, "client_link_bytes", "Bytes on links", "direction", &directions)?;
        let directions = both(status.padding);
        counts(encoder, "client_padding_cells", "Padding cells", "direction", &directions)?;
        let help = "Circuits, and sets of circuits, closed for lack of memory";
        count(encoder, "client_out_of_memory", help, numbers.out_of_memory)?;
        memory(encoder, status)?;
        sets(encoder, status)?;
        legs(encoder, status)
    }
}

fn both([received, sent]: [u64; 2]) -> [(&'static str, u64); 2] {
    [("received", received), ("sent", sent)]
}

fn memory(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let [waiting, reordered] = status.waiting;
    level(encoder, "client_memory_bytes", "Limit of the queued cells' bytes", status.memory)?;
    level(encoder, "client_waiting_bytes", "Bytes of queued cells", waiting)?;
    let help = "Bytes received out of order that wait for earlier bytes of another circuit";
    level(encoder, "client_reordered_bytes", help, reordered)?;
    let help = "Most bytes that have waited in one set of circuits so far";
    level(encoder, "client_reordered_most_bytes", help, status.most_reordered)
}

fn sets(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let help = "Sets of circuits over which streams are split";
    level(encoder, "client_sets", help, status.sets.len())?;
    let of_sets = |number: fn(&SetStatus) -> usize| -> Vec<_> {
        let sets = status.sets.iter();
        sets.map(|set| ([("set", set.number.to_string())], number(set) as f64)).collect()
    };
    let help = "Streams that are split over a set of circuits";
    levels(encoder, "client_set_streams", help, None, &of_sets(|set| set.seen.streams))?;
    let help = "Bytes that wait in a set of circuits for earlier bytes of another circuit";
    let reordered = of_sets(|set| set.seen.reordered);
    levels(encoder, "client_set_reordered", help, Some(&Unit::Bytes), &reordered)?;
    let help = "Maximum bytes that may wait in a set of circuits";
    let budget = of_sets(|set| set.seen.budget);
    levels(encoder, "client_set_reorder_limit", help, Some(&Unit::Bytes), &budget)
}

/// Labels of a circuit in the metrics: the identifier of its set (circuits that carry the same
/// streams), and the circuit's index in the set.
type LegLabels = [(&'static str, String); 2];

fn legs(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let legs = || {
        status.sets.iter().flat_map(|set| {
            let numbered = set.places.iter().zip(&set.seen.legs);
            numbered.map(|(place, leg)| (labels(set, place.leg), leg))
        })
    };
    let directions = legs().flat_map(|(labels, leg)| {
        let [set, number] = labels;
        both(leg.cells).map(|(way, cells)| {
            let way = ("direction", way.to_owned());
            ([set.clone(), number.clone(), way], cells * CELL as u64)
        })
    });
    let help = "Bytes of all cells that the guard sees on one circuit (leg) of a set of circuits";
    counter_family(encoder, "client_leg_bytes", help, &directions.collect::<Vec<_>>())?;
    let mut gauge = |name, help, unit, number: fn(&LegNumbers) -> Option<f64>| {
        let values = legs().filter_map(|(labels, leg)| Some((labels, number(leg)?)));
        levels(encoder, name, help, unit, &values.collect::<Vec<(LegLabels, f64)>>())
    };
    let help = "1 if the circuit (leg) has joined its set of circuits, otherwise 0";
    gauge("client_leg_up", help, None, |leg| Some(f64::from(u8::from(leg.is_linked))))?;
    let help = "Congestion window of one circuit (leg) in a set of circuits";
    gauge("client_leg_window_cells", help, None, |leg| Some(leg.window as f64))?;
    let help = "Cells in flight on one circuit (leg) in a set of circuits";
    gauge("client_leg_inflight_cells", help, None, |leg| Some(leg.inflight as f64))?;
    let seconds = Some(&Unit::Seconds);
    let help = "Smoothed round-trip time of one circuit (leg) in a set of circuits";
    gauge("client_leg_rtt", help, seconds, |leg| leg.rtt.map(|rtt| rtt.as_secs_f64()))?;
    let help = "Minimum round-trip time of one circuit (leg) in a set of circuits";
    gauge("client_leg_least_rtt", help, seconds, |leg| leg.least_rtt.map(|rtt| rtt.as_secs_f64()))
}

fn labels(set: &SetStatus, leg: usize) -> LegLabels {
    [("set", set.number.to_string()), ("leg", leg.to_string())]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anabranch_onion::SetNumbers;

    use super::super::LegPath;
    use super::*;

    #[test]
    fn each_leg_has_its_numbers_and_no_relay_is_named() {
        let leg = |cells, rtt: Option<u64>| LegNumbers {
            cells,
            rtt: rtt.map(Duration::from_millis),
            is_linked: rtt.is_some(),
            ..LegNumbers::default()
        };
        let legs = vec![leg([4, 2], Some(40)), leg([1, 1], None)];
        let seen = SetNumbers { legs, reordered: 9, streams: 1, ..SetNumbers::default() };
        let places = [0, 2].map(|leg| LegPath { leg, ..LegPath::default() }).to_vec();
        let sets = vec![SetStatus { number: 7, seen, places }];
        let status = Status { sets, wire: [5, 6], waiting: [20, 9], ..Status::default() };
        let numbers = ClientNumbers { status, out_of_memory: 3 };
        let page = Page::new(Box::new(ClientPage(Arc::new(Mutex::new(numbers)))), "1.2.3").text();
        for line in [
            "anabranch_client_link_bytes_total{direction=\"sent\"} 6",
            "anabranch_client_out_of_memory_total 3",
            "anabranch_client_waiting_bytes 20",
            "anabranch_client_sets 1",
            "anabranch_client_set_reordered_bytes{set=\"7\"} 9.0",
            "anabranch_client_leg_bytes_total{set=\"7\",leg=\"0\",direction=\"received\"} 2056",
            "anabranch_client_leg_bytes_total{set=\"7\",leg=\"2\",direction=\"sent\"} 514",
            "anabranch_client_leg_up{set=\"7\",leg=\"2\"} 0.0",
            "anabranch_client_leg_rtt_seconds{set=\"7\",leg=\"0\"} 0.04",
        ] {
            assert_eq!(page.lines().filter(|found| *found == line).count(), 1, "{line}\n{page}");
        }
        assert!(!page.contains("rtt_seconds{set=\"7\",leg=\"2\"}"), "not measured, not told");
    }
}
