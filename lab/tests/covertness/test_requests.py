from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.covertness import page, requests
from anabranch.covertness.flows import Flow
from anabranch.covertness.judge import Judgement
from covertness.captures import flow, noise


def get(length: int) -> bytes:
    """Returns a GET of `length` bytes."""
    head = b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n"
    return head % (b"a" * (length - len(head % b"")))


def post(length: int, body: int) -> bytes:
    """Returns a POST with a head of `length` bytes, and a body."""
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\nHost: %s\r\n\r\n"
    return head % (body, b"a" * (length - len(head % (body, b"")))) + bytes(body)


def answer(*headers: bytes, body: bytes = b"") -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


def talk(*asked: bytes, answers: bytes = b"") -> Flow:
    up = b"".join(asked)
    return flow(up[:10], [len(up), -len(answers)], up=up, down=answers)


def of(*sessions: list[Flow]) -> requests.Requests:
    found = requests.count("a", sessions)
    assert found is not None
    return found


def test_percentiles_are_of_every_get_and_bodies_and_posts_are_not_in_them() -> None:
    lengths = np.random.default_rng(1).permutation(np.arange(100, 201)).tolist()
    halves = [[talk(*map(get, half), post(900, 50))] for half in (lengths[:30], lengths[30:])]
    assert of(*halves).gets == (100, 105, 150, 195, 200)
    assert of([talk(post(100, 9))]).gets == ()


def test_heads_are_means_of_a_connection_and_its_requests_of_those_with_any() -> None:
    first = talk(get(100), post(300, 5_000))
    second = talk(get(60), get(70), get(71))
    found = of([first, flow(noise(400)), flow()], [second])
    assert (found.least, found.most) == (67, 200)
    assert found.requests == 2.5
    assert found.connections == 4


def test_posts_and_bytes_are_of_a_session_on_average() -> None:
    both = [talk(get(100), post(300, 5_000), post(200, 1)), talk(post(100, 2), answers=bytes(70))]
    found = of(both, [flow(noise(400))], [flow(b"a", [1, -20, 4])], [talk(get(100))])
    assert found.posts == 3 / 4
    assert found.up == (100 + 5_300 + 201 + 102 + 400 + 5 + 100) / 4
    assert found.down == (70 + 20) / 4


def test_an_etag_counts_in_the_head_of_a_first_answer_alone() -> None:
    tag = b'ETag: "1"'
    downs = [
        answer(b"Server: a", tag),
        answer(tag.replace(b"ETag", b"etag")) + answer(),
        answer() + answer(tag),
        answer(b"X-ETag: 1"),
        answer(body=b"\r\n" + tag + b"\r\n"),
        b"",
    ]
    found = of([talk(get(50), answers=down) for down in downs])
    assert (found.etags, found.connections) == (2, 6)


@pytest.mark.parametrize("sessions", [[], [[]], [[flow(noise(400)), flow()]]])
def test_a_class_without_requests_in_clear_has_none(sessions: list[list[Flow]]) -> None:
    assert requests.count("a", sessions) is None


def test_the_page_has_a_row_of_each_class_or_says_that_there_is_none() -> None:
    found = requests.Requests(
        "http-a", (1.0, 2.0, 3.4, 1_234.0, 5_678.0), 7.0, 89.0, 1.25, 0.5, 12_345.0, 1_234_567.0,
        3, 1_400,
    )  # fmt: skip
    text = page.document(Judgement({}, [], [], [], [found, replace(found, gets=())]), "a command")
    rows = [line for line in text.splitlines() if line.startswith("| http-a")]
    rest = " | 7–89 | 1.2 | 0.5 | 12 | 1,235 | 3 of 1,400 |"
    assert rows == [f"| http-a | 1 / 2 / 3 / 1,234 / 5,678{rest}", f"| http-a | –{rest}"]
    assert "No class has" not in text
    text = page.document(Judgement({}, [], [], [], []), "a command")
    assert "\n## Requests\n\nNo class has unencrypted HTTP requests.\n" in text
