//! A relay's counters for Prometheus, served on a separate port: [`Metered`] wraps an observer
//! ([`Watch`]). The counters identify no client, relay or destination.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_multipath::Time;
use anabranch_onion::relay::Stats;
use anabranch_onion::{Event, NumberSpread};
use anabranch_os::metrics::{Page, Server, count, counts, level, levels};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;

use super::links::quic::QuicCounts;
use super::mptcp::MptcpCounts;
use super::relay::{Numbers, Watch};
use super::reload::Outcome;
use super::skew::Skew;

/// An observer ([`Watch`]) that also exports a relay's counters to Prometheus.
pub struct Metered<'w> {
    inner: &'w mut dyn Watch,
    numbers: Arc<Mutex<Numbers>>,
    server: Server,
}

impl<'w> Metered<'w> {
    /// Serves the counters at `address` until this value is dropped. `version` is the program's
    /// version.
    ///
    /// # Errors
    /// The process cannot listen on the address, or the thread cannot be started.
    pub fn new(
        inner: &'w mut dyn Watch,
        address: SocketAddr,
        version: &'static str,
    ) -> io::Result<Metered<'w>> {
        let numbers = Arc::new(Mutex::new(Numbers::default()));
        let page = Page::new(Box::new(Relay(Arc::clone(&numbers))), version);
        let server = Server::start(address, move || page.text())?;
        Ok(Metered { inner, numbers, server })
    }
}

impl Watch for Metered<'_> {
    fn listening(&mut self, at: &[SocketAddr]) {
        self.inner.listening(at);
        if let Some(text) = self.server.exposure("how much this relay carries") {
            self.inner.note(&text);
        }
    }

    fn event(&mut self, now: Time, event: &Event) {
        self.inner.event(now, event);
    }

    fn numbers(&mut self, now: Time, numbers: &Numbers) {
        // The numbers are never half updated, so poisoning is harmless.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).clone_from(numbers);
        self.inner.numbers(now, numbers);
    }

    fn note(&mut self, text: &str) {
        self.inner.note(text);
    }

    fn reloaded(&mut self, outcome: &Outcome) {
        self.inner.reloaded(outcome);
    }

    fn clock(&mut self, skew: &Skew) {
        self.inner.clock(skew);
    }
}

#[derive(Debug)]
struct Relay(Arc<Mutex<Numbers>>);

impl Collector for Relay {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (stats, encoder) = (numbers.stats, &mut encoder);
        level(encoder, "relay_links", "Links to other relays and clients", numbers.links)?;
        level(encoder, "relay_circuits", "Open circuits", stats.circuits)?;
        level(encoder, "relay_streams", "Open streams", stats.streams)?;
        level(encoder, "relay_waiting_cells", "Cells queued for a link", stats.cells)?;
        count(encoder, "relay_circuits_made", "Circuits created", stats.circuits_made)?;
        count(encoder, "relay_cells", "Relay cells received", stats.relayed)?;
        let help = "Protocol violations by other relays and clients";
        count(encoder, "relay_violations", help, stats.violations)?;
        let help = "Circuits closed for lack of memory";
        count(encoder, "relay_out_of_memory", help, stats.out_of_memory)?;
        let help = "Connections refused because the other address had too many open connections";
        count(encoder, "relay_connections_refused", help, numbers.refused)?;
        let help = "Connections closed immediately because no file descriptor was free";
        count(encoder, "relay_connections_without_file", help, numbers.turned_away)?;
        let [received, sent] = stats.padding;
        let directions = [("received", received), ("sent", sent)];
        counts(encoder, "relay_padding_cells", "Padding cells", "direction", &directions)?;
        of_unordered(encoder, &numbers)?;
        of_quic(encoder, &numbers)?;
        of_lossy(encoder, &numbers)?;
        of_connections(encoder, &numbers)?;
        let [received, sent] = numbers.transferred;
        let directions = [("received", received), ("sent", sent)];
        counts(encoder, "relay_link_bytes", "Bytes on links", "direction", &directions)?;
        of_sets(encoder, &stats)
    }
}

/// Encodes the counters of links with out-of-order delivery, if the relay uses them
/// (`docs/formats.md`).
fn of_unordered(encoder: &mut DescriptorEncoder<'_>, numbers: &Numbers) -> fmt::Result {
    let Some(tap) = numbers.tap else { return Ok(()) };
    let Numbers { stats, early, .. } = numbers;
    let help = "Kernel interface for reading TCP segments that arrive out of order";
    let tap = tap.to_string();
    levels(encoder, "relay_tap", help, None, &[([("kind", tap.as_str())], 1.0)])?;
    let help = "Links on which the cells of one circuit may overtake those of another";
    level(encoder, "relay_unordered_links", help, stats.unordered_links)?;
    let help = "Cells that arrived before an earlier cell of the same circuit";
    count(encoder, "relay_early_cells", help, stats.early_cells)?;
    let help = "TLS records decrypted before an earlier record arrived";
    count(encoder, "relay_early_records", help, early.opened)?;
    let help = "TLS records that arrived before an earlier one and could not be decrypted";
    count(encoder, "relay_early_records_failed", help, early.failed)
}

