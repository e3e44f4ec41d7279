//! Messages about links and streams between a protocol state machine (core) and its driver (I/O
//! code). The trait [`LinkCore`] is the part of a core's interface that clients and relays share.

use std::net::IpAddr;

use anabranch_multipath::{LinkView, Time};

use crate::channel::Start;
use crate::channels::LinkId;
use crate::event::CarrierFault;
use crate::stream::StreamKey;
use crate::wire::extend::Target;
use crate::wire::message::EndReason;

/// An event of a link that the driver (I/O code) reports to the core (protocol state machine).
#[derive(Debug)]
pub enum LinkInput<'a> {
    /// A link has opened: the neighbour opened it, or we did after [`LinkOutput::Dial`]. Its TLS
    /// handshake is complete.
    Opened {
        /// The link's identifier, never used before.
        link: LinkId,
        /// The relay that we intended to reach; `None` if the neighbour opened the link.
        target: Option<Target>,
        /// Facts about the link at the end of its TLS handshake.
        start: Start,
    },
    /// Plaintext bytes have arrived.
    Bytes {
        /// The link.
        link: LinkId,
        /// The bytes, decrypted by TLS or QUIC.
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
    /// The secret from the TLS session that [`LinkOutput::Export`] requested.
    Exported {
        /// The link.
        link: LinkId,
        /// The secret.
        secret: [u8; 32],
    },
    /// The link now uses records of fixed size, as [`LinkOutput::FixRecords`] requested.
    RecordsFixed {
        /// The link.
        link: LinkId,
    },
    /// The QUIC link that [`LinkOutput::OpenQuic`] requested cannot be opened now.
    QuicFailed {
        /// The TLS link for which the parallel QUIC link was requested.
        link: LinkId,
    },
    /// Statistics of a connection, which [`LinkCore::wants_look`] requested.
    Seen {
        /// The link.
        link: LinkId,
        /// State of the connection that carries the link, as the operating system reports it.
        view: LinkView,
    },
    /// A link is closed.
    Closed {
        /// The link.
        link: LinkId,
    },
    /// A link is closed, because the neighbour violated the protocol of the link's carrier, such
    /// as TLS.
    Broken {
        /// The link.
        link: LinkId,
        /// The neighbour's violation.
        fault: CarrierFault,
    },
    /// A QUIC link has failed: it receives nothing, although neither end has closed it. The
    /// circuits on it move to the TLS link alongside it if they can, and are lost otherwise.
    Lost {
        /// The link.
        link: LinkId,
    },
    /// A permanent link to another shard of this relay was created. Shards are the parallel cores
    /// of one relay.
    Sibling {
        /// The link's identifier, never used before.
        link: LinkId,
        /// True at one end of the link, false at the other. The ends thus differ in the circuit
        /// IDs that they assign.
        first: bool,
        /// The index of the other shard (parallel core).
        shard: usize,
    },
    /// Another parallel core (shard) of this relay has the link to the relay that
    /// [`LinkOutput::Dial`] names. Circuits reach the relay over that shard.
    Elsewhere {
        /// The relay to reach.
        target: Target,
        /// The link to the other parallel core (shard).
        link: LinkId,
    },
    /// The relay that [`LinkOutput::Dial`] names cannot be reached.
    Unreachable {
        /// The relay to reach.
        target: Target,
    },
}

