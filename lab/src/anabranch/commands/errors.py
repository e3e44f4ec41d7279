"""Expected errors of an evaluation as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.validate import TraceError


@contextmanager
def one_line() -> Iterator[None]:
    """Converts expected errors to `TraceError`, which the command line reports with code 2."""
    from anabranch.evaluate.errors import ERRORS

    try:
        yield
    except TraceError:
        raise
    except ERRORS as error:
        raise TraceError(str(error)) from error
    except MemoryError as error:
        raise TraceError(f"not enough memory: {error}") from error
