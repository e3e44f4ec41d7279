//! A relay's counters for Prometheus, on a port of their own: [`Metered`] decorates a [`Watch`].
//! Nothing that is told identifies a client, a relay or a destination.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_multipath::Time;
use anabranch_onion::Event;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::relay::{Numbers, Watch};
use super::reload::Outcome;
use super::skew::Skew;
use crate::metrics::{Page, Server, count, counts, level};

/// A watch that shows what happens to Prometheus too.
pub struct Metered<'w> {
    inner: &'w mut dyn Watch,
    numbers: Arc<Mutex<Numbers>>,
    server: Server,
}

impl<'w> Metered<'w> {
    /// Serves the counters at `address` from now on, until this is dropped; `version` is the
    /// program's.
    ///
    /// # Errors
    /// The address cannot be listened on, or no thread can be had.
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
        // Numbers are never left half changed.
        *self.numbers.lock().unwrap_or_else(PoisonError::into_inner) = *numbers;
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
        let numbers = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (stats, encoder) = (numbers.stats, &mut encoder);
        level(encoder, "relay_links", "Links to other relays and clients", numbers.links)?;
        level(encoder, "relay_circuits", "Circuits that live", stats.circuits)?;
        level(encoder, "relay_streams", "Streams that live", stats.streams)?;
        level(encoder, "relay_waiting_cells", "Cells that wait for a link", stats.cells)?;
        count(encoder, "relay_circuits_made", "Circuits that were made", stats.circuits_made)?;
        count(encoder, "relay_cells", "Relay cells that came", stats.relayed)?;
        let help = "What neighbours did that no honest one does";
        count(encoder, "relay_violations", help, stats.violations)?;
        let help = "Circuits that were closed for want of memory";
        count(encoder, "relay_out_of_memory", help, stats.out_of_memory)?;
        let help = "Connections that were refused because their address had too many";
        count(encoder, "relay_connections_refused", help, numbers.refused)?;
        let [received, sent] = stats.padding;
        let ways = [("received", received), ("sent", sent)];
        counts(encoder, "relay_padding_cells", "Cells of padding", "direction", &ways)?;
        let [received, sent] = numbers.carried;
        let ways = [("received", received), ("sent", sent)];
        counts(encoder, "relay_link_bytes", "Bytes of links", "direction", &ways)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_latest_numbers() {
        let mut numbers = Numbers { links: 3, carried: [7, 9], refused: 8, ..Numbers::default() };
        numbers.stats.relayed = 5;
        numbers.stats.padding = [4, 2];
        let page = Page::new(Box::new(Relay(Arc::new(Mutex::new(numbers)))), "1.2.3").text();
        for line in [
            "anabranch_build_info{version=\"1.2.3\"} 1",
            "anabranch_relay_links 3",
            "anabranch_relay_cells_total 5",
            "anabranch_relay_connections_refused_total 8",
            "anabranch_relay_padding_cells_total{direction=\"sent\"} 2",
            "anabranch_relay_link_bytes_total{direction=\"received\"} 7",
            "anabranch_relay_link_bytes_total{direction=\"sent\"} 9",
        ] {
            assert_eq!(page.lines().filter(|found| *found == line).count(), 1, "{line}\n{page}");
        }
    }
}
