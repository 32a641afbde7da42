"""Know what torch.compile has made of a model, and the module inside, whose state is kept.

What is compiled only calls that module. It is built again at will: the code outlives it, in the process
(holdfast/state/compiled.py says what that depends on)."""

from __future__ import annotations

from typing import Any

REGIONAL = "no run with a failure was compared with an undisturbed one; whole models are kept"


def bare(model: Any) -> Any:
    """The module in what torch.compile returns; the model itself if it is not compiled, or in place.

    Its tensors have the same names whether or not it is compiled."""
    return vars(model).get("_modules", {}).get("_orig_mod", model)
