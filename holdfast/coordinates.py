"""Compute where a rank stands in a job's layout. Standard library only: agent and ranks both use it.

Ranks are numbered with the data-parallel axis outermost and the tensor-parallel axis innermost (dp, pp, cp,
tp): a whole replica of the model is a run of neighbouring ranks, and so is a tensor group inside it. A job
that shrinks drops such runs; what is left keeps its order, and its coordinates but for dp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

AXES = ("dp", "pp", "cp", "tp")
"""Outermost first: the dimensions of the job's device mesh."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """One rank's place in the layout. Sizes of 1: plain data parallel. `rank` below 0: it has none yet."""

    rank: int
    world_size: int
    tp: int = 1
    pp: int = 1
    cp: int = 1

    @property
    def dp(self) -> int:
        """How many replicas of the model there are."""
        return max(self.world_size // (self.tp * self.pp * self.cp), 1)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Of the axes, as AXES names them."""
        return self.dp, self.pp, self.cp, self.tp

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Along the axes, as AXES names them; all -1 without a rank."""
        if self.rank < 0:
            return -1, -1, -1, -1
        cp_rank, tp_rank = divmod(self.rank, self.tp)
        pp_rank, cp_rank = divmod(cp_rank, self.cp)
        dp_rank, pp_rank = divmod(pp_rank, self.pp)
        return dp_rank, pp_rank, cp_rank, tp_rank

    @property
    def dp_rank(self) -> int:
        """Which replica it belongs to: what decides which samples it sees."""
        return self.place[0]

    @property
    def pp_rank(self) -> int:
        """Its pipeline stage."""
        return self.place[1]

    @property
    def cp_rank(self) -> int:
        """Its part of the sequence."""
        return self.place[2]

    @property
    def tp_rank(self) -> int:
        """Its place in its tensor group."""
        return self.place[3]

    def variables(self) -> dict[str, str]:
        """For the environment: HOLDFAST_DP_SIZE, HOLDFAST_DP_RANK, and so on for pp, cp and tp."""
        found: dict[str, str] = {}
        for axis, size, at in zip(AXES, self.sizes, self.place, strict=True):
            found |= {f"HOLDFAST_{axis.upper()}_SIZE": str(size), f"HOLDFAST_{axis.upper()}_RANK": str(at)}
        return found


def read(variables: Mapping[str, str], rank: int, world_size: int) -> Coordinates:
    """With the sizes that the environment names; 1 where it names none, or no number."""
    sizes = (variables.get(f"HOLDFAST_{axis}_SIZE", "") for axis in ("TP", "PP", "CP"))
    tp, pp, cp = (int(text) if text.isdecimal() and int(text) > 0 else 1 for text in sizes)
    return Coordinates(rank, world_size, tp, pp, cp)
