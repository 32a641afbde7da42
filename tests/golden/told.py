"""Make samples of what is sent between processes, kept in etcd and written to the journal."""

from __future__ import annotations

import base64
import dataclasses
import inspect
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from tests.golden.commit import Sample, Samples, module, spelled, taken_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

JOURNALS = ("kill_without_spare", "checkpoint_commit")
"""Transcripts whose events and effects are journaled and recorded."""


def wire(samples: Samples) -> Iterator[Sample]:
    """What agents and coordinators say to each other, and what people's tools and other agents are told."""
    codec, events = module("codec"), module("events")
    for full in (True, False):
        for kind in get_args(getattr(codec, "AgentEvent", events.Event)):  # later commits: also for diagnosis
            if not _travels(kind):
                continue
            event = dataclasses.replace(samples.of(kind, full=full), node="n1", incarnation=7)
            yield _sent("event", event, codec.to_coordinator(event), full)
        for kind in get_args(codec.Order):
            order = dataclasses.replace(samples.of(kind, full=full), node="n1")
            yield _sent("order", order, codec.to_agent(order, 9, "j/3"), full)
        joined = dataclasses.replace(samples.of(events.NodeJoined, full=full), holdfast_version="1.2")
        yield _sent("hello", joined, codec.hello(joined, "prod", 5, "1.2"), full)
    yield _sent("welcome", *_welcome(codec))
    yield _sent("refused", *_refused(codec))
    for name in ("JobRow", "NodeRow", "RankRow", "HealthRow"):
        row = samples.of(getattr(module("view"), name))
        yield _sent("row", row, codec.row_message(row))
    record = samples.of(module("model").CheckpointRecord)
    yield _sent("row", record, codec.row_message(record))
    spec = samples.of(module("model").JobSpec)
    yield _sent("spec", spec, codec.spec_message(spec))
    if hasattr(codec.Welcome, "beat_key"):  # later commits: heartbeats go through other agents
        yield _relayed(samples)


def _relayed(samples: Samples) -> Sample:
    """A heartbeat as an agent gives it to another one to pass on."""
    beat = dataclasses.replace(samples.of(module("events").StepBeat), node="n1", incarnation=7)
    message = module("codec").to_coordinator(beat).step_beat
    sealed = module("relayed").seal("n1", 7, message, b"k" * 32)
    values = {"full": True, "values": taken_apart(beat), "bytes": base64.b64encode(sealed).decode()}
    return {"what": "relayed", "kind": "StepBeat", **values}


def _welcome(codec: Any) -> tuple[Any, Any]:
    """A welcome with all fields that the commit knows, and its message."""
    more: dict[str, Any] = {"snapshots_by_beats": True, "beat_key": b"k" * 32}
    more = {name: value for name, value in more.items() if hasattr(codec.Welcome, name)}
    return codec.Welcome("prod", 1.5, codec.versions.NEW_WORDS, **more), codec.welcome("prod", 1.5, 3, **more)


def _refused(codec: Any) -> tuple[Any, Any]:
    """A refusal with all fields that the commit knows, and its message."""
    more = {"again_after_s": 7.5} if hasattr(codec.Refused, "again_after_s") else {}
    message = codec.refused("no", retry=True, leader="h:1", term=2, **more)
    return codec.Refused("no", True, "h:1", **more), message


def _travels(kind: type) -> bool:
    return module("codec")._BODY_OF_EVENT.get(kind) is not None


def _sent(what: str, record: Any, message: Any, full: bool = True) -> Sample:
    return {
        "what": what,
        "kind": type(record).__name__,
        "full": full,
        "values": taken_apart(record),
        "bytes": base64.b64encode(message.SerializeToString()).decode(),
    }


def messages(samples: Samples) -> Iterator[Sample]:
    """Requests and replies of the services Admin and Peer."""
    for contract, service in (("control", "Admin"), ("peer", "Peer")):
        file = module(contract)
        seen = set()
        for method in file.DESCRIPTOR.services_by_name[service].methods:
            for kind in (method.input_type, method.output_type):
                if kind.name not in seen:
                    seen.add(kind.name)
                    found = samples.message(getattr(file, kind.name))
                    yield {
                        "contract": contract,
                        "kind": kind.name,
                        "values": spelled(found),
                        "bytes": base64.b64encode(found.SerializeToString()).decode(),
                    }


