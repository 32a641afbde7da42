"""Count how often `holdfast doctor --logs` names the right rank, cause, line and restart in made-up logs.

`python -m benchmarks.diagnosis.failure_scores --seeds 30 --first 4000`: a table of
docs/diagnosis/accuracy.md."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.diagnosis.failure_logs import PLANTS, LogCase, planted_logs
from controlplane.cli.doctor import logs
from controlplane.cli.doctor.readers import log_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = ("cases", "rank", "undecided", "wrong rank", "cause", "line", "restart")


def answer(case: LogCase, folder: Path) -> dict[str, Any]:
    """What the doctor says of a case, whose files are written to this folder."""
    for name, body in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return logs.data(logs.diagnose(folder, log_folder.read(folder, argparse.Namespace())))


def score(case: LogCase, said: dict[str, Any]) -> Counter[str]:
    """Which parts of an answer are right."""
    first = said["first"] or {"rank": None, "cause": "", "file": None, "line": None}
    right = first["rank"] == case.rank or case.rank is None
    undecided = not right and first["rank"] is None
    place = case.place is None or (first["file"], first["line"]) == case.place
    return Counter({
        "cases": 1, "rank": int(right), "undecided": int(undecided),
        "wrong rank": int(not right and not undecided), "cause": int(first["cause"] in case.causes),
        "line": int(place), "restart": int(said["restart"] == case.restart),
    })  # fmt: skip


def wrong(plants: Iterable[str], seeds: Iterable[int]) -> Iterable[tuple[LogCase, dict[str, Any]]]:
    """The cases of which something is said wrongly."""
    for plant in plants:
        for seed in seeds:
            case = planted_logs(plant, seed)
            with tempfile.TemporaryDirectory() as folder:
                said = answer(case, Path(folder))
            counts = score(case, said)
            if not all(counts[name] for name in ("rank", "cause", "line", "restart")):
                yield case, said


def table(seeds: Iterable[int]) -> str:
    """The scores of every kind of case, as a table in Markdown."""
    lines = ["| planted | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    whole: Counter[str] = Counter()
    for plant in PLANTS:
        counts: Counter[str] = Counter()
        for seed in seeds:
            case = planted_logs(plant, seed)
            with tempfile.TemporaryDirectory() as folder:
                counts += score(case, answer(case, Path(folder)))
        whole += counts
        lines.append(f"| {plant} | " + " | ".join(str(counts[name]) for name in COLUMNS) + " |")
    return "\n".join([*lines, "| all | " + " | ".join(str(whole[name]) for name in COLUMNS) + " |"])


def main() -> None:
    """Print the table, or the cases that are wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="cases per kind (default: 10)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--wrong", action="store_true", help="print what is wrong in place of the table")
    values = parser.parse_args()
    seeds = range(values.first, values.first + values.seeds)
    if not values.wrong:
        print(table(seeds))
        return
    for case, said in wrong(PLANTS, seeds):
        first = said["first"] or {}
        print(f"{case.plant} {case.seed}: rank {case.rank} {case.causes} {case.place} restart {case.restart}")
        names = ("rank", "cause", "file", "line", "log_file", "log_line", "text")
        print(f"    said {[first.get(name) for name in names]}")
        print(f"    {said['order']}; {said['restart']}: {said['reason']}")


if __name__ == "__main__":
    main()
