#!/usr/bin/env python3
"""Verifies ARCHITECTURE.md's table "To add ...".

Adds stubs to a copy of the repository, each only in the files of its row, and runs them: a minimal
scheduler, relay command, link, attack, defence, experiment, protocol, cover, impairment, command,
congestion control and trace column. Fails if a stub has to touch another file, if a row names a
file that its stub does not touch, if the copy does not compile, or if a stub has no effect. Also
fails if a stub is missing in a list for users: the help, messages and completions of the program,
or the lab's help, messages, reports and figures.

Usage: scripts/to_add.py FOLDER (for the copy; kept between runs, so that a second one is quick).
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| (?P<what>(?:a|an) [^|]+) \| (?P<files>[^|]+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Stub:
    """The minimal implementation of one kind.

    Attributes:
        what: name of its row in the table.
        new: texts of new files by path.
        lines: additions: (path, line after which to insert, lines to insert).
        checks: tests of its effect, by path. They are added too, but do not count as part of the
            row.
    """

    what: str
    new: dict[str, str] = field(default_factory=dict)
    lines: tuple[tuple[str, str, str], ...] = ()
    checks: dict[str, str] = field(default_factory=dict)

    @property
    def touched(self) -> set[str]:
        """Paths of the files that the stub touches."""
        return {*self.new, *(path for path, _, _ in self.lines)}

    def add_to(self, copy: Path) -> None:
        """Writes the stub into a copy of the repository."""
        for path, text in (self.new | self.checks).items():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_text(text)
        for path, anchor, text in self.lines:
            old = (copy / path).read_text()
            if old.count(anchor) != 1:
                sys.exit(
                    f"{path}: the line {anchor!r} must occur once, not {old.count(anchor)} times"
                )
            (copy / path).write_text(old.replace(anchor, anchor + text))


SCHEDULER = Stub(
    "a scheduler",
    {
        "crates/multipath/src/schedule/stub.rs": """\
//! The first path that is usable, always.

use super::{BuildResult, Family, Scheduler, no_argument};
use crate::path::usable;
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

pub(super) const FAMILY: Family = Family {
    name: "stub",
    syntax: "stub",
    example: "stub",
    about: "the first path",
    plain: "all by one path",
    every: None,
    needs_windows: false,
    build,
};

#[derive(Debug)]
struct Stub;

impl Scheduler for Stub {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        usable(paths).next().map(PathId::at)
    }
}

fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> BuildResult {
    no_argument("stub", argument)?;
    Ok(Box::new(Stub))
}
"""
    },
    (
        ("crates/multipath/src/schedule/mod.rs", "mod round_robin;\n", "mod stub;\n"),
        (
            "crates/multipath/src/schedule/mod.rs",
            "    lowest_rtt::FAMILY,\n",
            "    stub::FAMILY,\n",
        ),
    ),
)
RELAY_COMMAND = Stub(
    "a relay command",
    lines=(
        (
            "crates/onion/src/wire/relay_command.rs",
            "    Circuit {\n",
            "        STUB = 200,\n",
        ),
        (
            "docs/spec/numbers.md",
            "| camouflage: version | 1 | [camouflage.md](camouflage.md#handshake) |\n",
            "| stub: relay commands | 200 STUB | [stub.md](stub.md) |\n",
        ),
        (
            "crates/onion/src/relay/exit.rs",
            "            (RelayCommand::TRUNCATE, 0) => self.truncate(now, index),\n",
            "            (RelayCommand::STUB, 0) => self.truncate(now, index),\n",
        ),
        (
            "crates/onion/src/client/circuit.rs",
            "            (RelayCommand::DROP, _) => {}\n",
            "            (RelayCommand::STUB, 0) => {}\n",
        ),
    ),
)
ATTACK = Stub(
    "an attack",
    {
        "lab/src/anabranch/attacks/stub.py": '''\
"""Always guesses how often each class came."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from .base import Attack, Floats, Sequences, Task
from .ranges import Ranges


class Stub(Attack):
    """The shares of the classes."""

    ranges: ClassVar[Ranges] = Attack.ranges
    needs_times = False

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def _probabilities(self, X: Sequences) -> Floats:
        return np.tile(self.shares_, (len(X), 1))

    def _fit(self, task: Task) -> None:
        counts = np.bincount(task.codes).astype(np.float64)
        self.shares_ = counts / counts.sum()
