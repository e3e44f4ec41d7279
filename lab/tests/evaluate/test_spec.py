"""A spec of parts has the settings, and results have the names, of all earlier versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch import results
from anabranch.evaluate import Spec
from anabranch.evaluate.flat import PARTS, SETTINGS
from anabranch.evaluate.parts import AttackSettings, Padding, Scoring, Splitting, Training
from anabranch.observers import Observer, SettingError
from anabranch.protocol import Design
from anabranch.splitting import SplitError

COMMITTED = sorted((Path(__file__).parents[3] / "docs/results").glob("*.jsonl"))
CHANGED: dict[str, Any] = {
    "schedule": "weighted",
    "every": "50p",
    "paths": 4,
    "mode": "independent",
    "delays": [0.1, [0, 0.2], 0.0, 0.0],
    "draw": "session:5",
    "defence": "front",
    "path_defence": "wtf-pad",
    "observer": "largest+earlier",
    "attack": "k-fp-paths",
    "parameters": {"trees": 20},
    "protocol": "honest",
    "folds": 2,
    "world": "open",
    "pages": 20,
    "monitored": 10,
    "loads": 5,
    "validation_loads": 4,
    "test_loads": 3,
    "test_run": 2,
    "validation_run": 1,
    "resplits": 2,
    "merged": True,
    "r": 10.0,
    "bootstrap": 50,
    "seed": 7,
    "train_on": None,
}
"""Values of all settings; all but two differ from the defaults."""


def stored(spec: Spec) -> Any:
    return json.loads(json.dumps(spec.to_dict()))


def test_every_setting_survives_a_file() -> None:
    assert list(CHANGED) == list(SETTINGS) == list(Spec().to_dict())
    assert stored(Spec.from_dict(CHANGED)) == CHANGED
    assert stored(Spec.of(**CHANGED).changed(seed=8)) == CHANGED | {"seed": 8}
    usual = Spec().to_dict()
    same = {name for name in SETTINGS if usual[name] == CHANGED[name]}
    assert same == {"protocol", "train_on"}


def test_every_field_of_every_part_is_a_setting() -> None:
    fields = {(part, name) for part in PARTS for name in PARTS[part].__dataclass_fields__}
    assert {tuple(place) for place in SETTINGS.values() if place.field} == fields


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.name)
def test_committed_results_keep_their_settings_and_names(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "__version__", "0.1.0")  # which has made them
    lines = file.read_text("utf-8").splitlines()
    own = 0
    for (place, numbers), line in zip(results.lines(file), lines, strict=True):
        # Settings of later versions have their defaults.
        assert stored(numbers.spec) == stored(Spec()) | json.loads(line)["spec"]
        reading = {"form": None, "unmonitored_y": None}
        own += results.key(numbers.spec, numbers.data, reading) == Path(place).stem
    # Numbers that earlier revisions of an attack measured are kept under other names.
    assert own >= 80 if file.name == "fingerprinting.jsonl" else own == len(lines)


@pytest.mark.parametrize(
    ("part", "settings", "said"),
    [
        (Splitting, {"paths": 0}, "paths: 0"),
        (Splitting, {"schedule": "none"}, "there is no schedule 'none'"),
        (Padding, {"defence": "decoys:10%"}, "defence: decoys are added to paths"),
        (Padding, {"path_defence": "none"}, "the defence 'none' is unknown"),
        (AttackSettings, {"name": "none"}, "unknown attack 'none'"),
        (AttackSettings, {"parameters": {"tree": 3}}, "did you mean 'trees'"),
        (Design, {"protocol": "both"}, "protocol: 'both' is unknown"),
        (Design, {"folds": 11}, "folds: 11 is not from 1 to 10"),
        (Design, {"world": "wide"}, "world: 'wide' is unknown"),
        (Training, {"on": "all"}, "train_on: 'all' is unknown"),
        (Training, {"on": "unsplit", "merged": True}, "leave out resplits and merged"),
        (Scoring, {"r": -1.0}, "r: -1 is not a number of 0 or more"),
        (Scoring, {"bootstrap": 0}, "bootstrap: 0 is not from 1"),
    ],
)
def test_each_part_refuses_its_wrong_settings(
    part: type, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises((ValueError, SplitError), match=said):
        part(**settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"path": 3}, "unknown setting 'path': did you mean 'paths'"),
        ({"paths": 2.5}, "paths: 2.5 is not valid: expected a whole number"),
        ({"paths": None}, "paths: None is not valid: expected a whole number"),
        ({"seed": True}, "seed: True is not valid: expected a whole number"),
        ({"r": "20"}, "r: '20' is not valid: expected a number"),
        ({"merged": 1}, "merged: 1 is not valid: expected true or false"),
        ({"delays": [1, [2]]}, "expected a list of seconds, or of pairs up, down"),
        ({"parameters": []}, "parameters: \\[\\] is not valid: expected a table"),
        ({"world": 3}, "world: 3 is not valid: expected text"),
        ({"observer": 3}, "observer: 3 is not valid: expected text"),
        ({"observer": "nobody"}, "observer 'nobody' is unknown"),
    ],
)
def test_a_file_with_a_wrong_setting_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Spec.from_dict(settings)


def test_parts_make_the_same_spec_as_settings() -> None:
    parts = Spec(
        splitting=Splitting("weighted", "50p"),
        observer=Observer("merged", 2),
        attack=AttackSettings("minirocket"),
        design=Design(loads=5),
    )
    settings = {"schedule": "weighted", "every": "50p", "observer": "merged:2"}
    assert parts == Spec.of(**settings, attack="rocket", loads=5)
    assert parts.splitting.mode == "follow"
