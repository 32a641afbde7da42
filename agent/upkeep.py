"""Carries out the orders that keep what is on storage: Collect and Scrub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.site import Kind, Site


class Upkeep:
    """The orders Collect and Scrub."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def kinds(self) -> dict[type[Any], Kind]:
        """How each of its orders is carried out."""
        return {}
