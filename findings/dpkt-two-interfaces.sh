#!/bin/sh
# A pcapng file of two interfaces (`dumpcap -i eth0 -i wg0`) has a description of each: its link type
# and the unit of its times (draft-ietf-opsawg-pcapng, "Interface Description Block"). Each packet
# names its interface. A competent reader expects the times of all packets in seconds. dpkt takes the
# unit of the first interface for all packets and has one link type for the file; the packet of the
# second interface is 53,816 years late. scapy reads the same file right.
# Exit status: 0 as found, 1 if that changes, 2 if it cannot be run.
set -eu
dpkt=1.9.8 scapy=2.6.1
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
python3 -m venv venv
timeout 200 venv/bin/pip install --quiet --disable-pip-version-check "dpkt==$dpkt" \
    "scapy==$scapy" >log 2>&1 || { tail -3 log; exit 2; }
timeout 60 venv/bin/python >found <<'PYTHON'
import struct

import dpkt
from scapy.utils import RawPcapNgReader

ETHERNET, IP = 1, 101
SECOND = 1_700_000_000


def block(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + size + body + size


def interface(link: int, digits: int) -> bytes:
    """An interface whose times count 10**-digits seconds (option if_tsresol, number 9)."""
    options = struct.pack("<HHB3xHH", 9, 1, digits, 0, 0)
    return block(1, struct.pack("<HHI", link, 0, 0) + options)


def packet(interface: int, units: int, data: bytes) -> bytes:
    head = struct.pack("<5I", interface, units >> 32, units & 0xFFFFFFFF, len(data), len(data))
    return block(6, head + data)


frame = bytes(12) + b"\x08\x00" + bytes(46)
datagram = b"\x45" + bytes(39)
with open("two.pcapng", "wb") as file:
    file.write(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
    file.write(interface(ETHERNET, 6) + interface(IP, 9))
    file.write(packet(0, SECOND * 10**6, frame))
    file.write(packet(1, SECOND * 10**9 + 500_000_000, datagram))

reader = dpkt.pcapng.Reader(open("two.pcapng", "rb"))
for time, data in reader:
    print(f"dpkt: link type {reader.datalink()}, {time:.1f} s, {len(data)} bytes")
for data, about in RawPcapNgReader("two.pcapng"):
    time = ((about.tshigh << 32) + about.tslow) / about.tsresol
    print(f"scapy: link type {about.linktype}, {time:.1f} s, {len(data)} bytes")
PYTHON
echo "dpkt $dpkt, scapy $scapy"
echo "guess: link types 1 and 101, times half a second apart, from both; outcome:"
cat found
cat >wanted <<'TEXT'
dpkt: link type 1, 1700000000.0 s, 60 bytes
dpkt: link type 1, 1700000000500.0 s, 40 bytes
scapy: link type 1, 1700000000.0 s, 60 bytes
scapy: link type 101, 1700000000.5 s, 40 bytes
TEXT
cmp -s found wanted
