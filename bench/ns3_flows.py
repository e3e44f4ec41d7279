"""Four CUBIC connections between two hosts in ns-3, as in `anabranch-sim`'s example `speed`.

The network has two access lines of 100 Mbit/s with queues of 250,000 bytes, and a core of 10 ms
between them; the transfers last 20 s. Run this with the Python that has the package `ns3`. It
prints one JSON object.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

ns = importlib.import_module("ns").ns

SECONDS = 20.0
FLOWS = 4
PORT = 5001
QUEUE = "250000B"
SEGMENT = 1448


def defaults() -> None:
    """Sets TCP to CUBIC with Linux's initial window and buffers."""
    for name, value in {
        "ns3::TcpL4Protocol::SocketType": ns.TypeIdValue(ns.TcpCubic.GetTypeId()),
        "ns3::TcpSocket::SegmentSize": ns.UintegerValue(SEGMENT),
        "ns3::TcpSocket::InitialCwnd": ns.UintegerValue(10),
        "ns3::TcpSocket::SndBufSize": ns.UintegerValue(4 << 20),
        "ns3::TcpSocket::RcvBufSize": ns.UintegerValue(6 << 20),
    }.items():
        ns.Config.SetDefault(name, value)


def connect(one: Any, other: Any, rate: str, delay: str) -> Any:
    """Connects two nodes by a line, and returns its two devices."""
    line = ns.PointToPointHelper()
    line.SetDeviceAttribute("DataRate", ns.StringValue(rate))
    line.SetChannelAttribute("Delay", ns.StringValue(delay))
    line.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", ns.QueueSizeValue(ns.QueueSize(QUEUE)))
    return line.Install(one, other)


def main() -> int:
    """Runs the transfers."""
    defaults()
    nodes = ns.NodeContainer()
    nodes.Create(4)
    lines = [
        connect(nodes.Get(0), nodes.Get(1), "100Mbps", "0ms"),
        connect(nodes.Get(1), nodes.Get(2), "100Gbps", "10ms"),
        connect(nodes.Get(2), nodes.Get(3), "100Mbps", "0ms"),
    ]
    ns.InternetStackHelper().Install(nodes)
    for number, devices in enumerate(lines):
        address = ns.Ipv4AddressHelper()
        address.SetBase(ns.Ipv4Address(f"10.0.{number}.0"), ns.Ipv4Mask("255.255.255.0"))
        interfaces = address.Assign(devices)
        # Only the device's queue remains on a line.
        ns.TrafficControlHelper().Uninstall(devices)
    ns.Ipv4GlobalRoutingHelper.PopulateRoutingTables()
    receiver = interfaces.GetAddress(1)
    here = ns.InetSocketAddress(ns.Ipv4Address.GetAny(), PORT).ConvertTo()
    sinks = ns.PacketSinkHelper("ns3::TcpSocketFactory", here).Install(nodes.Get(3))
    sinks.Start(ns.Seconds(0.0))
    there = ns.InetSocketAddress(receiver, PORT).ConvertTo()
    bulk = ns.BulkSendHelper("ns3::TcpSocketFactory", there)
    bulk.SetAttribute("MaxBytes", ns.UintegerValue(0))
    for _ in range(FLOWS):
        bulk.Install(nodes.Get(0)).Start(ns.Seconds(0.0))
    ns.Simulator.Stop(ns.Seconds(SECONDS))
    begun = time.process_time()
    ns.Simulator.Run()
    spent = time.process_time() - begun
    hops = 0
    for devices in lines:
        for side in range(2):
            device = devices.Get(side).GetObject[ns.PointToPointNetDevice]()
            hops += int(device.GetQueue().GetTotalReceivedPackets())
    received = int(sinks.Get(0).GetObject[ns.PacketSink]().GetTotalRx())
    ns.Simulator.Destroy()
    json.dump({"hops": hops, "cpu": spent, "mbit": received * 8 / SECONDS / 1e6}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
