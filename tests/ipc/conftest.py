"""Folders in memory, as the tests of checkpoints have them."""

from __future__ import annotations

from tests.checkpoint.conftest import arena, shm, small_disk

__all__ = ["arena", "shm", "small_disk"]
