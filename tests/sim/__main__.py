"""Run simulated schedules of failures: one in detail, or thousands in short.

`python -m tests.sim`. Without flags for the shape of a schedule it is a swarm: each seed has its own size,
faults and settings."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from time import perf_counter

from tests.sim.faults import BY_NAME, EVERY, FAULTS
from tests.sim.plants import PLANTS
from tests.sim.report import Outcome, found, summary
from tests.sim.swarm import swarm
from tests.sim.world import Options, World

PLANTED_MAX = 5000
SHAPE = ("steps", "fault_s", "gap_s", "faults", "elastic", "checks")
"""The flags that give a schedule a shape of one's own, instead of the swarm's."""


def live(options: Options) -> Outcome:
    """Run one schedule."""
    world = World(options)
    error = digest = ""
    try:
        digest = world.run()
    except Exception as failure:  # a crash of the core fails this seed, and does not end the run
        where = traceback.extract_tb(failure.__traceback__)[-1]
        error = f"{type(failure).__name__}: {failure} ({where.name})"
    return Outcome(
        options.seed, digest, world.clock.now, world.events, world.safety.forms, error, options.nodes,
        world.struck, world.safety.tiers, world.parked,
    )  # fmt: skip


def replay_command(options: Options) -> str:
    """The command that runs the same schedule again, in detail."""
    command = f"python -m tests.sim --seed {options.seed} --nodes {options.nodes}"
    if options.plant:
        command += f" --plant {options.plant} --schedules 1"
    if options.often:
        command += " --often"
    if options.relays:
        command += " --relays"
    if options.moods:
        return command
    if options.elastic:
        command += " --elastic"
    if options.tails:
        command += " --tails"
    if options.checks:
        command += f" --checks {options.checks}"
    command += " --faults " + ",".join(options.faults)
    for name in ("fault_s", "gap_s", "steps"):
        if getattr(options, name) != getattr(Options, name):
            command += f" --{name.replace('_', '-')} {getattr(options, name)}"
    return command


def many(options: list[Options], workers: int) -> list[Outcome]:
    """Run many schedules, spread over some processes."""
    if workers < 2:
        return [live(each) for each in options]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(live, options, chunksize=16))


def schedule(seed: int, args: argparse.Namespace) -> Options:
    """The options for one seed: the swarm's; with flags, one to three nodes unless given (two to four,
    elastic)."""
    if not any(getattr(args, name) for name in SHAPE):
        return replace(swarm(seed, args.nodes, args.plant), often=args.often, relays=args.relays)
    return Options(
        seed=seed,
        nodes=args.nodes or 1 + args.elastic + seed % 3,
        fault_s=args.fault_s or Options.fault_s,
        gap_s=args.gap_s or Options.gap_s,
        steps=args.steps or Options.steps,
        tails=args.tails,
        often=args.often,
        relays=args.relays,
        checks=args.checks,
        plant=args.plant,
        faults=tuple(args.faults.split(",")) if args.faults else tuple(FAULTS),
        elastic=args.elastic,
    )


def digest_of(outcomes: list[Outcome]) -> str:
    """One digest over all outcomes."""
    whole = hashlib.blake2b(digest_size=16)
    for outcome in outcomes:
        whole.update(f"{outcome.seed} {outcome.digest} {outcome.error}".encode())
    return whole.hexdigest()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    made.add_argument("--seed", type=int, help="live through this one, in detail (or start from it)")
    made.add_argument("--schedules", type=int, default=0, help="how many seeds, one after another")
    made.add_argument("--nodes", type=int, default=None, help="nodes of the job (default: by seed)")
    made.add_argument("--steps", type=int, default=None, help="steps of the job")
    made.add_argument("--fault-s", type=float, default=None, help="virtual s of faults")
    made.add_argument("--gap-s", type=float, default=None, help="mean virtual s between faults")
    made.add_argument("--faults", default="", help=f"comma separated, or every: {', '.join(EVERY | BY_NAME)}")
    made.add_argument(
        "--plant", default="", choices=("", *PLANTS, "all"), help="put this bug in: is it found?"
    )
    made.add_argument("--elastic", action="store_true", help="the job may shrink and grow")
    made.add_argument("--tails", action="store_true", help="what steps do behind their optimizer counts")
    made.add_argument("--often", action="store_true", help="a snapshot after every step, as ranks agree")
    made.add_argument("--relays", action="store_true", help="heartbeats go through other agents")
    made.add_argument("--checks", default="", choices=("", "report", "act"), help="of nodes, before seating")
    made.add_argument("--workers", type=int, default=2, help="processes for --schedules")
    made.add_argument("--json", action="store_true", help="of --schedules or --plant: one JSON object")
    return made


def main(argv: list[str] | None = None) -> int:
    """Run. Returns 0 when every promise held, 1 otherwise."""
    args = parser().parse_args(argv)
    if args.faults == "every":
        args.faults = ",".join(EVERY)
    unknown = [name for name in args.faults.split(",") if name and name not in EVERY | BY_NAME]
    if unknown:
        parser().error(f"no fault is called {unknown[0]}; there are {', '.join(EVERY | BY_NAME)}")
    if args.plant:
        return _found(args)
    if not args.schedules:
        return _one(schedule(args.seed or 0, args))
    first = args.seed or 0
    options = [schedule(seed, args) for seed in range(first, first + args.schedules)]
    start = perf_counter()
    outcomes = many(options, args.workers)
    spent_s = perf_counter() - start
    bad = [(o, outcome) for o, outcome in zip(options, outcomes, strict=True) if outcome.error]
    failed = [{"seed": o.seed, "error": o.error, "replay": replay_command(each)} for each, o in bad]
    told = {
        **summary(outcomes),
        "failures": failed,
        "digest": digest_of(outcomes),
        "seconds": round(spent_s, 1),
    }
    if args.json:
        print(json.dumps(told, indent=2))
        return 1 if bad else 0
    for each in failed[:20]:
        print(f"seed {each['seed']}: {each['error']}\n    replay: {each['replay']}")
    print(
        f"{told['schedules']} schedules, {told['events']} events, {told['virtual_hours']} virtual hours, "
        f"{told['generations']} generations formed, {told['failed']} failed"
    )
    print(f"digest {told['digest']}")
    print(f"{spent_s:.1f} s", file=sys.stderr)
    return 1 if bad else 0


def _found(args: argparse.Namespace) -> int:
    """Run schedules until each planted bug shows. Returns 0 when all do."""
    plants = PLANTS if args.plant == "all" else (args.plant,)
    told = {plant: _hunted(plant, args) for plant in plants}
    if args.json:
        print(json.dumps({"plants": told}, indent=2))
    for plant, each in () if args.json else told.items():
        found_by = f"found by schedule {each['schedules']}, seed {each['seed']}: {each['error']}"
        words = found_by if each["found"] else f"not found by {each['schedules']} schedules"
        print(f"the planted bug ({plant}) is {words}")
    return 0 if all(each["found"] for each in told.values()) else 1


def _hunted(plant: str, args: argparse.Namespace) -> dict[str, object]:
    args.plant = plant
    most, first = args.schedules or PLANTED_MAX, args.seed or 0
    return found((live(schedule(seed, args)) for seed in range(first, first + most)), most)


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
