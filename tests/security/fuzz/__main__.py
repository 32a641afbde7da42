"""`python -m tests.security.fuzz --messages N --seed S [--target T]`: N messages of each target, as JSON.

With `--wire` over a real socket to a real server instead, N to each method."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import sys

from tests.security.fuzz import wire
from tests.security.fuzz.running import run
from tests.security.fuzz.targets import TARGETS


def main() -> int:
    """Exit code 1 when something crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), default=[])
    parser.add_argument("--wire", action="store_true")
    values = parser.parse_args()
    logging.disable()
    if values.wire:
        found = asyncio.run(wire.run(values.messages, values.seed))
        print(json.dumps(found))
        return int(not found["alive"])
    failed = False
    for name in values.target or TARGETS:
        report = run(name, values.messages, values.seed)
        failed = failed or bool(report.crashes)
        told = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
        print(json.dumps({"target": name} | told), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
