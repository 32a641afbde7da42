"""Read files while they grow: the coordinators' journal, and the digests that the ranks write."""

from __future__ import annotations

import json
import re
import weakref
from typing import TYPE_CHECKING, Any

from controlplane.daemon.journal.rotation import JournalReader

if TYPE_CHECKING:
    from pathlib import Path

_FIGURES = re.compile(r"/tmp/\S+|[0-9a-f]{16,}|\d+")
"""The parts of a reason that differ between two failures of one kind."""


class Tail:
    """The whole lines of one growing file, each once."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def lines(self) -> list[str]:
        """Those that came since the last look; none when there is no file yet."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.decode().splitlines()


class Rotated:
    """The whole lines of a journal, across its files, each once. Its file is closed with it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: JournalReader | None = None

    def lines(self) -> list[str]:
        """Those that came since the last look; none when there is no journal yet."""
        if self._reader is None:
            try:
                self._reader = JournalReader(self._path)
            except FileNotFoundError:
                return []
            weakref.finalize(self, self._reader.close)
        return list(self._reader.lines())


class Journal:
    """The journal, and the facts in it that the soak test needs."""

    def __init__(self, path: Path) -> None:
        self._tail = Rotated(path)
        self.named: set[str] = set()  # ids of all checkpoints that a coordinator spoke of
        self.committed: list[str] = []
        self.forgotten: set[str] = set()  # ids removed from the storage, then from etcd
        self.outcomes: dict[str, int] = {}
        self.reasons: dict[str, int] = {}  # why checkpoints failed or were skipped
        self.tiers: dict[str, int] = {}

    def news(self) -> list[dict[str, Any]]:
        """The lines that came since the last look. A line that a kill has cut off is left out."""
        found = []
        for text in self._tail.lines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            found.append(line)
            self._learn(line["type"], line["body"])
        return found

    def _learn(self, kind: str, body: dict[str, Any]) -> None:
        if kind == "Publish":
            self.named.add(body["record"]["id"])
        elif kind == "ForgetCheckpoints":
            self.forgotten.update(body["forget"])
        elif kind == "CheckpointChanged":
            self.named.add(body["checkpoint"])
            self.outcomes[body["outcome"]] = self.outcomes.get(body["outcome"], 0) + 1
            if body["outcome"] == "committed":
                self.committed.append(body["checkpoint"])
            elif body["outcome"] in ("failed", "skipped", "bad"):
                why = f"{body['outcome']}: {_FIGURES.sub('#', body['reason'])}"
                self.reasons[why] = self.reasons.get(why, 0) + 1
        elif kind == "Form" and body["node"] == "n0":
            tier = body["generation"]["resume"]["tier"]
            self.tiers[tier] = self.tiers.get(tier, 0) + 1


class Steps:
    """What every rank's state was after each step. `problems`: the steps that gave two different states."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[str, Tail] = {}
        self.digests: dict[tuple[int, int], str] = {}
        self.newest: dict[int, int] = {}  # by rank, the step that it wrote last
        self.problems: list[str] = []

    def look(self) -> Steps:
        """Read what came since the last look."""
        for path in self._folder.glob("*.steps"):
            for line in self._tails.setdefault(path.name, Tail(path)).lines():
                step, rank, digest = line.split()
                self._enter(int(step), int(rank), digest)
        return self

    def _enter(self, step: int, rank: int, digest: str) -> None:
        known = self.digests.setdefault((step, rank), digest)
        self.newest[rank] = step
        if known != digest:
            self.problems.append(f"step {step} of rank {rank} came out as {known} and as {digest}")

    @property
    def highest(self) -> int:
        """The furthest step that any rank has completed."""
        return max((step for step, _ in self.digests), default=0)
