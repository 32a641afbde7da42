"""Mutated input, as much of it as the suite has time for; `python -m tests.security.fuzz` takes millions."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.ranks.rank_server import RankServer
from controlplane.access.callers import Unauthenticated, from_certificate
from controlplane.access.tokens import Tokens
from controlplane.settings import NAME, SettingsError
from holdfast.ipc.frames import Decoder, FrameError, encode
from tests.agent.support import Frames
from tests.security.fuzz import wire
from tests.security.fuzz.messages import damage
from tests.security.fuzz.running import resident_bytes, run
from tests.security.fuzz.targets import TARGETS
from tests.security.test_local import Admits, knock

SEED = 20260
GROWN_BYTES_MAX = 32 << 20
FEW = {"settings": 200, "plans": 30, "http": 300, "environment": 300}
"""Targets that take more than a moment for each message."""
calm = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_mutated_crashes_hangs_or_grows(target: str) -> None:
    report = run(target, FEW.get(target, 1500), SEED)
    if (close := getattr(TARGETS[target], "close", None)) is not None:
        close()
    assert report.crashes == {}, report.first
    assert report.accepted and report.refused
    assert report.slowest_s < 5 and report.grown_bytes < GROWN_BYTES_MAX


async def test_a_server_answers_everything_mutated_and_goes_on() -> None:
    report = await wire.run(60, SEED)
    assert report["alive"]
    bad = [name for name in report["outcomes"] if name.split()[1] in {code.name for code in wire.FAULTS}]
    assert bad == [], report["outcomes"]


async def test_a_gate_survives_mutated_frames(folder: Path) -> None:
    node, rng = Admits(), random.Random(SEED)
    server = RankServer(folder / "gate.sock", node)
    await server.open()
    hello = encode({"op": "hello", "version": 1, "member": "m", "pid": 1})
    try:
        for _ in range(300):
            with contextlib.suppress(ConnectionError):
                _, writer = await asyncio.open_unix_connection(folder / "gate.sock")
                writer.write(damage(hello, rng) + rng.randbytes(rng.choice((0, 8, 4096))))
                writer.close()
                await writer.wait_closed()
        assert await knock(folder / "gate.sock") == "in"
    finally:
        await server.close()


def test_a_launcher_survives_mutated_frames(folder: Path) -> None:
    rng, path = random.Random(SEED), folder / "launcher.sock"
    attach = encode({"op": "attach", "version": 1})
    orders = [
        {"op": op, "member": "j.1", "log": str(folder / "l"), "signal": 0} for op in ("signal", "run", "x")
    ]
    argv = [sys.executable, "-P", "-m", "holdfast.launch.launcher", "--run-dir", str(folder)]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(argv, stderr=said)
    try:
        for number in range(300):
            client = Frames(path)
            with contextlib.suppress(ConnectionError):
                client.socket.sendall(attach if number % 2 else damage(attach, rng))
                client.socket.sendall(
                    damage(encode(rng.choice(orders)), rng) + rng.randbytes(rng.choice((0, 8, 999)))
                )
                client.socket.shutdown(socket.SHUT_WR)
            assert client.ended()
            client.close()
        last = Frames(path)
        last.say(op="attach", version=1)
        assert last.until("hello")["members"] == []
        last.close()
        assert process.poll() is None and resident_bytes(process.pid) < 200 << 20
    finally:
        process.terminate()
        process.wait(30)
    assert "Traceback" not in (folder / "said").read_text()


@calm
@given(st.lists(st.binary(max_size=64), max_size=8))
def test_frames_of_any_bytes_are_objects_or_errors(pieces: list[bytes]) -> None:
    decoder = Decoder()
    with contextlib.suppress(FrameError):
        for piece in pieces:
            assert all(isinstance(message, dict) for message in decoder.feed(piece))


@calm
@given(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.lists(st.text(max_size=5), max_size=3)
)
def test_frames_come_out_as_they_went_in(value: object) -> None:
    message = {"op": "x", "value": value}
    whole = encode(message)
    decoder = Decoder()
    assert [each for byte in whole for each in decoder.feed(bytes([byte]))] == [message]


@calm
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_names_of_any_bytes_make_no_caller_without_a_name(uri: bytes, subject: bytes) -> None:
    peer = {"peer_uri": [b"holdfast://c1/" + uri], "x509_subject": [subject], "x509_common_name": [subject]}
    with contextlib.suppress(Unauthenticated):
        caller = from_certificate("c1", peer, subjects=True)
        assert caller.role is not None and NAME.fullmatch(caller.name)
        assert all(NAME.fullmatch(job) for job in caller.jobs)


@calm
@given(st.binary(max_size=200))
def test_token_files_of_any_bytes_let_nobody_in(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="hf-") as file:
        Path(file.name).write_bytes(content)
        with contextlib.suppress(SettingsError):
            for guess in ("", "a", content.decode("latin-1")):
                with pytest.raises(Unauthenticated):
                    Tokens(file.name).who(guess)