'''
    },
    (
        (
            "lab/src/anabranch/registry.py",
            '    AttackRow("k-fp-paths", "kfp_paths:PathForest", "k-FP by path", palette.BROWN),\n',
            '    AttackRow("stub", "stub:Stub", "Attack Stub", Colour("#123456", "#abcdef")),\n',
        ),
    ),
)
DEFENCE = Stub(
    "a defence",
    {
        "lab/src/anabranch/defences/stub.py": '''\
"""Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anabranch.defences.base import Defence, Shaped
from anabranch.traces import Facts, Floats, Sizes


@dataclass(frozen=True, slots=True)
class Stub(Defence):
    """Every packet stays."""

    name: ClassVar[str] = "stub"

    def shape(self, times: Floats, sizes: Sizes, seed: int, facts: Facts) -> Shaped:
        """Returns the same packets."""
        return Shaped(times, sizes, np.arange(times.size))
'''
    },
    (
        (
            "lab/src/anabranch/defences/texts.py",
            "from anabranch.defences.maybenot import NAMED, Maybenot\n",
            "from anabranch.defences.stub import Stub\n",
        ),
        (
            "lab/src/anabranch/defences/texts.py",
            "FAMILIES: Mapping[str, Family] = MappingProxyType(\n    {\n",
            '        "stub": Family(Stub, {}, None, "stub", "no padding", "Defence Stub"),\n',
        ),
    ),
)
EXPERIMENT = Stub(
    "an experiment",
    {
        "crates/experiment/src/stub/mod.rs": """\
//! Measures nothing.

/// How many units there are.
pub const UNITS: usize = 0;
""",
        "crates/cli/src/experiment/stub/mod.rs": """\
//! `anabranch experiment stub`.

use anabranch_experiment::stub::UNITS;
use clap::Args;

use crate::failure::Failure;

/// Measure nothing
#[derive(Args)]
pub(super) struct StubArgs {}

impl StubArgs {
    pub(super) fn run(self) -> Result<(), Failure> {
        println!("{UNITS} units");
        Ok(())
    }
}
""",
    },
    (
        ("crates/experiment/src/lib.rs", "mod stage;\n", "pub mod stub;\n"),
        ("crates/cli/src/experiment/mod.rs", "mod pages;\n", "mod stub;\n"),
        (
            "crates/cli/src/experiment/mod.rs",
            "    Anonymity(Box<anonymity::AnonymityArgs>),\n",
            "    Stub(Box<stub::StubArgs>),\n",
        ),
        (
            "crates/cli/src/experiment/mod.rs",
            "            ExperimentCommand::Anonymity(args) => frame::run(&*args),\n",
            "            ExperimentCommand::Stub(args) => args.run(),\n",
        ),
    ),
)
NULL_LINK = Stub(
    "an OR link over a byte stream",
    {
        "crates/links/src/null.rs": """\
//! A link without encryption: it loses nothing, and keeps all cells in one order. A sum finds
//! changes on the way.

use anabranch_multipath::Time;

use crate::{
    Context, Fault, Link, PeerFault, PeerFaultKind, Promises, State, StreamFamily, StreamLink,
};

/// The null link as a kind of link over a byte stream.
pub const FAMILY: StreamFamily = StreamFamily {
    name: "null",
    connect: |context| Ok(Box::new(Null::new(context, false))),
    accept: |context| Ok(Box::new(Null::new(context, true))),
};
/// The most bytes of a record.
const RECORD: usize = 16_384;
/// Bytes before them: their number, and their sum.
const HEAD: usize = 6;

/// A null link. Its first record is the certificate of the end that was reached, an empty one says
/// goodbye.
struct Null {
    own: Vec<u8>,
    peers: Option<Vec<u8>>,
    dialled: bool,
    state: State,
    closed: bool,
    received: Vec<u8>,
    arrived: Vec<u8>,
    out: Vec<u8>,
}

impl Null {
    fn new(context: &Context, accepts: bool) -> Null {
        let mut link = Null {
            own: context.certificate().to_vec(),
            peers: None,
            dialled: !accepts,
            state: if accepts { State::Open } else { State::Handshaking },
            closed: false,
            received: Vec::new(),
            arrived: Vec::new(),
            out: Vec::new(),
        };
        if accepts {
            let own = link.own.clone();
            link.put(&own);
        }
        link
    }

