//! Messages about relays without support for lossy circuits. UDP-OR needs such circuits, whose
//! cells may get lost.

use std::collections::BTreeSet;

use anabranch_onion::client::Cause;
use anabranch_onion::wire::message::DestroyReason;

/// Relays that do not support lossy circuits, whose cells may get lost. Each relay is reported
/// only once.
pub(super) struct NotLossy {
    is_enabled: bool,
    reported: BTreeSet<String>,
}

impl NotLossy {
    /// Creates an empty table of relays without lossy circuits (whose cells may get lost).
    /// `is_enabled` states whether the client uses lossy circuits.
    pub(super) fn new(is_enabled: bool) -> NotLossy {
        NotLossy { is_enabled, reported: BTreeSet::new() }
    }

    /// Returns a message about the relay that caused a lossy circuit (whose cells may get lost) to
    /// be closed. `path` has the circuit's relays, and `hops` is the number of relays that were
    /// reached. Returns `None` if `cause` does not concern lossy cells, or the relay was reported
    /// already.
    pub(super) fn look(&mut self, path: &[String], hops: usize, cause: Cause) -> Option<String> {
        let relay = path.get(hops).filter(|_| self.is_enabled)?;
        let lack = match cause {
            Cause::NoLossyCells => {
                "accepts no lossy circuits (cells in datagrams, which may be lost), although its \
                 descriptor offers them"
                    .to_owned()
            }
            Cause::NoLossyLink => {
                "has no QUIC link with datagrams to this client: UDP may be blocked on the way to \
                 the relay's port"
                    .to_owned()
            }
            Cause::Destroyed(DestroyReason::CONNECT_FAILED) if hops > 0 => {
                let before = &path[hops - 1];
                format!(
                    "cannot be reached with datagrams from relay {before}: UDP may be blocked \
                     between them"
                )
            }
            _ => return None,
        };
        let is_new = self.reported.insert(relay.clone());
        is_new.then(|| format!("--design: relay {relay} {lack}; other relays are tried"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relay_that_lacks_something_is_named_once() {
        let path = ["one", "two", "three"].map(str::to_owned);
        let mut not_lossy = NotLossy::new(true);
        let unreached = Cause::Destroyed(DestroyReason::CONNECT_FAILED);
        for (hops, cause, named) in [
            (0, Cause::NoLossyLink, Some("relay one has no QUIC link")),
            (0, Cause::NoLossyLink, None),
            (1, unreached, Some("relay two cannot be reached with datagrams from relay one")),
            (2, Cause::NoLossyCells, Some("relay three accepts no lossy circuits")),
            (0, unreached, None),
            (3, Cause::Wanted, None),
        ] {
            let warning = not_lossy.look(&path, hops, cause);
            assert_eq!(warning.is_some(), named.is_some(), "{warning:?}");
            let named = named.unwrap_or_default();
            assert!(warning.unwrap_or_default().contains(named), "{named}");
        }
        assert_eq!(NotLossy::new(false).look(&path, 1, unreached), None);
    }
}
