#!/usr/bin/env python3
"""Tests of the local web's builder, with packages that the tests make."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest
from pathlib import Path, PurePosixPath
from unittest import mock

sys.dont_write_bytecode = True
import build  # noqa: E402
import manifest  # noqa: E402
from package import Package, Unavailable, digest, fetch  # noqa: E402
from page import in_css, in_html, needs  # noqa: E402
from tree import Tree  # noqa: E402


class Web(unittest.TestCase):
    """The builder on a temporary folder for each test."""

    def setUp(self) -> None:
        """Makes an empty folder."""
        self.root = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, path: str, text: str) -> None:
        """Writes one file below the folder."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def test_a_page_needs_what_its_html_and_style_sheets_name(self) -> None:
        self.write(
            "a/index.html",
            '<link rel=stylesheet href="css/m.css?v=2"><link rel=next href="next.html">'
            '<img src="pic%201.png"><script src="//cdn.example/x.js"></script>'
            '<p style="background: url(bg.png)"><img src="data:image/png;base64,AA">',
        )
        self.write("a/css/m.css", '@import "n.css"; b { src: url("../f.woff") }')
        self.write("a/css/n.css", "")
        for name in ("pic 1.png", "f.woff", "next.html"):
            self.write(f"a/{name}", "1234")
        found = needs(Tree((self.root,)), PurePosixPath("a"), PurePosixPath("index.html"))
        names = {"index.html", "css/m.css", "css/n.css", "pic 1.png", "f.woff"}
        assert {str(at) for at in found.here} == names
        assert {str(at) for at in found.missing} == {"bg.png"}
        assert found.elsewhere == {"cdn.example"}
        assert found.size == sum((self.root / "a" / name).stat().st_size for name in names)

    def test_addresses_are_found_in_every_form(self) -> None:
        assert list(in_css("a{b:url( 'x' )} c{d:url(y)} @import 'z';")) == ["x", "y", "z"]
        assert list(in_html("<style>a{b:url(x)}</style>url(no)<body background=y>")) == ["x", "y"]

    def test_what_is_no_html_is_passed_over(self) -> None:
        assert list(in_html("<![figure[a]><img src=x>")) == ["x"]
        assert list(in_html("<![if IE]><img src=x>")) == ["x"]

    def test_links_lead_through_the_packages_and_never_out(self) -> None:
        self.write("own/doc/index.html", "")
        self.write("other/usr/lib/jquery.js", "js")
        (self.root / "own/doc/jquery.js").symlink_to("../usr/lib/jquery.js")
        (self.root / "own/doc/lib").symlink_to("/usr/lib")
        (self.root / "own/doc/passwd").symlink_to("../../../../../../etc/passwd")
        (self.root / "own/doc/circle").symlink_to("circle")
        tree = Tree((self.root / "own", self.root / "other"))
        script = self.root / "other/usr/lib/jquery.js"
        assert tree.find(PurePosixPath("doc/jquery.js")) == script
        assert tree.find(PurePosixPath("doc/lib/jquery.js")) == script
        assert Path("/etc/passwd").exists()
        assert tree.find(PurePosixPath("doc/passwd")) is None
        assert tree.find(PurePosixPath("doc/circle")) is None

    def test_a_manifest_comes_back_as_it_was_written(self) -> None:
        package = Package("npm", "@a/b", "1.0", "00")
        site = manifest.Site("a-b", True, package, PurePosixPath("p"), PurePosixPath("i.html"))
        written = manifest.Manifest((Package("debian", "c", "2:1~3", "11"),), (site,))
        manifest.write(written, self.root / "m.toml")
        assert manifest.read(self.root / "m.toml") == written

    def test_sites_are_laid_out_from_archives(self) -> None:
        theirs = self.archived("b", "1.0", {"docs/i.html": "<img src=p.png>", "docs/p.png": "4"})
        site = manifest.Site(
            "b", False, theirs, PurePosixPath("package/docs"), PurePosixPath("i.html")
        )
        manifest.write(manifest.Manifest((), (site,)), self.root / "m.toml")
        assert self.build() == 0
        assert (self.root / "out/b/p.png").read_text() == "4"
        (listed,) = tomllib.loads((self.root / "out/sites.toml").read_text())["site"]
        assert listed == {
            "name": "b", "monitored": False, "page": "i.html", "files": 2, "bytes": 16,
            "source": f"npm b 1.0 {theirs.sha256}",
        }  # fmt: skip

    def test_a_site_is_made_anew_when_its_package_or_page_is_another(self) -> None:
        files = {"i.html": "<img src=p.png>", "j.html": "", "p.png": "4"}
        for version, page in (("1.0", "i.html"), ("1.0", "j.html"), ("2.0", "j.html")):
            theirs = self.archived("b", version, files | {"j.html": version})
            site = manifest.Site("b", True, theirs, PurePosixPath("package"), PurePosixPath(page))
            manifest.write(manifest.Manifest((), (site,)), self.root / "m.toml")
            assert self.build() == 0
            (listed,) = tomllib.loads((self.root / "out/sites.toml").read_text())["site"]
            assert (listed["page"], listed["source"].split()[2]) == (page, version)
        assert (self.root / "out/b/j.html").read_text() == "2.0"
        before = (self.root / "out/b/j.html").stat().st_mtime_ns
        assert self.build() == 0
        assert (self.root / "out/b/j.html").stat().st_mtime_ns == before

    def test_one_site_in_two_versions_is_refused(self) -> None:
        package = Package("npm", "x", "1.0", "00")
        for one, other in (
            ("libx-2.4-doc", "libx-1.4-doc"),
            ("a1-qt6-doc", "a1-qt5-doc"),
            ("b", "b"),
        ):
            sites = tuple(
                manifest.Site(name, True, package, PurePosixPath(), PurePosixPath("i.html"))
                for name in (one, other)
            )
            manifest.write(manifest.Manifest((), sites), self.root / "m.toml")
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                assert self.build() == 2
            assert f"{other} and {one} are the same site" in said.getvalue()

    def test_the_manifest_has_what_the_experiment_takes(self) -> None:
        sites = manifest.read(build.HERE / "manifest.toml").sites
        assert sum(site.monitored for site in sites) >= 40
        assert sum(not site.monitored for site in sites) >= 300
        assert all(len(site.package.sha256) == 64 and site.package.version for site in sites)

    def test_other_bytes_than_the_pinned_ones_are_refused(self) -> None:
        theirs = self.archived("b", "1.0", {"i.html": ""})
        other = Package("npm", "b", "1.0", "00")
        assert "differs from that in the manifest" in self.refusal(other)
        assert not theirs.archive(self.root / "cache").exists()

    def test_a_package_that_cannot_be_had_is_named(self) -> None:
        failed = subprocess.CompletedProcess([], 1, "", "E: no such package\n")
        with mock.patch("subprocess.run", return_value=failed):
            said = self.refusal(Package("npm", "b", "1.0", "00"))
        assert said == "b 1.0: E: no such package"
        assert list((self.root / "cache").iterdir()) == []

    def test_a_damaged_manifest_is_misuse(self) -> None:
        self.write("m.toml", "common = []\n")
        assert self.build() == 2

    def archived(self, name: str, version: str, files: dict[str, str]) -> Package:
        """Puts a package in npm's format into the cache."""
        package = Package("npm", name, version, "")
        at = package.archive(self.root / "cache")
        at.parent.mkdir(exist_ok=True)
        with tarfile.open(at, "w:gz") as archive:
            for path, text in files.items():
                entry = tarfile.TarInfo(f"package/{path}")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        return Package("npm", name, version, digest(at))

    def refusal(self, package: Package) -> str:
        """Returns the error message of fetching an unavailable package; empty if it was fetched."""
        try:
            fetch(package, self.root / "cache")
        except Unavailable as error:
            return str(error)
        return ""

    def build(self) -> int:
        """Runs the builder on the folder's manifest and returns the exit status."""
        arguments = [f"--{name}={self.root / path}" for name, path in
                     (("manifest", "m.toml"), ("cache", "cache"), ("out", "out"))]  # fmt: skip
        with mock.patch.object(sys, "argv", ["build.py", *arguments]):
            return build.main()


if __name__ == "__main__":
    unittest.main()
