"""`python -m tests.sdk.double_deaths --rounds 200`: a rank dies, and another one while the group forms.

In each round one rank of four is killed, and 0 to 300 ms later a second one, which may be a survivor or the
spare that has just been seated. Whoever was not killed has to come to the barrier by the interrupt alone: the
groups' own timeout is half an hour, so that none of them is waited for. At the end all ranks hold the same
weights, and those are the ones of a run in which nobody died."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sdk.node import Node
from tests.sdk.zygote import Zygote

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sdk.node import Member

SCRIPT = Path(__file__).with_name("regrouping.py")
WORLD, SPARES = 4, 2
BETWEEN_S = 0.3  # the second death comes up to this long after the first
ROUND_S = 25.0  # nobody who is interrupted takes that long: the agent would have killed it after 30 s
AHEAD = 40  # steps: all have read the end before they reach it


@dataclass(frozen=True, slots=True)
class Round:
    """One double death. `phases`: what the ranks were doing at the second; `stuck`: who no interrupt brought
    back; `took_s`: from the first death to the next step of everybody."""

    number: int
    gap_s: float
    phases: tuple[str, ...]
    stuck: tuple[str, ...]
    took_s: float


class Struck:
    """A node whose ranks are killed by twos, round by round."""

    def __init__(self, zygote: Zygote, seed: int, *, mib: int = 8, backend: str = "gloo") -> None:
        self.node = Node(zygote, SCRIPT, WORLD, spares=SPARES, MIB=str(mib), BACKEND=backend)
        self.chance = random.Random(seed)
        self._number = 0

    def round(self, gap_s: float | None = None) -> Round:
        """Kill one rank, and a second one after `gap_s`, by default after a time by chance."""
        self._number += 1
        self._settle()
        gap_s = self.chance.uniform(0, BETWEEN_S) if gap_s is None else gap_s
        begun = time.monotonic()
        first = self._kill()
        self._serve_until(lambda: time.monotonic() >= begun + gap_s, ROUND_S)
        phases = tuple(_phase(self.node.members[name]) for name in self.node.seats)
        struck = {first.name, self._kill(but=first).name}
        deadline = time.monotonic() + ROUND_S
        stood = self._serve_until(lambda: self._trains(struck), deadline - time.monotonic())
        seated = [self.node.members[name] for name in self.node.seats]
        stuck = () if stood else tuple(m.name for m in seated if not m.gone and m.ready is None)
        return Round(
            self._number, gap_s, phases, stuck if stood else stuck or ("nobody",), time.monotonic() - begun
        )

    def _settle(self) -> None:
        """Everybody trains, and as many spares as at the start wait."""
        node = self.node

        def ready() -> bool:
            waiting = [m for m in node.members.values() if not m.gone and m.name not in node.seats]
            while len(waiting) < SPARES:
                waiting.append(node.start())
            return self._trains(set()) and all(member.ready is not None for member in waiting)

        node.run(ready)

    def _trains(self, struck: set[str]) -> bool:
        node = self.node
        if node.generation <= node.interrupted or struck & set(node.seats) or not node.seats:
            return False
        return all(_stepped(node.members[name], node.generation) for name in node.seats)

    def _kill(self, but: Member | None = None) -> Member:
        alive = [self.node.members[name] for name in self.node.seats]
        victim = self.chance.choice([member for member in alive if not member.gone and member is not but])
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            raise AssertionError(f"{victim.name} ended by itself\n{self.node.report()}") from None
        return victim

    def _serve_until(self, done: Callable[[], bool], limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > deadline:
                return False
            self.node.turn(0.001)
            self.node.check_alive()
        return True

    def finish(self) -> tuple[int, set[str]]:
        """End the training: the step that all have reached, and their digests."""
        self._settle()
        last = max(member.board.step for member in self.node.members.values()) + AHEAD
        (self.node.folder / "end").write_text(str(last))
        self.node.run()
        results = self.node.results()
        assert [line["rank"] for line in results] == list(range(WORLD))
        (reached,) = {line["reached"] for line in results}
        return reached, {line["digest"] for line in results}


def undisturbed(zygote: Zygote, steps: int, *, mib: int = 8) -> set[str]:
    """The digests of a run of so many steps in which nobody dies."""
    with Node(zygote, SCRIPT, WORLD, MIB=str(mib)) as node:
        (node.folder / "end").write_text(str(steps))
        node.run()
        return {line["digest"] for line in node.results()}


def _stepped(member: Member, generation: int) -> bool:
    """Whether it has completed a step in this generation."""
    running = next((m for m in member.said if m["op"] == "running" and m["generation"] == generation), None)
    return running is not None and member.board.completed > running["step"]


def _phase(member: Member) -> str:
    return next(
        (m["op"] for m in reversed(member.said) if m["op"] in ("ready", "forming", "running")), "none"
    )


def main() -> None:
    """Strike so many times; a line for each, and a verdict. Exits with 1 when a survivor was stuck."""
    parser = argparse.ArgumentParser(prog="python -m tests.sdk.double_deaths", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mib", type=int, default=8, help="of state, which moves at each restore")
    parser.add_argument(
        "--keep-stuck", action="store_true", help="stop at the first, and leave it to be looked at"
    )
    options = parser.parse_args()
    zygote = Zygote()
    rounds: list[Round] = []
    while len(rounds) < options.rounds:
        struck = Struck(zygote, options.seed + len(rounds), mib=options.mib)
        while len(rounds) < options.rounds:
            found = struck.round()
            rounds.append(found)
            print(
                json.dumps(
                    {
                        "round": len(rounds),
                        "gap_ms": round(found.gap_s * 1000),
                        "phases": found.phases,
                        "stuck": found.stuck,
                        "took_s": round(found.took_s, 3),
                    }
                ),
                flush=True,
            )
            if found.stuck:
                if options.keep_stuck:
                    print(
                        struck.node.report(),
                        [(m.name, m.pid) for m in struck.node.members.values() if not m.gone],
                        flush=True,
                    )
                    time.sleep(600)
                break
        struck.node.close()
    bad = [found for found in rounds if found.stuck]
    print(json.dumps({"rounds": len(rounds), "stuck": len(bad)}))
    zygote.close()
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
