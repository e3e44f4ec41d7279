"""Anonymity of clients with several paths against hostile relays, from Tor consensuses.

The analysis of "Analysis of Multi-path Onion Routing" (DBSec 2019, section 6). `anabranch._core`
computes all of it, with the same Rust code as `anabranch anonymity` and with the client's own
guards and path selection; this module adds names and array shapes::

    from anabranch.anonymity import Consensus, closed_form

    consensus = Consensus.read("2015-10-10.tsv.xz")
    print(closed_form(0.2, 0.2, 3))                    # (0.0976, 0.0016)
    year = consensus.year(clients=20_000, draws=20)
    print(year.any_ever.mean[:, -1])                   # one, two, three entries, COMB; last day
    plt.plot(year.days, year.any_ever.mean.T)

Results are a function of consensus, settings and seed, whatever the number of threads.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from anabranch import _core

COMB = (0.6, 0.2, 0.2)
"""The client population COMB (paper, Figure 5): shares of clients with 1, 2 and 3 entry relays."""

LONGEST = 64 << 20
"""Maximum size of a consensus, in bytes, unpacked."""

_TAR_HEADER, _TAR_NAME = 512, 257
"""Length of a tar file's first header in bytes, and the offset of the format's name in it."""

_BEGIN = 4096
"""Number of bytes at the beginning of an archive's file that are searched for `valid-after`."""

Floats = NDArray[np.float64]


class AnonymityError(ValueError):
    """A file that is not a complete consensus, or an invalid setting; the message is one line."""


@dataclass(frozen=True, slots=True)
class Band:
    """Mean and quantiles over random draws of the adversary, or of the clients.

    The shape of the arrays is described in the class that has the band as an attribute.

    Attributes:
        mean: mean over all draws.
        low: the 5 % quantile of the draws.
        high: the 95 % quantile of the draws.
    """

    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Chance:
    """Probabilities for circuits of 1, 2, ... legs: arrays of shape (legs,), values 0 to 1.

    Attributes:
        closed: the formula's probability for independent relays, with the shares of the weight
            that the simulated adversaries have.
        drawn: the share of simulated circuits that hostile relays compromise.
        low: the lower end of the 95 % interval of `drawn`, over the random adversaries.
        high: the upper end of that interval.
    """

    closed: Floats
    drawn: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Paths:
    """Chances that hostile relays compromise circuits, by number of legs (section 6.1).

    Attributes:
        entry_share, exit_share, middle_share: the adversary's share of the weight of each position,
            mean over its draws, 0 to 1.
        relays: number of the adversary's relays, mean over its draws.
        any: at least one entry and the exit are hostile.
        all: all entries and the exit are hostile.
        merge: for legs that merge at a middle relay instead of the exit: at least one entry and
            that middle relay are hostile.
        entries: all entries are hostile, and together see all traffic.
        seen: shape (legs, legs + 1): the share of circuits with 0, 1, ... hostile entries; each
            sees 1 / legs of the bytes if they are distributed evenly.
        bytes: shape (legs,): the share of the bytes that hostile entries see, mean over circuits.
        circuits: shape (legs,): number of circuits built, over all draws.
        unbuilt: shape (legs,): number of circuits that could not be built, because too few relays
            were left.
    """

    entry_share: float
    exit_share: float
    middle_share: float
    relays: float
    any: Chance
    all: Chance
    merge: Chance
    entries: Chance
    seen: Floats
    bytes: Floats
    circuits: NDArray[np.int64]
    unbuilt: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Year:
    """Shares of compromised clients (section 6.2, Figure 5).

    Bands have shape (4, days): one, two and three entries, then `COMB`.

    Attributes:
        days: shape (days,): the days on which compromised clients are counted.
        in_use: number of guards that clients of one, two and three legs use at a time.
        guards: shape (4,): mean number of different guards that a client used.
        any_ever: at least one entry was hostile on or before that day (model 1).
        all_ever: all entries of a circuit were hostile at once, on or before that day (model 2).
        any_now: at least one entry is hostile on that day.
        all_now: all entries are hostile on that day.
        draws: shape (draws, days, 3, 4): each draw of the adversary, one to three entries, and the
            four measures above in their order.
    """

    days: NDArray[np.int64]
    in_use: tuple[int, ...]
    guards: Floats
    any_ever: Band
    all_ever: Band
    any_now: Band
    all_now: Band
    draws: Floats


