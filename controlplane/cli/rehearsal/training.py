"""Run the trainings of a rehearsal: hold each where a kill or a checkpoint is due, and end it at the step
that is compared."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from controlplane.cli.demo.show import draw, hurt, logged, narrate
from controlplane.cli.demo.training import DemoTraining
from controlplane.cli.errors import OK, CliError
from holdfast.checkpoint import load
from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.storage.store import Store
from holdfast.holds import VARIABLE, Holds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controlplane.cli.demo.kills import PlannedKill
    from controlplane.cli.demo.screen import Screen
    from controlplane.cli.demo.strike import KillResult
    from controlplane.cli.rehearsal.plan import RehearsalPlan
    from holdfast.checkpoint.format.manifest_records import Manifest

LOOK_S = 0.05
BEGUN_LOOK_S = 0.002
"""The pause between two looks whether a step has begun, in which something is to be killed."""
SAVED_S = 60.0
"""How long a checkpoint may take that is due where training is held."""
NAME = "rehearsal"
"""Of the job, which is in the names of its checkpoints: the same in all trainings."""


class Rehearsal:
    """One training of it, in a folder and with a storage of its own. `title`: what it is called."""

    def __init__(self, plan: RehearsalPlan, folder: Path, title: str) -> None:
        self._plan, self.title = plan, title
        self._storage = folder / "storage"
        self._holds = Holds(folder / "holds", plan.holds)
        own = [
            *("--storage", self._storage.as_uri(), "--state-dir", str(folder / "state")),
            *("--rdzv-id", NAME, "--checkpoint-every", str(plan.every)),
        ]
        self.training = DemoTraining(
            folder, NAME, [*own, *plan.words_for(folder.name)], environment={VARIABLE: str(self._holds)}
        )
        self._storage.mkdir()

    async def run(self, screen: Screen, kills: Sequence[PlannedKill]) -> tuple[list[KillResult], Manifest]:
        """Train with these kills until the step that is compared. Returns what each kill did, and the
        checkpoint of that step.

        Raises CliError when the training ends before, or a kill came too late."""
        training = self.training
        training.start()
        helpers = [
            asyncio.create_task(each)
            for each in (training.watch(), narrate(training, screen), draw(training, screen, self.title))
        ]
        work = asyncio.create_task(self._led(screen, kills))
        try:
            while training.ended() is None or training.reviving:
                await asyncio.sleep(LOOK_S)
                if work.done():
                    return work.result()
            raise CliError(self._too_short())
        finally:
            for task in (*helpers, work):
                task.cancel()
            await asyncio.gather(*helpers, work, return_exceptions=True)
            self.end()

    def end(self) -> None:
        """End its processes."""
        self.training.stop()
        self.training.close()

    async def _led(self, screen: Screen, kills: Sequence[PlannedKill]) -> tuple[list[KillResult], Manifest]:
        """Lead the training from hold to hold. A kill may come while training is held at the next one."""
        blows: list[KillResult] = []
        strikes: list[asyncio.Task[None]] = []
        try:
            for step in self._plan.holds:
                await self._held(step, blows, sum(kill.step < step for kill in kills), strikes)
                found = await self._saved(step) if step % self._plan.every == 0 else None
                if found is not None and step == self._plan.until:
                    await asyncio.gather(*strikes)
                    return blows, found
                await self._go_on(step)
                if now := [kill for kill in kills if kill.step == step]:
                    seed = self._plan.seed + len(blows)
                    strikes.append(asyncio.create_task(hurt(self.training, now, seed, screen, blows)))
        finally:
            for task in strikes:
                task.cancel()
        raise AssertionError("the last hold is the step that is compared")

    async def _go_on(self, step: int) -> None:
        """Let training go on, and wait until a rank has begun this step. Where gradients cross steps it may
        be at a later hold already, and begins none."""
        released_ns = time.monotonic_ns()
        self._holds.release(step)
        while not self._holds.holding(min(self.training.progress().values(), default=0)):
            pages = filter(None, map(self.training.page, self.training.seats.values()))
            if any(page.step_started_ns > released_ns for page in pages):
                return
            await asyncio.sleep(BEGUN_LOOK_S)

    async def _held(
        self, step: int, blows: Sequence[KillResult], kills: int, strikes: Sequence[asyncio.Task[None]]
    ) -> None:
        """Wait until so many kills have happened, and all ranks are held at this step. Raises CliError if a
        kill has come too late to be rehearsed, and what one of the `strikes` has raised."""
        while True:
            steps = self.training.progress()
            for task in strikes:
                if task.done():
                    task.result()
            if late := next((blow for blow in blows if blow.step >= self._plan.until), None):
                raise CliError(
                    f"{late.kill} came when training was held at step {late.step}, which is compared: give a "
                    "larger --until-step"
                )
            there = len(steps) == self._plan.world_size and min(steps.values()) >= step
            if there and len(blows) >= kills:
                return
            await asyncio.sleep(LOOK_S)

    async def _saved(self, step: int) -> Manifest:
        """Wait for the checkpoint of this step, or of the next one at which no gradients cross. Raises
        CliError if there is none."""
        deadline = time.monotonic() + SAVED_S
        with contextlib.closing(Store.open(self._storage.as_uri())) as store:
            while time.monotonic() < deadline:
                found = {each.step: each.id for each in self._listed(store) if each.step >= step}
                if found:
                    return load.read_manifest(store, NAME, found[min(found)])
                await asyncio.sleep(LOOK_S)
        raise CliError(
            f"the training {self.title} has saved no checkpoint of step {step}: does the script track its "
            f"state, and do its steps clear their gradients?{logged(self.training)}"
        )

    def _listed(self, store: Store) -> list[load.Found]:
        try:
            return load.listing(store, NAME)
        except CheckpointError:
            return []  # nothing was saved yet

    def _too_short(self) -> str:
        """Why there is nothing to compare: the training has ended."""
        if self.training.ended() != OK:
            return f"the training {self.title} ended with code {self.training.ended()}{logged(self.training)}"
        return (
            f"the training {self.title} ended before step {self._plan.until} had a checkpoint: give the "
            "script more steps, or a smaller --until-step. A script without the SDK tracks nothing and saves "
            "no checkpoint"
        )