/// Encodes the counters of QUIC links, if the relay uses QUIC (`docs/formats.md`).
fn of_quic(encoder: &mut DescriptorEncoder<'_>, numbers: &Numbers) -> fmt::Result {
    let Some(QuicCounts { endpoints, failed, .. }) = numbers.quic else { return Ok(()) };
    let Numbers { stats, .. } = numbers;
    level(encoder, "relay_quic_links", "QUIC links to other relays and clients", stats.quic_links)?;
    level(encoder, "relay_quic_circuits", "Circuits on QUIC links", stats.quic_circuits)?;
    let help = "Circuits moved from QUIC links to the TLS links of the same neighbours";
    count(encoder, "relay_quic_moved_circuits", help, stats.moved_circuits)?;
    let help = "QUIC links that could not be opened, so that circuits stay on TLS";
    count(encoder, "relay_quic_failed", help, failed)?;
    count(
        encoder,
        "relay_quic_broken",
        "QUIC links that failed after they were open",
        endpoints.broken,
    )?;
    let help = "New QUIC peers that had to prove their address (Retry)";
    count(encoder, "relay_quic_retried", help, endpoints.retried)?;
    let help = "New QUIC peers that were refused";
    count(encoder, "relay_quic_refused", help, endpoints.refused)
}

/// Encodes the counters of lossy circuits (whose cells may get lost), if the relay allows them
/// (`docs/formats.md`).
fn of_lossy(encoder: &mut DescriptorEncoder<'_>, numbers: &Numbers) -> fmt::Result {
    if !numbers.grants_lossy {
        return Ok(());
    }
    let Numbers { stats: Stats { circuits_lossy, lossy, .. }, .. } = numbers;
    count(
        encoder,
        "relay_lossy_circuits_made",
        "Circuits created with lossy cells (cells in datagrams, which may be lost)",
        *circuits_lossy,
    )?;
    let directions = [("received", lossy.received), ("sent", lossy.sent)];
    counts(
        encoder,
        "relay_lossy_cells",
        "Lossy cells (cells in datagrams) on links",
        "direction",
        &directions,
    )?;
    let dropped = [
        ("queue", lossy.dropped + numbers.quic.map_or(0, |counts| counts.lossy_dropped)),
        ("replay", lossy.refused),
        ("unknown", lossy.unknown),
    ];
    counts(
        encoder,
        "relay_lossy_cells_dropped",
        "Lossy cells (cells in datagrams) that the relay dropped",
        "cause",
        &dropped,
    )?;
    let help = "Circuits closed because a cell in a datagram had been changed or forged";
    count(encoder, "relay_lossy_garbage", help, lossy.garbage)
}

/// Encodes the counters of links that each carry one circuit, and of MPTCP links, if the relay
/// uses them (`docs/formats.md`).
fn of_connections(encoder: &mut DescriptorEncoder<'_>, numbers: &Numbers) -> fmt::Result {
    let Numbers { stats, .. } = numbers;
    if numbers.dedicates_links {
        let help = "Links that carry one circuit each";
        level(encoder, "relay_dedicated_links", help, stats.dedicated_links)?;
        let help = "Circuits put on a shared link, because the maximum number of links was reached";
        count(encoder, "relay_shared_circuits", help, stats.shared_circuits)?;
    }
    let Some(MptcpCounts { links, subflows, fell_back }) = numbers.mptcp else { return Ok(()) };
    level(encoder, "relay_mptcp_links", "Links over MPTCP", links)?;
    level(encoder, "relay_mptcp_subflows", "Subflows of links over MPTCP", subflows)?;
    let help = "Links over TCP, because the other end or a middlebox does not support MPTCP";
    level(encoder, "relay_mptcp_fell_back", help, fell_back)
}

