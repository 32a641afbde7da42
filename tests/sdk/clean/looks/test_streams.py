"""How far buffers and answers over HTTP are read is seen, and what is only written to is not."""

from __future__ import annotations

import http.server
import io
import os
import threading
import urllib.request
from typing import TYPE_CHECKING

from tests.sdk.clean.test_forgotten import told

if TYPE_CHECKING:
    import pytest


def test_buffers_that_are_read_are_named(caplog: pytest.LogCaptureFixture) -> None:
    lines, raw, log = io.StringIO("1\n2\n3\n4\n5\n6\n"), io.BytesIO(b"123456789"), io.StringIO()

    def step() -> None:
        log.write(lines.readline() + str(raw.read(1)))

    said = told(caplog, step)
    assert "lines" in said and "raw" in said and "log" not in said.replace("log.", "")


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers with numbers."""

    def do_GET(self) -> None:
        body = "".join(f"{at}\n" for at in range(999)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


def test_an_answer_over_http_that_is_read_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        with urllib.request.urlopen(url) as rows, urllib.request.urlopen(url) as unread:
            said = told(caplog, lambda: (rows.readline(), unread))
        server.shutdown()
    assert "not tracked: rows. If" in said


def test_a_pipe_that_fills_is_not_taken_for_one_that_is_read(caplog: pytest.LogCaptureFixture) -> None:
    mine, theirs = os.pipe()
    with open(mine, "rb") as unread:
        assert told(caplog, lambda: (os.write(theirs, b"1"), unread.name)) == ""
    os.close(theirs)
