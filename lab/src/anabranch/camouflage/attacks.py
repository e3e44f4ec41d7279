"""The attacks on page loads through pluggable transports, with their parameters."""

from __future__ import annotations

from typing import Any

ATTACKS: dict[str, dict[str, Any]] = {
    "k-fp": {},
    "rocket": {},
    # Loads rarely take 20 s; slots have 44 ms, as published. Batches are small and epochs many,
    # because there are few loads.
    "rf": {"slots": 450, "window": 20.0, "epochs": 40, "batch_size": 16, "learning_rate": 0.001},
}
"""Parameters by attack; unlisted parameters have the attack's defaults."""
