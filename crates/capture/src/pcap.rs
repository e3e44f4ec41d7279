//! Pcapng files, one per path, with the packets that an observer of the path would have recorded.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::mem::replace;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anabranch_multipath::Time;
use anabranch_os::packet::{self, SegmentNumbers};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

use super::draft::explain;
use super::live::LiveFile;
use super::worker::{Sink, Worker};
use super::{FLUSH_INTERVAL, ObservedBatch, Tap, Transport, cut, invalid};

/// Size of the buffer at which it is passed to the writing thread: payload bytes, and batches of
/// datagrams. One of the two suffices.
const FULL: (usize, usize) = (1 << 20, 1 << 13);

/// Maximum packet length in bytes that the pcapng file declares (`snaplen`). It is larger than any
/// IP packet without jumbo payload, so packets are never cut.
const SNAPLEN: u32 = 1 << 18;

/// Value of the pcapng option `if_tsresol` for timestamps in nanoseconds: the unit is 10 to the
/// power of -9 seconds.
const NANOSECONDS: u8 = 9;

/// Value of the direction bits in `epb_flags` for a received packet.
const INBOUND: u32 = 1;
/// Value of the direction bits in `epb_flags` for a sent packet.
const OUTBOUND: u32 = 2;

/// Limits of the size and number of the capture files of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapLimits {
    /// Size in bytes after which the next file begins: `NAME_00002.pcapng` follows
    /// `NAME_00001.pcapng`. With `None`, there is one file of any size, `NAME.pcapng`.
    pub size: Option<u64>,
    /// Maximum number of files of each path. Older files are removed.
    pub files: Option<usize>,
}

impl PcapLimits {
    /// Returns the file name of the capture with the sequence number `number` (from 1) of the path
    /// `name`.
    pub fn file_name(&self, name: &str, number: u32) -> String {
        match self.size {
            Some(_) => format!("{name}_{number:05}.pcapng"),
            None => format!("{name}.pcapng"),
        }
    }

    /// Returns whether `file_name` is a possible name of a capture file of the path `name`.
    pub fn may_name(&self, name: &str, file_name: &str) -> bool {
        let Some(_) = self.size else { return file_name == self.file_name(name, 1) };
        let number = file_name.strip_prefix(name).and_then(|rest| rest.strip_prefix('_'));
        let number = number.and_then(|rest| rest.strip_suffix(".pcapng")).unwrap_or_default();
        number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit())
    }
}

/// An observer of a driver's traffic (a tap) that writes `NAME.pcapng` for each path into one
/// directory.
pub struct PcapTap {
    batch: Batch,
    start: Duration,
    paths: usize,
    /// Time at which a batch was last passed to the writing thread.
    flushed: Time,
    worker: Worker<PcapSink>,
}

impl PcapTap {
    /// Creates `folder` if it is missing, and in it a capture file for each path in `names`.
    /// `start` is the wall-clock time at time zero.
    ///
    /// # Errors
    /// `folder` cannot be created or written to, a directory has the name of a capture file, or a
    /// path's name is not a valid file name.
    pub fn create(
        folder: &Path,
        names: &[String],
        start: SystemTime,
        limits: PcapLimits,
    ) -> io::Result<PcapTap> {
        let start = start.duration_since(SystemTime::UNIX_EPOCH);
        let start = start
            .map_err(|_| invalid("this machine's clock is set to a time before 1970: set it"))?;
        if let Some(name) =
            names.iter().enumerate().find_map(|(i, n)| names[..i].contains(n).then_some(n))
        {
            return Err(invalid(format!("two paths are named {name}")));
        }
        fs::create_dir_all(folder).map_err(|error| {
            explain(error, format!("cannot make the directory {}", folder.display()))
        })?;
        let begun = names.iter().map(|name| PathFiles::begin(folder, name, limits));
        let files: io::Result<Vec<_>> = begun.collect();
        let sink = PcapSink { files: files?, packet: Vec::new() };
        let worker = Worker::start("pcap", sink)?;
        let (batch, paths, flushed) = (Batch::default(), names.len(), Time::ZERO);
        Ok(PcapTap { batch, start, paths, flushed, worker })
    }

