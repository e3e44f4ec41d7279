//! Measurement of a single link that carries cells at a steady rate.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anabranch_router::onion::link_pair::{self, LinkPair};
use anabranch_router::onion::tap::{Tap, TapKind};

use super::super::onions::ONION;
use super::super::stage::Stage;
use super::measured::{CellDelays, Delays};
use super::place::LINE_END;
use super::plan::{CELL_CIRCUITS, CELL_RATE};

/// Maximum time to wait for the last cells after the sender has finished.
const PATIENCE: Duration = Duration::from_secs(10);
/// Threshold for early cells. A cell counts as early if it arrives more than this time before TCP
/// would deliver it in order.
const EARLY: Duration = Duration::from_millis(1);

/// Sends cells for `seconds` seconds over the emulated line, from its second end to its first.
/// Returns the cells' delays, and the number of TLS records that were decrypted out of order.
///
/// # Errors
/// The link fails, or this process may not read out-of-order data, which needs `CAP_BPF` or
/// `CAP_NET_RAW`.
pub(super) fn carry(
    stage: &Stage,
    seconds: u32,
    stop: &AtomicBool,
) -> io::Result<(CellDelays, u64)> {
    let hosts = [stage.client(), stage.server()];
    let taps = [hosts[0].run(|| Ok(Tap::open()))?, hosts[1].run(|| Ok(Tap::open()))?];
    let ip: std::net::IpAddr = LINE_END.parse().map_err(io::Error::other)?;
    let mut pair = LinkPair::open(hosts, SocketAddr::from((ip, ONION)), taps)?;
    if pair.taps().contains(&TapKind::None) {
        return Err(io::Error::other(
            "unordered links need CAP_BPF or CAP_NET_RAW; run the command as root",
        ));
    }
    let (wanted, between) = (CELL_RATE * seconds, Duration::from_secs(1) / CELL_RATE);
    let received = pair.carry(1, (wanted, between), PATIENCE, stop)?;
    let delays = delays(&received, wanted)
        .ok_or_else(|| io::Error::other("no cell arrived over the link"))?;
    Ok((delays, pair.early_counts(0).opened))
}

/// Summarises the delays of the cells that arrived; `None` if no cell arrived. `received` has the
/// delays of these cells, by the cell's sequence number. `wanted` is the number of cells to send.
fn delays(received: &BTreeMap<u32, link_pair::CellDelays>, wanted: u32) -> Option<CellDelays> {
    let of = |time: fn(&link_pair::CellDelays) -> Duration| {
        Delays::of(received.values().map(|cell| time(cell).as_secs_f64()).collect())
    };
    let early = received.values().filter(|cell| cell.in_order > cell.received + EARLY).count();
    Some(CellDelays {
        wanted,
        received: received.len() as u32,
        early: early as f64 / received.len().max(1) as f64,
        in_order: of(|cell| cell.in_order)?,
        by_circuit: Delays::of(by_circuit(received))?,
        unordered: of(|cell| cell.received)?,
    })
}

/// Returns the delays in seconds that the cells would have if only the order within each circuit
/// were kept. Cells are sent at a steady rate, so the sending time of a cell follows from its
/// sequence number.
fn by_circuit(received: &BTreeMap<u32, link_pair::CellDelays>) -> Vec<f64> {
    let mut turns = [0.0_f64; CELL_CIRCUITS as usize];
    let delay = |(number, cell): (&u32, &link_pair::CellDelays)| {
        let sent = f64::from(*number) / f64::from(CELL_RATE);
        let turn = &mut turns[(number % CELL_CIRCUITS) as usize];
        *turn = turn.max(sent + cell.received.as_secs_f64());
        *turn - sent
    };
    received.iter().map(delay).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(received: u64, in_order: u64) -> link_pair::CellDelays {
        let [received, in_order] = [received, in_order].map(Duration::from_millis);
        link_pair::CellDelays { received, in_order }
    }

    #[test]
    fn a_cell_waits_for_those_of_its_own_circuit_alone() {
        // Cell 0 is late by 200 ms. Cell 10, sent 50 ms after it, belongs to the same circuit.
        let all = (0..20).map(|number| match number {
            0 => (0, cell(250, 250)),
            number => (number, cell(50, 250 - 5 * u64::from(number))),
        });
        let received: BTreeMap<_, _> = all.collect();
        let delays = delays(&received, 21).unwrap();
        assert_eq!((delays.wanted, delays.received, delays.early), (21, 20, 0.95));
        let by_circuit = by_circuit(&received);
        assert!((by_circuit[10] - 0.2).abs() < 1e-9, "{by_circuit:?}");
        let waited = by_circuit.iter().filter(|delay| **delay > 0.051).count();
        assert_eq!(waited, 2, "{by_circuit:?}");
        assert!(delays.unordered.mean < delays.by_circuit.mean);
        assert!(delays.by_circuit.mean < delays.in_order.mean);
    }
}