/// An action on links that the core (a protocol state machine without I/O) requests from its
/// driver (the I/O code).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkOutput {
    /// Open a link to a relay.
    Dial {
        /// The relay.
        target: Target,
    },
    /// Open a link to a relay for this core (protocol state machine), even if another core of the
    /// process has a link to that relay.
    DialOwn {
        /// The relay.
        target: Target,
    },
    /// Export a secret of 32 bytes from the TLS session (RFC 5705), under the label
    /// [`crate::wire::link::EXPORT_LABEL`]. [`LinkInput::Exported`] returns it.
    Export {
        /// The link.
        link: LinkId,
        /// The context of the export (RFC 5705), on which the secret depends.
        context: [u8; 32],
    },
    /// From now on, send and accept only TLS records with `content` bytes on the link. Each record
    /// contains one cell with a sequence number, and may be decrypted out of order.
    /// [`LinkInput::RecordsFixed`] confirms this.
    FixRecords {
        /// The link.
        link: LinkId,
        /// Bytes of a record's content.
        content: usize,
    },
    /// Open a QUIC link to the neighbour of a link, alongside that link. [`LinkInput::Opened`] or
    /// [`LinkInput::QuicFailed`] reports the outcome.
    OpenQuic {
        /// The existing link.
        link: LinkId,
        /// The neighbour's identity, and its address for QUIC links.
        target: Target,
        /// First byte of the connection ID to use. By this byte, the neighbour assigns the QUIC
        /// link to the shard (parallel core) that has the existing link. `None` if the QUIC link
        /// may belong to any shard of the neighbour.
        first_byte: Option<u8>,
    },
    /// Allow cells of circuits on a QUIC link from now on, because the neighbour is now
    /// identified.
    AdmitCircuits {
        /// The link.
        link: LinkId,
    },
    /// The link has something to send: call [`LinkCore::transmit`] when the connection accepts
    /// bytes.
    Transmit {
        /// The link.
        link: LinkId,
    },
    /// Close a link after sending the bytes that [`LinkCore::transmit`] still returns.
    Close {
        /// The link.
        link: LinkId,
    },
}

/// A notification about a stream for the stream's local program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOutput {
    /// [`LinkCore::read`] has bytes for the program.
    Readable {
        /// The stream.
        stream: StreamKey,
    },
    /// [`LinkCore::write`] accepts bytes from the program again, after the stream's buffer was
    /// full.
    Room {
        /// The stream.
        stream: StreamKey,
    },
    /// The stream has ended, and the program has read all its data. Either the other end closed
    /// the stream, or the stream's circuit was closed. The stream's key is not reused.
    Ended {
        /// The stream.
        stream: StreamKey,
        /// Reason of the end.
        reason: EndReason,
        /// The destination's address that the exit's policy refuses; `None` if the exit sent no
        /// address.
        refused: Option<IpAddr>,
    },
}

/// Interface of a core (the protocol state machine of a client or a relay) to its links and to the
/// programs of its streams. A stream's program is the local endpoint of the stream: the user's
/// program at a client, the destination at an exit.
///
/// Each role also has its own commands, outputs and timers, which are in
/// [`Core`](anabranch_multipath::Core).
pub trait LinkCore {
    /// Handles an event of a link.
    fn handle_link(&mut self, now: Time, input: LinkInput<'_>);

    /// Appends cells for `link` to `out` until `out` has at least `limit` bytes or no cells are
    /// left. Returns false if no cells are left. [`LinkOutput::Transmit`] then follows when there
    /// are cells again.
    fn transmit(&mut self, now: Time, link: LinkId, out: &mut Vec<u8>, limit: usize) -> bool;

    /// Appends the lossy cells for `link` to `out`. The driver (I/O code) sends them in datagrams.
    /// After [`LinkOutput::Transmit`], the driver calls this function before
    /// [`LinkCore::transmit`]. A node without lossy circuits appends nothing.
    fn transmit_lossy(&mut self, _link: LinkId, _out: &mut Vec<u8>) {}

    /// Returns true if a scheduler needs statistics of a link's connection. The driver (I/O code)
    /// answers with [`LinkInput::Seen`].
    fn wants_look(&self, _link: LinkId) -> bool {
        false
    }

    /// Releases unused buffer memory of a link that has received little recently. Returns the
    /// number of bytes released; 0 in a node without such buffers.
    fn shrink_buffers(&mut self, _link: LinkId) -> usize {
        0
    }

    /// Accepts bytes from a stream's program, and returns the number of bytes accepted. If not all
    /// were accepted, [`StreamOutput::Room`] follows when the stream accepts more.
    fn write(&mut self, now: Time, stream: StreamKey, bytes: &[u8]) -> usize;

    /// Returns the bytes that wait for a stream's program, in two consecutive parts.
    fn read(&self, stream: StreamKey) -> (&[u8], &[u8]);

    /// Notes that the program has consumed the first `bytes` bytes that [`LinkCore::read`]
    /// returned.
    fn consume(&mut self, now: Time, stream: StreamKey, bytes: usize);
}
