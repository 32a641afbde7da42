// What a rank has written, and where it is now: read only when somebody presses a button, as `holdfast logs` and `holdfast stacks` read it.

import { copier, el, facts, say } from "./dom.js";
import { post, state } from "./feed.js";
import { count, plain, size, span } from "./words.js";

const READS = { log: "Log", stacks: "Stacks" };

/** A column with the buttons that read a rank's log and stacks. Spares have no rank to ask for. `job(row)`: the rank's job. */
export function outputColumn(job) {
  return { name: "Output", fill: (cell, row) => {
    if (!cell.firstChild) {
      cell.append(el("span", { class: "buttons" }, Object.entries(READS).map(([kind, name]) =>
        el("button", { type: "button", "data-kind": kind, onclick: () => show(kind, cell.of) }, name))));
    }
    cell.of = { job: job(row), rank: row.rank };
    for (const button of cell.firstChild.children) {
      button.hidden = row.rank < 0 || !state.session?.reads.includes(button.dataset.kind);
      button.setAttribute("aria-label", `${READS[button.dataset.kind]} of rank ${row.rank} of ${cell.of.job}`);
    }
  } };
}

/** Why some buttons are missing; "" when none is. */
export function outputNote() {
  const reads = state.session?.reads;
  if (!reads || reads.length === Object.keys(READS).length) return "";
  const role = state.session.role ? `A ${state.session.role}` : "Who is not logged in";
  return reads.includes("log") ? `${role} may read logs, but not stacks: log in as an operator for these.`
    : `${role} may read neither logs nor stacks: logs are for operators and readers, stacks for operators.`;
}

function show(kind, { job, rank }) {
  const told = facts();
  const note = el("p", { role: "status" });
  const body = el("div");
  const text = () => [...body.querySelectorAll("pre")].map((each) => each.textContent).join("\n");
  const buttons = el("div", { class: "row" },
    el("button", { type: "button", onclick: () => load(previous) }, "Read again"),
    kind === "log" ? el("button", { type: "button", onclick: () => load(!previous) }, OTHER[false]) : "",
    copier(text),
    copier(() => command(kind, job, rank, previous), "Copy the command"),
    el("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  const dialog = el("dialog", { class: "output", "aria-label": `${READS[kind]} of rank ${rank} of ${job}` },
    el("h2", {}, `${READS[kind]} of rank ${rank} of ${job}`), buttons, note, told, body);
  let previous = false;
  let asked = 0;

  async function load(former) {
    const mine = asked += 1;
    previous = former;
    if (kind === "log") say(buttons.children[1], OTHER[previous]);
    say(note, "reading");
    try {
      const found = await post(`/api/read/${kind}`, kind === "log" ? { job, rank, previous } : { job, ranks: [rank] });
      if (mine !== asked) return;
      say(note, "");
      if (kind === "log") log(found);
      else stacks(found.ranks[0]);
    } catch (error) {
      if (mine !== asked) return;
      told.show([]);
      body.replaceChildren();
      say(note, error.message);
    }
  }

  function log(found) {
    told.show(found.text === null ? [] : origin(found));
    body.replaceChildren(...(found.text ? [pre(found.text, `Log of rank ${rank}`)] : []));
    say(note, lacks(found, previous));
    if (body.firstChild) body.firstChild.scrollTop = body.firstChild.scrollHeight;
  }

  function stacks(found) {
    told.show(found.reason ? [["Node", found.node]] : standing(found));
    body.replaceChildren(...(found.stacks ? [pre(found.stacks, `Stacks of rank ${rank}`)] : []));
    const cut = found.left_out ? ` ${count(found.left_out)} characters more are left out.` : "";
    say(note, found.reason ? `No stacks: ${found.reason}.` : found.stacks ? cut : "It has sent no stacks.");
  }

  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  load(false);
}

const OTHER = { false: "The process before", true: "The process now" };

function pre(text, label) {
  return el("pre", { class: "log", tabindex: "0", role: "region", "aria-label": label }, text);
}

function origin(found) {
  const ended = found.alive ? "" : ", it has ended";
  return [["Node", found.node], ["Process", `${found.process}, generation ${count(found.generation)}${ended}`],
    ["Shown", found.before_bytes ? `its end; ${size(found.before_bytes)} before that are kept, see the command` : "all that is kept"],
    ...(found.gone_bytes ? [["Gone", `the first ${size(found.gone_bytes)} are not kept any more`]] : [])];
}

/** What is not there, and why. */
function lacks(found, previous) {
  const why = found.reason ? ` ${found.reason}.` : "";
  if (found.text === null) return `No log of ${previous ? "an earlier process" : "this rank"} is found.${why}`;
  return `${found.text ? "" : "It has written nothing."}${why}`.trim();
}

function standing(found) {
  const late = found.stalled ? ", past its deadline" : "";
  return [["Node", found.node], ["Step", count(found.step)],
    ["Doing", `${plain(found.activity) || "running"} for ${span(found.since_s)}${late}`],
    ...(found.silent_s > 0 ? [["Silent", `its SDK has not answered; its last heartbeat was ${span(found.silent_s)} ago`]] : []),
    ...found.collectives.map((each) => [`Group ${each.group}`, `${count(each.begun)} operations begun, ${count(each.ended)} ended; last ${each.operation}`])];
}

/** The command that shows the same, and more of it. */
function command(kind, job, rank, previous) {
  return `holdfast ${kind === "log" ? "logs" : "stacks"} ${job} --rank ${rank}${kind === "log" && previous ? " --previous" : ""}`;
}
