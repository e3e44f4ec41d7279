from __future__ import annotations

import pytest

from anabranch.traces import Traces
from making import made


@pytest.fixture
def traces() -> Traces:
    return made()
