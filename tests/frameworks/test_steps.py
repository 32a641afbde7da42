"""What a process trains on, and with which rates, as a plain loop shows it: in a process of its own, because
the hooks are all of torch's."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.frameworks.environment import ROOT

LOOP = """
import json, torch
from tests.frameworks.steps import Steps
steps = Steps()
model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1], 0.5)
rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
for batch in rows[:2], rows[2:]:
    model(batch).sum().backward()
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        model(rows)
print(json.dumps(steps.came_to()))
"""


def test_rows_and_rates_are_recorded_in_their_order() -> None:
    words = [sys.executable, "-c", LOOP]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(done.stdout)
    assert [found["rates"][f"{step}.0.lr"] for step in (0, 1)] == [(0.5).hex(), (0.25).hex()]
    assert found["samples"].keys() == {"0.0", "0.1", "1.0"}
    assert found["samples"]["0.0"] == found["samples"]["1.0"] != found["samples"]["0.1"]
