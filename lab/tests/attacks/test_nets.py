"""Layers against XLA's own operations, and the size of the published networks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anabranch.attacks import ATTACKS
from anabranch.attacks.network import NetworkAttack
from anabranch.nets.convolution import convolve, convolve_rows
from anabranch.nets.layers import BatchNorm, Dropout, MaxPool
from anabranch.nets.pfp import ResponseNorm


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("padding", "stride", "dilation"),
    [
        ((0, 0), 1, 1),
        ((3, 4), 1, 1),
        ((3, 3), 2, 1),
        ((2, 0), 2, 1),
        ((16, 0), 1, 8),
        ((1, 1), 3, 2),
    ],
)
def test_both_convolutions_give_the_same_numbers(
    padding: tuple[int, int], stride: int, dilation: int
) -> None:
    x, kernel = normal(3, 23, 5), normal(3, 5, 4)

    def result(method: Any) -> Any:
        def total(x: Any, kernel: Any) -> Any:
            y = convolve(
                x, kernel, padding=padding, stride=stride, dilation=dilation, method=method
            )
            return (y * y).sum(), y

        return jax.value_and_grad(total, argnums=(0, 1), has_aux=True)(x, kernel)

    ((_, slices), slopes), ((_, lax), lax_slopes) = result("slices"), result("lax")
    np.testing.assert_allclose(slices, lax, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(slopes, lax_slopes, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["slices", "lax"])
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_rows_as_channels_are_a_convolution_in_two_dimensions(rows: int, method: Any) -> None:
    x, kernel = normal(2, 17, rows, 3), normal(3, 6, 3, 5)
    theirs = jax.lax.conv_general_dilated(
        x.transpose(0, 2, 1, 3),
        kernel,
        (1, 1),
        [(1, 1)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ).transpose(0, 2, 1, 3)
    ours = convolve_rows(x, kernel, padding=(1, 1), method=method)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "stride"), [(8, 4), (3, 2), (10, 10), (3, 3), (2, 2)])
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("length", [10, 32, 37])
def test_pooling_by_reshape_is_pooling(size: int, stride: int, same: bool, length: int) -> None:
    x = normal(2, length, 3)
    theirs = jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, size, 1), (1, stride, 1), "SAME" if same else "VALID"
    )
    ours, _ = MaxPool(size, stride, same=same)(jnp.asarray(x), (), None)
    np.testing.assert_array_equal(ours, theirs)


def test_batch_normalisation_learns_the_statistics_of_its_input() -> None:
    layer, x = BatchNorm(3), 5 + 2 * normal(64, 9, 3)
    y, state = layer(jnp.asarray(x), layer.initial(), jax.random.key(0))
    np.testing.assert_allclose(y.mean((0, 1)), 0, atol=1e-5)
    np.testing.assert_allclose(y.std((0, 1)), 1, atol=1e-3)
    used, unchanged = layer(jnp.asarray(x), state, None)
    np.testing.assert_allclose(used, y, atol=1e-4)
    assert unchanged is state


def test_batch_normalisation_without_training_passes_on() -> None:
    layer, x = BatchNorm(3, epsilon=0.0), normal(4, 3)
    y, _ = layer(jnp.asarray(x), layer.initial(), None)
    np.testing.assert_allclose(y, x, rtol=1e-6)


def test_dropout_keeps_the_mean_and_rests_in_use() -> None:
    x = jnp.ones((100, 100))
    y, _ = Dropout(0.3)(x, (), jax.random.key(1))
    assert float((y == 0).mean()) == pytest.approx(0.3, abs=0.02)
    assert float(y.mean()) == pytest.approx(1.0, abs=0.03)
    assert Dropout(0.3)(x, (), None)[0] is x


def test_response_normalisation_looks_at_eleven_channels() -> None:
    x = normal(2, 4, 16) * 50
    y, _ = ResponseNorm(16)(jnp.asarray(x), (), None)
    near = np.square(x[..., 3:14]).sum(-1)
    np.testing.assert_allclose(y[..., 8], x[..., 8] / (1 + 1e-4 * near) ** 0.75, rtol=1e-5)


PUBLISHED = {
    "df": 3_978_911,
    "tik-tok": 3_978_911,
    "rf": 1_029_789,
}
"""Number of parameters at full size with 95 classes, counted by hand from the papers' layers."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_full_size_is_the_published_size(name: str) -> None:
    attack = ATTACKS[name]()
    assert isinstance(attack, NetworkAttack)
    network = attack._build("network", np.random.default_rng(0), 95)
    assert sum(leaf.size for leaf in jax.tree.leaves(network)) == PUBLISHED[name]
