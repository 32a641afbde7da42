// A grid of cells of one size on a canvas: layout, pointing, and selection by keyboard. What a cell looks like is up to who extends it.

const SIDE_MAX = 16000;
export const GAP = 2;

export class Grid {
  /** `pick(name)` is called when a cell is clicked or opened by Enter, `point(name)` when it is pointed at or selected. */
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

  /** Set `wide`, `high` and `columns` of the cells of these names, for a canvas so wide, and better not higher than `room`. */
  measure(_width, _room) {
    throw new Error("a grid says how large its cells are");
  }

  /** Draw the cell of this index, with this left upper corner. */
  paint(_index, _left, _top) {
    throw new Error("a grid draws its cells");
  }

  /** Lay out cells of these names, and draw all of them. */
  fill(names) {
    const chosen = this.names[this.at];
    this.names = names;
    this.places = new Map(names.map((name, index) => [name, index]));
    if (chosen !== undefined) this.at = this.places.get(chosen) ?? Math.min(this.at, names.length - 1);
    this.#lay();
    for (let index = 0; index < names.length; index += 1) this.#cell(index);
    if (document.activeElement === this.canvas) this.#ring(true);
  }

  /** Draw these cells again. */
  again(names) {
    for (const name of names) {
      const index = this.places.get(name);
      if (index !== undefined) this.#cell(index);
    }
    if (document.activeElement === this.canvas) this.#ring(true);
  }

  /** Select a cell, for the arrow keys and Enter. */
  select(index) {
    if (!this.names.length) return;
    this.#ring(false);
    this.at = Math.max(0, Math.min(this.names.length - 1, index));
    this.#ring(true);
    this.point(this.names[this.at]);
  }

  /** How many cells that are `inner` wide within fit beside each other. */
  fitting(width, inner) {
    return Math.max(1, Math.floor((width + GAP) / (inner + 2 + GAP)));
  }

  #lay() {
    const width = Math.max(120, this.canvas.parentElement.clientWidth);
    this.measure(width, Math.max(320, innerHeight - 220));
    const rows = Math.ceil(this.names.length / this.columns);
    const height = Math.max(this.high, rows * (this.high + GAP));
    const scale = Math.min(2, devicePixelRatio || 1, SIDE_MAX / height);
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    this.context.setTransform(this.canvas.width / width, 0, 0, this.canvas.height / height, 0, 0);
  }

  #corner(index) {
    return [(index % this.columns) * (this.wide + GAP), Math.floor(index / this.columns) * (this.high + GAP)];
  }

  #cell(index) {
    this.paint(index, ...this.#corner(index));
  }

  #ring(on) {
    if (this.at < 0 || this.at >= this.names.length) return;
    const [left, top] = this.#corner(this.at);
    if (!on) {
      this.context.clearRect(left - GAP, top - GAP, this.wide + 2 * GAP, this.high + 2 * GAP);
      for (const off of [-this.columns - 1, -this.columns, -this.columns + 1, -1, 0, 1, this.columns - 1, this.columns, this.columns + 1]) {
        if (this.at + off >= 0 && this.at + off < this.names.length) this.#cell(this.at + off);
      }
      return;
    }
    this.context.strokeStyle = shade("--mark");
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

/** A colour of the style sheet, as it is now. */
export function shade(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
