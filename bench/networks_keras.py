"""The lab's networks in Keras, for `bench/networks.py`.

Usage: networks_keras.py NAME EPOCHS BATCHES

The networks follow the papers (Sirinam et al., CCS 2018; Shen et al., USENIX Security 2023). Run
this with the Python that has `keras` and `tensorflow-cpu`.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import training_task

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
keras: Any = importlib.import_module("keras")
np: Any = importlib.import_module("numpy")
L: Any = keras.layers


def deep_fingerprinting() -> Any:
    """Builds four blocks of two convolutions, and two dense layers."""
    layers = [L.Input(training_task.SHAPES["df"]), L.Reshape((-1, 1))]
    for block in range(4):
        activation = "elu" if block == 0 else "relu"
        for _ in range(2):
            layers += [L.Conv1D(32 << block, 8, padding="same"), L.BatchNormalization()]
            layers += [L.Activation(activation)]
        layers += [L.MaxPooling1D(8, 4, padding="same"), L.Dropout(0.1)]
    layers += [L.Flatten()]
    for rate in (0.7, 0.5):
        layers += [L.Dense(512), L.BatchNormalization(), L.Activation("relu"), L.Dropout(rate)]
    return keras.Sequential([*layers, L.Dense(training_task.CLASSES)])


def robust_fingerprinting() -> Any:
    """Builds four convolutions over both rows, six over time, and an average for each class."""
    rows, slots = training_task.SHAPES["rf"]
    layers = [L.Input((rows, slots)), L.Permute((2, 1)), L.Reshape((slots, rows, 1))]
    for width in (32, 32, 0, 64, 64):
        if width == 0:
            layers += [L.MaxPooling2D((3, 1)), L.Dropout(0.1)]
            continue
        layers += [L.ZeroPadding2D(1), L.Conv2D(width, (6, 3))]
        layers += [L.BatchNormalization(momentum=0.9, epsilon=1e-5), L.Activation("relu")]
    layers += [L.MaxPooling2D((2, 2)), L.Dropout(0.1), L.Reshape((-1, 64)), L.Permute((2, 1))]
    layers += [L.Reshape((32, -1)), L.Permute((2, 1))]
    for width in (128, 128, 0, 256, 256, 0, 512, training_task.CLASSES):
        if width == 0:
            layers += [L.MaxPooling1D(3), L.Dropout(0.3)]
            continue
        layers += [L.Conv1D(width, 3, padding="same")]
        layers += [L.BatchNormalization(momentum=0.9, epsilon=1e-5), L.Activation("relu")]
    return keras.Sequential([*layers, L.GlobalAveragePooling1D()])


def main() -> None:
    """Trains at the published size with the published optimiser."""
    name, epochs, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model = robust_fingerprinting() if name == "rf" else deep_fingerprinting()
    optimizer = keras.optimizers.Adam(0.0005) if name == "rf" else keras.optimizers.Adamax(0.002)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # TensorFlow's own operations are faster on a CPU than XLA's.
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False)
    traces, codes = training_task.traces(name, batches)
    clock = training_task.Clock(len(traces))
    each = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: clock.epoch(logs["loss"]))
    batch = training_task.BATCH[name]
    model.fit(traces, codes, batch_size=batch, epochs=epochs, verbose=0, callbacks=[each])
    parameters = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
    clock.report(parameters=parameters, version=f"Keras {keras.__version__}")


if __name__ == "__main__":
    main()
