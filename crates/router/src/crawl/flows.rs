//! TCP connections of a capture (pcap, pcapng): what each end said, and the packets that carried
//! it.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_stego::Passed;
use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};

/// How a pcapng file begins; a pcap file begins with one of the others.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
];
/// Connections at most.
const FLOWS: usize = 10_000;

/// One connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Packets that brought something new, in the order in which they passed.
    pub(super) passed: Vec<Passed>,
    /// What the client and the server said, as far as it was captured without a gap.
    pub(super) said: [Vec<u8>; 2],
    /// When what each end said passed: how much had come, and when.
    pub(super) when: [Vec<(usize, Duration)>; 2],
    /// The next sequence number of each end, once one is known; whether bytes are missing.
    next: [Option<u32>; 2],
    gap: [bool; 2],
    /// What came too soon, by its place in what is said.
    early: [BTreeMap<usize, Vec<u8>>; 2],
}

/// Whether a file begins as a capture does.
pub(super) fn is_capture(bytes: &[u8]) -> bool {
    let first = bytes.first_chunk::<4>();
    first.is_some_and(|first| *first == PCAPNG || PCAP.contains(first))
}

/// The connections of a capture, in the order in which they began, and how many packets belong to
/// none.
///
/// Packets are taken one by one as they are read: no more is kept than what the ends said.
///
/// # Errors
/// It is no capture, or cut.
pub(super) fn read(source: impl Read) -> Result<(Vec<Flow>, usize), String> {
    let mut all = Flows::default();
    packets(source, &mut |link, at, bytes| all.take(link, at, bytes))?;
    Ok((all.flows, all.skipped))
}

/// Connections, as far as their packets were read.
#[derive(Default)]
struct Flows {
    /// By its two ends: which connection is the last between them, and its client.
    places: BTreeMap<[SocketAddr; 2], (usize, SocketAddr)>,
    flows: Vec<Flow>,
    skipped: usize,
}

impl Flows {
    fn take(&mut self, link: DataLink, at: Duration, bytes: &[u8]) -> Result<(), String> {
        let Some(segment) = Segment::read(link, bytes) else {
            self.skipped += 1;
            return Ok(());
        };
        let mut key = [segment.from, segment.to];
        key.sort_unstable();
        let begins = segment.syn && !segment.ack;
        if begins || !self.places.contains_key(&key) {
            if self.flows.len() >= FLOWS {
                return Err("it has more than 10,000 connections".to_owned());
            }
            // Without its beginning the server is the end with the lower port.
            let up = begins || !segment.syn && segment.from.port() > segment.to.port();
            let client = if up { segment.from } else { segment.to };
            self.places.insert(key, (self.flows.len(), client));
            self.flows.push(Flow::default());
        }
        if let Some(&(place, client)) = self.places.get(&key) {
            self.flows[place].take(usize::from(segment.from != client), at, &segment);
        }
        Ok(())
    }
}

/// Takes a packet: its link's type, when it passed, and its bytes.
type Take<'a> = dyn FnMut(DataLink, Duration, &[u8]) -> Result<(), String> + 'a;

/// Gives each packet of a capture to `each`.
fn packets(mut source: impl Read, each: &mut Take<'_>) -> Result<(), String> {
    let cut = |error: pcap_file::PcapError| format!("the capture is cut or damaged: {error}");
    let mut first = Vec::new();
    source.by_ref().take(4).read_to_end(&mut first).map_err(|error| error.to_string())?;
    if !is_capture(&first) {
        return Err("it is not a capture (pcap or pcapng)".to_owned());
    }
    let source = (&first[..]).chain(source);
    if first != PCAPNG {
        let mut reader = PcapReader::new(source).map_err(cut)?;
        let link = reader.header().datalink;
        while let Some(packet) = reader.next_packet() {
            let packet = packet.map_err(cut)?;
            each(link, packet.timestamp, &packet.data)?;
        }
        return Ok(());
    }
    let mut reader = PcapNgReader::new(source).map_err(cut)?;
    let mut links: Vec<(DataLink, u8)> = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.map_err(cut)? {
            Block::SectionHeader(_) => links.clear(),
            Block::InterfaceDescription(about) => {
                let units = about.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfTsResol(units) => Some(*units),
                    _ => None,
                });
                links.push((about.linktype, units.unwrap_or(6)));
            }
            Block::EnhancedPacket(packet) => {
                let link = links.get(packet.interface_id as usize);
                let (link, units) = link.ok_or("a packet of no interface")?;
                let at = in_units(packet.timestamp.as_nanos(), *units);
                each(*link, at, &packet.data)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A time in units of an interface (`if_tsresol`): ten, or two, to the minus so many.
fn in_units(count: u128, units: u8) -> Duration {
    let power = u32::from(units & 0x7f);
    let base: u128 = if units & 0x80 == 0 { 10 } else { 2 };
    let second = base.checked_pow(power).unwrap_or(u128::MAX);
    let nanos = count.saturating_mul(1_000_000_000) / second;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A segment of TCP.
struct Segment<'a> {
    from: SocketAddr,
    to: SocketAddr,
    sequence: u32,
    syn: bool,
    ack: bool,
    /// How long its payload was, and what was captured of it.
    length: usize,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    fn read(link: DataLink, bytes: &'a [u8]) -> Option<Segment<'a>> {
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
            // What tcpdump writes of all interfaces since 4.99.
            DataLink::LINUX_SLL2 => {
                let kind = EtherType(u16::from_be_bytes(*bytes.first_chunk()?));
                LaxSlicedPacket::from_ether_type(kind, bytes.get(20..)?)
            }
            _ => return None,
        };
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else { return None };
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
            payload,
        })
    }
}

