"""Classify a storage driver's exception: worth another attempt, or a fault that somebody has to fix.

Drivers raise exceptions of any kind, and wrap them. So the chain of causes is read from the outside in. Each
link is checked for the service's own code, then the HTTP status, the exception's class and the errno; the
first of these that is known decides. Classes of drivers are known by name, so that no driver is imported."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT, CONNECTION, THROTTLED, SERVER, CONFLICT = "timeout", "connection", "throttled", "server", "conflict"
KINDS = (TIMEOUT, CONNECTION, THROTTLED, SERVER, CONFLICT)
"""Kinds of failures that pass by themselves."""

_TRANSIENT_CODES = {
    "SlowDown": THROTTLED,
    "Throttling": THROTTLED,
    "ThrottlingException": THROTTLED,
    "TooManyRequests": THROTTLED,
    "RequestLimitExceeded": THROTTLED,
    "BandwidthLimitExceeded": THROTTLED,
    "InternalError": SERVER,
    "ServiceUnavailable": SERVER,
    "RequestTimeout": TIMEOUT,
    "IncompleteBody": CONNECTION,
    "OperationAborted": CONFLICT,
    "ConditionalRequestConflict": CONFLICT,
}
_RENEW = "the credentials have expired: renew the secret that they come from"
_WRONG = "the credentials are not accepted: fix the secret that they come from"
_DENIED = "permission denied: let these credentials list, read, write and delete there"
_BUCKET = "there is no such bucket: create it, or name another with --storage"
_UNEXPLAINED = (
    "the storage does not say why; the credentials may have expired: renew the secret that they come from"
)
_CLOCK = "this machine's clock is off: set it (NTP)"
_REGION = "the bucket is in another region: name its endpoint or region"
_FULL = "it is full: free space, or name another with --storage"
_CODE_FIXES = {
    "ExpiredToken": _RENEW,
    "ExpiredTokenException": _RENEW,
    "TokenRefreshRequired": _RENEW,
    "RequestExpired": _RENEW,
    "InvalidAccessKeyId": _WRONG,
    "SignatureDoesNotMatch": _WRONG,
    "InvalidToken": _WRONG,
    "InvalidSecurity": _WRONG,
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "400": _UNEXPLAINED,  # all that HEAD can report
    "403": _DENIED,
    "401": _WRONG,
    "NoSuchBucket": _BUCKET,
    "RequestTimeTooSkewed": _CLOCK,
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "QuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL,
    "InvalidBucketName": "this is not a valid bucket name: name another with --storage",
}
_STATUS_FIXES = {401: _WRONG, 403: _DENIED, 507: _FULL}
_SERVER_FINAL = (501, 505, 507)
_CLASSES = {
    "botocore.exceptions.ConnectTimeoutError": TIMEOUT,
    "botocore.exceptions.ReadTimeoutError": TIMEOUT,
    "botocore.exceptions.HTTPClientError": CONNECTION,
    "botocore.exceptions.ConnectionError": CONNECTION,
    "botocore.exceptions.IncompleteReadError": CONNECTION,
    "botocore.parsers.ResponseParserError": SERVER,
    "aiohttp.client_exceptions.ServerTimeoutError": TIMEOUT,
    "aiohttp.client_exceptions.ClientConnectionError": CONNECTION,
    "aiohttp.client_exceptions.ClientPayloadError": CONNECTION,
    "http.client.IncompleteRead": CONNECTION,
    "builtins.TimeoutError": TIMEOUT,
    "builtins.ConnectionError": CONNECTION,
    "builtins.EOFError": CONNECTION,
}
_CLASS_FIXES = {
    "botocore.exceptions.NoCredentialsError": "no credentials are found: set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, a profile, or a role",
    "botocore.exceptions.PartialCredentialsError": _WRONG,
    "botocore.exceptions.TokenRetrievalError": _RENEW,
    "botocore.exceptions.CredentialRetrievalError": _WRONG,
}
_ERRNOS = {
    errno.ETIMEDOUT: TIMEOUT,
    errno.ECONNRESET: CONNECTION,
    errno.ECONNREFUSED: CONNECTION,
    errno.ECONNABORTED: CONNECTION,
    errno.EPIPE: CONNECTION,
    errno.ENETUNREACH: CONNECTION,
    errno.EHOSTUNREACH: CONNECTION,
    errno.ENETDOWN: CONNECTION,
    errno.EAGAIN: THROTTLED,
}
_ERRNO_FIXES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: "the quota is used up: raise it, or name another with --storage",
    errno.EFBIG: "a file of this size is not allowed: raise the limit (ulimit -f)",
    errno.EROFS: "it is read-only: mount it writable, or name another with --storage",
    errno.EACCES: "permission denied: let this user write there, or name another with --storage",
    errno.EPERM: "not permitted: let this user write there, or name another with --storage",
    errno.ENOTDIR: "a file is where a folder is needed: name another with --storage",
    errno.ENOENT: "its folder is gone, or cannot be made: name another with --storage",
    errno.EEXIST: "a file is where a folder is needed: name another with --storage",
    errno.EIO: "the device failed to read or write: look at the kernel's log",
}
_ACCESS = (_RENEW, _WRONG, _DENIED, _UNEXPLAINED)


def transient(error: BaseException) -> str | None:
    """The kind of a failure that may pass by itself; None for one that will not."""
    for link in _chain(error):
        code, status = _code(link), _status(link)
        if code in _CODE_FIXES:
            return None
        if code in _TRANSIENT_CODES:
            return _TRANSIENT_CODES[code]
        if status is not None:
            return _of_status(status)
        found = next((_CLASSES[name] for name in _classes(link) if name in _CLASSES), None)
        number = getattr(link, "errno", None) or 0
        if found is not None or number in _ERRNOS:
            return found or _ERRNOS[number]
        # EIO: drivers use it when they know nothing better.
        if number in _ERRNO_FIXES and number != errno.EIO:
            return None
    return None


def fix(error: BaseException) -> str:
    """What somebody can do about it; "" if nothing better than the error itself is known."""
    links = list(_chain(error))
    for link in links:
        if (code := _code(link)) in _CODE_FIXES:
            return _CODE_FIXES[code]
        if (status := _status(link)) is not None:
            return _STATUS_FIXES.get(status, "")
    for link in links:
        for name in _classes(link):
            if name in _CLASS_FIXES:
                return _CLASS_FIXES[name]
    number = getattr(error, "errno", None)
    return _ERRNO_FIXES.get(number, "") if isinstance(number, int) else ""


def access(error: BaseException) -> bool:
    """Whether the credentials are the problem: new ones may be there at the next attempt."""
    return fix(error) in _ACCESS


def coded(error: BaseException, *codes: str) -> bool:
    """Whether the service gave one of these codes (or HTTP statuses, as text)."""
    return any(_code(link) in codes or str(_status(link)) in codes for link in _chain(error))


def words(error: BaseException) -> str:
    """The error in a few words: the system's, the service's, or its own."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    code = next((code for link in _chain(error) if (code := _code(link))), "")
    return text if not code or code in text else f"{code}: {text}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _response(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    return response if isinstance(response, dict) else {}


def _code(error: BaseException) -> str:
    part = _response(error).get("Error")
    return str(part.get("Code", "")) if isinstance(part, dict) else ""


def _status(error: BaseException) -> int | None:
    part = _response(error).get("ResponseMetadata")
    found = part.get("HTTPStatusCode") if isinstance(part, dict) else None
    for value in (found, *(getattr(error, name, None) for name in ("status", "status_code", "code"))):
        if isinstance(value, int) and 100 <= value < 600:
            return value
    return None


def _of_status(status: int) -> str | None:
    if status == 408:
        return TIMEOUT
    if status in (429, 503):
        return THROTTLED
    return SERVER if status >= 500 and status not in _SERVER_FINAL else None


def _classes(error: BaseException) -> list[str]:
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
