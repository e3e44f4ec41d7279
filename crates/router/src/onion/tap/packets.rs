//! The packet tap that uses a packet socket. The socket receives all TCP segments that arrive in
//! its network namespace. The tap selects the segments of our connections by their addresses.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use anabranch_os::socket_option;
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::Segment;
use super::syn::Cookie;

/// `ETH_P_ALL`: all protocols, in network byte order.
const ALL: i32 = (3_u16).to_be() as i32;
/// Socket option level of packet sockets, from `linux/if_packet.h`.
const SOL_PACKET: i32 = 263;
/// Socket option that skips outgoing packets, from `linux/if_packet.h`.
const PACKET_IGNORE_OUTGOING: i32 = 23;
/// Size in bytes to request for the packet socket's receive buffer.
const WAITING: usize = 4 << 20;
/// Maximum size in bytes of a packet. The kernel may merge segments into packets of this size.
const LONGEST: usize = 64 << 10;
/// Protocol number of TCP in IP headers.
const TCP: u8 = 6;
/// SYN flag in the TCP header (RFC 9293, section 3.1).
const SYN: u8 = 2;

/// A packet socket, and the connections whose TCP segments are selected.
#[derive(Debug)]
pub(super) struct Packets {
    socket: Socket,
    /// Identifiers of the watched connections. The key is our address, and then the address of the
    /// other end.
    watched: BTreeMap<[SocketAddr; 2], Cookie>,
    known: BTreeMap<Cookie, Connection>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    addresses: [SocketAddr; 2],
    /// TCP sequence number of the next byte to read from the stream; `None` before segments are to
    /// be delivered.
    expected: Option<u32>,
}

/// A TCP segment that was parsed from an IP packet.
#[derive(Debug, PartialEq, Eq)]
struct TcpSegment<'a> {
    /// Destination and source address of the packet, with ports.
    addresses: [SocketAddr; 2],
    number: u32,
    is_syn: bool,
    bytes: &'a [u8],
}

impl Packets {
    /// Opens a packet socket for all TCP segments.
    ///
    /// # Errors
    /// A system call fails: CAP_NET_RAW is missing.
    pub(super) fn open() -> io::Result<Packets> {
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(ALL)))?;
        socket.set_nonblocking(true)?;
        socket.attach_filter(&only_tcp())?;
        let option = [SOL_PACKET, PACKET_IGNORE_OUTGOING];
        socket_option::set(socket.as_fd(), option, &1_i32.to_ne_bytes())?;
        // The kernel may reduce this size to the system's limit.
        let _ = socket.set_recv_buffer_size(WAITING);
        let (watched, known) = (BTreeMap::new(), BTreeMap::new());
        Ok(Packets { socket, watched, known, buffer: vec![0; LONGEST] })
    }

    /// Starts to watch the connection `cookie`. `addresses` are our address and the other end's.
    pub(super) fn watch(&mut self, cookie: Cookie, addresses: [SocketAddr; 2]) {
        let addresses = addresses.map(plain);
        self.watched.insert(addresses, cookie);
        self.known.insert(cookie, Connection { addresses, expected: None });
    }

    /// Records that the stream of `cookie` was read up to the TCP sequence number `number`.
    /// Returns false if the connection is not watched.
    pub(super) fn expect(&mut self, cookie: Cookie, number: u32) -> bool {
        let known = self.known.get_mut(&cookie);
        known.map(|watched| watched.expected = Some(number)).is_some()
    }

    /// Stops watching the connection `cookie`.
    pub(super) fn end(&mut self, cookie: Cookie) {
        if let Some(known) = self.known.remove(&cookie)
            && self.watched.get(&known.addresses) == Some(&cookie)
        {
            self.watched.remove(&known.addresses);
        }
    }

    /// Receives all waiting packets. Calls `show` for the out-of-order segments and SYNs of
    /// watched connections.
    pub(super) fn drain(&mut self, show: &mut dyn FnMut(Segment<'_>)) {
        let Packets { socket, watched, known, buffer } = self;
        while let Ok((count, _)) = recv(&*socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            let packet = parsed(&buffer[..count]);
            let ours = packet.and_then(|packet| {
                let cookie = *watched.get(&packet.addresses)?;
                Some((cookie, known.get(&cookie)?.expected, packet))
            });
            let Some((cookie, expected, TcpSegment { number, is_syn, bytes, .. })) = ours else {
                continue;
            };
            let is_early =
                expected.is_some_and(|expected| number.wrapping_sub(expected) as i32 > 0);
            if is_syn {
                show(Segment { cookie, number, bytes: None });
            } else if is_early && !bytes.is_empty() {
                show(Segment { cookie, number, bytes: Some(bytes) });
            }
        }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Converts an IPv4-mapped IPv6 address, which a dual-stack socket reports, to the IPv4 address
/// that packets contain. Other addresses are not changed.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Parses an IP packet with a TCP segment; the packet may be truncated. Returns `None` for other
/// protocols and for fragments.
fn parsed(packet: &[u8]) -> Option<TcpSegment<'_>> {
    let (to, from, segment) = match packet.first()? >> 4 {
        4 => v4(packet)?,
        6 => v6(packet)?,
        _ => return None,
    };
    let head: &[u8; 20] = segment.first_chunk()?;
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    Some(TcpSegment {
        addresses: [SocketAddr::new(to, port(2)), SocketAddr::new(from, port(0))],
        number: u32::from_be_bytes(*head[4..].first_chunk()?),
        is_syn: head[13] & SYN != 0,
        bytes: segment.get(usize::from(head[12] >> 4) * 4..)?,
    })
}

/// Parts of a parsed IP packet: its destination, its source, and the bytes of its TCP segment.
type Layers<'a> = (IpAddr, IpAddr, &'a [u8]);

