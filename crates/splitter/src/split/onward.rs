//! Datagrams that the splitter sends after it has received a batch of datagrams. They are
//! collected so that consecutive datagrams for the same socket are sent in one system call.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use anabranch_comps::{Batch, HeldDatagrams, Payload, SessionId, TupleId};
use anabranch_multipath::PathId;
use anabranch_os::udp::{Datagrams, Received, SendReport};

use crate::socks::Header;

/// Datagrams to send from one tuple (a path with one of its source ports) of a session.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) session: SessionId,
    pub(super) tuple: TupleId,
    pub(super) path: PathId,
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) stride: usize,
    pub(super) ecn: u8,
}

impl<'a> Outgoing<'a> {
    /// Converts an output of the protocol core. An output may refer to received datagrams; `run`
    /// contains the datagrams that the core has just handled. Returns `None` if the output refers
    /// to received datagrams and `run` is `None`.
    pub(super) fn of(
        (session, tuple, path): (SessionId, TupleId, PathId),
        payload: Payload,
        run: Option<&Received<'a>>,
    ) -> Option<Outgoing<'a>> {
        let (bytes, stride, ecn) = match payload {
            Payload::Live(part) => {
                let run = run?;
                (Cow::Borrowed(&run.bytes[part]), run.stride, run.ecn)
            }
            Payload::Kept { bytes, ecn } => {
                let stride = bytes.len();
                (Cow::Owned(bytes.into_vec()), stride, ecn)
            }
        };
        Some(Outgoing { session, tuple, path, bytes, stride, ecn })
    }
}

impl Outgoing<'_> {
    /// Returns the datagrams in the form that the socket interface needs.
    pub(super) fn datagrams(&self) -> Datagrams<'_> {
        Datagrams { bytes: &self.bytes, stride: self.stride, ecn: self.ecn, to: None, source: None }
    }

    /// Returns a copy that owns its datagrams, and does not borrow them from the received batch.
    pub(super) fn kept(&self) -> Outgoing<'static> {
        Outgoing { bytes: Cow::Owned(self.bytes.to_vec()), ..*self }
    }

    /// Returns a copy with a proxy's header before each datagram.
    pub(super) fn with_header(&self, header: &Header) -> Outgoing<'static> {
        let bytes = header.wrap(&self.bytes, self.stride);
        Outgoing { bytes: Cow::Owned(bytes), stride: self.stride + header.len(), ..*self }
    }

    /// Returns the datagrams one by one.
    pub(super) fn each(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count()).map(|place| self.part(place..place + 1).bytes)
    }

    /// Returns the number of datagrams.
    pub(super) fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.stride.max(1)).max(1)
    }

    /// Returns the datagrams whose indices are in the range `datagrams`.
    pub(super) fn part(&self, datagrams: Range<usize>) -> Datagrams<'_> {
        let whole = self.datagrams();
        let at = |index: usize| whole.bytes.len().min(index.saturating_mul(whole.stride));
        Datagrams { bytes: &whole.bytes[at(datagrams.start)..at(datagrams.end)], ..whole }
    }

    fn same_socket(&self, other: &Outgoing<'_>) -> bool {
        (self.session, self.tuple) == (other.session, other.tuple)
    }
}

/// Datagrams to be sent to one client.
#[derive(Debug)]
pub(super) struct Back<'a> {
    client: SocketAddr,
    local: Option<IpAddr>,
    bytes: Cow<'a, [u8]>,
    stride: usize,
    ecn: u8,
}

