"""Label the pod of the leader, so that a Service for the status page can choose it."""

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
"""Seconds to wait for the API at the end of a leader term."""
log = logging.getLogger(__name__)


class LeaderLabel:
    """The label of our own pod. A coordinator that was killed while it led removes its label when
    it starts again."""

    def __init__(self, api: Api, pod: str) -> None:
        self._api, self._pod = api, pod

    async def run(self) -> None:
        """Put the label on, and again from time to time, while we lead. Remove it at the end."""
        try:
            while True:
                await self.put("yes")
                await asyncio.sleep(AGAIN_S)
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self.put(None, once=True)

    async def put(self, value: str | None, *, once: bool = False) -> None:
        """Label our pod; None removes the label. A failure is only logged: nothing but the page
        depends on the label."""
        path = f"/api/v1/namespaces/{self._api.account.namespace}/pods/{self._pod}"
        ask = self._api.once if once else self._api.ask
        try:
            await ask("pod_label", "PATCH", path, {"metadata": {"labels": {LABEL: value}}}, PATCH)
        except KubeError as error:
            log.warning("the label %s of this coordinator's pod could not be changed: %s", LABEL, error)
