//! User settings of a tunnel between a splitter and a far end (our program in front of the
//! server): keys, padding and decoys (dummy packets). [`crate::split`] implements the near end,
//! [`crate::merge`] the far end.

mod file;

use std::fmt;

use anabranch_comps::Flow;
use anabranch_multipath::DecoyBudget;
use anabranch_tunnel::{DecoyCount, OVERHEAD, PADDED_OVERHEAD};
use keys::{KeyPair, Psk, PublicKey};

pub use anabranch_tunnel::{INTERFACE, Inner, keys};
pub use file::{KeyEnd, KeyFile, KeyFileError, Peer, secret_text};

/// A splitter's settings for a far end (our program in front of the server). The splitter connects
/// to the far end instead of the server.
#[derive(Clone)]
pub struct FarEnd {
    /// Our own keys.
    pub own: KeyPair,
    /// The far end's public key.
    pub public: PublicKey,
    /// The secret that the two ends share; zeros if there is none.
    pub psk: Psk,
    /// Name of the server to request from the far end; empty if the far end has a single server.
    pub server_name: String,
    /// Allowed lengths of tunnel packets, in bytes of UDP payload. Packets are padded to these
    /// lengths. If empty, any length is allowed.
    pub pad: Vec<usize>,
    /// Budget for decoys (dummy packets) on idle paths, as a share of the real traffic; `None` for
    /// no decoys.
    pub decoys: Option<DecoyBudget>,
}

impl FarEnd {
    /// Returns these settings, changed to request the far end's network interface instead of a
    /// server. The tunnel then carries IP packets.
    #[must_use]
    pub fn for_packets(self) -> FarEnd {
        FarEnd { server_name: INTERFACE.to_owned(), ..self }
    }

    /// Returns our own IP addresses for the IP packets that the tunnel carries.
    #[must_use]
    pub fn inner(&self) -> Inner {
        Inner::of(&self.public, &self.own.public)
    }

    /// Returns the maximum number of bytes that the tunnel adds to a datagram, excluding padding
    /// zeros.
    #[must_use]
    pub fn overhead(&self) -> usize {
        if self.pad.is_empty() { OVERHEAD } else { PADDED_OVERHEAD }
    }
}

/// Converts a count of decoys (dummy packets) to a [`Flow`], which counts datagrams and bytes.
pub(crate) fn decoy_flow(count: DecoyCount) -> Flow {
    Flow { datagrams: count.packets, bytes: count.bytes }
}

impl PartialEq for FarEnd {
    fn eq(&self, other: &FarEnd) -> bool {
        let FarEnd { own, public, psk, server_name, pad, decoys } = self;
        (own.public, *public, *psk) == (other.own.public, other.public, other.psk)
            && (server_name, pad, decoys) == (&other.server_name, &other.pad, &other.decoys)
    }
}

impl fmt::Debug for FarEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FarEnd { own, public, server_name, pad, decoys, psk: _ } = self;
        let mut shown = f.debug_struct("FarEnd");
        shown.field("own", &own.public).field("public", public);
        shown.field("behind", server_name).field("pad", pad).field("decoys", decoys);
        shown.finish_non_exhaustive()
    }
}
