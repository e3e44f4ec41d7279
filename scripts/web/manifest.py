"""The manifest of the local web: its sites, each a page of a version of a package."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from package import Package

HEAD = """# The local web: one page of each of these packages, made into a site by build.py.
# Written by choose.py; nothing of the packages is part of this project.
"""


@dataclass(frozen=True)
class Site:
    """A page and its source.

    `root` is the site's root within the package, `page` the page's path from there. `monitored`
    marks the pages that an attacker looks for; the others are the rest of the web.
    """

    name: str
    monitored: bool
    package: Package
    root: PurePosixPath
    page: PurePosixPath


@dataclass(frozen=True)
class Manifest:
    """All sites, and the packages whose files they link to (scripts, fonts, themes)."""

    common: tuple[Package, ...]
    sites: tuple[Site, ...]


def family(name: str) -> str:
    """Returns the name that all versions of a site share: its name without version and prefix."""
    plain = re.sub(r"[-.]?(qt|python)?\d[\d.]*", "", name.removesuffix("-doc").removeprefix("lib"))
    return plain.strip("-.") or name


def read(path: Path) -> Manifest:
    """Reads the manifest from a TOML file.

    Raises:
        KeyError, ValueError: if the file is damaged, or two sites are versions of the same site.
            Otherwise a version of a monitored page could be among the unmonitored ones.
    """
    table = tomllib.loads(path.read_text())
    sites = tuple(
        Site(
            row["name"],
            row["monitored"],
            _package(row),
            PurePosixPath(row["root"]),
            PurePosixPath(row["page"]),
        )
        for row in table["site"]
    )
    known: dict[str, str] = {}
    for site in sites:
        kin = family(site.name)
        if kin in known:
            raise ValueError(f"{site.name} and {known[kin]} are the same site: keep one of them")
        known[kin] = site.name
    return Manifest(tuple(_package(row) for row in table["common"]), sites)


def write(manifest: Manifest, path: Path) -> None:
    """Writes the format that `read` reads, one line for each package and site."""
    common = [f"  {{ {_words(package)} }},\n" for package in manifest.common]
    sites = [
        f'  {{ name = "{site.name}", monitored = {str(site.monitored).lower()}, '
        f'{_words(site.package)}, root = "{site.root}", page = "{site.page}" }},\n'
        for site in manifest.sites
    ]
    path.write_text(
        f"{HEAD}\ncommon = [\n{''.join(common)}]\n\nsite = [\n{''.join(sites)}]\n", "utf-8"
    )


def _package(row: dict[str, str]) -> Package:
    return Package(row["registry"], row["package"], row["version"], row["sha256"])


def _words(package: Package) -> str:
    return (
        f'registry = "{package.registry}", package = "{package.name}", '
        f'version = "{package.version}", sha256 = "{package.sha256}"'
    )
