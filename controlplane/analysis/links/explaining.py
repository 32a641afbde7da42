"""Say why probes name nobody: what was measured, and what is missing for a judgement."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from controlplane.analysis.links import policy
from controlplane.analysis.links.unknown import Doubt, Unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from controlplane.analysis.links.measures import LinkMatrix, Way

EXAMPLES = 3
NOT_ALONE = Doubt(Unknown.CALM_NOT_KNOWN, "it has not probed itself")
_TEXTS = {
    Unknown.NOT_MEASURED: "were not measured",
    Unknown.CROWDED: "were measured only while a node was busy",
    Unknown.CALM_NOT_KNOWN: "were measured, and whether their nodes were busy is not known",
    Unknown.SLOW_ALONE: "end at a node that is slow in sending to itself",
    Unknown.TOO_FEW_ROUNDS: f"were measured in fewer than {policy.MEASURES_LEAST} rounds",
    Unknown.TOO_FEW_LINKS: f"have fewer than {policy.LINKS_LEAST - 1} others of their kind to compare with",
}


def why(
    matrix: LinkMatrix,
    busy: Mapping[str, float],
    judged: Collection[Way],
    occupied: Mapping[Way, float],
) -> Doubt:
    """Why nobody is named. `judged`: the directions that were compared with others; `busy`: nodes that are
    slow alone; `occupied`: directions that look slow, and how much of the time an agent was occupied."""
    if len(matrix.nodes) == 2 and all(way in judged for way in matrix.ways if way[0] != way[1]) and judged:
        return _only_link(matrix)
    missing = dict(_missing(matrix, busy, judged, occupied))
    if not missing and not judged:
        return Doubt(Unknown.NOT_PROBED, "no probe has come in yet")
    parts = [_text(code, missing) for code in Unknown if code in {each.code for each in missing.values()}]
    if len(judged) > len(missing):
        return Doubt(Unknown.ALIKE, "; ".join([_alike(judged), *parts]))
    counts = Counter(each.code for each in missing.values())
    code = max(counts, key=lambda each: (counts[each], each.value))
    return Doubt(code, "; ".join([*([_alike(judged)] if judged else []), *parts]))


def _only_link(matrix: LinkMatrix) -> Doubt:
    if not any(way in matrix.before for way in matrix.ways if way[0] != way[1]):
        return Doubt(Unknown.NO_REFERENCE, "there is one link, and nothing to compare it with")
    return Doubt(Unknown.ALIKE, "the one link does not carry much less than before")


def _alike(judged: Collection[Way]) -> str:
    links = len({frozenset(way) for way in judged})
    return (
        f"{links} links were measured in {policy.MEASURES_LEAST} rounds or more in which the agents at both "
        f"ends waited for a CPU for at most {policy.WAITED_MAX:.0%} of the time, and none carries much less "
        "than the others"
    )


def _text(code: Unknown, missing: Mapping[Way, Doubt]) -> str:
    mine = [(way, each.text) for way, each in missing.items() if each.code is code]
    some = "; ".join(f"{one} to {other}: {text}" for (one, other), text in mine[:EXAMPLES] if text)
    return f"{len(mine)} directions {_TEXTS[code]}{some and f' ({some})'}"


def _missing(
    matrix: LinkMatrix, busy: Mapping[str, float], judged: Collection[Way], occupied: Mapping[Way, float]
) -> Iterator[tuple[Way, Doubt]]:
    """The directions that were probed and could not be judged."""
    for way in sorted({*matrix.ways, *matrix.silent}):
        if way[0] == way[1] or way in judged:
            continue
        slow = [node for node in way if node in busy]
        found = matrix.ways.get(way)
        alone = [node for node in way if (node, node) not in matrix.ways]
        if way in occupied:
            text = f"looks slow, and an agent computed or waited for a CPU for {occupied[way]:.0%} of it"
            yield way, Doubt(Unknown.CROWDED, text)
        elif slow:
            yield way, Doubt(Unknown.SLOW_ALONE, f"node {slow[0]}, {busy[slow[0]]:.1f} times")
        elif found is None or found.times < policy.MEASURES_LEAST:
            yield way, matrix.silent.get(way, Doubt(Unknown.TOO_FEW_ROUNDS, ""))
        elif alone:
            code, text = matrix.silent.get((alone[0], alone[0]), NOT_ALONE)
            yield way, Doubt(code, f"node {alone[0]} alone: {text}")
        else:
            yield way, Doubt(Unknown.TOO_FEW_LINKS, "")
