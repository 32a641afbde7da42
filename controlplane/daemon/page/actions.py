"""Let logged-in operators act from the page: through the methods of the Admin service, by its rules.

The page is one more way to call these methods: roles, checks, words and answers are the same as over gRPC."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import json_format

from controlplane.access.guard import Denied, permit, permit_job
from controlplane.access.roles import ADMIN, RULES
from controlplane.daemon.page.http import HttpRefused
from controlplane.daemon.server.admin import Admin
from controlplane.wire import control_pb2 as pb

if TYPE_CHECKING:
    from controlplane.access.callers import Caller
    from controlplane.daemon.server.context import ServerContext

ACTS: dict[str, Any] = {
    "drain": pb.DrainRequest,
    "cordon": pb.CordonRequest,
    "pause": pb.PauseRequest,
    "checkpoint": pb.CheckpointRequest,
    "mute": pb.MuteRequest,
}
"""What the page can ask for, and as which message."""

_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    grpc.StatusCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    grpc.StatusCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    grpc.StatusCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    grpc.StatusCode.ABORTED: HTTPStatus.CONFLICT,
    grpc.StatusCode.FAILED_PRECONDITION: HTTPStatus.CONFLICT,
    grpc.StatusCode.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


class PageContext:
    """Stands for grpc's context of a call: it gives Admin's methods a way to refuse."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """Raise HttpRefused with the status that stands for this code."""
        raise HttpRefused(_STATUS[code], details)

    def set_trailing_metadata(self, metadata: object) -> None:
        """Do nothing: the refusal's reason already names the leader."""


async def act(front: ServerContext, caller: Caller, name: str, document: Any) -> dict[str, Any]:
    """Carry out an act as this caller, and return the reply. Raises HttpRefused."""
    kind = ACTS.get(name)
    if kind is None:
        raise HttpRefused(
            HTTPStatus.NOT_FOUND, f"there is no action {name!r:.80}; known are {', '.join(ACTS)}"
        )
    request = permitted(caller, name.capitalize(), kind, document)
    reply = await getattr(Admin(front), name.capitalize())(request, PageContext())
    answer: dict[str, Any] = json_format.MessageToDict(reply, preserving_proto_field_name=True)
    return answer


def permitted(caller: Caller, name: str, kind: Any, document: Any) -> Any:
    """Return the request to this method of Admin, if this caller may send it. Raises HttpRefused."""
    method = f"/{ADMIN}/{name}"
    try:
        permit(RULES[method], caller, method)
        request = json_format.ParseDict(document, kind())
        permit_job(RULES[method], caller, method, request)
    except Denied as denied:
        raise HttpRefused(_STATUS[denied.code], denied.reason) from denied
    except json_format.ParseError as error:
        raise HttpRefused(HTTPStatus.BAD_REQUEST, f"this is not a request to {name}: {error}") from error
    return request
