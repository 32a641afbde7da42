"""An S3 server (moto, in a process of its own) and buckets in it, as fixtures."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import boto3
import pytest

from holdfast.checkpoint.storage.retrying import Patience
from holdfast.checkpoint.storage.store import Store
from tests.checkpoint.proxy import Proxy
from tests.e2e.cli_running import until
from tests.leashed import leashed

QUICK = Patience(deadline_s=20.0, pause_first_s=0.01, pause_max_s=0.05)
"""Options with short pauses between tries."""
HASTY = Patience(deadline_s=20.0, silence_s=0.4, pause_first_s=0.01, pause_max_s=0.05)
"""Options with a short timeout for silent connections."""
KEY, SECRET = "testing", "testing-secret"
Opened = Callable[..., Store]
_RUNNING = re.compile(r"Running on (\S+)\s")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that lasts as long as the tests. It logs each request: to a file, as a pipe that
    nobody reads would stop it once it is full."""
    log = tmp_path_factory.mktemp("s3") / "log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with (
        log.open("w") as output,
        subprocess.Popen(leashed(command), stdout=output, stderr=output) as process,
    ):
        try:
            found = until(lambda: _RUNNING.search(log.read_text()), lambda: f"S3: {log.read_text()}")
            yield str(found[1])
        finally:
            process.kill()


@pytest.fixture(scope="session")
def s3_bucket(s3_server: str) -> str:
    """The name of a bucket."""
    client = boto3.client(
        "s3",
        endpoint_url=s3_server,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    try:
        client.create_bucket(Bucket="bucket")
    finally:
        client.close()
    return "bucket"


@pytest.fixture
def s3(s3_server: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a fresh folder in a bucket; the environment says how to get there."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3_bucket}/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def proxy(s3: str, s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy, through which the storage reaches its server from now on."""
    parts = urlsplit(s3_server)
    assert parts.hostname is not None
    assert parts.port is not None
    made = Proxy((parts.hostname, parts.port))
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens storages with short timeouts, and closes them at the end."""
    stores: list[Store] = []

    def open_(url: str, patience: Patience = QUICK) -> Store:
        stores.append(Store.open(url, patience=patience))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()
