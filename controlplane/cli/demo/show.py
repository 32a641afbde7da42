"""Run the demo: a run with failures, an undisturbed run, the comparison.

Everything is measured from outside: by the processes, progress pages, journal, ledgers and weights of two
ordinary `holdfast run` commands."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

from controlplane.access.client_credentials import plain
from controlplane.cli.client import AdminClient
from controlplane.cli.demo.ledger import RecordedLedger, judge, read
from controlplane.cli.demo.report import verdict_table
from controlplane.cli.demo.screen import Screen
from controlplane.cli.demo.strike import KillResult, strike, wait_for_return, watch_recovery
from controlplane.cli.demo.training import DemoTraining
from controlplane.cli.demo.verdict import DemoOutcome, as_json
from controlplane.cli.errors import FAILED, OK, CliError
from controlplane.cli.local.child import last_lines
from controlplane.cli.local.processes import become_subreaper, end_all_below

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controlplane.cli.demo.kills import PlannedKill
    from controlplane.cli.demo.options import DemoOptions

SPARES = 1
REDRAW_S = 0.1


async def show(wish: DemoOptions, script: Path, folder: Path) -> int:
    """Run the demo and return the exit code. Raises CliError when a run does not come to its end."""
    become_subreaper()
    disturbed = _training(wish, script, folder, "disturbed", SPARES)
    calm = _training(wish, script, folder, "undisturbed", 0)
    try:
        with Screen(wish.steps, to_stderr=wish.as_json) as screen:
            screen.say(_opening(wish, disturbed))
            async with asyncio.timeout(wish.timeout_s):
                strikes = await _run(disturbed, wish, screen, "with failures", wish.kills)
                screen.say("Now the same training again, without failures.", "bold")
                await _run(calm, wish, screen, "undisturbed", ())
        outcome = _outcome(wish, disturbed, calm, strikes)
        result = as_json(outcome)
        screen.show(verdict_table(outcome, result))
        if wish.as_json:
            print(json.dumps(result), flush=True)
        return OK if outcome.good else FAILED
    except TimeoutError as error:
        raise CliError(f"not finished within {wish.timeout_s:.0f} s{logged(disturbed, calm)}") from error
    finally:
        for training in (disturbed, calm):
            training.stop()
            training.close()
        end_all_below(os.getpid())


def _opening(wish: DemoOptions, training: DemoTraining) -> str:
    kills = "; ".join(map(str, wish.kills))
    return (
        f"{wish.nodes} nodes, {wish.per_node} ranks and {SPARES} warm spare each, {wish.steps} steps of "
        "a byte-level GPT on the standard library's sources.\n"
        f"Kills: {kills}.\nThe output of the run is in {training.log}"
    )


def _training(wish: DemoOptions, script: Path, folder: Path, name: str, spares: int) -> DemoTraining:
    """A run with a folder of its own, and the flags for it."""
    own = folder / name
    state = own / "state"
    flags = [
        *("--nnodes", str(wish.nodes), "--nproc-per-node", str(wish.per_node), "--spares", str(spares)),
        *("--storage", (own / "storage").as_uri(), "--state-dir", str(state), "--rdzv-id", f"demo-{name}"),
        *("--snapshot-every", "5", "--checkpoint-every", "10", "--ledger", str(own / "ledger")),
        *("--process-timeout-s", "3", "--lease-ttl-s", "3"),
    ]
    arguments = ["--steps", str(wish.steps), "--digest-dir", str(own / "digests")]
    return DemoTraining(own, f"demo-{name}", [*flags, str(script), *arguments])


async def _run(
    training: DemoTraining, wish: DemoOptions, screen: Screen, title: str, kills: Sequence[PlannedKill]
) -> list[KillResult]:
    """Run to the end, with the kills on the way. Returns what each kill did."""
    training.start()
    helpers = [
        asyncio.create_task(training.watch()),
        asyncio.create_task(narrate(training, screen)),
        asyncio.create_task(draw(training, screen, title)),
    ]
    strikes: list[KillResult] = []
    work = asyncio.create_task(hurt(training, kills, wish.seed, screen, strikes)) if kills else None
    try:
        await _until_ended(training, work)
        if work is not None and not work.cancelled():
            await work
    finally:
        everyone = [*helpers, *([work] if work is not None else [])]
        for task in everyone:
            task.cancel()
        await asyncio.gather(*everyone, return_exceptions=True)
    if training.ended() != OK:
        raise CliError(f"the run {title} ended with code {training.ended()}{logged(training)}")
    if work is not None and work.cancelled():
        raise CliError(f"the run {title} ended before it had recovered from every kill: give it more --steps")
    return strikes


async def _until_ended(training: DemoTraining, work: asyncio.Task[None] | None) -> None:
    """Wait until the run has ended for good. While everything is killed on purpose, its end does not
    count."""
    while True:
        await asyncio.sleep(REDRAW_S)
        if work is not None and work.done():
            work.result()
        over = training.ended() is not None and not training.reviving
        if over:
            if work is not None:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
            return


async def hurt(
    training: DemoTraining, kills: Sequence[PlannedKill], seed: int, screen: Screen, strikes: list[KillResult]
) -> None:
    """Kill in the steps that are planned, one after the other, and add what came of each to `strikes`."""
    for number, kill in enumerate(kills):
        screen.say(f"{kill}: waiting for the step", "dim")
        blow = await strike(training, kill, seed + number, screen.say)
        strikes.append(blow)
        await watch_recovery(training, blow)
        if kill.target == "all":
            screen.say("Starting the same command again.", "bold")
            await wait_for_return(training, blow)


async def narrate(training: DemoTraining, screen: Screen) -> None:
    """Show the journal's lines as they come, across restarts of the coordinator."""
    after = 0
    while True:
        address = training.card().get("coordinator")
        if address:
            async with AdminClient(address, access=plain()) as admin:
                try:
                    async for line in admin.events(follow=True, after=after):
                        after = line.sequence
                        screen.event(json.loads(line.json))
                except CliError:
                    pass  # the coordinator is away; the card will name the address of the next one
        await asyncio.sleep(REDRAW_S)


async def draw(training: DemoTraining, screen: Screen, title: str) -> None:
    """Show how far the ranks are, until cancelled."""
    while True:
        screen.update(training, title)
        await asyncio.sleep(REDRAW_S)


def logged(*trainings: DemoTraining) -> str:
    """The last lines of their output, as the end of an error."""
    lines = [line for training in trainings for line in last_lines(training.log, 20)]
    return ":\n    " + "\n    ".join(lines) if lines else ""


def _outcome(
    wish: DemoOptions, disturbed: DemoTraining, calm: DemoTraining, strikes: list[KillResult]
) -> DemoOutcome:
    reference = _ledger(calm)
    lines = disturbed.journal.read_text().splitlines()
    return DemoOutcome(
        steps=wish.steps,
        world_size=wish.world_size,
        nodes=wish.nodes,
        digests=_digests(disturbed),
        undisturbed=_digests(calm),
        samples=judge(_ledger(disturbed), wish.steps, reference),
        journal=[json.loads(line) for line in lines],
        strikes=strikes,
    )


def _ledger(training: DemoTraining) -> RecordedLedger:
    files = sorted(training.ledger.glob("*.jsonl"))
    return read({path.name: path.read_text().splitlines() for path in files})


def _digests(training: DemoTraining) -> dict[int, str]:
    found = [json.loads(path.read_text()) for path in training.digests.glob("*.json")]
    return {entry["rank"]: entry["digest"] for entry in found}
