"""Know a compiled model, and say why none is kept."""

from __future__ import annotations

from typing import Any

COMPILED = "two undisturbed runs of one script differed, so a failure might change the result unseen"
"""Seen with inductor on a CPU: a loop with accelerate, bf16, batch norm and a last batch that is smaller. Two
runs of it under torchrun were equal; why they differ under Holdfast is not known."""


def is_compiled(model: Any) -> bool:
    """Whether a model is what torch.compile returns, or was compiled in place."""
    return hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None
