"""Name the types of manifests and of the values that they are rendered from."""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]


Manifest = dict[str, Any]
