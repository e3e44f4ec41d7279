//! TCP connections of a capture (pcap, pcapng): the bytes that each end sent, and their packets.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_stego::RecordedPacket;
use etherparse::{
    EtherType, IpNumber, LaxNetSlice, LaxSlicedPacket, TcpHeader, TcpSlice, TransportSlice,
};
use pcap_file::pcap::{PcapReader, RawPcapPacket};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};

/// First four bytes of a pcapng file.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
];
/// Maximum number of TCP connections that are read from a capture.
const FLOWS: usize = 10_000;

/// One TCP connection of a capture.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Packets of the connection that carry new data (no retransmissions), in order of time.
    pub(super) passed: Vec<RecordedPacket>,
    /// The byte streams that the client (index 0) and the server (index 1) sent, up to the first
    /// gap in the capture.
    pub(super) streams: [Vec<u8>; 2],
    /// The growth of each end's byte stream: pairs of a length in bytes and the time at which the
    /// stream reached this length. Index 0 is the client, 1 the server.
    pub(super) when: [Vec<(usize, Duration)>; 2],
    /// Next expected TCP sequence number of each end; `None` before its first segment. Index 0 is
    /// the client, 1 the server.
    next: [Option<u32>; 2],
    gap: [bool; 2],
    /// Out-of-order data of each end, by its offset in that end's byte stream.
    early: [BTreeMap<usize, Vec<u8>>; 2],
}

/// Returns whether `bytes` begin like a pcap or pcapng file.
pub(super) fn is_capture(bytes: &[u8]) -> bool {
    let first = bytes.first_chunk::<4>();
    first.is_some_and(|first| *first == PCAPNG || PCAP.contains(first))
}

/// TCP connections of a capture file, and information about the parts that could not be used.
#[derive(Debug, Default)]
pub(super) struct Capture {
    /// TCP connections of the capture, in the order in which they began.
    pub(super) flows: Vec<Flow>,
    /// Number of packets that contain no TCP segment.
    pub(super) skipped: usize,
    /// True if the capture file ends in the middle of a packet. That packet is ignored.
    pub(super) cut: bool,
    /// True if the capture contains only a part of some payload, as with a short snap length
    /// (`tcpdump -s 96`).
    pub(super) snapped: bool,
}

/// Reads the TCP connections of the capture `source`. Packets are sorted by time, because a
/// capture of several interfaces may have another order. Only TCP segments are kept in memory.
///
/// # Errors
/// `source` is no capture, is damaged, or has no complete packet.
pub(super) fn read(source: impl Read) -> Result<Capture, String> {
    let mut held = Segments::default();
    let cut = packets(source, &mut |link, at, bytes| held.take(link, at, bytes))?;
    held.segments.sort_by_key(|(at, _)| *at);
    let is_part = |segment: &Segment| segment.payload.len() < segment.length;
    let snapped = held.segments.iter().any(|(_, segment)| is_part(segment));
    let mut all = Flows::default();
    held.segments.into_iter().for_each(|(at, segment)| all.take(at, &segment));
    Ok(Capture { flows: all.flows, skipped: held.skipped, cut, snapped })
}

/// TCP segments of a capture with their times, in the order in which the capture file contains
/// them.
#[derive(Default)]
struct Segments {
    segments: Vec<(Duration, Segment)>,
    skipped: usize,
    /// Pairs of endpoints between which there was at least one TCP segment.
    ends: BTreeSet<[SocketAddr; 2]>,
    begun: usize,
}

impl Segments {
    fn take(&mut self, link: DataLink, at: Duration, bytes: &[u8]) -> Result<(), String> {
        let Some(segment) = Segment::read(link, bytes) else {
            self.skipped += 1;
            return Ok(());
        };
        let is_new = self.ends.insert(segment.ends());
        self.begun += usize::from(is_new || segment.begins());
        if self.begun > FLOWS {
            return Err(
                "the capture has more than 10,000 connections: use a shorter one".to_owned()
            );
        }
        self.segments.push((at, segment));
        Ok(())
    }
}

/// TCP connections, built from the packets that were processed so far.
#[derive(Default)]
struct Flows {
    /// For each pair of endpoints, the latest TCP connection between them: its index in `flows`,
    /// and the client's address.
    places: BTreeMap<[SocketAddr; 2], (usize, SocketAddr)>,
    flows: Vec<Flow>,
}

