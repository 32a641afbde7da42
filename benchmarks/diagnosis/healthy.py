"""Watch jobs in which nothing is wrong, as long as wanted, and count the alarms of the diagnosis.

`python -m benchmarks.diagnosis --healthy --minutes 30 --json` trains the small GPT of the demo once in each
way of KINDS, with the limits that planted faults are found with. An alarm is a finding of `warning` or above,
or a hang. Alarms are rare events that come by chance, so the true number per day may be larger than what
was seen: the upper bound is that of a Poisson process (with 95 % probability)."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("none", "evaluation", "compile", "imbalance", "noisy-neighbour")
"""Ways to train, each as a `--plant` of the demo that must accuse nobody."""
ALLOWED = {"imbalance": {"uneven_work"}}
"""Findings that are true of a kind, and accuse nobody: they are listed, and are no alarms."""
CROWDED = "crowded_cpu"
"""Allowed with every kind: the demo has more ranks than many a machine has cores, and nobody is accused."""
ALARMS = frozenset({"warning", "critical"})
BOUND = 0.95
DAY_S = 86400.0
START_S = 600.0
"""How long the start of a job may take."""


def report(kinds: Sequence[str], minutes: float) -> dict[str, Any]:
    """Watch a job of each kind for so long. Raises CalledProcessError when one of them fails."""
    rows = {kind: _watched(kind, 60.0 * minutes) for kind in kinds}
    alarms, watched_s = sum(len(row["alarms"]) for row in rows.values()), 60.0 * minutes * len(rows)
    return {"kinds": rows, "watched_s": watched_s, "alarms": alarms, **_per_day(alarms, watched_s)}


def _watched(kind: str, watch_s: float) -> dict[str, Any]:
    """The findings about one job."""
    words = ["--plant", kind, "--watch-s", f"{watch_s:g}", "--timeout-s", f"{watch_s + START_S:g}", "--json"]
    command = [sys.executable, "-P", "-m", "controlplane", "demo", "--doctor", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    alarms: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for each in found["findings"]:
        grave = each["severity"] in ALARMS and each["kind"] not in {CROWDED, *ALLOWED.get(kind, ())}
        (alarms if grave else others).append({name: each[name] for name in ("kind", "subject", "reason")})
    return {
        "alarms": alarms,
        "others": others,
        "incidents": len(found["incidents"]),
        "answers_judged": found["answers_judged"],
        "failed_detectors": found["failed_detectors"],
    }


def _per_day(alarms: int, watched_s: float) -> dict[str, float]:
    """Alarms per day as seen, and their upper bound."""
    days = watched_s / DAY_S
    return {"alarms_per_day": alarms / days, "alarms_per_day_at_most": upper_bound(alarms) / days}


def upper_bound(count: int) -> float:
    """The mean of a Poisson distribution below which so few events (or fewer) come only in 1 - BOUND of all
    cases: 3.0 for none (Garwood 1936)."""
    low, high = float(count), 10.0 * (count + 1)
    for _ in range(100):
        middle = (low + high) / 2
        terms = (math.exp(-middle + k * math.log(middle) - math.lgamma(k + 1)) for k in range(count + 1))
        if middle > 0 and sum(terms) > 1 - BOUND:
            low = middle
        else:
            high = middle
    return high
