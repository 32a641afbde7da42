"""Provide the same arenas and storages as in the tests of checkpoints."""

from __future__ import annotations

from tests.checkpoint.conftest import arena, shm, store

__all__ = ["arena", "shm", "store"]
