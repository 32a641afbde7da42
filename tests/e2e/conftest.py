"""An S3 server on this machine, for jobs that keep their checkpoints there."""

from __future__ import annotations

from tests.checkpoint.s3 import s3, s3_bucket, s3_server

__all__ = ["s3", "s3_bucket", "s3_server"]
