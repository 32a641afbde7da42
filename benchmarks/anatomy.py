"""Measure what timing the phases of steps costs: `python -m benchmarks.anatomy`.

Tiny steps run in chunks, in turns without and with the recorder. The cost is the difference in time per step:
of the fastest hundredth of the steps of each kind (plain, measured, not measured), because other work on the
machine only makes steps longer. `measured` gives the constants of `holdfast.anatomy.policy`; `on` is the mean
over measured and other steps, which is what a script pays.

Then the same with steps of about 20 ms, everything on: pairs of chunks without and with the recorder, in
turns of order; the ratio of the process's CPU time per step within each pair, and the middle half of the
pairs."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch

from holdfast import Session
from holdfast.ipc.progress_page import ProgressPage

STEPS, TURNS, CALLS = 500, 16, (1, 4, 16)
LONG_STEPS, PAIRS, LONG_MS = 12, 60, 20.0
PLAIN, LEFT_OUT, MEASURED = range(3)


def main() -> None:
    """Print one line for each number of module calls per step."""
    torch.set_num_threads(1)
    print("us per step")
    print(f"{'calls':>5} {'plain':>9} {'left out':>9} {'measured':>9} {'share':>7} {'on':>7}")
    with tempfile.TemporaryDirectory() as folder:
        ProgressPage.create(Path(folder, "m.board"))
        os.environ["HOLDFAST_BOARD"] = f"{folder}/m.board"
        for calls in CALLS:
            found = _times(calls)
            plain, *rest = (sorted(times)[len(times) // 100] for times in found)
            left_out, measured = (each - plain for each in rest)
            share = len(found[MEASURED]) / (len(found[MEASURED]) + len(found[LEFT_OUT]))
            mean = share * measured + (1 - share) * left_out
            print(
                f"{calls:>5} {plain:>9.1f} {left_out:>9.1f} {measured:>9.1f} {share:>7.3f} {mean:>7.1f}",
                flush=True,
            )
        ratios = _ratios()
        low, middle, high = (ratios[len(ratios) * quarter // 4] for quarter in (1, 2, 3))
        print(f"with over without: {middle:.4f} (middle half: {low:.4f} to {high:.4f})")


def _ratios() -> list[float]:
    """CPU time per step with the recorder over that without, by pair, sorted: steps of about LONG_MS."""
    session = Session(seed=None)
    model = torch.nn.Linear(512, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    session.track(model=model, optimizer=optimizer)
    recorder = session.runtime.state.times
    page, spent = recorder._page, [list[float](), list[float]()]
    rows, times = torch.ones(256, 512), 1

    @session.elastic
    def train(on: bool) -> None:
        recorder._page = page if on else None
        begun = 0
        for step in session.steps(LONG_STEPS):
            if step == 2:
                begun = time.process_time_ns()
            for _ in range(times):
                model(rows).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.count(tokens=256)
        spent[on].append((time.process_time_ns() - begun) / (LONG_STEPS - 2) / 1e6)

    train(False)
    times, spent = max(1, round(LONG_MS / spent[0][0])), [list[float](), list[float]()]
    for pair in range(PAIRS):
        for on in (False, True) if pair % 2 else (True, False):
            train(on)
    session.close()
    print(f"steps of {sorted(spent[0])[PAIRS // 2]:.1f} ms with {times} module calls")
    return sorted(on_ms / off_ms for off_ms, on_ms in zip(*spent, strict=True))


def _times(calls: int) -> list[list[float]]:
    """Durations of steps in us, by kind."""
    session = Session(seed=None)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    session.track(model=model, optimizer=optimizer)
    rows, recorder = torch.ones(2, 4), session.runtime.state.times
    page, found = recorder._page, [list[float]() for _ in range(3)]

    @session.elastic
    def train(on: bool) -> None:
        recorder._page = page if on else None
        begun, kind = time.perf_counter_ns(), PLAIN
        for step in session.steps(STEPS):
            now = time.perf_counter_ns()
            if step > 10:
                found[kind].append((now - begun) / 1e3)
            begun, kind = now, (MEASURED if recorder.measuring else LEFT_OUT) if on else PLAIN
            for _ in range(calls):
                model(rows).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    for turn in range(2 * TURNS):
        train(bool(turn % 2))
    session.close()
    return found


if __name__ == "__main__":
    main()
