"""Hold what all parts of a simulated run share: its setup and clock, the nodes, and the booked time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.goodput import NodeTimeLedger
from controlplane.simulation.agents import Agent
from controlplane.simulation.clock import VirtualClock
from controlplane.simulation.training import SimulatedTraining

if TYPE_CHECKING:
    from controlplane.simulation.costs import Setup
    from controlplane.simulation.failures import Outage

BINS = 240
"""Number of bins into which the simulated time is divided for the picture."""


class Scene:
    """The shared state of one run, without the core. Times in s of the virtual clock.

    `down` has the nodes that are down, with the outage of each."""

    def __init__(self, setup: Setup) -> None:
        setup.check()
        self.setup = setup
        self.clock = VirtualClock()
        self.end_s = setup.days * 86_400.0
        self.ledger = NodeTimeLedger(self.end_s / BINS)
        self.training = SimulatedTraining(setup, self.ledger)
        width = len(str(setup.nodes - 1))
        self.agents = [Agent(f"n{number:0{width}}") for number in range(setup.nodes)]
        self.by_name = {agent.name: agent for agent in self.agents}
        self.down: dict[str, Outage] = {}
