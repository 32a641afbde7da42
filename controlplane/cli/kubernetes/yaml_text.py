"""Write plain data as YAML: enough for manifests, without a dependency.

Whatever could be read as another type, or has special characters, is quoted as JSON, which is valid YAML."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def document(value: Any) -> str:
    """One document, with a newline at its end."""
    return "\n".join(_lines(value)) + "\n"


def documents(values: Iterable[Any]) -> str:
    """Several documents, each after its `---`."""
    return "".join(f"---\n{document(value)}" for value in values)


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key, each in value.items() for line in _entry(key, each)]
    if isinstance(value, list) and value:
        return [line for each in value for line in _item(each)]
    return [_scalar(value)]


def _entry(key: str, value: Any) -> list[str]:
    lines = _lines(value)
    if isinstance(value, dict | list) and value:
        return [f"{_scalar(key)}:", *(f"  {line}" for line in lines)]
    return [f"{_scalar(key)}: {lines[0]}"]


def _item(value: Any) -> list[str]:
    first, *rest = _lines(value)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
