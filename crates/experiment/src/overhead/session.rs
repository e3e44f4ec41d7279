//! Interface of each kind of peer to a measurement.

use std::io;
use std::sync::atomic::AtomicBool;

use super::super::stage::Stage;
use super::transfer::{Arrived, Limit};

/// A running server, and the client that fetches from it through the splitter.
pub(super) trait Session {
    /// Returns the server's UDP port, which is the splitter's, too.
    fn port(&self) -> u16;

    /// Fetches until the limit.
    ///
    /// # Errors
    /// The transfer could not start.
    fn transfer(&mut self, stage: &Stage, limit: Limit, stop: &AtomicBool) -> io::Result<Arrived>;
}
