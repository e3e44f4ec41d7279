//! Datagrams to and from the UDP relay of a SOCKS5 proxy. Each has a header (RFC 1928, section 7).

use std::net::SocketAddr;
use std::ops::Range;

use anabranch_os::udp::Received;
use anabranch_proxy::SocksAddress;

/// SOCKS5 header before datagrams to one server through a proxy's UDP relay: 10 bytes for IPv4, 22
/// for IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: Box<[u8]>,
    server: SocketAddr,
}

impl Header {
    /// Returns the SOCKS5 header for datagrams to `server`.
    pub fn to(server: SocketAddr) -> Header {
        // The first bytes are two reserved bytes, and a zero that marks the datagram as no
        // fragment.
        let mut bytes = vec![0, 0, 0];
        SocksAddress::Socket(server).write(&mut bytes);
        Header { bytes: bytes.into(), server }
    }

    /// Returns the server that datagrams with this header are addressed to.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// Returns the length of the header in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no header is empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the length in bytes of the header for datagrams to `server`.
    pub fn length_to(server: SocketAddr) -> u32 {
        if server.is_ipv4() { 10 } else { 22 }
    }

    /// Puts the SOCKS5 header before each datagram of `run`, which contains consecutive datagrams.
    /// Each has `stride` bytes, except that the last may be shorter. The same holds for the
    /// result, so one system call can send all of them.
    pub fn wrap(&self, run: &[u8], stride: usize) -> Vec<u8> {
        let stride = stride.max(1);
        let datagrams = run.len().div_ceil(stride).max(1);
        let mut wrapped = Vec::with_capacity(run.len() + datagrams * self.len());
        if run.is_empty() {
            wrapped.extend(&self.bytes);
        }
        for datagram in run.chunks(stride) {
            wrapped.extend(&self.bytes);
            wrapped.extend(datagram);
        }
        wrapped
    }
}

/// Datagrams received from a proxy's UDP relay, without their SOCKS5 headers. Consecutive
/// datagrams of equal length are stored together, as one run.
#[derive(Debug, Default)]
pub struct RelayedDatagrams {
    bytes: Vec<u8>,
    runs: Vec<Run>,
    unfit: u64,
}

#[derive(Debug)]
struct Run {
    at: Range<usize>,
    stride: usize,
    ecn: u8,
    /// True if another datagram may be appended, because all datagrams stored so far have the same
    /// length.
    open: bool,
}

impl RelayedDatagrams {
    /// Processes consecutive datagrams (`run`) received from the relay. Drops and counts
    /// fragments, malformed datagrams, and datagrams that are not from `server`: any host can send
    /// to the relay.
    pub fn take(&mut self, run: &Received<'_>, server: SocketAddr) {
        // Datagrams that the kernel delivered separately stay separate, because their ECN bits may
        // differ.
        let first = self.runs.len();
        for datagram in run.datagrams() {
            match inside(datagram) {
                Some((from, payload)) if is_same(from, server) => {
                    self.add(first, payload, run.ecn);
                }
                _ => self.unfit += 1,
            }
        }
    }

    /// Returns the accepted datagrams in order, without their SOCKS5 headers, as if `server` had
    /// sent them to us directly.
    pub fn runs(&self, server: SocketAddr) -> impl Iterator<Item = Received<'_>> {
        self.runs.iter().map(move |run| Received {
            from: server,
            to: None,
            ecn: run.ecn,
            stride: run.stride,
            bytes: &self.bytes[run.at.clone()],
        })
    }

    /// Returns the number of datagrams from the relay that were dropped.
    pub fn unfit(&self) -> u64 {
        self.unfit
    }

    /// Adds the datagram `payload` to the last run (datagrams of equal length, stored together),
    /// or begins a new run. A new run begins if the last run is complete, or if its index is below
    /// `first`. A new run also begins if `payload` is empty, or longer than the datagrams of the
    /// last run.
    fn add(&mut self, first: usize, payload: &[u8], ecn: u8) {
        let start = self.bytes.len();
        self.bytes.extend(payload);
        let end = self.bytes.len();
        let fits = |run: &&mut Run| run.open && !payload.is_empty() && payload.len() <= run.stride;
        match self.runs[first..].last_mut().filter(fits) {
            Some(run) => {
                run.at.end = end;
                run.open = payload.len() == run.stride;
            }
            None => {
                let (stride, open) = (payload.len(), !payload.is_empty());
                self.runs.push(Run { at: start..end, stride, ecn, open });
            }
        }
    }
}

