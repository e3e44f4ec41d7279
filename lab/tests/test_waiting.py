"""Messages during a wait, and a path passed in place of results."""

from pathlib import Path

import pytest

from anabranch import plot
from anabranch.attacks import EpochReport
from anabranch.commands.progress import EachMinute, epochs
from anabranch.observers import SettingError


def test_through_a_pipe_a_line_is_printed_each_minute(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = EachMinute(lambda: now[0])
    for second in range(0, 181, 10):
        now[0] = float(second)
        lines.show(f"epoch at {second}")
    assert capsys.readouterr().err == "epoch at 60\nepoch at 120\nepoch at 180\n"


def test_an_epoch_is_such_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EachMinute.__init__, "__defaults__", (iter([0.0, 100.0]).__next__,))
    with epochs() as on_epoch:
        on_epoch(EpochReport("rf", 3, 30, 0.5, None, 0.001))
    assert capsys.readouterr().err == "rf: loss 0.500, epoch 3 of 30\n"


@pytest.mark.parametrize("found", ["results/", Path("results")])
def test_a_path_in_the_place_of_results_is_told_what_reads_it(found: str | Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(SettingError, match=r"results\.load\(file\) for file in Path"):
        plot.accuracy(found)  # type: ignore[arg-type]
