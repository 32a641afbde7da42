"""Draw a run as an SVG: node-time by cause over time, and the lost part by cause. Pure.

It has no dependency, and its colours follow the reader's light or dark setting."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from controlplane.analysis.goodput import CAUSES, KEPT

if TYPE_CHECKING:
    from controlplane.simulation.outcome import SimulationOutcome

WIDTH, LEFT, TOP, CHART_H, ROW_H = 960, 64, 92, 220, 24
CHART_W = WIDTH - LEFT - 24
HUES = {
    KEPT: "#2f9e6e", "down": "#8a8f98", "start": "#b9a44c", "detect": "#d9574a", "decide": "#c2475e",
    "stop": "#e07b39", "store": "#a0632f", "reform": "#e0a13a", "restore": "#c9b13b", "resize": "#5b8def",
    "lost_steps": "#b04fc4", "stalls": "#7d5fd1", "waiting": "#4a4f5a", "idle_layout": "#59b3c9",
    "idle_spare": "#9cc7d6", "joining": "#3d86a8",
}  # fmt: skip
ORDER = (KEPT, *(cause for cause in CAUSES if cause != "down"), "down")
STYLE = """
  svg { --ink: #1c2430; --soft: #68717f; --paper: #ffffff; --line: #d8dde4;
        font-family: system-ui, -apple-system, "Segoe UI", sans-serif; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e8ecf1; --soft: #9aa4b2; --paper: #14181f; --line: #343c48; } }
  .paper { fill: var(--paper); } .ink { fill: var(--ink); } .soft { fill: var(--soft); }
  .line { stroke: var(--line); stroke-width: 1; } text { font-size: 13px; }
  .head { font-size: 19px; font-weight: 600; } .small { font-size: 12px; }
"""


def svg(found: SimulationOutcome) -> str:
    """Return the picture of a run as SVG text."""
    rows = sorted(found.lost_s.items(), key=lambda item: -item[1])
    height = TOP + CHART_H + 74 + ROW_H * max(1, len(rows)) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(_title(found))}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        _text(LEFT, 34, _title(found), "ink head"),
        _text(LEFT, 56, _subtitle(found), "soft"),
        *_chart(found),
        *_bars(found, rows, TOP + CHART_H + 58),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _title(found: SimulationOutcome) -> str:
    return f"{found.goodput:.2%} of {found.nodes} nodes' time made progress that was kept"


def _subtitle(found: SimulationOutcome) -> str:
    return (
        f"{found.days:g} days, {found.failures} failures; nodes were up {found.ceiling:.2%} of the time; "
        f"the best fixed size would have made {found.fixed.goodput:.2%}"
    )


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _floor(found: SimulationOutcome) -> float:
    """Return where the axis begins: a multiple of 10 % below the kept part of every bin."""
    kept = [bin_.get(KEPT, 0.0) / (found.nodes * found.bin_s) for bin_ in found.bins]
    low = min(kept, default=0.0)
    return max(0.0, int(low * 10 - 0.5) / 10) if low > 0 else 0.0


def _chart(found: SimulationOutcome) -> list[str]:
    floor = _floor(found)
    parts = []
    for tick in range(5):
        share = floor + (1 - floor) * tick / 4
        y = TOP + CHART_H * (1 - tick / 4)
        parts.append(f'<line class="line" x1="{LEFT}" x2="{LEFT + CHART_W}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{share:.0%}", "soft small", "end"))
    for tick in range(7):
        x = LEFT + CHART_W * tick / 6
        parts.append(_text(x, TOP + CHART_H + 20, f"day {found.days * tick / 6:.3g}", "soft small", "middle"))
    base = [0.0] * len(found.bins)
    for cause in ORDER:
        shares = [_share(found, bin_, cause) for bin_ in found.bins]
        if any(share > 0 for share in shares):
            top = [min(1.0, low + share) for low, share in zip(base, shares, strict=True)]
            parts.append(_area(cause, base, top, floor))
            base = top
    return parts


def _share(found: SimulationOutcome, bin_: dict[str, float], cause: str) -> float:
    return max(0.0, bin_.get(cause, 0.0) / (found.nodes * found.bin_s))


def _area(cause: str, low: list[float], top: list[float], floor: float) -> str:
    step = CHART_W / len(low)

    def at(share: float) -> float:
        return TOP + CHART_H * (1 - max(0.0, share - floor) / (1 - floor))

    there = [f"{LEFT + step * (i + side):.1f},{at(s):.1f}" for i, s in enumerate(top) for side in (0, 1)]
    back = [f"{LEFT + step * (i + side):.1f},{at(s):.1f}" for i, s in enumerate(low) for side in (0, 1)]
    return f'<polygon fill="{HUES[cause]}" points="{" ".join([*there, *reversed(back)])}"/>'


def _bars(found: SimulationOutcome, rows: list[tuple[str, float]], y: float) -> list[str]:
    whole_s = found.nodes * found.days * 86_400.0
    most = max((spent for _, spent in rows), default=1.0)
    parts = [_text(LEFT, y, "Where the rest went, in part of all node-time", "ink")]
    for index, (cause, spent) in enumerate(rows):
        at = y + 14 + index * ROW_H
        wide = max(1.0, 330.0 * spent / most)
        parts.append(f'<rect x="{LEFT}" y="{at:.1f}" width="{wide:.1f}" height="16" fill="{HUES[cause]}"/>')
        words = f"{spent / whole_s:.3%}  {cause}: {CAUSES[cause]}"
        parts.append(_text(LEFT + wide + 10, at + 13, words, "ink small"))
    return parts
