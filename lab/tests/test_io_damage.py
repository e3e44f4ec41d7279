from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from anabranch import io
from anabranch.splitting import Split
from anabranch.validate import TraceError, TraceWarning
from making import made

CASES = 500
NAMES = {"pcapng": "caps", "cells": "cells", "wflib": "a.npz", "directions": "a.npz"}


# A warning would be a second line for the user.
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", io.FORMATS)
def test_a_damaged_file_is_read_or_refused_and_nothing_else(form: str, tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    path = tmp_path / NAMES.get(form, "a.parquet")
    traces = made(3)
    io.write(
        Split("uniform", "1p", 2).split(traces[:1]) if form == "pcapng" else traces, path, form
    )
    files = [path] if path.is_file() else sorted(path.iterdir())
    contents = [file.read_bytes() for file in files]
    reasons = []
    for _ in range(CASES):
        place = int(chance.integers(len(files)))
        rewrite(files[place], damaged(contents[place], chance))
        reasons.append(refusal(path))
        rewrite(files[place], contents[place])
    refused = [reason for reason in reasons if reason is not None]
    assert len(refused) > CASES // 4
    assert all(str(path) in reason for reason in refused)


def refusal(path: Path) -> str | None:
    """Returns the reason why a file is not read, or not completely."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", TraceWarning)
        try:
            io.read(path)
        except (TraceError, TraceWarning) as error:
            return str(error)
    return None


def rewrite(file: Path, data: bytes) -> None:
    file.unlink()  # Some file systems wait for the disk when a file is truncated and rewritten.
    file.write_bytes(data)


def damaged(good: bytes, chance: np.random.Generator) -> bytes:
    """Returns `good` truncated, or with one to three other bytes: anywhere, at the beginning or at
    the end.
    """
    places = [range(len(good)), range(len(good))[:600], range(len(good))[-600:]]
    kind = int(chance.integers(4))
    if kind == 3:
        return good[: int(chance.integers(len(good)))]
    bad = bytearray(good)
    for place in chance.choice(places[kind], int(chance.integers(1, 4))):
        bad[place] ^= int(chance.integers(1, 256))
    return bytes(bad)
