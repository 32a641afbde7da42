"""Convert today's effects to the form that older recordings have, so that a replay can compare the two.

Up to format 2, one effect `Store` stood for every write to etcd, with a field for each record that it could
put. Today each kind of write is an effect of its own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.core.records import stores
from controlplane.core.records.model import (
    Cause,
    CheckpointRecord,
    Generation,
    JobSpec,
    JobState,
    LemonRecord,
    NodeMarks,
)
from controlplane.core.records.words import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.effects import Effect

LATER_FIELDS = {
    "check_replicas_every": 0,
    "on_corrupt_state": "",
    "snapshot_auto": False,
    "corrupt": False,
    "bad_parts": [],
    "last_step": 0,
    "suspect": "",
    "suspect_states": [],
}
"""Fields of stored records that older recordings do not have, each with the value that means the same."""
ADVICE = ("kept_from",)
"""Fields of orders that older recordings do not have: they allow what may also be left undone."""
REWORDED = (
    ("etcd takes no writes (", "etcd does not answer ("),
    *(
        (around % in_words(cause), around % cause.value)
        for cause in Cause
        for around in (" failure, %s: ", "(%s) is over", " x %s")
        if in_words(cause) != cause
    ),
)
"""Words of today, and the former ones for the same, which recordings have that do not have today's."""
LATER_FINDINGS = (("job_undecided", r"; it stands still until etcd has stored [^;\"]*"),)
"""Kinds of findings of health that older recordings do not have, and their reasons in a line of the cluster's
health. Such a finding adds to what is told, and decides nothing."""
ONE_STORE = 2
"""The newest format with one effect for every write."""


@dataclass(frozen=True, slots=True)
class Store:
    """A write to etcd, as recordings of format 1 and 2 have it."""

    ticket: int
    term: int
    job: str = ""
    spec: JobSpec | None = None
    state: JobState | None = None
    generation: Generation | None = None
    checkpoint: CheckpointRecord | None = None
    forget: tuple[str, ...] = ()
    node: str = ""
    node_state: str = ""
    node_reason: str = ""
    node_address: str = ""
    node_domain: str = ""
    marks: NodeMarks | None = None
    lemon: LemonRecord | None = None


def without_later(value: Any) -> Any:
    """The JSON value without the fields of LATER_FIELDS that mean nothing, at any depth."""
    if isinstance(value, dict):
        kept = [key for key, inner in value.items() if LATER_FIELDS.get(key, value) != inner]
        return {key: without_later(value[key]) for key in kept}
    if isinstance(value, list | tuple):
        return [without_later(inner) for inner in value]
    return value


def without_advice(effects: Any, recorded: Any) -> Any:
    """Effects, each a name and JSON fields, without the fields of ADVICE that no recorded one has."""
    if any(key in fields for _, fields in recorded for key in ADVICE):
        return effects
    return [[name, {key: fields[key] for key in fields if key not in ADVICE}] for name, fields in effects]


def without_later_findings(effects: Any, recorded: Any) -> Any:
    """Effects without those of LATER_FINDINGS that the recorded ones do not have."""
    then = json.dumps(recorded)
    for kind, reasons in LATER_FINDINGS:
        if kind not in then and not re.search(reasons, then):
            effects = [[name, fields] for name, fields in effects if fields.get("kind") != kind]
            effects = json.loads(re.sub(reasons, "", json.dumps(effects)))
    return effects


def in_former_words(effects: Any, recorded: Any) -> Any:
    """Effects as JSON values, in the words of REWORDED that the recorded ones use."""
    text, then = json.dumps(effects), json.dumps(recorded)
    for now, before in REWORDED:
        if now not in then:
            text = text.replace(now, before)
    return json.loads(text)


def shown(effect: Effect, format: int) -> Any:
    """Return the record that a recording of this format has in place of an effect."""
    make = _MAKE.get(type(effect)) if format <= ONE_STORE else None
    return make(effect) if make is not None else effect


def _job(e: stores.StoreJob) -> Store:
    return Store(e.ticket, e.term, e.job, e.spec, e.state, e.generation)


def _node(e: stores.StoreNode) -> Store:
    return Store(
        e.ticket,
        e.term,
        node=e.node,
        node_state=e.state,
        node_reason=e.reason,
        node_address=e.address,
        node_domain=e.domain,
        marks=e.marks,
    )


_MAKE: dict[type, Callable[[Any], Store]] = {
    stores.StoreJob: _job,
    stores.ForgetJob: lambda e: Store(e.ticket, e.term, e.job, forget=e.checkpoints),
    stores.StoreCheckpoint: lambda e: Store(e.ticket, e.term, e.job, checkpoint=e.checkpoint),
    stores.ForgetCheckpoints: lambda e: Store(e.ticket, e.term, e.job, forget=e.forget),
    stores.StoreNode: _node,
    stores.ForgetNode: lambda e: Store(e.ticket, e.term, node=e.node, node_state="gone", lemon=e.history),
    stores.StoreHistory: lambda e: Store(e.ticket, e.term, lemon=e.history),
}
