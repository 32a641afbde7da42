"""Record what a script claims of an object's state: equal on all ranks, on some of them, or on none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from holdfast.errors import SessionError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")


@dataclass(frozen=True, slots=True)
class Claim:
    """The claims for one tracked object. Without any, all ranks hold the same (or parts of DTensors)."""

    per_rank: bool = False  # each rank has its own state
    shard: str = ""  # ranks that give the same name hold the same state; "": no name
    from_rank_0: bool = False  # ranks may differ at the start; the first one's state is given to all

    @classmethod
    def of(cls, per_rank: Any, shard: Any, from_rank_0: Any) -> Claim:
        """The claim of one call of `track`. Raises SessionError for arguments that exclude each other."""
        if type(per_rank) is not bool or type(from_rank_0) is not bool:
            raise SessionError("track: per_rank and from_rank_0 must be True or False, not names of objects")
        if not isinstance(shard, str) or (shard and not _NAME.fullmatch(shard)):
            raise SessionError(
                f"track: shard={shard!r:.80} is not a valid name: use letters, digits, . _ : / - (at most 64)"
            )
        if per_rank and shard:
            raise SessionError(
                f"track: per_rank=True and shard={shard!r} exclude each other: with the first, every rank "
                "has its own state; with the second, all ranks that give the name have the same"
            )
        return cls(per_rank, shard, from_rank_0)


REPLICATED = Claim()
"""The claim of an object for which no argument was given."""
