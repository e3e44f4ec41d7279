"""OpenSSH's server on a host of the emulated network, with fresh keys and without passwords."""

from __future__ import annotations

import getpass
import os
import shlex
from pathlib import Path
from typing import Self

from harness.net import Host
from harness.tools import Background, tool

PORT = 2222


class Sshd:
    """A running sshd that accepts one key, for the user who runs the tests."""

    def __init__(self, host: Host, folder: Path):
        """Starts sshd with its keys and configuration in ``folder``; it uses no other files."""
        self.user = getpass.getuser()
        self._folder = folder
        for name in ("host", "user"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            host.must(key)
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        if os.geteuid() == 0:
            # The package's service creates this empty folder for privilege separation.
            Path("/run/sshd").mkdir(exist_ok=True)
        settings = folder / "sshd_config"
        settings.write_text(f"""\
Port {PORT}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
AllowUsers {self.user}
PermitRootLogin prohibit-password
""")
        self._process: Background = host.start([tool("sshd"), "-D", "-e", "-f", str(settings)])

    def ssh(self, *addresses: str, key: str = "user") -> str:
        """Returns the command that logs in here and trusts this server only, at these addresses."""
        host_key = " ".join((self._folder / "host.pub").read_text().split()[:2])
        known = self._folder / "known"
        known.write_text("".join(f"[{each}]:{PORT} {host_key}\n" for each in addresses))
        options = ["-F", "none", "-p", str(PORT), "-i", str(self._folder / key)]
        for option in (
            f"UserKnownHostsFile={known}", "StrictHostKeyChecking=yes", "BatchMode=yes",
            "IdentitiesOnly=yes", "IdentityAgent=none",
        ):  # fmt: skip
            options += ["-o", option]
        return shlex.join([tool("ssh"), *options])

    def __enter__(self) -> Self:
        self._process.wait_bound(PORT, "tcp")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()
