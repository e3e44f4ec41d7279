//! Messages between a core and its driver about links and streams. The trait [`LinkCore`] is the
//! part of the interface that depends on no role.

use std::net::IpAddr;

use anabranch_multipath::{LinkView, Time};

use crate::channel::Start;
use crate::channels::LinkId;
use crate::event::CarrierFault;
use crate::stream::StreamKey;
use crate::wire::extend::Target;
use crate::wire::message::EndReason;

/// An event of a link.
#[derive(Debug)]
pub enum LinkInput<'a> {
    /// A link was opened by the neighbour, or as requested by [`LinkOutput::Dial`]. Its TLS
    /// handshake is complete.
    Opened {
        /// The link's number, never used before.
        link: LinkId,
        /// The relay that we meant to reach; `None` if the neighbour opened the link.
        target: Option<Target>,
        /// Facts about the link.
        start: Start,
    },
    /// Plaintext bytes have arrived.
    Bytes {
        /// The link.
        link: LinkId,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Lossy cells have arrived in datagrams of a QUIC link: whole cells of
    /// [`NUMBERED_CELL`](crate::wire::cell::NUMBERED_CELL) bytes.
    Lossy {
        /// The link.
        link: LinkId,
        /// The cells.
        cells: &'a [u8],
    },
    /// The answer to [`LinkOutput::Export`].
    Exported {
        /// The link.
        link: LinkId,
        /// The secret.
        secret: [u8; 32],
    },
    /// The records requested by [`LinkOutput::FixRecords`] are in effect.
    RecordsFixed {
        /// The link.
        link: LinkId,
    },
    /// The link requested by [`LinkOutput::OpenBeside`] is not available now.
    NoneBeside {
        /// The link alongside which the QUIC link was to be opened.
        link: LinkId,
    },
    /// The statistics requested by [`LinkCore::wants_look`].
    Seen {
        /// The link.
        link: LinkId,
        /// State of the link's connection, as the system reports it.
        view: LinkView,
    },
    /// A link is closed.
    Closed {
        /// The link.
        link: LinkId,
    },
    /// A link is closed because the neighbour broke the protocol of its carrier.
    Broken {
        /// The link.
        link: LinkId,
        /// The neighbour's fault.
        fault: CarrierFault,
    },
    /// A QUIC link has failed: it receives nothing, but neither end has closed it. Its circuits
    /// move to the link alongside it if they can, or else are lost.
    Lost {
        /// The link.
        link: LinkId,
    },
    /// A permanent link to another shard of this relay was created. Each shard runs a core of its
    /// own.
    Sibling {
        /// The link's number, never used before.
        link: LinkId,
        /// True at one end of the link, false at the other.
        first: bool,
        /// The other shard's number.
        shard: usize,
    },
    /// The relay of [`LinkOutput::Dial`] is reached through another shard.
    Elsewhere {
        /// The relay to reach.
        target: Target,
        /// The link to the shard through which the relay is reached.
        link: LinkId,
    },
    /// The relay of [`LinkOutput::Dial`] cannot be reached.
    Unreachable {
        /// The relay to reach.
        target: Target,
    },
}

/// An action on links that the core requests of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkOutput {
    /// Open a link to a relay.
    Dial {
        /// The relay.
        target: Target,
    },
    /// Open a link to a relay from this core, whether or not another core of the process has one.
    DialOwn {
        /// The relay.
        target: Target,
    },
    /// Export a secret of 32 bytes from the TLS session (RFC 5705), under the label
    /// [`crate::wire::link::EXPORT_LABEL`]. [`LinkInput::Exported`] returns it.
    Export {
        /// The link.
        link: LinkId,
        /// The context.
        context: [u8; 32],
    },
    /// From now on, send and accept only records with `content` bytes on the link. Each contains a
    /// cell with its number, and may be decrypted out of order. [`LinkInput::RecordsFixed`]
    /// confirms this.
    FixRecords {
        /// The link.
        link: LinkId,
        /// Bytes of a record's content.
        content: usize,
    },
    /// Open a QUIC link to the neighbour of a link, alongside that link. [`LinkInput::Opened`] or
    /// [`LinkInput::NoneBeside`] reports the outcome.
    OpenBeside {
        /// The existing link.
        link: LinkId,
        /// The neighbour's identity, and its address for QUIC links.
        target: Target,
        /// First byte of the connection ID to use. The neighbour uses it to pass the QUIC link to
        /// its core that has the existing link. `None` if any core will do.
        begins: Option<u8>,
    },
    /// Accept cells of circuits on a QUIC link from now on, because the link's neighbour is known.
    AdmitCircuits {
        /// The link.
        link: LinkId,
    },
    /// The link has something to send: call [`LinkCore::transmit`] when there is room.
    Transmit {
        /// The link.
        link: LinkId,
    },
    /// Close a link after the bytes that [`LinkCore::transmit`] returns have been sent.
    Close {
        /// The link.
        link: LinkId,
    },
}

/// A notification for a stream's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOutput {
    /// [`LinkCore::read`] has bytes for the program.
    Readable {
        /// The stream.
        stream: StreamKey,
    },
    /// [`LinkCore::write`] accepts bytes from the program again.
    Room {
        /// The stream.
        stream: StreamKey,
    },
    /// The other end closed the stream, or its circuit is closed, and all data was read. The key is
    /// not used again.
    Ended {
        /// The stream.
        stream: StreamKey,
        /// Reason of the end.
        reason: EndReason,
        /// The address that the exit's policy refuses; `None` if the exit sent no address.
        refused: Option<IpAddr>,
    },
}

/// A client's or a relay's core, as seen by its links and the programs of its streams. A stream's
/// program is its local endpoint: at a client the user's program, at an exit the destination.
///
/// Commands, outputs and timers, which depend on the role, are those of
/// [`Core`](anabranch_multipath::Core).
pub trait LinkCore {
    /// Handles an event of a link.
    fn handle_link(&mut self, now: Time, input: LinkInput<'_>);

    /// Appends cells for `link` until `out` has `limit` bytes or nothing is left; returns false if
    /// nothing is left. In that case [`LinkOutput::Transmit`] follows when there is something to
    /// send again.
    fn transmit(&mut self, now: Time, link: LinkId, out: &mut Vec<u8>, limit: usize) -> bool;

    /// Appends the lossy cells for `link` to `out`, for datagrams. After [`LinkOutput::Transmit`]
    /// the driver calls this before [`LinkCore::transmit`]. A core without lossy circuits appends
    /// nothing.
    fn transmit_lossy(&mut self, _link: LinkId, _out: &mut Vec<u8>) {}

    /// Returns true if a scheduler wants statistics of a link's connection ([`LinkInput::Seen`]).
    fn wants_look(&self, _link: LinkId) -> bool {
        false
    }

    /// Releases unused buffer memory of a link that has recently received little. Returns the
    /// number of bytes released; 0 for a core that does not keep such memory.
    fn rest(&mut self, _link: LinkId) -> usize {
        0
    }

    /// Takes bytes from a stream's program. Returns the number of bytes taken. If that is not all
    /// of them, [`StreamOutput::Room`] follows.
    fn write(&mut self, now: Time, stream: StreamKey, bytes: &[u8]) -> usize;

    /// Returns the bytes that wait for a stream's program, in two consecutive parts.
    fn read(&self, stream: StreamKey) -> (&[u8], &[u8]);

    /// Notes that the program has consumed the first `bytes` of [`LinkCore::read`].
    fn consume(&mut self, now: Time, stream: StreamKey, bytes: usize);
}
