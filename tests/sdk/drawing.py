"""Train with samples of `sample_indices`. `KIND`: what one rank, number 1, draws by that the others do not.

`ahead`: in step 5 another process flips a bit of the samples that this rank has drawn ahead (it waits for
`flipped`). The other kinds change this rank's numbers themselves, as damaged memory would."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch

from holdfast import Session

OUT, KIND = Path(os.environ["OUT"]), os.environ["KIND"]
session = Session(seed=0)
torch.manual_seed(1)
model = torch.nn.Linear(6, 3)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
session.track(model=model, optimizer=optimizer)
data = torch.randn(200, 6, generator=torch.Generator().manual_seed(7))


def let_flip() -> None:
    row = session.runtime.streams._ahead[3]._rows[2]
    given = {"pid": os.getpid(), "address": row.data_ptr()}
    (OUT / "new").write_text(json.dumps(given))
    (OUT / "new").rename(OUT / "addresses.json")
    while not (OUT / "flipped").exists():
        time.sleep(0.002)


def differ() -> None:
    """Have this rank draw otherwise, from step 5 on."""
    state, streams = session.runtime.state, session.runtime.streams
    if KIND == "ahead":
        let_flip()
    elif KIND == "seed":
        state.entry.seed = (state.entry.seed or 0) ^ 1 << 20
    elif KIND == "generator":
        kept = torch.default_generator.get_state()
        kept[100] ^= 4
        torch.default_generator.set_state(kept)
    elif KIND == "order":
        stream = streams._known[3]
        stream.orders[-1] = dataclasses.replace(stream.orders[-1], position=stream.orders[-1].position + 64)


@session.elastic
def train() -> None:
    wrapped = session.ddp(model)
    odd = session.rank == 1 and session.generation == 1
    size = 199 if KIND == "smaller" and session.rank == 1 else 200
    seed = 3 + session.rank if KIND == "own_seeds" else 3
    for step in session.steps(16):
        if odd and step == 5:
            differ()
        if step == 6:
            drawn = torch.rand(4).tolist()
        optimizer.zero_grad()
        wrapped(data[session.sample_indices(size, 9, seed=seed)]).pow(2).mean().backward()
        optimizer.step()
    found = hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters()))
    line = {"digest": found.hexdigest(), "drawn": drawn, "rank": session.rank}
    (OUT / f"result.{session.rank}.json").write_text(json.dumps(line))


train()
session.close()
sys.exit(0)