impl Flow {
    /// Takes a segment of the client's (0) or the server's (1).
    fn take(&mut self, way: usize, at: Duration, segment: &Segment<'_>) {
        let first = segment.sequence.wrapping_add(u32::from(segment.syn));
        let next = *self.next[way].get_or_insert(first);
        if segment.length == 0 {
            return;
        }
        let ends = first.wrapping_add(segment.length as u32);
        // Sequence numbers go round: half of them are before any one.
        let new = ends.wrapping_sub(next) as i32;
        if new <= 0 {
            return;
        }
        let fresh = segment.length.min(new as usize);
        // A segment of which the capture has a part alone leaves a gap.
        self.gap[way] |= segment.payload.len() < segment.length;
        if self.gap[way] {
            self.next[way] = Some(ends);
        } else {
            // While there is no gap, `next` is the number of the byte behind what is said.
            let place = self.said[way].len() + (new as usize - fresh);
            let part = segment.payload[segment.length - fresh..].to_vec();
            if self.early[way].insert(place, part).is_some() {
                return;
            }
            self.put(way, at);
        }
        self.passed.push((way == 0, fresh, at));
    }

    /// Puts what came in order.
    fn put(&mut self, way: usize, at: Duration) {
        while let Some(first) = self.early[way].first_entry() {
            let Some(known) = self.said[way].len().checked_sub(*first.key()) else { return };
            let bytes = first.remove();
            let fresh = bytes.get(known..).unwrap_or_default();
            self.said[way].extend_from_slice(fresh);
            let next = self.next[way].map(|next| next.wrapping_add(fresh.len() as u32));
            self.next[way] = next;
            self.when[way].push((self.said[way].len(), at));
        }
    }

    /// When the byte at a place had passed.
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

    /// A capture of segments: milliseconds, whether the client sends, sequence number, payload.
    pub(in super::super) fn capture(segments: &[(u64, bool, u32, &[u8])]) -> Vec<u8> {
        capture_of((DataLink::RAW, b""), segments)
    }

    /// The same of a link of this kind, whose packets begin with `front`.
    fn capture_of(
        (datalink, front): (DataLink, &[u8]),
        segments: &[(u64, bool, u32, &[u8])],
    ) -> Vec<u8> {
        let header = PcapHeader { datalink, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        for &(millis, up, sequence, payload) in segments {
            let (from, to) = if up { (1, 2) } else { (2, 1) };
            let (near, far) = if up { (40_000, 80) } else { (80, 40_000) };
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
        let (flows, skipped) = read(&*file).unwrap();
        assert_eq!((flows.len(), skipped), (1, 0));
        // What comes first of a flow that was not seen to begin is its beginning.
        assert_eq!(
            (&*flows[0].said[0], &*flows[0].said[1]),
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
            let file = capture_of((link, front), &[(1, true, 1, b"ask"), (2, false, 1, b"answer")]);
            let (flows, skipped) = read(&*file).unwrap();
            assert_eq!((flows.len(), skipped), (1, 0), "{link:?}");
            assert_eq!(flows[0].said, [b"ask".to_vec(), b"answer".to_vec()]);
        }
        let radio = capture_of((DataLink::IEEE802_11, &[]), &[(1, true, 1, b"ask")]);
        let (flows, skipped) = read(&*radio).unwrap();
        assert_eq!((flows.len(), skipped), (0, 1));
    }

    #[test]
    fn a_capture_that_is_cut_is_told_and_no_capture_too() {
        let file = capture(&[(1, true, 1, b"ask"), (2, false, 1, b"answer")]);
        assert!(is_capture(&file) && !is_capture(b"{}"));
        for cut in 0..file.len() {
            match read(&file[..cut]) {
                // It may end between two packets.
                Ok((flows, _)) => assert!(flows.len() <= 1 && cut >= 24),
                Err(why) => assert!(!why.contains('\n') && why.contains("capture"), "{why}"),
            }
        }
        let none = read(&b"\x0a\x0d\x0d\x0anothing of the kind"[..]).unwrap_err();
        assert!(none.contains("cut or damaged"), "{none}");
    }

    #[test]
    fn units_of_time_are_those_of_the_interface() {
        assert_eq!(in_units(1_500_000, 6), Duration::from_millis(1_500));
        assert_eq!(in_units(1_500, 9), Duration::from_nanos(1_500));
        assert_eq!(in_units(3 << 9, 0x8a), Duration::from_millis(1_500));
        assert_eq!(in_units(9, 0x7f), Duration::ZERO);
    }

    /// A capture of ever new connections, made as it is read, and how much of it was.
    struct Endless {
        made: Vec<u8>,
        connections: u32,
        read: usize,
    }

    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.made.is_empty() {
                let file = capture(&[(1, true, self.connections, b"ask")]);
                // The head of the file comes once; each packet is of another client.
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
        assert_eq!(why, "it has more than 10,000 connections");
        // 59 bytes a packet, and what a reader takes ahead.
        assert!(endless.read < 10_001 * 59 + (16 << 20), "{} bytes", endless.read);
    }
}
