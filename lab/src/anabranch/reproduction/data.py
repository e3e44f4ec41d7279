"""Reader of the committed data of `docs/results`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from anabranch.validate import source

Row: TypeAlias = dict[str, Any]


class Data:
    """The data files of a folder, each read at most once.

    Attributes:
        folder: `docs/results` of a checkout.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = cache(self._table)
        self.results = cache(self._results)
        self.page = cache(self._page)

    def _table(self, name: str) -> list[Row]:
        """Returns all rows of a Parquet file.

        Raises:
            TraceError: if it cannot be read.
        """
        path = self.folder / name
        with source(path):
            rows: list[Row] = pq.read_table(path).to_pylist()
        return rows

    def _results(self, name: str) -> list[Row]:
        """Returns all results of a file that `anabranch-lab report --numbers` wrote.

        Raises:
            TraceError: if it cannot be read.
        """
        path = self.folder / name
        with source(path):
            return [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    def _page(self, name: str) -> str:
        """Returns the text of a page.

        Raises:
            TraceError: if it cannot be read.
        """
        path = self.folder / name
        with source(path):
            return path.read_text("utf-8")
