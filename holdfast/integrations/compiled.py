"""Know a compiled model, and say why none is kept."""

from __future__ import annotations

from typing import Any

COMPILED = "too few runs with a failure were compared with undisturbed ones; a loop with Session keeps it"
"""For `Session` see holdfast/state/compiled.py."""


def is_compiled(model: Any) -> bool:
    """Whether a model is what torch.compile returns, or was compiled in place."""
    return hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None
