"""Whatever moves in a step, and wherever the step breaks: the run ends as the undisturbed one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sdk.node import Node, samples

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("kinds.py")
KINDS = {
    "moco": ("forward", "backward", "optimizer", "tail", "end"),
    "moco-tail": ("backward", "tail", "end"),
    "ema": ("backward", "tail", "end"),
    "dino": ("backward", "tail", "end"),
    "rare": ("backward", "end"),
    "by-hand": ("forward", "backward", "tail"),
    "noise": ("forward", "noise", "backward", "tail"),
    "gan": ("backward", "between", "tail"),
    "critic": ("backward", "between", "tail"),
    "zero-last": ("backward", "optimizer", "end"),
    "target": ("forward", "backward", "tail", "end"),
    "target-tail": ("backward", "tail", "end"),
    "groups": ("backward", "tail"),
    "lastk": ("backward", "tail", "end"),
    "accumulate": ("forward", "backward", "optimizer", "tail"),
}


class Outcome:
    def __init__(self, node: Node) -> None:
        results = node.results()
        self.digests = [line["digest"] for line in results]
        self.called = [line["called"] for line in results]
        self.samples = samples(node.folder / "ledger")
        self.resumed = [(made["resume"]["tier"], made["resume"]["step"]) for made in node.generations]


def outcome(zygote: Zygote, kind: str, *kills: dict[str, Any], **env: str) -> Outcome:
    with Node(zygote, SCRIPT, 2, spares=1, KIND=kind, KILL=json.dumps(kills), **env) as node:
        node.run()
        return Outcome(node)


class Undisturbed(dict[str, Outcome]):
    """By kind what comes out where nothing happens, found out when it is asked for."""

    def __init__(self, zygote: Zygote) -> None:
        super().__init__()
        self._zygote = zygote

    def __missing__(self, kind: str) -> Outcome:
        self[kind] = outcome(self._zygote, kind)
        return self[kind]


@pytest.fixture(scope="module")
def undisturbed(zygote: Zygote) -> Undisturbed:
    return Undisturbed(zygote)


EARLY = ("forward", "backward", "optimizer")
"""Phases before there is a tail: one kind shows that it then changes nothing whether it may be cut; the other
kinds show it with `make exhaustive`."""
CASES = [
    pytest.param(kind, phase, tail, marks=pytest.mark.exhaustive)
    if tail and phase in EARLY and kind != "moco"
    else (kind, phase, tail)
    for kind, phases in KINDS.items()
    for phase in phases
    for tail in ("", "1")
]


@pytest.mark.parametrize(("kind", "phase", "tail"), CASES)
def test_killed_anywhere(zygote: Zygote, undisturbed: Undisturbed, kind: str, phase: str, tail: str) -> None:
    steps = (7, 11) if phase == "optimizer" and kind == "accumulate" else (6, 9)
    kills = [{"rank": rank, "step": step, "phase": phase} for rank, step in zip((0, 1), steps, strict=True)]
    found = outcome(zygote, kind, *kills, **({"TAIL": tail} if tail else {}))
    assert len(found.resumed) == 3, "both kills have happened"
    assert found.digests == undisturbed[kind].digests
    assert found.samples == undisturbed[kind].samples


def test_a_tail_that_may_not_be_cut_is_run_again(zygote: Zygote) -> None:
    kill = {"rank": 1, "step": 7, "phase": "tail"}
    # The other rank is behind its optimizer, or in its last collective before it: then at its step's start.
    assert outcome(zygote, "ema", kill).resumed[1] in (("memory", 5), ("donor", 7))
    again = outcome(zygote, "ema", kill, TAIL="1").resumed[1]
    assert again in (("memory", 5), ("donor", 7), ("fresh", 0)), "step 0: no snapshot was whole yet"
    assert outcome(zygote, "gan", kill, TAIL="1").resumed[1] in (("donor", 8), ("donor", 7), ("memory", 5))


def test_a_teacher_in_forward_costs_no_step(zygote: Zygote) -> None:
    found = outcome(zygote, "moco", {"rank": 1, "step": 7, "phase": "backward"})
    assert found.resumed[1] == ("donor", 7), "what moved in forward was kept and put back"


def test_carried_gradients_go_back_to_the_last_boundary_without_them(zygote: Zygote) -> None:
    found = outcome(zygote, "accumulate", {"rank": 1, "step": 6, "phase": "forward"})
    assert found.resumed[1] == ("donor", 4)


@pytest.mark.parametrize("phase", ["backward", "tail", "after"])
def test_callbacks_run_for_every_step_on_every_rank(zygote: Zygote, phase: str) -> None:
    found = outcome(zygote, "ema", {"rank": 1, "step": 7, "phase": phase})
    survivor, replacement = found.called
    assert sorted(set(survivor)) == list(range(14)), "none is left out"
    assert set(replacement) >= set(range(8, 14))
    assert phase != "after" or 7 in replacement, "nobody knows whether the dead rank's had returned"
