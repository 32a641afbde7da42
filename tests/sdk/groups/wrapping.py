"""Train with a model in many small buckets: `KIND` is "static" (session.ddp with static_graph), or "plain"
(torch's own DistributedDataParallel). `KILL`: rank 1 is killed once in this step."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

OUT, KILL = Path(os.environ["OUT"]), int(os.environ.get("KILL", "-1"))
torch.manual_seed(0)
session = Session()
data = torch.randn(96, 8)
model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(6)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
session.track(model=model, optimizer=optimizer)


@session.elastic
def train() -> str:
    if os.environ["KIND"] == "static":
        wrapped = session.ddp(model, static_graph=True, bucket_cap_mb=0.0005)
    else:
        wrapped = DistributedDataParallel(model, bucket_cap_mb=0.0005)
    for step in session.steps(12):
        wrapped(data[session.sample_indices(96, 24)]).square().mean().backward()
        if (session.rank, step) == (1, KILL) and not (OUT / "killed").exists():
            (OUT / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        optimizer.zero_grad()
    content = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    return hashlib.sha256(content).hexdigest()


digest = train()
line = {"rank": session.rank, "digest": digest}
(OUT / f"result.{session.rank}.json").write_text(json.dumps(line))
