"""OpenSSH's server on a host of the emulated network, with keys made for it, and no passwords."""

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
    """A running sshd that lets one key in, as the user who runs the tests."""

    def __init__(self, host: Host, folder: Path):
        """``folder`` gets the keys and the configuration; nothing elsewhere is read or written."""
        self.user = getpass.getuser()
        self._folder = folder
        for name in ("host", "user"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            host.must(key)
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        if os.geteuid() == 0:
            # The package's own start makes it: an empty folder to be confined in.
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
        """The command that logs in here and trusts this server only, at these addresses."""
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