impl<'a> Back<'a> {
    /// Converts an output of the protocol core. Its datagrams are `held` (which the core had
    /// stored) or else `run` (which the core has just handled). Returns `None` if neither is
    /// available.
    pub(super) fn of(
        client: SocketAddr,
        local: Option<IpAddr>,
        held: Option<HeldDatagrams>,
        run: Option<&Received<'a>>,
    ) -> Option<Back<'a>> {
        let (bytes, stride, ecn) = match held {
            Some(held) => (Cow::Owned(held.bytes.into_vec()), held.stride, held.ecn),
            None => run.map(|run| (Cow::Borrowed(run.bytes), run.stride, run.ecn))?,
        };
        Some(Back { client, local, bytes, stride, ecn })
    }

    /// Returns the datagrams in the form that the socket interface needs.
    pub(super) fn datagrams(&self) -> Datagrams<'_> {
        Datagrams { to: Some(self.client), source: self.local, ..self.run().onward() }
    }

    /// Returns the datagrams in the form of received datagrams.
    pub(super) fn run(&self) -> Received<'_> {
        let Back { client, ref bytes, stride, ecn, .. } = *self;
        Received { from: client, to: None, ecn, stride, bytes }
    }
}

/// Converts received datagrams into the form that the protocol core needs.
pub(super) fn batch_of<'a>(run: &Received<'a>) -> Batch<'a> {
    Batch { bytes: run.bytes, stride: run.stride, ecn: run.ecn }
}

/// Returns the ranges of consecutive entries of `outgoing` that have the same socket, in order.
pub(super) fn groups<'g>(outgoing: &'g [Outgoing<'_>]) -> impl Iterator<Item = Range<usize>> + 'g {
    let mut start = 0;
    outgoing.chunk_by(Outgoing::same_socket).map(move |group| {
        let range = start..start + group.len();
        start = range.end;
        range
    })
}

/// Returns each member of `group` with the index range of its datagrams that were sent, according
/// to `report`.
pub(super) fn accepted<'g, 'a>(
    group: &'g [Outgoing<'a>],
    report: &'g SendReport<'_>,
) -> impl Iterator<Item = (&'g Outgoing<'a>, Range<usize>)> {
    let mut next = 0;
    group.iter().flat_map(move |outgoing| {
        let start = next;
        next += outgoing.count();
        let parts = report.accepted(start..next);
        parts.map(move |part| (outgoing, part.start - start..part.end - start))
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as PlainSocket;
    use std::process::Command;

    use super::*;
    use anabranch_os::namespace::Namespace;
    use anabranch_os::udp::{Fault, SendQueue, UdpOptions, UdpSocket};

    fn outgoing(bytes: &[u8], stride: usize) -> Outgoing<'_> {
        let (session, tuple, path) = (SessionId(0), TupleId(0), PathId::at(0));
        Outgoing { session, tuple, path, bytes: bytes.into(), stride, ecn: 0 }
    }

    /// Runs `work` with a loopback MTU of 1,500 bytes. Without the right to make a namespace, or
    /// without iproute2, prints the reason and returns, so that the test passes.
    fn with_usual_mtu(work: impl FnOnce() + Send) {
        let outcome = Namespace::new().and_then(|namespace| {
            namespace.run(|| {
                let mut ip = Command::new("ip");
                if !ip.args(["link", "set", "lo", "up", "mtu", "1500"]).status()?.success() {
                    return Err(std::io::Error::other("ip failed"));
                }
                work();
                Ok(())
            })
        });
        if let Err(error) = outcome {
            println!("skipped: {error}");
        }
    }

    #[test]
    fn a_datagram_that_was_refused_is_not_taken_for_the_one_behind_it() {
        with_usual_mtu(|| {
            let server = PlainSocket::bind("127.0.0.1:0").unwrap();
            let to = server.local_addr().unwrap();
            let socket = UdpSocket::connect(None, to, &UdpOptions::default()).unwrap();
            let (large, small) = (vec![1; 2_000], vec![2; 100]);
            let run = [3; 250];
            let group = [outgoing(&large, 2_000), outgoing(&small, 100), outgoing(&run, 100)];
            let mut queue = SendQueue::new();
            let mut batch = queue.batch(&socket);
            group.iter().for_each(|outgoing| batch.push(outgoing.datagrams()));
            let report = batch.send();
            assert_eq!((report.sent, report.failed_by(Fault::TooBig)), (4, 1));
            let seen: Vec<&[u8]> = accepted(&group, &report)
                .map(|(outgoing, part)| outgoing.part(part).bytes)
                .collect();
            assert_eq!(seen, [&small[..], &run[..]]);
        });
    }
}
