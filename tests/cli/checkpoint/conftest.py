"""Arenas and storages, as the tests of checkpoints have them."""

from __future__ import annotations

from tests.checkpoint.conftest import arena, shm, store

__all__ = ["arena", "shm", "store"]
