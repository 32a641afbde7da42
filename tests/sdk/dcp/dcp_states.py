"""States of awkward tensors, and checkpoints as agents make them, for the tests of holdfast.dcp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from holdfast.checkpoint import save
from holdfast.checkpoint.storage.store import Store
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena, SlotWriter
from holdfast.snapshots.snapshot import SnapshotWriter
from holdfast.state.tracked import TrackedState
from tests.checkpoint import states

if TYPE_CHECKING:
    from pathlib import Path

JOB = "job"
StateDict = dict[str, Any]


def zoo() -> StateDict:
    """One tensor of each awkward kind, and the plain data that goes with a training."""
    torch.manual_seed(3)
    tied = torch.randn(9, 9)
    floats = torch.randn(300, 7)
    return {
        "bf16": floats.bfloat16(),
        "fp8": floats.to(torch.float8_e4m3fn),
        "fp8_other": floats.to(torch.float8_e5m2),
        "complex": torch.view_as_complex(torch.randn(11, 2)),
        "conjugate": torch.view_as_complex(torch.randn(11, 2)).conj(),
        "bool": floats > 0,
        "int": torch.arange(-5, 5, dtype=torch.int8),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "transposed": torch.randn(50, 40).T,
        "strided": torch.randn(1000)[::3],
        "large": torch.randn(3_000_000),
        "tied": tied,
        "tied_again": tied,
        "nested": {"list": [torch.ones(2), {"deep": torch.zeros(3)}], "plain": [1, 2, "x"]},
        "plain": {"none": None, "tuple": (1, 2.5, b"\0"), "big": 1 << 100, "nan": float("inf")},
    }


def blank(state: Any) -> Any:
    """The same shapes, other values."""
    if isinstance(state, torch.Tensor):
        return torch.zeros_like(state) if state.dtype != torch.bool else torch.zeros_like(state).logical_not()
    if isinstance(state, dict):
        return {key: blank(value) for key, value in state.items()}
    if isinstance(state, list) and any(isinstance(value, torch.Tensor) for value in state):
        return [blank(value) for value in state]
    return None


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        one, other = left.resolve_conj().contiguous(), right.resolve_conj().contiguous()
        equal = one.flatten().view(torch.uint8).equal(other.flatten().view(torch.uint8))
        return bool(equal and left.dtype == right.dtype and left.shape == right.shape)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right and type(left) is type(right))


def session_state() -> tuple[torch.nn.Module, torch.optim.Optimizer, TrackedState]:
    torch.manual_seed(11)
    model = torch.nn.Sequential(torch.nn.Linear(30, 70), torch.nn.BatchNorm1d(70))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 30)).sum().backward()
    optimizer.step()
    tracked = TrackedState()
    tracked.add("model", model)
    tracked.add("optimizer", optimizer)
    tracked.add("schedule", torch.optim.lr_scheduler.StepLR(optimizer, 5))
    return model, optimizer, tracked


def saved_by_an_agent(tracked: TrackedState, url: str, tmp_path: Path) -> None:
    """What a rank and its agent do of a snapshot."""
    snapshots = SnapshotWriter(tracked)
    arena = Arena.create(tmp_path / "arena", snapshots.needs())
    snapshots.attach(str(tmp_path / "arena"))
    assert snapshots.write(5, 1, released_step=0) in (0, 1)
    slot = arena.newest()
    assert slot is not None
    states.save(Store.open(url), slot)
    del slot
    snapshots.detach()
    arena.close()


def sharded_by_agents(url: str, tmp_path: Path, rows: torch.Tensor, columns: torch.Tensor) -> None:
    """Two ranks' slots: one tensor split by rows (unevenly), one by columns, one whole in both."""
    store, told, slots = Store.open(url), [], []
    parts = {"left": (slice(0, 3), slice(0, 2)), "right": (slice(3, 8), slice(2, 5))}
    for rank, (word, (of_rows, of_columns)) in enumerate(parts.items()):
        mine = {"m.state.rows": rows[of_rows], "m.state.columns": columns[:, of_columns].contiguous()}
        mine["m.state.bias"] = torch.arange(4.0)
        wholes = {"m.state.rows": rows, "m.state.columns": columns}
        offsets = {"m.state.rows": (of_rows.start, 0), "m.state.columns": (0, of_columns.start)}
        placed, data_bytes = layout.place((n, "float32", t.shape, t.nbytes) for n, t in mine.items())
        tensors = [
            layout.Tensor(
                t.name, t.dtype, t.shape, t.offset, t.nbytes, tuple(wholes[t.name].shape), offsets[t.name]
            )
            if t.name in wholes
            else t
            for t in placed
        ]
        keys = ("rows", "columns", "bias")
        tree = {"dict": [["state", {"dict": [[key, {"tensor": n}] for n, key in enumerate(keys)]}]]}
        arena = Arena.create(tmp_path / f"arena{rank}", layout.room(data_bytes, 4096))
        writer = arena.begin(9, 1, released_step=9)
        assert isinstance(writer, SlotWriter)
        for tensor in placed:
            content = mine[tensor.name].numpy().tobytes()
            writer.memory[tensor.offset : tensor.offset + tensor.nbytes] = content
        writer.layout(layout.encode(tensors, {"objects": {"dict": [["m", tree]]}}, word), data_bytes)
        slot = writer.ready()
        order = states.Order.of(slot)
        told.append(states.save_part(store, slot, order, shard=word, rank=rank))
        slots.append(slot)
    sealed = save.finalize(store, parts=told, **order.words)
    save.publish(store, JOB, order.checkpoint, sealed.digest)
    del slot, writer
    for slot in slots:
        slot.arena.close()
