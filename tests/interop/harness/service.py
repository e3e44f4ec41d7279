"""Emulates the systemd unit's confinement without systemd: user, capabilities, files, system
calls.

``tests/interop/README.md`` lists the parts that need systemd as the first process.
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

PACKAGING = INTEROP.parent.parent / "packaging"
UNIT = PACKAGING / "anabranch-split@.service"
RELAY = PACKAGING / "anabranch-relay@.service"
NOBODY = 65534
# ProtectSystem=strict, ProtectHome=yes and StateDirectory=.
MOUNTS = """
findmnt -rno TARGET | while read -r at; do
    case $at in /proc* | /sys* | /dev*) ;; *) mount -o remount,bind,ro "$at" ;; esac
done
for home in /home /root; do mount -t tmpfs -o ro,mode=000 none "$home"; done
mount -t tmpfs -o mode=0700,uid="$NOBODY",gid="$NOBODY" none "$STATE"
exec "$@"
"""


def settings(*files: Path) -> dict[str, list[str]]:
    """Returns the values of each setting of a unit and its drop-ins, in order. An empty value
    clears earlier values.
    """
    found: dict[str, list[str]] = {}
    for line in "\n".join(each.read_text() for each in files).splitlines():
        name, equals, value = line.partition("=")
        if not equals or line.startswith(("#", "[")):
            continue
        if value:
            found.setdefault(name, []).append(value)
        else:
            found[name] = []
    return found


def allowed_calls(filters: list[str]) -> set[str]:
    """Returns the system calls that ``SystemCallFilter=`` lines allow, by systemd's own lists."""
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
def confined(unit: Path = UNIT, *drop_ins: Path) -> Iterator[list[str]]:
    """Yields a command prefix that runs a program as the unit would, with these drop-ins.

    The unit's user cannot read root's home. Therefore :func:`program` returns a copy of the
    program under test, and :func:`state` the only writable folder.

    Raises:
        MissingPeer: if systemd-analyze, libseccomp or a tool is missing.
    """
    if not list(Path("/usr/lib").glob("*/libseccomp.so.2")):
        raise MissingPeer("libseccomp.so.2 (package libseccomp2)")
    found = settings(unit, *drop_ins)
    assert found["NoNewPrivileges"] == ["yes"]
    granted = found["CapabilityBoundingSet"]
    assert granted == found["AmbientCapabilities"]
    capabilities = ",".join(
        ["-all", *(f"+{each.removeprefix('CAP_').lower()}" for each in granted)]
    )
    folder = Path(tempfile.mkdtemp(prefix="anabranch-service-"))
    try:
        folder.chmod(0o755)
        calls = sorted(allowed_calls(found["SystemCallFilter"]))
        families = " ".join(found["RestrictAddressFamilies"]).split()
        rules = {"calls": calls, "families": families}
        (folder / "rules.json").write_text(json.dumps(rules))
        shutil.copy(INTEROP / "harness/confine.py", folder)
        shutil.copy(anabranch(), folder / "anabranch")
        (folder / "state").mkdir()
        yield [
            "unshare", "--mount", "--propagation=private",
            "env", f"NOBODY={NOBODY}", f"STATE={folder / 'state'}", "sh", "-ec", MOUNTS, "sh",
            tool("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
            f"--bounding-set={capabilities}", f"--inh-caps={capabilities}",
            f"--ambient-caps={capabilities}", "--no-new-privs",
            "/usr/bin/python3", "-I", str(folder / "confine.py"), str(folder / "rules.json"),
        ]  # fmt: skip
    finally:
        shutil.rmtree(folder)


def program(before: Sequence[str]) -> str:
    """Returns the copy of the program under test that :func:`confined` made."""
    return str(Path(before[-1]).with_name("anabranch"))


def state(before: Sequence[str]) -> str:
    """Returns the only folder writable to programs that :func:`confined` runs."""
    return str(Path(before[-1]).with_name("state"))
