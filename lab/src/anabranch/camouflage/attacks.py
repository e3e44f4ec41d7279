"""The attacks on page loads through pluggable transports, with their parameters."""

from __future__ import annotations

from typing import Any

ATTACKS: dict[str, dict[str, Any]] = {
    "k-fp": {},
    "rocket": {},
    # A load rarely takes 20 s; slots of 44 ms as published. There are few loads, so that batches
    # are small and epochs are many.
    "rf": {"slots": 450, "window": 20.0, "epochs": 40, "batch_size": 16, "learning_rate": 0.001},
}
"""Parameters by attack; unlisted parameters have the attack's defaults."""
