"""The interop harness: an emulated network, the splitter, and third-party software.

It does not depend on pytest, so that the demo and the benchmarks can use it:

* :mod:`harness.net`: hosts and links of ``anabranch emulate``;
* :mod:`harness.splitter`: a running ``anabranch split`` and its counts;
* :mod:`harness.wireguard`, :mod:`harness.quic`, :mod:`harness.mosh`: third-party programs;
* :mod:`harness.capture`, :mod:`harness.quicwire`: packets that an observer on a path sees;
* :mod:`harness.report`: tables.
"""
