// Findings of a job: what is wrong, since when, why, what to do about it, and the button to mute it.

import { acts } from "./acts.js";
import { el, facts, keyed, say } from "./dom.js";
import { count, moment, percent, plain } from "./words.js";

const SHOWN = 5;

/** A list of findings, some of them until more are asked for. `draw()` shows the buttons that the viewer may press now; `after` is called when one has been carried out. */
export function findings(job, after) {
  const none = el("p", { class: "soft" });
  const list = el("ul", { class: "findings" });
  const more = el("button", { type: "button", onclick: () => { most = Infinity; show(known); } });
  let most = SHOWN;
  let known = [];
  function show(rows) {
    known = rows;
    keyed(list, rows.slice(0, most), (row) => `${row.id} ${row.opened_s}`, (row) => finding(job, row, after), (element, row) => element.show(row));
    more.hidden = rows.length <= most;
    say(more, `Show all ${count(rows.length)}`);
  }
  return {
    element: el("div", {}, none, list, more),
    show(rows, empty) {
      none.hidden = rows.length > 0;
      say(none, empty);
      show(rows);
    },
    draw() {
      for (const element of list.children) element.draw();
    },
  };
}

function finding(job, first, after) {
  const severity = el("strong");
  const muted = el("span", { class: "badge soft" });
  const title = el("span");
  const since = el("p", { class: "soft" });
  const why = el("p");
  const advice = el("ol");
  const evidence = facts();
  const buttons = acts("finding", { job, id: first.id }, after);
  let now = first;
  const element = el("li", { class: "card" },
    el("h3", {}, severity, " ", title, " ", muted), since, why,
    el("h4", {}, "What to do, the best first"), advice,
    el("details", {}, el("summary", {}, "Evidence"), evidence), buttons.element);
  element.show = (row) => {
    now = row;
    say(severity, row.severity);
    severity.className = { critical: "bad", warning: "warn" }[row.severity] ?? "";
    say(title, `${plain(row.kind)}: ${row.about}`);
    muted.hidden = !row.muted;
    say(muted, row.muted ? `muted until ${moment(row.muted_until_s)}` : "");
    say(since, told(row));
    say(why, row.reason);
    keyed(advice, row.recommendations, (each) => each.action, () => el("li"), (item, each) => say(item, advised(each)));
    advice.previousSibling.hidden = advice.hidden = !row.recommendations.length;
    evidence.show(Object.entries(row.evidence).map(([name, value]) => [plain(name), typeof value === "number" ? number(value) : value]));
    element.draw();
  };
  element.draw = () => buttons.draw(now.resolved_s === null ? now : undefined);
  return element;
}

function told(row) {
  const end = row.resolved_s === null ? "" : `, resolved ${moment(row.resolved_s)}`;
  const step = row.first_step === null ? "" : `, since step ${count(row.first_step)}`;
  const sure = row.confidence < 1 ? `, confidence ${row.confidence.toFixed(2)}` : "";
  return `since ${moment(row.opened_s)}${end}${step}${sure}`;
}

function advised(each) {
  const gain = each.gain_ratio === null ? "" : `saves up to ${percent(each.gain_ratio)} of a step`;
  const effort = each.effort ? `${each.effort} effort` : "";
  const more = [gain, effort].filter(Boolean).join(", ");
  return more ? `${each.action} (${more})` : each.action;
}

function number(value) {
  return Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(4)));
}
