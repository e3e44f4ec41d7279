"""Networks in JAX and Equinox, and the one loop that trains them.

Nothing here is imported before a network is built, so that forests and support vector machines
work without JAX. `require_jax` turns its absence into one line that says what to install.
"""

from __future__ import annotations

from importlib.util import find_spec


class MissingExtraError(ImportError):
    """An optional part of the package is needed and not installed."""


def how_to_install(extra: str) -> str:
    """What to type for an optional part: a folder, since the name on the index is not ours."""
    return f"pip install './lab[{extra}]' in the project's folder"


NEEDED = ("jax", "jaxlib", "equinox", "optax")
"""What networks import."""


def missing_of_jax() -> list[str]:
    """Those of `NEEDED` that are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def require_jax() -> None:
    """Raises `MissingExtraError` where JAX, its jaxlib, Equinox or Optax is not installed."""
    missing = missing_of_jax()
    if missing:
        needed = f"network attacks need {', '.join(missing)}"
        raise MissingExtraError(f"{needed}: {how_to_install('nets')}")
