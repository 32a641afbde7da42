"""Run the demo of the diagnosis: train, plant faults, and compare what was found with what was planted.

Only this process and the training script know what is planted. What is found is asked of the coordinator, as
any user would."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import time
from typing import TYPE_CHECKING, Any

from controlplane.access.client_credentials import plain
from controlplane.cli.client import AdminClient
from controlplane.cli.demo.accusations import PlantedFault, SeenFindings, as_json
from controlplane.cli.demo.duty_cycle import DutyCycle
from controlplane.cli.demo.faults import may_show, stages_of
from controlplane.cli.demo.memory import drawn_bit, flip_bit
from controlplane.cli.demo.neighbour import NoisyNeighbour
from controlplane.cli.demo.report import diagnosis_table
from controlplane.cli.demo.screen import Screen
from controlplane.cli.demo.show import draw, logged
from controlplane.cli.demo.training import DemoTraining
from controlplane.cli.errors import OK, CliError
from controlplane.cli.local.processes import become_subreaper, end_all_below
from holdfast.examples.plan import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controlplane.cli.demo.faults import PlannedFault
    from controlplane.cli.demo.options import DemoOptions
    from controlplane.cli.local.network_spaces import NodeNetworks

ASK_S = 0.5
"""How often the coordinator is asked: twice per window."""
LOOK_S = 0.005
"""The pause between two looks for the step of a fault."""
END_LOOK_S = 0.1
"""The pause between two looks whether the demo has lasted long enough."""
DIAGNOSE_EVERY_S = 1
"""Length of a window: short, so that a fault is found within a minute."""
CHECK_REPLICAS_EVERY = 10
"""Steps between two comparisons of replicas: as many as between two snapshots, so that each follows one."""
HANG_FLOOR_S = 10
"""After how long without progress a rank may count as hung: many steps, on a crowded machine too."""


async def show_diagnosed(wish: DemoOptions, script: Path, folder: Path, networks: NodeNetworks | None) -> int:
    """Run the demo and return the exit code: OK when it came to its end, whatever was found.

    `networks`: of the nodes; None: all nodes are in that of this process.
    Raises CliError when the run does not come to its end."""
    become_subreaper()
    training = _training(wish, script, folder, networks)
    planted = [PlantedFault(fault) for fault in wish.faults]
    seen, nodes = SeenFindings(), dict[int, str]()
    try:
        with Screen(wish.steps, to_stderr=wish.as_json) as screen:
            screen.say(_opening(wish, training))
            async with asyncio.timeout(wish.timeout_s):
                await _run(training, screen, planted, seen, nodes, wish=wish)
            replicas = {rank: rank // stages_of(wish.faults) for rank in nodes}
            result = as_json(planted, _journal(training), seen, nodes, replicas)
            screen.show(diagnosis_table(result))
        if wish.as_json:
            print(json.dumps(result), flush=True)
        return OK
    except TimeoutError as error:
        raise CliError(f"not finished within {wish.timeout_s:.0f} s{logged(training)}") from error
    finally:
        training.stop()
        training.close()
        end_all_below(os.getpid())


def _journal(training: DemoTraining) -> list[dict[str, Any]]:
    """The lines of the journal so far; the last one may be about to be written."""
    lines = training.journal.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _opening(wish: DemoOptions, training: DemoTraining) -> str:
    faults = "; ".join(map(str, wish.faults))
    return (
        f"{wish.nodes} nodes with {wish.per_node} ranks each, {wish.steps} steps of a byte-level GPT.\n"
        f"Planted: {faults}.\nThe output of the run is in {training.log}"
    )


def _training(wish: DemoOptions, script: Path, folder: Path, networks: NodeNetworks | None) -> DemoTraining:
    own = folder / "diagnosed"
    flags = [
        *("--nnodes", str(wish.nodes), "--nproc-per-node", str(wish.per_node), "--rdzv-id", "demo-diagnosed"),
        *("--state-dir", str(own / "state"), "--diagnose-every-s", str(DIAGNOSE_EVERY_S)),
        *("--hang-floor-s", str(HANG_FLOOR_S)),
        *("--check-replicas-every", str(CHECK_REPLICAS_EVERY), "--on-corrupt-state", "act"),
    ]
    played = [
        {**dataclasses.asdict(fault), "addresses": str(_addresses(own, fault))}
        for fault in wish.faults
        if fault.of.by_script
    ]
    stages = stages_of(wish.faults)
    flags += ["--pipeline-parallel", str(stages)] if stages > 1 else []
    flags += ["--network-spaces", networks.words] if networks is not None else []
    arguments = ["--steps", str(wish.steps)]
    return DemoTraining(
        own,
        "demo-diagnosed",
        [*flags, str(script), *arguments],
        environment={VARIABLE: json.dumps(played)},
        networks=networks,
    )


def _addresses(folder: Path, fault: PlannedFault) -> Path:
    """The file to which the rank of a fault writes the addresses of its tensors, if that is planted."""
    return folder / f"addresses.{fault.rank}.json"


async def _run(
    training: DemoTraining,
    screen: Screen,
    planted: Sequence[PlantedFault],
    seen: SeenFindings,
    nodes: dict[int, str],
    *,
    wish: DemoOptions,
) -> None:
    """Run to the end, with the faults. Fills in `planted`, `seen` and the node of each rank."""
    training.start()
    with contextlib.ExitStack() as duties:
        tasks = [
            asyncio.create_task(training.watch()),
            asyncio.create_task(draw(training, screen, "diagnosed")),
            asyncio.create_task(_ask(training, screen, seen, nodes)),
            *(asyncio.create_task(_plant(training, screen, fault, duties)) for fault in planted),
        ]
        try:
            await _watched(training, planted, tasks, wish)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    if training.ended() not in (None, OK):
        raise CliError(f"the run ended with code {training.ended()}{logged(training)}")
    late = [str(fault.planned) for fault in planted if fault.planted_at_s is None]
    if late:
        raise CliError(f"the run ended before it was planted: {'; '.join(late)}: give it more --steps")


async def _watched(
    training: DemoTraining,
    planted: Sequence[PlantedFault],
    tasks: Sequence[asyncio.Task[None]],
    wish: DemoOptions,
) -> None:
    """Return when the run has ended, or has been watched for long enough after the last fault. Raises what
    one of the tasks raised."""
    while training.ended() is None:
        await asyncio.sleep(END_LOOK_S)
        for task in tasks:
            if task.done():
                task.result()
        times = [fault.planted_at_s for fault in planted if fault.planted_at_s is not None]
        spent_s = time.time() - max(times) if len(times) == len(planted) else 0.0
        step = min(training.progress().values(), default=0)
        if spent_s > wish.watch_most_s or (spent_s > wish.watch_s and may_show(wish.faults, step)):
            return


async def _plant(
    training: DemoTraining, screen: Screen, fault: PlantedFault, duties: contextlib.ExitStack
) -> None:
    """Wait until the rank is in the step of its fault, and begin what the script does not play itself."""
    planned = fault.planned
    pid = await _reached(training, planned)
    if planned.kind == "slow":
        peers = [seat.pid for seat in training.seats.values() if seat.pid != pid]
        try:
            duties.callback(DutyCycle(pid, peers, planned.factor, planned.seed).end)
        except OSError as error:
            raise CliError(f"{planned}: process {pid} cannot be slowed: {error}") from error
    if planned.kind == "slow-link":
        assert training.networks is not None
        await asyncio.to_thread(training.networks.slow, training.seats[planned.rank].node, planned.factor)
    if planned.kind == "noisy-neighbour":
        duties.callback(NoisyNeighbour(planned.seed).end)
    what = await _flipped(_addresses(training.folder, planned), planned) if planned.kind == "bitflip" else ""
    fault.planted_at_s = time.time()
    screen.say(f"planted: {planned}{what}", "bold red")


async def _flipped(addresses: Path, fault: PlannedFault) -> str:
    """Flip a bit of the rank's memory as soon as it has written where its tensors are. Returns which."""
    while True:
        if name := _flip_where_told(addresses, fault):
            return f": {name}"
        await asyncio.sleep(LOOK_S)


