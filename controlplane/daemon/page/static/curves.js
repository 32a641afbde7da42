// The curves of a job: its loss, the time of a step, and its goodput by the minute.

import { el, say } from "./dom.js";
import { ask } from "./feed.js";
import { plot } from "./plot.js";
import { span } from "./words.js";

const EVERY_MS = 5000;

/** The curves of a job, read again every 5 s until `close()`. */
export function curves(job) {
  const plots = {
    loss: plot("Loss", "p0", (value) => String(short(value))),
    step_s: plot("Time of a step", "p1", time),
    goodput: plot("Goodput by the minute", "p2", (value) => `${Number((100 * value).toFixed(1))} %`, [0, 1]),
  };
  const note = el("p", { class: "soft" });
  let closed = false;

  async function load() {
    try {
      const found = await ask(`/api/jobs/${encodeURIComponent(job)}/curves`);
      if (closed) return;
      for (const [name, each] of Object.entries(plots)) each.show(found[name]);
      say(note, words(found));
    } catch (error) {
      if (!closed) say(note, error.message);
    }
  }
  load();
  const timer = setInterval(load, EVERY_MS);
  return {
    element: el("div", {}, el("div", { class: "curves" }, Object.values(plots)), note),
    close() {
      closed = true;
      clearInterval(timer);
    },
  };
}

function short(value) {
  return Number(value.toPrecision(4));
}

/** A step's time, with enough digits that neighbours on an axis differ. */
function time(seconds) {
  return seconds < 1 ? `${short(1000 * seconds)} ms` : seconds < 60 ? `${short(seconds)} s` : span(seconds);
}

/** What the curves do not say themselves. */
function words(found) {
  const known = (name) => found[name].values.some((value) => value !== null);
  const missing = [
    ...(known("loss") ? [] : [found.loss.values.length ? "No loss was a finite number." : "No loss is known: session.report(loss=...) in the script tells it."]),
    ...(known("step_s") ? [] : ["No rank has reported the time of its steps."]),
  ];
  const each = Math.max(found.loss.values_each, found.step_s.values_each);
  const thinned = each > 1 ? [`A point is the mean of up to ${each} values.`] : [];
  const shown = ["loss", "step_s", "goodput"].some(known);
  return [...missing, ...thinned, ...(shown ? [`A gap: not known, or not finite. All since this coordinator leads.`] : [])].join(" ");
}
