// The map of nodes and ranks on a canvas: a cell per node, a square in it per rank. Only cells that changed are drawn again.

import { GAP, Grid, shade } from "./grid.js";

const RANK_MAX = 28; // of few nodes, on a third of the room
const RANK_EASY = 14; // of as many as fit
const RANK_MIN = 3;
const DEAD = new Set(["raised", "exited"]);
const COMING = new Set(["starting", "ready", "forming"]);

/** The meanings of a square, for the legend: words, and a colour of the style sheet. */
export const MEANINGS = [
  ["running", "--c0"], ["coming or forming", "--c1"], ["waiting, not started", "--c5"], ["past its deadline", "--c2"],
  ["dead", "--c3"], ["finished", "--c7"],
];

export class HeatMap extends Grid {
  /** Lay out these nodes again and draw all of them. `rows`: from name to row; `phases`: names of ranks' phases, by index. */
  show(names, rows, phases) {
    this.rows = rows;
    this.phases = phases;
    this.#colours();
    this.fill(names);
  }

  measure(width, room) {
    const most = Math.max(1, ...this.names.map((name) => Math.max(this.rows.get(name).slots, held(this.rows.get(name)))));
    const across = Math.ceil(Math.sqrt(most));
    const down = Math.ceil(most / across);
    let rank = RANK_MAX;
    const tall = (size) => Math.ceil(this.names.length / this.fitting(width, across * size)) * (down * size + GAP + 2);
    while (rank > RANK_MIN && tall(rank) > (rank > RANK_EASY ? room / 3 : room)) rank -= 1;
    this.rank = rank;
    this.across = across;
    this.wide = across * rank + 2;
    this.high = down * rank + 2;
    this.columns = this.fitting(width, across * rank);
  }

  #colours() {
    this.colours = {
      ground: shade("--ground"), up: shade("--raised"), line: shade("--line"), text: shade("--text"),
      running: shade("--c0"), coming: shade("--c1"), waiting: shade("--c5"), stalled: shade("--c2"), dead: shade("--c3"), finished: shade("--c7"),
    };
    this.states = { up: this.colours.up, expected: this.colours.line, left: this.colours.line, suspect: this.colours.stalled, lost: this.colours.dead };
  }

  paint(index, left, top) {
    const { context: draw, rank, colours } = this;
    const row = this.rows.get(this.names[index]);
    if (!row) return;
    const gone = ["lost", "left", "expected"].includes(row.state);
    draw.fillStyle = this.states[row.state] ?? colours.line;
    draw.fillRect(left, top, this.wide, this.high);
    if (row.state === "suspect" || row.state === "lost") {
      draw.fillStyle = colours.ground;
      draw.fillRect(left + 1, top + 1, this.wide - 2, this.high - 2);
    }
    let place = 0;
    for (const flat of Object.values(row.ranks)) {
      for (let i = 0; i < flat.length; i += 3) {
        const x = left + 1 + (place % this.across) * rank;
        const y = top + 1 + Math.floor(place / this.across) * rank;
        this.#square(x, y, flat[i], this.phases[flat[i + 1]], flat[i + 2]);
        place += 1;
      }
    }
    if (gone) this.#cross(left, top, this.wide, this.high, row.state === "lost" ? colours.dead : colours.waiting);
    else if (row.standing !== "ok") this.#corner(left, top);
  }

  #square(x, y, rank, phase, mark) {
    const { context: draw, colours } = this;
    const size = this.rank - 1;
    draw.fillStyle = mark ? colours.stalled
      : DEAD.has(phase) ? colours.dead
      : COMING.has(phase) ? colours.coming
      : phase === "running" ? colours.running
      : phase === "finished" ? colours.finished : colours.waiting;
    if (rank < 0) draw.fillRect(x + size / 4, y + size / 4, size / 2, size / 2);
    else draw.fillRect(x, y, size, size);
    if (DEAD.has(phase) && size >= 6) this.#cross(x, y, size, size, colours.ground);
  }

  #cross(x, y, wide, high, colour) {
    const { context: draw } = this;
    draw.strokeStyle = colour;
    draw.lineWidth = 1.5;
    draw.beginPath();
    draw.moveTo(x + 1, y + 1);
    draw.lineTo(x + wide - 1, y + high - 1);
    draw.moveTo(x + wide - 1, y + 1);
    draw.lineTo(x + 1, y + high - 1);
    draw.stroke();
  }

  #corner(left, top) {
    const { context: draw } = this;
    draw.fillStyle = this.colours.text;
    draw.beginPath();
    draw.moveTo(left + this.wide, top);
    draw.lineTo(left + this.wide - 5, top);
    draw.lineTo(left + this.wide, top + 5);
    draw.fill();
  }
}

function held(row) {
  return Object.values(row.ranks).reduce((sum, flat) => sum + flat.length / 3, 0);
}
