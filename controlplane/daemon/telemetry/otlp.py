"""Send traces of incidents to an OTLP/HTTP collector, with OpenTelemetry's own SDK.

The SDK is an extra, `pip install holdfast[otel]`, and is imported only when an endpoint is given. A thread of
the SDK sends: the event loop never waits for the collector. What cannot be sent is dropped by the SDK, with a
line in the log. Headers (such as a token) come from OTEL_EXPORTER_OTLP_HEADERS, never from flags."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from controlplane.daemon.telemetry.incident_spans import IS_GOODPUT_SPAN
from controlplane.settings import SettingsError
from holdfast.version import __version__

if TYPE_CHECKING:
    from controlplane.daemon.telemetry.incident_spans import Trace

TIMEOUT_S = 5.0
"""Seconds for one request to the collector, and for what is left at the end."""

DELAY_S = 1.0
"""Seconds that a trace waits, so that others can be sent with it."""

SIGNAL_PATH = "/v1/traces"
log = logging.getLogger(__name__)


class Exporter:
    """Sends traces until closed. Raises SettingsError when the extra is not installed."""

    def __init__(self, endpoint: str, cluster: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise SettingsError(
                f"--otlp-endpoint needs OpenTelemetry ({error}): pip install 'holdfast[otel]'"
            ) from error
        url = endpoint if endpoint.endswith(SIGNAL_PATH) else endpoint.rstrip("/") + SIGNAL_PATH
        names = {"service.name": "holdfast", "service.version": __version__, "holdfast.cluster": cluster}
        self._provider = TracerProvider(resource=Resource.create(names), shutdown_on_exit=False)
        sender = OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(sender, schedule_delay_millis=DELAY_S * 1000))
        self._tracer = self._provider.get_tracer("holdfast", __version__)

    def send(self, trace: Trace) -> None:
        """Hand a trace to the sending thread."""
        from opentelemetry import context as contexts
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        named = {"holdfast.incident": trace.name}
        root = self._tracer.start_span(
            f"incident {trace.name}",
            contexts.Context(),
            SpanKind.INTERNAL,
            {**named, **dict(trace.attributes)},
            start_time=_ns(trace.begin_s),
        )
        for at_s, note in trace.notes:
            root.add_event("judged", {"plan": note}, _ns(at_s))
        parts: dict[str, Any] = {**named, IS_GOODPUT_SPAN: False}
        within: Any = set_span_in_context(root, contexts.Context())
        for part in trace.parts:
            span = self._tracer.start_span(part.name, within, attributes=parts, start_time=_ns(part.begin_s))
            span.end(_ns(part.end_s))
        root.set_status(Status(StatusCode.OK if trace.outcome == "recovered" else StatusCode.ERROR))
        root.end(_ns(trace.end_s))

    async def close(self) -> None:
        """Send what is left, within TIMEOUT_S."""
        sent = await asyncio.to_thread(self._provider.force_flush, round(TIMEOUT_S * 1000))
        if not sent:
            log.warning("traces of incidents could not be sent before the end")
        await asyncio.to_thread(self._provider.shutdown)


def _ns(wall_s: float) -> int:
    return round(wall_s * 1e9)
