"""Provide the same folders in memory as in the tests of checkpoints."""

from __future__ import annotations

from tests.checkpoint.conftest import arena, shm, small_disk

__all__ = ["arena", "shm", "small_disk"]
