"""Count the collectives of groups in which ranks do not send equally often."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist

from holdfast import Session
from holdfast.groups.flight_recorder import collectives

torch.manual_seed(0)
session = Session()
model = torch.nn.Linear(2, 2)
session.track(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
value = torch.ones(4)


@session.elastic
def train() -> list[dict[str, object]]:
    told = []
    for _ in session.steps(1):
        for rounds in (2, 1):
            group = dist.new_group([0, 1, 2])
            name = dist.distributed_c10d._world.pg_names[group]

            def now(name: str = name) -> dict[str, object]:
                return next(each for each in collectives() if str(each["group"]).startswith(f"{name} "))

            told.append(now())
            if session.rank == 0:
                dist.send(value, 1, group=group)
            if session.rank == 1:
                dist.recv(value, 0, group=group)
            for _ in range(rounds):
                work = dist.all_reduce if rounds == 2 else lambda one, group: dist.broadcast(one, 0, group)
                work(value, group=group)
            told.append(now())
            dist.destroy_process_group(group)
    return told


found = train()
(Path(os.environ["OUT"]) / f"told.{session.rank}").write_text(json.dumps(found))
session.close()
