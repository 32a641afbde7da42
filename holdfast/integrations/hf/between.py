"""Exchange small things between the ranks of a Trainer. All ranks call these together."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from holdfast.integrations import accelerate_state


def rows_of(trainer: Any, numbers: list[float]) -> list[list[float]]:
    """These numbers of every rank: one row per rank."""
    own = torch.tensor([numbers], dtype=torch.float64, device=trainer.args.device)
    rows = [torch.empty_like(own) for _ in range(trainer.session.world_size)]
    dist.all_gather(rows, own)
    return [[float(value) for value in row[0].tolist()] for row in rows]


def from_rank_0(trainer: Any, thing: Any) -> Any:
    """Rank 0's."""
    box = [thing]
    dist.broadcast_object_list(box, src=0, device=trainer.args.device)
    return box[0]


def tell_place(trainer: Any) -> None:
    """Have TrainerState say whether this process is the first of all, and of its node: it was made before the
    process had a place."""
    accelerate_state.take_place(trainer.session)
    trainer.state.is_local_process_zero = trainer.is_local_process_zero()
    trainer.state.is_world_process_zero = trainer.is_world_process_zero()
