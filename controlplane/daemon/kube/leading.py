"""Labels the pod of the coordinator that leads: a Service can choose it, for the page."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from controlplane.daemon.kube.api import PATCH, KubeError

if TYPE_CHECKING:
    from controlplane.daemon.kube.api import Api

LABEL = "holdfast.dev/leads"
AGAIN_S = 60.0
END_S = 2.0
"""The end of a reign waits no longer for the API."""
log = logging.getLogger(__name__)


class Leading:
    """The label of our own pod. A standby that was killed while it led takes its label off when it starts."""

    def __init__(self, api: Api, pod: str) -> None:
        self._api, self._pod = api, pod

    async def run(self) -> None:
        """While we lead: put it on, and again now and then; take it off at the end."""
        try:
            while True:
                await self.put("yes")
                await asyncio.sleep(AGAIN_S)
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self.put(None, once=True)

    async def put(self, value: str | None, *, once: bool = False) -> None:
        """Label our pod; None takes the label off. Trouble is logged: nothing depends on it but the page."""
        path = f"/api/v1/namespaces/{self._api.account.namespace}/pods/{self._pod}"
        ask = self._api.once if once else self._api.ask
        try:
            await ask("pod_label", "PATCH", path, {"metadata": {"labels": {LABEL: value}}}, PATCH)
        except KubeError as error:
            log.warning("our pod's label %s is not changed: %s", LABEL, error)
