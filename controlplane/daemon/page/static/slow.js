// The slow steps of a job: a list to choose from, and of the chosen one a bar per rank with its phases.

import { column, el, say, table } from "./dom.js";
import { ask } from "./feed.js";
import { lanes } from "./lanes.js";
import { duration } from "./steps.js";
import { count, moment } from "./words.js";

const EVERY_MS = 3000;
const SHOWN = 10;

/** The list and the bars. `elements` go into the view; `close()` ends them. */
export function slowSteps(job) {
  const none = el("p", { class: "soft" });
  const told = el("p", { "aria-live": "polite" });
  const bars = lanes("This step of each rank");
  const more = el("button", { type: "button", onclick: () => { most = most === SHOWN ? Infinity : SHOWN; show(); } });
  const list = table(`Slow steps of ${job}`, [
    { name: "Step", fill: (cell, row) => {
      if (!cell.firstChild) cell.append(el("button", { type: "button", onclick: () => choose(key(cell.row)) }));
      cell.row = row;
      say(cell.firstChild, count(row.step));
      cell.firstChild.setAttribute("aria-pressed", String(key(row) === chosen));
      cell.firstChild.setAttribute("aria-label", `Show step ${row.step} of generation ${row.generation}`);
    } },
    column("Seen", (row) => moment(row.seen_s)),
    column("Took", (row) => duration(row.wall_s), true),
    column("Usual", (row) => duration(row.usual_s), true),
    column("Ranks", (row) => `${count(row.ranks_known)} of ${count(row.ranks_expected)}`, true),
    column("Generation", (row) => String(row.generation), true),
  ], key);
  let steps = [];
  let most = SHOWN;
  let chosen = "";
  let closed = false;

  async function load() {
    try {
      const found = await ask(`/api/jobs/${encodeURIComponent(job)}/slow`);
      if (closed) return;
      steps = found.steps;
      say(none, note(found));
      show();
    } catch (error) {
      if (!closed) say(none, error.message);
    }
  }

  function show() {
    list.hidden = !steps.length;
    list.show(steps.slice(0, most));
    more.hidden = steps.length <= SHOWN;
    say(more, most === SHOWN ? `Show ${count(steps.length)} steps` : `Show ${SHOWN} steps`);
  }

  async function choose(name) {
    chosen = name;
    show();
    try {
      const found = await ask(`/api/jobs/${encodeURIComponent(job)}/slow/${name}`);
      if (closed || chosen !== name) return;
      const missing = found.ranks_expected - found.ranks_known;
      say(told, `Step ${count(found.step)} of generation ${found.generation} took ${duration(found.wall_s)}, and usually one takes ${duration(found.usual_s)}.`
        + `${missing > 0 ? ` ${count(missing)} ranks did not find it slow, or have not said so.` : ""}`);
      bars.element.hidden = false;
      bars.show(found);
    } catch (error) {
      if (closed || chosen !== name) return;
      bars.element.hidden = true;
      say(told, error.message);
    }
  }

  bars.element.hidden = true;
  load();
  const timer = setInterval(load, EVERY_MS);
  return {
    elements: [el("h2", {}, "Slow steps"), none, list, more, told, bars.element],
    close() {
      closed = true;
      clearInterval(timer);
    },
  };
}

function key(row) {
  return `${row.generation}/${row.step}`;
}

function note(found) {
  const lost = found.more ? ` ${count(found.more)} slow steps of ranks followed each other too closely to be kept.` : "";
  if (!found.steps.length) return `No rank has reported a step that took twice as long as usual, since this leader began.${lost}`;
  return `Steps that took at least twice as long as usual, the newest first. Press one to see what each rank did in it. Own work is `
    + `divided as in steps that were measured, waits are exact.${lost}`;
}
