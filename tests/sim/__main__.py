"""`python -m tests.sim`: one schedule in detail, or thousands in short."""

from __future__ import annotations

import argparse
import hashlib
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter

from tests.sim.faults import EVERY, FAULTS
from tests.sim.plants import PLANTS
from tests.sim.world import Options, World

PLANTED_MAX = 5000


@dataclass(frozen=True)
class Outcome:
    """How one schedule ended. `error` is "" when all promises held."""

    seed: int
    digest: str
    virtual_s: float
    events: int
    forms: int
    error: str = ""


def live(options: Options) -> Outcome:
    """One schedule."""
    world = World(options)
    error = digest = ""
    try:
        digest = world.run()
    except AssertionError as failure:
        where = traceback.extract_tb(failure.__traceback__)[-1]
        error = f"{type(failure).__name__}: {failure} ({where.name})"
    return Outcome(options.seed, digest, world.clock.now, world.events, world.safety.forms, error)


def replay_command(options: Options) -> str:
    """The command that lives through the same schedule again, in detail."""
    command = f"python -m tests.sim --seed {options.seed} --nodes {options.nodes}"
    if options.elastic:
        command += " --elastic"
    if options.faults != tuple(FAULTS):
        command += " --faults " + ",".join(options.faults)
    for name in ("fault_s", "gap_s", "steps"):
        if getattr(options, name) != getattr(Options, name):
            command += f" --{name.replace('_', '-')} {getattr(options, name)}"
    return command


def many(options: list[Options], workers: int) -> list[Outcome]:
    """Many schedules, over some processes."""
    if workers < 2:
        return [live(each) for each in options]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(live, options, chunksize=16))


def schedule(seed: int, nodes: int | None, args: argparse.Namespace) -> Options:
    """The options of one seed: without a wish, one to three nodes."""
    return Options(
        seed=seed,
        nodes=nodes or 1 + seed % 3,
        fault_s=args.fault_s,
        gap_s=args.gap_s,
        steps=args.steps,
        plant=args.plant,
        faults=tuple(args.faults.split(",")),
        elastic=args.elastic,
    )


def digest_of(outcomes: list[Outcome]) -> str:
    """One digest over all."""
    whole = hashlib.blake2b(digest_size=16)
    for outcome in outcomes:
        whole.update(f"{outcome.seed} {outcome.digest} {outcome.error}".encode())
    return whole.hexdigest()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    made.add_argument("--seed", type=int, help="live through this one, in detail (or start from it)")
    made.add_argument("--schedules", type=int, default=0, help="how many seeds, one after another")
    made.add_argument("--nodes", type=int, default=None, help="nodes of the job (default: by seed, 1-3)")
    made.add_argument("--steps", type=int, default=Options.steps, help="steps of the job")
    made.add_argument("--fault-s", type=float, default=Options.fault_s, help="virtual s of faults")
    made.add_argument("--gap-s", type=float, default=Options.gap_s, help="mean virtual s between faults")
    made.add_argument("--faults", default=",".join(FAULTS), help=f"comma separated: {', '.join(FAULTS)}")
    made.add_argument("--plant", default="", choices=("", *PLANTS), help="put this bug in: is it found?")
    made.add_argument("--elastic", action="store_true", help="the job may shrink and grow")
    made.add_argument("--workers", type=int, default=2, help="processes for --schedules")
    return made


def main(argv: list[str] | None = None) -> int:
    """Returns 0 when every promise held, 1 otherwise."""
    args = parser().parse_args(argv)
    if args.faults == "every":
        args.faults = ",".join(EVERY)
    unknown = [name for name in args.faults.split(",") if name not in EVERY]
    if unknown:
        parser().error(f"no fault is called {unknown[0]}; there are {', '.join(EVERY)}")
    if args.plant:
        return _found(args)
    if not args.schedules:
        return _one(schedule(args.seed or 0, args.nodes, args))
    first = args.seed or 0
    options = [schedule(seed, args.nodes, args) for seed in range(first, first + args.schedules)]
    start = perf_counter()
    outcomes = many(options, args.workers)
    bad = [(o, outcome) for o, outcome in zip(options, outcomes, strict=True) if outcome.error]
    for each, outcome in bad[:20]:
        print(f"seed {outcome.seed}: {outcome.error}\n    replay: {replay_command(each)}")
    spent = perf_counter() - start
    print(
        f"{len(outcomes)} schedules, {sum(o.events for o in outcomes)} events, "
        f"{sum(o.virtual_s for o in outcomes) / 3600:.1f} virtual hours, "
        f"{sum(o.forms for o in outcomes)} generations formed, {len(bad)} failed"
    )
    print(f"digest {digest_of(outcomes)}")
    print(f"{spent:.1f} s", file=sys.stderr)
    return 1 if bad else 0


def _found(args: argparse.Namespace) -> int:
    """Live through schedules until the planted bug shows. Returns 0 when it does."""
    most, first = args.schedules or PLANTED_MAX, args.seed or 0
    for count, seed in enumerate(range(first, first + most), 1):
        outcome = live(schedule(seed, args.nodes, args))
        if outcome.error:
            print(
                f"the planted bug ({args.plant}) is found by schedule {count}, seed {seed}: {outcome.error}"
            )
            return 0
    print(f"the planted bug ({args.plant}) is not found by {most} schedules")
    return 1


def _one(options: Options) -> int:
    world = World(replace(options, verbose=True))
    try:
        digest = world.run()
    except AssertionError:
        traceback.print_exc()
        print(f"replay: {replay_command(options)}")
        return 1
    print(
        f"finished at {world.clock.now:.1f} virtual s after {world.events} events, "
        f"{world.safety.forms} generations formed, checkpoints {sorted(world.safety.committed.values())}"
    )
    print(f"digest {digest}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
