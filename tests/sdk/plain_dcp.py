"""torch.distributed.checkpoint as users write it; its package exports nothing that a type checker sees."""

from __future__ import annotations

import importlib
from typing import Any

dcp: Any = importlib.import_module("torch.distributed.checkpoint")
