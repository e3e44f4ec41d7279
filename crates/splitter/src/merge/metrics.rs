//! Export of a far end's counters to Prometheus, on a separate port. [`Metered`] wraps a
//! [`Screen`]. The metrics identify clients by their names in the key file, and contain no
//! addresses.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_comps::Flow;
use anabranch_multipath::Time;
use anabranch_os::metrics::{Page, Server, count, level};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::settings::{ActiveSettings, News, PathSnapshot, Screen, Snapshot};

/// Maximum age of the exported counters.
const FRESH: Duration = Duration::from_secs(1);

/// A [`Screen`] (display of events and counters) that forwards them to another screen, and exports
/// the counters to Prometheus.
pub struct Metered<'s> {
    inner: &'s mut dyn Screen,
    numbers: Arc<Mutex<Snapshot>>,
    /// Earliest time at which the counters are forwarded to the wrapped screen (`inner`) again.
    next: Time,
    server: Server,
}

impl<'s> Metered<'s> {
    /// Serves the counters at `address` until the returned value is dropped. `version` is the
    /// program's version.
    ///
    /// # Errors
    /// The address is not available, or no thread can be started.
    pub fn new(
        inner: &'s mut dyn Screen,
        address: SocketAddr,
        version: &'static str,
    ) -> io::Result<Metered<'s>> {
        let numbers = Arc::new(Mutex::new(Snapshot::default()));
        let page = Page::new(Box::new(Run(Arc::clone(&numbers))), version);
        let server = Server::start(address, move || page.text())?;
        Ok(Metered { inner, numbers, next: Time::ZERO, server })
    }

    fn keep(&self, snapshot: &Snapshot) {
        // The lock may be used after a panic of its holder, because a snapshot is never left
        // partly written.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).clone_from(snapshot);
    }
}

impl Screen for Metered<'_> {
    fn listening(&mut self, about: &ActiveSettings) {
        self.inner.listening(about);
        if let Some(text) = self.server.exposure("how much each client sends") {
            self.inner.warn(&text);
        }
    }

    fn reloaded(&mut self, now: Time, about: &ActiveSettings) {
        self.inner.reloaded(now, about);
    }

    fn news(&mut self, now: Time, news: &News) {
        self.inner.news(now, news);
    }

    fn snapshot(&mut self, now: Time, snapshot: &Snapshot) {
        self.keep(snapshot);
        if now >= self.next {
            // The inner screen may show the counters half an interval early, but not an interval
            // late.
            self.next = now + self.inner.interval() - self.interval() / 2;
            self.inner.snapshot(now, snapshot);
        }
    }

    fn finish(&mut self, now: Time, snapshot: &Snapshot) {
        self.keep(snapshot);
        self.inner.finish(now, snapshot);
    }

    fn warn(&mut self, text: &str) {
        self.inner.warn(text);
    }

    fn interval(&self) -> Duration {
        self.inner.interval().min(FRESH)
    }
}

#[derive(Debug)]
struct Run(Arc<Mutex<Snapshot>>);

impl Collector for Run {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let encoder = &mut encoder;
        paths(encoder, &snapshot)?;
        let up = snapshot.clients.iter().map(|client| (&*client.name, u8::from(client.up).into()));
        clients(encoder, "merge_client_up", "1 if a client is connected, otherwise 0", None, up)?;
        let patience = snapshot.clients.iter();
        let patience = patience.map(|client| (&*client.name, client.patience.as_secs_f64()));
        let help = "Longest time that a datagram from a client was held back until earlier ones \
                    arrived";
        clients(encoder, "merge_patience", help, Some(&Unit::Seconds), patience)?;
        let lost = snapshot.clients.iter().map(|client| client.lost).sum();
        count(encoder, "merge_lost_packets", "Packets from clients that never arrived", lost)?;
        decoys(encoder, &snapshot)?;
        level(encoder, "merge_flows", "Open sockets to servers", snapshot.flows)?;
        count(
            encoder,
            "merge_handshakes",
            "Handshakes of clients that were answered",
            snapshot.handshakes,
        )?;
        let help = "Packets dropped because their sender was unknown or they had arrived before";
        count(encoder, "merge_strangers", help, snapshot.strangers)?;
        let help = "Packets dropped on arrival because the socket's buffer was full";
        count(encoder, "merge_missed_packets", help, snapshot.missed)?;
        let help = "Datagrams to clients that could not be sent";
        count(encoder, "merge_unsent_packets", help, snapshot.unsent)?;
        let help = "Datagrams to clients that were sent before their random delay (--jitter) \
                    ended";
        count(encoder, "merge_hurried_packets", help, snapshot.hurried)?;
        let help = "Packets from clients that the interface (--tun) refused";
        count(encoder, "merge_refused_packets", help, snapshot.refused)
    }
}