@dataclass(frozen=True, slots=True)
class Sharing:
    """How many clients share a set of guards: bands of shape (legs,), over populations.

    Attributes:
        over_sets: mean number of clients for each set of guards in use.
        over_clients: number of clients that share a client's set, including itself; mean over
            clients, Σn²/N.
        median: median over clients of the number of clients that share a client's set.
        unique: the share of clients whose set no other client has.
        largest: clients of the most common set.
        effective: N / 2^H, where H is the entropy of sets in bits.
    """

    over_sets: Band
    over_clients: Band
    median: Band
    unique: Band
    largest: Band
    effective: Band


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Guard fingerprints (section 6.2) of clients with circuits of one leg up to `legs`.

    Attributes:
        in_use: number of guards that such clients use at a time.
        formula: shape (legs,): number of clients divided by C(guards, `in_use`), the paper's
            formula.
        drawn: sharing if each client draws its guards itself.
        fixed: sharing if guards are divided into random sets, and each client draws a set by
            weight.
    """

    in_use: tuple[int, ...]
    formula: Floats
    drawn: Sharing
    fixed: Sharing


class Consensus:
    """A consensus of the Tor network.

    Attributes:
        valid_after: start of its validity.
        relays: number of relays.
        has_policies: whether it lists the ports that exits accept. If not, every relay with the
            flag Exit counts as accepting all ports.
        has_families: whether it lists relay families. If not, no relays count as one family.
        guards_in_use: number of guards of a client with one leg (`guard-n-primary-guards-to-use`).
        entry_weights: shape (entries,), uint64: weights of the possible entry relays.
    """

    def __init__(self, data: bytes) -> None:
        """Reads a consensus from the bytes of a file.

        Args:
            data: a document of the directory protocol (dir-spec 3.4.1, flavour ns or microdesc) or
                a table (`docs/formats.md`); signatures are not checked.

        Raises:
            AnonymityError: if `data` is not a complete consensus.
        """
        try:
            self._core = _core.Consensus(data)
        except ValueError as error:
            raise AnonymityError(str(error)) from error
        self.valid_after = datetime.fromtimestamp(self._core.valid_after, UTC)
        self.relays = self._core.relays
        self.has_policies = self._core.has_policies
        self.has_families = self._core.has_families
        self.guards_in_use = self._core.guards_in_use
        self.entry_weights = self._core.entry_weights()

    @classmethod
    def read(cls, path: str | os.PathLike[str], valid_after: str | None = None) -> Consensus:
        """Reads a file (xz, gzip or uncompressed), or one consensus of a tar archive.

        Args:
            path: path of the file; the format is detected from the content.
            valid_after: first hour of validity of the consensus to read from an archive (such as
                CollecTor's for a month), for example `2024-05-17T17`. None: the archive's only
                consensus.

        Raises:
            AnonymityError: if the file is not a complete consensus, or `valid_after` is missing
                for an archive; the message names the file.
            OSError: if the file cannot be read.
        """
        path = Path(path)
        try:
            return cls(_document(path, valid_after))
        except (ValueError, lzma.LZMAError, gzip.BadGzipFile, tarfile.TarError, EOFError) as error:
            raise AnonymityError(f"{path}: {error}") from error

    def paths(
        self,
        *,
        entries: float = 0.1,
        exits: float = 0.1,
        heaviest: bool = False,
        legs: int = 3,
        port: int = 443,
        circuits: int = 2000,
        draws: int = 20,
        seed: int = 1,
        threads: int | None = None,
    ) -> Paths:
        """Computes the chances of a compromised circuit: closed form and simulation (section 6.1).

        Args:
            entries: the adversary's share of the entry weight, above 0 and below 1.
            exits: the adversary's share of the weight of exits to `port`.
            heaviest: whether the adversary runs the heaviest relays, and not random ones.
            legs: the largest number of legs of a circuit; 1 to `legs` are computed.
            port: port of the destination, 1 to 65535.
            circuits: number of circuits for each number of legs and each random adversary, each
                circuit of a new client.
            draws: number of random adversaries.
            seed: seed of all draws.
            threads: number of threads; None: one for each processor.

        Raises:
            AnonymityError: a setting makes no sense in this network.
        """
        if not 0 <= port < 1 << 16:
            raise AnonymityError(f"the port is {port}: expected a number from 1 to 65535")
        settings = (entries, exits, heaviest, _size(legs), port, _size(circuits), _size(draws))
        try:
            held, flat, seen, read, counts = self._core.paths(*settings, seed, _threads(threads))
        except (ValueError, OverflowError) as error:
            raise AnonymityError(str(error)) from error
        one, whole, merge, read_all = (
            Chance(*kind) for kind in flat.reshape(legs, 4, 4).transpose(1, 2, 0)
        )
        built, unbuilt = np.array(counts, dtype=np.int64).T
        seen = seen.reshape(legs, legs + 1)
        return Paths(*held, one, whole, merge, read_all, seen, read, built, unbuilt)

    def year(
        self,
        *,
        clients: int = 20_000,
        draws: int = 50,
        share: float = 0.1,
        adds: int | None = None,
        heaviest: bool = False,
        churn: float | None = None,
        hostile_churn: bool = False,
        days: Sequence[int] = (30, 90, 182, 365),
        guards_in_use: int | None = None,
        seed: int = 1,
        threads: int | None = None,
    ) -> Year:
        """Simulates a year of clients with 1 to 3 entries, and `COMB` (section 6.2, Figure 5).

        Args:
            clients: number of clients for each draw and each number of entries. 500,000 clients, as
                in the paper, take a minute of CPU time. All draws share these clients, with two
                exceptions: `adds`, and `churn` without `hostile_churn`. There each draw simulates
                its own clients and takes a minute.
            draws: number of random adversaries.
            share: the adversary's share of the entry weight, including its own relays, above 0 and
                below 1.
            adds: number of relays of equal weight that the adversary adds; None: it runs relays
                that are in the consensus.
            heaviest: whether the adversary runs the heaviest relays, and not random ones.
            churn: mean lifetime of relays in days; None: all relays stay.
            hostile_churn: whether hostile relays leave too; only with `churn`.
            days: days on which to count compromised clients, in order, from 1 to 3650.
            guards_in_use: number of guards of a client with one leg; None: from the consensus.
            seed: seed of all draws.
            threads: number of threads; None: one for each processor.

        Raises:
            AnonymityError: a setting makes no sense in this network.
        """
        whose = (share, None if adds is None else _size(adds), heaviest, churn, hostile_churn)
        when = [_size(day) for day in days]
        rest = (when, guards_in_use, seed, _threads(threads))
        try:
            in_use, guards, flat, shares = self._core.year(
                _size(clients), _size(draws), *whose, *rest
            )
        except (ValueError, OverflowError) as error:
            raise AnonymityError(str(error)) from error
        any_ever, all_ever, any_now, all_now = (
            Band(*kind) for kind in flat.reshape(4, len(when), 4, 3).transpose(2, 3, 0, 1)
        )
        return Year(
            days=np.array(when, dtype=np.int64),
            in_use=tuple(count for count in in_use if count is not None),
            guards=np.array(guards),
            any_ever=any_ever,
            all_ever=all_ever,
            any_now=any_now,
            all_now=all_now,
            draws=shares.reshape(-1, len(when), 3, 4),
        )

    def fingerprints(
        self,
        *,
        clients: int = 83_000,
        legs: int = 3,
        draws: int = 10,
        guards_in_use: int | None = None,
        seed: int = 1,
        threads: int | None = None,
    ) -> Fingerprints:
        """Measures how many clients share a set of guards (section 6.2).

        Args:
            clients: size of each population.
            legs: the largest number of legs of a circuit, each with its own guard; 1 to `legs` are
                measured.
            draws: number of populations.
            guards_in_use: number of guards of a client with one leg; None: from the consensus.
            seed: seed of all draws.
            threads: number of threads; None: one for each processor.

        Raises:
            AnonymityError: a setting makes no sense in this network.
        """
        settings = (_size(clients), _size(legs), _size(draws), guards_in_use, seed)
        try:
            in_use, formula, flat = self._core.fingerprints(*settings, _threads(threads))
        except (ValueError, OverflowError) as error:
            raise AnonymityError(str(error)) from error
        measures = flat.reshape(legs, 2, 6, 3).transpose(1, 2, 3, 0)
        drawn, fixed = (Sharing(*(Band(*band) for band in kind)) for kind in measures)
        return Fingerprints(tuple(in_use), np.array(formula), drawn, fixed)


def closed_form(entry: float, exit: float, legs: int) -> tuple[float, float]:
    """Computes the probabilities that the exit and at least one entry, or all, are hostile.

    They are `f_x (1 - (1 - f_g)^m)` and `f_x f_g^m`, for independent relays (section 6.1).

    Args:
        entry: f_g, the adversary's share of the entry weight, 0 to 1.
        exit: f_x, its share of the exit weight, 0 to 1.
        legs: m, from 1.

    Raises:
        AnonymityError: a share is not from 0 to 1, or `legs` is below 1.
    """
    if not (0 <= entry <= 1 and 0 <= exit <= 1):
        raise AnonymityError(f"the shares are {entry} and {exit}: expected numbers from 0 to 1")
    if legs < 1:
        raise AnonymityError(f"the number of legs is {legs}: expected 1 or more")
    return _core.closed_form(entry, exit, legs)


def _document(path: Path, valid_after: str | None) -> bytes:
    """Returns the consensus of a file, or its first `LONGEST` + 1 bytes.

    The Rust code refuses a consensus of more than `LONGEST` bytes, so the rest is not read.

    Raises:
        ValueError: no consensus, or several, fit `valid_after`.
    """
    with path.open("rb") as file, _unpacked(file) as packed:
        head = packed.read(_TAR_HEADER)
        packed.seek(0)
        if head[_TAR_NAME : _TAR_NAME + 5] == b"ustar":
            return _member(packed, valid_after)
        if valid_after is not None:
            raise ValueError("it is a single consensus, not an archive: omit valid_after")
        return packed.read(LONGEST + 1)


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    """Opens the content of a file: xz, gzip or uncompressed."""
    begin = file.read(6)
    file.seek(0)
    if begin == b"\xfd7zXZ\0":
        return lzma.open(file)
    return cast(IO[bytes], gzip.open(file)) if begin[:2] == b"\x1f\x8b" else file


def _member(archive: IO[bytes], valid_after: str | None) -> bytes:
    """Returns the archive's consensus with this `valid_after`; with None, its only consensus."""
    wanted = None
    if valid_after is not None:
        wanted = valid_after.rstrip("Z").replace("T", " ", 1)
        if not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d(:\d\d){0,2}", wanted):
            raise ValueError(
                f"valid_after: '{valid_after}': expected a date and an hour, such as 2024-05-17T17"
            )
    only, times = None, []
    # As a stream: one member is in memory at a time.
    with tarfile.open(fileobj=archive, mode="r|") as members:
        for member in members:
            content = members.extractfile(member) if member.isfile() else None
            begin = b"" if content is None else content.read(_BEGIN)
            found = re.search(rb"^(?:# )?valid-after (\S+ \S+)", begin, re.MULTILINE)
            if content is None or found is None:
                continue
            time = found[1].decode(errors="replace")
            if wanted is not None and time.startswith(wanted):
                return begin + content.read(LONGEST + 1 - len(begin))
            times.append(time)
            if wanted is None:
                if only is not None:
                    example = times[0][:13].replace(" ", "T")
                    raise ValueError(
                        f"it is an archive of several consensuses, for example of {times[0]} and "
                        f"{time}: choose one, such as valid_after='{example}'"
                    )
                only = begin + content.read(LONGEST + 1 - len(begin))
    if only is None and times:
        raise ValueError(
            f"none of its {len(times)} consensuses, from {min(times)} to {max(times)}, has the "
            f"valid-after time {wanted}; choose another valid_after"
        )
    if only is None:
        raise ValueError("the archive holds no consensus; give a consensus or an archive of them")
    return only


def _size(value: int) -> int:
    """Replaces a negative count by 0.

    The Rust code refuses 0, with a message that names the setting.
    """
    return max(int(value), 0)


def _threads(threads: int | None) -> int:
    return threads if threads is not None else os.cpu_count() or 1
