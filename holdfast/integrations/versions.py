"""Warn where a framework has another version than the one that was tried."""

from __future__ import annotations

import importlib.metadata
import logging

TRIED = {"transformers": "5.23.0", "accelerate": "1.15.0", "lightning": "2.6.6"}
"""The versions that `make frameworks` kills."""
_OTHER = (
    "%s %s: Holdfast was tried with %s %s. Another version may have other internals: compare a killed run "
    "with an undisturbed one before you rely on it (holdfast rehearse does)"
)
_told: set[tuple[str, str]] = set()  # in this process
log = logging.getLogger("holdfast.sdk")


def check(*packages: str) -> None:
    """Log once of each package of another version: integrations rely on internals of the frameworks."""
    for package in packages:
        found = importlib.metadata.version(package)
        if found != TRIED[package] and (package, found) not in _told:
            _told.add((package, found))
            log.warning(_OTHER, package, found, package, TRIED[package])
