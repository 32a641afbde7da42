"""Read a failure trace: a JSON list of faults that begin and end. Pure.

Odd entries are corrected, with a note for people: unsorted, overlapping, endless or never begun faults, and
fields that are not read. What cannot be understood is refused with an error that names the entry."""

from __future__ import annotations

import difflib
import itertools
import json
import math
import re
from dataclasses import dataclass
from typing import Any

from controlplane.simulation.failures import DAY_S, FailureInputError, Failures, Outage, merged

KINDS = ("fault_start", "fault_end")
NEEDED = ("node_id", "event_time", "event_type")
KNOWN = (*NEEDED, "fault_type")
SHOWN_MAX = 60
"""So many characters of what others wrote are in an error."""
TIME_MAX_D = 1e7
"""The latest time of an event, in days: what is later is in another unit, or wrong."""

_BETWEEN = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event of a trace."""

    index: int  # in the list
    where: str  # how an error names it: "entry 3 (line 9)"
    node: str
    at_s: float  # since the trace's beginning
    begins: bool  # the fault begins; False: it ends
    cause: str


def read(text: str, nodes: int, source: str = "trace") -> Failures:
    """Read the failures of a trace for a cluster of `nodes` nodes. `source` names it in notes and errors.

    Raises FailureInputError, which names the entry and the remedy."""
    try:
        return _failures(_rows(text, source), text, nodes, source)
    except RecursionError as error:
        raise _no_list(source, "is nested too deep") from error


def _rows(text: str, source: str) -> list[Any]:
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise _no_list(source, f"is no JSON ({error.msg} in line {error.lineno})") from error
    except ValueError as error:  # Python refuses a number of thousands of digits, and says so
        raise _no_list(source, f"cannot be read ({str(error)[:SHOWN_MAX]})") from error
    if not isinstance(rows, list):
        raise FailureInputError(f"{source} holds a {type(rows).__name__}: give a list of events")
    return rows


def _failures(rows: list[Any], text: str, nodes: int, source: str) -> Failures:
    lines = _lines(text)
    entries = [
        _entry(index, f"entry {index} (line {line})", row)
        for index, (row, line) in enumerate(zip(rows, lines, strict=True))
    ]
    notes = (*_unsorted(entries), *_unknown(rows))
    names = _numbers(entries, nodes)
    # A fault may end at the moment of its beginning: the beginning has to come first.
    entries.sort(key=lambda entry: (entry.at_s, not entry.begins, entry.index))
    outages, odd = _paired(entries, names)
    return Failures(source, outages, (*notes, *odd), tuple(names))


def _no_list(source: str, what: str) -> FailureInputError:
    return FailureInputError(f"{source} {what}: give a list of {{{', '.join(KNOWN)}}}")


def _shown(value: Any) -> str:
    """A value as an error shows it, however long it is."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _lines(text: str) -> list[int]:
    """Return the line in which each entry begins. `text` is known to be a JSON list."""
    lines: list[int] = []
    decoder, at, line = json.JSONDecoder(), text.index("[") + 1, 1
    line += text.count("\n", 0, at)
    while True:
        start = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        line += text.count("\n", at, start)
        if text[start] == "]":
            return lines
        lines.append(line)
        _, at = decoder.raw_decode(text, start)
        line += text.count("\n", start, at)


def _unknown(rows: list[Any]) -> tuple[str, ...]:
    """Return notes on fields that are not read: one may be the misspelt name of another."""
    found: dict[str, int] = {}
    for row in rows:
        for name in row:
            if name not in KNOWN:
                found[name] = found.get(name, 0) + 1
    return tuple(
        f"{count} entries have a field {_shown(name)}, which is not read" for name, count in found.items()
    )


def _missing(where: str, name: str, row: dict[str, Any]) -> FailureInputError:
    near = difflib.get_close_matches(name, [str(each) for each in row if each not in KNOWN], n=1)
    remedy = f"is {_shown(near[0])} meant for it?" if near else "add it, or leave the entry out"
    return FailureInputError(f"{where} has no {name}: {remedy}")


def _entry(index: int, where: str, row: Any) -> TraceEvent:
    if not isinstance(row, dict):
        raise FailureInputError(f"{where} is a {type(row).__name__}: give an object with {', '.join(NEEDED)}")
    for name in NEEDED:
        if name not in row:
            raise _missing(where, name, row)
    node, kind = row["node_id"], row["event_type"]
    if not isinstance(node, str | int) or isinstance(node, bool) or node == "":
        raise FailureInputError(f"{where}: node_id {_shown(node)} names no node: give a name")
    if kind not in KINDS:
        near = difflib.get_close_matches(str(kind)[:SHOWN_MAX], KINDS, n=1)
        hint = f"did you mean {near[0]}" if near else f"known are {' and '.join(KINDS)}"
        raise FailureInputError(f"{where}: event_type {_shown(kind)} is unknown: {hint}")
    return TraceEvent(index, where, str(node), _time(where, row["event_time"]), kind == KINDS[0], _cause(row))


def _time(where: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= TIME_MAX_D:
        raise FailureInputError(
            f"{where}: event_time {_shown(value)} is no time: give days since the beginning, "
            f"0 to {TIME_MAX_D:g}"
        )
    return float(value) * DAY_S


def _cause(row: dict[str, Any]) -> str:
    """Return the fault's class, else its level, else "unknown"."""
    fault = row.get("fault_type")
    if not isinstance(fault, dict):
        return "unknown"
    return str(fault.get("Class") or fault.get("Level") or "unknown")


def _unsorted(entries: list[TraceEvent]) -> tuple[str, ...]:
    back = sum(1 for a, b in itertools.pairwise(entries) if b.at_s < a.at_s)
    return (f"{back} entries were not in the order of time: sorted",) if back else ()


def _numbers(entries: list[TraceEvent], nodes: int) -> dict[str, int]:
    """Number the trace's nodes in the order in which they are first named."""
    names: dict[str, int] = {}
    for entry in entries:
        if names.setdefault(entry.node, len(names)) >= nodes:
            raise FailureInputError(
                f"{entry.where}: {entry.node[:SHOWN_MAX]} is one node more than the {nodes} there are: "
                f"give --nodes {len({each.node for each in entries})} or more"
            )
    return names


def _paired(entries: list[TraceEvent], names: dict[str, int]) -> tuple[tuple[Outage, ...], tuple[str, ...]]:
    open_: dict[str, list[TraceEvent]] = {}
    outages: list[Outage] = []
    orphans = 0
    for entry in entries:
        waiting = open_.setdefault(entry.node, [])
        if entry.begins:
            waiting.append(entry)
        elif waiting:
            first = waiting.pop(0)
            outages.append(_outage(names, first, entry.at_s))
        else:
            orphans += 1
    left = [entry for waiting in open_.values() for entry in waiting]
    outages += [_outage(names, entry, math.inf) for entry in left]
    joined, overlapping = merged(outages)
    counted = (
        (orphans, "ends of faults that never began: left out"),
        (len(left), "faults that never end: the node stays down"),
        (overlapping, "faults that overlap another of the same node: taken as one"),
    )
    return joined, tuple(f"{count} {what}" for count, what in counted if count)


def _outage(names: dict[str, int], first: TraceEvent, end_s: float) -> Outage:
    # At least a second: an outage that ends when it starts would count as the death of a process only.
    return Outage(names[first.node], first.at_s, max(end_s, first.at_s + 1.0), first.cause)
