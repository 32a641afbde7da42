"""Find in time that nobody is at the other end of a gRPC connection: a process is stopped, a host gone."""

from __future__ import annotations

OFTEN_MS = 5_000
"""A server takes pings as often as this for granted, also where it sends nothing: as etcd does."""


def keepalive(idle_s: int, answer_s: int) -> tuple[tuple[str, int], ...]:
    """Options of a channel or server: after `idle_s` without a byte from there it asks, and breaks the
    connection after `answer_s` without an answer.

    gRPC waits a minute for the answer, whatever the second option says, unless the third is shorter. After
    two pings between which it has sent nothing itself, as whoever only listens, it would ask once a minute;
    and a server would send away whoever asks more often than every five."""
    return (
        ("grpc.keepalive_time_ms", 1000 * idle_s),
        ("grpc.keepalive_timeout_ms", 1000 * answer_s),
        ("grpc.http2.ping_timeout_ms", 1000 * answer_s),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", OFTEN_MS),
    )
