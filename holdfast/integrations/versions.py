"""Warn where a framework has another version than the one that was tried."""

from __future__ import annotations

import importlib.metadata
import logging

TRIED = {"transformers": "5.23.0", "accelerate": "1.15.0", "lightning": "2.6.6"}
"""The versions that `make frameworks` kills."""
log = logging.getLogger("holdfast.sdk")


def check(*packages: str) -> None:
    """Log a warning for each package of another version: an integration relies on a framework's internals."""
    for package in packages:
        found = importlib.metadata.version(package)
        if found != TRIED[package]:
            log.warning(
                "%s %s: Holdfast was tried with %s %s. Another version may have other internals: compare a "
                "killed run with an undisturbed one before you rely on it (make frameworks)",
                package,
                found,
                package,
                TRIED[package],
            )
