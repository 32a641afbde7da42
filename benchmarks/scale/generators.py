"""Start the processes that are the fleet's agents, and talk to all of them at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from benchmarks.scale.certificates import Certificates
    from benchmarks.scale.shape import Fleet


@dataclass(frozen=True, slots=True)
class Sent:
    """What all agents together have done so far."""

    attached: int
    beats: int
    relayed: int
    relays_cpu_s: float
    orders: Counter[str]
    ends: Counter[str]
    cpu_s: float


class Generators:
    """So many processes; each has every so-many-th agent, and one more has the relays. Use as a context: at
    its end they are gone.

    `tls`: what they prove with who they are; None: connections are in plaintext."""

    def __init__(
        self,
        fleet: Fleet,
        processes: int,
        addresses: tuple[str, ...],
        cluster: str,
        beat_s: float | None,
        *,
        tls: Certificates | None = None,
    ) -> None:
        common: dict[str, Any] = {"addresses": addresses, "cluster": cluster, "beat_every_s": beat_s}
        common["tls"] = asdict(tls) if tls else None
        relays = set(fleet.relay_numbers)
        others = [number for number in range(fleet.nodes) if number not in relays]
        shares = [{"numbers": others[which::processes], "relays": False} for which in range(processes)]
        if relays:
            shares.append({"numbers": sorted(relays), "relays": True})
        self._processes = [_started(common | share) for share in shares]
        self._relays = bool(relays)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()

    def tell(self, *words: str) -> list[dict[str, Any]]:
        """Have every process do this, all at the same time. Returns their answers."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(" ".join(words) + "\n")
            process.stdin.flush()
        return [_answer(process) for process in self._processes]

    def stats(self) -> Sent:
        """What they have done so far."""
        rows = self.tell("stats")
        return Sent(
            attached=sum(row["attached"] for row in rows),
            beats=sum(row["beats"] for row in rows),
            relayed=sum(row["relayed"] for row in rows),
            relays_cpu_s=rows[-1]["cpu_s"] if self._relays else 0.0,
            orders=sum((Counter(row["orders"]) for row in rows), Counter()),
            ends=sum((Counter(row["ends"]) for row in rows), Counter()),
            cpu_s=sum(row["cpu_s"] for row in rows),  # the relays' among it
        )


def _started(config: dict[str, Any]) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "benchmarks.scale.generator", json.dumps(config)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a process of agents ended with code {process.wait()}")
    found: dict[str, Any] = json.loads(line)
    return found