impl Flows {
    fn take(&mut self, at: Duration, segment: &Segment) {
        let (key, begins) = (segment.ends(), segment.begins());
        if begins || !self.places.contains_key(&key) {
            // If the beginning is missing, the end with the lower port is the server.
            let up = begins || !segment.syn && segment.from.port() > segment.to.port();
            let client = if up { segment.from } else { segment.to };
            self.places.insert(key, (self.flows.len(), client));
            self.flows.push(Flow::default());
        }
        if let Some(&(place, client)) = self.places.get(&key) {
            self.flows[place].take(usize::from(segment.from != client), at, segment);
        }
    }
}

/// Callback for a packet: its link type, its time and its bytes.
type Take<'a> = dyn FnMut(DataLink, Duration, &[u8]) -> Result<(), String> + 'a;

/// Calls `each` for every packet of a capture. Returns true if the last packet of the capture is
/// incomplete; `each` is not called for that packet.
///
/// # Errors
/// `source` is no capture, is damaged, or has no complete packet.
fn packets(mut source: impl Read, each: &mut Take<'_>) -> Result<bool, String> {
    let mut first = Vec::new();
    source.by_ref().take(4).read_to_end(&mut first).map_err(|error| error.to_string())?;
    if !is_capture(&first) {
        return Err("the file is not a capture (pcap or pcapng)".to_owned());
    }
    let (source, mut whole) = ((&first[..]).chain(source), 0_usize);
    let mut count = |link, at, bytes: &[u8]| {
        whole += 1;
        each(link, at, bytes)
    };
    let read = match first == PCAPNG {
        true => packets_of_pcapng(source, &mut count),
        false => packets_of_pcap(source, &mut count),
    };
    match read {
        Ok(()) => Ok(false),
        Err(Stop::Capture(error)) if whole > 0 && ends_early(&error) => Ok(true),
        Err(Stop::Capture(error)) => Err(format!("the capture is cut or damaged: {error}")),
        Err(Stop::Content(why)) => Err(why),
    }
}

/// Reason why reading a capture stops before its end.
enum Stop {
    Capture(PcapError),
    Content(String),
}

