"""One rank of a test of holdfast.dcp: it builds a state, saves or loads it, and returns its digests."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from holdfast.dcp import HoldfastReader, HoldfastStager, HoldfastWriter, load
from tests.sdk.plain_dcp import dcp

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
OUT, URL = Path(os.environ["OUT"]), os.environ["URL"]
JOB = "job"


class Net(nn.Module):
    """Rows that ranks do not divide (5), one large replicated buffer, and tied weights."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.up, self.down = nn.Linear(13, 36), nn.Linear(36, 5)
        self.head = nn.Linear(5, 5, bias=False)
        self.tied = nn.Linear(5, 5, bias=False)
        self.tied.weight = self.head.weight
        self.register_buffer("table", torch.randn(700, 601))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.tied(self.head(self.down(self.up(x).relu())))
        return y


def build(kind: str, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model that has trained a step, so that its optimizer has state, laid out over the ranks."""
    model: nn.Module = Net(seed)
    if kind in ("fsdp", "both"):
        shape, names = ((WORLD,), ("data",)) if kind == "fsdp" else ((2, WORLD // 2), ("data", "tensor"))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        if kind == "both":
            split(model, mesh["tensor"])
        fully_shard(model, mesh=mesh["data"])
    elif kind == "tensor":
        split(model, init_device_mesh("cpu", (WORLD,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    wrapped = nn.parallel.DistributedDataParallel(model) if kind == "ddp" and WORLD > 1 else model
    torch.manual_seed(seed)
    wrapped(torch.randn(4, 13)).pow(2).mean().backward()
    optimizer.step()
    return model, optimizer


def split(model: nn.Module, mesh: Any) -> None:
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    values, moments = get_state_dict(model, optimizer)
    return {"model": values, "optimizer": moments, "step": 7, "note": ("a", 1.5, None, b"\0\1", 1 << 90)}


def digests(state: Any, path: str = "") -> dict[str, str]:
    """Every leaf of a state by its path: the whole tensors' bytes, hashed."""
    found: dict[str, str] = {}
    if isinstance(state, dict):
        for key, item in state.items():
            found |= digests(item, f"{path}.{key}")
    elif isinstance(state, torch.Tensor):
        whole = state.full_tensor() if isinstance(state, DTensor) else state
        data = whole.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        found[path] = f"{tuple(whole.shape)} {whole.dtype} {hashlib.blake2b(data, digest_size=8).hexdigest()}"
    else:
        found[path] = repr(state)
    return found


def save(kind: str, mode: str = "sync", step: int = 7) -> Any:
    """Save the state that `build` makes, and return its digests."""
    model, optimizer = build(kind, seed=0)
    state = state_of(model, optimizer)
    told = digests(state)
    writer = HoldfastWriter(URL, job=JOB)
    if mode == "sync":
        dcp.save(state, storage_writer=writer, checkpoint_id=str(step))
        return told
    stager = HoldfastStager()
    kinds = {"thread": AsyncCheckpointerType.THREAD, "process": AsyncCheckpointerType.PROCESS}
    future = dcp.async_save(
        state,
        storage_writer=writer,
        checkpoint_id=str(step),
        async_stager=stager,
        async_checkpointer_type=kinds[mode],
    )
    with torch.no_grad():
        for parameter in model.parameters():  # training goes on
            parameter.zero_()
    future.result()
    stager.close()
    return told


def read(kind: str) -> Any:
    """Load into a model of another seed, and return the digests afterwards."""
    model, optimizer = build(kind, seed=1)
    state = state_of(model, optimizer)
    state["note"] = None
    dcp.load(state, storage_reader=HoldfastReader(URL, job=JOB))
    values, moments = state["model"], state["optimizer"]
    set_state_dict(model, optimizer, model_state_dict=values, optim_state_dict=moments)
    return digests(state_of(model, optimizer) | {"note": state["note"]})


class Failing(DefaultSavePlanner):
    """A planner that fails to provide its data on one rank."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.asked = how, 0

    def resolve_data(self, write_item: Any) -> Any:
        self.asked += 1
        if RANK == 1 and self.asked == 3:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("this tensor is not to be had")
        return super().resolve_data(write_item)


def fail(how: str, mode: str = "sync") -> str:
    """Save while one rank fails. Returns the error that this rank gets."""
    model, optimizer = build("fsdp", seed=0)
    writer, planner = HoldfastWriter(URL, job=JOB), Failing(how)
    try:
        if mode == "sync":
            dcp.save(state_of(model, optimizer), storage_writer=writer, checkpoint_id="7", planner=planner)
        else:
            dcp.async_save(
                state_of(model, optimizer), storage_writer=writer, checkpoint_id="7", planner=planner
            ).result()
    except (CheckpointException, RuntimeError) as error:
        return str(error)
    finally:
        writer.close()
    return "saved"


def recover() -> Any:
    """Load the newest checkpoint that can be read. Returns its id, and one of the loaded values."""
    state = {"weight": torch.zeros(400_000)}
    found = load(state, URL, job=JOB, fallback=True)
    return [found, float(state["weight"][0])]


def main() -> None:
    case = {"save": save, "read": read, "fail": fail, "recover": recover}[os.environ["CASE"]]
    store = FileStore(str(OUT / "store"), WORLD)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD)
    result = case(**json.loads(os.environ["OPTIONS"]))  # type: ignore[operator]
    (OUT / f"{RANK}.json").write_text(json.dumps(result))
    if os.environ["CASE"] != "fail":
        dist.destroy_process_group()
    sys.exit(0)


if __name__ == "__main__":
    main()
