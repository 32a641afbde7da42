"""Folders of logs as people give them to `holdfast doctor --logs`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs import diagnosis
from controlplane.analysis.failure_logs.events import RankFile
from controlplane.analysis.failure_logs.lines import RawLine

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.analysis.failure_logs.diagnosis import LogsDiagnosis
    from controlplane.analysis.failure_logs.events import LoggedFailure

LOST = """
Traceback (most recent call last):
  File "/app/train.py", line 77, in main
    dist.all_reduce(x)
  File "/usr/lib/python3.11/site-packages/torch/distributed/c10d.py", line 3252, in all_reduce
    work.wait()
RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:81
"""
RAISED = """
Traceback (most recent call last):
  File "/app/train.py", line 90, in <module>
    main()
  File "/app/data.py", line 12, in load
    raise ValueError("no label")
  File "/usr/lib/python3.11/site-packages/lib/check.py", line 5, in check
    raise ValueError(text)
ValueError: no label
"""


def text(body: str) -> str:
    return textwrap.dedent(body).lstrip("\n")


def of(*bodies: str, apart_s: float = 0.0) -> LogsDiagnosis:
    """The diagnosis of one log per rank, whose file times are so far apart, the first rank's the latest."""
    files = [
        RankFile(f"rank{rank}.log", rank, "", 0, -apart_s * rank, [
            RawLine(number + 1, line) for number, line in enumerate(text(body).split("\n"))
        ])
        for rank, body in enumerate(bodies)
    ]  # fmt: skip
    return diagnosis.diagnose(files)


def failure(*bodies: str) -> LoggedFailure:
    """The first failure, which has to be one of rank 0."""
    found = of(*bodies).first
    assert found is not None and found.rank == 0 and found.failure is not None
    return found.failure


def folder(path: Path, files: dict[str, str | bytes]) -> Path:
    """A folder with these files."""
    for name, body in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(body if isinstance(body, bytes) else text(body).encode())
    return path


def steps(first: int, last: int, *, form: str = "step {n} loss 2.0") -> str:
    """Lines of training."""
    return "".join(form.format(n=n) + "\n" for n in range(first, last))
