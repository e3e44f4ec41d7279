//! A peer of a wg-quick file.

use anabranch_os::target::Target;

/// The fields of a peer that the splitter uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its position among the peers of the file, from 1.
    pub number: usize,
    /// Its public key, in base64.
    pub public_key: String,
    /// Its address, if the file has one.
    pub endpoint: Option<Target>,
    /// The line of its header, from 1.
    pub line: usize,
    pub(super) section: usize,
}