/// Encodes the counters of sets (circuits that carry the same streams). The counters are summed
/// over all sets, because the counters of a single set would describe one client.
fn of_sets(encoder: &mut DescriptorEncoder<'_>, stats: &Stats) -> fmt::Result {
    level(encoder, "relay_sets", "Sets of circuits over which streams are split", stats.sets)?;
    level(encoder, "relay_legs", "Circuits (legs) in sets of circuits", stats.legs)?;
    let help = "Bytes received out of order that wait for earlier bytes of another circuit";
    level(encoder, "relay_reordered_bytes", help, stats.reordered)?;
    let help = "Most bytes that have waited in one set of circuits so far";
    level(encoder, "relay_reordered_most_bytes", help, stats.most_reordered)?;
    let help = "Cells in flight on all circuits (legs) in sets of circuits";
    let inflight = usize::try_from(stats.legs_inflight).unwrap_or(usize::MAX);
    level(encoder, "relay_leg_inflight_cells", help, inflight)?;
    let help = "Congestion windows of the circuits (legs) in sets of circuits";
    levels(encoder, "relay_leg_window_cells", help, None, &spread(stats.leg_windows, 1.0))?;
    let help = "Smoothed round-trip times of the circuits (legs) in sets of circuits";
    let rtts = spread(stats.leg_rtts, 1e6);
    levels(encoder, "relay_leg_rtt", help, Some(&Unit::Seconds), &rtts)
}

/// Returns the minimum, mean and maximum in `spread`, each with its label and divided by `unit`.
/// Returns nothing if `spread` has no values.
fn spread(spread: NumberSpread, unit: f64) -> Vec<([(&'static str, &'static str); 1], f64)> {
    let Some(mean) = spread.mean() else { return Vec::new() };
    let numbers = [("least", spread.least as f64), ("mean", mean), ("most", spread.most as f64)];
    numbers.map(|(of, number)| ([("of", of)], number / unit)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onion::tap::TapKind;

    #[test]
    fn the_page_has_the_latest_numbers() {
        let mut numbers =
            Numbers { links: 3, transferred: [7, 9], refused: 8, ..Numbers::default() };
        numbers.turned_away = 6;
        (numbers.tap, numbers.early.opened) = (Some(TapKind::SocketFilter), 11);
        numbers.quic = Some(QuicCounts { failed: 12, ..QuicCounts::default() });
        (numbers.stats.quic_circuits, numbers.stats.moved_circuits) = (13, 18);
        numbers.mptcp = Some(MptcpCounts { links: 14, subflows: 15, fell_back: 16 });
        (numbers.dedicates_links, numbers.stats.dedicated_links) = (true, 17);
        numbers.grants_lossy = true;
        (numbers.stats.lossy.garbage, numbers.stats.lossy.dropped) = (19, 20);
        numbers.quic.iter_mut().for_each(|counts| counts.lossy_dropped = 1);
        numbers.stats.relayed = 5;
        numbers.stats.padding = [4, 2];
        numbers.stats.leg_rtts = [30_000, 50_000].into_iter().collect();
        numbers.stats.most_reordered = 6;
        let page = Page::new(Box::new(Relay(Arc::new(Mutex::new(numbers)))), "1.2.3").text();
        for line in [
            "anabranch_build_info{version=\"1.2.3\"} 1",
            "anabranch_relay_links 3",
            "anabranch_relay_cells_total 5",
            "anabranch_relay_connections_refused_total 8",
            "anabranch_relay_connections_without_file_total 6",
            "anabranch_relay_padding_cells_total{direction=\"sent\"} 2",
            "anabranch_relay_link_bytes_total{direction=\"received\"} 7",
            "anabranch_relay_link_bytes_total{direction=\"sent\"} 9",
            "anabranch_relay_reordered_most_bytes 6",
            "anabranch_relay_tap{kind=\"socket filter\"} 1.0",
            "anabranch_relay_early_records_total 11",
            "anabranch_relay_unordered_links 0",
            "anabranch_relay_quic_circuits 13",
            "anabranch_relay_quic_moved_circuits_total 18",
            "anabranch_relay_quic_failed_total 12",
            "anabranch_relay_mptcp_subflows 15",
            "anabranch_relay_mptcp_fell_back 16",
            "anabranch_relay_dedicated_links 17",
            "anabranch_relay_lossy_garbage_total 19",
            "anabranch_relay_lossy_cells_dropped_total{cause=\"queue\"} 21",
            "anabranch_relay_shared_circuits_total 0",
            "anabranch_relay_leg_rtt_seconds{of=\"least\"} 0.03",
            "anabranch_relay_leg_rtt_seconds{of=\"mean\"} 0.04",
            "anabranch_relay_leg_rtt_seconds{of=\"most\"} 0.05",
        ] {
            assert_eq!(page.lines().filter(|found| *found == line).count(), 1, "{line}\n{page}");
        }
        assert!(!page.contains("leg_window_cells{"), "no leg, no window\n{page}");
    }
}
