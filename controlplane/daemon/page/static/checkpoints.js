// Where copies of each job's state are, its newest checkpoints with their ages, and saves that failed.

import { acts } from "./acts.js";
import { column, copyable, el, keyed, linked, long, say, table } from "./dom.js";
import { age, nothing, tables } from "./feed.js";
import { count, moment, size, span } from "./words.js";

const EVERY_MS = 5000;

const TIERS = {
  memory: "snapshots in the memory of its own nodes",
  peer: "copies in the memory of other nodes",
  storage: "committed checkpoints",
  mirror: "on the second storage",
};

/** The view at /checkpoints and /checkpoints/JOB. */
export function view(words) {
  const only = words[0] ?? "";
  const cards = el("ul", { class: "cards broad" });
  const none = el("p", { class: "soft" });
  const rows = table("Newest checkpoints", [
    linked("Job", (row) => `/jobs/${encodeURIComponent(row.job)}`, (row) => row.job),
    copyable("Checkpoint", (row) => row.id),
    column("Age", (row) => (row.committed_s === null ? "not known" : ago(row.committed_s)), true),
    column("Step", (row) => count(row.step), true),
    column("Kind", (row) => row.kind),
    column("Size", (row) => size(row.bytes_total), true),
    column("Written", (row) => size(row.bytes_written), true),
    column("State", standing),
  ], (row) => `${row.job}/${row.id}`);
  const whole = el("p", { class: "soft" });
  const failed = table("Failed saves", [
    column("When", (row) => moment(row.at_s)),
    linked("Job", (row) => `/jobs/${encodeURIComponent(row.job)}`, (row) => row.job),
    copyable("Checkpoint", (row) => row.id),
    column("What", (row) => row.happened),
    long("Why", (row) => row.reason || "–"),
  ], (row) => `${row.job}/${row.line}`);
  const timer = setInterval(() => made.draw(), EVERY_MS);
  const made = {
    title: "Checkpoints",
    elements: [el("h1", {}, only ? `Checkpoints of ${only}` : "Checkpoints"), cards, el("h2", {}, "Newest"), none, rows,
      el("h2", {}, "Failed saves"), whole, failed],
    draw() {
      const jobs = [...tables.jobs.values()].filter((row) => !only || row.job === only);
      keyed(cards, jobs, (row) => row.job, card, (element, row) => element.show(row));
      const found = [...tables.checkpoints.values()].filter((row) => !only || row.job === only)
        .sort((a, b) => a.job.localeCompare(b.job) || b.step - a.step);
      none.hidden = found.length > 0;
      say(none, nothing("There is no checkpoint."));
      rows.hidden = found.length === 0;
      rows.show(found);
      const failures = failuresOf((row) => !only || row.job === only);
      failed.hidden = failures.length === 0;
      whole.hidden = failures.length > 0;
      say(whole, nothing("The journal of this coordinator has no failed save."));
      failed.show(failures);
    },
    close() {
      clearInterval(timer);
    },
  };
  return made;
}

/** The failed saves for which `wanted(row)` is true, the newest first. */
function failuresOf(wanted) {
  return [...tables.failed_saves.values()].filter(wanted).sort((a, b) => b.at_s - a.at_s || b.line - a.line);
}

function ago(at_s) {
  const seconds = Math.round(age(at_s));
  return `${seconds < 60 ? `${seconds} s` : span(seconds)} ago`;
}

/** Whether a checkpoint may be used. One that is suspect is used only if there is no other. */
function standing(row) {
  if (row.bad) return row.bad;
  if (row.suspect) return `suspect: ${row.suspect}`;
  return row.published ? "published" : "committed";
}

/** How old the newest durable state of a job is, and whether a save has failed since. */
function newest(job) {
  const found = [...tables.checkpoints.values()].filter((row) => row.job === job && !row.bad).sort((a, b) => b.step - a.step)[0];
  const failure = failuresOf((row) => row.job === job)[0];
  const durable = !found ? "No checkpoint is durable."
    : `The newest durable checkpoint is of step ${count(found.step)}${found.committed_s === null ? ", its age is not known" : `, ${ago(found.committed_s)}`}.`;
  const since = failure && (!found || found.committed_s === null || failure.at_s > found.committed_s);
  return { durable, trouble: since ? `Since ${moment(failure.at_s)}: ${failure.id} ${failure.happened}: ${failure.reason || "no reason was given"}` : "" };
}

function card(row) {
  const list = table(`Copies of the state of ${row.job}`, [
    column("Tier", (tier) => tier.tier),
    column("Newest step", (tier) => (tier.step === null ? "not reported" : count(tier.step)), true),
    column("Copies", (tier) => (tier.copies === null ? "not reported" : count(tier.copies)), true),
    long("Where", (tier) => TIERS[tier.tier]),
  ], (tier) => tier.tier);
  const durable = el("p", { class: "soft" });
  const trouble = el("p", { class: "warn wraps" });
  const buttons = acts("checkpoint", row.job);
  const element = el("li", { class: "card" },
    el("h2", {}, el("a", { href: `/jobs/${encodeURIComponent(row.job)}` }, row.job)), list, durable, trouble, buttons.element);
  element.show = (now) => {
    list.show(now.tiers.filter((tier) => now.storage || (tier.tier !== "storage" && tier.tier !== "mirror")));
    const told = newest(row.job);
    durable.hidden = !now.storage;
    say(durable, told.durable);
    trouble.hidden = !told.trouble;
    say(trouble, told.trouble);
    buttons.draw(now);
  };
  return element;
}

/** Where copies of a job's state are, in a few words. */
export function tierText(row) {
  const found = row.tiers.filter((tier) => tier.step !== null && tier.step >= 0);
  return found.map((tier) => `${tier.tier} step ${count(tier.step)}`).join(", ") || "nowhere yet";
}
