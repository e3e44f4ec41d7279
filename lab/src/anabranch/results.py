"""Results of evaluations as files: a JSON of settings and numbers, a Parquet of predictions.

A single file of lines can also hold the numbers of many results (`line`, `lines`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch import __version__, io
from anabranch.io import draft
from anabranch.metrics import Outcomes
from anabranch.validate import TraceError, source

if TYPE_CHECKING:
    from anabranch.evaluate.spec import Spec

FORMAT = 2
"""Version of result files. It is also increased when the same settings begin to give other numbers
for all attacks; for a change of one attack, its `revision` is increased instead.
"""


@dataclass(frozen=True, slots=True)
class Numbers:
    """An evaluation's result without its predictions.

    Attributes:
        spec: its settings.
        data: digest of the data, as `digest` returns it.
        facts: the division of the data, and the sizes of its sets.
        metrics: the numbers; each `{"value", "low", "high"}` is a value with its 95 % interval.
        elapsed: seconds of wall clock and of processor time, the only attribute that differs
            between equal evaluations.
    """

    spec: Spec
    data: str
    facts: dict[str, Any]
    metrics: dict[str, Any]
    elapsed: dict[str, float]


@dataclass(frozen=True, slots=True)
class Result(Numbers):
    """An evaluation's result.

    Attributes:
        names: the labels; `page` and `guess` of the outcomes are indices into them.
        outcomes: every prediction.
    """

    names: tuple[str, ...]
    outcomes: Outcomes


def digest(path: Path, form: str | None = None) -> str:
    """Returns the SHA-256 of a file, or of the names and contents of a folder's files of traces.

    Raises:
        TraceError: if `path` cannot be read.
    """
    state = hashlib.sha256()
    with source(path):
        for file in sorted(io.files(path, form)):
            if path.is_dir():
                state.update(f"{file.relative_to(path)}\0".encode())
            state.update(hashlib.sha256(file.read_bytes()).digest())
    return state.hexdigest()


def key(spec: Spec, data: str, reading: Mapping[str, Any] | None = None) -> str:
    """Returns the name of a stored result: 16 hex digits of a hash of settings, data and version.

    Args:
        spec: the settings, seed included.
        data: digest of the data.
        reading: options that change how the data are read.
    """
    from anabranch.evaluate.attack import origin

    settings = spec.to_dict()
    content = {
        "format": FORMAT,
        "version": __version__,
        "data": data,
        "reading": dict(reading or {}),
        "spec": {name: settings[name] for name in settings if settings[name] != _LATER.get(name)},
    }
    revision, outside = spec.attack.kind.revision, dict(origin(spec.attack.name))
    content |= {"revision": revision} if revision else {}
    content |= {"outside": outside} if outside else {}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def save(result: Result, path: Path) -> None:
    """Writes `path` (JSON) and `.parquet` next to it with the predictions: both, or neither.

    Raises:
        TraceError: if they cannot be written.
    """
    with source(path), ExitStack() as drafts:
        # The JSON is renamed last: if it exists, so does the Parquet file.
        text = drafts.enter_context(draft.file(path))
        rows = drafts.enter_context(draft.file(path.with_suffix(".parquet")))
        pq.write_table(_table(result), rows, compression="zstd", write_page_checksum=True)
        text.write_text(json.dumps(_content(result), indent=1, allow_nan=False) + "\n")


def load(path: Path) -> Result:
    """Reads a result that `save` wrote.

    Raises:
        TraceError: if the file is not a result, or has another version.
    """
    with source(path):
        attributes = _attributes(_parsed(path.read_text()))
        outcomes, names = _rows(path.with_suffix(".parquet"))
    return Result(**attributes, names=names, outcomes=outcomes)


def line(place: str, numbers: Numbers) -> str:
    """Returns one line of JSON with the numbers of a result, and `place`, the name of its file."""
    content = {"file": place, **_content(numbers)}
    return json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n"


def lines(path: Path) -> Iterator[tuple[str, Numbers]]:
    """Reads a file of lines by `line`; yields the file name and the numbers of each result.

    Raises:
        TraceError: if a line is not a result, or has another version.
    """
    with source(path):
        for number, text in enumerate(path.read_text().splitlines(), 1):
            try:
                content = _parsed(text, {"file": str})
            except TraceError as error:
                raise TraceError(f"line {number}: {error}") from error
            yield content["file"], Numbers(**_attributes(content))


def complete(path: Path) -> bool:
    """Returns whether `path` and its predictions exist."""
    return path.is_file() and path.with_suffix(".parquet").is_file()


def plain(value: Any) -> Any:
    """Converts a value to JSON's numbers, lists and objects; NaN and infinity become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def estimates(metrics: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, float | None]]]:
    """Yields names and values of the metrics with an interval."""
    for name, value in metrics.items():
        if isinstance(value, dict) and value.keys() == {"value", "low", "high"}:
            yield name, value


def _content(numbers: Numbers) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": __version__,
        "data": numbers.data,
        "spec": numbers.spec.to_dict(),
        "facts": numbers.facts,
        "metrics": numbers.metrics,
        "took": numbers.elapsed,
    }


def _parsed(text: str, further: Mapping[str, type] | None = None) -> dict[str, Any]:
    """Parses the JSON of `_content`, and checks the types of its parts and of `further` ones."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"not a result: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise TraceError(f"not a result of format {FORMAT}")
    wanted = {**_PARTS, **(further or {})}
    missing = [name for name in wanted if not isinstance(content.get(name), wanted[name])]
    if missing:
        raise TraceError(f"not a complete result: it lacks {', '.join(missing)}")
    return content


def _attributes(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `Numbers` from a parsed file."""
    from anabranch.evaluate.errors import ERRORS
    from anabranch.evaluate.spec import Spec

    parts = {name: content[name] for name in ("data", "facts", "metrics")}
    try:
        spec = Spec.from_dict(_EARLIER | content["spec"])
        return parts | {"spec": spec, "elapsed": content["took"]}
    except ERRORS as error:
        raise TraceError(f"the result has unknown settings: {error}") from error


_LATER = {"draw": "load", "train_on": None}
"""Settings that were added after the first results. At their defaults they are left out of the
hash, so that older results keep their names.
"""

_EARLIER = {"mode": "together"}
"""Values of settings for stored results without them: the earlier defaults."""

_PARTS = {"spec": dict, "data": str, "facts": dict, "metrics": dict, "took": dict}


def _table(result: Result) -> pa.Table:
    columns = {item.name: getattr(result.outcomes, item.name) for item in fields(Outcomes)}
    table = pa.table(columns)
    return table.replace_schema_metadata({"anabranch.labels": json.dumps(result.names)})


def _rows(path: Path) -> tuple[Outcomes, tuple[str, ...]]:
    with source(path):
        if not path.is_file():
            raise TraceError(
                "the file of its predictions is missing: it must be in the same folder"
            )
        try:
            table = pq.read_table(path, page_checksum_verification=True)
            names = json.loads(table.schema.metadata[b"anabranch.labels"])
            columns = [table.column(item.name).to_numpy() for item in fields(Outcomes)]
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise TraceError(f"not a readable file of predictions: {error}") from error
    return Outcomes(*columns), tuple(names)
