"""Rehearse: train with kills and without, compare, and find out whether a difference is the script's own."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

from controlplane.cli.demo.screen import Screen
from controlplane.cli.demo.show import logged
from controlplane.cli.errors import FAILED, OK, CliError
from controlplane.cli.local.processes import become_subreaper, end_all_below
from controlplane.cli.rehearsal import differences, report
from controlplane.cli.rehearsal.training import Rehearsal

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.cli.rehearsal.plan import RehearsalPlan
    from controlplane.cli.rehearsal.report import Rehearsed


async def rehearsed(plan: RehearsalPlan, folder: Path) -> int:
    """Rehearse and return the exit code. Raises CliError when a training does not come to the step that is
    compared."""
    become_subreaper()
    begun: list[Rehearsal] = []
    try:
        with Screen(plan.until, to_stderr=plan.as_json) as screen:
            screen.say(report.opening(plan, folder))
            async with asyncio.timeout(plan.timeout_s):
                found = await _compared(plan, folder, screen, begun)
            for text, style in report.lines(found):
                screen.say(text, style)
        if plan.as_json:
            print(json.dumps(report.as_json(found)), flush=True)
        return OK if found.exact else FAILED
    except TimeoutError as error:
        last = logged(*(each.training for each in begun[-1:]))
        raise CliError(f"not finished within {plan.timeout_s:.0f} s{last}") from error
    finally:
        for each in begun:
            each.end()
        end_all_below(os.getpid())


async def _compared(plan: RehearsalPlan, folder: Path, screen: Screen, begun: list[Rehearsal]) -> Rehearsed:
    def training(name: str, title: str) -> Rehearsal:
        begun.append(Rehearsal(plan, folder / name, title))
        return begun[-1]

    disturbed = training("disturbed", "with kills")
    blows, after_kills = await disturbed.run(screen, plan.kills)
    screen.say("Now the same training without failures.", "bold")
    _, calm = await training("undisturbed", "undisturbed").run(screen, ())
    if calm.step != after_kills.step:
        raise CliError(
            f"the trainings have saved other steps: {after_kills.step} with kills, {calm.step} undisturbed. "
            "Do gradients cross other boundaries each time?"
        )
    found = report.Rehearsed(
        calm.step,
        blows,
        differences.between(calm, after_kills, *map(plan.places_of, ("undisturbed", "disturbed"))),
        differences.tensors(calm),
        report.journal_of(disturbed.training.journal),
        report.warnings_of(disturbed.training.log),
    )
    if found.differing:
        screen.say("They differ. Once more without failures: is that the script's own doing?", "bold")
        _, again = await training("again", "undisturbed again").run(screen, ())
        places = map(plan.places_of, ("undisturbed", "again"))
        found.unsteady = differences.between(calm, again, *places)
    return found