    fn record(&self, seen: &ObservedBatch<'_>) -> Record {
        let (from, to) = match seen.outward {
            true => (seen.client_end, seen.server),
            false => (seen.server, seen.client_end),
        };
        let at = self.start + Duration::from_nanos(seen.time.nanos());
        let ObservedBatch { path, transport, outward, ecn, stride, .. } = *seen;
        let length = seen.bytes.len();
        Record { at, path, transport, outward, from, to, ecn, stride, length }
    }
}

impl Tap for PcapTap {
    fn seen(&mut self, seen: &ObservedBatch<'_>) -> io::Result<()> {
        if usize::from(seen.path) >= self.paths {
            return Err(invalid(format!(
                "a packet with the path number {} cannot be recorded, because the capture was \
                 created for fewer paths",
                seen.path
            )));
        }
        let record = self.record(seen);
        self.batch.records.push(record);
        self.batch.bytes.extend_from_slice(seen.bytes);
        if self.batch.bytes.len() < FULL.0 && self.batch.records.len() < FULL.1 {
            return Ok(());
        }
        self.worker.swap(&mut self.batch)
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        if self.batch.records.is_empty() || now.since(self.flushed) < FLUSH_INTERVAL {
            return Ok(());
        }
        self.flushed = now;
        self.worker.swap(&mut self.batch)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.worker.finish(self.batch)
    }
}

/// An [`ObservedBatch`] without its payload. The payloads of all records are in [`Batch::bytes`],
/// in the same order.
struct Record {
    at: Duration,
    path: u16,
    transport: Transport,
    outward: bool,
    from: SocketAddr,
    to: SocketAddr,
    ecn: u8,
    stride: usize,
    length: usize,
}

#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    bytes: Vec<u8>,
}

/// The part of a capture that runs on the writing thread. It builds IP packets from payloads,
/// because building them costs the forwarding thread more than copying the payload.
struct PcapSink {
    files: Vec<PathFiles>,
    packet: Vec<u8>,
}

/// The current and earlier files of one path.
struct PathFiles {
    folder: PathBuf,
    name: String,
    limits: PcapLimits,
    file: PcapNgWriter<LiveFile>,
    /// Sequence number of the current file, from 1.
    number: u32,
    /// Whether the current file has a packet.
    has_packets: bool,
    /// Whether a file of this run of the program has its final name. Before that, the files of an
    /// earlier run are kept.
    has_begun: bool,
    /// Earlier files that still exist, oldest first.
    before: VecDeque<PathBuf>,
    /// State of the path's latest TCP connection, for sequence numbers; `None` if the path had no
    /// such connection.
    connection: Option<Connection>,
}

/// A TCP connection of a path, for which segments with plausible sequence numbers are written.
struct Connection {
    client: SocketAddr,
    server: SocketAddr,
    /// Next TCP sequence numbers of the simulated segments: first the client's, then the server's.
    next: [u32; 2],
}

impl Connection {
    fn new(client: SocketAddr, server: SocketAddr) -> Connection {
        // The SYN segments have the number 0, and are not recorded.
        Connection { client, server, next: [1, 1] }
    }

    /// Returns the sequence and acknowledgement number of the next segment, which has `length`
    /// bytes of payload.
    fn advance(&mut self, outward: bool, length: usize) -> SegmentNumbers {
        let (own, other) = if outward { (0, 1) } else { (1, 0) };
        let segment = SegmentNumbers { sequence: self.next[own], acknowledged: self.next[other] };
        // Sequence numbers wrap at 2^32 (RFC 9293, section 3.4).
        self.next[own] = self.next[own].wrapping_add(length as u32);
        segment
    }
}

