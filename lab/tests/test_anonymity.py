from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest

from anabranch.anonymity import COMB, AnonymityError, Consensus, closed_form


def table(relays: int = 600, in_use: int = 1) -> bytes:
    """Returns relays of equal weights: a third are guards, a third are exits to the web."""
    kinds = [
        ("Fast Guard Running Stable V2Dir Valid", "reject 1-65535"),
        ("Exit Fast Running Stable Valid", "accept 80,443"),
        ("Fast Running Valid", "reject 1-65535"),
    ]
    lines = [
        "# valid-after 2019-12-14 21:00:00",
        f"# params guard-n-primary-guards-to-use={in_use}",
        "# bandwidth-weights Wgg=10000 Wee=10000 Wmm=10000",
        "#fp\t",
    ]
    for place in range(relays):
        flags, policy = kinds[place % 3]
        address = f"{1 + place // 250}.{place % 250}.0.1\t9001\t0\tSE"
        lines.append(
            f"{1 + place * 7:040X}\tr{place}\t{address}\t{50 + place % 9}\t0\t{flags}\t0.4\t"
            f"{policy}\t"
        )
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture(scope="module")
def consensus() -> Consensus:
    return Consensus(table())


def test_a_consensus_says_what_it_holds(consensus: Consensus, tmp_path: Path) -> None:
    assert (consensus.relays, consensus.guards_in_use) == (600, 1)
    assert consensus.has_policies
    assert not consensus.has_families
    assert consensus.valid_after.isoformat() == "2019-12-14T21:00:00+00:00"
    assert consensus.entry_weights.shape == (200,)
    for name, packed in (
        ("c.tsv", table()),
        ("c.tsv.xz", lzma.compress(table())),
        ("c.tsv.gz", gzip.compress(table())),
    ):
        (tmp_path / name).write_bytes(packed)
        assert Consensus.read(tmp_path / name).relays == 600


