"""Measure what comparing replicas costs: `python -m benchmarks.replica_checks`.

The small GPT of the demo takes steps on the CPU; after each of them its whole state (parameters and AdamW) is
summed up once, as `--check-replicas-every 1` does, and so are its gradients. Both are CPU time of one thread,
in turns, in one process: their ratio, paired step by step, divided by N, is the cost of
`--check-replicas-every N`. The exchange of one row of numbers between ranks is not in it: it is one
all_gather of some hundred bytes."""

from __future__ import annotations

import statistics
import time

import torch

from holdfast.agreement.proof import Proof
from holdfast.examples.train_gpt import GPT
from holdfast.snapshots import plan
from holdfast.state import sums
from holdfast.state.tracked import TrackedState

SHAPES = ((4, 160, 16), (6, 384, 32))
"""Layers, width and sequences of 64 bytes in a step."""
STEPS, WARM = 24, 4
EVERY = (10, 100)


def main() -> None:
    """Print one line for each model."""
    torch.set_num_threads(1)
    print(
        f"{'MiB':>7} {'step ms':>8} {'sum ms':>7} {'GiB/s':>6} " + " ".join(f"{f'N={n}':>7}" for n in EVERY)
    )
    for layers, width, batch in SHAPES:
        size, steps_s, sums_s = _times(layers, width, batch)
        ratio = statistics.median(sum_s / step_s for step_s, sum_s in zip(steps_s, sums_s, strict=True))
        step_s, sum_s = statistics.median(steps_s), statistics.median(sums_s)
        shares = " ".join(f"{ratio / n:>7.2%}" for n in EVERY)
        rate = size / sum_s / (1 << 30)
        print(f"{size / (1 << 20):>7.1f} {step_s * 1e3:>8.1f} {sum_s * 1e3:>7.2f} {rate:>6.2f} {shares}")


def _times(layers: int, width: int, batch: int) -> tuple[int, list[float], list[float]]:
    """Bytes of the state, and the CPU time (s) of each step and of each sum after it."""
    torch.manual_seed(0)
    model = GPT(layers, width, 4, 64, 0.1)
    optimizer = torch.optim.AdamW(model.parameters())
    tracked = TrackedState()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    proof, found, times = Proof(tracked), None, []
    for _ in range(STEPS):
        begun = time.thread_time()
        optimizer.zero_grad()
        text = torch.randint(256, (batch, 65))
        scores = model(text[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
        torch.autograd.backward(loss)
        summing = time.thread_time()
        gradients = sums.each([each.grad for each in model.parameters() if each.grad is not None])
        stepping = time.thread_time()
        optimizer.step()
        middle = time.thread_time()
        found, _ = plan.current(found, tracked)
        proof.sums(found)
        sums.joined([value for each in gradients for value in each.tolist()])
        of_gradients = stepping - summing
        times.append((middle - begun - of_gradients, time.thread_time() - middle + of_gradients))
    assert found is not None
    size = sum(tensor.nbytes for tensor in found.tensors)
    return size, [step for step, _ in times[WARM:]], [summed for _, summed in times[WARM:]]


if __name__ == "__main__":
    main()
