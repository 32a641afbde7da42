"""Real gloo ranks, forked with torch imported, that run one case of dcp_rank.py each."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

PRELOAD = ("holdfast.dcp", "torch.distributed.fsdp", "torch.distributed.tensor.parallel")
SCRIPT = Path(__file__).with_name("dcp_rank.py")
DEADLINE_S = 120.0


class Ranks:
    """Runs cases in `folder`, which also holds the storage."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self._zygote, self.folder = zygote, folder
        self.url = f"file://{folder}/storage"
        self._runs = 0

    def run(self, case: str, ranks: int, *, codes: dict[int, int] | None = None, **options: Any) -> list[Any]:
        """Run a case, and return each rank's result; None for a rank without one. `codes`: the exit codes
        that must not be 0, by rank."""
        self._runs += 1
        out = self.folder / f"run{self._runs}"
        out.mkdir()
        pids = [self._spawn(case, rank, ranks, out, options) for rank in range(ranks)]
        expected = [(codes or {}).get(rank, 0) for rank in range(ranks)]
        ended = self._ended(pids)
        logs = "\n".join((out / f"{rank}.log").read_text()[-3000:] for rank in range(ranks))
        assert ended == expected, f"{case} ended with {ended}:\n{logs}"
        return [self._result(out / f"{rank}.json") for rank in range(ranks)]

    def _spawn(self, case: str, rank: int, ranks: int, out: Path, options: dict[str, Any]) -> int:
        env = {
            "PATH": os.environ["PATH"],
            "CASE": case,
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "OUT": str(out),
            "URL": self.url,
            "OPTIONS": json.dumps(options),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(SCRIPT.parents[2]),
        }
        return self._zygote.spawn(SCRIPT, env, out / f"{rank}.log")

    def _ended(self, pids: list[int]) -> list[int | None]:
        deadline = time.monotonic() + DEADLINE_S
        codes = [self._zygote.poll(pid) for pid in pids]
        while None in codes and time.monotonic() < deadline:
            time.sleep(0.01)
            codes = [self._zygote.poll(pid) for pid in pids]
        for pid, code in zip(pids, codes, strict=True):
            if code is None:
                os.kill(pid, 9)
        return codes

    def _result(self, path: Path) -> Any:
        return json.loads(path.read_text()) if path.exists() else None
