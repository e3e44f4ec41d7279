"""Counts the lines of code of unordered links, as Table 1 of Nowlan, Wolinsky and Ford (FOCI 2013)
does: without blank lines, comments and tests.

    python3 scripts/code_size.py [FILE.md]

prints a table in Markdown, or writes it between the marks of a file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("<!-- code_size: begin -->", "<!-- code_size: end -->")
TLS = "crates/links/src/tls/"
# : Our counterparts of the paper's parts, as files that hold nothing else.
PARTS = {
    "uTCP: the tap": [
        "crates/router/src/onion/tap",
        "crates/os/src/bpf.rs",
        "crates/os/src/socket_option.rs",
    ],
    "uTLS: records before their turn": ["crates/links/src/utls"],
    "the record layer below it": [
        TLS + name
        for name in ("keys.rs", "messages.rs", "opener.rs", "records.rs", "sealer.rs", "secrets.rs")
    ],
    "uTor: numbers and each circuit's order": ["crates/onion/src/order.rs"],
}
# : All code of a relay or a client. The parts are shares of it.
WHOLE = [
    "crates/links/src",
    "crates/onion/src",
    "crates/router/src/onion",
    "crates/os/src/bpf.rs",
    "crates/os/src/socket_option.rs",
]


def code_lines(text: str) -> int:
    """Returns the number of lines of Rust code before the tests at the end of a file."""
    text = re.split(r"^#\[cfg\(test\)\]\n(?:pub\S* )?mod \w+ \{", text, flags=re.M)[0]
    lines = (line.strip() for line in text.splitlines())
    return sum(1 for line in lines if line and not line.startswith("//"))


def files(places: Iterable[str]) -> list[Path]:
    """Returns the Rust files in `places`, without `tests.rs` and `testing.rs`."""
    found = []
    for place in places:
        path = ROOT / place
        found += sorted(path.rglob("*.rs")) if path.is_dir() else [path]
    return [path for path in found if path.name not in ("tests.rs", "testing.rs")]


def count(places: Iterable[str]) -> tuple[int, int]:
    """Returns the numbers of Rust files and of lines of code in `places`."""
    found = files(places)
    return len(found), sum(code_lines(path.read_text()) for path in found)


def table() -> str:
    """Returns a table of all parts, and their share of the whole."""
    whole = count(WHOLE)
    rows = [(name, *count(places)) for name, places in PARTS.items()]
    rows.append(("all of them", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    lines = ["| part | files | lines of code | of the whole |", "|---|---|---|---|"]
    for name, number, size in rows:
        lines.append(f"| {name} | {number} | {size:,} | {100 * size / whole[1]:.1f} % |")
    lines.append(f"| relay, client, authority and links | {whole[0]} | {whole[1]:,} | |")
    lines.append("| the paper's Tor, before and after | | 81,418 → 81,513 | +0.1 % (“0.001%”) |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Prints the table, or writes it to a file."""
    if not arguments:
        print(table())
        return 0
    file = Path(arguments[0])
    before, rest = file.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    file.write_text(f"{before}{MARKS[0]}\n{table()}\n{MARKS[1]}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
