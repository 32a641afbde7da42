// Where copies of each job's state are, and its newest checkpoints.

import { acts } from "./acts.js";
import { column, el, keyed, linked, say, table } from "./dom.js";
import { nothing, tables } from "./feed.js";
import { count, size } from "./words.js";

const TIERS = {
  memory: "snapshots in the memory of its own nodes",
  peer: "copies in the memory of other nodes",
  storage: "committed checkpoints",
  mirror: "on the second storage",
};

/** The view at /checkpoints and /checkpoints/JOB. */
export function view(words) {
  const only = words[0] ?? "";
  const cards = el("ul", { class: "cards" });
  const none = el("p", { class: "soft" });
  const rows = table("Newest checkpoints", [
    linked("Job", (row) => `/jobs/${encodeURIComponent(row.job)}`, (row) => row.job),
    column("Checkpoint", (row) => row.id),
    column("Step", (row) => count(row.step), true),
    column("Kind", (row) => row.kind),
    column("Size", (row) => size(row.bytes_total), true),
    column("Written", (row) => size(row.bytes_written), true),
    column("State", (row) => row.bad || (row.published ? "published" : "committed")),
  ], (row) => `${row.job}/${row.id}`);
  return {
    title: "Checkpoints",
    elements: [el("h1", {}, only ? `Checkpoints of ${only}` : "Checkpoints"), cards, el("h2", {}, "Newest"), none, rows],
    draw() {
      const jobs = [...tables.jobs.values()].filter((row) => !only || row.job === only);
      keyed(cards, jobs, (row) => row.job, card, (element, row) => element.show(row));
      const found = [...tables.checkpoints.values()].filter((row) => !only || row.job === only)
        .sort((a, b) => a.job.localeCompare(b.job) || b.step - a.step);
      none.hidden = found.length > 0;
      say(none, nothing("There is no checkpoint."));
      rows.hidden = found.length === 0;
      rows.show(found);
    },
  };
}

function card(row) {
  const list = table(`Copies of the state of ${row.job}`, [
    column("Tier", (tier) => tier.tier),
    column("Newest step", (tier) => (tier.step === null ? "not reported" : count(tier.step)), true),
    column("Copies", (tier) => (tier.copies === null ? "not reported" : count(tier.copies)), true),
    column("Where", (tier) => TIERS[tier.tier]),
  ], (tier) => tier.tier);
  const buttons = acts("checkpoint", row.job);
  const element = el("li", { class: "card" },
    el("h2", {}, el("a", { href: `/jobs/${encodeURIComponent(row.job)}` }, row.job)), list, buttons.element);
  element.show = (now) => {
    list.show(now.tiers.filter((tier) => now.storage || (tier.tier !== "storage" && tier.tier !== "mirror")));
    buttons.draw(now);
  };
  return element;
}

/** Where copies of a job's state are, in a few words. */
export function tierText(row) {
  const found = row.tiers.filter((tier) => tier.step !== null && tier.step >= 0);
  return found.map((tier) => `${tier.tier} step ${count(tier.step)}`).join(", ") || "nowhere yet";
}
