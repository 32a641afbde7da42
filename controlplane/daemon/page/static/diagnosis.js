// What slows a job: findings with evidence and advice, a map of ranks compared with their peers, and where the time of a step goes. The same report as `holdfast doctor JOB`.

import { anatomy } from "./anatomy.js";
import { el, say } from "./dom.js";
import { ask, nothing, tables } from "./feed.js";
import { findings } from "./findings.js";
import { slowSteps } from "./slow.js";
import { count, moment, percent, span } from "./words.js";

const EVERY_MS = 3000;

/** The view at /jobs/NAME/diagnosis. */
export function view(job) {
  const trouble = el("p", { class: "notice", hidden: true });
  const level = el("p");
  const worth = el("p");
  const failed = el("p", { class: "bad", hidden: true });
  const open = findings(job, load);
  const over = findings(job, load);
  const resolved = el("details", {}, el("summary"), over.element);
  const step = anatomy(job);
  const slow = slowSteps(job);
  let asked = 0;
  let shown = 0;
  let shownAt = 0;
  let closed = false;

  async function load() {
    const mine = asked += 1;
    try {
      const found = await ask(`/api/jobs/${encodeURIComponent(job)}/diagnosis`);
      if (closed || mine < shown) return;
      shown = mine;
      shownAt = Date.now() / 1000;
      show(found);
    } catch (error) {
      if (closed || mine < shown) return;
      trouble.hidden = false;
      say(trouble, shownAt ? `This report is of ${moment(shownAt)}: ${error.message}` : error.message);
    }
  }

  function show(found) {
    trouble.hidden = true;
    say(level, `The job is ${found.level}.${found.left_out ? ` ${count(found.left_out)} findings more are not kept.` : ""}`);
    say(worth, achieved(found));
    failed.hidden = !found.failed_detectors.length;
    say(failed, `These detectors failed, so what they look for is not known: ${found.failed_detectors.join("; ")}`);
    open.show(found.findings, found.anatomy.judged ? "No finding: nobody is to blame." : "No finding. Nothing has been judged yet.");
    resolved.hidden = !found.resolved.length;
    say(resolved.firstChild, `Resolved findings (${count(found.resolved.length)})`);
    over.show(found.resolved, "");
    step.show(found);
  }

  load();
  const timer = setInterval(load, EVERY_MS);
  return {
    title: `Diagnosis of ${job}`,
    elements: [
      el("h1", {}, "Diagnosis of ", el("a", { href: `/jobs/${encodeURIComponent(job)}` }, job)), trouble, level, worth, failed,
      el("h2", {}, "Findings"), open.element, resolved, ...step.elements, ...slow.elements,
    ],
    draw(changes) {
      if (tables.cluster.size && !tables.jobs.has(job)) {
        trouble.hidden = false;
        say(trouble, nothing(`There is no job ${job}.`));
      }
      open.draw();
      if (changes === null) step.again();
    },
    close() {
      closed = true;
      clearInterval(timer);
      step.close();
      slow.close();
    },
  };
}

/** Goodput, rates and MFU of a report, in a sentence; what is not known is said with its reason. */
function achieved(found) {
  const { time, efficiency } = found;
  const parts = [];
  if (time) parts.push(`Goodput ${time.goodput === null ? "is not known" : percent(time.goodput)} of ${span(time.total_s)}.`);
  if (!efficiency) return parts.join(" ");
  if (efficiency.samples_per_s !== null) parts.push(`${count(Math.round(efficiency.samples_per_s))} samples per second.`);
  if (efficiency.tokens_per_s !== null) parts.push(`${count(Math.round(efficiency.tokens_per_s))} tokens per second.`);
  parts.push(efficiency.mfu === null ? `MFU is not known: ${efficiency.reason}.` : `MFU ${percent(efficiency.mfu)}.`);
  return parts.join(" ");
}
