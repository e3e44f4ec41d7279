//! Consensus files of any origin: an accepted one is complete.

use anabranch_anonymity::consensus::read;
use anabranch_anonymity::population::entries;

/// Checks the text of a file.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(listed) = read(text) else { return };
    let relays = &listed.network.consensus().relays;
    assert!(!relays.is_empty() && listed.network.relays().count() == relays.len());
    assert!(relays.is_sorted_by(|one, other| one.rsa_identity < other.rsa_identity));
    assert!(entries(&listed.network).len() <= listed.network.guard_count());
}