    fn put(&mut self, record: &[u8]) {
        self.out.extend((record.len() as u16).to_be_bytes());
        self.out.extend(sum(record).to_be_bytes());
        self.out.extend(record);
    }

    fn take(&mut self, record: &[u8]) {
        if self.dialled && self.peers.is_none() {
            (self.peers, self.state) = (Some(record.to_vec()), State::Open);
        } else if record.is_empty() {
            self.state = State::Ended;
        } else {
            self.arrived.extend(record);
        }
    }
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

impl Link for Null {
    fn promises(&self) -> Promises {
        Promises { whole: true, stream_per_circuit: false, record: RECORD }
    }

    fn state(&self) -> State {
        self.state
    }

    fn read(&mut self, into: &mut Vec<u8>) -> Result<usize, Fault> {
        let count = self.arrived.len();
        into.append(&mut self.arrived);
        Ok(count)
    }

    fn write(&mut self, plain: &[u8]) -> Result<(), Fault> {
        if self.closed {
            return Err(Fault::Misuse("nothing can be written to a link that was closed"));
        }
        plain.chunks(RECORD).for_each(|record| self.put(record));
        Ok(())
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        self.peers.as_deref()
    }

    fn own_certificate(&self) -> &[u8] {
        &self.own
    }

    fn export(&self, label: &[u8], context: &[u8]) -> Result<[u8; 32], Fault> {
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(&sum(&[label, context].concat()).to_be_bytes());
        Ok(secret)
    }

    fn rest(&mut self) -> usize {
        let before = self.arrived.capacity();
        self.arrived.shrink_to_fit();
        before - self.arrived.capacity()
    }

    fn close(&mut self) {
        if !std::mem::replace(&mut self.closed, true) {
            self.put(&[]);
        }
    }
}

impl StreamLink for Null {
    fn receive(&mut self, _: Time, bytes: &[u8]) -> Result<(), Fault> {
        self.received.extend(bytes);
        while self.state != State::Ended && self.received.len() >= HEAD {
            let length = usize::from(u16::from_be_bytes([self.received[0], self.received[1]]));
            if self.received.len() < HEAD + length {
                break;
            }
            let rest = self.received.split_off(HEAD + length);
            let record = std::mem::replace(&mut self.received, rest);
            if record[2..HEAD] != sum(&record[HEAD..]).to_be_bytes() {
                self.state = State::Ended;
                let what = "a record was changed".to_owned();
                return Err(Fault::Peer(PeerFault { kind: PeerFaultKind::Unopened, what }));
            }
            self.take(&record[HEAD..]);
        }
        Ok(())
    }