/// Returns the sender and the payload of a relayed datagram. Returns `None` for a fragment, a
/// malformed header, and a sender given by name. Reserved bytes are ignored (RFC 1928, section 7).
fn inside(datagram: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let [_, _, 0, rest @ ..] = datagram else { return None };
    match SocksAddress::read(rest) {
        Ok(Some((SocksAddress::Socket(from), length))) => Some((from, &rest[length..])),
        _ => None,
    }
}

/// Returns whether two addresses are equal. An IPv4-mapped IPv6 address equals its IPv4 address.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    let plain = |address: SocketAddr| (address.ip().to_canonical(), address.port());
    plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four() -> SocketAddr {
        "192.0.2.1:443".parse().unwrap()
    }

    fn received(bytes: &[u8], stride: usize) -> Received<'_> {
        Received { from: "10.0.0.1:9".parse().unwrap(), to: None, ecn: 1, stride, bytes }
    }

    /// Passes one run to `RelayedDatagrams`. Returns each resulting run's stride and bytes, and
    /// the number of dropped datagrams.
    fn opened(bytes: &[u8], stride: usize) -> (Vec<(usize, Vec<u8>)>, u64) {
        let mut opened = RelayedDatagrams::default();
        opened.take(&received(bytes, stride), four());
        let runs = opened.runs(four()).map(|run| (run.stride, run.bytes.to_vec())).collect();
        (runs, opened.unfit())
    }

    #[test]
    fn headers_have_the_lengths_that_the_mtu_counts() {
        let six = "[2001:db8::1]:443".parse().unwrap();
        for server in [four(), six] {
            assert_eq!(Header::to(server).len() as u32, Header::length_to(server));
        }
        assert_eq!(&*Header::to(four()).bytes, b"\0\0\0\x01\xc0\0\x02\x01\x01\xbb");
    }

    #[test]
    fn a_run_stays_a_run_there_and_back() {
        let header = Header::to(four());
        for (length, stride) in [(250, 100), (300, 100), (1, 1), (0, 0), (100, 100), (5, 100)] {
            let run: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let wrapped = header.wrap(&run, stride);
            let (back, unfit) = opened(&wrapped, stride.min(length) + header.len());
            assert_eq!(unfit, 0);
            assert_eq!(back, [(stride.min(length), run)], "{length} bytes by {stride}");
        }
    }

    #[test]
    fn fragments_strangers_and_nonsense_are_dropped_and_counted() {
        let header = Header::to(four());
        let fine = header.wrap(b"fine", 4);
        let mut fragment = fine.clone();
        fragment[2] = 1;
        let stranger = Header::to("192.0.2.2:443".parse().unwrap()).wrap(b"evil", 4);
        let named = b"\0\0\0\x03\x01x\x01\xbb1234".to_vec();
        let short = fine[..9].to_vec();
        for bad in [fragment, stranger, named, short, Vec::new(), vec![0, 0, 0, 9, 1, 1]] {
            assert_eq!(opened(&bad, bad.len()), (Vec::new(), 1), "{bad:?}");
        }
        let mut between = fine.clone();
        between[2] = 7;
        let run = [&fine[..], &between, &fine].concat();
        assert_eq!(opened(&run, fine.len()), (vec![(4, b"finefine".to_vec())], 1));
    }

    #[test]
    fn a_server_may_be_told_as_ipv4_inside_ipv6() {
        let mapped = Header::to("[::ffff:192.0.2.1]:443".parse().unwrap());
        assert_eq!(mapped.len(), 22);
        let (runs, unfit) = opened(&mapped.wrap(b"fine", 4), 26);
        assert_eq!((runs, unfit), (vec![(4, b"fine".to_vec())], 0));
    }

    #[test]
    fn runs_of_two_messages_keep_their_ecn_bits() {
        let wrapped = Header::to(four()).wrap(b"same", 4);
        let mut opened = RelayedDatagrams::default();
        opened.take(&received(&wrapped, wrapped.len()), four());
        opened.take(&Received { ecn: 3, ..received(&wrapped, wrapped.len()) }, four());
        let ecn: Vec<u8> = opened.runs(four()).map(|run| run.ecn).collect();
        assert_eq!(ecn, [1, 3]);
    }
}
