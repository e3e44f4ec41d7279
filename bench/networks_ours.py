"""Trains a network of the lab for `bench/networks.py`. Usage: networks_ours.py NAME EPOCHS BATCHES.

Run this with the lab's Python.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import training_task

jax: Any = importlib.import_module("jax")
np: Any = importlib.import_module("numpy")
nets: Any = importlib.import_module("anabranch.nets")
for part in ("df", "recipe", "rf", "train"):
    importlib.import_module(f"anabranch.nets.{part}")


def main() -> None:
    """Trains at the published size with the published optimiser."""
    name, epochs, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = np.random.default_rng(0)
    classes, batch = training_task.CLASSES, training_task.BATCH[name]
    if name == "rf":
        network = nets.rf.robust_fingerprinting(rng, classes, 32)
        recipe = nets.recipe.Recipe("adam", 0.0005, epochs, batch)
    else:
        (length,) = training_task.SHAPES["df"]
        network = nets.df.deep_fingerprinting(rng, length, classes, 32, 512)
        recipe = nets.recipe.Recipe("adamax", 0.002, epochs, batch)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(network))
    traces, codes = training_task.traces(name, batches)
    clock = training_task.Clock(len(traces))

    def note(_epoch: int, loss: float, _accuracy: float | None, _rate: float) -> None:
        clock.epoch(loss)

    nets.train.train(network, (traces,), codes, recipe, seed=0, on_epoch=note)
    clock.report(parameters=parameters, version=f"JAX {jax.__version__}")


if __name__ == "__main__":
    main()
