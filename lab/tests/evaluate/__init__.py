"""Tests of observers, protocols, metrics, evaluations and sweeps."""
