"""Write the number of a reading, with its unit, for people."""

from __future__ import annotations

import math

NOTHING = "-"


def number_text(value: float | None, unit: str) -> str:
    """A number with its unit, to three digits; `-`: there is none."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if unit == "s":
        return f"{value:.3g} s" if abs(value) >= 1.0 else f"{value * 1e3:.3g} ms"
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
