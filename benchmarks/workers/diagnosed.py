"""Measure what diagnosis costs a training step: one rank under Holdfast, DDP over gloo.

`python diagnosed.py ROUNDS STEPS STEP_MS`. Every iteration takes a plain step (torch alone, a model and an
optimizer of its own) and then the same step with the SDK: both meet the machine in the same state. Blocks of
STEPS iterations differ in which parts of diagnosis are on; between two blocks lies one iteration that is not
measured, in which parts are turned on and off. `LOGS` comes from the environment. Lines: `block` with the CPU
time (s, of the training thread) of each plain and each SDK step, what diagnosis did in the latter, and the
seconds per step by all clocks; `done` with what is measured once.

`python diagnosed.py flight CALLS` measures a collective instead, without Holdfast: see `flight`."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.log import EventLog
from holdfast import Session
from holdfast.anatomy import policy
from holdfast.examples.train_gpt import GPT

LAYERS, WIDTH, HEADS, LENGTH, SAMPLES = 4, 160, 4, 64, 4096
WARM_STEPS, IDLE_S = 20, 4.0
REPLICAS_EVERY = 100
PARTS = ("anatomy", "loss", "gradients", "slices", "replicas")
KINDS = ("sdk", *PARTS, "everything")
"""What is on in a block, besides the SDK itself. `slices`: a part of the state is compared every 100 steps,
as by default; `replicas`: all of it is, which replaces that, so `everything` has no slices."""
CLOCKS = (time.thread_time, time.process_time, time.perf_counter)


class Trainee:
    """A model with its optimizer, and one step of it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model: torch.nn.Module = GPT(LAYERS, WIDTH, HEADS, LENGTH, 0.1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self, model: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
        """One step; `model`: wrapped for this generation. Returns the loss."""
        self.optimizer.zero_grad()
        scores = model(text[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
        torch.autograd.backward(loss)
        self.optimizer.step()
        return loss


class Switches:
    """Turns parts of diagnosis on and off within a loop over steps."""

    def __init__(self, session: Session, model: torch.nn.Module) -> None:
        self._session, self._model = session, model
        self._recorder = session.runtime.state.times
        self._page, self._environment = self._recorder._page, session.runtime.state.environment
        self.loss = False

    def set(self, kind: str) -> None:
        """Turn on what this kind of block has, and everything else off."""
        on = {kind} if kind != "everything" else set(PARTS) - {"slices"}
        self._anatomy(on="anatomy" in on)
        self.loss = "loss" in on
        self._session.runtime.gradients._model = None
        if "gradients" in on:
            self._session.watch(self._model)
        self._session.runtime.state.environment = dataclasses.replace(
            self._environment,
            check_replicas_every=REPLICAS_EVERY if "replicas" in on else 0,
            snapshot_every=0 if "slices" in on else self._environment.snapshot_every,
        )

    def does(self) -> str:
        """What diagnosis does in the step that has begun, of what it does now and then: a letter each."""
        state, runtime = self._session.runtime.state, self._session.runtime
        every = state.environment.check_replicas_every or state.environment.snapshot_every or REPLICAS_EVERY
        return (
            ("a" if state.times.measuring else "")
            + ("g" if runtime.gradients._measurement is not None else "")
            + ("c" if (state.completed + 1) % every == 0 else "")
        )

    def _anatomy(self, *, on: bool) -> None:
        recorder, calls = self._recorder, self._session.runtime.calls
        recorder.stop()
        recorder._page = self._page if on else None
        if on:
            calls.watch(self._model)
            recorder.begin()
            recorder._measured = policy.WARM_STEPS  # the first steps of a loop, of which there are few
        else:
            calls.close()


def train(session: Session, rounds: int, steps: int, step_ms: float) -> None:
    """Train and measure, in one elastic function."""
    ours, plain = Trainee(), Trainee()
    data = torch.randint(256, (SAMPLES, LENGTH + 1))
    session.track(model=ours.model, optimizer=ours.optimizer)

    @session.elastic
    def run() -> None:
        log.always["rank"] = session.rank
        ours_ddp, plain_ddp = session.ddp(ours.model), DistributedDataParallel(plain.model)
        rows = _rows(plain, plain_ddp, data, step_ms)
        switches, spent = Switches(session, ours_ddp), Spent()
        first = time.thread_time(), _collectives()
        for number in session.steps(WARM_STEPS + rounds * len(KINDS) * (steps + 1) + 1):
            spent.sdk_ends()
            block, inside = divmod(number - WARM_STEPS, steps + 1)
            if number >= WARM_STEPS and inside == 0:
                spent.show()
                if block == rounds * len(KINDS):
                    break
                spent = Spent(KINDS[(block + block // len(KINDS)) % len(KINDS)])
                switches.set(spent.kind)
            begun = _now()
            chosen = torch.randint(SAMPLES, (rows,))
            plain.step(plain_ddp, data[chosen])
            if inside:
                spent.plain_ends(begun, switches.does())
            batch = data[session.sample_indices(SAMPLES, global_batch=rows * session.world_size, seed=0)]
            loss = ours.step(ours_ddp, batch)
            if switches.loss:
                session.report(loss=loss)
                session.check(loss)
                session.count(tokens=rows * LENGTH)
        log("done", rows=rows, **_once(session, _collectives() - first[1], number))

    run()


class Spent:
    """What the steps of one block took."""

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        self._plain: list[list[float]] = []  # by iteration and clock
        self._sdk: list[list[float]] = []
        self._did: list[str] = []  # what diagnosis did in the SDK's step
        self._middle: list[float] = []  # when the plain step of this iteration has ended; []: not measured

    def plain_ends(self, begun: list[float], did: str) -> None:
        """The plain step has ended."""
        self._middle = _now()
        self._plain.append([end - start for start, end in zip(begun, self._middle, strict=True)])
        self._did.append(did)

    def sdk_ends(self) -> None:
        """The boundary after the SDK's step is over."""
        if self._middle:
            self._sdk.append([end - start for start, end in zip(self._middle, _now(), strict=True)])
        self._middle = []

    def show(self) -> None:
        """Log the block."""
        if self.kind:
            plain, sdk = ([each[0] for each in side] for side in (self._plain, self._sdk))
            means = {
                name: [sum(clock) / len(side) for clock in zip(*side, strict=True)]
                for name, side in (("plain_mean_s", self._plain), ("sdk_mean_s", self._sdk))
            }
            log("block", kind=self.kind, plain_s=plain, sdk_s=sdk, did=self._did, **means)


def _now() -> list[float]:
    return [clock() for clock in CLOCKS]


def _rows(trainee: Trainee, model: torch.nn.Module, data: torch.Tensor, step_ms: float) -> int:
    """The rows of a batch with which a step takes about so much CPU time, the same on all ranks."""
    took: list[tuple[int, float]] = []
    for rows in (2, 10):
        times = []
        for _ in range(12):
            begun = time.thread_time()
            trainee.step(model, data[:rows])
            times.append(time.thread_time() - begun)
        took.append((rows, sorted(times)[len(times) // 4] * 1e3))
    (few, few_ms), (many, many_ms) = took
    found = torch.tensor([few + (step_ms - few_ms) * (many - few) / (many_ms - few_ms)])
    dist.all_reduce(found)
    return max(1, round(float(found) / dist.get_world_size()))


def _collectives() -> int:
    """How many collectives the default group has entered."""
    group: Any = dist.group.WORLD
    return int(group._get_sequence_number_for_group())


def _once(session: Session, collectives: int, iterations: int) -> dict[str, float]:
    """What is measured once: collectives of one step; CPU time of the other threads in a second without
    steps; the seconds in which the profiler finds at a step's two ends that nobody asks."""
    begun = time.process_time(), time.perf_counter()
    time.sleep(IDLE_S)
    threads = (time.process_time() - begun[0]) / (time.perf_counter() - begun[1])
    profiler, times = session.runtime.profiler, 20_000
    start = time.thread_time()
    for _ in range(times):
        profiler.begin_step(0, 0)
        profiler.end_step()
    profile_s = (time.thread_time() - start) / times
    return {"collectives": collectives / iterations / 2, "threads": threads, "profile_s": profile_s}


def flight(calls: int) -> None:
    """CPU time of one small all-reduce, in a group of one rank: with torch's flight recorder or without it,
    as TORCH_FR_BUFFER_SIZE says."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        tensor, times = torch.zeros(1024), []
        for _ in range(20):
            begun = time.process_time()
            for _ in range(calls):
                dist.all_reduce(tensor)
            times.append((time.process_time() - begun) / calls)
        dist.destroy_process_group()
    log("flight", call_s=sorted(times)[len(times) // 4])


log = EventLog(Path(os.environ["LOGS"]), rank=0)
torch.set_num_threads(1)
if sys.argv[1] == "flight":
    flight(int(sys.argv[2]))
else:
    train(Session(), int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
