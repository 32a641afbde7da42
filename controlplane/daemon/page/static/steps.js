// An average step of a rank: its parts as a bar and as text, and which ranks differ most.

import { PARTS } from "./colours.js";
import { percent, span } from "./words.js";

/** The ranks that differ most from their peers, so many, in the order of ranks: the same as the command line shows. */
export function furthest(rows, most) {
  const far = (row) => Math.abs((row.ratio ?? 1) - 1);
  return [...rows].sort((a, b) => far(b) - far(a) || a.rank - b.rank).slice(0, most).sort((a, b) => a.rank - b.rank);
}

/** Show the parts of a rank's step in a bar. One as long as `longest` (s) is full. */
export function fill(strip, row, longest) {
  strip.style.width = `${(100 * row.step_s) / (longest || 1)}%`;
  strip.show(Object.entries(PARTS).map(([name, colour]) => ({ name, value: row.shares[name], colour, title: `${name} ${part(row, name)}` })),
    `rank ${row.rank}: ${Object.keys(PARTS).filter((name) => row.shares[name] > 0).map((name) => `${name} ${part(row, name)}`).join(", ")}`);
}

/** How long a part of a rank's step takes, and which share of it. */
export function part(row, name) {
  return row.shares[name] === 0 ? "–" : `${duration(row.shares[name] * row.step_s)}, ${percent(row.shares[name])}`;
}

/** A span of a part of a step, exact enough for fast steps: 3.2 ms. */
export function duration(seconds) {
  return seconds < 0.1 && seconds > 0 ? `${(seconds * 1000).toPrecision(3)} ms` : span(seconds);
}
