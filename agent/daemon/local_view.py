"""Let the core look at its node: shared memory, connections, pending snapshot orders and log files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.ranks import members

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.deciding.member import LocalMember
    from agent.host.paths import Paths


class LocalView:
    """The NodeView of a real node.

    `wants`: whether a pending order reads a member's arena; `connected`: whether a member has a connection to
    the rank server."""

    def __init__(
        self, paths: Paths, *, wants: Callable[[str], bool], connected: Callable[[str], bool]
    ) -> None:
        self._paths, self._wants, self._connected = paths, wants, connected

    def step(self, member: LocalMember) -> int:
        """The step on a member's progress page; NO_STEP without one."""
        return members.step_of(member)

    def held(self, member: LocalMember) -> Sequence[tuple[int, int]]:
        """Generation and step of each READY snapshot in a member's arena, ascending."""
        return members.held_by(member)

    def wants(self, member: str) -> bool:
        """Whether an order that is not done yet reads this member's arena."""
        return self._wants(member)

    def connected(self, member: str) -> bool:
        """Whether this member has a connection to the rank server now."""
        return self._connected(member)

    def wrote(self, member: str) -> bool:
        """Whether this member's process has written anything to its log."""
        try:
            return self._paths.log(member).stat().st_size > 0
        except OSError:
            return False
