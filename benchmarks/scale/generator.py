"""Run a share of the fleet's agents in this process, and answer the benchmark on standard output.

    python -m benchmarks.scale.generator '{"addresses": [...], "cluster": "c", "numbers": [0, 2, ...], ...}'

Each line of standard input is a command: `connect`, `stats`, `kill N ...` (one rank of each of these nodes),
`lose N ...` (these nodes vanish). The answer to each is one line of JSON. An exception anywhere ends it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import uvloop

from benchmarks.scale.certificates import Certificates
from benchmarks.scale.light_agent import LightAgent, Talk

CONNECTING_MAX = 64
"""How many connections of one process are being opened at a time."""


@dataclass(slots=True)
class Generator:
    """The agents of this process, by number."""

    talk: Talk
    agents: dict[int, LightAgent] = field(default_factory=dict)

    async def connect(self) -> None:
        """Have every agent open its first connection, as fast as the server takes them."""
        gate = asyncio.Semaphore(CONNECTING_MAX)

        async def first(agent: LightAgent) -> None:
            async with gate:
                await agent.connect()

        await asyncio.gather(*map(first, self.agents.values()))

    def stats(self) -> dict[str, Any]:
        """How many are attached, what has been sent and received, and what this process has cost."""
        return {
            "attached": sum(agent.attached for agent in self.agents.values()),
            "beats": self.talk.beats,
            "relayed": self.talk.relayed,
            "orders": dict(self.talk.orders),
            "ends": dict(self.talk.ends),
            "cpu_s": time.process_time(),
        }

    async def answer(self, words: list[str]) -> dict[str, Any]:
        """Do what a line says."""
        command, numbers = words[0], [int(word) for word in words[1:]]
        mine = [self.agents[number] for number in numbers if number in self.agents]
        if command == "connect":
            await self.connect()
        elif command == "kill":
            return {"at": {agent.name: agent.kill_rank() for agent in mine}}
        elif command == "lose":
            for agent in mine:
                agent.lose()
        return self.stats()


def _end(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    loop.default_exception_handler(context)
    os._exit(1)  # a benchmark without some of its agents would go on and measure something else


async def serve(config: dict[str, Any]) -> None:
    """Answer until standard input ends."""
    asyncio.get_running_loop().set_exception_handler(_end)
    tls = files.client() if (files := Certificates.of(config["tls"])) else None
    talk = Talk(tuple(config["addresses"]), config["cluster"], config["beat_every_s"], tls)
    agents = {number: LightAgent(number, talk, relays=config["relays"]) for number in config["numbers"]}
    generator = Generator(talk, agents)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await generator.answer(line.split())), flush=True)


if __name__ == "__main__":
    uvloop.run(serve(json.loads(sys.argv[1])))
