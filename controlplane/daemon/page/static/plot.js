// One curve over time in SVG, with axes: values on the left, the reader's own time below. A break in the values is a gap.

import { el, say, svg } from "./dom.js";
import { moment } from "./words.js";

const HIGH = 150, LEFT = 62, RIGHT = 12, TOP = 8, BOTTOM = 22;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800];

/** Round values between which an axis from `low` to `high` has about `wanted` parts. */
export function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * unit).find((each) => each >= rough * 0.999);
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index += 1) found.push(Number((index * step).toPrecision(12)));
  return found;
}

/** Moments between which a time axis has about `wanted` parts, at round times of the reader's clock. */
function times(low, high, wanted) {
  const step = STEPS_S.find((each) => each >= (high - low) / wanted) ?? STEPS_S.at(-1);
  const shift = new Date(low * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((low - shift) / step) * step + shift; at <= high; at += step) found.push(at);
  return found;
}

function clock(at, whole) {
  const text = moment(at);
  return whole > 172800 ? text.slice(5, 16) : whole > 600 ? text.slice(11, 16) : text.slice(11);
}

/** The range of an axis for these values: room above and below, also when all are equal. `fixed`: its own range. */
function range(values, fixed) {
  if (fixed) return fixed;
  const low = Math.min(...values), high = Math.max(...values);
  const room = Math.max((high - low) * 0.08, Math.max(Math.abs(high), Math.abs(low)) * 0.02) || 1;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

/** A plot. `write(value)` makes a value readable; `fixed`: [low, high] of the axis, or null. `show(curve)` draws {at_s, values}. */
export function plot(title, colour, write, fixed = null) {
  const chart = svg("svg", { class: `plot ${colour}`, role: "img", tabindex: "0" });
  const pointed = el("span", { class: "soft" });
  const element = el("div", { class: "curve", hidden: true }, el("p", {}, el("b", {}, title), " ", pointed), chart);
  let points = [];
  let known = [];
  let scale = null;
  let at = -1;

  function point(index) {
    at = index;
    const [when, value] = points[index];
    say(pointed, `${value === null ? "not known" : write(value)} · ${moment(when)}`);
    const mark = chart.querySelector(".mark");
    mark.setAttribute("cx", scale.x(when));
    mark.setAttribute("cy", value === null ? -99 : scale.y(value));
  }
  function nearest(event) {
    if (!points.length) return;
    const x = event.clientX - chart.getBoundingClientRect().left;
    let best = 0;
    points.forEach(([when], index) => { if (Math.abs(scale.x(when) - x) < Math.abs(scale.x(points[best][0]) - x)) best = index; });
    point(best);
  }
  function key(event) {
    const moves = { ArrowLeft: Math.max(0, at < 0 ? points.length - 1 : at - 1), ArrowRight: Math.min(points.length - 1, at + 1), Home: 0, End: points.length - 1 };
    if (!points.length || !(event.key in moves)) return;
    event.preventDefault();
    point(moves[event.key]);
  }
  function leave() {
    at = -1;
    chart.querySelector(".mark")?.setAttribute("cx", -99);
    newest();
  }
  function newest() {
    const last = points.at(-1);
    say(pointed, !last ? "" : last[1] === null ? "not known now" : write(last[1]));
  }
  chart.addEventListener("pointermove", nearest);
  chart.addEventListener("pointerleave", leave);
  chart.addEventListener("blur", leave);
  chart.addEventListener("keydown", key);

  element.show = (curve) => {
    const held = at < 0 ? null : points[at][0];
    points = curve.at_s.map((when, index) => [when, curve.values[index]]);
    known = points.map(([, value]) => value).filter((value) => value !== null);
    element.hidden = known.length === 0;
    if (!known.length) return;
    draw();
    const again = held === null ? -1 : points.findIndex(([when]) => when === held);
    again >= 0 ? point(again) : leave();
  };

  function draw() {
    const wide = Math.max(240, chart.clientWidth);
    const first = points[0][0], last = Math.max(points.at(-1)[0], first + 60);
    const [low, high] = range(known, fixed);
    scale = {
      x: (when) => LEFT + ((when - first) / (last - first)) * (wide - LEFT - RIGHT),
      y: (value) => HIGH - BOTTOM - ((value - low) / (high - low)) * (HIGH - BOTTOM - TOP),
    };
    chart.setAttribute("viewBox", `0 0 ${wide} ${HIGH}`);
    chart.setAttribute("aria-label", `${title} from ${moment(first)} to ${moment(points.at(-1)[0])}: `
      + `between ${write(Math.min(...known))} and ${write(Math.max(...known))}. Arrow keys read single points.`);
    chart.replaceChildren(
      ...ticks(low, high, 6).flatMap((value) => [
        svg("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: scale.y(value), y2: scale.y(value) }),
        svg("text", { x: LEFT - 6, y: scale.y(value) + 4, class: "left" }, write(value))]),
      ...times(first, last, wide / 110).flatMap((when) => [
        svg("line", { class: "grid", x1: scale.x(when), x2: scale.x(when), y1: HIGH - BOTTOM, y2: HIGH - BOTTOM + 4 }),
        svg("text", { x: Math.min(scale.x(when), wide - RIGHT - 16), y: HIGH - 5, class: "below" }, clock(when, last - first))]),
      svg("path", { class: "line", d: path(points, scale) }),
      svg("circle", { class: "mark", r: 4, cx: -99, cy: -99 }),
    );
  }
  new ResizeObserver(() => { if (known.length && chart.clientWidth) { draw(); if (at >= 0) point(at); } }).observe(chart);
  return element;
}

/** The line through all points; it ends before a break and begins again behind it. A point alone is a dot. */
function path(points, scale) {
  let text = "";
  let down = false;
  for (const [when, value] of points) {
    if (value !== null) text += `${down ? "L" : "M"}${scale.x(when).toFixed(1)} ${scale.y(value).toFixed(1)}${down ? "" : "h.01"}`;
    down = value !== null;
  }
  return text;
}
