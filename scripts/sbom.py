#!/usr/bin/env python3
"""Prints the crates that are linked into a package, as a CycloneDX 1.5 document (JSON).

Usage: scripts/sbom.py PACKAGE TARGET      (anabranch or anabranch-py; x86_64-unknown-linux-musl)

Equal sources give equal bytes: the document contains no time, random serial number or local path.
Checksums are from Cargo.lock.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def _cargo(*arguments: str) -> str:
    command = ["cargo", *arguments, "--locked"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def linked(package: str, target: str) -> list[dict[str, Any]]:
    """Returns the packages linked into `package` for `target`, itself first, then by name."""
    options = ("-e", "normal", "--prefix", "none", "-f", "{p}")
    tree = _cargo("tree", "-p", package, "--target", target, *options)
    names = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    found = json.loads(_cargo("metadata", "--format-version", "1"))["packages"]
    there = [each for each in found if (each["name"], f"v{each['version']}") in names]
    return sorted(there, key=lambda each: (each["name"] != package, each["name"], each["version"]))


def document(package: str, target: str) -> dict[str, Any]:
    """Returns the document of a package."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    sums = {(each["name"], each["version"]): each.get("checksum") for each in lock["package"]}
    own, *others = linked(package, target)
    properties = [{"name": "rust:target", "value": target}]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": _component(own, "application", None) | {"properties": properties},
        },
        "components": [
            _component(each, "library", sums.get((each["name"], each["version"])))
            for each in others
        ],
    }


def _component(package: dict[str, Any], kind: str, checksum: str | None) -> dict[str, Any]:
    name, version = package["name"], package["version"]
    purl = f"pkg:cargo/{name}@{version}"
    component: dict[str, Any] = {
        "type": kind,
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    if package["license"]:
        component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum is not None:
        component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return component


def main() -> int:
    """Prints the document."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    print(json.dumps(document(*sys.argv[1:]), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
