"""Show people what a state says of its data: the streams of samples, and how far each was consumed.

holdfast.data.contract writes it. This module needs no torch."""

from __future__ import annotations

from typing import Any

from holdfast.checkpoint.format import typed

_SAMPLES = ("seed", "n", "global_batch", "position")


def read(state: Any) -> list[dict[str, Any]]:
    """The streams in a typed state; [] for a state from before they were recorded.

    For an iterable stream: the number of replicas whose positions it holds."""
    try:
        record = typed.decode(state["data"])
        streams = [{name: stream[name] for name in _SAMPLES} for stream in record["streams"]]
        for stream in record["iterables"]:
            shown = {name: stream[name] for name in ("seed", "global_batch", "step")}
            streams.append({**shown, "replicas": len(stream["states"])})
    except (typed.TypedDataError, LookupError, TypeError):
        return []
    return streams