/// Writes the metrics with the traffic of each path of each client.
fn paths(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    type Pick = fn(&PathSnapshot) -> [u64; 2];
    let datagrams: Pick = |path| [path.inward.datagrams, path.outward.datagrams];
    let bytes: Pick = |path| [path.inward.bytes, path.outward.bytes];
    for (name, help, unit, pick) in [
        ("merge_path_packets", "Datagrams carried by a path of a client", None, datagrams),
        (
            "merge_path",
            "Bytes of the datagrams carried by a path of a client",
            Some(Unit::Bytes),
            bytes,
        ),
    ] {
        let kind = ConstCounter::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for client in &snapshot.clients {
            for (place, path) in client.paths.iter().enumerate() {
                let place = place.to_string();
                for (direction, value) in ["in", "out"].into_iter().zip(pick(path)) {
                    let labels =
                        [("client", &*client.name), ("path", &place), ("direction", direction)];
                    ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
    }
    Ok(())
}

/// Writes the metrics with the counters of decoys (dummy packets): sent, and received and dropped.
fn decoys(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    type Pick = fn(&Flow) -> u64;
    let packets: Pick = |flow| flow.datagrams;
    let bytes: Pick = |flow| flow.bytes;
    let help = "Decoys (dummy packets) sent on idle paths; the other end drops them";
    for (name, help, pick) in [
        ("merge_decoy_packets", help, packets),
        (
            "merge_decoy_bytes",
            "Bytes of decoys (dummy packets) sent; the other end drops them",
            bytes,
        ),
    ] {
        let kind = ConstCounter::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for client in &snapshot.clients {
            for (direction, flow) in ["out", "in"].into_iter().zip(&client.decoys) {
                let labels = [("client", &*client.name), ("direction", direction)];
                ConstCounter::new(pick(flow)).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

/// Writes a metric of the type gauge, with one value for each client.
fn clients<'c>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    values: impl Iterator<Item = (&'c str, f64)>,
) -> fmt::Result {
    let kind = ConstGauge::new(0f64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
    for (client, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&[("client", client)])?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::settings::ClientSnapshot;
    use super::*;

    #[test]
    fn each_client_and_path_has_its_numbers() {
        let inward = Flow { datagrams: 3, bytes: 3000 };
        let path = PathSnapshot { inward, up: true, ..PathSnapshot::default() };
        let client = ClientSnapshot {
            name: "home".to_owned(),
            up: true,
            paths: vec![PathSnapshot::default(), path],
            patience: Duration::from_millis(40),
            decoys: [Flow { datagrams: 4, bytes: 3600 }, Flow::default()],
            ..ClientSnapshot::default()
        };
        let snapshot = Snapshot { clients: vec![client], strangers: 7, ..Snapshot::default() };
        let page = Page::new(Box::new(Run(Arc::new(Mutex::new(snapshot)))), "1.2.3").text();
        for line in [
            "anabranch_build_info{version=\"1.2.3\"} 1",
            "anabranch_merge_path_bytes_total{client=\"home\",path=\"1\",direction=\"in\"} 3000",
            "anabranch_merge_path_packets_total{client=\"home\",path=\"0\",direction=\"out\"} 0",
            "anabranch_merge_client_up{client=\"home\"} 1.0",
            "anabranch_merge_patience_seconds{client=\"home\"} 0.04",
            "anabranch_merge_strangers_total 7",
            "anabranch_merge_decoy_packets_total{client=\"home\",direction=\"out\"} 4",
            "anabranch_merge_decoy_bytes_total{client=\"home\",direction=\"out\"} 3600",
            "anabranch_merge_decoy_packets_total{client=\"home\",direction=\"in\"} 0",
        ] {
            assert_eq!(page.lines().filter(|found| *found == line).count(), 1, "{line}\n{page}");
        }
    }
}
