//! What an authority's operator decides of relays.

/// What the operator decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether relays may have private addresses: in networks for tests.
    pub allow_private: bool,
    /// Relays that are not taken, by RSA identity.
    pub banned: Vec<[u8; 20]>,
    /// How many relays of one address count (C tor's AuthDirMaxServersPerAddr); 0 for any number.
    pub per_address: usize,
}

impl Default for Rules {
    /// As in the public network.
    fn default() -> Rules {
        Rules { allow_private: false, banned: Vec::new(), per_address: 2 }
    }
}