impl PathFiles {
    fn begin(folder: &Path, name: &str, limits: PcapLimits) -> io::Result<PathFiles> {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            return Err(invalid(format!(
                "the path name {name:?} cannot be the name of a file: choose one without '/' and \
                 without '.' at its beginning"
            )));
        }
        let file = begin(&folder.join(limits.file_name(name, 1)), name)?;
        let (folder, name, before) = (folder.to_owned(), name.to_owned(), VecDeque::new());
        let (number, has_packets, has_begun) = (1, false, false);
        let connection = None;
        Ok(PathFiles {
            folder,
            name,
            limits,
            file,
            number,
            has_packets,
            has_begun,
            before,
            connection,
        })
    }

    /// Returns the TCP sequence and acknowledgement number of the next segment of `record`. A new
    /// pair of addresses begins a new connection.
    fn advance(&mut self, record: &Record, length: usize) -> SegmentNumbers {
        let (client, server) = match record.outward {
            true => (record.from, record.to),
            false => (record.to, record.from),
        };
        let known = self.connection.take();
        let known = known.filter(|one| (one.client, one.server) == (client, server));
        let present = self.connection.insert(known.unwrap_or(Connection::new(client, server)));
        present.advance(record.outward, length)
    }

    fn write(&mut self, block: EnhancedPacketBlock<'_>) -> io::Result<()> {
        let written = self.file.write_pcapng_block(block).map_err(to_io);
        written.map_err(|error| self.file.get_ref().failed(error))?;
        self.has_packets = true;
        let is_full = |size| self.file.get_ref().length() >= size;
        if self.limits.size.is_some_and(is_full) { self.follow() } else { Ok(()) }
    }

    /// Ends the current file, begins the next, and removes the oldest files beyond the maximum
    /// number.
    fn follow(&mut self) -> io::Result<()> {
        self.show()?;
        let target = |number| self.folder.join(self.limits.file_name(&self.name, number));
        let next = begin(&target(self.number + 1), &self.name)?;
        self.before.push_back(target(self.number));
        self.file = next;
        (self.number, self.has_packets) = (self.number + 1, false);
        while self.limits.files.is_some_and(|files| self.before.len() >= files.max(1)) {
            let oldest = self.before.pop_front();
            oldest.map_or(Ok(()), fs::remove_file)?;
        }
        Ok(())
    }

    /// Writes the buffered data, and gives the file its final name if it has a packet. The first
    /// file gets its name even without a packet, because a file with a temporary name would remain
    /// if the program was killed.
    fn show(&mut self) -> io::Result<()> {
        if !self.has_packets && self.number > 1 {
            return Ok(());
        }
        if !replace(&mut self.has_begun, true) {
            self.clear()?;
        }
        self.file.get_mut().show()
    }

    /// Removes the files of an earlier execution of the program, which the new files replace.
    fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            if self.limits.may_name(&self.name, &name) {
                fs::remove_file(self.folder.join(name))?;
            }
        }
        Ok(())
    }
}

impl PcapSink {
    fn write_record(&mut self, record: &Record, bytes: &[u8]) -> io::Result<()> {
        let file = &mut self.files[usize::from(record.path)];
        for payload in cut(bytes, record.stride) {
            self.packet.clear();
            let (out, from, to) = (&mut self.packet, record.from, record.to);
            match record.transport {
                Transport::Udp => packet::write(out, from, to, record.ecn, payload)?,
                Transport::Tcp => {
                    let segment = file.advance(record, payload.len());
                    packet::write_segment(out, (from, to), segment, payload)?;
                }
            }
            file.write(packet_block(record, &self.packet))?;
        }
        Ok(())
    }
}

impl Sink for PcapSink {
    type Batch = Batch;

    fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        let mut rest = batch.bytes.as_slice();
        for record in &batch.records {
            let (bytes, after) = rest.split_at(record.length);
            self.write_record(record, bytes)?;
            rest = after;
        }
        batch.records.clear();
        batch.bytes.clear();
        self.files.iter_mut().try_for_each(PathFiles::show)
    }

    /// Completes all files, even if one fails. Returns the first error.
    fn commit(&mut self) -> io::Result<()> {
        let files = self.files.iter_mut();
        // The program may just have switched to a new file, which has no packet yet.
        let wanted = files.filter(|files| files.has_packets || files.number == 1);
        let ended: Vec<_> = wanted.map(|files| files.file.get_mut().commit()).collect();
        ended.into_iter().collect()
    }

    /// Makes each file with a packet readable: writes its buffered data, and gives it its final
    /// name. An error in one file does not affect the others.
    fn keep(&mut self) {
        for files in self.files.iter_mut().filter(|files| files.has_packets) {
            let _ = files.show();
        }
    }
}

/// Begins the capture `target` with its section header and its only interface, the path `name`.
fn begin(target: &Path, name: &str) -> io::Result<PcapNgWriter<LiveFile>> {
    let head = || -> io::Result<_> {
        let file = LiveFile::begin(target)?;
        let mut file = PcapNgWriter::with_section_header(file, section()).map_err(to_io)?;
        file.write_pcapng_block(interface(name)).map_err(to_io)?;
        Ok(file)
    };
    head().map_err(|error| explain(error, format!("the capture of path {name}")))
}

fn section() -> SectionHeaderBlock<'static> {
    let program = concat!("anabranch ", env!("CARGO_PKG_VERSION"));
    SectionHeaderBlock {
        endianness: Endianness::native(),
        options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed(program))],
        ..SectionHeaderBlock::default()
    }
}

fn interface(name: &str) -> InterfaceDescriptionBlock<'_> {
    use InterfaceDescriptionOption::{IfDescription, IfName, IfTsResol};
    InterfaceDescriptionBlock {
        linktype: DataLink::RAW,
        snaplen: SNAPLEN,
        options: vec![
            IfName(Cow::Borrowed(name)),
            IfDescription(Cow::Owned(format!("path {name} of an Anabranch session"))),
            IfTsResol(NANOSECONDS),
        ],
    }
}

fn packet_block<'a>(record: &Record, packet: &'a [u8]) -> EnhancedPacketBlock<'a> {
    let direction = if record.outward { OUTBOUND } else { INBOUND };
    EnhancedPacketBlock {
        interface_id: 0,
        timestamp: record.at,
        original_len: packet.len() as u32,
        data: Cow::Borrowed(packet),
        options: vec![EnhancedPacketOption::Flags(direction)],
    }
}

