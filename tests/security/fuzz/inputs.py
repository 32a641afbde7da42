"""Fuzz input other than messages: files that people write, environment variables, a launcher's commands,
HTTP. As in `targets`, a target returns whether its input was accepted; any exception that it raises is a bug
of ours."""

from __future__ import annotations

import json
import math
import os
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter

from controlplane.cli.errors import UsageError
from controlplane.cli.flags.settings import from_environment
from controlplane.cli.plan import read_cluster, read_model
from controlplane.planner.ranking import plan
from controlplane.planner.shapes import LayoutError
from controlplane.scraping import ScrapeServer
from controlplane.settings import AgentSettings, CoordinatorSettings, SettingsError, check
from controlplane.simulation.failures import FailureInputError
from controlplane.simulation.trace import read
from holdfast.ipc.frames import Decoder, FrameError, encode
from holdfast.launch.script import RunOrder
from tests.security.fuzz.messages import WORDS, damage

if TYPE_CHECKING:
    from random import Random

EXAMPLES = Path(__file__).parents[3] / "examples"
MODELS = [path.read_bytes() for path in sorted((EXAMPLES / "models").glob("*.toml"))]
CLUSTERS = [path.read_bytes() for path in sorted((EXAMPLES / "clusters").glob("*.toml"))]
NUMBERS = (
    "0",
    "-1",
    "1",
    "3",
    "1e308",
    "nan",
    "inf",
    "9223372036854775808",
    "0.5",
    '"x"',
    "true",
    "[]",
    "{}",
)
_ENVIRONMENT = [
    f"HOLDFAST_{name.upper()}"
    for kind in (AgentSettings, CoordinatorSettings)
    for name, field in kind.__dataclass_fields__.items()
    if field.metadata.get("env")
]


def launcher(rng: Random) -> bool:
    """A launcher's commands."""
    message: dict[str, Any] = {"op": "run", "member": "j.1", "argv": ["a.py"], "env": {"A": "b"}, "cwd": "/"}
    for _ in range(rng.randrange(3)):
        message[rng.choice((*message, "module", "inherit"))] = rng.choice(
            (*WORDS, 1, None, [], ["a", 1], {"a": 1})
        )
    try:
        (told,) = Decoder().feed(damage(encode(message), rng))
        order = RunOrder.of(told)
    except (FrameError, ValueError):
        return False
    assert all(isinstance(word, str) for word in (*order.argv, *order.env.values(), order.cwd))
    return True


def environment(rng: Random) -> bool:
    """HOLDFAST_ variables of a daemon."""
    kind = rng.choice((AgentSettings, CoordinatorSettings))
    values = [word for word in (*WORDS, "0", "1", "true", "yes", "http://h:1") if "\0" not in word]
    mine = {name: rng.choice(values) for name in rng.sample(_ENVIRONMENT, 3)}
    before = dict(os.environ)
    os.environ.update(mine)
    try:
        check(kind(**from_environment(kind)))
    except (UsageError, SettingsError):
        return False
    finally:
        os.environ.clear()
        os.environ.update(before)
    return True


def plans(rng: Random) -> bool:
    """The TOML files of `holdfast plan`: the result is a plan with finite figures, or an error that names the
    solution."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="hf-") as folder:
        model, cluster = Path(folder) / "model.toml", Path(folder) / "cluster.toml"
        model.write_bytes(_toml(MODELS, rng))
        cluster.write_bytes(_toml(CLUSTERS, rng))
        try:
            found = plan(read_model(model), read_cluster(cluster), 3)
        except (UsageError, LayoutError):
            return False
    figures = [figure for each in found for figure in (each.cost.step_s, each.cost.mfu, each.memory_ratio)]
    assert figures and all(math.isfinite(figure) and figure >= 0 for figure in figures), figures
    return True


def _toml(texts: list[bytes], rng: Random) -> bytes:
    """One of these files, with some of its values replaced or its bytes damaged."""
    lines = rng.choice(texts).decode().splitlines()
    if rng.random() < 0.3:
        return damage("\n".join(lines).encode(), rng)
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(len(lines))
        name, equals, _ = lines[at].partition("=")
        lines[at] = f"{name}= {rng.choice(NUMBERS)}" if equals else lines[at]
    return "\n".join(lines).encode()


def traces(rng: Random) -> bool:
    """A trace of failures."""
    rows: Any = [_event(rng) for _ in range(rng.randrange(6))]
    text = json.dumps(rows if rng.random() < 0.95 else rng.choice(({}, None, 1, "x"))).encode()
    try:
        found = read(damage(text, rng).decode("utf-8", "replace"), rng.choice((1, 4)))
    except FailureInputError:
        return False
    assert all(0 <= each.start_s <= each.end_s for each in found.outages)
    return True


def _event(rng: Random) -> Any:
    row: dict[str, Any] = {
        "node_id": rng.choice(("n1", "n2", 3)),
        "event_time": rng.choice((0, 1, 2.5, 1e6)),
        "event_type": rng.choice(("fault_start", "fault_end")),
        "fault_type": {"Class": rng.choice(WORDS)},
    }
    if rng.random() < 0.15:
        row[rng.choice(list(row))] = rng.choice(
            (*WORDS, None, -1, True, [], {"Class": []}, 1e308, float("nan"))
        )
    return row if rng.random() < 0.97 else rng.choice((None, 1, "x", []))


class Http:
    """Requests to /metrics over a real socket: each gets an answer, or its connection is closed."""

    def __init__(self) -> None:
        self._server: ScrapeServer | None = None

    def __call__(self, rng: Random) -> bool:
        """One connection."""
        data = damage(b"GET /metrics HTTP/1.1\r\nhost: h\r\naccept: text/plain\r\n\r\n", rng)
        with socket.create_connection(("127.0.0.1", self._port()), 20) as line:
            try:
                line.sendall(data)
                line.shutdown(socket.SHUT_WR)
                said = line.recv(4096)
                while more := line.recv(65536):
                    said = said if len(said) > 4096 else said + more
            except (ConnectionResetError, BrokenPipeError):
                return False
        return said.startswith((b"HTTP/1.0 200", b"HTTP/1.1 200"))

    def _port(self) -> int:
        if self._server is None:  # one server for all requests, until the process ends
            registry = CollectorRegistry()
            Counter("fuzzed", "Nothing.", registry=registry)
            self._server = ScrapeServer(registry, "127.0.0.1", 0)
        return self._server.port

    def close(self) -> None:
        """No more requests come."""
        if self._server is not None:
            self._server.close()
            self._server = None
