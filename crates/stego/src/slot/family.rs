//! The description of a profile: the kind of cover traffic, and the use of connections. Each
//! cover's module describes its own profiles.

use std::sync::Arc;
use std::time::Duration;

use super::{ClientEnd, Covers, LoadHint, ServerEnd, SharedContext};

/// The description of a profile: its name, its text for users, and how its connections hide data.
pub struct Family {
    /// The name in options and bridge lines.
    pub name: &'static str,
    /// One line of help for users that describes the content of the connections.
    pub about: &'static str,
    /// Maximum number of simultaneous connections of a link while there are data to transfer.
    pub connections: usize,
    /// Maximum number of simultaneous connections of a link while it is idle.
    pub idle_connections: usize,
    /// Maximum bytes that a connection carries in each direction. `None` for no limit, in profiles
    /// with few and persistent connections.
    pub max_bytes: Option<usize>,
    /// Whether a server poses as a web server, so that it needs a site that answers strangers.
    pub wants_site: bool,
    /// Whether a server needs pictures in which it hides bytes.
    pub wants_pictures: bool,
    /// Whether a server needs a web site in whose objects (files such as pictures and scripts) it
    /// hides bytes.
    pub wants_objects: bool,
    /// Number of hidden bytes that a client expects in an answer, until answers have arrived.
    /// `None` if the number of requests does not depend on such an estimate.
    pub(crate) answer: Option<usize>,
    /// Whether messages are costly, so that data wait a little to be sent in fewer messages.
    pub(crate) coalesces: bool,
    /// Whether both ends of a connection may send at any time. If not, they alternate, as with
    /// requests and answers.
    pub(crate) streams: bool,
    /// Maximum bytes of a chunk (a part of the link's stream), the unit of retransmission. A chunk
    /// has to fit into one message.
    pub(crate) chunk: usize,
    /// Exclusive upper bound of the number of padding bytes after a handshake message.
    pub(crate) padding: u16,
    /// Minimum number of bytes that a message must be able to hide to carry an acknowledgement.
    /// Longer acknowledgements are shortened: they list fewer ranges and receipts.
    pub(crate) ack_room: usize,
    /// Function that returns the maximum time for which an end is silent although the connection
    /// works. It is zero for covers (ordinary-looking traffic) without pauses.
    pub(crate) pauses: fn(&Covers) -> Duration,
    /// Function that creates the client's end of a connection for an expected load. The last
    /// argument is a random number.
    pub(crate) client: fn(&Family, &Arc<SharedContext>, LoadHint, u16) -> Box<dyn ClientEnd>,
    /// Function that creates the server's end of a connection.
    pub(crate) server: fn(&Family, &Arc<SharedContext>) -> Box<dyn ServerEnd>,
}

/// Maximum number of simultaneous connections in profiles with short connections.
pub(super) const MANY: usize = 24;
/// Maximum bytes that a short connection carries in each direction. Some networks freeze a
/// connection after a larger volume.
pub(super) const SHORT: Option<usize> = Some(12_000);
/// Number of bytes for which a message must have room to carry any acknowledgement, even the
/// longest.
pub(super) const ACK_ROOM: usize = 1_100;
/// Number of bytes for which a message must have room to carry a shortened acknowledgement. It
/// applies to covers (ordinary-looking traffic) that hide only few bytes per message.
pub(super) const LITTLE_ACK_ROOM: usize = 96;

impl Family {
    /// Returns the number of requests to keep outstanding in advance, in addition to the requests
    /// that fetch the data waiting at the server. It is larger if connections are short, because
    /// each then carries little.
    pub(crate) fn ahead(&self) -> usize {
        if self.max_bytes.is_some() { 3 } else { 1 }
    }
}