fn to_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_multipath::Time;
    use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
    use pcap_file::pcapng::{Block, PcapNgReader};
    use std::fs::{self, File};
    use std::process::Command;

    const START: Duration = Duration::new(1_700_000_000, 987_654_321);

    fn tap(folder: &Path) -> Box<PcapTap> {
        limited(folder, PcapLimits::default())
    }

    fn limited(folder: &Path, limits: PcapLimits) -> Box<PcapTap> {
        let names = ["wlan", "lte"].map(str::to_owned);
        let start = SystemTime::UNIX_EPOCH + START;
        let mut tap = PcapTap::create(folder, &names, start, limits).unwrap();
        tap.worker.patience = Duration::from_secs(60);
        Box::new(tap)
    }

    fn seen(path: u16, outward: bool, bytes: &[u8], stride: usize) -> ObservedBatch<'_> {
        ObservedBatch {
            time: Time::from_nanos(1_000_000_007),
            session: 1,
            path,
            transport: Transport::Udp,
            outward,
            client_end: "192.0.2.1:4000".parse().unwrap(),
            server: "192.0.2.2:443".parse().unwrap(),
            ecn: 0b01,
            bytes,
            stride,
        }
    }

    /// Records packets in both directions, over IPv4 on the first path and over IPv6 on the second.
    fn record(folder: &Path) {
        let mut tap = tap(folder);
        tap.seen(&seen(0, true, b"aaaabbbbcc", 4)).unwrap();
        tap.seen(&seen(0, false, b"answer", 0)).unwrap();
        let six = ObservedBatch {
            client_end: "[2001:db8::1]:4001".parse().unwrap(),
            server: "[2001:db8::2]:443".parse().unwrap(),
            ..seen(1, true, &[7; 1201], 0)
        };
        tap.seen(&six).unwrap();
        tap.seen(&ObservedBatch { outward: false, bytes: b"", ..six }).unwrap();
        tap.finish().unwrap();
    }

    /// Checks the file's header. Returns time, flags and content of every packet.
    fn packets(file: &Path, name: &str) -> Vec<(Duration, u32, Vec<u8>)> {
        let mut reader = PcapNgReader::new(File::open(file).unwrap()).unwrap();
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.unwrap().into_owned() {
                Block::InterfaceDescription(block) => {
                    assert_eq!(block.linktype, DataLink::RAW);
                    assert!(block.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
                    let name = InterfaceDescriptionOption::IfName(name.to_owned().into());
                    assert!(block.options.contains(&name));
                }
                Block::EnhancedPacket(block) => {
                    assert_eq!(block.original_len as usize, block.data.len());
                    let [EnhancedPacketOption::Flags(flags)] = block.options[..] else {
                        panic!("no direction")
                    };
                    packets.push((block.timestamp, flags, block.data.into_owned()));
                }
                other => panic!("{other:?}"),
            }
        }
        packets
    }

    /// Checks all checksums. Returns source port, destination port, ECN bits and payload.
    fn dissect(packet: &[u8]) -> (u16, u16, u8, Vec<u8>) {
        let headers = PacketHeaders::from_ip_slice(packet).unwrap();
        let Some(TransportHeader::Udp(udp)) = headers.transport else { panic!("no UDP") };
        let payload = headers.payload.slice().to_vec();
        let (ecn, sum) = match headers.net {
            Some(NetHeaders::Ipv4(ip, _)) => {
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                assert_eq!(usize::from(ip.total_len), packet.len());
                (ip.ecn, udp.calc_checksum_ipv4(&ip, &payload))
            }
            Some(NetHeaders::Ipv6(ip, _)) => {
                assert_eq!(usize::from(ip.payload_length), packet.len() - 40);
                (ip.ecn(), udp.calc_checksum_ipv6(&ip, &payload))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(udp.checksum, sum.unwrap());
        (udp.source_port, udp.destination_port, ecn.value(), payload)
    }

    #[test]
    fn both_directions_of_each_path_are_in_its_file() {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path());
        let first = packets(&folder.path().join("wlan.pcapng"), "wlan");
        let second = packets(&folder.path().join("lte.pcapng"), "lte");
        let dissected: Vec<_> = first.iter().map(|(.., packet)| dissect(packet)).collect();
        let up = |payload: &[u8]| (4000, 443, 1, payload.to_vec());
        let down = (443, 4000, 1, b"answer".to_vec());
        assert_eq!(dissected, [up(b"aaaa"), up(b"bbbb"), up(b"cc"), down]);
        let dissected: Vec<_> = second.iter().map(|(.., packet)| dissect(packet)).collect();
        assert_eq!(dissected, [(4001, 443, 1, vec![7; 1201]), (443, 4001, 1, vec![])]);
        let flags: Vec<_> = first.iter().map(|&(_, flags, _)| flags).collect();
        assert_eq!(flags, [OUTBOUND, OUTBOUND, OUTBOUND, INBOUND]);
        let at = START + Duration::from_nanos(1_000_000_007);
        assert!(first.iter().chain(&second).all(|&(time, ..)| time == at));
    }

    /// Returns source port, sequence number, acknowledgement number and payload.
    fn segment(packet: &[u8]) -> (u16, u32, u32, Vec<u8>) {
        let headers = PacketHeaders::from_ip_slice(packet).unwrap();
        let Some(TransportHeader::Tcp(tcp)) = headers.transport else { panic!("no TCP") };
        let payload = headers.payload.slice().to_vec();
        (tcp.source_port, tcp.sequence_number, tcp.acknowledgment_number, payload)
    }

    #[test]
    fn segments_of_a_connection_join_and_another_connection_begins_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut tap = tap(folder.path());
        let tcp = |outward, bytes| ObservedBatch {
            transport: Transport::Tcp,
            ..seen(0, outward, bytes, 4)
        };
        tap.seen(&tcp(true, b"aaaabb")).unwrap();
        tap.seen(&tcp(false, b"answer")).unwrap();
        tap.seen(&tcp(true, b"c")).unwrap();
        let client_end = "192.0.2.1:4001".parse().unwrap();
        tap.seen(&ObservedBatch { client_end, ..tcp(true, b"dd") }).unwrap();
        tap.finish().unwrap();
        let packets = packets(&folder.path().join("wlan.pcapng"), "wlan");
        let found: Vec<_> = packets.iter().map(|(.., packet)| segment(packet)).collect();
        let wanted: [(u16, u32, u32, &[u8]); 6] = [
            (4000, 1, 1, b"aaaa"),
            (4000, 5, 1, b"bb"),
            (443, 1, 7, b"answ"),
            (443, 5, 7, b"er"),
            (4000, 7, 7, b"c"),
            (4001, 1, 1, b"dd"),
        ];
        assert_eq!(found, wanted.map(|(port, own, other, text)| (port, own, other, text.to_vec())));
        assert!(packets.iter().all(|(.., packet)| packet.len() == 52 + segment(packet).3.len()));
    }

    #[test]
    fn many_batches_arrive_complete_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut tap = tap(folder.path());
        for n in 0..20_000u32 {
            tap.seen(&seen(0, true, &[n.to_be_bytes(); 50].concat(), 100)).unwrap();
        }
        tap.finish().unwrap();
        let packets = packets(&folder.path().join("wlan.pcapng"), "wlan");
        assert_eq!(packets.len(), 40_000);
        let right = |(at, (.., packet)): (usize, &(_, _, Vec<u8>))| {
            packet[28..32] == (at as u32 / 2).to_be_bytes()
        };
        assert!(packets.iter().enumerate().all(right));
    }

    #[test]
    fn an_abandoned_capture_keeps_what_it_saw_and_leaves_nothing_where_that_was_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let count = || fs::read_dir(folder.path()).unwrap().count();
        drop(tap(folder.path()));
        assert_eq!(count(), 0);
        let mut tap = tap(folder.path());
        assert_eq!(count(), 2);
        for _ in 0..50 {
            tap.seen(&seen(1, true, &[0; 60_000], 1200)).unwrap();
        }
        drop(tap);
        assert_eq!(count(), 2);
        // Batches have 1 MiB. Packets in an incomplete batch are lost when the tap is dropped.
        assert!(packets(&folder.path().join("lte.pcapng"), "lte").len() >= 1700);
        // The file has its final name although it has no packet. With a temporary name, it would
        // remain after SIGKILL.
        assert_eq!(packets(&folder.path().join("wlan.pcapng"), "wlan"), []);
    }

    #[test]
    fn a_capture_can_be_read_a_second_after_it_was_taken_while_it_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wlan.pcapng");
        let mut tap = tap(folder.path());
        tap.seen(&seen(0, true, b"first", 0)).unwrap();
        tap.flush(Time::from_millis(900)).unwrap();
        assert!(!file.exists(), "less than a second");
        tap.flush(Time::from_millis(1000)).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !file.exists() {
            assert!(std::time::Instant::now() < deadline, "it was not flushed");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(packets(&file, "wlan").len(), 1);
        tap.seen(&seen(0, true, b"second", 0)).unwrap();
        tap.finish().unwrap();
        assert_eq!(packets(&file, "wlan").len(), 2);
    }

    #[test]
    fn a_ring_keeps_the_newest_files_and_each_is_a_whole_capture() {
        let folder = tempfile::tempdir().unwrap();
        let limits = PcapLimits { size: Some(10_000), files: Some(3) };
        // This file is from an earlier run, and is replaced.
        fs::write(folder.path().join("wlan_00077.pcapng"), "old").unwrap();
        let mut tap = limited(folder.path(), limits);
        for number in 0..105u32 {
            tap.seen(&seen(0, true, &[number.to_be_bytes(); 250].concat(), 0)).unwrap();
        }
        tap.finish().unwrap();
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut files: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        files.retain(|file| file.starts_with("wlan"));
        assert_eq!(files, ["wlan_00009.pcapng", "wlan_00010.pcapng", "wlan_00011.pcapng"]);
        let all = files.iter().flat_map(|file| packets(&folder.path().join(file), "wlan"));
        let numbers: Vec<_> = all.map(|(.., packet)| packet[31]).collect();
        assert_eq!(numbers.last(), Some(&104));
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        assert!(files.iter().all(|file| limits.may_name("wlan", file)));
        assert!(
            !limits.may_name("wlan", "wlan.pcapng") && !limits.may_name("wlan", "wlan_x.pcapng")
        );
        assert!(PcapLimits::default().may_name("wlan", "wlan.pcapng"));
    }

    #[test]
    fn bad_targets_are_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("lte.pcapng")).unwrap();
        let refused = |folder: &Path, names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&n| n.to_owned()).collect();
            let error =
                PcapTap::create(folder, &names, SystemTime::UNIX_EPOCH, PcapLimits::default())
                    .err()
                    .unwrap();
            error.to_string()
        };
        assert!(refused(folder.path(), &["wlan", "lte"]).contains("is a directory"));
        assert!(refused(folder.path(), &["a", "a"]).contains("two paths are named a"));
        assert!(refused(folder.path(), &["../a"]).contains("cannot be the name of a file"));
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(refused(&folder.path().join("file"), &["a"]).contains("cannot make the directory"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_that_is_missing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let within = folder.path().join("captures/today");
        let (names, limits) = (["a".to_owned()], PcapLimits::default());
        PcapTap::create(&within, &names, SystemTime::UNIX_EPOCH, limits).unwrap();
        assert!(within.is_dir());
    }

    /// Returns tshark's description of `file`, one line per packet.
    fn tshark(file: &Path) -> Option<Vec<String>> {
        let options = "-o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -T fields -E \
                       separator=/s -e frame.time_epoch -e frame.interface_name -e udp.srcport -e \
                       udp.length -e udp.checksum.status -e ip.checksum.status";
        let mut command = Command::new("tshark");
        command.arg("-r").arg(file).args(options.split_whitespace());
        let output = command.output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        Some(text.lines().map(|line| line.trim_end().to_owned()).collect())
    }

    #[test]
    fn tshark_agrees() {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path());
        let Some(first) = tshark(&folder.path().join("wlan.pcapng")) else {
            println!("skipped: tshark is not installed");
            return;
        };
        let second = tshark(&folder.path().join("lte.pcapng")).unwrap();
        // A status of 1 means a correct checksum. IPv6 packets have one checksum, and IPv4 packets
        // have two.
        let line = |rest: &str| format!("1700000001.987654328 {rest}");
        let up = ["wlan 4000 12 1 1", "wlan 4000 12 1 1", "wlan 4000 10 1 1"].map(line);
        assert_eq!(first, [&up[..], &[line("wlan 443 14 1 1")]].concat());
        assert_eq!(second, ["lte 4001 1209 1", "lte 443 8 1"].map(line));
    }
}
