"""The columns of traces: one file for Rust and Python, and the table of docs/formats.md."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch import io
from anabranch.io import parquet
from making import made

ROOT = Path(__file__).parents[2]
COLUMNS = json.loads((ROOT / "lab/src/anabranch/io/columns.json").read_text())["columns"]
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([A-Z0-9_]+)(?:, (.+?))? \| (.+) \|$", re.MULTILINE)
PHYSICAL = {"int64": "INT64", "int32": "INT32", "boolean": "BOOLEAN", "double": "DOUBLE",
            "binary": "BYTE_ARRAY"}  # fmt: skip


def test_the_document_has_the_same_columns() -> None:
    text = (ROOT / "docs/formats.md").read_text("utf-8")
    table = text.partition("### Columns")[2].partition("###")[0]
    found = [
        (name, arrow, physical, "*optional:*" in meaning)
        for name, arrow, physical, _, meaning in ROW.findall(table)
    ]
    assert found == [
        (
            each["name"],
            each["arrow"],
            PHYSICAL[each["parquet"].split()[1]],
            each.get("optional", False),
        )
        for each in COLUMNS
    ]


def test_a_file_has_them_in_this_order(tmp_path: Path) -> None:
    io.write(made(), tmp_path / "a.parquet")
    schema = pq.read_schema(tmp_path / "a.parquet")
    needed = [each for each in COLUMNS if not each.get("optional")]
    assert schema.names == [each["name"] for each in needed]
    assert schema.types == [pa.type_for_alias(each["arrow"]) for each in needed]
    assert schema.metadata[b"anabranch.schema"].decode() == parquet.SCHEMA == "1"


def test_parquet_types_hold_the_arrow_types() -> None:
    kinds = {
        "int64": "int64", "string": "binary (STRING)", "bool": "boolean",
        "int32": "int32 (INTEGER(32, true))", "int16": "int32 (INTEGER(16, true))",
        "float64": "double",
    }  # fmt: skip
    for each in COLUMNS:
        physical, *annotation = kinds[each["arrow"]].split(" ", 1)
        parts = ["required", physical, each["name"], *annotation]
        assert each["parquet"] == f"{' '.join(parts)};"
