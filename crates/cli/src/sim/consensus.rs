//! Reader of the consensus file (list of relays) that a scenario names.

use std::path::Path;
use std::sync::Arc;

use anabranch_anonymity::consensus::decode;
use anabranch_sim::onion::ConsensusRelays;

use crate::anonymity::source::{self, Choice};

/// Reads the relays of the consensus in `file`, which may be compressed.
///
/// # Errors
/// The file cannot be read, or is no complete consensus. The error is one line with the file's
/// name.
pub(super) fn read(file: &Path) -> Result<Arc<ConsensusRelays>, String> {
    let bytes = source::read_file(file, Choice { hour: None, written: "" });
    let listed = bytes.and_then(|bytes| decode(&bytes).map_err(|error| error.to_string()));
    match listed {
        Ok(listed) => Ok(Arc::new(ConsensusRelays::new(&listed.network))),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}
