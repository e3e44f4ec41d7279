//! What the outside and a core tell one another of links and of streams. [`Core`] is what both
//! roles have of it.

use std::net::IpAddr;

use anabranch_multipath::{LinkView, Time};

use crate::channel::Start;
use crate::channels::LinkId;
use crate::event::CarrierFault;
use crate::stream::StreamKey;
use crate::wire::extend::Target;
use crate::wire::message::EndReason;

/// What happened to a link.
#[derive(Debug)]
pub enum LinkInput<'a> {
    /// A link whose TLS handshake is done: the neighbour's, or one that [`LinkOutput::Dial`] asked
    /// for.
    Opened {
        /// Its number, never used before.
        link: LinkId,
        /// Whom it was to lead to, if we opened it.
        target: Option<Target>,
        /// What is known of it.
        start: Start,
    },
    /// Plain bytes came.
    Bytes {
        /// The link.
        link: LinkId,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The answer to [`LinkOutput::Export`].
    Exported {
        /// The link.
        link: LinkId,
        /// The secret.
        secret: [u8; 32],
    },
    /// What [`LinkOutput::FixRecords`] asked for is done.
    RecordsFixed {
        /// The link.
        link: LinkId,
    },
    /// What [`LinkOutput::OpenBeside`] asked for cannot be had now.
    NoneBeside {
        /// The link beside which it was to be opened.
        link: LinkId,
    },
    /// What [`Core::wants_look`] asked for.
    Seen {
        /// The link.
        link: LinkId,
        /// Its connection, as the system sees it.
        view: LinkView,
    },
    /// A link is gone.
    Closed {
        /// The link.
        link: LinkId,
    },
    /// A link is gone, as the neighbour broke the protocol of what carries it.
    Broken {
        /// The link.
        link: LinkId,
        /// What the neighbour did.
        fault: CarrierFault,
    },
    /// Nothing comes by a QUIC link any more, and nobody has closed it: its circuits go on by the
    /// link beside which it stood, where they can, or it is gone.
    Lost {
        /// The link.
        link: LinkId,
    },
    /// A link to another shard of this relay is there, and stays.
    Sibling {
        /// Its number, never used before.
        link: LinkId,
        /// True at one end of it, false at the other.
        first: bool,
        /// The other shard's number.
        shard: usize,
    },
    /// What [`LinkOutput::Dial`] asked for is another shard's to do, or is done there.
    Elsewhere {
        /// Whom we wanted.
        target: Target,
        /// The link to that shard.
        link: LinkId,
    },
    /// What [`LinkOutput::Dial`] asked for cannot be had.
    Unreachable {
        /// Whom we wanted.
        target: Target,
    },
}

/// What is to be done with links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkOutput {
    /// Open a link to a relay.
    Dial {
        /// To whom.
        target: Target,
    },
    /// Export the TLS session's secret under [`crate::wire::link::EXPORT_LABEL`], 32 bytes.
    Export {
        /// The link.
        link: LinkId,
        /// The context.
        context: [u8; 32],
    },
    /// From now on, both ways, each record of the link has `content` bytes, a cell with its number,
    /// and may be opened before its turn. [`LinkInput::RecordsFixed`] answers.
    FixRecords {
        /// The link.
        link: LinkId,
        /// Bytes of a record's content.
        content: usize,
    },
    /// Open a QUIC link to the neighbour of a link, too. [`LinkInput::Opened`] tells of it, or
    /// [`LinkInput::NoneBeside`].
    OpenBeside {
        /// The link that is there.
        link: LinkId,
        /// Who the neighbour is, and where QUIC links come in.
        target: Target,
        /// What the connection ID begins with to which it is opened, so that it comes to the core
        /// that has the other link there; `None`: that does not matter.
        begins: Option<u8>,
    },
    /// A QUIC link's neighbour is known: cells of circuits may come by it from now on.
    AdmitCircuits {
        /// The link.
        link: LinkId,
    },
    /// The link has something to send: call [`Core::transmit`] when it has room.
    Transmit {
        /// The link.
        link: LinkId,
    },
    /// Close a link, once what [`Core::transmit`] still gave has gone.
    Close {
        /// The link.
        link: LinkId,
    },
}

/// What a stream's program is to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOutput {
    /// [`Core::read`] has bytes.
    Readable {
        /// The stream.
        stream: StreamKey,
    },
    /// [`Core::write`] takes bytes again.
    Room {
        /// The stream.
        stream: StreamKey,
    },
    /// The other end ended the stream, or its circuit is gone, and all of it was read. The key is
    /// not used again.
    Ended {
        /// The stream.
        stream: StreamKey,
        /// Why.
        reason: EndReason,
        /// The address that the exit's policy refuses, if it told.
        refused: Option<IpAddr>,
    },
}

/// A client's or a relay's core, as its links and the programs of its streams see it. A stream's
/// program is what it leads to: at a client the user's, at an exit the destination.
pub trait Core {
    /// Takes what happened to a link.
    fn handle_link(&mut self, now: Time, input: LinkInput<'_>);

    /// When the core wants to be told that this time has come.
    fn next_timeout(&self) -> Option<Time>;

    /// Appends cells for a link until `out` has `limit` bytes or nothing is left; false if nothing
    /// is left. Then [`LinkOutput::Transmit`] will tell when there is something again.
    fn transmit(&mut self, now: Time, link: LinkId, out: &mut Vec<u8>, limit: usize) -> bool;

    /// Whether a scheduler wants to know how a link's connection is doing ([`LinkInput::Seen`]).
    fn wants_look(&self, _link: LinkId) -> bool {
        false
    }

    /// Little has come by a link of late: gives back the room that bursts took. How many bytes that
    /// was; none, for a core that takes none.
    fn rest(&mut self, _link: LinkId) -> usize {
        0
    }

    /// Takes bytes of a stream's program; returns how many. If not all, [`StreamOutput::Room`]
    /// follows.
    fn write(&mut self, now: Time, stream: StreamKey, bytes: &[u8]) -> usize;

    /// The bytes that wait for a stream's program: two pieces, in order.
    fn read(&self, stream: StreamKey) -> (&[u8], &[u8]);

    /// The program took the first `bytes` of [`Core::read`].
    fn consume(&mut self, now: Time, stream: StreamKey, bytes: usize);
}
