//! A peer of a wg-quick file.

use anabranch_os::target::Target;

/// A peer as far as the splitter is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its place among the peers of the file, from 1.
    pub number: usize,
    /// Its public key, in base64.
    pub public_key: String,
    /// Where it is, if the file says so.
    pub endpoint: Option<Target>,
    /// The line of its header, from 1.
    pub line: usize,
    pub(super) section: usize,
}