    fn transmit(&mut self, _: Time, into: &mut Vec<u8>) -> bool {
        let has_bytes = !self.out.is_empty();
        into.append(&mut self.out);
        has_bytes
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }
}
"""
    },
    (
        ("crates/links/src/lib.rs", "pub mod quic;\n", "pub mod null;\n"),
        ("crates/links/src/lib.rs", "        &tls::FAMILY,\n", "        &null::FAMILY,\n"),
        (
            "crates/cli/src/onion/link.rs",
            "    /// A TLS connection that delivers all bytes in order, as usual in Tor.\n"
            "    Tls,\n",
            "    /// No encryption.\n    Null,\n",
        ),
    ),
)
PROTOCOL = Stub(
    "a protocol of the splitter",
    {
        "crates/comps/src/protocol/stub.rs": """\
//! Datagrams that begin with a fixed text.

use super::{Counter, Family, Mark, Protocol, Verdict};

/// The entry of the stub in [`FAMILIES`](super::FAMILIES).
pub const FAMILY: Family = Family {
    protocol: Protocol::Stub,
    name: "stub",
    title: "Protocol Stub",
    selectable: true,
    mark: |datagram| Mark::strong(datagram.starts_with(b"stub stub stub")),
    follow: |_, _, _| Verdict::Agrees,
    one_path: None,
    counter: Counter::Never,
    guide: "any-program",
};
"""
    },
    (
        ("crates/comps/src/protocol/mod.rs", "pub mod srt;\n", "pub mod stub;\n"),
        (
            "crates/comps/src/protocol/mod.rs",
            "    /// ENet, a protocol of games.\n    Enet,\n",
            "    /// The stub.\n    Stub,\n",
        ),
        ("crates/comps/src/protocol/mod.rs", "    enet::FAMILY,\n", "    stub::FAMILY,\n"),
        ("docs/formats.md", "`openvpn`, `kcp`, `srt`, ", "`stub`, "),
    ),
)
COVER = Stub(
    "a cover",
    {
        "crates/stego/src/slot/stub.rs": """\
//! Each hidden byte with its bits turned over.

use std::time::Duration;

use anabranch_multipath::Time;

use super::family::{ACK_ROOM, Family};
use super::{ClientEnd, Hidden, NotCover, ServerEnd, Slot};

pub(super) const FAMILY: Family = Family {
    name: "stub",
    about: "bytes turned over",
    connections: 4,
    idle_connections: 1,
    most: None,
    wants_site: false,
    wants_pictures: false,
    wants_objects: false,
    answer: None,
    coalesces: false,
    streams: true,
    chunk: 4_096,
    padding: 16,
    ack_room: ACK_ROOM,
    pauses: |_| Duration::ZERO,
    client: |_, _, _, _| Box::new(Stub),
    server: |_, _| Box::new(Stub),
};

struct Stub;

impl Slot for Stub {
    fn receive(
        &mut self,
        _now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover> {
        let turned: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
        each(Hidden::Bytes(&turned));
        Ok(())
    }

    fn room(&self, socket: usize) -> usize {
        socket
    }

    fn fit(&mut self, hidden: usize) -> usize {
        hidden
    }

    fn send(&mut self, _now: Time, hidden: &[u8], out: &mut Vec<u8>) {
        out.extend(hidden.iter().map(|byte| !byte));
    }

    fn is_spent(&self) -> bool {
        false
    }
}

impl ClientEnd for Stub {
    fn begins(&self) -> bool {
        true
    }
}

impl ServerEnd for Stub {
    fn has_answered(&self) -> bool {
        false
    }
}
""",
    },
    (
        ("crates/stego/src/slot/mod.rs", "mod rr;\n", "mod stub;\n"),
        ("crates/stego/src/slot/profile.rs", "    rr::FAMILY,\n", "    super::stub::FAMILY,\n"),
        (
            "docs/guide/camouflage.md",
            "| `--profile` | what the connections contain | connections at once |\n|---|---|---|\n",
            "| `stub` | bytes turned over | 4 |\n",
        ),
    ),
)
IMPAIRMENT = Stub(
    "an impairment",
    lines=(
        (
            "crates/netem/src/settings.rs",
            "    /// True if the link is down. A link that is down drops everything.\n"
            "    pub down: bool,\n",
            "    /// Whether the link loses everything.\n    pub stub: bool,\n",
        ),
        (
            "crates/netem/src/settings.rs",
            "            mtu: usize::MAX,\n            down: false,\n",
            "            stub: false,\n",
        ),
        (
            "crates/netem/src/link.rs",
            "        self.counters.entered.add(bytes);\n        let draws = self.draw();\n",
            "        if self.settings.stub {\n"
            "            self.counter_of(LinkDrop::Lost).add(bytes);\n"
            "            return Err(LinkDrop::Lost);\n        }\n",
        ),
        (
            "crates/emulator/src/edit.rs",
            "        |settings, reorder| settings.reorder = *reorder;\n",
            '    stub: bool, "true or false", "Whether everything is lost.",\n'
            "        |settings, stub| settings.stub = *stub;\n",
        ),
        (
            "docs/emulator.md",
            "| `name`, `ends`, `mtu` | | two ends, on two hosts; `mtu` from 1280 to 65535, default "
            "1500 |\n",
            "| `stub` | yes | whether everything is lost |\n",
        ),
        (
            "docs/emulator.md",
            "`delay_back` and so on set other values.",
            " `stub` and",
        ),
    ),
    checks={
        "crates/emulator/tests/stub.rs": """\
//! The stub's key is read, and its effect is on the link.

use anabranch_emulator::Edit;
use anabranch_multipath::Time;
use anabranch_netem::{Link, LinkSettings};

#[test]
fn the_stub_loses_everything() {
    let edit: Edit = serde_json::from_str(r#"{"stub":true}"#).expect("a key of links");
    for (edit, is_lost) in [(edit, true), (Edit::default(), false)] {
        let mut settings = LinkSettings::default();
        edit.apply(&mut settings, false);
        let mut link = Link::new(settings, 1, 0);
        assert_eq!(link.push(Time::ZERO, (), 100).is_err(), is_lost);
    }
}
""",
    },
)
COMMAND = Stub(
    "a command",
    {
        "crates/cli/src/stub.rs": """\
//! `anabranch stub`.

use clap::Args;

use crate::failure::Failure;

/// Print a number.
#[derive(Args)]
pub(crate) struct StubArgs {
    /// The number.
    #[arg(value_name = "N")]
    number: u32,
}

impl StubArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        println!("{} is the stub's", self.number);
        Ok(())
    }
}
""",
    },
    (
        ("crates/cli/src/main.rs", "mod status;\n", "mod stub;\n"),
        (
            "crates/cli/src/main.rs",
            "    Status(status::StatusArgs),\n",
            "    Stub(stub::StubArgs),\n",
        ),
        (
            "crates/cli/src/main.rs",
            "        Command::Status(args) => args.run(),\n",
            "        Command::Stub(args) => args.run(),\n",
        ),
    ),
)
CONGESTION_CONTROL = Stub(
    "a congestion control of TCP",
    {
        "crates/tcp/src/congestion/stub.rs": """\
//! A window of one size.

use super::{AckSample, CongestionWindow, Control, Controller, Family};

pub(super) const FAMILY: Family = Family {
    name: "stub",
    about: "A window of one size.",
    supports_legs: false,
    build: |_| Control::Losses(Box::new(Stub)),
};

/// Segments.
const WINDOW: u32 = 4;

#[derive(Debug)]
struct Stub;

impl Controller for Stub {
    // A timeout makes the window one segment.
    fn grow(&mut self, window: &mut CongestionWindow, ack: &AckSample) {
        window.cwnd = window.cwnd.saturating_add(ack.delivered).min(window.cwnd.max(WINDOW));
    }

