"""Tell Lightning the ranks of the session, instead of those of a launcher.

A process has no rank before its first generation, since a spare may get any. Until then it is told that it is
not rank 0, so that it makes no log folders."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lightning.fabric.plugins.environments import ClusterEnvironment

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from holdfast.session import Session

_UNPLACED = 1


class HoldfastEnvironment(ClusterEnvironment):
    """Ranks from a session."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    @property
    def creates_processes_externally(self) -> bool:
        """The launcher has made the processes."""
        return True

    @property
    def main_address(self) -> str:
        """Of no use here: the session makes the process group."""
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        """Of no use here: the session makes the process group."""
        return int(os.environ.get("MASTER_PORT", "0"))

    @staticmethod
    def detect() -> bool:
        """It is given to the strategy, never found."""
        return False

    @property
    def placed(self) -> bool:
        """Whether this process has had a rank."""
        try:
            self._session.rank  # noqa: B018
        except SessionError:
            return False
        return True

    def world_size(self) -> int:
        """The number of ranks; before the first generation what the launcher says, and more than one."""
        return self._session.world_size if self.placed else max(2, int(os.environ.get("WORLD_SIZE", "2")))

    def set_world_size(self, size: int) -> None:
        """Ignored: the session knows it."""

    def global_rank(self) -> int:
        """The rank; before the first generation not 0."""
        return self._session.rank if self.placed else _UNPLACED

    def set_global_rank(self, rank: int) -> None:
        """Ignored: the session knows it."""

    def local_rank(self) -> int:
        """The rank within the node, as the launcher says it."""
        return int(os.environ.get("LOCAL_RANK", "0"))

    def node_rank(self) -> int:
        """The node's number, as the launcher says it."""
        return int(os.environ.get("GROUP_RANK", "0"))
