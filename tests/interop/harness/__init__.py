"""The interop harness: an emulated network, the splitter, and third-party software.

Free of pytest, so that the demo and the benchmarks use the same pieces:

* :mod:`harness.net`: hosts and links of ``anabranch emulate``;
* :mod:`harness.splitter`: a running ``anabranch split`` and what it counted;
* :mod:`harness.wireguard`, :mod:`harness.quic`, :mod:`harness.mosh`: the strangers;
* :mod:`harness.capture`, :mod:`harness.quicwire`: what an observer on a path saw;
* :mod:`harness.report`: tables.
"""