    fn ssthresh(&mut self, _: u32) -> u32 {
        WINDOW
    }
}
""",
    },
    (
        ("crates/tcp/src/congestion/mod.rs", "mod reno;\n", "mod stub;\n"),
        ("crates/tcp/src/congestion/mod.rs", "&reno::FAMILY, ", "&stub::FAMILY, "),
        (
            "docs/simulator.md",
            "| `tcp` | congestion control of all TCP connections: `cubic`, `reno`",
            ", `stub`",
        ),
    ),
)
COLUMN = Stub(
    "an optional column of traces",
    lines=(
        (
            "lab/src/anabranch/io/columns.json",
            '"parquet": "required int64 counter;", "optional": true}',
            ',\n    {"name": "stub", "arrow": "int32", "parquet": "required int32 stub '
            '(INTEGER(32, true));",\n     "optional": true}',
        ),
        (
            "lab/src/anabranch/traces.py",
            'metadata=_optional("counter", np.int64)\n    )\n',
            "    stubs: NDArray[np.int32] | None = field(\n"
            '        default=None, metadata=_optional("stub", np.int32)\n    )\n',
        ),
        (
            "docs/formats.md",
            "the position of the packet by its unencrypted counter (below) |\n",
            "| `stub` | int32 | INT32, INTEGER(32, true) | *optional:* a number |\n",
        ),
    ),
    checks={
        "lab/tests/test_stub.py": """\
'''The optional column is kept by files, selections, views and splits.'''

from dataclasses import replace
from pathlib import Path

import numpy as np

from anabranch import io, splitting
from making import made


def test_the_column_is_kept(tmp_path: Path) -> None:
    traces = made()
    numbers = np.arange(traces.times.size, dtype=np.int32)
    io.write(replace(traces, stubs=numbers), tmp_path / "a.parquet")
    back = io.read(tmp_path / "a.parquet")
    np.testing.assert_array_equal(back.stubs, numbers)
    np.testing.assert_array_equal(back[1:].stubs, numbers[back.offsets[1] :])
    paths = (np.arange(numbers.size) % 2).astype(np.int16)
    views = [replace(back, paths=paths).on_paths([path]) for path in (0, 1)]
    assert views[0].stubs.tolist() == numbers[::2].tolist()
    np.testing.assert_array_equal(splitting.merge(views).stubs, numbers)
""",
    },
)
STUBS = (
    SCHEDULER, RELAY_COMMAND, NULL_LINK, ATTACK, DEFENCE, EXPERIMENT, PROTOCOL, COVER, IMPAIRMENT,
    COMMAND, CONGESTION_CONTROL, COLUMN,
)  # fmt: skip


def rows(architecture: str) -> dict[str, list[str]]:
    """Returns the table's rows: the kind, and patterns of the files to touch.

