"""Compute a rank's coordinates in the job's layout. Standard library only: agents and ranks use it.

Ranks are numbered with the data-parallel axis outermost and the tensor-parallel axis innermost (dp, pp, cp,
tp). So a replica of the model is a run of consecutive ranks, and each tensor-parallel group is a run within
it. A job that shrinks drops whole replicas: the remaining ranks keep their order, and all coordinates but
dp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

AXES = ("dp", "pp", "cp", "tp")
"""The dimensions of the job's device mesh, outermost first."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """One rank's place in the layout.

    `rank` is negative if the process has none yet. `tp`, `pp` and `cp` are the sizes of the tensor, pipeline
    and context parallel axes; all 1: plain data parallel."""

    rank: int
    world_size: int
    tp: int = 1
    pp: int = 1
    cp: int = 1

    @property
    def dp(self) -> int:
        """The number of replicas of the model."""
        return max(self.world_size // (self.tp * self.pp * self.cp), 1)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The sizes of the axes, in the order of AXES."""
        return self.dp, self.pp, self.cp, self.tp

    @property
    def place(self) -> tuple[int, int, int, int]:
        """The coordinates along the axes, in the order of AXES; all -1 without a rank."""
        if self.rank < 0:
            return -1, -1, -1, -1
        cp_rank, tp_rank = divmod(self.rank, self.tp)
        pp_rank, cp_rank = divmod(cp_rank, self.cp)
        dp_rank, pp_rank = divmod(pp_rank, self.pp)
        return dp_rank, pp_rank, cp_rank, tp_rank

    @property
    def dp_rank(self) -> int:
        """Which replica of the model this rank belongs to. It decides which samples the rank gets."""
        return self.place[0]

    @property
    def pp_rank(self) -> int:
        """The rank's pipeline stage."""
        return self.place[1]

    @property
    def cp_rank(self) -> int:
        """The rank's part of the sequence."""
        return self.place[2]

    @property
    def tp_rank(self) -> int:
        """The rank's index in its tensor-parallel group."""
        return self.place[3]

    def variables(self) -> dict[str, str]:
        """The environment variables for a rank: HOLDFAST_DP_SIZE, HOLDFAST_DP_RANK, and the same for pp, cp
        and tp."""
        found: dict[str, str] = {}
        for axis, size, at in zip(AXES, self.sizes, self.place, strict=True):
            found |= {f"HOLDFAST_{axis.upper()}_SIZE": str(size), f"HOLDFAST_{axis.upper()}_RANK": str(at)}
        return found


def read(variables: Mapping[str, str], rank: int, world_size: int) -> Coordinates:
    """Coordinates of a rank, with the axis sizes from the environment; 1 where there is none or no positive
    number."""
    sizes = (variables.get(f"HOLDFAST_{axis}_SIZE", "") for axis in ("TP", "PP", "CP"))
    tp, pp, cp = (int(text) if text.isdecimal() and int(text) > 0 else 1 for text in sizes)
    return Coordinates(rank, world_size, tp, pp, cp)
