"""Read files while they grow: the states that the ranks recorded, and the coordinators' journals."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.soak.books import Rotated, Tail

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class State:
    """The state of one rank after a step."""

    generation: int
    digest: str
    account: str
    loss: float


class Steps:
    """The states after each step, in the newest generation that completed it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[str, Tail] = {}
        self.states: dict[int, dict[int, State]] = {}  # by step, then by rank
        self.newest: dict[str, tuple[int, int]] = {}  # by process: its last step and generation

    def look(self) -> Steps:
        """Read what is new since the last look."""
        for path in self._folder.glob("*.steps"):
            for line in self._tails.setdefault(path.name, Tail(path)).lines():
                step, rank, generation, digest, account, loss = line.split()
                self._enter(int(step), int(rank), State(int(generation), digest, account, float(loss)))
                self.newest[path.stem] = (int(step), int(generation))
        return self

    def _enter(self, step: int, rank: int, state: State) -> None:
        known = self.states.setdefault(step, {})
        newest = max((each.generation for each in known.values()), default=0)
        if state.generation > newest:
            known.clear()
        if state.generation >= newest:
            known[rank] = state

    @property
    def highest(self) -> int:
        """The furthest step that any rank has completed."""
        return max(self.states, default=0)

    @property
    def generation(self) -> int:
        """The newest generation in which any rank has completed a step."""
        return max((generation for _, generation in self.newest.values()), default=0)

    def reached(self) -> tuple[int, int]:
        """The step that all ranks of the newest generation have completed, and the number of those ranks."""
        at = [step for step, generation in self.newest.values() if generation == self.generation]
        return min(at, default=0), len(at)


class Journals:
    """The lines of all coordinators' journals as they come; each has the number of its `journal`, from 0."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._tails = [Rotated(path) for path in paths]
        self.lines: list[dict[str, Any]] = []
        self.term = 0

    def news(self) -> list[dict[str, Any]]:
        """The lines since the last look."""
        found = [
            json.loads(text) | {"journal": number}
            for number, tail in enumerate(self._tails)
            for text in tail.lines()
        ]
        found.sort(key=lambda line: line["wall_s"])
        self.lines += found
        self.term = max([self.term, *(line["term"] for line in found)])
        return found

    def bodies(self, kind: str, since: int = 0) -> list[dict[str, Any]]:
        """The bodies of one type of line, from the given line on."""
        return [line["body"] for line in self.lines[since:] if line["type"] == kind]

    def committed(self, job: str) -> list[str]:
        """The ids of the checkpoints that any coordinator reported as committed."""
        told = [body for body in self.bodies("CheckpointChanged") if body["job"] == job]
        return list(dict.fromkeys(each["checkpoint"] for each in told if each["outcome"] == "committed"))

    def let_go(self, job: str) -> set[str]:
        """The checkpoints that retention has removed from etcd."""
        told = [body for body in self.bodies("ForgetCheckpoints") if body["job"] == job]
        return {each for body in told for each in body["forget"]}
