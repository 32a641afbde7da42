"""Run the peers: safetensors and torch.distributed.checkpoint, each as its documentation says."""

from __future__ import annotations

import logging
import os
import time
import warnings
from typing import TYPE_CHECKING, Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import (
    AsyncCheckpointerType,
    AsyncSaveResponse,
    async_save,
    save,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.checkpointing.state import State

logging.getLogger("torch.distributed.checkpoint").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", category=UserWarning, module="torch.distributed")


def safetensors_s(state: State, path: Path) -> float:
    """The seconds of save_file and an fsync, without which it would not be durable."""
    begun = time.perf_counter()
    save_file(state, path)
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return time.perf_counter() - begun


def safetensors_load_s(state: State, path: Path) -> float:
    """The seconds to read every tensor and copy it into the live one."""
    begun = time.perf_counter()
    with safe_open(path, "pt") as file:
        for name, tensor in state.items():
            tensor.copy_(file.get_tensor(name))
    return time.perf_counter() - begun


def dcp_save_s(state: State, folder: Path) -> float:
    """The seconds of a plain dcp.save with one writer thread, its default."""
    begun = time.perf_counter()
    save(dict(state), storage_writer=FileSystemWriter(folder))
    return time.perf_counter() - begun


def dcp_load_s(state: State, folder: Path) -> float:
    """The seconds of dcp.load into the live tensors."""
    begun = time.perf_counter()
    load(dict(state), storage_reader=FileSystemReader(folder))
    return time.perf_counter() - begun


class AsyncSave:
    """dcp.async_save in one of its modes. Stagers are kept and reused where the mode says so."""

    def __init__(self, *, process: bool = False, cached: bool = False) -> None:
        self._process = process
        self._stager = DefaultStager(StagingOptions(False, process, False, False)) if cached else None

    def save(self, state: State, folder: Path, during: Callable[[], Any]) -> tuple[float, float]:
        """Save: (stall, total) in s, until the call returns, and until it is durable. `during` runs in
        between."""
        kind = AsyncCheckpointerType.PROCESS if self._process else AsyncCheckpointerType.THREAD
        more: dict[str, Any] = {} if self._stager is None else {"async_stager": self._stager}
        begun = time.perf_counter()
        answer = async_save(
            dict(state), storage_writer=FileSystemWriter(folder), async_checkpointer_type=kind, **more
        )
        stall = time.perf_counter() - begun
        done = answer.upload_completion if isinstance(answer, AsyncSaveResponse) else answer
        while not done.done():
            during()
        done.result()
        return stall, time.perf_counter() - begun

    def close(self) -> None:
        """End its processes and free its memory."""
        if self._stager is not None:
            self._stager.close()
