//! User settings for both ends of a tunnel: keys, and the padding of packets. [`crate::split`] has
//! the near end, [`crate::merge`] the far end.

mod file;

use std::fmt;

use anabranch_comps::Flow;
use anabranch_multipath::DecoyBudget;
use anabranch_tunnel::{DecoyCount, OVERHEAD, PADDED_OVERHEAD};
use keys::{KeyPair, Psk, PublicKey};

pub use anabranch_tunnel::{INTERFACE, Inner, keys};
pub use file::{KeyEnd, KeyFile, KeyFileError, Peer, secret_text};

/// The far end that a splitter connects to, in front of the server.
#[derive(Clone)]
pub struct FarEnd {
    /// Our own keys.
    pub own: KeyPair,
    /// The far end's public key.
    pub public: PublicKey,
    /// The secret that both ends share; zeros for none.
    pub psk: Psk,
    /// Name of the requested server at the far end; empty for the only one.
    pub behind: String,
    /// Allowed packet lengths, in bytes of UDP payload; empty for any.
    pub pad: Vec<usize>,
    /// Budget for decoys on idle paths.
    pub decoys: Option<DecoyBudget>,
}

impl FarEnd {
    /// Returns the same far end, with its interface requested instead of a server.
    #[must_use]
    pub fn for_packets(self) -> FarEnd {
        FarEnd { behind: INTERFACE.to_owned(), ..self }
    }

    /// Returns our addresses for tunnelled IP packets.
    #[must_use]
    pub fn inner(&self) -> Inner {
        Inner::of(&self.public, &self.own.public)
    }

    /// Returns the maximum bytes that a packet adds to the datagram in it, zeros left out.
    #[must_use]
    pub fn overhead(&self) -> usize {
        if self.pad.is_empty() { OVERHEAD } else { PADDED_OVERHEAD }
    }
}

/// Converts a count of decoys to the form of the counters.
pub(crate) fn decoy_flow(count: DecoyCount) -> Flow {
    Flow { datagrams: count.packets, bytes: count.bytes }
}

impl PartialEq for FarEnd {
    fn eq(&self, other: &FarEnd) -> bool {
        let FarEnd { own, public, psk, behind, pad, decoys } = self;
        (own.public, *public, *psk) == (other.own.public, other.public, other.psk)
            && (behind, pad, decoys) == (&other.behind, &other.pad, &other.decoys)
    }
}

impl fmt::Debug for FarEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FarEnd { own, public, behind, pad, decoys, psk: _ } = self;
        let mut shown = f.debug_struct("FarEnd");
        shown.field("own", &own.public).field("public", public);
        shown.field("behind", behind).field("pad", pad).field("decoys", decoys);
        shown.finish_non_exhaustive()
    }
}
