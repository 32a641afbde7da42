// The buttons for what operators may do. Each asks for confirmation first.

import { el, say } from "./dom.js";
import { post, state } from "./feed.js";

const DAY_S = 86400;
const ACTS = {
  node: [
    { act: "drain", name: "Drain", ask: (node) => `Move all ranks off ${node} at a step boundary? It takes no new ranks until it is uncordoned.`,
      body: (node, reason, force) => ({ node, reason, deadline_s: 300, force }), force: "even when that parks a job, or costs it steps" },
    { act: "cordon", name: "Cordon", ask: (node) => `Have ${node} take no new ranks? Those it has stay.`,
      body: (node, reason) => ({ node, reason, on: true }) },
    { act: "cordon", name: "Uncordon", ask: (node) => `Have ${node} take ranks again?`, body: (node, reason) => ({ node, reason, on: false }) },
  ],
  job: [
    { act: "pause", name: "Pause", when: (row) => lives(row) && !row.pause, body: (job, reason) => ({ job, reason, on: true }),
      ask: (job) => `Stop ${job} at the end of a step? Its ranks keep their state until it is resumed.` },
    { act: "pause", name: "Resume", when: (row) => lives(row) && row.pause, body: (job, reason) => ({ job, reason, on: false }),
      ask: (job) => `Have ${job} continue from its current step?` },
    { act: "checkpoint", name: "Checkpoint now", when: (row) => lives(row) && row.storage, body: (job, reason) => ({ job, reason }),
      ask: (job) => `Make the newest state of ${job} durable now?` },
  ],
};
ACTS.checkpoint = [ACTS.job[2]];
ACTS.finding = [
  { act: "mute", name: "Mute for a day", when: (row) => !row.muted, body: ({ job, id }, reason) => ({ job, id, for_s: DAY_S, reason }),
    ask: ({ job, id }) => `Alert nobody to ${id} of ${job} for a day? It is still shown.` },
  { act: "mute", name: "Alert again", when: (row) => row.muted, body: ({ job, id }, reason) => ({ job, id, for_s: 0, reason }),
    ask: ({ job, id }) => `Alert people to ${id} of ${job} again?` },
];

function lives(row) {
  return !["finished", "failed", "stopped"].includes(row.phase);
}

/** The buttons for a node, a job, or a finding, whose name is {job, id}; kind `checkpoint` has only a job's checkpoint button. `draw(row)` shows those that the viewer may press now. `after` is called when an act was carried out. */
export function acts(kind, name, after = () => {}) {
  const answer = el("p", { role: "status" });
  const buttons = ACTS[kind].map((each) => [each, el("button", { type: "button", onclick: () => question(each, name, answer, after) }, each.name)]);
  const element = el("div", {}, el("div", { class: "row" }, buttons.map(([, button]) => button)), answer);
  return {
    element,
    draw(row) {
      element.hidden = !row;
      for (const [each, button] of buttons) {
        button.hidden = !state.session?.acts.includes(each.act) || Boolean(row && each.when && !each.when(row));
      }
    },
  };
}

function question(each, name, answer, after) {
  const reason = el("input", { id: "reason", maxlength: 200, placeholder: "by hand" });
  const force = el("input", { id: "force", type: "checkbox" });
  const dialog = el("dialog", { "aria-label": each.name },
    el("p", {}, each.ask(name)),
    el("label", { for: "reason" }, "Reason, for the journal"), reason,
    each.force ? el("label", { class: "tick" }, force, each.force) : "",
    el("div", { class: "row" },
      el("button", { type: "button", onclick: () => done(true) }, each.name),
      el("button", { type: "button", onclick: () => done(false) }, "Cancel")));
  async function done(go) {
    dialog.close();
    if (!go) return;
    say(answer, "asking");
    try {
      const reply = await post(`/api/act/${each.act}`, each.body(name, reason.value, force.checked));
      say(answer, [reply.outcome, reply.reason].filter(Boolean).join(": ") || "done");
      after();
    } catch (error) {
      say(answer, error.message);
    }
  }
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
