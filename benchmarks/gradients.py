"""Measure what `session.watch` costs: `python -m benchmarks.gradients`.

Steps of about 20 ms run in pairs: a block of steps that is watched beside one that is not, in turns of order.
The cost is the median over the pairs of the ratio of their times: CPU time of the training thread, which
other programs do not add to, and whatever slows the machine slows both. With a page, the phases of steps are
timed as under an agent, in both blocks or in one (`--everything`: what the whole SDK costs, against a loop
without it)."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from holdfast import Session
from holdfast.ipc.progress_page import ProgressPage

STEPS, PAIRS, WIDTH, LAYERS = 100, 12, 256, 12


def main() -> None:
    """Print one line for each interval."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--everything", action="store_true", help="against a loop without the SDK")
    parser.add_argument("--on-nan", default="report")
    wish = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        ProgressPage.create(Path(folder, "m.board"))
        os.environ["HOLDFAST_BOARD"] = f"{folder}/m.board"
        print(f"{'every':>6} {'step ms':>8} {'ratio':>8} {'middle half':>18}")
        for every in (1, 10, 50, 100):
            plain_s, ratios = _pairs(every, wish.on_nan, everything=wish.everything)
            low, middle, high = statistics.quantiles(ratios, n=4)
            step_ms = 1e3 * statistics.median(plain_s) / STEPS
            print(f"{every:>6} {step_ms:>8.2f} {middle:>8.4f} {low:>9.4f}{high:>9.4f}", flush=True)


def _pairs(every: int, on_nan: str, *, everything: bool) -> tuple[list[float], list[float]]:
    """Durations of plain blocks (s), and the ratio of each pair."""
    session = Session(seed=None)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    session.track(model=model, optimizer=optimizer)
    rows, watch = torch.randn(256, WIDTH), session.runtime.gradients

    def body() -> torch.Tensor:
        loss: torch.Tensor = model(rows).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss

    @session.elastic
    def train(*, on: bool) -> float:
        watch._model = None
        if on:
            session.watch(model, every=every, on_nan=on_nan)
        for step in session.steps(STEPS + 2):
            if step == 2:
                began_s = time.thread_time()
            session.report(loss=body())
            if step % 50 == 0:
                watch.read(wait=False)  # as the agent client's thread does
        return time.thread_time() - began_s

    def bare() -> float:
        began_s = time.thread_time()
        for _ in range(STEPS):
            body()
        return time.thread_time() - began_s

    times: list[list[float]] = [[], []]
    for pair in range(PAIRS):
        for on in (True, False) if pair % 2 else (False, True):
            measure: Any = bare if everything and not on else lambda on=on: train(on=on)
            times[on].append(measure())
    session.close()
    return times[0], [watched / plain for plain, watched in zip(*times, strict=True)]


if __name__ == "__main__":
    main()
