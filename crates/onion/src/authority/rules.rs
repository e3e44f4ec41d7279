//! An authority operator's rules for relays.

/// Rules for accepting and listing relays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// True if relays may have private addresses, for test networks.
    pub allow_private: bool,
    /// RSA identities of relays that are refused.
    pub banned: Vec<[u8; 20]>,
    /// Maximum number of relays with the same address that the consensus lists (C tor's
    /// `AuthDirMaxServersPerAddr`); 0 means no limit.
    pub per_address: usize,
}

impl Default for Rules {
    /// Returns the rules of the public network.
    fn default() -> Rules {
        Rules { allow_private: false, banned: Vec::new(), per_address: 2 }
    }
}
