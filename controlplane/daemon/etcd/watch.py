"""Watch keys across broken streams: resume after the last revision, or list again and say so.

A stream ends when its endpoint dies, falls silent or loses its quorum. The watch goes on at the next
endpoint, after the last revision that it delivered. When etcd has compacted the history since then, changes
are missed: the watch lists all keys and delivers them as a `Listed`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Self

import grpc

from controlplane.daemon.etcd import rpc_pb2 as pb
from controlplane.daemon.etcd.error_class import SILENT, judge
from controlplane.daemon.etcd.errors import EtcdUnavailable
from controlplane.daemon.etcd.link import WATCH, Failed, hopeless, read
from controlplane.daemon.etcd.rows import Change, Changed, Listed, decode, encode, prefix_end, row_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from controlplane.daemon.etcd.error_class import ErrorClass
    from controlplane.daemon.etcd.link import EtcdLink
    from controlplane.daemon.etcd.rows import Listing

log = logging.getLogger(__name__)


class EtcdWatch:
    """An async iterator of `Listed` and `Changed`, in order, without gaps or repetition.

    It tries on for ever while etcd is away, and raises only what no further try can change (EtcdAuth,
    EtcdNotEtcd). Cancelling a wait loses nothing: the next one resumes."""

    def __init__(
        self, link: EtcdLink, lister: Callable[[str], Awaitable[Listing]], prefix: str, revision: int
    ) -> None:
        self._link = link
        self._lister = lister
        self._prefix = prefix
        self._revision = revision  # delivered up to here; 0: list first
        self._compacted = 0  # up to this revision history is gone; 0: none is known to be
        self._call: Any = None
        self._endpoint = ""
        self._attempt = 0
        self._troubles: dict[str, ErrorClass] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream. Iterating again resumes it."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Listed | Changed:
        while True:
            try:
                update = await self._list() if self._revision == 0 else await self._next()
            except (Failed, EtcdUnavailable) as error:
                await self._recover(error)
                continue
            except BaseException:
                self.close()
                raise
            self._attempt = 0
            self._troubles.clear()
            if update is not None:
                return update

    async def _list(self) -> Listed:
        listing = await self._lister(self._prefix)
        self._revision = listing.revision
        return Listed(listing.revision, listing.rows, self._compacted)

    async def _next(self) -> Changed | None:
        """Return the next changes; None when etcd sent something else. Raises Failed on a broken stream."""
        try:
            if self._call is None:
                await self._open()
            response: pb.WatchResponse = await read(self._call)
        except grpc.aio.AioRpcError as error:
            raise self._link.failed(error) from error
        except TimeoutError as error:
            raise Failed(SILENT) from error
        self._link.accept(response.header)
        if response.canceled or response.compact_revision:  # a refused watch may be `created` too
            self._ended(response)
        changes = tuple(map(_change, response.events))
        if not changes:
            return None
        self._revision = max(event.kv.mod_revision for event in response.events)
        return Changed(self._revision, changes)

    async def _open(self) -> None:
        """Open the stream after the revision delivered last, and wait until etcd confirms it."""
        key, timeout_s = encode(self._prefix), self._link.try_timeout_s
        create = pb.WatchCreateRequest(key=key, range_end=prefix_end(key), start_revision=self._revision + 1)
        self._endpoint = self._link.endpoint
        async with asyncio.timeout(timeout_s):
            self._call = await self._link.open(
                self._endpoint, WATCH, pb.WatchRequest(create_request=create), timeout_s
            )
            await self._created(await read(self._call))

    async def _created(self, response: pb.WatchResponse) -> None:
        self._link.accept(response.header)
        if response.canceled or response.compact_revision:
            self._ended(response)
        if not response.created:
            raise Failed(judge(grpc.StatusCode.UNKNOWN, "a watch began without a confirmation"))

    def _ended(self, response: pb.WatchResponse) -> None:
        """Handle a watch that etcd cancelled, because its history is gone or for another reason.
        Always raises Failed."""
        if response.compact_revision:
            self._compacted, self._revision = response.compact_revision, 0
            raise Failed(judge(grpc.StatusCode.UNKNOWN, "history was compacted"))
        raise Failed(judge(grpc.StatusCode.UNKNOWN, response.cancel_reason or "the watch was cancelled"))

    async def _recover(self, error: Failed | EtcdUnavailable) -> None:
        """Prepare the next attempt: choose another endpoint, pause. Raises what no attempt can change."""
        self.close()
        if isinstance(error, Failed):
            self._troubles[self._endpoint] = error.trouble
            if not error.trouble.again or hopeless(self._link.target.endpoints, self._troubles):
                raise error.trouble.error(f"watch of {self._prefix} at {self._endpoint}: {error}") from error
        if self._attempt == 0:
            log.info("watch of %s at %s resumes after revision %d: %s", self._prefix, self._endpoint,
                     self._revision, error)  # fmt: skip
        self._link.rotate(self._endpoint)
        self._attempt += 1
        await self._link.pause(self._attempt)


def _change(event: pb.Event) -> Change:
    deleted = event.type == pb.Event.DELETE
    return Change(decode(event.kv.key), None if deleted else row_of(event.kv))
