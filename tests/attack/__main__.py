"""Attack a real coordinator and an agent's peer port over real mTLS, and report what held.

    python -m tests.attack --json

Every method is called by every kind of caller without the right to it, and every number of every message is
set to impossible values. Each must be refused by name, Status must still answer, and etcd must be unchanged.
Methods and numbers are taken from the contract: a new one without a row makes the attack fail. The last line
is one JSON object; the exit code is 1 when a row does not hold."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from tests.attack import calls, numbers
from tests.attack.stage import Stage

PARTS = {"calls": calls.attack, "numbers": numbers.attack}


async def attack(parts: list[str], say: bool) -> dict[str, Any]:
    """Run these parts: the number of rows, and those that do not hold."""
    rows: list[dict[str, Any]] = []
    async with Stage() as stage:
        for part in parts:
            async for row in PARTS[part](stage):
                rows.append(row)
                if say and row["wrong"]:
                    print(f"{row['row']}: {'; '.join(row['wrong'])}", file=sys.stderr, flush=True)
    return judged(rows)


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The number of rows and values, and what does not hold."""
    values = sum(len(row.get("values", ())) for row in rows)
    return {"rows": len(rows), "values": values, "failed": [row for row in rows if row["wrong"]]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    args = parser.parse_args()
    found = asyncio.run(attack([args.only] if args.only else list(PARTS), not args.json))
    if args.json:
        print(json.dumps(found))
    else:
        print(f"{found['rows']} rows, {found['values']} values: {len(found['failed'])} do not hold")
    sys.exit(bool(found["failed"]))


if __name__ == "__main__":
    main()
