#!/bin/sh
# A capture with a snap length (`tcpdump -s 96`) keeps the first 96 bytes of each packet and its
# original length (draft-ietf-opsawg-pcap, "Original Packet Length": it can exceed the captured one).
# A competent reader expects any reader to return such packets. The checked reader of the Rust crate
# pcap-file refuses each whose original length exceeds the snap length; its raw reader and scapy
# return them.
# Exit status: 0 as found, 1 if that changes, 2 if it cannot be run.
set -eu
crate=2.0.0 scapy=2.6.1
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
python3 - <<'PYTHON'
import struct

# One Ethernet frame of 1,500 bytes, cut to 96.
frame = bytes(12) + b"\x08\x00" + bytes(82)
head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1)
open("cut.pcap", "wb").write(head + struct.pack("<IIII", 1_700_000_000, 0, 96, 1500) + frame)
PYTHON
mkdir -p src
cat >Cargo.toml <<TOML
[package]
name = "finding"
version = "0.1.0"
edition = "2021"

[dependencies]
pcap-file = "=$crate"

[workspace]
TOML
cat >src/main.rs <<'RUST'
use pcap_file::pcap::PcapReader;
use std::fs::File;

fn main() {
    let open = || PcapReader::new(File::open("cut.pcap").unwrap()).unwrap();
    // Once each: after an error the reader returns the same packet again.
    match open().next_packet().unwrap() {
        Ok(packet) => println!("checked: {} of {} bytes", packet.data.len(), packet.orig_len),
        Err(error) => println!("checked: {error}"),
    }
    match open().next_raw_packet().unwrap() {
        Ok(packet) => println!("raw: {} of {} bytes", packet.incl_len, packet.orig_len),
        Err(error) => println!("raw: {error}"),
    }
}
RUST
export CARGO_TARGET_DIR="$work/target"
timeout 300 cargo build --quiet 2>log || { tail -3 log; exit 2; }
python3 -m venv venv
timeout 200 venv/bin/pip install --quiet --disable-pip-version-check "scapy==$scapy" >log 2>&1 ||
    { tail -3 log; exit 2; }
# shellcheck disable=SC3045 # dash and busybox have it
ulimit -v 4000000
timeout 20 target/debug/finding >found
timeout 60 venv/bin/python >>found <<'PYTHON'
from scapy.utils import RawPcapReader

for data, about in RawPcapReader("cut.pcap"):
    print(f"scapy: {len(data)} of {about.wirelen} bytes")
PYTHON
echo "pcap-file $crate, scapy $scapy"
echo "guess: 96 of 1500 bytes from each; outcome:"
cat found
cat >wanted <<'TEXT'
checked: Invalid field value: PacketHeader orig_len > snap_len
raw: 96 of 1500 bytes
scapy: 96 of 1500 bytes
TEXT
cmp -s found wanted