def etcd(samples: Samples) -> Iterator[Sample]:
    """Every record that etcd keeps, with its key."""
    model, packing = module("model"), module("packing")
    keys = module("keyspace").Keyspace("prod")
    for full in (True, False):
        for kind in ("JobSpec", "JobState", "Generation", "CheckpointRecord", "LemonRecord"):
            record = samples.of(getattr(model, kind), full=full, wire=False)
            yield {**_row(kind, record, packing.pack(record)), "full": full}
    large = dataclasses.replace(samples.of(model.Generation), seats=tuple(_seats(model, 600)))
    yield _row("Generation", large, packing.pack(large))
    for effect in _stores(samples, model):
        made = module("rows").RecordMapping(keys).puts(effect)
        puts = {key: None if value is None else taken_apart(value) for key, value in made.items()}
        yield {"kind": type(effect).__name__, "values": taken_apart(effect), "puts": puts}
    identity = module("identity").Identity("h:1", "boot-1", 42, 4242, "https://h:2", (("--retry-s", "2.0"),))
    yield _row("Identity", identity, identity.to_bytes())
    times = module("times")
    account = times.Account(1.7e9, times.Spent(12.5, {"rank/signaled": 3.25}))
    yield _row("Account", account, module("accounts").packed(account))


def _seats(model: Any, count: int) -> Iterator[Any]:
    for rank in range(count):
        yield model.Placement(rank, f"j.{rank}", f"n{rank // 8}", rank % 8)


def _stores(samples: Samples, model: Any) -> Iterator[Any]:
    effects = module("effects")
    spec = dataclasses.replace(samples.of(model.JobSpec), job="j")
    state = dataclasses.replace(samples.of(model.JobState), job="j")
    generation = dataclasses.replace(samples.of(model.Generation), job="j")
    record = dataclasses.replace(
        samples.of(model.CheckpointRecord), job="j", id="8-2", step=8, generation=2, bad=""
    )
    history = dataclasses.replace(samples.of(model.LemonRecord), node="n1")
    marks = dataclasses.replace(samples.of(model.NodeMarks), node="n1")
    yield effects.StoreJob("j", state, spec, generation, 1, 9)
    yield effects.StoreCheckpoint("j", record, 2, 9)
    yield effects.StoreNode("n1", "lost", "it is silent", "h", "r1", marks, 3, 9)
    yield effects.StoreNode("n2", "up", "", "", "", None, 4, 9)
    yield effects.StoreHistory(history, 5, 9)


def _row(kind: str, record: Any, value: bytes) -> Sample:
    return {"kind": kind, "values": taken_apart(record), "stored": taken_apart(value)}


def words() -> Sample:
    """Every word of the enums that records carry."""
    found = {}
    for name in ("words", "model"):
        for label, kind in inspect.getmembers(module(name), inspect.isclass):
            if issubclass(kind, Enum) and kind.__module__.startswith("controlplane."):
                found[label] = [each.value for each in kind]
    return found


async def journals(folder: Path) -> None:
    """Transcripts, played with a journal and a recording as a coordinator keeps them."""
    journal = module("journal").Journal(folder / "journal.jsonl")
    for name in JOURNALS:
        term = JOURNALS.index(name) + 1
        text = (Path(module("language").__file__).parent / f"{name}.txt").read_text()
        _played(text, journal, journal.record(term, module("timing").CoreSettings()), term)
    await journal.close()


def _played(text: str, journal: Any, recording: Any, term: int) -> None:
    """What a coordinator's loop does with each event and its effects."""

    language: Any = module("language")

    class Stage(language.Play):  # type: ignore[misc]
        cluster: Any

        def feed(self, event: Any) -> None:
            core = self.cluster
            self.cluster = Heard(core, journal, recording, term)
            super().feed(event)
            self.cluster = core

    stage = Stage()
    for block in text.strip().split("\n\n"):
        for command in block.split("\n----")[0].splitlines():
            if not command.startswith("#"):
                stage.do(command)
    recording.close()
    recording.wait()


class Heard:
    """A core whose steps are written down."""

    def __init__(self, core: Any, journal: Any, recording: Any, term: int) -> None:
        self._core, self._journal, self._recording, self._term = core, journal, recording, term
        self.check = core.check

    def step(self, now: float, event: Any) -> Any:
        """One step; the journal has the event and the effects, the recording has the clock too."""
        effects = self._core.step(now, event)
        self._recording.write(now, event, effects)
        self._journal.write(self._term, "event", event)
        for effect in effects:
            self._journal.write(self._term, "effect", effect)
        return effects
