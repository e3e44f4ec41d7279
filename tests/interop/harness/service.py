"""The systemd unit's confinement without systemd: its user, capabilities, files, system calls.

What cannot be had without systemd as the first process is named in ``tests/interop/README.md``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.tools import INTEROP, MissingPeer, anabranch, tool

UNIT = INTEROP.parent.parent / "packaging/anabranch-split@.service"
NOBODY = 65534
# ProtectSystem=strict and ProtectHome=yes.
MOUNTS = """
findmnt -rno TARGET | while read -r at; do
    case $at in /proc* | /sys* | /dev*) ;; *) mount -o remount,bind,ro "$at" ;; esac
done
for home in /home /root; do mount -t tmpfs -o ro,mode=000 none "$home"; done
exec "$@"
"""


def settings(unit: Path = UNIT) -> dict[str, list[str]]:
    """Each setting of a unit with its values, in order; an empty value clears those before."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if not equals or line.startswith(("#", "[")):
            continue
        if value:
            found.setdefault(name, []).append(value)
        else:
            found[name] = []
    return found


def allowed_calls(filters: list[str]) -> set[str]:
    """The system calls that ``SystemCallFilter=`` lines leave, by systemd's own lists."""
    calls: set[str] = set()
    for line in filters:
        for word in line.removeprefix("~").split():
            calls = calls - _expanded(word) if line.startswith("~") else calls | _expanded(word)
    return calls | _expanded("@default")


def _expanded(word: str) -> set[str]:
    if not word.startswith("@"):
        return {word}
    command = [tool("systemd-analyze"), "syscall-filter", "--no-pager", word]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [line.strip() for line in listed.splitlines()[1:]]
    parts = [_expanded(name) for name in names if name and not name.startswith("#")]
    return set().union(*parts)


@contextmanager
def confined() -> Iterator[list[str]]:
    """The words that run what follows them as the unit would.

    Their user cannot read what lies in root's home: :func:`program` is the program under test.

    Raises:
        MissingPeer: systemd-analyze, libseccomp or a tool for it is not there.
    """
    if not list(Path("/usr/lib").glob("*/libseccomp.so.2")):
        raise MissingPeer("libseccomp.so.2 (package libseccomp2)")
    unit = settings()
    assert not unit["CapabilityBoundingSet"]
    assert unit["NoNewPrivileges"] == ["yes"]
    folder = Path(tempfile.mkdtemp(prefix="anabranch-service-"))
    try:
        folder.chmod(0o755)
        calls = sorted(allowed_calls(unit["SystemCallFilter"]))
        families = unit["RestrictAddressFamilies"][0].split()
        rules = {"calls": calls, "families": families}
        (folder / "rules.json").write_text(json.dumps(rules))
        shutil.copy(INTEROP / "harness/confine.py", folder)
        shutil.copy(anabranch(), folder / "anabranch")
        yield [
            "unshare", "--mount", "--propagation=private", "sh", "-ec", MOUNTS, "sh",
            tool("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
            "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs",
            "/usr/bin/python3", "-I", str(folder / "confine.py"), str(folder / "rules.json"),
        ]  # fmt: skip
    finally:
        shutil.rmtree(folder)


def program(before: Sequence[str]) -> str:
    """The copy of the program under test that :func:`confined` made."""
    return str(Path(before[-1]).with_name("anabranch"))
