//! What each kind of peer does for a measurement.

use std::io;
use std::sync::atomic::AtomicBool;

use super::super::stage::Stage;
use super::transfer::{Arrived, Limit};

/// A server that runs, and the client that fetches from it by the splitter.
pub(super) trait Session {
    /// The server's UDP port, which is the splitter's too.
    fn port(&self) -> u16;

    /// Fetches until the limit.
    ///
    /// # Errors
    /// The transfer could not begin.
    fn transfer(&mut self, stage: &Stage, limit: Limit, stop: &AtomicBool) -> io::Result<Arrived>;
}
