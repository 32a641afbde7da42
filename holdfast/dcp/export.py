"""Export a checkpoint as a folder that plain PyTorch loads: `dcp.load(state, checkpoint_id=folder)`.

The folder has torch's own format, in which `.metadata` and plain entries are pickles: load it only if you
trust its source, like any such folder. Holdfast itself never reads one."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.checkpoint.state_dict_saver import save as torch_save

from holdfast.checkpoint.errors import CheckpointError
from holdfast.dcp.reader import HoldfastReader

if TYPE_CHECKING:
    import os

    from holdfast.checkpoint.format.manifest_records import Manifest


def folder(
    url: str, job: str, checkpoint: str, target: str | os.PathLike[str], *, digest: str = ""
) -> Manifest:
    """Write a checkpoint of a job to a new folder, verified. The whole state is in this process's memory
    meanwhile.

    Raises CheckpointError if the folder exists and is not empty, else what `dcp.load` raises."""
    path = Path(target)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise CheckpointError(f"{path} exists and is not overwritten: name another folder, or empty it")
    reader = HoldfastReader(url, job=job, checkpoint=checkpoint, digest=digest)
    planner: Any = _EmptyStateDictLoadPlanner()  # type: ignore[no-untyped-call]
    state: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        _load_state_dict(state, reader, no_dist=True, planner=planner)
        torch_save(state, storage_writer=FileSystemWriter(path), no_dist=True)
    return reader.manifest