impl From<PcapError> for Stop {
    fn from(error: PcapError) -> Stop {
        Stop::Capture(error)
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Stop {
        Stop::Content(why)
    }
}

/// Returns whether `error` means that the capture file ended too early.
fn ends_early(error: &PcapError) -> bool {
    match error {
        PcapError::IncompleteBuffer => true,
        PcapError::IoError(error) => error.kind() == io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}

/// Calls `each` for every packet of a pcap file. Uses raw packets, because the reader's own check
/// would refuse packets that were cut to the snap length (`tcpdump -s`).
fn packets_of_pcap(source: impl Read, each: &mut Take<'_>) -> Result<(), Stop> {
    let mut reader = PcapReader::new(source)?;
    let header = reader.header();
    let tick = match header.ts_resolution {
        TsResolution::MicroSecond => 1_000,
        TsResolution::NanoSecond => 1,
    };
    while let Some(packet) = reader.next_raw_packet() {
        let RawPcapPacket { ts_sec, ts_frac, data, .. } = packet?;
        let nanos = u64::from(ts_sec) * 1_000_000_000 + u64::from(ts_frac) * tick;
        each(header.datalink, Duration::from_nanos(nanos), &data)?;
    }
    Ok(())
}

fn packets_of_pcapng(source: impl Read, each: &mut Take<'_>) -> Result<(), Stop> {
    let mut reader = PcapNgReader::new(source)?;
    let mut interfaces: Vec<Interface> = Vec::new();
    let found = |interfaces: &[Interface], number: usize| {
        let interface = interfaces.get(number).cloned();
        interface.ok_or_else(|| "it has a packet of an undeclared interface".to_owned())
    };
    while let Some(block) = reader.next_block() {
        match block? {
            Block::SectionHeader(_) => interfaces.clear(),
            Block::InterfaceDescription(about) => {
                interfaces.push(Interface::of(&about));
            }
            Block::EnhancedPacket(packet) => {
                let from = found(&interfaces, packet.interface_id as usize)?;
                each(from.link, from.time(packet.timestamp.as_nanos()), &packet.data)?;
            }
            Block::Packet(packet) => {
                let from = found(&interfaces, usize::from(packet.interface_id))?;
                each(from.link, from.time(u128::from(packet.timestamp)), &packet.data)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Properties of a network interface in a pcapng section.
#[derive(Clone)]
struct Interface {
    link: DataLink,
    /// Unit of the packets' timestamps, as in pcapng's option `if_tsresol`.
    units: u8,
    /// Seconds to add to the packets' timestamps, from pcapng's option `if_tsoffset`.
    offset: u64,
}

impl Interface {
    fn of(about: &InterfaceDescriptionBlock<'_>) -> Interface {
        let mut interface = Interface { link: about.linktype, units: 6, offset: 0 };
        for option in &about.options {
            match option {
                InterfaceDescriptionOption::IfTsResol(units) => interface.units = *units,
                InterfaceDescriptionOption::IfTsOffset(offset) => interface.offset = *offset,
                _ => {}
            }
        }
        interface
    }

    fn time(&self, count: u128) -> Duration {
        in_units(count, self.units).saturating_add(Duration::from_secs(self.offset))
    }
}

/// Converts a timestamp of `count` units into a duration. `units` is encoded as in pcapng's
/// `if_tsresol`: the exponent of a negative power of ten, or of two if the highest bit is set.
fn in_units(count: u128, units: u8) -> Duration {
    let power = u32::from(units & 0x7f);
    let base: u128 = if units & 0x80 == 0 { 10 } else { 2 };
    let second = base.checked_pow(power).unwrap_or(u128::MAX);
    let nanos = count.saturating_mul(1_000_000_000) / second;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A TCP segment of a capture.
struct Segment {
    from: SocketAddr,
    to: SocketAddr,
    sequence: u32,
    syn: bool,
    ack: bool,
    /// Length of the payload on the wire in bytes. `payload` is shorter if the capture contains
    /// only the beginning of the packet.
    length: usize,
    payload: Vec<u8>,
}

impl Segment {
    /// Returns the segment's two endpoints in ascending order.
    fn ends(&self) -> [SocketAddr; 2] {
        let mut ends = [self.from, self.to];
        ends.sort_unstable();
        ends
    }

    /// Returns whether the segment opens a connection: SYN without ACK.
    fn begins(&self) -> bool {
        self.syn && !self.ack
    }

    fn read(link: DataLink, bytes: &[u8]) -> Option<Segment> {
        let packet = match link {
            DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).ok()?,
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => {
                LaxSlicedPacket::from_ip(bytes).ok()?
            }
            DataLink::NULL | DataLink::LOOP => LaxSlicedPacket::from_ip(bytes.get(4..)?).ok()?,
            DataLink::LINUX_SLL => {
                let kind = EtherType(u16::from_be_bytes(*bytes.get(14..)?.first_chunk()?));
                LaxSlicedPacket::from_ether_type(kind, bytes.get(16..)?)
            }
            // The format of tcpdump on all interfaces since version 4.99.
            DataLink::LINUX_SLL2 => {
                let kind = EtherType(u16::from_be_bytes(*bytes.first_chunk()?));
                LaxSlicedPacket::from_ether_type(kind, bytes.get(20..)?)
            }
            _ => return None,
        };
        // A short snap length may cut off a header's options. The parser refuses a header with
        // missing options, so zeros replace the options, which are not used.
        let mut padded = Vec::new();
        let tcp = match packet.transport {
            Some(TransportSlice::Tcp(tcp)) => tcp,
            Some(_) => return None,
            None => {
                padded.extend_from_slice(cut_header(packet.net.as_ref()?)?);
                padded.resize(usize::from(padded[12] >> 4) * 4, 0);
                TcpSlice::from_slice(&padded).ok()?
            }
        };
        let (ends, carried): ([IpAddr; 2], usize) = match packet.net? {
            LaxNetSlice::Ipv4(four) => {
                let head = four.header();
                let head_length = usize::from(head.ihl()) * 4;
                let ends = [head.source_addr().into(), head.destination_addr().into()];
                (ends, usize::from(head.total_len()).saturating_sub(head_length))
            }
            LaxNetSlice::Ipv6(six) => {
                let head = six.header();
                let ends = [head.source_addr().into(), head.destination_addr().into()];
                (ends, usize::from(head.payload_length()))
            }
            LaxNetSlice::Arp(_) => return None,
        };
        let length = carried.saturating_sub(usize::from(tcp.data_offset()) * 4);
        let payload = tcp.payload();
        Some(Segment {
            from: (ends[0], tcp.source_port()).into(),
            to: (ends[1], tcp.destination_port()).into(),
            sequence: tcp.sequence_number(),
            syn: tcp.syn(),
            ack: tcp.ack(),
            length: length.max(payload.len()),
            payload: payload.to_vec(),
        })
    }
}

/// Returns a TCP header whose fixed part is complete, but whose options are cut off. Returns
/// `None` if `packet` has no such header.
fn cut_header<'b>(packet: &LaxNetSlice<'b>) -> Option<&'b [u8]> {
    let carried = packet.ip_payload_ref()?;
    let is_tcp = carried.ip_number == IpNumber::TCP && !carried.fragmented;
    let header = usize::from(carried.payload.get(12)? >> 4) * 4;
    let is_cut = (TcpHeader::MIN_LEN..header).contains(&carried.payload.len());
    (is_tcp && is_cut).then_some(carried.payload)
}

impl Flow {
    /// Processes a segment that was captured at time `at`. `way` is the end that sent the segment:
    /// 0 for the client, 1 for the server.
    fn take(&mut self, way: usize, at: Duration, segment: &Segment) {
        let first = segment.sequence.wrapping_add(u32::from(segment.syn));
        let next = *self.next[way].get_or_insert(first);
        if segment.length == 0 {
            return;
        }
        let ends = first.wrapping_add(segment.length as u32);
        // Sequence numbers wrap around: a difference of 2^31 or more counts as an earlier number.
        let new = ends.wrapping_sub(next) as i32;
        if new <= 0 {
            return;
        }
        let fresh = segment.length.min(new as usize);
        // A segment that was captured only in part leaves a gap.
        self.gap[way] |= segment.payload.len() < segment.length;
        if self.gap[way] {
            self.next[way] = Some(ends);
        } else {
            // Without a gap, `next` is the sequence number of the byte after the last one in
            // `streams`.
            let place = self.streams[way].len() + (new as usize - fresh);
            let part = segment.payload[segment.length - fresh..].to_vec();
            if self.early[way].insert(place, part).is_some() {
                return;
            }
            self.put(way, at);
        }
        self.passed.push((way == 0, fresh, at));
    }

    /// Moves out-of-order data from `early` to the end of the byte stream, until the next gap.
    /// `at` is the capture time of the present segment. `way` selects the stream by its sender: 0
    /// for the client, 1 for the server.
    fn put(&mut self, way: usize, at: Duration) {
        while let Some(first) = self.early[way].first_entry() {
            let Some(known) = self.streams[way].len().checked_sub(*first.key()) else { return };
            let bytes = first.remove();
            let fresh = bytes.get(known..).unwrap_or_default();
            self.streams[way].extend_from_slice(fresh);
            let next = self.next[way].map(|next| next.wrapping_add(fresh.len() as u32));
            self.next[way] = next;
            self.when[way].push((self.streams[way].len(), at));
        }
    }

    /// Returns the time at which the byte at offset `place` of a byte stream was captured, with
    /// all bytes before it. `way` selects the stream by its sender: 0 for the client, 1 for the
    /// server.
    pub(super) fn at(&self, way: usize, place: usize) -> Duration {
        let when = &self.when[way];
        let found = when.partition_point(|(bytes, _)| *bytes <= place);
        when.get(found).or(when.last()).map_or(Duration::ZERO, |(_, at)| *at)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

    /// Returns a capture with TCP segments from and to client port 40000. `segments` has for each
    /// segment: the time in milliseconds, whether the client sends it, the sequence number, and
    /// the payload.
    pub(in super::super) fn capture(segments: &[(u64, bool, u32, &[u8])]) -> Vec<u8> {
        capture_at(40_000, segments)
    }

    /// Returns a capture as [`capture`] does, with the client port `port`.
    pub(in super::super) fn capture_at(port: u16, segments: &[(u64, bool, u32, &[u8])]) -> Vec<u8> {
        capture_of((DataLink::RAW, b""), port, segments)
    }

    /// Returns a capture as [`capture_at`] does, with the link type `datalink`. Each packet begins
    /// with the bytes `front`, before its IP header.
    fn capture_of(
        (datalink, front): (DataLink, &[u8]),
        port: u16,
        segments: &[(u64, bool, u32, &[u8])],
    ) -> Vec<u8> {
        let header = PcapHeader { datalink, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        for &(millis, up, sequence, payload) in segments {
            let (from, to) = if up { (1, 2) } else { (2, 1) };
            let (near, far) = if up { (port, 80) } else { (80, port) };
            let builder = PacketBuilder::ipv4([192, 0, 2, from], [192, 0, 2, to], 64);
            let mut bytes = front.to_vec();
            builder.tcp(near, far, sequence, 9_000).write(&mut bytes, payload).unwrap();
            let packet = PcapPacket::new(Duration::from_millis(millis), bytes.len() as u32, &bytes);
            writer.write_packet(&packet).unwrap();
        }
        writer.into_writer()
    }

    #[test]
    fn segments_are_put_in_order_and_repeated_ones_are_none() {
        let file = capture(&[
            (1, true, u32::MAX - 1, b"ask me"),
            (5, false, 10, b"two"),
            (6, false, 7, b"one"),
            (7, false, 7, b"one"),
            (8, false, 18, b"four"),
            (8, false, 18, b"four"),
            (9, false, 13, b"three"),
            (9, false, 11, b"wothree!"),
        ]);
        let Capture { flows, skipped, .. } = read(&*file).unwrap();
        assert_eq!((flows.len(), skipped), (1, 0));
        // If a flow's SYN is not in the capture, the first captured segment counts as the flow's
        // beginning.
        assert_eq!(
            (&*flows[0].streams[0], &*flows[0].streams[1]),
            (&b"ask me"[..], &b"twothreefour"[..])
        );
        let ms = Duration::from_millis;
        let passed = [(true, 6, ms(1)), (false, 3, ms(5)), (false, 4, ms(8)), (false, 5, ms(9))];
        assert_eq!(flows[0].passed, passed);
        assert_eq!(
            (flows[0].at(1, 0), flows[0].at(1, 4), flows[0].at(1, 99)),
            (ms(5), ms(9), ms(9))
        );
    }

    #[test]
    fn links_of_every_usual_kind_are_read() {
        let ethernet = [[0; 12].as_slice(), &[8, 0]].concat();
        let cooked = [[0; 14].as_slice(), &[8, 0]].concat();
        let cooked_2 = [[8, 0].as_slice(), &[0; 18]].concat();
        for (link, front) in [
            (DataLink::ETHERNET, &ethernet[..]),
            (DataLink::NULL, &[2, 0, 0, 0]),
            (DataLink::LINUX_SLL, &cooked),
            (DataLink::LINUX_SLL2, &cooked_2),
            (DataLink::RAW, &[]),
        ] {
            let file = capture_of(
                (link, front),
                40_000,
                &[(1, true, 1, b"ask"), (2, false, 1, b"answer")],
            );
            let Capture { flows, skipped, .. } = read(&*file).unwrap();
            assert_eq!((flows.len(), skipped), (1, 0), "{link:?}");
            assert_eq!(flows[0].streams, [b"ask".to_vec(), b"answer".to_vec()]);
        }
        let radio = capture_of((DataLink::IEEE802_11, &[]), 40_000, &[(1, true, 1, b"ask")]);
        let Capture { flows, skipped, .. } = read(&*radio).unwrap();
        assert_eq!((flows.len(), skipped), (0, 1));
    }

    #[test]
    fn of_a_capture_that_is_cut_what_is_whole_is_read() {
        let file = capture(&[(1, true, 1, b"ask"), (2, false, 1, b"answer")]);
        let first = 24 + 16 + 43;
        assert!(is_capture(&file) && !is_capture(b"{}"));
        for cut in 0..file.len() {
            match read(&file[..cut]) {
                // The capture may end between two packets.
                Ok(found) => {
                    assert!(cut == 24 || cut >= first, "{cut}");
                    assert_eq!(found.cut, cut > first, "{cut}");
                    assert_eq!(found.flows.len(), usize::from(cut >= first), "{cut}");
                }
                Err(why) => assert!(!why.contains('\n') && why.contains("capture"), "{why}"),
            }
        }
        let none = read(&b"\x0a\x0d\x0d\x0anothing of the kind"[..]).unwrap_err();
        assert!(none.contains("cut or damaged"), "{none}");
    }

    #[test]
    fn a_capture_of_headers_alone_has_the_lengths_of_its_segments() {
        let mut file = capture(&[]);
        // As with `tcpdump -s 96`, the file header contains the snap length, and each packet
        // header the original length.
        file[16..20].copy_from_slice(&96_u32.to_be_bytes());
        for packet in packets_in(&capture(&[(1, true, 1, &[7; 500]), (2, false, 1, &[7; 9])])) {
            let kept = packet.len().min(96 + 16);
            file.extend_from_slice(&packet[..8]);
            file.extend_from_slice(&(kept as u32 - 16).to_be_bytes());
            file.extend_from_slice(&packet[12..kept]);
        }
        let found = read(&*file).unwrap();
        let ms = Duration::from_millis;
        assert_eq!(found.flows[0].passed, [(true, 500, ms(1)), (false, 9, ms(2))]);
        assert!(!found.cut);
    }

    #[test]
    fn options_that_are_cut_are_not_needed() {
        let ms = Duration::from_millis;
        // The packets have an IPv4 header of 20 bytes, and a TCP header of 32 bytes, as usual with
        // timestamps.
        let with_options = |sequence: u32, from: [u8; 4], to: [u8; 4], ports: (u16, u16)| {
            let stamps = etherparse::TcpOptionElement::Timestamp(1, 2);
            let mut bytes = Vec::new();
            PacketBuilder::ipv4(from, to, 64)
                .tcp(ports.0, ports.1, sequence, 9_000)
                .options(&[stamps])
                .unwrap()
                .write(&mut bytes, &[7; 500])
                .unwrap();
            bytes
        };
        let near = with_options(1, [192, 0, 2, 1], [192, 0, 2, 2], (40_000, 80));
        let far = with_options(1, [192, 0, 2, 2], [192, 0, 2, 1], (80, 40_000));
        // The snap lengths range from the end of the fixed TCP header to the end of the options.
        for kept in 40..=52 {
            let header = PcapHeader { datalink: DataLink::RAW, ..PcapHeader::default() };
            let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
            for (at, bytes) in [(1, &near), (2, &far)] {
                let packet = PcapPacket::new(ms(at), bytes.len() as u32, &bytes[..kept]);
                writer.write_packet(&packet).unwrap();
            }
            let found = read(&*writer.into_writer()).unwrap();
            assert_eq!(found.flows[0].passed, [(true, 500, ms(1)), (false, 500, ms(2))], "{kept}");
            assert!(found.snapped && found.skipped == 0, "{kept}");
        }
        let mut held = Segments::default();
        held.take(DataLink::RAW, ms(1), &near[..39]).unwrap();
        assert_eq!(held.skipped, 1, "the fixed header is cut");
    }

    /// The packets of a capture, with their headers.
    fn packets_in(file: &[u8]) -> Vec<Vec<u8>> {
        let (mut rest, mut all) = (&file[24..], Vec::new());
        while let Some(kept) = rest.get(8..12) {
            let length = 16 + u32::from_be_bytes(kept.try_into().unwrap()) as usize;
            all.push(rest[..length].to_vec());
            rest = &rest[length..];
        }
        all
    }

    #[test]
    fn packets_are_read_by_time_in_whatever_order_they_are_written() {
        let file =
            capture(&[(3, false, 1, b"answer"), (1, true, 1, b"ask"), (2, true, 4, b"more")]);
        let found = read(&*file).unwrap();
        let ms = Duration::from_millis;
        assert_eq!(found.flows[0].passed, [(true, 3, ms(1)), (true, 4, ms(2)), (false, 6, ms(3))]);
    }

    #[test]
    fn units_of_time_are_those_of_the_interface() {
        assert_eq!(in_units(1_500_000, 6), Duration::from_millis(1_500));
        assert_eq!(in_units(1_500, 9), Duration::from_nanos(1_500));
        assert_eq!(in_units(3 << 9, 0x8a), Duration::from_millis(1_500));
        assert_eq!(in_units(9, 0x7f), Duration::ZERO);
    }

    /// An endless capture, generated while it is read. Each packet begins a new connection. `read`
    /// is the number of bytes that were read so far.
    struct Endless {
        made: Vec<u8>,
        connections: u32,
        read: usize,
    }

    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.made.is_empty() {
                let file = capture(&[(1, true, self.connections, b"ask")]);
                // The file header occurs once, and each packet is from a different client.
                let mut packet = file[if self.connections == 0 { 0 } else { 24 }..].to_vec();
                let address = packet.len() - 43 + 12;
                packet[address..][..4].copy_from_slice(&self.connections.to_be_bytes());
                (self.made, self.connections) = (packet, self.connections + 1);
            }
            let count = into.len().min(self.made.len());
            into[..count].copy_from_slice(&self.made[..count]);
            self.made.drain(..count);
            self.read += count;
            Ok(count)
        }
    }

    #[test]
    fn a_capture_is_not_held_but_taken_packet_by_packet() {
        let mut endless = Endless { made: Vec::new(), connections: 0, read: 0 };
        let why = read(&mut endless).unwrap_err();
        assert_eq!(why, "the capture has more than 10,000 connections: use a shorter one");
        // Each packet has 59 bytes. The reader may also read some data ahead.
        assert!(endless.read < 10_001 * 59 + (16 << 20), "{} bytes", endless.read);
    }
}
