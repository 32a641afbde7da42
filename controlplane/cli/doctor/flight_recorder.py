"""Show the diagnosis of flight recorder dumps."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from controlplane.analysis.flight_records import diagnosis
from controlplane.cli.doctor.shown import WIDTH, as_data, as_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controlplane.analysis.flight_records.charges import BlamedRank
    from controlplane.analysis.flight_records.records import DumpFolder, MissingDump

ROWS_SHOWN = 20
"""The most undetermined or missing ranks that are shown to people; programs get all."""


def diagnose(_: Path, folder: DumpFolder) -> diagnosis.FlightDiagnosis:
    """The diagnosis. It cannot fail: every dump that could be read can be judged."""
    return diagnosis.diagnose(folder)


def data(found: diagnosis.FlightDiagnosis) -> dict[str, Any]:
    """For programs."""
    return {
        "culprits": [_rank(each) for each in found.culprits],
        "undetermined": [_rank(each) for each in found.undetermined],
        "missing": [_missing(each) for each in found.missing],
        "ranks": found.ranks,
        "findings": [as_data(each) for each in found.findings],
    }


def text(found: diagnosis.FlightDiagnosis) -> str:
    """For people: how much there was, the findings, and what is not known."""
    usable = found.ranks - len(found.missing)
    parts = [f"{found.ranks} ranks, {usable} with a whole dump", as_text(found.findings)]
    if found.undetermined:
        rows = [f"rank {each.rank}: {each.reason}" for each in found.undetermined]
        parts.append(_block("not decided, any of these may be to blame:", rows))
    if found.missing:
        rows = [f"rank {each.rank}: {each.why.value}: {each.reason}" for each in found.missing]
        parts.append(_block("without a usable dump:", rows))
    return "\n\n".join(parts)


def _block(head: str, rows: Sequence[str]) -> str:
    more = [f"and {len(rows) - ROWS_SHOWN} more: see --json"] if len(rows) > ROWS_SHOWN else []
    body = (
        textwrap.fill(row, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
        for row in [*rows[:ROWS_SHOWN], *more]
    )
    return "\n".join([head, *body])


def _rank(each: BlamedRank) -> dict[str, Any]:
    return {
        "rank": each.rank,
        "group": each.group,
        "group_ranks": list(each.group_ranks),
        "op": each.operation,
        "seq": each.sequence,
        "kind": each.kind,
        "confidence": round(each.confidence, 3),
        "reason": each.reason,
        "evidence": dict(each.evidence),
    }


def _missing(each: MissingDump) -> dict[str, Any]:
    return {"rank": each.rank, "why": each.why.value, "reason": each.reason}