def archive(*hours: int) -> bytes:
    """Returns a tar archive like CollecTor's for a month, with a consensus of each hour."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for hour in hours:
            text = table(600 + hour).replace(b"21:00:00", f"{hour:02}:00:00".encode())
            member = tarfile.TarInfo(f"consensuses/14/2019-12-14-{hour:02}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return out.getvalue()


def test_one_consensus_of_an_archive_is_read(tmp_path: Path) -> None:
    month, lone = tmp_path / "consensuses-2019-12.tar.xz", tmp_path / "one.tar"
    month.write_bytes(lzma.compress(archive(3, 6, 9)))
    lone.write_bytes(archive(6))
    for hour in ("2019-12-14T06", "2019-12-14 06:00", "2019-12-14T06:00:00Z"):
        found = Consensus.read(month, hour)
        assert (found.relays, found.valid_after.hour) == (606, 6)
    assert Consensus.read(lone).relays == 606
    plain = tmp_path / "c.tsv"
    plain.write_bytes(table())
    for path, wanted, says in (
        (month, None, r"several consensuses, .* valid_after='2019-12-14T03'"),
        (month, "2019-12-14T07", "none of its 3 consensuses, from 2019-12-14 03:00:00 to"),
        (month, "yesterday", "expected a date and an hour"),
        (plain, "2019-12-14T06", "not an archive: omit valid_after"),
    ):
        with pytest.raises(AnonymityError, match=says):
            Consensus.read(path, wanted)
    (tmp_path / "cut.tar").write_bytes(archive(3, 6)[:2000])
    with pytest.raises(AnonymityError, match=r"cut\.tar"):
        Consensus.read(tmp_path / "cut.tar", "2019-12-14T06")


def test_the_closed_form_has_the_values_of_the_paper() -> None:
    assert closed_form(0.2, 0.2, 1)[0] == pytest.approx(0.04)
    assert closed_form(0.2, 0.2, 3)[0] == pytest.approx(0.098, abs=5e-4)
    values = [closed_form(0.1, 0.1, legs)[0] for legs in range(1, 6)]
    assert values == pytest.approx([0.0100, 0.0190, 0.0271, 0.0344, 0.0410], abs=5e-5)
    assert closed_form(0.1, 0.1, 2)[1] == pytest.approx(0.001)


def test_circuits_are_drawn_as_the_closed_form_has_it(consensus: Consensus) -> None:
    paths = consensus.paths(entries=0.2, exits=0.2, circuits=1000, draws=20)
    assert paths.any.closed == pytest.approx([0.04, 0.072, 0.0976], abs=0.004)
    for chance in (paths.any, paths.all, paths.merge, paths.entries):
        assert chance.drawn.shape == (3,)
        assert np.abs(chance.drawn - chance.closed).max() < 0.015
        assert ((chance.low <= chance.drawn) & (chance.drawn <= chance.high)).all()
    assert paths.seen.shape == (3, 4)
    assert paths.seen.sum(axis=1) == pytest.approx(np.ones(3))
    assert paths.bytes == pytest.approx(np.full(3, 0.2), abs=0.02)
    assert (paths.circuits + paths.unbuilt == 20_000).all()


def test_a_year_has_rows_for_each_number_of_entries_and_comb(consensus: Consensus) -> None:
    year = consensus.year(clients=500, draws=4, days=[30, 365])
    assert year.any_ever.mean.shape == (4, 2)
    assert year.draws.shape == (4, 2, 3, 4)
    assert year.in_use == (1, 2, 3)
    means = year.draws.mean(axis=0)
    assert year.any_ever.mean[:3] == pytest.approx(means[:, :, 0].T)
    assert year.all_now.mean[:3] == pytest.approx(means[:, :, 3].T)
    comb = sum(share * row for share, row in zip(COMB, year.any_ever.mean[:3], strict=True))
    assert year.any_ever.mean[3] == pytest.approx(comb)
    assert (np.diff(year.any_ever.mean[:3, 1]) > 0).all()
    assert (np.diff(year.all_ever.mean[:3, 1]) < 0).all()


def test_adversaries_differ_and_threads_do_not(consensus: Consensus) -> None:
    def last(**settings: float | bool | int) -> np.ndarray:
        year = consensus.year(clients=300, draws=2, **settings)  # type: ignore[arg-type]
        return year.any_ever.mean[:, -1]

    by_lot = last()
    assert np.array_equal(by_lot, last(threads=1))
    assert not np.array_equal(by_lot, last(seed=2))
    assert not np.array_equal(by_lot, last(adds=4))
    assert not np.array_equal(by_lot, last(heaviest=True))
    assert last(churn=100.0)[0] > last(churn=100.0, hostile_churn=True)[0]


def test_fingerprints_tell_clients_with_two_guards_from_others(consensus: Consensus) -> None:
    prints = consensus.fingerprints(clients=5000, draws=2)
    assert prints.formula[0] == 25.0
    assert prints.drawn.unique.mean.shape == (3,)
    assert prints.drawn.unique.mean[1] > prints.drawn.unique.mean[0]
    assert (prints.fixed.over_clients.mean[1:] > prints.drawn.over_clients.mean[1:]).all()


def test_a_consensus_that_lets_two_guards_be_used_is_told_and_can_be_overruled() -> None:
    consensus = Consensus(table(in_use=2))
    assert consensus.fingerprints(clients=500, draws=1).in_use == (2, 2, 3)
    assert consensus.year(clients=50, draws=1).in_use == (2, 2, 3)
    assert consensus.year(clients=50, draws=1, guards_in_use=1).in_use == (1, 2, 3)


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("paths", {"entries": 1.5}, "between 0 and 1"),
        ("paths", {"exits": float("nan")}, "between 0 and 1"),
        ("paths", {"legs": 9}, "from 1 to 8"),
        ("paths", {"port": 70_000}, "from 1 to 65535"),
        ("paths", {"port": 25}, "no exit of the consensus allows port 25"),
        ("year", {"clients": 0}, "the number of clients is 0"),
        ("year", {"clients": -5}, "the number of clients is 0"),
        ("year", {"share": -0.1}, "between 0 and 1"),
        ("year", {"days": [90, 30]}, "in ascending order"),
        ("year", {"guards_in_use": 9}, "from 1 to 8"),
        ("fingerprints", {"clients": 0}, "the number of clients is 0"),
        ("fingerprints", {"draws": 0}, "the number of random draws is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    consensus: Consensus, name: str, settings: dict[str, float], says: str
) -> None:
    with pytest.raises(AnonymityError, match=says):
        getattr(consensus, name)(**settings)


def test_files_that_are_no_whole_consensus_are_refused(tmp_path: Path) -> None:
    whole = table()
    for data, says in (
        (whole[: len(whole) // 2], "its end is missing"),
        (b"hello\n", "neither"),
        (lzma.compress(whole), "compressed"),
    ):
        with pytest.raises(AnonymityError, match=says):
            Consensus(data)
    cut = tmp_path / "cut.tsv.xz"
    cut.write_bytes(lzma.compress(whole)[:-20])
    with pytest.raises(AnonymityError, match=r"cut\.tsv\.xz"):
        Consensus.read(cut)
    with pytest.raises(FileNotFoundError):
        Consensus.read(tmp_path / "none")
    few = Consensus(b"".join(line + b"\n" for line in whole.split(b"\n")[:7]))
    for analysis in (few.paths, few.year, few.fingerprints):
        with pytest.raises(AnonymityError, match="but the consensus has only 1: lower"):
            analysis()
    for entry, legs in ((1.5, 1), (0.1, 0)):
        with pytest.raises(AnonymityError):
            closed_form(entry, 0.1, legs)
