"""An S3 server on this machine, for jobs that keep their checkpoints there; and time for whole jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.s3 import s3, s3_bucket, s3_server

__all__ = ["s3", "s3_bucket", "s3_server"]

HERE = Path(__file__).parent
WHOLE_JOB_S = 300
"""Several interpreters import torch in each of these tests: minutes where the machine does other work too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(WHOLE_JOB_S))
