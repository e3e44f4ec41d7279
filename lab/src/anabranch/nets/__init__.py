"""Networks in JAX and Equinox, and the one loop that trains them.

No module of this package is imported before a network is built, so forests and support vector
machines work without JAX. `require_jax` reports in one line that JAX is missing, with the command
that installs it.
"""

from __future__ import annotations

from importlib.util import find_spec


class MissingExtraError(ImportError):
    """Error of a needed optional dependency (extra) that is not installed."""


def how_to_install(extra: str) -> str:
    """Returns the command that installs an extra from the source folder.

    PyPI is not used, because the package's name there is not this project's.
    """
    return f"pip install './lab[{extra}]' in the project's folder"


NEEDED = ("jax", "jaxlib", "equinox", "optax")
"""Packages that networks import."""


def missing_of_jax() -> list[str]:
    """Returns the packages of `NEEDED` that are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def require_jax() -> None:
    """Raises `MissingExtraError` if JAX, jaxlib, Equinox or Optax is not installed."""
    missing = missing_of_jax()
    if missing:
        needed = f"network attacks need {', '.join(missing)}"
        raise MissingExtraError(f"{needed}: {how_to_install('nets')}")
