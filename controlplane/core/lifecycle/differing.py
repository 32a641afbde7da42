"""Say how two submissions of one job differ, without showing secrets.

Environment variables are listed by name only; arguments and URLs are masked (`holdfast.masking`)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from holdfast import masking

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.model import JobSpec

_SHOWN_MAX = 200
_URLS = ("storage", "mirror")


def differences(runs: JobSpec, given: JobSpec) -> str:
    """Each setting that differs, with both values; "" when the submissions are equal."""
    return "; ".join(
        _difference(field.name, getattr(runs, field.name), getattr(given, field.name))
        for field in dataclasses.fields(runs)
        if getattr(runs, field.name) != getattr(given, field.name)
    )


def _difference(name: str, runs: Any, given: Any) -> str:
    if name == "env":
        changed = sorted({key for key, _ in set(runs) ^ set(given)})
        return f"env differs in {', '.join(changed) or 'its order'}"[:_SHOWN_MAX]
    shown = _SHOWN.get(name, repr)
    return f"{name} is {_cut(shown(runs))}, not {_cut(shown(given))}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


_SHOWN: dict[str, Callable[[Any], str]] = {
    "argv": lambda argv: repr(" ".join(masking.shown(argv))),
    **dict.fromkeys(_URLS, lambda url: repr(masking.url(url)) if url else "none"),
}
