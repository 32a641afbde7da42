"""Open fsspec drivers by URL, configured so that nothing hangs and no driver retries by itself."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any, TypeVar

import fsspec
from fsspec.config import conf

from holdfast.checkpoint.errors import StorageError
from holdfast.checkpoint.storage import pacing, wording

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable

    from holdfast.checkpoint.storage.retrying import Patience

T = TypeVar("T")
_EXTRAS = {"s3": "holdfast[s3]", "s3a": "holdfast[s3]"}
_CONNECTIONS = 32
_GRACE_S = 5.0
_PART_BYTES = 32 << 20
"""The size of the parts of a multipart upload; uploads from twice this size on are such. So a bundle is one
request, and leaves no parts behind if its writer dies."""


def connect(url: str, shown: str, patience: Patience, pace: pacing.UploadPace) -> tuple[Any, str]:
    """The file system at a URL, and the path in it. Touches nothing yet. Raises StorageError."""
    try:
        options = {name: make(name, patience, pace) for name, make in _OPTIONS.items() if _names(url, name)}
        filesystem, root = fsspec.url_to_fs(url, **options)
    except ImportError as error:
        wanted = next((extra for name, extra in _EXTRAS.items() if _names(url, name)), "")
        how = f"pip install '{wanted}'" if wanted else "pip install"
        raise StorageError(f"storage {shown}: its driver is missing: {error} ({how})", url=shown) from error
    except Exception as error:  # drivers may raise anything for a URL that they cannot use
        text = wording.shown(str(error)) or type(error).__name__
        raise StorageError(f"storage {shown}: {text}", url=shown) from error
    if "s3" in protocols(filesystem):
        filesystem.retries = 1  # attempts in all: our own are counted and have a deadline
    return filesystem, root


def put_options(filesystem: Any) -> dict[str, Any]:
    """The options that the driver needs for every upload."""
    return {"chunksize": _PART_BYTES} if "s3" in protocols(filesystem) else {}


def protocols(filesystem: Any) -> tuple[str, ...]:
    """The schemes of a file system."""
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def awaited(filesystem: Any) -> bool:
    """Whether its operations are coroutines, which end at their deadline whatever the other side does.

    A synchronous driver (sftp, smb, hdfs) blocks until its own timeouts."""
    return bool(getattr(filesystem, "async_impl", False)) and not getattr(filesystem, "asynchronous", False)


class StorageCalls:
    """Operations of one file system, each with a limit in seconds; `cancel` ends all that run."""

    def __init__(self, filesystem: Any, stop: threading.Event) -> None:
        self._files, self._stop = filesystem, stop
        self._running: set[concurrent.futures.Future[Any]] = set()

    def call(self, operation: str, limit_s: float, *args: Any, **kwargs: Any) -> Any:
        """Run `operation` (its synchronous name). Raises TimeoutError at the limit, or the driver's error."""
        if not awaited(self._files):
            return getattr(self._files, operation)(*args, **kwargs)
        coroutine = getattr(self._files, f"_{operation}")
        future = asyncio.run_coroutine_threadsafe(
            _within(limit_s, lambda: coroutine(*args, **kwargs)), self._files.loop
        )
        self._running.add(future)
        try:
            if self._stop.is_set():
                future.cancel()
            return future.result(limit_s + _GRACE_S)
        except concurrent.futures.CancelledError:
            raise ConnectionAbortedError("the storage has been closed") from None
        finally:
            future.cancel()
            self._running.discard(future)

    def cancel(self) -> None:
        """End what runs; each call raises ConnectionAbortedError."""
        for future in list(self._running):
            future.cancel()


def renew(calls: StorageCalls, filesystem: Any, limit_s: float) -> None:
    """Make the driver read its credentials again, if it keeps them."""
    if "s3" in protocols(filesystem) and awaited(filesystem):
        before = getattr(filesystem, "_s3creator", None)
        calls.call("connect", limit_s, refresh=True)
        _leave(filesystem, before)


def close(filesystem: Any) -> None:
    """Close its connections. If it is used again, it connects again."""
    _leave(filesystem, getattr(filesystem, "_s3creator", None))


def _leave(filesystem: Any, creator: Any) -> None:
    if creator is not None and awaited(filesystem):
        asyncio.run_coroutine_threadsafe(
            _within(_GRACE_S, lambda: creator.__aexit__(None, None, None)), filesystem.loop
        ).result(2 * _GRACE_S)


async def _within(limit_s: float, operation: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(limit_s):
        return await operation()


def _names(url: str, scheme: str) -> bool:
    return any(part.startswith(f"{scheme}://") for part in url.split("::"))


def _s3(name: str, patience: Patience, pace: pacing.UploadPace) -> dict[str, Any]:
    config: dict[str, Any] = {
        "http_session_cls": _one_attempt_session(),
        "connect_timeout": patience.connect_s,
        "read_timeout": patience.silence_s,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "max_pool_connections": _CONNECTIONS,
    }
    if pace.limited:
        config["connector_args"] = {"socket_factory": pacing.socket_factory(pace)}
    given = conf.get(name, {}).get("config_kwargs", {})
    return {"config_kwargs": config | given, "use_listings_cache": False, "skip_instance_cache": True}


def _one_attempt_session() -> Any:
    """The driver's HTTP session without its own second attempt.

    After such an attempt, a create that succeeded but whose answer was lost looks like somebody else's."""
    from aiobotocore.httpsession import AIOHTTPSession

    class OneAttempt(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: str | None) -> Any:
            http = await super()._get_session(proxy_url)
            http._retry_connection = False
            return http

    return OneAttempt


_OPTIONS: dict[str, Callable[[str, Patience, pacing.UploadPace], dict[str, Any]]] = {"s3": _s3, "s3a": _s3}
