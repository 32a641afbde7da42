// The map of a job's ranks on a canvas: how long each one's own work takes, compared with its peers. The fuller a cell, the longer; large cells show the number.

import { GAP, Grid, shade } from "./grid.js";

const LARGE = { wide: 46, high: 38 };
const SMALL_MAX = 22;
const SMALL_MIN = 4;
const TEXT_HIGH = 20;
const USUAL_FILL = 0.35;

/** What a cell can mean: words, a colour of the style sheet, and from which ratio to peers on. Ratios as in the detectors (analysis/live/policy.py). */
export const BANDS = [
  { text: "1.5 times its peers or more", colour: "--c3", from: 1.5 },
  { text: "1.1 to 1.5 times", colour: "--c2", from: 1.1 },
  { text: "as long as its peers", colour: "--c7", from: 0.9 },
  { text: "shorter than 0.9 times", colour: "--c1", from: -Infinity },
];

export class RankMap extends Grid {
  /** Draw these ranks. `ratios`: from rank (as text) to its ratio; one that is missing is not known. `marked`: the ranks that a finding names. `side`: ranks per node, if all nodes have as many; rows are multiples of it. */
  show(names, ratios, marked, side) {
    this.ratios = ratios;
    this.marked = marked;
    this.side = side;
    this.colours = { empty: shade("--line"), up: shade("--raised"), text: shade("--text"), soft: shade("--soft"), bands: BANDS.map((band) => shade(band.colour)) };
    this.fill(names);
  }

  measure(width, room) {
    const fits = (wide, high) => Math.ceil(this.names.length / this.#across(width, wide)) * (high + GAP) <= room;
    let [wide, high] = [LARGE.wide, LARGE.high];
    if (!fits(wide, high)) {
      wide = high = SMALL_MAX;
      while (wide > SMALL_MIN && !fits(wide, high)) wide = high = wide - 1;
    }
    this.wide = wide;
    this.high = high;
    this.columns = this.#across(width, wide);
  }

  /** How many cells beside each other: whole nodes, if a node fits. */
  #across(width, wide) {
    const most = Math.max(1, Math.floor((width + GAP) / (wide + GAP)));
    return this.side > 1 && most >= this.side ? most - (most % this.side) : most;
  }

  paint(index, left, top) {
    const { context: draw, wide, high, colours } = this;
    const ratio = this.ratios.get(this.names[index]);
    draw.clearRect(left, top, wide, high);
    if (ratio === undefined) {
      draw.strokeStyle = colours.soft;
      draw.lineWidth = 1;
      draw.strokeRect(left + 0.5, top + 0.5, wide - 1, high - 1);
      if (wide >= LARGE.wide) this.#text("?", left, top);
      return;
    }
    draw.fillStyle = colours.up;
    draw.fillRect(left, top, wide, high);
    const room = wide >= LARGE.wide ? high - TEXT_HIGH : high;
    const full = Math.max(1, Math.round(room * filled(ratio)));
    draw.fillStyle = colours.bands[BANDS.findIndex((band) => ratio >= band.from)];
    draw.fillRect(left, top + high - full, wide, full);
    if (wide >= LARGE.wide) this.#text(ratio.toFixed(2), left, top);
    if (this.marked.has(this.names[index])) this.#frame(left, top);
  }

  #text(text, left, top) {
    const { context: draw } = this;
    draw.fillStyle = this.colours.text;
    draw.font = "13px system-ui, sans-serif";
    draw.textAlign = "center";
    draw.textBaseline = "middle";
    draw.fillText(text, left + this.wide / 2, top + TEXT_HIGH / 2 + 1);
  }

  #frame(left, top) {
    const { context: draw } = this;
    const thick = this.wide >= 8 ? 2 : 1;
    draw.strokeStyle = this.colours.text;
    draw.lineWidth = thick;
    draw.strokeRect(left + thick / 2, top + thick / 2, this.wide - thick, this.high - thick);
  }
}

/** Which part of a cell is filled: a third for a rank like its peers, all of it from twice as long on. */
function filled(ratio) {
  const part = ratio < 1 ? USUAL_FILL * ratio : USUAL_FILL + (1 - USUAL_FILL) * (ratio - 1);
  return Math.max(0, Math.min(1, part));
}
