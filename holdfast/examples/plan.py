"""Read which faults `planted_gpt.py` must play, from a variable of its environment.

Whoever starts the script sets it; nobody else reads it. Standard library only, so that the demo can name the
variable without loading torch."""

from __future__ import annotations

import json
import os
from typing import Any

VARIABLE = "TRAIN_GPT_FAULTS"


def faults() -> list[dict[str, Any]]:
    """The faults, each with `kind`, `rank`, `at` (the step), `factor` and `seed`."""
    found: list[dict[str, Any]] = json.loads(os.environ.get(VARIABLE, "[]"))
    return found
