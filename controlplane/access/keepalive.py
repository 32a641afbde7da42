"""Find in time that nobody is at the other end of a gRPC connection: a process is stopped, a host gone."""

from __future__ import annotations


def keepalive(idle_s: int, answer_s: int) -> tuple[tuple[str, int], ...]:
    """Options of a channel or server: after `idle_s` without a byte from there it asks, and breaks the
    connection after `answer_s` without an answer.

    gRPC waits a minute for the answer, whatever the second option says, unless the third is shorter."""
    return (
        ("grpc.keepalive_time_ms", 1000 * idle_s),
        ("grpc.keepalive_timeout_ms", 1000 * answer_s),
        ("grpc.http2.ping_timeout_ms", 1000 * answer_s),
    )
