"""The Debian package: built, checked, installed, used and removed, all outside this system."""

from __future__ import annotations

import hashlib
import os
import pwd
import subprocess
from pathlib import Path

import pytest

from harness.net import namespaces_allowed
from harness.tools import INTEROP, MissingPeer, anabranch, tool

pytestmark = pytest.mark.operate

BUILD = INTEROP.parent.parent / "packaging/deb/build"
CONFIGURATION = """\
listen = "127.0.0.1:51820"
to = "127.0.0.1:51821"
[[path]]
name = "one"
address = "127.0.0.2"
"""
# Makes a separate root file system: an overlay of this system, with changes in memory.
SYSTEM = """
mount -t tmpfs none "$1" && cd "$1" && mkdir upper work root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
for folder in proc dev; do mount --rbind /$folder root/$folder; done
# Nothing here may speak with the machine's own systemd, where it has one.
mount -t tmpfs none root/run
cp -- "$2" "$3" root/tmp
exec chroot root sh -ec "$4" sh "$(basename "$2")"
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the package of the program under test, and returns its path."""
    tool("dpkg-shlibdeps")
    return _build(tmp_path_factory.mktemp("package"))


def _build(folder: Path) -> Path:
    done = subprocess.run([BUILD, anabranch(), folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_lintian_has_nothing_against_the_package(package: Path) -> None:
    """Lintian reports no errors and no warnings; overrides have a reason in the package."""
    command = [tool("lintian"), "--allow-root", "--fail-on", "error,warning", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stdout.strip()


def test_the_same_binary_gives_the_same_package(package: Path, tmp_path: Path) -> None:
    """Two builds of the package are equal, byte for byte."""
    both = [package, _build(tmp_path)]
    hashes = {hashlib.sha256(each.read_bytes()).hexdigest() for each in both}
    assert len(hashes) == 1


def _in_a_system(package: Path, folder: Path, script: str) -> str:
    if not namespaces_allowed():
        raise MissingPeer("mount namespaces, which need root here")
    configuration = folder / "home.toml"
    configuration.write_text(CONFIGURATION)
    system = folder / "system"
    system.mkdir()
    command = [tool("unshare"), "--mount", "--propagation=private", "sh", "-ec", SYSTEM, "sh"]
    done = subprocess.run(
        [*command, str(system), str(package), str(configuration), script],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_installed_package_works(package: Path, tmp_path: Path) -> None:
    """Program, man page, completions, unit and user are in the standard places."""
    said = _in_a_system(
        package,
        tmp_path,
        """
        dpkg -i "/tmp/$1" >/dev/null
        mv /tmp/home.toml /etc/anabranch
        anabranch split --check /etc/anabranch/home.toml
        stat -c '%U:%G %a %n' /etc/anabranch
        getent passwd anabranch
        man -w anabranch-split
        bash -c '. /usr/share/bash-completion/completions/anabranch; complete -p anabranch'
        systemd-analyze verify anabranch-split@home.service anabranch-relay@home.service \
            anabranch-merge@home.service && echo unit ok
        dpkg-query --show --showformat='${Conffiles}\n' anabranch
        """,
    )
    for wanted in (
        "one   lo         127.0.0.2",
        "root:anabranch 750 /etc/anabranch",
        "/var/lib/anabranch",
        "/usr/share/man/man1/anabranch-split.1.gz",
        "-F _anabranch",
        "unit ok",
        "/etc/anabranch/example.toml",
    ):
        assert wanted in said, said
    with pytest.raises(KeyError):
        pwd.getpwnam("anabranch")


def test_a_removed_package_leaves_the_administrators_files_and_a_purged_one_its_user(
    package: Path, tmp_path: Path
) -> None:
    """Files that the administrator wrote stay; no other file of the package does."""
    said = _in_a_system(
        package,
        tmp_path,
        """
        dpkg -i "/tmp/$1" >/dev/null
        mv /tmp/home.toml /etc/anabranch
        mkdir -p /var/lib/anabranch/home
        dpkg --remove anabranch >/dev/null
        ls /etc/anabranch
        dpkg --purge anabranch >/dev/null
        find /etc /usr /var -xdev -name '*anabranch*' -newer "/tmp/$1"
        ls /etc/anabranch
        """,
    )
    assert said.splitlines() == ["example.toml", "home.toml", "/etc/anabranch", "home.toml"]
