"""Networks run on JAX's device: nothing in the lab chooses one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch

pytest.importorskip("jax")

SOURCE = Path(anabranch.__file__).parent
PINS = re.compile(
    r"jax_platform|JAX_PLATFORM|device_put|default_device|devices\(|backend=|jit\([^)]*device"
)
ASKS = {"doctor.py"}
"""Files that may query the devices, to report them."""

PROGRAM = """
import sys, jax
import numpy as np
from anabranch.attacks import PFP, RobustFingerprinting, Sequences
from anabranch.nets import train as loop

place = int(sys.argv[1])
before = jax.devices()
if place:
    jax.config.update("jax_default_device", before[place])
used, plain = set(), loop.train
def train(*arguments, **options):
    done = plain(*arguments, **options)
    for leaf in jax.tree.leaves((done.network, done.state)):
        used.update(leaf.devices())
    return done
loop.train = train
X = Sequences.from_lists([np.arange(40) / 10] * 8, [np.r_[1:21, -20:0] * 9] * 4 + [[500] * 40] * 4)
y = np.repeat(["a", "b"], 4)
small = {"epochs": 3, "batch_size": 4, "width": 4}
for attack in (PFP(length=40, hidden=8, **small), RobustFingerprinting(slots=54, **small)):
    print(attack.fit(X, y).predict_proba(X).round(5).tolist())
assert jax.devices() == before
print(sorted(each.id for each in used), len(before))
"""


def trained(place: int) -> list[str]:
    """Returns two networks' predictions on device number `place` of two, and their
    weights' device.
    """
    two = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    two.pop("JAX_PLATFORMS", None)
    call = [sys.executable, "-c", PROGRAM, str(place)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=two)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_networks_train_on_the_device_that_jax_has_for_them() -> None:
    first, second = trained(0), trained(1)
    assert first[:2] == second[:2]
    assert first[2].startswith("[0] ")
    assert second[2].startswith("[1] ")


def test_no_file_names_a_device() -> None:
    found = {
        f"{file.name}: {hit[0]}"
        for file in SOURCE.rglob("*.py")
        if file.name not in ASKS
        for hit in PINS.finditer(file.read_text())
    }
    assert not found
    assert PINS.search("jax.config.update('jax_platforms', 'cpu')"), "the twin"
