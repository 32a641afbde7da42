// Jobs: all of them, and one with its ranks.

import { acts } from "./acts.js";
import { column, copied, el, facts, linked, say, table } from "./dom.js";
import { curves } from "./curves.js";
import { view as diagnosis } from "./diagnosis.js";
import { filters } from "./filters.js";
import { ask, nothing, state, tables, unknown } from "./feed.js";
import { list as incidentList } from "./incidents.js";
import { outputColumn, outputNote } from "./output.js";
import { account } from "./time.js";
import { brief, count, counted, moment, plain, span } from "./words.js";
import { tierText } from "./checkpoints.js";

const EVERY_MS = 2000;

/** The view at /jobs, /jobs/NAME and /jobs/NAME/diagnosis. */
export function view(words) {
  if (words[1] === "diagnosis") return diagnosis(words[0]);
  return words.length ? one(words[0]) : all();
}

function all() {
  const rows = table("Jobs", [
    linked("Job", (row) => `/jobs/${encodeURIComponent(row.job)}`, (row) => row.job),
    column("Phase", (row) => row.phase),
    column("Health", (row) => unknown() || row.health || "–"),
    column("Step", (row) => count(row.step), true),
    column("Ends in", (row) => left(row) || row.eta_word || "–", true),
    column("Ranks", (row) => count(row.world_size), true),
    column("Spares", (row) => count(row.spares), true),
    column("Incidents", (row) => count(row.incidents), true),
    column("Goodput", (row) => account(row).goodput, true),
    column("Checkpoint", (row) => row.last_checkpoint || "–"),
    column("Reason", (row) => brief(row.troubles[0] || row.reason) || "–"),
  ], (row) => row.job);
  const none = el("p", { class: "soft" });
  const wanted = filters("Name", [["Phase", (row) => row.phase]], show);
  const recent = incidentList((row) => !row.planned, 8);
  return {
    title: "Jobs",
    elements: [el("h1", {}, "Jobs"), wanted.element, none, rows, el("h2", {}, "Newest incidents"), recent.element],
    draw() {
      show();
      recent.draw();
    },
  };

  function show() {
    const found = wanted.passed([...tables.jobs.values()], (row) => row.job);
    wanted.element.hidden = tables.jobs.size < 2 && !wanted.active;
    none.hidden = found.length > 0;
    say(none, tables.jobs.size ? `None of ${count(tables.jobs.size)} jobs passes the filters.` : nothing("There is no job."));
    rows.hidden = found.length === 0;
    rows.show(found.sort((a, b) => a.job.localeCompare(b.job)));
  }
}

const ENDS = { job: "by the script's total_steps", loop: "where the loop that runs ends", trainer: "or near it, as its trainer counts" };

/** In how long a job's training ends; "" while that is not known. */
function left(row) {
  return row.eta_at_s === null || row.eta_at_s === undefined ? "" : span(Math.max(0, row.eta_at_s - Date.now() / 1000 - state.ahead_s));
}

/** When a job's training ends: how long that is, and the moment by the reader's clock; or why it is not known. */
function ends(row) {
  if (!left(row)) return row.eta_reason && row.eta_word !== "ended" ? `unknown: ${row.eta_reason}` : "–";
  return `in ${left(row)}, ${moment(row.eta_at_s - state.ahead_s).slice(0, -3)}, at step ${count(row.end_step)}, ${ENDS[row.eta_of] ?? ""}`;
}

function one(name) {
  const told = facts();
  const trouble = el("p", { class: "notice", hidden: true });
  const more = el("p", { class: "soft" });
  const ranks = table(`Ranks of ${name}`, [
    column("Rank", (row) => (row.rank < 0 ? "spare" : String(row.rank)), true),
    column("Phase", (row) => (row.stalled_s > 0 ? `${row.phase}, no progress for ${span(row.stalled_s)}` : row.phase)),
    column("Step", (row) => count(row.step), true),
    linked("Node", (row) => `/nodes/${encodeURIComponent(row.node)}`, (row) => row.node),
    column("Process", (row) => String(row.pid || "–"), true),
    column("Doing", (row) => row.failure || plain(row.activity) || "–"),
    outputColumn(() => name),
  ], (row) => row.member);
  const unread = el("p", { class: "soft" });
  const mine = incidentList((row) => !row.planned && row.job === name, 20);
  const history = curves(name);
  const buttons = acts("job", name);
  const timer = setInterval(load, EVERY_MS);
  let closed = false;

  async function load() {
    try {
      const found = await ask(`/api/jobs/${encodeURIComponent(name)}`);
      if (closed) return;
      ranks.show(found.ranks);
      const left = (tables.jobs.get(name)?.world_size ?? 0) + (tables.jobs.get(name)?.spares ?? 0) - found.ranks.length;
      say(more, left > 0 ? `${found.ranks.length} are shown, ${left} more are not.` : "");
    } catch (error) {
      say(more, error.message);
    }
  }

  load();
  return {
    title: name,
    elements: [
      copied(el("h1", {}, name), name), trouble, told, buttons.element,
      el("p", {}, el("a", { href: `/jobs/${encodeURIComponent(name)}/diagnosis` }, "What slows it"), " · ",
        el("a", { href: `/time/${encodeURIComponent(name)}` }, "Where its time went"), " · ",
        el("a", { href: `/checkpoints/${encodeURIComponent(name)}` }, "Its checkpoints")),
      el("h2", {}, "Curves"), history.element, el("h2", {}, "Incidents"), mine.element, el("h2", {}, "Ranks"), more, unread, ranks,
    ],
    draw(changes) {
      const row = tables.jobs.get(name);
      trouble.hidden = Boolean(row);
      say(trouble, nothing(`There is no job ${name}.`));
      buttons.draw(row);
      mine.draw();
      say(unread, outputNote());
      if (!row) return;
      if (changes?.has("incidents")) load();
      told.show([
        ["Phase", row.phase], ...(row.health ? [["Health", unknown() || [row.health, ...row.troubles].join("; ")]] : []), ["Step", count(row.step)], ["Ends", ends(row)], ["Ranks", `${count(row.world_size)}, and ${counted(row.spares, "spare")}`],
        ["Generation", `${row.generation}, ${counted(row.restarts, "failure")} survived`], ["Incidents", row.incidents],
        ["Goodput", account(row).goodput], ["State kept", tierText(row)], ...(row.pause ? [["Paused", row.pause]] : []), ["Reason", row.reason || "–"],
      ]);
    },
    close() {
      closed = true;
      history.close();
      clearInterval(timer);
    },
  };
}
