"""Write the text of `/metrics`, in the format that is asked for.

The text of tens of thousands of series takes prometheus_client most of a second, which a leader's event loop
misses; nearly all of them are what they were at the last scrape. So the text of each family is kept, and
written anew only if one of its samples has changed."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

_END = b"# EOF\n"
"""What ends an OpenMetrics text, and so no part of it."""
GZIP_LEVEL = 1
"""Each level compresses text of metrics to a twentieth, and this one is ten times as fast as the default."""


@dataclass(frozen=True, slots=True)
class _One(Collector):
    """A registry of one family."""

    metric: Metric

    def collect(self) -> Iterable[Metric]:
        return [self.metric]


class Exposition:
    """The text of one registry's families. Several threads may ask for it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._format = ""  # that of the texts: one at a time, because clients can name any number of them
        self._texts: dict[str, tuple[list[Sample], bytes]] = {}

    def text(self, accept: str) -> tuple[bytes, str]:
        """The text of all families in the format that this Accept header asks for, and its Content-Type."""
        encode, content_type = choose_encoder(accept)
        with self._lock:
            if content_type != self._format:
                self._format, self._texts = content_type, {}
            parts = [self._family(metric, encode) for metric in self._registry.collect()]
        ended = any(part.endswith(_END) for part in parts)
        return b"".join([*(part.removesuffix(_END) for part in parts), _END * ended]), content_type

    def _family(self, metric: Metric, encode: Callable[[Collector], bytes]) -> bytes:
        samples, text = self._texts.get(metric.name, (None, b""))
        if samples != metric.samples:
            text = encode(_One(metric))
            self._texts[metric.name] = (metric.samples, text)
        return text


def wsgi_app(registry: CollectorRegistry) -> Callable[[dict[str, Any], Callable[..., Any]], list[bytes]]:
    """A WSGI application for a registry, as prometheus_client makes one. It answers a plain GET; all else
    that can be asked, such as `name[]`, is left to the library's."""
    exposition, library = Exposition(registry), make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        asked = parse_qs(environ.get("QUERY_STRING", ""))
        if environ["REQUEST_METHOD"] != "GET" or environ["PATH_INFO"] == "/favicon.ico" or "name[]" in asked:
            found: list[bytes] = library(environ, start_response)
            return found
        body, content_type = exposition.text(environ.get("HTTP_ACCEPT", ""))
        headers = [("Content-Type", content_type)]
        if gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
            body = gzip.compress(body, GZIP_LEVEL)
            headers.append(("Content-Encoding", "gzip"))
        start_response("200 OK", headers)
        return [body]

    return answer
