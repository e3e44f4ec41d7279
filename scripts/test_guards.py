#!/usr/bin/env python3
"""Tests that each guard can fail, with a good sample and bad ones."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import guards  # noqa: E402
import licences  # noqa: E402
import screen  # noqa: E402
import to_add  # noqa: E402
from rust_source import blank, functions, lines_without_tests  # noqa: E402

CORE = {"crates/comps/Cargo.toml": ""}
FENCE = (guards.ROOT / "crates/comps/clippy.toml").read_text()


class Guards(unittest.TestCase):
    """The guards on repositories of a few files."""

    def breaches(self, guard: guards.Guard, files: dict[str, str]) -> list[str]:
        """Returns the breaches that ``guard`` finds in a repository with these files."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            subprocess.run(["git", "init", "-q", folder], check=True)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(guard(guards.Repository(root)))

    def assert_told(self, guard: guards.Guard, files: dict[str, str], *told: str) -> None:
        """Asserts that the guard finds one breach for each text in ``told``, in order."""
        found = self.breaches(guard, files)
        assert len(found) == len(told), found
        for line, part in zip(found, told, strict=True):
            assert part in line

    def test_fences(self) -> None:
        name = "crates/comps/clippy.toml"
        self.assert_told(guards.fences, CORE | {name: FENCE})
        gap = FENCE.replace("std::time::Instant::now", "std::time::Instant::elapsed")
        self.assert_told(guards.fences, CORE | {name: gap}, "std::time::Instant::now")
        bare = FENCE.replace('reason = "files', 'reasons = "files')
        self.assert_told(guards.fences, CORE | {name: bare}, "std::fs::File")
        everything = len(guards.FENCED_METHODS | guards.FENCED_TYPES)
        assert len(self.breaches(guards.fences, CORE)) == everything

    def test_banned_dependencies(self) -> None:
        good = "anabranch-comps v0.1.0 (path)\nrand v0.10.0 \nrand_core v0.10.0 alloc,std\n"
        assert guards.banned(good) == []
        assert guards.banned(good + "socket2 v0.6.1 all\n") == ["depends on socket2"]
        assert guards.banned("getrandom v0.4.2 (*)\n") == ["depends on getrandom"]
        assert guards.banned("rand v0.10.0 alloc,std,thread_rng\n") == [
            "depends on rand/thread_rng"
        ]

    def test_lean_graphs(self) -> None:
        good = "anabranch-splitter v0.1.0 (path) \nlibc v0.2.0 std\ntokio-not v1.0.0 \n"
        unwanted = guards.LEAN["splitter"]
        assert guards.heavy(good, unwanted) == set()
        assert guards.heavy(good + "tokio v1.54.1 io-util (*)\n", unwanted) == {"tokio"}
        manifest = {"crates/splitter/Cargo.toml": ""}
        self.assert_told(guards.lean_graphs, manifest, "cargo tree failed")

    def test_a_core_whose_dependencies_cannot_be_listed(self) -> None:
        self.assert_told(guards.core_dependencies, CORE, "cargo tree failed")

    def test_features_for_tests(self) -> None:
        manifest, source = "crates/onion/Cargo.toml", "crates/onion/src/node.rs"
        good = {manifest: "[features]\nlatest = []\n", source: '#[cfg(feature = "onion")]\n'}
        self.assert_told(guards.test_features, good)
        bad = {manifest: "[features]\ntesting = []\n"}
        self.assert_told(guards.test_features, bad, "feature 'testing' for tests")
        for attribute in ("#[cfg(", "    #[cfg(any(test, ", "#![cfg(", "#[cfg_attr("):
            behind = {source: f'{attribute}feature = "testing")]\nfn forge() {{}}\n'}
            self.assert_told(guards.test_features, behind, "behind the feature 'testing'")

    def test_crate_shares(self) -> None:
        files = {f"crates/c{one}/src/lib.rs": "\n" * 10 for one in range(9)}
        self.assert_told(guards.crate_shares, files)
        tests = {"crates/c1/tests/all.rs": "\n" * 10}
        self.assert_told(guards.crate_shares, files | tests, "crates/c1: 20.0% of the lines")
        self.assert_told(guards.crate_shares, files | {"crates/onion/src/lib.rs": "\n" * 90})
        few = {"crates/comps/src/lib.rs": "\n" * 10}
        self.assert_told(guards.crate_shares, few)

    def test_unsafe(self) -> None:
        block = "fn f() {\n    // SAFETY: the pointer is ours.\n    unsafe { g() }\n}\n"
        self.assert_told(guards.unsafe_code, {"crates/os/src/sys.rs": block})
        self.assert_told(guards.unsafe_code, {"crates/cli/src/main.rs": block}, "outside")
        bare = block.replace("SAFETY", "Surely")
        self.assert_told(guards.unsafe_code, {"crates/os/src/sys.rs": bare}, "without a SAFETY")
        said = '//! unsafe\n#![deny(unsafe_code)]\nconst A: &str = "unsafe { }";\n'
        self.assert_told(guards.unsafe_code, {"crates/cli/src/main.rs": said})

    def test_tor_crates(self) -> None:
        use = "use tor_cell::relaycell::RelayCell;\n"
        self.assert_told(guards.tor_crates, {"crates/onion/src/wire.rs": use})
        self.assert_told(guards.tor_crates, {"crates/onion/src/wire/link.rs": use})
        self.assert_told(guards.tor_crates, {"crates/onion/src/channel.rs": use}, "imports a tor-*")
        self.assert_told(
            guards.tor_crates,
            {"crates/router/Cargo.toml": 'tor-cell = "1"\n'},
            "depends on a tor-*",
        )

    def test_comment_width(self) -> None:
        """A wide comment is reported; a wide example in a comment is not."""
        name, wide = "crates/onion/src/lib.rs", f"/// {'x' * 100}\n"
        self.assert_told(guards.comment_width, {name: f"/// {'x' * 96}\nfn f() {{}}\n"})
        self.assert_told(guards.comment_width, {name: f"/// ```\n{wide}/// ```\n"})
        self.assert_told(guards.comment_width, {name: f"fn f() {{}}\n{wide}"}, f"{name}:2")

    def test_plain_comments(self) -> None:
        """More markers than recorded and too few names are reported; fewer markers are not."""
        name, record = "crates/comps/src/lib.rs", '{"comps": [1, 0, 0, 0, 0, 0]}'
        what = "/// What `a` holds, as it is told.\nfn f() {}\n"
        tests = f"#[cfg(test)]\nmod tests {{\n{what}}}\n"
        files = {"scripts/language.json": record, name: "/// What `a` holds.\nfn f() {}\n" + tests}
        self.assert_told(guards.plain_comments, files)
        self.assert_told(guards.plain_comments, files | {name: what}, "'tell, say' 1 times")
        vague = "/// Holds nothing.\nfn f() {}\n"
        self.assert_told(guards.plain_comments, files | {name: vague}, "digits and backticks")

    def test_short_documents(self) -> None:
        short, long = "a b\n" * 350, "a b\n" * 350 + "c"
        self.assert_told(guards.short_documents, {"README.md": short, "docs/long.md": long})
        self.assert_told(guards.short_documents, {"README.md": long}, "README.md: 701 words")

    def test_doctests(self) -> None:
        none = {"crates/a/Cargo.toml": "[lib]\ndoctest = false\n"}
        text = "/// ```text\n/// a\n/// ```\n"
        self.assert_told(guards.doctests, {**none, "crates/a/src/lib.rs": text})
        code = "//! ```\n//! assert!(true);\n//! ```\n"
        self.assert_told(
            guards.doctests, {**none, "crates/a/src/b.rs": text + code}, "a/src/b.rs: a doctest"
        )
        self.assert_told(
            guards.doctests, {"crates/a/Cargo.toml": "[lib]\n", "crates/a/src/b.rs": code}
        )

    def test_stubs(self) -> None:
        files: dict[str, str] = {}
        for stub in to_add.STUBS:
            for name, anchor, _ in stub.lines:
                files[name] = files.get(name, "") + anchor
        self.assert_told(guards.stubs, files)
        name, anchor, _ = to_add.STUBS[0].lines[0]
        moved = files | {name: files[name].replace(anchor, "")}
        self.assert_told(guards.stubs, moved, "not 0 times")
        paths = {stub.what: sorted(stub.touched) for stub in to_add.STUBS}
        lines = [
            f"| {what} | {', '.join(f'`{path}`' for path in names)}, with its `FAMILY` |\n"
            for what, names in paths.items()
        ]
        table = "## To add …\n\n" + "".join(lines) + "\n## Next\n"
        self.assert_told(guards.stubs, files | {"ARCHITECTURE.md": table})
        short = table.replace(f"`{name}`, ", "")
        self.assert_told(guards.stubs, files | {"ARCHITECTURE.md": short}, f"{name} had to change")
        long = table.replace("| a cover | ", "| a cover | `docs/b.md`, ")
        self.assert_told(guards.stubs, files | {"ARCHITECTURE.md": long}, "row lists docs/b.md")

    def test_the_copy_of_to_add_has_a_version_of_its_own(self) -> None:
        """All workspace crates get it, so that cargo never confuses them with the repository's."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder)
            for name in ("Cargo.toml", "Cargo.lock"):
                (copy / name).write_text((guards.ROOT / name).read_text())
            to_add.set_version(copy)
            lock = (copy / "Cargo.lock").read_text()
            ours = re.findall(r'^name = "anabranch.*"\nversion = "(.*)"$', lock, re.MULTILINE)
            assert len(ours) > 20
            assert all(version.endswith("-stub") for version in ours)
            assert lock.count("-stub") == len(ours)
            manifest = (copy / "Cargo.toml").read_text()
            assert f'[workspace.package]\nversion = "{ours[0]}"' in manifest
            wanted = re.findall(r'^anabranch-.* version = "(.*?)"', manifest, re.MULTILINE)
            assert {*wanted} == {*ours}

    def test_host_names(self) -> None:
        good = "curl https://quic.example.net/ a.b@example.org example.com harness.rs\n"
        self.assert_told(guards.host_names, {"README.md": good, "docs/notes/a.md": "h3.net"})
        bad = {"docs/guide/quic.md": "--to h3.net:443\n", "examples/a.toml": "to = 'x.test.com'"}
        self.assert_told(guards.host_names, bad, "h3.net belongs", "x.test.com belongs")

    def test_invariants(self) -> None:
        """A file may be named by the end of its path; an entry that names no file is a breach."""
        name = "docs/invariants.md"
        files = {"crates/os/tests/udp.rs": "fn is_exact() {}\n", "scripts/a.py": "def b(): ...\n"}
        held = "# I\n\n* One.\n  Tested by: `os/tests/udp.rs::is_exact`, `scripts/a.py::b`.\n"
        self.assert_told(guards.invariants, {**files, name: held})
        gone = held + "* Two.\n  Tested by: `os/tests/tcp.rs`.\n"
        self.assert_told(guards.invariants, {**files, name: gone}, "no file is called os/tests/tcp")
        other = held.replace("is_exact", "exact")
        self.assert_told(guards.invariants, {**files, name: other}, "udp.rs has no exact")
        bare = held + "* Two, `cores` and all.\n\n## Next\n"
        self.assert_told(guards.invariants, {**files, name: bare}, "names no test")

    def test_screenshot(self) -> None:
        golden = f"path  state\n{'-' * 80}\nbbbb  ggggg\n"
        good = {screen.SOURCE: golden, screen.TARGET: screen.drawing(golden)}
        self.assert_told(guards.screenshot, good)
        changed = {**good, screen.SOURCE: golden.replace("state", "State")}
        self.assert_told(guards.screenshot, changed, "run scripts/screen.py")

    def test_document_width(self) -> None:
        wide = f"{'x' * 60} {'x' * 60}"
        kept = f"| {wide} |\n    {wide}\n```\n{wide}\n```\n* `{wide}`\n"
        self.assert_told(guards.document_width, {"docs/a.md": kept})
        self.assert_told(guards.document_width, {"docs/a.md": f"a\n{wide}\n"}, "docs/a.md:2")

    def test_code_blocks(self) -> None:
        """A block that was re-wrapped, and one without an end, are reported."""
        self.assert_told(
            guards.code_blocks, {"docs/a.md": "```text\na\n```\n* b\n  ```\n  c\n  ```\n"}
        )
        self.assert_told(
            guards.code_blocks, {"docs/a.md": "a\n```text a = 1\nb ```\n"}, "docs/a.md:2"
        )
        self.assert_told(guards.code_blocks, {"docs/a.md": "```\na\n``` b\n"}, "docs/a.md:3")
        self.assert_told(guards.code_blocks, {"docs/a.md": "```\na\n"}, "docs/a.md:1")

    def test_plain_words(self) -> None:
        said = 'fn f() { g("{error:?}") }\n'
        tested = f"#[cfg(test)]\nmod tests {{\n{said}}}\n"
        name = "crates/router/src/onion/client.rs"
        self.assert_told(guards.plain_words, {name: tested, "crates/comps/src/lib.rs": said})
        self.assert_told(guards.plain_words, {name: said + tested}, f"{name}:1")

    def test_hash_maps(self) -> None:
        name = "crates/comps/src/core.rs"
        self.assert_told(guards.hash_maps, CORE | {name: "// no HashMap\nuse std::vec::Vec;\n"})
        self.assert_told(guards.hash_maps, CORE | {name: "use std::collections::HashMap;"}, "core")
        off = "#[allow(clippy::disallowed_types)]\nfn f() {}\n"
        self.assert_told(guards.hash_maps, CORE | {name: off}, "disables a lint")

    def test_import_circles(self) -> None:
        def core(**texts: str) -> dict[str, str]:
            sources = {
                f"crates/comps/src/{name.replace('__', '/')}.rs": t for name, t in texts.items()
            }
            return CORE | sources

        line = {"a": "use crate::b::{B, C};\n", "b": "use std::fmt;\n"}
        self.assert_told(guards.import_circles, core(**line))
        two = {"a": "use crate::{\n    b::{B, C as D},\n    c,\n};\n", "b": "use super::a::A;\n"}
        self.assert_told(guards.import_circles, core(**two, c=""), "a, b import each other")
        long = {"a": "use crate::b;", "b": "use crate::c::X;", "c": "pub use super::a;"}
        self.assert_told(guards.import_circles, core(**long), "a, b, c import each other")
        facade = {"a__mod": "mod part;\nuse part::P;\n", "a__part": "use super::A;\n"}
        self.assert_told(guards.import_circles, core(**facade))
        # A facade depends on its parts, also on parts that others reach only through the facade.
        parts = {"a__mod": "mod part;\npub use part::P;\n", "a__part": "use crate::b::B;\n"}
        through = "a, a/part, b import each other"
        self.assert_told(guards.import_circles, core(**parts, b="use crate::a::P;\n"), through)
        own = {"a__mod": "mod part;\n", "a__part": "use crate::b::B;\n"}
        self.assert_told(guards.import_circles, core(**own, b="use crate::a::A;\n"), through)
        self.assert_told(guards.import_circles, core(**parts, b="use std::fmt;\n"))
        elsewhere = {"a": "pub use crate::c::C;\n", "b": "use crate::a::C;\n", "c": "use crate::b;"}
        self.assert_told(guards.import_circles, core(**elsewhere), "a, b, c import each other")
        files = {"a": "use crate::b;", "b": "mod tests;", "b__tests": "use crate::a;"}
        self.assert_told(guards.import_circles, core(**files))
        tests = {"a": "use crate::b;", "b": "#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n"}
        self.assert_told(guards.import_circles, core(**tests))

    def test_python_imports(self) -> None:
        def lab(**texts: str) -> dict[str, str]:
            return {f"lab/src/a/{name.replace('__', '/')}.py": t for name, t in texts.items()}

        def of(init: str = "", **texts: str) -> dict[str, str]:
            return lab(**texts) | {"lab/src/a/__init__.py": "", "lab/src/a/p/__init__.py": init}

        guard = guards.python_imports
        self.assert_told(guard, of(b="from a.c import x\n", c="import numpy\n"))
        two = {"b": "from a.c import x\n", "c": "import a.b\n"}
        self.assert_told(guard, of(**two), "a/b, a/c import each other")
        late = {"b": "def f():\n    from .c import x\n", "c": "from a import b\n"}
        self.assert_told(guard, of(**late), "a/b, a/c import each other")
        types = "if TYPE_CHECKING:\n    from a.c import X\n"
        self.assert_told(guard, of(b=types, c="from a.b import y\n"))
        # A facade depends on its parts, also on parts that others reach only through the facade.
        through = {"b": "from a.p import X\n", "p__x": "from a.b import y\n"}
        self.assert_told(guard, of("from a.p.x import X\n", **through), "a/b, a/p/x import")
        self.assert_told(guard, of("from .x import X\n", **through), "a/b, a/p/x import")
        beside = {"b": "from a.p import Y\n", "p__x": "from a.b import y\n", "p__y": ""}
        self.assert_told(guard, of("from a.p.x import X\nfrom a.p.y import Y\n", **beside))
        self.assert_told(guard, of("from a.p.x import X\n", p__x="from a.p import Z\n"))

    def test_sizes(self) -> None:
        body = "    let x = 1;\n"
        self.assert_told(guards.sizes, {"a.rs": f"fn f() {{\n{body * 98}}}\n"})
        self.assert_told(guards.sizes, {"a.rs": f"fn f() {{\n{body * 99}}}\n"}, "f has 101 lines")
        self.assert_told(guards.sizes, {"a.rs": "// a\n" * 1001}, "1001 lines")
        tests = "// a\n" * 900 + "#[cfg(test)]\nmod tests {\n" + "// a\n" * 200 + "}\n"
        self.assert_told(guards.sizes, {"a.rs": tests})
        self.assert_told(guards.sizes, {"a.py": "x = 1\n" * 1001}, "1001 lines")
        core = {"crates/comps/src/a.rs": f"fn f() {{\n{body * 59}}}\n"}
        self.assert_told(guards.sizes, core, "f has 61 lines")
        long = "def f():\n" + "    x = 1\n" * 101
        self.assert_told(guards.sizes, {"a.py": long}, "f has 102 lines")

    def test_fuzz_targets(self) -> None:
        sound = {name: "" for name in guards.PARSERS | guards.NO_PARSERS}
        binaries = ""
        for target in set(guards.PARSERS.values()):
            binaries += f'[[bin]]\nname = "{target}"\n'
            sound |= {f"fuzz/fuzz_targets/{target}.rs": "", f"fuzz/corpus/{target}/seed": "a"}
        sound["fuzz/Cargo.toml"] = binaries
        self.assert_told(guards.fuzz_targets, sound)
        new = sound | {"crates/comps/src/protocol/new.rs": ""}
        self.assert_told(guards.fuzz_targets, new, "new.rs: add this file to PARSERS")
        tests = sound | {"crates/onion/src/wire/new/tests.rs": ""}
        self.assert_told(guards.fuzz_targets, tests)
        gone = {name: text for name, text in sound.items() if "authority/pins.rs" not in name}
        self.assert_told(guards.fuzz_targets, gone, "pins.rs: remove it from NO_PARSERS")
        less = sound | {"fuzz/Cargo.toml": binaries.replace('"topology"', '"geography"')}
        self.assert_told(guards.fuzz_targets, less, "has no fuzz target topology")
        empty = {name: text for name, text in sound.items() if "corpus/toml_keys" not in name}
        self.assert_told(guards.fuzz_targets, empty, "fuzz/corpus/toml_keys: has no seed")

    def test_forbidden_words(self) -> None:
        guard = guards.forbidden_words
        self.assert_told(guard, {"a.rs": "fn work() {} // see ./work/a and /proc/net\n"})
        self.assert_told(guard, {"a.rs": 'open("/wo' + 'rk/main")'}, "developer's machine")
        self.assert_told(guard, {"a.md": "see /ro" + "ot/.cache"}, "developer's machine")
        self.assert_told(guard, {"a.toml": "https://index.crates" + ".io/"}, "package host")
        self.assert_told(guard, {"a.rs": "// TO" + "DO later"}, "unfinished")
        self.assert_told(guard, {"a.rs": "fn f() { to" + "do!() }"}, "unfinished")
        self.assert_told(guard, {"a.rs": "#[ign" + "ore]\nfn f() {}"}, "without a reason")
        self.assert_told(guard, {"a.rs": '#[ignore = "needs a day"]\nfn f() {}'})

    def test_named_places(self) -> None:
        files = {"crates/os/src/udp/mod.rs": "", "crates/os/src/tun.rs": "fn it_works() {}"}
        good = "`os/src/udp`, `udp/mod.rs`, `crates/os/src/tun.rs`, `/run/x`, `a/NAME.rs`, "
        good += "`cargo test -- it_works`"
        self.assert_told(guards.named_places, files | {"ARCHITECTURE.md": good})
        bad = "`os/src/udq`\n`os/tun/x.rs`\n`cargo test -- it_fails`\nfuzz target `texts`"
        told = ("os/src/udq", "os/tun/x.rs", "it_fails", "texts")
        self.assert_told(guards.named_places, files | {"ARCHITECTURE.md": bad}, *told)

    def test_type_names(self) -> None:
        one, other = "crates/os/src/a.rs", "crates/cli/src/b.rs"
        listed = {f"crates/{crate}/src/listed.rs": "".join(f"pub struct {name};\n" for name in
                  guards.SHARED_NAMES) for crate in ("os", "cli")}  # fmt: skip
        good = listed | {one: "pub struct Unique;\npub struct Other;\n"}
        self.assert_told(guards.type_names, good | {other: "struct Unique;\n"})
        twin = good | {other: "pub enum Unique {}\n"}
        self.assert_told(guards.type_names, twin, "Unique: rename a type")
        self.assert_told(guards.type_names, {}, *["fewer than two"] * len(guards.SHARED_NAMES))

    def test_one_scheduler(self) -> None:
        good = "from anabranch import schedulers\n"
        self.assert_told(guards.one_scheduler, {"lab/traces.py": good})
        self.assert_told(guards.one_scheduler, {"lab/scheduler.py": good}, "in Python")
        twin = "class RoundRobinScheduler:\n    pass\n"
        self.assert_told(guards.one_scheduler, {"lab/traces.py": twin}, "RoundRobinScheduler")

    def test_relay_crypto(self) -> None:
        sim = '[dependencies]\nanabranch-onion = { workspace = true, features = ["elide"] }\n'
        keys = "fn elided(self) -> Keys { Keys::Null { cgo: true } }\n"
        good = {
            "crates/sim/Cargo.toml": sim,
            "crates/sim/src/relay.rs": "fn f() { core.elide_crypto(); }\n",
            "crates/onion/src/crypto.rs": keys,
            "crates/router/Cargo.toml": "[dependencies]\nanabranch-onion.workspace = true\n",
        }
        self.assert_told(guards.relay_crypto, good)
        told = "outside crates/sim"
        self.assert_told(guards.relay_crypto, good | {"crates/router/Cargo.toml": sim}, told)
        call = {"crates/router/src/relay.rs": "fn f() { core.elide_crypto(); }\n"}
        self.assert_told(guards.relay_crypto, good | call, told)
        twice = {"crates/onion/src/crypto.rs": keys + keys}
        self.assert_told(guards.relay_crypto, good | twice, "only Keys::elided")

    def test_default_schedule(self) -> None:
        core = 'pub const SCHEDULE: &str = "uniform";\npub const EVERY: &str = "20ms";\n'
        said = {
            name: words.format(schedule="uniform", every="20ms", time="20 ms")
            for name, words in guards.DEFAULTS.items()
        }
        good = {"crates/comps/src/config.rs": core, **said}
        self.assert_told(guards.default_schedule, good)
        for name, words in said.items():
            twin = {**good, name: words.replace("uniform", "weighted:4")}
            self.assert_told(guards.default_schedule, twin, name)
        self.assert_told(guards.default_schedule, said, "are missing")

    def test_one_version(self) -> None:
        good = {
            "Cargo.toml": '[workspace.package]\nversion = "0.2.0"\n',
            "lab/pyproject.toml": '[project]\nversion = "0.2.0"\n',
            "CITATION.cff": "title: x\nversion: 0.2.0\n",
            "CHANGELOG.md": "# Changelog\n\n## 0.2.0, not released\n\n## 0.1.0, 1 May\n",
        }
        self.assert_told(guards.one_version, good)
        for name in list(good)[1:]:
            twin = {**good, name: good[name].replace("0.2.0", "0.1.1")}
            self.assert_told(guards.one_version, twin, f"{name}: version 0.1.1, Cargo.toml: 0.2.0")
        unsaid = {**good, "CHANGELOG.md": "# Changelog\n\n## Unreleased\n"}
        self.assert_told(guards.one_version, unsaid, "CHANGELOG.md: version missing")


class Fence(unittest.TestCase):
    """The cores' fence rejects the items it lists: runs clippy with the cores' own settings."""

    def clippy(self, body: str) -> str:
        """Returns clippy's errors for a core with this body; empty if there are none."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "src").mkdir()
            (root / "src/lib.rs").write_text(body)
            (root / "clippy.toml").write_text(FENCE)
            (root / "Cargo.toml").write_text(
                '[package]\nname = "core"\nedition = "2024"\n[workspace]\n'
            )
            command = ["cargo", "clippy", "-q", "--offline", "--target-dir", folder]
            command += ["--manifest-path", f"{folder}/Cargo.toml", "--", "-D", "warnings"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return done.stderr if done.returncode else ""

    def test_the_fence_stops_clocks_maps_sockets_and_files(self) -> None:
        assert self.clippy("//! Fine.\n/// Two.\npub fn two() -> u8 { 2 }\n") == ""
        for path in sorted(guards.FENCED_METHODS - {"std::thread::spawn", "std::thread::sleep"}):
            assert "disallowed method" in self.clippy(f"pub fn f() {{ let _ = {path}(); }}")
        for path in sorted(guards.FENCED_TYPES):
            generic = "<u8, u8>" if path.endswith("Map") else "<u8>" if path.endswith("Set") else ""
            assert "disallowed type" in self.clippy(f"pub fn f(_: {path}{generic}) {{}}")


class Licences(unittest.TestCase):
    """Only accepted licences satisfy expressions."""

    def test_expressions(self) -> None:
        for taken in ("MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-2.0) AND ISC",
                      "Apache-2.0 WITH LLVM-exception OR GPL-3.0"):  # fmt: skip
            assert licences.is_taken(taken), taken
        for refused in ("", "GPL-3.0", "MIT AND GPL-3.0", "ISC AND (AGPL-3.0 OR GPL-2.0)"):
            assert not licences.is_taken(refused), refused

    def test_a_package_whose_licence_is_not_taken(self) -> None:
        package = {"name": "a", "version": "1", "license": "GPL-3.0"}
        assert len(licences.breaches([package])) == 1
        assert not licences.breaches([{**package, "license": "MIT"}])


class RustSource(unittest.TestCase):
    """Functions are found in spite of strings, comments, lifetimes and signatures
    without bodies.
    """

    def test_texts_and_comments_become_blanks(self) -> None:
        source = (
            'let a = "}{"; // }\nlet b = r#"{"}"#; /* { /* { */ } */ let c = \'{\'; x::<\'a>();'
        )
        plain = blank(source)
        assert len(plain) == len(source)
        assert "{" not in plain
        assert "<'a>" in plain

    def test_functions_have_their_lengths(self) -> None:
        source = (
            "trait T { fn none(&self) -> [u8; 2]; }\n"
            "fn two(a: &'static str) -> char {\n    if a == \"}\" { 'x' } else { '}' } }\n"
            "#[cfg(test)]\nmod tests {\n    fn one() {}\n}\n"
        )
        found = [(f.name, f.lines, f.in_tests) for f in functions(source)]
        assert found == [("two", 2, False), ("one", 1, True)]
        assert lines_without_tests(source) == 4


if __name__ == "__main__":
    unittest.main()