fn v4(packet: &[u8]) -> Option<Layers<'_>> {
    let head: &[u8; 20] = packet.first_chunk()?;
    let is_part = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
    let address = |at: usize| head[at..].first_chunk::<4>().copied().map(IpAddr::from);
    let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let segment = within(packet, usize::from(head[0] & 15) * 4, length)?;
    (head[9] == TCP && !is_part).then_some((address(16)?, address(12)?, segment))
}

fn v6(packet: &[u8]) -> Option<Layers<'_>> {
    let head: &[u8; 40] = packet.first_chunk()?;
    let address = |at: usize| head[at..].first_chunk::<16>().copied().map(IpAddr::from);
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let segment = within(packet, 40, if length == 0 { 0 } else { 40 + length })?;
    (head[6] == TCP).then_some((address(24)?, address(8)?, segment))
}

/// Returns the data between the offsets `start` and `end` of a packet, without any padding after
/// `end`. If `end` is 0, returns all data after `start`, because the kernel gives merged packets
/// above 64 KiB the length 0. Returns `None` if the packet ends before `start`.
fn within(packet: &[u8], start: usize, end: usize) -> Option<&[u8]> {
    packet.get(start..if end == 0 { packet.len() } else { end.min(packet.len()) })
}

/// Returns the socket filter that the kernel applies. It accepts IPv4 and IPv6 packets whose next
/// protocol is TCP.
fn only_tcp() -> [SockFilter; 10] {
    let byte = |at| SockFilter::new(0x30, 0, 0, at);
    let equal = |value, then, otherwise| SockFilter::new(0x15, then, otherwise, value);
    let end = |bytes| SockFilter::new(0x06, 0, 0, bytes);
    [
        byte(0),
        SockFilter::new(0x54, 0, 0, 0xf0),
        equal(0x40, 3, 0),
        equal(0x60, 0, 5),
        byte(6),
        // IPv4 has the protocol field at another offset. The comparison after it is the same.
        SockFilter::new(0x05, 0, 0, 1),
        byte(9),
        equal(TCP.into(), 0, 1),
        end(u32::MAX),
        end(0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a TCP packet with `data`, from 192.0.2.1:9001 or [2001:db8::1]:9001.
    fn packet(is_v6: bool, flags: u8, data: &[u8]) -> Vec<u8> {
        let length = (20 + data.len()) as u16;
        let mut packet = vec![0; if is_v6 { 40 } else { 20 }];
        if is_v6 {
            (packet[0], packet[6]) = (0x60, TCP);
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            packet[8..12].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
            (packet[23], packet[39]) = (1, 1);
        } else {
            (packet[0], packet[9]) = (0x45, TCP);
            packet[2..4].copy_from_slice(&(length + 20).to_be_bytes());
            packet[12..20].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        }
        packet.extend(9001_u16.to_be_bytes());
        packet.extend([0, 80, 0x01, 0x02, 0x03, 0x04, 0, 0, 0, 0, 0x50, flags]);
        packet.extend([0; 6]);
        packet.extend(data);
        packet
    }

    #[test]
    fn segments_are_read_of_both_protocols_and_padding_is_none_of_them() {
        for (is_v6, to, from) in
            [(false, "192.0.2.2:80", "192.0.2.1:9001"), (true, "[::1]:80", "[2001:db8::1]:9001")]
        {
            let mut bytes = packet(is_v6, 16, b"data");
            bytes.extend([0; 9]);
            let parsed = parsed(&bytes).unwrap();
            let addresses = [to, from].map(|address| address.parse().unwrap());
            let wanted =
                TcpSegment { addresses, number: 0x0102_0304, is_syn: false, bytes: b"data" };
            assert_eq!(parsed, wanted);
        }
        assert!(parsed(&packet(false, SYN, b"")).unwrap().is_syn);
    }

    #[test]
    fn parts_of_packets_other_protocols_and_cut_headers_are_left_alone() {
        for is_v6 in [false, true] {
            let whole = packet(is_v6, 16, b"");
            for cut in 0..whole.len() {
                assert_eq!(parsed(&whole[..cut]), None, "{cut}");
            }
            let mut odd = whole.clone();
            odd[if is_v6 { 6 } else { 9 }] = 17;
            assert_eq!(parsed(&odd), None);
        }
        let mut part = packet(false, 16, b"data");
        part[6] = 0x20;
        assert_eq!(parsed(&part), None);
        let mut odd = packet(false, 16, b"data");
        odd[0] = 0x4f;
        assert_eq!(parsed(&odd), None, "a header longer than the packet");
    }
}
