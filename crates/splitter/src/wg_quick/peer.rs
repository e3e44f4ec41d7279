//! A peer in a wg-quick file.

use anabranch_os::target::Target;

/// A peer in a wg-quick file, with only the fields that the splitter uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Position of the peer among the peers of the file, from 1.
    pub number: usize,
    /// Public key of the peer, in base64.
    pub public_key: String,
    /// Address of the peer (its `Endpoint`); `None` if the file gives none.
    pub endpoint: Option<Target>,
    /// Line of the peer's section header, from 1.
    pub line: usize,
    pub(super) section: usize,
}
