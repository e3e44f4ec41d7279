//! Common interface of the servers and clients of each protocol, for the measurements.

use std::io;
use std::sync::atomic::AtomicBool;

use super::super::stage::Stage;
use super::transfer::{Arrival, Limit};

/// A running server, and the client that fetches from it through the splitter.
pub(super) trait Session {
    /// Returns the server's UDP port. The splitter listens on a port with the same number.
    fn port(&self) -> u16;

    /// Transfers data until `limit` is reached or `stop` is set.
    ///
    /// # Errors
    /// The transfer could not start.
    fn transfer(&mut self, stage: &Stage, limit: Limit, stop: &AtomicBool) -> io::Result<Arrival>;
}
