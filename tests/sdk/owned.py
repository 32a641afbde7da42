"""Train with state of which a part belongs to one rank alone, or is declared so. `KIND`: which; `KILL`: see
train.py.

Every rank's result is a digest of all its tracked state, so that state that was lost, or taken from another
rank, shows in it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session

OUT = Path(os.environ["OUT"])
KIND = os.environ["KIND"]
STEPS = int(os.environ.get("STEPS", "12"))
KILLS = json.loads(os.environ.get("KILL", "[]"))
N = 120
torch.manual_seed(5)
session = Session(seed=None if KIND == "unseeded" else 0)
data = torch.randn(N, 6, generator=torch.Generator().manual_seed(7))


def have_room() -> None:
    """Wait for the arena, so that the snapshot that a recovery needs has room, however slow the node is."""
    agent, deadline = session.runtime.state.agent, time.monotonic() + 20
    while agent is not None and agent.orders.arena is None and time.monotonic() < deadline:
        if agent.interrupted(session.generation):
            return
        time.sleep(0.005)


def maybe_die(phase: str) -> None:
    if KILLS and session.step == 2:
        have_room()
    for index, kill in enumerate(KILLS):
        if (kill["phase"], kill["rank"], kill["step"]) != (phase, session.rank, session.step):
            continue
        try:
            os.close(os.open(OUT / f"killed.{index}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)


def net(seed: int = 1) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.GELU(), torch.nn.Linear(10, 6))


def mine(step: int) -> torch.Tensor:
    """Samples that this rank alone gets."""
    return data[torch.arange(step * 11 + session.rank * 5, step * 11 + session.rank * 5 + 8) % N]


def fit(model: torch.nn.Module, optimizer: Any) -> None:
    for step in session.steps(STEPS):
        maybe_die("start")
        optimizer.zero_grad()
        loss = model(mine(step)).pow(2).mean()
        maybe_die("forward")
        loss.backward()
        optimizer.step()
        if KIND.startswith("local") and step % 4 == 3:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= session.world_size
        elif KIND.startswith("local"):
            dist.barrier()
        session.report(loss=loss)


class Seeded:
    """Builds state that is declared equal on all ranks; with some KINDs it is not."""

    def __init__(self) -> None:
        self.model: Any = net(os.getpid() if KIND in ("differ", "from_rank_0") else 1)
        if KIND == "buffers":
            self.model = torch.nn.Sequential(self.model, torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3))
        parameters = self.model.parameters()
        if KIND == "unfreeze":
            self.model[2].requires_grad_(False)
            parameters = self.model[0].parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-2)


class Hidden:
    """On rank 1 its state is of a kind that no snapshot can hold."""

    def state_dict(self) -> dict[str, Any]:
        return {"at": object() if session.runtime.state.rank == 1 else 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def fit_noisily(own: Seeded) -> None:
    """Draw random numbers in each step, and keep them in the state."""
    for step in session.steps(STEPS):
        with (OUT / f"noise.{session.rank}").open("a") as drawn:
            drawn.write(f"{step} {float(torch.rand(()))}\n")
        maybe_die("forward")
        fit_once(session.ddp(own.model), own.optimizer, step)
        maybe_die("end")


def fit_once(model: torch.nn.Module, optimizer: Any, step: int) -> None:
    optimizer.zero_grad()
    model(mine(step)).pow(2).mean().backward()
    optimizer.step()


def drift(model: Any) -> None:
    """Flip one bit of one weight, on one rank, once."""
    if session.rank == 2 and session.step == 5:
        model[2].weight.data.view(torch.int32)[1, 1] ^= 1


def unfreeze(own: Seeded) -> None:
    """Train; at step 4 unfreeze the last layer, in a parameter group of its own, and put the first into eval
    mode."""
    for step in session.steps(STEPS):
        if step == 4:
            own.model[2].requires_grad_(True)
            own.optimizer.add_param_group({"params": list(own.model[2].parameters()), "lr": 0.05})
            own.model[0].eval()
        maybe_die("forward")
        fit_once(session.ddp(own.model, find_unused_parameters=True), own.optimizer, step)


def train_early(own: Seeded) -> str:
    if KIND == "unseeded":
        torch.manual_seed(session.rank * 100 + 1) if session.generation == 1 else None
        fit_noisily(own)
        return digest()
    if KIND == "unfreeze":
        unfreeze(own)
        modes = [part.training for part in own.model.modules()]
        return digest() + str(modes) + str([len(group["params"]) for group in own.optimizer.param_groups])
    if KIND.startswith("local"):
        fit(own.model, own.optimizer)
    else:
        if KIND == "drift":
            own.optimizer.register_step_post_hook(lambda *_: drift(own.model))
        wrapped = DistributedDataParallel(own.model) if KIND == "buffers" else session.ddp(own.model)
        fit(wrapped, own.optimizer)
    return digest() if KIND != "hidden" else ""


def train_experts() -> str:
    """Train a trunk that all ranks hold, and one expert for each pair of ranks: 0 and 2, 1 and 3."""
    trunk, expert = net(), net(10 + session.rank % 2)
    pairs = [dist.new_group([r for r in range(session.world_size) if r % 2 == half]) for half in (0, 1)]
    optimizer = torch.optim.SGD(trunk.parameters(), lr=1e-2, momentum=0.9)
    moving = torch.optim.SGD(expert.parameters(), lr=1e-2, momentum=0.9)
    session.track(trunk=trunk, optimizer=optimizer)
    options: dict[str, Any] = {} if KIND == "experts_undeclared" else {"shard": f"expert-{session.rank % 2}"}
    session.track(expert=expert, moving=moving, **options)
    for step in session.steps(STEPS):
        optimizer.zero_grad()
        moving.zero_grad()
        expert(trunk(mine(step))).pow(2).mean().backward()
        maybe_die("forward")
        for module, group in ((trunk, None), (expert, pairs[session.rank % 2])):
            for parameter in module.parameters():
                dist.all_reduce(parameter.grad, group=group)
        optimizer.step()
        moving.step()
    return digest()


def push(tensor: torch.Tensor, peer: int) -> None:
    """Send, for ten seconds at most: gloo does not always wake a thread that sends on a connection that was
    shut."""
    sending = dist.isend(tensor, peer)
    assert sending is not None
    sending.wait(timedelta(seconds=10))


def train_stages() -> str:
    """Rank 0 of each pair holds the first half of the model, rank 1 the second."""
    stage, replicas = session.rank % 2, session.world_size // 2
    torch.manual_seed(20 + stage)
    model = torch.nn.Linear(6, 6)
    groups = [dist.new_group([2 * replica + half for replica in range(replicas)]) for half in (0, 1)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    session.track(model=model, optimizer=optimizer)
    peer = session.rank ^ 1
    for step in session.steps(STEPS):
        optimizer.zero_grad()
        maybe_die("forward")
        if stage == 0:
            out = model(mine(step))
            push(out.detach(), peer)
            gradient = torch.empty_like(out)
            dist.recv(gradient, peer)
            out.backward(gradient)
        else:
            got = torch.empty(8, 6)
            dist.recv(got, peer)
            model(got.requires_grad_()).pow(2).mean().backward()
            assert got.grad is not None
            push(got.grad, peer)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=groups[stage])
        optimizer.step()
    return digest()


def train_zero() -> str:
    model = net()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.7)
    session.track(model=model, optimizer=optimizer, scheduler=scheduler)
    session.restore()
    wrapped = session.ddp(model)
    for step in session.steps(STEPS):
        optimizer.zero_grad()
        wrapped(mine(step)).pow(2).mean().backward()
        maybe_die("forward")
        optimizer.step()
        scheduler.step()
    assert len(optimizer.optim.state) < len(list(model.parameters()))
    return digest()


def train_fsdp1() -> str:
    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if KIND == "fsdp1_optimizer":
        session.track(optimizer=optimizer)
    else:
        session.track(model=model, optimizer=optimizer)
    fit(model, optimizer)
    return digest()


def digest() -> str:
    found = hashlib.sha256()
    for tensor in session.runtime.state.tracked.flatten().tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


LATE = {
    "experts": train_experts,
    "experts_undeclared": train_experts,
    "stages": train_stages,
    "zero": train_zero,
    "fsdp1": train_fsdp1,
    "fsdp1_optimizer": train_fsdp1,
}
early = None
if KIND not in LATE:
    early = Seeded()
    session.track(
        model=early.model,
        optimizer=early.optimizer,
        per_rank=KIND == "local",
        from_rank_0=KIND == "from_rank_0",
    )
if KIND == "hidden":
    session.track(hidden=Hidden())


@session.elastic
def train() -> None:
    found = LATE[KIND]() if early is None else train_early(early)
    line = {"digest": found, "rank": session.rank, "shard": session.runtime.state.shard_id}
    (OUT / f"result.{session.rank}.json").write_text(json.dumps(line))


train()
session.close()
sys.exit(0)