def _flip_where_told(addresses: Path, fault: PlannedFault) -> str:
    """Flip a bit of one of the tensors whose addresses are in this file. Returns its name; "": no file."""
    if not addresses.exists():
        return ""
    given = json.loads(addresses.read_text())
    bit = drawn_bit(given["tensors"], fault.seed)
    try:
        flip_bit(given["pid"], bit.address, bit.number)
    except OSError as error:
        raise CliError(f"{fault}: the memory of process {given['pid']} cannot be written: {error}") from error
    return bit.tensor


async def _reached(training: DemoTraining, fault: PlannedFault) -> int:
    """Wait until the rank of a fault (or any rank) is in its step. Returns the rank's process."""
    while True:
        steps = training.progress()
        ranks = [fault.rank] if fault.of.has_rank else list(steps)
        for rank in ranks:
            if steps.get(rank, -1) >= fault.at:
                return training.seats[rank].pid
        await asyncio.sleep(LOOK_S)


async def _ask(training: DemoTraining, screen: Screen, seen: SeenFindings, nodes: dict[int, str]) -> None:
    """Ask what is found, again and again, keep the answers in a file, and show what is new."""
    while True:
        address = training.card().get("coordinator")
        if address:
            async with AdminClient(address, timeout_s=2.0, access=plain()) as admin:
                with contextlib.suppress(CliError):  # away, or the job is not submitted yet
                    while True:
                        answer = await admin.diagnose(training.name)
                        with (training.folder / "answers.jsonl").open("a") as answers:
                            answers.write(json.dumps(answer) + "\n")
                        for row in seen.take(answer):
                            screen.say(f"  {row['severity']}: {row['kind']}: {row['reason']}", "yellow")
                        nodes.update({seat.rank: seat.node for seat in training.seats.values()})
                        await asyncio.sleep(ASK_S)
        await asyncio.sleep(ASK_S)
