"""Packages of the two registries: fetched by their ordinary clients, checked by hash, unpacked."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

APT = ("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root")
# Number of packages per call of apt.
AT_ONCE = 40


class Unavailable(Exception):
    """The registry lacks a package or has it with another hash; the message names the package."""


@dataclass(frozen=True)
class Package:
    """One version of one package. `registry` is `debian` or `npm`; `sha256` is of its archive."""

    registry: str
    name: str
    version: str
    sha256: str

    def archive(self, folder: Path) -> Path:
        """Returns the path of the package's fetched archive in `folder`."""
        ending = "deb" if self.registry == "debian" else "tgz"
        return folder / f"{plain(self.name)}-{plain(self.version)}.{ending}"


def plain(name: str) -> str:
    """Returns a package name as a folder's name: `@scope/name` without slash and at sign."""
    return name.lstrip("@").replace("/", "-").replace(":", "-").replace("~", "-")


def fetch(package: Package, folder: Path) -> Path:
    """Returns the package's archive in `folder`, after fetching it if needed.

    Raises:
        Unavailable: the registry does not have it, or it has another hash.
    """
    at = package.archive(folder)
    if not at.exists():
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f".{at.name}"
        scratch.mkdir(exist_ok=True)
        got = _download(package, scratch)
        got.rename(at)
        scratch.rmdir()
    if package.sha256 and digest(at) != package.sha256:
        at.unlink()
        raise Unavailable(
            f"{package.name} {package.version}: its SHA-256 differs from that in the manifest"
        )
    return at


def fetch_many(packages: Iterable[Package], folder: Path) -> None:
    """Fetches missing Debian packages, many at a time, because each start of apt takes seconds.

    Failures are left to `fetch`, which reports the reason.
    """
    waiting = [p for p in packages if p.registry == "debian" and not p.archive(folder).exists()]
    for first in range(0, len(waiting), AT_ONCE):
        group = {(p.name, p.version): p for p in waiting[first : first + AT_ONCE]}
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            names = [f"{name}={version}" for name, version in group]
            subprocess.run([*APT, *names], check=False, cwd=scratch, capture_output=True)
            for got in Path(scratch).glob("*.deb"):
                if package := group.get(described(got, folder)):
                    got.rename(package.archive(folder))


def _download(package: Package, folder: Path) -> Path:
    """Downloads one archive to the empty `folder`, by apt or npm."""
    if package.registry == "debian":
        version = f"={package.version}" if package.version else ""
        command = [*APT, package.name + version]
    else:
        version = f"@{package.version}" if package.version else ""
        command = ["npm", "pack", "--silent", "--ignore-scripts", package.name + version]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    got = [at for at in folder.iterdir() if at.suffix in {".deb", ".tgz"}]
    if done.returncode or not got:
        for at in folder.iterdir():
            at.unlink()
        folder.rmdir()
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no answer"]
        raise Unavailable(f"{package.name} {package.version}: {lines[-1]}")
    return got[0]


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks the archive's files below `folder`, once; returns the folder."""
    if not folder.exists():
        scratch = folder.with_name(folder.name + ".part")
        scratch.mkdir(parents=True, exist_ok=True)
        if archive.suffix == ".deb":
            subprocess.run(["dpkg-deb", "-x", archive, scratch], check=True)
        else:
            with tarfile.open(archive) as files:
                files.extractall(scratch, filter="data")
        scratch.rename(folder)
    return folder


def described(archive: Path, unpacked: Path) -> tuple[str, str]:
    """Returns name and version from the archive itself."""
    if archive.suffix == ".deb":
        command = ["dpkg-deb", "-W", "--showformat=${Package} ${Version}", str(archive)]
        name, version = subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout.split()
        return name, version
    (manifest,) = list(unpacked.glob("*/package.json"))[:1]
    said = json.loads(manifest.read_text())
    return said["name"], said["version"]


def digest(archive: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(archive.read_bytes()).hexdigest()
