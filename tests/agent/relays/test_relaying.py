"""Heartbeats over a real stream between two agents: answered when the leader has them, else sent directly."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from agent.relays.sending import BeatSender
from controlplane.access.client_credentials import ClientCredentials, plain
from controlplane.access.tls import TlsFiles
from controlplane.wire import control_pb2 as pb
from controlplane.wire import relayed
from controlplane.wire.relayed import KEY_BYTES, BeatsTaken, RelayBeats
from controlplane.wire.versions import NEW_WORDS
from tests.agent.peering import Side
from tests.agent.support import folder, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = b"k" * KEY_BYTES


class Pair:
    """A relay whose leader is the test, and one sender."""

    def __init__(self, relay: Side, access: ClientCredentials | None = None) -> None:
        self.relay, self.batches = relay, list[pb.BeatsRelayed]()
        self.sender = BeatSender("n1", 5, access or plain())
        self.seq = 0

    def lead(self) -> None:
        """The relay has a leader that hears it."""
        self.relay.collector.welcomed(self._batch, 0.2, NEW_WORDS)

    def _batch(self, message: pb.AgentMessage) -> None:
        self.batches.append(message.beats_relayed)

    def order(self, address: str = "") -> None:
        self.sender.welcomed(KEY)
        self.sender.order(RelayBeats("n1", "r", address or self.relay.peers.address))

    def beats(self) -> bool:
        """Whether the next heartbeat goes through the relay."""
        self.seq += 1
        return self.sender.sends(pb.StepBeat(seq=self.seq, like=1, steps=[7]))

    async def connected(self) -> None:
        self.lead()
        self.order()
        assert not self.beats(), "there is no stream yet: this one goes directly"
        await until(lambda: self.sender.route.open and self.relay.collector.senders, "the stream")


@contextlib.asynccontextmanager
async def pair(access: ClientCredentials | None = None) -> AsyncIterator[Pair]:
    with folder() as base:
        async with Side(base, "r") as relay:
            made = Pair(relay, access)
            try:
                yield made
            finally:
                await made.sender.close()


async def test_a_heartbeat_goes_through_and_the_next_one_after_the_leader_has_answered() -> None:
    async with pair() as both:
        await both.connected()
        assert both.beats()
        (batch,) = await until(lambda: both.batches, "a batch")
        sealed = relayed.opened(batch.beats[0])
        assert relayed.is_genuine(sealed, KEY) and not relayed.is_genuine(sealed, b"x" * KEY_BYTES)
        assert (sealed.node, relayed.step_beat(sealed).seq) == ("n1", 2)
        both.relay.collector.taken(BeatsTaken("r", batch.number))
        await until(lambda: both.sender.route.waits_for is None, "the answer")
        assert both.beats() and both.relay.collector.senders == 1


async def test_without_an_answer_the_next_heartbeat_goes_directly_and_the_stream_ends() -> None:
    async with pair() as both:
        await both.connected()
        assert both.beats()
        await until(lambda: both.batches, "a batch")
        assert not both.beats() and not both.beats()
        assert both.sender.route.why == "r has not passed on heartbeat 2"
        await until(lambda: not both.relay.collector.senders, "the end of the stream")


async def test_a_relay_that_loses_its_leader_sends_its_senders_away() -> None:
    async with pair() as both:
        await both.connected()
        both.relay.collector.down()
        await until(lambda: not both.sender.route.open, "the end")
        assert "send directly, and come again later" in both.sender.route.why
        assert not both.beats()


async def test_a_leader_that_answers_nothing_sends_all_away() -> None:
    async with pair() as both:
        await both.connected()
        stream = both.sender.route
        for _ in range(8):  # a sender that does not care
            stream.opened()
            both.beats()
            await until(lambda: len(both.batches) >= both.seq - 1 or not stream.open, "a batch")
            if not stream.open:
                break
        await until(lambda: not both.relay.collector.senders, "all are sent away")


async def test_a_relay_without_a_leader_is_refused_by_name() -> None:
    async with pair() as both:
        both.order()
        assert not both.beats()
        await until(lambda: both.sender.route.failures, "the refusal")
        assert "no leader hears this agent now" in both.sender.route.why


async def test_a_relay_that_cannot_be_reached_is_of_no_use() -> None:
    async with pair() as both:
        both.order("127.0.0.1:1")
        assert not both.beats()
        await until(lambda: both.sender.route.failures, "the failure")
        assert both.sender.route.why.startswith("r: ")


async def test_a_relay_that_fails_in_the_moment_in_which_another_is_named_says_nothing_of_the_other() -> None:
    async with pair() as both:
        await both.connected()
        other = RelayBeats("n1", "other", both.relay.peers.address)
        talk = next(task for task in asyncio.all_tasks() if _runs(task, "BeatSender._read"))
        talk.add_done_callback(lambda _: both.sender.order(other))
        both.relay.collector.down()
        await until(lambda: both.sender.route.relay == "other", "the other relay")
        both.lead()
        await until(lambda: both.beats() or both.sender.route.failures, "a heartbeat")
        assert not both.sender.route.failures


def _runs(task: asyncio.Task[object], name: str) -> bool:
    return getattr(task.get_coro(), "__qualname__", "") == name


async def test_an_address_that_would_be_called_in_plaintext_is_not_called() -> None:
    async with pair(ClientCredentials(TlsFiles())) as both:
        both.order("192.0.2.1:4000")
        assert not both.beats()
        await until(lambda: both.sender.route.failures, "the refusal")
        assert "would be called in plaintext" in both.sender.route.why


async def test_another_leader_begins_anew_without_a_relay() -> None:
    async with pair() as both:
        await both.connected()
        both.sender.down()
        both.sender.welcomed(KEY)
        assert not both.beats() and both.sender.route.address == ""


async def test_a_leader_of_an_older_version_gives_no_key_and_gets_every_heartbeat_directly() -> None:
    async with pair() as both:
        both.lead()
        both.order()
        for key in (b"", b"short", b"k" * 100):
            both.sender.welcomed(key)
            assert not both.beats()


async def test_what_is_no_heartbeat_ends_only_its_own_stream() -> None:
    async with pair() as both:
        await both.connected()
        other = Pair(both.relay)
        other.sender.welcomed(KEY)
        other.sender.order(RelayBeats("n2", "r", both.relay.peers.address))
        other.beats()
        await until(lambda: other.sender.route.open, "another stream")
        other.sender.sends(pb.StepBeat(seq=9, steps=range(1 << 17)))
        await until(lambda: not other.sender.route.open, "its end")
        assert both.beats() and both.sender.route.open
        await other.sender.close()
