#!/usr/bin/env python3
"""Builds the local web of a manifest: fetches the packages and lays out one folder for each site.

Usage: scripts/web/build.py [--manifest FILE] --cache DIR --out DIR [--sites N]

Each site is a folder OUT/NAME with its page and the files that the page can load. OUT/sites.toml
lists the name, monitored, page, files, bytes and source of each site. A second run builds only
sites that are missing or outdated. If packages are unavailable, their names are printed, all other
sites are built, and the exit status is 1. It is 2 if the manifest is unreadable.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from manifest import Manifest, Site, read
from package import Package, Unavailable, fetch, fetch_many, plain, unpack
from page import needs
from tree import Tree

HERE = Path(__file__).resolve().parent
# Types of files that a page's scripts may fetch in addition to the files in its HTML, up to
# `MOST_EXTRA` bytes per site.
FETCHED_BY_SCRIPTS = {
    ".js", ".mjs", ".json", ".css", ".svg", ".png", ".jpg", ".gif", ".webp", ".woff", ".woff2",
}  # fmt: skip
MOST_EXTRA = 20_000_000


def main() -> int:
    """Builds every missing site, then the list of the built ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--manifest", type=Path, default=HERE / "manifest.toml")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--sites", type=int, help="build only the first N sites of each kind; for tests"
    )
    wish = parser.parse_args()
    try:
        manifest = read(wish.manifest)
    except (OSError, KeyError, ValueError) as error:
        print(f"{wish.manifest}: {error}", file=sys.stderr)
        return 2
    sites = list(_some(manifest.sites, wish.sites))
    lacking = _lay_out(manifest, sites, wish.cache, wish.out)
    made = [site for site in sites if _is_made(wish.out, site)]
    (wish.out / "sites.toml").write_text("".join(_listed(wish.out, site) for site in made))
    print(f"{len(made)} of {len(sites)} sites are in {wish.out}")
    return 1 if lacking else 0


def _some(sites: tuple[Site, ...], most: int | None) -> Iterator[Site]:
    """Yields the first `most` monitored and the first `most` unmonitored sites, or all sites."""
    seen = {True: 0, False: 0}
    for site in sites:
        seen[site.monitored] += 1
        if most is None or seen[site.monitored] <= most:
            yield site


def _lay_out(manifest: Manifest, sites: list[Site], cache: Path, out: Path) -> int:
    """Builds the missing sites; prints unavailable packages and returns their number."""
    out.mkdir(parents=True, exist_ok=True)
    waiting = [site for site in sites if not _is_made(out, site)]
    if not waiting:
        return 0
    fetch_many([*manifest.common, *(site.package for site in waiting)], cache)
    lacking = 0
    layers = []
    for package in manifest.common:
        layers += [folder] if (folder := _unpacked(package, cache)) else []
        lacking += folder is None
    for number, site in enumerate(waiting, 1):
        print(f"{number}/{len(waiting)} {site.name}", flush=True)
        folder = _unpacked(site.package, cache)
        lacking += folder is None
        if folder:
            _copy(site, Tree((folder, *layers)), out)
            shutil.rmtree(folder)
    return lacking


def _is_made(out: Path, site: Site) -> bool:
    stamp = _stamp(out, site)
    made = (out / site.name).is_dir() and stamp.exists()
    return made and stamp.read_text() == _made_of(site)


def _stamp(out: Path, site: Site) -> Path:
    """Returns the path of the site's stamp file, next to its folder, which records its source."""
    return out / f".{site.name}.made"


def _made_of(site: Site) -> str:
    return f"{_source(site)} {site.root} {site.page}\n"


def _source(site: Site) -> str:
    package = site.package
    return f"{package.registry} {package.name} {package.version} {package.sha256}"


def _unpacked(package: Package, cache: Path) -> Path | None:
    try:
        return unpack(fetch(package, cache), cache / plain(package.name))
    except Unavailable as error:
        print(error, file=sys.stderr)
        return None


def _copy(site: Site, tree: Tree, out: Path) -> None:
    """Copies the site's files to OUT/NAME, all or none."""
    scratch = out / f".{site.name}"
    shutil.rmtree(scratch, ignore_errors=True)
    needed = needs(tree, site.root, site.page)
    for path in [*needed.here, *_extra(site, tree, set(needed.here))]:
        source = tree.find(site.root / path)
        if source is not None and source.is_file():
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, scratch / path)
    shutil.rmtree(out / site.name, ignore_errors=True)
    scratch.rename(out / site.name)
    _stamp(out, site).write_text(_made_of(site))


def _extra(site: Site, tree: Tree, known: set[PurePosixPath]) -> Iterator[PurePosixPath]:
    """Yields the files below the page's folder that its scripts may request, sorted by path."""
    base = tree.find(site.root / site.page.parent)
    left = MOST_EXTRA
    for at in sorted(base.rglob("*")) if base else []:
        path = site.page.parent / at.relative_to(base) if base else PurePosixPath()
        if at.suffix not in FETCHED_BY_SCRIPTS or path in known:
            continue
        file = tree.find(site.root / path)
        if file is None or not file.is_file():
            continue
        left -= file.stat().st_size
        if left < 0:
            return
        yield path


def _listed(out: Path, site: Site) -> str:
    """Returns one site's entry in OUT/sites.toml: its page, and the loads of its HTML and style
    sheets.
    """
    found = needs(Tree((out / site.name,)), PurePosixPath(), site.page)
    return (
        f'[[site]]\nname = "{site.name}"\nmonitored = {str(site.monitored).lower()}\n'
        f'page = "{site.page}"\nfiles = {len(found.here)}\nbytes = {found.size}\n'
        f'source = "{_source(site)}"\n\n'
    )


if __name__ == "__main__":
    sys.exit(main())