    A row names files from the repository's root in backticks; ``NAME`` is the new item's name.
    Other text in backticks has no slash.
    """
    table = architecture.split("## To add …", 1)[1].split("\n## ", 1)[0]
    return {
        row["what"]: [
            name.replace("NAME", "*") for name in re.findall(r"`([^`]+/[^`]+)`", row["files"])
        ]
        for row in ROW.finditer(table)
    }


def breaches(stub: Stub, patterns: list[str]) -> list[str]:
    """Returns the differences between the files of a stub and those of its row."""
    names = sorted(stub.touched)
    beside = [n for n in names if not any(fnmatch.fnmatch(n, p) for p in patterns)]
    idle = [p for p in patterns if not any(fnmatch.fnmatch(n, p) for n in names)]
    return [
        f"{stub.what}: {name} had to change, but its row does not list it" for name in beside
    ] + [f"{stub.what}: its row lists {pattern}, where nothing had to change" for pattern in idle]


def copy_to(folder: Path) -> None:
    """Makes ``folder`` a copy of the repository's tracked files with the stubs added.

    An unchanged file keeps its modification time, so that it is not compiled again.
    """
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = [name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()]
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        for name in names:
            (Path(fresh) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, Path(fresh) / name)
        for stub in STUBS:
            stub.add_to(Path(fresh))
        set_version(Path(fresh))
        wanted = {path.relative_to(fresh) for path in Path(fresh).rglob("*") if path.is_file()}
        there = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        for path in there - wanted:
            (folder / path).unlink()
        for path in wanted:
            if path in there and (folder / path).read_bytes() == (Path(fresh) / path).read_bytes():
                continue
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(fresh) / path, folder / path)


def set_version(copy: Path) -> None:
    """Gives the crates of ``copy`` a version of their own.

    Cargo names its build outputs by a crate's name, version and place in the workspace. The copy
    and the repository share a target folder, so with equal versions cargo would confuse their
    outputs.
    """
    for name, pattern in (
        ("Cargo.toml", r'((?:^\[workspace\.package\]\n|^anabranch-.*)version = "[^"]+)"'),
        ("Cargo.lock", r'(^name = "anabranch.*"\nversion = "[^"]+)"'),
    ):
        text = (copy / name).read_text()
        (copy / name).write_text(re.sub(pattern, r'\1-stub"', text, flags=re.MULTILINE))


def lab_lists(copy: Path) -> list[str]:
    """Returns the user-visible lists of the copy's lab that lack the new attack or defence.

