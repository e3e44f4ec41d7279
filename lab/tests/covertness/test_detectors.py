from __future__ import annotations

import base64

import numpy as np
import pytest

from anabranch.covertness import uniformity
from anabranch.covertness.detectors import DETECTORS
from anabranch.covertness.detectors.fully_encrypted import is_exempt
from covertness.captures import flow, noise

GET = b"GET /a?b=" + base64.urlsafe_b64encode(noise(192)) + b" HTTP/1.1\r\nHost: a\r\n\r\n"
HELLO = b"\x16\x03\x01\x02\x00" + noise(512)


def hits(first: bytes) -> set[str]:
    return {name for name, detector in DETECTORS.items() if detector(flow(first))}


def test_random_bytes_are_hit_by_every_rule_of_first_packets() -> None:
    """The first packets of obfs4 and nosteg are random bytes."""
    hit = [hits(noise(300, seed)) for seed in range(300)]
    for name in ("fully encrypted", "entropy", "not printable"):
        share = sum(name in each for each in hit) / len(hit)
        assert share > 0.97, (name, share)


@pytest.mark.parametrize("first", [HELLO, b"post /x http/1.0\r\n" + noise(300)])
def test_tls_and_random_bytes_behind_a_method_are_hit_by_their_bytes_alone(first: bytes) -> None:
    assert hits(first) == {"entropy"}


def test_a_request_is_hit_by_none() -> None:
    assert hits(GET) == set()


def test_each_exemption_of_the_rule_lets_pass_by_itself() -> None:
    """Wu et al., USENIX Security 2023, Algorithm 1, at its bounds."""
    half = bytes([0x80 | byte for byte in noise(400)])  # nothing printable, 4.5 bits a byte
    half = bytes(byte if at % 2 else byte & 0x9F for at, byte in enumerate(half))  # 4.0
    assert not is_exempt(half)
    few = bytes([0x80, 0x8F] * 10 + [0x83] * 5)  # 3.4 at most
    assert uniformity.bits(few) <= 3.4
    assert is_exempt(few)
    assert is_exempt(bytes([0xFB, 0x80 | 0x1F] * 30))
    assert is_exempt(b"abcdef" + half)
    assert not is_exempt(b"abcde" + half)
    text = b"".join(bytes([byte, 0x6B]) for byte in half[:100])
    assert uniformity.printable(text) == 0.5
    assert not is_exempt(text)
    assert is_exempt(text + b"kk")
    assert not is_exempt(half + b"k" * 20 + half)
    assert is_exempt(half + b"k" * 21 + half)
    assert is_exempt(b"\x17\x03\x09" + half)
    assert not is_exempt(b"\x17\x03\x0a" + half)
    assert not is_exempt(b"\x18\x03\x01" + half)
    assert is_exempt(b"get " + half)
    assert not is_exempt(b"gets" + half)


def test_a_tls_handshake_inside_is_seen_by_sizes_and_directions() -> None:
    detector = DETECTORS["TLS in TLS"]
    inner = [560, -1400, -1400, -900, 90, 300, -2_000]
    assert detector(flow(noise(9), inner))
    assert detector(flow(noise(9), [300, -40, *inner]))
    outer = [517, -1400, -1200, 80, -300]
    assert not detector(flow(HELLO, [*outer, 400, -5_000]))
    assert detector(flow(HELLO, [*outer, *inner]))


def test_a_first_cell_in_the_packet_that_ends_the_handshake_inside_hides_it_not() -> None:
    detector = DETECTORS["TLS in TLS"]
    # From webtunnel: its own TLS, the upgrade, and tor's TLS inside.
    begin = [1483, -1237, 93, -51, 146, -165, 546, -1395]
    assert detector(flow(HELLO, [*begin, 109, 565, -1448]))
    assert detector(flow(HELLO, [*begin, 645, -1448]))
    for other in (190, 565, 720, 1_081):
        assert not detector(flow(HELLO, [*begin, other, -1448]))


def test_a_browsers_requests_are_no_handshake() -> None:
    pages = [450, -1400, -1400, -500, 430, -900, 470, -1400]
    assert not DETECTORS["TLS in TLS"](flow(GET, pages))


def test_a_connection_without_a_word_is_hit_by_none() -> None:
    assert hits(b"") == set()


def test_chi_square_counts_from_what_random_bytes_give() -> None:
    values = [uniformity.chi_square(noise(length, seed))
              for seed in range(200) for length in (64, 1_000)]  # fmt: skip
    assert abs(np.mean(values)) < 0.2
    assert 0.8 < np.std(values) < 1.2
    assert uniformity.chi_square(base64.b64encode(noise(48))) > 8
    assert uniformity.entropy(bytes(range(256))) == 8.0
    assert uniformity.entropy(b"aaaa") == 0.0
    assert np.isnan(uniformity.chi_square(b"a"))
    assert uniformity.longest_printable(b"\0abc\0de") == 3
