//! A pcapng file per path, with the packets that an observer of the path would have recorded.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anabranch_os::packet;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

use super::draft::{Draft, explain};
use super::worker::{Sink, Worker};
use super::{ObservedBatch, Tap, cut, invalid};

/// Bytes of payload, or batches, after which the writing thread takes over.
const FULL: (usize, usize) = (1 << 20, 1 << 13);

/// The longest packet that a file announces: more than any IP packet without jumbo payload.
const SNAPLEN: u32 = 1 << 18;

/// `if_tsresol` for nanoseconds: ten to the minus nine.
const NANOSECONDS: u8 = 9;

/// `epb_flags`: the direction bits.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// The tap that writes `NAME.pcapng` for each path into one directory.
pub struct PcapTap {
    batch: Batch,
    start: Duration,
    paths: usize,
    worker: Worker<PcapSink>,
}

impl PcapTap {
    /// Begins the files of the paths `names` in `folder`, which is made where it is missing;
    /// `start` is the wall clock at time zero.
    ///
    /// # Errors
    /// The directory cannot be made or written to, a file's name is that of a
    /// directory, or a path's name cannot be a file's.
    pub fn create(folder: &Path, names: &[String], start: SystemTime) -> io::Result<PcapTap> {
        let start = start.duration_since(SystemTime::UNIX_EPOCH);
        let start = start.map_err(|_| invalid("the clock stands before 1970"))?;
        if let Some(name) =
            names.iter().enumerate().find_map(|(i, n)| names[..i].contains(n).then_some(n))
        {
            return Err(invalid(format!("two paths are named {name}")));
        }
        fs::create_dir_all(folder).map_err(|error| {
            explain(error, format!("cannot make the directory {}", folder.display()))
        })?;
        let files: io::Result<Vec<_>> = names.iter().map(|name| begin(folder, name)).collect();
        let sink = PcapSink { files: files?, packet: Vec::new() };
        let worker = Worker::start("pcap", sink)?;
        Ok(PcapTap { batch: Batch::default(), start, paths: names.len(), worker })
    }

    fn record(&self, seen: &ObservedBatch<'_>) -> Record {
        let (from, to) = match seen.outward {
            true => (seen.client_end, seen.server),
            false => (seen.server, seen.client_end),
        };
        let at = self.start + Duration::from_nanos(seen.time.nanos());
        let ObservedBatch { path, outward, ecn, stride, .. } = *seen;
        Record { at, path, outward, from, to, ecn, stride, length: seen.bytes.len() }
    }
}

impl Tap for PcapTap {
    fn seen(&mut self, seen: &ObservedBatch<'_>) -> io::Result<()> {
        if usize::from(seen.path) >= self.paths {
            return Err(invalid(format!("path {} is not one of the capture's", seen.path)));
        }
        let record = self.record(seen);
        self.batch.records.push(record);
        self.batch.bytes.extend_from_slice(seen.bytes);
        if self.batch.bytes.len() < FULL.0 && self.batch.records.len() < FULL.1 {
            return Ok(());
        }
        self.worker.swap(&mut self.batch)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.worker.finish(self.batch)
    }
}

/// What is kept of a [`ObservedBatch`]; its bytes lie in the same order in [`Batch::bytes`].
struct Record {
    at: Duration,
    path: u16,
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

/// Rebuilding packets costs more than copying them, so it happens here, on the worker's thread.
struct PcapSink {
    files: Vec<PcapNgWriter<Draft>>,
    packet: Vec<u8>,
}

impl PcapSink {
    fn write_record(&mut self, record: &Record, bytes: &[u8]) -> io::Result<()> {
        let file = &mut self.files[usize::from(record.path)];
        for payload in cut(bytes, record.stride) {
            self.packet.clear();
            packet::write(&mut self.packet, record.from, record.to, record.ecn, payload)?;
            let block = packet_block(record, &self.packet);
            let written = file.write_pcapng_block(block).map_err(to_io);
            let what = || format!("cannot write {}", file.get_ref().target().display());
            written.map_err(|error| explain(error, what()))?;
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
        Ok(())
    }

    /// All files or none: none gets its name before all are safe on the disk.
    fn commit(self) -> io::Result<()> {
        let mut drafts: Vec<_> = self.files.into_iter().map(PcapNgWriter::into_inner).collect();
        drafts.iter_mut().try_for_each(Draft::settle)?;
        drafts.into_iter().try_for_each(Draft::commit)
    }
}

/// Begins `NAME.pcapng` with its section header and its one interface, the path.
fn begin(folder: &Path, name: &str) -> io::Result<PcapNgWriter<Draft>> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(invalid(format!("the path name {name:?} cannot be the name of a file")));
    }
    let target = folder.join(format!("{name}.pcapng"));
    let head = || -> io::Result<_> {
        let draft = Draft::begin(&target)?;
        let mut file = PcapNgWriter::with_section_header(draft, section()).map_err(to_io)?;
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
        let names = ["wlan", "lte"].map(str::to_owned);
        let mut tap = PcapTap::create(folder, &names, SystemTime::UNIX_EPOCH + START).unwrap();
        tap.worker.patience = Duration::from_secs(60);
        Box::new(tap)
    }

    fn seen(path: u16, outward: bool, bytes: &[u8], stride: usize) -> ObservedBatch<'_> {
        ObservedBatch {
            time: Time::from_nanos(1_000_000_007),
            session: 1,
            path,
            outward,
            client_end: "192.0.2.1:4000".parse().unwrap(),
            server: "192.0.2.2:443".parse().unwrap(),
            ecn: 0b01,
            bytes,
            stride,
        }
    }

    /// Both directions over IPv4 on the first path, IPv6 on the second.
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

    /// (nanoseconds, flags, packet) of every packet; checks the head on the way.
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

    /// (source port, destination port, ECN bits, payload), after a check of all checksums.
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
    fn an_abandoned_capture_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut tap = tap(folder.path());
        for _ in 0..50 {
            tap.seen(&seen(1, true, &[0; 60_000], 1200)).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        drop(tap);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn bad_targets_are_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("lte.pcapng")).unwrap();
        let refused = |folder: &Path, names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&n| n.to_owned()).collect();
            let error = PcapTap::create(folder, &names, SystemTime::UNIX_EPOCH).err().unwrap();
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
        PcapTap::create(&within, &["a".to_owned()], SystemTime::UNIX_EPOCH).unwrap();
        assert!(within.is_dir());
    }

    /// What tshark reads in `file`, a line per packet.
    fn tshark(file: &Path) -> Option<Vec<String>> {
        let options = "-o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -T fields \
            -E separator=/s -e frame.time_epoch -e frame.interface_name -e udp.srcport \
            -e udp.length -e udp.checksum.status -e ip.checksum.status";
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
        // A status of 1 is a good checksum; IPv6 has one, IPv4 two.
        let line = |rest: &str| format!("1700000001.987654328 {rest}");
        let up = ["wlan 4000 12 1 1", "wlan 4000 12 1 1", "wlan 4000 10 1 1"].map(line);
        assert_eq!(first, [&up[..], &[line("wlan 443 14 1 1")]].concat());
        assert_eq!(second, ["lte 4001 1209 1", "lte 443 8 1"].map(line));
    }
}