    The lab uses the binding that was built in the repository. The report is made from an
    evaluation of five synthetic loads of each of three pages.
    """
    python, binding = os.environ.get("LAB_PYTHON"), [*ROOT.glob("lab/src/anabranch/_core*.so")]
    if not python or not binding:
        print("skipped the lab: set LAB_PYTHON, and run lab/run-tests --install")
        return []
    shutil.copyfile(binding[0], copy / binding[0].relative_to(ROOT))
    environment = os.environ | {"PYTHONPATH": str(copy / "lab/src"), "COLUMNS": "400"}

    def lab(*arguments: object) -> str:
        program = "from anabranch.cli import main; main()"
        command = [python, "-B", "-c", program, *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    test = [python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "lab/tests/test_stub.py", "lab/tests/test_columns.py"]  # fmt: skip
    subprocess.run(test, cwd=copy, env=environment, check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        loads, found, page = (Path(folder) / name for name in ("loads", "found", "page"))
        loads.mkdir()
        found.mkdir()
        for name in (f"{page}-{load}" for page in range(3) for load in range(5)):
            (loads / f"{name}.cell").write_text("0.0\t1\n0.1\t-1\n0.2\t-1\n")
        options = ("--attack", "stub", "--defence", "stub", "--bootstrap", 1)
        evaluated = lab("evaluate", loads, *options, "--out", found / "stub.json")
        reported = lab("report", found, "--out", page)
        html = (page / "report.html").read_text() if page.is_dir() else evaluated + reported
        figure = page / "figure-closed-world.svg"
        seen = {
            "the help of evaluate": (lab("evaluate", "--help"), "stub"),
            "the message for an unknown attack": (
                lab("evaluate", loads, "--attack", "stubb"), "did you mean 'stub'",
            ),
            "the help of defend": (lab("defend", "--help"), "stub"),
            "the report, as an attack": (html, "Attack Stub"),
            "the report, as a defence": (html, "Defence Stub"),
            "a figure": (figure.read_text() if figure.is_file() else html, "#123456"),
        }  # fmt: skip
    return [f"{place} does not show the stub: {text[-300:]}" for place, (text, words) in
            seen.items() if words not in text]  # fmt: skip


def program_lists(copy: Path) -> list[str]:
    """Returns the user-visible texts of the copy's program that lack a stub or its effect."""
    build = ["cargo", "-q", "build", "--locked", "-p", "anabranch"]
    subprocess.run(build, cwd=copy, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", copy / "target"))

    def program(*arguments: str) -> str:
        command = [str(target / "debug/anabranch"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    seen = {
        "anabranch --help": (program("--help"), "Print a number"),
        "anabranch stub": (program("stub", "7"), "7 is the stub's"),
        "the completions": (program("generate", "completions", "bash"), "anabranch__subcmd__stub"),
        "the help of split, as a schedule": (program("split", "--help"), "stub: the first path"),
        "the message for an unknown schedule": (
            program("split", "--listen", "127.0.0.1:1", "--to", "127.0.0.1:2", "--schedule", "x"),
            "stub",
        ),
        "the message for an unknown protocol": (
            program("split", "--listen", "127.0.0.1:1", "--to", "127.0.0.1:2", "--protocol", "x"),
            ", stub, mosh",
        ),
        "the help of pt server, as a profile": (
            program("pt", "server", "--help"), "stub: bytes turned over",
        ),
        "the message for an unknown profile": (
            program("pt", "server", "--listen", "127.0.0.1:1", "--to", "127.0.0.1:2", "--key", "k",
                    "--profile", "x"), "stub",
        ),
        "the help of emulate, as a property of links": (
            program("emulate", "--help"), "stub: Whether everything is lost.",
        ),
        "the help of client, as a congestion control": (
            program("client", "--help"), "A window of one size.",
        ),
        "the message for an unknown congestion control": (
            program("relay", "--udp-or-congestion", "x"), "stub",
        ),
        "the help of experiment": (program("experiment", "--help"), "Measure nothing"),
        "anabranch experiment stub": (program("experiment", "stub"), "0 units"),
    }  # fmt: skip
    return [f"{place} does not show the stub: {text[-300:]}" for place, (text, words) in
            seen.items() if words not in text]  # fmt: skip


def main() -> int:
    """Prints each breach; returns 1 if there is any."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    copy = Path(sys.argv[1]).resolve()
    table = rows((ROOT / "ARCHITECTURE.md").read_text())
    found = [line for stub in STUBS for line in breaches(stub, table.get(stub.what, []))]
    copy.mkdir(parents=True, exist_ok=True)
    copy_to(copy)
    cargo = ["cargo", "-q"]
    subprocess.run([*cargo, "check", "--workspace", "--locked"], cwd=copy, check=True)
    # The conformance suites run on every family.
    for suite in (
        ["-p", "anabranch-multipath", "--lib", "conformance"],
        ["-p", "anabranch-links", "--test", "conformance", "every_kind"],
        ["-p", "anabranch-comps", "--lib", "protocol"],
        ["-p", "anabranch-stego", "--lib", "profile"],
        ["-p", "anabranch-stego", "--test", "links", "streams_of_any_length"],
        ["-p", "anabranch-emulator", "--lib", "every_property_has_its_row"],
        ["-p", "anabranch-emulator", "--test", "stub"],
        ["-p", "anabranch-tcp", "--lib", "congestion"],
        ["-p", "anabranch-tcp", "--test", "transfers"],
        ["-p", "anabranch-capture", "--lib", "the_columns_are_those_of_the_lab"],
    ):
        test = [*cargo, "test", "--locked", *suite]
        subprocess.run(test, cwd=copy, check=True, stdout=subprocess.DEVNULL)
    found += program_lists(copy)
    found += lab_lists(copy)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"added {', '.join(stub.what for stub in STUBS)}: {len(found)} breaches of the table")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
