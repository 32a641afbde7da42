// The map of nodes and ranks on a canvas: a cell per node, a square in it per rank. Only cells that changed are drawn again.

const GAP = 2;
const RANK_MAX = 14;
const RANK_MIN = 3;
const SIDE_MAX = 16000;
const DEAD = new Set(["raised", "exited"]);
const COMING = new Set(["starting", "ready", "forming"]);

/** The meanings of a square, for the legend: words, and a colour of the style sheet. */
export const MEANINGS = [
  ["running", "--c0"], ["coming or forming", "--c1"], ["waiting, not started", "--c5"], ["past its deadline", "--c2"],
  ["dead", "--c3"], ["finished", "--c7"],
];

export class HeatMap {
  /** `pick(name)` is called when a node is clicked or opened by Enter, `point(name)` when it is pointed at or selected. */
  constructor(canvas, pick, point) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.names = [];
    this.places = new Map();
    this.at = -1;
    this.point = point;
    canvas.addEventListener("click", (event) => this.#over(event, pick));
    canvas.addEventListener("pointermove", (event) => this.#over(event, point));
    canvas.addEventListener("keydown", (event) => this.#key(event, pick));
    canvas.addEventListener("focus", () => this.select(Math.max(0, this.at)));
    canvas.addEventListener("blur", () => this.#ring(false));
  }

  /** Lay out these nodes again and draw all of them. `rows`: from name to row; `phases`: names of ranks' phases, by index. */
  show(names, rows, phases) {
    this.rows = rows;
    this.phases = phases;
    const chosen = this.names[this.at];
    this.names = names;
    this.places = new Map(names.map((name, index) => [name, index]));
    if (chosen !== undefined) this.at = this.places.get(chosen) ?? Math.min(this.at, names.length - 1);
    this.#lay();
    this.#colours();
    for (let index = 0; index < names.length; index += 1) this.#cell(index);
    if (document.activeElement === this.canvas) this.#ring(true);
  }

  /** Draw these nodes again. */
  again(names) {
    for (const name of names) {
      const index = this.places.get(name);
      if (index !== undefined) this.#cell(index);
    }
    if (document.activeElement === this.canvas) this.#ring(true);
  }

  /** Select a node, for the arrow keys and Enter. */
  select(index) {
    if (!this.names.length) return;
    this.#ring(false);
    this.at = Math.max(0, Math.min(this.names.length - 1, index));
    this.#ring(true);
    this.point(this.names[this.at]);
  }

  #lay() {
    const width = Math.max(120, this.canvas.parentElement.clientWidth);
    const most = Math.max(1, ...this.names.map((name) => Math.max(this.rows.get(name).slots, held(this.rows.get(name)))));
    const across = Math.ceil(Math.sqrt(most));
    const down = Math.ceil(most / across);
    const room = Math.max(320, innerHeight - 220);
    let rank = RANK_MAX;
    const tall = (size) => Math.ceil(this.names.length / this.#columns(width, across * size)) * (down * size + GAP + 2);
    while (rank > RANK_MIN && tall(rank) > room) rank -= 1;
    this.rank = rank;
    this.across = across;
    this.wide = across * rank + 2;
    this.high = down * rank + 2;
    this.columns = this.#columns(width, across * rank);
    const rows = Math.ceil(this.names.length / this.columns);
    const height = Math.max(this.high, rows * (this.high + GAP));
    const scale = Math.min(2, devicePixelRatio || 1, SIDE_MAX / height);
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    this.context.setTransform(this.canvas.width / width, 0, 0, this.canvas.height / height, 0, 0);
  }

  #columns(width, inner) {
    return Math.max(1, Math.floor((width + GAP) / (inner + 2 + GAP)));
  }

  #colours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    this.colours = {
      ground: read("--ground"), up: read("--raised"), line: read("--line"), mark: read("--mark"), text: read("--text"),
      running: read("--c0"), coming: read("--c1"), waiting: read("--c5"), stalled: read("--c2"), dead: read("--c3"), finished: read("--c7"),
    };
    this.states = { up: this.colours.up, expected: this.colours.line, left: this.colours.line, suspect: this.colours.stalled, lost: this.colours.dead };
  }

  #cell(index) {
    const { context: draw, rank, colours } = this;
    const row = this.rows.get(this.names[index]);
    if (!row) return;
    const left = (index % this.columns) * (this.wide + GAP);
    const top = Math.floor(index / this.columns) * (this.high + GAP);
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

  #ring(on) {
    if (this.at < 0 || this.at >= this.names.length) return;
    const left = (this.at % this.columns) * (this.wide + GAP);
    const top = Math.floor(this.at / this.columns) * (this.high + GAP);
    if (!on) {
      this.context.fillStyle = this.colours.ground;
      this.context.fillRect(left - GAP, top - GAP, this.wide + 2 * GAP, this.high + 2 * GAP);
      for (const off of [-this.columns - 1, -this.columns, -this.columns + 1, -1, 0, 1, this.columns - 1, this.columns, this.columns + 1]) {
        if (this.at + off >= 0 && this.at + off < this.names.length) this.#cell(this.at + off);
      }
      return;
    }
    this.context.strokeStyle = this.colours.mark;
    this.context.lineWidth = 2;
    this.context.strokeRect(left, top, this.wide, this.high);
  }

  #over(event, what) {
    const x = Math.floor(event.offsetX / (this.wide + GAP));
    const y = Math.floor(event.offsetY / (this.high + GAP));
    const name = x < this.columns ? this.names[y * this.columns + x] : undefined;
    if (name !== undefined) what(name);
  }

  #key(event, pick) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.select(this.at + steps[event.key]);
    } else if (event.key === "Enter" && this.at >= 0) {
      pick(this.names[this.at]);
    }
  }
}

function held(row) {
  return Object.values(row.ranks).reduce((sum, flat) => sum + flat.length / 3, 0);
}
