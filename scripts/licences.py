#!/usr/bin/env python3
"""Lists the licences of all crates that are linked into the program.

Usage: scripts/licences.py            prints each crate's name, version and licence, then every text
       scripts/licences.py --check    only checks that each licence is accepted; prints each breach
                                      and then exits with status 1
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Accepted licences: their code may be linked, with notices, into a program under MIT or
# Apache-2.0.
TAKEN = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-1-Clause", "BSD-2-Clause",
    "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0",
    "MPL-2.0", "OpenSSL", "Unicode-3.0", "Unlicense", "WTFPL", "Zlib",
}  # fmt: skip
TEXTS = re.compile(r"(?i)^(licen[cs]e|copying|notice|copyright|unlicense)[\w.+-]*$")


def linked() -> list[dict[str, Any]]:
    """Returns the third-party packages that are linked into the program, sorted by name."""
    tree = _cargo("tree", "-p", "anabranch", "-e", "normal", "--prefix", "none", "-f", "{p}")
    names = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    packages = json.loads(_cargo("metadata", "--format-version", "1"))["packages"]
    found = [p for p in packages if (p["name"], f"v{p['version']}") in names and p["source"]]
    return sorted(found, key=lambda p: (p["name"], p["version"]))


def _cargo(*arguments: str) -> str:
    command = ["cargo", *arguments, "--locked"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def is_taken(expression: str) -> bool:
    """Returns whether an SPDX expression can be satisfied with accepted licences.

    For ``A OR B`` one licence must be accepted, for ``A AND B`` both. ``A/B`` is an old form of
    ``A OR B``.
    """
    words = expression.replace("/", " OR ").replace("(", " ( ").replace(")", " ) ").split()
    joined = re.sub(r"(\S+) WITH (\S+)", r"\1_WITH_\2", " ".join(words)).split()
    terms = [
        {"OR": "or", "AND": "and", "(": "(", ")": ")"}.get(
            word, str(word.replace("_WITH_", " WITH ") in TAKEN)
        )
        for word in joined
    ]
    return bool(terms) and _value(terms)


def _value(terms: list[str]) -> bool:
    """Evaluates an expression of ``True``, ``False``, ``and``, ``or`` and brackets."""
    total = False
    product = True
    while terms:
        match terms.pop(0):
            case "(":
                product = product and _value(terms)
            case ")":
                break
            case "or":
                total, product = total or product, True
            case "and":
                pass
            case word:
                product = product and word == "True"
    return total or product


def texts(package: dict[str, Any]) -> dict[str, str]:
    """Returns the licence texts that a package ships, by file name."""
    folder = Path(package["manifest_path"]).parent
    # C libraries in subfolders have licence texts of their own.
    there = [path for path in [*folder.glob("*"), *folder.glob("*/*")] if path.is_file()]
    files = sorted(path for path in there if TEXTS.match(path.name) and path.suffix != ".rs")
    read = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {name: text.decode(errors="replace") for name, text in read.items()}


def breaches(packages: list[dict[str, Any]]) -> list[str]:
    """Returns the packages with a licence that is not accepted."""
    found = []
    for package in packages:
        name, licence = f"{package['name']} {package['version']}", package["license"] or ""
        if not is_taken(licence):
            found.append(f"{name}: licence {licence!r} is not accepted: remove this crate")
    return found


def told(packages: list[dict[str, Any]]) -> str:
    """Returns all notices: the list, then every text once with its packages."""
    lines = ["The libraries in the program anabranch, each with its licence.", ""]
    users: dict[str, list[str]] = {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        lines.append(f"{name}: {package['license']}  {package['repository'] or ''}".rstrip())
        for text in texts(package).values():
            users.setdefault(text.strip(), []).append(name)
        if not texts(package):
            lines.append(f"    without a text; by {', '.join(package['authors']) or 'its authors'}")
    for text, names in users.items():
        lines += ["", "=" * 80, ", ".join(dict.fromkeys(names)), "-" * 80, text]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Checks, or prints the notices."""
    packages = linked()
    found = breaches(packages)
    for breach in found:
        print(f"licences: {breach}", file=sys.stderr)
    if "--check" in sys.argv[1:]:
        print(f"licences: {len(found)} of {len(packages)} third-party crates are not accepted")
        return 1 if found else 0
    sys.stdout.write(told(packages))
    return 0


if __name__ == "__main__":
    sys.exit(main())
