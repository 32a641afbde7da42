"""Parse a generation as the agent describes it to one rank, and refuse an impossible one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_TIERS = ("fresh", "donor", "memory", "peer", "checkpoint")
_SHARES_MAX = 1 << 16


class FormationError(ValueError):
    """What the agent sent does not describe a generation. The message is dropped and counted."""


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The place of one rank: which member on which node is rank `rank`, with index `local_rank` there."""

    rank: int
    member: str
    node: str
    local_rank: int


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A rank that gives one shard of the state, or one share of its bytes. Sources sort alike on all ranks.

    - `shard`: the shard's id.
    - `share`, `shares`: which part of its bytes; 0 of 1: all.
    - `rank`: the rank that gives it.
    - `tier`: where it is: "fresh", "donor", "memory", "peer" or "checkpoint".
    - `arena`: path, for the rank that reads it from there; "" for the others."""

    shard: str
    share: int
    shares: int
    rank: int
    tier: str
    arena: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where the state of the generation's first step comes from.

    - `tier`: "fresh": as the script builds it; "donor": a living rank; "memory", "peer" or "checkpoint": an
      arena, to which it was brought from there if necessary.
    - `step`: completed steps of that state.
    - `rank`: the rank that gives all of it if `sources` is empty.
    - `arena`: path, if this rank reads from an arena.
    - `sources`: who gives which shard.
    - `reshard`: every rank reads its own part of `checkpoint` (of `job`, at the URL `storage`) by itself."""

    tier: str
    step: int
    rank: int
    arena: str = ""
    sources: tuple[Source, ...] = ()
    reshard: bool = False
    storage: str = ""
    job: str = ""
    checkpoint: str = ""
    origin: int = 0  # the generation that computed the state; 0: not known
    skip: tuple[tuple[int, int], ...] = ()  # batches [first, end) that no step consumes, ascending
    digest: str = ""  # digest of the checkpoint's manifest; "": not known


@dataclass(frozen=True, slots=True)
class Formation:
    """One generation, as one of its ranks sees it.

    - `number`: the generation's number.
    - `rank`, `local_rank`, `world_size`, `local_world_size`: as torchrun's variables.
    - `seats`: all places, by rank.
    - `store`: "host:port" of the TCPStore at which the ranks meet.
    - `master`: "host:port" for MASTER_ADDR and MASTER_PORT; "": not set.
    - `restarts`: for TORCHELASTIC_RESTART_COUNT.
    - `resume`: where the state comes from."""

    number: int
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    seats: tuple[RankPlace, ...]
    store: str
    master: str
    restarts: int
    resume: Resume


def parse(message: Any) -> Formation:
    """The generation in a `form` message. Raises FormationError naming the impossible field."""
    body = _record(message, "generation")
    seats = tuple(_seat(entry, index) for index, entry in enumerate(_list(body, "seats")))
    formation = Formation(
        number=_integer(body, "number", 1),
        rank=_integer(body, "rank"),
        local_rank=_integer(body, "local_rank"),
        world_size=_integer(body, "world_size", 1),
        local_world_size=_integer(body, "local_world_size", 1),
        seats=seats,
        store=_text(body, "store"),
        master=_text(body, "master", ""),
        restarts=_integer(body, "restarts") if "restarts" in body else 0,
        resume=_resume(_record(body, "resume"), len(seats)),
    )
    if formation.rank >= formation.world_size or len(seats) != formation.world_size:
        raise FormationError(f"rank {formation.rank} of {formation.world_size} with {len(seats)} seats")
    split_address(formation.store)
    return formation


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port". Raises FormationError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise FormationError(f"{address!r:.80} is not host:port")
    return host.strip("[]"), int(port)


def _resume(body: dict[str, Any], world_size: int) -> Resume:
    tier, rank = _text(body, "tier"), _integer(body, "rank", -1)
    if tier not in _TIERS or rank >= world_size:
        raise FormationError(f"cannot resume from tier {tier!r:.80}, rank {rank}")
    entries = _list(body, "sources") if body.get("sources") is not None else []
    return Resume(
        tier,
        _integer(body, "step"),
        max(rank, 0),
        _text(body, "arena", ""),
        tuple(sorted(_source(entry, world_size) for entry in entries)),
        body.get("reshard") is True,
        _text(body, "storage", ""),
        _text(body, "job", ""),
        _text(body, "checkpoint", ""),
        _integer(body, "born") if "born" in body else 0,
        tuple(_window(entry) for entry in body.get("skip") or ()),
        _text(body, "digest", ""),
    )


def _window(entry: Any) -> tuple[int, int]:
    if not isinstance(entry, dict):
        raise FormationError("a window of skipped data is not an object")
    first, end = _integer(entry, "first"), _integer(entry, "end")
    if first >= end:
        raise FormationError(f"data from batch {first} to {end} cannot be skipped")
    return first, end


def _source(entry: Any, world_size: int) -> Source:
    if not isinstance(entry, dict):
        raise FormationError("a source is not an object")
    source = Source(
        _text(entry, "shard"),
        _integer(entry, "share") if "share" in entry else 0,
        _integer(entry, "shares", 1) if "shares" in entry else 1,
        _integer(entry, "rank"),
        _text(entry, "tier"),
        _text(entry, "arena", ""),
    )
    if source.rank >= world_size or source.tier not in _TIERS:
        raise FormationError(f"not a valid source: rank {source.rank}, tier {source.tier!r:.80}")
    if not source.share < source.shares <= _SHARES_MAX:
        raise FormationError(f"not a valid source: share {source.share} of {source.shares}")
    return source


def _seat(entry: Any, index: int) -> RankPlace:
    if not isinstance(entry, dict):
        raise FormationError(f"seat {index} is not an object")
    seat = RankPlace(
        _integer(entry, "rank"), _text(entry, "member"), _text(entry, "node"), _integer(entry, "local_rank")
    )
    if seat.rank != index:
        raise FormationError(f"seat {index} says it is rank {seat.rank}")
    return seat


def _record(body: Any, key: str) -> dict[str, Any]:
    value = body.get(key)
    if not isinstance(value, dict):
        raise FormationError(f"{key} is not an object")
    return value


def _list(body: dict[str, Any], key: str) -> list[Any]:
    value = body.get(key)
    if not isinstance(value, list):
        raise FormationError(f"{key} is not a list")
    return value


def _integer(body: dict[str, Any], key: str, minimum: int = 0) -> int:
    value = body.get(key)
    if type(value) is not int or not minimum <= value < 1 << 62:
        raise FormationError(f"{key} must be an integer of {minimum} or more, not {value!r:.80}")
    return value


def _text(body: dict[str, Any], key: str, default: str | None = None) -> str:
    value = body.get(key, default)
    if not isinstance(value, str):
        raise FormationError(f"{key} must be a string, not {value!r:.80}")
    return value
