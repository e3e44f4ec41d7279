//! Measurements with QUIC: a server with its default settings, and quic-go's client.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;

use super::super::Programs;
use super::super::quic::{ClientReport, PORT, QuicLibrary, Server};
use super::super::stage::Stage;
use super::session::Session;
use super::transfer::{Arrival, Limit};

/// Server name that the QUIC client requests; no server checks it.
const NAME: &str = "localhost";

struct Serving<'a> {
    server: Server<'a>,
    programs: &'a Programs,
}

/// Starts a QUIC server with enough content for a transfer up to `limit`.
///
/// # Errors
/// The server does not start.
pub(super) fn serve<'a>(
    maker: QuicLibrary,
    stage: &'a Stage,
    programs: &'a Programs,
    limit: Limit,
) -> io::Result<Box<dyn Session + 'a>> {
    let server = Server::start(maker, stage, programs, limit.enough())?;
    Ok(Box::new(Serving { server, programs }))
}

impl Session for Serving<'_> {
    fn port(&self) -> u16 {
        PORT
    }

    fn transfer(&mut self, stage: &Stage, limit: Limit, stop: &AtomicBool) -> io::Result<Arrival> {
        let splitter = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let ask = (splitter, NAME);
        let report = self.server.fetch((stage, self.programs), ask, limit.seconds, stop)?;
        Ok(arrived(report, limit))
    }
}

/// Converts the QUIC client's report into the measured data of a transfer. It is no error if the
/// client reaches the time limit. An interrupted transfer of fixed duration counts with the full
/// duration `limit.seconds`, so that the interruption lowers the goodput.
fn arrived(report: ClientReport, limit: Limit) -> Arrival {
    let early = report.seconds < limit.seconds * 0.98;
    let whole = limit.bytes.is_some_and(|bytes| report.bytes >= bytes);
    let broke = early && !report.error.is_empty() && !whole;
    let cut_short = broke && limit.bytes.is_none();
    Arrival {
        bytes: report.bytes,
        seconds: if cut_short { limit.seconds } else { report.seconds },
        longest_gap: report.longest_gap_s,
        error: broke.then_some(report.error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_of(bytes: u64, seconds: f64, error: &str) -> ClientReport {
        let error = error.to_owned();
        ClientReport { bytes, seconds, first_byte_s: 0.1, longest_gap_s: 0.5, error }
    }

    #[test]
    fn the_end_of_the_time_is_no_error_and_an_early_end_is() {
        let timed = Limit { seconds: 10.0, bytes: None };
        let whole = arrived(report_of(1000, 10.001, "context deadline exceeded"), timed);
        assert_eq!((whole.error, whole.seconds), (None, 10.001));
        let broken = arrived(report_of(1000, 3.0, "the connection was closed"), timed);
        assert_eq!((broken.error.is_some(), broken.seconds), (true, 10.0));
        let sized = Limit { seconds: 600.0, bytes: Some(1000) };
        let whole = arrived(report_of(1000, 3.0, ""), sized);
        assert_eq!((whole.error, whole.seconds), (None, 3.0));
        assert!(arrived(report_of(999, 3.0, "reset"), sized).error.is_some());
    }
}
