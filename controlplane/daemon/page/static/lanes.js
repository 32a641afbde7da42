// The step of each rank as a bar of its parts, one below the other on one scale of time: who works while the others wait.

import { PARTS } from "./colours.js";
import { bar, el, keyed, say } from "./dom.js";
import { duration, fill, furthest } from "./steps.js";
import { count } from "./words.js";

const SHOWN = 16;
const MOST = 64;

/** The bars: of 16 ranks until more are asked for. `show(anatomy)` updates them. `what`: what a bar is, in words. */
export function lanes(what = "An average step of each rank") {
  const note = el("p", { class: "soft" });
  const list = el("ol", { class: "lanes" });
  const more = el("button", { type: "button", onclick: () => { most = most === SHOWN ? MOST : SHOWN; draw(); } });
  let most = SHOWN;
  let seen = null;

  function draw() {
    const named = new Set([seen.typical_rank, seen.slowest_rank]);
    const always = seen.ranks.filter((row) => named.has(row.rank));
    const others = seen.ranks.filter((row) => !named.has(row.rank));
    const known = Math.min(MOST, seen.ranks.length);
    const shown = [...always, ...furthest(others, Math.min(most, known) - always.length)].sort((a, b) => a.rank - b.rank);
    const longest = Math.max(...shown.map((row) => row.step_s));
    const all = seen.columns.ranks.length;
    say(note, `${what}: where one rank works longer, the others wait for it in communication. A full bar is ${duration(longest)}. `
      + `${shown.length < all ? `${count(shown.length)} of ${count(all)} ranks: the slowest, a typical one, and those that differ most from their peers.` : ""}`);
    keyed(list, shown, (row) => String(row.rank), lane, (item, row) => {
      const [name, strip, time] = item.children;
      const kind = row.rank === seen.slowest_rank ? " (slowest)" : row.rank === seen.typical_rank ? " (typical)" : "";
      say(name.firstChild, `rank ${row.rank}${kind}`);
      say(name.lastChild, row.node);
      name.lastChild.setAttribute("href", `/nodes/${encodeURIComponent(row.node)}`);
      fill(strip.firstChild, row, longest);
      say(time, duration(row.step_s));
      item.classList.toggle("slowest", row.rank === seen.slowest_rank);
    });
    more.hidden = known <= SHOWN;
    say(more, most === SHOWN ? `Show ${count(known)} ranks` : `Show ${SHOWN} ranks`);
  }

  return {
    element: el("div", {}, note,
      el("ul", { class: "legend" }, Object.entries(PARTS).map(([name, colour]) => el("li", {}, el("i", { class: colour }), name === "data" ? "data (waiting for it)" : name))),
      list, more),
    show(anatomy) {
      seen = anatomy;
      draw();
    },
  };
}

function lane() {
  return el("li", {}, el("span", {}, el("span"), " ", el("a")), el("span", {}, bar()), el("span", { class: "time" }));
}
