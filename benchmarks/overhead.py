"""Measure what all of diagnosis costs a training step: `python -m benchmarks.overhead`.

Two ranks under a real coordinator and agent take every step twice: as plain torch, and with the SDK
(`workers/diagnosed.py`). Blocks of steps turn the parts of diagnosis on one by one, then all together. The
cost is CPU time of the training thread, which other programs do not add to; process CPU time and wall time
are beside it. README.md explains each number."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from typing import TYPE_CHECKING, Any

from benchmarks import holdfast, log
from benchmarks.load import LoadMeter
from benchmarks.peers import WORKERS
from benchmarks.processes import Field
from benchmarks.report import Aim, middle_95, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS = ("anatomy", "loss", "gradients", "slices", "replicas")
KINDS = ("sdk", *PARTS, "everything")
RESAMPLES, STEP_S = 1000, 0.020
THREAD, PROCESS, WALL = range(3)
Blocks = dict[str, list[log.Row]]
Interval = tuple[float, float, float]
"""Low end, estimate, high end."""
AIMS = (
    Aim("everything below 2 % of a 20 ms step", "everything", None, 0.02),
    Aim("everything below 2 %, by process CPU time", "everything_process", None, 0.02),
)
LIMIT_S = 3600.0


def main() -> None:
    """Print a table, or with --json one object on the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=12, metavar="N", help="blocks of each kind (default: 12)"
    )
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="steps of a block (default: 100)")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="default: 2")
    parser.add_argument("--step-ms", type=float, default=STEP_S * 1e3, metavar="MS", help="default: 20")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    wish = parser.parse_args()
    if min(wish.rounds, wish.steps, wish.ranks) < 1 or wish.step_ms < 4 or wish.steps % 100:
        parser.error("give 1 round and rank or more, steps in hundreds, and 4 ms or more")
    load = LoadMeter()
    flight_s = _flight(max(2, wish.rounds // 3))
    blocks, once = _train(wish, load)
    load.sample()
    result = summary(blocks, once, flight_s) | {"rounds": wish.rounds, "load": load.result()}
    print(json.dumps(result) if wish.json else table(result))


def _train(wish: argparse.Namespace, load: LoadMeter) -> tuple[list[log.Row], list[log.Row]]:
    """The blocks of all ranks, and the last line of each rank."""
    words = (str(wish.rounds), str(wish.steps), str(wish.step_ms))
    cadence = ("--snapshot-every", "1000000", "--checkpoint-every", "1000000")
    with Field("overhead", grace_s=20) as field:
        ranks = ("--nproc-per-node", str(wish.ranks))
        holdfast.start(field, *ranks, *cadence, script="diagnosed.py", words=words)
        shown = 0

        def done() -> bool:
            nonlocal shown
            rows = field.rows()
            blocks = sum(row["event"] == "block" for row in rows)
            if blocks > shown:
                shown = blocks
                load.sample()
                print(f"{blocks} blocks measured", file=sys.stderr, flush=True)
            return bool(sum(row["event"] == "done" for row in rows) == wish.ranks)

        field.expect("end of the measurement", done, LIMIT_S)
        rows = field.rows()
    return [row for row in rows if row["event"] == "block"], [row for row in rows if row["event"] == "done"]


def _flight(rounds: int) -> float:
    """What torch's flight recorder adds to a collective, in s: with 64 records as the SDK has it, less
    without it."""
    with_s, without_s = list[float](), list[float]()
    with Field("flight") as field:
        for _ in range(rounds):
            for size, found in (("0", without_s), ("64", with_s)):
                env = {"LOGS": str(field.logs), "TORCH_FR_BUFFER_SIZE": size}
                process = field.start(sys.executable, str(WORKERS / "diagnosed.py"), "flight", "300", env=env)
                if process.wait(120):
                    raise RuntimeError(field.output.read_text(errors="replace")[-3000:])
                found.append(field.rows()[-1]["call_s"])
    return statistics.median(with_s) - statistics.median(without_s)


def summary(blocks: list[log.Row], once: list[log.Row], flight_s: float) -> dict[str, Any]:
    """All numbers. Shares are of the plain step, or of 20 ms for what is measured once."""
    by_kind = {kind: [row for row in blocks if row["kind"] == kind] for kind in KINDS}
    chance = random.Random(1)
    beside = flight_s * statistics.median(row["collectives"] for row in once) / STEP_S
    beside += statistics.median(row["threads"] for row in once)
    resampled = [_shares(_resampled(by_kind, chance)) for _ in range(RESAMPLES)]
    found: dict[str, Any] = {
        name: _interval(share, [each[name] for each in resampled]) for name, share in _shares(by_kind).items()
    }
    found["everything"] = tuple(each + beside for each in found["everything"])
    found["flight_records"] = flight_s * statistics.median(row["collectives"] for row in once) / STEP_S
    found["threads"] = statistics.median(row["threads"] for row in once)
    found["idle_profiler"] = statistics.median(row["profile_s"] for row in once) / STEP_S
    found["step_ms"] = 1e3 * _fastest([each for row in blocks for each in row["plain_s"]])
    return found


def _resampled(by_kind: Blocks, chance: random.Random) -> Blocks:
    return {kind: chance.choices(rows, k=len(rows)) for kind, rows in by_kind.items()}


def _shares(by_kind: Blocks) -> dict[str, float]:
    """What steps with the SDK took longer than plain ones, as a share of these; of parts: longer than with
    the SDK alone. By the fastest steps, and (`_process`, `_wall`) by the means of all."""
    found: dict[str, float] = {}
    for name, share in (("", _share), ("_process", _mean_share(PROCESS)), ("_wall", _mean_share(WALL))):
        shares = {kind: share(rows) for kind, rows in by_kind.items()}
        for kind in KINDS:
            less = shares["sdk"] if kind in PARTS else 0.0
            found[kind + name] = shares[kind] - less
    return found


def _share(blocks: list[log.Row]) -> float:
    """By the fastest steps of each kind (what diagnosis did in them), weighted by how many there are."""
    kinds: dict[str, list[float]] = {}
    for row in blocks:
        for did, sdk_s in zip(row["did"], row["sdk_s"], strict=True):
            kinds.setdefault(did, []).append(sdk_s)
    plain_s = _fastest([each for row in blocks for each in row["plain_s"]])
    sdk_s = sum(len(times) * _fastest(times) for times in kinds.values()) / sum(map(len, kinds.values()))
    return sdk_s / plain_s - 1.0


def _fastest(times: list[float]) -> float:
    """The time that a tenth of the steps does not exceed: what else runs only makes steps longer."""
    return sorted(times)[len(times) // 10]


def _mean_share(clock: int) -> Callable[[list[log.Row]], float]:
    def share(blocks: list[log.Row]) -> float:
        sdk, plain = (
            statistics.fmean(row[side][clock] for row in blocks) for side in ("sdk_mean_s", "plain_mean_s")
        )
        return sdk / plain - 1.0

    return share


def _interval(value: float, resampled: list[float]) -> Interval:
    """A 95 % interval by the bootstrap (percentiles)."""
    low, high = middle_95(resampled)
    return low, value, high


def table(result: dict[str, Any]) -> str:
    """One line for each part, then the aims."""
    lines = [f"steps of {result['step_ms']:.1f} ms of CPU time; shares in %, with a 95 % interval"]
    lines.append(f"{'':16} {'training thread':>24} {'process':>24} {'wall':>24}")
    for name in KINDS:
        cells = "".join(_cell(result[name + clock]) for clock in ("", "_process", "_wall"))
        lines.append(f"{name:16} {cells}")
    once = ("flight_records", "threads", "idle_profiler")
    lines += [f"{name:16} {100 * result[name]:>8.3f}" for name in once]
    aimed = {**result, **{aim.value: _estimate(result[aim.value]) for aim in AIMS}}
    lines += ["", *[verdict(aim, aimed) for aim in AIMS], ""]
    load = result["load"]
    lines.append(
        f"{result['rounds']} blocks of each kind and rank; load average {load['average_1min']}, "
        f"CPU pressure {load['cpu_pressure']}, {load['cpus']:.0f} CPUs"
    )
    return "\n".join(lines)


def _cell(found: Interval) -> str:
    low, middle, high = (100 * each for each in found)
    return f"{middle:>8.3f} ({low:.3f} to {high:.3f})".rjust(25)


def _estimate(found: Any) -> float:
    return float(found[1] if isinstance(found, tuple) else found)


if __name__ == "__main__":
    main()
