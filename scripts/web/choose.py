#!/usr/bin/env python3
"""Chooses the pages of the local web and writes the manifest; only for a new manifest.

Usage: scripts/web/choose.py --debian NAMES --npm NAMES --cache DIR --out manifest.toml
       [--sites N] [--monitored N] [--seed N]

NAMES are files with one package name on each line. A package, in any version, gives at most one
site, whose page is drawn at random among the candidates. A candidate page loads 6 to 400 files of
its own site, in total 60 kB to 8 MB, lacks at most two files, and refers to at most four other
hosts (unreachable in the local web, as if blocked). All sites of npm are used, and randomly drawn
sites of Debian until there are enough. The monitored sites are drawn at random too.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from manifest import Manifest, Site, family, write
from package import Package, Unavailable, described, digest, fetch, plain, unpack
from page import PAGES, Needs, needs
from tree import Tree

FILES = range(6, 401)
BYTES = range(60_000, 8_000_000)
MISSING = 2
ELSEWHERE = 4
# Maximum number of candidate pages to check per package.
LOOKED_AT = 40
# Packages of scripts and fonts that Debian's documentation links to.
COMMON = (
    "fonts-font-awesome", "fonts-lato", "fonts-liberation", "fonts-mathjax",
    "fonts-roboto-unhinted", "libjs-bootstrap", "libjs-bootstrap4", "libjs-highlight.js",
    "libjs-jquery", "libjs-jquery-cookie", "libjs-jquery-ui", "libjs-lunr", "libjs-mathjax",
    "libjs-modernizr", "libjs-requirejs", "libjs-sphinxdoc", "libjs-underscore", "node-requirejs",
    "sphinx-common", "sphinx-rtd-theme-common",
)  # fmt: skip


def main() -> int:
    """Checks every candidate, prints its result, and writes the manifest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--debian", type=Path, required=True)
    parser.add_argument("--npm", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sites", type=int, default=370)
    parser.add_argument("--monitored", type=int, default=45)
    parser.add_argument("--seed", type=int, default=0)
    wish = parser.parse_args()
    common = [_pinned(Package("debian", name, "", ""), wish.cache) for name in COMMON]
    layers = tuple(
        unpack(fetch(package, wish.cache), wish.cache / plain(package.name)) for package in common
    )
    candidates = [
        Package(registry, name, "", "")
        for registry, names in (("debian", wish.debian), ("npm", wish.npm))
        for name in names.read_text().split()
    ]
    dice = random.Random(wish.seed)
    sites = _enough(list(_sites(candidates, layers, wish.cache, wish.seed)), wish.sites, dice)
    chosen = [replace(site, monitored=n < wish.monitored) for n, site in enumerate(sites)]
    write(Manifest(tuple(common), tuple(chosen)), wish.out)
    print(f"wrote {wish.out}: {len(chosen)} sites, {wish.monitored} of them monitored")
    return 0


def _enough(sites: list[Site], most: int, dice: random.Random) -> list[Site]:
    """Returns at most `most` sites, npm's first, in random order, one for each family of names."""
    dice.shuffle(sites)
    sites = list({family(site.name): site for site in sites}.values())
    kept = sorted(sites, key=lambda site: site.package.registry != "npm")[:most]
    dice.shuffle(kept)
    return kept


def _sites(
    candidates: list[Package], layers: tuple[Path, ...], cache: Path, seed: int
) -> Iterator[Site]:
    for candidate in candidates:
        try:
            archive = fetch(candidate, cache)
        except Unavailable as error:
            print(f"package left out: {error}", file=sys.stderr)
            continue
        folder = unpack(archive, cache / plain(candidate.name))
        name, version = described(archive, folder)
        package = Package(candidate.registry, name, version, digest(archive))
        site = _site(package, folder, layers, random.Random(f"{seed} {candidate.name}"))
        print(f"{candidate.name}: {site.page if site else 'no suitable page'}", flush=True)
        shutil.rmtree(folder)
        if site:
            yield site


def _site(
    package: Package, folder: Path, layers: tuple[Path, ...], dice: random.Random
) -> Site | None:
    """Returns a random page of a package that meets the conditions; None if there is none."""
    tree = Tree((folder, *layers))
    pages = sorted(_pages(folder))
    for page in dice.sample(pages, min(LOOKED_AT, len(pages))):
        found = needs(tree, PurePosixPath(), page)
        if not _fits(found):
            continue
        root = PurePosixPath(os.path.commonpath([at.parent for at in found.here]))
        return Site(plain(package.name), False, package, root, page.relative_to(root))
    return None


def _pages(folder: Path) -> Iterator[PurePosixPath]:
    for at in folder.rglob("*"):
        if at.suffix in PAGES and at.is_file() and not at.is_symlink() and '"' not in str(at):
            yield PurePosixPath(at.relative_to(folder))


def _fits(found: Needs) -> bool:
    return (
        len(found.here) in FILES
        and found.size in BYTES
        and len(found.missing) <= MISSING
        and len(found.elsewhere) <= ELSEWHERE
    )


def _pinned(package: Package, cache: Path) -> Package:
    """Returns the package with the registry's current version and hash."""
    archive = fetch(package, cache)
    name, version = described(archive, cache)
    return Package(package.registry, name, version, digest(archive))


if __name__ == "__main__":
    sys.exit(main())
