"""Lines of logs that people have published: what they stand for."""

from __future__ import annotations

import pytest

from controlplane.analysis.failure_logs.classify import of_exception, of_line
from controlplane.analysis.failure_logs.events import RankFile
from controlplane.analysis.failure_logs.lines import RawLine
from controlplane.analysis.failure_logs.scan import scan
from tests.analysis.published_lines import LINES, PublishedLine

ELASTIC = "site-packages/torch/distributed/elastic"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "  what():  [PG 1 Rank 1] Process group watchdog thread terminated with exception: CUDA error: "
            "device-side assert triggered",
            "device_assert",
        ),
        (f"W0227 17:39:41.9 2938 {ELASTIC}/multiprocessing/api.py:766] Closing process 66 via signal SIGTERM",
         "terminated"),
        (f"W0409 07:28:49.5 1359 {ELASTIC}/agent/server/api.py:719] Received 15 death signal, shutting down",
         "terminated"),
        ("WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 2973 closing signal SIGHUP",
         "terminated"),
        ("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 (pid: 8)",
         "killed"),
        (
            "(raylet) A worker died or was killed while executing a task by an unexpected error. "
            "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer. "
            "(3) The worker is crashed unexpectedly due to SIGSEGV",
            "killed",
        ),
        (
            "/pytorch/aten/src/ATen/native/cuda/ScatterGatherKernel.cu:115: operator(): block: [0,0,0], "
            "thread: [1,0,0] Assertion `idx_dim >= 0 && idx_dim < index_size` failed.",
            "device_assert",
        ),
        ("NVRM: The NVIDIA GPU 0000:b3:00.0 fallen off the bus and is not responding.", "gpu_lost"),
        ("include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'", "cuda_out_of_memory"),
        ("  what():  Transport endpoint is not connected", "connection_lost"),
        ("misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer ng309<51159>",
         "nccl_error"),
    ],
)  # fmt: skip
def test_a_line(line: str, cause: str) -> None:
    named = of_line(line)
    assert named is not None and named[0] == cause


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        (
            "RuntimeError",
            "cuda runtime error (59) : device-side assert triggered at /THC.cpp:70",
            "device_assert",
        ),
        ("RuntimeError", "CUDA error: CUDA-capable device(s) is/are busy or unavailable", "cuda_error"),
        ("RuntimeError", "write(): fd 29 failed with Input/output error", "io_error"),
        (
            "RuntimeError",
            "cuda runtime error (39) : uncorrectable ECC error encountered at /T.cpp",
            "ecc_error",
        ),
        (
            "RuntimeError",
            "[/n/gloo/transport/tcp/pair.cc:611] Connect timeout [1.1.1.3]:27",
            "rendezvous_timeout",
        ),
        ("RuntimeError", "Gloo connectFullMesh failed with [../pair.cc:144] no error", "rendezvous_timeout"),
        (
            "RuntimeError",
            "Timed out initializing process group in store based barrier on rank: 1, (world_size=8)",
            "collective_timeout",
        ),
        ("ConnectionRefusedError", "[Errno 111] Connection refused", "network_error"),
        (
            "DistBackendError",
            "NCCL error in: NCCLUtils.cpp:93, unhandled cuda error, NCCL 2.29",
            "cuda_error",
        ),
    ],
)
def test_an_exception(name: str, text: str, cause: str) -> None:
    assert of_exception(name, text)[0] == cause


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.where.rpartition('/')[2]}-{line.text[:24]}")
def test_a_line_of_an_issue_is_named_as_the_end_of_a_log(line: PublishedLine) -> None:
    head = ["Traceback (most recent call last):", '  File "/app/train.py", line 5, in f', "    g()"]
    raw = [
        RawLine(number, text) for number, text in enumerate([*(head if line.raised else ()), line.text], 1)
    ]
    read, _ = scan(RankFile("log", 0, "", 0, 0.0, raw))
    (found,) = [each.last.first for each in read.values() if each.last.lines]
    assert (found is None) if not line.causes else (found is not None and found.cause in line.causes)
