"""Exchange bytes between ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist

from holdfast.groups.groups import carrier, gather_numbers


def gather(own: bytes, world_size: int, device: torch.device) -> list[bytes]:
    """Every rank's bytes. All ranks call it together, and none returns before all have called it."""
    if world_size == 1:
        return [own]
    device = carrier(dist.get_backend(), device)
    sizes = [size for (size,) in gather_numbers([len(own)], device, world_size)]
    room = torch.zeros(world_size, max(sizes), dtype=torch.uint8, device=device)
    row = torch.zeros(max(sizes), dtype=torch.uint8, device=device)
    row[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8).to(device) if own else row[:0]
    dist.all_gather(list(room.unbind()), row)
    return [each[:size].numpy().tobytes() for each, size in zip(room.cpu().unbind(), sizes, strict=True)]
