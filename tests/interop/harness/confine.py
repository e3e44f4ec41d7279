"""Runs a program under the system call filter of a systemd unit, as systemd would set it.

Usage: confine.py RULES.json PROGRAM ARGUMENT...   (``harness.service`` writes the rules)

This program imports no module of the harness, because it runs as a user who cannot read them. The
filter is made with libseccomp, as in systemd.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import sys
from pathlib import Path

ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM
EQUAL, MASKED_EQUAL = 4, 7
PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000


class Comparison(ctypes.Structure):
    """libseccomp's ``struct scmp_arg_cmp``: compares an argument of a system call with a value."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("how", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class Filter:
    """A filter that refuses (EPERM) every system call without a rule that allows it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(REFUSE))

    def allow(self, name: str, *comparisons: Comparison) -> None:
        """Allows the call if all comparisons hold; ignores unknown calls."""
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            return
        array = (Comparison * len(comparisons))(*comparisons)
        add = self._library.seccomp_rule_add_array
        if failed := add(self._context, ALLOW, number, len(comparisons), array):
            raise OSError(-failed, f"{name}: {os.strerror(-failed)}")

    def load(self) -> None:
        """Loads the filter for this process and its future children."""
        if failed := self._library.seccomp_load(self._context):
            raise OSError(-failed, f"seccomp_load: {os.strerror(-failed)}")


def memory(rules: Filter) -> None:
    """Applies MemoryDenyWriteExecute=yes: no writable memory becomes executable."""
    both = PROT_WRITE | PROT_EXEC
    for protection in (0, PROT_WRITE, PROT_EXEC):
        rules.allow("mmap", Comparison(2, MASKED_EQUAL, both, protection))
    for name in ("mprotect", "pkey_mprotect"):
        rules.allow(name, Comparison(2, MASKED_EQUAL, PROT_EXEC, 0))
    rules.allow("shmat", Comparison(2, MASKED_EQUAL, SHM_EXEC, 0))


def main() -> None:
    """Loads the filter, then executes the program."""
    rules = json.loads(Path(sys.argv[1]).read_text())
    special = {"socket", "mmap", "mprotect", "pkey_mprotect", "shmat"}
    made = Filter()
    for name in set(rules["calls"]) - special:
        made.allow(name)
    for family in rules["families"]:
        made.allow("socket", Comparison(0, EQUAL, getattr(socket, family), 0))
    memory(made)
    made.load()
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
